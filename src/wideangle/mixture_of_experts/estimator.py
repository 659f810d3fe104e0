"""Mixture of experts as a scikit-learn classifier."""

from __future__ import annotations

import time
from collections.abc import Iterator
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.utils import check_random_state, column_or_1d, compute_sample_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from wideangle.base import Presented
from wideangle.checks import check_labels, check_not_forked, check_range, check_table
from wideangle.messages import warn
from wideangle.mixture_of_experts import files, modes, pointwise, sampling, stream, variational
from wideangle.mixture_of_experts import predict as predictive
from wideangle.mixture_of_experts.data import Data, learn_scaling, rows_that_count
from wideangle.mixture_of_experts.likelihood import experts_for
from wideangle.mixture_of_experts.presentation import ExpertPresentation
from wideangle.mixture_of_experts.repeats import merged
from wideangle.mixture_of_experts.task import Fitted, Task, arrays_of, check_choices, mark_of, plan
from wideangle.presentation.classifier import entropy
from wideangle.priors.components import ComponentPrior
from wideangle.settings import (
    INFERENCES,
    PRIORS,
    Choices,
    Maximise,
    NamedChoices,
    Sampling,
)
from wideangle.sphere.geometry import Diversity, diversity
from wideangle.types import Key, in_order


class Uncertainty(NamedTuple):
    """Entropy of the prediction of each row, in nats, and its two parts."""

    total: np.ndarray
    """Entropy of the averaged prediction."""
    expected: np.ndarray
    """Mean entropy of single predictions: noise that more data would not remove."""
    epistemic: np.ndarray
    """The difference: disagreement between posterior draws."""


