import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from mutants import mutant
from wideangle import stacking
from wideangle.stacking import UNRELIABLE, best_weights, smoothed, stack


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
    counts = np.stack([np.where(scores[0] > scores[1], 5.0, 1.0), np.ones(200)])

    def loss(free, one):
        w = np.append(free, 1.0 - free.sum())
        return -one @ np.log(np.maximum(w @ np.exp(scores), 1e-12)) / one.sum()

    limits = {"bounds": [(0, 1)] * 2, "method": "Powell", "tol": 1e-10}
    best = [minimize(loss, [0.3, 0.3], (one,), **limits).fun for one in counts]
    for found, one, least in zip(best_weights(scores, counts), counts, best, strict=True):
        assert found.sum() == pytest.approx(1.0)
        assert loss(found[:2], one) <= least + stacking.CLOSE
    for old, new in (
        ("gains = (counts / (weights @ density))", "gains = (1.0 / n / (weights @ density))"),
        ("weights = weights * gains", "weights = gains / gains.sum(axis=1, keepdims=True)"),
    ):
        broken = mutant(stacking, old, new, n=200).best_weights(scores, counts)
        assert loss(broken[0][:2], counts[0]) > best[0] + 2 * stacking.CLOSE


def test_the_chain_that_predicts_has_the_weight_and_a_useless_one_has_none():
    rng = np.random.default_rng(3)
    truth = norm.logpdf(rng.normal(size=300))
    found = stack(np.stack([truth, truth - 2.0, truth - 1e3]))
    np.testing.assert_allclose(found, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(stack(np.stack([truth, truth])), [0.5, 0.5])


def test_chains_that_the_data_cannot_tell_apart_share():
    """Chains that predict equally well: the best weights are a matter of chance, these are not."""
    scores = 0.5 * np.random.default_rng(4).normal(size=(4, 60))
    alone, shared = best_weights(scores, np.ones((1, 60)))[0], stack(scores)
    assert shared.max() < alone.max() and shared.min() > alone.min()
    better = scores + np.array([[1.0], [0.0], [0.0], [0.0]])
    assert stack(better)[0] > 0.85


def test_chains_that_each_know_half_of_the_rows_share_the_weight():
    scores = np.full((2, 100), -5.0)
    scores[0, :50] = scores[1, 50:] = 0.0
    np.testing.assert_allclose(stack(scores), [0.5, 0.5], atol=0.03)
    counts = np.where(np.arange(100) < 50, 3.0, 1.0)
    assert 0.7 < stack(scores, counts)[0] < 0.8
