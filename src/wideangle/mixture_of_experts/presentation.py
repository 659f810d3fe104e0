"""A fitted mixture of experts in words and arrays, for runs, plots, report and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from wideangle.mixture_of_experts.predict import thinned
from wideangle.mixture_of_experts.sampling import MAX_TIME, N_WARMUP
from wideangle.presentation.family import CLEAR, INTERCEPT, Presentation, numbered
from wideangle.presentation.records import (
    LENGTH,
    Card,
    Chart,
    Option,
    Run,
    Section,
    prior_options,
    sampling_options,
)
from wideangle.settings import INFERENCES, PRIORS, name_of

UNUSED = 0.01
"""Experts with less than this share of the rows are idle."""
_DOUBT = 0.05
"""Share of unreliable leave-one-out scores from which on they are mentioned."""
ENOUGH = 1.5
"""Mean number of experts in use below which one is enough."""


class ExpertPresentation(Presentation):
    """Experts, asked by a gate; what they say is up to the class beside this one."""

    title: ClassVar[str] = "mixture of experts"
    noun: ClassVar[str] = "expert"
    alone: ClassVar[str]
    """What one expert for all rows would be."""
    words: ClassVar[Mapping[str, str]] = {
        "log_lik": "log-likelihood",
        "n_used": "experts in use",
        "mean_angle": "mean angle, radians",
        "probability": "probability at watched row",
        "prediction": "prediction at watched row",
        "spread": "spread at watched row",
        "gate_scale": "scale of the gate",
        "experts_scale": "scale of the deviations of experts",
        "common_scale": "scale of the common expert",
    }
    max_time: ClassVar[float] = MAX_TIME
    counted: ClassVar[str] = "n_used"
    where: ClassVar[Section] = Section(
        "Where each is asked",
        "Where each expert is asked",
        (
            Chart(
                "map",
                "Rows in the colour of the expert that leads.",
                "The chosen expert stands out. Click a name to hide it.",
            ),
        ),
        "There is one expert, and it is always asked.",
    )

    @classmethod
    def resumes(cls, model: Any) -> bool:
        """A maximisation is over soon, and has no checkpoint."""
        return name_of(model.inference, INFERENCES) != "map"

    # ---- components

    def vectors(self) -> np.ndarray:
        """Experts as rows, the outputs of an expert one after the other."""
        found = np.asarray(self.model._representative.experts, float)
        return found.reshape(len(found), -1)

    def entry_names(self, names: Sequence[str] | None = None) -> list[str]:
        """Columns, and the intercept."""
        return super().entry_names(names) + [INTERCEPT] * bool(self.model.fit_intercept)

    def panels(self, classes: Sequence[Any] = ()) -> dict[str, np.ndarray]:
        """With the weights of the gate."""
        return self.weights(classes) | {"makes the gate ask it": self._gate_contrast()}

    def _gate_contrast(self) -> np.ndarray:
        """Weights of the gate minus their mean, (K, p): one vector added to all changes nothing."""
        gates = np.asarray(self.model.gates_, float)
        return gates - gates.mean(axis=0)

    def activations(self, X: Any) -> np.ndarray:
        """Probability that the gate asks each expert."""
        return self.model.gate_proba(X)

    def posterior_vectors(self, n_draws: int) -> Iterable[np.ndarray]:
        """Experts of some draws."""
        experts = np.asarray(thinned(self.model.posterior_, n_draws).experts)
        return experts.reshape(*experts.shape[:2], -1)

    def prior_vectors(self, n_sets: int, seed: int) -> np.ndarray:
        """Sets of experts from the prior, as it was learned."""
        prior = self.model.priors_.experts
        prior = getattr(prior, "directions", prior)  # lengths change no angle
        return np.asarray(prior.sample(jax.random.key(seed), (n_sets,)))

    # ---- the fit

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return bool(self.model.notes_.get("interrupted"))

    def facts(self) -> list[tuple[str, str]]:
        """Name and value of what a user wants to know first."""
        model, spread = self.model, self.model.diversity_
        rows = [
            self.about_target(),
            ("prior, inference", f"{self._prior_name()}, {self._inference_name()}"),
            ("experts in use", f"{model.n_used_:.1f} of {model.n_experts}"),
        ]
        if model.n_experts > 1:
            mean, smallest = np.degrees([spread.mean_angle, spread.min_angle])
            rows.append(("angles between experts", f"mean {mean:.0f}°, smallest {smallest:.0f}°"))
            rows.append(("effective directions", f"{spread.effective_directions:.1f}"))
        rows += self.chain_facts()
        if "stacking" in model.notes_:
            rows.append(("weights of chains", _stacking_in_words(model)))
        if "elbo" in model.notes_:
            pairs = zip(model.notes_["elbo"], model.notes_["elbo_error"], strict=True)
            rows.append(("ELBO of each start", ", ".join(f"{e:.1f} ± {s:.1f}" for e, s in pairs)))
            rows.append(("temperature", f"{model.notes_['temperature']:.2f}"))
        if self.interrupted:
            rows.append(("stopped early", "yes: the draws up to then are kept"))
        return rows

    def about_target(self) -> tuple[str, str]:
        """What is predicted."""
        raise NotImplementedError

    def _prior_name(self) -> str:
        prior = self.model.prior
        if isinstance(prior, tuple):
            return " (gate) and ".join(map(_prior_in_words, prior)) + " (experts)"
        return _prior_in_words(prior)

    def _inference_name(self) -> str:
        return name_of(self.model.inference, INFERENCES)

    # ---- words

    def verdict(self, run: Run) -> str:
        """How many experts there are, and how well they do."""
        model = self.model
        target = run.frame.target.name if run.frame.target else "the target"
        experts = f"{model.n_experts:,} expert{'s predict' if model.n_experts > 1 else ' predicts'}"
        columns = f"{len(run.columns):,} column{'s' if len(run.columns) > 1 else ''}"
        first = f"{experts} “{target}” from {columns}; {model.n_used_:.1f} are in use."
        return first + self.verdict_on_scores(run.metrics)

    def cards(self) -> list[Card]:
        """Experts in use."""
        return [Card("Experts in use", f"{self.model.n_used_:.1f}", f"of {self.model.n_experts}")]

    def cautions(self, run: Run) -> list[str]:
        """Also about experts that are never asked, and what a maximum leaves out."""
        sentences = super().cautions(run)
        shares = self.shares(run.sample)
        idle = [k + 1 for k, share in enumerate(shares) if share < UNUSED]
        if idle and self.model.n_used_ < ENOUGH:
            sentences.append(
                f"One expert answers for nearly all rows: a single {self.alone} is enough for them."
            )
        elif idle:
            sentences.append(
                f"Asked in fewer than 1 % of these rows: {numbered('expert', idle)}. Fewer experts "
                "may do as well."
            )
        if self._inference_name() == "map":
            sentences.append(
                "The weights are the most probable ones alone (inference 'map'): uncertainty about "
                "them is not part of the predictions, and there are no chains to check."
            )
        return sentences

    def purpose(self, run: Run, k: int) -> list[str]:
        """When an expert is asked, and what it says then."""
        names, marks = self.entry_names(run.columns), run.frame.indicators
        sentences = []
        if self.model.n_experts > 1 and (when := strongest(self._gate_contrast()[k], names, marks)):
            sentences.append(f"Asked where {when}.")
        says = {title: table[k] for title, table in self.weights(run.frame.classes).items()}
        for title in self.telling(says):
            if reasons := strongest(says[title], names, marks):
                sentences.append(f"{title[0].upper()}{title[1:]} where {reasons}.")
        led = np.argmax(run.sample.values["activations"], axis=1) == k
        return sentences + (self.record(run, led) if run.sample.y is not None else [])

    def telling(self, says: Mapping[str, np.ndarray]) -> list[str]:
        """Those of the tables of weights that are put into words."""
        return [max(says, key=lambda name: np.abs(says[name]).max())]

    def record(self, run: Run, led: np.ndarray) -> list[str]:
        """How well an expert did on the rows that it led."""
        raise NotImplementedError


def options_of(gains: str, more: Option) -> tuple[Option, ...]:
    """Options of the command line, with one more that is about the target."""
    return (
        Option("--experts", "n_experts", int, "Number of experts.", "5", least=1),
        *prior_options("weights", "0.2", ("mutual-angular", "vmf", "gaussian", "dpp")),
        Option(
            "--inference", "inference", str,
            f"mcmc: draws, {gains}; vi: many rows; map: a quick look.", "mcmc",
            ("mcmc", "vi", "map"),
        ),
        more,
        *sampling_options(N_WARMUP, "as many as predictions need", 1, f"{MAX_TIME:.0f}"),
        Option(
            "--passes", "inference__n_passes", int, "vi and map: passes through the rows.",
            least=1, panel=LENGTH,
        ),
        Option(
            "--starts", "inference__n_starts", int, "vi and map: independent starts.", "4 and 8",
            least=1, panel=LENGTH,
        ),
    )  # fmt: skip


def _stacking_in_words(model: Any) -> str:
    """Weights of chains in predictions, and what they rest on."""
    made = model.notes_["stacking"]
    shares = ", ".join(f"{share:.2f}" for share in model.chain_weights_)
    words = f"{shares}, by stacking: leave-one-out scores of {made['n_rows']:,} training rows"
    doubt = made["unreliable"]
    return words + (f", {100 * doubt:.0f} % of them unreliable" if doubt >= _DOUBT else "")


def _prior_in_words(prior: Any) -> str:
    name = name_of(prior, PRIORS)
    return name if name in PRIORS else "a prior object"


def strongest(
    values: np.ndarray, names: Sequence[str], marks: frozenset[str] = frozenset(), most: int = 3
) -> str:
    """``a is high, b is low`` from weights; the intercept says nothing about a row."""
    known = [i for i, name in enumerate(names) if name != INTERCEPT]
    order = sorted(known, key=lambda i: -abs(values[i]))
    largest = abs(values[order[0]]) if order else 0.0
    words = []
    for i in order[:most]:
        if abs(values[i]) <= CLEAR * largest:
            break
        high = values[i] > 0
        if names[i] in marks:  # such as ``colour = red``
            words.append(names[i] if high else f"not {names[i]}")
        else:
            words.append(f"{names[i]} is {'high' if high else 'low'}")
    return ", ".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} and {words[-1]}"  # noqa: PLR2004
