"""Weights, biases, masks and scales of every public function and layer: of wrong shapes, of integers.

An argument that broadcasts to the shape that is meant gives what the broadcast one gives. Any other
is refused by the call itself, never by the backward pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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
X = rng.standard_normal((3, 4)).astype(np.float32)
P = rng.uniform(0.2, 0.8, (3, 4)).astype(np.float32)
CLASSES = np.array([0, 3, 2])
IDS = np.array([[5, 6, 7], [8, 9, 3]])
Q = rng.standard_normal((2, 3, 4)).astype(np.float32)
HEADS = rng.standard_normal((2, 2, 3, 2)).astype(np.float32)  # (N, h, L, d)


class Case(NamedTuple):
    """A call with one argument left open, and a good value of that argument."""

    call: Callable[[Any], Any]
    good: np.ndarray


def weights(*shape: int) -> np.ndarray:
    return rng.uniform(0.5, 2, shape).astype(np.float32)


def booleans(*shape: int) -> np.ndarray:
    mask = rng.random(shape) < 0.6
    mask[..., 0] = True
    return mask


def tracked(x: np.ndarray = X) -> Tensor:
    return Tensor(x, requires_grad=True)


def reductions() -> Iterator[tuple[str, Case]]:
    for f in (mg.sum, mg.mean, mg.prod, mg.var, mg.std):
        yield f"{f.__name__}.where", Case(lambda w, f=f: f(tracked(), where=w), booleans(3, 4))
    for f in (mg.max, mg.min, mg.nanmax, mg.nanmin):
        yield (
            f"{f.__name__}.where",
            Case(lambda w, f=f: f(tracked(), initial=0.0, where=w), booleans(3, 4)),
        )
    yield "nanmean.where", Case(lambda w: mg.nanmean(tracked(), where=w), booleans(3, 4))


def layers() -> Iterator[tuple[str, Case]]:
    logits = {"weight": weights(3, 4), "pos_weight": weights(3, 4)}
    for name, good in logits.items():
        layer = lambda w, name=name: nn.BCEWithLogitsLoss(**{name: w})(tracked(), P)
        yield f"BCEWithLogitsLoss.{name}", Case(layer, good)
    yield "BCELoss.weight", Case(lambda w: nn.BCELoss(w)(tracked(P), P), weights(3, 4))
    for loss in (nn.CrossEntropyLoss, nn.NLLLoss):
        call = lambda w, loss=loss: loss(w)(tracked(), CLASSES)
        yield f"{loss.__name__}.weight", Case(call, weights(4))
    for kind in (nn.MultiHeadAttention, nn.MultiHeadSelfAttention, nn.TransformerEncoderLayer):
        size = (4, 2, 8) if kind is nn.TransformerEncoderLayer else (4, 2)
        attention = kind(*size, dropout=0.0)
        call = lambda m, attention=attention: attention(tracked(Q), mask=m)
        yield f"{kind.__name__}.forward.mask", Case(call, booleans(2, 2, 3, 3))
    cross = nn.MultiHeadCrossAttention(4, 2)
    call = lambda m: cross(tracked(Q), Q, mask=m)
    yield "MultiHeadCrossAttention.forward.mask", Case(call, booleans(2, 2, 3, 3))
    decoder = nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0)
    for name in ("mask", "memory_mask"):
        call = lambda m, name=name: decoder(tracked(Q), Q, **{name: m})
        yield f"TransformerDecoderLayer.forward.{name}", Case(call, booleans(2, 2, 3, 3))
    for kind, args in ((nn.DotProductAttention, ()), (nn.AdditiveAttention, (4, 4, 5))):
        scored = kind(*args)
        call = lambda m, scored=scored: scored(tracked(Q), Q, Q, valid_lens=m)
        yield f"{kind.__name__}.forward.valid_lens", Case(call, np.array([1, 3]))


def models() -> Iterator[tuple[str, Case]]:
    small = {"d_model": 4, "num_heads": 2, "num_layers": 1, "d_ff": 8, "dropout": 0.0}
    encoder = nn.EncoderConfig(12, **small, num_classes=2)
    for kind in (nn.EncoderModel, nn.EncoderClassifier, nn.TokenClassifier, nn.MaskedLanguageModel):
        model = kind(encoder)
        call = lambda m, model=model: model(IDS, padding_mask=m)
        yield f"{kind.__name__}.forward.padding_mask", Case(call, booleans(2, 3))
    language = nn.LanguageModel(nn.LanguageModelConfig(12, **small))
    call = lambda m: language(IDS, padding_mask=m)
    yield "LanguageModel.forward.padding_mask", Case(call, booleans(2, 3))
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    sizes = {name: n for name, n in small.items() if name != "num_layers"}
    translator = nn.Transformer(nn.TransformerConfig(12, 12, **sizes, **layers))
    call = lambda m: translator(IDS, IDS, padding_mask=m)
    yield "Transformer.forward.padding_mask", Case(call, booleans(2, 3))


CASES: dict[str, Case] = {
    "linear.weight": Case(lambda w: mg.linear(tracked(), w), weights(5, 4)),
    "linear.bias": Case(lambda b: mg.linear(tracked(), weights(5, 4) * 0 + 1, b), weights(5)),
    "layer_norm.weight": Case(lambda w: mg.layer_norm(tracked(), weight=w), weights(4)),
    "layer_norm.bias": Case(lambda b: mg.layer_norm(tracked(), bias=b), weights(4)),
    "rms_norm.weight": Case(lambda w: mg.rms_norm(tracked(), weight=w), weights(4)),
    "F.layer_norm.weight": Case(lambda w: F.layer_norm(tracked(), (4,), w), weights(4)),
    "F.layer_norm.bias": Case(lambda b: F.layer_norm(tracked(), (4,), None, b), weights(4)),
    "F.rms_norm.weight": Case(lambda w: F.rms_norm(tracked(), (4,), w), weights(4)),
    "embedding.weight": Case(lambda w: mg.embedding(w, CLASSES), weights(5, 4)),
    "F.embedding.weight": Case(lambda w: F.embedding(CLASSES, w), weights(5, 4)),
    "cross_entropy.weight": Case(
        lambda w: mg.cross_entropy(tracked(), CLASSES, weight=w), weights(4)
    ),
    "nll_loss.weight": Case(lambda w: mg.nll_loss(tracked(), CLASSES, weight=w), weights(4)),
    "binary_cross_entropy.weight": Case(
        lambda w: mg.binary_cross_entropy(tracked(P), P, weight=w), weights(3, 4)
    ),
    "binary_cross_entropy_with_logits.weight": Case(
        lambda w: mg.binary_cross_entropy_with_logits(tracked(), P, weight=w), weights(3, 4)
    ),
    "binary_cross_entropy_with_logits.pos_weight": Case(
        lambda w: mg.binary_cross_entropy_with_logits(tracked(), P, pos_weight=w), weights(3, 4)
    ),
    "linear_cross_entropy.linear_weight": Case(
        lambda w: mg.linear_cross_entropy(tracked(), w, CLASSES), weights(5, 4)
    ),
    "linear_cross_entropy.linear_bias": Case(
        lambda b: mg.linear_cross_entropy(tracked(), weights(5, 4) * 0 + 1, CLASSES, linear_bias=b),
        weights(5),
    ),
    "linear_cross_entropy.weight": Case(
        lambda w: mg.linear_cross_entropy(tracked(), weights(5, 4) * 0 + 1, CLASSES, weight=w),
        weights(5),
    ),
    "scaled_dot_product_attention.mask": Case(
        lambda m: mg.scaled_dot_product_attention(tracked(HEADS), HEADS, HEADS, mask=m),
        booleans(2, 2, 3, 3),
    ),
    "scaled_dot_product_attention.bias": Case(
        lambda b: mg.scaled_dot_product_attention(tracked(HEADS), HEADS, HEADS, bias=b),
        weights(2, 2, 3, 3),
    ),
    "scaled_dot_product_attention.scale": Case(
        lambda s: mg.scaled_dot_product_attention(tracked(HEADS), HEADS, HEADS, scale=s),
        np.float32(0.5),
    ),
    "F.scaled_dot_product_attention.attn_mask": Case(
        lambda m: F.scaled_dot_product_attention(tracked(Q), Q, Q, m), booleans(2, 3, 3)
    ),
    "F.scaled_dot_product_attention.attn_mask, a bias": Case(
        lambda m: F.scaled_dot_product_attention(tracked(Q), Q, Q, m), weights(2, 3, 3)
    ),
    "F.scaled_dot_product_attention.scale": Case(
        lambda s: F.scaled_dot_product_attention(tracked(Q), Q, Q, scale=s), np.float32(0.5)
    ),
    "softmax.where": Case(lambda w: mg.softmax(tracked(), where=w), booleans(3, 4)),
    "nanvar.where": Case(lambda w: mg.nanvar(tracked(), where=w), booleans(3, 4)),
    "masked_fill.mask": Case(lambda m: mg.masked_fill(tracked(), m, 0.0), booleans(3, 4)),
    "masked_select.mask": Case(lambda m: mg.masked_select(tracked(), m), booleans(3, 4)),
    "compress.condition": Case(lambda c: mg.compress(c, tracked(), axis=1), booleans(4)),
    "extract.condition": Case(lambda c: mg.extract(c, tracked()), booleans(3, 4)),
    "where.condition": Case(lambda c: mg.where(c, tracked(), 0.0), booleans(3, 4)),
    "average.weights": Case(lambda w: mg.average(tracked(), weights=w), weights(3, 4)),
    **dict(reductions()),
    **dict(layers()),
    **dict(models()),
}
AS_NUMPY = {
    "where.condition", "compress.condition", "extract.condition", "average.weights",
}  # fmt: skip
"""NumPy decides what these take; `tests/forms` compares them with NumPy."""
AS_PYTORCH = {"masked_select.mask", "masked_fill.mask"}
"""A mask that is larger than x broadcasts x, as in PyTorch."""
NO_ARRAY = {
    "Linear.bias", "LayerNorm.bias", "BatchNorm1d.bias", "FeedForward.bias", "cov.bias", "MultiHeadAttention.bias",
    "MultiHeadSelfAttention.bias", "MultiHeadCrossAttention.bias", "MultiHeadAttention.scale",
    "MultiHeadSelfAttention.scale", "MultiHeadCrossAttention.scale", "TransformerEncoderLayer.bias",
    "TransformerDecoderLayer.bias", "LoRALinear.scale",
}  # fmt: skip
"""Settings of layers, not arrays."""
ELSEWHERE = {"Encoder.forward.mask", "Decoder.forward.mask", "Decoder.forward.memory_mask"}
"""Hand the argument on to layers that are tested here."""


OPERANDS = {
    "linear.weight",
    "linear_cross_entropy.linear_weight",
    "embedding.weight",
    "F.embedding.weight",
}
"""Have any number of rows, and a dtype that counts as NumPy's."""


