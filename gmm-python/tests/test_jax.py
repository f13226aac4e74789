"""The log-likelihood in JAX's automatic differentiation."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

jax = pytest.importorskip("jax")
gj = pytest.importorskip("gaussmix.jax")

TYPES = ["full", "tied", "diag", "spherical"]


@pytest.fixture(autouse=True)
def float64():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def problem(covariance_type, n=7, k=3, d=2):
    """Return samples and parameters, with weights that do not sum to 1."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(k, d, d)) / 2 + np.eye(d)
    full = factors @ factors.transpose(0, 2, 1)
    covariances = {
        "full": full,
        "tied": full[0],
        "diag": rng.uniform(0.5, 2.0, size=(k, d)),
        "spherical": rng.uniform(0.5, 2.0, size=k),
    }[covariance_type]
    return rng.normal(size=(n, d)), rng.uniform(0.2, 1.5, size=k), rng.normal(size=(k, d)), covariances


def by_logsumexp(x, weights, means, covariances, covariance_type):
    """The log-likelihood of each sample, in JAX's operations."""
    k, d = means.shape
    if covariance_type in ("diag", "spherical"):
        variances = covariances if covariance_type == "diag" else covariances[:, None] * jax.numpy.ones((k, d))
        matrices = jax.vmap(jax.numpy.diag)(variances)
    else:
        matrices = jax.numpy.broadcast_to(covariances, (k, d, d))
        matrices = (matrices + matrices.mT) / 2
    parts = jax.vmap(jax.scipy.stats.multivariate_normal.logpdf, (None, 0, 0))(x, means, matrices)
    return jax.scipy.special.logsumexp(parts + jax.numpy.log(weights)[:, None], axis=0)


def test_the_package_imports_neither_jax_nor_torch():
    code = "import sys, gaussmix; assert not {'torch', 'jax'} & set(sys.modules), 'imported'"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("jit", [False, True])
