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


def language_model(**options: Any) -> nn.LanguageModel:
    config = nn.LanguageModelConfig(options.pop("vocab", 13), 16, 4, 2, 24, **{**SMALL, **options})
    return nn.LanguageModel(config, np.random.default_rng(0))


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
    model = nn.LanguageModel(
        nn.LanguageModelConfig(vocab, width, 4, 2, 2 * width, **options), np.random.default_rng(0)
    )
    ids = np.random.default_rng(1).integers(0, vocab, (4, 30))
    assert model.loss(ids).item() == pytest.approx(np.log(vocab), abs=0.35)


MODELS: list[Callable[..., Any]] = [
    lambda **o: nn.Transformer(nn.TransformerConfig(9, 9, 8, 2, 1, 1, 12, tie="target", **SMALL), **o),
    lambda **o: nn.LanguageModel(nn.LanguageModelConfig(9, 8, 2, 1, 12, eos_id=(2, 3), attention=nn.AttentionConfig(window=3, window_layers=[0]), **SMALL), **o),
    lambda **o: nn.EncoderModel(nn.EncoderConfig(9, 8, 2, 2, 12, shared_layers=True, embeddings=nn.EmbeddingConfig(scale=True, size=4), **SMALL), **o),
    lambda **o: nn.EncoderClassifier(
        nn.EncoderConfig(9, 8, 2, 1, 12, num_classes=3, pool="first", head_activation="tanh", **SMALL), **o),
    lambda **o: nn.TokenClassifier(nn.EncoderConfig(9, 8, 2, 1, 12, num_classes=3, num_types=2, **SMALL), **o),
    lambda **o: nn.MaskedLanguageModel(nn.EncoderConfig(9, 8, 2, 1, 12, activation="gelu", **SMALL), **o),
]  # fmt: skip


@pytest.mark.parametrize("make", MODELS)
def test_model_from_dict_rebuilds_the_model_and_draws_nothing(make: Callable[..., Any]) -> None:
    model = make(generator=np.random.default_rng(0))
    before = mg.get_rng_state()
    data = json.loads(json.dumps(nn.model_to_dict(model)))
    again = nn.model_from_dict(data)
    assert (
        type(again) is type(model)
        and again.config == model.config
        and hash(again.config) == hash(model.config)
    )
    assert not any(p.data.any() for name, p in again.named_parameters() if "norm" not in name)
    assert mg.get_rng_state() == before
    again.load_state_dict(model.state_dict())
    arguments = [np.array([[1, 4, 5, 0]])] * (2 if isinstance(model, nn.Transformer) else 1)
    np.testing.assert_array_equal(again.eval()(*arguments).data, model.eval()(*arguments).data)
    assert make(init=True).state_dict().keys() == model.state_dict().keys()


def test_model_from_dict_of_other_data_reads_or_raises() -> None:
    older = {
        "source_vocab_size": 9,
        "target_vocab_size": 9,
        "d_model": 8,
        "num_heads": 2,
        "sos_id": 1,
        "d_ff": 12,
    }
    model = nn.model_from_dict(older)
    assert isinstance(model, nn.Transformer) and model.config.bos_id == 1
    for data, message in [
        (
            {"model": "Perceiver"},
            "model must be 'Transformer', 'LanguageModel', 'Enc.*, got 'Perceiver'",
        ),
        ({"d_model": 8}, "model must be 'Transformer', .*, got None"),
        ({"model": "LanguageModel", "heads": 3}, "unknown settings: heads; expected some of"),
        (
            {"model": "LanguageModel", "vocab_size": 9, "d_model": 8.5},
            "d_model must be an integer, got 8.5",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            nn.model_from_dict(data)
    with pytest.raises(TypeError, match="model must be one of Transformer, .* got Linear"):
        nn.model_to_dict(nn.Linear(2, 2))


# -- padding ---------------------------------------------------------------------------------------------------


def test_language_model_hides_only_its_padding_token() -> None:
    """Token 0 is trained unless it is the padding token and not an end of text."""
    ids = np.array([[0, 3, 0, 5]])
    for options, hidden in [
        ({}, False),
        ({"pad_id": 0}, True),
        ({"pad_id": 0, "eos_id": (0, 2)}, False),
    ]:
        model = language_model(**options, tie=False)
        model.loss(ids).backward()
        learned = model.embedding.tokens.weight.grad.data[0].any()
        assert learned == (not hidden)
        assert model.num_targets(ids) == (0 if hidden else 3)
        if not hidden:
            expected = mg.cross_entropy(model(ids[:, :-1]), ids[:, 1:])
            assert model.loss(ids).item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize(
    "positions",
    ["learned", "sinusoidal", "rotary", "alibi", "relative", "learned_relative", "none"],
)
def test_language_model_of_a_padded_batch_equals_each_row_alone(positions: str) -> None:
    model = language_model(positions=positions, vocab=20).eval()
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 20, length) for length in (6, 3, 1)]
    alone = [model(text[None]).data[0] for text in texts]
    for left in (True, False):
        ids, mask = np.zeros((3, 6), int), np.zeros((3, 6), bool)
        for row, text in enumerate(texts):
            place = slice(6 - len(text), 6) if left else slice(0, len(text))
            ids[row, place], mask[row, place] = text, True
        together = model(ids, mask).data
        for row, expected in enumerate(alone):
            np.testing.assert_allclose(together[row][mask[row]], expected, rtol=1e-9, atol=1e-12)
        losses = [model.loss(text[None], reduction="sum").item() for text in texts if len(text) > 1]
        assert model.loss(ids, mask, reduction="sum").item() == pytest.approx(sum(losses), rel=1e-9)
        each = model.loss(ids, mask, reduction="none")
        assert each.shape == (len(ids), ids.shape[1] - 1)
        assert each.sum().item() == pytest.approx(sum(losses), rel=1e-9)
        assert model.num_targets(ids, mask) == 5 + 2
    prompts = [text.tolist() for text in texts]
    assert nn.generate(model, prompts, max_len=8) == [
        nn.generate(model, prompt, max_len=8) for prompt in prompts
    ]


