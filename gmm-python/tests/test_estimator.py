"""The estimator beside scikit-learn's, and its additional features."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.mixture import GaussianMixture as ScikitLearn
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussmix import GaussianMixture, GaussianMixtureClassifier, GaussianMixtureOutlierDetector, GaussianMixtureRegressor, _start

TYPES = ["full", "tied", "diag", "spherical"]
ARRAYS = ["weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_"]


def clouds(n=600, d=3, k=4, seed=0):
    """Well separated Gaussian clouds (n, d)."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=6.0, size=(k, d))
    mixing = rng.normal(size=(k, d, d)) / np.sqrt(d) + np.eye(d)
    labels = rng.integers(k, size=n)
    return centres[labels] + np.einsum("nij,nj->ni", mixing[labels], rng.normal(size=(n, d)))


def assert_agree(ours, theirs, rtol=1e-8):
    # The bound; the two sum in a different order, so the last digits differ.
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=rtol, atol=rtol, err_msg=name)
    assert ours.n_iter_ == theirs.n_iter_ and ours.converged_ == theirs.converged_
    if hasattr(theirs, "lower_bounds_"):  # scikit-learn 1.6 has none
        np.testing.assert_allclose(ours.lower_bounds_, theirs.lower_bounds_, rtol=rtol)
    np.testing.assert_allclose(ours.lower_bound_, theirs.lower_bound_, rtol=rtol)


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("init_params", ["kmeans", "k-means++", "random", "random_from_data"])
def test_the_same_random_state_finds_the_same_mixture(covariance_type, init_params):
    if init_params in ("k-means++", "random_from_data") and covariance_type in ("diag", "spherical"):
        pytest.skip("scikit-learn's own E-step loses half of its digits at this start: see the next test")
    x = clouds()
    # From other random starts a component collapses onto a few samples, and both lose six digits of its covariance.
    params = dict(n_components=4, covariance_type=covariance_type, init_params=init_params, random_state=4, max_iter=500)
    ours, theirs = GaussianMixture(**params).fit(x), ScikitLearn(**params).fit(x)
    assert_agree(ours, theirs)
    np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-8)
    np.testing.assert_allclose(ours.score_samples(x), theirs.score_samples(x), rtol=1e-8)
    for name in ("score", "aic", "bic"):
        value = getattr(ours, name)(x)
        assert isinstance(value, float)
        np.testing.assert_allclose(value, getattr(theirs, name)(x), rtol=1e-10)
    for one, other in zip(ours.sample(50), theirs.sample(50)):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("covariance_type", ["diag", "spherical"])
