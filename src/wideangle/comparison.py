"""Does the repulsion help? The same model with and without it, on the same held-out rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv, cross_val_score

from wideangle.settings import PRIORS, MutualAngularPrior, VonMisesFisherPrior, named


@dataclass(frozen=True)
class Comparison:
    """Scores of a model with and without repulsion; ``print`` gives the sentence."""

    difference: float
    """Mean score with repulsion minus that without."""
    low: float
    high: float
    """Interval of 95 % for the difference."""
    with_repulsion: np.ndarray = field(repr=False)
    without: np.ndarray = field(repr=False)
    """Score of each fold; more is better."""
    unit: str = "score"

    def __str__(self) -> str:
        if self.low > 0:
            advice = "keep the repulsion"
        elif self.high < 0:
            advice = "leave the repulsion out (prior='vmf')"
        else:
            advice = "no clear difference, so either will do"
        change = "higher" if self.difference >= 0 else "lower"
        return (
            f"With repulsion the held-out {self.unit} is {abs(self.difference):.3g} {change} than "
            f"without (95 % interval of the difference: {self.low:.3g} to {self.high:.3g}, "
            f"{len(self.without)} folds): {advice}."
        )


def compare(estimator: Any, X: Any, y: Any = None, *, cv: Any = 5, scoring: Any = None) -> Any:
    r"""Cross-validate a model with and without repulsion between its components.

    Both are fitted to the same rows and scored on the same held-out ones. The interval is that of
    the corrected resampled t-test of Nadeau and Bengio (2003): training sets of folds overlap, so
    that the variance of the mean over k folds is
    :math:`(1/k + n_\text{test}/n_\text{train})\,s^2`.

    Parameters
    ----------
    estimator
        A model with a mutual-angular prior, or a pipeline with such a model in it. Not fitted by
        this call.
    X, y
        Rows, and targets where the model has any.
    cv : int or splitter
        Folds, as in scikit-learn; stratified for a classifier. Pass a repeated splitter for a
        shorter interval.
    scoring : str or callable, optional
        As in scikit-learn, more is better. By default the log-likelihood of held-out rows: minus
        the log-loss of a classifier, and the model's own score otherwise.

    Returns
    -------
    Comparison
        The difference with its interval; as text, one sentence.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from wideangle import MixtureOfExpertsClassifier, compare
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = MixtureOfExpertsClassifier(4, inference="map", random_state=0)
    >>> found = compare(model, X, y)
    >>> bool(found.low <= found.difference <= found.high)
    True
    """
    from scipy.stats import t  # slow to import

    classifies = is_classifier(estimator)
    unit = "score"
    if scoring is None:
        unit = "log-likelihood of a row" if classifies else "score of the model"
        scoring = "neg_log_loss" if classifies else None
    splitter: Any = check_cv(cv, y, classifier=classifies)
    folds = list(splitter.split(X, y))
    if len(folds) < 2:  # noqa: PLR2004
        raise ValueError(f"cv={cv!r}: an interval needs at least two folds.")
    scores = [
        cross_val_score(model, X, y, cv=folds, scoring=scoring, error_score="raise")
        for model in (clone(estimator), without_repulsion(estimator))
    ]
    gaps = scores[0] - scores[1]
    ratio = float(np.mean([len(test) / len(train) for train, test in folds]))
    error = np.sqrt((1.0 / len(gaps) + ratio) * np.var(gaps, ddof=1))
    mean, reach = float(gaps.mean()), float(t.ppf(0.975, len(gaps) - 1) * error)
    return Comparison(mean, mean - reach, mean + reach, *scores, unit=unit)


def without_repulsion(estimator: Any) -> Any:
    """A copy whose mutual-angular priors are independent, with the same lengths."""
    twin: Any = clone(estimator)
    found = False
    for name, value in twin.get_params().items():
        if name == "prior" or name.endswith("__prior"):
            pair = value if isinstance(value, tuple) else (value,)
            plain = tuple(_independent(named(one, PRIORS)) for one in pair)
            if any(one is not None for one in plain):
                found = True
                kept = tuple(a if b is None else b for a, b in zip(pair, plain, strict=True))
                twin.set_params(**{name: kept if isinstance(value, tuple) else kept[0]})
    if not found:
        raise ValueError(
            "estimator: has no mutual-angular prior, so there is no repulsion to leave out; give a "
            "model with prior='mutual-angular', or a pipeline with one."
        )
    return twin


def _independent(prior: Any) -> VonMisesFisherPrior | None:
    if not isinstance(prior, MutualAngularPrior):
        return None
    return VonMisesFisherPrior(
        scale=prior.scale, magnitude_shape=prior.magnitude_shape, common=prior.common
    )