def public() -> Iterator[str]:
    """`function.argument`, `layer.argument` and `layer.forward.argument` of all that is public."""
    for module, prefix in ((mg, ""), (F, "F."), (nn, "")):
        for name in module.__all__ if hasattr(module, "__all__") else vars(module):
            value = getattr(module, name)
            calls = {name: value}
            if inspect.isclass(value):
                if not issubclass(value, nn.Module):
                    continue
                calls[f"{name}.forward"] = value.forward
            for path, call in calls.items():
                if callable(call) and not name.startswith("_"):
                    same = prefix and getattr(mg, name, None) is value
                    for argument in inspect.signature(call).parameters.keys() & NAMES:
                        yield f"{'' if same else prefix}{path}.{argument}"


def test_every_public_weight_bias_and_mask_has_a_case() -> None:
    skipped = {
        "load_model.where",
        "model_from_dict.where",
        "attribute.padding_mask",
        "valid_lens_mask.valid_lens",
    }
    missing = {*public()} - {*CASES} - NO_ARRAY - ELSEWHERE - skipped
    assert not missing


def variants(good: np.ndarray) -> Iterator[np.ndarray]:
    """The good value in other shapes: more axes, fewer, longer, of length 1, turned around."""
    good = np.asarray(good)
    yield good[None]
    yield np.stack([good, good])
    yield good[..., None]
    yield np.broadcast_to(good, (2, 3, *good.shape))
    for axis in range(good.ndim):
        yield np.concatenate([good, good], axis)
        yield good.take([0], axis)
        yield good.take([], axis)
        yield good.take(0, axis)
    if good.ndim > 1:
        yield good.swapaxes(0, -1)


