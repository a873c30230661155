"""Kernels compared with their definitions, which `use_definitions` puts in their place."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from opinfo import TABLE, naming

import minigrad as mg
from minigrad import Tensor
from minigrad.core.graph import topological
from minigrad.kernels.blocks import row_blocks
from minigrad.kernels.definitions import KERNELS

X = np.arange(6.0).reshape(2, 3)


def ops_of(*ys: Tensor) -> set[str]:
    """Return the names of the ops that computed `ys`."""
    nodes = topological([y._node for y in ys if y._node is not None])
    return {node.op.name for node in nodes if node.op is not None}


@pytest.mark.parametrize("name", list(KERNELS))
@pytest.mark.parametrize("block", [None, 3])
def test_kernel_has_values_and_gradients_of_its_definition(
    name: str, block: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in blocks of a few elements, which has an effect in the kernels that work in blocks."""
    if block:
        for module in ("attention", "cross_entropy", "dropout", "gelu"):
            monkeypatch.setattr(f"minigrad.kernels.{module}.BLOCK", block)
        monkeypatch.setattr(row_blocks, "__defaults__", (block,))
    for sample in TABLE[name].each_sample():
        with naming(sample):
            results: list[list[Any]] = []
            for names in (["gelu"] if name != "gelu" else ["linear"], [name]):
                with mg.use_definitions(*names):
                    leaves, (y,) = sample.run()
                    assert (name in ops_of(y)) == (name not in names)
                    g = np.random.default_rng(0).standard_normal(y.shape)
                    results.append([y, *mg.gradients(y, leaves, g)])
            for value, expected in zip(*results):
                np.testing.assert_allclose(value.data, expected.data, rtol=1e-9, atol=1e-11)


def computed() -> set[str]:
    return ops_of(mg.gelu(mg.layer_norm(Tensor(X, requires_grad=True))))


def test_use_definitions_replaces_some_or_all_kernels_within_its_block() -> None:
    assert computed() == {"gelu", "row_norm"}
    with mg.use_definitions("gelu"):
        assert "gelu" not in computed() and "row_norm" in computed()
        with mg.use_definitions("row_norm"):
            assert not computed() & {"gelu", "row_norm"}
        assert "row_norm" in computed()
    with mg.use_definitions():
        assert not computed() & set(KERNELS)
    assert computed() == {"gelu", "row_norm"}


def test_use_definitions_leaves_other_threads_their_kernels() -> None:
    names: list[set[str]] = []
    with mg.use_definitions():
        thread = threading.Thread(target=lambda: names.append(computed()))
        thread.start()
        thread.join()
    assert names == [{"gelu", "row_norm"}]


def test_use_definitions_of_unknown_kernel_is_refused() -> None:
    message = "use_definitions: names must be of .*linear.*, got softmax"
    with pytest.raises(ValueError, match=message), mg.use_definitions("linear", "softmax"):
        pass
