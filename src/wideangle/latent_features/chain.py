"""One chain: sweeps until the plan is done, wherever its rows live, and their draws and trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from wideangle.latent_features.directions import Tuning, start_tuning
from wideangle.latent_features.rows import Rows, Span
from wideangle.latent_features.state import Design, Draw, Features, Hyper, room_for, with_room
from wideangle.latent_features.sweep import SweepInfo
from wideangle.types import Components, Key

MOST_KEPT = 64
"""Number of states kept of a chain without a given length."""


@dataclass
class Chain:
    """Current state of a chain, with its draws and trace."""

    key: Key
    features: Features
    tuning: Tuning = field(default_factory=start_tuning)
    n_done: int = 0
    trace: dict[str, list[Any]] = field(default_factory=dict)
    """Quantities of every sweep after warm-up that do not depend on the numbering of features."""
    draws: list[Draw] = field(default_factory=list)


class Plan(NamedTuple):
    """How long a chain is, and which of its states are kept."""

    n_warmup: int = 100
    n_draws: int = 25
    thin: int = 8

    @property
    def n_sweeps(self) -> int:
        """Sweeps in all."""
        return self.n_warmup + self.n_draws * self.thin

    def lasting(self, n_sweeps: int) -> Plan:
        """The plan with this many sweeps after warm-up, at most :data:`MOST_KEPT` of them kept.

        The interval between kept states doubles as a chain grows, so that a longer chain keeps
        states that a shorter one has kept.
        """
        thin = self.thin
        while n_sweeps // thin > MOST_KEPT:
            thin *= 2
        return Plan(self.n_warmup, -(-n_sweeps // thin), thin)

    def keeps(self, n_done: int) -> bool:
        """Whether the state after this many sweeps is kept."""
        return n_done > self.n_warmup and (n_done - self.n_warmup) % self.thin == 0

    def span(self, n_done: int, at_most: int) -> Span:
        """The next sweeps: until the end of warm-up, the next state to keep, or ``at_most``."""
        if n_done < self.n_warmup:
            left = self.n_warmup - n_done
        else:
            left = self.thin - (n_done - self.n_warmup) % self.thin
        return Span(n_done, min(left, at_most), self.n_warmup)


def begin_chain(key: Key, vectors: np.ndarray, assignments: np.ndarray, hyper: Hyper) -> Chain:
    """A chain that starts from given features and assignments; unused features are left out."""
    key_weights, key_chain = jax.random.split(key)
    in_use = assignments.any(axis=0)
    vectors, assignments = vectors[in_use], assignments[:, in_use]
    n_rows, n_live = assignments.shape
    counts = assignments.sum(axis=0)
    seed = np.asarray(jax.random.key_data(key_weights)).astype(np.uint64)
    weights = np.random.default_rng(seed).beta(np.maximum(counts, 1), n_rows - counts + 1)
    weights = np.clip(weights, 1e-12, 1 - 1e-6)
    order = np.argsort(-weights)
    dtype = hyper.noise_variance.dtype
    # In NumPy: each small operation of JAX would be compiled.
    lengths = np.linalg.norm(vectors[order], axis=1)
    directions = vectors[order] / np.where(lengths > 0, lengths, 1.0)[:, None]
    parts: Any = weights[order], Components(directions, lengths)
    weights, components = jax.tree.map(lambda part: part.astype(dtype), parts)
    features = Features(
        weights,
        components,
        assignments[:, order].astype(np.uint8),
        np.asarray(n_live, np.int32),
        hyper,
    )
    return Chain(key_chain, jax.device_put(with_room(features, room_for(n_live))))


def thinned(chain: Chain, first: Plan, plan: Plan) -> None:
    """Drop the states that a longer plan than the ``first`` does not keep."""
    n_sweeps, thin = max(chain.n_done - plan.n_warmup, 0), first.thin
    while thin < plan.thin and n_sweeps // thin != len(chain.draws):
        thin *= 2
    step = plan.thin // thin
    chain.draws = chain.draws[step - 1 :: step]


def run_chain(
    chain: Chain,
    rows: Rows,
    design: Design,
    plan: Plan,
    *,
    after: Callable[[Chain], bool] | None = None,
) -> Chain:
    """Sweep until the plan is done.

    ``after`` is called after each sweep, or each program of several sweeps, and may end the run.
    """
    while chain.n_done < plan.n_sweeps:
        span = plan.span(chain.n_done, rows.at_once)
        moved = rows.advance(chain.key, span, chain.features, chain.tuning, design)
        chain.features, chain.tuning = moved.features, moved.tuning
        for info, hyper in moved.reports:
            chain.n_done += 1
            if chain.n_done > plan.n_warmup:
                _record(chain, info, hyper, rows.n_rows * rows.dim)
        if moved.reports and plan.keeps(chain.n_done):
            chain.draws.append(rows.keep(chain.features))
        if after is not None and after(chain):
            break
    return chain


def _record(chain: Chain, info: SweepInfo, hyper: Hyper, n_entries: int) -> None:
    """Add the quantities of one sweep to the trace."""
    numbers = {
        "n_active": info.n_active,
        "log_lik": info.log_lik,
        "log_joint": info.log_joint,
        "residual_rms": np.sqrt(info.residual / n_entries),
        "alpha": hyper.buffet.mass,
        "noise_variance": hyper.noise_variance,
        "concentration": hyper.concentration,
        "rate": hyper.rate,
        "discount": hyper.buffet.discount,
        "strength": hyper.buffet.strength,
        "acceptance": info.moved.directions.acceptance,
    }
    for name, value in numbers.items():
        chain.trace.setdefault(name, []).append(float(value))
    chain.trace.setdefault("signal", []).append(np.asarray(info.signal, float).tolist())
