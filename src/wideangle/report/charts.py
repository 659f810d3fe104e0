"""The pictures of the page as Plotly figures: plain data, checked against Plotly's schema in tests.

Colours of signed numbers, angles and amounts are named in ``meta`` and chosen by the page, which
knows whether it is light or dark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wideangle.convergence import in_words
from wideangle.plots import numbers
from wideangle.plots.angles import BIN
from wideangle.plots.calibration import outcomes
from wideangle.plots.chains import rank_counts
from wideangle.plots.rows import row_order
from wideangle.plots.style import FAINT, PALETTE, colour
from wideangle.posterior import evenly
from wideangle.presentation.classifier import reliability
from wideangle.presentation.records import Run
from wideangle.presentation.regressor import LEVEL, LEVELS, coverage
from wideangle.types import as_dense

_MOST_POINTS = 1500
_MOST_INTERVALS = 400
"""Predictions drawn with their intervals: more would cover each other."""
_MOST_LINES = 60
"""Components in a heat map; more would be lines of a pixel."""
_MOST_DRAWS = 400
"""Draws of a chain in a trace: more would share a pixel, and pages have at most 2 MB."""
GRID = 61
LONGEST = 60
MARKS = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"}
"""Signs that mean something to Plotly, the ampersand first."""

LEGEND = {"orientation": "h", "y": 1.12}
"""Above the picture."""

Figure = dict[str, Any]


def _figure(data: list[Figure], x: Figure, y: Figure, height: int = 420, **layout: Any) -> Figure:
    return {"data": data, "layout": {"xaxis": x, "yaxis": y, **layout}, "height": height}


def _axis(title: str, **more: Any) -> Figure:
    return {"title": {"text": title}, **more}


def _diagonal(low: float, high: float) -> Figure:
    """The line on which what was predicted is what was seen."""
    ends = rounded([low, high])
    return {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip",
            "line": {"color": FAINT, "width": 1.5, "dash": "dot"}, "showlegend": False}  # fmt: skip


def _reach(above: np.ndarray, below: np.ndarray, **more: Any) -> Figure:
    """Bars from points up and down."""
    return {"type": "data", "symmetric": False, "thickness": 1.5, "width": 0,
            "array": rounded(above), "arrayminus": rounded(below), **more}  # fmt: skip


def charts_of(run: Run) -> dict[str, Figure]:
    """Every picture of the page by name; those that do not apply are left out."""
    shown = run.presentation
    chosen = [chart.name for part in (shown.where, shown.trust) for chart in part.charts]
    made = {name: CHARTS[name](run) for name in ("angles", "angle_distribution", *chosen)}
    return {name: figure for name, figure in made.items() if figure is not None}


def rounded(values: Any, digits: int = 4) -> Any:
    """Lists of few digits for JSON, None for NaN."""
    array = np.asarray(values, float)
    kept = [
        None if not np.isfinite(v) else float(f"{v:.{digits}g}") for v in array.ravel().tolist()
    ]
    if array.ndim < 2:  # noqa: PLR2004
        return kept if array.ndim else kept[0]
    width = array.shape[1]
    return [kept[i * width : (i + 1) * width] for i in range(len(array))]


def angle_heatmap(run: Run) -> Figure | None:
    """Angles between components; the diagonal is empty."""
    if len(run.presentation.vectors()) < 2:  # noqa: PLR2004
        return None
    table = numbers.angles(run.model)[:_MOST_LINES, :_MOST_LINES]
    n = len(table)
    shown = np.where(np.eye(n, dtype=bool), np.nan, table)
    labels = [str(k + 1) for k in range(n)]
    word = run.presentation.noun
    trace = {
        "type": "heatmap",
        "x": labels,
        "y": labels,
        "z": rounded(shown),
        "zmin": 0,
        "zmax": 180,
        "xgap": 1,
        "ygap": 1,
        "hoverongaps": False,
        "hovertemplate": f"{word} %{{y}} and {word} %{{x}}: %{{z:.0f}}°<extra></extra>",
        "colorbar": {
            "tickvals": [0, 45, 90, 135, 180],
            "ticktext": ["0° alike", "45°", "90°", "135°", "180° opposed"],
            "thickness": 12,
            "outlinewidth": 0,
        },
        "meta": {"scale": "angles"},
    }
    if n <= 12:  # noqa: PLR2004
        trace |= {"texttemplate": "%{z:.0f}", "textfont": {"size": 11}}
    axis = _axis(word, type="category", showgrid=False, constrain="domain")
    return _figure([trace], axis, axis | {"autorange": "reversed", "scaleanchor": "x"})


def angle_distribution(run: Run) -> Figure | None:
    """Angles of the model (posterior draws, if it has any) as bars, the prior's as a line."""
    if len(run.presentation.vectors()) < 2:  # noqa: PLR2004
        return None
    edges = np.arange(0.0, 180.0 + BIN, BIN)
    middle = (0.5 * (edges[1:] + edges[:-1])).tolist()
    found, expected = (
        np.histogram(angles, edges)[0] / max(len(angles), 1)
        for angles in (numbers.posterior_angles(run.model), numbers.prior_angles(run.model, 2000))
    )
    hover = "%{x:.0f}° ± 2.5°: %{y:.1%} of pairs<extra>%{fullData.name}</extra>"
    bars = {"type": "bar", "name": "model", "x": middle, "y": rounded(found),
            "width": BIN * 0.9,
            "marker": {"color": PALETTE[0]}, "hovertemplate": hover}  # fmt: skip
    line = {"type": "scatter", "mode": "lines", "name": "prior", "x": middle,
            "y": rounded(expected), "line": {"color": PALETTE[1], "width": 3, "shape": "spline"},
            "hovertemplate": hover}  # fmt: skip
    ticks = [0, 45, 90, 135, 180]
    x = _axis("angle of a pair", range=[0, 180], tickvals=ticks, ticksuffix="°")
    y = _axis("share of pairs", tickformat=".0%", rangemode="tozero")
    return _figure([bars, line], x, y, bargap=0, legend=LEGEND)


