"""Which inference goes with which settings: the one place where priors, model and kernels meet."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from wideangle.diagnostics import warn
from wideangle.infer.ascent import as_dense
from wideangle.mixture_of_experts.coordinates import Priors, Problem, weights_of
from wideangle.mixture_of_experts.experts import ExpertLikelihood, LogisticExperts
from wideangle.mixture_of_experts.likelihood import Batch, Weights
from wideangle.mixture_of_experts.modes import Regulariser, climb, fill, round_up
from wideangle.mixture_of_experts.paper_vi.ascent import coordinate_ascent
from wideangle.mixture_of_experts.sampling import fit_mcmc
from wideangle.mixture_of_experts.sparse import SparseBatch, has_sparse_form
from wideangle.mixture_of_experts.variational import Data, VariationalFit, fit_vi
from wideangle.posterior import Draws, evenly
from wideangle.priors.components import ComponentPrior, GaussianComponents, PolarComponents
from wideangle.priors.dpp import DeterminantalComponents
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.settings import (
    AUTO,
    LEARN,
    PRIORS,
    DeterminantalPrior,
    GaussianPrior,
    Maximise,
    MutualAngularPrior,
    Sampling,
    Settings,
    Variational,
    VonMisesFisherPrior,
    as_plain,
    named,
)
from wideangle.sharding import current_mesh, writes
from wideangle.storage import Checkpoint, fingerprint
from wideangle.types import Key

STEPS, COSINE = 400, 0.2
"""Steps before and after the first draw, and strength of repulsion, where none is given."""
VI_DRAWS, MAX_SWEEPS = 64, 200
REFERENCE = 256
"""Training rows on which draws are compared."""
DENSE_LIMIT = 2**31
"""Bytes up to which sparse rows are made dense where a method has no other way."""
SPARSE_SHARE, SPARSE_EXPERTS, SPARSE_SIZE = 0.15, 16, 2**23
"""Sparse rows stay sparse with at most this share of entries that are not 0 (with this many
experts; fewer ask for a smaller share), and at least this many entries times experts in all:
elsewhere matrix products were faster, on one core and with 5 to 30 experts."""


class Rows(NamedTuple):
    """Prepared data: rows (N, p) dense or CSR with the intercept, classes 0..C-1, weights."""

    rows: Any
    targets: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class Fitted:
    """What a fit leaves behind."""

    draws: Draws
    """Values ``weights`` and ``log_lik``, axes (chain, draw, ...); starts count as chains."""
    priors: Priors
    notes: dict[str, Any] = field(default_factory=dict)


class Task(NamedTuple):
    """What is to be fitted, and how."""

    priors: Priors
    learn: tuple[bool, bool]
    """Whether the priors of gate and experts are fitted to the data (empirical Bayes)."""
    expert: ExpertLikelihood
    inference: Any
    checkpoint: Any = None
    progress: bool | None = None


def pair_of(prior: Any) -> tuple[Any, Any]:
    """The choices for gate and experts: names become settings objects."""
    pair = prior if isinstance(prior, tuple) else (prior, prior)
    if len(pair) != 2 or any(isinstance(one, str) and one not in PRIORS for one in pair):  # noqa: PLR2004
        raise ValueError(
            f"prior={prior!r}: a pair must hold two priors, of the gate and of the experts, each "
            f"one of {sorted(PRIORS)}, a settings object or a ComponentPrior."
        )
    gate, experts = (named(one, PRIORS) for one in pair)
    return gate, experts


def check_choices(prior: Any, inference: Any, checkpoint: Any) -> None:
    """Refuse settings that this model, or this inference, has no use for."""
    for one in pair_of(prior):
        _check_prior(one, inference)
    if isinstance(inference, Sampling) and inference.kernel == "gibbs":
        raise ValueError("kernel='gibbs': is for latent features; use 'hmc' or leave it None.")
    if isinstance(inference, Variational) and inference.guide == "coordinate":
        usual = Variational()
        for name in ("temperature", "n_starts", "batch_size"):
            if getattr(inference, name) != getattr(usual, name):
                raise ValueError(
                    f"{name}={getattr(inference, name)!r}: guide='coordinate' has one start, all "
                    "rows at once and no temperature; leave it at its default."
                )
    if not isinstance(inference, Sampling):
        weights_of_diversity(inference)
    if checkpoint is None or isinstance(inference, Sampling):
        return
    if isinstance(inference, Maximise) or inference.guide == "coordinate":
        raise ValueError(
            f"checkpoint={checkpoint!r}: only runs by inference='mcmc' and by 'vi' with "
            "guide='diagonal' or 'vmf' are saved while they last; use checkpoint=None."
        )


def _check_prior(prior: Any, inference: Settings) -> None:
    scale = getattr(prior, "scale", None)
    if scale == LEARN:
        raise ValueError(
            "scale='learn': the mixture of experts cannot draw the scale; use 'auto' or a number."
        )
    if scale == AUTO and isinstance(prior, GaussianPrior):
        raise ValueError("scale='auto': the Gaussian prior of experts has a fixed scale; use 1.0.")
    if scale == AUTO and isinstance(inference, Maximise):
        raise ValueError(
            "scale='auto': inference='map' does not fit the prior to the data; use a number."
        )
    if getattr(prior, "concentration", None) == LEARN:
        raise ValueError(
            "concentration='learn': the mixture of experts has a fixed one; set cosine instead."
        )


def learned_priors(prior: Any, inference: Settings) -> tuple[bool, bool]:
    """Which priors are fitted to the data: those in polar form without a fixed scale."""
    if isinstance(inference, Maximise):
        return False, False
    polar = MutualAngularPrior, VonMisesFisherPrior
    gate, experts = (isinstance(one, polar) and one.scale in (None, AUTO) for one in pair_of(prior))
    return gate, experts


def build_priors(
    prior: Any, inference: Settings, n_experts: int, n_columns: int, expert: ExpertLikelihood
) -> Priors:
    """Priors of gate and flattened experts from what was chosen."""
    sizes = n_columns, n_columns * expert.n_outputs
    built = []
    for name, one, size in zip(("gate", "experts"), pair_of(prior), sizes, strict=True):
        if isinstance(one, Settings):
            built.append(_build_prior(one, inference, n_experts, size))
            continue
        shape = getattr(one, "event_shape", None)
        if not isinstance(one, ComponentPrior) or shape != (n_experts, size):
            raise ValueError(
                f"prior of the {name} has event shape {shape}: must be a ComponentPrior over "
                f"{n_experts} vectors of length {size} (intercept column included)."
            )
        built.append(one)
    return Priors(*built)


def _build_prior(prior: Any, inference: Settings, n: int, size: int) -> ComponentPrior:
    # Empirical Bayes starts from 1, too.
    scale = np.float32(1.0 if prior.scale in (None, AUTO) else prior.scale)
    if isinstance(prior, GaussianPrior):
        return GaussianComponents(n, size, scale)
    if isinstance(prior, DeterminantalPrior):
        return DeterminantalComponents(n, size, scale)
    if size < 2:  # noqa: PLR2004
        raise ValueError(
            f"prior={prior}: X has one column, and directions need two; use prior='gaussian' or "
            "fit_intercept=True."
        )
    if isinstance(prior, VonMisesFisherPrior):
        # Independent directions; without a mean direction they are uniform.
        directions = MutualAngular(n, size, np.float32(0.0), "independent")
    else:
        kind = prior.kind or ("II" if isinstance(inference, Variational) else "I")
        if prior.concentration is None:
            cosine = COSINE if prior.cosine is None else prior.cosine
            directions = MutualAngular.from_cosine(n, size, np.float32(cosine), kind)
        else:
            directions = MutualAngular(n, size, np.float32(prior.concentration), kind)
    shape = np.float32(prior.magnitude_shape)
    return PolarComponents(directions, shape, shape / (scale * np.sqrt(np.float32(size))))


def fit(key: Key, task: Task, data: Rows) -> Fitted:
    """Fit by the inference of the task."""
    if isinstance(task.inference, Sampling):
        return fit_by_mcmc(key, task, data)
    if isinstance(task.inference, Maximise):
        return fit_by_map(key, task, data)
    if task.inference.guide == "coordinate":
        return fit_by_coordinates(key, task, data)
    return fit_by_vi(key, task, data)


def fit_by_mcmc(key: Key, task: Task, data: Rows) -> Fitted:
    """Chains in the posterior."""
    chosen = task.inference
    n_experts = task.priors.gate.n_components
    fit = fit_mcmc(
        key,
        Problem(task.priors, task.expert, batch_for_sampling(data, task.expert, n_experts)),
        sampler=chosen.kernel or "hmc",
        n_warmup=STEPS if chosen.n_warmup is None else chosen.n_warmup,
        n_draws=chosen.n_draws or STEPS,
        thin=chosen.thin or 1,
        n_chains=chosen.n_chains,
        learn=task.learn,
        progress=task.progress,
        checkpoint=_checkpoint(key, task, data),
    )
    notes = {"acceptance": fit.run.acceptance, "interrupted": fit.run.interrupted}
    return Fitted(fit.draws, fit.priors, notes)


def fit_by_map(key: Key, task: Task, data: Rows) -> Fitted:
    """The most probable weights, from the best of several starts."""
    modes = climb(
        key,
        task.priors,
        task.expert,
        data,
        n_starts=task.inference.n_starts,
        n_passes=task.inference.n_passes,
        regulariser=regulariser(task.inference),
        progress=task.progress,
    )
    best = jax.tree.map(lambda leaf: leaf[0], modes.points)
    weights = jax.jit(weights_of, static_argnums=2)(task.priors, best, task.expert)
    draws = jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], weights)
    notes = {"log_posterior": modes.values, "interrupted": modes.interrupted}
    return Fitted(Draws({"weights": draws}), task.priors, notes)


def fit_by_vi(key: Key, task: Task, data: Rows) -> Fitted:
    """Draws of the approximations of several starts; a start counts as a chain."""
    key_fit, key_draw = jax.random.split(key)
    fits = climb_by_vi(key_fit, task, data, checkpoint=_checkpoint(key, task, data))
    return fitted_by_vi(key_draw, fits)


def climb_by_vi(
    key: Key, task: Task, data: Rows, *, checkpoint: Checkpoint | None, stream: Any = None
) -> list[VariationalFit]:
    """The starts, climbed; a finished run needs no checkpoint."""
    chosen = task.inference
    with checkpoint or nullcontext():
        fits = fit_vi(
            key,
            Data(*data),
            *task.priors,
            task.expert,
            q=chosen.guide,
            temperature=chosen.temperature,
            n_starts=chosen.n_starts,
            n_passes=chosen.n_passes,
            batch_size=chosen.batch_size,
            strengths=weights_of_diversity(chosen),
            gamma=chosen.gamma,
            learn=task.learn,
            progress=task.progress,
            checkpoint=checkpoint,
            stream=stream,
        )
    if checkpoint is not None and not fits[0].interrupted:
        checkpoint.remove(may_fail=True)
    return fits


def fitted_by_vi(key: Key, fits: list[VariationalFit]) -> Fitted:
    """Draws of the approximations that were reached, one chain for each."""
    keys = jax.random.split(key, len(fits))
    each = [fit.sample(k, VI_DRAWS) for fit, k in zip(fits, keys, strict=True)]
    draws = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *each)
    notes = {
        "elbo": [fit.elbo for fit in fits],
        "elbo_error": [fit.elbo_error for fit in fits],
        "temperature": fits[0].temperature,
        "interrupted": fits[0].interrupted,
        "steps": len(fits[0].trace),
    }
    return Fitted(Draws({"weights": draws}), Priors(*fits[0].priors), notes)


def fit_by_coordinates(key: Key, task: Task, data: Rows) -> Fitted:
    """The paper's coordinate ascent: two classes, one start, its own bound."""
    if not isinstance(task.expert, LogisticExperts):
        raise ValueError("guide='coordinate': the paper's updates are for two classes only.")
    key_fit, key_draw = jax.random.split(key)
    found = coordinate_ascent(
        key_fit,
        dense_batch(data),
        *task.priors,
        n_experts=task.priors.gate.n_components,
        max_sweeps=task.inference.n_passes or MAX_SWEEPS,
        learn=task.learn,
        strengths=weights_of_diversity(task.inference),
        gamma=task.inference.gamma,
    )
    if found.interrupted:
        warnings.warn(f"interrupted after {found.n_sweeps} sweeps", RuntimeWarning, stacklevel=2)
    elif not found.converged:
        warn([f"the bound still rises after {found.n_sweeps} sweeps: raise n_passes."])
    keys = jax.random.split(key_draw)
    gate, experts = (
        f.sample(k, (VI_DRAWS,)).vectors for f, k in zip(found.factors, keys, strict=True)
    )
    draws = Weights(np.asarray(gate)[None], np.asarray(experts)[None, :, :, None])
    notes = {"bound": float(found.bounds[-1]), "interrupted": found.interrupted}
    return Fitted(Draws({"weights": draws}), Priors(found.gate_prior, found.expert_prior), notes)


