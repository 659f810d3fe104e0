"""Sums over rows, a block of them at a time.

A CPU keeps the scores of a block in its cache. Blocks also fix the order of the sum: threads would
share the rows of a long one among them, and their number would show in its rounding and then, since
chains amplify rounding, in every draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.types import Array

Rows = TypeVar("Rows")

BLOCK_ROWS = 1024
"""Rows whose scores a CPU keeps at once; fewer make thin products, more leave the cache."""
WIDE = 2**13
"""Weights beyond which half of these rows make a product that is large enough; threads would share
out the sums of a larger one."""
GRAM_ROWS = 128
"""Rows of a product whose both sides are wide: so few that a CPU does not share them out."""

ONE_CODE = {"xla_disable_hlo_passes": "cpu-parallel-task-assigner"}
"""Compiler options of programs that are not cut into blocks: the same code, and so the same
rounding, for any number of threads. Their element-wise work then has one thread."""


def rows_for(n_weights: int) -> int:
    """Rows of a block of products with so many weights.

    >>> rows_for(60 * 124), rows_for(120 * 300)
    (1024, 512)
    """
    return BLOCK_ROWS if n_weights <= WIDE else BLOCK_ROWS // 2


def over_blocks(function: Callable[[Rows], Any], batch: Rows, block_rows: int = BLOCK_ROWS) -> Any:
    """Sum of a function over blocks of rows (the first axis of every leaf)."""
    n_rows = jax.tree.leaves(batch)[0].shape[0]
    n_more = -(-n_rows // block_rows) - 1
    if n_more < 1 or jax.default_backend() != "cpu":
        return function(batch)

    def add(index: Array, total: Any) -> Any:
        start = index * block_rows
        block = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, block_rows), batch)
        return jax.tree.map(jnp.add, total, function(block))

    last = jax.tree.map(lambda leaf: leaf[n_more * block_rows :], batch)
    return lax.fori_loop(0, n_more, add, function(last))
