"""A fitted latent feature model in words and arrays, for runs, plots, report and command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np
import scipy.sparse as sp

from wideangle.convergence import STACK
from wideangle.latent_features.posterior import disagreements
from wideangle.posterior import evenly
from wideangle.presentation.family import (
    FEWEST_MATCHED,
    MATCHED_DRAWS,
    MOST_ROWS,
    Presentation,
    numbered,
    standard_error,
    with_error,
)
from wideangle.presentation.records import (
    Card,
    Chart,
    Column,
    Option,
    RowTable,
    Run,
    Scored,
    Section,
    prior_options,
    sampled_rows,
    sampling_options,
)
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.settings import PRIORS, PROCESSES, name_of
from wideangle.types import as_dense

HIDDEN = 0.1
"""Share of the entries of a held-out row that are hidden and predicted from the others."""
MOST_SCORED = 500
"""Rows whose density is computed: summing out assignments is the most expensive step."""
CHUNK = 2**22
"""Entries of reconstructed rows at once."""
SETTLED = 0.9
"""Least share of draws at which a feature counts as certain."""


class FeaturePresentation(Presentation):
    """Features that each row has or lacks."""

    title: ClassVar[str] = "latent features"
    noun: ClassVar[str] = "feature"
    help: ClassVar[
        str
    ] = """Find what rows have in common: features that are on or off, as many as \
