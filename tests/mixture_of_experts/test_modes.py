import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from wideangle import MixtureOfExpertsClassifier
from wideangle.mixture_of_experts import modes
from wideangle.mixture_of_experts.classes import LogisticExperts, SoftmaxExperts
from wideangle.mixture_of_experts.coordinates import (
    Coordinates,
    Point,
    Priors,
    Problem,
    to_vectors,
    weights_of,
)
from wideangle.mixture_of_experts.data import Data, fill, round_up
from wideangle.mixture_of_experts.likelihood import Pair
from wideangle.mixture_of_experts.modes import BATCH_ROWS, climb, log_mode
from wideangle.mixture_of_experts.task import NEITHER, Regulariser, Task
from wideangle.priors.components import (
    GaussianComponents,
    HierarchicalComponents,
    PolarComponents,
)
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.settings import Maximise
from wideangle.sphere.geometry import angular_spread

pytestmark = pytest.mark.usefixtures("compile_quickly")

P = 3


def make_rows(n=60, n_classes=2, seed=0):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(n, P)).astype(np.float32)
    chances = 1 / (1 + np.exp(-2.0 * rows[:, 0]))
    targets = (generator.uniform(size=n) < chances).astype(np.int32)
    if n_classes == 3:
        targets[rows[:, 1] > 0.5] = 2
    return Data(rows, targets, generator.integers(1, 4, n).astype(float))


def gaussian(n_experts, size=P, scale=1.0):
    return GaussianComponents(n_experts, size, np.float32(scale))


def go(key, data, priors, expert, **options):
    problem = Problem(priors, expert, data)
    return climb(key, problem, verbose=False, **({"n_starts": 2} | options))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_gaussian_expert_is_penalised_logistic_regression(n_classes, key):
    """Log posterior and penalty |w|^2 / 2 are the same objective, and it has one maximum."""
    expert = LogisticExperts() if n_classes == 2 else SoftmaxExperts(3)
    data = make_rows(n_classes=n_classes)
    priors = Priors(gaussian(1), gaussian(1, P * expert.n_outputs))
    modes = go(key, data, priors, expert)
    weights = weights_of(priors, modes.points, expert)
    exact = LogisticRegression(fit_intercept=False, tol=1e-10, max_iter=1000)
    exact.fit(data.rows, data.targets, data.weights)
    assert weights.experts.dtype == jnp.float32
    for one in weights.experts[:, 0]:
        np.testing.assert_allclose(one, exact.coef_, atol=2e-3)
    np.testing.assert_allclose(weights.gate, 0.0, atol=2e-3)


def test_modes_come_best_first_and_have_no_gradient(key):
    data, expert = make_rows(), LogisticExperts()
    priors = Priors(gaussian(3), gaussian(3))
    modes = go(key, data, priors, expert, n_starts=4)
    assert np.all(np.diff(modes.values) <= 0)
    task = Problem(priors, expert, fill(data))
    value = jax.jit(jax.value_and_grad(lambda x: log_mode(x, task)))
    best = jax.tree.map(lambda leaf: leaf[0], modes.points)
    found, gradient = value(best)
    np.testing.assert_allclose(found, modes.values[0], rtol=1e-4)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(gradient)) < 0.05


def test_sparse_rows_climb_to_the_same_bits(key):
    expert, priors = LogisticExperts(), Priors(gaussian(2), gaussian(2))
    for n in (60, BATCH_ROWS + 50):
        data = make_rows(n)
        sparse = data._replace(rows=sp.csr_array(data.rows))
        one, two = (go(key, d, priors, expert, n_passes=3) for d in (data, sparse))
        jax.tree.map(np.testing.assert_array_equal, one.points, two.points)


def test_the_mode_of_a_polar_prior_alone_is_that_of_direction_and_length(key):
    """No data: lengths (in the measure of log-length) at shape / rate, directions opposed."""
    prior = PolarComponents(MutualAngular(2, P, 4.0), 3.0, 1.5)
    nothing = Data(jnp.zeros((1, P)), jnp.zeros(1, int), jnp.zeros(1))
    task = Problem(Priors(prior, prior), LogisticExperts(), nothing)
    start = np.asarray(jax.random.normal(key, (2, 2, P + 1)))

    def point(x):
        parts = x.reshape(2, 2, P + 1)
        return Point(*(Coordinates(part[:, :-1], part[:, -1]) for part in parts))

    value = jax.jit(jax.value_and_grad(lambda x: -log_mode(point(x), task)))
    best = minimize(value, start.ravel(), jac=True).x.reshape(start.shape)
    for part, x in zip(best, point(jnp.asarray(best)), strict=True):
        vectors = np.asarray(to_vectors(prior, x))
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 2.0, rtol=1e-3)
        np.testing.assert_allclose(vectors[0], -vectors[1], atol=5e-3)
        np.testing.assert_allclose(np.sum(part[:, :-1] ** 2, axis=1), P - 1, rtol=1e-3)


def test_omega_is_the_spread_of_gate_and_experts_with_their_weights(key):
    x = Pair(*jax.random.normal(key, (2, 3, P)))
    expected = 3.0 * angular_spread(x.gate, 0.7) + 2.0 * angular_spread(x.experts, 0.7)
    found = Regulariser(Pair(gate=3.0, experts=2.0), 0.7).value(x)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_regulariser_is_added_to_what_is_maximised(key):
    priors, expert = Priors(gaussian(3), gaussian(3)), LogisticExperts()
    options = {"n_passes": 300, "n_starts": 1}
    plain = go(key, make_rows(), priors, expert, **options)
    heavy = Regulariser(Pair(jnp.float32(300.0), jnp.float32(300.0)), jnp.float32(1.0))
    spread = go(key, make_rows(), priors, expert, regulariser=heavy, **options)
    for before, after in zip(plain.points, spread.points, strict=True):
        assert angular_spread(after.vectors[0]) > angular_spread(before.vectors[0])


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000, 30_000])
def test_few_sizes_hold_every_number_of_rows(n):
    size = round_up(n)
    assert n <= size < n + max(64, n / 3)
    assert round_up(size) == size


