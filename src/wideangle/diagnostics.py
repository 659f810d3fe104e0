r"""Convergence: rank-normalised split R-hat, bulk and tail effective sample size.

With draws of shape ``(chain, draw)``, each chain is cut in two, values are replaced by normal
scores of their ranks, :math:`z = \Phi^{-1}\big((r - 3/8)/(S + 1/4)\big)`, and then

* R-hat is the larger of the split R-hat of the scores and of the scores of
  :math:`|x - \mathrm{median}|` (the second sees chains that differ in spread only);
* bulk ESS is the effective sample size of the scores;
* tail ESS is the smaller of those of the indicators of the 5 % and 95 % quantiles

(Vehtari, Gelman, Simpson, Carpenter and Bürkner, 2021).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

RHAT_LIMIT = 1.01
"""R-hat above this is reported (the limit of Stan and PyMC)."""
ESS_PER_CHAIN = 100
"""Bulk or tail ESS below this times the number of chains is reported."""
STUCK = 1000.0
"""R-hat of chains that stand still at different values, where the ratio is one of rounding errors.

Not infinite: what is not finite is left out of tables and files as unknown, and this is known bad.
"""
MIN_DRAWS = 4
"""Fewer draws per chain cannot be split and have no diagnostics (NaN)."""
QUANTILES = (0.05, 0.5, 0.95)


class ConvergenceWarning(UserWarning):
    """The draws may not represent the posterior."""


def rhat(draws: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat of draws ``(chain, draw, ...)``; 1 when chains agree."""
    return _for_each(_rhat, draws)


def ess_bulk(draws: np.ndarray) -> np.ndarray:
    """Effective sample size for the centre of the distribution, all chains together."""
    return _for_each(lambda x: _ess(_normal_scores(_split(x))), draws)


def ess_tail(draws: np.ndarray) -> np.ndarray:
    """Effective sample size for the 5 % and 95 % quantiles, the smaller of the two."""
    return _for_each(_ess_tail, draws)


@dataclass(frozen=True)
class Summary:
    """A table: one row per number, columns by name."""

    names: tuple[str, ...]
    columns: Mapping[str, np.ndarray]

    def __getitem__(self, column: str) -> np.ndarray:
        return self.columns[column]

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        cells = [["", *self.columns]]
        for row, name in enumerate(self.names):
            cells.append([name, *(f"{column[row]:.4g}" for column in self.columns.values())])
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in cells
        ]
        return "\n".join(lines)

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(dict(self.columns), index=list(self.names))


def summarise(values: Any) -> Summary:
    """Mean, sd, quantiles, ESS and R-hat of every number in a pytree of draws.

    Directions of exchangeable components may be permuted between chains without harm; R-hat of
    label-invariant quantities (log density, pairwise angles sorted) is the one to trust.
    """
    names: list[str] = []
    columns: dict[str, list[np.ndarray]] = {}
    for name, leaf in named_leaves(values):
        draws = np.asarray(leaf, dtype=float)
        shape = draws.shape[2:]
        names += [name + (str(list(index)) if shape else "") for index in np.ndindex(shape)]
        for column, entries in _statistics(draws).items():
            columns.setdefault(column, []).append(np.ravel(entries))
    return Summary(tuple(names), {k: np.concatenate(parts) for k, parts in columns.items()})


def warnings_for(summary: Summary, n_chains: int, divergences: Mapping[str, int]) -> list[str]:
    """Plain sentences about what is wrong; an empty list when nothing is."""
    sentences = []
    high = _worst(summary, "rhat", np.greater, RHAT_LIMIT)
    if high:
        sentences.append(
            f"R-hat is above {RHAT_LIMIT} for {high[0]} of {len(summary)} quantities (worst "
            f"{show_rhat(high[2])}, {high[1]}): the chains have not mixed. Run them longer."
        )
    for column, meaning in (("ess_bulk", "means"), ("ess_tail", "quantiles")):
        low = _worst(summary, column, np.less, ESS_PER_CHAIN * n_chains)
        if low:
            sentences.append(
                f"The effective sample size is below {ESS_PER_CHAIN} per chain for {low[0]} of "
                f"{len(summary)} quantities (worst {low[2]:.0f} in all, {low[1]}): estimates of "
                f"{meaning} are unreliable. Draw more."
            )
    for block, count in divergences.items():
        if count:
            sentences.append(
                f"{count} trajectories of {block!r} diverged after warm-up: parts of the posterior "
                "may be missing. Raise the target acceptance."
            )
    return sentences


