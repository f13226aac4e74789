"""Samples with their noise."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array

Float64: TypeAlias = NDArray[np.float64]
#: Noise as the engine takes it: an array, whether it is one covariance for all, the groups, and the projections.
Given: TypeAlias = tuple[Float64, bool, list[int] | None, Float64 | None]


class Measurements(NamedTuple):
    """Samples with their noise, wherever an `ExtremeDeconvolution`, a `Likelihood` or ``select`` takes samples.
    Parameters:
    X : array-like of shape (n_samples, n_columns) -- What was measured.
    noise : array-like
        One covariance for all samples (n_columns, n_columns), a variance for each value (n_samples, n_columns), a
        covariance for each sample (n_samples, n_columns, n_columns), or a tuple of J covariances (J, n_columns,
        n_columns) and the number of that of each sample (n_samples,).
    projection
    """

    X: ArrayLike
    noise: Any
    projection: ArrayLike | None = None

    def _given(self, n: int, scale: Float64 | None = None) -> Given:
        """Return the noise for the engine, which checks the shapes, of columns that are divided by `scale`."""
        noise, groups = self.noise, None
        if isinstance(noise, tuple):
            noise, numbers = noise
            groups = numbers_of(numbers, "the groups of the noise", dtype=np.int64, ensure_2d=False).tolist()
            if np.ndim(noise) != 3 or len(groups) != n or min(groups) < 0:
                raise ValueError(f"noise of groups should be matrices (J, n_columns, n_columns) and {n} numbers below J")
        noise = numbers_of(noise, "noise", allow_nd=True)
        c = noise.shape[-1]
        common: bool = noise.shape == (c, c)
        if common and n == c:
            raise ValueError(f"noise of shape {noise.shape} may be variances or one covariance; give {(n, c, c)}")
        if scale is not None:
            noise = noise / (scale * scale if noise.ndim == 2 and not common else np.outer(scale, scale))
        projection = None if self.projection is None else numbers_of(self.projection, "projection", allow_nd=True)
        return noise, common, groups, projection


def numbers_of(values: Any, name: str, dtype: Any = np.float64, **how: Any) -> Any:
    """Return checked numbers; the engine looks for what is not finite."""
    return check_array(values, dtype=dtype, ensure_all_finite=False, input_name=name, **how)
