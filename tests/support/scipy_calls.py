"""Calls of SciPy's functions with the array API, and their derivatives beside finite differences.

`python tests/support/scipy_calls.py` prints a JSON object with the outcome of every call, "right" or what is wrong. It is
a program of its own, because SciPy reads SCIPY_ARRAY_API when it is imported.
"""

from __future__ import annotations

import importlib
import json
import os
import warnings
from typing import Any

CALLS = {
    "stats": """
        stats.zscore(x)
        stats.zmap(x, x[:5])
        stats.gzscore(x)
        stats.skew(x)
        stats.kurtosis(x)
        stats.kurtosis(x.reshape(3, 4), axis=1, bias=False)
        stats.moment(x, 3)
        stats.variation(x)
        stats.gmean(x)
        stats.hmean(x)
        stats.pmean(x, 2.5)
        stats.gstd(x)
        stats.sem(x)
        stats.tmean(x)
        stats.tvar(x)
        stats.tstd(x)
        stats.tsem(x)
        stats.tmax(x)
        stats.trim_mean(x, 0.2)
        stats.iqr(x)
        stats.median_abs_deviation(x)
        stats.circmean(x)
        stats.circvar(x)
        stats.circstd(x)
        stats.kstat(x, 3)
        stats.kstatvar(x, 2)
        stats.lmoment(x, 2)
        stats.quantile(x, 0.3)
        stats.describe(x).variance
        stats.entropy(x)
        stats.entropy(x[:6], x[6:])
        stats.differential_entropy(x, method="vasicek")
        stats.pearsonr(x[:6], x[6:]).statistic
        stats.pearsonr(x[:6], x[6:]).pvalue
        stats.ttest_1samp(x, 1.0).statistic
        stats.ttest_1samp(x, 1.0).pvalue
        stats.ttest_ind(x[:6], x[6:]).statistic
        stats.ttest_rel(x[:6], x[6:]).statistic
        stats.f_oneway(x[:4], x[4:8], x[8:]).statistic
        stats.f_oneway(x[:4], x[4:8], x[8:]).pvalue
        stats.alexandergovern(x[:4], x[4:8], x[8:]).statistic
        stats.bartlett(x[:6], x[6:]).statistic
        stats.bartlett(x[:6], x[6:]).pvalue
        stats.levene(x[:6], x[6:]).statistic
        stats.skewtest(x).statistic
        stats.normaltest(x).pvalue
        stats.jarque_bera(x).statistic
        stats.jarque_bera(x).pvalue
        stats.chisquare(x).statistic
        stats.chisquare(x).pvalue
        stats.power_divergence(x, lambda_="freeman-tukey").statistic
        stats.combine_pvalues(special.expit(x)).statistic
        stats.combine_pvalues(special.expit(x), method="stouffer").pvalue
        stats.false_discovery_control(special.expit(x))
        stats.boxcox_llf(0.4, x)
        stats.yeojohnson_llf(0.7, x)
        stats.sigmaclip(x).clipped
        stats.directional_stats(x.reshape(4, 3)).mean_direction
    """,
    "special": """
        special.gammaln(x)
        special.logsumexp(x)
        special.logsumexp(x, b=x[::-1])
        special.softmax(x)
        special.log_softmax(x)
        special.expit(x)
        special.erf(x)
        special.multigammaln(x + 3, 2)
        special.betaln(x, x[::-1])
        special.xlogy(x, x[::-1])
        special.rel_entr(x, x[::-1])
        special.entr(x)
        special.ndtr(x)
        special.log_ndtr(x)
        special.i0e(x)
        special.k0e(x)
        special.sinc(x)
        special.exprel(x)
        special.expi(x)
        special.exp1(x)
        special.ellipk(x / 10)
        special.rgamma(x)
        special.digamma(x)
        special.poch(x, 2.5)
        special.polygamma(2, x)
        special.zeta(2.0, x)
        special.spence(x)
        special.y0(x)
        special.y1(x)
        special.inv_boxcox(x / 9, 0.4)
        special.pseudo_huber(0.7, x)
        special.stdtr(4.0, x)
        special.chdtrc(3.0, x)
        special.gammainc(2.0, x)
        special.betainc(2.0, 3.0, x / 10)
        special.cosm1(x)
        special.gdtr(1.3, 2.0, x)
        special.fdtrc(3.0, 4.0, x)
    """,
    "integrate": """
        integrate.trapezoid(x)
        integrate.trapezoid(x, dx=0.1)
        integrate.trapezoid(x[::-1], xp.cumulative_sum(x))
        integrate.cumulative_trapezoid(x)
        integrate.cumulative_trapezoid(x, initial=0)
        integrate.cumulative_simpson(x, dx=0.2)
        integrate.tanhsinh(lambda t, a: xp.exp(-a * t), xp.asarray(0.0), xp.asarray(1.0), args=(x[:2],)).integral
        integrate.cubature(lambda t: xp.exp(-x[0] * t), xp.asarray([0.0]), xp.asarray([1.0])).estimate
    """,
    "rotations": """
        Rotation.from_rotvec(x[:3]).as_matrix()
        Rotation.from_quat(x[:4]).as_matrix()
        Rotation.from_euler("xyz", x[:3]).as_quat()
        Rotation.from_rotvec(x[:3]).apply(x[3:6])
        Rotation.from_rotvec(x[:3]).magnitude()
        Rotation.from_mrp(x[:3]).as_rotvec()
        Rotation.from_quat(x.reshape(3, 4)).mean().as_quat()
        (Rotation.from_rotvec(x[:3]) * Rotation.from_rotvec(x[3:6])).inv().as_rotvec()
        Rotation.from_rotvec(x[:3]).as_euler("zyx")
        RigidTransform.from_translation(x[:3]).apply(x[3:6])
    """,
    "optimize": """
        optimize.rosen(x)
        optimize.rosen_der(x)
    """,
    "find_root(lambda t, a: t**3 - a, (xp": """
        find_root(lambda t, a: t**3 - a, (xp.zeros(2), 2 * xp.ones(2)), args=(x[:2],)).x
    """,
    "cluster": """
        vq.whiten(x.reshape(6, 2))
    """,
    "differentiate": """
        differentiate.derivative(lambda t: t**3, x[:3]).df
    """,
    "linalg": """
        linalg.block_diag(x[:3], x[3:])
        linalg.fiedler(x)
        linalg.orthogonal_procrustes(x[:6].reshape(3, 2), x[6:].reshape(3, 2))[0]
    """,
}
"""Calls with right first and second derivatives by x, a vector of 12 positive numbers; `xp` is its namespace."""

