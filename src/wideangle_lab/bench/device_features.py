"""The feature sampler on an accelerator: 20-News and TDT at the paper's sizes."""

from __future__ import annotations

import itertools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.latent_features.chain import Chain, Plan, begin_chain, run_chain
from wideangle.latent_features.device import DeviceRows
from wideangle.latent_features.directions import steps_of
from wideangle.latent_features.memory import MemoryRows
from wideangle.latent_features.settings import design_of, first_guess, learn_scaling
from wideangle.latent_features.start import Start, find_features
from wideangle.latent_features.state import Design, Hyper
from wideangle.latent_features.sweep import sweep_on_device
from wideangle.settings import IndianBuffet, MutualAngularPrior
from wideangle_lab.bench.device_clock import timed
from wideangle_lab.datasets import load

N_FEATURES = 300
SEED = 0


def prepare(name: str, noise_scale: Any) -> tuple[MemoryRows, DeviceRows, Design, Hyper]:
    """Rows of a data set on host and device, and the sampler's settings on an accelerator."""
    X = load(name).X
    scaling = learn_scaling(X, standardise=False)
    rows = MemoryRows(*scaling.apply(X))
    prior, process = MutualAngularPrior(), IndianBuffet()
    design, values = design_of(
        prior, process, noise_scale, X.shape, scaling.scale, hamiltonian=True
    )
    return rows, DeviceRows(rows), design, values


def features(name: str) -> dict[str, Any]:
    """Seconds per sweep with 300 features, of its matrix products, and of the search before it."""
    # Noise that matches the residual of 300 features: with less, the chain keeps adding features.
    rows, on_device, design, values = prepare(name, noise_scale="learn")
    began = time.perf_counter()
    start = find_features(
        np.random.default_rng(SEED), rows, values.noise_variance, max_features=N_FEATURES, hops=0
    )
    searched = time.perf_counter() - began
    hyper = first_guess(start, values, design, rows)
    key = jax.random.key(SEED, impl="threefry2x32")
    chain = begin_chain(key, start.features, start.assignments, hyper)
    marks: list[tuple[int, float]] = []

    def note(chain: Chain) -> bool:
        jax.block_until_ready(chain.features)
        marks.append((chain.n_done, time.perf_counter()))
        return False

    began = time.perf_counter()
    plan = Plan(n_warmup=60, n_draws=1, thin=100)
    run_chain(chain, on_device, design, plan, after=note)
    total = time.perf_counter() - began
    pairs = itertools.pairwise(marks)
    per_sweep = [(t1 - t0) / (n1 - n0) for (n0, t0), (n1, t1) in pairs if n1 > n0]
    vectors = chain.features.components.vectors
    used, arrays = jnp.asarray(chain.features.assignments, vectors.dtype), on_device.arrays
    with jax.default_matmul_precision("highest"):
        products = timed(jax.jit(lambda: arrays.products(vectors)))
        cross = timed(jax.jit(lambda: arrays.cross(used)))
    return {
        "data": name,
        "shape": [rows.n_rows, rows.dim],
        "n_features": chain.trace["n_active"][-1],
        "search_seconds": searched,
        "sweep_seconds": float(np.median(per_sweep)),
        "sweep_seconds_quartiles": [float(q) for q in np.quantile(per_sweep, (0.25, 0.75))],
        "total_seconds": total,
        "n_sweeps": plan.n_sweeps,
        "products_seconds": products,
        "cross_seconds": cross,
        "acceptance": float(np.mean(chain.trace["acceptance"])),
        "residual_rms": chain.trace["residual_rms"][-1],
    }


def sweep_of_many() -> dict[str, Any]:
    """Seconds of one sweep of 20-News, always from the same state with exactly 300 features.

    The features are means of random groups of rows, and the noise is their residual. A free chain
    keeps about 55 features with learned noise, and grows past 700 with the paper's noise.
    """
    rows, on_device, design, values = prepare("news20", noise_scale=1.0)
    rng = np.random.default_rng(SEED)
    used = (rng.random((rows.n_rows, N_FEATURES)) < 0.03).astype(np.uint8)  # noqa: PLR2004
    vectors = rows.cross(used) / used.sum(axis=0)[:, None]
    start = Start(vectors, used, 1.0, 0.0)
    hyper = first_guess(start, values._replace(noise_variance=1.0), design, rows)
    key = jax.random.key(SEED, impl="threefry2x32")
    chain = begin_chain(key, vectors, used, hyper)
    arrays, steps = on_device.arrays, steps_of(chain.tuning, False)

    @jax.jit
    def sweep(key: Any, features: Any, rows: Any) -> Any:
        return sweep_on_device(key, features, rows, design, steps, fixed_length=True)

    with jax.default_matmul_precision("highest"):
        seconds = timed(lambda: sweep(key, chain.features, arrays), 30)
        products = timed(jax.jit(lambda: arrays.products(chain.features.components.vectors)))
        cross = timed(
            jax.jit(lambda: arrays.cross(jnp.asarray(chain.features.assignments, jnp.float32)))
        )
    return {
        "n_features": N_FEATURES,
        "room": chain.features.room,
        "sweep_seconds": seconds,
        "products_seconds": products,
        "cross_seconds": cross,
    }
