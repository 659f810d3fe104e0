"""Infinite latent features as a scikit-learn transformer."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from wideangle.base import ShowsFacts
from wideangle.diagnostics import warn
from wideangle.latent_features import files as lfm_saving
from wideangle.latent_features import fit as lfm_fit
from wideangle.latent_features import posterior as lfm_posterior
from wideangle.latent_features import settings as lfm_prepare
from wideangle.latent_features import stream_fit as lfm_stream_fit
from wideangle.latent_features.components import sample_rows
from wideangle.latent_features.facts import facts
from wideangle.latent_features.predict import score as lfm_score
from wideangle.latent_features.rows.imputed import ImputedRows
from wideangle.latent_features.rows.memory import FeatureRows
from wideangle.posterior import Draws
from wideangle.sharding import current_mesh, dividing
from wideangle.sphere.diversity import Diversity, diversity

PRIORS = ("mutual-angular", "gaussian", "vmf")
PROCESSES = ("ibp", "pitman-yor")
LEARN = "learn"


class DisagreementWarning(UserWarning):
    """Independent searches or chains found different features."""


class LatentFeatureModel(
    ShowsFacts, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    r"""Rows as sums of a few features each, out of as many features as the data ask for.

    Each row is :math:`x_n = \sum_k z_{nk} w_k` plus Gaussian noise, with :math:`z_{nk}` on or off.
    The number of features is learned.

    Parameters
    ----------
    prior : {"mutual-angular", "gaussian", "vmf"}
        Prior of the feature vectors. ``"mutual-angular"`` pushes their directions apart (the
        paper's IMA), ``"vmf"`` draws directions uniformly and lengths from the same Gamma law,
        ``"gaussian"`` is the usual baseline.
    process : {"ibp", "pitman-yor"}
        Law of the number of features and of how often each is used: the Indian buffet, or its
        power-law extension with many rare features. The latter needs exchangeable features:
        ``"gaussian"`` or ``"vmf"``.
    alpha : float or "learn"
        Expected number of features of a row.
    discount : float in [0, 0.5) or "learn"
        Pitman-Yor: how heavy the tail of rare features is.
    strength : float or "learn"
        Pitman-Yor: 1 gives the two-parameter process.
    concentration : float or "learn", optional
        Strength :math:`\kappa` of the mutual-angular prior. By default ``cosine`` sets it.
    cosine : float in [0, 1)
        Strength as the expected cosine against the resultant of the features before, the same in
        every dimension. A fixed :math:`\kappa` such as 1, the paper's setting, is no prior at all
        in hundreds of dimensions.
    noise_scale : float, "learn" or "paper"
        Standard deviation of the noise, in units of the data; ``"paper"`` fixes it at half the
        standard deviation of all entries.
    magnitude_shape : float
        Shape of the Gamma law of the lengths of features.
    magnitude_rate : float, "auto" or "learn"
        Its rate, in units of the data; for Gaussian features the precision of an entry. ``"auto"``
        takes what fits the features that the search found. ``"learn"`` makes it part of the
        posterior, where it and the number of short features that explain nothing hold each other
        up, so that chains need to be longer.
    centre : bool
        Subtract column means, as the paper does. Off by default: centring turns features that are
        on or off into signed ones. Sparse rows stay sparse.
    n_warmup, n_draws, n_chains : int
        Length and number of the chains.
    n_kept : int
        States kept per chain, evenly spaced among its draws: memory is
        ``n_chains * n_kept * (4 K D + N K / 8)`` bytes, beside the data, one N x K array of floats
        per chain at work, and no other array that grows with N.
    max_features : int
        Most features that the search before the chains looks for.
    hops : int, optional
        Tries of the search to improve on what it has; by default as many as pay off.
    min_presence : float
        Share of the draws that must have a feature for it to be a component.
    price : float
        A feature matters in a draw if removing it costs more log-likelihood than this many times
        the nats needed to write down its rows and its vector.
    n_jobs : int, optional
        Chains run at once; all cores by default.
    device : {"cpu", "gpu"}, optional
        Where the sweeps run; by default on JAX's default device. Rows with missing entries stay on
        the CPU.
    checkpoint : path, optional
        Folder to save the chains to while they run; a fit with the same data and settings takes
        up where they stopped, to the same bits.
    progress : bool, optional
        Show a bar; by default on a terminal.
    random_state : int, RandomState or None
        Seed.

    Attributes
    ----------
    components_ : array (n_components_, D)
        Features that matter, matched across draws and averaged, most energy first.
    n_components_ : int
        Their number.
    presence_, prevalence_ : array (n_components_,)
        Share of draws that have the component, and share of rows that use it.
    posterior_ : Draws
        Kept states, raw: every feature of every draw, padded with zeros.
    trace_ : Draws
        Numbers of every draw that do not depend on the numbering of features; log densities are
        those of rows divided by ``units_.scale``.
    diagnostics_ : Summary
        R-hat and effective sample size of them.
    start_objectives_ : array (n_chains,)
        What the search for features reached, once per chain.
    noise_scale_, alpha_, concentration_ : float
        Posterior means.

    Notes
    -----
    NaN entries are missing data and imputed inside the sampler.

    Examples
    --------
    >>> import numpy as np
    >>> from wideangle import LatentFeatureModel
    >>> rng = np.random.default_rng(0)
    >>> features = np.array([[3.0, 3.0, 0, 0, 0, 0], [0, 0, 0, 3.0, 0, 3.0]])
    >>> X = rng.integers(0, 2, (100, 2)) @ features + 0.3 * rng.normal(size=(100, 6))
    >>> model = LatentFeatureModel(n_warmup=20, n_draws=20, n_chains=2, random_state=0).fit(X)
    >>> model.components_.shape
    (2, 6)
    """

    # Ranges end where single precision does; those in units of the data are checked with them.
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "prior": [StrOptions(set(PRIORS))],
        "process": [StrOptions(set(PROCESSES))],
        "alpha": [Interval(Real, 1e-6, 1e6, closed="both"), StrOptions({LEARN})],
        "discount": [Interval(Real, 0, 0.5, closed="left"), StrOptions({LEARN})],
        "strength": [Interval(Real, 1e-6, 1e6, closed="both"), StrOptions({LEARN})],
        "concentration": [Interval(Real, 0, 1e6, closed="both"), StrOptions({LEARN}), None],
        "cosine": [Interval(Real, 0, 1, closed="left")],
        "noise_scale": [Interval(Real, 0, None, closed="neither"), StrOptions({LEARN, "paper"})],
        "magnitude_shape": [Interval(Real, 0.1, 1e6, closed="both")],
        "magnitude_rate": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto", LEARN})],
        "centre": ["boolean"],
        "n_warmup": [Interval(Integral, 0, None, closed="left")],
        "n_draws": [Interval(Integral, 1, None, closed="left")],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
        "n_kept": [Interval(Integral, 1, None, closed="left")],
        "max_features": [Interval(Integral, 1, None, closed="left")],
        "hops": [Interval(Integral, 0, None, closed="left"), None],
        "min_presence": [Interval(Real, 0, 1, closed="right")],
        "price": [Interval(Real, 0, None, closed="left")],
        "n_jobs": [Integral, None],
        "device": [StrOptions({"cpu", "gpu"}), None],
        "checkpoint": "no_validation",
        "progress": ["boolean", None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        prior: str = "mutual-angular",
        process: str = "ibp",
        *,
        alpha: Any = LEARN,
        discount: Any = 0.25,
        strength: Any = 1.0,
        concentration: Any = None,
        cosine: float = 0.1,
        noise_scale: Any = LEARN,
        magnitude_shape: float = 2.0,
        magnitude_rate: Any = "auto",
        centre: bool = False,
        n_warmup: int = 100,
        n_draws: int = 200,
        n_chains: int = 4,
        n_kept: int = 25,
        max_features: int = 200,
        hops: int | None = None,
        min_presence: float = 0.5,
        price: float = 1.0,
        n_jobs: int | None = None,
        device: str | None = None,
        checkpoint: Any = None,
        progress: bool | None = None,
        random_state: Any = None,
    ) -> None:
        self.prior = prior
        self.process = process
        self.alpha = alpha
        self.discount = discount
        self.strength = strength
        self.concentration = concentration
        self.cosine = cosine
        self.noise_scale = noise_scale
        self.magnitude_shape = magnitude_shape
        self.magnitude_rate = magnitude_rate
        self.centre = centre
        self.n_warmup = n_warmup
        self.n_draws = n_draws
        self.n_chains = n_chains
        self.n_kept = n_kept
        self.max_features = max_features
        self.hops = hops
        self.min_presence = min_presence
        self.price = price
        self.n_jobs = n_jobs
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> LatentFeatureModel:
        """Fit to rows X, dense (NaN is missing) or CSR; y is ignored."""
        self._validate_params()
        X = self._check(X, reset=True)
        self._check_settings(X)
        self.units_ = lfm_prepare.learn_units(X, centre=self.centre)
        matrix, offset = self.units_.apply(X)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        self._seed = int(seed)
        key = jax.random.key(seed, impl="threefry2x32")
        on_device, mesh = lfm_prepare.use_device(self.device, matrix), current_mesh()
        design, values = lfm_prepare.design_of(self, X.shape[1], self.units_, on_device)
        rows = lfm_prepare.make_rows(matrix, offset)
        how = lfm_fit.Settings(
            lfm_fit.Plan(self.n_warmup, self.n_draws, self.n_kept),
            self.n_chains,
            lfm_fit.n_workers(self.n_jobs, self.n_chains),
            self.max_features,
            self.hops,
            None if self.checkpoint is None else Path(self.checkpoint),
            lfm_prepare.fingerprint_of(self, matrix, offset, seed),
            self.progress,
            on_device,
            dividing(mesh, X.shape[0]) if on_device and mesh is not None else None,
        )

        def make_rows() -> FeatureRows:
            """Chains share rows, but not what stands in missing entries."""
            shared = not isinstance(rows, ImputedRows)
            return rows if shared else lfm_prepare.make_rows(matrix, offset)

        fitted = lfm_fit.fit(key, make_rows, design, values, how)
        self.interrupted_ = fitted.interrupted
        self.start_objectives_ = fitted.objectives
        self.chains_ = lfm_posterior.gather(fitted.chains)
        found = lfm_posterior.components(
            self.chains_, rows, price=self.price, min_presence=self.min_presence
        )
        self._keep(found, rows.n_rows)
        return self

    def fit_stream(self, source: Any, *, folder: Any = None) -> LatentFeatureModel:
        """Fit to rows that stay on disk, by exact sweeps over all of them.

        Chains begin on a sample and then sweep over all rows, one after the other. Assignments
        are kept on disk, a byte for each row and feature; memory does not depend on the number
        of rows. What is kept of a draw are its features and the assignments of the sample.

        Parameters
        ----------
        source : RowSource
            ``wideangle.streaming.NpyRows``, ``ParquetRows``, or your own; no missing entries.
        folder : path, optional
            Where assignments are kept meanwhile; by default the system's folder for such files.
        """
        self._validate_params()
        self._check_settings(source)
        if self.checkpoint is not None or self.device == "gpu":
            raise ValueError("checkpoint and device='gpu' are for rows in memory: leave them out.")
        self.n_features_in_ = source.shape[1]
        if source.names is not None:
            self.feature_names_in_ = np.asarray(source.names, dtype=object)
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        fitted = lfm_stream_fit.fit_stream(self, source, self._seed, folder)
        self.units_, self.interrupted_ = fitted.units, fitted.interrupted
        self.start_objectives_ = fitted.objectives
        self.chains_ = lfm_posterior.gather(fitted.chains)
        self._keep(fitted.matched, fitted.n_sample)
        return self

    def _check(self, X: Any, reset: bool) -> Any:
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            reset=reset,
        )
        if sparse.issparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X

    def _check_settings(self, X: Any) -> None:
        if self.prior == "mutual-angular" and self.process == "pitman-yor":
            raise ValueError(
                "process='pitman-yor' needs features without an order: use prior='gaussian' or "
                "prior='vmf' (the mutual-angular prior ties their order to their weights)."
            )
        if self.prior != "gaussian" and X.shape[1] == 1:
            raise ValueError(
                "X has n_features = 1: directions need at least two columns; use prior='gaussian'."
            )

    def _keep(self, found: Any, n_rows: int) -> None:
        """Derive components and diagnostics from the draws; warn in plain words."""
        self.matched_ = found
        self.n_rows_ = n_rows
        self._name_components()
        self._summarise()
        if self.interrupted_:
            warnings.warn(
                "interrupted: the draws up to then are kept", RuntimeWarning, stacklevel=3
            )
        warn(self.trace_.warnings(self.diagnostics_))
        for sentence in lfm_posterior.disagreements(self):
            warnings.warn(sentence, DisagreementWarning, stacklevel=3)

    def _name_components(self) -> None:
        found = self.matched_
        self.components_ = found.components * self.units_.scale
        self.n_components_ = len(self.components_)
        self.presence_, self.prevalence_ = found.presence, found.prevalence

    def _summarise(self) -> None:
        gaussian = self.prior == "gaussian"
        self.trace_ = Draws(lfm_posterior.trace(self.chains_, self.units_, gaussian=gaussian))
        self.diagnostics_ = self.trace_.summary()
        values = self.trace_.values
        self.noise_scale_ = float(np.mean(values["noise_scale"]))
        self.alpha_ = float(np.mean(values["alpha"]))
        self.concentration_ = float(np.mean(values["concentration"]))
        self.n_iter_ = self.trace_.n_chains * self.trace_.n_draws

    def transform(self, X: Any) -> np.ndarray:
        """Posterior probability that each row uses each component, (N, n_components_)."""
        check_is_fitted(self)
        X = self._check(X, reset=False)
        matrix, offset = self.units_.apply(X)
        draws, numbers = lfm_posterior.some_draws(self.chains_)
        return lfm_score.activation(
            draws, self.matched_.index[numbers], matrix, self._seed, offset=offset
        )

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Rows from activations of the components, (N, D)."""
        check_is_fitted(self)
        activations = np.asarray(X.toarray() if sparse.issparse(X) else X, np.float64)
        if activations.shape[1:] != (self.n_components_,):
            expected = f"(n, {self.n_components_})"
            raise ValueError(f"X: must have shape {expected}, got {activations.shape}.")
        return activations @ self.components_ + self.units_.shift

    def reconstruct(self, X: Any) -> np.ndarray:
        """Posterior mean of each row without its noise, missing entries filled in, (N, D)."""
        check_is_fitted(self)
        X = self._check(X, reset=False)
        matrix, offset = self.units_.apply(X)
        draws, _ = lfm_posterior.some_draws(self.chains_)
        rows = lfm_score.expected_rows(draws, matrix, self._seed, offset=offset)
        return rows * self.units_.scale

    def score_samples(self, X: Any) -> np.ndarray:
        """Log density of each row with its assignments summed out, (N,); NaN is left out.

        Exact for few features, by annealed importance sampling for more. Features of no training
        row are ignored.
        """
        check_is_fitted(self)
        X = self._check(X, reset=False)
        matrix, offset = self.units_.apply(X)
        draws, _ = lfm_posterior.some_draws(self.chains_)
        scores = lfm_score.log_likelihood(draws, matrix, self._seed, offset=offset)
        return scores - lfm_prepare.n_seen(X) * np.log(self.units_.scale)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of :meth:`score_samples`: held-out log-likelihood per row."""
        return float(np.mean(self.score_samples(X)))

    def score_entries(self, X: Any, mask: Any) -> lfm_score.EntryScores:
        """Predict the entries of X that ``mask`` marks from the other entries of their rows.

        Mean and log density of each, in the order of ``numpy.nonzero(mask)``. Fit on X with these
        entries set to NaN and compare settings by the mean log density: more features bring no
        gain by themselves.
        """
        check_is_fitted(self)
        X = self._check(X, reset=False)
        mask = mask if sparse.issparse(mask) else np.asarray(mask, bool)
        if mask.shape != X.shape:
            raise ValueError(f"mask: must have the shape of X, {X.shape}, got {mask.shape}.")
        matrix, offset = self.units_.apply(X)
        draws, _ = lfm_posterior.some_draws(self.chains_)
        found = lfm_score.score_entries(draws, matrix, mask, self._seed, offset=offset)
        scale = self.units_.scale
        return lfm_score.EntryScores(found.mean * scale, found.log_density - np.log(scale))

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """New rows from the posterior predictive law, (n_samples, D)."""
        check_is_fitted(self)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        draws, _ = lfm_posterior.some_draws(self.chains_)
        turns = rng.integers(len(draws), size=n_samples)
        rows = np.concatenate(
            [sample_rows(draws[i], int(np.sum(turns == i)), rng) for i in range(len(draws))]
        )
        return rng.permutation(rows) * self.units_.scale + self.units_.shift

    @property
    def posterior_(self) -> Draws:
        """Kept states, raw, padded with zeros and in units of the data; made when asked for."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError("posterior_: call fit first")
        return lfm_posterior.as_draws(self.chains_, self.units_)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether a fit has come to its end."""
        return hasattr(self, "diagnostics_")

    @property
    def diversity_(self) -> Diversity:
        """Angles between the components."""
        check_is_fitted(self)
        return Diversity(*(float(value) for value in diversity(self.matched_.components)))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def to_arviz(self) -> Any:
        """Draws for ArviZ: numbers that can be compared between chains, and raw states, apart."""
        check_is_fitted(self)
        return lfm_posterior.to_arviz(self.trace_, self.posterior_)

    def _facts(self) -> list[tuple[str, str]]:
        return facts(self)

    def save(self, path: Any) -> None:
        """Write the fitted model to one file (arrays and JSON; loading it runs no code)."""
        lfm_saving.save(self, path)

    @classmethod
    def load(cls, path: Any) -> LatentFeatureModel:
        """Read a model written by :meth:`save`; a damaged file raises a clear error."""
        return lfm_saving.load(cls, path)

    def __sklearn_tags__(self) -> Any:
        """Sparse input and missing entries are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags
