"""The log-likelihood of a mixture for automatic differentiation in PyTorch.

`log_likelihood` is a function of tensors, with derivatives by weights, means, covariances and samples. `LogLikelihood`
keeps the samples in a device for many calls, as an optimiser makes them. Both compute with the engine, where the
samples are, and need PyTorch.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import hmm
from ._differentiable import NO_SECOND_DERIVATIVES, Differentiable, Parameters, arrays_of
from ._documentation import document
from ._mixture import AnyMixture

__all__ = ["LogLikelihood", "MarkovLogLikelihood", "log_likelihood"]

#: Numbers of a buffer of the derivatives by samples on a GPU, of which there are about five: as many as fill the GPU, and
#: few beside what automatic differentiation holds.
_BUFFER = 1 << 22
#: Where the squared distance of a component from the centre of all, in standard deviations, is larger, squares of
#: differences are computed as such.
_SEPARATE = 1e8


class LogLikelihood:
    """The log-likelihood of samples that stay in a device, for automatic differentiation.

    ``log_likelihood(weights, means, covariances)`` is the total Σᵢ vᵢ log Σₖ wₖ N(xᵢ; μₖ, Σₖ) with the sample weights
    v, a tensor of no dimension. It has derivatives by the three parameters, and by the samples if they require
    gradients. Second derivatives are an error, and so are the transformations of `torch.func`.

    The weights are any numbers that are not negative: they are not divided by their sum, so that each is a variable of
    its own. Softmax makes such of free numbers. A covariance matrix must be symmetric. Its mirrored entries are two
    variables, of which the mean counts. Results are in float64, derivatives in the type of what they are by.
    Parameters:
    x : Tensor of shape (n_samples, n_features)
        The samples, float32 or float64. In a GPU's memory they stay there. The tensor is kept, and must not be
        changed while this object is in use.
    sample_weight : Tensor of shape (n_samples,), default=None -- A sample of weight 2 counts as two. There is no derivative by it.
    device : str, default=None -- Where to compute, as in :class:`gaussmix.Likelihood`; by default where the samples are.
    missing : bool, default=False
        Whether NaN stands for a value that is missing at random. Such samples in a GPU's memory are copied to the
        host. The derivative by a missing value is 0.
    """

    def __init__(
        self,
        x: Tensor,
        sample_weight: Tensor | None = None,
        *,
        covariance_type: str | None = None,
        device: str | None = None,
        float64: bool = False,
        n_jobs: int | None = None,
        missing: bool = False,
    ) -> None:
        if not isinstance(x, Tensor) or x.dtype not in (torch.float32, torch.float64):
            got = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"the samples are {got}; give a tensor of float32 or float64")
        if isinstance(sample_weight, Tensor) and sample_weight.requires_grad:
            raise ValueError("there is no derivative by sample_weight; give sample_weight.detach()")
        samples = x.detach()
        # Within a transformation also what was made before it has none.
        _refuse_transformed(samples, sample_weight)
        self._x, self._version = x, _version(x)
        self._sample_weight = None if sample_weight is None else torch.as_tensor(sample_weight, dtype=torch.float64).to(x.device).clone()
        self._function = Differentiable(
            samples if x.is_cuda else samples.cpu().numpy(),
            None if self._sample_weight is None else _on_host(self._sample_weight),
            covariance_type,
            device=device or ("auto" if x.is_cuda else "cpu"),
            float64=float64,
            n_jobs=n_jobs,
            missing=missing,
        )
        self._on_gpu = x.is_cuda and not missing

    def __call__(self, weights: Tensor | AnyMixture, means: Tensor | None = None, covariances: Tensor | None = None) -> Tensor:
        """Return the total log-likelihood."""
        return self._apply(False, weights, means, covariances)

    def score_samples(self, weights: Tensor | AnyMixture, means: Tensor | None = None, covariances: Tensor | None = None) -> Tensor:
        """Return the log-likelihood of each sample, (n_samples,), without its weight.

        Its derivatives by the parameters take one or two more evaluations of all samples, which are loaded again for
        them; those of the total cost nothing beside its value.
        """
        return self._apply(True, weights, means, covariances)

    def _apply(self, each: bool, *parameters: Any) -> Tensor:
        if _version(self._x) != self._version:
            raise RuntimeError("the samples were changed by an operation in place after they were loaded; make a new LogLikelihood of them")
        given = [torch.as_tensor(parameter) for parameter in arrays_of(self._function.covariance_type, *parameters)]
        _refuse_transformed(*given)
        return _Function.apply(self, each, torch.is_grad_enabled(), self._x, *given)

    def _by_samples(self, *parameters: NDArray[np.float64]) -> Tensor:
        """Give the derivatives of the samples' log-likelihoods by the samples, in float64 or in their type.

        The engine computes them. The one exception are samples on a GPU, for which it has no kernel.
        """
        if self._on_gpu:
            return _score_function_on_gpu(self._x.detach(), self._function.parameters(*parameters))
        return torch.from_numpy(self._function.score_function(*parameters)).to(self._x.device)


def log_likelihood(
    x: Tensor,
    weights: Tensor | AnyMixture,
    means: Tensor | None = None,
    covariances: Tensor | None = None,
    *,
    covariance_type: str | None = None,
    sample_weight: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Return the total log-likelihood of samples, in float64, where the samples are, with its derivatives.

    This loads the samples for one evaluation. For many of the same samples, `LogLikelihood` does so once; it also says
    what the weights and covariances may be.
    Parameters:
    x : Tensor of shape (n_samples, n_features) -- The samples, float32 or float64.
    **options : Any -- Other parameters of `LogLikelihood`.
    """
    return LogLikelihood(x, sample_weight, covariance_type=covariance_type, **options)(weights, means, covariances)


