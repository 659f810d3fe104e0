"""A fitted mixture of experts in words and arrays, for runs, plots, report and the command line."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment

from wideangle.mixture_of_experts.predict import thinned
from wideangle.mixture_of_experts.sampling import MAX_TIME, N_WARMUP
from wideangle.presentation.classifier import ClassifierPresentation
from wideangle.presentation.family import (
    CLEAR,
    FEWEST_MATCHED,
    INTERCEPT,
    MATCHED_DRAWS,
    Presentation,
    interval_of,
    share_interval,
    where_missing,
)
from wideangle.presentation.records import (
    LENGTH,
    Card,
    Chart,
    Column,
    Option,
    RowTable,
    Run,
    Section,
    prior_options,
    sampling_options,
)
from wideangle.presentation.regressor import RegressorPresentation
from wideangle.settings import INFERENCES, MOST, PRIORS, name_of

UNUSED = 0.01
"""Experts with less than this share of the rows are idle."""
GATE, MEAN, NOISE = "choose it", "raise the prediction", "raise the noise"
"""What large weights do, in words: of the gate, and of the mean and noise of a quantity."""
TABLES = """Categories become 0/1 columns, missing values are replaced and marked, and a note
    reports it. Ctrl-C keeps the draws so far: the same command with `--resume` continues.
    """
_DOUBT = 0.05
"""Least share of unreliable leave-one-out scores that is mentioned."""
ENOUGH = 1.5
"""Mean number of experts in use below which one is enough."""


def options_of(gains: str, more: Option) -> tuple[Option, ...]:
    """Options of the command line, with one more about the target."""
    return (
        Option("--experts", "n_experts", int, "Number of experts.", "5", least=1, most=MOST),
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


class ExpertPresentation(Presentation):
    """Experts, chosen by a gate; subclasses define what they predict."""

    title: ClassVar[str] = "mixture of experts"
    noun: ClassVar[str] = "expert"
    alone: ClassVar[str]
    """Name of a model with one expert for all rows."""
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
        "Where each is used",
        "Where each expert is used",
        (
            Chart(
                "map",
                "Rows in the colour of the expert that leads.",
                "The chosen expert stands out. Click a name to hide it.",
            ),
        ),
        "There is one expert, and it is used for every row.",
    )

    @classmethod
    def resumes(cls, model: Any) -> bool:
        """A maximisation is short, and has no checkpoint."""
        return name_of(model.inference, INFERENCES) != "map"

    # ---- components

    def vectors(self) -> np.ndarray:
        """Experts as rows, the outputs of an expert one after the other."""
        found = np.asarray(self.model._representative.experts, float)
        return found.reshape(len(found), -1)

    def entry_names(self, names: Sequence[str] | None = None) -> list[str]:
        """Columns, indicators of missing entries, and the intercept."""
        found, filling = super().entry_names(names), self.model.filling_
        flagged = () if filling is None else filling.flagged
        found += [where_missing(found[i]) for i in flagged]
        return [*found, INTERCEPT]

    def panels(self, classes: Sequence[Any] = ()) -> dict[str, np.ndarray]:
        """With the weights of the gate."""
        return self.weights(classes) | {GATE: self._gate_contrast()}

    def panel_draws(self, classes: Sequence[Any] = ()) -> dict[str, np.ndarray]:
        """Weights in some draws, each with its experts in the order of those shown."""
        draws = thinned(self.model.posterior_, MATCHED_DRAWS)
        if len(draws.gate) < FEWEST_MATCHED:
            return {}
        gates = np.asarray(draws.gate - draws.gate.mean(axis=1, keepdims=True), float)
        experts = np.asarray(draws.experts, float)
        goal = np.concatenate([self._gate_contrast(), self.vectors()], axis=1)
        for s in range(len(gates)):
            found = np.concatenate([gates[s], experts[s].reshape(len(goal), -1)], axis=1)
            # Experts are numbered differently from chain to chain: take the closest pairs.
            order = linear_sum_assignment(goal @ found.T, maximize=True)[1]
            gates[s], experts[s] = gates[s, order], experts[s, order]
        tables = [self.in_units(experts[:, :, o], o) for o in range(experts.shape[2])]
        return dict(zip(self.panels(classes), [*tables, gates], strict=True))

    def in_units(self, weights: np.ndarray, output: int) -> np.ndarray:
        """Weights of an output of the experts, (..., p), in displayed units."""
        return weights

    def _gate_contrast(self) -> np.ndarray:
        """Gate weights minus their mean, (K, p): adding one vector to all changes nothing."""
        gates = np.asarray(self.model.gates_, float)
        return gates - gates.mean(axis=0)

    def activations(self, X: Any) -> np.ndarray:
        """Probability that the gate chooses each expert."""
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

    def facts(self) -> list[tuple[str, str]]:
        """Names and values of the main results."""
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

    @abstractmethod
    def about_target(self) -> tuple[str, str]:
        """What is predicted."""

    def _prior_name(self) -> str:
        prior = self.model.prior
        if isinstance(prior, tuple):
            return " (gate) and ".join(map(_prior_in_words, prior)) + " (experts)"
        return _prior_in_words(prior)

    def _inference_name(self) -> str:
        return name_of(self.model.inference, INFERENCES)

    # ---- words

    def verdict(self, run: Run) -> str:
        """Number of experts, and how well they predict."""
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
        """Also about one expert for nearly all rows, and what a maximum leaves out."""
        sentences = super().cautions(run)
        if self.shares(run.sample).min() < UNUSED and self.model.n_used_ < ENOUGH:
            sentences.append(
                f"One expert answers for nearly all rows: a single {self.alone} is enough for them."
            )
        if self._inference_name() == "map":
            sentences.append(
                "The weights are the most probable ones alone (inference 'map'): uncertainty about "
                "them is not part of the predictions, and there are no chains to check."
            )
        return sentences

    def purpose(self, run: Run, k: int) -> list[str]:
        """When an expert is used, and what it predicts then."""
        if self.shares(run.sample)[k] < UNUSED:
            return ["Used for fewer than 1 % of these rows: too few to say what it is for."]
        names, marks = self.entry_names(run.columns), run.frame.indicators
        *tables, gate = (table[k] for table in self._clear)
        sentences = []
        if self.model.n_experts > 1 and (when := strongest(gate, names, marks)):
            sentences.append(f"Used where {when}.")
        says = dict(zip(self.weights(run.frame.classes), tables, strict=True))
        for title in self.telling(says):
            if reasons := strongest(says[title], names, marks):
                sentences.append(f"{self.in_words(title)} where {reasons}.")
        if not sentences:
            sentences.append("No column has a clear effect: every interval contains zero.")
        return sentences

    @cached_property
    def _clear(self) -> list[np.ndarray]:
        """The weights of :meth:`panels`, with 0 where the interval contains zero."""
        found = [interval_of(draws) for draws in self.panel_draws().values()]
        found = found or [np.stack([table] * 3) for table in self.panels().values()]
        return [np.where((low > 0) | (high < 0), middle, 0.0) for low, middle, high in found]

    def telling(self, says: Mapping[str, np.ndarray]) -> list[str]:
        """The tables of weights that are described in words."""
        return [max(says, key=lambda name: np.abs(says[name]).max())]

    @abstractmethod
    def in_words(self, title: str) -> str:
        """Start of a sentence: what an expert does where the weights of a table are large."""

    # ---- accuracy of each expert

    measure: ClassVar[tuple[str, str, str]]
    """Of :meth:`success`: heading of its column, form of its numbers, and what it is."""

    @abstractmethod
    def success(self, run: Run, led: np.ndarray) -> float:
        """Accuracy of the model on some rows of the sample."""

    def note(self, value: float, n_led: int) -> str:
        """On how many rows an expert has most weight, and how sure its accuracy there is."""
        return f"of {n_led} row{'' if n_led == 1 else 's'}"

    def _success(self, run: Run, k: int) -> tuple[float, int]:
        """Success on the rows where an expert has most weight, and their number."""
        led = np.argmax(run.sample.values["activations"], axis=1) == k
        n_led = int(led.sum()) if run.sample.y is not None else 0
        return (self.success(run, led), n_led) if n_led else (np.nan, 0)

    def component_columns(self, run: Run) -> list[Column]:
        """Accuracy of each expert where it has most weight."""
        found = [self._success(run, k) for k in range(self.model.n_experts)]
        values = [value if n else None for value, n in found]
        title, form, hint = self.measure
        notes = [self.note(value, n) if n else "" for value, n in found]
        return [Column(title, values, form, hint, notes)]

    @abstractmethod
    def epistemic(self, X: Any) -> np.ndarray:
        """Uncertainty of each row that more data would remove."""

    def look(self, X: Any) -> dict[str, np.ndarray]:
        """With the part of the uncertainty that more data would remove."""
        return super().look(X) | {"epistemic": self.epistemic(X)}

    def predict(self, X: Any, classes: Sequence[Any]) -> dict[str, np.ndarray]:
        """With the same part."""
        return super().predict(X, classes) | {"epistemic": self.epistemic(X)}

    @abstractmethod
    def epistemic_share(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Part of the uncertainty of each row of a sample that more data would remove."""

    def rows_to_look_at(self, run: Run) -> RowTable | None:
        """The most uncertain rows, and which expert has most weight there."""
        table, values = super().rows_to_look_at(run), run.sample.values
        assert table is not None  # of classifiers and regressors
        share = self.epistemic_share(values)[table.order].tolist()
        leader = np.argmax(values["activations"], axis=1)[table.order] + 1
        table.columns.append(Column("epistemic share", share, "percent"))
        table.columns.append(Column("expert", leader.tolist()))
        return table


