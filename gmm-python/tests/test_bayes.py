"""Draws from the posterior, and the choice of a model."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from gaussmix import BayesianGaussianMixture, GaussianMixture, MixturePosterior, plot, select
from gaussmix.deconvolution import Measurements

SHORT = dict(order=0, chains=2, warmup=200, draws=100, random_state=0)


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(size=(60, 1)), rng.normal(size=(40, 1)) + 8])


@pytest.mark.parametrize("sampler", ["nuts", "metropolis", "ensemble"])
def test_draws_are_near_the_mixture(sampler, x):
    short = dict(SHORT, chains=20 if sampler == "ensemble" else 2, warmup=1000, thin=10 if sampler != "nuts" else 1)
    posterior = MixturePosterior(2, sampler=sampler, **short).fit(x)
    assert posterior.finished_ and posterior.draws_["weights"].shape == (short["chains"], 100, 2)
    gm = GaussianMixture(2, covariance_type="diag", random_state=0).fit(x)
    means = posterior.draws_["means"].mean(axis=(0, 1))[:, 0]
    # Standard errors of the means are 1/√60 and 1/√40.
    np.testing.assert_allclose(means, np.sort(gm.means_[:, 0]), atol=0.3)
    assert "means.1.1" in posterior.summary() and set(posterior.r_hat()) >= {"lp__", "weights.1"}


def test_the_same_seed_gives_the_same_draws_also_in_parts(x, tmp_path):
    whole = MixturePosterior(2, **SHORT).fit(x)
    part = MixturePosterior(2, **{**SHORT, "draws": 40}).fit(x).go_on(100)
    np.testing.assert_array_equal(part.draws_["means"], whole.draws_["means"])
    files = MixturePosterior(2, **{**SHORT, "draws": 40}).fit(x).save(tmp_path / "run")
    assert len(files) == 3
    resumed = MixturePosterior(2, **SHORT).fit(x, resume=tmp_path / "run")
    np.testing.assert_array_equal(resumed.draws_["means"], whole.draws_["means"])
    with pytest.raises(ValueError, match="other settings"):
        MixturePosterior(2, **{**SHORT, "random_state": 1}).fit(x, resume=tmp_path / "run")
    kept = pickle.loads(pickle.dumps(whole))
    np.testing.assert_array_equal(kept.draws_["weights"], whole.draws_["weights"])
    for call in (kept.summary, kept.r_hat, kept.go_on, lambda: kept.save(tmp_path / "kept")):
        with pytest.raises(NotFittedError):
            call()


@pytest.mark.parametrize("sampler", ["nuts", "metropolis", "ensemble"])
def test_measurements_have_a_posterior_of_their_true_values(sampler):
    rng = np.random.default_rng(0)
    variances = rng.uniform(1.0, 5.0, (400, 1))
    X = rng.normal(5.0, 1.0, (400, 1)) + rng.normal(0.0, np.sqrt(variances))
    short = dict(SHORT, order=None, chains=8, warmup=500, thin=1 if sampler == "nuts" else 5)
    posterior = MixturePosterior(1, sampler=sampler, **short).fit(Measurements(X, variances))
    draws = posterior.draws_
    # The variance of the measurements is 4. The posterior's deviations are about 0.1 and 0.25.
    assert abs(draws["means"].mean() - 5.0) < 0.3 and abs(draws["covariances"].mean() - 1.0) < 0.6
    assert draws["covariances"].std() > 0.05
    # What the caller does with the array of the noise afterwards changes nothing.
    again = MixturePosterior(1, sampler=sampler, **short).fit(Measurements(X, variances.copy())).go_on(110)
    variances[:] = 50.0
    np.testing.assert_array_equal(posterior.go_on(110).draws_["means"], again.draws_["means"])


SHARED = """
import threading
import numpy as np
from gaussmix import MixturePosterior

