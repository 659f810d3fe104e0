r"""Chains that begin anew from a better one, halfway through the warm-up.

A chain can be caught in a mode of the posterior that holds next to none of its mass, and stay there
for longer than anybody waits. Any start is allowed, since draws come later, so a chain whose mode
has far less mass than the best continues from a draw of a better chain. The mass of a mode, that
is, its height *and* its volume, is estimated by the bound

.. math:: \log Z \ge \mathrm E\log p(y\mid x)
          - \mathrm{KL}\big(N(m, \operatorname{diag} v)\,\big\|\,N(0, I)\big)

with the means m and the variances v of the chain's coordinates x, whose prior is nearly standard
normal. Without the volume, chains in narrow peaks would win.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from wideangle.mixture_of_experts.coordinates import Priors
from wideangle.mixture_of_experts.whitened import standardised
from wideangle.posterior import Draws
from wideangle.priors.components import HierarchicalComponents

FAR = 1.0
"""How far below the best the log mass of a mode is negligible, in standard deviations of the log
density within a chain: about 7 nats for a hundred weights and 12 for three hundred. The estimate
is that uncertain for chains that are worth two draws."""
FEWEST = 50
"""Draws of a chain of which half are enough to judge it."""


class Pooled(NamedTuple):
    """Where each chain continues."""

    chains: np.ndarray
    """The chain, its own unless it begins anew."""
    draws: np.ndarray
    """The draw of that chain."""

    @property
    def n_new(self) -> int:
        """Number of chains that begin anew."""
        return int(np.sum(self.chains != np.arange(len(self.chains))))

    @property
    def together(self) -> bool:
        """Whether all chains continue the same one, with experts numbered alike."""
        return self.n_new > 0 and bool(np.all(self.chains == self.chains[0]))


def pool(priors: Priors, draws: Draws) -> Pooled:
    """Where chains with these draws continue."""
    own = np.arange(draws.n_chains)
    last = np.full(len(own), draws.n_draws - 1)
    hierarchical = all(isinstance(prior, HierarchicalComponents) for prior in priors)
    if not hierarchical or draws.n_draws < FEWEST:
        return Pooled(own, last)
    mass, spread = log_masses(priors, draws)
    if not np.isfinite(mass).any():
        return Pooled(own, last)
    far = mass < mass.max() - FAR * spread
    better = [chain for chain in np.argsort(-mass) if not far[chain]]
    chains = own.copy()
    chains[far] = np.resize(better, far.sum())
    # Not all from the same draw, but from different ones in the later half.
    turn = np.array([np.sum(chains[:i] == chain) for i, chain in enumerate(chains)])
    before = np.where(far, (turn + 1) * draws.n_draws // (2 * len(own) + 2), 0)
    return Pooled(chains, last - before)


def log_masses(priors: Priors, draws: Draws) -> tuple[np.ndarray, float]:
    """The bound for the mode of each chain, and the spread of the log density within chains."""
    later = jax.tree.map(lambda leaf: np.asarray(leaf[:, draws.n_draws // 2 :]), draws.values)
    parts = [part for pair in standardised(priors, later) for part in pair if part is not None]
    flat = [np.reshape(part, (*part.shape[:2], -1)).astype(np.float64) for part in parts]
    x = np.concatenate(flat, axis=2)
    log_density = later["log_lik"] - 0.5 * np.sum(x**2, axis=2)
    with np.errstate(divide="ignore"):  # a chain that does not move has no volume
        log_volume = 0.5 * np.sum(np.log(np.var(x, axis=1)), axis=1)
    return log_density.mean(axis=1) + log_volume, float(np.median(log_density.std(axis=1)))


def continued(draws: Draws, pooled: Pooled) -> Draws:
    """The draws of the chain that each chain continues."""
    return draws if pooled.n_new == 0 else jax.tree.map(lambda leaf: leaf[pooled.chains], draws)


def ends(weights: Any, pooled: Pooled) -> Any:
    """The weights at which each chain continues."""
    return jax.tree.map(lambda leaf: leaf[pooled.chains, pooled.draws], weights)
