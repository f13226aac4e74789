"""Gaussian mixtures on the CPU and on CUDA GPUs, with scikit-learn's interface.

`GaussianMixture` and `BayesianGaussianMixture` fit as scikit-learn's classes of these names do, and `patch_sklearn`
puts them in their place. A `Mixture` is what they find: it evaluates and draws samples, has parts and distances, and
makes other mixtures. `Likelihood` evaluates many mixtures over data that stays in a device, and `MixturePosterior`
draws from the posterior. `fit_many` fits a mixture to each of many groups of samples. `GaussianMixtureRegressor`,
`GaussianMixtureClassifier` and `GaussianMixtureOutlierDetector` predict by mixtures. The module `hmm` has hidden Markov
models.
"""

import os

from . import _core
from ._bayes import MixturePosterior
from ._classifier import GaussianMixtureClassifier
from ._core import Statistics, __version__
from ._documentation import document
from ._estimator import GaussianMixture
from ._likelihood import InnerProducts, Likelihood, gaussian_kernel, inner_products
from ._many import ManyMixtures, fit_many
from ._mixture import Mixture, Regression
from ._onnx import register_skl2onnx, to_onnx
from ._outliers import GaussianMixtureOutlierDetector
from ._patch import patch_hmmlearn, patch_sklearn, unpatch_hmmlearn, unpatch_sklearn
from ._pictures import plot
from ._regressor import GaussianMixtureRegressor
from ._select import Selection, select
from ._variational import BayesianGaussianMixture

__all__ = [
    "BayesianGaussianMixture",
    "GaussianMixture",
    "GaussianMixtureClassifier",
    "GaussianMixtureOutlierDetector",
    "GaussianMixtureRegressor",
    "InnerProducts",
    "Likelihood",
    "ManyMixtures",
    "Mixture",
    "MixturePosterior",
    "Regression",
    "Selection",
    "Statistics",
    "__version__",
    "devices",
    "fit_many",
    "gaussian_kernel",
    "inner_products",
    "patch_hmmlearn",
    "patch_sklearn",
    "plot",
    "register_skl2onnx",
    "select",
    "to_onnx",
    "unpatch_hmmlearn",
    "unpatch_sklearn",
]


def devices() -> list[tuple[str, str | None, str | None]]:
    """Return the name of each device, its description, and where it cannot be used, None and why not."""
    return _core.devices()


if hasattr(os, "register_at_fork"):
    # The engine's threads stay in the parent.
    os.register_at_fork(after_in_child=_core.after_fork)

document()
