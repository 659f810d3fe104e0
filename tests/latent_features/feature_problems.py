"""Small problems of the latent feature model, and slow answers to them."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

from wideangle.latent_features import fields as row_fields
from wideangle.latent_features.fields import RowFields
from wideangle.latent_features.files import as_hyper
from wideangle.latent_features.memory import MemoryRows
from wideangle.latent_features.state import Draw


def make_draw(vectors, weights, noise, assignments=None, worth=None) -> Draw:
    """A draw; features matter unless ``worth`` says otherwise."""
    none = np.zeros((0, len(weights)), np.uint8)
    assignments = none if assignments is None else assignments
    hyper = as_hyper(np.array([1.0, 0.0, 1.0, noise, 0.0, 2.0]))
    worth = np.ones(len(weights)) if worth is None else worth
    return Draw(weights, vectors, hyper, np.packbits(assignments, axis=1), worth)


def random_draw(n_features: int, dim: int, seed: int = 0, noise: float = 0.25) -> Draw:
    rng = np.random.default_rng(seed)
    return make_draw(
        rng.normal(size=(n_features, dim)) * 0.7, rng.beta(1.0, 3.0, size=n_features), noise
    )


def random_rows(draw: Draw, n_rows: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    z = rng.random((n_rows, len(draw.weights))) < draw.weights
    noise = rng.normal(size=(n_rows, draw.vectors.shape[1]))
    return z @ draw.vectors + np.sqrt(draw.noise_variance) * noise


def with_gaps(rows: np.ndarray, share: float = 0.3, seed: int = 2) -> np.ndarray:
    rows = rows.copy()
    rows[np.random.default_rng(seed).random(rows.shape) < share] = np.nan
    return rows


def fields_of(draw: Draw, rows: np.ndarray, module: Any = row_fields) -> RowFields:
    nothing = [np.empty(0, np.int64)]
    return module.Chunk(MemoryRows(rows), np.zeros(len(rows), np.int64), nothing).fields(draw)


def log_joint(draw: Draw, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log p(x_n, z), (N, 2^K), and the states z; missing entries (NaN) drop out of the sum."""
    n_features = len(draw.weights)
    states = (np.arange(2**n_features)[:, None] >> np.arange(n_features)) & 1
    prior = np.where(states, np.log(draw.weights), np.log(1.0 - draw.weights)).sum(axis=1)
    density = norm.logpdf(rows[:, None, :], states @ draw.vectors, np.sqrt(draw.noise_variance))
    return prior + np.nansum(density, axis=-1), states


def brute_force(draw: Draw, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log p(x), (N,), and p(z_k = 1 | x), (N, K)."""
    joint, states = log_joint(draw, rows)
    evidence = logsumexp(joint, axis=1)
    return evidence, np.exp(joint - evidence[:, None]) @ states


def broken(module: ModuleType, old: str, new: str, **names: object) -> ModuleType:
    """As ``mutants.mutant``, for compiled modules: a copy has no file to be cached beside."""
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times"
    source = source.replace(old, new).replace("cache=True", "cache=False")
    copy = ModuleType(f"{module.__name__}_mutant_{abs(hash((old, new)))}")
    sys.modules[copy.__name__] = copy
    exec(compile(source, copy.__name__, "exec"), copy.__dict__)
    copy.__dict__.update(names)
    return copy
