"""States and chains of the latent feature model as plain arrays: what files can hold."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.infer.adapt import DualAveraging
from wideangle.latent_features.chain import Chain, State
from wideangle.latent_features.state import Features, Hyper
from wideangle.priors.stick_breaking import Buffet
from wideangle.storage import StorageError, load_bundle, save_bundle
from wideangle.storage.checkpoint import make_folder
from wideangle.types import Components

KIND = "latent-feature-chain"
EVERY = 30.0
"""Least seconds between two saves."""
PATIENCE = 20.0
"""Times the duration of a save that must pass before the next."""


def pack_states(states: list[State]) -> dict[str, np.ndarray]:
    """States one after the other: features along the first axis, bits along the second."""
    if not states:
        return {}
    return {
        "n_features": np.array([len(state.weights) for state in states]),
        "weights": np.concatenate([state.weights for state in states]),
        "vectors": np.concatenate([state.vectors for state in states]),
        "bits": np.concatenate([state.bits for state in states], axis=1),
        "hyper": np.stack([np.array(jax.tree.leaves(state.hyper)) for state in states]),
    }


def unpack_states(arrays: dict[str, np.ndarray]) -> list[State]:
    """The states of :func:`pack_states`."""
    if "n_features" not in arrays:
        return []
    counts = arrays["n_features"]
    ends, bytes_ends = np.cumsum(counts), np.cumsum(-(-counts // 8))
    if ends[-1] != len(arrays["weights"]) or bytes_ends[-1] != arrays["bits"].shape[1]:
        raise ValueError("the sizes of the draws do not add up")
    states = []
    for i, n in enumerate(counts):
        here = slice(ends[i] - n, ends[i])
        there = slice(bytes_ends[i] - -(-n // 8), bytes_ends[i])
        hyper = as_hyper(arrays["hyper"][i])
        states.append(
            State(arrays["weights"][here], arrays["vectors"][here], arrays["bits"][:, there], hyper)
        )
    return states


def as_hyper(values: np.ndarray) -> Hyper:
    """Hyperparameters from their values in order."""
    mass, discount, strength, *rest = values
    return Hyper(Buffet(mass, discount, strength), *rest)


class ChainFile:
    """One chain on disk, so that it survives the process.

    Parameters
    ----------
    path
        The file; written beside and moved into place, so that it always holds a whole chain.
        None saves nothing.
    fingerprint
        A hash of data and settings; the file of another fit is refused.
    """

    def __init__(self, path: Path | None, fingerprint: str) -> None:
        self.path, self.fingerprint = path, fingerprint
        self._due = -np.inf
        self.objectives = np.empty(0)
        """What the searches before the chains reached; saved with the chain."""

    def save(self, chain: Chain, *, now: bool = False) -> None:
        """Write the chain if it is time.

        The first save raises where it fails: the place is wrong. A later one warns and is tried
        again, since a full disk should not end a run of hours. Missing entries of the rows are
        no part of it: a sweep begins by drawing them anew.
        """
        began = time.monotonic()
        if self.path is None or (not now and began < self._due):
            return
        f = chain.features
        arrays = {
            "weights_now": f.weights,
            "directions_now": f.components.directions,
            "magnitudes_now": f.components.magnitudes,
            "assignments_now": f.assignments,
            "hyper_now": np.array(jax.tree.leaves(f.hyper)),
            "key": jax.random.key_data(chain.key),
            "objectives": self.objectives,
            **{f"tuning_{name}": np.array(one) for name, one in chain.tuning.items()},
            **{f"trace_{name}": np.array(values) for name, values in chain.trace.items()},
            **{f"kept_{name}": array for name, array in pack_states(chain.kept).items()},
        }
        meta = {
            "fingerprint": self.fingerprint,
            "n_live": int(f.n_live),
            "n_done": chain.n_done,
        }
        try:
            make_folder(self.path.parent)
            save_bundle(self.path, {k: np.asarray(v) for k, v in arrays.items()}, meta, kind=KIND)
        except StorageError as error:
            if self._due == -np.inf:
                raise
            message = f"the chain goes on without a new checkpoint: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        done = time.monotonic()
        self._due = done + max(EVERY, PATIENCE * (done - began))

    def load(self) -> Chain | None:
        """The chain as it was saved, or None if there is no file."""
        if self.path is None or not self.path.exists():
            return None
        arrays, meta = load_bundle(self.path, KIND)
        if meta.get("fingerprint") != self.fingerprint:
            raise StorageError(
                f"{self.path} belongs to a fit with other data, settings or seed "
                "(random_state=None is another seed each time): name another checkpoint folder, "
                "or remove this one."
            )
        try:
            self.objectives, chain = arrays["objectives"], _chain(arrays, meta)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StorageError(
                f"{self.path} is not a chain this version can read ({error}): remove it to begin "
                "again."
            ) from error
        return chain

    def remove(self) -> None:
        """Delete the file, and the folder if that leaves it empty."""
        if self.path is None:
            return
        folder = self.path.parent
        try:
            for file in (self.path, *folder.glob(".wideangle-*.tmp")):  # of a killed process
                file.unlink(missing_ok=True)
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        except OSError as error:  # the fit is done, and must not be lost for this
            message = f"cannot remove the checkpoint {self.path}: {error.strerror}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)


def _chain(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Chain:
    vectors, used = arrays["directions_now"], arrays["assignments_now"]
    room, dim = vectors.shape
    sizes = (arrays["weights_now"].shape, arrays["magnitudes_now"].shape, used.shape[1:])
    kept = unpack_states(_part(arrays, "kept_"))
    if (
        sizes != ((room,),) * 3
        or not 0 <= meta["n_live"] <= room
        or any(state.vectors.shape[1] != dim or len(state.bits) != len(used) for state in kept)
    ):
        raise ValueError("the sizes of its arrays do not fit together")
    features = Features(
        jnp.asarray(arrays["weights_now"]),
        Components(jnp.asarray(vectors), jnp.asarray(arrays["magnitudes_now"])),
        jnp.asarray(used),
        jnp.asarray(meta["n_live"], jnp.int32),
        jax.tree.map(jnp.asarray, as_hyper(arrays["hyper_now"])),
    )
    return Chain(
        jax.random.wrap_key_data(arrays["key"], impl="threefry2x32"),
        features,
        {name: _tuning(one) for name, one in _part(arrays, "tuning_").items()},
        int(meta["n_done"]),
        {name: values.tolist() for name, values in _part(arrays, "trace_").items()},
        kept,
    )


def _tuning(values: np.ndarray) -> DualAveraging:
    step, average, error, centre, turns = values
    return DualAveraging(
        jnp.asarray(step),
        jnp.asarray(average),
        jnp.asarray(error),
        jnp.asarray(centre),
        jnp.asarray(int(turns), jnp.int32),
    )


def _part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
