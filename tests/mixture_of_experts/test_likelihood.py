from dataclasses import dataclass
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

from statistical import central_difference, relative_error
from wideangle.mixture_of_experts import likelihood as mixture_of_experts
from wideangle.mixture_of_experts.classes import LogisticExperts, SoftmaxExperts, experts_for
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import (
    ExpertTerms,
    Pair,
    Weights,
    log_lik,
    predict,
    score,
)

N, P, K = 17, 3, 4
KINDS = [LogisticExperts(), SoftmaxExperts(3)]
both_kinds = pytest.mark.parametrize("expert", KINDS, ids=["logistic", "softmax"])


def problem(expert, seed=0, size=1.0, dtype=np.float64):
    generator = np.random.default_rng(seed)
    n_classes = max(2, expert.n_outputs)
    gate = size * generator.normal(size=(K, P))
    experts = size * generator.normal(size=(K, expert.n_outputs, P))
    rows = generator.normal(size=(N, P))
    weights = generator.uniform(0.0, 3.0, N)
    batch = Data(rows.astype(dtype), generator.integers(0, n_classes, N), weights.astype(dtype))
    batch = Data(*(jnp.asarray(leaf) for leaf in batch))
    return Weights(jnp.asarray(gate, dtype), jnp.asarray(experts, dtype)), batch


def log_proba(expert, scores):
    """Log-probabilities of the classes of one expert at one row, in NumPy."""
    return log_softmax(np.append(0.0, scores) if expert.n_outputs == 1 else scores)


def naive(expert, weights, batch):
    """Loops over rows and experts, with one log-sum-exp for the gate and one for the mixture."""
    total = 0.0
    for row, target, weight in zip(*(np.asarray(leaf, float) for leaf in batch), strict=True):
        gate = log_softmax(np.asarray(weights.gate, float) @ row)
        said = [log_proba(expert, np.asarray(w, float) @ row)[int(target)] for w in weights.experts]
        total += weight * logsumexp(gate + np.array(said))
    return total


def plain(expert, weights, batch):
    """The same sum in JAX, left to automatic differentiation."""
    gate = jax.nn.log_softmax(weights.gate @ batch.rows.T, axis=0)
    scores = jnp.einsum("kop,np->kon", weights.experts, batch.rows)
    if expert.n_outputs == 1:
        scores = jnp.concatenate([jnp.zeros_like(scores), scores], axis=1)
    said = jnp.take_along_axis(
        jax.nn.log_softmax(scores, axis=1), batch.targets[None, None], axis=1
    )[:, 0]
    return jnp.sum(batch.weights * jax.nn.logsumexp(gate + said, axis=0))


def test_a_pair_is_what_skops_takes_for_a_named_tuple():
    assert Pair.__bases__ == (tuple,)


@both_kinds
@pytest.mark.parametrize("size", [0.0, 1.0, 30.0])
def test_log_lik_is_the_sum_of_log_sum_exps(expert, size):
    weights, batch = problem(expert, size=size)
    assert relative_error(log_lik(expert, weights, batch), naive(expert, weights, batch)) < 1e-12


@both_kinds
@pytest.mark.parametrize("size", [0.0, 1.0, 10.0])
def test_written_gradient_is_that_of_automatic_differentiation(expert, size):
    weights, batch = problem(expert, size=size)
    written = jax.grad(lambda w: 2.0 * log_lik(expert, w, batch))(weights)
    automatic = jax.grad(lambda w: 2.0 * plain(expert, w, batch))(weights)
    for left, right in zip(written, automatic, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)


@both_kinds
def test_written_gradient_is_that_of_finite_differences(expert):
    weights, batch = problem(expert)
    gradient = jax.grad(lambda w: log_lik(expert, w, batch))(weights)
    for name in Weights._fields:
        moved = central_difference(
            lambda x, name=name: naive(expert, weights._replace(**{name: x}), batch),
            getattr(weights, name),
        )
        np.testing.assert_allclose(getattr(gradient, name), moved, atol=1e-6)


@both_kinds
@pytest.mark.parametrize("n_rows", [5, 6, 16, 17])
def test_blocks_of_rows_change_nothing(expert, n_rows, monkeypatch):
    weights, batch = problem(expert)
    part = Data(*(leaf[:n_rows] for leaf in batch))
    whole = jax.jit(jax.value_and_grad(lambda w: log_lik(expert, w, part)))(weights)
    monkeypatch.setattr(mixture_of_experts, "rows_for", lambda _: 5)
    blocks = jax.jit(jax.value_and_grad(lambda w: log_lik(expert, w, part)))(weights)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), blocks, whole)
    np.testing.assert_allclose(log_lik(expert, weights, part), blocks[0], rtol=1e-12)
    many = jax.tree.map(lambda leaf: jnp.stack([leaf, 2.0 * leaf]), weights)
    both = jax.jit(jax.vmap(jax.grad(lambda w: log_lik(expert, w, part))))(many)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, atol=1e-12), both, whole[1])


@both_kinds
@pytest.mark.parametrize("size", [1e2, 1e4])
def test_extreme_scores_in_float32_keep_value_and_gradient_finite(expert, size):
    weights, batch = problem(expert, size=size, dtype=np.float32)
    batch = batch._replace(rows=jnp.sign(batch.rows))
    value, gradient = jax.value_and_grad(lambda w: log_lik(expert, w, batch))(weights)
    assert value.dtype == gradient.gate.dtype == jnp.float32
    assert all(np.isfinite(leaf).all() for leaf in (value, *gradient))
    assert relative_error(value, naive(expert, weights, batch)) < 1e-5
    assert np.isfinite(predict(expert, weights, batch.rows)).all()