def test_the_first_bound_of_narrow_components_is_more_exact_than_scikit_learns(covariance_type):
    x = clouds(200)
    params = dict(n_components=3, covariance_type=covariance_type, init_params="random_from_data", random_state=0)
    ours = GaussianMixture(**params).fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        exact = GaussianMixture(**params, device="reference", max_iter=1).fit(x)
        theirs = ScikitLearn(**params, max_iter=1).fit(x)
    # Against float64 with compensated sums; scikit-learn expands (x − μ)², whose terms are 10⁸ here.
    np.testing.assert_allclose(ours.lower_bounds_[0], exact.lower_bounds_[0], rtol=1e-13)
    np.testing.assert_allclose(ours.lower_bounds_[0], theirs.lower_bound_, rtol=1e-6)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_given_starts_find_the_same_mixture(covariance_type):
    x = clouds()
    start = ScikitLearn(4, covariance_type=covariance_type, random_state=1, max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        start.fit(x)
    for given in (["weights", "means", "precisions"], ["means"], ["weights", "precisions"]):
        params = {f"{name}_init": getattr(start, f"{name}_") for name in given}
        params.update(n_components=4, covariance_type=covariance_type, random_state=1, tol=1e-5, max_iter=500)
        assert_agree(GaussianMixture(**params).fit(x), ScikitLearn(**params).fit(x))


def test_warm_start_goes_on():
    x = clouds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = [c(4, random_state=0, warm_start=True, max_iter=2).fit(x).fit(x) for c in (GaussianMixture, ScikitLearn)]
    assert_agree(*fits)


def test_a_large_start_is_the_engines_and_reproducible():
    x = clouds(_start.SCIKIT_LEARN_START + 1)
    fits = [GaussianMixture(4, random_state=5).fit(x) for _ in range(2)]
    assert all((getattr(fits[0], name) == getattr(fits[1], name)).all() for name in ARRAYS)
    # As good a maximum as scikit-learn's, up to the tolerance.
    assert fits[0].lower_bound_ > ScikitLearn(4, random_state=5).fit(x).lower_bound_ - 1e-3


@pytest.mark.parametrize("covariance_type", TYPES)
def test_integer_weights_count_as_copies(covariance_type):
    x = clouds(200)
    weights = np.random.default_rng(1).integers(0, 4, size=len(x))
    start = GaussianMixture(4, covariance_type=covariance_type, random_state=0).fit(x)
    params = dict(
        n_components=4, covariance_type=covariance_type, weights_init=start.weights_, means_init=start.means_,
        precisions_init=start.precisions_, max_iter=300, tol=1e-6,
    )
    weighted = GaussianMixture(**params).fit(x, sample_weight=weights)
    repeated = GaussianMixture(**params).fit(np.repeat(x, weights, axis=0))
    assert_agree(weighted, repeated)
    np.testing.assert_allclose(weighted.score(x, sample_weight=weights), repeated.score(np.repeat(x, weights, axis=0)))
    np.testing.assert_allclose(weighted.bic(x, weights), repeated.bic(np.repeat(x, weights, axis=0)))


def test_float32_stays_float32():
    # Clouds whose condition numbers are below 100.
    x = clouds(seed=2).astype(np.float32)
    gm = GaussianMixture(4, random_state=0).fit(x)
    assert {getattr(gm, name).dtype for name in ARRAYS} == {np.dtype(np.float32)}
    assert gm.score_samples(x).dtype == gm.predict_proba(x).dtype == np.float32
    wide = GaussianMixture(4, random_state=0).fit(x.astype(np.float64))
    # Parameters in float32 of an E-step in float32.
    np.testing.assert_allclose(gm.means_, wide.means_, rtol=1e-4, atol=1e-4)


def test_partial_fit_learns_the_mixture():
    x = clouds(20_000)
    whole = GaussianMixture(4, random_state=0).fit(x)
    # It must not depend on the start, so the start is the same.
    gm = GaussianMixture(4, random_state=0, means_init=whole.means_)
    for chunk in np.split(x, 20):
        gm.partial_fit(chunk)
    # The statistics of 10 to 20 chunks of 1000 samples count.
    np.testing.assert_allclose(gm.means_, whole.means_, atol=0.15)
    assert gm.n_iter_ == len(gm.lower_bounds_) and gm.score(x) > whole.score(x) - 0.02
    again = pickle.loads(pickle.dumps(gm)).partial_fit(chunk)
    np.testing.assert_array_equal(again.means_, gm.partial_fit(chunk).means_)
    with pytest.raises(AttributeError, match="partial_fit"):
        GaussianMixture(standardize=True).partial_fit(chunk)


def test_frozen_parameters_stay():
    x = clouds()
    means = x[:4]
    gm = GaussianMixture(4, means_init=means, freeze=["means"], random_state=0, max_iter=300).fit(x)
    np.testing.assert_array_equal(gm.means_, means)
    with pytest.raises(ValueError, match="`mean`: use weights"):
        GaussianMixture(freeze=["mean"]).fit(x)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_standardizing_is_scaling_before_and_after(covariance_type):
    x = clouds() * [1e-3, 1.0, 1e4] + [0.0, 5.0, 1e6]
    scaler = StandardScaler().fit(x)
    params = dict(n_components=4, covariance_type=covariance_type, random_state=0, max_iter=300)
    ours = GaussianMixture(**params, standardize=True).fit(x)
    inner = GaussianMixture(**params).fit(scaler.transform(x))
    # Both standardise, with different rounding.
    np.testing.assert_allclose(scaler.transform(ours.means_), inner.means_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(ours.score(x), inner.score(scaler.transform(x)) - np.log(scaler.scale_).sum(), rtol=1e-8)
    np.testing.assert_allclose(ours.lower_bound_, ours.score(x), atol=1e-2)
    with pytest.raises(ValueError, match="spherical"):
        GaussianMixture(covariance_type="spherical", standardize=True).fit(x)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_files_and_other_objects_keep_the_bits(covariance_type, tmp_path):
    x = clouds()
    gm = GaussianMixture(4, covariance_type=covariance_type, random_state=0).fit(x)
    copies = [pickle.loads(pickle.dumps(gm)), copy.deepcopy(gm)]
    copies.append(GaussianMixture.from_parameters(
        gm.weights_, gm.means_, gm.covariances_, covariance_type=covariance_type
    ))
    copies.append(GaussianMixture.from_sklearn(gm.to_sklearn()))
    for name in ("model.json", "model.npz"):
        gm.save(tmp_path / name)
        copies.append(GaussianMixture.load(tmp_path / name))
        assert copies[-1].lower_bounds_ == gm.lower_bounds_ and copies[-1].converged_
    for other in copies:
        assert all((getattr(gm, name) == getattr(other, name)).all() for name in ARRAYS)
        np.testing.assert_array_equal(other.score_samples(x), gm.score_samples(x))
    np.testing.assert_allclose(gm.to_sklearn().score_samples(x), gm.score_samples(x), rtol=1e-10)
    with pytest.raises(OSError, match="none.json"):
        GaussianMixture.load(tmp_path / "none.json")
    with pytest.raises(ValueError, match="json or .npz"):
        gm.save(tmp_path / "model.txt")


def test_attributes_that_are_set_by_hand_count():
    x = clouds()
    gm = GaussianMixture(4, covariance_type="diag", random_state=0).fit(x)
    theirs = gm.to_sklearn()
    for mixture in (gm, theirs):
        mixture.means_ = mixture.means_ + 0.5
        mixture.precisions_cholesky_[0] *= 2.0
    np.testing.assert_allclose(gm.score_samples(x), theirs.score_samples(x), rtol=1e-9)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_collapsing_components_are_retained_before_they_do_harm(covariance_type):
    retained = refused = 0
    for seed in range(60):
        r = np.random.default_rng(seed)
        x = np.r_[r.normal(0, 1, (30, 2)), np.repeat(r.normal(0, 1, (3, 2)), 4, 0)]
        gm = GaussianMixture(6, covariance_type=covariance_type, reg_covar=0, random_state=seed, max_iter=300)
        try:
            gm.fit(x)
        except ValueError as error:
            # The start has a cluster of one or two points, without an earlier covariance.
            assert "ill-defined empirical covariance" in str(error)
            refused += 1
            continue
        # Some hundred roundings of a bound of about one.
        assert np.diff(gm.lower_bounds_).min(initial=0) > -1e-12, seed
        retained += bool(gm.retained_)
        if covariance_type in ("full", "tied"):
            assert (np.linalg.eigvalsh(gm.covariances_)[..., 0] > 0).all(), seed
        else:
            assert (gm.covariances_ > 0).all(), seed
    # Of 60 with full covariances, 16 remain; scikit-learn refuses 42.
    assert refused < 50 and (retained > 0) == (covariance_type != "tied"), (refused, retained)


def large(covariance_type, d=96, k=8, dtype=np.float64):
    """Return a mixture of matrices so large that few samples are evaluated straight from the attributes, and samples of it."""
    rng = np.random.default_rng(d)
    factors = rng.normal(size=(k, d, d)) / 8 + np.eye(d)
    full = factors @ factors.transpose(0, 2, 1)
    means = 3.0 * rng.normal(size=(k, d))
    covariances = full if covariance_type == "full" else full[0]
    gm = GaussianMixture.from_parameters(rng.dirichlet(np.ones(k)), means.astype(dtype), covariances)
    x = np.concatenate([means + rng.normal(size=(k, d)), 20.0 * rng.normal(size=(24, d))]).astype(dtype)
    return gm, x


METHODS = ["score_samples", "predict", "predict_proba", "score"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_few_samples_under_large_matrices_are_as_among_many(covariance_type, dtype):
    gm, x = large(covariance_type, dtype=dtype)
    # float32: of log-densities of some thousands, and of probabilities between components that are thousands apart.
    tolerance = {"rtol": 1e-9} if dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-4}
    for method in ("score_samples", "predict", "predict_proba"):
        whole = getattr(gm, method)(x)
        for rows in (slice(0, 1), slice(3, 11), slice(5, 21), slice(5, 22), slice(30, 20, -3)):
            some = getattr(gm, method)(x[rows])
            assert some.dtype == whole.dtype
            np.testing.assert_allclose(some, whole[rows], **tolerance)
    np.testing.assert_allclose(gm.score(x[:5]), gm.score_samples(x)[:5].mean(), **tolerance)
    np.testing.assert_allclose(gm.score_samples(np.asfortranarray(x[:4])), gm.score_samples(x)[:4], **tolerance)


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_few_samples_see_attributes_that_are_set_by_hand(covariance_type):
    gm, x = large(covariance_type)
    changes = [
        lambda m: setattr(m, "means_", m.means_ + 0.25),
        lambda m: m.means_.__setitem__((slice(None), 3), 7.0),
        lambda m: m.weights_.__setitem__(slice(None), m.weights_[::-1].copy()),
        lambda m: setattr(m, "precisions_cholesky_", m.precisions_cholesky_ * 1.5),
        lambda m: m.precisions_cholesky_.__imul__(0.8),
        lambda m: setattr(m, "precisions_cholesky_", np.asfortranarray(m.precisions_cholesky_)),
    ]
    for i, change in enumerate(changes):
        before = gm.score_samples(x[:3])
        change(gm)
        theirs = gm.to_sklearn()
        for method in METHODS:
            for rows in (x[:3], x):
                mine, other = getattr(gm, method)(rows), getattr(theirs, method)(rows)
                np.testing.assert_allclose(mine, other, rtol=1e-9, err_msg=f"{method} after change {i}")
        # Only the last change has no effect.
        assert np.allclose(gm.score_samples(x[:3]), before, rtol=1e-9) == (i == len(changes) - 1)
    # A factor that is not triangular is valid too, if its precisions are the same.
    same = gm.score_samples(x)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(96, 96)))[0]
    gm.precisions_cholesky_ = gm.precisions_cholesky_ @ rotation
    np.testing.assert_allclose(gm.score_samples(x[:3]), same[:3], rtol=1e-9)
    np.testing.assert_allclose(gm.score_samples(x), same, rtol=1e-9)
    gm.weights_ = gm.weights_ * 2
    with pytest.raises(ValueError, match="weights sum to"):
        gm.score_samples(x[:1])


