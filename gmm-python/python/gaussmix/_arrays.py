"""Checks of what callers give, before it reaches the engine."""

from __future__ import annotations

import warnings
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from . import _core
from ._gpu import checked, on_gpu, on_host

Floats = NDArray[np.floating[Any]]

#: The most bytes that the engine's copy of the samples may take; of more, it loads chunk after chunk for each pass, so
#: that a memory-mapped file may be larger than the memory. None is half of the machine's memory.
MEMORY: int | None = None


def is_mapped(X: object) -> bool:
    """Say whether an array lies in a memory-mapped file."""
    while isinstance(X, np.ndarray):
        if isinstance(X, np.memmap):
            return True
        X = X.base
    return False


def is_plain(X: object, n_features: int) -> bool:
    """Say whether the engine takes ``X`` as it is, finite or not."""
    return (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype.char in "df"
        and X.dtype.isnative
        and X.shape[1] == n_features
        and X.shape[0] > 0
    )


def validated(
    estimator: Any, X: Any, *, reset: bool, min_samples: int = 1, check_finite: bool = False
) -> Floats | _core.GpuArray:
    """Convert ``X`` as scikit-learn does, to float64 or float32 in native byte order.

    Without ``check_finite`` the engine is to look for NaN, which it does anyway. An array in a GPU's memory stays
    there.
    """
    missing = takes_missing(estimator)
    if missing:
        refuse_gpu(X)
    if on_gpu(X):
        array = checked(X, type(estimator).__name__, min_samples=min_samples)
        validate_data(estimator, array, reset=reset, skip_check_array=True)
        return array
    X = validate_data(
        estimator,
        X,
        reset=reset,
        dtype=[np.float64, np.float32],
        ensure_min_samples=min_samples,
        ensure_all_finite="allow-nan" if check_finite and missing else check_finite,
    )
    if not X.dtype.isnative:
        X = X.astype(X.dtype.newbyteorder("="))
    return np.asarray(X)


def takes_missing(estimator: Any) -> bool:
    """Say whether NaN stands for a missing value."""
    return bool(getattr(estimator, "missing", False))


def refuse_gpu(X: object) -> None:
    """Refuse an array in a GPU's memory, where values may be missing."""
    if on_gpu(X):
        raise ValueError("missing=True takes no array in a GPU's memory; bring the array to the host")


def note_missing(X: Floats) -> None:
    """Warn of samples without any value, before a fit; refuse a feature without any."""
    missing = np.isnan(X)
    unobserved = missing.all(axis=0)
    if unobserved.any():
        raise ValueError(
            f"nothing is observed in column {int(unobserved.argmax())} (counted from 0): all of its values are "
            "missing; leave the column out"
        )
    empty = missing.all(axis=1)
    if empty.any():
        count, first = int(empty.sum()), f"row {int(empty.argmax())} (counted from 0)"
        what = f"{first} has no observed value; it"
        if count > 1:
            what = f"{count} rows have no observed value, the first is {first}; each"
        warnings.warn(f"{what} counts with the log-likelihood 0", UserWarning, stacklevel=5)


def load(
    estimator: Any,
    X: Any,
    sample_weight: Any,
    *,
    device: str,
    threads: int | None,
    original: Any = None,
) -> _core.Data:
    """Bring checked samples to a device; NaN gets scikit-learn's message."""
    try:
        missing = takes_missing(estimator)
        return _core.Data(X, sample_weight, device=device, threads=threads, memory=MEMORY, missing=missing)
    except _core.NonFiniteError as error:
        if on_gpu(X):
            raise ValueError(f"Input X contains NaN or infinity: {error}") from error
        refuse_non_finite(estimator, X if original is None else original, error)
        raise


def refuse_non_finite(estimator: Any, X: Any, error: Exception) -> None:
    """Give scikit-learn's message about a value that is not finite, and the engine's, which says where it is."""
    try:
        validated(estimator, X, reset=False, check_finite=True)
    except ValueError as message:
        raise ValueError(f"{message}\n{error}") from error


def checked_weights(sample_weight: Any, n_samples: int) -> NDArray[np.float64] | None:
    """Convert sample weights to an array of shape (n_samples,)."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Number):
        return np.full(n_samples, sample_weight, dtype=np.float64)
    weights = check_array(
        on_host(sample_weight), ensure_2d=False, dtype=np.float64, input_name="sample_weight", allow_nd=True
    )
    if weights.ndim != 1:
        raise ValueError(f"Sample weights must be 1D array or scalar, got {weights.ndim}D array.")
    if weights.shape != (n_samples,):
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(n_samples,)}!")
    return np.asarray(weights)


def n_threads(n_jobs: int | None) -> int | None:
    """Give the number of threads for ``n_jobs`` as joblib counts; ``None`` leaves it to RAYON_NUM_THREADS."""
    if n_jobs is None:
        return None
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs))