@both_kinds
def test_whole_weights_count_rows_as_often_and_zero_not_at_all(expert):
    weights, batch = problem(expert)
    counts = np.arange(N) % 3
    weighted = batch._replace(weights=jnp.asarray(counts, float))
    chosen = np.repeat(np.arange(N), counts)
    repeated = Data(batch.rows[chosen], batch.targets[chosen], jnp.ones(len(chosen)))
    left, right = (
        jax.value_and_grad(lambda w, b=b: log_lik(expert, w, b))(weights)
        for b in (weighted, repeated)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), left, right)


def test_rows_may_be_of_another_precision_than_the_weights():
    expert = LogisticExperts()
    weights, batch = problem(expert, dtype=np.float32)
    exact = jax.grad(lambda w: log_lik(expert, w, batch))(weights)
    double = batch._replace(rows=batch.rows.astype(float), weights=batch.weights.astype(float))
    mixed = jax.grad(lambda w: log_lik(expert, w, double))(weights)
    for left, right in zip(exact, mixed, strict=True):
        assert right.dtype == jnp.float32
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def test_two_softmax_classes_with_halved_weights_are_logistic_experts():
    weights, batch = problem(LogisticExperts())
    halves = weights._replace(experts=jnp.concatenate([-weights.experts, weights.experts], 1) / 2)
    one, two = LogisticExperts(), SoftmaxExperts(2)
    np.testing.assert_allclose(log_lik(one, weights, batch), log_lik(two, halves, batch))
    np.testing.assert_allclose(
        predict(one, weights, batch.rows), predict(two, halves, batch.rows), atol=1e-14
    )


@both_kinds
def test_information_is_the_expected_negative_hessian(expert):
    scores = jnp.asarray(np.random.default_rng(1).normal(size=(1, expert.n_outputs, 1)))

    def said(flat, target):
        terms = expert.terms(flat.reshape(scores.shape), jnp.array([target]))
        return (terms.exponent + jnp.log(terms.factor))[0, 0]

    flat = scores.ravel()
    chances = np.exp(log_proba(expert, np.asarray(flat)))
    expected = -sum(chance * jax.hessian(said)(flat, c) for c, chance in enumerate(chances))
    np.testing.assert_allclose(expert.information(scores)[0, :, 0], np.diag(expected), atol=1e-12)
    np.testing.assert_allclose(expert.mean(scores)[0, :, 0], chances, atol=1e-14)


@both_kinds
def test_predictions_are_the_likelihood_of_each_class_and_sum_to_one(expert):
    weights, batch = problem(expert)
    proba = predict(expert, weights, batch.rows)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    for c in range(proba.shape[1]):
        same = batch._replace(targets=jnp.full(N, c))
        np.testing.assert_allclose(
            jnp.sum(batch.weights * jnp.log(proba[:, c])), log_lik(expert, weights, same)
        )


@both_kinds
def test_scores_are_the_inner_products(expert):
    weights, batch = problem(expert)
    gate, scores = score(weights, batch.rows)
    np.testing.assert_allclose(gate, weights.gate @ batch.rows.T)
    np.testing.assert_allclose(scores, jnp.einsum("kop,np->kon", weights.experts, batch.rows))


def test_the_number_of_classes_chooses_the_piece():
    assert experts_for(1) == experts_for(2) == LogisticExperts()
    assert experts_for(3) == SoftmaxExperts(3)


@jax.tree_util.register_static
@dataclass(frozen=True)
class GaussianExperts:
    """Real targets with unit variance: all a new kind of expert has to bring."""

    n_outputs: int = 1

    def terms(self, scores, targets):
        error = targets - scores[:, 0]
        constant = jnp.full_like(error, 1.0 / np.sqrt(2.0 * np.pi))
        return ExpertTerms(-0.5 * error**2, constant, error[:, None])

    def mean(self, scores):
        return scores

    def information(self, scores):
        return jnp.ones_like(scores)


def test_one_new_piece_is_enough_for_another_kind_of_expert():
    expert = GaussianExperts()
    weights, batch = problem(LogisticExperts())
    batch = batch._replace(targets=jnp.sin(jnp.arange(N)))

    def direct(w):
        gate = jax.nn.log_softmax(w.gate @ batch.rows.T, axis=0)
        said = jax.scipy.stats.norm.logpdf(batch.targets, w.experts[:, 0] @ batch.rows.T)
        return jnp.sum(batch.weights * jax.nn.logsumexp(gate + said, axis=0))

    left = jax.value_and_grad(lambda w: log_lik(expert, w, batch))(weights)
    right = jax.value_and_grad(direct)(weights)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), left, right)
    assert predict(expert, weights, batch.rows).shape == (N, 1)


@pytest.mark.parametrize(
    ("backend", "capability", "fast"),
    [("gpu", "9.0", True), ("gpu", "7.5", False), ("gpu", "gfx90a", False), ("cpu", None, False)],
)
def test_products_of_halves_are_for_cards_that_have_them(monkeypatch, backend, capability, fast):
    device = (
        SimpleNamespace() if capability is None else SimpleNamespace(compute_capability=capability)
    )
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert mixture_of_experts.has_fast_halves() is fast
