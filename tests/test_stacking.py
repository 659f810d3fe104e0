import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from mutants import mutant
from wideangle import stacking
from wideangle.stacking import UNRELIABLE, smoothed, stack


@pytest.mark.parametrize("n_draws", [25, 400, 1001])
def test_smoothing_is_that_of_arviz(n_draws):
    arviz = pytest.importorskip("arviz")
    psislw = getattr(arviz, "psislw", None)
    if psislw is None:
        pytest.skip("ArviZ 1.x keeps it elsewhere")
    rng = np.random.default_rng(0)
    spread = np.linspace(0.1, 3.0, 30)[:, None]
    ratios = spread * rng.normal(size=(30, n_draws))
    expected, shapes = psislw(ratios.copy())
    found, k = smoothed(ratios)
    found = found - np.log(np.exp(found).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(k, shapes, atol=1e-9)


def test_few_draws_and_equal_ratios_are_left_as_they_are():
    ratios = np.log([[1.0, 2.0, 3.0, 4.0]])
    found, k = smoothed(ratios)
    np.testing.assert_allclose(found, ratios - np.log(4.0))
    assert k == np.inf
    found, k = smoothed(np.zeros((2, 100)))
    np.testing.assert_array_equal(found, 0.0)
    assert (k < UNRELIABLE).all()


def normal_mean(module=stacking):
    """Errors of leave-one-out densities where they are known: the mean of a Gaussian."""
    rng = np.random.default_rng(1)
    y = 1.5 * rng.normal(size=20)
    weights = rng.integers(1, 4, size=20).astype(float)
    total, mean = weights.sum(), weights @ y / weights.sum()
    draws = mean + rng.normal(size=20_000) / np.sqrt(total)
    found = module.leave_one_out(norm.logpdf(y, draws[:, None]), weights)
    rest = total - weights
    centre = (total * mean - weights * y) / rest
    exact = norm.logpdf(y, centre, np.sqrt(1.0 + 1.0 / rest))
    return np.abs(found.log_density - exact).max(), found.pareto_k


def test_leaving_rows_out_of_a_normal_mean_is_exact():
    error, shapes = normal_mean()
    assert error < 0.02
    assert (shapes < UNRELIABLE).all()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("smoothed(-weights[:, None] * log_lik)", "smoothed(weights[:, None] * log_lik)"),
        ("smoothed(-weights[:, None] * log_lik)", "smoothed(-log_lik)"),
        ("smoothed(-weights[:, None] * log_lik)", "smoothed(0.0 * log_lik)"),
        ("np.logaddexp.reduce(log_ratios + log_lik, axis=1) - total", "-total"),
    ],
)
def test_a_fault_in_leaving_out_is_seen(old, new):
    assert normal_mean(mutant(stacking, old, new))[0] > 0.03


def test_weights_are_those_of_a_general_optimiser():
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(3, 200)) + np.array([[0.0], [0.1], [-0.3]])
    counts = rng.integers(1, 4, size=200)

    def loss(free):
        w = np.append(free, 1.0 - free.sum())
        return -counts @ np.log(np.maximum(w @ np.exp(scores), 1e-12))

    best = minimize(loss, [0.3, 0.3], bounds=[(0, 1)] * 2, method="Powell", tol=1e-10).x
    found = stack(scores, counts)
    assert found.sum() == pytest.approx(1.0)
    assert loss(found[:2]) <= loss(best) + 1e-4
    for old, new in (
        ("counts / (weights @ density)", "1.0 / n / (weights @ density)"),
        ("weights = weights * gains", "weights = gains / gains.sum()"),
    ):
        assert loss(mutant(stacking, old, new).stack(scores, counts)[:2]) > loss(best) + 1e-2


def test_the_chain_that_predicts_has_the_weight_and_a_useless_one_has_none():
    rng = np.random.default_rng(3)
    truth = norm.logpdf(rng.normal(size=300))
    found = stack(np.stack([truth, truth - 2.0, truth - 1e3]))
    np.testing.assert_allclose(found, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(stack(np.stack([truth, truth])), [0.5, 0.5])


def test_chains_that_each_know_half_of_the_rows_share_the_weight():
    scores = np.full((2, 100), -5.0)
    scores[0, :50] = scores[1, 50:] = 0.0
    np.testing.assert_allclose(stack(scores), [0.5, 0.5])
    counts = np.where(np.arange(100) < 50, 3.0, 1.0)
    found = stack(scores, counts)
    assert 0.7 < found[0] < 0.8
