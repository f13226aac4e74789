"""Data and fixtures of the tests."""

import importlib
import os
import signal
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


if os.environ.get("CI") == "true":
    # Where the checks run, a missing package is a failure.
    pytest.importorskip = lambda name, *_, **__: importlib.import_module(name)


@pytest.fixture(scope="session")
def iris():
    """The measurements of 150 iris flowers, (150, 4), float64."""
    return np.loadtxt(ROOT / "data" / "iris.csv", delimiter=",", skiprows=1)


@pytest.fixture(scope="session")
def faithful():
    """272 eruptions of Old Faithful and the waits after them in minutes, (272, 2)."""
    return np.loadtxt(ROOT / "data" / "faithful.csv", delimiter=",", skiprows=1)


@pytest.fixture(scope="session")
def acidity():
    """The index of acidity of 155 lakes, (155,)."""
    return np.loadtxt(ROOT / "data" / "acidity.csv", skiprows=1)


def pytest_sessionstart():
    """Let Ctrl-C end the tests even if a shell started them in the background, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Put the tests of JAX last, and mark exceptions.

    The threads of JAX could hang the tests that fork. A test that is an exception must fail: otherwise the list of
    exceptions is wrong.
    """
    items.sort(key=lambda item: item.path.name == "test_jax.py")
    for item in items:
        exceptions = getattr(item.module, "EXCEPTIONS", {}) if hasattr(item, "module") else {}
        reason = exceptions.get(item.name) or exceptions.get(getattr(item, "originalname", item.name))
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


# The fixtures of scikit-learn's own tests, from its conftest.py.


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def global_dtype(request):
    return request.param


@pytest.fixture(params=[0, 42])
def global_random_seed(request):
    return request.param
