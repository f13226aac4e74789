"""The samples of a fit that lie in the workers of an engine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core, _start
from .._arrays import Floats, n_threads, note_missing
from .._partitions import Partition
from .._samples import Evaluations, Samples
from .._units import Units
from .engine import Engine, agreed
from .plan import Plan, check_columns, check_facts, missing_of_all
from .remote import Interrupts, Remote, Resident
from .shard import Options


class ClusterSamples(Samples):
    """The partitions of a cluster."""

    #: Those of `standardize`.
    units: Units | None

    def __init__(self, estimator: Any, X: Any, sample_weight: Any, labels: Any = None, reset: bool = True) -> None:
        self.estimator, self.interrupts = estimator, Interrupts()
        if estimator.standardize:
            Units.check(estimator.covariance_type)
        self.engine: Engine = estimator._make_engine()
        try:
            self._load(X, sample_weight, labels, reset)
        except BaseException:
            self.engine.close()
            raise

    def _load(self, X: Any, sample_weight: Any, labels: Any, reset: bool) -> None:
        estimator = self.estimator

        def planned() -> Plan:
            found: Plan = estimator._plan(self.engine, X, sample_weight, labels)
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
        return Resident(self.remote, self.options.n_components)

    def standardize(self) -> tuple[Units, Evaluations]:
        self.units = Units.of(self.remote.sum("moments"), self.estimator.covariance_type)
        scaled = [partition._replace(units=(self.units.mean, self.units.scale)) for partition in self.plan.partitions]
        return self.units, self._resident(scaled)

    def start(
        self, parameters: _start.Parameters, random_state: np.random.RandomState, total_weight: float
    ) -> tuple[_core.Mixture | None, float]:
        if self._start_is_by_labels():
            return None, 0.0
        # Of many samples the start is found by the engine, which asks for some rows; only their
        # number counts here.
        X: Floats = np.broadcast_to(np.zeros(1), self.shape)
        weights: NDArray[np.float64] | None = None
        if _start.is_of_scikit_learn(self.shape, self.estimator) and any(part is None for part in parameters):
            X, weights = self._rows()
        return _start.start(X, parameters, self.estimator, random_state, weights, total_weight, self.units)

    def statistics(self, random_state: np.random.RandomState) -> _core.Statistics | None:
        if self._start_is_by_labels() or not _start.is_of_scikit_learn(self.shape, self.estimator):
            return None
        X, weights = self._rows()
        x = _start.few(X, self.estimator)
        return None if x is None else _start.statistics_of(x, self.estimator, random_state, weights, self.units)

    def _rows(self) -> tuple[Floats, NDArray[np.float64] | None]:
        """Give all samples, and their weights if they have some."""
        X, weights = self.remote.rows(np.arange(self.shape[0]))
        weighted = any(partition.weights is not None for partition in self.plan.partitions)
        return X.astype(self.dtype, copy=False), weights if weighted else None

    def __enter__(self) -> ClusterSamples:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        pressed = self.interrupts.release()
        self.engine.close()
        if pressed and kind is None:
            raise KeyboardInterrupt
