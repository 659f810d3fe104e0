"""What a user gets who sets nothing: default fits of real tables, beside other classifiers."""

from wideangle_lab.bench.defaults.loop import run

__all__ = ["run"]
