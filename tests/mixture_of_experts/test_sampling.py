"""Exact restarts: (weights, targets) from the joint distribution, sweeps, and it is the same."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from infer.invariance import FAIL, PASS
from mutants import mutant
from statistical import measured, z_score_of_chains
from wideangle.mixture_of_experts import coordinates, polar, whitened
from wideangle.mixture_of_experts import sampling as moe_mcmc
from wideangle.mixture_of_experts.classes import LogisticExperts, SoftmaxExperts
from wideangle.mixture_of_experts.coordinates import (
    Priors,
    Problem,
    Setting,
    draw_point,
    scales_of,
    weights_of,
)
from wideangle.mixture_of_experts.data import Data, sample
from wideangle.mixture_of_experts.likelihood import Pair, Weights, predict
from wideangle.mixture_of_experts.sampling import SAMPLERS, fit_mcmc, learn_priors
from wideangle.mixture_of_experts.task import NEITHER, Task
from wideangle.mixture_of_experts.whitened import Typical, fisher_whitening
from wideangle.priors import components
from wideangle.priors.components import GaussianComponents, HierarchicalComponents, PolarComponents
from wideangle.priors.dpp import DeterminantalComponents
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.settings import Sampling

pytestmark = pytest.mark.usefixtures("compile_quickly")

K, P, N = 2, 3, 15
MEAN = 0.25
"""Prior mean of the scale of gates and deviations, far from that of the common expert."""
LOGISTIC = LogisticExperts()
PRIORS = ["gaussian", "dpp", "I", "II", "independent"]
COMMON = "common expert"
STEPS = {"hmc": 0.4, "geodesic": 0.3, "metropolis": 0.7}


def make(name, size=P):
    if name == "gaussian":
        return GaussianComponents(K, size, 1.5)
    if name == "dpp":
        return DeterminantalComponents(K, size, 1.5)
    return PolarComponents(MutualAngular(K, size, 2.0, name), 3.0, 1.0)


@cache
def rows():
    return jnp.asarray(np.random.default_rng(0).normal(size=(N, P)))


def make_priors(name, expert=LOGISTIC):
    if name == COMMON:
        sizes = (P, False), (P * expert.n_outputs, True)
        return Priors(
            *(
                HierarchicalComponents(K, n, c, MutualAngular(K, n, 2.0), mean_scale=MEAN)
                for n, c in sizes
            )
        )
    return Priors(make(name), make(name, P * expert.n_outputs))


def statistics(weights, scales, batch, expert):
    """Numbers that do not depend on the numbering of the experts."""
    flat = weights.experts.reshape(K, -1)
    lengths = jnp.concatenate([jnp.linalg.norm(w, axis=1) for w in (weights.gate, flat)])
    cosines = [w[0] @ w[1] / jnp.prod(jnp.linalg.norm(w, axis=1)) for w in (weights.gate, flat)]
    proba = predict(expert, weights, batch.rows)
    said = jnp.log(jnp.take_along_axis(proba, batch.targets[:, None], axis=1))
    symmetric = [jnp.sum(lengths[:K]), jnp.sum(jnp.log(lengths[:K])), jnp.sum(lengths[K:])]
    symmetric += [jnp.sum(jnp.log(lengths[K:])), *cosines, *(c**2 for c in cosines)]
    symmetric += [f(scale) for scale in scales.values() for f in (jnp.log, jnp.square)]
    return jnp.stack([*symmetric, jnp.sum(said), *proba[:3, 1], proba[0, 1] ** 2])


def whitening_of(priors, expert, share):
    """Coordinates that do not depend on the start, and follow the scales."""
    x = draw_point(jax.random.key(9), priors)
    one = Typical(weights_of(priors, x, expert), scales_of(priors, x))
    typical = jax.tree.map(lambda leaf: leaf[None], one)
    some = Data(rows(), jnp.arange(N) % 2, jnp.ones(N))
    found = fisher_whitening(priors, typical, expert, some)
    return Pair(*(follow(metric, share) for metric in found))


def follow(metric, share):
    def change(root):
        return None if root is None else root._replace(share=jnp.full_like(root.share, share))

    return metric._replace(vectors=change(metric.vectors), common=change(metric.common))


def changes(
    sampler,
    name,
    samplers=SAMPLERS,
    expert=LOGISTIC,
    n=4000,
    sweeps=2,
):
    """Paired changes of the statistics over some sweeps from exact joint draws."""
    priors = make_priors(name, expert)
    method = samplers[sampler]
    whitening = whitening_of(priors, expert, share=0.6)
    steps = {name: jnp.asarray(STEPS[sampler]) for name in method.steps}

    def one(key):
        keys = jax.random.split(key, 3)
        x = draw_point(keys[0], priors)
        weights, scales = weights_of(priors, x, expert), scales_of(priors, x)
        chances = predict(expert, weights, rows())
        targets = jax.random.categorical(keys[1], jnp.log(chances))
        data = Data(rows(), targets, jnp.ones(N))
        setting = Setting(Problem(priors, expert, data), whitening)

        def move(state, turn):
            return method.recipe(steps | {"iteration": turn[0]}, setting)(turn[1], state)

        turns = jnp.arange(1, sweeps + 1), jax.random.split(keys[2], sweeps)
        state, infos = jax.lax.scan(move, method.enter(x, setting), turns)
        end = method.collect(state, setting)
        acceptance = jnp.stack([jnp.mean(info.acceptance) for info in infos.values()])
        before = statistics(weights, scales, data, expert)
        after = statistics(end["weights"], end.get("scales", {}), data, expert)
        return after - before, acceptance

    change, acceptance = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(5), n))
    assert 0.2 < np.mean(acceptance) < 0.995
    change = np.asarray(change)
    assert np.mean(np.any(change != 0, axis=1)) > 0.5, "most states did not move"
    return np.abs(change.mean(0)) / (change.std(0) / np.sqrt(n))


FAST = [("hmc", COMMON), ("hmc", "I"), ("geodesic", "gaussian"), ("metropolis", "gaussian")]
SLOW = [(s, p) for s in SAMPLERS for p in PRIORS if (s, p) not in FAST]


@pytest.mark.parametrize(
    ("sampler", "name"), FAST + [pytest.param(*pair, marks=pytest.mark.slow) for pair in SLOW]
)
def test_every_sampler_leaves_the_joint_distribution_of_weights_and_targets_alone(sampler, name):
    assert changes(sampler, name).max() < PASS


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_so_it_is_with_three_classes_and_many_starts(sampler):
    assert changes(sampler, "I", expert=SoftmaxExperts(3), n=20_000, sweeps=4).max() < PASS


LENGTHS = "jnp.sum(jnp.log(components.magnitudes))"
OF_THE_HIERARCHY = {
    "no Jacobian of the stretch",
    "no common vector in the prior",
    "no Jacobian of the scales",
    "another width of the scales",
    "one width for all scales",
    "no repulsion of deviations",
}
BROKEN = {
    "no free length": ("hmc", coordinates, LENGTHS + " + square", LENGTHS),
    "no log-length Jacobian": ("hmc", coordinates, LENGTHS, "0.0"),
    "no Jacobian of the stretch": ("hmc", whitened, "volume = -away", "volume = 0.0 * away"),
    "no common vector in the prior": (
        "hmc",
        coordinates,
        "value -= 0.5 * jnp.sum(x.common**2)",
        "pass",
    ),
    "no Jacobian of the scales": (
        "hmc",
        components,
        "jnp.sum(log_scales - jnp",
        "jnp.sum(-jnp",
    ),
    "another width of the scales": ("hmc", components, "/ means)", "/ (2 * means))"),
    "one width for all scales": ("hmc", components, "/ means)", "/ means[-1])"),
    "no repulsion of deviations": (
        "hmc",
        coordinates,
        "square + prior.log_ratio_to_gaussian(x.vectors)",
        "square",
    ),
    "no Jacobian on the sphere": (
        "geodesic",
        polar,
        "_log_polar(parts(latents), setting.problem) + jacobian",
        "_log_polar(parts(latents), setting.problem)",
    ),
    "prior counted twice": (
        "metropolis",
        polar,
        "gate + experts + log_lik(",
        "gate + 2.0 * experts + log_lik(",
    ),
}


def broken_samplers(case):
    sampler, module, old, new = BROKEN[case]
    kept = {"PolarComponents": PolarComponents, "HierarchicalComponents": HierarchicalComponents}
    names = {}
    if module is components:
        broken = mutant(module, old, new).log_exponential
        module, old, new = coordinates, *["class Coordinates"] * 2  # as it is
        kept["log_exponential"] = broken
    if module is coordinates:
        broken = mutant(module, old, new, **kept)
        names = {"log_joint": broken.log_joint}
        module, old, new = whitened, "MOST = 256", "MOST = 255"
    return {sampler: getattr(mutant(module, old, new, **names), sampler)()}


@pytest.mark.parametrize("case", BROKEN)
def test_every_fault_can_be_put_in(case):
    assert BROKEN[case][0] in broken_samplers(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_density_is_found(case):
    sampler, samplers = BROKEN[case][0], broken_samplers(case)
    # more starts for the terms that the data nearly hide
    name = COMMON if case in OF_THE_HIERARCHY else "I"
    z = changes(sampler, name, samplers=samplers, n=12_000, sweeps=4)
    assert not measured("max |z|", z.max(), FAIL) < FAIL


def real_problem(name="I", n_rows=64, dtype=np.float32):
    generator = np.random.default_rng(1)
    X = generator.normal(size=(n_rows, P)).astype(dtype)
    y = (generator.uniform(size=n_rows) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(np.int32)
    priors = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), Priors(make(name), make(name)))
    batch = Data(jnp.asarray(X), jnp.asarray(y), jnp.ones(n_rows, dtype))
    return Problem(priors, LogisticExperts(), batch)


SHORT = {"n_warmup": 8, "n_draws": 6, "n_chains": 2}


def run_chains(key, problem, learn=NEITHER, start=None, **settings):
    task = Task(problem.priors, learn, problem.expert, Sampling(**settings), verbose=False)
    return fit_mcmc(key, task, problem.data, start=start)


def test_a_fit_follows_from_its_key_and_stays_in_float32(key):
    task = real_problem()
    first, second = (run_chains(key, task, learn=Pair(True, True), **SHORT) for _ in range(2))
    for left, right in zip(
        jax.tree.leaves(first.draws.values), jax.tree.leaves(second.draws.values), strict=True
    ):
        np.testing.assert_array_equal(left, right)
        assert left.dtype == np.float32
        assert left.shape[:2] == (2, 6)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(first.priors))
    assert not np.array_equal(
        jax.tree.leaves(first.priors)[0], jax.tree.leaves(task.priors)[0]
    ) or not np.array_equal(first.priors.gate.magnitude_rate, task.priors.gate.magnitude_rate)


def test_learned_priors_keep_the_others_and_move_the_polar_ones(key):
    task = real_problem("gaussian")
    weights = Weights(jnp.ones((4, 5, K, P)), jnp.ones((4, 5, K, 1, P)))
    assert learn_priors(task.priors, weights, Pair(False, False)) == task.priors
    polar = Priors(make("I"), make("I"))
    draws = jax.vmap(polar.gate.sample)(jax.random.split(key, 20)).reshape(4, 5, K, P)
    learned = learn_priors(polar, Weights(2.0 * draws, draws[..., None, :]), Pair(True, False))
    mean = np.linalg.norm(2.0 * draws, axis=-1).mean()
    np.testing.assert_allclose(
        learned.gate.magnitude_shape / learned.gate.magnitude_rate, mean, rtol=1e-5
    )
    assert learned.experts is polar.experts


def test_a_part_of_the_rows_keeps_the_total_weight():
    data = real_problem().data
    jax.tree.map(np.testing.assert_array_equal, sample(0, data, 64), data)
    part = sample(0, data, 10)
    assert part.rows.shape == (64, P) and np.count_nonzero(part.weights) == 10
    np.testing.assert_allclose(part.weights.sum(), 64.0, rtol=1e-6)


@pytest.mark.slow
def test_one_gaussian_expert_is_bayesian_logistic_regression(key):
    """Against a long run of NumPyro's NUTS."""
    import numpyro
    from numpyro.distributions import Bernoulli, Normal
    from numpyro.infer import MCMC, NUTS

    task = real_problem("gaussian", 60, np.float64)
    single = GaussianComponents(1, P, 1.5)
    task = task._replace(priors=Priors(single, single))

    def model():
        w = numpyro.sample("w", Normal(0.0, 1.5).expand([P]).to_event(1))
        numpyro.sample("y", Bernoulli(logits=task.data.rows @ w), obs=task.data.targets)

    nuts = MCMC(NUTS(model), num_warmup=500, num_samples=20_000, progress_bar=False)
    nuts.run(jax.random.key(1))
    truth = np.asarray(nuts.get_samples()["w"])
    fit = run_chains(key, task, n_warmup=300, n_draws=2000)
    draws = fit.draws.values["weights"].experts[:, :, 0, 0]
    assert z_score_of_chains(draws, truth.mean(0)) < 5.0  # NUTS has an error of its own
    assert z_score_of_chains(draws**2, (truth**2).mean(0)) < 5.0


