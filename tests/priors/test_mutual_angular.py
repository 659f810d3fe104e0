"""The mutual-angular prior: density, draws, the infinite extension, limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priors.prior_checks import cosine_of_neighbours, joint_mass, log_density_by_loop, unit_rows
from sphere.vmf_checks import angle_cdf
from statistical import FOUR, RARE, central_difference, ks_pvalue, relative_error, z_score
from wideangle import MutualAngular
from wideangle.priors import mutual_angular
from wideangle.sphere.vmf import mean_resultant

KINDS = pytest.mark.parametrize("kind", mutual_angular.KINDS)
MOST = pytest.mark.parametrize(
    "kind", ["I", "II", pytest.param("independent", marks=pytest.mark.slow)]
)
POLE = np.array([0.0, 0.6, 0.8, 0.0])


@KINDS
@pytest.mark.parametrize("first", [None, POLE], ids=["uniform first", "first"])
def test_density_is_that_of_the_paper(kind, first):
    rows = unit_rows(0, 5, 4)
    prior = MutualAngular(5, 4, 3.0, kind, first)
    expected = log_density_by_loop(rows, 3.0, kind, first)
    assert relative_error(prior.log_prob(rows), expected) < 1e-12
    ratio = expected + 5 * np.log(2 * np.pi**2)
    assert relative_error(prior.log_ratio_to_uniform(rows), ratio) < 1e-11


def test_both_ways_to_the_prefix_products_agree():
    rows = jnp.asarray(unit_rows(1, 2, 7, 5)).at[:, 5:].set(0.0)
    by_loop = mutual_angular._prefix_products_by_loop(rows)
    by_sum = mutual_angular._prefix_products_by_sum(rows)
    for left, right in zip(by_loop, by_sum, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-14)
    np.testing.assert_array_equal(by_loop[2][0], [True] * 5 + [False] * 2)
    weights = np.random.default_rng(0).normal(size=(2, 7))

    def total(products):
        return lambda r: jnp.sum(weights * (products(r)[0] + 2 * products(r)[1]))

    np.testing.assert_allclose(
        jax.grad(total(mutual_angular._prefix_products_by_loop))(rows),
        jax.grad(total(mutual_angular._prefix_products_by_sum))(rows),
        atol=1e-12,
    )


@KINDS
def test_joint_density_integrates_to_one(kind):
    assert z_score(joint_mass(kind=kind, first=[0.0, 0.6, 0.8]), 1.0) < FOUR
    assert z_score(joint_mass(kind=kind), 1.0) < FOUR


@KINDS
@pytest.mark.parametrize("first", [None, POLE], ids=["uniform first", "first"])
def test_one_more_component_multiplies_by_its_conditional(kind, first):
    rows = unit_rows(2, 6, 4)
    shorter = MutualAngular(5, 4, 3.0, kind, first)
    longer = MutualAngular(6, 4, 3.0, kind, first)
    gain = longer.log_prob(rows) - shorter.log_prob(rows[:5])
    conditional = shorter.next_component(rows[:5])
    assert relative_error(conditional.log_prob(rows[5]), gain) < 1e-11
    # Padding in between is not seen; nothing at all means the first component.
    padded = np.concatenate([rows[:5], np.zeros((3, 4))])
    assert relative_error(shorter.next_component(padded).log_prob(rows[5]), gain) < 1e-11
    alone = MutualAngular(1, 4, 3.0, kind, first).log_prob(rows[:1])
    start = shorter.next_component(np.zeros((2, 4)))
    assert relative_error(start.log_prob(rows[0]), alone) < 1e-12


@pytest.mark.parametrize("kind", ["I", "II"])
def test_distribution_of_the_next_draw(kind):
    rows = unit_rows(3, 3, 5)
    resultant = rows.sum(0)
    length = np.linalg.norm(resultant)
    prior = MutualAngular(3, 5, 6.0, kind)
    draws = jax.vmap(lambda key: prior.draw_next(key, rows))(
        jax.random.split(jax.random.key(0), 20_000)
    )
    angles = np.arccos(np.clip(-np.asarray(draws) @ resultant / length, -1, 1))
    kappa = 6.0 if kind == "I" else 6.0 * length
    assert ks_pvalue(angles, angle_cdf(5, kappa)) > RARE


@pytest.mark.parametrize("kind", ["I", "II"])
def test_second_component_leans_away_from_the_first(kind):
    draws = cosine_of_neighbours(mutual_angular, kind)
    assert z_score(draws, mean_resultant(4.0, 5)) < FOUR


@MOST
def test_draws_have_the_density(kind):
    """E_p[q/p] = 1 for the density at another concentration, which only the right p gives."""
    prior = MutualAngular(4, 3, 2.0, kind, [0.0, 0.0, 1.0])
    other = MutualAngular(4, 3, 1.5, kind, [0.0, 0.0, 1.0])
    rows = prior.sample(jax.random.key(1), (40_000,))
    weights = np.exp(other.log_ratio_to_uniform(rows) - prior.log_ratio_to_uniform(rows))
    assert z_score(weights, 1.0) < FOUR


@MOST
def test_padding_adds_nothing(kind):
    prior = MutualAngular(6, 4, 3.0, kind, POLE)
    rows = unit_rows(4, 3, 4)
    padded = jnp.concatenate([rows, jnp.zeros((3, 4))])
    assert (
        relative_error(prior.log_prob(padded), MutualAngular(3, 4, 3.0, kind, POLE).log_prob(rows))
        < 1e-14
    )
    gradient = jax.grad(prior.log_ratio_to_uniform)(padded)
    assert np.all(np.isfinite(gradient))
    assert not np.any(gradient[3:])


@MOST
def test_zero_concentration_is_uniform(kind):
    prior = MutualAngular(3, 4, 0.0, kind, POLE)
    np.testing.assert_allclose(prior.log_ratio_to_uniform(unit_rows(5, 9, 3, 4)), 0.0, atol=1e-15)
    np.testing.assert_allclose(
        prior.log_prob(unit_rows(5, 3, 4)), -3 * np.log(2 * np.pi**2), rtol=1e-14
    )


@pytest.mark.parametrize("dim", [2, pytest.param(10, marks=pytest.mark.slow), 1000])
def test_strength_by_cosine_means_the_same_in_every_dimension(dim):
    prior = MutualAngular.from_cosine(3, dim, 0.4)
    assert mean_resultant(prior.concentration, dim) == pytest.approx(0.4, rel=1e-12)
    rows = np.asarray(prior.sample(jax.random.key(2), (1500,)))
    opposite = -rows[:, :2].sum(1) / np.linalg.norm(rows[:, :2].sum(1), axis=-1, keepdims=True)
    assert z_score(np.sum(rows[:, 2] * opposite, -1), 0.4) < FOUR
    assert z_score(-np.sum(rows[:, 0] * rows[:, 1], -1), 0.4) < FOUR


@MOST
def test_gradient_against_differences(kind):
    prior = MutualAngular(4, 4, 3.0, kind, POLE)
    rows = unit_rows(6, 4, 4)

    def density(raw):
        return prior._log_ratio(jnp.asarray(raw))  # defined off the sphere too

    np.testing.assert_allclose(
        jax.jit(jax.grad(density))(rows), central_difference(jax.jit(density), rows), atol=2e-8
    )
    by_kappa = jax.grad(lambda k: MutualAngular(4, 4, k, kind, POLE).log_prob(rows))(3.0)
    up, down = (MutualAngular(4, 4, 3.0 + e, kind, POLE).log_prob(rows) for e in (1e-5, -1e-5))
    assert relative_error(by_kappa, (up - down) / 2e-5) < 1e-7


@KINDS
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_gradient_is_finite_where_the_resultant_vanishes(kind, dtype):
    row = unit_rows(7, 4)
    rows = jnp.asarray(np.stack([row, -row, np.eye(4)[0], np.eye(4)[1]]), dtype)
    prior = MutualAngular(4, 4, jnp.asarray(3.0, dtype), kind)
    value, gradient = jax.value_and_grad(prior.log_ratio_to_uniform)(rows)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("kind", ["I", "II"])
def test_density_depends_on_angles_only(kind):
    rows = unit_rows(8, 5, 4)
    turn = np.linalg.qr(np.random.default_rng(9).normal(size=(4, 4)))[0]
    prior = MutualAngular(5, 4, 3.0, kind)
    assert relative_error(prior.log_prob(rows @ turn), prior.log_prob(rows)) < 1e-12
    anchored = MutualAngular(5, 4, 3.0, kind, POLE)
    assert relative_error(anchored.log_prob(rows @ turn), anchored.log_prob(rows)) > 1e-3


def rows_with_cosines(gram):
    return np.linalg.cholesky(np.asarray(gram, float))


def test_wider_angles_are_always_likelier_for_type_two():
    random = np.random.default_rng(10)
    wide, narrow = [], []
    while len(wide) < 300:
        left, right = (np.corrcoef(random.normal(size=(3, 5))) for _ in range(2))
        low, high = np.minimum(left, right), np.maximum(left, right)
        if min(np.linalg.eigvalsh(low)[0], np.linalg.eigvalsh(high)[0]) > 1e-3:
            wide.append(rows_with_cosines(low))
            narrow.append(rows_with_cosines(high))
    prior = MutualAngular(3, 3, 2.0, "II")
    assert np.all(prior.log_prob(np.stack(wide)) > prior.log_prob(np.stack(narrow)))


def test_wider_angles_can_be_less_likely_for_type_one():
    """Widening the angle between the first two from 143 to 154 degrees, the others fixed."""

    def density(degrees):
        c = np.cos(np.radians(degrees))
        rows = rows_with_cosines([[1, c, 0.2], [c, 1, 0.2], [0.2, 0.2, 1]])
        return MutualAngular(3, 3, 1.0).log_ratio_to_uniform(rows)

    assert density(154.0) < density(143.0) - 0.1


def test_single_precision_keeps_the_ratio_in_high_dimension():
    rows = MutualAngular.from_cosine(300, 5000, 0.3).sample(jax.random.key(3))
    kappa = MutualAngular.from_cosine(300, 5000, 0.3).concentration
    exact = MutualAngular(300, 5000, kappa)
    single = MutualAngular(300, 5000, jnp.float32(kappa))
    rows32 = jnp.asarray(rows, jnp.float32)
    ratio = single.log_ratio_to_uniform(rows32)
    assert ratio.dtype == jnp.float32
    assert relative_error(ratio, exact.log_ratio_to_uniform(rows)) < 1e-5
    # log_prob carries 300 times the area: its spacing in float32 alone is half a nat.
    assert np.spacing(np.abs(np.asarray(single.log_prob(rows32)))) >= 0.25


@pytest.mark.parametrize("kind", ["I", "II", "independent"])
def test_parameters_may_have_more_axes_than_the_value(kind):
    rows = unit_rows(11, 3, 4)
    firsts = unit_rows(12, 5, 4)
    kappas = np.array([[1.0], [2.0]])
    table = MutualAngular(3, 4, kappas, kind, firsts).log_prob(rows)
    assert table.shape == (2, 5)
    for i, kappa in enumerate(kappas[:, 0]):
        for j, first in enumerate(firsts):
            assert (
                relative_error(table[i, j], log_density_by_loop(rows, kappa, kind, first)) < 1e-12
            )


def test_kappa_of_one_is_hardly_a_prior_in_high_dimension():
    """Divergence from uniform directions at the paper's setting: a fraction of a nat in all."""
    prior = MutualAngular(11, 36, 1.0)
    ratios = prior.log_ratio_to_uniform(prior.sample(jax.random.key(4), (4000,)))
    assert np.mean(ratios) == pytest.approx(0.15, abs=0.03)
