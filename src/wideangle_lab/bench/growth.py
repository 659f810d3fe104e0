"""How time and peak memory grow with rows, columns and components.

One size grows at a time, by doubling, from a common base. The exponent is the slope of the
logarithm of the cost against the logarithm of the size. Memory is that of a new process, minus
that of the same work at a tiny size (code).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wideangle_lab.bench.harness import Settings, Size
from wideangle_lab.bench.probe import Cost, Task, probe
from wideangle_lab.bench.record import OURS, Case, Curve, Series
from wideangle_lab.bench.works import WORKS

STEEPEST = 1.1
"""Largest allowed exponent in the number of rows."""
BASE, SMALL = Size(32_768, 48, 16), Size(1024, 12, 4)
TINY = Size(256, 12, 4)
FACTORS = (1, 2, 4, 8)
REPEATS = 3
ONLY_TIME = ("dense gradient", "sparse gradient")
"""Works whose memory is mostly that of their data."""
NOTE = (
    "Growth: exponent is the slope of the logarithm of the cost against the logarithm of one size, "
    "the others at N={rows:,}, D=p={columns}, K={components}; in brackets the middle half of the "
    "repeats. Time is CPU time of one thread. Memory is the peak of a fresh process that has "
    "compiled, data included, above that of a tiny problem."
)


def measure(settings: Settings) -> list[Case]:
    """Exponents of time and memory for every work and axis."""
    base = SMALL if settings.quick else BASE
    works = ["sparse gradient"] if settings.quick else list(WORKS)
    axes = ("rows",) if settings.quick else Size._fields
    lines = {axis: sizes_along(base, axis) for axis in axes}
    # The base is a point of every axis and is measured once.
    sizes = dict.fromkeys([TINY, *(size for line in lines.values() for size in line)])
    costs = probe(
        [Task(work, size) for work in works for size in sizes], settings.seed, settings.repeats
    )
    timed = [
        case(f"time of {work}", "s", axis, line, times(costs, work, line))
        for work in works
        for axis, line in lines.items()
    ]
    return timed + [
        case(f"memory of {work}", "bytes", axis, line, peaks(costs, work, line))
        for work in works
        if settings.quick or work not in ONLY_TIME
        for axis, line in lines.items()
    ]


def sizes_along(base: Size, axis: str) -> list[Size]:
    """The base with one size multiplied."""
    return [base._replace(**{axis: factor * getattr(base, axis)}) for factor in FACTORS]


def times(costs: Mapping[Task, Cost], work: str, line: Sequence[Size]) -> list[Series]:
    """Seconds at every size."""
    return [Series(tuple(costs[Task(work, size)].seconds)) for size in line]


def peaks(costs: Mapping[Task, Cost], work: str, line: Sequence[Size]) -> list[Series]:
    """Bytes above those of a tiny problem."""
    tiny = costs[Task(work, TINY)].peak
    # At least a megabyte: smaller differences are noise of the allocator.
    return [Series((float(max(costs[Task(work, size)].peak - tiny, 2**20)),)) for size in line]


def case(name: str, unit: str, axis: str, line: Sequence[Size], values: list[Series]) -> Case:
    """A curve and its exponent; only growth with the number of rows has a limit."""
    lengths = tuple(float(getattr(size, axis)) for size in line)
    curve = Curve(axis, lengths, tuple(values), unit, STEEPEST if axis == "rows" else None)
    note = NOTE.format(**line[0]._asdict())
    return Case(name, "exponent", {OURS: curve.slopes()}, note=note, curve=curve)
