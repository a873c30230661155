"""State of the default generator as plain data, which JSON can store."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..random import default_generator

__all__ = ["get_rng_state", "set_rng_state"]


def get_rng_state() -> dict[str, Any]:
    """Return the state of the default generator as plain data, which JSON can store."""
    state: Any = default_generator().bit_generator.state
    return {**state, "state": {key: value.tolist() for key, value in state["state"].items()}}


def set_rng_state(state: dict[str, Any]) -> None:
    """Set the state of the default generator.

    Parameters
    ----------
    state : dict
        Result of `get_rng_state`.
    """
    inner = {key: np.array(value, np.uint64) for key, value in state["state"].items()}
    default_generator().bit_generator.state = {**state, "state": inner}
