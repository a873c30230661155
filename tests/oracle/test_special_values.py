"""Functions at 0, ±1, equal elements, ±∞ and NaN, with derivatives to third order, as in PyTorch.

If PyTorch's derivative is finite, ours is the same, or NaN for an element that is NaN, except at the
points in `UNLIKE`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.opinfo import TABLE
from support.torch_databases import as_array, torch

import minigrad as mg
import nn
from minigrad import Tensor

F = torch.nn.functional
Function = Callable[..., Any]
Library = Any

VALUES = np.array([-np.inf, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 40.0, np.inf, np.nan])
PAIRS = np.meshgrid(
    [-np.inf, -1.0, 0.0, 0.5, 1.0, 2.0, np.inf, np.nan],
    [-1.0, 0.0, 0.5, 1.0, 2.0, np.inf, np.nan],
)
LOSSES = ["huber_loss", "smooth_l1_loss"]


def common(module: Any, ours: Any, operands: int) -> list[str]:
    """Return the elementwise functions of the table that two modules have."""
    names = [name for name, info in TABLE.items() if info.operands == operands]
    return [name for name in names if hasattr(module, name) and hasattr(ours, name)]


UNARY = [*common(torch, mg, 1), "abs", "nan_to_num", "sinc"]
ACTIVATIONS = [name for name in common(F, nn.functional, 1) if name not in UNARY]
ACTIVATIONS += ["gelu", "logsigmoid"]
BINARY = [*common(torch, mg, 2), "remainder", "fmod"]


def rows(m: Library, a: Any, b: Any) -> Any:
    """Stack two operands to rows in which the first is twice."""
    return m.stack([a, b, a], -1)


# Functions of a library and of operands; PyTorch's second derivatives of powers of 0, 1, 2 are wrong.
OF_ONE: dict[str, Function] = {
    "clip": lambda m, x: m.clip(x, -1.0, 1.0),
    "std of equal elements": lambda m, x: m.std(m.stack([x, x, x], -1), -1, correction=0),
    **{f"power {b}": lambda m, x, b=b: x**b for b in (-2, -1, 0, 0.5, 1, 2, 2.5, 3)},
}
OF_TWO: dict[str, Function] = {
    "power": lambda m, a, b: a ** (b + 3.0),
    "norm": lambda m, a, b: m.linalg.vector_norm(
        rows(m, a, b), **{"axis" if m is mg else "dim": -1}
    ),
    "logsumexp": lambda m, a, b: m.logsumexp(rows(m, a, b), -1),
    "softmax": lambda m, a, b: m.softmax(rows(m, a, b), -1)[..., 0],
    "log_softmax": lambda m, a, b: m.log_softmax(rows(m, a, b), -1)[..., 1],
    "prod": lambda m, a, b: m.prod(rows(m, a, b), -1),
    "cumprod": lambda m, a, b: m.cumprod(rows(m, a, b), -1)[..., 1],
    "amax": lambda m, a, b: m.amax(rows(m, a, b), -1),
    "amin": lambda m, a, b: m.amin(rows(m, a, b), -1),
    "var": lambda m, a, b: m.var(rows(m, a, b), -1, correction=0),
    "where": lambda m, a, b: m.where(a > b, a * b, b),
}
UNLIKE: dict[str, Function] = {
    "elu": lambda x: x == 0,  # PyTorch takes the second derivative on the right
    "huber_loss": lambda x: np.abs(x - 1) == 1,  # likewise
    "fmax": lambda a, b: (a == b) | np.isnan(a + b),  # equal operands share the gradient
    "fmin": lambda a, b: (a == b) | np.isnan(a + b),
    "power 0.5": np.isneginf,  # the root in PyTorch
    "arccosh": lambda x: x < 1,  # there the value is NaN, and here the derivative, too
    "cumprod": lambda a, b: np.isinf(a) | np.isinf(b),  # 0 · inf is NaN
}


def function_in(library: Library, name: str) -> Function:
    """Return a function of both libraries."""
    if name in OF_ONE or name in OF_TWO:
        return partial((OF_ONE | OF_TWO)[name], library)
    module = library if name in UNARY + BINARY else F if library is torch else nn.functional
    function = getattr(module, name)
    if name in LOSSES:
        return lambda x: function(x, library.ones_like(x), reduction="none")
    return function


def derivatives(library: Library, name: str, xs: list[Any]) -> dict[str, np.ndarray]:
    """Return the value ("") and the derivatives to third order, such as "01" by the first and second operand."""
    derive = torch.autograd.grad if library is torch else mg.gradients
    level: dict[str, Any] = {"": function_in(library, name)(*xs)}
    found: dict[str, np.ndarray] = {}
    for _ in range(4):
        found |= {by: as_array(y) for by, y in level.items()}
        slopes = {}
        for by, y in level.items():
            gs = [None] * len(xs)
            if y.requires_grad:
                ones = library.ones_like(y)
                gs = derive(y, xs, ones, create_graph=True, allow_unused=True)
            for i, (g, x) in enumerate(zip(gs, xs)):
                slopes[f"{by}{i}"] = library.zeros_like(x) if g is None else g
        level = slopes
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*UNARY, *ACTIVATIONS, *LOSSES, *BINARY, *OF_ONE, *OF_TWO])
def test_derivatives_at_special_values_equal_pytorch(name: str) -> None:
    is_binary = name in BINARY or name in OF_TWO
    arrays = [x.ravel() for x in PAIRS] if is_binary else [VALUES]
    with np.errstate(all="ignore"):
        found = derivatives(mg, name, [Tensor(x, requires_grad=True) for x in arrays])
        unlike = UNLIKE[name](*arrays) if name in UNLIKE else np.zeros(arrays[0].shape, bool)
    expected = derivatives(torch, name, [torch.tensor(x, requires_grad=True) for x in arrays])
    has_nan = np.any(np.isnan(arrays), axis=0)
    for by, e in expected.items():
        y = found[by]
        comparable = np.isfinite(e) & ~(has_nan & np.isnan(y))
        if by == "":
            comparable |= np.isinf(e) & ~np.isnan(y)
        wrong = comparable & ~unlike & ~np.isclose(y, e, rtol=1e-7, atol=1e-9)
        points = np.stack(arrays, -1)[wrong].tolist()
        assert not wrong.any(), f"derivative {by!r} at {points}: {y[wrong]} for {e[wrong]}"
