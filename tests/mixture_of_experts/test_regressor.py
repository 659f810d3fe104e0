"""The regressor: what it predicts, in which units, and what it refuses."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import norm

from compiling import optimised
from mutants import mutant
from statistical import measured
from wideangle import (
    GaussianPrior,
    Maximise,
    MixtureOfExpertsRegressor,
    Sampling,
    Variational,
)
from wideangle.mixture_of_experts import regressor
from wideangle.mixture_of_experts.prepare import learn_target_scaling
from wideangle.streaming import NpyRows

pytestmark = [
    pytest.mark.usefixtures("compile_quickly"),
    # Fits this short are poor ones, and say so.
    pytest.mark.filterwarnings("ignore::wideangle.convergence.ConvergenceWarning"),
]
MAP = {"inference": Maximise(n_passes=300, n_starts=2), "prior": GaussianPrior(common=False)}
SHORT = Sampling(n_warmup=40, n_draws=20, n_chains=2)
N = 120


def data(n=N, seed=0, unit=10.0, shift=1000.0):
    """Two slopes, and more noise on the right."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    noise = np.where(X[:, 0] > 0, 0.3, 0.05)
    return X, shift + unit * (np.abs(X[:, 0]) + noise * rng.normal(size=n))


def make(n_experts=2, **settings):
    base = {"random_state": 0, "verbose": False}
    return MixtureOfExpertsRegressor(n_experts, **(base | settings))


