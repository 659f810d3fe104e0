# %% [markdown]
# # Pictures of a fitted model
#
# Every function of `wideangle.plots` takes a fitted model and returns a matplotlib figure. This
# script fits models of both kinds to data with a known truth and saves all the pictures of the page
# `docs/plots.md`, each to a separate file, and a sheet with two of them.
#
#     python examples/plots.py --folder docs/images/plots --output sheet.png

# %%
import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.datasets import make_classification

from wideangle import LatentFeatureModel, Maximise, MixtureOfExpertsClassifier, Sampling, plots
from wideangle.datasets import block_images


def two_rules(n_rows, seed):
    """Rows of the plane: in each half another rule decides the class."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 2)) * 1.5
    score = np.where(X[:, 0] > 0, 2.5 * X[:, 1] - 1, -2.5 * X[:, 1] - 1)
    return X, np.where(rng.random(n_rows) < 1 / (1 + np.exp(-score)), "yes", "no")


# %% [markdown]
# ## Three fits


# %%
def fit(options):
    """A gate in the plane, experts of ten columns, and features of images."""
    chains = Sampling(n_warmup=options.sweeps, n_draws=options.sweeps, n_chains=3)
    inference = Maximise() if options.inference == "map" else chains
    common = {"verbose": False, "random_state": options.seed}
    plane = two_rules(options.rows, options.seed)
    columns, labels = make_classification(
        options.rows, 10, n_informative=6, n_clusters_per_class=3, random_state=options.seed
    )
    wide = columns, np.where(labels, "yes", "no")
    images = block_images(options.seed, options.rows).X
    gate, experts = (
        MixtureOfExpertsClassifier(n, inference=inference, **common).fit(*rows)
        for n, rows in ((3, plane), (5, wide))
    )
    sweeps = clone(chains).set_params(n_draws=-(-options.sweeps // 8), thin=8)
    features = LatentFeatureModel(inference=sweeps, **common).fit(images)
    return gate, experts, features


# %% [markdown]
# ## The pictures


# %%
def draw(gate, experts, features, options):
    """Figure by name."""
    X, y = two_rules(options.rows, options.seed + 1)
    images = block_images(options.seed + 1, options.rows).X
    names = [f"pixel {i // 6 + 1},{i % 6 + 1}" for i in range(36)]
    return {
        "angle-heatmap": plots.angle_heatmap(experts),
        "angle-distribution": plots.angle_distribution(experts),
        "component-images": plots.component_images(features, (6, 6)),
        "top-words": plots.top_words(features, names),
        "component-weights": plots.component_weights(experts),
        "component-map": plots.component_map(gate, X, y),
        "activation-matrix": plots.activation_matrix(features, images),
        "component-count": plots.component_count(features),
        "calibration": plots.calibration(gate, *two_rules(10 * options.rows, options.seed + 2)),
        "rank-plot": plots.rank_plot(features),
        "trace": plots.trace(features),
    }


def sheet(gate, experts, options):
    """Two pictures on axes of one figure: each function takes `ax`, where one makes sense."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    plots.component_map(gate, *two_rules(options.rows, options.seed + 1), ax=left)
    plots.angle_heatmap(experts, ax=right)
    return figure


# %%
def main():
    """Parse, fit, draw."""
    parser = argparse.ArgumentParser(description="Draw the pictures of the page on plots.")
    parser.add_argument("--output", type=Path, default=Path("plots.png"))
    parser.add_argument("--folder", type=Path, help="for every picture; by default none is kept")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--sweeps", type=int, default=200, help="of warm-up, and draws")
    parser.add_argument("--inference", choices=("mcmc", "map"), default="mcmc", help="of experts")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    gate, experts, features = fit(options)
    print("| picture | size in inches |\n|---|---|")
    for name, figure in draw(gate, experts, features, options).items():
        width, height = figure.get_size_inches()
        print(f"| {name} | {width:.1f} x {height:.1f} |")
        if options.folder is not None:
            options.folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(options.folder / f"{name}.png", dpi=110)
    sheet(gate, experts, options).savefig(options.output, dpi=110)


if __name__ == "__main__":
    main()
