"""The page says what the records say."""

from pathlib import Path

import pytest

from robustness import page

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "results" / "faults"


@pytest.mark.skipif(not RECORDS.is_dir(), reason="records are not part of a source distribution")
def test_the_page_is_that_of_the_records():
    assert (ROOT / "docs" / "faults.md").read_text(encoding="utf-8") == page.page(RECORDS)


def test_what_went_wrong_is_on_the_page():
    row = {"estimator": "mcmc", "phase": "save", "trials": 9, "killed": 8, "with_checkpoint": 0,
           "old_model": 4, "new_model": 4, "wrong": 1}  # fmt: skip
    text = page.killed([{"seed": seed, "summary": [row]} for seed in (0, 1)])
    assert "2 failed a check" in text.replace("\n", " ")
    assert "| mixture of experts, MCMC | save | 18 | 16 | 0 | 8 | 8 | 2 |" in text


def test_what_grew_is_on_the_page():
    usage = [{"bytes": n * 2**20, "maps": 9} for n in (100, 107)]
    record = {
        "in_turn": {"fits": 12, "end": usage[1], "per_fit": {"bytes": 2**19}},
        "at_once": {"wrong": 0},
        "predictions": {"seconds": 5.0, "calls": 1234, "wrong": 3, "begun": usage[0],
                        "end": usage[1]},
        "complaints": ["3 predictions in threads differ"],
    }  # fmt: skip
    line = "| 12 | 6 | 0.50 MiB | 9 | 0 | 5 s | 1,234 | 3 | 7.0 MiB | 3 predictions in threads"
    assert line in page.soaked([record])