def test_padding_mask_of_another_shape_or_dtype_raises() -> None:
    model = language_model()
    ids = np.array([[1, 2, 3]])
    for mask in (np.ones((1, 3)), np.ones((1, 2), bool), np.ones(3, bool)):
        with pytest.raises(
            ValueError, match=r"padding_mask must be booleans \(1, 3\), True = a real token, got"
        ):
            model(ids, mask)


def test_transformer_with_batches_of_different_sizes_names_source_and_target() -> None:
    model = nn.Transformer(nn.TransformerConfig(9, 9, 8, 2, 1, 1, 12, **SMALL))
    source, target = np.full((3, 4), 5), np.full((2, 6), 5)
    message = r"target must have as many sequences as source \(3\), got 2"
    for call in (model, model.loss, model.hidden):
        with pytest.raises(ValueError, match=message):
            call(source, target)
    with pytest.raises(
        ValueError, match=r"memory must have as many sequences as target \(2\), got 3"
    ):
        model.decode(target, model.encode(source))


def test_loss_and_forward_check_each_array_of_ids_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def counted(name: str, ids: Any) -> np.ndarray:
        names.append(name)
        return checked_ids(name, ids)

    for module in (base, language_model_module, transformer_module):
        monkeypatch.setattr(module, "checked_ids", counted)
    ids = np.array([[4, 5, 6, 0], [4, 5, 6, 7]])
    model = nn.Transformer(nn.TransformerConfig(9, 9, 8, 2, 1, 1, 12, **SMALL))
    encoder = nn.TokenClassifier(nn.EncoderConfig(9, 8, 2, 1, 12, num_classes=3, **SMALL))
    for call, arguments, expected in (
        (language_model(pad_id=0).loss, (ids,), ["ids"]),
        (language_model(pad_id=0), (ids,), ["ids"]),
        (model.loss, (ids, ids), ["source", "target"]),
        (model, (ids, ids), ["source", "target"]),
        (encoder.loss, (ids, ids % 3), ["ids"]),
    ):
        names.clear()
        call(*arguments)
        assert names == expected


def test_forward_makes_one_mask_for_each_window(monkeypatch: pytest.MonkeyPatch) -> None:
    windows: list[int | None] = []

    def counted(mask: Any, is_causal: bool, shape: Any, window: int | None = None) -> Any:
        windows.append(window)
        return attention_mask(mask, is_causal, shape, window)

    for module in (attention, stacks):
        monkeypatch.setattr(module, "attention_mask", counted)
    options = nn.AttentionConfig(window=2, window_layers=(0, 2))
    config = nn.LanguageModelConfig(13, 16, 4, 4, 24, attention=options, pad_id=0, **SMALL)
    model = nn.LanguageModel(config, np.random.default_rng(0))
    ids = np.array([[4, 5, 6, 0], [4, 5, 6, 7]])
    model.loss(ids)
    assert windows == [2, None]
    windows.clear()
    state = model.start()
    model.step(ids, state)
    model.step(ids[:, :1], state)
    assert windows == [2, None] * 2


