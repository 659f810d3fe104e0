"""What every estimator of the library has in common, and gives to runs, plots, report and cli.

Nested settings (:class:`wideangle.settings.NamedChoices`) and a presentation (:class:`Presented`);
together with scikit-learn's own methods that is all the rest of the library knows of a model.
"""

from __future__ import annotations

import html as escape
from typing import Any, ClassVar

from sklearn.exceptions import NotFittedError

from wideangle.presentation.family import Presentation


class Presented:
    """An estimator that names its presentation, and shows itself in terminals and notebooks."""

    presentation: ClassVar[type[Presentation]]
    """What runs, plots, report and the command line ask about a fitted model."""

    def summary(self) -> str:
        """A short account of the fit in plain text."""
        return as_text(present(self).facts())

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._facts_html()  # pyright: ignore[reportAttributeAccessIssue]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        if "text/html" in bundle:
            bundle["text/html"] += self._facts_html()
        return bundle

    def _facts_html(self) -> str:
        try:
            return _as_html(present(self).facts())
        except NotFittedError:
            return ""


def present(model: Any) -> Presentation:
    """How the family of a fitted model presents it."""
    found = getattr(model, "presentation", None)
    if found is None:
        raise TypeError(
            f"{type(model).__name__} has no attribute 'presentation': give an estimator of "
            "wideangle, or one with a presentation of its own."
        )
    return found(model)


def as_text(rows: list[tuple[str, str]]) -> str:
    """Facts as aligned lines."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _as_html(rows: list[tuple[str, str]]) -> str:
    """Facts as a table; everything that came from data is escaped."""
    cells = "".join(
        f"<tr><th style='text-align:left;padding-right:1em'>{escape.escape(name)}</th>"
        f"<td>{escape.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table class='wideangle-summary'>{cells}</table>"
