"""A fitted mixture of experts in words and as a small HTML table."""

from __future__ import annotations

import html as escape
from typing import Any

import numpy as np


def facts(model: Any) -> list[tuple[str, str]]:
    """Name and value of what a user wants to know first."""
    spread = model.diversity_
    rows = [
        ("classes", ", ".join(str(c) for c in model.classes_[:8])),
        ("prior, inference", f"{_prior_name(model)}, {model.inference}"),
        ("experts in use", f"{model.n_used_:.1f} of {model.n_experts}"),
    ]
    if model.n_experts > 1:
        mean, smallest = np.degrees([spread.mean_angle, spread.min_angle])
        rows.append(("angles between experts", f"mean {mean:.0f}°, smallest {smallest:.0f}°"))
        rows.append(("effective directions", f"{spread.effective_directions:.1f}"))
    if model.diagnostics_ is not None:
        table = model.diagnostics_
        rows.append(("worst R-hat", f"{np.nanmax(table['rhat']):.3f}"))
        rows.append(("smallest bulk ESS", f"{np.nanmin(table['ess_bulk']):.0f}"))
    if "elbo" in model.notes_:
        pairs = zip(model.notes_["elbo"], model.notes_["elbo_error"], strict=True)
        rows.append(("ELBO of each start", ", ".join(f"{e:.1f} ± {s:.1f}" for e, s in pairs)))
        rows.append(("temperature", f"{model.notes_['temperature']:.2f}"))
    if model.notes_.get("interrupted"):
        rows.append(("stopped early", "yes: the draws up to then are kept"))
    return rows


def text(model: Any) -> str:
    """Aligned lines."""
    return as_text(facts(model))


def html(model: Any) -> str:
    """A table."""
    return as_html(facts(model))


def as_text(rows: list[tuple[str, str]]) -> str:
    """Facts as aligned lines."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def as_html(rows: list[tuple[str, str]]) -> str:
    """Facts as a table; everything that came from data is escaped."""
    cells = "".join(
        f"<tr><th style='text-align:left;padding-right:1em'>{escape.escape(name)}</th>"
        f"<td>{escape.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table class='wideangle-summary'>{cells}</table>"


def _prior_name(model: Any) -> str:
    return model.prior if isinstance(model.prior, str) else "a prior object"
