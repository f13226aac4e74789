"""The type of a fitted mixture's attributes: float32 for float32 data, where float32 holds the mixture."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _core

#: float32 holds a mixture if rounding its parameters changes the log density of a typical sample of each component by less than this.
#: Where the features are not collinear the change is about 10⁻⁶. It grows with the condition number of the correlations, and with the
#: distance of a mean from 0 in standard deviations; float32's mixture is another one, or none, long before either is 10⁷.
TOLERANCE = 1e-4
#: Numbers of the matrices that are looked at together.
_AT_ONCE = 1 << 20


def attribute_type(mixture: _core.Mixture | _core.VariationalMixture, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of a mixture's attributes: float32 for samples in float32, if each attribute, rounded, defines the same mixture."""
    with np.errstate(all="ignore"):
        return np.dtype(np.float32 if dtype == np.float32 and _is_held(mixture) else np.float64)


def _error(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what rounding to float32 adds."""
    return x.astype(np.float32).astype(np.float64) - x


def _is_held(mixture: _core.Mixture | _core.VariationalMixture) -> bool:
    weights, means, kind = mixture.weights, mixture.means, mixture.covariance_type
    # A small weight must not become zero.
    if not np.all(np.abs(_error(weights)) <= TOLERANCE * weights):
        return False
    covariances, precisions, factors = mixture.covariances, mixture.precisions, mixture.precisions_cholesky
    if kind not in ("full", "tied"):
        relative = [_error(x) / x for x in (covariances, precisions, factors)]
        shifts = _error(means) * (factors if kind == "diag" else factors[:, np.newaxis])
        # Comparisons with what is not a number are false.
        return all(bool(np.all(np.abs(x) < TOLERANCE)) for x in (*relative, shifts))
    if kind == "tied":
        covariances, precisions, factors = covariances[np.newaxis], precisions[np.newaxis], factors[np.newaxis]
    k, d = means.shape
    step = max(1, _AT_ONCE // d**2)
    for first in range(0, len(factors), step):
        some = slice(first, first + step)
        sigma, p, u = covariances[some], precisions[some], factors[some]
        shifts = _error(means if kind == "tied" else means[some])
        shifts = shifts @ u[0] if kind == "tied" else np.einsum("kd,kde->ke", shifts, u)
        if not np.all(np.linalg.norm(shifts, axis=1) < TOLERANCE):
            return False
        narrow = (u + _error(u)) @ np.swapaxes(u + _error(u), 1, 2)
        for inverse, error in ((p, _error(sigma)), (sigma, _error(p)), (sigma, narrow - p)):
            if not np.all(_relative(inverse, error) < TOLERANCE):
                return False
    return True


def _relative(inverse: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Frobenius norm of L⁻¹·E·L⁻ᵀ for errors E of matrices L·Lᵀ, of which the inverses are given.

    With z = L⁻¹(x − μ) the error of a log density is (tr F − zᵀFz) / 2 to the first order, for F = L⁻¹·E·L⁻ᵀ: it has
    the mean 0 and the standard deviation ‖F‖ / √2 over the samples of the component. ‖F‖² is the trace of (Σ⁻¹E)².
    """
    product = inverse @ error
    return np.sqrt(np.abs(np.einsum("kij,kji->k", product, product)))
