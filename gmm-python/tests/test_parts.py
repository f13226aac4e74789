"""Mixtures of some features: alone, and given values of others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from gaussmix import GaussianMixture, Mixture

TYPES = ["full", "tied", "diag", "spherical"]


@pytest.fixture(params=TYPES)
def estimator(request: pytest.FixtureRequest, iris: np.ndarray) -> GaussianMixture:
    return GaussianMixture(3, covariance_type=request.param, random_state=0, device="cpu").fit(iris)


@pytest.fixture
def gm(estimator: GaussianMixture) -> Mixture:
    return estimator.mixture_


def test_a_marginal_has_the_density_of_scipy(gm: Mixture, iris: np.ndarray) -> None:
    part = gm.marginal([2, 0])
    assert isinstance(part, Mixture)
    assert (part.n_features, part.covariance_type, part.feature_names) == (2, gm.covariance_type, None)
    full = {"full": lambda k: gm.covariances[k], "tied": lambda k: gm.covariances}
    full |= {"diag": lambda k: np.diag(gm.covariances[k]), "spherical": lambda k: gm.covariances[k] * np.eye(4)}
    terms = [
        np.log(gm.weights[k])
        + multivariate_normal(gm.means[k][[2, 0]], full[gm.covariance_type](k)[np.ix_([2, 0], [2, 0])]).logpdf(
            iris[:, [2, 0]]
        )
        for k in range(3)
    ]
    # Roundings of numbers near 10.
    np.testing.assert_allclose(part.score_samples(iris[:, [2, 0]]), logsumexp(terms, axis=0), rtol=1e-11)
    assert gm.marginal(2).n_features == 1


def test_marginal_and_conditional_make_the_joint_density(
    estimator: GaussianMixture, gm: Mixture, iris: np.ndarray
) -> None:
    for x in (iris[0], iris[100] + 30.0):
        given = gm.condition({3: x[3], np.int64(1): x[1]})
        parts = gm.marginal([3, 1]).score_samples([x[[3, 1]]]) + given.score_samples([x[[0, 2]]])
        np.testing.assert_allclose(parts, gm.score_samples([x]), rtol=1e-11)
        mean = given.weights @ given.means
        hidden = np.where([True, False, True, False], np.nan, x)
        np.testing.assert_allclose(mean, estimator.impute([hidden])[0][[0, 2]], rtol=1e-12)


def test_names_are_kept(iris: np.ndarray) -> None:
    frame = pd.DataFrame(iris, columns=["a", "b", "c", "d"])
    gm = GaussianMixture(2, random_state=0).fit(frame).mixture_
    part = gm.marginal(["d", 0])
    assert part.feature_names == ("d", "a")
    assert part.predict(frame[["d", "a"]]).shape == (150,)
    given = gm.condition({"c": 4.2, 0: 5.0})
    assert given.feature_names == ("b", "d")
    assert (given.n_components, given.means.shape) == (2, (2, 2))
    np.testing.assert_array_equal(gm.marginal("b").means, gm.means[:, [1]])


def test_unusable_features_are_refused(gm: Mixture) -> None:
    for call, error, text in [
        (lambda: gm.marginal("a"), ValueError, "no names of features"),
        (lambda: gm.marginal([4]), ValueError, "no feature 4"),
        (lambda: gm.marginal([-1]), ValueError, "no feature -1"),
        (lambda: gm.marginal([0.5]), TypeError, "0.5; give its name"),
        (lambda: gm.marginal([1, 1]), ValueError, "named twice"),
        (lambda: gm.marginal([]), ValueError, "at least one"),
        (lambda: gm.condition({0: np.nan}), ValueError, "give a finite number"),
        (lambda: gm.condition(dict.fromkeys(range(4), 1.0)), ValueError, "number of given features is 4"),
    ]:
        with pytest.raises(error, match=text):
            call()
