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
from nn.layers import attention
from nn.layers.masks import attention_mask
from nn.models import base, stacks
from nn.models import language_model as language_model_module
from nn.models import transformer as transformer_module
from nn.models.base import checked_ids

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


@pytest.mark.parametrize("vocab", [65, 2000])
@pytest.mark.parametrize("width", [32, 256])
@pytest.mark.parametrize(
    "options",
    [{}, {"positions": "rotary", "norm": "rms"}, {"embeddings": nn.EmbeddingConfig(scale=True)}],
    ids=str,
)
def test_language_model_loss_starts_near_ln_v(
    vocab: int, width: int, options: dict[str, Any]
) -> None:
    config = nn.LanguageModelConfig(vocab, width, 4, 2, 2 * width, **options)
    model = nn.LanguageModel(config, np.random.default_rng(0))
    ids = np.random.default_rng(1).integers(0, vocab, (4, 30))
    assert model.loss(ids).item() == pytest.approx(np.log(vocab), abs=0.35)


# -- descriptions in JSON ----------------------------------------------------------------------------------------

WINDOWED = nn.AttentionConfig(window=3, window_layers=[0])
MODELS: list[Callable[[], Any]] = [
    lambda: transformer(tie="target"),
    lambda: language_model(eos_id=(2, 3), attention=WINDOWED),
    lambda: nn.EncoderModel(encoder_config(2, shared_layers=True, embeddings=nn.EmbeddingConfig(scale=True, size=4))),
    lambda: nn.EncoderClassifier(encoder_config(num_classes=3, pool="first", head_activation="tanh")),
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
    assert again.config == model.config and hash(again.config) == hash(model.config)
    assert not any(p.data.any() for name, p in again.named_parameters() if "norm" not in name)
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
        ({"d_model": 8}, "model must be 'Transformer', .*, got None"),
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
    expected = 0 if is_hidden else mg.cross_entropy(model(ids[:, :-1]), ids[:, 1:]).item()
    assert loss.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("is_left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize(
    "positions",
    ["learned", "sinusoidal", "rotary", "alibi", "relative", "learned_relative", "none"],
)
def test_language_model_of_a_padded_batch_equals_each_row_alone(
    positions: str, is_left: bool
) -> None:
    model, lengths = language_model(positions=positions).eval(), (6, 3, 1)
    rows = [np.random.default_rng(n).integers(0, 13, n) for n in lengths]
    ids, mask = np.zeros((3, 6), int), np.zeros((3, 6), bool)
    for i, row in enumerate(rows):
        columns = slice(6 - len(row), 6) if is_left else slice(len(row))
        ids[i, columns], mask[i, columns] = row, True
    together = model(ids, mask).data
    for i, row in enumerate(rows):
        np.testing.assert_allclose(together[i][mask[i]], model(row[None]).data[0], atol=1e-12)
    losses = [model.loss(row[None], reduction="sum").item() for row in rows[:2]]
    each = model.loss(ids, mask, reduction="none")
    assert each.shape == (3, 5) and model.num_targets(ids, mask) == 5 + 2
    for total in (each.sum(), model.loss(ids, mask, reduction="sum")):
        assert total.item() == pytest.approx(sum(losses), rel=1e-9)


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "relative"])
def test_generate_of_prompts_of_other_lengths_equals_each_alone(positions: str) -> None:
    model, prompts = language_model(positions=positions), [[1, 2, 3, 4, 5], [6, 7], [8]]
    alone = [nn.generate(model, prompt, max_len=8) for prompt in prompts]
    assert nn.generate(model, prompts, max_len=8) == alone


@pytest.mark.parametrize("mask", [np.ones((1, 3)), np.ones((1, 2), bool), np.ones(3, bool)])
def test_padding_mask_of_another_shape_or_dtype_raises(mask: np.ndarray) -> None:
    message = r"padding_mask must be booleans \(1, 3\), True = a real token, got"
    with pytest.raises(ValueError, match=message):
        language_model()(np.array([[1, 2, 3]]), mask)


def test_transformer_with_batches_of_different_sizes_raises() -> None:
    model, source, target = transformer(), np.full((3, 4), 5), np.full((2, 6), 5)
    for call in (model, model.loss, model.hidden):
        with pytest.raises(ValueError, match=r"target must have as many .* as source \(3\), got 2"):
            call(source, target)
    with pytest.raises(ValueError, match=r"memory must have as many .* as target \(2\), got 3"):
        model.decode(target, model.encode(source))


