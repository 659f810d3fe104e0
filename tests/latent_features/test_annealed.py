"""Evidence by annealed importance sampling: unbiased, close, and its broken versions far."""

import numpy as np
import pytest
from scipy.special import logsumexp

from latent_features.feature_problems import (
    broken,
    brute_force,
    fields_of,
    random_draw,
    random_rows,
)
from statistical import FOUR, z_score
from wideangle.latent_features import importance as annealed_rows
from wideangle.latent_features.fields import enumerate_rows
from wideangle.latent_features.importance import annealed_evidence, choose_base, walk

REPEATS = 20_000


def bias(module, base_of, n_steps=4):
    """Standard errors between the mean weight of one row and its exact evidence."""
    draw = random_draw(5, 3, noise=1.0)
    rows = np.repeat(random_rows(draw, 1), REPEATS, axis=0)
    fields = fields_of(draw, rows)
    found = module.walk(fields, 11, n_steps, base=base_of(fields), n_streams=REPEATS)
    ratio = np.exp(found.log_weights - brute_force(draw, rows[:1])[0])
    return z_score(ratio[:, None], 1.0)


def prior_base(fields):
    return np.broadcast_to(fields.log_odds, fields.fields.shape).copy()


def odd_base(fields):
    return prior_base(fields) + np.array([0.7, -0.4, 0.0, 1.0, -1.0])


@pytest.mark.parametrize("base_of", [prior_base, odd_base])
@pytest.mark.parametrize("n_steps", [1, 4])
def test_weights_are_unbiased(base_of, n_steps):
    assert bias(annealed_rows, base_of, n_steps) < FOUR


def test_the_chosen_base_leaves_weights_unbiased(monkeypatch):
    own = {"base": None, "n_streams": 4000, "first_row": 0}
    monkeypatch.setattr(annealed_rows.walk, "__kwdefaults__", own)
    monkeypatch.setattr(annealed_rows, "RUN_STEPS", 10)
    draw = random_draw(5, 3, noise=1.0)
    rows = np.repeat(random_rows(draw, 1), 4000, axis=0)
    ratio = np.exp(
        annealed_evidence(fields_of(draw, rows), 4, 6, 2) - brute_force(draw, rows[:1])[0]
    )
    assert z_score(ratio[:, None], 1.0) < FOUR


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rows.fields + rows.log_odds - base  #", "rows.fields + rows.log_odds - 0.8 * base  #"),
        ("rows.log_all_off - base_all_off", "rows.log_all_off"),
        ("(power - before) * value", "power * value"),
        ("value += flip(k,", "value += 0.5 * flip(k,"),
        # Moves at the next power before it is weighed: no longer a valid path.
        ("before = power\n", "before = power_at(step - 2, n_steps, scale)\n"),
    ],
)
def test_broken_weights_are_noticed(old, new):
    assert bias(broken(annealed_rows, old, new), odd_base) > FOUR


@pytest.mark.slow
def test_a_broken_sweep_is_noticed():
    module = broken(annealed_rows, "(total > logistic[k])", "(total > 1.2 * logistic[k])")
    assert bias(module, prior_base) > FOUR


def test_close_to_enumeration_where_plug_ins_are_not():
    draw = random_draw(12, 8)
    rows = random_rows(draw, 40)
    fields = fields_of(draw, rows)
    exact, _ = enumerate_rows(fields)
    error = annealed_evidence(fields, 0, 40, 5) - exact
    assert abs(error.mean()) < 0.1
    assert np.sqrt(np.mean(error**2)) < 0.5
    rng = np.random.default_rng(0)
    z = rng.random((200, 1, 12)) < draw.weights
    by_prior = -0.5 * ((rows - z @ draw.vectors) ** 2).sum(-1) / 0.25 - 4 * np.log(0.5 * np.pi)
    assert (logsumexp(by_prior, axis=0) - np.log(200) - exact).mean() < -0.6


@pytest.mark.parametrize(("n_features", "dim"), [(60, 150), (40, 60)])
def test_more_temperatures_change_little_with_many_features(n_features, dim):
    draw = random_draw(n_features, dim)
    fields = fields_of(draw, random_rows(draw, 60))
    few, many = (annealed_evidence(fields, 1, t, 5) for t in (100, 400))
    assert abs((many - few).mean()) < 0.3


def test_the_base_is_the_prior_where_gibbs_runs_disagree():
    clear = random_draw(60, 300)
    fields = fields_of(clear, random_rows(clear, 50))
    warm = (choose_base(fields, 0) != fields.log_odds).any(axis=1)
    assert warm.mean() > 0.9
    crowded = random_draw(60, 12, noise=0.05)
    fields = fields_of(crowded, random_rows(crowded, 50))
    warm = (choose_base(fields, 0) != fields.log_odds).any(axis=1)
    assert warm.mean() < 0.1


def test_features_that_are_nearly_the_same_are_exchanged():
    rng = np.random.default_rng(0)
    base = random_draw(4, 30, noise=0.05)
    draw = base._replace(
        vectors=np.repeat(base.vectors, 3, axis=0) + 0.3 * rng.normal(size=(12, 30)),
        weights=np.full(12, 0.15),
    )
    fields = fields_of(draw, random_rows(draw, 100))
    exact, _ = enumerate_rows(fields)
    alone = fields._replace(partners=fields.partners[:, :0])
    together, single = (
        np.mean([np.abs(walk(f, s, 100).log_weights - exact) for s in range(5)])
        for f in (fields, alone)
    )
    assert together < 0.7 * single
