"""Likelihoods of samples that stay in the workers of an engine."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._arrays import n_threads
from .._likelihood import Evaluation
from .engine import Engine, InProcess, agreed
from .samples import Interrupts, Remote, check_facts
from .shard import Options


class Likelihood(Evaluation):
    """The log-likelihood of samples that stay in the devices of an engine's workers.

    It is called as :class:`gaussmix.Likelihood` is: with the parameters of one mixture, or with those of several, which
    travel together, there and back. `close`, or a ``with`` statement, frees the memory of the workers.
    Parameters:
    X : array-like of shape (n_samples, n_features), or paths -- The samples.
    sample_weight : array-like of shape (n_samples,), or paths, default=None -- A sample of weight 2 counts as two.
    device : str, default='auto' -- Where the workers compute: 'auto', 'cpu', 'cuda', 'cuda:N' or 'reference'.
    n_jobs : int or None, default=None -- The number of threads of a worker, as joblib counts.
    Examples:
    >>> import numpy as np
    >>> from gaussmix.cluster import Likelihood
    >>> with Likelihood(np.array([[0.0], [1.0]]), partition_rows=1) as likelihood:
    ...     round(likelihood([1.0], [[0.5]], [1.0]), 6)
    -2.087877
    """

    def __init__(
        self,
        X: Any,
        sample_weight: Any = None,
        *,
        engine: Engine | None = None,
        device: str = "auto",
        covariance_type: str | None = None,
        float64: bool = False,
        n_jobs: int | None = None,
        partition_rows: int | None = None,
        resident: bool | None = None,
        missing: bool = False,
    ) -> None:
        self._engine = InProcess() if engine is None else engine
        try:
            self._expect(covariance_type)
            found = agreed(self._engine, lambda: self._engine._plan(X, sample_weight, partition_rows, resident))
            options = Options(found.dtype.str, len(found.partitions), device, n_threads(n_jobs), float64, resident, missing=missing)
            facts = self._engine.load(found.partitions, options)
            check_facts(facts, found.partitions, 1, type(self).__name__)
        except BaseException:
            self._engine.close()
            raise
        self._remote = Remote(self._engine, facts, Interrupts())
        self._data = _core.Data.remote(self._remote)

    def _evaluate(self, *arguments: Any) -> Any:
        evaluate = super()._evaluate
        return self._remote.together(lambda: evaluate(*arguments))

    @property
    def device(self) -> str:
        """The devices of the last evaluation, in words."""
        return self._remote.together(lambda: self._data.describe()[0])

    def close(self) -> None:
        """Free the memory of the workers. The likelihood cannot be used any more."""
        self._engine.close()

    def __enter__(self) -> Likelihood:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
