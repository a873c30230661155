"""NumPy functions on tensors, in drawn forms of their arguments: the result of NumPy, or an error in both.

Calls are drawn from the signatures of NumPy (`tests/support/forms.py`), so a new function is tested once it is
registered. With tensors that require gradients, a call may also be refused by an error that names the option, or by
`REFUSED`. First derivatives are compared with differences of NumPy's values, second ones with differences of the first.
"""

from __future__ import annotations

import inspect
import itertools
import operator
import re
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples
from support.forms import BEFORE_2_1, BEFORE_2_4, BEFORE_2_5, CHOICES, NUMBERS, WRITING, Call, calls

import minigrad as mg
from minigrad import Tensor
from minigrad.numpy.complex_tensor import ComplexTensor
from minigrad.numpy.forms import ADAPTED
from minigrad.numpy.nested import IN_C, signature
from minigrad.numpy.watch import Watch
from minigrad.tensor import DISPATCH

NOT_CALLED = {
    np.einsum,  # opinfo has samples of its subscripts
    np.empty_like,  # returns undefined values
    np.common_type, np.min_scalar_type, np.can_cast, np.result_type,  # about dtypes
    np.einsum_path, np.may_share_memory, np.shares_memory,  # about work and memory
    np.array2string, np.array_repr, np.array_str,
}  # fmt: skip
FUNCTIONS = sorted(
    (f for f in {**DISPATCH, **ADAPTED} if not isinstance(f, tuple) and f not in NOT_CALLED),
    key=lambda f: f"{f.__name__} {getattr(f, '__module__', '')}",
)
OLDER = {
    np.concatenate, np.copyto, np.dot, np.inner, np.linalg.norm, np.putmask, np.take, np.vdot, np.where,
}  # fmt: skip
"""Functions that take other forms before NumPy 2.4."""

TO_REAL = {np.fft.irfft, np.fft.irfft2, np.fft.irfftn, np.fft.hfft}
"""Transforms to real values."""

UNDETERMINED = {np.linalg.cholesky, np.linalg.eigh, np.linalg.eigvalsh, np.linalg.svd}
"""Functions that read one half of a symmetric matrix, or whose vectors have any sign; opinfo tests their gradients."""

REFUSED = {
    **dict.fromkeys(
        WRITING,
        "would lose their gradient|a leaf that requires gradients cannot be|to keep the gradient",
    ),
    np.cross: "a and b must have 3 elements",  # those of 2 are deprecated in NumPy
    np.take: "index .* is out of bounds",  # not noticed by NumPy if the result has no elements
    np.insert: "x must be floating",  # NumPy rounds the inserted values
    np.gradient: "positions must not require gradients",
}
"""Errors of minigrad where NumPy returns a result, besides those that name an option."""

ACCEPTED = {
    np.sort: "can't be provided at the same time",  # kind= and descending=
    **dict.fromkeys(
        (np.nanmean, np.nanvar, np.nanstd), "axis .* out of bounds.* dimension 0"
    ),  # a whole number
    np.average: "division by zero|sum to zero",  # if the result has no elements
    np.cross: "integer",  # axis=None, the default, or a list of one axis
    np.linalg.cross: "integer",
    np.take_along_axis: "'list' object has no attribute",  # a list of indices
    np.linalg.outer: "must be one-dimensional",  # as np.outer, which flattens
    np.interp: "Cannot cast array data",  # from longdouble
    np.insert: "'list' object has no attribute 'ndim'",  # a list of booleans as positions
    np.pad: "unsupported keyword arguments for mode",  # reflect_type="even", the default
    np.linalg.vector_norm: "must be None, an integer or a tuple",  # a list of axes
}
"""Errors of NumPy where minigrad returns a result."""

ERRORS = (
    ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError, RuntimeError, AttributeError,
)  # fmt: skip


