"""Extreme deconvolution: the estimator, and the interfaces of jobovy's and astroML's programs."""

import json
import subprocess
import sys

import gaussmix
import numpy as np
import pytest
from gaussmix import GaussianMixture, Mixture
from gaussmix.deconvolution import XDGMM, ExtremeDeconvolution, Measurements, extreme_deconvolution
from gaussmix.deconvolution._interfaces import _Fit
from sklearn.base import clone


def covariances(seed, n, d, scale=1.0):
    a = np.random.default_rng(seed).normal(size=(n, d, d)) * scale
    return a @ a.transpose(0, 2, 1) + 0.1 * scale**2 * np.eye(d)


def parts(X, S, alpha, mu, V):
    """Return the log densities of the components, the means and the covariances of the true values, by the formulas of the paper."""
    T = V[None] + S[:, None]
    inverse = np.linalg.inv(T)
    delta = X[:, None] - mu[None]
    log_p = np.log(alpha) - 0.5 * (
        np.einsum("nki,nkij,nkj->nk", delta, inverse, delta) + np.linalg.slogdet(T)[1] + X.shape[1] * np.log(2 * np.pi)
    )
    b = mu + np.einsum("kij,nkjl,nkl->nki", V, inverse, delta)
    B = V - np.einsum("kij,nkjl,klm->nkim", V, inverse, V)
    return log_p, b, B


def step(X, S, alpha, mu, V):
    """Return the mixture after an iteration of EM, and the log-likelihood before it."""
    log_p, b, B = parts(X, S, alpha, mu, V)
    score = np.logaddexp.reduce(log_p, axis=1)
    q = np.exp(log_p - score[:, None])
    n = q.sum(axis=0)
    mean = np.einsum("nk,nki->ki", q, b) / n[:, None]
    delta = b - mean
    return (n / n.sum(), mean, np.einsum("nk,nkij->kij", q, delta[..., None] * delta[..., None, :] + B) / n[:, None, None]), score.sum()


def clusters(n, d=2, seed=0):
    rng = np.random.default_rng(seed)
    k = rng.integers(2, size=n)
    true = rng.normal(size=(n, d)) * 0.5 + np.where(k == 0, -2.0, 2.0)[:, None]
    S = covariances(seed + 1, n, d, 0.8)
    return true, true + np.einsum("nij,nj->ni", np.linalg.cholesky(S), rng.normal(size=(n, d))), S


def test_doctest_of_jobovy():
    y = np.random.RandomState(1).normal(1.0, 1.0, (200, 1)).round(8)
    noise = np.full((200, 1), 0.01)
    projection = np.array([[[1.0, 0.0]], [[0.0, 1.0]]] * 100)
    amp = np.ones(2) / 2
    mean = np.array([[0.86447943, 0.322681], [0.67078879, 0.45087394]])
    covariance = np.array([[[0.03821028, 0.04108113], [0.04014796, 0.03173839]], [[0.06219194, 0.04302473], [0.09738021, 0.06778009]]])
    average = extreme_deconvolution(y, noise, amp, mean, covariance, projection=projection)
    # Theirs.
    assert average == pytest.approx(-1.3114744655258121, abs=1e-4)
    # The formulas of the paper in NumPy, after 230 iterations.
    assert average == pytest.approx(-1.31148186933, abs=1e-9)
    np.testing.assert_allclose(mean, [[2.30368216, 1.70701478], [1.08009391, 0.88886669]], atol=1e-7)
    np.testing.assert_allclose(covariance[0].ravel()[[0, 1, 3]], [0.44564599, 0.45667421, 0.45687268], atol=1e-7)
    np.testing.assert_allclose(amp, [0.11968415, 0.88031585], atol=1e-7)
    # Both triangles are written.
    np.testing.assert_array_equal(covariance, covariance.transpose(0, 2, 1))


