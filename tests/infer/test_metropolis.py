import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer.invariance import (
    FAIL,
    PASS,
    direction_with_magnitude,
    gamma_magnitudes,
    repelling_chain,
    von_mises_fisher,
    worst_z,
)
from marks import first_quick
from statistical import measured
from wideangle.infer import (
    each_row,
    metropolis,
    on_log_scale,
    positive_walk,
    vmf_walk,
)
from wideangle.infer.kernel import evaluate

module = importlib.import_module("wideangle.infer.metropolis")


def real_walk(scale):
    def propose(key, position):
        return position + scale * jax.random.normal(key, position.shape), jnp.zeros(())

    return propose


def jointly(**proposals):
    """Entries of a dict that move together."""

    def propose(key, position):
        keys = jax.random.split(key, len(proposals))
        moves = zip(keys, proposals.items(), strict=True)
        moved = {name: move(k, position[name]) for k, (name, move) in moves}
        return {n: new for n, (new, _) in moved.items()}, sum(log for _, log in moved.values())

    return propose


CASES = {
    "vmf p=3": (metropolis(vmf_walk(0.5)), von_mises_fisher(3, 5.0)),
    "vmf p=50": (metropolis(vmf_walk(0.3)), von_mises_fisher(50, 100.0)),
    "chain": (metropolis(vmf_walk(0.4)), repelling_chain()),
    "chain by row": (each_row(vmf_walk(0.8)), repelling_chain()),
    "positive": (metropolis(positive_walk(0.8)), gamma_magnitudes()),
    "positive by row": (each_row(positive_walk(1.0)), gamma_magnitudes()),
    "log scale": (on_log_scale(metropolis(real_walk(0.8))), gamma_magnitudes()),
    "together": (
        metropolis(jointly(direction=vmf_walk(0.6), log=real_walk(0.4))),
        direction_with_magnitude(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_target_is_left_alone(name):
    assert worst_z(*CASES[name]) < PASS


@pytest.mark.parametrize(
    "name",
    ["vmf p=3", pytest.param("vmf p=50", marks=pytest.mark.slow), "chain by row", "positive"],
)
@pytest.mark.parametrize("fault", first_quick(["sign of the ratio flipped", "always accepted"]))
def test_a_wrong_acceptance_is_found(monkeypatch, name, fault):
    right = module.accept
    wrong = {
        "sign of the ratio flipped": lambda key, ratio: right(key, -ratio),
        "always accepted": lambda key, ratio: (jnp.array(True), jnp.ones(())),
    }[fault]
    monkeypatch.setattr(module, "accept", wrong)
    assert measured("max |z|", worst_z(*CASES[name]), FAIL) > FAIL


@pytest.mark.parametrize(
    "name", ["positive", pytest.param("positive by row", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("fault", first_quick(["omitted", "inverted"]))
def test_a_wrong_truncation_correction_is_found(monkeypatch, name, fault):
    right = module._log_mass
    wrong = {"omitted": jnp.zeros_like, "inverted": lambda x: -right(x)}[fault]
    monkeypatch.setattr(module, "_log_mass", wrong)
    assert measured("max |z|", worst_z(*CASES[name]), FAIL) > FAIL


def test_a_row_accepted_on_another_rows_density_is_found(monkeypatch):
    # The density is that of the block before this sweep: rows that moved are forgotten.
    right = module._move

    def stale(key, state, proposal, logdensity, embed):
        new, probability = right(key, state, proposal, logdensity, embed)
        return new._replace(log_density=state.log_density), probability

    monkeypatch.setattr(module, "_move", stale)
    assert measured("max |z|", worst_z(*CASES["chain by row"]), FAIL) > FAIL


def test_each_row_reports_the_mean_acceptance_and_k_evaluations(key):
    target = repelling_chain()
    state = evaluate(target.draw(key), target.log_density)
    _, info = each_row(vmf_walk(0.1)).step(key, state, target.log_density)
    assert info.evaluations == 3
    assert 0.3 < info.acceptance <= 1.0


def test_each_row_takes_rows_of_several_arrays(key):
    position = {"direction": jnp.eye(4)[:3], "magnitude": jnp.ones(3)}
    kernel = each_row(jointly(direction=vmf_walk(0.2), magnitude=positive_walk(0.2)))

    def log_density(z):
        return jnp.sum(z["direction"][:, 0]) - jnp.sum(z["magnitude"])

    state, _ = kernel.step(key, kernel.init(position, log_density), log_density)
    assert jax.tree.map(jnp.shape, state.position) == jax.tree.map(jnp.shape, position)
    np.testing.assert_allclose(state.log_density, log_density(state.position))


def test_a_proposal_outside_the_support_is_rejected(key):
    kernel = metropolis(lambda key, position: (position - 10.0, jnp.zeros(())))
    target = gamma_magnitudes()
    state = kernel.init(jnp.ones(3), target.log_density)
    new, info = kernel.step(key, state, target.log_density)
    np.testing.assert_array_equal(new.position, 1.0)
    assert info.acceptance == 0.0
