"""The mixture, a value: what it says of samples, its parts, its distances from others, and mixtures made of it."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, SupportsIndex, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from . import _core, _tables
from ._arrays import Floats, checked_weights, is_plain, load, numbers_of, validated
from ._gpu import beside
from ._graph import mixture_graph
from ._parameters import ScikitLearn, count, seed_of, whole
from ._warnings import warn

Feature = SupportsIndex | str
RandomState = int | np.random.RandomState | None

#: The attributes of scikit-learn's fitted mixtures that are arrays.
ARRAYS = ("weights_", "means_", "covariances_", "precisions_cholesky_", "precisions_")


class Estimate(NamedTuple):
    """A number that was estimated from random samples, and its standard deviation over seeds, estimated from them too."""

    value: float
    standard_error: float


class Transport(NamedTuple):
    """What brings the weights of one mixture to those of another: the distance that it takes, and which weight goes where."""

    distance: float
    plan: NDArray[np.float64]


class Region(NamedTuple):
    """A region of highest density: its intervals, ascending, and the density at all of their ends."""

    intervals: NDArray[np.float64]
    density: float


class OnAxis(NamedTuple):
    """A mixture at places along the axis of one feature."""

    x: NDArray[np.float64]
    density: NDArray[np.float64]
    cdf: NDArray[np.float64]
    components: NDArray[np.float64]


class _Features(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The features of a mixture, as scikit-learn's checks of samples ask for them, and how to compute."""

    def __init__(self, mixture: Mixture, device: str, n_jobs: int | None, missing: bool) -> None:
        self.n_features_in_, self.device, self.n_jobs, self.missing = mixture.n_features, device, n_jobs, missing
        if mixture.feature_names is not None:
            self.feature_names_in_ = np.array(mixture.feature_names, dtype=object)


# scikit-learn's messages name the class.
_Features.__name__ = "Mixture"


