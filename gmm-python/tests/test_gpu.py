"""Arrays in a GPU's memory, taken by DLPack.

The first part needs no GPU: its producers describe memory that is never read. The second needs a GPU, and PyTorch or
CuPy. Where these are missing its tests are skipped; with GMM_REQUIRE_CUDA=1 they fail instead.
"""

import ctypes
import gc
import importlib
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from gaussmix import GaussianMixture, Likelihood, MixturePosterior, _core, select

# Without a GPU: the descriptions of producers.

CUDA, CUDA_MANAGED, CPU = 2, 13, 1
FLOAT, INT = 2, 0


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Producer:
    """Describes an array of a nonexistent GPU."""

    def __init__(self, shape, strides=None, *, code=FLOAT, bits=32, device=(CUDA, 99), version=(1, 0)):
        self.device, self.version, self.asked, self.deleted = device, version, [], 0
        numbers = lambda values: (ctypes.c_int64 * len(values))(*values)  # noqa: E731
        self.shape, self.strides = numbers(shape), None if strides is None else numbers(strides)
        self.tensor = Tensor(4096, *device, len(shape), code, bits, 1, self.shape, self.strides, 0)
        self.deleter = DELETER(self.delete)

    def delete(self, _):
        self.deleted += 1

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked.append((stream, max_version))
        self.managed = Versioned(*self.version, None, self.deleter, 0, self.tensor)
        return new_capsule(ctypes.addressof(self.managed), b"dltensor_versioned", None)


class OldProducer(Producer):
    """Does not know that DLPack has versions."""

    def __dlpack__(self, *, stream=None):
        self.asked.append((stream, None))
        self.managed = Managed(self.tensor, None, self.deleter)
        return new_capsule(ctypes.addressof(self.managed), b"dltensor", None)


@pytest.mark.parametrize("kind", [Producer, OldProducer])
def test_a_capsule_is_taken_and_released_once(kind):
    producer = kind((7, 3), (1, 7))
    array = _core.GpuArray(producer)
    assert (array.shape, array.ndim, array.dtype) == ((7, 3), 2, np.dtype(np.float32))
    # 1 is the legacy default stream.
    assert [stream for stream, _ in producer.asked] == [1]
    assert producer.deleted == 0
    del array
    assert producer.deleted == 1


def test_other_types_of_elements_and_devices():
    assert _core.GpuArray(Producer((2, 3), (3, 1), bits=64, device=(CUDA_MANAGED, 99))).dtype == np.float64
    for wrong in (
        Producer((2, 3), (3, 1), code=INT),
        Producer((2, 3), (3, 1), bits=16),
        Producer((2, 3), (3, 1), device=(CPU, 0)),
        Producer((2, 3), (3, 1), version=(2, 0)),
        Producer((2, -3), (3, 1)),
    ):
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            _core.GpuArray(wrong)
        assert wrong.deleted == 1
    with pytest.raises(ValueError, match="float32 or float64; convert it"):
        GaussianMixture().fit(Producer((5, 3), (3, 1), code=INT))


def test_what_is_no_array():
    class NoCapsule(Producer):
        def __dlpack__(self, **_):
            return 3

    class Refuses(Producer):
        def __dlpack__(self, **_):
            raise BufferError("an array with gradients cannot be exported")

    with pytest.raises(TypeError, match="PyCapsule"):
        _core.GpuArray(NoCapsule((2, 3)))
    with pytest.raises(BufferError, match="with gradients"):
        GaussianMixture().fit(Refuses((2, 3)))
    # A class is still not an array-like.
    with pytest.raises((ValueError, TypeError)):
        GaussianMixture().fit(Producer)


def test_a_capsule_is_taken_once():
    class Twice(Producer):
        capsule = None

        def __dlpack__(self, **options):
            self.capsule = self.capsule or super().__dlpack__(**options)
            return self.capsule

    producer = Twice((2, 3), (3, 1))
    first = _core.GpuArray(producer)
    with pytest.raises(ValueError, match="already been consumed"):
        _core.GpuArray(producer)
    del first
    assert producer.deleted == 1


