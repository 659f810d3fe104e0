import re
from types import SimpleNamespace

import numpy as np
import pytest

from wideangle.convergence import (
    Chains,
    ConvergenceWarning,
    account,
    agreement,
    caution,
    in_python,
    share_divergent,
)
from wideangle.diagnostics import summarise
from wideangle.infer import Info
from wideangle.presentation.family import Presentation
from wideangle.presentation.records import sampling_options

WORDS = {"n_used": "experts in use", "probability": "probability at watched row"}
NEEDED = ("log_lik", "probability")


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def slow(n_chains=4, n_draws=400, correlation=0.98):
    """Chains of one distribution that take fifty draws to forget."""
    steps = noise(n_chains, n_draws + 500, seed=1)
    for t in range(1, steps.shape[1]):
        steps[:, t] += correlation * steps[:, t - 1]
    return steps[:, 500:]


def apart(n_chains=4, n_draws=400):
    """Chains in modes of their own, each well explored."""
    return noise(n_chains, n_draws) + 3.0 * np.arange(n_chains)[:, None]


def said(values, divergent=0.0, inference=None, **how):
    inference = inference or sampling(n_draws=None)
    chains = Chains(inference, **how)
    found = caution(values, summarise(values, NEEDED), divergent, chains)
    return None if found is None else str(found)


def sampling(**settings):
    """Settings of chains; those that are not given are the defaults."""
    usual = {"n_draws": None, "max_time": None, "thin": None, "combine": "equal"}
    return SimpleNamespace(**(usual | settings))


def trace(**values):
    return {"log_lik": noise(4, 400), "probability": noise(4, 400, 3, seed=2)} | values


def test_settled_predictions_need_no_warning():
    assert said(trace()) is None
    assert said(trace(), divergent=0.01) is None


@pytest.mark.parametrize(
    "numbers", [slow(), apart(), np.repeat([[1.0], [2.0], [1.0], [2.0]], 400, 1)]
)
def test_other_numbers_may_mix_slowly_or_not_at_all(numbers):
    values = trace(n_used=numbers)
    assert said(values) is None
    assert (
        "experts in use" in dict(account(summarise(values, NEEDED), WORDS))["chains, other numbers"]
    )


@pytest.mark.parametrize("name", NEEDED)
def test_slow_predictions_are_told_how_much_longer(name):
    numbers = slow() if name == "log_lik" else np.stack([noise(4, 400), slow()], -1)
    sentence = said(trace(**{name: numbers}))
    size = int(re.search(r"\(worth about (\d+), R-hat", sentence).group(1))
    n_draws, times = map(
        int, re.search(r"n_draws=(\d+)\) takes about (\d+) times", sentence).groups()
    )
    assert size < 100
    assert times == max(int(np.ceil(100 / size)), 2) or abs(times - 100 / size) < 2
    assert 400 * 100 / (size + 1) <= n_draws <= 1.2 * 400 * 100 / (size - 1)
    assert sentence.count(". ") == 0 and sentence.endswith(".")


def test_following_the_advice_on_slow_chains_ends_the_warning():
    n_draws = int(re.search(r"n_draws=(\d+)", said(trace(log_lik=slow()))).group(1))
    assert said(trace(log_lik=slow(n_draws=n_draws))) is None


def test_with_a_limit_on_time_the_advice_is_about_time():
    chosen, values = sampling(n_draws="auto", max_time=120.0), trace(log_lik=slow())
    sentence = said(values, 0.0, chosen)
    assert re.search(r"Sampling\(max_time=\d+\) lets them run about", sentence)
    assert said(values, 0.0, sampling(n_draws="auto"), max_time=120.0) == sentence
    full = said(values, 0.0, chosen, ending="memory")
    assert re.search(r"Sampling\(thin=\d+\) keeps fewer draws of chains about", full)


def test_draws_are_counted_as_they_are_asked_for():
    assert "n_draws=810" in said(trace(log_lik=slow()), 0.0, sampling(n_draws=50))


