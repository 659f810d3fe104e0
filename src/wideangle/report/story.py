"""What the page says first: the verdict, the cards, and what to mind, in plain words."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wideangle.diagnostics import RHAT_LIMIT, show_rhat
from wideangle.plots import numbers
from wideangle.report.parts import shares_of
from wideangle.runs.folder import Run

ALIKE = 25.0
"""Degrees below which two components say nearly the same."""
UNUSED = 0.01
LARGE_GAP = 0.1
MOST_PAIRS = 3


class Card(NamedTuple):
    """One number with what to compare it to."""

    title: str
    value: str
    note: str


def count(n: int, word: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def verdict(run: Run) -> str:
    """The run in two sentences."""
    m, model = run.metrics, run.model
    if run.kind == "moe":
        target = run.frame.target.name if run.frame.target else "the target"
        first = (
            f"{count(model.n_experts, 'expert')} predict “{target}” from "
            f"{count(len(run.columns), 'column')}; {model.n_used_:.1f} are in use."
        )
        if "accuracy" in m:
            first += (
                f" On {count(m['n_test'], 'row')} held out they are right "
                f"{100 * m['accuracy']:.1f} % of the time; the most frequent class alone would be "
                f"right {100 * m['accuracy_of_guess']:.1f} %."
            )
        return first
    first = (
        f"{count(m['n_train'], 'row')} of {count(len(run.columns), 'column')} are sums of "
        f"{count(model.n_components_, 'feature')} and noise of scale {model.noise_scale_:.3g}."
    )
    if "reconstruction_error" in m:
        first += (
            f" Rows held out are rebuilt up to {m['reconstruction_error']:.3g}; their mean alone "
            f"would leave {m['reconstruction_error_of_mean']:.3g}."
        )
    return first


def cards(run: Run) -> list[Card]:
    """The numbers of the first line."""
    shown = _expert_cards(run) if run.kind == "moe" else _feature_cards(run)
    if len(numbers.vectors(run.model)) > 1:
        spread = run.model.diversity_
        mean, least = np.degrees([spread.mean_angle, spread.min_angle])
        shown.append(Card("Mean angle", f"{mean:.0f}°", f"smallest {least:.0f}°"))
    if run.metrics.get("rhat") is not None:
        rhat = run.metrics["rhat"]
        good = "chains agree" if rhat <= RHAT_LIMIT else f"should be below {RHAT_LIMIT}"
        shown.append(Card("Worst R-hat", show_rhat(rhat), good))
    return shown


def _expert_cards(run: Run) -> list[Card]:
    m = run.metrics
    used = Card("Experts in use", f"{run.model.n_used_:.1f}", f"of {run.model.n_experts}")
    if "accuracy" not in m:
        return [used]
    return [
        Card("Accuracy", f"{100 * m['accuracy']:.1f} %", _with_error(m, "accuracy", 100, " %")),
        Card("Log-loss", f"{m['log_loss']:.3f}", f"frequencies: {m['log_loss_of_guess']:.3f}"),
        Card("Calibration gap", f"{m['calibration_error']:.3f}", "0 is perfect"),
        used,
    ]


def _feature_cards(run: Run) -> list[Card]:
    m, model = run.metrics, run.model
    active = model.trace_.values["n_active"]
    shown = [
        Card("Features", f"{model.n_components_}", f"{active.mean():.1f} active in a draw"),
        Card("Noise", f"{model.noise_scale_:.3g}", "standard deviation of an entry"),
    ]
    for key, title in (("reconstruction", "Rebuilt up to"), ("hidden", "Hidden entries up to")):
        if f"{key}_error" in m:
            of_mean = f"column means: {m[f'{key}_error_of_mean']:.3g}"
            shown.append(Card(title, f"{m[f'{key}_error']:.3g}", of_mean))
    return shown


def _with_error(metrics: dict[str, Any], key: str, scale: float, unit: str) -> str:
    error = metrics.get(f"{key}_error")
    return "" if error is None else f"± {scale * error:.1f}{unit}"


def cautions(run: Run) -> list[str]:
    """All that should keep a reader from trusting the page too much."""
    sentences = [str(one) for one in run.metrics.get("warnings", [])]
    rhat = run.metrics.get("rhat")
    if rhat is not None and rhat > RHAT_LIMIT and not any("R-hat" in one for one in sentences):
        sentences.append(
            f"The chains have not mixed (worst R-hat {show_rhat(rhat, 2)}): what they have in "
            "common can be trusted more than exact numbers. Run them longer."
        )
    if not run.metrics.get("sample_held_out", True):
        sentences.append(
            "No rows were held out: everything below is about rows that the model was fitted to, "
            "and looks better than it would on new ones."
        )
    sentences += _about_scores(run) + _about_components(run)
    if run.kind == "moe" and run.model.inference == "map":
        sentences.append(
            "The weights are the most probable ones alone (inference 'map'): uncertainty about "
            "them is not part of the probabilities, and there are no chains to check."
        )
    return list(dict.fromkeys(sentences))


def _about_scores(run: Run) -> list[str]:
    m, sentences = run.metrics, []
    if "accuracy" in m and m["log_loss"] >= m["log_loss_of_guess"]:
        sentences.append(
            "Probabilities are no better than the frequencies of the classes: the columns say "
            "little about the target, or the fit failed."
        )
    if m.get("calibration_error", 0.0) > LARGE_GAP:
        sentences.append(
            f"Probabilities miss the observed frequencies by {m['calibration_error']:.2f} on "
            "average: take them as scores, not as chances."
        )
    if (
        "hidden_error" in m
        and m["hidden_error"] >= m["hidden_error_of_mean"]
        and run.model.n_components_
    ):
        sentences.append(
            "Hidden entries are predicted no better than by column means: the features describe "
            "single rows and not what rows have in common."
        )
    return sentences


def _about_components(run: Run) -> list[str]:
    word, sentences = numbers.noun(run.model), []
    if run.kind == "features" and run.model.n_components_ == 0:
        return ["No feature is worth its price: the rows look like noise around nothing."]
    table = numbers.angles(run.model)
    close = [
        (table[i, j], i + 1, j + 1)
        for i, j in zip(*np.triu_indices(len(table), 1), strict=True)
        if table[i, j] < ALIKE
    ]
    for angle, i, j in sorted(close)[:MOST_PAIRS]:
        sentences.append(
            f"{word.capitalize()}s {i} and {j} point in nearly the same direction ({angle:.0f}°): "
            "one of them may be enough."
        )
    idle = [k + 1 for k, share in enumerate(shares_of(run)) if share < UNUSED]
    if run.kind == "moe" and idle:
        sentences.append(
            f"Asked in fewer than 1 % of these rows: {_listed('expert', idle)}. Fewer experts may "
            "do as well."
        )
    if run.kind == "features":
        weak = [k + 1 for k, p in enumerate(run.model.presence_) if p < 0.9]  # noqa: PLR2004
        if weak:
            sentences.append(
                f"Missing from more than a tenth of the draws: {_listed('feature', weak)}. The "
                "data do not settle whether there is such a feature."
            )
    return sentences


def _listed(word: str, found: list[int], most: int = 8) -> str:
    """``experts 1, 4``."""
    listed = ", ".join(map(str, found[:most])) + (" and others" if len(found) > most else "")
    return f"{word}{'s' if len(found) > 1 else ''} {listed}"
