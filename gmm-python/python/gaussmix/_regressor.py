"""The estimator `GaussianMixtureRegressor`: targets given features, under a mixture of both."""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import check_consistent_length

from . import _core
from ._arrays import Floats, Self, checked_weights, n_threads, numbers_of, refusing_non_finite
from ._gpu import beside, on_host
from ._of_mixtures import OfOneMixture, constraints, with_parameters
from ._parameters import count, seed_of, set_parameters
from ._reports import all_or_nothing

#: The parameter of `GaussianMixture` that the regressor does not have, because it has no `partial_fit`.
_WITHOUT = ("decay",)
_Result = TypeVar("_Result")


@with_parameters(_WITHOUT)
class GaussianMixtureRegressor(RegressorMixin, OfOneMixture):  # type: ignore[misc]  # scikit-learn has no types
    """Regression by a Gaussian mixture of features and targets.

    A mixture is fitted to the samples of both, side by side. Given features, the targets have a mixture of as many
    Gaussians, whose weights and means depend on the features: `predict` gives its mean and deviation, `sample_y` draws
    from it and `log_prob` is its density. With 'full' and 'tied' covariances each component is a linear regression.
    'diag' and 'spherical' ones know of features and targets only that they have the same components.
    Parameters:
    n_components : int, default=1 -- The number of components. One is linear regression.
    means_init : array-like of shape (n_components, n_features + n_targets), default=None
        The means to start with, of the features and then of the targets.
    precisions_init : array-like, default=None
        The precisions (inverse covariances) to start with, of features and targets, in the shape of the
        covariances.
    missing : bool, default=False
        Whether NaN stands for a value that is missing at random, instead of being an error. A fit learns from
        samples without targets too; `predict` uses the features that a sample has.
    **params : dict -- The other parameters of :class:`GaussianMixture`, but for `decay`.
    Attributes:
    mixture_ : Mixture -- The mixture of features and targets, in this order.
    n_iter_ : int -- The iterations of the fit.
    n_targets_ : int -- The number of targets.
    n_features_in_, feature_names_in_
    See Also:
    sklearn.gaussian_process.GaussianProcessRegressor : Regression with methods of the same names.
    Examples:
    >>> import numpy as np
    >>> from gaussmix import GaussianMixtureRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(2000, 1))
    >>> y = np.abs(X[:, 0]) + rng.normal(0, 0.1, 2000)
    >>> regressor = GaussianMixtureRegressor(2, random_state=0).fit(X, y)
    >>> mean, deviation = regressor.predict([[-2], [2]], return_std=True)
    >>> mean.round(1), deviation.round(1)
    (array([2., 2.]), array([0.1, 0.1]))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = constraints(_WITHOUT)
    #: Whether the targets were an array of one dimension.
    _one_dimension: bool
    missing: bool
    #: What has been made of the mixture: the distribution of the targets given the features.
    _made: tuple[_core.Mixture, _core.Regression] | None = None

    def __init__(self, n_components: int = 1, **params: Any) -> None:
        set_parameters(self, locals(), GaussianMixtureRegressor.__init__)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @all_or_nothing
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the mixture.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The features.
        y : array-like of shape (n_samples,) or (n_samples, n_targets) -- The targets.
        """
        x: Floats = on_host(self._checked(X, reset=True))
        targets = self._targets(y, x)
        self._one_dimension = targets.ndim == 1
        both = np.column_stack([x, targets.astype(x.dtype, copy=False)])
        weights, self._gm = checked_weights(sample_weight, x.shape[0]), self._to_be_fitted()
        self.n_targets_ = both.shape[1] - x.shape[1]
        with self._task(X, y, sample_weight, lambda gm: {"_gm": gm, "n_iter_": gm.n_iter_}) as task:
            self._fit_mixture(self._gm, both, weights, self._units(both, weights), task)
            self.n_iter_ = self._gm.n_iter_
            self._regression()
        return self

    def _targets(self, y: Any, x: Floats) -> Floats:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None: give the targets of each sample")
        targets: Floats = numbers_of(y, "y", [np.float64, np.float32], "allow-nan" if self.missing else True, ensure_2d=False)
        check_consistent_length(x, targets)
        return targets

    def _regression(self) -> _core.Regression:
        """Return the distribution of the targets given the features, which is kept."""
        mixture = self._gm._mixture()
        if self._made is None or self._made[0] is not mixture:
            d = self.n_features_in_
            self._made = mixture, _core.Regression(mixture, range(d), range(d, d + self.n_targets_))
        return self._made[1]

    def _evaluate(self, evaluate: Callable[..., _Result], X: Any, x: Floats, *arguments: Any) -> _Result:
        """Have the engine evaluate the checked samples; ``X`` is what the caller gave."""
        with refusing_non_finite(X, self):
            return evaluate(x, *arguments, threads=n_threads(self.n_jobs), missing=self.missing)

    def predict(self, X: ArrayLike, return_std: bool = False, return_cov: bool = False) -> Floats | tuple[Floats, Floats]:
        """Return the mean of the targets given the features, and how they vary about it.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The features.
        return_std : bool, default=False -- Whether to give the standard deviations too.
        return_cov : bool, default=False -- Whether to give the covariances too, instead of standard deviations.
        Returns:
        y_mean : ndarray of shape (n_samples,) or (n_samples, n_targets) -- The means.
        y_std : ndarray of shape (n_samples,) or (n_samples, n_targets)
            The standard deviations, by the law of total variance; only with `return_std`.
        y_cov : ndarray of shape (n_samples, n_targets, n_targets) -- The covariance of the targets of each sample; only with `return_cov`.
        """
        if return_std and return_cov:
            raise ValueError("At most one of return_std or return_cov can be requested.")
        x: Floats = on_host(self._checked(X, reset=False))
        dtype, spread = self._gm._value_type(x.dtype), "std" if return_std else "cov" if return_cov else None
        mean, varies = self._evaluate(self._regression().predict, X, x, spread)
        y_mean = beside(self._shaped(mean.astype(dtype, copy=False)), X)
        if varies is None:
            return y_mean
        varies = varies.astype(dtype, copy=False)
        return y_mean, beside(self._shaped(varies) if return_std else varies, X)

    def _shaped(self, values: Floats) -> Floats:
        """Return values of the targets in the shape that the targets had."""
        return values[:, 0] if self._one_dimension else values

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0) -> Floats:
        """Return draws of the targets given the features, (n_samples_X, n_samples) or (n_samples_X, n_targets, n_samples).
        Parameters:
        X : array-like of shape (n_samples_X, n_features) -- The features.
        n_samples : int, default=1 -- How many draws for each sample.
        random_state : int, RandomState instance or None, default=0 -- The source of random numbers.
        """
        n_samples = count(n_samples, "n_samples", least=0)
        x: Floats = on_host(self._checked(X, reset=False))
        draws = self._evaluate(self._regression().sample, X, x, n_samples, seed_of(random_state))
        y: Floats = draws.swapaxes(1, 2).astype(self._gm._value_type(x.dtype), order="C")
        return beside(self._shaped(y), X)

    def log_prob(self, X: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """Return the log density of targets given the features, (n_samples,), in float64.
        Parameters:
        X : array-like of shape (n_samples, n_features) -- The features.
        y : array-like of shape (n_samples,) or (n_samples, n_targets) -- The targets.
        """
        x: Floats = on_host(self._checked(X, reset=False))
        targets = self._targets(y, x).reshape(len(x), -1)
        t = self.n_targets_
        if targets.shape[1] != t:
            raise ValueError(f"y has {targets.shape[1]} targets, but {type(self).__name__} was fitted to {t}")
        return beside(self._evaluate(self._regression().log_density, X, x, targets), X)
