"""The determinantal prior: its normaliser, and draws against exact rejection.

The paper's determinant without a base distribution is improper: over a growing box its mass grows
with the volume, since far apart vectors all have det L near 1. So only the normalised form is
tested.
"""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy.spatial.distance import pdist

from statistical import FOUR, central_difference, relative_error, z_score, z_score_of_two
from wideangle import DeterminantalComponents
from wideangle.priors import dpp


def exact_log_normaliser(n, dim, ratio):
    """K! e_K by Newton's identities from power sums, in 200 digits (they cancel)."""
    with mp.workdps(200):
        ratio = mp.mpf(ratio)
        base = 2 * ratio / (1 + 2 * ratio + mp.sqrt(1 + 4 * ratio))
        power = [((1 - base) ** m / (1 - base**m)) ** dim for m in range(1, n + 1)]
        e = [mp.mpf(1)]
        for k in range(1, n + 1):
            e.append(sum((-1) ** i * e[k - 1 - i] * power[i] for i in range(k)) / k)
        return float(mp.log(e[n] * mp.factorial(n)))


def mean_determinant(module, n=3, dim=2, draws=40_000):
    """Draws of det L under the base distribution over the normaliser: their mean must be 1."""
    prior = module.DeterminantalComponents(n, dim, 1.3, 2.0)
    vectors = 1.3 * np.random.default_rng(0).normal(size=(draws, n, dim))
    squares = np.sum((vectors[:, :, None] - vectors[:, None]) ** 2, -1)
    determinants = np.linalg.det(np.exp(-0.5 * squares / 4.0))
    return determinants / np.exp(float(prior.log_normaliser))


CASES = [(2, 3, 0.5), (10, 1, 0.01), (5, 3, 100.0), (30, 123, 1 / 246)]
MORE_CASES = [(5, 1, 0.01), (10, 2, 0.1), (20, 10, 0.05), (5, 1000, 1 / 2000)]
CASES += [pytest.param(*case, marks=pytest.mark.slow) for case in MORE_CASES]


@pytest.mark.parametrize(("n", "dim", "ratio"), CASES)
def test_normaliser_against_newtons_identities(n, dim, ratio):
    """(10, 1, 0.01) is a nearly singular kernel: e_K is 1e-84, far below one minus a sum."""
    exact = exact_log_normaliser(n, dim, ratio)
    assert relative_error(dpp.log_expected_determinant(n, dim, jnp.float64(ratio)), exact) < 1e-11
    single = dpp.log_expected_determinant(n, dim, jnp.float32(ratio))
    assert abs(float(single) - exact) < 1e-5 * (1 + abs(exact))


def test_normaliser_against_draws():
    assert z_score(mean_determinant(dpp), 1.0) < FOUR


def test_normaliser_has_a_gradient():
    def f(ratio):
        return dpp.log_expected_determinant(4, 3, jnp.asarray(ratio))

    slope = jax.grad(f)(0.3)
    assert relative_error(slope, central_difference(f, 0.3)) < 1e-7


def test_limits_of_the_normaliser():
    assert dpp.log_expected_determinant(1, 3, 0.4) == pytest.approx(0, abs=1e-12)
    narrow, usual, wide = dpp.log_expected_determinant(4, 3, jnp.array([1e6, 0.3, 1e-6]))
    assert narrow == pytest.approx(0, abs=1e-4)
    assert wide < -20 < usual < -0.1


def test_density():
    prior = DeterminantalComponents(3, 2, 1.3, 2.0)
    vectors = np.random.default_rng(1).normal(size=(3, 2))
    squares = np.sum((vectors[:, None] - vectors[None]) ** 2, -1)
    base = -0.5 * np.sum(vectors**2) / 1.69 - 6 * np.log(1.3 * np.sqrt(2 * np.pi))
    log_det = np.linalg.slogdet(np.exp(-squares / 8))[1]
    expected = base + log_det - exact_log_normaliser(3, 2, 1.69 / 4)
    assert relative_error(prior.log_prob(vectors), expected) < 1e-10
    assert np.isfinite(prior.log_prob(np.ones((3, 2))))  # three equal vectors
    default = DeterminantalComponents(3, 8, 0.5)
    assert default.lengthscale == pytest.approx(0.5 * np.sqrt(16))


def test_one_component_is_the_base_distribution():
    prior = DeterminantalComponents(1, 2, 1.5)
    draws = prior.sample(jax.random.key(0), (5000,))
    assert z_score(np.square(draws), 2.25) < FOUR


def test_draws_against_exact_rejection():
    """Base draws kept with probability det L are exact draws."""
    random = np.random.default_rng(2)
    vectors = random.normal(size=(60_000, 3, 2))
    squares = np.sum((vectors[:, :, None] - vectors[:, None]) ** 2, -1)
    keep = random.uniform(size=len(vectors)) < np.linalg.det(np.exp(-squares / 4))
    prior = DeterminantalComponents(3, 2, 1.0, np.sqrt(2.0), n_sweeps=30)
    draws = np.asarray(prior.sample(jax.random.key(3), (6000,)))

    def statistics(sets):
        gaps = np.stack([np.sort(pdist(rows)) for rows in sets])
        lengths = np.sort(np.linalg.norm(sets, axis=-1), axis=-1)
        return np.concatenate([gaps, gaps**2, lengths, sets.mean(1) ** 2], axis=-1)

    assert keep.sum() > 5000
    ours = statistics(draws)
    assert z_score_of_two(ours, statistics(vectors[keep][:6000])) < FOUR
    assert z_score_of_two(ours, statistics(vectors[:6000])) > 10  # and not the base distribution
