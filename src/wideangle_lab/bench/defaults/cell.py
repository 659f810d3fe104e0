"""One part of one cell in a new process, so that its first fit includes compilation.

``python -m wideangle_lab.bench.defaults.cell PART TABLE SEED`` prints the result as one line of
JSON; PART is ``fit``, ``inferences`` or ``rivals``. A final ``once`` skips the second fit.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from datetime import UTC, datetime
from typing import Any

import numpy as np

from wideangle.convergence import agreement, share_divergent
from wideangle.presentation.records import Scored
from wideangle.storage.files import as_finite
from wideangle_lab.bench.defaults.loop import INFERENCES, OTHERS, RIVALS
from wideangle_lab.bench.defaults.reliability import counted
from wideangle_lab.bench.defaults.rivals import compare, log_loss
from wideangle_lab.bench.defaults.tables import TABLES, Parts
from wideangle_lab.bench.regression.rivals import compare as compare_quantity
from wideangle_lab.bench.regression.tables import QUANTITIES
from wideangle_lab.datasets import DataNotFoundError
from wideangle_lab.machine import describe

LONG = 60.0
"""First fits longer than this, in seconds, are repeated for the first seed only."""


def fit_twice(make: Any, *data: Any, again: bool | None) -> tuple[Any, dict[str, Any]]:
    """Fit the model that ``make()`` returns, record its cost, and perhaps fit again.

    With ``again=None`` the second fit is run if the first was fast.
    """
    model = make()
    result = timed(model, *data)
    if again if again is not None else result["cold"] < LONG:
        result["warm"] = timed(make(), *data)["cold"]
    n_rows, n_columns = data[0].shape
    return model, {**result, **converged(model), "n_rows": n_rows, "n_columns": n_columns}


def of_classifier(make: Any, parts: Parts, *, again: bool | None) -> dict[str, Any]:
    """Recorded results of a classifier."""
    model, result = fit_twice(make, parts.train, parts.y_train, again=again)
    proba = model.predict_proba(parts.test)
    return {
        **result,
        "n_classes": len(model.classes_),
        "log_loss": log_loss(parts.y_test, proba),
        "reliability": counted(parts.y_test, proba),
        "divergent": round(share_divergent(model.posterior_.stats) * model.n_iter_),
    }


def of_other(model: Any, parts: Parts) -> dict[str, Any]:
    """Recorded results of a classifier that is not sampled."""
    result = timed(model, parts.train, parts.y_train)
    return {**result, "log_loss": log_loss(parts.y_test, model.predict_proba(parts.test))}


def of_regressor(make: Any, parts: Parts, *, again: bool | None) -> dict[str, Any]:
    """Recorded results of a regressor."""
    model, result = fit_twice(make, parts.train, parts.y_train, again=again)
    moments = float(parts.y_train.mean()), float(parts.y_train.std())
    rows = Scored(parts.test, parts.y_test, np.zeros(0), np.zeros(0), 0, moments)
    return {
        **result,
        **model.presentation(model).score(rows),
        "n_used": model.n_used_,
        "divergent": round(share_divergent(model.posterior_.stats) * model.n_iter_),
    }


def of_features(make: Any, rows: Any, *, again: bool | None) -> dict[str, Any]:
    """Recorded results of the feature sampler."""
    model, result = fit_twice(make, rows, again=again)
    summary = model.diagnostics_
    size = float(summary["ess_bulk"][summary.names.index("log_lik")])
    per_sweep = size / model.n_iter_
    return {**result, "n_components": model.n_components_, "ess_per_sweep": per_sweep}


def timed(model: Any, *data: Any) -> dict[str, Any]:
    """Seconds of a fit, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.perf_counter()
        model.fit(*data)
        seconds = time.perf_counter() - began
    return {"cold": round(seconds, 2), "warnings": [str(one.message) for one in caught]}


def converged(model: Any) -> dict[str, Any]:
    """Worst R-hat of predictions and of all quantities, and the smallest effective sample size."""
    needed = agreement(model.diagnostics_)
    others = agreement(model.diagnostics_, needed=False)
    return {
        "rhat": needed.rhat,
        "rhat_all": float(np.fmax(needed.rhat, others.rhat)),
        "ess": needed.ess,
        "constant": [*needed.constant, *others.constant],
        "ending": model.notes_.get("ending", {}).get("reason"),
        "n_draws": model.n_iter_,
    }


def measure(part: str, name: str, seed: int, *, once: bool = False) -> dict[str, Any]:
    """One part of a cell, or the reason why it is missing."""
    from wideangle import (
        LatentFeatureModel,
        MixtureOfExpertsClassifier,
        MixtureOfExpertsRegressor,
    )

    table = (TABLES | QUANTITIES)[name]
    try:
        data = table.load(seed)
    except (DataNotFoundError, ModuleNotFoundError) as error:
        return {"skipped": str(error)}
    if part == INFERENCES:
        every = {n: MixtureOfExpertsClassifier(inference=n, random_state=seed) for n in OTHERS}
        return {name: of_other(model, data) for name, model in every.items()}
    if part == RIVALS:
        return {"rivals": (compare_quantity if table.quantity else compare)(data, seed)}
    again = False if once else True if seed == 0 else None
    if table.quantity:
        return of_regressor(lambda: MixtureOfExpertsRegressor(random_state=seed), data, again=again)
    if not table.classes:
        return of_features(lambda: LatentFeatureModel(random_state=seed), data, again=again)
    return of_classifier(lambda: MixtureOfExpertsClassifier(random_state=seed), data, again=again)


def accelerator() -> str | None:
    """The name of JAX's default device if that is not the CPU."""
    import jax

    device = jax.devices()[0]
    return None if device.platform == "cpu" else device.device_kind


def main(part: str, name: str, seed: str, once: str = "") -> None:
    """Measure, and print the result with its machine and versions."""
    stamp: dict[str, Any] = {"seed": int(seed), **describe()}
    result = measure(part, name, int(seed), once=bool(once))
    if part == "fit" and (device := accelerator()):
        stamp["machine"]["device"] = device
    stamp["finished"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    print(json.dumps(as_finite({**result, "stamp": stamp}), allow_nan=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
