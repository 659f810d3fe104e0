r"""Centres and concentrations of the clusters, given the sums of a pass over the rows.

Rows of cluster k have the distribution vMF(:math:`\mu_k, \kappa_k`). The centres come from the
mutual-angular chain (:mod:`wideangle.priors.mutual_angular`), and each concentration from

.. math:: p(\kappa) \propto e^{a(\rho_0\kappa - G_p(\kappa))},

as if ``a`` rows with a cosine of :math:`\rho_0` to the centre had been seen. It is proper and
log-concave, has the same meaning in every dimension, and keeps a cluster of a single row from
becoming infinitely tight. With :math:`s = a\rho_0 + E\mu\cdot R` and :math:`c = a + n` the density
of a concentration given the rest is :math:`e^{s\kappa - cG(\kappa)}`, with mode :math:`A_p(\kappa)
= s/c`.

A maximisation keeps point estimates of both. Variational inference keeps a von Mises-Fisher factor
of each centre, and the optimal factor of each concentration, by quadrature. All arrays have K rows
and are computed on the host in double precision, without compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from wideangle.sphere.vmf import inverse_on_host, values_on_host
from wideangle.spherical_mixture.rows import Statistics

TURNS = 2
"""Alternating updates of centres and concentrations after each pass."""
HALVINGS = 30
NEWTON = 12
POINTS = 384
"""Points of the quadrature over the log concentration: evenly spaced, since the trapezoidal rule is
exact to rounding for smooth densities that vanish at both ends."""
_BELOW, _ABOVE = 60.0, 12.0
"""Its ends, in standard deviations. Towards zero the density falls only like the concentration."""
VANISHING = 1e-6
"""A shorter resultant of unit vectors is rounding error, and has no direction."""


class CentrePrior(NamedTuple):
    """How centres repel each other, and how tight clusters are."""

    strength: float
    """Concentration of the mutual-angular chain."""
    cosine: float
    """Expected cosine of a row to its centre, the letter rho above."""
    rows: float
    """Number of rows that it counts as, the letter a above."""
    kind: str = "I"


class Centres(NamedTuple):
    """Estimates or factors of centres and concentrations."""

    natural: np.ndarray
    """Points: unit vectors. Factors: natural parameters of their von Mises-Fisher distributions."""
    means: np.ndarray
    """Expected centres, (K, p)."""
    concentrations: np.ndarray
    """Expected concentrations, (K,)."""
    log_means: np.ndarray
    r"""Expected log normalisers :math:`E\,G_p(\kappa_k)`, (K,)."""
    gain: float
    """Part of the bound: log prior of points, or expected log prior minus expected log factor."""

    @property
    def directions(self) -> np.ndarray:
        """Mean directions."""
        return unit(self.natural)

    def ordered(self, order: np.ndarray) -> Centres:
        """Clusters in another order; the part of the bound is not updated."""
        natural, means, kappas, log_means = (leaf[order] for leaf in self[:-1])
        return Centres(natural, means, kappas, log_means, self.gain)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors divided by their lengths; zero stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def begin_centres(
    directions: np.ndarray, prior: CentrePrior, counts: np.ndarray, *, factors: bool
) -> Centres:
    """Given directions, and the concentration that the prior expects."""
    n, dim = directions.shape
    kappas = np.full(n, float(inverse_on_host(prior.cosine, dim)))
    natural = directions * (kappas * (counts + 1.0))[:, None] if factors else directions
    return Centres(natural, directions, kappas, values_on_host(kappas, dim).log_mean, -np.inf)


def _climb(
    objective: Callable[[np.ndarray], float],
    start: np.ndarray,
    step: np.ndarray,
    place: Callable[[np.ndarray], np.ndarray] = lambda point: point,
) -> np.ndarray:
    """The first after a whole step, half of it, ... that is no worse than the start."""
    level = objective(start)
    for turn in range(HALVINGS):
        tried = place(start + 0.5**turn * step)
        if objective(tried) >= level:
            return tried
    return start


# ---------------------------------------------------------------- points


def update_points(found: Statistics, before: Centres, prior: CentrePrior) -> Centres:
    """A step in the centres and concentrations that raises the bound."""
    directions, kappas = before.natural, before.concentrations
    dim = directions.shape[1]
    for _ in range(TURNS):
        pull = kappas[:, None] * found.resultants

        def objective(tried: np.ndarray, pull: np.ndarray = pull) -> float:
            return float(np.sum(pull * tried)) + chain(tried, prior)[0]

        slope = pull + chain(directions, prior)[1]
        goal = np.where(np.any(slope != 0, axis=1, keepdims=True), unit(slope), directions)
        directions = _climb(objective, directions, goal - directions, unit)
        along = np.sum(found.resultants * directions, axis=1)
        level = (prior.rows * prior.cosine + along) / (prior.rows + found.counts)
        kappas = inverse_on_host(np.maximum(level, 0.0), dim)
    log_means = values_on_host(kappas, dim).log_mean
    gain = chain(directions, prior)[0] + np.sum(log_prior(kappas, log_means, prior, dim))
    return Centres(directions, directions, kappas, log_means, float(gain))


def log_prior(
    kappas: np.ndarray, log_means: np.ndarray, prior: CentrePrior, dim: int
) -> np.ndarray:
    """Log density of concentrations, or its expectation."""
    terms = prior.rows * (prior.cosine * kappas - log_means)
    return terms - log_constant(prior.cosine, prior.rows, dim)


def chain(means: np.ndarray, prior: CentrePrior) -> tuple[float, np.ndarray]:
    r"""Log density of the chain of centres relative to uniform ones, and its gradient.

    Type II takes expected centres of any length up to one, with
    :math:`|M_{k-1}|^2 + \sum_{j<k}(1 - |m_j|^2)` for the square of a resultant, and gives the bound
    of :func:`wideangle.priors.expected.expected_log_directions`; for unit vectors it is the
    density itself.
    """
    strength, dim = prior.strength, means.shape[1]
    if strength == 0 or len(means) == 1:
        return 0.0, np.zeros_like(means)
    before = np.cumsum(means, axis=0)[:-1]  # for all but the first
    later = means[1:]
    if prior.kind == "I":
        length = np.linalg.norm(before, axis=1)
        known = (length > VANISHING)[:, None]
        length = np.where(known[:, 0], length, 1.0)[:, None]
        axis = np.where(known, before / length, 0.0)
        cosine = np.sum(axis * later, axis=1, keepdims=True)
        turned = np.where(known, (later - cosine * axis) / length, 0.0)
        slope = -strength * (np.concatenate([np.zeros_like(axis[:1]), axis]) + _sums_after(turned))
        constant = np.sum(known) * float(values_on_host(strength, dim).log_mean)
        return float(-strength * cosine.sum()) - constant, slope
    scatter = 1.0 - np.sum(means**2, axis=1)
    square = np.maximum(np.sum(before**2, axis=1) + np.cumsum(scatter)[:-1], 0.0)
    root = np.sqrt(square)
    value = values_on_host(strength * root, dim)
    # A / root tends to strength / p where a resultant vanishes.
    ratio = np.where(root > VANISHING, value.ratio / np.maximum(root, VANISHING), strength / dim)
    pushes = strength * ratio[:, None]
    slope = -strength * (means.sum(axis=0) - means)
    slope -= _sums_after(pushes * before) - means * _sums_after(pushes)
    return float(-strength * np.sum(before * later) - value.log_mean.sum()), slope


def _sums_after(rows: np.ndarray) -> np.ndarray:
    """For each position, the sum over the later steps of the chain."""
    sums = np.cumsum(rows[::-1], axis=0)[::-1]
    return np.concatenate([sums, np.zeros_like(sums[:1])])


# ---------------------------------------------------------------- factors


def update_factors(found: Statistics, before: Centres, prior: CentrePrior) -> Centres:
    """The same for distributions of them."""
    natural, kappas = before.natural, before.concentrations
    dim = natural.shape[1]
    means = _means(natural)
    for _ in range(TURNS):
        pull = kappas[:, None] * found.resultants

        def objective(tried: np.ndarray, pull: np.ndarray = pull) -> float:
            means = _means(tried)
            return float(np.sum(pull * means)) + chain(means, prior)[0] + _entropy(tried)

        natural = _climb(objective, natural, pull + chain(means, prior)[1] - natural)
        means = _means(natural)
        slopes = prior.rows * prior.cosine + np.sum(found.resultants * means, axis=1)
        totals = prior.rows + found.counts
        kappas, log_means, constants = concentration_factors(slopes, totals, dim)
        log_factors = slopes * kappas - totals * log_means - constants
        log_ratio = log_prior(kappas, log_means, prior, dim) - log_factors
    gain = chain(means, prior)[0] + _entropy(natural)
    gain += np.sum(log_ratio)
    return Centres(natural, means, kappas, log_means, float(gain))


def _means(natural: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(natural, axis=1)
    return values_on_host(lengths, natural.shape[1]).ratio[:, None] * unit(natural)


def _entropy(natural: np.ndarray) -> float:
    """Entropy of the factors relative to uniform ones."""
    lengths = np.linalg.norm(natural, axis=1)
    value = values_on_host(lengths, natural.shape[1])
    return float(np.sum(value.log_mean - lengths * value.ratio))


def concentration_factors(
    slope: np.ndarray | float, weight: np.ndarray | float, dim: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Mean, mean of G, and log integral of densities :math:`e^{s\kappa - cG(\kappa)}`."""
    slope, weight = np.asarray(slope, float), np.asarray(weight, float)
    mode, spread = _mode(slope, weight, dim)
    logs = mode[..., None] + spread[..., None] * np.linspace(-_BELOW, _ABOVE, POINTS)
    kappas = np.exp(logs)
    normalisers = values_on_host(kappas, dim).log_mean
    terms = slope[..., None] * kappas - weight[..., None] * normalisers + logs
    top = terms.max(axis=-1, keepdims=True)
    parts = np.exp(terms - top)
    total = parts.sum(axis=-1, keepdims=True)
    shares = parts / total
    step = (_BELOW + _ABOVE) / (POINTS - 1) * spread
    constant = (np.log(total) + top)[..., 0] + np.log(step)
    return np.sum(shares * kappas, -1), np.sum(shares * normalisers, -1), constant


