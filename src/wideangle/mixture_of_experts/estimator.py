"""What the classifier and the regressor share as scikit-learn estimators."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import jax
import numpy as np
from sklearn.base import is_regressor
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from wideangle.base import Family
from wideangle.checks import check_plain, warn
from wideangle.convergence import caution_of
from wideangle.mixture_of_experts import files, modes, pointwise, sampling, stream, variational
from wideangle.mixture_of_experts import predict as predictive
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import ExpertLikelihood
from wideangle.mixture_of_experts.prepare import (
    Scaling,
    TargetScaling,
    filled,
    learn_filling,
    learn_scaling,
    usual_extreme,
)
from wideangle.mixture_of_experts.task import (
    Fitted,
    Task,
    arrays_of,
    check_choices,
    has_hierarchy,
    mark_of,
    plan,
)
from wideangle.posterior import Draws
from wideangle.priors.components import ComponentPrior
from wideangle.settings import (
    INFERENCES,
    PRIORS,
    SEVERAL,
    Choices,
    Maximise,
    Sampling,
)
from wideangle.sharding import in_own_threads
from wideangle.streaming.survey import Survey
from wideangle.types import Key, as_numpy


class Uncertainty(NamedTuple):
    """Uncertainty of the prediction of each row, and its two parts.

    Entropies in nats for classes; variances, in squared units, for a quantity.
    """

    total: np.ndarray
    """Uncertainty of the averaged prediction."""
    expected: np.ndarray
    """Mean uncertainty of single draws: the aleatoric part, which more data would not remove."""
    epistemic: np.ndarray
    """The difference: the epistemic part, the disagreement between posterior draws."""


@dataclass(repr=False, eq=False)
class MixtureOfExperts(Family, ABC):
    """Experts chosen by a softmax gate; the subclass defines what an expert predicts."""

    _files: ClassVar[Any] = files
    _choices: ClassVar[dict[str, Choices]] = {
        "prior": PRIORS,
        "inference": INFERENCES,
    }
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_experts": [SEVERAL],
        "prior": [StrOptions(set(PRIORS)), *PRIORS.values(), ComponentPrior, tuple],
        "inference": [StrOptions(set(INFERENCES)), *INFERENCES.values()],
        "standardise": ["boolean"],
        "checkpoint": "no_validation",
        "n_jobs": [Integral, None],
        "verbose": ["verbose", None],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
    }
    file_kind: ClassVar[str]
    """Kind of model, as written to a saved file."""
    n_experts: int = 5
    _: KW_ONLY
    prior: Any = "mutual-angular"
    inference: Any = "mcmc"
    standardise: bool = True
    checkpoint: Any = None
    n_jobs: int | None = None
    verbose: bool | None = None
    warm_start: bool = False
    random_state: Any = None

    # ---- what differs

    @abstractmethod
    def _experts(self) -> ExpertLikelihood:
        """Likelihood of one expert, once the targets are known."""

    def _in_units(self, found: Draws, n_counted: float) -> Draws:
        """The trace in the units of the targets, for this many rows."""
        return found

    @abstractmethod
    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Data:
        """Rows that count, with encoded targets, from a user's; stores what it learns of them."""

    @abstractmethod
    def _output_names(self) -> dict[str, Any]:
        """Coordinates of the outputs of an expert, if it has several."""

    @abstractmethod
    def _encoded(self, y: Any, n_rows: int) -> np.ndarray:
        """Targets of training rows, encoded for the model."""

    @abstractmethod
    def _learn_targets(self, found: Survey) -> np.ndarray:
        """Store what one pass through a source found about the targets; weights of the classes."""

    def _target_units(self) -> TargetScaling | None:
        """Units of a quantity; None for classes."""
        return None

    @abstractmethod
    def _target_meta(self) -> dict[str, Any]:
        """Description of the targets for a file, in plain JSON."""

    @abstractmethod
    def _restore_targets(self, meta: dict[str, Any], n_outputs: int) -> None:
        """Restore what :meth:`_target_meta` wrote, for experts with this many outputs."""

    # ---- fitting

    filling_ = None
    """Values that replace missing entries; None after a fit to sparse rows or rows on disk."""

    def _filled(self, X: Any, weights: np.ndarray) -> Any:
        """Training rows with missing entries replaced; the replacements are stored."""
        self.filling_ = learn_filling(X, weights)
        return X if self.filling_ is None else self.filling_.apply(X)

    def _sample_weights(self, sample_weight: Any, X: Any) -> np.ndarray:
        check_plain("sample_weight", sample_weight)
        return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)

    def _fit_rows(self, data: Data) -> Self:
        """Fit to rows from :func:`data.counted` with encoded targets."""
        key, task, data = self._planned(data)
        self._finish(self._fit_or_go_on(key, task, data), data)
        if sentence := caution_of(self):
            warn(sentence)
        return self

    def _planned(self, data: Data) -> tuple[Key, Task, Data]:
        """What to fit to such rows, and the rows prepared for it."""
        self.scaling_ = learn_scaling(data.rows, data.weights, standardise=self.standardise)
        self.scaling_ = self._limited(self.scaling_, float(data.weights.sum()))
        data = data._replace(rows=self.scaling_.apply(data.rows))
        key = jax.random.key(self._draw_seed())
        self._expert = self._experts()
        return key, self._task(data.rows.shape[1]), data

    def _finish(self, fitted: Fitted, data: Data) -> None:
        """Store what a fit to prepared rows gave."""
        self._keep(fitted, data.rows, float(data.weights.sum()))
        inference = self.choice("inference")
        if isinstance(inference, Sampling) and inference.combine == "stacking":
            found = pointwise.stacked(self._expert, self.posterior_, data)
            self.chain_weights_ = found.weights
            self.notes_["stacking"] = {"n_rows": found.n_rows, "unreliable": found.unreliable}

    def _limited(self, scaling: Scaling, n_rows: float) -> Scaling:
        """Clip extreme entries of standardised columns for experts around a common one.

        Not for a quantity, which may follow a column as far as it goes.
        """
        around_common = has_hierarchy(self.prior, self.choice("inference"))
        if not self.standardise or is_regressor(self) or not around_common:
            return scaling
        return scaling._replace(limit=usual_extreme(n_rows))

    def _fit_or_go_on(self, key: Key, task: Task, data: Data) -> Fitted:
        """A new fit, or more draws from the chains of the last one."""
        if not self.warm_start or not isinstance(task.inference, Sampling):
            self._last_chains = None
            return _fit(key, task, data)
        same = task._replace(inference=task.inference.of_any_length())
        mark = mark_of(same, arrays_of(data))
        if (chains := self._chains_of(mark)) is not None:
            fitted = sampling.draw(chains, task, began=time.monotonic())[0]
        else:
            fitted = _fit(key, task, data)
        self._last_chains = mark, fitted.chains
        return fitted

    def _task(self, n_columns: int) -> Task:
        """What to fit, for rows with this many prepared columns."""
        return plan(
            self.prior,
            self.choice("inference"),
            self.n_experts,
            n_columns,
            self._expert,
            checkpoint=self.checkpoint,
            verbose=self.verbose,
        )

    @in_own_threads
    def fit_stream(self, source: Any, *, buffer_bytes: int = stream.BUFFER_BYTES) -> Self:
        """Fit by stochastic VI to rows that stay on disk.

        One pass finds classes, or the scale of y, scales of columns and a sample; then minibatches
        are read as they are needed. Memory does not depend on the number of rows.

        Parameters
        ----------
        source : RowSource
            ``wideangle.streaming.NpyRows``, ``ParquetRows``, ``DaskRows``, ``CsrRows``, or your
            own.
        buffer_bytes : int
            Size of the buffer of rows from which minibatches are drawn. For a sorted file it should
            be many times the size of a block.
        """
        self._validate_params()
        check_choices(self.prior, self.choice("inference"), self.checkpoint)  # before a pass
        stream.check_inference(self.choice("inference"))
        found = stream.prepare(
            source,
            self._draw_seed(),
            self._learn_targets,
            self._encoded,
            quantity=is_regressor(self),
            standardise=self.standardise,
            limited=self._limited,
            verbose=self.verbose,
        )
        self._take_columns(source)
        self.filling_ = None
        self.scaling_ = found.scaling
        self._expert = self._experts()
        task = self._task(found.sample.rows.shape[1])
        fitted = stream.fit(task, source, found, buffer_bytes)
        self._keep(fitted, found.sample.rows, float(found.sample.weights.sum()))
        if sentence := caution_of(self):
            warn(sentence)
        return self

    def _blocks(self, source: Any) -> Iterator[np.ndarray]:
        """Prepared rows of a source in order, a block at a time."""
        check_is_fitted(self)
        complete = self.filling_ is None
        return stream.blocks(source, self.n_features_in_, self._prepared, complete=complete)

    def _keep(self, fitted: Fitted, rows: Any, n_counted: float) -> None:
        """Store the posterior and what is derived from it."""
        self.posterior_ = fitted.draws
        self.priors_ = as_numpy(fitted.priors)
        self.notes_ = fitted.notes
        self.n_iter_ = fitted.draws.n_chains * fitted.draws.n_draws
        self.chain_weights_ = np.full(fitted.draws.n_chains, 1.0 / fitted.draws.n_chains)
        self.trace_ = self._in_units(predictive.trace(self._expert, fitted.draws, rows), n_counted)
        self.n_used_ = float(np.mean(self.trace_.values["n_used"]))
        self._representative = predictive.representative(fitted.draws)
        self.diagnostics_ = None
        if isinstance(self.choice("inference"), Sampling):
            self.diagnostics_ = self.trace_.summary()

    @property
    def experts_(self) -> np.ndarray:
        """Weight vectors of the experts in one representative draw."""
        check_is_fitted(self)
        experts = self._representative.experts
        return experts[:, 0] if experts.shape[1] == 1 else experts

    @property
    def gates_(self) -> np.ndarray:
        """Weight vectors of the gate in the same draw."""
        check_is_fitted(self)
        return self._representative.gate

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._prepared(self._validated(X, reset=False))

    def _prepared(self, X: Any) -> Any:
        """Rows prepared for the model: missing entries filled in, columns on one scale."""
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return self.scaling_.apply(filled(X, self.filling_, names))

    def gate_proba(self, X: Any) -> np.ndarray:
        """Probability of each expert of the representative draw, (N, K)."""
        rows = self._rows(X)
        return predictive.gate(self._representative, rows)

    def to_arviz(self, X: Any = None, y: Any = None) -> Any:
        """Draws for ArviZ: quantities comparable between chains; raw weights are a separate group.

        The group ``posterior`` holds quantities that do not depend on the numbering of experts;
        raw weights, whose numbering differs from chain to chain, are in ``posterior_raw``.

        Starts of ``inference="vi"`` are not chains: their draws form one chain, and ``start`` in
        ``sample_stats`` gives the start of each.

        The model keeps no rows. Passing the training rows and targets again adds
        ``log_likelihood``, ``observed_data`` and ``posterior_predictive``, so that
        ``arviz.loo(model.to_arviz(X, y))`` works; rows without targets add ``predictions``. Classes
        ``y`` are indices into the coordinate ``class``. Draws are thinned, in all groups, to 256
        MiB of log-likelihoods.
        """
        check_is_fitted(self)
        if X is None and y is not None:
            raise ValueError("y: give the rows of these targets, X, too.")
        names = self._output_names() | {"column": self.presentation(self).entry_names()}
        draws, trace, about, starts = self.posterior_, self.trace_, None, None
        if not isinstance(self.choice("inference"), Sampling):
            starts = np.tile(np.arange(draws.n_chains), draws.n_draws)[None]
            draws, trace = draws.in_turns(), trace.in_turns()
        if X is not None:
            rows = self._rows(X)
            targets = None if y is None else self._encoded(y, rows.shape[0])
            about = pointwise.groups_of_rows(
                self._expert,
                draws,
                rows,
                targets,
                np.random.default_rng(self._draw_seed()),
                self._target_units(),
            )
            names["row"] = np.arange(rows.shape[0])
        return pointwise.to_arviz(draws, trace, about, names, starts)


def _fit(key: Key, task: Task, data: Data) -> Fitted:
    """Fit by the inference of the task."""
    if isinstance(task.inference, Sampling):
        return sampling.fit(key, task, data)
    if isinstance(task.inference, Maximise):
        return modes.fit(key, task, data)
    return variational.fit(key, task, data)