@pytest.fixture(scope="module")
def sampled():
    X, y = data()
    with optimised(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(inference=SHORT).fit(X, y), X, y


def test_predictions_are_in_the_units_of_the_user(sampled):
    model, X, y = sampled
    mean, deviation = model.predict(X, return_std=True)
    assert mean.shape == deviation.shape == (N,)
    assert mean.dtype == np.float64
    np.testing.assert_array_equal(model.predict(X), mean)
    assert model.score(X, y) > 0.4
    assert (deviation > 0).all()
    assert model.experts_.shape == model.noises_.shape == model.gates_.shape == (2, 3)
    weights = model.posterior_.values["weights"]
    assert weights.experts.shape == (2, 20, 2, 2, 3)
    assert weights.experts.dtype == np.float32
    assert abs(np.mean(model.trace_.values["prediction"]) - y.mean()) < 10


def test_experts_are_lines_in_the_units_of_the_user(sampled):
    model, X, _ = sampled
    rows = model.scaling_.apply(X)
    one = np.argmax(model.gate_proba(X), axis=1)
    said = np.einsum("np,np->n", rows, model.experts_[one])
    assert np.corrcoef(said, model.predict(X))[0, 1] > 0.8
    raw = model._representative.experts
    units = model.target_scaling_
    expected = units.restore(rows @ raw[:, 0].T)
    np.testing.assert_allclose(rows @ model.experts_.T, expected, rtol=1e-5)
    noise = np.log(units.scale) + 0.5 * rows @ raw[:, 1].T
    np.testing.assert_allclose(rows @ model.noises_.T, noise, rtol=1e-4, atol=1e-4)


def test_quantiles_intervals_and_draws_are_of_one_distribution(sampled):
    model, X, y = sampled
    low, high = model.predict_interval(X, 0.8).T
    np.testing.assert_allclose(model.predict_quantiles(X, [0.1, 0.9]).T, [low, high], rtol=1e-9)
    np.testing.assert_allclose(model.predict_quantiles(X, 0.9), high, rtol=1e-9)
    drawn = model.sample(X, 2000, random_state=3)
    assert drawn.shape == (N, 2000)
    inside = np.mean((drawn > low[:, None]) & (drawn < high[:, None]), axis=1)
    assert np.abs(inside - 0.8).max() < 5 * np.sqrt(0.16 / 2000)
    assert 0.6 < np.mean((y > low) & (y < high)) < 0.97
    np.testing.assert_array_equal(model.sample(X[:3], 2), model.sample(X[:3], 2))


@pytest.mark.parametrize(
    "ask",
    [
        lambda m, X, y: m.predict(X),
        lambda m, X, y: m.predict_quantiles(X, 0.3),
        lambda m, X, y: m.score_samples(X, y),
    ],
)
def test_a_row_does_not_depend_on_its_place_nor_on_others(sampled, ask):
    model, X, y = sampled
    every, order = ask(model, X, y), np.random.default_rng(0).permutation(N)
    np.testing.assert_allclose(ask(model, X[order], y[order]), every[order], rtol=1e-7)
    alone = [ask(model, X[i : i + 7], y[i : i + 7]) for i in range(0, N, 7)]
    np.testing.assert_allclose(np.concatenate(alone), every, rtol=1e-7)


def mass(model, row, score_samples=MixtureOfExpertsRegressor.score_samples):
    """Integral of the predictive density of a row."""
    grid = np.linspace(700, 1300, 60_001)
    density = np.exp(score_samples(model, np.repeat(row, len(grid), axis=0), grid))
    return np.trapezoid(density, grid)


def test_the_log_density_integrates_to_one(sampled):
    model, X, _ = sampled
    assert mass(model, X[:1]) == pytest.approx(1.0, abs=0.01)


def test_a_density_in_another_unit_is_found(sampled):
    model, X, _ = sampled
    wrong = mutant(regressor, "return found - np.log(self.target_scaling_.scale)", "return found")
    found = mass(model, X[:1], wrong.MixtureOfExpertsRegressor.score_samples)
    assert measured("error of the mass", abs(found - 1.0), 0.01) > 0.01


def test_uncertainty_has_two_parts_that_add_up(sampled):
    model, X, _ = sampled
    total, expected, epistemic = model.predict_uncertainty(X)
    np.testing.assert_allclose(total, expected + epistemic)
    np.testing.assert_allclose(np.sqrt(total), model.predict(X, return_std=True)[1])
    assert (epistemic > 0).all()


def test_arviz_gets_log_likelihoods_in_the_units_of_the_user(sampled):
    pytest.importorskip("arviz")
    model, X, y = sampled
    found = model.to_arviz(X, y)
    said = np.asarray(found["log_likelihood"]["y"])
    assert said.shape == (2, 20, N)
    np.testing.assert_allclose(np.asarray(found["observed_data"]["y"]), y, rtol=1e-6)
    np.testing.assert_allclose(
        said.sum(-1), np.asarray(found["posterior"]["log_lik"]), rtol=1e-4, atol=0.05
    )
    assert abs(np.asarray(found["posterior_predictive"]["y"]).mean() - y.mean()) < 5
    raw = found["posterior_raw"]["experts"]
    assert raw.dims == ("chain", "draw", "expert", "output", "column")
    assert "y" in model.to_arviz(X)["predictions"]
    with pytest.raises(ValueError, match="a number for each"):
        model.to_arviz(X, y[:3])


def test_a_saved_model_says_the_same(sampled, tmp_path):
    model, X, y = sampled
    model.save(tmp_path / "model")
    again = MixtureOfExpertsRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.score_samples(X, y), model.score_samples(X, y))
    assert again.target_scaling_ == model.target_scaling_
    assert again.summary() == model.summary()


def test_summary_tells_units_and_experts(sampled):
    text = sampled[0].summary()
    for word in ("target", "mean 10", "mutual-angular, mcmc", "experts in use"):
        assert word in text


def test_units_change_nothing_but_units():
    X, y = data(60)
    one = make(**MAP).fit(X, y)
    other = make(**MAP).fit(X, 2.0**40 * y)
    np.testing.assert_allclose(other.predict(X), 2.0**40 * one.predict(X), rtol=1e-5)
    np.testing.assert_allclose(
        other.score_samples(X, 2.0**40 * y),
        one.score_samples(X, y) - 40 * np.log(2.0),
        rtol=1e-3,
        atol=1e-2,
    )


@pytest.mark.parametrize(
    "settings",
    [MAP, {"inference": Variational(n_starts=1, n_passes=200)}],
    ids=["map", "vi"],
)
def test_other_inferences_fit(settings):
    X, y = data()
    model = make(**settings).fit(X, y)
    assert model.score(X, y) > 0.6
    assert np.isfinite(model.score_samples(X, y)).all()


