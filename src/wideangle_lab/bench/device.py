"""Large problems on an accelerator: ``python -m wideangle_lab.bench.device OUT.json``.

Adult-9 with 30 experts by sampling and by the variational fit, many chains and many restarts at
once, and the feature sampler on 20-News and TDT at the paper's sizes, each with the matrix
products and the copy speed of the same card. Needs the data files (``wideangle datasets``). Parts
named after the file are measured, all by default; the others of the file are kept. Parts that fail
leave their error in the record. ``python -m wideangle_lab.bench.device_page`` writes the page.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_breast_cancer

from wideangle.convergence import agreement
from wideangle.mixture_of_experts.classifier import MixtureOfExpertsClassifier
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import log_lik
from wideangle.mixture_of_experts.many import fit_many
from wideangle.mixture_of_experts.paper_methods import paper_method
from wideangle.mixture_of_experts.sampling import fit_mcmc
from wideangle.mixture_of_experts.task import plan
from wideangle.settings import MutualAngularPrior, Sampling, Settings
from wideangle.spherical_mixture.estimator import SphericalMixture
from wideangle.spherical_mixture.rows import BLOCK
from wideangle_lab.bench.clusters.speed import passes
from wideangle_lab.bench.device_clock import ceilings, timed
from wideangle_lab.bench.device_features import features, sweep_of_many
from wideangle_lab.bench.expert_problem import EXPERT, draw_problem
from wideangle_lab.bench.harness import Size
from wideangle_lab.datasets import load
from wideangle_lab.machine import describe

N_EXPERTS = 30
ADULT = Size(32_561, 124, N_EXPERTS)
MILLION = Size(1_000_000, 124, N_EXPERTS)
SEED = 0
CHAINS = (1, 4, 16, 64)
NOT_TUNED = ", without autotuning"
"""Mark of parts compiled without autotuning: their small products are several times slower."""


def gradients(size: Size = ADULT, chains: Sequence[int] = CHAINS) -> dict[str, Any]:
    """Value and gradient of the likelihood at the size of Adult-9, for several chains at once."""
    weights, rows, targets = draw_problem(SEED, size)
    batch = Data(jnp.asarray(rows.toarray()), jnp.asarray(targets), jnp.ones(size.rows))
    slope = jax.value_and_grad(partial(log_lik, EXPERT))
    result: dict[str, Any] = {
        "rows": size.rows,
        "columns": size.columns,
        "n_experts": size.components,
    }
    for n in chains:
        many = jax.tree.map(lambda leaf, n=n: jnp.repeat(leaf[None], n, axis=0), weights)
        stacked = jnp.ones((2 * size.components * n, size.columns), jnp.float32)
        slopes = jnp.ones((2 * size.components * n, size.rows), jnp.float32)
        ours = jax.jit(jax.vmap(slope, (0, None)))
        floor = jax.jit(lambda a, s, x: (a @ x.T, s @ x))
        with jax.default_matmul_precision("highest"):
            seconds = timed(partial(ours, many, batch))
            products = timed(partial(floor, stacked, slopes, batch.rows))
        flops = 2 * 2 * 2 * size.components * n * size.rows * size.columns
        result[f"{n} chains"] = {
            "seconds": seconds,
            "products_seconds": products,
            "tflops": flops / seconds / 1e12,
        }
    return result


def many_rows(size: Size = MILLION, n_warmup: int = 60, n_draws: int = 20) -> dict[str, Any]:
    """Seconds per draw of the default classifier's four chains, and gradients per draw."""
    _, rows, targets = draw_problem(SEED, size)
    weights = np.ones(size.rows, np.float32)
    data = Data(jnp.asarray(rows.toarray()), jnp.asarray(targets), jnp.asarray(weights))
    chains = Sampling(n_warmup=n_warmup, n_draws=n_draws)
    task = plan(MutualAngularPrior(), chains, size.components, size.columns, EXPERT, verbose=False)
    began = time.perf_counter()
    fitted = fit_mcmc(jax.random.key(SEED), task, data)
    first = time.perf_counter() - began
    began = time.perf_counter()
    fitted.chains.extend(2 * n_draws)
    seconds = (time.perf_counter() - began) / n_draws
    return {
        "rows": size.rows,
        "columns": size.columns,
        "n_experts": size.components,
        "n_chains": chains.n_chains,
        "first_seconds": first,
        "n_first": n_warmup + n_draws,
        "seconds_a_draw": seconds,
        "acceptance": fitted.chains.acceptance,
        "gradient": gradients(size, (chains.n_chains,)),
    }


