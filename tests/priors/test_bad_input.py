"""Wrong arguments are named, with their value and what is allowed; nothing is checked under jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle import (
    DeterminantalComponents,
    GaussianComponents,
    MutualAngular,
    PolarComponents,
    VonMisesFisher,
)

POLE = [0.0, 0.6, 0.8]
PRIOR = MutualAngular(2, 3, 1.0)

WRONG = [
    (lambda: VonMisesFisher([1.0, 1.0], 1.0), r"mean_direction holds .* 1\.41421.*length 1;"),
    (lambda: VonMisesFisher(POLE, -1.0), r"concentration=-1: must be finite and in \[0, inf\)"),
    (lambda: VonMisesFisher(POLE, np.nan), r"concentration=nan"),
    (lambda: VonMisesFisher(POLE, np.inf), r"concentration=inf"),
    (lambda: VonMisesFisher(POLE, [1.0, -2.0]), r"concentration=-2 \(at index \(1,\)\)"),
    (lambda: VonMisesFisher([1.0], 1.0), r"mean_direction\.shape\[-1\]=1.*at least 2"),
    (lambda: VonMisesFisher(1.0, 1.0), r"mean_direction has shape \(\).*\(\.\.\., p\)"),
    (lambda: VonMisesFisher(POLE, "big"), r"concentration='big': must be numeric"),
    (lambda: VonMisesFisher(POLE, 1.0).log_prob([1.0, 0.0]), r"value has shape \(2,\).*3\)"),
    (lambda: VonMisesFisher(POLE, 1.0).log_prob([2.0, 0.0, 0.0]), r"value holds .* length 2"),
    (lambda: MutualAngular(0, 3, 1.0), r"n_components=0: must be a whole number, at least 1"),
    (lambda: MutualAngular(True, 3, 1.0), r"n_components=True: must be a whole number"),
    (lambda: MutualAngular(2.5, 3, 1.0), r"n_components=2\.5: must be a whole number"),
    (lambda: MutualAngular(2, 1, 1.0), r"dim=1: must be a whole number, at least 2"),
    (lambda: MutualAngular(2, 3, -0.5), r"concentration=-0\.5"),
    (lambda: MutualAngular(2, 3, 1.0, "III"), r"kind='III': must be one of 'I', 'II', 'indep"),
    (lambda: MutualAngular(2, 3, 1.0, first=[1.0, 0.0]), r"first has shape \(2,\)"),
    (lambda: MutualAngular(2, 3, 1.0, first=[1.0, 1.0, 0.0]), r"first holds a vector"),
    (lambda: MutualAngular.from_cosine(2, 3, 1.0), r"cosine=1: must be finite and in \[0, 1\)"),
    (lambda: MutualAngular.from_cosine(2, 3, -0.1), r"cosine=-0\.1"),
    (lambda: PRIOR.log_prob(np.ones((2, 4))), r"directions has shape \(2, 4\)"),
    (lambda: PRIOR.log_prob(np.ones((2, 3))), r"directions holds .* 1\.73.*0 for padding"),
    (lambda: PRIOR.next_component(np.ones((2, 3))), r"directions holds"),
    (lambda: PolarComponents(PRIOR, 0.0), r"magnitude_shape=0: must be finite and in \(0, inf\)"),
    (lambda: PolarComponents(PRIOR, 1.0, np.nan), r"magnitude_rate=nan"),
    (lambda: PolarComponents(PRIOR).log_prob(np.ones(3)), r"value has shape \(3,\)"),
    (lambda: PolarComponents(PRIOR).log_prob(np.full((2, 3), np.nan)), r"value=nan \(at index"),
    (lambda: GaussianComponents(2, 3, -1.0), r"scale=-1"),
    (lambda: GaussianComponents(2, 0), r"dim=0"),
    (lambda: DeterminantalComponents(2, 3, 1.0, 0.0), r"lengthscale=0"),
    (lambda: DeterminantalComponents(2, 3, n_sweeps=-1), r"n_sweeps=-1"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[m[:30] for _, m in WRONG])
def test_the_message_names_the_argument(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_nothing_is_checked_while_tracing():
    @jax.jit
    def density(kappa, rows):
        return MutualAngular(2, 3, kappa).log_ratio_to_uniform(rows)

    assert np.isfinite(density(-1.0, jnp.ones((2, 3))))  # wrong, but not looked at
    with pytest.raises(ValueError, match="directions has shape"):
        density(1.0, jnp.ones((2, 4)))  # shapes are known while tracing
