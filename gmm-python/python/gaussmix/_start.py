"""Where a fit starts: scikit-learn's own start for small data, and the checks of the parameters that a caller gives."""

import copy
import math
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state

from . import _core
from ._arrays import Floats, Weights, n_threads
from ._gpu import on_gpu, on_host
from ._parameters import seed_of
from ._reports import Start
from ._warnings import warn

#: Up to this many samples a start is the very one that scikit-learn makes from the same ``random_state``: the engine's
#: `kmeans` computes what scikit-learn's does, from the same random numbers. Above it, the engine makes one by the same
#: method: its k-means takes a few passes over all samples, scikit-learn's far more.
SCIKIT_LEARN_START = 16384

Units = _core.Standardization | None
#: The parameters of a start that can be given.
INITIAL = ("weights_init", "means_init", "precisions_init")


def shape_of(covariance_type: str, k: int, d: int) -> tuple[int, ...]:
    shapes: dict[str, tuple[int, ...]] = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}
    return shapes[_core.covariance_form(covariance_type)]


def matrices_of(covariances: NDArray[Any], covariance_type: str, k: int, d: int) -> NDArray[Any]:
    """Return covariances of a type as matrices (K, D, D)."""
    if _core.covariance_form(covariance_type) in ("full", "tied"):
        return np.array(np.broadcast_to(covariances, (k, d, d)))
    return np.reshape(covariances, (k, 1, -1)) * np.eye(d)


def checked_parameters(estimator: Any, n_features: int) -> dict[str, Any]:
    """Check ``weights_init``, ``means_init`` and ``precisions_init``, with scikit-learn's messages."""
    k, kind = estimator.n_components, estimator.covariance_type
    weights, means, precisions = (getattr(estimator, name) for name in INITIAL)
    if weights is not None:
        weights = checked(weights, (k,), "weights")
        if np.any(weights < 0.0) or np.any(weights > 1.0):
            # The two numbers are exchanged in scikit-learn's message too.
            raise ValueError(
                "The parameter 'weights' should be in the range [0, 1], but got "
                f"max value {np.min(weights):.5f}, min value {np.max(weights):.5f}"
            )
        if abs(1.0 - weights.sum()) > (1e-6 if weights.dtype == np.float32 else 1e-8):
            raise ValueError(f"The parameter 'weights' should be normalized, but got sum(weights) = {weights.sum():.5f}")
        weights = weights.astype(np.float64)
    if means is not None:
        means = checked(means, (k, n_features), "means").astype(np.float64)
    if precisions is not None:
        precisions = checked_positive(precisions, shape_of(kind, k, n_features), f"{kind} precision", kind)
    return dict(zip(INITIAL, (weights, means, precisions), strict=True))


def checked_positive(values: Any, shape: tuple[int, ...], name: str, kind: str) -> NDArray[np.float64]:
    """Check precisions or covariances of a type, with scikit-learn's messages, and return them symmetric to the bit."""
    array = checked(values, shape, name).astype(np.float64)
    if _core.covariance_form(kind) in ("diag", "spherical"):
        if np.any(array <= 0.0):
            raise ValueError(f"'{kind} precision' should be positive")
        return array
    transposed = np.swapaxes(array, -1, -2)
    if not _is_positive_definite(array, transposed):
        raise ValueError(f"'{kind} precision' should be symmetric, positive-definite")
    return (array + transposed) / 2


def _is_positive_definite(matrices: NDArray[np.float64], transposed: NDArray[np.float64]) -> bool:
    """Say whether matrices are symmetric and positive definite, whatever the units of the features are."""
    variances = np.diagonal(matrices, axis1=-2, axis2=-1)
    if not np.all(variances > 0.0):
        return False
    scale = 1.0 / np.sqrt(variances)
    scales = scale[..., :, np.newaxis] * scale[..., np.newaxis, :]
    correlations, mirrored = matrices * scales, transposed * scales
    return np.allclose(correlations, mirrored) and bool(np.all(np.linalg.eigvalsh(correlations) > 0.0))


def checked(values: Any, shape: tuple[int, ...], name: str) -> Floats:
    array: Floats = values
    # An array of another shape may be of any size.
    if getattr(values, "shape", shape) == shape:
        array = check_array(on_host(values), dtype=[np.float64, np.float32], ensure_2d=False, allow_nd=len(shape) == 3)
    if array.shape != shape:
        raise ValueError(f"The parameter '{name}' should have the shape of {shape}, but got {array.shape}")
    return array


#: A random state for each thread, which is seeded anew for each fit: to make one takes fifty times as long.
_spare = threading.local()


@contextmanager
def random_state_of(seed: Any) -> Iterator[RandomState]:
    """Lend what scikit-learn's ``check_random_state`` makes."""
    # Taken out, so that a fit within a callback of this one has its own.
    spare: RandomState | None = vars(_spare).pop("state", None) if isinstance(seed, Integral) else None
    if spare is None:
        spare = check_random_state(seed)
    else:
        spare.seed(seed)
    yield spare
    if isinstance(seed, Integral):
        _spare.state = spare


