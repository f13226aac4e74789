"""The classifier: mixtures of the classes, and Bayes' rule."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussmix import GaussianMixture, GaussianMixtureClassifier

SPECIES = np.repeat(["setosa", "versicolor", "virginica"], 50)
KINDS = ["full", "tied", "diag", "spherical"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("params", [{}, {"init_params": "random", "n_init": 3}])
def test_the_mixtures_are_those_of_the_classes_alone(iris, kind, params, global_dtype):
    x, weights = iris.astype(global_dtype), np.linspace(0.5, 2, 150)
    params = {"covariance_type": kind, "random_state": 3, "standardize": False, **params}
    order = np.random.default_rng(0).permutation(150)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = GaussianMixtureClassifier([1, 3, 2], **params)
        classifier.fit(x[order], SPECIES[order], sample_weight=weights[order])
        joint = []
        for k, label, gm in zip([1, 3, 2], classifier.classes_, classifier._gms, strict=True):
            rows = order[SPECIES[order] == label]
            alone = GaussianMixture(k, **params).fit(x[rows], sample_weight=weights[rows])
            for name in ("weights_", "means_", "covariances_", "lower_bounds_"):
                assert np.array_equal(getattr(gm, name), getattr(alone, name)), (label, name)
            prior = weights[rows].sum() / weights.sum()
            joint.append(alone.score_samples(x) + np.log(prior))
    joint = np.stack(joint, axis=1)
    # One or two roundings of numbers up to 10³ in the type.
    tolerance = 1e-10 if global_dtype == np.float64 else 1e-3
    expected = joint - logsumexp(joint, axis=1, keepdims=True)
    found = classifier.predict_log_proba(x)
    np.testing.assert_allclose(found, expected, atol=tolerance)
    np.testing.assert_allclose(classifier.predict_proba(x), np.exp(expected), atol=tolerance)
    assert found.dtype == global_dtype
    assert np.array_equal(classifier.predict(x), classifier.classes_[found.argmax(axis=1)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("init_params", ["kmeans", "random"])
def test_columns_are_scaled_by_the_variances_of_all_classes(iris, kind, init_params):
    weights = np.linspace(0.5, 2, 150)
    variances = np.average((iris - np.average(iris, axis=0, weights=weights)) ** 2, axis=0, weights=weights)
    scale = np.sqrt(variances if kind != "spherical" else variances.mean())
    params = {"covariance_type": kind, "random_state": 3, "init_params": init_params, "max_iter": 500}
    found, expected = (
        GaussianMixtureClassifier(2, standardize=standardize, **params).fit(x, SPECIES, sample_weight=weights).predict_proba(x)
        for x, standardize in ((iris, True), (iris / scale, False))
    )
    # Roundings of the scaled samples, which the fits amplify.
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_one_component_each_is_quadratic_discriminant_analysis(iris):
    for priors in (None, [0.2, 0.3, 0.5]):
        ours = GaussianMixtureClassifier(priors=priors, reg_covar=0).fit(iris, SPECIES)
        theirs = QuadraticDiscriminantAnalysis(priors=priors).fit(iris, SPECIES)
        # scikit-learn divides by n - 1.
        for gm, label in zip(ours.mixtures_, theirs.classes_, strict=True):
            np.testing.assert_allclose(gm.covariances[0], np.cov(iris[SPECIES == label].T, bias=True), rtol=1e-9)
        assert np.array_equal(ours.classes_, theirs.classes_)
        np.testing.assert_allclose(ours.priors_, theirs.priors_)
        # It changes probabilities by less than this, and three labels at most.
        assert np.abs(ours.predict_proba(iris) - theirs.predict_proba(iris)).max() < 0.05
        assert np.sum(ours.predict(iris) != theirs.predict(iris)) <= 3


def test_numbers_of_components_by_class(iris):
    by_class = GaussianMixtureClassifier({"virginica": 2, "setosa": 1, "versicolor": 3}, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [gm.n_components for gm in by_class.fit(iris, SPECIES).mixtures_] == [1, 3, 2]
        in_order = GaussianMixtureClassifier([1, 3, 2], random_state=0).fit(iris, SPECIES)
    assert np.array_equal(by_class.predict_proba(iris), in_order.predict_proba(iris))
    assert by_class.n_iter_.tolist() == [gm.n_iter_ for gm in by_class._gms]


def test_missing_values(iris):
    x = iris.copy()
    x[::4, 1] = np.nan
    x[1::4, :3] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = GaussianMixtureClassifier(2, missing=True, random_state=0, standardize=False).fit(x, SPECIES)
        alone = GaussianMixture(2, missing=True, random_state=0).fit(x[50:100])
    assert np.array_equal(classifier.mixtures_[1].means, alone.means_)
    # Three quarters of the flowers with one of four values are still recognised.
    assert classifier.score(x, SPECIES) > 0.9 and np.isfinite(classifier.predict_log_proba(x)).all()
    with pytest.raises(ValueError, match="NaN"):
        GaussianMixtureClassifier().fit(x, SPECIES)


def test_pipeline_grid_search_names_and_pickles(iris):
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame(iris, columns=["a", "b", "c", "d"])
    classifier = GaussianMixtureClassifier(random_state=0).fit(x, pandas.Series(SPECIES, dtype="category"))
    assert list(classifier.feature_names_in_) == list(classifier.mixtures_[2].feature_names) == ["a", "b", "c", "d"]
    copy = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(copy.predict_proba(x), classifier.predict_proba(x))
    pipe = make_pipeline(StandardScaler(), GaussianMixtureClassifier(random_state=0))
    assert cross_val_score(pipe, x, SPECIES, cv=5).mean() > 0.95
    grid = {"gaussianmixtureclassifier__n_components": [1, 2, {"setosa": 1, "versicolor": 2, "virginica": 2}]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = GridSearchCV(pipe, grid, cv=3).fit(x, SPECIES)
    assert search.best_score_ > 0.95


def test_a_fit_that_goes_on_is_said(iris):
    from sklearn.exceptions import ConvergenceWarning

    with pytest.warns(ConvergenceWarning, match="class 'setosa' and of others did not converge"):
        GaussianMixtureClassifier(3, tol=0, max_iter=2, random_state=0).fit(iris, SPECIES)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_components": 51}, "class 'setosa': .*50 samples"),
        ({"n_components": 51, "init_params": "random"}, "class 'setosa': .*n_samples = 50"),
        ({"n_components": [1, 2]}, "one for each of the 3 classes"),
        ({"n_components": {"setosa": 1}}, "no number for class 'versicolor'"),
        ({"n_components": [1, 2, 0]}, "n_components"),
        ({"priors": [0.5, 0.5]}, "there are 3 classes"),
        ({"priors": [0.5, 0.5, 0.5]}, "sum to 1"),
        ({"priors": [-0.5, 0.5, 1.0]}, "sum to 1"),
    ],
)
def test_what_cannot_be_is_refused(iris, params, message):
    with pytest.raises(ValueError, match=message):
        GaussianMixtureClassifier(**params).fit(iris, SPECIES)
    with pytest.raises(TypeError, match="unexpected keyword argument 'means_init'"):
        GaussianMixtureClassifier(means_init=np.zeros((1, 4)))
