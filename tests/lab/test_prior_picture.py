"""The numbers behind the picture, and the numbers in it."""

import jax
import numpy as np
import pytest

from wideangle import sphere
from wideangle.sphere.geometry import pairwise_angles
from wideangle.sphere.vmf import mean_resultant
from wideangle_lab import prior_picture as picture


@pytest.fixture(scope="module")
def cases():
    return picture.measure(jax.random.key(3), n_sets=1500)


@pytest.fixture(scope="module")
def figure(cases):
    pytest.importorskip("matplotlib")
    return picture.make_figure(cases)


def axes_named(figure, label):
    return next(axes for axes in figure.axes if axes.get_label() == label)


def select(cases, dim, kind):
    return [case for case in cases if (case.dim, case.kind) == (dim, kind)]


def test_every_prior_is_there_once(cases):
    wanted = [(p, kind, c) for p in picture.DIMS for kind in picture.KINDS for c in picture.COSINES]
    assert [(case.dim, case.kind, case.cosine) for case in cases] == wanted


def test_concentrations_have_the_cosine_they_stand_for(cases):
    for case in cases:
        assert np.isclose(mean_resultant(case.concentration, case.dim), case.cosine)


def test_without_repulsion_angles_are_those_of_uniform_directions(cases):
    # In three dimensions the cosine of a pair is uniform on (-1, 1).
    for kind in picture.KINDS:
        angles = select(cases, 3, kind)[0].angles
        cosines = np.cos(np.radians(angles))
        error = 4 / np.sqrt(1500)
        assert abs(cosines.mean()) < error
        assert abs((cosines**2).mean() - 1 / 3) < error


def test_repulsion_widens_the_mean_angle(cases):
    for dim in picture.DIMS:
        for kind in picture.KINDS:
            means = [case.mean_angle for case in select(cases, dim, kind)]
            assert np.all(np.diff(means) > 0)


def test_too_much_repulsion_costs_directions(cases):
    # The title of the last panel.
    for kind in picture.KINDS:
        none, *_, strongest = select(cases, 50, kind)
        assert strongest.effective_directions < none.effective_directions - 1
        assert strongest.min_angle < none.min_angle


def test_summaries_are_those_of_the_angles(cases):
    for case in cases:
        n_pairs = picture.N_COMPONENTS * (picture.N_COMPONENTS - 1) // 2
        by_set = case.angles.reshape(-1, n_pairs)
        assert np.isclose(case.mean_angle, by_set.mean(), rtol=1e-6)
        assert np.isclose(case.min_angle, by_set.min(1).mean(), rtol=1e-6)
        example = sphere.geometry.diversity(case.example)
        assert abs(np.degrees(example.mean_angle) - case.mean_angle) < 1.0


def test_lines_of_the_picture_are_densities_of_the_angles(cases, figure):
    for dim in picture.DIMS:
        axes = axes_named(figure, f"angles {dim}")
        lines = [line for line in axes.lines if len(line.get_xdata()) > 2]
        assert len(lines) == len(picture.COSINES)
        for line, case in zip(lines, select(cases, dim, "I"), strict=True):
            x, y = line.get_data()
            width = x[1] - x[0]
            assert np.isclose(np.sum(y) * width, 1.0)
            assert abs(np.sum(x * y) * width - case.angles.mean()) < width / 2


def test_points_of_the_summary_are_the_summaries(cases, figure):
    lines = {line.get_label(): line for line in axes_named(figure, "summary").lines}
    for kind in picture.KINDS:
        chosen = select(cases, 50, kind)
        mean, smallest = lines[f"mean angle, type {kind}"], lines[f"smallest angle, type {kind}"]
        assert np.allclose(mean.get_xdata(), picture.COSINES)
        assert np.allclose(mean.get_ydata(), [case.mean_angle for case in chosen])
        assert np.allclose(smallest.get_ydata(), [case.min_angle for case in chosen])


def test_arrows_are_the_projected_components(cases, figure):
    for case in select(cases, 3, "I"):
        axes = axes_named(figure, f"sphere {case.cosine}")
        tips = sorted(tuple(text.xy) for text in axes.texts if hasattr(text, "xy"))
        wanted = sorted(tuple(row) for row in picture.upright(case.example)[:, :2])
        assert np.allclose(tips, wanted)


def test_upright_is_a_rotation_with_the_first_component_up():
    draws = np.random.default_rng(0).normal(size=(40, 6, 3))
    draws /= np.linalg.norm(draws, axis=-1, keepdims=True)
    for directions in draws:
        placed = picture.upright(directions)
        assert np.allclose(pairwise_angles(placed), pairwise_angles(directions), atol=1e-9)
        assert np.isclose(np.linalg.det(placed[:3]), np.linalg.det(directions[:3]))
        assert np.allclose(placed[0], [0, np.cos(picture.TILT), np.sin(picture.TILT)])


def test_labels_of_coinciding_tips_are_joined():
    labels = picture.order_labels(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.01]]))
    assert [text for text, _ in labels] == ["1, 3", "2"]


def test_the_picture_is_written(tmp_path, cases):
    pytest.importorskip("matplotlib")
    picture.draw(cases, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_seed_gives_the_same_numbers(monkeypatch):
    monkeypatch.setattr(picture, "DIMS", (3,))
    once, again = (picture.measure(jax.random.key(1), n_sets=20) for _ in range(2))
    other = picture.measure(jax.random.key(2), n_sets=20)
    assert once[1].mean_angle == again[1].mean_angle != other[1].mean_angle
