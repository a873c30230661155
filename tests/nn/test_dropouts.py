"""Each model drops elements at the places of its definition, with the probability of each place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad.ops import attention, network

N, D, H, F, SOURCE, L = 2, 8, 2, 12, 5, 3
IDS = {n: np.ones((N, n), int) for n in (SOURCE, L)}
IMAGES = np.ones((N, 1, 4, 4), np.float32)
OTHERS: dict[str, Any] = {"attention": nn.AttentionConfig(dropout=0.25), "activation_dropout": 0.75}
SIZES: dict[str, Any] = {"d_model": D, "num_heads": H, "d_ff": F, "dropout": 0.5}

Places = list[tuple[tuple[int, ...], float]]


def layer(queries: int, memory: int = 0, inner: tuple[float, float] = (0.25, 0.75)) -> Places:
    """Return shapes and probabilities: weights, output of attention, hidden layer, and output."""
    own: Places = [((N, H, queries, queries), inner[0]), ((N, queries, D), 0.5)]
    cross: Places = [((N, H, queries, memory), inner[0]), ((N, queries, D), 0.5)] if memory else []
    return [*own, *cross, ((N, queries, F), inner[1]), ((N, queries, D), 0.5)]


def embedding(length: int, width: int = D) -> Places:
    return [((N, length, width), 0.5)]


def encoder(kind: Any, length: int = L, head: Any = (), width: int = D, **options: Any) -> Any:
    config = nn.EncoderConfig(9, num_layers=1, **SIZES, **OTHERS, **options)
    inputs = IMAGES if options.get("patch_size") else IDS[length]
    return kind, config, [inputs], [*embedding(length, width), *layer(length), *head]


def decoder(**options: Any) -> Any:
    config = nn.DecoderOnlyConfig(9, num_layers=2, **SIZES, **OTHERS, **options)
    return nn.LanguageModel, config, [IDS[L]], [*embedding(L), *layer(L), *layer(L)]


PAIR: dict[str, Any] = {"source_vocab_size": 9, "target_vocab_size": 9, "num_encoder_layers": 1, "num_decoder_layers": 1}  # fmt: skip


def pair(kind: Any, inner: tuple[float, float], **options: Any) -> Any:
    places = [*embedding(SOURCE), *layer(SOURCE, 0, inner), *embedding(L), *layer(L, SOURCE, inner)]
    return nn.Transformer, kind(**PAIR, **SIZES, **options), [IDS[SOURCE], IDS[L]], places


PLAIN = (0.5, 0.5)
MODELS: dict[str, Any] = {
    "paper": pair(nn.TransformerConfig, PLAIN),
    "norm first": pair(nn.TransformerConfig, PLAIN, norm_first=True),
    "pair": pair(nn.EncoderDecoderConfig, (0.25, 0.75), **OTHERS),
    "inherited": pair(nn.EncoderDecoderConfig, PLAIN, activation="gelu"),
    "none inside": pair(nn.EncoderDecoderConfig, (0.0, 0.0), attention=nn.AttentionConfig(dropout=0.0), activation_dropout=0.0),
    "decoder": decoder(),
    "gated": decoder(gated=True, activation="silu"),
    "parallel": decoder(parallel=True),
    "after": decoder(norm_after=True),
    "encoder": encoder(nn.EncoderModel),
    "narrow": encoder(nn.EncoderModel, width=4, embeddings=nn.EmbeddingConfig(scale=True, size=4)),
    "images": encoder(nn.EncoderModel, 5, image_size=4, patch_size=2, num_channels=1),
    "classes": encoder(nn.EncoderClassifier, head=[((N, D), 0.125)], num_classes=3, head_dropout=0.125),
    "tags": encoder(nn.TokenClassifier, head=[((N, L, D), 0.5)], num_classes=3, head_activation="tanh"),
    "no head": encoder(nn.TokenClassifier, num_classes=3, head_dropout=0.0),
    "masked": encoder(nn.MaskedLanguageModel),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_model_drops_elements_at_the_places_of_its_definition(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All random numbers are those of the model's generator, and there are none in evaluation."""
    kind, config, inputs, expected = MODELS[name]
    before, places, original = mg.get_rng_state(), [], network.dropout_mask
    model = kind(config, np.random.default_rng(0))

    def recorded(shape: Any, p: float, generator: Any) -> Any:
        places.append((shape, p))
        assert generator is model.generator
        return original(shape, p, generator)

    for module in (network, attention):
        monkeypatch.setattr(module, "dropout_mask", recorded)
    with mg.no_grad():
        model.eval()(*inputs)
        assert not places
        model.train()(*inputs)
    assert mg.get_rng_state() == before
    assert sorted(places) == sorted((shape, p) for shape, p in expected if p)


def test_elements_are_dropped_behind_norms() -> None:
    """Check that dropped elements are 0 before they are added to the residual."""
    layer = nn.ExtendedEncoderLayer(8, 2, 8, dropout=0.5, norm_first=True, norm_after=True)
    zeros, ones = np.zeros((4, 4, 8), np.float32), lambda x: x * 0 + np.arange(8, dtype=np.float32)
    config = nn.EncoderConfig(9, embeddings=nn.EmbeddingConfig(scale=True, norm=True), **{**SIZES, "d_model": 8})  # fmt: skip
    table = nn.EncoderModel(config).embedding
    for of_layer in (layer, nn.TransformerEncoderLayer(8, 2, 8, dropout=0.5)):  # never x itself
        y = of_layer.residual(mg.tensor(zeros + 1), nn.Identity(), lambda x: x * 0)
        assert (y.data == 1).all()
    for y in (layer.residual(mg.tensor(zeros), layer.norm1, ones), table(np.ones((4, 4), int))):
        assert 0.2 < np.mean(y.data == 0) < 0.8
    config = nn.EncoderConfig(9, num_classes=2, head_norm=True, **SIZES)
    model, inputs = nn.EncoderClassifier(config), list[Any]()
    model.output.register_forward_pre_hook(lambda module, args: inputs.append(args[0].data))
    model(np.ones((9, 4), int))
    assert 0.2 < np.mean(inputs[0] == 0) < 0.8
