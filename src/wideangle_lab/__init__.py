"""Benchmarks, calibration and the paper's tables. The library never imports this package."""
