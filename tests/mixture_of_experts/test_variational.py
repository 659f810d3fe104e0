import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from statistical import FOUR
from wideangle.infer.ascent import Minibatches
from wideangle.mixture_of_experts import evaluate as moe_evaluate
from wideangle.mixture_of_experts import variational as moe_vi
from wideangle.mixture_of_experts.climb import Job
from wideangle.mixture_of_experts.collapsed import Guides, expected_log_lik
from wideangle.mixture_of_experts.experts import LogisticExperts, SoftmaxExperts
from wideangle.mixture_of_experts.guides import GaussianGuide
from wideangle.mixture_of_experts.likelihood import Batch, log_lik
from wideangle.mixture_of_experts.start import ridge
from wideangle.mixture_of_experts.variational import (
    Data,
    choose_temperature,
    fit_vi,
    predict_proba,
    usual_temperature,
)
from wideangle.priors.components import GaussianComponents, PolarComponents
from wideangle.priors.mutual_angular import MutualAngular

N, P, K = 60, 3, 4


def make_data(seed=0, n=N):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(n, P))
    rows[:, -1] = 1.0
    targets = (generator.uniform(size=n) < 1 / (1 + np.exp(-2.0 * rows[:, 0]))).astype(int)
    return Data(rows, targets)


def make_prior(n=K, size=P, concentration=0.0, kind="II"):
    return PolarComponents(MutualAngular(n, size, concentration, kind), 2.0, 0.5)


def fit(key, data, prior=None, expert=None, **options):
    expert = LogisticExperts() if expert is None else expert
    prior = make_prior() if prior is None else prior
    big = make_prior(prior.n_components, prior.dim * expert.n_outputs)
    experts = prior if expert.n_outputs == 1 else big
    settings = {"temperature": 1.0, "n_starts": 2, "n_passes": 100, "progress": False}
    return fit_vi(key, data, prior, experts, expert, **(settings | options))


def finite(fits, rows):
    chance = predict_proba(fits, rows)
    numbers = [f.guides for f in fits], [(f.elbo, f.elbo_error, f.gate_mass, f.trace) for f in fits]
    return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((numbers, chance)))


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
    chance = predict_proba(one, data.rows)
    assert np.array_equal(chance, predict_proba(sparse, sp.csr_matrix(data.rows)))
    assert np.allclose(chance.sum(axis=1), 1.0, atol=1e-5)
    assert np.allclose(
        chance, np.mean([predict_proba([f], data.rows) for f in one], axis=0), atol=1e-6
    )


def test_memory_bounds_do_not_change_predictions(key, monkeypatch):
    data = make_data()
    fits = fit(key, data)
    whole = predict_proba(fits, data.rows)
    monkeypatch.setattr(moe_evaluate, "ROWS", 7)
    assert np.allclose(whole, predict_proba(fits, data.rows), atol=1e-6)
    monkeypatch.setattr(moe_vi, "DRAW_BYTES", 1)
    assert np.allclose(whole, predict_proba(fits, data.rows, 200), atol=0.1)


def test_an_interrupted_fit_is_flagged_and_resumes_to_the_same_bits(key):
    data, prior = make_data(n=200), make_prior()

    def stop(state, trace):
        raise KeyboardInterrupt

    options = {"batch_size": 64, "n_passes": 40}
    whole = fit(key, data, prior, **options)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        part = fit(key, data, prior, callback=stop, **options)
    assert part[0].interrupted
    assert 0 < len(part[0].trace) < len(whole[0].trace)
    rest = fit(key, data, prior, resume=part, **options)
    assert same([f.guides for f in rest], [f.guides for f in whole])
    assert np.array_equal(rest[1].trace, whole[1].trace)
    assert not rest[0].interrupted


def test_one_gaussian_expert_is_bayesian_logistic_regression(key):
    data = make_data()
    prior = GaussianComponents(1, P, 1.0)
    (found,) = fit(key, data, prior, q="diagonal", n_starts=1, n_passes=1500, dtype=np.float64)
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
    (found,) = fit(key, data, q=q, n_starts=1, temperature=0.5)
    batch = Batch(jnp.asarray(data.rows), jnp.asarray(data.targets), jnp.ones(N))
    draws = found.sample(key, 2000)
    values = np.asarray(jax.lax.map(lambda w: log_lik(LogisticExperts(), w, batch), draws))
    prior = make_prior()
    keys = jax.random.split(key, 500)
    for guide in found.guides:
        values = values + np.mean(jax.lax.map(lambda k, g=guide: g.negative_kl(k, prior), keys))
    slack = FOUR * np.hypot(found.elbo_error, values.std() / np.sqrt(len(values)))
    assert abs(values.mean() - found.elbo) < slack
    assert found.elbo_error < 2.0


