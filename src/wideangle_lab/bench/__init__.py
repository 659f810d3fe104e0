"""Speed and sampling efficiency, measured against other libraries in one run."""

from wideangle_lab.bench.harness import run

__all__ = ["run"]
