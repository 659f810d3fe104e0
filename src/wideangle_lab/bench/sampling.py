r"""Geodesic HMC against NUTS on the normalised-Gaussian parametrisation of the same target.

NUTS of NumPyro and of BlackJAX samples our distributions directly: ``biject_to`` gives it a
Gaussian vector whose direction is the variable. All run four chains in parallel, after a warm-up
that is not counted. The effective sample size is the smallest over quantities that are invariant
under relabelling.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer import NUTS
from numpyro.infer.util import initialize_model

from wideangle.diagnostics import ess_bulk
from wideangle.infer.geodesic_hmc import geodesic_hmc
from wideangle.infer.kernel import Update, sweep, within
from wideangle.infer.run import run as run_chains
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.priors.von_mises_fisher import VonMisesFisher
from wideangle.sphere import vmf
from wideangle.sphere.geometry import pairwise_angles
from wideangle_lab.bench.harness import Settings
from wideangle_lab.bench.record import OURS, Case, Series
from wideangle_lab.machine import optional

blackjax = optional("blackjax")
N_CHAINS = 4
RIVAL, BLACKJAX = "NumPyro NUTS", "BlackJAX NUTS"
N_STEPS = 8
ACCEPTANCE = 0.8
"""Target acceptance of both samplers (the default of NUTS)."""


class Target(NamedTuple):
    """A density on unit vectors, as a function for our kernels and as a NumPyro model."""

    name: str
    log_density: Callable[[dict[str, Any]], Any]
    model: Callable[[], None]
    initial: Callable[[Any], dict[str, Any]]
    quantities: Callable[[np.ndarray], np.ndarray]
    """Maps draws (chain, draw, ...) to label-invariant quantities (chain, draw, n)."""


class Efficiency(NamedTuple):
    """Efficiency of one repeat."""

    per_gradient: float
    per_second: float


def measure(settings: Settings) -> list[Case]:
    """Effective samples per gradient and per second, on two targets."""
    n_draws, n_warmup = (100, 100) if settings.quick else (1000, 1000)
    targets = [single_direction(), repelling_components(settings.seed)]
    cases = []
    for target in targets[-1:] if settings.quick else targets:
        key = jax.random.key(settings.seed)
        samplers = {
            OURS: geodesic(key, target, n_warmup, n_draws),
            RIVAL: numpyro_nuts(key, target, n_warmup, n_draws),
        }
        if blackjax is not None:
            samplers[BLACKJAX] = blackjax_nuts(key, target, n_warmup, n_draws)
        results: dict[str, list[Efficiency]] = {name: [] for name in samplers}
        for _ in range(settings.repeats):
            for name, advance in samplers.items():
                results[name].append(advance())
        for field, unit in (("per_gradient", "ESS / gradient"), ("per_second", "ESS / s")):
            entries = {
                name: Series(tuple(getattr(one, field) for one in of_sampler))
                for name, of_sampler in results.items()
            }
            note = f"Geodesic HMC with {N_STEPS} steps; {N_CHAINS} chains of {n_draws} draws."
            cases.append(Case(target.name, unit, entries, higher_is_better=True, note=note))
    return cases


def single_direction() -> Target:
    """A concentrated von Mises-Fisher posterior."""
    dim, kappa = 50, 100.0
    mean = np.zeros(dim, np.float32)
    mean[0] = 1.0
    natural = jnp.asarray(kappa * mean)

    def model() -> None:
        numpyro.sample("directions", VonMisesFisher(mean, kappa))

    def quantities(draws: np.ndarray) -> np.ndarray:
        return np.concatenate([draws[..., :3], draws[..., 1:3] ** 2], axis=-1)

    return Target(
        f"vMF posterior, p={dim}, kappa={kappa:.0f}",
        lambda latents: vmf.log_ratio_to_uniform(natural, latents["directions"]),
        model,
        lambda key: {"directions": vmf.sample(key, natural)},
        quantities,
    )


def repelling_components(seed: int) -> Target:
    """Five components with the prior of type I, each observed in a few noisy directions."""
    n_components, dim, noise, n_seen = 5, 20, 20.0, 4
    prior = MutualAngular.from_cosine(n_components, dim, 0.5)
    key_truth, key_seen = jax.random.split(jax.random.key(seed + 1))
    truth = prior.sample(key_truth)
    seen = vmf.sample(key_seen, noise * truth, (n_seen,))
    pull = noise * jnp.sum(seen, axis=0)  # the likelihood is linear in the directions

    def log_density(latents: dict[str, Any]) -> Any:
        directions = latents["directions"]
        return prior.log_ratio_to_uniform(directions) + jnp.sum(pull * directions)

    def model() -> None:
        directions = numpyro.sample("directions", prior)
        numpyro.factor("seen", jnp.sum(pull * directions))

    @jax.jit
    def summaries(draws: Any) -> Any:
        angles = pairwise_angles(draws)[..., *np.triu_indices(n_components, 1)]
        level = prior.log_ratio_to_uniform(draws) + jnp.sum(pull * draws, axis=(-2, -1))
        return jnp.concatenate([jnp.sort(angles, axis=-1), level[..., None]], axis=-1)

    return Target(
        f"mutual-angular posterior, K={n_components}, p={dim}",
        log_density,
        model,
        lambda key: {"directions": prior.sample(key)},
        lambda draws: np.asarray(summaries(draws)),
    )


def geodesic(key: Any, target: Target, n_warmup: int, n_draws: int) -> Callable[[], Efficiency]:
    """A run that every call continues; its first part compiles and warms up."""

    def recipe(steps: dict[str, Any]) -> Update:
        kernel = geodesic_hmc(steps["directions"], N_STEPS)
        return sweep(directions=within(kernel, "directions", target.log_density))

    options: dict[str, Any] = {"n_warmup": n_warmup, "n_chains": N_CHAINS, "verbose": False}
    options |= {"steps": {"directions": 0.3}, "targets": {"directions": ACCEPTANCE}}
    last = run_chains(key, recipe, target.initial, n_draws=n_draws, **options)
    total = n_draws

    def advance() -> Efficiency:
        nonlocal last, total
        total += n_draws
        start = time.perf_counter()
        last = run_chains(key, recipe, target.initial, n_draws=total, resume=last.state, **options)
        seconds = time.perf_counter() - start
        draws = np.asarray(last.draws.values["directions"])
        return _efficiency(target, draws, last.evaluations["directions"], seconds)

    return advance


def numpyro_nuts(key: Any, target: Target, n_warmup: int, n_draws: int) -> Callable[[], Efficiency]:
    """NumPyro's sampler with default settings, in a separate loop.

    ``MCMC.run`` traces and compiles at every call, which would be timed; this loop is compiled
    once, as ours is.
    """
    kernel = NUTS(target.model, target_accept_prob=ACCEPTANCE)
    state = kernel.init(jax.random.split(key, N_CHAINS), n_warmup, None, (), {})
    constrain = kernel.postprocess_fn((), {})

    def one_draw(state: Any, _: None) -> tuple[Any, Any]:
        state = kernel.sample(state, (), {})  # all chains: it was made for a batch of keys
        return state, (jax.vmap(constrain)(state.z)["directions"], state.num_steps)

    @partial(jax.jit, static_argnums=1)
    def scan(state: Any, n: int) -> tuple[Any, Any]:
        return jax.lax.scan(one_draw, state, length=n)

    state, _ = scan(state, n_warmup)
    state, _ = scan(state, n_draws)  # compiles, where the two lengths differ

    return _advance(target, state, lambda state, _: scan(state, n_draws))


def blackjax_nuts(
    key: Any, target: Target, n_warmup: int, n_draws: int
) -> Callable[[], Efficiency]:
    """BlackJAX's sampler and warm-up with default settings, in NumPyro's coordinates."""
    keys = jax.random.split(key, N_CHAINS)
    made = initialize_model(keys, target.model)

    def log_density(position: Any) -> Any:
        return -made.potential_fn(position)

    warm_up = blackjax.window_adaptation(
        blackjax.nuts, log_density, target_acceptance_rate=ACCEPTANCE
    )

    @jax.jit
    def adapt(keys: Any, positions: Any) -> Any:
        return jax.vmap(lambda key, at: warm_up.run(key, at, n_warmup)[0])(keys, positions)

    states, parameters = adapt(keys, made.param_info.z)

    @jax.jit
    def scan(key: Any, states: Any) -> tuple[Any, Any]:
        def one_chain(key: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
            state, info = blackjax.nuts(log_density, **parameters).step(key, state)
            draw = made.postprocess_fn(state.position)["directions"]
            return state, (draw, info.num_integration_steps)

        def one_draw(states: Any, key: Any) -> tuple[Any, Any]:
            return jax.vmap(one_chain)(jax.random.split(key, N_CHAINS), states, parameters)

        return jax.lax.scan(one_draw, states, jax.random.split(key, n_draws))

    for _ in range(2):  # the first state has other types than later ones
        states, _ = scan(key, states)
    return _advance(target, states, lambda states, n: scan(jax.random.fold_in(key, n), states))


def _advance(
    target: Target, states: Any, scan: Callable[[Any, int], tuple[Any, Any]]
) -> Callable[[], Efficiency]:
    """Continues the chains at every call; ``scan`` takes the number of earlier calls."""
    count = 0

    def advance() -> Efficiency:
        nonlocal states, count
        count += 1
        start = time.perf_counter()
        states, (draws, n_steps) = jax.block_until_ready(scan(states, count))
        seconds = time.perf_counter() - start
        draws = np.asarray(draws).swapaxes(0, 1)
        return _efficiency(target, draws, int(np.sum(n_steps)), seconds)

    return advance


def _efficiency(target: Target, draws: np.ndarray, gradients: int, seconds: float) -> Efficiency:
    effective = float(np.min(ess_bulk(target.quantities(draws))))
    return Efficiency(effective / gradients, effective / seconds)
