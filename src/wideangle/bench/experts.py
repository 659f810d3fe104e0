"""The mixture of experts: its gradient, its samplers, its variational fit, and how they grow.

Sizes are those of the data set Adult-9 (32,561 rows, 123 columns and an intercept, 11 % of the
entries not 0) with 30 experts. The data themselves are used where they are at hand.
"""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import lax

from wideangle import datasets
from wideangle.bench import experts_sampling
from wideangle.bench.harness import Settings, in_turns
from wideangle.bench.record import OURS, Case, Series
from wideangle.estimators.methods import paper_method
from wideangle.models.experts import LogisticExperts
from wideangle.models.mixture_of_experts import Batch, Weights, log_lik, predict
from wideangle.models.sparse_likelihood import SparseBatch
from wideangle.priors.components import PolarComponents
from wideangle.priors.mutual_angular import MutualAngular

EXPERT = LogisticExperts()
DENSITY = 0.113
"""Share of the entries of Adult-9 that are not 0."""
PRODUCTS = "its two matrix products"


class Size(NamedTuple):
    """Rows, columns, experts."""

    rows: int
    columns: int
    experts: int


class Example(NamedTuple):
    """Training and test rows, sparse, and where they come from."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    source: str


ADULT, SMALL = Size(32_561, 124, 30), Size(2_000, 30, 8)


def measure(settings: Settings) -> list[Case]:
    """Gradients, sampling, variational fit."""
    size = SMALL if settings.quick else ADULT
    return [
        *gradients(settings, size),
        *experts_sampling.measure(settings),
        *variational(settings, size),
    ]


def gradients(settings: Settings, size: Size) -> list[Case]:
    """Value and gradient of the likelihood, dense against its products, sparse against dense."""
    weights, rows, targets = draw_problem(settings.seed, size)
    dense = Batch(jnp.asarray(rows.toarray()), jnp.asarray(targets), jnp.ones(size.rows))
    sparse = SparseBatch(rows, targets, np.ones(size.rows))
    stacked = jnp.concatenate([weights.gate, weights.experts[:, 0]])
    slopes = jnp.ones((2 * size.experts, size.rows), jnp.float32)
    seconds = in_turns(
        {
            PRODUCTS: lambda _: two_products(stacked, slopes, dense.rows),
            "dense": lambda _: value_and_gradient(weights, dense),
            "sparse": lambda _: value_and_gradient(weights, sparse),
        },
        settings.repeats,
        calls=3,
    )
    label = f"N={size.rows}, p={size.columns}, K={size.experts}"
    ours, floor = seconds["dense"], seconds[PRODUCTS]
    small = settings.quick
    return [
        Case(
            f"gradient, dense rows, {label}",
            "s",
            {OURS: ours, PRODUCTS: floor},
            targets={} if small else {PRODUCTS: 1 / 1.5},
        ),
        Case(
            f"gradient, sparse rows, {label}",
            "s",
            {OURS: seconds["sparse"], "dense rows": ours},
            targets={} if small else {"dense rows": 1.0},
            note=f"Gradients: {100 * DENSITY:.0f} % of the entries are not 0; value and gradient "
            "of the log-likelihood with the choice of expert summed out, float32.",
        ),
    ]


@jax.jit
def value_and_gradient(weights: Weights, batch: Batch | SparseBatch) -> Any:
    """What a step of a sampler costs."""
    return jax.value_and_grad(partial(log_lik, EXPERT))(weights, batch)


@jax.jit
def two_products(stacked: Any, slopes: Any, rows: Any) -> Any:
    """All scores from the rows, and a gradient from slopes: no dense gradient can be faster."""
    exact = lax.Precision.HIGHEST
    scores = jnp.einsum("ap,np->an", stacked, rows, precision=exact)
    return scores, jnp.einsum("an,np->ap", slopes, rows, precision=exact)


def draw_problem(seed: int, size: Size) -> tuple[Weights, Any, np.ndarray]:
    """Weights of the prior, sparse 0/1 rows with an intercept, and targets from the model."""
    generator = np.random.default_rng(seed)
    shape = size.rows, size.columns - 1
    options: dict[str, Any] = {"format": "csr", "random_state": generator}
    rows: Any = sp.random_array(shape, density=DENSITY, **options)
    rows.data[:] = 1.0
    rows = sp.csr_array(sp.hstack([rows, np.ones((size.rows, 1))], format="csr", dtype=np.float32))
    prior = prior_of(size)
    keys = jax.random.split(jax.random.key(seed), 3)
    gate, experts = (prior.sample(key) for key in keys[:2])
    weights = Weights(gate, experts[:, None])
    chunks = [rows[i : i + 4096].toarray() for i in range(0, size.rows, 4096)]
    chance = np.concatenate([predict(EXPERT, weights, jnp.asarray(c))[:, 1] for c in chunks])
    targets = jax.random.bernoulli(keys[2], jnp.asarray(chance))
    return weights, rows, np.asarray(targets, np.int32)


def prior_of(size: Size) -> PolarComponents:
    """The estimator's default, with weights of standard deviation 1."""
    directions = MutualAngular.from_cosine(size.experts, size.columns, np.float32(0.2), "II")
    rate = 2.0 / np.sqrt(size.columns)
    return PolarComponents(directions, np.float32(2.0), np.float32(rate))


def example(settings: Settings, size: Size) -> Example:
    """Adult-9 where its file is found, else rows drawn from the model."""
    if not settings.quick:
        try:
            adult = datasets.load("adult9")
        except datasets.DataNotFoundError:
            pass
        else:
            train, test = adult.split()
            assert adult.y is not None
            return Example(adult.X[train], adult.y[train], adult.X[test], adult.y[test], "Adult-9")
    n_test = size.rows // 2
    _, rows, y = draw_problem(settings.seed, size._replace(rows=size.rows + n_test))
    rows = rows[:, :-1]  # the estimator adds an intercept of its own
    parts = rows[n_test:], y[n_test:], rows[:n_test], y[:n_test]
    return Example(*parts, "rows drawn from the model, in the shape of Adult-9")


def variational(settings: Settings, size: Size) -> list[Case]:
    """Seconds of a variational fit, and its test log-loss beside that of logistic regression."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    data = example(settings, size)
    options: dict[str, Any] = {"n_passes": 2} if settings.quick else {}
    options |= {"random_state": settings.seed, "progress": False}
    models = {
        OURS: paper_method("BMEM-MABN-II", size.experts, **options),
        "logistic regression": LogisticRegression(max_iter=1000),
    }
    seconds, spent, losses = 0.0, 0.0, {}
    for name, model in models.items():
        began, cpu = time.perf_counter(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # few passes in a quick run
            model.fit(data.X, data.y)
        if name == OURS:
            seconds, spent = time.perf_counter() - began, time.process_time() - cpu
        losses[name] = Series((float(log_loss(data.y_test, model.predict_proba(data.X_test))),))
    label = f"VI, N={data.X.shape[0]}, K={size.experts}"
    note = (
        "VI: BMEM-MABN-II at its defaults, compilation included, one fit of "
        f"{spent:.3g} CPU seconds; {data.source}."
    )
    return [
        Case(f"{label}, whole fit", "s", {OURS: Series((seconds,))}, note=note),
        Case(f"{label}, test log-loss", "nats", losses, note=note),
    ]