def warn(sentences: list[str]) -> None:
    """Issue each sentence as a :class:`ConvergenceWarning`."""
    for sentence in sentences:
        warnings.warn(sentence, ConvergenceWarning, stacklevel=3)


def named_leaves(values: Any) -> Iterator[tuple[str, Any]]:
    """Leaves of a pytree with dotted names; a bare array is called ``x``."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(values):
        yield ".".join(_label(entry) for entry in path) or "x", leaf


def _label(entry: Any) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _statistics(draws: np.ndarray) -> dict[str, np.ndarray]:
    empty = draws.shape[0] * draws.shape[1] == 0
    axes = (0, 1)
    nothing = np.full(draws.shape[2:], np.nan)
    result = {
        "mean": nothing if empty else draws.mean(axes),
        "sd": nothing
        if empty
        else draws.std(axes, ddof=min(1, draws.shape[0] * draws.shape[1] - 1)),
    }
    for level in QUANTILES:
        result[f"{level:.0%}"] = nothing if empty else np.quantile(draws, level, axis=axes)
    return result | {
        "ess_bulk": ess_bulk(draws),
        "ess_tail": ess_tail(draws),
        "rhat": rhat(draws),
    }


def show_rhat(value: float, digits: int = 3) -> str:
    """R-hat in words; of chains that stand still the number itself means nothing."""
    return f"{value:.{digits}f}" if value < 100 else "over 100"  # noqa: PLR2004


def _worst(summary: Summary, column: str, compare: Any, limit: float) -> Any:
    values = summary[column]
    bad = np.isfinite(values) & compare(values, limit)
    if not bad.any():
        return None
    worst = np.nanargmax(values) if compare is np.greater else np.nanargmin(values)
    return int(bad.sum()), summary.names[worst], float(values[worst])


def _for_each(function: Any, draws: np.ndarray) -> np.ndarray:
    """Apply a diagnostic to every number; NaN where it is undefined."""
    draws = np.asarray(draws, dtype=float)
    flat = draws.reshape(*draws.shape[:2], math.prod(draws.shape[2:]))  # -1 fails on no draws
    result = np.full(flat.shape[2], np.nan)
    if draws.shape[1] >= MIN_DRAWS:
        for index in range(flat.shape[2]):
            one = flat[:, :, index]
            # A constant has no variance to compare, a NaN no rank.
            if np.isfinite(one).all() and one.min() < one.max():
                result[index] = function(one)
    return result.reshape(draws.shape[2:])


def _split(draws: np.ndarray) -> np.ndarray:
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _normal_scores(draws: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri
    from scipy.stats import rankdata

    ranks = rankdata(draws, method="average").reshape(draws.shape)
    return ndtri((ranks - 0.375) / (draws.size + 0.25))


def _rhat(draws: np.ndarray) -> float:
    from numpyro.diagnostics import gelman_rubin

    split = _split(draws)
    if not np.ptp(split, axis=1).any() and np.ptp(split):
        return STUCK
    folded = np.abs(split - np.median(split))
    return max(float(gelman_rubin(_normal_scores(part))) for part in (split, folded))


def _ess_tail(draws: np.ndarray) -> float:
    low, high = np.quantile(draws, (0.05, 0.95))
    indicators = [_split(draws <= low), _split(draws <= high)]
    sizes = [_ess(part.astype(float)) for part in indicators if part.any() and not part.all()]
    return min(sizes, default=np.nan)


def _ess(draws: np.ndarray) -> float:
    """Size divided by the autocorrelation time, by Geyer's initial monotone sequence.

    Autocorrelations are summed in pairs, made to fall, up to the first pair that is not
    positive. NumPyro's function of this name leaves out the even term of that last pair, which
    Stan and ArviZ keep; the difference is up to a per cent or two.
    """
    from numpyro.diagnostics import autocovariance

    n_draws = draws.shape[1]
    covariance = autocovariance(draws, axis=1).mean(0)
    within = covariance[0] * n_draws / (n_draws - 1)
    total = covariance[0] + np.var(draws.mean(1), ddof=1)
    correlation = 1.0 - (within - covariance) / total
    correlation[0] = 1.0
    pairs = correlation[0 : n_draws - 1 : 2] + correlation[1::2]
    last = max((n_draws - 3) // 2, 0)
    if (pairs[:last] <= 0).any():
        last = int(np.argmax(pairs[:last] <= 0))
    falling = np.minimum.accumulate(pairs[:last])
    time = -1.0 + 2.0 * falling.sum() + max(correlation[2 * last], 0.0)
    # Antithetic chains can have a tiny estimated time; the bound is the one of Stan.
    return draws.size / max(time, 1.0 / np.log10(draws.size))
