"""Fitted models in words and as a small HTML table; the facts of a mixture of experts."""

from __future__ import annotations

import html as escape
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from wideangle.diagnostics import Summary, show_rhat


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
        rows += of_chains(model.diagnostics_)
    if "elbo" in model.notes_:
        pairs = zip(model.notes_["elbo"], model.notes_["elbo_error"], strict=True)
        rows.append(("ELBO of each start", ", ".join(f"{e:.1f} ± {s:.1f}" for e, s in pairs)))
        rows.append(("temperature", f"{model.notes_['temperature']:.2f}"))
    if model.notes_.get("interrupted"):
        rows.append(("stopped early", "yes: the draws up to then are kept"))
    return rows


def of_chains(table: Summary) -> list[tuple[str, str]]:
    """How well the chains mixed; both are undefined for very few draws, or draws that are equal."""
    rhat, ess = (table[name][np.isfinite(table[name])] for name in ("rhat", "ess_bulk"))
    unknown = "unknown: too few draws, or all alike"
    return [
        ("worst R-hat", show_rhat(rhat.max()) if rhat.size else unknown),
        ("smallest bulk ESS", f"{ess.min():.0f}" if ess.size else unknown),
    ]


class ShowsFacts:
    """Gives an estimator with a method ``_facts`` its summary and its view in a notebook."""

    def summary(self) -> str:
        """A short account of the fit in plain text."""
        check_is_fitted(self)
        return as_text(self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        raise NotImplementedError

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._facts_html()  # pyright: ignore[reportAttributeAccessIssue]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        if "text/html" in bundle:
            bundle["text/html"] += self._facts_html()
        return bundle

    def _facts_html(self) -> str:
        try:
            check_is_fitted(self)
        except NotFittedError:
            return ""
        return as_html(self._facts())


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
