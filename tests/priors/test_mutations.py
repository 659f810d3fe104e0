"""Deliberate faults: the check that guards each must notice, and pass without it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mutants import mutant
from priors import prior_checks as checks
from priors.test_dpp import mean_determinant
from sphere import bessel_reference, vmf_checks
from sphere.test_bessel import error_of_gradient_in_float32
from statistical import FOUR, RARE, measured, relative_error, z_score
from wideangle.priors import components, dpp, expected, factors, mutual_angular
from wideangle.sphere import geometry, vmf


class Fault(NamedTuple):
    """A module, what is replaced by what, and a number that must be small without the fault."""

    module: Any
    right: str
    wrong: str
    check: Callable[[Any], float]
    limit: float = FOUR


def rarity(pvalues):
    """How many times rarer than allowed the rarest p-value is."""
    return RARE / max(min(pvalues), 1e-300)


def loop_error(module):
    rows = checks.unit_rows(0, 5, 4)
    prior = module.MutualAngular(5, 4, 3.0, "II")
    return relative_error(prior.log_prob(rows), checks.log_density_by_loop(rows, 3.0, "II"))


def repulsion(module):
    exact = vmf.mean_resultant(4.0, 5)
    return z_score(checks.cosine_of_neighbours(module, "I"), exact)


def off_sphere(module):
    draws = module.sample(jax.random.key(0), jnp.ones(2, jnp.float32), (200_000,))
    return np.abs(np.linalg.norm(np.asarray(draws, float), axis=-1) - 1).max()


def off_tangent(module):
    point, velocity = jnp.array([1.0, 0, 0]), jnp.array([0.0, 1.2, 0])
    moved, carried = module.geodesic(point, velocity)
    return abs(float(jnp.vdot(moved, carried)))


def printed_factors(module):
    own = checks.some_factors()
    return checks.entropy_z_score(module.VmfGammaFactors(*own))


def lengths(module):
    return checks.length_z_score(module.VmfGammaFactors(*checks.some_factors()))


def textbook(kappa, dim):
    """G from the leading form of log I: in its gradient two terms of size p / kappa cancel."""
    order = 0.5 * dim - 1.0
    z = kappa / order
    root = jnp.sqrt(1.0 + z * z)
    log_bessel = order * (root + jnp.log(z / (1.0 + root))) - 0.5 * jnp.log(root)
    return log_bessel - order * jnp.log(kappa / 2)


FAULTS = {
    "area one dimension up": Fault(
        vmf, "log_area(natural.shape[-1])", "log_area(natural.shape[-1] + 1)",
        lambda m: vmf_checks.mass(m, 5)),
    "power in the acceptance": Fault(
        vmf, "+ n * jnp.log1p(ratio)", "+ (n - 1.0) * jnp.log1p(ratio)",
        lambda m: rarity(vmf_checks.angle_pvalues(m, 5, jnp.float64)), 1.0),
    "uniform instead of symmetric beta": Fault(
        vmf, "coordinate = jnp.sqrt(radius_square) * turn", "coordinate = 2.0 * v - 1.0",
        lambda m: rarity(vmf_checks.angle_pvalues(m, 5, jnp.float64)), 1.0),
    "entropy without the normaliser": Fault(
        vmf, "return log_mean_exp(concentration, dim) - concentration * ratio",
        "return -concentration * ratio", lambda m: vmf_checks.entropy_z_score(m, 4)),
    "weight of the scatter along the mean": Fault(
        vmf, "along = ratio * mean_resultant(concentration, dim + 2)", "along = ratio * ratio",
        lambda m: vmf_checks.scatter_error(m, bessel_reference.mean_resultant), 1e-12),
    "divergence without one normaliser": Fault(
        vmf, " + log_mean_exp(safe_norm(other), dim)", "",
        lambda m: vmf_checks.divergence_z_score(m, 4)),
    "projected once": Fault(
        vmf, "tangent(mean, tangent(mean, gaussian))", "tangent(mean, gaussian)",
        off_sphere, 1e-5),
    "velocity turned at the new point": Fault(
        geometry, "velocity * cosine - point * (speed * sine)",
        "velocity * cosine - moved * (speed * sine)", off_tangent, 1e-12),
    "sign of the repulsion in draws": Fault(
        mutual_angular, "jnp.where(is_first, start, -kappa * towards)",
        "jnp.where(is_first, start, kappa * towards)", repulsion),
    "sign of the repulsion in the density": Fault(
        mutual_angular, "pull = -kappa * cross\n", "pull = kappa * cross\n", loop_error, 1e-12),
    "no normaliser in the chain": Fault(
        mutual_angular, "terms = pull - log_mean_exp(strength, self.dim)", "terms = pull",
        lambda m: z_score(checks.joint_mass(m), 1.0)),
    "normaliser at kappa instead of kappa |S|": Fault(
        mutual_angular,
        "kappa * jnp.where(known, jnp.sqrt(jnp.where(known, square, 1.0)), 0.0)",
        "kappa * jnp.where(known, 1.0, 0.0)", lambda m: z_score(checks.joint_mass(m), 1.0)),
    "no Jacobian": Fault(
        components, "(self.dim - 1) * jnp.log(components.magnitudes) + log_area(self.dim)\n"
        "        return self.log_prob_polar", "log_area(self.dim) + 0.0 * components.magnitudes\n"
        "        return self.log_prob_polar", lambda m: z_score(checks.cartesian_mass(m), 1.0)),
    "spread dropped from E|S|^2": Fault(
        expected, " + jnp.cumsum(scatter, axis=-1) - scatter", "",
        checks.square_resultant_z_score),
    "second moment of a length": Fault(
        factors, "self.shapes * (self.shapes + 1.0) / self.rates**2",
        "self.shapes**2 / self.rates**2", lengths),
    "entropy of a length": Fault(
        factors, "+ (1.0 - self.shapes) * digamma(self.shapes)", "", printed_factors),
    "ordered instead of unordered eigenvalues": Fault(
        dpp, " + gammaln(n_components + 1)\n", "\n", lambda m: z_score(mean_determinant(m), 1.0)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_fault_is_noticed(fault):
    found = fault.check(mutant(fault.module, fault.right, fault.wrong))
    assert measured("error", found, fault.limit) > fault.limit


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_check_passes_without_the_fault(fault):
    assert fault.check(fault.module) <= fault.limit


def test_autodiff_of_the_textbook_formula_is_useless_in_float32():
    assert error_of_gradient_in_float32(vmf.log_mean_exp) < 1e-6
    wrong = error_of_gradient_in_float32(textbook)
    assert measured("relative error", wrong, 0.1) > 0.1


def test_size_of_the_two_errors_the_paper_invites():
    """C_p(kappa) for C_p(kappa |S|) makes the mass 1.077; no Jacobian makes it E g^2 = 6."""
    kappa_only, no_jacobian = (
        FAULTS["normaliser at kappa instead of kappa |S|"],
        FAULTS["no Jacobian"],
    )
    draws = checks.joint_mass(mutant(*kappa_only[:3]))
    assert draws.mean() == pytest.approx(1.077, abs=0.02)
    draws = checks.cartesian_mass(mutant(*no_jacobian[:3]))
    assert draws.mean() == pytest.approx(6.0, abs=0.2)