def outcome(case: Case, value: Any) -> np.ndarray | None:
    """The result of a call whose backward pass succeeds; None for a call that is refused."""
    tensor = value.dtype.kind == "f" and not isinstance(value, np.generic)
    leaf = Tensor(value, requires_grad=True) if tensor else value
    try:
        result = case.call(value)
    except (ValueError, TypeError, IndexError):
        return None
    if tensor:
        try:
            with_gradient = case.call(leaf)
        except (ValueError, TypeError):
            with_gradient = None
        if with_gradient is not None:
            with_gradient.backward(np.ones(with_gradient.shape, with_gradient.dtype))
            assert leaf.grad is None or leaf.grad.shape == value.shape
    if result.requires_grad:
        result.backward(np.ones(result.shape, result.dtype))
    return np.asarray(result.data)


@pytest.mark.parametrize("name", sorted(CASES.keys() - AS_NUMPY - AS_PYTORCH - OPERANDS))
def test_argument_of_a_wrong_shape_is_refused_or_broadcast(name: str) -> None:
    case = CASES[name]
    expected = outcome(case, np.asarray(case.good))
    assert expected is not None
    for value in variants(case.good):
        result = outcome(case, value)
        if result is None:
            continue
        assert result.dtype == expected.dtype
        shape = np.shape(case.good)
        fits = value.shape in (shape[1:], shape[2:]) or (
            value.ndim == len(shape) and all(n in (1, m) for n, m in zip(value.shape, shape))
        )
        assert fits, f"{value.shape} was taken for {shape}: {result.shape}, {expected.shape}"
        same = outcome(case, np.ascontiguousarray(np.broadcast_to(value, shape)))
        np.testing.assert_allclose(result, same, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(CASES.keys() - AS_NUMPY - OPERANDS))
