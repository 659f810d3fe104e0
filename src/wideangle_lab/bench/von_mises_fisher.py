"""The von Mises-Fisher distribution, compared with SciPy's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.sphere import vmf
from wideangle_lab.bench.harness import Settings, in_turns
from wideangle_lab.bench.record import OURS, Case, Series

DIMS = (2, 3, 10, 50, 123, 500, 1000, 5000, 100_000)
CHANCE = "4 standard errors"
CONCENTRATIONS = tuple(10.0**k for k in range(-2, 7))


def measure(settings: Settings) -> list[Case]:
    """Draws and their quality, finite densities, time of a density."""
    return [draws(settings), mean_cosine(settings), finite_densities(), density_time(settings)]


def draws(settings: Settings) -> Case:
    """10,000 draws at p = 1000; the lower bound is the time of as many normal numbers."""
    from scipy.stats import vonmises_fisher

    n, dim = (500, 100) if settings.quick else (10_000, 1000)
    mean = np.zeros(dim)
    mean[0] = 1.0
    theirs = vonmises_fisher(mean, dim / 2)
    ours = jax.jit(lambda key, natural: vmf.sample(key, natural, (n,)))
    normal = jax.jit(lambda key: jax.random.normal(key, (n, dim)))
    natural = jnp.asarray(dim / 2 * mean)

    def double(repeat: int) -> Any:
        # SciPy works in double precision; JAX in single precision by default.
        with jax.enable_x64(True):
            return ours(_key(settings, repeat), jnp.asarray(dim / 2 * mean))

    seconds = in_turns(
        {
            OURS: lambda repeat: ours(_key(settings, repeat), natural),
            "wideangle, float64": double,
            "SciPy (float64)": lambda repeat: theirs.rvs(n, random_state=settings.seed + repeat),
            "floor: jax.random.normal": lambda repeat: normal(_key(settings, repeat)),
        },
        settings.repeats,
    )
    return Case(
        f"{n:,} vMF draws, p={dim}, kappa={dim // 2}",
        "s",
        seconds,
        targets={} if settings.quick else {"SciPy (float64)": 15.0},
        note="wideangle and the floor in float32, JAX's default.",
    )


def mean_cosine(settings: Settings) -> Case:
    """The mean cosine of the draws against its expectation."""
    from scipy.special import ive

    n, dim = (500, 100) if settings.quick else (10_000, 1000)
    natural = jnp.zeros(dim).at[0].set(dim / 2)
    order = dim / 2 - 1
    expected = float(ive(order + 1, dim / 2) / ive(order, dim / 2))
    errors = []
    for repeat in range(settings.repeats):
        draws = vmf.sample(_key(settings, repeat), natural, (n,))
        cosines = np.asarray(draws[:, 0], np.float64)
        errors.append(float(abs(np.mean(cosines) - expected) * np.sqrt(n) / np.std(cosines)))
    return Case(
        f"mean cosine of {n:,} vMF draws, p={dim}",
        "standard errors",
        {OURS: Series(tuple(errors)), CHANCE: Series((4.0,) * settings.repeats)},
        targets={CHANCE: 1.0},
        note="Mean cosine: its distance from the expected one, by SciPy's Bessel functions.",
    )


def finite_densities() -> Case:
    """How many log densities of a grid are finite."""
    from scipy.stats import vonmises_fisher

    grid = [(dim, kappa) for dim in DIMS for kappa in CONCENTRATIONS]
    counts = {OURS: 0, "SciPy (float64)": 0}
    for dim, kappa in grid:
        point = np.zeros(dim)
        point[0] = 1.0
        with np.errstate(all="ignore"):
            theirs = vonmises_fisher(point, kappa).logpdf(point)
        ours = vmf.log_prob(jnp.asarray(kappa * point), jnp.asarray(point))
        counts[OURS] += bool(np.isfinite(ours))
        counts["SciPy (float64)"] += bool(np.isfinite(theirs))
    return Case(
        f"finite vMF log densities of {len(grid)}",
        "count",
        {name: Series((float(count),)) for name, count in counts.items()},
        higher_is_better=True,
        note=f"Grid: p from {DIMS[0]} to {DIMS[-1]:,}, kappa from {CONCENTRATIONS[0]:g} to "
        f"{CONCENTRATIONS[-1]:g}, at the mean direction. Deterministic.",
    )


def density_time(settings: Settings) -> Case:
    """Log densities of many points at once, for parameters where SciPy's is finite."""
    from scipy.stats import vonmises_fisher

    n, dim, kappa = (2000, 50, 100.0) if settings.quick else (20_000, 50, 100.0)
    mean = np.zeros(dim)
    mean[0] = 1.0
    points = np.asarray(vmf.sample(_key(settings, 0), jnp.asarray(kappa * mean), (n,)))
    doubles = points.astype(np.float64)
    doubles /= np.linalg.norm(doubles, axis=1, keepdims=True)  # SciPy checks to double precision
    theirs = vonmises_fisher(mean, kappa)
    ours = jax.jit(vmf.log_prob)
    natural, values = jnp.asarray(kappa * mean), jnp.asarray(points)
    seconds = in_turns(
        {
            OURS: lambda _: ours(natural, values),
            "SciPy (float64)": lambda _: theirs.logpdf(doubles),
        },
        settings.repeats,
        calls=20,
    )
    return Case(f"vMF log density, {n:,} points, p={dim}", "s", seconds)


def _key(settings: Settings, repeat: int) -> jax.Array:
    return jax.random.fold_in(jax.random.key(settings.seed), repeat)