NAMES = """
abs absolute acos acosh add all allclose amax amin angle any append arccos arccosh arcsin arcsinh arctan
arctan2 arctanh argmax argmin argpartition argsort argwhere around array2string array_equal array_equiv
array_repr array_split array_str asin asinh atan atan2 atanh atleast_1d atleast_2d atleast_3d average
bitwise_and bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor block
broadcast_arrays broadcast_to can_cast cbrt ceil clip column_stack common_type concat concatenate conj
conjugate convolve copy copysign copyto corrcoef correlate cos cosh count_nonzero cov cross cumprod cumsum
cumulative_prod cumulative_sum deg2rad degrees delete diag diag_indices_from diagflat diagonal diff digitize
divide divmod dot dsplit dstack einsum einsum_path empty_like equal exp exp2 expand_dims expm1 fft.fft
fft.fft2 fft.fftn fft.fftshift fft.hfft fft.ifft fft.ifft2 fft.ifftn fft.ifftshift fft.ihfft fft.irfft
fft.irfft2 fft.irfftn fft.rfft fft.rfft2 fft.rfftn fill_diagonal fix flip fliplr flipud floor floor_divide
fmax fmin fmod full_like gradient greater greater_equal heaviside hsplit hstack hypot imag inner insert interp
invert isclose iscomplex iscomplexobj isfinite isin isinf isnan isneginf isposinf isreal isrealobj kron
left_shift less less_equal lib.stride_tricks.sliding_window_view linalg.cholesky linalg.cond linalg.cross
linalg.det linalg.diagonal linalg.eigh linalg.eigvalsh linalg.inv linalg.lstsq linalg.matmul
linalg.matrix_norm linalg.matrix_power linalg.matrix_rank linalg.matrix_transpose linalg.norm linalg.outer
linalg.pinv linalg.qr linalg.slogdet linalg.solve linalg.svd linalg.svdvals linalg.tensordot linalg.trace
linalg.vecdot linalg.vector_norm linspace log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not
logical_or logical_xor matmul matrix_transpose max maximum may_share_memory mean median meshgrid min
min_scalar_type minimum mod moveaxis multiply nan_to_num nanargmax nanargmin nanmax nanmean nanmin nanprod
nanstd nansum nanvar ndim negative nonzero not_equal ones_like outer pad percentile permute_dims place polyval
positive pow power prod ptp put put_along_axis putmask quantile rad2deg radians ravel real real_if_close
reciprocal remainder repeat reshape result_type right_shift rint roll rollaxis rot90 round searchsorted select
shape shares_memory sign signbit sin sinc sinh size sort split sqrt square squeeze stack std subtract sum
swapaxes take take_along_axis tan tanh tensordot tile trace transpose trapezoid tril tril_indices_from triu
triu_indices_from true_divide trunc unstack unwrap var vdot vecdot vsplit vstack where zeros_like
"""


def test_functions_of_numpy_are_registered() -> None:
    """Names that this version of NumPy lacks are left out."""
    known = {**DISPATCH, **ADAPTED}
    found = {name: operator.attrgetter(name)(np) for name in NAMES.split() if has(np, name)}
    assert len(found) > 250 and not [name for name, f in found.items() if f not in known]


def has(module: Any, name: str) -> bool:
    first, _, rest = name.partition(".")
    return hasattr(module, first) and (not rest or has(getattr(module, first), rest))


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


def tracked_in(values: list[Any]) -> list[Tensor]:
    """Return the tensors that require gradients, and the parts of complex ones."""
    parts = [part for y in values for part in real_parts(y)]
    return [y for y in parts if isinstance(y, Tensor) and y.requires_grad]


def real_parts(y: Any) -> list[Any]:
    return [y.real, y.imag] if isinstance(y, ComplexTensor) else [y]


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
    is_ufunc = isinstance(call.function, np.ufunc)
    where = call.kwargs.get("where", True) if is_ufunc else True
    is_with_out = not {"out"}.isdisjoint(call.kwargs) or len(call.args) > 3
    assert not is_ufunc or is_with_out or all(isinstance(y, Tensor) for y in results)
    for y, e in zip(results, expecteds, strict=True):
        y, e = np.asarray(y.data if isinstance(y, Tensor) else y), np.asarray(e)
        assert (y.shape, y.dtype) == (e.shape, e.dtype)
        tolerance = {2: 2e-2, 4: 1e-4}.get(coarsest, 1e-9) if e.dtype.kind in "fc" else 0
        if where is not True:  # the other elements are not set
            y, e = np.where(where, y, 0), np.where(where, e, 0)
        if not np.array_equal(y, e):
            np.testing.assert_allclose(y, e, rtol=tolerance, atol=tolerance)


def derivative(call: Call, order: int, step: float, seed: int) -> float:
    """Return a derivative of the weighted results along a random direction, at a distance."""
    t, rng = Tensor(step, requires_grad=True), np.random.default_rng(seed)

    def move(x: np.ndarray) -> Any:
        if x.dtype.kind == "f":
            return x + t * rng.standard_normal(x.shape)
        return Tensor(x.copy()) if x.dtype.kind in "iub" else x

    ys = tracked_in(flat(outcome(call, move)))
    y: Any = sum((y * rng.standard_normal(y.shape)).sum() for y in ys)
    with np.errstate(all="ignore"):
        for left in reversed(range(order)):
            if not tracked_in([y]):
                return 0.0
            (y,) = mg.gradients(y, [t], create_graph=left > 0)
    return float(y.item())


def central(f: Callable[[float], float], h: float) -> tuple[float, float]:
    """Return the slope of f at 0, and a bound of its error if f is smooth."""
    near, far = ((f(k * h) - f(-k * h)) / (2 * k * h) for k in (1, 2))
    bend = (f(2 * h) - 2 * f(0.0) + f(-2 * h)) / (4 * h)
    return near, max(abs(near - far), abs(bend))