posterior = MixturePosterior(1, order=0, chains=1, warmup=50, draws=10, random_state=0).fit(np.arange(50.0)[:, None])
other = threading.Thread(target=posterior.go_on, args=(20_000,))
other.start()
posterior.go_on(20_000)
other.join()
"""


def test_threads_that_share_a_posterior_take_turns():
    # In another process: a deadlock would hold all threads of this one.
    subprocess.run([sys.executable, "-c", SHARED], check=True, timeout=120)


def test_arviz_takes_the_draws(x):
    pytest.importorskip("arviz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = MixturePosterior(2, **SHORT).fit(x).to_arviz()
    assert data.posterior["means"].dims == ("chain", "draw", "component", "feature")
    assert data.sample_stats["diverging"].dtype == bool


def test_priors_and_wrong_settings(x):
    prior = {"means": {"normal": {"location": 0.0, "scale": 1e-3}}}
    posterior = MixturePosterior(1, prior=prior, chains=1, warmup=100, draws=50, random_state=0).fit(x)
    assert np.abs(posterior.draws_["means"]).max() < 0.1
    for params, message in [
        (dict(sampler="gibbs"), "no sampler 'gibbs'"),
        (dict(prior={"mean": 1}), "prior"),
        (dict(draws=0), "number of draws"),
        (dict(covariance_type="tied"), "tied"),
        (dict(random_state=-1), "random_state is -1; give a whole number from 0"),
        (dict(random_state=2**64), "random_state is 18446744073709551616"),
    ]:
        with pytest.raises(ValueError, match=message):
            MixturePosterior(2, **params).fit(x)


def test_selection(x, iris):
    pytest.importorskip("matplotlib").use("agg")
    selection = select(x, range(1, 4), covariance_type=["diag", "full"], random_state=0)
    assert selection.best.n_components == 2 and len(selection.table) == 6
    best = min(selection.table, key=lambda row: row.criterion)
    np.testing.assert_allclose(selection.best.bic(x), best.criterion)
    assert len(selection.plot().lines) == 2 and len(selection.to_frame()) == 6
    # One number is the largest; numbers with too few samples are not tried.
    assert [row.n_components for row in select(x, 3, random_state=0).table] == [1, 2, 3]
    for largest in (np.int64(10), 10**12, range(1, 10**12)):
        with pytest.warns(UserWarning, match="n_components from 6 on are left out: .*n_components = 6, n_samples = 5"):
            selection = select(x[:5], largest, covariance_type=["spherical", "diag"], random_state=0)
        assert [row.n_components for row in selection.table] == [1, 2, 3, 4, 5] * 2
    with pytest.warns(UserWarning, match="n_components from 7 on are left out"):
        selection = select(x[:5], (k for k in (9, 2, 7, 1, 8)), random_state=0)
    assert [row.n_components for row in selection.table] == [2, 1]
    with pytest.warns(UserWarning, match="the first is taken"):
        selection = select(np.append(np.arange(12.0), np.zeros(5))[:, None], [3, 4], reg_covar=0.0, tol=0.0, max_iter=300, random_state=0)
    assert selection.best.n_components == 3 and selection.table[1].n_components == 4
    with pytest.raises(ValueError, match="n_components = 6, n_samples = 5"):
        select(x[:5], [7, 6])
    with pytest.raises(ValueError, match="n_components is 0"):
        select(x, 0)
    with pytest.raises(TypeError, match="n_components is 2.5"):
        select(x, 2.5)
    with pytest.raises(ValueError, match="nothing to select"):
        select(x, [])
    with pytest.raises(ValueError, match="no criterion"):
        select(x, [1], criterion="r2")


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_plot(covariance_type, iris):
    pytest.importorskip("matplotlib").use("agg")
    import matplotlib.pyplot as plt

    gm = GaussianMixture(3, covariance_type=covariance_type, random_state=0).fit(iris)
    ax = plot(gm, iris)
    # Two ellipses for each component, and the lower bounds beside them.
    assert len(ax.patches) == 6 and ax.figure.axes[0] is ax
    np.testing.assert_array_equal(ax.figure.axes[1].lines[0].get_ydata(), gm.lower_bounds_)
    assert ax.get_title() == "150 samples, 3 components" and "z2" in ax.get_xlabel() + ax.get_ylabel()
    assert len(ax.get_legend().texts) == 3 and sum(len(dots.get_offsets()) for dots in ax.collections) == 150
    # Over two features the ellipses are those of the marginal distribution: as wide as it is in the first feature.
    ax = plot(gm, features=(2, 0), ax=plt.figure().gca())
    box = ax.patches[0].get_extents().transformed(ax.transData.inverted())
    matrix = {"full": gm.covariances_[0], "tied": gm.covariances_}.get(covariance_type)
    variance = np.broadcast_to(gm.covariances_[0], 4)[2] if matrix is None else matrix[2, 2]
    # The ellipse is made of cubic curves, accurate to a few parts in 10⁶.
    np.testing.assert_allclose(box.width, 2 * np.sqrt(variance), rtol=1e-4)
    plt.close("all")


def test_plots_of_named_many_and_one(iris):
    pytest.importorskip("matplotlib").use("agg")
    pd = pytest.importorskip("pandas")
    import matplotlib.pyplot as plt

    names = ["sepal length", "sepal width", "petal length", "petal width"]
    frame = pd.DataFrame(np.tile(iris, (20, 1)), columns=names)
    gm = GaussianMixture(3, random_state=0).fit(frame)
    ax = plot(gm, frame)
    assert "petal" in ax.get_xlabel() and ax.get_title() == "2,000 of 3,000 samples, 3 components"
    ax = plot(GaussianMixture(1).fit(iris[:, :1]), iris[:, :1])
    assert ax.get_ylabel() == "density" and len(ax.lines) == 2
    # A mixture that was not fitted here has no lower bounds.
    assert len(plot(GaussianMixture.from_parameters([1.0], np.zeros((1, 2)), [1.0])).figure.axes) == 1
    plt.close("all")


def test_plots_of_posteriors(iris):
    """Components without samples are faint, and the axes need not show them."""
    pytest.importorskip("matplotlib").use("agg")
    import matplotlib.pyplot as plt

    params = dict(n_components=6, weight_concentration_prior=1e-3, max_iter=500, random_state=0)
    # A prior far from the samples moves components without samples there.
    gm = BayesianGaussianMixture(**params, mean_prior=[1e3] * 4, mean_precision_prior=1e-6).fit(iris)
    alive = gm.mean_precision_ - gm.mean_precision_prior_ >= 0.5
    assert 1 <= alive.sum() < 6 and gm.means_[~alive].min() > 500
    ax = plot(gm, iris)
    assert ax.get_title() == f"150 samples, 6 components, {alive.sum()} alive"
    assert [patch.get_alpha() for patch in ax.patches] == [None if a else 0.25 for a in np.repeat(alive, 2)]
    assert [line.get_alpha() for line in ax.get_legend().get_patches()] == [None if a else 0.25 for a in alive]
    assert np.ptp(ax.get_xlim()) < 50 and np.ptp(ax.get_ylim()) < 50
    assert ax.figure.axes[1].get_ylabel() == "lower bound, as scikit-learn counts"
    one = BayesianGaussianMixture(**params, mean_prior=[1e3], mean_precision_prior=1e-6).fit(iris[:, :1])
    alive = np.array(one._posterior().alive)
    ax = plot(one, iris[:, :1])
    assert [line.get_alpha() for line in ax.lines] == [None, *(None if a else 0.25 for a in alive)]
    assert 0 < alive.sum() < 6 and np.ptp(ax.get_xlim()) < 50
    # The total is the sum over the components.
    np.testing.assert_allclose(ax.lines[0].get_ydata(), sum(line.get_ydata() for line in ax.lines[1:]), rtol=1e-12)
    plt.close("all")


#: Clouds (number, mean, deviation), and a prior: the concentration of the weights, and β₀, m₀, ν₀ and W₀⁻¹.
SETS = {
    "two clouds": ([(60, 0, 1), (40, 8, 1)], (1.0, 0.1, 3.0, 4.0, 2.0)),
    "few samples": ([(7, -4, 0.5), (9, 5, 2)], (2.0, 0.5, 0.0, 3.0, 1.0)),
    "three clouds": ([(50, -6, 0.5), (30, 0, 1), (80, 7, 2)], (0.5, 0.01, 0.0, 2.5, 3.0)),
}


@pytest.mark.parametrize("name", SETS)
def test_variational_means_are_those_of_the_draws(name):
    """With one feature both priors are the same: the Wishart distribution is then a gamma distribution.

    The clouds hardly overlap, so the labels are known and the approximation that they do not depend on the parameters is nearly
    exact. The remaining error is that of the means of 2,000 draws, 0.03 standard deviations of the posterior for nearly independent
    draws; five times that is allowed. Another unit of ν₀ is 0.2 in the smallest set.
    """
    clouds, (gamma, beta, mean, nu, scale) = SETS[name]
    rng, k = np.random.default_rng(len(name)), len(clouds)
    x = np.concatenate([rng.normal(m, s, size=(n, 1)) for n, m, s in clouds])
    variational = BayesianGaussianMixture(
        n_components=k,
        covariance_type="diag",
        reg_covar=0,
        tol=1e-9,
        max_iter=1000,
        random_state=0,
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=gamma,
        mean_precision_prior=beta,
        mean_prior=[mean],
        degrees_of_freedom_prior=nu,
        covariance_prior=[scale],
    ).fit(x)
    prior = {
        "weights": {"dirichlet": {"concentration": gamma}},
        "means": {"scaled_normal": {"location": mean, "precision": beta}},
        "scales": {"inverse_gamma": {"shape": nu / 2, "scale": scale / 2}},
    }
    draws = MixturePosterior(k, order=0, prior=prior, chains=2, warmup=300, draws=1000, random_state=0).fit(x).draws_
    order = np.argsort(variational.means_[:, 0])
    pairs = [
        (draws["weights"], variational.weights_),
        (draws["means"][..., 0], variational.means_[:, 0]),
        (1 / draws["covariances"][..., 0], variational.precisions_[:, 0]),
    ]
    for drawn, found in pairs:
        distance = (found[order] - drawn.mean(axis=(0, 1))) / drawn.std(axis=(0, 1))
        assert np.abs(distance).max() < 0.15, distance


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_posterior_in_any_units(scale):
    """Compare the means in units of the data; their posterior deviation is 0.1, the error of the mean of 2000 draws below 0.01."""
    rng = np.random.default_rng(1)
    X = np.r_[rng.normal(0, 1, (80, 2)), rng.normal(4, 1, (70, 2))]
    posterior = MixturePosterior(2, order=0, chains=4, random_state=0, warmup=500, draws=500).fit(X * scale)
    means = posterior.draws_["means"].mean((0, 1)) / scale
    np.testing.assert_allclose(means, [X[:80].mean(axis=0), X[80:].mean(axis=0)], atol=0.1)
    assert max(posterior.r_hat().values()) < 1.05
