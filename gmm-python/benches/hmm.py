"""Nanoseconds of processor time for a row and an iteration of Baum and Welch, beside the peers that are installed, in one run.

    python gmm-python/benches/hmm.py [--rows N]

One sequence of N rows with 8 states, 13 features and diagonal covariances; and N / 100 sequences of 1,000 rows with 4 states, 2 features and
full covariances. hmmlearn takes a tenth of the rows. dynamax computes in float64 as the others do, on the CPU; its prior counts a little.
Each number is the median of five differences between fits of one and of more iterations, so that no start and no compilation counts.
"""

import argparse
import time
from contextlib import suppress
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from gaussmix import hmm


def problem(rng, n, k, d, kind, lengths):
    """Return rows, lengths, and a start for all packages."""
    transmat = np.full((k, k), 0.02) + np.eye(k) * (1 - 0.02 * k)
    states, uniforms, cdf = np.zeros(n, dtype=int), rng.random(n), transmat.cumsum(axis=1)
    for t in range(1, n):
        states[t] = (cdf[states[t - 1]] > uniforms[t]).argmax()
    means = 2 * rng.normal(size=(k, d))
    covars = np.ones((k, d)) if kind == "diag" else np.tile(np.eye(d), (k, 1, 1))
    start = {"startprob_": np.full(k, 1 / k), "transmat_": transmat, "means_": means + 0.1, "covars_": covars, "n_features": d}
    return means[states] + rng.normal(size=(n, d)), np.full(n // lengths, lengths), start


def fit(cls, kind, x, lengths, start, n_iter, **params):
    """Fit by the interface of hmmlearn."""
    model = cls(len(start["means_"]), kind, init_params="", n_iter=n_iter, tol=-np.inf, **params)
    for name, value in start.items():
        setattr(model, name, np.copy(value) if name != "n_features" else value)
    # hmmlearn's calls of BLAS are small; its threads would wait for each other.
    with threadpool_limits(1, "blas"):
        model.fit(x, lengths)


def fit_dynamax(kind, x, lengths, start, n_iter):
    import jax
    from dynamax.hidden_markov_model import DiagonalGaussianHMM, GaussianHMM

    jax.config.update("jax_enable_x64", True)
    model = (DiagonalGaussianHMM if kind == "diag" else GaussianHMM)(*start["means_"].shape)
    names = ["initial_probs", "transition_matrix", "emission_means", "emission_scale_diags" if kind == "diag" else "emission_covariances"]
    given = dict(zip(names, map(jax.numpy.asarray, start.values()), strict=False))
    sequences = x.reshape(len(lengths), lengths[0], -1)
    model.fit_em(*model.initialize(**given), sequences, num_iters=n_iter, verbose=False)[1].block_until_ready()


def nanoseconds(fit, rows, more):
    def seconds(n_iter):
        before = time.process_time()
        fit(n_iter)
        return time.process_time() - before

    return 1e9 / rows / more * np.median([seconds(1 + more) - seconds(1) for _ in range(5)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=float, default=1e6)
    n, rng = int(parser.parse_args().rows), np.random.default_rng(0)
    for name, rows, k, d, kind, lengths in [("one", n, 8, 13, "diag", n), ("many", 10 * n, 4, 2, "full", 1000)]:
        x, sizes, start = problem(rng, rows, k, d, kind, lengths)
        tenth = rows // 10
        few = [tenth] if name == "one" else sizes[: len(sizes) // 10]
        ours = nanoseconds(partial(fit, hmm.GaussianHMM, kind, x, sizes, start), rows, 8)
        print(f"{name}: {rows} rows, K={k}, D={d}, {kind}: {ours:.0f} ns", flush=True)
        peers = {}
        with suppress(ImportError):
            from hmmlearn.hmm import GaussianHMM

            for implementation in ("log", "scaling"):
                theirs = partial(fit, GaussianHMM, kind, x[:tenth], few, start, implementation=implementation)
                peers[f"hmmlearn {implementation}"] = partial(nanoseconds, theirs, tenth, 1)
        with suppress(ImportError):
            import dynamax

            peers[f"dynamax {dynamax.__version__}"] = partial(nanoseconds, partial(fit_dynamax, kind, x, sizes, start), rows, 2)
        for peer, measured in peers.items():
            value = measured()
            print(f"  {peer}: {value:.0f} ns ({value / ours:.0f} times)", flush=True)


if __name__ == "__main__":
    main()
