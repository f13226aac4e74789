"""The models, the likelihood under many, and the choice of the number of states."""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_random_state

from .. import _core
from .._documentation import with_documentation_of
from .._start import shape_of
from ._base import HMM, Array, Lengths, WithCovariances, checked_lengths, covariance, kmeans, of_all, sequences_of


class GaussianHMM(WithCovariances):
    """A hidden Markov model whose states emit from Gaussians.
    Parameters:
    n_components : int, default=1 -- The number of states.
    covariance_type : str, default='diag' -- 'spherical', 'diag', 'full' or 'tied', or one of mclust's 14, such as 'VEV'.
    min_covar : float, default=1e-3 -- Added to the variances of the start.
    startprob_prior, transmat_prior : float or array-like, default=1.0
        The parameters of Dirichlet distributions, of which the M-step adds the excess over 1 to counts.
    means_prior, means_weight : float or array-like, default=0 -- Prior means, and the number of rows that each stands for.
    covars_prior, covars_weight : float or array-like
        The prior of the covariances: a sum of squares added to those of the rows (on the diagonal, if it is a number), and
        one more (`n_features` more for 'full' and 'tied') than the number of rows added to theirs.
    algorithm : {'viterbi', 'map'}, default='viterbi' -- What `decode` and `predict` find.
    n_iter : int, default=10 -- The largest number of iterations.
    tol : float, default=1e-2 -- A fit ends when the total log-likelihood gains less.
    verbose : bool, default=False -- Whether each iteration is printed.
    params, init_params : str, default='stmc'
        What a fit updates, and what it starts anew: 's' startprob, 't' transmat, 'm' means, 'c' covars.
    implementation : {'log', 'scaling'}, default='log' -- Accepted; one implementation does both.
    device : str, default='cpu' -- Where a fit computes: 'cpu', 'cuda' or 'cuda:N' (the GPU of number N).
    decay : float, default=0.7 -- How fast `partial_fit` forgets early sequences, as of `GaussianMixture`.
    hmmlearn_compatible : bool, default=False -- Whether to reproduce hmmlearn's oddities, which docs/hmm.md lists.
    Attributes:
    startprob_ : ndarray of shape (n_components,) -- The probability of each state at the start.
    transmat_ : ndarray of shape (n_components, n_components) -- The probability of each state after each.
    means_ : ndarray of shape (n_components, n_features) -- The means.
    covars_ : ndarray of shape (n_components, n_features, n_features) -- The covariances.
    monitor_ : ConvergenceMonitor -- The course of the fit.
    Examples:
    >>> import numpy as np
    >>> from gaussmix.hmm import GaussianHMM
    >>> x = np.concatenate([np.zeros(50), np.ones(50), np.zeros(50)])[:, None] + 0.1 * np.sin(np.arange(150))[:, None]
    >>> states = GaussianHMM(2, random_state=0).fit(x).predict(x)
    >>> bool(states[0] == states[149] != states[70])
    True
    """

    def __init__(
        self,
        n_components: int = 1,
        covariance_type: str = "diag",
        min_covar: float = 1e-3,
        startprob_prior: ArrayLike = 1.0,
        transmat_prior: ArrayLike = 1.0,
        means_prior: ArrayLike = 0,
        means_weight: ArrayLike = 0,
        covars_prior: ArrayLike = 1e-2,
        covars_weight: ArrayLike = 1,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "stmc",
        init_params: str = "stmc",
        implementation: str = "log",
        missing: bool = False,
        device: str = "cpu",
        decay: float = 0.7,
        hmmlearn_compatible: bool = False,
    ) -> None:
        self._take(locals())

    _takes_models = True

    def _init(self, X: Array, lengths: Any = None) -> None:
        self._set_n_features(X)
        self._init_chain()
        if self._needs_init("m", "means_"):
            self.means_ = kmeans(self, X, self.n_components).cluster_centers_
        if self._needs_init("c", "_covars_"):
            self._covars_ = of_all(covariance(X, self.min_covar), self._form(), self.n_components)

    def _priors(self) -> dict[str, Any]:
        k, d, form = self.n_components, self.n_features, self._form()
        prior, weight = np.asarray(self.covars_prior, dtype=np.float64), np.asarray(self.covars_weight, dtype=np.float64)
        matrices = form in ("full", "tied")
        if matrices:
            if prior.ndim < 2 and not self.hmmlearn_compatible:
                prior = prior[..., None, None] * np.eye(d)
            scatter = np.broadcast_to(prior, (d, d) if form == "tied" else (k, d, d))
        else:
            scatter = np.broadcast_to(prior if prior.ndim != 1 or len(prior) != k else prior[:, None], (k, d))
            scatter = scatter if form == "diag" else scatter.sum(axis=1)
        return self._prior(scatter, np.broadcast_to(np.maximum(weight - (d if matrices else 1), 0), k))

    def _set(self, engine: _core.HiddenMarkov) -> None:
        super()._set(engine)
        self.means_ = engine.means


