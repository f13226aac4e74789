"""The samples of a fit that lie in the workers of an engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _start
from .._arrays import Floats, Weights, n_threads, note_missing
from .._partitions import Partition
from .._samples import Samples
from .engine import agreed
from .plan import Plan, check_columns, check_facts, missing_of_all
from .remote import Interrupts, Remote, Resident
from .shard import Options


class ClusterSamples(Samples):
    """The partitions of a cluster."""

    def __init__(self, estimator: Any, X: Any, sample_weight: Any, labels: Any = None, reset: bool = True) -> None:
        self.estimator, self.interrupts = estimator, Interrupts()
        if estimator.standardize:
            _start.check_units(estimator)
        self.engine: Any = estimator._make_engine()
        try:
            self._load(X, sample_weight, labels, reset)
        except BaseException:
            self.engine.close()
            raise

    def _load(self, X: Any, sample_weight: Any, labels: Any, reset: bool) -> None:
        estimator = self.estimator

        def planned() -> Plan:
            rows, resident, k = estimator.partition_rows, estimator.resident, estimator.n_components
            found: Plan = self.engine._plan(X, sample_weight, rows, resident, labels, k)
            check_columns(estimator, found, reset)
            return found

        self.plan = agreed(self.engine, planned)
        self.dtype = self.plan.dtype
        self.labelled = any(partition.labels is not None for partition in self.plan.partitions)
        self.options = Options(
            self.dtype.str,
            len(self.plan.partitions),
            device=estimator.device,
            threads=n_threads(estimator.n_jobs),
            resident=estimator.resident,
            missing=estimator.missing,
            n_components=estimator.n_components if self.labelled else 0,
            reproducible=estimator.reproducible,
        )
        self.facts = self.engine.load(self.plan.partitions, self.options)
        #: What the engine has loaded.
        self.loaded = self.plan.partitions
        check_facts(self.facts, self.plan.partitions, 2 if reset else 1, type(estimator).__name__)
        self.shape = (sum(fact.n_samples for fact in self.facts), self.facts[0].n_features)

    def serve(self, estimator: Any) -> None:
        """Let another estimator, which differs in what does not concern the samples, fit to them."""
        check_columns(estimator, self.plan, True)
        self.estimator = estimator

    def load(self) -> Resident:
        self.units = None
        if self.estimator.missing:
            note_missing(missing_of_all(self.facts))
        self.interrupts.hold()
        return self._resident()

    def _resident(self, partitions: list[Partition] | None = None) -> Resident:
        """Give the samples, in the units of these partitions, which are loaded again where the engine has others."""
        wanted = self.plan.partitions if partitions is None else partitions

        def ready() -> None:
            if self.loaded is not wanted:
                self.engine.load(wanted, self.options)
                self.loaded = wanted

        self.remote = Remote(self.engine, self.facts, self.interrupts, ready)
        return Resident(self.remote, self.options.n_components, self.estimator._own_rows(self))

    def standardize(self) -> Resident:
        self.units = self.remote.sum("moments")
        return self._resident([partition._replace(units=self.units) for partition in self.plan.partitions])

    def _rows(self) -> tuple[Floats, Weights]:
        X, weights = self.remote.rows(np.arange(self.shape[0]))
        weighted = any(partition.weights is not None for partition in self.plan.partitions)
        return X.astype(self.dtype, copy=False), weights if weighted else None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        pressed = self.interrupts.release()
        self.engine.close()
        if pressed and kind is None:
            raise KeyboardInterrupt
