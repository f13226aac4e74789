"""The distribution of some features of a mixture given the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from . import _core
from ._arrays import Floats

#: OpenBLAS makes products of up to so many multiplications on the thread that asks for them.
_ALONE = 1 << 18
#: So many rows are worth a call.
_ROWS = 256


class Conditional:
    """A mixture of what is wanted, with weights and means that depend on what is given.

    Component k has the weight that it has for x under the marginal mixture of what is given, the mean
    μ_y + Σ_yx Σ_xx⁻¹ (x − μ_x) and the covariance Σ_yy − Σ_yx Σ_xx⁻¹ Σ_xy.

    Parameters
    ----------
    mixture : Mixture
        The mixture of all features.
    given : ndarray of int
        The columns of the features that are given; none are too.
    wanted : ndarray of int
        The columns of the others that are wanted.
    """

    #: The mixture of what is given; nothing where nothing is.
    marginal: _core.Mixture | None
    #: The mean of what is given, and what x - centre, with a column of ones, is multiplied by to give the means of all components.
    centre: NDArray[np.float64]
    maps: NDArray[np.float64]
    #: Lower triangular, of each component or of all: factors of the covariances.
    factors: Floats

    def __init__(self, mixture: _core.Mixture, given: NDArray[np.int64], wanted: NDArray[np.int64]) -> None:
        kind, covariances = mixture.covariance_type, mixture.covariances
        self._weights, means = mixture.weights, mixture.means
        x_means, y_means = means[:, given], means[:, wanted]
        # Products of x - centre lose no digits where the data is far from 0.
        self.centre = self._weights @ x_means
        slopes = np.zeros((len(means), len(wanted), len(given)))
        if kind in ("full", "tied"):
            both, n = np.concatenate([given, wanted]), len(given)
            stack = covariances if kind == "full" else covariances[np.newaxis]
            # Of Σ = L·Lᵀ with blocks for x and y: Σ_yx Σ_xx⁻¹ = L_yx L_xx⁻¹, and the covariance of y given x is L_yy·L_yyᵀ.
            lower = np.linalg.cholesky(stack[:, both[:, np.newaxis], both])
            transposed = np.linalg.solve(lower[:, :n, :n].swapaxes(1, 2), lower[:, n:, :n].swapaxes(1, 2))
            slopes[:] = transposed.swapaxes(1, 2)
            self.factors = lower[:, n:, n:]
            of_x = stack[:, given[:, np.newaxis], given]
            of_x = of_x if kind == "full" else of_x[0]
        else:
            variances = covariances[:, wanted] if kind == "diag" else np.repeat(covariances[:, np.newaxis], len(wanted), 1)
            self.factors = np.sqrt(variances)[:, :, np.newaxis] * np.eye(len(wanted))
            of_x = covariances[:, given] if kind == "diag" else covariances
        self.marginal = _core.Mixture(self._weights, x_means, of_x, kind) if len(given) else None
        shifts = y_means - (slopes @ (x_means - self.centre)[:, :, np.newaxis])[:, :, 0]
        self.maps = np.vstack([slopes.reshape(shifts.size, len(given)).T, shifts.reshape(1, -1)])

    def covariances(self) -> Floats:
        """Give the covariance of each component, (n_components, n_wanted, n_wanted)."""
        covariances = self.factors @ self.factors.swapaxes(1, 2)
        return np.broadcast_to(covariances, (len(self._weights), *covariances.shape[1:]))

    def means(self, x: Floats) -> NDArray[np.float64]:
        """Give the mean of each component for each row of what is given, (n_samples, n_components, n_wanted)."""
        means = np.empty((len(x), self.maps.shape[1]))
        # So few rows at a time that a product is made without waiting for threads.
        step = max(_ROWS, _ALONE // self.maps.size)
        block = np.ones((min(step, len(x)), len(self.maps)))
        for first in range(0, len(x), step):
            rows = x[first : first + step]
            np.subtract(rows, self.centre, out=block[: len(rows), :-1])
            np.matmul(block[: len(rows)], self.maps, out=means[first : first + step])
        return means.reshape(len(x), len(self._weights), -1)

    def log_density(self, x: Floats, y: Floats, load: Callable[[Floats], _core.Data]) -> NDArray[np.float64]:
        """Give the logarithm of the density of each row of what is wanted, given each row of the rest."""
        deviations = (y[:, np.newaxis] - self.means(x)).transpose(1, 2, 0)
        diagonals = np.diagonal(self.factors, axis1=1, axis2=2)
        with np.errstate(divide="ignore", over="ignore"):
            squares = np.square(np.linalg.solve(self.factors, deviations)).sum(axis=1).T
            logs = np.log(self.responsibilities(x, load)) - np.log(diagonals).sum(axis=1) - squares / 2
            density: NDArray[np.float64] = logsumexp(logs, axis=1) - y.shape[1] / 2 * np.log(2 * np.pi)
        return density

    def responsibilities(self, x: Floats, load: Callable[[Floats], _core.Data]) -> NDArray[np.float64]:
        """Give the weight of each component for each row of what is given, (n_samples, n_components)."""
        if self.marginal is None:
            return np.broadcast_to(self._weights, (len(x), len(self._weights)))
        return load(x).responsibilities(self.marginal)