def assert_derivatives(call: Call, result: Any, leaves: list[Tensor], seed: int) -> None:
    """Compare first and second derivatives if the call is smooth and of float64."""
    ys, leaves = tracked_in(flat(result)), tracked_in(leaves)
    if not ys or call.function in UNDETERMINED:
        return
    weights = [np.ones(y.shape, y.dtype) for y in ys]
    with np.errstate(all="ignore"):
        grads = mg.gradients(ys, leaves, weights, allow_unused=True, retain_graph=True)
    for x, g in zip(leaves, grads):
        assert g is None or (g.shape == x.shape and g.dtype == x.dtype), f"{g!r} of {x!r}"
    if any(x.dtype != np.float64 for x in [*leaves, *ys]):
        return
    numbers = [v for v in flat(call.args) if isinstance(v, (np.ndarray, int))]
    numbers += [x.data for x in [*ys, *leaves]]
    if not all((np.abs(v) < 1e6).all() for v in numbers):
        return
    for order, h, bound, rtol in ((1, 1e-6, 1e-5, 1e-3), (2, 1e-5, 1e-3, 1e-2)):
        found = derivative(call, order, 0.0, seed)
        expected, doubt = central(lambda step, n=order - 1: derivative(call, n, step, seed), h)
        if not np.isfinite([found, expected]).all() or doubt > bound * (1 + abs(found)):
            return
        assert abs(found - expected) < rtol * (1 + abs(found)), f"f{order}: {found}, not {expected}"


WHOLE = {np.quantile, np.percentile, np.nanquantile, np.nanpercentile}
"""Functions that return whole numbers in newer versions of NumPy."""


def check(call: Call, seed: int) -> None:
    """Compare a call with NumPy, without and with gradients, and with a watch."""
    if call.function is np.interp and (np.diff(np.ravel(call.given["xp"]).astype(float)) < 0).any():
        return  # NumPy does not check that, and returns something
    if call.function in TO_REAL and any(np.size(value) == 0 for value in call.args):
        return  # NumPy returns memory that it has not written
    expected = outcome(call, np.copy)
    if BEFORE_2_4 and "which has no identity" in str(expected):
        return  # the norm of no elements, which is 0 since NumPy 2.3
    if BEFORE_2_1 and call.function is np.full_like:
        return  # 300 becomes 44 in uint8
    for tracked in (False, True):
        leaves: list[Tensor] = []

        def leaf(value: np.ndarray, tracked: bool = tracked, leaves: Any = leaves) -> Any:
            if value.dtype.kind not in "fiub":
                return value
            leaves.append(Tensor(value.copy(), requires_grad=tracked and value.dtype.kind == "f"))
            return leaves[-1]

        result = outcome(call, leaf)
        if leaves and call.has_arrays:
            assert_same(call, result, expected, tracked)
            if tracked and not isinstance(expected, Exception):
                assert_derivatives(call, result, leaves, seed)
    if leaves and call.has_arrays and (call.function not in WHOLE or leaves[0].dtype.kind == "f"):
        with Watch():  # which every operation of minigrad needs, also that of whole numbers
            assert_same(call, outcome(call, lambda value: leaf(value, False)), expected, True)


