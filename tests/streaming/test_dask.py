"""Rows of Dask collections, on a cluster of processes of which one is killed."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from wideangle import MixtureOfExpertsClassifier, Variational
from wideangle.streaming import DaskRows, NpyRows

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore")  # of sockets and of Dask's own dependencies


def make(n=103, p=3):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, p)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def everything(source):
    parts = [source.read(block) for block in range(len(source.starts) - 1)]
    rows = np.concatenate([rows for rows, _ in parts])
    return rows, None if parts[0][1] is None else np.concatenate([y for _, y in parts])


def table_of(X, y):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["label"] = np.where(y, "yes", "no")
    return dd.from_pandas(frame, npartitions=7)


def test_partitions_of_a_table_are_blocks():
    X, y = make()
    source = DaskRows(table_of(X, y), "label")
    assert source.shape == X.shape and source.names == ["a", "b", "c"]
    assert source.dtype == np.float32 and len(source.starts) == 8
    rows, targets = everything(source)
    np.testing.assert_array_equal(rows, X)
    assert targets.tolist() == np.where(y, "yes", "no").tolist()


def test_partitions_that_a_filter_has_emptied_are_left_out():
    X, _ = make()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(number=np.arange(103))
    table = dd.from_pandas(frame, npartitions=7)
    source = DaskRows(table[table["number"] >= 50], columns=["c", "a"])
    assert source.shape == (53, 2) and np.all(np.diff(source.starts) > 0)
    np.testing.assert_array_equal(everything(source)[0], X[50:, [2, 0]])


def test_chunks_of_an_array_are_blocks():
    X, y = make()
    source = DaskRows(da.from_array(X, chunks=(20, 2)), da.from_array(y, chunks=50))
    assert source.shape == X.shape and source.names is None and len(source.starts) == 7
    rows, targets = everything(source)
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(targets, y)


def test_what_cannot_be_used_is_refused():
    X, y = make()
    table = table_of(X, y)
    with pytest.raises(ValueError, match="target='klass': the columns are a, b, c, label"):
        DaskRows(table, "klass")
    with pytest.raises(ValueError, match="must be numbers"):
        DaskRows(table)
    with pytest.raises(ValueError, match="'d'"):
        DaskRows(table, "label", ["a", "d"])
    with pytest.raises(ValueError, match="X has 103 rows"):
        DaskRows(da.from_array(X), da.from_array(y[:50]))
    with pytest.raises(ValueError, match="Dask DataFrame, or a Dask Array"):
        DaskRows(X)


def test_a_partition_that_changes_is_noticed():
    sizes = iter([5, 5, 4, 4])
    table = dd.from_map(lambda _: pd.DataFrame({"a": np.zeros(next(sizes))}), [0, 1],
                        meta=pd.DataFrame({"a": np.zeros(0)}))  # fmt: skip
    with dask.config.set(scheduler="synchronous"):
        source = DaskRows(table)
        with pytest.raises(ValueError, match="the same each time"):
            source.read(0)


@pytest.mark.slow
def test_a_fit_survives_the_loss_of_a_worker():
    distributed = pytest.importorskip("distributed")
    X, y = make(4000)
    guide = Variational(n_starts=1, n_passes=6, batch_size=256)
    model = MixtureOfExpertsClassifier(2, inference=guide, random_state=0, verbose=False)
    size = 4000 // 40
    alone = model.fit_stream(NpyRows(X, y, block_rows=size)).predict_proba(X[:50])
    killed, reads = [], []

    class Counted(DaskRows):
        def read(self, block):
            reads.append(block)
            return super().read(block)

    def slow(part):
        time.sleep(0.02)
        return part

    with (
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None
        ) as workers,
        distributed.Client(workers) as client,
    ):
        chunked = da.from_array(X, chunks=(size, -1)).map_blocks(slow, dtype=X.dtype)
        source = Counted(chunked, da.from_array(y, chunks=size))

        def kill():
            while len(reads) < 60:
                time.sleep(0.01)
            first = min(client.scheduler_info()["workers"])
            killed.extend(client.run(os.getpid, workers=[first]).values())
            os.kill(killed[0], signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        together = model.fit_stream(source, buffer_bytes=2**26).predict_proba(X[:50])
        thread.join()
    assert len(killed) == 1 and len(reads) > 100
    np.testing.assert_array_equal(together, alone)
