"""The installed scikit-learn's own tests of its mixtures, run on our classes.

They are read from the package and run with our classes in the place of `sklearn.mixture.GaussianMixture` and
`sklearn.mixture.BayesianGaussianMixture`. What cannot pass is listed with its reason, and must fail: when it passes, the
list is wrong.
"""

import importlib.util
from pathlib import Path
from unittest import mock

import sklearn.mixture

import gaussmix

PRIVATE = "calls a private helper of scikit-learn's class: "
#: Tests that fail, by name, or by name and parameters as pytest shows them.
EXCEPTIONS = {
    "test_gaussian_mixture_precisions_init": PRIVATE + "_set_parameters and _initialize",
    "test_gaussian_mixture_all_init_does_not_estimate_gaussian_parameters": PRIVATE
    + "counts the calls of _estimate_gaussian_parameters, which the engine does not call",
    "test_compare_covar_type": PRIVATE + "_check_parameters and _initialize_parameters",
    "test_gaussian_mixture_raises_where_array_api_not_implemented": "finds a start by k-means for arrays of all libraries",
    "test_score[float32]": "compares the score, which is exact to float64 here, to 1.5e-7 with a mean formed in float32",
}
#: The replacements of scikit-learn's classes.
CLASSES = {name: getattr(gaussmix, name) for name in ("GaussianMixture", "BayesianGaussianMixture")}


def load(name):
    """Run a test module of scikit-learn under another name, with our classes in it."""
    path = Path(sklearn.mixture.__file__).parent / "tests" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"scikit_learn_{name}", path)
    module = importlib.util.module_from_spec(spec)
    with mock.patch.multiple(sklearn.mixture, **CLASSES):
        spec.loader.exec_module(module)
    found = {name: value for name, value in vars(module).items() if name in CLASSES}
    assert found and all(value is CLASSES[name] for name, value in found.items())
    return {name: value for name, value in vars(module).items() if name.startswith("test_")}


for _module in ("test_gaussian_mixture", "test_bayesian_mixture", "test_mixture"):
    _tests = load(_module)
    assert _tests
    globals().update(_tests)


def test_every_exception_is_a_test():
    assert all(name.split("[")[0] in globals() for name in EXCEPTIONS)
