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
        for place, column in enumerate(self.columns):
            table.add_column(column, justify="left" if place == 0 else "right")
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """For a page, without the title."""
        rule = "|---|" + "---:|" * (len(self.columns) - 1)
        lines = ["| " + " | ".join(self.columns) + " |", rule]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)])

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
