"""Which inference goes with which settings: the one place where priors, model and kernels meet."""

from __future__ import annotations

import warnings
from collections.abc import Callable
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
from wideangle.sharding import current_mesh, writes
from wideangle.storage import Checkpoint, fingerprint
from wideangle.types import Key

MAP_STARTS, VI_STARTS, VI_DRAWS = 8, 4, 64
MAX_SWEEPS = 200
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


def build_priors(settings: Any, n_features: int, expert: ExpertLikelihood) -> Priors:
    """Priors of gate and flattened experts from an estimator's settings."""
    given = settings.prior
    sizes = (n_features, n_features * expert.n_outputs)
    if isinstance(given, str):
        return Priors(*(_named_prior(settings, size) for size in sizes))
    pair = given if isinstance(given, tuple) else (given, given)
    for name, prior, size in zip(("gate", "experts"), pair, sizes, strict=True):
        wanted = (settings.n_experts, size)
        if not isinstance(prior, ComponentPrior) or prior.event_shape != wanted:
            shape = getattr(prior, "event_shape", None)
            raise ValueError(
                f"prior of the {name} has event shape {shape}: must be a ComponentPrior over "
                f"{wanted[0]} vectors of length {wanted[1]} (intercept column included)."
            )
    return Priors(*pair)


def _named_prior(settings: Any, size: int) -> ComponentPrior:
    n, scale = settings.n_experts, np.float32(settings.scale)
    if settings.prior == "gaussian":
        return GaussianComponents(n, size, scale)
    if settings.prior == "dpp":
        return DeterminantalComponents(n, size, scale)
    if size < 2:  # noqa: PLR2004
        raise ValueError(
            f"prior={settings.prior!r}: X has one column, and directions need two; use "
            "prior='gaussian' or fit_intercept=True."
        )
    kind = settings.kind or ("II" if settings.inference == "vi" else "I")
    if settings.prior == "vmf":
        # Independent directions; without a mean direction they are uniform.
        directions = MutualAngular(n, size, np.float32(0.0), "independent")
    elif settings.concentration is None:
        directions = MutualAngular.from_cosine(n, size, np.float32(settings.cosine), kind)
    else:
        directions = MutualAngular(n, size, np.float32(settings.concentration), kind)
    shape = np.float32(settings.magnitude_shape)
    return PolarComponents(directions, shape, shape / (scale * np.sqrt(np.float32(size))))


def fit_by_mcmc(key: Key, settings: Any, data: Rows, expert: ExpertLikelihood) -> Fitted:
    """Chains in the posterior."""
    priors = build_priors(settings, data.rows.shape[1], expert)
    fit = fit_mcmc(
        key,
        Problem(priors, expert, batch_for_sampling(data, expert, settings.n_experts)),
        sampler=settings.sampler,
        n_warmup=settings.n_warmup,
        n_draws=settings.n_draws,
        thin=settings.thin,
        n_chains=settings.n_chains,
        learn_prior=settings.learn_prior,
        progress=settings.progress,
        checkpoint=_checkpoint(key, settings, data, priors),
    )
    notes = {"acceptance": fit.run.acceptance, "interrupted": fit.run.interrupted}
    return Fitted(fit.draws, fit.priors, notes)


def fit_by_map(key: Key, settings: Any, data: Rows, expert: ExpertLikelihood) -> Fitted:
    """The most probable weights, from the best of several starts."""
    priors = build_priors(settings, data.rows.shape[1], expert)
    modes = climb(
        key,
        priors,
        expert,
        data,
        n_starts=settings.n_starts or MAP_STARTS,
        n_passes=settings.n_passes,
        regulariser=regulariser(settings),
        progress=settings.progress,
    )
    best = jax.tree.map(lambda leaf: leaf[0], modes.points)
    weights = jax.jit(weights_of, static_argnums=2)(priors, best, expert)
    draws = jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], weights)
    notes = {"log_posterior": modes.values, "interrupted": modes.interrupted}
    return Fitted(Draws({"weights": draws}), priors, notes)


def fit_by_vi(key: Key, settings: Any, data: Rows, expert: ExpertLikelihood) -> Fitted:
    """Draws of the variational laws of several starts; a start counts as a chain."""
    if settings.guide == "coordinate":
        return fit_by_coordinates(key, settings, data, expert)
    key_fit, key_draw = jax.random.split(key)
    priors = build_priors(settings, data.rows.shape[1], expert)
    checkpoint = _checkpoint(key, settings, data, priors)
    fits = climb_by_vi(key_fit, settings, data, expert, priors, checkpoint=checkpoint)
    return fitted_by_vi(key_draw, fits)


