"""Free coordinates and whitening: exact by formula, or by invariance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import biject_to

from infer.invariance import FAIL, N_STARTS, PASS
from marks import first_quick
from mutants import mutant
from statistical import measured
from wideangle.infer.geodesic_hmc import geodesic_hmc
from wideangle.mixture_of_experts import coordinates
from wideangle.mixture_of_experts.coordinates import (
    Point,
    Priors,
    Problem,
    draw_point,
    fisher_whitening,
    from_vectors,
    log_joint,
    log_prior,
    log_volume,
    n_coordinates,
    to_vectors,
    weights_of,
)
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import (
    LogisticExperts,
    SoftmaxExperts,
    log_lik,
    predict,
)
from wideangle.priors.components import GaussianComponents, PolarComponents
from wideangle.priors.dpp import DeterminantalComponents
from wideangle.priors.mutual_angular import MutualAngular

K, P = 2, 3


pytestmark = pytest.mark.usefixtures("compile_quickly")


def make(name, n=K, p=P):
    if name == "gaussian":
        return GaussianComponents(n, p, 1.7)
    if name == "dpp":
        return DeterminantalComponents(n, p, 1.7)
    return PolarComponents(MutualAngular(n, p, 3.0, name), 2.0, 0.5)


PRIORS = ["gaussian", "I", "dpp", "II", "independent"]
every_prior = pytest.mark.parametrize("name", first_quick(PRIORS, 2))


@every_prior
def test_coordinates_and_vectors_are_there_and_back(name, key):
    prior = make(name)
    vectors = prior.sample(key)
    x = from_vectors(prior, vectors)
    assert x.shape == (K, n_coordinates(prior))
    np.testing.assert_allclose(to_vectors(prior, x), vectors, rtol=1e-12)
    # the length of the passenger says nothing about the vectors
    if isinstance(prior, PolarComponents):
        other = x.at[:, :-1].multiply(2.5)
        np.testing.assert_allclose(to_vectors(prior, other), vectors, rtol=1e-12)


@every_prior
def test_density_is_that_of_numpyro_up_to_a_constant(name, key):
    prior = make(name)
    transform = biject_to(prior.support)
    xs = jax.random.normal(key, (6, K, n_coordinates(prior)))

    def numpyro(x):
        vectors = transform(x) if isinstance(prior, PolarComponents) else to_vectors(prior, x)
        jacobian = (
            jnp.sum(transform.log_abs_det_jacobian(x, vectors))
            if isinstance(prior, PolarComponents)
            else 0.0
        )
        return prior.log_prob(vectors) + jacobian

    away = jax.vmap(lambda x: log_prior(prior, x) - numpyro(x))(xs)
    assert np.ptp(away) < 1e-9


def prior_changes(module, prior, n_steps=2):
    """Exact prior draws with their chi passenger, then HMC under log_prior alone."""
    polar = isinstance(prior, PolarComponents)

    def start(key):
        key_vectors, key_length = jax.random.split(key)
        x = from_vectors(prior, prior.sample(key_vectors))
        if not polar:
            return x
        length = jnp.linalg.norm(jax.random.normal(key_length, (K, P)), axis=-1, keepdims=True)
        return x.at[:, :-1].multiply(length / jnp.sqrt(P))

    def statistics(x):
        vectors = to_vectors(prior, x)
        lengths = jnp.linalg.norm(vectors, axis=-1)
        unit = vectors / lengths[:, None]
        cosines = (unit @ unit.T)[jnp.triu_indices(K, 1)]
        square = jnp.sum(x**2, axis=-1)
        return jnp.concatenate([cosines, cosines**2, lengths, jnp.log(lengths), square])

    kernel = geodesic_hmc(0.6, 3, sphere=False)

    def density(x):
        return module.log_prior(prior, x)

    def one(key):
        key_start, key_moves = jax.random.split(key)
        x = start(key_start)

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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ passenger\n", "\n"),
        pytest.param("+ jnp.sum(jnp.log(components.magnitudes)) +", "+", marks=pytest.mark.slow),
        pytest.param(
            "+ passenger\n", "+ passenger + log_volume(prior, x)\n", marks=pytest.mark.slow
        ),
    ],
    ids=["no passenger", "no log-length Jacobian", "volume in the density"],
)
def test_a_wrong_density_of_the_coordinates_is_found(old, new):
    broken = mutant(coordinates, old, new, PolarComponents=PolarComponents)
    z = prior_changes(broken, make("I"))
    assert not measured("max |z|", z.max(), FAIL) < FAIL


@every_prior
def test_volume_moves_the_passenger_of_the_mode_away_from_zero(name, key):
    prior = make(name)
    x = jax.random.normal(key, (K, n_coordinates(prior)))
    if not isinstance(prior, PolarComponents):
        assert log_volume(prior, x) == 0
        return

    def along(scale):
        moved = x.at[:, :-1].multiply(scale)
        return log_prior(prior, moved) + log_volume(prior, moved)

    best = jnp.sqrt((P - 1) * K / jnp.sum(x[:, :-1] ** 2))
    assert abs(jax.grad(along)(best)) < 1e-9


def problem(name, expert=LogisticExperts(), n_rows=40, seed=0, n=K, p=P):  # noqa: B008
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(n_rows, p))
    targets = generator.integers(0, max(2, expert.n_outputs), n_rows)
    batch = Data(*map(jnp.asarray, (rows, targets, generator.uniform(0, 2, n_rows))))
    return Problem(Priors(make(name, n, p), make(name, n, p * expert.n_outputs)), expert, batch)


def whiten(task, *points):
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *points)
    # A new function each time: a compiled one would remember the limit of another test.
    return jax.jit(lambda p, x, b: fisher_whitening(p, x, task.expert, b))(
        task.priors, stacked, task.data
    )


@every_prior
def test_log_joint_is_prior_plus_likelihood(name, key):
    task = problem(name, SoftmaxExperts(3))
    x = draw_point(key, task.priors)
    weights = weights_of(task.priors, x, task.expert)
    parts = log_prior(task.priors.gate, x.gate) + log_prior(task.priors.experts, x.experts)
    parts += log_lik(task.expert, weights, task.data)
    np.testing.assert_allclose(log_joint(x, task), parts)
    assert weights.experts.shape == (K, 3, P)


@every_prior
@pytest.mark.parametrize("joint", [True, False], ids=["joint", "apart"])
def test_whitening_is_solved_by_its_inverse_and_has_the_right_covariance(
    name, joint, key, monkeypatch
):
    if not joint:
        monkeypatch.setattr(coordinates, "JOINT_LIMIT", 0)
    task = problem(name, SoftmaxExperts(3))
    x = draw_point(key, task.priors)
    whitening = whiten(task, x)
    assert whitening.gate.ndim == (2 if joint else 3)
    for one, two in zip(whitening.solve(whitening.apply(x)), x, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)
    for root in whitening:
        precision = np.linalg.inv(root @ np.swapaxes(root, -1, -2))
        assert np.linalg.eigvalsh(precision).min() > 1 - 1e-9


def covariance_of(root):
    return np.asarray(root @ jnp.swapaxes(root, -1, -2))


def test_gate_information_couples_all_gates_as_the_hessian_says(key, monkeypatch):
    """Were the choice seen, the gate's precision would be minus the Hessian of E log softmax."""
    monkeypatch.setattr(coordinates, "SEEN", 1.0)
    task = problem("gaussian")
    x = draw_point(key, task.priors)
    whitening = whiten(task, x)
    rows, scale = task.data.rows, 1.7
    chances = jax.nn.softmax(rows @ (scale * x.gate).T)

    def expected_log_gate(gate):
        log_gate = jax.nn.log_softmax(scale * rows @ gate.T)
        return jnp.sum(task.data.weights * jnp.sum(jax.lax.stop_gradient(chances) * log_gate, 1))

    hessian = jax.hessian(expected_log_gate)(x.gate).reshape(K * P, K * P)
    covariance = np.linalg.inv(np.eye(K * P) - hessian)
    np.testing.assert_allclose(covariance_of(whitening.gate), covariance, atol=1e-10)


