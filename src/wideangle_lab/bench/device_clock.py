"""Seconds of a call on a device, and the device's peak speeds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def timed(function: Callable[[], Any], repeats: int = 20) -> float:
    """Median seconds of a call, excluding the first."""
    jax.block_until_ready(function())
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def ceilings() -> dict[str, float]:
    """Measured matrix and copy speed of the device."""
    a = jnp.ones((8192, 8192), jnp.float32)
    big = jnp.ones(2**28, jnp.float32)
    with jax.default_matmul_precision("highest"):
        product = timed(jax.jit(lambda: a @ a), 5)
    copy = timed(jax.jit(lambda: big + 1.0), 5)
    return {"matrix_tflops": 2 * 8192**3 / product / 1e12, "copy_gb_s": 2 * big.nbytes / copy / 1e9}
