"""Independent samplers of the six problems: NUTS by NumPyro, and textbook Gibbs samplers.

Nothing of the library is used here but the names of its settings in ``problems.py``: densities are
written down again, in their plainest form, in double precision.
"""

# Numba compiles the generator of NumPy's module, and seeds it.
# ruff: noqa: NPY002

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numba
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.infer import MCMC, NUTS
from scipy.special import betaln, gammaln

from reference.problems import (
    BUFFET,
    CLASSES,
    FINITE,
    INFINITE,
    MEAN_SCALES,
    POWER_LAW,
    PROBES,
    QUANTITY,
    Numbers,
    class_numbers,
    class_rows,
    cluster_numbers,
    cluster_rows,
    feature_numbers,
    feature_rows,
    quantity_numbers,
    quantity_rows,
    with_constant,
)

CHAINS, DRAWS = 8, 1250
"""Ten thousand draws of each problem are kept."""


def nuts(
    model: Any, seed: int, *, n_warmup: int, thin: int, accept: float
) -> dict[str, np.ndarray]:
    """Draws of NumPyro's NUTS, (chain, draw, ...)."""
    kernel = NUTS(model, target_accept_prob=accept)
    chains = MCMC(
        kernel, num_warmup=n_warmup, num_samples=DRAWS * thin, thinning=thin, num_chains=CHAINS,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    chains.run(jax.random.key(seed), extra_fields=("diverging",))
    found = {name: np.asarray(value) for name, value in chains.get_samples(True).items()}
    return found | {"diverging": np.asarray(chains.get_extra_fields(True)["diverging"])}


def units(vectors: Any) -> Any:
    """Divided by their lengths."""
    return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)


def log_mean_exp(kappa: Any) -> Any:
    """Log of sinh(k) / k: the mean of exp(k cos) over the sphere of three dimensions."""
    safe = jnp.maximum(kappa, 1e-6)
    return safe + jnp.log1p(-jnp.exp(-2.0 * safe)) - jnp.log(2.0 * safe)


def chain_of_three(directions: Any, kappa: float) -> Any:
    """Type II in three dimensions: each direction against the sum of those before it."""
    total = 0.0
    for k in range(1, len(directions)):
        before = directions[:k].sum(axis=0)
        total += -kappa * directions[k] @ before - log_mean_exp(kappa * jnp.linalg.norm(before))
    return total


# ---- the mixture of experts


def classes(seed: int) -> tuple[Numbers, dict[str, Any]]:
    """Directions are those of Gaussian vectors, whose lengths mean nothing."""
    X, y = class_rows()
    rows, signs = jnp.asarray(with_constant(X)), jnp.asarray(2.0 * y - 1.0)
    n, shape = CLASSES["n_experts"], CLASSES["shape"]
    rate = shape / (CLASSES["scale"] * np.sqrt(3.0))

    def model() -> None:
        vectors: dict[str, Any] = {}
        for name in ("gate", "experts"):
            free = numpyro.sample(f"{name} free", dist.Normal(0, 1).expand([n, 3]).to_event(2))
            lengths: Any = numpyro.sample(f"{name} lengths", dist.Gamma(shape, rate).expand([n]))
            numpyro.factor(f"{name} chain", chain_of_three(units(free), CLASSES["concentration"]))
            vectors[name] = numpyro.deterministic(name, lengths[:, None] * units(free))
        gate = jax.nn.log_softmax(vectors["gate"] @ rows.T, axis=0)
        says = jax.nn.log_sigmoid(signs * (vectors["experts"] @ rows.T))
        numpyro.factor("rows", logsumexp(gate + says, axis=0).sum())

    found = nuts(model, seed, n_warmup=1000, thin=4, accept=0.9)
    return class_numbers(found["gate"], found["experts"]), _notes(found)


