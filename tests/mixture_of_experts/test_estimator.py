import pickle
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from compiling import optimised
from counting import compilations
from wideangle import (
    DeterminantalPrior,
    GaussianComponents,
    GaussianPrior,
    Maximise,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MutualAngular,
    MutualAngularPrior,
    PolarComponents,
    Sampling,
    Variational,
    VonMisesFisherPrior,
)
from wideangle.convergence import caution_of
from wideangle.mixture_of_experts import data as expert_data
from wideangle.mixture_of_experts.task import Fitted
from wideangle.posterior import Draws
from wideangle.storage import Checkpoint

pytestmark = [
    pytest.mark.usefixtures("compile_quickly"),
    # Fits this short are poor ones, and say so.
    pytest.mark.filterwarnings("ignore:.*(R-hat|effective sample|ESS|diverg|chains)"),
]

runner = sys.modules["wideangle.infer.run"]  # the package shows the function of that name
N = 60
# Without a common expert there is no shrinkage to be found by cross-validation, as with it.
MAP = {"inference": Maximise(n_passes=200, n_starts=2), "prior": GaussianPrior(common=False)}
SHRUNK = MAP | {"prior": "gaussian"}
MCMC = {"inference": Sampling(n_warmup=8, n_draws=13, n_chains=2)}