def test_the_engine_and_the_formulas_agree():
    # The start of the doctest, and its end, are not positive definite, so NumPy computes them.
    y = np.random.RandomState(1).normal(1.0, 1.0, (200, 2))
    S, projection = covariances(0, 200, 2), np.random.RandomState(2).normal(size=(200, 2, 3))
    weights = np.random.RandomState(3).uniform(0.5, 2.0, 200)
    start = np.array([0.3, 0.7]), np.array([[0.0, 1.0, 0.5], [1.0, 0.0, -0.5]]), covariances(4, 2, 3)
    fit = _Fit(Measurements(y, S, projection), weights, (), 0.0, 1, 0.0)
    sums = fit.data.e_step(gaussmix._core.Mixture(*start, "full"))
    for a, b in zip((sums.counts, sums.means, sums.scatter, sums.log_likelihood), fit.sums_by_formulas(*start), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


#: The cases of jobovy's tests have so many samples, and tolerances of ten standard errors of a mean and more.
N, TOLERANCE = 3001, 10 / np.sqrt(3001)
TWO = np.array([0.3, 0.7]), np.array([-2.0, 1.0]), np.array([1.0, 4.0])
THREE = np.array([0.1, 0.3, 0.6]), np.array([-4.0, 1.0, 8.0]), np.array([1.0, 4.0, 2.25])


def drawn(seed, shares, means, variances, kind="none"):
    """Return measured values (N, 1), and the variances of their noise."""
    rng = np.random.default_rng(seed)
    k = rng.choice(len(shares), N, p=shares)
    noise = {"none": np.zeros((N, 1)), "constant": np.full((N, 1), 0.25), "variable": rng.uniform(size=(N, 1))}[kind]
    return rng.normal(means[k], np.sqrt(variances[k]))[:, None] + rng.normal(size=(N, 1)) * np.sqrt(noise), noise


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("kind", ["none", "constant", "variable"])
def test_one_component_of_jobovy(kind, projected):
    y, noise = drawn(3, np.ones(1), np.ones(1), np.ones(1), kind)
    amp, mean, covariance = np.ones(1), np.atleast_2d(y.mean() + y.std()), np.full((1, 1, 1), 3 * y.var())
    extreme_deconvolution(y, noise, amp, mean, covariance, projection=np.ones((N, 1, 1)) if projected else None)
    assert mean[0, 0] == pytest.approx(1.0, abs=TOLERANCE)
    assert covariance[0, 0, 0] == pytest.approx(1.0, abs=TOLERANCE)


@pytest.mark.parametrize("kind", ["none", "constant", "variable"])
@pytest.mark.parametrize("weighted", [False, True])
def test_three_components_of_jobovy(kind, weighted, tmp_path):
    y, noise = drawn(4, *THREE, kind)
    # A weight of 2 says that a sample stands twice.
    twice = np.arange(N) % 3 == 0
    how = {"weight": np.log(1.0 + twice), "logweight": True} if weighted else {}
    found = np.ones(3) / 3, np.array([[-1.0], [0.0], [1.0]]), np.full((3, 1, 1), 3 * y.var())
    average = extreme_deconvolution(y, noise, *found, maxsnm=True, logfile=str(tmp_path / "log"), **how)
    order = found[1][:, 0].argsort()
    for part, truth, factor in zip(found, THREE, (2.5, 10, 10), strict=True):
        np.testing.assert_allclose(part.ravel()[order], truth, atol=factor * TOLERANCE)
    assert float((tmp_path / "log_loglike.log").read_text()) == average
    again = extreme_deconvolution(y, noise, *found, likeonly=True, **how)
    assert again == pytest.approx(average, abs=2e-6)
    if weighted:
        repeated = extreme_deconvolution(*(np.concatenate([part, part[twice]]) for part in (y, noise)), *found, likeonly=True)
        assert repeated * (N + twice.sum()) == pytest.approx(again * N, rel=1e-10)


@pytest.mark.parametrize("kind", ["constant", "diagonal", "full", "lines", "axes"])
def test_two_features_of_jobovy(kind):
    rng = np.random.default_rng(6)
    truth = np.array([[1.0, 0.4], [0.4, 2.0]])
    v, projection = rng.multivariate_normal([1.0, 2.0], truth, N), None
    if kind in ("lines", "axes"):
        angles = rng.uniform(0, np.pi, N) if kind == "lines" else rng.integers(2, size=N) * np.pi / 2
        projection = np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, None]
        v = np.einsum("ncd,nd->nc", projection, v)
    c = v.shape[1]
    S = {"constant": np.full((N, 2), 0.25), "full": covariances(7, N, 2, 0.5)}.get(kind, rng.uniform(0, 0.5, (N, c)))
    roots = np.linalg.cholesky(S) if S.ndim == 3 else np.sqrt(S)[:, :, None] * np.eye(c)
    y = v + np.einsum("nij,nj->ni", roots, rng.normal(size=(N, c)))
    amp, mean, covariance = np.ones(1), np.zeros((1, 2)), 3 * np.eye(2)[None]
    extreme_deconvolution(y, S, amp, mean, covariance, projection=projection, tol=1e-8)
    if kind == "axes":
        # Nothing sees both features of a sample.
        truth = np.where(np.eye(2), truth, covariance[0])
    np.testing.assert_allclose(mean, [[1.0, 2.0]], atol=TOLERANCE)
    np.testing.assert_allclose(covariance[0], truth, atol=2 * TOLERANCE)


