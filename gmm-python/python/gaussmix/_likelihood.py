"""The likelihood of data that stays in a device, under many mixtures."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arrays, _core
from ._arrays import Floats, Given, Measurements, is_mapped, n_threads, numbers_of
from ._gpu import checked, on_gpu, on_host
from ._mixture import AnyMixture, mixture_of

_Value = TypeVar("_Value")
#: Weights beside means and covariances, or a mixture alone; for totals also a list of mixtures.
Weights: TypeAlias = ArrayLike | AnyMixture | Sequence[AnyMixture]


class Evaluation:
    """The methods of a likelihood: each evaluates a mixture, or that of the parameters that it is given."""

    #: The samples.
    _data: _core.Data
    _covariance_type: str | None
    #: Whether the samples have noise.
    _measured = False

    def _expect(self, covariance_type: str | None) -> None:
        """Take all covariances for those of a type; None leaves it to their shape."""
        if covariance_type is not None:
            _core.covariance_form(covariance_type)
        self._covariance_type = covariance_type

    def _evaluate(
        self, evaluate: Callable[[_core.Data, Any], _Value], weights: Any, means: Any, covariances: Any, several: bool = False
    ) -> _Value:
        """Evaluate the mixture of parameters, or a mixture; with ``several`` one set of parameters or more."""
        if means is None and covariances is None:
            if several and isinstance(weights, list | tuple):
                return evaluate(self._data, _core.Mixtures.several([mixture_of(one, "one of the mixtures")._engine for one in weights]))
            mixture = mixture_of(weights, "what is evaluated")._engine
            return evaluate(self._data, _core.Mixtures.one(mixture) if several else mixture)
        if means is None or covariances is None:
            raise TypeError("give weights, means and covariances, or a mixture alone")
        kind = _core.Mixtures if several else _core.Mixture
        return evaluate(self._data, kind(weights, means, covariances, self._covariance_type))

    def __call__(self, weights: Weights, means: ArrayLike | None = None, covariances: ArrayLike | None = None) -> Any:
        """Return the total log-likelihood, of one set of parameters or of each of several."""
        return self._evaluate(_core.Data.totals, weights, means, covariances, True)

    def score_samples(self, weights: Weights, means: ArrayLike | None = None, covariances: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the log-likelihood of each sample, (n_samples,), without its weight."""
        return self._evaluate(_core.Data.scores, weights, means, covariances)

    def gradient(
        self, weights: Weights, means: ArrayLike | None = None, covariances: ArrayLike | None = None
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the total log-likelihood and its derivatives.

        Each entry of the arrays is a variable of its own: the weights need not sum to 1, and the two mirrored entries
        of a covariance matrix are two variables with the same derivative. A component of weight 0 has one by its weight
        too.
        Returns:
        value : float -- The total log-likelihood.
        by_weights : ndarray of shape (n_components,) -- Its derivatives by the weights.
        by_means : ndarray of shape (n_components, n_features) -- Its derivatives by the means.
        by_covariances : ndarray -- Its derivatives by the covariances, in their shape.
        """
        return self._evaluate(_core.Data.gradient, weights, means, covariances)

    def score_function(self, weights: Weights, means: ArrayLike | None = None, covariances: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the score function, (n_samples, n_features): the derivatives of each sample's log-likelihood by it, 0 if missing."""
        if self._measured:
            raise ValueError("score_function knows no noise; give samples without noise")
        return self._evaluate(_core.Data.score_function, weights, means, covariances)

    def statistics(self, weights: Weights, means: ArrayLike | None = None, covariances: ArrayLike | None = None) -> _core.Statistics:
        """Return the sufficient statistics under a mixture: counts, means and scatter of the components, and the log-likelihood.

        They are a value: ``a + b`` are those of the samples of both, ``bytes(a)`` and `Statistics.from_bytes` carry
        them from one computer to another, and ``a.to_mixture()`` is the M-step.
        """
        return self._evaluate(_core.Data.e_step, weights, means, covariances)


class Likelihood(Evaluation):
    """The log-likelihood of samples that stay in a device, for one set of parameters after the other.

    ``likelihood(weights, means, covariances)`` is the total log-likelihood, a float. The arrays have the shapes (K,),
    (K, D) and that of the covariance type. Where each has one more axis in front, they are B sets of parameters, and
    the result is an array (B,) of totals, which takes less time than B calls. ``likelihood(mixture)`` takes a `Mixture`
    or a fitted estimator instead, or a list of them; so do the methods.

    Several threads may call the same object; they take turns.
    Parameters:
    X : array-like of shape (n_samples, n_features)
        The samples. float32 is computed in float32 with sums in float64, other types in float64. An array in a
        GPU's memory (of PyTorch, CuPy, JAX or another library that knows DLPack) stays on that GPU. Of
        :class:`gaussmix.deconvolution.Measurements` the likelihood is that of the mixture of their true values.
    device : str, default='auto'
        Where to compute: 'auto', 'cpu', 'cuda', 'cuda:N', 'cuda:all', a list such as 'cuda:0,2', or 'reference'.
        'auto' chooses before the first result; for an array in a GPU's memory it is that GPU, as 'cuda' is.
    missing : bool, default=False
        Whether NaN stands for a value that is missing at random. The likelihood of a sample is then that of its
        observed values. An array in a GPU's memory is copied to the host first.
    copy : bool, default=True
        Without a copy the array is kept, and must not be changed while this object is in use. An array in a
        memory-mapped file is never copied.
    Examples:
    >>> import numpy as np
    >>> from gaussmix import Likelihood
    >>> likelihood = Likelihood(np.array([[0.0], [1.0]]))
    >>> weights, means, covariances = [1.0], [[0.5]], [1.0]
    >>> round(likelihood(weights, means, covariances), 6)
    -2.087877
    >>> likelihood([weights, weights], [means, [[0.0]]], [covariances, covariances]).round(6)
    array([-2.087877, -2.337877])
    """

    def __init__(
        self,
        X: ArrayLike | Measurements,
        sample_weight: ArrayLike | None = None,
        *,
        device: str = "auto",
        covariance_type: str | None = None,
        float64: bool = False,
        n_jobs: int | None = None,
        missing: bool = False,
        copy: bool = True,
    ) -> None:
        samples: Floats | _core.GpuArray
        noise: Given | None = None
        if isinstance(X, Measurements):
            measured, X, self._measured = X, X.X, True
            noise = measured._given(len(on_host(X)), copy=copy)
        if missing and on_gpu(X):
            X, copy = _arrays.copied_from_gpu(X, type(self).__name__), False
        if on_gpu(X):
            samples = checked(X, type(self).__name__)
        else:
            X = on_host(X)
            samples = _arrays.native(numbers_of(X, "X", [np.float64, np.float32]))
            # A copy made here need not be copied again.
            copy = copy and not is_mapped(X) and np.may_share_memory(samples, np.asarray(X))
        _arrays.refuse_masked(sample_weight, "sample_weight")
        self._expect(covariance_type)
        with _arrays.refusing_non_finite(samples, missing=missing):
            self._data = _core.Data(
                samples,
                on_host(sample_weight),
                device=device,
                float64=float64,
                threads=n_threads(n_jobs),
                copy=copy,
                settle=True,
                memory=_arrays.MEMORY,
                missing=missing,
                noise=noise,
            )

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of samples and features."""
        return self._data.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the samples."""
        return self._data.dtype

    @property
    def total_weight(self) -> float:
        """The sum of the sample weights; without weights the number of samples."""
        return self._data.total_weight

    @property
    def device(self) -> str:
        """The device of the last evaluation, in words."""
        return self._data.describe()[0]

    @property
    def kernel(self) -> str:
        """The kernel (code variant) of the last evaluation."""
        return self._data.describe()[1]

    def __reduce__(self) -> Any:
        raise TypeError("a Likelihood cannot be pickled; make one of the data in each process")


def inner_products(rows: ArrayLike, matrix: ArrayLike, *, device: str = "auto") -> Floats:
    """Return the products of rows with the rows of a matrix, (n, m): ``rows @ matrix.T``.

    For many products with the same matrix, :class:`InnerProducts` keeps it in the device.
    Parameters:
    rows : array-like of shape (n, d) -- The rows, float32 or float64; other types become float64.
    matrix : array-like of shape (m, d) -- The matrix.
    device : str, default='auto' -- Where to compute; a GPU computes in float32 only.
    Examples:
    >>> from gaussmix import inner_products
    >>> inner_products([[1.0, 2.0]], [[1.0, 0.0], [3.0, 4.0]])
    array([[ 1., 11.]])
    """
    a, b = _pair(rows, matrix)
    return _core.InnerProducts(b, device).products(a)


class InnerProducts:
    """A matrix that stays in a device, and is multiplied with rows.
    Parameters:
    matrix : array-like of shape (m, d) -- The matrix, float32 or float64; other types become float64.
    device : str, default='auto' -- Where to compute; a GPU computes in float32 only.
    """

    def __init__(self, matrix: ArrayLike, *, device: str = "auto") -> None:
        self._matrix = numbers_of(matrix, "matrix", [np.float64, np.float32])
        self._resident = _core.InnerProducts(self._matrix, device)

    def __call__(self, rows: ArrayLike) -> Floats:
        """Return ``rows @ matrix.T``, (n, m), in the type of the matrix.
        Parameters: rows : array-like of shape (n, d) -- The rows.
        """
        return self._resident.products(numbers_of(rows, "rows", self._matrix.dtype))


def gaussian_kernel(a: ArrayLike, b: ArrayLike, *, gamma: float, pairs: bool = False, device: str = "auto") -> Floats:
    """Return the Gaussian kernel exp(-gamma ‖x - y‖²) of rows, (n, m), or (n,) with `pairs`.
    Parameters:
    a : array-like of shape (n, d) -- Rows, float32 or float64; other types become float64.
    b : array-like of shape (m, d) -- Rows.
    gamma : float -- A number above 0.
    pairs : bool, default=False -- Whether row i of `a` goes with row i of `b` only, instead of each with each.
    device : str, default='auto' -- Where to compute; a GPU computes in float32 only.
    Examples:
    >>> from gaussmix import gaussian_kernel
    >>> gaussian_kernel([[0.0], [1.0]], [[0.0]], gamma=0.5).round(4)
    array([[1.    ],
           [0.6065]])
    """
    x, y = _pair(a, b)
    return _core.gaussian_kernel(x, y, gamma, pairs, device)


def _pair(a: ArrayLike, b: ArrayLike) -> tuple[Floats, Floats]:
    """Convert two arrays to a common type; the engine looks for NaN."""
    x, y = (numbers_of(part, "rows", [np.float64, np.float32]) for part in (a, b))
    dtype = np.result_type(x.dtype, y.dtype)
    return x.astype(dtype, copy=False), y.astype(dtype, copy=False)
