"""OpInfo: how to call an op, what it must return, and a hypothesis strategy of its operands."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

import minigrad as mg
from minigrad import Tensor
from minigrad.registry import FUNCTIONS, OPS

NO_GRADIENT = {
    name
    for name, f in FUNCTIONS.items()
    if f.__module__ == "minigrad.numpy.compare" or name in ("one_hot", "argsort")
}
"""Functions whose results require no gradient."""

Shape = tuple[int, ...]

# strategies are kept, since making one takes longer than drawing from it


@cache
def integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


@cache
def codes(count: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=2 * count, max_size=2 * count)


@cache
def outwards(low: int, high: int) -> np.ndarray:
    """Return the integers from `low` to `high`, inclusive, by their distance from 0."""
    values = np.arange(low, high + 1)
    return values[np.argsort(np.abs(values), kind="stable")]


MAX_DRAWN = 512
"""Largest number of elements that hypothesis draws; an example has at most 8 KiB of choices."""


class Draw:
    """Shapes, options and arrays of one sample, drawn by hypothesis, so that all of it shrinks.

    Elements keep away from points where a derivative jumps, so that finite differences hold. The
    elements of an array are one choice, a string of bytes, which hypothesis draws ten times as fast
    as one choice for each. Only arrays of more than `MAX_DRAWN` elements come from a drawn seed.

    Parameters
    ----------
    draw : callable
        Draws from a strategy: `data.draw` of `st.data()`, or the first argument of a function
        under `st.composite`.
    """

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        """Draw an integer from `low` to `high`, inclusive; the smallest size is the simplest."""
        return self.draw(integers(low, high)) if low < high else low

    def one_of(self, *choices: Any) -> Any:
        """Draw one of the choices; the first is the simplest."""
        return choices[self.integer(0, len(choices) - 1)]

    def bool(self) -> bool:
        return bool(self.integer(0, 1))

    def often(self, p: float) -> bool:
        """Draw True with probability `p`; False is simpler."""
        return self.integer(0, 99) >= 100 - round(100 * p)

    # -- shapes ---------------------------------------------------------------------------------------

    def shape(
        self, min_ndim: int = 0, max_ndim: int = 3, min_side: int = 0, max_side: int = 4
    ) -> Shape:
        """Draw a shape; one of eight has an axis of length 0 if `min_side` is 0."""
        first, empty, axis, *codes = self.codes(3 + max_ndim).tolist()
        ndim = min_ndim + (first * (max_ndim - min_ndim + 1) >> 16)
        low = max(min_side, 1)
        sides = [low + (code * (max_side - low + 1) >> 16) for code in codes[:ndim]]
        if ndim and min_side == 0 and empty >= 7 << 13:
            sides[axis * ndim >> 16] = 0
        return tuple(sides)

    def broadcastable(self, shape: Shape) -> Shape:
        """Draw a shape that broadcasts to `shape`."""
        return self.one_of(shape, shape[1:], tuple(self.one_of(n, 1) for n in shape))

    def partner(self, shape: Shape) -> Shape:
        """Draw a shape that broadcasts with `shape`, and can have one axis more."""
        return (2, *shape) if self.often(0.2) else self.broadcastable(shape)

    def axis(self, ndim: int, *, none: bool = True, several: bool = True) -> Any:
        """Draw an axis, or None, or a tuple of axes."""
        choices: list[Any] = [*range(ndim), *range(-ndim, 0), *[None] * none]
        for count in range(1, (ndim + 1) * several):
            choices += itertools.combinations(range(ndim), count)
        return self.one_of(*choices)

    def permutation(self, n: int) -> tuple[int, ...]:
        return tuple(np.argsort(self.codes(n), kind="stable").tolist())

    def permutation_of(self, values: Any) -> list[Any]:
        return [values[i] for i in self.permutation(len(values))]

    def positions(self, size: int) -> list[int]:
        """Draw at most three positions in an array of `size` elements."""
        count, *codes = self.codes(4).tolist()
        return [code * size >> 16 for code in codes[: 4 * count >> 16]] if size else []

    # -- values ---------------------------------------------------------------------------------------

    def codes(self, count: int) -> np.ndarray:
        """Draw integers below 2^16 with one choice of hypothesis, which shrinks each of them to 0."""
        if count <= MAX_DRAWN:
            return np.frombuffer(self.draw(codes(count)), ">u2").astype(np.int64)
        return np.random.default_rng(self.integer(0, 2**32 - 1)).integers(0, 2**16, count)

    def integers(self, low: int, high: int, shape: Shape, *, unique: bool = False) -> np.ndarray:
        """Draw integers from `low` to `high - 1`; 0 or the nearest to it is the simplest."""
        values, size = outwards(low, high - 1), math.prod(shape)
        if unique:
            return values[list(self.permutation(len(values))[:size])].reshape(shape)
        return values[self.codes(size) * len(values) >> 16].reshape(shape)

    def array(
        self, shape: Shape, low: float = -3.0, high: float = 3.0, kinks: tuple[float, ...] = ()
    ) -> np.ndarray:
        """Draw values from `low` to `high`, half of them in the eighth nearest to 0.

        A fourth of the elements is 0, 1, -1, a bound, or equal to the first one.
        """
        codes = self.codes(math.prod(shape))
        values = outwards(math.ceil(1000 * low), math.floor(1000 * high))
        ordinary = 3 << 14
        x = values[(len(values) * (codes % ordinary / ordinary) ** 3).astype(int)] / 1000
        special = [v for v in (0.0, 1.0, -1.0, low, high) if low <= v <= high]
        special = np.array([*special, *x[:1]])
        x = np.where(
            codes < ordinary, x, special[np.maximum(codes - ordinary, 0) * len(special) >> 14]
        )
        x = x.reshape(shape)
        for kink in kinks:
            x = np.where(np.abs(x - kink) < 0.05, kink + 0.1, x)
        return x

    def distinct(self, shape: Shape) -> np.ndarray:
        """Draw values with distances of at least 0.05, and of at most 0.1 times their number."""
        n = math.prod(shape)
        return np.asarray(self.integers(-n, n + 1, shape, unique=True) / 20)

    def mask(self, shape: Shape) -> np.ndarray:
        """Draw True everywhere, nowhere or at drawn positions."""
        value = self.one_of(True, None, None, False)
        x = self.integers(0, 2, shape) == 1 if value is None else np.full(shape, value)
        for position in self.positions(x.size):
            x.flat[position] = not value
        return x

    def layout(self, x: np.ndarray) -> np.ndarray:
        """Draw the layout of `x`: transposed, reversed, strided, read-only or unaligned, or the same."""
        kind = self.one_of(
            "same", "same", "transposed", "reversed", "strided", "read-only", "unaligned"
        )
        if kind == "read-only":
            return np.broadcast_to(x, x.shape)
        if kind == "unaligned" and x.size:
            return np.ndarray(x.shape, x.dtype, bytearray(b"-" + x.tobytes()), 1)
        if kind in ("same", "unaligned") or x.ndim == 0:
            return x
        if kind == "transposed":
            return np.array(x.T, order="C").T
        return np.flip(np.flip(x).copy()) if kind == "reversed" else np.repeat(x, 2, -1)[..., ::2]

    def cotangent(self, shape: Shape, dtype: Any = float) -> np.ndarray:
        """Draw a gradient of a result of this shape, in any layout, or with strides of 0."""
        if self.often(0.3):
            return np.broadcast_to(self.cotangent(self.broadcastable(shape), dtype), shape)
        return self.layout(self.array(shape).astype(dtype))


def source(x: Any) -> str:
    """Return a Python expression of a value, an array in its layout."""
    if isinstance(x, (list, tuple)):
        parts = ", ".join(map(source, x))
        return f"[{parts}]" if isinstance(x, list) else f"({parts}{',' * (len(x) == 1)})"
    if isinstance(x, type):
        return f"np.{x.__name__}" if issubclass(x, np.generic) else x.__name__
    if isinstance(x, Tensor):
        return f"mg.Tensor({source(x.data)}, requires_grad={x.requires_grad})"
    if not isinstance(x, np.ndarray):
        return repr(x)
    if not x.flags.writeable:
        few = x[
            tuple(slice(1) if s == 0 and n else slice(None) for n, s in zip(x.shape, x.strides))
        ]
        return f"np.broadcast_to({source(few.copy())}, {x.shape})"
    if not x.flags.aligned:
        return f"np.ndarray({x.shape}, '{x.dtype}', b'-' + {source(x.copy())}.tobytes(), 1)"
    if x.flags.c_contiguous:
        dtype = "" if x.dtype in (float, bool, int) and x.size else f", dtype=np.{x.dtype.name}"
        if x.size == 0:
            return f"np.zeros({x.shape}{dtype})"
        return f"np.array({x.tolist()}{dtype})".replace("nan", "np.nan").replace("inf", "np.inf")
    if x.T.flags.c_contiguous:
        return f"{source(x.T)}.T"
    if any(stride < 0 for stride in x.strides):
        return f"np.flip({source(np.flip(x).copy())})"
    return f"np.repeat({source(x.copy())}, 2, axis=-1)[..., ::2]"


def replace(value: Any, change: Callable[[np.ndarray], Any]) -> Any:
    """Replace the arrays in a value, which can be a list or tuple."""
    if isinstance(value, (list, tuple)):
        return type(value)(replace(part, change) for part in value)
    return change(value) if isinstance(value, np.ndarray) else value


class Sample:
    """Operands and options of one call of an op. All its arrays of float64 are differentiable."""

    info: OpInfo

    def __init__(self, *operands: Any, **options: Any) -> None:
        self.operands = [np.asarray(x) if isinstance(x, np.generic) else x for x in operands]
        self.options = options

    def __repr__(self) -> str:
        """Return the call, in a form that runs after `import minigrad as mg, numpy as np`."""
        call = self.info.call
        name = getattr(call, "__name__", "")
        known = getattr(mg, name, None) is call
        arguments = [source(x) for x in self.operands]
        arguments += [f"{name}={source(x)}" for name, x in self.options.items()]
        start = f"mg.{name}" if known else f"opinfo.TABLE[{self.info.name!r}].call"
        return f"{start}({', '.join(arguments)})"

    def with_arrays(self, change: Callable[[np.ndarray], Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the operands and options with changed arrays."""
        operands = [replace(x, change) for x in self.operands]
        return operands, {name: replace(x, change) for name, x in self.options.items()}

    def change_layouts(self, change: Callable[[np.ndarray], np.ndarray]) -> None:
        self.operands, self.options = self.with_arrays(change)

    @property
    def arrays(self) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        self.with_arrays(found.append)
        return found

    @property
    def floats(self) -> list[np.ndarray]:
        """Return the differentiable arrays."""
        return [x for x in self.arrays if x.dtype.kind == "f"]

    def call(self, *values: Any) -> list[Any]:
        """Call the op with `values` as its differentiable arrays."""
        left = iter(values)
        operands, options = self.with_arrays(lambda x: next(left) if x.dtype.kind == "f" else x)
        return results_of(self.info.call(*operands, **options))

    def call_lists(self) -> list[Any]:
        """Call the op with lists in place of its arrays."""
        operands, options = self.with_arrays(np.ndarray.tolist)
        return results_of(self.info.call(*operands, **options))

    def expected(self) -> list[Any] | None:
        """Return the results of the reference, None without a reference."""
        if self.info.reference is None:
            return None
        return results_of(self.info.reference(*self.operands, **self.options))

    def run(self, dtype: Any = None) -> tuple[list[Tensor], list[Tensor]]:
        """Call the op with new tensors; return these and the results that require gradients.

        The tensors have the memory of the sample, or copies if a dtype is given.
        """
        leaves = [Tensor(x if dtype is None else x.astype(dtype), True) for x in self.floats]
        return leaves, [y for y in self.call(*leaves) if y.requires_grad]


