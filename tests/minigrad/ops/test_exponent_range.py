"""Derivatives of elementwise functions over the whole exponent range, and far from 0.

A rule in float32 is compared with the same rule in float64, and a rule in float64 with the same rule in extended
precision, where the platform has one. A square that overflows, a difference that cancels and a derivative through a
rounded result are right in the wider format and wrong in the narrow one.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples
from support.limits import value_limits
from support.opinfo import TABLE

import minigrad as mg

UNARY, BINARY = ([name for name, info in TABLE.items() if info.operands == n] for n in (1, 2))
FORMATS = [(np.float32, np.float64, 3e-5)]
if np.finfo(np.longdouble).eps < np.finfo(float).eps:
    FORMATS.append((np.float64, np.longdouble, 1e-13))


@cache
@st.composite
def numbers(draw: st.DrawFn, dtype: Any) -> np.ndarray:
    """Draw numbers of all sizes: powers of 2 times a factor, ordinary numbers, near 1, and all limits."""
    limits = np.finfo(dtype)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    exponents = rng.uniform(limits.minexp, limits.maxexp - 1, 30)
    sizes = [
        2.0**exponents,
        rng.uniform(0, 120, 30),
        1 + rng.choice([-1, 1], 10) * 2.0 ** -rng.integers(1, 22, 10),
    ]
    x = np.concatenate(sizes) * rng.choice([-1.0, 1.0], 70)
    infinite = np.array([np.inf, -np.inf], dtype)
    return rng.permutation(np.concatenate([x.astype(dtype), value_limits(dtype), infinite]))


def slopes(name: str, xs: list[np.ndarray], order: int) -> list[np.ndarray]:
    """Return the values of a function, or the derivatives of its sum by each operand, or those of these."""
    f = TABLE[name].call
    tensors = [mg.Tensor(x, requires_grad=True) for x in xs]
    with np.errstate(all="ignore"), mg.use_definitions():
        if order == 0:
            return [f(*xs).data]
        found = mg.gradients(f(*tensors).sum(), tensors, create_graph=order > 1, allow_unused=True)
        if order > 1:
            found = [None if g is None or not g.requires_grad else mg.gradients(g.sum(), [x])[0]
                     for g, x in zip(found, tensors)]  # fmt: skip
    return [np.zeros_like(x) if g is None else g.data for g, x in zip(found, xs)]


def assert_formats_agree(
    name: str, xs: list[np.ndarray], order: int, wide: Any, rtol: float
) -> None:
    """Compare derivatives with those in a wider format, up to rounding, also of x, and numbers that lose digits near 0.

    Near a root of a derivative, another digit of x changes it by more than rounding does.
    """
    limits = np.finfo(xs[0].dtype)
    wider = [x.astype(wide) for x in xs]
    beside = [x * (1 + 8 * wide(limits.eps)) for x in wider]
    for narrow, exact, near in zip(*(slopes(name, x, order) for x in (xs, wider, beside))):
        with np.errstate(all="ignore"):
            size = np.abs(exact)
            slack = np.nan_to_num(np.minimum(np.abs(near - exact), 8 * limits.eps), nan=0.0)
            right = (
                np.abs(narrow - exact) <= rtol * size + slack + 200 * limits.smallest_normal
            ) | (narrow == exact)
            right |= np.isnan(narrow) & np.isnan(exact)
            if order and len(xs) > 1:  # quotients of subnormal numbers have few digits
                is_subnormal = [(x != 0) & (np.abs(x) < limits.smallest_normal) for x in xs]
                right |= (np.any if name == "power" else np.all)(is_subnormal, 0)
                right |= np.isinf(narrow) & np.isinf(slopes(name, xs, 0)[0])
            overflows = (size > limits.max / 4) | np.isinf(narrow) & (size > limits.max / 8)
            right |= (
                overflows & (np.abs(narrow) > limits.max / 8) & (np.sign(narrow) == np.sign(exact))
            )
        points = np.stack(xs, -1)[~right][:4].tolist()
        assert right.all(), f"{name} at {points}: {narrow[~right][:4]}, right {exact[~right][:4]}"


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("name", UNARY)
@max_examples(8)
@given(data=st.data())
def test_function_of_one_operand_and_its_derivatives_agree_with_wider_format(
    name: str, order: int, data: st.DataObject
) -> None:
    for dtype, wide, rtol in FORMATS:
        x = data.draw(numbers(dtype))
        x = x[~np.isnan(slopes(name, [x], 0)[0])]
        assert_formats_agree(name, [x], order, wide, rtol)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("name", BINARY)
@max_examples(8)
@given(data=st.data())
def test_function_of_two_operands_and_its_derivatives_agree_with_wider_format(
    name: str, order: int, data: st.DataObject
) -> None:
    for dtype, wide, rtol in FORMATS:
        a, b = data.draw(numbers(dtype)), data.draw(numbers(dtype))
        with np.errstate(over="ignore"):  # far apart, near, equal, and beside a number
            x = np.concatenate([a, a, a, a, np.full_like(b, 0.75)])
            y = np.concatenate([b, a * dtype(1.25), a, np.full_like(a, 0.75), b])
        x = np.abs(x) if name == "power" else x
        assert_formats_agree(name, [x, y], order, wide, rtol)
