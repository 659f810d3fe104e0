import json
import sys
import time

import numpy as np
import pytest

from wideangle import cli
from wideangle.paper import run as running
from wideangle.paper.cells import QUICK, Cell
from wideangle.paper.records import find, keep, plain, read, read_all
from wideangle.paper.run import run


def cells(n, method="MEM-L2"):
    return [Cell("classifiers", "experts", method, 5, seed, effort=QUICK) for seed in range(n)]


@pytest.fixture
def calls(monkeypatch, outcome):
    """Cells are not run but counted; the one of seed 2 fails."""
    done = []

    def execute(cell, folder):
        if cell.seed == 2:
            raise FloatingPointError("seed 2")
        done.append(cell.seed)
        return outcome([0.5, 1.0], n_used=2.0)

    monkeypatch.setitem(running.EXECUTE, "classifiers", execute)
    return done


def quiet(line):
    pass


def test_cells_run_once_and_a_failure_stops_nothing(tmp_path, calls, where):
    said = []
    report = run(cells(4), tmp_path, where, say=said.append)
    assert calls == [0, 1, 3]
    assert list(report.failed) == ["classifiers/experts/MEM-L2.K5.seed2"]
    assert "FloatingPointError: seed 2" in "".join(said)
    again = run(cells(5), tmp_path, where, say=quiet)
    assert calls == [0, 1, 3, 4]
    assert len(again.there_before) == 3
    assert len(list(read_all(tmp_path, "classifiers"))) == 4


def test_no_cell_begins_when_the_time_is_over(tmp_path, calls, where):
    report = run(cells(2), tmp_path, where, budget=0.0, say=quiet)
    assert calls == []
    assert len(report.left) == 2


def test_a_cell_begins_if_the_last_of_its_kind_would_fit(tmp_path, monkeypatch, where, outcome):
    def slow(cell, folder):
        time.sleep(0.2)
        return outcome([1.0, 2.0])

    monkeypatch.setitem(running.EXECUTE, "classifiers", slow)
    report = run(cells(3), tmp_path, where, budget=0.3, say=quiet)
    assert len(report.finished) == 1
    assert len(report.left) == 2


def test_a_record_has_all_that_decides_a_number(tmp_path, calls, where):
    (record,) = run(cells(1), tmp_path, where, say=quiet).finished
    data = json.loads(record.path.read_text())
    assert {"cell", "metrics", "chosen", "diagnostics", "warnings", "seconds", "machine",
            "versions", "commit", "device", "version"} == set(data)  # fmt: skip
    assert read(record.path).cell == cells(1)[0]
    assert record.losses().tolist() == [0.5, 1.0]
    assert not list(tmp_path.rglob("*.tmp"))


def test_other_settings_are_not_taken_for_the_same_cell(tmp_path, calls, where):
    run(cells(1), tmp_path, where, say=quiet)
    other = Cell("classifiers", "experts", "MEM-L2", 5, 0, effort=QUICK._replace(n_draws=7))
    with pytest.raises(ValueError, match=r"other settings \(effort.*--out"):
        find(tmp_path, other)


def test_a_damaged_record_is_named(tmp_path):
    path = tmp_path / cells(1)[0].path
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(ValueError, match="is no record"):
        find(tmp_path, cells(1)[0])


def test_records_are_plain_json(tmp_path, where, outcome):
    value = plain({"a": np.float32(0.5), "b": np.nan, "c": (np.arange(2), True)})
    assert value == {"a": 0.5, "b": None, "c": [[0, 1], True]}
    huge = keep(tmp_path, cells(1)[0], outcome([1e6, 0.1]), where)
    assert np.all(np.isfinite(huge.losses()))


def test_baselines_run_beside_in_processes(tmp_path, where):
    cells = [Cell("classifiers", "experts", "LR", 0, seed, effort=QUICK) for seed in range(2)]
    report = run(cells, tmp_path, where, jobs=2, say=quiet)
    assert not report.failed
    assert {record.cell.seed for record in report.finished} == {0, 1}
    assert all(record.data["device"] == "cpu" for record in report.finished)


def test_baselines_that_do_not_end_in_time_are_left(tmp_path, where):
    cells = [Cell("classifiers", "experts", "RF", 0, 0)]
    report = run(cells, tmp_path, where, jobs=2, budget=0.2, say=quiet)
    assert report.left == cells
    assert find(tmp_path, cells[0]) is None


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["wideangle", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code


def test_the_command_runs_a_quick_table_without_files(tmp_path, monkeypatch, capsys):
    arguments = ["reproduce", "classifiers", "--quick", "--method", "LR", "--method", "MEM-L2"]
    assert command(monkeypatch, *arguments, "--experts", "2", "-o", str(tmp_path)) == 0
    shown = capsys.readouterr().out
    assert "experts: log-loss" in shown
    assert "MEM-L2" in shown
    both = list(read_all(tmp_path, "classifiers"))
    assert len(both) == 2
    assert all(0.2 < record.metrics["log_loss"] < 1.5 for record in both)
    assert command(monkeypatch, *arguments, "--experts", "2", "-o", str(tmp_path)) == 0
    assert "2 cells are there, 0 to run" in capsys.readouterr().out


def test_failed_cells_make_the_command_fail(tmp_path, monkeypatch, capsys, calls):
    arguments = ["--quick", "--method", "MEM-L2", "--seed", "2", "-o", str(tmp_path)]
    assert command(monkeypatch, "reproduce", "classifiers", *arguments) == 2
    assert "1 cells failed" in capsys.readouterr().err


def test_missing_data_are_told_before_anything_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WIDEANGLE_DATA", str(tmp_path / "nothing"))
    for name in ("XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    assert command(monkeypatch, "reproduce", "1", "--quick", "-o", str(tmp_path / "out")) == 2
    assert "adult9.npz (Adult-9) was not found" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert command(monkeypatch, "reproduce", "classifiers", "--data", "mnist") == 2
    assert "data='mnist'" in capsys.readouterr().err


@pytest.mark.slow
def test_every_row_runs(tmp_path, monkeypatch, capsys):
    tables = ["classifiers", "small-data"]
    arguments = ["--quick", "--experts", "3", "--jobs", "2", "-o", str(tmp_path)]
    assert command(monkeypatch, "reproduce", *tables, *arguments) == 0
    from wideangle.paper.page import render

    page = render(tmp_path)
    assert "BMEM-MABN-I" in page
    assert "mutual-angular-0.5" in page