def test_shapes_have_scikit_learn_s_errors():
    fitted = GaussianMixture.from_parameters([1.0], [[0.0, 0.0]], [[1.0, 1.0]], covariance_type="diag")
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array instead"):
        fitted.predict(Producer((5,), (1,)))
    with pytest.raises(ValueError, match="Found array with dim 3"):
        Likelihood(Producer((5, 2, 2), (4, 2, 1)))
    with pytest.raises(ValueError, match=r"0 sample\(s\) .* minimum of 1 is required by GaussianMixture"):
        fitted.score(Producer((0, 2), (2, 1)))
    with pytest.raises(ValueError, match=r"0 feature\(s\)"):
        GaussianMixture().fit(Producer((5, 0), (1, 1)))
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        GaussianMixture().fit(Producer((1, 2), (2, 1)))
    with pytest.raises(ValueError, match="n_samples >= n_components"):
        GaussianMixture(6).fit(Producer((5, 2), (2, 1)))
    with pytest.raises(ValueError, match="X has 3 features, but GaussianMixture is expecting 2"):
        fitted.predict(Producer((5, 3), (3, 1)))


def test_the_array_decides_the_gpu():
    x = Producer((5, 2), (2, 1))
    for device in ("auto", "cuda", "cuda:99"):
        with pytest.raises(RuntimeError, match="no CUDA device"):
            GaussianMixture(device=device).fit(x)
    with pytest.raises(ValueError, match="on cuda:99, and device='cuda:1' asks for another GPU"):
        GaussianMixture(device="cuda:1").fit(x)
    with pytest.raises(ValueError, match="there is no device"):
        Likelihood(x, device="gpu")
    # Nothing holds the array after the errors.
    gc.collect()
    assert x.deleted == len(x.asked)


def test_descriptions_of_any_kind_are_refused_in_words():
    rng = np.random.default_rng(0)
    sizes = [-(2**63), -1, 0, 1, 2, 3, 2**20, 2**40, 2**62, 2**63 - 1]
    outcomes = set()
    for _ in range(500):
        ndim = int(rng.integers(0, 4))
        shape = [int(rng.choice(sizes)) for _ in range(ndim)]
        strides = [int(rng.choice(sizes)) for _ in range(ndim)] if rng.random() < 0.8 else None
        device = (int(rng.choice([CUDA, CUDA, CUDA, CUDA_MANAGED, 3, 10, 77])), int(rng.choice([99, 99, -1, 2**31 - 1])))
        kinds = {"code": int(rng.choice([FLOAT, FLOAT, INT])), "bits": int(rng.choice([0, 16, 32, 64]))}
        producer = (Producer if rng.random() < 0.5 else OldProducer)(shape, strides, device=device, **kinds)
        for take in (GaussianMixture(device="cuda").fit, Likelihood, _core.GpuArray):
            try:
                take(producer)
            except (ValueError, TypeError, RuntimeError, OverflowError) as error:
                outcomes.add(type(error))
            else:
                outcomes.add(None)
    gc.collect()
    assert producer.deleted == len(producer.asked)
    assert {ValueError, TypeError, RuntimeError, None} <= outcomes


def test_an_array_that_cannot_say_where_it_is_goes_to_numpy():
    class Sharded:
        def __array__(self, dtype=None, copy=None):
            return np.arange(10.0, dtype=dtype).reshape(5, 2)

        def __dlpack_device__(self):
            raise BufferError("the parts of the array are on several devices")

    assert GaussianMixture().fit(Sharded()).means_.tolist() == [[4.0, 5.0]]


def test_standardize_is_for_the_host():
    with pytest.raises(ValueError, match="standardize=True does not take"):
        GaussianMixture(standardize=True).fit(Producer((5, 2), (2, 1)))


class OnGpu:
    """A host array that replaces one in a GPU's memory."""

    def __init__(self, x):
        self.x = x

    def __dlpack_device__(self):
        return CUDA, 0


class Taken:
    """Replaces the `_core.GpuArray` of such an array."""

    def __init__(self, producer):
        self.x, self.shape, self.ndim, self.dtype = producer.x, producer.x.shape, producer.x.ndim, producer.x.dtype

    def to_numpy(self):
        return self.x.copy()


HOLES = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32) + 5.0 * (np.arange(200) % 2)[:, np.newaxis]
HOLES[np.random.default_rng(1).random(HOLES.shape) < 0.3] = np.nan