def weights_of_diversity(inference: Any) -> tuple[float, float]:
    """Weights of Omega of experts and gate; one number is for both."""
    value = inference.diversity
    both = value if isinstance(value, tuple) else (value, value)
    if len(both) != 2 or not all(isinstance(one, int | float) and one >= 0 for one in both):  # noqa: PLR2004
        raise ValueError(
            f"diversity={value!r}: must be a number of at least 0, or two of them, for the experts "
            "and for the gate."
        )
    return float(both[0]), float(both[1])


def regulariser(inference: Any) -> Regulariser | None:
    """Omega's weights, or None when both are 0."""
    both = weights_of_diversity(inference)
    return Regulariser(*map(jnp.float32, (*both, inference.gamma))) if any(both) else None


def batch_for_sampling(data: Rows, expert: ExpertLikelihood, n_experts: int) -> Batch | SparseBatch:
    """All rows, for methods that need them at every step: sparse where that is faster."""
    rows = data.rows
    there = jax.default_backend() != "cpu" or current_mesh() is not None
    if not sp.issparse(rows) or there or not has_sparse_form(expert):
        return dense_batch(data)
    size = rows.shape[0] * rows.shape[1]
    share = SPARSE_SHARE * min(1.0, n_experts / SPARSE_EXPERTS)
    faster = rows.nnz <= share * size and n_experts * size >= SPARSE_SIZE
    if not faster and 4 * size <= DENSE_LIMIT:
        return dense_batch(data)
    # Empty rows of weight 0 cost nothing, and minibatches are those of dense rows.
    missing = round_up(rows.shape[0]) - rows.shape[0]
    filled = sp.csr_array(
        (rows.data, rows.indices, np.pad(rows.indptr, (0, missing), "edge")),
        shape=(rows.shape[0] + missing, rows.shape[1]),
    )
    weights = np.pad(data.weights.astype(np.float32), (0, missing))
    return SparseBatch(filled, np.pad(data.targets, (0, missing)), weights)


