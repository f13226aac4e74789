"""The regressor: means, variances and densities of the conditional mixture."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussmix import GaussianMixture, GaussianMixtureRegressor, Mixture

KINDS = ["full", "tied", "diag", "spherical"]


def curve(n, seed=0):
    """Return features of different sizes, one far from 0, and two targets that are not linear functions of them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)) * [1, 30, 0.1] + [0, 5000, 0]
    y = np.stack([np.abs(x[:, 0]) + (x[:, 1] - 5000) / 30, np.sin(x[:, 0]) + 3 * x[:, 2]], axis=1)
    return x, y + rng.normal(0, 0.1, y.shape)


def matrices(gm):
    """Return the covariance of each component, whatever the type."""
    k, d = gm.means.shape
    c = gm.covariances
    return {
        "full": lambda: c,
        "tied": lambda: np.repeat(c[np.newaxis], k, axis=0),
        "diag": lambda: c[:, :, np.newaxis] * np.eye(d),
        "spherical": lambda: c[:, np.newaxis, np.newaxis] * np.eye(d),
    }[gm.covariance_type]()


def conditional(gm, x, columns, targets):
    """Return the weights, means and covariances of the targets given the values of some columns: the textbook's formulas, row by row."""
    terms, means, covariances = [], [], []
    for weight, mean, sigma in zip(gm.weights, gm.means, matrices(gm), strict=True):
        of_x, across, of_y = (sigma[np.ix_(a, b)] for a, b in ((columns, columns), (targets, columns), (targets, targets)))
        density = multivariate_normal(mean[columns], of_x).logpdf(x) if columns else 0.0
        terms.append(np.log(weight) + density)
        slope = across @ np.linalg.inv(of_x) if columns else across
        means.append(mean[targets] + (slope @ (x - mean[columns]) if columns else 0.0))
        covariances.append(of_y - slope @ across.T)
    return np.exp(terms - logsumexp(terms)), np.array(means), np.array(covariances)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("targets", [1, 2])
