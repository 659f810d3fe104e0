"""One partition that sums up many."""

from __future__ import annotations

import numpy as np


def closest(partitions: np.ndarray, weights: np.ndarray) -> int:
    r"""Which of the partitions (S, N) is closest to all of them.

    The distance is the variation of information (Meila, 2007), the entropy of each partition given
    the other, :math:`2H(a, b) - H(a) - H(b)`; the one with the smallest mean distance minimises the
    expected loss among the partitions that were drawn (Wade and Ghahramani, 2018).
    """
    n_sets = len(partitions)
    shares = weights / weights.sum()
    sizes = [int(labels.max()) + 1 for labels in partitions]
    alone = np.array([_entropy(np.bincount(labels, shares)) for labels in partitions])
    total = np.zeros(n_sets)
    for i in range(n_sets):
        for j in range(i):
            pairs = partitions[i].astype(np.int64) * sizes[j] + partitions[j]
            together = _entropy(np.bincount(pairs, shares))
            distance = 2.0 * together - alone[i] - alone[j]
            total[i] += distance
            total[j] += distance
    return int(np.argmin(total))


def _entropy(shares: np.ndarray) -> float:
    shares = shares[shares > 0]
    return float(-np.sum(shares * np.log(shares)))
