"""Weights in 8 bits: products with widened weights, rounding, and copies of models."""

from __future__ import annotations

import copy
import pickle
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import normal, seeds
from support.thresholds import product_limits, replaced_products

import nn
from minigrad.fast import runtime
from nn.inference import int8, products
from nn.inference.int8 import Int8Matrix, Int8Stack

IDS = np.array([[3, 4, 5, 6], [7, 8, 9, 1]])


def language_model(dtype: str = "float32", **options: Any) -> nn.LanguageModel:
    options = {"positions": "rotary", "gated": True, "norm": "rms", "tie": True, **options}
    config = nn.DecoderOnlyConfig(13, 16, 4, 2, 24, dtype=dtype, **options)
    return nn.LanguageModel(config, np.random.default_rng(0)).eval()


def with_rounded_weights(model: Any) -> Any:
    """Return a copy of a model whose matrices are those of 8 bits, as floats."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data[...] = Int8Matrix.rounded(module.weight.data).data
    return model


@given(
    limits=product_limits(),
    height=st.integers(0, 20),
    width=st.integers(1, 4),
    parts=st.integers(1, 3),
    n=st.integers(0, 9),
    dtype=st.sampled_from(("float32", "float64")),
    seed=seeds,
)
def test_product_equals_product_with_widened_matrix(
    limits: Any, height: int, width: int, parts: int, n: int, dtype: str, seed: int
) -> None:
    """With one scale or several for each row, small blocks, and 1 to 3 threads."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-127, 128, (height, width * parts)).astype(np.int8)
    scales = rng.random((height, parts)).astype(dtype)
    matrix = Int8Matrix(values, scales)
    wide = values * np.repeat(scales, width, 1).astype(float)
    np.testing.assert_allclose(matrix.data, wide, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(matrix[1:4]), wide[1:4], rtol=1e-6)
    indices = rng.integers(0, height, (2, 3)) if height else np.zeros((2, 0), int)
    np.testing.assert_allclose(matrix.take(indices), wide[indices], rtol=1e-6)
    rows = normal(seed, n, width * parts).astype(dtype)
    with replaced_products(limits):
        y = matrix.product(rows)
    assert y.dtype == matrix.dtype == dtype and y.flags.c_contiguous
    np.testing.assert_allclose(y, rows @ wide.T, rtol=1e-5, atol=1e-3)


@given(
    limits=product_limits(),
    shape=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    order=st.sampled_from("CF"),
    dtype=st.sampled_from(("float32", "float64")),
    exponent=st.integers(-30, 30),
    seed=seeds,
)
def test_rounded_is_within_half_a_scale(
    limits: Any, shape: tuple[int, int], order: Any, dtype: str, exponent: int, seed: int
) -> None:
    """Also rows of zeros, and in small blocks."""
    weight = np.asarray(normal(seed, *shape) * 10.0**exponent, dtype, order)
    weight[::3] = 0
    with replaced_products(limits):
        matrix = Int8Matrix.rounded(weight)
    assert matrix.values.min(initial=0) >= -127
    largest = np.abs(weight).max(-1, keepdims=True, initial=0)
    np.testing.assert_allclose(matrix.scales, largest / 127, rtol=1e-6)
    assert (np.abs(matrix.data - weight) <= matrix.scales * 0.5001).all()


@given(
    limits=product_limits(),
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    n=st.integers(0, 3),
    seed=seeds,
)
def test_stack_equals_matrices_one_below_the_other(
    limits: Any, sizes: list[int], n: int, seed: int
) -> None:
    """With one scale for each row or several, in small blocks, and by 1 to 3 threads."""
    rng = np.random.default_rng(seed)
    matrices = [
        Int8Matrix(
            rng.integers(-127, 128, (height, 6)).astype(np.int8), rng.random((height, parts))
        )
        for height, parts in zip(sizes, (1, 3, 3))
    ]
    rows, wide = normal(seed, n, 6), np.concatenate([m.data for m in matrices])
    stack = Int8Stack(matrices)
    assert stack.shape == wide.shape
    with replaced_products(limits):
        np.testing.assert_allclose(stack.product(rows), rows @ wide.T, atol=1e-9)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rounded_refuses_values_that_are_not_finite(value: float) -> None:
    model = language_model()
    model.output.weight.data[2, 1] = value
    with pytest.raises(ValueError, match="model must have finite weights to be stored in 8 bits"):
        nn.for_inference(model, "int8")