def test_predictions_are_those_of_the_conditional_mixture(kind, targets):
    x, y = curve(400)
    y = y[:, 0] if targets == 1 else y
    regressor = GaussianMixtureRegressor(3, covariance_type=kind, random_state=0, standardize=False).fit(x, y)
    alone = GaussianMixture(3, covariance_type=kind, random_state=0).fit(np.column_stack([x, y]))
    gm = regressor.mixture_
    assert gm == alone.mixture_ and regressor.n_iter_ == alone.n_iter_
    x = x[:50]
    found, (again, std), (and_again, cov) = (
        regressor.predict(x),
        regressor.predict(x, return_std=True),
        regressor.predict(x, return_cov=True),
    )
    assert found.shape == std.shape == (y[:50]).shape and cov.shape == (50, targets, targets)
    assert np.array_equal(found, again) and np.array_equal(found, and_again)
    wanted = list(range(3, 3 + targets))
    for row, mean, deviation, covariance in zip(x, found.reshape(50, -1), std.reshape(50, -1), cov, strict=True):
        shares, means, covariances = conditional(gm, row, [0, 1, 2], wanted)
        expected = shares @ means
        second = np.einsum("k,kij->ij", shares, covariances + means[:, :, np.newaxis] * means[:, np.newaxis])
        np.testing.assert_allclose(mean, expected, rtol=1e-10, atol=1e-10)
        # The textbook's second moments lose digits if the mean is large relative to the deviation: here at most 10 times as large.
        np.testing.assert_allclose(covariance, second - np.outer(expected, expected), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(deviation, np.sqrt(np.diagonal(covariance)), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_density_is_joint_minus_marginal_and_that_of_the_components(kind):
    x, y = curve(300, seed=1)
    regressor = GaussianMixtureRegressor(3, covariance_type=kind, random_state=0).fit(x, y)
    gm, c = regressor.mixture_, matrices(regressor.mixture_)
    marginal = Mixture(gm.weights, gm.means[:, :3], c[:, :3, :3], covariance_type="full")
    found = regressor.log_prob(x, y)
    expected = gm.score_samples(np.column_stack([x, y])) - marginal.score_samples(x)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    for row, target, value in zip(x[:20], y, found, strict=False):
        shares, means, covariances = conditional(gm, row, [0, 1, 2], [3, 4])
        terms = [multivariate_normal(m, s).logpdf(target) for m, s in zip(means, covariances, strict=True)]
        np.testing.assert_allclose(value, logsumexp(terms, b=shares), rtol=1e-9, atol=1e-9)


def test_it_agrees_with_gmr():
    gmr = pytest.importorskip("gmr", reason="gmr is not installed; the formulas are tested above")
    x, y = curve(1000, seed=2)
    regressor = GaussianMixtureRegressor(4, random_state=0).fit(x, y)
    gm = regressor.mixture_
    other = gmr.GMM(4, priors=gm.weights, means=gm.means, covariances=gm.covariances)
    np.testing.assert_allclose(regressor.predict(x), other.predict(np.arange(3), x), rtol=1e-10, atol=1e-10)


def test_one_component_is_linear_regression():
    x, y = curve(500)
    ours, theirs = GaussianMixtureRegressor(reg_covar=0).fit(x, y), LinearRegression().fit(x, y)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.score(x, y), theirs.score(x, y), rtol=1e-9)
    _, std = ours.predict(x[:1], return_std=True)
    np.testing.assert_allclose(std[0], np.sqrt(np.mean((y - theirs.predict(x)) ** 2, axis=0)), rtol=1e-9)


def test_draws_have_the_conditional_distribution():
    x, y = curve(2000, seed=3)
    regressor = GaussianMixtureRegressor(4, random_state=0).fit(x, y)
    draws = regressor.sample_y(x[:3], 40_000, random_state=1)
    mean, cov = regressor.predict(x[:3], return_cov=True)
    assert draws.shape == (3, 2, 40_000)
    for row in range(3):
        # Five standard errors of means, and a bound on those of covariances of such mixtures.
        error = 5 * np.sqrt(np.diagonal(cov[row]) / 40_000)
        assert (np.abs(draws[row].mean(axis=1) - mean[row]) < error).all()
        scale = np.sqrt(np.outer(np.diagonal(cov[row]), np.diagonal(cov[row])))
        assert (np.abs(np.cov(draws[row]) - cov[row]) < 0.1 * scale).all()
    assert np.array_equal(draws, regressor.sample_y(x[:3], 40_000, random_state=1))
    one = GaussianMixtureRegressor(4, random_state=0).fit(x, y[:, 0])
    assert one.sample_y(x[:5], 7).shape == (5, 7) and one.sample_y(x[:5]).shape == (5, 1)


def test_the_density_integrates_to_one():
    x, y = curve(1000, seed=4)
    regressor = GaussianMixtureRegressor(3, covariance_type="tied", random_state=0).fit(x, y[:, 1])
    grid = np.linspace(-8, 8, 20_001)
    density = np.exp(regressor.log_prob(np.repeat(x[:1], len(grid), axis=0), grid))
    # The trapezoidal rule for smooth functions that vanish at both ends.
    assert abs(np.trapezoid(density, grid) - 1) < 1e-10


@pytest.mark.parametrize("n_jobs", [None, 1, 2])
def test_blocks_of_rows_and_threads_make_no_difference(n_jobs):
    x, y = curve(1000)
    regressor = GaussianMixtureRegressor(3, random_state=0).fit(x, y)

    def everything(rows):
        mean, std = regressor.predict(x[rows], return_std=True)
        return mean, std, regressor.predict(x[rows], return_cov=True)[1], regressor.log_prob(x[rows], y[rows])

    whole = everything(slice(None))
    regressor.set_params(n_jobs=n_jobs)
    parts = [np.concatenate(part) for part in zip(*(everything(slice(i, i + 77)) for i in range(0, 1000, 77)), strict=True)]
    for a, b in zip(whole, parts, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_values(kind):
    x, y = curve(400, seed=5)
    rng = np.random.default_rng(6)
    gaps, no_target = rng.random(x.shape) < 0.3, rng.random(400) < 0.2
    # A row without known values, and one with all values known.
    gaps[5], gaps[6] = True, False
    with_gaps, targets = np.where(gaps, np.nan, x), np.where(no_target, np.nan, y[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        params = {"covariance_type": kind, "missing": True, "random_state": 0, "standardize": False}
        regressor = GaussianMixtureRegressor(2, **params).fit(with_gaps, targets)
        gm = GaussianMixture(2, **params).fit(np.column_stack([with_gaps, targets])).mixture_
    assert regressor.mixture_ == gm
    mean, std = regressor.predict(with_gaps, return_std=True)
    log_prob = regressor.log_prob(with_gaps, y[:, 0])
    for i in range(60):
        columns = np.flatnonzero(~gaps[i]).tolist()
        shares, means, covariances = conditional(gm, x[i][columns], columns, [3])
        np.testing.assert_allclose(mean[i], (shares @ means)[0], rtol=1e-10, atol=1e-10)
        variance = shares @ (covariances[:, 0, 0] + (means[:, 0] - mean[i]) ** 2)
        np.testing.assert_allclose(std[i], np.sqrt(variance), rtol=1e-9)
        terms = norm.logpdf(y[i, 0], means[:, 0], np.sqrt(covariances[:, 0, 0]))
        np.testing.assert_allclose(log_prob[i], logsumexp(terms, b=shares), rtol=1e-9, atol=1e-9)
    assert regressor.sample_y(with_gaps, 2).shape == (400, 2)
    # A missing target has no log density.
    assert regressor.log_prob(with_gaps[:1], [np.nan])[0] == 0
    with pytest.raises(ValueError, match="Input X contains NaN"):
        GaussianMixtureRegressor().fit(with_gaps, y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        GaussianMixtureRegressor().fit(x, targets)


def test_float32_stays_float32():
    x, y = curve(500)
    x = x - [0, 5000, 0]
    wide = GaussianMixtureRegressor(2, random_state=0, tol=1e-8, max_iter=500).fit(x, y)
    narrow = GaussianMixtureRegressor(2, random_state=0, tol=1e-8, max_iter=500).fit(x.astype(np.float32), y)
    mean, std = narrow.predict(x.astype(np.float32), return_std=True)
    assert mean.dtype == std.dtype == np.float32
    # Both have converged; the data has 7 digits.
    np.testing.assert_allclose(mean, wide.predict(x), rtol=1e-2, atol=1e-2)
    assert narrow.log_prob(x.astype(np.float32), y).dtype == np.float64


def test_pipeline_grid_search_names_and_pickles():
    pandas = pytest.importorskip("pandas")
    x, y = curve(600)
    x = pandas.DataFrame(x, columns=["a", "b", "c"])
    regressor = GaussianMixtureRegressor(3, random_state=0).fit(x, pandas.DataFrame(y))
    assert list(regressor.feature_names_in_) == ["a", "b", "c"] and regressor.n_targets_ == 2
    assert np.array_equal(pickle.loads(pickle.dumps(regressor)).predict(x), regressor.predict(x))
    pipe = make_pipeline(StandardScaler(), GaussianMixtureRegressor(random_state=0))
    search = GridSearchCV(pipe, {"gaussianmixtureregressor__n_components": [1, 2, 4]}, cv=3).fit(x, y[:, 0])
    # |x| is not a linear function.
    assert search.best_params_["gaussianmixtureregressor__n_components"] > 1 and search.best_score_ > 0.9
    assert cross_val_score(pipe, x, y[:, 0], cv=3).mean() < search.best_score_ - 0.1


def test_the_start_of_features_and_targets_is_used():
    x, y = curve(500)
    both = np.column_stack([x, y])
    means = both[[3, 200]]
    regressor = GaussianMixtureRegressor(2, means_init=means, freeze=["means"], random_state=0).fit(x, y)
    np.testing.assert_allclose(regressor.mixture_.means, means)
    warm = GaussianMixtureRegressor(2, random_state=0, warm_start=True, tol=1e-6, max_iter=1000).fit(x, y)
    assert warm.fit(x, y).n_iter_ <= 2


def test_what_is_not_finite_is_refused_wherever_it_is():
    x, y = curve(100)
    plain, missing = GaussianMixtureRegressor(2).fit(x, y), GaussianMixtureRegressor(2, missing=True).fit(x, y)
    x[93, 1] = np.inf
    for regressor in (plain, missing):
        for call in (regressor.predict, regressor.sample_y, lambda x: regressor.log_prob(x, y)):  # noqa: B023
            with pytest.raises(ValueError, match="Input X contains infinity"):
                call(x)
    x[93, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        plain.predict(x)
    assert np.isfinite(missing.predict(x)).all()


def test_a_mixture_that_is_changed_counts():
    x, y = curve(100)
    regressor = GaussianMixtureRegressor(2, random_state=0).fit(x, y)
    before = regressor.predict(x)
    mixture = regressor.mixture_
    regressor.mixture_ = Mixture(mixture.weights, mixture.means + np.eye(5)[4], mixture.covariances)
    # The second target is higher by one.
    np.testing.assert_allclose(regressor.predict(x), before + [0, 1], rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r, x, y: r.predict(x, return_std=True, return_cov=True), "At most one"),
        (lambda r, x, y: r.log_prob(x, y[:, 0]), "y has 1 targets, but GaussianMixtureRegressor was fitted to 2"),
        (lambda r, x, y: r.log_prob(x, y[:-1]), "inconsistent numbers of samples"),
        (lambda r, x, y: r.fit(x, None), "requires y to be passed"),
        (lambda r, x, y: r.predict(x[:, :2]), "X has 2 features, but GaussianMixtureRegressor is expecting 3"),
        (lambda r, x, y: r.set_params(n_components=0).fit(x, y), "n_components"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    x, y = curve(100)
    with pytest.raises(ValueError, match=message):
        call(GaussianMixtureRegressor(2, random_state=0).fit(x, y), x, y)
    with pytest.raises(TypeError, match="unexpected keyword argument 'decay'"):
        GaussianMixtureRegressor(decay=0.7)
