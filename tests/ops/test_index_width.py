"""Integers of every width index, also where the machine's own have 32 bits, as in a browser and on small boards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.ops import indexing

CALLS: dict[str, Callable[[Any, Any], Any]] = {  # of x (4, 3) and four integers from 0 to 2
    "getitem": lambda x, i: x[i, mg.Tensor(i)],
    "take": lambda x, i: x.take(i, 1, mode="wrap"),
    "take_along_axis": lambda x, i: mg.take_along_axis(x, i[:, None], 0),
    "gather": lambda x, i: x.gather(1, i[:, None]),
    "index_select": lambda x, i: x.index_select(1, i),
    "index_add": lambda x, i: mg.index_add(np.eye(4), index=i, values=x[:, :1]),
    "scatter": lambda x, i: mg.scatter(x[0], index=(i[:3], mg.Tensor(i[1:])), shape=(3, 3)),
    "embedding": lambda x, i: mg.embedding(x, i),
    "repeat": lambda x, i: mg.repeat(x, mg.Tensor(i), axis=0),
    "one_hot": lambda x, i: mg.one_hot(i, 3),
    "nll_loss": lambda x, i: mg.nll_loss(x, i),
    "cross_entropy": lambda x, i: mg.cross_entropy(x, i, np.ones(3), label_smoothing=0.1),
    "linear_cross_entropy": lambda x, i: mg.linear_cross_entropy(x, np.eye(3), i),
}


def refusing_wide_indices(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a NumPy function as on a machine of 32 bits, where it refuses indices of 64 bits."""

    def call(a: Any, i: Any, *args: Any, **options: Any) -> Any:
        if isinstance(i, np.ndarray) and not np.can_cast(i.dtype, np.int32):
            raise TypeError(f"Cannot cast array data from {i.dtype} to int32")
        return function(a, i, *args, **options)

    return call


@pytest.mark.parametrize("name", CALLS)
def test_indices_reach_numpy_in_the_width_of_the_machine(name: str, monkeypatch: Any) -> None:
    def outcome(dtype: Any) -> list[np.ndarray]:
        x = mg.Tensor(np.arange(12.0).reshape(4, 3), requires_grad=True)
        y = CALLS[name](x, np.array([2, 0, 2, 1], dtype))
        (g,) = mg.gradients((y * 1.5).sum(), x, allow_unused=True)
        return [y.data, 0 if g is None else g.data]

    expected = outcome(int)
    monkeypatch.setattr(indexing, "INTP", np.int32)
    for function in ("take", "repeat"):
        monkeypatch.setattr(np, function, refusing_wide_indices(getattr(np, function)))
    for dtype in (np.int8, np.uint32, np.int64, np.uint64):
        for y, e in zip(outcome(dtype), expected):
            np.testing.assert_array_equal(y, e)


@pytest.mark.parametrize(
    "width, index", [(np.int32, np.int64(2**32)), (np.int64, np.uint64(2**63))]
)
def test_index_that_does_not_fit_is_refused(monkeypatch: Any, width: Any, index: Any) -> None:
    monkeypatch.setattr(indexing, "INTP", width)
    with pytest.raises(IndexError, match="indices must fit into int"):
        mg.Tensor(np.arange(3.0), True)[np.array([index])]
