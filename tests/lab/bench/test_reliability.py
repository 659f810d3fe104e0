"""Probabilities of the panel compared with how often the predicted class is right."""

import numpy as np
import pytest

from lab.bench.test_defaults import make_fit, make_record
from wideangle_lab.bench.defaults import page, reliability
from wideangle_lab.bench.defaults.targets import summaries


def drawn(power, n_rows=4000, seed=0):
    """Counts of classes drawn with some probabilities, which are predicted or exaggerated."""
    generator = np.random.default_rng(seed)
    proba = generator.dirichlet([0.5, 0.5, 0.5], n_rows)
    y = (generator.random((n_rows, 1)) > proba.cumsum(axis=1)).sum(axis=1)
    wrong = proba**power
    return reliability.counted(y, wrong / wrong.sum(axis=1, keepdims=True))


def record_of(counts, n_splits=1, n_rows=100):
    fit = make_fit(reliability=counts, n_rows=n_rows)
    record = make_record(iris=fit)
    cells = {f"iris/{seed}": record["cells"]["iris/0"] for seed in range(n_splits)}
    return {"cells": cells}


def test_rows_are_counted_by_the_probability_of_the_predicted_class():
    proba = np.array([[0.2, 0.8], [0.55, 0.45], [0.5, 0.5], [0.0, 1.0], [0.3, 0.7]])
    found = reliability.counted(np.array([1, 1, 0, 1, 0]), proba)
    assert found["rows"] == [0, 2, 0, 1, 1, 0, 0, 1]
    assert found["right"] == [0, 1, 0, 0, 1, 0, 0, 1]
    np.testing.assert_allclose(found["probability"], [0, 1.05, 0, 0.7, 0.8, 0, 0, 1])


def test_true_probabilities_agree_and_exaggerated_ones_do_not():
    for power, most_wrong in ((1.0, 1), (2.0, None)):
        found = reliability.shares(summaries(record_of(drawn(power))))
        wrong = sum(not share.agrees for share in found if share)
        assert wrong <= most_wrong if most_wrong else wrong >= 4


@pytest.mark.parametrize(
    ("n_splits", "n_train", "expected"),
    [(1, 100, 4000.0), (1, 4000, 4000.0), (2, 4000, 8000 / 1.5), (2, 1, 4000.5)],
)
def test_a_row_that_is_tested_twice_is_one_observation(n_splits, n_train, expected):
    # With halves for training, a quarter of the rows is tested twice, half once: 1 / 0.75 rows.
    (table,) = summaries(record_of(drawn(1.0), n_splits, n_train))
    total = sum(share.rows for share in reliability.shares([table]) if share)
    assert total == pytest.approx(expected, rel=1e-3)


def test_the_page_has_the_part_if_there_are_numbers():
    assert "## Calibration" not in page.render(make_record(iris=make_fit()))
    text = page.render(record_of(drawn(1.0)))
    assert "Test rows of all splits of 1 tables" in text
    assert "| 99 to 100 % |" in text
