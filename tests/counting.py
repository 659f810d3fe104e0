"""Counts that no clock disturbs: equations, floating-point operations, compilations, lines run.

A hot path that loses its complexity class, is unrolled, compiled again at every step, or asks the
host in the middle, changes one of them by far more than rounding.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

COMPILED = "/jax/core/compile/backend_compile_duration"
CALLBACKS = {"pure_callback", "io_callback", "debug_callback", "infeed", "outfeed"}


def primitives(function: Callable[..., Any], *args: Any) -> Counter[str]:
    """How often each operation stands in the program, inner programs (loops, branches) included."""
    total: Counter[str] = Counter()

    def visit(jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            total[equation.primitive.name] += 1
            for inner in jax.core.jaxprs_in_params(equation.params):
                visit(inner)

    visit(jax.make_jaxpr(function)(*args).jaxpr)
    return total


def cost(function: Callable[..., Any], *args: Any) -> dict[str, float]:
    """XLA's count of the program as it is written; the body of a loop counts once."""
    analysis: Any = jax.jit(function).lower(*args).cost_analysis()
    return {"flops": analysis["flops"], "bytes": analysis["bytes accessed"]}


@contextmanager
def compilations() -> Iterator[list[str]]:
    """The programs that are compiled inside."""
    seen: list[str] = []

    def listen(event: str, _: float, **names: Any) -> None:
        if event == COMPILED:
            seen.append(str(names))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def lines_run(function: Callable[..., Any], *args: Any) -> int:
    """Lines of a Python function that are executed, with repetition: loops count every turn."""
    code, count = function.__code__, 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code is not code:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*args)
    finally:
        sys.settrace(before)
    return count


def bend(counts: list[float]) -> float:
    """Second difference of the counts at n, 2n and 3n, as a share of the last: 0 if linear."""
    first, second, third = counts
    return float(np.abs(third - 2 * second + first) / third)
