"""Times value and gradient of the log-likelihood, in PyTorch: ours, and autograd over logsumexp.

    python gmm-python/benches/gradients.py [--n 1e6] [--d 13] [--k 8] [--device cuda] [--repeat 20]

It prints the median times of one evaluation with its gradient by the parameters, and by parameters and samples, and the
memory that each takes beside the samples: on a GPU the largest that the device has less of during an evaluation, of which
PyTorch's part is what its allocator says, and ours in addition what the driver says is gone. Samples that are loaded once
stand in a line of their own. Differences are relative to the largest derivative, of autograd in the same type.
"""

import argparse
import statistics
import time

import numpy as np
import torch

from gaussmix.torch import LogLikelihood, log_likelihood


def by_logsumexp(x, weights, means, covariances, covariance_type):
    """The total as one writes it in PyTorch."""
    d = x.shape[1]
    if covariance_type == "diag":
        squares = ((x[:, None] - means) ** 2 / covariances).sum(-1)
        log_det = covariances.log().sum(-1)
    else:
        factors = torch.linalg.cholesky(covariances)
        delta = (x[:, None] - means).permute(1, 2, 0)
        squares = torch.linalg.solve_triangular(factors, delta, upper=False).square().sum(1).T
        log_det = 2 * factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    log_p = weights.log() - 0.5 * (squares + log_det + d * np.log(2 * np.pi))
    return torch.logsumexp(log_p, 1).sum()


def problem(n, d, k, covariance_type, device):
    rng = np.random.default_rng(0)
    means = 2 * rng.normal(size=(k, d))
    x = (means[rng.integers(k, size=n)] + rng.normal(size=(n, d))).astype(np.float32)
    factors = 0.2 * rng.normal(size=(k, d, d)) + np.eye(d)
    covariances = rng.uniform(0.5, 2.0, (k, d)) if covariance_type == "diag" else factors @ factors.transpose(0, 2, 1)
    arrays = x, np.full(k, 1 / k), means + 0.1, covariances
    return [torch.tensor(array, dtype=torch.float32, device=device) for array in arrays]


class Meter:
    """The clock, and the memory of a GPU."""

    def __init__(self, device):
        self.gpu = torch.device(device).type == "cuda"

    def seconds(self, call, repeat):
        times = []
        for _ in range(repeat + 2):
            if self.gpu:
                torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            if self.gpu:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        # The first two prepare kernels.
        return statistics.median(times[2:])

    def bytes(self, call):
        """The largest that PyTorch holds during a call, and what the engine holds at its end beside that."""
        if not self.gpu:
            return None
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before, free = torch.cuda.memory_allocated(), self.free()
        kept = call()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        of_engine = max(0, free - self.free())
        del kept
        return peak, of_engine

    @staticmethod
    def free():
        """What the driver has left, and what PyTorch keeps of its own."""
        return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=float, default=1e6)
    parser.add_argument("--d", type=int, default=13)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeat", type=int, default=20)
    given = parser.parse_args()
    meter = Meter(given.device)
    print(torch.cuda.get_device_name() if meter.gpu else f"CPU, {torch.get_num_threads()} threads")
    print(f"N = {given.n:.0f}, D = {given.d}, K = {given.k}, float32, PyTorch {torch.__version__}")
    print(f"{'covariances':12} {'by':24} {'how':24} {'ms':>9} {'times':>7} {'MB PyTorch':>11} {'MB engine':>10} {'difference':>11}")
    for covariance_type in ("diag", "full"):
        x, *parameters = problem(int(given.n), given.d, given.k, covariance_type, given.device)
        for by_samples in (False, True):
            x.requires_grad_(by_samples)
            inputs = [part.requires_grad_() for part in parameters] + ([x] if by_samples else [])
            kind = {"covariance_type": covariance_type}
            held = LogLikelihood(x, **kind)
            ways = {
                "autograd over logsumexp": lambda: by_logsumexp(x, *parameters, covariance_type),
                "ours, loaded each time": lambda: log_likelihood(x, *parameters, **kind),
                "ours, loaded once": lambda: held(*parameters),
            }
            right, base = None, None
            for name, total in ways.items():
                evaluate = lambda: torch.autograd.grad(total(), inputs)  # noqa: E731, B023
                gradient = evaluate()
                right = right or gradient
                apart = max(float(((a - b).abs().max() / b.abs().max())) for a, b in zip(gradient, right, strict=True))
                del gradient
                seconds = meter.seconds(evaluate, given.repeat)
                base = base or seconds

                def with_load():
                    # What is loaded once is counted, too: a second one is loaded.
                    if name != "ours, loaded once":
                        return evaluate()
                    another = LogLikelihood(x, **kind)
                    return another, torch.autograd.grad(another(*parameters), inputs)

                memory = meter.bytes(with_load)
                held_bytes = ["-", "-"] if memory is None else [f"{part / 1e6:.0f}" for part in memory]
                by = "parameters and samples" if by_samples else "parameters"
                print(
                    f"{covariance_type:12} {by:24} {name:24} {1e3 * seconds:9.3f} {base / seconds:7.1f} {held_bytes[0]:>11} "
                    f"{held_bytes[1]:>10} {apart:11.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
