r"""Learning the hyperparameters, each from its conditional distribution.

Mass :math:`\alpha`, noise precision and the rate of lengths (or the precision of Gaussian entries)
have Gamma distributions and are drawn exactly; the concentration :math:`\kappa` moves by slice
sampling under a uniform distribution of the expected cosine :math:`A_D(\kappa)`, which has the same
meaning in every dimension; discount and strength of the power-law process move by slice sampling
with the weights summed out, under a uniform distribution of the discount and Gamma(1, 1) for the
strength.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from wideangle.infer.slice import slice_sampler
from wideangle.latent_features.state import Design, Features, FeatureStats, residual_energy
from wideangle.priors import stick_breaking
from wideangle.priors.mutual_angular import pulls, sums_before
from wideangle.sphere.vmf import log_mean_exp, mean_resultant_slope
from wideangle.types import Key, Scalar

MAX_DISCOUNT = 0.5
"""With a discount of 1/2 or more the slice sampler would need infinitely many features."""


def redraw_hyper(key: Key, features: Features, stats: FeatureStats, design: Design) -> Features:
    """Redraw what is learned, given features and assignments without an inactive tail."""
    key_gamma, key_slice = jax.random.split(key)
    features = _draw_gammas(key_gamma, features, stats, design)
    for turn, (name, update) in enumerate(_SLICED.items()):
        if name in design.learned:
            features = update(jax.random.fold_in(key_slice, turn), features, stats)
    return features


def _draw_gammas(key: Key, features: Features, stats: FeatureStats, design: Design) -> Features:
    """Mass, noise precision and rate: independent given the rest, so drawn at once."""
    learned = [name for name in _GAMMAS if name in design.learned]
    if not learned:
        return features
    gammas = [_GAMMAS[name](features, stats, design) for name in learned]
    shapes, rates = (jnp.stack(part) for part in zip(*gammas, strict=True))
    drawn = stick_breaking.draw_gamma(key, shapes.astype(features.weights.dtype)) / rates
    found = dict(zip(learned, drawn.astype(features.weights.dtype), strict=True))
    hyper = features.hyper
    if "noise" in found:
        hyper = hyper._replace(noise_variance=1 / found["noise"])
    if "rate" in found:
        hyper = hyper._replace(rate=found["rate"])
    if "mass" in found:
        hyper = hyper._replace(buffet=hyper.buffet._replace(mass=found["mass"]))
    return features._replace(hyper=hyper)


def _noise(features: Features, stats: FeatureStats, design: Design) -> tuple[Scalar, Scalar]:
    energy = residual_energy(features.components.vectors, stats)
    return design.noise.shape + 0.5 * stats.count, design.noise.rate + 0.5 * energy


def _rate(features: Features, _: FeatureStats, design: Design) -> tuple[Scalar, Scalar]:
    lengths = features.components.magnitudes
    if design.features == "gaussian":  # entries are N(0, 1/rate)
        dim = features.components.directions.shape[1]
        shape, rate = 0.5 * dim * features.n_live, 0.5 * jnp.sum(lengths**2)
    else:
        shape, rate = design.magnitude_shape * features.n_live, jnp.sum(lengths)
    return design.rate.shape + shape, design.rate.rate + rate


def _mass(features: Features, stats: FeatureStats, design: Design) -> tuple[Scalar, Scalar]:
    buffet, n_rows = features.hyper.buffet, features.assignments.shape[0]
    if design.ordered:
        last = features.weights[jnp.maximum(features.n_live - 1, 0)]
        # log1p(-1) is -inf, which is correct, but its product with 0 is NaN.
        last = jnp.where(features.n_live > 0, last, 1 - jnp.finfo(last.dtype).epsneg)
        n_sticks, rate = features.n_live, stick_breaking.mass_rate(last, n_rows)
    else:
        n_sticks = jnp.sum(stats.counts > 0)
        rate = stick_breaking.expected_features(
            buffet._replace(mass=jnp.ones_like(buffet.mass)), n_rows
        )
    return design.mass.shape + n_sticks, design.mass.rate + rate


def _concentration(key: Key, features: Features, _: FeatureStats) -> Features:
    directions = features.components.directions
    dim = directions.shape[1]
    live = features.live
    pull = jnp.sum(pulls(*sums_before(directions @ directions.T, live), live))
    n_pulled = jnp.maximum(features.n_live - 1, 0)

    def density(log_kappa: Scalar) -> Scalar:
        kappa = jnp.exp(log_kappa)
        chain = kappa * pull - n_pulled * log_mean_exp(kappa, dim)
        # Uniform in the cosine A(kappa): its derivative, and that of the logarithm.
        return chain + jnp.log(mean_resultant_slope(kappa, dim)) + log_kappa

    moved = _slice(key, jnp.log(features.hyper.concentration), density)
    return _with(features, concentration=jnp.exp(moved))


def _discount(key: Key, features: Features, stats: FeatureStats) -> Features:
    buffet, n_rows = features.hyper.buffet, features.assignments.shape[0]

    def density(value: Scalar) -> Scalar:
        inside = (value > 0) & (value < MAX_DISCOUNT) & (buffet.strength + value > 0)
        safe = buffet._replace(discount=jnp.where(inside, value, 0.25))
        return jnp.where(inside, stick_breaking.log_marginal(safe, stats.counts, n_rows), -jnp.inf)

    moved = _slice(key, buffet.discount, density, width=0.25)
    return _with(features, buffet=buffet._replace(discount=moved))


def _strength(key: Key, features: Features, stats: FeatureStats) -> Features:
    buffet, n_rows = features.hyper.buffet, features.assignments.shape[0]

    def density(log_value: Scalar) -> Scalar:
        value = jnp.exp(log_value)
        marginal = stick_breaking.log_marginal(
            buffet._replace(strength=value), stats.counts, n_rows
        )
        return marginal - value + log_value

    moved = _slice(key, jnp.log(buffet.strength), density)
    return _with(features, buffet=buffet._replace(strength=jnp.exp(moved)))


def _slice(key: Key, start: Scalar, density, width: float = 1.0) -> Scalar:
    kernel = slice_sampler(width=width)
    state, _ = kernel.step(key, kernel.init(start, density), density)
    return state.position


def _with(features: Features, **changes: object) -> Features:
    return features._replace(hyper=features.hyper._replace(**changes))


_GAMMAS = {"noise": _noise, "rate": _rate, "mass": _mass}
_SLICED = {"concentration": _concentration, "discount": _discount, "strength": _strength}
