"""Have the chains mixed? Traces, rank plots, the number of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wideangle.diagnostics import RHAT_LIMIT, rhat
from wideangle.plots import numbers, style

WORDS = {
    "log_lik": "log-likelihood",
    "log_joint": "log density",
    "n_used": "experts in use",
    "n_active": "active features",
    "mean_angle": "mean angle, radians",
    "noise_scale": "scale of the noise",
    "alpha": "features of a row (alpha)",
    "concentration": "strength of the prior (kappa)",
    "residual_rms": "size of the residuals",
    "feature_scale": "size of the features",
}
PREFERRED = ("log_lik", "n_used", "n_active", "mean_angle", "noise_scale", "alpha")


def usual(model: Any, n: int = 3) -> list[str]:
    """Quantities to look at first: those that move, the log-likelihood leading."""
    found = numbers.traces(model)
    ordered = [k for k in PREFERRED if k in found] + [k for k in found if k not in PREFERRED]
    return [k for k in ordered if np.ptp(found[k]) > 0][:n]


def trace(model: Any, name: str | None = None, *, ax: Any = None) -> Any:
    """A quantity along the draws, one line for each chain; lines that agree have mixed.

    Parameters
    ----------
    model
        A fitted mixture of experts or latent feature model.
    name : str, optional
        Which quantity, one of the keys of ``invariants_`` or ``trace_.values``; by default the
        log-likelihood.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    name, values = _chosen(model, name)
    ax = style.axes_for(ax, 5.6, 2.3)
    for chain, line in enumerate(values):
        ax.plot(np.arange(1, len(line) + 1), line, color=style.colour(chain), lw=0.9,
                alpha=0.85, label=f"chain {chain + 1}")  # fmt: skip
    style.tidy(ax, f"{WORDS.get(name, name).capitalize()}{_verdict(values)}", "draw")
    ax.set_xlim(1, max(values.shape[1], 2))
    return ax.figure


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
    worst = float(rhat(values))
    if not np.isfinite(worst):
        return ""
    return f" (R-hat {worst:.2f}{', chains differ' if worst > RHAT_LIMIT else ''})"


def feature_count(model: Any, *, ax: Any = None) -> Any:
    """Number of active features along the draws; dashed: those that matter and are in most draws.

    Draws also hold small features that explain nothing, which the prior puts there: lines above the
    dashed one are no fault.

    Parameters
    ----------
    model
        A fitted latent feature model.
    ax : matplotlib axes, optional
        Where to draw the lines alone; by default on a new figure with their distribution beside.

    Returns
    -------
    matplotlib.figure.Figure
    """
    values = numbers.traces(model)["n_active"]
    side = None
    if ax is None:
        figure = style.new_figure(5.6, 2.6)
        ax, side = figure.subplots(1, 2, sharey=True, width_ratios=(4, 1))
    for chain, line in enumerate(values):
        ax.plot(np.arange(1, len(line) + 1), line, color=style.colour(chain), lw=1,
                alpha=0.85, drawstyle="steps-mid", label=f"chain {chain + 1}")  # fmt: skip
    ax.axhline(model.n_components_, color=style.INK, lw=1, ls="--", label="that matter")
    style.tidy(ax, f"Number of features{_verdict(values)}", "draw", "active features")
    ax.set_xlim(1, max(values.shape[1], 2))
    ax.set_ylim(bottom=0)
    ax.yaxis.get_major_locator().set_params(integer=True)
    if side is not None:
        numbers_seen, times = np.unique(values.round().astype(int), return_counts=True)
        side.barh(numbers_seen, times / times.sum(), color=style.FAINT, height=0.8)
        side.axhline(model.n_components_, color=style.INK, lw=1, ls="--")
        style.tidy(side, "", "share of draws")
        side.spines["left"].set_visible(False)
        side.tick_params(axis="y", length=0)
    return ax.figure


def rank_counts(values: np.ndarray, n_bins: int = 10, seed: int = 0) -> np.ndarray:
    """How often the draws of each chain fall into each bin of joint ranks, (chain, bin).

    Draws of equal value are put in random order: chains that agree then have flat counts also for
    whole numbers.
    """
    flat = values.ravel()
    shuffle = np.random.default_rng(seed).permutation(flat.size)
    rank = np.empty(flat.size, int)
    rank[shuffle[np.argsort(flat[shuffle], kind="stable")]] = np.arange(flat.size)
    place = (rank * n_bins // flat.size).reshape(values.shape)
    return np.stack([np.bincount(row, minlength=n_bins) for row in place])


def rank_plot(model: Any, names: Sequence[str] | None = None, *, n_bins: int = 10) -> Any:
    """Ranks of the draws of each chain among those of all chains: flat where chains agree.

    The grey band holds 95 % of the bars if draws were independent.

    Parameters
    ----------
    model
        A fitted mixture of experts or latent feature model with at least one chain.
    names : sequence of str, optional
        Quantities to show; by default up to three.
    n_bins : int
        Bins of ranks.

    Returns
    -------
    matplotlib.figure.Figure
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
            title = WORDS.get(name, name).capitalize() if chain == 0 else ""
            last = chain == n_chains - 1
            style.tidy(ax, title, "low  →  high rank" if last else "",
                       f"chain {chain + 1}" if column == 0 else "")  # fmt: skip
            ax.title.set_fontsize(style.TEXT)
            ax.set(xticks=[], yticks=[], ylim=(0, max(1.05 * counts.max(), 1.2 * high)))
            ax.spines["left"].set_visible(False)
    return figure
