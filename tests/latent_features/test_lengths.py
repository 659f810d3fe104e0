"""The move of one length, against its density by quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from statistical import measured
from wideangle.latent_features import directions
from wideangle.latent_features.state import Design, Hyper
from wideangle.priors.stick_breaking import Buffet

RATE, NOISE, SHAPE = 1.0, 0.25, 2.5
LIMIT = 4.2


def worst(pull, count):
    """Largest z-score of the mean and the mean square of many chains."""
    hyper = Hyper(Buffet(1.0, 0.0, 1.0), NOISE, 0.0, RATE)
    move = directions._length_kernel(hyper, Design(magnitude_shape=SHAPE))

    def chain(key):
        def step(length, key):
            length = move(key, length, jnp.asarray(pull), jnp.asarray(count))
            return length, length

        return jax.lax.scan(step, jnp.asarray(1.0), jax.random.split(key, 150))[1]

    lengths = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), 400)))[:, 50:]
    grid = np.linspace(1e-4, 30.0, 400_001)
    log_density = (SHAPE - 1) * np.log(grid) - RATE * grid
    log_density += (pull * grid - 0.5 * count * grid**2) / NOISE
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    z = []
    for power in (1, 2):
        by_chain = np.mean(lengths**power, axis=1)
        error = by_chain.std() / np.sqrt(len(by_chain))
        z.append(abs(by_chain.mean() - np.sum(density * grid**power)) / error)
    return max(z)


@pytest.mark.parametrize(("pull", "count"), [(3.0, 4.0), (-3.0, 4.0), (0.0, 0.0), (60.0, 20.0)])
def test_a_length_has_its_distribution(pull, count):
    assert worst(pull, count) < LIMIT


def test_a_forgotten_proposal_is_seen(monkeypatch):
    monkeypatch.setattr(directions, "_log_cauchy", lambda place: 0.0 * place)
    assert measured("max |z|", worst(3.0, 4.0), LIMIT) > LIMIT