def test_loss_and_forward_check_each_array_of_ids_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def counted(name: str, ids: Any) -> np.ndarray:
        names.append(name)
        return checked_ids(name, ids)

    for module in (base, language_model_module, transformer_module):
        monkeypatch.setattr(module, "checked_ids", counted)
    model = transformer()
    for call in (model.loss, model):
        names.clear()
        call(IDS, IDS)
        assert names == ["source", "target"]
    model = language_model(pad_id=0)
    encoder = nn.TokenClassifier(encoder_config(num_classes=3))
    for call, arguments in ((model.loss, [IDS]), (model, [IDS]), (encoder.loss, [IDS, IDS % 3])):
        names.clear()
        call(*arguments)
        assert names == ["ids"]


def test_forward_makes_one_mask_for_each_window(monkeypatch: pytest.MonkeyPatch) -> None:
    windows: list[int | None] = []

    def counted(mask: Any, is_causal: bool, shape: Any, window: int | None = None) -> Any:
        windows.append(window)
        return attention_mask(mask, is_causal, shape, window)

    for module in (attention, stacks):
        monkeypatch.setattr(module, "attention_mask", counted)
    options = nn.AttentionConfig(window=2, window_layers=(0, 2))
    model = language_model(4, attention=options, pad_id=0)
    state = model.start()
    model.loss(IDS)
    model.step(IDS, state)
    model.step(IDS[:, :1], state)
    assert windows == [2, None] * 3


# -- encoders ------------------------------------------------------------------------------------------------------


def test_token_classifier_loss_equals_cross_entropy_of_real_tokens() -> None:
    rng, types = np.random.default_rng(0), np.array([[0, 0, 1, 1, 1]] * 2)
    ids, classes = rng.integers(1, 9, (2, 5)), rng.integers(0, 3, (2, 5))
    real = np.array([[True] * 5, [True] * 3 + [False] * 2])
    model = nn.TokenClassifier(encoder_config(num_classes=3, num_types=2), rng)
    assert not np.allclose(model(ids, real, types).data, model(ids, real).data)
    expected = mg.cross_entropy(model(ids, real)[real], classes[real])
    assert model.loss(ids, classes, real).item() == pytest.approx(expected.item(), rel=1e-12)
    assert model.num_targets(ids, classes, real) == 8


def test_masked_language_model_loss_equals_cross_entropy_of_targets() -> None:
    rng = np.random.default_rng(0)
    model, ids = nn.MaskedLanguageModel(encoder_config(), rng), rng.integers(1, 9, (2, 5))
    targets = np.where(rng.random((2, 5)) < 0.5, ids, -100)
    expected = mg.cross_entropy(model(ids)[targets >= 0], targets[targets >= 0])
    assert model.loss(ids, targets).item() == pytest.approx(expected.item(), rel=1e-12)
    assert model.output.weight is model.embedding.tokens.weight


def test_classifier_with_pool_first_reads_the_first_token() -> None:
    model = nn.EncoderClassifier(encoder_config(num_classes=3, pool="first")).eval()
    expected = model.output(model.hidden(IDS)[:, 0]).data
    np.testing.assert_array_equal(model(IDS).data, expected)


def test_shared_layers_equal_one_layer_repeated() -> None:
    model = nn.EncoderModel(encoder_config(3, shared_layers=True))
    [layer] = model.encoder.layers
    x = np.random.default_rng(0).standard_normal((2, 3, 8))
    np.testing.assert_array_equal(model.encoder(x).data, layer(layer(layer(x))).data)


def test_encoder_layer_of_an_unknown_norm_raises() -> None:
    message = "norm must be 'layer', 'rms' or 'rms_zero_centred', got 'batch'"
    with pytest.raises(ValueError, match=message):
        nn.TransformerEncoderLayer(8, 2, 12, norm="batch")


# -- several threads -----------------------------------------------------------------------------------------------


def test_evaluating_holds_in_its_context_only() -> None:
    dropout, x = nn.Dropout(0.5), np.ones(1000, np.float32)
    with nn.evaluating():
        assert not dropout.training and (dropout(x).data == 1).all()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lambda: dropout.training).result()
        dropout.train()
        assert not dropout.training
    assert dropout.training and not (dropout(x).data == 1).all()
