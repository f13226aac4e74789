"""Likelihoods of samples that stay in the ranks of a communicator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._documentation import documented
from .. import likelihood
from .engine import MPIEngine


@documented
class Likelihood(likelihood.Likelihood):
    """The log-likelihood of samples that stay in the ranks of an MPI communicator.

    It is called as :class:`gaussmix.Likelihood` is, by all ranks, which all get the result; the
    parameters that count are those of rank 0. Several sets of parameters in one call travel
    together: down the tree of the ranks and, as totals, up again. `together` lets a sampler run on
    rank 0 alone.

    Parameters:
    X : array-like of shape (n_samples, n_features), or paths
        The samples of this rank, or files, of which each rank reads its part.
    sample_weight : array-like of shape (n_samples,), or paths, default=None -- A sample of weight 2 counts as two.
    comm
    **options : dict
        `device`, `covariance_type`, `float64`, `n_jobs`, `partition_rows`, `resident` and `missing`, as of
        :class:`gaussmix.cluster.Likelihood`.
    """

    def __init__(self, X: Any, sample_weight: Any = None, *, comm: Any = None, **options: Any) -> None:
        super().__init__(X, sample_weight, engine=MPIEngine(comm), **options)

    def together(self, work: Callable[[], Any]) -> Any:
        """Do something on rank 0, which may evaluate as often as it likes; the other ranks answer meanwhile.

        Parameters: work : callable -- Called by rank 0 only, for example to run a sampler.
        Returns: result : object -- What `work` returned, on all ranks. Its error is raised on all ranks too.
        """
        return self._engine.together(work)
