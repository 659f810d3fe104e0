"""Argument checks: what passes, what is refused, and the words used."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle.checks import check_choice, check_count, check_range, check_shape, check_unit


@pytest.mark.parametrize("value", [2, np.int64(2)])
def test_counts_pass(value):
    assert check_count("n", value, 1) == 2
    assert type(check_count("n", value, 1)) is int


@pytest.mark.parametrize("value", [0, -1, 2.0, 2.5, True, np.True_, "2", None])
def test_other_counts_are_refused(value):
    with pytest.raises(ValueError, match=r"n=.*whole number, at least 1"):
        check_count("n", value, 1)


def test_choices():
    assert check_choice("kind", "a", ("a", "b")) == "a"
    with pytest.raises(ValueError, match=r"kind='c': must be one of 'a', 'b'\."):
        check_choice("kind", "c", ("a", "b"))


@pytest.mark.parametrize(
    ("value", "options"),
    [(0.0, {}), ([0, 0.5], {}), (1.0, {"open_high": False}), (jnp.float32(0.5), {}),
     (jnp.bfloat16(0.5), {}), (np.float16(0.5), {}), (True, {"open_high": False})],
)  # fmt: skip
def test_ranges_pass(value, options):
    check_range("x", value, 0.0, 1.0, **options)


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        (1.0, {}, r"x=1: must be finite and in \[0, 1\)"),
        (0.0, {"open_low": True}, r"x=0: .* \(0, 1\)"),
        (-0.5, {"open_high": False}, r"x=-0\.5: .* \[0, 1\]"),
        (np.nan, {}, "x=nan"),
        ([[0.1, 0.2], [0.3, np.inf]], {}, r"x=inf \(at index \(1, 1\)\)"),
        ("a", {}, r"x='a': must be numeric"),
        (None, {}, r"x=None: must be numeric"),
    ],
)
def test_other_ranges_are_refused(value, options, message):
    with pytest.raises(ValueError, match=message):
        check_range("x", value, 0.0, 1.0, **options)


def test_infinity_is_never_in_a_range():
    with pytest.raises(ValueError, match="x=inf"):
        check_range("x", np.inf, 0.0, open_high=False)


def test_shapes():
    check_shape("x", (5, 2, 3), ("K", 3))
    for shape in ((2, 4), (3,), ()):
        with pytest.raises(ValueError, match=r"x has shape \(.*\): must be \(\.\.\., K, 3\)"):
            check_shape("x", shape, ("K", 3))


def test_unit_vectors():
    check_unit("x", [[1.0, 0.0], [0.6, 0.8]])
    check_unit("x", [[1.0, 0.0], [0.0, 0.0]], allow_zero=True)
    with pytest.raises(ValueError, match=r"length 0 \(at index \(1,\)\): each must have length 1;"):
        check_unit("x", [[1.0, 0.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match=r"length 0\.5.*1 \(or 0 for padding\)"):
        check_unit("x", [0.5, 0.0], allow_zero=True)
    with pytest.raises(ValueError, match="length nan"):
        check_unit("x", [np.nan, 0.0])


def test_tracers_are_not_looked_at():
    @jax.jit
    def f(x):
        check_range("x", x, 0.0, 1.0)
        check_unit("x", x)
        return x

    assert f(jnp.full(2, 7.0))[0] == 7
