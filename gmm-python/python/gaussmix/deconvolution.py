"""Extreme deconvolution: mixtures of the true values behind samples that each have their own noise.

A sample is ``x = R v + noise`` with a known covariance of its noise, and the true values ``v`` have the density of the
mixture (Bovy, Hogg and Roweis 2011). `ExtremeDeconvolution` is the estimator; `extreme_deconvolution` and `XDGMM` have
the interfaces of the programs of these names. docs/deconvolution.md compares them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.mixture import GaussianMixture as ScikitLearn
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted

from . import _core
from ._arrays import Floats, checked_weights, load, n_threads, validated
from ._documentation import documented, with_documentation_of
from ._estimator import GaussianMixture
from ._mixture import Mixture
from ._parameters import count
from ._reports import Start
from ._samples import ArraySamples

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["XDGMM", "ExtremeDeconvolution", "Measurements", "extreme_deconvolution"]

_Float64 = NDArray[np.float64]
#: Noise as the engine takes it: an array, whether it is one covariance for all, the groups, and the projections.
_Given = tuple[_Float64, bool, list[int] | None, _Float64 | None]


@documented
class Measurements(NamedTuple):
    """Samples with their noise, wherever an `ExtremeDeconvolution` takes samples, as in ``select``.
    Parameters:
    X : array-like of shape (n_samples, n_columns) -- What was measured.
    noise : array-like
        One covariance for all samples (n_columns, n_columns), a variance for each value (n_samples, n_columns), a
        covariance for each sample (n_samples, n_columns, n_columns), or a tuple of J covariances (J, n_columns,
        n_columns) and the number of that of each sample (n_samples,).
    projection : array-like of shape (n_samples, n_columns, n_features), default=None
        The matrix by which the true values of each sample become the measured ones; by default they are the columns.
    """

    X: ArrayLike
    noise: Any
    projection: ArrayLike | None = None

    def _given(self, n: int, scale: _Float64 | None = None) -> _Given:
        """Check the shapes, and give the noise of columns divided by `scale` to the engine."""
        groups = None
        if isinstance(self.noise, tuple):
            matrices, numbers = self.noise
            noise = _numbers(matrices, "noise", allow_nd=True)
            groups = _numbers(numbers, "the groups of the noise", dtype=np.int64, ensure_2d=False).tolist()
            if noise.ndim != 3 or len(groups) != n or min(groups) < 0:
                raise ValueError(f"noise of groups should be matrices (J, n_columns, n_columns) and {n} numbers below J")
        else:
            noise = _numbers(self.noise, "noise", allow_nd=True)
        c = noise.shape[-1]
        common = groups is None and noise.shape == (c, c)
        if common and n == c:
            raise ValueError(f"noise of shape {noise.shape} may be variances or one covariance; give {(n, c, c)}")
        if groups is None and noise.shape not in ((c, c), (n, c), (n, c, c)):
            raise ValueError(f"noise has the shape {noise.shape}; it should be {(c, c)}, {(n, c)} or {(n, c, c)}")
        projection = None if self.projection is None else _numbers(self.projection, "projection", allow_nd=True)
        if projection is not None and (projection.ndim != 3 or projection.shape[0] != n):
            raise ValueError(f"projection has the shape {projection.shape}; it should be ({n}, {c}, n_features)")
        if scale is not None:
            noise = noise / (scale * scale if noise.ndim == 2 and not common else np.outer(scale, scale))
        return noise, common, groups, projection


def _numbers(values: Any, name: str, dtype: Any = np.float64, **how: Any) -> Any:
    # The engine looks for what is not finite.
    return check_array(values, dtype=dtype, ensure_all_finite=False, input_name=name, **how)


def _measured(X: Any, noise: Any, projection: Any) -> Measurements:
    if isinstance(X, Measurements):
        return X
    if noise is None:
        raise TypeError("noise is missing; give the covariances of the samples' noise, or Measurements for X")
    return Measurements(X, noise, projection)


class _MeasuredSamples(ArraySamples):
    """Measurements of this process."""

    def __init__(self, estimator: Any, measured: Measurements, sample_weight: Any, labels: Any) -> None:
        super().__init__(estimator, measured.X, sample_weight, labels)
        self.measured = measured
        self.noise = measured._given(self.shape[0])
        if measured.projection is not None:
            if estimator.standardize:
                raise ValueError(
                    "standardize=True does not take projections; scale the true values, and multiply the projections by the scales"
                )
            # The features are the true values.
            self.shape = self.shape[0], cast(Any, self.noise[3]).shape[2]
            estimator.n_features_in_ = self.shape[1]
            vars(estimator).pop("feature_names_in_", None)

    def _load(self, original: Any = None) -> _core.Data:
        estimator = self.estimator
        noise = self.noise if self.units is None else self.measured._given(self.shape[0], self.units.scale)
        how = {"device": estimator.device, "threads": n_threads(estimator.n_jobs), "labels": self.labels}
        return load(estimator, self.X, self.weights, original=original, noise=noise, **how)

    def start(self, random_state: np.random.RandomState, total_weight: float) -> Start:
        if self.measured.projection is not None:
            # The engine guesses true values.
            return int(random_state.randint(0, 2**31 - 1))
        return super().start(random_state, total_weight)


@with_documentation_of(GaussianMixture)
@documented
class ExtremeDeconvolution(GaussianMixture):
    """A Gaussian mixture of the true values behind samples with known noise, fitted by expectation-maximisation.

    Attributes are those of :class:`gaussmix.GaussianMixture`. Wherever it takes samples, it takes
    :class:`Measurements` too.
    Parameters: **params : dict -- Those of :class:`gaussmix.GaussianMixture`.
    Examples:
    >>> import numpy as np
    >>> from gaussmix.deconvolution import ExtremeDeconvolution
    >>> rng = np.random.default_rng(0)
    >>> variances = rng.uniform(0.5, 1.5, (2000, 1))
    >>> X = rng.normal(5.0, 0.5, (2000, 1)) + rng.normal(0.0, np.sqrt(variances))
    >>> xd = ExtremeDeconvolution(1, tol=1e-6, max_iter=1000).fit(X, noise=variances)
    >>> float(X.var().round(1)), float(xd.covariances_[0, 0, 0].round(1))
    (1.2, 0.2)
    """

    def fit(
        self,
        X: ArrayLike | Measurements,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        noise: Any = None,
        projection: ArrayLike | None = None,
        labels: ArrayLike | None = None,
    ) -> Self:
        """Fit the mixture.
        Parameters:
        X : array-like of shape (n_samples, n_columns), or Measurements -- The samples.
        y, sample_weight
        noise : array-like -- The noise, in a shape of :class:`Measurements`.
        projection : array-like of shape (n_samples, n_columns, n_features), default=None -- The projections, if any.
        labels
        Returns: self : object -- The fitted mixture.
        """
        super().fit(_measured(X, noise, projection), None, sample_weight, labels=labels)
        return self

    def _samples(self, X: Any, sample_weight: Any, labels: Any = None) -> ArraySamples:
        return _MeasuredSamples(self, _measured(X, None, None), sample_weight, labels)

    def _data(self, X: Any, sample_weight: Any = None) -> _core.Data:
        measured = _measured(X, None, None)
        check_is_fitted(self)
        x = self._checked(measured)
        noise, weights = measured._given(x.shape[0]), checked_weights(sample_weight, x.shape[0])
        return load(self, x, weights, device=self.device, threads=n_threads(self.n_jobs), original=measured.X, noise=noise)

    def _best_run(self, samples: Any, data: Any, options: dict[str, Any]) -> _core.Fit:
        # Runs side by side know no noise.
        return super(GaussianMixture, self)._best_run(samples, data, options)

    def _checked(self, measured: Measurements) -> Any:
        if measured.projection is None:
            return validated(self, measured.X, reset=False)
        return check_array(measured.X, dtype=[np.float64, np.float32], ensure_all_finite=False)

    def _typed(self, data: _core.Data, values: _Float64, X: Any) -> Floats:
        return values

    def score_samples(self, X: ArrayLike | Measurements, noise: Any = None, projection: ArrayLike | None = None) -> Floats:
        """Return the log-likelihood of each sample.
        Parameters:
        X : array-like of shape (n_samples, n_columns), or Measurements -- The samples.
        noise : array-like, default=None -- The noise, in a shape of :class:`Measurements`.
        projection : array-like of shape (n_samples, n_columns, n_features), default=None -- The projections, if any.
        Returns: log_prob : ndarray of shape (n_samples,) -- The logarithms of the density.
        """
        return super().score_samples(_measured(X, noise, projection))  # type: ignore[arg-type]

    def predict(self, X: ArrayLike | Measurements, noise: Any = None, projection: ArrayLike | None = None) -> NDArray[np.int64]:
        """Return the most probable component of each sample.
        Parameters:
        X : array-like of shape (n_samples, n_columns), or Measurements -- The samples.
        noise : array-like, default=None -- The noise, in a shape of :class:`Measurements`.
        projection : array-like of shape (n_samples, n_columns, n_features), default=None -- The projections, if any.
        Returns: labels : ndarray of shape (n_samples,) -- The components, counted from 0.
        """
        return super().predict(_measured(X, noise, projection))  # type: ignore[arg-type]

    def predict_proba(self, X: ArrayLike | Measurements, noise: Any = None, projection: ArrayLike | None = None) -> Floats:
        """Return the probability of each component for each sample.
        Parameters:
        X : array-like of shape (n_samples, n_columns), or Measurements -- The samples.
        noise : array-like, default=None -- The noise, in a shape of :class:`Measurements`.
        projection : array-like of shape (n_samples, n_columns, n_features), default=None -- The projections, if any.
        Returns: resp : ndarray of shape (n_samples, n_components) -- The probabilities.
        """
        return super().predict_proba(_measured(X, noise, projection))  # type: ignore[arg-type]

    def denoise(self, X: ArrayLike | Measurements, noise: Any = None, projection: ArrayLike | None = None) -> tuple[_Float64, _Float64]:
        """Return the true values that are expected given the measured ones.
        Parameters:
        X : array-like of shape (n_samples, n_columns), or Measurements -- The samples.
        noise : array-like, default=None -- The noise, in a shape of :class:`Measurements`.
        projection : array-like of shape (n_samples, n_columns, n_features), default=None -- The projections, if any.
        Returns:
        values : ndarray of shape (n_samples, n_features) -- The expected true values.
        covariances : ndarray of shape (n_samples, n_features, n_features) -- Those of the true values around them.
        """
        measured = _measured(X, noise, projection)
        check_is_fitted(self)
        x = self._checked(measured)
        return _core.denoise(x, self._mixture(), measured._given(x.shape[0]), self.missing)

    def sample(self, n_samples: int = 1, noise: ArrayLike | None = None) -> tuple[_Float64, NDArray[np.int64]]:
        """Draw true values, or with noise measurements.
        Parameters:
        n_samples : int, default=1 -- How many.
        noise : array-like, default=None
            One covariance for all, a variance for each value, or a covariance for each sample.
        Returns:
        X : ndarray of shape (n_samples, n_features) -- The samples, ordered by component.
        y : ndarray of shape (n_samples,) -- The component of each.
        """
        random = check_random_state(self.random_state)
        X, y = self.mixture_.sample(n_samples, random)
        if noise is None:
            return X, y
        covariances, common, _, _ = Measurements(X, noise)._given(count(n_samples, "n_samples"))
        if covariances.ndim == 2 and not common:
            return X + random.standard_normal(X.shape) * np.sqrt(covariances), y
        values, vectors = np.linalg.eigh(covariances)
        factors = vectors * np.sqrt(np.maximum(values, 0.0))[..., np.newaxis, :]
        return X + (factors @ random.standard_normal(X.shape)[..., np.newaxis])[..., 0], y


def _mask(given: Any, k: int) -> NDArray[np.bool_]:
    return np.broadcast_to(np.asarray(given is not None and given, bool), k)


class _Fit:
    """The samples and the state of a fit as `extreme_deconvolution` makes it."""

    def __init__(self, measured: Measurements, weights: _Float64 | None, amp: _Float64, mean: _Float64, covariance: _Float64) -> None:
        self.measured, self.weights, self.parameters = measured, weights, (amp, mean, covariance)
        n = len(cast(_Float64, measured.X))
        self.data = _core.Data(measured.X, weights, noise=measured._given(n))  # type: ignore[arg-type]
        self.mean_weight = self.data.total_weight / n
        self.average = -np.inf

    @property
    def mixture(self) -> _core.Mixture:
        return _core.Mixture(*self.parameters, "full")

    def iterate(self, fixed: dict[str, NDArray[np.bool_]], w: float) -> float:
        """Make an iteration of EM; give the average log-likelihood before it."""
        try:
            before = self.mixture
        except _core.IllDefinedError:
            # Covariances to start with need only make those of the samples, with their noise, positive definite.
            return self._iterate_by_formulas(fixed, w)
        statistics = self.data.e_step(before)
        names = [f"{name}={','.join(map(str, np.flatnonzero(mask)))}" for name, mask in fixed.items() if mask.any()]
        mixture, _ = statistics.update(before, 0.0, sorted(names))
        covariances = self._with_floor(statistics.counts, mixture.covariances, fixed["covariances"], w)
        self.parameters = mixture.weights, mixture.means, covariances
        return statistics.log_likelihood / statistics.weight * self.mean_weight

    @staticmethod
    def _with_floor(counts: _Float64, covariances: _Float64, fixed: NDArray[np.bool_], w: float) -> _Float64:
        n = np.where(fixed, np.inf, counts)[:, np.newaxis, np.newaxis]
        floor = (w * np.eye(covariances.shape[1]) - covariances) / (n + 1.0)
        return covariances + floor if w > 0.0 else covariances

    def _iterate_by_formulas(self, fixed: dict[str, NDArray[np.bool_]], w: float) -> float:
        y, S, projection = (np.asarray(part, dtype=np.float64) for part in self.measured)
        n, c = y.shape
        S = S[:, :, np.newaxis] * np.eye(c) if S.ndim == 2 else S
        R = np.broadcast_to(np.eye(c), (n, c, c)) if projection.ndim == 0 else projection
        amp, means, covariances = self.parameters
        parts = []
        for mean, V in zip(means, covariances, strict=True):
            T, delta = R @ V @ R.transpose(0, 2, 1) + S, y - R @ mean
            inverse = np.linalg.inv(T)
            sign, log_det = np.linalg.slogdet(T)
            if not (sign > 0.0).all():
                raise ValueError(f"xcovar is not positive definite, nor is it with the noise of row {np.argmin(sign)}; give another start")
            log_p = -0.5 * (np.einsum("ni,nij,nj->n", delta, inverse, delta) + log_det + c * np.log(2 * np.pi))
            gain = V @ R.transpose(0, 2, 1) @ inverse
            parts.append((log_p, np.einsum("nij,nj->ni", gain, delta), V - gain @ R @ V))
        log_p, shift, spread = (np.array(part) for part in zip(*parts, strict=True))
        log_p += np.log(amp)[:, np.newaxis]
        score = np.logaddexp.reduce(log_p, axis=0)
        weights = np.ones(n) if self.weights is None else self.weights
        q = np.exp(log_p - score) * weights
        counts = q.sum(axis=1)
        moved = np.where(fixed["means"][:, np.newaxis], 0.0, np.einsum("kn,kni->ki", q, shift) / counts[:, np.newaxis])
        delta = shift - moved[:, np.newaxis]
        second = np.einsum("kn,knij->kij", q, delta[..., np.newaxis] * delta[..., np.newaxis, :] + spread)
        new = np.where(fixed["covariances"][:, np.newaxis, np.newaxis], covariances, second / counts[:, np.newaxis, np.newaxis])
        new = (new + new.transpose(0, 2, 1)) / 2.0
        free = ~fixed["weights"]
        shares = np.where(free, counts, 0.0) / max(counts[free].sum(), np.finfo(float).tiny)
        amp = np.where(free, shares * (1.0 - amp[~free].sum()), amp)
        self.parameters = amp, means + moved, self._with_floor(counts, new, fixed["covariances"], w)
        return float((weights * score).sum() / n)

    def run(self, fixed: dict[str, NDArray[np.bool_]], tol: float, maxiter: float, w: float) -> None:
        """Iterate until the average rises by at most `tol`."""
        before, iterations = -np.inf, 0
        while iterations < maxiter:
            iterations += 1
            self.average = self.iterate(fixed, w)
            if self.average - before <= tol:
                break
            before = self.average

    def candidates(self) -> list[tuple[int, int, int]]:
        """Order the triples of components to merge, j and k, and to split, l, the most promising first."""
        r = self.data.responsibilities(self.mixture)
        merge, k = r.T @ r, r.shape[1]
        statistics = self.data.e_step(self.mixture)
        # How far the true values of a component, given the samples, are from its density.
        _, means, covariances = self.parameters
        precisions = np.linalg.inv(covariances)
        delta = statistics.means - means
        scatter = statistics.scatter + statistics.counts[:, None, None] * delta[:, :, None] * delta[:, None, :]
        log_det = np.linalg.slogdet(covariances)[1] + means.shape[1] * np.log(2 * np.pi)
        spread = 0.5 * (np.einsum("kij,kij->k", precisions, scatter) + statistics.counts * log_det)
        split = np.where(r > 0.0, r * np.log(np.where(r > 0.0, r, 1.0)), 0.0).sum(axis=0) + spread
        pairs = sorted(combinations(range(k), 2), key=lambda pair: -merge[pair])
        return [(j, m, s) for j, m in pairs for s in sorted(set(range(k)) - {j, m}, key=lambda s: -split[s])]

    def merged_and_split(self, triple: tuple[int, int, int], random: np.random.RandomState) -> _Fit:
        """Merge two components, and split a third."""
        j, k, s = triple
        amp, means, covariances = (np.array(part) for part in self.parameters)
        shares = amp[[j, k]] / amp[[j, k]].sum()
        means[j] = shares @ means[[j, k]]
        covariances[j] = np.tensordot(shares, covariances[[j, k]], 1)
        amp[j] = amp[[j, k]].sum()
        d = means.shape[1]
        width = np.exp(np.linalg.slogdet(covariances[s])[1] / d)
        amp[[k, s]] = amp[s] / 2.0
        means[[k, s]] = means[s] + np.sqrt(width) * random.standard_normal((2, d))
        covariances[[k, s]] = width * np.eye(d)
        other = copy(self)
        other.parameters = amp, means, covariances
        return other


@documented
def extreme_deconvolution(
    ydata: ArrayLike,
    ycovar: ArrayLike,
    xamp: _Float64,
    xmean: _Float64,
    xcovar: _Float64,
    projection: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    fixamp: Any = None,
    fixmean: Any = None,
    fixcovar: Any = None,
    tol: float = 1e-6,
    maxiter: float = 1e9,
    w: float = 0.0,
    logfile: str | None = None,
    splitnmerge: int = 0,
    maxsnm: bool = False,
    likeonly: bool = False,
    logweight: bool = False,
) -> float:
    """Fit by extreme deconvolution, with the interface of the program of Bovy, Hogg and Roweis.
    Parameters:
    ydata : array-like of shape (n_samples, dy) -- The samples.
    ycovar : array-like of shape (n_samples, dy) or (n_samples, dy, dy) -- Their noise.
    xamp : ndarray of shape (K,) -- The amplitudes to begin with; changed in place, as are the means and covariances.
    xmean : ndarray of shape (K, dx) -- The means.
    xcovar : ndarray of shape (K, dx, dx) -- The covariances, of which the upper triangles count.
    projection : array-like of shape (n_samples, dy, dx), default=None -- The projections.
    weight : array-like of shape (n_samples,), default=None -- The weights of the samples.
    fixamp, fixmean, fixcovar : bool or sequence of bool, default=None -- What is to stay, of all components or of each.
    tol : float, default=1e-6 -- EM ends when the average log-likelihood rises by at most this.
    maxiter : int, default=1e9 -- After so many iterations.
    w : float, default=0.0 -- The floor of the covariances, w times the identity for one more sample of each component.
    logfile : str, default=None -- The start of the name of a file, ending in _loglike.log, that gets the final average.
    splitnmerge : int, default=0 -- How many triples of components are merged and split before the fit ends.
    maxsnm : bool, default=False -- Whether all triples are tried.
    likeonly : bool, default=False -- Whether only the average log-likelihood is computed.
    logweight : bool, default=False -- Whether the weights are logarithms.
    Returns: average : float -- The average log-likelihood of a sample before the last change of the parameters.
    """
    y = _numbers(ydata, "ydata")
    n, k = y.shape[0], len(xamp)
    covariance = np.triu(xcovar) + np.swapaxes(np.triu(xcovar, 1), 1, 2)
    weights = None if weight is None else np.asarray(weight, dtype=np.float64)
    weights = np.exp(weights) if weights is not None and logweight else weights
    noise = np.asarray(ycovar, dtype=np.float64)
    if noise.ndim == 2 and noise.shape == (n, n):
        noise = noise[:, :, np.newaxis] * np.eye(n)
    amp = np.asarray(xamp, dtype=np.float64) / np.sum(xamp)
    fit = _Fit(Measurements(y, noise, projection), weights, amp, np.array(xmean, dtype=np.float64), covariance)
    if likeonly:
        return float(fit.data.mean_score(fit.mixture) * fit.mean_weight)
    fixed = {name: _mask(given, k) for name, given in (("weights", fixamp), ("means", fixmean), ("covariances", fixcovar))}
    fit.run(fixed, tol, maxiter, w)
    tries = k * (k - 1) * (k - 2) // 2 if maxsnm else splitnmerge
    random = np.random.RandomState(0)
    better = k >= 3 and tries > 0
    while better:
        better = False
        for triple in fit.candidates()[:tries]:
            other = fit.merged_and_split(triple, random)
            others = ~np.isin(np.arange(k), triple)
            other.run({name: mask | others for name, mask in fixed.items()}, tol, maxiter, w)
            other.run(fixed, tol, maxiter, w)
            if other.average > fit.average + tol:
                fit, better = other, True
                break
    xamp[:], xmean[:], xcovar[:] = fit.parameters
    if logfile is not None:
        with open(f"{logfile}_loglike.log", "a", encoding="utf-8") as file:
            file.write(f"{fit.average}\n")
    return float(fit.average)


@documented
class XDGMM:
    """Extreme deconvolution with the methods of astroML's and of Holoien's classes of this name.
    Parameters:
    n_components : int, default=1 -- The number of components.
    max_iter : int, default=100 -- The most iterations.
    tol : float, default=1e-5 -- A fit ends when the log-likelihood of all samples rises by less than this.
    verbose : bool, default=False -- Whether iterations are printed.
    random_state : int, RandomState instance or None, default=None -- The source of random numbers.
    n_iter : int, default=None -- The same as `max_iter`.
    method : {'astroML', 'Bovy'}, default='astroML' -- What the tolerance is of: all samples, or their average.
    labels : sequence of str, default=None -- The names of the features, for `condition`.
    w : float, default=0.0 -- The floor of the covariances under the method 'Bovy'.
    Attributes:
    alpha : ndarray of shape (n_components,) -- The weights.
    mu : ndarray of shape (n_components, n_features) -- The means.
    V : ndarray of shape (n_components, n_features, n_features) -- The covariances.
    """

    def __init__(
        self,
        n_components: int = 1,
        max_iter: int = 100,
        tol: float = 1e-5,
        verbose: bool = False,
        random_state: Any = None,
        n_iter: int | None = None,
        method: str = "astroML",
        labels: Sequence[str] | None = None,
        w: float = 0.0,
    ) -> None:
        if method not in ("astroML", "Bovy"):
            raise ValueError(f"there is no method {method!r}; use 'astroML' or 'Bovy'")
        self.n_components, self.max_iter, self.tol, self.verbose = n_components, max_iter if n_iter is None else n_iter, tol, verbose
        self.random_state, self.method, self.labels, self.w = random_state, method, labels, w
        self.alpha: Any = None
        self.mu: Any = None
        self.V: Any = None

    def fit(self, X: ArrayLike, Xerr: ArrayLike, R: object = None) -> XDGMM:
        """Fit the mixture, from ten iterations of EM without noise.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The samples.
        Xerr : array-like of shape (n_samples, n_features, n_features) -- The covariances of their noise.
        R : None -- Projections are not taken.
        Returns: self : XDGMM -- The fitted mixture.
        """
        if R is not None:
            raise NotImplementedError("mixing matrix R is not yet implemented")
        x = _numbers(X, "X")
        start = ScikitLearn(self.n_components, max_iter=10, random_state=self.random_state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start.fit(x)
        fit = _Fit(self._measured(x, Xerr), None, start.weights_, start.means_, start.covariances_)
        none = {name: np.zeros(self.n_components, bool) for name in ("weights", "means", "covariances")}
        tol = self.tol / len(x) if self.method == "astroML" else self.tol
        fit.run(none, tol, self.max_iter, self.w if self.method == "Bovy" else 0.0)
        self.alpha, self.mu, self.V = fit.parameters
        return self

    def _engine(self) -> _core.Mixture:
        if self.mu is None:
            raise ValueError("the mixture is not fitted; call fit, or set alpha, mu and V")
        return _core.Mixture(self.alpha, self.mu, self.V, "full")

    @staticmethod
    def _measured(X: Any, Xerr: Any) -> Measurements:
        x, noise = _numbers(X, "X"), np.asarray(Xerr, dtype=np.float64)
        return Measurements(x, noise[:, :, np.newaxis] * np.eye(x.shape[1]) if noise.ndim == 2 else noise)

    def _data(self, X: Any, Xerr: Any) -> _core.Data:
        x, noise, _ = measured = self._measured(X, Xerr)
        return _core.Data(x, noise=measured._given(len(noise)))  # type: ignore[arg-type]

    def logprob_a(self, X: ArrayLike, Xerr: ArrayLike) -> _Float64:
        """Return the logarithms of the parts of each component in the density.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The samples.
        Xerr : array-like of shape (n_samples, n_features, n_features) -- The covariances of their noise.
        Returns: logprob : ndarray of shape (n_samples, n_components) -- The logarithms.
        """
        logprob, resp = self.score_samples(X, Xerr)
        with np.errstate(divide="ignore"):
            return logprob[:, np.newaxis] + np.log(resp)

    def score_samples(self, X: ArrayLike, Xerr: ArrayLike) -> tuple[_Float64, _Float64]:
        """Return the log-likelihood of each sample, and the probabilities of its components.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The samples.
        Xerr : array-like of shape (n_samples, n_features, n_features) -- The covariances of their noise.
        Returns:
        logprob : ndarray of shape (n_samples,) -- The logarithms of the density.
        resp : ndarray of shape (n_samples, n_components) -- The probabilities.
        """
        data, mixture = self._data(X, Xerr), self._engine()
        return data.scores(mixture), data.responsibilities(mixture)

    def predict(self, X: ArrayLike, Xerr: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable component of each sample.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The samples.
        Xerr : array-like of shape (n_samples, n_features, n_features) -- The covariances of their noise.
        Returns: labels : ndarray of shape (n_samples,) -- The components.
        """
        return self._data(X, Xerr).labels(self._engine())

    def predict_proba(self, X: ArrayLike, Xerr: ArrayLike) -> _Float64:
        """Return the probabilities of the components of each sample.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The samples.
        Xerr : array-like of shape (n_samples, n_features, n_features) -- The covariances of their noise.
        Returns: resp : ndarray of shape (n_samples, n_components) -- The probabilities.
        """
        return self.score_samples(X, Xerr)[1]

    def score(self, X: ArrayLike, Xerr: ArrayLike) -> float:
        """Return the mean log-likelihood of a sample.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The samples.
        Xerr : array-like of shape (n_samples, n_features, n_features) -- The covariances of their noise.
        Returns: score : float -- The mean.
        """
        return self._data(X, Xerr).mean_score(self._engine())

    def logL(self, X: ArrayLike, Xerr: ArrayLike) -> float:
        """Return the log-likelihood of all samples.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The samples.
        Xerr : array-like of shape (n_samples, n_features, n_features) -- The covariances of their noise.
        Returns: logL : float -- The sum.
        """
        return float(self.score_samples(X, Xerr)[0].sum())

    def bic(self, X: ArrayLike, Xerr: ArrayLike) -> float:
        """Return the Bayesian information criterion; the lower the better.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The samples.
        Xerr : array-like of shape (n_samples, n_features, n_features) -- The covariances of their noise.
        Returns: bic : float -- -2 log L + p log N, with p parameters and N samples.
        """
        scores = self.score_samples(X, Xerr)[0]
        return float(-2.0 * scores.sum() + self._engine().n_parameters * np.log(len(scores)))

    def bic_test(self, X: ArrayLike, Xerr: ArrayLike, param_range: Sequence[int], no_err: bool = False) -> tuple[_Float64, int, float]:
        """Fit with several numbers of components.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The samples.
        Xerr : array-like of shape (n_samples, n_features, n_features) -- The covariances of their noise.
        param_range : sequence of int -- The numbers.
        no_err : bool, default=False -- Whether the noise is left out.
        Returns:
        bics : ndarray -- The criterion of each number.
        optimal_n_comp : int -- The number of the lowest.
        lowest_bic : float -- The lowest.
        """
        errors = np.zeros_like(np.asarray(Xerr, dtype=np.float64)) if no_err else Xerr
        how = {"max_iter": self.max_iter, "tol": self.tol, "random_state": self.random_state, "method": self.method, "w": self.w}
        bics = np.array([XDGMM(k, **how).fit(X, errors).bic(X, errors) for k in param_range])
        return bics, param_range[int(bics.argmin())], float(bics.min())

    def sample(self, size: int = 1, random_state: Any = None) -> _Float64:
        """Draw true values.
        Parameters:
        size : int, default=1 -- How many.
        random_state
        Returns: X : ndarray of shape (size, n_features) -- The samples, in random order.
        """
        random = check_random_state(self.random_state if random_state is None else random_state)
        X = Mixture._of(self._engine()).sample(size, random)[0]
        return cast(_Float64, random.permutation(X))

    def condition(self, X_input: ArrayLike | None = None, X_dict: dict[str, Any] | None = None) -> XDGMM:
        """Return the mixture of some features given the others.
        Parameters:
        X_input : array-like of shape (n_features,) or (n_features, 2), default=None
            The values of the features, NaN where they are not given; or the values and their errors.
        X_dict : dict, default=None -- The same by the names of the `labels`.
        Returns: xdgmm : XDGMM -- The mixture of the features without values.
        """
        d = self.mu.shape[1]
        if X_dict is not None:
            if self.labels is None:
                raise ValueError("X_dict needs the names of the features; set labels")
            given = np.full((d, 2), [np.nan, 0.0])
            for name, value in X_dict.items():
                given[list(self.labels).index(name), : np.size(value)] = value
        else:
            array = np.asarray(X_input, dtype=np.float64)
            given = array if array.ndim == 2 else np.stack([array, np.zeros(d)], axis=1)
        seen = ~np.isnan(given[:, 0])
        gain = self.V[:, :, seen] @ np.linalg.inv(self.V[:, seen][:, :, seen] + np.diag(given[seen, 1] ** 2))
        delta = given[seen, 0] - self.mu[:, seen]
        part = XDGMM(self.n_components, self.max_iter, self.tol, self.verbose, self.random_state, method=self.method, w=self.w)
        if self.labels is not None:
            part.labels = [name for name, known in zip(self.labels, seen, strict=True) if not known]
        part.mu = (self.mu + (gain @ delta[:, :, np.newaxis])[..., 0])[:, ~seen]
        part.V = (self.V - gain @ self.V[:, seen])[:, ~seen][:, :, ~seen]
        marginal = _core.Mixture(self.alpha, self.mu[:, seen], self.V[:, seen][:, :, seen], "full")
        part.alpha = _core.Data(
            given[np.newaxis, seen, 0], noise=(np.diag(given[seen, 1] ** 2)[np.newaxis], False, None, None)
        ).responsibilities(marginal)[0]
        return part

    def save_model(self, filename: str) -> None:
        """Write the mixture to a file that the command ``gmm`` reads.
        Parameters: filename : str -- The file; its name ends in .json or .npz.
        """
        Mixture._of(self._engine(), None if self.labels is None else tuple(self.labels)).save(filename)

    def read_model(self, filename: str) -> XDGMM:
        """Read what `save_model` wrote.
        Parameters: filename : str -- The file.
        Returns: self : XDGMM -- The mixture.
        """
        mixture = Mixture.load(filename)
        self.alpha, self.mu, self.V = mixture.weights, mixture.means, mixture.covariances
        self.n_components, self.labels = mixture.n_components, mixture.feature_names
        return self
