"""The estimator `GaussianMixtureOutlierDetector`: samples where a mixture has a small density."""

import math
from copy import copy
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import OutlierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from . import _core
from ._arrays import Floats, Self, Weights, checked_weights
from ._estimator import GaussianMixture
from ._fitting import take_features
from ._gpu import beside, on_host
from ._of_mixtures import OfOneMixture, constraints, with_parameters
from ._parameters import seed_of, set_parameters
from ._reports import all_or_nothing

#: Parameters of `GaussianMixture` that the detector does not have. It has no `partial_fit`; and the density of a sample of which
#: values are missing is that of fewer features, which compares with no threshold for complete samples.
_WITHOUT = ("decay", "missing")
#: The share that 'auto' stands for.
_AUTO = 0.01
#: So many samples are drawn to find a quantile of the mixture's own distribution, or more, such that so many lie below it, but
#: not more than the last number.
_DRAWS, _BELOW, _MOST_DRAWS = 100_000, 1000, 10_000_000
#: The numbers of the samples that are drawn at a time.
_AT_ONCE = 1 << 22


@with_parameters(_WITHOUT)
class GaussianMixtureOutlierDetector(OutlierMixin, OfOneMixture):  # type: ignore[misc]  # scikit-learn has no types
    """Outliers: samples where a Gaussian mixture has a small density.

    A mixture is fitted to the samples, outliers among them, and a threshold is set for its log density: by the samples,
    of which a given share is to lie below it, or by the mixture, of whose own samples a given share would.
    Parameters:
    contamination : 'auto' or float, default=0.1
        The share of outliers, above 0 and at most 0.5. 'auto', where it is not known, is 0.01 with
        ``threshold='mixture'``; but unless that is given, a threshold with which no sample of the fit is an outlier
        is raised until the one of the least density is.
    threshold : {'samples', 'mixture'}, default='samples'
        What the share is of. 'samples': of those of the fit, by weight, where there are outliers then, whatever the
        samples are. 'mixture': of samples that are drawn from the mixture, which is how often a sample that follows
        it is called an outlier; among the samples of the fit there may be more outliers, or none. The quantile is
        that of 100,000 draws, or of more for a share below 0.01.
    **params : dict -- The parameters of :class:`GaussianMixture`, but for `decay` and `missing`.
    Attributes:
    mixture_ : Mixture -- The mixture.
    offset_ : float -- The threshold: samples of a smaller log density are outliers.
    n_iter_ : int -- The iterations of the fit.
    n_features_in_, feature_names_in_
    See Also:
    sklearn.ensemble.IsolationForest : Outliers by random trees.
    sklearn.covariance.EllipticEnvelope : Outliers of one robust Gaussian.
    Examples:
    >>> import numpy as np
    >>> from gaussmix import GaussianMixtureOutlierDetector
    >>> X = np.random.default_rng(0).normal(size=(500, 2)) + [[-5, 0], [5, 0]] * 250
    >>> detector = GaussianMixtureOutlierDetector(2, contamination="auto", random_state=0).fit(X)
    >>> detector.predict([[-5, 1], [0, 0], [5, 0]])
    array([ 1, -1,  1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **constraints(_WITHOUT),
        "contamination": [StrOptions({"auto"}), Interval(Real, 0.0, 0.5, closed="right")],
        "threshold": [StrOptions({"samples", "mixture"})],
    }

    def __init__(self, n_components: int = 1, *, contamination: str | float = 0.1, threshold: str = "samples", **params: Any) -> None:
        set_parameters(self, locals(), GaussianMixtureOutlierDetector.__init__)

    @all_or_nothing
    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the mixture, and set the threshold."""
        x = self._checked(X, reset=True)
        weights = checked_weights(sample_weight, x.shape[0])
        units = None
        if self.standardize:
            x = on_host(x)
            units = self._units(x, weights)
        self._gm = self._to_be_fitted()
        with self._task(X, y, sample_weight, lambda gm: vars(copy(self)._set(gm, x, X, weights))) as task:
            self._fit_mixture(self._gm, x, weights, units, task)
            return self._set(self._gm, x, X, weights)

    def _set(self, gm: GaussianMixture, x: Floats | _core.GpuArray, X: Any, weights: Weights) -> Self:
        """Set the mixture, and the threshold."""
        self._gm = gm
        take_features(gm, self)
        self.n_iter_ = gm.n_iter_
        share = _AUTO if isinstance(self.contamination, str) else float(self.contamination)
        by_mixture, auto = self.threshold == "mixture", self.contamination == "auto"
        self.offset_ = _threshold(self._scores_of_draws(share), None, share) if by_mixture or auto else -math.inf
        if not by_mixture:
            scores = self._scores(x, X)
            if auto:
                scores, weights = scores[slice(None) if weights is None else weights > 0], None
                share = 1 / len(scores)
            self.offset_ = max(self.offset_, _threshold(scores, weights, share))
        return self

    def _scores(self, x: Floats | _core.GpuArray, X: Any) -> Floats:
        return self._gm._typed("scores", self._load(x, X).scores(self._gm._mixture()), x.dtype)

    def _scores_of_draws(self, share: float) -> NDArray[np.float64]:
        """Return the log densities of samples that are drawn from the mixture."""
        mixture, random_state = self._gm._mixture(), check_random_state(self.random_state)
        n = min(max(_DRAWS, math.ceil(_BELOW / share)), _MOST_DRAWS)
        step = max(1, _AT_ONCE // self.n_features_in_)
        parts = []
        for first in range(0, n, step):
            draws, _ = mixture.sample(min(step, n - first), seed_of(random_state))
            parts.append(self._load(draws, draws).scores(mixture))
        return np.concatenate(parts)

    def score_samples(self, X: ArrayLike) -> Floats:
        """Return the log density of each sample, (n_samples,)."""
        return beside(self._scores(self._checked(X, reset=False), X), X)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the log density of each sample above the threshold, (n_samples,), below 0 for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return which samples are outliers, (n_samples,): -1 for outliers, 1 for the others."""
        x = self._checked(X, reset=False)
        return beside(np.where(self._scores(x, X) < self.offset_, -1, 1).astype(np.int64, copy=False), X)


def _threshold(scores: Floats, weights: Weights, share: float) -> float:
    """Return the threshold below which a share of the samples lies: half way between two, so that rounding puts none on the other side."""
    if weights is not None:
        scores, weights = scores[weights > 0], weights[weights > 0]
    order = np.argsort(scores)
    below = np.cumsum(np.ones(len(order)) if weights is None else weights[order])
    # A little more, because the product may be rounded down.
    number = int(np.searchsorted(below, share * below[-1] * (1 + 1e-9), side="right"))
    inlier = float(scores[order[number]])
    # Equal samples are on the same side, also where rounding differs.
    rounding = 64 * float(np.finfo(scores.dtype).eps) * max(1.0, abs(inlier))
    outliers = scores[scores < inlier - rounding]
    middle = (float(outliers.max()) + inlier) / 2 if len(outliers) else inlier - rounding
    return middle if math.isfinite(middle) else inlier
