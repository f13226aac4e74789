"""What a fitted mixture says of some of its features: alone, given values of others, and of one along its axis."""

from __future__ import annotations

import reprlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._fitted import Fitted
from ._parameters import count, whole

if TYPE_CHECKING:
    from ._estimator import GaussianMixture

    Feature = SupportsIndex | str

#: Parameters of an estimator that do not suit another number of components or features.
_OF_THE_SHAPE = ("n_components", "covariance_type", "weights_init", "means_init", "precisions_init")


class Region(NamedTuple):
    """A region of highest density of one feature.

    Parameters
    ----------
    intervals : ndarray of shape (n_intervals, 2)
        Its intervals, ascending.
    density : float
        The density at all of their ends: it is higher inside, and lower outside.
    """

    intervals: NDArray[np.float64]
    density: float


class OnAxis(NamedTuple):
    """A mixture at places along the axis of one feature.

    Parameters
    ----------
    x : ndarray of shape (n_points,)
        The places, ascending.
    density : ndarray of shape (n_points,)
        The density there.
    cdf : ndarray of shape (n_points,)
        The probability of what is at most x.
    components : ndarray of shape (n_points, n_components)
        What each component has of the density.
    """

    x: NDArray[np.float64]
    density: NDArray[np.float64]
    cdf: NDArray[np.float64]
    components: NDArray[np.float64]


