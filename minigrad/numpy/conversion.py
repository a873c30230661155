"""Advice for tensors with gradients that a library converts to ndarrays.

The functions of SciPy that are written in C, and others that call `np.asarray`, cannot be answered
for tensors. The error names the function and what to write instead.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..tensor import Tensor, extension

LINEAR = [
    "scipy.fft.dct({})",
    "scipy.fft.dst({})",
    "scipy.fft.idct({})",
    "scipy.fft.idst({})",
    "scipy.integrate.simpson({})",
    "scipy.ndimage.convolve1d({}, h)",
    "scipy.ndimage.correlate1d({}, h)",
    "scipy.ndimage.gaussian_filter1d({}, sigma)",
    "scipy.ndimage.spline_filter1d({})",
    "scipy.ndimage.uniform_filter1d({}, size)",
    "scipy.signal.detrend({})",
    "scipy.signal.filtfilt(b, a, {})",
    "scipy.signal.lfilter(b, a, {})",
    "scipy.signal.resample({}, num, axis=-1)",
    "scipy.signal.resample_poly({}, up, down, axis=-1)",
    "scipy.signal.savgol_filter({}, window_length, polyorder)",
    "scipy.signal.sosfilt(sos, {})",
    "scipy.signal.sosfiltfilt(sos, {})",
    "scipy.signal.upfirdn(h, {})",
]
"""Functions that are linear in their operand x, along its last axis."""

INTERPOLATING = [
    "scipy.interpolate.BSpline(knots, {}, k)(at)",
    "scipy.interpolate.BarycentricInterpolator(points, {})(at)",
    "scipy.interpolate.CubicSpline(points, {})(at)",
    "scipy.interpolate.KroghInterpolator(points, {})(at)",
    "scipy.interpolate.RBFInterpolator(points[:, None], {})(at[:, None])",
    "scipy.interpolate.RegularGridInterpolator((points,), {})(at)",
    "scipy.interpolate.barycentric_interpolate(points, {}, at)",
    "scipy.interpolate.interp1d(points, {}, axis=0)(at)",
    "scipy.interpolate.krogh_interpolate(points, {}, at)",
    "scipy.interpolate.make_interp_spline(points, {})(at)",
    "scipy.interpolate.make_lsq_spline(points, {}, knots)(at)",
]
"""Functions that are linear in the values x, along their first axis."""


def _by_name(calls: list[str], product: str) -> dict[str, str]:
    """Return what to write instead of functions that are linear, by their names."""
    return {call.partition("(")[0]: product.format(call.format("np.eye(len(x))")) for call in calls}


LOG_DENSITIES = {
    "beta.logpdf": (
        "scipy.special.xlogy(a - 1, x) + scipy.special.xlog1py(b - 1, -x) - "
        "scipy.special.betaln(a, b)"
    ),
    "binom.logpmf": (
        "k * np.log(p) + (n - k) * np.log1p(-p) + scipy.special.gammaln(n + 1) - "
        "scipy.special.gammaln(k + 1) - scipy.special.gammaln(n - k + 1)"
    ),
    "expon.logpdf": "-(x - loc) / scale - np.log(scale)",
    "gamma.logpdf": (
        "(a - 1) * np.log(x) - x / scale - scipy.special.gammaln(a) - a * np.log(scale)"
    ),
    "laplace.logpdf": "-np.abs(x - loc) / scale - np.log(2 * scale)",
    "logistic.logpdf": "(loc - x) / scale - 2 * mg.softplus((loc - x) / scale) - np.log(scale)",
    "lognorm.logpdf": "-0.5 * (np.log(x / scale) / s) ** 2 - np.log(x * s * np.sqrt(2 * np.pi))",
    "nbinom.logpmf": (
        "n * np.log(p) + k * np.log1p(-p) + scipy.special.gammaln(n + k) - "
        "scipy.special.gammaln(k + 1) - scipy.special.gammaln(n)"
    ),
    "norm.logpdf": "-0.5 * ((x - loc) / scale) ** 2 - np.log(scale * np.sqrt(2 * np.pi))",
    "poisson.logpmf": "k * np.log(mu) - mu - scipy.special.gammaln(k + 1)",
    "t.logpdf": (
        "scipy.special.gammaln((df + 1) / 2) - scipy.special.gammaln(df / 2) - "
        "np.log(scale * np.sqrt(df * np.pi)) - (df + 1) / 2 * np.log1p(((x - loc) / scale) "
        "** 2 / df)"
    ),
    "uniform.logpdf": "0 * x - np.log(scale)",
}
"""Logarithms of densities and of probabilities, by names in `scipy.stats`."""

TAILS = {
    "beta": ("scipy.special.betainc(a, b, x)", "scipy.special.betaincc(a, b, x)"),
    "binom": ("scipy.special.bdtr(k, n, p)", "scipy.special.bdtrc(k, n, p)"),
    "expon": ("-np.expm1((loc - x) / scale)", "np.exp((loc - x) / scale)"),
    "gamma": ("scipy.special.gammainc(a, x / scale)", "scipy.special.gammaincc(a, x / scale)"),
    "logistic": ("mg.sigmoid((x - loc) / scale)", "mg.sigmoid((loc - x) / scale)"),
    "lognorm": (
        "scipy.special.ndtr(np.log(x / scale) / s)",
        "scipy.special.ndtr(-np.log(x / scale) / s)",
    ),
    "laplace": (
        "(np.exp(np.minimum(x - loc, 0) / scale) - np.expm1(np.minimum(loc - x, 0) / scale)) / 2",
        "(np.exp(np.minimum(loc - x, 0) / scale) - np.expm1(np.minimum(x - loc, 0) / scale)) / 2",
    ),
    "nbinom": ("scipy.special.nbdtr(k, n, p)", "scipy.special.nbdtrc(k, n, p)"),
    "norm": ("scipy.special.ndtr((x - loc) / scale)", "scipy.special.ndtr((loc - x) / scale)"),
    "poisson": ("scipy.special.pdtr(k, mu)", "scipy.special.pdtrc(k, mu)"),
    "t": (
        "scipy.special.stdtr(df, (x - loc) / scale)",
        "scipy.special.stdtr(df, (loc - x) / scale)",
    ),
    "uniform": ("np.clip((x - loc) / scale, 0, 1)", "np.clip((loc - x) / scale + 1, 0, 1)"),
}
"""Distribution functions and survival functions, by names in `scipy.stats`."""

DISTRIBUTIONS = {
    **LOG_DENSITIES,
    **{name.replace(".log", "."): f"np.exp({log})" for name, log in LOG_DENSITIES.items()},
    **{f"{name}.{f}": y for name, pair in TAILS.items() for f, y in zip(("cdf", "sf"), pair)},
    **{
        f"{name}.{f}": f"np.log({y})"
        for name, pair in TAILS.items()
        for f, y in zip(("logcdf", "logsf"), pair)
    },
    # finite in tails whose probability is 0 in floating-point numbers
    "expon.logsf": "(loc - x) / scale",
    "laplace.logcdf": (
        "np.minimum(x - loc, 0) / scale + np.log1p(-np.exp(np.minimum(loc - x, 0) / scale) / 2)"
    ),
    "laplace.logsf": (
        "np.minimum(loc - x, 0) / scale + np.log1p(-np.exp(np.minimum(x - loc, 0) / scale) / 2)"
    ),
    "logistic.logcdf": "mg.log_sigmoid((x - loc) / scale)",
    "logistic.logsf": "mg.log_sigmoid((loc - x) / scale)",
    "lognorm.logcdf": "scipy.special.log_ndtr(np.log(x / scale) / s)",
    "lognorm.logsf": "scipy.special.log_ndtr(-np.log(x / scale) / s)",
    "norm.logcdf": "scipy.special.log_ndtr((x - loc) / scale)",
    "norm.logsf": "scipy.special.log_ndtr((loc - x) / scale)",
}
"""What to write instead of functions of `scipy.stats`, by their names there."""


INSTEAD = {
    **_by_name(LINEAR, "x @ {}"),
    **_by_name(INTERPOLATING, "{} @ x"),
    **{
        f"scipy.special.{name}": f"mg.{name}(x)" for name in ("logsumexp", "softmax", "log_softmax")
    },
    "scipy.linalg.cho_factor": "mg.cho_factor(A)",
    "scipy.linalg.cho_solve": "mg.cho_solve(factor, b)",
    "scipy.linalg.cholesky": "np.linalg.cholesky(A).T",
    "scipy.linalg.cholesky(lower=True)": "np.linalg.cholesky(A)",
    "scipy.linalg.expm": "mg.expm(A)",
    "scipy.linalg.lu_factor": "np.linalg.solve(A, b)",
    "scipy.linalg.lu_solve": "scipy.linalg.lu_solve(factor, np.eye(len(b))) @ b",
    "scipy.linalg.qr": 'np.linalg.qr(A, "complete")',
    "scipy.linalg.qr(mode='economic')": "np.linalg.qr(A)",
    "scipy.linalg.solve": "np.linalg.solve(A, b)",
    "scipy.linalg.solve_banded": "mg.solve_banded((l, u), ab, b)",
    "scipy.linalg.solve_triangular": "mg.solve_triangular(A, b)",
    "scipy.linalg.solve_triangular(lower=True)": "mg.solve_triangular(A, b, lower=True)",
    **{
        f"scipy.linalg.{name}": f"np.linalg.{name}(A)"
        for name in ("det", "eigh", "eigvalsh", "inv", "norm", "pinv", "svd", "svdvals")
    },
    **{
        f"scipy.signal.{name}": "np.convolve(x, h)"
        for name in ("convolve", "fftconvolve", "oaconvolve")
    },
    "scipy.signal.correlate": 'np.correlate(x, h, "full")',
    "scipy.cluster.vq.vq": "np.min(np.linalg.norm(A[:, None] - B, axis=-1), axis=1)",
    "scipy.spatial.distance.braycurtis": "np.sum(np.abs(a - b)) / np.sum(np.abs(a + b))",
    "scipy.spatial.distance.canberra": "np.sum(np.abs(a - b) / (np.abs(a) + np.abs(b)))",
    "scipy.spatial.distance.cdist": "np.linalg.norm(A[:, None] - B, axis=-1)",
    "scipy.spatial.distance.cdist(metric='sqeuclidean')": "np.sum((A[:, None] - B) ** 2, axis=-1)",
    "scipy.spatial.distance.cdist(metric='cityblock')": "np.sum(np.abs(A[:, None] - B), axis=-1)",
    "scipy.spatial.distance.chebyshev": "np.max(np.abs(a - b))",
    "scipy.spatial.distance.cityblock": "np.sum(np.abs(a - b))",
    "scipy.spatial.distance.correlation": "1 - np.corrcoef(a, b)[0, 1]",
    "scipy.spatial.distance.cosine": "1 - a @ b / np.sqrt((a @ a) * (b @ b))",
    "scipy.spatial.distance.euclidean": "np.linalg.norm(a - b)",
    "scipy.spatial.distance.mahalanobis": "np.sqrt((a - b) @ VI @ (a - b))",
    "scipy.spatial.distance.minkowski": "np.sum(np.abs(a - b) ** p) ** (1 / p)",
    "scipy.spatial.distance.pdist": (
        "np.linalg.norm(A[:, None] - A, axis=-1)[np.triu_indices(len(A), 1)]"
    ),
    "scipy.spatial.distance.seuclidean": "np.sqrt(np.sum((a - b) ** 2 / V))",
    "scipy.spatial.distance.sqeuclidean": "np.sum((a - b) ** 2)",
    **{f"scipy.stats.{name}": formula for name, formula in DISTRIBUTIONS.items()},
    "scipy.stats.multivariate_normal.logpdf": (
        "-0.5 * (np.linalg.slogdet(2 * np.pi * cov)[1] + "
        "np.sum((x - mean) * np.linalg.solve(cov, (x - mean).T).T, axis=-1))"
    ),
}
"""What to write instead of functions of SciPy, by their names, or by names and options."""


def _functions_of_scipy() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Return modules, names and options of the functions of SciPy that convert, innermost first.

    There are none if the caller's own code converts, also if a function of SciPy calls that code.
    """
    frame = sys._getframe(1)
    while frame is not None and _package(frame) in ("minigrad", "numpy"):
        frame = frame.f_back  # type: ignore[assignment]
    while frame is not None and _package(frame) in ("scipy", "minigrad", "numpy"):
        module, given = frame.f_globals.get("__name__") or "", frame.f_locals
        if module.startswith("scipy."):
            owner = type(given.get("self"))
            wrapped = given.get("f", given.get("func"))  # by a decorator
            name = frame.f_code.co_name
            yield module, name, _options(getattr(sys.modules[module], name, None), given)
            candidates: tuple[Any, ...] = (owner, wrapped)
            for function in candidates:
                if (getattr(function, "__module__", None) or "").startswith("scipy."):
                    yield function.__module__, function.__name__, _options(function, given)
            if (owner.__module__ or "").startswith("scipy."):  # a method, of norm_gen for norm
                method = f"{owner.__name__.removesuffix('_gen')}.{name}"
                yield owner.__module__, method, _options(getattr(owner, name), given)
        frame = frame.f_back  # type: ignore[assignment]


