"""scikit-learn's own checks."""

import pytest

from contract import FITS, all_checks, checks_of_fits
from wideangle import (
    GaussianPrior,
    Maximise,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    Sampling,
    SphericalMixture,
    Variational,
)

pytestmark = [
    pytest.mark.usefixtures("compile_quickly"),
    pytest.mark.filterwarnings("ignore::wideangle.convergence.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning"),
]
ASCENT = Maximise(n_passes=150, n_starts=1)
CHAINS = Sampling(n_warmup=8, n_draws=8, n_chains=2)


def make(inference, **prior):
    return MixtureOfExpertsClassifier(
        2, inference=inference, verbose=False, random_state=0, **prior
    )


# Of one likelihood and one prior: shrinkage that is found by cross-validation is in PAIRS.
@all_checks(make(ASCENT, prior=GaussianPrior(common=False)))
def test_the_fastest_pair_keeps_the_contract(estimator, check):
    check(estimator)


@pytest.mark.slow
@all_checks(make(CHAINS))
def test_chains_keep_the_contract(estimator, check):
    check(estimator)


def make_regressor(inference, **prior):
    return MixtureOfExpertsRegressor(2, inference=inference, verbose=False, random_state=0, **prior)


# Their predictions are checked for it in mixture_of_experts/test_regressor.py.
NEED_TARGETS = dict.fromkeys(
    ("check_methods_sample_order_invariance", "check_methods_subset_invariance"),
    "score_samples is the log density of y, and needs it",
)
LONGER = Maximise(n_passes=1500, n_starts=1)


@all_checks(make_regressor(LONGER, prior=GaussianPrior(common=False)), NEED_TARGETS)
def test_the_fastest_regressor_keeps_the_contract(estimator, check):
    check(estimator)


@pytest.mark.slow
@all_checks(make_regressor(Sampling(n_warmup=150, n_draws=50, n_chains=2)), NEED_TARGETS)
def test_chains_of_regressors_keep_the_contract(estimator, check):
    check(estimator)


PAIRS = [make(ASCENT), make(Variational(n_passes=100, n_starts=2))]
PAIRS += [make(CHAINS, prior=name) for name in ("gaussian", "mutual-angular", "vmf", "dpp")]


@pytest.mark.slow
@checks_of_fits(PAIRS)
def test_every_pair_keeps_what_depends_on_its_fit(estimator, check):
    check(estimator)


def make_clusters(inference):
    return SphericalMixture(3, inference=inference, verbose=False, random_state=0)


OF_CLASSIFIERS = dict.fromkeys(
    ("check_estimator_sparse_array", "check_estimator_sparse_matrix"),
    "asks every estimator with predict_proba for the tags of a classifier",
)


# Chains draw one cluster for a row, whatever its weight; equal rows may be in different ones.
OF_WEIGHTS = {
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
}


@all_checks(make_clusters(Maximise(n_starts=1)), OF_CLASSIFIERS)
def test_clusters_keep_the_contract(estimator, check):
    check(estimator)


@pytest.mark.slow
@all_checks(make_clusters(Variational(n_starts=1)), OF_CLASSIFIERS)
def test_variational_clusters_keep_the_contract(estimator, check):
    check(estimator)


@pytest.mark.slow
@checks_of_fits([make_clusters(CHAINS)], FITS - set(OF_CLASSIFIERS) - OF_WEIGHTS)
def test_chains_of_clusters_keep_what_depends_on_their_fit(estimator, check):
    check(estimator)
