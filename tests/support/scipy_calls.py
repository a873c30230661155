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
        stats.kurtosistest(xp.concat([x, x**2])).statistic
        stats.tmin(x)
        stats.ttest_ind_from_stats(x[0], x[1], 5, x[2], x[3], 6).statistic
        stats.ttest_ind_from_stats(x[0], x[1], 5, x[2], x[3], 6).pvalue
        stats.bootstrap((x,), xp.mean, n_resamples=20, rng=1, method="percentile").standard_error
        stats.monte_carlo_test(x, lambda size: xp.asarray(np.random.default_rng(1).normal(size=size)), xp.mean, n_resamples=19).statistic
        stats.permutation_test((x[:6], x[6:]), lambda a, b, axis: xp.mean(a, axis=axis) - xp.mean(b, axis=axis), n_resamples=19, rng=1, vectorized=True).statistic
        stats.differential_entropy(x)
        stats.differential_entropy(x, method="van es")
        stats.differential_entropy(x, method="ebrahimi")
        stats.differential_entropy(x, method="correa")
        stats.pearsonr(x[:6], x[6:]).confidence_interval().low
        stats.ttest_1samp(x, 1.0).confidence_interval().low
        stats.bartlett(x[:4], x[4:8], x[8:]).pvalue
        stats.alexandergovern(x[:4], x[4:8], x[8:]).pvalue
        stats.levene(x[:6], x[6:]).pvalue
        stats.skewtest(x).pvalue
        stats.quantile(x, 0.3, method="harrell-davis")
        stats.quantile(x, xp.asarray([0.2, 0.7]), method="median_unbiased")
        stats.wilcoxon(x[:6] - 0.1, x[6:]).statistic
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
        special.bdtr(2.0, 5, x / 9)
        special.bdtrc(2.0, 5, x / 9)
        special.bdtri(2.0, 5, x / 9)
        special.betaincc(2.0, 3.0, x / 10)
        special.betaincinv(2.0, 3.0, x / 10)
        special.binom(x + 3, x)
        special.boxcox(x, 0.4)
        special.boxcox1p(x, 0.4)
        special.cbrt(x)
        special.chdtr(3.0, x)
        special.chdtri(3.0, x / 9)
        special.cosdg(x)
        special.cotdg(x)
        special.ellipkm1(x / 10)
        special.erfc(x)
        special.erfcx(x)
        special.erfinv(x / 9)
        special.exp10(x)
        special.exp2(x)
        special.expn(2, x)
        special.fdtr(3.0, 4.0, x)
        special.fdtri(3.0, 4.0, x / 9)
        special.gamma(x)
        special.gammaincc(2.0, x)
        special.gammaincinv(2.0, x / 9)
        special.gammainccinv(2.0, x / 9)
        special.gammasgn(x)
        special.gdtrc(1.3, 2.0, x)
        special.huber(0.7, x)
        special.hyp1f1(0.3, 1.2, x)
        special.i0(x)
        special.i1(x)
        special.i1e(x)
        special.inv_boxcox1p(x / 9, 0.4)
        special.j0(x)
        special.j1(x)
        special.k0(x)
        special.k1(x)
        special.k1e(x)
        special.kl_div(x, x[::-1])
        special.loggamma(x)
        special.logit(x / 9)
        special.lpmv(1, 2.5, x / 9)
        special.nbdtr(2, 5, x / 9)
        special.nbdtrc(2, 5, x / 9)
        special.nbdtri(2, 5, x / 9)
        special.ndtri(x / 9)
        special.pdtr(2.0, x)
        special.pdtrc(2.0, x)
        special.pdtri(2, x / 9)
        special.psi(x)
        special.radian(x, x[::-1], x)
        special.sindg(x)
        special.stdtrit(4.0, x / 9)
        special.tandg(x)
        special.xlog1py(x, x[::-1])
        special.yn(2, x)
    """,
    "integrate": """
        integrate.romb(x[:9])
        integrate.trapezoid(x)
        integrate.trapezoid(x, dx=0.1)
        integrate.trapezoid(x[::-1], xp.cumulative_sum(x))
        integrate.cumulative_trapezoid(x)
        integrate.cumulative_trapezoid(x, initial=0)
        integrate.cumulative_simpson(x, dx=0.2)
        integrate.tanhsinh(lambda t, a: xp.exp(-a * t), xp.asarray(0.0), xp.asarray(1.0), args=(x[:2],)).integral
        integrate.cubature(lambda t: xp.exp(-x[0] * t), xp.asarray([0.0]), xp.asarray([1.0])).estimate
        integrate.cumulative_simpson(x, x=xp.cumulative_sum(x))
        integrate.qmc_quad(lambda t: xp.exp(-x[0]*t[0]), xp.asarray([0.0]), xp.asarray([1.0]), n_estimates=2, n_points=16, qrng=stats.qmc.Sobol(1, rng=1)).integral
        integrate.nsum(lambda k, a: xp.exp(-a*k), xp.asarray(1.), xp.asarray(20.), args=(x[:2],)).sum
    """,
    "signal": """
        windows.general_cosine(8, x[:3])
        windows.kaiser(8, x[0], xp=xp)
        windows.gaussian(8, x[0])
        windows.gaussian(8, x[0], xp=xp)
        windows.general_gaussian(8, x[0], x[1])
        windows.general_hamming(8, x[0], xp=xp)
        windows.exponential(8, None, x[0])
        windows.kaiser_bessel_derived(8, x[0], xp=xp)
        windows.chebwin(8, 50 * x[0], xp=xp)
        signal.get_window(("kaiser", x[0]), 8, xp=xp)
        signal.get_window(("gaussian", x[0]), 8, xp=xp)
        signal.gauss_spline(x, 3)
        signal.sos2tf(x.reshape(2, 6))[0]
        signal.zpk2tf(x[:2], x[2:5], x[5])[1]
        signal.normalize(x[:3], x[3:6])[0]
        signal.lp2lp(x[:3], x[3:6], 2.0)[0]
        signal.lp2hp(x[:3], x[3:6], 2.0)[0]
        signal.lp2bp(x[:3], x[3:6], 2.0)[0]
        signal.lp2bs(x[:3], x[3:6], 2.0)[0]
        signal.lp2lp_zpk(x[:2], x[2:5], x[5], 2.0)[1]
        signal.lp2hp_zpk(x[:2], x[2:5], x[5], 2.0)[2]
        signal.bilinear_zpk(x[:2], x[2:5], x[5], 2.0)[1]
        signal.lfiltic(x[:3], x[3:6], x[6:8])
        signal.vectorstrength(x, 2.0)[0]
        signal.convolve(x, x[:3], method="fft")
        signal.fftconvolve(x, x[:3])
        signal.oaconvolve(x, x[:3])
        signal.abcd_normalize(x[:4].reshape(2, 2), x[4:6].reshape(2, 1), x[6:8].reshape(1, 2), x[8:9].reshape(1, 1))[0]
        xp.abs(signal.freqz(x[:3], x[3:6])[1])
        xp.abs(signal.freqz_zpk(x[:2], x[2:5], x[5])[1])
        signal.group_delay((x[:3], x[3:6]))[1]
    """,
    "fft": """
        fft.fftshift(x)
        fft.ifftshift(x)
        fft.hfft(x)
        xp.abs(fft.fft(x))
        xp.real(fft.rfft(x))
    """,
    "interpolate": """
        interpolate.RBFInterpolator(xp.asarray(POINTS)[:, None], x)(xp.asarray(AT)[:, None])
        interpolate.RBFInterpolator(x.reshape(6, 2), xp.asarray(POINTS[:6]), kernel="gaussian", epsilon=1.0)(x.reshape(6, 2)[:2] + 0.1)
        interpolate.RBFInterpolator(x.reshape(6, 2), xp.asarray(POINTS[:6]), kernel="cubic")(x.reshape(6, 2)[:2] + 0.1)
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
        Rotation.from_davenport(xp.asarray([0.0, 0.0, 1.0]), "extrinsic", x[0]).as_quat()
        Rotation.from_rotvec(x[:3]).as_davenport(xp.asarray([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), "extrinsic")
        Rotation.from_rotvec(x[:3]).as_mrp()
        Rotation.concatenate([Rotation.from_rotvec(x[:3]), Rotation.from_rotvec(x[3:6])]).as_quat()
        (Rotation.from_rotvec(x[:3]) ** 0.3).as_quat()
        Rotation.from_rotvec(x.reshape(4, 3)).reduce().as_quat()
        Rotation.align_vectors(x[:6].reshape(2, 3), x[6:].reshape(2, 3))[0].as_quat()
        Rotation.align_vectors(x[:6].reshape(2, 3), x[6:].reshape(2, 3))[1]
        Rotation.from_rotvec(x.reshape(4, 3))[1:].as_quat()
        Rotation.from_rotvec(x.reshape(4, 3))[1].as_quat()
        Slerp(xp.asarray([0.0, 1.0]), Rotation.from_rotvec(x[:6].reshape(2, 3)))(xp.asarray([0.3])).as_quat()
        Slerp(xp.asarray([0.0, 3.0]), Rotation.from_rotvec(xp.asarray([[0.1,0.2,0.3],[1.,0.5,0.2]])))(x).as_quat()
        RigidTransform.from_matrix(xp.eye(4)).apply(x[:3])
        RigidTransform.from_rotation(Rotation.from_rotvec(x[:3])).as_matrix()
        RigidTransform.from_components(x[:3], Rotation.from_rotvec(x[3:6])).as_matrix()
        RigidTransform.from_exp_coords(x[:6]).as_matrix()
        RigidTransform.from_exp_coords(x[:6]).as_exp_coords()
        RigidTransform.from_dual_quat(x[:8]).as_matrix()
        RigidTransform.from_exp_coords(x[:6]).as_dual_quat()
        RigidTransform.from_exp_coords(x[:6]).as_components()[0]
        RigidTransform.concatenate([RigidTransform.from_exp_coords(x[:6]), RigidTransform.from_exp_coords(x[6:])]).as_matrix()
        (RigidTransform.from_exp_coords(x[:6]) * RigidTransform.from_exp_coords(x[6:])).inv().as_matrix()
        RigidTransform.from_exp_coords(x.reshape(2, 6))[1].as_matrix()
    """,
    "optimize": """
        optimize.rosen(x)
        optimize.rosen_der(x)
        find_root(lambda t, a: t**3 - a, (xp.zeros(2), 2 * xp.ones(2)), args=(x[:2],)).x
        optimize.rosen_hess(x)
        optimize.rosen_hess_prod(x, xp.ones(12))
        find_minimum(lambda t, a: (t - a)**2 + t**4, (xp.asarray([-4., -4.]), xp.zeros(2), 4 * xp.ones(2)), args=(x[:2],)).f_x
    """,
    "cluster": """
        vq.whiten(x.reshape(6, 2))
    """,
    "differentiate": """
        differentiate.derivative(lambda t: t**3, x[:3]).df
        differentiate.jacobian(lambda t: t**3, x[:3]).df
        differentiate.hessian(lambda t: xp.sum(t**3, axis=0), x[:3]).ddf
    """,
    "linalg": """
        linalg.block_diag(x[:3], x[3:])
        linalg.fiedler(x)
        linalg.orthogonal_procrustes(x[:6].reshape(3, 2), x[6:].reshape(3, 2))[0]
        linalg.orthogonal_procrustes(x[:6].reshape(3, 2), x[6:].reshape(3, 2))[1]
    """,
    "constants": """
        constants.convert_temperature(x, "Celsius", "Fahrenheit")
        constants.lambda2nu(x)
        constants.nu2lambda(x)
    """,
}
"""Calls with right first and second derivatives by x, a vector of 12 positive numbers; `xp` is its namespace."""

VECTORS = {"a": "x[:6]", "b": "x[6:]"}
LOCATION = {"loc": "x[0] / 2", "scale": "x[1]"}
POINTS = {"A": "x[:6].reshape(3, 2)", "B": "x[6:].reshape(3, 2)"}
DISTRIBUTIONS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "beta": ("x, a, b", {"a": "x[0] + 1", "b": "x[1] + 2", "x": "x / 4"}, {"a": "1.5", "b": "2.5"}),
    "binom": ("k, n, p", {"p": "x[:3] / 4", "n": "7"}, {}),
    "expon": ("x, loc, scale", {"loc": "x[0] / 9 - 1", "scale": "x[1]"}, {}),
    "gamma": ("x, a, scale=scale", {"a": "x[0] + 1", "scale": "x[1]"}, {"a": "1.5"}),
    "laplace": ("x, loc, scale", LOCATION, {}),
    "logistic": ("x, loc, scale", LOCATION, {}),
    "lognorm": ("x, s, scale=scale", {"s": "x[0]", "scale": "x[1]"}, {}),
    "nbinom": ("k, n, p", {"p": "x[:3] / 4", "n": "x[0] + 2"}, {"n": "5"}),
    "norm": ("x, loc, scale", LOCATION, {}),
    "poisson": ("k, mu", {"mu": "x[:3]"}, {}),
    "t": ("x, df, loc, scale", {"df": "x[2] + 2", **LOCATION}, {"df": "3.5"}),
    "uniform": ("x, loc, scale", {"loc": "-x[1] / 9", "scale": "x[0] + 9"}, {}),
}
"""Arguments of distributions, what is computed from x, and what must be constant in their integrals."""

SPLINES = {
    "Akima1DInterpolator": "interpolate.Akima1DInterpolator(points, np.sin(points))",
    "BSpline": "interpolate.make_interp_spline(points, np.sin(points))",
    "CubicHermiteSpline": "interpolate.CubicHermiteSpline(points, np.sin(points), np.cos(points))",
    "CubicSpline": "interpolate.CubicSpline(points, np.sin(points))",
    "InterpolatedUnivariateSpline": "interpolate.InterpolatedUnivariateSpline(points, np.sin(points))",
    "LSQUnivariateSpline": "interpolate.LSQUnivariateSpline(points, np.sin(points), [3.0, 6.0])",
    "PPoly": "interpolate.PPoly(np.ones((4, 1)), [0.0, 1.0])",
    "PchipInterpolator": "interpolate.PchipInterpolator(points, np.sin(points))",
    "UnivariateSpline": "interpolate.UnivariateSpline(points, np.sin(points), s=0.1)",
}
"""Splines with derivatives by their points, by class."""

OPTIONS = {
    "axis": ["0", "1"], "axes": ["0"], "b": ["np.ones(12)"], "bc_type": ["'natural'", "'clamped'", "'periodic'"],
    "bounds_error": ["False"], "compute_uv": ["False"], "cval": ["1.5"], "deg": ["1"], "delta": ["0.5"], "deriv": ["1"],
    "down": ["2"], "dx": ["0.5"], "eigvals_only": ["True"], "epsilon": ["2.0"], "extrapolate": ["False", "'periodic'"],
    "fill_value": ["1.5", "'extrapolate'", "None"], "full_matrices": ["False"], "k": ["2"], "keepdims": ["True"],
    "kernel": ["'linear'"], "kind": ["'cubic'"], "loc": ["0.3", "1"], "lower": ["True"],
    "metric": ["'sqeuclidean'", "'cosine'"], "method": ["'cubic'", "'direct'", "'gust'"],
    "mode": ["'same'", "'valid'", "'wrap'", "'constant'", "'r'"], "norm": ["'ortho'"], "nu": ["1", "2"], "ord": ["1"],
    "order": ["1", "2"], "origin": ["1"], "orthogonalize": ["True"], "p": ["3"], "padlen": ["2"],
    "padtype": ["'even'", "'mean'", "'minimum'", "None"], "pivoting": ["True"], "return_sign": ["True"], "scale": ["2.0"],
    "smoothing": ["0.1"], "trans": ["1"], "transposed": ["True"], "truncate": ["2.0"], "type": ["1", "3", "'constant'"],
    "up": ["2"], "w": ["np.ones(2)", "np.arange(1.0, 7.0)"], "window": ["'hamming'"], "x": ["np.array([0, 1, 4])"],
    "x0": ["np.ones(3)"], "zi": ["np.ones(1)", "np.ones((1, 2))"],
}  # fmt: skip
"""Values of options, of which an error recommends a formula only if the result is that of the call."""

REFUSED: dict[str, dict[str, str]] = {
    "scipy.cluster.vq.vq(A, B)[1]": {"A": "x.reshape(6, 2)", "B": "x[:4].reshape(2, 2) + 0.3"},
    "scipy.fft.dct(x)": {},
    "scipy.fft.dst(x)": {},
    "scipy.fft.idct(x)": {},
    "scipy.fft.idst(x)": {},
    "scipy.integrate.simpson(y)": {"y": "x.reshape(4, 3)"},
    "scipy.interpolate.BSpline(knots, x, k)(at)": {},
    "scipy.interpolate.BarycentricInterpolator(points, x)(at)": {},
    **{
        f"scipy.interpolate.{name}.__call__(spline, x)": {"spline": code}
        for name, code in SPLINES.items()
    },
    "scipy.interpolate.CubicSpline(points, x)(at)": {},
    "scipy.interpolate.KroghInterpolator(points, x)(at)": {},
    "scipy.interpolate.RBFInterpolator(points, x)(at)": {
        "points": "np.arange(12.0)[:, None]",
        "at": "AT[:, None]",
    },
    "scipy.interpolate.RegularGridInterpolator(points, x)(at)": {
        "x": "x.reshape(2, 3, 2)",
        "points": "(np.arange(2), np.arange(3))",
        "at": "np.array([[0.3, 1.2]])",
    },
    "scipy.interpolate.barycentric_interpolate(points, x, at)": {},
    "scipy.interpolate.interp1d(points, x)(at)": {},
    "scipy.interpolate.krogh_interpolate(points, x, at)": {},
    "scipy.interpolate.make_interp_spline(points, x)(at)": {},
    "scipy.interpolate.make_lsq_spline(points, x, knots)(at)": {},
    "scipy.linalg.cho_factor(A)[0] * np.triu(np.ones((3, 3)))": {"A": "S"},
    "scipy.linalg.cho_solve(factor, b)": {"factor": "mg.cho_factor(S)", "b": "x[9:]"},
    "scipy.linalg.cholesky(A)": {"A": "S"},
    "scipy.linalg.cholesky(A, lower=True)": {"A": "S"},
    "scipy.linalg.det(A)": {},
    "scipy.linalg.eigh(A)[0]": {"A": "S"},
    "scipy.linalg.eigvalsh(A)": {"A": "S"},
    "scipy.linalg.expm(A)": {},
    "scipy.linalg.inv(A)": {},
    "scipy.linalg.lu_solve(factor, b)": {
        "factor": "scipy.linalg.lu_factor(V[:3] + np.eye(3))",
        "b": "x[9:]",
    },
    "scipy.linalg.lu_solve(scipy.linalg.lu_factor(A), b)": {"b": "x[9:]"},
    "scipy.linalg.norm(A)": {},
    "scipy.linalg.pinv(A)": {},
    "scipy.linalg.qr(A)[1]": {},
    "scipy.linalg.qr(A, mode='economic')[1]": {"A": "x.reshape(4, 3)"},
    "scipy.linalg.solve(A, b)": {"b": "x[9:]"},
    "scipy.linalg.solve_banded((l, u), ab, b)": {"ab": "A", "b": "x[9:]"},
    "scipy.linalg.solve_triangular(A, b)": {"b": "x[9:]"},
    "scipy.linalg.svd(A)[1]": {},
    "scipy.linalg.svdvals(A)": {},
    "scipy.ndimage.convolve1d(x, weights)": {"weights": "h"},
    "scipy.ndimage.correlate1d(x, weights)": {"weights": "h"},
    "scipy.ndimage.gaussian_filter1d(x, sigma)": {},
    "scipy.ndimage.spline_filter1d(x)": {},
    "scipy.ndimage.uniform_filter1d(x, size)": {},
    "scipy.sparse.linalg.cg(A, b)[0]": {"A": "SPARSE", "b": "x[9:]"},
    "scipy.sparse.linalg.spsolve(A, b)": {"A": "SPARSE", "b": "x[9:]"},
    "scipy.signal.convolve(x, h)": {"h": "x[:3]"},
    "scipy.signal.correlate(x, h)": {"h": "x[:3]"},
    "scipy.signal.detrend(x)": {},
    "scipy.signal.fftconvolve(x, h)": {"h": "x[:3]"},
    "scipy.signal.filtfilt(b, a, x)": {},
    "scipy.signal.lfilter(b, a, x)": {},
    "scipy.signal.oaconvolve(x, h)": {"h": "x[:3]"},
    "scipy.signal.resample(x, num)": {},
    "scipy.signal.resample_poly(x, up, down)": {},
    "scipy.signal.savgol_filter(x, window_length, polyorder)": {},
    "scipy.signal.sosfilt(sos, x)": {},
    "scipy.signal.sosfiltfilt(sos, x)": {},
    "scipy.signal.upfirdn(h, x)": {},
    "scipy.spatial.distance.braycurtis(a, b)": VECTORS,
    "scipy.spatial.distance.canberra(a, b)": VECTORS,
    "scipy.spatial.distance.cdist(A, B)": POINTS,
    "scipy.spatial.distance.cdist(A, B, metric='sqeuclidean')": POINTS,
    "scipy.spatial.distance.cdist(A, B, metric='cityblock')": POINTS,
    "scipy.spatial.distance.chebyshev(a, b)": VECTORS,
    "scipy.spatial.distance.cityblock(a, b)": VECTORS,
    "scipy.spatial.distance.correlation(a, b)": VECTORS,
    "scipy.spatial.distance.cosine(a, b)": VECTORS,
    "scipy.spatial.distance.euclidean(a, b)": VECTORS,
    "scipy.spatial.distance.mahalanobis(a, b, VI)": VECTORS,
    "scipy.spatial.distance.minkowski(a, b, p)": VECTORS,
    "scipy.spatial.distance.pdist(A)": {"A": "x.reshape(6, 2)"},
    "scipy.spatial.distance.seuclidean(a, b, V)": VECTORS,
    "scipy.spatial.distance.sqeuclidean(a, b)": VECTORS,
    "scipy.stats.multivariate_normal.logpdf(x, mean, cov)": {"x": "A", "mean": "x[:3]", "cov": "S"},
    **{
        f"scipy.stats.{name}.{function}({arguments})": operands
        for name, (arguments, operands, constant) in DISTRIBUTIONS.items()
        for function in ("pdf", "logpdf", "pmf", "logpmf")
        if ("pmf" in function) == arguments.startswith("k")
    },
    **{
        f"scipy.stats.{name}.{function}({arguments})": operands | constant
        for name, (arguments, operands, constant) in DISTRIBUTIONS.items()
        for function in ("cdf", "logcdf", "sf", "logsf")
    },
    "scipy.special.log_softmax(x)": {},
    "scipy.special.logsumexp(x)": {},
    "scipy.special.softmax(x)": {},
}
"""Calls that are refused, and their operands that are computed from x, by name.

`A` and `S` are matrices that are computed from x in all calls.
"""


def calls() -> list[str]:
    """Return all calls that have derivatives."""
    return [line.strip() for lines in CALLS.values() for line in lines.strip().splitlines()]


def vocabulary() -> dict[str, Any]:
    """Return the names that the calls use."""
    import numpy as np
    import scipy
    from scipy.optimize.elementwise import find_minimum, find_root

    import minigrad as mg

    packages = (
        "constants", "differentiate", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "special",
        "stats",
    )  # fmt: skip
    return {
        **{name: importlib.import_module(f"scipy.{name}") for name in packages},
        "vq": importlib.import_module("scipy.cluster.vq"),
        "windows": scipy.signal.windows,
        "Rotation": scipy.spatial.transform.Rotation,
        "RigidTransform": scipy.spatial.transform.RigidTransform,
        "Slerp": scipy.spatial.transform.Slerp,
        "find_minimum": find_minimum,
        "find_root": find_root,
        "scipy": scipy,
        "np": np,
        "mg": mg,
        "SPARSE": scipy.sparse.csc_array(np.diag([2.0, 3.0, 4.0]) + 0.5),
        "POINTS": np.arange(12.0),
        "AT": np.array([0.3, 4.7]),
        # operands of the calls in REFUSED
        "points": np.arange(12.0),
        "at": np.array([2.3, 4.7]),
        "knots": np.array([0, 0, 0, 0, 2, 3.5, 4.5, 5.5, 6.5, 7.5, 9, 9, 11, 11, 11, 11])[:16],
        "b": np.array([0.2, 0.3]),
        "a": np.array([1.0, -0.5]),
        "sos": np.array([[0.2, 0.3, 0.1, 1.0, -0.5, 0.2]]),
        "h": np.array([0.2, 0.5, -0.3]),
        "V": np.arange(1.0, 7.0),
        "VI": np.diag(np.arange(1.0, 7.0)),
        "k": 3, "p": 3, "l": 1, "u": 1, "up": 2, "down": 3, "num": 7, "size": 3, "sigma": 0.7, "window_length": 5,
        "polyorder": 2,
    }  # fmt: skip


def with_operands(call: str, operands: dict[str, str]) -> Any:
    """Return the function of x that computes a call with operands that depend on x."""
    names = vocabulary()

    *statements, value = call.split("; ")

    def f(x: Any) -> Any:
        A = x[:9].reshape(3, 3)
        local = {**names, "x": x, "A": A, "S": A @ A.T + 3 * names["np"].eye(3)}
        local |= {name: eval(code, local) for name, code in operands.items()}
        for statement in statements:
            exec(statement, local)
        return eval(value, local)

    return f


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
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
