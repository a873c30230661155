"""Integers of every width index, also where the machine's own have 32 bits, as in a browser and on small boards."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad.core.graph import topological
from minigrad.core.registry import FUNCTIONS
from minigrad.ops import indexing

numpy_take, numpy_repeat = np.take, np.repeat
CALLS: list[tuple[str, Callable[[Any, Any], Any]]] = [  # of x (4, 3) and four integers from 0 to 2
    ("getitem", lambda x, i: x[i]), ("getitem", lambda x, i: x[1:, i]), ("getitem", lambda x, i: x[i, i]),
    ("getitem", lambda x, i: x[mg.Tensor(i), None]), ("getitem", lambda x, i: x[i[:1].reshape(())]),
    ("take", lambda x, i: mg.take(x, i, 0)), ("take", lambda x, i: numpy_take(x, i)),
    ("take", lambda x, i: x.take(i, 1, mode="wrap")), ("take", lambda x, i: mg.take(x, i, 0, mode="clip")),
    ("take_along_axis", lambda x, i: mg.take_along_axis(x, i[:, None], 0)),
    ("take_along_axis", lambda x, i: np.take_along_axis(x, i, None)),
    ("gather", lambda x, i: x.gather(1, i[:, None])), ("index_select", lambda x, i: x.index_select(1, i)),
    ("index_add", lambda x, i: mg.index_add(x, index=i, values=1.0)), ("index_add", lambda x, i: mg.index_add(np.eye(4), index=i, values=x[:, :1])),
    ("scatter", lambda x, i: mg.scatter(x, index=i, shape=(3, 3))),
    ("scatter", lambda x, i: mg.scatter(x[0], index=(i[:3], mg.Tensor(i[1:])), shape=(3, 3))),
    ("embedding", lambda x, i: mg.embedding(x, i)), ("embedding", lambda x, i: mg.embedding(x.T, i, 1)),
    ("embedding", lambda x, i: mg.embedding(np.tile(x, (100, 1)), i)),
    ("repeat", lambda x, i: mg.repeat(x, i, 0)), ("repeat", lambda x, i: numpy_repeat(x, mg.Tensor(i), axis=0)),
    ("one_hot", lambda x, i: mg.one_hot(i, 3)), ("nll_loss", lambda x, i: mg.nll_loss(x, i)),
    ("cross_entropy", lambda x, i: mg.cross_entropy(x, i, np.ones(3), label_smoothing=0.1)),
    ("linear_cross_entropy", lambda x, i: mg.linear_cross_entropy(x, np.eye(3), i)),
]  # fmt: skip
WORDS = {"index", "indices", "target", "obj", "repeats"}


def test_every_function_that_takes_indices_is_called() -> None:
    named = {name for name, f in FUNCTIONS.items() if WORDS & {*inspect.signature(f).parameters}}
    named -= {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div"}  # no indices
    named -= {"binary_cross_entropy", "binary_cross_entropy_with_logits"}
    assert {name for name, _ in CALLS} == named | {"one_hot"}


def _careful(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy that converts to its own integers only what surely fits, on a machine where those have 32 bits."""

    def call(a: Any, i: Any, *args: Any, **options: Any) -> Any:
        if (
            isinstance(i, np.ndarray)
            and i.dtype.kind in "iu"
            and not np.can_cast(i.dtype, np.int32)
        ):
            raise TypeError(
                f"Cannot cast array data from {i.dtype} to int32 according to the rule 'safe'"
            )
        return function(a, i, *args, **options)

    return call


@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
def test_indices_reach_numpy_in_the_width_of_the_machine(call: Any, monkeypatch: Any) -> None:
    x = mg.Tensor(np.random.default_rng(0).standard_normal((4, 3)), requires_grad=True)
    i = np.array([2, 0, 2, 1])
    expected = call(x, i)
    slope = None if expected._node is None else mg.gradients(expected.sum(), x)[0]
    monkeypatch.setattr(indexing, "INTP", np.int32)
    for name in ("take", "repeat"):
        monkeypatch.setattr(np, name, _careful(getattr(np, name)))
    for dtype in (np.int8, np.uint8, np.uint32, np.int32, np.int64, np.uint64):
        y = call(x, i.astype(dtype))
        np.testing.assert_array_equal(y.data, expected.data)
        if slope is not None:
            saved = [
                v
                for node in topological([y._node])
                for _, _, args in node.edges
                for v in _arrays(args)
            ]
            assert all(v.dtype == np.int32 for v in saved if v.dtype.kind in "iu")
            np.testing.assert_array_equal(mg.gradients(y.sum(), x)[0].data, slope.data)


def _arrays(value: Any) -> list[np.ndarray]:
    """The arrays among what a rule reads."""
    if isinstance(value, np.ndarray):
        return [value]
    parts = (
        value
        if isinstance(value, tuple)
        else vars(value).values()
        if hasattr(value, "on_target")
        else ()
    )
    return [a for part in parts for a in _arrays(part)]


def test_indices_that_do_not_fit_are_refused(monkeypatch: Any) -> None:
    for width, far in (
        (np.int32, np.int64(2**32)),
        (np.int32, np.uint32(2**32 - 1)),
        (np.int64, np.uint64(2**64 - 1)),
    ):
        monkeypatch.setattr(indexing, "INTP", width)
        with pytest.raises(IndexError, match="expected indices that fit into int"):
            mg.Tensor(np.arange(3.0), True)[np.array([far])]
