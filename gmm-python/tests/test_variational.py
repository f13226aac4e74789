"""Variational inference beside scikit-learn's, and its additional features."""

import copy
import pickle
import sys
import warnings

import numpy as np
import pytest
import sklearn.mixture
from scipy.special import betaln, gammaln
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture as ScikitLearn

import gaussmix
from gaussmix import BayesianGaussianMixture, _start

TYPES = ["full", "tied", "diag", "spherical"]
PRIORS = ["dirichlet_process", "dirichlet_distribution"]
ARRAYS = [
    "weights_",
    "means_",
    "covariances_",
    "precisions_",
    "precisions_cholesky_",
    "mean_precision_",
    "degrees_of_freedom_",
    "mean_prior_",
    "covariance_prior_",
]
NUMBERS = ["weight_concentration_prior_", "mean_precision_prior_", "degrees_of_freedom_prior_"]


def clouds(seed, n=None, d=None):
    """Return Gaussian clouds, more or less apart, in any units."""
    rng = np.random.default_rng(seed)
    n, d = n or int(rng.integers(60, 400)), d or int(rng.integers(1, 6))
    k = int(rng.integers(1, 6))
    centres = rng.normal(scale=rng.uniform(1, 8), size=(k, d))
    mixing = rng.normal(size=(k, d, d)) / np.sqrt(d) + np.eye(d)
    labels = rng.integers(k, size=n)
    x = centres[labels] + np.einsum("nij,nj->ni", mixing[labels], rng.normal(size=(n, d)))
    return x * 10.0 ** rng.uniform(-1, 1) + rng.normal(size=d)


def assert_agree(ours, theirs, rtol=1e-8):
    # The bound; the two sum in a different order, so the last digits differ.
    for name in ARRAYS:
        one, other = getattr(ours, name), getattr(theirs, name)
        assert np.shape(one) == np.shape(other), name
        scale = np.abs(other).max()
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * scale, err_msg=name)
    for name in NUMBERS:
        assert getattr(ours, name) == getattr(theirs, name), name
    assert type(ours.weight_concentration_) is type(theirs.weight_concentration_)
    np.testing.assert_allclose(ours.weight_concentration_, theirs.weight_concentration_, rtol=rtol)
    assert (ours.n_iter_, ours.converged_) == (theirs.n_iter_, theirs.converged_)
    # scikit-learn's bounds are arrays of one number for tied covariances.
    np.testing.assert_allclose(ours.lower_bounds_, np.ravel(theirs.lower_bounds_), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(ours.lower_bound_, np.ravel(theirs.lower_bound_)[0], rtol=rtol, atol=rtol)


def both(params, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return BayesianGaussianMixture(**params).fit(x), ScikitLearn(**params).fit(x)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("prior", PRIORS)
def test_the_same_random_state_finds_the_same_posterior(prior, covariance_type, seed):
    x = clouds(seed)
    params = dict(
        n_components=2 + seed % 5,
        covariance_type=covariance_type,
        weight_concentration_prior_type=prior,
        weight_concentration_prior=[None, 1e-3, 10.0][seed % 3],
        init_params=["kmeans", "random"][seed % 4 == 3],
        random_state=seed,
        max_iter=300,
    )
    if seed % 5 == 4:
        d = x.shape[1]
        prior_covariance = {"full": 2 * np.eye(d), "tied": 2 * np.eye(d), "diag": np.full(d, 2.0), "spherical": 2.0}
        params |= dict(
            mean_prior=np.arange(d) + 0.5,
            mean_precision_prior=0.3,
            degrees_of_freedom_prior=d + 1.5,
            covariance_prior=prior_covariance[covariance_type],
        )
    ours, theirs = both(params, x)
    assert_agree(ours, theirs)
    np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-8)
    np.testing.assert_allclose(ours.score_samples(x), theirs.score_samples(x), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.score(x), theirs.score(x), rtol=1e-9, atol=1e-9)
    for one, other in zip(ours.sample(20), theirs.sample(20)):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * np.abs(x).max())


