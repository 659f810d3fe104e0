"""The shape of the JSON in a run: what is read is checked, and what is wrong is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wideangle.storage import StorageError

Check = tuple[str, Callable[[Any], bool]]
"""What a value must be, in words and as a question."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all(values: Any, kind: type, good: Callable[[Any], bool]) -> bool:
    """Whether a list, or the values of an object, are good."""
    entries = values.values() if isinstance(values, dict) else values
    return isinstance(values, kind) and all(map(good, entries))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


TEXT: Check = "text", _is_text
COUNT: Check = "a whole number", lambda value: type(value) is int
FLAG: Check = "true or false", lambda value: isinstance(value, bool)
TEXTS: Check = "a list of texts", lambda value: _all(value, list, _is_text)
TEXT_OF_NAME: Check = "an object of texts", lambda value: _all(value, dict, _is_text)
NUMBER_OF_NAME: Check = "an object of numbers", lambda value: _all(value, dict, _is_number)
OBJECT: Check = "an object", lambda value: isinstance(value, dict)
LIST: Check = "a list", lambda value: isinstance(value, list)
UNKNOWN: Check = "a number or null", lambda value: value is None or _is_number(value)
SCORE: Check = (
    "a number, a list of numbers or null",
    lambda value: value is None or _is_number(value) or _all(value, list, _is_number),
)

SETTINGS: dict[str, Check] = {
    "command": TEXTS, "options": OBJECT, "seed": COUNT, "source": TEXT, "n_rows": COUNT,
    "versions": TEXT_OF_NAME, "began": TEXT,
}  # fmt: skip
METRICS: dict[str, Check] = {
    "n_train": COUNT, "n_test": COUNT, "sample_held_out": FLAG, "warnings": TEXTS, "notes": TEXTS,
    "facts": LIST, "seconds": NUMBER_OF_NAME, "rhat": UNKNOWN, "ess": UNKNOWN,
}  # fmt: skip


def check_settings(file: Path, settings: Mapping[str, Any]) -> None:
    """Refuse settings of a run of another shape."""
    _check(file, settings, SETTINGS)


def check_metrics(file: Path, metrics: Mapping[str, Any]) -> None:
    """Refuse metrics of a run of another shape; those of a family are scores."""
    scores = dict.fromkeys(metrics.keys() - METRICS.keys(), SCORE)
    _check(file, metrics, METRICS | scores)


def _check(file: Path, content: Mapping[str, Any], fields: Mapping[str, Check]) -> None:
    for name, (words, good) in fields.items():
        if name not in content:
            raise StorageError(f"{file}: {name!r} is missing; take another copy or train again.")
        if not good(content[name]):
            raise StorageError(f"{file}: {name!r} must be {words}; take another copy.")
