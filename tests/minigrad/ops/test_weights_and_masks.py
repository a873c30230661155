"""Weights, biases, masks and scales of all public functions and layers, of other shapes and dtypes.

An argument that broadcasts to the shape that is meant has the result of the broadcast argument. Any other is refused by
the call itself, not by the backward pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor
from nn import functional as F

NAMES = {
    "weight", "weights", "pos_weight", "linear_weight", "linear_bias", "bias", "scale", "mask", "attn_mask", "memory_mask", "padding_mask",
    "where", "condition", "valid_lens",
}  # fmt: skip
rng = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    """Return random weights between 0.2 and 0.8."""
    return rng.uniform(0.2, 0.8, shape).astype(np.float32)


def booleans(*shape: int) -> np.ndarray:
    """Return a random mask that keeps the first element of each row."""
    mask = rng.random(shape) < 0.6
    mask[..., 0] = True
    return mask


P = floats(3, 4)
CLASSES = np.array([0, 3, 2])
IDS = np.array([[5, 6, 7], [8, 9, 3]])
Q = floats(2, 3, 4)
HEADS = floats(2, 2, 3, 2)  # (N, h, L, d)
W = np.ones((5, 4), np.float32)


SIZES: Any = {"d_model": 4, "num_heads": 2, "d_ff": 8, "num_layers": 1}
ENCODER = nn.EncoderModel(nn.EncoderConfig(12, **SIZES))
LANGUAGE_MODEL = nn.LanguageModel(nn.DecoderOnlyConfig(12, **SIZES))
ATTENTION, EXTENDED_ATTENTION = nn.MultiHeadAttention(4, 2), nn.ExtendedAttention(4, 2)
DOT_PRODUCT, ADDITIVE = nn.DotProductAttention(), nn.AdditiveAttention(4, 4, 5)
attend = mg.scaled_dot_product_attention
logits_loss = mg.binary_cross_entropy_with_logits
fused_loss = mg.linear_cross_entropy

CASES: dict[str, tuple[Callable[..., Any], list[Any], Any]] = {
    "linear.weight": (mg.linear, [P], floats(5, 4)),
    "linear.bias": (mg.linear, [P, W], floats(5)),
    "layer_norm.weight": (mg.layer_norm, [P], floats(4)),
    "layer_norm.bias": (mg.layer_norm, [P], floats(4)),
    "rms_norm.weight": (mg.rms_norm, [P], floats(4)),
    "embedding.weight": (lambda weight: mg.embedding(weight, CLASSES), [], floats(5, 4)),
    "cross_entropy.weight": (mg.cross_entropy, [P, CLASSES], floats(4)),
    "nll_loss.weight": (mg.nll_loss, [P, CLASSES], floats(4)),
    "binary_cross_entropy.weight": (mg.binary_cross_entropy, [P, P], floats(3, 4)),
    "binary_cross_entropy_with_logits.weight": (logits_loss, [P, P], floats(3, 4)),
    "binary_cross_entropy_with_logits.pos_weight": (logits_loss, [P, P], floats(3, 4)),
    "linear_cross_entropy.linear_weight": (
        lambda x, linear_weight: fused_loss(x, linear_weight, CLASSES),
        [P],
        floats(5, 4),
    ),
    "linear_cross_entropy.linear_bias": (fused_loss, [P, W, CLASSES], floats(5)),
    "linear_cross_entropy.weight": (fused_loss, [P, W, CLASSES], floats(5)),
    "scaled_dot_product_attention.mask": (attend, [HEADS] * 3, booleans(2, 2, 3, 3)),
    "scaled_dot_product_attention.bias": (attend, [HEADS] * 3, floats(2, 2, 3, 3)),
    "scaled_dot_product_attention.scale": (attend, [HEADS] * 3, np.float32(0.5)),
    "F.scaled_dot_product_attention.attn_mask": (
        F.scaled_dot_product_attention,
        [Q, Q, Q],
        booleans(2, 3, 3),
    ),
    "a bias as F.scaled_dot_product_attention.attn_mask": (
        F.scaled_dot_product_attention,
        [Q, Q, Q],
        floats(2, 3, 3),
    ),
    "softmax.where": (mg.softmax, [P], booleans(3, 4)),
    "masked_fill.mask": (lambda x, mask: mg.masked_fill(x, mask, 0.0), [P], booleans(3, 4)),
    "masked_select.mask": (mg.masked_select, [P], booleans(3, 4)),
    "sum.where": (mg.sum, [P], booleans(3, 4)),
    "MultiHeadAttention.forward.mask": (ATTENTION, [Q], booleans(2, 2, 3, 3)),
    "ExtendedAttention.forward.mask": (EXTENDED_ATTENTION, [Q, Q], booleans(2, 2, 3, 3)),
    "EncoderModel.forward.padding_mask": (ENCODER.eval(), [IDS], booleans(2, 3)),
    "LanguageModel.forward.padding_mask": (LANGUAGE_MODEL.eval(), [IDS], booleans(2, 3)),
    "DotProductAttention.forward.valid_lens": (DOT_PRODUCT, [Q, Q, Q], np.array([1, 3])),
    "AdditiveAttention.forward.valid_lens": (ADDITIVE, [Q, Q, Q], np.array([1, 3])),
}
"""A function, its first operands, and a valid value of the argument after the last dot."""

OPERANDS = {"linear.weight", "linear_cross_entropy.linear_weight", "embedding.weight"}
"""Matrices with any number of rows."""
MASKS_THAT_BROADCAST_X = {"masked_select.mask", "masked_fill.mask"}
"""A larger mask broadcasts x, as in PyTorch."""
ELSEWHERE = {
    # compared with NumPy in `tests/minigrad/numpy/test_forms.py`, or computed by NumPy itself
    "where.condition", "average.weights", "any.where", "all.where", "mean.where", "var.where", "std.where",
    # no arrays of weights
    "cov.bias", "attribute.padding_mask", "valid_lens_mask.valid_lens",
    "for_inference.weights", "load.weights", "classifier.weights", "reranker.weights",
    # passed on to functions and layers that are tested here
    "Encoder.forward.mask", "Decoder.forward.mask", "Decoder.forward.memory_mask", "ExtendedEncoderLayer.forward.mask", "ExtendedDecoderLayer.forward.mask",
    "ExtendedDecoderLayer.forward.memory_mask",
    "TransformerEncoderLayer.forward.mask", "TransformerDecoderLayer.forward.mask",
    "TransformerDecoderLayer.forward.memory_mask", "Transformer.forward.padding_mask",
    "greedy_search.padding_mask", "beam_search.padding_mask", "sample.padding_mask", "generate.padding_mask", "stream.padding_mask", "EncoderClassifier.forward.padding_mask", "TokenClassifier.forward.padding_mask",
    "MaskedLanguageModel.forward.padding_mask", "F.layer_norm.weight", "F.layer_norm.bias", "F.rms_norm.weight",
    "F.embedding.weight", "F.scaled_dot_product_attention.scale",
}  # fmt: skip


def public_arguments() -> Iterator[str]:
    """Return `function.argument` and `layer.forward.argument` of all that is public."""
    for module, prefix in ((mg, ""), (F, "F."), (nn, "")):
        for name in module.__all__ if hasattr(module, "__all__") else vars(module):
            call = getattr(module, name)
            if inspect.isclass(call):
                if not issubclass(call, nn.Module):
                    continue
                name, call = f"{name}.forward", call.forward
            if callable(call) and not name.startswith("_"):
                path = name if getattr(mg, name, None) is call else prefix + name
                yield from [f"{path}.{a}" for a in inspect.signature(call).parameters if a in NAMES]


def test_every_public_weight_bias_and_mask_has_a_case() -> None:
    assert {*public_arguments()} <= {*CASES} | ELSEWHERE


def outcome(name: str, value: np.ndarray) -> np.ndarray | None:
    """Return the result of a call, and run its backward pass; None if the call is refused."""
    function, arrays, _ = CASES[name]
    operands = [Tensor(x, requires_grad=x.dtype.kind == "f") for x in arrays]
    for tracked in (True, False):  # some weights must not require gradients
        try:
            argument = Tensor(value, True) if tracked else value
            result = function(*operands, **{name.rpartition(".")[2]: argument})
        except (ValueError, TypeError, IndexError):
            continue
        if result.requires_grad:
            result.backward(np.ones(result.shape, result.dtype))
        return np.asarray(result.data)
    return None


def variants(good: np.ndarray) -> Iterator[np.ndarray]:
    """Return the value in other shapes: more axes, fewer, longer, of length 1, transposed."""
    yield from (good[None], np.stack([good, good]), good[..., None])
    yield np.broadcast_to(good, (2, 3, *good.shape))
    for axis in range(good.ndim):
        yield np.concatenate([good, good], axis)
        for index in ([0], [], 0):
            yield good.take(index, axis)
    if good.ndim > 1:
        yield good.swapaxes(0, -1)


@pytest.mark.parametrize("name", sorted(CASES.keys() - MASKS_THAT_BROADCAST_X - OPERANDS))
def test_argument_of_another_shape_is_refused_or_broadcast(name: str) -> None:
    good = np.asarray(CASES[name][2])
    expected, shape = outcome(name, good), good.shape
    assert expected is not None
    for value in variants(good):
        result = outcome(name, value)
        if result is None:
            continue
        broadcasts = value.ndim == len(shape) and all(
            n in (1, m) for n, m in zip(value.shape, shape)
        )
        assert broadcasts or value.shape in (shape[1:], shape[2:]), f"{value.shape} for {shape}"
        same = outcome(name, np.array(np.broadcast_to(value, shape)))
        np.testing.assert_allclose(result, same, rtol=1e-5)
        assert result.dtype == expected.dtype


@pytest.mark.parametrize("name", sorted(CASES.keys() - OPERANDS))
def test_argument_of_another_dtype_is_refused_or_converted(name: str) -> None:
    """Integers are no masks, and count as floats in weights. No weight changes the dtype of a result."""
    good = np.asarray(CASES[name][2])
    if good.dtype == bool:
        assert outcome(name, good.astype(int)) is None
        assert outcome(name, good.astype(np.float32)) is None or "attn_mask" in name
    elif good.dtype.kind == "f":
        for value in (good.astype(float), np.ceil(good).astype(int)):
            result = outcome(name, value)
            if result is not None:
                assert "a bias" not in name or value.dtype.kind == "f"
                same = outcome(name, value.astype(good.dtype))
                np.testing.assert_allclose(result, same, rtol=1e-5)
                assert result.dtype == same.dtype


@pytest.mark.parametrize("name", sorted(OPERANDS))
@pytest.mark.parametrize("shape", [(4,), (2, 5, 4), (5, 4, 1)])
def test_weight_that_is_no_matrix_is_refused(name: str, shape: tuple[int, ...]) -> None:
    function, operands, _ = CASES[name]
    with pytest.raises((ValueError, IndexError), match=r"weight"):
        function(*operands, **{name.rpartition(".")[2]: floats(*shape)})


@pytest.mark.parametrize("argument", ["weight", "pos_weight"])
def test_weight_that_would_enlarge_a_column_of_losses_is_refused(argument: str) -> None:
    with pytest.raises(
        ValueError, match=r"weight must broadcast to the loss, \(4, 1\), got \(4,\)"
    ):
        logits_loss(floats(4, 1), floats(4, 1), **{argument: P[0]})


@pytest.mark.parametrize("f", [mg.var, mg.std, mg.mean])
def test_reduction_by_the_mask_of_each_example_equals_a_loop(f: Any) -> None:
    x, mask = floats(2, 4, 3), np.tri(8, 3, dtype=bool).reshape(2, 4, 3)
    y = mg.vmap(lambda x, mask: f(x, axis=0, where=mask))(x, mask)
    for i in range(2):
        np.testing.assert_allclose(y.data[i], f(x[i], axis=0, where=mask[i]).data, rtol=1e-6)
