"""The numbers behind the pictures, against independent computations."""

import copy

import numpy as np
import pytest

import fitted
from wideangle.base import present
from wideangle.plots import numbers


def degrees(vectors):
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.degrees(np.arccos(np.clip(units @ units.T, -1, 1)))


def test_angles_are_those_of_the_vectors():
    for model, rows in (
        (fitted.experts(), fitted.experts().experts_),
        (fitted.wine_experts(), fitted.wine_experts().experts_.reshape(2, -1)),
        (fitted.features(), fitted.features().components_),
    ):
        expected = degrees(rows)
        np.fill_diagonal(expected, 0.0)
        assert np.allclose(numbers.angles(model), expected, atol=0.05)


def test_pairs_come_once():
    table = np.arange(18.0).reshape(2, 3, 3)
    assert numbers.pairs(table).tolist() == [1, 2, 5, 10, 11, 14]


def test_posterior_angles_of_experts_are_those_of_their_draws():
    model = fitted.experts()
    experts = np.asarray(model.posterior_.values["weights"].experts)[:, :, :, 0]
    every = [degrees(draw)[np.triu_indices(3, 1)] for chain in experts for draw in chain]
    found = numbers.posterior_angles(model, n_draws=10_000)
    assert np.allclose(np.sort(found), np.sort(np.ravel(every)), atol=0.1)


def test_posterior_angles_of_features_are_those_that_matter():
    model = fitted.features()
    expected = []
    for state, index in zip(model.chains_.draws, model.matched_.index, strict=True):
        found = state.vectors[index[index >= 0]]
        expected += degrees(found)[np.triu_indices(len(found), 1)].tolist()
    assert np.allclose(numbers.posterior_angles(model), expected, atol=0.1)


@pytest.mark.parametrize("name", ["experts", "features"])
def test_prior_angles_follow_the_distribution_of_the_second_component(name):
    # The first pair of a set: the mean cosine is -A_p(kappa), whatever comes after.
    from wideangle.sphere.vmf import mean_resultant

    model = copy.copy(getattr(fitted, name)())
    model.prior, model.concentration_ = "mutual-angular", 5.0  # of the features
    n, p = present(model).vectors().shape
    kappa = (
        model.concentration_
        if name == "features"
        else float(model.priors_.experts.directions.concentration)
    )
    sets = numbers.prior_angles(model, n_sets=4000, seed=1).reshape(-1, n * (n - 1) // 2)
    cosine = np.cos(np.radians(sets[:, 0]))
    error = 4 * cosine.std() / np.sqrt(len(cosine))
    assert abs(cosine.mean() + float(mean_resultant(kappa, p))) < error


def test_independent_features_have_uniform_prior_directions():
    angles = numbers.prior_angles(fitted.features(), n_sets=2000)
    cosine = np.cos(np.radians(angles))
    assert abs(cosine.mean()) < 4 / np.sqrt(36 * len(angles))
    assert np.isclose((cosine**2).mean(), 1 / 36, rtol=0.1)


def test_large_models_draw_fewer_sets(monkeypatch):
    model = fitted.features()
    monkeypatch.setattr(numbers, "PRIOR_ENTRIES", 36 * model.n_components_ * 3)
    n_pairs = model.n_components_ * (model.n_components_ - 1) // 2
    assert len(numbers.prior_angles(model, n_sets=100)) == 3 * n_pairs


def test_names_of_columns():
    assert present(fitted.experts()).entry_names() == ["column 1", "column 2", "(intercept)"]
    assert present(fitted.experts()).entry_names(["a", 3]) == ["a", "3", "(intercept)"]
    assert present(fitted.wine_experts()).entry_names()[0] == "alcohol"
    with pytest.raises(ValueError, match="the model has 36 columns, got 2 names"):
        present(fitted.features()).entry_names(["a", "b"])


def test_the_plane_of_the_map_keeps_what_it_can():
    # A matrix of rank two, as three gates have, is kept whole: so are all distances.
    model, (X, _) = fitted.experts(), fitted.plane(40, 5)
    proba = model.gate_proba(X)
    scores = np.log(proba)
    scores = scores - scores.mean(axis=1, keepdims=True)

    def distances(points):
        return np.linalg.norm(points[:, None] - points[None], axis=2)

    plane = numbers.plane_of(proba)
    assert plane.shape == (40, 2)
    assert np.allclose(distances(plane), distances(scores), atol=1e-3)
    assert plane[:, 0].var() >= plane[:, 1].var()


def test_traces_have_one_number_for_each_draw():
    assert set(numbers.traces(fitted.experts())) >= {"log_lik", "n_used", "mean_angle"}
    assert all(v.shape == (2, 25) for v in numbers.traces(fitted.experts()).values())
    assert numbers.traces(fitted.features())["n_active"].shape == (2, 12)
