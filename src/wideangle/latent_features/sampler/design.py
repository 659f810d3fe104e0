"""What a latent feature model is made of: settings that never change while it is fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

LEARNABLE = ("mass", "noise", "concentration", "rate", "discount", "strength")


class Gamma(NamedTuple):
    """Shape and rate of a Gamma law over a positive number above the features."""

    shape: float
    rate: float


WIDE = 1024
"""Size from which arrays grow for features that are in use, not for unused ones."""
UNIT = Gamma(1.0, 1.0)


@dataclass(frozen=True)
class Design:
    """Settings of the sampler; hashable, so that a compiled program can be found again.

    Parameters
    ----------
    features
        ``"polar"``: directions and Gamma lengths; ``"gaussian"``: Gaussian vectors.
    ordered
        Whether directions repel each other (the infinite mutual-angular prior, type I). The order
        of the features, by weight, is then part of the model; otherwise they are exchangeable.
    magnitude_shape
        Shape of the Gamma law of lengths.
    learned
        Names out of :data:`LEARNABLE`; the rest stays at its value.
    mass, noise, rate
        Laws of the learned numbers; that of ``noise`` is of the precision, ``1/noise``.
    hamiltonian
        Move directions and lengths together by Hamiltonian trajectories instead of one feature
        after the other: what a GPU is good at.
    """

    features: str = "polar"
    ordered: bool = True
    magnitude_shape: float = 2.0
    learned: frozenset[str] = frozenset()
    mass: Gamma = UNIT
    noise: Gamma = UNIT
    rate: Gamma = UNIT
    hamiltonian: bool = False
    n_relocations: int = 16
    """Single features offered another place in the order, per sweep, beside all at once."""
    n_null_moves: int = 3
    """Births or deaths of features that explain nothing, per sweep."""
    n_single_moves: int = 3
    """Births or deaths of features of a single row, per sweep."""

    @property
    def n_births(self) -> int:
        """Features that may be born in a sweep."""
        return self.n_null_moves + self.n_single_moves

    def __post_init__(self) -> None:
        if unknown := self.learned - set(LEARNABLE):
            raise ValueError(f"cannot learn {sorted(unknown)}; choose from {LEARNABLE}")
