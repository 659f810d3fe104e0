"""The paper's bound on log Z, and where it stops being one."""

import jax.numpy as jnp
import numpy as np
import pytest

from statistical import measured
from wideangle.sphere.vmf import log_mean_exp
from wideangle_lab.paper.printed_bound import printed_log_normaliser

RESULTANTS = np.concatenate([[0.0], np.geomspace(1e-3, 3e3, 60)])


@pytest.mark.parametrize("dim", [2, 3, 10, 16])
def test_printed_bound_holds_up_to_sixteen_dimensions(dim):
    printed = printed_log_normaliser(jnp.asarray(RESULTANTS**2), dim)
    assert np.all(printed >= log_mean_exp(RESULTANTS, dim) - 1e-9)


def test_printed_bound_fails_beyond():
    shortfall = log_mean_exp(RESULTANTS, 17) - printed_log_normaliser(
        jnp.asarray(RESULTANTS**2), 17
    )
    assert measured("nats below log Z", np.max(shortfall), 5.0) > 5
