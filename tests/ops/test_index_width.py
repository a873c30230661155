"""Integers of every width index, also where the machine's own have 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.core.graph import topological
from minigrad.ops import indexing

CALLS = [
    lambda x, i: mg.embedding(x, i), lambda x, i: x[i], lambda x, i: x[1:, i % 3], lambda x, i: mg.take(x, i, 0),
    lambda x, i: mg.take(x, i), lambda x, i: mg.take_along_axis(x, i[:, None], 0), lambda x, i: mg.index_add(x, i, 1.0),
    lambda x, i: mg.cross_entropy(x, i % 3, reduction="none"),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("call", CALLS)
def test_indices_reach_numpy_in_the_width_of_the_machine(call: Any, dtype: Any, monkeypatch: Any) -> None:
    x, i = (
        mg.Tensor(np.random.default_rng(0).standard_normal((4, 3)), requires_grad=True),
        np.array([2, 0, 2, 1], dtype),
    )
    expected = call(x, i.astype(np.intp))
    monkeypatch.setattr(indexing, "INTP", np.int32)  # as in a browser
    y = call(x, i)
    np.testing.assert_array_equal(y.data, expected.data)
    saved = [v for node in topological([y._node]) for _, _, args in node.edges for v in _arrays(args)]
    assert all(v.dtype == np.int32 for v in saved if v.dtype.kind in "iu")
    y.sum().backward()


def _arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    return [a for part in value for a in _arrays(part)] if isinstance(value, tuple) else []


def test_indices_that_do_not_fit_are_refused(monkeypatch: Any) -> None:
    for width, far in ((np.int32, np.int64(2**32)), (np.int32, np.uint32(2**32 - 1)), (np.int64, np.uint64(2**64 - 1))):
        monkeypatch.setattr(indexing, "INTP", width)
        with pytest.raises(IndexError, match="expected indices that fit into int"):
            mg.Tensor(np.arange(3.0), True)[np.array([far])]