def test_for_inference_refuses_other_weights() -> None:
    message = "weights must be 'float' or 'int8', got 'int4'"
    with pytest.raises(ValueError, match=message):
        nn.for_inference(language_model(), "int4")
    with pytest.raises(ValueError, match=message):
        nn.load("directory", weights="int4")


@pytest.mark.parametrize("tie", [True, False])
def test_int8_language_model_equals_the_model_with_rounded_weights(tie: bool) -> None:
    model = language_model("float64", tie=tie)
    quick, expected = nn.for_inference(model, "int8"), with_rounded_weights(model)
    np.testing.assert_allclose(quick(IDS).data, expected(IDS).data, rtol=1e-9)
    assert np.abs(quick(IDS).data - model(IDS).data).max() > 1e-4
    np.testing.assert_allclose(quick.loss(IDS).data, expected.loss(IDS).data, rtol=1e-9)
    for options in ({}, {"num_beams": 3}):
        texts = nn.generate(quick, IDS, max_len=5, **options)
        assert texts == nn.generate(expected, IDS, max_len=5, **options)


@pytest.mark.parametrize("source", [[[4, 5, 6, 7]], [[4, 5, 6, 8], [7, 8, 4, 4]]])
def test_int8_transformer_equals_the_model_with_rounded_weights(source: Any) -> None:
    """A single short source absorbs projections."""
    sizes = {"d_model": 32, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2}
    config = nn.EncoderDecoderConfig(9, 9, **sizes, d_ff=16, max_len=12, dtype="float64", tie="all")
    model = nn.Transformer(config, np.random.default_rng(3)).eval()
    quick, expected = nn.for_inference(model, "int8"), with_rounded_weights(model)
    found = nn.beam_search(quick, source, n_best=2, max_len=6)
    for a, b in zip(found, nn.beam_search(expected, source, n_best=2, max_len=6)):
        assert [h.tokens for h in a] == [h.tokens for h in b]
        np.testing.assert_allclose([h.score for h in a], [h.score for h in b], rtol=1e-9)


def test_int8_keeps_norms_biases_and_subclasses_in_float() -> None:
    class Other(nn.Linear):
        pass

    model = language_model()
    model.layers.layers[0].feed_forward.gate.__class__ = Other
    quick = nn.for_inference(model, "int8")
    layer = quick.layers.layers[0]
    assert isinstance(layer.feed_forward.linear1.weight, Int8Matrix)
    for weight in (layer.norm1.weight, layer.feed_forward.gate.weight, layer.norm2.weight):
        assert isinstance(weight, nn.Parameter) and weight.dtype == np.float32
    assert quick.output.weight is quick.embedding.tokens.weight


def test_int8_keeps_a_weight_that_another_module_reads_in_float() -> None:
    class Transposed(nn.Module):
        def __init__(self, linear: nn.Linear) -> None:
            self.table = linear.weight

        def forward(self, x: Any) -> Any:
            return x @ self.table

    linear = nn.Linear(3, 3)
    model, x = nn.Sequential(linear, Transposed(linear)), normal(0, 2, 3).astype(np.float32)
    np.testing.assert_allclose(nn.for_inference(model, "int8")(x).data, model(x).data, rtol=1e-5)


def test_int8_holds_fused_weights_once() -> None:
    layer = nn.for_inference(language_model(), "int8").layers.layers[0]
    for fused in (layer.self_attention.fused, layer.feed_forward.fused):
        assert all(a.weight is b for a, b in zip(fused.layers, fused.weight.matrices, strict=True))


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, nn.for_inference, lambda quick: pickle.loads(pickle.dumps(quick))],
    ids=["deepcopy", "for_inference", "pickle"],
)
def test_int8_copied_computes_the_same(copied: Callable[[Any], Any]) -> None:
    quick = nn.for_inference(language_model(), "int8")
    expected, again = quick(IDS).data, copied(quick)
    np.testing.assert_array_equal(again(IDS).data, expected)
    np.testing.assert_array_equal(quick(IDS).data, expected)
    assert isinstance(again.output.weight, Int8Matrix)
    assert again.output.weight is again.embedding.tokens.weight


