"""A table as text, on the terminal, in Markdown and in JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rich.table import Table


class Grid(NamedTuple):
    """The first column names the rows."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def rich(self) -> Table:
        """For the terminal."""
        table = Table(title=self.title, caption="\n".join(self.notes) or None)
        for column, numbers in zip(self.columns, self._numbers(), strict=True):
            table.add_column(column, justify="right" if numbers else "left")
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """For a page, without the title."""
        rule = "|" + "|".join("---:" if numbers else "---" for numbers in self._numbers()) + "|"
        lines = ["| " + " | ".join(self.columns) + " |", rule]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)])

    def without(self, names: Iterable[str]) -> Grid:
        """The grid without some columns."""
        kept = [place for place, name in enumerate(self.columns) if name not in names]
        columns, *rows = (tuple(row[place] for place in kept) for row in (self.columns, *self.rows))
        return self._replace(columns=columns, rows=rows)

    def _numbers(self) -> list[bool]:
        """For each column, whether it holds numbers; the first holds names."""

        def is_number(cell: str) -> bool:
            return not cell or cell.lstrip("+-[(")[:1].isdigit()

        columns = zip(*self.rows, strict=True)
        return [
            place > 0 and all(map(is_number, cells)) for place, cells in enumerate(columns)
        ] or [False] * len(self.columns)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "title": self.title,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "notes": list(self.notes),
        }


def listed(lines: Iterable[str]) -> list[str]:
    """A list in Markdown."""
    return [f"- {line}" for line in lines]
