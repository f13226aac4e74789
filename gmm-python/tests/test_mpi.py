"""The mixture on MPI: processes started by mpiexec."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import gaussmix
from gaussmix import cluster

pytest.importorskip("mpi4py")
MPIEXEC = next((p for p in (Path(sys.executable).parent / "mpiexec", shutil.which("mpiexec")) if p and Path(p).exists()), None)
pytestmark = pytest.mark.skipif(MPIEXEC is None and os.environ.get("CI") != "true", reason="there is no mpiexec")

rng = np.random.default_rng(0)
X = (np.arange(5003) % 3)[:, np.newaxis] * np.linspace(4, 1, 4) + rng.normal(size=(5003, 4))
W = rng.uniform(size=5003)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mpi")
    np.save(folder / "x.npy", X)
    np.save(folder / "w.npy", W)
    np.save(folder / "empty.npy", X[:0])
    bad = X.copy()
    bad[4000, 1] = np.nan
    np.save(folder / "nan.npy", bad)
    holes = X.copy()
    holes[np.random.default_rng(2).random(X.shape) < 0.3] = np.nan
    # Partitions and ranks without any value in a column, and a row without any.
    holes[:2600, 2] = np.nan
    holes[10] = np.nan
    np.save(folder / "holes.npy", holes)
    return folder


def mpiexec(folder, ranks, *arguments):
    command = [str(MPIEXEC), "-n", str(ranks), sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def command(folder, ranks, *arguments):
    return mpiexec(folder, ranks, "-m", "gaussmix.mpi", *arguments)


PROGRAM = """
import sys
import warnings
import numpy as np
from mpi4py import MPI
from sklearn.exceptions import ConvergenceWarning
from gaussmix import cluster
from gaussmix.mpi import GMMHMM, BayesianGaussianMixture, ExtremeDeconvolution, GaussianHMM, GaussianMixture

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
X, W = np.load("x.npy"), np.load("w.npy")

def assert_same(a, b, tolerance=0):
    for name in ("weights_", "means_", "covariances_", "precisions_cholesky_", "lower_bounds_"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=tolerance, atol=tolerance, err_msg=name)
    assert a.converged_ == b.converged_

