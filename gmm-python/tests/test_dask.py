"""The mixture on Dask: two workers in separate processes."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from sklearn.base import clone

import gaussmix
from gaussmix import cluster, deconvolution, hmm
from gaussmix.deconvolution import Measurements

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402
import pandas as pd  # noqa: E402

from gaussmix.dask import GMMHMM, BayesianGaussianMixture, ExtremeDeconvolution, GaussianHMM, GaussianMixture, Likelihood  # noqa: E402

rng = np.random.default_rng(0)
X = (np.arange(5003) % 3)[:, np.newaxis] * np.linspace(4, 1, 4) + rng.normal(size=(5003, 4))
W = rng.uniform(size=5003)
PARAMS = {"n_components": 3, "random_state": 0, "tol": 1e-5}
SAVED = ("weights_", "means_", "covariances_", "precisions_cholesky_")
# The longest time for a killed worker to start again.
RESTART_SECONDS = 300


def assert_same_bits(a, b):
    for name in SAVED:
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert a.lower_bounds_ == b.lower_bounds_


def assert_close(a, b):
    for name in SAVED:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.fixture(scope="module")
def client():
    # By default Dask gives up a killed worker that has not restarted after 15 s, which is too short for a busy machine.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": f"{RESTART_SECONDS}s"}),
        distributed.LocalCluster(2, threads_per_worker=1, processes=True, dashboard_address=None) as workers,
        distributed.Client(workers) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def reference():
    """The same partitions in this process."""
    return cluster.GaussianMixture(partition_rows=700, **PARAMS).fit(X)


def collection(n=700):
    return da.from_array(X, chunks=(n, 2))


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical", "VEE"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_bits_of_one_process(client, kind, weighted):
    params = {**PARAMS, "covariance_type": kind}
    here = cluster.GaussianMixture(partition_rows=700, **params).fit(X, sample_weight=W if weighted else None)
    weights = da.from_array(W, chunks=500) if weighted else None
    assert_same_bits(GaussianMixture(client=client, **params).fit(collection(), sample_weight=weights), here)
    others = GaussianMixture(client=client, **params).fit(collection(1999), sample_weight=W if weighted else None)
    assert_close(others, here)
    assert_close(others, gaussmix.GaussianMixture(**params).fit(X, sample_weight=W if weighted else None))


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_variational_inference(client, tmp_path, kind):
    params = {**PARAMS, "covariance_type": kind, "n_components": 5, "max_iter": 60}
    here = cluster.BayesianGaussianMixture(partition_rows=700, **params).fit(X, sample_weight=W)
    x, w = collection(), da.from_array(W, chunks=500)
    gm = BayesianGaussianMixture(client=client, **params).fit(x, sample_weight=w)
    assert_same_bits(gm, here)
    assert np.array_equal(gm.weight_concentration_, here.weight_concentration_) and gm.elbo_ == here.elbo_
    for method in ("predict", "predict_proba", "score_samples"):
        np.testing.assert_allclose(getattr(gm, method)(x).compute(), getattr(here, method)(X), rtol=1e-9, atol=1e-12)
    assert gm.score(x) == pytest.approx(here.score(X), rel=1e-13)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "w.npy", W)
    files = BayesianGaussianMixture(client=client, partition_rows=700, **params)
    assert_same_bits(files.fit(tmp_path / "x.npy", sample_weight=tmp_path / "w.npy"), here)
    assert np.array_equal(files.predict(tmp_path / "x.npy").compute(), here.predict(X))


def test_units_and_runs(client):
    params = {**PARAMS, "standardize": True, "n_init": 2, "init_params": "random", "freeze": ["weights"]}
    here = cluster.GaussianMixture(partition_rows=700, **params).fit(X)
    assert_same_bits(GaussianMixture(client=client, **params).fit(collection()), here)


@pytest.mark.filterwarnings("ignore:.*no observed value")
@pytest.mark.parametrize("more", [{}, {"covariance_type": "tied"}, {"covariance_type": "diag", "standardize": True}])
def test_missing_values(client, tmp_path, more):
    holes = X.copy()
    holes[np.random.default_rng(2).random(X.shape) < 0.3] = np.nan
    # A partition without any value in a column, and a row without any.
    holes[700:1400, 2] = np.nan
    holes[10] = np.nan
    params = {**PARAMS, "missing": True, **more}
    here = cluster.GaussianMixture(partition_rows=700, **params).fit(holes, sample_weight=W)
    x = da.from_array(holes, chunks=(700, 2))
    gm = GaussianMixture(client=client, **params).fit(x, sample_weight=W)
    assert_same_bits(gm, here)
    for method in ("predict", "score_samples"):
        np.testing.assert_allclose(getattr(gm, method)(x).compute(), getattr(here, method)(holes), rtol=1e-9, atol=1e-12)
    assert gm.score(x) == pytest.approx(here.score(holes), rel=1e-13)
    np.save(tmp_path / "x.npy", holes)
    np.save(tmp_path / "w.npy", W)
    files = GaussianMixture(client=client, partition_rows=700, resident=False, **params)
    assert_same_bits(files.fit(tmp_path / "x.npy", sample_weight=tmp_path / "w.npy"), here)
    assert np.array_equal(gm.predict(tmp_path / "x.npy").compute(), here.predict(holes))
    one = (gm.weights_, gm.means_, gm.covariances_)
    with Likelihood(x, client=client, covariance_type=gm.covariance_type, missing=True) as likelihood:
        there = gaussmix.Likelihood(holes, covariance_type=gm.covariance_type, missing=True)
        assert likelihood(*one) == pytest.approx(there(*one), rel=1e-12)
    pandas = pytest.importorskip("pandas")
    import dask.dataframe as dd

    frame = dd.from_pandas(pandas.DataFrame(holes, columns=list("abcd")), npartitions=3)
    np.testing.assert_allclose(GaussianMixture(client=client, **params).fit(frame).score(frame), gm.score(x), rtol=1e-3)
    with pytest.raises(ValueError, match="nothing is observed in column 1"):
        GaussianMixture(client=client, **params).fit(da.where(da.arange(4) == 1, np.nan, x))


def test_labels(client, tmp_path):
    pandas = pytest.importorskip("pandas")
    import dask.dataframe as dd

    labels = np.where(np.random.default_rng(5).random(len(X)) < 0.2, np.random.default_rng(6).integers(0, 3, len(X)), -1)
    mask = (labels[:, np.newaxis] < 0) | (labels[:, np.newaxis] == np.arange(3))
    here = cluster.GaussianMixture(partition_rows=700, **PARAMS)
    predicted = here.fit_predict(X, sample_weight=W, labels=labels)
    x, gm = da.from_array(X, chunks=(700, 2)), GaussianMixture(client=client, **PARAMS)
    for known in (labels, da.from_array(labels, chunks=500)):
        found = gm.fit_predict(x, sample_weight=W, labels=known)
        assert isinstance(found, np.ndarray) and np.array_equal(found, predicted)
        assert_same_bits(gm, here)
    masked = cluster.GaussianMixture(partition_rows=700, **PARAMS).fit(X, sample_weight=W, labels=mask)
    for known in (mask, da.from_array(mask, chunks=(500, 2))):
        assert_same_bits(gm.fit(x, sample_weight=W, labels=known), masked)
    assert_same_bits(GaussianMixture(client=client, partition_rows=700, **PARAMS).fit(X, sample_weight=W, labels=known), masked)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "l.npy", labels)
    files = GaussianMixture(client=client, partition_rows=700, resident=False, **PARAMS)
    assert_same_bits(files.fit(tmp_path / "x.npy", sample_weight=W, labels=tmp_path / "l.npy"), here)
    frame = dd.from_pandas(pandas.DataFrame(X, columns=list("abcd")).assign(w=W, known=labels), npartitions=3)
    gm.fit(frame[list("abcd")], sample_weight=frame["w"], labels=frame["known"])
    assert_close(gm, gaussmix.GaussianMixture(**PARAMS).fit(X, sample_weight=W, labels=labels))
    wrong = np.where(np.arange(len(X)) == 1000, 3, labels)
    for known, message in (
        (wrong, "^labels have 3 for sample 1000"),
        (da.from_array(wrong, chunks=500), "rows 700 to 1399 of X: labels have 3 for sample 1000"),
        (da.from_array(labels[1:], chunks=500), r"labels.shape == \(\d+,\), expected"),
        (tmp_path / "l.npy", "labels names files"),
    ):
        with pytest.raises(ValueError, match=message):
            gm.fit(x, labels=known)
    with pytest.raises(ValueError, match="an array labels cannot be divided"):
        gm.fit(frame[list("abcd")], labels=labels)


def test_values_are_dask_arrays(client, reference):
    gm = GaussianMixture(client=client, **PARAMS).fit(collection())
    for method in ("predict", "predict_proba", "score_samples"):
        values = getattr(gm, method)(collection(1000))
        expected = getattr(reference, method)(X)
        assert isinstance(values, da.Array) and values.shape == expected.shape and values.dtype == expected.dtype
        np.testing.assert_allclose(values.compute(), expected, rtol=1e-9, atol=1e-12)
    assert gm.score(collection()) == pytest.approx(reference.score(X), rel=1e-13)
    assert gm.bic(collection(), sample_weight=W) == pytest.approx(reference.bic(X, sample_weight=W), rel=1e-12)
    assert np.array_equal(gm.fit_predict(collection()).compute(), reference.predict(X))
    assert np.array_equal(gm.predict(X[:10]), reference.predict(X[:10]))


def test_dataframes(client):
    pandas = pytest.importorskip("pandas")
    import dask.dataframe as dd

    frame = dd.from_pandas(pandas.DataFrame(X, columns=list("abcd")).assign(w=W), npartitions=3)
    x = frame[list("abcd")]
    gm = GaussianMixture(client=client, **PARAMS).fit(x, sample_weight=frame["w"])
    local = gaussmix.GaussianMixture(**PARAMS).fit(X, sample_weight=W)
    assert_close(gm, local)
    assert list(gm.feature_names_in_) == list("abcd")
    assert np.array_equal(gm.predict(x).compute(), local.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        gm.predict(x.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="lengths of the partitions of X are not known"):
        gm.fit(x, sample_weight=W)
    with pytest.raises(ValueError, match="partition_rows does not divide"):
        GaussianMixture(client=client, partition_rows=700).fit(x)


@pytest.mark.parametrize("kind", ["Float64", "Float32", "Int64", "double[pyarrow]", "int32[pyarrow]", "boolean", "object"])
@pytest.mark.parametrize("missing", [False, True])
def test_dataframes_of_all_types_are_taken_as_those_of_pandas(client, kind, missing):
    pd = pytest.importorskip("pandas")
    import dask.dataframe as dd

    numbers = (X[:600] * 10).round()
    table = pd.DataFrame(numbers > 5 if kind == "boolean" else numbers, columns=list("abcd")).astype(kind)
    if missing:
        table.iloc[5:300:7, 1] = pd.NA
    frame = dd.from_pandas(table, npartitions=3)
    params = {"n_components": 2, "random_state": 0, "missing": missing, "reg_covar": 1e-3, "tol": 1e-4}
    here = gaussmix.GaussianMixture(**params).fit(table)
    gm = GaussianMixture(client=client, **params).fit(frame)
    # The rounding of sums; the start is the same.
    assert_close(gm, here)
    assert gm.means_.dtype == here.means_.dtype
    values = gm.score_samples(frame)
    assert values.dtype == here.score_samples(table).dtype
    np.testing.assert_allclose(values.compute(), here.score_samples(table), rtol=1e-6)
    np.testing.assert_array_equal(gm.predict(frame).compute(), here.predict(table))
    parameters = (here.weights_, here.means_, here.covariances_)
    with Likelihood(frame, client=client, missing=missing) as likelihood:
        total = gaussmix.Likelihood(table, missing=missing)(*parameters)
        assert likelihood(*parameters) == pytest.approx(total, rel=1e-9)
    with pytest.warns(UserWarning, match="n_components from 700 on are left out"):
        found = gaussmix.select(frame, [1, 700], estimator=GaussianMixture(client=client, **params))
    assert [row.n_components for row in found.table] == [1]


def test_files_that_the_workers_read(client, reference, tmp_path):
    np.save(tmp_path / "x0.npy", X[:2800])
    np.save(tmp_path / "x1.npy", X[:0])
    np.save(tmp_path / "x2.npy", X[2800:])
    np.save(tmp_path / "w.npy", np.ones(5003))
    here = cluster.GaussianMixture(partition_rows=700, **PARAMS).fit(str(tmp_path / "x?.npy"))
    for resident in (None, False):
        gm = GaussianMixture(client=client, partition_rows=700, resident=resident, **PARAMS).fit(str(tmp_path / "x?.npy"))
        assert_same_bits(gm, here)
    weighted = GaussianMixture(client=client, partition_rows=700, **PARAMS).fit(
        str(tmp_path / "x?.npy"), sample_weight=tmp_path / "w.npy"
    )
    assert_close(weighted, here)
    labels = gm.predict(str(tmp_path / "x?.npy"))
    assert isinstance(labels, da.Array) and np.array_equal(labels.compute(), reference.predict(X))


def test_small_partitions(client):
    x = X[:41]
    params = {"n_components": 1, "random_state": 0}
    for rows in (1, 40):
        gm = GaussianMixture(client=client, **params).fit(da.from_array(x, chunks=(rows, 4)))
        assert_same_bits(gm, cluster.GaussianMixture(partition_rows=rows, **params).fit(x))
    one = GaussianMixture(2, client=client, random_state=0).fit(collection()[:, :1])
    assert_close(one, gaussmix.GaussianMixture(2, random_state=0).fit(X[:, :1]))
    # Boolean indexing leaves chunks of unknown length, and an empty one.
    x = collection()
    gm = GaussianMixture(client=client, **PARAMS).fit(x[x[:, 0] < np.inf])
    assert_close(gm, cluster.GaussianMixture(partition_rows=700, **PARAMS).fit(X))
    x = da.concatenate([collection()[:0], collection()])
    assert_close(GaussianMixture(client=client, **PARAMS).fit(x), gm)


def kill_one(client, after):
    """A callback that kills a worker after some iterations."""
    client.wait_for_workers(2, timeout=RESTART_SECONDS)
    pids = list(client.run(os.getpid).values())
    killed = []

    def callback(iteration):
        if iteration.iteration == after:
            os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])

    return callback, killed


@pytest.mark.parametrize("source", ["array", "file"])
def test_the_death_of_a_worker_changes_nothing(client, reference, source, tmp_path):
    x = collection()
    if source == "file":
        np.save(tmp_path / "x.npy", X)
        x = tmp_path / "x.npy"
    callback, killed = kill_one(client, 2)
    gm = GaussianMixture(client=client, partition_rows=700, callback=callback, **PARAMS).fit(x)
    assert killed and gm.n_iter_ > 2
    assert_same_bits(gm, reference)


def test_large_statistics_are_added_by_the_workers(client, monkeypatch, reference):
    monkeypatch.setattr("gaussmix.cluster.dask.engine._LARGE", 100)
    gm = GaussianMixture(client=client, **PARAMS).fit(collection())
    assert_same_bits(gm, reference)
    callback, killed = kill_one(client, 2)
    assert_same_bits(GaussianMixture(client=client, callback=callback, **PARAMS).fit(collection()), reference)
    assert killed


def test_two_fits_at_once(client, reference):
    found = {}

    def fit(k):
        found[k] = GaussianMixture(client=client, **{**PARAMS, "n_components": k}).fit(collection())

    threads = [threading.Thread(target=fit, args=(k,)) for k in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same_bits(found[3], reference)
    assert_same_bits(found[2], cluster.GaussianMixture(partition_rows=700, **{**PARAMS, "n_components": 2}).fit(X))


KILLED = """
import os, sys
import dask.array as da
from distributed import Client
from gaussmix.dask import Likelihood

