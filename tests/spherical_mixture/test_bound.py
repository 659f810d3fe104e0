"""The bound of variational inference lies below the evidence, which Monte Carlo finds."""

import jax
import numpy as np
import pytest

from statistical import measured
from wideangle import MutualAngular, MutualAngularPrior, SphericalMixture, Variational
from wideangle.sphere.vmf import inverse_on_host, values_on_host
from wideangle.spherical_mixture import centres
from wideangle.spherical_mixture.centres import CentrePrior, prior_quantiles

DIM, N_DRAWS, ALPHA, COSINE, TIGHTNESS = 3, 200_000, 1.5, 0.6, 0.6
ROOM = 20
"""Sticks of an infinite mixture that are drawn; what is left is 1e-4 on average."""


def rows():
    X = np.array([[1.0, 0.1, 0.0], [0.9, -0.2, 0.1], [0.0, 1.0, 0.2], [0.1, 0.8, -0.3]])
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def bound_of(n):
    model = SphericalMixture(
        n, prior=MutualAngularPrior(cosine=COSINE), alpha=ALPHA, tightness=TIGHTNESS,
        inference=Variational(n_starts=4), verbose=False, random_state=0,
    ).fit(rows())  # fmt: skip
    return model.notes_["bound"]


def evidence(n, rng):
    """Log of the mean likelihood over draws of the prior, and its standard error."""
    strength = float(inverse_on_host(COSINE, DIM))
    n_clusters = ROOM if n == "infinite" else n
    n_draws = N_DRAWS // n_clusters
    if n == "infinite":
        sticks = rng.beta(1.0, ALPHA, (n_draws, ROOM))
        left = np.cumprod(1.0 - sticks, axis=1)
        weights = sticks * np.concatenate([np.ones((n_draws, 1)), left[:, :-1]], axis=1)
    else:
        weights = rng.dirichlet(np.full(n, ALPHA / n), n_draws)
    chain = MutualAngular(n_clusters, DIM, strength, "II")
    directions = np.asarray(chain.sample(jax.random.key(0), (n_draws,)))
    logs, levels = prior_quantiles(CentrePrior(strength, TIGHTNESS, 5.0), DIM)
    kappas = np.exp(np.interp(rng.random((n_draws, n_clusters)), levels, logs))
    cosines = np.einsum("np,skp->snk", rows(), directions)
    terms = kappas[:, None] * cosines - values_on_host(kappas, DIM).log_mean[:, None]
    likelihood = np.prod(np.sum(weights[:, None] * np.exp(terms), axis=2), axis=1)
    mean = likelihood.mean()
    return np.log(mean), likelihood.std() / np.sqrt(n_draws) / mean


def excess(n):
    """How far the bound is above the evidence, in nats, beyond four standard errors."""
    value, error = evidence(n, np.random.default_rng(0))
    return bound_of(n) - value - 4 * error


@pytest.mark.parametrize("n", [2, "infinite"])
def test_the_bound_is_below_the_evidence_and_not_far(n):
    assert -5.0 < excess(n) < 0.0


def test_a_bound_without_the_constant_of_a_prior_is_seen(monkeypatch):
    plain = centres.log_constant
    monkeypatch.setattr(centres, "log_constant", lambda *args: plain(*args) - 2.0)
    assert measured("nats above the evidence", excess(2), 0.0) > 0.0