def data(n_classes=2, n=N, p=2, seed=0):
    """Classes that follow the sign of x1 times that of x2, as no single expert can say."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, p))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    return X, y if n_classes == 2 else np.where(X[:, 0] > 0.5, 2, y)


def make(n_experts=3, **settings):
    base = {"random_state": 0, "verbose": False}
    return MixtureOfExpertsClassifier(n_experts, **(base | settings))


def fitted(settings, n_classes=2, **fit):
    X, y = data(n_classes)
    return make(**settings).fit(X, y, **fit), X, y


@pytest.fixture(scope="module")
def sampled():
    with optimised(False), pytest.warns(UserWarning):
        model, X, y = fitted(MCMC)
    return model, X, y


def test_a_fit_predicts_probabilities_in_double_from_weights_in_single_precision(sampled):
    model, X, y = sampled
    proba = model.predict_proba(X)
    assert proba.shape == (N, 2)
    assert proba.dtype == np.float64
    np.testing.assert_allclose(proba.sum(1), 1.0)
    np.testing.assert_array_equal(model.predict(X), model.classes_[proba.argmax(1)])
    np.testing.assert_array_equal(model.predict_log_proba(X), np.log(proba))
    assert model.score(X, y) > 0.7
    weights = model.posterior_.values["weights"]
    assert weights.gate.shape == (2, 13, 3, 3)
    assert {leaf.dtype for leaf in jax.tree.leaves(model.posterior_.values)} == {
        np.dtype(np.float32)
    }
    assert model.experts_.shape == model.gates_.shape == (3, 3)
    assert 1 <= model.n_used_ <= 3
    assert 0 <= model.diversity_.min_angle <= model.diversity_.mean_angle <= np.pi
    assert set(model.trace_.values) == {
        "probability", "n_used", "mean_angle", "log_lik",
        "gate_scale", "experts_scale", "common_scale",
    }  # fmt: skip


def test_a_pickle_holds_no_arrays_of_jax(sampled):
    model, X, _ = sampled
    content = pickle.dumps(model)
    assert b"jax._src.array" not in content and b"jaxlib" not in content
    np.testing.assert_array_equal(pickle.loads(content).predict_proba(X), model.predict_proba(X))


def test_uncertainty_has_two_parts_that_add_up(sampled):
    model, X, _ = sampled
    total, expected, epistemic = model.predict_uncertainty(np.vstack([X, 1e6 * X]))
    np.testing.assert_allclose(total, expected + epistemic)
    assert np.all(expected >= 0)
    assert np.all(epistemic >= 0)
    assert epistemic.max() > 1e-4
    assert total.max() <= np.log(2) + 1e-6


def test_gate_probabilities_say_who_is_asked(sampled):
    model, X, _ = sampled
    gate = model.gate_proba(X)
    assert gate.shape == (N, 3)
    np.testing.assert_allclose(gate.sum(1), 1.0, rtol=1e-5)


def test_summary_and_html_tell_the_same_and_escape_class_names(sampled):
    model, X, y = sampled
    text = model.summary()
    for word in ("mutual-angular, mcmc", "experts in use", "R-hat", "ESS", "angles"):
        assert word in text
    named = make(**MAP).fit(X, np.array(["<b>no</b>", "yes"])[y])
    for page in (named._repr_html_(), Pipeline([("model", named)])._repr_html_()):
        assert "&lt;b&gt;no&lt;/b&gt;" in page
        assert "<b>no</b>" not in page
    assert "wideangle-summary" not in make()._repr_html_()
    assert "R-hat" not in named.summary()


def test_arviz_gets_what_can_be_compared_apart_from_raw_weights(sampled):
    pytest.importorskip("arviz")
    model, _, _ = sampled
    result = model.to_arviz()
    assert result["posterior"]["n_used"].shape == (2, 13)
    assert result["posterior_raw"]["gate"].shape == (2, 13, 3, 3)
    assert result["sample_stats"]["diverging"].shape == (2, 13)
    assert list(result["posterior_raw"]["gate"].coords["column"].values)[-1] == "(intercept)"
    with pytest.raises(ValueError, match="give the rows"):
        model.to_arviz(y=[0])


def test_arviz_can_leave_one_out_given_the_training_rows(sampled):
    arviz = pytest.importorskip("arviz")
    model, X, y = sampled
    result = model.to_arviz(X, y)
    assert result["log_likelihood"]["y"].dims == ("chain", "draw", "row")
    assert result["posterior_predictive"]["y"].dims == ("chain", "draw", "row")
    np.testing.assert_array_equal(result["observed_data"]["y"], y)
    np.testing.assert_allclose(
        result["log_likelihood"]["y"].sum("row"), result["posterior"]["log_lik"], rtol=1e-3
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of chains this short
        assert np.isfinite(arviz.loo(result).elpd_loo)
    assert result["posterior_predictive"]["y"].isin([0, 1]).all()
    assert set(model.to_arviz(X)["predictions"].data_vars) == {"y"}
    with pytest.raises(ValueError, match="a class for each of the 60 rows"):
        model.to_arviz(X, y + 5)


def test_stacked_chains_predict_by_their_weights(tmp_path):
    X, y = data()
    inference = Sampling(n_warmup=8, n_draws=30, n_chains=2, combine="stacking")
    model = make(inference=inference).fit(X, y)
    shares = model.chain_weights_
    assert shares.shape == (2,) and shares.sum() == pytest.approx(1.0) and (shares >= 0).all()
    assert "by stacking: leave-one-out scores of 60 training rows" in model.summary()
    parts = []
    for chain in np.eye(2):
        model.chain_weights_ = chain
        parts.append(model.predict_proba(X))
    assert not np.allclose(*parts)
    model.chain_weights_ = np.array([0.3, 0.7])
    mixed = model.predict_proba(X)
    np.testing.assert_allclose(mixed, 0.3 * parts[0] + 0.7 * parts[1], atol=1e-6)
    model.save(tmp_path / "model")
    again = MixtureOfExpertsClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), mixed)


@pytest.mark.parametrize(
    ("settings", "n_classes"),
    [(MAP, 2), (MAP, 3), (MCMC, 2), pytest.param(MCMC, 3, marks=pytest.mark.slow)],
)
def test_the_same_seed_gives_the_same_model(settings, n_classes):
    (one, X, _), (two, _, _) = fitted(settings, n_classes), fitted(settings, n_classes)
    other, _, _ = fitted(settings | {"random_state": 1}, n_classes)
    assert one.predict_proba(X).shape == (N, n_classes)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    assert not np.array_equal(one.predict_proba(X), other.predict_proba(X))
    assert one.experts_.shape == ((3, 3) if n_classes == 2 else (3, 3, 3))


@pytest.mark.parametrize(
    "method",
    ["predict", "predict_proba", "predict_uncertainty", "gate_proba"],
)
def test_an_unfitted_model_says_so(method):
    with pytest.raises(NotFittedError):
        getattr(make(), method)(data()[0])
    for name in ("summary", "to_arviz"):
        with pytest.raises(NotFittedError):
            getattr(make(), name)()


def test_sparse_indicators_give_the_predictions_of_dense_ones():
    X, y = data()
    X = (X > 0).astype(float)
    dense, sparse = make(**MAP).fit(X, y), make(**MAP).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(
        dense.predict_proba(X), sparse.predict_proba(sp.csr_array(X)), rtol=1e-4
    )


def test_rows_of_weight_zero_are_as_if_not_there():
    X, y = data()
    extra = np.vstack([X, 1e3 + np.arange(8.0).reshape(4, 2)])
    weights = np.append(np.ones(N), np.zeros(4))
    with_them = make(**MAP).fit(extra, np.append(y, [0, 1, 0, 1]), weights)
    without = make(**MAP).fit(X, y)
    np.testing.assert_array_equal(with_them.predict_proba(X), without.predict_proba(X))
    with pytest.raises(ValueError, match=r"(?i)weight.*(0|zero)"):
        make(**MAP).fit(X, y, np.zeros(N))


def test_whole_weights_are_repeated_rows_up_to_rounding():
    X, y = data(n=30)
    model = make(**MAP | {"inference": Maximise(n_passes=2000, n_starts=2)})
    weighted = clone(model).fit(X, y, np.full(30, 2.0))
    repeated = model.fit(np.repeat(X, 2, 0), np.repeat(y, 2))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=0.02)


def test_class_weight_multiplies_sample_weight():
    X, y = data()
    y[:45] = 0
    heavy = make(**MAP, class_weight={0: 1.0, 1: 5.0}).fit(X, y)
    by_hand = make(**MAP).fit(X, y, np.where(y == 1, 5.0, 1.0))
    np.testing.assert_array_equal(heavy.predict_proba(X), by_hand.predict_proba(X))
    plain, balanced = make(**MAP).fit(X, y), make(**MAP, class_weight="balanced").fit(X, y)
    assert balanced.predict(X).sum() > plain.predict(X).sum()


def difficult(case):
    X, y = data()
    if case == "one class":
        y[:] = 1
    elif case == "fewer rows than experts":
        X, y = X[:2], np.array([0, 1])
    elif case == "more columns than rows":
        X, y = np.random.default_rng(0).normal(size=(10, 30)), np.arange(10) % 2
    elif case == "separable":
        y = (X[:, 0] > 0).astype(int)
    elif case == "twin and constant columns":
        X = np.stack([X[:, 0], X[:, 0]], 1)
        X[:, 1] = 3.0
    elif case == "huge column":
        X = X * [1.0, 1e30]
    return X, y


CASES = ["one class", "separable", "twin and constant columns", "huge column"]
SLOW_CASES = ["fewer rows than experts", "more columns than rows"]


@pytest.mark.parametrize(
    "settings",
    [SHRUNK, pytest.param(MAP | {"prior": "mutual-angular"}, marks=pytest.mark.slow), MCMC],
    ids=["map", "angular", "mcmc"],
)
@pytest.mark.parametrize(
    "case", CASES + [pytest.param(case, marks=pytest.mark.slow) for case in SLOW_CASES]
)
def test_difficult_data_never_give_nan(settings, case):
    X, y = difficult(case)
    model = make(**settings).fit(X, y)
    for rows in (X, 1e20 * X, np.zeros_like(X)):
        assert np.isfinite(model.predict_proba(rows)).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(model.posterior_.values))
    assert np.isfinite(model.predict_uncertainty(X)).all()
    if case == "one class":
        np.testing.assert_array_equal(model.predict_proba(X), 1.0)
        np.testing.assert_array_equal(model.predict_uncertainty(X), 0.0)
    if case == "separable":
        assert model.score(X, y) > 0.9


@pytest.mark.filterwarnings("ignore::wideangle.ConvergenceWarning")
@pytest.mark.parametrize("settings", [SHRUNK, MCMC], ids=["map", "mcmc"])
def test_unscaled_columns_of_huge_size_never_give_nan(settings):
    X, y = data()
    model = make(**settings, standardise=False).fit(X * [1.0, 1e8], y)
    assert np.isfinite(model.predict_proba(X)).all()


def test_one_expert_that_is_enough_is_no_reason_to_warn():
    X = np.random.default_rng(0).normal(size=(N, 2))
    y = np.arange(N) % 2
    model = make(**MAP | {"prior": GaussianPrior(scale=1e-3)})
    model.fit(X, y)
    weights = model.posterior_.values["weights"]
    gate = np.zeros_like(weights.gate)
    gate[:, :, 1:, -1] = -50.0
    draws = Draws({"weights": weights._replace(gate=gate)})
    model._keep(Fitted(draws, model.priors_), model.scaling_.apply(X), N)
    assert caution_of(model) is None
    assert "1.0 of 3" in model.summary()


def test_prior_objects_are_taken_for_gate_and_experts_and_their_shape_checked():
    X, y = data()
    polar = PolarComponents(MutualAngular(3, 3, np.float32(2.0)), np.float32(2), np.float32(1))
    pair = (GaussianComponents(3, 3, np.float32(1.0)), polar)
    model = make(**MAP | {"prior": pair}).fit(X, y)
    assert isinstance(model.priors_.experts, PolarComponents)
    kept, given = (jax.tree.leaves(tuple(one)) for one in (model.priors_, pair))
    np.testing.assert_array_equal(np.asarray(kept), np.asarray(given))
    assert "a prior object" in model.summary()
    with pytest.raises(ValueError, match="3 vectors of length 3"):
        make(**MAP | {"prior": GaussianComponents(3, 2)}).fit(X, y)


def test_settings_are_validated_and_cloned():
    model = make(4, prior=MutualAngularPrior(concentration=3.0), inference=Sampling(n_draws=7))
    assert repr(clone(model)) == repr(model)
    named = make().set_params(prior__cosine=0.3, inference__n_draws=500)
    assert (named.prior.cosine, named.inference.n_draws) == (0.3, 500)
    assert make().get_params()["prior__common"] is None
    X, y = data()
    wrong = {"prior": "flat", "prior__cosine": 1.0, "n_experts": 0, "prior__kind": "III"}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=name.rpartition("__")[-1]):
            make().set_params(**{name: value}).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"prior": MutualAngularPrior(scale="learn"), "inference": Sampling(kernel="geodesic")},
            "kernel='geodesic'",
        ),
        ({"prior": MutualAngularPrior(common=True, magnitude_shape=3.0)}, "magnitude_shape=3.0"),
        ({"prior": MutualAngularPrior(common=True, scale="auto")}, "scale='auto'"),
        ({"prior": "vmf", "inference": Sampling(n_draws=9, max_time=3.0)}, "max_time=3.0"),
        ({"prior": MutualAngularPrior(concentration="learn")}, "concentration='learn'"),
        ({"prior": MutualAngularPrior(concentration=1.0, cosine=0.1)}, "give one of them"),
        ({"prior": GaussianPrior(scale="auto")}, "scale='auto'"),
        ({"prior": VonMisesFisherPrior(scale="auto"), "inference": "map"}, "use a number"),
        ({"prior": DeterminantalPrior(scale="auto")}, "scale"),
        ({"prior": ("gaussian",)}, "a pair must hold two"),
        ({"prior": ("gaussian", "flat")}, "mutual-angular"),
        ({"inference": Sampling(kernel="gibbs")}, "latent features"),
        ({"inference": Variational(diversity=(1.0, -1.0))}, "diversity"),
        ({"inference": Maximise(diversity=(1.0,))}, "two of them"),
        ({"inference": "map", "checkpoint": "folder"}, "checkpoint=None"),
    ],
)
def test_what_a_fit_could_not_use_is_refused_and_not_ignored(settings, words):
    with pytest.raises(ValueError, match=words):
        make(**settings).fit(*data())


def test_only_priors_without_a_fixed_scale_are_fitted_to_the_data():
    X, y = data()
    pair = (VonMisesFisherPrior(scale=2.0, common=False), VonMisesFisherPrior(common=False))
    priors = make(**MCMC, prior=pair).fit(X, y).priors_
    assert float(priors.gate.magnitude_rate) == pytest.approx(2.0 / (2.0 * np.sqrt(3)))
    assert float(priors.experts.magnitude_rate) != pytest.approx(2.0 / np.sqrt(3), rel=1e-3)


@pytest.mark.slow
def test_grid_search_over_experts_and_concentration():
    X, y = data()
    grid = {"n_experts": [1, 3], "prior__concentration": [0.0, 5.0]}
    model = make(**MAP | {"prior": "mutual-angular"})
    search = GridSearchCV(model, grid, cv=2).fit(X, y)
    assert search.best_params_["n_experts"] == 3
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_feature_names_are_kept_and_checked():
    pandas = pytest.importorskip("pandas")
    X, y = data()
    table = pandas.DataFrame(X, columns=["a", "b"])
    model = make(**MAP).fit(table, y)
    assert list(model.feature_names_in_) == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table[["b", "a"]])


@pytest.mark.slow
def test_regularised_experts_stand_at_wider_angles():
    X, y = data()
    plain = make(4, **MAP).set_params(inference__n_passes=500).fit(X, y)
    spread = clone(plain).set_params(inference__diversity=300.0).fit(X, y)
    assert spread.diversity_.mean_angle > plain.diversity_.mean_angle


def interrupt_at(monkeypatch, module, name, call):
    """Ctrl-C at one call of a function."""
    original, calls = getattr(module, name), []

    def wrapped(*args, **kwargs):
        calls.append(0)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, wrapped)


@pytest.mark.filterwarnings("ignore:interrupted")
def test_ctrl_c_keeps_the_draws_there_are_and_is_passed_on_when_there_are_none(monkeypatch):
    X, y = data()
    with monkeypatch.context() as patch:
        original, done = runner.Progress.at, []

        def at(bar, count):
            original(bar, count)
            done.append(count)
            if len(done) > 2 and done[-1] > 6 and done[-1] < done[-2] + 60 and at.second:
                raise KeyboardInterrupt
            at.second = at.second or count == 6  # the first stage: 4 + 2 rounds

        at.second = False
        patch.setattr(runner.Progress, "at", at)
        model = make(inference=Sampling(n_warmup=8, n_draws=200, n_chains=2)).fit(X, y)
        assert model.notes_["interrupted"]
        assert 0 < model.posterior_.n_draws < 200
        assert "stopped early" in model.summary()
        assert np.isfinite(model.predict_proba(X)).all()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_at(patch, runner._Store, "add", 1)
        make(**MCMC).fit(X, y)


@pytest.mark.filterwarnings("ignore::wideangle.ConvergenceWarning")
def test_a_warm_start_goes_on_with_the_same_chains():
    X, y = data()
    model = make(inference=Sampling(n_warmup=8, n_draws=6, n_chains=2), warm_start=True)
    first = model.fit(X, y).posterior_.values["weights"].gate
    model.set_params(inference__n_draws=10).fit(X, y)
    more = model.posterior_.values["weights"].gate
    assert more.shape[1] == 10
    np.testing.assert_array_equal(more[:, :6], first)
    whole = make(inference=Sampling(n_warmup=8, n_draws=10, n_chains=2)).fit(X, y)
    np.testing.assert_array_equal(more, whole.posterior_.values["weights"].gate)
    model.fit(X[1:], y[1:])  # other data: from the beginning
    assert not np.array_equal(model.posterior_.values["weights"].gate[:, :6], first)


@pytest.mark.filterwarnings("ignore::wideangle.ConvergenceWarning")
def test_chains_stop_by_themselves_or_when_the_time_is_over():
    X, y = data()
    model = make(inference=Sampling(n_warmup=20, n_chains=2, max_time=1e-3)).fit(X, y)
    ending = model.notes_["ending"]
    assert ending["reason"] in {"time", "converged"}
    assert model.posterior_.n_draws == ending["n_draws"] >= 200


@pytest.mark.usefixtures("save_at_once")
@pytest.mark.filterwarnings("ignore::wideangle.ConvergenceWarning")
def test_chains_that_were_stopped_between_two_checks_stop_where_they_would_have(
    tmp_path, monkeypatch
):
    X, y = data()
    chains = Sampling(n_warmup=20, n_chains=2, max_time=3600.0)
    path = tmp_path / "run"
    whole = make(2, prior="gaussian", inference=chains).fit(X, y)
    save, killed_at = Checkpoint.__call__, 0.7 * whole.posterior_.n_draws

    def killed(self, state, draws):
        save(self, state, draws)
        if draws.n_draws + self._before > killed_at:
            raise SystemExit

    monkeypatch.setattr(Checkpoint, "__call__", killed)
    with pytest.raises(SystemExit):
        make(2, prior="gaussian", inference=chains, checkpoint=path).fit(X, y)
    monkeypatch.setattr(Checkpoint, "__call__", save)
    again = make(2, prior="gaussian", inference=chains, checkpoint=path).fit(X, y)
    assert again.notes_["ending"] == whole.notes_["ending"]
    assert whole.notes_["ending"]["reason"] == "converged"
    gates = (model.posterior_.values["weights"].gate for model in (whole, again))
    np.testing.assert_array_equal(*gates)


KILLED = """
import os, sys, signal, warnings
import numpy as np
warnings.simplefilter("ignore")
from wideangle import MixtureOfExpertsClassifier, Sampling
from wideangle.storage import Checkpoint
saves = []
original = Checkpoint._write
def write(self, *given):
    original(self, *given)
    saves.append(0)
    if len(saves) == 2 and sys.argv[2] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
