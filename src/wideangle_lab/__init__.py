"""Measures wideangle: benchmarks, calibration, the paper's tables. The library never imports it."""
