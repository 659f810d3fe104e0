"""The default sampler of the mixture of experts against NUTS on the same posterior.

All samplers are timed with starts, warm-up and draws, but without compilation. NUTS uses our prior
and our likelihood with its hand-written gradient, and runs its chains sequentially, which is
fastest: in parallel, all would wait for the longest trajectory. From its own starts it may not find
the mass of the posterior in so short a run, so it is also run from ours. NUTS is NumPyro's and, if
installed, BlackJAX's.

Efficiency is the smallest effective sample size over quantities that do not depend on the order of
the experts, per second of CPU time, which other load on the machine affects less than wall-clock
time.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import biject_to
from numpyro.infer import NUTS
from numpyro.infer.util import initialize_model

from wideangle.datasets import mixture_data
from wideangle.diagnostics import ess_bulk
from wideangle.mixture_of_experts.classes import LogisticExperts
from wideangle.mixture_of_experts.classifier import MixtureOfExpertsClassifier
from wideangle.mixture_of_experts.coordinates import Priors, Problem, weights_of
from wideangle.mixture_of_experts.data import Data, make_dense
from wideangle.mixture_of_experts.likelihood import Weights, log_lik
from wideangle.mixture_of_experts.modes import climb
from wideangle.mixture_of_experts.predict import trace
from wideangle.mixture_of_experts.prepare import learn_scaling
from wideangle.mixture_of_experts.task import plan
from wideangle.posterior import Draws
from wideangle.settings import MutualAngularPrior, Sampling
from wideangle_lab.bench.harness import Settings
from wideangle_lab.bench.record import OURS, Case, Series
from wideangle_lab.machine import optional

blackjax = optional("blackjax")
RIVAL, BLACKJAX = "NumPyro NUTS", "BlackJAX NUTS"
CHUNK = 10
"""Iterations of NUTS in one compiled call."""
EXPERT = LogisticExperts()


class Sizes(NamedTuple):
    """Sizes of the data and of the chains."""

    n_rows: int
    n_columns: int
    n_experts: int
    n_nuts: int
    """Warm-up iterations of NUTS, and draws, of each chain."""
    inference: Sampling
    """Settings of our estimator."""
    repeats: int

    @property
    def n_chains(self) -> int:
        """Number of chains of every sampler."""
        return self.inference.n_chains


class Outcome(NamedTuple):
    """Result of one fit."""

    effective: float
    seconds: float


QUICK = Sizes(400, 5, 2, 30, Sampling(n_warmup=40, n_draws=40, n_chains=2), 1)
FULL = Sizes(5000, 20, 5, 200, Sampling(), 2)


def measure(settings: Settings) -> list[Case]:
    """One case: smallest effective sample size per second of CPU time."""
    sizes = QUICK if settings.quick else FULL
    task = Task(settings.seed, sizes)
    rivals = {RIVAL: task.nuts(from_modes=False)}
    if not settings.quick:
        rivals[f"{RIVAL}, our starts"] = task.nuts(from_modes=True)
    if blackjax is not None:
        rivals[f"{BLACKJAX}, our starts"] = task.blackjax_nuts()
    samplers = {OURS: task.ours, **rivals}
    outcomes: dict[str, list[Outcome]] = {name: [] for name in samplers}
    for fit in samplers.values():
        fit(settings.seed, compile_only=True)
    for repeat in range(1, sizes.repeats + 1):
        for name, fit in samplers.items():
            outcomes[name].append(fit(settings.seed + repeat))
    per_second = {
        name: Series(tuple(one.effective / one.seconds for one in each))
        for name, each in outcomes.items()
    }
    spent = {name: np.median([one.seconds for one in each]) for name, each in outcomes.items()}
    return [
        Case(
            f"mixture of experts, N={sizes.n_rows}, p={sizes.n_columns}, K={sizes.n_experts}",
            "ESS / CPU s",
            per_second,
            higher_is_better=True,
            targets={} if settings.quick else dict.fromkeys(rivals, 3.0),
            note=f"Sampling: {sizes.n_chains} chains each, compilation not timed. A fit took "
            f"{spent[OURS]:.3g} CPU seconds with the estimator's defaults (the prior not learned, "
            f"so that both have one posterior) and {spent[RIVAL]:.3g} with NUTS, which had "
            f"{sizes.n_nuts} iterations of warm-up and {sizes.n_nuts} draws.",
        )
    ]


class Task:
    """One posterior, and three ways to sample it."""

    def __init__(self, seed: int, sizes: Sizes) -> None:
        self.sizes = sizes
        shape = {"n_rows": sizes.n_rows, "n_columns": sizes.n_columns}
        self.data = mixture_data(seed, n_experts=sizes.n_experts, **shape)
        self.model = MixtureOfExpertsClassifier(
            sizes.n_experts,
            prior=MutualAngularPrior(scale=1.0, common=False),
            inference=sizes.inference,
            verbose=False,
        )

    def ours(self, seed: int, compile_only: bool = False) -> Outcome:
        """A fit with the estimator; its compiled programs do not depend on its length."""
        began = time.process_time()
        with warnings.catch_warnings():
            # Chains of a benchmark may be too short for what the estimator recommends.
            warnings.simplefilter("ignore", UserWarning)
            model = self.model.set_params(random_state=seed).fit(self.data.X, self.data.y)
        seconds = time.process_time() - began
        return Outcome(smallest_ess(model.trace_.values), seconds)

    def posterior(self) -> tuple[Priors, Data]:
        """Priors and rows as the estimator prepares them."""
        y = np.asarray(self.data.y, np.int32)
        ones = np.ones(len(y))
        scaling = learn_scaling(self.data.X, ones, standardise=True)
        rows = scaling.apply(self.data.X)
        model = self.model
        task = plan(model.prior, model.choice("inference"), model.n_experts, rows.shape[1], EXPERT)
        return task.priors, make_dense(Data(rows, y, ones))

    def nuts(self, *, from_modes: bool) -> Callable[[int], Outcome]:
        """NumPyro's sampler with default settings, from its own starts or from our modes."""
        priors, batch = self.posterior()
        kernel = NUTS(partial(numpyro_model, priors, batch))
        n_chains, n_nuts = self.sizes.n_chains, self.sizes.n_nuts

        @jax.jit
        def advance(state: Any) -> tuple[Any, Any]:
            def one(state: Any, _: None) -> tuple[Any, Any]:
                state = kernel.sample(state, (), {})
                return state, kernel.postprocess_fn((), {})(state.z)

            return jax.lax.scan(one, state, length=CHUNK)

        def one_chain(key: Any, first: Any, n_iterations: int) -> Any:
            state = kernel.init(key, n_nuts, first, (), {})
            chunks = []
            for _ in range(-(-n_iterations // CHUNK)):
                state, draws = advance(state)
                chunks.append(draws)
            return jax.tree.map(lambda *leaves: np.concatenate(leaves), *chunks)

        def fit(seed: int, compile_only: bool = False) -> Outcome:
            began = time.process_time()
            keys = jax.random.split(jax.random.key(seed), n_chains + 1)
            first = [None] * n_chains
            if from_modes:
                first = modes(keys[0], priors, batch, n_chains)
            n_iterations = CHUNK if compile_only else 2 * n_nuts
            each = zip(keys[1:], first, strict=True)
            chains = [one_chain(key, start, n_iterations) for key, start in each]
            draws: Any = jax.tree.map(lambda *leaves: last_draws(np.stack(leaves), n_nuts), *chains)
            values = invariants(draws, batch)
            return Outcome(smallest_ess(values), time.process_time() - began)

        return fit

    def blackjax_nuts(self) -> Callable[..., Outcome]:
        """BlackJAX's sampler and warm-up with default settings, from our modes."""
        priors, batch = self.posterior()
        made = initialize_model(jax.random.key(0), partial(numpyro_model, priors, batch))
        n_chains, n_nuts = self.sizes.n_chains, self.sizes.n_nuts

        def log_density(position: Any) -> Any:
            return -made.potential_fn(position)

        def one_chain(key: Any, first: Any) -> Any:
            key_warm, key_draws = jax.random.split(key)
            warm_up = blackjax.window_adaptation(blackjax.nuts, log_density)
            (state, parameters), _ = warm_up.run(key_warm, first, n_nuts)
            step = blackjax.nuts(log_density, **parameters).step

            def one(state: Any, key: Any) -> tuple[Any, Any]:
                state, _ = step(key, state)
                return state, made.postprocess_fn(state.position)

            return jax.lax.scan(one, state, jax.random.split(key_draws, n_nuts))[1]

        keys = jax.random.split(jax.random.key(0), n_chains + 1)
        first = modes(keys[0], priors, batch, n_chains)
        compiled = jax.jit(one_chain).lower(keys[1], first[0]).compile()

        def fit(seed: int, compile_only: bool = False) -> Outcome:
            began = time.process_time()
            keys = jax.random.split(jax.random.key(seed), n_chains + 1)
            first = modes(keys[0], priors, batch, n_chains)
            if compile_only:  # the chain is compiled above, the summaries by the other samplers
                return Outcome(np.nan, np.nan)
            chains = [compiled(key, start) for key, start in zip(keys[1:], first, strict=True)]
            draws: Any = jax.tree.map(lambda *leaves: np.stack(leaves), *chains)
            values = invariants(draws, batch)
            return Outcome(smallest_ess(values), time.process_time() - began)

        return fit


def invariants(draws: dict[str, Any], data: Data) -> dict[str, Any]:
    """Quantities of each draw that do not depend on the order of the experts."""
    weights = Weights(draws["gate"], draws["experts"][..., None, :])
    kept = Draws({"weights": weights, "log_lik": np.asarray(_log_liks(weights, data))})
    rows = np.asarray(data.rows)[np.asarray(data.weights) > 0]  # the others are padding
    return trace(EXPERT, kept, rows).values


def last_draws(draws: np.ndarray, count: int) -> np.ndarray:
    """The last draws of each chain; repeated if there are too few, to keep the shape."""
    return np.take(draws, np.arange(-count, 0), axis=1, mode="wrap")


def modes(key: Any, priors: Priors, batch: Any, n_chains: int) -> list[Any]:
    """Unconstrained starts for NUTS: the best modes of several optimisations."""
    found = climb(key, Problem(priors, EXPERT, batch), n_starts=4 * n_chains, verbose=False)
    points = [jax.tree.map(lambda leaf, i=i: leaf[i], found.points) for i in range(n_chains)]
    weights = [weights_of(priors, point, EXPERT) for point in points]
    gate, experts = (biject_to(prior.support) for prior in priors)
    return [{"gate": gate.inv(w.gate), "experts": experts.inv(w.experts[:, 0])} for w in weights]


def numpyro_model(priors: Priors, data: Data) -> None:
    """The posterior of the estimator as a NumPyro model."""
    gate = numpyro.sample("gate", priors.gate)
    experts: Any = numpyro.sample("experts", priors.experts)
    numpyro.factor("data", log_lik(EXPERT, Weights(gate, experts[:, None]), data))


@jax.jit
def _log_liks(weights: Weights, data: Data) -> Any:
    flat = jax.tree.map(lambda leaf: jnp.reshape(leaf, (-1, *leaf.shape[2:])), weights)
    values: Any = jax.lax.map(lambda w: log_lik(EXPERT, w, data), flat)
    return values.reshape(weights.gate.shape[:2])


def smallest_ess(values: dict[str, np.ndarray]) -> float:
    """Smallest effective sample size over all quantities that vary."""
    flat = [np.reshape(v, (*v.shape[:2], -1)) for v in values.values()]
    numbers: Any = np.concatenate(flat, axis=-1)
    moving = np.max(numbers, axis=(0, 1)) > np.min(numbers, axis=(0, 1))
    return float(np.min(ess_bulk(numbers[..., moving])))
