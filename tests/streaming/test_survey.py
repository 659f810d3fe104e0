import numpy as np
import pytest

from wideangle.mixture_of_experts.prepare import learn_scaling, scaling_from
from wideangle.streaming import NpyRows
from wideangle.streaming.survey import survey


def make(n=500):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, 5)) * [1, 1e-3, 50, 1, 1] + [0, 1e4, -7, 0, 3]
    X[:, 3] = X[:, 3] > 0
    X[:, 4] = 3.0
    y = generator.choice(["ape", "bee", "cat"], n, p=[0.8, 0.15, 0.05])
    X[y == "cat"] += [1, 0.01, 0, 0, 0]
    return X, y


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [0.3, 2.0, 7.0]])
def test_scales_are_those_of_rows_in_memory(weights):
    X, y = make()
    X[:, 1] += np.arange(500) * 1e-4  # drifts away from the first block
    found = survey(NpyRows(X, y, block_rows=37), 0, 50)
    weights = np.array(weights)
    row_weights = weights[np.searchsorted(found.classes, y)]
    wanted = learn_scaling(X, row_weights, standardise=True)
    mean, variance = found.moments.weighted(weights)
    got = scaling_from(
        mean,
        np.sqrt(variance),
        found.moments.binary,
        standardise=True,
    )
    np.testing.assert_allclose(got.shift, wanted.shift, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got.scale, wanted.scale, rtol=1e-6)


def test_classes_counts_and_sample_are_those_of_the_file():
    X, y = make()
    found = survey(NpyRows(X, y, block_rows=37), 3, 50)
    classes, counts = np.unique(y, return_counts=True)
    np.testing.assert_array_equal(found.classes, classes)
    np.testing.assert_array_equal(found.moments.counts, counts)
    place = [np.flatnonzero(np.all(row == X, axis=1)).item() for row in found.rows]
    assert len(set(place)) == 50 and place == sorted(place)
    np.testing.assert_array_equal(found.targets, y[place])


def test_every_row_is_as_likely_in_the_sample():
    X = np.arange(40.0)[:, None]
    source = NpyRows(X, np.zeros(40, int), block_rows=7)
    counts = sum(
        np.bincount(survey(source, seed, 10).rows.astype(int)[:, 0], minlength=40)
        for seed in range(400)
    )
    # Binomial(400, 1/4), 40 of them
    assert np.all(np.abs(counts - 100) < 5 * np.sqrt(75))


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e200])
def test_bad_entries_are_named(value):
    X, y = make()
    X[123, 2] = value
    with pytest.raises(ValueError, match="row 123, column 2"):
        survey(NpyRows(X, y, block_rows=37), 0, 10)


def test_a_source_without_targets_is_refused():
    with pytest.raises(ValueError, match="no targets"):
        survey(NpyRows(np.ones((3, 2))), 0, 10)
