"""Arrays that an op saves for its gradient: its rule reads all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from opinfo import TABLE, OpInfo

from minigrad.core.graph import Node, topological

FOR_THE_DEFINITION = {
    ("attention", "mask"),  # the caller's booleans
    ("attention", "bias"),  # the saved weights include it
    ("gelu", "x"),  # the slope is saved
    ("linear_cross_entropy", "x"),  # its gradients are saved
    ("linear_cross_entropy", "weight"),
    ("linear_cross_entropy", "bias"),
}
"""Values that only the definition reads, under `create_graph`."""


def spoiled(value: Any, way: int) -> Any:
    """Return arrays with other values: NaN, zeros, or other signs and sizes."""
    if isinstance(value, tuple):
        return tuple(spoiled(v, way) for v in value)
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == bool:
        return ~value
    return [np.full_like(value, np.nan if value.dtype.kind == "f" else 0), 0 * value, -value - 1][
        way
    ]


def holds_array(value: Any) -> bool:
    parts = value if isinstance(value, tuple) else [value]
    return any(isinstance(part, np.ndarray) for part in parts)


def outcome(rule: Any, g: np.ndarray, args: list[Any]) -> Any:
    """Return the gradients, or the type of the error, of a rule that reads `args`."""
    try:
        with np.errstate(all="ignore"):
            gradients = rule(g, *args)
    except Exception as error:
        return type(error)
    return gradients if isinstance(gradients, (tuple, list)) else [gradients]


def is_same(a: Any, b: Any) -> bool:
    if isinstance(a, type) or isinstance(b, type):
        return a is b
    return all(x is y or np.array_equal(x, y, equal_nan=True) for x, y in zip(a, b, strict=True))


def reads(node: Node, rule: Any, args: list[Any], i: int) -> bool:
    """Return whether the result of the rule depends on its argument number `i`."""
    g = np.random.default_rng(0).standard_normal(node.shape)
    expected = outcome(rule, g, args)
    others = [[*args[:i], spoiled(args[i], way), *args[i + 1 :]] for way in range(3)]
    return not all(is_same(outcome(rule, g, other), expected) for other in others)


@pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))
def test_rule_reads_every_array_that_is_saved_for_it(info: OpInfo) -> None:
    is_read: dict[tuple[str, str], bool] = {}
    for sample in info.each_sample(count=20):
        for node in topological([y._node for y in sample.run()[1]]):
            for _, rule, args in node.edges or ():
                for i, name in enumerate(node.op.reads[rule]):
                    key = node.op.name, name
                    if holds_array(args[i]) and np.prod(node.shape) and not is_read.get(key):
                        is_read[key] = reads(node, rule, list(args), i)
    unread = {key for key, was_read in is_read.items() if not was_read} - FOR_THE_DEFINITION
    assert not unread, f"saved and never read: {unread}"
