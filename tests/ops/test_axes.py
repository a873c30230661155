"""Axes out of range in every function that takes axes: an AxisError, never an axis modulo ndim."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.core.registry import FUNCTIONS, OPS

X = np.arange(9.0).reshape(3, 3)
ARGUMENTS: dict[str, Any] = {
    **dict.fromkeys(("x", "a", "y", "f", "p", "values"), X), "b": X + 1, "indices": np.zeros((3, 3), int), "index": [0],
    "condition": [True, False, True], "arrays": [X, X], "tensors": [X, X], "indices_or_sections": 3, "kth": 1, "k": 1,
    "q": 0.5, "shift": 1, "repeats": 2, "obj": 0, "window_shape": 2, "size": 2, "chunks": 2, "axis1": 0, "axis2": 1,
    "source": 0, "destination": 1,
}  # fmt: skip
"""Values of the arguments that have no default."""

CALLS = FUNCTIONS | {name: op.function for name, op in OPS.items() if name not in FUNCTIONS}
CASES = [
    (name, axis)
    for name, f in sorted(CALLS.items())
    for axis in ("axis", "axis1", "axis2", "source", "destination")
    if axis in inspect.signature(f).parameters
]


@pytest.mark.parametrize("name, parameter", CASES)
@pytest.mark.parametrize("tracked", [False, True])
def test_axis_out_of_range_is_refused(name: str, parameter: str, tracked: bool) -> None:
    x = mg.Tensor(X[:1] if name == "squeeze" else X, requires_grad=tracked)
    parameters = inspect.signature(CALLS[name]).parameters.values()
    required = {
        p.name: x if ARGUMENTS[p.name] is X else ARGUMENTS[p.name]
        for p in parameters
        if p.default is p.empty and p.kind < p.VAR_POSITIONAL and p.name != parameter
    }
    if name == "gather":
        required["index"] = ARGUMENTS["indices"]
    names = [p.name for p in parameters if p.name in required or p.name == parameter]

    def call(axis: int) -> Any:
        """Give arguments without default by position, the axis by name if it has a default."""
        values = {**required, parameter: axis}
        count = len(required) + all(p.default is p.empty for p in parameters if p.name == parameter)
        by_name = {parameter: axis} if count == len(required) else {}
        return CALLS[name](*[values[n] for n in names if n not in by_name], **by_name)

    call(1 if parameter == "axis2" else 0)
    ndim = 3 if name in ("expand_dims", "stack") else 2
    for axis in (ndim, -ndim - 1):
        with pytest.raises(
            np.exceptions.AxisError, match=f"axis {axis} is out of bounds.* dimension {ndim}"
        ):
            call(axis)
