"""Calibration: whether samplers draw from the posterior, and the errors of other fits.

``python -m wideangle_lab.calibration run`` measures every case and writes one JSON file each;
``python -m wideangle_lab.calibration page`` writes ``docs/trust.md`` and its pictures from them.
"""
