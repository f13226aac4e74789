"""The log-likelihood in PyTorch's automatic differentiation. test_gpu.py has the tests on a GPU."""

import numpy as np
import pytest

from gaussmix import GaussianMixture, Likelihood

torch = pytest.importorskip("torch")
gt = pytest.importorskip("gaussmix.torch")

TYPES = ["full", "tied", "diag", "spherical"]


def problem(covariance_type, n=7, k=3, d=2, seed=0, offset=0.0):
    """Return samples and parameters that all require gradients, with weights that do not sum to 1."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(k, d, d)) / 2 + np.eye(d)
    full = factors @ factors.transpose(0, 2, 1)
    covariances = {
        "full": full,
        "tied": full[0],
        "diag": rng.uniform(0.5, 2.0, size=(k, d)),
        "spherical": rng.uniform(0.5, 2.0, size=k),
    }[covariance_type]
    arrays = rng.normal(size=(n, d)) + offset, rng.uniform(0.2, 1.5, size=k), rng.normal(size=(k, d)) + offset, covariances
    return [torch.tensor(array, requires_grad=True) for array in arrays]


def by_logsumexp(x, weights, means, covariances, covariance_type):
    """The log-likelihood of each sample, in PyTorch's operations."""
    k, d = means.shape
    if covariance_type in ("diag", "spherical"):
        variances = covariances if covariance_type == "diag" else covariances[:, None].expand(k, d)
        matrices = torch.diag_embed(variances)
    else:
        matrices = (covariances if covariance_type == "full" else covariances.expand(k, d, d)).clone()
    normal = torch.distributions.MultivariateNormal(means, matrices, validate_args=False)
    return torch.logsumexp(weights.log() + normal.log_prob(x[:, None]), dim=1)


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("n, k, d", [(7, 3, 2), (5, 1, 2), (6, 2, 1), (1, 2, 3), (4, 2, 2)])
def test_gradcheck(covariance_type, n, k, d):
    inputs = problem(covariance_type, n, k, d)
    weights = torch.linspace(0.5, 2.0, n)
    for sample_weight in (None, weights):
        function = lambda *given: gt.log_likelihood(  # noqa: E731
            *given, covariance_type=covariance_type, sample_weight=sample_weight
        )
        assert torch.autograd.gradcheck(function, inputs)
    scores = lambda x, *parameters: gt.LogLikelihood(x, covariance_type=covariance_type).score_samples(*parameters)  # noqa: E731
    assert torch.autograd.gradcheck(scores, inputs)


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_what_autograd_gives(covariance_type, dtype):
    x, *parameters = problem(covariance_type, n=400, k=4, d=5)
    x = x.detach().to(dtype).requires_grad_()
    expected = by_logsumexp(x.double(), *parameters, covariance_type)
    right = torch.autograd.grad(expected.sum(), [x, *parameters])
    total = gt.log_likelihood(x, *parameters, covariance_type=covariance_type)
    assert total.shape == () and total.dtype == torch.float64
    mine = torch.autograd.grad(total, [x, *parameters])
    # In float32: responsibilities to about 1e-5, in sums of hundreds.
    tight = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-2}
    torch.testing.assert_close(total, expected.sum(), rtol=1e-10 if dtype == torch.float64 else 1e-6, atol=0)
    for a, b, like in zip(mine, right, [x, *parameters], strict=True):
        assert a.dtype == like.dtype and a.shape == like.shape
        torch.testing.assert_close(a, b, **tight)
    held = gt.LogLikelihood(x, covariance_type=covariance_type)
    scores = held.score_samples(*parameters)
    torch.testing.assert_close(scores, expected, **tight)
    factors = torch.linspace(-1.0, 2.0, 400)
    right = torch.autograd.grad(by_logsumexp(x.double(), *parameters, covariance_type), [x, *parameters], factors.double())
    for a, b in zip(torch.autograd.grad(scores, [x, *parameters], factors.double()), right, strict=True):
        torch.testing.assert_close(a, b, **tight)


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("offset, apart", [(0.0, 0.0), (1e4, 0.0), (0.0, 3e5)])
def test_the_derivatives_by_samples_that_a_gpu_computes(covariance_type, offset, apart, monkeypatch):
    # Here on the CPU, in chunks of few samples.
    monkeypatch.setattr(gt, "_BUFFER", 100)
    x, *parameters = (part.detach() for part in problem(covariance_type, 50, 3, 4, offset=offset))
    # Each sample belongs to one component, which is far from the others.
    x = x + apart * (torch.arange(50) % 3)[:, None]
    parameters[1] = parameters[1] + apart * torch.arange(3)[:, None]
    held = gt.LogLikelihood(x, covariance_type=covariance_type)
    arrays = [part.numpy() for part in parameters]
    of, right = held._function.parameters(*arrays), torch.from_numpy(held._function.score_function(*arrays))
    # The means at 1e4 are rounded to 1e-12, those at 1e6 to 1e-10.
    tolerance = 1e-9 if apart == 0.0 else 1e-7
    torch.testing.assert_close(gt._score_function_on_gpu(x, of), right, rtol=tolerance, atol=tolerance)
    rounded = gt._score_function_on_gpu(x.T.contiguous().T, of)
    torch.testing.assert_close(rounded, right, rtol=tolerance, atol=tolerance)


