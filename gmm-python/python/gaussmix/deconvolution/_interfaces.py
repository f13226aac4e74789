"""The interfaces of other programs: the function of Bovy, Hogg and Roweis, and the class of astroML's and Holoien's."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from sklearn.mixture import GaussianMixture as ScikitLearn
from sklearn.utils import check_random_state

from .. import _core
from .._arrays import Float64, Floats, Measurements, Self, numbers_of
from .._mixture import Mixture
from ._estimator import ExtremeDeconvolution

#: Amplitudes, means and covariances, and which of each are fixed.
_Parameters: TypeAlias = tuple[Float64, Float64, Float64]
_Fixed: TypeAlias = tuple[NDArray[np.bool_], ...]


class _Fit:
    """Samples, and iterations of EM over them."""

    def __init__(self, measured: Measurements, weights: Float64 | None, fixed: _Fixed, tol: float, maxiter: float, w: float) -> None:
        self.measured, self.fixed, self.tol, self.maxiter, self.w = measured, fixed, tol, maxiter, w
        self.n = len(measured.X)  # type: ignore[arg-type]
        self.weights = np.ones(self.n) if weights is None else weights
        self.data = _core.Data(measured.X, weights, noise=measured._given(self.n))  # type: ignore[arg-type]

    def iterate(self, parameters: _Parameters, fixed: _Fixed) -> tuple[_Parameters, float]:
        """Return the parameters after an iteration, and the average log-likelihood before it."""
        try:
            sums = self.data.e_step(_core.Mixture(*parameters, "full"))
            counts, found, scatter, total = sums.counts, sums.means, sums.scatter, sums.log_likelihood
        except _core.IllDefinedError:
            # Covariances to start with need only make those of the samples, with their noise, positive definite.
            counts, found, scatter, total = self.sums_by_formulas(*parameters)
        amp, means, covariances = parameters
        keep_amp, keep_means, keep = fixed
        # A component without samples stays as it is.
        n = np.maximum(counts, np.finfo(float).tiny)[:, np.newaxis]
        empty = counts <= np.finfo(float).tiny
        moved = np.where((keep_means | empty)[:, np.newaxis], means, found)
        delta = found - moved
        second = scatter + n[..., np.newaxis] * delta[:, :, np.newaxis] * delta[:, np.newaxis]
        new = (second + self.w * np.eye(means.shape[1])) / (n[..., np.newaxis] + (self.w > 0.0))
        # So does the covariance of one that collapses.
        stays = keep | empty | (_is_definite(covariances) & ~_is_definite(new))
        shares = np.where(keep_amp, 0.0, counts)
        free = (1.0 - amp[keep_amp].sum()) / max(shares.sum(), np.finfo(float).tiny)
        return (
            np.where(keep_amp, amp, shares * free),
            moved,
            np.where(stays[:, np.newaxis, np.newaxis], covariances, (new + new.transpose(0, 2, 1)) / 2.0),
        ), total / self.n

    def sums_by_formulas(self, amp: Float64, means: Float64, V: Float64) -> tuple[Float64, Float64, Float64, float]:
        """Return the counts, means and scatters of the true values, and the log-likelihood, by the formulas of the paper."""
        y, S, R = (np.asarray(part, dtype=np.float64) for part in self.measured)
        c = y.shape[1]
        S = S[:, :, np.newaxis] * np.eye(c) if S.ndim == 2 else S
        R = (np.eye(c) if R.ndim == 0 else R)[..., np.newaxis, :, :]
        gain = V @ R.swapaxes(-1, -2)
        T, delta = R @ gain + S[:, np.newaxis], y[:, np.newaxis] - (R @ means[..., np.newaxis])[..., 0]
        sign, log_det = np.linalg.slogdet(T)
        if not (sign > 0.0).all():
            row = np.argmin(sign.min(axis=1))
            raise ValueError(f"xcovar is not positive definite, nor is it with the noise of row {row}; give another start")
        inverse = np.linalg.inv(T)
        log_p = np.log(amp) - 0.5 * (np.einsum("nki,nkij,nkj->nk", delta, inverse, delta) + log_det + c * np.log(2 * np.pi))
        score = np.logaddexp.reduce(log_p, axis=1)
        q = np.exp(log_p - score[:, np.newaxis]) * self.weights[:, np.newaxis]
        gain = gain @ inverse
        values = means + (gain @ delta[..., np.newaxis])[..., 0]
        counts = q.sum(axis=0)
        found = np.einsum("nk,nki->ki", q, values) / counts[:, np.newaxis]
        delta = values - found
        scatter = np.einsum("nk,nkij->kij", q, delta[..., np.newaxis] * delta[..., np.newaxis, :] + V - gain @ R @ V)
        return counts, found, scatter, float(self.weights @ score)

    def run(self, parameters: _Parameters, fixed: _Fixed) -> tuple[_Parameters, float]:
        """Iterate until the average rises by at most `tol`."""
        average, before, iterations = -np.inf, -np.inf, 0
        while iterations < self.maxiter:
            before, iterations = average, iterations + 1
            parameters, average = self.iterate(parameters, fixed)
            if average - before <= self.tol:
                break
        return parameters, average

    def split_and_merge(self, parameters: _Parameters, average: float, tries: int) -> tuple[_Parameters, float]:
        """Fit again after the first of `tries` changes of three components that is better, until none is."""
        random, numbers = np.random.RandomState(0), np.arange(len(parameters[0]))
        better = True
        while better:
            better = False
            for triple in self.triples(*parameters)[:tries]:
                others = ~np.isin(numbers, triple)
                changed = self.run(_merged_and_split(parameters, triple, random), tuple(mask | others for mask in self.fixed))[0]
                found = self.run(changed, self.fixed)
                if found[1] > average + self.tol:
                    (parameters, average), better = found, True
                    break
        return parameters, average

    def triples(self, amp: Float64, means: Float64, V: Float64) -> list[tuple[int, int, int]]:
        """Return the triples of components to merge, j and k, and to split, l, the most promising first."""
        mixture = _core.Mixture(amp, means, V, "full")
        r, sums = self.data.responsibilities(mixture), self.data.e_step(mixture)
        merge, numbers = r.T @ r, range(len(amp))
        # How far the true values of a component, given the samples, are from its density.
        delta = sums.means - means
        scatter = sums.scatter + sums.counts[:, np.newaxis, np.newaxis] * delta[:, :, np.newaxis] * delta[:, np.newaxis]
        log_det = np.linalg.slogdet(V)[1] + means.shape[1] * np.log(2 * np.pi)
        spread = 0.5 * (np.einsum("kij,kij->k", np.linalg.inv(V), scatter) + sums.counts * log_det)
        split = xlogy(r, r).sum(axis=0) + spread
        pairs = sorted(combinations(numbers, 2), key=lambda pair: -merge[pair])
        return [(j, k, s) for j, k in pairs for s in sorted(set(numbers) - {j, k}, key=lambda s: -split[s])]


def _is_definite(matrices: Float64) -> NDArray[np.bool_]:
    values = np.linalg.eigvalsh(matrices)
    return values[:, 0] > 1e-14 * values[:, -1]


def _merged_and_split(parameters: _Parameters, triple: tuple[int, int, int], random: np.random.RandomState) -> _Parameters:
    """Merge two components, and split a third."""
    j, k, s = triple
    amp, means, covariances = (part.copy() for part in parameters)
    shares = amp[[j, k]] / amp[[j, k]].sum()
    amp[j], means[j], covariances[j] = amp[[j, k]].sum(), shares @ means[[j, k]], np.tensordot(shares, covariances[[j, k]], 1)
    d = means.shape[1]
    width = np.exp(np.linalg.slogdet(covariances[s])[1] / d)
    amp[[k, s]] = amp[s] / 2.0
    means[[k, s]] = means[s] + np.sqrt(width) * random.standard_normal((2, d))
    covariances[[k, s]] = width * np.eye(d)
    return amp, means, covariances


def extreme_deconvolution(
    ydata: ArrayLike,
    ycovar: ArrayLike,
    xamp: Float64,
    xmean: Float64,
    xcovar: Float64,
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
    """Fit as the program of Bovy, Hogg and Roweis, and return a sample's average log-likelihood before the last change of the parameters.
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
    """
    y, noise = numbers_of(ydata, "ydata"), numbers_of(ycovar, "ycovar", allow_nd=True)
    (n, c), k = y.shape, len(xamp)
    if noise.shape == (n, c) == (c, c):
        # Variances, and not one covariance.
        noise = noise[:, :, np.newaxis] * np.eye(c)
    weights = None if weight is None else np.asarray(weight, dtype=np.float64)
    weights = np.exp(weights) if weights is not None and logweight else weights
    fixed = tuple(np.broadcast_to(np.asarray(mask is not None and mask, bool), k) for mask in (fixamp, fixmean, fixcovar))
    covariances = np.triu(xcovar) + np.swapaxes(np.triu(xcovar, 1), 1, 2)
    parameters = np.asarray(xamp, dtype=np.float64) / np.sum(xamp), np.array(xmean, dtype=np.float64), covariances
    fit = _Fit(Measurements(y, noise, projection), weights, fixed, tol, maxiter, w)
    if likeonly:
        return fit.iterate(parameters, fixed)[1]
    parameters, average = fit.run(parameters, fixed)
    tries = k * (k - 1) * (k - 2) // 2 if maxsnm else splitnmerge
    if k >= 3 and tries > 0:
        parameters, average = fit.split_and_merge(parameters, average, tries)
    xamp[:], xmean[:], xcovar[:] = parameters
    if logfile is not None:
        with open(f"{logfile}_loglike.log", "a", encoding="utf-8") as file:
            file.write(f"{average}\n")
    return average


class XDGMM:
    """Extreme deconvolution with the methods of astroML's and of Holoien's classes of this name.
    Parameters:
    n_components : int, default=1 -- The number of components.
    max_iter : int, default=100 -- The most iterations.
    tol : float, default=1e-5 -- A fit ends when the log-likelihood of all samples rises by at most this.
    verbose : bool, default=False -- Accepted, and not heeded.
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

    def _unfitted(self, n_components: int) -> XDGMM:
        how = {"max_iter": self.max_iter, "tol": self.tol, "verbose": self.verbose, "random_state": self.random_state}
        return XDGMM(n_components, method=self.method, w=self.w, **how)

    def fit(self, X: ArrayLike, Xerr: ArrayLike, R: object = None) -> Self:
        """Fit the mixture, from ten iterations of EM without noise.
        Parameters: R : None -- Projections are not taken.
        """
        if R is not None:
            raise NotImplementedError("mixing matrix R is not yet implemented")
        x = numbers_of(X, "X")
        start = ScikitLearn(self.n_components, max_iter=10, random_state=self.random_state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start.fit(x)
        self.alpha, self.mu, self.V = start.weights_, start.means_, start.covariances_
        tol, w = (self.tol, self.w) if self.method == "Bovy" else (self.tol / len(x), 0.0)
        extreme_deconvolution(x, Xerr, self.alpha, self.mu, self.V, tol=tol, maxiter=self.max_iter, w=w)
        return self

    def _mixture(self) -> Mixture:
        if self.mu is None:
            raise ValueError("the mixture is not fitted; call fit, or set alpha, mu and V")
        return Mixture(self.alpha, self.mu, self.V, covariance_type="full", feature_names=self.labels)

    def _of(self, X: ArrayLike, Xerr: ArrayLike) -> tuple[ExtremeDeconvolution, Any]:
        """Return the estimator of the mixture, and the samples for it."""
        x, noise = numbers_of(X, "X"), numbers_of(Xerr, "Xerr", allow_nd=True)
        noise = noise[:, :, np.newaxis] * np.eye(x.shape[1]) if noise.ndim == 2 else noise
        return ExtremeDeconvolution.from_parameters(self._mixture()), Measurements(x, noise)

    def logprob_a(self, X: ArrayLike, Xerr: ArrayLike) -> Floats:
        """Return the logarithms of the parts of each component in the density, (n_samples, n_components)."""
        _, measured = self._of(X, Xerr)
        # Probabilities of 0 have no logarithms.
        parts = zip(self.mu[:, np.newaxis], self.V[:, np.newaxis], strict=True)
        alone = [ExtremeDeconvolution.from_parameters([1.0], *part).score_samples(measured) for part in parts]
        with np.errstate(divide="ignore"):
            logs: Floats = np.stack(alone, axis=1) + np.log(self.alpha)
        return logs

    def score_samples(self, X: ArrayLike, Xerr: ArrayLike) -> tuple[Floats, Floats]:
        """Return the log-likelihood of each sample, and the probabilities of its components.
        Returns:
        logprob : ndarray of shape (n_samples,) -- The logarithms of the density.
        resp : ndarray of shape (n_samples, n_components) -- The probabilities.
        """
        xd, measured = self._of(X, Xerr)
        return xd.score_samples(measured), xd.predict_proba(measured)

    def predict(self, X: ArrayLike, Xerr: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable component of each sample, (n_samples,)."""
        xd, measured = self._of(X, Xerr)
        return xd.predict(measured)

    def predict_proba(self, X: ArrayLike, Xerr: ArrayLike) -> Floats:
        """Return the probabilities of the components of each sample, (n_samples, n_components)."""
        return self.score_samples(X, Xerr)[1]

    def score(self, X: ArrayLike, Xerr: ArrayLike) -> float:
        """Return the mean log-likelihood of a sample."""
        xd, measured = self._of(X, Xerr)
        return xd.score(measured)

    def logL(self, X: ArrayLike, Xerr: ArrayLike) -> float:
        """Return the log-likelihood of all samples, their sum."""
        return float(self.score_samples(X, Xerr)[0].sum())

    def bic(self, X: ArrayLike, Xerr: ArrayLike) -> float:
        """Return the Bayesian information criterion -2 log L + p log N, with p parameters and N samples; the lower the better."""
        xd, measured = self._of(X, Xerr)
        return xd.bic(measured)

    def bic_test(self, X: ArrayLike, Xerr: ArrayLike, param_range: Sequence[int], no_err: bool = False) -> tuple[Floats, int, float]:
        """Fit with several numbers of components.
        Parameters:
        param_range : sequence of int -- The numbers.
        no_err : bool, default=False -- Whether the noise is left out.
        Returns:
        bics : ndarray -- The criterion of each number.
        optimal_n_comp : int -- The number of the lowest.
        lowest_bic : float -- The lowest.
        """
        errors = np.zeros_like(Xerr, dtype=np.float64) if no_err else Xerr
        bics = np.array([self._unfitted(k).fit(X, errors).bic(X, errors) for k in param_range])
        return bics, param_range[int(bics.argmin())], float(bics.min())

    def sample(self, size: int = 1, random_state: Any = None) -> Floats:
        """Return true values, (size, n_features), drawn in random order.
        Parameters: size : int, default=1 -- How many.
        """
        random = check_random_state(self.random_state if random_state is None else random_state)
        return random.permutation(self._mixture().sample(size, random)[0])

    def condition(self, X_input: ArrayLike | None = None, X_dict: dict[str, Any] | None = None) -> XDGMM:
        """Return the mixture of the features without values, given the others.
        Parameters:
        X_input : array-like of shape (n_features,) or (n_features, 2), default=None
            The values of the features, NaN where they are not given; or the values and their errors.
        X_dict : dict, default=None -- The same by the names of the `labels`.
        """
        given = np.full((self.mu.shape[1], 2), [np.nan, 0.0])
        if X_dict is None:
            array = np.asarray(X_input, dtype=np.float64)
            given[:, : array.ndim] = array.reshape(len(given), -1)
        elif self.labels is None:
            raise ValueError("X_dict needs the names of the features; set labels")
        else:
            for name, value in X_dict.items():
                given[list(self.labels).index(name), : np.size(value)] = value
        seen = ~np.isnan(given[:, 0])
        # The values are those of features whose variances include the errors.
        errors = np.where(seen, given[:, 1], 0.0)
        mixture = Mixture(self.alpha, self.mu, self.V + np.diag(errors**2), covariance_type="full")
        mixture = mixture.condition({j: given[j, 0] for j in np.flatnonzero(seen).tolist()})
        part = self._unfitted(self.n_components)
        part.alpha, part.mu, part.V = mixture.weights, mixture.means, mixture.covariances
        if self.labels is not None:
            part.labels = [name for name, known in zip(self.labels, seen, strict=True) if not known]
        return part

    def save_model(self, filename: str) -> None:
        """Write the mixture to a file that the command ``gmm`` reads.
        Parameters: filename : str -- The file; its name ends in .json or .npz.
        """
        self._mixture().save(filename)

    def read_model(self, filename: str) -> Self:
        """Read what `save_model` wrote.
        Parameters: filename : str -- The file.
        """
        mixture = Mixture.load(filename)
        self.alpha, self.mu, self.V = mixture.weights, mixture.means, mixture.covariances
        self.n_components, self.labels = mixture.n_components, mixture.feature_names
        return self
