"""Advice for tensors with gradients that a library converts to ndarrays.

The functions of SciPy that are written in C, and others that call `np.asarray`, cannot be answered
for tensors. The error names the function and what to write instead.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..nested import needs_gradient
from ..tensor import Tensor, extension

LINEAR = [
    "scipy.fft.dct({}, type=type, norm=norm, orthogonalize=orthogonalize)",
    "scipy.fft.dst({}, type=type, norm=norm, orthogonalize=orthogonalize)",
    "scipy.fft.idct({}, type=type, norm=norm, orthogonalize=orthogonalize)",
    "scipy.fft.idst({}, type=type, norm=norm, orthogonalize=orthogonalize)",
    "scipy.ndimage.convolve1d({}, weights, mode=mode)",
    "scipy.ndimage.correlate1d({}, weights, mode=mode, origin=origin)",
    "scipy.ndimage.gaussian_filter1d({}, sigma, order=order, mode=mode, truncate=truncate)",
    "scipy.ndimage.spline_filter1d({}, order=order, mode=mode)",
    "scipy.ndimage.uniform_filter1d({}, size, mode=mode, origin=origin)",
    "scipy.signal.detrend({}, type=type)",
    "scipy.signal.filtfilt(b, a, {}, padtype=padtype, padlen=padlen)",
    "scipy.signal.lfilter(b, a, {})",
    "scipy.signal.savgol_filter({}, window_length, polyorder, deriv=deriv, delta=delta, mode=mode)",
    "scipy.signal.sosfilt(sos, {})",
    "scipy.signal.sosfiltfilt(sos, {}, padtype=padtype, padlen=padlen)",
    "scipy.signal.upfirdn(h, {}, up=up, down=down)",
]
"""Functions that are linear in their operand x, along its last axis."""

INTERPOLATING = [
    "scipy.interpolate.BSpline(knots, {}, k, extrapolate=extrapolate)(at)",
    "scipy.interpolate.BarycentricInterpolator(points, yi={})(at)",
    "scipy.interpolate.CubicSpline(points, {}, bc_type=bc_type, extrapolate=extrapolate)(at)",
    "scipy.interpolate.KroghInterpolator(points, {})(at)",
    "scipy.interpolate.RBFInterpolator(points, {}, smoothing=smoothing, kernel=kernel)(at)",
    "scipy.interpolate.barycentric_interpolate(points, {}, at)",
    "scipy.interpolate.krogh_interpolate(points, {}, at)",
    "scipy.interpolate.make_interp_spline(points, {}, k=k, bc_type=bc_type)(at)",
    "scipy.interpolate.make_lsq_spline(points, {}, knots, k=k)(at)",
    "scipy.signal.resample({}, num, window=window)",
    "scipy.signal.resample_poly({}, up, down, window=window)",
]
"""Functions that are linear in the values x, along their first axis."""

SPLINES = [
    "Akima1DInterpolator", "BSpline", "CubicHermiteSpline", "CubicSpline",
    "InterpolatedUnivariateSpline", "LSQUnivariateSpline", "PPoly", "PchipInterpolator",
    "UnivariateSpline",
]  # fmt: skip
"""Interpolators with derivatives by their points x: `spline(x, nu)`."""


def _by_name(calls: list[str], product: str, eye: str) -> dict[str, str]:
    """Return what to write instead of functions that are linear, by their names."""
    return {call.partition("(")[0]: product.format(call.format(eye)) for call in calls}


LOG_DENSITIES = {
    "beta.logpdf": (
        "scipy.special.xlogy(a - 1, z) + scipy.special.xlog1py(b - 1, -z) - "
        "scipy.special.betaln(a, b)"
    ),
    "binom.logpmf": (
        "scipy.special.xlogy(z, p) + scipy.special.xlog1py(n - z, -p) + "
        "scipy.special.gammaln(n + 1) - scipy.special.gammaln(z + 1) - "
        "scipy.special.gammaln(n - z + 1)"
    ),
    "expon.logpdf": "-z",
    "gamma.logpdf": "scipy.special.xlogy(a - 1, z) - z - scipy.special.gammaln(a)",
    "laplace.logpdf": "-np.abs(z) - np.log(2)",
    "logistic.logpdf": "-z - 2 * mg.softplus(-z)",
    "lognorm.logpdf": "-0.5 * (np.log(z) / s) ** 2 - np.log(z * s * np.sqrt(2 * np.pi))",
    "nbinom.logpmf": (
        "n * np.log(p) + scipy.special.xlog1py(z, -p) + scipy.special.gammaln(n + z) - "
        "scipy.special.gammaln(z + 1) - scipy.special.gammaln(n)"
    ),
    "norm.logpdf": "-0.5 * z**2 - 0.5 * np.log(2 * np.pi)",
    "poisson.logpmf": "scipy.special.xlogy(z, mu) - mu - scipy.special.gammaln(z + 1)",
    "t.logpdf": (
        "scipy.special.gammaln((df + 1) / 2) - scipy.special.gammaln(df / 2) - "
        "0.5 * np.log(df * np.pi) - (df + 1) / 2 * np.log1p(z**2 / df)"
    ),
    "uniform.logpdf": "0 * z",
}
"""Logarithms of densities at z = (x - loc) / scale, and of probabilities, by names in SciPy."""

TAILS = {
    "beta": ("scipy.special.betainc(a, b, z)", "scipy.special.betaincc(a, b, z)"),
    "binom": ("scipy.special.bdtr(z, n, p)", "scipy.special.bdtrc(z, n, p)"),
    "expon": ("-np.expm1(-z)", "np.exp(-z)"),
    "gamma": ("scipy.special.gammainc(a, z)", "scipy.special.gammaincc(a, z)"),
    "laplace": (
        "(np.exp(np.minimum(z, 0)) - np.expm1(np.minimum(-z, 0))) / 2",
        "(np.exp(np.minimum(-z, 0)) - np.expm1(np.minimum(z, 0))) / 2",
    ),
    "logistic": ("mg.sigmoid(z)", "mg.sigmoid(-z)"),
    "lognorm": ("scipy.special.ndtr(np.log(z) / s)", "scipy.special.ndtr(-np.log(z) / s)"),
    "nbinom": ("scipy.special.betainc(n, z + 1, p)", "scipy.special.betaincc(n, z + 1, p)"),
    "norm": ("scipy.special.ndtr(z)", "scipy.special.ndtr(-z)"),
    "poisson": ("scipy.special.pdtr(z, mu)", "scipy.special.pdtrc(z, mu)"),
    "t": ("scipy.special.stdtr(df, z)", "scipy.special.stdtr(df, -z)"),
    "uniform": ("z", "1 - z"),
}
"""Distribution functions and survival functions at z, by names in `scipy.stats`."""

LOG_TAILS = {
    "expon.logsf": "-z",
    "laplace.logcdf": "np.minimum(z, 0) + np.log1p(-np.exp(np.minimum(-z, 0)) / 2)",
    "laplace.logsf": "np.minimum(-z, 0) + np.log1p(-np.exp(np.minimum(z, 0)) / 2)",
    "logistic.logcdf": "mg.log_sigmoid(z)",
    "logistic.logsf": "mg.log_sigmoid(-z)",
    "lognorm.logcdf": "scipy.special.log_ndtr(np.log(z) / s)",
    "lognorm.logsf": "scipy.special.log_ndtr(-np.log(z) / s)",
    "norm.logcdf": "scipy.special.log_ndtr(z)",
    "norm.logsf": "scipy.special.log_ndtr(-z)",
}
"""Logarithms that are finite in tails whose probability is 0 in floating-point numbers."""

OUTSIDE = {
    "beta": ("z < 0", "z > 1"),
    "binom": ("z < 0", "z > n"),
    "expon": ("z < 0",),
    "gamma": ("z < 0",),
    "lognorm": ("z <= 0",),
    "nbinom": ("z < 0",),
    "poisson": ("z < 0",),
    "uniform": ("z < 0", "z > 1"),
}
"""Conditions for z below and above the support, of distributions whose support is bounded."""

CONSTANT = {"beta": ["a", "b"], "binom": ["n"], "gamma": ["a"], "nbinom": ["n"], "t": ["df"]}
"""Parameters by which distribution functions have no derivative here."""


def of_distribution(name: str, function: str, given: dict[str, Any]) -> str | None:
    """Return what to write instead of a function of a distribution of SciPy, or None.

    Only a location and a scale that are `given` with other values than 0 and 1 are in the formula.
    """
    is_log, kind = function.startswith("log"), function.removeprefix("log")
    density = LOG_DENSITIES.get(f"{name}.log{kind}")
    if name not in TAILS or (density is None and kind not in ("cdf", "sf")):
        return None
    is_discrete = f"{name}.logpmf" in LOG_DENSITIES
    has_loc, has_scale = _is_other(given.get("loc", 0), 0), _is_other(given.get("scale", 1), 1)
    at = "k" if is_discrete else "x"
    at = f"({at} - loc)" if has_loc else at
    at = f"{at} / scale" if has_scale else at.strip("()")
    outside = list(OUTSIDE.get(name, ()))
    if density is not None:
        formula = f"{density} - np.log(scale)" if has_scale else density
        formula = formula if is_log else f"np.exp({formula})"
        low = high = -np.inf if is_log else 0
        outside += ["z > np.floor(z)"] if is_discrete else []
    else:
        if any(needs_gradient(given.get(x)) for x in CONSTANT.get(name, ())):
            return None
        tail = TAILS[name][kind == "sf"]
        formula = LOG_TAILS.get(f"{name}.{function}", f"np.log({tail})") if is_log else tail
        at = f"np.floor({at})" if is_discrete else at
        ends = (-np.inf, 0) if is_log else (0, 1)
        low, high = ends if kind == "cdf" else ends[::-1]
    if not outside:
        return f"z = {at}; {formula}"
    inside = re.sub(r"\bz\b", "y", formula)
    other = (
        str(low) if low == high or len(outside) == 1 else f"np.where({outside[1]}, {high}, {low})"
    )
    return (
        f"z = {at}; outside = {' | '.join([f'({condition})' for condition in outside])}; "
        f"y = np.where(outside, {0 if is_discrete else 0.5}, z); "
        f"np.where(outside, {other}, {inside})"
    ).replace("-inf", "-np.inf")


_SOLVE = (
    "solve = lambda A, b: mg.custom_op(b=lambda g: solve(A.T, g))(lambda b, /: "
    "scipy.sparse.linalg.spsolve(A, b))(b); "
)
_SPLINE = (
    "at = lambda x, nu=0: mg.custom_op(x=lambda g, x: g * at(x, nu + 1))(lambda x, /: "
    "spline(x, nu, extrapolate=extrapolate, ext=ext))(x); at(x, nu=nu)"
)


def _tracks_only(position: int, given: dict[str, Any]) -> bool:
    """Return whether only the argument at a position, without `self`, requires gradients."""
    names = [name for name in given if name != "self"]
    return not any(needs_gradient(given[x]) for x in names[:position] + names[position + 1 :])


INSTEAD = {
    **_by_name(LINEAR, "x @ {}", "np.eye(x.shape[-1])"),
    **_by_name(INTERPOLATING, "np.tensordot({}, x, 1)", "np.eye(len(x))"),
    **{f"scipy.interpolate.{name}.__call__": _SPLINE for name in SPLINES},
    "numpy.full": "np.broadcast_to(fill_value, shape)",
    "numpy.lib.CClass.__getitem__": "np.column_stack([...])",
    "numpy.lib.RClass.__getitem__": "np.hstack([...]), or np.concatenate([...]) for matrices",
    "scipy.integrate.simpson": "y @ scipy.integrate.simpson(np.eye(y.shape[-1]), x=x, dx=dx)",
    "scipy.interpolate.RegularGridInterpolator": (
        "scipy.interpolate.RegularGridInterpolator(points, np.eye(x.size).reshape(*x.shape, -1), "
        "method=method, bounds_error=bounds_error, fill_value=fill_value)(at) @ x.ravel()"
    ),
    "scipy.interpolate.interp1d": (
        "np.tensordot(x, scipy.interpolate.interp1d(points, np.eye(x.shape[-1]), kind=kind, "
        "bounds_error=bounds_error, fill_value=fill_value)(at), 1)"
    ),
    "scipy.sparse.__matmul__": "minigrad.matmul(A, x)",
    "scipy.sparse.__mul__": "minigrad.matmul(A, x)",
    "scipy.sparse.dot": "minigrad.matmul(A, x)",
    "scipy.sparse.linalg.cg": f"{_SOLVE}(solve(A, b), 0)",
    "scipy.sparse.linalg.spsolve": f"{_SOLVE}solve(A, b)",
    "scipy.special.log_softmax": "x - mg.logsumexp(x, axis=axis, keepdims=True)",
    "scipy.special.logsumexp": "mg.logsumexp(x, axis=axis, keepdims=keepdims)",
    "scipy.special.softmax": "np.exp(x - mg.logsumexp(x, axis=axis, keepdims=True))",
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
    "scipy.linalg.solve_triangular": "mg.solve_triangular(A, b, lower=lower)",
    "scipy.linalg.norm": "np.linalg.norm(A, ord=ord, axis=axis, keepdims=keepdims)",
    **{
        f"scipy.linalg.{name}": f"np.linalg.{name}(A)"
        for name in ("det", "eigh", "eigvalsh", "inv", "pinv", "svd", "svdvals")
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
    "scipy.stats.multivariate_normal.logpdf": (
        "-0.5 * (np.linalg.slogdet(2 * np.pi * cov)[1] + "
        "np.sum((x - mean) * np.linalg.solve(cov, (x - mean).T).T, axis=-1))"
    ),
}
"""What to write instead of functions, by their names, or by names and options.