@pytest.mark.parametrize("fixed", [True, [True, False]])
@pytest.mark.parametrize("names", [["amp"], ["mean"], ["covar"], ["amp", "mean"], ["mean", "covar"]])
def test_fixed_parameters_of_jobovy(names, fixed):
    y, noise = drawn(2, *TWO)
    start = {"amp": np.full(2, 0.5), "mean": np.array([[-1.0], [2.0]]), "covar": np.full((2, 1, 1), 3 * y.var())}
    mask = np.broadcast_to(fixed, 2)
    for name, truth in zip(start, TWO, strict=True):
        if name in names:
            # Theirs begin at the truth; amplitudes must sum to 1.
            start[name][mask if name != "amp" else slice(None)] = truth.reshape(start[name].shape)[mask if name != "amp" else slice(None)]
    now = {name: part.copy() for name, part in start.items()}
    extreme_deconvolution(y, noise, *now.values(), **{f"fix{name}": fixed for name in names})
    for (name, part), truth, factor in zip(now.items(), TWO, (1.2, 2.4, 4.8), strict=True):
        same = np.isclose(part, start[name], rtol=1e-12, atol=0).reshape(2, -1).all(axis=1)
        # Of two amplitudes that sum to 1, neither is free where one is fixed.
        assert same.tolist() == ((mask | (name == "amp")).tolist() if name in names else [False, False])
        np.testing.assert_allclose(part.ravel(), truth, atol=factor * TOLERANCE)


def test_tully_and_fisher():
    # Sakai et al. (2000), Table 2: the logarithms of the widths of 21 galaxies' lines, the magnitudes in I, and their errors.
    width = "2744 2397 2420 2682 2621 2501 2480 2370 2719 2531 2405 2586 2674 2499 2626 2743 2586 2562 2617 2671 2746"
    of_width = "28 74 49 35 41 35 59 49 34 32 48 47 36 35 26 39 38 30 46 26 21"
    light = "2311 1984 2067 2340 2239 2130 2038 1987 2250 2156 2033 2164 2231 2106 2266 2261 2228 2195 2217 2277 2338"
    of_light = "18 18 28 12 8 11 28 13 17 8 14 9 11 12 18 11 8 13 23 9 11"
    width, of_width, light, of_light = (np.array(text.split(), float) for text in (width, of_width, light, of_light))
    y, noise = np.stack([width / 1000, -light / 100], axis=1), np.stack([of_width / 1000, of_light / 100], axis=1) ** 2
    covariance = np.diag(np.ptp(y, axis=0) ** 2)[None].copy()
    extreme_deconvolution(y, noise, np.ones(1), np.zeros((1, 2)), covariance, tol=1e-5)
    across, up = np.linalg.eigh(covariance[0])[1][:, -1]
    # The slope that jobovy's example prints with two decimals.
    assert up / across == pytest.approx(-9.26, abs=0.01)


