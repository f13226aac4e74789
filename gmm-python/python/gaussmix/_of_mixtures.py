"""What the estimators have in common that fit Gaussian mixtures for another task: outliers, classification, regression."""

from collections.abc import Collection
from copy import copy
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from . import _core, _parameters
from ._arrays import Floats, Weights, load, validated
from ._documentation import with_parameters_of
from ._estimator import GaussianMixture
from ._mixture import AnyMixture, Mixture, mixture_of
from ._reports import Estimator, Task
from ._samples import ArraySamples
from ._start import Units


def constraints(without: Collection[str] = ()) -> dict[str, list[Any]]:
    """Return what the parameters of `GaussianMixture` may be, but for some."""
    return {name: allowed for name, allowed in _parameters.CONSTRAINTS.items() if name not in without}


#: `standardize` has another default than that of `GaussianMixture`, so that predictions are the same in all units.
with_parameters = partial(with_parameters_of, GaussianMixture, defaults={"standardize": True})


class OfMixtures(Estimator):
    """An estimator with the parameters of `GaussianMixture`, which makes its mixtures.

    The decorator `with_parameters` says which of them a subclass has.
    """

    covariance_type: str
    standardize: bool
    device: str
    n_jobs: int | None
    random_state: int | np.random.RandomState | None
    n_features_in_: int
    _parameter_constraints: ClassVar[dict[str, list[Any]]]

    def _units(self, x: Floats, weights: Weights) -> Units:
        """Return the units that fits are made in, if not in those of the data."""
        return _core.Standardization.of(x, weights, _core.needs_one_unit(self.covariance_type)) if self.standardize else None

    @staticmethod
    def _fit_mixture(gm: GaussianMixture, x: Floats | _core.GpuArray, weights: Weights, units: Units, task: Task | None = None) -> None:
        """Fit a mixture of which the parameters are checked, as `GaussianMixture.fit` does, but in these units."""
        with ArraySamples(gm, x, weights, units=units) as samples:
            samples.task = task
            gm._fit(samples)

    def _unfitted(self, **params: Any) -> GaussianMixture:
        """Make a mixture with the parameters of this estimator, or with others."""
        own = {name: getattr(self, name) for name in _parameters.CONSTRAINTS if hasattr(self, name)}
        return GaussianMixture(**{**own, **params})

    def _checked(self, X: Any, *, reset: bool) -> Floats | _core.GpuArray:
        """Check samples, for a fit or for the fitted estimator; in those for the latter the engine looks for NaN."""
        if reset:
            return validated(self, X, reset=True, min_samples=2, check_finite=True)
        if self._takes(X):
            # What scikit-learn's function would do, in less time than it takes to find out.
            return X
        check_is_fitted(self)
        return validated(self, X, reset=False)

    def _load(self, x: Floats | _core.GpuArray, X: Any) -> _core.Data:
        """Bring checked samples to the device; ``X`` is what the caller gave."""
        return load(self, x, None, original=X)


class OfOneMixture(OfMixtures):
    """An estimator that fits one mixture."""

    #: The fitted estimator of the mixture.
    _gm: GaussianMixture

    @property
    def mixture_(self) -> Mixture:
        """The fitted mixture, which may be replaced by another one of the same features."""
        check_is_fitted(self)
        return self._gm.mixture_

    @mixture_.setter
    def mixture_(self, mixture: AnyMixture) -> None:
        self._gm = GaussianMixture.from_parameters(mixture_of(mixture, "mixture_"))

    def _to_be_fitted(self) -> GaussianMixture:
        """Make the estimator of the mixture, or take the fitted one to go on with."""
        if getattr(self, "warm_start", False) and hasattr(self, "_gm"):
            return copy(self._gm).set_params(**self._unfitted().get_params(deep=False))
        return self._unfitted()
