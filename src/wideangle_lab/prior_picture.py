"""The picture of the mutual-angular priors in the README.

``python -m wideangle_lab.prior_picture docs/images/prior.png`` draws it.

Draws six components with increasing repulsion, in three dimensions, which can be shown, and in
fifty, where a fixed concentration would have no effect, and compares their angles with those of
uniform directions.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from wideangle.priors.mutual_angular import MutualAngular
from wideangle.sphere.geometry import diversity, pairwise_angles

N_COMPONENTS = 6
DIMS = (3, 50)
KINDS = ("I", "II")
COSINES = (0.0, 0.3, 0.6, 0.9)
"""Strengths as expected cosines; 0 is the uniform baseline."""
N_SETS = 5000
"""Sets of components for every number."""

# Okabe and Ito's palette, which readers with any colour vision can tell apart; grey: no repulsion.
_COLOURS = ("#8A8F98", "#56B4E9", "#0072B2", "#D55E00")
INK = "#22262B"
PALE = "#C9CED6"
TILT = 0.35
"""Tilt of the spheres towards the reader, in radians."""
_LABEL_GAP = 0.16
"""Labels closer than this (in radii) are joined."""


class Case(NamedTuple):
    """Draws of one prior, summarised; angles in degrees."""

    dim: int
    kind: str
    cosine: float
    concentration: float
    angles: np.ndarray
    """Angle of every pair of every set."""
    mean_angle: float
    min_angle: float
    """Smallest angle of a set, averaged over sets."""
    effective_directions: float
    example: np.ndarray
    """The set with the mean angle closest to the average: unit rows, shape (K, p)."""


def draw(cases: list[Case], output: Path) -> None:
    """Save the picture; the suffix of the file gives the format."""
    import matplotlib as mpl

    with mpl.rc_context({"font.family": "DejaVu Sans", "svg.fonttype": "none"}):
        make_figure(cases).savefig(output, dpi=150)


def measure(key: jax.Array, n_sets: int = N_SETS) -> list[Case]:
    """Draw ``n_sets`` sets under every prior of the tour."""
    cases = []
    for dim in DIMS:
        for kind in KINDS:
            kappas, *results = jax.tree.map(np.asarray, _draw(key, dim, kind, n_sets))
            for i, cosine in enumerate(COSINES):
                one = jax.tree.map(lambda leaf, i=i: leaf[:, i], results)
                cases.append(_case(dim, kind, cosine, float(kappas[i]), *one))
    return cases


@partial(jax.jit, static_argnums=(1, 2, 3))
def _draw(key: jax.Array, dim: int, kind: str, n_sets: int) -> tuple[Any, ...]:
    """All strengths in one batch, and in one compiled program: most of the time is compilation."""
    prior = MutualAngular.from_cosine(N_COMPONENTS, dim, np.array(COSINES), kind)
    sets = prior.sample(key, (n_sets,))
    return prior.concentration, sets, pairwise_angles(sets), diversity(sets)


def _case(
    dim: int, kind: str, cosine: float, kappa: float, sets: Any, angles: Any, summary: Any
) -> Case:
    means = summary.mean_angle
    pairs = np.degrees(angles[:, *np.triu_indices(N_COMPONENTS, 1)])
    return Case(
        dim,
        kind,
        cosine,
        kappa,
        pairs.ravel(),
        mean_angle=float(np.degrees(means.mean())),
        min_angle=float(np.degrees(summary.min_angle.mean())),
        effective_directions=float(summary.effective_directions.mean()),
        example=sets[np.argmin(np.abs(means - means.mean()))],
    )


def make_figure(cases: list[Case]) -> Any:
    """Four spheres above; distributions of angles and the two summaries below."""
    from matplotlib.figure import Figure

    find = {(case.dim, case.kind, case.cosine): case for case in cases}
    figure = Figure(figsize=(11, 6.6), facecolor="white")
    grid = figure.add_gridspec(
        2, 12, height_ratios=(1.2, 1), left=0.03, right=0.985, bottom=0.085, top=0.865,
        hspace=0.2, wspace=1.4,
    )  # fmt: skip
    figure.text(
        0.02, 0.955, "Components that push each other apart",
        fontsize=16, color=INK, weight="bold",
    )  # fmt: skip
    figure.text(
        0.02, 0.94,
        f"{N_COMPONENTS} unit vectors from the mutual-angular prior, type I, a typical set each; "
        "numbers give the order. Each is drawn around\nthe direction opposite to the sum of those "
        f"before it. Angles are averages over {N_SETS:,} sets.",
        fontsize=9.5, color=INK, va="top", linespacing=1.35,
    )  # fmt: skip
    for i, cosine in enumerate(COSINES):
        axes = figure.add_subplot(grid[0, 3 * i : 3 * i + 3], label=f"sphere {cosine}")
        _draw_sphere(axes, find[DIMS[0], "I", cosine], _COLOURS[i])
    for i, dim in enumerate(DIMS):
        axes = figure.add_subplot(grid[1, 4 * i : 4 * i + 4], label=f"angles {dim}")
        _draw_angles(axes, [find[dim, "I", cosine] for cosine in COSINES])
    axes = figure.add_subplot(grid[1, 8:12], label="summary")
    _draw_summary(axes, [case for case in cases if case.dim == DIMS[-1]])
    return figure


def _draw_sphere(axes: Any, case: Case, colour: str) -> None:
    """One set of components, seen from the front; those behind the sphere's centre are paler."""
    from matplotlib.patches import Circle

    axes.set_aspect("equal")
    axes.set(xlim=(-1.32, 1.32), ylim=(-1.38, 1.3))
    axes.axis("off")
    _shade(axes)
    axes.add_patch(Circle((0, 0), 1.0, fill=False, lw=0.8, color=PALE))
    turn = np.linspace(0, np.pi, 100)
    for sign, style in ((1, "-"), (-1, ":")):  # the equator: near half solid, far half dotted
        axes.plot(np.cos(turn), -sign * np.sin(TILT) * np.sin(turn), style, color=PALE, lw=0.8)
    seen = upright(case.example)
    for x, y, depth in seen[np.argsort(seen[:, 2])]:
        near = depth >= 0
        arrow = {"arrowstyle": "-|>,head_width=0.28,head_length=0.55", "shrinkA": 0, "shrinkB": 0}
        arrow |= {"color": colour, "lw": 2.4 if near else 1.6, "alpha": 1.0 if near else 0.45}
        axes.annotate("", (x, y), (0, 0), arrowprops=arrow, zorder=3 + depth)
    for text, (x, y) in order_labels(seen[:, :2]):
        axes.text(x, y, text, ha="center", va="center", fontsize=8.5, color=INK, zorder=5)
    name = "no repulsion (uniform)" if case.cosine == 0 else f"strength {case.cosine:g}"
    axes.set_title(name, fontsize=10.5, color=colour, weight="bold", pad=2)
    axes.text(
        0, -1.36, f"mean angle {case.mean_angle:.0f}°, smallest {case.min_angle:.0f}°",
        ha="center", fontsize=8.5, color=INK,
    )  # fmt: skip