def test_weights_and_likelihood_of_jobovy():
    _, X, S = clusters(100)
    mixture = np.array([0.4, 0.6]), np.array([[-1.0, -1.0], [1.0, 1.0]]), np.array([np.eye(2)] * 2)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 100)
    score = np.logaddexp.reduce(parts(X, S, *mixture)[0], axis=1)
    assert extreme_deconvolution(X, S, *mixture, likeonly=True) == pytest.approx(score.mean(), rel=1e-12)
    # Divided by N, not by the sum of the weights.
    average = extreme_deconvolution(X, S, *mixture, likeonly=True, weight=weight)
    assert average == pytest.approx((weight * score).sum() / 100, rel=1e-12)
    assert extreme_deconvolution(X, S, *mixture, likeonly=True, weight=np.log(weight), logweight=True) == pytest.approx(average)


def test_floor_of_covariances_of_jobovy():
    _, X, S = clusters(100)
    mixture = np.array([0.4, 0.6]), np.array([[-1.0, -1.0], [1.0, 1.0]]), np.array([np.eye(2)] * 2)
    (alpha, mean, V), _ = step(X, S, *mixture)
    now = [v.copy() for v in mixture]
    extreme_deconvolution(X, S, *now, w=3.0, maxiter=1)
    n = 100 * alpha[:, None, None]
    np.testing.assert_allclose(now[2], (n * V + 3.0 * np.eye(2)) / (n + 1.0), rtol=1e-10)
    np.testing.assert_allclose(now[1], mean, rtol=1e-10)


def test_split_and_merge_leaves_a_poor_start():
    rng = np.random.default_rng(5)
    X = np.concatenate([rng.normal(c, 0.3, (200, 1)) for c in (-6.0, 0.0, 6.0)])
    S = np.full((600, 1), 0.05)

    def fitted(**how):
        # Two components begin in one cluster, and one between the others.
        now = np.ones(3) / 3, np.array([[-6.1], [-5.9], [3.0]]), np.full((3, 1, 1), 0.3)
        return extreme_deconvolution(X, S, *now, **how), np.sort(now[1].ravel())

    poor, _ = fitted()
    good, means = fitted(splitnmerge=3)
    assert good > poor + 0.1
    np.testing.assert_allclose(means, [-6.0, 0.0, 6.0], atol=0.1)


def test_astroml():
    _, X, S = clusters(1000, seed=3)
    xd = XDGMM(2, max_iter=200, tol=1e-3, random_state=0).fit(X, S)
    # astroML's test: the fit finds the distribution of the true values.
    order = np.argsort(xd.mu[:, 0])
    np.testing.assert_allclose(xd.mu[order], [[-2.0, -2.0], [2.0, 2.0]], atol=0.1)
    np.testing.assert_allclose(xd.V, [0.25 * np.eye(2)] * 2, atol=0.1)
    mixture = xd.alpha, xd.mu, xd.V
    log_p = parts(X, S, *mixture)[0]
    np.testing.assert_allclose(xd.logprob_a(X, S), log_p, rtol=1e-9)
    assert np.isfinite(xd.logprob_a(X + 1e3, S)).all()
    assert xd.logL(X, S) == pytest.approx(np.logaddexp.reduce(log_p, axis=1).sum(), rel=1e-12)
    assert xd.score(X, S) * 1000 == pytest.approx(xd.logL(X, S))
    assert (xd.predict(X, S) == log_p.argmax(axis=1)).all()
    assert xd.sample(5, random_state=1).shape == (5, 2)
    with pytest.raises(NotImplementedError):
        xd.fit(X, S, R=np.eye(2))
    bics, best, lowest = xd.bic_test(X, S, [1, 2, 3])
    assert best == 2 and lowest == bics[1] and len(bics) == 3


