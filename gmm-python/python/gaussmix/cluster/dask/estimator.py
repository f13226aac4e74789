"""The estimators and the likelihood over dask arrays, dask dataframes, and files that the workers read."""

from __future__ import annotations

from typing import Any

import dask.array
import distributed
import numpy as np
from dask.delayed import delayed
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_is_fitted

from ... import _estimator, _partitions, _variational, deconvolution
from ..._arrays import floats
from ..._documentation import documented
from ..._partitions import Partition
from ...deconvolution import Measurements
from .. import estimator, likelihood
from ..engine import divided
from ..estimator import on_workers
from ..samples import check_columns
from .collections import by_rows, is_frame, type_of
from .engine import DaskEngine


def _block(x: Any, local: Any, operation: str, n_columns: int | None, kind: Any, noise: Any = None) -> Any:
    """Evaluate the rows of one block, in the process of a worker."""
    if x.shape[0] == 0:
        return np.empty((0,) if n_columns is None else (0, n_columns), kind)
    if isinstance(noise, int):
        d, both = noise, x
        x, noise = both[:, :d], both[:, d:].reshape(-1, *[d] * (1 + (both.shape[1] > 2 * d)))
    elif noise is not None:
        # One group, which is not taken for variances in blocks of as many rows as columns.
        noise = noise[np.newaxis], np.zeros(len(x), np.int64)
    return local._values(operation, x if noise is None else Measurements(x, noise)).astype(kind, copy=False)


def _read_block(partition: Partition, dtype: str, local: Any, operation: str, n_columns: int | None, kind: Any) -> Any:
    try:
        return _block(partition.read(np.dtype(dtype))[0], local, operation, n_columns, kind)
    except Exception as error:
        raise partition.error(error) from error


class OnDask(estimator.OnWorkers):
    """What the estimators have in common."""

    client: Any

    def _make_engine(self) -> DaskEngine:
        return DaskEngine(self.client)


class Mixtures(OnDask, estimator.ClusterEstimator):
    """What mixtures have in common."""

    def _values(self, operation: str, X: Any) -> Any:
        check_is_fitted(self)
        local = self._local()
        n_columns = len(self.weights_) if operation == "responsibilities" else None
        given, (X, noise) = X, self._beside(X)
        files = _partitions.are_paths(X)
        if not files and not hasattr(X, "dask"):
            return local._values(operation, given)
        # A worker evaluates as many blocks at once as it has threads.
        local.n_jobs = 1
        # Blocks are arrays, whose columns have no names.
        local.__dict__.pop("feature_names_in_", None)
        if files:
            return self._values_of_files(X, local, operation, n_columns)
        _check_feature_names(self, X._meta, reset=False)
        if is_frame(X):
            dtype = type_of(X)
            X = X.map_partitions(floats, dtype, meta=np.empty((0, len(X.columns)), dtype))
        else:
            dtype = X.dtype
            X = by_rows(X)
        _check_n_features(self, np.empty((0, noise if isinstance(noise, int) else X.shape[1])), reset=False)
        kind = self._kind(operation, dtype)
        shape = {"drop_axis": 1, "chunks": (X.chunks[0],)} if n_columns is None else {"chunks": (X.chunks[0], (n_columns,))}
        meta = np.empty((0,) * (1 if n_columns is None else 2), kind)
        given = {"local": local, "operation": operation, "n_columns": n_columns, "kind": kind, "noise": noise}
        return X.map_blocks(_block, **given, dtype=kind, meta=meta, **shape)

    def _kind(self, operation: str, dtype: Any) -> np.dtype[Any]:
        return np.dtype(np.int64) if operation == "labels" else self._value_type(dtype)

    def _values_of_files(self, X: Any, local: Any, operation: str, n_columns: int | None) -> Any:
        engine = self._make_engine()
        try:
            plan, counts = divided(engine, X, self.partition_rows)
        finally:
            engine.close()
        check_columns(self, plan, reset=False)
        kind = self._kind(operation, plan.dtype)
        read = delayed(_read_block, pure=True)
        blocks = [
            dask.array.from_delayed(
                read(partition, plan.dtype.str, local, operation, n_columns, kind),
                (count,) if n_columns is None else (count, n_columns),
                kind,
            )
            for partition, count in zip(plan.partitions, counts, strict=True)
        ]
        return dask.array.concatenate(blocks)


