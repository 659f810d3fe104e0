"""The paper's variational inference: every update climbs, the bound is one, and wrong ones show."""

import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import polygamma

from statistical import FOUR, central_difference, measured
from wideangle import GaussianComponents, MutualAngular, PolarComponents
from wideangle.mixture_of_experts.classes import LogisticExperts
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import Pair, log_lik
from wideangle.mixture_of_experts.task import Regulariser
from wideangle.priors.factors import VmfGammaFactors
from wideangle.sphere.geometry import angular_spread
from wideangle_lab.paper.coordinate_ascent import bounds
from wideangle_lab.paper.coordinate_ascent import factor_objective as objective
from wideangle_lab.paper.coordinate_ascent import factor_updates as updates
from wideangle_lab.paper.coordinate_ascent import mixture_bound as mixture
from wideangle_lab.paper.coordinate_ascent.ascent import coordinate_ascent, initial_state

pytestmark = pytest.mark.usefixtures("compile_quickly")
N, P, K = 40, 4, 3  # one shape for most tests: compiling a sweep is what takes time
SEEDS = range(6)


def make_batch(seed, n=N, p=P, k=K, dtype=float):
    """Rows with an intercept and targets from a true mixture; uneven weights."""
    rng = np.random.default_rng(seed)
    rows = np.c_[rng.normal(size=(n, p - 1)), np.ones(n)]
    experts, gate = 3.0 * rng.normal(size=(2, k, p))
    choice = np.argmax(rows @ gate.T + rng.gumbel(size=(n, k)), axis=1)
    chance = 1.0 / (1.0 + np.exp(-np.sum(rows * experts[choice], axis=1)))
    targets = rng.random(n) < chance
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], size=n, p=[0.05, 0.2, 0.7, 0.05])
    return Data(
        jnp.asarray(rows, dtype), jnp.asarray(targets.astype(int)), jnp.asarray(weights, dtype)
    )


def make_prior(p=P, k=K, concentration=6.0, kind="II"):
    first = np.eye(p)[0]
    return PolarComponents(MutualAngular(k, p, concentration, kind, first), 2.0, 0.5)


def make_factors(seed, p=P, k=K):
    rng = np.random.default_rng(100 + seed)

    def one():
        directions = rng.normal(size=(k, p))
        return VmfGammaFactors(
            jnp.asarray(directions / np.linalg.norm(directions, axis=1, keepdims=True)),
            jnp.asarray(p * rng.gamma(1.0, 3.0, size=k)),
            jnp.asarray(rng.gamma(2.0, 5.0, size=k) + 0.1),
            jnp.asarray(rng.gamma(2.0, 2.0, size=k) + 0.1),
        )

    return Pair(one(), one())


def make_state(seed, priors=None, settled=False):
    """Random factors with random (not best) row variables."""
    data = mixture.SignedData.of(make_batch(seed))
    priors = (make_prior(), make_prior()) if priors is None else priors
    state = initial_state(make_factors(seed), priors, data)
    if not settled:
        rng = np.random.default_rng(200 + seed)
        state = state._replace(
            responsibilities=jnp.asarray(rng.dirichlet(np.ones(K), size=N).T),
            gate_splits=jnp.asarray(rng.gamma(1.0, 2.0, size=(K, N))),
            expert_splits=jnp.asarray(rng.gamma(1.0, 2.0, size=(K, N))),
            shifts=jnp.asarray(rng.normal(size=N)),
        )
    return state, data


def on_family(name, change):
    """Lift an update of one set of factors to the state."""
    evidence = mixture.gate_evidence if name == "gate" else mixture.expert_evidence

    def update(state, data):
        family = getattr(state, name)
        return state._replace(**{name: change(family, evidence(state, data))})

    return update


def from_sums(change):
    return lambda family, evidence: change(family, objective.summarise(family, evidence))


UPDATES = {
    "shifts": mixture.update_shifts,
    "gate splits": mixture.update_gate_splits,
    "expert splits": mixture.update_expert_splits,
    "responsibilities": mixture.update_responsibilities,
    "priors": lambda state, data: mixture.update_priors(state, Pair(True, True)),
    **{
        f"{name} {what}": on_family(name, change)
        for name in ("gate", "experts")
        for what, change in (
            ("directions", updates.update_directions),
            ("magnitudes", from_sums(updates.update_magnitudes)),
            ("concentrations", from_sums(updates.update_concentrations)),
        )
    },
}
bound = jax.jit(mixture.bound)


