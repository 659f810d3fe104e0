"""Assignments of rows that pass by in blocks are those of rows in memory."""

import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from latent_features.feature_problems import broken
from latent_features.test_assignments import problem
from marks import first_quick
from wideangle.latent_features import assignments
from wideangle.latent_features.assignments import draw_randomness, sweep_rows

SEEDS = range(12)
LIVE = 87


class Copies:
    """Blocks that are read as copies, as those on disk are."""

    def __init__(self, parts, block_rows, first=0, company=None):
        self.parts, self.block_rows, self.first, self.company = parts, block_rows, first, company

    def read(self):
        for place in range(0, len(self.parts[0]), self.block_rows):
            rows = slice(place, place + self.block_rows)
            yield self.first + place, *(part[rows].copy() for part in self.parts)

    def write(self, first, *blocks):
        for part, block in zip(self.parts, blocks, strict=True):
            part[first - self.first : first - self.first + len(block)] = block

    def place(self, log_unused):
        if self.company is None:
            return 0.0, log_unused
        ends = np.cumsum([0.0, *self.company.every(self.first, log_unused)])
        return ends[sum(first < self.first for first in self.company.said)], ends[-1]


class Company:
    """Threads in place of processes, each of which hears what all of them say."""

    def __init__(self, size):
        self.said, self.turn = {}, threading.Barrier(size, timeout=60)

    def every(self, name, value):
        self.said[name] = value
        self.turn.wait()
        found = [self.said[one] for one in sorted(self.said)]
        self.turn.wait()
        return found


def in_blocks(module, seed, block_rows=7, cuts=()):
    """One sweep by ``module`` in blocks, the same in memory, and what was there before.

    Rows are cut into those of several processes.
    """
    (products, inner, weights), used = problem(seed, n_rows=60, room=90)
    randomness = draw_randomness(jax.random.key(seed), len(weights), np.float64)
    given = module.conditionals(randomness, inner, weights, used.any(axis=0), LIVE, 1.0, np.float64)
    found, left = used[:, :LIVE].copy(), []
    for first in range(0, len(used), block_rows):
        rows = slice(first, first + block_rows)
        left.append(module.sweep_block(given, first, found[rows], products[rows]))
    before, ends = found[:, : given.last].any(axis=0), [0, *cuts, len(used)]
    left, company = np.concatenate(left), Company(len(cuts) + 1)

    def one(begin, end):
        parts = found[begin:end], left[begin:end]
        blocks = Copies(parts, block_rows, begin, company if cuts else None)
        module.sweep_coupled(given, blocks, before, len(used))

    with ThreadPoolExecutor(len(cuts) + 1) as pool:
        list(pool.map(one, ends[:-1], ends[1:]))
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


@pytest.mark.parametrize("cuts", [(30,), (1, 2, 59)])
def test_rows_of_several_processes_are_those_of_one(cuts):
    n_begun = 0
    for seed in SEEDS:
        found, wanted, used = in_blocks(assignments, seed, cuts=cuts)
        np.testing.assert_array_equal(found, wanted)
        n_begun += np.sum(found.any(axis=0) & ~used.any(axis=0))
    assert n_begun > 30


@pytest.mark.parametrize(
    ("old", "new"),
    first_quick([
        ("            bound = with_it\n", "            pass\n"),
        ("                left[n, j - last] -= change * inner[k, j]\n", "                pass\n"),
        ("        drawn[begin] = 1\n", "        drawn[begin] = 0\n"),
        ("ends[place - 1] if place else before", "before"),
        ("    for n in range(begin, n_rows):\n        row = n + offset",
         "    for n in range(begin, n_rows):\n        row = n"),
        ("    if not found:\n        while", "    if True:\n        while"),
        ("                found = True\n", ""),
        ("ends = [before + end for end in ends]", "pass"),
        ("found = before < 0.0 and _used_by(before) >= target", "found = False"),
        ("        before, whole = blocks.place(ends[-1])", "        before, whole = 0.0, ends[-1]"),
    ]),
    ids=[
        "bound held",
        "later columns not changed",
        "no first row",
        "blocks before forgotten",
        "random numbers of another row",
        "a first row in every block",
        "later blocks forgotten",
        "rows of earlier processes forgotten",
        "a first row in every process",
        "every process alone",
    ],
)  # fmt: skip
def test_a_wrong_coupled_column_is_found(old, new):
    module = broken(assignments, old, new)
    pairs = (in_blocks(module, seed, cuts=(20, 40))[:2] for seed in SEEDS)
    assert any((found != wanted).any() for found, wanted in pairs)