@on_workers("client", [distributed.Client, None], _estimator.GaussianMixture)
class GaussianMixture(Mixtures, estimator.GaussianMixture):
    """A Gaussian mixture, fitted by the workers of a cluster of Dask.

    Parameters, methods, attributes and errors are those of :class:`gaussmix.GaussianMixture`. The samples are a dask
    array, a dask dataframe, an array, or paths of .npy and Parquet files, which the workers read; sample weights and
    labels the same, divided as the samples are. `predict`, `predict_proba` and `score_samples` of collections and files
    give dask arrays, which are computed when they are asked for.

    Each worker loads its partitions once and keeps them in its device. An iteration sends the parameters and brings
    back sums over the samples, which are added in the order of the partitions: the same partitions on the same kind of
    device give the same bits, whatever the number of workers. The partitions of a worker that dies are loaded by
    others, and the fit goes on. Ctrl-C ends the fit after the present iteration and leaves a fitted mixture. `device`
    is that of each worker, and `n_jobs` the number of its threads, by default as many as Dask gives it.
    Examples:
    >>> import dask.array
    >>> from gaussmix.dask import GaussianMixture
    >>> x = dask.array.from_array([[1.0], [2.0], [3.0], [11.0], [12.0], [13.0]], chunks=(4, 1))
    >>> gm = GaussianMixture(2, random_state=0).fit(x)
    >>> gm.means_.round(6).ravel()
    array([12.,  2.])
    >>> gm.predict(x).compute()
    array([1, 1, 1, 0, 0, 0])
    """


@on_workers("client", [distributed.Client, None], deconvolution.ExtremeDeconvolution)
class ExtremeDeconvolution(Mixtures, estimator.ExtremeDeconvolution):
    """Extreme deconvolution by the workers of a cluster of Dask.

    Methods, attributes and errors are those of :class:`gaussmix.deconvolution.ExtremeDeconvolution`; samples,
    partitions and workers are as for :class:`GaussianMixture`. The noise is one covariance for all samples, or a dask
    array or dataframe beside the samples, with variances or a covariance for each.
    """


@on_workers("client", [distributed.Client, None], _variational.BayesianGaussianMixture)
class BayesianGaussianMixture(Mixtures, estimator.BayesianGaussianMixture):
    """A Gaussian mixture, fitted by variational inference by the workers of a cluster of Dask.

    Parameters, methods, attributes and errors are those of :class:`gaussmix.BayesianGaussianMixture`; samples,
    partitions and workers are as for :class:`GaussianMixture`.
    Examples:
    >>> import dask.array
    >>> from gaussmix.dask import BayesianGaussianMixture
    >>> x = dask.array.from_array([[1.0], [2.0], [3.0], [11.0], [12.0], [13.0]], chunks=(4, 1))
    >>> prior = {"mean_precision_prior": 0.01, "covariance_prior": [[1.0]]}
    >>> gm = BayesianGaussianMixture(n_components=2, random_state=0, **prior).fit(x)
    >>> gm.predict(x).compute()
    array([1, 1, 1, 0, 0, 0])
    """


@documented
class Likelihood(likelihood.Likelihood):
    """The log-likelihood of samples that stay in the workers of a cluster of Dask.

    It is called as :class:`gaussmix.Likelihood` is. Several sets of parameters in one call make one round trip, as all
    walkers of a sampler should. `close`, or a ``with`` statement, frees the memory of the workers.
    Parameters:
    X : dask array or dataframe, array-like, or paths -- The samples.
    sample_weight : dask array or series, array-like, or paths, default=None -- A sample of weight 2 counts as two.
    client
    **options : dict
        `device`, `covariance_type`, `float64`, `n_jobs`, `partition_rows`, `resident` and `missing`, as of
        :class:`gaussmix.cluster.Likelihood`.
    Examples:
    >>> import dask.array
    >>> from gaussmix.dask import Likelihood
    >>> x = dask.array.from_array([[0.0], [1.0]], chunks=(1, 1))
    >>> weights, means, covariances = [1.0], [[0.5]], [1.0]
    >>> with Likelihood(x) as likelihood:
    ...     likelihood([weights, weights], [means, [[0.0]]], [covariances, covariances]).round(6)
    array([-2.087877, -2.337877])
    """

    def __init__(self, X: Any, sample_weight: Any = None, *, client: Any = None, **options: Any) -> None:
        super().__init__(X, sample_weight, engine=DaskEngine(client), **options)
