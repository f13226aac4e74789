"""scikit-learn's checks of an estimator."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from gaussmix import (
    BayesianGaussianMixture,
    GaussianMixture,
    GaussianMixtureClassifier,
    GaussianMixtureOutlierDetector,
    GaussianMixtureRegressor,
    ManyMixtures,
    MixturePosterior,
)

#: The checks of which a call lacks the groups.
WITHOUT_GROUPS = (
    *("check_fit_score_takes_y", "check_estimators_unfitted", "check_n_features_in_after_fitting", "check_estimators_dtypes"),
    *("check_sample_weight_equivalence_on_dense_data", "check_dtype_object", "check_estimators_nan_inf", "check_estimators_pickle"),
    *("check_f_contiguous_array_estimator", "check_methods_sample_order_invariance", "check_methods_subset_invariance"),
    *("check_dict_unchanged", "check_fit_idempotent", "check_fit2d_predict1d", "check_array_api_input", "check_array_api_mixed_inputs"),
)


def exceptions(estimator):
    """The checks that an estimator does not pass, with the reasons."""
    if isinstance(estimator, ManyMixtures):
        return dict.fromkeys(WITHOUT_GROUPS, "its second argument is the group of each sample, in `fit` and in `predict`")
    if isinstance(estimator, MixturePosterior):
        return {}
    return {"check_array_api_same_namespace": "takes arrays of any library after a fit to one, and answers in their own"}


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
        MixturePosterior(chains=1, warmup=20, draws=10, random_state=0),
        ManyMixtures(GaussianMixture()),
    ],
    expected_failed_checks=exceptions,
)
def test_estimator(estimator, check):
    check(estimator)
