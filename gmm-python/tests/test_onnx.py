"""Models as ONNX, run by onnxruntime: labels are equal, and numbers to the rounding of their type."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussmix import (
    BayesianGaussianMixture,
    GaussianMixture,
    GaussianMixtureClassifier,
    GaussianMixtureOutlierDetector,
    GaussianMixtureRegressor,
    register_skl2onnx,
    to_onnx,
)

pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

KINDS = ["full", "tied", "diag", "spherical"]
SPECIES = np.repeat(["setosa", "versicolor", "virginica"], 50)
#: For log densities up to 10³, in float64 and float32; probabilities and means are smaller.
TOLERANCES = {np.float64: 1e-9, np.float32: 1e-3}


def run(graph, x):
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, {"X": x}), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mixture", [GaussianMixture, BayesianGaussianMixture])
def test_mixtures(iris, mixture, kind, global_dtype):
    x = iris.astype(global_dtype)
    gm = mixture(n_components=4, covariance_type=kind, random_state=0, max_iter=500).fit(x)
    x = np.concatenate([x, x[::-1] + np.asarray(0.5, dtype=global_dtype)])
    found, tolerance = run(to_onnx(gm), x), TOLERANCES[global_dtype]
    assert found["score"].dtype == found["probabilities"].dtype == global_dtype
    assert np.array_equal(found["label"], gm.predict(x))
    np.testing.assert_allclose(found["score"], gm.score_samples(x), rtol=1e-5, atol=tolerance)
    np.testing.assert_allclose(found["probabilities"], gm.predict_proba(x), atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_of_float64_as_float32(iris, kind):
    gm = GaussianMixture(3, covariance_type=kind, random_state=0).fit(iris)
    found = run(to_onnx(gm, dtype=np.float32), iris.astype(np.float32))
    assert found["score"].dtype == np.float32 and np.array_equal(found["label"], gm.predict(iris))
    np.testing.assert_allclose(found["score"], gm.score_samples(iris), atol=1e-3)


@pytest.mark.parametrize("classes", [SPECIES, np.repeat([7, -2, 5], 50), np.repeat([True, False], [50, 100])])
def test_classifiers(iris, classes):
    classifier = GaussianMixtureClassifier(2, covariance_type="diag", random_state=0, max_iter=500).fit(iris, classes)
    found = run(to_onnx(classifier), iris)
    assert found["label"].tolist() == classifier.predict(iris).tolist()
    np.testing.assert_allclose(found["probabilities"], classifier.predict_proba(iris), atol=1e-9)


def test_outlier_detectors(iris):
    detector = GaussianMixtureOutlierDetector(3, random_state=0).fit(iris)
    found = run(to_onnx(detector), iris)
    assert np.array_equal(found["label"], detector.predict(iris)) and (found["label"] == -1).sum() == 15
    np.testing.assert_allclose(found["score"], detector.decision_function(iris), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("targets", [1, 2])
def test_regressors(iris, kind, targets):
    x, y = iris[:, :2], iris[:, 2 : 2 + targets]
    regressor = GaussianMixtureRegressor(3, covariance_type=kind, random_state=0).fit(x, y)
    found, (mean, std) = run(to_onnx(regressor), x), regressor.predict(x, return_std=True)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-9)
    np.testing.assert_allclose(found["std"], std, rtol=1e-9)


def test_the_number_of_samples_is_open(iris):
    graph = to_onnx(GaussianMixture(2, random_state=0).fit(iris))
    assert graph.graph.input[0].type.tensor_type.shape.dim[1].dim_value == 4
    assert [len(run(graph, iris[:n])["label"]) for n in (1, 7)] == [1, 7]


def test_what_cannot_be_is_refused(iris):
    from sklearn.exceptions import NotFittedError
    from sklearn.linear_model import LinearRegression

    with pytest.raises(TypeError, match="the model is a LinearRegression"):
        to_onnx(LinearRegression())
    with pytest.raises(NotFittedError):
        to_onnx(GaussianMixture(2))
    with pytest.raises(ValueError, match="give float32 or float64"):
        to_onnx(GaussianMixture(2).fit(iris), dtype=np.int32)
    with pytest.raises(TypeError, match="no labels of the type float64"):
        to_onnx(GaussianMixtureClassifier().fit(iris, np.repeat([0.0, 1.0], 75)))


@pytest.mark.parametrize(
    "model",
    [
        GaussianMixture(3, random_state=0),
        BayesianGaussianMixture(n_components=3, random_state=0, max_iter=500),
        GaussianMixtureClassifier(random_state=0),
        GaussianMixtureOutlierDetector(3, random_state=0),
        GaussianMixtureRegressor(2, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_pipelines_by_skl2onnx(iris, model, global_dtype):
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    register_skl2onnx()
    target = SPECIES if isinstance(model, GaussianMixtureClassifier) else iris[:, 3].astype(global_dtype)
    x = iris[:, :3].astype(global_dtype)
    # The scaled samples are not named X, and the nodes have other names too.
    pipeline = make_pipeline(StandardScaler(), StandardScaler(), model).fit(x, target)
    found = run(skl2onnx.to_onnx(pipeline, x[:1]), x)
    if isinstance(model, GaussianMixtureRegressor):
        np.testing.assert_allclose(found["mean"].ravel(), pipeline.predict(x), atol=TOLERANCES[global_dtype])
    else:
        assert found["label"].tolist() == pipeline.predict(x).tolist()
    if isinstance(model, GaussianMixture):
        np.testing.assert_allclose(found["score"], pipeline.score_samples(x), atol=TOLERANCES[global_dtype])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_beyond_all_squares(iris, kind, global_dtype):
    """They have -inf and the probabilities of the nearest component, and do not affect the others."""
    far = 1e160 if global_dtype == np.float64 else 1e25
    x = np.concatenate([iris[:3], np.array([[far, 0, 0, 0], [0, -far, far, 0]])]).astype(global_dtype)
    gm = GaussianMixture(3, covariance_type=kind, random_state=0).fit(iris.astype(global_dtype))
    found, tolerance = run(to_onnx(gm), x), TOLERANCES[global_dtype]
    assert np.isneginf(found["score"][3:]).all()
    np.testing.assert_allclose(found["probabilities"].sum(axis=1), 1, atol=tolerance)
    np.testing.assert_allclose(found["probabilities"][:3], gm.predict_proba(x[:3]), atol=tolerance)
    if kind != "tied":  # Rounding decides which of equal covariances is nearest.
        np.testing.assert_allclose(found["probabilities"], gm.predict_proba(x), atol=tolerance)
        assert np.array_equal(found["label"], gm.predict(x))
    classifier = GaussianMixtureClassifier(covariance_type=kind, random_state=0).fit(iris, SPECIES)
    x = x.astype(np.float64)
    x[3:] *= 1e160 / far
    proba = run(to_onnx(classifier), x)["probabilities"]
    np.testing.assert_allclose(proba, classifier.predict_proba(x), atol=1e-9)
    regressor = GaussianMixtureRegressor(3, covariance_type=kind, random_state=0).fit(iris[:, :3], iris[:, 3])
    assert np.isfinite(run(to_onnx(regressor), x[:, :3])["mean"]).all()


def test_the_options_of_skl2onnx(iris):
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    register_skl2onnx()
    classifier = GaussianMixtureClassifier(random_state=0).fit(iris, SPECIES)
    for options, labels in (({"zipmap": False}, classifier.predict(iris)), ({"nocl": True}, classifier.predict_proba(iris).argmax(axis=1))):
        found = run(skl2onnx.to_onnx(classifier, iris[:1], options={id(classifier): options}), iris)
        assert found["label"].tolist() == labels.tolist()
        np.testing.assert_allclose(found["probabilities"], classifier.predict_proba(iris), atol=1e-9)
    for gm in (GaussianMixture(2, random_state=0), BayesianGaussianMixture(n_components=2, random_state=0, max_iter=500)):
        gm.fit(iris)
        for wanted in (True, False):
            found = run(skl2onnx.to_onnx(gm, iris[:1], options={"score_samples": wanted}), iris)
            assert ("score" in found) == wanted and found["label"].tolist() == gm.predict(iris).tolist()
