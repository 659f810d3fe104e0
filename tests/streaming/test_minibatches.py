import numpy as np
import pytest

from wideangle.streaming import NpyRows
from wideangle.streaming.minibatches import StreamedMinibatches

N = 1000


def make(block_rows=13, buffer_rows=100, size=64, seed=5, n=N):
    X = np.stack([np.arange(n), np.arange(n) ** 2 / n], 1)
    source = NpyRows(X, np.arange(n) % 3, block_rows=block_rows)
    return StreamedMinibatches(
        seed, source, lambda rows, targets: (rows, targets, 0.5 + targets), 2, size,
        dtype=np.float64, buffer_bytes=buffer_rows * 16,
    )  # fmt: skip


def one_pass(batches, turn=0):
    first = turn * batches.per_pass
    calls = range(first, first + batches.per_pass, batches.per_call)
    parts = [batches.take(call) for call in calls]
    return [np.concatenate(part)[: batches.per_pass] for part in zip(*parts, strict=True)]


@pytest.mark.parametrize(
    ("block_rows", "buffer_rows", "size"), [(13, 100, 64), (300, 10, 64), (1, 7, 100), (1000, 1, 1)]
)
@pytest.mark.parametrize("turn", [0, 3])
def test_the_mean_over_a_pass_is_the_sum_over_all_rows(block_rows, buffer_rows, size, turn):
    batches = make(block_rows, buffer_rows, size)
    rows, targets, weights = one_pass(batches, turn)
    assert np.all((weights > 0).sum(axis=1) - N // batches.per_pass <= 1)
    seen = rows[weights > 0][:, 0].astype(int)
    assert sorted(seen) == list(range(N))
    np.testing.assert_array_equal(targets[weights > 0], seen % 3)
    # Any function of a row, here the square of its second column, weighted by class.
    got = np.mean(np.sum(weights * rows[..., 1] ** 2, axis=1))
    wanted = np.sum((0.5 + np.arange(N) % 3) * (np.arange(N) ** 2 / N) ** 2)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_batches_depend_on_seed_and_place_only():
    rows = one_pass(make())[0]
    again = make()
    again.take(40)  # elsewhere first
    np.testing.assert_array_equal(one_pass(again)[0], rows)
    assert not np.array_equal(one_pass(make(seed=6))[0], rows)
    assert not np.array_equal(one_pass(make(), 1)[0], rows)


def test_every_batch_is_without_bias():
    batches = make(block_rows=10, buffer_rows=60, size=100)
    batches.per_call = 1
    sums = []
    for turn in range(400):
        rows, _, weights = batches.take(turn * batches.per_pass + 3)
        sums.append(np.sum(weights[0] * rows[0, :, 1]))
    wanted = np.sum((0.5 + np.arange(N) % 3) * np.arange(N) ** 2 / N)
    assert abs(np.mean(sums) - wanted) < 4 * np.std(sums) / np.sqrt(400)


def test_neighbours_in_the_file_are_no_neighbours_in_a_batch():
    rows, _, weights = one_pass(make(block_rows=10, buffer_rows=500))
    flat = rows[weights > 0][:, 0]
    assert np.mean(np.abs(np.diff(flat)) == 1) < 0.02  # 1 in the order of the file


def test_no_more_than_the_buffer_is_held():
    batches = make(block_rows=5, buffer_rows=100)
    held = []
    for place in range(0, 3 * batches.per_pass, batches.per_call):
        batches.take(place)
        held.append(len(batches._window[1]))
    assert max(held) <= 100


def test_few_rows_are_one_batch_that_is_kept():
    batches = make(n=50, size=64)
    assert batches.per_pass == 1 and batches.size == 50
    assert batches.take(0) is batches.take(7)
