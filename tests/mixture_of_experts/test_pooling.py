"""Chains in modes of little mass begin anew, and those in modes of much mass go on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle import MixtureOfExpertsClassifier, Sampling
from wideangle.mixture_of_experts import sampling
from wideangle.mixture_of_experts.likelihood import Pair
from wideangle.mixture_of_experts.pooling import continued, ends, log_masses, pool
from wideangle.posterior import Draws
from wideangle.priors.components import GaussianComponents, HierarchicalComponents

K, P, SCALE = 2, 3, 1.7
N_DRAWS = 4000
PRIORS = Pair(HierarchicalComponents(K, P, False, scale=SCALE), HierarchicalComponents(K, P, True))
SIZE = 2 * K * P + P


def drawn(rng, precision, centre, height, n_draws=N_DRAWS):
    """Chains at the posterior of a quadratic log-likelihood, one for each of these modes.

    The log-likelihood is ``height - precision |x - centre|^2 / 2`` in all coordinates.
    """
    precision, centre, height = (
        np.asarray(v, float)[:, None, None] for v in (precision, centre, height)
    )
    noise = rng.normal(size=(len(height), n_draws, SIZE))
    x = precision * centre / (1.0 + precision) + noise / np.sqrt(1.0 + precision)
    log_lik = height[:, :, 0] - 0.5 * np.sum(precision * (x - centre) ** 2, axis=2)
    gate, deviations, common = np.split(x, [K * P, 2 * K * P], axis=2)
    scales = {
        name: np.full(x.shape[:2], value) for name, value in (("experts", 0.4), ("common", 2.5))
    }
    common = scales["common"][..., None] * common
    shape = (*x.shape[:2], K, P)
    experts = 0.4 * deviations.reshape(shape) + common[:, :, None]
    weights = Pair(SCALE * gate.reshape(shape), experts[:, :, :, None])
    return Draws({"weights": weights, "log_lik": log_lik, "scales": scales, "common": common})


def evidence(precision, centre, height):
    """Log of the integral of likelihood times standard normal prior."""
    shrunk = precision / (1.0 + precision)
    return height - 0.5 * SIZE * (np.log1p(precision) + centre**2 * shrunk)


def test_mass_of_a_gaussian_mode_is_its_evidence():
    """Exact, up to a constant, where posterior and prior are independent normals."""
    modes = (np.array([0.5, 30.0, 4.0]), np.array([0.3, 1.0, -0.5]), np.array([-20.0, 9.0, 3.0]))
    mass, spread = log_masses(PRIORS, drawn(np.random.default_rng(0), *modes))
    truth = evidence(*modes)
    np.testing.assert_allclose(mass - mass[0], truth - truth[0], atol=0.4)
    # Half the squared distance from the mode is Gamma(SIZE / 2).
    assert spread == pytest.approx(np.sqrt(SIZE / 2), rel=0.05)


def test_the_chain_of_least_mass_begins_anew_even_if_its_likelihood_is_highest():
    modes = (np.array([1.0, 1.0, 400.0, 1.0]), np.zeros(4), np.array([0.0, 1.0, 20.0, 0.5]))
    truth = evidence(*modes)
    assert truth.argmin() == 2
    draws = drawn(np.random.default_rng(1), *modes, n_draws=200)
    assert draws.values["log_lik"].mean(axis=1).argmax() == 2
    found = pool(PRIORS, draws)
    assert found.chains.tolist()[:2] == [0, 1] and found.chains[3] == 3
    assert found.chains[2] != 2 and found.n_new == 1 and not found.together
    assert found.draws.tolist()[:2] == [199, 199] and 100 <= found.draws[2] < 199
    start = ends(draws.values["weights"], found)
    np.testing.assert_array_equal(
        start.gate[2], draws.values["weights"].gate[found.chains[2], found.draws[2]]
    )
    np.testing.assert_array_equal(
        continued(draws, found).values["log_lik"][2], draws.values["log_lik"][found.chains[2]]
    )


def test_new_starts_differ_if_one_chain_is_far_above_all_others():
    modes = (np.ones(4), np.zeros(4), np.array([0.0, 100.0, 0.0, -50.0]))
    found = pool(PRIORS, drawn(np.random.default_rng(2), *modes, n_draws=125))
    assert found.chains.tolist() == [1] * 4 and found.together and found.n_new == 3
    assert len(set(found.draws.tolist())) == 4 and found.draws.min() >= 62


@pytest.mark.parametrize("seed", range(10))
def test_chains_of_one_distribution_all_go_on(seed):
    found = pool(PRIORS, drawn(np.random.default_rng(seed), *np.ones((3, 4)), n_draws=120))
    assert found.n_new == 0 and not found.together
    assert found.draws.tolist() == [119] * 4


def test_a_chain_that_stands_still_begins_anew():
    draws = drawn(np.random.default_rng(3), *np.ones((3, 4)), n_draws=100)
    still = jax.tree.map(
        lambda leaf: np.concatenate([leaf[:1, :1].repeat(100, 1), leaf[1:]]), draws
    )
    assert pool(PRIORS, still).chains[0] != 0


def test_other_priors_and_few_draws_are_left_alone():
    modes = (np.ones(3), np.zeros(3), np.array([0.0, 900.0, 0.0]))
    draws = drawn(np.random.default_rng(4), *modes, n_draws=99)
    assert pool(PRIORS, draws).n_new == 0
    flat = Pair(GaussianComponents(K, P, 1.0), GaussianComponents(K, P, 1.0))
    assert pool(flat, drawn(np.random.default_rng(4), *modes, n_draws=100)).n_new == 0


def test_a_fit_pools_its_chains_and_says_so(monkeypatch):
    """Three of four chains are told to begin anew; all draws still are of the same posterior."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=80) > 0).astype(int)
    model = MixtureOfExpertsClassifier(
        2, inference=Sampling(n_warmup=200, n_draws=300), random_state=0, verbose=False
    )
    alone = model.fit(X, y).predict_proba(X)
    assert model.notes_["restarted"] == 0
    asked = []

    def one(priors, draws):
        asked.append(draws.n_draws)
        found = pool(priors, draws)
        return found._replace(chains=np.full(4, 2), draws=np.array([49, 48, 47, 46]))

    monkeypatch.setattr(sampling, "pool", one)
    pooled = model.fit(X, y).predict_proba(X)
    assert asked == [50] and model.notes_["restarted"] == 3
    assert not np.array_equal(pooled, alone)
    np.testing.assert_allclose(pooled, alone, atol=0.06)
    assert jnp.isfinite(model.trace_.values["log_lik"]).all()
