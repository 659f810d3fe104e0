"""Speed-up on several devices: times of a gradient, and of passes of VI, in memory and streamed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

REPEATS, GRADIENTS = 5, 8
PASSES = 1, 4
"""Of two fits, whose difference is that of whole passes."""
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"


def share(
    rows: int,
    columns: int,
    n_experts: int,
    devices: int,
    processes: int,
    process: int,
    port: int,
    cores: list[int],
) -> dict[str, float]:
    """Seconds of a gradient of the log-likelihood in a trajectory, and of a pass of VI.

    On all devices together; next to each, core seconds of this process, which depend less on what
    else the machine does.
    """
    os.sched_setaffinity(0, cores)
    import jax
    import jax.numpy as jnp

    from wideangle import sharding
    from wideangle.mixture_of_experts.classes import LogisticExperts
    from wideangle.mixture_of_experts.classifier import MixtureOfExpertsClassifier
    from wideangle.mixture_of_experts.data import Data, shard
    from wideangle.mixture_of_experts.likelihood import Weights, log_lik
    from wideangle.settings import MutualAngularPrior, Variational
    from wideangle.streaming import NpyRows

    if processes > 1:
        sharding.join(f"localhost:{port}", processes, process)
    generator = np.random.default_rng(0)
    X = generator.standard_normal((rows, columns), np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(np.int32)
    gate, experts = generator.standard_normal((2, n_experts, columns), np.float32) / columns**0.5
    weights = Weights(jnp.asarray(gate), jnp.asarray(experts)[:, None])
    with sharding.rows_over() as mesh:
        if mesh.size != processes * devices:  # XLA ignores what follows a flag it cannot read
            raise RuntimeError(f"{mesh.size} devices, not {processes * devices}: see XLA_FLAGS")
        batch = shard(Data(X, y, np.ones(rows, np.float32)), mesh)
        expert = LogisticExperts()
        value = jax.jit(lambda w, b: log_lik(expert, w, b))

        @jax.jit
        def trajectory(weights: Weights, batch: Data) -> Weights:
            """Gradients in one program, as samplers need them: its memory is taken once."""
            slope = jax.grad(lambda w: log_lik(expert, w, batch))
            moved = lambda _, w: jax.tree.map(lambda x, g: x + 1e-9 * g, w, slope(w))  # noqa: E731
            return jax.lax.fori_loop(0, GRADIENTS, moved, weights)

        times = [
            _timed(lambda: jax.block_until_ready(trajectory(weights, batch)))
            for _ in range(REPEATS + 1)
        ]
        found = _named("gradient", np.median(times[1:], axis=0) / GRADIENTS)

        def fit(n_passes: int, *, streamed: bool) -> None:
            model = MixtureOfExpertsClassifier(
                n_experts, prior=MutualAngularPrior(scale=1.0, common=False),
                inference=Variational(n_starts=2, n_passes=n_passes, batch_size=8192),
                standardise=False, random_state=0, verbose=False,
            )  # fmt: skip
            model.fit_stream(NpyRows(X, y)) if streamed else model.fit(X, y)

        for name, streamed in (("pass", False), ("stream", True)):
            fit(PASSES[0], streamed=streamed)  # compiles
            # Alternating, and the least of each: another program can only make a run longer.
            taken = [
                [_timed(lambda n=n, s=streamed: fit(n, streamed=s)) for n in PASSES]
                for _ in range(2)
            ]
            few, many = np.min(taken, axis=0)
            found |= _named(name, (many - few) / (PASSES[1] - PASSES[0]))
    # Of all rows on one device: the same in every plan.
    return found | {"value": float(value(weights, Data(X, y, np.ones(rows, np.float32))))}


def _timed(work: Callable[[], Any]) -> np.ndarray:
    """Seconds, and core seconds of this process."""
    began = time.perf_counter(), time.process_time()
    work()
    return np.array([time.perf_counter() - began[0], time.process_time() - began[1]])


def _named(name: str, times: np.ndarray) -> dict[str, float]:
    return {f"{name}_seconds": float(times[0]), f"{name}_cpu_seconds": float(times[1])}


def shares(rows: int, columns: int, n_experts: int, cores: list[int]) -> list[dict[str, Any]]:
    """One device; 2, 4, ... devices in one process, and in as many processes; one core each.

    Last one fit for each core, which know nothing of each other: what the machine allows.
    """
    counts = [2**i for i in range(1, 5) if 2**i <= len(cores)]
    plans = [(1, 1, 1), *((n, 1, 1) for n in counts), *((1, n, 1) for n in counts)]
    found = []
    for devices, processes, fits in [*plans, *((1, 1, n) for n in counts[-1:])]:
        size = {"rows": rows, "columns": columns, "n_experts": n_experts}
        measured = _together(size, devices, processes, fits, cores)
        found.append({"devices": devices, "processes": processes, "fits": fits, **measured})
        print(json.dumps(found[-1]), flush=True)
        for name in ("gradient", "pass", "stream"):
            alone = found[0][f"{name}_seconds"]
            faster = alone / found[-1][f"{name}_seconds"]
            found[-1][f"{name}_efficiency"] = faster / (devices * processes)
    return found


def _together(
    size: dict[str, int], devices: int, processes: int, fits: int, cores: list[int]
) -> dict[str, float]:
    """All processes at once: seconds of the slowest one, core seconds of all."""
    with socket.socket() as one:
        one.bind(("localhost", 0))
        port = one.getsockname()[1]
    flags = f"{ONE_THREAD} --xla_force_host_platform_device_count={devices}"
    job = [sys.executable, "-m", "wideangle_lab.bench.scale.jobs", "share"]
    running = []
    for process in range(processes * fits):
        pinned = cores[process * devices : (process + 1) * devices]
        options = {
            **size,
            "devices": devices,
            "processes": processes,
            "process": process,
            "port": port,
        }
        running.append(
            subprocess.Popen(
                [*job, json.dumps(options | {"cores": pinned})],
                env=os.environ | {"XLA_FLAGS": flags, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    outputs = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError(f"{devices} devices, {processes} processes: one of them failed")
    every = [json.loads(output.splitlines()[-1]) for output in outputs]
    return {
        name: sum(one[name] for one in every)
        if "_cpu_" in name
        else max(one[name] for one in every)
        for name in every[0]
    }