def _options(function: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that a call gives, unless they change no result.

    `given` are local variables of the function, or of a decorator with `args` and `kwargs`.
    """
    try:
        parameters = inspect.signature(function).parameters
        if "args" in given and "kwargs" in given and "args" not in parameters:
            given = inspect.signature(function).bind(*given["args"], **given["kwargs"]).arguments
    except (TypeError, ValueError):  # no function, or of other arguments
        return {}
    options = {
        name: given[name]
        for name, parameter in parameters.items()
        if name in given
        and not name.startswith("overwrite")
        and name not in ("check_finite", "method", "out")
        and parameter.default is not parameter.empty
        and _is_other(given[name], parameter.default)
    }
    return options | dict(given.get("kwargs") or {}) if "kwargs" in parameters else options


def _is_other(value: Any, default: Any) -> bool:
    """Return whether an option has another value than its default."""
    if isinstance(value, Tensor):
        return False  # the operand
    if isinstance(value, np.ndarray):  # functions replace other options by arrays
        return default is None
    return repr(value) != repr(default)


def _package(frame: Any) -> str:
    return (frame.f_globals.get("__name__") or "").partition(".")[0]


def _modules() -> Iterator[str]:
    """Return the modules of the functions that are running, innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        yield frame.f_globals.get("__name__") or ""
        frame = frame.f_back  # type: ignore[assignment]


def _public(module: str) -> str:
    """Return the part of the name of a module before a private one."""
    return module.partition("._")[0]


def advice() -> str:
    """Return what to write instead of the conversion of a tensor that requires gradients."""
    if any(module.startswith("numpy.ma.") for module in _modules()):
        return "to keep them, write x.filled(value) instead of the masked array x; "
    running = [*_functions_of_scipy()]
    in_sparse = bool(running) and running[-1][0].startswith("scipy.sparse.")
    if not running or in_sparse:
        return (
            "to keep them, write np.stack([...]) or minigrad.tensor([...]) instead of "
            "np.array([...]) or a list, a tensor such as minigrad.zeros(3) instead of an ndarray "
            "that is written into, and minigrad.matmul(A, x) if A is a scipy.sparse matrix; "
        )
    for module, function, options in running[::-1]:
        name = f"{_public(module)}.{function}"
        call = f"{name}({', '.join([f'{key}={value!r}' for key, value in options.items()])})"
        if call in INSTEAD:
            return f"{name} converts it; to keep them, write {INSTEAD[call]}; "
        if name in INSTEAD:
            others = [key for key in options if not re.search(rf"\b{key}\b", INSTEAD[name])]
            if not others:
                return f"{name} converts it; to keep them, write {INSTEAD[name]}; "
            return f"{name} converts it; without {', '.join(others)} it is {INSTEAD[name]}; "
    variable = (
        ""
        if os.environ.get("SCIPY_ARRAY_API")
        else "set the environment variable SCIPY_ARRAY_API=1 before SciPy is imported, with which "
        "many of its functions take tensors, or "
    )
    return (
        f"{_public(running[-1][0])} converts it; to keep them, {variable}write the formula in "
        "NumPy's functions, or add the derivative with custom_op; "
    )


extension.conversion = advice
