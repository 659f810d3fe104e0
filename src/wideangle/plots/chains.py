"""Have the chains mixed? Traces, rank plots, the number of components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wideangle.base import present
from wideangle.convergence import RHAT_LIMIT, in_words
from wideangle.diagnostics import rhat, summarise, values_of
from wideangle.plots import numbers, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def usual(model: Any, n: int = 3) -> list[str]:
    """Quantities to look at first: the most telling of those that move."""
    return [name for name, values in numbers.traces(model).items() if np.ptp(values) > 0][:n]


def trace(model: Any, name: str | None = None, *, ax: Any = None) -> Figure:
    """A quantity along the draws, one line for each chain; lines that agree have mixed.

    Parameters
    ----------
    model
        A fitted model with at least one chain.
    name : str, optional
        Which quantity, one of the keys of ``trace_.values``; by default the log-likelihood.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    """
    name, values = _chosen(model, name)
    ax = style.axes_for(ax, 5.6, 2.3)
    _lines(ax, values, in_words(name, present(model).words).capitalize(), lw=0.9)
    return ax.figure


def _lines(ax: Any, values: np.ndarray, title: str, y: str = "", **look: Any) -> None:
    """A line for each chain, and in the title whether they agree."""
    for chain, line in enumerate(values):
        ax.plot(np.arange(1, len(line) + 1), line, color=style.colour(chain), alpha=0.85,
                label=f"chain {chain + 1}", **look)  # fmt: skip
    style.tidy(ax, title + _verdict(values), "draw", y)
    ax.set_xlim(1, max(values.shape[1], 2))


def _chosen(model: Any, name: str | None) -> tuple[str, np.ndarray]:
    found = numbers.traces(model)
    if not found:
        raise ValueError("the fit has no chains to draw: use inference='mcmc'.")
    if name is None:
        name = (usual(model, 1) or list(found))[0]
    if name not in found:
        raise ValueError(f"name={name!r}: must be one of {', '.join(sorted(found))}.")
    return name, found[name]


def _verdict(values: np.ndarray) -> str:
    still = summarise(values).constant
    if still:
        return f" ({values_of(still['x'])}: constant in each chain)"
    worst = float(rhat(values))
    if not np.isfinite(worst):
        return ""
    return f" (R-hat {worst:.2f}{', chains differ' if worst > RHAT_LIMIT else ''})"


def component_count(model: Any, *, ax: Any = None) -> Figure:
    """Number of components along the draws; dashed: those that the fitted model shows.

    Draws of a latent feature model also hold small features that explain nothing, which come from
    the prior: lines above the dashed one are no problem.

    Parameters
    ----------
    model
        A fitted model with at least one chain.
    ax : matplotlib axes, optional
        Where to draw the lines alone; by default on a new figure, next to their distribution.
    """
    shown = present(model)
    name, values = _chosen(model, shown.counted)
    n_shown = len(shown.vectors())
    side = None
    if ax is None:
        figure = style.new_figure(5.6, 2.6)
        ax, side = figure.subplots(1, 2, sharey=True, width_ratios=(4, 1))
    words = in_words(name, shown.words)
    _lines(ax, values, f"Number of {shown.noun}s", words, lw=1, drawstyle="steps-mid")
    ax.axhline(n_shown, color=style.INK, lw=1, ls="--", label="of the model")
    ax.set_ylim(bottom=0)
    ax.yaxis.get_major_locator().set_params(integer=True)
    if side is not None:
        counts, times = np.unique(values.round().astype(int), return_counts=True)
        side.barh(counts, times / times.sum(), color=style.FAINT, height=0.8)
        side.axhline(n_shown, color=style.INK, lw=1, ls="--")
        style.tidy(side, "", "share of draws")
        side.spines["left"].set_visible(False)
        side.tick_params(axis="y", length=0)
    return ax.figure


def rank_counts(values: np.ndarray, n_bins: int = 10) -> np.ndarray:
    """How often the draws of each chain fall into each bin of joint ranks, (chain, bin).

    Draws of equal value are put in random order: chains that agree then have flat counts also for
    whole numbers.
    """
    flat = values.ravel()
    shuffle = np.random.default_rng(0).permutation(flat.size)
    rank = np.empty(flat.size, int)
    rank[shuffle[np.argsort(flat[shuffle], kind="stable")]] = np.arange(flat.size)
    place = (rank * n_bins // flat.size).reshape(values.shape)
    return np.stack([np.bincount(row, minlength=n_bins) for row in place])


def rank_plot(model: Any, names: Sequence[str] | None = None, *, n_bins: int = 10) -> Figure:
    """Ranks of the draws of each chain among those of all chains: flat where chains agree.

    The grey band holds 95 % of the bars if draws were independent.

    Parameters
    ----------
    model
        A fitted model with at least one chain.
    names : sequence of str, optional
        Quantities to show; by default up to three.
    n_bins : int
        Bins of ranks.
    """
    from scipy.stats import binom

    names = list(names) if names is not None else usual(model)
    chosen = [_chosen(model, name) for name in (names or [None])]
    n_chains, n_draws = chosen[0][1].shape
    figure = style.new_figure(2.3 * len(chosen) + 0.5, 0.62 * n_chains + 0.9)
    all_axes = figure.subplots(n_chains, len(chosen), squeeze=False, sharex=True)
    low, high = binom.ppf((0.025, 0.975), n_draws, 1.0 / n_bins)
    for column, (name, values) in enumerate(chosen):
        counts = rank_counts(values, n_bins)
        for chain, ax in enumerate(all_axes[:, column]):
            ax.axhspan(low, high, color="#EDEFF2", lw=0, zorder=0)
            ax.axhline(n_draws / n_bins, color=style.FAINT, lw=0.8, ls="--", zorder=1)
            ax.bar(np.arange(n_bins), counts[chain], width=0.86, color=style.colour(chain),
                   zorder=2)  # fmt: skip
            title = in_words(name, present(model).words).capitalize() if chain == 0 else ""
            last = chain == n_chains - 1
            style.tidy(ax, title, "low  →  high rank" if last else "",
                       f"chain {chain + 1}" if column == 0 else "")  # fmt: skip
            ax.title.set_fontsize(style.TEXT)
            ax.set(xticks=[], yticks=[], ylim=(0, max(1.05 * counts.max(), 1.2 * high)))
            ax.spines["left"].set_visible(False)
    return figure
