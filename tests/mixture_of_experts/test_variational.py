import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from statistical import FOUR
from wideangle.infer.ascent import Minibatches
from wideangle.mixture_of_experts.classes import LogisticExperts, SoftmaxExperts
from wideangle.mixture_of_experts.collapsed import expected_log_lik
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.guides import GaussianGuide, Guides
from wideangle.mixture_of_experts.likelihood import Pair, log_lik
from wideangle.mixture_of_experts.predict import over_draws
from wideangle.mixture_of_experts.task import NEITHER, Task
from wideangle.mixture_of_experts.variational import draws_of, fit_starts, usual_temperature
from wideangle.priors.components import GaussianComponents, PolarComponents
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.settings import Variational
from wideangle.storage import Checkpoint

N, P, K = 60, 3, 4


def make_data(seed=0, n=N):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(n, P))
    rows[:, -1] = 1.0
    targets = (generator.uniform(size=n) < 1 / (1 + np.exp(-2.0 * rows[:, 0]))).astype(int)
    return Data(rows, targets, np.ones(len(targets)))


def make_prior(n=K, size=P, concentration=0.0, kind="II"):
    return PolarComponents(MutualAngular(n, size, concentration, kind), 2.0, 0.5)


def fit(key, data, prior=None, expert=None, **options):
    expert = LogisticExperts() if expert is None else expert
    prior = make_prior() if prior is None else prior
    big = make_prior(prior.n_components, prior.dim * expert.n_outputs)
    priors = Pair(prior, prior if expert.n_outputs == 1 else big)
    others = {k: options.pop(k) for k in ("checkpoint", "dtype") if k in options}
    chosen = {"guide": "vmf", "temperature": 1.0, "n_starts": 2, "n_passes": 100} | options
    task = Task(priors, NEITHER, expert, Variational(**chosen), verbose=False)
    return fit_starts(key, task, data, **others)


def proba(fits, rows):
    draws = draws_of(jax.random.key(0), fits).draws
    return over_draws(fits[0].expert.proba, draws, rows, None)


def finite(fits, rows):
    numbers = [f.guides for f in fits], [(f.elbo, f.elbo_error, f.trace) for f in fits]
    every = numbers, proba(fits, rows)
    return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(every))


def same(left, right):
    leaves = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


def test_a_fit_follows_from_its_key_and_sparse_rows_give_the_same_bits(key):
    data = make_data()
    one, two = fit(key, data), fit(key, data)
    sparse = fit(key, data._replace(rows=sp.csr_matrix(data.rows)))
    assert same([f.guides for f in one], [f.guides for f in two])
    assert same([f.guides for f in one], [f.guides for f in sparse])
    assert not same(one[0].guides, fit(jax.random.key(1), data)[0].guides)
    chance = proba(one, data.rows)
    assert np.array_equal(chance, proba(sparse, sp.csr_array(data.rows)))
    assert np.allclose(chance.sum(axis=1), 1.0, atol=1e-5)


class StopAfter(Checkpoint):
    """Saves at every call, and is stopped by Ctrl-C after some of them."""

    def __init__(self, path, n_calls):
        super().__init__(path, fingerprint="one and the same", every_seconds=0.0)
        self.calls = iter(range(n_calls))

    def __call__(self, state, draws):
        super().__call__(state, draws)
        if next(self.calls, None) is None:
            raise KeyboardInterrupt


def test_an_interrupted_fit_is_flagged_and_resumes_to_the_same_bits(key, tmp_path):
    data, prior = make_data(n=200), make_prior()
    options = {"batch_size": 64, "n_passes": 80}
    whole = fit(key, data, prior, **options)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        part = fit(key, data, prior, checkpoint=StopAfter(tmp_path / "c", 1), **options)
    assert part[0].interrupted
    assert 0 < len(part[0].trace) < len(whole[0].trace)
    rest = fit(key, data, prior, checkpoint=StopAfter(tmp_path / "c", 10**6), **options)
    assert same([f.guides for f in rest], [f.guides for f in whole])
    assert np.array_equal(rest[1].trace, whole[1].trace)
    assert not rest[0].interrupted


def test_one_gaussian_expert_is_bayesian_logistic_regression(key):
    data = make_data()
    prior = GaussianComponents(1, P, 1.0)
    (found,) = fit(key, data, prior, guide="diagonal", n_starts=1, n_passes=1500, dtype=np.float64)
    grid = np.linspace(-3.5, 3.5, 61)
    points = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), -1).reshape(-1, P)
    margin = (2 * data.targets - 1) * (points @ data.rows.T)
    log_joint = -np.logaddexp(0, -margin).sum(axis=1) - 0.5 * np.sum(points**2, axis=1)
    weight = np.exp(log_joint - log_joint.max())
    mean = weight @ points / weight.sum()
    assert np.allclose(found.guides.experts.means[0], mean, atol=0.06)
    # The gate of a single expert sees no data: its q is the prior.
    assert np.allclose(found.guides.gate.scales, 1.0, atol=0.1)
    step = (grid[1] - grid[0]) ** P
    evidence = np.log(weight.sum() * step) + log_joint.max() - 0.5 * P * np.log(2 * np.pi)
    assert evidence - 0.5 < found.elbo < evidence + FOUR * found.elbo_error


