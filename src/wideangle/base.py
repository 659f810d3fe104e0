"""What every estimator of the library has in common, and gives to runs, plots, report and cli."""

from __future__ import annotations

import html as escape
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from wideangle.diagnostics import Summary, show_rhat
from wideangle.settings import Choices, Settings, named


class NamedChoices(BaseEstimator):
    """Parameters that are a name or an object: ``prior="mutual-angular"`` or ``prior=Prior(...)``.

    A name stands for the object with default settings, so ``get_params`` lists the settings of the
    object and ``set_params(prior__cosine=0.3)`` works from the name, too.
    """

    _choices: ClassVar[dict[str, Choices]] = {}
    """For each such parameter the classes by name; by None where that is a choice, too."""

    def choice(self, parameter: str) -> Any:
        """The object behind a parameter."""
        return named(getattr(self, parameter), self._choices[parameter])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters; with ``deep`` also those of the objects behind names."""
        params = super().get_params(deep=deep)
        for parameter in self._choices if deep else ():
            chosen = self.choice(parameter)
            if chosen is not params[parameter] and isinstance(chosen, Settings):
                nested = chosen.get_params()
                params |= {f"{parameter}__{name}": value for name, value in nested.items()}
        return params

    def set_params(self, **params: Any) -> Any:
        """Set parameters, nested ones too; a name becomes an object where it has to hold them."""
        for parameter in self._choices:
            if any(name.startswith(f"{parameter}__") for name in params):
                chosen = named(
                    params.pop(parameter, self.choice(parameter)), self._choices[parameter]
                )
                setattr(self, parameter, chosen)
        return super().set_params(**params)

    def _validate_params(self) -> None:
        super()._validate_params()
        for parameter in self._choices:
            chosen = self.choice(parameter)
            for one in chosen if isinstance(chosen, tuple) else (chosen,):
                if isinstance(one, Settings):
                    one.check()


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
