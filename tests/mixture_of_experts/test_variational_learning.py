"""EM around the stochastic variational fit: the priors' own parameters, learned from q."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle.mixture_of_experts.classes import LogisticExperts
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.guides import GaussianGuide, VmfGuide
from wideangle.mixture_of_experts.likelihood import Pair
from wideangle.mixture_of_experts.task import Task
from wideangle.mixture_of_experts.variational import (
    M_DRAWS,
    fit_starts,
    learned,
    m_step,
    m_steps,
)
from wideangle.priors.components import GaussianComponents, PolarComponents
from wideangle.priors.expected import expected_log_prior
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.settings import Variational
from wideangle.storage import Checkpoint

P, STARTS = 6, 2


def polar(n, first=None, kind="independent", shape=1.0, rate=1.0, kappa=2.0, size=P):
    directions = MutualAngular(n, size, jnp.asarray(kappa), kind, first)
    return PolarComponents(directions, jnp.asarray(shape), jnp.asarray(rate))


def guide(q, vectors):
    """A sharp q around vectors (S, K, D)."""
    if q == "diagonal":
        return GaussianGuide(vectors, jnp.full_like(vectors, -6.0))
    flat = jnp.zeros(vectors.shape[:-1])
    return VmfGuide(vectors, flat + 11.0, flat + 11.0)


@pytest.mark.parametrize("q", ["diagonal", "vmf"])
def test_the_m_step_finds_the_distribution_that_components_were_drawn_from(key, q):
    n, shape, rate = 4000, 7.0, 2.0
    truth = jnp.eye(P)[2]
    prior = polar(n, truth, shape=shape, rate=rate, kappa=8.0)
    keys = jax.random.split(key, STARTS)
    vectors = jnp.stack([prior.sample(one) for one in keys])
    wrong = polar(n, jnp.eye(P)[0], shape=1.0, rate=0.1, kappa=8.0)
    found = m_step(key, guide(q, vectors), wrong)
    total = n * STARTS
    # Fisher information of a Gamma distribution at (7, 2): standard errors of shape and rate.
    trigamma = float(jax.scipy.special.polygamma(1, shape))
    determinant = trigamma * shape / rate**2 - 1 / rate**2
    errors = np.sqrt([shape / rate**2 / determinant / total, trigamma / determinant / total])
    assert abs(float(found.magnitude_shape) - shape) < 4 * errors[0]
    assert abs(float(found.magnitude_rate) - rate) < 4 * errors[1]
    assert float(found.directions.first @ truth) > 0.999
    assert float(found.directions.concentration) == 8.0


@pytest.mark.parametrize("kind", ["independent", "II"])
def test_the_bound_at_fixed_q_does_not_fall_under_vmf_factors(key, kind):
    vectors = jax.random.normal(key, (STARTS, 5, P))
    q = VmfGuide(vectors, jnp.full((STARTS, 5), 1.5), jnp.full((STARTS, 5), 1.0))
    prior = polar(5, jnp.eye(P)[0], kind)

    def bound(prior):
        parts = [jax.tree.map(lambda leaf, i=i: leaf[i], q) for i in range(STARTS)]
        return sum(float(expected_log_prior(one.factors, prior)) for one in parts)

    once = m_step(key, q, prior)
    assert bound(once) > bound(prior) + 0.1
    assert bound(once) == pytest.approx(bound(m_step(key, q, once)))
    for change in (0.9, 1.1):  # it is a maximum, not merely higher
        other = PolarComponents(once.directions, change * once.magnitude_shape, once.magnitude_rate)
        assert bound(other) < bound(once)


def test_the_bound_at_fixed_q_does_not_fall_under_gaussian_factors(key):
    vectors = jax.random.normal(key, (STARTS, 5, P))
    q = GaussianGuide(vectors, jnp.full_like(vectors, -1.0))
    prior = polar(5, jnp.eye(P)[0], "II")
    keys = jax.random.split(key, STARTS)
    draws = jnp.concatenate(
        [jax.tree.map(lambda x, i=i: x[i], q).sample(keys[i], M_DRAWS) for i in range(STARTS)]
    )

    def bound(prior):
        return float(jnp.sum(jax.vmap(prior.log_prob)(draws)))

    assert bound(m_step(key, q, prior)) > bound(prior) + 0.1


def test_all_starts_count_for_the_mean_direction(key):
    first, second = jnp.eye(P)[:2]
    vectors = jnp.stack([first, second])[:, None]  # two starts of one component each
    wanted = (first + second) / jnp.sqrt(2.0)
    for q in ("diagonal", "vmf"):
        found = m_step(key, guide(q, 3.0 * vectors), polar(1, jnp.eye(P)[3]))
        assert float(found.directions.first @ wanted) > 0.999


def test_a_shape_without_a_maximum_is_capped(key):
    same = jnp.ones((1, 1, P))
    found = m_step(key, guide("diagonal", same)._replace(log_scales=jnp.full_like(same, -20.0)),
                   polar(1))  # fmt: skip
    assert float(found.magnitude_shape) == pytest.approx(1e3)


def test_only_priors_to_learn_are_learned(key):
    priors = Pair(GaussianComponents(3, P, 0.7), polar(3))
    assert m_steps(100, Pair(False, False)) == []
    assert m_steps(100, Pair(False, True)) == [30, 50, 70]
    assert m_steps(2, Pair(False, True)) == [1]  # never before the first step, nor after the last
    guides = Pair(*[guide("diagonal", jnp.ones((1, 3, P)))] * 2)
    found = learned(key, guides, priors, Pair(False, True))
    assert found.gate is priors.gate
    assert found.experts.magnitude_shape != priors.experts.magnitude_shape


def strong_data(truth, length, n=4000):
    """Every expert is the same strong vector, so that the fit itself is easy."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(n, P))
    chance = 1 / (1 + np.exp(-length * rows @ truth))
    return Data(rows, (generator.random(n) < chance).astype(int), np.ones(n))


