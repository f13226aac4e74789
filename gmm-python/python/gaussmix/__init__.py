"""Gaussian mixtures on the CPU and on CUDA GPUs, with scikit-learn's interface.

`GaussianMixture` fits as scikit-learn's class of this name does.
"""

import os

from . import _core
from ._core import __version__
from ._estimator import GaussianMixture, Iteration

__all__ = ["GaussianMixture", "Iteration", "__version__"]

if hasattr(os, "register_at_fork"):
    # The engine's threads stay in the parent.
    os.register_at_fork(after_in_child=_core.after_fork)