def climb_by_vi(
    key: Key, settings: Any, data: Rows, expert: ExpertLikelihood, priors: Priors, **options: Any
) -> list[VariationalFit]:
    """The starts of an estimator's settings, climbed; a finished run needs no checkpoint."""
    strengths = regulariser(settings)
    checkpoint = options.get("checkpoint")
    with checkpoint or nullcontext():
        fits = fit_vi(
            key,
            Data(*data),
            *priors,
            expert,
            q=settings.guide,
            temperature=settings.temperature,
            n_starts=settings.n_starts or VI_STARTS,
            n_passes=settings.n_passes,
            batch_size=settings.batch_size,
            strengths=(0.0, 0.0)
            if strengths is None
            else (settings.strength, float(strengths.gate)),
            gamma=settings.gamma,
            learn_prior=settings.learn_prior,
            progress=settings.progress,
            **options,
        )
    if checkpoint is not None and not fits[0].interrupted:
        checkpoint.remove(may_fail=True)
    return fits


def fitted_by_vi(key: Key, fits: list[VariationalFit]) -> Fitted:
    """Draws of the laws that were reached, one chain for each."""
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


def fit_by_coordinates(key: Key, settings: Any, data: Rows, expert: ExpertLikelihood) -> Fitted:
    """The paper's coordinate ascent: two classes, one start, its own bound."""
    if not isinstance(expert, LogisticExperts):
        raise ValueError("guide='coordinate': the paper's updates are for two classes only.")
    priors = build_priors(settings, data.rows.shape[1], expert)
    strengths = regulariser(settings)
    key_fit, key_draw = jax.random.split(key)
    found = coordinate_ascent(
        key_fit,
        dense_batch(data),
        *priors,
        n_experts=settings.n_experts,
        max_sweeps=settings.n_passes or MAX_SWEEPS,
        learn_prior=settings.learn_prior,
        strengths=(0.0, 0.0) if strengths is None else (settings.strength, float(strengths.gate)),
        gamma=settings.gamma,
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


FITS: dict[str, Callable[[Key, Any, Rows, ExpertLikelihood], Fitted]] = {
    "mcmc": fit_by_mcmc,
    "map": fit_by_map,
    "vi": fit_by_vi,
}


def regulariser(settings: Any) -> Regulariser | None:
    """Omega's weights, or None when both are 0."""
    gate = settings.strength if settings.gate_strength is None else settings.gate_strength
    if settings.strength == 0 and gate == 0:
        return None
    return Regulariser(*(jnp.float32(v) for v in (settings.strength, gate, settings.gamma)))


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


def _checkpoint(key: Key, settings: Any, data: Rows, priors: Priors) -> Checkpoint | None:
    rows = data.rows
    parts = (rows.data, rows.indices, rows.indptr) if sp.issparse(rows) else (rows,)
    arrays = {f"rows_{i}": part for i, part in enumerate(parts)}
    arrays |= {"targets": data.targets, "weights": data.weights}
    return checkpoint_for(key, settings, arrays, priors)


def checkpoint_for(
    key: Key, settings: Any, arrays: dict[str, Any], priors: Priors
) -> Checkpoint | None:
    """The checkpoint that the settings ask for, of these data and no others."""
    if settings.checkpoint is None:
        return None
    params = settings.get_params(deep=False)
    # Objects are told apart by what is in them, not by a repr that holds their address.
    apart = ("checkpoint", "progress", "random_state", "prior")
    meta = {k: repr(v) for k, v in params.items() if k not in apart}
    meta["prior"] = [type(prior).__name__ for prior in priors]
    arrays = arrays | {"key": jax.random.key_data(key)}
    arrays |= {f"prior_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(priors))}
    mark = fingerprint({k: np.asarray(v) for k, v in arrays.items()}, meta)
    # Of several processes one writes, and all read.
    kind = Checkpoint if writes() else ReadOnlyCheckpoint
    return kind(settings.checkpoint, fingerprint=mark)


class ReadOnlyCheckpoint(Checkpoint):
    """A checkpoint that another process writes."""

    def __call__(self, state: Any, draws: Any) -> None:
        """Leave it to the other."""

    def remove(self, *, may_fail: bool = False) -> None:
        """Leave it to the other."""