Checkpoint._write = write
init = Checkpoint.__init__
Checkpoint.__init__ = lambda self, path, fingerprint: init(
    self, path, fingerprint=fingerprint, every_seconds=0.0)
generator = np.random.default_rng(0)
X = generator.normal(size=(60, 2))
y = (X[:, 0] * X[:, 1] > 0).astype(int)
path = None if sys.argv[1] == "-" else sys.argv[1]
model = MixtureOfExpertsClassifier(
    2, prior="gaussian", inference=Sampling(n_warmup=8, n_draws=1000, n_chains=2),
    checkpoint=path, verbose=False, random_state=np.random.RandomState(0))
model.fit(X, y)
np.save(sys.argv[3], model.posterior_.values["weights"].gate)
"""


@pytest.mark.slow
def test_a_killed_fit_is_taken_up_to_the_same_bits(tmp_path):
    folder = tmp_path / "run"

    def go(path, what, out):
        command = [sys.executable, "-c", KILLED, str(path), what, str(tmp_path / out)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert go(folder, "kill", "none.npy").returncode == -9
    assert (folder / "state.safetensors").exists()
    assert not (tmp_path / "none.npy").exists()
    for result in (go(folder, "go", "again.npy"), go("-", "go", "whole.npy")):
        assert result.returncode == 0, result.stderr
    assert not folder.exists()
    np.testing.assert_array_equal(np.load(tmp_path / "again.npy"), np.load(tmp_path / "whole.npy"))


@pytest.mark.slow
@pytest.mark.parametrize("guide", ["vmf", "diagonal"])
def test_variational_fits_beat_the_base_rate(guide):
    model, X, y = fitted({"inference": Variational(guide=guide), "prior": "vmf"}, n_classes=2)
    assert model.score(X, y) > max(y.mean(), 1 - y.mean()) + 0.1
    assert model.posterior_.values["weights"].experts.shape[2:] == (3, 1, 3)


@pytest.mark.slow
def test_sparse_rows_are_sampled_without_being_made_dense(tmp_path, monkeypatch):
    """Chains on the two forms follow one another until rounding tells them apart."""
    generator = np.random.default_rng(0)
    X = (generator.random((300, 20)) < 0.15).astype(float)
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    weights = generator.uniform(0.5, 2.0, 300)
    short = {
        "inference": Sampling(n_warmup=0, n_draws=1, n_chains=2),
        "prior": MutualAngularPrior(scale=1.0),
    }
    dense = make(**short).fit(X, y, sample_weight=weights)

    def refuse(data):
        raise AssertionError("rows were made dense")

    monkeypatch.setattr(expert_data, "SPARSE_SIZE", 0)
    monkeypatch.setattr(expert_data, "SPARSE_SHARE", 0.3)
    monkeypatch.setattr(expert_data, "make_dense", refuse)
    model = make(**short, checkpoint=tmp_path / "run")
    model.fit(sp.csr_array(X), y, sample_weight=weights)
    values = (m.posterior_.values["weights"].gate[:, 0] for m in (model, dense))
    np.testing.assert_allclose(*values, rtol=0.02, atol=0.02)
    few = make(**MCMC)
    with pytest.raises(AssertionError, match="made dense"):
        few.fit(sp.csr_array(X + 1.0), y)  # no zeros: products are faster


def test_sparse_rows_out_of_order_are_read_and_left_as_they_are():
    """As joblib hands them to workers: mapped from a file, and read-only."""
    entries = np.random.default_rng(0).normal(size=3 * N), np.tile([2, 0, 2], N)
    X = sp.csr_array((*entries, np.arange(0, 3 * N + 1, 3)), shape=(N, 4))
    parts = X.data, X.indices, X.indptr
    before = [part.copy() for part in parts]
    for part in parts:
        part.setflags(write=False)
    quick = {"inference": Maximise(n_passes=2, n_starts=1), "prior": "gaussian"}
    model = make(2, **quick).fit(X, np.arange(N) % 2)
    proba = model.predict_proba(X)
    for now, part, old in zip((X.data, X.indices, X.indptr), parts, before, strict=True):
        assert now is part
        np.testing.assert_array_equal(part, old)
    np.testing.assert_allclose(proba, model.predict_proba(X.toarray()), rtol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"inference": Maximise(n_passes=3, n_starts=2), "prior": "gaussian"},
        {"inference": Variational(n_passes=3, n_starts=2, batch_size=16)},
        {"inference": Sampling(n_warmup=4, n_draws=4, n_chains=2), "prior": "gaussian"},
    ],
    ids=["map", "vi", "mcmc"],
)
def test_weights_are_repeated_rows_in_any_order_to_the_last_bit(settings):
    X, y = data(3)
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 4, N)
    repeated = rng.permutation(np.repeat(np.arange(N), weights))
    one = make(2, **settings).fit(X, y, sample_weight=weights)
    other = make(2, **settings).fit(X[repeated], y[repeated])
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("family", [MixtureOfExpertsClassifier, MixtureOfExpertsRegressor])
def test_folds_of_a_cross_validation_share_all_programs(family):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(250, 3))
    y = (X[:, 0] > 0).astype(int)
    model = family(2, inference=Sampling(n_warmup=4, n_draws=20), verbose=False, random_state=0)
    model.fit(X, y)
    with compilations() as found:
        model.fit(X[:240], y[:240])
    assert found == []