def quantity(seed: int) -> tuple[Numbers, dict[str, Any]]:
    """Two experts: the chain is one cosine."""
    X, y = quantity_rows()
    rows, y = jnp.asarray(with_constant(X)), jnp.asarray(y)
    n = QUANTITY["n_experts"]

    def model() -> None:
        free = {}
        for name, size in (("gate", 2), ("experts", 4)):
            one = numpyro.sample(f"{name} free", dist.Normal(0, 1).expand([n, size]).to_event(2))
            cosine = units(one)[0] @ units(one)[1]
            numpyro.factor(f"{name} chain", -QUANTITY["concentration"] * cosine)
            free[name] = one
        common = numpyro.sample("common free", dist.Normal(0, 1).expand([4]).to_event(1))
        scales = {
            name: numpyro.sample(f"{name} scale", dist.Exponential(1.0 / mean))
            for name, mean in MEAN_SCALES.items()
        }
        gates = numpyro.deterministic("gate", scales["gate"] * free["gate"])
        experts = scales["common"] * common + scales["experts"] * free["experts"]
        experts = numpyro.deterministic("experts", experts.reshape(n, 2, 2))
        mean, log_variance = jnp.moveaxis(jnp.einsum("kop,np->kon", experts, rows), 1, 0)
        inverse = jnp.exp(-log_variance) + QUANTITY["ceiling"] ** -2
        noise = jnp.sqrt(QUANTITY["floor"] ** 2 + 1.0 / inverse)
        says = dist.Normal(mean, noise).log_prob(y)
        each = jax.nn.log_softmax(gates @ rows.T, axis=0) + says
        numpyro.factor("rows", logsumexp(each, axis=0).sum())

    found = nuts(model, seed, n_warmup=600, thin=2, accept=0.95)
    scales = {name: found[f"{name} scale"] for name in MEAN_SCALES}
    return quantity_numbers(found["gate"], found["experts"], scales), _notes(found)


def _notes(found: dict[str, np.ndarray]) -> dict[str, Any]:
    return {"sampler": "NumPyro NUTS", "divergences": int(found["diverging"].sum())}


# ---- latent features: the collapsed Gibbs sampler of Griffiths and Ghahramani


@numba.njit(cache=True)
def _log_marginal(X: np.ndarray, Z: np.ndarray, noise: float, size: float) -> float:
    """Log density of X given Z with Gaussian features summed out; variances are given."""
    n, dim = X.shape
    k = Z.shape[1]
    ratio = noise / size
    M = Z.T @ Z + ratio * np.eye(k)
    L = np.linalg.cholesky(M)
    half = np.linalg.solve(L, Z.T @ X)
    energy = np.sum(X * X) - np.sum(half * half)
    log_det = 2.0 * np.sum(np.log(np.diag(L)))
    out = -0.5 * n * dim * np.log(2 * np.pi * noise) + 0.5 * k * dim * np.log(ratio)
    return out - 0.5 * dim * log_det - 0.5 * energy / noise


@numba.njit(cache=True)
def _without(Z: np.ndarray, row: int) -> np.ndarray:
    """Assignments without the features that no other row uses."""
    counts = Z.sum(axis=0) - Z[row]
    return np.ascontiguousarray(Z[:, counts > 0])


