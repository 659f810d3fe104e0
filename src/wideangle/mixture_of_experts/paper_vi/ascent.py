r"""The paper's variational inference for the binary mixture of experts, with its formulas repaired.

.. math:: q = \prod_k \mathrm{vMF}\,\mathrm{Gamma}(\beta_k)\;\mathrm{vMF}\,\mathrm{Gamma}(\eta_k)
          \prod_n\mathrm{Cat}(z_n;\phi_n)

maximises the bound of :mod:`wideangle.mixture_of_experts.paper_vi.mixture_bound` by coordinate
ascent: every update is closed form or monotone, and none lowers the bound. A sweep costs O(NKp).

Paper: Section 3.3, Appendices B and D. Differs from the paper: the corrections named in
:mod:`wideangle.mixture_of_experts.paper_vi.bounds`; Jensen's bound on the prior's normaliser; one
learned concentration per component. The gate's bound is loose (tens of nats), so the result
under-uses its experts: prefer :mod:`wideangle.mixture_of_experts.collapsed` for anything but
comparison with the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.scipy.sparse.linalg import cg

from wideangle.checks import check_count, check_range, check_shape
from wideangle.mixture_of_experts.experts import LogisticExperts
from wideangle.mixture_of_experts.likelihood import Batch, Weights, log_lik
from wideangle.mixture_of_experts.paper_vi.factor_objective import Family, angular_moments, project
from wideangle.mixture_of_experts.paper_vi.mixture_bound import (
    Data,
    State,
    sweep,
    update_expert_splits,
    update_responsibilities,
    update_shifts,
)
from wideangle.mixture_of_experts.row_blocks import ONE_CODE, over_blocks
from wideangle.priors.components import GaussianComponents, PolarComponents
from wideangle.priors.factors import VmfGammaFactors
from wideangle.types import Array, Components, Key, Scalar

WINDOW = 5
"""Sweeps over which the stopping rule averages the gain."""


class MoeFactors(NamedTuple):
    """The factors of the gate's and of the experts' weight vectors."""

    gate: VmfGammaFactors
    experts: VmfGammaFactors


class AscentResult(NamedTuple):
    """What :func:`coordinate_ascent` found."""

    factors: MoeFactors
    gate_prior: Any
    expert_prior: Any
    bounds: np.ndarray
    """The bound (with the regulariser, if any) after each sweep; never falls."""
    converged: bool
    n_sweeps: int
    interrupted: bool


def coordinate_ascent(
    key: Key,
    batch: Batch,
    gate_prior: Any,
    expert_prior: Any,
    *,
    n_experts: int,
    max_sweeps: int = 200,
    tolerance: float = 1e-4,
    learn: tuple[bool, bool] = (False, False),
    strengths: tuple[float, float] = (0.0, 0.0),
    gamma: float = 1.0,
    start: MoeFactors | None = None,
    callback: Callable[[int, float], None] | None = None,
) -> AscentResult:
    r"""Fit the factors of a binary mixture of experts by the paper's bound.

    Parameters
    ----------
    key : key
        For the random start (unused with ``start``).
    batch : Batch
        Dense rows (N, p) with any intercept column, targets 0 or 1, weights (N,). Rows decide the
        precision.
    gate_prior, expert_prior : PolarComponents or GaussianComponents
        Over ``n_experts`` vectors; directions of kind ``"II"`` or ``"independent"``.
    n_experts, max_sweeps : int
        K, and at most how many sweeps.
    tolerance : float
        Stop when the last five sweeps raised the bound by less than ``tolerance`` nats per sweep
        and unit of row weight.
    learn : (bool, bool)
        Whether to fit :math:`\mu_0, \alpha_1, \alpha_2` of the priors of gate and experts after
        every sweep (type II maximum likelihood).
    strengths : (float, float)
        :math:`\lambda_1` (experts) and :math:`\lambda_2` (gate) of posterior regularisation:
        the bound plus :math:`\lambda\,\Omega` of the mean directions is raised instead.
    gamma : float
        Weight of the variance of the angles in :math:`\Omega`.
    start : MoeFactors, optional
        Where to start; see :func:`random_start`.
    callback : callable, optional
        Called as ``callback(sweep, bound)`` after every sweep, counted from 1.

    Notes
    -----
    Ctrl-C (also from the callback) ends the ascent and keeps the last finished sweep.
    """
    data = _checked(batch, n_experts, gate_prior, expert_prior)
    check_count("max_sweeps", max_sweeps, 1)
    check_range("tolerance", tolerance, 0.0)
    check_range("strengths", strengths, 0.0)
    check_range("gamma", gamma, 0.0)
    start = random_start(key, data, n_experts) if start is None else start
    state = initial_state(start, (gate_prior, expert_prior), data)
    dtype = data.rows.dtype
    tilt = (jnp.asarray(strengths[0], dtype), jnp.asarray(strengths[1], dtype))
    options = {"learn": tuple(learn), "regularised": any(s > 0 for s in strengths)}
    enough = tolerance * float(jnp.sum(data.weights))
    history: list[float] = []
    converged = interrupted = False
    try:
        while len(history) < max_sweeps and not converged:
            new, value = sweep(state, data, tilt, jnp.asarray(gamma, dtype), **options)
            value = float(value)  # waits for the sweep, so an interrupt here keeps the last one
            state = new
            history.append(value)
            if callback is not None:
                callback(len(history), value)
            past = history[-1 - WINDOW :]
            converged = len(past) > WINDOW and past[-1] - past[0] < WINDOW * enough
    except KeyboardInterrupt:
        if not history:  # nothing that could be kept
            raise
        interrupted = True
    return AscentResult(
        MoeFactors(state.gate.factors, state.experts.factors),
        state.gate.prior,
        state.experts.prior,
        np.array(history),
        converged,
        len(history),
        interrupted,
    )


@partial(jax.jit, compiler_options=ONE_CODE)
def initial_state(factors: MoeFactors, priors: tuple[Any, Any], data: Data) -> State:
    """A state at given factors, with all row variables at their best."""

    def family(factors: VmfGammaFactors, prior: Any) -> Family:
        # Arrays of one strong type: a second compile would otherwise follow the first sweep.
        factors, prior = jax.tree.map(
            lambda leaf: jnp.asarray(leaf, data.rows.dtype), (factors, prior)
        )
        tightness = jnp.full_like(factors.rates, min(1.0, 4.0 / factors.dim))
        along = project(factors.mean_directions, data.rows)
        angular = angular_moments(factors.concentrations, factors.dim)
        return Family(factors, prior, angular, along, tightness)

    gate, experts = family(factors.gate, priors[0]), family(factors.experts, priors[1])
    blank = jnp.ones_like(gate.along)
    state = State(gate, experts, blank, blank, blank, jnp.zeros_like(data.weights))
    return update_responsibilities(update_expert_splits(update_shifts(state, data), data), data)


@partial(jax.jit, static_argnames="n_experts", compiler_options=ONE_CODE)
def random_start(key: Key, data: Data, n_experts: int) -> MoeFactors:
    r"""Experts scattered around the least-squares classifier, gate vectors at random.

    Scores of the scatter have unit variance on an average row, whatever the scale of the columns;
    :math:`\hat\kappa = 10p`, r = 50. The least-squares fit is a few conjugate-gradient steps.
    """
    rows, weights = data.rows, data.weights
    total = jnp.maximum(jnp.sum(weights), jnp.finfo(rows.dtype).tiny)
    n, p = n_experts, rows.shape[-1]
    size = jnp.sum(weights * data.squares) / total
    size = jnp.where(size > 0, size, 1.0)

    def mean_of(factors: Array) -> Array:
        return over_blocks(lambda block: block[0] @ block[1], (weights * factors, rows)) / total

    def normal_equations(vector: Array) -> Array:
        return mean_of(rows @ vector) + 0.01 * (size / p) * vector

    fit = cg(normal_equations, mean_of(data.signs), maxiter=10)[0]
    key_gate, key_experts = random.split(key)

    def factors(key: Key, centre: Array | float) -> VmfGammaFactors:
        noise = random.normal(key, (n, p), rows.dtype) / jnp.sqrt(size)
        vectors = Components.from_vectors(centre + noise)
        shapes = jnp.full(n, 50.0, rows.dtype)
        kappa = jnp.full(n, 10.0 * p, rows.dtype)
        return VmfGammaFactors(vectors.directions, kappa, shapes, shapes / vectors.magnitudes)

    return MoeFactors(factors(key_gate, 0.0), factors(key_experts, 2.0 * fit))


def exact_elbo(
    key: Key, factors: MoeFactors, priors: tuple[Any, Any], batch: Batch, n_draws: int
) -> tuple[Scalar, Scalar]:
    r"""Monte Carlo of the collapsed evidence lower bound, and its standard error.

    .. math:: E_q\bigl[\log p(y\mid B,H) + \log p(B) + \log p(H) - \log q(B) - \log q(H)\bigr]

    z is summed out and the priors enter exactly, so this is above the bound that
    :func:`coordinate_ascent` raises by all of its slack. ``priors`` are those of gate and experts.
    """
    check_count("n_draws", n_draws, 2)
    draws = _elbo_draws(random.split(key, n_draws), factors, priors, batch)
    return jnp.mean(draws), jnp.std(draws, ddof=1) / math.sqrt(n_draws)


@jax.jit
def _elbo_draws(keys: Key, factors: MoeFactors, priors: tuple[Any, Any], batch: Batch) -> Array:
    def one(key: Key) -> Scalar:
        key_gate, key_experts = random.split(key)
        gate, experts = factors.gate.sample(key_gate), factors.experts.sample(key_experts)
        value = log_lik(LogisticExperts(), Weights(gate.vectors, experts.vectors[:, None]), batch)
        value += priors[0].log_prob_polar(gate) - factors.gate.log_prob_polar(gate)
        return value + priors[1].log_prob_polar(experts) - factors.experts.log_prob_polar(experts)

    return lax.map(one, keys)


def _checked(batch: Batch, n_experts: int, gate_prior: Any, expert_prior: Any) -> Data:
    check_count("n_experts", n_experts, 1)
    rows = np.asarray(batch.rows)
    if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.floating):  # noqa: PLR2004
        raise ValueError(
            f"batch.rows is {rows.dtype} of shape {rows.shape}: must be a floating (N, p) array."
        )
    check_range("batch.rows", rows)
    check_shape("batch.targets", np.shape(batch.targets), (len(rows),))
    check_shape("batch.weights", np.shape(batch.weights), (len(rows),))
    check_range("batch.weights", batch.weights, 0.0)
    if not np.isin(np.asarray(batch.targets), (0, 1)).all():
        raise ValueError("batch.targets: must be 0 or 1; this bound is for two classes only.")
    for name, prior in (("gate_prior", gate_prior), ("expert_prior", expert_prior)):
        if not isinstance(prior, (PolarComponents, GaussianComponents)) or prior.batch_shape:
            raise ValueError(f"{name}: must be one PolarComponents or GaussianComponents.")
        check_shape(f"one draw of {name}", prior.event_shape, (n_experts, rows.shape[1]))
        if getattr(getattr(prior, "directions", None), "kind", None) == "I":
            raise ValueError(
                f"{name} has directions of kind='I', whose expectation under q has no closed "
                "form. Use kind='II' (or 'independent'; at concentration 0 all are the same)."
            )
    return Data.of(batch)
