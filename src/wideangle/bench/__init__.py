"""Speed and sampling efficiency, measured against other libraries in one run."""

from wideangle.bench.harness import run

__all__ = ["run"]