@cache
def seeded_calls(function: Any) -> st.SearchStrategy[tuple[Call, int]]:
    return st.tuples(calls(function), st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@max_examples(8)
@given(data=st.data())
def test_function_of_tensors_in_drawn_forms_equals_numpy(
    function: Any, data: st.DataObject
) -> None:
    if function in OLDER and BEFORE_2_4:
        pytest.skip("needs the forms of NumPy 2.4")
    call, seed = data.draw(seeded_calls(function))
    check(call, seed)


SINGLE = np.array([1.0, 2.0], np.float32)
SQUARES = np.arange(1.0, 13.0).reshape(3, 4) ** 2
REGULAR = np.array([[2.0, 1.0], [0.5, 3.0]])
MANY = np.arange(1.0, 602.0) / 7


@pytest.mark.parametrize(
    "call",
    [
        Call(np.pad, [np.zeros(0), [(1, 2)]], {"constant_values": np.array(1.5)}),
        Call(np.pad, [np.array(2.0), 1]),
        Call(np.roll, [SQUARES, (1, 2, 1), (0, 1, 0)]),
        Call(np.roll, [SQUARES, 1, (-1, 1)]),
        Call(np.pad, [np.array(2.0), (1, 2, 3)]),
        Call(np.linalg.norm, [np.array([[1.7, 2.0], [0.9, 0.6]]), "f"]),
        *(Call(np.diff, [np.array([True, False, False]), n]) for n in (0, 1, 2)),
        *(
            Call(f, [np.array([5, 3, 1]).astype(dtype)])
            for f in (np.fft.fft, np.fft.irfft, np.fft.hfft)
            for dtype in ("i1", "?")
        ),
        Call(
            np.var,
            [np.array([[-0.514]])],
            {"dtype": np.float32, "where": np.array([True]), "correction": 1},
        ),
        Call(np.cross, [np.arange(3.0), np.array([3.0, 1, 2])], {"axis": None, "axisa": 0}),
        Call(np.cov, [np.array([[-0.2], [-0.6], [0.1]]), np.array([[-0.3, 0.1, 0.4]]), False]),
        Call(np.linalg.norm, [np.array([[1.7, 2.0, 0.2], [0.9, 0.6, 1.3]]), 1]),  # equal columns
        Call(np.nanprod, [np.full(30, -(2**62))], {"dtype": np.float32, "initial": np.array(0.0)}),
        Call(np.prod, [np.array([1e200, 1e200, 0.5])], {"initial": 1e-300}),
        Call(np.average, [SINGLE], {"weights": np.array([True, False])}),
        Call(np.average, [np.array([1, 2], np.int8)], {"weights": SINGLE}),
        Call(np.nan_to_num, [SINGLE], {"nan": np.float64(0), "posinf": np.array(1)}),
        Call(np.gradient, [SINGLE, np.array(1.5)]),
        Call(np.gradient, [SQUARES]),
        *(
            Call(np.gradient, [SQUARES, np.array(h)], {"edge_order": n})
            for h in (1, 0.5)
            for n in (1, 2)
        ),
        Call(np.trapezoid, [SQUARES, SQUARES[::-1]], {"axis": 0}),
        Call(np.trapezoid, [SQUARES, SQUARES[::-1]], {"axis": -1}),
        Call(np.trapezoid, [SQUARES, SQUARES[:, 0]], {"axis": -2}),
        *(Call(f, [SQUARES], {"dtype": bool}) for f in (np.sum, np.prod, np.cumsum, np.cumprod)),
        *(Call(np.clip, [SQUARES, *a]) for a in ((4, 30.5), (None, 30), (4, None), (30, 4))),
        *(
            Call(np.clip, [SQUARES], b)
            for b in ({"min": 4, "max": 30.5}, {"min": 4}, {"max": 30}, {})
        ),
        *(Call(np.take, [np.array(2.0), [0, 0], axis]) for axis in (0, -1, 1, None)),
        *(
            Call(np.linalg.norm, [np.zeros(shape), ord])
            for shape in (0, (0, 3))
            for ord in (np.inf, 1, 2)
        ),
        *(Call(np.insert, [SINGLE, 1, value]) for value in (2.5, SQUARES[0, 1:2])),
        *(
            Call(np.pad, [SQUARES, 1], {"constant_values": value})
            for value in (np.array([1.5, 2.5]), (1.5, 2.5), ((1, 2), (3, 4)), np.array([[1], [2]]))
        ),
        *(Call(np.pad, [SQUARES, 1, "edge"], {"constant_values": value}) for value in (0, 1)),
        Call(np.broadcast_arrays, [SQUARES[0], np.array(1.0), SQUARES]),
        Call(np.insert, [SQUARES, [], np.zeros(0)]),
        Call(np.insert, [SQUARES, [], np.zeros((0, 4)), 0]),
        *(Call(np.pad, [np.array(2.0), width]) for width in (-1, 1.5, ((1, 2), (1, 2)))),
        *(Call(f, [np.array(x), 0]) for f in (np.cumprod, np.cumsum) for x in (0.0, 2.0)),
        Call(
            np.select,
            [[SQUARES > 3, SQUARES > 9, SQUARES < 5], [SQUARES, -SQUARES, SQUARES * 2], 2.0],
        ),
        *(Call(np.append, [SINGLE, value]) for value in (1.5, 2, np.float32(1), SINGLE)),
        Call(np.nan_to_num, [np.array([np.inf, -np.inf, np.nan])], {"posinf": 0, "neginf": 0}),
        Call(np.nan_to_num, [np.array([np.inf, -np.inf, np.nan], np.float32)], {"nan": 1}),
        Call(np.linspace, [SINGLE, 3.0], {"num": 3}),
        Call(np.linspace, [SINGLE, SQUARES[0, :2]], {"num": 1, "axis": -1}),
        Call(np.linspace, [np.float32(1.5), SINGLE], {"num": 0}),
        Call(np.diff, [SQUARES], {"prepend": 0.5, "axis": 0}),
        Call(np.average, [SQUARES, 0, np.ones((3, 1))]),
        Call(np.take_along_axis, [SQUARES, np.array([[3], [0], [1]])]),
        Call(np.take_along_axis, [SQUARES.reshape(1, 3, 4), np.array([[[3], [0], [1]]])]),
        Call(np.unwrap, [SQUARES.reshape(3, 4)]),
        Call(np.where, [SQUARES > 9]),
        Call(np.where, [SQUARES - 9]),
        Call(np.argsort, [SQUARES[::-1] % 7]),
        Call(np.einsum, [SQUARES, [0, 1], SQUARES, [2, 1], SQUARES, [2, 3], [3, 0]]),
        Call(np.fft.fft, [SQUARES[0], 1]),
        Call(np.fft.fft, [np.array([3, -1, 2], np.int8)]),
        Call(np.reshape, [SQUARES, (4, 3)], {"copy": True}),
        Call(np.reshape, [SQUARES, (4, 3)], {"order": "F", "copy": False}),
        Call(np.median, [np.zeros((2, 0, 3)), 1]),
        Call(np.linspace, [0.0, SQUARES[0], -1]),
        Call(np.linalg.lstsq, [SQUARES[:, :2], SQUARES[:, 1:3] ** 2, None]),
        Call(np.linalg.lstsq, [REGULAR, SQUARES[:2, 0], None]),
        Call(np.full_like, [np.zeros(0, int), np.array(0.0), np.float64]),
        Call(np.insert, [np.array([2, 5]), 1, 3]),
        Call(np.exp, [SINGLE], {"where": True, "dtype": None}),
        *(Call(f, [np.uint8([[2]]), *a]) for f, *a in ((np.full_like, 300), (np.insert, 0, -1.5))),
        Call(np.gradient, [np.array([2.0, 0.0]), np.array([3, 3])]),
        Call(np.gradient, [np.array([3.0, 1.0, 0.0]), np.array([2, 2, 2])]),
        Call(np.gradient, [np.array([3.0, 1.0, 0.0, 4.0]), np.array([2, 2, 3, 3])]),
        Call(np.gradient, [np.array([False, True]), np.array([0.0, 1.0])]),
        Call(np.gradient, [SQUARES[0], np.array([0, 1, 2 + 1e-6, 3])]),  # nearly equal steps
        Call(np.add, [SQUARES, 1.0], {"dtype": np.dtype("f4")}),
        *(Call(np.linalg.matrix_power, [REGULAR.astype("f4"), n]) for n in (-1, 0, 1, np.int8(2))),
        *(Call(np.clip, [SQUARES, 0, 1], {name: 1}) for name in ("min", "max")),
        *(Call(f, [SINGLE, 2.0]) for f in (np.dot, np.inner, np.outer, np.kron, np.append)),
        *(Call(np.tensordot, [SQUARES, SQUARES.T, n]) for n in (np.int64(1), np.int8(0))),
        *(Call(f, [np.array([[1, np.inf], [np.nan, 1]])]) for f in (np.tril, np.triu)),
        Call(np.take_along_axis, [SQUARES, np.array([[2, 0]]), 1]),  # indices that broadcast
        *(
            Call(f, [SQUARES, SQUARES[::-1] + 1], {"axis": a})
            for f in (np.cross, np.linalg.cross)
            for a in (0, -2)
        ),
        *(Call(np.split, [SQUARES, n, 1]) for n in (2, 3)),
        Call(np.dstack, [[SQUARES.reshape(1, 3, 2, 2)] * 2]),
        Call(np.linalg.pinv, [np.diag([1.0, 0.5, 0.25]), 0.5]),  # a value at the limit
        *(Call(np.full_like, [SQUARES, 2.0], {"shape": shape}) for shape in ((2,), (), 3)),
        *(Call(f, [SQUARES, SQUARES[:, :1]]) for f in (np.vecdot, np.linalg.vecdot, np.inner)),
        *(Call(f, [SINGLE], {"norm": ""}) for f in (np.fft.fft, np.fft.ifft, np.fft.irfft)),
        Call(
            np.interp, [np.array([0.3, 1.7, 9.0]), np.arange(4.0), np.array([1.0, 3.0, 2.0, 5.0])]
        ),
        Call(
            np.correlate, [np.array([0.3, 1.7]), np.array([1.0, 3.0, 2.0, 5.0])], {"mode": "same"}
        ),
        Call(np.average, [np.array([True, False])], {"weights": SINGLE}),
        Call(np.average, [SINGLE], {"weights": np.array([0.1, 0.2])}),
        Call(np.average, [SQUARES, 1], {"weights": -SQUARES[0]}),
        Call(np.average, [SQUARES, (0, 1)], {"weights": np.ones(3)}),
        *(Call(np.cumprod, [SQUARES.reshape(2, 3, 2) % 5], {"axis": i}) for i in range(3)),
        *(Call(np.moveaxis, [SQUARES, *a]) for a in (((0, 1), 0), (0, (0, 1)), ((0, 1), (1, 0)))),
        Call(np.median, [np.zeros((2, 0), np.float32), 1]),
        *(
            Call(np.hypot, [MANY.astype(a), MANY[::-1].astype(b)])
            for a, b in (("f4", "f8"), ("f8", "f4"), ("f4", "f4"), ("f8", "i8"))
        ),
        Call(np.hypot, [MANY.astype("f4"), 1e-30]),
    ],
)
def test_call_that_is_seldom_drawn_equals_numpy(call: Call) -> None:
    assert call.has_arrays
    check(call, seed=0)


@pytest.mark.skipif(BEFORE_2_4, reason="needs signatures of functions in C, which NumPy 2.4 has")
@pytest.mark.parametrize("function", IN_C, ids=lambda f: f"{f.__name__}")
def test_signature_of_function_in_c_is_that_of_newer_numpy(function: Any) -> None:
    expected = inspect.signature(function).parameters.values()
    assert [*signature(function).parameters.values()] == [*expected]


M, V = np.array([[0.5, 2.0, -1.5], [3.0, -0.25, 1.0]]), np.array([2.0, -1.0, 0.5])
S = M @ M.T + np.eye(2)
OPERANDS: list[list[Any]] = [
    [M], [V], [S], [V, V], [S, S], [M, 1], [[M, M + 1]], [M, M], [M, [[0], [1]]], [M > 0, M, -M], [0.5, V, np.sort(V)],
    [M, (3, 2)], [M, 0, 1], [[M > 0], [M]], [S, 2], [M, 1, M[0]],
]  # fmt: skip
VALUES: dict[str, tuple[Any, ...]] = {
    "axis": (None, 0, -1, (0, 1), [0], 2), "axis1": (0, 1, 5), "axis2": (0, -2, 5), "axes": (None, 0, 1, [1, 0], (-1, -2)),
    "where": (M > 0, True, M[0] > 0), "weights": (None, M + 2, np.ones(2)), "k": (1, -1, 5, 0.0), "offset": (1, -1, 0.0),
    "n": (0, 1, 2, 5, -1, 1.0), "decimals": (1, -1, 0.0), "shift": (1, -2, (1, 1)), "a_min": (0,), "a_max": (1,), "min": (0, None),
    "max": (1, M), "prepend": (0, M), "append": (1.5,), "values": (1.0, M), "mean": (M.mean(),), "indices": ([0],), "shape": ((3,), (1, 2, 3)),
    "period": (3.0, 2), "ord": (*CHOICES["ord"], "f"), "x": (None, V, M), "y": (None, M), "axisa": (0,), "p": (None, 1, 2, "fro"), "b": (M,),
}  # fmt: skip
"""Values of optional arguments, besides those of tests/support/forms.py."""


_EXTREMES = "amax amin max min nanmax nanmin"
_NAN_MOMENTS = "nanmean nanstd nanvar"
REFUSED_OPTIONS = {
    "axis": "cross", "axisa": "cross", "copy": "meshgrid nan_to_num", "correction": "nanstd nanvar",
    "casting": "concatenate copyto hstack stack vstack", "device": "full_like linspace", "endpoint": "linspace",
    "dtype": f"concatenate corrcoef cov cumprod cumsum hstack nanprod nansum prod stack vstack {_NAN_MOMENTS}",
    "hermitian": "pinv svd", "initial": f"{_EXTREMES} nanprod nansum prod sum", "left": "interp", "mean": "nanstd nanvar",
    "mode": "pad put qr", "order": "full_like ravel reshape", "period": "interp", "retstep": "linspace",
    "returned": "average", "right": "interp", "where": f"{_EXTREMES} {_NAN_MOMENTS} copyto nanprod nansum prod",
    "wrap": "fill_diagonal", "writeable": "sliding_window_view",
}  # fmt: skip
"""Options without a rule, and the functions that refuse them for tensors that require gradients."""


def values_of(p: inspect.Parameter) -> tuple[Any, ...]:
    known = VALUES.get(p.name) or NUMBERS.get(p.name) or CHOICES.get(p.name)
    return known or ((True, False) if isinstance(p.default, bool) else ())


@pytest.mark.skipif(BEFORE_2_4, reason="needs the forms of NumPy 2.4")
def test_each_option_alone_has_the_effect_that_it_has_in_numpy() -> None:
    """Each value of each optional argument by name, and one by position, with the first operands that fit."""
    refused: dict[str, set[str]] = {}
    for f in FUNCTIONS:
        if isinstance(f, np.ufunc):
            continue
        parameters = signature(f).parameters
        is_of_several = next(iter(parameters)) in ("arrays", "tup", "arys", "condlist")
        fitting = (x for x in OPERANDS if (type(x[0]) is list) == is_of_several)
        fitting = (x for x in fitting if not isinstance(outcome(Call(f, x), np.copy), Exception))
        for operands in itertools.islice(fitting, 2):
            for p in [*parameters.values()][len(operands) :]:
                if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) or p.name == "out":
                    continue
                before = [
                    q.default for q in itertools.islice(parameters.values(), len(operands), None)
                ]
                before = before[: [*parameters].index(p.name) - len(operands)]
                calls = [Call(f, operands, {p.name: value}) for value in values_of(p)]
                if calls and p.kind is p.POSITIONAL_OR_KEYWORD and np._NoValue not in before:
                    calls.append(Call(f, [*operands, *before, values_of(p)[-1]]))
                for call in calls:
                    expected = outcome(call, np.copy)
                    tensors = lambda x: Tensor(x.copy(), requires_grad=x.dtype.kind == "f")
                    result = outcome(call, tensors)
                    assert_same(call, result, expected, True)
                    if isinstance(result, Exception) > isinstance(expected, Exception):
                        refused.setdefault(p.name, set()).add(f.__name__)
    expected = {name: {*names.split()} for name, names in REFUSED_OPTIONS.items()}
    if not BEFORE_2_5:  # which has no products of 2 elements
        del expected["axis"]
    assert refused == expected


