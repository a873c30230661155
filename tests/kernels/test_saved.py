"""What an op saves for its gradient: nothing that its rule does not read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opinfo import TABLE, Draw, OpInfo

from minigrad import Tensor
from minigrad.core.graph import Node, topological

FOR_THE_DEFINITION = {
    ("attention", "mask"),  # booleans of the caller
    ("attention", "bias"),  # its part of the scores is in the weights
    ("gelu", "x"),  # the slope is ready
    *(
        ("linear_cross_entropy", name) for name in ("x", "weight", "bias")
    ),  # its gradients are ready, no others can be
}
"""What only the definition reads, under `create_graph`."""


def spoiled(value: Any, way: int) -> Any:
    """The same arrays with other contents: NaN, zeros, or other signs and sizes."""
    if isinstance(value, tuple):
        return tuple(spoiled(v, way) for v in value)
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == bool:
        return ~value
    return [
        np.full_like(value, np.nan if value.dtype.kind in "fc" else 0),
        np.zeros_like(value),
        -value - 1,
    ][way]


def holds_array(value: Any) -> bool:
    return (
        any(map(holds_array, value)) if isinstance(value, tuple) else isinstance(value, np.ndarray)
    )


def answer(node: Node, rule: Any, g: np.ndarray, args: list[Any]) -> Any:
    buffers = [[None] * len(node.inputs)] if node.op.fills_buffers else []
    try:
        with np.errstate(all="ignore"):
            return rule(g, *args, *buffers)
    except Exception as error:  # an array that the rule trips over is one that it reads
        return error


def same(a: Any, b: Any) -> bool:
    if isinstance(a, (tuple, list)):
        return isinstance(b, (tuple, list)) and all(map(same, a, b))
    if a is None or b is None or isinstance(a, Exception) or isinstance(b, Exception):
        return type(a) is type(b)
    return np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))
def test_every_array_that_is_kept_for_a_rule_is_read_by_it(info: OpInfo) -> None:
    read: dict[tuple[str, str], bool] = {}

    @settings(derandomize=True, database=None)
    @given(data=st.data())
    def look(data: Any) -> None:
        sample = info.samples(Draw(data.draw))
        operands = [
            Tensor(x, True) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
            for x in sample.operands
        ]
        results = info.call(*operands, **sample.options)
        results = results if isinstance(results, (list, tuple)) else [results]
        roots = [y._node for y in results if isinstance(y, Tensor) and y._node is not None]
        for node in topological(roots):
            g = np.random.default_rng(0).standard_normal(node.shape)
            for _, rule, args in node.edges or ():
                expected = answer(node, rule, g, list(args))
                for i, name in enumerate(node.op.reads[rule]):
                    if holds_array(args[i]) and g.size:
                        key = (node.op.name, name)
                        for way in range(3) if not read.setdefault(key, False) else ():
                            others = [
                                spoiled(value, way) if i == j else value
                                for j, value in enumerate(args)
                            ]
                            read[key] = read[key] or not same(
                                answer(node, rule, g, others), expected
                            )

    look()
    unread = {key for key, was in read.items() if not was} - FOR_THE_DEFINITION
    assert not unread, f"kept, and never read: {unread}"