def test_an_optimiser_finds_the_maximum_of_em():
    rng = np.random.default_rng(0)
    data = np.concatenate([rng.normal(-3.0, 1.0, size=(200, 2)), rng.normal(3.0, 1.5, size=(300, 2))])
    gm = GaussianMixture(2, tol=1e-10, max_iter=1000, reg_covar=0, random_state=0).fit(data)
    log_likelihood = gt.LogLikelihood(torch.from_numpy(data), covariance_type="full")
    logits = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    means = torch.tensor([[-1.0, 0.0], [1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    factors = torch.eye(2, dtype=torch.float64).repeat(2, 1, 1).requires_grad_()
    optimiser = torch.optim.LBFGS([logits, means, factors], max_iter=200, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        negative = -log_likelihood(logits.softmax(0), means, factors @ factors.mT) / len(data)
        negative.backward()
        return negative

    optimiser.step(loss)
    # The gradient at the end is about 1e-7.
    assert abs(-loss().item() - gm.score(data)) < 1e-6


def test_only_what_is_asked_for_is_computed(monkeypatch):
    x, *parameters = problem("diag")
    held = gt.LogLikelihood(x.detach(), covariance_type="diag")
    calls = []
    for name in ("__call__", "gradient", "score_function"):
        original = getattr(Likelihood, name)
        monkeypatch.setattr(
            Likelihood, name, lambda *given, name=name, original=original: calls.append(name) or original(*given)
        )
    held(*parameters).backward()
    assert calls == ["gradient"] and x.grad is None and all(part.grad is not None for part in parameters)
    calls.clear()
    with torch.no_grad():
        assert not held(*parameters).requires_grad
    assert calls == ["__call__"]
    calls.clear()
    gt.log_likelihood(x, *(part.detach() for part in parameters), covariance_type="diag").backward()
    assert calls == ["__call__", "score_function"] and x.grad is not None


def test_non_contiguous_and_missing_values():
    x, *parameters = problem("full", n=20, d=3)
    wide = torch.repeat_interleave(x.detach(), 2, dim=1)[:, ::2].requires_grad_()
    (right,) = torch.autograd.grad(gt.log_likelihood(x, *parameters), x)
    (mine,) = torch.autograd.grad(gt.log_likelihood(wide, *parameters), wide)
    torch.testing.assert_close(mine, right)
    holes = x.detach().clone()
    holes[3, 1] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        gt.log_likelihood(holes, *parameters)
    holes.requires_grad_()
    (mine,) = torch.autograd.grad(gt.log_likelihood(holes, *parameters, missing=True), holes)
    weights, means, covariances = parameters
    seen = holes.detach()[3:4, [0, 2]].requires_grad_()
    part = gt.log_likelihood(seen, weights, means[:, [0, 2]], covariances[:, [0, 2]][:, :, [0, 2]])
    (of_seen,) = torch.autograd.grad(part, seen)
    torch.testing.assert_close(mine[3, [0, 2]], of_seen[0])
    assert mine[3, 1] == 0
    torch.testing.assert_close(mine[4:], right[4:])


def test_weights_are_copied():
    x, *parameters = problem("diag")
    for weights in (torch.ones(7, dtype=torch.float64), np.ones(7)):
        held = gt.LogLikelihood(x, weights)
        expected = torch.autograd.grad(held(*parameters), x)
        weights[:] = 3.0
        torch.testing.assert_close(torch.autograd.grad(held(*parameters), x), expected)
        torch.testing.assert_close(held(*parameters), gt.log_likelihood(x, *parameters))


def test_what_cannot_be_is_refused():
    inputs = problem("full")
    x, weights, means, covariances = inputs
    (first,) = torch.autograd.grad(gt.log_likelihood(*inputs), means, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives of the log-likelihood, no second ones"):
        torch.autograd.grad(first.sum(), means)
    with pytest.raises(NotImplementedError, match="operations of PyTorch"):
        torch.autograd.functional.hessian(lambda m: gt.log_likelihood(x, weights, m, covariances), means)
    with pytest.raises(TypeError, match="torch.float16; give a tensor of float32 or float64"):
        gt.LogLikelihood(x.detach().half())
    with pytest.raises(TypeError, match="ndarray; give a tensor"):
        gt.LogLikelihood(x.detach().numpy())
    with pytest.raises(ValueError, match="no derivative by sample_weight"):
        gt.LogLikelihood(x, torch.ones(7, requires_grad=True))
    with pytest.raises(ValueError, match="weights sum to 0"):
        gt.log_likelihood(x, weights * 0, means, covariances)
    skew = covariances.detach().clone()
    skew[1, 0, 1] += 0.1
    with pytest.raises(ValueError, match=r"covariance at \(1, 0, 1\).* give symmetric matrices"):
        gt.log_likelihood(x, weights, means, skew)
    samples = x.detach().clone()
    held = gt.LogLikelihood(samples)
    samples += 1
    with pytest.raises(RuntimeError, match="changed by an operation in place"):
        held(weights, means, covariances)


def test_the_transformations_of_torch_func_are_refused():
    x, m = torch.randn(20, 2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.float64)
    w, c = torch.tensor([0.4, 0.6], dtype=torch.float64), torch.ones(2, 2, dtype=torch.float64)
    held = gt.LogLikelihood(x, covariance_type="diag")
    functions = [
        lambda m: held(w, m, c),
        lambda m: held.score_samples(w, m, c).sum(),
        lambda m: gt.log_likelihood(x, w, m, c, covariance_type="diag"),
        lambda m: gt.log_likelihood(m, w, m, c, covariance_type="diag"),
    ]
    for f in functions:
        for transformed in (torch.func.grad(f), torch.func.jacrev(f), lambda m: torch.func.vmap(f)(torch.stack([m, m]))):  # noqa: B023
            with pytest.raises(NotImplementedError, match="gaussmix.torch does not take part"):
                transformed(m)


def markov(covariance_type, n_mix=None):
    """Return rows, lengths and free parameters of a model of three states."""
    rng = np.random.default_rng(1)
    k, d, m = 3, 2, n_mix or 1
    factors = rng.normal(size=(k * m, d, d)) / 2 + np.eye(d)
    full = factors @ factors.transpose(0, 2, 1)
    covariances = {
        "full": full,
        "tied": full[0],
        "diag": rng.uniform(0.5, 2.0, size=(k * m, d)),
        "spherical": rng.uniform(0.5, 2.0, size=k * m),
    }[covariance_type]
    means = rng.normal(size=(k * m, d))
    if n_mix:
        means, covariances = means.reshape(k, m, d), covariances.reshape(k, m, *covariances.shape[1:])
    start, transitions, weights = (rng.dirichlet(np.ones(size), rows).squeeze() for size, rows in [(k, 1), (k, k), (m, k)])
    arrays = [start, transitions, means, covariances, *([weights] if n_mix else [])]
    return rng.normal(size=(30, d)), [17, 1, 12], [torch.tensor(array, requires_grad=True) for array in arrays]


@pytest.mark.parametrize("covariance_type", TYPES)
def test_a_hidden_markov_model_is_what_autograd_gives(covariance_type):
    x, lengths, parameters = markov(covariance_type)
    start, transitions, means, covariances = parameters
    ones = torch.ones(1, dtype=torch.float64)
    emissions = torch.stack(
        [
            by_logsumexp(
                torch.from_numpy(x), ones, means[state : state + 1],
                covariances if covariance_type == "tied" else covariances[state : state + 1], covariance_type,
            )
            for state in range(3)
        ],
        dim=1,
    )
    total = 0
    for rows in emissions.split(lengths):
        alpha = start.log() + rows[0]
        for row in rows[1:]:
            alpha = torch.logsumexp(alpha[:, None] + transitions.log(), dim=0) + row
        total = total + torch.logsumexp(alpha, dim=0)
    want = torch.autograd.grad(total, parameters)
    value = gt.MarkovLogLikelihood(x, lengths, covariance_type=covariance_type)(*parameters)
    assert value.item() == pytest.approx(total.item(), rel=1e-12)
    for got, expected, parameter in zip(torch.autograd.grad(2 * value, parameters), want, parameters, strict=True):
        assert got.shape == parameter.shape
        # Of mirrored entries autograd gives the lower one both derivatives.
        if covariance_type in ("full", "tied") and parameter is covariances:
            got, expected = got + got.mT, expected + expected.mT
        np.testing.assert_allclose(got / 2, expected, rtol=1e-8, atol=1e-9)


def test_states_with_mixtures_have_derivatives_and_no_second_ones():
    x, lengths, parameters = markov("diag", n_mix=2)
    function = gt.MarkovLogLikelihood(x, lengths, sequence_weight=[1.0, 2.0, 0.5])
    with torch.no_grad():
        moved = [parameter.clone() for parameter in parameters]
        # Along directions that keep the sums of probabilities.
        moved[2][1, 0, 1] += 1e-6
        moved[4][2] += torch.tensor([1e-6, -1e-6])
        moved[1][0] += torch.tensor([1e-6, -2e-6, 1e-6])
        difference = function(*moved) - function(*parameters)
    gradient = torch.autograd.grad(function(*parameters), parameters, create_graph=True)
    expected = sum(((there - here) * part).sum() for there, here, part in zip(moved, parameters, gradient, strict=True))
    assert difference.item() == pytest.approx(expected.item(), rel=1e-4)
    with pytest.raises(RuntimeError):
        gradient[2].sum().backward()