def smallest_change(update, seeds=SEEDS, repeats=4, bound=bound, **options):
    """Smallest change of the bound over repeated updates from random states; NaN is passed on."""
    changes = []
    update = jax.jit(update)
    for seed in seeds:
        state, data = make_state(seed, **options)
        value = bound(state, data)
        for _ in range(repeats):
            state = update(state, data)
            new = bound(state, data)
            changes.append(float((new - value) / (1.0 + abs(value))))
            value = new
    return min(changes), max(changes)


@pytest.mark.parametrize("name", UPDATES)
def test_no_update_lowers_the_bound(name):
    low, high = smallest_change(UPDATES[name])
    assert low > -1e-11
    assert high > 1e-6  # and it does something


def test_closed_forms_are_the_maximum():
    state, data = make_state(0)
    value = jax.jit(objective.family_objective)
    for name, evidence in (("gate", mixture.gate_evidence), ("experts", mixture.expert_evidence)):
        family = getattr(state, name)
        sums = objective.summarise(family, evidence(state, data))
        best = jax.jit(updates.update_magnitudes)(family, sums)
        for part in ("shapes", "rates"):
            for factor in (0.97, 1.03):
                changed = {part: factor * getattr(best.factors, part)}
                moved = best._replace(factors=best.factors._replace(**changed))
                assert value(moved, sums) < value(best, sums)


def test_trigamma_excess():
    r = np.geomspace(1e-3, 1e6, 200)
    exact = r * (r * polygamma(1, r) - 1.0)
    np.testing.assert_allclose(updates._trigamma_excess(jnp.asarray(r)), exact, rtol=2e-9)
    assert np.all(exact > 0.5 - 1e-9) and np.all(exact < 1.0)


@pytest.mark.parametrize("kind", ["II", "independent", "gaussian"])
def test_written_gradients_agree_with_autodiff(kind):
    prior = GaussianComponents(K, P, 1.5) if kind == "gaussian" else make_prior(kind=kind)
    state, data = make_state(1, (prior, prior))
    family, evidence = state.experts, mixture.expert_evidence(state, data)

    def value(directions, concentrations):
        factors = family.factors._replace(mean_directions=directions, concentrations=concentrations)
        new = family._replace(
            factors=factors,
            along=objective.project(directions, data.rows),
            angular=objective.angular_moments(concentrations, P),
        )
        return objective.family_objective(new, objective.summarise(new, evidence))

    at = family.factors.mean_directions, family.factors.concentrations
    by_direction, by_concentration = jax.jit(jax.grad(value, argnums=(0, 1)))(*at)
    sums = objective.summarise(family, evidence)
    written = jax.jit(updates.concentration_gradient)(family, sums)
    np.testing.assert_allclose(written, by_concentration, rtol=1e-8, atol=1e-12)
    numbers = central_difference(jax.jit(lambda k: value(at[0], k)), at[1], 1e-5)
    np.testing.assert_allclose(by_concentration, numbers, rtol=1e-5, atol=1e-8)
    # Off the sphere |e_k|^2 is no constant, so only the tangent parts are the same.
    flat = partial(jax.vmap(lambda m, v: v - m * (m @ v)), at[0])
    written = flat(jax.jit(updates.direction_gradient)(family, evidence))
    np.testing.assert_allclose(written, flat(by_direction), rtol=1e-8, atol=1e-9)


# --- wrong variants must show -------------------------------------------------------------------


def unsigned_evidence(state, data):
    return mixture.expert_evidence(state, data._replace(signs=jnp.ones_like(data.signs)))


def without_sign(state, data):
    family = state.experts
    evidence = unsigned_evidence(state, data)
    family = updates.update_magnitudes(
        updates.update_directions(family, evidence), objective.summarise(family, evidence)
    )
    return state._replace(experts=family)


def shifts_per_component(state, data):
    """The best c if it were subtracted K times: no K/2 - 1 but K/2 - K."""
    means, _ = objective.projection_moments(state.gate, data.squares)
    weights = bounds.logistic_curvature(state.gate_splits)
    total = 2.0 * jnp.sum(weights * means, axis=0) + 0.5 * K - K
    return state._replace(shifts=total / (2.0 * jnp.sum(weights, axis=0)))


def downward_curvature(state, data):
    """Directions with the sign of lambda reversed: the quadratic pushes outward."""
    evidence = mixture.gate_evidence(state, data)
    wrong = evidence._replace(quadratic=-evidence.quadratic)
    gradient = updates.direction_gradient(state.gate, wrong)
    factors = state.gate.factors
    new = factors.mean_directions + 0.01 * gradient
    new = new / jnp.linalg.norm(new, axis=-1, keepdims=True)
    factors = factors._replace(mean_directions=new)
    along = objective.project(new, data.rows)
    return state._replace(gate=state.gate._replace(factors=factors, along=along))


