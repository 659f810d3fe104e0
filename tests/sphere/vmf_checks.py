"""What a von Mises-Fisher module must satisfy, as numbers; broken modules are put to them too."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from statistical import ks_pvalue, z_score

KAPPAS = (0.0, 0.5, 10.0, 300.0, 1e6)


@cache
def angle_cdf(dim: int, kappa: float) -> Any:
    """Distribution of the angle to the mean, from its density sin^(p-2) exp(kappa cos)."""

    def log_density(angle):
        # cos - 1, so that a concentration of 1e6 leaves digits
        return (dim - 2) * np.log(np.sin(angle)) - 2 * kappa * np.sin(angle / 2) ** 2

    angle = np.concatenate([np.geomspace(1e-9, 0.1, 4000), np.linspace(0.1, np.pi, 4000)[1:-1]])
    for _ in range(2):  # the second time on the range that matters
        logs = log_density(angle)
        inside = angle[logs > logs.max() - 40]
        low = 0.0 if inside[0] < 1e-8 else inside[0]
        angle = np.linspace(low, min(inside[-1] * 1.0001, np.pi), 40001)[1:-1]
    density = np.exp(log_density(angle) - log_density(angle).max())
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return lambda x: np.interp(x, angle, mass / mass[-1])


def angle_pvalues(vmf: ModuleType, dim: int, dtype: Any, n: int = 20_000) -> list[float]:
    """KS p-value of the angle to the mean for every concentration."""
    kappas = jnp.asarray(KAPPAS, dtype)
    draw = jax.jit(vmf.sample_cosine, static_argnums=(2, 3))
    cosine, sine = draw(jax.random.key(dim), kappas, dim, (n, len(KAPPAS)))
    angles = np.arctan2(np.asarray(sine, float), np.asarray(cosine, float))
    return [ks_pvalue(a, angle_cdf(dim, k)) for a, k in zip(angles.T, KAPPAS, strict=True)]


def naturals(dim: int) -> np.ndarray:
    """A few parameters, from uniform to concentrated, in general position."""
    random = np.random.default_rng(dim)
    rows = random.normal(size=(4, dim))
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows * np.array([0.0, 1.0, dim, 30.0 * dim])[:, None]


def moment_z_scores(vmf: ModuleType, dim: int, dtype: Any, n: int = 20_000) -> tuple[float, float]:
    """Mean and second moments of draws against the module's own mean and covariance."""
    natural = jnp.asarray(naturals(dim), dtype)
    draws = np.asarray(vmf.sample(jax.random.key(1), natural, (n,)), float)
    moments = jax.jit(lambda eta: (vmf.mean(eta), vmf.covariance(eta)))(natural)
    mean, covariance = (np.asarray(m) for m in moments)
    centred = draws - mean
    outer = centred[..., :, None] * centred[..., None, :]
    return z_score(draws, mean), z_score(outer, covariance)


def mass(vmf: ModuleType, dim: int, n: int = 40_000) -> float:
    """Distance from one of the integral of the density over uniform points, in standard errors."""
    points = np.random.default_rng(0).normal(size=(n, 1, dim))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    natural = naturals(dim)[:3]
    # Independent of log_area: the volume of the ball by the recursion V_p = 2 pi V_{p-2} / p.
    volume = {0: 1.0, 1: 2.0}
    for p in range(2, dim + 1):
        volume[p] = 2 * np.pi / p * volume[p - 2]
    return z_score(dim * volume[dim] * np.exp(jax.jit(vmf.log_prob)(natural, points)), 1.0)


def entropy_z_score(vmf: ModuleType, dim: int, n: int = 20_000) -> float:
    """Entropy against minus the mean log density of draws."""
    natural = jnp.asarray(naturals(dim))
    draws = vmf.sample(jax.random.key(2), natural, (n,))
    exact = jax.jit(vmf.entropy, static_argnums=1)(np.linalg.norm(natural, axis=-1), dim)
    return z_score(-jax.jit(vmf.log_prob)(natural, draws), exact)


def divergence_z_score(vmf: ModuleType, dim: int, n: int = 20_000) -> float:
    """KL divergence against the mean log ratio of draws."""
    left = jnp.asarray(naturals(dim)[1:])
    right = left[::-1]
    draws = vmf.sample(jax.random.key(3), left, (n,))
    log_prob = jax.jit(vmf.log_prob)
    ratio = log_prob(left, draws) - log_prob(right, draws)
    return z_score(ratio, jax.jit(vmf.kl_divergence)(left, right))


def scatter_error(vmf: ModuleType, truth: Any) -> float:
    """Relative error of both weights of E[x x'] against alpha = A/kappa, beta = 1 - p alpha."""
    import mpmath as mp

    worst = 0.0
    kappas = [1e-3, 1.0, 50.0, 1e5]
    for dim in (2, 5000):
        ours = jax.jit(vmf.scatter_weights, static_argnums=1)(jnp.asarray(kappas), dim)
        with mp.workdps(60):
            for kappa, *pair in zip(kappas, *ours, strict=True):
                alpha = truth(dim, kappa) / mp.mpf(kappa)
                exact = (alpha, 1 - dim * alpha)
                errors = [abs(float(o) / e - 1) for o, e in zip(pair, exact, strict=True)]
                worst = max(worst, *(float(e) for e in errors))
    return worst