def _refuse_transformed(*tensors: Any) -> None:
    """Refuse the tensors of torch.func's transformations, which have no numbers for the engine."""
    if any(isinstance(x, Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(x) for x in tensors):
        raise NotImplementedError(
            "gaussmix.torch does not take part in the transformations of torch.func (grad, jacrev, vmap and others); "
            "differentiate by torch.autograd or .backward(), and evaluate one set of parameters after the other"
        )


def _version(x: Tensor) -> int | None:
    """Give the number of changes in place; tensors of inference mode count none."""
    return None if x.is_inference() else x._version


def _on_host(x: Tensor) -> NDArray[np.float64]:
    return x.detach().to("cpu", torch.float64).numpy()


class _Function(torch.autograd.Function):
    """The total, or the log-likelihood of each sample, of samples or, without x, of sequences.

    The derivatives of a total by parameters come with its value, in one evaluation.
    """

    @staticmethod
    def forward(ctx: Any, held: Any, each: bool, differentiated: bool, x: Tensor | None, *parameters: Tensor) -> Tensor:
        function, device = held._function, (parameters[0] if x is None else x).device
        arrays = map(_on_host, parameters)
        ctx.held, ctx.gradient = held, None
        ctx.save_for_backward(x, *parameters)
        if each:
            return torch.from_numpy(function.score_samples(*arrays)).to(device)
        if differentiated and any(ctx.needs_input_grad[4:]):
            value, ctx.gradient = function.gradient(*arrays)
        else:
            value = function(*arrays)
        return torch.tensor(value, dtype=torch.float64, device=device)

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:
        held, inputs, needed = ctx.held, ctx.saved_tensors, ctx.needs_input_grad[3:]

        def by_samples() -> Tensor:
            derivatives = held._by_samples(*map(_on_host, inputs[1:]))
            if factor.ndim == 0 and held._sample_weight is not None:
                derivatives *= held._sample_weight[:, None]
            return derivatives.mul_(factor if factor.ndim == 0 else factor[:, None])

        def by_parameters() -> list[Tensor]:
            factors = _on_host(factor)
            if ctx.gradient is not None:
                return [torch.from_numpy(part * factors) for part in ctx.gradient]
            return [torch.from_numpy(part) for part in held._function.gradient_of_scores(factors, *map(_on_host, inputs[1:]))]

        def compute() -> list[Tensor | None]:
            parts: list[Tensor | None] = [by_samples() if needed[0] else None]
            parts += by_parameters() if any(needed[1:]) else [None] * (len(inputs) - 1)
            return [
                part.to(one.device, one.dtype) if part is not None and need else None
                for part, one, need in zip(parts, inputs, needed, strict=True)
            ]

        # Gradients are recorded in `backward` only where derivatives of them may be asked for.
        derivatives: Any = _Derivatives.apply(compute, factor, *inputs) if torch.is_grad_enabled() else compute()
        return (None, None, None, *derivatives)


class _Derivatives(torch.autograd.Function):
    """Derivatives, which have none."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[[], list[Tensor | None]], *inputs: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(compute())

    @staticmethod
    def backward(ctx: Any, *factors: Tensor) -> Any:
        raise NotImplementedError(NO_SECOND_DERIVATIVES.format(library="PyTorch"))


class MarkovLogLikelihood:
    """The log-likelihood of sequences under a hidden Markov model, for automatic differentiation.

    ``log_likelihood(startprob, transmat, means, covars, weights=None)`` is the total, a tensor of no dimension in
    float64, with derivatives by all its arguments. Probabilities must sum to 1, as softmax makes them; one of 0 is a
    constant.
    Parameters:
    X : array-like of shape (n_samples, n_features) -- The rows of all sequences; there is no derivative by them.
    **options : Any -- Other parameters of :class:`gaussmix.hmm.Likelihood`.
    """

    def __init__(self, X: Any, lengths: Any = None, **options: Any) -> None:
        self._function = hmm.Likelihood(X, lengths, **options)

    def __call__(self, startprob: Tensor, transmat: Tensor, means: Tensor, covars: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the total log-likelihood."""
        parameters = [startprob, transmat, means, covars, *([] if weights is None else [weights])]
        _refuse_transformed(*parameters)
        return _Function.apply(self, False, torch.is_grad_enabled(), None, *parameters)


def _score_function_on_gpu(x: Tensor, of: Parameters) -> Tensor:
    """Give the derivatives of the samples' log-likelihoods by the samples, computed on the samples' GPU, in float64.

    It stands here because the engine's score function is computed on the host. The derivatives are -Σₖ rₖ Σₖ⁻¹ (x - μₖ)
    with the responsibilities r: a few products of matrices, chunk by chunk, so that intermediate results never exist for
    all samples at once.
    """
    k, d = of.means.shape
    weights, covariances = torch.from_numpy(of.weights), torch.from_numpy(of.covariances)
    # Around the centre of the mixture, so that little is lost where all of it is far from the origin.
    centre = weights @ torch.from_numpy(of.means) / weights.sum()
    means = torch.from_numpy(of.means) - centre
    if of.matrices:
        factors = torch.linalg.cholesky(covariances)
        identity = torch.eye(d, dtype=torch.float64)
        # The precisions are U Uᵀ.
        u = torch.linalg.solve_triangular(factors, identity, upper=False).mT.expand(k, d, d)
        constants = weights.log() + u.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        # yₖ = Uₖᵀ (x - μₖ) of all components is one product.
        matrix = u.permute(1, 0, 2).reshape(d, k * d).to(x.device)
        shifts = torch.bmm(means[:, None], u).reshape(-1).to(x.device)
    else:
        precisions = covariances.reciprocal().reshape(k, -1).expand(k, d)
        constants = weights.log() + precisions.log().sum(-1) / 2
        separate = bool((precisions * means**2).sum(-1).max() > _SEPARATE)
        matrix, products = precisions.to(x.device), (precisions * means).to(x.device)
        if not separate:
            constants = constants - (precisions * means**2).sum(-1) / 2
    centre, constants, means = (part.to(x.device) for part in (centre, constants, means))
    derivatives = torch.empty_like(x)
    size = max(1, _BUFFER // ((k if of.matrices else 1) * d))
    for rows, out in zip(x.split(size), derivatives.split(size), strict=True):
        delta = rows.to(torch.float64) - centre
        if of.matrices:
            y = torch.addmm(shifts, delta, matrix, beta=-1).view(-1, k, d)
            r = torch.softmax(constants - torch.linalg.vector_norm(y, dim=-1).square() / 2, dim=1)
            y *= r[:, :, None]
            out.copy_(torch.mm(y.view(-1, k * d), matrix.mT).neg_())
            continue
        if separate:
            # Squares of differences, of which the terms would cancel.
            squares = torch.stack([((delta - mean) ** 2) @ p for mean, p in zip(means, matrix, strict=True)], dim=1)
            logs = constants - squares / 2
        else:
            logs = torch.addmm(constants, delta.square(), matrix.mT, alpha=-0.5).addmm_(delta, products.mT)
        r = torch.softmax(logs, dim=1)
        out.copy_(torch.addcmul(r @ products, delta, r @ matrix, value=-1))
    return derivatives


document()
