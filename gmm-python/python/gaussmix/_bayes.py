"""Bayesian mixtures: draws from the posterior."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._arrays import Floats, Measurements, Missing, Self, checked_weights, n_threads, note_missing, validated
from ._gpu import on_host
from ._mixture import AnyMixture, Mixture, mixture_of
from ._parameters import count, seed_of, set_parameters
from ._reports import Estimator

#: The statistics of the samplers under the names that ArviZ gives them.
_ARVIZ_NAMES = {
    "lp__": "lp",
    "accept_stat__": "acceptance_rate",
    "stepsize__": "step_size",
    "treedepth__": "tree_depth",
    "n_leapfrog__": "n_steps",
    "divergent__": "diverging",
    "energy__": "energy",
}
#: The axes of the covariances behind those of chains and draws.
_AXES = {"full": ["component", "feature", "other_feature"], "diag": ["component", "feature"], "spherical": ["component"]}


class MixturePosterior(Estimator):
    """Draws of mixtures from their posterior, by Markov chain Monte Carlo.

    Where EM finds one best mixture, the chains visit all mixtures that are plausible after seeing the data, each as
    often as it is plausible. (scikit-learn's `BayesianGaussianMixture` is something else: one mixture by variational
    inference.)
    Parameters:
    n_components : int, default=1 -- The number of components.
    covariance_type : {'diag', 'spherical', 'full'}, default='diag' -- The shape of the covariances.
    order : int or None, default=None
        Keeps the components in the order of their means in this feature, so that chains do not exchange them.
    prior : dict or None, default=None
        The prior, in the form of the command `gmm mcmc`, whose ``--help`` describes it. Parts that are left out are
        those of the default: uniform weights and correlations; means that are normal with the mean and the standard
        deviation of the data; half normal scales with that standard deviation.
    sampler : {'nuts', 'metropolis', 'ensemble'}, default='nuts' -- NUTS uses gradients. A step of the others is cheap and small.
    by_component : bool, default=False -- Whether 'metropolis' updates the weights and each component one after the other.
    target_accept : float, default=0.8 -- The acceptance rate that the warm-up of 'nuts' aims for.
    max_depth : int, default=10 -- The most doublings of a trajectory of 'nuts'.
    chains : int or None, default=None
        The number of chains, or of walkers of 'ensemble'. By default 4, or twice the number of parameters.
    warmup : int or None, default=None -- The iterations before the first draw. By default what usually suffices for the sampler.
    draws : int or None, default=None -- The draws of each chain. By default 1000; 200 of each walker.
    thin : int or None, default=None -- The iterations for a draw. By default what usually suffices for the sampler.
    progress : bool, default=False -- Whether to show how far the run has come, on stderr.
    Attributes:
    draws_ : dict of str to ndarray
        The draws of each variable, of shape (chains, draws, ...): 'weights', 'means', and those of the covariances.
    sample_stats_ : dict of str to ndarray -- Statistics of each draw, of shape (chains, draws), under CmdStan's names.
    finished_ : bool -- Whether all draws were made.
    n_features_in_ : int -- The number of features.
    Examples:
    >>> import numpy as np
    >>> from gaussmix import MixturePosterior
    >>> X = np.concatenate([np.linspace(-1, 1, 20), np.linspace(9, 11, 20)])[:, np.newaxis]
    >>> posterior = MixturePosterior(2, order=0, chains=2, warmup=200, draws=100, random_state=0).fit(X)
    >>> posterior.draws_["means"].shape
    (2, 100, 2, 1)
    """

    #: The engine checks the parameters.
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}
    covariance_type: str
    prior: dict[str, Any] | None
    random_state: int | np.random.RandomState | None
    n_jobs: int | None
    missing: bool
    progress: bool

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "diag",
        order: int | None = None,
        prior: dict[str, Any] | None = None,
        sampler: str = "nuts",
        by_component: bool = False,
        target_accept: float = 0.8,
        max_depth: int = 10,
        chains: int | None = None,
        warmup: int | None = None,
        draws: int | None = None,
        thin: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        float64: bool = False,
        n_jobs: int | None = None,
        missing: bool = False,
        progress: bool = False,
    ) -> None:
        set_parameters(self, locals())

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(
        self,
        X: ArrayLike | Measurements,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        init: AnyMixture | None = None,
        resume: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Make all draws. Ctrl-C ends the run; `go_on` makes those that are left.
        Parameters:
        init : Mixture, estimator or None, default=None
            A mixture near which the chains start. By default it is the best of ten fits by EM.
        resume : str or path-like, default=None
            The prefix of a run that `save` or the command ``gmm mcmc`` has written, to go on with. The data and all
            parameters must be the same, except for a larger number of draws.
        """
        measured = X if isinstance(X, Measurements) else None
        X = X.X if isinstance(X, Measurements) else X
        x: Floats = on_host(validated(self, X, reset=True, min_samples=2 if self.prior is None else 1, check_finite=True))
        weights = checked_weights(sample_weight, x.shape[0])
        if self.missing:
            note_missing(Missing.of(x, weights))
        seed = int(self.random_state) if isinstance(self.random_state, (int, np.integer)) else seed_of(self.random_state)
        if not 0 <= seed < 2**64:
            raise ValueError(f"random_state is {seed}; give a whole number from 0 to 2**64 - 1")
        given = self.get_params(deep=False)
        for name in ("n_components", "order", "max_depth", "chains", "warmup", "draws", "thin"):
            if given[name] is not None:
                count(given[name], name, least=0)
        options = {name: value for name, value in given.items() if name not in ("random_state", "n_jobs", "missing", "progress")}
        prior = None if self.prior is None else json.dumps(self.prior)
        options |= {"prior": prior, "seed": seed, "threads": n_threads(self.n_jobs)}
        start = None if init is None else mixture_of(init, "init")._engine
        with self._task(X, y, sample_weight):
            saved = None if resume is None else os.fspath(resume)
            noise = None if measured is None else measured._given(x.shape[0], copy=True)
            self._chains = _core.Chains(x, weights, options, start, saved, self.missing, noise)
            return self.go_on()

    def go_on(self, draws: int | None = None) -> Self:
        """Make the draws that are left of an interrupted run, or more of a finished one.
        Parameters: draws : int or None, default=None -- The number of draws of each chain in all; by default as many as before.
        """
        check_is_fitted(self, "_chains")
        if draws is not None:
            self._chains.set_draws(count(draws, "draws", least=0))
        try:
            self.finished_, error = self._chains.advance(_show if self.progress else None)
        finally:
            if self.progress:
                print(file=sys.stderr)
        variables, statistics = self._chains.names()
        self.draws_ = {name: self._chains.draws(name) for name in variables}
        self.sample_stats_ = {name: self._chains.draws(name) for name in statistics}
        if error is not None:
            raise error
        return self

    @property
    def mixtures_(self) -> list[Mixture]:
        """The mixture of each draw, chain after chain; their `Mixture.sum` is the predictive density."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        arrays = (self.draws_[name] for name in ("weights", "means", "covariances"))
        draws = zip(*(array.reshape(-1, *array.shape[2:]) for array in arrays), strict=True)
        return [Mixture._of(_core.Mixture(w, m, c, self.covariance_type), names) for w, m, c in draws]

    def summary(self) -> str:
        """Return a table of the parameters: means, quantiles, effective sample sizes, R-hat, and warnings."""
        check_is_fitted(self, "_chains")
        return self._chains.summary()[0]

    def r_hat(self) -> dict[str, float]:
        """Return the rank-normalised split R-hat of each parameter, by CmdStan's names; above 1.01 the chains do not agree."""
        check_is_fitted(self, "_chains")
        return {name: numbers[-1] for name, numbers in self._chains.summary()[2]}

    def save(self, prefix: str | os.PathLike[str], *, overwrite: bool = False) -> list[str]:
        """Write what the command ``gmm mcmc`` writes, a CSV in CmdStan's layout for each chain and PREFIX.npz, and return the files.
        Parameters:
        prefix : str or path-like -- The beginning of the names of the files.
        overwrite : bool, default=False -- Whether to replace existing files.
        """
        check_is_fitted(self, "_chains")
        return [os.fspath(path) for path in self._chains.save(os.fspath(prefix), overwrite)]

    def to_arviz(self) -> Any:
        """Return the draws and their statistics as ArviZ has them: `InferenceData`, or from ArviZ 1 on a `DataTree`."""
        check_is_fitted(self)
        # Its functions differ by version.
        arviz: Any = import_module("arviz")

        statistics: dict[str, NDArray[Any]] = {_ARVIZ_NAMES.get(name, name): values for name, values in self.sample_stats_.items()}
        if "diverging" in statistics:
            statistics["diverging"] = statistics["diverging"] != 0
        groups = {"posterior": self.draws_, "sample_stats": statistics}
        covariances = _AXES[self.covariance_type]
        dims = {"weights": ["component"], "means": ["component", "feature"], "covariances": covariances}
        if int(arviz.__version__.split(".")[0]) >= 1:
            return arviz.from_dict(groups, dims=dims)
        return arviz.from_dict(**groups, dims=dims)


def _show(warming_up: bool, done: int, of: int, acceptance: float, divergences: int) -> None:
    what = "warm-up" if warming_up else "draws"
    print(f"\r{what} {done:,} of {of:,}   ", end="", file=sys.stderr, flush=True)