REPLACED = {
    "signal.lfilter(B, A, x)": "x @ signal.lfilter(B, A, np.eye(12))",
    "signal.filtfilt(B, A, x, padlen=2)": "x @ signal.filtfilt(B, A, np.eye(12), padlen=2)",
    "signal.savgol_filter(x, 5, 2)": "x @ signal.savgol_filter(np.eye(12), 5, 2)",
    "signal.detrend(x)": "x @ signal.detrend(np.eye(12))",
    "signal.resample_poly(x, 2, 3)": "x @ signal.resample_poly(np.eye(12), 2, 3, axis=-1)",
    "signal.convolve(x, x[:3])": "np.convolve(x, x[:3])",
    "signal.fftconvolve(x, x[:3])": "np.convolve(x, x[:3])",
    "signal.correlate(x, x[:3])": 'np.correlate(x, x[:3], "full")',
    "ndimage.gaussian_filter1d(x, 1.0)": "x @ ndimage.gaussian_filter1d(np.eye(12), 1.0)",
    "integrate.simpson(x)": "x @ integrate.simpson(np.eye(12))",
    "fft.dct(x)": "x @ fft.dct(np.eye(12))",
    "interpolate.CubicSpline(POINTS, x)(AT)": "interpolate.CubicSpline(POINTS, np.eye(12))(AT) @ x",
    "interpolate.make_interp_spline(POINTS, x)(AT)": "interpolate.make_interp_spline(POINTS, np.eye(12))(AT) @ x",
    "interpolate.RBFInterpolator(POINTS[:, None], x)(AT[:, None])": "interpolate.RBFInterpolator(POINTS[:, None], np.eye(12))(AT[:, None]) @ x",
    "distance.cdist(x[:6].reshape(3, 2), x[6:].reshape(3, 2))": "np.sqrt(np.sum((x[:6].reshape(3, 1, 2) - x[6:].reshape(3, 2)) ** 2, axis=-1))",
    "distance.euclidean(x[:6], x[6:])": "np.sqrt(np.sum((x[:6] - x[6:]) ** 2, axis=-1))",
    "linalg.det(x[:9].reshape(3, 3))": "np.linalg.det(x[:9].reshape(3, 3))",
    "linalg.inv(x[:9].reshape(3, 3))": "np.linalg.inv(x[:9].reshape(3, 3))",
    "linalg.solve(x[:9].reshape(3, 3), x[9:])": "np.linalg.solve(x[:9].reshape(3, 3), x[9:])",
    "linalg.norm(x)": "np.linalg.norm(x)",
    "linalg.cholesky(np.diag(x))": "np.linalg.cholesky(np.diag(x)).T",
    "linalg.expm(x[:4].reshape(2, 2))": "mg.expm(x[:4].reshape(2, 2))",
}
"""Calls that are refused, and what their errors say to write."""


