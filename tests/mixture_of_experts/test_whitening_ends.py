"""The whitening of many experts comes to its end on machines with few cores."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import jax, jax.numpy as jnp
from wideangle.mixture_of_experts.coordinates import Priors
from wideangle.mixture_of_experts.whitened import Typical, fisher_whitening
from wideangle.mixture_of_experts.classes import LogisticExperts
from wideangle.mixture_of_experts.likelihood import Weights
from wideangle.mixture_of_experts.data import Data

from wideangle.priors.components import GaussianComponents

n_rows, n_experts, p = 300, 16, 300
keys = jax.random.split(jax.random.key(0), 3)
rows, gate, experts = (jax.random.normal(k, (n, p)) for k, n in zip(keys, (n_rows, 16, 16)))
batch = Data(rows, jnp.arange(n_rows) % 2, jnp.ones(n_rows))
prior = GaussianComponents(n_experts, p)
whiten = jax.jit(lambda x: fisher_whitening(Priors(prior, prior), x, LogisticExperts(), batch))
for _ in range(12):
    jax.block_until_ready(whiten(Typical(Weights(gate[None], experts[None, :, None]), {})))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_batched_factorisations_do_not_wait_for_each_other() -> None:
    """Two of them at once hold both threads of a machine with two cores (jaxlib before 0.11)."""
    two = sorted(os.sched_getaffinity(0))[:2]
    choose = f"import os; os.sched_setaffinity(0, {two})\n"
    subprocess.run([sys.executable, "-c", choose + PROGRAM], check=True, timeout=120)
