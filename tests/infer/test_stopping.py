"""When chains stop by themselves."""

from itertools import pairwise

import numpy as np
import pytest

from wideangle.infer import stopping
from wideangle.infer.stopping import until_all_converged, until_converged


def chains(rng, n_chains=4, correlation=0.0, shift=0.0):
    """Autoregressive chains that grow; ``shift`` moves the first away from the others."""
    drawn = np.zeros((n_chains, 0))

    def extend(n_draws):
        nonlocal drawn
        while drawn.shape[1] < n_draws:
            last = drawn[:, -1:] if drawn.shape[1] else np.zeros((n_chains, 1))
            noise = rng.normal(size=(n_chains, 1)) * np.sqrt(1.0 - correlation**2)
            drawn = np.concatenate([drawn, correlation * last + noise], axis=1)
        return {"x": drawn + shift * (np.arange(n_chains) == 0)[:, None]}

    return extend


def test_independent_draws_need_two_checks():
    ending = until_converged(chains(np.random.default_rng(0)), max_time=60.0)
    assert ending.reason == "converged"
    assert stopping.FIRST < ending.n_draws < 1.5 * stopping.FIRST
    assert ending.ess > stopping.ENOUGH and ending.rhat < stopping.AGREED


def test_slow_chains_run_longer_than_fast_ones():
    fast = until_converged(chains(np.random.default_rng(1), correlation=0.5), max_time=60.0)
    slow = until_converged(chains(np.random.default_rng(1), correlation=0.95), max_time=60.0)
    assert slow.reason == "converged"
    assert slow.n_draws > 3 * fast.n_draws


def test_chains_in_different_modes_are_recognised_and_stopped():
    ending = until_converged(chains(np.random.default_rng(2), shift=5.0), max_time=60.0)
    assert ending.reason == "modes"
    assert ending.n_draws >= 8 * stopping.FIRST


@pytest.mark.parametrize("seed", range(5))
def test_slow_mixing_is_not_taken_for_different_modes(seed):
    slow = chains(np.random.default_rng(seed), correlation=0.99)
    assert until_converged(slow, max_time=60.0, most=4000).reason in {"converged", "memory"}


def test_time_memory_and_the_user_end_a_run(monkeypatch):
    slow = {"correlation": 0.99}
    assert until_converged(chains(np.random.default_rng(4), **slow), max_time=0.0).reason == "time"
    ending = until_converged(chains(np.random.default_rng(4), **slow), max_time=60.0, most=250)
    assert (ending.reason, ending.n_draws) == ("memory", 250)
    assert until_converged(lambda n: None, max_time=60.0).reason == "interrupted"


def test_numbers_that_never_change_stop_nobody():
    ending = until_converged(lambda n: {"x": np.ones((4, n))}, max_time=60.0)
    assert ending.reason == "converged"


@pytest.mark.slow
def test_stopping_by_the_rule_does_not_bias_means():
    """The truth is 0: means of runs that the rule has ended spread around it as their ESS says."""
    scores = []
    for seed in range(200):
        found = {}
        extend = chains(np.random.default_rng(seed), correlation=0.7)

        def watch(n, extend=extend, found=found):
            found["x"] = extend(n)["x"]
            return found

        ending = until_converged(watch, max_time=60.0)
        scores.append(found["x"].mean() * np.sqrt(ending.ess))
    assert abs(np.mean(scores)) * np.sqrt(len(scores)) < 4.0
    assert 0.7 < np.std(scores) < 1.3


def test_numbers_that_hardly_ever_change_are_checked_without_a_warning():
    rng = np.random.default_rng(0)

    def extend(n_draws):
        rare = np.zeros((4, n_draws))
        rare[:, rng.integers(0, n_draws, 2)] = 1.0
        return {"x": rare}

    assert until_converged(extend, max_time=5.0, most=1000).reason in {"converged", "memory"}


def test_data_sets_that_have_ended_run_no_further():
    """The others go on, to their own end; all of them have the time of one for each."""
    every = [
        chains(np.random.default_rng(5)),
        chains(np.random.default_rng(6), correlation=0.9),
        chains(np.random.default_rng(7), shift=5.0),
    ]
    asked = []

    def extend(n_draws, which):
        asked.append(which)
        return [every[i](n_draws) for i in which]

    endings = until_all_converged(extend, 3, max_time=60.0)
    assert [one.reason for one in endings] == ["converged", "converged", "modes"]
    assert endings[0].n_draws < endings[1].n_draws
    assert asked[0] == [0, 1, 2] and asked[-1] in ([1], [2])
    assert all(set(later) <= set(former) for former, later in pairwise(asked))
    assert {one.reason for one in until_all_converged(extend, 3, max_time=0.0)} <= {"time", "modes"}
    stopped = until_all_converged(lambda n, which: None, 2, max_time=60.0)
    assert [one.reason for one in stopped] == ["interrupted"] * 2
