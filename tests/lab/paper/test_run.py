import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from wideangle.storage.files import as_finite
from wideangle_lab.paper import run as running
from wideangle_lab.paper import schedule
from wideangle_lab.paper.baselines import BASELINES
from wideangle_lab.paper.cells import Cell, Effort
from wideangle_lab.paper.efforts import QUICK
from wideangle_lab.paper.feature_methods import FEATURE_ROWS
from wideangle_lab.paper.methods import ROWS
from wideangle_lab.paper.records import find, keep, known_tunings, read, read_all
from wideangle_lab.paper.run import run


def cells(n, method="MEM-L2"):
    return [Cell("classifiers", "experts", method, 5, seed, effort=QUICK) for seed in range(n)]


@pytest.fixture
def calls(monkeypatch, outcome):
    """Cells are not run but counted; the one of seed 2 fails."""
    done = []

    def execute(cell, known):
        if cell.seed == 2:
            raise FloatingPointError("seed 2")
        done.append(cell.seed)
        return outcome([0.5, 1.0], n_used=2.0)

    monkeypatch.setitem(running.EXECUTE, "classifiers", execute)
    return done


def quiet(line):
    pass


def test_cells_run_once_and_a_failure_stops_nothing(tmp_path, calls):
    said = []
    report = run(cells(4), tmp_path, say=said.append)
    assert calls == [0, 1, 3]
    assert list(report.failed) == ["classifiers/experts/MEM-L2.K5.seed2"]
    assert "FloatingPointError: seed 2" in "".join(said)
    again = run(cells(5), tmp_path, say=quiet)
    assert calls == [0, 1, 3, 4]
    assert len(again.already_done) == 3
    assert len(list(read_all(tmp_path, "classifiers"))) == 4


def test_no_cell_begins_when_the_time_is_over(tmp_path, calls):
    report = run(cells(2), tmp_path, budget=0.0, say=quiet)
    assert calls == []
    assert len(report.left) == 2


def test_a_cell_begins_if_the_last_of_its_kind_would_fit(tmp_path, monkeypatch, outcome):
    def slow(cell, known):
        time.sleep(0.2)
        return outcome([1.0, 2.0])

    monkeypatch.setitem(running.EXECUTE, "classifiers", slow)
    report = run(cells(3), tmp_path, budget=0.3, say=quiet)
    assert len(report.finished) == 1
    assert len(report.left) == 2


def test_a_record_has_all_that_decides_a_number(tmp_path, calls):
    (record,) = run(cells(1), tmp_path, say=quiet).finished
    data = json.loads(record.path.read_text())
    assert {"cell", "metrics", "chosen", "diagnostics", "warnings", "seconds", "machine",
            "versions", "commit", "device", "version", "cpu_seconds"} == set(data)  # fmt: skip
    assert read(record.path).cell == cells(1)[0]
    assert not list(tmp_path.rglob("*.tmp"))


def test_other_settings_are_not_taken_for_the_same_cell(tmp_path, calls):
    run(cells(1), tmp_path, say=quiet)
    same = Cell("classifiers", "experts", "MEM-L2", 5, 0, effort=QUICK._replace(n_draws=7))
    assert find(tmp_path, same) is not None  # a point estimate has no draws
    other = Cell("classifiers", "experts", "MEM-L2", 5, 0, effort=QUICK._replace(n_passes=7))
    with pytest.raises(ValueError, match=r"other settings \(effort.*--out"):
        find(tmp_path, other)


def test_longer_chains_are_an_answer_and_shorter_ones_are_not(tmp_path, outcome):
    def cell(**effort):
        return Cell("classifiers", "experts", "BMEM-G", 5, 0, effort=QUICK._replace(**effort))

    keep(tmp_path, cell(), outcome([1.0, 2.0]), {})
    assert find(tmp_path, cell(n_draws=QUICK.n_draws - 1, n_chains=1)) is not None
    for longer in ({"n_draws": QUICK.n_draws + 1}, {"n_warmup": QUICK.n_warmup + 1}):
        with pytest.raises(ValueError, match="other settings"):
            find(tmp_path, cell(**longer))


def test_a_damaged_record_is_named(tmp_path):
    path = tmp_path / cells(1)[0].path
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(ValueError, match="is no record"):
        find(tmp_path, cells(1)[0])


def test_records_are_plain_json():
    value = as_finite({"a": np.float32(0.5), "b": np.nan, "c": (np.arange(2), True)})
    assert value == {"a": 0.5, "b": None, "c": [[0, 1], True]}


@pytest.mark.slow
def test_baselines_run_beside_in_processes(tmp_path):
    cells = [Cell("classifiers", "experts", "LR", 0, seed, effort=QUICK) for seed in range(2)]
    report = run(cells, tmp_path, jobs=2, say=quiet)
    assert not report.failed
    assert {record.cell.seed for record in report.finished} == {0, 1}
    assert all(record.data["device"] == "cpu" for record in report.finished)


