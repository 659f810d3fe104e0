"""Inference: kernels, sweeps and the loop that runs them.

Everything here works on densities and arrays only; no prior or model is imported.
"""

from wideangle.infer.geodesic_hmc import geodesic_hmc
from wideangle.infer.kernel import Info, Kernel, Update, exactly, sweep, within
from wideangle.infer.metropolis import each_row, metropolis, positive_walk, vmf_walk
from wideangle.infer.program import Recipe, RunState
from wideangle.infer.run import Run, run
from wideangle.infer.slice import on_log_scale, slice_sampler

__all__ = [
    "Info",
    "Kernel",
    "Recipe",
    "Run",
    "RunState",
    "Update",
    "each_row",
    "exactly",
    "geodesic_hmc",
    "metropolis",
    "on_log_scale",
    "positive_walk",
    "run",
    "slice_sampler",
    "sweep",
    "vmf_walk",
    "within",
]
