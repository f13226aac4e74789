"""Seconds of an iteration of Baum and Welch, and of a decoding, beside hmmlearn in one run.

    python gmm-python/benches/hmm.py [--rows N]

One sequence of N rows with 8 states, 13 features and diagonal covariances; and N / 100 sequences of 1,000 rows with 4 states, 2 features and
full covariances. hmmlearn (pip install hmmlearn) takes a tenth of the rows, and its times are multiplied by ten: they grow in proportion.
"""

import argparse
import time

import numpy as np

from gaussmix import hmm


def problem(rng, n, k, d, kind, lengths):
    """Return rows, lengths, and a start for both packages."""
    transmat = np.full((k, k), 0.02) + np.eye(k) * (1 - 0.02 * k)
    states, uniforms, cdf = np.zeros(n, dtype=int), rng.random(n), transmat.cumsum(axis=1)
    for t in range(1, n):
        states[t] = (cdf[states[t - 1]] > uniforms[t]).argmax()
    means = 2 * rng.normal(size=(k, d))
    covars = np.ones((k, d)) if kind == "diag" else np.tile(np.eye(d), (k, 1, 1))
    start = {"startprob_": np.full(k, 1 / k), "transmat_": transmat, "means_": means + 0.1, "covars_": covars, "n_features": d}
    return means[states] + rng.normal(size=(n, d)), np.full(n // lengths, lengths), start


def seconds(cls, kind, x, lengths, start, n_iter, **params):
    """Return the seconds of an iteration and of a decoding, the least of three."""
    k, times = len(start["means_"]), []
    for _ in range(3 if n_iter > 1 else 1):
        model = cls(k, kind, init_params="", n_iter=n_iter, tol=-np.inf, **params)
        for name, value in start.items():
            setattr(model, name, np.copy(value) if name != "n_features" else value)
        before = time.perf_counter()
        model.fit(x, lengths)
        middle = time.perf_counter()
        model.decode(x, lengths)
        times.append(((middle - before) / n_iter, time.perf_counter() - middle))
    return np.min(times, axis=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=float, default=1e6)
    n, rng = int(parser.parse_args().rows), np.random.default_rng(0)
    for name, rows, k, d, kind, lengths in [("one", n, 8, 13, "diag", n), ("many", 10 * n, 4, 2, "full", 1000)]:
        x, sizes, start = problem(rng, rows, k, d, kind, lengths)
        tenth = rows // 10
        few = [tenth] if name == "one" else sizes[: len(sizes) // 10]
        ours = seconds(hmm.GaussianHMM, kind, x, sizes, start, 5)
        floor = x.nbytes / 1e10
        print(f"{name}: {rows} rows, K={k}, D={d}, {kind}: {ours[0]:.3f} s an iteration, {ours[1]:.3f} s to decode; read at 10 GB/s {floor:.3f} s")
        try:
            from hmmlearn.hmm import GaussianHMM
        except ImportError:
            continue
        for implementation in ("log", "scaling"):
            theirs = 10 * seconds(GaussianHMM, kind, x[:tenth], few, start, 1, implementation=implementation)
            print(f"  hmmlearn {implementation}: {theirs[0]:.2f} s ({theirs[0] / ours[0]:.0f} times), {theirs[1]:.2f} s ({theirs[1] / ours[1]:.0f} times)")


if __name__ == "__main__":
    main()
