"""Seconds of an iteration of extreme deconvolution, beside astroML's class and jobovy's program in one run.

    python gmm-python/benches/deconvolution.py [--rows N] [--components K] [--features D] [--threads T]

Each sample has a covariance of its noise. Of the same start the fits must end at the same parameters. The times are those of the processor,
of all threads together, and by the clock. astroML (pip install astroML) takes a hundredth of the rows, and its time is multiplied by a hundred:
it grows in proportion. jobovy's program (the package extreme_deconvolution, compiled with GSL) takes all.
"""

import argparse
import time
from contextlib import suppress

import numpy as np

from gaussmix.deconvolution import XDGMM, ExtremeDeconvolution


def problem(n, k, d):
    """Return measured values, the covariances of their noise, and a start."""
    rng = np.random.default_rng(0)
    means = 4 * rng.normal(size=(k, d))
    roots = rng.normal(size=(n, d, d)) / np.sqrt(2 * d)
    S = roots @ roots.transpose(0, 2, 1) + 0.05 * np.eye(d)
    x = means[rng.integers(k, size=n)] + rng.normal(size=(n, d)) + np.einsum("nij,nj->ni", np.linalg.cholesky(S), rng.normal(size=(n, d)))
    return x, S, (np.full(k, 1 / k), means + 0.3 * rng.normal(size=(k, d)), np.tile(np.eye(d), (k, 1, 1)))


def seconds(fit, iterations):
    """Return the processor's seconds of an iteration, those by the clock, and what the fit returns."""
    clock, processor = time.perf_counter(), time.process_time()
    found = fit()
    return (time.process_time() - processor) / iterations, (time.perf_counter() - clock) / iterations, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("rows", 1e5), ("components", 10), ("features", 6), ("threads", 1)):
        parser.add_argument(f"--{name}", type=float, default=default)
    given = {name: int(value) for name, value in vars(parser.parse_args()).items()}
    n, k, d, threads = given.values()
    x, S, (amp, means, covariances) = problem(n, k, d)
    how = {"weights_init": amp, "means_init": means, "precisions_init": np.linalg.inv(covariances), "tol": 0.0, "reg_covar": 0.0}

    def ours(rows, iterations):
        return ExtremeDeconvolution(k, max_iter=iterations, n_jobs=threads, **how).fit(x[:rows], noise=S[:rows])

    ours(min(n, 1000), 1)
    processor, clock, _ = seconds(lambda: ours(n, 5), 5)
    print(f"{n} rows, K={k}, D={d}: {processor:.3f} s of the processor, {clock:.3f} s by the clock")

    with suppress(ImportError):
        from astroML.density_estimation import XDGMM as Theirs

        few = n // 100
        theirs = Theirs(k)
        theirs.alpha, theirs.mu, theirs.V = amp, means, covariances
        took, _, _ = seconds(lambda: [theirs._EMstep(x[:few], S[:few]) for _ in range(2)], 2)
        xd = ours(few, 2)
        apart = max(abs(theirs.mu - xd.means_).max(), abs(theirs.V - xd.covariances_).max())
        log_p = XDGMM(k)
        log_p.alpha, log_p.mu, log_p.V = theirs.alpha, theirs.mu, theirs.V
        of_density = abs(log_p.logprob_a(x[:few], S[:few]) - theirs.logprob_a(x[:few], S[:few])).max()
        print(f"  astroML: {100 * took:.1f} s of the processor ({100 * took / processor:.0f} times); parameters {apart:.1e} apart, log densities {of_density:.1e}")
    with suppress(ImportError):
        from extreme_deconvolution import extreme_deconvolution

        now = amp.copy(), means.copy(), covariances.copy()
        took, _, _ = seconds(lambda: extreme_deconvolution(x, S, *now, maxiter=5, tol=-np.inf), 5)
        xd = ours(n, 5)
        apart = max(abs(now[1] - xd.means_).max(), abs(now[2] - xd.covariances_).max())
        print(f"  jobovy's program: {took:.1f} s of the processor ({took / processor:.0f} times); parameters {apart:.1e} apart")


if __name__ == "__main__":
    main()
