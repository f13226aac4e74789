"""Makes seed103.npy and prints the expected value of the fixed case in tests/likelihood.rs (needs NumPy).

The case of the talk this project grew from: N=1000 samples of D=10 uniform features and K=5 components with uniform
means, unit variances and equal weights, drawn from NumPy's legacy generator at seed 103.
The file holds the samples, then the means: (1005, 10) float64.
"""
import math
from pathlib import Path

import numpy as np

n, d, k = 1000, 10, 5
np.random.seed(103)
x = np.random.random((n, d))
means = np.random.random((k, d))
np.save(Path(__file__).with_name("seed103.npy"), np.vstack([x, means]))

square = ((x[:, None, :] - means[None]) ** 2).sum(axis=2)
log_p = -0.5 * (square + d * math.log(2 * math.pi)) - math.log(k)
top = log_p.max(axis=1, keepdims=True)
print(math.fsum(top[:, 0] + np.log(np.exp(log_p - top).sum(axis=1))))