def dense_batch(data: Rows) -> Batch:
    """All rows on the device, or on the host if they are to be spread over several.

    Refuses sparse data that would not fit.
    """
    rows = data.rows
    if sp.issparse(rows):
        size = rows.shape[0] * rows.shape[1] * 4
        if size > DENSE_LIMIT:
            raise ValueError(
                f"X has {rows.shape[0]} x {rows.shape[1]} entries, {size / 2**30:.1f} GiB when "
                "dense, which is needed here (on a GPU, and for guide='coordinate'). Use "
                "inference='vi', which reads sparse minibatches, or fewer columns."
            )
        rows = rows.toarray()
    return fill(Batch(rows, data.targets, data.weights.astype(np.float32)))


def reference_rows(data: Rows, n_rows: int = REFERENCE) -> np.ndarray:
    """Some training rows, evenly spread, on which draws are compared."""
    chosen = evenly(data.rows.shape[0], n_rows)
    return as_dense(data.rows, chosen, np.float32)


def _checkpoint(key: Key, task: Task, data: Rows) -> Checkpoint | None:
    rows = data.rows
    parts = (rows.data, rows.indices, rows.indptr) if sp.issparse(rows) else (rows,)
    arrays = {f"rows_{i}": part for i, part in enumerate(parts)}
    return checkpoint_for(key, task, arrays | {"targets": data.targets, "weights": data.weights})


def checkpoint_for(key: Key, task: Task, arrays: dict[str, Any]) -> Checkpoint | None:
    """The checkpoint that was asked for, of these data and settings and no others."""
    if task.checkpoint is None:
        return None
    # Priors count by what is in them, not by a repr that holds an address.
    meta = {
        "inference": repr(as_plain(task.inference)),
        "learn": repr(task.learn),
        "expert": repr(task.expert),
        "prior": [type(prior).__name__ for prior in task.priors],
    }
    arrays = arrays | {"key": jax.random.key_data(key)}
    arrays |= {f"prior_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(task.priors))}
    mark = fingerprint({k: np.asarray(v) for k, v in arrays.items()}, meta)
    # Of several processes one writes, and all read.
    kind = Checkpoint if writes() else ReadOnlyCheckpoint
    return kind(task.checkpoint, fingerprint=mark)


class ReadOnlyCheckpoint(Checkpoint):
    """A checkpoint that another process writes."""

    def __call__(self, state: Any, draws: Any) -> None:
        """Leave it to the other."""

    def remove(self, *, may_fail: bool = False) -> None:
        """Leave it to the other."""