@with_documentation_of(GaussianHMM)
class GMMHMM(HMM):
    """A hidden Markov model whose states emit from mixtures of Gaussians.
    Parameters:
    n_mix : int, default=1 -- The number of components of each state.
    weights_prior : float or array-like, default=1.0 -- That of the weights, as `startprob_prior`.
    covars_prior, covars_weight : float or array-like, default=None
        The parameters of inverse gamma ('spherical', 'diag') or inverse Wishart distributions, as in hmmlearn; by default
        maximum likelihood.
    covariance_type : {'diag', 'spherical', 'full', 'tied'}, default='diag'
        The type of the covariances; 'tied' ones are equal within a state.
    params, init_params : str, default='stmcw' -- What a fit updates, and what it starts anew: as for `GaussianHMM`, and 'w' weights.
    **params : dict -- Those of `GaussianHMM`.
    Attributes:
    startprob_, transmat_, monitor_ : object -- As of `GaussianHMM`.
    weights_ : ndarray of shape (n_components, n_mix) -- The weights within the states.
    means_ : ndarray of shape (n_components, n_mix, n_features) -- The means.
    covars_ : ndarray -- The covariances (n_components, n_mix[, n_features[, n_features]]); 'tied' without n_mix.
    """

    def __init__(
        self,
        n_components: int = 1,
        n_mix: int = 1,
        min_covar: float = 1e-3,
        startprob_prior: ArrayLike = 1.0,
        transmat_prior: ArrayLike = 1.0,
        weights_prior: ArrayLike = 1.0,
        means_prior: ArrayLike = 0.0,
        means_weight: ArrayLike = 0.0,
        covars_prior: ArrayLike | None = None,
        covars_weight: ArrayLike | None = None,
        algorithm: str = "viterbi",
        covariance_type: str = "diag",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "stmcw",
        init_params: str = "stmcw",
        implementation: str = "log",
        missing: bool = False,
        device: str = "cpu",
        decay: float = 0.7,
        hmmlearn_compatible: bool = False,
    ) -> None:
        self._take(locals())

    _draws_components = True

    def _of_components(self) -> str:
        """Return the type of the engine's mixture."""
        form = self._form()
        return "full" if form == "tied" else form

    def _engine(self) -> _core.HiddenMarkov:
        k, m, form = self.n_components, self.n_mix, self._of_components()
        means, covars, weights = (np.asarray(v, dtype=np.float64) for v in (self.means_, self.covars_, self.weights_))
        if means.ndim != 3 or means.shape[:2] != (k, m):
            raise ValueError(f"means_ has the shape {means.shape}; expected ({k}, {m}, n_features)")
        self.n_features = d = means.shape[2]
        tied = self.covariance_type == "tied"
        expected = (k, d, d) if tied else (k, m, *shape_of(form, k, d)[1:])
        if covars.shape != expected:
            raise ValueError(f"covars_ has the shape {covars.shape}; expected {expected}")
        covars = np.repeat(covars, m, axis=0) if tied else covars.reshape(shape_of(form, k * m, d))
        weights = _of_all_states(weights, (k, m))
        return _core.HiddenMarkov(self.startprob_, self.transmat_, weights, means.reshape(k * m, d), covars, form, tied)

    def _init(self, X: Array, lengths: Any = None) -> None:
        k, m, form = self.n_components, self.n_mix, self._of_components()
        self._set_n_features(X)
        self._init_chain()
        whole = covariance(X, self.min_covar)
        if self._needs_init("m", "means_"):
            found = kmeans(self, X, k)
            means = []
            for label in range(k):
                own = X[found.labels_ == label]
                if len(own) >= m:
                    means.append(kmeans(self, own, m).cluster_centers_)
                else:
                    # Too few rows for as many components.
                    centre = found.cluster_centers_.mean(axis=0)
                    means.append(check_random_state(self.random_state).multivariate_normal(centre, cov=whole, size=m))
            self.means_ = np.stack(means)
        if self._needs_init("w", "weights_"):
            self.weights_ = np.full((k, m), 1 / m)
        if self._needs_init("c", "covars_"):
            tied = self.covariance_type == "tied"
            covars = of_all(whole, form, k if tied else k * m)
            self.covars_ = covars if tied else covars.reshape(k, m, *covars.shape[1:])

    def _priors(self) -> dict[str, Any]:
        k, m, d, form = self.n_components, self.n_mix, self.n_features, self._of_components()
        tied, prior, weight = self.covariance_type == "tied", self.covars_prior, self.covars_weight
        if form == "full":
            default = -(m + d + 1.0) if tied else -(d + 2.0)
            scatter = np.asarray(0.0 if prior is None else prior, dtype=np.float64)
            if scatter.ndim < 2 and not self.hmmlearn_compatible:
                scatter = scatter[..., None, None] * np.eye(d)
            scatter = np.swapaxes(np.broadcast_to(scatter, (k, d, d) if tied else (k, m, d, d)), -1, -2)
            degrees = np.asarray(default if weight is None else weight, dtype=np.float64)
            divisor = degrees + d + 1 + (m if tied else 1)
            divisor = np.broadcast_to(divisor[..., None] if tied and divisor.ndim == 1 else divisor, (k, m))
            scatter = np.repeat(scatter, m, axis=0) if tied else scatter.reshape(k * m, d, d)
        else:
            default = -1.5 if form == "diag" else (-(m + 2.0) / 2.0 if self.hmmlearn_compatible else -(d + 2.0) / 2.0)
            alphas = np.asarray(default if prior is None else prior, dtype=np.float64)
            betas = np.asarray(0.0 if weight is None else weight, dtype=np.float64)
            if form == "diag":
                alphas, betas = np.broadcast_to(alphas, (k, m, d)), np.broadcast_to(betas, (k, m, d))
                if np.ptp(alphas, axis=2).max() > 0:
                    raise ValueError("covars_prior differs between features; give one value for each component")
                divisor, scatter = 1 + 2 * (alphas[:, :, 0] + 1), 2 * betas.reshape(k * m, d)
            else:
                divisor = np.broadcast_to(1 + 2 * (alphas + 1) / d, (k, m))
                scatter = 2 * np.broadcast_to(betas, (k, m)).ravel()
        return self._prior(scatter, divisor, m)

    def _set(self, engine: _core.HiddenMarkov) -> None:
        super()._set(engine)
        k, m, covars = self.n_components, self.n_mix, engine.covariances
        if _core.covariance_form(engine.model) == "tied":
            covars = np.tile(covars, (k * m, 1, 1))
        self.weights_, self.means_ = engine.weights, engine.means.reshape(k, m, -1)
        self.covars_ = covars[::m].copy() if engine.tied_within_states else covars.reshape(k, m, *covars.shape[1:])


