"""Axes out of range, in every function that takes axes: an AxisError, and never an axis counted modulo ndim."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from cases import each

import minigrad as mg
from minigrad.core.registry import FUNCTIONS, OPS

X = np.arange(9.0).reshape(3, 3)
NEEDED: dict[str, Any] = {
    **dict.fromkeys(("x", "a", "y", "f", "p", "values"), X), "b": X + 1, "indices": np.zeros((3, 3), int), "index": [0],
    "condition": [True, False, True], "arrays": [X, X], "tensors": [X, X], "indices_or_sections": 3, "kth": 1, "k": 1,
    "q": 0.5, "shift": 1, "repeats": 2, "obj": 0, "window_shape": 2, "size": 2, "chunks": 2, "axis1": 0, "axis2": 1,
    "source": 0, "destination": 1,
}  # fmt: skip
"""What the arguments without defaults are."""


AXES = ("axis", "axis1", "axis2", "source", "destination")


def _functions() -> dict[str, Any]:
    return {name: op.function for name, op in OPS.items()} | FUNCTIONS


CALLS = [
    (n, p)
    for n, f in sorted(_functions().items())
    for p in inspect.signature(f).parameters
    if p in AXES
]


@pytest.mark.parametrize("tracked", [False, True])
def test_axis_out_of_range(tracked: bool) -> None:
    each(CALLS, lambda call: out_of_range(*call, tracked))


def out_of_range(name: str, parameter: str, tracked: bool) -> None:
    function, x = (
        _functions()[name],
        mg.Tensor(X[:1] if name == "squeeze" else X, requires_grad=tracked),
    )
    parameters = inspect.signature(function).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.kind < p.VAR_POSITIONAL]

    def call(axis: int) -> Any:
        own = {
            **NEEDED,
            **({"index": np.zeros((3, 3), int)} if name == "gather" else {}),
            parameter: axis,
        }
        args = [x if own[n] is X else own[n] for n in required]
        return function(*args, **({} if parameter in required else {parameter: axis}))

    call(0 if parameter != "axis2" else 1)
    ndim = 3 if name in ("expand_dims", "stack") else 2
    for axis in (ndim, -ndim - 1):
        with pytest.raises(
            np.exceptions.AxisError, match=f"axis {axis} is out of bounds.* dimension {ndim}"
        ):
            call(axis)
