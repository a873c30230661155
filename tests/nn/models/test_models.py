"""All models: first loss, padding, descriptions in JSON, and threads."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn

SMALL: dict[str, Any] = {"dropout": 0.0, "max_len": 24, "dtype": "float64"}
IDS = np.array([[4, 5, 6, 0], [4, 5, 6, 7]])


def language_model(layers: int = 2, **options: Any) -> nn.LanguageModel:
    config = nn.LanguageModelConfig(13, 16, 4, layers, 24, **{**SMALL, **options})
    return nn.LanguageModel(config, np.random.default_rng(0))


def encoder_config(layers: int = 1, **options: Any) -> nn.EncoderConfig:
    return nn.EncoderConfig(9, 8, 2, layers, 12, **SMALL, **options)


def transformer(**options: Any) -> nn.Transformer:
    config = nn.TransformerConfig(9, 9, 8, 2, 1, 1, 12, **SMALL, **options)
    return nn.Transformer(config, np.random.default_rng(0))


@pytest.mark.parametrize(
    "options",
    [{}, {"positions": "rotary", "norm": "rms"}, {"embeddings": nn.EmbeddingConfig(scale=True)}],
    ids=str,
)
def test_language_model_loss_starts_near_ln_v(options: dict[str, Any]) -> None:
    config = nn.LanguageModelConfig(2000, 256, 4, 2, 512, **options)
    loss = nn.LanguageModel(config).loss(np.random.default_rng(1).integers(0, 2000, (4, 30)))
    assert loss.item() == pytest.approx(np.log(2000), abs=0.35)


# -- descriptions in JSON ----------------------------------------------------------------------------------------

WINDOWED = nn.AttentionConfig(window=3, window_layers=[0])
MODELS: list[Callable[[], Any]] = [
    lambda: transformer(tie="target"),
    lambda: language_model(eos_id=(2, 3), attention=WINDOWED),
    lambda: nn.EncoderModel(encoder_config(2, shared_layers=True, embeddings=nn.EmbeddingConfig(scale=True, size=4))),
    lambda: nn.TokenClassifier(encoder_config(num_classes=3, num_types=2)),
    lambda: nn.MaskedLanguageModel(encoder_config(activation="gelu")),
]  # fmt: skip


@pytest.mark.parametrize("make", MODELS)
def test_model_from_dict_rebuilds_the_model_and_draws_nothing(make: Callable[[], Any]) -> None:
    model = make()
    before = mg.get_rng_state()
    again = nn.model_from_dict(json.loads(json.dumps(nn.model_to_dict(model))))
    assert mg.get_rng_state() == before
    assert type(again) is type(model)
    assert again.config == model.config
    again.load_state_dict(model.state_dict())
    arguments = [IDS] * (2 if isinstance(model, nn.Transformer) else 1)
    np.testing.assert_array_equal(again.eval()(*arguments).data, model.eval()(*arguments).data)


def test_model_from_dict_of_first_version_is_a_transformer() -> None:
    sizes = {"source_vocab_size": 9, "target_vocab_size": 9, "d_model": 8, "num_heads": 2}
    model = nn.model_from_dict({**sizes, "sos_id": 1})
    assert isinstance(model, nn.Transformer) and model.config.bos_id == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"model": "Perceiver"}, "model must be 'Transformer', 'LanguageModel', 'Enc.*, got 'Perceiver'"),
        ({"model": "LanguageModel", "heads": 3}, "unknown settings: heads; expected some of"),
        ({"model": "LanguageModel", "vocab_size": 9, "d_model": 8.5}, "d_model must be an integer, got 8.5"),
    ],
)  # fmt: skip
def test_model_from_dict_of_other_data_raises(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nn.model_from_dict(data)


def test_model_to_dict_of_a_layer_raises() -> None:
    with pytest.raises(TypeError, match="model must be one of Transformer, .* got Linear"):
        nn.model_to_dict(nn.Linear(2, 2))


# -- padding ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "is_hidden"),
    [({}, False), ({"pad_id": 0}, True), ({"pad_id": 0, "eos_id": (0, 2)}, False)],
)
def test_language_model_hides_only_its_padding_token(
    options: dict[str, Any], is_hidden: bool
) -> None:
    """Token 0 is trained unless it is the padding token and does not end sequences."""
    model, ids = language_model(**options, tie=False), np.array([[0, 3, 0, 5]])
    loss = model.loss(ids)
    loss.backward()
    assert model.embedding.tokens.weight.grad.data[0].any() != is_hidden
    assert model.num_targets(ids) == (0 if is_hidden else 3)
    assert (loss.item() == 0) == is_hidden


POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "relative", "learned_relative", "none"]


@pytest.mark.parametrize("is_left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_language_model_of_a_padded_batch_equals_each_row_alone(
    positions: str, is_left: bool
) -> None:
    model = language_model(positions=positions).eval()
    ids, mask = np.random.default_rng(0).integers(0, 13, (2, 6)), np.ones((2, 6), bool)
    mask[1, :3] = False
    mask = mask if is_left else mask[:, ::-1]
    logits, total = model(ids, mask).data, 0.0
    for i, row in enumerate((ids[:1], ids[1:, mask[1]])):
        np.testing.assert_allclose(logits[i][mask[i]], model(row).data[0], atol=1e-12)
        total += model.loss(row, reduction="sum").item()
    each = model.loss(ids, mask, reduction="none")
    assert each.shape == (2, 5) and model.num_targets(ids, mask) == 5 + 2
    for loss in (each.sum(), model.loss(ids, mask, reduction="sum")):
        assert loss.item() == pytest.approx(total, rel=1e-9)


def test_padding_mask_of_another_dtype_raises() -> None:
    message = r"padding_mask must be booleans \(2, 4\), True = a real token, got"
    with pytest.raises(ValueError, match=message):
        language_model()(IDS, np.ones((2, 4)))


def test_transformer_with_batches_of_different_sizes_raises() -> None:
    model, target = transformer(), np.full((3, 6), 5)
    with pytest.raises(ValueError, match=r"target must have as many .* as source \(2\), got 3"):
        model.loss(IDS, target)
    with pytest.raises(ValueError, match=r"memory must have as many .* as target \(3\), got 2"):
        model.decode(target, model.encode(IDS))


# -- encoders ------------------------------------------------------------------------------------------------------


def test_token_classifier_ignores_padding() -> None:
    rng, types = np.random.default_rng(0), np.array([[0, 1, 1, 1], [0, 0, 1, 1]])
    ids, classes = rng.integers(1, 9, (2, 4)), rng.integers(0, 3, (2, 4))
    real = np.array([[True] * 4, [True, True, False, False]])
    model = nn.TokenClassifier(encoder_config(num_classes=3, num_types=2), rng)
    logits = model(ids, real, types)
    assert not np.allclose(logits.data, model(ids, real).data)
    expected = mg.cross_entropy(logits[real], classes[real])
    assert model.loss(ids, classes, real, types).item() == pytest.approx(expected.item(), rel=1e-12)
    assert model.num_targets(ids, classes, real) == 6


def test_classifier_with_mean_pool_ignores_padding() -> None:
    model = nn.EncoderClassifier(encoder_config(num_classes=3)).eval()
    np.testing.assert_allclose(model(IDS).data[:1], model(IDS[:1, :3]).data, atol=1e-12)


# -- several threads -----------------------------------------------------------------------------------------------


def test_evaluating_holds_in_its_context_only() -> None:
    dropout, x = nn.Dropout(0.5), np.ones(1000, np.float32)
    with nn.evaluating():
        assert not dropout.training and (dropout(x).data == 1).all()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lambda: dropout.training).result()
        dropout.train()
        assert not dropout.training
    assert dropout.training
