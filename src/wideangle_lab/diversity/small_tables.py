r"""Small tables: the default classifier with and without repulsion, many splits in parallel.

All splits, arms and chains of a table are one compiled program: a chain carries the numbers of its
split and of its arm, and looks up rows and prior by them. Model, sampler and warm-up are those of
:func:`wideangle.mixture_of_experts.sampling.fit_mcmc`, with chains of a fixed length and one step
size for all. Arms differ only in the prior of the directions of the deviations, in the gate and in
the experts:

``none``
    independent directions;
``mutual-angular c``
    the mutual-angular prior with expected cosine c; 0.2 is the default of the classifier;
``determinant g``
    :math:`\det(C)^{g p/2}`, C the cosines between the K directions in p dimensions. One pair of
    uniform directions has density :math:`(1 - c^2)^{(p-3)/2}` of their cosine, so g is the factor
    by which the prior adds dimensions. It forbids near-copies; the mutual-angular prior does not;
``pairwise g``
    :math:`\prod_{i<j} (1 - c_{ij})^{g p/2}`: it forbids near-copies, too, and favours opposites.

``python -m wideangle_lab.diversity.small_tables RECORD [--tables ...]`` measures tables that
are not in the record.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from wideangle.convergence import share_divergent
from wideangle.diagnostics import summarise
from wideangle.infer.run import Run, run
from wideangle.mixture_of_experts.classes import experts_for
from wideangle.mixture_of_experts.coordinates import (
    Point,
    Priors,
    Problem,
    Setting,
    as_weights,
    point_of,
    scales_of,
    weights_of,
)
from wideangle.mixture_of_experts.data import Data, scattered
from wideangle.mixture_of_experts.likelihood import ExpertLikelihood, Pair, Weights, predict
from wideangle.mixture_of_experts.prepare import learn_scaling, usual_extreme
from wideangle.mixture_of_experts.sampling import N_TYPICAL, SAMPLERS
from wideangle.mixture_of_experts.whitened import Typical, fisher_whitening, refine
from wideangle.posterior import evenly
from wideangle.priors.components import MEAN_SCALE, HierarchicalComponents
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.types import Array, Components, Key, Scalar
from wideangle_lab.bench.defaults.tables import TABLES, Parts
from wideangle_lab.machine import describe
from wideangle_lab.paper.records import write_json

N_EXPERTS, N_SPLITS, N_CHAINS = 5, 20, 4
N_WARMUP, N_DRAWS, THIN = 500, 1500, 4
SMALL = ("iris", "wine", "cancer", "birthwt", "crabs", "glass", "pima", "biopsy", "mroz",
         "fishing", "adult300")  # fmt: skip
"""Tables of the panel of default fits with at most 1,000 training rows."""
MOST_TEST = 2000
"""Maximum number of test rows of a split, drawn at random."""
NONE = "none"
DEFAULT = "mutual-angular 0.2"
ARMS = (NONE, DEFAULT, "determinant 1", "determinant 4", "pairwise 0.5", "pairwise 2")
METHOD = SAMPLERS["hmc"]
RIDGE = 1e-4
"""Added to the diagonal of the cosines, which are singular if directions outnumber dimensions, and
to one minus a cosine."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["directions", "scale", "common_scale", "exponent", "pairs"],
    meta_fields=["n_components", "dim", "common", "mean_scale"],
)
@dataclass(frozen=True)
class Repelling(HierarchicalComponents):
    """The default prior, also with powers of the determinant of the cosines and of the pairs."""

    exponent: Any = 0.0
    """Of the determinant."""
    pairs: Any = 0.0
    """The exponent of one minus the cosine of each pair."""

    def log_ratio_to_gaussian(self, deviations: Array) -> Scalar:
        """Log density of the deviations relative to independent normals, up to a constant."""
        units = Components.from_vectors(deviations).directions
        cosines = units @ units.T
        _, log_volume = jnp.linalg.slogdet(cosines + RIDGE * jnp.eye(self.n_components))
        gaps = jnp.maximum(1.0 - cosines, 0.0) + RIDGE
        apart = jnp.sum(jnp.triu(jnp.log(gaps), 1))
        usual = super().log_ratio_to_gaussian(deviations)
        return usual + self.exponent * log_volume + self.pairs * apart


def prior_of(arm: str, size: int, common: bool, mean_scale: float = MEAN_SCALE) -> Repelling:
    """The prior of an arm."""
    kind, _, strength = arm.partition(" ")
    number = np.float32(strength or 0.0)
    cosine = number if kind == "mutual-angular" else np.float32(0.0)
    power = np.float32(number * size / 2)
    directions = MutualAngular.from_cosine(N_EXPERTS, size, cosine, "I")
    return Repelling(
        N_EXPERTS,
        size,
        common,
        directions,
        mean_scale=mean_scale,
        exponent=power if kind == "determinant" else np.float32(0.0),
        pairs=power if kind == "pairwise" else np.float32(0.0),
    )


