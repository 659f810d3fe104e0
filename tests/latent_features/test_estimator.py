"""The transformer: predictions against enumeration, units, sparse rows, gaps, settings."""

import pickle
import warnings
from copy import deepcopy

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from contract import all_checks, checks_of_fits
from latent_features.feature_fits import GAPS, N_DRAWS, NOISE, X, data, fit, fitted, quick, quiet
from latent_features.feature_problems import brute_force, log_joint, random_draw, random_rows
from statistical import FOUR
from wideangle import (
    DeterminantalPrior,
    GaussianPrior,
    LatentFeatureModel,
    Maximise,
    MutualAngularPrior,
    PitmanYor,
)
from wideangle.convergence import ConvergenceWarning
from wideangle.latent_features import fit as lfm_fit
from wideangle.latent_features import score as lfm_score
from wideangle.latent_features.posterior import some_draws
from wideangle.latent_features.score import activation, expected_rows
from wideangle.latent_features.start import Start

FRESH = data(12, seed=5)
FRESH[0, 2] = FRESH[3, 0] = np.nan
METHODS = ("transform", "reconstruct", "score_samples")


def draws_of(model):
    return some_draws(model.chains_)


def exact_scores(model, rows):
    draws, _ = draws_of(model)
    scaled = (rows - model.scaling_.shift) / model.scaling_.scale
    by_draw = [brute_force(draw, scaled)[0] for draw in draws]
    n_seen = (~np.isnan(rows)).sum(axis=1)
    return logsumexp(by_draw, axis=0) - np.log(len(draws)) - n_seen * np.log(model.scaling_.scale)


@pytest.mark.parametrize("name", ["complete", "gaps", "noise"])
def test_scores_are_densities_in_units_of_the_data(name):
    model = fitted(name)
    np.testing.assert_allclose(model.score_samples(FRESH), exact_scores(model, FRESH), rtol=1e-9)
    assert model.score(FRESH) == pytest.approx(np.mean(exact_scores(model, FRESH)))


def test_activations_and_means_average_exact_posteriors():
    model = fitted()
    draws, numbers = draws_of(model)
    index = model.matched_.index[numbers]
    exact = [brute_force(draw, FRESH / model.scaling_.scale)[1] for draw in draws]
    for k in range(model.n_components_):
        have = [s for s in range(len(draws)) if index[s, k] >= 0]
        mean = np.mean([exact[s][:, index[s, k]] for s in have], axis=0)
        np.testing.assert_allclose(model.transform(FRESH)[:, k], mean, atol=1e-9)
    mean = np.mean([p @ draw.vectors for p, draw in zip(exact, draws, strict=True)], axis=0)
    np.testing.assert_allclose(model.reconstruct(FRESH), mean * model.scaling_.scale, atol=1e-8)


def test_hidden_entries_are_scored_in_units_of_the_data():
    model = fit(100 * X)
    rows, mask = 100 * data(200, seed=9), np.zeros((200, 6), bool)
    mask[:, 1] = True
    found = model.score_entries(rows, mask)
    holed = np.where(mask, np.nan, rows) / model.scaling_.scale
    densities, means = [], []
    for draw in draws_of(model)[0]:
        joint, states = log_joint(draw, holed)
        share = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        centre = states @ draw.vectors[:, 1]
        noise = np.sqrt(draw.noise_variance)
        here = norm.pdf(rows[:, 1:2] / model.scaling_.scale, centre, noise)
        densities.append(np.sum(share * here, axis=1) / model.scaling_.scale)
        means.append(share @ centre * model.scaling_.scale)
    np.testing.assert_allclose(found.mean, np.mean(means, axis=0), rtol=1e-8, atol=1e-8)
    # Densities average Gibbs draws of the assignments; entries are determined by their rows here.
    np.testing.assert_allclose(found.log_density, np.log(np.mean(densities, axis=0)), atol=0.3)
    sparse_mask = model.score_entries(rows, sparse.csr_matrix(mask))
    np.testing.assert_array_equal(sparse_mask.log_density, found.log_density)
    as_lists = model.score_entries(rows.tolist(), mask.tolist())
    np.testing.assert_array_equal(as_lists.mean, found.mean)
    with pytest.raises(ValueError, match="mask: must have the shape"):
        model.score_entries(rows, mask[:3])


