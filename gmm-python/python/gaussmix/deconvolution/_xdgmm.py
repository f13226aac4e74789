"""The class with the interfaces of astroML's and of Holoien's."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.mixture import GaussianMixture as ScikitLearn
from sklearn.utils import check_random_state

from .._arrays import Floats, Self
from .._measurements import Measurements, numbers_of
from .._mixture import Mixture
from ._bovy import extreme_deconvolution
from ._estimator import ExtremeDeconvolution


class XDGMM:
    """Extreme deconvolution with the methods of astroML's and of Holoien's classes of this name.
    Parameters:
    n_components : int, default=1 -- The number of components.
    max_iter : int, default=100 -- The most iterations.
    tol : float, default=1e-5 -- A fit ends when the log-likelihood of all samples rises by at most this.
    verbose : bool, default=False -- Accepted, and not heeded.
    n_iter : int, default=None -- The same as `max_iter`.
    method : {'astroML', 'Bovy'}, default='astroML' -- What the tolerance is of: all samples, or their average.
    labels : sequence of str, default=None -- The names of the features, for `condition`.
    w : float, default=0.0 -- The floor of the covariances under the method 'Bovy'.
    Attributes:
    alpha : ndarray of shape (n_components,) -- The weights.
    mu : ndarray of shape (n_components, n_features) -- The means.
    V : ndarray of shape (n_components, n_features, n_features) -- The covariances.
    """

    def __init__(
        self,
        n_components: int = 1,
        max_iter: int = 100,
        tol: float = 1e-5,
        verbose: bool = False,
        random_state: Any = None,
        n_iter: int | None = None,
        method: str = "astroML",
        labels: Sequence[str] | None = None,
        w: float = 0.0,
    ) -> None:
        if method not in ("astroML", "Bovy"):
            raise ValueError(f"there is no method {method!r}; use 'astroML' or 'Bovy'")
        self.n_components, self.max_iter, self.tol, self.verbose = n_components, max_iter if n_iter is None else n_iter, tol, verbose
        self.random_state, self.method, self.labels, self.w = random_state, method, labels, w
        self.alpha: Any = None
        self.mu: Any = None
        self.V: Any = None

    def _unfitted(self, n_components: int) -> XDGMM:
        how = {"max_iter": self.max_iter, "tol": self.tol, "verbose": self.verbose, "random_state": self.random_state}
        return XDGMM(n_components, method=self.method, w=self.w, **how)

    def fit(self, X: ArrayLike, Xerr: ArrayLike, R: object = None) -> Self:
        """Fit the mixture, from ten iterations of EM without noise.
        Parameters: R : None -- Projections are not taken.
        """
        if R is not None:
            raise NotImplementedError("mixing matrix R is not yet implemented")
        x = numbers_of(X, "X")
        start = ScikitLearn(self.n_components, max_iter=10, random_state=self.random_state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start.fit(x)
        self.alpha, self.mu, self.V = start.weights_, start.means_, start.covariances_
        tol, w = (self.tol, self.w) if self.method == "Bovy" else (self.tol / len(x), 0.0)
        extreme_deconvolution(x, Xerr, self.alpha, self.mu, self.V, tol=tol, maxiter=self.max_iter, w=w)
        return self

    def _mixture(self) -> Mixture:
        if self.mu is None:
            raise ValueError("the mixture is not fitted; call fit, or set alpha, mu and V")
        return Mixture(self.alpha, self.mu, self.V, covariance_type="full", feature_names=self.labels)

    def _of(self, X: ArrayLike, Xerr: ArrayLike) -> tuple[ExtremeDeconvolution, Any]:
        """Return the estimator of the mixture, and the samples for it."""
        x, noise = numbers_of(X, "X"), np.asarray(Xerr, dtype=np.float64)
        noise = noise[:, :, np.newaxis] * np.eye(x.shape[1]) if noise.ndim == 2 else noise
        return ExtremeDeconvolution.from_parameters(self._mixture()), Measurements(x, noise)

    def logprob_a(self, X: ArrayLike, Xerr: ArrayLike) -> Floats:
        """Return the logarithms of the parts of each component in the density, (n_samples, n_components)."""
        _, measured = self._of(X, Xerr)
        # Probabilities of 0 have no logarithms.
        parts = zip(self.mu[:, np.newaxis], self.V[:, np.newaxis], strict=True)
        alone = [ExtremeDeconvolution.from_parameters([1.0], *part).score_samples(measured) for part in parts]
        with np.errstate(divide="ignore"):
            logs: Floats = np.stack(alone, axis=1) + np.log(self.alpha)
        return logs

    def score_samples(self, X: ArrayLike, Xerr: ArrayLike) -> tuple[Floats, Floats]:
        """Return the log-likelihood of each sample, and the probabilities of its components.
        Returns:
        logprob : ndarray of shape (n_samples,) -- The logarithms of the density.
        resp : ndarray of shape (n_samples, n_components) -- The probabilities.
        """
        xd, measured = self._of(X, Xerr)
        return xd.score_samples(measured), xd.predict_proba(measured)

    def predict(self, X: ArrayLike, Xerr: ArrayLike) -> NDArray[np.int64]:
        """Return the most probable component of each sample, (n_samples,)."""
        xd, measured = self._of(X, Xerr)
        return xd.predict(measured)

    def predict_proba(self, X: ArrayLike, Xerr: ArrayLike) -> Floats:
        """Return the probabilities of the components of each sample, (n_samples, n_components)."""
        return self.score_samples(X, Xerr)[1]

    def score(self, X: ArrayLike, Xerr: ArrayLike) -> float:
        """Return the mean log-likelihood of a sample."""
        xd, measured = self._of(X, Xerr)
        return xd.score(measured)

    def logL(self, X: ArrayLike, Xerr: ArrayLike) -> float:
        """Return the log-likelihood of all samples, their sum."""
        return float(self.score_samples(X, Xerr)[0].sum())

    def bic(self, X: ArrayLike, Xerr: ArrayLike) -> float:
        """Return the Bayesian information criterion -2 log L + p log N, with p parameters and N samples; the lower the better."""
        xd, measured = self._of(X, Xerr)
        return xd.bic(measured)

    def bic_test(self, X: ArrayLike, Xerr: ArrayLike, param_range: Sequence[int], no_err: bool = False) -> tuple[Floats, int, float]:
        """Fit with several numbers of components.
        Parameters:
        param_range : sequence of int -- The numbers.
        no_err : bool, default=False -- Whether the noise is left out.
        Returns:
        bics : ndarray -- The criterion of each number.
        optimal_n_comp : int -- The number of the lowest.
        lowest_bic : float -- The lowest.
        """
        errors = np.zeros_like(Xerr, dtype=np.float64) if no_err else Xerr
        bics = np.array([self._unfitted(k).fit(X, errors).bic(X, errors) for k in param_range])
        return bics, param_range[int(bics.argmin())], float(bics.min())

    def sample(self, size: int = 1, random_state: Any = None) -> Floats:
        """Return true values, (size, n_features), drawn in random order.
        Parameters: size : int, default=1 -- How many.
        """
        random = check_random_state(self.random_state if random_state is None else random_state)
        return random.permutation(self._mixture().sample(size, random)[0])

    def condition(self, X_input: ArrayLike | None = None, X_dict: dict[str, Any] | None = None) -> XDGMM:
        """Return the mixture of the features without values, given the others.
        Parameters:
        X_input : array-like of shape (n_features,) or (n_features, 2), default=None
            The values of the features, NaN where they are not given; or the values and their errors.
        X_dict : dict, default=None -- The same by the names of the `labels`.
        """
        given = np.full((self.mu.shape[1], 2), [np.nan, 0.0])
        if X_dict is None:
            array = np.asarray(X_input, dtype=np.float64)
            given[:, : array.ndim] = array.reshape(len(given), -1)
        elif self.labels is None:
            raise ValueError("X_dict needs the names of the features; set labels")
        else:
            for name, value in X_dict.items():
                given[list(self.labels).index(name), : np.size(value)] = value
        seen = ~np.isnan(given[:, 0])
        # The values are those of features whose variances include the errors.
        errors = np.where(seen, given[:, 1], 0.0)
        mixture = Mixture(self.alpha, self.mu, self.V + np.diag(errors**2), covariance_type="full")
        mixture = mixture.condition({j: given[j, 0] for j in np.flatnonzero(seen).tolist()})
        part = self._unfitted(self.n_components)
        part.alpha, part.mu, part.V = mixture.weights, mixture.means, mixture.covariances
        if self.labels is not None:
            part.labels = [name for name, known in zip(self.labels, seen, strict=True) if not known]
        return part

    def save_model(self, filename: str) -> None:
        """Write the mixture to a file that the command ``gmm`` reads.
        Parameters: filename : str -- The file; its name ends in .json or .npz.
        """
        self._mixture().save(filename)

    def read_model(self, filename: str) -> Self:
        """Read what `save_model` wrote.
        Parameters: filename : str -- The file.
        """
        mixture = Mixture.load(filename)
        self.alpha, self.mu, self.V = mixture.weights, mixture.means, mixture.covariances
        self.n_components, self.labels = mixture.n_components, mixture.feature_names
        return self