class Study(NamedTuple):
    """All splits of a table (leading axis), and the priors of all arms (leading axis)."""

    data: Data
    test: Array
    test_targets: Array
    priors: Priors


class Place(NamedTuple):
    """The split and the arm of a chain."""

    split: Array
    arm: Array


class Trial(NamedTuple):
    """State of one chain."""

    state: Any
    place: Place


def load_split(name: str, seed: int) -> Parts:
    """A split of a table, with a limited number of test rows."""
    parts = TABLES[name].load(seed)
    n_test = len(parts.y_test)
    if n_test <= MOST_TEST:
        return parts
    chosen = np.random.default_rng(seed).choice(n_test, MOST_TEST, replace=False)
    return parts._replace(test=parts.test[chosen], y_test=parts.y_test[chosen])


def study_of(parts: Sequence[Parts], arms: Sequence[str], expert: ExpertLikelihood) -> Study:
    """Rows of all splits, scaled as in the classifier."""
    prepared = []
    for part in parts:
        train, test = (X.toarray() if sp.issparse(X) else X for X in (part.train, part.test))
        weights = np.ones(len(train), np.float32)
        scaling = learn_scaling(train, weights, standardise=True)
        scaling = scaling._replace(limit=usual_extreme(len(train)))
        rows = [scaling.apply(X) for X in (train, test)]
        kinds = [y.astype(np.int32) for y in (part.y_train, part.y_test)]
        prepared.append((Data(rows[0], kinds[0], weights), rows[1], kinds[1]))
    n_columns = prepared[0][1].shape[1]
    sizes = n_columns, n_columns * expert.n_outputs
    scale = 1.0 / math.sqrt(n_columns)  # the default, see HierarchicalComponents
    priors = [
        Pair(*(prior_of(arm, *one, scale) for one in zip(sizes, (False, True), strict=True)))
        for arm in arms
    ]
    data, test, targets = map(_stacked, zip(*prepared, strict=True))
    return Study(data, test, targets, _stacked(priors))


def _stacked(parts: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)


def _at(tree: Any, index: Array) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def starts_of(key: Key, study: Study, expert: ExpertLikelihood, n_arms: int) -> Point:
    """Starts of all chains, as in the classifier: experts scattered around one regression."""
    priors, found = _at(study.priors, 0), []
    for split, one in enumerate(jax.random.split(key, study.test.shape[0])):
        data = Data(*map(np.asarray, _at(study.data, split)))
        gate, experts = scattered(one, expert.start(data), data, N_CHAINS, N_EXPERTS)
        weights = as_weights(gate, experts, expert.n_outputs)
        found += [weights] * n_arms
    weights = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *found)
    return jax.jit(jax.vmap(partial(point_of, priors)))(weights)