class MixtureOfExpertsClassifier(Presented, ClassifierMixin, NamedChoices):
    r"""Bayesian mixture of logistic experts chosen by a softmax gate.

    Parameters
    ----------
    n_experts : int
        Number of experts K.
    prior : name, settings object, ComponentPrior, or (gate, experts)
        Prior of the weight vectors of gate and experts: ``"mutual-angular"``
        (:class:`~wideangle.MutualAngularPrior`) pushes them to different directions, ``"vmf"``
        (:class:`~wideangle.VonMisesFisherPrior`) draws directions independently, ``"gaussian"``
        (:class:`~wideangle.GaussianPrior`) is the usual baseline, ``"dpp"``
        (:class:`~wideangle.DeterminantalPrior`) the determinantal one. A pair gives gate and
        experts different priors; a distribution of your own is used as it is.
    inference : name or settings object
        ``"mcmc"`` (:class:`~wideangle.Sampling`) draws from the posterior, ``"vi"``
        (:class:`~wideangle.Variational`) approximates it, ``"map"``
        (:class:`~wideangle.Maximise`) maximises it.
    standardise : bool
        Centre and scale real-valued columns (0/1 columns are left alone; sparse ones are only
        scaled).
    fit_intercept : bool
        Add a constant column to gate and experts.
    class_weight : dict or "balanced", optional
        As in scikit-learn.
    checkpoint : path, optional
        MCMC and VI: folder to save the run to while it lasts; a fit with the same data and
        settings takes up where it stopped, to the same bits.
    progress : bool, optional
        Show a bar; by default on a terminal.
    warm_start : bool
        MCMC: fit again to the same data to go on with the same chains, up to a larger ``n_draws``,
        or with ``n_draws="auto"`` for another ``max_time``.
    random_state : int, RandomState or None
        Seed.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.
    posterior_ : Draws
        Draws of the weights, raw: experts are numbered differently from chain to chain.
    experts_, gates_ : array
        Weight vectors of one representative draw (the most probable one kept), in units of the
        prepared columns: (K, p) for two classes, (K, C, p) for more; gates (K, p).
    diversity_ : Diversity
        Angles between the experts of that draw.
    n_used_ : float
        Mean number of experts with more than 1 % of the gate's mass.
    chain_weights_ : array (n_chains,)
        Weight of each chain in predictions: equal, or with ``combine="stacking"`` those with which
        left-out training rows are predicted best. Everything else counts all chains alike.
    trace_ : Draws
        Of every draw, quantities that do not depend on how experts are numbered.
    diagnostics_ : Summary
        R-hat and effective sample size of the trace (MCMC); ``needed`` marks what predictions
        depend on.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from wideangle import MixtureOfExpertsClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = MixtureOfExpertsClassifier(4, inference="map", random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    presentation: ClassVar[type[ExpertPresentation]] = ExpertPresentation
    _choices: ClassVar[dict[str, Choices]] = {
        "prior": PRIORS,
        "inference": INFERENCES,
    }
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_experts": [Interval(Integral, 1, None, closed="left")],
        "prior": [StrOptions(set(PRIORS)), *PRIORS.values(), ComponentPrior, tuple],
        "inference": [StrOptions(set(INFERENCES)), *INFERENCES.values()],
        "standardise": ["boolean"],
        "fit_intercept": ["boolean"],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "checkpoint": "no_validation",
        "progress": ["boolean", None],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_experts: int = 5,
        *,
        prior: Any = "mutual-angular",
        inference: Any = "mcmc",
        standardise: bool = True,
        fit_intercept: bool = True,
        class_weight: Any = None,
        checkpoint: Any = None,
        progress: bool | None = None,
        warm_start: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_experts = n_experts
        self.prior = prior
        self.inference = inference
        self.standardise = standardise
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.checkpoint = checkpoint
        self.progress = progress
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MixtureOfExpertsClassifier:
        """Fit to rows X (dense or CSR) and class labels y."""
        self._validate_params()
        check_table(X)
        check_labels(y)
        X, y = validate_data(
            self, in_order(X), y, accept_sparse="csr", dtype=[np.float64, np.float32]
        )
        check_classification_targets(y)
        self.classes_, targets = np.unique(y, return_inverse=True)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.class_weight is not None:
            weights = weights * compute_sample_weight(self.class_weight, y)
        if not np.all(live := rows_that_count(weights)):
            # Not merely of no weight: such rows must not decide how columns are scaled.
            X, targets, weights = X[live], targets[live], weights[live]
        data = merged(Data(X, targets.astype(np.int32), weights))
        self.scaling_ = learn_scaling(
            data.rows, data.weights, standardise=self.standardise, intercept=self.fit_intercept
        )
        data = data._replace(rows=self.scaling_.apply(data.rows))
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        self._expert = experts_for(len(self.classes_))
        task = self._task(data.rows.shape[1])
        self._keep(self._fit_or_go_on(jax.random.key(seed), task, data), data.rows)
        if isinstance(task.inference, Sampling) and task.inference.combine == "stacking":
            found = pointwise.stacked(self.posterior_, data)
            self.chain_weights_ = found.weights
            self.notes_["stacking"] = {"n_rows": found.n_rows, "unreliable": found.unreliable}
        return self

    def _fit_or_go_on(self, key: Key, task: Task, data: Data) -> Fitted:
        """A new fit, or more draws of the chains of the last one."""
        if not self.warm_start or not isinstance(task.inference, Sampling):
            self._last_chains = None
            return _fit(key, task, data)
        lengths = {"n_draws": 1, "max_time": None, "combine": "equal"}
        usual: Any = clone(task.inference)
        same = task._replace(inference=usual.set_params(**lengths))
        mark = mark_of(same, arrays_of(data))
        known, chains = getattr(self, "_last_chains", None) or (None, None)
        if known == mark:
            fitted = sampling.draw(chains, task, began=time.monotonic())
        else:
            fitted = _fit(key, task, data)
        self._last_chains = mark, fitted.chains
        return fitted

    def _task(self, n_columns: int) -> Task:
        """What is to be fitted, for rows of so many prepared columns."""
        return plan(
            self.prior,
            self.choice("inference"),
            self.n_experts,
            n_columns,
            self._expert,
            checkpoint=self.checkpoint,
            progress=self.progress,
        )

    def _validate_params(self) -> None:
        check_not_forked()
        super()._validate_params()
        check_choices(self.prior, self.choice("inference"), self.checkpoint)
        if isinstance(self.class_weight, dict):
            for label, weight in self.class_weight.items():
                check_range(f"class_weight[{label!r}]", weight, 0.0)

    def fit_stream(
        self, source: Any, *, buffer_bytes: int = stream.BUFFER_BYTES
    ) -> MixtureOfExpertsClassifier:
        """Fit by stochastic VI to rows that stay on disk.

        One pass finds classes, scales of columns and a sample; then minibatches are read as they
        are needed. Memory does not depend on the number of rows.

        Parameters
        ----------
        source : RowSource
            ``wideangle.streaming.NpyRows``, ``ParquetRows``, or your own.
        buffer_bytes : int
            Rows held at a time, among which minibatches are mixed. Should be many times the size
            of a block where the file is sorted.
        """
        self._validate_params()
        stream.check_inference(self.choice("inference"))
        found = stream.prepare(
            source,
            check_random_state(self.random_state).randint(2**31 - 1),
            class_weight=self.class_weight,
            standardise=self.standardise,
            intercept=self.fit_intercept,
            progress=self.progress,
        )
        self.n_features_in_ = source.shape[1]
        if source.names is not None:
            self.feature_names_in_ = np.asarray(source.names, dtype=object)
        self.classes_, self.scaling_ = found.classes, found.scaling
        self._expert = experts_for(len(self.classes_))
        task = self._task(found.sample.rows.shape[1])
        self._keep(stream.fit(task, source, found, buffer_bytes), found.sample.rows)
        return self

    def predict_proba_stream(self, source: Any) -> Iterator[np.ndarray]:
        """Class probabilities of the rows of a source, a block at a time, in its order."""
        check_is_fitted(self)
        for rows in stream.blocks(source, self.n_features_in_, self.scaling_):
            yield self._only_seen(
                predictive.predict(self._expert, self.posterior_, rows, self.chain_weights_)
            )

    def _keep(self, fitted: Fitted, rows: Any) -> None:
        """Store the posterior and what is derived from it; warn in plain words."""
        self.posterior_ = fitted.draws
        self.priors_ = fitted.priors
        self.notes_ = fitted.notes
        self.n_iter_ = fitted.draws.n_chains * fitted.draws.n_draws
        self.chain_weights_ = np.full(fitted.draws.n_chains, 1.0 / fitted.draws.n_chains)
        self.trace_ = predictive.trace(self._expert, fitted.draws, rows)
        self.n_used_ = float(np.mean(self.trace_.values["n_used"]))
        self._representative = predictive.representative(fitted.draws)
        self.diagnostics_ = None
        if isinstance(self.choice("inference"), Sampling):
            self.diagnostics_ = self.trace_.summary()
            sentence = self.presentation(self).caution()
            if sentence is not None:
                warn(sentence)

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

    @property
    def diversity_(self) -> Diversity:
        """Angles between the experts of the representative draw."""
        check_is_fitted(self)
        check_not_forked()
        experts = self._representative.experts
        summary = diversity(experts.reshape(len(experts), -1))
        return Diversity(*(float(value) for value in summary))

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self)
        check_table(X)
        X = validate_data(
            self, in_order(X), accept_sparse="csr", dtype=[np.float64, np.float32], reset=False
        )
        return self.scaling_.apply(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, averaged over the posterior: over 64 to 256 of its draws."""
        rows = self._rows(X)
        return self._only_seen(
            predictive.predict(self._expert, self.posterior_, rows, self.chain_weights_)
        )

    def _only_seen(self, proba: np.ndarray) -> np.ndarray:
        return proba if len(self.classes_) > 1 else np.ones((len(proba), 1))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):  # minus infinity, where a probability is 0
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Most probable class."""
        proba = self.predict_proba(X)
        return self.classes_[np.argmax(proba, axis=1)]

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the predictions, split into noise and disagreement between draws."""
        rows = self._rows(X)
        mean, expected = predictive.predict_with_entropy(
            self._expert, self.posterior_, rows, self.chain_weights_
        )
        total = entropy(mean)
        expected = np.clip(expected, 0.0, total)  # Jensen's inequality holds up to rounding
        return Uncertainty(total, expected, total - expected)

    def gate_proba(self, X: Any) -> np.ndarray:
        """Probability that each expert of the representative draw is asked, (N, K)."""
        rows = self._rows(X)
        return predictive.gate(self._representative, rows)

    def to_arviz(self, X: Any = None, y: Any = None) -> Any:
        """Draws for ArviZ: what can be compared between chains, and raw weights, apart.

        The group ``posterior`` holds quantities that do not depend on the numbering of experts;
        raw weights, whose numbering differs from chain to chain, are in ``posterior_raw``.

        The model keeps no rows. Given the training rows and classes again there are also
        ``log_likelihood``, ``observed_data`` and ``posterior_predictive``, so that
        ``arviz.loo(model.to_arviz(X, y))`` works; given rows without classes, ``predictions``.
        Classes ``y`` are numbers, places in the coordinate ``class``. Draws are thinned, in all
        groups, to 256 MiB of log-likelihoods.
        """
        check_is_fitted(self)
        if X is None and y is not None:
            raise ValueError("y: give the rows of these classes, X, too.")
        rows = None if X is None else self._rows(X)
        targets = None if rows is None or y is None else self._places_of(y, rows.shape[0])
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        names = {"class": self.classes_, "column": self.presentation(self).entry_names()}
        return pointwise.to_arviz(self.posterior_, self.trace_, rows, targets, rng, names)

    def _places_of(self, y: Any, n_rows: int) -> np.ndarray:
        """Classes as places in ``classes_``; unknown ones are refused."""
        y = column_or_1d(y)
        places = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if len(y) != n_rows or np.any(self.classes_[places] != y):
            raise ValueError(
                f"y: must have a class for each of the {n_rows} rows, one of "
                f"{self.classes_.tolist()[:8]}."
            )
        return places.astype(np.int32)

    def save(self, path: Any) -> None:
        """Write the fitted model to one file (arrays and JSON; loading it runs no code)."""
        files.save(self, path)

    @classmethod
    def load(cls, path: Any) -> MixtureOfExpertsClassifier:
        """Read a model written by :meth:`save`; a damaged file raises a clear error."""
        return files.load(cls, path)

    def __sklearn_tags__(self) -> Any:
        """Sparse input is welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _fit(key: Key, task: Task, data: Data) -> Fitted:
    """Fit by the inference of the task."""
    if isinstance(task.inference, Sampling):
        return sampling.fit(key, task, data)
    if isinstance(task.inference, Maximise):
        return modes.fit(key, task, data)
    return variational.fit(key, task, data)
