"""What a fitted mixture says of some of its features: alone, or given values of others."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._fitted import FittedMixture

if TYPE_CHECKING:
    from typing_extensions import Self

    from . import _core

    Feature = SupportsIndex | str

#: Parameters of an estimator that do not suit another number of components or features.
_OF_THE_SHAPE = ("n_components", "covariance_type", "weights_init", "means_init", "precisions_init")


class Parts(FittedMixture):
    """The methods of a fitted mixture that give another mixture of it."""

    def _another(self, mixture: _core.Mixture, features: Iterable[int] | None = None) -> Self:
        """Make a fitted mixture with the parameters of this one, and the names of these features or of all."""
        found: dict[str, Any] = {}
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            found["feature_names"] = names if features is None else [names[feature] for feature in features]
        params = self.get_params(deep=False)
        params = {name: value for name, value in params.items() if name not in _OF_THE_SHAPE}
        return type(self)._of(mixture, self.means_.dtype, found, params)

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
        try:
            number = operator.index(feature)
        except TypeError:
            raise TypeError(f"a feature is {feature!r}; give its name, or its number counted from 0") from None
        if not 0 <= number < n_features:
            raise ValueError(f"there is no feature {number} (counted from 0); the numbers are 0 to {n_features - 1}")
        return number

    def marginal(self, features: Feature | Sequence[Feature]) -> Self:
        """Give the distribution of some features alone.

        Parameters
        ----------
        features : int, str or sequence of int or str
            The features that stay, by number, counted from 0, or by name (``feature_names_in_``). They are in this
            order in the result.

        Returns
        -------
        gm : GaussianMixture
            The fitted mixture, of the same type of covariances, with the parameters of this estimator.
        """
        check_is_fitted(self)
        one = isinstance(features, (str, SupportsIndex)) and not isinstance(features, np.ndarray)
        chosen: Iterable[Any] = [features] if one else features  # type: ignore[assignment]
        numbers = [self._feature(feature) for feature in chosen]
        return self._another(self._mixture().marginal(numbers), numbers)

    def condition(self, given: Mapping[Any, float]) -> Self:
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
        values = [(self._feature(feature), float(value)) for feature, value in given.items()]
        known = {number for number, _ in values}
        rest = [number for number in range(self.means_.shape[1]) if number not in known]
        return self._another(self._mixture().condition(values), rest)
