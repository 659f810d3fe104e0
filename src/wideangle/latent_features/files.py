"""Files of a fit: checkpoints of chains, and models. Arrays and JSON, no code."""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import NotFittedError

from wideangle.infer.kernel import DualAveraging
from wideangle.latent_features.chain import Chain
from wideangle.latent_features.posterior import DrawsOfChains, Matched
from wideangle.latent_features.settings import FARTHEST, Scaling
from wideangle.latent_features.state import Draw, Features, Hyper
from wideangle.priors.stick_breaking import Buffet
from wideangle.storage import StorageError, save_bundle
from wideangle.storage.checkpoint import SavedRun
from wideangle.storage.models import check_numbers, described, part_of, read_model, remade
from wideangle.types import Components

LARGEST = 1e135
"""Range of units; slightly wider than that of the entries they come from."""
KIND = "latent-feature-model"

Arrays = dict[str, np.ndarray]


def pack_draws(draws: list[Draw]) -> Arrays:
    """Draws one after the other: features along the first axis, assignments along the second."""
    if not draws:
        return {}
    return {
        "n_features": np.array([len(draw.weights) for draw in draws]),
        "weights": np.concatenate([draw.weights for draw in draws]),
        "vectors": np.concatenate([draw.vectors for draw in draws]),
        "worth": np.concatenate([draw.worth for draw in draws]),
        "packed": np.concatenate([draw.packed for draw in draws], axis=1),
        "hyper": np.stack([np.array(jax.tree.leaves(draw.hyper)) for draw in draws]),
    }


