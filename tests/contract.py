"""scikit-learn's checks of an estimator, all of them or those that depend on how it fits."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

FITS = {
    "check_class_weight_classifiers",
    "check_classifiers_one_label",
    "check_classifiers_train",
    "check_estimator_sparse_array",
    "check_estimators_dtypes",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_sample_weights_not_an_array",
    "check_transformer_general",
}
"""What is asked of every prior; the other checks ask for parameters, tags and messages."""


def all_checks(estimator: Any, excused: dict[str, str] | None = None) -> Any:
    """A test of ``estimator`` and ``check``; ``excused`` ones fail, for the reason given."""
    return parametrize_with_checks([estimator], expected_failed_checks=lambda _: excused or {})


def checks_of_fits(estimators: Iterable[Any], names: Iterable[str] = FITS) -> Any:
    """The same, of some checks."""
    names = set(names)
    cases = [
        pytest.param(estimator, check, id=f"{place}-{check.func.__name__}")
        for place, made in enumerate(estimators)
        for estimator, check in estimator_checks_generator(made)
        if isinstance(check, partial) and check.func.__name__ in names
    ]
    return pytest.mark.parametrize(("estimator", "check"), cases)
