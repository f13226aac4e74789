"""Partitions of the samples: what one worker loads, and how files are divided into them."""

import glob
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._arrays import Floats, Labels, Weights, checked_labels, checked_weights, floats

#: Samples are divided so that there are about this many partitions, ...
PARTITIONS = 512
#: ... but none of fewer or more bytes than these.
PARTITION_BYTES = (4 << 20, 256 << 20)

#: The kinds of errors that stay of their kind when the partition is named, the special ones first.
_KINDS: tuple[type[Exception], ...] = (
    _core.OutOfRangeError,
    _core.IllDefinedError,
    _core.NonFiniteError,
    _core.TooFewSamplesError,
    FileNotFoundError,
    PermissionError,
    OSError,
    MemoryError,
    TypeError,
    ValueError,
    RuntimeError,
)


class Rows(NamedTuple):
    """Rows of a .npy file, from `first` to before `last`."""

    path: str
    first: int
    last: int

    def read(self) -> NDArray[Any]:
        """Read the rows, and nothing else of the file."""
        x = _npy(self.path)
        if not x.flags.c_contiguous:
            return np.array(x[self.first : self.last], order="C")
        shape = (self.last - self.first, *x.shape[1:])
        begin = x.offset + self.first * math.prod(x.shape[1:]) * x.itemsize
        return np.fromfile(self.path, x.dtype, math.prod(shape), offset=begin).reshape(shape)


class RowGroups(NamedTuple):
    """Row groups of a Parquet file, from `first` to before `last`."""

    path: str
    first: int
    last: int
    dtype: str

    def read(self) -> NDArray[Any]:
        parquet = _parquet()
        with parquet.ParquetFile(self.path) as file:
            table = file.read_row_groups(range(self.first, self.last))
        x = np.empty((table.num_rows, table.num_columns), self.dtype)
        for j, column in enumerate(table.itercolumns()):
            x[:, j] = column.to_numpy()
        return x


class Array(NamedTuple):
    """What is in memory already: an array, or a table of pandas."""

    values: Any

    def read(self) -> Any:
        return self.values


#: What the samples of a partition have beside, if they have something: rows of files, one after the other, or an array.
Beside = list[Rows] | Array | None


class Partition(NamedTuple):
    """What one worker loads as one piece.

    Partitions are counted from 0 in the order of their rows, and hold consecutive rows. Their division decides about
    the last bits of a result; which worker holds which of them does not.
    Parameters:
    name : str -- What an error calls it, for example ``rows 0 to 9999 of x.npy``.
    samples : Rows, RowGroups, Array or None -- Where the samples are; None where the engine has them itself.
    weights : list of Rows, Array or None -- Where the sample weights are, if there are any.
    units : Standardization or None -- The units that the samples are brought to.
    first : int -- The number of its first row in the array or file of which it holds rows.
    labels : list of Rows, Array or None -- Where the labels of the samples are, if there are any.
    sequences : tuple or None -- The lengths of its sequences, or None for one, and their weights, or None; of a hidden Markov model.
    """

    name: str
    samples: Rows | RowGroups | Array | None
    weights: Beside = None
    units: _core.Standardization | None = None
    first: int = 0
    labels: Beside = None
    sequences: tuple[list[int] | None, Any] | None = None

    def read(self, dtype: Any) -> tuple[Floats, Weights]:
        """Read samples and weights.
        Parameters: dtype : dtype -- The type of the samples, float64 or float32.
        Returns:
        x : ndarray of shape (n_samples, n_features) -- The samples, by rows.
        weights : ndarray of shape (n_samples,) or None -- Their weights, if there are any.
        """
        assert self.samples is not None  # An engine that has the samples puts them here first.
        x = floats(self.samples.read(), dtype)
        if self.units is not None:
            x = self.units.apply(x)
        return np.asarray(x), checked_weights(array_of(self.weights), x.shape[0])

    def known(self, n_samples: int, n_components: int) -> Labels | None:
        """Return the labels of the samples, as `fit` takes them, if there are any.
        Parameters:
        n_samples : int -- The number of samples.
        n_components : int -- The number of components.
        """
        given = array_of(self.labels)
        if given is None:
            return None
        if isinstance(self.labels, list):
            given = _whole(given, self.first)
        return checked_labels(given, n_samples, n_components, self.first)

    def error(self, error: Exception) -> Exception:
        """Return an error of the same kind to raise, whose text names the partition.
        Parameters: error : Exception -- The error.
        """
        kind = next((kind for kind in _KINDS if isinstance(error, kind)), None)
        return RuntimeError(f"{self.name}: {type(error).__name__}: {error}") if kind is None else kind(f"{self.name}: {error}")


def array_of(part: Beside) -> Any:
    """Return what samples have beside, also a series of pandas, as an array."""
    if isinstance(part, list):
        return np.concatenate([rows.read() for rows in part])
    given: Any = None if part is None else part.read()
    return given.to_numpy() if hasattr(given, "to_numpy") else given


