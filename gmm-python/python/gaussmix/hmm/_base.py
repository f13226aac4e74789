"""Methods that the hidden Markov models share."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .. import _core
from .._arrays import Self, numbers_of
from .._mixture import Mixture
from .._parameters import set_parameters
from .._pictures import draw_markov
from .._reports import Watched
from .._start import matrices_of, shape_of

_log = logging.getLogger(__name__)
Array = NDArray[np.float64]
States = NDArray[np.int64]
Lengths = ArrayLike | None


def checked_lengths(lengths: ArrayLike) -> list[int]:
    """Return the lengths of sequences as whole numbers."""
    sizes = np.asarray(lengths).ravel().tolist()
    if bad := [length for length in sizes if length < 1 or length != int(length)]:
        raise ValueError(f"lengths holds {bad[0]}; lengths must be whole numbers, and a sequence has at least one row")
    return [int(length) for length in sizes]


def sequences_of(X: Any, lengths: Lengths, weights: ArrayLike | None, missing: bool, device: str = "cpu") -> _core.Sequences:
    """Check rows and divide them into sequences, unless they are."""
    if isinstance(X, _core.Sequences):
        return X
    x = numbers_of(X, "X", [np.float64, np.float32], "allow-nan" if missing else True)
    weights = None if weights is None else np.asarray(weights, dtype=np.float64).ravel().tolist()
    return _core.Sequences(x, [len(x)] if lengths is None else checked_lengths(lengths), weights, missing, device)


class ConvergenceMonitor:
    """The course of a fit; a subclass may decide otherwise when it has converged.
    Parameters:
    tol : float -- The least gain of an iteration that has not converged.
    n_iter : int -- The largest number of iterations.
    verbose : bool -- Whether each iteration is printed to stderr.
    Attributes:
    history : deque -- The total log-likelihood, or the lower bound, before each M-step.
    iter : int -- The number of iterations.
    """

    def __init__(self, tol: float, n_iter: int, verbose: bool) -> None:
        self.tol, self.n_iter, self.verbose = tol, n_iter, verbose
        self.history: deque[float] = deque()
        self.iter = 0

    def _reset(self) -> None:
        self.iter = 0
        self.history.clear()

    def report(self, log_prob: float) -> None:
        """Take the value of an iteration.
        Parameters: log_prob : float -- The log-likelihood, or the bound.
        """
        delta = log_prob - self.history[-1] if self.history else np.nan
        if self.verbose:
            print(f"{self.iter + 1:>10d} {log_prob:>16.8f} {delta:>+16.8f}", file=sys.stderr)
        if delta < -np.sqrt(np.finfo(float).eps):
            _log.warning("Model is not converging: %s is below %s by %s", log_prob, self.history[-1], -delta)
        self.history.append(log_prob)
        self.iter += 1

    @property
    def converged(self) -> bool:
        """Whether the fit ends: after n_iter iterations, or at a gain below tol."""
        return self.iter >= self.n_iter or (len(self.history) >= 2 and self.history[-1] - self.history[-2] < self.tol)


class Expectations(NamedTuple):
    """The sums of an E-step, which add up over sequences by ``+``, also from one computer to another.
    Parameters:
    start : ndarray of shape (n_components,) -- The expected number of sequences that start in each state.
    transitions : ndarray of shape (n_components, n_components) -- The expected numbers of transitions.
    statistics : Statistics -- Of the components of all states, with the total log-likelihood.
    """

    start: Array
    transitions: Array
    statistics: _core.Statistics

    def __add__(self, other: Any) -> Expectations:
        return Expectations(*(a + b for a, b in zip(self, other, strict=True)))


def _learns(model: Any) -> bool:
    """Say whether a model has priors, not a posterior."""
    return hasattr(model, "decay")


def _takes_chunks(model: Any) -> bool:
    """Say whether a model learns from the rows of this process."""
    return _learns(model) and not hasattr(model, "_LOCAL")


class HMM(Watched):
    """The methods of all models."""

    #: Set by the classes' own `__init__`.
    n_components: int
    covariance_type: str
    params: str
    init_params: str
    missing: bool
    device: str
    n_features: int
    hmmlearn_compatible: bool
    algorithm: str
    decay: float
    random_state: Any
    n_iter: int
    monitor_: ConvergenceMonitor
    #: The parameters that the monitor has taken.
    _of_monitor: dict[str, Any]
    _stream: _core.SequenceStream | None
    #: Of each class: the engine's model of the attributes, what starts a fit, and the priors as the engine takes them.
    _engine: Callable[[], _core.HiddenMarkov]
    _init: Callable[[Array, Any], None]
    _priors: Callable[[], dict[str, Any]]
    #: Whether a random number decides on the component of a state, even the only one.
    _draws_components = False
    #: Whether covariances have mclust's models too.
    _takes_models = False
    #: The engine checks the parameters.
    _parameter_constraints: ClassVar[dict[str, Any]] = {}
    #: What callbacks evaluate after an iteration.
    _with: Any = staticmethod(vars)

    def _take(self, given: dict[str, Any]) -> None:
        """Set the parameters, which are the local variables of a constructor."""
        set_parameters(self, given)
        self._of_monitor = {name: given[name] for name in ("tol", "n_iter", "verbose")}
        self.monitor_ = ConvergenceMonitor(**self._of_monitor)

    def _form(self) -> str:
        """Return the type of the covariances' arrays."""
        form = _core.covariance_form(self.covariance_type)
        if form != self.covariance_type and not self._takes_models:
            raise ValueError(f"covariance_type is {self.covariance_type!r}; use 'diag', 'spherical', 'full' or 'tied'")
        return form

    def _check(self) -> None:
        self._engine()

    def _set(self, engine: _core.HiddenMarkov) -> None:
        """Set the attributes to those of the engine's model."""
        self.startprob_, self.transmat_ = engine.startprob, engine.transmat

    def _prior(self, scatter: Array, divisor: Array, *n_mix: int) -> dict[str, Any]:
        """Return the prior as the engine takes it, with what is added to sums of squares and to the numbers of their rows."""
        k, d = self.n_components, self.n_features

        def of(name: str, *shape: int) -> Array:
            return np.broadcast_to(np.asarray(getattr(self, name), dtype=np.float64), shape)

        return {
            "start": of("startprob_prior", k) - 1.0,
            "transitions": of("transmat_prior", k, k) - 1.0,
            "weights": of("weights_prior", k, *n_mix) - 1.0 if n_mix else np.zeros((k, 1)),
            "means": of("means_prior", k, *n_mix, d).reshape(-1, d),
            "means_weight": of("means_weight", k, *n_mix).ravel(),
            "scatter": scatter,
            "divisor": divisor.ravel(),
            "around_last_means": bool(n_mix) and self.hmmlearn_compatible,
        }

    def _sums(self, engine: _core.HiddenMarkov, sequences: Any) -> Expectations:
        return Expectations(*engine.e_step(sequences))

    def _step(self, sequences: Any) -> float:
        """Make an iteration; return the log-likelihood before it."""
        engine = self._engine()
        sums = self._sums(engine, sequences)
        self._set(engine.m_step(sums, self.params, self._priors()))
        return sums.statistics.log_likelihood

    def _sequences(self, X: Any, lengths: Lengths = None, weights: ArrayLike | None = None, device: str = "cpu") -> _core.Sequences:
        return sequences_of(X, lengths, weights, self.missing, device)

    def _fitted(self) -> _core.HiddenMarkov:
        check_is_fitted(self, "startprob_")
        return self._engine()

    def score(self, X: Any, lengths: Lengths = None) -> float:
        """Return the total log-likelihood; -inf for an impossible sequence."""
        return float(self._fitted().score(self._sequences(X, lengths)).sum())

    def _total(self, X: Any, lengths: Lengths) -> tuple[float, int]:
        """Return the log-likelihood and the number of rows."""
        return self.score(X, lengths), len(X)

    def score_samples(self, X: Any, lengths: Lengths = None) -> tuple[float, Array]:
        """Compute the total log-likelihood and the probabilities of the states.
        Returns:
        log_prob : float -- The log-likelihood.
        posteriors : ndarray of shape (n_samples, n_components) -- Of each state in each row, given the whole sequence.
        """
        scores, posteriors = self._fitted().forward_backward(self._sequences(X, lengths))
        return float(scores.sum()), posteriors

    def predict_proba(self, X: Any, lengths: Lengths = None) -> Array:
        """Return the probability of each state in each row, (n_samples, n_components), given the whole sequence."""
        return self.score_samples(X, lengths)[1]

    def decode(self, X: Any, lengths: Lengths = None, algorithm: str | None = None) -> tuple[float, States]:
        """Find the states.
        Parameters:
        algorithm : {'viterbi', 'map'}, default=None
            The most probable path, or the most probable state of each row; by default the estimator's `algorithm`.
        Returns:
        log_prob : float -- The log probability of the rows and these states.
        state_sequence : ndarray of shape (n_samples,) -- The states.
        """
        engine, algorithm = self._fitted(), algorithm or self.algorithm
        if algorithm not in ("viterbi", "map"):
            raise ValueError(f"algorithm is {algorithm!r}; use 'viterbi' or 'map'")
        sequences = self._sequences(X, lengths)
        if algorithm == "viterbi":
            scores, states = engine.viterbi(sequences)
            return float(scores.sum()), states
        _, posteriors = engine.forward_backward(sequences)
        states = posteriors.argmax(axis=1)
        if self.hmmlearn_compatible:
            return float(posteriors.max(axis=1).sum()), states
        return float(engine.score_paths(sequences, states.tolist()).sum()), states

    def predict(self, X: Any, lengths: Lengths = None) -> States:
        """Return the states, (n_samples,), by the estimator's `algorithm`."""
        return self.decode(X, lengths)[1]

    def sample(self, n_samples: int = 1, random_state: Any = None, currstate: int | None = None) -> tuple[Array, States]:
        """Draw a sequence, from the same random numbers as hmmlearn.
        Parameters:
        n_samples : int, default=1 -- Its length.
        currstate : int, default=None -- Its first state; by default drawn.
        Returns:
        X : ndarray of shape (n_samples, n_features) -- The rows.
        state_sequence : ndarray of shape (n_samples,) -- Their states.
        """
        engine = self._fitted()
        rng = check_random_state(self.random_state if random_state is None else random_state)
        cumulated, state = engine.transmat.cumsum(axis=1), currstate
        weights, means = engine.weights, engine.means
        per_state = weights.shape[1]
        roots = [_root(matrix) for matrix in matrices_of(engine.covariances, engine.model, *means.shape)]
        states, x = np.empty(n_samples, dtype=np.int64), np.empty((n_samples, means.shape[1]))
        for t in range(n_samples):
            if state is None:
                state = int((engine.startprob.cumsum() > rng.rand()).argmax())
            elif t:
                state = int((cumulated[state] > rng.rand()).argmax())
            c = int(state) * per_state
            if self._draws_components:
                cdf = weights[state].cumsum()
                c += int((cdf / cdf[-1]).searchsorted(rng.random_sample(), side="right"))
            states[t], x[t] = state, means[c] + rng.standard_normal(means.shape[1]) @ roots[c]
        return x, states

    def get_stationary_distribution(self) -> Array:
        """Return the share of time that a long sequence spends in each state, (n_components,)."""
        return self._fitted().stationary_distribution()

    @property
    def mixture_(self) -> Mixture:
        """The mixture of a row of a long sequence, whose neighbours are not known."""
        engine = self._fitted()
        weights = (engine.stationary_distribution()[:, None] * engine.weights).ravel()
        return Mixture(weights / weights.sum(), engine.means, engine.covariances, covariance_type=engine.model)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a JSON file, which the program's `gmm hmm` reads too.
        Parameters: path : str or path-like -- The file.
        """
        self._fitted().write(os.fspath(path), [])

    def __getstate__(self) -> dict[str, Any]:
        # A copy begins a stream of its own.
        return {name: value for name, value in super().__getstate__().items() if name != "_stream"}

    def plot(self, X: Any = None, what: str = "states", lengths: Lengths = None, feature: int = 0, ax: Any = None) -> Any:
        """Draw the model, and return the axes of matplotlib.
        Parameters:
        X : array-like of shape (n_samples, n_features), default=None -- The rows, which the states over time need.
        what : {'states', 'transitions', 'emissions'}, default='states'
            A feature over time, on the colour of the state of each row, with lines between sequences; the states, as large as
            their shares of a long sequence, with arrows as wide as the probabilities of transitions; or the rows with the
            Gaussians of the states.
        feature : int, default=0 -- The feature that is drawn over time.
        ax : matplotlib.axes.Axes, default=None -- Where to draw; by default on a new figure.
        """
        return draw_markov(self, X, what, lengths, feature, ax)

    def _needs_init(self, code: str, name: str) -> bool:
        if code not in self.init_params:
            return not hasattr(self, name)
        if hasattr(self, name):
            _log.warning("Even though the %r attribute is set, it will be overwritten, because init_params contains %r", name, code)
        return True

    def _set_n_features(self, X: Array) -> None:
        for name in ("n_components", "n_mix"):
            if getattr(self, name, 1) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; a model has at least one")
        if getattr(self, "n_features", X.shape[1]) != X.shape[1]:
            raise ValueError(f"X has {X.shape[1]} columns, but the model has {self.n_features} features")
        self.n_features = X.shape[1]
        n = sum(number for code, number in self._n_parameters().items() if code in self.params)
        if X.size < n:
            _log.warning(
                "Fitting a model with %d free scalar parameters with only %d data points will result in a degenerate solution.", n, X.size
            )

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(
        self, X: Any, lengths: Lengths = None, sequence_weight: ArrayLike | None = None, checkpoint: str | os.PathLike[str] | None = None
    ) -> Self:
        """Fit the model.
        Parameters:
        checkpoint : path-like, default=None
            A .json file to which the fit is saved every ten seconds and at its end, also by Ctrl-C. If the file exists, the
            fit goes on from it, on the same data. Not of `VariationalGaussianHMM`.
        """
        self._fit_to(X, lengths, sequence_weight, checkpoint)
        return self

    def _fit_to(self, X: Any, lengths: Any, sequence_weight: Any, checkpoint: Any) -> None:
        sequences = self._sequences(X, lengths, sequence_weight, self.device)
        self._iterate(sequences, numbers_of(X, "X"), checkpoint, X, lengths)

    def _iterate(self, sequences: Any, x: Array, checkpoint: str | os.PathLike[str] | None, X: Any, lengths: Any) -> None:
        """Make the iterations of a fit, which starts from some rows of X."""
        # Parameters that have been set since the monitor was made.
        changed = {name: getattr(self, name) for name, value in self._of_monitor.items() if getattr(self, name) != value}
        vars(self.monitor_).update(changed)
        self._of_monitor |= changed
        history = [] if checkpoint is None else self._resume(checkpoint, x)
        if not history:
            self._init(x[~np.isnan(x).any(axis=1)] if self.missing else x, [len(x)] if lengths is None else lengths)
        self._check()
        self._stream = None
        self.monitor_._reset()
        known = history[-1] if history else None
        for value in history[:-1]:
            self.monitor_.report(value)
        task = self._told(X, None, None if lengths is None else {"lengths": lengths}, self._with)
        saved, last = time.monotonic(), None
        try:
            # The result of a longer fit stays.
            for _ in range(max(self.n_iter, len(history)) - self.monitor_.iter):
                engine = None if checkpoint is None else self._engine()
                log_prob = self._step(sequences)
                if known is not None and not np.isclose(known, log_prob, rtol=1e-9):
                    raise ValueError(
                        f"{checkpoint} has the log-likelihood {known}, and these data have {log_prob}; give the data of the "
                        "checkpoint, or name another"
                    )
                known = None
                self.monitor_.report(log_prob)
                if engine is not None:
                    last = (engine, list(self.monitor_.history))
                if last and time.monotonic() - saved > 10:
                    last[0].write(os.fspath(checkpoint or ""), last[1])
                    saved = time.monotonic()
                if (task is not None and task.after(lambda: self)) or self.monitor_.converged:
                    break
        finally:
            if last:
                last[0].write(os.fspath(checkpoint or ""), last[1])
        if task is not None:
            task.end()

    def _resume(self, checkpoint: str | os.PathLike[str], X: Array) -> list[float]:
        """Take the model of a checkpoint, if it exists, and return the history up to it."""
        if not _learns(self):
            raise ValueError("checkpoint: a fit by variational inference has none; use GaussianHMM or GMMHMM")
        if not os.path.exists(checkpoint):
            return []
        engine, _, history = _core.HiddenMarkov.read(os.fspath(checkpoint))
        shape = (self.n_components, getattr(self, "n_mix", 1), X.shape[1])
        if not history or (*engine.weights.shape, engine.means.shape[1]) != shape:
            raise ValueError(f"{checkpoint} is not a checkpoint of a fit with (states, components, features) = {shape}; name another file")
        self._set_n_features(X)
        self._set(engine)
        if self._engine().model != engine.model:
            raise ValueError(f"{checkpoint} has the covariance_type {engine.model!r}; give it, or name another file")
        return history

    @available_if(_learns)  # type: ignore[untyped-decorator]
    def e_step(self, X: Any, lengths: Lengths = None, sequence_weight: ArrayLike | None = None) -> Expectations:
        """Return the sums of an E-step over the sequences."""
        return self._sums(self._fitted(), self._sequences(X, lengths, sequence_weight, self.device))

    @available_if(_learns)  # type: ignore[untyped-decorator]
    def m_step(self, sums: Expectations) -> Self:
        """Take the parameters of the M-step from the sums of E-steps of this model, perhaps in several processes.
        Parameters: sums : Expectations -- The sums over all sequences.
        """
        self._set(self._fitted().m_step(sums, self.params, self._priors()))
        return self

    @available_if(_takes_chunks)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, lengths: Lengths = None, sequence_weight: ArrayLike | None = None) -> Self:
        """Learn from some sequences of the data.

        The first ones are fitted as by `fit`, unless the model is fitted already. Then each chunk of sequences contributes its
        expected numbers per row to a moving average, from which the parameters follow: stepwise EM. Chunks should be random
        samples of the same sequences. A copy of the model begins a new average.
        """
        if not hasattr(self, "startprob_"):
            self.fit(X, lengths, sequence_weight)
        sequences = self._sequences(X, lengths, sequence_weight, self.device)
        stream = getattr(self, "_stream", None) or _core.SequenceStream(float(self.decay))
        engine, self._stream, log_prob = self._engine().learn(sequences, self.params, self._priors(), stream)
        self._set(engine)
        self.monitor_.history.append(log_prob)
        return self

    def _n_parameters(self) -> dict[str, int]:
        k, d, m = self.n_components, self.n_features, getattr(self, "n_mix", 1)
        # Models that share a part of the covariances have fewer. 'tied' components are those of a state.
        triangle, tied = d * (d + 1) // 2, k if hasattr(self, "n_mix") else 1
        covariances = {"spherical": k * m, "diag": k * m * d, "tied": tied * triangle, "full": k * m * triangle}
        return {"s": k - 1, "t": k * (k - 1), "m": k * m * d, "c": covariances[self._form()], "w": k * (m - 1)}

    def _init_chain(self) -> None:
        rng, share = check_random_state(self.random_state), np.full(self.n_components, 1 / self.n_components)
        if self._needs_init("s", "startprob_"):
            self.startprob_ = rng.dirichlet(share)
        if self._needs_init("t", "transmat_"):
            self.transmat_ = rng.dirichlet(share, size=self.n_components)

    def aic(self, X: Any, lengths: Lengths = None) -> float:
        """Return Akaike's information criterion; the lower the better."""
        return -2 * self.score(X, lengths) + 2 * self._fitted().n_parameters

    def bic(self, X: Any, lengths: Lengths = None) -> float:
        """Return the Bayesian information criterion; the lower the better."""
        total, n = self._total(X, lengths)
        return -2 * total + self._fitted().n_parameters * float(np.log(n))