def component_map(run: Run) -> Figure | None:
    """Rows of the sample, each in the colour of the component that leads it."""
    sample, noun = run.sample, run.presentation.noun
    chosen = evenly(len(sample), _MOST_POINTS)
    used = sample.values["activations"][chosen]
    if used.shape[1] < 2:  # noqa: PLR2004
        return None
    leader = np.argmax(used, axis=1)
    data: list[Figure] = []
    if len(run.columns) == 2:  # noqa: PLR2004
        points = as_dense(sample.X, chosen, float)
        data.append(_regions(run, points))
        titles = list(run.columns)
    else:
        points = numbers.plane_of(used)
        titles = ["main direction of the log probabilities", "second direction"]
    words = _row_words(run, chosen)
    for k in range(used.shape[1]):
        member = np.flatnonzero(leader == k)
        hover = f"%{{text}}<br>{noun} {k + 1} with probability %{{customdata:.0%}}<extra></extra>"
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{noun} {k + 1}",
                "x": rounded(points[member, 0]),
                "y": rounded(points[member, 1]),
                "text": [words[i] for i in member],
                "customdata": rounded(used[member, k], 3),
                "hovertemplate": hover,
                "marker": {
                    "color": colour(k),
                    "size": 7,
                    "symbol": ("circle", "diamond", "square", "x")[(k // len(PALETTE)) % 4],
                    "line": {"width": 0.5, "color": "white"},
                },
                "meta": {"component": k + 1},
            }
        )
    x, y = (_axis(plain(title), zeroline=False) for title in titles)
    return _figure(data, x, y, 460, legend={"itemclick": "toggle"})


def _regions(run: Run, points: np.ndarray) -> Figure:
    """The component that leads at each place of the plane."""
    x, y, grid = numbers.grid_over(points, GRID, 0.05)
    used = run.presentation.activations(grid)
    leader, n = np.argmax(used, axis=1).reshape(GRID, GRID), used.shape[1]
    steps = [[e, colour(k)] for k in range(n) for e in (k / n, (k + 1) / n)]
    return {
        "type": "heatmap", "x": rounded(x), "y": rounded(y), "z": leader.tolist(), "opacity": 0.25,
        "zmin": -0.5, "zmax": n - 0.5, "colorscale": steps, "showscale": False, "hoverinfo": "skip",
        "name": "regions",
    }  # fmt: skip


