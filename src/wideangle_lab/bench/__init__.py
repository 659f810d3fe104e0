"""Benchmarks of speed and sampling efficiency against other libraries, measured in one run."""

from wideangle_lab.bench.harness import run

__all__ = ["run"]
