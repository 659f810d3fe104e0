"""The infinite SVM: each block against an independent minimiser, and what the whole is for."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.stats import beta
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from wideangle_lab.paper import infinite_svm_updates as svm
from wideangle_lab.paper.infinite_svm import InfiniteSVM


@pytest.fixture(autouse=True)
def one_thread():
    """Threads of problems this small only wait for each other."""
    with threadpool_limits(1):
        yield


def two_clusters(n=200, seed=0):
    """Two far clusters whose classes lie opposite ways: no single plane separates them."""
    rng = np.random.default_rng(seed)
    side = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 2))
    y = ((X[:, 1] > 0) ^ (side == 1)).astype(int)
    X[:, 1] += np.where(X[:, 1] > 0, 0.2, -0.2)
    X[:, 0] += np.where(side == 1, 8.0, -8.0)
    return X, y


def test_a_mixture_of_linear_machines_solves_what_one_cannot():
    X, y = two_clusters()
    new, truth = two_clusters(seed=1)
    one = LinearSVC().fit(X, y).score(new, truth)
    model = InfiniteSVM(5, gamma=0.0, random_state=0).fit(X, y)
    assert one < 0.65
    assert model.score(new, truth) > 0.97
    assert model.score(sp.csr_array(new), truth) == model.score(new, truth)


def test_the_objective_falls_in_every_pass():
    X, y = two_clusters()
    y = np.where(np.random.default_rng(2).random(len(y)) < 0.1, 1 - y, y)
    for settings in ({"gamma": 0.0, "C": 0.3}, {"C": 5.0, "n_landmarks": 50}):
        found = InfiniteSVM(8, tol=0.0, max_iter=12, random_state=0, **settings).fit(X, y)
        history = found.objective_
        assert len(history) > 5
        assert np.all(np.diff(history) <= 1e-7 * np.abs(history[1:]))


def test_clusters_in_use_follow_the_concentration():
    """A noisy ring: any number of clusters explains it a little."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 100)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.2 * rng.normal(size=(100, 2))
    y = rng.integers(0, 2, 100)
    used = [
        InfiniteSVM(16, alpha=alpha, C=0.01, gamma=0.0, random_state=0).fit(X, y).n_used_
        for alpha in (1e-6, 0.1, 1.0)
    ]
    assert used[0] == 1
    assert used[0] < used[1] < used[2]


def test_shares_of_a_row_are_the_exact_minimiser():
    """Against a general solver of the same problem with a slack for the hinge."""
    rng = np.random.default_rng(0)
    density, gains = rng.normal(size=(6, 3)), 2 * rng.normal(size=(6, 3))
    gains[0] = 3.0  # margin kept by every cluster
    gains[1] = -3.0  # and by none
    for C, n in [(C, n) for C in (0.5, 4.0) for n in range(6)]:

        def cost(v, C=C, n=n):
            return np.sum(v[:3] * (np.log(v[:3]) - density[n])) + C * v[3]

        solved = minimize(
            cost,
            [1 / 3, 1 / 3, 1 / 3, 10.0],
            method="SLSQP",
            bounds=[(1e-9, 1)] * 3 + [(0, None)],
            constraints=[
                {"type": "eq", "fun": lambda v: v[:3].sum() - 1},
                {"type": "ineq", "fun": lambda v, n=n: v[3] - 1 + v[:3] @ gains[n]},
            ],
            options={"ftol": 1e-13, "maxiter": 500},
        )
        np.testing.assert_allclose(svm.assign(density, gains, C)[n], solved.x[:3], atol=2e-4)


def test_one_cluster_is_the_usual_machine():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (X @ [1.0, -1.0, 0.5] + 0.5 * rng.normal(size=200) > 0).astype(int)
    model = InfiniteSVM(1, gamma=0.0, C=0.7, random_state=0).fit(X, y)
    usual = LinearSVC(C=0.7, loss="hinge", max_iter=200_000, tol=1e-7).fit(X, y)
    np.testing.assert_allclose(model.coef_[0, :3], usual.coef_[0], atol=0.02)


def test_each_term_of_the_objective_is_a_divergence_known_otherwise():
    a, b, alpha = np.array([2.5, 1.0]), np.array([0.7, 3.0]), 1.7
    grid = (np.arange(200_000) + 0.5) / 200_000
    for place in range(2):
        q, p = beta(a[place], b[place]), beta(1.0, alpha)
        inside = q.ppf(grid)
        expected = np.mean(q.logpdf(inside) - p.logpdf(inside))
        assert svm._beta_divergence(a, b, alpha)[place] == pytest.approx(expected, abs=1e-3)
    rng = np.random.default_rng(0)
    U, shares = rng.normal(size=(50, 2)), rng.dirichlet(np.ones(3), 50)
    clusters = svm.update_clusters(shares, U, alpha, 1.0)
    weights, gains = np.zeros((3, 1)), np.zeros((50, 3))
    # Sticks and means are where the objective is least: any other value is worse.
    best = svm.objective(shares, clusters, weights, gains, U, alpha, 1.0)
    at_old_noise = clusters._replace(noise=1.0)
    reference = svm.objective(shares, at_old_noise, weights, gains, U, alpha, 1.0)
    assert best <= reference
    for name in ("a", "b", "means", "spread"):
        for factor in (0.9, 1.1):
            other = at_old_noise._replace(**{name: getattr(clusters, name) * factor})
            assert svm.objective(shares, other, weights, gains, U, alpha, 1.0) > reference
    for factor in (0.9, 1.1):
        other = clusters._replace(noise=clusters.noise * factor)
        assert svm.objective(shares, other, weights, gains, U, alpha, 1.0) > best


@parametrize_with_checks([InfiniteSVM(3, n_landmarks=20, max_iter=10, random_state=0)])
def test_it_is_a_scikit_learn_classifier(estimator, check):
    check(estimator)
