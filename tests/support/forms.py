"""Calls of NumPy functions, drawn by hypothesis by the names of the parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st
from support.opinfo import source
from support.opinfo.base import integers

from minigrad.numpy.nested import signature

BEFORE_2_1 = np.lib.NumpyVersion(np.__version__) < "2.1.0"
BEFORE_2_4 = np.lib.NumpyVersion(np.__version__) < "2.4.0"
"""True if NumPy has no signatures of its functions in C, and accepts some forms that it refuses since."""
BEFORE_2_5 = np.lib.NumpyVersion(np.__version__) < "2.5.0"

DTYPES = [np.float64] * 6 + [np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8, bool]


@dataclass
class Call:
    """One call of a NumPy function."""

    function: Any
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the call as a Python expression."""
        f = self.function
        package = (
            "linalg." if hasattr(np.linalg, f.__name__) and not hasattr(np, f.__name__) else ""
        )
        arguments = [source(x) for x in self.args]
        arguments += [f"{name}={source(x)}" for name, x in self.kwargs.items()]
        return f"np.{package}{f.__name__}({', '.join(arguments)})"

    @property
    def has_arrays(self) -> bool:
        """True if an argument that NumPy dispatches on is an array; options such as where= are not."""
        if isinstance(self.function, np.ufunc):
            return True
        spread = set(signature(self.function).parameters) & _MANY
        kinds = (Chooser.array, Chooser.partner, Chooser.arrays)
        return any(
            isinstance(part, np.ndarray)
            for name, value in self.given.items()
            if spread or name in _OTHERS or DRAWN.get(name) in kinds
            for part in (value if isinstance(value, (list, tuple)) else [value])
        )

    @property
    def given(self) -> dict[str, Any]:
        """Return the arguments by the names of NumPy's parameters."""
        is_ufunc = isinstance(self.function, np.ufunc)
        return (
            dict(zip("x" if is_ufunc else signature(self.function).parameters, self.args))
            | self.kwargs
        )

    def of(self, change: Callable[[Any], Any]) -> Any:
        """Return the result of the call with changed arguments, or the array that it wrote into."""
        args = [change(v) for v in self.args]
        kwargs = {k: v if k == "out" else change(v) for k, v in self.kwargs.items()}
        result = self.function(*args, **kwargs)
        return [*args, *kwargs.values()][0] if self.function in WRITING else result


WRITING = {np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis}
"""Functions that write into their first argument and return None."""


class Chooser:
    """Draws the arguments of one call, whose arrays have related shapes; values are seeded."""

    def __init__(self, draw: Any, least: int = 0) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(self.integer(0, 2**32 - 1))
        ndim = self.one(0, 1, 2, 2, 3)
        self.shape = tuple(max(self.one(1, 2, 3, 3, 0), least) for _ in range(ndim))
        if self.often(0.2) and ndim >= 2:  # matrices that are square
            self.shape = (*self.shape[:-1], self.shape[-2])
        self.dtype = self.one(*DTYPES)

    def integer(self, low: int, high: int) -> int:
        return self.draw(integers(low, high)) if low < high else low

    def one(self, *choices: Any) -> Any:
        """Draw one of the choices; the first is the simplest."""
        return choices[self.integer(0, len(choices) - 1)]

    def often(self, p: float) -> bool:
        """Draw True with probability `p`; False is simpler."""
        return self.integer(0, 99) >= 100 - round(100 * p)

    def values(self, shape: tuple[int, ...], dtype: Any = None) -> np.ndarray:
        dtype = np.dtype(dtype or self.dtype)
        if dtype.kind == "f":
            # equal steps make singular matrices; close to 0, a remainder jumps everywhere
            steps = np.cumsum(0.25 + 0.25 * self.rng.random(int(np.prod(shape))))
            x = self.rng.permutation(steps) - 1.1 + self.rng.random()
            return np.where(np.abs(x) < 0.05, 0.05, x).reshape(shape).astype(dtype)
        if dtype.kind == "b":
            return self.rng.random(shape) < 0.5
        low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if self.often(0.2) else (0, 5)
        return self.rng.integers(low, high, shape, endpoint=True, dtype=dtype)

    def array(self) -> Any:
        x = self.values(self.shape)
        return x.tolist() if x.size and self.often(0.08) else x

    def partner(self) -> Any:
        """Draw an array or a number that mostly broadcasts with the shape."""
        ones = tuple(self.one(1, n) for n in self.shape)
        whole, part = self.shape, self.shape[1:]
        shape = self.one(part, ones, whole[::-1], (3,), whole, whole, whole, None)
        if shape is None:
            return self.one(0, 1, 2, 0.5, -1.5, True)
        x = self.values(shape, None if self.often(0.7) else self.one(*DTYPES))
        return x.tolist() if x.size and self.often(0.15) else x

    def axis(self) -> Any:
        ndim = len(self.shape)
        one = lambda: self.integer(-ndim - 1, ndim)
        inside = lambda: self.integer(-ndim, ndim - 1) if ndim else self.one(0, -1)
        several = tuple(inside() for _ in range(self.one(0, 1, 2, 2)))
        kinds = several, list(several), np.array(several, int), np.int64(inside())
        return self.one(None, one(), inside(), inside(), inside(), *kinds)

    def number(self, *choices: Any) -> Any:
        """Draw one of the choices, sometimes as an array without axes."""
        value = self.one(*choices)
        return value if value is None or self.often(0.7) else np.array(value, float)

    def whole(self) -> int:
        return self.integer(-2, 4)

    def arrays(self) -> Any:
        parts = [self.values(self.shape) for _ in range(self.one(1, 2, 3))]
        if self.often(0.15):
            others = self.shape[:-1], (*self.shape, 2), (2, *self.shape[1:])
            parts[-1] = self.values(self.one(*others))
        return self.one(parts, parts, tuple(parts))

    def shape_like(self) -> Any:
        n = int(np.prod(self.shape))
        shapes = self.shape, self.shape[::-1], (n,), (-1,), (1, *self.shape), (2, -1), (n + 1,)
        shape = self.one(-1, n, *shapes)
        return self.one(shape, shape, list(np.atleast_1d(shape)), np.array(shape))

    def places(self) -> Any:
        n = max(self.shape[0] if self.shape else 1, 1)
        several = [], [0], [0, n - 1], [-1, 0, 0], [[0, n - 1], [-n, 0]], [n]
        return self.one(self.whole(), *several, np.array([0, n - 1], np.int8))

    def mask(self) -> Any:
        return self.rng.random(self.one(self.shape, self.shape, self.shape[-1:])) < 0.6

    def widths(self) -> Any:
        each = [(1, 2)] * len(self.shape)
        return self.one(
            0, 1, 2, (1, 2), [0, 1], ((1, 0),), each, np.array(each), -1, (1, 2, 3), 1.5
        )

    def weights(self) -> Any:
        return self.one(self.values(self.shape), self.values(self.shape[-1:]), None)