def test_argument_of_integers_is_refused_or_counts_as_floats(name: str) -> None:
    case = CASES[name]
    good = np.asarray(case.good)
    if good.dtype == bool:
        assert outcome(case, good.astype(int)) is None
        if "attn_mask" not in name:
            assert outcome(case, good.astype(np.float32)) is None
    elif good.dtype.kind == "f":
        integers = np.ceil(good).astype(int)
        result = outcome(case, integers)
        if "a bias" in name:
            assert result is None
        elif result is not None:
            same = outcome(case, integers.astype(good.dtype))
            assert same is not None and result.dtype == same.dtype
            np.testing.assert_allclose(result, same, rtol=1e-6)


@pytest.mark.parametrize("name", sorted(CASES.keys() - AS_NUMPY - OPERANDS))
def test_argument_of_float64_keeps_the_dtype(name: str) -> None:
    case = CASES[name]
    if np.asarray(case.good).dtype.kind == "f":
        expected, result = (
            outcome(case, np.asarray(case.good)),
            outcome(case, np.asarray(case.good, np.float64)),
        )
        assert expected is not None
        if result is not None:
            assert result.dtype == expected.dtype
            np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(OPERANDS))
@pytest.mark.parametrize("shape", [(4,), (2, 5, 4), (5, 4, 1), (1, 5, 4), ()])
def test_weight_that_is_no_matrix_is_refused_by_the_call(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises((ValueError, IndexError), match=r"weight"):
        CASES[name].call(weights(*shape))


def test_bce_weight_of_one_row_does_not_enlarge_a_column_of_losses() -> None:
    logits, targets = rng.standard_normal((4, 1)), rng.uniform(size=(4, 1))
    for loss in (
        nn.BCEWithLogitsLoss(np.arange(1.0, 5)),
        nn.BCEWithLogitsLoss(pos_weight=np.arange(1.0, 5)),
        nn.BCELoss(np.arange(1.0, 5)),
    ):
        x = targets if isinstance(loss, nn.BCELoss) else logits
        with pytest.raises(
            ValueError, match=r"weight must broadcast to the loss, \(4, 1\), got \(4,\)"
        ):
            loss(x, targets)


def test_functional_attention_with_a_mask_of_integers_is_refused() -> None:
    with pytest.raises(TypeError, match=r"attn_mask must be boolean .* or floating, got int64"):
        F.scaled_dot_product_attention(Q, Q, Q, np.ones((3, 3), int))
