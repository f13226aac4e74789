"""The estimator `GaussianMixtureRegressor`: targets given features, under a mixture of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin, _fit_context
from sklearn.utils import check_array, check_consistent_length, check_random_state

from . import _core
from ._arrays import Floats, checked_weights, n_threads, na_as_nan
from ._conditional import Conditional
from ._documentation import documented, with_documentation_of
from ._estimator import GaussianMixture
from ._gpu import on_host
from ._of_mixtures import OfOneMixture, constraints, with_parameters
from ._parameters import count

if TYPE_CHECKING:
    from typing_extensions import Self

#: The parameter of `GaussianMixture` that the regressor does not have, because it has no `partial_fit`.
_WITHOUT = ("decay",)
#: The numbers of the rows that are computed with at a time.
_AT_ONCE = 1 << 21
#: So many rows are worth a second thread.
_MANY = 20_000
#: Of a log density below this, differences lose more than 1e-8.
_FAR = -1e8
#: Rows, the targets' distribution given the features that they have, and those features.
_Part = tuple[Any, Conditional, Floats]


@with_documentation_of(GaussianMixture)
@documented
class GaussianMixtureRegressor(RegressorMixin, OfOneMixture):  # type: ignore[misc]  # scikit-learn has no types
    """Regression by a Gaussian mixture of features and targets.

    A mixture is fitted to the samples of both, side by side. Given features, the targets have a
    mixture of as many Gaussians, whose weights and means depend on the features: `predict` gives
    its mean and deviation, `sample_y` draws from it and `log_prob` is its density. With 'full' and
    'tied' covariances each component is a linear regression. 'diag' and 'spherical' ones know of
    features and targets only that they have the same components.

    Parameters:
    n_components : int, default=1 -- The number of components. One is linear regression.
    weights_init : array-like of shape (n_components,), default=None -- The weights to start with.
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

    See Also
    --------
    sklearn.gaussian_process.GaussianProcessRegressor : Regression with methods of the same names.

    Examples
    --------
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
    n_iter_: int
    n_targets_: int
    #: Whether the targets were an array of one dimension.
    _one_dimension: bool
    missing: bool
    #: What has been made of the mixture: the distribution of the targets given all features.
    _made: tuple[_core.Mixture, Conditional] | None = None

    @with_parameters(_WITHOUT)
    def __init__(self, n_components: int = 1, **params: Any) -> None:
        super().__init__(n_components, **params)

    def __sklearn_tags__(self) -> Any:
        """Say what the estimator takes."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the mixture.

        Parameters:
        X : array-like of shape (n_samples, n_features) -- The features.
        y : array-like of shape (n_samples,) or (n_samples, n_targets) -- The targets.
        sample_weight
        Returns: self : object -- The fitted regressor.
        """
        x: Floats = on_host(self._checked(X, reset=True))
        targets = self._targets(y, x)
        self._one_dimension = targets.ndim == 1
        both = np.column_stack([x, targets.astype(x.dtype, copy=False)])
        weights, self._gm = checked_weights(sample_weight, x.shape[0]), self._to_be_fitted()
        self._fit_mixture(self._gm, both, weights, self._units(both, weights))
        self.n_iter_, self.n_targets_ = self._gm.n_iter_, both.shape[1] - x.shape[1]
        self._given_all(self._gm._mixture())
        return self

    def _targets(self, y: Any, x: Floats) -> Floats:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: give the targets of each sample"
            )
        targets: Floats = check_array(
            na_as_nan(on_host(y)),
            dtype=[np.float64, np.float32],
            ensure_2d=False,
            ensure_all_finite="allow-nan" if self.missing else True,
            input_name="y",
        )
        check_consistent_length(x, targets)
        return targets

    def _loader(self, x: Floats, X: Any) -> Callable[[Floats], _core.Data]:
        """Return what brings a part of the checked samples to the device; ``X`` is what the caller gave."""
        threads = n_threads(self.n_jobs)

        def load(part: Floats) -> _core.Data:
            try:
                return _core.Data(part, device=self.device, threads=threads, missing=self.missing)
            except _core.NonFiniteError:
                # Its rows and columns are those of the part; of all samples they are the caller's.
                self._load(x, X)
                raise

        return load

    def _given_all(self, mixture: _core.Mixture) -> Conditional:
        """Return the distribution of the targets given all features, which is kept."""
        if self._made is None or self._made[0] is not mixture:
            self._made = mixture, self._given(mixture, np.ones(self.n_features_in_, dtype=bool))
        return self._made[1]

    def _given(self, mixture: _core.Mixture, observed: NDArray[np.bool_]) -> Conditional:
        d = self.n_features_in_
        return Conditional(mixture, np.flatnonzero(observed), np.arange(d, d + self.n_targets_))

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        # It is made anew.
        state.pop("_made", None)
        return state

    def _parts(self, x: Floats, numbers: int) -> Iterator[_Part]:
        """Return rows, the targets' distribution given the features that they have, and those features.

        Of each row there are so many numbers to be computed.
        """
        mixture, d = self._gm._mixture(), self.n_features_in_
        made: dict[bytes, Conditional] = {}
        k, t = len(mixture.weights), self.n_targets_
        step = max(1, _AT_ONCE // (d + k * (t + 1) + numbers))
        for first in range(0, len(x), step):
            block = x[first : first + step]
            absent = np.isnan(block) if self.missing else None
            if absent is None or not absent.any():
                yield slice(first, first + step), self._given_all(mixture), block
                continue
            patterns, of_rows = np.unique(absent, axis=0, return_inverse=True)
            for number, pattern in enumerate(patterns):
                rows, name = np.flatnonzero(of_rows == number), pattern.tobytes()
                if name not in made:
                    made[name] = self._given(mixture, ~pattern)
                yield first + rows, made[name], block[rows][:, ~pattern]

    def predict(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False
    ) -> Floats | tuple[Floats, Floats]:
        """Return the mean of the targets given the features, and how they vary about it.

        Parameters:
        X : array-like of shape (n_samples, n_features) -- The features.
        return_std : bool, default=False -- Whether to give the standard deviations too.
        return_cov : bool, default=False -- Whether to give the covariances too, instead of standard deviations.
        Returns:
        y_mean : ndarray of shape (n_samples,) or (n_samples, n_targets) -- The means.
        y_std : ndarray of shape (n_samples,) or (n_samples, n_targets)
            The standard deviations, by the law of total variance; only with `return_std`.
        y_cov : ndarray of shape (n_samples, n_targets, n_targets)
            The covariance of the targets of each sample; only with `return_cov`.
        """
        if return_std and return_cov:
            raise ValueError("At most one of return_std or return_cov can be requested.")
        x: Floats = on_host(self._checked(X, reset=False))
        n, t, load = len(x), self.n_targets_, self._loader(x, X)
        dtype = self._gm._value_type(x.dtype)
        y_mean = np.empty((n, t), dtype)
        spread = np.empty((n, t) if return_std else (n, t, t), dtype) if return_std or return_cov else None

        def work(part: _Part) -> None:
            rows, conditional, given = part
            shares, means = conditional.responsibilities(given, load), conditional.means(given)
            mean = np.einsum("nk,nkt->nt", shares, means)
            y_mean[rows] = mean
            if spread is None:
                return
            # The variance is the mean of the components' variances and the variance of their means.
            covariances, deviations = conditional.covariances(), means - mean[:, np.newaxis]
            if return_std:
                squares = np.square(deviations, out=deviations)
                squares += np.diagonal(covariances, axis1=1, axis2=2)
                spread[rows] = np.sqrt(np.einsum("nk,nkt->nt", shares, squares))
            else:
                weighted = deviations * shares[:, :, np.newaxis]
                spread[rows] = np.einsum("nk,ktu->ntu", shares, covariances) + weighted.swapaxes(1, 2) @ deviations

        parts = self._parts(x, t**2 if return_cov else 0)
        if n < _MANY or n_threads(self.n_jobs) == 1:
            for part in parts:
                work(part)
        else:
            _in_two_threads(work, parts)
        if spread is None:
            return self._shaped(y_mean)
        return self._shaped(y_mean), self._shaped(spread) if return_std else spread

    def _shaped(self, values: Floats) -> Floats:
        """Return values of the targets in the shape that the targets had."""
        return values[:, 0] if self._one_dimension else values

    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> Floats:
        """Draw targets given the features.

        Parameters:
        X : array-like of shape (n_samples_X, n_features) -- The features.
        n_samples : int, default=1 -- How many draws for each sample.
        random_state : int, RandomState instance or None, default=0 -- The source of random numbers.
        Returns:
        y_samples : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_targets, n_samples) -- The draws.
        """
        n_samples = count(n_samples, "n_samples", least=0)
        x: Floats = on_host(self._checked(X, reset=False))
        rng, t, load = check_random_state(random_state), self.n_targets_, self._loader(x, X)
        k = len(self._gm.weights_)
        _core.check_memory("the draws", (len(x), t, n_samples), 8, "draw fewer at a time")
        y = np.empty((len(x), t, n_samples), self._gm._value_type(x.dtype))
        for rows, conditional, given in self._parts(x, n_samples * (k + t**2 + 3 * t)):
            shares, means = conditional.responsibilities(given, load), conditional.means(given)
            uniforms = rng.random_sample((len(given), n_samples, 1))
            components = (uniforms > np.cumsum(shares, axis=1)[:, np.newaxis, :-1]).sum(axis=2)
            normals = rng.standard_normal((len(given), n_samples, t, 1))
            factors = np.broadcast_to(conditional.factors, (k, t, t))[components]
            draws = means[np.arange(len(given))[:, np.newaxis], components] + (factors @ normals)[..., 0]
            y[rows] = draws.swapaxes(1, 2)
        return y[:, 0] if self._one_dimension else y

    def log_prob(self, X: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """Return the log density of targets given the features.

        Parameters:
        X : array-like of shape (n_samples, n_features) -- The features.
        y : array-like of shape (n_samples,) or (n_samples, n_targets) -- The targets.
        Returns: log_prob : ndarray of shape (n_samples,) -- The logarithms of the density, in float64.
        """
        x: Floats = on_host(self._checked(X, reset=False))
        targets = self._targets(y, x).reshape(len(x), -1)
        d, t = self.n_features_in_, self.n_targets_
        if targets.shape[1] != t:
            raise ValueError(f"y has {targets.shape[1]} targets, but {type(self).__name__} was fitted to {t}")
        mixture, load = self._gm._mixture(), self._loader(x, X)
        conditional = self._given_all(mixture)
        marginal = conditional.marginal
        assert marginal is not None  # There is at least one feature.
        log_prob = np.empty(len(x))
        step = max(1, _AT_ONCE // (d + t))
        for first in range(0, len(x), step):
            rows = slice(first, first + step)
            both = np.column_stack([x[rows], targets[rows]]).astype(np.float64, copy=False)
            of_x, of_both = load(both[:, :d]).scores(marginal), load(both).scores(mixture)
            far = ~(of_x > _FAR)
            log_prob[rows][~far] = of_both[~far] - of_x[~far]
            if far.any():
                log_prob[rows][far] = conditional.log_density(both[far, :d], both[far, d:], load)
        return log_prob


def _in_two_threads(work: Callable[[_Part], None], parts: Iterator[_Part]) -> None:
    """Do the work of each part: what NumPy does of one, while the engine does its own of another."""
    lock, ended = Lock(), Event()

    def take() -> None:
        while True:
            with lock:
                part = None if ended.is_set() else next(parts, None)
            if part is None:
                return
            try:
                work(part)
            except BaseException:
                ended.set()
                raise

    with ThreadPoolExecutor(2) as pool:
        try:
            for future in [pool.submit(take), pool.submit(take)]:
                future.result()
        finally:
            # After Ctrl-C too, which reaches this thread.
            ended.set()
