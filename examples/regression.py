# %% [markdown]
# # A regression whose noise changes along the way
#
# The acceleration of a dummy's head after a motorcycle hits a wall (133 readings; Schmidt, Mattern
# and Schueler 1981, printed by Silverman 1985). At first nothing moves and readings are exact, then
# they scatter widely: one spread for all rows is too wide here and too narrow there. Five experts,
# each with its own noise, are compared with a Gaussian process, gradient boosting and a random
# forest, by the log density of readings that were held out.
#
#     python examples/regression.py --output picture.png

# %%
import argparse
import time
from pathlib import Path

import numpy as np
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import KFold, cross_val_predict

from wideangle import MixtureOfExpertsRegressor, plots

DATA = Path(__file__).with_name("motorcycle.csv")
FOLDS = 5


def motorcycle():
    """Time after the impact in ms, and acceleration in g."""
    rows = np.loadtxt(DATA, delimiter=",", skiprows=1)
    return rows[:, :1], rows[:, 1]


# %%
class Experts:
    """Our model, by one of its inferences."""

    def __init__(self, n_experts, inference, seed):
        self.model = MixtureOfExpertsRegressor(
            n_experts, inference=inference, verbose=False, random_state=seed
        )

    def fit(self, X, y):
        """Sample, or climb."""
        self.model.fit(X, y)
        return self

    def score(self, X, y):
        """Log density, and whether each row is inside its interval of 90 %."""
        low, high = self.model.predict_interval(X, 0.9).T
        return self.model.score_samples(X, y), (y >= low) & (y <= high), self.model.predict(X)


class Gaussians:
    """A mean with a Gaussian around it: of the model's own spread, or that of held-out errors."""

    def __init__(self, model, own_spread=False):
        self.model, self.own_spread = model, own_spread

    def fit(self, X, y):
        """With the errors of cross-validation, where the model has no spread."""
        if not self.own_spread:
            self.spread = np.std(y - cross_val_predict(self.model, X, y, cv=5))
        self.model.fit(X, y)
        return self

    def score(self, X, y):
        """As above."""
        if self.own_spread:
            mean, spread = self.model.predict(X, return_std=True)
        else:
            mean, spread = self.model.predict(X), self.spread
        found = norm(mean, spread)
        return found.logpdf(y), np.abs(found.cdf(y) - 0.5) <= 0.45, mean


def models(n_experts, seed):
    """What is compared."""
    kernel = ConstantKernel(1.0) * RBF(5.0) + WhiteKernel(0.3)
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    return {
        "gradient boosting": Gaussians(HistGradientBoostingRegressor(random_state=seed)),
        "random forest": Gaussians(RandomForestRegressor(300, random_state=seed)),
        "Gaussian process": Gaussians(process, own_spread=True),
        "experts, map": Experts(n_experts, "map", seed),
        "experts, vi": Experts(n_experts, "vi", seed),
        "experts, mcmc": Experts(n_experts, "mcmc", seed),
    }


# %%
def compare(X, y, n_experts, n_folds, seed):
    """Print a line of the table for each; rows are held out a fold at a time."""
    print(
        "| model | log density | rows in 90 % | RMSE | seconds a fit |\n|---|---:|---:|---:|---:|"
    )
    folds = list(KFold(FOLDS, shuffle=True, random_state=seed).split(X))[:n_folds]
    for name, model in models(n_experts, seed).items():
        densities, inside, errors, began = [], [], [], time.perf_counter()
        for train, test in folds:
            density, covered, mean = model.fit(X[train], y[train]).score(X[test], y[test])
            densities.append(density)
            inside.append(covered)
            errors.append(y[test] - mean)
        seconds = (time.perf_counter() - began) / len(folds)
        density, inside, errors = map(np.concatenate, (densities, inside, errors))
        print(
            f"| {name} | {density.mean():.3f} | {100 * inside.mean():.0f} % | "
            f"{np.sqrt(np.mean(errors**2)):.1f} | {seconds:.1f} |",
            flush=True,
        )


def draw(model, X, y, output):
    """Bands along the time, and which expert answers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    plots.prediction_bands(model, X, y, ax=left)
    left.set_title("Bands that hold 50 % and 90 %", loc="left")
    left.set(xlabel="ms after the impact", ylabel="g")
    grid = np.linspace(X.min(), X.max(), 200)[:, None]
    found = model.predict_uncertainty(grid)
    right.plot(grid, np.sqrt(found.expected), label="noise")
    right.plot(grid, np.sqrt(found.epistemic), label="epistemic")
    right.set_title("Standard deviations", loc="left")
    right.set(xlabel="ms after the impact", ylabel="g")
    right.legend(frameon=False)
    figure.savefig(output, dpi=110)


# %%
def main():
    """Parse, compare, draw."""
    parser = argparse.ArgumentParser(description="Compare predictive distributions.")
    parser.add_argument("--output", type=Path, default=Path("regression.png"))
    parser.add_argument("--experts", type=int, default=5)
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    X, y = motorcycle()
    compare(X, y, options.experts, options.folds, options.seed)
    model = MixtureOfExpertsRegressor(options.experts, verbose=False, random_state=options.seed)
    draw(model.fit(X, y), X, y, options.output)


if __name__ == "__main__":
    main()
