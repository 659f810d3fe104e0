# %% [markdown]
# # A mixture of experts that knows where it is uncertain
#
# Two rules, each linear, in two halves of the plane: no single logistic regression can hold both.
# Four experts are fitted by maximisation, by variational inference and by Hamiltonian sampling, and
# compared with logistic regression and gradient boosting on the same split.
#
#     python examples/mixture_of_experts.py --output picture.png
#
# The same comparison on a data file of your own (CSR parts as in the `adult9` archive):
#
#     python examples/mixture_of_experts.py --archive adult9.npz --experts 30 --output picture.png

# %%
import argparse
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss

from wideangle import MixtureOfExpertsClassifier


def two_rules(n_rows, seed):
    """Rows of the plane; the sign of the first coordinate decides which rule holds."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 2)) * 1.5
    score = np.where(x[:, 0] > 0, 2.5 * x[:, 1] - 1.0, -2.5 * x[:, 1] - 1.0)
    return x, (rng.uniform(size=n_rows) < 1 / (1 + np.exp(-score))).astype(int)


def archive(path):
    """Train and test part of an archive of CSR parts."""
    with np.load(path) as z:
        parts = [
            (
                sp.csr_matrix(
                    (z[f"{name}_data"], z[f"{name}_indices"], z[f"{name}_indptr"]),
                    shape=z[f"{name}_shape"],
                ),
                z[f"y_{name}"],
            )
            for name in ("train", "test")
        ]
    return parts


def calibration_error(y, proba, n_bins=15):
    """Mean gap between probability and frequency over equal bins."""
    place = np.minimum((proba * n_bins).astype(int), n_bins - 1)
    gaps = [
        abs(proba[place == b].mean() - y[place == b].mean()) * np.mean(place == b)
        for b in np.unique(place)
    ]
    return float(np.sum(gaps))


# %% [markdown]
# ## One estimator; a method is a pair of settings


# %%
def candidates(n_experts, seed):
    """Name and model of every row of the table."""
    experts = {"n_experts": n_experts, "random_state": seed, "verbose": False}
    return {
        "logistic regression": LogisticRegression(max_iter=1000),
        "gradient boosting": HistGradientBoostingClassifier(random_state=seed),
        "experts, gaussian, map": MixtureOfExpertsClassifier(
            **experts, prior="gaussian", inference="map"
        ),
        "experts, mutual-angular, vi": MixtureOfExpertsClassifier(**experts, inference="vi"),
        "experts, gaussian, mcmc": MixtureOfExpertsClassifier(**experts, prior="gaussian"),
        "experts, mutual-angular, mcmc": MixtureOfExpertsClassifier(**experts),
    }


def compare(train, test, n_experts, seed):
    """Fit every candidate and print its row; the fitted models come back by name."""
    print("| model | accuracy | log-loss | calibration error | experts used | seconds |")
    print("|---|---:|---:|---:|---:|---:|")
    fitted = {}
    for name, model in candidates(n_experts, seed).items():
        X, T = train[0], test[0]
        if name == "gradient boosting" and sp.issparse(X):
            X, T = X.toarray(), T.toarray()
        began = time.perf_counter()
        fitted[name] = model.fit(X, train[1])
        seconds = time.perf_counter() - began
        proba = model.predict_proba(T)
        numbers = (
            f"{100 * accuracy_score(test[1], proba[:, 1] > 0.5):.2f}",
            f"{log_loss(test[1], proba):.4f}",
            f"{calibration_error(test[1], proba[:, 1]):.4f}",
            f"{model.n_used_:.1f}" if hasattr(model, "n_used_") else "",
            f"{seconds:.1f}",
        )
        print("| " + " | ".join((name, *numbers)) + " |", flush=True)
    return fitted


# %% [markdown]
# ## What it knows, and where
# Left: the probability. Middle: which expert answers. Right: the part of the uncertainty that more
# data would remove; it grows away from the data and along the border between experts.


# %%
def draw(model, x, y, output):
    """Three maps of the plane."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axis = np.linspace(-6, 6, 121)
    grid = np.stack([g.ravel() for g in np.meshgrid(axis, axis)], axis=1)
    shape = (len(axis), len(axis))
    owner = np.argmax(model.gate_proba(grid), axis=1)
    maps = (
        ("probability of class 1", model.predict_proba(grid)[:, 1], "RdBu_r", (0, 1)),
        ("expert that answers", owner, "tab10", (-0.5, 9.5)),
        ("epistemic uncertainty, nats", model.predict_uncertainty(grid).epistemic, "viridis", None),
    )
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    for ax, (title, values, colours, limits) in zip(axes, maps, strict=True):
        low, high = limits or (None, None)
        image = ax.imshow(
            values.reshape(shape), origin="lower", extent=(-6, 6, -6, 6), cmap=colours, vmin=low,
            vmax=high,
        )  # fmt: skip
        if title != "expert that answers":
            figure.colorbar(image, ax=ax, shrink=0.85)
        for label, marker in ((0, "o"), (1, "^")):
            chosen = y == label
            ax.scatter(*x[chosen].T, s=7, marker=marker, c="white", edgecolors="black", lw=0.4)
        ax.set(title=title, xticks=[-5, 0, 5], yticks=[-5, 0, 5])
    figure.savefig(output, dpi=110)


# %%
def main():
    """Parse, fit, print, draw."""
    parser = argparse.ArgumentParser(description="Compare mixtures of experts.")
    parser.add_argument("--output", type=Path, default=Path("mixture-of-experts.png"))
    parser.add_argument("--archive", type=Path)
    parser.add_argument("--experts", type=int, default=4)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.archive is not None:
        compare(*archive(options.archive), options.experts, options.seed)
        return
    train = two_rules(options.rows, options.seed)
    test = two_rules(5000, options.seed + 1)
    fitted = compare(train, test, options.experts, options.seed)
    draw(fitted["experts, mutual-angular, mcmc"], *train, options.output)


if __name__ == "__main__":
    main()
