"""The cells of a table, by the number of the paper's table or the name of a suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

from wideangle.checks import check_choice
from wideangle_lab.datasets.loaders import RCV1_SAMPLES
from wideangle_lab.paper import classifiers, features
from wideangle_lab.paper.baselines import BASELINES
from wideangle_lab.paper.cells import CLASSIFIERS, FEATURES, Cell
from wideangle_lab.paper.efforts import N_SPLITS, effort_of
from wideangle_lab.paper.feature_methods import FEATURE_ROWS, LABELLED, UNLABELLED, feature_cells
from wideangle_lab.paper.made import MADE_TEXT
from wideangle_lab.paper.methods import ROWS
from wideangle_lab.paper.records import Outcome, Record, Tunings

EXPERTS = (5, 10, 20, 30)
DATA = ("adult9", "building", "rcv1_subsets")


@dataclass(frozen=True)
class Choice:
    """The user's selection; empty means the default of the suite."""

    data: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    experts: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    level: str = "usual"
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Parts of the effort."""


class Table(NamedTuple):
    """A table of the paper: its title and its cells."""

    title: str
    suite: str | None
    choice: Choice
    made: str
    """Generated data for quick runs without files."""


BAYESIAN_30 = ("BMEM-DPP", "BMEM-MABN-I", "BMEM-MABN-II", "BMEM-PR")
TWO = ("adult9", "building")
_CATEGORIES = Choice(
    ("rcv1_subsets",), ("BMEM-G", "BMEM-MABN-I", "BMEM-V", "BMEM-V-VI", "BMEM-MABN-II"), (10,)
)
_ALL_FEATURES = Choice((*UNLABELLED, *LABELLED))
TABLES: dict[int, Table] = {
    1: Table("Accuracy on Adult-9", CLASSIFIERS, Choice(("adult9",), tuple(ROWS)), "experts"),
    2: Table("Accuracy on Building", CLASSIFIERS, Choice(("building",), tuple(ROWS)), "experts"),
    3: Table("Accuracy on nine subcategories of RCV1", CLASSIFIERS, _CATEGORIES, "experts"),
    4: Table(
        "Against other classifiers", CLASSIFIERS, Choice(TWO, (*BASELINES, *BAYESIAN_30), (30,)),
        "experts",
    ),
    5: Table("Training time at K = 30", CLASSIFIERS, Choice(TWO, BAYESIAN_30, (30,)), "experts"),
    6: Table("Statistics of the data sets", None, Choice(), ""),
    7: Table("L2 error on held-out rows", FEATURES, Choice(UNLABELLED), "block_images"),
    8: Table("Likelihood of held-out rows", FEATURES, Choice(UNLABELLED), "block_images"),
    9: Table("Clustering accuracy", FEATURES, Choice(LABELLED), MADE_TEXT),
    10: Table("Normalised mutual information", FEATURES, Choice(LABELLED), MADE_TEXT),
    11: Table("Number of features", FEATURES, _ALL_FEATURES, "block_images"),
    12: Table("Precision at 100 by category of Reuters", FEATURES, Choice(("reuters",)), MADE_TEXT),
    13: Table("Words of features of 20-News", FEATURES, Choice(("news20",)), MADE_TEXT),
}  # fmt: skip
"""Titles are ours."""


def classifier_cells(choice: Choice) -> list[Cell]:
    """All rows at all K, and the baselines, which have no K."""
    known = (*BASELINES, *ROWS)
    for method in choice.methods:
        check_choice("method", method, (*known, *FEATURE_ROWS))
    effort = effort_of(CLASSIFIERS, choice.level, choice.changes)
    methods = [one for one in choice.methods or known if one in known]
    cells = []
    for data, method, seed in product(_expand(choice.data or DATA), methods, _seeds(choice)):
        sizes = (0,) if method in BASELINES else choice.experts or EXPERTS
        cells += [Cell(CLASSIFIERS, data, method, size, seed, effort=effort) for size in sizes]
    return sorted(cells, key=_cheap_first)


def latent_feature_cells(choice: Choice) -> list[Cell]:
    """Every row of latent features on every data set."""
    known = (*BASELINES, *ROWS, *FEATURE_ROWS)
    for method in choice.methods:
        check_choice("method", method, known)
    methods = tuple(one for one in choice.methods or FEATURE_ROWS if one in FEATURE_ROWS)
    cells = [
        cell
        for name in (choice.data or (*UNLABELLED, *LABELLED)) * bool(methods)
        for cell in feature_cells(
            (name,),
            methods,
            _seeds(choice),
            effort_of(FEATURES, choice.level, choice.changes, name),
        )
    ]
    # All rows of a seed before the next seed.
    return sorted(cells, key=lambda cell: (cell.seed, methods.index(cell.method)))


SUITES: dict[str, Callable[[Choice], list[Cell]]] = {
    CLASSIFIERS: classifier_cells,
    FEATURES: latent_feature_cells,
}
EXECUTE: dict[str, Callable[[Cell, Tunings], Outcome]] = {
    CLASSIFIERS: classifiers.execute,
    FEATURES: features.execute,
}
HEADLINE: dict[str, Callable[[Record], str]] = {
    CLASSIFIERS: classifiers.headline,
    FEATURES: features.headline,
}
ALL = "all"


def numbers_of(names: Sequence[str]) -> list[int]:
    """The tables among the names; ``all`` is all of them."""
    for name in names:
        check_choice("table", name, (ALL, *map(str, TABLES), *SUITES))
    if ALL in names:
        return list(TABLES)
    return sorted({int(name) for name in names if name not in SUITES})


def cells_of(names: Sequence[str], choice: Choice) -> list[Cell]:
    """Cells of suites and tables, without repeats; the user's selection overrides defaults."""
    cells: list[Cell] = []
    for number in numbers_of(names):
        cells += table_cells(number, choice)
    for name in names:
        if name in SUITES:
            cells += SUITES[name](choice)
    return list({cell.path: cell for cell in cells}.values())


def table_cells(number: int, choice: Choice) -> list[Cell]:
    """Cells of one table of the paper; a quick one without given data uses generated rows."""
    table = TABLES[number]
    if table.suite is None:
        return []
    preset = table.choice
    if choice.level == "quick":
        preset = replace(preset, data=(table.made,), experts=preset.experts and (5,))
    given = {
        name: getattr(choice, name)
        for name in ("data", "methods", "experts", "seeds")
        if getattr(choice, name)
    }
    if "data" in given and table.choice.data:
        given["data"] = tuple(
            name for name in given["data"] if name in (*table.choice.data, table.made)
        )
        if not given["data"]:
            return []
    return SUITES[table.suite](replace(preset, level=choice.level, changes=choice.changes, **given))


def _seeds(choice: Choice) -> tuple[int, ...]:
    return choice.seeds or tuple(range(N_SPLITS[choice.level]))


def _expand(names: Iterable[str]) -> list[str]:
    """RCV1 has four samples with different terms."""
    expanded: list[str] = []
    for name in names:
        whole = name == "rcv1_subsets"
        expanded += [f"{name}.{sample}" for sample in RCV1_SAMPLES] if whole else [name]
    return expanded


def _cheap_first(cell: Cell) -> tuple[Any, ...]:
    order = ("map", "vi", "mcmc")
    place = order.index(ROWS[cell.method]["inference"]) if cell.method in ROWS else -1
    known = _expand(DATA)
    return (
        cell.seed, place, cell.n_experts,
        known.index(cell.data) if cell.data in known else len(known),
    )  # fmt: skip
