"""Samplers of directions and lengths themselves: along great circles, and the paper's random walk.

Both take part in comparisons; the default is in ``whitened.py``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp

from wideangle.infer.geodesic_hmc import geodesic_hmc
from wideangle.infer.kernel import Update, sweep, within
from wideangle.infer.metropolis import each_row, positive_walk, vmf_walk
from wideangle.mixture_of_experts.coordinates import (
    Point,
    Problem,
    Sampler,
    Setting,
    as_weights,
    draw_of,
    flat_experts,
    weights_of,
)
from wideangle.mixture_of_experts.likelihood import Pair, Weights, log_lik
from wideangle.types import Array, Components, Scalar

GEODESIC_STEPS = 16
"""Gradients in a trajectory along great circles."""


class Polar(NamedTuple):
    """State of the samplers on spheres: log-lengths and directions."""

    gate: Array
    gate_log_length: Array
    experts: Array
    experts_log_length: Array


Walk: TypeAlias = Pair[Components]
"""State of the random walk."""


def _polar_weights(components: Pair[Components], problem: Problem) -> Weights:
    gate, experts = components
    return as_weights(gate.vectors, experts.vectors, problem.expert.n_outputs)


def _log_polar(components: Pair[Components], problem: Problem) -> Scalar:
    gate, experts = map(lambda prior, one: prior.log_prob_polar(one), problem.priors, components)
    weights = _polar_weights(components, problem)
    return gate + experts + log_lik(problem.expert, weights, problem.data)


def _components_of(x: Point, problem: Problem) -> Pair[Components]:
    weights = weights_of(problem.priors, x, problem.expert)
    vectors = weights.gate, flat_experts(weights.experts)
    return Pair(*map(Components.from_vectors, vectors))


def geodesic() -> Sampler:
    """Hamiltonian Monte Carlo along great circles for directions, with log-lengths."""
    names = Polar._fields
    on_sphere = {name: not name.endswith("length") for name in names}

    def parts(latents: Polar) -> Pair[Components]:
        gate = Components(latents.gate, jnp.exp(latents.gate_log_length))
        return Pair(gate, Components(latents.experts, jnp.exp(latents.experts_log_length)))

    def enter(x: Point, setting: Setting) -> Polar:
        gate, experts = _components_of(x, setting.problem)
        lengths = (jnp.log(gate.magnitudes), jnp.log(experts.magnitudes))
        return Polar(gate.directions, lengths[0], experts.directions, lengths[1])

    def recipe(steps: dict[str, Scalar], setting: Setting) -> Update:
        def density(latents: Polar) -> Scalar:
            jacobian = jnp.sum(latents.gate_log_length) + jnp.sum(latents.experts_log_length)
            return _log_polar(parts(latents), setting.problem) + jacobian

        kernel = geodesic_hmc(steps["weights"], GEODESIC_STEPS, sphere=on_sphere)
        return sweep(weights=within(kernel, names, density))

    def collect(latents: Polar, setting: Setting) -> dict[str, Any]:
        return draw_of(_polar_weights(parts(latents), setting.problem), setting.problem)

    return Sampler(enter, recipe, collect, {"weights": 0.02}, {"weights": 0.8})


def metropolis() -> Sampler:
    """The paper's walk: von Mises-Fisher steps, truncated normal steps for lengths.

    One component at a time, with the correction that the truncation needs.
    """
    walks = {
        "gate_directions": ("gate.directions", vmf_walk),
        "gate_lengths": ("gate.magnitudes", positive_walk),
        "experts_directions": ("experts.directions", vmf_walk),
        "experts_lengths": ("experts.magnitudes", positive_walk),
    }

    def enter(x: Point, setting: Setting) -> Walk:
        return _components_of(x, setting.problem)

    def recipe(steps: dict[str, Scalar], setting: Setting) -> Update:
        def density(latents: Walk) -> Scalar:
            return _log_polar(latents, setting.problem)

        moves = {
            name: within(each_row(walk(steps[name])), block, density)
            for name, (block, walk) in walks.items()
        }
        return sweep(**moves)

    def collect(latents: Walk, setting: Setting) -> dict[str, Any]:
        return draw_of(_polar_weights(latents, setting.problem), setting.problem)

    # 0.234 for many coordinates, 0.44 for one: the classical optima of random walks
    targets = {name: 0.234 if "directions" in name else 0.44 for name in walks}
    return Sampler(enter, recipe, collect, dict.fromkeys(walks, 0.1), targets)
