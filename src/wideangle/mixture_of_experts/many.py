"""Many fits at once: one program samples the posteriors of several data sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import jax
from joblib import parallel_config
from sklearn.base import clone

from wideangle.checks import warn
from wideangle.convergence import ConvergenceWarning, caution_of
from wideangle.mixture_of_experts.data import Data, fill, for_sampling
from wideangle.mixture_of_experts.estimator import MixtureOfExperts
from wideangle.mixture_of_experts.sampling import fit_many as fit_together
from wideangle.mixture_of_experts.task import Fitted, Task
from wideangle.settings import Sampling, as_plain
from wideangle.sharding import current_mesh
from wideangle.types import Key

MOST_NAMED = 5
"""Data sets that a warning names."""


def fit_many(estimator: Any, data: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Fit a mixture of experts to many data sets at once, by sampling.

    As ``[clone(estimator).fit(*one) for one in data]``, in less time: chains of all data sets run
    in one program, on a GPU side by side and on a CPU a few at a time. For bootstraps, folds of a
    cross-validation, simulations, or settings that differ in numbers only.

    Parameters
    ----------
    estimator : MixtureOfExpertsClassifier or MixtureOfExpertsRegressor, or a list of them
        With ``inference="mcmc"``; it is not changed. A list has one for each data set.
    data : iterable of (X, y) or (X, y, sample_weight)
        Arguments of ``fit``. A bootstrap is the same rows with other weights.

    Returns
    -------
    list
        Fitted estimators, in the order of the data.

    Notes
    -----
    Each fit is what ``fit`` gives: its own scaling, starts, coordinates, step sizes and draws, from
    ``random_state`` of its estimator. Shorter data sets are filled up with rows of weight 0; where
    none are needed, draws on a CPU are those of ``fit``, bit for bit. Data sets with other columns
    or classes, or estimators that differ in more than numbers, have a program of their own. With
    ``n_draws="auto"`` chains end when those of every data set have converged, or after
    ``max_time`` for each data set, which those that run at the same time share. One warning covers
    all fits.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> from wideangle import MixtureOfExpertsClassifier, Sampling, fit_many
    >>> X, y = make_moons(100, noise=0.2, random_state=0)
    >>> rng = np.random.default_rng(0)
    >>> bootstraps = [(X, y, rng.multinomial(100, np.full(100, 0.01))) for _ in range(4)]
    >>> chains = Sampling(n_warmup=100, n_draws=100)
    >>> model = MixtureOfExpertsClassifier(2, inference=chains, random_state=0)
    >>> fits = fit_many(model, bootstraps)
    >>> np.std([one.predict_proba([[0.5, 0.0]])[0, 1] for one in fits]) < 0.2
    np.True_
    """
    items = [tuple(one) for one in data]
    given = list(estimator) if isinstance(estimator, Sequence) else [estimator] * len(items)
    if len(given) != len(items):
        raise ValueError(
            f"estimator: a list needs one for each of the {len(items)} data sets, has {len(given)}."
        )
    models = [_copy(one) for one in given]
    planned = []
    for model, (X, y, *weights) in zip(models, items, strict=True):
        key, task, rows = model._planned(model._checked(X, y, *(weights or [None])))
        planned.append((key, task, rows))
    for members in _alike(planned):
        _fit_together([models[i] for i in members], [planned[i] for i in members])
    _warn_once(models)
    return models


def _copy(estimator: Any) -> Any:
    """An unfitted copy, of an estimator that this can fit."""
    if not isinstance(estimator, MixtureOfExperts):
        raise TypeError(
            f"estimator: must be a mixture of experts, got {type(estimator).__name__}; for other "
            "models call fit in a loop."
        )
    inference = estimator.choice("inference")
    reasons = {
        "inference: only sampling runs for many data sets at once; use inference='mcmc', or call "
        "fit in a loop.": not isinstance(inference, Sampling),
        "checkpoint: many fits at once are not saved while they last; leave it None.": (
            estimator.checkpoint is not None
        ),
        "warm_start: fits of many data sets cannot be continued; leave it False.": (
            estimator.warm_start
        ),
        "rows_over: many fits at once run on one device; leave the block.": (
            current_mesh() is not None
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(reason)
    return clone(estimator)


def _alike(planned: Sequence[tuple[Key, Task, Data]]) -> list[list[int]]:
    """Places of data sets that one program can fit."""
    found: dict[Any, list[int]] = {}
    for i, (_, task, data) in enumerate(planned):
        leaves, structure = jax.tree.flatten(task.priors)
        shapes = tuple((jax.numpy.shape(leaf), jax.numpy.result_type(leaf)) for leaf in leaves)
        mark = (
            structure, shapes, task.learn, task.expert, repr(as_plain(task.inference)),
            data.rows.shape[1], str(data.targets.dtype),
        )  # fmt: skip
        found.setdefault(mark, []).append(i)
    return list(found.values())


def _fit_together(models: Sequence[Any], planned: Sequence[tuple[Key, Task, Data]]) -> None:
    """Fit data sets that one program can fit, and keep what was found."""
    keys, tasks, prepared = zip(*planned, strict=True)
    n_experts = models[0].n_experts
    jobs = models[0].n_jobs
    threads = nullcontext() if jobs is None else parallel_config(n_jobs=jobs)
    with threads:
        rows = [for_sampling(one, n_experts) for one in prepared]
        fits: list[Fitted] = []
        if any(not isinstance(one.rows, jax.Array) for one in rows):  # sparse: each as it is
            for one in zip(keys, tasks, rows, strict=True):
                fits += fit_together(*([part] for part in one))
        else:
            most = max(len(one.targets) for one in rows)
            fits = fit_together(keys, tasks, [fill(one, most) for one in rows])
        for model, fitted, data in zip(models, fits, prepared, strict=True):
            model._finish(fitted, data)


def _warn_once(models: Sequence[Any]) -> None:
    """One warning about all fits whose predictions are not settled."""
    said = {i: found for i, model in enumerate(models) if (found := caution_of(model))}
    if not said:
        return
    first, *others = said
    trouble, advice = said[first].args
    also = ""
    if others:
        named = ", ".join(map(str, others[:MOST_NAMED]))
        more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
        also = f"Fits of data sets {named}{more} are not settled either. "
    warn(ConvergenceWarning(f"{also}Data set {first}, counted from 0: {trouble}", advice))