def _row_words(run: Run, chosen: np.ndarray) -> list[str]:
    """What to say of a row when the mouse is over it."""
    sample, classes = run.sample, run.frame.classes
    proba = sample.values.get("proba")
    texts = []
    for i in chosen:
        text = f"row {sample.rows[i]}"
        if sample.y is not None:
            text += f", is {classes[sample.y[i]] if classes else f'{sample.y[i]:.4g}'}"
        if "prediction" in sample.values:
            text += f"; predicted {sample.values['prediction'][i]:.4g}"
        if proba is not None:
            best = int(np.argmax(proba[i]))
            text += f"; predicted {classes[best]} ({100 * proba[i, best]:.0f} %)"
        texts.append(plain(text))
    return texts


def plain(text: Any, longest: int = LONGEST) -> str:
    """Text for Plotly, which reads a little HTML in titles and hovers, and formulas in dollars."""
    text = str(text)
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    for sign, code in MARKS.items():
        text = text.replace(sign, code)
    return text


def calibration(run: Run) -> Figure | None:
    """Predicted probability against observed frequency, bars of 90 %."""
    sample, classes = run.sample, np.array([str(c) for c in run.frame.classes])
    if sample.y is None:
        return None
    happened, probability, name = outcomes(sample.values["proba"], classes[sample.y], classes)
    found = reliability(happened, probability)
    size = 9 + 16 * np.sqrt(found.count / found.count.max())
    hover = "predicted %{x:.0%}, observed %{y:.0%}<br>%{customdata} rows<extra></extra>"
    points = {
        "type": "scatter", "mode": "markers", "x": rounded(found.predicted),
        "y": rounded(found.observed), "customdata": found.count.tolist(), "hovertemplate": hover,
        "marker": {"color": PALETTE[0], "size": rounded(size)}, "showlegend": False,
        "error_y": _reach(found.high - found.observed, found.observed - found.low),
    }  # fmt: skip
    shares: Figure = {"range": [-0.03, 1.03], "tickformat": ".0%"}
    x = _axis(plain(f"probability of {name}"), **shares)
    return _figure([_diagonal(0, 1), points], x, _axis("observed frequency", **shares))


def confidence(run: Run) -> Figure | None:
    """How sure the predictions are, right and wrong ones apart."""
    proba, y = run.sample.values["proba"], run.sample.y
    if y is None:
        return None
    sure, right = proba.max(axis=1), np.argmax(proba, axis=1) == y
    edges = np.linspace(1.0 / proba.shape[1], 1.0, 11)
    middle = 0.5 * (edges[1:] + edges[:-1])
    data = [
        {
            "type": "bar", "name": name, "x": rounded(middle), "width": float(edges[1] - edges[0]),
            "y": np.histogram(sure[member], edges)[0].tolist(), "marker": {"color": shade},
            "hovertemplate": "about %{x:.0%} sure: %{y} rows<extra>%{fullData.name}</extra>",
        }
        for name, member, shade in (("right", right, PALETTE[0]), ("wrong", ~right, PALETTE[1]))
    ]  # fmt: skip
    x = _axis("probability of the predicted class", tickformat=".0%")
    return _figure(data, x, _axis("rows"), barmode="stack", legend=LEGEND)


def intervals(run: Run) -> Figure | None:
    """Level of central intervals against the share of rows they hold, bars of 90 %."""
    y, values = run.sample.y, run.sample.values
    if y is None:
        return None
    found = coverage(y, np.concatenate([values["low"], values["high"]], axis=1))
    hover = "intervals of %{x:.0%} hold %{y:.1%}<extra></extra>"
    points = {
        "type": "scatter", "mode": "markers", "x": list(LEVELS), "y": rounded(found.observed),
        "hovertemplate": hover, "marker": {"color": PALETTE[0], "size": 11}, "showlegend": False,
        "error_y": _reach(found.high - found.observed, found.observed - found.low),
    }  # fmt: skip
    x, y = (
        _axis(title, range=[0.4, 1.03], tickformat=".0%")
        for title in ("interval", "rows inside it")
    )
    return _figure([_diagonal(0, 1), points], x, y)


