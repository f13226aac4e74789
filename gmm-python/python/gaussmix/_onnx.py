"""Fitted models as ONNX, which other languages and devices run."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.utils.validation import check_is_fitted

from . import _core
from ._classifier import GaussianMixtureClassifier
from ._estimator import GaussianMixture
from ._graph import OPSET, Graph, is_reached, log_densities, log_sum, mixture_graph
from ._mixture import Mixture
from ._outliers import GaussianMixtureOutlierDetector
from ._regressor import GaussianMixtureRegressor
from ._variational import BayesianGaussianMixture

Model = GaussianMixture | BayesianGaussianMixture | GaussianMixtureClassifier | GaussianMixtureOutlierDetector | GaussianMixtureRegressor


def to_onnx(model: Model | Mixture, *, dtype: DTypeLike | None = None) -> Any:
    """Return an `onnx.ModelProto`, a graph of what a fitted model predicts, which ``onnx.save`` writes.

    It needs the package onnx: ``pip install gaussmix[onnx]``. The graph takes ``X``, of shape (n_samples, n_features),
    without missing values. It gives

    - of a mixture ``label``, ``probabilities`` and ``score`` (the log density);
    - of a classifier ``label`` and ``probabilities``;
    - of an outlier detector ``label`` (1 or -1) and ``score``, the decision function;
    - of a regressor ``mean`` and ``std``, of shape (n_samples, n_targets).
    Parameters:
    model : Mixture or estimator -- The mixture, or a fitted estimator of this package.
    dtype : dtype, default=None
        The type of ``X`` and of the numbers: float64, or float32 for runtimes that have no other, which is less
        exact where features are nearly collinear. By default that of the fitted attributes.
    """
    graph = _graph(model, dtype)
    return graph.model(type(model).__name__, model.n_features if isinstance(model, Mixture) else model.n_features_in_)


def register_skl2onnx() -> None:
    """Make skl2onnx know the models of this package, so that it converts pipelines with them.

    It needs the package skl2onnx. The outputs are those of `to_onnx`, in the type of the pipeline's numbers. Of the
    options of scikit-learn's own classes a classifier takes ``zipmap`` (its probabilities are an array with either
    value) and ``nocl`` (``True`` numbers the classes from 0), and a mixture ``score_samples`` (``False`` leaves out
    ``score``).
    Examples:
    >>> import gaussmix
    >>> gaussmix.register_skl2onnx()  # doctest: +SKIP
    >>> onx = skl2onnx.to_onnx(make_pipeline(StandardScaler(), GaussianMixture(3)).fit(X), X[:1])  # doctest: +SKIP
    """
    try:
        import skl2onnx
    except ImportError as error:
        raise ImportError("register_skl2onnx needs the package skl2onnx; install it with `pip install skl2onnx`") from error
    for kind in Model.__args__:
        alias = f"Gaussmix{kind.__name__}"
        skl2onnx.update_registered_converter(kind, alias, lambda operator: None, _convert, parser=_parse, options=_OPTIONS.get(kind))


#: The options of skl2onnx that a class takes, and their values.
_OPTIONS: dict[type, dict[str, list[bool]]] = {
    GaussianMixture: {"score_samples": [True, False]},
    BayesianGaussianMixture: {"score_samples": [True, False]},
    GaussianMixtureClassifier: {"zipmap": [True, False], "nocl": [True, False]},
}


def _graph_of(scope: Any, operator: Any) -> Graph:
    """Make the graph of a model under the options that skl2onnx was given, in the type of the operator's input."""
    from skl2onnx.common.data_types import DoubleTensorType

    model, is_double = operator.raw_operator, isinstance(operator.inputs[0].type, DoubleTensorType)
    options = scope.get_options(model, {}, fail=False)
    graph = _graph(model, np.float64 if is_double else np.float32, numbered=options.get("nocl", False))
    if not options.get("score_samples", True):
        graph._outputs = [output for output in graph._outputs if output.name != "score"]
    return graph


