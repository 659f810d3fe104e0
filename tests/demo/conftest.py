import jax
import pytest

from wideangle.demo import priors


@pytest.fixture(scope="package")
def cases():
    return priors.measure(jax.random.key(3), n_sets=1500)
