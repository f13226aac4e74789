"""The examples run, and find the expected results."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def main_of(name):
    return runpy.run_path(str(EXAMPLES / name))["main"]


def test_metropolis():
    assert 0.05 < main_of("metropolis.py")(2000, 300) < 0.95


def test_maximise():
    # Standard errors are about 1/√10⁴.
    np.testing.assert_allclose(main_of("maximise.py")(), [3.0, 1.0, 0.0, 0.0], atol=0.06)


def test_emcee():
    pytest.importorskip("emcee")
    # Standard errors are 1/√300 and 1/√700.
    np.testing.assert_allclose(main_of("with_emcee.py")()[:, 1:3].mean(axis=0), [-2.0, 3.0], atol=0.25)


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    pytest.importorskip("pandas")
    for path in main_of("pictures.py")(tmp_path):
        # The guide shows the example's output; its numbers may differ in their last digits.
        shown = (EXAMPLES.parents[1] / "docs" / path.name).read_text()
        assert path.read_text().count("<path") == shown.count("<path") > 10


def test_the_snippets_of_the_guide_to_clusters(capsys):
    pytest.importorskip("distributed")
    pytest.importorskip("dask.array")
    guide = EXAMPLES.parents[1] / "docs" / "scale.md"
    found = {}
    for snippet in re.findall(r"^```python\n(.*?)^```$", guide.read_text(), re.DOTALL | re.MULTILINE):
        exec(snippet, found)
    # The guide's client is closed; the mixture in this process evaluates the same samples.
    totals, bound = found["totals"], found["gm"]._local().score(found["x"].compute(scheduler="threads"))
    np.testing.assert_allclose(totals, [bound * 100_000] * 8, rtol=1e-12)


def test_ray():
    pytest.importorskip("ray")
    on_ray, here = main_of("with_ray.py")(20_000)
    assert np.array_equal(on_ray.means_, here.means_) and on_ray.lower_bounds_ == here.lower_bounds_
