"""Likelihoods of samples that stay in the workers of a cluster of Dask."""

from __future__ import annotations

from typing import Any

from ..._documentation import documented
from .. import likelihood
from .engine import DaskEngine


@documented
class Likelihood(likelihood.Likelihood):
    """The log-likelihood of samples that stay in the workers of a cluster of Dask.

    It is called as :class:`gaussmix.Likelihood` is. Several sets of parameters in one call make one
    round trip, as all walkers of a sampler should. `close`, or a ``with`` statement, frees the
    memory of the workers.

    Parameters:
    X : dask array or dataframe, array-like, or paths -- The samples.
    sample_weight : dask array or series, array-like, or paths, default=None -- A sample of weight 2 counts as two.
    client
    **options : dict
        `device`, `covariance_type`, `float64`, `n_jobs`, `partition_rows`, `resident` and `missing`, as of
        :class:`gaussmix.cluster.Likelihood`.

    Examples
    --------
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
