"""OpInfo: how to call an op, what it must return, and random samples of its operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import settings

import minigrad as mg
from minigrad import Tensor
from minigrad.core.registry import FUNCTIONS, OPS

EXAMPLES = settings.default.max_examples
"""Number of samples of each op; HYPOTHESIS_PROFILE=intense draws more."""

NO_GRADIENT = {
    name
    for name, f in FUNCTIONS.items()
    if f.__module__ == "minigrad.ops.compare" or name in ("one_hot", "argsort")
}
"""Functions whose results require no gradient."""

Shape = tuple[int, ...]


class Draw:
    """Random shapes, options and arrays for one sample.

    Values keep away from points where a derivative jumps, so that finite differences hold.
    """

    def __init__(self, seed: Any) -> None:
        self.rng = np.random.default_rng(seed)

    def one_of(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def bool(self) -> bool:
        return bool(self.rng.random() < 0.5)

    def shape(
        self, min_ndim: int = 0, max_ndim: int = 3, min_side: int = 0, max_side: int = 4
    ) -> Shape:
        """Draw a shape; one of six has an axis of length 0 if `min_side` is 0."""
        ndim = self.rng.integers(min_ndim, max_ndim, endpoint=True)
        sides = self.rng.integers(max(min_side, 1), max_side, ndim, endpoint=True)
        if ndim and min_side == 0 and self.rng.random() < 1 / 6:
            sides[self.rng.integers(ndim)] = 0
        return tuple(sides.tolist())

    def partner(self, shape: Shape) -> Shape:
        """Draw a shape that broadcasts with `shape`."""
        ones = tuple(self.one_of(1, n) for n in shape)
        return self.one_of(shape, ones, shape[1:], (2, *shape))

    def axis(self, ndim: int, *, none: bool = True, several: bool = True) -> Any:
        """Draw an axis, or None, or a tuple of axes."""
        choices: list[Any] = [*range(-ndim, ndim), *[None] * none]
        for count in range(1, (ndim + 1) * several):
            choices += itertools.combinations(range(ndim), count)
        return self.one_of(*choices)

    def array(
        self, shape: Shape, low: float = -3.0, high: float = 3.0, kinks: tuple[float, ...] = ()
    ) -> np.ndarray:
        """Draw values from `low` to `high`; a fifth of them are 0, 1, -1, or equal to another."""
        x = self.rng.uniform(low, high, shape)
        special = [v for v in (0.0, 1.0, -1.0) if low <= v <= high] + np.ravel(x)[:1].tolist()
        x = np.where(self.rng.random(shape) < 0.2, self.rng.choice([*special, low], shape), x)
        for kink in kinks:
            x = np.where(np.abs(x - kink) < 0.05, kink + 0.1, x)
        return x

    def distinct(self, shape: Shape) -> np.ndarray:
        """Draw values with distances of at least 0.05."""
        n = int(np.prod(shape))
        steps = 0.1 * self.rng.permutation(n) - 0.05 * n
        return (steps + self.rng.uniform(0, 0.05, n)).reshape(shape)


class Sample:
    """Operands and options of one call of an op. Operands that are float64 arrays are differentiable."""

    info: OpInfo

    def __init__(self, *operands: Any, **options: Any) -> None:
        self.operands = [np.asarray(x) if isinstance(x, np.generic) else x for x in operands]
        self.options = options

    def __str__(self) -> str:
        return f"{self.info.name}(*{self.operands}, **{self.options})"

    @property
    def floats(self) -> dict[int, np.ndarray]:
        """Return the differentiable operands by their index."""
        return {
            i: x
            for i, x in enumerate(self.operands)
            if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        }

    def call(self, *values: Any) -> list[Any]:
        """Call the op with `values` as its differentiable operands."""
        operands = list(self.operands)
        for i, value in zip(self.floats, values):
            operands[i] = value
        result = self.info.call(*operands, **self.options)
        return list(result) if isinstance(result, (list, tuple)) else [result]

    def run(self, dtype: Any = np.float64) -> tuple[list[Tensor], list[Tensor]]:
        """Call the op with new tensors; return these and the results that require gradients."""
        leaves = [Tensor(x.astype(dtype), True) for x in self.floats.values()]
        return leaves, [y for y in self.call(*leaves) if y.requires_grad]


@dataclass
class OpInfo:
    """Entry of an op.

    Attributes
    ----------
    call : callable
        The op, on tensors, arrays or a mixture. It returns a tensor or several.
    reference : callable or None
        The same function of arrays, computed another way. None for losses of one element, whose
        values `tests/ops/test_losses.py` and `tests/oracle/test_op_db.py` compare.
    samples : callable
        Draws a sample.
    """

    name: str
    call: Callable[..., Any]
    reference: Callable[..., Any] | None
    samples: Callable[[Draw], Sample]

    def sample(self, seed: int) -> Sample:
        """Draw sample number `seed`."""
        sample = self.samples(Draw([seed, *self.name.encode()]))
        sample.info = self
        return sample

    def each_sample(self, count: int = EXAMPLES) -> Iterator[Sample]:
        """Draw samples; wrap the body of the loop in `naming`, so that an error shows the call."""
        return map(self.sample, range(count))


@contextmanager
def naming(call: object) -> Iterator[None]:
    """Put `call` before the message of an error."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{call}\n{type(error).__name__}: {error}") from error


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
) -> None:
    """Add the entry of an op; its reference is NumPy's function of that name by default."""
    call = call or getattr(mg, name, None) or OPS[name].function
    reference = reference or getattr(np, name, None) or getattr(np.linalg, name)
    assert name not in TABLE, name
    TABLE[name] = OpInfo(name, call, reference, samples)
