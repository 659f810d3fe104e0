"""Many fits at once are the fits of each data set, on a CPU and in one vmapped program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

from wideangle import (
    ConvergenceWarning,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MutualAngularPrior,
    Sampling,
    fit_many,
)
from wideangle.infer import program
from wideangle.mixture_of_experts import many, sampling
from wideangle.sharding import rows_over

SHORT = Sampling(n_warmup=24, n_draws=6)
POLAR = MutualAngularPrior(common=False, scale="auto", cosine=0.2)

pytestmark = pytest.mark.filterwarnings("ignore::wideangle.ConvergenceWarning")


def data_sets(n_rows=(60, 60, 60), seed=0):
    """Data sets that need other step sizes: the slopes differ by a factor of four."""
    rng = np.random.default_rng(seed)
    found = []
    for place, n in enumerate(n_rows):
        X = rng.normal(size=(n, 2))
        score = 4.0**place * (X[:, 0] - 0.5 * X[:, 1])
        found.append((X, (score + rng.logistic(size=n) > 0).astype(int)))
    return found


def classifier(**options):
    return MixtureOfExpertsClassifier(2, **({"inference": SHORT, "random_state": 0} | options))


def weights(model):
    return jax.tree.leaves(model.posterior_.values["weights"])


def difference(one, other):
    gaps = [np.max(np.abs(a - b)) for a, b in zip(weights(one), weights(other), strict=True)]
    return max(gaps)


@pytest.fixture
def device(monkeypatch):
    """Programs as on a device: data sets are vmapped."""
    for module in (program, sampling):
        monkeypatch.setattr(module, "on_cpu", lambda: False)


def quantities():
    return [(X, X[:, 0] + 0.1 * y) for X, y in data_sets()]


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (classifier(), data_sets()),
        (classifier(prior=POLAR), data_sets()),
        (classifier(), data_sets((60, 58, 64))),
        (MixtureOfExpertsRegressor(2, inference=SHORT, random_state=0), quantities()),
    ],
)
def test_each_of_many_fits_is_the_fit_alone_bit_for_bit(model, data):
    alone = [clone(model).fit(*one) for one in data]
    for one, other in zip(fit_many(model, data), alone, strict=True):
        for a, b in zip(weights(one), weights(other), strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(one.scaling_.shift, other.scaling_.shift)
        jax.tree.map(np.testing.assert_array_equal, one.priors_, other.priors_)
        np.testing.assert_array_equal(one.predict(data[0][0]), other.predict(data[0][0]))


def gap_of_a_batch(prior=POLAR):
    """Largest difference between a batch and fits alone, both as on a device."""
    inference = Sampling(n_warmup=8, n_draws=2)
    model = classifier(prior=prior, inference=inference)
    alone = [clone(model).fit(*one) for one in data_sets()]
    return max(map(difference, fit_many(model, data_sets()), alone))


@pytest.mark.parametrize("prior", [POLAR, "mutual-angular"])
def test_a_vmapped_batch_is_the_fits_alone_up_to_rounding(device, prior):
    assert gap_of_a_batch(prior) < 1e-2


def swapped(monkeypatch):
    place = program.Program.place
    monkeypatch.setattr(program.Program, "place", lambda self, sets: place(self, [*sets[::-1]]))


def one_step_for_all(monkeypatch):
    over_sets = program._over_sets

    def shared(rounds, n_sets):
        many_rounds = over_sets(rounds, n_sets)

        def go(constants, given, state, *counts):
            tuning = jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], n_sets, 0), state.tuning)
            return many_rounds(constants, given, state._replace(tuning=tuning), *counts)

        return go

    monkeypatch.setattr(program, "_over_sets", shared)


def one_whitening_for_all(monkeypatch):
    whitening, known = sampling._whitening, {}

    def first(*arguments):
        found = whitening(*arguments)
        return known.setdefault(jax.tree.structure(found), found)

    monkeypatch.setattr(sampling, "_whitening", first)


@pytest.mark.parametrize("fault", [swapped, one_step_for_all, one_whitening_for_all])
def test_a_batch_with_a_fault_is_not_the_fits_alone(device, monkeypatch, fault):
    model = classifier(prior=POLAR, inference=Sampling(n_warmup=8, n_draws=2))
    data = [*data_sets(), *data_sets(seed=1)]
    alone = [clone(model).fit(*one) for one in data]
    program._PROGRAMS.clear()
    fault(monkeypatch)
    found = max(map(difference, fit_many(model, data), alone))
    program._PROGRAMS.clear()
    assert found > 1e-2


def programs():
    return len(program._PROGRAMS.get(sampling.SAMPLERS["hmc"].recipe, {}))


def test_a_batch_is_one_program(device):
    program._PROGRAMS.clear()
    fit_many(classifier(), data_sets((60, 50, 40)))
    assert programs() == 1


def test_many_fits_on_a_cpu_use_the_program_of_one():
    program._PROGRAMS.clear()
    fit_many(classifier(), data_sets())
    classifier().fit(*data_sets()[0])
    assert programs() == 1


def test_bootstraps_and_shorter_data_sets_predict_like_fits_alone():
    (X, y), *_ = data_sets((150,))
    counts = np.random.default_rng(0).multinomial(150, np.full(150, 1 / 150), size=2)
    data = [(X, y), *((X, y, count) for count in counts)]
    model = classifier(inference=Sampling(n_warmup=200, n_draws=300))
    for one, given in zip(fit_many(model, data), data, strict=True):
        other = clone(model).set_params(random_state=1).fit(*given)
        gap = np.abs(one.predict_proba(X) - other.predict_proba(X))
        assert gap.max() < 0.1


def test_settings_that_differ_in_numbers_share_a_program():
    data = data_sets()[:1] * 2
    strengths = [MutualAngularPrior(cosine=cosine) for cosine in (0.1, 0.5)]
    models = [classifier(prior=prior) for prior in strengths]
    program._PROGRAMS.clear()
    fits = fit_many(models, data)
    assert programs() == 1
    for model, one in zip(models, fits, strict=True):
        assert difference(one, clone(model).fit(*data[0])) == 0.0
    assert difference(*fits) > 0.0


def test_data_sets_that_differ_in_shape_are_fitted_too():
    (X, y), *_ = data_sets()
    three = np.where(X[:, 1] > 1, 2, y)
    data = [(X, y), (X[:, :1], y), (X, three)]
    fits = fit_many(classifier(), data)
    assert [one.n_features_in_ for one in fits] == [2, 1, 2]
    assert [len(one.classes_) for one in fits] == [2, 2, 3]


def test_fits_end_by_themselves_and_are_complete(tmp_path):
    model = classifier(inference=Sampling(n_warmup=100, max_time=60.0))
    fits = fit_many(model, data_sets())
    for one in fits:
        assert one.notes_["ending"]["reason"] in {"converged", "modes"}
        assert one.notes_["ending"]["n_draws"] == one.posterior_.n_draws
        assert "ESS" in str(one.summary())
    fits[1].save(tmp_path / "model")
    again = MixtureOfExpertsClassifier.load(tmp_path / "model")
    X = data_sets()[1][0]
    np.testing.assert_array_equal(again.predict_proba(X), fits[1].predict_proba(X))


def test_one_warning_speaks_of_all_fits():
    with pytest.warns(ConvergenceWarning) as caught:
        fit_many(classifier(), data_sets())
    assert len(caught) == 1
    assert "Fits of data sets 1, 2 are not settled" in str(caught[0].message)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("model", "error", "said"),
    [
        (classifier(inference="vi"), ValueError, "inference='mcmc'"),
        (classifier(checkpoint="folder"), ValueError, "checkpoint"),
        (classifier(warm_start=True), ValueError, "warm_start"),
        ([classifier()], ValueError, "has 1"),
        (SHORT, TypeError, "mixture of experts"),
    ],
)
def test_what_it_cannot_do_is_refused(model, error, said):
    with pytest.raises(error, match=said):
        fit_many(model, data_sets())


def test_rows_over_devices_are_refused():
    with rows_over(), pytest.raises(ValueError, match="one device"):
        fit_many(classifier(), data_sets())


def test_the_estimator_stays_as_it_was():
    model = classifier()
    fit_many(model, data_sets())
    assert not hasattr(model, "posterior_")
    assert many.fit_many(model, []) == []
