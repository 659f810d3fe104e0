"""What a command prints: sentences on standard error, its result on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

import typer


def say(sentence: str) -> None:
    """Report what is done, on standard error."""
    typer.echo(f"  {visible(sentence)}", err=True)


def warn(sentence: str) -> None:
    """Report what is doubtful; yellow on a terminal."""
    prefix = "warning:"
    if not os.environ.get("NO_COLOR"):  # what is not a terminal gets no colour in any case
        prefix = typer.style(prefix, fg=typer.colors.YELLOW)
    typer.echo(f"  {prefix} {visible(sentence)}", err=True)


def show_table(rows: Iterable[tuple[str, str]], title: str) -> None:
    """Names and values on standard output; plain lines where it is not a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    pairs = [(name, visible(value)) for name, value in rows]
    console = Console(highlight=False)
    if not console.is_terminal:
        width = max(len(name) for name, _ in pairs)
        typer.echo("\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in pairs)]))
        return
    table = Table(title=Text(title, "bold"), title_justify="left", box=box.ROUNDED)
    table.show_header = False
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(name), Text(value))
    console.print(table)


def show_json(content: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    json.dump(content, sys.stdout, allow_nan=False, indent=1, ensure_ascii=True)
    sys.stdout.write("\n")


def visible(text: str) -> str:
    """Text without characters that steer a terminal: names of columns are not trusted."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
