"""A fit in a process of its own: ``python sharded_fit.py '{"devices": 4, ...}'`` prints JSON."""

import contextlib
import json
import os
import re
import sys
import warnings

given = json.loads(sys.argv[1])
devices = given.get("devices", 1)
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
os.environ["OMP_NUM_THREADS"] = "1"

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
n_processes = given.get("processes", 1)
if n_processes > 1:
    from wideangle.sharding import join

    patience = given.get("patience", 15)
    join(f"localhost:{given['port']}", n_processes, given["process"], patience_seconds=patience)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from wideangle import (  # noqa: E402
    LatentFeatureModel,
    MixtureOfExpertsClassifier,
    Sampling,
    Variational,
)
from wideangle.infer import ascent  # noqa: E402
from wideangle.sharding import current_mesh, rows_over  # noqa: E402


def data(n=1000, p=3):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n, p))
    return X, (generator.random(n) < 1 / (1 + np.exp(-3 * X[:, 0] * X[:, 1]))).astype(int)


def by_vi():
    if "stop_after" in given:
        left, take = iter(range(given["stop_after"])), ascent.Minibatches.take

        def counted(self, first):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return take(self, first)

        ascent.Minibatches.take = counted
    X, y = data()
    model = MixtureOfExpertsClassifier(
        3,
        inference=Variational(n_starts=2, batch_size=128, n_passes=given.get("n_passes", 20)),
        checkpoint=given.get("checkpoint"),
        random_state=0,
        verbose=False,
    )
    model.fit(X, y)
    return {"proba": model.predict_proba(X[:50])[:, 1].tolist(), "steps": model.notes_["steps"]}


def by_mcmc():
    """A short chain in double precision: rounding errors grow along a chain."""
    from wideangle.mixture_of_experts.classes import LogisticExperts
    from wideangle.mixture_of_experts.coordinates import Priors, Problem, point_of
    from wideangle.mixture_of_experts.data import Data, shard
    from wideangle.mixture_of_experts.likelihood import Weights, log_lik
    from wideangle.mixture_of_experts.sampling import fit_mcmc
    from wideangle.mixture_of_experts.task import NEITHER, Task
    from wideangle.priors.components import PolarComponents
    from wideangle.priors.mutual_angular import MutualAngular

    n = 4097  # no multiple of anything: filled up
    X, y = data(n)
    batch = Data(X, y, np.linspace(0.5, 1.5, n))
    prior = PolarComponents(MutualAngular(3, 3, 2.0, "II"), 2.0, 1.0)
    problem = Problem(Priors(prior, prior), LogisticExperts(), batch)
    generator = np.random.default_rng(1)
    gate, experts = jnp.asarray(generator.normal(size=(2, 2, 3, 3)))
    start = jax.vmap(lambda w: point_of(problem.priors, w))(Weights(gate, experts[:, :, None]))
    mesh = current_mesh()
    seen = batch if mesh is None else shard(batch, mesh)
    whole = jax.jit(jax.value_and_grad(lambda w, b: log_lik(problem.expert, w, b)))(
        Weights(gate[0], experts[0][:, None]), seen
    )
    flat = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(whole)]
    result = {"log_lik": np.concatenate(flat).tolist()}
    if given["what"] == "log_lik":
        return result
    inference = Sampling(n_warmup=4, n_draws=5, n_chains=2)
    task = Task(problem.priors, NEITHER, problem.expert, inference, verbose=False)
    fit = fit_mcmc(jax.random.key(0), task, batch, start=start)
    return result | {"draws": np.ravel(fit.draws.values["weights"].experts).tolist()}


def by_features():
    generator = np.random.default_rng(0)
    rows = (generator.random((400, 3)) < 0.4) @ (2 * generator.normal(size=(3, 6)))
    rows = rows + 0.4 * generator.normal(size=rows.shape)
    model = LatentFeatureModel(
        prior="vmf",
        inference=Sampling(n_chains=1, n_warmup=3, n_draws=2, thin=3, hops=0),
        random_state=0,
        verbose=False,
    ).fit(rows)
    # On devices, however many: the program is another one than that of the host.
    return {"log_joint": np.ravel(model.trace_.values["log_joint"]).tolist()}


def by_stream():
    """A streamed fit, and the blocks that this process has read."""
    from wideangle.streaming import NpyRows

    class Counted(NpyRows):
        def read(self, block):
            reads.append(block)
            return super().read(block)

    reads = []
    X, y = data(4000)
    if "bad_row" in given:
        X[given["bad_row"], 1] = np.nan
    model = MixtureOfExpertsClassifier(
        2,
        inference=Variational(n_starts=1, batch_size=256, n_passes=40),
        random_state=0,
        verbose=False,
    )
    model.fit_stream(Counted(X, np.where(y, "yes", "no"), block_rows=50))
    survey = reads[:41]
    rest = np.bincount(reads[len(survey) :], minlength=80)
    return {
        "proba": model.predict_proba(X[:50])[:, 1].tolist(),
        "classes": model.classes_.tolist(),
        "centre": model.scaling_.shift.tolist(),
        "own": np.flatnonzero(rest).tolist(),
    }


def by_features_stream():
    """Features of rows on disk, and the blocks that this process has read."""
    from wideangle.streaming import NpyRows

    class Counted(NpyRows):
        def read(self, block):
            reads.add(block)
            return super().read(block)

    reads = set()
    generator = np.random.default_rng(0)
    rows = (generator.random((403, 3)) < [0.5, 0.3, 0.02]) @ (2 * generator.normal(size=(3, 6)))
    rows = rows + 0.4 * generator.normal(size=rows.shape)
    if "bad_row" in given:
        rows[given["bad_row"], 1] = np.nan
    model = LatentFeatureModel(
        prior="vmf",
        inference=Sampling(n_chains=1, n_warmup=3, n_draws=4, thin=2, hops=0),
        random_state=0,
        verbose=False,
    ).fit_stream(Counted(rows, block_rows=10))
    return {
        "log_joint": np.ravel(model.trace_.values["log_joint"]).tolist(),
        "assignments": model.transform(rows[:20]).ravel().tolist(),
        "own": sorted(reads),
    }


def collectives():
    """What devices exchange in the program of a variational fit."""
    found, advance = [], ascent._advance
    program = jax.jit(advance.__wrapped__, static_argnames=("objective", "n_calls"))

    def watched(*arguments):
        text = program.lower(*arguments).compile().as_text()
        kinds = "all-[a-z-]+|collective-[a-z-]+|reduce-scatter"
        found.extend(re.findall(rf" = (.+?) ({kinds})\(", text))
        return advance(*arguments)

    ascent._advance = watched
    X, y = data(600, 5)
    guide = Variational(n_starts=2, n_passes=1, batch_size=512)
    MixtureOfExpertsClassifier(3, inference=guide, random_state=0, verbose=False).fit(X, y)
    return {"collectives": found}


FITS = {
    "vi": by_vi,
    "features": by_features,
    "features-stream": by_features_stream,
    "stream": by_stream,
    "collectives": collectives,
}

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    spread = devices * n_processes > 1 or given["what"] == "features"
    with rows_over() if spread else contextlib.nullcontext():
        result = FITS.get(given["what"], by_mcmc)()
print(json.dumps(result | {"devices": jax.device_count()}))
