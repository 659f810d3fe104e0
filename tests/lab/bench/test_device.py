"""The record of an accelerator: parts are measured one by one, and the page shows them."""

import json
from pathlib import Path

from wideangle_lab.bench import device
from wideangle_lab.bench.device_clock import timed
from wideangle_lab.bench.device_page import render
from wideangle_lab.bench.harness import Size
from wideangle_lab.marks import fill

ROOT = Path(__file__).parents[3]


def fit(seconds):
    numbers = {"seconds": seconds, "log_loss": 0.32, "accuracy": 0.85, "n_used": 7.0}
    return {
        "method": "BMEM-MABN-I",
        "settings": {"n_chains": 4},
        "first": numbers | {"worst_rhat": 1.25},
        "again": numbers | {"worst_rhat": 1.5},
    }


def broken():
    raise RuntimeError("no such card")


def test_parts_are_kept_beside_those_measured_anew(tmp_path, monkeypatch):
    output = tmp_path / "card.json"
    monkeypatch.setattr(device, "PARTS", {"Adult-9 sampling": lambda: fit(9.0), "broken": broken})
    device.main(output, [])
    record = json.loads(output.read_text("utf-8"))
    assert "no such card" in record["parts"]["broken"]["error"]
    assert record["parts"]["Adult-9 sampling"]["commit"]
    monkeypatch.setattr(device, "PARTS", {"Adult-9 sampling": lambda: fit(5.0)})
    device.main(output, ["Adult-9 sampling"])
    again = json.loads(output.read_text("utf-8"))["parts"]
    assert set(again) == {"Adult-9 sampling", "broken"}
    assert again["Adult-9 sampling"]["result"]["again"]["seconds"] == 5.0


def test_the_page_shows_what_the_record_has(tmp_path, monkeypatch):
    parts = {
        "ceilings": lambda: {"matrix_tflops": 50.0, "copy_gb_s": 4000.0},
        "Adult-9 gradient": lambda: {
            "rows": 10, "columns": 3, "n_experts": 2,
            "4 chains": {"seconds": 2e-3, "products_seconds": 1e-3, "tflops": 25.0},
        },
        "a million directions": lambda: device.directions(300, 5, 3),
        "Adult-9 sampling": lambda: fit(9.0),
        "many chains": lambda: {"method": "BMEM-MABN-I", "16 n_chains": fit(8.0)},
        "20-News sweep, 300 features": lambda: {
            "n_features": 300, "sweep_seconds": 0.016,
            "products_seconds": 0.003, "cross_seconds": 0.001,
        },
    }  # fmt: skip
    monkeypatch.setattr(device, "PARTS", parts)
    device.main(tmp_path / "card.json", [])
    page = render(json.loads((tmp_path / "card.json").read_text("utf-8")))
    for text in (
        "| 4 | 2.000 | 1.000 | 2.00 | 50 % |",
        "| 300 | 16.0 | 4.0 | 4.0 |",
        "| 1.2500, 1.5000 |",
        "with 3 clusters on 300 simulated rows of 5 columns",
    ):
        assert text in page
    assert "16 chains" in page


def test_a_call_is_timed_without_its_first():
    calls = []
    assert timed(lambda: calls.append(0) or 0.0, repeats=3) >= 0
    assert len(calls) == 4


def test_a_commit_can_be_named_for_a_copied_tree(monkeypatch):
    from wideangle_lab import machine

    monkeypatch.setenv("WIDEANGLE_COMMIT", "abc")
    assert machine.commit() == "abc"
    monkeypatch.delenv("WIDEANGLE_COMMIT")
    assert machine.commit() != "abc"


def test_gradients_are_measured_beside_their_products():
    result = device.gradients(Size(2000, 12, 3), chains=(1, 4))
    assert result["1 chains"]["tflops"] > 0 and result["4 chains"]["tflops"] > 0


def test_the_page_is_that_of_the_record():
    record = json.loads((ROOT / "results" / "bench" / "h200.json").read_text("utf-8"))
    text = (ROOT / "docs" / "gpu.md").read_text("utf-8")
    assert text == fill(text, {"record": render(record)})
