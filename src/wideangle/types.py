"""Names shared by every layer: arrays and what turns one into another, keys, and components."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

Array: TypeAlias = jax.Array
"""A JAX array (NumPy arrays are accepted wherever one is expected)."""

Key: TypeAlias = jax.Array
"""A JAX random key."""

Scalar: TypeAlias = jax.Array
"""An array of shape ``()``."""

Latents: TypeAlias = Any
"""The unknowns of a model: a NamedTuple (or dict) of arrays."""


class Components(NamedTuple):
    r"""K components in polar form, :math:`a_k = g_k \tilde a_k`.

    The angular priors and the samplers act on the two parts apart; a likelihood wants
    :attr:`vectors`.
    """

    directions: Array
    """Unit vectors, shape ``(..., K, p)`` (the paper's :math:`\\tilde a`, :math:`\\hat w`)."""
    magnitudes: Array
    """Positive lengths, shape ``(..., K)`` (the paper's :math:`g`, :math:`r`)."""

    @property
    def vectors(self) -> Array:
        """The components themselves, shape ``(..., K, p)``."""
        return self.magnitudes[..., None] * self.directions

    @classmethod
    def from_vectors(cls, vectors: Array) -> Components:
        """Split vectors into direction and length; a zero vector keeps a zero direction."""
        # Scaling by the largest entry first: squares of 1e-30 vanish in float32.
        # It cancels, so it needs no gradient; that of a maximum is 1/0 where the compiler evaluates
        # the same entry twice and rounds it differently.
        scale = jax.lax.stop_gradient(jnp.max(jnp.abs(vectors), axis=-1, keepdims=True))
        safe = jnp.where(scale > 0, scale, 1.0)
        scaled = vectors / safe
        square = jnp.sum(scaled**2, axis=-1, keepdims=True)
        length = jnp.sqrt(jnp.where(scale > 0, square, 1.0))
        magnitudes = jnp.where(scale > 0, length * safe, 0.0)[..., 0]
        return cls(scaled / length, magnitudes)


def as_floating(value: Any, like: jax.Array | None = None) -> jax.Array:
    """``value`` as a floating array; whole numbers take the precision of ``like`` or JAX's own."""
    array = jnp.asarray(value)
    if jnp.issubdtype(array.dtype, jnp.floating):
        return array
    return array.astype(jnp.result_type(float) if like is None else like.dtype)


def in_order(rows: Any) -> Any:
    """CSR rows with sorted columns and no entry twice; a copy where those given are not so.

    SciPy puts rows in order where they are, as a side effect of many methods: what belongs to a
    user must be in order before.
    """
    if not hasattr(rows, "has_canonical_format") or rows.has_canonical_format:
        return rows
    rows = rows.copy()
    rows.sum_duplicates()
    return rows


def as_targets(targets: Any, dtype: Any = np.float32) -> np.ndarray:
    """Targets for a compiled program: classes as int32, quantities as ``dtype``."""
    targets = np.asarray(targets)
    return targets.astype(np.int32 if targets.dtype.kind in "biu" else dtype, copy=False)


def as_dense(rows: Any, index: Any, dtype: Any) -> np.ndarray:
    """Rows ``index`` of an array or a CSR matrix as a dense array."""
    chosen = rows[index]
    return np.asarray(chosen.toarray() if hasattr(chosen, "toarray") else chosen, dtype)


def as_numpy(tree: Any) -> Any:
    """A tree with NumPy's arrays in place of JAX's."""
    return jax.tree.map(_as_numpy, tree)


def _as_numpy(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array) or jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf  # keys have no counterpart
    return np.asarray(leaf)
