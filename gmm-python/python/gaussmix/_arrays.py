"""Checks of what callers give, samples and their noise, before it reaches the engine."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Number
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from . import _core
from ._gpu import checked, on_gpu, on_host
from ._warnings import warn

if TYPE_CHECKING:
    from typing_extensions import Self as Self
else:
    # Python 3.10 has no such type; this is for documentation.
    Self = TypeVar("Self")
Floats = NDArray[np.floating[Any]]
Float64: TypeAlias = NDArray[np.float64]
#: The weights and the labels of samples, where they have some.
Weights = NDArray[np.float64] | None
Labels = NDArray[np.int64] | NDArray[np.bool_]

#: The engine starts no more threads.
MAX_THREADS = 4096

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


def is_plain(X: Any, n_features: int | None = None) -> TypeGuard[Floats]:
    """Say whether the engine takes ``X`` as it is, finite or not; without ``n_features``, of any number of them."""
    return (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype.char in "df"
        and X.dtype.isnative
        and (X.shape[1] > 0 if n_features is None else X.shape[1] == n_features)
        and X.shape[0] > 0
    )


def validated(estimator: Any, X: Any, *, reset: bool, min_samples: int = 1, check_finite: bool = False) -> Floats | _core.GpuArray:
    """Return ``X`` as scikit-learn converts it, in float64 or float32, on its GPU if it is there; ``check_finite`` looks for NaN."""
    missing = takes_missing(estimator)
    if missing:
        X = copied_from_gpu(X, type(estimator).__name__, min_samples=min_samples)
    X = na_as_nan(X)
    if on_gpu(X):
        array = checked(X, type(estimator).__name__, min_samples=min_samples)
        validate_data(estimator, array, reset=reset, skip_check_array=True)
        return array
    X = on_host(X)
    if reset and not check_finite and is_plain(X) and X.shape[0] >= min_samples:
        # What scikit-learn's function would do, in less time than it takes to find out.
        estimator.n_features_in_ = X.shape[1]
        vars(estimator).pop("feature_names_in_", None)
        return X
    X = validate_data(
        estimator,
        X,
        reset=reset,
        dtype=[np.float64, np.float32],
        ensure_min_samples=min_samples,
        ensure_all_finite="allow-nan" if check_finite and missing else check_finite,
    )
    return native(X)


def native(x: Floats) -> Floats:
    """Return an array in native byte order."""
    return np.asarray(x, dtype=x.dtype.newbyteorder("="))


def takes_missing(estimator: Any) -> bool:
    """Say whether NaN stands for a missing value."""
    return bool(getattr(estimator, "missing", False))


def refuse_masked(array: Any, name: str) -> None:
    """Refuse an array of which a mask hides values, where a value may not be missing."""
    if np.ma.is_masked(array):
        rows = np.flatnonzero(np.ma.getmaskarray(array).reshape(len(array), -1).any(axis=1))
        raise ValueError(f"{name} is a masked array, and its mask hides a value in row {rows[0]} (counted from 0); leave such rows out")


def na_as_nan(X: Any) -> Any:
    """Return ``X`` with NaN for what a mask hides, and for pandas' NA among Python's objects, as scikit-learn does in pandas' own types."""
    if isinstance(X, np.ma.MaskedArray):
        hidden, X = np.ma.getmaskarray(X), np.asarray(X)
        if hidden.any():
            X = np.where(hidden, np.asarray(np.nan, dtype=X.dtype if X.dtype.kind == "f" else np.float64), X)
        return X
    # Who has an NA has imported pandas.
    pandas = sys.modules.get("pandas")
    if pandas is None:
        return X
    if isinstance(X, pandas.DataFrame):
        # Dask makes strings of objects.
        if not any(pandas.api.types.is_string_dtype(dtype) for dtype in X.dtypes):
            return X
        objects, missing = X.astype(object), X.isna()
        return objects.mask(missing, np.nan) if missing.to_numpy().any() else X
    if isinstance(X, (list, tuple)):
        try:
            objects = np.asarray(X)
        except ValueError:
            # scikit-learn says what is wrong with it.
            return X
    else:
        objects = X
    if type(objects) is np.ndarray and objects.dtype == object:
        missing = pandas.isna(objects)
        return np.where(missing, np.nan, objects) if missing.any() else X
    return X


