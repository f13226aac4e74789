"""The detector of outliers: its threshold, and scikit-learn's tools around it."""

import pickle

import numpy as np
import pytest
from scipy.stats import chi2, multivariate_normal
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussmix import GaussianMixture, GaussianMixtureOutlierDetector

KINDS = ["full", "tied", "diag", "spherical"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_share_of_the_samples_lies_below_the_threshold(iris, kind, global_dtype):
    x = iris.astype(global_dtype)
    for share in (0.04, 0.1, 0.5):
        params = {"covariance_type": kind, "random_state": 0, "standardize": False}
        detector = GaussianMixtureOutlierDetector(3, contamination=share, **params)
        labels = detector.fit_predict(x)
        gm = GaussianMixture(3, **params).fit(x)
        assert np.array_equal(detector.mixture_.means, gm.means_) and detector.n_iter_ == gm.n_iter_
        scores = detector.score_samples(x)
        assert np.array_equal(scores, gm.score_samples(x)) and scores.dtype == global_dtype
        # No two scores about the threshold are equal.
        assert np.sum(labels == -1) == round(share * len(x))
        assert scores[labels == -1].max() < detector.offset_ < scores[labels == 1].min()
        assert np.array_equal(detector.decision_function(x) < 0, labels == -1)


def test_a_weight_counts_as_so_many_samples():
    x = np.random.default_rng(0).normal(size=(300, 2))
    weights = np.random.default_rng(1).integers(0, 4, 300)
    repeated = GaussianMixtureOutlierDetector(contamination=0.2).fit(np.repeat(x, weights, axis=0))
    # The unit of weights has no effect.
    for unit in (1.0, 1e-3):
        weighted = GaussianMixtureOutlierDetector(contamination=0.2).fit(x, sample_weight=unit * weights)
        # Two orders of the same sums.
        np.testing.assert_allclose(weighted.offset_, repeated.offset_, rtol=1e-12)
        assert np.array_equal(weighted.predict(x), repeated.predict(x))


@pytest.mark.parametrize("share", ["auto", 0.05, 0.0005])
def test_the_threshold_of_a_gaussian_is_a_quantile_of_chi_squared(share):
    x = np.random.default_rng(2).normal(size=(500, 3)) * [1, 10, 0.1]
    detector = GaussianMixtureOutlierDetector(contamination=share, threshold="mixture", random_state=1).fit(x)
    normal = multivariate_normal(detector.mixture_.means[0], detector.mixture_.covariances[0])
    p = 0.01 if share == "auto" else share
    mode = normal.logpdf(normal.mean)
    # At least 1,000 draws lie below: the share of the threshold is p with a standard error of 3.2%.
    found = chi2.sf(2 * (mode - detector.offset_), 3)
    assert abs(found / p - 1) < 4 * 0.032
    assert detector.offset_ == GaussianMixtureOutlierDetector(**detector.get_params()).fit(x).offset_


def test_auto_finds_at_least_the_sample_of_the_least_density():
    # A uniform sample has no tails: all of it lies within 99% of its Gaussian.
    x = np.array([-1.05, *np.linspace(-1, 1, 199), 1.2])[:, np.newaxis]
    weights = np.append(np.ones(200), 0.0)
    by_mixture = GaussianMixtureOutlierDetector(contamination="auto", threshold="mixture", random_state=0).fit(x)
    assert (by_mixture.predict(x) == 1).all()
    detector = GaussianMixtureOutlierDetector(contamination="auto", random_state=0)
    assert np.flatnonzero(detector.fit(x).predict(x) == -1).tolist() == [200]
    # Only samples with a weight count.
    assert np.flatnonzero(detector.fit(x, sample_weight=weights).predict(x) == -1).tolist() == [0, 200]


def test_outliers_in_clean_data_are_as_many_as_the_mixture_has():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(20_000, 2)) + rng.choice([-6, 6], 20_000)[:, np.newaxis]
    detector = GaussianMixtureOutlierDetector(2, contamination="auto", random_state=0).fit(x)
    # 200 of 20,000 draws of the same mixture, with a standard error of 14.
    assert 200 - 5 * 14 < np.sum(detector.predict(x) == -1) < 200 + 5 * 14
    assert detector.predict([[0, 0], [6, -6], [6, 6], [-6, -6]]).tolist() == [-1, -1, 1, 1]


def test_pipeline_grid_search_names_and_pickles(iris):
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame(iris, columns=["a", "b", "c", "d"])
    detector = GaussianMixtureOutlierDetector(2, contamination=0.1, random_state=0).fit(x)
    assert list(detector.feature_names_in_) == list(detector.mixture_.feature_names) == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="feature names should match"):
        detector.predict(x[["b", "a", "c", "d"]])
    copy = pickle.loads(pickle.dumps(detector))
    assert np.array_equal(copy.decision_function(x), detector.decision_function(x))
    pipe = make_pipeline(StandardScaler(), GaussianMixtureOutlierDetector(random_state=0, contamination=0.2))
    truth = np.where(np.arange(150) < 50, -1, 1)
    search = GridSearchCV(pipe, {"gaussianmixtureoutlierdetector__n_components": [1, 2]}, scoring="accuracy", cv=3)
    assert np.isfinite(search.fit(x, truth).cv_results_["mean_test_score"]).all()


def test_a_warm_start_goes_on(iris):
    cold = GaussianMixtureOutlierDetector(3, random_state=0, tol=1e-9, max_iter=500).fit(iris)
    warm = GaussianMixtureOutlierDetector(3, random_state=0, warm_start=True).fit(iris)
    warm.set_params(tol=1e-9, max_iter=500).fit(iris)
    # Both have converged to the same maximum.
    np.testing.assert_allclose(warm.offset_, cold.offset_, atol=1e-4)
    assert warm.n_iter_ < cold.n_iter_


@pytest.mark.parametrize(
    ("params", "message"),
    [({"contamination": 0.6}, "contamination"), ({"threshold": "data"}, "threshold"), ({"n_components": 0}, "n_comp")],
)
def test_what_cannot_be_is_refused(iris, params, message):
    with pytest.raises(ValueError, match=message):
        GaussianMixtureOutlierDetector(**params).fit(iris)
    with pytest.raises(TypeError, match="unexpected keyword argument 'missing'"):
        GaussianMixtureOutlierDetector(missing=True)