@numba.njit(cache=True)
def _sweep_rows(
    X: np.ndarray, Z: np.ndarray, noise: float, size: float,
    alpha: float, discount: float, strength: float, new_rate: float,
) -> np.ndarray:  # fmt: skip
    """Every entry of a feature that others use, then how many features a row has for itself."""
    n = X.shape[0]
    for row in range(n):
        # In random order: that of age depends on the assignments, and a scan in such an order does
        # not leave the posterior unchanged.
        Z = np.ascontiguousarray(Z[:, np.random.permutation(Z.shape[1])])
        shared = _without(Z, row)
        own = Z.shape[1] - shared.shape[1]
        for k in range(shared.shape[1]):
            count = shared[:, k].sum() - shared[row, k]
            logs = np.empty(2)
            for value in range(2):
                shared[row, k] = value
                logs[value] = _log_marginal(X, _with_own(shared, row, own), noise, size)
            chance = (count - discount) / (n - 1 + strength)
            odds = logs[1] - logs[0] + np.log(chance) - np.log1p(-chance)
            shared[row, k] = 1.0 if np.random.random() < 1.0 / (1.0 + np.exp(-odds)) else 0.0
        # A Metropolis step whose proposal is the prior of the number.
        proposed = np.random.poisson(alpha * new_rate)
        now = _log_marginal(X, _with_own(shared, row, own), noise, size)
        then = _log_marginal(X, _with_own(shared, row, proposed), noise, size)
        if np.log(np.random.random()) < then - now:
            own = proposed
        Z = _with_own(shared, row, own)
    return Z


@numba.njit(cache=True)
def _with_own(shared: np.ndarray, row: int, own: int) -> np.ndarray:
    n, k = shared.shape
    Z = np.zeros((n, k + own))
    Z[:, :k] = shared
    Z[row, k:] = 1.0
    return Z