def predicted(run: Run) -> Figure | None:
    """Prediction with its interval of 90 % against what was seen."""
    sample, place = run.sample, LEVELS.index(LEVEL)
    if sample.y is None:
        return None
    chosen = evenly(len(sample), _MOST_INTERVALS)
    seen, mean = sample.y[chosen], sample.values["prediction"][chosen]
    low, high = (sample.values[name][chosen, place] for name in ("low", "high"))
    reach = (np.maximum(high - mean, 0.0), np.maximum(mean - low, 0.0))
    points = {
        "type": "scatter", "mode": "markers", "x": rounded(seen), "y": rounded(mean),
        "text": _row_words(run, chosen), "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": PALETTE[0], "size": 6}, "showlegend": False,
        "error_y": _reach(*reach, thickness=1, color=FAINT),
    }  # fmt: skip
    line = _diagonal(min(seen.min(), mean.min()), max(seen.max(), mean.max()))
    x, y = (_axis(title, zeroline=False) for title in ("observed", "predicted"))
    return _figure([line, points], x, y)


def densities(run: Run) -> Figure | None:
    """How usual rows are under the model."""
    if len(run.presentation.vectors()) == 0:
        return None
    found = run.sample.values["log_density"]
    count, edges = np.histogram(found[np.isfinite(found)], 24)
    trace = {
        "type": "bar", "x": rounded(0.5 * (edges[1:] + edges[:-1])), "y": count.tolist(),
        "width": float(edges[1] - edges[0]), "marker": {"color": PALETTE[0]},
        "hovertemplate": "about %{x:.4g}: %{y} rows<extra></extra>",
    }  # fmt: skip
    return _figure([trace], _axis("log density of a row"), _axis("rows"), 320)


def activation_matrix(run: Run) -> Figure | None:
    """Rows across, components down; rows of the same pattern together."""
    used, noun = run.sample.values["activations"][:, :_MOST_LINES], run.presentation.noun
    if used.shape[1] == 0:
        return None
    chosen = evenly(len(used), 400)
    order = chosen[row_order(used[chosen])]
    rows = run.sample.rows[order]
    trace = {
        "type": "heatmap",
        "z": rounded(used[order].T, 3),
        "y": [str(k + 1) for k in range(used.shape[1])],
        "text": [[int(r) for r in rows]] * used.shape[1],
        "zmin": 0,
        "zmax": 1,
        "ygap": 1,
        "hovertemplate": f"row %{{text}}, {noun} %{{y}}: %{{z:.0%}}<extra></extra>",
        "colorbar": {"tickformat": ".0%", "thickness": 12, "outlinewidth": 0},
        "meta": {"scale": "amount"},
    }
    x = _axis("rows, alike ones together", showticklabels=False, showgrid=False)
    y = _axis(noun, type="category", autorange="reversed", showgrid=False)
    return _figure([trace], x, y, 160 + min(22 * used.shape[1], 520))


def components_per_row(run: Run) -> Figure | None:
    """How many components rows have."""
    used, noun = run.sample.values["activations"], run.presentation.noun
    if used.shape[1] == 0:
        return None
    counts = np.bincount(np.round(used.sum(axis=1)).astype(int))
    trace = {
        "type": "bar", "x": list(range(len(counts))), "y": rounded(counts / max(counts.sum(), 1)),
        "marker": {"color": PALETTE[2]},
        "hovertemplate": f"%{{x}} {noun}s: %{{y:.1%}} of rows<extra></extra>",
    }  # fmt: skip
    x = _axis(f"{noun}s of a row", tickformat="d")
    return _figure([trace], x, _axis("share of rows", tickformat=".0%"), 320)


def chains_of(run: Run) -> list[dict[str, Any]]:
    """Traces and counts of ranks of the watched numbers, the most telling first."""
    result = []
    for name, values in numbers.traces(run.model).items():
        if np.ptp(values) == 0:
            continue
        places = evenly(values.shape[1], _MOST_DRAWS)
        result.append(
            {
                "name": in_words(name, run.presentation.words),
                "draws": (places + 1).tolist(),
                "traces": rounded(values[:, places], 5),
                "ranks": rank_counts(values).tolist(),
                "expected": values.shape[1] / 10,
                "colours": [colour(c) for c in range(len(values))],
            }
        )
    return result


CHARTS: dict[str, Callable[[Run], Figure | None]] = {
    "angles": angle_heatmap,
    "angle_distribution": angle_distribution,
    "map": component_map,
    "activations": activation_matrix,
    "per_row": components_per_row,
    "density": densities,
    "calibration": calibration,
    "confidence": confidence,
    "intervals": intervals,
    "predicted": predicted,
}
"""What a family can choose from; None where a chart has nothing to show."""
