"""What an entry is, how it draws its samples, and the table of all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import minigrad as mg


@dataclass
class Sample:
    """Operands (float64 arrays, or whatever the op takes) and options for one call."""

    operands: list[Any]
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.operands = [np.asarray(x) if isinstance(x, np.generic) else x for x in self.operands]


@dataclass
class OpInfo:
    name: str
    call: Callable[..., Any]  # on tensors, arrays, or a mixture
    reference: Callable[..., Any]  # on arrays
    samples: Callable[[Draw], Sample]
    dtypes: tuple[Any, ...] = (np.float32, np.float64)  # those that it keeps
    analytic: bool = True  # a complex step gives its derivative
    errors: list[tuple[Callable[[], Any], type[Exception], str]] = field(default_factory=list)


class Draw:
    """Draws arrays whose shape hypothesis chooses and whose values come from a seed."""

    def __init__(self, draw: Callable[..., Any], at_kinks: bool = False) -> None:
        self.draw = draw
        self.at_kinks = at_kinks
        self.has_kinks = False
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def shape(
        self, min_ndim: int = 0, max_ndim: int = 3, min_side: int = 0, max_side: int = 4
    ) -> tuple[int, ...]:
        return tuple(
            self.draw(
                st.lists(st.integers(min_side, max_side), min_size=min_ndim, max_size=max_ndim)
            )
        )

    def array(
        self,
        shape: tuple[int, ...],
        low: float = -3.0,
        high: float = 3.0,
        kinks: tuple[float, ...] = (),
    ) -> np.ndarray:
        """Numbers from `low` to `high`; a fifth of them are 0, 1, -1, or equal to another one.

        Away from `kinks`, where finite differences hold; with `at_kinks` half of them are kinks.
        """
        x = self.rng.uniform(low, high, shape)
        special = [v for v in (0.0, 1.0, -1.0) if low <= v <= high] + x.ravel()[:1].tolist()
        if special:
            x = np.where(self.rng.random(shape) < 0.2, self.rng.choice(special, shape), x)
        for kink in kinks:
            x = np.where(np.abs(x - kink) < 0.05, kink + 0.1, x)
        if kinks and self.at_kinks:
            self.has_kinks = True
            x = np.where(self.rng.random(shape) < 0.5, self.rng.choice(kinks, shape), x)
        return x

    def distinct(self, shape: tuple[int, ...]) -> np.ndarray:
        """No two elements nearer than 0.05; with `at_kinks` two are equal."""
        n = math.prod(shape)
        if self.at_kinks:
            self.has_kinks = True
            x = self.rng.permutation(n).astype(float)
            lower = self.rng.integers(0, max(n - 1, 1))
            return 0.1 * np.where(x == lower, lower + 1, x).reshape(shape)
        return (self.rng.permutation(n) * 0.1 + self.rng.uniform(0, 0.05, n) - n * 0.05).reshape(
            shape
        )

    def partner(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts with `shape`, to a larger or a smaller one."""
        kind = self.draw(st.sampled_from(["same", "ones", "fewer", "more"]))
        if kind == "ones":
            return tuple(self.draw(st.sampled_from([1, n])) for n in shape)
        if kind == "fewer":
            return shape[self.draw(st.integers(0, len(shape))) :]
        return (2, *shape) if kind == "more" else shape

    def axis(self, ndim: int, allow_none: bool = True, several: bool = True) -> Any:
        choices: list[Any] = [None] if allow_none else []
        choices += range(-ndim, ndim)
        if several and ndim:
            choices += [
                c for k in range(1, ndim + 1) for c in itertools.combinations(range(ndim), k)
            ]
        return self.draw(st.sampled_from(choices))

    def bool(self) -> bool:
        return self.draw(st.booleans())

    def one_of(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))


TABLE: dict[str, OpInfo] = {}


def add(
    name: str, reference: Callable[..., Any], samples: Callable[[Draw], Sample], **kwargs: Any
) -> None:
    call = kwargs.pop("call", None) or getattr(mg, name)
    assert name not in TABLE, name
    TABLE[name] = OpInfo(name, call, reference, samples, **kwargs)


def by_element(f: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    """A function of floats as a reference for arrays."""
    return lambda x: np.array([f(float(v)) for v in np.ravel(x)], dtype=float).reshape(np.shape(x))


by_flat_index = lambda f: (
    lambda x, **k: x.ravel()[f(np.arange(x.size).reshape(x.shape), **k)]
)  # what f does to positions
