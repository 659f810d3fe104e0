"""A folder and one line in the registry: train, predict, report and plots work for a new family."""

import json

import numpy as np
import pandas as pd
import pytest

from report_page import Elements, data_of
from wideangle import plots
from wideangle.registry import FAMILIES
from wideangle.runs.folder import read_run

pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(FAMILIES, "groups", "third_family.estimator:Groups")


@pytest.fixture
def table(tmp_path):
    """Three groups around the corners of a triangle."""
    rng = np.random.default_rng(0)
    corners = np.array([[-5.0, 0.0, 3.0], [0.0, 5.0, 0.0], [5.0, 0.0, 3.0]])
    rows = np.repeat(corners, 20, axis=0) + 0.1 * rng.normal(size=(60, 3))
    path = tmp_path / "rows.csv"
    pd.DataFrame(rows, columns=["north", "east", "up"]).to_csv(path, index=False)
    return path, corners


def test_a_new_family_is_trained_applied_reported_and_drawn(command, table, tmp_path):
    path, corners = table
    run, page, predicted = tmp_path / "run", tmp_path / "page.html", tmp_path / "out.csv"

    code, out, _ = command("train", "groups", path, "-o", run, "--groups", 3)
    assert code == 0 and "48 to learn from, 12 held out" in out
    fitted = read_run(run)
    assert fitted.kind == "groups" and fitted.settings["options"] == {"n_groups": 3}
    np.testing.assert_allclose(fitted.model.centres_, corners, atol=0.2)

    assert command("predict", run, path, "-o", predicted)[0] == 0
    found = pd.read_csv(predicted)
    assert list(found) == ["group_1", "group_2", "group_3"]
    np.testing.assert_array_equal(found.to_numpy(), np.repeat(np.eye(3), 20, axis=0))

    assert command("report", run, "-o", page) == (0, f"{page}\n", "")
    text = page.read_text("utf-8")
    data = data_of(Elements(text))
    for words in ("groups of rows", "3 groups of 3 columns.", "energy of the groups"):
        assert words in text
    for words in ("group 1", "Raises up.", "Lowers north."):
        assert words in json.dumps(data)
    assert set(data["charts"]) == {"angles", "angle_distribution", "activations"}

    rows = fitted.sample.X
    figures = [
        plots.angle_heatmap(fitted.model),
        plots.angle_distribution(fitted.model),
        plots.component_weights(fitted.model, fitted.columns),
        plots.component_images(fitted.model, (3, 1)),
        plots.component_count(fitted.model),
        plots.component_map(fitted.model, rows),
        plots.activation_matrix(fitted.model, rows),
        plots.top_words(fitted.model),
        plots.trace(fitted.model, "energy"),
        plots.rank_plot(fitted.model),
    ]
    assert all(figure.axes for figure in figures)
    assert figures[0].axes[0].get_title(loc="left") == "Angles between groups"


def test_its_options_and_its_help_are_those_of_the_command_line(command, table, tmp_path):
    path, _ = table
    assert "Cut rows into groups." in command("train", "--help")[1]
    words = " ".join(command("train", "groups", "--help")[1].split())
    assert "--groups" in words and "default: (3)" in words
    assert "--target" not in words and "--experts" not in words
    code, _, err = command("train", "groups", path, "-o", tmp_path / "run", "--groups", 1)
    assert code == 2 and "--groups" in err
    assert command("train", "cubes", path)[0] == 2
