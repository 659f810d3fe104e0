"""Pytrees as named arrays, and back.

``{"a": (x, y)}`` becomes ``{"a/0": x, "a/1": y}``. Names carry no types: the structure comes
back from a template, so that a file cannot choose what is built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.storage.files import StorageError

ROOT = "value"
"""Name of a tree that is a bare array."""
KEY_MARK = "@"
"""Stands between the name of a random key and the name of its generator."""


def pack(tree: Any) -> dict[str, np.ndarray]:
    """Arrays of a tree of dicts, tuples, lists, NamedTuples and dataclasses, by name.

    A random key is stored as its data, under a name that ends in ``@`` and its generator. None
    holds nothing. Numbers become arrays of shape ``()``.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, leaf in _leaves(tree):
        if _is_key(leaf):
            full = f"{name}{KEY_MARK}{jax.random.key_impl(leaf)}"
            value = np.asarray(jax.random.key_data(leaf))
        else:
            full, value = name, np.asarray(leaf)
        if full in arrays:
            raise StorageError(f"two arrays have the name {full!r}: rename one of them.")
        arrays[full] = value
    return arrays


def unpack(arrays: Mapping[str, np.ndarray], template: Any, *, free_axis: int | None = None) -> Any:
    """The tree of :func:`pack`, with the structure of ``template``.

    Parameters
    ----------
    arrays
        Arrays by name.
    template
        A tree of the same structure. Leaves are arrays or :class:`jax.ShapeDtypeStruct`, whose
        shape and dtype must be met, or ``...``, which any array meets.
    free_axis
        An axis whose length need not be that of the template.

    Returns
    -------
    Any
        Leaves are NumPy arrays, and JAX keys where the template has keys.

    Raises
    ------
    StorageError
        The arrays are not those of such a tree.
    """
    wanted = dict(_leaves(template))
    found = {name.partition(KEY_MARK)[0]: name for name in arrays}
    missing, unexpected = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or unexpected or len(found) != len(arrays):
        raise StorageError(
            f"the arrays are those of something else (missing {missing[:3]}, unexpected "
            f"{unexpected[:3]}): load them with the model and settings they were saved with."
        )
    leaves = (
        _restored(found[name], arrays[found[name]], leaf, free_axis)
        for name, leaf in wanted.items()
    )
    return _filled(template, leaves)


def _restored(name: str, array: np.ndarray, like: Any, free_axis: int | None) -> Any:
    if like is ...:
        return array
    like = like if hasattr(like, "dtype") else np.asarray(like)
    value: Any = array
    if _is_key(like):
        try:
            value = jax.random.wrap_key_data(array, impl=name.partition(KEY_MARK)[2])
        except (ValueError, TypeError, KeyError) as error:
            raise StorageError(f"{name!r} is not a random key: save it again.") from error
    have, want = list(value.shape), list(like.shape)
    if free_axis is not None and len(have) == len(want):
        have[free_axis] = want[free_axis]
    if value.dtype != like.dtype or have != want:
        raise StorageError(
            f"{name!r} is {value.dtype}{list(value.shape)} and not {like.dtype}{want}: load it "
            "with the model, settings and precision it was saved with."
        )
    return value


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _children(node: Any) -> list[tuple[Any, Any]] | None:
    """Labels and children of a node, None for a leaf."""
    if node is None:
        return []
    if isinstance(node, Mapping):
        return list(node.items())
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return list(zip(node._fields, node, strict=True))  # pyright: ignore
    if isinstance(node, (list, tuple)):
        return list(enumerate(node))
    if dataclasses.is_dataclass(node):
        return [(field.name, getattr(node, field.name)) for field in dataclasses.fields(node)]
    return None


def _leaves(node: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    children = _children(node)
    if children is None:
        yield name or ROOT, node
    for label, child in children or []:
        part = str(label).replace("%", "%25").replace("/", "%2F").replace(KEY_MARK, "%40")
        yield from _leaves(child, f"{name}/{part}" if name else part)


def _filled(node: Any, leaves: Iterator[Any]) -> Any:
    """The node with its leaves replaced, in the order of :func:`_leaves`."""
    children = _children(node)
    if children is None:
        return next(leaves)
    new = [_filled(child, leaves) for _, child in children]
    labels = [label for label, _ in children]
    if node is None:
        return None
    if isinstance(node, Mapping):
        return dict(zip(labels, new, strict=True))
    if isinstance(node, (list, tuple)):
        return type(node)(*new) if hasattr(node, "_fields") else type(node)(new)
    return dataclasses.replace(node, **dict(zip(labels, new, strict=True)))
