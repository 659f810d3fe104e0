r"""The paper's variational inference for the binary mixture of experts, with its formulas repaired.

.. math:: q = \prod_k \mathrm{vMF}\,\mathrm{Gamma}(\beta_k)\;\mathrm{vMF}\,\mathrm{Gamma}(\eta_k)
          \prod_n\mathrm{Cat}(z_n;\phi_n)

maximises the bound of :mod:`wideangle_lab.paper.coordinate_ascent.mixture_bound` by coordinate
ascent: every update is closed form or monotone, and none lowers the bound. A sweep costs O(NKp).

Paper: Section 3.3, Appendices B and D. Differs from the paper: the corrections named in
:mod:`wideangle_lab.paper.coordinate_ascent.bounds`; Jensen's bound on the prior's normaliser; one
learned concentration per component. The gate's bound is loose (tens of nats), so the result
under-uses its experts: prefer :mod:`wideangle.mixture_of_experts.collapsed` for anything but
comparison with the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.scipy.sparse.linalg import cg

from wideangle.checks import check_range, check_shape
from wideangle.mixture_of_experts.coordinates import Priors
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import Pair, over_blocks
from wideangle.mixture_of_experts.task import NEITHER, Regulariser
from wideangle.priors.components import GaussianComponents, PolarComponents
from wideangle.priors.factors import VmfGammaFactors
from wideangle.types import Array, Components, Key
from wideangle_lab.paper.coordinate_ascent.factor_objective import Family, angular_moments, project
from wideangle_lab.paper.coordinate_ascent.mixture_bound import (
    NOTHING,
    ONE_CODE,
    SignedData,
    State,
    sweep,
    update_expert_splits,
    update_responsibilities,
    update_shifts,
)

MAX_SWEEPS = 200
WINDOW = 5
"""Sweeps over which the stopping rule averages the gain."""


Factors: TypeAlias = Pair[VmfGammaFactors]
"""The factors of the gate's and of the experts' weight vectors."""


class AscentResult(NamedTuple):
    """What :func:`coordinate_ascent` found."""

    factors: Factors
    priors: Priors
    bounds: np.ndarray
    """The bound (with the regulariser, if any) after each sweep; never falls."""
    converged: bool
    interrupted: bool


def coordinate_ascent(
    key: Key,
    data: Data,
    priors: Priors,
    *,
    max_sweeps: int = MAX_SWEEPS,
    tolerance: float = 1e-4,
    learn: Pair[bool] = NEITHER,
    regulariser: Regulariser | None = None,
    start: Factors | None = None,
    callback: Callable[[int, float], None] | None = None,
) -> AscentResult:
    r"""Fit the factors of a binary mixture of experts by the paper's bound.

    Parameters
    ----------
    key : key
        For the random start (unused with ``start``).
    data : Data
        Dense rows (N, p) with any intercept column, targets 0 or 1, weights (N,). Rows decide the
        precision.
    priors : Pair of PolarComponents or GaussianComponents
        Over K vectors; directions of kind ``"II"`` or ``"independent"``.
    max_sweeps : int
        At most how many sweeps.
    tolerance : float
        Stop when the last five sweeps raised the bound by less than ``tolerance`` nats per sweep
        and unit of row weight.
    learn : Pair of bool
        Whether to fit :math:`\mu_0, \alpha_1, \alpha_2` of a prior after every sweep (type II
        maximum likelihood).
    regulariser : Regulariser, optional
        Posterior regularisation: the bound plus :math:`\lambda\,\Omega` of the mean directions is
        raised instead.
    start : Pair of VmfGammaFactors, optional
        Where to start; see :func:`random_start`.
    callback : callable, optional
        Called as ``callback(sweep, bound)`` after every sweep, counted from 1.

    Notes
    -----
    Ctrl-C (also from the callback) ends the ascent and keeps the last finished sweep.
    """
    signed = _checked(data, priors)
    if start is None:
        start = random_start(key, signed, priors.gate.n_components)
    state = initial_state(start, priors, signed)
    dtype = signed.rows.dtype
    added = NOTHING if regulariser is None else regulariser
    added = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), added)
    enough = tolerance * float(jnp.sum(signed.weights))
    history: list[float] = []
    converged = interrupted = False
    try:
        while len(history) < max_sweeps and not converged:
            new, value = sweep(
                state, signed, added, learn=learn, regularised=regulariser is not None
            )
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
        Pair(state.gate.factors, state.experts.factors),
        Pair(state.gate.prior, state.experts.prior),
        np.array(history),
        converged,
        interrupted,
    )


@partial(jax.jit, compiler_options=ONE_CODE)
def initial_state(factors: Factors, priors: Priors, data: SignedData) -> State:
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

    gate, experts = map(family, factors, priors)
    blank = jnp.ones_like(gate.along)
    state = State(gate, experts, blank, blank, blank, jnp.zeros_like(data.weights))
    return update_responsibilities(update_expert_splits(update_shifts(state, data), data), data)


@partial(jax.jit, static_argnames="n_experts", compiler_options=ONE_CODE)
def random_start(key: Key, data: SignedData, n_experts: int) -> Factors:
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

    return Pair(factors(key_gate, 0.0), factors(key_experts, 2.0 * fit))


def _checked(data: Data, priors: Priors) -> SignedData:
    rows = np.asarray(data.rows)
    if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.floating):  # noqa: PLR2004
        raise ValueError(
            f"rows are {rows.dtype} of shape {rows.shape}: must be a floating (N, p) array."
        )
    check_range("rows", rows)
    check_shape("targets", np.shape(data.targets), (len(rows),))
    check_shape("weights", np.shape(data.weights), (len(rows),))
    check_range("weights", data.weights, 0.0)
    if not np.isin(np.asarray(data.targets), (0, 1)).all():
        raise ValueError("targets: must be 0 or 1; this bound is for two classes only.")
    for name, prior in zip(("gate", "experts"), priors, strict=True):
        if not isinstance(prior, (PolarComponents, GaussianComponents)) or prior.batch_shape:
            raise ValueError(
                f"prior of the {name}: the ascent needs one in polar form or a Gaussian."
            )
        shape = (priors.gate.n_components, rows.shape[1])
        check_shape(f"one draw of the prior of the {name}", prior.event_shape, shape)
        if getattr(getattr(prior, "directions", None), "kind", None) == "I":
            raise ValueError(
                f"prior of the {name}: kind='I' has no closed form here; use kind='II'."
            )
    return SignedData.of(data)