def results_of(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


@dataclass(eq=False)
class OpInfo:
    """Entry of an op.

    Attributes
    ----------
    call : callable
        The op, on tensors, arrays or a mixture. It returns a tensor or several.
    reference : callable or None
        The same function of arrays, computed another way. None for losses of one element, whose
        values `tests/minigrad/ops/test_losses.py` and `tests/oracle/test_op_db.py` compare.
    samples : callable
        Draws a sample.
    operands : int
        Number of operands of an elementwise function that is defined on whole ranges of numbers,
        so that its derivatives are compared for numbers of all sizes; 0 for the others.
    """

    name: str
    call: Callable[..., Any]
    reference: Callable[..., Any] | None
    samples: Callable[[Draw], Sample]
    operands: int = 0

    def __repr__(self) -> str:
        return f"opinfo.TABLE[{self.name!r}]"


@cache
@st.composite
def samples(draw: Any, info: OpInfo) -> Sample:
    """Draw a sample of an op, with arrays in drawn layouts."""
    d = Draw(draw)
    sample = info.samples(d)
    sample.info = info
    sample.change_layouts(d.layout)
    return sample


@st.composite
def cotangents(draw: Any, ys: list[Tensor]) -> list[np.ndarray]:
    """Draw a gradient of each result."""
    d = Draw(draw)
    return [d.cotangent(y.shape, y.dtype) for y in ys]


def by_definition(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls a kernel's definition and returns arrays."""

    def reference(*operands: Any, **options: Any) -> Any:
        with mg.use_definitions():
            return call(*operands, **options).data

    return reference


TABLE: dict[str, OpInfo] = {}


def add(
    name: str,
    samples: Callable[[Draw], Sample],
    reference: Callable[..., Any] | None = None,
    call: Callable[..., Any] | None = None,
    operands: int = 0,
) -> None:
    """Add the entry of an op; its reference is NumPy's function of that name by default."""
    call = call or getattr(mg, name, None)
    call = call or (OPS[name].function if name in OPS else FUNCTIONS[name])
    reference = reference or getattr(np, name, None) or getattr(np.linalg, name)
    assert name not in TABLE, name
    TABLE[name] = OpInfo(name, call, reference, samples, operands)