def unpack_draws(arrays: Arrays) -> list[Draw]:
    """The draws of :func:`pack_draws`."""
    if "n_features" not in arrays:
        return []
    counts = arrays["n_features"]
    most = len(arrays["weights"])
    if counts.dtype.kind not in "iu" or counts.ndim != 1 or np.any((counts < 0) | (counts > most)):
        raise ValueError("the numbers of features of the draws make no sense")
    ends, bytes_ends = np.cumsum(counts), np.cumsum(-(-counts // 8))
    if not ends[-1] == most == len(arrays["worth"]) or bytes_ends[-1] != arrays["packed"].shape[1]:
        raise ValueError("the sizes of the draws do not add up")
    names = "weights", "vectors", "worth"
    weights, vectors, worth = (np.split(arrays[name], ends[:-1]) for name in names)
    packed = np.split(arrays["packed"], bytes_ends[:-1], axis=1)
    every = zip(weights, vectors, map(as_hyper, arrays["hyper"]), packed, worth, strict=True)
    return [Draw(*parts) for parts in every]


def as_hyper(values: np.ndarray) -> Hyper:
    """Hyperparameters from their values in order."""
    mass, discount, strength, *others = values
    return Hyper(Buffet(mass, discount, strength), *others)


# ---------------------------------------------------------------- checkpoints


class ChainCheckpoint(SavedRun):
    """One chain on disk. Imputed entries are not saved: a sweep draws them again."""

    objectives = np.empty(0)
    """Objectives of the searches before the chains; saved with the chain."""

    def save_chain(self, chain: Chain, *, now: bool = False) -> None:
        """Write the chain if a save is due, or at once."""
        if not (now or self.due):
            return
        if self.has_lost_draws:
            self.forget()  # the chain holds all of them
        features, (n_trace, n_draws) = chain.features, self._on_disk or (0, 0)
        state = {
            "weights": features.weights,
            "directions": features.components.directions,
            "magnitudes": features.components.magnitudes,
            "assignments": features.assignments,
            "n_live": features.n_live,
            "hyper": np.array(jax.tree.leaves(features.hyper)),
            "key": jax.random.key_data(chain.key),
            "n_done": np.array(chain.n_done),
            "objectives": self.objectives,
            **{f"tuning_{name}": np.array(one) for name, one in chain.tuning.items()},
        }
        new = {f"trace_{name}": np.array(one[n_trace:]) for name, one in chain.trace.items()}
        new |= {f"draws_{k}": array for k, array in pack_draws(chain.draws[n_draws:]).items()}
        length = len(chain.trace.get("n_active", ()))
        self.save(
            {name: np.asarray(array) for name, array in state.items()},
            new if length > n_trace else None,
            (length, len(chain.draws)),
            may_fail=self._due != -np.inf,
        )

    def load_chain(self) -> Chain | None:
        """The chain as it was saved, or None if there is no file."""
        found = self.read()
        if found is None:
            return None
        state, parts = found
        try:
            chain = _chain(state, parts)
            self.objectives = state["objectives"]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StorageError(
                f"{self.path} is not a chain this version can read ({error}): remove it to begin "
                "again."
            ) from error
        self._on_disk = len(chain.trace.get("n_active", ())), len(chain.draws)
        return chain


def _chain(state: Arrays, parts: list[Arrays]) -> Chain:
    directions, assignments = state["directions"], state["assignments"]
    room, dim = directions.shape
    sizes = (state["weights"].shape, state["magnitudes"].shape, assignments.shape[1:])
    draws = [draw for part in parts for draw in unpack_draws(part_of(part, "draws_"))]
    if (
        sizes != ((room,),) * 3
        or not 0 <= state["n_live"] <= room
        or any(draw.vectors.shape[1] != dim for draw in draws)
        or any(len(draw.packed) != len(assignments) for draw in draws)
    ):
        raise ValueError("the sizes of its arrays do not fit together")
    features = Features(
        jnp.asarray(state["weights"]),
        Components(jnp.asarray(directions), jnp.asarray(state["magnitudes"])),
        jnp.asarray(assignments),
        jnp.asarray(state["n_live"], jnp.int32),
        jax.tree.map(jnp.asarray, as_hyper(state["hyper"])),
    )
    traces = [part_of(part, "trace_") for part in parts]
    return Chain(
        jax.random.wrap_key_data(state["key"], impl="threefry2x32"),
        features,
        {name: _tuning(one) for name, one in part_of(state, "tuning_").items()},
        int(state["n_done"]),
        {name: np.concatenate([one[name] for one in traces]).tolist() for name in traces[0]}
        if traces
        else {},
        draws,
    )


def _tuning(values: np.ndarray) -> DualAveraging:
    step, average, error, centre, turns = map(jnp.asarray, values)
    return DualAveraging(step, average, error, centre, turns.astype(jnp.int32))


# ---------------------------------------------------------------- fitted models


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model; see :meth:`LatentFeatureModel.save`."""
    if not hasattr(model, "matched_"):
        raise NotFittedError("save() needs a fitted model: call fit first.")
    matched = model.matched_._asdict()
    n_disputed = matched.pop("n_disputed")
    arrays = {
        "shift": model.scaling_.shift,
        "start_objectives": model.start_objectives_,
        "chains": model.chains_.chains,
        **({} if model.chains_.stacked is None else {"stacked": model.chains_.stacked}),
        **{f"draws_{name}": array for name, array in pack_draws(model.chains_.draws).items()},
        **{f"trace_{name}": array for name, array in model.chains_.trace.items()},
        **{f"matched_{name}": array for name, array in matched.items()},
    }
    meta = described(model) | {
        "scale": model.scaling_.scale,
        "seed": model._seed,
        "n_disputed": int(n_disputed),
        "interrupted": model.interrupted_,
        "n_rows": model.n_rows_,
    }
    save_bundle(path, {k: np.asarray(v) for k, v in arrays.items()}, meta, kind=KIND)


def load(cls: type, path: str | os.PathLike[str]) -> Any:
    """Read a model written by :func:`save`."""
    return read_model(cls, path, KIND, _restore)


def _restore(cls: type, arrays: Arrays, meta: dict[str, Any]) -> Any:
    model = remade(cls, meta)
    check_numbers(arrays)
    model.scaling_ = Scaling(arrays["shift"], float(meta["scale"]))
    model.start_objectives_ = arrays["start_objectives"]
    model.interrupted_ = bool(meta["interrupted"])
    model.n_rows_ = int(meta["n_rows"])
    model._seed = int(meta["seed"])
    draws = unpack_draws(part_of(arrays, "draws_"))
    trace = part_of(arrays, "trace_")
    model.chains_ = DrawsOfChains(draws, arrays["chains"], trace, arrays.get("stacked"))
    model.matched_ = Matched(**part_of(arrays, "matched_"), n_disputed=int(meta["n_disputed"]))
    _check_sizes(model)
    model._summarise()
    return model


def _check_sizes(model: Any) -> None:
    """Reject arrays that do not fit together, before they are used."""
    draws, found = model.chains_.draws, model.matched_
    sizes = [len(draw.weights) for draw in draws]
    trace = model.chains_.trace
    lengths = {values.shape[:2] for values in trace.values()}
    n_components = len(found.components)
    by_component = found.presence, found.spread, found.prevalence, found.energy
    right = (
        len(draws) > 0
        and [len(shape) for shape in lengths] == [2]
        and 0 not in min(lengths)
        and bool(np.all(trace["noise_variance"] >= 0))
        and _are_numbers_of(model.chains_.chains, (len(draws),), min(lengths)[0])
        and model.chains_.weights.shape == (int(model.chains_.chains.max()) + 1,)
        and bool(np.all(model.chains_.weights >= 0))
        and bool(np.isclose(model.chains_.weights.sum(), 1.0))
        and model.scaling_.shift.shape == (model.n_features_in_,)
        and found.components.shape == (n_components, model.n_features_in_)
        and _are_numbers_of(found.index, (len(draws), n_components), max(sizes), least=-1)
        and bool(np.all(found.index < np.array(sizes)[:, None]))
        and all(one.shape == (n_components,) for one in by_component)
        and found.by_chain.shape == (len(model.chains_.weights), n_components)
        and all(
            draw.vectors.shape == (n, model.n_features_in_)
            and np.max(np.abs(draw.vectors), initial=0.0) <= FARTHEST
            for draw, n in zip(draws, sizes, strict=True)
        )
        and all(len(draw.packed) == model.n_rows_ for draw in draws)
        and all(min(jax.tree.leaves(draw.hyper)) >= 0 for draw in draws)
        and all(draw.noise_variance > 0 for draw in draws)
        and model._seed >= 0
        and 1.0 / LARGEST <= model.scaling_.scale <= LARGEST
        and bool(np.all(np.abs(model.scaling_.shift) <= LARGEST))
    )
    if not right:
        raise ValueError("its arrays do not fit together")


def _are_numbers_of(array: np.ndarray, shape: tuple[int, ...], n: int, least: int = 0) -> bool:
    """Whether an array has this shape and holds whole numbers from ``least`` to below n."""
    whole = array.dtype.kind in "iu" and array.shape == shape
    return whole and bool(np.all((array >= least) & (array < n)))
