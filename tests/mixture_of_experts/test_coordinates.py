"""Free coordinates and whitening: exact by formula, or by invariance."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to
from scipy.stats import expon

from infer.invariance import FAIL, N_STARTS, PASS
from marks import first_quick
from mutants import mutant
from statistical import measured
from wideangle.infer.geodesic_hmc import geodesic_hmc
from wideangle.mixture_of_experts import coordinates, whitened
from wideangle.mixture_of_experts.classes import LogisticExperts, SoftmaxExperts
from wideangle.mixture_of_experts.coordinates import (
    Coordinates,
    Point,
    Priors,
    Problem,
    as_weights,
    draw_point,
    from_vectors,
    log_joint,
    log_prior,
    log_volume,
    scales_of,
    to_vectors,
    weights_of,
)
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import Pair, log_lik
from wideangle.mixture_of_experts.quantities import GaussianExperts
from wideangle.mixture_of_experts.whitened import (
    Typical,
    fisher_whitening,
    refine,
    unwhiten,
    whiten,
)
from wideangle.priors.components import GaussianComponents, HierarchicalComponents, PolarComponents
from wideangle.priors.dpp import DeterminantalComponents
from wideangle.priors.mutual_angular import MutualAngular

K, P = 2, 3


pytestmark = pytest.mark.usefixtures("compile_quickly")


def make(name, n=K, p=P):
    if name == "gaussian":
        return GaussianComponents(n, p, 1.7)
    if name == "dpp":
        return DeterminantalComponents(n, p, 1.7)
    if name in HIERARCHIES:
        directions = MutualAngular(n, p, 3.0) if n > 1 else None
        return HierarchicalComponents(n, p, name != "scale", directions, **HIERARCHIES[name])
    return PolarComponents(MutualAngular(n, p, 3.0, name), 2.0, 0.5)


HIERARCHIES = {
    "common": {},
    "scale": {},
    "fixed scale": {"scale": 0.7},
    "fixed common scale": {"common_scale": 1.3},
    "fixed scales": {"scale": 0.7, "common_scale": 1.3},
}
PRIORS = ["common", "gaussian", "I", "dpp", "II", "independent", *list(HIERARCHIES)[1:]]
every_prior = pytest.mark.parametrize("name", first_quick(PRIORS, 3))


@every_prior
def test_coordinates_and_vectors_are_there_and_back(name, key):
    prior = make(name)
    vectors = to_vectors(prior, draw_point(key, Priors(prior, prior)).gate)
    x = from_vectors(prior, vectors)
    np.testing.assert_allclose(to_vectors(prior, x), vectors, rtol=1e-6)
    assert x.vectors.shape == (K, P)
    # under a polar prior the length of x.vectors says nothing about the vectors
    if isinstance(prior, PolarComponents):
        other = x._replace(vectors=2.5 * x.vectors)
        np.testing.assert_allclose(to_vectors(prior, other), vectors, rtol=1e-6)


@pytest.mark.parametrize("name", ["gaussian", "I", "dpp", "II", "independent"])
def test_density_is_that_of_numpyro_up_to_a_constant(name, key):
    prior = make(name)
    transform = biject_to(prior.support)
    polar = isinstance(prior, PolarComponents)
    raw = jax.random.normal(key, (6, K, P + polar))

    def away(flat):
        if not polar:
            x = Coordinates(flat)
            return log_prior(prior, x) - prior.log_prob(to_vectors(prior, x))
        vectors = transform(flat)
        jacobian = jnp.sum(transform.log_abs_det_jacobian(flat, vectors))
        x = Coordinates(flat[:, :-1], flat[:, -1])
        return log_prior(prior, x) - prior.log_prob(vectors) - jacobian

    assert np.ptp(jax.vmap(away)(raw)) < 1e-9


@pytest.mark.parametrize("name", HIERARCHIES)
def test_the_hierarchical_density_is_written_out(name, key):
    """Standard normals, exponential scales in their logarithms, and the chain of directions."""
    prior = make(name)
    x = draw_point(key, Priors(prior, prior)).gate
    expected = -0.5 * np.sum(np.asarray(x.vectors) ** 2)
    units = x.vectors / np.linalg.norm(x.vectors, axis=1, keepdims=True)
    expected += prior.directions.log_ratio_to_uniform(units)
    if prior.common:
        expected += -0.5 * np.sum(np.asarray(x.common) ** 2)
    for log_scale in np.atleast_1d(x.log_scales) if prior.n_scales else []:
        expected += expon(scale=0.7).logpdf(np.exp(log_scale)) + log_scale + np.log(0.7)
    np.testing.assert_allclose(log_prior(prior, x), expected, rtol=1e-6)


def prior_changes(module, prior, n_steps=2):
    """Exact prior draws, then HMC under log_prior alone."""

    def statistics(x):
        vectors = to_vectors(prior, x)
        lengths = jnp.linalg.norm(vectors, axis=-1)
        unit = vectors / lengths[:, None]
        cosines = (unit @ unit.T)[jnp.triu_indices(K, 1)]
        square = jnp.sum(x.vectors**2, axis=-1)
        scales = jnp.zeros(0) if x.log_scales is None else x.log_scales
        return jnp.concatenate([cosines, cosines**2, jnp.log(lengths), square, scales, scales**2])

    kernel = geodesic_hmc(0.6, 3, sphere=False)

    def density(x):
        return module.log_prior(prior, x)

    def one(key):
        key_start, key_moves = jax.random.split(key)
        x = draw_point(key_start, Priors(prior, prior)).gate

        def step(state, subkey):
            return kernel.step(subkey, state, density)[0], None

        state, _ = jax.lax.scan(step, kernel.init(x, density), jax.random.split(key_moves, n_steps))
        return statistics(state.position) - statistics(x)

    change = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(3), N_STARTS)))
    assert np.mean(np.any(change != 0, axis=1)) > 0.3, "most states did not move"
    return np.abs(change.mean(0)) / (change.std(0) / np.sqrt(N_STARTS))


@every_prior
def test_hamiltonian_steps_leave_exact_prior_draws_alone(name):
    assert prior_changes(coordinates, make(name)).max() < PASS


LENGTHS = "jnp.sum(jnp.log(components.magnitudes))"
FAULTS = {
    "no free length": ("I", LENGTHS + " + square", LENGTHS),
    "no log-length Jacobian": ("I", LENGTHS, "0.0"),
    "volume in the density": ("I", LENGTHS, LENGTHS + " + log_volume(prior, x)"),
    "no repulsion": ("common", "square + prior.log_ratio_to_gaussian(x.vectors)", "square"),
    "no density of the scales": ("common", "value += log_exponential", "_ = log_exponential"),
}


@pytest.mark.parametrize(
    "fault",
    [
        name if i == 0 else pytest.param(name, marks=pytest.mark.slow)
        for i, name in enumerate(FAULTS)
    ],
)
def test_a_wrong_density_of_the_coordinates_is_found(fault):
    name, old, new = FAULTS[fault]
    kept = {"PolarComponents": PolarComponents, "HierarchicalComponents": HierarchicalComponents}
    z = prior_changes(mutant(coordinates, old, new, **kept), make(name))
    assert not measured("max |z|", z.max(), FAIL) < FAIL


@every_prior
def test_volume_moves_the_free_length_of_the_mode_away_from_zero(name, key):
    prior = make(name)
    x = draw_point(key, Priors(prior, prior)).gate
    if not isinstance(prior, PolarComponents):
        assert log_volume(prior, x) == 0
        return

    def along(scale):
        moved = x._replace(vectors=scale * x.vectors)
        return log_prior(prior, moved) + log_volume(prior, moved)

    best = jnp.sqrt((P - 1) * K / jnp.sum(x.vectors**2))
    assert abs(jax.grad(along)(best)) < 1e-9


def problem(name, expert=LogisticExperts(), n_rows=40, seed=0, n=K, p=P):  # noqa: B008
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(n_rows, p))
    targets = generator.integers(0, max(2, expert.n_outputs), n_rows)
    batch = Data(*map(jnp.asarray, (rows, targets, generator.uniform(0, 2, n_rows))))
    gate = make("scale" if name in HIERARCHIES else name, n, p)
    return Problem(Priors(gate, make(name, n, p * expert.n_outputs)), expert, batch)


def typical_of(task, *points):
    each = [
        Typical(weights_of(task.priors, x, task.expert), scales_of(task.priors, x)) for x in points
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)


def whitening_of(task, *points):
    # A new function each time: a compiled one would remember the limit of another test.
    compiled = jax.jit(lambda p, x, b: fisher_whitening(p, x, task.expert, b))
    return compiled(task.priors, typical_of(task, *points), task.data)


@every_prior
def test_log_joint_is_prior_plus_likelihood(name, key):
    task = problem(name, SoftmaxExperts(3))
    x = draw_point(key, task.priors)
    weights = weights_of(task.priors, x, task.expert)
    parts = log_prior(task.priors.gate, x.gate) + log_prior(task.priors.experts, x.experts)
    parts += log_lik(task.expert, weights, task.data)
    np.testing.assert_allclose(log_joint(x, task), parts, rtol=1e-6)
    assert weights.experts.shape == (K, 3, P)


@every_prior
@pytest.mark.parametrize("whole", [True, False], ids=["matrix", "diagonal"])
@pytest.mark.parametrize("expert", [SoftmaxExperts(3), GaussianExperts()], ids=["alike", "apart"])
def test_whitening_has_an_inverse_and_the_jacobian_it_says(name, expert, whole, key, monkeypatch):
    if not whole:
        monkeypatch.setattr(whitened, "WIDEST", 0)
    task = problem(name, expert)
    points = [draw_point(k, task.priors) for k in jax.random.split(key, 4)]
    whitening = whitening_of(task, *points)
    assert (whitening.gate.vectors.basis is not None) == whole
    whitening = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.full_like(leaf, 0.3) if path[-1].name == "share" else leaf, whitening
    )
    volumes = []
    for x in points[:2]:
        u = whiten(whitening, x)
        back, volume = unwhiten(whitening, u)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), back, x)
        flat, undo = ravel_pytree(u)
        matrix = jax.jacfwd(lambda v, undo=undo: ravel_pytree(unwhiten(whitening, undo(v))[0])[0])(
            flat
        )
        volumes.append(np.linalg.slogdet(matrix)[1] - volume)
    np.testing.assert_allclose(volumes[0], volumes[1], rtol=1e-4)


def precision_of(root):
    return np.asarray((root.basis / root.width**2) @ root.basis.T)


def test_one_gaussian_expert_is_whitened_by_the_laplace_covariance(key):
    task = problem("gaussian", n=1)
    x = draw_point(key, task.priors)
    whitening = whitening_of(task, x)

    def density(vectors):
        return log_joint(Point(x.gate, Coordinates(vectors)), task)

    hessian = jax.hessian(density)(x.experts.vectors).reshape(P, P)
    np.testing.assert_allclose(precision_of(whitening.experts.vectors), -hessian, atol=1e-6)
    np.testing.assert_allclose(precision_of(whitening.gate.vectors), np.eye(P), atol=1e-6)


def test_one_gaussian_expert_of_a_quantity_is_whitened_output_by_output(key):
    """The mean by its exact posterior covariance, the noise by its expected information."""
    task = problem("gaussian", GaussianExperts(), n=1)
    x = draw_point(key, task.priors)
    found = whitening_of(task, x).experts.vectors
    rows, weights = np.asarray(task.data.rows), np.asarray(task.data.weights)
    scores = np.asarray(weights_of(task.priors, x, task.expert).experts)[0] @ rows.T
    noise = task.expert.noise(scores[1])
    for place, each in enumerate((1.0 / noise.variance, 2.0 * noise.slope**2)):
        expected = np.eye(P) + 1.7**2 * (rows.T * (weights * each)) @ rows
        root = jax.tree.map(lambda leaf, place=place: leaf[place], found)
        np.testing.assert_allclose(precision_of(root), expected, rtol=1e-5, atol=1e-6)


def test_information_is_averaged_over_points(key):
    task = problem("I")
    points = [draw_point(k, task.priors) for k in jax.random.split(key, 3)]
    alone = [precision_of(whitening_of(task, x).experts.vectors) for x in points]
    together = precision_of(whitening_of(task, *points).experts.vectors)
    np.testing.assert_allclose(together, np.mean(alone, 0), rtol=1e-6)
    assert not np.allclose(alone[0], alone[1])


def test_widths_come_from_draws_where_there_are_many(key):
    """Draws of the prior have width 1 and no share of the data; draws that stand still a share."""
    task = problem("common")
    points = jax.vmap(lambda k: draw_point(k, task.priors))(jax.random.split(key, 4000))
    values = jax.vmap(
        lambda x: {
            "weights": weights_of(task.priors, x, task.expert),
            "scales": scales_of(task.priors, x),
            "common": jnp.exp(x.experts.log_scales[1]) * x.experts.common,
        }
    )(points)
    draws = jax.tree.map(lambda leaf: leaf.reshape(4, 1000, *leaf.shape[1:]), values)
    first = whitening_of(task, draw_point(key, task.priors))
    found = refine(first, task.priors, draws)
    for root in (found.gate.vectors, found.experts.vectors, found.experts.common):
        np.testing.assert_allclose(root.width, 1.0, atol=0.06)
        assert root.share.max() < 0.12
    still = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, :1], 1000, axis=1), draws)
    assert refine(first, task.priors, still).experts.vectors.share.min() > 0.95


def test_components_have_widths_of_their_own_where_they_are_numbered_alike(key):
    """One narrow expert does not narrow the others, and the change of variable stays exact."""
    task = problem("common")
    rng = np.random.default_rng(0)
    narrow = np.array([0.1, *[1.0] * (K - 1)])[:, None]
    size = task.priors.experts.dim
    common = rng.normal(size=(4, 500, size))
    scales = {name: np.ones((4, 500)) for name in ("gate", "experts", "common")}
    gate = narrow * rng.normal(size=(4, 500, K, P))
    experts = common[:, :, None] + narrow * rng.normal(size=(4, 500, K, size))
    weights = as_weights(gate, experts, task.expert.n_outputs)
    draws = {"weights": weights, "scales": scales, "common": common}
    x = draw_point(key, task.priors)
    found = refine(whitening_of(task, x), task.priors, draws, True)
    for metric in found:
        widths = np.asarray(metric.vectors.width).reshape(K, -1)
        np.testing.assert_allclose(widths[0], 0.1, rtol=0.5)
        np.testing.assert_allclose(widths[1:], 1.0, atol=0.15)
    back, _ = unwhiten(found, whiten(found, x))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), back, x)
    u, restore = ravel_pytree(whiten(found, x))

    def flat(u):
        return ravel_pytree(unwhiten(found, restore(u))[0])[0]

    def volume(u):
        return jnp.linalg.slogdet(jax.jacfwd(flat)(u))[1]

    # Up to a constant.
    other = u + 0.3
    change = unwhiten(found, restore(other))[1] - unwhiten(found, restore(u))[1]
    np.testing.assert_allclose(change, volume(other) - volume(u), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["gaussian", "I", "common"])
@pytest.mark.parametrize("case", ["dead", "twins", "constant", "huge", "heavy", "no rows"])
def test_whitening_stays_finite_in_float32(name, case, key):
    task = problem(name)
    rows = np.array(task.data.rows)
    x = draw_point(key, task.priors)
    if case == "dead":
        x = Pair(from_vectors(task.priors.gate, 1e3 * jnp.eye(K, P)), x.experts)
    elif case == "twins":
        rows[:, 1] = rows[:, 0]
    elif case == "constant":
        rows[:, 1:] = 1.0
    elif case == "huge":
        rows[:, 1] *= 1e6
    weights = task.data.weights * {"heavy": 1e8, "no rows": 0.0}.get(case, 1.0)
    priors, x, batch = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf,
        (task.priors, Point(*x), Data(jnp.asarray(rows), task.data.targets, weights)),
    )
    whitening = whitening_of(Problem(priors, task.expert, batch), x)
    for leaf in jax.tree.leaves(whitening):
        assert leaf.dtype == jnp.float32
        assert np.isfinite(leaf).all()
    assert all(np.all(metric.vectors.width > 0) for metric in whitening)
