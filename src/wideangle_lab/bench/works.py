"""One unit of work of each inference, at any size.

Each function takes a seed and a size, prepares everything, and returns a call without arguments
that does the work once more: a pass of the variational fit, a draw of the Hamiltonian sampler, a
sweep of the feature sampler, a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.infer.ascent import Minibatches, ascend, begin
from wideangle.infer.run import run
from wideangle.mixture_of_experts.collapsed import Objective
from wideangle.mixture_of_experts.coordinates import Priors, Problem, Setting, point_of
from wideangle.mixture_of_experts.data import Data, sample
from wideangle.mixture_of_experts.guides import start
from wideangle.mixture_of_experts.sampling import FISHER_ROWS, SAMPLERS
from wideangle.mixture_of_experts.sparse import on_host
from wideangle.mixture_of_experts.variational import TABLE, rates_of, terms
from wideangle.mixture_of_experts.whitened import Typical, fisher_whitening
from wideangle_lab.bench import expert_problem as experts
from wideangle_lab.bench import features
from wideangle_lab.bench.harness import Size

BATCH_ROWS = 1024

Work = Callable[[int, Size], Callable[[], Any]]


def pass_of_vi(seed: int, size: Size) -> Callable[[], Any]:
    """A pass of the variational fit over the rows, always from the same state."""
    _, rows, targets = experts.draw_problem(seed, size)
    prior = experts.prior_of(size)
    data = Data(rows, targets, np.ones(size.rows, np.float32))
    keys = jax.random.split(jax.random.key(seed))
    first = start(keys[0], "diagonal", Priors(prior, prior), experts.EXPERT, data, n_starts=1)
    state = begin(first)
    batches = Minibatches(seed, *data, BATCH_ROWS)
    noise = jax.random.normal(
        keys[1], (max(TABLE, 4 * size.components * batches.size),), np.float32
    )
    constants = noise, terms(Priors(prior, prior), jnp.full(1, 0.35), None)
    rates = rates_of(state.position)
    options = {"rates": rates, "n_steps": batches.per_pass, "verbose": False}
    objective = Objective(experts.EXPERT)
    return lambda: ascend(keys[1], objective, state, batches, constants, **options).state


def draw_of_mcmc(seed: int, size: Size) -> Callable[[], Any]:
    """One more draw of one chain of the default sampler, on dense rows."""
    weights, rows, targets = experts.draw_problem(seed, size)
    prior = experts.prior_of(size)
    batch = Data(
        jnp.asarray(rows.toarray()), jnp.asarray(targets), jnp.ones(size.rows, jnp.float32)
    )
    problem = Problem(Priors(prior, prior), experts.EXPERT, batch)
    method, key = SAMPLERS["hmc"], jax.random.key(seed)
    points = jax.tree.map(lambda leaf: leaf[None], point_of(problem.priors, weights))
    typical = Typical(jax.tree.map(lambda leaf: leaf[None], weights), {})
    some = sample(seed, batch, FISHER_ROWS)
    setting = Setting(
        problem,
        jax.jit(fisher_whitening, static_argnums=2)(problem.priors, typical, problem.expert, some),
    )
    options: dict[str, Any] = {"n_warmup": 0, "n_chains": 1, "verbose": False, "chunk": 1}
    options |= {"steps": method.steps, "targets": method.targets, "collect": method.collect}
    chain = jax.vmap(lambda x: method.enter(x, setting))(points)
    state = run(key, method.recipe, chain, n_draws=1, data=setting, **options).state

    def draw() -> Any:
        # Always the second draw: lengths of trajectories differ.
        more = run(key, method.recipe, None, n_draws=2, data=setting, resume=state, **options)
        return more.state.latents

    return draw


def sweep_of_features(seed: int, size: Size) -> Callable[[], Any]:
    """A sweep over dense rows, from the true features."""
    return features.dense_sweeper(seed, size).sweep


def dense_gradient(seed: int, size: Size) -> Callable[[], Any]:
    """A gradient of the mixture of experts on dense rows."""
    weights, rows, targets = experts.draw_problem(seed, size)
    batch = Data(jnp.asarray(rows.toarray()), jnp.asarray(targets), jnp.ones(size.rows))
    return lambda: experts.value_and_gradient(weights, batch)


def sparse_gradient(seed: int, size: Size) -> Callable[[], Any]:
    """A gradient of the mixture of experts on sparse rows."""
    weights, rows, targets = experts.draw_problem(seed, size)
    batch = on_host(Data(rows, targets, np.ones(size.rows)))
    return lambda: experts.value_and_gradient(weights, batch)


WORKS: dict[str, Work] = {
    "VI, a pass": pass_of_vi,
    "MCMC, a draw": draw_of_mcmc,
    "feature sampler, a sweep": sweep_of_features,
    "dense gradient": dense_gradient,
    "sparse gradient": sparse_gradient,
}
