import numpy as np
import pytest
import scipy.sparse as sp

from wideangle import (
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    Sampling,
    paper_method,
)
from wideangle.mixture_of_experts.classes import experts_for
from wideangle.mixture_of_experts.prepare import LARGEST, learn_scaling
from wideangle.mixture_of_experts.quantities import GaussianExperts
from wideangle.mixture_of_experts.task import plan
from wideangle.types import as_dense

N = 50


def columns():
    generator = np.random.default_rng(0)
    binary = generator.integers(0, 2, N)
    real = 5.0 + 3.0 * generator.normal(size=N)
    return np.stack([binary, real, np.full(N, 7.0), np.zeros(N), 1e9 * real], axis=1).astype(float)


def prepare(X, weights=None, X_new=None, **options):
    weights = np.ones(X.shape[0]) if weights is None else weights
    settings = {"standardise": True} | options
    return learn_scaling(X, weights, **settings).apply(X if X_new is None else X_new)


def test_real_columns_are_standardised_and_indicators_and_constants_left_alone():
    X = columns()
    rows = prepare(X)
    assert rows.dtype == np.float32
    assert rows.shape == (N, 6)
    np.testing.assert_array_equal(rows[:, 0], X[:, 0])
    np.testing.assert_allclose(rows[:, [1, 4]].mean(0), 0.0, atol=1e-6)
    np.testing.assert_allclose(rows[:, [1, 4]].std(0), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(rows[:, 2:4], 0.0)
    np.testing.assert_array_equal(rows[:, 5], 1.0)


@pytest.mark.parametrize("offset", [1e3, 1e9, -1e9])
def test_columns_far_from_0_are_prepared_as_those_around_it(offset):
    near = np.round(np.random.default_rng(1).normal(size=(N, 2)), 4)
    far = near + np.array([offset, 0.0])
    np.testing.assert_allclose(prepare(far), prepare(near), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_alone_is_no_spread(dtype):
    ends = np.array([0.3, np.nextafter(dtype(0.3), dtype(1.0))], dtype)
    np.testing.assert_array_equal(
        learn_scaling(np.tile(ends, 5)[:, None], np.ones(10), standardise=True).scale,
        1.0,
    )


def test_sparse_columns_are_scaled_without_shift_and_stay_sparse():
    X = columns()
    rows = prepare(sp.csr_array(X))
    assert sp.issparse(rows)
    assert rows.dtype == np.float32
    rows = rows.toarray()
    np.testing.assert_array_equal(rows[:, 0], X[:, 0])
    np.testing.assert_allclose((rows[:, [1, 2, 4]] ** 2).mean(0), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(rows[:, 3], 0.0)


def test_sparse_and_dense_indicators_give_the_same_rows():
    X = (columns() > 4.0).astype(float)
    np.testing.assert_array_equal(prepare(X), prepare(sp.csr_array(X)).toarray())


def test_without_standardising_rows_are_only_cast():
    X = columns()
    np.testing.assert_array_equal(prepare(X, standardise=False)[:, :-1], X.astype(np.float32))


def test_weights_count_as_repeated_rows():
    X = columns()
    counts = np.arange(N) % 3 + 1
    weighted = prepare(X, counts.astype(float))
    np.testing.assert_allclose(weighted, prepare(np.repeat(X, counts, 0), X_new=X), rtol=1e-5)


def test_the_smallest_single_precision_numbers_have_a_scale():
    X = sp.csr_array(np.array([[1e-45, 1.0], [0.0, 2.0]], np.float32))
    scaling = learn_scaling(X, np.ones(2), standardise=True)
    assert np.isfinite(scaling.apply(X).toarray()).all()
    assert (scaling.scale > 0).all()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("size", [1e300, 1e-300, 1e-30])
def test_any_scale_gives_finite_rows(form, size):
    X = np.stack([size * np.linspace(-1, 1, N), np.linspace(0, 1, N)], axis=1)
    rows = prepare(form(X), X_new=form(1e5 * X if size < 1 else X))
    rows = rows.toarray() if sp.issparse(rows) else rows
    assert np.isfinite(rows).all()
    assert np.abs(rows).max() <= np.float32(LARGEST)


def rare_column():
    X = np.random.default_rng(3).normal(size=(N, 2))
    X[:, 1] = 0.0
    X[0, 1] = 20.0
    return X


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_classifiers_clip_a_rare_column_at_what_is_usual_for_the_rows(form):
    X = form(rare_column())
    scaling = learn_scaling(X, np.ones(N), standardise=True)
    clipped = MixtureOfExpertsClassifier()._limited(scaling, N)
    before, after = (as_dense(one.apply(X), slice(None), np.float64) for one in (scaling, clipped))
    assert before[0, 1] > 6.0
    assert after[0, 1] == pytest.approx(np.sqrt(2.0 * np.log(N)))
    np.testing.assert_array_equal(after[1:], before[1:])


@pytest.mark.parametrize(
    "model",
    [
        MixtureOfExpertsRegressor(),
        paper_method("BMEM-G"),
        paper_method("BMEM-MABN-II"),
        paper_method("MEM-L2"),
        MixtureOfExpertsClassifier(standardise=False),
    ],
    ids=["a quantity", "BMEM-G", "BMEM-MABN-II", "MEM-L2", "not standardised"],
)
def test_other_models_follow_a_column_as_far_as_it_goes(model):
    scaling = learn_scaling(rare_column(), np.ones(N), standardise=True)
    assert model._limited(scaling, N) is scaling


def test_the_default_prior_has_narrower_deviations_with_more_columns():
    means = {}
    for p in (4, 100):
        task = plan("gaussian", Sampling(), 3, p, experts_for(3))
        means[p] = [prior.mean_scales for prior in task.priors]
    np.testing.assert_allclose(means[4][0], [0.5])
    np.testing.assert_allclose(means[100][1], [0.1, 0.7])
    quantity = plan("gaussian", Sampling(), 3, 100, GaussianExperts())
    np.testing.assert_allclose(quantity.priors.gate.mean_scales, [3.0])
    np.testing.assert_allclose(quantity.priors.experts.mean_scales, [0.7, 0.7])
