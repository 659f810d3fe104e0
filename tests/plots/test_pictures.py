"""Every picture draws what it says: the data in the artists, and the words beside them."""

import copy
from dataclasses import replace
from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest

import fitted
from wideangle import plots
from wideangle.base import present
from wideangle.diagnostics import rhat
from wideangle.mixture_of_experts.likelihood import Weights
from wideangle.plots import numbers, style

matplotlib = pytest.importorskip("matplotlib")


def words(axes):
    return [text.get_text() for text in axes.texts]


def shown(image):
    return np.ma.filled(np.ma.asarray(image.get_array(), float), np.nan)


def tick_words(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_cells_of_the_heat_map_are_the_angles():
    for model in (fitted.experts(), fitted.features()):
        axes = plots.angle_heatmap(model).axes[0]
        table = shown(axes.images[0])
        expected = numbers.angles(model)
        off = ~np.eye(len(expected), dtype=bool)
        assert np.allclose(table[off], expected[off])
        assert np.isnan(np.diag(table)).all()
        assert axes.images[0].get_clim() == (0, 180)
        assert words(axes) == [f"{a:.0f}" for a in expected[off]]
        assert tick_words(axes.xaxis) == [str(k + 1) for k in range(len(expected))]


def test_bars_are_posterior_angles_and_the_line_the_prior():
    model = fitted.features()
    axes = plots.angle_distribution(model, n_sets=200, seed=3).axes[0]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["posterior", "prior"]
    edges = np.arange(0, 181, 5.0)
    bars = [patch.get_height() for patch in axes.patches]
    found, _ = np.histogram(numbers.posterior_angles(model), edges, density=True)
    assert np.allclose(bars, found)
    line = next(line for line in axes.lines if line.get_label() == "prior")
    expected, _ = np.histogram(numbers.prior_angles(model, 200, 3), edges, density=True)
    assert np.allclose(line.get_xdata(), edges[:-1] + 2.5)
    assert np.allclose(line.get_ydata(), expected)


def test_one_component_has_no_angles():
    model = copy.copy(fitted.experts())
    model._representative = Weights(np.ones((1, 3)), np.ones((1, 1, 3)))
    with pytest.raises(ValueError, match="no two experts"):
        plots.angle_distribution(model)


def test_images_are_the_components_on_one_scale():
    model = fitted.features()
    figure = plots.component_images(model, (6, 6))
    reach = np.abs(model.components_).max()
    for k, axes in enumerate(figure.axes):
        assert np.allclose(shown(axes.images[0]).ravel(), model.components_[k])
        assert np.allclose(axes.images[0].get_clim(), (-reach, reach))
        assert axes.get_title() == f"{k + 1}: {100 * model.prevalence_[k]:.0f} %"
    assert len(figure.axes) == model.n_components_
    assert len(plots.component_images(model, (6, 6), n_most=2).axes) == 2
    with pytest.raises(ValueError, match="36 columns"):
        plots.component_images(model, (5, 6))


def test_words_are_the_largest_entries_in_order():
    model = fitted.features()
    names = [f"w{i}" for i in range(36)]
    figure = plots.top_words(model, names, n_words=5, n_most=3)
    assert len(figure.axes) == 3
    for k, axes in enumerate(figure.axes):
        order = sorted(range(36), key=lambda i, k=k: -model.components_[k, i])[:5]
        assert tick_words(axes.yaxis) == [names[i] for i in order]
        widths = [bar.get_width() for bar in axes.patches]
        assert np.allclose(widths, model.components_[k, order])
        assert axes.yaxis_inverted()  # the largest on top


def test_cells_of_the_weights_are_the_weights_of_the_strongest_columns():
    model = fitted.experts()
    axes = plots.component_weights(model, ["a", "b"]).axes[0]
    order = np.argsort(-np.abs(model.experts_).max(axis=0))
    assert tick_words(axes.yaxis) == [["a", "b", "(intercept)"][i] for i in order]
    assert np.allclose(shown(axes.images[0]), model.experts_[:, order].T)
    assert axes.get_title(loc="left") == "Predict yes"
    assert words(axes)[0] == f"{model.experts_[0, order[0]]:.1f}"


def test_weights_of_several_classes_have_a_panel_each():
    model = fitted.wine_experts()
    figure = plots.component_weights(model, n_most=4)
    size = np.abs(model.experts_).max(axis=(0, 1))
    order = np.argsort(-size)[:4]
    panels = figure.axes[:3]
    for c, axes in enumerate(panels):
        assert axes.get_title(loc="left") == f"Predict {c}"
        assert np.allclose(shown(axes.images[0]), model.experts_[:, c][:, order].T)
        assert np.allclose(axes.images[0].get_clim(), (-size.max(), size.max()))
    names = present(model).entry_names()
    assert tick_words(panels[0].yaxis) == [style.shorten(names[i]) for i in order]
    with pytest.raises(ValueError, match="need a whole figure"):
        plots.component_weights(model, ax=panels[0])


def test_points_of_the_gate_map_are_rows_in_the_colour_of_their_expert():
    model, (X, y) = fitted.experts(), fitted.plane(60, 1)
    axes = plots.component_map(model, X, y).axes[0]
    owner = np.argmax(model.gate_proba(X), axis=1)
    for scatter, label in zip(axes.collections, model.classes_, strict=True):
        member = y == label
        assert np.allclose(scatter.get_offsets(), X[member])
        expected = matplotlib.colors.to_rgba_array([style.colour(k) for k in owner[member]])
        assert np.allclose(scatter.get_facecolors()[:, :3], expected[:, :3])
    legend = [t.get_text() for t in axes.get_legend().get_texts()]
    share = model.gate_proba(X).mean(axis=0)
    assert f"expert {owner[0] + 1}: {100 * share[owner[0]]:.0f} %" in legend
    assert {"class no", "class yes"} <= set(legend)


def test_the_background_of_the_gate_map_mixes_the_colours_of_experts():
    model, (X, _) = fitted.experts(), fitted.plane(60, 1)
    image = plots.component_map(model, X).axes[0].images[0]
    left, right, bottom, top = image.get_extent()
    n = len(image.get_array())
    for i, j in ((10, 30), (150, 199), (77, 4)):
        x = left + (right - left) * j / (n - 1)
        y = bottom + (top - bottom) * i / (n - 1)
        proba = model.gate_proba([[x, y]])[0]
        mixed = sum(
            p * np.array(matplotlib.colors.to_rgb(style.colour(k))) for k, p in enumerate(proba)
        )
        assert np.allclose(image.get_array()[i, j], 0.55 + 0.45 * mixed, atol=1e-4)


def test_many_columns_are_seen_in_the_plane_of_the_gate():
    model = fitted.wine_experts()
    from sklearn.datasets import load_wine

    X = load_wine(as_frame=True).data
    axes = plots.component_map(model, X, n_most=50).axes[0]
    offsets = axes.collections[0].get_offsets()
    chosen = np.linspace(0, len(X) - 1, 50).astype(int)
    assert np.allclose(offsets, numbers.plane_of(model.gate_proba(X.iloc[chosen])))
    assert not axes.images
    assert axes.get_xlabel() == "log probabilities, main direction"


def test_cells_of_the_activation_matrix_are_the_activations_in_blocks():
    model, X = fitted.features(), fitted.images(30, 4)
    axes = plots.activation_matrix(model, X).axes[0]
    found, used = shown(axes.images[0]).T, model.transform(X)
    assert np.allclose(sorted(map(tuple, found)), sorted(map(tuple, used)))
    patterns = [tuple(row) for row in np.round(found).astype(int)]
    assert sum(a != b for a, b in pairwise(patterns)) == len(set(patterns)) - 1
    assert patterns == sorted(patterns, reverse=True)
    share = 100 * used.mean(axis=0)
    assert tick_words(axes.yaxis)[0] == f"1  ({share[0]:.0f} %)"


def test_lines_of_the_number_of_features_are_the_trace():
    model = fitted.features()
    lines, side = plots.component_count(model).axes
    values = model.trace_.values["n_active"]
    for chain in range(2):
        assert np.array_equal(lines.lines[chain].get_ydata(), values[chain])
    assert set(lines.lines[2].get_ydata()) == {model.n_components_}
    for bar in side.patches:
        number = round(bar.get_y() + bar.get_height() / 2)
        assert np.isclose(bar.get_width(), np.mean(values == number))
    assert lines.get_title(loc="left").startswith("Number of features")


def test_a_trace_draws_the_quantity_it_names():
    model = fitted.experts()
    axes = plots.trace(model, "mean_angle").axes[0]
    values = model.trace_.values["mean_angle"]
    assert np.array_equal(axes.lines[1].get_ydata(), values[1])
    worst = float(rhat(values))
    assert f"(R-hat {worst:.2f}" in axes.get_title(loc="left")
    assert ("chains differ" in axes.get_title(loc="left")) == (worst > 1.05)
    assert plots.trace(model).axes[0].get_title(loc="left").startswith("Log-likelihood")
    with pytest.raises(ValueError, match=r"must be one of .*log_lik, mean_angle, n_used"):
        plots.trace(model, "nothing")


def test_a_number_that_chains_never_change_is_given_for_each_of_them():
    model = copy.copy(fitted.experts())
    counts = np.repeat([[4.0], [5.0]], model.trace_.n_draws, axis=1)
    model.trace_ = replace(model.trace_, values=model.trace_.values | {"n_used": counts})
    title = plots.trace(model, "n_used").axes[0].get_title(loc="left")
    assert title.endswith("(4, 5: constant in each chain)")


def test_given_axes_are_drawn_on_and_their_figure_comes_back():
    figure = matplotlib.figure.Figure()
    axes = figure.subplots(1, 3)
    assert plots.angle_heatmap(fitted.experts(), ax=axes[0]) is figure
    assert plots.component_count(fitted.features(), ax=axes[1]) is figure
    assert plots.trace(fitted.experts(), ax=axes[2]) is figure
    assert len(axes[0].images) == 1 and len(axes[1].lines) == 3 and len(axes[2].lines) == 2


def test_a_figure_shows_itself_in_a_notebook():
    assert plots.trace(fitted.experts())._repr_png_().startswith(b"\x89PNG")


def test_names_with_a_dollar_are_no_formulas():
    figure = plots.component_weights(fitted.experts(), ["$\\bad{$", "x" * 60])
    figure.savefig(BytesIO(), format="png")
    labels = tick_words(figure.axes[0].yaxis)
    assert "x" * 21 + "…" in labels
