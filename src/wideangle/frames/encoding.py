"""How the columns of a file became numbers: plain data, the same at training and at prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

OTHER = "(other)"
"""Stands for all categories that are too rare to have a column."""
MISSING = "(missing)"
"""Stands for an empty cell among categories."""

Label: TypeAlias = str | int


@dataclass(frozen=True)
class Number:
    """A column of numbers; it becomes one column, or two where missing values matter."""

    name: str
    fill: float | None = None
    """Put in place of missing values; None leaves them to the model."""
    flagged: bool = False
    """A second column marks where a value was missing."""
    scale: float = 1.0
    """Values are divided by it."""
    date: bool = False
    """Dates, counted in days since 1970."""
    kind: Literal["number"] = "number"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return (self.name, *self.indicators)

    @property
    def indicators(self) -> tuple[str, ...]:
        """The column of zeros and ones among them, if there is one."""
        return (f"{self.name} = {MISSING}",) if self.flagged else ()


@dataclass(frozen=True)
class Category:
    """A column of words; each of ``values`` becomes a column of zeros and ones."""

    name: str
    values: tuple[str, ...]
    """Categories that have a column; ``OTHER`` and ``MISSING`` may be among them."""
    rare: tuple[str, ...] = ()
    """Words that were seen and share the column ``OTHER``."""
    keep: bool = False
    """A missing word is NaN in all columns, and left to the model; otherwise it is none of them."""
    kind: Literal["category"] = "category"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(f"{self.name} = {value}" for value in self.values)

    @property
    def indicators(self) -> tuple[str, ...]:
        """All of them are of zeros and ones."""
        return self.columns


@dataclass(frozen=True)
class Target:
    """The column to predict and its classes, in the order of predicted probabilities.

    A quantity has none.
    """

    name: str
    classes: tuple[Label, ...]


@dataclass(frozen=True)
class Reading:
    """How a text file was read, so that the next one is read in the same way."""

    header: bool = True
    missing: tuple[str, ...] = ()
    """Words that stand for a missing value, in addition to the usual ones."""
    first_index: int = 0
    """Number of the first column in LIBSVM files."""


@dataclass(frozen=True)
class Encoding:
    """From the columns of a file to those of a model.

    Parameters
    ----------
    sources
        What each source column became, in order; None for a sparse matrix, whose columns are
        taken as they are.
    matrix_columns
        Names of the columns of a sparse matrix; empty otherwise.
    target
        The column to predict; None for features.
    ignored
        Columns that were in the file and are not used, with the reason.
    sparse
        Whether rows are encoded as a sparse matrix.
    reading
        How the file was read.
    """

    sources: tuple[Number | Category, ...] | None
    matrix_columns: tuple[str, ...] = ()
    target: Target | None = None
    ignored: Mapping[str, str] = field(default_factory=dict)
    sparse: bool = False
    reading: Reading = field(default_factory=Reading)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        if self.sources is None:
            return self.matrix_columns
        return tuple(name for source in self.sources for name in source.columns)

    @property
    def classes(self) -> tuple[Label, ...]:
        """Classes of the target; none without one."""
        return () if self.target is None else self.target.classes

    @property
    def indicators(self) -> frozenset[str]:
        """Encoded columns of zeros and ones that stand for a word or for a gap."""
        return frozenset(name for source in self.sources or () for name in source.indicators)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Any) -> Encoding:
        """From plain JSON; ValueError if it is not of this shape."""
        try:
            sources, target, read = (plain[name] for name in ("sources", "target", "reading"))
            return cls(
                None if sources is None else tuple(_source(one) for one in sources),
                _words(plain["matrix_columns"]),
                None if target is None else Target(_word(target["name"]), _labels(target)),
                {_word(name): _word(why) for name, why in plain["ignored"].items()},
                bool(plain["sparse"]),
                Reading(bool(read["header"]), _words(read["missing"]), int(read["first_index"])),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it does not describe columns ({error})") from error


def _source(plain: Mapping[str, Any]) -> Number | Category:
    name = _word(plain["name"])
    if plain["kind"] == "category":
        words = _words(plain["values"]), _words(plain["rare"])
        return Category(name, *words, keep=bool(plain["keep"]))
    fill = plain["fill"]
    fill = None if fill is None else float(fill)
    return Number(name, fill, bool(plain["flagged"]), float(plain["scale"]), bool(plain["date"]))


def _labels(plain: Mapping[str, Any]) -> tuple[Label, ...]:
    labels = plain["classes"]
    if not all(type(label) in (str, int) for label in labels):
        raise TypeError("classes must be words or whole numbers")
    return tuple(labels)


def _words(plain: Any) -> tuple[str, ...]:
    return tuple(_word(one) for one in plain)


def _word(plain: Any) -> str:
    if not isinstance(plain, str):
        raise TypeError(f"{plain!r} is not a word")
    return plain
