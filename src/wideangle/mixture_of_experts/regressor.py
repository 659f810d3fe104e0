"""Mixture of experts as a scikit-learn regressor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import column_or_1d
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import assert_all_finite

from wideangle.checks import check_count, check_numbers
from wideangle.mixture_of_experts import quantities
from wideangle.mixture_of_experts.data import Data, counted
from wideangle.mixture_of_experts.estimator import MixtureOfExperts, Uncertainty
from wideangle.mixture_of_experts.predict import block_size, chosen_draws
from wideangle.mixture_of_experts.prepare import (
    TargetScaling,
    learn_target_scaling,
    target_scaling_from,
)
from wideangle.mixture_of_experts.presentation import QuantityExpertPresentation
from wideangle.mixture_of_experts.quantities import GaussianExperts
from wideangle.posterior import Draws
from wideangle.sharding import in_own_threads
from wideangle.streaming.survey import Survey


@dataclass(kw_only=True, repr=False, eq=False)
class MixtureOfExpertsRegressor(RegressorMixin, MixtureOfExperts):
    r"""Bayesian mixture of linear experts, each with its own noise, chosen by a softmax gate.

    Mean and spread both change with the row, and the predictive distribution may be skewed or have
    several peaks.

    Parameters
    ----------
    n_experts : int
        Number of experts K.
    prior, inference, standardise, checkpoint, n_jobs, verbose
        As in :class:`~wideangle.MixtureOfExpertsClassifier`.
    warm_start, random_state
        As in :class:`~wideangle.MixtureOfExpertsClassifier`.
    min_noise : float
        Smallest standard deviation of an expert's noise, in standard deviations of y. If many rows
        have the same y, such as 0, it limits how exactly that value is predicted.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        As in scikit-learn.
    posterior_ : Draws
        Draws of the weights for standardised y, raw: experts are numbered differently from chain to
        chain.
    experts_, noises_, gates_ : array (K, p)
        Weight vectors of one representative draw (the most probable one kept): of the mean of each
        expert, of the logarithm of its noise, and of the gate. They apply to prepared columns and
        to y in its original unit.
    target_scaling_ : TargetScaling
        Shift and scale of y inside the model.
    scaling_, filling_, priors_, diversity_, n_used_, chain_weights_, trace_, diagnostics_
        As in :class:`~wideangle.MixtureOfExpertsClassifier`.
    n_iter_, notes_
        As in :class:`~wideangle.MixtureOfExpertsClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from wideangle import MixtureOfExpertsRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (200, 1))
    >>> y = np.abs(X[:, 0]) + 0.1 * rng.normal(size=200)
    >>> model = MixtureOfExpertsRegressor(2, inference="map", random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    >>> model.predict_interval(X[:3], 0.9).shape
    (3, 2)
    """

    presentation: ClassVar[type[QuantityExpertPresentation]] = QuantityExpertPresentation
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MixtureOfExperts._parameter_constraints,
        "min_noise": [Interval(Real, 1e-4, 1.0, closed="both")],
    }
    file_kind: ClassVar[str] = "mixture-of-experts-regressor"

    min_noise: float = 0.01

    @in_own_threads
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MixtureOfExpertsRegressor:
        """Fit to rows X (dense, with NaN where an entry is missing, or CSR) and numbers y."""
        return self._fit_rows(self._checked(X, y, sample_weight))

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Data:
        self._validate_params()
        check_numbers(y)
        X, y = self._validated(X, y, y_numeric=True)
        with np.errstate(over="ignore"):  # scikit-learn has checked them in their own type
            y = y.astype(np.float64)
        assert_all_finite(y, input_name="y")
        weights = self._sample_weights(sample_weight, X)
        data = counted(Data(self._filled(X, weights), y, weights))
        self.target_scaling_ = learn_target_scaling(data.targets, data.weights)
        return data._replace(targets=self.target_scaling_.apply(data.targets))

    def _learn_targets(self, found: Survey) -> np.ndarray:
        mean, variance = (moment[-1] for moment in found.moments.weighted(np.ones(1)))
        self.target_scaling_ = target_scaling_from(mean, np.sqrt(variance))
        return np.ones(1)

    def _experts(self) -> GaussianExperts:
        return GaussianExperts(float(self.min_noise))

    def _in_units(self, found: Draws, n_counted: float) -> Draws:
        units, values = self.target_scaling_, dict(found.values)
        values["prediction"] = units.restore(values["prediction"])
        values["spread"] = units.scale * values["spread"]
        if "log_lik" in values:
            values["log_lik"] = values["log_lik"] - n_counted * np.log(units.scale)
        return Draws(values, found.stats, found.needed)

    # ---- predictions

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean of the predictive distribution of each row, and its standard deviation if wanted.

        Like all predictions, it averages over 64 to 256 posterior draws.
        """
        found = self._moments(self._rows(X))
        mean = self.target_scaling_.restore(found.mean)
        if not return_std:
            return mean
        return mean, self.target_scaling_.scale * np.sqrt(found.within + found.between)

    def _moments(self, rows: Any) -> quantities.Moments:
        return quantities.moments(self._expert, self.posterior_, rows, self.chain_weights_)

    def predict_stream(self, source: Any) -> Iterator[np.ndarray]:
        """Predicted means of the rows of a source in order, a block at a time."""
        for rows in self._blocks(source):
            yield self.target_scaling_.restore(self._moments(rows).mean)

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Variance of the predictions, split into noise and disagreement between draws."""
        found, square = self._moments(self._rows(X)), self.target_scaling_.scale**2
        total = square * (found.within + found.between)
        return Uncertainty(total, square * found.within, square * found.between)

    def predict_quantiles(self, X: Any, q: Any) -> np.ndarray:
        """Quantiles of the predictive distribution: (N,) for one level q, (N, Q) for several.

        Found by inverting the exact distribution function of the mixture over draws, not from a
        sample.
        """
        levels = np.asarray(q, np.float64)
        if levels.ndim > 1 or levels.size == 0 or not np.all((levels > 0) & (levels < 1)):
            raise ValueError(f"q={q!r}: must be a number between 0 and 1, or a list of such.")
        rows = self._rows(X)
        found = quantities.quantiles(
            self._expert, self.posterior_, rows, levels.ravel(), self.chain_weights_
        )
        found = self.target_scaling_.restore(found)
        return found[:, 0] if levels.ndim == 0 else found

    def predict_interval(self, X: Any, level: float = 0.9) -> np.ndarray:
        """Ends of the central interval that contains y with probability ``level``, (N, 2)."""
        if not (isinstance(level, Real) and 0 < level < 1):
            raise ValueError(f"level={level!r}: must be between 0 and 1, such as 0.9.")
        return self.predict_quantiles(X, [0.5 * (1.0 - level), 0.5 * (1.0 + level)])

    def score_samples(self, X: Any, y: Any) -> np.ndarray:
        """Log predictive density of y at each row, in nats."""
        rows = self._rows(X)
        found = quantities.log_density(
            self._expert, self.posterior_, rows, self._encoded(y, rows.shape[0]),
            self.chain_weights_,
        )  # fmt: skip
        return found - np.log(self.target_scaling_.scale)

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Draws from the predictive distribution of each row, (N, n_samples).

        ``random_state`` defaults to that of the model.
        """
        rows = self._rows(X)
        check_count("n_samples", n_samples, 1)
        rng = np.random.default_rng(self._draw_seed(random_state))
        weights, shares = chosen_draws(self.posterior_, self.chain_weights_)
        which = rng.choice(len(shares), (rows.shape[0], n_samples), p=shares / shares.sum())
        size = max(block_size(weights) // n_samples, 1)
        parts = []
        for first in range(0, rows.shape[0], size):
            block = quantities.parts_of(self._expert, weights, rows[first : first + size])
            parts.append(quantities.draw_from(rng, block, which[first : first + size]))
        return self.target_scaling_.restore(np.concatenate(parts))

    # ---- weights

    @property
    def experts_(self) -> np.ndarray:
        """Weight vectors of the means of the experts in one representative draw."""
        return self._in_target_units(super().experts_[:, 0], 0)

    @property
    def noises_(self) -> np.ndarray:
        """Weight vectors of the logarithm of their noise, between its two bounds."""
        return self._in_target_units(super().experts_[:, 1], 1)

    def _in_target_units(self, weights: np.ndarray, output: int) -> np.ndarray:
        """Weights (..., p) of the mean (output 0) or log noise (1), for y in its original unit."""
        units = self.target_scaling_
        # The model uses the logarithm of the variance.
        found = np.array(weights, np.float64) * (units.scale if output == 0 else 0.5)
        found[..., -1] += units.shift if output == 0 else np.log(units.scale)
        return found

    # ---- for files, ArviZ and sources

    def _output_names(self) -> dict[str, Any]:
        return {"output": ["mean", "log variance"]}

    def _encoded(self, y: Any, n_rows: int) -> np.ndarray:
        y = column_or_1d(y, dtype=np.float64)
        assert_all_finite(y, input_name="y")
        if len(y) != n_rows:
            raise ValueError(f"y: must have a number for each of the {n_rows} rows, has {len(y)}.")
        return self.target_scaling_.apply(y)

    def _target_units(self) -> TargetScaling:
        return self.target_scaling_

    def _target_meta(self) -> dict[str, Any]:
        return {"target": self.target_scaling_._asdict()}

    def _restore_targets(self, meta: dict[str, Any], n_outputs: int) -> None:
        found = TargetScaling(float(meta["target"]["shift"]), float(meta["target"]["scale"]))
        if not (np.isfinite(found.shift) and np.isfinite(found.scale) and found.scale > 0):
            raise ValueError(f"its targets have the scale {found.scale}")
        self.target_scaling_ = found
