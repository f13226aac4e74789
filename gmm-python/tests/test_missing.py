"""Data with missing values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import get_tags

from gaussmix import GaussianMixture, Likelihood, MixturePosterior, plot

pytestmark = pytest.mark.filterwarnings("ignore:.*no observed value")
TYPES = ["full", "tied", "diag", "spherical"]


def blobs(n: int = 600, d: int = 3, share: float = 0.3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds, complete and with holes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 0.7 + 4.0 * (np.arange(n) % 3)[:, np.newaxis]
    holes = X.copy()
    holes[rng.random(X.shape) < share] = np.nan
    return X, holes


def covariance(gm: GaussianMixture, k: int) -> np.ndarray:
    d = gm.n_features_in_
    return {
        "full": lambda: gm.covariances_[k],
        "tied": lambda: gm.covariances_,
        "diag": lambda: np.diag(gm.covariances_[k]),
        "spherical": lambda: gm.covariances_[k] * np.eye(d),
    }[gm.covariance_type]()


def log_terms(gm: GaussianMixture, x: np.ndarray) -> np.ndarray:
    """Return log πₖ N(x_o; μ_o, Σ_oo) of one sample, by SciPy."""
    seen = ~np.isnan(x)
    if not seen.any():
        return np.log(gm.weights_)
    density = [
        multivariate_normal(gm.means_[k][seen], covariance(gm, k)[np.ix_(seen, seen)]).logpdf(x[seen])
        for k in range(gm.n_components)
    ]
    return np.log(gm.weights_) + np.array(density)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_scores_and_probabilities_are_those_of_what_is_observed(covariance_type: str) -> None:
    _, X = blobs()
    X[5] = np.nan
    weights = np.arange(len(X)) % 3 + 0.5
    with pytest.warns(UserWarning, match="11 rows have no observed value, the first is row 5"):
        gm = GaussianMixture(3, covariance_type=covariance_type, missing=True, random_state=0).fit(
            X, sample_weight=weights
        )
    terms = np.array([log_terms(gm, x) for x in X])
    scores = np.logaddexp.reduce(terms, axis=1)
    # Some roundings of numbers near 10.
    np.testing.assert_allclose(gm.score_samples(X), scores, atol=1e-10)
    assert gm.score_samples(X)[5] == 0.0
    np.testing.assert_allclose(gm.predict_proba(X), np.exp(terms - scores[:, np.newaxis]), atol=1e-10)
    np.testing.assert_array_equal(gm.predict(X), terms.argmax(axis=1))
    assert gm.score(X) == pytest.approx(scores.mean(), abs=1e-10)
    assert gm.score(X, sample_weight=weights) == pytest.approx(np.average(scores, weights=weights), abs=1e-10)
    p = gm._n_parameters()
    assert gm.bic(X) == pytest.approx(-2 * scores.sum() + p * np.log(len(X)), rel=1e-10)
    # The clouds are found.
    assert np.allclose(np.sort(gm.means_[:, 0]), [0, 4, 8], atol=0.3)


def test_the_fit_is_a_maximum() -> None:
    _, X = blobs()
    gm = GaussianMixture(3, missing=True, random_state=0, tol=1e-9, max_iter=2000, reg_covar=0).fit(X)
    assert np.all(np.diff(gm.lower_bounds_) > -1e-12)
    likelihood = Likelihood(X, missing=True)
    value, by_weights, by_means, by_covariances = likelihood.gradient(gm.weights_, gm.means_, gm.covariances_)
    assert value == pytest.approx(gm.score(X) * len(X), rel=1e-12)
    # At a maximum over weights that sum to 1, all derivatives by them are N.
    np.testing.assert_allclose(by_weights, len(X), rtol=1e-3)
    assert np.abs(by_means).max() < 1e-2 and np.abs(by_covariances).max() < 1e-2


def test_the_gradient_is_that_of_finite_differences() -> None:
    _, X = blobs(80)
    gm = GaussianMixture(2, covariance_type="diag", missing=True, random_state=0).fit(X)
    likelihood = Likelihood(X, missing=True)
    _, _, by_means, by_covariances = likelihood.gradient(gm.weights_, gm.means_, gm.covariances_)
    h = 1e-5
    for at in np.ndindex(gm.means_.shape):
        up, down = gm.means_.copy(), gm.means_.copy()
        up[at] += h
        down[at] -= h
        at_up, at_down = (likelihood(gm.weights_, means, gm.covariances_) for means in (up, down))
        slope = (at_up - at_down) / (2 * h)
        # Central differences err by h² and by ε·value/h.
        assert by_means[at] == pytest.approx(slope, rel=1e-5, abs=1e-5)
        up, down = gm.covariances_.copy(), gm.covariances_.copy()
        up[at] += h
        down[at] -= h
        slope = (likelihood(gm.weights_, gm.means_, up) - likelihood(gm.weights_, gm.means_, down)) / (2 * h)
        assert by_covariances[at] == pytest.approx(slope, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_complete_data_gives_the_same_bits(covariance_type: str, dtype: type) -> None:
    X = blobs()[0].astype(dtype)
    one = GaussianMixture(3, covariance_type=covariance_type, random_state=0).fit(X)
    other = GaussianMixture(3, covariance_type=covariance_type, random_state=0, missing=True).fit(X)
    np.testing.assert_array_equal(one.means_, other.means_)
    np.testing.assert_array_equal(one.score_samples(X), other.score_samples(X))
    np.testing.assert_array_equal(other.impute(X), X)


def test_large_data_and_float32() -> None:
    _, X = blobs(30_000)
    one = GaussianMixture(3, missing=True, random_state=0).fit(X)
    other = GaussianMixture(3, missing=True, random_state=0).fit(X.astype(np.float32))
    assert other.means_.dtype == np.float32
    # The same start up to rounding; parameters of 10⁴ samples in float32.
    np.testing.assert_allclose(np.sort(one.means_[:, 0]), np.sort(other.means_[:, 0]), atol=1e-3)


def test_standardised_units() -> None:
    _, X = blobs()
    X = X * [1.0, 1e3, 1e-3] + [1e6, 0.0, 5.0]
    gm = GaussianMixture(3, missing=True, standardize=True, random_state=0, tol=1e-8, max_iter=500, reg_covar=0)
    gm.fit(X)
    # The last lower bound is before the last step.
    assert gm.lower_bound_ == pytest.approx(gm.score(X), abs=1e-5)
    assert np.allclose(np.sort(gm.means_[:, 1]) / 1e3, [0, 4, 8], atol=0.3)


def test_chunks() -> None:
    _, X = blobs(3000)
    gm = GaussianMixture(3, missing=True, random_state=0)
    for chunk in np.array_split(X, 10):
        gm.partial_fit(chunk)
    assert np.allclose(np.sort(gm.means_[:, 0]), [0, 4, 8], atol=0.3)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_imputed_means(covariance_type: str) -> None:
    _, X = blobs(200)
    gm = GaussianMixture(3, covariance_type=covariance_type, missing=True, random_state=0).fit(X)
    filled = gm.impute(X)
    for x, got in zip(X, filled, strict=True):
        seen = ~np.isnan(x)
        np.testing.assert_array_equal(got[seen], x[seen])
        terms = log_terms(gm, x)
        r = np.exp(terms - np.logaddexp.reduce(terms))
        want = np.zeros(len(x))
        for k in range(3):
            s = covariance(gm, k)
            slope = s[np.ix_(~seen, seen)] @ np.linalg.inv(s[np.ix_(seen, seen)])
            want[~seen] += r[k] * (gm.means_[k][~seen] + slope @ (x[seen] - gm.means_[k][seen]))
        np.testing.assert_allclose(got[~seen], want[~seen], atol=1e-9)


def test_plots_have_open_circles() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    _, X = blobs(200)
    X[3] = np.nan
    gm = GaussianMixture(3, missing=True, random_state=0).fit(X)
    some = ~np.isnan(X).all(axis=1)
    for features, drawn in ((None, [0, 1, 2]), ((0, 2), [0, 2])):
        ax = plot(gm, X, features=features, ax=pyplot.figure().gca())
        sizes = [(len(c.get_offsets()), len(c.get_facecolors()) > 0) for c in ax.collections]
        complete = ~np.isnan(X[some][:, drawn]).any(axis=1)
        assert sum(n for n, solid in sizes if solid) == complete.sum()
        assert sum(n for n, solid in sizes if not solid) == (~complete).sum()
        assert np.isfinite(np.concatenate([c.get_offsets() for c in ax.collections])).all()
        pyplot.close()
    assert len(plot(gm, blobs(200)[0], ax=pyplot.figure().gca()).collections) == 3
    pyplot.close()


def test_imputed_draws() -> None:
    gm = GaussianMixture.from_parameters([1.0], [[2.0, 1.0]], [[[4.0, 1.2], [1.2, 1.0]]])
    X = np.array([[5.0, np.nan]], dtype=np.float32)
    draws = gm.impute(X, draws=20_000, random_state=3)
    assert draws.shape == (20_000, 1, 2) and draws.dtype == np.float32
    assert np.all(draws[:, 0, 0] == 5.0)
    # Given x₀ = 5: mean 1.9, variance 0.64; five standard errors.
    assert abs(draws[:, 0, 1].mean() - 1.9) < 5 * 0.8 / np.sqrt(20_000)
    assert abs(draws[:, 0, 1].var() - 0.64) < 5 * 0.64 * np.sqrt(2 / 20_000)
    np.testing.assert_array_equal(draws, gm.impute(X, draws=20_000, random_state=3))
    assert np.any(draws != gm.impute(X, draws=20_000, random_state=4))
    for bad in (0, -1, 1.5):
        with pytest.raises((TypeError, ValueError), match="draws is"):
            gm.impute(X, draws=bad)


def test_errors() -> None:
    _, X = blobs(100)
    row, column = (int(i) for i in np.argwhere(np.isnan(X))[0])
    fitted = GaussianMixture(2, missing=True, random_state=0).fit(X)
    strict = clone(fitted).set_params(missing=False)
    for call in (
        lambda: strict.fit(X),
        lambda: fitted.set_params(missing=False).score(X),
        lambda: fitted.predict(X),
    ):
        with pytest.raises(ValueError, match="contains NaN") as error:
            call()
        assert f"row {row}, column {column}" in str(error.value) and "missing=True" in str(error.value)
    infinite = X.copy()
    infinite[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        clone(fitted).set_params(missing=True).fit(infinite)
    empty = X.copy()
    empty[:, 1] = np.nan
    with pytest.raises(ValueError, match="nothing is observed in column 1"):
        GaussianMixture(2, missing=True).fit(empty)
    with pytest.raises(ValueError, match="contains NaN"):
        Likelihood(X)


def test_tags() -> None:
    assert get_tags(GaussianMixture(missing=True)).input_tags.allow_nan
    assert not get_tags(GaussianMixture()).input_tags.allow_nan
    assert clone(GaussianMixture(missing=True)).missing


@pytest.mark.filterwarnings("ignore", category=ConvergenceWarning)
def test_a_posterior() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal([3.0, -2.0], [1.0, 2.0], (200, 2))
    X[rng.random(X.shape) < 0.4] = np.nan
    posterior = MixturePosterior(1, missing=True, chains=2, warmup=200, draws=300, random_state=0).fit(X)
    means = posterior.draws_["means"].reshape(-1, 2)
    for j in range(2):
        seen = X[~np.isnan(X[:, j]), j]
        error = seen.std() / np.sqrt(len(seen))
        # The flat prior leaves the posterior of a mean at the mean, within its standard error.
        assert abs(means[:, j].mean() - seen.mean()) < 0.3 * error
        assert abs(means[:, j].std() / error - 1) < 0.3
