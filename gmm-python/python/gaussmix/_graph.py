"""Graphs of ONNX, and that of a mixture."""

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from . import _core

#: Versions of the operators and of the format, which runtimes of the last years read.
OPSET, _FORMAT = 18, 9


class Graph:
    """Nodes and constants, as they are added; each has a number for its name."""

    def __init__(self, dtype: DTypeLike) -> None:
        try:
            import onnx
        except ImportError as error:
            raise ImportError("to_onnx needs the package onnx; install it with `pip install gaussmix[onnx]`") from error
        self.onnx, self.dtype = onnx, np.dtype(dtype)
        if self.dtype not in (np.float32, np.float64):
            raise ValueError(f"dtype is {self.dtype}; give float32 or float64")
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._outputs: list[Any] = []

    def constant(self, values: Any) -> str:
        """Add a constant; numbers in float64 get the type of the graph."""
        array = np.asarray(values)
        if array.dtype == np.float64:
            array = array.astype(self.dtype)
        name = f"c{len(self._constants)}"
        self._constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, dtype=np.float64))

    def whole(self, *values: int) -> str:
        """Add whole numbers, such as axes and shapes."""
        return self.constant(np.array(values, dtype=np.int64))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and give the name of its result."""
        name = f"n{len(self._nodes)}"
        self._nodes.append(self.onnx.helper.make_node(operator, inputs, [name], **attributes))
        return name

    def give(self, name: str, result: str, dtype: np.dtype[Any] | None = None) -> None:
        """Make a result an output."""
        self._nodes.append(self.onnx.helper.make_node("Identity", [result], [name]))
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(self.dtype if dtype is None else dtype)
        # Only the number of samples is open; other dimensions follow from the nodes.
        shape = {"label": ["n_samples"], "score": ["n_samples"]}.get(name, ["n_samples", None])
        self._outputs.append(self.onnx.helper.make_tensor_value_info(name, kind, shape))

    def model(self, name: str, n_features: int) -> Any:
        """Put all together under a name, and have it checked."""
        helper = self.onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        x = helper.make_tensor_value_info("X", kind, ["n_samples", n_features])
        graph = helper.make_graph(self._nodes, name, [x], self._outputs, self._constants)
        made = helper.make_model(
            graph,
            producer_name="gaussmix",
            producer_version=_core.__version__,
            ir_version=_FORMAT,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        self.onnx.checker.check_model(made, full_check=True)
        return made


def log_densities(graph: Graph, mixture: _core.Mixture, log_weight: float = 0.0) -> tuple[str, str]:
    """Add the logarithm of weight times density of each component, (n_samples, n_components).

    Add besides what the shares of the components follow from: the same, but of a sample that no
    component reaches that of the nearest ones without its distance.
    """
    if mixture.noise is not None:
        raise ValueError("a graph has no component for noise; take the Gaussians alone (without_noise)")
    weights, means, factors = mixture.weights, mixture.means, mixture.precisions_cholesky
    k, d = means.shape
    if mixture.covariance_type in ("full", "tied"):
        factors = np.broadcast_to(factors, (k, d, d))
        # (x - μ)·U for all components is one product of x - centre.
        centre = weights @ means
        product = graph.add(
            "MatMul", graph.add("Sub", "X", graph.constant(centre)), graph.constant(factors.transpose(1, 0, 2).reshape(d, k * d))
        )
        shifts = ((centre - means)[:, np.newaxis] @ factors).reshape(k * d)
        terms = graph.add("Reshape", graph.add("Add", product, graph.constant(shifts)), graph.whole(0, k, d))
        log_determinants = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    else:
        factors = np.broadcast_to(factors.reshape(k, -1), (k, d))
        differences = graph.add("Sub", graph.add("Unsqueeze", "X", graph.whole(1)), graph.constant(means))
        terms = graph.add("Mul", differences, graph.constant(factors))
        log_determinants = np.log(factors).sum(axis=1)
    squares = graph.add("ReduceSumSquare", terms, graph.whole(2), keepdims=0)
    with np.errstate(divide="ignore"):
        constants = log_weight + np.log(weights) + log_determinants - d / 2 * math.log(2 * math.pi)
    logs = graph.add("Sub", graph.constant(constants), graph.add("Mul", squares, graph.number(0.5)))
    # The squares of such a sample overflow, but not those of a small part of its distance.
    part = graph.number(1e-200 if graph.dtype == np.float64 else 1e-30)
    squares = graph.add("ReduceSumSquare", graph.add("Mul", terms, part), graph.whole(2), keepdims=0)
    squares = graph.add("Add", squares, graph.constant(np.where(np.isfinite(constants), 0.0, np.inf)))
    least = graph.add("ReduceMin", squares, graph.whole(1))
    nearest = graph.add("LessOrEqual", squares, least)
    from_afar = graph.add("Where", nearest, graph.constant(constants), graph.number(-math.inf))
    return logs, graph.add("Where", is_reached(graph, logs), logs, from_afar)


def is_reached(graph: Graph, logs: str) -> str:
    """Add whether any of a sample's logarithms is more than -inf, (n_samples, 1)."""
    return graph.add("Greater", graph.add("ReduceMax", logs, graph.whole(1)), graph.number(-math.inf))


def log_sum(graph: Graph, logs: str, keepdims: int = 0) -> str:
    return graph.add("ReduceLogSumExp", logs, graph.whole(1), keepdims=keepdims)


def mixture_graph(mixture: _core.Mixture, dtype: DTypeLike | None, log_factor: float = 0.0) -> Graph:
    """Make the graph of a mixture, in float64 unless told otherwise; `log_factor` is added to its log densities."""
    graph = Graph(np.float64 if dtype is None else dtype)
    logs, shares = log_densities(graph, mixture)
    graph.give("label", graph.add("ArgMax", shares, axis=1, keepdims=0), np.dtype(np.int64))
    graph.give("probabilities", graph.add("Softmax", shares, axis=1))
    graph.give("score", graph.add("Add", log_sum(graph, logs), graph.number(log_factor)))
    return graph
