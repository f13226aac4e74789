"""The parameters of the estimator: what each may be, and the check of them."""

import operator
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from inspect import signature
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.mixture import BayesianGaussianMixture as _Bayesian
from sklearn.mixture import GaussianMixture as _Gaussian
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from . import _core

#: scikit-learn's classes, also when ours are in their places.
ScikitLearn: Any = _Gaussian
BayesianScikitLearn: Any = _Bayesian
#: What scikit-learn's check takes of parameters that its own estimators do not have, or have in fewer forms.
_OWN: dict[str, list[Any]] = {
    "init_params": [StrOptions({"kmeans", "k-means++", "random", "random_from_data", "hierarchical"}), "array-like", callable],
    "hierarchical_rows": [Interval(Integral, 1, None, closed="left")],
    "halving": ["boolean"],
    "device": [str],
    "freeze": [str, list, tuple, set, dict, None],
    "standardize": ["boolean"],
    "decay": [Interval(Real, 0.5, 1.0, closed="right")],
    "n_jobs": [Integral, None],
    "missing": ["boolean"],
    "reproducible": ["boolean"],
    "callback": [callable, None],
}
#: What it takes of all.
CONSTRAINTS = {
    **ScikitLearn._parameter_constraints,
    **_OWN,
    "covariance_type": [StrOptions({"full", "tied", "diag", "spherical", *_core.MODELS})],
    "prior": [StrOptions({"default"}), dict, None],
    "noise": ["boolean", Interval(Real, 0.0, 1.0, closed="neither"), dict, "array-like"],
}
#: The same for the estimator by variational inference.
BAYESIAN_CONSTRAINTS = {
    **BayesianScikitLearn._parameter_constraints,
    **_OWN,
    "total_samples": [None, Interval(Real, 0.0, None, closed="neither")],
}

#: The engine counts no further.
_MOST = 2**63 - 1
#: The types of parameters that cannot change.
_SIMPLE = frozenset({int, float, str, bool, type(None)})
#: The parameters of classes that are known to be valid.
_VALID: set[tuple[type, tuple[type, ...], tuple[Any, ...]]] = set()


def validate(estimator: Any, check: Callable[[], None]) -> None:
    """Check the parameters of an estimator, unless equal ones of its class have passed before."""
    values = tuple(getattr(estimator, name) for name in estimator._parameter_constraints)
    types = tuple(map(type, values))
    if not _SIMPLE.issuperset(types):
        check()
        return
    # 1, 1.0 and True are equal, but not as parameters.
    key = (type(estimator), types, values)
    if key not in _VALID:
        check()
        if len(_VALID) >= 1000:
            _VALID.clear()
        _VALID.add(key)


def set_parameters(estimator: Any, given: Mapping[str, Any], init: Callable[..., None] | None = None) -> None:
    """Set an estimator's parameters: its constructor's local variables; with `init`, the constructor, ``**params`` and defaults too."""
    own = {name: value for name, value in given.items() if name not in ("self", "__class__")}
    if init is not None:
        defaults = {name: parameter.default for name, parameter in signature(init).parameters.items() if name != "self"}
        params = own.pop("params")
        if unknown := [name for name in params if name not in defaults]:
            raise TypeError(f"{type(estimator).__name__}.__init__() got an unexpected keyword argument {unknown[0]!r}")
        own = {**defaults, **own, **params}
    vars(estimator).update(own)


def frozen(freeze: str | Iterable[str] | Mapping[str, Any] | None, n_components: int) -> list[str]:
    """Check and sort what a fit is to leave as it is, each parameter as the engine takes it."""
    if isinstance(freeze, str):
        _core.check_freeze(freeze)
        return [freeze]
    chosen = freeze if isinstance(freeze, Mapping) else dict.fromkeys(freeze or (), True)
    names = []
    for name, components in chosen.items():
        if components is True:
            names.append(name)
        elif isinstance(components, str):
            names.append(f"{name}={components}")
        elif components is not None and components is not False:
            numbers = _numbers(name, components, n_components)
            names += [f"{name}={','.join(map(str, numbers))}"] if numbers else []
    if names:
        _core.check_freeze(",".join(names))
    return sorted(names)


