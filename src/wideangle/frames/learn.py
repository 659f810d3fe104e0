"""Decide how columns become numbers, from the rows a model is trained on, and report it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wideangle.frames.columns import as_numbers, as_words, content_of, is_missing
from wideangle.frames.encoding import MISSING, OTHER, Category, Encoding, Number, Target
from wideangle.frames.table import SHOWN, Table, TableError, count, some

_MOSTLY = 0.8
"""With this share of numbers among its words a column is one of numbers with mistakes in it."""
_FREE_TEXT = 0.5
"""With more different words than this share of the rows a column is text or a name."""
_FEWEST_NUMBERED = 20
"""Fewer rows may well have different whole numbers by chance."""
_SPARSE_BYTES = 2**30
"""Tables that would take more memory than this when dense are made sparse."""


@dataclass(frozen=True)
class Plan:
    """What the user wants of the columns.

    Attributes
    ----------
    fill
        Replace missing values, and give them a column; otherwise the model deals with them.
    scale
        Divide numbers by their standard deviation.
    ignore, categories
        Names of columns to leave out, and of numbers that stand for categories.
    max_categories
        Most categories of a column that get one 0/1 column each.
    sparse
        Encode as a sparse matrix; None leaves files as they are and large tables sparse.
    """

    fill: bool = True
    scale: bool = False
    ignore: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    max_categories: int = 30
    sparse: bool | None = None


@dataclass
class _Facts:
    """What happened to the columns, gathered for a few sentences."""

    words: list[tuple[str, int]] = field(default_factory=list)
    dates: list[str] = field(default_factory=list)
    rare: list[tuple[str, int]] = field(default_factory=list)
    missing: list[tuple[str, int]] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)
    numbered: list[str] = field(default_factory=list)

    def notes(self, plan: Plan, table: Table) -> list[str]:
        """Sentences, the first ones about what was left out."""
        reasons: dict[str, list[str]] = {}
        for name, why in self.ignored.items():
            reasons.setdefault(why, []).append(name)
        notes = [f"left out {some(names)}: {why}" for why, names in reasons.items()]
        if self.words:
            n_made = sum(n for _, n in self.words)
            notes.append(
                f"{count(len(self.words), 'categorical column')} became {n_made} columns of 0 and "
                f"1: {_listed(self.words)}"
            )
        if self.rare:
            notes.append(
                f"rare categories share one column, {OTHER!r}, beyond the {plan.max_categories} "
                f"most frequent: {_listed(self.rare)}"
            )
        if self.numbered:
            notes.append(
                f"{some(self.numbered)}: all values are distinct whole numbers; if it is an ID, "
                f"leave it out ({table.option('ignore')})"
            )
        if self.dates:
            notes.append(f"dates became days since 1970: {some(self.dates)}")
        if self.missing:
            filled = "replaced by the median or by a separate category, and marked in a 0/1 column"
            notes.append(
                f"missing values in {count(len(self.missing), 'column')} of {table.n_rows:,} rows: "
                f"{_listed(self.missing)}; {filled if plan.fill else 'left to the model'}"
            )
        return notes


def learn(table: Table, target: Target | None, plan: Plan) -> tuple[Encoding, list[str]]:
    """Learn an encoding from training rows, and report what was done in sentences.

    ``table`` has the training rows alone: what is held out must not decide how columns are filled.
    """
    for name in (*plan.ignore, *plan.categories):
        table.column(name)  # raises for a name that is not there
    if table.frame is None:
        return _learn_matrix(table, target, plan)
    facts = _Facts()
    targets = {name for name in (table.label_name, target and target.name) if name}
    sources = []
    for name in table.frame.columns:
        if name in plan.ignore:
            facts.ignored[name] = "as requested"
        elif name not in targets:
            source = _learn_column(table, name, plan, facts)
            if source is not None:
                sources.append(source)
    if not sources:
        raise TableError(f"{table.source} has no column left to learn from.")
    if table.label_name and target is None:
        facts.ignored[table.label_name] = "this model does not use labels"
    n_columns = sum(len(source.columns) for source in sources)
    sparse = plan.sparse
    if sparse is None:
        mostly_words = n_columns > 4 * len(sources)
        sparse = plan.fill and mostly_words and 8 * n_columns * table.n_rows > _SPARSE_BYTES
    encoding = Encoding(
        tuple(sources),
        target=target,
        ignored=facts.ignored,
        sparse=bool(sparse),
        reading=table.reading,
    )
    _refuse_duplicates(encoding, table)
    notes = facts.notes(plan, table)
    if plan.scale:
        notes.append("numbers were divided by their standard deviation")
    return encoding, notes


def _learn_matrix(table: Table, target: Target | None, plan: Plan) -> tuple[Encoding, list[str]]:
    if plan.ignore or plan.categories:
        raise TableError(f"{table.source} is a sparse matrix: its columns cannot be picked.")
    if not np.all(np.isfinite(table.matrix.data)):
        raise TableError(f"{table.source}: its sparse matrix holds values that are not finite.")
    share = table.matrix.nnz / (table.matrix.shape[0] * table.matrix.shape[1])
    sparse = plan.sparse is not False
    notes = [f"sparse rows, {share:.2%} of the entries not 0, {'kept so' if sparse else 'filled'}"]
    if target is None and table.label_name:
        notes.append(f"left out {table.label_name!r}: the labels are not needed")
    return Encoding(None, table.matrix_columns, target, {}, sparse, table.reading), notes


def _learn_column(table: Table, name: str, plan: Plan, facts: _Facts) -> Number | Category | None:
    column = table.frame[name]
    missing = is_missing(column)
    content = content_of(column)
    if missing.all() and not table.uniform:
        facts.ignored[name] = "no value at all"
        return None
    if content == "object":
        facts.ignored[name] = "neither numbers nor words"
        return None
    if name in plan.categories or content == "word":
        return _learn_words(table, name, plan, facts)
    values = as_numbers(column)
    known = values[~np.isnan(values)]
    if known.size and known.min() == known.max() and not missing.any() and not table.uniform:
        facts.ignored[name] = "the same value in every row"
        return None
    if missing.any():
        facts.missing.append((name, int(missing.sum())))
    if content != "date" and _numbers_rows(known, len(values)) and not table.uniform:
        facts.numbered.append(name)
    if content == "date":
        facts.dates.append(name)
    fill = (float(np.median(known)) if known.size else 0.0) if plan.fill else None
    deviation = float(np.std(known)) if plan.scale and known.size else 1.0
    return Number(
        name,
        fill,
        flagged=bool(plan.fill and missing.any()),
        scale=deviation if deviation > 0 else 1.0,
        date=content == "date",
    )


def _numbers_rows(known: np.ndarray, n_rows: int) -> bool:
    """Whether a column may be an identifier: whole numbers, all different."""
    different = n_rows >= _FEWEST_NUMBERED and len(np.unique(known)) == n_rows
    return different and bool(np.all(known == known.round()))


def _learn_words(table: Table, name: str, plan: Plan, facts: _Facts) -> Category | None:
    words = as_words(table.frame[name])
    present = np.array([word for word in words if word is not None], dtype=object)
    values, counts = np.unique(present.astype(str), return_counts=True)
    if name not in plan.categories:
        _refuse_mistakes(table, name, words)
    chosen = [str(value) for value in values]
    if len(chosen) == 1 and len(present) == len(words):
        facts.ignored[name] = "the same value in every row"
        return None
    rare: list[str] = []
    if len(chosen) > plan.max_categories:
        if len(chosen) > _FREE_TEXT * len(present) and name not in plan.categories:
            facts.ignored[name] = "almost all values are unique (an ID or free text)"
            return None
        frequent = set(values[np.argsort(-counts, kind="stable")[: plan.max_categories]])
        rare = [v for v in chosen if v not in frequent]
        chosen = [v for v in chosen if v in frequent]
        facts.rare.append((name, len(rare)))
    n_missing = len(words) - len(present)
    if n_missing:
        facts.missing.append((name, n_missing))
    extra = [OTHER] * bool(rare) + [MISSING] * bool(n_missing and plan.fill)
    facts.words.append((name, len(chosen) + len(extra)))
    return Category(name, (*chosen, *extra), tuple(rare), keep=not plan.fill)


def _refuse_mistakes(table: Table, name: str, words: np.ndarray) -> None:
    """A few words among numbers are mistakes: as categories they would hide all the numbers."""
    column = table.frame[name]
    present = np.array([word is not None for word in words])
    wrong = np.isnan(as_numbers(column)) & present
    if wrong.any() and np.mean(wrong[present]) <= 1.0 - _MOSTLY:
        first = int(np.argmax(wrong))
        raise TableError(
            f"{table.source}: column {name!r} holds numbers, but {words[first]!r} in row "
            f"{first + 1 if table.in_python else int(column.index[first]) + 1}: correct it, or set "
            f"{table.option('category', name)} or {table.option('ignore', name)}."
        )


def _refuse_duplicates(encoding: Encoding, table: Table) -> None:
    names = encoding.columns
    if len(set(names)) < len(names):
        duplicate = next(name for i, name in enumerate(names) if name in names[:i])
        raise TableError(
            f"{table.source}: two columns would both be called {duplicate!r}; rename one of them."
        )


def _listed(pairs: Sequence[tuple[str, Any]]) -> str:
    shown = ", ".join(f"{name!r} ({number})" for name, number in pairs[:SHOWN])
    more = len(pairs) - SHOWN
    return shown + (f" and {more} more" if more > 0 else "")