def test_pure_noise_has_no_components_and_everything_works():
    model = fitted("noise")
    assert model.n_components_ == 0
    assert model.transform(NOISE).shape == (len(NOISE), 0)
    assert model.get_feature_names_out().tolist() == []
    assert model.inverse_transform(np.zeros((3, 0))).shape == (3, 6)
    assert model.sample(4).shape == (4, 6)
    assert model.diversity_.mean_angle == 0 or np.isnan(model.diversity_.mean_angle)
    assert "components" in model.summary()


def test_without_any_feature_the_score_is_that_of_noise():
    model = deepcopy(fitted("noise"))
    nothing = [state for state in model.chains_.draws if len(state.weights) == 0]
    assert nothing
    model.chains_ = model.chains_._replace(draws=nothing)
    noise = np.sqrt([float(state.hyper.noise_variance) for state in nothing]) * model.scaling_.scale
    by_draw = norm.logpdf(NOISE[None], scale=noise[:, None, None]).sum(axis=2)
    expected = logsumexp(by_draw, axis=0) - np.log(len(noise))
    np.testing.assert_allclose(model.score_samples(NOISE), expected, rtol=1e-10)
    mask = np.ones_like(NOISE, bool)
    by_entry = norm.logpdf(NOISE.ravel()[None], scale=noise[:, None])
    found = model.score_entries(NOISE, mask)
    np.testing.assert_allclose(
        found.log_density, logsumexp(by_entry, axis=0) - np.log(len(noise)), rtol=1e-9
    )
    np.testing.assert_array_equal(found.mean, np.zeros(NOISE.size))


def test_units_of_the_data_change_nothing_else():
    one, ten = fitted(), fit(10 * X)
    np.testing.assert_allclose(ten.components_, 10 * one.components_, rtol=1e-9, atol=1e-9)
    assert ten.score(10 * X) == pytest.approx(one.score(X) - 6 * np.log(10), rel=1e-9)
    assert ten.noise_scale_ == pytest.approx(10 * one.noise_scale_, rel=1e-9)
    np.testing.assert_allclose(ten.transform(10 * X), one.transform(X), atol=1e-9)
    single = fit(X.astype(np.float32))
    np.testing.assert_allclose(single.components_, one.components_, rtol=1e-3, atol=1e-3)
    for size in (1e-100, 1e100):
        model = fit(X * size)
        np.testing.assert_allclose(model.components_ / size, one.components_, atol=1e-6)
        assert np.isfinite(model.score(X * size))


@pytest.mark.parametrize("rows", [X, GAPS], ids=["complete", "gaps"])
def test_sparse_rows_are_dense_rows_and_stay_sparse(rows, monkeypatch):
    holes = np.where(np.abs(rows) < 1.0, 0.0, rows)
    csr = sparse.csr_array(holes)
    # One start for both: searches break ties by the last bit.
    start = fitted().chains_.draws[0]
    features, used = start.vectors.astype(float), start.assignments
    begin = Start(features, used, 0.1, 0.0)
    monkeypatch.setattr(lfm_fit, "find_features", lambda *a, **k: begin)
    dense = fit(holes, standardise=True)
    swept, run = [], lfm_fit.run_chain
    monkeypatch.setattr(
        lfm_fit, "run_chain", lambda c, r, *a, **k: swept.append(r.is_sparse) or run(c, r, *a, **k)
    )
    model = fit(csr, standardise=True)
    assert swept == [True, True]
    np.testing.assert_allclose(model.scaling_.shift, np.nanmean(holes, axis=0))
    np.testing.assert_allclose(model.components_, dense.components_, atol=1e-6)
    for method in METHODS:
        found = getattr(model, method)(csr)
        np.testing.assert_allclose(found, getattr(dense, method)(holes), atol=1e-6)
    mask = np.zeros(holes.shape, bool)
    mask[3, 2] = mask[8, 1] = True
    means = [m.score_entries(rows, mask).mean for m, rows in ((model, csr), (dense, holes))]
    np.testing.assert_allclose(*means, atol=1e-6)
    far = np.nanmean(holes, axis=0) + 5.0  # in units of the data, also where columns are shifted
    moved = fit(holes + 5.0, standardise=True)
    assert np.all(np.abs(np.nanmean(moved.reconstruct(holes + 5.0), axis=0) - far) < 1.0)
    back = model.inverse_transform(sparse.csr_matrix(model.transform(csr)))
    np.testing.assert_allclose(
        back, model.transform(csr) @ model.components_ + model.scaling_.shift
    )