def test_int8_of_a_copy_for_inference_equals_int8_of_its_model() -> None:
    model = language_model()
    again = nn.for_inference(nn.for_inference(model), "int8")
    np.testing.assert_array_equal(again(IDS).data, nn.for_inference(model, "int8")(IDS).data)


@pytest.mark.parametrize(
    "method", ["state_dict", "parameters", "named_parameters", "num_parameters", "train"]
)
def test_int8_refuses_what_needs_parameters(method: str) -> None:
    quick = nn.for_inference(language_model(), "int8")
    with pytest.raises(RuntimeError, match="use the model it|change the model it"):
        getattr(quick, method)()


def test_int8_embedding_refuses_ids_outside_the_vocabulary() -> None:
    quick = nn.for_inference(language_model(), "int8")
    for ids in ([[13]], [[-1]]):
        with pytest.raises(IndexError, match="indices must be from 0 to 12, got"):
            quick(np.array(ids))


def published(directory: Path, norm: str, *sizes: int) -> int:
    """Save a Llama or a GPT-2, whose matrices are stored transposed; return its parameters."""
    rms = norm == "rms"
    config = nn.DecoderOnlyConfig(
        *sizes, max_len=12, norm_first=True, norm=norm, gated=rms, bias=not rms, tie=True,
        activation="silu" if rms else "gelu_tanh", positions="rotary" if rms else "learned",
    )  # fmt: skip
    model = nn.LanguageModel(config, np.random.default_rng(0))
    nn.save(directory, model)
    return model.num_parameters()


def test_int8_copy_of_bounded_logits_keeps_the_bound() -> None:
    config = nn.DecoderOnlyConfig(13, 16, 4, 1, 24, max_len=12, tie=True, logit_softcap=0.5)
    model = nn.LanguageModel(config, np.random.default_rng(0)).eval()
    model.output.weight.data[...] *= 10
    quick = nn.for_inference(model, "int8")
    assert isinstance(quick.output.weight, Int8Matrix)
    np.testing.assert_allclose(quick(IDS).data, model(IDS).data, atol=0.06)
    assert 0.3 < np.abs(quick(IDS).data).max() <= 0.5


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_load_in_int8_equals_int8_of_the_loaded_model(tmp_path: Path, norm: str) -> None:
    published(tmp_path, norm, 13, 16, 4, 2, 24)
    quick = nn.load(tmp_path, weights="int8")
    expected = nn.for_inference(nn.load(tmp_path), "int8")
    np.testing.assert_array_equal(quick(IDS).data, expected(IDS).data)
    assert isinstance(quick.output.weight, Int8Matrix) and quick.origin.family


