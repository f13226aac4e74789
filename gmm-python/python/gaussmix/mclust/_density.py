"""The density of a model."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._mixture import Mixture
from ._models import Mclust, _Names, _Numbers, _rows


class densityMclust(Mclust):
    """The density of rows, by the best of several models and numbers of components.
    Parameters: G, modelNames, **search : object -- As of `Mclust`.
    Attributes: density : ndarray of shape (n,) -- The density at each row.
    See Also:
    Mclust : It has all other attributes.
    """

    def __init__(self, data: ArrayLike, G: _Numbers = range(1, 10), modelNames: _Names = None, **search: Any) -> None:
        super().__init__(data, G, modelNames, **search)
        self.density = self.predict()

    def predict(  # type: ignore[override]  # R's differs too.
        self, newdata: ArrayLike | None = None, what: str = "dens", logarithm: bool = False
    ) -> NDArray[np.float64]:
        """Return the density at rows, (n_rows,) or (n_rows, G).
        Parameters:
        newdata : array-like of shape (n_rows, d), default=None -- The rows; by default the model's.
        what : {'dens', 'cdens', 'z'}, default='dens' -- The density, that of each component, or the components' probabilities.
        logarithm : bool, default=False -- Whether to return logarithms.
        """
        x, pars = self.data if newdata is None else _rows(newdata), self.parameters
        if what == "dens":
            logs = self.mixture.score_samples(x)
        elif what in ("cdens", "z"):
            covariances = np.moveaxis(pars.variance.sigma, -1, 0)
            parts = zip(pars.mean.T, covariances, strict=True)
            alone = [Mixture([1.0], mean[np.newaxis], sigma[np.newaxis], covariance_type="full") for mean, sigma in parts]
            logs = np.stack([one.score_samples(x) for one in alone], axis=1)
            if what == "z":
                logs += np.log(pars.pro) - self.mixture.score_samples(x)[:, np.newaxis]
        else:
            raise ValueError(f"what is {what!r}; use 'dens', 'cdens' or 'z'")
        return logs if logarithm else np.exp(logs)


def cdfMclust(object: Mclust, data: ArrayLike | None = None, ngrid: int = 100) -> SimpleNamespace:
    """Return the distribution function of a model of one column: the places `x`, ascending, and the probabilities `y` of at most so much.
    Parameters:
    object : Mclust -- The model.
    data : array-like of shape (n,), default=None
        Where; by default at even distances over the range of the model's rows and a tenth more on either side.
    ngrid : int, default=100 -- The number of these places.
    """
    if data is None:
        low, high = object.data.min(), object.data.max()
        x = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), ngrid)
    else:
        x = np.sort(np.ravel(np.asarray(data, dtype=np.float64)))
    return SimpleNamespace(x=x, y=object.mixture.cdf(x))


def quantileMclust(object: Mclust, p: ArrayLike) -> Any:
    """Return the quantiles of a model of one column, in the shape of `p`; infinite for 0 and 1.
    Parameters:
    object : Mclust -- The model.
    p : array-like -- Probabilities from 0 to 1.
    """
    return object.mixture.quantile(p)
