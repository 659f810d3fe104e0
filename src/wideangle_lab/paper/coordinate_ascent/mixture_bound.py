r"""The variational bound of the binary mixture of experts, and the updates that raise it.

.. math:: \sum_n w_n\Bigl[\sum_k\phi_{nk}\bigl(\bar h_{nk} - \log\phi_{nk}
          + \mathrm{logistic\_bound}((2y_n-1)\bar b_{nk})\bigr)
          + \mathrm{softmax\_bound}(\bar h_n)\Bigr] - \mathrm{KL}

with :math:`\bar h, \bar b` the mean scores of gate and experts, :math:`w_n` row weights.

Paper: Appendix B. Differs from the paper: see :mod:`wideangle_lab.paper.coordinate_ascent.bounds`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import xlogy

from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import Pair
from wideangle.mixture_of_experts.task import Regulariser
from wideangle.priors.expected import expected_log_prior
from wideangle.priors.learning import update_prior
from wideangle.types import Array, Scalar
from wideangle_lab.paper.coordinate_ascent import bounds
from wideangle_lab.paper.coordinate_ascent.factor_objective import (
    Evidence,
    Family,
    divergence_terms,
    projection_moments,
    summarise,
)
from wideangle_lab.paper.coordinate_ascent.factor_updates import (
    update_concentrations,
    update_directions,
    update_magnitudes,
    update_regularised_directions,
)

ONE_CODE = {"xla_disable_hlo_passes": "cpu-parallel-task-assigner"}
"""Compiler options of programs that are not cut into blocks: the same code, and so the same
rounding, for any number of threads. Their element-wise work then has one thread."""
NOTHING = Regulariser(Pair(0.0, 0.0), 1.0)
"""No regularisation."""
ROUNDS = 3
"""Steps of directions and of lengths per sweep, with the bound's splits refreshed before each."""


class State(NamedTuple):
    """All that a sweep moves; axes (K, N)."""

    gate: Family
    experts: Family
    responsibilities: Array
    r""":math:`\phi`"""
    gate_splits: Array
    """d"""
    expert_splits: Array
    """e"""
    shifts: Array
    """c, (N,)"""


class SignedData(NamedTuple):
    """Data with signs (2y - 1) for targets, and squared lengths of rows."""

    rows: Array
    signs: Array
    weights: Array
    squares: Array

    @classmethod
    def of(cls, data: Data) -> SignedData:
        """Data of two classes, 0 and 1."""
        rows = jnp.asarray(data.rows)
        signs = 2.0 * jnp.asarray(data.targets).astype(rows.dtype) - 1.0
        weights = jnp.asarray(data.weights).astype(rows.dtype)
        return cls(rows, signs, weights, jnp.sum(rows**2, axis=-1))


def bound(state: State, data: SignedData, regulariser: Regulariser = NOTHING) -> Scalar:
    r"""The objective of every update: the module's bound plus :math:`\lambda\,\Omega` of each set.

    :math:`\lambda` are the weights of the regulariser.
    """
    means, variances = projection_moments(state.gate, data.squares)
    shares = state.responsibilities
    by_row = bounds.softmax_bound(means, variances, state.shifts, state.gate_splits)
    by_row += jnp.sum(shares * (means + expert_terms(state, data)) - xlogy(shares, shares), axis=0)
    weights, gamma = regulariser
    regularised = divergence_terms(state.experts, weights.experts, gamma)
    regularised += divergence_terms(state.gate, weights.gate, gamma)
    return jnp.sum(data.weights * by_row) + regularised


def expert_terms(state: State, data: SignedData) -> Array:
    r"""Bound on :math:`E\log p(y_n\mid z_n = k)`, (K, N)."""
    means, variances = projection_moments(state.experts, data.squares)
    return bounds.logistic_bound(data.signs * means, variances, state.expert_splits)


def gate_evidence(state: State, data: SignedData) -> Evidence:
    r"""Linear :math:`\phi - 1/2 + 2\lambda(d)c` and quadratic :math:`\lambda(d)`, times weights."""
    curvature = bounds.logistic_curvature(state.gate_splits)
    if len(curvature) == 1:  # one expert: the gate has nothing to say
        return Evidence(jnp.zeros_like(curvature), jnp.zeros_like(curvature), data.rows)
    linear = state.responsibilities - 0.5 + 2.0 * curvature * state.shifts
    return Evidence(data.weights * linear, data.weights * curvature, data.rows)


