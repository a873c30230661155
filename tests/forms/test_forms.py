"""Every NumPy spelling that is registered, with random forms of its arguments: as NumPy, or an error in both.

The calls are drawn from NumPy's own signatures (see `tests/support/forms.py`), so that a new op is covered by
being registered. What needs a gradient may be refused, by an error that names the option, or for a reason in
`REFUSED`; everything else has to be NumPy's in value, dtype and shape. Where a gradient is recorded, it is compared with a difference of NumPy's own values.
"""

from __future__ import annotations

import inspect
import os
import re
import warnings
import zlib
from typing import Any

import numpy as np
import pytest
from cases import each
from forms import BEFORE_2_4, WRITING, Call, draw_call, draw_ufunc_call

import minigrad as mg
from minigrad import Tensor
from minigrad.core.forms import IN_C, signature
from minigrad.core.tensor import DISPATCH

INTENSE = os.environ.get("HYPOTHESIS_PROFILE") == "intense"
CALLS = 1000 if INTENSE else 25

NOT_CALLED = {
    np.einsum: "its subscripts have a test of their own",
    np.common_type: "about dtypes",
    np.min_scalar_type: "about dtypes",
    np.einsum_path: "about the order of products",
    np.empty_like: "what it returns is not set",
    np.may_share_memory: "about memory",
    np.shares_memory: "about memory",
    np.array2string: "text",
    np.array_repr: "text",
    np.array_str: "text",
    np.can_cast: "about dtypes",
    np.result_type: "about dtypes",
}

FUNCTIONS = sorted(
    (f for f in DISPATCH if not isinstance(f, (tuple, str, np.ufunc)) and f not in NOT_CALLED),
    key=lambda f: (f.__module__, f.__name__),
)
UFUNCS = sorted((f for f in DISPATCH if isinstance(f, np.ufunc)), key=lambda f: f.__name__)
OLDER = {
    np.concatenate, np.copyto, np.dot, np.inner, np.putmask, np.take, np.vdot, np.where,
}  # fmt: skip
"""Functions of which NumPy before 2.4 takes other forms, or does not tell which."""
UNDETERMINED = {np.linalg.cholesky, np.linalg.eigh, np.linalg.eigvalsh, np.linalg.svd}
"""Functions that presume a symmetric matrix, whose gradient is that of its symmetric part; and vectors up to a sign."""
REFUSED = {
    **dict.fromkeys(
        WRITING, "would lose its gradient|a leaf that requires gradients cannot be changed in place"
    ),
    np.cross: "expected vectors of 3 elements",  # those of 2 are deprecated in NumPy
    **dict.fromkeys(
        [np.take, np.compress], "is out of bounds"
    ),  # which NumPy does not see where the result has no elements
    np.gradient: "places that require gradients",
    np.linalg.qr: "mode '[a-z]+' .*is not supported",
}
"""What is refused where NumPy answers, other than by the name of an option."""


TAKEN = {
    **dict.fromkeys(
        (np.sort, np.argsort), "can't be provided at the same time"
    ),  # kind= and descending=
    np.average: "division by zero|sum to zero",  # where the result has no elements
    **dict.fromkeys(
        (np.cross, np.linalg.cross), "indices must be integers"
    ),  # axis=None, which NumPy has as its default
}
"""What we take and NumPy stumbles over: the words of its error, as a pattern."""


def is_refused_by_name(call: Call, error: Exception) -> bool:
    text = str(error).split("; got")[0]
    return bool(re.search(REFUSED.get(call.function, "^$"), text)) or any(
        f"{name}=" in text for name in call.given
    )


