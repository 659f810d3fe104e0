"""Rows with missing entries, which the sampler fills in as it goes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from scipy import sparse

from wideangle.latent_features.memory import MemoryRows
from wideangle.latent_features.state import Features
from wideangle.machine_code import njit
from wideangle.types import Key


class ImputedRows(MemoryRows):
    """Rows in which NaN entries hold a draw given features and assignments.

    Drawing the missing entries turns the rest of the sweep into that of complete rows. The matrix
    is copied, because every chain has its own missing entries. In a sparse matrix a missing entry
    is a stored NaN.
    """

    _fixed = False

    def __init__(self, matrix: Any, offset: Any = None) -> None:
        super().__init__(matrix, offset)
        self.matrix = self.matrix.copy()
        gaps = np.isnan(self._entries())
        self._at = np.nonzero(gaps)
        self._where = self._at
        if self.is_sparse:
            self._where = self.row_of[gaps], self.matrix.indices[gaps]
        self.fill(np.zeros(np.sum(gaps)))

    def fill(self, values: np.ndarray) -> None:
        """Put values into the missing entries."""
        self._entries()[self._at] = values
        for cached in ("energy", "row_energy", "arrays"):  # computed from the old values
            vars(self).pop(cached, None)

    def start_search(self) -> None:
        """First guess of the missing entries: the mean of the observed entries of each column."""
        _, columns = self._where
        self.fill(np.zeros(len(columns)))
        count = self.n_rows - np.bincount(columns, minlength=self.dim)
        total = np.asarray(self.matrix.sum(axis=0, dtype=np.float64)).ravel()
        self.fill((total / np.maximum(count, 1))[columns])

    def n_gaps_of(self, assignments: np.ndarray) -> np.ndarray:
        """How many of the rows that have feature k miss column d, (K, D)."""
        rows, columns = self._where
        gaps = sparse.csr_matrix(
            (np.ones(len(rows)), (rows, columns)), shape=(self.n_rows, self.dim)
        )
        using = sparse.csr_matrix(np.asarray(assignments), dtype=np.float64)
        return np.asarray((using.T @ gaps).toarray())

    def refresh(self, key: Key, features: Features) -> None:
        """Draw the missing entries given everything else."""
        key = jax.random.fold_in(key, 1)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).astype(np.uint64))
        n_live = int(features.n_live)
        mean = self._expected(
            np.asarray(features.assignments)[:, :n_live],
            np.asarray(features.components.vectors)[:n_live],
        )
        scale = np.sqrt(float(features.hyper.noise_variance))
        self.fill(mean + scale * rng.standard_normal(len(mean)))

    def cross_observed(self, assignments: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Z'X such that ``removal_cost`` counts observed entries only.

        Missing entries are filled with their expectation, so they have no residual. The cost of
        removal would still count the squares of the feature there, n_kd w_kd^2 with n_kd gaps:
        subtracting half of n_kd w_kd from the sums removes them.
        """
        self.fill(self._expected(assignments, vectors))
        return self.cross(assignments) - 0.5 * self.n_gaps_of(assignments) * vectors

    def _expected(self, assignments: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        rows, columns = self._where
        mean = _entries_of_product(assignments, np.ascontiguousarray(vectors.T), rows, columns)
        return mean + self.offset[columns]

    def _entries(self) -> np.ndarray:
        return self.matrix.data if self.is_sparse else self.matrix


@njit()
def _entries_of_product(assignments, columns_of_features, rows, columns):
    """Single entries of Z W; ``columns_of_features`` is (D, K)."""
    result = np.zeros(len(rows))
    for i in range(len(rows)):
        row, weights = assignments[rows[i]], columns_of_features[columns[i]]
        for k in range(len(weights)):
            if row[k]:
                result[i] += weights[k]
    return result
