"""The picture of the page: cost against size, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wideangle_lab.bench.record import OURS, Case

AXES = {"rows": "rows N", "columns": "columns D or p", "components": "components K"}
UNITS = {"s": ("seconds", 1.0), "bytes": ("peak memory, MiB", 2.0**-20)}


def draw_growth(cases: Sequence[Case], path: Path) -> None:
    """One panel for every size and unit; each line is labelled with its exponent."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    curves = [(case, case.curve) for case in cases if case.curve is not None]
    units = [unit for unit in UNITS if any(curve.unit == unit for _, curve in curves)]
    names = list(dict.fromkeys(case.name.partition(" of ")[2] for case in cases))
    colours = dict(zip(names, plt.get_cmap("tab10").colors, strict=False))  # pyright: ignore[reportAttributeAccessIssue]
    figure, panels = plt.subplots(
        len(units), len(AXES), figsize=(11, 3.6 * len(units)), squeeze=False, layout="constrained"
    )
    for line, unit in zip(panels, units, strict=True):
        label, factor = UNITS[unit]
        line[0].set_ylabel(label)
        for panel, (axis, title) in zip(line, AXES.items(), strict=True):
            panel.set(xscale="log", yscale="log", xlabel=title)
            panel.grid(alpha=0.3, which="both", linewidth=0.5)
            for case, curve in curves:
                if (curve.axis, curve.unit) != (axis, unit):
                    continue
                name = case.name.partition(" of ")[2]
                values = [factor * series.median for series in curve.values]
                slope = f"{name}: {case.entries[OURS].median:.2f}"
                panel.plot(curve.sizes, values, "o-", color=colours[name], label=slope, ms=4)
            if panel.lines:
                low, high = panel.get_ylim()
                panel.set_ylim(low, high * (high / low) ** 0.5)  # room for the legend
                panel.legend(title="exponent", fontsize=7, title_fontsize=7, loc="upper left")
                panel.set_xticks(panel.lines[0].get_xdata())
                panel.set_xticklabels([f"{x:,.0f}" for x in panel.lines[0].get_xdata()])
                panel.minorticks_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
