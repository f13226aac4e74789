"""The same bits on every CPU; the engine's own test compares instruction sets."""

import pickle

import numpy as np
import pytest

from gaussmix import BayesianGaussianMixture, GaussianMixture, _core


def samples():
    i, j = np.indices((500, 3))
    return ((i * 37 + j * 11 + i * i % 13) % 101) / 16.0


@pytest.mark.parametrize("estimator", [GaussianMixture, BayesianGaussianMixture])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_fits_and_scores_do_not_depend_on_threads(estimator, covariance_type):
    X, found = samples(), []
    for n_jobs in (1, 3):
        gm = estimator(n_components=3, covariance_type=covariance_type, random_state=0, n_jobs=n_jobs, max_iter=300, tol=1e-2, reproducible=True).fit(X)
        kept = pickle.loads(pickle.dumps(gm))
        assert kept.score(X) == gm.score(X)
        found.append([gm.means_, gm.covariances_, gm.weights_, gm.score(X), gm.score_samples(X), gm.predict_proba(X)])
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def test_samples_are_loaded_for_the_switch():
    X = samples()
    assert _core.Data(X, device="auto", reproducible=True).describe()[1].startswith("reproducible-")
    # The switch ends with the samples.
    assert not _core.Data(X, device="cpu").describe()[1].startswith("reproducible-")


def test_gpus_are_refused():
    with pytest.raises(ValueError, match="the same bits on every CPU is not supported by GPUs; name the device cpu"):
        GaussianMixture(2, device="cuda", reproducible=True).fit(samples())
