"""Variational mixture of experts: the collapsed bound, climbed by stochastic gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from wideangle.checks import check_choice, check_count, check_range
from wideangle.infer.ascent import Ascent, AscentState
from wideangle.mixture_of_experts import evaluate
from wideangle.mixture_of_experts.climb import Data, Job, Stream, plain
from wideangle.mixture_of_experts.collapsed import Guides, as_weights
from wideangle.mixture_of_experts.experts import ExpertLikelihood
from wideangle.mixture_of_experts.likelihood import Batch, Weights
from wideangle.priors.components import ComponentPrior
from wideangle.storage import Checkpoint
from wideangle.types import Key

__all__ = [
    "Data",
    "VariationalFit",
    "choose_temperature",
    "fit_vi",
    "predict_proba",
    "usual_temperature",
]

GUIDES = ("vmf", "diagonal")
TEMPERATURES = (0.2, 0.35, 0.6, 1.0)
"""What ``temperature="held-out"`` chooses from, with ``TRIALS`` starts each."""
HELD_OUT, FEWEST_HELD_OUT, TRIALS = 0.2, 20, 2
FEW_ROWS, MANY_ROWS, COOL = 500, 2000, 0.35
DRAW_BYTES = 2**26
"""Most memory for the draws evaluated at once."""
ELBO_DRAWS = 32
USED = 0.01
"""Mean gate mass above which an expert counts as used."""


@dataclass(frozen=True)
class VariationalFit:
    """One start: the law q it reached, and how good that is."""

    guides: Guides
    """q of gate and experts; ``guides.gate.factors`` are vMF and Gamma factors for q="vmf"."""
    expert: ExpertLikelihood
    trace: np.ndarray
    """The (tempered) objective at every step, nats; noisy."""
    elbo: float
    """Lower bound on the log evidence (temperature 1), whatever the temperature of the fit."""
    elbo_error: float
    """Its Monte Carlo standard error."""
    gate_mass: np.ndarray
    """Mean probability of each expert over the rows, (K,)."""
    temperature: float
    interrupted: bool
    state: AscentState
    priors: tuple[ComponentPrior, ComponentPrior]
    """Of gate and experts, as learned."""
    key: Key
    """Randomness of predictions: the same fit always predicts the same."""

    @property
    def used(self) -> int:
        """Experts with more than one per cent of the gate's mass; the others are idle."""
        return int(np.sum(self.gate_mass > USED))

    def sample(self, key: Key, n: int) -> Weights:
        """Exact draws of q, with leading axis n."""
        # One call for each: with one output both have the same shape and share a program.
        parts = [
            evaluate.draw(g, k, n) for g, k in zip(self.guides, random.split(key), strict=True)
        ]
        return as_weights(parts[0], parts[1], self.expert.n_outputs)


