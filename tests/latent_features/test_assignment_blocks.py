"""Assignments of rows that pass by in blocks are those of rows in memory."""

import jax
import numpy as np
import pytest

from latent_features.feature_problems import broken
from latent_features.test_assignments import problem
from wideangle.latent_features.sampler import assignment_blocks
from wideangle.latent_features.sampler.assignment_rows import sweep_rows
from wideangle.latent_features.sampler.assignments import draw_noise
from wideangle.streaming.scratch import Scratch

SEEDS = range(12)
LIVE = 87


def in_blocks(module, seed, folder, block_rows=7):
    """One sweep by ``module`` through files, the same in memory, and what was there before."""
    (products, inner, weights), used = problem(seed, n_rows=60, room=90)
    noise = draw_noise(jax.random.key(seed), len(weights), np.float64)
    counts = used.sum(axis=0)
    how = module.given(noise, inner, weights, counts, LIVE, 1.0, np.float64)
    stores = [
        Scratch(folder / f"{name}-{seed}", len(used), width, dtype)
        for name, width, dtype in [
            ("used", LIVE, np.uint8),
            ("rest", LIVE - how.last, np.float64),
        ]
    ]
    for first in range(0, len(used), block_rows):
        rows = slice(first, first + block_rows)
        parts = module.sweep_block(how, first, used[rows, :LIVE], products[rows])
        for store, part in zip(stores, parts, strict=True):
            store.write(first, part)
    before = stores[0].read(0, len(used)).sum(axis=0)
    module.sweep_tail(how, *stores, before, len(used), block_rows)
    found = stores[0].read(0, len(used))
    for store in stores:
        store.close()
    wanted = sweep_rows(noise, used, products, inner, weights, LIVE, 1.0)
    return found, wanted[:, :LIVE], used[:, :LIVE]


@pytest.mark.parametrize("block_rows", [1, 7, 60, 100])
def test_blocks_of_any_size_give_the_assignments_of_rows_in_memory(block_rows, tmp_path):
    n_begun = 0
    for seed in SEEDS:
        found, wanted, used = in_blocks(assignment_blocks, seed, tmp_path, block_rows)
        np.testing.assert_array_equal(found, wanted)
        n_begun += np.sum(found.any(axis=0) & ~used.any(axis=0))
    assert n_begun > 30  # columns after the last active one came into use


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            bound = with_it\n", ""),
        ("            left[:, after] -= change[:, None] * how.inner[k, k + 1 :]\n", ""),
        ("column[begin] = 1\n", "column[begin] = 0\n"),
        ("before = ends[place - 1] if place else 0.0", "before = 0.0"),
        ("row = n + offset", "row = n"),
        ("if not found:", "if True:"),
    ],
    ids=[
        "bound held",
        "later columns not told",
        "no first row",
        "blocks before forgotten",
        "random numbers of another row",
        "a first row in every block",
    ],
)
def test_a_wrong_coupled_column_is_found(old, new, tmp_path):
    module = broken(assignment_blocks, old, new)
    pairs = (in_blocks(module, seed, tmp_path)[:2] for seed in SEEDS)
    assert any((found != wanted).any() for found, wanted in pairs)