NAMES: dict[Callable[[Chooser], Any], str] = {
    Chooser.array: "a x m ary arr array A v a1 dst f xp p element test_elements z",
    Chooser.partner: "b x1 x2 a2 values y a_min a_max min max prepend append src fp val vals stop",
    Chooser.arrays: "arrays tup",
    Chooser.axis: "axis source destination axes",
    Chooser.whole: "axis1 axis2 axisa axisb axisc k offset n shift decimals rowvar deg",
    Chooser.shape_like: "shape",
    Chooser.places: "indices ind",
    Chooser.mask: "where condition mask",
    Chooser.widths: "pad_width",
    Chooser.weights: "weights",
    lambda d: d.one(None, d.values(d.shape[-1:], np.uint8) % 4 + 1, d.values(d.shape)): "fweights",
    lambda d: d.one(None, d.values(d.shape[-1:], np.float64) + 1, d.values(d.shape)): "aweights",
    lambda d: d.values([1] * len(d.shape), float): "mean",
    lambda d: [d.mask()]: "condlist",
    lambda d: [d.values(d.shape)]: "choicelist",
}
"""Functions that draw arguments, and the names of these arguments in NumPy's signatures."""

NUMBERS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("left", "right", "nan", "fill_value", "dx", "default"), (0.0, 1.5, 2)),
    "initial": (0, 1.5, -2, 100),
    "tol": (None, 0.1),
    "posinf": (None, 9.0),
    "neginf": (None, -9.0),
}
"""Choices of arguments that are numbers, or arrays without axes."""

CHOICES: dict[str, tuple[Any, ...]] = {
    "device": (None, "cpu"),
    "bins": (np.arange(4.0),),
    "ddof": (0, 1),
    "correction": (0, 1),
    "dtype": (np.float64, np.float32, None, int),
    "casting": ("same_kind", "safe", "unsafe"),
    "order": ("C", "F", "A", "K", "X"),
    "out": (None,),
    "indices_or_sections": (1, 2, 3, 0, -1, [1], [3, 1], (1, 2), np.array([1, 2]), [-1], [], [7]),
    "q": (0, 0.5, 1.0, [0.2, 0.7], [[0.1], [0.9]], 1.5, -0.1, 50),
    "method": ("linear", "lower", "higher", "midpoint", "nearest", "no such"),
    "mode": (
        "raise", "wrap", "clip", "edge", "reflect", "symmetric", "constant", "mean", "same", "full",
    ),
    "kind": ("stable", "quicksort", None),
    "stable": (True, None),
    "side": ("left", "right"),
    "obj": (0, 1, -1, 7, [0], [1, 1], [0, -1], slice(1, None), slice(None, None, 2), [True, False, True], []),
    "sorter": (None,),
    "indexing": ("xy", "ij", "yx"),
    "ord": (None, 0, 1, 2, 3, -1, -2, np.inf, -np.inf, "fro", "nuc", "no such"),
    "kth": (0, 1, -1, 5, [0, 1]),
    "repeats": (0, 1, 2, [1, 2, 0], [2], -1, np.array([1, 2])),
    "reps": (0, 2, (2, 1), [1, 3], np.array([2, 2]), (1, 2, 1), -1),
    "window_shape": (1, 2, (2,), (1, 2), [1], 5, -1),
    "period": (3.0,),
    "discont": (None, 4.0),
    "start": (0, 1, -1),
    "rtol": (1e-10,),
    "atol": (0.1,),
    "rcond": (1e-10,),
    "UPLO": ("L", "U", "X"),
    "edge_order": (1, 2),
    "num": (0, 1, 2, 5),
    "norm": (None, "backward", "ortho", "forward", "no such"),
    "s": (None, (2,), (3, 2), (0,)),
    **dict.fromkeys(("keepdims", "bias", "upper", "copy"), (True, False)),
}  # fmt: skip
"""Choices of arguments by their names; other arguments with a boolean default are True or False."""