def expert_evidence(state: State, data: SignedData) -> Evidence:
    r"""Linear :math:`\phi(2y-1)/2` and quadratic :math:`\phi\lambda(e)`, times weights."""
    shares = data.weights * state.responsibilities
    curvature = bounds.logistic_curvature(state.expert_splits)
    return Evidence(0.5 * shares * data.signs, shares * curvature, data.rows)


def update_shifts(state: State, data: SignedData) -> State:
    """Best c, together with its splits d."""
    means, variances = projection_moments(state.gate, data.squares)
    shifts = bounds.solve_softmax_shift(means, variances, state.shifts)
    splits = bounds.softmax_splits(means, variances, shifts)
    return state._replace(shifts=shifts, gate_splits=splits)


def update_gate_splits(state: State, data: SignedData) -> State:
    """Best d given c, then best c given d: cheaper than :func:`update_shifts`, nearly as good."""
    means, variances = projection_moments(state.gate, data.squares)
    splits = bounds.softmax_splits(means, variances, state.shifts)
    return state._replace(gate_splits=splits, shifts=bounds.softmax_shift(means, splits))


def update_expert_splits(state: State, data: SignedData) -> State:
    """Best e."""
    means, variances = projection_moments(state.experts, data.squares)
    return state._replace(expert_splits=bounds.logistic_split(means, variances))


def update_responsibilities(state: State, data: SignedData) -> State:
    r"""Best :math:`\phi`: proportional to the exponential of each expert's terms."""
    means, _ = projection_moments(state.gate, data.squares)
    return state._replace(
        responsibilities=jax.nn.softmax(means + expert_terms(state, data), axis=0)
    )


def update_priors(state: State, learn: Pair[bool]) -> State:
    r""":math:`\mu_0, \alpha_1, \alpha_2` of the priors of gate and experts, of those to learn."""
    return state._replace(
        gate=_learned(state.gate) if learn.gate else state.gate,
        experts=_learned(state.experts) if learn.experts else state.experts,
    )


def _learned(family: Family) -> Family:
    new = update_prior(family.prior, family.factors)
    # The shape is capped, and Newton's method rounds: neither may lower the bound.
    gain = expected_log_prior(family.factors, new) - expected_log_prior(
        family.factors, family.prior
    )
    keep = partial(jnp.where, gain >= 0)
    return family._replace(prior=jax.tree.map(keep, new, family.prior))


@partial(jax.jit, static_argnames=("learn", "regularised"), compiler_options=ONE_CODE)
def sweep(
    state: State,
    data: SignedData,
    regulariser: Regulariser,
    *,
    learn: Pair[bool],
    regularised: bool,
) -> tuple[State, Scalar]:
    """Every update at least once; the new state and its bound."""
    weights, gamma = regulariser

    def turn(family: Family, evidence: Evidence, strength: Array) -> Family:
        if regularised:
            return update_regularised_directions(family, evidence, strength, gamma)
        return update_directions(family, evidence)

    def turn_both(_: int, state: State) -> State:
        state = _refresh(state, data)
        return state._replace(
            gate=turn(state.gate, gate_evidence(state, data), weights.gate),
            experts=turn(state.experts, expert_evidence(state, data), weights.experts),
        )

    state = update_responsibilities(update_expert_splits(update_shifts(state, data), data), data)
    state = lax.fori_loop(0, ROUNDS, turn_both, state)
    # Lengths and concentrations wait for each other, and cost no product with the rows.
    state = lax.fori_loop(0, ROUNDS, lambda _, s: update_lengths(_refresh(s, data), data), state)
    state = update_priors(state, learn)
    return state, bound(state, data, regulariser)


def _refresh(state: State, data: SignedData) -> State:
    return update_expert_splits(update_gate_splits(state, data), data)


def update_lengths(state: State, data: SignedData) -> State:
    """Gamma factors, then concentrations, of both sets."""

    def both(family: Family, evidence: Evidence) -> Family:
        sums = summarise(family, evidence)  # unchanged while the directions are
        return update_concentrations(update_magnitudes(family, sums), sums)

    return state._replace(
        gate=both(state.gate, gate_evidence(state, data)),
        experts=both(state.experts, expert_evidence(state, data)),
    )