IN_PLACE_OR_ARRAYS = {*WRITING, np.atleast_1d, np.atleast_2d, np.atleast_3d}


def converted(value: Any, dtype: str) -> Any:
    """Return an argument with its floating-point arrays in a dtype."""
    if isinstance(value, list):
        return [converted(part, dtype) for part in value]
    is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value.astype(dtype) if is_float else value


def pulled_back(call: Call) -> tuple[Any, list[Any]]:
    """Return the result of a call with tensors, and gradients of half of its squares."""
    leaves: list[Tensor] = []

    def leaf(x: np.ndarray) -> Tensor:
        t = Tensor(x, requires_grad=x.dtype.kind == "f")
        leaves.extend([t] * t.requires_grad)
        return t

    result = outcome(call, leaf)
    ys = tracked_in(flat(result))
    with np.errstate(all="ignore"):
        gs = mg.gradients(ys, leaves, [y.data for y in ys], allow_unused=True) if ys else []
    return result, [None if g is None else g.data for g in gs]


TOLERANCES = {"f2": 2e-2, "f4": 1e-4, "g": 1e-10, ">f8": 1e-10}


@pytest.mark.parametrize(
    "f", [f for f in FUNCTIONS if f not in WRITING and not f.__name__.startswith("atleast")]
)
def test_function_of_each_dtype_has_the_values_and_dtypes_of_numpy(f: Any) -> None:
    """Compare gradients with those of float64, in fewer or more digits."""
    if BEFORE_2_4 and f in OLDER:
        pytest.skip("needs the forms of NumPy 2.4")
    first = "x" if isinstance(f, np.ufunc) else next(iter(signature(f).parameters))
    is_of_several = first in ("arrays", "tup", "arys", "condlist")
    fitting = (Call(f, x) for x in OPERANDS if (type(x[0]) is list) == is_of_several)
    fitting = (call for call in fitting if not isinstance(outcome(call, np.copy), Exception))
    if (double := next(fitting, None)) is None:
        return  # other operands are needed
    in_double = pulled_back(double)[1]
    for dtype, tolerance in TOLERANCES.items():
        call = Call(f, converted(double.args, dtype))
        result, gradients = pulled_back(call)
        assert_same(call, result, outcome(call, np.copy), True)
        for g, e in zip(gradients, in_double):
            if e is not None:
                assert g.dtype == np.dtype(dtype)
                scale = np.abs(e[np.isfinite(e)]).max(initial=0)
                np.testing.assert_allclose(g, e, tolerance, tolerance * scale)


