"""New rows of the latent feature model with few features: exact, by visiting every state."""

from __future__ import annotations

import numpy as np

from wideangle.latent_features.predict.fields import RowFields
from wideangle.machine_code import njit

MAX_ENUMERATED = 12
"""Most features for which all states are visited: 2^12 cost about as much as an estimate."""
_NEGLIGIBLE = -700.0
"""Logarithm of a negligible share; smaller ones are slow denormal numbers."""


def enumerate_rows(rows: RowFields) -> tuple[np.ndarray, np.ndarray]:
    r"""Exact :math:`\log p(x)`, (N,), and :math:`p(z_k = 1 \mid x)`, (N, K), by all 2^K states."""
    n_rows, n_features = rows.fields.shape
    log_sums, activation = np.empty(n_rows), np.zeros((n_rows, n_features))
    weights = rows.fields + rows.log_odds
    _enumerate(weights, rows.couplings, rows.pattern, log_sums, activation)
    return rows.constant + rows.log_all_off + log_sums, activation


@njit()
def _enumerate(weights, couplings, pattern, log_sums, activation):
    for n in range(len(weights)):
        log_sums[n] = _enumerate_row(weights[n], couplings[pattern[n]], activation[n])


@njit()
def _enumerate_row(weight, coupling, activation):
    r"""Log of the sum over z of exp(z.weight - z'Cz/2); ``activation`` receives the marginals.

    States are leaves of a binary tree, feature d decided at depth d, visited in counting order.
    A node keeps its value and the weights of the features below it, so a leaf costs a constant
    number of operations on average, and no rounding errors build up from leaf to leaf.
    """
    depth = len(weight)
    values = np.zeros(depth + 1)
    below = np.empty((depth + 1, depth))
    below[0] = weight
    branch = np.zeros(depth, np.uint8)
    mass = np.zeros(depth + 1)  # of visited leaves under the open branch; last entry: of all
    top = -np.inf
    changed = 0
    for leaf in range(2**depth):
        if leaf > 0:
            changed = _next_leaf(branch, mass, activation)
        for d in range(changed, depth):
            values[d + 1] = values[d]
            if branch[d] == 1:
                values[d + 1] += below[d, d]
                for j in range(d + 1, depth):
                    below[d + 1, j] = below[d, j] - coupling[d, j]
            else:
                for j in range(d + 1, depth):
                    below[d + 1, j] = below[d, j]
        gain = values[depth] - top
        if gain > 0.0:
            shrink = np.exp(-gain)
            mass *= shrink
            activation *= shrink
            top = values[depth]
            gain = 0.0
        if gain > _NEGLIGIBLE:
            mass[depth - 1] += np.exp(gain)
    _next_leaf(branch, mass, activation)
    activation /= mass[depth]
    return top + np.log(mass[depth])


@njit()
def _next_leaf(branch, mass, activation):
    """Count up by one, moving mass of finished branches one depth up; the first depth changed.

    After the last leaf every branch ends, and the mass of all leaves is in the extra place
    ``mass[-1]``, which is the depth above the first.
    """
    d = len(branch) - 1
    while d >= 0 and branch[d] == 1:
        activation[d] += mass[d]
        mass[d - 1] += mass[d]
        mass[d] = 0.0
        branch[d] = 0
        d -= 1
    if d >= 0:
        mass[d - 1] += mass[d]
        mass[d] = 0.0
        branch[d] = 1
    return d
