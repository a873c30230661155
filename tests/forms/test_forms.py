"""NumPy functions on tensors, in random forms of their arguments: the result of NumPy, or an error in both.

Calls are drawn from the signatures of NumPy (`tests/support/forms.py`), so a new function is tested once it is
registered. With tensors that require gradients, a call may also be refused by an error that names the option, or by
`REFUSED`. First derivatives are compared with differences of NumPy's values, second ones with differences of the first.
"""

from __future__ import annotations

import inspect
import os
import re
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from forms import BEFORE_2_4, WRITING, Call, draw_call, draw_ufunc_call

import minigrad as mg
from minigrad import Tensor
from minigrad.core.forms import IN_C, signature
from minigrad.core.tensor import DISPATCH

INTENSE = os.environ.get("HYPOTHESIS_PROFILE") == "intense"
CALLS = 1000 if INTENSE else 25

NOT_CALLED = {
    np.einsum,  # opinfo has samples of its subscripts
    np.empty_like,  # returns undefined values
    np.common_type, np.min_scalar_type, np.can_cast, np.result_type,  # about dtypes
    np.einsum_path, np.may_share_memory, np.shares_memory,  # about work and memory
    np.array2string, np.array_repr, np.array_str,
}  # fmt: skip
FUNCTIONS = sorted(
    (f for f in DISPATCH if not isinstance(f, (tuple, str)) and f not in NOT_CALLED),
    key=lambda f: f"{f.__name__} {getattr(f, '__module__', '')}",
)
OLDER = {np.concatenate, np.copyto, np.dot, np.inner, np.putmask, np.take, np.vdot, np.where}
"""Functions that take other forms before NumPy 2.4."""

UNDETERMINED = {np.linalg.cholesky, np.linalg.eigh, np.linalg.eigvalsh, np.linalg.svd}
"""Functions that read one half of a symmetric matrix, or whose vectors have any sign; opinfo tests their gradients."""

REFUSED = {
    **dict.fromkeys(WRITING, "would lose their gradient|a leaf that requires gradients cannot be"),
    np.cross: "a and b must have 3 elements",  # those of 2 are deprecated in NumPy
    np.take: "is out of bounds",  # not noticed by NumPy if the result has no elements
    np.gradient: "places that require gradients",
    np.linalg.qr: "mode '[a-z]+' .*is not supported",
}
"""Errors of minigrad where NumPy returns a result, besides those that name an option."""

ACCEPTED = {
    np.sort: "can't be provided at the same time",  # kind= and descending=
    np.argsort: "can't be provided at the same time",
    np.average: "division by zero|sum to zero",  # if the result has no elements
    np.cross: "indices must be integers",  # axis=None, the default
    np.linalg.cross: "indices must be integers",
}
"""Errors of NumPy where minigrad returns a result."""

ERRORS = (
    ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError, RuntimeError, AttributeError,
)  # fmt: skip


