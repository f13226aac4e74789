"""What an iteration on a cluster costs beyond the arithmetic, and the model of time that follows from it.

    python cluster.py measure cluster.jsonl        # on one machine, with up to 16 workers of Dask and ranks of MPI; some minutes
    python cluster.py model cluster.jsonl [plot]   # fits the model, prints its tables, and draws a plot

Each worker holds one sample, so that nearly all of the time is for parameters and statistics. What a worker does of that
(decoding, the factors of the covariances, encoding) is timed apart in one process, and so is the M-step, which the process
that drives the fit makes. All workers do their part at once where each has a core of its own; here they take turns on the
cores that there are, which the fit of the model allows for. Times are the least of some rounds, because other work disturbs them.
"""

import json
import math
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

WORKERS = [1, 2, 4, 8, 16]
SHAPES = [(8, 13), (64, 32), (256, 64)]
#: Seconds for a sample and iteration on an H200, from the README's table of EM on a GPU (with full covariances).
H200 = {(8, 13): 0.13e-9, (64, 32): 3.4e-9}
#: Samples per second of one thread are measured with so many multiply-adds.
WORK = 3e9


def bytes_of(k, d):
    """The bytes of full covariances, means and weights in float64; statistics have as many."""
    return 8 * k * (d * d + d + 1)


def mixture_of(k, d):
    from gaussmix import _core

    rng = np.random.default_rng(0)
    return _core.Mixture(np.full(k, 1 / k), rng.normal(size=(k, d)), np.broadcast_to(np.eye(d), (k, d, d)), "full")


def time_rounds(engine, n_workers, out, name):
    """Time requests for statistics, and the M-step."""
    from gaussmix import cluster
    from gaussmix._partitions import Array
    from gaussmix.cluster import Options, Partition

    for k, d in SHAPES:
        mixture = mixture_of(k, d)
        x = np.random.default_rng(1).normal(size=(n_workers, d)).astype(np.float32)
        partitions = [Partition(f"row {i}", Array(x[i : i + 1])) for i in range(n_workers)]
        facts = engine.load(partitions, Options("<f4", n_workers, device="cpu", threads=1))

        def measure():
            remote = cluster._Remote(engine, facts, cluster._Interrupts())
            rounds, m_steps = [], []
            for _ in range(30 if k < 50 else 12 if k < 100 else 5):
                begin = time.perf_counter()
                found = remote.e_step(mixture)
                middle = time.perf_counter()
                found.update(mixture, 1e-6)
                rounds.append(middle - begin)
                m_steps.append(time.perf_counter() - middle)
            return min(rounds), min(m_steps)

        found = engine.together(measure) if hasattr(engine, "together") else measure()
        if out is not None:
            row = {"engine": name, "workers": n_workers, "k": k, "d": d, "bytes": bytes_of(k, d)}
            row.update(seconds=found[0], m_step=found[1])
            print(json.dumps(row), file=out, flush=True)
            print(row, file=sys.stderr)
        engine.close()


def time_arithmetic(out):
    """Time the E-step of one thread, and what a worker does for one sample."""
    from gaussmix import _core, cluster
    from gaussmix._partitions import Array
    from gaussmix.cluster import Options, Partition, Shard

    for k, d in SHAPES:
        n = int(WORK / (k * d * d))
        x = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
        data = _core.Data(x, device="cpu", threads=1)
        mixture = mixture_of(k, d)
        shard = Shard(Options("<f4", 1, device="cpu", threads=1))
        shard.load(0, Partition("one row", Array(x[:1])))
        message = pickle.dumps((cluster._parameters([mixture]),), 5)
        times, own = [], []
        for _ in range(30):
            begin = time.perf_counter()
            shard.ask("statistics", message)
            own.append(time.perf_counter() - begin)
        for _ in range(5):
            begin = time.perf_counter()
            data.e_step(mixture)
            times.append(time.perf_counter() - begin)
        row = {"engine": "arithmetic", "k": k, "d": d, "seconds": min(times) / n, "worker": min(own), "cores": os.cpu_count()}
        print(json.dumps(row), file=out, flush=True)


def measure(path):
    mpiexec = Path(sys.executable).parent / "mpiexec"
    with open(path, "w") as out:
        time_arithmetic(out)
        for n in WORKERS:
            subprocess.run([mpiexec, "-n", str(n), sys.executable, __file__, "rank", path], check=True)
    import distributed

    from gaussmix.dask import DaskEngine

    for n in WORKERS:
        with (
            open(path, "a") as out,
            distributed.LocalCluster(n, threads_per_worker=1, processes=True, dashboard_address=None) as workers,
            distributed.Client(workers) as client,
        ):
            time_rounds(DaskEngine(client), n, out, "dask")


def rank(path):
    from gaussmix.mpi import MPIEngine

    engine = MPIEngine()
    out = open(path, "a") if engine.rank == 0 else None
    time_rounds(engine, engine.size, out, "mpi")


def features(engine, workers, size):
    """The terms of the model of a round: a constant, those by worker, and those by byte."""
    if engine == "dask":
        return [1.0, workers, size, size * workers]
    levels = math.log2(workers)
    return [1.0, levels, size, size * levels]


def fitted(rows, engine):
    """Fit the model to the relative errors, with no coefficient below zero."""
    from scipy.optimize import nnls

    own = [row for row in rows if row["engine"] == engine]
    if engine == "mpi":
        # Ranks that share a core wait for each other's time slices, which ranks with cores of their own do not.
        own = [row for row in own if row["workers"] <= cores_of(rows)]
    workers_do = [worker_of(rows, row["k"], row["d"], row["workers"]) for row in own]
    a = np.array([features(engine, row["workers"], row["bytes"]) for row in own])
    times = np.array([row["seconds"] for row in own])
    a /= times[:, np.newaxis]
    scale = a.max(axis=0)
    left = np.maximum(1 - np.array(workers_do) / times, 0)
    found = nnls(a / scale, left)[0] / scale
    errors = a @ found - left
    return found, float(np.sqrt(np.mean(errors**2)))


