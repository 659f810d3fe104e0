"""Clusters of directions: the bound, densities, what a fit finds, files, errors."""

import warnings

import jax
import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import approx_fprime
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from wideangle import (
    Maximise,
    MutualAngular,
    MutualAngularPrior,
    Sampling,
    SphericalMixture,
    Variational,
)
from wideangle.sphere.vmf import inverse_on_host, log_area, values_on_host
from wideangle.spherical_mixture import sampling
from wideangle.spherical_mixture.centres import (
    CentrePrior,
    chain,
    concentration_factors,
    log_constant,
)
from wideangle.spherical_mixture.rows import MemoryRows, as_units
from wideangle.spherical_mixture.task import plan
from wideangle.storage import StorageError
from wideangle.streaming import NpyRows

CHAINS = Sampling(n_warmup=20, n_draws=20, n_chains=2)


def rows(n_rows=300, seed=0, dim=8, n_clusters=4, noise=0.2):
    rng = np.random.default_rng(seed)
    centres = np.eye(dim)[:n_clusters]
    labels = rng.integers(n_clusters, size=n_rows)
    X = centres[labels] + noise * rng.normal(size=(n_rows, dim))
    return X * rng.uniform(0.1, 10.0, (n_rows, 1)), labels


def make(n=4, inference=None, **settings):
    inference = Maximise(n_starts=2) if inference is None else inference
    return SphericalMixture(n, inference=inference, verbose=False, random_state=0, **settings)


@pytest.mark.parametrize("dim", [2, 3, 50, 3000])
def test_functions_on_the_host_are_exact(dim):
    mpmath.mp.dps = 60
    for kappa in (1e-3, 0.7, 30.0, 5000.0):
        order = mpmath.mpf(dim) / 2 - 1
        low, high = (mpmath.besseli(order + i, kappa) for i in (0, 1))
        log_mean = mpmath.log(low) - order * mpmath.log(mpmath.mpf(kappa) / 2)
        log_mean += mpmath.loggamma(order + 1)
        value = values_on_host(kappa, dim)
        np.testing.assert_allclose(value.log_mean, float(log_mean), rtol=1e-11, atol=1e-15)
        np.testing.assert_allclose(value.ratio, float(high / low), rtol=1e-12)
        np.testing.assert_allclose(inverse_on_host(value.ratio, dim), kappa, rtol=1e-8)


@pytest.mark.parametrize("kind", ["I", "II"])
def test_the_chain_is_that_of_the_prior(kind):
    prior = CentrePrior(3.0, 0.5, 5.0, kind)
    points = np.random.default_rng(0).normal(size=(5, 4))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    value, slope = chain(points, prior)
    np.testing.assert_allclose(
        value, MutualAngular(5, 4, 3.0, kind).log_ratio_to_uniform(points), rtol=1e-9
    )
    found = approx_fprime(points.ravel(), lambda x: chain(x.reshape(5, 4), prior)[0], 1e-7)
    np.testing.assert_allclose(slope.ravel(), found, atol=2e-5)


def test_factors_of_concentrations_are_those_of_a_fine_grid():
    for dim, slope, weight in ((3, 5.0, 20.0), (40, -2.0, 9.0), (40, 80.0, 100.0)):
        kappas = np.exp(np.linspace(-25, 12, 400_000))
        terms = slope * kappas - weight * values_on_host(kappas, dim).log_mean + np.log(kappas)
        parts = np.exp(terms - terms.max())
        step = 37 / 399_999
        mean, _, constant = concentration_factors(slope, weight, dim)
        np.testing.assert_allclose(mean, np.sum(parts * kappas) / parts.sum(), rtol=1e-6)
        np.testing.assert_allclose(constant, np.log(parts.sum() * step) + terms.max(), atol=1e-6)
    np.testing.assert_allclose(log_constant(0.25, 20.0, 3), concentration_factors(5.0, 20.0, 3)[2])


