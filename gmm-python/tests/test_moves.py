"""Parameters that may move in a fit, priors, and adapted background models."""

from __future__ import annotations

import numpy as np
import pytest

from gaussmix import BayesianGaussianMixture, GaussianMixture


def clouds(n: int = 300, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) + rng.choice([-4.0, 0.0, 5.0], size=(n, 1))


@pytest.mark.parametrize(
    "freeze",
    [{"means": [0, 2]}, {"means": np.array([True, False, True])}, {"means": (2, 0), "weights": None, "covariances": False}],
)
def test_single_components_stay(freeze):
    x = clouds()
    gm = GaussianMixture(3, means_init=[[-4, -4], [1, 1], [5, 5]], freeze=freeze, random_state=0, tol=0.0, max_iter=20)
    with pytest.warns(UserWarning, match="converge"):
        gm.fit(x)
    np.testing.assert_array_equal(gm.means_[[0, 2]], [[-4, -4], [5, 5]])
    assert not np.array_equal(gm.means_[1], [1, 1])
    # Rounding of a mean over 300 samples.
    assert np.all(np.diff(gm.lower_bounds_) >= -1e-12)


def test_equal_weights():
    gm = GaussianMixture(3, freeze={"weights": "equal", "covariances": [1]}, random_state=0).fit(clouds())
    np.testing.assert_array_equal(gm.weights_, np.full(3, 1 / 3))
    assert np.all(np.diff(gm.lower_bounds_) >= -1e-12)


def test_equal_means():
    gm = GaussianMixture(3, freeze={"means": "equal"}, random_state=0, tol=1e-5, max_iter=5000).fit(clouds())
    np.testing.assert_array_equal(gm.means_, gm.means_[[0, 0, 0]])
    assert np.all(np.diff(gm.lower_bounds_) >= -1e-12)
    # Not three times the same component.
    assert gm.lower_bound_ > GaussianMixture(1).fit(clouds()).lower_bound_ + 0.01


@pytest.mark.parametrize(
    ("freeze", "message"),
    [
        ({"mean": [0]}, "`mean=0`: use weights"),
        ({"means": [3]}, "numbers from 0 to 2"),
        ({"means": [-1]}, "numbers from 0 to 2"),
        ({"means": [0.5]}, "numbers from 0 to 2"),
        ({"means": [True, False]}, r"should be \(3,\)"),
        ({"covariances": "equal"}, "`covariances=equal`: use weights"),
    ],
)
def test_what_cannot_be_frozen_is_an_error(freeze, message):
    with pytest.raises(ValueError, match=message):
        GaussianMixture(3, freeze=freeze).fit(clouds())
    with pytest.raises(ValueError, match="only freeze a parameter for all components"):
        BayesianGaussianMixture(n_components=3, freeze={"means": [0]}).fit(clouds())


def test_a_prior_is_that_of_the_formulas():
    x = clouds(50)
    n, d = x.shape
    kappa, nu, psi, m = 2.0, 7.0, np.array([[2.0, 0.3], [0.3, 1.0]]), np.array([1.0, -1.0])
    prior = {"mean_precision": kappa, "degrees_of_freedom": nu, "covariance": psi, "mean": m}
    gm = GaussianMixture(1, reg_covar=0.0, prior=prior).fit(x)
    mean = x.mean(axis=0)
    away = np.outer(mean - m, mean - m)
    scatter = (x - mean).T @ (x - mean)
    covariance = (scatter + kappa * n / (kappa + n) * away + psi) / (n + nu + d + 2)
    np.testing.assert_allclose(gm.means_[0], (n * mean + kappa * m) / (n + kappa), rtol=1e-10)
    np.testing.assert_allclose(gm.covariances_[0], covariance, rtol=1e-10)


def test_no_component_collapses_under_the_default_prior():
    x = clouds(60)
    x[:5] = 30.0
    # The start, from clusters, ignores the prior.
    gm = GaussianMixture(3, reg_covar=1e-9, prior="default", random_state=0, tol=1e-9, max_iter=500).fit(x)
    assert gm.retained_ == [] and np.all(np.linalg.eigvalsh(gm.covariances_) > 0.01)
    # `reg_covar` is not a part of the posterior.
    assert np.all(np.diff(gm.lower_bounds_) >= -1e-6)
    with pytest.raises(ValueError, match="prior names 'spread'"):
        GaussianMixture(prior={"spread": 1.0}).fit(x)
    with pytest.raises(ValueError, match="beside standardize"):
        GaussianMixture(prior={"mean": [0.0, 0.0]}, standardize=True).fit(x)
    with pytest.raises(AttributeError, match="partial_fit"):
        gm.partial_fit(x)


