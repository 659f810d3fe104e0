"""What the page says: sentences that follow from numbers."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from wideangle.frames.encoding import Category, Encoding, Number
from wideangle.mixture_of_experts.likelihood import Weights
from wideangle.mixture_of_experts.presentation import strongest
from wideangle.posterior import Draws
from wideangle.presentation.family import MOST_ROWS, share_interval
from wideangle.report import page, parts


def changed(run, **metrics):
    return replace(run, metrics=run.metrics | metrics)


def with_weights(run, gate, experts):
    model = copy.copy(run.model)
    found = Weights(np.array(gate, float), np.array(experts, float)[:, None])
    draws = Weights(*(np.tile(part, (1, 20, *[1] * part.ndim)) for part in found))
    model._representative, model.posterior_ = found, Draws({"weights": draws})
    return replace(run, model=model)


@pytest.mark.parametrize(
    ("share", "words"),
    [(1.0, "in nearly every row"), (0.51, "in 5 of 10 rows"), (0.125, "in 1 of 8 rows"),
     (0.38, "in 4 of 10 rows"), (0.0004, "in almost no row"), (0.001, "in 1 of 1,000 rows")],
)  # fmt: skip
def test_rarity_in_words(share, words):
    assert parts.rarity(share) == words


def test_an_expert_is_described_by_its_gate_and_its_weights(expert_run):
    # Against the mean gate: expert 1 is used where age is high, and predicts yes where income
    # is low; the intercept is never a reason.
    gate = [[3, 5, 9], [0, 5, 0], [-3, 5, -9]]
    run = with_weights(expert_run, gate, [[0, -2, 7], [1, 0, 0], [0, 1, 0]])
    first = run.presentation.purpose(run, 0)
    assert first[0] == "Used where age is high."
    assert first[1] == "Predicts yes where income is low."
    assert run.presentation.purpose(run, 2)[0] == "Used where age is low."


def test_words_are_there_or_not_and_numbers_high_or_low():
    names = ["age", "colour = red", "(intercept)"]
    words = strongest(np.array([1.0, -2.0, 9.0]), names, frozenset(names[1:2]))
    assert words == "colour is not red and age is high"
    frame = Encoding((Number("age", flagged=True), Category("colour", ("red", "blue"))))
    assert frame.indicators == {"age = (missing)", "colour = red", "colour = blue"}


def test_accuracy_is_that_of_the_rows_an_expert_leads(expert_run):
    values = expert_run.sample.values
    owner = np.argmax(values["activations"], axis=1)
    right = np.argmax(values["proba"], axis=1) == expert_run.sample.y
    (column,) = expert_run.presentation.component_columns(expert_run)
    for k, part in enumerate(parts.parts_of(expert_run)):
        led = owner == k
        assert column.notes[k].startswith(f"of {led.sum()} rows; " if led.any() else "")
        if led.any():
            low, high = share_interval(right[led].sum(), led.sum())
            assert column.notes[k].endswith(f"; {100 * low:.0f} to {100 * high:.0f} %")
            assert np.isclose(column.values[k], right[led].mean())
        assert np.isclose(part.share, values["activations"][:, k].mean())


def test_the_nearest_component_is_the_one_at_the_smallest_angle(feature_run):
    rows = feature_run.model.components_
    cosine = rows @ rows.T / np.outer(*[np.linalg.norm(rows, axis=1)] * 2)
    np.fill_diagonal(cosine, -2)
    for part in parts.parts_of(feature_run):
        k = part.number - 1
        assert part.nearest == np.argmax(cosine[k]) + 1
        assert np.isclose(part.nearest_angle, np.degrees(np.arccos(cosine[k].max())), atol=0.1)


def test_a_feature_is_described_by_what_it_raises(feature_run):
    vector = feature_run.model.components_[0]
    words = feature_run.presentation.purpose(feature_run, 0)[0]
    assert words.startswith(f"Raises {feature_run.columns[np.argmax(vector)]}, ")
    assert np.allclose(parts.parts_of(feature_run)[0].image, vector.reshape(6, 6))


def test_weights_are_the_strongest_of_each_class(wine_run):
    part = parts.parts_of(wine_run)[1]
    titles = [panel["title"] for panel in part.weights]
    assert titles == ["predict barolo", "predict grignolino", "predict barbera", "choose it"]
    assert "low" not in part.weights[0]  # a maximum has no intervals
    weights = wine_run.model.experts_[1, 2]
    order = sorted(range(14), key=lambda i: -abs(weights[i]))
    assert np.allclose(part.weights[2]["values"], weights[order])
    assert part.weights[2]["names"][0] == [*wine_run.columns, "(intercept)"][order[0]]


def test_intervals_of_weights_do_not_depend_on_how_experts_are_numbered(expert_run):
    model, rng = copy.copy(expert_run.model), np.random.default_rng(0)
    goal = Weights(np.diag([4.0, 5, 6]), np.diag([-4.0, 5, 6])[:, None])
    order = np.array([rng.permutation(3) for _ in range(50)])
    noise = 0.1 * rng.normal(size=(2, 50, 3, 3))
    gate, experts = (np.stack([part[one] for one in order]) for part in goal)
    draws = Weights((gate + noise[0])[None], (experts + noise[1][:, :, None])[None])
    model.posterior_, model._representative = Draws({"weights": draws}), goal
    run = replace(expert_run, model=model)
    panel = parts.parts_of(run)[1].weights[0]
    # The median of the draws: one of them, which ``experts_`` is, may lie outside the interval.
    assert panel["values"][0] == pytest.approx(5.0, abs=0.05) and panel["values"][0] != 5.0
    assert np.allclose([panel["low"][0], panel["high"][0]], [4.84, 5.16], atol=0.1)
    assert panel["low"][1] < 0 < panel["high"][1]


def test_only_columns_with_a_clear_effect_are_named(expert_run):
    model, rng = copy.copy(expert_run.model), np.random.default_rng(0)
    goal = Weights(5.0 * np.eye(3), np.array([[4.0, 3, 0], [0, 4, 3], [3, 0, 4]])[:, None])
    noise = rng.normal(size=(2, 50, 3, 3)) * [0.1, 4.0, 0.1]  # the second column is not known
    draws = Weights((goal.gate + noise[0])[None], (goal.experts + noise[1][:, :, None])[None])
    model.posterior_, model._representative = Draws({"weights": draws}), goal
    run = replace(expert_run, model=model)
    first, second = run.columns[:2]
    words = " ".join(run.presentation.purpose(run, 0))
    assert f"{first} is high" in words and f"{second} is" not in words
    unknown = Weights(noise[0][None], noise[1][:, :, None][None])
    model.posterior_ = Draws({"weights": unknown})
    assert "No column has a clear effect" in " ".join(run.presentation.purpose(run, 0))


def test_experts_that_are_alike_are_described_once(expert_run):
    values = expert_run.sample.values | {"activations": np.full((120, 3), 1 / 3)}
    run = replace(expert_run, sample=replace(expert_run.sample, values=values))
    same = with_weights(run, np.zeros((3, 3)), [[1, 0, 0], [1, 0.1, 0], [-1, 0, 0]])
    first, second, third = (part.purpose for part in parts.parts_of(same))
    assert first == ["Predicts yes where age is high."] and second == ["Like expert 1."]
    assert third == ["Predicts yes where age is low."]
    other = with_weights(run, np.zeros((3, 3)), [[1, 0, 0], [1, 0, 9], [-1, 0, 0]])
    assert parts.parts_of(other)[1].purpose == first  # alike in words alone


def test_an_image_needs_a_shape_that_fits(feature_run):
    for given, expected in (([6, 6], (6, 6)), ([4, 9], (4, 9)), ([5, 6], None), ("6x6", None)):
        settings = feature_run.settings | {"image_shape": given}
        assert parts.image_shape(replace(feature_run, settings=settings)) == expected


def test_every_caution_has_its_cause(expert_run, wine_run, feature_run):
    calm = changed(expert_run, rhat=1.0, calibration_error=0.01, log_loss=0.1)
    spread = with_weights(calm, np.eye(3), np.eye(3))
    gate = np.full_like(spread.sample.values["activations"], 1 / 3)
    values = spread.sample.values | {"activations": gate}
    calm = replace(spread, sample=replace(spread.sample, values=values))
    assert page.cautions(calm) == []

    def said(run):
        return " ".join(page.cautions(run))

    assert said(changed(calm, warnings=["R-hat is high."])) == "R-hat is high."
    assert "no better than the frequencies" in said(changed(calm, log_loss=0.7))
    missed = {"calibration_error": 0.2, "calibration_error_by_chance": 0.15}
    assert "miss the observed frequencies by 0.20" in said(changed(calm, **missed))
    assert said(changed(calm, **missed | {"calibration_error_by_chance": 0.25})) == ""
    assert "No rows were held out" in said(wine_run)
    assert "most probable ones alone" in said(wine_run)
    alike = with_weights(calm, np.eye(3), [[1, 0, 0], [1, 0.1, 0], [0, 0, 1]])
    assert said(alike) == ""  # nothing to be wary of
    assert "Experts 1 and 2 (6°) point in nearly the same direction" in page.render(alike)
    assert "one expert may be enough" not in page.render(alike)
    same = with_weights(calm, np.eye(3), [[1, 0, 0], [1, 0.1, 0], [1, 0, 0.1]])
    assert page.cautions(same) == []
    assert "(6° apart on average): one expert may be enough" in page.render(same)
    gate = np.tile([0.6, 0.4, 0.0], (120, 1))
    values = calm.sample.values | {"activations": gate}
    idle = replace(calm, sample=replace(calm.sample, values=values))
    assert said(idle) == ""
    assert "too few to say" in idle.presentation.purpose(idle, 2)[0]
    assert len(idle.presentation.purpose(idle, 2)) == 1
    worse = changed(feature_run, hidden_error=2.0, hidden_error_of_mean=1.0)
    assert "no better than by column means" in said(worse)
    model = copy.copy(feature_run.model)
    model.presence_ = np.where(np.arange(model.n_components_) == 1, 0.6, 1.0)
    assert "more than a tenth of the draws: feature 2." in said(replace(feature_run, model=model))
    assert "than columns" not in said(feature_run)
    model.n_features_in_ = 1
    assert "more features" in said(replace(feature_run, model=model))


def test_cards_are_the_metrics(expert_run, feature_run):
    cards = {card.title: card for card in page.cards(expert_run)}
    m = expert_run.metrics
    assert cards["Log-loss"].value == f"{m['log_loss']:.3f} ± {m['log_loss_error']:.3f}"
    low, high = m["accuracy_interval"]
    assert cards["Accuracy"].value == f"{m['accuracy']:.3f}"
    assert cards["Accuracy"].note.startswith(f"95 % interval {low:.3f} to {high:.3f};")
    angle = np.degrees(expert_run.model.diversity_.mean_angle)
    assert cards["Mean angle"].value == f"{angle:.0f}°"
    assert cards["R-hat of predictions"].value == f"{m['rhat']:.2f}"
    agree = "chains agree" if m["rhat"] <= 1.05 else "should be below 1.05"
    assert cards["R-hat of predictions"].note == agree
    cards = {card.title: card for card in page.cards(feature_run)}
    assert cards["Features"].value == str(feature_run.model.n_components_)


def columns_of(run):
    return {column.title: column.values for column in parts.doubtful_rows(run)}


def test_most_uncertain_rows_come_first_with_their_own_values(expert_run):
    found = columns_of(expert_run)
    sample = expert_run.sample
    order = np.argsort(-sample.values["total"])[:MOST_ROWS]
    assert found["row"] == sample.rows[order].tolist()
    assert np.allclose(found["uncertainty"], sample.values["total"][order])
    assert list(found)[:4] == ["row", "true class", "predicted", "probability"]
    assert set(list(found)[-2:]) == {"age", "income"}
    assert np.allclose(found["income"], sample.X[order, 1])


def test_least_explained_rows_come_first(feature_run):
    found, sample = columns_of(feature_run), feature_run.sample
    order = np.argsort(sample.values["log_density"])[:MOST_ROWS]
    assert found["row"] == sample.rows[order].tolist()
    gap = sample.X[order[0]] - sample.values["reconstruction"][order[0]]
    assert np.isclose(found["left unexplained"][0], np.sqrt(np.mean(gap**2)))


def test_diagnostics_are_judged_by_their_limits(expert_run, wine_run):
    rows = parts.diagnostics(expert_run)
    table = expert_run.model.diagnostics_
    assert len(rows) == len(table)
    for i, row in enumerate(rows):
        if row["verdict"] == "good":
            assert table["rhat"][i] <= 1.05 and table["ess_bulk"][i] >= 100
        elif row["verdict"] in ("doubtful", "slow"):
            assert table["rhat"][i] > 1.05 or table["ess_bulk"][i] < 100
            assert (row["verdict"] == "doubtful") == (row["needed"] == "yes")
    assert {row["verdict"] for row in rows} & {"doubtful", "slow"}
    assert rows[list(table.names).index("probability[3]")]["name"] == "probability at watched row 4"
    assert parts.diagnostics(wine_run) == []


def test_numbers_that_chains_never_change_are_listed_by_chain(expert_run):
    model = copy.copy(expert_run.model)
    counts = np.repeat([[4.0], [5.0]], model.trace_.n_draws, axis=1)
    model.trace_ = replace(model.trace_, values=model.trace_.values | {"n_used": counts})
    model.diagnostics_ = model.trace_.summary()
    changed_run = replace(expert_run, model=model)
    (row,) = [row for row in parts.diagnostics(changed_run) if row["name"] == "experts in use"]
    assert (row["by_chain"], row["rhat"], row["verdict"]) == ("4, 5", None, "stuck")
    text = page.render(changed_run)
    assert "experts in use 4, 5" in text and ">4, 5</td>" in text