def test_a_worker_that_has_grown_is_replaced():
    """As loky does where psutil is installed; here every job seems to take 400 MB for good."""
    grow = (
        "from itertools import count\n"
        "from joblib.externals.loky import process_executor as loky\n"
        "loky._USE_PSUTIL, loky._MEMORY_LEAK_CHECK_DELAY = True, 0.0\n"
        "loky._get_memory_usage = lambda *_, sizes=count(0, 400_000_000), **__: next(sizes)\n"
    )
    with schedule.processes(1) as pool:
        jobs = [pool.submit(exec, grow if place == 0 else "pass", {}) for place in range(4)]
        assert [job.result(timeout=60) for job in jobs] == [None] * 4


def test_baselines_that_do_not_end_in_time_are_left(tmp_path):
    cells = [Cell("classifiers", "experts", "RF", 0, 0)]
    report = run(cells, tmp_path, jobs=2, budget=0.2, say=quiet)
    assert report.left == cells
    assert find(tmp_path, cells[0]) is None


def test_a_choice_made_on_the_way_is_kept_and_handed_to_later_cells(tmp_path, monkeypatch, outcome):
    import dataclasses

    handed = []

    def execute(cell, known):
        handed.append(dict(known))
        return dataclasses.replace(outcome([1.0]), tunings={"experts/x.seed0": {"settings": 3}})

    monkeypatch.setitem(running.EXECUTE, "classifiers", execute)
    run(cells(2), tmp_path, say=quiet)
    assert handed == [{}, {"experts/x.seed0": {"settings": 3}}]
    assert known_tunings(tmp_path, "experts") == handed[1]
    assert len(list(read_all(tmp_path, "classifiers"))) == 2


def test_cells_that_share_a_choice_wait_for_the_first_of_them():
    def cell(method, k, seed=0):
        return Cell("classifiers", "adult9", method, k, seed)

    names = ("BMEM-MABN-II", "BMEM-V-VI", "BMEM-PR")
    some = [cell(method, k) for method in names for k in (5, 10)] + [cell("LR", 0)]
    later = [cell("BMEM-V-VI", 5, seed=1), cell("LR", 0, seed=1)]
    needs = schedule.before([*later, *some])

    def need(method, k, seed=0):
        found = needs[cell(method, k, seed).path]
        return None if found is None else (found.method, found.n_experts)

    assert need("BMEM-V-VI", 5) is None
    assert need("LR", 0) is None
    assert need("BMEM-V-VI", 5, 1) == ("BMEM-V-VI", 5)  # settings of split 0
    assert need("LR", 0, 1) == ("LR", 0)
    assert need("BMEM-V-VI", 10) == ("BMEM-V-VI", 5)
    assert need("BMEM-MABN-II", 5) == ("BMEM-V-VI", 5)
    assert need("BMEM-PR", 10) == ("BMEM-PR", 5)
    order = []
    with ThreadPoolExecutor(4) as pool:
        left = schedule.spread(
            pool,
            some,
            lambda pool, one: pool.submit(time.sleep, 0.01),
            lambda one, result: order.append((one.method, one.n_experts)),
            lambda: float("inf"),
        )
    assert left == []
    assert len(order) == 7
    for method, k in order:
        if (first := need(method, k)) is not None:
            assert order.index(first) < order.index((method, k))
    untuned = [Cell("classifiers", "x", "MEM-L2", k, effort=Effort(tune=False)) for k in (5, 10)]
    assert set(schedule.before(untuned).values()) == {None}


