"""A component for noise: the estimator, its mixture, files and refusals."""

import pickle

import numpy as np
import pytest
from gaussmix import GaussianMixture, Likelihood, Mixture, plot, to_onnx
from sklearn.base import clone


@pytest.fixture(scope="module")
def data():
    """900 rows of three groups, then 100 between -40 and 60."""
    rng = np.random.default_rng(0)
    groups = [rng.normal(5 * i, 0.5 + 0.25 * i, (300, 2)) for i in range(3)]
    return np.concatenate([*groups, rng.uniform(-40, 60, (100, 2))])


def sorted_means(gm):
    return np.sort(gm.means_, axis=0)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical", "VEV", "EII", "EVE"])
def test_outliers_are_noise(data, kind):
    gm = GaussianMixture(3, covariance_type=kind, noise=True, tol=1e-6, max_iter=500, random_state=0).fit(data)
    assert gm.weights_.shape == (4,) and gm.means_.shape == (3, 2)
    assert abs(gm.weights_[3] - 0.1) < 0.02
    alone = GaussianMixture(3, covariance_type=kind, tol=1e-6, max_iter=500, random_state=0).fit(data[:900])
    assert gm.covariances_.shape == alone.covariances_.shape
    # Some ten of the outliers lie within the groups.
    np.testing.assert_allclose(sorted_means(gm), sorted_means(alone), atol=0.15)
    labels = gm.predict(data)
    assert np.sum(labels[:900] == -1) < 12 and np.sum(labels[900:] == -1) > 85
    proba = gm.predict_proba(data)
    assert proba.shape == (1000, 4)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    # The density is that of the Gaussians and a constant.
    gaussians = gm.mixture_.without_noise()
    density = (1 - gm.weights_[3]) * np.exp(gaussians.score_samples(data)) + gm.weights_[3] / gm.noise_[0]
    np.testing.assert_allclose(gm.score_samples(data), np.log(density), rtol=1e-9)
    k, n = gm.mixture_.n_parameters, gaussians.n_parameters
    assert k == n + 2
    np.testing.assert_allclose(gm.bic(data), -2 * len(data) * gm.score(data) + k * np.log(len(data)))


def test_the_start_of_the_noise(data):
    by = {"max_iter": 0, "random_state": 0, "init_params": "hierarchical"}
    share = GaussianMixture(2, noise=0.25, **by).fit(data)
    rows = GaussianMixture(2, noise=np.arange(1000) >= 900, **by).fit(data)
    numbers = GaussianMixture(2, noise={"rows": range(900, 1000), "volume": 7.0}, **by).fit(data)
    assert share.weights_[2] == 0.25
    assert rows.weights_[2] == 0.1 and numbers.noise_[0] == 7.0
    np.testing.assert_array_equal(rows.means_, numbers.means_)


def test_a_mixture_with_noise_is_kept(data, tmp_path):
    gm = GaussianMixture(3, covariance_type="tied", noise=0.2, random_state=0).fit(data)
    for name in ("m.json", "m.npz"):
        gm.save(tmp_path / name)
        for other in (GaussianMixture.load(tmp_path / name), Mixture.load(tmp_path / name)):
            np.testing.assert_array_equal(other.score_samples(data[:9]), gm.score_samples(data[:9]))
    assert GaussianMixture.load(tmp_path / "m.json").noise is True
    mixture = pickle.loads(pickle.dumps(gm.mixture_))
    assert mixture == gm.mixture_ and mixture.noise == gm.noise_
    assert "noise of weight" in repr(mixture)
    again = pickle.loads(pickle.dumps(gm))
    np.testing.assert_array_equal(again.predict(data), gm.predict(data))
    x, labels = gm.sample(2000)
    noise = x[labels == -1]
    assert abs(len(noise) / 2000 - gm.weights_[3]) < 0.03
    assert np.all((noise >= gm.noise_[1]) & (noise <= gm.noise_[2]))
    np.testing.assert_allclose(Likelihood(data)(gm.mixture_), 1000 * gm.score(data), rtol=1e-10)
    assert clone(gm).noise == 0.2
    # The attributes count.
    gm.weights_ = np.array([0.3, 0.3, 0.2, 0.2])
    assert gm.predict_proba(data[:1]).shape == (1, 4)
    gm.noise_ = 2 * gm.noise_[0], *gm.noise_[1:]
    assert gm.score(data) == pickle.loads(pickle.dumps(gm)).score(data)


def test_standardised_noise_is_in_the_units_of_the_data(data):
    own = GaussianMixture(3, noise=True, standardize=True, tol=1e-6, max_iter=500, random_state=0).fit(data)
    np.testing.assert_allclose([own.noise_[1], own.noise_[2]], [data.min(axis=0), data.max(axis=0)], rtol=1e-9)
    labels = own.predict(data)
    assert np.sum(labels[900:] == -1) > 85


def test_bad_noise_is_named(data):
    def message(noise, x=data, **parameters):
        with pytest.raises((ValueError, TypeError)) as error:
            GaussianMixture(2, noise=noise, **parameters).fit(x)
        return str(error.value)

    assert "noise" in message(1.5)
    assert "'spread'" in message({"spread": 2})
    assert "mask" in message([0.5, 0.5])
    assert "1000" in message([3, 1000])
    assert "volume" in message({"volume": -1.0})
    gap = data.copy()
    gap[3, 0] = np.nan
    assert "noise" in message(True, gap, missing=True)
    gm = GaussianMixture(2, noise=True, random_state=0).fit(data)
    for refused in (
        gm.to_sklearn,
        lambda: to_onnx(gm),
        lambda: gm.mixture_.marginal([0]),
        lambda: gm.mixture_.condition({0: 1.0}),
        lambda: gm.mixture_.reduce(1),
        gm.mixture_.to_sklearn,
    ):
        with pytest.raises(Exception, match="noise"):
            refused()
    with pytest.raises(AttributeError, match="partial_fit"):
        GaussianMixture(2, noise=True).partial_fit(data)


@pytest.mark.parametrize("columns", [1, 2])
def test_pictures_have_the_gaussians_and_the_noise(data, columns):
    pytest.importorskip("matplotlib").use("agg")
    import matplotlib.pyplot as plt

    gm = GaussianMixture(3, noise=True, random_state=0).fit(data[:, :columns])
    ax = plot(gm, data[:, :columns])
    assert ax.get_title() == "1,000 samples, 3 components" and len(ax.get_legend().get_texts()) == (4 if columns == 1 else 3)
    assert columns == 1 or sum(len(dots.get_offsets()) for dots in ax.collections) == 1000
    plt.close("all")
