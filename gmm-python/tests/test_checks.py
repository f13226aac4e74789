"""scikit-learn's checks of an estimator."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from gaussmix import (
    BayesianGaussianMixture,
    GaussianMixture,
    GaussianMixtureClassifier,
    GaussianMixtureOutlierDetector,
    GaussianMixtureRegressor,
)


@parametrize_with_checks(
    [
        GaussianMixture(),
        GaussianMixture(covariance_type="diag", standardize=True),
        GaussianMixture(missing=True),
        BayesianGaussianMixture(),
        BayesianGaussianMixture(missing=True, weight_concentration_prior_type="dirichlet_distribution"),
        GaussianMixtureOutlierDetector(),
        GaussianMixtureOutlierDetector(contamination="auto"),
        GaussianMixtureOutlierDetector(contamination=0.2, covariance_type="diag", standardize=True),
        GaussianMixtureClassifier(),
        GaussianMixtureClassifier(missing=True, covariance_type="tied"),
        GaussianMixtureRegressor(),
        GaussianMixtureRegressor(missing=True, covariance_type="tied", standardize=True),
    ]
)
def test_estimator(estimator, check):
    check(estimator)
