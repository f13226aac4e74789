"""The estimators, the hidden Markov models and the likelihood that all ranks of a communicator call."""

from collections.abc import Callable
from typing import Any

from sklearn.utils.validation import check_is_fitted

from ... import _estimator, _partitions, _variational, deconvolution, hmm
from ..._partitions import Array
from ...hmm._base import checked_lengths
from .. import estimator, markov
from ..engine import Plan, agreed
from ..estimator import on_workers
from ..samples import ClusterSamples
from .engine import MPIEngine


class OnMPI(estimator.OnWorkers):
    """What the estimators have in common."""

    comm: Any

    def _make_engine(self) -> MPIEngine:
        return MPIEngine(self.comm)

    def _own_rows(self, samples: ClusterSamples) -> slice:
        # Of files all ranks get all values.
        if not any(isinstance(partition.samples, Array) for partition in samples.plan.partitions):
            return slice(None)
        rank = samples.engine.rank
        end = sum(fact.n_samples for fact in samples.facts[: rank + 1])
        return slice(end - samples.facts[rank].n_samples, end)

    def _fit(self, samples: ClusterSamples, *more: Any) -> Any:
        engine: MPIEngine = samples.engine

        def work() -> None:
            # That of the local estimator, which stands behind this class in those that are made of both.
            super(OnMPI, self)._fit(samples, *more)

        try:
            engine.together(work)
        finally:
            # After Ctrl-C, or an error of a callback, there may be a fitted mixture on rank 0 all the same.
            names = [name for name in vars(self) if name.endswith("_") or name in ("_average", "_chunks", "_seen")]
            fitted = engine.comm.bcast({name: vars(self)[name] for name in names})
            self.__dict__.update(fitted)
        return samples._resident()


class Mixtures(OnMPI, estimator.ClusterEstimator):
    """What mixtures have in common."""

    def _values(self, operation: str, X: Any) -> Any:
        check_is_fitted(self)
        if _partitions.are_paths(X):
            return super()._values(operation, X)
        return self._local()._values(operation, X)


@on_workers("comm", "no_validation", _estimator.GaussianMixture)
class GaussianMixture(Mixtures, estimator.GaussianMixture):
    """A Gaussian mixture, fitted by the ranks of an MPI communicator.

    All ranks call the same methods. `fit`, `score`, `aic` and `bic` are about the samples of all ranks: either all
    ranks name the same .npy or Parquet files, of which each reads its part, or each gives an array of its own samples,
    with their weights and labels (all do, in the order of the ranks; one may be empty). Afterwards all ranks have the
    same fitted mixture. `predict`, `predict_proba` and `score_samples` are about the array of each rank; of files they
    give each rank all values.

    An iteration sends the parameters and brings back sums over the samples, which are added in the order of the
    partitions: the same partitions on the same kind of device give the same bits, whatever the number of ranks. An
    error of one rank is raised in all. `verbose` and `callback` work on rank 0 alone.
    Parameters:
    device : str, default='auto'
        Where each rank computes: 'auto', 'cpu', 'cuda' (another GPU for each rank of a computer), 'cuda:N' (the GPU
        of number N), several of these as 'cuda:0,cpu', or 'reference' (slow and exact).
    n_jobs : int or None, default=None -- The number of threads of a rank, as joblib counts; by default its share of the cores.
    missing : bool, default=False
        Whether NaN, and a null of a Parquet file, stands for a value that is missing at random, instead of being an
        error. The likelihood of a sample is then that of its observed values, and a fit maximises it exactly.
    """


@on_workers("comm", "no_validation", deconvolution.ExtremeDeconvolution)
class ExtremeDeconvolution(Mixtures, estimator.ExtremeDeconvolution):
    """Extreme deconvolution by the ranks of an MPI communicator.

    Samples and ranks are as for :class:`GaussianMixture`. The noise is one covariance for all samples, or an array of
    each rank beside its samples. A rank with as many rows as columns gives a covariance for each row.
    """


@on_workers("comm", "no_validation", _variational.BayesianGaussianMixture)
class BayesianGaussianMixture(Mixtures, estimator.BayesianGaussianMixture):
    """A Gaussian mixture, fitted by variational inference by the ranks of an MPI communicator.

    Samples and ranks are as for :class:`GaussianMixture`, and so are `device` and `n_jobs`.
    """


class Likelihood(estimator.Likelihood):
    """The log-likelihood of samples that stay in the ranks of an MPI communicator.

    It is called as :class:`gaussmix.Likelihood` is, by all ranks, which all get the result; the parameters that count
    are those of rank 0. Several sets of parameters in one call travel together: down the tree of the ranks and, as
    totals, up again. `together` lets a sampler run on rank 0 alone.
    Parameters:
    X : array-like of shape (n_samples, n_features), or paths -- The samples of this rank, or files, of which each rank reads its part.
    sample_weight : array-like of shape (n_samples,), or paths, default=None -- A sample of weight 2 counts as two.
    **options : dict -- The other parameters of :class:`gaussmix.cluster.Likelihood`.
    """

    def __init__(self, X: Any, sample_weight: Any = None, *, comm: Any = None, **options: Any) -> None:
        super().__init__(X, sample_weight, engine=MPIEngine(comm), **options)

    def together(self, work: Callable[[], Any]) -> Any:
        """Do something on rank 0 that asks as often as it likes, and return its result on all ranks, or raise its error there.
        Parameters: work : callable -- Called by rank 0 only, for example to run a sampler.
        """
        return self._engine.together(work)


class MarkovOnMPI(OnMPI, markov.MarkovOnWorkers):
    """What the models have in common."""

    def _plan(self, engine: Any, X: Any, sequence_weight: Any, lengths: Any) -> Plan:
        plan: Plan = engine._plan(X, None, None, self.resident)
        if _partitions.are_paths(X):
            return super()._plan(engine, X, sequence_weight, lengths)
        own = agreed(engine, lambda: None if lengths is None else checked_lengths(lengths))
        plan.partitions[engine.rank] = plan.partitions[engine.rank]._replace(sequences=(own, sequence_weight))
        return plan

    def _pairs(self, method: str, X: Any, lengths: Any, *more: Any) -> tuple[Any, Any]:
        if _partitions.are_paths(X):
            return super()._pairs(method, X, lengths, *more)
        return getattr(self._local(), method)(X, lengths, *more)


@on_workers("comm", "no_validation", hmm.GaussianHMM)
class GaussianHMM(MarkovOnMPI, markov.GaussianHMM):
    """A hidden Markov model of Gaussians, fitted by the ranks of an MPI communicator.

    There is no `partial_fit`. All ranks call the same methods. `fit`, `e_step`, `score`, `aic` and `bic` are about the
    sequences of all ranks: either each rank gives an array of its own sequences, with their `lengths` and weights, or
    all name the same files, with the lengths of all sequences or a list for each file. `decode`, `predict`,
    `score_samples` and `predict_proba` are about the array of each rank. Afterwards all ranks have the same model.
    """


@on_workers("comm", "no_validation", hmm.GMMHMM)
class GMMHMM(MarkovOnMPI, markov.GMMHMM):
    """A hidden Markov model of mixtures, fitted by the ranks of an MPI communicator as :class:`GaussianHMM` is."""