def entropy_without_constant(state, data):
    """Concentrations by the printed entropy, -kappa A alone: its slope misses +A."""
    family = state.experts
    sums = objective.summarise(family, mixture.expert_evidence(state, data))
    kappa = family.factors.concentrations
    gradient = updates.concentration_gradient(family, sums) - family.angular.resultant
    new = kappa * jnp.exp(0.05 * jnp.sign(gradient))
    changed = family._replace(
        factors=family.factors._replace(concentrations=new),
        angular=objective.angular_moments(new, P),
    )
    return state._replace(experts=changed)


def exact_elbo(key, factors, priors, batch, n_draws):
    """Monte Carlo of the collapsed evidence lower bound, and its standard error.

    The choice is summed out and the priors enter exactly, so this is above the bound that the
    ascent raises by all of its slack.
    """
    draws = elbo_draws(jax.random.split(key, n_draws), factors, Pair(*priors), batch)
    return jnp.mean(draws), jnp.std(draws, ddof=1) / np.sqrt(n_draws)


@jax.jit
def elbo_draws(keys, factors, priors, batch):
    def one(key):
        pairs = zip(factors, jax.random.split(key), strict=True)
        draws = Pair(*(factor.sample(k) for factor, k in pairs))
        weights = Pair(draws.gate.vectors, draws.experts.vectors[:, None])
        value = log_lik(LogisticExperts(), weights, batch)
        for factor, prior, draw in zip(factors, priors, draws, strict=True):
            value += prior.log_prob_polar(draw) - factor.log_prob_polar(draw)
        return value

    return jax.lax.map(one, keys)


@pytest.mark.parametrize(
    "wrong",
    [without_sign, shifts_per_component, downward_curvature, entropy_without_constant],
    ids=lambda f: f.__name__,
)
def test_wrong_updates_lower_the_bound(wrong):
    low, _ = smallest_change(wrong, repeats=2, settled=True)
    assert measured("nats lost in one update", -low, 1e-5) > 1e-5


def test_the_printed_expert_term_is_not_a_bound(key):
    """All targets 0 and directions that say 1: without (2y - 1) the term looks excellent."""
    batch = make_batch(0)
    batch = batch._replace(targets=jnp.zeros(N, int), weights=jnp.ones(N))
    towards = jnp.zeros((K, P)).at[:, -1].set(1.0)  # the intercept
    flipped = VmfGammaFactors(towards, jnp.full(K, 200.0), jnp.full(K, 50.0), jnp.full(K, 10.0))
    factors, priors = Pair(make_factors(0).gate, flipped), (make_prior(), make_prior())
    data = mixture.SignedData.of(batch)
    state = initial_state(factors, priors, data)
    exact, error = exact_elbo(key, factors, priors, batch, 1000)
    assert bound(state, data) < exact + FOUR * error
    printed = data._replace(signs=jnp.ones(N))
    state = mixture.update_responsibilities(state, printed)
    above = bound(state, printed) - exact
    assert measured("nats above the exact bound", above, 50.0) > 50.0


def test_bound_is_below_the_exact_elbo(key):
    priors = (make_prior(), make_prior(concentration=1.0))
    for seed in range(4):
        state, data = make_state(seed, priors, settled=True)
        batch, factors = make_batch(seed), Pair(state.gate.factors, state.experts.factors)
        exact, error = exact_elbo(key, factors, priors, batch, 1000)
        assert bound(state, data) < exact + FOUR * error
        assert bound(state, data) > exact - 300.0  # random factors: loose, but nothing is missing


# --- the whole ascent ---------------------------------------------------------------------------


def fit(batch, priors=None, **options):
    priors = Pair(*((make_prior(), make_prior()) if priors is None else priors))
    polar = Pair(*(isinstance(prior, PolarComponents) for prior in priors))
    return coordinate_ascent(
        jax.random.key(3), batch, priors, **({"max_sweeps": 12, "learn": polar} | options)
    )


def assert_sound(result, slack=1e-9):
    assert np.isfinite(result.bounds).all()
    assert np.diff(result.bounds).min(initial=0.0) >= -slack * np.abs(result.bounds).max()
    for leaf in jax.tree.leaves((result.factors, result.priors)):
        assert np.isfinite(leaf).all()