#: Up to so many numbers a fit is small beside what a core can do, and so is a copy of them for each core.
_NUMBERS_OF_A_CORE = 1 << 22


def is_side_by_side(X: Any, estimator: Any) -> bool:
    """Say whether runs from several starts, or several fits, are made on different cores, or by one launch on a GPU.

    Callbacks do not see them. ``X`` may be what a caller gave; what has no shape is small.
    """
    given = any(getattr(estimator, name, None) is not None for name in INITIAL)
    return (
        isinstance(estimator.init_params, str)
        and estimator.init_params == "kmeans"
        and not given
        and estimator.callback is None
        # Its runs take turns.
        and not estimator.halving
        and not has_noise(estimator)
        and not estimator.verbose
        and not estimator.warm_start
        # Without iterations it is the last start that counts.
        and estimator.max_iter > 0
        and (estimator.device in ("auto", "cpu") or re.fullmatch(r"cuda(:\d+)?", estimator.device) is not None)
        and not on_gpu(X)
        and math.prod(getattr(X, "shape", ())) <= _NUMBERS_OF_A_CORE
    )


def runs(estimator: Any) -> dict[str, Any]:
    """Draw the random numbers with which the runs of a fit begin, by k-means or hierarchical, for `_core.fit_many`: those of a fit alone."""
    n_uniforms, n_init = _core.n_uniforms(estimator.n_components), range(estimator.n_init)
    may_be_theirs = estimator.init_params == "kmeans" and not estimator.reproducible
    with random_state_of(estimator.random_state) as uniform_state:
        seed_state = copy.deepcopy(uniform_state)
        return {
            "uniforms": [uniform_state.random_sample(n_uniforms).tolist() for _ in n_init],
            "seeds": [seed_of(seed_state) for _ in n_init],
            "own_start": (SCIKIT_LEARN_START, estimator._numbers_of_own_start) if may_be_theirs else (0, 0),
        }


def fit_many(x: Floats, ranges: list[tuple[int, int]], weights: Weights, estimators: Sequence[Any], **how: Any) -> _core.Fits:
    """Fit estimators, or one for all, to ranges of rows, on each core another run; fits that were broken off hold an error."""
    options, first = [estimator._options(x.shape[1]) for estimator in estimators], estimators[0]
    for estimator in estimators:
        # Covariances and their factors before and after an M-step, and their statistics; starts come before the engine's own check.
        shape = shape_of(estimator.covariance_type, estimator.n_components, x.shape[1])
        remedy = "use fewer components, or a covariance type with fewer numbers"
        _core.check_memory("the parameters and statistics of the components", shape, 6 * 8, remedy)
    how |= {"threads": n_threads(first.n_jobs), "missing": first.missing}
    return _core.fit_many(x, ranges, weights, options, [runs(estimator) for estimator in estimators], **how)


def check_units(estimator: Any) -> None:
    """Refuse a covariance type that a fit in standardised units does not have in those of the data."""
    kind = estimator.covariance_type
    if _core.needs_one_unit(kind):
        raise ValueError(
            f"standardize=True cannot give {kind} covariances, because variances in the units of the data "
            f"differ by column; use covariance_type='{'full' if _core.covariance_form(kind) == 'full' else 'diag'}'"
        )


def _given_statistics(X: Floats, estimator: Any, random_state: RandomState, sample_weight: Weights, units: Units) -> _core.Statistics:
    """Make the statistics of a start that ``init_params`` gives: responsibilities, labels or means, or what makes them.

    Means are in the units of the data, but those of a callable in the units of the samples that it gets.
    """
    k, given = estimator.n_components, estimator.init_params
    if callable(given):
        given = given(X, k, random_state)
    array = np.asarray(on_host(given))
    n_samples, n_features = X.shape
    if array.shape == (n_samples, k) and array.dtype.kind in "fiub":
        resp = array.astype(np.float64)
        if not np.all(np.isfinite(resp)) or np.any(resp < 0.0):
            raise ValueError("init_params has responsibilities that are negative or not finite")
    elif array.shape == (n_samples,) and array.dtype.kind in "iu":
        if np.any(array < -1) or np.any(array >= k):
            raise ValueError(f"init_params has labels outside of 0 to {k - 1}, or -1 for samples without one")
        resp = (array[:, np.newaxis] == np.arange(k)).astype(np.float64)
    elif array.shape == (k, n_features) and array.dtype.kind in "fiu":
        means = array if units is None or callable(estimator.init_params) else units.apply(array.astype(np.float64))
        distances = [np.sum((X - mean) ** 2, axis=1) for mean in means]
        resp = (np.argmin(distances, axis=0)[:, np.newaxis] == np.arange(k)).astype(np.float64)
    else:
        raise ValueError(
            f"init_params gives an array of shape {array.shape} and type {array.dtype}; it should be responsibilities "
            f"{(n_samples, k)}, whole numbers as labels ({n_samples},), or means {(k, n_features)}"
        )
    if sample_weight is not None:
        resp = resp * sample_weight[:, np.newaxis]
    without = np.flatnonzero(resp.sum(axis=0) <= 0.0)
    if len(without):
        raise ValueError(f"init_params gives component {without[0]} no sample to start with")
    counted = resp.sum(axis=1) > 0.0
    if np.isnan(X[counted]).any():
        raise ValueError("init_params gives samples with missing values to a component; give them the label -1")
    return _core.Statistics.from_responsibilities(np.ascontiguousarray(X[counted]), resp[counted], estimator.covariance_type)


