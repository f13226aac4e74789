"""The attributes of a fit to float32 data define the mixture that was fitted."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gaussmix import GaussianMixture, Likelihood, _core
from gaussmix._attributes import TOLERANCE, attribute_type

ARRAYS = ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_")
KINDS = ("full", "tied", "diag", "spherical")


def dtypes(gm):
    return {getattr(gm, name).dtype for name in ARRAYS}


def fitted(X, k=1, **params):
    """Return the estimator, and the mixture of its last iteration before it became attributes."""
    made = []
    gm = GaussianMixture(k, random_state=0, callback=lambda i: made.append(i.mixture), **params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        gm.fit(X)
    return gm, made[-1]


def collinear(kind):
    """Return float32 data whose mixture of this type does not fit into float32."""
    rng = np.random.default_rng(0)
    if kind in ("full", "tied"):
        # The standard deviation of y - x is 10⁻⁵ of that of x.
        x = rng.normal(0, 1000, (500, 1))
        return np.hstack([x, x + rng.normal(0, 0.01, (500, 1))]).astype(np.float32)
    # The mean is rounded by a good part of a standard deviation: neighbours are 1/16 apart there.
    return (rng.integers(0, 8, (500, 2)) / 16.0 + 1e6 + 0.01).astype(np.float32)


def ordinary():
    rng = np.random.default_rng(1)
    return np.r_[rng.normal(0, 1, (300, 4)), rng.normal(5, 2, (300, 4))].astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_all_methods_have_the_mixture_that_was_fitted(kind, tmp_path):
    X = collinear(kind)
    gm, mixture = fitted(X, covariance_type=kind)
    assert dtypes(gm) == {np.dtype(np.float64)}
    np.testing.assert_array_equal(gm.means_, mixture.means)
    np.testing.assert_array_equal(gm.covariances_, mixture.covariances)

    # The same parameters, so only the rounding of one evaluation remains.
    score = gm.score(X)
    parameters = (gm.weights_, gm.means_, gm.covariances_)
    assert Likelihood(X, covariance_type=kind)(*parameters) / len(X) == pytest.approx(score, rel=1e-12)
    again = GaussianMixture.from_parameters(*parameters, covariance_type=kind)
    assert again.score(X) == pytest.approx(score, rel=1e-12)
    assert pickle.loads(pickle.dumps(gm.set_params(callback=None))).score(X) == score
    gm.save(tmp_path / "model.json")
    assert GaussianMixture.load(tmp_path / "model.json").score(X) == pytest.approx(score, rel=1e-12)
    # scikit-learn's formulas lose digits in float64: in proportion to the condition number (10¹⁰), or for types without matrices to the
    # square of the mean in standard deviations (5·10¹³).
    abs_ = 1e-4 if kind in ("full", "tied") else 1e-2
    assert gm.to_sklearn().score(X.astype(np.float64)) == pytest.approx(score, abs=abs_)

    # The first iteration begins at the attributes; inverting precisions costs digits in proportion to their condition.
    bounds = []
    start = {"weights_init": gm.weights_, "means_init": gm.means_, "precisions_init": gm.precisions_}
    with pytest.warns(ConvergenceWarning):
        GaussianMixture(
            covariance_type=kind, max_iter=1, callback=lambda i: bounds.append(i.lower_bound), **start
        ).fit(X)
    assert bounds == [pytest.approx(score, rel=1e-4)]

    # The standard deviation of 20,000 draws is right to 0.5 %, with a probability of one to three by chance alone; six times that is
    # allowed.
    drawn = gm.set_params(random_state=0).sample(20_000)[0]
    for direction in ([1.0, 0.0], [-1.0, 1.0]):
        deviation = np.std(drawn @ direction)
        assert deviation == pytest.approx(np.std(X.astype(np.float64) @ direction), rel=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_ordinary_mixtures_stay_float32(kind):
    gm, mixture = fitted(ordinary(), 2, covariance_type=kind)
    assert dtypes(gm) == {np.dtype(np.float32)}
    for offset in (0.0, 1e3):
        # Also a thousand standard deviations from 0: float32 has four digits more.
        shifted = _core.Mixture(mixture.weights, mixture.means + offset, mixture.covariances, kind)
        assert attribute_type(shifted, np.dtype(np.float32)) == np.float32
    assert attribute_type(mixture, np.dtype(np.float64)) == np.float64


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e-21, 1e-18, 1e-3, 1e3, 1e18, 1e20])
def test_any_scale(kind, scale):
    rng = np.random.default_rng(1)
    Z = np.r_[rng.normal(0, 1, (200, 2)), rng.normal(6, 2, (200, 2))]
    X = (Z * scale).astype(np.float32)
    # Standardised in float64, or without an addition to the variances, the fit is the same at every scale.
    def params(scale):
        if kind != "spherical":
            return {"standardize": True}
        means = np.array([[0.0, 0.0], [6.0, 6.0]]) * scale
        precisions = np.ones(2) / scale / scale
        return {"reg_covar": 0.0, "weights_init": [0.5, 0.5], "means_init": means, "precisions_init": precisions}

    gm, _ = fitted(X, 2, covariance_type=kind, **params(scale))
    of_ones, _ = fitted(Z.astype(np.float32), 2, covariance_type=kind, **params(1.0))
    ours = gm.covariances_ / scale / scale
    # The rounding of the data, which differs by scale.
    np.testing.assert_allclose(ours, of_ones.covariances_, rtol=1e-3)
    np.testing.assert_allclose(gm.precisions_ * scale * scale, of_ones.precisions_, rtol=1e-3, atol=1e-6)
    assert dtypes(gm) == {np.dtype(np.float64 if scale in (1e-21, 1e20) else np.float32)}
    assert np.array_equal(gm.predict(X), of_ones.predict(Z.astype(np.float32)))
    parameters = (gm.weights_, gm.means_, gm.covariances_)
    total = Likelihood(X, covariance_type=kind)(*parameters)
    assert total / len(X) == pytest.approx(gm.score(X), rel=1e-12)


def test_float32_is_kept_only_where_rounding_changes_little():
    rng = np.random.default_rng(2)
    kept = []
    for correlation in 1.0 - np.logspace(-7, -0.1, 40):
        d = 4
        covariance = np.full((d, d), correlation) + (1.0 - correlation) * np.eye(d)
        covariance *= np.outer(scales := 10.0 ** rng.uniform(-3, 3, d), scales)
        means = rng.normal(size=(1, d)) * scales
        mixture = _core.Mixture([1.0], means, covariance[np.newaxis], "full")
        kept.append(attribute_type(mixture, np.dtype(np.float32)) == np.float32)
        if not kept[-1]:
            continue
        x = rng.multivariate_normal(means[0], covariance, 2000)
        data = _core.Data(x, device="reference")
        exact = data.scores(mixture)
        narrow = {name: getattr(mixture, name).astype(np.float32) for name in ("means", "covariances", "precisions")}
        factors = mixture.precisions_cholesky.astype(np.float32)
        for other in (
            _core.Mixture([1.0], narrow["means"], narrow["covariances"], "full"),
            _core.Mixture([1.0], narrow["means"], np.linalg.inv(narrow["precisions"].astype(np.float64)), "full"),
            _core.Mixture.from_attributes(np.ones(1), narrow["means"], None, factors, "full"),
        ):
            # The errors of covariance and mean are each below the tolerance, by one standard deviation.
            assert np.sqrt(np.mean((data.scores(other) - exact) ** 2)) < 2 * TOLERANCE
    # Both kinds occur, and the switch lies at condition numbers of about a thousand.
    assert not any(kept[:15]) and all(kept[-15:])


def test_many_components_of_heavy_tails():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 6)) @ rng.normal(size=(6, 6)) * np.exp(rng.normal(size=(20_000, 1)))
    X = x.astype(np.float32)
    gm, _ = fitted(X, 200, max_iter=3, init_params="random_from_data")
    assert all(np.linalg.eigvalsh(covariance.astype(np.float64))[0] > 0 for covariance in gm.covariances_)
    total = Likelihood(X)(gm.weights_, gm.means_, gm.covariances_)
    assert total / len(X) == pytest.approx(gm.score(X), rel=1e-9)
    bounds = []
    start = {"weights_init": gm.weights_, "means_init": gm.means_, "precisions_init": gm.precisions_}
    with pytest.warns(ConvergenceWarning):
        GaussianMixture(200, max_iter=1, callback=lambda i: bounds.append(i.lower_bound), **start).fit(X)
    # Inverting the precisions loses digits in proportion to their condition, up to 10⁹ here.
    assert bounds == [pytest.approx(gm.score(X), abs=1e-5)]


def test_stepwise_em_keeps_the_mixture():
    X = collinear("full")
    gm = GaussianMixture(random_state=0)
    for part in np.array_split(X, 5):
        gm.partial_fit(part)
    assert dtypes(gm) == {np.dtype(np.float64)}
    total = Likelihood(X)(gm.weights_, gm.means_, gm.covariances_)
    assert total / len(X) == pytest.approx(gm.score(X), rel=1e-12)


def test_a_start_in_other_units_is_positive_definite():
    # Precisions of features in units 10¹⁰ apart: float32 and float64 cannot tell their eigenvalues from 0.
    X = (np.random.default_rng(3).normal(size=(200, 3)) * [1e-5, 1.0, 1e5]).astype(np.float32)
    gm, _ = fitted(X, reg_covar=0.0)
    assert dtypes(gm) == {np.dtype(np.float32)}
    start = {"weights_init": gm.weights_, "means_init": gm.means_, "precisions_init": gm.precisions_}
    again = GaussianMixture(reg_covar=0.0, **start).fit(X)
    # One component: the M-step of any start.
    np.testing.assert_allclose(again.covariances_, gm.covariances_, rtol=1e-5)
    with pytest.raises(ValueError, match="symmetric, positive-definite"):
        GaussianMixture(means_init=gm.means_, precisions_init=-gm.precisions_).fit(X)