def test_few_samples_that_are_bad_are_refused_as_many_are():
    gm, x = large("full")
    for method in METHODS:
        with pytest.raises(ValueError, match="contains NaN"):
            getattr(gm, method)(np.where(np.arange(96) == 5, np.nan, x[:2]))
        with pytest.raises(ValueError, match="infinity"):
            getattr(gm, method)(np.where(np.arange(96) == 5, np.inf, x[:2]))
        with pytest.raises(ValueError, match="features"):
            getattr(gm, method)(x[:2, :5])
    gm.set_params(missing=True)
    gap = np.where(np.arange(96) == 5, np.nan, x[:2])
    rest = np.arange(96) != 5
    marginal = GaussianMixture.from_parameters(gm.weights_, gm.means_[:, rest], gm.covariances_[:, rest][:, :, rest])
    np.testing.assert_allclose(gm.score_samples(gap), marginal.score_samples(x[:2][:, rest]), rtol=1e-9)


def test_the_callback_sees_and_ends_a_fit():
    x, seen = clouds(), []
    gm = GaussianMixture(4, random_state=0, tol=0, callback=lambda i: seen.append(i) or i.iteration == 3).fit(x)
    assert [i.iteration for i in seen] == [1, 2, 3] and gm.n_iter_ == 3
    assert [i.lower_bound for i in seen] == gm.lower_bounds_ and np.isinf(seen[0].change)
    np.testing.assert_array_equal(seen[-1].mixture.means, gm.means_)

    def fails(iteration):
        raise RuntimeError("enough")

    gm = GaussianMixture(4, random_state=0, callback=fails)
    with pytest.raises(RuntimeError, match="enough"):
        gm.fit(x)
    assert gm.n_iter_ == 1 and gm.predict(x).shape == (600,)