def _whole(labels: NDArray[Any], first: int) -> NDArray[Any]:
    """Return the labels of a file as whole numbers: those may be of any type, as for the command gmm."""
    if labels.dtype.kind != "f":
        return labels
    broken = np.flatnonzero(labels != np.round(labels))
    if len(broken):
        raise ValueError(
            f"labels have {labels[broken[0]]} for sample {first + broken[0]}; they are whole numbers, the numbers of "
            "components, or -1 where that is not known"
        )
    return labels.astype(np.int64)


class File(NamedTuple):
    """What the head of a file says."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    columns: tuple[str, ...] | None = None
    #: The rows of each row group of a Parquet file.
    groups: tuple[int, ...] | None = None


def _npy(path: str) -> np.memmap[Any, Any]:
    """Return the array of a file, of which nothing but the header is read."""
    try:
        return np.lib.format.open_memmap(path, "r")
    except ValueError as error:
        if "Python objects" in str(error):
            raise ValueError("the array holds Python objects; write it again as float64 or float32") from error
        if "mmap length" in str(error):
            raise ValueError("the file is shorter than its header says; write it again") from error
        raise


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Parquet files are read by pyarrow; install it with `pip install pyarrow`") from error
    return pyarrow.parquet


def inspect(path: str) -> File:
    """Read the head of a .npy or Parquet file."""
    try:
        if path.endswith(".npy"):
            x = _npy(path)
            return File(path, x.shape, x.dtype.str)
        if path.endswith((".parquet", ".parq")):
            with _parquet().ParquetFile(path) as file:
                schema, head = file.schema_arrow, file.metadata
                groups = tuple(head.row_group(i).num_rows for i in range(head.num_row_groups))
                kinds = [np.dtype(field.type.to_pandas_dtype()) for field in schema]
            for name, kind in zip(schema.names, kinds, strict=True):
                if kind.kind not in "fiub":
                    raise ValueError(f"the column {name!r} has the type {kind}; all columns must be numbers")
            narrow = bool(kinds) and all(kind == np.float32 for kind in kinds)
            dtype = np.dtype(np.float32 if narrow else np.float64)
            return File(path, (sum(groups), len(kinds)), dtype.str, tuple(schema.names), groups)
        raise ValueError("the name of a file of samples ends in .npy, .parquet or .parq")
    except Exception as error:
        raise Partition(path, None).error(error) from error


def expand(paths: Any) -> list[str]:
    """Return all files of a path, of a pattern, or of a list of these, in the order of their names within a pattern."""
    given: list[Any] = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found: list[str] = []
    for path in (str(os.fspath(path)) for path in given):
        matches = sorted(glob.glob(path)) if glob.has_magic(path) and not os.path.exists(path) else [path]
        if not matches:
            raise FileNotFoundError(f"there is no file {path}")
        found += matches
    return found


def are_paths(X: Any) -> bool:
    """Say whether `X` names files."""
    if isinstance(X, (str, os.PathLike)):
        return True
    return isinstance(X, (list, tuple)) and len(X) > 0 and all(isinstance(path, (str, os.PathLike)) for path in X)


def common_dtype(dtypes: Iterable[Any]) -> np.dtype[Any]:
    """Return float32 where all are float32, else float64."""
    narrow = all(np.dtype(dtype).newbyteorder("=") == np.float32 for dtype in dtypes)
    return np.dtype(np.float32 if narrow else np.float64)


def check_samples(files: Sequence[File]) -> None:
    """Check that files hold samples of the same features."""
    first = files[0]
    for file in files:
        if len(file.shape) != 2:
            raise ValueError(f"{file.path}: the array has the shape {file.shape}; samples have the shape (N, D)")
        if file.shape[1] != first.shape[1]:
            raise ValueError(
                f"{file.path} has {file.shape[1]} features, but {first.path} has {first.shape[1]}; all files must have as many"
            )
        if file.columns is not None and first.columns is not None and file.columns != first.columns:
            raise ValueError(f"the columns of {file.path} are {list(file.columns)}, but those of {first.path} {list(first.columns)}")


def _rows_of_each(partition_rows: int | None, n_rows: int, n_features: int, dtype: np.dtype[Any]) -> int:
    """Return how many rows a partition has, by default of all these rows."""
    if partition_rows is not None:
        return partition_rows
    width = max(1, n_features * dtype.itemsize)
    least, most = PARTITION_BYTES
    return max(1, min(max(n_rows * width // PARTITIONS, least), most) // width)


def divide(files: Sequence[File], partition_rows: int | None, dtype: np.dtype[Any]) -> tuple[list[Partition], list[int]]:
    """Divide files into partitions, and give the rows of each. None spans two files; row groups stay whole."""
    partition_rows = _rows_of_each(partition_rows, sum(file.shape[0] for file in files), files[0].shape[1], dtype)
    partitions, counts = [], []

    def add(path: str, samples: Rows | RowGroups, first: int, last: int) -> None:
        partitions.append(Partition(_rows_name(first, last, path), samples, first=first))
        counts.append(last - first)

    for file in files:
        if file.groups is None:
            for first, last in _pieces(file.shape[0], partition_rows):
                add(file.path, Rows(file.path, first, last), first, last)
            continue
        begin = group = row = 0
        for i, rows in enumerate(file.groups, 1):
            row += rows
            if row - begin >= partition_rows or i == len(file.groups):
                add(file.path, RowGroups(file.path, group, i, dtype.str), begin, row)
                begin, group = row, i
    return partitions, counts


def _pieces(n_rows: int, partition_rows: int) -> list[tuple[int, int]]:
    """Return the first row of each partition and the row after its last; without rows there is one partition."""
    return [(first, min(first + partition_rows, n_rows)) for first in range(0, max(n_rows, 1), partition_rows)]


def _rows_name(first: int, last: int, what: str) -> str:
    return f"rows {first} to {last - 1} of {what}" if last > first else what


def weights_of_each(counts: Sequence[int], weights: Any, heads: Any = None) -> list[Beside]:
    """Divide sample weights among partitions of these lengths: an array, a number, or .npy files, whose heads are given."""
    if weights is None:
        return [None] * len(counts)
    n_rows = sum(counts)
    if heads is None:
        return _parts(checked_weights(weights, n_rows), counts)
    for head in heads:
        if len(head.shape) != 1:
            raise ValueError(f"{head.path}: the array has the shape {head.shape}; sample weights have the shape (N,)")
    given = sum(head.shape[0] for head in heads)
    if given != n_rows:
        raise ValueError(f"sample_weight.shape == {(given,)}, expected {(n_rows,)}!")
    return _parts(np.empty(0), counts, heads)


def labels_of_each(counts: Sequence[int], labels: Any, n_components: int, heads: Any = None) -> list[Beside]:
    """Divide the labels of samples among partitions of these lengths: an array, or .npy files, whose heads are given."""
    if labels is None:
        return [None] * len(counts)
    n_rows = sum(counts)
    if heads is None:
        return _parts(checked_labels(labels, n_rows, n_components), counts)
    allowed = {(): "iuf", (n_components,): "b"}
    for head in heads:
        same = head.shape[1:] == heads[0].shape[1:]
        if not head.shape or np.dtype(head.dtype).kind not in allowed.get(head.shape[1:], "") or not same:
            raise ValueError(
                f"{head.path}: the array has the shape {head.shape} and the type {head.dtype}; labels are whole numbers "
                f"(N,), -1 where a label is not known, or in all files a mask (N, {n_components}) of truth values"
            )
    given = sum(head.shape[0] for head in heads)
    if given != n_rows:
        raise ValueError(f"there are {given} labels, but {n_rows} samples; each sample needs one, -1 where it is not known")
    mask = len(heads[0].shape) > 1
    return _parts(np.empty((0, *heads[0].shape[1:]), np.bool_ if mask else np.int64), counts, heads)


def with_both(partitions: Iterable[Partition], weights: Iterable[Beside], labels: Iterable[Beside]) -> list[Partition]:
    """Return partitions with the weights and the labels of their samples."""
    return [part._replace(weights=w, labels=k) for part, w, k in zip(partitions, weights, labels, strict=True)]


def _parts(values: Any, counts: Sequence[int], heads: Sequence[File] = ()) -> list[Beside]:
    """Divide values, one for each sample, among partitions of these lengths: an array, or files beside the array of none."""
    divided: list[Beside] = []
    for count, end in zip(counts, np.cumsum(counts).tolist(), strict=True):
        parts, begin = [], 0
        for head in heads:
            first, last = max(end - count - begin, 0), min(end - begin, head.shape[0])
            if first < last:
                parts.append(Rows(head.path, first, last))
            begin += head.shape[0]
        divided.append(parts or Array(values[end - count : end]))
    return divided


def of_array(X: Any, partition_rows: int | None, sample_weight: Any, labels: Any, n_components: int) -> tuple[list[Partition], list[int]]:
    """Divide an array of this process into partitions, and give the rows of each."""
    for name, given in (("sample_weight", sample_weight), ("labels", labels)):
        if are_paths(given):
            raise ValueError(f"{name} names files, which goes with samples in files only; give an array")
    pieces = _pieces(X.shape[0], _rows_of_each(partition_rows, X.shape[0], X.shape[1], X.dtype))
    partitions = [Partition(_rows_name(first, last, "X"), Array(X[first:last]), first=first) for first, last in pieces]
    counts = [last - first for first, last in pieces]
    return with_both(partitions, weights_of_each(counts, sample_weight), labels_of_each(counts, labels, n_components)), counts
