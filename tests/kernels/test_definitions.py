"""Kernels compared with their definitions, which `use_definitions` puts in their place."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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


def ops_of(y: Tensor) -> set[str]:
    """Return the names of the ops that computed `y`."""
    return {node.op.name for node in topological([y._node]) if node.op is not None}


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
            for replaced in ("gelu" if name != "gelu" else "linear", name):
                with mg.use_definitions(replaced):
                    leaves, (y,) = sample.run()
                    assert (name in ops_of(y)) == (name != replaced)
                    g = np.random.default_rng(0).standard_normal(y.shape)
                    results.append([y, *mg.gradients(y, leaves, g)])
            for value, expected in zip(*results):
                np.testing.assert_allclose(value.data, expected.data, rtol=1e-9, atol=1e-11)


def computed() -> set[str]:
    """Return the ops that a layer norm and a GELU record."""
    return ops_of(mg.gelu(mg.layer_norm(Tensor(X, requires_grad=True))))


def test_use_definitions_replaces_some_or_all_kernels_of_its_thread_within_its_block() -> None:
    with mg.use_definitions("gelu"):
        assert computed() & set(KERNELS) == {"row_norm"}
        with mg.use_definitions("row_norm"):
            assert not computed() & set(KERNELS)
        assert "row_norm" in computed()
    with mg.use_definitions(), ThreadPoolExecutor() as threads:
        assert not computed() & set(KERNELS)
        assert threads.submit(computed).result() == {"gelu", "row_norm"}
    assert computed() == {"gelu", "row_norm"}


def test_use_definitions_of_unknown_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="use_definitions: names must be of .*, got softmax"):
        mg.use_definitions("linear", "softmax").__enter__()
