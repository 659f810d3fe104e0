# %% [markdown]
# # A Gaussian mixture whose components repel each other
#
# Six clusters in five dimensions, two of them rare: 3 points each, against 18 for the others. The
# mixture is written in plain NumPyro and sampled by NUTS, with independent components (strength
# 0) and with the mutual-angular prior. Nothing else differs: same lengths, weights, data, keys.
#
# Two truths are tried, because a prior helps when it is right and costs when it is wrong:
#
# * `spread`: the clusters lie around their common centre (a randomly turned simplex);
# * `random`: their directions are independent and uniform, so the independent prior is the truth.
#
#     python examples/gaussian_mixture.py --output picture.png --page page.md

# %%
import argparse
import platform
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.infer import MCMC, NUTS, init_to_sample

from wideangle import MutualAngular, PolarComponents

K, DIM, LENGTH = 6, 5, 2.5
COUNTS = np.array([18, 18, 18, 18, 3, 3])
RARE = slice(4, 6)
TRUTHS = ("spread", "random")
STRENGTHS = (0.0, 0.3, 0.6)
FOUND = 35.0  # degrees: a component closer than this to a true direction has found it
N_TEST, N_CHAINS, N_WARMUP, N_DRAWS = 3000, 2, 250, 150

# %% [markdown]
# ## The model
# One line differs from a mixture with independent components: the distribution of directions. Its
# strength is an argument, so one compiled program serves all priors.


# %%
def model(x, concentration):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(K)))
    directions = MutualAngular(K, DIM, concentration)
    components = numpyro.sample(
        "components", PolarComponents(directions, magnitude_shape=16.0, magnitude_rate=16 / LENGTH)
    )
    clusters = dist.Normal(components, 1.0).to_event(1)
    numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(weights), clusters), obs=x)


@jax.jit
@jax.vmap
def sample(key, x, concentration):
    kernel = NUTS(model, init_strategy=init_to_sample, max_tree_depth=6)
    mcmc = MCMC(kernel, num_warmup=N_WARMUP, num_samples=N_DRAWS, progress_bar=False)
    mcmc.run(key, x, concentration)
    return mcmc.get_samples()


# %% [markdown]
# ## The data


# %%
def make_data(truth, seed):
    """True directions (K, p), training rows, test rows."""
    rng = np.random.default_rng(seed)
    if truth == "spread":
        centred = np.eye(K) - 1 / K
        turn = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
        directions = np.linalg.svd(centred)[0][:, :DIM] @ turn
    else:
        directions = rng.normal(size=(K, DIM))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)

    def rows(labels):
        return LENGTH * directions[labels] + rng.normal(size=(len(labels), DIM))

    train = rows(np.repeat(np.arange(K), COUNTS))
    return directions, train, rows(rng.choice(K, N_TEST, p=COUNTS / COUNTS.sum()))


# %% [markdown]
# ## What is measured, averaged over posterior draws
# * duplicates: K minus the number of true clusters that are closest to some component;
# * rare found: share of the rare true directions with a component within 35 degrees;
# * held-out log density per row, of the posterior predictive distribution.


# %%
def evaluate(directions, test, components, weights):
    units = components / np.linalg.norm(components, axis=-1, keepdims=True)
    cosines = np.einsum("skp,jp->skj", units, directions)
    covered = (np.argmax(cosines, axis=2)[..., None] == np.arange(K)).any(axis=1).sum(axis=1)
    closest = np.degrees(np.arccos(np.clip(cosines.max(axis=1), -1, 1)))
    rare = closest[:, RARE]
    held_out = float(log_predictive(components[::3], weights[::3], test))
    return (K - covered.mean(), (rare < FOUND).mean(), held_out), rare.ravel()


@jax.jit
def log_predictive(components, weights, test):
    def one_draw(draw):
        squares = jnp.sum((test[:, None] - draw[0]) ** 2, axis=-1)
        return logsumexp(jnp.log(draw[1]) - 0.5 * squares, axis=-1)

    rows = jax.lax.map(one_draw, (components, weights))
    average = logsumexp(rows, axis=0) - jnp.log(rows.shape[0])
    return jnp.mean(average) - 0.5 * DIM * jnp.log(2 * jnp.pi)


# %%
def experiment(n_sets):
    """Scores (truth, strength, data set, measure), and angles to the rare clusters."""
    data = [make_data(truth, seed) for truth in TRUTHS for seed in range(n_sets)]
    kappas = MutualAngular.from_cosine(K, DIM, np.array(STRENGTHS)).concentration
    shape = (len(data), len(STRENGTHS), N_CHAINS)
    rows = np.broadcast_to(
        np.stack([train for _, train, _ in data])[:, None, None], (*shape, COUNTS.sum(), DIM)
    )
    kappa = np.broadcast_to(np.asarray(kappas)[None, :, None], shape)
    # The same keys for every strength: what differs is the prior.
    keys = jax.random.split(jax.random.key(0), (len(data), 1, N_CHAINS))
    keys = jnp.broadcast_to(keys, shape).ravel()
    draws = sample(keys, jnp.asarray(rows.reshape(-1, *rows.shape[3:])), jnp.ravel(kappa))
    merged = {
        name: np.asarray(v).reshape(*shape[:2], -1, *v.shape[2:]) for name, v in draws.items()
    }
    results = [
        evaluate(directions, test, merged["components"][i, s], merged["weights"][i, s])
        for i, (directions, _, test) in enumerate(data)
        for s in range(len(STRENGTHS))
    ]
    scores, angles = (np.array(part) for part in zip(*results, strict=True))
    grid = (len(TRUTHS), n_sets, len(STRENGTHS), -1)
    return scores.reshape(grid).swapaxes(1, 2), angles.reshape(grid).swapaxes(1, 2)


