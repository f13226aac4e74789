"""`gaussmix.mclust` beside R's mclust: ``python gmm-python/benches/mclust.py [--rounds N]``; needs Rscript and mclust.

Both get the same rows, and the same 2,000 of them for the start. Times are the least of some rounds, without the start of R
and Python: the waiting time, and that of all processors, which other programs hardly change. A log-likelihood is that of the
last fit.
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from gaussmix.mclust import Mclust, MclustBootstrap, hc, mclustBootstrapLRT

DATA = Path(__file__).resolve().parents[2] / "data"
#: The cases: their names, and the calls of R.
CASES = {
    "Mclust(iris)": "Mclust(iris[, 1:4], verbose = FALSE)",
    "Mclust(X, 7, 'EEE'), 3,000 x 20": "Mclust(small, 7, 'EEE', initialization = list(subset = 1:2000), verbose = FALSE)",
    "Mclust(X, 7, 'EEE'), 100,000 x 20": "Mclust(large, 7, 'EEE', initialization = list(subset = 1:2000), verbose = FALSE)",
    "hc(X), VVV, 2,000 x 20": "hc(small[1:2000, ], 'VVV', use = 'SVD')",
    "MclustBootstrap, 999 of faithful, EEE 3": "MclustBootstrap(geysers, 999, verbose = FALSE)",
    "MclustBootstrap, 99 weighted": "MclustBootstrap(geysers, 99, type = 'wlbs', verbose = FALSE)",
    "mclustBootstrapLRT, 999 of faithful, VVV": "mclustBootstrapLRT(faithful, 'VVV', maxG = 2, verbose = FALSE)",
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    rng = np.random.default_rng(0)
    means, factor = rng.normal(0, 2, (7, 20)), rng.normal(0, 0.5, (20, 20))
    large = means[rng.integers(0, 7, 100_000)] + rng.normal(size=(100_000, 20)) @ factor
    iris, faithful = (np.loadtxt(DATA / name, delimiter=",", skiprows=1) for name in ("iris.csv", "faithful.csv"))
    small, subset = large[:3000], {"subset": np.arange(2000)}
    geysers = Mclust(faithful, 3, "EEE")
    calls = [
        lambda: Mclust(iris),
        lambda: Mclust(small, 7, "EEE", initialization=subset),
        lambda: Mclust(large, 7, "EEE", initialization=subset),
        lambda: hc(small[:2000], "VVV", "SVD"),
        lambda: MclustBootstrap(geysers, 999),
        lambda: MclustBootstrap(geysers, 99, "wlbs"),
        lambda: mclustBootstrapLRT(faithful, "VVV", maxG=2),
    ]
    ours = []
    for call in calls:
        times = []
        for _ in range(rounds):
            begin = time.perf_counter(), time.process_time()
            found = call()
            times.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
        ours.append((*np.min(times, axis=0), getattr(found, "loglik", "")))
    with tempfile.TemporaryDirectory() as folder:
        large.tofile(f"{folder}/x.bin")
        lines = [f"show(function() {call})" for call in CASES.values()]
        head = [
            f"""show <- function(call) {{
                times <- replicate({rounds}, {{ t <- system.time(fit <<- call()); c(t[3], t[1] + t[2]) }})
                cat(apply(times, 1, min), if (inherits(fit, 'Mclust')) fit$loglik, '\\n')
            }}""",
            "suppressMessages(library(mclust)); options(digits = 12)",
            f"large <- matrix(readBin('{folder}/x.bin', 'double', 2e6), ncol = 20, byrow = TRUE); small <- large[1:3000, ]",
            "geysers <- Mclust(faithful, 3, 'EEE', verbose = FALSE)",
        ]
        out = subprocess.run(["Rscript", "-e", "\n".join(head + lines)], check=True, capture_output=True, text=True).stdout
    for name, (seconds, processors, loglik), line in zip(CASES, ours, out.splitlines(), strict=True):
        print(f"{name:45} {seconds:8.3f} {processors:8.3f} {loglik!s:22} R {line}")


if __name__ == "__main__":
    main()
