"""Forks, signals, other programs and the command."""

import collections.abc
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
import sklearn.mixture

import gaussmix
from gaussmix import GaussianMixture, Likelihood, patch_sklearn, select, unpatch_sklearn


def x_of(n):
    return np.random.default_rng(0).normal(size=(n, 5))


# The global likelihood of a program that forks, as emcee's pools do.
LIKELIHOOD = None


def evaluate(shift):
    return LIKELIHOOD([1.0], np.full((1, 5), shift), [1.0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("n_jobs", [None, 1, 2])
def test_children_of_a_fork_compute(n_jobs):
    global LIKELIHOOD
    LIKELIHOOD = Likelihood(x_of(100_000), device="cpu", n_jobs=n_jobs)
    expected = [evaluate(shift) for shift in range(4)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(evaluate, range(4)).get(60) == expected
        fits = pool.map_async(fit, range(2)).get(60)
    assert fits == [fit(seed) for seed in range(2)]


def fit(seed):
    return GaussianMixture(3, random_state=seed, max_iter=20, tol=0.01).fit(x_of(30_000)).lower_bound_


def test_workers_of_joblib_compute():
    x = x_of(30_000)

    # A function inside of another one goes to the workers by value, wherever the tests are.
    def bound(seed):
        return GaussianMixture(3, random_state=seed, max_iter=20, tol=0.01).fit(x).lower_bound_

    here = [bound(seed) for seed in range(2)]
    assert joblib.Parallel(n_jobs=2)(joblib.delayed(bound)(seed) for seed in range(2)) == here


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_ctrl_c_ends_a_fit_and_leaves_a_mixture():
    x = x_of(100_000)
    pressed = []

    def press():
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.2, press)

    def press_soon(iteration):
        if iteration.iteration == 2:
            timer.start()

    gm = GaussianMixture(20, tol=0, max_iter=10**6, random_state=0, callback=press_soon)
    with pytest.raises(KeyboardInterrupt):
        gm.fit(x)
    # An iteration, and room for a busy machine.
    assert time.monotonic() - pressed[0] < 10
    assert gm.n_iter_ >= 1 and np.isfinite(gm.score(x[:100]))


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_ctrl_c_ends_a_start():
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    gm = GaussianMixture(200, covariance_type="diag", random_state=0)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        gm.fit(x_of(400_000))
    assert not hasattr(gm, "means_")


def test_several_threads_fit_at_once():
    found = {}
    threads = [threading.Thread(target=lambda s=s: found.update({s: fit(s)})) for s in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {seed: fit(seed) for seed in range(3)}


def test_patching_and_undoing_it():
    theirs = sklearn.mixture.GaussianMixture
    patch_sklearn()
    try:
        from sklearn.mixture import GaussianMixture as Patched

        x = x_of(100)
        gm = Patched(2, random_state=0).fit(x)
        assert isinstance(gm, GaussianMixture) and repr(gm).startswith("GaussianMixture(")
        np.testing.assert_allclose(gm.means_, theirs(2, random_state=0).fit(x).means_, rtol=1e-8, atol=1e-8)
        for grow in (False, True):
            assert select(x, 2, grow=grow, estimator=Patched(random_state=0)).table == select(x, 2, grow=grow, random_state=0).table
    finally:
        unpatch_sklearn()
    assert sklearn.mixture.GaussianMixture is theirs


def test_objects_of_both_classes_are_instances_of_the_patched_class():
    x = x_of(200)
    theirs, base = sklearn.mixture.GaussianMixture, sklearn.mixture._base.BaseMixture
    alias = sklearn.mixture.GaussianMixture
    params = {"n_components": 2, "covariance_type": "diag", "random_state": 0}
    before, own = theirs(**params).fit(x), GaussianMixture(**params).fit(x)
    patch_sklearn()
    try:
        patched = sklearn.mixture.GaussianMixture

        class Derived(patched):
            pass

        class WithAbstractMethods(patched, collections.abc.Sized):
            def __len__(self):
                return 0

        objects = {
            "scikit-learn's": before,
            "ours": own,
            "patched": patched(**params).fit(x),
            "derived": Derived(**params).fit(x),
        }
        for name, gm in objects.items():
            for cls in (patched, alias, base):
                assert isinstance(gm, cls) and issubclass(type(gm), cls), (name, cls)
            # Derived objects contain only their own classes.
            assert isinstance(gm, Derived) == (name == "derived")
            assert not isinstance(gm, WithAbstractMethods)
        for other in (sklearn.mixture.BayesianGaussianMixture(), 1, None, np.ndarray):
            assert not isinstance(other, patched)
        skimage = pytest.importorskip("skimage.feature")
        vectors = [skimage.fisher_vector(x[:40] + 0.5, gm) for gm in objects.values()]
    finally:
        unpatch_sklearn()
    assert isinstance(before, theirs) and sklearn.mixture.GaussianMixture is theirs
    vectors.append(skimage.fisher_vector(x[:40] + 0.5, own.to_sklearn()))
    # A vector of 2 · K · D + K entries; the mixtures agree up to rounding.
    for vector in vectors:
        assert vector.shape == (2 * 2 * x.shape[1] + 2,) and np.abs(vectors[0]).max() > 0.1
        np.testing.assert_allclose(vector, vectors[0], atol=1e-6)


PROGRAM = """
import sys
import numpy as np
from sklearn.mixture import GaussianMixture
gm = GaussianMixture(n_components=2, random_state=0).fit(np.arange(20.0).reshape(-1, 2))
print(type(gm).__mro__[1].__module__, sys.argv[1:], __name__)
"""


def test_a_program_runs_unchanged(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "gaussmix", str(tmp_path / "program.py"), "--x", "1"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert out.split(" ", 1) == ["gaussmix._estimator", "['--x', '1'] __main__\n"]


def gmm(*arguments, **options):
    command = [sys.executable, "-c", "from gaussmix._core import run_program; import sys; sys.exit(run_program())", *arguments]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_the_command_is_there(tmp_path, iris):
    assert gmm("--version").stdout == f"gmm {gaussmix.__version__}\n"
    assert gmm("no-such-command").returncode == 2
    np.save(tmp_path / "iris.npy", iris)
    assert gmm("fit", "iris.npy", "-k", "3", "-o", "iris.json", cwd=tmp_path).returncode == 0
    scored = gmm("score", "iris.json", "iris.npy", "--json", cwd=tmp_path)
    gm = GaussianMixture.load(tmp_path / "iris.json")
    np.testing.assert_allclose(json.loads(scored.stdout)["log_likelihood"], gm.score(iris) * 150, rtol=1e-12)
    missing = gmm("fit", "none.npy", "-k", "3", "-o", "x.json", cwd=tmp_path)
    assert missing.returncode == 1 and "none.npy" in missing.stderr


def test_importing_the_package_needs_no_driver():
    names = [name for name, _, _ in gaussmix.devices()]
    assert {"cpu", "reference"} <= set(names)


def test_a_device_that_is_not_there_is_an_error_that_says_what_to_do():
    if any(name.startswith("cuda") and why is None for name, _, why in gaussmix.devices()):
        pytest.skip("this machine has a GPU")
    with pytest.raises(RuntimeError, match="no CUDA device: .*use the CPU"):
        GaussianMixture(device="cuda").fit(x_of(10))
    with pytest.raises(RuntimeError, match="no CUDA device"):
        Likelihood(x_of(10), device="cuda:7")


def test_the_number_of_threads():
    x = x_of(50_000)
    fits = [GaussianMixture(3, random_state=0, max_iter=20, tol=0.01, n_jobs=n).fit(x) for n in (None, 1, 2, -1)]
    # The sums do not depend on the threads.
    assert {gm.lower_bound_ for gm in fits} == {fits[0].lower_bound_}
    assert "1 thread," in Likelihood(x, device="cpu", n_jobs=1).device


DISPATCH = """
import numpy as np, sklearn, array_api_strict, torch
from gaussmix import BayesianGaussianMixture, GaussianMixtureClassifier, GaussianMixtureOutlierDetector, GaussianMixtureRegressor
from gaussmix.hmm import GaussianHMM
from sklearn.mixture import GaussianMixture
x = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
x[:100] += 5
for kind, params in ((GaussianMixture, {}), (GaussianMixture, {"init_params": "random"}), (BayesianGaussianMixture, {})):
    right = kind(n_components=2, random_state=0, **params).fit(x)
    for library, asarray in ((np, np.asarray), (array_api_strict, array_api_strict.asarray), (torch, torch.asarray)):
        given = asarray(x)
        with sklearn.config_context(array_api_dispatch=True):
            gm = kind(n_components=2, random_state=0, **params).fit(given)
            found = gm.means_, gm.covariances_, gm.precisions_cholesky_, gm.score_samples(given), gm.predict_proba(given), gm.predict(given)
            assert {type(value) for value in found} == {type(given)}, found
            assert isinstance(gm.score(given), float) and type(gm.sample(5)[0]) is type(given)
            # An array of another library has results of its own.
            assert type(gm.predict(x)) is np.ndarray
            gm.partial_fit(given)
            assert type(gm.means_) is type(given) and gm.mixture_.means.dtype == np.float64
            gm = kind(n_components=2, random_state=0, **params).fit(given)
            assert kind is BayesianGaussianMixture or gm.icl(given) == right.icl(x)
        expected = right.means_, right.covariances_, right.precisions_cholesky_, *(f(x) for f in (right.score_samples, right.predict_proba))
        for value, of_numpy in zip(found, expected):
            assert np.asarray(value).dtype == of_numpy.dtype == np.float32
            np.testing.assert_array_equal(np.asarray(value), of_numpy)
        # What has been fitted so is a mixture without the switch too, and results are NumPy's.
        np.testing.assert_array_equal(gm.predict(given), right.predict(x))
        assert type(gm.predict(given)) is np.ndarray and gm.mixture_ == right.mixture_
with sklearn.config_context(array_api_dispatch=True):
    given, y = torch.asarray(x), torch.asarray(x[:, 0] > 2).to(torch.int64)
    classifier = GaussianMixtureClassifier(random_state=0).fit(given, y)
    values = [classifier.predict(given), classifier.predict_proba(given), classifier.predict_log_proba(given), classifier.priors_]
    detector = GaussianMixtureOutlierDetector(random_state=0).fit(given)
    values += [detector.predict(given), detector.decision_function(given)]
    regressor = GaussianMixtureRegressor(random_state=0).fit(given[:, :2], given[:, 2])
    values += [*regressor.predict(given[:, :2], return_std=True), regressor.sample_y(given[:, :2])]
    values += [regressor.log_prob(given[:, :2], given[:, 2])]
    assert {type(value) for value in values} == {torch.Tensor}, values
    assert GaussianHMM(2, random_state=0).fit(given).score(given) == GaussianHMM(2, random_state=0).fit(x).score(x)
    text = GaussianMixtureClassifier(random_state=0).fit(given, np.where(x[:, 0] > 2, "far", "near")).predict(given)
    # No other library has texts.
    assert type(text) is np.ndarray and set(text) == {"far", "near"}
"""


def of_arrays(command):
    """Run Python where scikit-learn takes arrays of other libraries, for which a variable must be set before SciPy is imported."""
    pytest.importorskip("array_api_strict")
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)


def test_arrays_of_other_libraries(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(DISPATCH)
    # Also under scikit-learn's name.
    out = of_arrays(["-W", "ignore", "-m", "gaussmix", str(tmp_path / "program.py")])
    assert out.returncode == 0, out.stderr


def test_scikit_learn_s_tests_of_arrays():
    """They skip libraries and devices that are not there, but for CUDA without a driver."""
    which = "array_api" if pytest.importorskip("torch").cuda.is_available() else "array_api and not cuda"
    files = [str(Path(__file__).with_name(f"test_{name}.py")) for name in ("checks", "scikit_learn")]
    out = of_arrays(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", which, *files])
    passed = re.search(r"(\d+) passed", out.stdout)
    assert out.returncode == 0 and passed and int(passed[1]) > 150, out.stdout