def cores_of(rows):
    return next(row["cores"] for row in rows if row["engine"] == "arithmetic")


def worker_of(rows, k, d, here=None):
    """What a worker does of a round; `here` so many workers share the cores."""
    [row] = [row for row in rows if (row["engine"], row["k"], row["d"]) == ("arithmetic", k, d)]
    return row["worker"] * (1 if here is None else max(1, here / row["cores"]))


def model(path, plot=None):
    rows = [json.loads(line) for line in open(path)]
    arithmetic = {(row["k"], row["d"]): row["seconds"] for row in rows if row["engine"] == "arithmetic"}
    m_steps = {(k, d): min(r["m_step"] for r in rows if (r["k"], r["d"]) == (k, d) and "m_step" in r) for k, d in SHAPES}
    print("| engine | K | D | bytes | " + " | ".join(f"{n} workers" for n in WORKERS) + " |")
    print("|---|---|---|---|" + "---|" * len(WORKERS))
    for engine in ("mpi", "dask"):
        for k, d in SHAPES:
            times = {r["workers"]: r["seconds"] for r in rows if (r["engine"], r["k"], r["d"]) == (engine, k, d)}
            cells = " | ".join(f"{times[n] * 1e3:.2f} ms" for n in WORKERS)
            print(f"| {engine} | {k} | {d} | {bytes_of(k, d) / 1e6:.3g} MB | {cells} |")
    # What every iteration takes, with however many workers.
    serial = {(k, d): m_steps[k, d] + worker_of(rows, k, d) for k, d in SHAPES}
    coefficients = {}
    for engine in ("mpi", "dask"):
        coefficients[engine], error = fitted(rows, engine)
        print(f"\n{engine}: " + ", ".join(f"{c:.3g}" for c in coefficients[engine]) + f"; relative error {error:.0%}")
    for unit, seconds in (("one core", arithmetic), ("an H200", H200)):
        print(f"\nA worker is {unit}:\n")
        print("| engine | K | D | N | " + " | ".join(f"{n} workers" for n in (8, 64, 512)) + " | half is arithmetic at |")
        print("|---|---|---|---|---|---|---|---|")
        for engine in ("mpi", "dask"):
            for (k, d), sample in seconds.items():
                for n in (1e9, 1e10):
                    cells = []
                    for workers in (8, 64, 512):
                        beyond = round_of(coefficients[engine], engine, workers, k, d) + serial[k, d]
                        whole = n * sample / workers + beyond
                        cells.append(f"{short(whole)} ({beyond / whole:.0%})")
                    limit = half_efficiency(coefficients[engine], engine, k, d, n, sample, serial[k, d])
                    power = f"10{'⁹' if n == 1e9 else '¹⁰'}"
                    print(f"| {engine} | {k} | {d} | {power} | " + " | ".join(cells) + f" | {limit} workers |")
    print("\nE-step of one thread: " + ", ".join(f"K={k} D={d} {s * 1e9:.0f} ns a sample" for (k, d), s in arithmetic.items()))
    print("a worker's part: " + ", ".join(f"K={k} D={d} {worker_of(rows, k, d) * 1e3:.2f} ms" for k, d in SHAPES))
    print("M-step: " + ", ".join(f"K={k} D={d} {s * 1e3:.2f} ms" for (k, d), s in m_steps.items()))
    if plot is not None:
        draw(rows, coefficients, arithmetic, serial, plot)


def round_of(coefficients, engine, workers, k, d):
    return float(np.dot(coefficients, features(engine, workers, bytes_of(k, d))))


def half_efficiency(coefficients, engine, k, d, n, arithmetic, serial):
    """The largest power of two of workers that spend at least half of their time on arithmetic."""
    workers = 1
    while workers < 4096:
        beyond = round_of(coefficients, engine, 2 * workers, k, d) + serial
        if n * arithmetic / (2 * workers) < beyond:
            break
        workers *= 2
    else:
        return "4096 or more"
    return f"{workers}"


def short(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def draw(rows, coefficients, arithmetic, serial, path):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "gaussmix"
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    at = np.array([2.0**i for i in range(11)])
    for i, (k, d) in enumerate(SHAPES):
        for engine, style, marker in (("mpi", "-", "o"), ("dask", "--", "s")):
            own = [r for r in rows if (r["engine"], r.get("k"), r.get("d")) == (engine, k, d)]
            left.plot([r["workers"] for r in own], [r["seconds"] * 1e3 for r in own], marker, color=f"C{i}", ms=5)
            times = [round_of(coefficients[engine], engine, w, k, d) + worker_of(rows, k, d) for w in at]
            left.plot(at, np.array(times) * 1e3, style, color=f"C{i}", label=f"{engine}, K={k} D={d}")
            for sample, width in ((arithmetic[k, d], 1.5), (H200.get((k, d)), 0.8)):
                if sample is not None:
                    whole = [1e9 * sample / w + round_of(coefficients[engine], engine, w, k, d) + serial[k, d] for w in at]
                    right.plot(at, whole, style, color=f"C{i}", lw=width)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("workers")
    left.set_ylabel("ms of an iteration beyond the arithmetic")
    left.set_title("measured on two cores (points); the model, a core each")
    left.legend(fontsize=7)
    right.set_ylabel("s of an iteration")
    right.set_title("model, N = 10⁹; a worker is one core, thin: an H200")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    {"measure": measure, "rank": rank, "model": model}[sys.argv[1]](*sys.argv[2:])