def floats(X: Any, dtype: Any) -> Floats:
    """Convert an array or a table, which may have no rows, as scikit-learn does, to one of these types; the engine looks for NaN."""
    return native(numbers_of(X, "X", dtype, order="C", ensure_min_samples=0))


def copied_from_gpu(X: Any, user: str, *, min_samples: int = 1) -> Any:
    """Copy samples that are in a GPU's memory, and of which values may be missing, to the host; treat all else as `on_host` does."""
    return on_host(checked(X, user, min_samples=min_samples) if on_gpu(X) else X)


class Missing(NamedTuple):
    """What is missing in some rows: columns without any value in a row with a weight, and rows without any value."""

    unobserved: tuple[int, ...]
    empty_rows: int
    first_empty_row: int | None

    @classmethod
    def of(cls, X: Floats, sample_weight: Weights) -> Missing:
        """Look through an array, in which NaN stands for a missing value."""
        missing = np.isnan(X)
        empty = missing.all(axis=1)
        counted = missing if sample_weight is None else missing[sample_weight > 0]
        unobserved = tuple(np.flatnonzero(counted.all(axis=0)).tolist())
        return cls(unobserved, int(empty.sum()), int(empty.argmax()) if empty.any() else None)


def note_missing(missing: Missing) -> None:
    """Warn of samples without any value, before a fit; refuse a feature without any."""
    if missing.unobserved:
        raise ValueError(
            f"nothing is observed in column {missing.unobserved[0]} (counted from 0): all of its values are missing, or in "
            "rows without weight; leave the column out"
        )
    if missing.empty_rows:
        first = f"row {missing.first_empty_row} (counted from 0)"
        what = f"{first} has no observed value; it"
        if missing.empty_rows > 1:
            what = f"{missing.empty_rows} rows have no observed value, the first is {first}; each"
        warn(f"{what} counts with the log-likelihood 0")


def load(
    estimator: Any, X: Any, sample_weight: Any, *, original: Any = None, labels: Labels | None = None, noise: Any = None
) -> _core.Data:
    """Bring checked samples to the device of an estimator; NaN gets scikit-learn's message."""
    how: dict[str, Any] = {"device": estimator.device, "threads": n_threads(estimator.n_jobs), "memory": MEMORY, "noise": noise}
    how |= {"missing": takes_missing(estimator), "reproducible": getattr(estimator, "reproducible", False)}
    if labels is not None:
        how["labels"] = (labels, estimator.n_components)
    with refusing_non_finite(X if on_gpu(X) or original is None else original, estimator):
        return _core.Data(X, sample_weight, **how)


@contextmanager
def refusing_non_finite(X: Any, estimator: Any = None, missing: bool = False) -> Iterator[None]:
    """Put scikit-learn's message about a value that is not finite before the engine's, which says where it is."""
    try:
        yield
    except _core.NonFiniteError as error:
        if on_gpu(X):
            raise ValueError(f"Input X contains NaN or infinity: {error}") from error
        try:
            if estimator is None:
                check_array(X, input_name="X", ensure_all_finite="allow-nan" if missing else True)
            else:
                validated(estimator, X, reset=False, check_finite=True)
        except ValueError as message:
            raise ValueError(f"{message}\n{error}") from error
        raise


@contextmanager
def rows_of_caller(order: Sequence[int] | NDArray[np.int64] | None, starts: NDArray[np.int64] | None = None) -> Iterator[None]:
    """Have the engine's errors name the rows of the caller.

    `order` has the caller's row of each row that the engine has, where they differ; `starts`, where each of several
    arrays begins that the caller gave as groups.
    """

    def place(found: re.Match[str]) -> str:
        row = int(found[1]) if order is None else int(order[int(found[1])])
        if starts is None:
            return f"row {row}"
        group = int(np.searchsorted(starts, row, side="right")) - 1
        return f"row {row - starts[group]} of group {group}"

    try:
        yield
    except ValueError as error:
        raise type(error)(re.sub(r"\brow (\d+)", place, str(error))) from None