def test_one_expert_with_a_wide_prior_is_linear_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = 3.0 + X @ [2.0, -1.0] + 0.5 * rng.normal(size=400)
    settings = {"inference": Maximise(n_starts=1), "prior": GaussianPrior(scale=10.0, common=False)}
    model = make(1, **settings).fit(X, y)
    fitted = np.column_stack([X, np.ones(400)])
    exact = fitted @ np.linalg.lstsq(fitted, y, rcond=None)[0]
    np.testing.assert_allclose(model.predict(X), exact, atol=0.05)
    expected = norm(exact, np.std(y - exact)).logpdf(y)
    np.testing.assert_allclose(model.score_samples(X, y).mean(), expected.mean(), atol=0.02)


def test_sparse_rows_are_fitted_and_predicted():
    X, y = data(60)
    sparse = sp.csr_array(np.where(np.abs(X) > 0.7, X, 0.0))
    model = make(**MAP).fit(sparse, y)
    np.testing.assert_allclose(model.predict(sparse), model.predict(sparse.toarray()), rtol=1e-5)


def test_rows_on_disk_are_fitted(tmp_path):
    X, y = data(200)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    source = NpyRows(tmp_path / "X.npy", tmp_path / "y.npy")
    model = make(inference=Variational(n_starts=1, n_passes=600)).fit_stream(source)
    scaling = learn_target_scaling(y, np.ones(200))
    np.testing.assert_allclose(model.target_scaling_, scaling)
    found = np.concatenate(list(model.predict_stream(source)))
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-6)
    assert model.score(X, y) > 0.3
    np.save(tmp_path / "y.npy", np.where(np.arange(200) == 7, np.nan, y))
    with pytest.raises(ValueError, match="row 7"):
        make(inference="vi").fit_stream(NpyRows(tmp_path / "X.npy", tmp_path / "y.npy"))


def test_weights_count_as_repeated_rows():
    X, y = data(40)
    counts = np.arange(40) % 3
    repeated = np.repeat(np.arange(40), counts)
    live = counts > 0
    one = learn_target_scaling(y[live], counts[live])
    other = learn_target_scaling(y[repeated], np.ones(len(repeated)))
    np.testing.assert_allclose(one, other)
    model = make(**MAP).fit(X, y, sample_weight=counts)
    same = make(**MAP).fit(X[live], y[live], sample_weight=counts[live])
    np.testing.assert_allclose(model.predict(X), same.predict(X))


@pytest.mark.parametrize("y", [np.full(30, 7.0), np.where(np.arange(30) < 20, 0.0, 1.0)])
def test_a_constant_and_an_atom_are_no_trouble(y):
    X, _ = data(30)
    model = make(**MAP).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert np.isfinite(model.score_samples(X, y)).all()
    assert model.predict(X, return_std=True)[1].min() >= 0.009 * model.target_scaling_.scale


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, X: m.predict_quantiles(X, 1.0), "q=1.0"),
        (lambda m, X: m.predict_quantiles(X, []), "between 0 and 1"),
        (lambda m, X: m.predict_interval(X, 95), "level=95"),
        (lambda m, X: m.predict_interval(X, "90 %"), "level='90 %'"),
        (lambda m, X: m.score_samples(X, [1.0]), "a number for each of the 120 rows"),
        (lambda m, X: m.score_samples(X, np.full(N, np.nan)), "NaN"),
        (lambda m, X: m.sample(X, 0), "n_samples"),
    ],
)
def test_wrong_questions_are_refused(sampled, call, words):
    model, X, _ = sampled
    with pytest.raises(ValueError, match=words):
        call(model, X)


def test_wrong_targets_are_refused():
    X, y = data(10)
    with pytest.raises(ValueError, match=r"row 0 is 'a', which is no number"):
        make(**MAP).fit(X, ["a"] * 10)
    with pytest.raises(ValueError, match="NaN"):
        make(**MAP).fit(X, np.where(np.arange(10) == 3, np.nan, y))
    with pytest.raises(ValueError, match="min_noise"):
        make(min_noise=0.0).fit(X, y)
