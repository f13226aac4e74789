"""CellCharter's choice of the number of clusters, by its own code, with torchgmm's mixtures and with ours.

    python gmm-python/benches/auto_k.py [--runs R] [--device cpu|cuda] [--rows N]

``ClusterAutoK`` fits each K several times and takes the K whose labels are most like those of K - 1 and K + 1. Its module is read from the
installed package, without what else the package imports; of anndata it needs a class with ``obsm``. Both kinds of mixtures are fitted by
the same loop; then as many fits are made by one call of `gaussmix.select`. Needs cellcharter and torchgmm
(``pip install --no-deps cellcharter torchgmm``), PyTorch, pytorch-lightning and pandas.
"""

import argparse
import importlib
import importlib.util
import logging
import pathlib
import sys
import time
import types
import warnings

import numpy as np

import gaussmix


class Data:
    """What CellCharter reads of an ``anndata.AnnData``."""

    def __init__(self, x):
        self.obsm = {"x": x}


def cellcharter():
    """Load the two modules of CellCharter that are compared, with their classes."""
    found = importlib.util.find_spec("cellcharter")
    if found is None or found.origin is None:
        raise SystemExit("cellcharter is not installed: pip install --no-deps cellcharter torchgmm")
    folder = pathlib.Path(found.origin).parent
    sys.modules["anndata"] = types.ModuleType("anndata")
    sys.modules["anndata"].AnnData = Data
    for name, path in (("cellcharter", folder), ("cellcharter.tl", folder / "tl")):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(path)]
    sys.modules["cellcharter"].tl = sys.modules["cellcharter.tl"]
    mixture = importlib.import_module("cellcharter.tl._gmm").GaussianMixture
    sys.modules["cellcharter.tl"].GaussianMixture = mixture
    return importlib.import_module("cellcharter.tl._autok").ClusterAutoK, mixture


class Ours:
    """Our mixture with the names that ``ClusterAutoK`` uses."""

    def __init__(self, n_clusters=1, random_state=0, device="cpu", trainer_params=None):
        self.mixture = gaussmix.GaussianMixture(n_clusters, random_state=random_state, device=device)
        self.trainer_params = trainer_params

    def fit(self, x):
        self.mixture.fit(x)
        self.nll_ = -self.mixture.lower_bound_

    def predict(self, x):
        return self.mixture.predict(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=20_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    auto_k, torchgmm = cellcharter()
    rng = np.random.default_rng(0)
    true_k, d = 6, 10
    centres = 2 * rng.standard_normal((true_k, d))
    x = (centres[rng.integers(true_k, size=options.rows)] + rng.standard_normal((options.rows, d))).astype(np.float32)
    accelerator = "gpu" if options.device.startswith("cuda") else "cpu"
    theirs = {"trainer_params": {"accelerator": accelerator, "devices": 1, "enable_progress_bar": False}}
    sides = (("torchgmm", torchgmm, theirs), ("gaussmix", Ours, {"device": options.device, **theirs}))
    for name, model, params in sides:
        # K = 1 to 11: the range, and one on both sides.
        search = auto_k((2, 10), max_runs=options.runs, convergence_tol=0.0, model_class=model, model_params=params)
        begin = time.perf_counter()
        search.fit(Data(x), use_rep="x")
        seconds = time.perf_counter() - begin
        curve = " ".join(f"{value:.3f}" for value in np.mean(search.stability, axis=1))
        print(f"{name}: {seconds:.2f} s for {11 * options.runs} fits; stability {curve}; best K {search.best_k}", flush=True)
    for note in ("first call", "again"):
        begin = time.perf_counter()
        found = gaussmix.select(x, range(1, 12), n_init=options.runs, random_state=0, device=options.device)
        seconds = time.perf_counter() - begin
        print(f"gaussmix.select: {seconds:.3f} s ({note}) for {11 * options.runs} fits; best K by BIC {found.best.n_components}")


if __name__ == "__main__":
    main()
