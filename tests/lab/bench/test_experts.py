"""What the area "experts" measures: the same things on both sides."""

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.util import log_density

from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import Weights, log_lik
from wideangle.mixture_of_experts.sparse import on_host
from wideangle_lab import datasets
from wideangle_lab.bench import expert_problem, experts, experts_sampling
from wideangle_lab.bench.harness import Settings, Size

QUICK = Settings(quick=True, seed=0, repeats=2)
TINY = Size(300, 12, 3)


def test_drawn_rows_have_the_share_of_entries_of_adult():
    weights, rows, targets = expert_problem.draw_problem(0, experts.SMALL)
    n, p, k = experts.SMALL
    assert rows.shape == (n, p) and rows.dtype == np.float32
    assert weights.gate.shape == (k, p)
    assert abs(rows[:, :-1].nnz / (n * (p - 1)) - expert_problem.DENSITY) < 0.005
    assert np.all(rows[:, [-1]].toarray() == 1)
    assert set(np.unique(rows.data)) == {1.0}
    assert 0.1 < targets.mean() < 0.9


def test_the_products_are_those_of_the_gradient():
    """With the slopes of the likelihood they give its gradient."""
    weights, rows, targets = expert_problem.draw_problem(0, TINY)
    dense = Data(jnp.asarray(rows.toarray()), jnp.asarray(targets), jnp.ones(TINY.rows))
    stacked = jnp.concatenate([weights.gate, weights.experts[:, 0]])

    def through_scores(scores):
        gate = jax.nn.log_softmax(scores[:3], axis=0)
        said = jax.nn.log_sigmoid((2 * targets - 1) * scores[3:])
        return jnp.sum(jax.nn.logsumexp(gate + said, axis=0))

    scores, _ = expert_problem.two_products(stacked, jnp.zeros((6, TINY.rows)), dense.rows)
    value, slopes = jax.value_and_grad(through_scores)(scores)
    _, gradient = expert_problem.two_products(stacked, slopes, dense.rows)
    for batch in (dense, on_host(Data(rows, targets, np.ones(TINY.rows)))):
        found, parts = expert_problem.value_and_gradient(weights, batch)
        np.testing.assert_allclose(found, value, rtol=1e-5)
        both = np.concatenate([parts.gate, parts.experts[:, 0]])
        np.testing.assert_allclose(both, gradient, atol=1e-3)


def test_without_the_file_rows_are_drawn_and_that_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.files, "folders", lambda: [tmp_path])
    example = experts.example(QUICK._replace(quick=False), TINY)
    assert "drawn" in example.source
    assert example.X.shape == (300, 11) and example.X_test.shape == (150, 11)
    assert len(example.y) == 300 and len(example.y_test) == 150


def test_both_samplers_have_one_posterior():
    """Differences of log densities between points, from NumPyro and from the estimator's parts."""
    task = experts_sampling.Task(0, experts_sampling.QUICK)
    priors, batch = task.posterior()
    keys = jax.random.split(jax.random.key(1), 4)
    points = [{"gate": priors.gate.sample(k), "experts": priors.experts.sample(k)} for k in keys]
    args = (priors, batch)
    theirs = [log_density(experts_sampling.numpyro_model, args, {}, p)[0] for p in points]
    ours = [
        priors.gate.log_prob(p["gate"])
        + priors.experts.log_prob(p["experts"])
        + log_lik(experts_sampling.EXPERT, Weights(p["gate"], p["experts"][:, None]), batch)
        for p in points
    ]
    np.testing.assert_allclose(np.diff(theirs), np.diff(ours), rtol=1e-4)


def test_the_smallest_effective_size_leaves_constants_out():
    generator = np.random.default_rng(0)
    free = generator.normal(size=(2, 500))
    sticky = np.repeat(generator.normal(size=(2, 50)), 10, axis=1)
    values = {"n_used": np.ones((2, 500)), "probability": np.stack([free, sticky], axis=-1)}
    found = experts_sampling.smallest_ess(values)
    assert 30 < found < 200


def test_last_draws_are_taken_from_every_chain_and_repeated_if_few():
    draws = np.arange(10).reshape(2, 5)
    np.testing.assert_array_equal(experts_sampling.last_draws(draws, 2), [[3, 4], [8, 9]])
    assert experts_sampling.last_draws(draws, 12).shape == (2, 12)