the data need.

    Example: `wideangle train features measurements.csv --ignore id -o run`, then
    `wideangle predict run new.csv -o features.csv` and `wideangle report run`.

    Missing values are left to the model, which fills them in. Ctrl-C keeps the draws so far: the
    same command with `--resume` continues.
    """
    in_modes: ClassVar[str] = f"{STACK} (dense rows in memory only)"
    words: ClassVar[Mapping[str, str]] = {
        "signal": "reconstruction of watched entry",
        "log_lik": "log-likelihood",
        "n_active": "active features",
        "noise_scale": "scale of the noise",
        "alpha": "features of a row (alpha)",
        "log_joint": "log density",
        "concentration": "strength of the prior (kappa)",
        "residual_rms": "size of the residuals",
        "feature_scale": "size of the features",
    }
    max_time: ClassVar[float] = 300.0
    counted: ClassVar[str] = "n_active"
    options: ClassVar[tuple[Option, ...]] = (
        *prior_options("features", "0.1", ("mutual-angular", "vmf", "gaussian")),
        Option(
            "--process", "process", str,
            "How many features there are; pitman-yor has many rare ones and needs another prior "
            "than mutual-angular.", "ibp", ("ibp", "pitman-yor"),
        ),
        Option(
            "--noise-scale", "noise_scale", float, "Standard deviation of the noise.", "learned",
            least=1e-300,
        ),
        Option(
            "--centre/--no-centre", "standardise", bool, "Subtract column means.",
            "for tables, not for arrays",
        ),
        Option(
            "--max-features", "inference__max_features", int, "Most features to look for.", "200",
            least=1,
        ),
        *sampling_options("as many as it takes", "as many as predictions need", 8, "300"),
    )  # fmt: skip
    scales_tables: ClassVar[bool] = True
    where: ClassVar[Section] = Section(
        "Which rows",
        "Which rows have which feature",
        (
            Chart(
                "activations",
                "Probability that a row has a feature.",
                "Rows with the same features are together.",
            ),
            Chart("per_row", "Features of a row.", "How many features each row has."),
            Chart("density", "How typical rows are.", "Rows far to the left are listed below."),
        ),
        "There are no features.",
    )
    trust: ClassVar[Section] = Section(
        "Unusual rows",
        "Rows that are least like the others",
        hint="Lowest log density under the model. Left unexplained: root mean square of the "
        "residual.",
    )

    @classmethod
    def settings_for(cls, *, table: bool) -> dict[str, Any]:
        """Columns of a table have different means; pixels and counts begin at zero."""
        return {"standardise": table}

    @classmethod
    def doubts(cls, columns: Sequence[str], X: Any) -> list[str]:
        """Columns of zeros and ones do not have Gaussian noise."""
        if sp.issparse(X):
            return []
        missing = np.isnan(X)
        one = np.max(X, axis=0, initial=0.0, where=~missing)  # numbers already have one unit
        binary = np.all((X == 0) | (X == one) | missing, axis=0)
        n_binary = int(np.sum(binary))
        if not n_binary:
            return []
        first = columns[int(np.argmax(binary))]
        return [
            f"{n_binary} of {len(binary)} columns hold only 0 and 1 (the first is "
            f"{first!r}): the model has Gaussian noise, finds a feature for nearly every "
            "category, and reports errors that look too good. Leave them out (--ignore), or "
            "predict one of them with `wideangle train moe`."
        ]

    # ---- components

    def vectors(self) -> np.ndarray:
        """Features as rows."""
        return np.asarray(self.model.components_, float)

    def panel_draws(self, classes: Sequence[Any] = ()) -> dict[str, np.ndarray]:
        """Features of some draws, matched to the components."""
        draws, index = self.model.chains_.draws, self.model.matched_.index
        chosen = evenly(len(draws), MATCHED_DRAWS)
        if len(chosen) < FEWEST_MATCHED:
            return {}
        found = np.full((len(chosen), *self.vectors().shape), np.nan)
        for s, i in enumerate(chosen):
            there = index[i] >= 0
            found[s, there] = draws[i].vectors[index[i][there]] * self.model.scaling_.scale
        return dict.fromkeys(self.panels(classes), found)

    def training_shares(self) -> np.ndarray:
        """Share of the training rows that have each feature."""
        return np.asarray(self.model.prevalence_)

    def activations(self, X: Any) -> np.ndarray:
        """Probability that a row has each feature."""
        return self.model.transform(X)

    def posterior_vectors(self, n_draws: int) -> Iterable[np.ndarray]:
        """Features of some draws that matter and match a component."""
        draws, index = self.model.chains_.draws, self.model.matched_.index
        return [draws[i].vectors[index[i][index[i] >= 0]] for i in evenly(len(draws), n_draws)]

    def prior_vectors(self, n_sets: int, seed: int) -> np.ndarray:
        """Directions from the prior; those of independent features are uniform."""
        angular = name_of(self.model.prior, PRIORS) == "mutual-angular"
        concentration = np.float32(self.model.concentration_ if angular else 0.0)
        prior = MutualAngular(*self.vectors().shape, concentration)
        return np.asarray(prior.sample(jax.random.key(seed), (n_sets,)))

    # ---- the fit

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.model.interrupted_

    def facts(self) -> list[tuple[str, str]]:
        """Names and values of the main results."""
        model, active = self.model, self.model.trace_.values["n_active"]
        prior = name_of(model.prior, PRIORS)
        rows = [
            ("prior, process", f"{prior}, {name_of(model.process, PROCESSES)}"),
            ("components", f"{model.n_components_}"),
            (
                "active features per draw",
                f"{active.mean():.1f} ({active.min():.0f} to {active.max():.0f})",
            ),
            ("noise scale", f"{model.noise_scale_:.4g}"),
            ("alpha", f"{model.alpha_:.3g}"),
        ]
        if prior == "mutual-angular":
            rows.append(("concentration", f"{model.concentration_:.3g}"))
        if model.n_components_ > 1:
            spread = model.diversity_
            mean, smallest = np.degrees([spread.mean_angle, spread.min_angle])
            words = f"mean {mean:.0f}°, smallest {smallest:.0f}°"
            rows.append(("angles between components", words))
        rows += self.chain_facts()
        if model.chains_.stacked is not None:
            shares = ", ".join(f"{share:.2f}" for share in model.chain_weights_)
            rows.append(
                ("weights of chains", f"{shares}, by stacking of entries hidden at the fit")
            )
        n_searches = len(model.start_objectives_)
        n_best = round(model.search_agreement_ * n_searches)
        rows.append(("searches that reached the best", f"{n_best} of {n_searches}"))
        rows.append(("features chains disagree on", f"{model.matched_.n_disputed}"))
        if self.interrupted:
            rows.append(("stopped early", "yes: the draws up to then are kept"))
        return rows

    # ---- rows

    def look(self, X: Any) -> dict[str, np.ndarray]:
        """Also reconstructions, and the density of the first rows."""
        n_scored = min(X.shape[0], MOST_SCORED)
        log_density = np.full(X.shape[0], np.nan)
        log_density[:n_scored] = self.model.score_samples(X[:n_scored])
        return super().look(X) | {
            "reconstruction": self.model.reconstruct(X).astype(np.float32),
            "log_density": log_density,
        }

    def score(self, rows: Scored) -> dict[str, Any]:
        """Scores of held-out rows, in units of the encoded columns.

        Returns
        -------
        dict
            ``log_likelihood`` per row (nats) with ``_error``, of the first :data:`MOST_SCORED`
            rows; ``reconstruction_error``, the root mean square over entries, and ``_of_mean``,
            that of the mean training row; ``hidden_error``, the same for entries predicted from
            the rest of their row, with ``_of_mean`` and ``n_hidden``.
        """
        model, X, mean_row = self.model, rows.X, rows.mean_row
        densities = model.score_samples(X[:MOST_SCORED])
        part = X[sampled_rows(*X.shape)]
        dense = as_dense(part, slice(None), np.float64)
        seen = ~np.isnan(dense)
        hidden = seen & (np.random.default_rng((rows.seed, 0x41DE)).random(dense.shape) < HIDDEN)
        result = {
            "n_scored": len(densities),
            "log_likelihood": float(densities.mean()),
            "log_likelihood_error": standard_error(densities),
            "reconstruction_error": _rms((model.reconstruct(part) - dense)[seen]),
            "reconstruction_error_of_mean": _rms((dense - mean_row)[seen]),
            "n_hidden": int(hidden.sum()),
        }
        if hidden.any():
            found = model.score_entries(part, hidden)
            result["hidden_error"] = _rms(found.mean - dense[hidden])
            result["hidden_error_of_mean"] = _rms((dense - mean_row)[hidden])
            result["hidden_log_density"] = float(np.mean(found.log_density))
        return result

    def predict(self, X: Any, classes: Sequence[Any]) -> dict[str, np.ndarray]:
        """Activations, log density, and the distance from the reconstruction."""
        size = max(1, CHUNK // X.shape[1])
        parts = [X[i : i + size] for i in range(0, X.shape[0], size)]
        gaps = [
            self.model.reconstruct(part) - as_dense(part, slice(None), np.float64) for part in parts
        ]
        return super().predict(X, classes) | {
            "log_density": self.model.score_samples(X),
            "error": np.concatenate([_rms_of_rows(gap) for gap in gaps]),
        }

    # ---- words

    def results(self, metrics: Mapping[str, Any]) -> list[Card]:
        """Likelihood and errors."""
        m, shown = metrics, []
        if "log_likelihood" in m:
            words = with_error(m, "log_likelihood", ".2f")
            shown.append(Card("Log-likelihood of a row", words, ""))
        for key, title in (
            ("reconstruction", "Reconstruction error"),
            ("hidden", "Hidden entries"),
        ):
            if f"{key}_error" in m:
                of_mean = f"column means: {m[f'{key}_error_of_mean']:.3f}"
                shown.append(Card(title, f"{m[f'{key}_error']:.3f}", of_mean))
        return shown

    def verdict(self, run: Run) -> str:
        """What rows are sums of, and the remaining error."""
        m, model = run.metrics, self.model
        plural = "" if model.n_components_ == 1 else "s"
        first = (
            f"{m['n_train']:,} rows of {len(run.columns):,} columns are sums of "
            f"{model.n_components_} feature{plural} and noise of scale {model.noise_scale_:.3g}."
        )
        if "reconstruction_error" in m:
            first += (
                f" Held-out rows are reconstructed with a root mean square error of "
                f"{m['reconstruction_error']:.3g}; the column means alone have "
                f"{m['reconstruction_error_of_mean']:.3g}."
            )
        return first

    def cards(self) -> list[Card]:
        """Features and noise."""
        model, active = self.model, self.model.trace_.values["n_active"].mean()
        return [
            Card("Features", f"{model.n_components_}", f"{active:.1f} active in a draw"),
            Card("Noise", f"{model.noise_scale_:.3g}", "standard deviation of an entry"),
        ]

    def cautions(self, run: Run) -> list[str]:
        """Warn if there are no features, or if only some draws or chains have one."""
        m, model = run.metrics, self.model
        if model.n_components_ == 0:
            return ["No feature is worth its cost: the rows look like noise around zero."]
        sentences = disagreements(model.start_objectives_, model.matched_.n_disputed, model.n_rows_)
        if model.n_components_ > model.n_features_in_:
            sentences.append(
                f"There are more features ({model.n_components_}) than columns "
                f"({model.n_features_in_}): on/off features then stand for amounts that vary, in "
                "many ways that fit equally well. Factor analysis describes such rows with fewer."
            )
        if "hidden_error" in m and m["hidden_error"] >= m["hidden_error_of_mean"]:
            sentences.append(
                "Hidden entries are predicted no better than by column means: the features "
                "describe single rows and not what rows have in common."
            )
        weak = [k + 1 for k, share in enumerate(self.model.presence_) if share < SETTLED]
        if weak:
            sentences.append(
                f"Missing from more than a tenth of the draws: {numbered('feature', weak)}. The "
                "data do not settle whether there is such a feature."
            )
        return sentences

    def purpose(self, run: Run, k: int) -> list[str]:
        """What a feature adds to the rows that have it, and how certain it is."""
        presence = float(self.model.presence_[k])
        sure = "every draw" if presence > 0.999 else f"{100 * presence:.0f} % of the draws"  # noqa: PLR2004
        return [*super().purpose(run, k), f"Found in {sure} of the chains."]

    def component_columns(self, run: Run) -> list[Column]:
        """Energy and presence."""
        energy = self.model.matched_.energy
        shares = energy / (float(np.sum(energy)) or 1.0)
        what = "Share of what all features add to the squared length of rows"
        draws = "Share of the draws that have it"
        return [
            Column("energy", shares.tolist(), "percent", what),
            Column("draws", self.model.presence_.tolist(), "percent", draws),
        ]

    def rows_to_look_at(self, run: Run) -> RowTable:
        """Rows of the lowest density."""
        sample = run.sample
        density, used = sample.values["log_density"], sample.values["activations"]
        finite = np.flatnonzero(np.isfinite(density))
        order = finite[np.argsort(density[finite], kind="stable")][:MOST_ROWS]
        missed = _rms_of_rows(
            as_dense(sample.X, order, np.float64) - sample.values["reconstruction"][order]
        )
        which = [np.flatnonzero(row > 0.5)[:12] + 1 for row in used[order]]  # noqa: PLR2004
        return RowTable(
            order,
            [
                Column("log density", density[order].tolist()),
                Column("left unexplained", missed.tolist()),
                Column("features", used[order].sum(axis=1).round(1).tolist()),
                Column("which", [" ".join(map(str, row)) for row in which], "text"),
            ],
        )


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _rms_of_rows(gap: np.ndarray) -> np.ndarray:
    """Root mean square of each row over its observed entries; NaN for a row without any."""
    seen = ~np.isnan(gap)
    squares = np.where(seen, gap**2, 0.0).sum(axis=1)
    n_seen = seen.sum(axis=1)
    return np.sqrt(np.where(n_seen > 0, squares / np.maximum(n_seen, 1), np.nan))
