"""Every single write of a save or a checkpoint fails once: nothing there was before is lost."""

import itertools
import os
import warnings
from functools import cache
from unittest import mock

import numpy as np
import pytest

import fitted_runs
from latent_features.feature_fits import fit
from robustness import fuzz, killing
from robustness.full_disk import REASONS, failing
from wideangle.runs.folder import read_run, write_run
from wideangle.storage import StorageError, checkpoint

N_FAILURES = 48
"""Moments of a fit at which the disk fails."""


@cache
def some_models():
    """Two that differ."""
    models = [fuzz.small_model("experts", "map gaussian") for _ in range(2)]
    models[1].n_used_ = 7.0
    return models


def attempts(action, reason="full"):
    """Do it again and again, failing one operation later each time, until nothing fails."""
    for first in itertools.count(1):
        with failing(first, reason) as disk:
            try:
                action()
            except StorageError as error:
                yield str(error)
        if not disk.n_failed:
            return


@pytest.mark.parametrize("reason", REASONS)
def test_a_model_is_saved_whole_or_not_at_all(reason, tmp_path):
    path = tmp_path / "model"
    old, new = some_models()
    old.save(path)
    before = path.read_bytes()
    told = 0
    for message in attempts(lambda: new.save(path), reason):
        told += 1
        assert str(path) in message
        assert os.strerror(REASONS[reason]) in message
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["model"]
    assert told > 10  # each part of the file, the flush and the move
    assert type(new).load(path).n_used_ == new.n_used_ != old.n_used_


def test_a_run_is_written_whole_or_not_at_all(tmp_path):
    run = read_run(fitted_runs.experts())
    place = tmp_path / "run"
    write_run(run, place)
    before = {file.name: file.read_bytes() for file in place.iterdir()}
    told = 0
    for _ in attempts(lambda: write_run(run, place, force=True)):
        told += 1
        assert os.listdir(tmp_path) == ["run"]
        assert {file.name: file.read_bytes() for file in place.iterdir()} == before
    assert told > 20


def check_fits(fit_to, path, whole, numbers):
    """A fit whose disk fails says so at once, or goes on with a warning to the same draws."""
    ended = 0
    for first, heals_at in numbers:
        with (
            failing(first, "full", heals_at) as disk,
            warnings.catch_warnings(action="ignore"),
            # A warning that is caught is lost when another thread silences some at that moment.
            mock.patch.object(checkpoint, "warn") as told,
        ):
            try:
                model = fit_to(path)
            except StorageError as error:
                assert "No space left" in str(error)
                ended += 1
            else:
                assert not disk.n_failed or any(
                    "without a new checkpoint" in str(call.args[0])
                    or "cannot remove" in str(call.args[0])
                    for call in told.call_args_list
                )
                assert killing.digest(model) == whole
        # What the disk took before it failed is whole: the next fit takes it up, or begins anew.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert killing.digest(fit_to(path)) == whole
        assert not path.exists()
    return ended


@pytest.mark.slow
@pytest.mark.usefixtures("save_at_once")
def test_a_full_disk_does_not_end_a_feature_fit(tmp_path):
    def fit_to(path):
        return fit(checkpoint=path, n_jobs=1, inference__n_warmup=1, inference__n_draws=3)

    whole = killing.digest(fit_to(None))
    numbers = [(1, np.inf), (30, np.inf), (60, 100), (100, np.inf)]
    ended = check_fits(fit_to, tmp_path / "folder", whole, numbers)
    assert ended == 2  # the place is told to be bad at the first save, and only then


@pytest.mark.slow
@pytest.mark.usefixtures("compile_quickly")
@pytest.mark.filterwarnings("ignore")  # of short chains, outside of the checks
@pytest.mark.parametrize("name", ["mcmc", "features", "regressor"])
def test_any_write_of_a_checkpoint_may_fail(name, tmp_path, monkeypatch):
    monkeypatch.setattr(killing, "LONG", {"n_warmup": 2, "n_draws": 3})

    def fit_to(path):
        return killing.fit(name, 1, path, tmp_path)

    with failing(np.inf) as disk:
        whole = killing.digest(fit_to(tmp_path / "run"))
    # Moments all over the fit; the disk stays full, and recovers, in turn.
    firsts = np.unique(np.linspace(1, disk.n_asked, N_FAILURES, dtype=int)).tolist()
    numbers = [(n, n + 3 if place % 2 else np.inf) for place, n in enumerate(firsts)]
    ended = check_fits(fit_to, tmp_path / "run", whole, numbers)
    assert 0 < ended < len(numbers)