@numba.njit(cache=True)
def _features_chain(
    X: np.ndarray, seed: int, n_warmup: int, n_draws: int, thin: int, size: float,
    noise: float, learn_noise: bool, discount: float, strength: float,
    new_rate: float, total_rate: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Reconstructed rows, noise variances, numbers of features, alphas."""
    np.random.seed(seed)
    n, dim = X.shape
    signals = np.empty((n_draws, n, dim))
    noises, active, alphas = np.empty(n_draws), np.empty(n_draws), np.empty(n_draws)
    Z = (np.random.random((n, 2)) < 0.5).astype(np.float64)
    Z[0, :] = 1.0
    alpha = 1.0
    for step in range(-n_warmup, n_draws * thin):
        Z = _sweep_rows(X, Z, noise, size, alpha, discount, strength, new_rate)
        k = Z.shape[1]
        # Features given the rest, for the noise and for what is kept.
        precision = Z.T @ Z / noise + np.eye(k) / size
        L = np.linalg.cholesky(precision)
        mean = np.linalg.solve(precision, Z.T @ X / noise)
        features = mean + np.linalg.solve(L.T, np.random.normal(0.0, 1.0, (k, dim)))
        signal = Z @ features
        if learn_noise:  # of scaled rows the precision is Gamma(1, 0.05)
            energy = np.sum((X - signal) ** 2)
            noise = 1.0 / np.random.gamma(1.0 + 0.5 * n * dim, 1.0 / (0.05 + 0.5 * energy))
        alpha = np.random.gamma(1.0 + k, 1.0 / (1.0 + total_rate))  # its prior is Gamma(1, 1)
        if step >= 0 and (step + 1) % thin == 0:
            i = step // thin
            signals[i], noises[i], active[i], alphas[i] = signal, noise, k, alpha
    return signals, noises, active, alphas


def gibbs_of_features(
    X: np.ndarray,
    seed: int,
    scale: float,
    noise: float | None,
    discount: float,
    strength: float,
    n_draws: int = DRAWS,
    thin: int = 12,
) -> list[np.ndarray]:
    """Reconstructed rows, noise variances, numbers of features, alphas: (chain, draw, ...)."""
    # The model divides rows by their standard deviation; its priors are those of such rows.
    unit = X.std()
    new = new_features(len(X), discount, strength)
    parts = [
        _features_chain(
            X / unit,
            1000 * seed + chain,
            1000,
            n_draws,
            thin,
            (scale / unit) ** 2,
            0.25 if noise is None else (noise / unit) ** 2,
            noise is None,
            discount,
            strength,
            new[-1],
            new.sum(),
        )
        for chain in range(CHAINS)
    ]
    signal, noises, active, alphas = (np.stack(part) for part in zip(*parts, strict=True))
    return [signal * unit, noises * unit**2, active, alphas]


def new_features(n_rows: int, discount: float, strength: float) -> np.ndarray:
    """Expected number of features that each row brings, for an alpha of 1."""
    n = np.arange(1, n_rows + 1)
    new = gammaln(1 + strength) + gammaln(n + strength + discount - 1)
    return np.exp(new - gammaln(n + strength) - gammaln(strength + discount))


def enumerated_features(
    X: np.ndarray, scale: float, noise: float, discount: float, strength: float, most: int = 8
) -> tuple[float, float]:
    """Posterior means of the log-likelihood and the number of features, for few rows.

    Sums over how many features have each set of rows, up to ``most`` features, with alpha, whose
    prior is Gamma(1, 1), and the features themselves integrated out.
    """
    n_rows, dim = X.shape
    sets = np.array(list(itertools.product((0, 1), repeat=n_rows))[1:])
    sizes = sets.sum(axis=1)
    rates = betaln(sizes - discount, n_rows - sizes + strength + discount)
    rates += gammaln(1 + strength) - gammaln(1 - discount) - gammaln(strength + discount)
    total = new_features(n_rows, discount, strength).sum()
    log_weights, log_liks, numbers = [], [], []
    chosen = (
        one
        for k in range(most + 1)
        for one in itertools.combinations_with_replacement(range(len(sets)), k)
    )
    for features in chosen:
        k, counts = len(features), np.bincount(features, minlength=len(sets))
        signal = scale**2 * (sets.T * counts) @ sets
        inverse = np.linalg.inv(noise**2 * np.eye(n_rows) + signal)
        log_weight = np.sum(counts * rates - gammaln(counts + 1))
        log_weight += math.lgamma(k + 1) - (k + 1) * math.log(1 + total)
        log_weight += 0.5 * dim * np.linalg.slogdet(inverse)[1] - 0.5 * np.sum(X * (inverse @ X))
        residual = np.sum((noise**2 * inverse @ X) ** 2)
        residual += dim * np.trace(signal - signal @ inverse @ signal)
        log_weights.append(log_weight)
        log_liks.append(-0.5 * (residual / noise**2 + X.size * math.log(2 * np.pi * noise**2)))
        numbers.append(k)
    weights = np.exp(log_weights - np.max(log_weights))
    weights /= weights.sum()
    return float(weights @ log_liks), float(weights @ numbers)


def _features(
    X: np.ndarray, seed: int, scale: float, noise: float | None, discount: float, strength: float
) -> tuple[Numbers, dict[str, Any]]:
    signal, noises, *others = gibbs_of_features(X, seed, scale, noise, discount, strength)
    residual = np.sum((X - signal) ** 2, axis=(-2, -1))
    entries = np.stack([signal[..., i, j] for i, j in PROBES.values()], axis=-1)
    found = feature_numbers(X.size, residual, entries, noises, *others)
    return found, {"sampler": "collapsed Gibbs sampler (Griffiths and Ghahramani 2011)"}


def buffet(seed: int) -> tuple[Numbers, dict[str, Any]]:
    """The Indian buffet: no discount, a strength of 1."""
    return _features(feature_rows(14), seed, BUFFET["feature_scale"], None, 0.0, 1.0)


def power_law(seed: int) -> tuple[Numbers, dict[str, Any]]:
    """The three-parameter buffet (Teh and Gorur 2009)."""
    s = POWER_LAW
    return _features(
        feature_rows(15), seed, s["feature_scale"], s["noise"], s["discount"], s["strength"]
    )


# ---- clusters of directions


def finite_clusters(seed: int) -> tuple[Numbers, dict[str, Any]]:
    """Labels are summed out for NUTS, and drawn afterwards for the numbers that need them."""
    rows, n = jnp.asarray(cluster_rows()), FINITE["n"]

    def model() -> None:
        free = numpyro.sample("free", dist.Normal(0, 1).expand([n, 3]).to_event(2))
        centres = units(free)
        numpyro.factor("chain", chain_of_three(centres, FINITE["concentration"]))
        logs = numpyro.sample("log kappa", dist.ImproperUniform(dist.constraints.real, (), (n,)))
        kappa = jnp.exp(logs)
        prior = FINITE["rows"] * (FINITE["tightness"] * kappa - log_mean_exp(kappa)) + logs
        numpyro.factor("kappa", prior.sum())
        alpha = numpyro.sample("alpha", dist.Exponential(1.0 / FINITE["alpha_mean"]))
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.full(n, alpha / n)))
        each = jnp.log(weights) + kappa * (rows @ centres.T) - log_mean_exp(kappa)
        numpyro.deterministic("each", each)
        numpyro.factor("rows", logsumexp(each, axis=1).sum())

    found = nuts(model, seed, n_warmup=1500, thin=8, accept=0.95)
    each, rng = found["each"], np.random.default_rng(seed)
    labels = np.argmax(each + rng.gumbel(size=each.shape), axis=-1)
    chosen = (labels[..., None] == np.arange(n)).sum(axis=-2)
    kappa = np.exp(found["log kappa"])
    numbers = cluster_numbers(
        np.logaddexp.reduce(each, axis=-1),
        n_used=(chosen > 0).sum(axis=-1),
        concentration=(chosen * kappa).sum(axis=-1) / len(rows),
        **{"log alpha": np.log(found["alpha"])},
    )
    return numbers, _notes(found)


@numba.njit(cache=True)
def _log_mean_exp(kappa: float) -> float:
    if kappa < 1e-6:
        return 0.0
    return kappa + np.log1p(-np.exp(-2.0 * kappa)) - np.log(2.0 * kappa)


@numba.njit(cache=True)
def _log_chain(centres: np.ndarray, strength: float) -> float:
    """Type I: its normalisers do not depend on the centres."""
    total = 0.0
    before = centres[0].copy()
    for k in range(1, len(centres)):
        total -= strength * np.dot(before, centres[k]) / np.sqrt(np.dot(before, before))
        before += centres[k]
    return total


@numba.njit(cache=True)
def _clusters_chain(  # noqa: PLR0912, PLR0915 - one loop for Numba
    rows: np.ndarray, seed: int, n_warmup: int, n_draws: int, thin: int, n: int,
    strength: float, alpha: float, cosine: float, prior_rows: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Log densities of the rows, numbers of clusters in use, mean concentrations."""
    np.random.seed(seed)
    n_rows = len(rows)
    densities = np.empty((n_draws, n_rows))
    used, mean_kappa = np.empty(n_draws), np.empty(n_draws)
    centres = np.random.normal(0.0, 1.0, (n, 3))
    for k in range(n):
        centres[k] /= np.sqrt(np.dot(centres[k], centres[k]))
    kappas, labels = np.full(n, 3.0), np.random.randint(0, 3, n_rows)
    chain = _log_chain(centres, strength)
    log_weights = np.empty(n)
    each = np.empty(n)
    for step in range(-n_warmup, n_draws * thin):
        counts, sums = np.zeros(n), np.zeros((n, 3))
        for i in range(n_rows):
            counts[labels[i]] += 1.0
            sums[labels[i]] += rows[i]
        # Two clusters change places, sticks integrated out: those next to each other, or any two.
        for _ in range(n):
            a, b = np.random.randint(0, n), np.random.randint(0, n)
            if a == b:
                continue
            order = np.arange(n)
            order[a], order[b] = b, a
            there = _log_chain(centres[order], strength)
            ratio = there - chain
            ratio += _log_sticks(counts[order], alpha) - _log_sticks(counts, alpha)
            if np.log(np.random.random()) < ratio:
                centres, kappas = centres[order], kappas[order]
                counts, sums, chain = counts[order], sums[order], there
                for i in range(n_rows):
                    labels[i] = order[labels[i]]
        # Sticks (Ishwaran and James 2001); the last is all that is left.
        left, rest = 0.0, n_rows * 1.0
        for k in range(n):
            rest -= counts[k]
            if k == n - 1:
                log_weights[k] = left
                break
            stick = np.random.beta(1.0 + counts[k], alpha + rest)
            log_weights[k] = left + np.log(stick)
            left += np.log1p(-stick)
        # Centres and concentrations: random walks, small and large ones.
        for k in range(n):
            for width in (0.2, 0.6, 4.0):
                tried = centres[k] + width * np.random.normal(0.0, 1.0, 3)
                tried /= np.sqrt(np.dot(tried, tried))
                old = centres[k].copy()
                centres[k] = tried
                there = _log_chain(centres, strength)
                ratio = there - chain + kappas[k] * np.dot(sums[k], tried - old)
                if np.log(np.random.random()) < ratio:
                    chain = there
                else:
                    centres[k] = old
                log_step = width * np.random.normal()
                tried_kappa = kappas[k] * np.exp(log_step)
                level = prior_rows * cosine + np.dot(sums[k], centres[k])
                total = prior_rows + counts[k]
                ratio = level * (tried_kappa - kappas[k]) + log_step
                ratio -= total * (_log_mean_exp(tried_kappa) - _log_mean_exp(kappas[k]))
                if np.log(np.random.random()) < ratio:
                    kappas[k] = tried_kappa
        keep = step >= 0 and (step + 1) % thin == 0
        for i in range(n_rows):
            for k in range(n):
                along = np.dot(rows[i], centres[k])
                each[k] = log_weights[k] + kappas[k] * along - _log_mean_exp(kappas[k])
            top = each.max()
            chances = np.exp(each - top)
            if keep:
                densities[step // thin, i] = top + np.log(chances.sum())
            goal = np.random.random() * chances.sum()
            k = 0
            while k < n - 1 and goal > chances[k]:
                goal -= chances[k]
                k += 1
            labels[i] = k
        if keep:
            counts[:] = 0.0
            for i in range(n_rows):
                counts[labels[i]] += 1.0
            used[step // thin] = (counts > 0).sum()
            mean_kappa[step // thin] = np.sum(counts * kappas) / n_rows
    return densities, used, mean_kappa


@numba.njit(cache=True)
def _log_sticks(counts: np.ndarray, alpha: float) -> float:
    """Log probability of labels with these counts, sticks integrated out."""
    rest, total = counts.sum(), 0.0
    for k in range(len(counts) - 1):
        rest -= counts[k]
        total += math.lgamma(1.0 + counts[k]) + math.lgamma(alpha + rest)
        total -= math.lgamma(1.0 + alpha + counts[k] + rest)
    return total


def infinite_clusters(seed: int) -> tuple[Numbers, dict[str, Any]]:
    """Sticks are cut off after 16: what is left of them is 2^-16 on average."""
    s = INFINITE
    parts = [
        _clusters_chain(
            cluster_rows(),
            1000 * seed + chain,
            2000,
            DRAWS,
            20,
            16,
            s["concentration"],
            s["alpha"],
            s["tightness"],
            s["rows"],
        )
        for chain in range(CHAINS)
    ]
    density, used, kappa = (np.stack(part) for part in zip(*parts, strict=True))
    notes = {"sampler": "blocked Gibbs sampler of sticks (Ishwaran and James 2001)"}
    return cluster_numbers(density, n_used=used, concentration=kappa), notes


SAMPLERS = {
    "experts-classes": classes,
    "experts-quantity": quantity,
    "features-ibp": buffet,
    "features-pitman-yor": power_law,
    "clusters-finite": finite_clusters,
    "clusters-infinite": infinite_clusters,
}
