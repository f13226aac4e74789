"""Mixtures of some features: alone, and given values of others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from gaussmix import GaussianMixture

TYPES = ["full", "tied", "diag", "spherical"]


@pytest.fixture(params=TYPES)
def gm(request: pytest.FixtureRequest, iris: np.ndarray) -> GaussianMixture:
    return GaussianMixture(3, covariance_type=request.param, random_state=0, device="cpu").fit(iris)


def test_a_marginal_has_the_density_of_scipy(gm: GaussianMixture, iris: np.ndarray) -> None:
    part = gm.marginal([2, 0])
    assert isinstance(part, GaussianMixture)
    assert (part.n_features_in_, part.covariance_type, part.device) == (2, gm.covariance_type, "cpu")
    assert not hasattr(part, "feature_names_in_")
    full = {"full": lambda k: gm.covariances_[k], "tied": lambda k: gm.covariances_}
    full |= {"diag": lambda k: np.diag(gm.covariances_[k]), "spherical": lambda k: gm.covariances_[k] * np.eye(4)}
    terms = [
        np.log(gm.weights_[k])
        + multivariate_normal(gm.means_[k][[2, 0]], full[gm.covariance_type](k)[np.ix_([2, 0], [2, 0])]).logpdf(
            iris[:, [2, 0]]
        )
        for k in range(3)
    ]
    # Roundings of numbers near 10.
    np.testing.assert_allclose(part.score_samples(iris[:, [2, 0]]), logsumexp(terms, axis=0), rtol=1e-11)
    assert gm.marginal(2).n_features_in_ == 1


def test_marginal_and_conditional_make_the_joint_density(gm: GaussianMixture, iris: np.ndarray) -> None:
    for x in (iris[0], iris[100] + 30.0):
        given = gm.condition({3: x[3], np.int64(1): x[1]})
        parts = gm.marginal([3, 1]).score_samples([x[[3, 1]]]) + given.score_samples([x[[0, 2]]])
        np.testing.assert_allclose(parts, gm.score_samples([x]), rtol=1e-11)
        mean = given.weights_ @ given.means_
        hidden = np.where([True, False, True, False], np.nan, x)
        np.testing.assert_allclose(mean, gm.impute([hidden])[0][[0, 2]], rtol=1e-12)


def test_names_are_kept(iris: np.ndarray) -> None:
    frame = pd.DataFrame(iris, columns=["a", "b", "c", "d"])
    gm = GaussianMixture(2, random_state=0, n_init=3).fit(frame)
    part = gm.marginal(["d", 0])
    assert list(part.feature_names_in_) == ["d", "a"]
    assert part.predict(frame[["d", "a"]]).shape == (150,)
    given = gm.condition({"c": 4.2, 0: 5.0})
    assert list(given.feature_names_in_) == ["b", "d"]
    assert (given.n_init, given.n_components, given.means_.shape) == (3, 2, (2, 2))
    np.testing.assert_array_equal(gm.marginal("b").means_, gm.means_[:, [1]])


def test_float32_stays(iris: np.ndarray) -> None:
    gm = GaussianMixture(2, random_state=0).fit(iris.astype(np.float32))
    assert gm.marginal([0]).means_.dtype == gm.condition({0: 5}).means_.dtype == np.float32


def test_unusable_features_are_refused(gm: GaussianMixture) -> None:
    for call, error, text in [
        (lambda: gm.marginal("a"), ValueError, "no names of features"),
        (lambda: gm.marginal([4]), ValueError, "no feature 4"),
        (lambda: gm.marginal([-1]), ValueError, "no feature -1"),
        (lambda: gm.marginal([0.5]), TypeError, "0.5; give its name"),
        (lambda: gm.marginal([1, 1]), ValueError, "named twice"),
        (lambda: gm.marginal([]), ValueError, "at least one"),
        (lambda: gm.condition({0: np.nan}), ValueError, "give a finite number"),
        (lambda: gm.condition(dict.fromkeys(range(4), 1.0)), ValueError, "all 4 features"),
    ]:
        with pytest.raises(error, match=text):
            call()