@pytest.mark.parametrize("parameters", ["means", ["weights"], ("means", "covariances", "weights")])
def test_adapted_models_are_those_of_reynolds(parameters):
    background = GaussianMixture(4, covariance_type="diag", random_state=0).fit(clouds(400))
    x = clouds(40, seed=1) + 0.5
    adapted = background.mixture_.adapt(x, relevance=16, parameters=parameters)
    p = background.predict_proba(x)
    n = p.sum(axis=0)
    alpha = n / (n + 16)
    first, second = p.T @ x / n[:, np.newaxis], p.T @ x**2 / n[:, np.newaxis]
    a = alpha[:, np.newaxis]
    means = a * first + (1 - a) * background.means_
    variances = a * second + (1 - a) * (background.covariances_ + background.means_**2) - means**2
    weights = alpha * n / len(x) + (1 - alpha) * background.weights_
    weights /= weights.sum()
    want = {"means": means, "weights": weights, "covariances": variances}
    for name in want:
        expected = want[name] if name in parameters else getattr(background, f"{name}_")
        np.testing.assert_allclose(getattr(adapted, name), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(adapted.supervector(), np.concatenate(list(adapted.means)))
    assert adapted.predict(x).shape == (40,)
    with pytest.raises(ValueError, match="`mean`"):
        background.mixture_.adapt(x, parameters="mean")


@pytest.mark.parametrize(
    ("covariance_type", "n"), [("full", 300), ("tied", 300), ("diag", 300), ("spherical", 300), ("full", 20_000)]
)
def test_starts_that_are_given(covariance_type, n):
    x = clouds(n)
    labels = np.digitize(x[:, 0], [-2.0, 2.0])
    means = np.array([x[labels == k].mean(axis=0) for k in range(3)])
    known = np.where(np.arange(n) % 3 == 0, -1, labels)
    resp = np.eye(3)[labels]

    def start(init_params):
        gm = GaussianMixture(3, covariance_type=covariance_type, init_params=init_params, max_iter=0, reg_covar=0.0)
        return gm.fit(x)

    for gm in (start(labels), start(resp), start(lambda x, k, random_state: labels)):
        np.testing.assert_allclose(gm.means_, means, rtol=1e-10)
        np.testing.assert_allclose(gm.weights_, np.bincount(labels) / n, rtol=1e-10)
    if covariance_type == "full":
        covariances = [np.cov(x[known == k].T, bias=True) for k in range(3)]
        np.testing.assert_allclose(start(known).covariances_, covariances, rtol=1e-9)
    drawn = start(lambda x, k, random_state: x[random_state.choice(len(x), k, replace=False)])
    assert drawn.means_.shape == (3, 2)


def test_a_start_that_is_none_is_an_error():
    x = clouds()
    for given, message in [
        (np.zeros(300, dtype=int), "component 1 no sample"),
        (np.full(300, 3), "labels outside of 0 to 2"),
        (np.full((300, 3), -1.0), "negative or not finite"),
        (np.zeros((5, 5)), "should be responsibilities"),
        (lambda x, k, random_state: np.zeros(300), "whole numbers as labels"),
    ]:
        with pytest.raises(ValueError, match=message):
            GaussianMixture(3, init_params=given).fit(x)


def test_a_text_says_what_stays_as_the_program_does():
    x, start = clouds(), {"means_init": [[-4, -4], [1, 1], [5, 5]], "random_state": 0, "max_iter": 5, "tol": 0.0}
    said = GaussianMixture(3, freeze="means=0,2,weights=equal", **start).fit(x)
    given = GaussianMixture(3, freeze={"means": [0, 2], "weights": "equal"}, **start).fit(x)
    assert said.mixture_ == given.mixture_
    with pytest.raises(ValueError, match="`means=a`: use weights, means or covariances"):
        GaussianMixture(3, freeze="means=a").fit(x)