#: The parts of a posterior: their names in the engine, and in attributes.
_PARTS = {"start": "startprob", "transitions": "transmat", "means": "means", "beta": "beta", "dof": "dof", "scale": "scale"}


@with_documentation_of(GaussianHMM)
class VariationalGaussianHMM(WithCovariances):
    """A hidden Markov model of Gaussians whose parameters have a posterior distribution, by variational inference.
    Parameters:
    covariance_type : {'full', 'tied', 'diag', 'spherical'}, default='full' -- The type of the covariances.
    startprob_prior, transmat_prior : float or array-like, default=None
        The parameters of Dirichlet distributions, by default 1 / n_components.
    means_prior : array-like of shape (n_components, n_features), default=None -- By default the mean of all rows.
    beta_prior : array-like of shape (n_components,), default=None -- The rows that each stands for, by default 1.
    dof_prior : array-like of shape (n_components,), default=None
        The degrees of freedom of the Wishart distributions, by default n_features; one number for 'tied'.
    scale_prior : array-like, default=None -- Their inverse scale matrices in the shape of the type, by default 0.001.
    n_iter : int, default=100 -- The largest number of iterations.
    tol : float, default=1e-6 -- A fit ends when the lower bound gains less.
    **params : dict -- Those of `GaussianHMM`.
    Attributes:
    startprob_, transmat_, means_, covars_, monitor_ : object -- As of `GaussianHMM`: posterior means.
    startprob_posterior_, transmat_posterior_ : ndarray -- The parameters of Dirichlet distributions.
    means_posterior_, beta_posterior_, dof_posterior_, scale_posterior_ : ndarray -- Those of the states.
    """

    def __init__(
        self,
        n_components: int = 1,
        covariance_type: str = "full",
        startprob_prior: ArrayLike | None = None,
        transmat_prior: ArrayLike | None = None,
        means_prior: ArrayLike | None = None,
        beta_prior: ArrayLike | None = None,
        dof_prior: ArrayLike | None = None,
        scale_prior: ArrayLike | None = None,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 100,
        tol: float = 1e-6,
        verbose: bool = False,
        params: str = "stmc",
        init_params: str = "stmc",
        implementation: str = "log",
        missing: bool = False,
        device: str = "cpu",
        hmmlearn_compatible: bool = False,
    ) -> None:
        self._take(locals())

    @property
    def means_(self) -> Array:
        """The posterior means of the means."""
        return np.asarray(self.means_posterior_, dtype=np.float64)

    def _needs(self, code: str, *names: str) -> bool:
        return any(self._needs_init(code, f"{name}_{kind}_") for name in names for kind in ("prior", "posterior"))

    def _init(self, X: Array, lengths: Any) -> None:
        k, tied, lengths = self.n_components, self.covariance_type == "tied", checked_lengths(lengths)
        self._set_n_features(X)
        d, rng, share = X.shape[1], check_random_state(self.random_state), np.full(k, 1 / k)
        if self._needs("s", "startprob"):
            self.startprob_prior_ = np.full(k, _given(self.startprob_prior, 1 / k))
            self.startprob_posterior_ = rng.dirichlet(share) * len(lengths)
        if self._needs("t", "transmat"):
            self.transmat_prior_ = np.full((k, k), _given(self.transmat_prior, 1 / k))
            self.transmat_posterior_ = rng.dirichlet(share, size=k) * (sum(lengths) / k)
        found = kmeans(self, X, k)
        counts = np.bincount(found.labels_, minlength=k)
        if self._needs("m", "means", "beta"):
            self.means_prior_ = _given(self.means_prior, np.tile(X.mean(axis=0), (k, 1)))
            self.means_posterior_ = found.cluster_centers_.copy()
            self.beta_prior_, self.beta_posterior_ = _given(self.beta_prior, np.ones(k)), counts.astype(np.float64)
        if self._needs("c", "dof", "scale"):
            self.dof_prior_ = _given(self.dof_prior, d if tied else np.full(k, d))
            # Fewer than d make no Wishart distribution.
            self.dof_posterior_ = np.maximum(counts.sum() if tied else counts, d)
            self._covars_ = of_all(covariance(X, 1e-3), self.covariance_type, k)
            one = np.eye(d) if self.covariance_type in ("full", "tied") else 1.0
            self.scale_prior_ = _given(self.scale_prior, 1e-3 * one * np.ones(shape_of(self.covariance_type, k, d)))
            self.scale_posterior_ = (self._covars_.T * self.dof_posterior_).T

    def _check(self) -> None:
        self._posterior()

    def _posterior(self) -> _core.VariationalHiddenMarkov:
        k, tied = self.n_components, self._form() == "tied"

        def of(kind: str) -> dict[str, Array]:
            numbers = {part: np.asarray(getattr(self, f"{name}_{kind}_"), dtype=np.float64) for part, name in _PARTS.items()}
            if tied and numbers["dof"].ndim:
                raise ValueError(f"dof_{kind}_ must be a number for 'tied' covariances")
            if numbers["means"].shape != (k, self.n_features):
                raise ValueError(f"the means have the shape {numbers['means'].shape}; expected ({k}, {self.n_features})")
            return {**numbers, "dof": np.full(k, numbers["dof"])} if tied else numbers

        return _core.VariationalHiddenMarkov(of("prior"), of("posterior"), self.covariance_type)

    def _step(self, sequences: _core.Sequences) -> float:
        found, bound = self._posterior().step(sequences, self.params)
        new = found.posterior
        for part, name in _PARTS.items():
            setattr(self, f"{name}_posterior_", new[part])
        if self.covariance_type == "tied":
            self.dof_posterior_ = float(self.dof_posterior_[0])
        self._set(found.model())
        return bound


