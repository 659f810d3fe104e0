"""What inference gives back: draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np

from wideangle.convergence import Chains, ConvergenceWarning, caution, share_divergent
from wideangle.diagnostics import Summary, named_leaves, summarise


def evenly(n: int, most: int) -> np.ndarray:
    """At most ``most`` of the numbers 0 to n - 1, evenly spaced: to thin draws or rows."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(int))


@partial(jax.tree_util.register_dataclass, data_fields=["values", "stats"], meta_fields=["needed"])
@dataclass(frozen=True)
class Draws:
    """Draws of Markov chains.

    Parameters
    ----------
    values
        Pytree of arrays with axes ``(chain, draw, ...)``.
    stats
        By block: what the kernel reported for each draw, as fields of shape ``(chain, draw)``.
    needed
        Names of the values that predictions depend on; all of them when left out.
    """

    values: Any
    stats: Mapping[str, Any] = field(default_factory=dict)
    needed: tuple[str, ...] | None = None

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return jax.tree.leaves(self.values)[0].shape[0]

    @property
    def n_draws(self) -> int:
        """Number of draws of each chain."""
        return jax.tree.leaves(self.values)[0].shape[1]

    @property
    def flat(self) -> Any:
        """Values with chains one after the other: axes ``(draw, ...)``."""
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.values)

    def summary(self) -> Summary:
        """Mean, sd, quantiles, effective sample sizes and R-hat of every number."""
        return summarise(self.values, self.needed)

    def caution(
        self, summary: Summary | None = None, chains: Chains | None = None
    ) -> ConvergenceWarning | None:
        """What is wrong with the predictions of these draws, in a sentence, or None."""
        values = dict(named_leaves(self.values))
        share = share_divergent(self.stats)
        return caution(values, summary or self.summary(), share, chains or Chains())

    def followed_by(self, later: Draws) -> Draws:
        """These draws and those of the same chains taken up again."""

        def join(left: Any, right: Any) -> Any:
            return jax.tree.map(lambda a, b: np.concatenate([a, b], axis=1), left, right)

        joined = join(self.values, later.values), join(self.stats, later.stats)
        return Draws(*joined, self.needed)

    def since(self, n_draws: int) -> Draws:
        """The draws after the first ``n_draws`` of each chain."""
        return jax.tree.map(lambda leaf: leaf[:, n_draws:], self)

    def in_turns(self) -> Draws:
        """All draws as one chain, those of the starts of an approximation in turns.

        Draws are independent, so their order has no meaning.
        """

        def join(leaf: Any) -> np.ndarray:
            return np.swapaxes(leaf, 0, 1).reshape(1, -1, *leaf.shape[2:])

        return jax.tree.map(join, self)

    def to_arviz(
        self,
        coords: Mapping[str, Sequence[Any]] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
    ) -> Any:
        """The container of ArviZ, with the groups ``posterior`` and ``sample_stats``."""
        # Imported on use: ArviZ is optional and takes seconds.
        from wideangle.arviz_adapter import to_arviz

        groups = {"posterior": dict(named_leaves(self.values))}
        if self.stats:
            groups["sample_stats"] = arviz_stats(self.stats)
        return to_arviz(groups, coords=coords, dims=dims)


def arviz_stats(stats: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Names that the plots of ArviZ use (``diverging``), and one column for each block."""
    table: dict[str, np.ndarray] = {}
    for name, info in stats.items():
        table[f"{name}.acceptance_rate"] = np.asarray(info.acceptance)
        table[f"{name}.n_evaluations"] = np.asarray(info.evaluations)
        divergent = np.asarray(info.divergent) > 0
        table["diverging"] = table.get("diverging", np.zeros_like(divergent)) | divergent
    return table
