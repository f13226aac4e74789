"""Hidden Markov models that all ranks of a communicator call."""

from typing import Any

from ... import _partitions, hmm
from ...hmm._base import checked_lengths
from .. import markov
from ..engine import Plan, agreed
from ..estimator import on_workers
from .estimator import OnMPI


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

    Parameters, methods, attributes and errors are those of :class:`gaussmix.hmm.GaussianHMM`, without `partial_fit`. All ranks call
    the same methods. `fit`, `e_step`, `score`, `aic` and `bic` are about the sequences of all ranks: either each rank
    gives an array of its own sequences, with their `lengths` and weights, or all name the same files, with the lengths of
    all sequences or a list for each file. `decode`, `predict`, `score_samples` and `predict_proba` are about the array of
    each rank. Afterwards all ranks have the same model.
    Parameters: comm, partition_rows, resident
    """


@on_workers("comm", "no_validation", hmm.GMMHMM)
class GMMHMM(MarkovOnMPI, markov.GMMHMM):
    """A hidden Markov model of mixtures, fitted by the ranks of an MPI communicator.

    Parameters, methods, attributes and errors are those of :class:`gaussmix.hmm.GMMHMM`; the rest is as for :class:`GaussianHMM`.
    Parameters: comm, partition_rows, resident
    """