def test_filling_adds_rows_that_do_not_count():
    data = make_rows(10)
    filled = fill(data)
    assert filled.rows.shape == (64, P)
    np.testing.assert_array_equal(filled.rows[:10], data.rows)
    assert filled.weights.sum() == data.weights.sum()


@pytest.mark.parametrize("given", [None, np.float32(0.7)], ids=["free", "given"])
@pytest.mark.parametrize("best", range(len(modes.SHRINKAGE)))
def test_the_shrinkage_that_predicts_held_out_rows_best_is_chosen(monkeypatch, best, given):
    data, seen = make_rows(20), []
    priors = Pair(
        HierarchicalComponents(2, P, common=False),
        HierarchicalComponents(2, P, common=True, scale=given),
    )
    task = Task(priors, NEITHER, LogisticExperts(), Maximise())

    def climbed(key, runs, problem, regulariser, n_steps):
        seen.extend(zip(runs.priors.gate.scale.tolist(), runs.held_out.tolist(), strict=True))
        folds = np.arange(len(data.targets)) % modes.FOLDS
        weight = np.array([data.weights[folds == fold].sum() for fold in runs.held_out])
        right = np.isclose(runs.priors.gate.scale, 3.0 * modes.SHRINKAGE[best])
        # The second start of a pair is the better fit.
        return runs.points, runs.points, np.where(right, -0.5, -0.9) * weight, False

    monkeypatch.setattr(modes, "_climbed", climbed)
    monkeypatch.setattr(modes, "_draw_points", lambda key, priors, n: np.arange(float(n)))
    scales = {"gate": 3.0, "experts": 2.0 if given is None else given, "common": 1.5}
    found, log_lik = modes._shrunk(jax.random.key(0), task, data, scales)
    assert len(set(seen)) == modes.FOLDS * len(modes.SHRINKAGE)
    factor = modes.SHRINKAGE[best]
    np.testing.assert_allclose(found.gate.scale, 3.0 * factor)
    np.testing.assert_allclose(found.experts.scale, 2.0 * factor if given is None else given)
    np.testing.assert_allclose(found.experts.common_scale, 1.5)
    np.testing.assert_allclose(log_lik, -0.5, rtol=1e-6)


def test_folds_that_are_held_out_do_not_count(key):
    """Several folds at once give the fits of the rows that are left, and the others their score."""
    data, expert = make_rows(), LogisticExperts()
    priors = Priors(gaussian(1), gaussian(1))  # one maximum
    problem, held_out = Problem(priors, expert, data), np.array([-1, 0, 1, 2])
    points = modes._draw_points(key, priors, 4)
    runs = modes.Runs(points, modes._stacked([priors] * 4), held_out)
    found, _, others, _ = modes._climbed(key, runs, problem, None)
    for place, fold in enumerate(held_out):
        out = np.arange(len(data.targets)) % modes.FOLDS == fold
        exact = LogisticRegression(fit_intercept=False, tol=1e-10, max_iter=1000)
        exact.fit(data.rows[~out], data.targets[~out], data.weights[~out])
        weights = weights_of(priors, jax.tree.map(lambda leaf, i=place: leaf[i], found), expert)
        np.testing.assert_allclose(weights.experts[0, 0], exact.coef_[0], atol=2e-3)
        chances = exact.predict_log_proba(data.rows)[np.arange(len(out)), data.targets]
        np.testing.assert_allclose(others[place], chances[out] @ data.weights[out], atol=0.02)


def test_a_mode_that_predicts_worse_than_a_guess_says_so():
    classes = Data(np.zeros((20, 1)), np.arange(20) % 2, np.ones(20))
    entropy = -np.log(2.0)
    modes._warn_if_useless(entropy + 0.1, classes)
    with pytest.warns(UserWarning, match="worse than class frequencies alone .*inference 'mcmc'"):
        modes._warn_if_useless(entropy - 0.1, classes)
    numbers = norm.ppf((np.arange(200) + 0.5) / 200).astype(np.float32)
    quantity = Data(np.zeros((200, 1)), numbers, np.ones(200))
    expected = norm.logpdf(numbers).mean()
    modes._warn_if_useless(expected + 0.1, quantity)
    with pytest.warns(UserWarning, match="worse than the mean and spread of y"):
        modes._warn_if_useless(expected - 0.1, quantity)
    for same in (classes, quantity):  # one value: a guess that is certain is no measure
        modes._warn_if_useless(-9.0, same._replace(targets=np.full_like(same.targets, 1)))


def test_a_fit_that_overfits_warns(monkeypatch):
    def useless(key, task, data, scales):
        return modes.with_scales(task.priors, scales), -2.0

    monkeypatch.setattr(modes, "_shrunk", useless)
    data = make_rows(30)
    model = MixtureOfExpertsClassifier(
        2, inference=Maximise(n_starts=1, n_passes=2), verbose=False, random_state=0
    )
    with pytest.warns(UserWarning, match="worse than class frequencies"):
        model.fit(data.rows, data.targets)
    assert model.notes_["held_out_log_lik"] == -2.0
