"""The estimator."""

from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .. import _core
from .._arrays import Float64, Floats, Given, Measurements, Self, checked_weights, load, numbers_of, validated
from .._documentation import with_documentation_of
from .._estimator import GaussianMixture
from .._parameters import count
from .._reports import Start
from .._samples import ArraySamples, Samples

_X: TypeAlias = ArrayLike | Measurements
_Maybe: TypeAlias = ArrayLike | None


def measurements(X: Any, noise: Any = None, projection: Any = None) -> Any:
    """Return `Measurements`."""
    if isinstance(X, Measurements):
        return X
    if noise is None:
        raise TypeError("noise is missing; give the covariances of the samples' noise, or Measurements for X")
    return Measurements(X, noise, projection)


class _MeasuredSamples(ArraySamples):
    """Measurements of this process."""

    def __init__(self, estimator: Any, measured: Measurements, sample_weight: Any, labels: Any) -> None:
        super().__init__(estimator, measured.X, sample_weight, labels)
        self.measured = measured
        projection = self.noise[3]
        if projection is not None:
            if estimator.standardize:
                raise ValueError(
                    "standardize=True does not take projections; scale the true values, and multiply the projections by the scales"
                )
            # The features are the true values.
            self.shape = self.shape[0], projection.shape[2]
            estimator.n_features_in_ = self.shape[1]
            vars(estimator).pop("feature_names_in_", None)

    @property
    def noise(self) -> Given:
        return self.measured._given(self.shape[0], None if self.units is None else self.units.scale)

    def start(self, random_state: np.random.RandomState, total_weight: float) -> Start:
        if self.measured.projection is not None:
            # The engine guesses true values.
            return int(random_state.randint(0, 2**31 - 1))
        return super().start(random_state, total_weight)


@with_documentation_of(GaussianMixture)
class ExtremeDeconvolution(GaussianMixture):
    """A Gaussian mixture of the true values behind samples with known noise, fitted by expectation-maximisation.

    Attributes are those of :class:`gaussmix.GaussianMixture`. Wherever it takes samples, it takes
    :class:`Measurements` too.
    Parameters: **params : dict -- Those of :class:`gaussmix.GaussianMixture`.
    Examples:
    >>> import numpy as np
    >>> from gaussmix.deconvolution import ExtremeDeconvolution
    >>> rng = np.random.default_rng(0)
    >>> variances = rng.uniform(0.5, 1.5, (2000, 1))
    >>> X = rng.normal(5.0, 0.5, (2000, 1)) + rng.normal(0.0, np.sqrt(variances))
    >>> xd = ExtremeDeconvolution(1, tol=1e-6, max_iter=1000).fit(X, noise=variances)
    >>> float(X.var().round(1)), float(xd.covariances_[0, 0, 0].round(1))
    (1.2, 0.2)
    """

    def fit(
        self, X: _X, y: object = None, sample_weight: _Maybe = None, *, noise: Any = None, projection: _Maybe = None, labels: _Maybe = None
    ) -> Self:
        super().fit(measurements(X, noise, projection), None, sample_weight, labels=labels)
        return self

    def _samples(self, X: Any, sample_weight: Any, labels: Any = None) -> Samples:
        return _MeasuredSamples(self, measurements(X), sample_weight, labels)

    def _checked(self, measured: Measurements) -> tuple[Any, Given]:
        check_is_fitted(self)
        if measured.projection is None:
            x = validated(self, measured.X, reset=False)
        else:
            x = numbers_of(measured.X, "X", [np.float64, np.float32])
        return x, measured._given(x.shape[0])

    def _data(self, X: Any, sample_weight: Any = None) -> _core.Data:
        x, noise = self._checked(measurements(X))
        return load(self, x, checked_weights(sample_weight, x.shape[0]), original=X.X, noise=noise)

    def score_samples(self, X: _X, noise: Any = None, projection: _Maybe = None) -> Floats:
        return super().score_samples(measurements(X, noise, projection))

    def predict(self, X: _X, noise: Any = None, projection: _Maybe = None) -> NDArray[np.int64]:
        return super().predict(measurements(X, noise, projection))

    def predict_proba(self, X: _X, noise: Any = None, projection: _Maybe = None) -> Floats:
        return super().predict_proba(measurements(X, noise, projection))

    def score(self, X: _X, y: object = None, sample_weight: _Maybe = None, *, noise: Any = None, projection: _Maybe = None) -> float:
        return super().score(measurements(X, noise, projection), None, sample_weight)

    def denoise(self, X: _X, noise: Any = None, projection: _Maybe = None) -> tuple[Float64, Float64]:
        """Return the true values that are expected given the measured ones.
        Returns:
        values : ndarray of shape (n_samples, n_features) -- The expected true values, of missing ones too.
        covariances : ndarray of shape (n_samples, n_features, n_features) -- Those of the true values around them.
        """
        x, given = self._checked(measurements(X, noise, projection))
        return _core.denoise(x, self._mixture(), given, self.missing)

    def impute(self, X: Any, draws: int | None = None, random_state: Any = None) -> NoReturn:
        raise TypeError("impute knows no noise; denoise returns the expected true values, of missing ones too")

    def sample(self, n_samples: int = 1, noise: ArrayLike | None = None) -> tuple[Float64, NDArray[np.int64]]:
        """Draw true values, or with noise measurements.
        Parameters: noise : array-like, default=None -- The noise, in a shape of :class:`Measurements`.
        Returns:
        X : ndarray of shape (n_samples, n_features) -- The samples, ordered by component.
        y : ndarray of shape (n_samples,) -- The component of each.
        """
        random = check_random_state(self.random_state)
        X, y = self.mixture_.sample(n_samples, random)
        if noise is None:
            return X, y
        covariances, common, groups, _ = given = Measurements(X, noise)._given(count(n_samples, "n_samples"))
        # The engine checks the noise.
        _core.Data(X, device="cpu", noise=given)
        if covariances.ndim == 2 and not common:
            return X + random.standard_normal(X.shape) * np.sqrt(covariances), y
        values, vectors = np.linalg.eigh(covariances if groups is None else covariances[groups])
        factors = vectors * np.sqrt(np.maximum(values, 0.0))[..., np.newaxis, :]
        return X + (factors @ random.standard_normal(X.shape)[..., np.newaxis])[..., 0], y