OF_ARRAYS = ("atleast_1d", "atleast_2d", "atleast_3d", "nonzero", "lstsq", "indices_from")
"""Functions of which some results are arrays in place of tensors."""


WITH_NUMBERS = {"broadcast_arrays", "tensordot"}
"""Functions whose results without axes are numbers, and arrays in NumPy."""


@pytest.mark.filterwarnings("ignore")
def test_result_is_a_tensor_and_a_number_without_axes_if_that_of_numpy_is_a_number() -> None:
    """Expect read-only numbers, and tensors in the tuples and lists that NumPy returns.

    A result shares memory with an operand only if that of NumPy does.
    """
    n, v, m = np.array(2.0), np.array([2.0, 1.0]), np.array([[2.0, 1.0], [1.0, 3.0]])
    operands: list[tuple[Any, ...]] = [
        (n,),
        (n, 0),
        (v,),
        (v, v),
        (v, 0),
        (m,),
        (m, 0),
        (m, m),
        (m, v),
    ]
    wrong = []
    for f, args, tracked in itertools.product(FUNCTIONS, operands, (False, True)):
        of_tensors = [
            a if type(a) is int else (Tensor([a, a], requires_grad=tracked) * 1.0)[0, ...]
            for a in args
        ]
        try:
            with np.errstate(all="ignore"):
                expected, y = f(*args), f(*of_tensors)
        except ERRORS:
            continue
        right = isinstance(y, (list, tuple)) == isinstance(expected, (list, tuple))
        for part, e in zip(flat(y), flat(expected)):
            is_array = isinstance(e, np.ndarray)
            if isinstance(part, Tensor) and not part.ndim and f.__name__ not in WITH_NUMBERS:
                right &= part.flags.writeable == (is_array and e.flags.writeable)
            if is_array or isinstance(e, np.generic):
                right &= isinstance(part, Tensor) or f.__name__.endswith(OF_ARRAYS)
            for x, a in zip(of_tensors, args):
                if type(x) is type(part) is Tensor and np.shares_memory(x.data, part.data):
                    right &= np.shares_memory(a, e)
        right &= all(x.flags.writeable for x in of_tensors if type(x) is Tensor)
        if not right:
            wrong.append((f.__name__, args, tracked))
    assert not wrong


