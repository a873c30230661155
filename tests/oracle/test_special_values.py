"""Functions at 0, ±1, equal elements, ±∞ and NaN, with derivatives to third order, as in PyTorch.

Where PyTorch's derivative is a number, ours is the same, or NaN for an element that is NaN; but for `OTHERWISE`.
Where PyTorch's is not finite, ours may be better.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import F, torch

import minigrad as mg
from minigrad import Tensor

VALUES = np.array([-np.inf, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 40.0, np.inf, np.nan])
PAIRS = [
    a.ravel()
    for a in np.meshgrid(
        [-np.inf, -1.0, 0.0, 0.5, 1.0, 2.0, np.inf, np.nan],
        [-1.0, 0.0, 0.5, 1.0, 2.0, np.inf, np.nan],
    )
]

Function = Callable[..., Any]
_rows = lambda m, *xs: m.stack([*xs, xs[0]], -1)
_from_one = lambda ours, theirs: (
    (lambda x: ours(x, np.ones(x.shape), reduction="none")),
    (lambda x: theirs(x, torch.ones_like(x), reduction="none")),
)
_both = lambda f: ((lambda *xs: f(mg, *xs)), (lambda *xs: f(torch, *xs)))
_OF_ONE = """abs exp expm1 log log1p log2 log10 sqrt rsqrt square reciprocal sin cos tan arcsin arccos arctan sinh cosh
tanh arcsinh arccosh arctanh sign relu sigmoid erf sinc exp2 deg2rad nan_to_num"""
_OF_TWO = """add multiply divide maximum minimum fmax fmin hypot arctan2 logaddexp logaddexp2 remainder fmod copysign
xlogy"""
ONE: dict[str, tuple[Function, Function]] = {
    **{name: (getattr(mg, name), getattr(torch, name)) for name in _OF_ONE.split()},
    **{name: (getattr(mg, name), getattr(F, name)) for name in ("softplus", "leaky_relu", "elu", "silu", "gelu")},
    "log_sigmoid": (mg.log_sigmoid, F.logsigmoid),
    "huber_loss": _from_one(mg.huber_loss, F.huber_loss),
    "smooth_l1_loss": _from_one(mg.smooth_l1_loss, F.smooth_l1_loss),
    "clip": _both(lambda m, x: m.clip(x, -1.0, 1.0)),
    "std of equal elements": _both(lambda m, x: m.std(m.stack([x, x, x], -1), -1, correction=0)),
    **{f"power {b}": _both(lambda m, x, b=b: x**b) for b in (-2, -1, 0, 0.5, 1, 2, 2.5, 3)},
}  # fmt: skip
TWO: dict[str, tuple[Function, Function]] = {
    **{name: (getattr(mg, name), getattr(torch, name)) for name in _OF_TWO.split()},
    "power": _both(lambda m, a, b: a ** (b + 3.0)),  # at exponents of 0, 1, 2 PyTorch's higher derivatives are wrong
    "norm": (lambda a, b: mg.norm(_rows(mg, a, b), axis=-1), lambda a, b: torch.linalg.norm(_rows(torch, a, b), dim=-1)),
    "logsumexp": _both(lambda m, a, b: m.logsumexp(_rows(m, a, b), -1)),
    "softmax": _both(lambda m, a, b: m.softmax(_rows(m, a, b), -1)[..., 0]),
    "log_softmax": _both(lambda m, a, b: m.log_softmax(_rows(m, a, b), -1)[..., 1]),
    "prod": _both(lambda m, a, b: m.prod(_rows(m, a, b), -1)),
    "cumprod": _both(lambda m, a, b: m.cumprod(_rows(m, a, b), -1)[..., 1]),
    "amax": _both(lambda m, a, b: m.amax(_rows(m, a, b), -1)),
    "amin": _both(lambda m, a, b: m.amin(_rows(m, a, b), -1)),
    "var": _both(lambda m, a, b: m.var(_rows(m, a, b), -1, correction=0)),
    "where": _both(lambda m, a, b: m.where(a > b, a * b, b)),
}  # fmt: skip
OTHERWISE: dict[str, Callable[..., Any]] = {  # and where
    "elu": lambda x: x == 0,  # of its two second derivatives PyTorch has that to the right
    "huber_loss": lambda x: np.abs(x - 1) == 1,  # likewise
    "fmax": lambda a, b: (a == b) | np.isnan(a + b),  # equal ones share the gradient
    "fmin": lambda a, b: (a == b) | np.isnan(a + b),
    "power 0.5": np.isneginf,  # a root in PyTorch
    "cumprod": lambda a, b: np.isinf(a) | np.isinf(b),  # NaN, which is 0 · inf
}


def derivatives(slopes: Function, f: Function, xs: list[Any]) -> dict[str, Any]:
    """The value and all derivatives to third order, by the numbers of the arguments."""
    level: dict[str, Any] = {"": f(*xs)}
    found = dict(level)
    for _ in range(3):
        level = {f"{by}{i}": g for by, y in level.items() for i, g in enumerate(slopes(y, xs))}
        found.update(level)
    return found


def ours(y: Any, xs: list[Tensor]) -> list[Any]:
    if not y.requires_grad:
        return [Tensor(np.zeros(x.shape)) for x in xs]
    found = mg.gradients(y, xs, np.ones(y.shape), create_graph=True, allow_unused=True)
    return [Tensor(np.zeros(x.shape)) if g is None else g for g, x in zip(found, xs)]


def theirs(y: Any, xs: list[Any]) -> list[Any]:
    if not y.requires_grad:
        return [torch.zeros_like(x) for x in xs]
    found = torch.autograd.grad(y, xs, torch.ones_like(y), create_graph=True, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, xs)]


@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_derivatives_at_special_values(name: str) -> None:
    f, g = {**ONE, **TWO}[name]
    arrays = [VALUES] if name in ONE else PAIRS
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = derivatives(ours, f, [Tensor(a.copy(), requires_grad=True) for a in arrays])
        expected = derivatives(theirs, g, [torch.tensor(a, requires_grad=True) for a in arrays])
        skip = OTHERWISE[name](*arrays) if name in OTHERWISE else np.zeros(arrays[0].shape, bool)
    nan = np.any(np.isnan(arrays), axis=0)
    for by, e in expected.items():
        y, e = found[by].data, e.detach().numpy(force=True)
        asked = ~skip & np.isfinite(e) & ~(nan & np.isnan(y)) | (
            np.isinf(e) & ~np.isnan(y) & (by == "") & ~skip
        )
        wrong = asked & ~np.isclose(y, e, rtol=1e-7, atol=1e-9)
        places = [[float(v) for v in at] for at in zip(*[a[wrong] for a in arrays])]
        assert not wrong.any(), (
            f"{name}, derivative {by!r} at {places}: {y[wrong]}, expected {e[wrong]}"
        )