def calls() -> list[str]:
    """Return all calls that have derivatives."""
    return [line.strip() for lines in CALLS.values() for line in lines.strip().splitlines()]


def vocabulary() -> dict[str, Any]:
    """Return the names that the calls use."""
    import numpy as np
    import scipy
    from scipy.optimize.elementwise import find_root

    import minigrad as mg

    packages = (
        "differentiate", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "special", "stats",
    )  # fmt: skip
    return {
        **{name: importlib.import_module(f"scipy.{name}") for name in packages},
        "vq": importlib.import_module("scipy.cluster.vq"),
        "distance": scipy.spatial.distance,
        "Rotation": scipy.spatial.transform.Rotation,
        "RigidTransform": scipy.spatial.transform.RigidTransform,
        "find_root": find_root,
        "np": np,
        "mg": mg,
        "POINTS": np.arange(12.0),
        "AT": np.array([0.3, 4.7]),
        "B": np.array([0.2, 0.3]),
        "A": np.array([1.0, -0.5]),
    }


def outcome(f: Any, reference: Any) -> str:
    """Compare value, gradient and second derivative with those of the reference, by differences."""
    import numpy as np

    import minigrad as mg

    rng = np.random.default_rng(0)
    x, v, h = rng.uniform(0.3, 2.5, 12), rng.standard_normal(12), 1e-6
    expected = np.asarray(reference(x))
    weights = rng.standard_normal(expected.shape)
    total = lambda x: (f(x) * weights).sum()
    slope = mg.grad(total)
    if not np.allclose(f(mg.Tensor(x)), expected, rtol=1e-12):
        return "the value is wrong"
    difference = lambda g: (np.asarray(g(x + h * v)) - np.asarray(g(x - h * v))) / (2 * h)
    if not np.allclose(slope(x) @ v, (difference(reference) * weights).sum(), rtol=1e-5, atol=1e-6):
        return "the gradient is wrong"
    bend = mg.jvp(slope, (x,), (v,))[1]
    if not np.allclose(bend, difference(slope), rtol=1e-4, atol=1e-4):
        return "the second derivative is wrong"
    return "right"


def main() -> None:
    """Print the outcomes of all calls."""
    os.environ["SCIPY_ARRAY_API"] = "1"
    warnings.simplefilter("ignore")
    names, outcomes = vocabulary(), {}

    def function(code: str) -> Any:
        f = eval(f"lambda x, xp: {code}", names)
        return lambda x: f(x, x.__array_namespace__())

    for call in calls():
        try:
            outcomes[call] = outcome(function(call), function(call))
        except Exception as error:
            outcomes[call] = repr(error)
    for call, replacement in REPLACED.items():
        outcomes[replacement] = outcome(function(replacement), function(call))
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
