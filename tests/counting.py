"""Counts that no clock disturbs: equations, floating-point operations, compilations, lines run.

A hot path that loses its complexity class, is unrolled, compiled again at every step, or asks the
host in the middle, changes one of them by far more than rounding.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import jaxprs_in_params

COMPILED = "/jax/core/compile/backend_compile_duration"
CALLBACKS = {"pure_callback", "io_callback", "debug_callback", "infeed", "outfeed"}


class Program(NamedTuple):
    """What stands in a program; nothing is compiled or run to know it."""

    primitives: Counter[str]
    """Operations, those of inner programs (loops, branches) included once."""
    flops: float
    bytes: float
    """XLA's counts of the program as it is written; the body of a loop counts once."""

    @property
    def size(self) -> int:
        """Number of operations."""
        return self.primitives.total()


def read(function: Callable[..., Any], *args: Any) -> Program:
    """The program of a function for arguments, or shapes of arguments."""
    traced = jax.jit(function).trace(*args)
    total: Counter[str] = Counter()

    def visit(jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            total[equation.primitive.name] += 1
            for inner in jaxprs_in_params(equation.params):
                visit(inner)

    visit(traced.jaxpr.jaxpr)
    cost: Any = traced.lower().cost_analysis()
    return Program(total, cost["flops"], cost["bytes accessed"])


def resized(tree: Any, old: int, new: int) -> Any:
    """Shapes of the leaves, with ``new`` wherever an axis has length ``old``."""

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        sizes = (new if size == old else size for size in leaf.shape)
        return jax.ShapeDtypeStruct(tuple(sizes), leaf.dtype)

    return jax.tree.map(shape, tree)


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
