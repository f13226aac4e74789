"""The fit over partitions, in this process: everything that engines share."""

import os
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import gaussmix
from gaussmix import cluster, hmm
from gaussmix._partitions import Array
from gaussmix.cluster import (
    BayesianGaussianMixture,
    GaussianMixture,
    InProcess,
    Likelihood,
    MissingPartitionsError,
    Options,
    Partition,
    Shard,
    merge,
)

KINDS = ["full", "tied", "diag", "spherical"]


def three_clusters(n, d=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.permuted(np.arange(n) % 3)[:, np.newaxis] * np.linspace(4, 1, d) + rng.normal(size=(n, d))


X = three_clusters(3001)
W = np.random.default_rng(1).uniform(size=len(X))
SAVED = ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_")


def assert_same_bits(a, b):
    for name in SAVED:
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert a.lower_bounds_ == b.lower_bounds_ and a.converged_ == b.converged_ and a.retained_ == b.retained_


def assert_close(a, b, tolerance=1e-12):
    assert a.n_iter_ == b.n_iter_ and a.converged_ == b.converged_
    for name in SAVED:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=tolerance, atol=tolerance, err_msg=name)
    np.testing.assert_allclose(a.lower_bounds_, b.lower_bounds_, rtol=tolerance)


@pytest.mark.parametrize("weights", [None, W], ids=["", "weights"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_as_one_array(kind, weights):
    params = {"covariance_type": kind, "random_state": 0, "tol": 1e-5}
    local = gaussmix.GaussianMixture(3, **params).fit(X, sample_weight=weights)
    fits = [
        GaussianMixture(3, engine=InProcess(n), partition_rows=700, resident=resident, **params).fit(X, None, weights)
        for n, resident in [(1, True), (2, None), (5, False)]
    ]
    for fit in fits:
        assert_same_bits(fit, fits[0])
    assert_close(fits[0], local)
    assert_close(GaussianMixture(3, partition_rows=999, **params).fit(X, None, weights), local)
    gm = fits[0]
    assert np.array_equal(gm.predict(X), local.predict(X))
    np.testing.assert_allclose(gm.score_samples(X), local.score_samples(X), rtol=1e-11)
    np.testing.assert_allclose(gm.predict_proba(X), local.predict_proba(X), rtol=1e-9, atol=1e-12)
    for method in ("score", "bic", "aic"):
        of = [getattr(m, method)(X, sample_weight=weights) for m in (gm, local)]
        np.testing.assert_allclose(*of, rtol=1e-12)


POSTERIOR = ("weights_", "means_", "covariances_", "mean_precision_", "degrees_of_freedom_", "mean_prior_", "covariance_prior_")


@pytest.mark.parametrize("weights", [None, W], ids=["", "weights"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prior", ["dirichlet_process", "dirichlet_distribution"])
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_variational_inference_is_that_of_one_array(kind, weights, prior):
    params = {
        "n_components": 5,
        "covariance_type": kind,
        "weight_concentration_prior_type": prior,
        "random_state": 0,
        "max_iter": 60,
    }
    local = gaussmix.BayesianGaussianMixture(**params).fit(X, sample_weight=weights)
    fits = [
        BayesianGaussianMixture(engine=InProcess(n), partition_rows=700, **params).fit(X, None, weights) for n in (1, 3)
    ]
    gm = fits[0]
    assert gm.n_iter_ == local.n_iter_ and gm.converged_ == local.converged_
    # Dozens of iterations multiply the rounding of sums.
    for name in POSTERIOR:
        assert np.array_equal(getattr(gm, name), getattr(fits[1], name)), name
        np.testing.assert_allclose(getattr(gm, name), getattr(local, name), rtol=1e-9, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(np.array(gm.weight_concentration_), np.array(local.weight_concentration_), rtol=1e-9)
    np.testing.assert_allclose(gm.lower_bounds_, local.lower_bounds_, rtol=1e-12)
    assert gm.elbo_ == pytest.approx(local.elbo_, rel=1e-12)
    assert np.array_equal(gm.predict(X), local.predict(X))
    np.testing.assert_allclose(gm.score_samples(X), local.score_samples(X), rtol=1e-8)
    np.testing.assert_allclose(gm.predict_proba(X), local.predict_proba(X), rtol=1e-7, atol=1e-9)
    assert gm.score(X) == pytest.approx(local.score(X), rel=1e-11)


@pytest.mark.parametrize(
    "more",
    [{"n_init": 2}, {"max_iter": 1}, {"mean_prior": np.zeros(4), "covariance_prior": np.eye(4)}, {"missing": True}],
    ids=",".join,
)
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_parameters_of_variational_inference(more):
    x = X.copy()
    if "missing" in more:
        x[np.random.default_rng(2).random(X.shape) < 0.1] = np.nan
    params = {"n_components": 3, "random_state": 1, "max_iter": 20, **more}
    local = gaussmix.BayesianGaussianMixture(**params).fit(x)
    gm = BayesianGaussianMixture(partition_rows=500, **params)
    labels = gm.fit_predict(x)
    # The mean of incomplete samples is found by iterations, which end at a change of 1e-6.
    tolerance = 1e-5 if "missing" in more else 1e-10
    for name in POSTERIOR:
        np.testing.assert_allclose(getattr(gm, name), getattr(local, name), rtol=tolerance, atol=tolerance, err_msg=name)
    assert gm.n_iter_ == local.n_iter_ and np.array_equal(labels, local.predict(x))


#: The known clusters of some samples, to be component 2, 0 or 1; some are wrong.
CLUSTERS = np.array([2, 0, 1])[np.random.default_rng(0).permuted(np.arange(len(X)) % 3)]
LABELS = np.where(np.random.default_rng(5).random(len(X)) < 0.15, CLUSTERS, -1)
LABELS[:20:4] = 1
#: The same as a mask, with samples that may belong to two components.
MASK = (LABELS[:, np.newaxis] < 0) | (LABELS[:, np.newaxis] == np.arange(3))
MASK[1500:1600] = [True, True, False]
assert MASK.any(axis=1).all()


def by_labels(X, k, random_state):
    """Responsibilities of a start, from random numbers."""
    return random_state.dirichlet(np.ones(k), len(X))


@pytest.mark.parametrize("labels", [LABELS, MASK], ids=["numbers", "mask"])
@pytest.mark.parametrize(
    "params",
    [
        *({"covariance_type": kind} for kind in [*KINDS, "EVI", "VEV"]),
        {"weights": W},
        # Zero weights of whole partitions, and of all samples of a component in others.
        {"weights": np.where((np.arange(len(X)) < 1000) | (LABELS == 0), 0.0, W)},
        *({"init_params": name, "n_init": 3} for name in ("kmeans", "k-means++", "random", "random_from_data")),
        {"init_params": by_labels, "n_init": 2},
        {"n_init": 8, "halving": True},
        {"means_init": X[:3]},
        {"weights_init": [0.2, 0.3, 0.5], "means_init": X[:3], "precisions_init": np.stack([np.eye(4)] * 3)},
        {"freeze": {"means": [1]}, "standardize": True},
        {"prior": "default"},
        {"missing": True, "n_init": 2},
        {"missing": True, "covariance_type": "diag", "weights": W},
    ],
    ids=lambda params: ",".join(params),
)
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_labels_are_heeded_as_in_one_process(params, labels):
    params = {"random_state": 3, "tol": 1e-5, **params}
    weights = params.pop("weights", None)
    x = X.copy()
    if "missing" in params:
        x[np.random.default_rng(2).random(X.shape) < 0.1] = np.nan
        x[700:1400, 1] = np.nan
    local = gaussmix.GaussianMixture(3, **params)
    predicted = local.fit_predict(x, sample_weight=weights, labels=labels)
    fits = []
    for n, resident in ((1, True), (3, None), (2, False)):
        gm = GaussianMixture(3, engine=InProcess(n), partition_rows=700, resident=resident, **params)
        assert np.array_equal(gm.fit_predict(x, None, weights, labels=labels), predicted)
        fits.append(gm)
        assert_same_bits(gm, fits[0])
    assert_close(fits[0], local)
    assert np.array_equal(fits[0].predict(x), local.predict(x))
    allowed = MASK if labels is MASK else (labels[:, np.newaxis] < 0) | (labels[:, np.newaxis] == np.arange(3))
    assert allowed[np.arange(len(x)), predicted].all()
    # The labels change the fit.
    without = GaussianMixture(3, partition_rows=700, **params).fit(x, sample_weight=weights)
    assert np.abs(without.means_ - local.means_).max() > 1e-6


@pytest.mark.parametrize("n", [3001, 20_000])
def test_labels_of_many_samples_and_of_none_in_a_partition(n):
    x = three_clusters(n, 3)
    labels = np.full(n, -1)
    labels[n // 2 : n // 2 + 30] = np.random.default_rng(0).permuted(np.arange(n) % 3)[n // 2 : n // 2 + 30]
    params = {"random_state": 3, "tol": 1e-5}
    local = gaussmix.GaussianMixture(3, **params).fit(x, labels=labels)
    fits = [GaussianMixture(3, engine=InProcess(s), partition_rows=n // 7, **params).fit(x, labels=labels) for s in (1, 4)]
    assert_same_bits(*fits)
    assert_close(fits[0], local)
    # The component of a label is that cluster.
    assert np.mean(fits[0].predict(x) == np.random.default_rng(0).permuted(np.arange(n) % 3)) > 0.8


@pytest.mark.parametrize("prior", ["dirichlet_process", "dirichlet_distribution"])
@pytest.mark.parametrize("more", [{}, {"n_init": 2}, {"standardize": True}], ids=",".join)
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_variational_inference_heeds_labels(prior, more):
    params = {"n_components": 4, "weight_concentration_prior_type": prior, "random_state": 0, "max_iter": 20, **more}
    local = gaussmix.BayesianGaussianMixture(**params)
    predicted = local.fit_predict(X, sample_weight=W, labels=LABELS)
    fits = [BayesianGaussianMixture(engine=InProcess(n), partition_rows=700, **params) for n in (1, 3)]
    for gm in fits:
        assert np.array_equal(gm.fit_predict(X, None, W, labels=LABELS), predicted)
    for name in POSTERIOR:
        assert np.array_equal(getattr(fits[0], name), getattr(fits[1], name)), name
        np.testing.assert_allclose(getattr(fits[0], name), getattr(local, name), rtol=1e-10, atol=1e-10, err_msg=name)
    assert (predicted[LABELS >= 0] == LABELS[LABELS >= 0]).all()


def test_a_fit_goes_on_under_labels():
    params = {"random_state": 0, "tol": 0}
    with pytest.warns(ConvergenceWarning):
        whole = gaussmix.GaussianMixture(3, max_iter=8, **params).fit(X, labels=LABELS)
        half = GaussianMixture(3, max_iter=4, warm_start=True, partition_rows=700, **params)
        half.fit(X, labels=LABELS).fit(X, labels=LABELS)
    np.testing.assert_allclose(half.means_, whole.means_, rtol=1e-12)


def test_variational_inference_goes_on_and_is_cloned():
    params = {"n_components": 4, "random_state": 0, "tol": 0, "partition_rows": 700}
    with pytest.warns(ConvergenceWarning):
        whole = BayesianGaussianMixture(max_iter=8, **params).fit(X)
        half = BayesianGaussianMixture(max_iter=4, warm_start=True, **params).fit(X).fit(X)
    np.testing.assert_allclose(half.means_, whole.means_, rtol=1e-12)
    engine = InProcess(2)
    made = clone(BayesianGaussianMixture(engine=engine, n_components=7))
    assert made.engine is engine and made.n_components == 7
    back = pickle.loads(pickle.dumps(whole))
    assert back.engine is None and np.array_equal(back.predict(X), whole.predict(X))
    with pytest.raises(ValueError, match="n_samples = 3"):
        BayesianGaussianMixture(n_components=4).fit(X[:3])


@pytest.mark.parametrize("init_params", ["kmeans", "k-means++", "random", "random_from_data"])
@pytest.mark.parametrize("n", [3001, 20_000])
def test_starts_are_those_of_one_array(init_params, n):
    x = three_clusters(n, 3)
    params = {"init_params": init_params, "random_state": 3, "max_iter": 3, "tol": 0}
    with pytest.warns(ConvergenceWarning):
        local = gaussmix.GaussianMixture(3, **params).fit(x)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        assert_close(GaussianMixture(3, partition_rows=n // 3, **params).fit(x), local, 1e-10)


@pytest.mark.parametrize(
    "params",
    [
        {"n_components": 1},
        {"n_components": 3, "n_init": 3},
        {"n_components": 3, "freeze": ["means"], "means_init": X[:3]},
        {"n_components": 3, "standardize": True},
        {"n_components": 2, "standardize": True, "covariance_type": "tied"},
        {"n_components": 3, "max_iter": 0},
        {
            "n_components": 2,
            "covariance_type": "diag",
            "weights_init": [0.5, 0.5],
            "means_init": X[:2],
            "precisions_init": np.ones((2, 4)),
        },
    ],
    ids=lambda params: ",".join(params),
)
def test_parameters(params):
    params = {"random_state": 0, "tol": 1e-5, **params}
    local = gaussmix.GaussianMixture(**params).fit(X)
    assert_close(GaussianMixture(partition_rows=500, **params).fit(X), local)
    assert np.array_equal(GaussianMixture(partition_rows=500, **params).fit_predict(X), local.predict(X))


def test_one_feature_and_float32():
    x = three_clusters(2001, 1)
    gm = GaussianMixture(3, partition_rows=400, random_state=0, tol=1e-5).fit(x)
    assert_close(gm, gaussmix.GaussianMixture(3, random_state=0, tol=1e-5).fit(x))
    narrow = [m(3, random_state=0, tol=1e-3).fit(x.astype(np.float32)) for m in (gaussmix.GaussianMixture, GaussianMixture)]
    assert narrow[1].means_.dtype == narrow[1].score_samples(x.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(narrow[1].means_, narrow[0].means_, atol=1e-4)


def test_partitions_of_one_row():
    x = three_clusters(40, 2)
    gm = GaussianMixture(2, partition_rows=1, random_state=0).fit(x)
    assert_close(gm, gaussmix.GaussianMixture(2, random_state=0).fit(x))


def test_warm_start_goes_on():
    params = {"random_state": 0, "tol": 0, "partition_rows": 700}
    with pytest.warns(ConvergenceWarning):
        whole = GaussianMixture(3, max_iter=8, **params).fit(X)
        half = GaussianMixture(3, max_iter=4, warm_start=True, **params).fit(X).fit(X)
    np.testing.assert_allclose(half.means_, whole.means_, rtol=1e-12)
    assert half.lower_bound_ == pytest.approx(whole.lower_bound_, rel=1e-14)


def test_partial_fit():
    chunks = np.array_split(X, 4)
    gm, local = GaussianMixture(3, partition_rows=100, random_state=0), gaussmix.GaussianMixture(3, random_state=0)
    for chunk in chunks:
        gm.partial_fit(chunk)
        local.partial_fit(chunk)
    np.testing.assert_allclose(gm.means_, local.means_, rtol=1e-12)
    assert gm.n_iter_ == local.n_iter_


def test_progress_and_callback(capsys):
    seen = []
    gm = GaussianMixture(3, verbose=2, verbose_interval=1, callback=seen.append, random_state=0, tol=1e-5).fit(X)
    assert [i.lower_bound for i in seen] == gm.lower_bounds_
    assert capsys.readouterr().out.count("ll change") == gm.n_iter_
    ended = GaussianMixture(3, callback=lambda i: i.iteration == 2, random_state=0, tol=0).fit(X)
    assert ended.n_iter_ == 2


def test_ctrl_c_leaves_a_mixture():
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))

    def press_soon(iteration):
        if iteration.iteration == 2:
            timer.start()

    gm = GaussianMixture(3, tol=0, max_iter=10**6, partition_rows=1000, callback=press_soon)
    with pytest.raises(KeyboardInterrupt):
        gm.fit(X)
    assert gm.n_iter_ >= 1 and np.isfinite(gm.score(X))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_sum_does_not_depend_on_its_grouping():
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 13):
        shard = Shard(Options("<f8", n))
        for i in range(n):
            # Some partitions are empty.
            rows = X[i * 10 : i * 10] if i % 4 == 3 else X[i * 10 : i * 10 + 7]
            shard.load(i, Partition(f"partition {i}", Array(rows)))
        mixture = gaussmix.GaussianMixture(2, random_state=0).fit(X[:50])._mixture()
        message = pickle.dumps((mixture,))
        [whole] = shard.ask("statistics", message)
        single = [shard.ask("statistics", message, [i])[0] for i in range(n)]
        for _ in range(5):
            parts = [single[i] for i in rng.permutation(n)]
            while len(parts) > 1:
                cut = int(rng.integers(1, len(parts)))
                merged = merge(parts[:cut], n)
                parts = merged + parts[cut:]
                if cut == len(parts):
                    break
                if rng.random() < 0.3:
                    break
            assert merge(parts, n) == [whole]


def test_a_shard_travels_without_its_partitions():
    shard = Shard(Options("<f8", 1))
    shard.load(0, Partition("X", Array(X)))
    with pytest.raises(MissingPartitionsError):
        pickle.loads(pickle.dumps(shard)).ask("moments", pickle.dumps(()), [0])
    with pytest.raises(ValueError, match="there is no operation 'magic'"):
        shard.ask("magic", pickle.dumps(()))


def test_clones_and_pickles():
    engine = InProcess()
    gm = GaussianMixture(3, engine=engine, partition_rows=700, random_state=0).fit(X)
    copy = clone(gm)
    assert copy.engine is engine and copy.get_params() == gm.get_params() and not hasattr(copy, "means_")
    again = pickle.loads(pickle.dumps(gm))
    assert again.engine is None and np.array_equal(again.predict(X), gm.predict(X))
    assert gm.to_sklearn().n_components == 3
    assert repr(GaussianMixture(2, partition_rows=5)) == "GaussianMixture(n_components=2, partition_rows=5)"


@pytest.fixture
def files(tmp_path):
    """Write the samples to three files, one of them empty, and their weights in another division."""
    for i, part in enumerate((X[:1000], X[:0], X[1000:])):
        np.save(tmp_path / f"x{i}.npy", part)
    np.save(tmp_path / "w0.npy", W[:1500])
    np.save(tmp_path / "w1.npy", W[1500:])
    return tmp_path


def test_files(files):
    params = {"random_state": 0, "tol": 1e-5}
    local = gaussmix.GaussianMixture(3, **params).fit(X, sample_weight=W)
    pattern, weights = str(files / "x?.npy"), [files / "w0.npy", files / "w1.npy"]
    fits = [GaussianMixture(3, partition_rows=300, resident=r, **params).fit(pattern, None, weights) for r in (True, False)]
    assert_same_bits(*fits)
    assert_close(fits[0], local)
    assert_same_bits(GaussianMixture(3, partition_rows=300, **params).fit(pattern, None, W), fits[0])
    assert np.array_equal(fits[0].predict(pattern), local.predict(X))
    assert np.array_equal(fits[0].predict([files / "x0.npy"]), local.predict(X[:1000]))
    np.testing.assert_allclose(fits[0].score(pattern, sample_weight=weights), local.score(X, sample_weight=W), rtol=1e-12)


def test_files_of_labels(files):
    for name, labels in {"l": LABELS, "f": LABELS.astype(np.float32), "m": MASK}.items():
        np.save(files / f"{name}0.npy", labels[:2000])
        np.save(files / f"{name}1.npy", labels[2000:])
    gm = GaussianMixture(3, partition_rows=300, random_state=0, tol=1e-5)
    samples = str(files / "x?.npy")
    here = gaussmix.GaussianMixture(3, random_state=0, tol=1e-5).fit(X, labels=LABELS)
    whole = clone(gm).fit(samples, labels=LABELS)
    assert_close(whole, here)
    for name in "lf":
        assert_same_bits(clone(gm).fit(samples, labels=str(files / f"{name}?.npy")), whole)
    found = clone(gm).set_params(resident=False).fit_predict(samples, labels=[files / "l0.npy", files / "l1.npy"])
    assert np.array_equal(found, gaussmix.GaussianMixture(3, random_state=0, tol=1e-5).fit_predict(X, labels=LABELS))
    masked = clone(gm).fit(samples, labels=[files / "m0.npy", files / "m1.npy"])
    assert_same_bits(masked, clone(gm).fit(samples, labels=MASK))
    np.save(files / "l1.npy", np.where(np.arange(2000, 3001) == 2345, 3, LABELS[2000:]))
    np.save(files / "f1.npy", np.where(np.arange(2000, 3001) == 2345, 0.5, LABELS[2000:]))
    two = [files / "m0.npy", files / "l1.npy"]
    # Sample 2345 is the 1345th of the file x2.npy.
    for labels, message in {
        "l?.npy": r"rows 1200 to 1499 of .*x2\.npy: labels have 3 for sample 1345; .*from 0 to 2",
        "f?.npy": r"rows 1200 to 1499 of .*x2\.npy: labels have 0.5 for sample 1345; they are whole numbers",
        "l0.npy": "there are 2000 labels, but 3001 samples",
        "x0.npy": r"x0\.npy: the array has the shape \(1000, 4\) and the type <f8; labels are whole numbers",
        "none.npy": r"none\.npy: .*No such file",
    }.items():
        with pytest.raises((ValueError, OSError), match=message):
            clone(gm).fit(samples, labels=str(files / labels))
    with pytest.raises(ValueError, match="in all files a mask"):
        clone(gm).fit(samples, labels=two)
    with pytest.raises(ValueError, match="labels names files, which goes with samples in files only"):
        gm.fit(X, labels=files / "l0.npy")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.where(np.arange(3001) == 2345, 3, LABELS), "^labels have 3 for sample 2345"),
        (np.full(3001, -2), "have -2 for sample 0"),
        (LABELS[1:], r"shape \(3000,\)"),
        (LABELS.astype(float), "whole numbers"),
        (MASK & (np.arange(3001) != 2345)[:, np.newaxis], "sample 2345 no component"),
        (MASK[:, :2], r"a mask \(3001, 3\)"),
    ],
)
def test_labels_that_do_not_fit_are_errors(labels, message):
    with pytest.raises(ValueError, match=message):
        GaussianMixture(3, partition_rows=700).fit(X, labels=labels)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", "<i4"])
def test_layouts_of_files(tmp_path, order, dtype):
    x = (X * 100).astype(dtype, order=order)
    np.save(tmp_path / "x.npy", x)
    gm = GaussianMixture(2, partition_rows=700, random_state=0).fit(tmp_path / "x.npy")
    same = GaussianMixture(2, partition_rows=700, random_state=0).fit(np.ascontiguousarray(x.astype(x.dtype.newbyteorder("="))))
    assert_same_bits(gm, same)
    assert gm.means_.dtype == (np.float32 if dtype == "<f4" else np.float64)


def test_parquet(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    frame[:1500].to_parquet(tmp_path / "x0.parquet", row_group_size=300)
    frame[1500:].to_parquet(tmp_path / "x1.parquet", row_group_size=300)
    pattern = str(tmp_path / "*.parquet")
    gm = GaussianMixture(3, partition_rows=600, random_state=0, tol=1e-5).fit(pattern)
    assert_close(gm, gaussmix.GaussianMixture(3, random_state=0, tol=1e-5).fit(X))
    assert list(gm.feature_names_in_) == list("abcd")
    assert_same_bits(GaussianMixture(3, partition_rows=600, resident=False, random_state=0, tol=1e-5).fit(pattern), gm)
    frame.rename(columns={"a": "z"}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="feature names"):
        gm.score(tmp_path / "other.parquet")
    frame.assign(a="text").to_parquet(tmp_path / "text.parquet")
    with pytest.raises(ValueError, match=r"text\.parquet: the column 'a' has the type"):
        gm.fit(tmp_path / "text.parquet")


def test_partitions_without_weight():
    weights = W.copy()
    weights[500:1000] = 0
    params = {"random_state": 0, "tol": 1e-5}
    gm = GaussianMixture(3, partition_rows=500, **params).fit(X, sample_weight=weights)
    assert_close(gm, gaussmix.GaussianMixture(3, **params).fit(X, sample_weight=weights))
    assert gm.predict(X).shape == (3001,)
    with pytest.raises(ValueError, match="all sample weights are zero"):
        gm.fit(X, sample_weight=np.zeros(3001))


def nan_at(row):
    x = X.copy()
    x[row, 2] = np.nan
    return x


@pytest.mark.parametrize(
    ("x", "weights", "message"),
    [
        (nan_at(1700), None, r"^rows 1400 to 2099 of X: Input X contains NaN[\s\S]*at row 1700, column 2"),
        (X, W[:-1], r"sample_weight.shape == \(3000,\), expected \(3001,\)!"),
        (X, np.where(np.arange(3001) == 705, -1.0, 1.0), r"rows 700 to 1399 of X: .*row 705 .*not negative"),
        (X[:1], None, r"Found array with 1 sample\(s\) \(shape=\(1, 4\)\) while a minimum of 2 is required"),
        (X[:2], None, "Expected n_samples >= n_components"),
        (X[0], None, "Expected 2D array, got 1D array instead"),
        ("none.npy", None, r"none\.npy: .*No such file"),
        ("no*.npy", None, r"there is no file no\*\.npy"),
        ("x.txt", None, r"x\.txt: the name of a file of samples ends in \.npy"),
    ],
)
def test_errors(x, weights, message):
    with pytest.raises((ValueError, OSError), match=message):
        GaussianMixture(3, partition_rows=700).fit(x, sample_weight=weights)


def test_as_many_partitions_stay_as_the_memory_holds(files):
    shard = Shard(Options("<f8", 4, device="cpu", memory=2 * 3 * 100 * 4 * 8))
    rows = [Partition(f"part {i}", Array(X[100 * i : 100 * i + 100])) for i in range(4)]
    assert [shard.load(i, part).resident for i, part in enumerate(rows)] == [True, True, True, False]
    # Each time in the place of itself.
    assert all(shard.load(0, rows[0]).resident for _ in range(4))
    [(_, _, mixed)] = shard.ask("moments", pickle.dumps(()))
    shard = Shard(Options("<f8", 4, resident=False, memory=1))
    assert not any(shard.load(i, part).resident for i, part in enumerate(rows))
    assert shard.ask("moments", pickle.dumps(())) == [(2, 0, mixed)]


@pytest.mark.parametrize(("dtype", "float64", "stay"), [("<f8", False, 3), ("<f4", True, 3), ("<f4", False, 2)])
def test_as_many_partitions_stay_in_a_gpu_as_its_memory_holds(files, monkeypatch, dtype, float64, stay):
    """The rule needs no GPU. Memory that holds all samples in float32 may not hold them in float64."""
    x = X.astype(dtype)
    parts = [Partition(f"part {i}", Array(x[100 * i : 100 * i + 100])) for i in range(4)]
    mixture = gaussmix.GaussianMixture(2, random_state=0).fit(X[:400])._mixture()
    loads = []
    data = gaussmix._core.Data
    monkeypatch.setattr("gaussmix._core.Data", lambda x, *more, **options: loads.append(len(x)) or data(x, *more, **options))
    # A partition has 3,200 bytes in float64; the third or the second must exceed 80 % of the memory.
    shards = [Shard(Options(dtype, 4, float64=float64, device="cpu", gpu_memory=m)) for m in (int(2.1 * 3200 / 0.8), None)]
    found = []
    for shard in shards:
        assert [shard.load(i, part).resident for i, part in enumerate(parts)] == [True] * 4
        loads.clear()
        found.append([shard.ask("statistics", pickle.dumps((mixture,))) for _ in range(2)])
        found[-1] += [shard.ask("values", pickle.dumps((kind, mixture))) for kind in ("scores", "labels")]
        # The others are brought to the device for each of the four requests.
        assert len(loads) == (4 * (4 - stay) if shard is shards[0] else 0)
        assert shard.ask("describe", pickle.dumps(())) and all(value for *_, value in shard.ask("moments", pickle.dumps(())))
    assert found[0] == found[1]


def test_damaged_files_are_named(files):
    whole = (files / "x2.npy").read_bytes()
    (files / "short.npy").write_bytes(whole[:-8])
    (files / "text.npy").write_text("not an array")
    np.save(files / "narrow.npy", X[:, :3])
    np.save(files / "flat.npy", X[:, 0])
    for name, message in {
        "short.npy": "shorter than its header says",
        "text.npy": "magic string",
        "narrow.npy": "has 3 features, but .*x0.npy has 4",
        "flat.npy": "samples have the shape",
    }.items():
        with pytest.raises(ValueError, match=name + ".*" + message):
            GaussianMixture(2).fit([files / "x0.npy", files / name])
    # A file disappears during the fit.
    gm = GaussianMixture(3, resident=False, partition_rows=500, callback=lambda _: (files / "x2.npy").unlink())
    with pytest.raises(FileNotFoundError, match=r"rows 0 to 499 of .*x2\.npy"):
        gm.fit(str(files / "x[02].npy"))


def test_likelihood():
    local = gaussmix.Likelihood(X, W, covariance_type="full")
    gm = gaussmix.GaussianMixture(3, random_state=0).fit(X)
    one = (gm.weights_, gm.means_, gm.covariances_)
    sets = [np.stack([p, p]) for p in one]
    sets[1][1] += 0.1
    with Likelihood(X, W, partition_rows=500, covariance_type="full", engine=InProcess(2)) as likelihood:
        np.testing.assert_allclose(likelihood(*one), local(*one), rtol=1e-13)
        np.testing.assert_allclose(likelihood(*sets), local(*sets), rtol=1e-13)
        np.testing.assert_allclose(likelihood.score_samples(*one), local.score_samples(*one), rtol=1e-12)
        for a, b in zip(likelihood.gradient(*one), local.gradient(*one), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
        assert likelihood.statistics(*one).weight == pytest.approx(W.sum())
        with pytest.raises(ValueError, match="weights sum to"):
            likelihood(2 * gm.weights_, gm.means_, gm.covariances_)


def with_holes():
    """Remove a third of the values: in the second partition of 700 rows a whole column, in row 10 and others all."""
    x = X.copy()
    x[np.random.default_rng(2).random(x.shape) < 0.3] = np.nan
    x[700:1400, 2] = np.nan
    x[10] = np.nan
    return x


HOLES = with_holes()
EMPTY_ROWS = int(np.isnan(HOLES).all(axis=1).sum())


@pytest.mark.parametrize(
    "more",
    [*({"covariance_type": kind} for kind in [*KINDS, "EVI", "VEV"]), {"standardize": True}, {"init_params": "random", "n_init": 2}],
    ids=str,
)
@pytest.mark.parametrize("weights", [None, W], ids=["", "weights"])
def test_missing_values(more, weights):
    params = {"random_state": 0, "tol": 1e-5, "max_iter": 300, "missing": True, **more}
    with pytest.warns(UserWarning, match=f"{EMPTY_ROWS} rows have no observed value, the first is row 10 ") as seen:
        local = gaussmix.GaussianMixture(3, **params).fit(HOLES, sample_weight=weights)
    message = str(seen[0].message)
    fits = []
    for n, resident in [(1, True), (3, False)]:
        with pytest.warns(UserWarning) as seen:
            gm = GaussianMixture(3, engine=InProcess(n), partition_rows=700, resident=resident, **params)
            fits.append(gm.fit(HOLES, None, weights))
        assert [str(warning.message) for warning in seen] == [message]
    assert_same_bits(*fits)
    gm = fits[0]
    # EM passes on the differences of the sums of other partitions, and missing values cost more iterations.
    assert_close(gm, local, 1e-9)
    assert np.array_equal(gm.predict(HOLES), local.predict(HOLES))
    np.testing.assert_allclose(gm.score_samples(HOLES), local.score_samples(HOLES), rtol=1e-8, atol=1e-8)
    assert gm.score_samples(HOLES)[10] == 0.0
    np.testing.assert_allclose(gm.predict_proba(HOLES), local.predict_proba(HOLES), rtol=1e-7, atol=1e-8)
    for method in ("score", "bic", "aic"):
        of = [getattr(m, method)(HOLES, sample_weight=weights) for m in (gm, local)]
        np.testing.assert_allclose(*of, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:.*no observed value")
def test_other_uses_of_missing_values(tmp_path):
    params = {"random_state": 0, "missing": True}
    # Without missing values: the bits without the option.
    for more in ({}, {"standardize": True}, {"covariance_type": "diag"}):
        complete = [GaussianMixture(3, partition_rows=700, random_state=0, missing=m, **more).fit(X) for m in (False, True)]
        assert_same_bits(*complete)
    # Many samples, in float32; chunks.
    x = np.tile(HOLES, (6, 1)).astype(np.float32)
    fits = [m(3, **params).fit(x) for m in (gaussmix.GaussianMixture, GaussianMixture)]
    np.testing.assert_allclose(fits[0].means_, fits[1].means_, atol=1e-4)
    gm, local = GaussianMixture(3, partition_rows=100, **params), gaussmix.GaussianMixture(3, **params)
    for chunk in np.array_split(HOLES, 4):
        gm.partial_fit(chunk)
        local.partial_fit(chunk)
    np.testing.assert_allclose(gm.means_, local.means_, rtol=1e-9)
    # Nulls of Parquet.
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame(HOLES, columns=list("abcd")).to_parquet(tmp_path / "x.parquet", row_group_size=700)
    gm = GaussianMixture(3, partition_rows=700, **params)
    assert_same_bits(gm.fit(tmp_path / "x.parquet"), GaussianMixture(3, partition_rows=700, **params).fit(HOLES))
    # Selection.
    found = gaussmix.select(HOLES, [1, 3], estimator=GaussianMixture(partition_rows=700), **params)
    alone = gaussmix.select(HOLES, [1, 3], **params)
    for a, b in zip(found.table, alone.table, strict=True):
        assert a.criterion == pytest.approx(b.criterion, rel=1e-9)
    # A likelihood with its derivatives.
    one = (gm.weights_, gm.means_, gm.covariances_)
    local = gaussmix.Likelihood(HOLES, W, missing=True)
    with Likelihood(HOLES, W, partition_rows=500, engine=InProcess(2), missing=True) as likelihood:
        np.testing.assert_allclose(likelihood(*one), local(*one), rtol=1e-12)
        np.testing.assert_allclose(likelihood.score_samples(*one), local.score_samples(*one), rtol=1e-12)
        for a, b in zip(likelihood.gradient(*one), local.gradient(*one), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("given", [False, True], ids=["", "start"])
def test_errors_of_missing_values(given):
    start = {"weights_init": [1.0], "means_init": np.zeros((1, 4)), "precisions_init": np.eye(4)[np.newaxis]}
    start = start if given else {}
    nothing = HOLES.copy()
    nothing[:, 1] = np.nan
    # The only values of the column have no weight.
    weightless, weights = nothing.copy(), np.ones(len(X))
    weightless[:5, 1], weights[:5] = 1.0, 0.0
    infinite = HOLES.copy()
    infinite[1700, 2] = np.inf
    for engine_fit in (gaussmix.GaussianMixture, GaussianMixture):
        gm = engine_fit(1, missing=True, **start)
        with pytest.raises(ValueError, match=r"nothing is observed in column 1 \(counted from 0\)"):
            gm.fit(nothing)
        with pytest.raises(ValueError, match="nothing is observed in column 1 .*rows without weight"):
            gm.fit(weightless, sample_weight=weights)
        with pytest.raises(ValueError, match="contains infinity"):
            gm.fit(infinite)
    with pytest.raises(ValueError, match=r"^rows 1400 to 2099 of X: Input X contains infinity"):
        GaussianMixture(2, missing=True, partition_rows=700, **start).fit(infinite)
    with pytest.raises(ValueError, match="contains NaN"):
        Likelihood(HOLES)


class Counting(InProcess):
    """Counts loaded partitions."""

    loaded = 0

    def load(self, partitions, options):
        self.loaded += len(partitions)
        return super().load(partitions, options)


@pytest.mark.parametrize("standardize", [False, True])
def test_selection(standardize):
    params = {"random_state": 0, "standardize": standardize}
    tried = {"n_components": [1, 3, 2], "covariance_type": ["full", "diag"], "sample_weight": W}
    local = gaussmix.select(X, **tried, **params)
    engine = Counting(2)
    found = gaussmix.select(X, **tried, estimator=GaussianMixture(engine=engine, partition_rows=700), **params)
    assert isinstance(found.best, GaussianMixture) and found.best.n_components == local.best.n_components == 3
    assert_close(found.best, local.best)
    for a, b in zip(found.table, local.table, strict=True):
        assert (a.covariance_type, a.n_components, a.n_iter) == (b.covariance_type, b.n_components, b.n_iter)
        np.testing.assert_allclose(a[2:7], b[2:7], rtol=1e-12)
        gm = GaussianMixture(a.n_components, covariance_type=a.covariance_type, partition_rows=700, **params)
        # The bits of a separate fit.
        assert gm.fit(X, sample_weight=W).bic(X, sample_weight=W) == a.criterion
    # Once for all six; in other units, for each of them there and back.
    assert engine.loaded == (5 if not standardize else 5 * 13)
    with pytest.raises(ValueError, match="Expected n_samples >= n_components but got n_components = 3, n_samples = 2"):
        gaussmix.select(X[:2], [4, 3], estimator=GaussianMixture())
    with pytest.warns(UserWarning, match="n_components from 3 on are left out: Expected n_samples >= n_components"):
        found = gaussmix.select(X[:2], [1, 3, 2], estimator=GaussianMixture())
    assert [row.n_components for row in found.table] == [1, 2]


def test_far_samples_have_the_error_of_one_array():
    x = np.vstack([X, np.full((1, 4), 1e200)])
    messages = []
    for mixture in (gaussmix.GaussianMixture, GaussianMixture):
        gm = mixture(1, weights_init=[1.0], means_init=X[:1], precisions_init=np.eye(4)[np.newaxis])
        with pytest.raises(ValueError) as error:
            gm.fit(x)
        messages.append(str(error.value))
    assert messages[1].endswith(messages[0])


PEAK = """
import sys
import numpy as np
from gaussmix.cluster import GaussianMixture

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))

before = peak()
gm = GaussianMixture(2, covariance_type="diag", max_iter=2, tol=0, random_state=0, n_jobs=1, partition_rows=20_000,
                     device="cpu", resident=sys.argv[2] == "True", init_params="random_from_data").fit(sys.argv[1])
print(peak() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="this system does not say how much memory was used")
def test_streaming_needs_memory_for_one_partition(tmp_path):
    """240 MB in partitions of 1.6 MB: streaming must not need a tenth of what residence needs."""
    n, d = 3_000_000, 20
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (n, d))
    rng = np.random.default_rng(0)
    for first in range(0, n, 100_000):
        x[first : first + 100_000] = rng.standard_normal((100_000, d), dtype=np.float32)
    del x

    def growth(resident):
        command = [sys.executable, "-W", "ignore", "-c", PEAK, str(tmp_path / "x.npy"), str(resident)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    streamed, whole = growth(False), growth(True)
    assert whole > 240
    assert streamed < 40, f"{streamed} MB, resident {whole} MB"


def test_icl_is_of_one_process():
    gm = GaussianMixture(3, engine=InProcess(1), random_state=0).fit(X)
    with pytest.raises(ValueError, match="one process"):
        gm.icl(X)
    local = gaussmix.GaussianMixture.from_parameters(gm.mixture_)
    assert local.icl(X) > local.bic(X)


@pytest.mark.parametrize("kind", ["GaussianHMM", "GMMHMM"])
def test_sequences(tmp_path, monkeypatch, kind):
    lengths, params = [500, 1, 1500, 1000], {"n_components": 3, "random_state": 0, "n_iter": 4, "tol": -np.inf, "missing": True}
    holes = X.astype(np.float32)
    holes[np.random.default_rng(2).random(X.shape) < 0.1] = np.nan
    alone = getattr(hmm, kind)(**params).fit(holes, lengths, [1, 2, 0, 1])
    start = getattr(cluster, kind)(engine=InProcess(2), partition_rows=500, **params)
    path = tmp_path / "fit.json"
    clone(start).set_params(n_iter=2).fit(holes, lengths, [1, 2, 0, 1], path)
    for fit in (clone(start).fit(holes, lengths, [1, 2, 0, 1]), clone(start).fit(holes, lengths, [1, 2, 0, 1], path)):
        np.testing.assert_allclose(fit.means_, alone.means_, rtol=1e-6)
        np.testing.assert_allclose(fit.predict_proba(holes, lengths), alone.predict_proba(holes, lengths), rtol=1e-5, atol=1e-7)
    # Some rows make the start.
    monkeypatch.setattr("gaussmix.cluster.markov._START", 600)
    some = clone(start).fit(holes, lengths)
    assert some.score(holes, lengths) == pytest.approx(alone.score(holes, lengths), rel=0.02)
    assert pickle.loads(pickle.dumps(some)).engine is None
    with pytest.raises(ValueError, match="lengths add up to 3001, but X has 3000 rows"):
        start.fit(holes[:3000], lengths)
