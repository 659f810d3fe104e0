"""Tables in text files: comma, semicolon, tab or bar between fields, names in the first line."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import warnings
from pathlib import Path
from typing import IO, Any

from wideangle.frames.encoding import Reading
from wideangle.frames.table import Table, TableError, count

_SEPARATORS = ",;\t|"
_SAMPLE_LINES = 50
_SAMPLE_BYTES = 2**18
_MOST_BYTES = 2**26
"""Most bytes that are read to find the end of the second line."""
_MISSING_WORDS = (
    "", "?", "#N/A", "#NA", "-nan", "-NaN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a",
    "nan", "null",
)  # fmt: skip
"""Cells that hold no value: those of pandas, and the question mark of the older public files."""
OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_COMMA_NUMBER = re.compile(r"[-+]?\d+,\d+")


def open_bytes(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked if its name ends like that of a compressed file."""
    return OPENERS.get(path.suffix.lower(), open)(path, "rb")


def peek(path: Path) -> str:
    """The beginning of a text file, cut at the end of a line."""
    try:
        with open_bytes(path) as file:
            start = more = file.read(_SAMPLE_BYTES)
            # Names of thousands of columns are longer than the sample.
            while more and start.count(b"\n") < 2 and len(start) < _MOST_BYTES:  # noqa: PLR2004
                more = b"" if b"\0" in more else file.read(_SAMPLE_BYTES)
                start += more
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise TableError(
            f"{path} is not a compressed file, as its name suggests ({error})."
        ) from error
    if len(start) >= _SAMPLE_BYTES and b"\n" in start:
        start = start[: start.rindex(b"\n") + 1]
    if b"\0" in start:
        raise TableError(f"{path} is not a text file: it contains binary data.")
    try:
        text = start.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(f"{path} is not text in UTF-8: save it in that encoding.") from error
    if not text.strip():
        raise TableError(f"{path} is empty.")
    return text


def read_text(path: Path, reading: Reading) -> Table:
    """Read a CSV, TSV or similar file."""
    import pandas as pd

    separator, lines = _parse(peek(path), path)
    names, notes = _names(lines, path, reading)
    missing = [*_MISSING_WORDS, *reading.missing]
    # A comma in numbers can be told from one between fields only where fields have another.
    cells = [cell for line in lines[1:] for cell in line]
    decimal = "," if separator != "," and any(map(_COMMA_NUMBER.fullmatch, cells)) else "."
    try:
        # Packed text too: pandas unpacks by the name, as open_bytes does.
        with open_bytes(path) as file, warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                file,
                sep=separator,
                decimal=decimal,
                header=0 if reading.header else None,
                names=names,
                index_col=False,
                na_values=missing,
                keep_default_na=False,
                skipinitialspace=True,
                low_memory=False,
                encoding="utf-8-sig",
            )
    except UnicodeDecodeError as error:
        raise TableError(f"{path} is not text in UTF-8: save it in that encoding.") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning, csv.Error, EOFError) as error:
        raise TableError(f"{path}: {_reason(str(error), len(names))}") from error
    if frame.empty:
        raise TableError(f"{path} has names of columns and no rows.")
    if names[0] == "":
        frame = frame.iloc[:, 1:]
    return Table(path, _with_dates(frame), reading=reading, notes=notes)


def _with_dates(frame: Any) -> Any:
    """The table with words such as 2024-05-31 read as dates, where a column has no others."""
    import pandas as pd

    for name in frame.columns:
        column = frame[name]
        present = column.dropna()
        if len(present) == 0 or not _DATE.fullmatch(str(present.iloc[0])):
            continue
        if all(_DATE.fullmatch(word) for word in present):
            dates = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
            if not dates.isna()[present.index].any():  # the 31st of June is a word
                frame = frame.assign(**{name: dates})
    return frame


def _parse(text: str, path: Path) -> tuple[str, list[list[str]]]:
    """The separator of the first line that cuts the next ones most alike, and their fields."""
    best: tuple[float, str, list[list[str]]] | None = None
    csv.field_size_limit(_MOST_BYTES)  # a long line without the separator is one field
    for separator in _SEPARATORS:
        try:
            reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
            lines = [line for line, _ in zip(reader, range(_SAMPLE_LINES), strict=False) if line]
        except csv.Error as error:
            raise TableError(f"{path} is not a table in text ({error}).") from error
        n_fields = len(lines[0])
        alike = sum(len(line) == n_fields for line in lines) / len(lines)
        score = 1.0 + alike if n_fields > 1 else 0.0
        if best is None or score > best[0]:
            best = score, separator, lines
    assert best is not None
    return best[1], best[2]


def _names(
    lines: list[list[str]], path: Path, reading: Reading
) -> tuple[list[str], tuple[str, ...]]:
    """Names of the columns, each once, and notes about them."""
    first = [cell.strip() for cell in lines[0]]
    if not reading.header:
        return [f"c{i + 1}" for i in range(len(first))], ()
    if len(lines) > 1 and len(lines[1]) > len(first):
        raise TableError(
            f"{path}: its first line names {count(len(first), 'column')} and the next has "
            f"{len(lines[1])} fields."
        )
    if all(_NUMBER.fullmatch(cell) for cell in first):
        raise TableError(
            f"{path}: its first line holds numbers and not names of columns; add a line of names, "
            "or set --no-header."
        )
    places: dict[str, int] = {}
    for place, name in enumerate(first, 1):
        if name in places:
            raise TableError(
                f"{path}: the name {name!r} is that of columns {places[name]} and {place}; rename "
                "one of them."
            )
        places[name] = place
        if not name and place > 1:
            raise TableError(f"{path}: column {place} has no name.")
    notes = ("the first column has no name and is left out",) if first[0] == "" else ()
    return first, notes


def _reason(message: str, n_names: int) -> str:
    found = re.search(r"Expected \d+ fields in line (\d+), saw (\d+)", message)
    if found:
        return f"line {found[1]} has {found[2]} fields, and there are names for {n_names}."
    if "EOF inside string" in message:
        return "a quotation mark is opened and never closed."
    if "Length of header" in message:
        return f"there are lines with more than {n_names} fields."
    return f"it is not a table in text ({' '.join(message.split())})."