class ClassExpertPresentation(ExpertPresentation, ClassifierPresentation):
    """Experts that predict a class."""

    help: ClassVar[str] = (
        """Learn to predict a column: a mixture of experts with calibrated probabilities.

    Example: `wideangle train moe patients.csv --target diagnosis -o run`, then
    `wideangle predict run new.csv -o predicted.csv` and `wideangle report run`.

    """
        + TABLES
    )
    alone: ClassVar[str] = "logistic regression"
    options: ClassVar[tuple[Option, ...]] = options_of(
        "best probabilities",
        Option("--balanced", "class_weight", bool, "Weigh all classes alike.", value="balanced"),
    )
    measure: ClassVar[tuple[str, str, str]] = (
        "right",
        "percent",
        "Share of right answers where it has most weight, with its 95 % interval",
    )
    trust: ClassVar[Section] = ClassifierPresentation.trust._replace(
        hint="Uncertainty in nats. The epistemic part is what more data would remove; the rest is "
        "noise in the classes themselves."
    )

    def weights(self, classes: Sequence[Any] = ()) -> dict[str, np.ndarray]:
        """For the second of two classes, or for every class."""
        found = np.asarray(self.model.experts_, float)
        labels = list(classes) or list(self.model.classes_)
        tables = [found] if found.ndim == 2 else list(np.moveaxis(found, 1, 0))  # noqa: PLR2004
        shown = labels[-len(tables) :]
        return {f"predict {c}": table for c, table in zip(shown, tables, strict=True)}

    def in_words(self, title: str) -> str:
        """It predicts a class."""
        return title.replace("predict", "Predicts", 1)

    def about_target(self) -> tuple[str, str]:
        """The first classes."""
        return "classes", ", ".join(str(c) for c in self.model.classes_[:8])

    def epistemic(self, X: Any) -> np.ndarray:
        """Part of the entropy."""
        return self.model.predict_uncertainty(X).epistemic

    def success(self, run: Run, led: np.ndarray) -> float:
        """Share of correct predictions."""
        right = np.argmax(run.sample.values["proba"], axis=1) == run.sample.y
        return float(right[led].mean())

    def note(self, value: float, n_led: int) -> str:
        """With the interval of a share."""
        low, high = share_interval(value * n_led, n_led)
        return f"{super().note(value, n_led)}; {100 * low:.0f} to {100 * high:.0f} %"

    def epistemic_share(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Of entropies."""
        return values["epistemic"] / np.maximum(values["total"], 1e-12)


class QuantityExpertPresentation(ExpertPresentation, RegressorPresentation):
    """Experts that predict a quantity."""

    help: ClassVar[str] = (
        """Learn to predict a quantity: a mixture of experts with calibrated intervals.

    Example: `wideangle train regression houses.csv --target price -o run`, then
    `wideangle predict run new.csv -o predicted.csv` and `wideangle report run`.

    """
        + TABLES
    )
    alone: ClassVar[str] = "linear regression"
    options: ClassVar[tuple[Option, ...]] = options_of(
        "best intervals",
        Option(
            "--min-noise", "min_noise", float,
            "Least noise of an expert, in standard deviations of the target.", "0.01",
            least=1e-4, most=1.0,
        ),
    )  # fmt: skip
    measure: ClassVar[tuple[str, str, str]] = (
        "error",
        "number",
        "Root mean squared error where it has most weight",
    )

    def weights(self, classes: Sequence[Any] = ()) -> dict[str, np.ndarray]:
        """Of the mean and of the noise."""
        return {MEAN: np.asarray(self.model.experts_), NOISE: np.asarray(self.model.noises_)}

    def in_units(self, weights: np.ndarray, output: int) -> np.ndarray:
        """As ``experts_`` and ``noises_`` are."""
        return self.model._in_target_units(weights, output)

    def panels(self, classes: Sequence[Any] = ()) -> dict[str, np.ndarray]:
        """Without the intercept of the mean: next to it the other bars would be too short."""
        found = super().panels(classes)
        columns = np.array(self.entry_names()) != INTERCEPT
        return found | {MEAN: np.where(columns, found[MEAN], np.nan)}

    def component_columns(self, run: Run) -> list[Column]:
        """The intercept has a column instead."""
        hint = "Its prediction where all columns are at their mean, and 0/1 columns at 0"
        level = Column("level", self.model.experts_[:, -1].tolist(), "number", hint)
        return [level, *super().component_columns(run)]

    def telling(self, says: Mapping[str, np.ndarray]) -> list[str]:
        """Both."""
        return [MEAN, NOISE]

    def in_words(self, title: str) -> str:
        """It predicts higher values, or with more noise."""
        return "Predicts higher values" if title == MEAN else "Has more noise"

    def about_target(self) -> tuple[str, str]:
        """Mean and standard deviation."""
        units = self.model.target_scaling_
        return "target", f"mean {units.shift:.4g}, standard deviation {units.scale:.4g}"

    def epistemic(self, X: Any) -> np.ndarray:
        """Standard deviation."""
        return np.sqrt(self.model.predict_uncertainty(X).epistemic)

    def success(self, run: Run, led: np.ndarray) -> float:
        """Root mean squared error."""
        square = (run.sample.values["prediction"] - run.sample.y)[led] ** 2
        return float(np.sqrt(square.mean()))

    def epistemic_share(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Of variances."""
        return (values["epistemic"] / np.maximum(values["spread"], 1e-300)) ** 2


def _stacking_in_words(model: Any) -> str:
    """Weights of chains in predictions, and how they were found."""
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
    """``a is high, b is low`` from weights; the intercept is left out."""
    known = [i for i, name in enumerate(names) if name != INTERCEPT]
    order = sorted(known, key=lambda i: -abs(values[i]))
    largest = abs(values[order[0]]) if order else 0.0
    words = []
    for i in order[:most]:
        if abs(values[i]) <= CLEAR * largest:
            break
        high = values[i] > 0
        if names[i] in marks:  # such as ``colour = red``
            words.append(names[i] if high else _not(names[i]))
        else:
            words.append(f"{names[i]} is {'high' if high else 'low'}")
    return ", ".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} and {words[-1]}"  # noqa: PLR2004


def _not(indicator: str) -> str:
    """``colour is not red`` for ``colour = red``."""
    name, _, value = indicator.partition(" = ")
    return f"{name} is not {value}"