# %% [markdown]
# ## Numbers and picture
# Differences to strength 0 are taken data set by data set.

# %%
MEASURES = ("duplicates", "rare clusters found", "held-out log density per row")


def make_table(scores):
    lines = ["| truth | strength | " + " | ".join(MEASURES) + " |", "|---|---:|---:|---:|---:|"]
    n_sets = scores.shape[2]
    for t, truth in enumerate(TRUTHS):
        for s, strength in enumerate(STRENGTHS):
            change = scores[t, s] - scores[t, 0]
            error = change.std(axis=0, ddof=1) / np.sqrt(n_sets)
            cells = [
                f"{scores[t, s, :, m].mean():.{d}f}"
                + (f" ({change[:, m].mean():+.{d}f} ± {error[m]:.{d}f})" if s else "")
                for m, d in enumerate((2, 2, 3))
            ]
            lines.append(f"| {truth} | {strength:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def make_figure(scores, angles):
    from matplotlib.figure import Figure

    ink, blue, orange = "#22262B", "#0072B2", "#D55E00"
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    top, bottom = figure.subfigures(2, 1)
    bins = np.linspace(0, 120, 41)
    for t, axes in enumerate(top.subplots(1, 2, sharey=True)):
        for s, colour in enumerate(("#8A8F98", "#56B4E9", blue)):
            name = f"strength {STRENGTHS[s]:g}" if s else "independent"
            density, _ = np.histogram(angles[t, s], bins, density=True)
            axes.stairs(density, bins, color=colour, lw=1.8, label=name)
            axes.stairs(density, bins, color=colour, alpha=0.08, fill=True)
        axes.axvline(FOUND, color=ink, lw=0.9, ls=":")
        axes.text(FOUND - 1.5, 0.0302, "found", ha="right", fontsize=8.5, color=ink)
        axes.set(xlim=(0, 110), ylim=(0, 0.032), yticks=[])
        axes.set_xlabel("degrees from a rare cluster to the nearest component", fontsize=9)
        axes.set_title(f"truth {TRUTHS[t]}", fontsize=11, color=(blue, orange)[t], weight="bold")
        axes.tick_params(labelsize=8.5)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9, loc="upper right")
    n_sets = scores.shape[2]
    for m, axes in enumerate(bottom.subplots(1, 3)):
        for t, (colour, marker) in enumerate(((blue, "o"), (orange, "s"))):
            change = scores[t, :, :, m] - scores[t, :1, :, m]
            error = 2 * change.std(axis=1, ddof=1) / np.sqrt(n_sets)
            place = np.array(STRENGTHS) + (t - 0.5) * 0.03
            axes.plot(place, change, marker, color=colour, ms=3.5, alpha=0.3, mew=0)
            axes.errorbar(
                place, change.mean(axis=1), error, fmt=f"{marker}-", color=colour, ms=6, lw=1.6,
                capsize=3, label=f"truth {TRUTHS[t]}",
            )  # fmt: skip
        axes.axhline(0, color="#C9CED6", lw=0.8, zorder=0)
        axes.set_title(f"change in {MEASURES[m]}", fontsize=10, color=ink)
        axes.set_xlabel("strength", fontsize=9)
        axes.set_xticks(STRENGTHS)
        axes.tick_params(labelsize=8.5)
        axes.spines[["top", "right"]].set_visible(False)
        if m == 0:
            axes.legend(frameon=False, fontsize=8.5, loc="lower left")
    return figure


PAGE = """# When the prior helps: a Gaussian mixture

**The prior helps where true components differ, and costs a little where they do not.** This
example measures both, with a Gaussian mixture in plain NumPyro (`examples/gaussian_mixture.py`).

![Angles to the rare clusters, and what changes with the strength]({picture})

{table}

Mean over {n_sets} data sets; in brackets the change against independent components, paired by
data set, with one standard error (two in the picture). The same random keys serve every prior.

**What the table shows.** In the data sets `spread`, true clusters lie in different directions. A
component whose cluster has too few rows would wander over the whole sphere; the prior sends it to
the side opposite to the others, where the missing cluster is. In the data sets `random` there is
no such side. Fewer components are duplicated, but hardly more rare clusters are found, and strong
repulsion predicts worse, because its assumption is wrong. The changes in log density are small in
both cases.

**How this setting was chosen.** Ten dimensions with five clusters, longer components, nine
components and three dimensions were tried as well. With random clusters in ten dimensions the
prior found *fewer* rare clusters; elsewhere its gains were smaller than here. The page shows the
clearest case, next to one in which the assumption is wrong.

Command: `python examples/gaussian_mixture.py --data-sets {n_sets} --output {shown} --page PAGE`,
seed fixed in the script; {versions}.
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=Path("gaussian-mixture.png"))
    parser.add_argument("--page", type=Path, help="also write the numbers as a page")
    parser.add_argument("--data-sets", type=int, default=8)
    options = parser.parse_args()
    scores, angles = experiment(options.data_sets)
    table = make_table(scores)
    print(table)
    make_figure(scores, angles).savefig(options.output, dpi=130)
    if options.page:
        names = ("jax", "numpyro", "numpy")
        versions = ", ".join(f"{name} {version(name)}" for name in names)
        text = PAGE.format(
            picture=options.output.relative_to(options.page.parent).as_posix(),
            shown=options.output.name,
            table=table,
            n_sets=options.data_sets,
            versions=f"Python {platform.python_version()}, {versions}, float32 on a CPU",
        )
        options.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