def test_condition_and_files_of_holoien(tmp_path):
    xd = XDGMM(2, labels=["a", "b", "c"])
    xd.alpha, xd.mu, xd.V = np.array([0.3, 0.7]), np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]]), covariances(0, 2, 3)
    given = xd.condition(np.array([np.nan, 0.5, np.nan]))
    want = Mixture(xd.alpha, xd.mu, xd.V).condition({1: 0.5})
    np.testing.assert_allclose(given.alpha, want.weights, rtol=1e-10)
    np.testing.assert_allclose(given.mu, want.means, rtol=1e-10)
    np.testing.assert_allclose(given.V, want.covariances, rtol=1e-9)
    named = xd.condition(X_dict={"b": (0.5, 0.2)})
    assert named.labels == ["a", "c"]
    # A value with an error says less.
    assert np.linalg.det(named.V[0]) > np.linalg.det(given.V[0])
    xd.save_model(str(tmp_path / "xd.json"))
    read = XDGMM().read_model(str(tmp_path / "xd.json"))
    assert list(read.labels) == ["a", "b", "c"]
    np.testing.assert_array_equal(read.V, xd.V)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical", "VEV"])
def test_an_iteration_is_that_of_the_paper(kind):
    _, X, S = clusters(400)
    start = {"weights_init": [0.4, 0.6], "means_init": [[-1.0, -1.0], [1.0, 1.0]]}
    precisions = {"full": [np.eye(2)] * 2, "tied": np.eye(2), "diag": np.ones((2, 2)), "spherical": np.ones(2), "VEV": [np.eye(2)] * 2}[
        kind
    ]
    with pytest.warns(Warning):
        xd = ExtremeDeconvolution(2, covariance_type=kind, reg_covar=0.0, max_iter=1, precisions_init=precisions, **start).fit(X, noise=S)
    (alpha, mean, V), total = step(X, S, np.array([0.4, 0.6]), np.array([[-1.0, -1.0], [1.0, 1.0]]), np.array([np.eye(2)] * 2))
    assert xd.lower_bound_ == pytest.approx(total / 400, rel=1e-12)
    np.testing.assert_allclose(xd.weights_, alpha, rtol=1e-10)
    np.testing.assert_allclose(xd.means_, mean, rtol=1e-10)
    want = {
        "full": V,
        "tied": np.tensordot(alpha, V, 1),
        "diag": np.diagonal(V, axis1=1, axis2=2),
        "spherical": np.trace(V, axis1=1, axis2=2) / 2,
    }
    if kind in want:
        np.testing.assert_allclose(xd.covariances_, want[kind], rtol=1e-9)


def test_a_fit_recovers_the_truth():
    true, X, S = clusters(20_000)
    xd = ExtremeDeconvolution(2, tol=1e-6, max_iter=300, random_state=0).fit(X, noise=S)
    np.testing.assert_allclose(xd.covariances_, [0.25 * np.eye(2)] * 2, atol=0.05)
    assert GaussianMixture(2, random_state=0).fit(X).covariances_[0, 0, 0] > 0.8
    values, around = xd.denoise(X, noise=S)
    # The denoised values are nearer to the true ones, by what their covariances say.
    error, expected = ((values - true) ** 2).sum(axis=1).mean(), np.trace(around, axis1=1, axis2=2).mean()
    assert error == pytest.approx(expected, rel=0.05) and error < 0.5 * ((X - true) ** 2).sum(axis=1).mean()


