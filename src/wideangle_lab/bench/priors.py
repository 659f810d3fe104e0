"""The mutual-angular density against one pass over the same numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.priors.mutual_angular import MutualAngular
from wideangle_lab.bench.harness import Settings, in_turns
from wideangle_lab.bench.record import OURS, Case

LEAST = 0.2
"""Target: at most five times the time of a cumulative sum."""

NOTE = "log_ratio_to_uniform and its gradient, against a cumulative sum over the same array."


def measure(settings: Settings) -> list[Case]:
    """Density and gradient at the size of a large feature model."""
    n_components, dim = (30, 500) if settings.quick else (300, 5000)
    prior = MutualAngular.from_cosine(n_components, dim, 0.3)
    directions = prior.sample(jax.random.key(settings.seed))
    host = np.asarray(directions)
    # The prior and the array are arguments: as constants they would be folded into the program.
    density = jax.jit(lambda prior, rows: prior.log_ratio_to_uniform(rows))
    gradient = jax.jit(jax.grad(lambda rows, prior: prior.log_ratio_to_uniform(rows)))
    running_sum = jax.jit(lambda rows: jnp.cumsum(rows, axis=0))
    rivals = {
        "np.cumsum": lambda _: np.cumsum(host, axis=0),
        "jnp.cumsum": lambda _: running_sum(directions),
    }
    targets = {} if settings.quick else dict.fromkeys(rivals, LEAST)
    size = f"K={n_components}, p={dim}, float32"
    cases = []
    for name, ours in (
        ("density", lambda _: density(prior, directions)),
        ("gradient", lambda _: gradient(directions, prior)),
    ):
        seconds = in_turns({OURS: ours, **rivals}, settings.repeats, calls=5)
        cases.append(
            Case(f"mutual-angular {name}, {size}", "s", seconds, targets=targets, note=NOTE)
        )
    return cases
