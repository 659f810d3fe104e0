"""Pictures of fitted models: every function takes a fitted model and returns a figure.

Needs matplotlib, which the ``report`` extra brings; it is imported when a picture is drawn. Colours
suit any colour vision, and nothing global is changed: no pyplot, no settings.
"""

from wideangle.plots.angles import angle_distribution, angle_heatmap
from wideangle.plots.calibration import calibration, interval_calibration
from wideangle.plots.chains import component_count, rank_plot, trace
from wideangle.plots.components import component_images, component_weights, top_words
from wideangle.plots.intervals import prediction_bands
from wideangle.plots.rows import activation_matrix, component_map

__all__ = [
    "activation_matrix",
    "angle_distribution",
    "angle_heatmap",
    "calibration",
    "component_count",
    "component_images",
    "component_map",
    "component_weights",
    "interval_calibration",
    "prediction_bands",
    "rank_plot",
    "top_words",
    "trace",
]
