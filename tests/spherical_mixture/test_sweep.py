"""The Gibbs sampler leaves the posterior alone: exact restarts, and faults that they see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from statistical import measured
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.sphere import vmf
from wideangle.spherical_mixture import sweep as module
from wideangle.spherical_mixture.centres import CentrePrior, prior_quantiles
from wideangle.spherical_mixture.sweep import Chain, Design, Problem, draw_concentrations, sweep
from wideangle.spherical_mixture.weights import ALPHA_MEAN

DIM, N_ROWS, LIMIT = 3, 12, 4.2
PRIOR = CentrePrior(6.0, 0.6, 4.0)
ROOM = {False: 3, True: 24}


def simulate(key, design):
    """Everything from the prior, and rows from the model."""
    n = ROOM[design.infinite]
    keys = jax.random.split(key, 6)
    alpha = jax.random.exponential(keys[0]) * ALPHA_MEAN if design.learn_alpha else jnp.array(0.7)
    if design.infinite:
        logs = jax.vmap(jax.random.loggamma)(
            jax.random.split(keys[1], n), jnp.tile(jnp.stack([jnp.ones(()), alpha]), (n, 1))
        )
        logs = logs - jax.nn.logsumexp(logs, axis=1, keepdims=True)
        before = jnp.concatenate([jnp.zeros(1), jnp.cumsum(logs[:, 1])[:-1]])
        log_weights = logs[:, 0] + before
    else:
        logs = jax.random.loggamma(keys[1], jnp.full(n, alpha / n))
        log_weights = logs - jax.nn.logsumexp(logs)
    table = tuple(map(jnp.asarray, prior_quantiles(PRIOR, DIM)))
    problem = Problem(
        jnp.zeros((1, N_ROWS, DIM)), jnp.ones((1, N_ROWS)), jnp.array(PRIOR.strength),
        jnp.array(PRIOR.cosine), jnp.array(PRIOR.rows), table,
    )  # fmt: skip
    directions = MutualAngular(n, DIM, PRIOR.strength, design.kind).sample(keys[2])
    kappas = draw_concentrations(jax.random.split(keys[3], n), problem)
    chosen = jax.random.categorical(keys[4], log_weights, shape=(N_ROWS,))
    rows = vmf.sample(keys[5], kappas[chosen, None] * directions[chosen])
    counts = jnp.zeros(n).at[chosen].add(1.0)
    chain = Chain(
        directions, kappas, log_weights, alpha, chosen[None].astype(jnp.int32), counts,
        jnp.zeros(()), jnp.array(False),
    )  # fmt: skip
    return chain, problem._replace(rows=rows[None])


def numbers(chain, problem):
    """Functions of the state and the rows."""
    used = chain.counts > 0
    n_used = jnp.sum(used)
    cosines = chain.directions @ chain.directions.T
    pairs = used[:, None] & used[None, :] & ~jnp.eye(len(used), dtype=bool)
    mine = chain.directions[chain.assignments[0]]
    kappas = jnp.log(chain.concentrations[chain.assignments[0]])
    sizes = chain.counts / N_ROWS
    along = jnp.sum(problem.rows[0] * mine, axis=1)
    return {
        "used": n_used * 1.0,
        "cosine": jnp.sum(jnp.where(pairs, cosines, 0.0)) / jnp.maximum(jnp.sum(pairs), 1),
        "first cosine": cosines[0, 1],
        "second cosine": cosines[1, 2],
        "tightness": jnp.mean(kappas),
        "square": jnp.mean(kappas**2),
        "along": jnp.mean(along),
        "scaled": jnp.mean(along * kappas),
        "size": jnp.sum(sizes**2),
        "first size": sizes[0],
        "first weight": jnp.exp(chain.log_weights[0]),
        "alpha": jnp.log(chain.alpha),
    }


def worst(design, n_starts=4000, seed=0, n_sweeps=2):
    """Largest mean paired change over exact restarts, in standard errors."""

    @jax.jit
    @jax.vmap
    def one(key):
        key_start, key = jax.random.split(key)
        chain, problem = simulate(key_start, design)
        before = numbers(chain, problem)
        for step in range(n_sweeps):
            chain, _ = sweep(jax.random.fold_in(key, step), chain, problem, design)
        return before, numbers(chain, problem), chain.overflow

    before, after, overflow = one(jax.random.split(jax.random.key(seed), n_starts))
    if design.infinite:
        assert np.mean(overflow) < 0.002
    found = {}
    for name in before:
        change = np.asarray(after[name] - before[name])
        if change.std() > 1e-9:
            found[name] = abs(change.mean()) / (change.std() / np.sqrt(len(change)))
    return max(found.values()), found


DESIGNS = {
    "finite": Design("I", False, True),
    "finite II": Design("II", False, False),
    "infinite": Design("I", True, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DESIGNS)
def test_restarts_stay_where_they_are(name):
    largest, found = worst(DESIGNS[name])
    assert largest < LIMIT, found


def _own_term_forgotten(monkeypatch):
    plain = MutualAngular.next_component

    def uniform(self, directions):
        return plain(self, jnp.zeros_like(directions))

    monkeypatch.setattr(MutualAngular, "next_component", uniform)
    monkeypatch.setattr(module, "accept", lambda key, ratio: (jnp.array(True), jnp.ones(())))


def _order_always_accepted(monkeypatch):
    monkeypatch.setattr(module, "log_order", lambda counts, alpha, live: jnp.zeros(()))


def _no_normaliser(monkeypatch):
    monkeypatch.setattr(module, "log_mean_exp", lambda kappa, dim: 0.5 * kappa)


FAULTS = {
    "centres and order always accepted": ("finite", _own_term_forgotten),
    "no probability of the order of sticks": ("infinite", _order_always_accepted),
    "wrong normaliser": ("finite", _no_normaliser),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault, monkeypatch):
    design, plant = FAULTS[fault]
    plant(monkeypatch)
    assert measured("max |z|", worst(DESIGNS[design])[0], LIMIT) > LIMIT
