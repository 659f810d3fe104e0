"""Pytrees as named arrays, and back.

``{"a": (x, y)}`` becomes ``{"a/0": x, "a/1": y}``. Names carry no types: the structure comes
back from a template, so that a file cannot choose what is built.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """Arrays of a pytree ``tree``, by name.

    A random key is stored as its data, under a name that ends in ``@`` and its generator. Numbers
    become arrays of shape ``()``.
    """
    arrays = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if _is_key(leaf):
            name = f"{_name(path)}{KEY_MARK}{jax.random.key_impl(leaf)}"
            arrays[name] = np.asarray(jax.random.key_data(leaf))
        else:
            arrays[_name(path)] = np.asarray(leaf)
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
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    wanted = {_name(path): leaf for path, leaf in leaves}
    found = {name.partition(KEY_MARK)[0]: name for name in arrays}
    missing, unexpected = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or unexpected or len(found) != len(arrays):
        raise StorageError(
            f"the arrays are those of something else (missing {missing[:3]}, unexpected "
            f"{unexpected[:3]}): load them with the model and settings they were saved with."
        )
    restored = [
        _restored(found[name], arrays[found[name]], leaf, free_axis)
        for name, leaf in wanted.items()
    ]
    return jax.tree.unflatten(structure, restored)


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


def _name(path: tuple[Any, ...]) -> str:
    labels = (jax.tree_util.keystr((entry,), simple=True) for entry in path)
    quoted = (
        label.replace("%", "%25").replace("/", "%2F").replace(KEY_MARK, "%40") for label in labels
    )
    return "/".join(quoted) or ROOT