def run_study(key: Key, study: Study, expert: ExpertLikelihood) -> Run:
    """Two stages of warm-up and the draws, for all chains; chains of a fit are adjacent."""
    n_splits = study.test.shape[0]
    n_arms = jax.tree.leaves(study.priors)[0].shape[0]
    n_fits = n_splits * n_arms
    keys = jax.random.split(key, 3)
    start = starts_of(keys[0], study, expert, n_arms)
    places = Place(*(x.ravel() for x in jnp.divmod(jnp.arange(n_fits), n_arms)))
    chains = jax.tree.map(lambda leaf: jnp.repeat(leaf, N_CHAINS), places)

    @jax.jit
    def describe_points(points: Point) -> Typical:
        priors = _at(study.priors, 0)
        return jax.vmap(lambda x: Typical(weights_of(priors, x, expert), scales_of(priors, x)))(
            points
        )

    typical = jax.tree.map(
        lambda leaf: leaf.reshape(n_fits, N_CHAINS, *leaf.shape[1:]), describe_points(start)
    )
    first = _stage(keys[1], study, expert, chains, start, typical, None)(
        n_warmup=N_WARMUP // 2, n_draws=N_WARMUP // 4
    )
    values = first.draws.values
    by_fit = jax.tree.map(lambda leaf: leaf.reshape(n_fits, N_CHAINS, *leaf.shape[1:]), values)
    chosen = evenly(first.draws.n_draws, N_TYPICAL)
    typical = Typical(
        *jax.tree.map(
            lambda leaf: leaf[:, :, chosen].reshape(n_fits, -1, *leaf.shape[3:]),
            (by_fit["weights"], by_fit["scales"]),
        )
    )
    last = jax.tree.map(lambda leaf: jnp.asarray(leaf[:, -1]), values["weights"])
    start = jax.jit(jax.vmap(partial(point_of, _at(study.priors, 0))))(last)
    second = _stage(keys[2], study, expert, chains, start, typical, by_fit)
    return second(n_warmup=N_WARMUP // 2, n_draws=N_DRAWS // THIN, thin=THIN)


def _stage(
    key: Key,
    study: Study,
    expert: ExpertLikelihood,
    chains: Place,
    start: Point,
    typical: Typical,
    draws: Any,
) -> Any:
    """Chains from given starts, in the coordinates of their fit."""
    n_fits = len(chains.split) // N_CHAINS

    def whitening_of(place: Place, typical: Typical, draws: Any) -> Any:
        priors, data = _at(study.priors, place.arm), _at(study.data, place.split)
        found = fisher_whitening(priors, typical, expert, data)
        return found if draws is None else refine(found, priors, draws)

    fits = jax.tree.map(lambda leaf: leaf[::N_CHAINS], chains)
    whitenings = jax.jit(jax.vmap(whitening_of))(fits, typical, draws)
    n_arms = n_fits // study.test.shape[0]

    def setting(place: Place, data: tuple[Study, Any]) -> Setting:
        study, whitenings = data
        problem = Problem(_at(study.priors, place.arm), expert, _at(study.data, place.split))
        return Setting(problem, _at(whitenings, place.split * n_arms + place.arm))

    def recipe(steps: dict[str, Scalar], data: Any) -> Any:
        def update(key: Key, trial: Trial) -> tuple[Trial, Any]:
            move = METHOD.recipe(steps, setting(trial.place, data))
            state, info = move(key, trial.state)
            return trial._replace(state=state), info

        return update

    def collect(trial: Trial, data: Any) -> dict[str, Any]:
        study, _ = data
        draw = METHOD.collect(trial.state, setting(trial.place, data))
        if draws is None:
            return draw
        weights: Weights = draw["weights"]
        rows, targets = (_at(part, trial.place.split) for part in study[1:3])
        chances = predict(expert, weights, rows)
        right = jnp.take_along_axis(chances, targets[:, None], axis=1)[:, 0]
        return {"right": right, "log_lik": draw["log_lik"], "scales": draw["scales"]}

    data = study, whitenings

    @jax.jit
    def begin(points: Point, chains: Place, data: Any) -> Trial:
        def one(x: Point, place: Place) -> Trial:
            return Trial(METHOD.enter(x, setting(place, data)), place)

        return jax.vmap(one)(points, chains)

    return partial(
        run,
        key,
        recipe,
        begin(start, chains, data),
        n_chains=len(chains.split),
        steps=METHOD.steps,
        targets=METHOD.targets,
        collect=collect,
        data=data,
        verbose=False,
    )


def measure(name: str, arms: Sequence[str] = ARMS, n_splits: int = N_SPLITS) -> dict[str, Any]:
    """Log-loss of every split and arm of a table, and convergence of its chains."""
    began = time.perf_counter()
    parts = [load_split(name, seed) for seed in range(n_splits)]
    expert = experts_for(len(np.unique(parts[0].y_train)))
    study = study_of(parts, arms, expert)
    found = run_study(jax.random.key(0), study, expert)
    shape = n_splits, len(arms), N_CHAINS
    values = jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(*shape, *leaf.shape[1:]), found.draws.values
    )
    right = values["right"]
    losses = -np.log(np.clip(right.mean(axis=(2, 3)), 1e-6, None)).mean(axis=-1)
    rhats = np.array(
        [[_worst_rhat(right[s, a]) for a in range(len(arms))] for s in range(n_splits)]
    )
    return {
        "arms": list(arms),
        "n_train": len(parts[0].y_train),
        "n_test": len(parts[0].y_test),
        "n_columns": int(study.test.shape[-1]),
        "n_classes": expert.n_outputs + 1 if expert.n_outputs == 1 else expert.n_outputs,
        "log_loss": np.round(losses, 6).tolist(),
        "rhat": np.round(rhats, 4).tolist(),
        "scale": {k: np.round(v.mean((0, 2, 3)), 4).tolist() for k, v in values["scales"].items()},
        "acceptance": {k: float(v) for k, v in found.acceptance.items()},
        "divergent": round(share_divergent(found.draws.stats) * right[..., 0].size),
        "seconds": round(time.perf_counter() - began, 1),
    }


def _worst_rhat(right: np.ndarray) -> float:
    """Largest R-hat of eight test rows and of the mean log probability of all."""
    rows = evenly(right.shape[-1], 8)
    watched = {f"row {i}": right[..., i] for i in rows}
    watched["mean"] = np.log(np.clip(right, 1e-6, None)).mean(axis=-1)
    return float(np.nanmax(summarise(watched)["rhat"]))


def main() -> None:
    """Measure the tables that are missing in the record."""
    parser = argparse.ArgumentParser(description="Repulsion on small tables, with and without.")
    parser.add_argument("record", type=Path)
    parser.add_argument("--tables", nargs="*", default=SMALL)
    parser.add_argument("--splits", type=int, default=N_SPLITS)
    parser.add_argument("--arms", nargs="*", default=ARMS)
    asked = parser.parse_args()
    record: dict[str, Any] = {"tables": {}}
    if asked.record.exists():
        record = json.loads(asked.record.read_text(encoding="utf-8"))
    for name in asked.tables:
        if name in record["tables"]:
            continue
        found = measure(name, asked.arms, asked.splits)
        stamp = describe() | {"device": jax.devices()[0].device_kind}
        record["tables"][name] = {**found, "stamp": stamp}
        write_json(asked.record, record)
        print(f"{name}: {found['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
