# %% [markdown]
# # Clusters of directions
#
# Handwritten digits, compared by cosine: how bright an image is does not matter. A mixture with
# far more clusters than there are digits, with and without repulsion, and k-means on rows of
# length one.
#
#     python examples/spherical_mixture.py --output picture.png

# %%
import argparse

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from wideangle import MutualAngularPrior, SphericalMixture
from wideangle.sphere.vmf import log_area

PRIORS = {
    "no repulsion": "vmf",
    "cosine 0.1": MutualAngularPrior(cosine=0.1),
    "cosine 0.5": MutualAngularPrior(cosine=0.5),
}


# %%
def main() -> None:
    parser = argparse.ArgumentParser(description="Clusters of directions")
    parser.add_argument("--output", default="clusters.png")
    parser.add_argument("--rows", type=int, default=1797)
    parser.add_argument("--clusters", type=int, default=60)
    chosen = parser.parse_args()
    images, digits = load_digits(return_X_y=True)
    images, digits = images[: chosen.rows], digits[: chosen.rows]
    X, X_new, _, y_new = train_test_split(images, digits, test_size=0.3, random_state=0)
    print("| model | clusters in use | NMI with the digits, new rows | log density of a new row |")
    print("|---|---|---|---|")
    model = None
    for name, prior in PRIORS.items():
        model = SphericalMixture(chosen.clusters, prior=prior, random_state=0).fit(X)
        agree = normalized_mutual_info_score(y_new, model.predict(X_new))
        density = model.score(X_new) + log_area(X.shape[1])
        print(f"| clusters, {name} | {model.n_used_:.0f} | {agree:.3f} | {density:.2f} |")
    means = KMeans(chosen.clusters, n_init=8, random_state=0).fit(normalize(X))
    agree = normalized_mutual_info_score(y_new, means.predict(normalize(X_new)))
    print(f"| k-means | {chosen.clusters} | {agree:.3f} | - |")
    draw(model, X_new, y_new, chosen.output)


def draw(model: SphericalMixture, X: np.ndarray, y: np.ndarray, path: str) -> None:
    """Centres of the largest clusters, and the digit that most new rows of each show."""
    labels = model.predict(X)
    largest = np.argsort(-model.weights_)[:20]
    figure, axes = plt.subplots(2, 10, figsize=(10, 2.6), layout="constrained")
    for axis, k in zip(axes.ravel(), largest, strict=False):
        axis.imshow(model.cluster_centers_[k].reshape(8, 8), cmap="gray_r")
        digits = y[labels == k]
        digit = np.bincount(digits).argmax() if len(digits) else "-"
        axis.set_title(f"{digit} ({100 * model.weights_[k]:.1f} %)", fontsize=8)
    for axis in axes.ravel():
        axis.axis("off")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