def task_of(priors, learn, guide="diagonal", n_passes=60):
    inference = Variational(guide=guide, temperature=1.0, n_starts=2, n_passes=n_passes)
    return Task(priors, learn, LogisticExperts(), inference, verbose=False)


@pytest.mark.parametrize("q", ["diagonal", pytest.param("vmf", marks=pytest.mark.slow)])
def test_a_fit_learns_mean_direction_and_length(key, q):
    truth, length = np.eye(P)[1], 4.0
    prior = polar(1, jnp.eye(P)[0], shape=1.0, rate=4.0, kappa=20.0)
    gate = GaussianComponents(1, P, 1.0)
    data = strong_data(truth, length)
    learned, given = (
        fit_starts(key, task_of(Pair(gate, prior), Pair(False, learn), q), data)
        for learn in (True, False)
    )
    new = learned[0].priors[1]
    assert float(new.directions.first @ truth) > 0.99
    assert float(new.magnitude_shape / new.magnitude_rate) == pytest.approx(length, rel=0.1)
    assert float(new.magnitude_shape) > 30
    assert learned[0].priors[0].scale == gate.scale
    assert given[0].priors[1] is prior
    # The evidence of the learned prior is higher: that is what EM climbs.
    assert learned[0].elbo > given[0].elbo + 5


def test_an_interrupted_fit_takes_its_learned_priors_along(key, tmp_path):
    data = strong_data(np.eye(P)[1], 2.0, n=50)
    prior = polar(2, kind="II", kappa=0.5)
    task = task_of(Pair(prior, prior), Pair(True, True), n_passes=800)
    whole = fit_starts(key, task, data)
    for stop_after in (300, 400):  # between M steps (240, 400, 560), and just before one
        folder = tmp_path / str(stop_after)
        with pytest.warns(RuntimeWarning, match="interrupted"):
            fit_starts(key, task, data, checkpoint=StopAt(folder, stop_after))
        again = fit_starts(key, task, data, checkpoint=StopAt(folder, 10**6))
        for left, right in zip(whole, again, strict=True):
            same = zip(
                jax.tree.leaves((left.guides, left.priors)),
                jax.tree.leaves((right.guides, right.priors)),
                strict=True,
            )
            assert all(np.array_equal(a, b) for a, b in same)
            assert np.array_equal(left.trace, right.trace)


class StopAt(Checkpoint):
    """Saves at every call, and is stopped by Ctrl-C from some step on."""

    def __init__(self, path, step):
        super().__init__(path, fingerprint="one and the same", every_seconds=0.0)
        self.step = step

    def __call__(self, state, draws):
        super().__call__(state, draws)
        if int(state[0].step[0]) >= self.step:
            raise KeyboardInterrupt
