"""The docstrings, and their examples."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import gaussmix

#: Errors of numpydoc that are none here: returned values have names, as in scikit-learn; and not every object needs an
#: extended summary, a "See Also" and an example. Those of the extension have no quotes that could be placed wrongly.
IGNORED = {"RT02", "ES01", "SA01", "EX01", "GL02"}


def public_objects():
    for name in gaussmix.__all__:
        thing = getattr(gaussmix, name)
        if isinstance(thing, str):
            continue
        yield f"gaussmix.{name}"
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") and (callable(value) or isinstance(value, property | classmethod)):
                    yield f"gaussmix.{name}.{member}"


@pytest.mark.parametrize("name", public_objects())
def test_docstrings_are_of_numpydoc(name):
    validate = pytest.importorskip("numpydoc.validate").validate
    assert [error for error in validate(name)["errors"] if error[0] not in IGNORED] == []


def test_examples_of_docstrings():
    tested = 0
    for module in pkgutil.iter_modules(gaussmix.__path__, "gaussmix."):
        if module.name.endswith("__main__"):
            continue
        result = doctest.testmod(importlib.import_module(module.name))
        assert result.failed == 0
        tested += result.attempted
    assert tested > 10