@pytest.mark.parametrize("overwrites", [False, True])
@pytest.mark.parametrize(
    "f",
    [
        lambda t, new: np.nan_to_num(t, copy=not new) if new else np.nan_to_num(t),
        lambda t, new: np.median(t, overwrite_input=new) if new else np.median(t),
        lambda t, new: np.percentile(q=50, a=t, overwrite_input=new),
    ],
)
def test_function_that_overwrites_its_operand_only_if_asked_invalidates_graphs(
    f: Any, overwrites: bool
) -> None:
    w, t = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 1.0])
    y = (w * t).sum()
    f(t, overwrites)
    if overwrites:
        with pytest.raises(mg.GradientError):
            y.backward()
    else:
        y.backward()
        assert w.grad.tolist() == [3, 1]


@pytest.mark.parametrize(
    "f", [np.histogram, lambda t: np.histogram(a=t), lambda t: np.histogram([1.0, 2.0], weights=t)]
)
def test_function_without_a_rule_refuses_tensors_by_position_and_by_name(f: Any) -> None:
    t = Tensor([3.0, 1.0], requires_grad=True)
    with pytest.raises(TypeError, match="np.histogram.* has no rule for Tensors"):
        f(t)
    with mg.no_grad():
        f(t)


@pytest.mark.parametrize(
    "f",
    [
        lambda t, out: np.take(t, [0], 0, out, "clip"),
        lambda t, out: np.mean(t[:1], 0, None, out, True),
        lambda t, out: np.any(t[:1], 0, out, True),
        lambda t, out: np.mean(t[:1], 0, keepdims=True, out=out),
        lambda t, out: np.round(t[:1], out=out),
    ],
)
def test_array_for_the_result_by_position_or_name_is_written_and_invalidates_graphs(f: Any) -> None:
    out = np.zeros((1, 4))
    w = Tensor(out + 1, requires_grad=True)
    y = w * out
    np.testing.assert_array_equal(f(Tensor(SQUARES), out).data, out)
    assert out.all()
    with pytest.raises(mg.GradientError):
        y.sum().backward()