def checked_labels(labels: Any, n_samples: int, n_components: int, first: int = 0) -> Labels:
    """Check what is known of samples' components: numbers, -1 where unknown, or a mask of those allowed; errors count from `first`."""
    refuse_masked(labels, "labels")
    array = np.asarray(labels)
    if array.dtype == np.bool_ and array.shape == (n_samples, n_components):
        without = np.flatnonzero(~array.any(axis=1))
        if len(without):
            raise ValueError(f"labels allow sample {first + without[0]} no component")
        return np.ascontiguousarray(array)
    if array.dtype.kind not in "iu" or array.shape != (n_samples,):
        raise ValueError(
            f"labels have shape {array.shape} and type {array.dtype}; they should be whole numbers ({n_samples},), -1 where "
            f"a label is not known, or a mask {(n_samples, n_components)} of the components that a sample may belong to"
        )
    outside = np.flatnonzero((array < -1) | (array >= n_components))
    if len(outside):
        raise ValueError(
            f"labels have {array[outside[0]]} for sample {first + outside[0]}; they are the numbers of components, from 0 to "
            f"{n_components - 1}, or -1 where that is not known"
        )
    return np.ascontiguousarray(array, dtype=np.int64)


def checked_weights(sample_weight: Any, n_samples: int) -> Weights:
    """Convert sample weights to an array of shape (n_samples,)."""
    if sample_weight is None:
        return None
    refuse_masked(sample_weight, "sample_weight")
    # scikit-learn's check refuses arrays of no numbers, which belong to no samples here.
    if isinstance(sample_weight, Number) or n_samples == 0 and np.size(sample_weight) == 0:
        return np.full(n_samples, sample_weight, dtype=np.float64)
    weights = check_array(on_host(sample_weight), ensure_2d=False, dtype=np.float64, input_name="sample_weight", allow_nd=True)
    if weights.ndim != 1:
        raise ValueError(f"Sample weights must be 1D array or scalar, got {weights.ndim}D array.")
    if weights.shape != (n_samples,):
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(n_samples,)}!")
    return np.asarray(weights)


def n_threads(n_jobs: int | None) -> int | None:
    """Return the number of threads for ``n_jobs`` as joblib counts; ``None`` leaves it to RAYON_NUM_THREADS."""
    if n_jobs is None:
        return None
    from joblib import effective_n_jobs

    threads = int(effective_n_jobs(n_jobs))
    if threads > MAX_THREADS:
        raise ValueError(f"n_jobs is {n_jobs}; at most {MAX_THREADS} threads are started")
    return threads


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

    def _given(self, n: int, scale: Float64 | None = None, *, copy: bool = False) -> Given:
        """Return the noise for the engine, which checks the shapes and borrows the arrays, of columns that are divided by `scale`."""
        noise, groups = self.noise, None
        if isinstance(noise, tuple):
            noise, numbers = noise
            groups = numbers_of(numbers, "the groups of the noise", dtype=np.int64, ensure_2d=False).tolist()
            if np.ndim(noise) != 3 or len(groups) != n or min(groups) < 0:
                raise ValueError(f"noise of groups should be matrices (J, n_columns, n_columns) and {n} numbers below J")
        noise = numbers_of(noise, "noise", allow_nd=True, copy=copy)
        c = noise.shape[-1]
        common: bool = noise.shape == (c, c)
        if common and n == c:
            raise ValueError(f"noise of shape {noise.shape} may be variances or one covariance; give {(n, c, c)}")
        if scale is not None:
            noise = noise / (scale * scale if noise.ndim == 2 and not common else np.outer(scale, scale))
        projection = None if self.projection is None else numbers_of(self.projection, "projection", allow_nd=True, copy=copy)
        return noise, common, groups, projection


def numbers_of(values: Any, name: str, dtype: Any = np.float64, ensure_all_finite: bool | str = False, **how: Any) -> Any:
    """Return numbers that scikit-learn has checked, with NaN for what is missing; the engine looks for what is not finite."""
    return check_array(na_as_nan(on_host(values)), dtype=dtype, ensure_all_finite=ensure_all_finite, input_name=name, **how)
