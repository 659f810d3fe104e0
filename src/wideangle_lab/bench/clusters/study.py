"""Scores against the number of clusters, with and without repulsion.

For every corpus, split, inference and number of clusters, the strength of the repulsion (which may
be zero) is the one with the highest log density on a quarter of the training rows. The model is
then fitted to all training rows with this strength and without repulsion.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from joblib import Parallel, delayed
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import train_test_split

from wideangle import (
    Maximise,
    MutualAngularPrior,
    SphericalMixture,
    Variational,
    VonMisesFisherPrior,
)
from wideangle.sphere.vmf import log_area
from wideangle_lab.bench.clusters import chains, disk, speed
from wideangle_lab.bench.clusters.corpora import SIMULATED, TITLES, Parts, parts_of
from wideangle_lab.bench.record import to_json
from wideangle_lab.datasets import DataNotFoundError
from wideangle_lab.machine import describe
from wideangle_lab.paper.records import write_json

INFERENCES = {"map": Maximise, "vi": Variational}
SAMPLED = "mcmc"
PARTS = ("study", "chains", "convergence", "speed", "disk")
"""``chains`` is for a GPU; ``disk`` needs 4 GB for its file."""
Cells = dict[str, dict[str, Any]]
N_STARTS = 3
RARE = 1 / 3
"""Share of the classes, smallest first, that count as rare."""


class Size(NamedTuple):
    """Size of the study."""

    corpora: tuple[str, ...]
    clusters: tuple[int, ...]
    cosines: tuple[float, ...]
    """Candidate strengths; 0 is no repulsion."""
    inferences: tuple[str, ...]
    n_splits: int
    n_train: int
    n_test: int


FULL = Size(
    tuple(name for name in TITLES if name != SIMULATED),
    (10, 20, 50, 100, 200), (0.0, 0.1, 0.2, 0.4, 0.6, 0.8), ("map", "vi", SAMPLED), 5, 1500, 1500,
)  # fmt: skip
QUICK = Size((SIMULATED,), (3, 6), (0.0, 0.3), ("map", SAMPLED), 2, 120, 60)


class Cell(NamedTuple):
    """One measurement."""

    corpus: str
    split: int
    inference: str
    clusters: int

    @property
    def name(self) -> str:
        """Its key in the record."""
        return "/".join(map(str, self))


def run(
    output: Path,
    *,
    quick: bool,
    seed: int,
    only: Sequence[str] = (),
    again: bool = False,
    part: str | None = None,
    jobs: int = 1,
) -> dict[str, Any]:
    """Measure the missing cells and return the record; ``part`` is one of :data:`PARTS`."""
    if part not in (None, *PARTS):
        raise ValueError(f"no part {part!r}; the parts are {', '.join(PARTS)}.")
    size = QUICK if quick else FULL
    if unknown := [name for name in only if name not in size.corpora]:
        raise ValueError(f"no corpus {unknown[0]!r}; they are {', '.join(size.corpora)}.")
    record: dict[str, Any] = {"name": "clusters", "size": size._asdict(), "cells": {}, "stamps": {}}
    if output.exists():
        record |= json.loads(output.read_text(encoding="utf-8"))
    for name in [part] if part else PARTS:
        stamp = {"seed": seed, "jobs": jobs, **describe()}
        batches: Iterable[Cells] = [{}]
        if name == "speed":
            cases = speed.measure(quick=quick, seed=seed)
            record["speed"] = [to_json(case) for case in cases]
        elif name == "disk":
            record["disk"] = disk.measure(quick=quick, seed=seed)
        elif name == "convergence":
            record["convergence"] = convergence(size, only or size.corpora[:1], seed)
        else:
            known = {} if again else record["cells"]
            every = cells(size, seed, name, only or size.corpora)
            wanted = [cell for cell in every if cell.name not in known]
            batches = (sampled if name == "chains" else fitted)(wanted, size, jobs)
        for batch in batches:
            for key, cell in batch.items():
                print(f"{key}: {cell['seconds']} s", flush=True)
            record["cells"] |= batch
            stamp["finished"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
            record["stamps"][name] = stamp
            write_json(output, record)
    print(f"Record: {output}")
    return record


def cells(size: Size, seed: int, part: str, corpora: Sequence[str]) -> list[Cell]:
    """All cells; for each inference the longest first."""
    wanted = [name for name in size.inferences if (name == SAMPLED) == (part == "chains")]
    return [
        Cell(corpus, split, inference, clusters)
        for inference in wanted
        for clusters in sorted(size.clusters, reverse=True)
        for split in range(seed, seed + size.n_splits)
        for corpus in corpora
    ]


def fitted(wanted: Sequence[Cell], size: Size, jobs: int) -> Iterator[Cells]:
    """Run the cells of maximisation and variational inference one by one."""
    work = (delayed(measure)(cell, size) for cell in wanted)
    yield from Parallel(jobs, return_as="generator_unordered")(work)


def sampled(wanted: Sequence[Cell], size: Size, _: int) -> Iterator[Cells]:
    """Run the chains; those with the same number of clusters run at once."""
    for clusters in sorted({cell.clusters for cell in wanted}):
        mine = {cell: parts for cell in wanted if cell.clusters == clusters
                if (parts := parts_or_none(cell, size)) is not None}  # fmt: skip
        if not mine:
            continue
        with jax.enable_x64(True):
            every = [
                job
                for cell, parts in mine.items()
                for job in chains.jobs_of(parts, clusters, size.cosines, cell.split)
            ]
            found, seconds = chains.run(every, clusters)
        n = len(size.cosines)
        batch = {}
        for i, (cell, parts) in enumerate(mine.items()):
            inner, outer = (
                dict(zip(size.cosines, found[start : start + n], strict=True))
                for start in (2 * n * i, 2 * n * i + n)
            )
            values = {cosine: float(one.log_density.mean()) for cosine, one in inner.items()}

            def describe_one(cosine: float, outer: Any = outer, parts: Parts = parts) -> Any:
                one = outer[cosine]
                score = {"log_density": float(one.log_density.mean()), "used": float(one.used)}
                return score | agreement(one.labels, one.predicted, parts)

            batch[cell.name] = compared(values, describe_one, cell, parts, seconds / len(mine))
        yield batch


def convergence(size: Size, corpora: Sequence[str], seed: int) -> dict[str, Any]:
    """By corpus: chains of the study and longer ones, without repulsion and with some."""
    n_clusters, cosines = size.clusters[len(size.clusters) // 2], size.cosines[:2]
    found = {}
    for corpus in corpora:
        cell = Cell(corpus, seed, SAMPLED, n_clusters)
        if (parts := parts_or_none(cell, size)) is not None:
            values = chains.convergence(parts, n_clusters, cosines, seed)
            found[corpus] = {"clusters": n_clusters, "log_density": values}
    return found


def parts_or_none(cell: Cell, size: Size) -> Parts | None:
    """The rows of a cell, or None if the data are missing."""
    try:
        return parts_of(cell.corpus, cell.split, size.n_train, size.n_test)
    except DataNotFoundError:
        return None


def measure(cell: Cell, size: Size) -> Cells:
    """Scores of one cell, or None if the data are missing."""
    began = time.perf_counter()
    parts = parts_or_none(cell, size)
    if parts is None:
        return {}
    some, held_out = train_test_split(parts.train, test_size=0.25, random_state=cell.split)
    inner = {cosine: log_density(fit(cell, cosine, some), held_out) for cosine in size.cosines}
    found = compared(
        inner, lambda cosine: scores(fit(cell, cosine, parts.train), parts), cell, parts
    )
    return {cell.name: found | {"seconds": round(time.perf_counter() - began, 1)}}


def compared(
    inner: Mapping[float, float],
    score: Callable[[float], Mapping[str, float]],
    cell: Cell,
    parts: Parts,
    seconds: float = 0.0,
) -> dict[str, Any]:
    """Scores with the chosen strength, without repulsion, and of k-means."""
    chosen = max(inner, key=lambda cosine: inner[cosine])
    without = score(0.0)
    means = KMeans(cell.clusters, n_init=N_STARTS, random_state=cell.split).fit(parts.train)
    return {
        "inner": {f"{cosine:g}": value for cosine, value in inner.items()},
        "chosen": chosen,
        "without": without,
        "with": score(chosen) if chosen else without,
        "k-means": agreement(means.labels_, means.predict(parts.test), parts),
        "n_train": len(parts.train),
        "n_test": len(parts.test),
        "n_classes": len(np.unique(parts.y_train)),
        "seconds": round(seconds, 1),
    }


def fit(cell: Cell, cosine: float, rows: np.ndarray) -> SphericalMixture:
    """A model with this strength."""
    prior = MutualAngularPrior(cosine=cosine) if cosine else VonMisesFisherPrior()
    inference = INFERENCES[cell.inference](n_starts=N_STARTS)
    model = SphericalMixture(
        cell.clusters, prior=prior, inference=inference, verbose=False, random_state=cell.split
    )
    return model.fit(rows)


def log_density(model: SphericalMixture, rows: np.ndarray) -> float:
    """Mean log density over rows, relative to the uniform distribution."""
    return model.score(rows) + log_area(rows.shape[1])


def scores(model: SphericalMixture, parts: Parts) -> dict[str, float]:
    """Scores on held-out rows."""
    found = agreement(model.labels_, model.predict(parts.test), parts)
    return {"log_density": log_density(model, parts.test), "used": model.n_used_, **found}


def agreement(fitted: np.ndarray, predicted: np.ndarray, parts: Parts) -> dict[str, float]:
    """Mutual information with the classes, and the recall of the rare ones.

    A cluster predicts the majority class of its training rows.
    """
    classes, y = np.unique(parts.y_train, return_inverse=True)
    table = np.zeros((max(fitted.max(), predicted.max()) + 1, len(classes)))
    np.add.at(table, (fitted, y), 1.0)
    said = classes[np.argmax(table, axis=1)][predicted]
    sizes = np.bincount(y)
    rare = classes[np.argsort(sizes, kind="stable")[: max(1, round(RARE * len(classes)))]]
    recalls = [np.mean(said[parts.y_test == c] == c) for c in rare if np.any(parts.y_test == c)]
    return {
        "nmi": float(normalized_mutual_info_score(parts.y_test, predicted)),
        "rare_recall": float(np.mean(recalls)) if recalls else 0.0,
    }
