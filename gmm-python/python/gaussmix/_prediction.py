"""What a fitted mixture says of samples, and samples that it draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _arrays, _core
from ._arrays import Floats, checked_weights, load, n_threads, validated
from ._documentation import documented
from ._fitted import Fitted
from ._gpu import beside
from ._parameters import count


@documented
class Prediction(Fitted):
    """The methods of a fitted mixture that evaluate samples, or draw them."""

    device: str
    n_jobs: int | None
    reproducible: bool = False
    random_state: int | np.random.RandomState | None

    def _data(self, X: Any, sample_weight: Any = None) -> _core.Data:
        """Bring samples to the device, for a fitted mixture."""
        given, threads = X, n_threads(self.n_jobs)
        if not self._takes(X):
            check_is_fitted(self)
            X = validated(self, X, reset=False)
        if sample_weight is not None:
            sample_weight = checked_weights(sample_weight, X.shape[0])
        return load(self, X, sample_weight, device=self.device, threads=threads, original=given)

    def _value_type(self, dtype: Any) -> np.dtype[Any]:
        """Return the type of values per sample of samples of a type: that of the arithmetic in scikit-learn."""
        return np.dtype(np.float32 if dtype == np.float32 and self._type() == np.float32 else np.float64)

    def _typed(self, data: _core.Data, values: NDArray[np.float64], X: Any) -> Floats:
        # A sample so far away that its log-likelihood is no float32 has -inf, without a warning.
        with np.errstate(over="ignore"):
            typed: Floats = values.astype(self._value_type(data.dtype), copy=False)
        return beside(typed, X)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable component of each sample.
        Parameters: X
        Returns: labels : ndarray of shape (n_samples,) -- The components, counted from 0; -1 for noise.
        """
        check_is_fitted(self)
        return beside(self._data(X).labels(self._mixture()), X)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each component for each sample.
        Parameters: X
        Returns: resp : ndarray of shape (n_samples, n_components) -- The probabilities, which sum to 1 for each sample.
        """
        check_is_fitted(self)
        data = self._data(X)
        return self._typed(data, data.responsibilities(self._mixture()), X)

    def score_samples(self, X: ArrayLike) -> Floats:
        """Return the log-likelihood of each sample.
        Parameters: X
        Returns: log_prob : ndarray of shape (n_samples,) -- The logarithms of the density.
        """
        check_is_fitted(self)
        data = self._data(X)
        return self._typed(data, data.scores(self._mixture()) + self._log_factor(), X)

    def score(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the mean log-likelihood of a sample.
        Parameters: X, y, sample_weight
        Returns: log_likelihood : float -- The mean, by weight.
        """
        if not hasattr(self, "means_"):
            check_is_fitted(self)
        if sample_weight is None and not self.reproducible and self._takes(X):
            try:
                threads, missing = n_threads(self.n_jobs), _arrays.takes_missing(self)
                mean = _core.mean_score(X, self._mixture(), self.device, threads, _arrays.MEMORY, missing)
                return mean + self._log_factor()
            except _core.NonFiniteError as error:
                _arrays.refuse_non_finite(self, X, error)
                raise
        return self._data(X, sample_weight).mean_score(self._mixture()) + self._log_factor()

    def impute(self, X: ArrayLike, draws: int | None = None, random_state: int | np.random.RandomState | None = None) -> Floats:
        """Fill in missing values.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The samples, with NaN where a value is missing.
        draws : int or None, default=None
            For multiple imputation: how many times the missing values are drawn from their distribution given the
            observed values of their sample. By default they are replaced by the means of that distribution, which
            vary less than the data does.
        random_state
        Returns:
        X : ndarray of shape (n_samples, n_features) or (draws, n_samples, n_features)
            The samples without gaps, in their own type; what is observed is as it was.
        """
        check_is_fitted(self)
        x: Floats = validate_data(
            self,
            _arrays.na_as_nan(_arrays.copied_from_gpu(X, type(self).__name__)),
            reset=False,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
        )
        seed = 0
        if draws is not None:
            draws = count(draws, "draws")
            seed = int(check_random_state(random_state).randint(0, 2**31 - 1))
        x = np.asarray(x, dtype=x.dtype.newbyteorder("="))
        return beside(_core.impute(x, self._mixture(), draws, seed).astype(x.dtype, copy=False), X)

    def sample(self, n_samples: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw samples: those that scikit-learn draws for the same `random_state`.
        Parameters: n_samples : int, default=1 -- How many.
        Returns:
        X : ndarray of shape (n_samples, n_features) -- The samples, ordered by component.
        y : ndarray of shape (n_samples,) -- The component of each.
        """
        X, y = self.mixture_.sample(n_samples, self.random_state)
        return beside(X, self.means_), beside(y, self.means_)
