"""Hidden Markov models on any engine: a partition holds whole sequences."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .. import _core, _partitions, hmm
from .._partitions import Array, Partition, Rows
from ..hmm._base import HMM, Expectations, Lengths, States, checked_lengths
from ..hmm._base import Array as Floats
from .engine import Engine, Plan
from .estimator import OnWorkers, on_workers
from .samples import ClusterSamples, Remote

#: Of more rows so many are drawn for the start.
_START = 100_000


def of_each(lengths: Any, counts: Sequence[int], names: Sequence[str]) -> list[list[int]]:
    """Return the lengths of the sequences in each of some parts with these numbers of rows, which cut no sequence."""
    if lengths is None:
        return [[n] if n else [] for n in counts]
    if len(lengths) and np.ndim(lengths[0]):
        if len(lengths) != len(counts):
            raise ValueError(f"lengths holds lists for {len(lengths)} parts of X, but X has {len(counts)}; give a list for each")
        each = [checked_lengths(own) for own in lengths]
        for own, count, name in zip(each, counts, names, strict=True):
            if sum(own) != count:
                raise ValueError(f"{name}: its lengths add up to {sum(own)}, but it has {count} rows")
        return each
    sizes = np.array(checked_lengths(lengths), dtype=np.int64)
    ends, last = np.cumsum(sizes), np.cumsum(counts)
    if sizes.sum() != last[-1]:
        raise ValueError(f"lengths add up to {sizes.sum()}, but X has {last[-1]} rows")
    owner = np.searchsorted(last, ends)
    crossing = np.flatnonzero(ends - sizes < (last - counts)[owner])
    if len(crossing):
        i = crossing[0]
        raise ValueError(
            f"sequence {i}, rows {ends[i] - sizes[i]} to {ends[i] - 1}, begins before {names[owner[i]]} and ends in it; "
            "divide X between sequences"
        )
    return [sizes[owner == part].tolist() for part in range(len(counts))]


class MarkovOnWorkers(OnWorkers, HMM):
    """What hidden Markov models have that are fitted to partitions, which an engine's workers hold."""

    n_jobs, reproducible, standardize = None, False, False

    def _local(self, engine: _core.HiddenMarkov | None = None) -> Any:
        local = self._LOCAL(**{name: getattr(self, name) for name in self._LOCAL().get_params()})
        local._set(self._engine() if engine is None else engine)
        return local

    def _parts(self, engine: Any, X: Any) -> Plan:
        """Return the parts of X as partitions: the whole array, or each file."""
        return Engine._plan(engine, X, None, sys.maxsize, self.resident)

    def _plan(self, engine: Any, X: Any, sequence_weight: Any, lengths: Any) -> Plan:
        plan = self._parts(engine, X)
        each = of_each(lengths, plan.counts, [partition.name for partition in plan.partitions])
        weights, ends = sequence_weight, np.cumsum([len(own) for own in each])
        if weights is not None:
            weights = np.concatenate([np.ravel(part) for part in weights]) if len(weights) else np.empty(0)
            if len(weights) != ends[-1]:
                raise ValueError(f"sequence_weight has {len(weights)} numbers for {ends[-1]} sequences")
            weights = np.split(weights, ends[:-1])
        rows = _partitions._rows_of_each(self.partition_rows, sum(plan.counts), plan.head.shape[1], plan.dtype)
        partitions = [
            piece
            for number, (partition, own) in enumerate(zip(plan.partitions, each, strict=True))
            for piece in _pieces(partition, own, None if weights is None else weights[number], rows)
        ]
        return plan._replace(partitions=partitions)

    def _fit_to(self, X: Any, lengths: Any, sequence_weight: Any, checkpoint: Any) -> None:
        with ClusterSamples(self, X, sequence_weight, lengths) as samples:
            self._fit(samples, checkpoint, X, lengths)

    def _fit(self, samples: ClusterSamples, *more: Any) -> None:
        remote, n = samples.load(), samples.shape[0]
        rows = np.arange(n) if n <= _START else np.sort(check_random_state(self.random_state).choice(n, _START, replace=False))
        self._iterate(remote, remote.rows(rows)[0], *more)

    def _sums(self, engine: _core.HiddenMarkov, sequences: Remote) -> Expectations:
        return sequences.sum("sequence_sums", self._local(engine), "e_step")

    def _asked(self, ask: Callable[[Remote], Any], X: Any, lengths: Lengths, weights: Any = None) -> tuple[Any, int]:
        """Return what workers answer that have loaded sequences, and the number of rows."""
        check_is_fitted(self, "startprob_")
        with ClusterSamples(self, X, weights, lengths, reset=False) as samples:
            return ask(samples._resident()), samples.shape[0]

    def e_step(self, X: Any, lengths: Lengths = None, sequence_weight: ArrayLike | None = None) -> Expectations:
        return self._asked(lambda remote: self._sums(self._engine(), remote), X, lengths, sequence_weight)[0]

    def _total(self, X: Any, lengths: Lengths) -> tuple[float, int]:
        return self._asked(lambda remote: remote.sum("sequence_sums", self._local(), "score"), X, lengths)

    def score(self, X: Any, lengths: Lengths = None) -> float:
        return self._total(X, lengths)[0]

    def _pairs(self, method: str, X: Any, lengths: Lengths, *more: Any) -> tuple[Any, Any]:
        pairs, _ = self._asked(lambda remote: remote.parts("sequence_values", self._local(), method, *more), X, lengths)
        totals, values = zip(*pairs, strict=True)
        return sum(totals), np.concatenate(values)

    def score_samples(self, X: Any, lengths: Lengths = None) -> tuple[float, Floats]:
        return self._pairs("score_samples", X, lengths)

    def decode(self, X: Any, lengths: Lengths = None, algorithm: str | None = None) -> tuple[float, States]:
        return self._pairs("decode", X, lengths, algorithm)


def _pieces(partition: Partition, lengths: list[int], weights: Any, rows: int) -> list[Partition]:
    """Divide a partition between sequences, if that can be, after the first one that reaches a multiple of these rows."""
    samples, ends = partition.samples, np.cumsum(lengths, dtype=np.int64)
    if not lengths or not isinstance(samples, (Array, Rows)):
        return [partition._replace(sequences=(lengths, weights))]
    pieces, first = [], 0
    for own in np.split(np.arange(len(lengths)), np.flatnonzero(np.diff((ends - 1) // rows)) + 1):
        last = int(ends[own[-1]])
        part = Array(samples.read()[first:last]) if isinstance(samples, Array) else Rows(samples.path, first, last)
        sequences = lengths[own[0] : own[-1] + 1], None if weights is None else weights[own]
        what = samples.path if isinstance(samples, Rows) else "X"
        pieces.append(Partition(f"rows {first} to {last - 1} of {what}", part, first=first, sequences=sequences))
        first = last
    return pieces


@on_workers("engine", [Engine, None], hmm.GaussianHMM)
class GaussianHMM(MarkovOnWorkers, hmm.GaussianHMM):
    """A hidden Markov model of Gaussians, fitted to partitions of whole sequences that an engine's workers hold.

    There is no `partial_fit`. Of more than 100,000 rows so many are drawn for the start. Samples are an array or paths
    of .npy and Parquet files. `lengths` are those of all sequences, or a list for each file; by default each file is
    one sequence. Arrays and .npy files are divided between sequences, after about `partition_rows` rows.
    """


@on_workers("engine", [Engine, None], hmm.GMMHMM)
class GMMHMM(MarkovOnWorkers, hmm.GMMHMM):
    """A hidden Markov model of mixtures, fitted to partitions of whole sequences as :class:`GaussianHMM` is."""