@pytest.mark.parametrize("init_params", ["k-means++", "random_from_data"])
@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_starts_at_single_samples(covariance_type, init_params):
    x = clouds(3, 200, 2)
    params = dict(n_components=4, covariance_type=covariance_type, init_params=init_params, random_state=1, max_iter=300)
    assert_agree(*both(params, x))


@pytest.mark.parametrize("covariance_type", TYPES)
def test_several_runs_and_warm_starts(covariance_type):
    x = clouds(5, 150, 2)
    params = dict(n_components=5, covariance_type=covariance_type, n_init=3, init_params="random", random_state=2)
    ours, theirs = both(params | dict(max_iter=20), x)
    assert_agree(ours, theirs)
    ours, theirs = both(params | dict(max_iter=3, warm_start=True), x)
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            ours.fit(x), theirs.fit(x)
        assert_agree(ours, theirs)
    none = BayesianGaussianMixture(n_components=2, max_iter=0).fit(x)
    assert (none.n_iter_, none.lower_bounds_, none.lower_bound_) == (0, [], -np.inf)


@pytest.mark.parametrize("prior", PRIORS)
def test_elbo_has_all_constants(prior):
    """With one component, the bound is the evidence: its two parts have closed forms."""
    x = clouds(7, 90, 3)
    n, d = x.shape
    gm = BayesianGaussianMixture(weight_concentration_prior_type=prior, reg_covar=0.0).fit(x)

    def log_norm(nu, log_det, beta):
        """Return the logarithm of the integral of an unnormalised normal-Wishart density."""
        gammas = gammaln(0.5 * (nu - np.arange(d))).sum()
        return 0.5 * nu * (d * np.log(2) + log_det) + gammas - 0.5 * d * np.log(beta)

    log_det = -np.linalg.slogdet(gm.covariances_[0])[1] - d * np.log(gm.degrees_of_freedom_[0])
    log_det_prior = -np.linalg.slogdet(gm.covariance_prior_)[1]
    evidence = log_norm(gm.degrees_of_freedom_[0], log_det, gm.mean_precision_[0])
    evidence -= log_norm(gm.degrees_of_freedom_prior_, log_det_prior, gm.mean_precision_prior_)
    evidence -= 0.5 * n * d * np.log(2 * np.pi)
    if prior == "dirichlet_process":
        # The rest of the stick belongs to components that are cut off.
        evidence += betaln(1 + n, 1.0) - betaln(1.0, 1.0)
    np.testing.assert_allclose(gm.elbo_, evidence, rtol=1e-12)