def test_it_works_in_the_tools_of_scikit_learn():
    x = clouds()
    search = GridSearchCV(GaussianMixture(random_state=0), {"n_components": [1, 2, 4]}, n_jobs=2).fit(x)
    assert search.best_params_ == {"n_components": 4}
    pipeline = make_pipeline(StandardScaler(), GaussianMixture(4, random_state=0)).fit(x)
    assert pipeline.predict(x).max() == 3
    gm = clone(GaussianMixture(4, random_state=0, device="cpu", freeze=("means",)))
    assert gm.get_params()["device"] == "cpu"


def test_errors_are_scikit_learns():
    x = clouds()
    gm = GaussianMixture(2)
    with pytest.raises(NotFittedError):
        gm.score(x)
    for bad, message in [
        (np.where(x == x[5, 1], np.nan, x), "Input X contains NaN"),
        (np.where(x == x[5, 1], np.inf, x), "Input X contains infinity"),
        (x[:, 0], "Expected 2D array, got 1D array"),
        (x[:1], "minimum of 2 is required"),
        (np.empty((0, 3)), "Found array with 0 sample"),
        (x.astype(complex), "Complex data not supported"),
        ([["a", "b"], ["c", "d"]], "could not convert string to float"),
    ]:
        errors = []
        for estimator in (GaussianMixture(2), ScikitLearn(2)):
            with pytest.raises(ValueError, match=message) as error:
                estimator.fit(bad)
            errors.append(str(error.value))
        # The engine adds the position of a value that is not finite.
        assert errors[0].split("\nthe data holds")[0] == errors[1]
        if "NaN" in message:
            assert "NaN at row 5, column 1" in errors[0] and "missing=True" in errors[0]
    gm.fit(x)
    with pytest.raises(ValueError, match="X has 2 features, but GaussianMixture is expecting 3 features"):
        gm.predict(x[:, :2])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        gm.score(np.full((3, 3), np.nan))
    for weights, message in [
        (-np.ones(600), "sample weight of row 0"),
        (np.zeros(600), "all sample weights are zero"),
        (np.ones(3), "sample_weight.shape == .*3"),
        (np.ones((600, 1)), "must be 1D"),
        (np.full(600, np.nan), "sample_weight contains NaN"),
    ]:
        with pytest.raises(ValueError, match=message):
            gm.fit(x, sample_weight=weights)
    with pytest.raises(ValueError, match="no device `gpu`"):
        GaussianMixture(device="gpu").fit(x)
    with pytest.raises(ValueError, match="'decay' parameter"):
        GaussianMixture(decay=0.5).fit(x)


