"""Where random numbers come from: one generator, or any that a caller passes. NumPy's are loaded on
first use.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

__all__ = ["default_generator", "get_rng_state", "manual_seed", "set_rng_state"]


@cache
def _default() -> np.random.Generator:
    return np.random.Generator(np.random.SFC64())  # the fastest of NumPy's bit generators


def manual_seed(seed: int) -> np.random.Generator:
    """Start the default generator anew from `seed`, and return it."""
    _default().bit_generator.state = np.random.SFC64(seed).state
    return _default()


def default_generator(generator: np.random.Generator | None = None) -> np.random.Generator:
    """`generator` if one is given, else the default one."""
    if generator is None:
        return _default()
    if not isinstance(generator, np.random.Generator):
        raise TypeError(
            f"generator: expected a numpy.random.Generator, got a {type(generator).__name__}"
        )
    return generator


def random_words(n: int, generator: np.random.Generator | None = None) -> np.ndarray:
    """`n` random numbers of 64 bits, uint64."""
    generator = default_generator(generator)
    if isinstance(
        generator.bit_generator, np.random.SFC64
    ):  # the same, before `integers` looks at its bounds
        return generator.bit_generator.random_raw(n)
    return generator.integers(0, 2**64 - 1, n, np.uint64, endpoint=True)


def get_rng_state() -> dict[str, Any]:
    """The state of the default generator, as plain data (JSON will do) for `set_rng_state`."""
    state: Any = _default().bit_generator.state
    return {**state, "state": {key: value.tolist() for key, value in state["state"].items()}}


def set_rng_state(state: dict[str, Any]) -> None:
    """Set the default generator to a state from `get_rng_state`."""
    inner = {key: np.array(value, np.uint64) for key, value in state["state"].items()}
    _default().bit_generator.state = {**state, "state": inner}