def test_entries_stored_twice_are_added():
    columns = np.repeat(np.tile(np.arange(6), 60), 2)
    halves = sparse.csr_matrix(
        (np.repeat(X.ravel() / 2, 2), columns, np.arange(0, 721, 12)), shape=X.shape
    )
    assert not halves.has_canonical_format
    np.testing.assert_allclose(fit(halves).components_, fitted().components_, atol=1e-9)
    assert halves.nnz == 2 * X.size  # the caller's matrix is as it was


@pytest.mark.parametrize(
    "gaps",
    [(2, 3), (4, slice(None)), (slice(None), 1), (slice(None), slice(None))],
    ids=["an entry", "a row", "a column", "all"],
)
def test_missing_entries_anywhere_are_filled_in(gaps):
    rows = X.copy()
    rows[gaps] = np.nan
    model = fit(rows)
    for method in METHODS:
        assert np.isfinite(getattr(model, method)(rows)).all()
    assert model.score_samples(np.full((1, 6), np.nan)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("value", [0.0, 3.0, -1e-30])
def test_constant_rows_are_no_trouble(value):
    rows = np.full_like(X, value)
    model = fit(rows)
    assert np.isfinite(model.score(rows))
    np.testing.assert_allclose(model.reconstruct(rows), rows, atol=0.1 * abs(value))


def test_a_row_is_transformed_the_same_in_every_batch():
    # More features than are enumerated: Gibbs sampling, with random numbers.
    draws = [random_draw(14, 6), random_draw(16, 6, seed=3)]
    rows = random_rows(draws[0], 9)
    index = np.tile(np.arange(14), (2, 1))
    whole = activation(draws, index, rows, 0)
    means = expected_rows(draws, rows, 0)
    order = np.array([7, 2, 5])
    np.testing.assert_allclose(activation(draws, index, rows[order], 0), whole[order], atol=1e-12)
    np.testing.assert_allclose(expected_rows(draws, rows[order], 0), means[order], atol=1e-12)
    exact = [brute_force(draw, rows)[1] for draw in draws]
    error = whole - np.mean([exact[0], exact[1][:, :14]], axis=0)
    assert np.sqrt(np.mean(error**2)) < 0.12


FIXED = {
    "noise_scale": 0.3,
    "prior__scale": 2.0,
    "process__alpha": 2.0,
    "process__discount": 0.1,
    "process__strength": 2.0,
}
POWER_LAW = ("process__discount", "process__strength")


def test_fixed_numbers_stay_fixed():
    model = fit(process="pitman-yor", **FIXED)
    assert model.alpha_ == pytest.approx(2.0)
    assert model.noise_scale_ == pytest.approx(0.3)
    assert "feature_scale" not in model.trace_.values  # never changes
    state = model.chains_.draws[0]
    assert float(state.hyper.rate) == pytest.approx((model.scaling_.scale / 2.0) ** 2)
    assert tuple(map(float, state.hyper.buffet)) == pytest.approx((2.0, 0.1, 2.0))
    for name in ("alpha", "noise_scale"):
        assert np.ptp(model.trace_.values[name]) == 0
        assert np.ptp(fitted().trace_.values[name]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["gaussian", "vmf", "mutual-angular"])
@pytest.mark.parametrize("learn", [True, False])
def test_every_number_can_be_learned_or_fixed(prior, learn):
    process = "ibp" if prior == "mutual-angular" else "pitman-yor"
    settings = dict(FIXED)
    names = {"alpha", "noise_scale", "feature_scale"}
    if prior == "mutual-angular":
        settings = {k: v for k, v in FIXED.items() if k not in POWER_LAW}
        settings["prior__concentration"] = 2.0
        names |= {"concentration"}
    else:
        names |= {"discount", "strength"}
    settings = dict.fromkeys(settings, "learn") if learn else settings
    model = fit(prior=prior, process=process, **settings)
    values = model.trace_.values
    for name in names:
        assert (np.ptp(values.get(name, np.zeros(1))) > 0) == learn, name
    if prior == "mutual-angular" and not learn:
        assert model.concentration_ == pytest.approx(2.0)
    assert model.n_components_ >= 2
    assert np.isfinite(model.score(X))


@pytest.mark.parametrize("n_warmup, n_draws, thin", [(0, 1, 1), (5, N_DRAWS, 1), (2, 3, 3)])
def test_a_draw_is_kept_every_few_sweeps_and_the_trace_has_them_all(n_warmup, n_draws, thin):
    model = fit(inference__n_warmup=n_warmup, inference__n_draws=n_draws, inference__thin=thin)
    assert model.trace_.n_draws == n_draws * thin
    assert model.posterior_.n_draws == n_draws
    assert model.n_iter_ == 2 * n_draws * thin


def test_short_chains_are_called_short():
    with quiet():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            quick().fit(X)
    (found,) = caught  # one sentence, whatever is wrong
    assert issubclass(found.category, ConvergenceWarning)
    assert str(found.message).startswith("Predictions ")


def test_samples_have_the_moments_of_the_draws():
    model = fitted()
    rows = model.sample(20_000)
    draws, _ = draws_of(model)
    means = [draw.weights @ draw.vectors * model.scaling_.scale for draw in draws]
    error = rows.std(axis=0) / np.sqrt(len(rows))
    # The share of each draw is random too.
    error = np.hypot(error, np.std(means, axis=0) / np.sqrt(len(rows)))
    assert np.all(np.abs(rows.mean(axis=0) - np.mean(means, axis=0)) < FOUR * error)
    assert model.sample().shape == (1, 6)


def test_components_are_named_and_ordered():
    model = fitted()
    assert model.components_.shape == (model.n_components_, 6)
    energy = model.matched_.energy
    assert np.all(np.diff(energy) <= 0)
    names = [f"latentfeaturemodel{k}" for k in range(model.n_components_)]
    assert model.get_feature_names_out().tolist() == names
    one = model.inverse_transform(np.eye(model.n_components_))
    np.testing.assert_allclose(one, model.components_)
    with pytest.raises(ValueError, match=r"must have shape \(n, "):
        model.inverse_transform(np.zeros((2, 9)))


def test_frames_of_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    model = fit(frame).set_output(transform="pandas")
    found = model.transform(frame)
    assert list(found.columns) == model.get_feature_names_out().tolist()
    np.testing.assert_array_equal(found.to_numpy(), fitted().transform(X))
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame.rename(columns={"a": "z"}))


