"""The mixture as a value: its display, storage and comparison, and its use by others."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn.mixture
from sklearn.exceptions import NotFittedError

import gaussmix
from gaussmix import (
    BayesianGaussianMixture,
    GaussianMixture,
    GaussianMixtureClassifier,
    GaussianMixtureOutlierDetector,
    GaussianMixtureRegressor,
    Likelihood,
    ManyMixtures,
    Mixture,
    MixturePosterior,
    plot,
    select,
)

TYPES = ("full", "tied", "diag", "spherical")
NAMES = ("a", "b", "c", "d")


@pytest.fixture(params=TYPES)
def gm(request: pytest.FixtureRequest, iris: np.ndarray) -> GaussianMixture:
    frame = pd.DataFrame(iris, columns=list(NAMES))
    return GaussianMixture(3, covariance_type=request.param, random_state=0).fit(frame)


def test_an_estimator_gives_its_mixture_once_a_fit(gm: GaussianMixture, iris: np.ndarray) -> None:
    mixture = gm.mixture_
    assert mixture is gm.mixture_ and mixture.feature_names == NAMES
    for name in ("weights", "means", "covariances", "precisions", "precisions_cholesky"):
        np.testing.assert_array_equal(getattr(mixture, name), getattr(gm, f"{name}_"))
    assert (mixture.n_components, mixture.n_features, mixture.covariance_type) == (3, 4, gm.covariance_type)
    gm.means_[0, 0] += 1.0
    assert gm.mixture_ is not mixture and gm.mixture_.means[0, 0] == mixture.means[0, 0] + 1.0
    gm.weights_ = np.array([0.2, 0.3, 0.5])
    assert gm.mixture_.weights.tolist() == [0.2, 0.3, 0.5]
    before = gm.mixture_
    assert gm.set_params(covariance_type=before.covariance_type).fit(iris).mixture_ != before
    with pytest.raises(NotFittedError):
        _ = GaussianMixture().mixture_
    assert not hasattr(GaussianMixture(), "mixture_")


def test_it_evaluates_as_its_estimator_does(gm: GaussianMixture, iris: np.ndarray) -> None:
    mixture, frame = gm.mixture_, pd.DataFrame(iris, columns=list(NAMES))
    np.testing.assert_allclose(mixture.score_samples(frame), gm.score_samples(frame), rtol=1e-13)
    np.testing.assert_array_equal(mixture.predict(frame), gm.predict(frame))
    np.testing.assert_allclose(mixture.predict_proba(frame), gm.predict_proba(frame), rtol=1e-10, atol=1e-300)
    # Differences over a step of 1e-6, of log-densities near 1.
    step = np.array([1e-6, 0, 0, 0])
    slope = (mixture.score_samples(frame + step) - mixture.score_samples(frame - step)) / 2e-6
    np.testing.assert_allclose(mixture.score_function(frame)[:, 0], slope, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(mixture.sample(20, random_state=3), gm.set_params(random_state=3).sample(20), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    holes = frame.mask(frame > 6)
    with_missing = gm.set_params(missing=True).score_samples(holes)
    np.testing.assert_allclose(mixture.score_samples(holes, missing=True, device="reference"), with_missing, rtol=1e-10)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        mixture.score_samples(holes)
    with pytest.raises(ValueError, match="X has 3 features, but Mixture is expecting 4"):
        mixture.predict(iris[:, :3])
    with pytest.raises(ValueError, match="feature names"):
        mixture.predict(frame[["b", "a", "c", "d"]])


def test_it_is_shown_as_a_table() -> None:
    mixture = Mixture([0.25, 0.75], [[0.0, 1.5], [10.0, -2.0]], [[1.0, 4.0], [9.0, 0.25]], covariance_type="diag")
    head, columns, *rows = repr(mixture).splitlines()
    assert head == "Mixture of 2 components over 2 features, 'diag' covariances: means ± standard deviations"
    assert columns.split("  ")[-2:] == ["feature 0", "feature 1"]
    assert [row.split() for row in rows] == [
        ["0", "0.25", "0", "±", "1", "1.5", "±", "2"],
        ["1", "0.75", "10", "±", "3", "-2", "±", "0.5"],
    ]
    html = mixture._repr_html_()
    assert html.count("<tr>") == 3 and "<td>10 ± 3</td>" in html and "<th>feature 1</th>" in html
    named = Mixture([1.0], [[0.0]], [1.0], covariance_type="spherical", feature_names=["<x>"])
    assert "<th>&lt;x&gt;</th>" in named._repr_html_()
    many = Mixture(np.full(30, 1 / 30), np.zeros((30, 20)), np.ones(30))
    assert repr(many).splitlines()[-1] == "… and 10 more" and len(repr(many).splitlines()) == 23


def test_equality_pickles_and_copies(gm: GaussianMixture) -> None:
    mixture = gm.mixture_
    for other in (pickle.loads(pickle.dumps(mixture)), copy.deepcopy(mixture), pickle.loads(pickle.dumps(gm)).mixture_):
        assert other == mixture and hash(other) == hash(mixture) and other.feature_names == NAMES
    parameters = (mixture.weights, mixture.means, mixture.covariances)
    again = Mixture(*parameters, covariance_type=mixture.covariance_type, feature_names=NAMES)
    assert again == mixture
    nameless = Mixture(*parameters, covariance_type=mixture.covariance_type)
    assert nameless != mixture and mixture != "mixture"
    shifted = Mixture(mixture.weights, np.nextafter(mixture.means, np.inf), mixture.covariances, feature_names=NAMES)
    assert shifted != mixture
    with pytest.raises(AttributeError):
        mixture.means = mixture.means  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        mixture.means[0, 0] = 100.0
    with pytest.raises(ValueError, match="there are 2 feature_names for 4 features"):
        Mixture(*parameters, covariance_type=mixture.covariance_type, feature_names=["a", "b"])


@pytest.mark.parametrize("end", ["json", "npz"])
def test_files(gm: GaussianMixture, end: str, tmp_path: Path) -> None:
    mixture = gm.mixture_
    mixture.save(tmp_path / f"mixture.{end}")
    gm.save(tmp_path / f"estimator.{end}")
    for name in ("mixture", "estimator"):
        found = Mixture.load(tmp_path / f"{name}.{end}")
        assert found == mixture
        assert GaussianMixture.load(tmp_path / f"{name}.{end}").mixture_ == mixture
    twice = Mixture([1.0], [[0.0, 1.0]], [1.0], feature_names=["a", "a"])
    with pytest.warns(UserWarning, match="two features are called 'a'") as found_warnings:
        twice.save(tmp_path / f"twice.{end}")
    assert found_warnings[0].filename == __file__
    assert Mixture.load(tmp_path / f"twice.{end}").feature_names is None


def test_scikit_learn_and_estimators(gm: GaussianMixture, iris: np.ndarray) -> None:
    mixture, frame = gm.mixture_, pd.DataFrame(iris, columns=list(NAMES))
    theirs = mixture.to_sklearn()
    assert isinstance(theirs, sklearn.mixture.GaussianMixture)
    # scikit-learn's formulas round numbers near 100.
    np.testing.assert_allclose(theirs.score_samples(frame), mixture.score_samples(frame), rtol=1e-9)
    assert Mixture.from_sklearn(theirs) == mixture
    posterior = sklearn.mixture.BayesianGaussianMixture(n_components=2, random_state=0, max_iter=500).fit(iris)
    np.testing.assert_array_equal(Mixture.from_sklearn(posterior).means, posterior.means_)
    with pytest.raises(NotFittedError):
        Mixture.from_sklearn(sklearn.mixture.GaussianMixture())
    again = GaussianMixture.from_parameters(mixture, n_jobs=1)
    assert again.mixture_ == mixture and again.n_jobs == 1 and list(again.feature_names_in_) == list(NAMES)
    with pytest.raises(ValueError, match="beside a Mixture"):
        GaussianMixture.from_parameters(mixture, mixture.means)


def test_every_estimator_gives_its_mixture(iris: np.ndarray) -> None:
    labels = np.repeat([0, 1, 2], 50)
    posterior = BayesianGaussianMixture(n_components=2, random_state=0, max_iter=500).fit(iris)
    np.testing.assert_array_equal(posterior.mixture_.covariances, posterior.covariances_)
    detector = GaussianMixtureOutlierDetector(2, random_state=0).fit(iris)
    regressor = GaussianMixtureRegressor(2, random_state=0).fit(iris[:, :3], iris[:, 3])
    classifier = GaussianMixtureClassifier(2, random_state=0).fit(iris, labels)
    many = ManyMixtures(GaussianMixture(2, random_state=0)).fit(iris, labels)
    found = [posterior.mixture_, detector.mixture_, regressor.mixture_, *classifier.mixtures_, many[0].mixture_]
    assert all(type(mixture) is Mixture and mixture.n_features == 4 for mixture in found)
    # Each replaces its mixture as an argument.
    assert detector.mixture_.l2_distance(detector) == 0.0
    assert Mixture.sum([posterior, regressor, many[1]]).n_components == 6
    detector.mixture_ = posterior
    np.testing.assert_allclose(detector.score_samples(iris), posterior.mixture_.score_samples(iris), rtol=1e-12)


def test_the_mixtures_of_draws() -> None:
    x = np.concatenate([np.linspace(-1, 1, 20), np.linspace(9, 11, 20)])[:, np.newaxis]
    frame = pd.DataFrame(x, columns=["length"])
    fitted = GaussianMixture(2, covariance_type="diag", random_state=0).fit(frame)
    posterior = MixturePosterior(2, order=0, chains=2, warmup=100, draws=20, random_state=0)
    for init in (fitted, fitted.mixture_):
        posterior.fit(frame, init=init)
        assert len(posterior.mixtures_) == 40
    last = posterior.mixtures_[-1]
    np.testing.assert_array_equal(last.means, posterior.draws_["means"][-1, -1])
    predictive = Mixture.sum(posterior.mixtures_)
    assert predictive.n_components == 80 and predictive.feature_names == ("length",)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_a_likelihood_takes_mixtures(covariance_type: str) -> None:
    # With as many components as features, shapes leave the type open.
    x = np.random.default_rng(0).normal(size=(100, 2))
    gm = GaussianMixture(2, covariance_type=covariance_type, random_state=0).fit(x)
    other = GaussianMixture(1, random_state=0).fit(x)
    likelihood = Likelihood(x, covariance_type=covariance_type)
    parameters = (gm.weights_, gm.means_, gm.covariances_)
    for given in (gm, gm.mixture_):
        assert likelihood(given) == likelihood(*parameters)
        for method in (likelihood.score_samples, likelihood.score_function):
            np.testing.assert_array_equal(method(given), method(*parameters))
        for mine, right in zip(likelihood.gradient(given), likelihood.gradient(*parameters), strict=True):
            np.testing.assert_array_equal(mine, right)
        assert likelihood.statistics(given).log_likelihood == pytest.approx(likelihood(given), rel=1e-13)
    # The result of an M-step too.
    after = likelihood.statistics(gm).to_mixture(1e-6)
    assert likelihood(after) >= likelihood(gm) - 1e-6
    totals = likelihood([gm, other.mixture_])
    np.testing.assert_allclose(totals, [gm.score(x) * 100, other.score(x) * 100], rtol=1e-12)
    with pytest.raises(TypeError, match="or a mixture alone"):
        likelihood(gm.weights_, gm.means_)
    with pytest.raises(TypeError, match="what is evaluated is a ndarray; give a Mixture"):
        likelihood(gm.weights_)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_gradients_of_jax_take_mixtures(covariance_type: str) -> None:
    module = pytest.importorskip("gaussmix.jax", reason="JAX is not installed")
    x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    gm = GaussianMixture(2, covariance_type=covariance_type, random_state=0).fit(x)
    total = gm.score(x) * 100
    # float32.
    assert float(module.log_likelihood(x, gm)) == pytest.approx(total, rel=1e-5)
    assert float(module.LogLikelihood(x)(gm.mixture_)) == pytest.approx(total, rel=1e-5)
    with pytest.raises(ValueError, match="the mixture has"):
        module.log_likelihood(x, gm, covariance_type="tied" if covariance_type == "full" else "full")


@pytest.mark.parametrize("covariance_type", TYPES)
def test_gradients_of_torch_take_mixtures(covariance_type: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    module = pytest.importorskip("gaussmix.torch", reason="PyTorch is not installed")
    x = np.random.default_rng(0).normal(size=(100, 2))
    gm = GaussianMixture(2, covariance_type=covariance_type, random_state=0).fit(x)
    samples = torch.tensor(x, requires_grad=True)
    held = module.LogLikelihood(samples)
    np.testing.assert_allclose(held.score_samples(gm.mixture_).detach().numpy(), gm.score_samples(x), rtol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        total = module.log_likelihood(samples, gm)
    total.backward()
    assert total.item() == pytest.approx(gm.score(x) * 100, rel=1e-12)
    np.testing.assert_allclose(samples.grad.numpy(), gm.mixture_.score_function(x), rtol=1e-8, atol=1e-10)


def test_conditional_distributions_of_many_samples(gm: GaussianMixture, iris: np.ndarray) -> None:
    mixture = gm.mixture_
    regression = mixture.regression(["a", 2])
    x = iris[::15][:, [0, 2]]
    assert (regression.given, regression.wanted) == ((0, 2), (1, 3))
    for row, weights, means, mean in zip(
        x, regression.weights(x), regression.means(x), regression.predict(x), strict=True
    ):
        conditional = mixture.condition({"a": row[0], "c": row[1]})
        np.testing.assert_allclose(weights, conditional.weights, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(means, conditional.means, rtol=1e-11)
        np.testing.assert_allclose(mean, conditional.weights @ conditional.means, rtol=1e-10)
    if gm.covariance_type == "full":
        np.testing.assert_allclose(regression.covariances, mixture.condition({0: 5.0, 2: 3.0}).covariances, rtol=1e-11)
    for given, wanted in ((["a", "a"], None), ("a", "a"), (range(4), None)):
        with pytest.raises(ValueError, match="name each feature once"):
            mixture.regression(given, wanted)
    with pytest.raises(ValueError, match=r"give \(n_samples, 2\)"):
        regression.predict(iris)


def test_onnx_of_a_mixture(gm: GaussianMixture, iris: np.ndarray) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    for graph in (gm.mixture_.to_onnx(), gaussmix.to_onnx(gm.mixture_)):
        session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
        label, _, score = session.run(["label", "probabilities", "score"], {"X": iris})
        np.testing.assert_array_equal(label, gm.mixture_.predict(pd.DataFrame(iris, columns=list(NAMES))))
        np.testing.assert_allclose(score, gm.score_samples(pd.DataFrame(iris, columns=list(NAMES))), rtol=1e-9)


def test_a_mixture_is_drawn(iris: np.ndarray) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    mixture = GaussianMixture(2, random_state=0).fit(iris).mixture_
    holes = iris.copy()
    holes[:3, 0] = np.nan
    assert plot(mixture, holes, features=(0, 2)).get_title() == "150 samples, 2 components"
    regressor = GaussianMixtureRegressor(2, random_state=0).fit(iris[:, :1], iris[:, 1])
    assert plot(regressor, iris[:, :2]).get_title() == "150 samples, 2 components"
    assert plot(mixture.marginal(0)).get_ylabel() == "density"
    plt.close("all")


def test_results_are_shown_as_tables(iris: np.ndarray) -> None:
    selection = select(iris, range(1, 4), random_state=0)
    lines = repr(selection).splitlines()
    assert lines[0] == "Selection by BIC, best: 'full' covariances, 2 components" and len(lines) == 5
    assert lines[1].split()[:3] == ["covariance_type", "n_components", "n_parameters"] and "BIC" in lines[1]
    assert selection._repr_html_().count("<tr>") == 4
    many = ManyMixtures(GaussianMixture(2, random_state=0))
    assert repr(many).startswith("ManyMixtures(")
    assert "<table><thead>" not in many._repr_mimebundle_()["text/html"]
    many.fit(iris, np.repeat(["setosa", "versicolor", "virginica"], 50))
    lines = repr(many).splitlines()
    assert lines[0].startswith("3 fits of GaussianMixture(n_components=2") and len(lines) == 5
    assert lines[2].split()[:2] == ["setosa", "50"]
    assert many._repr_mimebundle_()["text/html"].count("<tr>") == 4


def test_a_callback_gets_mixtures(iris: np.ndarray) -> None:
    for kind in (GaussianMixture, BayesianGaussianMixture):
        seen: list[Mixture] = []
        gm = kind(n_components=2, random_state=0, max_iter=500, callback=lambda step, seen=seen: seen.append(step.mixture))
        gm.fit(pd.DataFrame(iris, columns=list(NAMES)))
        assert type(seen[-1]) is Mixture and seen[-1].feature_names == NAMES
        np.testing.assert_allclose(seen[-1].means, gm.means_, rtol=1e-13)


def test_warnings_name_the_line_of_the_caller(iris: np.ndarray) -> None:
    def lines(call: Callable[[], object]) -> set[tuple[str, int]]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call()
        assert found
        return {(warning.filename, warning.lineno) for warning in found}

    calls = [
        lambda: GaussianMixture(3, max_iter=1, random_state=0).fit(iris),
        lambda: GaussianMixture(3, max_iter=1, random_state=0).fit_predict(iris),
        lambda: GaussianMixture(1, missing=True).fit(np.r_[iris, np.full((1, 4), np.nan)]),
        lambda: GaussianMixture(2, reg_covar=10.0).fit(iris),
        lambda: GaussianMixture(3).fit(np.repeat([[0.0], [1.0]], 5, axis=0)),
        lambda: select(iris[:3], 4, reg_covar=1e-9),
        lambda: ManyMixtures(GaussianMixture(3, max_iter=1)).fit([iris]),
    ]
    for call in calls:
        assert lines(call) == {(__file__, call.__code__.co_firstlineno)}


@pytest.mark.parametrize("kind", [GaussianMixture, BayesianGaussianMixture])
def test_an_estimator_has_few_methods(kind: type) -> None:
    names = [name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))]
    counted = {name for name in names if not name.endswith("_request") and name not in ("get_metadata_routing", "set_callbacks")}
    assert len(counted) <= 19
    of_the_value = {name for name in vars(Mixture) if not name.startswith("_")}
    both = {"from_sklearn", "to_sklearn", "load", "save", "sample", "predict", "predict_proba", "score_samples"}
    assert counted & of_the_value == both
    assert not hasattr(gaussmix, "BayesianMixture")