def outcome(call: Call, replace: Callable[[np.ndarray], Any]) -> Any:
    """Return the result, or the exception, of a call whose arrays are replaced."""

    def change(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return replace(value)
        if isinstance(value, (list, tuple)) and any(isinstance(v, np.ndarray) for v in value):
            return type(value)(map(change, value))
        return value

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return call.of(change)
        except ERRORS as error:
            return error


def flat(value: Any) -> list[Any]:
    """Return the arrays and numbers in nested lists and tuples."""
    return (
        [part for v in value for part in flat(v)] if isinstance(value, (list, tuple)) else [value]
    )


def is_refused(call: Call, error: Exception) -> bool:
    """Return whether a call that requires gradients may raise this error."""
    text = str(error).split("; got")[0]
    by_name = any(f"{name}=" in text or f"{name} must be" in text for name in call.given)
    return by_name or bool(re.search(REFUSED.get(call.function, "^$"), text))


def assert_same(call: Call, result: Any, expected: Any, tracked: bool) -> None:
    """Compare a result or an error with the one of NumPy."""
    if isinstance(expected, Exception):
        accepted = re.search(ACCEPTED.get(call.function, "^$"), str(expected))
        assert isinstance(result, Exception) or accepted, f"NumPy raises {expected!r}, not {result}"
        return
    if isinstance(result, Exception):
        assert tracked and is_refused(call, result), f"NumPy returns {expected!r}, not {result!r}"
        return
    results = flat(result)
    expecteds = flat(expected) if isinstance(result, (list, tuple)) else [expected]
    given = [*flat(list(call.given.values())), *call.args, *expecteds]
    dtypes = [v.dtype for v in given if isinstance(v, (np.ndarray, np.generic))]
    dtypes += [np.dtype(v) for v in [call.given.get("dtype")] if v is not None]
    coarsest = min([dtype.itemsize for dtype in dtypes if dtype.kind == "f"], default=8)
    where = call.kwargs.get("where", True) if isinstance(call.function, np.ufunc) else True
    for y, e in zip(results, expecteds, strict=True):
        y, e = np.asarray(getattr(y, "data", y) if isinstance(y, Tensor) else y), np.asarray(e)
        assert (y.shape, y.dtype) == (e.shape, e.dtype)
        tolerance = {2: 2e-2, 4: 1e-4}.get(coarsest, 1e-9) if e.dtype.kind == "f" else 0
        if where is not True:  # the other elements are not set
            y, e = np.where(where, y, 0), np.where(where, e, 0)
        np.testing.assert_allclose(y, e, rtol=tolerance, atol=tolerance)


class Slope:
    """Weighted results of a call along a random direction, as functions of a step."""

    def __init__(self, call: Call, ys: list[Tensor], leaves: list[Tensor], rng: Any) -> None:
        self.call = call
        self.tracked = [isinstance(y, Tensor) and y.requires_grad for y in ys]
        self.weights = [rng.standard_normal(y.shape) for y in self.differentiable(ys)]
        self.xs = [x.data for x in leaves]
        self.vs = [rng.standard_normal(x.shape) for x in leaves]

    def differentiable(self, ys: list[Any]) -> list[Any]:
        return [y for y, tracked in zip(ys, self.tracked) if tracked]

    def results(self, step: float, leaves: list[Tensor] | None = None) -> list[Any]:
        """Return the results at `step`: arrays, or tensors if `leaves` is a list to append to."""
        points = iter([x + step * v for x, v in zip(self.xs, self.vs)])

        def replace(value: np.ndarray) -> Any:
            if value.dtype.kind != "f":
                return value.copy()
            if leaves is None:
                return next(points)
            leaves.append(Tensor(next(points), requires_grad=True))
            return leaves[-1]

        return self.differentiable(flat(outcome(self.call, replace)))

    def value(self, step: float) -> float:
        ys = self.results(step)
        return sum(float((np.asarray(y) * w).sum()) for y, w in zip(ys, self.weights))

    def derivatives(self, step: float, order: int = 1) -> list[float]:
        """Return the derivatives of the engine along the direction, up to `order`."""
        leaves: list[Tensor] = []
        ys, weights, slopes = self.results(step, leaves), self.weights, []
        with np.errstate(all="ignore"):
            for _ in range(order):
                grads = mg.gradients(ys, leaves, weights, create_graph=order > 1, allow_unused=True)
                y = sum(((g * v).sum() for g, v in zip(grads, self.vs) if g is not None), Tensor(0))
                slopes.append(y.item())
                if not y.requires_grad:
                    break
                ys, weights = [y], [np.ones(())]
        return [*slopes, 0.0][:order]


def central(f: Callable[[float], float], h: float) -> tuple[float, float]:
    """Return the slope of f at 0, and a bound of its error if f is smooth."""
    near, far = ((f(k * h) - f(-k * h)) / (2 * k * h) for k in (1, 2))
    bend = (f(2 * h) - 2 * f(0.0) + f(-2 * h)) / (4 * h)
    return near, max(abs(near - far), abs(bend))


def assert_derivatives(call: Call, result: Any, leaves: list[Tensor], rng: Any) -> bool:
    """Compare first and second derivatives; return False if the call is not smooth or not of float64."""
    ys = [y for y in flat(result) if isinstance(y, Tensor) and y.requires_grad]
    leaves = [x for x in leaves if x.requires_grad]
    if not ys or call.function in UNDETERMINED:
        return False
    with np.errstate(all="ignore"):
        weights = [np.ones(y.shape, y.dtype) for y in ys]
        grads = mg.gradients(ys, leaves, weights, allow_unused=True, retain_graph=True)
    for x, g in zip(leaves, grads):
        assert g is None or (g.shape == x.shape and g.dtype == x.dtype), f"{g!r} of {x!r}"
    values = [v.data if isinstance(v, Tensor) else v for v in [*flat(call.args), *ys, *leaves]]
    numbers = [v for v in values if isinstance(v, (np.ndarray, int))]
    if any(x.dtype != np.float64 for x in [*leaves, *ys]):
        return False
    if not all((np.abs(v) < 1e6).all() for v in numbers):
        return False
    slope = Slope(call, flat(result), leaves, rng)
    first, second = slope.derivatives(0.0, 2)
    expected, doubt = central(slope.value, 1e-6)
    if not np.isfinite([first, expected]).all() or doubt > 1e-5 * (1 + abs(first)):
        return False
    assert abs(first - expected) < 1e-3 * (1 + abs(first)), f"slope {first}, not {expected}"
    expected, doubt = central(lambda step: slope.derivatives(step)[0], 1e-5)
    if np.isfinite([second, expected]).all() and doubt < 1e-3 * (1 + abs(second)):
        assert abs(second - expected) < 1e-2 * (1 + abs(second)), f"f'' {second}, not {expected}"
    return True


def check(call: Call, rng: np.random.Generator) -> bool:
    """Compare a call with NumPy; return whether its derivatives were compared."""
    if call.function is np.interp and (np.diff(np.ravel(call.given["xp"]).astype(float)) < 0).any():
        return False  # NumPy does not check that, and returns something
    expected = outcome(call, np.copy)
    compared = False
    for tracked in (False, True):
        leaves: list[Tensor] = []

        def leaf(value: np.ndarray, tracked: bool = tracked, leaves: Any = leaves) -> Any:
            if value.dtype.kind not in "fiub":
                return value
            leaves.append(Tensor(value.copy(), requires_grad=tracked and value.dtype.kind == "f"))
            return leaves[-1]

        result = outcome(call, leaf)
        if not leaves or not call.has_arrays:
            continue
        try:
            assert_same(call, result, expected, tracked)
            if (
                tracked
                and not isinstance(result, Exception)
                and not isinstance(expected, Exception)
            ):
                compared = assert_derivatives(call, result, leaves, rng)
        except Exception as error:
            raise AssertionError(f"{call}, requires_grad={tracked}\n{error!r}") from error
    return compared


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_function_of_tensors_in_random_forms_equals_numpy(function: Any) -> None:
    if function in OLDER and BEFORE_2_4:
        pytest.skip("takes other forms")
    start = zlib.crc32(function.__name__.encode())
    if INTENSE:
        start = int(np.random.default_rng().integers(2**32))
    draw = draw_ufunc_call if isinstance(function, np.ufunc) else draw_call
    for seed in range(start, start + CALLS):
        rng = np.random.default_rng(seed)
        check(draw(function, rng), rng)


@pytest.mark.parametrize(
    "call",
    [
        Call(np.power, [np.array([True, False]), 2]),
        Call(np.pad, [np.zeros(0), [(1, 2)]], {"constant_values": np.array(1.5)}),
        Call(np.pad, [np.ones((2, 2)), 1, "edge"], {"constant_values": 1}),
        Call(np.pad, [np.array(-0.3), ((1, 0),), "edge"], {"constant_values": 0}),
        Call(np.pad, [np.array(2, np.uint8), (1, 2)], {"constant_values": np.array(0.0)}),
        Call(
            np.var,
            [np.array([[-0.514]])],
            {"dtype": np.float32, "where": np.array([True]), "correction": 1},
        ),
        Call(np.cross, [np.arange(3.0), np.array([3.0, 1, 2])], {"axis": None, "axisa": 0}),
        Call(np.linspace, [-1, np.array([0.6, 0.9]), 1], {"retstep": True, "axis": -1}),
        Call(np.linspace, [-1, np.array([0.6, 0.9]), 0], {"retstep": True}),
        Call(np.append, [np.array([-0.1, 0.2], np.float16), 0]),
        Call(np.append, [91, np.array(-0.168, np.float16)]),
        Call(np.cov, [np.array([[-0.2], [-0.6], [0.1]]), np.array([[-0.3, 0.1, 0.4]]), False]),
        Call(np.full_like, [np.array(-0.2), np.array(0.5)], {"order": "X"}),
        Call(np.linalg.norm, [np.array([[1.7, 2.0, 0.2], [0.9, 0.6, 1.3]]), 1]),  # equal columns
        Call(np.divide, [True, np.array(-0.023)], {"dtype": np.float32}),
        Call(np.nanprod, [np.full(30, -(2**62))], {"dtype": np.float32, "initial": np.array(0.0)}),
        Call(np.prod, [np.array([1e200, 1e200, 0.5])], {"initial": 1e-300}),
        Call(
            np.interp, [np.array([0.3, 1.7, 9.0]), np.arange(4.0), np.array([1.0, 3.0, 2.0, 5.0])]
        ),
        Call(np.linalg.lstsq, [np.array([[1.0, 2.0], [3.0, 5.0], [1.0, 1.0]]), np.arange(3.0)]),
        Call(np.linalg.matrix_power, [np.array([[1.0, 2.0], [3.0, 5.0]]), -2]),
        Call(np.linalg.cond, [np.array([[1.0, 2.0], [3.0, 5.0]])]),
        Call(np.linalg.slogdet, [np.array([[1.0, 2.0], [3.0, 5.0]])]),
        Call(np.corrcoef, [np.array([[1.0, 2.0, 4.0], [3.0, 5.0, 2.0]])]),
    ],
    ids=str,
)
def test_call_that_random_forms_seldom_draw_equals_numpy(call: Call) -> None:
    check(call, np.random.default_rng(0))


@pytest.mark.skipif(BEFORE_2_4, reason="NumPy has no signatures of functions in C")
@pytest.mark.parametrize("function", IN_C, ids=lambda f: f"{f.__name__}")
def test_signature_of_function_in_c_is_that_of_newer_numpy(function: Any) -> None:
    expected = inspect.signature(function).parameters.values()
    assert [*signature(function).parameters.values()] == [*expected]