def test_it_is_what_jax_gives(covariance_type, jit):
    inputs = problem(covariance_type)
    v = np.linspace(0.5, 2.0, 7)
    mine = lambda *given: gj.log_likelihood(*given, covariance_type=covariance_type, sample_weight=v) ** 2 / 100  # noqa: E731
    theirs = lambda *given: (v @ by_logsumexp(*given, covariance_type)) ** 2 / 100  # noqa: E731
    differentiate = lambda f: jax.value_and_grad(f, argnums=(0, 1, 2, 3))  # noqa: E731
    value, gradient = (jax.jit(differentiate(mine)) if jit else differentiate(mine))(*inputs)
    right, expected = jax.jit(differentiate(theirs))(*inputs)
    np.testing.assert_allclose(value, right, rtol=1e-12)
    for a, b in zip(gradient, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    # Loaded once.
    held = gj.LogLikelihood(inputs[0], v, covariance_type=covariance_type)
    value, gradient = jax.value_and_grad(lambda *given: held(*given) ** 2 / 100, argnums=(0, 1, 2))(*inputs[1:])
    np.testing.assert_allclose(value, right, rtol=1e-12)
    for a, b in zip(gradient, expected[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_the_value_is_scipy_s():
    x, weights, means, covariances = problem("full")
    parts = [stats.multivariate_normal(m, c).logpdf(x) + np.log(w) for w, m, c in zip(weights, means, covariances)]
    np.testing.assert_allclose(gj.log_likelihood(x, weights, means, covariances), logsumexp(parts, axis=0).sum(), rtol=1e-12)


def test_float32_and_many_samples():
    jax.config.update("jax_enable_x64", False)
    x, *parameters = problem("diag", n=50_000, d=4)
    x = jax.numpy.asarray(x)
    assert x.dtype == np.float32
    held = gj.LogLikelihood(x)
    for function in (held, lambda *given: gj.log_likelihood(x, *given)):
        value, gradient = jax.jit(jax.value_and_grad(function, argnums=(0, 1, 2)))(*parameters)
        assert value.dtype == np.float32 and all(part.dtype == np.float32 for part in gradient)
        # The total in float32.
        np.testing.assert_allclose(value, by_logsumexp(x, *parameters, "diag").sum(), rtol=1e-5)


def test_samples_are_freed():
    x, *parameters = problem("diag")
    weights = np.ones(7)
    held = gj.LogLikelihood(x, weights)
    kept, value = weakref.ref(held._source.held), held(*parameters)
    weights[:] = 2.0
    assert held(*parameters) == value and len(jax.grad(held)(*parameters)) == 3
    del held
    gc.collect()
    assert kept() is None
    # A compiled function keeps its own.
    function = jax.jit(lambda *given: gj.LogLikelihood(x)(*given))
    assert function(*parameters) == value and function(*parameters) == value


def test_vmap_is_one_after_the_other():
    x, weights, means, covariances = problem("diag")
    several = np.stack([means, means + 0.5, means - 1.0])
    function = lambda m: gj.log_likelihood(x, weights, m, covariances)  # noqa: E731
    right = [jax.grad(function)(m) for m in several]
    np.testing.assert_array_equal(jax.vmap(jax.grad(function))(several), right)
    np.testing.assert_array_equal(jax.vmap(function)(several), [function(m) for m in several])


@pytest.mark.parametrize("jit", [False, True])
def test_the_derivative_by_a_weight_is_the_log_density_of_its_sample(jit):
    inputs, v = problem("full"), np.linspace(0.5, 2.0, 7)
    differentiate = jax.grad(lambda x, v: gj.log_likelihood(x, *inputs[1:], sample_weight=v) ** 2 / 100, argnums=(0, 1))
    by_samples, by_weights = (jax.jit(differentiate) if jit else differentiate)(inputs[0], v)
    theirs = jax.grad(lambda x, v: (v @ by_logsumexp(x, *inputs[1:], "full")) ** 2 / 100, argnums=(0, 1))(inputs[0], v)
    np.testing.assert_allclose(by_samples, theirs[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(by_weights, theirs[1], rtol=1e-9, atol=1e-9)
    with pytest.raises(TypeError, match="samples and their weights"):
        jax.grad(lambda v: gj.LogLikelihood(inputs[0], v)(*inputs[1:]))(v)


def test_shapes_are_checked_before_anything_runs():
    x, weights, means, covariances = problem("diag", d=3)
    for function in (gj.LogLikelihood(x, covariance_type="diag"), lambda *given: gj.log_likelihood(x, *given)):
        for compiled in (function, jax.jit(function), jax.grad(function)):
            with pytest.raises(ValueError, match=r"means have the shape \(3, 2\); .* it is \(3, 3\)"):
                compiled(weights, means[:, :2], covariances)
            with pytest.raises(ValueError, match=r"weights have the shape \(1, 3\)"):
                compiled(weights[None], means, covariances)
            with pytest.raises(ValueError, match=r"covariances have the shape \(2, 3\); give .*\(3, 3\)"):
                compiled(weights, means, covariances[:2])
    with pytest.raises(ValueError, match=r"sample weights have the shape \(6,\)"):
        gj.log_likelihood(x, weights, means, covariances, sample_weight=np.ones(6))


def test_what_cannot_be_is_refused():
    inputs = problem("full")
    x, weights, means, covariances = inputs
    function = lambda m: gj.log_likelihood(x, weights, m, covariances)  # noqa: E731
    for second in (jax.hessian(function), jax.grad(lambda m: jax.grad(function)(m).sum())):
        with pytest.raises(NotImplementedError, match="no second ones.* in operations of JAX"):
            second(means)
    with pytest.raises(NotImplementedError, match="no second ones"):
        jax.grad(lambda s: jax.grad(gj.log_likelihood)(s, *inputs[1:]).sum())(x)
    with pytest.raises(TypeError, match="use log_likelihood"):
        jax.jit(lambda s: gj.LogLikelihood(s)(weights, means, covariances))(x)
    with pytest.raises(Exception, match="weights sum to 0"):
        gj.log_likelihood(x, weights * 0, means, covariances)


def test_a_hidden_markov_model_is_compiled():
    from gaussmix.hmm import Likelihood

    rng = np.random.default_rng(0)
    x, lengths = rng.normal(size=(40, 2)), [25, 15]
    parameters = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), 3), rng.normal(size=(3, 2)), rng.uniform(0.5, 2.0, size=(3, 2))
    function = gj.MarkovLogLikelihood(x, lengths)
    value, gradient = jax.jit(jax.value_and_grad(lambda *given: 3 * function(*given), argnums=(0, 1, 2, 3)))(*parameters)
    expected, parts = Likelihood(x, lengths).gradient(*parameters)
    assert float(value) == pytest.approx(3 * expected, rel=1e-12) and float(function(*parameters)) == pytest.approx(expected, rel=1e-12)
    for got, part in zip(gradient, parts, strict=True):
        np.testing.assert_allclose(got, 3 * part, rtol=1e-12)
    with pytest.raises(NotImplementedError, match="second"):
        jax.hessian(lambda means: function(parameters[0], parameters[1], means, parameters[3]))(parameters[2])