def test_encoder_heads_equal_cross_entropy_of_their_logits() -> None:
    rng = np.random.default_rng(0)
    ids, real = rng.integers(1, 9, (2, 5)), np.array([[True] * 5, [True] * 3 + [False] * 2])
    options: dict[str, Any] = {**SMALL, "num_classes": 3, "num_types": 2}
    tokens = nn.TokenClassifier(nn.EncoderConfig(9, 8, 2, 1, 12, **options), rng).eval()
    classes = rng.integers(0, 3, (2, 5))
    types = np.array([[0, 0, 1, 1, 1]] * 2)
    assert not np.allclose(tokens(ids, real, types).data, tokens(ids, real).data)
    expected = mg.cross_entropy(tokens(ids, real)[real], classes[real])
    assert tokens.loss(ids, classes, real).item() == pytest.approx(expected.item(), rel=1e-12)
    assert tokens.num_targets(ids, classes, real) == 8
    masked = nn.MaskedLanguageModel(nn.EncoderConfig(9, 8, 2, 1, 12, **SMALL), rng).eval()
    targets = np.where(rng.random((2, 5)) < 0.5, ids, -100)
    expected = mg.cross_entropy(masked(ids)[targets >= 0], targets[targets >= 0])
    assert masked.loss(ids, targets).item() == pytest.approx(expected.item(), rel=1e-12)
    assert masked.output.weight is masked.embedding.tokens.weight
    first = nn.EncoderClassifier(
        nn.EncoderConfig(9, 8, 2, 1, 12, pool="first", **options), rng
    ).eval()
    np.testing.assert_array_equal(first(ids).data, first.output(first.hidden(ids)[:, 0]).data)


def test_encoder_layer_alone_equals_shared_layers() -> None:
    rng = np.random.default_rng(0)
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, dtype=float, generator=rng)
    x = rng.standard_normal((2, 3, 8))
    later = x.copy()
    later[:, 2] += 1
    np.testing.assert_allclose(
        layer(x, is_causal=True).data[:, :2], layer(later, is_causal=True).data[:, :2]
    )
    model = nn.EncoderModel(nn.EncoderConfig(9, 8, 2, 3, 12, shared_layers=True, **SMALL), rng)
    assert len(model.encoder.layers) == 1
    expected: Any = x
    for _ in range(3):
        expected = model.encoder.layers[0](expected)
    np.testing.assert_array_equal(model.encoder(x).data, expected.data)
    with pytest.raises(
        ValueError, match="norm must be 'layer', 'rms' or 'rms_zero_centred', got 'batch'"
    ):
        nn.TransformerEncoderLayer(8, 2, 12, norm="batch")


# -- several threads -----------------------------------------------------------------------------------------------


def test_model_in_eight_threads_equals_one_thread() -> None:
    """Evaluation mode and recording are local to a thread; the mode of the model is kept."""
    model = nn.Transformer(
        nn.TransformerConfig(9, 9, 8, 2, 1, 1, 12, dropout=0.5, max_len=12, dtype="float64")
    )
    name = "encoder.layers.0.self_attention"
    sources = [np.random.default_rng(i).integers(3, 9, (2, 3 + i % 3)) for i in range(8)]
    expected = [
        [h.tokens for h in nn.greedy_search(model, s, max_len=9, eos=None)] for s in sources
    ]

    def work(i: int) -> tuple[Any, list[tuple[int, ...]], bool]:
        found, shapes = None, []
        for _ in range(5):
            with nn.record_attention(model) as recorded:
                found = [h.tokens for h in nn.greedy_search(model, sources[i], max_len=9, eos=None)]
            shapes += [w.shape for w in recorded[name]]
        return found, shapes, model.training

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(work, range(8)))
    for i, (found, shapes, training) in enumerate(done):
        assert found == expected[i] and training
        assert shapes == [(2, 2, sources[i].shape[1], sources[i].shape[1])] * 5


def test_evaluating_holds_in_its_context_only() -> None:
    dropout = nn.Dropout(0.5)
    x = np.ones(1000, np.float32)
    with nn.evaluating():
        assert not dropout.training and (dropout(x).data == 1).all()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lambda: dropout.training).result()
        dropout.train()
        assert not dropout.training
    assert dropout.training and not (dropout(x).data == 1).all()
    dropout.eval()
    assert not dropout.training
