"""The page as text: whole, safe, and of the numbers of the run."""

import base64
import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from report_page import Elements, data_of, unpacked
from wideangle.report import page

pytest.importorskip("jinja2")
pytest.importorskip("plotly")
RUNS = ("expert_run", "hostile_run", "wine_run", "feature_run", "empty_run")
LIBRARY = "/* drawing library */"


@pytest.mark.parametrize("name", RUNS)
def test_nothing_on_the_page_leads_away_or_can_run(page_of, name):
    found = Elements(page_of(name))
    for tag, attributes in found.tags:
        assert not any(key.startswith("on") for key in attributes)
        assert tag not in {"iframe", "object", "embed", "link", "base", "form"}
        for key in ("src", "href", "action", "srcset", "data"):
            assert (attributes.get(key) or "#").startswith(("#", "data:image/png;base64,"))
    scripts = [a.get("type") for t, a in found.tags if t == "script"]
    assert scripts == ["text/plain", "text/plain", None]


def test_the_policy_names_the_two_scripts_and_nothing_else(page_of):
    found = Elements(page_of("hostile_run"))
    rule = next(a["content"] for t, a in found.tags if t == "meta" and "http-equiv" in a)
    parts = {part.split()[0]: part.split()[1:] for part in rule.split(";")}
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'"
        for s in (page.plotly(), found.scripts[-1])
    ]
    assert parts["script-src"] == hashes
    assert parts["default-src"] == ["'none'"]
    assert parts["img-src"] == ["data:"]
    assert "connect-src" not in parts and "font-src" not in parts  # so none


def test_hostile_names_are_text(page_of):
    text = page_of("hostile_run")
    found = Elements(text)
    assert not [a for t, a in found.tags if t == "img"]
    assert "<img src=x" not in text and "<script>window" not in text
    words = " ".join(found.words)
    assert "<img src=x onerror=window.hacked=1>" in words  # shown as it is written
    assert "{{ 7 * 7 }}" in words
    assert data_of(found)["parts"][0]["number"] == 1


def test_json_stays_the_same_and_cannot_close_its_script():
    content = {"a": ["</script>", "<!--", "&amp;", "\u2028"], "b": 1.5}
    letters, size = page.packed(page.as_json(content))
    assert json.loads(unpacked(letters, size)) == content
    assert letters.isascii() and "<" not in letters
    with pytest.raises(ValueError, match=r"JSON compliant"):
        page.as_json(float("nan"))


def test_the_page_says_what_the_run_is(page_of):
    words = " ".join(" ".join(Elements(page_of("expert_run")).words).split())
    assert "customers" in words
    assert "3 experts predict “bought” from 2 columns" in words
    assert "wideangle train moe 'a file.csv' -o run" in words
    assert "a: 3 missing values" in words
    assert "a log" in words


def test_a_run_without_features_has_a_page(page_of):
    words = " ".join(Elements(page_of("empty_run")).words)
    assert "No feature is worth its cost" in words
    assert "There are no features." in words


def test_sparse_rows_have_a_page(wine_run, monkeypatch):
    monkeypatch.setattr(page, "plotly", lambda: LIBRARY)
    sample = replace(wine_run.sample, X=sp.csr_array(wine_run.sample.X))
    assert page.render(replace(wine_run, sample=sample)) == page.render(wine_run)


def test_missing_entries_are_shown_as_such(feature_run, monkeypatch):
    monkeypatch.setattr(page, "plotly", lambda: LIBRARY)
    X = np.where(np.random.default_rng(0).random(feature_run.sample.X.shape) < 0.3, np.nan,
                 feature_run.sample.X)  # fmt: skip
    text = page.render(replace(feature_run, sample=replace(feature_run.sample, X=X)))
    assert ">–</td>" in text and "nan" not in " ".join(Elements(text).words)


def test_the_file_is_whole_and_of_a_size_to_send(feature_run, tmp_path):
    page.write(feature_run, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>") and text.rstrip().endswith("</html>")
    assert len(text.encode()) < 2_000_000
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_place_that_cannot_be_written_is_one_sentence(feature_run, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "plotly", lambda: LIBRARY)
    with pytest.raises(ValueError, match=r"cannot write .*nowhere"):
        page.write(feature_run, tmp_path / "nowhere" / "a.html")