def _of_all_states(weights: Array, shape: tuple[int, ...]) -> Array:
    """Return the weights within states, after a check, as those of a mixture of all components."""
    if weights.shape != shape or not np.allclose(weights.sum(axis=1), 1):
        raise ValueError(f"the weights must have the shape {shape}, and each row must sum to 1")
    return (weights / weights.sum(axis=1, keepdims=True)).ravel() / len(weights)


def _given(value: Any, default: Any) -> Any:
    return default if value is None else value if np.isscalar(value) else np.asarray(value, dtype=np.float64)


#: The same by the name of this package's class of mixtures.
BayesianGaussianHMM = VariationalGaussianHMM


class Likelihood:
    """The log-likelihood of sequences that are kept, for one set of parameters after the other.

    ``likelihood(startprob, transmat, means, covars)`` is the total log-likelihood, a float. With ``weights`` of shape
    (n_components, n_mix) each state has a mixture: means and covariances then have these two axes in front.
    `gaussmix.torch.MarkovLogLikelihood` and `gaussmix.jax.MarkovLogLikelihood` are the same for automatic
    differentiation.
    Parameters:
    covariance_type : {'diag', 'spherical', 'full', 'tied'}, default='diag' -- The type of the covariances.
    device : str, default='cpu' -- Where to keep the sequences and compute, as of `GaussianHMM`.
    Examples:
    >>> from gaussmix.hmm import Likelihood
    >>> likelihood = Likelihood([[0.0], [1.0], [5.0]], covariance_type="spherical")
    >>> startprob, transmat, means, covars = [1.0, 0.0], [[0.5, 0.5], [0.0, 1.0]], [[0.0], [5.0]], [1.0, 1.0]
    >>> round(likelihood(startprob, transmat, means, covars), 4)
    -4.642
    """

    def __init__(
        self,
        X: Any,
        lengths: Lengths = None,
        *,
        sequence_weight: ArrayLike | None = None,
        covariance_type: str = "diag",
        missing: bool = False,
        device: str = "cpu",
    ) -> None:
        if covariance_type != _core.covariance_form(covariance_type):
            raise ValueError(f"covariance_type is {covariance_type!r}; use 'diag', 'spherical', 'full' or 'tied'")
        self._sequences = sequences_of(X, lengths, sequence_weight, missing, device)
        self._weights = None if sequence_weight is None else np.array(sequence_weight, dtype=np.float64).ravel()
        self._covariance_type = covariance_type

    def _engine(self, startprob: Any, transmat: Any, means: Any, covars: Any, weights: Any) -> _core.HiddenMarkov:
        means, covars = np.asarray(means, dtype=np.float64), np.asarray(covars, dtype=np.float64)
        k = len(np.asarray(startprob))
        weights = np.ones((k, 1)) if weights is None else np.asarray(weights, dtype=np.float64)
        weights = _of_all_states(weights, (k, means.shape[1] if means.ndim == 3 else 1))
        if means.ndim == 3:
            means = means.reshape(-1, means.shape[-1])
            covars = covars if self._covariance_type == "tied" else covars.reshape(len(means), *covars.shape[2:])
        return _core.HiddenMarkov(startprob, transmat, weights, means, covars, self._covariance_type, False)

    def __call__(
        self, startprob: ArrayLike, transmat: ArrayLike, means: ArrayLike, covars: ArrayLike, weights: ArrayLike | None = None
    ) -> float:
        """Return the total log-likelihood; -inf for an impossible sequence."""
        scores = self._engine(startprob, transmat, means, covars, weights).score(self._sequences)
        return float(scores.sum() if self._weights is None else scores[self._weights > 0] @ self._weights[self._weights > 0])

    def gradient(
        self, startprob: ArrayLike, transmat: ArrayLike, means: ArrayLike, covars: ArrayLike, weights: ArrayLike | None = None
    ) -> tuple[float, list[Array]]:
        """Return the total log-likelihood and its derivatives.

        Each entry of the arrays is a variable of its own, although probabilities must sum to 1; mirrored entries of a
        covariance matrix are two variables. A probability of 0 is a constant, whose derivative is 0.
        Parameters:
        startprob : array-like of shape (n_components,) -- The probabilities of the first states.
        transmat : array-like of shape (n_components, n_components) -- Those of the transitions.
        means : array-like of shape (n_components, n_features) or (n_components, n_mix, n_features) -- The means.
        covars : array-like -- The covariances, in the shape of their type.
        weights : array-like of shape (n_components, n_mix), default=None -- The weights within the states.
        Returns:
        value : float -- The total log-likelihood.
        derivatives : list of ndarray -- By the parameters in their order, as many and in the shapes as they were given.
        """
        engine = self._engine(startprob, transmat, means, covars, weights)
        value, (by_start, by_transitions, by_weights, by_means, by_covariances) = engine.gradient(self._sequences)
        parts = [by_start, by_transitions, by_means.reshape(np.shape(means)), by_covariances.reshape(np.shape(covars))]
        return value, parts if weights is None else [*parts, by_weights]