def test_a_notebook_shows_the_fit():
    html = fitted()._repr_mimebundle_()["text/html"]
    assert "noise scale" in html and "chains, predictions" in html
    assert "noise scale" not in LatentFeatureModel()._repr_mimebundle_()["text/html"]
    text = fitted().summary()
    assert "gaussian, ibp" in text and f"{fitted().noise_scale_:.4g}" in text


def test_settings_of_names_and_of_nothing_are_reached_by_their_nested_names():
    model = LatentFeatureModel()
    assert model.get_params()["inference__n_chains"] == 4
    model.set_params(inference__thin=3, inference__hops=2, prior__cosine=0.3, process__alpha=1.5)
    assert (model.inference.thin, model.inference.hops) == (3, 2)
    again = clone(model)
    assert again.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    assert repr(again) == repr(model)
    assert again.prior is not model.prior and again.prior.cosine == 0.3


def test_pickles_too():
    again = pickle.loads(pickle.dumps(fitted()))
    np.testing.assert_array_equal(again.transform(X), fitted().transform(X))


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="needs features without an order"):
        fit(prior="mutual-angular", process="pitman-yor")
    with pytest.raises(ValueError, match="at least two columns"):
        fit(X[:, :1], prior="vmf")
    with pytest.raises(ValueError, match="alpha"):
        fit(process__alpha=-1.0)
    with pytest.raises(ValueError, match="discount"):
        fit(process=PitmanYor(discount=0.5))
    with pytest.raises(ValueError, match="geodesic"):
        fit(inference__kernel="geodesic")
    with pytest.raises(ValueError, match=r"prior.kind='II'"):
        fit(prior=MutualAngularPrior(kind="II"))
    wrongs = ({"prior": DeterminantalPrior()}, {"inference": Maximise()}, {"inference": "long"})
    for wrong in wrongs:
        (name,) = wrong
        with pytest.raises(ValueError, match=f"'{name}' parameter of LatentFeatureModel"):
            LatentFeatureModel(**wrong).fit(X)
    with pytest.raises(ValueError, match=r"prior.scale=1e\+09.*within a factor"):
        fit(prior=GaussianPrior(scale=1e9))
    with pytest.raises(ValueError, match="infinity"):
        fit(np.where(np.arange(6) == 1, np.inf, X))
    for method in (*METHODS, "inverse_transform"):
        with pytest.raises(NotFittedError):
            getattr(LatentFeatureModel(), method)(X)


