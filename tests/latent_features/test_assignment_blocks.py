"""Assignments of rows that pass by in blocks are those of rows in memory."""

import jax
import numpy as np
import pytest

from latent_features.feature_problems import broken
from latent_features.test_assignments import problem
from marks import first_quick
from wideangle.latent_features.sampler import assignments
from wideangle.latent_features.sampler.assignments import draw_randomness, sweep_rows

SEEDS = range(12)
LIVE = 87


class Copies:
    """Blocks that are read as copies, as those on disk are."""

    def __init__(self, parts, block_rows):
        self.parts, self.block_rows = parts, block_rows

    def read(self):
        for first in range(0, len(self.parts[0]), self.block_rows):
            rows = slice(first, first + self.block_rows)
            yield first, *(part[rows].copy() for part in self.parts)

    def write(self, first, *blocks):
        for part, block in zip(self.parts, blocks, strict=True):
            part[first : first + len(block)] = block


def in_blocks(module, seed, block_rows=7):
    """One sweep by ``module`` in blocks, the same in memory, and what was there before."""
    (products, inner, weights), used = problem(seed, n_rows=60, room=90)
    randomness = draw_randomness(jax.random.key(seed), len(weights), np.float64)
    given = module.conditionals(randomness, inner, weights, used.any(axis=0), LIVE, 1.0, np.float64)
    found, left = used[:, :LIVE].copy(), []
    for first in range(0, len(used), block_rows):
        rows = slice(first, first + block_rows)
        left.append(module.sweep_block(given, first, found[rows], products[rows]))
    blocks = Copies((found, np.concatenate(left)), block_rows)
    before = found[:, : given.last].any(axis=0)
    module.sweep_coupled(given, blocks, before, len(used))
    wanted = sweep_rows(randomness, used, products, inner, weights, LIVE, 1.0)
    return found, wanted[:, :LIVE], used[:, :LIVE]


@pytest.mark.parametrize("block_rows", [1, 7, 60, 100])
def test_blocks_of_any_size_give_the_assignments_of_rows_in_memory(block_rows):
    n_begun = 0
    for seed in SEEDS:
        found, wanted, used = in_blocks(assignments, seed, block_rows)
        np.testing.assert_array_equal(found, wanted)
        n_begun += np.sum(found.any(axis=0) & ~used.any(axis=0))
    assert n_begun > 30  # columns after the last active one came into use


@pytest.mark.parametrize(
    ("old", "new"),
    first_quick([
        ("            bound = with_it\n", "            pass\n"),
        ("                left[n, j - last] -= change * inner[k, j]\n", "                pass\n"),
        ("        drawn[begin] = 1\n", "        drawn[begin] = 0\n"),
        ("ends[place - 1] if place else 0.0", "0.0"),
        ("    for n in range(begin, n_rows):\n        row = n + offset",
         "    for n in range(begin, n_rows):\n        row = n"),
        ("    if not found:\n        while", "    if True:\n        while"),
        ("                found = True\n", ""),
    ]),
    ids=[
        "bound held",
        "later columns not changed",
        "no first row",
        "blocks before forgotten",
        "random numbers of another row",
        "a first row in every block",
        "later blocks forgotten",
    ],
)  # fmt: skip
def test_a_wrong_coupled_column_is_found(old, new):
    module = broken(assignments, old, new)
    pairs = (in_blocks(module, seed)[:2] for seed in SEEDS)
    assert any((found != wanted).any() for found, wanted in pairs)