class Regression:
    """Some features of a mixture given others: what `Mixture.regression` returns.

    For each sample it is a mixture whose weights and means depend on what is given.
    Parameters:
    mixture : Mixture -- The mixture of all features.
    given : sequence of int -- The numbers of the features that are given.
    wanted : sequence of int -- The numbers of the features that are wanted.
    """

    def __init__(self, mixture: Mixture, given: Sequence[int], wanted: Sequence[int]) -> None:
        self.given, self.wanted = tuple(given), tuple(wanted)
        self._engine = _core.Regression(mixture._engine, self.given, self.wanted)

    def _x(self, X: Any) -> Floats:
        x: Floats = numbers_of(X, "X", ensure_2d=False, allow_nd=True, ensure_min_samples=0)
        if x.ndim != 2 or x.shape[1] != len(self.given):
            raise ValueError(f"X has the shape {x.shape}; give (n_samples, {len(self.given)}), a column for each feature")
        return x

    @property
    def covariances(self) -> NDArray[np.float64]:
        """The covariances of the components, (n_components, n_wanted, n_wanted); they are the same for all samples."""
        return self._engine.covariances

    def weights(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the weight of each component for each sample, (n_samples, n_components).
        Parameters: X : array-like of shape (n_samples, n_given) -- The given features.
        """
        return self._engine.weights(self._x(X))

    def means(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the mean of each component for each sample, (n_samples, n_components, n_wanted).
        Parameters: X : array-like of shape (n_samples, n_given) -- The given features.
        """
        return self._engine.means(self._x(X))

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the mean of the wanted features for each sample, (n_samples, n_wanted).
        Parameters: X : array-like of shape (n_samples, n_given) -- The given features.
        """
        return self._engine.predict(self._x(X))[0]


@final
class Mixture:
    """A Gaussian mixture: weights, means and covariances, which never change: the arrays are read-only.

    An estimator's mixture is ``gm.mixture_``. What is computed of samples is float64.
    Parameters:
    weights : array-like of shape (n_components,) -- The weights, which sum to 1.
    means : array-like of shape (n_components, n_features) -- The means.
    covariances : array-like -- The covariances, in the shape of their type.
    feature_names : sequence of str, default=None -- The names of the features.
    Examples:
    >>> from gaussmix import Mixture
    >>> Mixture([0.5, 0.5], [[-3.0], [3.0]], [[[1.0]], [[4.0]]], feature_names=["x"])
    Mixture of 2 components over 1 feature, 'full' covariances: means ± standard deviations
    component  weight       x
            0     0.5  -3 ± 1
            1     0.5   3 ± 2
    """

    __slots__ = ("_engine", "_names")
    _engine: _core.Mixture
    _names: tuple[str, ...] | None

    def __init__(
        self,
        weights: ArrayLike,
        means: ArrayLike,
        covariances: ArrayLike,
        *,
        covariance_type: str | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        w, m, c = (np.asarray(part) for part in (weights, means, covariances))
        self._set(_core.Mixture(w, m, c, covariance_type), feature_names)

    def _set(self, engine: _core.Mixture, names: Iterable[Any] | None) -> None:
        self._engine, self._names = engine, None if names is None else tuple(str(name) for name in names)
        if self._names is not None and len(self._names) != self.n_features:
            raise ValueError(f"there are {len(self._names)} feature_names for {self.n_features} features; give one for each")

    @classmethod
    def _of(cls, engine: _core.Mixture, names: Iterable[Any] | None = None) -> Mixture:
        """Wrap a mixture of the engine."""
        made = cls.__new__(cls)
        made._set(engine, names)
        return made

    def __reduce__(self) -> Any:
        return Mixture._of, (self._engine, self._names)

    def _key(self) -> tuple[bytes, tuple[str, ...] | None]:
        return bytes(self._engine), self._names

    def __eq__(self, other: object) -> bool:
        """Say whether both have the same parameters, to the bit, and the same names."""
        return self._key() == other._key() if isinstance(other, Mixture) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _table(self) -> tuple[str, list[str], Iterator[list[Any]], int]:
        """Return the title, the head and the rows of the table that is printed, and the number of rows."""
        (k, d), kind = (self.n_components, self.n_features), self.covariance_type
        title = f"Mixture of {k} component{'s' * (k > 1)} over {d} feature{'s' * (d > 1)}, {kind!r} covariances"
        names = [f"feature {j}" for j in range(d)] if self._names is None else list(self._names)
        head = ["component", "weight", *names[: _tables.COLUMNS], *(["…"] if d > _tables.COLUMNS else [])]
        weights, means, covariances = self.weights, self.means, self.covariances
        squares = np.diagonal(covariances, axis1=-2, axis2=-1) if kind in ("full", "tied") else covariances
        deviations = np.broadcast_to(np.sqrt(squares[:, np.newaxis] if kind == "spherical" else squares), (k, d))

        def row(j: int) -> list[Any]:
            pairs = zip(means[j][: _tables.COLUMNS], deviations[j], strict=False)
            cells = [f"{mean:.4g} ± {deviation:.3g}" for mean, deviation in pairs]
            return [j, float(weights[j]), *cells, *(["…"] if d > _tables.COLUMNS else [])]

        if self.noise is not None:
            title = f"{title}, and noise of weight {weights[k]:.3g}"
        return f"{title}: means ± standard deviations", head, map(row, range(k)), k

    def __repr__(self) -> str:
        return _tables.as_text(*self._table())

    def _repr_html_(self) -> str:
        return _tables.as_html(*self._table())

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weights, (n_components,), and that of the noise, if there is one."""
        return _fixed(self._engine.weights)

    @property
    def means(self) -> NDArray[np.float64]:
        """The means, (n_components, n_features)."""
        return _fixed(self._engine.means)

    @property
    def covariances(self) -> NDArray[np.float64]:
        """The covariances, in the shape of their type."""
        return _fixed(self._engine.covariances)

    @property
    def precisions(self) -> NDArray[np.float64]:
        """The inverses of the covariances, in the same shape."""
        return _fixed(self._engine.precisions)

    @property
    def precisions_cholesky(self) -> NDArray[np.float64]:
        """Upper triangular matrices U with U @ U.T the precision; for types without matrices 1 / standard deviation."""
        return _fixed(self._engine.precisions_cholesky)

    @property
    def covariance_type(self) -> str:
        """The type of the covariances: 'full', 'tied', 'diag' or 'spherical'."""
        return self._engine.covariance_type

    @property
    def covariance_model(self) -> str:
        """The model of the covariances: their type, or one of mclust's such as 'VEV' (docs/mclust.md)."""
        return self._engine.covariance_model

    def decomposition(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the covariances as volume * D @ diag(shape) @ D.T, where the product of a shape is one.
        Returns:
        volumes : ndarray of shape (n_components,) -- The roots of degree n_features of the determinants.
        shapes : ndarray of shape (n_components, n_features) -- Descending where each component has its own axes.
        orientations : ndarray of shape (n_components, n_features, n_features) -- The axes, as columns.
        """
        return self._engine.decomposition()

    @property
    def noise(self) -> tuple[float, list[float], list[float]] | None:
        """The volume of the noise, whose inverse is its density, and its lower and upper bounds; None without noise."""
        return self._engine.noise

    def without_noise(self) -> Mixture:
        """Return the mixture of the Gaussians alone, with weights of sum 1."""
        return Mixture._of(self._engine.without_noise(), self._names)

    def _check_no_noise(self, what: str) -> None:
        """Raise an error if there is noise, which something does not have."""
        if self.noise is not None:
            raise ValueError(f"{what} has no component for noise; take the Gaussians alone (without_noise)")

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features, if they have any."""
        return self._names

    @property
    def n_components(self) -> int:
        """The number of components, without the noise."""
        return len(self._engine.means)

    @property
    def n_features(self) -> int:
        """The number of features."""
        return int(self._engine.means.shape[1])

    @property
    def n_parameters(self) -> int:
        """The number of free parameters, which criteria count."""
        return self._engine.n_parameters

    def _data(self, X: Any, device: str, n_jobs: int | None, missing: bool, sample_weight: Any = None) -> _core.Data:
        """Bring samples to a device."""
        features, x = _Features(self, device, n_jobs, missing), X
        if self._names is not None or not is_plain(X, features.n_features_in_):
            x = validated(features, X, reset=False)
        return load(features, x, checked_weights(sample_weight, x.shape[0]), original=X)

    def _statistics(self, X: Any, sample_weight: Any, how: tuple[str, int | None, bool]) -> _core.Statistics:
        """Make the E-step, unless that is what is given."""
        return X if isinstance(X, _core.Statistics) else self._data(X, *how, sample_weight).e_step(self._engine)

    def score_samples(self, X: ArrayLike, *, device: str = "auto", n_jobs: int | None = None, missing: bool = False) -> NDArray[np.float64]:
        """Return the log-likelihood of each sample, the logarithm of the density, (n_samples,)."""
        return beside(self._data(X, device, n_jobs, missing).scores(self._engine), X)

    def predict(self, X: ArrayLike, *, device: str = "auto", n_jobs: int | None = None, missing: bool = False) -> NDArray[np.int64]:
        """Return the most probable component of each sample, (n_samples,), counted from 0; -1 for noise."""
        return beside(self._data(X, device, n_jobs, missing).labels(self._engine), X)

    def predict_proba(self, X: ArrayLike, *, device: str = "auto", n_jobs: int | None = None, missing: bool = False) -> NDArray[np.float64]:
        """Return the probability of each component for each sample, (n_samples, n_components), which sum to 1 for each sample."""
        return beside(self._data(X, device, n_jobs, missing).responsibilities(self._engine), X)

    def score_function(
        self, X: ArrayLike, *, device: str = "auto", n_jobs: int | None = None, missing: bool = False
    ) -> NDArray[np.float64]:
        """Return the score function, (n_samples, n_features): the derivatives of each sample's log-likelihood by it, 0 if missing.

        It points to where the density rises.
        """
        return beside(self._data(X, device, n_jobs, missing).score_function(self._engine), X)

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw samples: those that scikit-learn draws for the same `random_state`.
        Returns:
        X : ndarray of shape (n_samples, n_features) -- The samples, ordered by component.
        y : ndarray of shape (n_samples,) -- The component of each.
        """
        if n_samples < 1:
            raise ValueError(f"Invalid value for 'n_samples': {n_samples} . The sampling requires at least one sample.")
        rng, kind = check_random_state(random_state), self.covariance_type
        weights, means, covariances = self.weights, self.means, self.covariances
        k, d = means.shape
        # The parts, and what they are put together to; of the components there is one number a sample.
        _core.check_memory("the samples and their components", (int(n_samples), 2 * d + 1), 8, "draw fewer at a time")
        counts, parts = rng.multinomial(n_samples, weights), []
        for component, (mean, size) in enumerate(zip(means, counts.tolist(), strict=False)):
            covariance = covariances if kind == "tied" else covariances[component]
            if kind in ("full", "tied"):
                parts.append(rng.multivariate_normal(mean, covariance, size))
            else:
                parts.append(mean + rng.standard_normal(size=(size, d)) * np.sqrt(covariance))
        if self.noise is not None:
            parts.append(rng.uniform(*self.noise[1:], size=(counts[k], d)))
        return np.vstack(parts), np.repeat(np.array([*range(k), -1][: len(counts)], dtype=np.int64), counts)

    def _feature(self, feature: Feature) -> int:
        last = self.n_features - 1
        if isinstance(feature, str):
            found = [number for number, name in enumerate(self._names or ()) if name == feature]
            if len(found) != 1:
                known = "the mixture has no names of features"
                known = known if self._names is None else f"they are {', '.join(self._names)}"
                raise ValueError(f"there is no feature {feature!r}; {known}, and the numbers 0 to {last}")
            return found[0]
        number = whole(feature, "a feature", "give its name, or its number counted from 0")
        if not 0 <= number <= last:
            raise ValueError(f"there is no feature {number} (counted from 0); the numbers are 0 to {last}")
        return number

    def _features(self, features: Any) -> list[int]:
        """Return the numbers of one feature, of several, or of those of a mask."""
        one = isinstance(features, str | SupportsIndex) and not isinstance(features, np.ndarray)
        chosen: list[Any] = [features] if one else list(features)
        if len(chosen) == self.n_features and all(isinstance(feature, bool | np.bool_) for feature in chosen):
            chosen = np.flatnonzero(chosen).tolist()
        return [self._feature(feature) for feature in chosen]

    def _named(self, features: Iterable[int]) -> list[str] | None:
        return None if self._names is None else [self._names[feature] for feature in features]

    def marginal(self, features: Feature | Sequence[Feature]) -> Mixture:
        """Return the distribution of some features alone, of the same type of covariances.
        Parameters:
        features : int, str or sequence of int or str
            The features that stay, by number, counted from 0, or by name, in this order in the result; or a mask of
            all features.
        """
        numbers = self._features(features)
        return Mixture._of(self._engine.marginal(numbers), self._named(numbers))

    def condition(self, given: Mapping[Any, float]) -> Mixture:
        """Return the distribution of the other features, given values of some, of the same type of covariances.

        Each component has its mean and covariance given the values, and a weight in proportion to its density at them.
        The mean of the result is what `GaussianMixture.impute` fills in.
        Parameters: given : mapping of int or str to float -- Features, by number, counted from 0, or by name, and their values.
        Examples:
        >>> from gaussmix import Mixture
        >>> given = Mixture([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]]]).condition({0: 2.0})
        >>> given.means, given.covariances
        (array([[1.]]), array([[[0.75]]]))
        """
        if not isinstance(given, Mapping):
            kind = type(given).__name__
            raise TypeError(f"what is given is a {kind}; give a dict of features and their values, such as {{0: 1.5}}")
        values = [(self._feature(feature), _number(value, feature)) for feature, value in given.items()]
        known = {number for number, _ in values}
        rest = [number for number in range(self.n_features) if number not in known]
        return Mixture._of(self._engine.condition(values), self._named(rest))

    def regression(self, given: Feature | Sequence[Feature], wanted: Feature | Sequence[Feature] | None = None) -> Regression:
        """Return some features given others, as a function of many samples: weights, means and covariances of the wanted features.
        Parameters:
        given : int, str or sequence of int or str -- The features that are given, by number, counted from 0, or by name.
        wanted : int, str or sequence of int or str, default=None -- The features that are wanted; by default all others.
        Examples:
        >>> from gaussmix import Mixture
        >>> mixture = Mixture([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]]])
        >>> mixture.regression(0).predict([[2.0], [4.0]]).ravel()
        array([1., 2.])
        """
        x = self._features(given)
        y = [j for j in range(self.n_features) if j not in x] if wanted is None else self._features(wanted)
        if not y or len({*x, *y}) < len(x) + len(y):
            raise ValueError(f"features {x} are given and {y} wanted; want at least one, and name each feature once")
        return Regression(self, x, y)

    def _of_one(self, feature: Feature | None) -> _core.Mixture:
        if feature is not None:
            return self._engine.marginal([self._feature(feature)])
        if self.n_features != 1:
            raise ValueError(f"the mixture has {self.n_features} features; name the one that is meant, such as feature=0")
        return self._engine

    def cdf(self, x: ArrayLike, *, feature: Feature | None = None) -> Any:
        """Return the probabilities, in the shape of `x`, that one feature of a sample is at most that; exact also far below the means.
        Parameters: x : array-like -- Numbers, in an array of any shape.
        """
        values = np.asarray(x, dtype=np.float64)
        return self._of_one(feature).cdf(values.ravel()).reshape(values.shape)[()]

    def quantile(self, p: ArrayLike, *, feature: Feature | None = None) -> Any:
        """Return the values, in the shape of `p`, that one feature of a sample is below with these probabilities; infinite for 0 and 1.
        Parameters: p : array-like -- Probabilities from 0 to 1, in an array of any shape.
        Examples:
        >>> from gaussmix import Mixture
        >>> Mixture([0.5, 0.5], [[-3.0], [3.0]], [[[1.0]], [[1.0]]]).quantile([0.025, 0.975]).round(4)
        array([-4.6449,  4.6449])
        """
        values = np.asarray(p, dtype=np.float64)
        return self._of_one(feature).quantile(values.ravel()).reshape(values.shape)[()]

    def hdr(self, level: float = 0.95, *, feature: Feature | None = None) -> Region:
        """Return the region of highest density of one feature: the shortest that has a probability.
        Parameters: level : float, default=0.95 -- The probability, above 0 and below 1.
        Returns: region : Region -- Its `intervals`, (n_intervals, 2), and the `density` at all of their ends [1]_.
        References:
        .. [1] Hyndman, R. J. (1996). Computing and graphing highest density regions. The American Statistician 50.
        """
        return Region(*self._of_one(feature).hdr(float(level)))

    def on_axis(self, n_points: int = 200, *, feature: Feature | None = None) -> OnAxis:
        """Return the density of one feature at places along its axis, for a plot.
        Parameters: n_points : int, default=200 -- The number of places, evenly from the quantile at 0.001 to that at 0.999.
        Returns:
        axis : OnAxis
            The places `x`, `density`, `cdf` (the distribution function), and `components`, (n_points, n_components),
            what each component has of the density.
        """
        return OnAxis(*self._of_one(feature).on_axis(count(n_points, "n_points")))

    def _with(self, other: Any) -> tuple[_core.Mixture, _core.Mixture]:
        """Return this mixture and another one of the same features."""
        second = mixture_of(other, "the other mixture")
        if self._names is not None and second._names is not None and self._names != second._names:
            raise ValueError("the two mixtures have other names of features; bring them to one order, by marginal")
        return self._engine, second._engine

    def cauchy_schwarz(self, other: AnyMixture) -> float:
        """Return the Cauchy-Schwarz divergence -log(∫pq / √(∫p² ∫q²)), the same both ways, and 0 for equal densities alone."""
        return _core.Mixture.cauchy_schwarz(*self._with(other))

    def l2_distance(self, other: AnyMixture) -> float:
        """Return the distance √∫(p - q)² of the densities in L², in closed form."""
        return _core.Mixture.l2_distance(*self._with(other))

    def kl_divergence(self, other: AnyMixture, n_samples: int = 100_000, random_state: RandomState = None) -> Estimate:
        """Return the Kullback-Leibler divergence ∫ p log(p/q) of another mixture (q) from this one (p) in nats, estimated from samples.
        Parameters: n_samples : int, default=100_000 -- How many samples of this mixture are drawn.
        """
        mine, others = self._with(other)
        return Estimate(*mine.kl_divergence(others, count(n_samples, "n_samples"), seed_of(random_state)))

    def js_divergence(self, other: AnyMixture, n_samples: int = 100_000, random_state: RandomState = None) -> Estimate:
        """Return the Jensen-Shannon divergence, that of both mixtures from their mean, from 0 to log 2 nats, estimated from samples.
        Parameters: n_samples : int, default=100_000 -- How many samples of each mixture are drawn.
        """
        mine, others = self._with(other)
        return Estimate(*mine.js_divergence(others, count(n_samples, "n_samples"), seed_of(random_state)))

    def wasserstein(self, other: AnyMixture) -> NDArray[np.float64]:
        """Return the 2-Wasserstein distance, in units of the data, of each component from each of the other, (n_components, of other)."""
        return _core.Mixture.wasserstein(*self._with(other))

    def transport(self, other: AnyMixture) -> Transport:
        """Return the distance from another mixture where shares of whole components are moved.

        It is the least that it takes to bring the weights of this mixture to those of the other, where a weight is
        moved over the Wasserstein distance of the two components. The 2-Wasserstein distance of the densities is at
        most this [1]_.
        Returns:
        transport : Transport
            The `distance`, in the units of the data, and the `plan`, (n_components, n_components of other): the weight
            that goes from each component to each of the other.
        References:
        .. [1] Delon, J. and Desolneux, A. (2020). A Wasserstein-type distance in the space of Gaussian mixture
           models. SIAM Journal on Imaging Sciences 13.
        """
        return Transport(*_core.Mixture.transport(*self._with(other)))

    def hellinger_affinity(self, other: AnyMixture) -> NDArray[np.float64]:
        """Return the Hellinger affinity ∫√(fg) of each component with each of the other, (n_components, of other): 1 for equal ones."""
        return _core.Mixture.hellinger_affinity(*self._with(other))

    def product(self, other: AnyMixture) -> tuple[Mixture, float]:
        """Return the normalised product of the densities.
        Returns:
        product : Mixture -- The mixture p·q / ∫p·q, with a component for each pair.
        log_integral : float -- The logarithm of ∫p·q.
        """
        product, log_integral = _core.Mixture.product(*self._with(other))
        return Mixture._of(product, self._names), log_integral

    @staticmethod
    def sum(mixtures: Sequence[AnyMixture], weights: ArrayLike | None = None) -> Mixture:
        """Return the weighted sum of densities, which has the components of all mixtures, those of the first mixture first.
        Parameters:
        mixtures : sequence of Mixture or estimator -- Mixtures of the same features.
        weights : array-like of shape (n_mixtures,), default=None -- The weight of each, up to a factor; by default all are equal.
        """
        if isinstance(mixtures, Mapping) or not isinstance(mixtures, Iterable):
            raise TypeError(f"mixtures is {reprlib.repr(mixtures)}; give a list of mixtures")
        found = [mixture_of(mixture, "one of mixtures") for mixture in mixtures]
        if not found:
            raise ValueError("mixtures is empty; give at least one mixture")
        parts = [found[0]._with(mixture)[1] for mixture in found]
        given = np.ones(len(parts)) if weights is None else np.asarray(weights, dtype=np.float64)
        return Mixture._of(_core.Mixture.sum(parts, given.tolist()), found[0]._names)

    def reduce(self, n_components: int) -> tuple[Mixture, float]:
        """Return a mixture of fewer components, by merging those of which that loses least (Runnalls 2007).
        Parameters: n_components : int -- The number of components that stay.
        Returns:
        smaller : Mixture
            The mixture. It has the same mean and covariance (with 'diag' the same variances, with 'spherical' the
            same sum of variances).
        bound : float -- Its Kullback-Leibler divergence from this one is at most this, in nats.
        Examples:
        >>> from gaussmix import Mixture
        >>> smaller, bound = Mixture([0.4, 0.4, 0.2], [[0.0], [0.1], [9.0]], [1.0, 1.0, 1.0]).reduce(2)
        >>> smaller.weights, bound < 1e-3
        (array([0.8, 0.2]), True)
        """
        mixture, bound = self._engine.reduce(count(n_components, "n_components"))
        return Mixture._of(mixture, self._names), bound

    def sorted(self, order: str | int | Sequence[int] = "weight") -> Mixture:
        """Return the same mixture with its components in another order.
        Parameters:
        order : 'weight', int, str or sequence of int, default='weight'
            'weight' puts the heaviest component first; a feature, by number, counted from 0, or by name, the one
            with the least mean of it; a sequence has the numbers of all components in their new order.
        Examples:
        >>> from gaussmix import Mixture
        >>> mixture = Mixture([0.2, 0.8], [[0.0], [9.0]], [1.0, 1.0])
        >>> mixture.sorted("weight").weights, mixture.sorted(0).weights, mixture.sorted([1, 0]).weights
        (array([0.8, 0.2]), array([0.2, 0.8]), array([0.8, 0.2]))
        """
        if isinstance(order, str) and order == "weight":
            other = self._engine.sorted()
        elif isinstance(order, str | SupportsIndex) and not isinstance(order, np.ndarray):
            other = self._engine.sorted(feature=self._feature(order))
        else:
            numbers = [count(number, "a component in order", least=0) for number in order]
            other = self._engine.sorted(numbers=numbers)
        return Mixture._of(other, self._names)

    def adapt(
        self,
        X: ArrayLike | _core.Statistics,
        relevance: float = 16.0,
        parameters: str | Sequence[str] = "means",
        sample_weight: ArrayLike | None = None,
        *,
        device: str = "auto",
        n_jobs: int | None = None,
        missing: bool = False,
    ) -> Mixture:
        """Return this mixture, a background model, adapted to samples (Reynolds, Quatieri and Dunn 2000).
        Parameters:
        X : array-like of shape (n_samples, n_features), or Statistics
            The samples, or their statistics under this mixture (`Likelihood.statistics`).
        relevance : float, default=16.0 -- A component with so many samples moves half of the way to them.
        parameters : {'weights', 'means', 'covariances'} or a sequence of them, default='means'
            What is adapted; the other parameters are those of this mixture.
        """
        names = [parameters] if isinstance(parameters, str) else list(parameters)
        statistics = self._statistics(X, sample_weight, (device, n_jobs, missing))
        return Mixture._of(statistics.adapt(self._engine, float(relevance), ",".join(names)), self._names)

    def supervector(self) -> NDArray[np.float64]:
        """Return the means of all components after each other, (n_components * n_features,), by which adapted mixtures are compared."""
        return self._engine.means.ravel()

    def fisher_vector(
        self,
        X: ArrayLike | _core.Statistics,
        sample_weight: ArrayLike | None = None,
        *,
        improved: bool = False,
        alpha: float = 0.5,
        device: str = "auto",
        n_jobs: int | None = None,
        missing: bool = False,
    ) -> NDArray[np.float64]:
        """Return the Fisher vector of a set of samples, by which sets are compared.

        It has the mean over the samples of the derivatives of the log density by weights, means and standard
        deviations, each over its own deviation in a sample of the mixture: numbers near 0 where the samples are as the
        mixture says. One E-step gives them. The mixture must have 'diag' covariances.
        Parameters:
        X : array-like of shape (n_samples, n_features), or Statistics
            The samples, or their statistics under this mixture (`Likelihood.statistics`).
        improved : bool, default=False -- Whether to take the power `alpha` of each number, with its sign, and then to divide by the norm.
        alpha : float, default=0.5 -- The power, above 0 and at most 1.
        Returns:
        vector : ndarray of shape (n_components * (2 * n_features + 1),)
            The numbers and their order are those of :func:`skimage.feature.fisher_vector`: first of the weights,
            then of the means of each component, then of its standard deviations, with the opposite sign.
        References:
        F. Perronnin, J. Sánchez, T. Mensink: Improving the Fisher kernel for large-scale image
        classification, ECCV 2010.
        """
        kind = self.covariance_type
        self._check_no_noise("a Fisher vector")
        if kind != "diag":
            raise ValueError(f"a Fisher vector needs a mixture with 'diag' covariances; this one has {kind!r} ones")
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha is {alpha!r}; give a power above 0 and at most 1")
        statistics = self._statistics(X, sample_weight, (device, n_jobs, missing))
        weights, means, variances = self.weights, self.means, self.covariances
        # Of a component: its share of the samples, the mean of its samples, and their mean square about the
        # component's mean, each times that share.
        share = (statistics.counts / statistics.weight)[:, np.newaxis]
        shift = share * (statistics.means - means)
        square = statistics.scatter / statistics.weight + shift * (statistics.means - means)
        root = np.sqrt(weights)[:, np.newaxis]
        parts = (
            (share[:, 0] - weights) / root[:, 0],
            shift / (root * np.sqrt(variances)),
            (share * variances - square) / (np.sqrt(2.0) * root * variances),
        )
        vector: NDArray[np.float64] = np.concatenate([part.ravel() for part in parts])
        if improved:
            vector = np.sign(vector) * np.abs(vector) ** alpha
            norm = np.linalg.norm(vector)
            vector = vector / norm if norm > 0 else vector
        return vector

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the mixture, with the names of its features, to a file that the command ``gmm`` and `load` read."""
        self._engine.write(os.fspath(path), feature_names=names_in_file(self._names))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Mixture:
        """Return a mixture from a file of `save`, of an estimator's, or of ``gmm``, with the names of its features if the file has them."""
        engine, found = _core.Mixture.read(os.fspath(path))
        return cls._of(engine, found.get("feature_names"))

    @classmethod
    def from_sklearn(cls, gm: Any) -> Mixture:
        """Return the mixture of an object of scikit-learn.
        Parameters:
        gm : sklearn.mixture.GaussianMixture or sklearn.mixture.BayesianGaussianMixture
            The fitted mixture, of which the attributes count.
        """
        check_is_fitted(gm, "means_")
        arrays = (gm.weights_, gm.means_, gm.covariances_, gm.precisions_cholesky_)
        engine = _core.Mixture.from_attributes(*arrays, gm.covariance_type)
        return cls._of(engine, getattr(gm, "feature_names_in_", None))

    def to_sklearn(self) -> Any:
        """Return the mixture as a fitted `sklearn.mixture.GaussianMixture`."""
        self._check_no_noise("scikit-learn's class")
        gm = ScikitLearn(self.n_components, covariance_type=self.covariance_type)
        for name in ARRAYS:
            setattr(gm, name, getattr(self._engine, name.rstrip("_")))
        gm.n_features_in_, gm.converged_, gm.n_iter_ = self.n_features, False, 0
        gm.lower_bound_, gm.lower_bounds_ = -np.inf, []
        if self._names is not None:
            gm.feature_names_in_ = np.array(self._names, dtype=object)
        return gm

    def to_onnx(self, *, dtype: DTypeLike | None = None) -> Any:
        """Return an `onnx.ModelProto` with the outputs ``label``, ``probabilities`` and ``score``, which ``onnx.save`` writes.
        Parameters: dtype : dtype, default=None -- The type of the samples and numbers, as in :func:`to_onnx`.
        """
        return mixture_graph(self._engine, dtype).model(type(self).__name__, self.n_features)


