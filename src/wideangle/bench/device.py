"""What an accelerator does with the large problems: ``python -m wideangle.bench.device OUT.json``.

Adult-9 with 30 experts by sampling and by the variational fit, and the feature sampler on 20-News
and TDT at the paper's sizes, each beside the matrix products and the copy speed of the same card.
Needs the data files (``wideangle datasets``). Parts that fail leave their error in the record.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.bench.machine import describe
from wideangle.datasets import load
from wideangle.estimators import lfm_chain, lfm_device, lfm_prepare
from wideangle.estimators.latent_features import LatentFeatureModel
from wideangle.estimators.lfm_fit import first_guess
from wideangle.estimators.lfm_start import Start, find_features
from wideangle.estimators.lfm_sweep import sweep_on_device
from wideangle.estimators.methods import paper_method

N_FEATURES = 300
N_EXPERTS = 30
SEED = 0


def timed(function: Callable[[], Any], repeats: int = 20) -> float:
    """Median seconds of a call, the first one left out."""
    jax.block_until_ready(function())
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def ceilings() -> dict[str, float]:
    """Measured matrix and copy speed of the card."""
    a = jnp.ones((8192, 8192), jnp.float32)
    big = jnp.ones(2**28, jnp.float32)
    with jax.default_matmul_precision("highest"):
        product = timed(jax.jit(lambda: a @ a), 5)
    copy = timed(jax.jit(lambda: big + 1.0), 5)
    return {"matrix_tflops": 2 * 8192**3 / product / 1e12, "copy_gb_s": 2 * big.nbytes / copy / 1e9}


def experts(method: str, **settings: Any) -> dict[str, Any]:
    """One fit of Adult-9: seconds (twice: with and without compilation), quality, convergence."""
    data = load("adult9")
    train, test = data.split(0)
    X, y = data.X, np.asarray(data.y)
    result: dict[str, Any] = {"method": method, "n_experts": N_EXPERTS, "settings": settings}
    for name, seed in (("first", SEED), ("again", SEED + 1)):
        model = paper_method(method, N_EXPERTS, random_state=seed, progress=False, **settings)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X[train], y[train])
        seconds = time.perf_counter() - began
        proba = model.predict_proba(X[test])
        right = proba[np.arange(len(proba)), np.searchsorted(model.classes_, y[test])]
        one: dict[str, Any] = {
            "seconds": seconds,
            "log_loss": float(-np.mean(np.log(right))),
            "accuracy": float(np.mean(model.classes_[proba.argmax(axis=1)] == y[test])),
            "n_used": model.n_used_,
        }
        if model.diagnostics_ is not None:
            table = model.diagnostics_
            one["worst_rhat"] = float(np.nanmax(table["rhat"]))
            one["share_rhat_below_1.01"] = float(np.mean(np.asarray(table["rhat"]) < 1.01))  # noqa: PLR2004
            one["smallest_ess"] = float(np.nanmin(table["ess_bulk"]))
        result[name] = one
    return result


def features(name: str) -> dict[str, Any]:
    """Seconds per sweep with 300 features, beside its matrix products and the search before it."""
    data = load(name)
    # Noise that fits what 300 features leave: with less, the chain adds features without end.
    model = LatentFeatureModel(noise_scale="learn", max_features=N_FEATURES)
    units = lfm_prepare.learn_units(data.X, centre=False)
    matrix, offset = units.apply(data.X)
    rows = lfm_prepare.make_rows(matrix, offset)
    design, values = lfm_prepare.design_of(model, rows.dim, units, on_device=True)
    began = time.perf_counter()
    start = find_features(
        np.random.default_rng(SEED), rows, values.noise_variance, max_features=N_FEATURES, hops=0
    )
    searched = time.perf_counter() - began
    hyper = first_guess(start, values, design, rows)
    key = jax.random.key(SEED, impl="threefry2x32")
    chain = lfm_chain.begin_chain(key, start.features, start.assignments, hyper, design)
    there = rows.on_device()
    marks: list[tuple[int, float]] = []

    def note(chain: lfm_chain.Chain) -> bool:
        jax.block_until_ready(chain.features)
        marks.append((chain.n_done, time.perf_counter()))
        return False

    began = time.perf_counter()
    plan = lfm_chain.Plan(60, 100, 1)
    lfm_device.run_chain_on_device(chain, there, design, plan, after=note)
    total = time.perf_counter() - began
    pairs = itertools.pairwise(marks)
    per_sweep = [(t1 - t0) / (n1 - n0) for (n0, t0), (n1, t1) in pairs if n1 > n0]
    vectors = chain.features.components.vectors
    used = chain.features.assignments.astype(vectors.dtype)
    with jax.default_matmul_precision("highest"):
        products = timed(jax.jit(lambda: there.products(vectors)))
        cross = timed(jax.jit(lambda: there.cross(used)))
    return {
        "data": name,
        "shape": list(data.X.shape),
        "n_features": chain.trace["n_active"][-1],
        "search_seconds": searched,
        "sweep_seconds": float(np.median(per_sweep)),
        "sweep_seconds_quartiles": [float(q) for q in np.quantile(per_sweep, (0.25, 0.75))],
        "total_seconds": total,
        "n_sweeps": plan.n_sweeps,
        "products_seconds": products,
        "cross_seconds": cross,
        "acceptance": float(np.mean(chain.trace["acceptance"])),
        "residual_rms": chain.trace["residual_rms"][-1],
    }


def sweep_of_many() -> dict[str, Any]:
    """Seconds of one sweep of 20-News from a state of exactly 300 features, time after time.

    The features are means of random groups of rows, and the noise is what they leave: a chain left
    to itself keeps about 55 features at learned noise, and grows past 700 at the paper's.
    """
    data = load("news20")
    model = LatentFeatureModel(noise_scale=1.0)
    units = lfm_prepare.learn_units(data.X, centre=False)
    matrix, offset = units.apply(data.X)
    rows = lfm_prepare.make_rows(matrix, offset)
    design, values = lfm_prepare.design_of(model, rows.dim, units, on_device=True)
    rng = np.random.default_rng(SEED)
    used = (rng.random((rows.n_rows, N_FEATURES)) < 0.03).astype(np.uint8)  # noqa: PLR2004
    vectors = rows.cross(used) / used.sum(axis=0)[:, None]
    start = Start(vectors, used, 1.0, 0.0, np.zeros(1))
    hyper = first_guess(start, values._replace(noise_variance=1.0), design, rows)
    key = jax.random.key(SEED, impl="threefry2x32")
    chain = lfm_chain.begin_chain(key, vectors, used, hyper, design)
    there, steps = rows.on_device(), lfm_chain.steps_of(chain.tuning, False)

    @jax.jit
    def sweep(key: Any, features: Any, rows: Any) -> Any:
        return sweep_on_device(key, features, rows, design, steps, fixed_length=True)

    with jax.default_matmul_precision("highest"):
        seconds = timed(lambda: sweep(key, chain.features, there), 30)
        products = timed(jax.jit(lambda: there.products(chain.features.components.vectors)))
        cross = timed(jax.jit(lambda: there.cross(chain.features.assignments.astype(jnp.float32))))
    return {
        "n_features": N_FEATURES,
        "room": chain.features.room,
        "sweep_seconds": seconds,
        "products_seconds": products,
        "cross_seconds": cross,
    }


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "ceilings": ceilings,
    "20-News sweep, 300 features": sweep_of_many,
    "20-News features": lambda: features("news20"),
    "TDT features": lambda: features("tdt"),
    "Adult-9 sampling": lambda: experts(
        "BMEM-MABN-I", n_warmup=500, n_draws=1000, n_chains=4, cosine=0.2
    ),
    "Adult-9 variational": lambda: experts("BMEM-MABN-II"),
}


def main(output: Path, names: list[str]) -> None:
    """Measure the parts named (all by default); the file is written after each."""
    record: dict[str, Any] = {**describe(), "device": str(jax.devices()[0].device_kind)}
    for name in names or list(PARTS):
        began = time.perf_counter()
        try:
            record[name] = PARTS[name]()
        except Exception:
            record[name] = {"error": traceback.format_exc(limit=3)}
        print(name, f"{time.perf_counter() - began:.0f} s", record[name], flush=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
