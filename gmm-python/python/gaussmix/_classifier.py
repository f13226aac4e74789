"""The estimator `GaussianMixtureClassifier`: a mixture for each class."""

import warnings
from collections.abc import Mapping
from itertools import pairwise
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from . import _start
from ._arrays import Floats, Self, Weights, checked_weights, refuse_masked
from ._estimator import GaussianMixture
from ._fitting import note_regularization, take_features
from ._gpu import beside, on_host
from ._mixture import Mixture
from ._of_mixtures import OfMixtures, constraints, with_parameters
from ._parameters import set_parameters
from ._reports import all_or_nothing
from ._warnings import warn

#: Parameters of `GaussianMixture` that the classifier does not have, because the mixtures of the classes would share them.
_WITHOUT = ("weights_init", "means_init", "precisions_init", "warm_start", "decay", "callback")


@with_parameters(_WITHOUT)
class GaussianMixtureClassifier(ClassifierMixin, OfMixtures):  # type: ignore[misc]  # scikit-learn has no types
    """Classification by a Gaussian mixture for each class.

    The probability of a class is in proportion to its prior times the density of its mixture. The mixtures are those
    that :class:`GaussianMixture` fits to the samples of each class alone, with `standardize` in columns of which the
    samples of all classes have the variance 1; where the start is by 'kmeans', all are fitted in one call of the
    engine, small ones side by side. With one component for each class it is quadratic discriminant analysis.
    Parameters:
    n_components : int, array-like of shape (n_classes,) or dict, default=1
        The number of components of each mixture: one for all, or a number for each class in ascending order, or by
        class.
    priors : array-like of shape (n_classes,) or dict, default=None
        The probabilities of the classes in ascending order, or by class; by default their shares of the samples, by
        weight.
    **params : dict
        The parameters of :class:`GaussianMixture`, but for `weights_init`, `means_init`, `precisions_init`,
        `warm_start`, `decay` and `callback`.
    Attributes:
    classes_ : ndarray of shape (n_classes,) -- The classes in ascending order.
    priors_ : ndarray of shape (n_classes,) -- Their probabilities.
    mixtures_ : list of Mixture -- The mixture of each class.
    n_iter_ : ndarray of shape (n_classes,) -- The iterations of each fit.
    n_features_in_, feature_names_in_
    See Also:
    sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis : One Gaussian for each class.
    fit_many : A mixture for each of many groups.
    Examples:
    >>> import numpy as np
    >>> from gaussmix import GaussianMixtureClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 1)) + np.repeat([-6, 0, 0, 6], 100)[:, np.newaxis]
    >>> y = np.repeat(["outside", "inside", "inside", "outside"], 100)
    >>> classifier = GaussianMixtureClassifier({"inside": 1, "outside": 2}, random_state=0).fit(X, y)
    >>> classifier.predict([[-6], [0], [6]]).tolist()
    ['outside', 'inside', 'outside']
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **constraints(_WITHOUT),
        "n_components": [Interval(Integral, 1, None, closed="left"), "array-like", dict],
        "priors": ["array-like", dict, None],
    }
    #: The fitted estimators of the mixtures.
    _gms: list[GaussianMixture]

    def __init__(
        self, n_components: int | ArrayLike | Mapping[Any, int] = 1, *, priors: ArrayLike | Mapping[Any, float] | None = None, **params: Any
    ) -> None:
        set_parameters(self, locals(), GaussianMixtureClassifier.__init__)

    @property
    def mixtures_(self) -> list[Mixture]:
        """The mixture of each class."""
        check_is_fitted(self)
        return [gm.mixture_ for gm in self._gms]

    @all_or_nothing
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the mixture of each class.
        Parameters: y : array-like of shape (n_samples,) -- The class of each sample.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None: give the class of each sample")
        x: Floats = on_host(self._checked(X, reset=True))
        refuse_masked(y, "y")
        y = column_or_1d(on_host(y), warn=True)
        check_classification_targets(y)
        check_consistent_length(x, y)
        weights = checked_weights(sample_weight, x.shape[0])
        self.classes_, codes = np.unique(y, return_inverse=True)
        priors = None if self.priors is None else self._given_priors()
        mixtures = [self._unfitted(n_components=k) for k in self._numbers_of_components()]
        # The samples of a class follow each other.
        order = np.argsort(codes, kind="stable")
        ranges = list(pairwise([0, *np.cumsum(np.bincount(codes)).tolist()]))
        with self._task(X, y, sample_weight):
            self._fit_each(mixtures, x[order], None if weights is None else weights[order], ranges)
            for gm in mixtures:
                take_features(gm, self)
            counts = np.bincount(codes, weights)
            self.priors_ = counts / counts.sum() if priors is None else priors
            self._gms, self.n_iter_ = mixtures, np.array([gm.n_iter_ for gm in mixtures])
        going_on = [label for label, gm in zip(self.classes_.tolist(), mixtures, strict=True) if not gm.converged_]
        if going_on and mixtures[0].max_iter > 0:
            warn(
                f"the mixture of class {going_on[0]!r}{' and of others' * (len(going_on) > 1)} did not converge. Try to "
                "increase max_iter or tol.",
                ConvergenceWarning,
            )
        return self

    def _given_priors(self) -> NDArray[np.float64]:
        priors = np.asarray(self._of_each_class("priors", self.priors), dtype=np.float64)
        if priors.shape != self.classes_.shape:
            raise ValueError(f"priors has the shape {priors.shape}; there are {len(self.classes_)} classes")
        if not (priors >= 0).all() or abs(priors.sum() - 1) > 1e-6:
            raise ValueError("priors must be probabilities, which sum to 1")
        return priors / priors.sum()

    def _of_each_class(self, name: str, given: Any) -> Any:
        """Return the values of a parameter that may be given by class, in the order of the classes."""
        if not isinstance(given, Mapping):
            return given
        labels = self.classes_.tolist()
        without = [label for label in labels if label not in given]
        unknown = [label for label in given if label not in labels]
        if without or unknown:
            of = f"no number for class {without[0]!r}" if without else f"the class {unknown[0]!r}, which no sample has"
            raise ValueError(f"{name} has {of}; the classes are {labels}")
        return [given[label] for label in labels]

    def _numbers_of_components(self) -> list[Any]:
        given, labels = self.n_components, self.classes_.tolist()
        if isinstance(given, Integral):
            return [given] * len(labels)
        numbers = np.asarray(self._of_each_class("n_components", given)).tolist()
        if not isinstance(numbers, list) or len(numbers) != len(labels):
            raise ValueError(f"n_components is {given!r}; give one number, or one for each of the {len(labels)} classes")
        return numbers

    def _fit_each(self, mixtures: list[GaussianMixture], x: Floats, weights: Weights, ranges: list[tuple[int, int]]) -> None:
        first, fits = mixtures[0], None
        for gm in mixtures:
            gm._validate_params()
        # Those of all classes: of one class a column may be constant.
        units = self._units(x, weights)
        if _start.is_side_by_side(x, first):
            fits = _start.fit_many(x if units is None else units.apply(x), ranges, weights, mixtures)
            if fits.error is not None:
                raise fits.error
        for number, (label, gm, (begin, end)) in enumerate(zip(self.classes_.tolist(), mixtures, ranges, strict=True)):
            try:
                if fits is not None:
                    fit = fits[number]
                    note_regularization(self, fit.mixture.over_regularized(gm.reg_covar), f" in class {label!r}")
                    gm._keep(fit if units is None else fit.restored(units), x.dtype)
                    continue
                with warnings.catch_warnings():
                    # `fit` says for which classes it has not converged.
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    self._fit_mixture(gm, x[begin:end], None if weights is None else weights[begin:end], units)
            except ValueError as error:
                raise ValueError(f"there is no mixture of class {label!r}: {error}") from error

    def _joint(self, X: Any) -> Floats:
        """Return the logarithm of the prior times the density, for each class."""
        x = self._checked(X, reset=False)
        data = self._load(x, X)
        scores = np.stack([data.scores(gm._mixture()) for gm in self._gms], axis=1)
        # A sample that no class reaches has what is known without it.
        scores[np.isneginf(scores).all(axis=1)] = 0.0
        with np.errstate(divide="ignore"):
            scores += np.log(on_host(self.priors_))
        narrow = all(gm._value_type(x.dtype) == np.float32 for gm in self._gms)
        return scores.astype(np.float32) if narrow else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each sample, (n_samples,)."""
        joint = self._joint(X)
        return beside(self.classes_[joint.argmax(axis=1)], X)

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Return the logarithm of the probability of each class for each sample, (n_samples, n_classes), in the order of `classes_`."""
        return beside(log_softmax(self._joint(X), axis=1), X)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each class for each sample, (n_samples, n_classes), in the order of `classes_`."""
        return beside(softmax(self._joint(X), axis=1), X)