client = Client(sys.argv[1])
likelihood = Likelihood(da.ones((100, 2), chunks=(10, 2)), client=client)
print(len(likelihood._engine._shards), flush=True)
os.kill(os.getpid(), 9)
"""


def test_memory_is_freed(client):
    client.wait_for_workers(2, timeout=RESTART_SECONDS)

    # A function inside of another one goes to the workers by value, wherever the tests are.
    def count():
        gc.collect()
        return sum(isinstance(thing, cluster.Shard) for thing in gc.get_objects())

    def freed():
        deadline = time.monotonic() + 20
        while sum(client.run(count).values()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return sum(client.run(count).values()) == 0

    with Likelihood(collection(), client=client):
        assert sum(client.run(count).values()) == 2
    assert freed()
    # Another process that ends without a message.
    killed = subprocess.run([sys.executable, "-c", KILLED, client.scheduler.address], capture_output=True, text=True)
    assert killed.stdout == "2\n", killed.stderr
    assert freed()


def test_errors_name_the_partition(client, tmp_path):
    x = X.copy()
    x[1700, 2] = np.nan
    gm = GaussianMixture(client=client, **PARAMS)
    with pytest.raises(ValueError, match=r"rows 1400 to 2099 of X: Input X contains NaN"):
        gm.fit(da.from_array(x, chunks=(700, 4)))
    with pytest.raises(FileNotFoundError, match=r"none\.npy"):
        gm.fit(tmp_path / "none.npy")
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "short.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"short\.npy: the file is shorter"):
        gm.fit([tmp_path / "x.npy", tmp_path / "short.npy"])

    def fails(block):
        raise OSError("no tape in the drive")

    with pytest.raises(OSError, match=r"of X: no tape in the drive"):
        gm.fit(collection().map_blocks(fails, dtype=float, meta=np.empty((0, 0))))
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        gm.fit(collection()[:, 0])
    with pytest.raises(ValueError, match="resident=False needs files"):
        GaussianMixture(client=client, resident=False).fit(collection())
    with pytest.raises(ValueError, match="resident=False needs files"):
        Likelihood(collection(), client=client, resident=False)
    # The cluster still works.
    assert np.isfinite(gm.fit(collection()).lower_bound_)


def test_ctrl_c_leaves_a_mixture(client):
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))

    def press_soon(iteration):
        if iteration.iteration == 2:
            timer.start()

    gm = GaussianMixture(3, client=client, tol=0, max_iter=10**6, callback=press_soon)
    with pytest.raises(KeyboardInterrupt):
        gm.fit(collection())
    assert gm.n_iter_ >= 1 and np.isfinite(gm.score(collection()))


def test_without_a_client_there_is_a_cluster_for_the_time_of_the_fit(reference, monkeypatch):
    def no_client():
        raise ValueError("No clients found")

    monkeypatch.setattr(distributed, "default_client", no_client)
    assert_same_bits(GaussianMixture(**PARAMS).fit(collection()), reference)
    with pytest.raises(ValueError, match="No clients found"):
        distributed.default_client()


def test_likelihood_with_one_message_for_a_batch(client, monkeypatch):
    local = gaussmix.Likelihood(X, covariance_type="full")
    gm = gaussmix.GaussianMixture(**PARAMS).fit(X)
    sets = [np.stack([p] * 16) for p in (gm.weights_, gm.means_, gm.covariances_)]
    sets[1] += np.random.default_rng(1).normal(size=(16, 1, 1)) * 0.1
    with Likelihood(collection(), client=client, covariance_type="full") as likelihood:
        requests = []
        ask = likelihood._engine.ask
        monkeypatch.setattr(likelihood._engine, "ask", lambda *request: requests.append(request[0]) or ask(*request))
        np.testing.assert_allclose(likelihood(*sets), local(*sets), rtol=1e-13)
        assert requests == ["totals"]
        for a, b in zip(likelihood.gradient(*(s[0] for s in sets)), local.gradient(*(s[0] for s in sets)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_selection(client):
    tried = {"n_components": range(1, 5), "covariance_type": ["full", "tied"], "criterion": "aic", "random_state": 0}
    here = gaussmix.select(X, **tried, estimator=cluster.GaussianMixture(partition_rows=700))
    found = gaussmix.select(collection(), **tried, estimator=GaussianMixture(client=client))
    assert found.table == here.table
    assert_same_bits(found.best, here.best)
    assert found.best.client is client
    local = gaussmix.select(X, **tried)
    for a, b in zip(found.table, local.table, strict=True):
        assert a[:3] + a[5:] == b[:3] + b[5:] and a[3:5] == pytest.approx(b[3:5], rel=1e-12)


@pytest.mark.parametrize("kind", ["common", "variances", "covariances"])
def test_noise_travels_with_the_samples(client, kind):
    variances = np.random.default_rng(1).uniform(0.1, 1.0, X.shape)
    noise = {"common": np.diag([0.1, 0.2, 0.3, 0.4]), "variances": variances, "covariances": variances[:, :, None] * np.eye(4)}[kind]
    measured = X + 0.5 * np.random.default_rng(2).normal(size=X.shape)
    # One block has as many rows as columns.
    rows = da.from_array(measured, chunks=((4, 999, 4000), 2))
    beside = noise if kind == "common" else da.from_array(noise, chunks=(700, *noise.shape[1:]))
    xd = ExtremeDeconvolution(client=client, **PARAMS).fit(rows, noise=beside)
    local = deconvolution.ExtremeDeconvolution(**PARAMS).fit(measured, noise=noise)
    np.testing.assert_allclose(xd.covariances_, local.covariances_, rtol=1e-9)
    assert xd.score(Measurements(rows, beside)) == pytest.approx(local.score(Measurements(measured, noise)), rel=1e-12)
    for method in ("predict", "predict_proba", "score_samples"):
        found = getattr(xd, method)(rows, beside)
        assert isinstance(found, da.Array)
        np.testing.assert_allclose(found.compute(), getattr(local, method)(measured, noise), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(xd.predict(measured, noise), local.predict(measured, noise))
    in_process = cluster.ExtremeDeconvolution(partition_rows=700, **PARAMS).fit(measured, noise=noise, sample_weight=W)
    weighted = deconvolution.ExtremeDeconvolution(**PARAMS).fit(measured, noise=noise, sample_weight=W)
    np.testing.assert_allclose(in_process.means_, weighted.means_, rtol=1e-9)
    np.testing.assert_allclose(in_process.score_samples(measured, noise), weighted.score_samples(measured, noise), rtol=1e-9)


def test_noise_that_workers_do_not_take(client):
    with pytest.raises(ValueError, match="neither projections"):
        ExtremeDeconvolution(client=client).fit(X, noise=(np.eye(4)[None], np.zeros(len(X), int)))
    with pytest.raises(ValueError, match="noise has the shape"):
        ExtremeDeconvolution(client=client).fit(X, noise=np.ones((5003, 3)))
    for kind, x in ((ExtremeDeconvolution(client=client), da.from_array(X[:4])), (cluster.ExtremeDeconvolution(), X[:4])):
        with pytest.raises(ValueError, match=r"may be variances or one covariance; give \(4, 4, 4\)"):
            kind.fit(x, noise=np.ones((4, 4)))


#: 100 sequences, in partitions of 700 rows or of a multiple.
LENGTHS = [20, 50] * 50
ROWS = X[:3500]
HIDDEN = {"n_components": 3, "random_state": 0, "n_iter": 5, "tol": -np.inf}


def walks(n_partitions):
    """Return a dataframe with a column for the sequence of each row."""
    frame = pd.DataFrame(ROWS, columns=list("abcd")).assign(walk=np.repeat([f"w{i}" for i in range(100)], LENGTHS))
    return dd.from_map(lambda part: frame.iloc[slice(*part)], [(i, i + 3500 // n_partitions) for i in range(0, 3500, 3500 // n_partitions)])


def test_hidden_markov_models(client):
    weights = np.arange(100) % 3 + 0.5
    for kind, local in ((GaussianHMM, hmm.GaussianHMM), (GMMHMM, hmm.GMMHMM)):
        alone = local(**HIDDEN).fit(ROWS, LENGTHS, weights)
        x = da.from_array(ROWS, chunks=(700, 2))
        fit = kind(client=client, **HIDDEN).fit(x, LENGTHS, weights)
        for name in ("startprob_", "transmat_", "means_", "covars_"):
            np.testing.assert_allclose(getattr(fit, name), getattr(alone, name), rtol=1e-10, atol=1e-12, err_msg=name)
        assert fit.score(x, LENGTHS) == pytest.approx(alone.score(ROWS, LENGTHS), rel=1e-12)
        assert fit.bic(x, LENGTHS) == pytest.approx(alone.bic(ROWS, LENGTHS), rel=1e-12)
        for method in ("decode", "score_samples"):
            (total, values), (total_alone, values_alone) = getattr(fit, method)(x, LENGTHS), getattr(alone, method)(ROWS, LENGTHS)
            assert isinstance(values, da.Array) and float(total) == pytest.approx(total_alone, rel=1e-12)
            np.testing.assert_allclose(values.compute(), values_alone, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(fit.predict(ROWS, LENGTHS), alone.predict(ROWS, LENGTHS))
        sums = fit.e_step(x, [LENGTHS[i : i + 20] for i in range(0, 100, 20)], weights)
        np.testing.assert_allclose(sums.transitions, alone.e_step(ROWS, LENGTHS, weights).transitions, rtol=1e-9)
    assert clone(fit).client is client and not hasattr(fit, "partial_fit")


def test_sequences_of_files_and_of_columns(client, tmp_path):
    frame, fits = walks(5), []
    fits.append(GaussianHMM(client=client, **HIDDEN).fit(frame, "walk"))
    states = fits[0].predict(frame, "walk")
    # The lengths of each partition, also delayed, and files, of which one is divided.
    parts = [dask.delayed(LENGTHS[i : i + 20]) for i in range(0, 100, 20)]
    fits.append(GaussianHMM(client=client, **HIDDEN).fit(frame.drop(columns="walk"), parts))
    np.save(tmp_path / "a.npy", ROWS[:2100])
    np.save(tmp_path / "b.npy", ROWS[2100:])
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    fits.append(GaussianHMM(client=client, partition_rows=700, **HIDDEN).fit(paths, LENGTHS))
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.means_, fits[0].means_)
    np.testing.assert_array_equal(fits[2].predict(paths, [LENGTHS[:60], LENGTHS[60:]]).compute(), states.compute())
    # Without lengths each file is a sequence.
    assert fits[2].score(paths) == pytest.approx(sum(map(fits[2].score, (ROWS[:2100], ROWS[2100:]))), rel=1e-12)


@pytest.mark.parametrize("n_workers", [1, 3])
def test_the_bits_of_hidden_markov_models_do_not_depend_on_workers(n_workers):
    x, here = da.from_array(ROWS, chunks=(700, 4)), cluster.GaussianHMM(partition_rows=700, **HIDDEN).fit(ROWS, LENGTHS)
    with (
        distributed.LocalCluster(n_workers, threads_per_worker=1, processes=False, dashboard_address=None) as workers,
        distributed.Client(workers) as client,
    ):
        np.testing.assert_array_equal(GaussianHMM(client=client, **HIDDEN).fit(x, LENGTHS).means_, here.means_)


def test_bad_lengths(client):
    x, fit = da.from_array(ROWS, chunks=(700, 4)), GaussianHMM(client=client, **HIDDEN)
    for lengths, message in (
        ([3500 - 69, 69], "sequence 0, rows 0 to 3430, begins before rows 2800 to 3499 of X"),
        ([700] * 4, "lengths add up to 2800, but X has 3500 rows"),
        ([[700]] * 4, "lists for 4 parts of X, but X has 5"),
        ([[700]] * 4 + [[699]], "rows 2800 to 3499 of X: its lengths add up to 699, but it has 700 rows"),
        ([700.5] * 5, "lengths holds 700.5"),
    ):
        with pytest.raises(ValueError, match=message):
            fit.fit(x, lengths)
    with pytest.raises(ValueError, match="sequence_weight has 4 numbers for 5 sequences"):
        fit.fit(x, sequence_weight=[1.0] * 4)
    with pytest.raises(ValueError, match="'w20' of the column 'walk' lie apart, in partitions 0 and 1"):
        fit.fit(walks(5).map_partitions(lambda part: part.assign(walk=part.walk.where(part.walk != "w0", "w20"))), "walk")
    with pytest.raises(ValueError, match="rows 0 to 699 of X: Input X contains NaN"):
        fit.fit(da.where(x == x[0, 0], np.nan, x))
