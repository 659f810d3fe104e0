"""Fuzzed inputs by the thousand, counted: ``python -m robustness.fuzz experts --examples 5000``.

Parts: fits of both estimators, and model files of both that were damaged or forged. The outcome of
every input is "right" or "refused" (see ``properties.outcome``); anything else is a defect, is
printed, and ends the program with status 1. ``--out FOLDER`` writes ``fuzz-PART.json``.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import jax
import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

from robustness import altered, inputs, properties
from robustness.killing import write_record
from wideangle import LatentFeatureModel, MixtureOfExpertsClassifier

BETWEEN, MOST_MAPS = 20, 20_000
"""How often, and when, compiled programs are given up: the system allows some 65,000 maps."""
X = np.random.default_rng(0).normal(size=(12, 3))
Y = np.array([0, 1] * 6)
KINDS = {
    "experts": ("mixture-of-experts-classifier", MixtureOfExpertsClassifier),
    "features": ("latent-feature-model", LatentFeatureModel),
}


def n_maps() -> int:
    """Pieces of memory that the process has mapped, some for each compiled program."""
    return len(Path("/proc/self/maps").read_text().splitlines())


def small_model(part: str, name: str = "mcmc hmc") -> Any:
    """A fitted model whose file is altered; its shapes are those of the fuzzed fits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if part == "experts":
            model = MixtureOfExpertsClassifier().set_params(**inputs.expert_settings(name))
            return model.fit(X, Y)
        model = LatentFeatureModel().set_params(**inputs.feature_settings("gaussian"))
        return model.fit(10.0 * np.round(X))


def of_files(part: str, folder: Path, *model: str) -> tuple[Any, Callable[[Any], str]]:
    """Strategy and judge of altered model files."""
    kind, cls = KINDS[part]
    whole, target = folder / "whole", folder / "altered"
    small_model(part, *model).save(whole)
    content = whole.read_bytes()
    check = properties.check_experts if part == "experts" else properties.check_features

    def judge(alteration: Any) -> str:
        wrong = set()
        if callable(alteration):
            target.write_bytes(alteration(content))
            wrong = {"damaged"} if target.read_bytes() != content else set()
        elif not altered.forge(whole, target, kind, alteration):
            return "cannot be written"
        return properties.outcome(lambda: check(cls.load(target), X), wrong)

    return hypothesis.strategies.one_of(altered.damages(), altered.forgeries()), judge


def of_fits(cases: Any, answer: Callable[[Any], None]) -> tuple[Any, Callable[[Any], str]]:
    """Strategy and judge of fuzzed fits."""
    return cases, lambda case: properties.outcome(partial(answer, case), case.wrong)


def part_of(name: str, folder: Path, shapes: inputs.Shapes) -> tuple[Any, Callable[[Any], str]]:
    """Strategy and judge by name."""
    if name == "experts":
        return of_fits(inputs.expert_cases(shapes=shapes), properties.experts_answer)
    if name == "features":
        return of_fits(inputs.feature_cases(shapes=shapes), properties.features_answer)
    return of_files(name.removesuffix("-files"), folder)


def fuzz(
    name: str, n_examples: int, start: int, folder: Path, shapes: inputs.Shapes = inputs.SHAPES
) -> dict[str, Any]:
    """Try many inputs; what became of them, and the defects by kind with one input each."""
    cases, judge = part_of(name, folder, shapes)
    counts: Counter[str] = Counter()
    defects: dict[str, str] = {}

    @seed(start)
    @settings(
        max_examples=n_examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(cases)
    def one(case: Any) -> None:
        if sum(counts.values()) % BETWEEN == 0 and n_maps() > MOST_MAPS:
            jax.clear_caches()
            gc.collect()
        try:
            counts[judge(case)] += 1
        except Exception as error:  # counted here, so that one defect does not hide the next
            counts["defect"] += 1
            frames = traceback.extract_tb((error.__context__ or error).__traceback__)[-3:]
            where = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames]
            mark = f"{type(error).__name__}: {str(error)[:200]} {where}"
            if defects.setdefault(mark, repr(case)) == repr(case):
                print(mark, repr(case)[:1500], sep="\n    ", flush=True)

    began = time.monotonic()
    one()
    return {
        "part": name, "examples": n_examples, "seed": start, "hypothesis": hypothesis.__version__,
        "x64": jax.config.jax_enable_x64, "outcomes": dict(counts), "defects": defects,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("experts", "features", "experts-files", "features-files"))
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--x64", action="store_true", help="double precision")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", options.x64)
    jax.config.update("jax_disable_most_optimizations", True)
    with tempfile.TemporaryDirectory() as folder:
        record = fuzz(options.part, options.examples, options.seed, Path(folder))
    print(json.dumps(record["outcomes"]), record["seconds"], "s")
    if options.out:
        write_record(options.out / f"fuzz-{options.part}.json", record)
    sys.exit(bool(record["defects"]))


if __name__ == "__main__":
    main()
