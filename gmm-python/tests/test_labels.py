"""Fits with samples that may belong to some components only."""

import os

import numpy as np
import pytest
from gaussmix import BayesianGaussianMixture, GaussianMixture, _core
from scipy.special import logsumexp

@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and os.environ.get("GMM_REQUIRE_CUDA") != "1":
        if not [name for name, _, problem in _core.devices() if name == "cuda:0" and problem is None]:
            pytest.skip("no GPU")
    return request.param


def blobs(n=100):
    rng = np.random.default_rng(4)
    return np.concatenate([rng.normal(centre, 1.0, (n, 2)) for centre in (-5.0, 0.0, 5.0)]).astype(np.float32)


def some(n=100, every=10):
    """The blobs become components 2, 0 and 1."""
    labels = np.full(3 * n, -1)
    labels[::every] = np.repeat([2, 0, 1], n)[::every]
    return labels


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical", "EII", "VEI", "VEE"])
def test_the_bound_is_that_of_the_allowed_components(kind, device):
    x, allowed = blobs(), np.ones((300, 3), dtype=bool)
    allowed[:60] = [True, False, True]
    allowed[150:180] = [False, True, False]
    gm = GaussianMixture(3, covariance_type=kind, random_state=0, tol=1e-7, max_iter=5000, device=device)
    found = gm.fit_predict(x, labels=allowed)
    assert np.all(np.diff(gm.lower_bounds_) >= -1e-6)  # float32 sums of 300 samples
    assert allowed[np.arange(300), found].all()
    joint = np.log(gm.predict_proba(x)) + gm.score_samples(x)[:, None]
    bound = logsumexp(np.where(allowed, joint, -np.inf), axis=1).mean()
    # One iteration, of less than `tol`, lies between the bound and the mixture; scores are in float32.
    assert bound == pytest.approx(gm.lower_bound_, abs=1e-5)


@pytest.mark.parametrize("init_params", ["kmeans", "k-means++", "random_from_data"])
@pytest.mark.parametrize("options", [{}, {"standardize": True}, {"n_init": 3}])
def test_labels_name_the_components(options, init_params, device):
    gm = GaussianMixture(3, init_params=init_params, random_state=1, device=device, max_iter=1000, tol=1e-6, **options)
    gm.fit(blobs(), labels=some())
    np.testing.assert_allclose(gm.means_, [[0, 0], [5, 5], [-5, -5]], atol=0.4)


def test_variational_inference_weights_and_missing_values_heed_labels():
    x, labels, weights = blobs(), some(), np.tile([1.0, 2.0, 0.0], 100)
    x[::7, 1] = np.nan
    for estimator in (GaussianMixture, BayesianGaussianMixture):
        gm = estimator(n_components=3, missing=True, random_state=0)
        found = gm.fit_predict(x, sample_weight=weights, labels=labels)
        assert (found[labels >= 0] == labels[labels >= 0]).all()
        np.testing.assert_allclose(gm.means_, [[0, 0], [5, 5], [-5, -5]], atol=0.5)


def test_labels_of_all_samples_are_classes():
    x, labels = blobs().astype(np.float64), np.tile([0, 1, 2], 100)
    gm = GaussianMixture(3, reg_covar=0.0).fit(x, labels=labels)
    for c in range(3):
        np.testing.assert_allclose(gm.means_[c], x[labels == c].mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(gm.covariances_[c], np.cov(x[labels == c].T, bias=True), rtol=1e-10)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full(300, 3), "have 3 for sample 0"),
        (np.full(300, -2), "have -2 for sample 0"),
        (np.zeros(299, dtype=int), r"shape \(299,\)"),
        (np.zeros(300), "whole numbers"),
        (np.zeros((300, 3), dtype=bool), "sample 0 no component"),
        (np.ones((300, 2), dtype=bool), r"a mask \(300, 3\)"),
    ],
)
def test_labels_that_do_not_fit_are_errors(labels, message):
    with pytest.raises(ValueError, match=message):
        GaussianMixture(3).fit(blobs(), labels=labels)
