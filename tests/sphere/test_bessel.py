"""The normaliser of the von Mises-Fisher distribution against 60 digits, in every regime."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scipy.special import ive

from sphere import bessel_reference as reference
from statistical import relative_error
from wideangle.sphere import vmf

DIMS = [2, 3, 4, 10, 36, 123, 1000, 5000, 10**5, 10**6]
FUNCTIONS = {
    "log_mean_exp": (vmf.log_mean_exp, reference.log_mean_exp, 1e-13, 2e-6),
    "mean_resultant": (vmf.mean_resultant, reference.mean_resultant, 1e-13, 2e-6),
    "slope": (vmf.mean_resultant_slope, reference.mean_resultant_slope, 1e-11, 5e-5),
}


def grid(dim, n=17):
    """Zero, 1e-8 to 1e8, and random points on both sides of kappa = p."""
    random = np.random.default_rng(dim)
    around = dim * 10.0 ** random.uniform(-3, 3, 6)
    # The float32 neighbour, so that both precisions are asked about the same number.
    points = np.concatenate([[0.0], 10.0 ** np.linspace(-8, 8, n), np.clip(around, 0, 1e8)])
    return points.astype(np.float32)


def worst_errors(dim, dtype, n=17):
    """Largest relative error of each function over the grid, in units of what is allowed."""
    kappas = grid(dim, n)
    evaluate = jax.jit(lambda k: [ours(k, dim) for ours, *_ in FUNCTIONS.values()])
    worst = {}
    for (name, (_, exact, double, single)), values in zip(
        FUNCTIONS.items(), evaluate(jnp.asarray(kappas, dtype)), strict=True
    ):
        assert values.dtype == dtype
        truths = [exact(dim, float(k)) for k in kappas]
        errors = [
            float(abs((mp.mpf(float(v)) - truth) / (truth or 1)))
            for v, truth in zip(values, truths, strict=True)
        ]
        worst[name] = max(errors) / (double if dtype == jnp.float64 else single)
    return worst


@pytest.mark.parametrize(
    ("dim", "dtype"),
    [(dim, jnp.float64) for dim in DIMS] + [(dim, jnp.float32) for dim in DIMS[::3]],
)
def test_all_digits_are_right(dim, dtype):
    assert max(worst_errors(dim, dtype).values()) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("dim", [*DIMS, 5, 7, 17, 50, 300, 20_000])
def test_all_digits_are_right_on_a_fine_grid(dim, dtype):
    assert max(worst_errors(dim, dtype, 129).values()) <= 1


@pytest.mark.parametrize("dim", [2, 3, 10, 123, 5000, 10**6])
def test_references_agree_where_they_overlap(dim):
    with mp.workdps(reference.DIGITS):
        for kappa in (900.0, 2900.0):
            series, debye = (
                reference.log_mean_exp_by_series(dim, kappa),
                reference.debye(dim, kappa),
            )
            assert abs(series / debye - 1) < 1e-45
            ratio, other = (
                reference.continued_fraction(dim, kappa),
                reference.debye_ratio(dim, kappa),
            )
            assert abs(ratio / other - 1) < 1e-45


@pytest.mark.parametrize(("dim", "kappa"), [(2, 1e6), (3, 1e5), (36, 1e6), (123, 1e7)])
def test_references_agree_with_the_bessel_function_of_mpmath(dim, kappa):
    with mp.workdps(reference.DIGITS):
        order = mp.mpf(dim) / 2 - 1
        lower = mp.besseli(order, kappa)
        g = mp.log(lower) + mp.loggamma(order + 1) - order * mp.log(mp.mpf(kappa) / 2)
        assert abs(reference.log_mean_exp(dim, kappa) - g) < 1e-45
        truth = mp.besseli(order + 1, kappa) / lower
        assert abs(reference.hankel_ratio(dim, kappa) - truth) < 1e-45
        assert abs(reference.debye_ratio(dim, kappa) - truth) < 1e-45


@pytest.mark.parametrize("dim", [2, 36, 10**6])
def test_derivatives_are_those_of_the_reference(dim):
    def both(kappa):
        slope = jax.grad(vmf.log_mean_exp)
        return slope(kappa, dim), jax.grad(slope)(kappa, dim)

    kappas = np.array([1e-3, 1.0, 77.0, 1e5])
    first, second = (np.asarray(v) for v in jax.jit(jax.vmap(both))(kappas))
    with mp.workdps(reference.DIGITS):
        for kappa, ours, ours_bend in zip(kappas, first, second, strict=True):
            small = kappa < 1e4
            g = reference.log_mean_exp_by_series if small else reference.debye
            ratio = reference.continued_fraction if small else reference.debye_ratio
            step = mp.mpf(kappa) * mp.mpf(10) ** -12
            slope = (g(dim, kappa + step) - g(dim, kappa - step)) / (2 * step)
            bend = (ratio(dim, kappa + step) - ratio(dim, kappa - step)) / (2 * step)
            assert abs(mp.mpf(float(ours)) / slope - 1) < 1e-13
            assert abs(mp.mpf(float(ours_bend)) / bend - 1) < 1e-11


def error_of_gradient_in_float32(function):
    """Relative error of d G / d kappa at p = 5000, kappa = 1, where A is about 1/5000."""
    gradient = jax.grad(function)(jnp.float32(1.0), 5000)
    return relative_error(gradient, float(reference.mean_resultant(5000, 1.0)))


def test_gradient_in_float32_is_the_mean_resultant():
    assert error_of_gradient_in_float32(vmf.log_mean_exp) < 1e-6


def test_third_derivative_is_finite_everywhere():
    third = jax.jit(jax.vmap(jax.grad(jax.grad(lambda k: vmf.mean_resultant(k, 3)))))
    assert np.all(np.isfinite(third(jnp.asarray(grid(3), jnp.float64))))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_zero_concentration_needs_no_special_case(dtype):
    def values(kappa):
        return [
            vmf.log_mean_exp(kappa, 7),
            vmf.mean_resultant(kappa, 7),
            jax.grad(vmf.log_mean_exp)(kappa, 7),
            jax.grad(vmf.mean_resultant)(kappa, 7),
        ]

    *zeros, slope = jax.jit(values)(jnp.zeros((), dtype))
    assert zeros == [0, 0, 0]
    assert relative_error(slope, 1 / 7) < 1e-6


def test_vectorised_evaluation_is_elementwise():
    kappas = jnp.linspace(0, 100, 12).reshape(3, 4)
    evaluate = jax.jit(vmf.log_mean_exp, static_argnums=1)
    whole = evaluate(kappas, 10)
    single = [[evaluate(k, 10) for k in row] for row in kappas]
    assert whole.shape == (3, 4)
    np.testing.assert_allclose(whole, single, rtol=1e-14)


@pytest.mark.parametrize("dim", [2, 36, 10**6])
@pytest.mark.parametrize(("dtype", "rtol"), [(jnp.float32, 2e-6), (jnp.float64, 1e-13)])
def test_inverse_mean_resultant_round_trip(dim, dtype, rtol):
    cosines = jnp.asarray([1e-6, 1e-3, 0.1, 0.5, 0.9, 0.99, 0.999], dtype)
    kappas = vmf.inverse_mean_resultant(cosines, dim)
    assert kappas.dtype == dtype
    assert relative_error(vmf.mean_resultant(kappas, dim), cosines) < rtol


def test_inverse_mean_resultant_recovers_the_concentration():
    kappas = 10.0 ** np.linspace(-4, 4, 33)
    for dim in (2, 5000):
        back = vmf.inverse_mean_resultant(vmf.mean_resultant(kappas, dim), dim)
        # 1 - A is about p / 2 kappa: rounding of the cosine is magnified by its inverse.
        tolerance = 1e-12 + 1e-15 * 4 * kappas / dim
        assert np.all(np.abs(back / kappas - 1) < tolerance)


@pytest.mark.parametrize("dim", [2, 5000])
def test_inverse_mean_resultant_is_differentiable(dim):
    cosines = jnp.array([1e-3, 0.3, 0.9])
    solve = jax.value_and_grad(lambda cosine: vmf.inverse_mean_resultant(cosine, dim))
    kappas, slopes = jax.jit(jax.vmap(solve))(cosines)
    assert relative_error(slopes, 1 / vmf.mean_resultant_slope(kappas, dim)) < 1e-10


def test_inverse_mean_resultant_at_the_ends():
    assert vmf.inverse_mean_resultant(0.0, 3) == 0
    assert vmf.inverse_mean_resultant(1.0, 3) == np.inf


@pytest.mark.parametrize(
    ("dim", "area"),
    [(1, 2), (2, 2 * np.pi), (3, 4 * np.pi), (4, 2 * np.pi**2), (5, 8 * np.pi**2 / 3)],
)
def test_area_has_its_closed_forms(dim, area):
    assert vmf.log_area(dim) == pytest.approx(np.log(area), rel=1e-14, abs=1e-15)


def test_area_in_high_dimension():
    for dim in (123, 1000, 10**6):
        with mp.workdps(30):
            half = mp.mpf(dim) / 2
            exact = mp.log(2) + half * mp.log(mp.pi) - mp.loggamma(half)
        assert vmf.log_area(dim) == pytest.approx(float(exact), rel=1e-14)
    # The constant of the paper's Eq. (6) is that of the sphere one dimension up.
    assert vmf.log_area(123) == pytest.approx(-119.59, abs=0.005)
    assert vmf.log_area(124) == pytest.approx(-121.07, abs=0.005)


def test_normaliser_at_three_dimensions_is_elementary():
    kappa = np.array([0.1, 1.0, 30.0])
    exact = np.log(kappa / (4 * np.pi * np.sinh(kappa)))
    np.testing.assert_allclose(-(vmf.log_area(3) + vmf.log_mean_exp(kappa, 3)), exact, rtol=1e-13)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 1.0), (3, 50.0), (10, 5.0), (50, 200.0)])
def test_agrees_with_scipy_where_scipy_is_accurate(dim, kappa):
    pole = np.eye(dim)[0]
    theirs = stats.vonmises_fisher(pole, kappa).logpdf(pole)
    ours = kappa - vmf.log_area(dim) - vmf.log_mean_exp(kappa, dim)
    assert ours == pytest.approx(theirs, rel=1e-10)
    assert vmf.mean_resultant(kappa, dim) == pytest.approx(
        ive(dim / 2, kappa) / ive(dim / 2 - 1, kappa), rel=1e-12
    )


@pytest.mark.parametrize("kappa", [1.0, 10.0, 100.0])
def test_finite_and_right_where_scipy_is_infinite(kappa):
    pole = np.eye(1000)[0]
    with np.errstate(all="ignore"):
        theirs = stats.vonmises_fisher(pole, kappa).logpdf(pole)
    assert np.isinf(theirs)
    exact = float(reference.log_mean_exp(1000, kappa)) + vmf.log_area(1000)
    assert -(vmf.log_area(1000) + vmf.log_mean_exp(kappa, 1000)) == pytest.approx(-exact, rel=1e-14)