def _root(covariance: Array) -> Array:
    """Return the factor by which NumPy multiplies standard normal numbers."""
    _, values, vectors = np.linalg.svd(covariance)
    return np.sqrt(values)[:, None] * vectors


def of_all(whole: Array, form: str, n: int) -> Array:
    """Return covariances of a form for n components, each that of all rows."""
    d = len(whole)
    # The mean over all entries, as in hmmlearn, unless it is not a variance.
    mean = whole.mean() if whole.mean() > 0 else whole.trace() / d
    one = {"spherical": mean, "diag": whole.diagonal(), "full": whole, "tied": whole}[form]
    return np.array(one) if form == "tied" else np.tile(one, (n, *[1] * np.ndim(one))).reshape(shape_of(form, n, d))


def covariance(X: Array, added: float) -> Array:
    return np.atleast_2d(np.cov(X.T)) + added * np.eye(X.shape[1])


def kmeans(estimator: Any, X: Array, k: int) -> KMeans:
    return KMeans(n_clusters=k, random_state=estimator.random_state, n_init=10).fit(X)


class WithCovariances(HMM):
    """`covars_`, which is read as matrices and set in the shape of the type."""

    @property
    def covars_(self) -> Array:
        """The covariances of the states as matrices; they are set in the shape of their type."""
        return matrices_of(self._covars_, self.covariance_type, self.n_components, np.asarray(self.means_).shape[1])

    @covars_.setter
    def covars_(self, covars: ArrayLike) -> None:
        covars = np.array(covars, dtype=np.float64)
        form = self._form()
        # Means that are not needed for a check may not be there yet.
        d = covars.shape[-1] if form != "spherical" and covars.ndim else 1
        if form == "spherical" and covars.size == self.n_components:
            covars = covars.ravel()
        elif form == "spherical" and covars.ndim == 2 and np.ptp(covars, axis=1).max() == 0:
            covars = covars[:, 0].copy()
        share = np.full(self.n_components, 1 / self.n_components)
        _core.HiddenMarkov(share, np.tile(share, (len(share), 1)), share, np.zeros((len(share), d)), covars, self.covariance_type, False)
        self._covars_ = covars

    def _engine(self) -> _core.HiddenMarkov:
        self._form()
        if not hasattr(self, "_covars_"):
            raise ValueError("covars_ is not set; set it, or fit the model")
        share = np.full(self.n_components, 1 / self.n_components)
        engine = _core.HiddenMarkov(self.startprob_, self.transmat_, share, self.means_, self._covars_, self.covariance_type, False)
        self.n_features = engine.means.shape[1]
        return engine

    def _set(self, engine: _core.HiddenMarkov) -> None:
        super()._set(engine)
        self._covars_ = engine.covariances