def test_idle_experts_are_reported(key):
    data = make_data()
    found = fit(key, data)[0]
    assert found.gate_mass.shape == (K,)
    assert np.isclose(found.gate_mass.sum(), 1.0)
    # A gate that leans on the intercept by -20 is never asked.
    gate = found.guides.gate._replace(
        centres=jnp.zeros((K, P)).at[0, -1].set(-20.0), log_concentrations=jnp.full(K, 12.0)
    )
    idle = dataclasses.replace(found, guides=found.guides._replace(gate=gate))
    options = ("vmf", 30, 1024, 0.02, (0.0, 0.0), 1.0, np.float32)
    job = Job(make_prior(), make_prior(), LogisticExperts(), *options)
    idle = moe_vi.assess(idle, job, job.checked(data))
    assert idle.gate_mass[0] < 1e-3
    assert idle.used == K - 1


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
        batch = Batch(*(jnp.asarray(part) for part in (rows, targets, weights)))
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
    return Data(rows, targets)


@pytest.mark.parametrize("q", ["vmf", "diagonal"])
@pytest.mark.parametrize(
    "kind", ["separable", "one class", *(pytest.param(k, marks=pytest.mark.slow) for k in LATER)]
)
def test_awkward_data_gives_no_nan(key, q, kind):
    data = awkward(kind)
    assert finite(fit(key, data, q=q, n_passes=64), data.rows)


@pytest.mark.slow
def test_more_experts_than_rows_give_no_nan(key):
    rows, targets = make_data().rows[:3], np.array([0, 1, 1])
    data = Data(rows, targets)
    assert finite(fit(key, data, make_prior(8), temperature="held-out"), rows)


@pytest.mark.slow
def test_softmax_experts_learn_three_classes_and_regularise(key):
    generator = np.random.default_rng(0)
    targets = generator.integers(0, 3, 90)
    rows = generator.normal(size=(90, P)) + 4.0 * np.eye(P)[targets]
    rows[:, -1] = 1.0
    data = Data(rows, targets, generator.uniform(0.5, 1.5, 90))
    fits = fit(key, data, expert=SoftmaxExperts(3), strengths=(5.0, 5.0), n_passes=300)
    assert fits[0].sample(key, 5).experts.shape == (5, K, 3, P)
    assert np.mean(predict_proba(fits, rows).argmax(axis=1) == targets) > 0.9
    assert finite(fits, rows)


def test_rows_of_weight_zero_do_not_count(key):
    data = make_data()
    rows = np.concatenate([data.rows, 9.0 * np.ones((4, P))])
    targets = np.concatenate([data.targets, [0, 1, 0, 1]])
    weights = np.r_[np.ones(N), np.zeros(4)]
    assert np.allclose(
        ridge(Data(rows, targets, weights), 1),
        ridge(data._replace(weights=np.ones(N)), 1),
        atol=1e-4,
    )


@pytest.mark.slow
def test_the_temperature_is_chosen_on_held_out_rows(key):
    data = make_data(n=200)
    options = ("vmf", 30, 1024, 0.02, (0.0, 0.0), 1.0, np.float32)
    job = Job(make_prior(), make_prior(), LogisticExperts(), *options)
    assert choose_temperature(key, job, job.checked(data)) in moe_vi.TEMPERATURES
    few = job.checked(Data(data.rows[:40], data.targets[:40]))
    assert choose_temperature(key, job, few) == 1.0


def test_the_usual_temperature_falls_with_the_rows_from_1_to_035():
    rows = [1, 500, 1000, 2000, 10**6]
    assert np.allclose([usual_temperature(n) for n in rows], [1.0, 1.0, 0.675, 0.35, 0.35])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prior": make_prior(K, P, 2.0, "I")}, "kind='I'"),
        ({"prior": make_prior(K, P + 1)}, "gate_prior has shape"),
        ({"q": "full"}, "q='full'"),
        ({"temperature": -1.0}, "temperature=-1"),
        ({"temperature": "hot"}, "temperature='hot'"),
        ({"n_starts": 0}, "n_starts=0"),
        ({"learning_rate": 0.0}, "learning_rate=0"),
    ],
)
def test_wrong_arguments_are_named(key, change, message):
    with pytest.raises(ValueError, match=message):
        fit(key, make_data(), **change)


@pytest.mark.slow
@pytest.mark.parametrize("q", ["vmf", "diagonal"])
def test_several_experts_beat_one_where_the_truth_has_several(key, q):
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(6000, P))
    rows[:, -1] = 1.0
    sign = np.where(rows[:, 1] > 0, 4.0, -4.0)
    targets = (generator.uniform(size=6000) < 1 / (1 + np.exp(-sign * rows[:, 0]))).astype(int)
    data = Data(rows[:2000], targets[:2000])
    fits = fit(key, data, q=q, temperature="held-out", n_passes=None)
    chance = predict_proba(fits, rows[2000:])[np.arange(4000), targets[2000:]]
    assert -np.log(chance).mean() < 0.45  # a single expert: 0.69
    assert fits[0].used >= 2
