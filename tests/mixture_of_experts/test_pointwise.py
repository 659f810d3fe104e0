import numpy as np
import pytest

from mixture_of_experts.expert_draws import CHAINS, DRAWS, draws, rows, written_out
from wideangle.mixture_of_experts import pointwise
from wideangle.mixture_of_experts.classes import experts_for
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import Pair
from wideangle.posterior import Draws

EXPERT = experts_for(2)


def chain_of(found, chain):
    return Pair(*(leaf[chain] for leaf in found.values["weights"]))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_log_lik_of_rows_is_that_of_their_class(n_classes):
    found, x = draws(n_classes), rows(150)
    targets = np.random.default_rng(3).integers(0, n_classes, 150)
    expected = np.log(written_out(found, x)[1][:, np.arange(150), targets])
    result = pointwise.log_lik_of_rows(experts_for(n_classes), chain_of(found, 1), x, targets)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_log_lik_does_not_underflow(n_classes):
    found, x = draws(n_classes), 1e4 * rows(20)
    targets = np.zeros(20, int)
    result = pointwise.log_lik_of_rows(experts_for(n_classes), chain_of(found, 0), x, targets)
    assert np.isfinite(result).all() and result.min() < -1000


@pytest.mark.parametrize("n_classes", [2, 3])
def test_drawn_classes_have_the_probabilities_of_their_draw(n_classes):
    found = draws(n_classes)
    x = np.repeat(rows(2), 5000, axis=0)
    drawn = pointwise.drawn_targets(
        experts_for(n_classes), np.random.default_rng(0), chain_of(found, 0), x
    )
    expected = written_out(found, rows(2))[0]
    for place in range(2):
        part = drawn[:, 5000 * place : 5000 * (place + 1)]
        for label in range(n_classes):
            p = expected[:, place, label]
            error = 5.0 * np.sqrt(p * (1 - p) / 5000) + 1e-4
            assert (np.abs((part == label).mean(1) - p) < error).all()


def test_the_chain_that_knows_the_classes_gets_the_weight():
    rng = np.random.default_rng(0)
    x = rows(400)
    found = draws(2, scale=0.1)
    weights = found.values["weights"]
    experts = weights.experts.copy()
    experts[1, :, :, 0, 0] += 3.0  # the truth; the other chains know nothing
    found = Draws({"weights": weights._replace(experts=experts)})
    targets = (rng.random(400) < 1 / (1 + np.exp(-3.0 * x[:, 0]))).astype(int)
    made = pointwise.stacked(EXPERT, found, Data(x, targets, np.ones(400)))
    assert made.weights[1] > 0.95
    assert made.weights.sum() == pytest.approx(1.0)
    assert made.n_rows == 400 and made.unreliable < 0.1


def test_rows_of_no_weight_do_not_count():
    x = rows(200)
    found = draws(2, scale=0.1)
    weights = found.values["weights"]
    experts = weights.experts.copy()
    experts[0, :, :, 0, 0] += 3.0
    experts[1, :, :, 0, 0] -= 3.0
    found = Draws({"weights": weights._replace(experts=experts)})
    targets = (x[:, 0] > 0).astype(int)
    targets[100:] = 1 - targets[100:]
    first = np.where(np.arange(200) < 100, 1.0, 0.0)
    assert pointwise.stacked(EXPERT, found, Data(x, targets, first)).weights[0] > 0.9
    assert pointwise.stacked(EXPERT, found, Data(x, targets, 1.0 - first)).weights[1] > 0.9


def test_groups_are_thinned_to_their_memory(monkeypatch):
    found, x = draws(2), rows(30)
    rng = np.random.default_rng(0)
    targets = np.zeros(30, np.int32)
    groups, places = pointwise.groups_of_rows(EXPERT, found, x, targets, rng)
    assert groups["log_likelihood"]["y"].shape == (CHAINS, DRAWS, 30)
    assert len(places) == DRAWS
    monkeypatch.setattr(pointwise, "MOST_BYTES", 4 * CHAINS * 30 * 7)
    fewer, places = pointwise.groups_of_rows(EXPERT, found, x, targets, rng)
    assert len(places) == 7 and fewer["posterior_predictive"]["y"].shape == (CHAINS, 7, 30)
    np.testing.assert_array_equal(
        fewer["log_likelihood"]["y"], groups["log_likelihood"]["y"][:, places]
    )
    assert set(pointwise.groups_of_rows(EXPERT, found, x, None, rng)[0]) == {"predictions"}