def fit_vi(
    key: Key,
    data: Data,
    gate_prior: ComponentPrior,
    expert_prior: ComponentPrior,
    expert: ExpertLikelihood,
    *,
    q: str = "vmf",
    temperature: float | str = "auto",
    n_starts: int = 4,
    n_passes: int | None = None,
    batch_size: int = 1024,
    learning_rate: float = 0.02,
    strengths: tuple[float, float] = (0.0, 0.0),
    gamma: float = 1.0,
    learn: tuple[bool, bool] = (False, False),
    dtype: Any = np.float32,
    progress: bool | None = None,
    callback: Callable[[AscentState, np.ndarray], None] | None = None,
    resume: Sequence[VariationalFit] | None = None,
    checkpoint: Checkpoint | None = None,
    stream: Stream | None = None,
) -> list[VariationalFit]:
    r"""Fit q by stochastic ascent of the collapsed bound, from several starts at once.

    Parameters
    ----------
    gate_prior, expert_prior
        Priors over K vectors of length p, and over K vectors of length O p.
    q
        ``"vmf"``: vMF directions and Gamma lengths, for which the type II mutual-angular prior is
        tractable. ``"diagonal"``: independent Gaussian weights; any prior.
    temperature
        Weight :math:`\tau` of the divergence from the prior. Below 1 the objective is no bound,
        but more experts stay alive and averaged predictions are better once there are thousands
        of rows. ``"auto"`` is :func:`usual_temperature`; ``"held-out"`` takes three times as long
        and is :func:`choose_temperature`.
    n_starts
        Starts; their predictions are averaged, which is worth more than more passes.
    n_passes
        Passes over the data; by default 20, more for few rows (1500 for up to ``batch_size``).
    strengths, gamma
        :math:`\lambda_1, \lambda_2` of the angular regulariser of experts and gate
        (paper: BMEM-PR).
    learn
        Whether to update mean direction and Gamma distribution of the priors of gate and experts
        by M steps on the way, all starts together (``fit.priors``); polar priors only.
    callback
        Called as ``callback(state, trace)`` between compiled calls.
    resume
        Fits of an interrupted call with the same key and options; they are taken up again.
    checkpoint
        Saves the climb while it lasts, and takes up one that was saved.
    stream
        Where minibatches come from, ``seed -> batches``. ``data`` is then a sample of the rows,
        weighted to stand for all of them: starts and the bound at the end come from it.

    Notes
    -----
    Ctrl-C keeps what was reached and sets ``interrupted``. Everything follows from ``key``.
    """
    check_choice("q", q, GUIDES)
    check_count("batch_size", batch_size, 1)
    check_range("learning_rate", learning_rate, 0.0, open_low=True)
    options = (q, n_passes, batch_size, learning_rate, strengths, gamma, dtype, learn)
    priors = (gate_prior, expert_prior) if resume is None else resume[0].priors
    job = Job(plain(priors[0], q), plain(priors[1], q), expert, *options)
    data = job.checked(data)
    key_auto, key_climb, key_report = random.split(key, 3)
    state = None
    if resume is not None:
        state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[fit.state for fit in resume])
        taus = np.array([fit.temperature for fit in resume])
    else:
        tau = temperature
        if isinstance(temperature, str):
            held_out = check_choice("temperature", temperature, ("auto", "held-out")) == "held-out"
            total = data.rows.shape[0]
            tau = choose_temperature(key_auto, job, data) if held_out else usual_temperature(total)
        check_range("temperature", tau, 0.0)
        taus = np.broadcast_to(tau, (check_count("n_starts", n_starts, 1),))
    result, job = job.climb(
        key_climb, data, taus, state,
        stream=stream, checkpoint=checkpoint, progress=progress, callback=callback,
    )  # fmt: skip
    fits = _fits(job, key_report, result, taus)
    for place, earlier in enumerate(resume or ()):
        joined = np.concatenate([earlier.trace, fits[place].trace])
        fits[place] = replace(fits[place], trace=joined)
    return [assess(fit, job, data) for fit in fits]


def _fits(job: Job, key: Key, result: Ascent, taus: np.ndarray) -> list[VariationalFit]:
    def one(place: int, own: Key) -> VariationalFit:
        state = jax.tree.map(lambda leaf: leaf[place], result.state)
        unknown = {"elbo": np.nan, "elbo_error": np.nan, "gate_mass": np.empty(0)}
        return VariationalFit(
            guides=state.position,
            expert=job.expert,
            priors=(job.gate_prior, job.expert_prior),
            trace=result.trace[:, place],
            temperature=float(taus[place]),
            interrupted=result.interrupted,
            state=state,
            key=own,
            **unknown,
        )

    return [one(place, own) for place, own in enumerate(random.split(key, len(taus)))]