def execute_slowly(cell, known):
    """A cell whose worker is killed the first time: it leaves its mark before it sleeps."""
    from wideangle_lab.paper.records import Outcome

    mark = os.path.join(os.environ["WIDEANGLE_MARKS"], f"{cell.seed}-{os.getpid()}")
    with open(mark, "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    time.sleep(2.0)
    metrics = {"accuracy": 80.0, "log_loss": 0.5}
    return Outcome(metrics, {"fit": 2.0})


def run_one_slowly(cell, known):
    return execute_slowly(cell, known), {"machine": {}, "device": "cpu"}


@pytest.mark.slow
def test_cells_run_on_a_cluster_and_survive_the_loss_of_a_worker(tmp_path, monkeypatch, recwarn):
    distributed = pytest.importorskip("distributed")
    import threading

    import cloudpickle

    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv("WIDEANGLE_MARKS", str(marks))
    # Workers cannot import this file: send the function itself.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setattr(running, "run_one", run_one_slowly)

    def kill_one():
        while not (there := list(marks.iterdir())):
            time.sleep(0.05)
        time.sleep(0.3)
        os.kill(int(there[0].read_text() or 0), signal.SIGKILL)

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        killer = threading.Thread(target=kill_one)
        killer.start()
        some = cells(4, "LR")
        report = run(some, tmp_path / "out", dask=cluster.scheduler_address, say=quiet)
        killer.join()
    assert not report.failed
    assert not report.left
    assert {record.cell.seed for record in read_all(tmp_path / "out", "classifiers")} == {
        0,
        1,
        2,
        3,
    }
    assert len(list(marks.iterdir())) >= 5  # one was begun twice


def test_the_command_runs_a_quick_table_without_files(tmp_path, command):
    arguments = ["reproduce", "classifiers", "--quick", "--method", "LR", "--method", "MEM-L2"]
    short = ["--data", "experts", "--experts", "2", "-o", str(tmp_path)]
    code, shown, _ = command(*arguments, *short)
    assert code == 0
    assert "experts: log-loss" in shown
    assert "MEM-L2" in shown
    both = list(read_all(tmp_path / "cells", "classifiers"))
    assert len(both) == 2
    assert all(0.2 < record.metrics["log_loss"] < 1.5 for record in both)
    code, shown, _ = command(*arguments, *short)
    assert code == 0 and "2 cells are there, 0 to run" in shown


def test_failed_cells_make_the_command_fail(tmp_path, command, calls):
    arguments = ["--quick", "--method", "MEM-L2", "--seed", "2", "-o", str(tmp_path)]
    code, _, told = command("reproduce", "1", *arguments)
    assert code == 2 and "1 cells failed" in told
    code, _, told = command("reproduce", "1", "--quick", "--full")
    assert code == 2 and "exclude each other" in told


def test_missing_data_are_told_before_anything_runs(tmp_path, monkeypatch, command):
    monkeypatch.setenv("WIDEANGLE_DATA", str(tmp_path / "nothing"))
    for name in ("XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    code, _, told = command("reproduce", "1", "-o", tmp_path / "out")
    assert code == 2
    assert "adult9.npz" in told
    assert "was not found" in told
    assert not (tmp_path / "out").exists()
    code, _, told = command("reproduce", "classifiers", "--data", "mnist")
    assert code == 2 and "data='mnist'" in told


@pytest.mark.slow
def test_tables_run_quickly_without_files(tmp_path, monkeypatch, command, compile_quickly):
    """What CI runs of `reproduce all --quick`: one row of each kind, few rows, short chains."""
    numbers = ["1", "4", "6", "9", "12", "13"]
    monkeypatch.setenv("WIDEANGLE_DATA", str(tmp_path / "nothing"))
    for name in ("XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    rows = [part for name in ("LR", "MEM-L2", "IMA-LFM") for part in ("--method", name)]
    short = ["--n-warmup", "2", "--n-draws", "3", "--n-passes", "3", "--max-rows", "60"]
    out = ["-o", str(tmp_path / "out")]
    code, shown, _ = command("reproduce", *numbers, "--quick", *rows, *short, *out)
    assert code == 0
    for words in ("Against other classifiers", "Statistics of the data sets", "Precision at 100"):
        assert words in shown
    tables = sorted(path.name for path in (tmp_path / "out").glob("table-*"))
    assert tables == [f"table-{int(number):02d}" for number in numbers]
    table = json.loads((tmp_path / "out" / "table-09" / "table.json").read_text())
    assert table["records"] == ["cells/features/made_text/IMA-LFM.seed0.json"]
    assert (tmp_path / "out" / table["records"][0]).is_file()
    assert "IMA-LFM" in table["grids"][0]["rows"][0]


@pytest.mark.slow
def test_a_killed_run_keeps_what_was_finished_and_goes_on(tmp_path, command):
    seeds = [part for seed in range(8) for part in ("--seed", str(seed))]
    arguments = ["reproduce", "4", "--quick", "--method", "KSVM", *seeds, "-o", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "wideangle", *arguments, "--jobs", "2"], stdout=subprocess.DEVNULL
    )
    try:
        while process.poll() is None and not list(tmp_path.rglob("KSVM*.json")):
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    kept = list(read_all(tmp_path / "cells", "classifiers"))  # each can be read
    assert 1 <= len(kept) < 8
    code, shown, _ = command(*arguments)
    assert code == 0 and f"{len(kept)} cells are there" in shown
    assert len(list(read_all(tmp_path / "cells", "classifiers"))) == 8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # three draws are too few
def test_every_row_runs(tmp_path, command, compile_quickly):
    # In one process: nearly all of the time is compiling, which every other one would do again.
    short = ["--n-warmup", "2", "--n-draws", "3", "--n-passes", "3", "--max-rows", "40"]
    arguments = ["--quick", "--experts", "2", *short, "-o", str(tmp_path)]
    everything = ["all", "--data", "experts", "--data", "block_images"]
    assert command("reproduce", *everything, *arguments)[0] == 0
    assert {path.stem for path in tmp_path.rglob("*.seed0.json")} == {
        f"{row}.K2.seed0" if row in ROWS else f"{row}.seed0"
        for row in (*BASELINES, *ROWS, *FEATURE_ROWS)
    }
    assert len(list(tmp_path.glob("table-*/table.md"))) == 13
    from wideangle_lab.paper.page import main

    (tmp_path / "docs").mkdir()
    for name in ("reproduction.md", "results.md", "feature-results.md"):
        shutil.copy(Path(__file__).parents[3] / "docs" / name, tmp_path / "docs" / name)
    main([str(tmp_path), str(tmp_path / "docs")])
    page = (tmp_path / "docs" / "feature-results.md").read_text(encoding="utf-8")
    assert "IMA-cosine-0.2" in page
    assert "cannot be decided" in (tmp_path / "docs" / "reproduction.md").read_text(
        encoding="utf-8"
    )
