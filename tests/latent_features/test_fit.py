"""Fits that are stopped, killed and taken up again."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from latent_features.feature_fits import (
    GAPS,
    N_CHAINS,
    N_DRAWS,
    N_WARMUP,
    X,
    data,
    fit,
    fitted,
    quick,
    quiet,
)
from wideangle.infer.stopping import FIRST, Ending
from wideangle.latent_features import anneal as lfm_anneal
from wideangle.latent_features import fit as lfm_fit
from wideangle.latent_features.files import ChainCheckpoint
from wideangle.latent_features.memory import MemoryRows
from wideangle.latent_features.start import find_features
from wideangle.latent_features.state import N_PROBES, RoomError, room_for
from wideangle.storage import StorageError

PACE = 0.004
"""Seconds of a slow sweep."""


def assert_same_draws(left, right):
    for a, b in zip(
        jax.tree.leaves((left.posterior_.values, left.trace_.values)),
        jax.tree.leaves((right.posterior_.values, right.trace_.values)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(left.components_, right.components_)
    np.testing.assert_array_equal(left.start_objectives_, right.start_objectives_)


def after_saves(monkeypatch, action, at):
    """Do something once a chain has saved its state after sweep ``at``."""
    save = ChainCheckpoint.save_chain

    def noticed(self, chain, *, now=False):
        save(self, chain, now=now)
        if chain.n_done == at and not now:
            action(self)

    monkeypatch.setattr(ChainCheckpoint, "save_chain", noticed)


@pytest.mark.usefixtures("save_at_once")
@pytest.mark.parametrize("at", [3, 9], ids=["in warm-up", "in draws"])
@pytest.mark.parametrize("name", ["complete", "gaps"])
def test_what_is_on_disk_at_any_time_continues_to_the_same_bits(name, at, tmp_path, monkeypatch):
    rows, uninterrupted = {"complete": X, "gaps": GAPS}[name], fitted(name)
    folder, copy = tmp_path / "folder", tmp_path / "copy"

    def keep(file):
        if file.path.name == "chain-0":
            shutil.copytree(folder, copy)

    after_saves(monkeypatch, keep, at)
    whole = fit(rows, checkpoint=folder, n_jobs=1)
    assert not folder.exists()
    assert_same_draws(whole, uninterrupted)
    monkeypatch.undo()
    # With one worker the second chain has not begun; without its file all search again.
    files = sorted(path.name for path in copy.iterdir())
    assert files == ["chain-0", "chain-1"]
    if at == 3:
        shutil.rmtree(copy / files[1])
    searched = []
    find = lfm_fit.find_features
    monkeypatch.setattr(
        lfm_fit, "find_features", lambda *a, **k: searched.append(0) or find(*a, **k)
    )
    assert_same_draws(fit(rows, checkpoint=copy), whole)
    assert len(searched) == (lfm_fit.MOST_SEARCHES if at == 3 else 0)
    assert not copy.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("save_at_once")
def test_a_killed_process_is_taken_up_to_the_same_bits(tmp_path):
    folder = tmp_path / "folder"
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, str(tests / "latent_features" / "killed_fit.py"), str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(list(folder.glob("chain-*/state.safetensors"))) == N_CHAINS
    assert_same_draws(fit(GAPS, checkpoint=folder), fitted("gaps"))


def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.5)  # until the main thread has seen it


@pytest.mark.usefixtures("save_at_once")
def test_ctrl_c_keeps_the_draws_there_are(tmp_path, monkeypatch):
    whole = fitted()
    after_saves(monkeypatch, interrupt, N_WARMUP + 4)
    settings = {"n_jobs": 1, "checkpoint": tmp_path / "folder"}
    with pytest.warns(RuntimeWarning, match="interrupted"):
        model = fit(**settings)
    assert model.interrupted_
    # The first chain was stopped after four draws and the second had not begun.
    assert (model.trace_.n_chains, model.trace_.n_draws) == (1, 4)
    for name, values in model.trace_.values.items():
        np.testing.assert_array_equal(values, whole.trace_.values[name][:1, :4])
    assert "stopped early" in model.summary()
    assert model.transform(X).shape == (len(X), model.n_components_)
    monkeypatch.undo()
    assert_same_draws(fit(**settings), whole)


def test_ctrl_c_between_kept_states_keeps_the_last(tmp_path, monkeypatch):
    after_saves(monkeypatch, interrupt, N_WARMUP + 2)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        model = fit(
            inference__n_draws=1,
            inference__thin=10,
            inference__n_chains=1,
            checkpoint=tmp_path / "folder",
        )
    assert model.posterior_.n_draws == 1
    assert model.trace_.n_draws == 2


@pytest.mark.parametrize("phase", ["search", "warm-up"])
def test_ctrl_c_before_the_first_draw_ends_the_fit(phase, tmp_path, monkeypatch):
    if phase == "search":
        find = lfm_fit.find_features
        monkeypatch.setattr(lfm_fit, "find_features", lambda *a, **k: interrupt() or find(*a, **k))
    else:
        after_saves(monkeypatch, interrupt, 2)
    model = quick(checkpoint=tmp_path / "folder", n_jobs=1)
    with quiet(), pytest.raises(KeyboardInterrupt):
        model.fit(X)
    with pytest.raises(NotFittedError):
        model.transform(X)
    assert not hasattr(model, "posterior_")


def test_a_search_that_has_to_stop_makes_few_more_steps(monkeypatch):
    steps, births = [], lfm_anneal.births
    monkeypatch.setattr(lfm_anneal, "births", lambda *a, **k: steps.append(0) or births(*a, **k))
    options = {"max_features": 5, "hops": 1000, "stop": lambda: len(steps) >= 30}
    assert len(find_features(np.random.default_rng(0), MemoryRows(X), **options).features) > 0
    assert 30 <= len(steps) < 50
    with quiet():  # half of the time is over at once
        quick(inference__n_draws="auto", inference__max_time=1e-3, n_jobs=1).fit(X)
    n_searches = lfm_fit.n_searches(SimpleNamespace(n_rows=60, dim=6), N_CHAINS)
    assert len(steps) < 50 + 20 * n_searches


def test_chains_end_with_their_time(monkeypatch):
    """As many draws as fit, and at least those of one state to keep, after the warm-up."""

    def slow(self, *parts):
        time.sleep(PACE)
        return advance(self, *parts)

    advance = MemoryRows.advance
    fitted()  # compiles
    monkeypatch.setattr(MemoryRows, "advance", slow)
    monkeypatch.setattr(lfm_fit, "CLIMB", 4)
    with quiet():
        model = quick(inference__n_draws="auto", n_jobs=1)
        for seconds in (1e-3, 100 * PACE):
            model.set_params(inference__max_time=seconds).fit(X)
            assert model.notes_["ending"]["reason"] == "time"
            assert 1 <= model.trace_.n_draws <= max(10, seconds / PACE / N_CHAINS)


@pytest.mark.parametrize("function", ["find_features", "run_chain"])
def test_errors_of_workers_reach_the_caller(function, monkeypatch):
    def fail(*_, **__):
        raise RoomError("too many")

    monkeypatch.setattr(lfm_fit, function, fail)
    with pytest.raises(RoomError, match="too many"):
        fit()


def test_chains_that_have_hardly_begun_are_left_out():
    def chain(n):
        return SimpleNamespace(trace={"n_active": [1.0] * n} if n else {}, draws=["draw"] * n)

    chains = [chain(8), chain(0), chain(3), chain(4)]
    assert lfm_fit._worth_keeping(chains, [None] * 4) == [chains[0], chains[3]]
    with pytest.raises(KeyboardInterrupt, match="before the first draw"):
        lfm_fit._worth_keeping([chain(0)], [None])


@pytest.mark.usefixtures("save_at_once")
def test_a_folder_of_another_fit_is_refused_and_left_alone(tmp_path, monkeypatch):
    folder, copy = tmp_path / "folder", tmp_path / "copy"
    after_saves(monkeypatch, lambda file: shutil.copytree(folder, copy), 3)
    fit(checkpoint=folder, inference__n_chains=1)
    before = (copy / "chain-0" / "state.safetensors").read_bytes()
    for rows, settings in ((X + 1, {}), (X, {"process__alpha": 1.0}), (X, {"random_state": 1})):
        with pytest.raises(StorageError, match="other data, settings or seed"):
            fit(rows, checkpoint=copy, inference__n_chains=1, **settings)
    assert (copy / "chain-0" / "state.safetensors").read_bytes() == before


def test_a_folder_can_be_used_again(tmp_path):
    (tmp_path / "notes").write_text("mine")
    assert_same_draws(fit(checkpoint=tmp_path), fitted())
    assert_same_draws(fit(checkpoint=str(tmp_path)), fitted())
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_the_number_of_workers_changes_nothing():
    assert_same_draws(fit(n_jobs=1), fitted())


def test_arrays_have_an_end_and_say_so():
    assert room_for(0) < room_for(100) < room_for(3000)
    with pytest.raises(RoomError, match=r"more than 4096 features.*larger noise"):
        room_for(4096)


def test_a_bar_is_shown_when_asked_for(capfd):
    fit(verbose=True)
    assert "30/30" in capfd.readouterr().err


def test_chains_that_grow_in_blocks_are_those_of_their_final_length(monkeypatch):
    def in_two_blocks(extend, *, max_time, n_done, first):
        assert n_done == 0
        assert 0 < max_time < 300
        assert 0 < first <= FIRST
        assert {values.shape for values in extend(4).values()} == {(N_CHAINS, 4, N_PROBES)}
        extend(N_DRAWS)
        return Ending("converged", N_DRAWS, 1.0, 400.0)

    monkeypatch.setattr(lfm_fit, "until_converged", in_two_blocks)
    monkeypatch.setattr(lfm_fit._Work, "climb", lambda *_: np.zeros(1))
    grown = fit(inference__n_draws="auto")
    assert grown.notes_["ending"]["reason"] == "converged"
    assert_same_draws(grown, fitted())


@pytest.mark.slow
def test_programs_are_compiled_once(caplog):
    jax.clear_caches()  # an earlier test may have left them
    jax.config.update("jax_log_compiles", True)  # as a context it would not hold in other threads
    try:
        with caplog.at_level("WARNING"):
            fit(data(67), inference__n_draws=2, inference__n_warmup=1)
    finally:
        jax.config.update("jax_log_compiles", False)
    found = [r.getMessage() for r in caplog.records if "Finished XLA compilation" in r.getMessage()]
    for program in ("start", "births", "finish"):
        assert sum(f"jit({program})" in message for message in found) == 1, program


def test_a_warm_start_goes_on_with_the_same_chains():
    with quiet():
        model = quick(warm_start=True, inference__n_draws=6).fit(X)
        first = model.trace_.values["log_lik"]
        model.set_params(inference__n_draws=N_DRAWS).fit(X)
        assert_same_draws(model, fitted())
        np.testing.assert_array_equal(model.trace_.values["log_lik"][:, :6], first)
        model.fit(X[1:])  # other rows: from the beginning
    assert not np.array_equal(model.trace_.values["log_lik"][:, :6], first)


def test_a_warm_start_knows_how_long_its_chains_are(monkeypatch):
    given = []

    def once(extend, *, n_done, **_):
        given.append(n_done)
        extend(n_done + 4)
        return Ending("time", n_done + 4, 1.0, 400.0)

    monkeypatch.setattr(lfm_fit, "until_converged", once)
    with quiet():
        model = quick(warm_start=True, inference__n_draws="auto").fit(X)
        first = model.trace_.values["log_lik"]
        again = model.fit(X).trace_.values["log_lik"]
    assert given == [0, 4]
    np.testing.assert_array_equal(again[:, :4], first)
    assert again.shape == (N_CHAINS, 8)


def test_the_best_of_the_first_searches_are_carried_on(monkeypatch):
    calls = []
    find = lfm_fit.find_features

    def noticed(rng, rows, noise, start=None, **options):
        found = find(rng, rows, noise, start, **options)
        calls.append((start, options["hops"], found.objective))
        return found

    monkeypatch.setattr(lfm_fit, "find_features", noticed)
    model = fit(inference__hops=2)
    firsts = [objective for start, hops, objective in calls if start is None and hops == 0]
    carried = [start.objective for start, hops, _ in calls if start is not None and hops == 2]
    assert len(firsts) == lfm_fit.MOST_SEARCHES
    assert sorted(carried) == sorted(firsts)[-N_CHAINS:]
    assert len(model.start_objectives_) == N_CHAINS
    assert model.search_agreement_ in (0.5, 1.0)
    assert "searches that reached the best" in model.summary()


@pytest.mark.parametrize("slope", [0.0, -1.0, 1.0])
def test_chains_begin_when_their_log_density_no_longer_rises(slope):
    noise = np.random.default_rng(0).normal(size=200)
    values = slope * np.arange(200.0) + noise
    assert lfm_fit.rising(values, 40.0) == (slope > 0)
    assert not lfm_fit.rising(values, 60.0)  # less than what counts as the same
    assert not lfm_fit.rising(np.zeros(1), 0.0)


def test_a_chain_far_below_the_best_begins_where_that_one_is():
    rows = [SimpleNamespace(n_rows=100)] * 4
    chains = [SimpleNamespace(features=i) for i in range(4)]
    work = SimpleNamespace(rows=rows, chains=chains)
    reached = [np.array([-500.0, -499.0]), np.array([1.0, -1.0]), np.array([-5.0]), [-np.inf]]
    lfm_fit._Work.pool(work, [np.asarray(values) for values in reached])
    assert [chain.features for chain in chains] == [1, 1, 2, 3]
    lfm_fit._Work.pool(work, [np.array([-np.inf])] * 4)
    assert [chain.features for chain in chains] == [1, 1, 2, 3]