def test_chains_that_ended_in_modes_are_said_to_be_in_modes():
    sentence = said(trace(log_lik=slow()), 0.0, sampling(n_draws="auto"), ending="modes")
    assert "differ between chains" in sentence
    assert said(trace(), 0.0, sampling(n_draws="auto"), ending="modes") is None


@pytest.mark.parametrize("numbers", [apart(), np.repeat([[1.0], [2.0], [1.0], [2.0]], 400, axis=1)])
def test_chains_in_different_modes_are_not_told_to_run_longer(numbers):
    sentence = said(trace(log_lik=numbers))
    assert "differ between chains" in sentence
    assert "Sampling(combine='stacking') weights" in sentence
    assert "n_draws" not in sentence
    assert said(trace(log_lik=numbers), inference=sampling(combine="stacking")) is None


@pytest.mark.parametrize("n_draws", [6, 20])
def test_chains_too_short_to_know_their_mode_are_told_to_run_longer(n_draws):
    for numbers in (apart(n_draws=n_draws), np.repeat([[1.0], [2.0], [1.0], [2.0]], n_draws, 1)):
        sentence = said({"log_lik": numbers})
        assert "too few independent draws" in sentence and "n_draws=" in sentence


def test_chains_on_their_way_are_told_to_run_longer():
    drifting = noise(4, 400) + 6.0 * np.linspace(0, 1, 400) * np.arange(1, 5)[:, None]
    assert "too few independent draws" in said({"log_lik": drifting})


def test_divergences_count_from_one_in_a_hundred_draws():
    sentence = said(trace(), divergent=0.042)
    assert "in 4 % of the draws a trajectory diverged" in sentence
    assert "Sampling(kernel='metropolis')" in sentence


def test_chains_too_short_to_compare_say_so():
    values = {"log_lik": noise(4, 3)}
    assert said(values).startswith("Chains of 3 draws are too short to tell")


def test_what_is_the_same_everywhere_is_settled():
    assert said({"log_lik": noise(4, 400), "probability": np.ones((4, 400, 2))}) is None


def test_the_command_line_has_names_of_its_own():
    class Offered(Presentation):
        options = sampling_options(400, "400", 1, "120")

    found = ConvergenceWarning("It is slow", "{inference__n_draws=800} takes twice as long")
    assert str(found) == "It is slow: Sampling(n_draws=800) takes twice as long."
    assert found.said(Offered.option_named) == "It is slow: --draws 800 takes twice as long."
    unknown = ConvergenceWarning("It is slow", "{inference__kernel=metropolis} is another way")
    assert unknown.said(Offered.option_named) == "It is slow."
    assert in_python("inference__n_passes", "9") == "Variational(n_passes=9)"


def test_numbers_are_called_by_their_words():
    values = trace(n_used=np.repeat([[74.0], [76.0], [74.0], [75.0]], 400, 1), size=slow())
    rows = dict(account(summarise(values, NEEDED), WORDS))
    assert re.fullmatch(r"R-hat at most 1\.0\d, ESS at least \d+", rows["chains, predictions"])
    assert re.fullmatch(
        r"R-hat at most 1\.\d\d \(size\), ESS at least \d+; experts in use 74, 76, 74, 75",
        rows["chains, other numbers"],
    )
    unknown = "unknown: too few draws, or all alike"
    assert account(summarise({"x": np.ones((2, 9))}), {}) == [("chains, predictions", unknown)]


def test_agreement_is_that_of_the_chosen_numbers():
    table = summarise(trace(n_used=apart()), NEEDED)
    assert agreement(table).good and agreement(table).rhat < 1.02
    other = agreement(table, needed=False)
    assert not other.good and other.name == "n_used" and other.rhat > 1.5


def test_a_draw_counts_once_however_many_trajectories_diverge():
    marks = np.zeros((2, 50), int)
    marks[0, :5] = 3
    stats = {
        "gate": Info(np.ones((2, 50)), marks, marks),
        "experts": Info(np.ones((2, 50)), marks, marks),
    }
    assert share_divergent(stats) == 0.05
    assert share_divergent({}) == 0.0
