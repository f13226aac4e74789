"""What an iteration on a cluster costs beyond the arithmetic, and the model of time that follows from it.

    python cluster.py measure cluster.jsonl        # on one machine, with up to 16 workers of Dask and ranks of MPI; some minutes
    python cluster.py measure cluster.jsonl 1024,128,full     # adds what is measured for this shape alone
    python cluster.py model cluster.jsonl [plot]   # fits the model, prints its tables, and draws a plot

Each worker holds one sample, so that nearly all the time is for parameters and statistics. What a worker does of that
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
SHAPES = [(8, 13, "full"), (64, 32, "full"), (256, 64, "full"), (1024, 128, "diag"), (1024, 128, "full")]
#: Of more bytes than these not more than 8 workers are started, each of which needs about a gigabyte.
HUGE = 50e6
#: Seconds for a sample and iteration on an H200, from the README's table of EM on a GPU, and for diagonals from CHANGELOG.md.
H200 = {(8, 13, "full"): 0.13e-9, (64, 32, "full"): 3.4e-9, (1024, 128, "diag"): 16e-9}
#: Samples per second of one thread are measured with so many multiply-adds.
WORK = 3e9


def bytes_of(k, d, kind):
    """The bytes of covariances (of matrices a triangle), means and weights in float64; statistics have as many."""
    return 8 * k * ((d * (d + 1) // 2 if kind == "full" else d) + d + 1)


def rounds_of(shape):
    size = bytes_of(*shape)
    return 30 if size < 1e5 else 12 if size < 1e6 else 5 if size < HUGE else 3


def workers_of(shape):
    return [n for n in WORKERS if n <= 8 or bytes_of(*shape) < HUGE]


def mixture_of(k, d, kind):
    from gaussmix import _core

    rng = np.random.default_rng(0)
    covariances = np.broadcast_to(np.eye(d), (k, d, d)) if kind == "full" else np.ones((k, d))
    return _core.Mixture(np.full(k, 1 / k), rng.normal(size=(k, d)), covariances, kind)


def is_of(row, shape, engine=None):
    return (row["k"], row["d"], row["kind"]) == shape and engine in (None, row["engine"])


def time_rounds(engine, n_workers, out, name, shapes):
    """Time requests for statistics, and the M-step."""
    from gaussmix._partitions import Array
    from gaussmix.cluster import Options, Partition
    from gaussmix.cluster.samples import Interrupts, Remote

    for shape in shapes:
        if n_workers not in workers_of(shape):
            continue
        (k, d, kind), mixture = shape, mixture_of(*shape)
        x = np.random.default_rng(1).normal(size=(n_workers, d)).astype(np.float32)
        partitions = [Partition(f"row {i}", Array(x[i : i + 1])) for i in range(n_workers)]
        facts = engine.load(partitions, Options("<f4", n_workers, device="cpu", threads=1))

        def measure():
            remote = Remote(engine, facts, Interrupts())
            rounds, m_steps = [], []
            for _ in range(rounds_of(shape)):
                begin = time.perf_counter()
                found = remote.e_step(mixture)
                middle = time.perf_counter()
                found.update(mixture, 1e-2)
                rounds.append(middle - begin)
                m_steps.append(time.perf_counter() - middle)
            return min(rounds), min(m_steps)

        found = engine.together(measure) if hasattr(engine, "together") else measure()
        if out is not None:
            row = {"engine": name, "workers": n_workers, "k": k, "d": d, "kind": kind, "bytes": bytes_of(*shape)}
            row.update(seconds=found[0], m_step=found[1])
            print(json.dumps(row), file=out, flush=True)
            print(row, file=sys.stderr)
        engine.close()


def time_arithmetic(out, shapes):
    """Time the E-step of one thread, and what a worker does for one sample."""
    from gaussmix import _core
    from gaussmix._partitions import Array
    from gaussmix.cluster import Options, Partition, Shard

    for shape in shapes:
        (k, d, kind), mixture = shape, mixture_of(*shape)
        n = int(WORK / (k * d * (d if kind == "full" else 8)))
        x = np.random.default_rng(0).normal(size=(3 * n, d)).astype(np.float32)
        shard = Shard(Options("<f4", 1, device="cpu", threads=1))
        shard.load(0, Partition("one row", Array(x[:1])))
        message = pickle.dumps((mixture,), 5)
        own = least(rounds_of(shape), lambda: shard.ask("statistics", message))
        # The difference leaves out what an E-step takes for any number of samples.
        few, many = (_core.Data(x[:m], device="cpu", threads=1) for m in (n, 3 * n))
        seconds = (least(5, lambda: many.e_step(mixture)) - least(5, lambda: few.e_step(mixture))) / (2 * n)
        row = {"engine": "arithmetic", "k": k, "d": d, "kind": kind, "seconds": seconds, "worker": own, "cores": os.cpu_count()}
        print(json.dumps(row), file=out, flush=True)


def least(times, work):
    """The least time of the processor, which other work on the machine does not add to."""
    found = []
    for _ in range(times):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return min(found)


def shapes_of(texts):
    shapes = [(int(k), int(d), kind) for k, d, kind in (text.split(",") for text in texts)]
    return shapes or SHAPES


def measure(path, *texts):
    mpiexec = Path(sys.executable).parent / "mpiexec"
    shapes = shapes_of(texts)
    with open(path, "a" if texts else "w") as out:
        time_arithmetic(out, shapes)
    for n in WORKERS:
        subprocess.run([mpiexec, "-n", str(n), sys.executable, __file__, "rank", path, *texts], check=True)
    import distributed

    from gaussmix.dask import DaskEngine

    for n in WORKERS:
        with (
            open(path, "a") as out,
            distributed.LocalCluster(n, threads_per_worker=1, processes=True, dashboard_address=None) as workers,
            distributed.Client(workers) as client,
        ):
            time_rounds(DaskEngine(client), n, out, "dask", shapes)


def rank(path, *texts):
    from gaussmix.mpi import MPIEngine

    engine = MPIEngine()
    out = open(path, "a") if engine.rank == 0 else None
    time_rounds(engine, engine.size, out, "mpi", shapes_of(texts))


#: Of more bytes than these Dask's statistics are added by tasks, in a tree.
TREE = 1 << 20


def model_of(engine, size):
    """The name of the model of a round; each has coefficients of its own."""
    return engine if engine == "mpi" else "dask" if size < TREE else "dask, by tasks"


def features(name, workers, size):
    """The terms of the model of a round: a constant, those by worker, and those by byte."""
    if name == "dask":
        return [1.0, workers, size, size * workers]
    levels = math.log2(workers)
    return [1.0, levels, size, size * levels]


def fitted(rows, name):
    """Fit the model to the relative errors, with no coefficient below zero."""
    from scipy.optimize import nnls

    own = [row for row in rows if "workers" in row and model_of(row["engine"], row["bytes"]) == name]
    if name == "mpi":
        # Ranks that share a core wait for each other's time slices, which ranks with cores of their own do not.
        own = [row for row in own if row["workers"] <= cores_of(rows)]
    workers_do = [worker_of(rows, (row["k"], row["d"], row["kind"]), row["workers"]) for row in own]
    a = np.array([features(name, row["workers"], row["bytes"]) for row in own])
    times = np.array([row["seconds"] for row in own])
    a /= times[:, np.newaxis]
    scale = a.max(axis=0)
    # A term that is the same in all rows, as that of the levels with one worker, is none.
    scale[scale == 0] = 1
    left = np.maximum(1 - np.array(workers_do) / times, 0)
    found = nnls(a / scale, left)[0] / scale
    errors = a @ found - left
    return found, float(np.sqrt(np.mean(errors**2)))


def cores_of(rows):
    return next(row["cores"] for row in rows if row["engine"] == "arithmetic")


def worker_of(rows, shape, here=None):
    """What a worker does of a round; `here` so many workers share the cores."""
    [row] = [row for row in rows if is_of(row, shape, "arithmetic")]
    return row["worker"] * (1 if here is None else max(1, here / row["cores"]))


def model(path, plot=None):
    rows = [json.loads(line) for line in open(path)]
    arithmetic = {(r["k"], r["d"], r["kind"]): r["seconds"] for r in rows if r["engine"] == "arithmetic"}
    sizes = {(r["k"], r["d"], r["kind"]): r["bytes"] for r in rows if "bytes" in r}
    m_steps = {shape: min(r["m_step"] for r in rows if is_of(r, shape) and "m_step" in r) for shape in arithmetic}
    print("| engine | K | D | covariances | bytes | " + " | ".join(f"{n} workers" for n in WORKERS) + " |")
    print("|---|---|---|---|---|" + "---|" * len(WORKERS))
    names = {"mpi": "MPI", "dask": "Dask"}
    for engine in names:
        for k, d, kind in arithmetic:
            times = {r["workers"]: r["seconds"] for r in rows if is_of(r, (k, d, kind), engine)}
            cells = " | ".join(f"{times[n] * 1e3:.2f} ms" if n in times else "" for n in WORKERS)
            print(f"| {names[engine]} | {k} | {d} | {kind} | {sizes[k, d, kind] / 1e6:.3g} MB | {cells} |")
    # What every iteration takes, with however many workers.
    serial = {shape: m_steps[shape] + worker_of(rows, shape) for shape in arithmetic}
    coefficients = {}
    for name in ("mpi", "dask", "dask, by tasks"):
        coefficients[name], error = fitted(rows, name)
        print(f"\n{name}: " + ", ".join(f"{c:.3g}" for c in coefficients[name]) + f"; relative error {error:.0%}")
    for unit, seconds in (("one core", arithmetic), ("an H200", H200)):
        print(f"\nA worker is {unit}:\n")
        print("| engine | K | D | covariances | N | " + " | ".join(f"{n} workers" for n in (8, 64, 512)) + " | half is arithmetic at |")
        print("|---|---|---|---|---|---|---|---|---|")
        for engine in names:
            for shape, sample in ((shape, seconds[shape]) for shape in arithmetic if shape in seconds):
                for n in (1e9, 1e10):
                    cells = []
                    for workers in (8, 64, 512):
                        beyond = round_of(coefficients, engine, workers, sizes[shape]) + serial[shape]
                        whole = n * sample / workers + beyond
                        cells.append(f"{short(whole)} ({beyond / whole:.0%})")
                    limit = half_efficiency(coefficients, engine, sizes[shape], n, sample, serial[shape])
                    power = f"10{'⁹' if n == 1e9 else '¹⁰'}"
                    (k, d, kind), found = shape, " | ".join(cells)
                    print(f"| {names[engine]} | {k} | {d} | {kind} | {power} | {found} | {limit} workers |")
    print("\nE-step of one thread: " + ", ".join(f"{shape} {s * 1e9:.0f} ns a sample" for shape, s in arithmetic.items()))
    print("a worker's part: " + ", ".join(f"{shape} {worker_of(rows, shape) * 1e3:.2f} ms" for shape in arithmetic))
    print("M-step: " + ", ".join(f"{shape} {s * 1e3:.2f} ms" for shape, s in m_steps.items()))
    if plot is not None:
        draw(rows, coefficients, sizes, arithmetic, serial, plot)


def round_of(coefficients, engine, workers, size):
    name = model_of(engine, size)
    return float(np.dot(coefficients[name], features(name, workers, size)))


def half_efficiency(coefficients, engine, size, n, arithmetic, serial):
    """The largest power of two of workers that spend at least half of their time on arithmetic."""
    workers = 1
    while workers < 4096:
        beyond = round_of(coefficients, engine, 2 * workers, size) + serial
        if n * arithmetic / (2 * workers) < beyond:
            break
        workers *= 2
    else:
        return "4096 or more"
    return f"{workers}"


def short(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def draw(rows, coefficients, sizes, arithmetic, serial, path):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "gaussmix"
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    at = np.array([2.0**i for i in range(11)])
    for i, shape in enumerate(arithmetic):
        k, d, kind = shape
        for engine, style, marker in (("mpi", "-", "o"), ("dask", "--", "s")):
            own = [r for r in rows if is_of(r, shape, engine)]
            left.plot([r["workers"] for r in own], [r["seconds"] * 1e3 for r in own], marker, color=f"C{i}", ms=5)
            beyond = [round_of(coefficients, engine, w, sizes[shape]) for w in at]
            own_part = worker_of(rows, shape)
            label = f"{engine}, K={k} D={d} {kind}"
            left.plot(at, (np.array(beyond) + own_part) * 1e3, style, color=f"C{i}", label=label)
            for sample, width in ((arithmetic[shape], 1.5), (H200.get(shape), 0.8)):
                if sample is not None:
                    whole = [1e9 * sample / w + b + serial[shape] for w, b in zip(at, beyond)]
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
