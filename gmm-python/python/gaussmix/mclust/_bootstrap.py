"""The bootstrap: how many components there are, and how certain the parameters are."""

from collections.abc import Mapping
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from .. import _core, _tables
from .._arrays import Floats
from .._mixture import Mixture
from .._pictures import axes_of
from .._warnings import warn
from ._models import Model, _em, _fits, _Found, _moved, _rows, emControl, sigma_of

#: After so many failed fits for each that is wanted there are no further ones.
_PATIENCE = 10


class mclustBootstrapLRT:
    """Tests of each number of components against the next by the likelihood ratio, whose distribution is simulated.

    Rows are drawn from the fit of fewer components, and EM begins at the parameters of either fit [1]_.
    Parameters:
    nboot : int, default=999 -- How many samples are drawn for a test.
    level : float, default=0.05 -- Without `maxG`, the first test with a larger p-value is the last.
    maxG : int, default=None -- The last number to test. By default `level` ends the tests, at the latest with 8 components.
    initialization : dict, default=None -- As of `Mclust`.
    Attributes:
    G : ndarray of shape (n_tests,) -- The numbers of components, each tested against one more.
    modelName : str -- The model.
    obs : ndarray of shape (n_tests,) -- Twice the logarithm of the likelihood ratio of the rows.
    boot : ndarray of shape (nboot, n_tests) -- The same of each sample.
    p_value : ndarray of shape (n_tests,) -- The share of these and of the observed value that is at least the latter.
    References:
    .. [1] McLachlan, G. J. (1987). On bootstrapping the likelihood ratio test statistic for the number of components in
       a normal mixture. Applied Statistics 36.
    """

    def __init__(
        self,
        data: ArrayLike,
        modelName: str,
        nboot: int = 999,
        level: float = 0.05,
        maxG: int | None = None,
        initialization: Mapping[str, Any] | None = None,
        control: emControl = emControl(),
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        x, rng, last = _rows(data), check_random_state(random_state), 8 if maxG is None else maxG
        samples, found = _fits(x, range(1, last + 2), modelName, initialization, control, device, rng)
        tests: list[tuple[float, NDArray[np.float64], float]] = []
        for k in range(1, last + 1):
            fewer, more = found[k, modelName], found[k + 1, modelName]
            if fewer is None or more is None:
                text = f"{modelName} of {k + (fewer is not None)} components has an empty or collapsed one"
                if not tests:
                    raise ValueError(f"{text}, so that there is no test; take another model")
                warn(f"{text}; the tests end at {k - 1} components")
                break
            observed = 2.0 * (more[1] - fewer[1])
            of_fewer, of_more = (_moved(samples, x, modelName, fit, initialization, None) for fit in (fewer, more))
            drawn = _ratios((of_fewer, of_more), modelName, len(x), nboot, control, device, rng)
            tests.append((observed, drawn, (1 + int(np.sum(drawn >= observed))) / (nboot + 1)))
            if maxG is None and tests[-1][2] > level:
                break
        self.modelName, self.G = modelName, np.arange(1, len(tests) + 1)
        self.obs, self.boot, self.p_value = (np.array(part).T for part in zip(*tests, strict=True))

    def plot(self, G: int = 1, ax: Any = None) -> Any:
        """Draw the distribution of the likelihood ratio, and a line at the observed one, and return the axes of matplotlib.
        Parameters: G : int, default=1 -- The number of components that is tested.
        """
        if G not in self.G:
            raise ValueError(f"there is no test of {G} components; use 1 to {len(self.G)}")
        ax = _histogram(ax, self.boot[:, G - 1], self.obs[G - 1])
        ax.set(xlabel=f"2 log likelihood ratio, {G} against {G + 1} components", ylabel="samples")
        return ax

    def __repr__(self) -> str:
        rows = [list(row) for row in zip([f"{k} vs {k + 1}" for k in self.G], self.obs, self.p_value, strict=True)]
        title = f"Likelihood ratio of {self.modelName}, {len(self.boot)} samples"
        return _tables.as_text(title, ["components", "2 log LR", "p"], rows, len(rows))


class MclustBootstrap:
    """Parameters of a model fitted to samples of its rows.
    Parameters:
    nboot : int, default=999 -- The number of samples.
    type : {'bs', 'wlbs', 'pb', 'jk'}, default='bs'
        Rows drawn with replacement; exponential weights of the rows; samples of the mixture; or the jackknife, which
        leaves out each row once.
    control : emControl, default=emControl() -- When EM ends; it begins at the model's probabilities of the components.
    Attributes:
    G, modelName, type, nboot, parameters : object -- Those of the model, and the arguments; for 'jk' `nboot` is n.
    nonfit : int -- The number of samples that could not be fitted; others replace them, but for 'jk'.
    pro : ndarray of shape (nboot, G) -- The shares of the components; NaN where 'jk' could not fit.
    mean : ndarray of shape (nboot, d, G) -- The means.
    variance : ndarray of shape (nboot, d, d, G) -- The covariances.
    """

    def __init__(
        self,
        object: Model,
        nboot: int = 999,
        type: str = "bs",
        control: emControl = emControl(),
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        if type not in ("bs", "wlbs", "pb", "jk"):
            raise ValueError(f"type is {type!r}; use 'bs', 'wlbs', 'pb' or 'jk'")
        object.mixture._check_no_noise("the bootstrap")
        rng, n, k = check_random_state(random_state), object.n, object.G
        self.G, self.modelName, self.type, self.parameters = k, object.modelName, type, object.parameters
        self.nboot, self.nonfit = n if type == "jk" else nboot, 0
        log_density = object.mixture.score_samples(object.data, device=device)
        parts: list[tuple[NDArray[np.float64], ...]] = []
        while len(parts) < self.nboot:
            x, z, weights, ends = object.data, object.z, np.ones(n), control
            if type == "bs":
                weights = np.bincount(rng.randint(n, size=n), minlength=n).astype(np.float64)
            elif type == "wlbs":
                weights = rng.exponential(size=n)
                weights /= weights.max()
                # mclust's EM with weights stops at an absolute change.
                ends = control._replace(tol=control.tol / (1.0 + abs(weights @ log_density)))
            elif type == "jk":
                weights[len(parts)] = 0.0
            else:
                x = object.mixture.sample(n, rng)[0]
                z = object.mixture.predict_proba(x, device=device)
            fit = _again(_core.Data(x, weights, device=device), x, z * weights[:, np.newaxis], self.modelName, ends)
            if fit is not None:
                parts.append((fit[0].weights, fit[0].means.T, sigma_of(fit[0])))
            elif type == "jk":
                parts.append(tuple(np.full(shape, np.nan) for shape in ((k,), (object.d, k), (object.d, object.d, k))))
            self.nonfit += fit is None
            if self.nonfit > _PATIENCE * self.nboot:
                raise ValueError(f"{self.nonfit} of {self.nonfit + len(parts)} samples could not be fitted; take fewer components")
        self.pro, self.mean, self.variance = (np.stack(part) for part in zip(*parts, strict=True))

    def summary(self, what: str = "se", conf_level: float = 0.95) -> SimpleNamespace:
        """Return how the parameters vary.
        Parameters:
        what : {'se', 'ci', 'ave'}, default='se' -- Standard errors, confidence intervals, or means.
        conf_level : float, default=0.95 -- The probability of an interval.
        Returns:
        summary : SimpleNamespace
            `pro`, `mean` and `variance` in the shapes of the parameters; of intervals, which variances have alone and
            not covariances, the lower and upper ends.
        """
        drawn = {"pro": self.pro, "mean": self.mean, "variance": self.variance}
        if what == "ci":
            drawn["variance"] = np.diagonal(self.variance, axis1=1, axis2=2).swapaxes(1, 2)
        elif what not in ("se", "ave"):
            raise ValueError(f"what is {what!r}; use 'se', 'ci' or 'ave'")
        n = self.nboot - self.nonfit
        factor = (n - 1) / np.sqrt(n) if self.type == "jk" else 1.0
        ends = np.array([0.5 - conf_level / 2, 0.5 + conf_level / 2])
        normal = np.array([NormalDist().inv_cdf(end) for end in ends])

        def of(values: NDArray[np.float64]) -> NDArray[np.float64]:
            mean: NDArray[np.float64] = np.nanmean(values, axis=0)
            error: NDArray[np.float64] = factor * np.nanstd(values, axis=0, ddof=1)
            if what != "ci":
                return error if what == "se" else mean
            interval: NDArray[np.float64] = mean + np.multiply.outer(normal, error)
            return interval if self.type == "jk" else np.nanquantile(values, ends, axis=0)

        return SimpleNamespace(**{name: of(values) for name, values in drawn.items()})

    def plot(self, what: str = "mean") -> Any:
        """Draw the distribution of each parameter, a line at the model's own, and return the axes, a column for each component.
        Parameters: what : {'pro', 'mean', 'var'}, default='mean' -- The shares, the means or the variances.
        """
        import matplotlib.pyplot as plt

        pars = self.parameters
        shown = {
            "pro": (self.pro[:, np.newaxis], pars.pro[np.newaxis]),
            "mean": (self.mean, pars.mean),
            "var": (np.diagonal(self.variance, axis1=1, axis2=2).swapaxes(1, 2), np.diagonal(pars.variance.sigma).T),
        }
        if what not in shown:
            raise ValueError(f"what is {what!r}; use 'pro', 'mean' or 'var'")
        values, own = shown[what]
        d = values.shape[1]
        axes: Any
        _, axes = plt.subplots(d, self.G, figsize=(3 * self.G, 2 * d), squeeze=False, layout="constrained")
        for j, k in np.ndindex(axes.shape):
            _histogram(axes[j, k], values[:, j, k], own[j, k])
            axes[j, k].set_xlabel(f"{what} {f'of feature {j}, ' if what != 'pro' else ''}component {k + 1}")
        return axes

    def __repr__(self) -> str:
        errors = self.summary("se")
        rows = [[k + 1, errors.pro[k], *errors.mean[: _tables.COLUMNS, k].tolist()] for k in range(self.G)]
        head = ["component", "pro", *(f"mean {j}" for j in range(len(rows[0]) - 2))]
        return _tables.as_text(f"{self.modelName}, standard errors of {self.nboot} fits ({self.type})", head, rows, len(rows))


def _again(samples: _core.Data, x: Floats, z: NDArray[np.float64], name: str, control: emControl) -> _Found:
    """Fit a model to a sample, from responsibilities that have its weights."""
    (found,) = _em(samples, x, {z.shape[1]: z}, [name], control).values()
    return found


def _ratios(
    pair: tuple[_core.Mixture, _core.Mixture], name: str, n: int, nboot: int, control: emControl, device: str, rng: Any
) -> NDArray[np.float64]:
    """Return the statistics of samples from the first mixture."""
    values: list[float] = []
    for _ in range((1 + _PATIENCE) * nboot):
        x = Mixture._of(pair[0]).sample(n, rng)[0]
        samples = _core.Data(x, device=device)
        fewer, more = (_again(samples, x, samples.responsibilities(mixture), name, control) for mixture in pair)
        if fewer is not None and more is not None:
            values.append(2.0 * (more[1] - fewer[1]))
        if len(values) == nboot:
            return np.array(values)
    raise ValueError(f"{name} could be fitted to {len(values)} of {(1 + _PATIENCE) * nboot} samples alone; take another model")


def _histogram(ax: Any, values: NDArray[np.float64], own: float) -> Any:
    """Draw a histogram, and a line at one value."""
    ax = axes_of(ax)
    ax.hist(values[~np.isnan(values)], bins="sturges", color="0.75")
    ax.axvline(own, color="C2", linestyle="--")
    return ax
