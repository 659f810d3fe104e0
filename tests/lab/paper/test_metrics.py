import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from wideangle_lab.paper.metrics import calibration_error, evaluate, row_losses


def example(n=500, classes=3, seed=0):
    generator = np.random.default_rng(seed)
    proba = generator.dirichlet(np.ones(classes), n)
    return generator.integers(0, classes, n), proba


def test_log_loss_and_brier_are_those_of_scikit_learn():
    y, proba = example(classes=2)
    found = evaluate(y, proba)
    assert found["log_loss"] == pytest.approx(log_loss(y, proba))
    # Over two classes the sum of squares is twice that of one.
    assert found["brier"] == pytest.approx(2 * brier_score_loss(y, proba[:, 1]))
    assert found["accuracy"] == pytest.approx(100 * np.mean(proba.argmax(1) == y))


def test_standard_errors_are_those_of_means_over_rows():
    y, proba = example()
    found = evaluate(y, proba)
    losses = row_losses(y, proba)
    assert found["log_loss_error"] == pytest.approx(losses.std(ddof=1) / np.sqrt(len(y)))


def test_calibration_error_by_a_loop_over_bins():
    _, proba = example()
    # Calibrated, so that gaps of both signs occur; else the bins would not matter.
    y = np.array([np.random.default_rng(i).choice(3, p=p) for i, p in enumerate(proba)])
    chosen, top = proba.argmax(1), proba.max(1)
    total = 0.0
    for low in range(15):
        inside = (top >= low / 15) & ((top < (low + 1) / 15) | (low == 14))
        if inside.any():
            gap = np.mean(chosen[inside] == y[inside]) - np.mean(top[inside])
            total += inside.mean() * abs(gap)
    assert calibration_error(y, proba) == pytest.approx(total)
    certain = np.eye(3)[y]
    assert calibration_error(y, certain) == 0.0
    assert calibration_error((y + 1) % 3, certain) == 1.0


def test_groups_are_measured_apart_and_empty_ones_left_out():
    y, proba = example()
    mask = np.arange(len(y)) < 100
    found = evaluate(y, proba, {"first": mask, "none": np.zeros(len(y), bool)})["groups"]
    assert set(found) == {"first"}
    assert found["first"]["n_test"] == 100
    assert found["first"]["log_loss"] == pytest.approx(evaluate(y[:100], proba[:100])["log_loss"])


def test_impossible_events_have_a_finite_loss():
    assert row_losses(np.array([1]), np.array([[1.0, 0.0]]))[0] == pytest.approx(27.63, abs=0.01)
