"""Kernels compared with their definitions, which `use_definitions` puts in their place."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples
from support.opinfo import TABLE, cotangents, samples
from support.properties import normal, seeds
from support.thresholds import KERNELS as KERNEL_MODULES
from support.thresholds import NO_THRESHOLDS, PRODUCTS, THRESHOLDS, lowered, numbers, replaced

import minigrad as mg
from minigrad import Tensor
from minigrad.fast import cross_entropy, forward_attention, gelu_in_place
from minigrad.fuse import FUSIBLE as KERNELS
from minigrad.fuse import fuse, fusible
from minigrad.graph import topological
from minigrad.registry import OPS

X = np.arange(6.0).reshape(2, 3)


def ops_of(y: Tensor) -> set[str]:
    """Return the names of the ops that computed `y`."""
    return {node.op.name for node in topological([y._node]) if node.op is not None}


@pytest.mark.parametrize("name", list(KERNELS))
@max_examples(30)
@given(data=st.data(), thresholds=lowered())
def test_kernel_has_values_and_derivatives_of_its_definition(
    name: str, data: st.DataObject, thresholds: dict[str, Any]
) -> None:
    """Also with small thresholds, so that small arrays take all paths, in several blocks."""
    sample = data.draw(samples(TABLE[name]))
    results: list[list[Any]] = []
    gs: list[np.ndarray] = []
    for is_replaced in (False, True):
        with mg.use_definitions(name if is_replaced else "gelu" if name != "gelu" else "linear"):
            with replaced({} if is_replaced else thresholds):
                leaves, (y,) = sample.run()
                assert (name in ops_of(y)) != is_replaced
                gs = gs or data.draw(cotangents([y]))
                first = mg.gradients(y, leaves, gs[0], retain_graph=True)
                g = Tensor(gs[0], requires_grad=True)
                again = mg.gradients(y, leaves, g, create_graph=True)
                # the sum depends on the cotangent and, but for linear functions, on the operands
                total = sum(((c * np.cos(c.data + 1)).sum() for c in again), Tensor(0.0))
                second = mg.gradients(total, [g, *leaves], allow_unused=True)
        results.append([y, *first, *again, *second])
    for value, expected in zip(*results, strict=True):
        assert (value is None) == (expected is None)
        if value is not None:
            np.testing.assert_allclose(value.data, expected.data, rtol=1e-9, atol=1e-10)


@given(rows=st.integers(3, 9), classes=st.integers(1, 4), seed=seeds)
def test_linear_cross_entropy_adds_the_gradients_of_several_blocks(
    rows: int, classes: int, seed: int
) -> None:
    """Use blocks of two rows, and single columns."""
    x, weight, bias = (normal([seed, i], *shape) for i, shape in enumerate(((rows, 2), (classes, 2), (classes,))))  # fmt: skip
    target = np.arange(rows) % classes
    leaves = [Tensor(a, requires_grad=True) for a in (x, weight, bias)]
    with replaced({"_ONE_BLOCK": 2 * classes, "BLOCK": 1}):
        loss = mg.linear_cross_entropy(*leaves[:2], target, linear_bias=leaves[2], reduction="sum")
    p = np.exp(x @ weight.T + bias)
    p = p / p.sum(-1, keepdims=True) - np.eye(classes)[target]
    for found, expected in zip(mg.gradients(loss, leaves), (p @ weight, p.T @ x, p.sum(0))):
        np.testing.assert_allclose(found.data, expected, rtol=1e-9, atol=1e-12)


@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 5), st.integers(1, 40))
def test_blocks_of_logits_are_the_fewest_that_fit_and_equally_long(
    rows: int, classes: int, width: int, limit: int
) -> None:
    """A block has at most the limit of logits, or as many as the weight has elements."""
    with replaced({"_ONE_BLOCK": limit}):
        blocks = cross_entropy._blocks_of_logits(rows, np.empty((classes, width)))
    assert [i for block in blocks for i in range(rows)[block]] == [*range(rows)]
    lengths = [block.stop - block.start for block in blocks]
    count = math.ceil(rows * classes / max(limit, classes * width))
    length = math.ceil(rows / count) if rows else 0
    assert lengths[:-1] == [length] * (len(blocks) - 1) and sum(lengths[-1:]) <= length


def test_cross_entropy_kernels_compute_at_most_a_million_logits_at_once() -> None:
    """Unless the weight is larger: 4 MB of float32 fit the third-level cache."""
    weight = np.empty((4, 1))
    for rows, count in ((1 << 18, 1), ((1 << 18) + 1, 2)):
        assert len(cross_entropy._blocks_of_logits(rows, weight)) == count


@given(data=st.data(), thresholds=lowered(), form=st.sampled_from(("none", "tanh")), seed=seeds)
def test_gelu_in_place_equals_gelu(data: Any, thresholds: Any, form: str, seed: int) -> None:
    x = 4 * normal(seed, data.draw(st.integers(0, 20)), 2)
    for i, value in enumerate(data.draw(st.lists(st.sampled_from((0, 1e300, -1e300)), max_size=3))):
        x.reshape(-1)[i : i + 1] = value
    with replaced(thresholds):
        np.testing.assert_array_equal(
            gelu_in_place(x.copy(), form), mg.gelu(x, approximate=form).data
        )


@max_examples(30)
@given(data=st.data(), sequences=st.integers(1, 3))
def test_attention_in_parts_equals_its_definition(data: st.DataObject, sequences: int) -> None:
    """With the weights of 1 to 3 sequences at a time, which `forward_attention` does not keep."""
    sample = data.draw(samples(TABLE["attention"]))
    query, key, _ = sample.operands
    block = math.ceil(sequences * math.prod(query.shape[1:3]) * key.shape[2] / 2)
    with mg.use_definitions():
        leaves, (expected,) = sample.run()
        (g,) = data.draw(cotangents([expected]))
        gradients = mg.gradients(expected, leaves, g)
    with replaced({"BLOCK": block}):
        leaves, (y,) = sample.run()
        found = mg.gradients(y, leaves, g)
        if not sample.options["dropout"]:
            mask, bias, scale = (sample.options[name] for name in ("mask", "bias", "scale"))
            if mask is not None:
                mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
            scale = query.shape[3] ** -0.5 if scale is None else scale
            heads = forward_attention(*sample.operands, bias, mask, scale)
            np.testing.assert_allclose(heads, expected.data, rtol=1e-9, atol=1e-10)
    for value, other in zip((y, *found), (expected, *gradients), strict=True):
        np.testing.assert_allclose(value.data, other.data, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("n", "sequences"), [*itertools.product(range(1, 5), range(1, 4))])
def test_attention_in_parts_of_any_number_of_sequences_equals_one_part(
    n: int, sequences: int
) -> None:
    """With a bias and a mask of each sequence, or of all."""
    query, key, value = (normal(i, n, heads, 3, 2) for i, heads in enumerate((4, 2, 2)))
    for count in (1, n):
        mask = normal(3, n + 1 - count, 1, 3, 3) > -0.5
        leaves = [Tensor(x, requires_grad=True) for x in (query, key, value, normal(4, count, 4, 3, 3))]  # fmt: skip
        results = []
        for block in (32768, sequences * 4 * 3 * 3 // 2):
            with replaced({"BLOCK": block}):
                y = mg.scaled_dot_product_attention(
                    *leaves[:3],
                    mask,
                    bias=leaves[3],
                    dropout=0.2,
                    generator=np.random.default_rng(0),
                )
                gradients = mg.gradients(y, leaves, normal(5, *y.shape))
                heads = forward_attention(query, key, value, leaves[3].data, mask, 0.7)
            results.append([heads, y.data, *[g.data for g in gradients]])
        for found, expected in zip(*results):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_thresholds_list_all_numbers_of_the_kernels() -> None:
    for module in KERNEL_MODULES.values():
        assert numbers(module) <= set(THRESHOLDS) | NO_THRESHOLDS, module.__name__
    for module, small in PRODUCTS.items():
        assert numbers(module) == small.keys(), module.__name__


def computed() -> set[str]:
    """Return the ops that a layer norm and a GELU record."""
    return ops_of(mg.gelu(mg.layer_norm(Tensor(X, requires_grad=True))))


def test_use_definitions_replaces_some_or_all_kernels_of_its_thread_within_its_block() -> None:
    with mg.use_definitions("gelu"):
        assert computed() & set(KERNELS) == {"row_norm"}
        with mg.use_definitions("row_norm"):
            assert not computed() & set(KERNELS)
        assert computed() & set(KERNELS) == {"row_norm"}
    with mg.use_definitions(), ThreadPoolExecutor() as threads:
        assert not computed() & set(KERNELS)
        assert threads.submit(computed).result() == {"gelu", "row_norm"}
    assert computed() == {"gelu", "row_norm"}


def test_use_definitions_of_unknown_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="use_definitions: names must be of .*, got softmax"):
        mg.use_definitions("linear", "softmax").__enter__()


def test_kernel_of_contributing_has_the_derivatives_of_its_definition() -> None:
    page = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = page.partition("## Add a kernel")[2].partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {"fuse": fuse, "fusible": fusible, "mg": mg, "np": np}
    with mock.patch.dict(KERNELS), mock.patch.dict(OPS):
        exec(code, names)
    mg.gradcheck(names["swish"], [X])
    mg.gradcheck(lambda x: mg.grad(lambda x: names["swish"](x).sum())(x), [X])