def select(
    estimator: Any, X: Any, lengths: Lengths = None, n_components: Iterable[int] = range(1, 11), criterion: str = "bic", folds: int = 5
) -> tuple[Any, dict[int, float]]:
    """Choose the number of states. The fits run side by side.
    Parameters:
    estimator : GaussianHMM or GMMHMM -- Fitted with each number.
    n_components : iterable of int, default=range(1, 11) -- The numbers to try.
    criterion : {'bic', 'aic', 'held_out'}, default='bic'
        The criterion. 'held_out' is the log-likelihood of sequences that a fit has not seen, of which there must be several.
    folds : int, default=5
        The parts of the sequences that are held out in turn: sequence i belongs to part i modulo their number. Starts see all
        rows.
    Returns:
    best : GaussianHMM or GMMHMM -- The fit of all sequences with the least criterion, or the largest log-likelihood.
    values : dict -- The criterion of each number.
    """
    numbers, held_out = list(n_components), criterion == "held_out"
    if criterion not in ("bic", "aic", "held_out"):
        raise ValueError(f"criterion is {criterion!r}; use 'bic', 'aic' or 'held_out'")
    n_sequences = 1 if lengths is None else np.size(lengths)
    parts = np.arange(n_sequences) % folds
    if held_out and not 2 <= folds <= n_sequences:
        raise ValueError(f"folds is {folds}, for {n_sequences} sequences; take at least 2, and at most the number of sequences")

    def fitted(k: int, part: int) -> Any:
        weights = (parts != part).astype(np.float64) if held_out else None
        return clone(estimator).set_params(n_components=k).fit(X, lengths, weights)

    threads = ThreadPoolExecutor(os.cpu_count())
    try:
        fits = {k: threads.submit(fitted, k, -1) for k in numbers}
        without = {(k, part): threads.submit(fitted, k, part) for k in numbers for part in range(folds if held_out else 0)}
        values = {k: 0.0 if held_out else getattr(fit.result(), criterion)(X, lengths) for k, fit in fits.items()}
        for (k, part), future in without.items():
            fit = future.result()
            values[k] += float(fit._fitted().score(fit._sequences(X, lengths))[parts == part].sum())
    finally:
        threads.shutdown(cancel_futures=True)
    return fits[(max if held_out else min)(values, key=values.__getitem__)].result(), values


def load(path: str | os.PathLike[str]) -> GaussianHMM | GMMHMM:
    """Return the model, ready to score and decode, that `save` or the program's `gmm hmm fit` wrote.

    Mixtures whose components share covariances, or parts of them, come as mixtures of components with covariances of their own.
    Parameters: path : str or path-like -- The file.
    """
    engine, _, _ = _core.HiddenMarkov.read(os.fspath(path))
    (k, m), tied = engine.weights.shape, engine.tied_within_states
    form = _core.covariance_form(engine.model)
    own = "tied" if tied else "full" if form == "tied" else form
    model = GaussianHMM(k, engine.model) if m == 1 and not tied else GMMHMM(k, m, covariance_type=own)
    model._set(engine)
    return model