@pytest.mark.slow
def test_a_column_or_a_row_is_enough():
    for rows in (X[:, :1], X[:1], X[:1, :1]):
        model = fit(rows)
        assert np.isfinite(model.score(rows))
        assert model.transform(rows).shape == (len(rows), model.n_components_)


SETTINGS = [(p, "ibp") for p in ("gaussian", "vmf")]
SETTINGS += [(p, "pitman-yor") for p in ("gaussian", "vmf")]


@checks_of_fits(
    [quick()], ["check_fit2d_1feature", "check_fit2d_1sample", "check_estimators_pickle"]
)
def test_some_of_the_contract_of_scikit_learn_is_kept(estimator, check):
    with quiet():
        check(estimator)


@pytest.mark.slow  # every check has shapes of its own, and each is a compilation
@all_checks(quick(prior="mutual-angular"))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_the_contract_of_scikit_learn_is_kept(estimator, check):
    with quiet():
        check(estimator)


@pytest.mark.slow
@checks_of_fits([quick(prior=prior, process=process) for prior, process in SETTINGS])
def test_every_setting_keeps_what_depends_on_its_fit(estimator, check):
    with quiet():
        check(estimator)


def stacked_fit(rows=X):
    return fit(rows, inference__combine="stacking")


def test_stacked_chains_are_weighed_by_hidden_entries(tmp_path):
    model = stacked_fit()
    shares = model.chain_weights_
    assert shares.shape == (2,) and shares.sum() == pytest.approx(1.0) and (shares >= 0).all()
    assert "by stacking of entries hidden at the fit" in model.summary()
    path = tmp_path / "model"
    model.chains_ = model.chains_._replace(stacked=np.array([1.0, 0.0]))
    first = model.reconstruct(X)
    model.save(path)
    np.testing.assert_array_equal(LatentFeatureModel.load(path).reconstruct(X), first)
    model.chains_ = model.chains_._replace(stacked=np.array([0.0, 1.0]))
    assert not np.array_equal(model.reconstruct(X), first)
    with pytest.raises(ValueError, match="rows must be dense"):
        stacked_fit(sparse.csr_array(X))


def test_a_chain_that_cannot_predict_hidden_entries_has_no_weight():
    model = fitted()
    hidden = lfm_score.hidden_entries(X, 0)
    assert hidden.sum() == int(np.ceil(0.05 * X.size))
    matrix, offset = model.scaling_.apply(X)
    wrong = [
        draw if chain else draw._replace(vectors=-draw.vectors)
        for draw, chain in zip(model.chains_.draws, model.chains_.chains, strict=True)
    ]
    chains = model.chains_._replace(draws=wrong)
    np.testing.assert_array_equal(
        lfm_score.chain_weights(chains, matrix, hidden, 0, offset), [0.0, 1.0]
    )
    gaps = lfm_score.hidden_entries(GAPS, 1)
    assert not np.isnan(GAPS[gaps]).any()