def _parse(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    """Declare the outputs of a model to skl2onnx."""
    from skl2onnx import get_model_alias
    from skl2onnx.common import data_types

    operator = scope.declare_local_operator(get_model_alias(type(model)), model)
    operator.inputs = list(inputs)
    for output in _graph_of(scope, operator)._outputs:
        kind = {1: "Float", 7: "Int64", 8: "String", 11: "Double"}[output.type.tensor_type.elem_type]
        shape = [None] * len(output.type.tensor_type.shape.dim)
        operator.outputs.append(scope.declare_local_variable(output.name, getattr(data_types, f"{kind}TensorType")(shape)))
    return operator.outputs


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the graph of a model to one of skl2onnx."""
    graph = _graph_of(scope, operator)
    names: dict[str, str] = {"X": operator.inputs[0].full_name}
    names.update(zip((output.name for output in graph._outputs), (o.full_name for o in operator.outputs), strict=True))

    def name_of(name: str) -> str:
        if name not in names:
            names[name] = scope.get_unique_variable_name(f"gaussmix_{name}")
        return names[name]

    for constant in graph._constants:
        values = graph.onnx.numpy_helper.to_array(constant)
        container.add_initializer(name_of(constant.name), constant.data_type, values.shape, values.ravel().tolist())
    for node in graph._nodes:
        attributes = {a.name: graph.onnx.helper.get_attribute_value(a) for a in node.attribute}
        inputs, outputs = [name_of(name) for name in node.input], [name_of(name) for name in node.output]
        unique = scope.get_unique_operator_name("gaussmix")
        container.add_node(node.op_type, inputs, outputs, op_version=OPSET, name=unique, **attributes)


def _graph(model: Model | Mixture, dtype: DTypeLike | None, numbered: bool = False) -> Graph:
    """Make the nodes and outputs of a model, of a classifier with its labels or the numbers of its classes."""
    if isinstance(model, Mixture):
        return mixture_graph(model._engine, dtype)
    if not isinstance(model, Model):
        raise TypeError(f"the model is a {type(model).__name__}; give a fitted mixture or estimator of this package")
    check_is_fitted(model)
    if dtype is None:
        gms: Any = getattr(model, "_gms", None) or [getattr(model, "_gm", model)]
        dtype = np.result_type(*(gm._type() for gm in gms))
    if isinstance(model, GaussianMixture | BayesianGaussianMixture):
        return mixture_graph(model._mixture(), dtype, model._log_factor())
    graph = Graph(dtype)
    if isinstance(model, GaussianMixtureClassifier):
        _classifier(graph, model, np.arange(len(model.classes_)) if numbered else model.classes_)
    elif isinstance(model, GaussianMixtureOutlierDetector):
        total = log_sum(graph, log_densities(graph, model.mixture_._engine)[0])
        difference = graph.add("Sub", total, graph.number(model.offset_))
        outlier = graph.add("Less", difference, graph.number(0.0))
        labels = [graph.constant(np.array(label, dtype=np.int64)) for label in (-1, 1)]
        graph.give("label", graph.add("Where", outlier, *labels), np.dtype(np.int64))
        graph.give("score", difference)
    else:
        _regressor(graph, model)
    return graph


def _classifier(graph: Graph, model: GaussianMixtureClassifier, labels: ArrayLike) -> None:
    classes = np.asarray(labels)
    if classes.dtype.kind in "US" or classes.dtype == object:
        classes, kind = np.array([str(label) for label in classes], dtype=object), np.dtype(object)
    elif classes.dtype.kind in "iub":
        classes, kind = classes.astype(np.int64), np.dtype(np.int64)
    else:
        raise TypeError(f"ONNX has no labels of the type {classes.dtype}; fit to whole numbers or text")
    with np.errstate(divide="ignore"):
        priors = np.log(model.priors_)
    totals = [
        log_sum(graph, log_densities(graph, mixture._engine, float(prior))[0], keepdims=1)
        for mixture, prior in zip(model.mixtures_, priors, strict=True)
    ]
    joint = graph.add("Concat", *totals, axis=1)
    joint = graph.add("Where", is_reached(graph, joint), joint, graph.constant(priors))
    number = graph.add("ArgMax", joint, axis=1, keepdims=0)
    graph.give("label", graph.add("Gather", graph.constant(classes), number, axis=0), kind)
    graph.give("probabilities", graph.add("Softmax", joint, axis=1))


def _regressor(graph: Graph, model: GaussianMixtureRegressor) -> None:
    d, t = model.n_features_in_, model.n_targets_
    mixture = model.mixture_._engine
    regression, marginal = _core.Regression(mixture, range(d), range(d, d + t)), mixture.marginal(range(d))
    slopes, k = regression.slopes, len(mixture.weights)
    # Products of x - centre lose no digits where the data is far from 0.
    centre = mixture.weights @ marginal.means
    shifts = mixture.means[:, d:] - (slopes @ (marginal.means - centre)[:, :, np.newaxis])[:, :, 0]
    shares = graph.add("Softmax", log_densities(graph, marginal)[1], axis=1)
    # (n_samples, 1, n_components), to multiply (n_samples, n_components, n_targets) by.
    shares = graph.add("Unsqueeze", shares, graph.whole(1))
    centred = graph.add("Sub", "X", graph.constant(centre))
    products = graph.add("MatMul", centred, graph.constant(slopes.reshape(k * t, d).T))
    means = graph.add("Add", products, graph.constant(shifts.reshape(k * t)))
    means = graph.add("Reshape", means, graph.whole(0, k, t))
    mean = graph.add("MatMul", shares, means)
    deviations = graph.add("Sub", means, mean)
    squares = graph.add("Add", graph.add("Mul", deviations, deviations), graph.constant(regression.variances))
    graph.give("mean", graph.add("Squeeze", mean, graph.whole(1)))
    graph.give("std", graph.add("Squeeze", graph.add("Sqrt", graph.add("MatMul", shares, squares)), graph.whole(1)))