@pytest.mark.parametrize(
    "f",
    [
        lambda x, option: np.diff(x, prepend=option),
        lambda x, option: np.diff(x, append=option),
        lambda x, option: x.clip(option) if BEFORE_2_1 else np.clip(x, min=option),
        lambda x, option: np.clip(x, a_min=0.0, a_max=option),
        lambda x, option: np.full_like(x, fill_value=option),
        lambda x, option: np.linspace(x, stop=option, num=3),
        lambda x, option: np.average(x, weights=option + x),
        lambda x, option: np.trapezoid(x, dx=option),
        lambda x, option: np.gradient(x, option),
        lambda x, option: np.interp(x, [0.0, 9.0], fp=np.multiply(option, [1.0, 2.0])),
        lambda x, option: np.append(x, values=option),
        lambda x, option: np.insert(x, 0, values=option),
    ],
)
def test_option_that_requires_gradients_has_one_beside_constants(f: Any) -> None:
    option = Tensor(0.7, requires_grad=True)
    step, slopes = 1e-6, []
    x = np.array([0.5, 2.0, 1.0])
    for operand in (Tensor(x), Tensor(x, requires_grad=True)):
        slopes.append(mg.gradients(np.sin(f(operand, option)).sum(), option)[0].item())
    high, low = (np.sin(f(x, value)).sum() for value in (0.7 + step, 0.7 - step))
    np.testing.assert_allclose(slopes, (high - low) / (2 * step), rtol=1e-6)


def test_ufunc_of_one_operand_at_an_index_invalidates_graphs() -> None:
    w, t = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 1.0])
    y = w * t
    np.negative.at(t, [0])
    assert t.tolist() == [-3, 1]
    with pytest.raises(mg.GradientError):
        y.sum().backward()
    with pytest.raises(mg.GradientError, match="only np.add.at and np.subtract.at have a rule"):
        np.negative.at(w * t, [0])


@pytest.mark.parametrize("dtype", [bool, np.int64])
def test_result_without_a_gradient_can_be_written_into_an_array(dtype: Any) -> None:
    out = np.zeros(2, dtype)
    y = np.greater(Tensor([-1.0, 2.0], requires_grad=True), 0, out=out, casting="unsafe")
    assert y is out and out.tolist() == [0, 1]


@pytest.mark.parametrize("which", [0, 1])
def test_each_array_that_a_ufunc_writes_into_invalidates_graphs(which: int) -> None:
    arrays = [np.ones(2), np.ones(2)]
    w, t = Tensor([1.0, 2.0], requires_grad=True), Tensor([5.0, 3.0])
    for call in (
        lambda: np.divmod(t, 2.0, out=(arrays[0], arrays[1])),
        lambda: np.divmod(t, 2.0, *arrays),
        lambda: np.divmod(
            t, 2.0, out=tuple(x if i == which else None for i, x in enumerate(arrays))
        ),
    ):
        y = w * Tensor(arrays[which])
        call()
        assert arrays[which].tolist() == [[2, 1], [1, 1]][which]
        with pytest.raises(mg.GradientError):
            y.sum().backward()


@pytest.mark.parametrize(
    "f, shape",
    [
        (lambda t, out: np.add.reduce(t, axis=1, out=out), 3),
        (lambda t, out: np.multiply.accumulate(t, 1, out=out), (3, 4)),
        (lambda t, out: np.subtract.outer(t[0], t[1, :2], out=out), (4, 2)),
        (lambda t, out: np.add.reduceat(t, [0, 2], out=out), (2, 4)),
    ],
)
def test_method_of_a_ufunc_writes_its_result_into_an_array_or_a_tensor(f: Any, shape: Any) -> None:
    expected = f(SQUARES, None)
    for out in (np.zeros(shape), mg.zeros(shape)):
        assert f(Tensor(SQUARES), out) is out
        np.testing.assert_array_equal(np.asarray(out), expected)
    with pytest.raises(TypeError):
        f(Tensor(SQUARES, requires_grad=True), np.zeros(shape))


@pytest.mark.parametrize("which", [0, 1])
def test_one_result_of_two_with_a_gradient_cannot_be_written_into_an_array(which: int) -> None:
    t, array = Tensor([5.0, 3.5], requires_grad=True), np.zeros(2)
    out = (array, None) if which == 0 else (None, array)
    with pytest.raises(TypeError, match="divmod: the result of a tensor that requires gradients"):
        np.divmod(t, 2.0, out=out)
    assert not array.any()


def test_no_arrays_of_at_least_some_axes_are_no_arrays() -> None:
    assert mg.atleast_1d() == mg.atleast_3d() == ()


def test_second_result_can_be_written_into_a_tensor_alone() -> None:
    t, rest = Tensor([5.0, 3.5]), Tensor([0.0, 0.0])
    y = np.divmod(t, 2.0, out=(None, rest))
    assert y[1] is rest and rest.tolist() == [1, 1.5] and y[0].tolist() == [2, 1]