DRAWN = {name: draw for draw, names in NAMES.items() for name in names.split()}


def draw_argument(d: Chooser, p: inspect.Parameter, function: Any) -> Any:
    """Draw a value of parameter `p` of a NumPy function."""
    if p.name in DRAWN:
        return DRAWN[p.name](d)
    if p.name in NUMBERS:
        return d.number(*NUMBERS[p.name])
    if p.name in CHOICES:
        return d.one(*CHOICES[p.name])
    if isinstance(p.default, bool):
        return d.often(0.5)
    raise KeyError(f"CHOICES must contain {p.name!r}, a parameter of {function.__name__}")


KEYWORDS: dict[Any, dict[str, Callable[[Chooser], Any]]] = {
    np.pad: {
        "constant_values": lambda d: d.one(d.number(0, 1.5), (1, 2), [[1.0, 2]]),
        "end_values": lambda d: d.one(d.number(0, 1.5), (1, 2)),
        "stat_length": lambda d: d.one(1, 2, (1, 2), None),
        "reflect_type": lambda d: d.one("even", "odd"),
    },
    np.clip: {"dtype": lambda d: d.one(np.float32, np.float64), "casting": lambda d: "unsafe"},
}
"""Arguments that NumPy functions take as `**kwargs`."""

NOT_EMPTY = {np.cov, np.corrcoef, np.median, np.quantile, np.percentile, np.interp}
"""Functions whose result for no elements, or over no axes, depends on the form of the call or on NumPy's version."""

_MANY = {"arys", "xi", "args", "operands"}
"""Parameters that take any number of arrays."""

_OTHERS = {"choicelist", "condition", "condlist", "start"}
"""Parameters that NumPy dispatches on, besides those that `Chooser.array` and the like draw."""

_NOT_DRAWN = {"interpolation", "newshape", "descending"}
"""Aliases of parameters, removed in NumPy 2.4, and a parameter of NumPy 2.5."""


def draw_call(draw: Any, function: Any) -> Call:
    """Draw a call with some of the parameters, some of them by name, and sometimes too few."""
    d = Chooser(draw, least=1 if function in NOT_EMPTY else 0)
    call = Call(function)
    by_name = d.often(0.3)
    for p in signature(function).parameters.values():
        if p.name in _NOT_DRAWN:
            continue
        if p.kind is p.VAR_POSITIONAL or p.name in _MANY:
            call.args += [d.array() for _ in range(d.one(1, 2))]
            continue
        if p.kind is p.VAR_KEYWORD:
            chosen = KEYWORDS.get(function, {})
            call.kwargs.update(
                {name: draw(d) for name, draw in chosen.items() if d.often(0.5 / len(chosen))}
            )
            continue
        if p.default is not p.empty and not d.often(0.35):
            by_name = True  # those after it cannot be given by position
            continue
        value = draw_argument(d, p, function)
        if function in NOT_EMPTY and p.name == "axis" and np.size(value) == 0:
            value = None
        if (by_name and p.kind is not p.POSITIONAL_ONLY) or p.kind is p.KEYWORD_ONLY:
            by_name = True
            call.kwargs[p.name] = value
        elif not by_name or p.kind is p.POSITIONAL_ONLY:
            call.args.append(value)
    return call


def draw_ufunc_call(draw: Any, ufunc: np.ufunc) -> Call:
    """Draw a call of a ufunc, sometimes with options."""
    d = Chooser(draw)
    call = Call(ufunc, [d.array(), *[d.partner() for _ in range(ufunc.nin - 1)]])
    if ufunc.nin > 1 and d.often(0.5):
        call.args.reverse()
    for name, value, p in (
        ("dtype", d.one(np.float64, np.float32, np.int64), 0.1),
        ("where", d.one(True, d.mask()), 0.1),
        ("casting", d.one("same_kind", "unsafe"), 0.05),
        ("order", "K", 0.05),
    ):
        if d.often(p):
            call.kwargs[name] = value
    if d.often(0.5 if call.kwargs.get("where", True) is not True else 0.05):
        outs = tuple(np.zeros(d.shape, d.dtype) for _ in range(ufunc.nout))
        call.kwargs["out"] = outs if ufunc.nout > 1 else outs[0]
    return call


@cache
@st.composite
def calls(draw: Any, function: Any) -> Call:
    """Draw a call of a function or ufunc."""
    return (draw_ufunc_call if isinstance(function, np.ufunc) else draw_call)(draw, function)