def outcome(call: Call, change: Any) -> Any:
    """What the call returns, or its exception."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return call.of(change)
        except (
            ValueError,
            TypeError,
            IndexError,
            OverflowError,
            ZeroDivisionError,
            RuntimeError,
            AttributeError,
        ) as e:
            return e


def flat(value: Any) -> list[Any]:
    """The arrays and numbers of a result, in order."""
    return (
        [part for v in value for part in flat(v)] if isinstance(value, (list, tuple)) else [value]
    )


def plain(value: Any) -> Any:
    return value.data if isinstance(value, Tensor) else value


def wrapped(tracked: bool, leaves: list[Tensor]) -> Any:
    """A change of arrays into tensors, which are noted in `leaves`."""

    def change(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            leaf = Tensor(value.copy(), requires_grad=tracked and value.dtype.kind == "f")
            leaves.append(leaf)
            return leaf
        if isinstance(value, (list, tuple)) and any(isinstance(v, np.ndarray) for v in value):
            return type(value)([change(v) for v in value])
        return value

    return change


def assert_alike(call: Call, found: Any, expected: Any, tracked: bool) -> None:
    if isinstance(expected, Exception):
        stumbles = re.search(TAKEN.get(call.function, "^$"), str(expected))
        assert isinstance(found, Exception) or stumbles, (
            f"{call}: NumPy raises {expected!r}, ours returns {found!r}"
        )
        return
    if isinstance(found, Exception):
        assert tracked and is_refused_by_name(call, found), (
            f"{call}: NumPy returns {expected!r}, ours raises {found!r}"
        )
        return
    ours, theirs = flat(found), flat(expected) if isinstance(found, (list, tuple)) else [expected]
    inputs = [
        v
        for value in [*call.args, *call.kwargs.values()]
        for v in flat(value)
        if isinstance(v, np.ndarray)
    ]
    inputs += [
        np.zeros(0, kind)
        for name, kind in call.given.items()
        if name == "dtype" and kind is not None
    ]
    coarsest = min(
        [v.itemsize for v in [*inputs, *map(np.asarray, theirs)] if v.dtype.kind == "f"], default=8
    )
    assert len(ours) == len(theirs), f"{call}: {len(ours)} results, expected {len(theirs)}"
    for y, e in zip(ours, theirs):
        y, e = np.asarray(plain(y)), np.asarray(e)
        assert y.shape == e.shape and y.dtype == e.dtype, (
            f"{call}: {y.dtype} {y.shape}, expected {e.dtype} {e.shape}"
        )
        if isinstance(call.function, np.ufunc) and call.kwargs.get("where", True) is not True:
            y, e = (
                np.where(call.kwargs["where"], v, 0) for v in (y, e)
            )  # the others are unset, or as out= had them
        tolerance = {2: 2e-2, 4: 1e-4}.get(coarsest, 1e-9) if e.dtype.kind == "f" else 0
        np.testing.assert_allclose(y, e, rtol=tolerance, atol=tolerance, err_msg=str(call))


def assert_gradient(call: Call, found: Any, leaves: list[Tensor], rng: np.random.Generator) -> None:
    """The derivative in a random direction, against a difference of what NumPy returns."""
    ys = [y for y in flat(found) if isinstance(y, Tensor) and y.requires_grad]
    leaves = [x for x in leaves if x.requires_grad]
    if not ys or call.function in UNDETERMINED:
        return
    gs = [rng.standard_normal(y.shape).astype(y.dtype) for y in ys]
    with np.errstate(all="ignore"):
        grads = mg.gradients(ys, leaves, gs, allow_unused=True)
    for x, g in zip(leaves, grads):
        assert g is None or (g.shape == x.shape and g.dtype == x.dtype), (
            f"{call}: gradient {g!r} of {x!r}"
        )
    arrays = [
        v for v in [*flat(call.args), *ys, *leaves] if isinstance(v, (np.ndarray, Tensor, int))
    ]
    if any(x.dtype != np.float64 for x in [*leaves, *ys]) or not all(
        (np.abs(plain(v)) < 1e6).all() for v in arrays
    ):
        return
    vs = [rng.standard_normal(x.shape) for x in leaves]
    slope = sum(float((g.data * v).sum()) for g, v in zip(grads, vs) if g is not None)

    def moved(step: float) -> float:
        places = iter([x.data + step * v for x, v in zip(leaves, vs)])

        def change(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return next(places) if value.dtype.kind == "f" else value.copy()
            if isinstance(value, (list, tuple)) and any(isinstance(v, np.ndarray) for v in value):
                return type(value)([change(v) for v in value])
            return value

        results = [np.asarray(y) for y in flat(outcome(call, change))]
        results = [
            r for r, y in zip(results, flat(found)) if isinstance(y, Tensor) and y.requires_grad
        ]
        return sum(float((r * g).sum()) for r, g in zip(results, gs))

    differences = [(moved(h) - moved(-h)) / (2 * h) for h in (1e-6, 2e-6)]
    bend = (
        moved(2e-6) - 2 * moved(0.0) + moved(-2e-6)
    ) / 4e-6  # a half of how much the slopes of the two sides differ
    doubt = max(abs(differences[0] - differences[1]), abs(bend))
    if np.isfinite([slope, *differences]).all() and doubt < 1e-5 * (1 + abs(slope)):
        assert abs(slope - differences[0]) < 1e-3 * (1 + abs(slope)), (
            f"{call}: slope {slope}, expected {differences[0]}"
        )


@pytest.mark.parametrize("letter", sorted({f.__name__[0].lower() for f in [*FUNCTIONS, *UFUNCS]}))
def test_as_numpy(letter: str) -> None:
    each([f for f in [*FUNCTIONS, *UFUNCS] if f.__name__[0].lower() == letter], as_numpy)


def as_numpy(function: Any) -> None:
    if function in OLDER and BEFORE_2_4:
        return  # which takes other forms
    start = (
        int(np.random.default_rng().integers(2**32))
        if INTENSE
        else zlib.crc32(function.__name__.encode())
    )
    draw = draw_ufunc_call if isinstance(function, np.ufunc) else draw_call
    for seed in range(start, start + CALLS):
        rng = np.random.default_rng(seed)
        hold(draw(function, rng), rng)


def hold(call: Call, rng: np.random.Generator) -> None:
    """Compare one call with NumPy's, with tensors that need gradients and with such that do not."""
    if call.function is np.interp and (np.diff(np.ravel(call.given["xp"]).astype(float)) < 0).any():
        return  # which NumPy does not look at, and answers in one way or another
    expected = outcome(call, lambda value: value.copy() if isinstance(value, np.ndarray) else value)
    for tracked in (False, True):
        leaves: list[Tensor] = []
        found = outcome(call, wrapped(tracked, leaves))
        if not leaves or not call.has_arrays:
            continue
        assert_alike(call, found, expected, tracked)
        if tracked and not isinstance(found, Exception) and not isinstance(expected, Exception):
            assert_gradient(call, found, leaves, rng)