def test_ascent_climbs_below_the_elbo_stops_compiles_once_and_survives_hard_data(key):
    seen = []
    batch = make_batch(2)
    result = fit(batch, max_sweeps=300, tolerance=1e-4, callback=lambda *at: seen.append(at))
    assert mixture.sweep._cache_size() == 1
    assert result.converged and not result.interrupted
    assert seen == list(enumerate(result.bounds, 1))
    rule = 5 * 1e-4 * float(np.sum(batch.weights))
    gains = result.bounds[5:] - result.bounds[:-5]
    assert gains[-1] < rule and np.all(gains[:-1] >= rule)
    assert_sound(result)
    exact, error = exact_elbo(key, result.factors, result.priors, batch, 1000)
    assert result.bounds[-1] < exact + FOUR * error
    assert exact - result.bounds[-1] < 25.0
    again = fit(batch, start=result.factors, priors=result.priors)
    assert again.bounds[0] >= result.bounds[-1] - 1e-9
    assert result.priors.experts.magnitude_shape != 2.0  # learned
    for hard in hard_batches().values():
        assert_sound(fit(hard, max_sweeps=30))
    assert mixture.sweep._cache_size() == 1


def hard_batches():
    base = make_batch(3)
    rows, ones = base.rows, jnp.ones(N)
    doubled = jnp.concatenate([rows[: N // 2]] * 2)
    side = (rows[:, 0] > 0).astype(int)
    return {
        "duplicated rows": base._replace(rows=doubled),
        "duplicated columns": base._replace(rows=rows.at[:, 1].set(rows[:, 0])),
        "constant columns": base._replace(rows=rows.at[:, 1].set(7.0).at[:, 2].set(0.0)),
        "separable": Data(rows, side, ones),
        "one class": base._replace(targets=jnp.zeros(N, int)),
        "imbalance": base._replace(targets=jnp.zeros(N, int).at[0].set(1), weights=ones),
        "large": base._replace(rows=1e3 * rows),
        "tiny": base._replace(rows=1e-6 * rows),
        "no rows": base._replace(rows=jnp.zeros_like(rows)),
        "no weight": base._replace(weights=jnp.zeros(N)),
    }


def test_row_weights_count_rows():
    base, priors = make_batch(4), (make_prior(), make_prior())
    half = N // 2
    twice = Data(*(jnp.concatenate([part[:half]] * 2) for part in base))
    twice = mixture.SignedData.of(twice._replace(weights=jnp.ones(N)))
    heavy = jnp.ones(N).at[:half].set(2.0).at[half:].set(0.0)
    heavy = mixture.SignedData.of(base._replace(weights=heavy))
    left, right = (bound(initial_state(make_factors(0), priors, d), d) for d in (twice, heavy))
    np.testing.assert_allclose(left, right, rtol=1e-12)


@pytest.fixture
def pretend(monkeypatch):
    """Replace the sweep by a given sequence of bounds: nothing to compile."""

    def install(values):
        turn = iter(values)
        monkeypatch.setattr(
            "wideangle_lab.paper.coordinate_ascent.ascent.sweep",
            lambda state, *_, **__: (state, next(turn)),
        )

    return install


def test_the_stopping_rule_looks_at_five_sweeps(pretend):
    batch = make_batch(5)
    total = float(np.sum(batch.weights))
    gains = np.array([9.0, 9.0, 0.0, 0.0, 0.0, 0.0, 9.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9])
    pretend(np.cumsum(gains) * 1e-3 * total)
    result = fit(batch, tolerance=1e-3, max_sweeps=20)
    assert (
        result.converged and len(result.bounds) == 12
    )  # one plateau of four sweeps is passed over
    pretend(range(100))
    result = fit(batch, max_sweeps=7, tolerance=0.0)
    assert not result.converged and len(result.bounds) == 7


def test_ctrl_c_keeps_the_last_sweep(pretend):
    def stop(count, _):
        if count == 3:
            raise KeyboardInterrupt

    pretend([-3.0, -2.0, -1.0, 0.0])
    part = fit(make_batch(5), callback=stop)
    assert part.interrupted and not part.converged and len(part.bounds) == 3
    np.testing.assert_array_equal(part.bounds, [-3.0, -2.0, -1.0])
    assert_sound(part)


def test_regularised_directions_climb_and_spread():
    strength, gamma = 30.0, 1.0
    step = jax.jit(partial(updates.update_regularised_directions, strength=strength, gamma=gamma))
    value = jax.jit(
        lambda family, evidence: objective.family_objective(
            family, objective.summarise(family, evidence), strength, gamma
        )
    )
    for seed in SEEDS:
        state, data = make_state(seed)
        family, evidence = state.experts, mixture.expert_evidence(state, data)
        before = value(family, evidence)
        for _ in range(10):
            family = step(family, evidence)
            after = value(family, evidence)
            assert after >= before - 1e-10 * (1.0 + abs(before))
            before = after
        spread = angular_spread(family.factors.mean_directions)
        assert spread > angular_spread(state.experts.factors.mean_directions)
        np.testing.assert_allclose(
            family.along, objective.project(family.factors.mean_directions, data.rows), atol=1e-12
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": jnp.full(N, 2)}, "two classes"),
        ({"rows": jnp.ones((N, P), int)}, "floating"),
        ({"weights": -jnp.ones(N)}, "weights"),
        ({"rows": jnp.full((N, P), jnp.nan)}, "rows"),
    ],
)
def test_wrong_batches_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        fit(make_batch(0)._replace(**change))


def test_wrong_priors_are_named():
    with pytest.raises(ValueError, match="kind='I'"):
        fit(make_batch(0), (make_prior(), make_prior(kind="I")))
    with pytest.raises(ValueError, match="prior of the experts"):
        fit(make_batch(0), (make_prior(k=K + 1), make_prior()))


# --- other shapes and precisions: a compile each --------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("n", "p", "k"), [(60, 3, 1), (5, 4, 9), (60, 123, 5), (30, 2, 2)])
def test_other_shapes(key, n, p, k):
    batch = make_batch(0, n, p, k)
    result = fit(batch, (make_prior(p, k, p), make_prior(p, k, p)), max_sweeps=60)
    assert_sound(result)
    exact, error = exact_elbo(key, result.factors, result.priors, batch, 500)
    assert result.bounds[-1] < exact + FOUR * error


@pytest.mark.slow
@pytest.mark.parametrize(
    "priors",
    [
        (GaussianComponents(K, P, 2.0), GaussianComponents(K, P, 2.0)),
        (make_prior(kind="independent"), make_prior(concentration=0.0)),
        (PolarComponents(MutualAngular(K, P, 3.0, "II"), 0.3, 5.0), GaussianComponents(K, P)),
    ],
    ids=["gaussian", "independent", "mixed"],
)
def test_other_priors(key, priors):
    batch = make_batch(1)
    result = fit(batch, priors, max_sweeps=60)
    assert_sound(result)
    exact, error = exact_elbo(key, result.factors, result.priors, batch, 1000)
    assert result.bounds[-1] < exact + FOUR * error


@pytest.mark.slow
def test_float32_follows_float64():
    options = {"start": make_factors(2), "max_sweeps": 20, "tolerance": 0.0}
    double = fit(make_batch(2), **options)
    single = fit(make_batch(2, dtype=jnp.float32), **options)
    assert single.factors.experts.mean_directions.dtype == jnp.float32
    assert_sound(single, slack=1e-5)
    np.testing.assert_allclose(single.bounds, double.bounds, rtol=1e-3)


@pytest.mark.slow
def test_regularised_ascent_is_monotone_and_more_diverse():
    options = {"max_sweeps": 60, "learn": Pair(False, False)}
    plain = fit(make_batch(2), **options)
    spread = fit(make_batch(2), regulariser=Regulariser(Pair(50.0, 50.0), 1.0), **options)
    assert_sound(spread)
    for name in ("gate", "experts"):
        wide, narrow = (getattr(r.factors, name).mean_directions for r in (spread, plain))
        assert angular_spread(wide) >= angular_spread(narrow) - 1e-6
    # The regularised objective at the plain fit is no better than what regularisation found.
    held = plain.bounds[-1] + 50.0 * sum(
        float(angular_spread(f.mean_directions)) for f in plain.factors
    )
    assert spread.bounds[-1] > held - 3.0


SCRIPT = """
import hashlib, os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
import jax, numpy as np
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import Pair
from wideangle.priors.components import GaussianComponents
from wideangle_lab.paper.coordinate_ascent.ascent import coordinate_ascent
rows = np.random.default_rng(0).normal(size=(600, 100)).astype(np.float32)
data = Data(rows, (rows[:, 0] * rows[:, 1] > 0).astype(np.int32), np.ones(600, np.float32))
prior = GaussianComponents(20, 100, np.float32(1.0))
found = coordinate_ascent(jax.random.key(0), data, Pair(prior, prior), max_sweeps=6)
leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(found.factors)]
print(hashlib.sha256(b"".join(leaves)).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are counted by Linux")
@pytest.mark.usefixtures("compile_quickly")
def test_one_thread_and_several_end_at_the_same_bits():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one core")
    options = {"capture_output": True, "text": True}
    commands = [[sys.executable, "-c", SCRIPT, n_cores] for n_cores in ("1", "64")]
    one, several = (subprocess.run(command, check=True, **options) for command in commands)
    assert one.stdout == several.stdout != ""
