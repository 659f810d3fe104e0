"""The mixture of experts: its gradient, its samplers and its variational fit.

Sizes are those of the data set Adult-9 (32,561 rows, 123 columns and an intercept, 11 % of the
entries not 0) with 30 experts. The data set itself is used if its file is found.
"""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.paper_methods import paper_method
from wideangle.mixture_of_experts.sampling import SAMPLERS
from wideangle.mixture_of_experts.sparse import on_host
from wideangle.mixture_of_experts.whitened import trajectory_steps
from wideangle_lab import datasets
from wideangle_lab.bench import experts_sampling, works
from wideangle_lab.bench.expert_problem import (
    DENSITY,
    draw_problem,
    two_products,
    value_and_gradient,
)
from wideangle_lab.bench.harness import Settings, Size, in_turns
from wideangle_lab.bench.record import OURS, Case, Series

PRODUCTS, SPARSE_PRODUCTS = "its two matrix products", "its two sparse products (SciPy)"
BOOSTING = "gradient boosting (HistGradientBoosting)"
MINUTE, GOOD = "a minute", "log-loss 0.321"


class Example(NamedTuple):
    """Sparse training and test rows, and their source."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    source: str


ADULT, SMALL = Size(32_561, 124, 30), Size(2_000, 30, 8)
TEXT, TEXT_DENSITY = Size(20_000, 2_000, 10), 0.01
"""Rows as sparse as those that stay sparse."""


def measure(settings: Settings) -> list[Case]:
    """Gradients, steps, sampling, variational fit."""
    size = SMALL if settings.quick else ADULT
    return [
        dense_gradient(settings, size),
        sparse_gradient(settings, SMALL if settings.quick else TEXT),
        *steps(settings, size),
        *experts_sampling.measure(settings),
        *variational(settings, size),
    ]


def dense_gradient(settings: Settings, size: Size) -> Case:
    """Value and gradient of the likelihood on dense rows, against their products."""
    weights, rows, targets = draw_problem(settings.seed, size)
    dense = Data(jnp.asarray(rows.toarray()), jnp.asarray(targets), jnp.ones(size.rows))
    stacked = jnp.concatenate([weights.gate, weights.experts[:, 0]])
    slopes = jnp.ones((2 * size.components, size.rows), jnp.float32)
    seconds = in_turns(
        {
            OURS: lambda _: value_and_gradient(weights, dense),
            PRODUCTS: lambda _: two_products(stacked, slopes, dense.rows),
        },
        settings.repeats,
        calls=3,
    )
    label = f"gradient, dense rows, N={size.rows}, p={size.columns}, K={size.components}"
    return Case(label, "s", seconds, targets={} if settings.quick else {PRODUCTS: 1 / 1.5})


def sparse_gradient(settings: Settings, size: Size) -> Case:
    """The same on sparse rows, against dense ones."""
    weights, rows, targets = draw_problem(settings.seed, size, TEXT_DENSITY)
    dense = Data(jnp.asarray(rows.toarray()), jnp.asarray(targets), jnp.ones(size.rows))
    sparse = on_host(Data(rows, targets, np.ones(size.rows)))
    across = np.concatenate([weights.gate, weights.experts[:, 0]]).T
    columns, down = sp.csr_array(rows.T), np.ones((size.rows, 2 * size.components), np.float32)
    seconds = in_turns(
        {
            OURS: lambda _: value_and_gradient(weights, sparse),
            "dense rows": lambda _: value_and_gradient(weights, dense),
            SPARSE_PRODUCTS: lambda _: (rows @ across, columns @ down),
        },
        settings.repeats,
        calls=3,
    )
    label = f"gradient, sparse rows, N={size.rows}, p={size.columns}, K={size.components}"
    return Case(
        label,
        "s",
        seconds,
        targets={} if settings.quick else {"dense rows": 1.0},
        note=f"Gradients: {100 * DENSITY:.0f} % of the entries of dense rows are not 0, and "
        f"{100 * TEXT_DENSITY:.0f} % of those of sparse ones; value and gradient of the "
        "log-likelihood with the choice of expert summed out, float32.",
    )


def steps(settings: Settings, size: Size) -> list[Case]:
    """A draw of the sampler and a pass of the variational fit, against their matrix products."""
    weights, rows, _ = draw_problem(settings.seed, size)
    dense = jnp.asarray(rows.toarray())
    stacked = jnp.concatenate([weights.gate, weights.experts[:, 0]])
    slopes = jnp.ones((2 * size.components, size.rows), jnp.float32)
    # A pass has products of means and of variances; a trajectory has many gradients.
    n_steps = int(trajectory_steps(jnp.float32(SAMPLERS["hmc"].steps["weights"]), jnp.int32(1)))
    turns = {
        f"MCMC, a draw of {n_steps} gradients": (works.draw_of_mcmc, n_steps),
        "VI, a pass": (works.pass_of_vi, 2),
    }
    cases = []
    for name, (work, times) in turns.items():
        call = work(settings.seed, size)

        def products(_: int, times: int = times) -> Any:
            return [two_products(stacked, slopes, dense) for _ in range(times)]

        seconds = in_turns(
            {OURS: lambda _, call=call: call(), PRODUCTS: products}, settings.repeats
        )
        cases.append(
            Case(
                f"{name}, N={size.rows}, p={size.columns}, K={size.components}",
                "s",
                seconds,
                note="Steps: one chain or one start; the products are those of the gradients, for "
                "VI of means and of variances, on dense rows.",
            )
        )
    return cases


def example(settings: Settings, size: Size) -> Example:
    """Adult-9 if its file is found, else rows drawn from the model."""
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
    rows = rows[:, :-1]  # the estimator adds an intercept
    parts = rows[n_test:], y[n_test:], rows[:n_test], y[:n_test]
    return Example(*parts, "rows drawn from the model, in the shape of Adult-9")


def variational(settings: Settings, size: Size) -> list[Case]:
    """Seconds and test log-loss of a variational fit and of other classifiers."""
    data = example(settings, size)
    seconds: dict[str, list[float]] = {}
    applied: dict[str, list[float]] = {}
    losses: dict[str, list[float]] = {}
    spent = 0.0
    n_fits = 1 if settings.quick else 2
    for seed in range(settings.seed, settings.seed + n_fits):
        for name, model in contenders(seed, size, settings.quick).items():
            cpu = time.process_time()
            fit = fit_and_score(name, model, data)
            spent = time.process_time() - cpu if name == OURS else spent
            for values, one in zip((seconds, applied, losses), fit, strict=True):
                values.setdefault(name, []).append(one)
    whole, predicting, quality = (
        {name: Series(tuple(each)) for name, each in values.items()}
        for values in (seconds, applied, losses)
    )
    full = data.source == "Adult-9"
    if full:
        whole[MINUTE], quality[GOOD] = Series((60.0,) * n_fits), Series((0.321,) * n_fits)
    label = f"VI, N={data.X.shape[0]}, K={size.components}"
    note = (
        f"VI: BMEM-MABN-II at its defaults, compilation included in the first of {n_fits} fits, "
        f"{spent:.3g} CPU seconds in the last; scikit-learn at its defaults; {data.source}."
    )
    goals: dict[str, dict[str, float]] = {
        "s": {MINUTE: 1.0} if full else {},
        "nats": {GOOD: 1.0} if full else {},
    }
    return [
        Case(f"{label}, whole fit", "s", whole, targets=goals["s"], note=note),
        Case(f"{label}, test log-loss", "nats", quality, targets=goals["nats"], note=note),
        Case(f"{label}, predict_proba of {len(data.y_test)} rows", "s", predicting, note=note),
    ]


def contenders(seed: int, size: Size, quick: bool) -> dict[str, Any]:
    """The classifiers, ours first."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    options: dict[str, Any] = {"inference__n_passes": 2} if quick else {}
    options |= {"random_state": seed, "verbose": False}
    return {
        OURS: paper_method("BMEM-MABN-II", size.components, **options),
        "logistic regression": LogisticRegression(max_iter=1000),
        BOOSTING: HistGradientBoostingClassifier(random_state=seed),
    }


def fit_and_score(name: str, model: Any, data: Example) -> tuple[float, float, float]:
    """Seconds of the fit and of the prediction, and the log-loss."""
    from sklearn.metrics import log_loss

    # Gradient boosting accepts only dense rows; the conversion is not timed.
    train, test = (
        X.toarray() if name == BOOSTING and sp.issparse(X) else X for X in (data.X, data.X_test)
    )
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few passes in a quick run
        model.fit(train, data.y)
    fitted = time.perf_counter()
    probabilities = model.predict_proba(test)
    applied = time.perf_counter()
    loss = float(log_loss(data.y_test, probabilities))
    return fitted - began, applied - fitted, loss
