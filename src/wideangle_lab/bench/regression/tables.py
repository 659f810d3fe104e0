"""Real tables with a quantity to predict.

All but one come with R and are read as those of :mod:`wideangle_lab.bench.defaults.tables`; columns
that reveal the quantity are dropped. No quantity is transformed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from wideangle_lab.bench.defaults.tables import Csv, Parts, Table, columns_of, frame_of
from wideangle_lab.datasets.dataset import TRAIN_FRACTION

MOST_ROWS = 2500
"""Largest number of rows used, evenly spaced; also the limit of the Gaussian process."""


def split(X: Any, y: Any, seed: int) -> Parts:
    """Training and test rows by a seed."""
    X, test, y, y_test = train_test_split(X, y, train_size=TRAIN_FRACTION, random_state=seed)
    return Parts(X, y, test, y_test)


def of_r(source: Csv, seed: int) -> Parts:
    """One of R's tables."""
    frame = frame_of(source)
    frame = frame.iloc[:: -(-len(frame) // MOST_ROWS)]
    (target,) = source.target
    return split(columns_of(frame.drop(columns=target)), frame[target].to_numpy(float), seed)


def diabetes(seed: int) -> Parts:
    """The table of scikit-learn."""
    X, y = load_diabetes(return_X_y=True)
    return split(X, y, seed)


R_TABLES = {
    "mcycle": ("Motorcycle, acceleration", Csv(("MASS/mcycle",), ("accel",))),
    "geyser": ("Geyser, waiting time", Csv(("MASS/geyser",), ("waiting",))),
    "engel": ("Engel, food expenditure", Csv(("quantreg/engel",), ("foodexp",))),
    "gagurine": ("Urine of children, GAG", Csv(("MASS/GAGurine",), ("GAG",))),
    "cpus": ("Computers, performance", Csv(("MASS/cpus",), ("perf",), ("name", "estperf"))),
    "weight": ("Weight at birth", Csv(("MASS/birthwt",), ("bwt",), ("low",), ("race",))),
    "salaries": ("Professors, salary", Csv(("car/Salaries",), ("salary",))),
    "boston": ("Boston, value of homes", Csv(("MASS/Boston",), ("medv",))),
    "ozone": ("Ozone in New York", Csv(("lattice/environmental",), ("ozone",))),
    "schools": ("Schools, language test", Csv(("MASS/nlschools",), ("lang",), ("class",))),
    "slid": ("Canada, wages", Csv(("car/SLID",), ("wages",))),
    "prices": ("Personal computers, price", Csv(("Ecdat/Computers",), ("price",))),
}
QUANTITIES = {
    "diabetes": Table("Diabetes, progression", diabetes, False, quantity=True),
    **{
        name: Table(title, partial(of_r, source), False, quantity=True)
        for name, (title, source) in R_TABLES.items()
    },
}
"""Tables by their name on the command line; small ones first."""
