"""What the priors must satisfy, as numbers; broken copies of their modules are put to them too."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ive

from statistical import z_score
from wideangle.priors import components as components_module
from wideangle.priors import mutual_angular as mutual_angular_module
from wideangle.priors.factors import VmfGammaFactors


def unit_rows(seed: int, *shape: int) -> np.ndarray:
    """Uniform directions."""
    rows = np.random.default_rng(seed).normal(size=shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def log_c(kappa: float, dim: int) -> float:
    """Log of the normalising constant of a vMF distribution, textbook form."""
    if kappa == 0:
        return float(np.log(ball_volume(dim) * dim) * -1)
    order = dim / 2 - 1
    return order * np.log(kappa) - dim / 2 * np.log(2 * np.pi) - np.log(ive(order, kappa)) - kappa


def ball_volume(dim: int) -> float:
    """V_p = 2 pi V_{p-2} / p."""
    return (1.0, 2.0)[dim] if dim < 2 else 2 * np.pi / dim * ball_volume(dim - 2)


def log_density_by_loop(rows: np.ndarray, kappa: float, kind: str, first: Any = None) -> float:
    """Eq. (3) (type I) and Eq. (5) (type II) with their double loops."""
    dim = rows.shape[-1]
    start = first is not None
    total = log_c(kappa if start else 0.0, dim) + (kappa * rows[0] @ first if start else 0.0)
    for i in range(1, len(rows)):
        parents = sum(rows[j] for j in range(i))
        if kind == "I":
            mean = -parents / np.linalg.norm(parents)
            total += log_c(kappa, dim) + kappa * mean @ rows[i]
        elif kind == "II":
            total += log_c(kappa * np.linalg.norm(parents), dim) - kappa * parents @ rows[i]
        else:
            total += log_c(kappa if start else 0.0, dim) + (kappa * first @ rows[i] if start else 0)
    return float(total)


def joint_mass(module: ModuleType = mutual_angular_module, **options: Any) -> np.ndarray:
    """Draws whose mean is the integral of the joint density over (S^2)^3."""
    rows = unit_rows(0, 60_000, 3, 3)
    prior = module.MutualAngular(3, 3, **{"concentration": 1.5, "kind": "II", **options})
    return (4 * np.pi) ** 3 * np.exp(np.asarray(jax.jit(prior.log_prob)(rows)))


def cosine_of_neighbours(module: ModuleType, kind: str) -> np.ndarray:
    """Draws of the cosine between the second component and the opposite of the first."""
    prior = module.MutualAngular(2, 5, 4.0, kind)
    rows = np.asarray(prior.sample(jax.random.key(0), (20_000,)))
    return -np.sum(rows[:, 0] * rows[:, 1], axis=-1)


def cartesian_mass(module: ModuleType = components_module) -> np.ndarray:
    """Draws whose mean is the integral of the density of one vector in R^3, by importance."""
    prior = module.PolarComponents(mutual_angular_module.MutualAngular(1, 3, 2.0), 2.0, 1.0)
    random = np.random.default_rng(0)
    # Uniform directions and Gamma(2.5) lengths, for which the weights are bounded.
    lengths = random.gamma(2.5, 1.25, size=60_000)
    log_length = 1.5 * np.log(lengths) - lengths / 1.25 - 2.5 * np.log(1.25) - np.log(1.32934038818)
    vectors = lengths[:, None] * unit_rows(1, 60_000, 3)
    log_proposal = log_length - np.log(4 * np.pi) - 2 * np.log(lengths)
    return np.exp(np.asarray(prior.log_prob(vectors[:, None, :])) - log_proposal)


def some_factors(n: int = 4, dim: int = 3, strength: float = 4.0, seed: int = 0) -> VmfGammaFactors:
    """Variational factors in general position."""
    random = np.random.default_rng(seed)
    return VmfGammaFactors(
        jnp.asarray(unit_rows(seed, n, dim)),
        jnp.asarray(strength * random.uniform(0.5, 2.0, n)),
        jnp.asarray(random.uniform(1.0, 5.0, n)),
        jnp.asarray(random.uniform(0.5, 2.0, n)),
    )


def square_resultant_z_score(expected: ModuleType, n: int = 40_000) -> float:
    """E|S|^2 of every prefix against draws."""
    factors = some_factors()
    rows = np.asarray(factors.sample(jax.random.key(0), (n,)).directions)
    before = np.cumsum(rows, axis=-2) - rows
    return z_score(np.sum(before**2, -1), expected.expected_square_resultants(factors))


def entropy_z_score(factors: Any, n: int = 40_000) -> float:
    """Entropy of the factors against minus the mean log density of draws."""
    draws = factors.sample(jax.random.key(1), (n,))
    return z_score(-np.asarray(factors.log_prob_polar(draws)), factors.entropy_to_uniform())


def length_z_score(factors: Any, n: int = 20_000) -> float:
    """First and second moment of the lengths against draws."""
    lengths = np.asarray(factors.sample(jax.random.key(2), (n,)).magnitudes)
    first, second = factors.expected_magnitudes, factors.expected_square_magnitudes
    return max(z_score(lengths, first), z_score(lengths**2, second))
