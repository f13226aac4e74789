"""Writes diagnostics.json: draws with known faults, and what ArviZ says of them. Needs arviz < 1.

python diagnostics.py > diagnostics.json
"""
import json

import arviz as az
import numpy as np

rng = np.random.default_rng(103)


def ar(rho, chains, draws, shift=0.0):
    x = np.zeros((chains, draws))
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + rng.standard_normal(chains)
    return x + shift * np.arange(chains)[:, None]


cases = {
    "independent": rng.standard_normal((4, 250)),
    "autocorrelated": ar(0.9, 4, 301),
    "antithetic": ar(-0.6, 3, 200),
    "shifted": ar(0.3, 4, 150, 0.5),
    "heavy tails": rng.standard_cauchy((4, 200)),
    "ties": rng.integers(0, 5, (2, 101)).astype(float),
    "other spreads": rng.standard_normal((3, 120)) * np.array([[1.0], [1.0], [4.0]]),
    "short": rng.standard_normal((2, 9)),
    "trend": rng.standard_normal((2, 90)) + np.linspace(0, 2, 90),
}
out = []
for name, x in cases.items():
    x = np.round(x, 6)
    out.append(
        {
            "name": name,
            "chains": x.tolist(),
            "r_hat": float(az.rhat(x)),
            "ess_bulk": float(az.ess(x, method="bulk")),
            "ess_tail": float(az.ess(x, method="tail")),
            "ess_mean": float(az.ess(x, method="mean")),
        }
    )
print("[" + ",\n".join(json.dumps(case) for case in out) + "]")