for kind in ("full", "tied", "diag", "spherical"):
    for weights in (None, W):
        params = dict(n_components=3, covariance_type=kind, random_state=0, tol=1e-5)
        here = cluster.GaussianMixture(partition_rows=700, **params).fit(X, sample_weight=weights)
        # Files: the bits of one process; arrays of the ranks: other partitions.
        gm = GaussianMixture(comm=comm, partition_rows=700, **params)
        assert_same(gm.fit("x.npy", sample_weight=None if weights is None else "w.npy"), here)
        part = slice(rank * 5003 // size, (rank + 1) * 5003 // size)
        gm = GaussianMixture(comm=comm, **params).fit(X[part], sample_weight=None if weights is None else W[part])
        assert_same(gm, here, 1e-12)
        # All ranks have the same bits.
        assert len({m.tobytes() for m in comm.allgather(gm.means_)}) == 1
        # Variational inference: the same sums, and the same M-step.
        params = dict(n_components=5, covariance_type=kind, random_state=0, max_iter=60)
        warnings.simplefilter("ignore", ConvergenceWarning)
        here = cluster.BayesianGaussianMixture(partition_rows=700, **params).fit(X, sample_weight=weights)
        gm = BayesianGaussianMixture(comm=comm, partition_rows=700, **params)
        assert_same(gm.fit("x.npy", sample_weight=None if weights is None else "w.npy"), here)
        assert gm.elbo_ == here.elbo_ and np.array_equal(gm.weight_concentration_, here.weight_concentration_)
        assert np.array_equal(gm.predict(X[part]), here.predict(X[part]))
        np.testing.assert_allclose(gm.score(X[part]), here.score(X), rtol=1e-12)
        gm = BayesianGaussianMixture(comm=comm, **params).fit(X[part], sample_weight=None if weights is None else W[part])
        # Dozens of iterations multiply the rounding of sums.
        assert_same(gm, here, 1e-9)
        assert len({m.tobytes() for m in comm.allgather(gm.means_)}) == 1
params = dict(random_state=0, tol=1e-5, partition_rows=700)
for more in (dict(n_components=1), dict(n_components=3, standardize=True), dict(n_components=3, resident=False),
             dict(n_components=3, n_init=2, freeze=["weights"])):
    here = cluster.GaussianMixture(**params, **more).fit(["x.npy", "empty.npy"])
    assert_same(GaussianMixture(comm=comm, **params, **more).fit(["x.npy", "empty.npy"]), here)
here = cluster.GaussianMixture(3, **params).fit(X)
# One rank has one row, the last has none.
parts = np.split(X, [1, 5003] if size > 2 else [1])
gm = GaussianMixture(3, comm=comm, **params).fit(parts[rank] if rank < len(parts) else X[:0])
assert_same(gm, here, 1e-12)
one = GaussianMixture(2, comm=comm, **params).fit(X[rank::size, :1])
assert np.isfinite(one.score(X[rank::size, :1]))
np.testing.assert_allclose(gm.score("x.npy", sample_weight=W), here.score(X, sample_weight=W), rtol=1e-12)
np.testing.assert_allclose(gm.bic(X[rank::size]), here.bic(X), rtol=1e-12)
noise = 0.1 + np.arange(4) * np.linspace(0, 1, len(X))[:, None]
for kind, of_rank, what in ((X[part], noise[part], noise), ("x.npy", np.eye(4), np.eye(4))):
    alone = cluster.ExtremeDeconvolution(3, **params).fit(X, noise=what)
    xd = ExtremeDeconvolution(3, comm=comm, **params).fit(kind, noise=of_rank)
    assert_same(xd, alone, 1e-10)
    assert np.array_equal(xd.predict(X[part], noise[part]), alone.predict(X, noise)[part])
assert np.array_equal(gm.predict(X[rank::size]), here.predict(X[rank::size]))
assert np.array_equal(gm.predict("x.npy"), here.predict(X))
# Hidden Markov models: a file that is divided between sequences, and sequences of each rank.
lengths = np.array([40, 1, 60] * 49 + [54])
hidden = dict(n_components=3, random_state=0, n_iter=5)
ends = np.cumsum([0, *lengths])
first, last = rank * 148 // size, (rank + 1) * 148 // size
rows, own = X[ends[first] : ends[last]], lengths[first:last]
for kind, local in ((GaussianHMM, cluster.GaussianHMM), (GMMHMM, cluster.GMMHMM)):
    here = local(partition_rows=700, **hidden).fit(X, lengths, lengths % 7 + 1)
    model = kind(comm=comm, partition_rows=700, **hidden).fit("x.npy", lengths, lengths % 7 + 1)
    assert np.array_equal(model.means_, here.means_) and np.array_equal(model.covars_, here.covars_)
    assert np.array_equal(model.predict("x.npy", lengths), here.predict(X, lengths))
    model = kind(comm=comm, **hidden).fit(rows, own, own % 7 + 1)
    np.testing.assert_allclose(model.means_, here.means_, rtol=1e-10)
    assert len({m.tobytes() for m in comm.allgather(model.means_)}) == 1
    assert np.array_equal(model.predict(rows, own), here.predict(X, lengths)[ends[first] : ends[last]])
    np.testing.assert_allclose(model.bic(rows, own), here.bic(X, lengths), rtol=1e-12)
try:
    model.fit(rows, own + (rank == size - 1))
except ValueError as error:
    assert f"the samples of rank {size - 1}: the lengths of the sequences add up to" in str(error), error
else:
    raise AssertionError("no error")
assert np.array_equal(gm.partial_fit(X[rank::size]).means_, comm.bcast(gm.means_))

# An error of one rank is raised by all.
bad = X[rank::size].copy()
bad[3, 2] = np.nan if rank == size - 1 else bad[3, 2]
try:
    gm.fit(bad)
except ValueError as error:
    assert str(error).startswith(f"the samples of rank {size - 1}: Input X contains NaN"), error
else:
    raise AssertionError("no error")
try:
    ExtremeDeconvolution(comm=comm).fit(X[part], noise=noise[part][rank == 0 :])
except ValueError as error:
    assert "noise has the shape" in str(error), error
else:
    raise AssertionError("no error")
# A fit forgets on all ranks how many samples were learnt before.
learnt = BayesianGaussianMixture(n_components=2, comm=comm, random_state=0).partial_fit(X[part]).fit(X[part]).partial_fit(X[part])
assert len({m.tobytes() for m in comm.allgather(learnt.means_)}) == 1
try:
    gm.fit("x.npy" if rank == 0 else X)
except ValueError as error:
    assert "names files" in str(error)

# A stop on rank 0 leaves a mixture on all ranks.
def stop(iteration):
    if iteration.iteration == 3:
        raise KeyboardInterrupt
gm = GaussianMixture(3, comm=comm, tol=0, callback=stop, random_state=0)
try:
    gm.fit(X[rank::size])
except KeyboardInterrupt:
    assert gm.n_iter_ == 3 and np.isfinite(gm.score(X[rank::size]))
else:
    raise AssertionError("not interrupted")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    GaussianMixture(3, comm=comm, tol=0, max_iter=2, random_state=0).fit(X[rank::size])
assert [w.category for w in seen] == ([ConvergenceWarning] if rank == 0 else [])
comm.Barrier()
if rank == 0:
    print("all well")
"""


LIKELIHOOD = """
import pickle
import numpy as np
from mpi4py import MPI
import gaussmix
from gaussmix import cluster
from gaussmix.mpi import GaussianMixture, Likelihood, MPIEngine

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
X, W = np.load("x.npy"), np.load("w.npy")
gm = gaussmix.GaussianMixture(3, random_state=0).fit(X)
one = (gm.weights_, gm.means_, gm.covariances_)
sets = [np.stack([p] * 16) for p in one]
sets[1] += np.random.default_rng(1).normal(size=(16, 1, 1)) * 0.1
local = gaussmix.Likelihood(X, W, covariance_type="full")
here = cluster.Likelihood(X, W, covariance_type="full", partition_rows=700)

requests = []
send_down = MPIEngine._send_down
def counted(self, request):
    requests.append(request[0] if rank == 0 else None)
    return send_down(self, request)
MPIEngine._send_down = counted

with Likelihood("x.npy", "w.npy", comm=comm, covariance_type="full", partition_rows=700) as likelihood:
    requests.clear()
    totals = likelihood(*sets)
    # The batch travels once: the request, and the message that it is complete.
    assert requests == (["ask", "end"] if rank == 0 else [None] * 2), requests
    assert np.array_equal(totals, here(*sets)) and likelihood(*one) == here(*one)
    np.testing.assert_allclose(totals, local(*sets), rtol=1e-13)
    np.testing.assert_allclose(likelihood.score_samples(*one), local.score_samples(*one), rtol=1e-12)
    for a, b in zip(likelihood.gradient(*one), local.gradient(*one)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    assert bytes(likelihood.statistics(*one)) == bytes(here.statistics(*one))
    assert "cpu" in likelihood.device
    # A sampler on rank 0 alone: the others answer until it ends.
    calls = []
    def walk():
        calls.append(rank)
        return [likelihood(*sets)[3] for _ in range(3)]
    assert likelihood.together(walk) == [totals[3]] * 3 and calls == ([0] if rank == 0 else [])
    for wrong in (
        lambda: likelihood(2 * gm.weights_, *one[1:]),
        lambda: likelihood.together(lambda: 1 / 0),
        lambda: likelihood.together(lambda: wrong),
    ):
        try:
            wrong()
        except (ValueError, ZeroDivisionError, AttributeError, pickle.PicklingError) as error:
            assert any(text in str(error) for text in ("weights sum to", "division by zero", "pickle")), error
        else:
            raise AssertionError("no error")
    assert np.array_equal(likelihood(*sets), totals)
# Arrays of the ranks; the last one may be empty.
parts = np.array_split(np.arange(5003), max(1, size - 1)) + [np.arange(0)]
mine = parts[rank] if size > 1 else np.arange(5003)
with Likelihood(X[mine], W[mine], comm=comm, covariance_type="full") as likelihood:
    np.testing.assert_allclose(likelihood(*sets), local(*sets), rtol=1e-13)
try:
    Likelihood(X if rank == 0 else X[:, 0], comm=comm)
except ValueError as error:
    assert "Expected 2D array" in str(error), error
else:
    assert size == 1

tried = dict(n_components=[1, 2, 3], covariance_type=["full", "diag"], random_state=0)
found = gaussmix.select("x.npy", **tried, estimator=GaussianMixture(comm=comm, partition_rows=700))
alone = gaussmix.select(X, **tried, estimator=cluster.GaussianMixture(partition_rows=700))
assert found.table == alone.table and np.array_equal(found.best.means_, alone.best.means_)
scaled = gaussmix.select(X[rank::size], [2, 3], standardize=True, random_state=0, estimator=GaussianMixture(comm=comm))
expected = gaussmix.select(X, [2, 3], standardize=True, random_state=0)
assert [row.n_components for row in scaled.table] == [2, 3] and scaled.best.n_components == expected.best.n_components
assert abs(scaled.table[1].criterion / expected.table[1].criterion - 1) < 1e-9
comm.Barrier()
if rank == 0:
    print("all well")
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_likelihoods_and_selections(folder, ranks):
    (folder / "likelihood.py").write_text(LIKELIHOOD)
    done = mpiexec(folder, ranks, "likelihood.py")
    assert done.stdout == "all well\n", done.stderr


def test_a_program(folder):
    (folder / "program.py").write_text(PROGRAM)
    done = mpiexec(folder, 2, "program.py")
    assert done.stdout == "all well\n", done.stderr


#: Runs several commands in one start of the ranks, and prints the exit code and the output of each as JSON.
COMMANDS = """
import contextlib, io, json, sys
from mpi4py import MPI
from gaussmix.mpi import main
for arguments in json.loads(sys.argv[1]):
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = main(arguments)
    found = MPI.COMM_WORLD.gather((code, out.getvalue(), error.getvalue()))
    if found:
        # The other ranks print nothing, and end with the same code.
        assert all(other == (found[0][0], "", "") for other in found[1:]), found
        print(json.dumps(found[0]))
"""


def commands(folder, ranks, *several):
    (folder / "commands.py").write_text(COMMANDS)
    done = mpiexec(folder, ranks, "commands.py", json.dumps([[str(word) for word in words] for words in several]))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_command(folder):
    fit = ("fit", "x.npy", "-k", 3, "--partition-rows", 700, "--tol", 1e-5, "--sample-weight", "w.npy", "--json")
    here = cluster.GaussianMixture(3, random_state=0, tol=1e-5, partition_rows=700).fit(X, sample_weight=W)
    done = command(folder, 2, *fit, "-o", "model.json", "--verbose")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["ranks"], result["n_iter"], result["converged"]) == (2, here.n_iter_, True)
    assert done.stderr.count("lower bound") == here.n_iter_
    gm = gaussmix.GaussianMixture.load(folder / "model.json")
    assert np.array_equal(gm.means_, here.means_) and np.array_equal(gm.covariances_, here.covariances_)

    methods = {"labels": "predict", "proba": "predict_proba", "scores": "score_samples"}
    predict = [
        ("predict", "model.json", "x.npy", "--values", values, "-o", f"{values}.npy", "--partition-rows", 999)
        for values in methods
    ]
    on = ("fit", "x.npy", "-k", 3, "--max-iter", 2, "--tol", 0, "-o", "more.npz", "--init", "model.json", "--json")
    select = ("select", "x.npy", "-k", "1:2,3", "--covariance-type", "full,diag", "--partition-rows", 700, "-o", "best.json")
    score = ("score", "model.json", "x.npy", "--json")
    found = commands(folder, 3, (*fit, "-o", "model3.npz"), on, score, *predict, (*select, "--json"), (*select, "--verbose"))
    assert [code for code, _, _ in found] == [0] * 8, found
    selection = gaussmix.select(X, [1, 2, 3], covariance_type=["full", "diag"], random_state=0,
                                estimator=cluster.GaussianMixture(partition_rows=700))
    result = json.loads(found[6][1])
    assert result["candidates"] == [row._asdict() for row in selection.table]
    assert (result["best"]["n_components"], result["criterion"]) == (selection.best.n_components, "bic")
    assert np.array_equal(gaussmix.GaussianMixture.load(folder / "best.json").means_, selection.best.means_)
    assert found[7][1].startswith(f"selection: {selection}\nranks: 3\n")
    assert found[7][2].count("diag, K = 2, run 0") == selection.table[4].n_iter  # The table has full 1, 2, 3 and diag 1, 2, 3.
    assert np.array_equal(gaussmix.GaussianMixture.load(folder / "model3.npz").means_, here.means_)
    result = json.loads(found[1][1])
    assert (result["n_iter"], result["converged"]) == (2, False)
    assert json.loads(found[2][1])["score"] == pytest.approx(here.score(X), rel=1e-12)
    for values, method in methods.items():
        np.testing.assert_allclose(np.load(folder / f"{values}.npy"), getattr(here, method)(X), rtol=1e-9, atol=1e-12)


def test_the_command_by_variational_inference(folder):
    covariance = np.cov(X.T) + np.eye(4)
    np.save(folder / "covariance.npy", covariance)
    prior = ("--weight-concentration-prior-type", "dirichlet-distribution", "--weight-concentration-prior", 0.01,
             "--mean-precision-prior", 2, "--mean-prior=-1,0.5,0,2", "--degrees-of-freedom-prior", 6.5, "--covariance-prior")
    given = ",".join(map(repr, covariance.ravel().tolist()))
    fit = ("fit", "x.npy", "-k", 12, "--variational", "--partition-rows", 700, "--max-iter", 60, "--json", *prior)
    here = cluster.BayesianGaussianMixture(
        n_components=12, partition_rows=700, max_iter=60, random_state=0, weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=0.01, mean_precision_prior=2, mean_prior=[-1, 0.5, 0, 2], degrees_of_freedom_prior=6.5,
        covariance_prior=covariance,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        here.fit(X)
    on = ("fit", "x.npy", "-k", 12, "--variational", "--max-iter", 1, "-o", "on.json", "--init", "posterior.npz")
    predict = ("predict", "posterior.npz", "x.npy", "--values", "scores", "-o", "scores.npy")
    score = ("score", "posterior.npz", "x.npy", "--json")
    em = ("fit", "x.npy", "-k", 12, "--max-iter", 1, "-o", "em.json")
    found = commands(
        folder, 2,
        (*fit, "covariance.npy", "-o", "posterior.npz"), (*fit, given, "-o", "rows.json"),
        (*on, *prior[:2]), predict, score, em,
        (*on, prior[0], "dirichlet-process"), (*on[:-1], "em.json"), (*em, *prior[:2]), (*fit, "1,2,3", "-o", "on.json"), (*fit, "1,x", "-o", "on.json"),
    )
    assert [code for code, _, _ in found] == [0] * 6 + [1, 1, 2, 1, 2], found
    result = json.loads(found[0][1])
    assert (result["n_iter"], result["lower_bound"], result["elbo"]) == (here.n_iter_, here.lower_bound_, here.elbo_)
    alive = here.mean_precision_ - 2 >= 0.5
    assert 3 <= alive.sum() < 12 and result["alive"] == np.flatnonzero(alive).tolist()
    for name in ("posterior.npz", "rows.json"):
        gm = gaussmix.BayesianGaussianMixture.load(folder / name)
        for attribute in ("means_", "covariances_", "weight_concentration_", "mean_prior_", "covariance_prior_"):
            assert np.array_equal(getattr(gm, attribute), getattr(here, attribute)), (name, attribute)
    assert gaussmix.BayesianGaussianMixture.load(folder / "on.json").n_iter_ == 1
    # The results of the posterior, not of the mixture of its means, whose densities differ.
    scores = here.score_samples(X)
    np.testing.assert_allclose(np.load(folder / "scores.npy"), scores, rtol=1e-9)
    result = json.loads(found[4][1])
    assert result["score"] == pytest.approx(scores.mean(), rel=1e-12) and "bic" not in result
    messages = ["the model has weight_concentration_prior_type='dirichlet_distribution', but", "em.json", "were not provided:\n  --variational",
                "covariance_prior", "--covariance-prior: 1,x: "]
    assert all(message in error for message, (_, _, error) in zip(messages, found[6:], strict=True)), found[6:]


LABELS = """
import warnings
import numpy as np
from mpi4py import MPI
from gaussmix import cluster
from gaussmix.mpi import BayesianGaussianMixture, GaussianMixture

warnings.simplefilter("ignore")
comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
X, W, L = (np.load(f"{name}.npy") for name in "xwl")
M = (L[:, None] < 0) | (L[:, None] == np.arange(3))
part = slice(rank * 5003 // size, (rank + 1) * 5003 // size)
for kind, params in (
    ("GaussianMixture", dict(n_init=2)),
    ("GaussianMixture", dict(covariance_type="diag", standardize=True, resident=False)),
    ("GaussianMixture", dict(n_init=4, halving=True, prior="default")),
    ("BayesianGaussianMixture", dict(max_iter=20)),
):
    params = dict(n_components=3, random_state=0, tol=1e-5, **params)
    here = getattr(cluster, kind)(partition_rows=700, **params)
    labels = here.fit_predict(X, sample_weight=W, labels=L)
    on_ranks = BayesianGaussianMixture if kind[0] == "B" else GaussianMixture
    gm = on_ranks(comm=comm, partition_rows=700, **params)
    assert np.array_equal(gm.fit_predict("x.npy", sample_weight="w.npy", labels="l.npy"), labels)
    for name in ("weights_", "means_", "covariances_", "lower_bounds_"):
        assert np.array_equal(getattr(gm, name), getattr(here, name)), name
    assert np.array_equal(gm.fit("x.npy", sample_weight=W, labels=L).means_, here.means_)
    if params.pop("resident", True):
        # Arrays of the ranks; the last rank has a mask.
        known = M[part] if rank == size - 1 else L[part]
        gm = on_ranks(comm=comm, **params)
        assert np.array_equal(gm.fit_predict(X[part], sample_weight=W[part], labels=known), labels[part])
        np.testing.assert_allclose(gm.means_, here.means_, rtol=1e-9)
# The last rank knows no labels, and has no samples in the second fit.
known = L.copy()
known[(size - 1) * 5003 // size :] = -1
here = cluster.GaussianMixture(3, random_state=0, tol=1e-5).fit(X, labels=known)
gm = GaussianMixture(3, comm=comm, random_state=0, tol=1e-5).fit(X[part], labels=None if rank == size - 1 else known[part])
np.testing.assert_allclose(gm.means_, here.means_, rtol=1e-11)
own = slice(0) if rank == size - 1 else slice(rank * 5003 // (size - 1), (rank + 1) * 5003 // (size - 1))
gm.fit(X[own], labels=known[own])
np.testing.assert_allclose(gm.means_, here.means_, rtol=1e-11)
wrong = L[part].copy()
wrong[3] = 3 if rank == size - 1 else wrong[3]
try:
    gm.fit(X[part], labels=wrong)
except ValueError as error:
    assert "labels have 3 for sample 3" in str(error), error
else:
    raise AssertionError("no error")
comm.Barrier()
if rank == 0:
    print("all well")
"""


def test_labels(folder):
    labels = np.where(np.random.default_rng(5).random(len(X)) < 0.1, np.array([2, 0, 1])[np.arange(5003) % 3], -1)
    np.save(folder / "l.npy", labels)
    (folder / "labels.py").write_text(LABELS)
    done = mpiexec(folder, 2, "labels.py")
    assert done.stdout == "all well\n", done.stderr
    fit = ("fit", "x.npy", "--partition-rows", 700, "--tol", 1e-5, "--json")
    prior = ("--prior", "mean_precision=1,degrees_of_freedom=9", "--halving", "--n-init", 4, "--random-state", 3)
    freeze = ("--init", "model.json", "--freeze", "means=0,2,weights=equal", "--max-iter", 2)
    tried = ("select", "x.npy", "-k", "2,3", "--partition-rows", 700, "--prior", "default", "--freeze", "weights=equal", "--n-init", 3, "--halving", "--json")
    np.save(folder / "wrong.npy", np.where(np.arange(5003) == 3800, 3, labels))
    found = commands(
        folder, 2,
        (*fit, "-k", 3, "--labels", "l.npy", *prior, "-o", "model.json"), (*fit, *freeze, "-o", "on.json"), tried,
        (*fit, "-k", 3, "--labels", "wrong.npy", "-o", "m.json"), (*fit, "-k", 2, *freeze, "-o", "m.json"),
        (*fit, *freeze, "--n-init", 2, "-o", "m.json"), (*fit, "-o", "m.json"), (*fit, "-k", 3, "--variational", *prior, "-o", "m.json"),
        (*fit, "-k", 3, "--prior", "mean=1", "-o", "m.json"), (*fit, "-k", 3, "--freeze", "means=a", "-o", "m.json"),
    )
    assert [code for code, _, _ in found] == [0, 0, 0, 1, 1, 2, 2, 2, 2, 2], found
    params = {"tol": 1e-5, "partition_rows": 700}
    map_prior = {"mean_precision": 1.0, "degrees_of_freedom": 9.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        here = cluster.GaussianMixture(3, prior=map_prior, halving=True, n_init=4, random_state=3, **params).fit(X, labels=labels)
        on = gaussmix.GaussianMixture.load(folder / "model.json", warm_start=True, max_iter=2, tol=1e-5)
        on.set_params(freeze={"means": [0, 2], "weights": "equal"}).fit(X)
        more = {"prior": "default", "freeze": {"weights": "equal"}, "n_init": 3, "halving": True, "random_state": 0}
        selection = gaussmix.select(X, [2, 3], estimator=cluster.GaussianMixture(partition_rows=700, **more))
    gm = gaussmix.GaussianMixture.load(folder / "model.json")
    assert np.array_equal(gm.means_, here.means_) and np.array_equal(gm.covariances_, here.covariances_)
    refitted = gaussmix.GaussianMixture.load(folder / "on.json")
    assert np.array_equal(refitted.means_[[0, 2]], gm.means_[[0, 2]]) and np.ptp(refitted.weights_) == 0
    # Sums of other partitions round otherwise, by some units in the last place of the variances, which are near 1.
    np.testing.assert_allclose(refitted.covariances_, on.covariances_, rtol=1e-12, atol=1e-14)
    assert json.loads(found[2][1])["candidates"] == [row._asdict() for row in selection.table]
    messages = ["rows 3500 to 4199 of x.npy: labels have 3 for sample 3800",
                "the model has n_components=3, but --n-components says 2", "'--init <MODEL>' cannot be used with '--n-init <RUNS>'", "--n-components <K>",
                "cannot be used with '--prior <PRIOR>'", "invalid value 'mean=1' for '--prior <PRIOR>'", "`means=a`: use weights, means"]
    assert all(message in error for message, (_, _, error) in zip(messages, found[3:], strict=True)), found[3:]


MISSING = """
import warnings
import numpy as np
from mpi4py import MPI
import gaussmix
from gaussmix import cluster
from gaussmix.mpi import GaussianMixture, Likelihood

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
X, W = np.load("holes.npy"), np.load("w.npy")
part = slice(rank * 5003 // size, (rank + 1) * 5003 // size)
first = np.isnan(X).all(axis=1).argmax()
for more in ({}, dict(covariance_type="diag", standardize=True)):
    params = dict(n_components=3, random_state=0, tol=1e-5, missing=True, **more)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        here = cluster.GaussianMixture(partition_rows=700, **params).fit(X, sample_weight=W)
        gm = GaussianMixture(comm=comm, partition_rows=700, **params).fit("holes.npy", sample_weight="w.npy")
    messages = [str(warning.message) for warning in seen]
    assert len(messages) == (2 if rank == 0 else 1) and len(set(messages)) == 1 and f"is row {first} " in messages[0], messages
    for name in ("weights_", "means_", "covariances_", "lower_bounds_"):
        assert np.array_equal(getattr(gm, name), getattr(here, name)), name
    warnings.simplefilter("ignore")
    # The first rank has no value in a column.
    arrays = GaussianMixture(comm=comm, **params).fit(X[part], sample_weight=W[part])
    np.testing.assert_allclose(arrays.means_, here.means_, rtol=1e-9)
    assert np.array_equal(gm.predict("holes.npy"), here.predict(X))
    assert np.array_equal(gm.predict(X[part]), here.predict(X[part]))
    np.testing.assert_allclose(gm.score(X[part]), here.score(X), rtol=1e-12)
one = (gm.weights_, gm.means_, gm.covariances_)
with Likelihood(X[part], comm=comm, covariance_type="diag", missing=True) as likelihood:
    np.testing.assert_allclose(likelihood(*one), gaussmix.Likelihood(X, covariance_type="diag", missing=True)(*one), rtol=1e-12)
nothing = X[part].copy()
nothing[:, 1] = np.nan
try:
    GaussianMixture(comm=comm, missing=True).fit(nothing)
except ValueError as error:
    assert "nothing is observed in column 1" in str(error), error
else:
    raise AssertionError("no error")
comm.Barrier()
if rank == 0:
    print("all well")
"""


def test_missing_values(folder):
    (folder / "missing.py").write_text(MISSING)
    done = mpiexec(folder, 2, "missing.py")
    assert done.stdout == "all well\n", done.stderr
    fit = ("fit", "holes.npy", "-k", 3, "--partition-rows", 700, "-o", "holes.json")
    values = ("predict", "holes.json", "holes.npy", "--missing", "-o", "labels.npy")
    score = ("score", "holes.json", "holes.npy", "--missing", "--json")
    found = commands(folder, 2, fit, (*fit, "--missing"), score, values)
    assert [code for code, _, _ in found] == [1, 0, 0, 0] and "contains NaN" in found[0][2], found
    X = np.load(folder / "holes.npy")
    gm = gaussmix.GaussianMixture.load(folder / "holes.json", missing=True)
    assert np.array_equal(np.load(folder / "labels.npy"), gm.predict(X))
    assert json.loads(found[2][1])["score"] == pytest.approx(gm.score(X), rel=1e-12)


def test_errors_of_the_command_are_one_message(folder):
    wrong = {
        ("fit", "none.npy", "-k", 2, "-o", "m.json"): (1, "error: none.npy: [Errno 2] No such file"),
        ("fit", "nan.npy", "-k", 2, "-o", "m.json", "--partition-rows", 700): (
            1,
            "error: rows 3500 to 4199 of nan.npy: Input X contains NaN",
        ),
        ("fit", "x.npy", "-k", 9999, "-o", "m.json"): (1, "error: Expected n_samples >= n_components"),
        # Before anything is read.
        ("fit", "none.npy", "-k", 2, "-o", "nowhere/m.json"): (1, "error: nowhere/m.json"),
        ("select", "none.npy", "-k", "1:3", "-o", "nowhere/m.json"): (1, "error: nowhere/m.json"),
        ("score", "none.json", "x.npy"): (1, "error: none.json"),
        ("predict", "none.json", "x.npy", "-o", "l.txt"): (2, "must end in .npy"),
        ("fit", "x.npy", "-k", 0, "-o", "m.json"): (2, "invalid value '0' for '--n-components <K>': must be a whole number above 0"),
        ("fit", "x.npy", "-k", 2, "-o", "m.txt"): (2, "must end in .json or .npz"),
        ("select", "x.npy", "-k", "3:1"): (2, "invalid value '3:1' for '--n-components <RANGE>'"),
        ("select", "x.npy", "-k", "1:3", "--covariance-type", "round"): (2, "invalid value 'round' for '--covariance-type <TYPES>'"),
        ("select", "x.npy", "-k", "9998,9999", "-o", "m.json"): (1, "error: Expected n_samples >= n_components"),
        ("--help",): (0, ""),
    }
    for (code, message), (got, out, error) in zip(wrong.values(), commands(folder, 2, *wrong), strict=True):
        assert got == code and message in error and error.lower().count("error: ") == (code > 0), (got, error)
    assert out.count("Examples:") == 1
    assert not (folder / "m.json").exists()
    ended = command(folder, 2, "fit", "none.npy", "-k", 2, "-o", "m.json")
    assert ended.returncode == 1 and ended.stderr.count("none.npy: [Errno 2]") == 1


RAISES = """
import sys
from mpi4py import MPI
from gaussmix import mpi
from gaussmix.cluster.mpi.command_line import run

def broken(*_):
    raise ZeroDivisionError("what the others do not know of")

if MPI.COMM_WORLD.Get_rank() == 1:
    mpi.MPIEngine.agree = broken
sys.argv = ["mpi", "fit", "x.npy", "-k", "2", "-o", "m.json"]
sys.exit(run())
"""


def test_what_one_rank_alone_meets_ends_all(folder):
    (folder / "raises.py").write_text(RAISES)
    done = mpiexec(folder, 2, "raises.py")
    assert done.returncode == 1 and done.stderr.count("error: rank 1: ZeroDivisionError") == 1, done.stderr
    assert "Traceback" not in done.stderr


PEAK = """
import sys
from mpi4py import MPI
from gaussmix.mpi import BayesianGaussianMixture, GaussianMixture

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))

before = peak()
GaussianMixture(2, covariance_type="diag", max_iter=2, tol=0, random_state=0, n_jobs=1, partition_rows=20_000, device="cpu",
                resident=sys.argv[1] == "True", init_params="random_from_data").fit("large.npy")
found = MPI.COMM_WORLD.gather(peak() - before)
if found:
    print(*found)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not say how much memory was used")
def test_ranks_stream_what_is_larger_than_their_memory(folder):
    """120 MB, of which each of two ranks has half, in partitions of 1.6 MB."""
    x = np.lib.format.open_memmap(folder / "large.npy", "w+", np.float32, (1_500_000, 20))
    x[:] = np.random.default_rng(0).standard_normal(x.shape, dtype=np.float32)
    x.flush()
    (folder / "peak.py").write_text(PEAK)
    peaks = {}
    for resident in (False, True):
        done = mpiexec(folder, 2, "-W", "ignore", "peak.py", resident)
        peaks[resident] = [float(word) for word in done.stdout.split()]
        assert len(peaks[resident]) == 2, done.stderr
    # Beside its partition a rank has buffers of MPI and of a process's first fit, which do not grow with the samples.
    assert max(peaks[False]) < 40 and min(peaks[True]) > 60, peaks