def assert_missing_is_computed_on_the_host(on_gpu):
    # On one device: `auto` may choose differently each time, and the last digits differ.
    cpu = {"missing": True, "device": "cpu"}
    weights = np.arange(200) % 3 + 0.5
    for more in ({}, {"standardize": True}, {"init_params": "random"}):
        a, b = (
            GaussianMixture(2, random_state=0, **cpu, **more).fit(x, sample_weight=weights) for x in (on_gpu, HOLES)
        )
        assert_same(a, b, on_gpu, HOLES)
    np.testing.assert_array_equal(a.impute(on_gpu), a.impute(HOLES))
    np.testing.assert_array_equal(a.partial_fit(on_gpu).means_, b.partial_fit(HOLES).means_)
    mixture = a.weights_, a.means_, a.covariances_
    assert Likelihood(on_gpu, **cpu)(*mixture) == Likelihood(HOLES, **cpu)(*mixture)
    chains = {"chains": 1, "warmup": 20, "draws": 20, "random_state": 0, **cpu}
    mine, theirs = (MixturePosterior(1, **chains).fit(x) for x in (on_gpu, HOLES))
    np.testing.assert_array_equal(mine.draws_["means"], theirs.draws_["means"])


@pytest.mark.filterwarnings("ignore")
def test_samples_with_missing_values_are_copied_to_the_host(monkeypatch):
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array instead"):
        Likelihood(Producer((5,), (1,)), missing=True)
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        GaussianMixture(missing=True).fit(Producer((1, 2), (2, 1)))
    monkeypatch.setattr("gaussmix._gpu._core", SimpleNamespace(GpuArray=Taken))
    assert_missing_is_computed_on_the_host(OnGpu(HOLES))
    infinite = HOLES.copy()
    infinite[7, 1] = np.inf
    with pytest.raises(ValueError, match="row 7, column 1"):
        GaussianMixture(missing=True).fit(OnGpu(infinite))


# With a GPU.

REQUIRED = os.environ.get("GMM_REQUIRE_CUDA") == "1"


def missing(reason):
    if REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)


def imported(name):
    """Import a library whose GPU the engine can use too."""
    found = [problem for device, _, problem in _core.devices() if device == "cuda:0"]
    if not found or found[0] is not None:
        missing(f"no GPU: {found}")
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(f"{name} is not installed")


def to_gpu(library, x):
    return library.from_numpy(np.ascontiguousarray(x)).cuda() if library.__name__ == "torch" else library.asarray(x)


@pytest.fixture(params=["torch", "cupy"])
def library(request):
    return imported(request.param)


@pytest.fixture
def torch():
    return imported("torch")


#: The same numbers in memory in several ways, as (numbers in NumPy's memory, a view of them).
LAYOUTS = {
    "by rows": (lambda x: x, lambda x: x),
    "transposed": (lambda x: np.ascontiguousarray(x.T), lambda x: x.T),
    "every other": (lambda x: np.repeat(np.repeat(x, 2, axis=0), 2, axis=1), lambda x: x[::2, ::2]),
    "behind the first": (lambda x: np.concatenate([x[:1], x]), lambda x: x[1:]),
}


def blobs(n, d=4, dtype=np.float64):
    rng = np.random.default_rng(n)
    return (rng.normal(size=(n, d)) + 4.0 * rng.integers(0, 3, size=(n, 1)) + 100.0).astype(dtype)


def assert_same(a, b, x, y, weights=None, other_weights=None):
    """Require that two mixtures, fitted to and evaluated over the same samples in two places, are the same to the bit."""
    for name in ("weights_", "means_", "covariances_", "lower_bounds_", "precisions_"):
        mine, theirs = np.asarray(getattr(a, name)), np.asarray(getattr(b, name))
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs, err_msg=name)
    for name in ("predict", "predict_proba", "score_samples"):
        mine, theirs = getattr(a, name)(x), getattr(b, name)(y)
        assert type(mine) is np.ndarray and mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs, err_msg=name)
    assert a.score(x, sample_weight=weights) == b.score(y, sample_weight=other_weights)
    assert (a.bic(x), a.aic(x)) == (b.bic(y), b.aic(y))


