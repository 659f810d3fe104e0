"""Rank plots of calibration records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from wideangle.plots.style import FAINT, INK, PALE, PALETTE, SMALL, new_figure, tidy
from wideangle_lab.calibration.ranks import band, in_bins

COLUMNS = 4
LEVEL = 0.95


def draw(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Two rows per row of cases: distribution functions of all ranks, histograms of the worst."""
    n_rows = -(-len(records) // COLUMNS)
    figure = new_figure(2.6 * COLUMNS, 3.5 * n_rows)
    axes = figure.subplots(2 * n_rows, COLUMNS, squeeze=False)
    for place in range(n_rows * COLUMNS):
        row, column = divmod(place, COLUMNS)
        pair = axes[2 * row, column], axes[2 * row + 1, column]
        if place < len(records):
            _excursions(pair[0], records[place])
            _histogram(pair[1], records[place])
        else:
            for ax in pair:
                ax.set_axis_off()
    figure.align_ylabels()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def title_of(record: dict[str, Any]) -> str:
    """Prior and sampler, on two lines."""
    _, prior, other = record["name"].split("/")
    return f"{prior}\n{other}"


def _excursions(ax: Any, record: dict[str, Any]) -> None:
    """Empirical distribution function of the ranks minus the uniform one, every quantity."""
    ranks = record["ranks"]
    size = ranks["n_draws"] + 1
    places = np.arange(size + 1) / size
    low, high = band(ranks["n_sets"], size, LEVEL)
    ax.fill_between(places, np.append(0, low), np.append(0, high), color=PALE, lw=0)
    for name, one in ranks["quantities"].items():
        share = np.cumsum(one["counts"]) / ranks["n_sets"]
        worst = name == ranks["worst"]
        ax.plot(
            places,
            np.append(0, share) - places,
            color=PALETTE[1] if worst else PALETTE[0],
            lw=1.4 if worst else 0.7,
            alpha=1.0 if worst else 0.6,
            zorder=3 if worst else 2,
        )
    limit = max(0.1, 1.15 * np.max(np.abs(ax.get_ylim())))
    ax.set_ylim(-limit, limit)
    ax.set_xlim(0, 1)
    tidy(ax, x="rank / L", y="share below - rank")
    ax.set_title(title_of(record), fontsize=SMALL, color=INK, loc="left")


def _histogram(ax: Any, record: dict[str, Any]) -> None:
    """Ranks of the quantity with the smallest p-value, with the range of a bar under chance."""
    ranks = record["ranks"]
    counts = in_bins(np.array(ranks["quantities"][ranks["worst"]]["counts"]))
    edges = np.arange(len(counts) + 1) / len(counts)
    low, high = stats.binom.interval(0.99, ranks["n_sets"], 1 / len(counts))
    ax.axhspan(low, high, color=PALE, lw=0)
    ax.axhline(ranks["n_sets"] / len(counts), color=FAINT, lw=0.8)
    ax.stairs(counts, edges, fill=True, color=PALETTE[1], alpha=0.55)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, max(1.25 * high, 1.1 * counts.max()))
    tidy(ax, x=f"rank / L: {ranks['worst']}", y="data sets")
