"""Advice for tensors with gradients that a library converts to ndarrays.

The functions of SciPy that are written in C, and others that call `np.asarray`, cannot be answered
for tensors. The error names the function and what to write instead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ..tensor import OTHERS

LINEAR = """
    lfilter filtfilt sosfilt sosfiltfilt lfiltic savgol_filter detrend resample resample_poly
    upfirdn dct dst idct idst simpson
    convolve1d correlate1d gaussian_filter1d uniform_filter1d sobel prewitt spline_filter1d
"""
"""Functions that are linear in their operand x, along its last axis."""

INTERPOLATING = """
    CubicSpline make_interp_spline make_lsq_spline make_smoothing_spline BSpline
    RegularGridInterpolator RBFInterpolator BarycentricInterpolator krogh_interpolate
    barycentric_interpolate interp1d
"""
"""Functions that are linear in the values, along their first axis."""

DISTANCES = """
    cdist pdist euclidean sqeuclidean cosine correlation cityblock minkowski braycurtis canberra
    chebyshev jensenshannon mahalanobis seuclidean vq kmeans kmeans2 linkage
"""

INSTEAD = {
    **{name: f"mg.{name}(x)" for name in ("logsumexp", "softmax", "log_softmax")},
    "expm": "mg.expm(A)",
    "solve_triangular": "mg.solve_triangular(A, b)",
    "cho_factor": "mg.cho_factor(A)",
    "cho_solve": "mg.cho_solve(factor, b)",
    "solve_banded": "mg.solve_banded((l, u), ab, b)",
    **{
        name: f"np.linalg.{name}({'A, b' if name == 'solve' else 'A'})"
        for name in (
            "det",
            "inv",
            "solve",
            "norm",
            "svd",
            "svdvals",
            "eigh",
            "eigvalsh",
            "qr",
            "pinv",
        )
    },
    "cholesky": "np.linalg.cholesky(A).T",
    **dict.fromkeys(("convolve", "fftconvolve", "oaconvolve"), "np.convolve(x, h)"),
    "correlate": 'np.correlate(x, h, "full")',
    "hilbert": "x @ scipy.signal.hilbert(np.eye(len(x))).imag for the imaginary part",
    **dict.fromkeys(LINEAR.split(), "x @ {name}(np.eye(len(x))), since it is linear in x"),
    **dict.fromkeys(
        INTERPOLATING.split(),
        "{name}(points, np.eye(len(x)))(at) @ x, since it is linear in the values x",
    ),
    **dict.fromkeys(
        DISTANCES.split(),
        "the formula, such as np.sqrt(np.sum((a[:, None] - b) ** 2, axis=-1)) for distances",
    ),
}
"""What to write instead of functions of SciPy."""


def _functions_of_scipy() -> Iterator[tuple[str, str]]:
    """Return the modules and names of the functions of SciPy that are running, innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        if module.startswith("scipy."):
            yield module, frame.f_code.co_name
            owner = type(frame.f_locals.get("self"))
            wrapped = frame.f_locals.get("f", frame.f_locals.get("func"))  # by a decorator
            candidates: tuple[Any, ...] = (owner, wrapped)
            for function in candidates:
                if (getattr(function, "__module__", None) or "").startswith("scipy."):
                    yield function.__module__, function.__name__
        frame = frame.f_back  # type: ignore[assignment]


def advice() -> str:
    """Return what to write instead of the conversion of a tensor that requires gradients."""
    running = [*_functions_of_scipy()]
    in_sparse = bool(running) and running[-1][0].startswith("scipy.sparse.")
    for module, name in [] if in_sparse else running[::-1]:
        if name in INSTEAD:
            package = ".".join(module.split(".")[:2])
            shown = INSTEAD[name].format(name=f"{package}.{name}")
            return f"{package}.{name} converts it; to keep them, write {shown}; "
    if running and not in_sparse:
        return (
            f"{running[-1][0].rpartition('._')[0] or running[-1][0]} converts it; to keep them, "
            "write the formula in NumPy's functions, or add the derivative with custom_op; "
        )
    return (
        "to keep them, write np.stack([...]) or minigrad.tensor([...]) instead of np.array([...]), "
        "a list, or an array that is written into, and minigrad.matmul(A, x) if A is a "
        "scipy.sparse matrix; "
    )


OTHERS["conversion"] = advice