class Parts(Fitted):
    """The methods of a fitted mixture that give another mixture of its parameters."""

    @classmethod
    @abstractmethod
    def _mixtures(cls) -> type[GaussianMixture]:
        """Give the class of the mixtures that are made of this one."""

    @abstractmethod
    def _statistics(self, X: Any, sample_weight: Any, mixture: _core.Mixture) -> _core.Statistics:
        """Make the E-step under a mixture."""

    def _another(self, mixture: _core.Mixture, features: Iterable[int] | None = None) -> GaussianMixture:
        """Make a fitted mixture with the parameters of this one, and the names of these features or of all."""
        found: dict[str, Any] = {}
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            found["feature_names"] = names if features is None else [names[feature] for feature in features]
        made = self._mixtures()
        own = set(made._get_param_names()).difference(_OF_THE_SHAPE)
        params = {name: value for name, value in self.get_params(deep=False).items() if name in own}
        return made._of(mixture, self.means_.dtype, found, params)

    def _feature(self, feature: Feature) -> int:
        """Give the number of a feature."""
        names = getattr(self, "feature_names_in_", None)
        n_features = self.means_.shape[1]
        if isinstance(feature, str):
            found = [] if names is None else [number for number, name in enumerate(names) if name == feature]
            if len(found) != 1:
                known = "the mixture has no names of features" if names is None else f"they are {', '.join(map(str, names))}"
                raise ValueError(f"there is no feature {feature!r}; {known}, and the numbers 0 to {n_features - 1}")
            return found[0]
        number = whole(feature, "a feature", "give its name, or its number counted from 0")
        if not 0 <= number < n_features:
            raise ValueError(f"there is no feature {number} (counted from 0); the numbers are 0 to {n_features - 1}")
        return number

    def marginal(self, features: Feature | Sequence[Feature]) -> GaussianMixture:
        """Give the distribution of some features alone.

        Parameters
        ----------
        features : int, str or sequence of int or str
            The features that stay, by number, counted from 0, or by name (``feature_names_in_``), in this order in
            the result; or a mask of all features.

        Returns
        -------
        gm : GaussianMixture
            The fitted mixture, of the same type of covariances, with the parameters of this estimator.
        """
        check_is_fitted(self)
        one = isinstance(features, (str, SupportsIndex)) and not isinstance(features, np.ndarray)
        chosen: list[Any] = [features] if one else list(features)  # type: ignore[arg-type]
        if len(chosen) == self.means_.shape[1] and all(isinstance(feature, (bool, np.bool_)) for feature in chosen):
            chosen = np.flatnonzero(chosen).tolist()
        numbers = [self._feature(feature) for feature in chosen]
        return self._another(self._point().marginal(numbers), numbers)

    def condition(self, given: Mapping[Any, float]) -> GaussianMixture:
        """Give the distribution of the other features, given values of some.

        Each component has its mean and covariance given the values, and a weight in proportion to its density at
        them. The mean of the result is what `impute` fills in.

        Parameters
        ----------
        given : mapping of int or str to float
            Features, by number, counted from 0, or by name (``feature_names_in_``), and their values.

        Returns
        -------
        gm : GaussianMixture
            The fitted mixture, of the same type of covariances, with the parameters of this estimator.

        Examples
        --------
        >>> from gaussmix import GaussianMixture
        >>> gm = GaussianMixture.from_parameters([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]]])
        >>> given = gm.condition({0: 2.0})
        >>> given.means_, given.covariances_
        (array([[1.]]), array([[[0.75]]]))
        """
        check_is_fitted(self)
        if not isinstance(given, Mapping):
            raise TypeError(f"what is given is a {type(given).__name__}; give a dict of features and their values, such as {{0: 1.5}}")
        values = [(self._feature(feature), _number(value, feature)) for feature, value in given.items()]
        known = {number for number, _ in values}
        rest = [number for number in range(self.means_.shape[1]) if number not in known]
        return self._another(self._point().condition(values), rest)

    def adapt(
        self,
        X: ArrayLike,
        relevance: float = 16.0,
        parameters: str | Sequence[str] = "means",
        sample_weight: ArrayLike | None = None,
    ) -> GaussianMixture:
        """Adapt this mixture, a background model, to samples.

        These are the formulas of Reynolds, Quatieri and Dunn (2000), "Speaker verification using
        adapted Gaussian mixture models". The mixture itself stays as it is.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.
        relevance : float, default=16.0
            A component with so many samples moves half of the way to them.
        parameters : {'weights', 'means', 'covariances'} or a sequence of them, default='means'
            What is adapted; the other parameters are those of this mixture.
        sample_weight : array-like of shape (n_samples,), default=None
            A sample of weight 2 counts as two.

        Returns
        -------
        adapted : GaussianMixture
            The fitted mixture.
        """
        check_is_fitted(self)
        names = [parameters] if isinstance(parameters, str) else list(parameters)
        mixture = self._point()
        statistics = self._statistics(X, sample_weight, mixture)
        return self._another(statistics.adapt(mixture, float(relevance), ",".join(names)))

    def supervector(self) -> NDArray[Any]:
        """Give the means of all components after each other, by which adapted mixtures are compared.

        Returns
        -------
        means : ndarray of shape (n_components * n_features,)
            The stacked means.
        """
        check_is_fitted(self)
        return np.ravel(self.means_).copy()

    def _of_one(self, feature: Feature | None) -> _core.Mixture:
        """Give the mixture of one feature."""
        check_is_fitted(self)
        mixture, n_features = self._point(), self.means_.shape[1]
        if feature is not None:
            return mixture.marginal([self._feature(feature)])
        if n_features != 1:
            raise ValueError(f"the mixture has {n_features} features; name the one that is meant, such as feature=0")
        return mixture

    def cdf(self, x: ArrayLike, *, feature: Feature | None = None) -> Any:
        """Give the probability that one feature of a sample is at most ``x``.

        Parameters
        ----------
        x : array-like
            Numbers, in an array of any shape.
        feature : int or str, default=None
            The feature, by number, counted from 0, or by name; needed unless it is the only one.

        Returns
        -------
        p : float or ndarray of the shape of x
            The probabilities, with all their digits also far below the means.
        """
        values = np.asarray(x, dtype=np.float64)
        return self._of_one(feature).cdf(values.ravel()).reshape(values.shape)[()]

    def quantile(self, p: ArrayLike, *, feature: Feature | None = None) -> Any:
        """Give the values that one feature of a sample is below with given probabilities.

        Parameters
        ----------
        p : array-like
            Probabilities from 0 to 1, in an array of any shape.
        feature : int or str, default=None
            The feature, by number, counted from 0, or by name; needed unless it is the only one.

        Returns
        -------
        x : float or ndarray of the shape of p
            The quantiles; infinite for 0 and 1.

        Examples
        --------
        >>> from gaussmix import GaussianMixture
        >>> gm = GaussianMixture.from_parameters([0.5, 0.5], [[-3.0], [3.0]], [[[1.0]], [[1.0]]])
        >>> gm.quantile([0.025, 0.975]).round(4)
        array([-4.6449,  4.6449])
        """
        values = np.asarray(p, dtype=np.float64)
        return self._of_one(feature).quantile(values.ravel()).reshape(values.shape)[()]

    def hdr(self, level: float = 0.95, *, feature: Feature | None = None) -> Region:
        """Give the region of highest density of one feature: the shortest that has a probability.

        Parameters
        ----------
        level : float, default=0.95
            The probability, above 0 and below 1.
        feature : int or str, default=None
            The feature, by number, counted from 0, or by name; needed unless it is the only one.

        Returns
        -------
        region : Region
            Its intervals, and the density at their ends [1]_.

        References
        ----------
        .. [1] Hyndman, R. J. (1996). Computing and graphing highest density regions. The American Statistician 50.
        """
        return Region(*self._of_one(feature).hdr(float(level)))

    def on_axis(self, n_points: int = 200, *, feature: Feature | None = None) -> OnAxis:
        """Give the density of one feature at places along its axis, for a plot.

        Parameters
        ----------
        n_points : int, default=200
            The number of places, evenly from the quantile at 0.001 to that at 0.999.
        feature : int or str, default=None
            The feature, by number, counted from 0, or by name; needed unless it is the only one.

        Returns
        -------
        axis : OnAxis
            The places, the density, the distribution function, and what each component has of the density.
        """
        return OnAxis(*self._of_one(feature).on_axis(count(n_points, "n_points")))


def _number(value: Any, feature: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"the value of feature {feature!r} is {reprlib.repr(value)}; give a number that float64 holds") from None
