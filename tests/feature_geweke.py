"""Exact-restart tests of the latent feature sampler: draws of the prior in, draws of the prior out.

A state and rows come from the joint law; sweeps of the sampler alternate with fresh rows given the
state; the state must have the same law at the end. Replicates are independent, so plain standard
errors hold.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

from wideangle.estimators.lfm_design import Design
from wideangle.estimators.lfm_sweep import sweep_on_device
from wideangle.estimators.lfm_vectors import Steps
from wideangle.models.device_rows import DenseRows
from wideangle.models.latent_features import Features, Hyper
from wideangle.priors.stick_breaking import Buffet
from wideangle.types import Components

N_ROWS, DIM = 4, 2
FIXED = {"alpha": 1.5, "discount": 0.0, "strength": 1.0, "noise": 0.3, "kappa": 4.0, "rate": 1.0}


class Verdict(NamedTuple):
    """Paired z-scores of the statistics, the worst of them, and how often room ran out."""

    z: dict[str, float]
    worst: float
    mean_active: float
    n_overflow: int


def draw_prior(rng, design, values, room):
    """One state of the prior, as the sampler holds it, or None if it needs more room."""
    weights, used = _draw_buffet(rng, design, values)
    n_live = len(weights)
    if n_live > room // 2:
        return None
    state = [np.zeros(room), np.zeros((room, DIM)), np.zeros(room), np.zeros((N_ROWS, room))]
    state[0][:n_live], state[3][:, :n_live] = weights, used
    resultant = np.zeros(DIM)
    for k in range(n_live):
        if design.features == "gaussian":
            vector = rng.normal(size=DIM) / np.sqrt(values["rate"])
            state[2][k] = np.linalg.norm(vector)
            state[1][k] = vector / state[2][k]
            continue
        state[2][k] = rng.gamma(design.magnitude_shape) / values["rate"]
        angle = rng.uniform(0, 2 * np.pi)
        if design.ordered and k > 0:
            angle = rng.vonmises(np.arctan2(-resultant[1], -resultant[0]), values["kappa"])
        state[1][k] = np.cos(angle), np.sin(angle)
        resultant += state[1][k]
    return *state, n_live


def _draw_buffet(rng, design, values):
    alpha, d, c = values["alpha"], values["discount"], values["strength"]
    if d == 0 and c == 1:
        weights = np.cumprod(rng.beta(alpha, 1, size=300))
        used = rng.random((N_ROWS, 300)) < weights
        active = np.flatnonzero(used.any(axis=0))
        last = active[-1] + 1 if active.size else 0
        keep = np.arange(last) if design.ordered else active
        return weights[keep], used[:, keep]
    columns = []
    for n in range(N_ROWS):
        for column in columns:
            column[n] = rng.random() < (column.sum() - d) / (n + c)
        new = gammaln(1 + c) + gammaln(n + c + d) - gammaln(n + 1 + c) - gammaln(c + d)
        for _ in range(rng.poisson(alpha * np.exp(new))):
            columns.append(np.eye(N_ROWS)[n])
    used = np.array(columns).T.reshape(N_ROWS, -1)
    counts = used.sum(axis=0)
    weights = rng.beta(counts - d, N_ROWS - counts + c + d)
    order = np.argsort(-weights)
    return weights[order], used[:, order]


def draw_states(rng, design, draw_values, n, room):
    """Many states of the prior."""
    states, values = [], []
    while len(states) < n:
        one = draw_values(rng)
        state = draw_prior(rng, design, one, room)
        if state is not None:
            states.append(state)
            values.append(one)
    weights, directions, lengths, used, n_live = (
        np.stack(part) for part in zip(*states, strict=True)
    )

    def number(name):
        return jnp.array([one[name] for one in values])

    buffet = Buffet(number("alpha"), number("discount"), number("strength"))
    return Features(
        jnp.asarray(weights),
        Components(jnp.asarray(directions), jnp.asarray(lengths)),
        jnp.asarray(used, jnp.uint8),
        jnp.asarray(n_live, jnp.int32),
        Hyper(buffet, number("noise"), number("kappa"), number("rate")),
    )


def statistics(features, rows):
    """Numbers whose means are compared."""
    active = jnp.any(features.assignments > 0, axis=0)
    n_active = jnp.sum(active) * 1.0
    directions, lengths = features.components
    vectors = features.components.vectors
    last = jnp.max(jnp.where(active, jnp.arange(features.room), -1)) + 1.0
    cosines = directions @ directions.T
    safe = jnp.where(active & (lengths > 0), lengths, 1.0)
    hyper = features.hyper
    return {
        "active": n_active,
        "active squared": n_active**2,
        "last active": last,
        "inactive between": last - n_active,
        "uses": jnp.sum(features.assignments) * 1.0,
        "shared": jnp.sum(features.assignments[0] * features.assignments[1]) * 1.0,
        "first count": jnp.sum(features.assignments[:, 0]) * 1.0,
        "weights": jnp.sum(jnp.where(active, features.weights, 0.0)),
        "first weight": features.weights[0],
        "second weight": features.weights[1],
        "log smallest": jnp.log(jnp.min(jnp.where(active, features.weights, 1.0))),
        "log lengths": jnp.sum(jnp.log(safe)),
        "lengths": jnp.sum(jnp.where(active, lengths, 0.0)),
        "energy": jnp.sum(rows**2),
        "cosine 12": cosines[0, 1],
        "cosine 13": cosines[0, 2],
        "cosine 23": cosines[1, 2],
        "cosines": jnp.sum(jnp.where(active[:, None] & active, cosines, 0.0)),
        "sum": jnp.sum(jnp.where(active[:, None], vectors, 0.0)[:, 0]),
        "log alpha": jnp.log(hyper.buffet.mass),
        "log noise": jnp.log(hyper.noise),
        "log kappa": jnp.log(hyper.concentration + 1e-9),
        "log rate": jnp.log(hyper.rate),
        "discount": hyper.buffet.discount,
        "log strength": jnp.log(hyper.buffet.strength),
    }


def geweke(
    design=None, draw_values=None, *, n=2000, n_sweeps=4, room=64, seed=0, rows_from_model=True
):
    """Run the test; with ``rows_from_model=False`` the likelihood is flat and the rows are zero."""
    design = design or Design()
    values = draw_values or (lambda rng: FIXED)
    start = draw_states(np.random.default_rng(seed), design, values, n, room)
    steps = Steps(jnp.array(0.3), jnp.array(0.3))

    def draw_rows(key, features):
        mean = features.assignments.astype(float) @ features.components.vectors
        noise = jnp.sqrt(features.hyper.noise) * jax.random.normal(key, mean.shape)
        return mean + noise if rows_from_model else jnp.zeros_like(mean)

    def replicate(key, features):
        key_rows, key_sweeps = jax.random.split(key)
        rows = draw_rows(key_rows, features)

        def sweep(carry, turn):
            features, rows, overflow = carry
            key_sweep, key_new = jax.random.split(jax.random.fold_in(key_sweeps, turn))
            moved, _, more = sweep_on_device(key_sweep, features, DenseRows(rows), design, steps)
            moved = jax.tree.map(lambda new, old: new.astype(old.dtype), moved, features)
            return (moved, draw_rows(key_new, moved), overflow | more), None

        end = features, rows, jnp.array(False)
        (after, rows_after, overflow), _ = jax.lax.scan(sweep, end, jnp.arange(n_sweeps))
        return statistics(features, rows), statistics(after, rows_after), overflow

    keys = jax.random.split(jax.random.key(seed), n)
    before, after, overflow = jax.jit(jax.vmap(replicate))(keys, start)
    changes = {name: np.asarray(after[name] - before[name]) for name in before}
    z = {
        name: float(change.mean() / (change.std() / np.sqrt(n)))
        for name, change in changes.items()
        if change.std() > 1e-9
    }
    worst = max(z.values(), key=abs)
    return Verdict(z, abs(worst), float(np.mean(after["active"])), int(np.sum(overflow)))
