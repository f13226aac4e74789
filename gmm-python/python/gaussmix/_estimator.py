"""The estimator `GaussianMixture`, and its fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count, islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from . import _core, _parameters, _start
from ._arrays import Self, checked_weights
from ._fitting import Fitting, ill_defined, take_features, tried
from ._gpu import on_host
from ._mixture import Mixture
from ._parameters import ScikitLearn
from ._reports import Iteration
from ._samples import ArraySamples, Evaluations, Samples

#: An estimator with the total log-likelihood of the samples, or why there are too few, and their weight.
Tried = tuple["GaussianMixture", float | ValueError, float]

#: So many models of a selection are fitted in one call of the engine.
_TOGETHER = 256


class GaussianMixture(Fitting):
    """A Gaussian mixture, fitted by expectation-maximisation.

    Parameters, attributes and methods are those of :class:`sklearn.mixture.GaussianMixture`, and from the same start
    both find the same mixture. The arithmetic is done by the engine of this package, on the CPU or on a GPU, in the
    type of the data: float32 stays float32. The attributes of a fit to float32 data are float32 too, unless the mixture
    is one that float32 cannot hold (features that are nearly collinear, means very many standard deviations from 0,
    variances beyond 10±³⁸): rounding would change log densities by more than 10⁻⁴, or leave no mixture at all. Then all
    of them are float64.

    The data must not be changed by another thread during a call; it is not copied. An array in a GPU's memory (of
    PyTorch, CuPy, JAX or another library that knows DLPack) is read there.
    Parameters:
    n_components : int, default=1 -- The number of components.
    covariance_type : str, default='full'
        The model of the covariances: a matrix for each component ('full'), one matrix for all ('tied'), a variance for
        each component and feature ('diag') or for each component ('spherical'), or one of mclust's 14, such as 'VEV'.
    tol : float, default=1e-3 -- A fit has converged when an iteration changes the lower bound by less than this.
    reg_covar : float, default=1e-6 -- Added to all variances.
    max_iter : int, default=100 -- The most iterations of a run.
    n_init : int, default=1 -- The number of runs from different starts, of which the best counts.
    init_params : {'kmeans', 'k-means++', 'random', 'random_from_data', 'hierarchical'}, array-like or \
        callable, default='kmeans'
        How a start is found. Up to 16,384 samples it is the very start of scikit-learn for the same
        `random_state`; with more, the engine finds one by the same method, in much less time.
        An array gives the start: responsibilities of shape (n_samples, n_components), whole numbers
        of shape (n_samples,) as labels, -1 for samples without one, or means of shape
        (n_components, n_features). A callable is given the samples, the number of components and a
        random state, and returns such an array.
    hierarchical_rows : int, default=2000 -- The most rows that a 'hierarchical' start merges, drawn at random.
    weights_init : array-like of shape (n_components,), default=None -- The weights to start with.
    means_init : array-like of shape (n_components, n_features), default=None -- The means to start with.
    precisions_init : array-like, default=None -- The precisions (inverse covariances) to start with, in the shape of the covariances.
    random_state : int, RandomState instance or None, default=None -- The source of random numbers for starts and for `sample`.
    warm_start : bool, default=False -- Whether a fit goes on where the last one stopped.
    verbose : int, default=0 -- 1 prints the iterations, 2 also times and changes.
    verbose_interval : int, default=10 -- How many iterations lie between two lines.
    halving : bool, default=False
        Whether poor runs of `n_init` are dropped early: all make 5 iterations, and the half with the lower bounds
        is dropped; the others go on to 10, 20, 40, … iterations, until one is left. The starts are the engine's own
        then, whatever the number of samples. A run that begins slowly can be dropped although it would have been
        the best.
    device : str, default='auto'
        Where to compute: 'auto', 'cpu', 'cuda', 'cuda:N' (the GPU of number N), over several devices at once
        'cuda:all' or a list such as 'cuda:0,2' or 'cuda:0,cpu', or 'reference' (slow and exact). 'auto' begins on
        the CPU and continues on a GPU where that is measured to be faster. For an array in a GPU's memory, 'auto' and
        'cuda' mean that GPU.
    freeze : sequence of {'weights', 'means', 'covariances'}, dict, str or None, default=None
        Parameters that stay as the start has them. In a dict each name has the numbers of the components whose
        parameter stays, or a mask of them, or True for all, as in ``{"means": [0, 2]}``; ``{"weights": "equal"}``
        makes all weights equal, and ``{"means": "equal"}`` all means. A text says it as for ``gmm fit --freeze``.
    prior : {'default'}, dict or None, default=None
        A prior, with which a fit finds the mode of the posterior (MAP), so that no component collapses. In a dict,
        `weight_concentration` (at least 1, default 1) is that of a Dirichlet distribution of the weights;
        `degrees_of_freedom` (default n_features + 2) and `covariance` (default that of the samples over
        ``n_components ** (2 / n_features)``, in the shape of one component) are those of an inverse Wishart
        distribution of the covariances; `mean` (default that of the samples; or one for each component) counts as
        `mean_precision` samples (default 0.01). `lower_bound_` then has the logarithm of the prior's density too,
        up to a constant.
    noise : bool, float, array-like or dict, default=False
        Whether a component of uniform density takes in outliers, beside `n_components` Gaussians. A number is its weight
        at the start (default 0.1); an array, a mask of samples or their numbers, are the samples that begin as noise
        (default: those far from their neighbours). In a dict these are `share` and `rows`, and `volume` is the inverse
        of the density (default: the smaller of the products of the ranges of the features and of the principal
        components). Samples must be complete.
    standardize : bool, default=False
        Whether to fit to columns of mean 0 and standard deviation 1, so that units do not matter; `reg_covar` is in
        these units then. All attributes are in the units of the data. Not for 'spherical' covariances and EII, EVE, VVE,
        EEV and VEV of a mixture alone, which such a fit does not have in the units of the data; estimators that
        predict divide all columns by one number for them.
    decay : float, default=0.7
        How fast `partial_fit` forgets early chunks, above 0.5 and at most 1: the chunk of number t, counted from 0,
        has the share (t + 1) ** -decay.
    missing : bool, default=False
        Whether NaN stands for a value that is missing at random, instead of being an error. The likelihood of a
        sample is then that of its observed values, and a fit maximises it exactly. An array in a GPU's memory is
        copied to the host first.
    reproducible : bool, default=False
        Whether fits, scores and predictions have the same bits on every CPU, of any number of cores. They are slower
        on CPUs without AVX-512, and take tens of times as long on those without fused multiply-adds. 'auto' is the CPU
        then, GPUs are refused, and starts by name are the engine's own. `sample` draws by NumPy, which is not. While
        such a fit or evaluation runs, the whole process computes so.
    callback : callable or None, default=None
        Called after each iteration with an object that has `run` and `iteration` (counted from 0 and from 1),
        `lower_bound` (before the M-step), `change` (since the iteration before; infinite in the first), and `mixture`
        (after the M-step). The fit ends when it returns something true.
    Attributes:
    weights_ : ndarray of shape (n_components,) -- The share of each component; with noise one more, its share.
    noise_ : tuple or None -- The volume and the lower and upper bounds (n_features,) of the noise, if there is one.
    means_ : ndarray of shape (n_components, n_features) -- The mean of each component.
    covariances_ : ndarray -- The covariances, in the shape of their type.
    precisions_ : ndarray -- The inverses of the covariances, in the same shape.
    precisions_cholesky_, converged_
    n_iter_ : int -- The iterations of the best run; after `partial_fit`, the number of chunks and the iterations of the first.
    lower_bound_ : float -- The mean log-likelihood of a sample before the last M-step.
    lower_bounds_ : list of float -- That of each iteration.
    retained_ : list of int
        Components that retained earlier parameters in the last iteration, because they had lost their samples or
        their covariance had collapsed.
    n_features_in_, feature_names_in_
    See Also:
    sklearn.mixture.GaussianMixture : The scikit-learn estimator that this class replaces.
    Examples:
    >>> import numpy as np
    >>> from gaussmix import GaussianMixture
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> gm = GaussianMixture(n_components=2, random_state=0).fit(X)
    >>> gm.means_.round(6)
    array([[10.,  2.],
           [ 1.,  2.]])
    >>> gm.predict([[0, 0], [12, 3]])
    array([1, 0])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = _parameters.CONSTRAINTS
    _theirs, _engine_class = ScikitLearn, _core.Mixture
    retained_: list[int]
    prior: str | Mapping[str, Any] | None
    noise: bool | float | ArrayLike | Mapping[str, Any]
    noise_: tuple[float, list[float], list[float]] | None
    _OPTIONS = (*_core.option_names()[0], "prior", "noise")

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str | ArrayLike | Callable[[Any, int, np.random.RandomState], ArrayLike] = "kmeans",
        hierarchical_rows: int = 2000,
        weights_init: ArrayLike | None = None,
        means_init: ArrayLike | None = None,
        precisions_init: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        verbose: int = 0,
        verbose_interval: int = 10,
        halving: bool = False,
        device: str = "auto",
        freeze: str | Sequence[str] | Mapping[str, Any] | None = None,
        prior: str | Mapping[str, Any] | None = None,
        noise: bool | float | ArrayLike | Mapping[str, Any] = False,
        standardize: bool = False,
        decay: float = 0.7,
        n_jobs: int | None = None,
        missing: bool = False,
        reproducible: bool = False,
        callback: Callable[[Iteration], object] | None = None,
    ) -> None:
        _parameters.set_parameters(self, locals())

    def _forget(self) -> None:
        super()._forget()
        self.retained_ = []

    def _deciding(self) -> tuple[Any, ...]:
        noise = getattr(self, "noise_", None)
        return *super()._deciding(), np.empty(0) if noise is None else np.hstack(noise)

    def _make(self, engine: _core.Mixture | None = None) -> tuple[_core.Mixture, _core.Mixture, _core.Mixture]:
        mixture = self._point_of_attributes() if engine is None else engine
        return mixture, mixture, mixture

    def _set(self, engine: _core.Mixture, dtype: np.dtype[Any]) -> None:
        self.noise_ = engine.noise
        exact = self._set_arrays(engine, dtype) == np.float64
        self._keep_made(self._make(engine if exact else None))

    @classmethod
    def from_parameters(
        cls,
        weights: ArrayLike | Mixture,
        means: ArrayLike | None = None,
        covariances: ArrayLike | None = None,
        *,
        covariance_type: str | None = None,
        **params: Any,
    ) -> Self:
        """Return an estimator, as if fitted, of the parameters of a mixture.
        Parameters:
        weights : array-like of shape (n_components,), or Mixture
            The weights, which sum to 1; or a mixture, which has means, covariances and names of features too.
        means : array-like of shape (n_components, n_features), default=None
            The means; where they are float32, so are the attributes, if float32 holds the mixture.
        **params : dict -- Other parameters of the estimator.
        """
        narrow = np.asarray(means).dtype == np.float32
        if not isinstance(weights, Mixture):
            if means is None or covariances is None:
                raise TypeError("give weights, means and covariances, or a Mixture alone")
            w, m, c = (np.asarray(part) for part in (weights, means, covariances))
            weights = Mixture._of(_core.Mixture(w, m, c, covariance_type))
        elif not (means is covariances is covariance_type is None):
            raise ValueError("means, covariances or covariance_type is given beside a Mixture, which has its own; leave it out")
        dtype = np.dtype(np.float32 if narrow else np.float64)
        return cls._of(weights._engine, dtype, {"feature_names": weights.feature_names}, params)

    def bic(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the Bayesian information criterion -2 log L + p log N, with p parameters and N samples; the lower the better."""
        return self._criterion("bic", *self._total(X, sample_weight))

    def aic(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the Akaike information criterion -2 log L + 2 p, with p parameters; the lower the better."""
        return self._criterion("aic", *self._total(X, sample_weight))

    def icl(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the `bic` less twice the sum of the logarithms of the samples' largest probabilities; the lower the better."""
        certain, (total, n) = np.log(on_host(self.predict_proba(X)).max(axis=1)), self._total(X, sample_weight)
        mean = float(np.average(certain, weights=checked_weights(sample_weight, len(certain))))
        return self._criterion("bic", total, n) - 2.0 * n * mean

    def _criterion(self, name: str, total: float, n: float) -> float:
        """Return a criterion for samples of this total log-likelihood and weight."""
        penalty = math.log(n) if name == "bic" else 2.0
        return -2.0 * total + penalty * self._mixture().n_parameters

    def _n_parameters(self) -> int:  # scikit-learn's tests call it
        return self._mixture().n_parameters

    def _total(self, X: Any, sample_weight: Any) -> tuple[float, float]:
        """Return the total log-likelihood of samples, and their weight."""
        data = self._data(X, sample_weight)
        return data.mean_score(self._mixture()) * data.total_weight, data.total_weight

    def _learn(self, average: _core.Statistics, statistics: _core.Statistics) -> float:
        """Make the M-step of stepwise EM; give the mean log-likelihood of the chunk before that."""
        frozen = _parameters.frozen(self.freeze, self.n_components)
        mixture, retained = average.update(self._mixture(), self.reg_covar, frozen)
        self._set(mixture, self._type())
        self.retained_ = retained
        return statistics.log_likelihood / statistics.weight

    @classmethod
    def _fits_here(cls) -> bool:
        """Say whether `fit` is that of this class and of this process, as where it has scikit-learn's name."""
        return cls.fit is GaussianMixture.fit and cls._samples is GaussianMixture._samples

    @classmethod
    def _fitted(cls, estimators: Iterable[Any], X: Any, sample_weight: Any) -> Iterator[Tried]:
        """Fit estimators of this class in turn."""
        # There may be very many, and they may end when there are too few samples for one.
        models = iter(estimators)
        first = next(models, None)
        if first is None:
            return
        first._validate_params()
        models = chain([first], models)
        if cls._fits_here() and not first.standardize and _start.is_side_by_side(X, first):
            with ArraySamples(first, X, sample_weight) as samples:
                data = samples.load()
                while some := list(islice(models, _TOGETHER)):
                    yield from cls._fitted_side_by_side(some, samples, data)
            return
        for estimator in models:
            yield estimator, *tried(lambda: estimator.fit(X, sample_weight=sample_weight)._total(X, sample_weight))

    @staticmethod
    def _fitted_side_by_side(models: list[GaussianMixture], samples: ArraySamples, data: _core.Data) -> Iterator[Tried]:
        """Do what `_fitted` does, on each core another run."""
        for gm in models:
            gm._validate_params()
        n_samples, n = samples.shape[0], data.total_weight
        possible = [gm for gm in models if gm.n_components <= n_samples]
        fits: Any = samples.fit_many(possible) if possible else []
        numbers = count()

        def fitted(gm: GaussianMixture) -> tuple[float, float]:
            gm._check_start(n_samples)
            with ill_defined(samples.estimator):
                fit = fits[next(numbers)]
            take_features(gm, samples.estimator)
            gm._keep(fit, samples.dtype)
            gm._finish(fit)
            return data.mean_score(gm._mixture()) * n, n

        for gm in models:
            yield gm, *tried(partial(fitted, gm))

    def _grown(self, fitted: Iterable[Tried], X: Any, sample_weight: Any) -> Iterator[Tried]:
        """Improve what `_fitted` gives by fits that start at the mixture before, where that has the same type."""
        if self.freeze:
            raise ValueError("freeze is given beside growing, but a component that is split changes all parameters; leave out one of them")
        with ArraySamples(self, X, sample_weight) as samples:
            data = samples.load()
            fitted_data = samples.standardize() if self.standardize else data
            before: GaussianMixture | None = None
            for gm, total, n in fitted:
                if not isinstance(total, ValueError):
                    if before is not None and before.covariance_type == gm.covariance_type:
                        gm._grow(before, fitted_data, samples)
                        total = data.mean_score(gm._mixture()) * n
                    before = gm
                yield gm, total, n

    def _grow(self, before: GaussianMixture, data: _core.Data, samples: ArraySamples) -> None:
        """Take the fit that starts at the mixture of fewer components, if it is better."""
        # One more run than there are.
        options = {**self._options(data.shape[1]), "n_init": 1}
        seed = _parameters.seed_of(self.random_state)
        with ill_defined(self):
            fit = data.grown(options, seed, before._mixture(), samples.units)
        if fit is None:
            return
        if fit.error is not None:
            raise fit.error
        if len(fit.lower_bounds) and fit.lower_bounds[-1] > self.lower_bound_:
            self._keep(fit, samples.dtype)

    def _options(self, n_features: int) -> dict[str, Any]:
        """Return the options of a fit, with the parameters of its start that are given."""
        given = _start.checked_parameters(self, n_features)
        prior, arrays = _parameters.map_prior(self.prior, self.standardize, self.covariance_type)
        noise = _parameters.noise_component(self.noise)
        return self._engine_options(arrays if self._goes_on() else {**given, **arrays}, prior=prior, noise=noise)

    def _best_run(self, samples: Samples, data: Evaluations, options: dict[str, Any]) -> _core.Fit:
        plain = self.n_init > 1 and samples.task is None and samples.noise is None
        if plain and isinstance(samples, ArraySamples) and samples.labels is None and _start.is_side_by_side(samples.X, self):
            with ill_defined(self):
                fit = samples.fit_many([self])[0]
            return fit if samples.units is None else fit.restored(samples.units)
        return super()._best_run(samples, data, options)

    def _keep(self, fit: _core.Fit, dtype: np.dtype[Any]) -> None:
        super()._keep(fit, dtype)
        self.retained_ = fit.retained
