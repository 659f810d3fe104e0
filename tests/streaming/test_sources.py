import os
import time
from pathlib import Path

import numpy as np
import pytest

from wideangle.sharding import Share
from wideangle.streaming import NpyRows, ParquetRows
from wideangle.streaming.sources import chunks, neighbours

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def make(n=103, p=3, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, p)).astype(np.float32), generator.integers(0, 3, n)


def everything(source):
    parts = [source.read(block) for block in range(len(source.starts) - 1)]
    rows = np.concatenate([rows for rows, _ in parts])
    targets = [targets for _, targets in parts if targets is not None]
    return rows, np.concatenate(targets) if targets else None


def write_parquet(path, X, y, group):
    columns = {f"x{i}": column for i, column in enumerate(X.T)}
    pq.write_table(pa.table(columns | {"label": y}), path, row_group_size=group)


def test_blocks_of_a_file_are_its_rows_in_order(tmp_path):
    X, y = make()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    source = NpyRows(tmp_path / "X.npy", str(tmp_path / "y.npy"), block_rows=10)
    assert source.shape == X.shape and source.dtype == X.dtype
    assert len(source.starts) == 12 and source.starts[-1] == 103
    rows, targets = everything(source)
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(targets, y)


@pytest.mark.parametrize("n_blocks", [4, 5, 9])
def test_processes_share_neighbouring_blocks_evenly(n_blocks):
    X = np.arange(10.0 * n_blocks - 3)[:, None]
    source, found = NpyRows(X, block_rows=10), []
    for process in range(4):
        first, part = neighbours(source, Share(process, 4, 1))
        assert first == len(found) and part.shape[0] > 0
        assert abs(part.shape[0] - len(X) / 4) < 10
        found.extend(row for _, rows in chunks(part, 7) for row in rows[:, 0])
    assert found == X[:, 0].tolist()


def test_words_are_targets_too(tmp_path):
    X, y = make()
    names = np.array(["ape", "bee", "cat"])[y]
    np.save(tmp_path / "y.npy", names)
    np.testing.assert_array_equal(everything(NpyRows(X, tmp_path / "y.npy"))[1], names)


def test_a_file_by_columns_cut_short_or_of_objects_is_refused(tmp_path):
    X, _ = make()
    path = tmp_path / "X.npy"
    np.save(path, np.asfortranarray(X))
    with pytest.raises(ValueError, match="stored by columns"):
        NpyRows(path)
    np.save(path, X)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="cut short"):
        NpyRows(path)
    np.save(path, np.array([[{}]]), allow_pickle=True)
    with pytest.raises(ValueError, match="Python objects"):
        NpyRows(path)
    path.write_bytes(b"no array")
    with pytest.raises(ValueError, match=r"not a \.npy file"):
        NpyRows(path)


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (np.zeros(3), None, "2 axes"),
        (np.zeros((0, 3)), None, "rows and columns"),
        (np.zeros((3, 2)), np.zeros(4), "3 rows"),
        (np.array([["a"]]), None, "must be numbers"),
    ],
)
def test_wrong_arrays_are_named(X, y, words):
    with pytest.raises(ValueError, match=words):
        NpyRows(X, y)


def test_row_groups_of_many_files_are_blocks(tmp_path):
    X, y = make()
    write_parquet(tmp_path / "a.parquet", X[:60], y[:60], 25)
    write_parquet(tmp_path / "b.parquet", X[60:], y[60:], 25)
    source = ParquetRows(tmp_path, target="label")
    assert source.starts.tolist() == [0, 25, 50, 60, 85, 103]
    assert source.names == ["x0", "x1", "x2"]
    rows, targets = everything(source)
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(targets, y)
    some = ParquetRows([tmp_path / "a.parquet"], columns=["x2", "x0"])
    np.testing.assert_array_equal(everything(some)[0], X[:60, [2, 0]])


def test_columns_keep_their_digits(tmp_path):
    far = 1e9 + np.arange(4.0)[:, None]
    write_parquet(tmp_path / "a.parquet", far, np.zeros(4, int), 4)
    source = ParquetRows(tmp_path, target="label")
    assert source.dtype == np.float64
    np.testing.assert_array_equal(source.read(0)[0], far)
    write_parquet(tmp_path / "a.parquet", far.astype(np.float32), np.zeros(4, int), 4)
    assert ParquetRows(tmp_path, target="label").dtype == np.float32


def test_wrong_columns_are_named(tmp_path):
    X, y = make()
    path = tmp_path / "a.parquet"
    write_parquet(path, X, np.array(["a", "b", "c"])[y], 50)
    with pytest.raises(ValueError, match="'label' holds string"):
        ParquetRows(path)
    with pytest.raises(ValueError, match="the columns are x0"):
        ParquetRows(path, target="class")
    with pytest.raises(ValueError, match="'x9' is missing"):
        ParquetRows(path, target="label", columns=["x9"])
    with pytest.raises(FileNotFoundError):
        ParquetRows(tmp_path / "none" / "*.parquet", target="label").read(0)


def test_a_row_index_that_pandas_saved_is_no_column(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x0": [1.0, 2.0], "label": [0, 1]}, index=[5, 2])
    frame.to_parquet(tmp_path / "a.parquet")
    assert ParquetRows(tmp_path / "a.parquet", target="label").names == ["x0"]


def test_folders_of_a_partition_are_a_column(tmp_path):
    X, y = make()
    for year, part in ((2023, slice(0, 60)), (2024, slice(60, None))):
        (tmp_path / f"year={year}").mkdir()
        write_parquet(tmp_path / f"year={year}" / "a.parquet", X[part], y[part], 25)
    source = ParquetRows(tmp_path, target="label")
    assert source.names == ["x0", "x1", "x2", "year"]
    rows, targets = everything(source)
    np.testing.assert_array_equal(rows[:, :3], X)
    np.testing.assert_array_equal(rows[:, 3], np.where(np.arange(len(X)) < 60, 2023, 2024))
    np.testing.assert_array_equal(targets, y)
    write_parquet(tmp_path / "stray.parquet", X, y, 25)
    with pytest.raises(ValueError, match=r"'year' is missing from .*stray"):
        ParquetRows(tmp_path, target="label")


def test_a_file_that_lacks_a_column_is_named(tmp_path):
    X, y = make()
    write_parquet(tmp_path / "a.parquet", X, y, 50)
    write_parquet(tmp_path / "b.parquet", X[:, :2], y, 50)
    with pytest.raises(ValueError, match=r"'x2' is missing from .*b\.parquet"):
        ParquetRows(tmp_path, target="label")


def test_files_are_closed_between_reads(tmp_path):
    X, y = make()
    for name in "abc":
        write_parquet(tmp_path / f"{name}.parquet", X, y, 40)
    source = ParquetRows(tmp_path, target="label")
    everything(source)
    handles = Path("/proc/self/fd")
    if not handles.exists():
        pytest.skip("open files are counted in /proc")

    def still_open():
        names = [os.readlink(one) for one in handles.iterdir() if one.is_symlink()]
        return [name for name in names if str(tmp_path) in name]

    # Arrow closes files in threads of its own.
    deadline = time.monotonic() + 20
    while still_open() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not still_open()
