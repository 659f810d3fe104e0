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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

MIN_DRAWS = 4
"""Fewer draws per chain cannot be split and have no diagnostics (NaN)."""
QUANTILES = (0.05, 0.5, 0.95)


def rhat(draws: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat of draws ``(chain, draw, ...)``; 1 when chains agree.

    NaN where no chain moves: without variance within chains there is nothing to compare with.
    """
    return _for_each(_rhat, draws)


def ess_bulk(draws: np.ndarray) -> np.ndarray:
    """Effective sample size for the centre of the distribution, all chains together."""
    return _for_each(lambda x: _ess(_normal_scores(_split(x))), draws)


def ess_tail(draws: np.ndarray) -> np.ndarray:
    """Effective sample size for the 5 % and 95 % quantiles, the smaller of the two."""
    return _for_each(_ess_tail, draws)


@dataclass(frozen=True)
class Summary:
    """A table: one row per number, columns by name.

    The column ``needed`` marks the numbers that predictions depend on. A number that is constant in
    each chain has no R-hat and no effective sample size (NaN); ``constant`` has its values instead,
    by name, one for each chain.
    """

    names: tuple[str, ...]
    columns: Mapping[str, np.ndarray]
    constant: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __getitem__(self, column: str) -> np.ndarray:
        return self.columns[column]

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        heads = [*self.columns, *(["constant in each chain"] if self.constant else [])]
        cells = [["", *heads]]
        for row, name in enumerate(self.names):
            line = [name, *(_cell(column[row]) for column in self.columns.values())]
            more = [values_of(self.constant[name])] if name in self.constant else [""]
            cells.append(line + more * bool(self.constant))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in cells
        ]
        return "\n".join(line.rstrip() for line in lines)

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame."""
        import pandas

        table = dict(self.columns)
        if self.constant:
            table["constant"] = [self.constant.get(name) for name in self.names]
        return pandas.DataFrame(table, index=list(self.names))


def summarise(values: Any, needed: Sequence[str] | None = None) -> Summary:
    """Mean, sd, quantiles, ESS and R-hat of every number in a pytree of draws.

    Directions of exchangeable components may be permuted between chains without harm; R-hat of
    label-invariant quantities (log density, pairwise angles sorted) is the one to trust.

    Parameters
    ----------
    values
        Arrays with axes ``(chain, draw, ...)``.
    needed
        Names of the arrays that predictions depend on; all of them when left out.
    """
    names: list[str] = []
    columns: dict[str, list[np.ndarray]] = {}
    constant: dict[str, np.ndarray] = {}
    for name, leaf in named_leaves(values):
        draws = np.asarray(leaf, dtype=float)
        shape = draws.shape[2:]
        entries = [name + (str(list(index)) if shape else "") for index in np.ndindex(shape)]
        names += entries
        counts = np.full(len(entries), needed is None or name in needed)
        for column, numbers in (_statistics(draws) | {"needed": counts}).items():
            columns.setdefault(column, []).append(np.ravel(numbers))
        flat = draws.reshape(*draws.shape[:2], len(entries))
        still = _still(flat)
        constant |= {entry: flat[:, 0, i] for i, entry in enumerate(entries) if still[i]}
    table = {column: np.concatenate(parts) for column, parts in columns.items()}
    return Summary(tuple(names), table, constant)


def _still(draws: np.ndarray) -> np.ndarray:
    """Which numbers of ``(chain, draw, number)`` stay at one value in every chain."""
    if draws.shape[1] < MIN_DRAWS or draws.shape[0] == 0:
        return np.zeros(draws.shape[2], bool)
    with np.errstate(invalid="ignore"):
        return (np.ptp(draws, axis=1) == 0).all(axis=0)


def values_of(by_chain: np.ndarray) -> str:
    """Values of a number in each chain, ``74, 76, 74, 75``; one value if all chains have it."""
    if np.ptp(by_chain) == 0:
        by_chain = by_chain[:1]
    return ", ".join(f"{value:.6g}" for value in by_chain)


def _cell(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return "-" if np.isnan(value) else f"{value:.4g}"


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
    if 0 in draws.shape[:2]:
        draws = np.full((1, 1, *draws.shape[2:]), np.nan)
    axes, n_draws = (0, 1), draws.shape[0] * draws.shape[1]
    result = {"mean": draws.mean(axes), "sd": draws.std(axes, ddof=min(1, n_draws - 1))}
    for level in QUANTILES:
        result[f"{level:.0%}"] = np.quantile(draws, level, axis=axes)
    return result | {
        "ess_bulk": ess_bulk(draws),
        "ess_tail": ess_tail(draws),
        "rhat": rhat(draws),
    }


def _for_each(function: Any, draws: np.ndarray) -> np.ndarray:
    """Apply a diagnostic to every number; NaN where it is undefined."""
    draws = np.asarray(draws, dtype=float)
    flat = draws.reshape(*draws.shape[:2], math.prod(draws.shape[2:]))  # -1 fails on no draws
    result = np.full(flat.shape[2], np.nan)
    if draws.shape[1] >= MIN_DRAWS:
        for index in range(flat.shape[2]):
            one = flat[:, :, index]
            # A constant has no variance to compare, a NaN no rank.
            if np.isfinite(one).all() and np.ptp(one, axis=1).any():
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
    if not np.ptp(split, axis=1).any():  # chains that moved once, in the middle: compare them whole
        if len(draws) == 1:
            return np.nan
        split = draws
    folded = np.abs(split - np.median(split))
    moving = [part for part in (split, folded) if np.ptp(part, axis=1).any()]
    return max(float(gelman_rubin(_normal_scores(part))) for part in moving)


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