def assess(fit: VariationalFit, job: Job, data: Data, n_draws: int = ELBO_DRAWS) -> VariationalFit:
    r"""Add the bound at temperature 1 and the gate's mass.

    Mean over exact draws W of :math:`\log p(y\mid W) - \nabla\cdot(W - EW)`, the gradient
    being that at the mean: a control variate of mean 0 that takes out the first order.
    """
    key_draws, key_prior = random.split(fit.key)
    draws = fit.sample(key_draws, n_draws)
    guides, sums = fit.guides, None
    mean = as_weights(*evaluate.means(guides), n_outputs=job.expert.n_outputs)
    for part, chunk in evaluate.chunks(data.rows, job.dtype):
        pad = (0, len(chunk) - (part.stop - part.start))
        batch = Batch(chunk, np.pad(data.targets[part], pad), np.pad(data.weights[part], pad))
        new = jax.tree.map(
            lambda leaf: np.asarray(leaf, np.float64),
            evaluate.log_liks(fit.expert, draws, mean, batch),
        )
        sums = new if sums is None else jax.tree.map(np.add, sums, new)
    assert sums is not None
    values, slope, mass = sums
    for one, centre, gradient in zip(draws, mean, slope, strict=True):
        away = np.asarray(one, np.float64) - np.asarray(centre, np.float64)
        values = values - np.tensordot(away, gradient, gradient.ndim)
    divergences = evaluate.divergences(
        random.split(key_prior, n_draws), guides, job.terms(jnp.ones(()))
    )
    errors = [np.std(x, ddof=1) / np.sqrt(n_draws) for x in (values, divergences)]
    elbo = float(np.mean(values) + np.mean(divergences))
    return replace(fit, elbo=elbo, elbo_error=float(np.hypot(*errors)), gate_mass=mass / mass.sum())


def usual_temperature(n_rows: int) -> float:
    """1 up to 500 rows, 0.35 from 2000 rows on, and a line in log N between them.

    From measurements: synthetic data with 500 rows are predicted best at 1; Adult (32,561 rows),
    images (3,986) and synthetic data with 4,000 rows between 0.2 and 0.5.
    """
    place = np.log(max(n_rows, 1) / FEW_ROWS) / np.log(MANY_ROWS / FEW_ROWS)
    return float(1.0 - (1.0 - COOL) * np.clip(place, 0.0, 1.0))


def choose_temperature(key: Key, job: Job, data: Data) -> float:
    """The highest of ``TEMPERATURES`` within half a standard error of the best on held-out rows."""
    total = data.rows.shape[0]
    n_held = int(HELD_OUT * total)
    if n_held < FEWEST_HELD_OUT:
        return 1.0
    key_order, key_climb, key_report = random.split(key, 3)
    order = np.asarray(random.permutation(key_order, total))
    held, rest = np.sort(order[:n_held]), np.sort(order[n_held:])
    part = Data(data.rows[rest], data.targets[rest], data.weights[rest])
    taus = np.array(TEMPERATURES)
    each = np.repeat(taus, TRIALS)
    result, job = job.climb(key_climb, part, each, None, progress=False)
    if result.interrupted:
        raise KeyboardInterrupt("interrupted while choosing the temperature: nothing is fitted yet")
    rows, targets = data.rows[held], data.targets[held]
    fits = _fits(job, key_report, result, each)
    # Averaged as in use: the mean over starts is best at a lower temperature than one start.
    chance = [predict_proba(fits[i : i + TRIALS], rows) for i in range(0, len(fits), TRIALS)]
    losses = -np.log(np.maximum([c[np.arange(n_held), targets] for c in chance], 1e-12))
    weights = data.weights[held] / max(data.weights[held].sum(), 1e-12)
    best = int(np.argmin(losses @ weights))
    worse = losses - losses[best]
    mean = worse @ weights
    error = np.sqrt(((worse - mean[:, None]) ** 2) @ weights**2)
    return float(taus[mean <= 0.5 * error].max())


def predict_proba(fits: Sequence[VariationalFit], rows: Any, n_draws: int = 32) -> np.ndarray:
    """Class probabilities (N, C), averaged over draws of each fit and over the fits.

    Rows go through in chunks and draws in blocks, so memory is bounded.
    """
    total: Any = 0.0
    for fit in fits:
        dtype = fit.guides.gate.centres.dtype
        size = sum(guide.centres.size for guide in fit.guides) * dtype.itemsize
        block = int(np.clip(DRAW_BYTES // size, 1, n_draws))
        keys = random.split(fit.key, -(-n_draws // block))
        for key in keys:
            draws = fit.sample(key, block)
            parts = [
                np.asarray(evaluate.predict(fit.expert, draws, chunk))[: part.stop - part.start]
                for part, chunk in evaluate.chunks(rows, dtype)
            ]
            total = total + np.concatenate(parts) / (len(keys) * len(fits))
    return total