def order_labels(tips: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Label and position of every tip; tips that coincide share one label."""
    labels: list[tuple[str, np.ndarray]] = []
    for order, tip in enumerate(tips, start=1):
        place = tip * (1 + 0.15 / max(float(np.hypot(*tip)), 0.2))
        near = [i for i, (_, other) in enumerate(labels) if np.hypot(*(other - place)) < _LABEL_GAP]
        if near:
            text, other = labels[near[0]]
            labels[near[0]] = (f"{text}, {order}", other)
        else:
            labels.append((str(order), place))
    return labels


def _shade(axes: Any) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    side = np.linspace(-1, 1, 300)
    x, y = np.meshgrid(side, side)
    inside = x**2 + y**2 <= 1
    light = np.where(inside, -0.4 * x + 0.5 * y + np.sqrt(np.maximum(1 - x**2 - y**2, 0)), np.nan)
    fade = LinearSegmentedColormap.from_list("fade", ["#DDE2E8", "#FBFCFD"])
    axes.imshow(
        light, extent=(-1, 1, -1, 1), origin="lower", cmap=fade, vmin=-0.3, vmax=1.1, zorder=0
    )


def upright(directions: np.ndarray) -> np.ndarray:
    """Rotate a set so that the first component points up and the second lies to the front right.

    A rotation changes no angle, and puts sets drawn at random into one pose. Columns of the
    result: right, up, towards the reader.
    """
    first, second = directions[0], directions[1]
    side = second - (second @ first) * first
    side /= np.linalg.norm(side)
    frame = np.stack([side, first, np.cross(side, first)], axis=1)  # right-handed: right, up, near
    placed = directions @ frame * np.sign(np.linalg.det(frame))
    if np.linalg.det(frame) < 0:
        placed[:, :2] *= -1
    spin, lean = np.radians(35), TILT
    about_up = np.array(
        [[np.cos(spin), 0, -np.sin(spin)], [0, 1, 0], [np.sin(spin), 0, np.cos(spin)]]
    )
    about_right = np.array(
        [[1, 0, 0], [0, np.cos(lean), -np.sin(lean)], [0, np.sin(lean), np.cos(lean)]]
    )
    return placed @ about_up.T @ about_right.T


def _draw_angles(axes: Any, cases: list[Case]) -> None:
    """Densities of the angle of a pair, one line per strength."""
    bins = np.linspace(0, 180, 46)
    middle = 0.5 * (bins[1:] + bins[:-1])
    for case, colour in zip(cases, _COLOURS, strict=True):
        density, _ = np.histogram(case.angles, bins, density=True)
        line = {"color": colour, "lw": 1.8, "label": _label(case)}
        axes.plot(middle, density, **line)
        axes.fill_between(middle, density, color=colour, alpha=0.08, lw=0)
    axes.axvline(90, color=PALE, lw=0.8, zorder=0)
    axes.set(xlim=(0, 180), ylim=(0, None), yticks=[], xticks=range(0, 181, 45))
    axes.set_title(f"Angles between pairs, p = {cases[0].dim}", fontsize=10.5, color=INK)
    axes.set_xlabel("degrees", fontsize=9)
    _plain(axes)
    if cases[0].dim == DIMS[0]:
        axes.set_ylim(0, 1.35 * axes.get_ylim()[1])  # room for the legend
        axes.legend(frameon=False, fontsize=8.5, loc="upper left", handlelength=1.2, ncols=2)


def _draw_summary(axes: Any, cases: list[Case]) -> None:
    """Mean and smallest angle against strength, for both kinds."""
    rows = (("mean_angle", "mean angle", INK), ("min_angle", "smallest angle", "#009E73"))
    for kind, style in zip(KINDS, ("o-", "s--"), strict=True):
        of_kind = [case for case in cases if case.kind == kind]
        for field, name, colour in rows:
            axes.plot(
                [case.cosine for case in of_kind],
                [getattr(case, field) for case in of_kind],
                style, color=colour, lw=1.6, ms=4.5, mfc=colour if kind == "I" else "white",
                label=f"{name}, type {kind}",
            )  # fmt: skip
    axes.axhline(90, color=PALE, lw=0.8, zorder=0)
    axes.set(xticks=COSINES, xlim=(-0.04, 0.94), ylim=(50, 112))
    axes.set_xlabel("strength", fontsize=9)
    axes.set_ylabel("degrees", fontsize=9, labelpad=2)
    axes.set_title(f"Too strong makes opposed pairs, p = {cases[0].dim}", fontsize=10.5, color=INK)
    _plain(axes)
    axes.legend(frameon=False, fontsize=8.5, loc="lower left", handlelength=2.2)


def _label(case: Case) -> str:
    return "uniform" if case.cosine == 0 else f"strength {case.cosine:g}"


def _plain(axes: Any) -> None:
    axes.tick_params(labelsize=8.5, colors=INK, length=3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(PALE)
    if len(axes.get_yticks()) == 0:
        axes.spines["left"].set_visible(False)


if __name__ == "__main__":
    draw(measure(jax.random.key(0)), Path(sys.argv[1]))