def test_weights_missing_values_and_float32():
    x = clouds(9, 300, 3)
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 3, size=len(x)).astype(float)
    params = dict(n_components=4, random_state=0, max_iter=500, init_params="kmeans")
    weighted = BayesianGaussianMixture(**params).fit(x, sample_weight=weights)
    repeated = np.repeat(x, weights.astype(int), axis=0)
    np.testing.assert_allclose(weighted.mean_prior_, repeated.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(weighted.covariance_prior_, np.cov(repeated.T), rtol=1e-12)
    np.testing.assert_allclose(weighted.mean_precision_.sum(), weights.sum() + 4, rtol=1e-12)
    narrow = BayesianGaussianMixture(**params).fit(x.astype(np.float32))
    wide = BayesianGaussianMixture(**params).fit(x.astype(np.float32).astype(np.float64))
    assert narrow.score_samples(x.astype(np.float32)).dtype in (np.float32, np.float64)
    np.testing.assert_allclose(narrow.score(x), wide.score(x), rtol=1e-3)
    holes = np.where(rng.uniform(size=x.shape) < 0.2, np.nan, x)
    holes[:, 0] = x[:, 0]
    with pytest.raises(ValueError, match="NaN"):
        BayesianGaussianMixture(**params).fit(holes)
    missing = BayesianGaussianMixture(**params, missing=True, reg_covar=0.0).fit(holes)
    assert np.all(np.diff(missing.lower_bounds_) > -1e-7)
    assert missing.impute(holes).shape == x.shape and np.isfinite(missing.score(holes))
    complete = BayesianGaussianMixture(**params, missing=True).fit(x)
    np.testing.assert_allclose(complete.means_, BayesianGaussianMixture(**params).fit(x).means_, rtol=1e-8)


def test_many_samples_start_with_the_engine():
    x = np.concatenate([clouds(1, 70_000, 2), clouds(2, 70_000, 2) + 60.0])
    gm = BayesianGaussianMixture(n_components=8, covariance_type="diag", random_state=0, max_iter=50, tol=1e3)
    assert not _start.is_of_scikit_learn(x.shape, gm)
    gm.fit(x)
    assert np.all(np.diff(gm.lower_bounds_) >= -1e-3) and gm.converged_
    again = BayesianGaussianMixture(n_components=8, covariance_type="diag", random_state=0, max_iter=50, tol=1e3).fit(x)
    np.testing.assert_array_equal(gm.means_, again.means_)


@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_the_start_of_a_long_column_is_scikit_learns():
    # Ages: 74 values, at which fits end in many optima.
    x = np.clip(17 + np.random.default_rng(0).gamma(3.0, 7.5, (20_000, 1)), 17, 90).round()
    params = {"n_components": 5, "weight_concentration_prior": 1e-3, "random_state": 0, "max_iter": 10}
    ours, theirs = (kind(**params).fit(x) for kind in (BayesianGaussianMixture, ScikitLearn))
    np.testing.assert_allclose(ours.means_, theirs.means_, rtol=1e-8)
    np.testing.assert_allclose(ours.covariances_, theirs.covariances_, rtol=1e-8)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("covariance_type", TYPES)
def test_other_forms(prior, covariance_type, tmp_path):
    x = clouds(4, 120, 2)
    params = dict(covariance_type=covariance_type, weight_concentration_prior_type=prior)
    gm = BayesianGaussianMixture(n_components=3, **params, random_state=0, tol=1e-2).fit(x)
    scores = gm.score_samples(x)
    others = [pickle.loads(pickle.dumps(gm)), copy.deepcopy(gm)]
    for name in ("model.json", "model.npz"):
        gm.save(tmp_path / name)
        others.append(BayesianGaussianMixture.load(tmp_path / name, random_state=0))
        # Other programs read the mixture of the posterior means.
        mean = gaussmix.GaussianMixture.load(tmp_path / name)
        np.testing.assert_array_equal(mean.covariances_, gm.covariances_)
        np.testing.assert_array_equal(mean.weights_, gm.weights_)
    theirs = gm.to_sklearn()
    assert type(theirs) is ScikitLearn
    np.testing.assert_allclose(theirs.score_samples(x), scores, rtol=1e-10)
    others.append(BayesianGaussianMixture.from_sklearn(theirs))
    for other in others:
        assert_agree(other, gm, rtol=0)
        np.testing.assert_array_equal(other.score_samples(x), scores)
        np.testing.assert_array_equal(other.predict(x), gm.predict(x))
        assert other.elbo_ == gm.elbo_
    assert clone(gm).get_params() == gm.get_params()
    gaussmix.GaussianMixture(n_components=2).fit(x).save(tmp_path / "em.json")
    with pytest.raises(ValueError, match="without a posterior"):
        BayesianGaussianMixture.load(tmp_path / "em.json")


def test_attributes_set_by_hand_count():
    x = clouds(2, 100, 2)
    gm = BayesianGaussianMixture(n_components=2, random_state=0, tol=1e-2).fit(x)
    theirs = gm.to_sklearn()
    for one in (gm, theirs):
        one.means_ = one.means_ + 0.25
        one.mean_precision_ = one.mean_precision_ * 2
        one.weight_concentration_ = (one.weight_concentration_[0] + 3, one.weight_concentration_[1])
    np.testing.assert_allclose(gm.score_samples(x), theirs.score_samples(x), rtol=1e-9)


def test_a_callback_sees_iterations_and_ends_the_fit():
    x = clouds(6, 150, 2)
    seen = []

    def callback(iteration):
        seen.append(iteration)
        return iteration.iteration == 4

    gm = BayesianGaussianMixture(n_components=3, tol=0.0, random_state=0, callback=callback).fit(x)
    assert gm.n_iter_ == 4 and [i.iteration for i in seen] == [1, 2, 3, 4]
    assert [i.lower_bound for i in seen] == gm.lower_bounds_
    np.testing.assert_array_equal(seen[-1].mixture.means, gm.means_)

    def failing(iteration):
        raise KeyError("callback")

    with pytest.raises(KeyError, match="callback"):
        BayesianGaussianMixture(n_components=3, callback=failing).fit(x)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (dict(degrees_of_freedom_prior=1.0), "should be greater than 1, but got 1.000"),
        (dict(mean_prior=[1.0]), "The parameter 'means' should have the shape of"),
        (dict(covariance_prior=np.eye(3)), "'full covariance_prior' should have the shape of"),
        (dict(covariance_prior=-np.eye(2)), "symmetric, positive-definite"),
        (dict(covariance_type="diag", covariance_prior=[1.0, -1.0]), "'diag precision' should be positive"),
        (dict(covariance_type="spherical", covariance_prior=[1.0, 1.0]), "one number"),
        (dict(weight_concentration_prior=0.0), "weight_concentration_prior"),
        (dict(weight_concentration_prior_type="none"), "weight_concentration_prior_type"),
        (dict(n_components=31), "n_samples >= n_components"),
    ],
)
def test_what_cannot_be_is_an_error(params, message):
    with pytest.raises(ValueError, match=message):
        BayesianGaussianMixture(**params).fit(clouds(0, 30, 2))


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("covariance_type", TYPES)
def test_partial_fit_learns_the_posterior(covariance_type, prior):
    x = np.random.default_rng(1).permutation(np.concatenate([clouds(1, 1500, 2), clouds(2, 1500, 2) + 60.0]))
    params = dict(
        n_components=4, covariance_type=covariance_type, weight_concentration_prior_type=prior, random_state=0
    )
    params |= dict(tol=1e-6, max_iter=1000)
    whole = BayesianGaussianMixture(**params).fit(x)
    given = dict(mean_prior=whole.mean_prior_, covariance_prior=whole.covariance_prior_)
    one = BayesianGaussianMixture(**params, **given)
    all_known = BayesianGaussianMixture(**params, **given, total_samples=len(x))
    for chunk in np.split(x, 10):
        assert one.partial_fit(chunk) is one
        all_known.partial_fit(chunk)
    for gm in (one, all_known):
        np.testing.assert_allclose(gm.mean_precision_.sum(), len(x) + 4, rtol=1e-12)
        # The last chunks weigh most: a quarter of the samples.
        np.testing.assert_allclose(gm.score(x), whole.score(x), atol=0.1)
        assert gm.n_iter_ == len(gm.lower_bounds_) > 10 and np.isfinite(gm.elbo_)
    again = pickle.loads(pickle.dumps(one)).partial_fit(chunk)
    np.testing.assert_array_equal(again.means_, one.partial_fit(chunk).means_)
    # One chunk of everything is one iteration from the present mixture.
    step, fit = copy.deepcopy(whole), copy.deepcopy(whole)
    step.partial_fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit.set_params(warm_start=True, max_iter=1, tol=0.0).fit(x)
    # The statistics go through an average per sample.
    scale = np.abs(x).max() ** 2
    for name in ("means_", "covariances_", "weights_", "mean_precision_", "degrees_of_freedom_"):
        np.testing.assert_allclose(getattr(step, name), getattr(fit, name), rtol=1e-12, atol=1e-12 * scale, err_msg=name)
    np.testing.assert_allclose(step.lower_bound_, fit.lower_bound_, rtol=1e-10)
    with pytest.raises(AttributeError, match="partial_fit"):
        BayesianGaussianMixture(standardize=True).partial_fit(x)
    with pytest.raises(ValueError, match="total_samples"):
        BayesianGaussianMixture(total_samples=0.0).partial_fit(x)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_what_is_frozen_stays(covariance_type):
    x = clouds(5, 200, 2)
    params = dict(n_components=3, covariance_type=covariance_type, random_state=0)
    start = BayesianGaussianMixture(**params, max_iter=0).fit(x)
    for freeze in (["weights"], ["means"], ("covariances", "means")):
        gm = copy.deepcopy(start).set_params(freeze=freeze, warm_start=True, tol=0.0, max_iter=30)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            gm.fit(x)
        for name in ("weights", "means", "covariances"):
            same = np.array_equal(getattr(gm, name + "_"), getattr(start, name + "_"))
            assert same == (name in freeze), (freeze, name)
        # Rounding of a sum of some hundred terms.
        assert np.all(np.diff(gm.lower_bounds_) > -1e-8)
    with pytest.raises(ValueError, match="`precisions`: use weights"):
        BayesianGaussianMixture(freeze=["precisions"]).fit(x)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_standardize_makes_units_indifferent(covariance_type, prior):
    x = clouds(6, 250, 2)
    factors, places = np.array([1e-4, 30.0]), np.array([7.0, -1e3])
    params = dict(n_components=4, covariance_type=covariance_type, weight_concentration_prior_type=prior)
    params |= dict(random_state=0, standardize=True, tol=1e-2, max_iter=500)
    a, b = BayesianGaussianMixture(**params).fit(x), BayesianGaussianMixture(**params).fit(x * factors + places)
    # The offsets cost digits of the second one's values: 10⁻¹¹ of their deviations.
    np.testing.assert_allclose(b.means_, a.means_ * factors + places, rtol=1e-7)
    np.testing.assert_allclose(b.mean_prior_, (x * factors + places).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(b.elbo_ + len(x) * np.log(factors).sum(), a.elbo_, rtol=1e-7)
    np.testing.assert_array_equal(a.predict(x), b.predict(x * factors + places))
    assert a.n_iter_ == b.n_iter_
    # The bound is that of the units of the data.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        c = copy.deepcopy(b).set_params(warm_start=True, max_iter=1, reg_covar=0.0).fit(x * factors + places)
        d = copy.deepcopy(b).set_params(warm_start=True, max_iter=1, reg_covar=0.0, standardize=False)
        d.set_params(mean_prior=b.mean_prior_, covariance_prior=b.covariance_prior_).fit(x * factors + places)
        e = copy.deepcopy(d).set_params(standardize=True).fit(x * factors + places)
    np.testing.assert_allclose(c.lower_bound_, d.lower_bound_, rtol=1e-7)
    # Given priors are in these units too.
    np.testing.assert_allclose(e.mean_prior_, d.mean_prior_, rtol=1e-12)
    np.testing.assert_allclose(e.covariance_prior_, d.covariance_prior_, rtol=1e-12)
    with pytest.raises(ValueError, match="spherical"):
        BayesianGaussianMixture(covariance_type="spherical", standardize=True).fit(x)


def test_it_has_no_methods_that_it_cannot_have():
    gm = BayesianGaussianMixture()
    for name in ("bic", "aic", "from_parameters"):
        assert not hasattr(gm, name)


def test_patching_replaces_both_classes():
    x = clouds(8, 80, 2)
    before = ScikitLearn(n_components=2, random_state=0).fit(x)
    module = sys.modules[__name__]
    assert module.ScikitLearn is sklearn.mixture.BayesianGaussianMixture
    gaussmix.patch_sklearn()
    try:
        patched = sklearn.mixture.BayesianGaussianMixture
        assert issubclass(patched, BayesianGaussianMixture)
        gm = patched(n_components=2, random_state=0).fit(x)
        np.testing.assert_allclose(gm.means_, before.means_, rtol=1e-8)
        assert isinstance(before, patched) and isinstance(BayesianGaussianMixture(), patched)
        assert isinstance(gm, ScikitLearn) and not isinstance(gm, sklearn.mixture.GaussianMixture)
        assert repr(gm).startswith("BayesianGaussianMixture(")
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(gm)).means_, gm.means_)
    finally:
        gaussmix.unpatch_sklearn()
    assert sklearn.mixture.BayesianGaussianMixture is ScikitLearn
