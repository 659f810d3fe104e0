"""scikit-learn's own checks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from wideangle import Maximise, MixtureOfExpertsClassifier, Sampling

pytestmark = [
    pytest.mark.usefixtures("compile_quickly"),
    pytest.mark.filterwarnings("ignore:.*(R-hat|effective sample|ESS|diverg|chains)"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning"),
]

NOT_BIT_FOR_BIT = dict.fromkeys(
    [
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    ],
    "minibatches and Markov chains differ: equal in distribution, not bit for bit",
)


QUICK = {
    "map": Maximise(n_passes=150, n_starts=1),
    "mcmc": Sampling(n_warmup=8, n_draws=8, n_chains=2),
}


def make(prior, inference):
    return MixtureOfExpertsClassifier(
        2, prior=prior, inference=QUICK[inference], progress=False, random_state=0
    )


def checks(estimators):
    return parametrize_with_checks(estimators, expected_failed_checks=lambda _: NOT_BIT_FOR_BIT)


@checks([make("gaussian", "map")])
def test_the_fastest_pair_keeps_the_contract(estimator, check):
    check(estimator)


PAIRS = [("mutual-angular", "map")]
PAIRS += [(prior, "mcmc") for prior in ("gaussian", "mutual-angular", "vmf", "dpp")]


@pytest.mark.slow
@checks([make(*pair) for pair in PAIRS])
def test_every_pair_keeps_the_contract(estimator, check):
    check(estimator)
