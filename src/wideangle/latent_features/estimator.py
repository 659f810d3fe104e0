"""Infinite latent features as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from wideangle.base import Family
from wideangle.checks import check_count, check_path, warn
from wideangle.convergence import caution_of
from wideangle.latent_features import files, score
from wideangle.latent_features.chain import Plan
from wideangle.latent_features.fit import (
    CLIMB,
    MAX_FEATURES,
    Fitted,
    Task,
    fit,
)
from wideangle.latent_features.posterior import (
    NEEDED,
    agreement,
    as_draws,
    gather,
    match,
    some_draws,
    to_arviz,
    trace,
)
from wideangle.latent_features.presentation import FeaturePresentation
from wideangle.latent_features.rows import home_of, on_device, rows_in_memory, rows_on_device
from wideangle.latent_features.settings import (
    check_choices,
    design_of,
    fingerprint_of,
    learn_scaling,
    magnitude_shape_of,
    n_observed,
)
from wideangle.latent_features.state import Draw
from wideangle.posterior import Draws
from wideangle.settings import (
    AUTO,
    LEARN,
    PRIORS,
    PROCESSES,
    DeterminantalPrior,
    Sampling,
    as_plain,
)
from wideangle.sharding import in_own_threads, n_threads, reading_share
from wideangle.streaming.sources import neighbours
from wideangle.types import as_dense

_PRIORS = {name: kind for name, kind in PRIORS.items() if kind is not DeterminantalPrior}


@dataclass(repr=False, eq=False)
class LatentFeatureModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Family):
    r"""Rows as sums of a few features each, out of as many features as the data need.

    Each row is :math:`x_n = \sum_k z_{nk} w_k` plus Gaussian noise, with :math:`z_{nk}` on or off.
    The number of features is learned.

    Parameters
    ----------
    prior : {"mutual-angular", "gaussian", "vmf"} or a prior object
        Prior of the feature vectors: :class:`~wideangle.MutualAngularPrior` pushes their directions
        apart (the paper's IMA), :class:`~wideangle.VonMisesFisherPrior` draws directions uniformly
        and lengths from the same Gamma distribution, :class:`~wideangle.GaussianPrior` is the usual
        baseline. The repulsion has an expected cosine of 0.1 unless it is set. Their ``scale`` is
        in units of the data: ``"auto"``, the default, fits it to the features that the search
        found; ``"learn"`` makes it part of the posterior, which needs longer chains, because it
        depends on the number of short features that explain nothing.
    process : {"ibp", "pitman-yor"} or a process object
        How many features there are and how often each is used: :class:`~wideangle.IndianBuffet`, or
        its power-law extension :class:`~wideangle.PitmanYor` with many rare features. The latter
        needs exchangeable features: a Gaussian or von Mises-Fisher prior.
    inference : Sampling, optional
        Length and number of the chains. By default they warm up until the log density no longer
        rises, then run for as many sweeps as predictions need, at most five minutes; up
        to 64 draws of each chain are kept. Rows on disk, and chains of a given length, have by
        default 100 sweeps of warm-up and 25 draws, one every 8 sweeps. The default kernel is
        ``"hmc"`` on an accelerator and ``"gibbs"`` on the CPU. Memory in addition to the data:
        ``n_chains * n_draws * (4 K D + N K / 8)`` bytes, and three N x K arrays of floats for each
        running chain, of which there are at most ``n_jobs``.
    noise_scale : float, "learn" or "paper"
        Standard deviation of the noise, in units of the data; ``"paper"`` fixes it at half the
        standard deviation of all entries.
    standardise : bool
        Subtract column means, as the paper does. Off by default, since it turns on/off features
        into signed ones. Sparse rows stay sparse.
    checkpoint : path, optional
        Folder to save the chains to while they run; a fit with the same data and settings
        continues where they stopped, to the same bits.
    n_jobs : int, optional
        Threads of a fit, as in scikit-learn: -1 is all cores. By default as many as
        ``joblib.parallel_config`` allows, or all cores. Results do not depend on it.
    verbose : bool or int, optional
        Whether to show a progress bar; by default on a terminal only.
    warm_start : bool
        Another fit to the same rows continues the same chains, up to a larger ``n_draws``, or
        with ``n_draws="auto"`` for another ``max_time``.
    random_state : int, RandomState or None
        Seed.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        As in scikit-learn.
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
        those of rows divided by ``scaling_.scale``.
    diagnostics_ : Summary
        R-hat and effective sample size of the trace; ``needed`` marks what predictions depend on.
    start_objectives_ : array (n_chains,)
        Objective that the searches for features reached: the best of several short ones, continued.
    search_agreement_ : float
        Share of the searches that reached the best objective.
    chain_weights_ : array (n_chains,)
        Weight of each chain in predictions: equal, or with ``combine="stacking"`` the weights that
        best predict a twentieth of the entries, hidden from the fit. Components and numbers of
        features weight chains equally.
    noise_scale_, alpha_, concentration_ : float
        Posterior means.
    diversity_ : Diversity
        Angles between the components.
    matched_ : Matched
        How components were matched across draws and chains.
    scaling_ : Scaling
        Shift of the columns, and scale of all entries, inside the model.
    chains_
        What the fit keeps of its chains; ``posterior_`` and ``trace_`` are made from it.
    n_rows_, n_iter_ : int
        Number of rows of the fit, and of draws in all chains.
    interrupted_ : bool
        Whether Ctrl-C ended the fit.
    notes_ : dict
        Why and when chains of no fixed length ended (``"ending"``).

    Notes
    -----
    NaN entries are missing data and imputed inside the sampler.

    Examples
    --------
    >>> import numpy as np
    >>> from wideangle import LatentFeatureModel, Sampling
    >>> rng = np.random.default_rng(0)
    >>> features = np.array([[3.0, 3.0, 0, 0, 0, 0], [0, 0, 0, 3.0, 0, 3.0]])
    >>> X = rng.integers(0, 2, (100, 2)) @ features + 0.3 * rng.normal(size=(100, 6))
    >>> chains = Sampling(n_warmup=20, n_draws=20, n_chains=2, thin=1)
    >>> model = LatentFeatureModel(inference=chains, random_state=0).fit(X)
    >>> model.components_.shape
    (2, 6)
    """

    presentation: ClassVar[type[FeaturePresentation]] = FeaturePresentation
    _files: ClassVar[Any] = files
    _choices: ClassVar[Any] = {
        "prior": _PRIORS,
        "process": PROCESSES,
        "inference": {None: Sampling},
    }
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "prior": [StrOptions(set(_PRIORS)), *_PRIORS.values()],
        "process": [StrOptions(set(PROCESSES)), *PROCESSES.values()],
        "inference": [Sampling, None],
        # In units of the data, so its value is checked against them.
        "noise_scale": [Interval(Real, 0, None, closed="neither"), StrOptions({LEARN, "paper"})],
        "standardise": ["boolean"],
        "checkpoint": "no_validation",
        "n_jobs": [Integral, None],
        "verbose": ["verbose", None],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
    }

    prior: Any = "mutual-angular"
    process: Any = "ibp"
    _: KW_ONLY
    inference: Sampling | None = None
    noise_scale: Any = LEARN
    standardise: bool = False
    checkpoint: Any = None
    n_jobs: int | None = None
    verbose: bool | None = None
    warm_start: bool = False
    random_state: Any = None

    @in_own_threads
    def fit(self, X: Any, y: Any = None) -> LatentFeatureModel:
        """Fit to rows X, dense (NaN is missing) or CSR; y is ignored."""
        self._validate_params()
        X = self._validated(X)
        self._check_choices(X.shape[1])
        key = self._key()
        equal = self.choice("inference").combine == "equal"
        hidden, seen = (None, X) if equal else score.hide(X, self._seed)
        self.scaling_ = learn_scaling(seen, standardise=self.standardise)
        matrix, offset = self.scaling_.apply(seen)
        with home_of(matrix):
            self._keep(self._run(key, matrix, offset), X.shape[0])
        if hidden is not None:
            matrix, offset = self.scaling_.apply(X)
            found = score.chain_weights(self.chains_, matrix, hidden, self._seed, offset)
            self.chains_ = self.chains_._replace(stacked=found)
        return self

    def _run(self, key: Any, matrix: Any, offset: np.ndarray | None) -> Fitted:
        """Search for features and run the chains on rows in memory."""
        in_memory = rows_in_memory(matrix, offset, self.choice("inference").n_chains)
        there = on_device(matrix)
        rows = rows_on_device(in_memory) if there else [*in_memory]
        task = self._task(matrix.shape, self._plan(), on_device=there)
        inference = self.choice("inference")
        if inference.n_draws == AUTO:
            plan = task.plan
            if inference.n_warmup is None and not task.design.hamiltonian:
                # Chains climb before they begin, and have no step sizes to tune.
                plan = plan._replace(n_warmup=CLIMB)
            longest = inference.max_time
            longest = self.presentation.max_time if longest is None else longest
            task = replace(task, plan=plan, max_time=longest)
        settings = self._plain_settings() | {"on_device": there}
        if self.checkpoint is not None:
            mark = fingerprint_of(settings, matrix, offset, self._seed)
            task = replace(task, checkpoint=Path(self.checkpoint), fingerprint=mark)
        if not self.warm_start:
            self._last_chains = None
            return fit(key, in_memory, rows, task)
        # Longer chains, or other chain weights, still belong to the same fit.
        settings["inference"] = as_plain(self.choice("inference").of_any_length())
        mark = fingerprint_of(settings, matrix, offset, 0)
        fitted = fit(key, in_memory, rows, task, self._chains_of(mark))
        self._last_chains = None if fitted.interrupted else (mark, fitted)
        return fitted

    @in_own_threads
    def fit_stream(self, source: Any, *, folder: Any = None) -> LatentFeatureModel:
        """Fit to rows that stay on disk, by exact sweeps over all of them.

        Chains begin on a sample and then sweep over all rows, one after the other. Assignments
        are kept on disk, a byte for each row and feature; memory does not depend on the number
        of rows. Each kept draw has its features and the assignments of the sample. Under
        ``rows_over`` of several processes each reads and keeps a part of the rows; the draws are
        those of one process.

        Parameters
        ----------
        source : RowSource
            ``wideangle.streaming.NpyRows``, ``ParquetRows``, ``DaskRows``, ``CsrRows``, or your
            own; no missing entries.
        folder : path, optional
            Where assignments are kept during the fit; by default the system's temporary folder.
        """
        from wideangle.latent_features import disk

        self._validate_params()
        self._check_choices(source.shape[1])
        if self.checkpoint is not None:
            raise ValueError(
                f"checkpoint={self.checkpoint!r} is for rows in memory: leave it out of fit_stream."
            )
        if self.choice("inference").combine == "stacking":
            raise ValueError(
                "inference.combine='stacking' needs missing entries, which rows on disk cannot "
                "have: use 'equal'."
            )
        self._take_columns(source)
        key = self._key()
        share = reading_share(len(source.starts) - 1)
        _, own = neighbours(source, share)
        self.scaling_ = learn_scaling(own, standardise=self.standardise, share=share)
        sample, some = disk.draw_sample(source, self._seed, share)
        rows = rows_in_memory(*self.scaling_.apply(some), self.choice("inference").n_chains)
        plan = self._plan()
        task = self._task(some.shape, Plan(max(plan.n_warmup, disk.SAMPLE_SWEEPS), 1, 1))
        of_sample = fit(key, rows, [*rows], task)
        where = source, self.scaling_, sample
        fitted = disk.fit_on_disk(of_sample, *where, task.design, plan, folder, self.verbose, share)
        self._keep(fitted, len(sample))
        return self

    def _scaled(self, X: Any) -> tuple[Any, Any, np.ndarray | None]:
        """New rows after checks, the same rows in the units of the draws, and their offset."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        return X, *self.scaling_.apply(X)

    def _check_choices(self, dim: int) -> None:
        if self.checkpoint is not None:
            check_path("checkpoint", self.checkpoint)
        kernel = self.choice("inference").kernel
        check_choices(self.choice("prior"), self.choice("process"), kernel, dim)

    def _key(self) -> Any:
        """The key of a fit; its seed is kept for predictions."""
        self._seed = self._draw_seed()
        return jax.random.key(self._seed, impl="threefry2x32")

    def _plan(self) -> Plan:
        """Length of the chains, with the defaults of this model."""
        chosen = self.choice("inference")
        n_draws = None if chosen.n_draws == AUTO else chosen.n_draws
        given = {"n_warmup": chosen.n_warmup, "n_draws": n_draws, "thin": chosen.thin}
        return Plan(**{k: v for k, v in given.items() if v is not None})

    def _task(self, shape: tuple[int, int], plan: Plan, *, on_device: bool = False) -> Task:
        """Everything that defines the fit."""
        inference = self.choice("inference")
        design, values = design_of(
            self.choice("prior"),
            self.choice("process"),
            self.noise_scale,
            shape,
            self.scaling_.scale,
            hamiltonian=on_device if inference.kernel is None else inference.kernel == "hmc",
        )
        return Task(
            design,
            values,
            plan,
            inference.n_chains,
            min(n_threads(), inference.n_chains),
            inference.max_features or MAX_FEATURES,
            inference.hops,
            self.verbose,
        )

    def _plain_settings(self) -> dict[str, Any]:
        """All settings that change the draws, apart from the data and the seed."""
        names = ("prior", "process", "inference")
        return {name: as_plain(self.choice(name)) for name in names} | {
            "noise_scale": self.noise_scale
        }

    def _keep(self, fitted: Fitted, n_rows: int) -> None:
        """Derive components and diagnostics from the draws, and warn."""
        self.interrupted_ = fitted.interrupted
        self.notes_ = {} if fitted.ending is None else {"ending": fitted.ending._asdict()}
        self.start_objectives_ = fitted.objectives
        self.chains_ = gather(fitted.chains)
        self.matched_ = match(self.chains_.draws, chains=self.chains_.chains)
        self.n_rows_ = n_rows
        self._summarise()
        if self.interrupted_:
            warn("interrupted: the draws up to then are kept", RuntimeWarning)
        if sentence := caution_of(self):
            warn(sentence)

    def _summarise(self) -> None:
        """Set the attributes that summarise the draws; also used after loading."""
        found, prior = self.matched_, self.choice("prior")
        self.components_ = found.components * self.scaling_.scale
        self.n_components_ = len(self.components_)
        self.presence_, self.prevalence_ = found.presence, found.prevalence
        shape = magnitude_shape_of(prior)
        self.trace_ = Draws(trace(self.chains_, self.scaling_, shape), needed=NEEDED)
        self.diagnostics_ = self.trace_.summary()
        values = self.trace_.values
        self.noise_scale_ = float(np.mean(values["noise_scale"]))
        self.alpha_ = float(np.mean(values["alpha"]))
        self.concentration_ = float(np.mean(values["concentration"]))
        self.n_iter_ = self.trace_.n_chains * self.trace_.n_draws

    def transform(self, X: Any) -> np.ndarray:
        """Posterior probability that each row uses each component, (N, n_components_)."""
        X, matrix, offset = self._scaled(X)
        draws, numbers = some_draws(self.chains_)
        return score.activation(
            draws, self.matched_.index[numbers], matrix, self._seed, offset=offset
        )

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Rows from activations of the components, (N, D)."""
        check_is_fitted(self)
        activations = np.asarray(X.toarray() if sparse.issparse(X) else X, np.float64)
        if activations.shape[1:] != (self.n_components_,):
            expected = f"(n, {self.n_components_})"
            raise ValueError(f"X: must have shape {expected}, got {activations.shape}.")
        return activations @ self.components_ + self.scaling_.shift

    def reconstruct(self, X: Any) -> np.ndarray:
        """Posterior mean of each row without its noise, missing entries filled in, (N, D)."""
        X, matrix, offset = self._scaled(X)
        draws, _ = some_draws(self.chains_)
        rows = score.expected_rows(draws, matrix, self._seed, offset=offset)
        return rows * self.scaling_.scale + self.scaling_.shift

    def score_samples(self, X: Any) -> np.ndarray:
        """Log density of each row with its assignments summed out, (N,); NaN is left out.

        Exact for few features, by annealed importance sampling for more. Features of no training
        row are ignored.
        """
        X, matrix, offset = self._scaled(X)
        draws, _ = some_draws(self.chains_)
        found = score.log_likelihood(draws, matrix, self._seed, offset=offset)
        return found - n_observed(X) * np.log(self.scaling_.scale)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of :meth:`score_samples`: held-out log-likelihood per row."""
        return float(np.mean(self.score_samples(X)))

    def score_entries(self, X: Any, mask: Any) -> score.EntryScores:
        """Predict the entries of X that ``mask`` marks from the other entries of their rows.

        Mean and log density of each, in the order of ``numpy.nonzero(mask)``. Fit on X with these
        entries set to NaN and compare settings by the mean log density: this score does not reward
        extra features as such.
        """
        X, matrix, offset = self._scaled(X)
        mask = mask if sparse.issparse(mask) else np.asarray(mask, bool)
        if mask.shape != X.shape:
            raise ValueError(f"mask: must have the shape of X, {X.shape}, got {mask.shape}.")
        draws, _ = some_draws(self.chains_)
        found = score.score_entries(draws, matrix, mask, self._seed, offset=offset)
        shift, scale = self.scaling_
        mean = found.mean * scale + shift[score.places_of(mask)[1]]
        return score.EntryScores(mean, found.log_density - np.log(scale))

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """New rows from the posterior predictive distribution, (n_samples, D)."""
        check_is_fitted(self)
        n_samples = check_count("n_samples", n_samples, 0)
        rng = np.random.default_rng(self._draw_seed())
        draws, _ = some_draws(self.chains_)
        turns = rng.integers(len(draws), size=n_samples)
        rows = np.concatenate(
            [score.sample_rows(draws[i], int(np.sum(turns == i)), rng) for i in range(len(draws))]
        )
        return rng.permutation(rows) * self.scaling_.scale + self.scaling_.shift

    @property
    def search_agreement_(self) -> float:
        """Share of the searches for features that reached the best objective."""
        check_is_fitted(self)
        return agreement(self.start_objectives_, self.n_rows_)

    @property
    def chain_weights_(self) -> np.ndarray:
        """Weight of each chain in predictions; everything else weights chains equally."""
        check_is_fitted(self)
        return self.chains_.weights

    @property
    def posterior_(self) -> Draws:
        """Kept states, raw, padded with zeros and in units of the data; built on first access."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError("posterior_: call fit first")
        return as_draws(self.chains_, self.scaling_)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether a fit has finished."""
        return hasattr(self, "diagnostics_")

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def to_arviz(self, X: Any = None) -> Any:
        """Draws for ArviZ: quantities comparable between chains; raw states are a separate group.

        If rows are given, adds ``log_likelihood``, their log density with assignments summed out in
        every draw, and ``observed_data``: for ``arviz.loo(model.to_arviz(X))``, which leaves out
        one row at a time and is unreliable for wide rows (see its ``pareto_k``); leaving out
        entries, :meth:`score_entries`, compares models better.
        """
        check_is_fitted(self)
        about = None
        if X is not None:
            X, matrix, offset = self._scaled(X)
            units = n_observed(X) * np.log(self.scaling_.scale)

            def density(draw: Draw) -> np.ndarray:
                found = score.log_likelihood([draw], matrix, self._seed, offset=offset)
                return found - units

            about = as_dense(X, slice(None), X.dtype), density
        names = self.presentation(self).entry_names()
        return to_arviz(self.chains_, self.posterior_, self.trace_, names, about)