def _numbers(name: str, components: Any, n_components: int) -> list[int]:
    """Give the components of which a parameter is frozen, from their numbers or a mask."""
    array = np.asarray(components)
    if array.dtype == bool:
        if array.shape != (n_components,):
            raise ValueError(f"the mask of freeze[{name!r}] has the shape {array.shape}; it should be ({n_components},)")
        array = np.flatnonzero(array)
    if array.size == 0:
        return []
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= n_components:
        raise ValueError(f"freeze[{name!r}] is {components!r}; give component numbers from 0 to {n_components - 1}, or a mask")
    return [int(number) for number in array]


def whole(value: Any, name: str, remedy: str = "give a whole number") -> int:
    """Check that a value is a whole number, and no truth value, which would count as 0 or 1."""
    if not isinstance(value, (bool, np.bool_)):
        with suppress(TypeError):
            return operator.index(value)
    raise TypeError(f"{name} is {value!r}; {remedy}")


def count(value: Any, name: str, least: int = 1) -> int:
    """Check that a value is a whole number that the engine takes."""
    number = whole(value, name)
    if not least <= number <= _MOST:
        raise ValueError(f"{name} is {number}; give a whole number from {least} to {_MOST}")
    return number


def seed_of(random_state: Any) -> int:
    """Draw a seed of the engine."""
    return int(check_random_state(random_state).randint(0, 2**31 - 1))


def plain(value: Any) -> Any:
    """Give a number as one of Python's own types."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def noise_component(noise: Any) -> dict[str, Any] | None:
    """Return the engine's noise: its share at the start, its volume, and the rows that begin as noise."""
    if isinstance(noise, (bool, np.bool_)):
        return {} if noise else None
    given = dict(noise) if isinstance(noise, Mapping) else {"share": noise} if isinstance(noise, Real) else {"rows": noise}
    if unknown := [name for name in given if name not in ("share", "volume", "rows")]:
        raise ValueError(f"noise names {unknown[0]!r}; use 'share', 'volume' and 'rows'")
    found = {name: float(given[name]) for name in ("share", "volume") if given.get(name) is not None}
    if given.get("rows") is None:
        return found
    rows = np.asarray(given["rows"])
    if rows.ndim != 1 or rows.dtype != bool and (not np.issubdtype(rows.dtype, np.integer) or np.any(rows < 0)):
        raise ValueError("the rows of noise are no mask (n_samples,) and no row numbers counted from 0; give either")
    return {**found, "rows": (np.flatnonzero(rows) if rows.dtype == bool else rows).tolist()}


#: What a prior of a fit by EM consists of.
_PRIOR = ("weight_concentration", "mean_precision", "mean", "degrees_of_freedom", "covariance")


def map_prior(
    prior: str | Mapping[str, Any] | None, standardize: bool, covariance_type: str
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Check a prior of a fit by EM; give its numbers, and its arrays by the names that the engine has for them."""
    if prior is None:
        return None, {}
    given: dict[str, Any] = dict(prior) if isinstance(prior, Mapping) else {}
    for name in given:
        if name not in _PRIOR:
            raise ValueError(f"prior names {name!r}; use {', '.join(map(repr, _PRIOR))}")
        if standardize and name in ("mean", "covariance") and given[name] is not None:
            raise ValueError(f"prior gives a {name}, which has units, beside standardize=True; leave it out, or set standardize=False")
    mean, covariance = given.pop("mean", None), given.pop("covariance", None)
    arrays = {}
    if mean is not None:
        arrays["prior_mean"] = np.atleast_2d(np.asarray(mean, dtype=np.float64))
    if covariance is not None:
        covariance = np.atleast_1d(np.asarray(covariance, dtype=np.float64))
        arrays["prior_covariance"] = covariance[np.newaxis] if _core.covariance_form(covariance_type) in ("full", "diag") else covariance
    return {name: float(value) for name, value in given.items() if value is not None}, arrays
