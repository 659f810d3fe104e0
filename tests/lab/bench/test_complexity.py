"""Hot paths keep their complexity class: counted, not timed.

Programs are read for shapes n, 2n and 3n of one axis: their cost must be a straight line and their
length the same. Every check is shown to fail on a program with the fault that it is there for.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from counting import CALLBACKS, bend, compilations, lines_run, read, resized
from wideangle.latent_features import assignments, device
from wideangle.latent_features.directions import steps_of
from wideangle.latent_features.rows import DenseRows
from wideangle.latent_features.sweep import sweep_on_device
from wideangle.mixture_of_experts.collapsed import Objective, Terms
from wideangle.mixture_of_experts.coordinates import Coordinates, Point, Priors, Problem, Setting
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.guides import GaussianGuide, Guides
from wideangle.mixture_of_experts.likelihood import Pair, Weights
from wideangle.mixture_of_experts.sampling import SAMPLERS
from wideangle.mixture_of_experts.whitened import Metric, Root
from wideangle_lab.bench import expert_problem, works
from wideangle_lab.bench import features as feature_bench
from wideangle_lab.bench.harness import Size

# Distinct, and found in no other shape, so that one axis can be stretched in all leaves at once.
ROWS, COLUMNS, EXPERTS = 167, 37, 11  # three times the rows are one block of the likelihood
STRAIGHT = 1e-3


def shape(*sizes, dtype=np.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def experts_problem(rows=ROWS, columns=COLUMNS, experts=EXPERTS):
    """Priors, weights and rows of a mixture of experts: shapes only."""
    prior = expert_problem.prior_of(Size(rows, columns, experts))
    weights = Weights(shape(experts, columns), shape(experts, 1, columns))
    batch = Data(shape(rows, columns), shape(rows, dtype=np.int32), shape(rows))
    return prior, weights, batch


def gradient(*sizes):
    _, weights, batch = experts_problem(*sizes)
    return expert_problem.value_and_gradient, weights, batch


def density(*sizes):
    prior, weights, _ = experts_problem(*sizes)
    return jax.value_and_grad(lambda x, prior: prior.log_prob(x)), weights.gate, prior


def step_of_vi(*sizes):
    prior, weights, batch = experts_problem(*sizes)
    n_experts, columns = weights.gate.shape
    guide = GaussianGuide(*(shape(1, n_experts, columns) for _ in GaussianGuide._fields))
    terms = Terms(Priors(prior, prior), shape(1))
    table = shape(4 * n_experts * batch.rows.shape[0])

    def value(guides, key, batch, constants):
        return jnp.sum(Objective(expert_problem.EXPERT)(key, guides, batch, constants))

    arguments = Guides(guide, guide), jax.random.key(0), tuple(batch), (table, terms)
    return jax.grad(value), *arguments


def draw_of_mcmc(*sizes):
    prior, weights, batch = experts_problem(*sizes)
    n_experts, columns = weights.gate.shape
    method, priors = SAMPLERS["hmc"], Priors(prior, prior)
    x = Coordinates(shape(n_experts, columns), shape(n_experts))
    root = Root(shape(columns, columns), shape(columns), shape(columns))
    metric = Metric(root, None, shape(), None, None)

    def setting(priors, whitening, batch):
        return Setting(Problem(priors, expert_problem.EXPERT, batch), whitening)

    def enter(x, *given):
        return method.enter(x, setting(*given))

    def draw(key, step, latents, *given):
        steps = {"weights": step, "iteration": jnp.int32(0)}
        return method.recipe(steps, setting(*given))(key, latents)

    given = priors, Pair(metric, metric), batch
    latents = jax.eval_shape(enter, Point(x, x), *given)
    return draw, jax.random.key(0), shape(), latents, *given


PROGRAMS = {"gradient": gradient, "density": density, "VI": step_of_vi, "MCMC": draw_of_mcmc}
LINEAR = [
    ("gradient", 0),
    ("gradient", 1),
    ("gradient", 2),
    ("density", 1),
    ("VI", 0),
    ("VI", 1),
    ("MCMC", 0),
]
"""Program and the number of the axis: rows, columns, experts."""


def stretched(axis):
    sizes = [ROWS, COLUMNS, EXPERTS]
    return [[n * (factor if i == axis else 1) for i, n in enumerate(sizes)] for factor in (1, 2, 3)]


@pytest.mark.parametrize(("name", "axis"), LINEAR)
def test_cost_is_linear_and_nothing_is_unrolled(name, axis):
    programs = [read(*PROGRAMS[name](*sizes)) for sizes in stretched(axis)]
    assert len({program.size for program in programs}) == 1
    assert bend([program.bytes for program in programs]) < STRAIGHT
    assert bend([program.flops for program in programs]) < STRAIGHT
    assert programs[2].flops > 1.2 * programs[0].flops  # the axis matters at all


@pytest.mark.parametrize("name", ["density", "VI", "MCMC"])
def test_programs_are_as_long_for_many_experts_as_for_few(name):
    few, many = (read(*PROGRAMS[name](64, 7, experts)) for experts in (3, 12))
    assert few.size == many.size


def test_trajectories_and_blocks_of_rows_are_loops():
    draw, step = read(*draw_of_mcmc()), read(*gradient())
    assert draw.primitives["dot_general"] < 8 * step.primitives["dot_general"]
    assert read(*gradient(5_000, 7, 3)).size == read(*gradient(50_000, 7, 3)).size


def test_the_checks_see_a_square_array_and_an_unrolled_loop():
    def square(weights, batch):
        value, slopes = expert_problem.value_and_gradient(weights, batch)
        return value + jnp.sum(jnp.exp(batch.rows @ batch.rows.T)), slopes

    def unrolled(weights, batch):
        return sum(jnp.sum(batch.rows @ weights.gate[k]) for k in range(weights.gate.shape[0]))

    bad = [read(square, *gradient(*sizes)[1:]) for sizes in stretched(0)]
    assert bend([program.bytes for program in bad]) > 10 * STRAIGHT
    assert bend([program.flops for program in bad]) > 10 * STRAIGHT
    longer = [read(unrolled, *gradient(*sizes)[1:]).size for sizes in stretched(2)]
    assert longer[0] < longer[1] < longer[2]


@pytest.fixture(scope="module")
def device_sweep():
    """A sweep of the feature sampler as it runs on a device, and its arguments."""
    sweeper = feature_bench.dense_sweeper(0, Size(101, COLUMNS, 5))
    chain = sweeper.chain
    rows = DenseRows(np.zeros((101, COLUMNS), np.float32))
    return sweeper.design, (chain.key, chain.features, rows, chain.tuning)


def test_a_sweep_on_a_device_is_linear_in_the_rows_and_never_asks_the_host(device_sweep):
    design, arguments = device_sweep

    def sweep(key, features, rows, tuning):
        steps = steps_of(tuning, False)
        return sweep_on_device(key, features, rows, design, steps, fixed_length=True)

    programs = [read(sweep, *resized(arguments, 101, factor * 1009)) for factor in (1, 2, 3)]
    assert len({program.size for program in programs}) == 1
    # Bytes: XLA counts a cumulative sum as written, a window as long as the rows, which it is not.
    assert bend([program.bytes for program in programs]) < STRAIGHT
    assert not CALLBACKS & programs[0].primitives.keys()

    def faults(key, features, rows, tuning):
        seen = jax.pure_callback(lambda x: x, shape(), features.weights[0])
        return seen, jnp.sum(jnp.exp(rows.rows @ rows.rows.T))

    bad = [read(faults, *resized(arguments, 101, factor * 1009)) for factor in (1, 2, 3)]
    assert CALLBACKS & bad[0].primitives.keys()
    added = [good.bytes + more.bytes for good, more in zip(programs, bad, strict=True)]
    assert bend(added) > 10 * STRAIGHT


@pytest.mark.slow
def test_sweeps_on_a_device_move_nothing_between_host_and_device(device_sweep):
    design, (key, features, rows, tuning) = device_sweep
    counts = [jnp.int32(n) for n in (0, 3, 1)]
    state = jax.device_put((features, tuning))
    rows = jax.device_put(rows)
    advance = partial(device._advance, design=design)
    advance(key, *counts, state, rows)
    with jax.transfer_guard("disallow"), compilations() as compiled:
        _, _, done = advance(key, *counts, state, rows)
    assert int(done) == 3
    assert not compiled
    with jax.transfer_guard("disallow"), pytest.raises(Exception, match=r"[Dd]isallowed"):
        advance(key, *counts, state, rows._replace(rows=np.asarray(rows.rows)))


def rows_kernel(compute, n_rows, n_live, *, flips=False):
    """Lines run by a form of the kernel over rows, one feature in each row; all or none flip."""
    inner = np.eye(n_live)
    used = np.zeros((n_rows, n_live), np.uint8)
    used[:, -1] = 1
    keys = np.zeros((2, n_live), np.uint32)
    products = np.full((n_rows, n_live), 1e3 if flips else -1e3)  # certain: no random number counts
    rest = np.empty((n_rows, 1))
    last = n_live - 1
    arguments = keys, used, products, inner, np.zeros(n_live), 1.0, last, n_live, rest
    return lines_run(compute, 0, n_rows, 0, *arguments)


def recomputing(
    start, stop, _, keys, used, products, inner, log_odds, precision, last, n_live, rest
):
    """The kernel with the fault that update-on-flip is there to avoid."""
    for n in range(start, stop):
        for k in range(last):
            pull = products[n, k]
            for j in range(n_live):
                if used[n, j]:
                    pull -= inner[j, k]
            used[n, k] = pull > 0


def over_pairs(start, stop, *arguments):
    """The kernel with a look at all rows for each row."""
    for n in range(start, stop):
        for _ in range(stop):
            pass
        assignments._rows_before.py_func(n, n + 1, *arguments)


def test_rows_of_assignments_cost_what_their_flips_cost():
    kernel = assignments._rows_before.py_func
    by_rows = [rows_kernel(kernel, n, 8) for n in (8, 16, 24)]
    assert bend(by_rows) < STRAIGHT
    still = [rows_kernel(kernel, 4, k) for k in (16, 32, 48)]
    assert bend(still) < STRAIGHT  # nothing flips: linear in the features
    moving = [rows_kernel(kernel, 4, k, flips=True) for k in (16, 32, 48)]
    assert bend(moving) > 100 * STRAIGHT  # every flip visits every feature
    assert bend([rows_kernel(recomputing, 4, k) for k in (16, 32, 48)]) > 100 * STRAIGHT
    assert bend([rows_kernel(over_pairs, n, 8) for n in (8, 16, 24)]) > 10 * STRAIGHT


def test_a_pass_is_one_look_at_every_row_and_the_next_compiles_nothing():
    one_pass = works.pass_of_vi(0, Size(2500, 6, 3))
    assert int(one_pass().step[0]) == 3  # minibatches of 1024
    with compilations() as compiled:
        one_pass()
    assert not compiled


def test_a_draw_is_always_the_same_and_the_next_compiles_nothing():
    draw = works.draw_of_mcmc(0, Size(300, 6, 3))
    first = np.asarray(draw()["u"].gate.vectors)
    with compilations() as compiled:
        second = np.asarray(draw()["u"].gate.vectors)
    assert not compiled
    assert first.shape[:2] == (1, 3)
    assert np.all(np.isfinite(second)) and np.all(first == second)


def test_a_step_that_compiles_is_seen():
    def step():
        return jax.jit(lambda x: x + 1.0)(jnp.ones(3))

    step()
    with compilations() as compiled:
        step()
        step()
    assert len(compiled) == 2


@pytest.mark.slow
def test_sweeps_after_the_first_compile_nothing():
    sweeper = feature_bench.dense_sweeper(0, feature_bench.SMALL).ready()
    sweeper.sweep()  # the first one after warm-up forms its steps otherwise
    with compilations() as compiled:
        for _ in range(3):
            sweeper.sweep()
    assert not compiled