def test_what_targets_say_about_gates_is_minus_the_expected_hessian(key, monkeypatch):
    """Of one row, over its possible targets: the identity that defines Fisher's information."""
    monkeypatch.setattr(coordinates, "SEEN", 0.0)
    task = problem("gaussian", SoftmaxExperts(3), n_rows=1)
    x = draw_point(key, task.priors)
    weights = weights_of(task.priors, x, task.expert)
    chances = predict(task.expert, weights, task.data.rows)[0]
    said = expected = 0.0
    for target, chance in enumerate(chances):
        own = task._replace(data=task.data._replace(targets=jnp.array([target])))
        said += chance * np.linalg.inv(covariance_of(whiten(own, x).gate))

        def density(gate, own=own):
            return log_lik(
                own.expert, weights_of(own.priors, Point(gate, x.experts), own.expert), own.data
            )

        expected -= chance * jax.hessian(density)(x.gate).reshape(K * P, K * P)
    np.testing.assert_allclose(said - np.eye(K * P), expected, atol=1e-9)
    assert np.abs(expected).max() > 1e-2


@pytest.mark.parametrize("joint", [True, False], ids=["joint", "apart"])
def test_information_is_averaged_over_points(joint, key, monkeypatch):
    if not joint:
        monkeypatch.setattr(coordinates, "JOINT_LIMIT", 0)
    task = problem("I")
    points = [draw_point(k, task.priors) for k in jax.random.split(key, 3)]
    alone = [
        jax.tree.map(lambda r: np.linalg.inv(covariance_of(r)), whiten(task, x)) for x in points
    ]
    together = jax.tree.map(lambda r: np.linalg.inv(covariance_of(r)), whiten(task, *points))
    for i in range(2):
        np.testing.assert_allclose(together[i], np.mean([one[i] for one in alone], 0), rtol=1e-8)
    assert not np.allclose(alone[0][1], alone[1][1])


def test_one_gaussian_expert_is_whitened_by_the_laplace_covariance(key):
    task = problem("gaussian", n=1)
    x = draw_point(key, task.priors)
    whitening = whiten(task, x)
    hessian = jax.jit(jax.hessian(lambda e: log_joint(Point(x.gate, e), task)))(x.experts)
    laplace = np.linalg.inv(-hessian.reshape(P, P))
    root = whitening.experts[0]
    np.testing.assert_allclose(root @ root.T, laplace, atol=1e-10)
    np.testing.assert_allclose(whitening.gate @ whitening.gate.T, np.eye(P), atol=1e-10)


@pytest.mark.parametrize("name", ["gaussian", "I"])
@pytest.mark.parametrize("case", ["dead", "twins", "constant", "huge", "heavy", "no rows"])
def test_whitening_stays_finite_in_float32(name, case, key):
    task = problem(name)
    rows = np.array(task.data.rows)
    x = draw_point(key, task.priors)
    if case == "dead":
        x = from_vectors(task.priors.gate, 1e3 * jnp.eye(K, P)), x.experts
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
    whitening = whiten(Problem(priors, task.expert, batch), x)
    for root in whitening:
        assert root.dtype == jnp.float32
        assert np.isfinite(root).all()
        assert np.all(np.diagonal(root, axis1=-2, axis2=-1) > 0)
