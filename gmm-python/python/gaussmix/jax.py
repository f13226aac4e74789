"""The log-likelihood of a mixture for automatic differentiation in JAX.

`log_likelihood` is a function of arrays, with derivatives by weights, means, covariances and samples. `LogLikelihood`
keeps the samples in a device for many calls, as an optimiser makes them. Both compute with the engine, also in
functions that `jax.jit` compiles, and need JAX.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from . import hmm
from ._differentiable import NO_SECOND_DERIVATIVES, Differentiable, arrays_of, check_shapes
from ._documentation import document
from ._gpu import on_gpu
from ._mixture import AnyMixture

__all__ = ["LogLikelihood", "MarkovLogLikelihood", "log_likelihood"]


@dataclass(frozen=True)
class _Source:
    """Where a function finds its samples, a constant of what JAX compiles: they are held, or each call loads them."""

    covariance_type: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    held: Differentiable | hmm.Likelihood | None = None

    def function(self, x: Any, sample_weight: Any) -> Any:
        """Return the function of samples."""
        if self.held is not None:
            return self.held
        weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        return Differentiable(np.asarray(x), weights, self.covariance_type, **dict(self.options))


class LogLikelihood:
    """The log-likelihood of samples that stay in a device, for automatic differentiation.

    ``log_likelihood(weights, means, covariances)`` is the total Σᵢ vᵢ log Σₖ wₖ N(xᵢ; μₖ, Σₖ) with the sample weights
    v, and has derivatives by the three parameters. Second derivatives, and those of forward mode, are an error.
    `jax.vmap` evaluates one set of parameters after the other.

    The weights are any numbers that are not negative: they are not divided by their sum, so that each is a variable of
    its own. Softmax makes such of free numbers. A covariance matrix must be symmetric. Its mirrored entries are two
    variables, of which the mean counts. The result has the type of the parameters; it is float64 only where JAX has
    that (``jax_enable_x64``).
    Parameters:
    x : array of shape (n_samples, n_features)
        The samples, float32 or float64. In a GPU's memory they stay there, and only the parameters and their
        derivatives pass through the host.
    sample_weight : array of shape (n_samples,), default=None -- A sample of weight 2 counts as two. There is no derivative by it.
    device : str, default=None -- Where to compute, as in :class:`gaussmix.Likelihood`; by default where the samples are.
    **options : Any -- Other parameters of :class:`gaussmix.Likelihood`.
    """

    def __init__(
        self,
        x: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        covariance_type: str | None = None,
        device: str | None = None,
        **options: Any,
    ) -> None:
        if isinstance(x, jax.core.Tracer) or isinstance(sample_weight, jax.core.Tracer):
            raise TypeError(
                "LogLikelihood keeps the numbers of its samples and their weights, and in a transformed function there are "
                "none yet; make it outside, or use log_likelihood"
            )
        there = on_gpu(x)
        weights = None if sample_weight is None else np.array(sample_weight, np.float64)
        device = device or ("auto" if there else "cpu")
        samples = x if there else np.asarray(x)
        held = Differentiable(samples, weights, covariance_type, device=device, **options)
        self._source = _Source(covariance_type, held=held)

    def __call__(self, weights: ArrayLike | AnyMixture, means: ArrayLike | None = None, covariances: ArrayLike | None = None) -> Array:
        """Return the total log-likelihood."""
        return _evaluated(self._source, None, None, weights, means, covariances)


def log_likelihood(
    x: ArrayLike,
    weights: ArrayLike | AnyMixture,
    means: ArrayLike | None = None,
    covariances: ArrayLike | None = None,
    *,
    covariance_type: str | None = None,
    sample_weight: ArrayLike | None = None,
    device: str = "cpu",
    **options: Any,
) -> Array:
    """Return the total log-likelihood of samples, in the type of the arrays, with its derivatives.

    This loads the samples for each evaluation, and those in a GPU's memory pass through the host. For many evaluations
    of the same samples, `LogLikelihood` loads them once; it also says what the weights and covariances may be.
    Parameters:
    x : array of shape (n_samples, n_features) -- The samples, float32 or float64.
    device : str, default='cpu' -- Where to compute, as in :class:`gaussmix.Likelihood`.
    **options : Any -- Other parameters of :class:`gaussmix.Likelihood`.
    """
    source = _Source(covariance_type, (("device", device), *sorted(options.items())))
    return _evaluated(source, x, sample_weight, weights, means, covariances)


def _evaluated(source: _Source, x: Any, sample_weight: Any, *parameters: Any) -> Array:
    arrays = [jax.numpy.asarray(parameter) for parameter in arrays_of(source.covariance_type, *parameters)]
    x, sample_weight = (None if given is None else jax.numpy.asarray(given) for given in (x, sample_weight))
    # An error of the engine would come out of the midst of what JAX has compiled.
    shape = source.held.likelihood.shape if isinstance(source.held, Differentiable) else x.shape
    if len(shape) != 2:
        raise ValueError(f"the samples have the shape {shape}; give (n_samples, n_features)")
    weights, means, covariances = arrays
    check_shapes(shape[1], weights, means, covariances, source.covariance_type)
    if sample_weight is not None and sample_weight.shape != shape[:1]:
        raise ValueError(f"the sample weights have the shape {sample_weight.shape}; for the samples it is {shape[:1]}")
    kind = jax.numpy.result_type(*arrays, *([] if x is None else [x]), np.float32)
    arrays = [array.astype(kind) for array in arrays]
    return _total(source, x, sample_weight, *arrays)


def _asked(method: str, source: _Source, shapes: Any, x: Any, sample_weight: Any, *parameters: Array) -> Any:
    """Have the engine compute at once, or when the function runs that JAX compiles, for one set of arguments after the other."""

    def call(x: Any, sample_weight: Any, *parameters: Any) -> Any:
        function = source.function(x, sample_weight)
        # JAX's own softmax in float32 sums to 1 within its rounding.
        found = getattr(function, method)(*(np.asarray(parameter, np.float64) for parameter in parameters))
        return jax.tree.map(lambda array, like: np.asarray(array, like.dtype), found, shapes)

    given = (x, sample_weight, *parameters)
    if not any(isinstance(array, jax.core.Tracer) for array in given):
        # JAX would compile the call, and never free the samples.
        return jax.tree.map(jax.numpy.asarray, call(*given))
    return jax.pure_callback(call, shapes, *given, vmap_method="sequential")


def _like(array: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _scalar(*parameters: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((), parameters[0].dtype)


def _only_once(method: str, shapes: Any) -> Any:
    """Return the function of a method, of which there are no derivatives; `shapes` makes those of its results from the arrays."""

    @partial(jax.custom_jvp, nondiff_argnums=(0,))
    def function(source: _Source, x: Any, sample_weight: Any, *parameters: Array) -> Any:
        return _asked(method, source, shapes(x, *parameters), x, sample_weight, *parameters)

    @function.defjvp
    def _(source: _Source, primals: Any, tangents: Any) -> Any:
        raise NotImplementedError(NO_SECOND_DERIVATIVES.format(library="JAX"))

    return function


_with_gradient = _only_once("gradient", lambda _, *parameters: (_scalar(*parameters), [_like(part) for part in parameters]))
_score_samples = _only_once("score_samples", lambda x, *parameters: jax.ShapeDtypeStruct(x.shape[:1], parameters[0].dtype))
_score_function = _only_once("score_function", lambda x, *_: _like(x))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _total(source: _Source, x: Any, sample_weight: Any, *parameters: Array) -> Any:
    return _asked("__call__", source, _scalar(*parameters), x, sample_weight, *parameters)


def _forward(source: _Source, *primals: Any) -> Any:
    # Of what is not differentiated, no derivative is computed.
    kind = jax.custom_derivatives.CustomVJPPrimal
    x, sample_weight, *parameters = jax.tree.map(lambda primal: primal.value, primals, is_leaf=lambda node: isinstance(node, kind))
    value, gradient = _with_gradient(source, x, sample_weight, *parameters)
    # The total is linear in the sample weights.
    by = tuple(primal is not None and primal.perturbed for primal in primals[:2])
    return value, (gradient, (x, sample_weight, *parameters) if any(by) else None, by)


def _backward(source: _Source, residuals: Any, factor: Any) -> Any:
    gradient, arguments, (by_samples, by_weights) = residuals
    if isinstance(factor, jax.custom_derivatives.SymbolicZero):
        return (None, None, *[None] * len(gradient))
    of_samples = of_weights = None
    if by_samples:
        x, sample_weight = arguments[:2]
        scale = factor if sample_weight is None else factor * sample_weight[:, None]
        of_samples = (_score_function(source, *arguments) * scale).astype(x.dtype)
    if by_weights:
        of_weights = (_score_samples(source, *arguments) * factor).astype(arguments[1].dtype)
    return (of_samples, of_weights, *[(factor * part).astype(part.dtype) for part in gradient])


_total.defvjp(_forward, _backward, symbolic_zeros=True)


class MarkovLogLikelihood:
    """The log-likelihood of sequences under a hidden Markov model, for automatic differentiation.

    ``log_likelihood(startprob, transmat, means, covars, weights=None)`` is the total, in the type of the parameters,
    with derivatives by all its arguments, also in functions that `jax.jit` compiles. Probabilities must sum to 1, as
    softmax makes them; one of 0 is a constant.
    Parameters:
    X : array of shape (n_samples, n_features) -- The rows of all sequences; there is no derivative by them.
    **options : Any -- Other parameters of :class:`gaussmix.hmm.Likelihood`.
    """

    def __init__(self, X: ArrayLike, lengths: ArrayLike | None = None, **options: Any) -> None:
        self._source = _Source(held=hmm.Likelihood(np.asarray(X), lengths, **options))

    def __call__(
        self, startprob: ArrayLike, transmat: ArrayLike, means: ArrayLike, covars: ArrayLike, weights: ArrayLike | None = None
    ) -> Array:
        """Return the total log-likelihood."""
        given = [startprob, transmat, means, covars, *([] if weights is None else [weights])]
        arrays = [jax.numpy.asarray(parameter) for parameter in given]
        kind = jax.numpy.result_type(*arrays, np.float32)
        return _total(self._source, None, None, *[array.astype(kind) for array in arrays])


document()