def test_all_forms_of_noise_agree():
    _, X, S = clusters(600)
    variances = np.random.default_rng(0).uniform(0.1, 1.0, (600, 2))
    groups = np.arange(600) % 2
    forms = [(S[0], np.broadcast_to(S[0], (600, 2, 2))), (variances, variances[:, :, None] * np.eye(2)), ((S[:2], groups), S[groups])]
    for short, whole in forms:
        fits = [ExtremeDeconvolution(2, random_state=0, max_iter=30).fit(X, noise=noise) for noise in (short, whole)]
        np.testing.assert_allclose(fits[0].covariances_, fits[1].covariances_, rtol=1e-7)
        for method in ("score_samples", "predict", "predict_proba"):
            np.testing.assert_allclose(getattr(fits[0], method)(X, short), getattr(fits[0], method)(X, whole), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(fits[0].denoise(X, short)[1], fits[0].denoise(X, whole)[1], rtol=1e-9)


def test_standardized_noise():
    _, X, S = clusters(500)
    units = np.array([1000.0, 0.01])
    how = {"n_components": 2, "random_state": 0, "tol": 1e-8, "max_iter": 500, "reg_covar": 0.0}
    plain = ExtremeDeconvolution(**how).fit(X, noise=S)
    scaled = ExtremeDeconvolution(standardize=True, **how).fit(X * units, noise=S * np.outer(units, units))
    order = [np.argsort(xd.means_[:, 0]) for xd in (plain, scaled)]
    np.testing.assert_allclose(scaled.means_[order[1]] / units, plain.means_[order[0]], rtol=1e-4)
    assert scaled.score(Measurements(X * units, S * np.outer(units, units))) == pytest.approx(
        plain.score(Measurements(X, S)) - np.log(units).sum(), abs=1e-6
    )


@pytest.mark.filterwarnings("ignore:Best performing")
def test_missing_values_and_projections():
    _, X, S = clusters(400)
    gaps = X.copy()
    gaps[::3, 0] = np.nan
    start = {"weights_init": [0.5, 0.5], "means_init": [[-1.0, -1.0], [1.0, 1.0]], "precisions_init": [np.eye(2)] * 2}
    how = {"n_components": 2, "max_iter": 20, "tol": 0.0, **start}
    missing = ExtremeDeconvolution(missing=True, **how).fit(gaps, noise=S)
    # The same rows, as projections to one axis and the other.
    columns = np.where(np.arange(400) % 3 == 0, 1, 0)
    projection = np.eye(2)[columns][:, None]
    seen = X[np.arange(400), columns][:, None]
    one = ExtremeDeconvolution(**how).fit(seen, noise=S[np.arange(400), columns, columns][:, None], projection=projection)
    axis = np.where(np.arange(2) == columns[:, None], X, np.nan)
    same = ExtremeDeconvolution(missing=True, **how).fit(axis, noise=S)
    assert np.isfinite(missing.lower_bound_)
    np.testing.assert_allclose(one.covariances_, same.covariances_, rtol=1e-8)
    assert one.n_features_in_ == 2
    of_one = seen, S[np.arange(400), columns, columns][:, None], projection
    assert one.score(seen, noise=of_one[1], projection=projection) == pytest.approx(one.score_samples(*of_one).mean(), rel=1e-12)
    values, around = one.denoise(seen, S[np.arange(400), columns, columns][:, None], projection)
    assert values.shape == (400, 2) and around.shape == (400, 2, 2)
    # A start without given parameters guesses the true values.
    found = ExtremeDeconvolution(2, random_state=0, max_iter=200).fit(
        X @ np.array([[1.0, 0.5], [0.2, 1.0]]), noise=S, projection=np.array([[[1.0, 0.2], [0.5, 1.0]]] * 400)
    )
    np.testing.assert_allclose(np.sort(found.means_[:, 0]), [-2.0, 2.0], atol=0.3)


def test_selection_and_other_methods():
    _, X, S = clusters(400)
    measured = Measurements(X, S)
    selection = gaussmix.select(measured, 3, estimator=ExtremeDeconvolution(max_iter=200), random_state=0)
    assert selection.best.n_components == 2 and isinstance(selection.best, ExtremeDeconvolution)
    xd = selection.best
    assert xd.bic(measured) == pytest.approx(selection.table[1].criterion)
    assert xd.icl(measured) >= xd.bic(measured)
    several = ExtremeDeconvolution(2, n_init=3, random_state=0).fit(X, noise=S)
    assert several.score(measured) >= clone(several).set_params(n_init=1).fit(X, noise=S).score(measured) - 1e-3
    frozen = ExtremeDeconvolution(2, means_init=np.zeros((2, 2)), freeze="means", random_state=0, max_iter=500).fit(X, noise=S)
    assert (frozen.means_ == 0.0).all()
    weighted = ExtremeDeconvolution(2, random_state=0).fit(X, noise=S, sample_weight=np.where(X[:, 0] > 0, 1.0, 1e-6))
    assert weighted.means_.mean() > 0.5
    labelled = ExtremeDeconvolution(2, random_state=0).fit(X, noise=S, labels=np.where(X[:, 0] > 3, 1, -1))
    assert labelled.means_[1, 0] > labelled.means_[0, 0]


def test_draws():
    xd = ExtremeDeconvolution.from_parameters([1.0], [[1.0, 2.0]], [np.eye(2)], random_state=0)
    n = 20_000
    S = np.array([[1.0, 0.5], [0.5, 2.0]])
    for noise in (S, np.broadcast_to(S, (n, 2, 2))):
        X, _ = xd.sample(n, noise)
        np.testing.assert_allclose(np.cov(X.T), np.eye(2) + S, atol=0.1)
    X, _ = xd.sample(n, np.tile([1.0, 3.0], (n, 1)))
    np.testing.assert_allclose(X.var(axis=0), [2.0, 4.0], atol=0.1)
    assert xd.sample(3)[0].shape == (3, 2)
    with pytest.raises(ValueError, match="shape of the noise"):
        xd.sample(3, np.ones((1, 2)))
    with pytest.raises(ValueError, match="not a covariance"):
        xd.sample(3, -np.eye(2))


def test_bad_input():
    X, S = np.zeros((5, 2)), np.array([np.eye(2)] * 5)
    S[3] = [[1.0, 2.0], [2.0, 1.0]]
    for noise, text in [
        (S, "row 3"),
        (-np.ones((5, 2)), "row 0"),
        (np.ones((4, 2)), "shape"),
        (np.eye(3), "shape"),
        ((S[:1], np.arange(5)), "row 1|no row"),
        ((S[0], [0] * 5), "groups"),
    ]:
        with pytest.raises(ValueError, match=text):
            ExtremeDeconvolution().fit(X, noise=noise)
    with pytest.raises(TypeError, match="noise"):
        ExtremeDeconvolution().fit(X)
    with pytest.raises(ValueError, match="may be"):
        ExtremeDeconvolution().fit(X[:2], noise=np.eye(2))
    with pytest.raises(ValueError, match="projection"):
        ExtremeDeconvolution().fit(X, noise=np.ones((5, 2)), projection=np.zeros((4, 2, 2)))


def test_program(tmp_path):
    _, X, S = clusters(500)
    np.savetxt(tmp_path / "x.csv", X, delimiter=",")
    np.save(tmp_path / "s.npy", S.reshape(500, 4))
    want = ExtremeDeconvolution(2, tol=1e-6, max_iter=300, random_state=0).fit(X, noise=S).score(Measurements(X, S))
    code = "from gaussmix._core import run_program; import sys; sys.exit(run_program())"

    def gmm(*arguments):
        return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, cwd=tmp_path, check=False)

    for name, more in (("plain.json", []), ("units.json", ["--standardize"])):
        done = gmm("fit", "x.csv", "-k", 2, "--noise", "s.npy", "-o", name, "--max-iter", 300, "--tol", 1e-6, *more)
        assert done.returncode == 0, done.stderr
        found = ExtremeDeconvolution.from_parameters(Mixture.load(tmp_path / name))
        assert found.score(Measurements(X, S)) == pytest.approx(want, abs=1e-3)
    scored = gmm("score", "plain.json", "x.csv", "--noise", "s.npy", "--json")
    assert json.loads(scored.stdout)["log_likelihood"] == pytest.approx(500 * want, abs=0.5)
    np.savetxt(tmp_path / "bad.csv", S[:3].reshape(3, 4), delimiter=",")
    bad = gmm("fit", "x.csv", "-k", 2, "--noise", "bad.csv")
    assert bad.returncode != 0 and "3 rows of 4 columns" in bad.stderr