@pytest.mark.parametrize("q", ["vmf", pytest.param("diagonal", marks=pytest.mark.slow)])
def test_the_bound_is_that_of_brute_force_whatever_the_temperature(key, q):
    data = make_data()
    (found,) = fit(key, data, guide=q, n_starts=1, temperature=0.5)
    batch = Data(jnp.asarray(data.rows), jnp.asarray(data.targets), jnp.ones(N))
    draws = found.sample(key, 2000)
    values = np.asarray(jax.lax.map(lambda w: log_lik(LogisticExperts(), w, batch), draws))
    prior = make_prior()
    keys = jax.random.split(key, 500)
    for guide in found.guides:
        values = values + np.mean(jax.lax.map(lambda k, g=guide: g.negative_kl(k, prior), keys))
    slack = FOUR * np.hypot(found.elbo_error, values.std() / np.sqrt(len(values)))
    assert abs(values.mean() - found.elbo) < slack
    assert found.elbo_error < 2.0


def test_the_mean_over_a_pass_of_minibatches_is_the_whole_gradient():
    data, expert = make_data(n=50), LogisticExperts()
    generator = np.random.default_rng(0)
    guides = Guides(
        *(
            GaussianGuide(jnp.asarray(generator.normal(size=(K, P))), jnp.zeros((K, P)))
            for _ in "ab"
        )
    )
    weights = generator.uniform(0.5, 2.0, 50)

    def gradient(rows, targets, weights):
        batch = Data(*(jnp.asarray(part) for part in (rows, targets, weights)))
        noise = jnp.zeros((2, K, len(rows)))
        return jax.jit(jax.grad(lambda g: expected_log_lik(expert, g, noise, batch)))(guides)

    batches = Minibatches(0, data.rows, data.targets, weights, 16, np.float64)
    parts = [gradient(*(part[0] for part in batches.take(t))) for t in range(batches.per_pass)]
    mean = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *parts)
    whole = gradient(data.rows, data.targets, weights)
    for a, b in zip(jax.tree.leaves(mean), jax.tree.leaves(whole), strict=True):
        assert np.allclose(a, b)


LATER = ("duplicated", "constant", "sorted")


def awkward(kind):
    data = make_data()
    rows, targets = data.rows.copy(), data.targets.copy()
    if kind == "separable":
        targets = (rows[:, 0] > 0).astype(int)
    elif kind == "duplicated":
        rows[:, 1] = rows[:, 0]
    elif kind == "constant":
        rows[:, 0] = 0.0
        rows[:, 1] = 100.0
    elif kind == "one class":
        targets[:] = 1
    elif kind == "sorted":
        targets = np.sort(targets)
    return Data(rows, targets, np.ones(len(targets)))


@pytest.mark.parametrize("q", ["vmf", "diagonal"])
@pytest.mark.parametrize(
    "kind", ["separable", "one class", *(pytest.param(k, marks=pytest.mark.slow) for k in LATER)]
)
def test_awkward_data_gives_no_nan(key, q, kind):
    data = awkward(kind)
    assert finite(fit(key, data, guide=q, n_passes=64), data.rows)


@pytest.mark.slow
def test_more_experts_than_rows_give_no_nan(key):
    rows, targets = make_data().rows[:3], np.array([0, 1, 1])
    data = Data(rows, targets, np.ones(3))
    assert finite(fit(key, data, make_prior(8)), rows)


@pytest.mark.slow
def test_softmax_experts_learn_three_classes_and_regularise(key, compile_quickly):
    generator = np.random.default_rng(0)
    targets = generator.integers(0, 3, 90)
    rows = generator.normal(size=(90, P)) + 4.0 * np.eye(P)[targets]
    rows[:, -1] = 1.0
    data = Data(rows, targets, generator.uniform(0.5, 1.5, 90))
    fits = fit(
        key,
        data,
        expert=SoftmaxExperts(3),
        diversity=5.0,
        n_passes=100,
    )
    assert fits[0].sample(key, 5).experts.shape == (5, K, 3, P)
    assert np.mean(proba(fits, rows).argmax(axis=1) == targets) > 0.9
    assert finite(fits, rows)


def test_rows_of_weight_zero_do_not_count(key):
    data = make_data()
    rows = np.concatenate([data.rows, 9.0 * np.ones((4, P))])
    targets = np.concatenate([data.targets, [0, 1, 0, 1]])
    weights = np.r_[np.ones(N), np.zeros(4)]
    assert np.allclose(
        LogisticExperts().start(Data(rows, targets, weights)),
        LogisticExperts().start(data),
        atol=1e-4,
    )


def test_the_usual_temperature_falls_with_the_rows_from_1_to_035():
    rows = [1, 500, 1000, 2000, 10**6]
    assert np.allclose([usual_temperature(n) for n in rows], [1.0, 1.0, 0.675, 0.35, 0.35])


def test_a_prior_without_a_closed_form_is_named(key):
    with pytest.raises(ValueError, match="kind='I'"):
        fit(key, make_data(), make_prior(K, P, 2.0, "I"))


@pytest.mark.slow
@pytest.mark.parametrize("q", ["vmf", "diagonal"])
def test_several_experts_beat_one_where_the_truth_has_several(key, q):
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(6000, P))
    rows[:, -1] = 1.0
    sign = np.where(rows[:, 1] > 0, 4.0, -4.0)
    targets = (generator.uniform(size=6000) < 1 / (1 + np.exp(-sign * rows[:, 0]))).astype(int)
    data = Data(rows[:2000], targets[:2000], np.ones(2000))
    fits = fit(key, data, guide=q, temperature=0.35, n_passes=None)
    chance = proba(fits, rows[2000:])[np.arange(4000), targets[2000:]]
    assert -np.log(chance).mean() < 0.45  # a single expert: 0.69
