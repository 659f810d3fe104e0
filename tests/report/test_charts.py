"""The pictures of the page: valid for Plotly, and of the numbers of the run."""

from dataclasses import replace

import numpy as np
import pytest

from wideangle.plots import numbers
from wideangle.presentation.classifier import reliability
from wideangle.report import charts


@pytest.mark.parametrize("name", ["expert_run", "wine_run", "feature_run", "hostile_run"])
def test_figures_follow_the_schema_of_plotly(request, name):
    objects = pytest.importorskip("plotly.graph_objects")
    found = charts.charts_of(request.getfixturevalue(name))
    assert len(found) >= 4
    for figure in found.values():
        objects.Figure(figure["data"], figure["layout"])  # an unknown property raises
        assert figure["height"] > 100


def test_cells_are_the_angles(feature_run):
    trace = charts.angle_heatmap(feature_run)["data"][0]
    expected = numbers.angles(feature_run.model)
    for i, row in enumerate(trace["z"]):
        for j, value in enumerate(row):
            assert value is None if i == j else abs(value - expected[i, j]) < 0.1


def test_bars_and_line_are_shares_of_pairs(expert_run):
    bars, line = charts.angle_distribution(expert_run)["data"]
    for trace, angles in (
        (bars, numbers.posterior_angles(expert_run.model)),
        (line, numbers.prior_angles(expert_run.model, 2000)),
    ):
        shares = [np.mean((angles >= x - 2.5) & (angles < x + 2.5)) for x in trace["x"]]
        assert np.allclose(trace["y"], shares, rtol=1e-3, atol=1e-9)
        assert np.isclose(sum(trace["y"]), 1, rtol=1e-2)


def test_rows_are_in_the_trace_of_their_expert(expert_run):
    regions, *traces = charts.component_map(expert_run)["data"]
    gate, X = expert_run.sample.values["activations"], expert_run.sample.X
    for k, trace in enumerate(traces):
        member = np.argmax(gate, axis=1) == k
        assert trace["meta"] == {"component": k + 1}
        assert np.allclose(trace["x"], X[member, 0], rtol=1e-3)
        assert np.allclose(trace["y"], X[member, 1], rtol=1e-3)
        assert np.allclose(trace["customdata"], gate[member, k], rtol=1e-2)
    place = [[regions["x"][7], regions["y"][50]]]
    assert regions["z"][50][7] == np.argmax(expert_run.model.gate_proba(place))


def test_more_columns_are_seen_in_the_plane_of_the_gate(wine_run):
    traces = charts.component_map(wine_run)["data"]
    gate = wine_run.sample.values["activations"]
    plane = numbers.plane_of(gate)
    member = np.argmax(gate, axis=1) == 1
    assert np.allclose(traces[1]["x"], plane[member, 0], rtol=1e-3)
    words = traces[1]["text"][0]
    i = np.flatnonzero(member)[0]
    assert words.startswith(f"row {i + 1}, is {wine_run.frame.classes[wine_run.sample.y[i]]};")


def test_calibration_of_two_classes_is_about_the_second(expert_run):
    points = charts.calibration(expert_run)["data"][1]
    p, y = expert_run.sample.values["proba"][:, 1], expert_run.sample.y
    low = np.floor(10 * p) == np.floor(10 * p.min())  # the first bin that is not empty
    assert np.isclose(points["x"][0], p[low].mean(), rtol=1e-3)
    assert np.isclose(points["y"][0], y[low].mean(), rtol=1e-3)
    assert sum(points["customdata"]) == len(y)
    found = reliability(y, p)
    bars = points["error_y"]
    assert np.allclose(np.add(points["y"], bars["array"]), found.high, atol=2e-3)
    assert np.allclose(np.subtract(points["y"], bars["arrayminus"]), found.low, atol=2e-3)


def test_confidence_counts_right_and_wrong_answers(wine_run):
    right, wrong = charts.confidence(wine_run)["data"]
    truth = np.argmax(wine_run.sample.values["proba"], axis=1) == wine_run.sample.y
    assert sum(right["y"]) == truth.sum()
    assert sum(wrong["y"]) == (~truth).sum()
    sure = wine_run.sample.values["proba"].max(axis=1)
    top = np.linspace(1 / 3, 1.0, 11)[-2]
    assert right["y"][-1] == np.sum(truth & (sure >= top))


def test_activations_keep_the_numbers_of_their_rows(feature_run):
    trace = charts.activation_matrix(feature_run)["data"][0]
    used = feature_run.sample.values["activations"]
    place = {int(row): i for i, row in enumerate(feature_run.sample.rows)}
    order = [place[row] for row in trace["text"][0]]
    assert sorted(order) == list(range(60))
    assert np.allclose(trace["z"], used[order].T, atol=1e-3)


def test_features_of_a_row_are_counted(feature_run):
    trace = charts.components_per_row(feature_run)["data"][0]
    counts = np.round(feature_run.sample.values["activations"].sum(axis=1))
    assert np.allclose(trace["y"], [np.mean(counts == n) for n in trace["x"]], rtol=1e-3)


def test_every_row_with_a_density_is_in_its_picture(feature_run):
    values = feature_run.sample.values
    density = np.where(np.arange(60) < 5, np.nan, values["log_density"])
    sample = replace(feature_run.sample, values=values | {"log_density": density})
    trace = charts.densities(replace(feature_run, sample=sample))["data"][0]
    assert sum(trace["y"]) == 55


def test_chains_are_the_traces(expert_run, wine_run):
    first = charts.chains_of(expert_run)[0]
    values = expert_run.model.trace_.values["log_lik"]
    assert first["name"] == "log-likelihood"
    assert np.allclose(first["traces"], values, rtol=1e-4)
    assert np.sum(first["ranks"]) == values.size
    assert first["expected"] == values.shape[1] / 10
    assert charts.chains_of(wine_run) == []


def test_text_for_plotly_has_no_marks_and_is_short():
    assert charts.plain("<b>a & b</b> $x$") == "&lt;b&gt;a &amp; b&lt;/b&gt; &#36;x&#36;"
    assert charts.plain("<" * 90, 10) == "&lt;" * 9 + "…"


def test_rounding_keeps_the_shape_and_drops_what_is_no_number():
    assert charts.rounded([[1.23456, np.nan], [np.inf, -2e-9]]) == [[1.235, None], [None, -2e-9]]
    assert charts.rounded(0.5) == 0.5
    assert charts.rounded(np.zeros((0,))) == []
