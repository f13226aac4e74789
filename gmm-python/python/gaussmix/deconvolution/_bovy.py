"""The function with the interface of the program of Bovy, Hogg and Roweis."""

from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _core
from .._measurements import Float64, Measurements, numbers_of

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
        split = (r * np.log(np.where(r > 0.0, r, 1.0))).sum(axis=0) + spread
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
    y, noise = numbers_of(ydata, "ydata"), np.asarray(ycovar, dtype=np.float64)
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