The words of a formula are the arguments that it uses. `, axis=axis` is left out if the call has no
axis. If the call has an argument that the formula does not use, the formula is not recommended.
"""

CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    **{
        call.partition("(")[0]: functools.partial(_tracks_only, call.partition("{")[0].count(","))
        for call in (*LINEAR, *INTERPOLATING)
    },
    **{
        f"scipy.signal.{name}": lambda given: np.ndim(given["in1"]) == np.ndim(given["in2"]) == 1
        for name in ("convolve", "correlate", "fftconvolve", "oaconvolve")
    },
    **{
        f"scipy.interpolate.{name}.__call__": lambda given: np.ndim(given["self"](0.0)) == 0
        for name in SPLINES
    },
    **{
        f"scipy.interpolate.{name}": lambda given: (
            _tracks_only(1, given)
            and repr(given["bc_type"]) in ("None", "'clamped'", "'natural'", "'not-a-knot'")
        )
        for name in ("CubicSpline", "make_interp_spline")
    },
    **{
        f"numpy.lib.{name}.__getitem__": lambda given: (
            not any(isinstance(part, (str, slice)) for part in given["key"])
        )
        for name in ("CClass", "RClass")
    },
    "scipy.integrate.simpson": lambda given: _tracks_only(0, given) and np.ndim(given["x"]) < 2,
    "scipy.interpolate.RegularGridInterpolator": lambda given: (
        _tracks_only(1, given) and (given["fill_value"] is None or np.isnan(given["fill_value"]))
    ),
    "scipy.interpolate.interp1d": lambda given: (
        _tracks_only(1, given) and repr(given["fill_value"]) in ("nan", "'extrapolate'")
    ),
    "scipy.sparse.__mul__": lambda given: type(given["self"]).__name__.endswith("_matrix"),
    **{
        f"scipy.sparse.linalg.{f}": lambda given: hasattr(given["A"], "tocsr")
        for f in ("cg", "spsolve")
    },
}
"""Conditions on the arguments of a call, by name; otherwise the formula is not recommended."""


def _frames() -> list[Any]:
    """Return the running frames of SciPy and NumPy that convert, outermost first.

    There are none if the caller's own code converts, also if a function of SciPy calls that code.
    """
    frames, frame = [], sys._getframe(1)
    while frame is not None and _package(frame) in ("scipy", "minigrad", "numpy"):
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return [frame for frame in frames[::-1] if _package(frame) != "minigrad"]


def _package(frame: Any) -> str:
    return (frame.f_globals.get("__name__") or "").partition(".")[0]


def _calls(frame: Any) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return names of the function of a frame, and of one that it wraps, arguments and options."""
    given, name = frame.f_locals, frame.f_code.co_name
    module = frame.f_globals["__name__"]
    owner = type(given.get("self"))
    function = getattr(owner, name, getattr(sys.modules.get(module), name, None))
    if "self" not in given or _public(module) == "scipy.sparse":
        yield f"{_public(module)}.{name}", *_arguments(function, given)
    wrapped = given.get("f", given.get("func"))  # by a decorator
    if (getattr(wrapped, "__module__", None) or "").startswith("scipy."):
        yield f"{_public(wrapped.__module__)}.{wrapped.__name__}", *_arguments(wrapped, given)
    if (owner.__module__ or "").startswith(("scipy.", "numpy.")):
        path = f"{_public(owner.__module__)}.{owner.__name__.removesuffix('_gen')}"
        if name == "__init__":
            yield path, *_arguments(owner, given)
        elif hasattr(given["self"], "shapes"):
            shapes = (given["self"].shapes or "").split(", ")
            values = dict(zip(shapes, given.get("args", ())))
            yield f"{path}.{name}", given | values, {}  # a distribution
        else:
            yield f"{path}.{name}", *_arguments(function, given)


