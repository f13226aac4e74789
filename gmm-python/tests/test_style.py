"""The docstrings, and their examples."""

import contextlib
import doctest
import importlib
import inspect
import pkgutil

import pytest

import gaussmix
import gaussmix.cluster
import gaussmix.deconvolution

#: Errors of numpydoc that do not apply: returned values have names, as in scikit-learn; and not every object needs an extended summary, a
#: "See Also" and an example. Docstrings of the extension have no quotes to misplace.
IGNORED = {"RT02", "ES01", "SA01", "EX01", "GL02"}


def modules():
    yield gaussmix
    yield gaussmix.cluster
    yield gaussmix.deconvolution
    for name in ("anndata", "dask", "hmm", "jax", "mclust", "mpi", "torch"):
        # Their packages are optional.
        with contextlib.suppress(ImportError):
            yield importlib.import_module(f"gaussmix.{name}")


def members(cls):
    """Return the members of a class, including those from this package's base classes."""
    found = {}
    for base in reversed(cls.__mro__):
        # The methods that a cluster's class inherits from the estimator of one process are checked there.
        parts = ("hmm._base", "_fitting", "_likelihood", "_of_mixtures", "_variational", "cluster.estimator")
        if base is cls or base.__module__.removeprefix("gaussmix.") in parts:
            found.update(vars(base))
    return found


def public_objects():
    for module in modules():
        for name in module.__all__:
            thing = getattr(module, name)
            # A type alias has no docstring of its own.
            if isinstance(thing, str) or not (inspect.isclass(thing) or callable(thing)) or name == "Answer":
                continue
            yield f"{module.__name__}.{name}"
            if inspect.isclass(thing):
                for member, value in members(thing).items():
                    if not member.startswith("_") and (callable(value) or isinstance(value, property | classmethod)):
                        yield f"{module.__name__}.{name}.{member}"


@pytest.mark.parametrize("name", public_objects())
def test_docstrings_are_of_numpydoc(name):
    validate = pytest.importorskip("numpydoc.validate").validate
    assert [error for error in validate(name)["errors"] if error[0] not in IGNORED] == []


def test_examples_of_docstrings():
    tested = 0
    for module in pkgutil.walk_packages(gaussmix.__path__, "gaussmix.", onerror=lambda _: None):
        if module.name.endswith("__main__"):
            continue
        try:
            imported = importlib.import_module(module.name)
        except ImportError:
            # These packages are optional.
            assert set(module.name.split(".")) & {"dask", "jax", "mpi", "torch"}, module.name
            continue
        result = doctest.testmod(imported)
        assert result.failed == 0
        tested += result.attempted
    assert tested > 10
