"""Clusters of directions as a scikit-learn estimator."""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import ClusterMixin, DensityMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from wideangle.base import Family
from wideangle.checks import check_count, check_plain, check_total_weight, warn
from wideangle.convergence import caution_of
from wideangle.posterior import Draws
from wideangle.settings import INFERENCES, LEARN, PRIORS, SEVERAL, Choices, Sampling, Settings
from wideangle.sharding import in_own_threads
from wideangle.sphere import vmf
from wideangle.sphere.vmf import log_area
from wideangle.spherical_mixture import ascent, files, sampling
from wideangle.spherical_mixture import predict as predictive
from wideangle.spherical_mixture.presentation import ClusterPresentation
from wideangle.spherical_mixture.rows import MemoryRows, SourceRows, as_units, sample_source, shares
from wideangle.spherical_mixture.task import Fitted, Mixture, Task, check_choices, plan

OUR_PRIORS: dict[str | None, type[Settings]] = {
    name: PRIORS[name] for name in ("mutual-angular", "vmf")
}


@dataclass(repr=False, eq=False)
class SphericalMixture(ClusterMixin, DensityMixin, Family):
    r"""Clusters of directions: a mixture of von Mises-Fisher distributions.

    For rows that are compared by their cosine: embeddings of text and images, tf-idf, gene
    profiles. Rows may have any length and are divided by it.

    Parameters
    ----------
    n_components : int or "infinite"
        Largest number of clusters; too large a number does little harm. ``"infinite"`` is a
        Dirichlet process, with as many clusters as the data need; ``"map"`` and ``"vi"`` end it
        after 64.
    prior : name or settings object
        Prior of the centres: ``"mutual-angular"`` (:class:`~wideangle.MutualAngularPrior`) lets
        them repel each other, ``"vmf"`` (:class:`~wideangle.VonMisesFisherPrior`) draws them
        independently and uniformly.
    inference : name or settings object
        ``"map"`` (:class:`~wideangle.Maximise`) maximises over centres and concentrations,
        ``"mcmc"`` (:class:`~wideangle.Sampling`) draws from the posterior, ``"vi"``
        (:class:`~wideangle.Variational`) approximates it.
    alpha : float or "learn"
        Total mass of the Dirichlet distribution of the weights, or that of the Dirichlet process:
        small values use few clusters. ``"learn"`` gives it an exponential prior of mean 10.
    tightness : float in (0, 1) or "auto"
        Expected cosine of a row to the centre of its cluster under the prior, which counts as five
        rows in every cluster. ``"auto"`` takes the mean cosine of a first partition.
    n_jobs : int, optional
        Threads of a fit, as in scikit-learn: -1 is all cores. By default as many as
        ``joblib.parallel_config`` allows, or all cores. Results do not depend on it.
    verbose : bool or int, optional
        Whether to show a progress bar; by default on a terminal only.
    warm_start : bool
        MCMC: another fit to the same rows continues the same chains, up to a larger ``n_draws``,
        or with ``n_draws="auto"`` for another ``max_time``.
    random_state : int, RandomState or None
        Seed.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        As in scikit-learn.
    cluster_centers_ : array (K, p)
        Mean directions, of length one. For ``"mcmc"`` those of one draw, whose partition is closest
        to all others.
    concentrations_ : array (K,)
        Concentrations of the clusters.
    weights_ : array (K,)
        Shares of the clusters.
    labels_ : array (N,)
        Cluster of each training row; for ``"mcmc"`` the summary partition. Not available after
        :meth:`fit_stream`.
    n_used_ : float
        Number of nonempty clusters; for ``"mcmc"`` the mean over draws. The arrays above leave out
        empty ones, so K may be below ``n_components``.
    alpha_, tightness_ : float
        As given or as learned.
    posterior_ : Mixture or None
        For ``"mcmc"``, up to 64 raw states of every chain, axes (chain, state, ...).
    trace_ : Draws
        Quantities that do not depend on how clusters are numbered.
    diagnostics_ : Summary or None
        R-hat and effective sample size of the trace (``"mcmc"``).
    diversity_ : Diversity
        Angles between the centres.
    strength_ : float
        Concentration of the centres' prior: kappa.
    n_iter_ : int
        Passes over the rows; for ``"mcmc"`` draws in all chains.
    notes_ : dict
        About the fit: the bound (``"bound"``), or why chains ended (``"ending"``).

    Notes
    -----
    A row of zeros has no direction: fits leave it out, its cluster probabilities are the weights,
    and its density is that of the uniform distribution. A row of weight w counts as w rows,
    which chains keep in one cluster.

    Examples
    --------
    >>> import numpy as np
    >>> from wideangle import SphericalMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat(np.eye(3), 50, axis=0) + 0.1 * rng.normal(size=(150, 3))
    >>> model = SphericalMixture(3, random_state=0).fit(X)
    >>> sorted(np.bincount(model.labels_).tolist())
    [50, 50, 50]
    """

    presentation: ClassVar[type[ClusterPresentation]] = ClusterPresentation
    _files: ClassVar[Any] = files
    _allows_missing: ClassVar[bool] = False
    _choices: ClassVar[dict[str, Choices]] = {"prior": OUR_PRIORS, "inference": INFERENCES}
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [SEVERAL, StrOptions({"infinite"})],
        "prior": [StrOptions(set(OUR_PRIORS)), *OUR_PRIORS.values()],
        "inference": [StrOptions(set(INFERENCES)), *INFERENCES.values()],
        "alpha": [Interval(Real, 1e-4, 1e5, closed="both"), StrOptions({LEARN})],
        "tightness": [Interval(Real, 0, 1, closed="neither"), StrOptions({"auto"})],
        "n_jobs": [Integral, None],
        "verbose": ["verbose", None],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
    }

    n_components: Any = 50
    _: KW_ONLY
    prior: Any = "mutual-angular"
    inference: Any = "map"
    alpha: Any = LEARN
    tightness: Any = "auto"
    n_jobs: int | None = None
    verbose: bool | None = None
    warm_start: bool = False
    random_state: Any = None

    @in_own_threads
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SphericalMixture:
        """Fit to rows X (dense or CSR); y is ignored."""
        self._validate_params()
        X = self._validated(X, ensure_min_features=2)
        check_plain("sample_weight", sample_weight)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        check_total_weight(weights)
        units, live = as_units(X)
        rows = MemoryRows(units, weights * live)
        if not rows.weights.any():
            raise ValueError(
                f"none of the {len(weights)} rows counts: each is zero in all columns, and has no "
                "direction, or has weight 0."
            )
        rng = np.random.default_rng(self._draw_seed())
        task = plan(self, int((rows.weights > 0).sum()), X.shape[1])
        if isinstance(task.inference, Sampling):
            fitted = self._sampled(rng, task, rows)
        else:
            self._last_chains = None
            fitted = ascent.fit(rng, task, rows, rows.sample(rng, ascent.SAMPLE))
        self._keep(fitted, rows)
        return self

    def _sampled(self, rng: np.random.Generator, task: Task, rows: MemoryRows) -> Fitted:
        """Draws of new chains, or more from those of the last fit."""
        began = time.monotonic()
        mark = sampling.mark_of(task, rows) if self.warm_start else None
        chains = None if mark is None else self._chains_of(mark)
        if chains is None:
            chains = sampling.begin(rng, task, rows)
        fitted = sampling.fit(chains, task, rows, began=began)
        self._last_chains = None if mark is None else (mark, chains)
        return fitted

    @in_own_threads
    def fit_stream(self, source: Any) -> SphericalMixture:
        """Fit by ``"map"`` or ``"vi"`` to rows that stay on disk, read once in every pass.

        Parameters
        ----------
        source : RowSource
            ``wideangle.streaming.NpyRows``, ``ParquetRows``, ``DaskRows``, ``CsrRows``, or your
            own.
        """
        self._validate_params()
        if isinstance(self.choice("inference"), Sampling):
            raise ValueError("inference='mcmc': rows on disk are for 'map' and 'vi'.")
        if not hasattr(source, "read"):
            raise TypeError(
                f"source={type(source).__name__}: rows that stay where they are need a source, "
                "such as wideangle.streaming.NpyRows(path or array)."
            )
        self._take_columns(source)
        rng = np.random.default_rng(self._draw_seed())
        sample = sample_source(source, rng, ascent.SAMPLE)
        task = plan(self, *source.shape)
        self._keep(ascent.fit(rng, task, SourceRows(source), sample), None)
        return self

    def _validate_params(self) -> None:
        super()._validate_params()
        check_choices(self.choice("prior"), self.choice("inference"))

    def _keep(self, fitted: Fitted, rows: MemoryRows | None) -> None:
        """Store the result, and warn."""
        self.cluster_centers_, self.concentrations_, self.weights_ = fitted.mixture
        self.posterior_ = fitted.kept
        self.alpha_, self.notes_ = float(fitted.alpha), fitted.notes
        self.tightness_ = float(fitted.prior.cosine)
        self.strength_ = float(fitted.prior.strength)
        self.n_iter_ = int(fitted.notes["n_passes"])
        sampled = isinstance(self.choice("inference"), Sampling)
        self.trace_ = Draws(fitted.trace, needed=sampling.NEEDED if sampled else None)
        self.diagnostics_ = self.trace_.summary() if sampled else None
        self.n_used_ = float(np.mean(fitted.trace["n_used"]) if sampled else len(self.weights_))
        if fitted.labels is not None:
            self.labels_ = fitted.labels
        elif rows is not None:
            parameters = predictive.log_mixture(self._mixture)
            parts = [np.argmax(found, axis=1) for found, _ in shares(rows, *parameters)]
            self.labels_ = np.concatenate(parts)
        if sentence := caution_of(self):
            warn(sentence)

    # ---- what was found

    @property
    def _mixture(self) -> Mixture:
        return Mixture(self.cluster_centers_, self.concentrations_, self.weights_)

    # ---- rows

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._validated(X, reset=False)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability that each row belongs to each of the clusters, (N, K)."""
        X = self._rows(X)
        return predictive.describe(self._mixture, X)[0]

    def predict(self, X: Any) -> np.ndarray:
        """Most probable cluster of each row."""
        return np.argmax(self.predict_proba(X), axis=1)

    def score_samples(self, X: Any) -> np.ndarray:
        """Log density of each row on the sphere; for ``"mcmc"`` the log of the mean over draws."""
        X = self._rows(X)
        return predictive.mean_log_density(self._states(), X) - log_area(X.shape[1])

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of the rows."""
        return float(np.mean(self.score_samples(X)))

    def similarity(self, X: Any) -> np.ndarray:
        """Probability that two rows belong to the same cluster, averaged over draws, (N, N)."""
        return predictive.similarity(self._states(), self._rows(X))

    def _states(self) -> list[Mixture]:
        check_is_fitted(self)
        kept = self.posterior_
        return [self._mixture] if kept is None else predictive.states_of(kept)

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows from the mixture, and the clusters they come from."""
        check_is_fitted(self)
        check_count("n_samples", n_samples, 1)
        rng = np.random.default_rng(self._draw_seed())
        mixture = self._mixture
        labels = rng.choice(len(mixture.weights), n_samples, p=mixture.weights)
        key = jax.random.key(int(rng.integers(2**31)))
        natural = mixture.concentrations[labels, None] * mixture.directions[labels]
        drawn = vmf.sample(key, jnp.asarray(natural, jnp.float32))
        return np.asarray(drawn, np.float64), labels

    # ---- files

    def to_arviz(self) -> Any:
        """Draws for ArviZ: the trace, and raw states of the chains in ``posterior_raw``."""
        check_is_fitted(self)
        return files.to_arviz(self)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "weights_")
