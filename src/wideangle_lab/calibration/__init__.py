"""Calibration: whether samplers draw from the posterior, and how far from it other fits are.

``python -m wideangle_lab.calibration run`` measures every case and leaves one JSON file each,
``python -m wideangle_lab.calibration page`` writes ``docs/trust.md`` and its pictures from them.
"""
