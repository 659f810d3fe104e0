"""Small latent feature problems: states of the prior, rows and test quantities.

The prior is drawn here by NumPy, from the definition: sticks or a buffet, row by row. It shares no
code with the sampler that it tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

from wideangle.latent_features.state import Design, Features, Hyper
from wideangle.priors.stick_breaking import Buffet
from wideangle.types import Array, Components, Key, Scalar

N_ROWS, DIM = 4, 2
N_STICKS = 300
"""Number of sticks drawn; the next would have a weight of about (3/5)^300."""
FIXED = {"alpha": 1.5, "discount": 0.0, "strength": 1.0, "noise": 0.3, "kappa": 4.0, "rate": 1.0}

Values = Mapping[str, float]
DrawValues = Callable[[np.random.Generator], Values]


def fixed_values(rng: np.random.Generator) -> Values:
    """Hyperparameters that are the same for every state."""
    return FIXED


def draw_prior(
    rng: np.random.Generator, design: Design, values: Values, room: int
) -> tuple[Any, ...] | None:
    """One state of the prior in the sampler's form, or None if it needs more room."""
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


def _draw_buffet(
    rng: np.random.Generator, design: Design, values: Values
) -> tuple[np.ndarray, np.ndarray]:
    """Weights in decreasing order, and the rows that use them."""
    alpha, d, c = values["alpha"], values["discount"], values["strength"]
    if d == 0 and c == 1:
        weights = np.cumprod(rng.beta(alpha, 1, size=N_STICKS))
        used = rng.random((N_ROWS, N_STICKS)) < weights
        active = np.flatnonzero(used.any(axis=0))
        last = active[-1] + 1 if active.size else 0
        keep = np.arange(last) if design.ordered else active
        return weights[keep], used[:, keep]
    columns: list[np.ndarray] = []
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


def draw_states(
    rng: np.random.Generator, design: Design, draw_values: DrawValues, n: int, room: int
) -> Features:
    """Many states of the prior that fit the room, along a leading axis."""
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

    def number(name: str) -> Array:
        return jnp.array([one[name] for one in values])

    buffet = Buffet(number("alpha"), number("discount"), number("strength"))
    return Features(
        jnp.asarray(weights),
        Components(jnp.asarray(directions), jnp.asarray(lengths)),
        jnp.asarray(used, jnp.uint8),
        jnp.asarray(n_live, jnp.int32),
        Hyper(buffet, number("noise"), number("kappa"), number("rate")),
    )


def mean_rows(features: Features) -> Array:
    """Rows without noise."""
    vectors = features.components.vectors
    return jnp.asarray(features.assignments, vectors.dtype) @ vectors


def draw_rows(key: Key, features: Features) -> Array:
    """Rows of the model."""
    mean = mean_rows(features)
    return mean + jnp.sqrt(features.hyper.noise_variance) * jax.random.normal(
        key, mean.shape, mean.dtype
    )


def statistics(features: Features, rows: Array) -> dict[str, Scalar]:
    """Compared quantities; positions are in order of weight."""
    used = jnp.asarray(features.assignments)
    active = jnp.any(used > 0, axis=0)
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
        "uses": jnp.sum(used) * 1.0,
        "shared": jnp.sum(used[0] * used[1]) * 1.0,
        "first count": jnp.sum(used[:, 0]) * 1.0,
        "weights": jnp.sum(jnp.where(active, features.weights, 0.0)),
        "first weight": features.weights[0],
        "second weight": features.weights[1],
        "log smallest": jnp.log(jnp.min(jnp.where(active, features.weights, 1.0))),
        "log lengths": jnp.sum(jnp.log(safe)),
        "lengths": jnp.sum(jnp.where(active, lengths, 0.0)),
        "energy": jnp.sum(rows**2),
        "residual": jnp.sum((rows - mean_rows(features)) ** 2),
        "cosine 12": cosines[0, 1],
        "cosine 13": cosines[0, 2],
        "cosine 23": cosines[1, 2],
        "cosines": jnp.sum(jnp.where(active[:, None] & active, cosines, 0.0)),
        "sum": jnp.sum(jnp.where(active[:, None], vectors, 0.0)[:, 0]),
        "log alpha": jnp.log(hyper.buffet.mass),
        "log noise": jnp.log(hyper.noise_variance),
        "log kappa": jnp.log(hyper.concentration + 1e-9),
        "log rate": jnp.log(hyper.rate),
        "discount": hyper.buffet.discount,
        "log strength": jnp.log(hyper.buffet.strength),
    }