@pytest.mark.parametrize(
    "call",
    [
        Call(np.power, [np.array([True, False]), 2]),
        Call(np.pad, [np.zeros(0), [(1, 2)]], {"constant_values": np.array(1.5)}),
        Call(
            np.var,
            [np.array([[-0.514]])],
            {"dtype": np.float32, "where": np.array([True]), "correction": 1},
        ),
        Call(
            np.cross,
            [np.array([1.0, 2.0, 3.0]), np.array([3.0, 1.0, 2.0])],
            {"axis": None, "axisa": 0},
        ),
        Call(np.linspace, [-1, np.array([0.6, 0.9]), 1], {"retstep": True, "axis": -1}),
        Call(np.linspace, [-1, np.array([0.6, 0.9]), 0], {"retstep": True}),
        Call(np.pad, [np.ones((2, 2)), 1, "edge"], {"constant_values": 1}),
        Call(np.append, [np.array([-0.1, 0.2], np.float16), 0]),
        Call(np.append, [91, np.array(-0.168, np.float16)]),
        Call(np.pad, [np.array(-0.3), ((1, 0),), "edge"], {"constant_values": 0}),
        Call(np.cov, [np.array([[-0.2], [-0.6], [0.1]]), np.array([[-0.3, 0.1, 0.4]]), False]),
        Call(np.full_like, [np.array(-0.2), np.array(0.5)], {"order": "X"}),
        Call(
            np.linalg.norm, [np.array([[1.674, 2.044, 0.194], [0.934, 0.564, 1.304]]), 1]
        ),  # of two equal columns
        Call(np.divide, [True, np.array(-0.023)], {"dtype": np.float32}),
        Call(np.nanprod, [np.full(30, -(2**62))], {"dtype": np.float32, "initial": np.array(0.0)}),
        Call(np.prod, [np.array([1e200, 1e200, 0.5])], {"initial": 1e-300}),
        Call(np.pad, [np.array(2, np.uint8), (1, 2)], {"constant_values": np.array(0.0)}),
    ],
    ids=str,
)
def test_what_long_runs_found(call: Call) -> None:
    hold(call, np.random.default_rng(0))


@pytest.mark.parametrize("function", IN_C, ids=lambda f: f"{f.__name__}")
def test_signatures_that_older_numpy_does_not_tell(function: Any) -> None:
    told = None if BEFORE_2_4 else inspect.signature(function)
    assert told is None or [*told.parameters.values()] == [*signature(function).parameters.values()]


def test_every_spelling_is_called() -> None:
    assert NOT_CALLED.keys() <= DISPATCH.keys()