def _arguments(function: Any, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a call, and the options that differ from their defaults.

    `given` are local variables of the function, or of a decorator with `args` and `kwargs`.
    """
    try:
        parameters = inspect.signature(function).parameters
        if "args" in given and "kwargs" in given and "args" not in parameters:
            given = inspect.signature(function).bind(*given["args"], **given["kwargs"]).arguments
    except (TypeError, ValueError):  # no function, or of other arguments
        return {}, {}
    options = {
        name: given[name]
        for name, parameter in parameters.items()
        if name in given
        and not name.startswith("overwrite")
        and name != "check_finite"
        and parameter.default is not parameter.empty
        and _is_other(given[name], parameter.default)
    }
    arguments = {name: given.get(name, p.default) for name, p in parameters.items()}
    if "kwargs" in parameters:
        options |= dict(given.get("kwargs") or {})
    return {"self": given.get("self"), **arguments}, options


def _is_other(value: Any, default: Any) -> bool:
    """Return whether an option has another value than its default."""
    if isinstance(value, np.ndarray):  # functions replace other options by arrays
        return default is None or bool(np.any(value != default))
    return isinstance(value, Tensor) or repr(value) != repr(default)


def _public(module: str) -> str:
    """Return the part of the name of a module before a private one."""
    return module.partition("._")[0]


def _is_public(name: str) -> bool:
    """Return whether users can write a name, such as scipy.stats.norm.logpdf."""
    module, *path = name.split(".")
    value: Any = sys.modules.get(module)
    for part in path:
        value = getattr(value, part, None)
    return callable(value) and not path[-1].startswith("_")


def _shown(name: str) -> str:
    """Return a name as users write it."""
    name = name.partition(".__")[0].replace("numpy.lib.CClass", "np.c_")
    return name.replace("numpy.lib.RClass", "np.r_").replace("numpy.", "np.")


_ADD_RULE = "or add the derivative with custom_op; "


def advice(
    otherwise: str = (
        "to keep them, write minigrad.tensor([...]) instead of np.array([...]) or a list, A @ x "
        "instead of A.dot(x), or a tensor such as minigrad.zeros(3) instead of an ndarray that is "
        f"written into, {_ADD_RULE}"
    ),
) -> str:
    """Return what to write instead of the conversion of a tensor that requires gradients.

    Parameters
    ----------
    otherwise : str
        Advice if no function of SciPy or NumPy is running.
    """
    frames = _frames()
    if any((frame.f_globals.get("__name__") or "").startswith("numpy.ma.") for frame in frames):
        return "to keep them, write x.filled(value) instead of the masked array x; "
    if not frames:
        return otherwise
    name = ""
    for frame in frames:
        calls = [*_calls(frame)]
        for name, given, options in calls:
            formula = _formula(name, given, options)
            if formula is not None:
                return f"{_shown(name)} converts it{formula}; "
        name = next(
            (_shown(name) for name, *_ in calls if _is_public(name.partition(".__")[0])), ""
        )
        if name:
            break
    if _package(frames[0]) == "numpy":
        return f"{name} converts it; {otherwise}" if name else otherwise
    takes = any("array_namespace" in frame.f_code.co_names for frame in frames)
    variable = (
        "set the environment variable SCIPY_ARRAY_API=1 before SciPy is imported, with which some "
        "of its functions take tensors and no ndarrays beside them, "
        if takes and not os.environ.get("SCIPY_ARRAY_API")
        else ""
    )
    return (
        f"{name or _public(frames[0].f_globals['__name__'])} converts it, and no formula is known; "
        f"to keep them, {variable}write it in NumPy's functions, {_ADD_RULE}"
    )


def _formula(name: str, given: dict[str, Any], options: dict[str, Any]) -> str | None:
    """Return the advice for a call, also if its formula is for other arguments, or None."""
    module, _, function = name.rpartition(".")
    if module.startswith("scipy.stats."):
        formula = of_distribution(module.removeprefix("scipy.stats."), function, given)
        if formula is not None:
            return f"; to keep them, write {formula}"
    call = f"{name}({', '.join([f'{key}={value!r}' for key, value in options.items()])})"
    formula = INSTEAD.get(call, INSTEAD.get(name))
    if formula is None:
        return None
    words = formula + "method" * name.startswith("scipy.signal.convolve")
    others = [] if call in INSTEAD else [x for x in options if not re.search(rf"\b{x}\b", words)]
    formula = _with_options(formula, options)
    if others:
        unknown = f"with {', '.join(others)} is known (without: {formula})"
    elif name in CONDITIONS and not CONDITIONS[name](given):
        unknown = "for these arguments is known"
    else:
        return f"; to keep them, write {formula}"
    instead = f"to keep them, write it in NumPy's functions, {_ADD_RULE}"
    return f", and no formula {unknown}; {instead}".removesuffix("; ")


def _with_options(formula: str, options: dict[str, Any]) -> str:
    """Return a formula with the options that a call has, in place of `, axis=axis` and the like."""

    def option(match: re.Match[str]) -> str:
        if match[1] not in options:
            return ""
        value = options[match[1]]
        is_plain = value is None or isinstance(value, (str, int, float))
        return f", {match[1]}={value!r}" if is_plain else match[0]

    return re.sub(r", (\w+)=\1\b", option, formula)


extension.conversion = advice
