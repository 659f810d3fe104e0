"""Moves of one row's assignments: the target is left alone, the bookkeeping is right."""

import numpy as np
import pytest
from scipy.special import logit, softmax

from latent_features.feature_problems import broken, fields_of, log_joint, random_draw, random_rows
from statistical import FOUR, z_score
from wideangle.latent_features import importance as row_moves
from wideangle.latent_features.fields import partners_of
from wideangle.latent_features.importance import power_at, prior_spread

POWER = 0.7
REPEATS = 15_000


def row_problem():
    """One row with correlated features: field, coupling, log odds, partners; all states, log p."""
    draw = random_draw(4, 5, noise=2.0)._replace(weights=np.array([0.4, 0.6, 0.5, 0.5]))
    draw.vectors[1] = draw.vectors[0] + 0.3 * draw.vectors[1]
    draw.vectors[3] = -draw.vectors[2] + 0.3 * draw.vectors[3]
    rows = random_rows(draw, 1)
    fields = fields_of(draw, rows)
    joint, states = log_joint(draw, rows)
    prior = states @ fields.log_odds
    likelihood = joint[0] - prior
    arguments = fields.fields[0], fields.couplings[0], fields.log_odds
    return arguments, fields.partners[:, :2].copy(), states, prior + POWER * likelihood, likelihood


def run(module, name):
    """Exact states in, one move, states out; also the local fields and gains."""
    (field, coupling, log_odds), partners, states, target, likelihood = row_problem()
    rng = np.random.default_rng(0)
    starts = rng.choice(len(states), REPEATS, p=softmax(target))
    ends, errors = np.empty(REPEATS, int), np.zeros(REPEATS)
    chosen = partners[np.arange(4), rng.integers(2, size=(REPEATS, 4))]
    gumbel, logistic = rng.gumbel(size=(REPEATS, 4, 4)), rng.logistic(size=(REPEATS, 4))
    for i, start in enumerate(starts):
        z = states[start].astype(np.uint8)
        local = field - coupling @ z
        numbers = (gumbel[i], chosen[i]) if name == "pair_sweep" else (logistic[i], np.zeros(4))
        gain = getattr(module, name)(z, local, coupling, log_odds, POWER, *numbers)
        ends[i] = z @ (1 << np.arange(4))
        errors[i] = max(
            abs(gain - likelihood[ends[i]] + likelihood[start]),
            np.abs(local - field + coupling @ z).max(),
        )
    return starts, ends, errors.max()


def change(module, name):
    """Standard errors by which a move changes the frequencies of features and of states."""
    starts, ends, _ = run(module, name)
    watched = np.hstack([np.eye(16), row_problem()[2]])
    before, after = watched[starts], watched[ends]
    return z_score(after - before, 0.0)


@pytest.mark.parametrize("name", ["sweep", "pair_sweep"])
def test_the_target_is_left_alone(name):
    starts, ends, error = run(row_moves, name)
    assert error < 1e-10
    assert np.mean(starts != ends) > 0.2
    assert change(row_moves, name) < FOUR


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("sweep", "(total > logistic[k])", "(total > 1.3 * logistic[k])"),
        ("sweep", "total = log_odds[k] + power * local[k]", "total = log_odds[k] + local[k]"),
        ("pair_sweep", "- power * shared + gumbel[j, 3]", "+ gumbel[j, 3]"),
        ("pair_sweep", "power * (local[j] + z[k] * shared)", "power * local[j]"),
        ("pair_sweep", "power * (local[k] + z[j] * shared)", "power * local[k]"),
        ("pair_sweep", "second + gumbel[j, 2]", "second + gumbel[j, 1]"),
        ("pair_sweep", "max(none, second)", "none"),
        # A choice of partners that looks at z.
        ("pair_sweep", "k = partner[j]", "k = (j + 1 + z[0]) % 4"),
    ],
)
def test_broken_moves_are_noticed(name, old, new):
    assert change(broken(row_moves, old, new), name) > FOUR


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("local[j] -= sign * coupling[k, j]", "local[j] -= coupling[k, j]"),
        ("return sign * local[k]", "return local[k]"),
    ],
)
def test_broken_bookkeeping_is_noticed(old, new):
    assert run(broken(row_moves, old, new), "sweep")[2] > 1e-3


def test_partners_are_the_features_on_the_same_line():
    features = np.eye(8) * 2.0
    features[1] = -3.0 * features[0] + 0.1 * features[5]
    features[7] = 0.0
    partners = partners_of(features @ features.T)
    assert partners.shape == (8, 6)
    assert partners[0, 0] == 1 and partners[1, 0] == 0
    assert all(k not in partners[k] for k in range(8))
    assert partners_of(np.ones((1, 1))).shape == (1, 0)
    assert partners_of(np.ones((0, 0))).shape == (0, 0)


def test_prior_spread_is_the_standard_deviation_over_the_prior():
    draw = random_draw(6, 5)
    rows = random_rows(draw, 3)
    fields = fields_of(draw, rows)
    joint, states = log_joint(draw, rows)
    log_prior = states @ fields.log_odds + fields.log_all_off
    likelihood, weights = joint - log_prior, np.exp(log_prior)
    mean = likelihood @ weights
    spread = np.sqrt((likelihood - mean[:, None]) ** 2 @ weights)
    found = [prior_spread(f, fields.couplings[0], logit(draw.weights)) for f in fields.fields]
    np.testing.assert_allclose(found, spread, rtol=1e-9)


def test_powers_run_from_0_to_1_with_growing_steps():
    powers = np.array([power_at(t, 50, 300.0) for t in range(51)])
    assert powers[0] == 0.0
    assert powers[-1] == pytest.approx(1.0, rel=1e-12)
    assert (np.diff(powers, 2) > 0).all()
    assert powers[1] == pytest.approx(np.log(301.0) / 50 / 300, rel=0.1)
