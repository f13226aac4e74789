"""Checks of what callers give, before it reaches the engine."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from . import _core

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


def validated(estimator: Any, X: Any, *, reset: bool, min_samples: int = 1, check_finite: bool = False) -> Floats:
    """Convert ``X`` as scikit-learn does, to float64 or float32 in native byte order.

    Without ``check_finite`` the engine is to look for NaN, which it does anyway.
    """
    X = validate_data(
        estimator,
        X,
        reset=reset,
        dtype=[np.float64, np.float32],
        ensure_min_samples=min_samples,
        ensure_all_finite=check_finite,
    )
    if not X.dtype.isnative:
        X = X.astype(X.dtype.newbyteorder("="))
    return np.asarray(X)


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
        return _core.Data(X, sample_weight, device=device, threads=threads, memory=MEMORY)
    except _core.NonFiniteError:
        validated(estimator, X if original is None else original, reset=False, check_finite=True)
        raise


def checked_weights(sample_weight: Any, n_samples: int) -> NDArray[np.float64] | None:
    """Convert sample weights to an array of shape (n_samples,)."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Number):
        return np.full(n_samples, sample_weight, dtype=np.float64)
    weights = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight", allow_nd=True
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
