"""Where random numbers come from: one seedable generator, or any that a caller passes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

__all__ = ["default_generator", "get_rng_state", "manual_seed", "set_rng_state"]

if TYPE_CHECKING:  # numpy.random is loaded on first use: it takes as long as all of minigrad
    Generator = np.random.Generator


@cache
def _default() -> Generator:
    return np.random.Generator(np.random.SFC64())  # the fastest of NumPy's bit generators


def manual_seed(seed: int) -> Generator:
    """Start the default generator anew from `seed`, and return it."""
    _default().bit_generator.state = np.random.SFC64(seed).state
    return _default()


def default_generator(generator: Generator | None = None) -> Generator:
    """`generator` if one is given, else the default one."""
    if generator is None:
        return _default()
    if not isinstance(generator, np.random.Generator):
        raise TypeError(f"generator: expected a numpy.random.Generator, got a {type(generator).__name__}")
    return generator


def get_rng_state() -> dict[str, Any]:
    """The state of the default generator, as plain data (JSON will do) for `set_rng_state`."""
    state: Any = _default().bit_generator.state
    return {**state, "state": {key: value.tolist() for key, value in state["state"].items()}}


def set_rng_state(state: dict[str, Any]) -> None:
    """Set the default generator to a state from `get_rng_state`."""
    inner = {key: np.array(value, np.uint64) for key, value in state["state"].items()}
    _default().bit_generator.state = {**state, "state": inner}