def test_chunks_and_what_knows_no_noise():
    _, X, S = clusters(1000)
    xd = ExtremeDeconvolution(2, random_state=0, tol=1e-6, max_iter=300)
    for rows in np.split(np.arange(1000), 5):
        xd.partial_fit(Measurements(X[rows], S[rows]))
    assert xd.score(Measurements(X, S)) == pytest.approx(clone(xd).fit(X, noise=S).score(Measurements(X, S)), abs=0.02)
    with pytest.raises(TypeError, match="noise is missing"):
        xd.partial_fit(X)
    for given in ((X,), (X, S)):
        with pytest.raises(TypeError, match="noise is missing"):
            xd.score(*given)
    with pytest.raises(TypeError, match="denoise"):
        xd.impute(X)
    assert xd.sample(4, (S[:2], [0, 1, 0, 1]))[0].shape == (4, 2)


def test_likelihood_and_its_gradient():
    _, X, S = clusters(50)
    weights, means, V = np.array([0.4, 0.6]), np.array([[-1.0, 0.5], [1.0, 0.0]]), covariances(3, 2, 2)
    likelihood = gaussmix.Likelihood(Measurements(X, S))
    total, _, by_means, by_covariances = likelihood.gradient(weights, means, V)
    assert total == pytest.approx(np.logaddexp.reduce(parts(X, S, weights, means, V)[0], axis=1).sum(), rel=1e-12)
    # Central differences, whose error is of the order of the square of the step.
    step, k = 1e-5, 1
    moved = [likelihood(weights, means + sign * step * np.eye(2)[[k, k]] * [[0.0], [1.0]], V) for sign in (1, -1)]
    assert (moved[0] - moved[1]) / (2 * step) == pytest.approx(by_means[1, k], rel=1e-6)
    wider = [likelihood(weights, means, V + sign * step * np.array([np.eye(2), np.zeros((2, 2))])) for sign in (1, -1)]
    assert (wider[0] - wider[1]) / (2 * step) == pytest.approx(np.trace(by_covariances[0]), rel=1e-6)
    projection = np.tile(np.eye(2), (50, 1, 1))
    copied = gaussmix.Likelihood(Measurements(X, S, projection))
    projection[:] = 0.0
    S[:] = np.eye(2)
    assert copied(weights, means, V) == pytest.approx(total, rel=1e-12) and likelihood(weights, means, V) == total
    with pytest.raises(ValueError, match="knows no noise"):
        likelihood.score_function(weights, means, V)


def test_the_floor_of_covariances_is_a_prior():
    rng = np.random.default_rng(0)
    n, d, w = 300, 2, 0.7
    noise = rng.uniform(0.1, 1.0, (n, d))
    X = rng.normal(size=(n, d)) + 3 * rng.integers(0, 2, (n, 1)) + rng.normal(0, np.sqrt(noise))
    amp, mean, covar = np.ones(2) / 2, np.array([[0.0, 0.0], [3.0, 3.0]]), np.array([np.eye(d)] * 2)
    start = {"weights_init": amp.copy(), "means_init": mean.copy(), "precisions_init": covar.copy()}
    extreme_deconvolution(X, noise, amp, mean, covar, w=w, tol=1e-13, maxiter=10_000)
    prior = {"mean_precision": 0.0, "degrees_of_freedom": -d, "covariance": w * np.eye(d)}
    xd = ExtremeDeconvolution(2, prior=prior, tol=1e-14, max_iter=10_000, reg_covar=0, **start).fit(X, noise=noise)
    np.testing.assert_allclose(xd.covariances_, covar, rtol=1e-5)
    np.testing.assert_allclose(xd.means_, mean, rtol=1e-5)