def sparse_problem(n=300, p=8):
    """The same problem twice, with dense and with sparse rows, in double precision."""
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(n, p)) * (generator.random((n, p)) < 0.2)
    targets = (rows[:, 0] + rows[:, 1] > 0).astype(np.int32)
    weights = generator.uniform(0.5, 2.0, n)
    prior = PolarComponents(MutualAngular(K, p, 2.0), 3.0, 1.0)
    dense = Data(jnp.asarray(rows), jnp.asarray(targets), jnp.asarray(weights))
    batches = dense, Data(sp.csr_array(rows), targets, weights)
    return [Problem(Priors(prior, prior), LOGISTIC, batch) for batch in batches]


@pytest.mark.slow  # sums over sparse rows, in little time: test_sparse.py
@pytest.mark.parametrize("sampler", ["hmc", "geodesic", "metropolis"])
def test_chains_on_sparse_rows_are_those_on_dense_rows(sampler, key, monkeypatch):
    monkeypatch.setattr(moe_mcmc, "FISHER_ROWS", 100)  # so that a part has to be taken
    start = jax.vmap(lambda k: draw_point(k, sparse_problem()[0].priors))(jax.random.split(key, 2))
    options = {"n_warmup": 4, "n_draws": 4, "n_chains": 2, "start": start}
    one, other = (run_chains(key, task, kernel=sampler, **options) for task in sparse_problem())
    assert np.ptp(one.draws.values["log_lik"]) > 0
    for left, right in zip(
        jax.tree.leaves(one.draws.values), jax.tree.leaves(other.draws.values), strict=True
    ):
        np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-8)


def test_a_part_of_sparse_rows_is_the_part_of_dense_rows():
    dense, sparse = sparse_problem()
    for n_rows in (50, 1000):
        jax.tree.map(
            np.testing.assert_allclose,
            sample(0, dense.data, n_rows),
            sample(0, sparse.data, n_rows),
        )
