# %% [markdown]
# # Which shapes are these images made of, and how many are there?
#
# Block-Images: four shapes on 6 x 6 pixels, each present in half of the images, under noise. The
# latent feature model has to find the shapes, their number and the noise. It is compared with
# probabilistic PCA and factor analysis of the same data, which are given the number, by the
# log-likelihood of new images and by how well it predicts hidden pixels.
#
#     python examples/latent_features.py --output picture.png

# %%
import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA, FactorAnalysis

from wideangle import LatentFeatureModel, Sampling
from wideangle.datasets import block_images

PRIORS = ("mutual-angular", "vmf", "gaussian")
HIDDEN = 0.2


def worst_distance(found, truth):
    """Largest distance of a true shape from the nearest component, relative to its length."""
    if len(found) == 0:
        return 1.0
    gaps = np.linalg.norm(truth[:, None] - found[None], axis=2).min(axis=1)
    return float(np.max(gaps / np.linalg.norm(truth, axis=1)))


# %% [markdown]
# ## Fit, and ask what the model has not seen
# A fifth of the pixels is hidden from the fit as NaN. Afterwards each is predicted from the other
# pixels of its image.


# %%
def fit_features(prior, train, mask, sweeps, seed):
    """A fitted model and its seconds."""
    began = time.perf_counter()
    chains = Sampling(n_warmup=sweeps, n_draws=max(sweeps // 4, 1))
    model = LatentFeatureModel(prior, inference=chains, random_state=seed, verbose=False)
    model.fit(np.where(mask, np.nan, train))
    return model, time.perf_counter() - began


def compare(options):
    """Print the table; the fitted models come back by name."""
    truth = block_images(options.seed, options.rows)
    test = block_images(options.seed + 1, 1000).X
    mask = np.random.default_rng(options.seed).random(truth.X.shape) < HIDDEN
    print(
        "| model | components | worst shape | held-out log-likelihood | hidden pixels | seconds |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    fitted = {}
    for prior in options.priors:
        model, seconds = fit_features(prior, truth.X, mask, options.sweeps, options.seed)
        hidden = np.mean(model.score_entries(truth.X, mask).log_density)
        distance = worst_distance(model.components_, truth.features)
        print(
            f"| features, {prior} | {model.n_components_} | {distance:.3f} "
            f"| {model.score(test):.3f} | {hidden:.4f} | {seconds:.1f} |",
            flush=True,
        )
        fitted[prior] = model
    for name, model in (("PCA", PCA(4)), ("factor analysis", FactorAnalysis(4))):
        print(f"| {name}, all pixels | 4 | | {model.fit(truth.X).score(test):.3f} | | |")
    return truth, fitted


# %% [markdown]
# ## What it found


# %%
def draw(truth, model, output):
    """True shapes, components, and some images without their noise."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = {
        "true shapes": truth.features,
        "components": model.components_[:6],
        "images": truth.X[:6],
        "reconstructed": model.reconstruct(truth.X[:6]),
    }
    figure, axes = plt.subplots(4, 6, figsize=(8, 5.8), layout="constrained")
    for line, (title, images) in zip(axes, lines.items(), strict=True):
        line[0].set_title(title, loc="left")
        for ax in line:
            ax.axis("off")
        for ax, image in zip(line, images, strict=False):
            ax.imshow(image.reshape(6, 6), cmap="RdBu_r", vmin=-1.5, vmax=1.5)
    figure.savefig(output, dpi=110)


# %%
def main():
    """Parse, fit, print, draw."""
    parser = argparse.ArgumentParser(description="Find the shapes of Block-Images.")
    parser.add_argument("--output", type=Path, default=Path("latent-features.png"))
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--sweeps", type=int, default=100, help="of warm-up; draws are twice that")
    parser.add_argument("--priors", nargs="+", choices=PRIORS, default=PRIORS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    truth, fitted = compare(options)
    draw(truth, fitted[options.priors[0]], options.output)


if __name__ == "__main__":
    main()
