"""Fitted clusters in words and arrays, for runs, plots, report and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from wideangle.posterior import evenly
from wideangle.presentation.family import (
    MOST_ROWS,
    Presentation,
    listed,
    standard_error,
    with_error,
)
from wideangle.presentation.records import (
    LENGTH,
    Card,
    Chart,
    Column,
    Option,
    RowTable,
    Run,
    Scored,
    Section,
    prior_options,
    sampling_options,
)
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.settings import INFERENCES, MOST, PRIORS, name_of
from wideangle.sphere.vmf import log_area, mean_resultant
from wideangle.spherical_mixture.predict import states_of
from wideangle.spherical_mixture.sampling import MAX_TIME, N_WARMUP
from wideangle.spherical_mixture.task import COSINE, INFINITE, kind_of

MOST_WORDS = 6


class ClusterPresentation(Presentation):
    """Clusters of directions."""

    title: ClassVar[str] = "clusters of directions"
    noun: ClassVar[str] = "cluster"
    help: ClassVar[
        str
    ] = """Sort rows into clusters by their direction: embeddings, words, anything compared by \
cosine.

    Example: `wideangle train clusters documents.npz -o run`, then
    `wideangle predict run new.npz -o clusters.csv` and `wideangle report run`.

    Rows are divided by their length. A number of clusters that is too large does little harm.
    """
    words: ClassVar[Mapping[str, str]] = {
        "log_lik": "log-likelihood",
        "density": "log density of watched row",
        "n_used": "clusters in use",
        "alpha": "mass of the weights (alpha)",
        "concentration": "mean concentration",
        "bound": "bound on the log evidence",
    }
    max_time: ClassVar[float] = MAX_TIME
    in_modes: ClassVar[str] = (
        "similarity and score_samples average over all of them, and labels_ are those of one"
    )
    alike: ClassVar[float] = 0.0  # a cluster may be much narrower than any angle of centres
    counted: ClassVar[str] = "n_used"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "--clusters", "n_components", int, "Largest number of clusters.", "50",
            least=1, most=MOST,
        ),
        Option(
            "--infinite", "n_components", bool, "Learn the number of clusters.",
            value="infinite",
        ),
        *prior_options("centres", str(COSINE), ("mutual-angular", "vmf")),
        Option(
            "--inference", "inference", str,
            "map: the most probable clusters; mcmc: draws; vi: many rows, with uncertainty.",
            "map", ("map", "mcmc", "vi"),
        ),
        *sampling_options(N_WARMUP, "as many as predictions need", 1, f"{MAX_TIME:.0f}")[:-1],
        Option(
            "--passes", "inference__n_passes", int, "map and vi: passes through the rows.",
            "until nothing changes", least=1, panel=LENGTH,
        ),
        Option(
            "--starts", "inference__n_starts", int, "map and vi: independent starts.", "8 and 4",
            least=1, panel=LENGTH,
        ),
    )  # fmt: skip
    where: ClassVar[Section] = Section(
        "Which rows",
        "Which rows belong to which cluster",
        (
            Chart(
                "activations",
                "Probability that a row belongs to a cluster.",
                "Rows of one cluster are together.",
            ),
            Chart("density", "How typical rows are.", "Rows far to the left are listed below."),
        ),
        "There is one cluster.",
    )
    trust: ClassVar[Section] = Section(
        "Unusual rows",
        "Rows that are least like the others",
        hint="Lowest log density, relative to random directions: below 0 a row fits no cluster. "
        "The probability is that of its cluster.",
    )

    @classmethod
    def resumes(cls, model: Any) -> bool:
        """Fits are short and have no checkpoint."""
        return False

    # ---- components

    def vectors(self) -> np.ndarray:
        """Centres as rows."""
        return np.asarray(self.model.cluster_centers_, float)

    def training_shares(self) -> np.ndarray:
        """Weights of the clusters."""
        return np.asarray(self.model.weights_)

    def weights(self, classes: Sequence[Any] = ()) -> dict[str, np.ndarray]:
        """Centres."""
        return {"points towards": self.vectors()}

    def activations(self, X: Any) -> np.ndarray:
        """Probability that a row belongs to each cluster."""
        return self.model.predict_proba(X)

    def posterior_vectors(self, n_draws: int) -> Iterable[np.ndarray]:
        """Centres of some draws."""
        if self.model.posterior_ is None:
            return [self.vectors()]
        states = states_of(self.model.posterior_)
        chosen = [states[i] for i in evenly(len(states), n_draws)]
        return [np.asarray(state.directions[state.weights > 0], float) for state in chosen]

    def prior_vectors(self, n_sets: int, seed: int) -> np.ndarray:
        """Centres from the prior."""
        model = self.model
        kind = kind_of(model.choice("prior"), model.choice("inference"))
        prior = MutualAngular(*self.vectors().shape, np.float32(model.strength_), kind)
        return np.asarray(prior.sample(jax.random.key(seed), (n_sets,)))

    # ---- the fit

    @property
    def _inference(self) -> str:
        return name_of(self.model.inference, INFERENCES)

    @property
    def _most(self) -> int | None:
        """Largest number of clusters, if there is one."""
        if self.model.n_components != "infinite":
            return self.model.n_components
        return INFINITE if self.model.posterior_ is None else None

    @property
    def _limit(self) -> str:
        return "no limit" if self._most is None else f"of {self._most}"

    def facts(self) -> list[tuple[str, str]]:
        """Names and values of the main results."""
        model, spread = self.model, self.model.diversity_
        kappas = np.asarray(model.concentrations_)
        rows = [
            ("clusters in use", f"{model.n_used_:.4g} ({self._limit})"),
            ("prior, inference", f"{name_of(model.prior, PRIORS)}, {self._inference}"),
            ("concentrations", f"{kappas.min():.4g} to {kappas.max():.4g}"),
            ("alpha", f"{model.alpha_:.3g}"),
            ("expected cosine to a centre", f"{model.tightness_:.2f}"),
        ]
        if len(kappas) > 1:
            mean, smallest = np.degrees([spread.mean_angle, spread.min_angle])
            rows.append(("angles between centres", f"mean {mean:.0f}°, smallest {smallest:.0f}°"))
        if model.posterior_ is None:
            rows.append(("passes, bound", f"{model.n_iter_}, {model.notes_['bound']:.1f}"))
        rows += self.chain_facts()
        if self.interrupted:
            rows.append(("stopped early", "yes: what was found up to then is kept"))
        return rows

    # ---- rows

    def look(self, X: Any) -> dict[str, np.ndarray]:
        """Also log densities, relative to uniform directions."""
        return super().look(X) | {"log_density": self._log_density(X)}

    def _log_density(self, X: Any) -> np.ndarray:
        return self.model.score_samples(X) + log_area(X.shape[1])

    def score(self, rows: Scored) -> dict[str, Any]:
        """``log_density`` of held-out rows (nats, relative to uniform) with ``_error``."""
        found = self._log_density(rows.X)
        return {"log_density": float(found.mean()), "log_density_error": standard_error(found)}

    def predict(self, X: Any, classes: Sequence[Any]) -> dict[str, np.ndarray]:
        """The cluster, its probability, and the row's log density."""
        proba = self.activations(X)
        return {
            "cluster": np.argmax(proba, axis=1) + 1,
            "probability": proba.max(axis=1),
            "log_density": self._log_density(X),
        }

    # ---- words

    def results(self, metrics: Mapping[str, Any]) -> list[Card]:
        """Likelihood of held-out rows."""
        if "log_density" not in metrics:
            return []
        words = with_error(metrics, "log_density", ".2f")
        return [Card("Log density of a row", words, "random directions: 0")]

    def verdict(self, run: Run) -> str:
        """Number of clusters, and how much they explain."""
        used, columns = self.model.n_used_, len(run.columns)
        plural = "" if round(used) == 1 else "s"
        first = f"{run.metrics['n_train']:,} rows of {columns:,} columns in {used:.4g} cluster"
        first += f"{plural}."
        if "log_density" in run.metrics:
            gain = run.metrics["log_density"]
            first += (
                f" The log density of a held-out row is {gain:.2f} above that of random directions."
            )
        return first

    def cards(self) -> list[Card]:
        """Clusters in use."""
        return [Card("Clusters in use", f"{self.model.n_used_:.4g}", self._limit)]

    def cautions(self, run: Run) -> list[str]:
        """Warnings about clusters that explain nothing, and what a maximum leaves out."""
        sentences = []
        if run.metrics.get("log_density", 1.0) <= 0:
            sentences.append(
                "Held-out rows are no more likely than random directions: the clusters describe "
                "the training rows and not what rows have in common."
            )
        if self._most == round(self.model.n_used_):
            sentences.append("All clusters are in use: more may describe the rows better.")
        if self.model.posterior_ is None:
            sentences.append(
                f"These are the clusters of one fit (inference '{self._inference}'): "
                "'mcmc' shows how certain the partition is."
            )
        return sentences

    def purpose(self, run: Run, k: int) -> list[str]:
        """Which columns its rows have more of than others."""
        centres = self.vectors()
        beside = centres[k] - self.model.weights_ @ centres
        words = listed(beside, self.entry_names(run.columns), MOST_WORDS)
        return [f"More than others: {words}."] if words else []

    def component_columns(self, run: Run) -> list[Column]:
        """How tight clusters are, as the expected cosine of a row to the centre."""
        cosines = mean_resultant(np.asarray(self.model.concentrations_), len(run.columns))
        what = "Expected cosine of a row to the centre"
        kappas = [f"concentration {kappa:.4g}" for kappa in self.model.concentrations_]
        return [Column("cosine", np.asarray(cosines).tolist(), "number", what, kappas)]

    def rows_to_look_at(self, run: Run) -> RowTable:
        """Rows of the lowest density."""
        values = run.sample.values
        order = np.argsort(values["log_density"], kind="stable")[:MOST_ROWS]
        used = values["activations"][order]
        return RowTable(
            order,
            [
                Column("log density", values["log_density"][order].tolist()),
                Column("cluster", (np.argmax(used, axis=1) + 1).tolist()),
                Column("probability", used.max(axis=1).tolist(), "percent"),
            ],
        )
