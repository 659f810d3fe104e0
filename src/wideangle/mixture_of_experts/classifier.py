"""Mixture of experts as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d, compute_sample_weight
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from wideangle.checks import check_labels, check_range
from wideangle.mixture_of_experts import files
from wideangle.mixture_of_experts.classes import LogisticExperts, SoftmaxExperts, experts_for
from wideangle.mixture_of_experts.data import Data, counted
from wideangle.mixture_of_experts.estimator import MixtureOfExperts, Uncertainty
from wideangle.mixture_of_experts.predict import over_draws
from wideangle.mixture_of_experts.presentation import ClassExpertPresentation
from wideangle.presentation.classifier import entropy
from wideangle.sharding import in_own_threads
from wideangle.streaming.survey import Survey


@dataclass(kw_only=True, repr=False, eq=False)
class MixtureOfExpertsClassifier(ClassifierMixin, MixtureOfExperts):
    r"""Bayesian mixture of logistic experts chosen by a softmax gate.

    Parameters
    ----------
    n_experts : int
        Number of experts K.
    prior : name, settings object, ComponentPrior, or (gate, experts)
        Prior of the weight vectors of gate and experts: ``"mutual-angular"``
        (:class:`~wideangle.MutualAngularPrior`) pushes them in different directions, ``"vmf"``
        (:class:`~wideangle.VonMisesFisherPrior`) draws directions independently, ``"gaussian"``
        (:class:`~wideangle.GaussianPrior`) is the usual baseline, ``"dpp"``
        (:class:`~wideangle.DeterminantalPrior`) the determinantal one. A pair gives gate and
        experts different priors; a custom distribution is used as it is.
    inference : name or settings object
        ``"mcmc"`` (:class:`~wideangle.Sampling`) draws from the posterior, ``"vi"``
        (:class:`~wideangle.Variational`) approximates it, ``"map"``
        (:class:`~wideangle.Maximise`) maximises it.
    standardise : bool
        Centre and scale real-valued columns (0/1 columns are left alone; sparse ones are only
        scaled), and with a common expert clip entries that would be extreme among as many standard
        normal numbers as there are rows.
    class_weight : dict or "balanced", optional
        As in scikit-learn.
    checkpoint : path, optional
        MCMC and VI: folder to save progress to; a fit with the same data and
        settings continues where it stopped, to the same bits.
    n_jobs : int, optional
        Threads of a fit, as in scikit-learn: -1 is all cores. By default as many as
        ``joblib.parallel_config`` allows, or all cores. Results do not depend on it.
    verbose : bool or int, optional
        Whether to show a progress bar; by default on a terminal only.
    warm_start : bool
        MCMC: another fit to the same data continues the same chains, up to a larger ``n_draws``,
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
    scaling_ : Scaling
        Shift and scale of the columns inside the model.
    filling_ : Filling or None
        Medians that replace missing entries, and which columns have a 0/1 column that marks them.
    priors_ : (gate, experts)
        The priors as distributions, with what was learned of them.
    n_used_ : float
        Mean number of experts with more than 1 % of the gate's mass.
    chain_weights_ : array (n_chains,)
        Weight of each chain in predictions: equal, or with ``combine="stacking"`` the weights that
        best predict left-out training rows. All other results weight chains equally.
    trace_ : Draws
        Quantities of every draw that do not depend on how experts are numbered.
    diagnostics_ : Summary
        R-hat and effective sample size of the trace (MCMC); ``needed`` marks what predictions
        depend on.
    n_iter_ : int
        Number of draws in all chains or starts.
    notes_ : dict
        About the fit, by inference: why and when chains ended (``"ending"``), acceptance rates, the
        evidence bound of each start (``"elbo"``), whether it was interrupted.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from wideangle import MixtureOfExpertsClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = MixtureOfExpertsClassifier(4, inference="map", random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    presentation: ClassVar[type[ClassExpertPresentation]] = ClassExpertPresentation
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MixtureOfExperts._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }
    file_kind: ClassVar[str] = "mixture-of-experts-classifier"

    class_weight: Any = None
    _expert: LogisticExperts | SoftmaxExperts = field(init=False)

    @in_own_threads
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MixtureOfExpertsClassifier:
        """Fit to rows X (dense, with NaN where an entry is missing, or CSR) and class labels y."""
        return self._fit_rows(self._checked(X, y, sample_weight))

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Data:
        self._validate_params()
        check_labels(y)
        X, y = self._validated(X, y)
        check_classification_targets(y)
        self.classes_, targets = np.unique(y, return_inverse=True)
        weights = self._sample_weights(sample_weight, X)
        if self.class_weight is not None:
            weights = weights * compute_sample_weight(self.class_weight, y)
        X = self._filled(X, weights)
        return counted(Data(X, targets.astype(np.int32), weights))

    def _validate_params(self) -> None:
        super()._validate_params()
        if isinstance(self.class_weight, dict):
            for label, weight in self.class_weight.items():
                check_range(f"class_weight[{label!r}]", weight, 0.0)

    def _learn_targets(self, found: Survey) -> np.ndarray:
        self.classes_, counts = found.classes, found.moments.counts
        if self.class_weight == "balanced":
            return counts.sum() / (len(counts) * counts)
        return compute_class_weight(self.class_weight, classes=found.classes, y=found.classes)

    def _experts(self) -> LogisticExperts | SoftmaxExperts:
        return experts_for(len(self.classes_))

    def predict_proba_stream(self, source: Any) -> Iterator[np.ndarray]:
        """Class probabilities of the rows of a source in order, a block at a time."""
        return map(self._proba, self._blocks(source))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, averaged over 64 to 256 posterior draws."""
        return self._proba(self._rows(X))

    def _proba(self, rows: Any) -> np.ndarray:
        proba = over_draws(self._expert.proba, self.posterior_, rows, self.chain_weights_)
        return proba if len(self.classes_) > 1 else np.ones((len(proba), 1))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):  # minus infinity if a probability is 0
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Most probable class."""
        proba = self.predict_proba(X)
        return self.classes_[np.argmax(proba, axis=1)]

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the predictions in nats: total, aleatoric (``expected``) and epistemic."""
        rows = self._rows(X)
        answer = self._expert.proba_and_entropy
        found = over_draws(answer, self.posterior_, rows, self.chain_weights_)
        if len(self.classes_) == 1:
            found = np.tile([1.0, 0.0], (len(found), 1))  # as _proba
        total, expected = entropy(found[:, :-1]), found[:, -1]
        expected = np.clip(expected, 0.0, total)  # Jensen's inequality holds up to rounding
        return Uncertainty(total, expected, total - expected)

    def _output_names(self) -> dict[str, Any]:
        return {"class": self.classes_}

    def _encoded(self, y: Any, n_rows: int) -> np.ndarray:
        """Classes as indices into ``classes_``; unknown ones are rejected."""
        y = column_or_1d(y)
        places = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if len(y) != n_rows or np.any(self.classes_[places] != y):
            raise ValueError(
                f"y: must have a class for each of the {n_rows} rows, one of "
                f"{self.classes_.tolist()[:8]}."
            )
        return places.astype(np.int32)

    def _target_meta(self) -> dict[str, Any]:
        classes = {"dtype": self.classes_.dtype.str, "values": self.classes_.tolist()}
        # Reject now what loading would reject.
        files.classes_from(classes, self._expert.n_outputs)
        return {"classes": classes}

    def _restore_targets(self, meta: dict[str, Any], n_outputs: int) -> None:
        self.classes_ = files.classes_from(meta["classes"], n_outputs)
