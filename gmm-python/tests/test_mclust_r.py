"""`gaussmix.mclust` beside R's mclust itself, where `Rscript` and mclust are installed (r-cran-mclust of Debian)."""

import shutil
import subprocess

import numpy as np
import pytest

from gaussmix import _core
from gaussmix.mclust import Mclust, me

MODELS = _core.MODELS[:14]
SETS = 200


def run_r(script, folder):
    """Run a program of R with mclust in a folder."""
    if shutil.which("Rscript") is None or subprocess.run(["Rscript", "-e", "library(mclust)"], capture_output=True).returncode:
        pytest.skip("R with mclust is not installed")
    head = f'suppressMessages(library(mclust)); setwd("{folder}"); options(digits = 15)\n'
    subprocess.run(["Rscript", "-e", head + script], check=True)


def random_sets():
    """Return random samples, their classes and the number of these: overlapping groups, a tenth of the classes wrong."""
    for seed in range(SETS):
        rng = np.random.default_rng(seed)
        k, d = int(rng.integers(2, 6)), int(rng.integers(2, 7))
        n = int(rng.integers(k * (d + 2), 150))
        labels = np.r_[np.repeat(np.arange(k), d + 2), rng.integers(0, k, n - k * (d + 2))]
        factors = rng.normal(size=(k, d, d)) * rng.uniform(0.3, 2, (k, 1, 1))
        x = rng.normal(0, 2.5, (k, d))[labels] + np.einsum("nij,nj->ni", factors[labels], rng.normal(size=(n, d)))
        yield x, np.where(rng.random(n) < 0.1, rng.integers(0, k, n), labels), k


ME = """
shapes <- read.table("shapes.txt"); x <- file("x.bin", "rb"); out <- file("out.txt", "w")
for (i in seq_len(nrow(shapes))) {
  n <- shapes[i, 1]; d <- shapes[i, 2]
  data <- matrix(readBin(x, "double", n * d), n, d, byrow = TRUE)
  z <- unmap(1 + readBin(x, "integer", n), groups = seq_len(shapes[i, 3]))
  for (name in mclust.options("emModelNames")) {
    fit <- me(data, modelName = name, z = z)
    cat(i - 1, name, format(fit$loglik, digits = 17), unlist(attr(fit, "info"))[1], "\\n", file = out)
  }
}
close(out)
"""


def test_em_from_classes(tmp_path):
    sets = list(random_sets())
    np.savetxt(tmp_path / "shapes.txt", [(*x.shape, k) for x, _, k in sets], fmt="%d")
    with open(tmp_path / "x.bin", "wb") as file:
        for x, classes, _ in sets:
            file.write(x.tobytes() + classes.astype(np.int32).tobytes())
    run_r(ME, tmp_path)
    other, missing = [], 0
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert len(lines) == SETS * len(MODELS)
    for line in lines:
        number, name, loglik, iterations = line.split()
        x, classes, k = sets[int(number)]
        try:
            fit = me(x, name, np.eye(k)[classes])
            found = fit.loglik, fit.iterations
        except ValueError:
            found = None
        expected = None if loglik == "NA" else (float(loglik), int(iterations))
        missing += expected is None
        # Both round sums of some hundred terms; rounding is magnified where a component is nearly flat.
        same = found and expected and abs(found[0] - expected[0]) <= 1e-8 * abs(expected[0]) and found[1] == expected[1]
        if not same and not (found is expected is None):
            other.append((int(number), name, found, expected))
    assert missing > 20
    # mclust gives up where one component's scatter alone is singular (EVE, VVE: an eigenvalue below √ε), though what is
    # shared is not.
    theirs = {(5, "EVE"), (39, "EVE"), (40, "EVE"), (40, "VVE"), (132, "EVE"), (179, "EVE"), (179, "VVE")}
    # Rounding leaves fewer digits of a component than the engine asks for.
    ours = {(192, "EEV")}
    assert {cell[:2] for cell in other if cell[3] is None} == theirs, other
    assert {cell[:2] for cell in other if cell[3] is not None} == ours, other


TABLES = """
data(diabetes); data(chevron)
for (name in c("diabetes", "chevron")) {
  x <- as.matrix(get(name)[, -1])
  writeBin(as.vector(t(x)), paste0(name, ".bin"))
  fit <- Mclust(x, G = 1:6, verbose = FALSE)
  table <- unclass(fit$BIC)[, ]
  write.table(format(table, digits = 15), paste0(name, ".txt"), quote = FALSE, row.names = FALSE, col.names = FALSE)
  numbers <- c(fit$loglik, fit$icl, fit$parameters$pro, fit$parameters$mean)
  writeLines(c(fit$modelName, fit$G, format(numbers, digits = 17)), paste0(name, ".fit"))
}
"""


def test_tables_of_data_sets_of_mclust(tmp_path):
    run_r(TABLES, tmp_path)
    for name, d in (("diabetes", 3), ("chevron", 2)):
        x = np.fromfile(tmp_path / f"{name}.bin").reshape(-1, d)
        table = np.genfromtxt(tmp_path / f"{name}.txt", missing_values="NA")
        fit = Mclust(x, range(1, 7))
        np.testing.assert_allclose(fit.BIC.values, table, rtol=1e-8)
        model, k, *numbers = (tmp_path / f"{name}.fit").read_text().split()
        assert (fit.modelName, fit.G) == (model, int(k))
        found = [fit.loglik, fit.icl, *fit.parameters.pro, *fit.parameters.mean.T.ravel()]
        np.testing.assert_allclose(found, np.array(numbers, dtype=float), rtol=1e-6)


WEIGHTED = """
x <- as.matrix(read.csv("x.csv")); w <- scan("w.txt", quiet = TRUE); fit <- Mclust(x, G = 3, modelNames = "VEV", verbose = FALSE)
again <- me.weighted(x, "VEV", fit$z, weights = w)
writeLines(format(c(again$loglik, again$parameters$pro, again$parameters$mean), digits = 17), "out.txt")
"""


def test_em_with_weights(tmp_path, faithful):
    weights = np.random.default_rng(0).exponential(size=272)
    weights /= weights.max()
    np.savetxt(tmp_path / "x.csv", faithful, delimiter=",", header="a,b", comments="")
    np.savetxt(tmp_path / "w.txt", weights)
    run_r(WEIGHTED, tmp_path)
    loglik, *numbers = np.loadtxt(tmp_path / "out.txt")
    start = Mclust(faithful, 3, "VEV")
    statistics = _core.Statistics.from_responsibilities(faithful, start.z * weights[:, np.newaxis], "full")
    tol = 1e-5 / (1 + abs(loglik))
    ((mixture, found, _),) = _core.Data(faithful, weights, device="cpu").me([(statistics, "VEV")], tol, 10**6)
    # mclust's EM with weights ends at an absolute change of 1e-5.
    assert found == pytest.approx(loglik, abs=1e-4)
    np.testing.assert_allclose([*mixture.weights, *mixture.means.ravel()], numbers, rtol=1e-3)