# A start of scikit-learn, and one of the engine.
@pytest.mark.parametrize("n", [1000, 40_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_are_those_of_the_host(library, layout, dtype, n):
    x = blobs(n, dtype=dtype)
    lay_out, view = LAYOUTS[layout]
    on_gpu = view(to_gpu(library, lay_out(x)))
    gm = lambda: GaussianMixture(3, random_state=0, device="cuda", max_iter=8, tol=0)  # noqa: E731
    with pytest.warns(match="did not converge"):
        assert_same(gm().fit(on_gpu), gm().fit(x), on_gpu, x)


@pytest.mark.filterwarnings("ignore")
def test_other_methods(library):
    x = blobs(3000, dtype=np.float32)
    weights = np.random.default_rng(1).uniform(0.1, 2.0, size=len(x))
    on_gpu, gpu_weights = to_gpu(library, x), to_gpu(library, weights)
    gm = lambda **kwargs: GaussianMixture(2, random_state=0, device="cuda", max_iter=5, **kwargs)  # noqa: E731
    for params in ({}, {"covariance_type": "diag"}, {"init_params": "random"}, {"means_init": x[:2]}):
        a = gm(**params).fit(on_gpu, sample_weight=gpu_weights)
        b = gm(**params).fit(x, sample_weight=weights)
        assert_same(a, b, on_gpu, x, gpu_weights, weights)
    np.testing.assert_array_equal(gm().fit_predict(on_gpu), gm().fit_predict(x))
    a, b = gm(), gm()
    for start in range(0, 3000, 1000):
        a.partial_fit(on_gpu[start : start + 1000])
        b.partial_fit(x[start : start + 1000])
    assert_same(a, b, on_gpu, x)
    # On the CPU, from a copy on the host.
    assert_same(gm().set_params(device="cpu").fit(on_gpu), gm().set_params(device="cpu").fit(x), x, x)
    assert select(on_gpu, [1, 2], random_state=0, device="cuda").best.n_components == 2
    chains = {"n_components": 2, "chains": 1, "warmup": 20, "draws": 20, "random_state": 0, "device": "cpu"}
    mine, theirs = MixturePosterior(**chains).fit(on_gpu[:100]), MixturePosterior(**chains).fit(x[:100])
    np.testing.assert_array_equal(mine.draws_["means"], theirs.draws_["means"])


@pytest.mark.filterwarnings("ignore")
def test_missing_values(library):
    assert_missing_is_computed_on_the_host(to_gpu(library, HOLES))


def parameters(x, k=3):
    gm = GaussianMixture(k, random_state=0, covariance_type="diag", max_iter=2, tol=1e9).fit(x)
    return gm.weights_, gm.means_, gm.covariances_


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_likelihood(library, dtype):
    x = blobs(20_000, dtype=dtype)
    weights, means, covariances = parameters(x)
    mine, theirs = Likelihood(to_gpu(library, x)), Likelihood(x, device="cuda")
    assert mine.device == theirs.device and mine.device.startswith("cuda:0")
    assert mine(weights, means, covariances) == theirs(weights, means, covariances)
    sets = [np.stack([v] * 3) for v in (weights, means, covariances)]
    np.testing.assert_array_equal(mine(*sets), theirs(*sets))
    for name in ("score_samples", "gradient"):
        a, b = getattr(mine, name)(weights, means, covariances), getattr(theirs, name)(weights, means, covariances)
        for one, other in zip(a, b, strict=True):
            np.testing.assert_array_equal(one, other)
    assert bytes(mine.statistics(weights, means, covariances)) == bytes(theirs.statistics(weights, means, covariances))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_gradient_by_a_weight_of_zero(torch, dtype):
    x = blobs(20_000, dtype=dtype)
    weights, means, covariances = parameters(x)
    weights = np.concatenate([[0.0], weights[1:] / weights[1:].sum()])
    mine = Likelihood(to_gpu(torch, x)).gradient(weights, means, covariances)
    right = Likelihood(x.astype(np.float64), device="cpu").gradient(weights, means, covariances)
    # float32: log-densities of some tens are rounded to about 1e-6 of them.
    np.testing.assert_allclose(mine[1], right[1], rtol=1e-9 if dtype == np.float64 else 2e-4)
    assert np.isfinite(mine[1]).all() and mine[1][0] > 0


def test_automatic_differentiation_in_torch(torch):
    from gaussmix.torch import LogLikelihood, log_likelihood

    rng = np.random.default_rng(0)
    factors = rng.normal(size=(3, 4, 4)) / 2 + 2 * np.eye(4)
    covariances = {"full": factors @ factors.transpose(0, 2, 1), "diag": rng.uniform(1.0, 2.0, size=(3, 4))}
    covariances |= {"tied": covariances["full"][0], "spherical": covariances["diag"][:, 0]}
    for dtype in (np.float32, np.float64):
        x = blobs(20_000, dtype=dtype)
        weights, means, _ = parameters(x)
        for covariance_type, of_type in covariances.items():
            arrays = weights * 1.5, means, of_type
            kind = {"covariance_type": covariance_type}
            v = torch.linspace(0.5, 2.0, len(x), dtype=torch.float64)
            # Parameters on the GPU or on the host; right is float64 on the CPU.
            here = [torch.tensor(array, requires_grad=True) for array in (x.astype(np.float64), *arrays)]
            there = [torch.tensor(array, requires_grad=True, device="cuda") for array in (x, *arrays)]
            right = torch.autograd.grad(log_likelihood(*here, sample_weight=v, **kind), here)
            for parts in (there, [there[0], *here[1:]]):
                total = log_likelihood(*parts, sample_weight=v.cuda(), **kind)
                assert total.device == there[0].device
                mine = torch.autograd.grad(total, parts)
                assert [part.device for part in mine] == [part.device for part in parts]
                # float32: responsibilities to about 1e-5, in sums of tens of thousands.
                tight = {"rtol": 1e-7, "atol": 1e-7} if dtype == np.float64 else {"rtol": 1e-3, "atol": 0.5}
                for a, b in zip(mine[1:], right[1:], strict=True):
                    torch.testing.assert_close(a.cpu(), b, **tight)
                # By samples it is computed in float64, and rounded.
                one = {"rtol": 1e-7, "atol": 1e-7} if dtype == np.float64 else {"rtol": 1e-5, "atol": 1e-5}
                torch.testing.assert_close(mine[0].cpu().double(), right[0], **one)
            held = LogLikelihood(there[0], **kind)
            assert held._function.likelihood.device.startswith("cuda:0")
            scores = held.score_samples(*there[1:])
            torch.testing.assert_close(scores.sum(), held(*there[1:]), rtol=1e-5, atol=0)


def test_the_derivatives_take_little_memory(torch):
    from gaussmix.torch import log_likelihood

    x = torch.randn((1_000_000, 13), device="cuda", requires_grad=True)
    weights, means = torch.full((8,), 0.125, device="cuda"), torch.randn((8, 13), device="cuda", requires_grad=True)
    variances = torch.ones((8, 13), device="cuda", requires_grad=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    log_likelihood(x, weights, means, variances).backward()
    # The derivatives by samples have 52 MB, and each of about five buffers 34 MB; by automatic differentiation it is 2.5 GB.
    assert torch.cuda.max_memory_allocated() - before < 250e6


def test_a_likelihood_has_a_copy(torch):
    x = blobs(5000, dtype=np.float32)
    # So narrow and far that float32 does not suffice: the computation in float64 reads the samples again.
    narrow = [1.0], [[1e4] * 4], [[1e-4] * 4]
    for mixture in (parameters(x), narrow):
        tensor = to_gpu(torch, x)
        likelihood = Likelihood(tensor, covariance_type="diag")
        tensor.zero_()
        torch.cuda.synchronize()
        assert likelihood(*mixture) == Likelihood(x, device="cuda", covariance_type="diag")(*mixture)


def test_the_first_sample_that_is_not_finite_is_named(library):
    x = blobs(30_000, dtype=np.float32)
    x[777, 2], x[777, 3], x[20_000, 0] = np.nan, np.inf, -np.inf
    for samples in (to_gpu(library, x), to_gpu(library, x.T).T):
        with pytest.raises(ValueError, match="Input X contains NaN or infinity: .* NaN at row 777, column 2"):
            GaussianMixture().fit(samples)
        with pytest.raises(ValueError, match="row 777, column 2"):
            Likelihood(samples)


def test_the_memory_is_given_back(torch):
    gc.collect()
    before = torch.cuda.memory_allocated()
    x = to_gpu(torch, blobs(50_000, dtype=np.float32))
    gm = GaussianMixture(2, random_state=0).fit(x)
    gm.predict(x)
    likelihood = Likelihood(x, copy=False)
    assert torch.cuda.memory_allocated() > before
    x[3, 1] = float("nan")
    with pytest.raises(ValueError):
        gm.fit(x)
    del x
    gc.collect()
    # The likelihood holds it.
    assert torch.cuda.memory_allocated() > before
    del likelihood
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_work_in_the_caller_s_stream_is_waited_for(torch):
    x = blobs(200_000, dtype=np.float32)
    mixture = parameters(x)
    expected = Likelihood(x, device="cuda")(*mixture)
    samples, made = to_gpu(torch, x), torch.zeros((200_000, 4), device="cuda")
    Likelihood(made, covariance_type="diag")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000_000)
        made.copy_(samples, non_blocking=True)
        assert not stream.query(), "the stream has nothing left to wait for"
        likelihood = Likelihood(made)
        assert likelihood(*mixture) == expected


def test_work_in_a_stream_of_cupy_is_waited_for():
    cupy = imported("cupy")
    x = blobs(200_000, dtype=np.float32)
    mixture = parameters(x)
    expected = Likelihood(x, device="cuda")(*mixture)
    samples, made = cupy.asarray(x), cupy.zeros((200_000, 4), dtype=cupy.float32)
    a, b = cupy.ones((8192, 8192), dtype=cupy.float32), cupy.empty((8192, 8192), dtype=cupy.float32)
    cupy.matmul(a, a, out=b)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        for _ in range(20):
            cupy.matmul(a, a, out=b)
        cupy.copyto(made, samples)
        assert not stream.done, "the stream has nothing left to wait for"
        assert Likelihood(made)(*mixture) == expected


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_samples_do_not_pass_through_the_host(torch):
    def peak():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 1e3 for line in status if line.startswith("VmHWM"))

    gm = GaussianMixture(8, covariance_type="diag", random_state=0, max_iter=3, tol=1e9)
    gm.fit(to_gpu(torch, blobs(100_000, 13, np.float32)))
    x = torch.randn((4_000_000, 13), device="cuda")
    torch.cuda.synchronize()
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError as error:
        pytest.skip(f"the peak of the memory cannot be reset: {error}")
    before = peak()
    gm.fit(x)
    gm.score(x)
    Likelihood(x)(gm.weights_, gm.means_, gm.covariances_)
    # The array has 208 MB; its scores for the start have 32, and so have the buffers through which they pass.
    assert peak() - before < 90, f"{peak() - before} MB"


DISPATCH = """
import numpy as np, sklearn, torch
from gaussmix import GaussianMixture
x = torch.randn((500, 3), device="cuda")
with sklearn.config_context(array_api_dispatch=True):
    gm = GaussianMixture(2, init_params="random", random_state=0, max_iter=5, tol=1.0).fit(x)
    results = gm.predict(x), gm.predict_proba(x), gm.score_samples(x), gm.fit_predict(x)
    assert all(type(v) is torch.Tensor and v.device == x.device for v in results), results
    assert [v.dtype for v in results] == [torch.int64, torch.float32, torch.float32, torch.int64]
    assert isinstance(gm.score(x), float) and isinstance(gm.means_, torch.Tensor) and gm.means_.device == x.device
    assert gm.sample(3)[0].device == x.device
# The attributes stay there.
assert type(gm.predict(x)) is np.ndarray and gm.mixture_.means.shape == (2, 3)
"""


def test_output_follows_the_input_where_scikit_learn_s_does(torch):
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    out = subprocess.run([sys.executable, "-c", DISPATCH], env=environment, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr


def test_jax(torch):
    jax = imported("jax") if importlib.util.find_spec("jax") else pytest.skip("jax is not installed")
    x = blobs(2000, dtype=np.float32)
    array = jax.device_put(x, jax.devices("gpu")[0])
    gm = GaussianMixture(2, random_state=0, device="cuda").fit(array)
    assert_same(gm, GaussianMixture(2, random_state=0, device="cuda").fit(x), array, x)


def test_automatic_differentiation_in_jax(torch):
    jax = imported("jax") if importlib.util.find_spec("jax") else pytest.skip("jax is not installed")
    from gaussmix.jax import LogLikelihood

    x = blobs(2000, dtype=np.float32)
    array = jax.device_put(x, jax.devices("gpu")[0])
    there, here = LogLikelihood(array, device="cuda"), LogLikelihood(x, device="cuda")
    mine, right = (jax.jit(jax.value_and_grad(one, argnums=(0, 1, 2)))(*parameters(x)) for one in (there, here))
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(a, b)
