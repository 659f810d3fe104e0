"""The study of the number of clusters: a cell, the page, and the numbers behind it."""

import json
from pathlib import Path

import numpy as np
import pytest

from wideangle_lab import bench
from wideangle_lab.bench.clusters import chains, corpora, disk, page, speed, study
from wideangle_lab.marks import fill

ROOT = Path(__file__).parents[3]
RECORD = ROOT / "results" / "bench" / "clusters.json"


def test_the_page_is_that_of_the_record():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "cluster-results.md").read_text(encoding="utf-8")
    assert text == fill(text, {"record": page.render(record)})
    assert record["size"]["n_splits"] == 5


def test_a_quick_study_and_what_it_leaves_alone(tmp_path, capsys):
    output = tmp_path / "record.json"
    record = bench.run(output, quick=True, seed=0, areas=["clusters"], part="study")
    assert set(record["cells"]) == {f"simulated/{s}/map/{k}" for s in (0, 1) for k in (3, 6)}
    cell = record["cells"]["simulated/0/map/3"]
    assert cell["with"]["nmi"] > 0.8 and cell["without"]["log_density"] > 0
    assert cell["chosen"] == max(study.QUICK.cosines, key=lambda c: cell["inner"][f"{c:g}"])
    assert json.loads(output.read_text()) == json.loads(json.dumps(record))
    capsys.readouterr()
    bench.run(output, quick=True, seed=0, areas=["clusters"], part="study")
    assert "simulated" not in capsys.readouterr().out
    with pytest.raises(ValueError, match="no corpus"):
        bench.run(output, quick=True, seed=0, areas=["clusters"], only=["no"])
    text = page.render(record)
    assert "| simulated | log density |" in text and "of 1 corpora" in text


@pytest.mark.slow
def test_chains_of_all_splits_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(chains, "N_WARMUP", 20)
    monkeypatch.setattr(chains, "N_DRAWS", 4)
    output = tmp_path / "record.json"
    record = bench.run(output, quick=True, seed=0, areas=["clusters"], part="chains")
    assert set(record["cells"]) == {f"simulated/{s}/mcmc/{k}" for s in (0, 1) for k in (3, 6)}
    for cell in record["cells"].values():
        assert cell["without"]["nmi"] > 0.6 and cell["without"]["log_density"] > 0
    assert "## Sampling" in page.render(record)


@pytest.mark.slow
def test_chains_are_compared_with_longer_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(chains, "N_WARMUP", 5)
    monkeypatch.setattr(chains, "N_DRAWS", 2)
    output = tmp_path / "record.json"
    record = bench.run(output, quick=True, seed=0, areas=["clusters"], part="convergence")
    found = record["convergence"]["simulated"]
    assert list(found["log_density"]) == ["0", "0.3"]
    for values in found["log_density"].values():
        assert [len(values[length]) for length in ("1", "10")] == [chains.N_STARTS] * 2
    assert "| 0.3 | 10 |" in page.render(record)


def test_a_corpus_that_is_not_there_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setenv("WIDEANGLE_DATA", str(tmp_path))
    monkeypatch.setattr(corpora, "folders", lambda: [tmp_path])
    assert study.measure(study.Cell("rcv1_text", 0, "map", 3), study.FULL) == {}


def test_rare_classes_are_recalled_by_the_majority_of_their_cluster():
    y = np.array([0] * 6 + [1] * 4 + [2] * 2)
    parts = corpora.Parts(np.zeros((12, 2)), y, np.zeros((3, 2)), np.array([2, 2, 0]))
    fitted = np.array([0] * 6 + [1] * 4 + [2] * 2)
    found = study.agreement(fitted, np.array([2, 1, 0]), parts)
    assert found["rare_recall"] == 0.5


def test_intervals_of_paired_differences():
    found = page.paired([1.0, 2.0, 3.0])
    assert found.mean == 2.0 and found.half == pytest.approx(4.303 / np.sqrt(3), abs=1e-3)
    assert found.sign == 0 and page.paired([2.0, 2.1, 2.2]).sign == 1
    assert page.paired([1.0]).sign == 0


def test_speed_in_small():
    cases = speed.measure(quick=True, seed=0)
    assert [len(case.entries) for case in cases] == [2, 2, 2, 2]
    assert all(value > 0 for case in cases for s in case.entries.values() for value in s.values)


def test_rows_on_disk_in_small():
    found = disk.measure(quick=True, seed=0)
    assert found["n_used"] == found["clusters"] and found["cpu_seconds"] > 0
    assert "40,000 rows of 50 columns" in page.on_disk(found)
