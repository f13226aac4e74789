"""The estimator `BayesianGaussianMixture`, and its fit by variational inference."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _core, _parameters, _start
from ._arrays import Self
from ._documentation import with_parameters_of
from ._estimator import GaussianMixture
from ._fitting import Fitting
from ._gpu import on_host
from ._parameters import BayesianScikitLearn

#: The attributes that scikit-learn's object has too, beside those of every mixture.
_POSTERIOR = (
    "weight_concentration_",
    "mean_precision_",
    "degrees_of_freedom_",
    "weight_concentration_prior_",
    "mean_precision_prior_",
    "mean_prior_",
    "degrees_of_freedom_prior_",
    "covariance_prior_",
)

#: Parameters of `GaussianMixture` that a fit by variational inference does not have.
_WITHOUT = (*_start.INITIAL, "prior", "noise")
#: The options of a fit that are arrays.
_ARRAYS = ("mean_prior", "covariance_prior")


@with_parameters_of(GaussianMixture, _WITHOUT)
class BayesianGaussianMixture(Fitting):
    """A Gaussian mixture, fitted by variational inference.

    Parameters, attributes and methods are those of :class:`sklearn.mixture.BayesianGaussianMixture`, and from the same
    start both find the same mixture. A fit gives weight only to as many components as the samples need; `n_components`
    is their largest number. The arithmetic is done by the engine of this package, as in :class:`GaussianMixture`.

    Methods about samples use the posterior predictive as scikit-learn does; `mixture_` is the mixture of the attributes
    `weights_`, `means_` and `covariances_`.
    Parameters:
    n_components : int, default=1 -- The largest number of components.
    tol : float, default=1e-3
        A fit has converged when an iteration changes the lower bound by less than this. As in scikit-learn that is
        the bound of all samples, not of one in the mean.
    reg_covar : float, default=1e-6 -- Added to all variances of samples.
    weight_concentration_prior_type : {'dirichlet_process', 'dirichlet_distribution'}, \
        default='dirichlet_process'
        The prior of the weights.
    weight_concentration_prior : float or None, default=None
        Its concentration: the smaller, the fewer components have weight; by default 1 / n_components.
    mean_precision_prior : float or None, default=None -- The larger, the nearer are the means to `mean_prior`; by default 1.
    mean_prior : array-like of shape (n_features,), default=None -- The prior mean; by default that of the samples.
    degrees_of_freedom_prior : float or None, default=None -- The degrees of freedom of the prior of the precisions; by default n_features.
    covariance_prior : float or array-like, default=None
        The scale of that prior, in the shape of the covariance of one component; by default the covariance of the
        samples.
    freeze : sequence of {'weights', 'means', 'covariances'} or None, default=None
        Parts of the posterior that stay as the start has them: the distributions of the weights, of the means given
        the precisions, or of the precisions. The start is that of `init_params`, or with `warm_start` the mixture
        as it is.
    standardize : bool, default=False
        Whether to fit to columns of mean 0 and standard deviation 1; `reg_covar` is in these units then. The priors
        that are given, and all attributes, are in the units of the data. Not for 'spherical' covariances.
    total_samples : float or None, default=None
        How many samples all chunks of `partial_fit` have together; by default, as many as it has seen.
    **params : dict -- The other parameters of :class:`GaussianMixture`, which has initial parameters and a `prior` besides.
    Attributes:
    weights_ : ndarray of shape (n_components,) -- The posterior mean of the weights.
    means_ : ndarray of shape (n_components, n_features) -- The posterior mean of each component's mean.
    covariances_ : ndarray -- The inverses of the posterior means of the precisions, in the shape of their type.
    precisions_ : ndarray -- The posterior means of the precisions, in the same shape.
    precisions_cholesky_, converged_
    weight_concentration_ : tuple of ndarray, or ndarray of shape (n_components,)
        The parameters of the Beta distributions of a Dirichlet process, two arrays of shape (n_components,), or
        those of the Dirichlet distribution.
    mean_precision_ : ndarray of shape (n_components,) -- How many times the precision of a component its mean has.
    degrees_of_freedom_ : ndarray of shape (n_components,), or float
        The degrees of freedom of the precisions; one number for 'tied' covariances.
    weight_concentration_prior_ : float -- The concentration that was used.
    mean_precision_prior_ : float -- The precision of the prior mean that was used.
    mean_prior_ : ndarray of shape (n_features,) -- The prior mean that was used.
    degrees_of_freedom_prior_ : float -- The degrees of freedom that were used.
    covariance_prior_ : float or ndarray -- The scale of the prior of the precisions that was used.
    n_iter_ : int -- The iterations of the best run.
    lower_bound_ : float
        The lower bound of the evidence after the last iteration, of all samples. As in scikit-learn what does not
        depend on the posterior is left out.
    lower_bounds_ : list of float -- That of each iteration.
    elbo_ : float -- The lower bound of the log-evidence of the samples, with all constants.
    n_features_in_, feature_names_in_
    See Also:
    GaussianMixture : A mixture whose number of components is given, fitted by
        expectation-maximisation.
    MixturePosterior : Draws from the posterior, by Markov chains.
    sklearn.mixture.BayesianGaussianMixture : The scikit-learn estimator that this class replaces.
    Examples:
    >>> import numpy as np
    >>> from gaussmix import BayesianGaussianMixture
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [4, 2], [12, 4], [10, 7]])
    >>> gm = BayesianGaussianMixture(n_components=2, random_state=42).fit(X)
    >>> gm.means_.round(2)
    array([[2.5 , 2.29],
           [8.46, 4.52]])
    >>> gm.predict([[0, 0], [9, 3]])
    array([0, 1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = _parameters.BAYESIAN_CONSTRAINTS
    _theirs, _more, _engine_class = BayesianScikitLearn, _POSTERIOR, _core.VariationalMixture
    _OPTIONS = tuple(name for names in (_core.option_names()[0], _core.option_names()[2]) for name in names if name not in _ARRAYS)
    weight_concentration_prior_type: str
    mean_prior: ArrayLike | None
    degrees_of_freedom_prior: float | None
    covariance_prior: ArrayLike | None
    total_samples: float | None
    #: Of a column of a table, whose values are often few, fits end in as many optima as there are starts.
    _numbers_of_own_start: ClassVar[int] = 1 << 18
    #: The weight of the samples that `partial_fit` has seen.
    _seen: float = 0.0

    def __init__(
        self,
        *,
        weight_concentration_prior_type: str = "dirichlet_process",
        weight_concentration_prior: float | None = None,
        mean_precision_prior: float | None = None,
        mean_prior: ArrayLike | None = None,
        degrees_of_freedom_prior: float | None = None,
        covariance_prior: ArrayLike | None = None,
        total_samples: float | None = None,
        **params: Any,
    ) -> None:
        _parameters.set_parameters(self, locals(), BayesianGaussianMixture.__init__)

    @property
    def elbo_(self) -> float:
        """The lower bound of the log-evidence of the samples that were fitted to, with all constants."""
        return float(self.lower_bound_) + self._posterior().constant_terms

    def _set(self, engine: _core.VariationalMixture, dtype: np.dtype[Any]) -> None:
        dtype = self._set_arrays(engine, dtype)

        def narrow(array: NDArray[np.float64]) -> NDArray[Any]:
            return array.astype(dtype, copy=False)

        concentration = narrow(engine.weight_concentration)
        is_process = self.weight_concentration_prior_type == "dirichlet_process"
        self.weight_concentration_ = tuple(concentration) if is_process else concentration[0]
        self.mean_precision_ = narrow(engine.mean_precision)
        degrees = narrow(engine.degrees_of_freedom)
        self.degrees_of_freedom_ = degrees[0] if self.covariance_type == "tied" else degrees
        prior = engine.prior
        self.weight_concentration_prior_ = prior["weight_concentration"]
        self.mean_precision_prior_ = prior["mean_precision"]
        self.mean_prior_ = narrow(prior["mean"])
        self.degrees_of_freedom_prior_ = prior["degrees_of_freedom"]
        covariance = narrow(prior["covariance"])
        self.covariance_prior_ = covariance if self.covariance_type == "tied" else covariance[0]
        self._keep_made(self._make(engine if dtype == np.float64 else None))

    def _deciding(self) -> tuple[Any, ...]:
        prior = (self.weight_concentration_prior_, self.mean_precision_prior_, self.degrees_of_freedom_prior_)
        posterior = (self.weight_concentration_, self.mean_precision_, self.degrees_of_freedom_)
        return *super()._deciding(), *posterior, *prior

    def _make(self, engine: _core.VariationalMixture | None = None) -> tuple[_core.Mixture, _core.VariationalMixture, _core.Mixture]:
        mixture, posterior = self._point_of_attributes(), engine
        if posterior is None:
            kind, (k, d) = self.covariance_type, self.means_.shape
            prior = {
                "weight_concentration_prior_type": self.weight_concentration_prior_type,
                "weight_concentration": float(self.weight_concentration_prior_),
                "mean_precision": float(self.mean_precision_prior_),
                "mean": on_host(self.mean_prior_),
                "degrees_of_freedom": float(self.degrees_of_freedom_prior_),
                "covariance": np.reshape(on_host(self.covariance_prior_), _start.shape_of(kind, 1, d)),
            }
            degrees = np.broadcast_to(on_host(self.degrees_of_freedom_), k)
            concentration = np.atleast_2d(on_host(self.weight_concentration_))
            posterior = _core.VariationalMixture(prior, mixture, concentration, on_host(self.mean_precision_), degrees)
        return mixture, posterior, posterior.density

    def _posterior(self) -> _core.VariationalMixture:
        return self._current()[1]

    def _log_factor(self) -> float:
        return self._posterior().log_total

    def _forget(self) -> None:
        super()._forget()
        self._seen = 0.0

    @classmethod
    def _of(cls, engine: Any, dtype: np.dtype[Any], found: dict[str, Any], params: dict[str, Any]) -> Self:
        kind = {"weight_concentration_prior_type": engine.prior["weight_concentration_prior_type"]}
        return super()._of(engine, dtype, found, {**kind, **params})

    def _learn(self, average: _core.Statistics, statistics: _core.Statistics) -> float:
        """Make the step of stochastic variational inference; give its lower bound, if all samples were as those of the chunk."""
        seen = self._seen + statistics.weight
        total = seen if self.total_samples is None else float(self.total_samples)
        before = self._posterior()
        after = before.update(average.scaled(total), self.reg_covar, _parameters.frozen(self.freeze, self.n_components))
        bound = after.lower_bound_of(before, statistics.scaled(total / statistics.weight), self.reg_covar)
        self._set(after, self._type())
        self._seen = seen
        return bound

    def _options(self, n_features: int) -> dict[str, Any]:
        """Check the prior, with scikit-learn's messages, and give the options of a fit."""
        mean, covariance = self.mean_prior, self.covariance_prior
        if mean is not None:
            mean = _start.checked(mean, (n_features,), "means")
        degrees = self.degrees_of_freedom_prior
        if degrees is not None and degrees <= n_features - 1.0:
            raise ValueError(f"The parameter 'degrees_of_freedom_prior' should be greater than {n_features - 1}, but got {degrees:.3f}.")
        if covariance is not None:
            covariance = self._checked_covariance(covariance, n_features)
        return self._engine_options({"mean_prior": mean, "covariance_prior": covariance})

    def _checked_covariance(self, covariance: ArrayLike, n_features: int) -> NDArray[np.float64]:
        """Check the prior covariance, and give it in the shape of the covariances of one component."""
        kind = self.covariance_type
        if kind == "spherical":
            if np.size(covariance) != 1:
                raise ValueError("covariance_prior must be one number for 'spherical' covariances")
            return np.reshape(np.asarray(covariance, dtype=np.float64), 1)
        shape = (n_features,) if kind == "diag" else (n_features, n_features)
        array = _start.checked_positive(covariance, shape, f"{kind} covariance_prior", kind)
        return array if kind == "tied" else array[np.newaxis]
