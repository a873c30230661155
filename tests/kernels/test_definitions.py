"""Kernels against the definitions that `use_definitions` puts in their place."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opinfo import TABLE, Draw

import minigrad as mg
from minigrad import Tensor
from minigrad.core.graph import topological
from minigrad.kernels.definitions import KERNELS

X = np.arange(6.0).reshape(2, 3)


def names_of(y: Tensor) -> set[str]:
    """The ops that a result was made by."""
    assert y._node is not None
    return {node.op.name for node in topological([y._node]) if node.op is not None}


@pytest.mark.parametrize("name", list(KERNELS))
@given(data=st.data())
def test_a_kernel_is_its_definition(name: str, data: Any) -> None:
    """The same values and gradients, by other ops."""
    info = TABLE[name]
    sample = info.samples(Draw(data.draw))

    def results() -> tuple[Tensor, list[Any]]:
        operands = [
            Tensor(x, True) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
            for x in sample.operands
        ]
        y = info.call(*operands, **sample.options)
        g = np.random.default_rng(0).standard_normal(y.shape)
        leaves = [x for x in operands if isinstance(x, Tensor)]
        return y, [y.data, *(c.data for c in mg.gradients(y, leaves, g, retain_graph=True))]

    fused, expected = results()
    with mg.use_definitions(name):
        composed, found = results()
    assert name in names_of(fused) and name not in names_of(composed)
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_all_or_some_within_the_block_only() -> None:
    def called() -> set[str]:
        return names_of(mg.gelu(mg.layer_norm(Tensor(X, requires_grad=True))))

    assert called() == {"gelu", "row_norm"}
    with mg.use_definitions("gelu"):
        assert "gelu" not in called() and "row_norm" in called()
        with mg.use_definitions("row_norm"):
            assert not called() & {"gelu", "row_norm"}
        assert "row_norm" in called()
    with mg.use_definitions():
        assert not called() & set(KERNELS)
    assert called() == {"gelu", "row_norm"}


def test_other_threads_keep_their_kernels() -> None:
    seen: list[set[str]] = []
    with mg.use_definitions():
        thread = threading.Thread(
            target=lambda: seen.append(names_of(mg.gelu(Tensor(X, requires_grad=True))))
        )
        thread.start()
        thread.join()
    assert seen == [{"gelu"}]


def test_names_that_are_no_kernels() -> None:
    with pytest.raises(
        ValueError, match="use_definitions: no kernel is named softmax; there are .*linear"
    ):
        with mg.use_definitions("linear", "softmax"):
            pass
