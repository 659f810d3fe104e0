r"""How far variational fits of a mixture of experts are from calibrated.

No variational fit is exact, so ranks are not tested: the coverage of central intervals and the mean
rank are reported. One property is tested: the bound of a fit must be below the log evidence, which
for these small problems is estimated from draws of the prior:

.. math:: \log p(y) = \log E_{\text{prior}}\prod_n p(y_n\mid x_n,\theta).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.mixture_of_experts.coordinates import weights_of
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import Pair, Weights, predict
from wideangle.mixture_of_experts.task import NEITHER, Task
from wideangle.mixture_of_experts.variational import fit_starts
from wideangle.priors.components import PolarComponents
from wideangle.settings import Variational
from wideangle.types import Array, Key
from wideangle_lab.calibration import experts
from wideangle_lab.calibration.verdicts import Ranked, judge_ranks
from wideangle_lab.paper.coordinate_ascent.ascent import coordinate_ascent

N_DRAWS = 63
N_STARTS = 4
N_PRIOR, BLOCK = 400_000, 20_000
MAX_SWEEPS = 200
N_PASSES = 1500


class Case(NamedTuple):
    """A prior and a family of q."""

    prior: str
    guide: str

    @property
    def name(self) -> str:
        """Name with slashes, like a path."""
        return f"variational/{self.prior}/{self.guide}"

    @property
    def model(self) -> experts.Case:
        """The model, independent of the fit."""
        return experts.Case(self.prior, "hmc")


CASES = [
    Case("gaussian", "diagonal"),
    Case("dpp", "diagonal"),
    Case("mutual-angular II", "diagonal"),
    Case("mutual-angular II", "vmf"),
    Case("vmf", "vmf"),
    Case("mutual-angular II", "coordinate"),
    Case("gaussian", "coordinate"),
    Case("vmf", "coordinate"),
]


def calibrate(case: Case, *, n_sets: int, seed: int) -> Ranked:
    """Ranks among draws of q, and the gap between the bound and the evidence."""
    model = case.model
    keys = jax.random.split(jax.random.key(seed), 3)
    points, targets = jax.jit(jax.vmap(partial(experts.simulate, case=model)))(
        jax.random.split(keys[0], n_sets)
    )
    evidence, error = log_evidence(keys[1], model, np.asarray(targets))
    fit = _coordinate if case.guide == "coordinate" else _collapsed
    draws, bounds = [], []
    for key, observed in zip(jax.random.split(keys[2], n_sets), np.asarray(targets), strict=True):
        weights, bound = fit(key, case, observed)
        draws.append(_quantities(weights, jnp.asarray(observed), model))
        bounds.append(bound)
    truth = jax.jit(jax.vmap(lambda x: weights_of(model.priors, x, model.expert)))(points)
    found = jax.jit(
        jax.vmap(lambda w, y: experts.quantities({"weights": w}, experts.problem_of(model, y)))
    )(truth, targets)
    many = jax.tree.map(lambda *leaves: np.stack(leaves), *draws)
    gap = evidence - np.array([bound[0] for bound in bounds])
    noise = np.hypot(error, np.array([bound[1] for bound in bounds]))
    return judge_ranks(
        found,
        many,
        seed=seed,
        gap=[float(np.quantile(gap, q)) for q in (0.0, 0.5, 1.0)],
        bound_z=float(np.min(gap / noise)),
    )


def log_evidence(
    key: Key, model: experts.Case, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Log evidence of each data set (S, N) and its standard error, from draws of the prior."""

    @jax.jit
    def block(key: Key) -> tuple[Array, Array, Array]:
        def chances(key: Key) -> Array:
            x, _ = experts.simulate(key, model)
            weights = weights_of(model.priors, x, model.expert)
            return jnp.log(predict(model.expert, weights, experts.make_rows()))

        logs = jax.vmap(chances)(jax.random.split(key, BLOCK))  # (block, N, 2)
        ones = jnp.asarray(targets, logs.dtype).T
        total = jnp.dot(logs[:, :, 1], ones, precision="highest")
        total += jnp.dot(logs[:, :, 0], 1.0 - ones, precision="highest")
        top = jnp.max(total, axis=0)
        parts = jnp.exp(total - top)
        return top, jnp.sum(parts, axis=0), jnp.sum(parts**2, axis=0)

    keys = jax.random.split(key, N_PRIOR // BLOCK)
    tops, sums, squares = (np.stack(part) for part in zip(*map(block, keys), strict=True))
    top = tops.max(axis=0)
    first = np.sum(sums * np.exp(tops - top), axis=0, dtype=float) / N_PRIOR
    second = np.sum(squares * np.exp(2 * (tops - top)), axis=0, dtype=float) / N_PRIOR
    return top + np.log(first), np.sqrt((second / first**2 - 1.0) / N_PRIOR)


@partial(jax.jit, static_argnums=2)
def _quantities(weights: Weights, targets: Array, model: experts.Case) -> dict[str, Array]:
    problem = experts.problem_of(model, targets)
    return jax.vmap(lambda one: experts.quantities({"weights": one}, problem))(weights)


def _collapsed(key: Key, case: Case, targets: np.ndarray) -> tuple[Weights, tuple[float, float]]:
    """The default fit: several starts of the collapsed bound, one draw of q from each in turn."""
    key_fit, key_draw = jax.random.split(key)
    rows = np.asarray(experts.make_rows())
    data = Data(rows, targets, np.ones(len(rows), np.float32))
    model = case.model
    inference = Variational(guide=case.guide, n_starts=N_STARTS, n_passes=N_PASSES)
    task = Task(model.priors, NEITHER, model.expert, inference, verbose=False)
    fits = fit_starts(key_fit, task, data)
    keys = jax.random.split(key_draw, N_STARTS)
    each = [fit.sample(k, N_DRAWS // N_STARTS + 1) for fit, k in zip(fits, keys, strict=True)]
    every = jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:N_DRAWS], *each)
    best = max(fits, key=lambda fit: fit.elbo)
    return every, (best.elbo, best.elbo_error)


def _coordinate(key: Key, case: Case, targets: np.ndarray) -> tuple[Weights, tuple[float, float]]:
    """The paper's coordinate ascent: one start, and its bound, which has no noise."""
    key_fit, key_draw = jax.random.split(key)
    rows = experts.make_rows()
    batch = Data(rows, jnp.asarray(targets), jnp.ones(len(rows), rows.dtype))
    found = coordinate_ascent(
        key_fit,
        batch,
        case.model.priors,
        max_sweeps=MAX_SWEEPS,
        learn=Pair(*(isinstance(prior, PolarComponents) for prior in case.model.priors)),
    )
    keys = jax.random.split(key_draw)
    pairs = zip(found.factors, keys, strict=True)
    gate, expert = (factors.sample(k, (N_DRAWS,)).vectors for factors, k in pairs)
    return Weights(gate, expert[:, :, None]), (float(found.bounds[-1]), 0.0)
