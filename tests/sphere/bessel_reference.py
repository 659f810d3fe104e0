"""References with 60 digits for the von Mises-Fisher normaliser, by routes of their own.

Power series and continued fraction at small concentration, large-argument series at very large,
and in between a Debye series of an order and length of its own. They are compared with each other
and with mpmath's Bessel function where they overlap.
"""

from __future__ import annotations

from functools import cache

import mpmath as mp

DIGITS = 60


@cache
def log_mean_exp(dim: int, kappa: float) -> mp.mpf:
    """G = log 0F1(; p/2; kappa^2/4)."""
    with mp.workdps(DIGITS):
        return log_mean_exp_by_series(dim, kappa) if kappa < 3e3 else debye(dim, kappa)


@cache
def mean_resultant(dim: int, kappa: float) -> mp.mpf:
    """A = I_{p/2} / I_{p/2-1}."""
    with mp.workdps(DIGITS):
        if kappa == 0:
            return mp.mpf(0)
        if kappa < 1e4 * dim**0.5:
            return continued_fraction(dim, kappa)
        return hankel_ratio(dim, kappa) if kappa > 40 * dim**2 + 1e3 else debye_ratio(dim, kappa)


def mean_resultant_slope(dim: int, kappa: float) -> mp.mpf:
    """A' = 1 - A^2 - (p-1) A / kappa, which needs every one of the digits."""
    with mp.workdps(DIGITS):
        if kappa == 0:
            return mp.mpf(1) / dim
        ratio, kappa = mean_resultant(dim, kappa), mp.mpf(kappa)
        return 1 - ratio**2 - (dim - 1) * ratio / kappa


def log_mean_exp_by_series(dim: int, kappa: float) -> mp.mpf:
    """Sum the positive series of 0F1 term by term."""
    quarter, order = mp.mpf(kappa) ** 2 / 4, mp.mpf(dim) / 2
    term, rest, k = mp.mpf(1), mp.mpf(0), 0
    while k < 10 or term > rest * mp.mpf(10) ** (-DIGITS):
        term *= quarter / ((order + k) * (k + 1))
        rest += term
        k += 1
        if term == 0:
            break
    return mp.log1p(rest)


def continued_fraction(dim: int, kappa: float) -> mp.mpf:
    """Gauss's continued fraction 1/(p/x + 1/((p+2)/x + ...)), by Steed's forward recurrence."""
    x = mp.mpf(kappa)
    b = dim / x
    d = 1 / b
    value = step = d
    while abs(step) > abs(value) * mp.mpf(10) ** (-DIGITS):
        b += 2 / x
        d = 1 / (b + d)
        step *= b * d - 1
        value += step
    return value


def hankel_ratio(dim: int, kappa: float) -> mp.mpf:
    """Quotient of the large-argument series of the two Bessel functions."""
    return _hankel(mp.mpf(dim) / 2, kappa) / _hankel(mp.mpf(dim) / 2 - 1, kappa)


def _hankel(order: mp.mpf, kappa: float) -> mp.mpf:
    x, total, term, k = mp.mpf(kappa), mp.mpf(1), mp.mpf(1), 0
    while term != 0 and abs(term) > mp.mpf(10) ** (-DIGITS):
        k += 1
        new = -term * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k * x)
        if abs(new) > abs(term):
            break
        term = new
        total += term
    return total


RAISE = 400  # the Debye series is taken at orders of at least this much


def debye(dim: int, kappa: float) -> mp.mpf:
    """Debye's series for log I at a raised order, brought down by the ratio."""
    order, x = mp.mpf(dim) / 2 - 1, mp.mpf(kappa)
    raised = max(0, RAISE - int(order))
    log_i = log_bessel_by_debye(order + raised, x)
    if raised:
        ratio = mp.exp(log_bessel_by_debye(order + raised + 1, x) - log_i)
        for j in range(raised, 0, -1):
            ratio = 1 / (2 * (order + j) / x + ratio)
            log_i -= mp.log(ratio)
    return log_i + mp.loggamma(order + 1) - order * mp.log(x / 2)


def debye_ratio(dim: int, kappa: float) -> mp.mpf:
    """A from the same series."""
    order, x = mp.mpf(dim) / 2 - 1, mp.mpf(kappa)
    raised = max(0, RAISE - int(order))
    top = order + raised
    ratio = mp.exp(log_bessel_by_debye(top + 1, x) - log_bessel_by_debye(top, x))
    for j in range(raised, 0, -1):
        ratio = 1 / (2 * (order + j) / x + ratio)
    return ratio


def log_bessel_by_debye(order: mp.mpf, x: mp.mpf) -> mp.mpf:
    """Log of I_order(x): exponent and the first terms of the asymptotic sum."""
    root = mp.sqrt(order**2 + x**2)
    t = order / root
    exponent = root + order * mp.log(x / (order + root))
    total, power = mp.mpf(0), mp.mpf(1)
    for polynomial in _debye_polynomials(30):
        term = sum(c * t**k for k, c in enumerate(polynomial) if c) * power
        total += term
        power /= order
    return exponent - mp.log(2 * mp.pi * root) / 2 + mp.log(total)


@cache
def _debye_polynomials(n: int) -> list[list[mp.mpf]]:
    """u_0 .. u_n by differentiation and integration of coefficient lists."""
    with mp.workdps(DIGITS + 40):
        all_of_them = [[mp.mpf(1)]]
        for _ in range(n):
            u = all_of_them[-1]
            slope = [k * c for k, c in enumerate(u)][1:]
            new = [mp.mpf(0)] * (len(u) + 3)
            for k, c in enumerate(slope):
                new[k + 2] += c / 2
                new[k + 4] -= c / 2
            for k, c in enumerate(u):
                new[k + 1] += c / (8 * (k + 1))
                new[k + 3] -= 5 * c / (8 * (k + 3))
            all_of_them.append(new)
        return all_of_them
