"""Which cells a table has: by the names of our suites, or by the numbers of the paper's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from wideangle.checks import check_choice
from wideangle.datasets.loaders import RCV1_SAMPLES
from wideangle.paper import classifiers, features
from wideangle.paper.baselines import BASELINES
from wideangle.paper.cells import FULL, Cell, Effort
from wideangle.paper.feature_methods import feature_cells
from wideangle.paper.methods import ROWS
from wideangle.paper.records import Outcome

EXPERTS = (5, 10, 20, 30)
DATA = ("adult9", "building", "rcv1_subsets")

PRIORS: dict[str, dict[str, Any]] = {
    "gaussian-0.1": {"prior": "gaussian", "scale": 0.1},
    "gaussian-0.3": {"prior": "gaussian", "scale": 0.3},
    "gaussian-1": {"prior": "gaussian", "scale": 1.0},
    "vmf": {"prior": "vmf"},
    "mutual-angular-0.2": {"prior": "mutual-angular", "cosine": 0.2, "kind": "I"},
    "mutual-angular-0.5": {"prior": "mutual-angular", "cosine": 0.5, "kind": "I"},
}
"""Arms of the study of little data; all by sampling. Every strength is shown, none is chosen."""
REFERENCE = "vmf"
"""What the arms are compared with: learned lengths, no repulsion."""
SMALL_SIZES, SMALL_EXPERTS, SMALL_SEEDS = (200, 500, 2000), (5, 20), tuple(range(8))


@dataclass(frozen=True)
class Choice:
    """What a user asks for; empty means the default of the suite."""

    data: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    experts: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    effort: Effort = FULL


def classifier_cells(choice: Choice) -> list[Cell]:
    """All rows at all K, and the baselines, which have no K."""
    methods = choice.methods or (*BASELINES, *ROWS)
    for method in methods:
        check_choice("method", method, (*BASELINES, *ROWS))
    cells = []
    for data, method, seed in product(_expand(choice.data or DATA), methods, choice.seeds or (0,)):
        sizes = (0,) if method in BASELINES else choice.experts or EXPERTS
        cells += [
            Cell("classifiers", data, method, size, seed, effort=choice.effort) for size in sizes
        ]
    return sorted(cells, key=_cheap_first)


def small_data_cells(choice: Choice) -> list[Cell]:
    """Where does diversity help: few rows, three priors, paired by seed."""
    arms = choice.methods or tuple(PRIORS)
    for arm in arms:
        check_choice("method", arm, PRIORS)
    groups = product(
        _expand(choice.data or ("adult9",)),
        choice.sizes or SMALL_SIZES,
        choice.experts or SMALL_EXPERTS,
        arms,
        choice.seeds or SMALL_SEEDS,
    )
    # Seeds are innermost: neighbours share a compiled program.
    return [
        Cell(
            "small-data",
            data,
            arm,
            n_experts,
            seed,
            size,
            choice.effort,
            {**PRIORS[arm], "inference": "mcmc"},
        )
        for data, size, n_experts, arm, seed in groups
    ]


SUITES: dict[str, Callable[[Choice], list[Cell]]] = {
    "classifiers": classifier_cells,
    "small-data": small_data_cells,
    "features": lambda choice: feature_cells(
        choice.data, choice.methods, choice.seeds, choice.effort
    ),
}
EXECUTE: dict[str, Callable[[Cell, Path], Outcome]] = {
    "classifiers": classifiers.execute,
    "small-data": classifiers.execute,
    "features": features.execute,
}

BAYESIAN_30 = ("BMEM-DPP", "BMEM-MABN-I", "BMEM-MABN-II", "BMEM-PR")
TABLES: dict[str, Choice] = {
    "1": Choice(data=("adult9",), methods=tuple(ROWS)),
    "2": Choice(data=("building",), methods=tuple(ROWS)),
    "3": Choice(data=("rcv1_subsets",), methods=("BMEM-G", "BMEM-MABN-I", "BMEM-V")),
    "4": Choice(("adult9", "building"), (*BASELINES, *BAYESIAN_30), (30,)),
    "5": Choice(("adult9", "building"), BAYESIAN_30, (30,)),
}
"""The paper's tables by number; all of them are parts of the suite of classifiers."""


def cells_of(names: Sequence[str], choice: Choice) -> list[Cell]:
    """Cells of suites and tables, each once; what the user chooses goes before the defaults."""
    cells: list[Cell] = []
    for name in names:
        check_choice("table", name, (*SUITES, *TABLES))
        if name in SUITES:
            cells += SUITES[name](choice)
            continue
        preset = TABLES[name]
        given = {
            field: getattr(choice, field)
            for field in ("data", "methods", "experts", "seeds")
            if getattr(choice, field)
        }
        cells += classifier_cells(replace(preset, effort=choice.effort, **given))
    return list({cell.path: cell for cell in cells}.values())


def _expand(names: Iterable[str]) -> list[str]:
    """RCV1 is four samples with terms of their own."""
    expanded: list[str] = []
    for name in names:
        whole = name == "rcv1_subsets"
        expanded += [f"{name}.{sample}" for sample in RCV1_SAMPLES] if whole else [name]
    return expanded


def _cheap_first(cell: Cell) -> tuple[Any, ...]:
    order = ("map", "vi", "mcmc")
    place = order.index(ROWS[cell.method]["inference"]) if cell.method in ROWS else -1
    known = _expand(DATA)
    return place, cell.n_experts, known.index(cell.data) if cell.data in known else len(known)
