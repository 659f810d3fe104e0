"""One fit on many devices and processes is the fit of one."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from wideangle import sharding
from wideangle.infer.ascent import Minibatches
from wideangle.sharding import current_mesh, dividing, rows_over, spread, writes

pytestmark = pytest.mark.usefixtures("compile_quickly")  # in the processes of these tests, too
SCRIPT = Path(__file__).with_name("sharded_fit.py")


STARTED = []


@pytest.fixture(autouse=True)
def nothing_is_left():
    """A test that fails leaves no process behind that goes on computing."""
    yield
    while STARTED:
        with STARTED.pop() as process:
            process.kill()


def begin(**given):
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), json.dumps(given)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    STARTED.append(process)
    return process


def end(process):
    out, err = process.communicate()
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def company(n, **given):
    port = free_port()
    return [begin(processes=n, process=i, port=port, **given) for i in range(n)]


def test_rows_are_filled_up_and_put_on_the_devices_of_the_block():
    assert current_mesh() is None and writes()
    with rows_over(jax.devices()[:1]) as mesh:
        assert current_mesh() is mesh
        rows, weights = spread((np.ones((2, 5, 3)), np.ones((2, 5))), mesh, axis=1)
    assert current_mesh() is None
    assert rows.shape == (2, 5, 3) and rows.sharding.mesh == mesh
    np.testing.assert_array_equal(weights, np.ones((2, 5)))


def test_rows_of_features_are_cut_into_equal_parts():
    with rows_over() as mesh:
        assert dividing(mesh, 7 * mesh.size).size == mesh.size
        assert dividing(mesh, 1).size == 1


@pytest.mark.parametrize(("count", "devices", "n_rows"), [(2, 1, 9), (3, 2, 12), (2, 3, 4)])
def test_a_process_prepares_the_rows_of_its_own_devices(count, devices, n_rows, monkeypatch):
    each = -(-n_rows // (count * devices))  # rows of a device
    filled = []
    for process in range(count):
        share = sharding.Share(process, count, devices)
        monkeypatch.setattr(sharding, "_share_of", lambda _, share=share: share)
        own = np.arange(n_rows)[sharding.own_rows(n_rows, None)]
        assert set(own // each) <= {process * devices + i for i in range(devices)}
        filled.extend(own)
        batches = Minibatches(0, np.ones((n_rows, 2)), np.zeros(n_rows), np.ones(n_rows), n_rows)
        rows, targets, weights = batches.take(0)
        assert rows.shape == (1, n_rows, 2) and targets.shape == weights.shape == (1, n_rows)
        np.testing.assert_array_equal(rows[0, own], 1.0)
    assert filled == list(range(n_rows))


@pytest.mark.slow
def test_devices_exchange_one_array_a_step_and_never_rows():
    """Values and the gradients of all factors of both starts together."""
    ((shape, kind),) = end(begin(what="collectives", devices=2))["collectives"]
    assert kind == "all-reduce"
    assert re.fullmatch(r"f32\[\d+\]\S*", shape)


@pytest.mark.slow
def test_two_processes_draw_the_features_of_one():
    alone = end(begin(what="features-stream"))
    both = [end(process) for process in company(2, what="features-stream", patience=90)]
    assert len(alone["own"]) == 41
    assert [one["own"] for one in both] == [list(range(21)), list(range(21, 41))]
    for one in both:
        np.testing.assert_allclose(one["log_joint"], alone["log_joint"], rtol=1e-9)
        np.testing.assert_allclose(one["assignments"], alone["assignments"], atol=1e-6)


@pytest.mark.slow
def test_a_bad_row_of_features_ends_all_processes():
    for process in company(2, what="features-stream", patience=90, bad_row=333):
        _, err = process.communicate(timeout=110)
        assert process.returncode != 0
        assert "row 333 holds NaN" in err, err[-2000:]


@pytest.mark.slow
def test_likelihood_and_gradient_of_four_devices_are_those_of_one():
    one, four = (end(begin(what="log_lik", devices=n)) for n in (1, 4))
    assert four["devices"] == 4
    np.testing.assert_allclose(four["log_lik"], one["log_lik"], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["vi", "mcmc", "features"])
def test_four_devices_agree_with_one(what):
    one, four = (end(begin(what=what, devices=n)) for n in (1, 4))
    names = {"vi": ("proba", 1e-4), "mcmc": ("draws", 1e-7), "features": ("log_joint", 1e-4)}
    name, tolerance = names[what]
    np.testing.assert_allclose(four[name], one[name], atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["vi", "mcmc"])
def test_two_processes_agree_with_one(what):
    alone = end(begin(what=what))
    both = [end(process) for process in company(2, what=what)]
    name, tolerance = {"vi": ("proba", 1e-4), "mcmc": ("draws", 1e-7)}[what]
    assert [one["devices"] for one in both] == [2, 2]
    np.testing.assert_array_equal(both[0][name], both[1][name])
    np.testing.assert_allclose(both[0][name], alone[name], atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_when_a_process_dies_the_other_says_so_and_the_fit_can_be_taken_up(tmp_path, victim):
    settings = {"what": "vi", "n_passes": 1_000_000, "checkpoint": str(tmp_path / "saved")}
    processes = company(2, **settings)
    saved = tmp_path / "saved" / "state.safetensors"
    limit = time.monotonic() + 300
    while not saved.exists() and time.monotonic() < limit:
        assert all(process.poll() is None for process in processes)
        time.sleep(0.2)
    time.sleep(1.0)
    processes[victim].send_signal(signal.SIGKILL)
    processes[victim].communicate()
    other = processes[1 - victim]
    _, err = other.communicate(timeout=90)
    assert other.returncode != 0
    # Whichever comes first: the exchange fails, or JAX misses a sign of life and ends the process.
    assert "LostProcessError" in err or "coordination" in err.lower(), err
    again = end(begin(stop_after=3, **settings))
    assert again["steps"] > 0
    # Two calls more than what was saved; a fit from the beginning would have had two in all.
    fresh = end(begin(stop_after=3, **settings | {"checkpoint": None}))
    assert again["steps"] > fresh["steps"]


@pytest.mark.slow
def test_two_processes_share_the_reading_of_a_streamed_fit():
    alone = end(begin(what="stream"))
    both = [end(process) for process in company(2, what="stream", patience=90)]
    assert len(alone["own"]) == 80
    assert [set(one["own"]) for one in both] == [set(range(0, 80, 2)), set(range(1, 80, 2))]
    assert both[0]["classes"] == both[1]["classes"] == alone["classes"] == ["no", "yes"]
    for one in both:
        np.testing.assert_allclose(one["centre"], alone["centre"], atol=1e-6)
    np.testing.assert_array_equal(both[0]["proba"], both[1]["proba"])
    # Other minibatches, the same optimum.
    np.testing.assert_allclose(both[0]["proba"], alone["proba"], atol=0.05)


@pytest.mark.slow
def test_what_one_process_finds_wrong_all_of_them_say():
    for process in company(2, what="stream", patience=90, bad_row=1337):
        _, err = process.communicate(timeout=110)
        assert process.returncode != 0
        assert "nan in row 1337, column 1" in err, err[-2000:]
