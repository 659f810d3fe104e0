"""The demo from end to end on short chains, and what it refuses before any work."""

import builtins
import io
import re
import warnings
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import fitted
from wideangle import LatentFeatureModel, demo
from wideangle.datasets import block_images, mixture_data
from wideangle.demo import problems, tour
from wideangle.runs.folder import read_run

for name in ("jinja2", "matplotlib", "plotly"):
    pytest.importorskip(name)


def take(folder, stages):
    @contextmanager
    def stage(name):
        stages.append(f"+{name}")
        yield
        stages.append(f"-{name}")

    return tour.take(1, folder, stage)


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """A tour whose fits are the shared ones: what came out, the folder, the stages."""
    folder, stages = tmp_path_factory.mktemp("demo"), []
    # Fitted here: the tour has two threads, and what one silences the other may hear.
    features, experts = fitted.features(), fitted.experts()

    def fit(model, *_):
        return features if isinstance(model, LatentFeatureModel) else experts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(problems, "N_TRAIN", 150)
        patch.setattr(problems, "N_IMAGES", 80)
        patch.setattr(problems, "mixture_data", partial(mixture_data, n_columns=2))
        patch.setattr(problems, "_fit", fit)
        found = take(folder, stages)
    return found, folder, stages


def test_every_stage_is_told(taken):
    _, _, stages = taken
    assert sorted(stages[:-2]) == sorted(
        f"{sign}{name}" for name in ("experts", "features") for sign in "+-"
    )
    assert stages[-2:] == ["+pages", "-pages"]
    assert set(dict(demo.STAGES)) == {stage[1:] for stage in stages}


def test_both_reports_are_there_and_linked(taken):
    _, folder, _ = taken
    text = (folder / "index.html").read_text("utf-8")
    links = re.findall(r'href="([^"#]+)"', text)
    assert links == ["experts/report.html", "features/report.html"]
    for link in links:
        assert (folder / link).read_text("utf-8").startswith("<!DOCTYPE html>")
    assert text.count("data:image/png") == 5
    assert not re.search("https?:", text)  # letters of a picture may spell http by chance
    assert "script-src 'none'" in text.replace("&#39;", "'")


def test_runs_of_the_demo_can_be_read_again(taken):
    found, folder, _ = taken
    again = read_run(folder / "features")
    assert np.array_equal(again.model.components_, found["features"].run.model.components_)
    assert (
        read_run(folder / "experts").metrics["accuracy"] == found["experts"].run.metrics["accuracy"]
    )


def test_lines_of_the_table_are_the_scores_of_the_models(taken):
    found, _, _ = taken
    data = mixture_data(1, 150 + 1000, n_columns=2)
    run = found["experts"].run
    proba = run.model.predict_proba(data.X[150:])
    right = np.mean(np.argmax(proba, axis=1) == data.y[150:])
    loss = -np.mean(np.log(proba[np.arange(1000), data.y[150:]]))
    last = found["experts"].rows[-1]
    assert last.name == "experts that repel"
    assert last.cells[0] == f"{100 * right:.1f} %"
    assert last.cells[1] == f"{loss:.3f}"
    assert last.cells[2] == f"{np.degrees(run.model.trace_.values['mean_angle'].mean()):.0f}°"
    new = block_images(2, 80)
    gap = found["features"].run.model.reconstruct(new.X) - new.signal
    assert found["features"].rows[-1].cells[1] == f"{np.sqrt(np.mean(gap**2)):.3f}"


def test_tables_and_page_show_the_same_cells(taken):
    found, folder, _ = taken
    out = io.StringIO()
    console = Console(file=out, width=120)
    for result in found.values():
        console.print(tour.table(result))
    page = (folder / "index.html").read_text("utf-8")
    for row in (*found["experts"].rows, *found["features"].rows):
        for cell in (row.name, *row.cells):
            assert cell in out.getvalue()
            assert f"<td>{cell}</td>" in page


@pytest.mark.slow
def test_the_real_tour_finds_the_shapes_and_keeps_experts_apart(tmp_path):
    found = take(tmp_path, [])
    assert found["features"].rows[-1].cells[0] == "4 of 4"
    single, plain, repelled = found["experts"].rows
    assert float(single.cells[1]) > float(plain.cells[1]) + 0.05
    assert float(single.cells[1]) > float(repelled.cells[1]) + 0.05
    assert int(plain.cells[2][:-1]) <= int(repelled.cells[2][:-1])  # whole degrees
    assert found["experts"].run.model.prior.cosine == problems.COSINE


def test_shapes_are_counted_once_each():
    truth = np.eye(3)
    assert problems._shapes(truth[[0, 0, 2]] * 1.1, truth) == "2 of 3"
    assert problems._shapes(-truth, truth) == "0 of 3"
    assert problems._shapes(np.zeros((0, 3)), truth) == "0 of 3"


def test_an_interrupted_fit_ends_the_demo():
    class Stopped:
        def fit(self, *_):
            return self

        def presentation(self, _):
            return SimpleNamespace(interrupted=True)

    with pytest.raises(KeyboardInterrupt):
        problems._fit(Stopped())


@pytest.mark.parametrize(
    ("content", "words"), [("file", "is a file"), ("folder", "holds other files")]
)
def test_a_wrong_output_is_refused_before_any_work(tmp_path, monkeypatch, content, words):
    monkeypatch.setattr(tour, "take", lambda *_, **__: pytest.fail("work was done"))
    place = tmp_path / "there"
    if content == "folder":
        place.mkdir()
        (place / "mine.txt").write_text("kept")
    else:
        place.write_text("kept")
    with pytest.raises(ValueError, match=words):
        demo.run(place, seed=0)


def test_the_folder_of_a_past_demo_is_used_again(tmp_path):
    (tmp_path / "index.html").write_text("old")
    demo.prepare(tmp_path)
    demo.prepare(tmp_path / "new" / "one")
    assert list((tmp_path / "new" / "one").iterdir()) == []


def test_a_missing_library_is_named_before_any_work(tmp_path, monkeypatch):
    load = builtins.__import__

    def missing(name, *rest):
        if name.startswith("plotly"):
            raise ModuleNotFoundError("No module named 'plotly'", name="plotly")
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ModuleNotFoundError) as raised:
        demo.run(tmp_path / "a", seed=0)
    assert raised.value.name == "plotly"
    assert not (tmp_path / "a").exists()


def test_run_prints_the_tables_and_the_place(tmp_path, monkeypatch, capsys, taken):
    monkeypatch.setattr(tour, "take", lambda *_, **__: taken[0])
    demo.run(tmp_path / "out", seed=0)
    said = capsys.readouterr()
    assert "experts that repel" in said.out and "latent features" in said.out
    assert str(tmp_path / "out" / "index.html") in said.out.replace("\n", "")
    assert "fitting latent features" in said.err


def test_warnings_of_fits_are_listed_as_sentences(tmp_path, monkeypatch, capsys):
    def take(*_, **__):
        for _ in range(2):
            warnings.warn("Chains [of the demo] differ.", UserWarning, stacklevel=1)
        return {}

    monkeypatch.setattr(tour, "take", take)
    demo.run(tmp_path / "pages", 0)
    assert capsys.readouterr().out.count("warning: Chains [of the demo] differ.\n") == 1