def statistics_of(X: Floats, estimator: Any, random_state: RandomState, sample_weight: Weights, units: Units = None) -> _core.Statistics:
    """Make the statistics of scikit-learn's start, from the same random numbers, or of a given start; of samples in units."""
    k, kind, init_params = estimator.n_components, estimator.covariance_type, estimator.init_params
    # As the engine does where it finds the start.
    if sample_weight is not None and (n := int(np.count_nonzero(sample_weight > 0))) < k:
        raise _core.TooFewSamplesError(f"only {n} samples have a weight above zero, too few for {k} components; use at most {n}")
    if not isinstance(init_params, str):
        return _given_statistics(X, estimator, random_state, sample_weight, units)
    if init_params == "random":
        resp = random_state.uniform(size=(X.shape[0], k))
        resp /= resp.sum(axis=1)[:, np.newaxis]
        if sample_weight is not None:
            resp *= sample_weight[:, np.newaxis]
        return _core.Statistics.from_responsibilities(X, resp, kind)
    if init_params == "kmeans":
        uniforms = random_state.random_sample(_core.n_uniforms(k))
        statistics, found = _core.kmeans_statistics(X, sample_weight, k, kind, uniforms)
        if found < k:
            warn(
                f"Number of distinct clusters ({found}) found smaller than n_clusters ({k}). Possibly due to duplicate points in X.",
                ConvergenceWarning,
            )
        return statistics
    if init_params == "k-means++":
        chosen = _core.kmeans_plusplus(X, sample_weight, k, random_state.random_sample(_core.n_uniforms(k)))
    else:
        share = None if sample_weight is None else sample_weight / sample_weight.sum()
        chosen = random_state.choice(X.shape[0], size=k, replace=False, p=share)
    resp = np.eye(k) if sample_weight is None else np.diag(sample_weight[chosen])
    return _core.Statistics.from_responsibilities(np.ascontiguousarray(X[chosen]), resp, kind)


def _tied(X: Floats, statistics: _core.Statistics, reg_covar: float, sample_weight: Weights) -> _core.Mixture:
    """Make scikit-learn's start of a few samples: the tied covariance is of all samples, around the origin in part."""
    wide = X.astype(np.float64)
    counts, means = statistics.counts, statistics.means
    squares = wide.T @ (wide if sample_weight is None else wide * sample_weight[:, np.newaxis])
    covariance = (squares - (counts * means.T) @ means) / counts.sum()
    covariance = (covariance + covariance.T) / 2 + reg_covar * np.eye(X.shape[1])
    return _core.Mixture(counts / counts.sum(), means, covariance, "tied")


def has_noise(estimator: Any) -> bool:
    """Say whether a fit adds a component for noise."""
    return getattr(estimator, "noise", False) is not False


def is_of_scikit_learn(shape: tuple[int, int], estimator: Any) -> bool:
    """Say whether the start of samples of this shape is scikit-learn's own, or a given one."""
    if not isinstance(estimator.init_params, str):
        return not (estimator.halving or estimator.reproducible)
    if estimator.halving or estimator.reproducible or has_noise(estimator) or estimator.init_params == "hierarchical":
        return False
    n_samples, n_features = shape
    return n_samples <= SCIKIT_LEARN_START or n_samples * n_features <= estimator._numbers_of_own_start


def start(X: Floats, estimator: Any, random_state: RandomState, sample_weight: Weights, total_weight: float, units: Units) -> Start:
    """Return where a run begins: at statistics, or at a mixture and the logarithm of the sum that its weights have in scikit-learn."""
    statistics, init_params = statistics_of(X, estimator, random_state, sample_weight, units), estimator.init_params
    one_for_each = isinstance(init_params, str) and init_params in ("k-means++", "random_from_data")
    if not one_for_each or not hasattr(estimator, "weights_init"):
        return statistics
    # Only one sample counts for each component.
    share = float(statistics.counts.sum()) / total_weight
    shift = math.log(share) if estimator.weights_init is None else 0.0
    if estimator.covariance_type in ("tied", "EEE") and share < 0.99:
        return _tied(X, statistics, estimator.reg_covar, sample_weight), shift
    return _core.mixture_of_clusters(statistics, estimator.covariance_type, estimator.reg_covar), shift