@pytest.mark.parametrize("inference", [Maximise(n_starts=1), Variational(n_starts=1)])
@pytest.mark.parametrize("n", [6, "infinite"])
def test_no_pass_lowers_the_bound(inference, n):
    X, _ = rows(noise=0.5)
    prior = MutualAngularPrior(cosine=0.4)
    bounds = make(n, inference, prior=prior).fit(X).trace_.values["bound"][0]
    assert len(bounds) > 3 and np.diff(bounds).min() > -1e-3


@pytest.mark.parametrize("n", [4, 7])
@pytest.mark.parametrize("inference", [Maximise(n_starts=3), Variational(n_starts=3)])
def test_clusters_are_found_at_any_length_of_rows(inference, n):
    X, labels = rows()
    model = make(n, inference).fit(X)
    assert adjusted_rand_score(labels, model.labels_) > (0.95 if n == 4 else 0.7)
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1.0)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    again = make(n, inference).fit(3 * X)
    np.testing.assert_allclose(again.score_samples(X), model.score_samples(X), atol=1e-3)


def test_the_density_integrates_to_one():
    X, _ = rows(dim=3, n_clusters=3)
    model = make(3).fit(X)
    points = np.random.default_rng(1).normal(size=(200_000, 3))
    density = np.exp(model.score_samples(points) + log_area(3))
    assert abs(density.mean() - 1.0) < 4 * density.std() / np.sqrt(len(density))


def test_sparse_rows_give_what_dense_ones_give():
    X, _ = rows()
    X[np.abs(X) < 0.1] = 0.0
    dense, sparse = make().fit(X), make().fit(sp.csr_matrix(X))
    np.testing.assert_allclose(dense.cluster_centers_, sparse.cluster_centers_, atol=1e-3)
    np.testing.assert_allclose(
        dense.score_samples(X), sparse.score_samples(sp.csr_matrix(X)), atol=1e-2
    )


def test_rows_on_disk_and_weights():
    X, labels = rows(400)
    model = make().fit_stream(NpyRows(X))
    assert adjusted_rand_score(labels, model.predict(X)) > 0.95 and model.n_used_ == 4
    np.testing.assert_allclose(model.score_samples(X), make().fit(X).score_samples(X), atol=0.05)
    weights = np.where(labels == 0, 0.0, 1.0)
    part = make().fit(X, sample_weight=weights)
    assert part.cluster_centers_ @ np.eye(8)[0] @ part.weights_ < 0.4


def test_a_row_of_zeros_has_no_direction():
    X, _ = rows()
    model = make().fit(np.vstack([X, np.zeros((1, 8))]))
    nothing = np.zeros((1, 8))
    np.testing.assert_allclose(model.predict_proba(nothing)[0], model.weights_, atol=1e-6)
    np.testing.assert_allclose(model.score_samples(nothing), -log_area(8))
    with pytest.raises(ValueError, match="has no direction"):
        make().fit(np.zeros((4, 3)))