def test_retained_components_are_named():
    # Two components at the same point; frozen weights of nearly zero leave one without samples.
    x = clouds(50, 2, 1)
    gm = GaussianMixture(
        2, weights_init=[1.0, 0.0], means_init=[[0.0, 0.0], [1.0, 1.0]], freeze=["weights"], random_state=0, max_iter=3,
        tol=0,
    )
    with pytest.warns(ConvergenceWarning):
        gm.fit(x)
    assert gm.retained_ == [1] and (gm.means_[1] == 1.0).all()


@pytest.mark.parametrize("kind", [GaussianMixture, GaussianMixtureClassifier, GaussianMixtureOutlierDetector, GaussianMixtureRegressor])
def test_a_fit_that_fails_leaves_what_was_fitted_before(kind):
    x, y = clouds(), np.repeat([0, 1, 2], 200)
    bad = x[:, :2].copy()
    bad[5, 1] = np.nan
    params = {} if kind is GaussianMixtureClassifier else {"warm_start": True}
    estimator = kind(2, random_state=0, **params).fit(x, y)
    before, own = estimator.predict(x), vars(estimator).copy()

    def press(iteration):
        raise KeyboardInterrupt

    cases = [(2, {}, bad, ValueError), (601, {}, x[:, :2], ValueError)]
    if kind not in (GaussianMixture, GaussianMixtureClassifier):
        # What a mixture alone has found when it is interrupted is a result.
        cases.append((2, {"callback": press}, x + 9, KeyboardInterrupt))
    for n_components, more, given, error in cases:
        with pytest.raises(error):
            estimator.set_params(n_components=n_components, **more).fit(given, y // 2 + 5)
        estimator.set_params(**{name: own[name] for name in ("n_components", *more)})
        assert vars(estimator) == own and np.array_equal(estimator.predict(x), before)


def test_metadata_is_routed():
    x = clouds()
    weights = np.random.default_rng(0).uniform(0.0, 3.0, size=len(x))
    with config_context(enable_metadata_routing=True):
        gm = GaussianMixture(4, random_state=0)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        requests = gm.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        pipe = make_pipeline(scaler, requests).fit(x, sample_weight=weights)
        scaled = StandardScaler().fit_transform(x)
        alone = GaussianMixture(4, random_state=0).fit(scaled, sample_weight=weights)
        np.testing.assert_array_equal(pipe[-1].means_, alone.means_)
        assert pipe.score(x, sample_weight=weights) == alone.score(scaled, sample_weight=weights)
        halves = [(np.arange(300), np.arange(300, 600)), (np.arange(300, 600), np.arange(300))]
        scores = cross_validate(requests, x, params={"sample_weight": weights}, cv=halves)["test_score"]
        for score, (train, test) in zip(scores, halves, strict=True):
            half = GaussianMixture(4, random_state=0).fit(x[train], sample_weight=weights[train])
            assert score == half.score(x[test], sample_weight=weights[test])
        # Without a request the weights must not be dropped silently.
        with pytest.raises(ValueError, match="sample_weight"):
            cross_validate(GaussianMixture(4), x, params={"sample_weight": weights}, cv=halves)