@cache
def log_constant(cosine: float, rows: float, dim: int) -> float:
    """Log of the integral of the prior of a concentration."""
    return float(concentration_factors(rows * cosine, rows, dim)[2])


def _mode(slope: np.ndarray, weight: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Mode and standard deviation of the logarithm of a concentration."""
    cosine = slope / weight
    # The density of the log concentration has a mode even if that of the concentration has none
    # above 0.
    start = np.where(cosine > 0, inverse_on_host(np.maximum(cosine, 0.0), dim), 0.0)
    logs = np.log(np.maximum(start, 1.0 / (1.0 + np.abs(slope))))
    for _ in range(NEWTON):
        kappa = np.exp(logs)
        value = values_on_host(kappa, dim)
        rise = kappa * (slope - weight * value.ratio)
        bend = np.minimum(rise, 0.0) - weight * kappa**2 * value.slope - 1e-12
        logs = logs + np.clip(-(rise + 1.0) / bend, -1.0, 1.0)
    kappa = np.exp(logs)
    curvature = 1.0 + weight * kappa**2 * values_on_host(kappa, dim).slope
    return logs, 1.0 / np.sqrt(curvature)


def prior_quantiles(prior: CentrePrior, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of concentrations and their distribution function under the prior."""
    mode, spread = _mode(np.array(prior.rows * prior.cosine), np.array(prior.rows), dim)
    logs = mode + spread * np.linspace(-_BELOW, _ABOVE, 16 * POINTS)
    kappas = np.exp(logs)
    terms = prior.rows * (prior.cosine * kappas - values_on_host(kappas, dim).log_mean) + logs
    parts = np.exp(terms - terms.max())
    total = np.cumsum(0.5 * (parts[1:] + parts[:-1]))
    return logs, np.append(0.0, total / total[-1])
