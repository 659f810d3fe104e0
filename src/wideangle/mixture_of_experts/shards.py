"""Rows of one data set on many devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from wideangle.sharding import AXIS, spread
from wideangle.types import Array


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["rows", "targets", "weights"],
    meta_fields=["mesh"],
)
@dataclass(frozen=True)
class ShardedBatch:
    """Rows (N, p), targets and weights (N,), each cut into as many parts as there are devices."""

    rows: Array
    targets: Array
    weights: Array
    mesh: Mesh


def shard(batch: Any, mesh: Mesh) -> ShardedBatch:
    """A batch spread over a mesh; rows that fill it up have weight 0."""
    return ShardedBatch(*spread(tuple(batch), mesh), mesh=mesh)


def sum_over_shards(function: Callable[[Any, Any], Any], common: Any, batch: ShardedBatch) -> Any:
    """Sum over devices of ``function(common, (rows, targets, weights))``, on every device."""

    def part(common: Any, own: Any) -> Any:
        return jax.tree.map(lambda leaf: lax.psum(leaf, AXIS), function(common, own))

    own = batch.rows, batch.targets, batch.weights
    # A loop over blocks of rows inside starts from values that are not yet summed.
    summed = jax.shard_map(
        part,
        mesh=batch.mesh,
        in_specs=(PartitionSpec(), PartitionSpec(AXIS)),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    return summed(common, own)
