"""The mixture on Ray: how another engine is brought to gaussmix, with actors that hold the shards.

All of it is `RayEngine`: have partitions loaded, ask, and close. The start, EM, files, values and likelihoods are those of
gaussmix.cluster, and so are the bits.

    pip install ray
    python with_ray.py [samples [workers]]
"""

import sys
import time

import numpy as np
import ray

from gaussmix.cluster import Engine, GaussianMixture, InProcess, Likelihood, Shard


@ray.remote(num_cpus=1)
class Worker:
    def __init__(self, options):
        self.shard = Shard(options)

    def load(self, numbered):
        return [(number, self.shard.load(number, partition)) for number, partition in numbered]

    def ask(self, operation, message):
        return self.shard.ask(operation, message)


class RayEngine(Engine):
    """Shards in actors. An actor that dies ends the fit with Ray's error; DaskEngine shows how to go on."""

    def __init__(self, n_workers):
        self.n_workers = n_workers
        self.workers = []

    def load(self, partitions, options):
        self.close()
        options = options._replace(threads=options.threads or 1)
        self.workers = [Worker.remote(options) for _ in range(self.n_workers)]
        # Neighbours come to the same worker, so that it can add their statistics.
        blocks = np.array_split(np.arange(len(partitions)), self.n_workers)
        loads = [
            worker.load.remote([(int(number), partitions[number]) for number in block])
            for worker, block in zip(self.workers, blocks)
        ]
        facts = dict(pair for pairs in self.wait(loads) for pair in pairs)
        return [facts[number] for number in range(len(partitions))]

    def ask(self, operation, message):
        # The message goes to the store of objects once, from which all workers take it.
        message = ray.put(message)
        return [answer for answers in self.wait([w.ask.remote(operation, message) for w in self.workers]) for answer in answers]

    @staticmethod
    def wait(results):
        try:
            return ray.get(results)
        except ray.exceptions.RayTaskError as error:
            # The error of the shard itself, which names the partition.
            raise error.cause from None

    def close(self):
        for worker in self.workers:
            ray.kill(worker)
        self.workers = []


def main(n_samples=100_000, n_workers=2):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_samples, 5)) + rng.integers(0, 4, size=(n_samples, 1)) * 3
    ray.init(num_cpus=n_workers, include_dashboard=False, log_to_driver=False)
    try:
        params = {"n_components": 4, "random_state": 0, "partition_rows": n_samples // 7}
        begin = time.perf_counter()
        gm = GaussianMixture(engine=RayEngine(n_workers), **params).fit(x)
        seconds = time.perf_counter() - begin
        here = GaussianMixture(engine=InProcess(), **params).fit(x)
        print(f"{gm.n_iter_} iterations on {n_workers} actors in {seconds:.2f} s; the bits of one process:",
              np.array_equal(gm.means_, here.means_))
        with Likelihood(x, engine=RayEngine(n_workers), covariance_type="full") as likelihood:
            print("log-likelihood", likelihood(gm.weights_, gm.means_, gm.covariances_))
        x[n_samples // 2, 1] = np.nan
        try:
            gm.fit(x)
        except ValueError as error:
            print("an error names its partition:", error)
        return gm, here
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