def directions(n_rows: int = 1_000_000, dim: int = 1000, n_clusters: int = 100) -> dict[str, Any]:
    """A pass of the clusters over as many rows, beside its two products, and a whole fit."""
    rng = np.random.default_rng(SEED)
    centres = rng.standard_normal((n_clusters, dim), np.float32)
    X = np.empty((n_rows, dim), np.float32)
    for first in range(0, n_rows, BLOCK):
        part = X[first : first + BLOCK]
        part[:] = 0.5 * centres[rng.integers(n_clusters, size=len(part))]
        part += rng.standard_normal(part.shape, np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    one = passes(X, X[:n_clusters].astype(np.float64))
    found: dict[str, Any] = {"rows": n_rows, "columns": dim, "clusters": n_clusters}
    found["pass_seconds"] = timed(lambda: one(0), 10)
    blocks = [jnp.asarray(X[first : first + BLOCK]) for first in range(0, n_rows, BLOCK)]
    along = jnp.asarray(centres)
    floor = jax.jit(lambda rows: jnp.dot((rows @ along.T).T, rows))
    with jax.default_matmul_precision("highest"):
        found["products_seconds"] = timed(lambda: [floor(rows) for rows in blocks], 10)
    for turn, seed in (("first", SEED), ("again", SEED + 1)):
        began = time.perf_counter()
        model = SphericalMixture(n_clusters, random_state=seed, verbose=False).fit(X)
        seconds = time.perf_counter() - began
        found[turn] = {"seconds": seconds, "passes": int(model.notes_["n_passes"])}
    return found


def experts(method: str | None, **settings: Any) -> dict[str, Any]:
    """One fit of Adult-9: seconds (twice: with and without compilation), quality, convergence.

    ``None`` is the classifier with its default prior.
    """
    data = load("adult9")
    train, test = data.split(0)
    X, y = data.X, np.asarray(data.y)
    result: dict[str, Any] = {"method": method, "n_experts": N_EXPERTS, "settings": flat(settings)}
    make = partial(paper_method, method) if method else MixtureOfExpertsClassifier
    for name, seed in (("first", SEED), ("again", SEED + 1)):
        model = make(N_EXPERTS, random_state=seed, verbose=False, **settings)
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
            one["rhat_predictions"] = agreement(table).rhat
            one["worst_rhat"] = float(np.nanmax(table["rhat"]))
            one["share_rhat_below_1.01"] = float(np.mean(np.asarray(table["rhat"]) < 1.01))  # noqa: PLR2004
            one["smallest_ess"] = float(np.nanmin(table["ess_bulk"]))
        result[name] = one
    return result


def bootstraps(n_fits: int = 100) -> dict[str, Any]:
    """Default fits of bootstraps of a small table, one alone and many in one program."""
    X, y = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(SEED)
    data = [(X, y, rng.multinomial(len(y), np.full(len(y), 1.0 / len(y)))) for _ in range(n_fits)]
    result: dict[str, Any] = {"table": "Breast cancer", "rows": len(y), "n_fits": n_fits}
    for name, chosen in (("one fit", data[:1]), ("all fits", data)):
        for turn, seed in (("first", SEED), ("again", SEED + 1)):
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fits = fit_many(MixtureOfExpertsClassifier(random_state=seed), chosen)
            endings = [one.notes_["ending"]["reason"] for one in fits]
            result |= {
                f"{name}, {turn}": {
                    "seconds": time.perf_counter() - began,
                    "n_draws": float(np.mean([one.posterior_.n_draws for one in fits])),
                    "converged": endings.count("converged"),
                }
            }
    return result


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by name, including those of objects that differ from the defaults."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if not isinstance(value, Settings):
            found[name.rpartition("__")[2]] = value
            continue
        usual = type(value)().get_params()
        found |= {key: one for key, one in value.get_params().items() if one != usual[key]}
    return found


def batched(method: str, name: str, counts: tuple[int, ...], **settings: Any) -> dict[str, Any]:
    """The same fit with increasing numbers of chains or starts."""
    fits = {f"{n} {name}": experts(method, **{f"inference__{name}": n}, **settings) for n in counts}
    return {"method": method, **fits}


def narrow(scale: float) -> MutualAngularPrior:
    """Prior of nearly constant lengths."""
    return MutualAngularPrior(
        kind="I", cosine=0.2, magnitude_shape=124.0, scale=scale, common=False
    )


CHAINS_OF_4 = Sampling(n_warmup=500, n_draws=1000)
LONG_CHAINS = Sampling(n_warmup=500, n_draws=900, thin=2)

PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "ceilings": ceilings,
    "Adult-9 gradient": gradients,
    "20-News sweep, 300 features": sweep_of_many,
    "a million rows": many_rows,
    "a million directions": directions,
    "Adult-9 sampling, defaults": partial(experts, None),
    "Adult-9 variational": partial(experts, "BMEM-MABN-II"),
    "Adult-9 sampling": partial(experts, "BMEM-MABN-I", inference=CHAINS_OF_4),
    "Adult-9 sampling, narrow prior": partial(
        experts, "BMEM-MABN-I", prior=narrow(0.3), inference=CHAINS_OF_4
    ),
    "Adult-9 sampling, very narrow prior": partial(
        experts, "BMEM-MABN-I", prior=narrow(0.1), inference=LONG_CHAINS
    ),
    "Adult-9 sampling, Gaussian prior": partial(experts, "BMEM-G", inference=CHAINS_OF_4),
    "many restarts": partial(batched, "BMEM-MABN-II", "n_starts", (1, 32)),
    "many chains": partial(
        batched, "BMEM-MABN-I", "n_chains", (16,), inference__n_warmup=100, inference__n_draws=200
    ),
    "bootstraps": bootstraps,
    "20-News features": partial(features, "news20"),
    "TDT features": partial(features, "tdt"),
}


def main(output: Path, names: list[str]) -> None:
    """Measure the parts named (all by default); the file is written after each."""
    parts = json.loads(output.read_text("utf-8"))["parts"] if output.exists() else {}
    output.parent.mkdir(parents=True, exist_ok=True)
    for name in names or list(PARTS):
        began = time.perf_counter()
        part: dict[str, Any] = {
            **describe(),
            "device": str(jax.devices()[0].device_kind),
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
        }
        try:
            part["result"] = PARTS[name]()
        except Exception:
            part["error"] = traceback.format_exc(limit=3)
        part["seconds"] = round(time.perf_counter() - began, 1)
        parts[name + NOT_TUNED * ("autotune_level=0" in part["xla_flags"])] = part
        print(name, part["seconds"], "s", part.get("result", part.get("error")), flush=True)
        output.write_text(json.dumps({"parts": parts}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
