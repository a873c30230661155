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
    """Return arrays with other values: NaN or zeros, or other signs and sizes."""
    if isinstance(value, tuple):
        return tuple(spoiled(v, way) for v in value)
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == bool:
        return ~value
    return -value - 1 if way else np.full_like(value, np.nan if value.dtype.kind == "f" else 0)


def outcome(rule: Any, node: Node, args: list[Any]) -> Any:
    """Return the bytes of the gradients, or the type of the error, of a rule that reads `args`."""
    g = np.random.default_rng(0).standard_normal(node.shape)
    try:
        with np.errstate(all="ignore"):
            answer = rule(g, *args)
    except Exception as error:
        return type(error)
    parts = answer if isinstance(answer, (tuple, list)) else [answer]
    return [None if c is None else c.tobytes() for c in parts]


@pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))
def test_rule_reads_every_array_that_is_saved_for_it(info: OpInfo) -> None:
    saved, read = set(), set()
    for sample in info.each_sample(count=20):
        for node in topological([y._node for y in sample.run()[1]]):
            for _, rule, args in node.edges or ():
                for i, name in enumerate(node.op.reads[rule]):
                    parts = args[i] if isinstance(args[i], tuple) else [args[i]]
                    key = node.op.name, name
                    if key in read or not any(isinstance(part, np.ndarray) for part in parts):
                        continue
                    saved.add(key)
                    for way in (0, 1):
                        others = [*args[:i], spoiled(args[i], way), *args[i + 1 :]]
                        if outcome(rule, node, others) != outcome(rule, node, args):
                            read.add(key)
    assert saved <= read | FOR_THE_DEFINITION, f"never read: {saved - read - FOR_THE_DEFINITION}"
