"""Arrays in a GPU's memory, and of other libraries that know DLPack: PyTorch, CuPy, JAX."""

from typing import Any, TypeVar

import numpy as np
from sklearn import get_config
from sklearn.utils import check_array

from . import _core

_Result = TypeVar("_Result")
#: DLPack's numbers of the devices whose memory a CUDA GPU reads: its own, and that which it shares with the host.
_CUDA = (2, 13)


def on_gpu(X: Any) -> bool:
    """Say whether ``X`` is an array in a CUDA GPU's memory."""
    if type(X) is np.ndarray:
        return False
    if isinstance(X, _core.GpuArray):
        return True
    device = getattr(X, "__dlpack_device__", None)
    if device is None:
        return False
    try:
        return int(device()[0]) in _CUDA
    except Exception:
        # Parts on several devices, a class in the place of an array: NumPy takes it, or says why it cannot.
        return False


def _dispatched(X: Any) -> bool:
    """Say whether scikit-learn's array_api_dispatch asks for results in the library of ``X``, which is another than NumPy."""
    return hasattr(X, "__dlpack__") and not isinstance(X, (np.ndarray, np.generic)) and bool(get_config().get("array_api_dispatch"))


def on_host(X: Any) -> Any:
    """Bring an array of a GPU to the host, and under array_api_dispatch any to NumPy; give back all else as it is."""
    if on_gpu(X):
        if isinstance(X, _core.GpuArray):
            return X.to_numpy()
        # The engine copies rows; the matrices of attributes are rows of rows.
        return _core.GpuArray(X.reshape(-1, X.shape[-1]) if X.ndim > 2 else X).to_numpy().reshape(X.shape)
    return np.from_dlpack(X) if _dispatched(X) else X


def checked(X: Any, user: str, *, min_samples: int = 1) -> _core.GpuArray:
    """Check the shape of samples in a GPU's memory, with scikit-learn's messages; the engine looks for NaN."""
    array = X if isinstance(X, _core.GpuArray) else _core.GpuArray(X)
    if array.ndim < 2:
        kind = "scalar" if array.ndim == 0 else f"{array.ndim}D"
        raise ValueError(
            f"Expected 2D array, got {kind} array instead.\n"
            "Reshape your data either using array.reshape(-1, 1) if your data has a single feature or "
            "array.reshape(1, -1) if it contains a single sample."
        )
    # An array of this shape that takes no memory.
    check_array(np.broadcast_to(np.float32(0.0), array.shape), ensure_all_finite=False, ensure_min_samples=min_samples, estimator=user)
    return array


def beside(result: _Result, X: Any) -> _Result:
    """Return numbers in the library and on the device of ``X`` where scikit-learn's array_api_dispatch asks for that."""
    if not _dispatched(X) or np.asarray(result).dtype.kind not in "fiu":
        return result
    from sklearn.utils._array_api import get_namespace_and_device

    namespace, _, device = get_namespace_and_device(X)
    return namespace.asarray(result, device=device)


def place(estimator: Any, X: Any) -> None:
    """Move the fitted attributes, but for the classes, beside ``X``."""
    if _dispatched(X):
        arrays = {name: value for name, value in vars(estimator).items() if isinstance(value, np.ndarray) and name.endswith("_")}
        vars(estimator).update({name: beside(value, X) for name, value in arrays.items() if name != "classes_"})