class HasMixture(Protocol):
    """An estimator that fits a mixture."""

    @property
    def mixture_(self) -> Mixture:
        """The fitted mixture."""


#: A mixture, or an estimator, whose `mixture_` it is.
AnyMixture = Mixture | HasMixture


def mixture_of(given: Any, what: str) -> Mixture:
    """Return a mixture, also of an estimator that has one."""
    found = given.mixture_ if hasattr(type(given), "mixture_") else given
    if isinstance(found, _core.Mixture):
        # That of an M-step by `Statistics`.
        return Mixture._of(found)
    if not isinstance(found, Mixture):
        raise TypeError(
            f"{what} is a {type(given).__name__}; give a Mixture or a fitted estimator of this package "
            "(Mixture.from_sklearn makes one of an object of scikit-learn)"
        )
    return found


def names_in_file(names: Iterable[Any] | None) -> list[str] | None:
    """Return the names of features for a file, if they tell the columns of a table apart."""
    texts = None if names is None else [str(name) for name in names]
    if texts is not None and len(set(texts)) < len(texts):
        twice = next(name for number, name in enumerate(texts) if name in texts[:number])
        warn(
            f"two features are called {twice!r}, so that the file has no names, and its model takes columns by their "
            "order; give them different names"
        )
        return None
    return texts


def _fixed(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an array that cannot be changed, because a change would not reach the mixture."""
    array.flags.writeable = False
    return array


def _number(value: Any, feature: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        text = f"the value of feature {feature!r} is {reprlib.repr(value)}; give a number that float64 holds"
        raise kind(text) from None
