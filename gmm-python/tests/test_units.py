"""Units: predictions are the same in all units, and a fit says if reg_covar is large in its own."""

import warnings

import numpy as np
import pytest

from gaussmix import (
    BayesianGaussianMixture,
    GaussianMixture,
    GaussianMixtureClassifier,
    GaussianMixtureOutlierDetector,
    GaussianMixtureRegressor,
    fit_many,
)

KINDS = ["full", "tied", "diag", "spherical"]
SPECIES = np.repeat([0, 1, 2], 50)
#: Factors of the columns. Powers of two keep all digits, others change the last ones.
FACTORS = [np.array([2.0**-40, 1.0, 2.0**30, 2.0**-20]), np.array([1e-9, 3.0, 1e6, 1e-4])]
#: Roundings of the scaled samples, which the fits amplify.
TOLERANCE = 1e-7


def scaled(x, kind, factors):
    """Return samples in other units: the same for all columns if the covariances are spherical."""
    return x * (factors[0] if kind == "spherical" else factors)


@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("kind", KINDS)
def test_estimators_that_predict_are_the_same_in_all_units(iris, kind, factors):
    x, params = scaled(iris, kind, factors), {"covariance_type": kind, "random_state": 0, "max_iter": 500}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifiers = [GaussianMixtureClassifier(2, **params).fit(data, SPECIES) for data in (iris, x)]
        detectors = [GaussianMixtureOutlierDetector(2, **params).fit(data) for data in (iris, x)]
        regressors = [GaussianMixtureRegressor(2, **params).fit(data[:, :3], data[:, 3]) for data in (iris, x)]
    probabilities = [classifier.predict_proba(data) for classifier, data in zip(classifiers, (iris, x), strict=True)]
    np.testing.assert_allclose(*probabilities, atol=TOLERANCE)
    differences = [detector.decision_function(data) for detector, data in zip(detectors, (iris, x), strict=True)]
    np.testing.assert_allclose(*differences, rtol=TOLERANCE, atol=TOLERANCE)
    means = [regressor.predict(data[:, :3], return_std=True) for regressor, data in zip(regressors, (iris, x), strict=True)]
    unit = x[0, 3] / iris[0, 3]
    for mine, other in zip(*means, strict=True):
        np.testing.assert_allclose(mine, other / unit, rtol=TOLERANCE)


@pytest.mark.parametrize("unit", [1.0, 1e-2, 1e-3, 1e-4, 1e-12])
def test_regression_in_small_units(unit):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 1))
    noise = rng.normal(0, 0.1, 500)
    y = 3 * x[:, 0] + noise
    # The variance of the noise in least squares, and the addition of 10⁻⁶ of a variance.
    residuals = y - np.polynomial.Polynomial.fit(x[:, 0], y, 1)(x[:, 0])
    assert GaussianMixtureRegressor().fit(x * unit, y).score(x * unit, y) == pytest.approx(1 - residuals.var() / y.var(), abs=1e-6)
    deviation = GaussianMixtureRegressor().fit(x, y * unit).predict(x[:1], return_std=True)[1][0]
    assert deviation / unit == pytest.approx(residuals.std(), rel=1e-2)


def test_means_to_start_with_are_in_the_units_of_the_data(iris):
    means = iris[[0, 60, 120]]
    start = ((iris[:, None] - means) / iris.std(axis=0)) ** 2
    labels = start.sum(axis=2).argmin(axis=1)
    params = {"standardize": True, "max_iter": 3}
    found = [GaussianMixture(3, init_params=given, **params).fit(iris) for given in (means, labels)]
    np.testing.assert_allclose(found[0].means_, found[1].means_, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_fit_says_where_reg_covar_is_large(iris, kind):
    pandas = pytest.importorskip("pandas")
    small = iris * [1.0, 1e-3, 1.0, 1.0]
    # A constant column has variance 0 and needs reg_covar.
    constant = np.column_stack([iris, np.full(150, 7.0)])
    # A posterior has the variance of the samples and of its prior.
    for estimator, variance in ((GaussianMixture(2), "1.9e-07"), (BayesianGaussianMixture(n_components=2, max_iter=1000), "[12]")):
        message = r"reg_covar=1e-06 is more than a thousandth of the variance of column {} .* " + variance
        estimator.set_params(covariance_type=kind, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for x in (iris, constant):
                estimator.fit(x)
            estimator.set_params(standardize=True).fit(small)
            estimator.set_params(standardize=False, reg_covar=1e-12).fit(small)
        estimator.set_params(reg_covar=1e-6)
        with pytest.warns(UserWarning, match=message.format(1)):
            estimator.fit(small)
        with pytest.warns(UserWarning, match=message.format("'b'")):
            estimator.fit(pandas.DataFrame(small, columns=list("abcd")))
        with pytest.warns(UserWarning, match="column 1 .* in group 0: the fit depends on the units"):
            fit_many(small, estimator, groups=SPECIES)
    with pytest.warns(UserWarning, match="column 1 .* in class 0"):
        GaussianMixtureClassifier(1, covariance_type=kind, standardize=False).fit(small, SPECIES)


def test_a_column_that_follows_from_others_is_named(iris):
    pandas = pytest.importorskip("pandas")
    x = np.round(np.exp(2 * iris[:, :3]))
    frame = pandas.DataFrame(np.column_stack([x, x.sum(axis=1)]), columns=["left", "middle", "right", "total"])
    with pytest.raises(ValueError, match="column 'total'.*standardize=True"):
        GaussianMixture(2, random_state=0).fit(frame)
    assert GaussianMixture(2, random_state=0, standardize=True).fit(frame).means_.shape == (2, 4)


@pytest.mark.parametrize("estimator", [GaussianMixture(3), BayesianGaussianMixture(n_components=3)])
def test_a_callback_sees_the_units_of_the_data(iris, estimator):
    seen = []
    fitted = estimator.set_params(standardize=True, random_state=0, max_iter=5, tol=0.0, callback=seen.append)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted.fit(iris)
    assert [iteration.lower_bound for iteration in seen] == fitted.lower_bounds_
    assert np.array_equal(seen[-1].mixture.means, fitted.means_)