@pytest.mark.parametrize(("norm", "most"), [("rms", 1.35), ("layer", 1.45)])
def test_load_in_int8_allocates_the_copy_and_one_array(
    tmp_path: Path, norm: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bound a multiple of the size in float32, with zeros that never become memory.

    What else runs in the process may allocate during one of two loads.
    """
    monkeypatch.setattr(int8, "QUANTIZED_BLOCK", 1 << 12)
    size = 4 * published(tmp_path, norm, 4000, 128, 4, 4, 512)
    peaks = []
    for _ in range(2):
        tracemalloc.start()
        try:
            nn.load(tmp_path, weights="int8")
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert min(peaks) < most * size


def test_threads_share_the_blocks_of_a_large_product(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = Int8Matrix.rounded(normal(0, 40, 30).astype(np.float32))
    seen: list[int] = []

    def in_parallel(run: Any, parts: Any) -> Any:
        seen.append(len(parts))
        return runtime.in_parallel(run, parts)

    monkeypatch.setattr(int8, "in_parallel", in_parallel)
    monkeypatch.setattr(int8, "get_num_threads", lambda: 2)
    rows = normal(1, 2, 30).astype(np.float32)
    matrix.product(rows)
    assert seen == []  # small
    monkeypatch.setattr(products, "SHARED", 4 * 1200)
    before = runtime.get_num_threads()
    for block, blocks in ((1200, 2), (600, 2), (300, 4), (250, 6)):
        monkeypatch.setattr(int8, "BLOCK", block)
        y = matrix.product(rows)
        assert seen.pop() == blocks and runtime.get_num_threads() == before
    np.testing.assert_allclose(y, rows @ matrix.data.T, rtol=1e-4, atol=1e-4)


@given(sizes=st.lists(st.integers(0, 12), min_size=1, max_size=8), dtype=st.sampled_from([np.float32, np.float64]))  # fmt: skip
def test_buffers_of_a_thread_lie_behind_one_another_until_its_memory_ends(
    sizes: list[int], dtype: Any
) -> None:
    """Memory of 64 bytes, or of the largest matrix."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8, "BUFFER", 64)
        patch.setattr(int8, "_BUFFERS", threading.local())
        end, length = 0, 0
        for size in sizes:
            part = int8.buffer((1, size), np.dtype(dtype))
            assert part.shape == (1, size) and part.dtype == dtype
            _, memory = int8._BUFFERS.next
            if part.nbytes > length:
                length = max(64, part.nbytes)
            assert len(memory) == length or not length
            start = end if end + part.nbytes <= len(memory) else 0
            if size:
                assert part.ctypes.data - memory.ctypes.data == start
            end = start + part.nbytes


def test_matrix_of_integers_is_converted_and_cannot_change() -> None:
    weight = normal(0, 3, 4).astype(np.float32)
    matrix = int8.Int8Matrix.rounded(weight)
    assert matrix.__array__().dtype == matrix.__array__(None).dtype == np.float32
    assert matrix.__array__(np.float64).dtype == np.float64 and np.asarray(matrix).shape == (3, 4)
    np.testing.assert_array_equal(np.asarray(matrix), matrix.values * matrix.scales)
    for dtype in (None, np.float32, np.float64):
        with pytest.raises(ValueError, match="copy must be None or True"):
            matrix.__array__(dtype, copy=False)
    for array in (matrix.values, matrix.scales):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert int8.Int8Matrix.rounded(np.zeros((2, 0))).shape == (2, 0)
    zeros = int8.Int8Matrix.rounded(np.array([[0.0, 0.0], [127.0, -63.6]]))
    assert zeros.scales.ravel().tolist() == [0, 1] and zeros.values.tolist() == [[0, 0], [127, -64]]
    tiny = np.array([[1e-300, -2e-300]])
    np.testing.assert_allclose(int8.Int8Matrix.rounded(tiny).data, tiny, rtol=0.01)


def test_embedding_of_integers_takes_indices_of_its_rows_only() -> None:
    table = nn.for_inference(nn.Sequential(nn.Embedding(3, 4)), "int8")[0]
    assert table(np.zeros((2, 0), int)).shape == (2, 0, 4) and table([[0, 2]]).shape == (1, 2, 4)
    for wrong in ([0, 3], [-1, 0]):
        with pytest.raises(IndexError, match=r"indices must be from 0 to 2, got -?\d to \d"):
            table(wrong)


class Sharing(nn.Module):
    """A feed-forward network whose gate's weight has a second use."""

    def __init__(self) -> None:
        self.layer = nn.ExtendedFeedForward(8, 6, gated=True)
        self.other = self.layer.gate.weight

    def forward(self, x: Any) -> Any:
        return self.layer(x)


def test_layers_with_one_weight_in_8_bits_are_not_fused() -> None:
    model, x = Sharing().eval(), normal(0, 3, 8).astype(np.float32)
    quick = nn.for_inference(model, "int8")
    assert isinstance(quick.layer.linear1.weight, int8.Int8Matrix)
    assert quick.layer.gate.weight is quick.other and isinstance(quick.other, nn.Parameter)
    for rows in (x, x[:1]):
        np.testing.assert_allclose(quick(rows).data, model(rows).data, atol=0.02)