def test_rows_that_stay_where_they_are_need_a_source(tmp_path):
    with pytest.raises(TypeError, match="NpyRows"):
        make().fit_stream(rows()[0])
    holed = rows()[0]
    holed[-1, -1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        make().fit_stream(NpyRows(holed))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"prior": MutualAngularPrior(scale=2.0)}, "no such setting"),
        ({"prior": MutualAngularPrior(concentration="learn")}, "not learned"),
        ({"prior": MutualAngularPrior(kind="I"), "inference": "vi"}, "needs kind='II'"),
        ({"inference": Sampling(kernel="hmc")}, "no such setting"),
        ({"tightness": 1.5}, "tightness"),
        ({"n": 0}, "n_components"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        make(**settings).fit(rows()[0])


def test_rows_without_end_are_refused():
    X, _ = rows(20)
    with pytest.raises(ValueError, match="sample_weight: the largest is 1e\\+300"):
        make().fit(X, sample_weight=np.full(20, 1e300))


def test_a_file_gives_the_same_model(tmp_path):
    X, _ = rows()
    model = make().fit(X)
    model.save(tmp_path / "model")
    again = SphericalMixture.load(tmp_path / "model")
    np.testing.assert_array_equal(model.score_samples(X), again.score_samples(X))
    assert again.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    assert model.summary() == again.summary()
    data = bytearray((tmp_path / "model").read_bytes())
    data[-1] ^= 1
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(StorageError):
        SphericalMixture.load(tmp_path / "bad")
    with pytest.raises(ValueError, match="n_samples"):
        model.sample(0)
    drawn, labels = model.sample(50)
    assert drawn.shape == (50, 8) and labels.max() < 4
    assert clone(model).n_components == 4


def test_empty_clusters_are_no_clusters():
    X = np.repeat(np.eye(5)[:2], 20, axis=0)
    model = make(12, alpha=0.1).fit(X)
    assert model.n_used_ == len(model.weights_) == len(model.cluster_centers_) < 12
    assert set(model.labels_) <= set(range(int(model.n_used_)))
    np.testing.assert_allclose(model.weights_.sum(), 1.0)
    tiny = make(12, alpha=0.1).fit(X, sample_weight=np.full(40, 1e-6))
    assert tiny.n_used_ >= 1


def test_an_ascent_ends_the_infinite_process():
    X, _ = rows(100)
    model = make("infinite", Maximise(n_starts=1, n_passes=2)).fit(X)
    assert model.n_used_ <= 64
    assert dict(model.presentation(model).facts())["clusters in use"].endswith("(of 64)")
    # Angles of the prior in pictures are those of the prior that was fitted.
    model = make(3, Variational(n_starts=1, n_passes=2)).fit(X)
    drawn = model.presentation(model).prior_vectors(4, 0)
    fitted = MutualAngular(*model.cluster_centers_.shape, np.float32(model.strength_), "II")
    np.testing.assert_array_equal(drawn, fitted.sample(jax.random.key(0), (4,)))


def test_chains_begin_with_all_places():
    X = np.repeat(np.eye(5)[:2], 10, axis=0) + 1e-3
    units, _ = as_units(X)
    found = MemoryRows(units, np.ones(len(X)))
    rng, live = np.random.default_rng(0), np.arange(len(X))
    model = make(12, CHAINS)
    for n, room in ((12, 12), ("infinite", sampling.ROOM)):
        task = plan(model.set_params(n_components=n, tightness=0.5), len(X), 5)
        problem = sampling.make_problem(units, np.ones(len(X)), task)
        chain = sampling.start_of(rng, task, found, live, problem)
        assert chain.directions.shape == (room, 5)
        assert float(chain.counts.sum()) == len(X)


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, "infinite"])
def test_chains_find_the_clusters_and_sum_them_up(n, tmp_path):
    X, labels = rows(150)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(n, CHAINS).fit(X)
    assert adjusted_rand_score(labels, model.labels_) > 0.8
    similar = model.similarity(X[:20])
    same = labels[:20, None] == labels[:20]
    assert similar[same].mean() > 0.7
    assert similar[~same].mean() < 0.3
    model.save(tmp_path / "model")
    again = SphericalMixture.load(tmp_path / "model")
    np.testing.assert_array_equal(model.score_samples(X), again.score_samples(X))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::wideangle.ConvergenceWarning")
@pytest.mark.parametrize("n", [4, "infinite"])
def test_a_warm_start_goes_on_with_the_same_chains(n, capsys):
    X, _ = rows(60)
    model = make(n, Sampling(n_warmup=4, n_draws=6, n_chains=2), warm_start=True)
    model.set_params(verbose=True)
    first = model.fit(X).trace_.values["density"]
    (line,) = capsys.readouterr().err.strip().splitlines()  # one bar
    assert "10/10" in line
    model.set_params(verbose=False, inference__n_draws=10).fit(X)
    more = model.trace_.values["density"]
    assert more.shape[1] == 10
    np.testing.assert_array_equal(more[:, :6], first)
    whole = make(n, Sampling(n_warmup=4, n_draws=10, n_chains=2)).fit(X)
    np.testing.assert_array_equal(more, whole.trace_.values["density"])
    np.testing.assert_array_equal(
        model.set_params(inference__n_draws=3).fit(X).trace_.values["density"], more
    )
    model.fit(X[1:])  # other rows: from the beginning
    assert model.n_iter_ == 6
