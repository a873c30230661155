"""All models: first loss, padding, descriptions in JSON, and threads."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import minigrad as mg
import nn
from nn import models
from nn.block import InputEmbedding
from nn.layers import TrailingNorm
from nn.options.padding import warn_of_batch
from nn.published.weights import load_model, model_to_dict

SMALL: dict[str, Any] = {"dropout": 0.0, "max_len": 24, "dtype": "float64"}
IDS = np.array([[4, 5, 6, 0], [4, 5, 6, 7]])


def language_model(layers: int = 2, **options: Any) -> nn.LanguageModel:
    config = nn.DecoderOnlyConfig(13, 16, 4, layers, 24, **{**SMALL, **options})
    return nn.LanguageModel(config, np.random.default_rng(0))


def encoder_config(layers: int = 1, **options: Any) -> nn.EncoderConfig:
    return nn.EncoderConfig(9, 8, 2, layers, 12, **SMALL, **options)


def transformer(**options: Any) -> nn.Transformer:
    config = nn.EncoderDecoderConfig(9, 9, 8, 2, 1, 1, 12, **{**SMALL, **options})
    return nn.Transformer(config, np.random.default_rng(0))


@pytest.mark.parametrize(
    "options",
    [{}, {"positions": "rotary", "norm": "rms"}, {"embeddings": nn.EmbeddingConfig(scale=True)}],
    ids=str,
)
def test_language_model_loss_starts_near_ln_v(options: dict[str, Any]) -> None:
    config = nn.DecoderOnlyConfig(2000, 256, 4, 2, 512, **options)
    loss = nn.LanguageModel(config).loss(np.random.default_rng(1).integers(0, 2000, (4, 30)))
    assert loss.item() == pytest.approx(np.log(2000), abs=0.35)


class CountingGenerator(np.random.Generator):
    """Generator that counts the numbers it draws."""

    count = 0

    def uniform(self, low: Any, high: Any, size: Any) -> Any:
        self.count += np.prod(size)
        return super().uniform(low, high, size)

    def normal(self, mean: Any, std: Any, size: Any) -> Any:
        self.count += np.prod(size)
        return super().normal(mean, std, size)


class OwnModel(nn.EncoderClassifier):
    """A model with a constructor of its own."""

    def __init__(self, config: nn.EncoderConfig, generator: Any) -> None:
        super().__init__(config, generator)


@pytest.mark.parametrize(
    "model,config",
    [
        (nn.Transformer, nn.TransformerConfig(9, 9, 8, 2, 1, 1, 12)),
        (nn.Transformer, nn.EncoderDecoderConfig(9, 9, 8, 2, 1, 2, 12, tie="target")),
        (nn.LanguageModel, nn.LanguageModelConfig(13, 16, 4, 2, 24)),
        (nn.LanguageModel, nn.LanguageModelConfig(13, 16, 4, 2, 24, tie=False, output_bias=True)),
        (nn.EncoderClassifier, encoder_config(2, num_classes=3)),
        (nn.TokenClassifier, encoder_config(2, num_classes=3)),
        (nn.MaskedLanguageModel, encoder_config()),
        (
            nn.EncoderClassifier,
            encoder_config(
                2,
                num_classes=3,
                num_types=2,
                gated=True,
                positions="learned_relative",
                head_activation="tanh",
                embeddings=nn.EmbeddingConfig(scale=True, size=4),
            ),
        ),
        (nn.LanguageModel, nn.DecoderOnlyConfig(13, 16, 4, 2, 24, positions="relative")),
        (OwnModel, encoder_config(num_classes=3)),
    ],
)
def test_model_draws_each_weight_once_by_xaviers_rule(model: Any, config: Any) -> None:
    generator = CountingGenerator(np.random.PCG64(0))
    made = model(config, generator)
    assert generator.count == sum(p.size for p in made.parameters() if p.data.std() > 0)
    tables = [m.weight for m in made.modules() if isinstance(m, nn.Embedding)]
    for layer in (m for m in made.modules() if isinstance(m, nn.Linear)):
        assert layer.bias is None or not layer.bias.data.any()
        if not any(layer.weight is table for table in tables):
            bound = np.sqrt(6 / sum(layer.weight.shape))
            assert 0.8 * bound < np.abs(layer.weight.data).max() <= bound


@pytest.mark.parametrize("norm_after", [False, True])
@pytest.mark.parametrize("layers", [0, 1])
def test_model_without_layers_or_a_first_norm_normalizes_its_embeddings(
    layers: int, norm_after: bool
) -> None:
    model = language_model(layers, first_norm=False, norm_after=norm_after, norm_first=True)
    assert len(model.layers.layers) == layers
    x = model.layers.norm(model.embedding(IDS[1:])).data
    assert np.array_equal(model.hidden(IDS[1:]).data, x) == (layers == 0)


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
def test_load_run_rebuilds_the_model_and_draws_nothing(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    model = make()
    nn.save_weights(tmp_path / "w.safetensors", model)
    before = mg.get_rng_state()
    again = nn.load_run(tmp_path / "w.safetensors")
    assert mg.get_rng_state() == before
    assert type(again) is type(model)
    assert again.config == model.config
    arguments = [IDS] * (2 if isinstance(model, nn.Transformer) else 1)
    np.testing.assert_array_equal(again.eval()(*arguments).data, model.eval()(*arguments).data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"model": "Perceiver"}, "model must be 'Transformer', 'LanguageModel', 'Enc.*, got 'Perceiver'"),
        ({"model": "LanguageModel", "heads": 3}, "unknown settings: heads; expected some of"),
        ({"model": "LanguageModel", "vocab_size": 9, "d_model": 8.5}, "d_model must be an integer, got 8.5"),
    ],
)  # fmt: skip
def test_load_model_of_other_data_raises(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^config.json: {message}"):
        load_model(data, "config.json", None)


def test_model_to_dict_of_a_layer_raises() -> None:
    with pytest.raises(TypeError, match="model must be one of Transformer, .* got Linear"):
        model_to_dict(nn.Linear(2, 2))


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


@pytest.mark.parametrize(("pad", "ends"), [(0, (2, 0)), (0, 0), (None, 0), (1, 0), (0, None)])
@pytest.mark.parametrize(
    "ids",
    [[[0, 0]], [[0]], [[0, 1]], [[0, 0, 1]], [[1, 0, 0]], [[0, 1, 0]], [[1, 0, 1]], [[1, 1, 1], [0, 0, 1]], [[0, 0, 2, 1], [0, 1, 0, 2]]],
)  # fmt: skip
def test_rows_that_begin_or_end_with_two_tokens_of_padding_warn(
    ids: Any, pad: int | None, ends: Any
) -> None:
    """Only if the padding token also ends sequences, and a batch has no mask."""
    model, ids = language_model(pad_id=pad, eos_id=ends), np.array(ids)
    both = [pad, pad]
    expected = pad == 0 and ends is not None and any(
        row[:2] == both or row[-2:] == both for row in ids.tolist()
    )  # fmt: skip
    for batch, warns in (
        ((ids,), expected), ((np.ones(3), ids[0], ids), expected), ((ids, ids > 0), False), ((ids, ids, None, ids > 0), False),
        ((ids.astype(float),), False), ((ids[..., None] * [1, 1],), False),
        ((ids.astype(np.uint8),), expected),
    ):  # fmt: skip
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_of_batch(model, batch)
        assert len(caught) == warns
        assert not warns or re.match(
            r"LanguageModel: padding is .* pad_id \(0\)", str(caught[0].message)
        )


def test_classifier_of_a_row_of_padding_is_finite() -> None:
    model = nn.EncoderClassifier(encoder_config(num_classes=3), np.random.default_rng(0))
    model.output.bias.data[...] = [1, 2, 3]
    mask = np.array([[True, True, False, False], [False] * 4])
    y = model(IDS, mask)
    assert y[1].tolist() == [1, 2, 3]
    np.testing.assert_allclose(y[0].data, model(IDS[:1, :2])[0].data, rtol=1e-9)
    loss = model.loss(IDS, [0, 1], mask)
    loss.backward()
    assert all(np.isfinite(p.grad.data).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("has_bias", [True, False])
def test_masked_model_has_the_biases_of_its_configuration(has_bias: bool) -> None:
    for options in ({"output_bias": has_bias}, {"bias": has_bias}):
        model = nn.MaskedLanguageModel(encoder_config(**options))
        assert (model.output.bias is not None) == options.get("output_bias", True)
        assert (model.dense.bias is not None) == options.get("bias", True)
    tags = nn.TokenClassifier(encoder_config(num_classes=3, head_activation="gelu", bias=has_bias))
    assert (tags.dense.bias is not None) == has_bias and tags.output.bias is not None


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_all_norms_of_a_model_have_the_settings_of_its_configuration(kind: str) -> None:
    options: dict[str, Any] = {
        "norm": kind,
        "norm_eps": 0.25,
        "norm_first": True,
        "norm_after": True,
    }
    encoder = encoder_config(
        embeddings=nn.EmbeddingConfig(scale=True, norm=True), attention=nn.AttentionConfig(qk_norm=True),
        head_activation="tanh", head_norm=True, num_classes=3, **options,
    )  # fmt: skip
    models = [nn.MaskedLanguageModel(encoder), nn.TokenClassifier(encoder), transformer(**options)]
    for model, count in zip(models, (9, 9, 12)):
        norms = [m for m in model.modules() if isinstance(m, TrailingNorm)]
        assert len(norms) == count and {m.eps for m in norms} == {0.25}
        names = [type(m).__name__ for m in norms if m.normalized_shape == (8,)]
        assert {*names} == {"LayerNorm" if kind == "layer" else "RMSNorm"}


@pytest.mark.parametrize("letters", ["", "q", "k", "v", "o", "qo", "kv", "qkv", "ovkq"])
def test_biases_of_attentions_are_those_of_their_letters(letters: str) -> None:
    model = transformer(attention=nn.AttentionConfig(bias=letters))
    for layer in (model.encoder.layers[0].self_attention, model.decoder.layers[0].cross_attention):
        found = {name for name in "qkv" if getattr(layer, f"{name}_proj").bias is not None}
        assert found | ({"o"} if layer.out_proj.bias is not None else set()) == {*letters}


@pytest.mark.parametrize("after", [True, False])
def test_model_without_a_first_norm_keeps_the_others(after: bool) -> None:
    options = {"norm_first": True, "norm_after": after}
    plain, model = (language_model(first_norm=first, **options) for first in (True, False))
    name = "layers.layers.0.norm1" + ".before" * after
    assert plain.state_dict().keys() - model.state_dict().keys() == {
        f"{name}.weight",
        f"{name}.bias",
    }
    assert model.state_dict().keys() < plain.state_dict().keys()


def test_encoder_refuses_types_masks_and_targets_that_do_not_fit() -> None:
    model = nn.TokenClassifier(encoder_config(num_classes=3, num_types=2))
    with pytest.raises(ValueError, match=r"types must have shape \(2, 4\), got \(4,\)"):
        model(IDS, types=np.zeros(4, int))
    with pytest.raises(
        ValueError, match="num_classes must be at least 2 for a cross-entropy, got 1"
    ):
        nn.EncoderClassifier(encoder_config(num_classes=1)).loss(IDS, [0, 0])
    config = nn.EncoderConfig(
        d_model=8, num_heads=2, d_ff=8, image_size=4, patch_size=2, num_channels=1, num_classes=2
    )
    images = nn.EncoderClassifier(config)
    with pytest.raises(ValueError, match="padding_mask must be None for images"):
        images(np.zeros((2, 1, 4, 4)), np.ones((2, 5), bool))
    assert images(np.zeros((2, 1, 4, 4))).shape == (2, 2) and config.max_len == 5
    with pytest.raises(ValueError, match="MaskedLanguageModel: patch_size must be 0, got 2"):
        nn.MaskedLanguageModel(config)


def test_padding_mask_of_another_dtype_raises() -> None:
    message = r"padding_mask must be booleans \(2, 4\), True = a real token, got"
    with pytest.raises(ValueError, match=message):
        language_model()(IDS, np.ones((2, 4)))
    with pytest.raises(
        ValueError, match="target_mask must be booleans .*, True = a token to predi"
    ):
        language_model().loss(IDS, target_mask=np.ones((2, 4)))


@pytest.mark.parametrize("tokens", [1, [1], [1.5], [[]], [[1, 2], [3]], [np.array(1), np.array(2)]])
def test_decode_with_tokens_that_are_no_rows_raises(tokens: Any) -> None:
    with pytest.raises(ValueError, match="tokens must "):
        nn.decode(transformer(), tokens, IDS)


def test_positions_count_the_real_tokens_before() -> None:
    for row in itertools.product([False, True], repeat=4):
        masks = np.array([[True] * 4, row])
        positions = models.positions_of(masks)
        positions = positions if np.ndim(positions) else np.tile(positions + np.arange(4), (2, 1))
        for mask, found in zip(masks, positions):
            assert found[mask].tolist() == [*range(mask.sum())] and found.min() >= 0


@pytest.mark.parametrize("kind", [nn.TransformerConfig, nn.EncoderDecoderConfig])
def test_mask_of_a_decoder_is_beside_causality(kind: Any) -> None:
    """A decoder has no positions itself: a hidden one is as if it were left out."""
    config = kind(9, 9, 8, 2, 1, 2, 8)
    decoder = nn.Transformer(config, np.random.default_rng(0)).eval().decoder
    x, memory = np.random.default_rng(1).standard_normal((2, 2, 4, 8)).astype(np.float32)
    mask = np.ones((4, 4), bool)
    mask[2:, 1] = False
    y, others = decoder(x, memory, mask).data, decoder(x[:, [0, 2, 3]], memory).data
    np.testing.assert_allclose(y[:, [0, 2, 3]], others, rtol=1e-5, atol=1e-6)
    assert not np.allclose(y, decoder(x, memory).data, atol=1e-3)


@pytest.mark.parametrize("shape", [(2, 1), (1, 4), (4,), (2, 5), (2, 4, 1)])
@pytest.mark.parametrize("padded", [False, True])
def test_targets_and_types_are_not_broadcast(shape: tuple[int, ...], padded: bool) -> None:
    ids, mask = np.full((2, 4), 5), np.ones((2, 4), bool)
    mask[1, 3] = not padded
    other = np.zeros(shape, np.int64)
    for model in (
        nn.TokenClassifier(encoder_config(num_classes=3, num_types=2)),
        nn.MaskedLanguageModel(encoder_config(num_types=2)),
    ):
        assert model.loss(ids, np.zeros_like(ids), mask, np.zeros_like(ids)).item() > 0
        with pytest.raises(ValueError, match=r"target must have shape \(2, 4\), got"):
            model.loss(ids, other, mask)
        with pytest.raises(ValueError, match=r"types must have shape \(2, 4\), got"):
            model(ids, mask, other)


def test_transformer_with_batches_of_different_sizes_raises() -> None:
    model, target = transformer(), np.full((3, 6), 5)
    with pytest.raises(ValueError, match=r"target must have as many .* as source \(2\), got 3"):
        model.loss(IDS, target)
    with pytest.raises(ValueError, match=r"memory must have as many .* as target \(3\), got 2"):
        model.decode(target, model.encode(IDS))


# -- the Transformer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rotary", "sinusoidal", "learned", "relative", "alibi"])
def test_source_after_padding_has_the_positions_of_one_without(kind: str) -> None:
    model = transformer(positions=kind).eval()
    alone, target = np.array([[4, 5, 6]]), [[1, 7], [1, 7]]
    padded = np.array([[0, 0, 4, 5, 6], [4, 5, 6, 0, 0]])
    for rows, part in ((slice(0, 1), slice(2, None)), (slice(1, 2), slice(0, 3))):
        found = model.encode(padded).data[rows, part]
        np.testing.assert_allclose(found, model.encode(alone).data, rtol=1e-9)
    expected = model(alone, target[:1]).data
    for row in model(padded, target).data:
        np.testing.assert_allclose(row, expected[0], rtol=1e-9)
    if kind not in ("relative", "alibi"):  # which measure distances between all tokens
        inside = model.encode([[4, 0, 5, 6]]).data[:, [0, 2, 3]]
        np.testing.assert_allclose(inside, model.encode(alone).data, rtol=1e-9)


@pytest.mark.parametrize(
    ("attention", "inner"), [(None, None), (0.0, None), (None, 0.25), (None, 0.0)]
)
def test_transformer_dropouts_override_dropout(attention: Any, inner: float | None) -> None:
    options = {"attention": nn.AttentionConfig(dropout=attention), "activation_dropout": inner}
    layer = transformer(dropout=0.5, **options).decoder.layers[0]
    found = [layer.self_attention.dropout, layer.feed_forward.dropout, layer.dropout.p]
    assert found == [0.5 if p is None else p for p in (attention, inner, 0.5)]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([[4, 9]], [[4]], "indices must be from 0 to 8, got 4 to 9"),
        (np.zeros((1, 0), int), [[4]], "source must have at least one token in each sequence, got"),
        ([4, 5], [[4]], r"source must be integer token ids \(N, L\), got int\d+ \(2,\)"),
        ([[4]], [[4] * 25], "x must have at most 24 positions, got 25"),
        ([[True]], [[4]], r"source must be integer token ids \(N, L\), got bool"),
        ([[4]], [[1.0]], r"target must be integer token ids \(N, L\), got float64"),
    ],
)
def test_transformer_bad_ids_raise(source: Any, target: Any, message: str) -> None:
    with pytest.raises((ValueError, IndexError), match=message):
        transformer()(source, target)


def test_record_attention_records_calls_inside_its_block() -> None:
    model = transformer().eval()
    with nn.record_attention(model) as recorded:
        model(IDS, IDS)
    model(IDS, IDS)
    assert [len(calls) for calls in recorded.values()] == [1] * 3


# -- several threads -----------------------------------------------------------------------------------------------


def test_evaluating_holds_in_its_context_only() -> None:
    dropout, x = nn.Dropout(0.5), np.ones(1000, np.float32)
    with nn.evaluating():
        assert not dropout.training and (dropout(x).data == 1).all()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lambda: dropout.training).result()
        dropout.train()
        assert not dropout.training
        with nn.evaluating():
            pass
        assert not dropout.training
    assert dropout.training


@pytest.mark.parametrize("kind", [nn.Transformer, nn.LanguageModel, nn.EncoderClassifier])
@pytest.mark.parametrize("config", [3, {}, nn.ModelConfig], ids=repr)
def test_model_of_another_config_raises(kind: Any, config: Any) -> None:
    name = kind.__name__
    others = [nn.TransformerConfig, nn.LanguageModelConfig, nn.EncoderConfig]
    message = rf"^{name}: config must be a \w+Config, got .*; write nn.{name}\(nn.\w+Config\("
    for other in (config, *[c() for c in others if not issubclass(c, kind.config_class)]):
        with pytest.raises(TypeError, match=message):
            kind(other)


class Gate:
    """A layer that multiplies the output of each sublayer by a learned gate."""

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)  # type: ignore[call-arg]
        self.gate = nn.Parameter(np.zeros(1, "float32"))

    def residual(self, x: Any, norm: Any, sublayer: Any, *onto: Any, **options: Any) -> Any:
        gated = lambda h: self.gate * sublayer(h)
        return super().residual(x, norm, gated, *onto, **options)  # type: ignore[misc]


class GatedLayer(Gate, nn.TransformerEncoderLayer):
    """Test a model of the paper's options."""


class ExtendedGatedLayer(Gate, nn.ExtendedEncoderLayer):  # type: ignore[misc]
    """Test a model of all options."""


class GatedConfig(nn.LanguageModelConfig):
    parts: ClassVar[Any] = {nn.TransformerEncoderLayer: GatedLayer}


class ExtendedGatedConfig(nn.DecoderOnlyConfig):
    parts: ClassVar[Any] = {
        **nn.DecoderOnlyConfig.parts,
        nn.TransformerEncoderLayer: ExtendedGatedLayer,
    }


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (GatedConfig, {}),
        (ExtendedGatedConfig, {"parallel": False}),
        (ExtendedGatedConfig, {"parallel": True}),
    ],
)
def test_layer_of_ones_own_changes_every_sublayer_of_a_model(
    kind: Any, options: dict[str, bool]
) -> None:
    config = kind(9, 8, 2, 2, 16, dropout=0.0, **options)
    model = nn.LanguageModel(config)
    ids = np.array([[3, 4, 5, 6]])
    layers = [*model.layers.layers]
    x = mg.Tensor(np.random.default_rng(0).standard_normal((1, 4, 8)).astype("float32"))
    for layer in layers:  # whose gates are closed
        np.testing.assert_array_equal(layer(x).data, x.data)
        layer.gate.data[:] = 0.5
    for copy in (model, nn.for_inference(model)):
        assert all(isinstance(layer, Gate) for layer in copy.layers.layers)
        np.testing.assert_allclose(copy(ids).data, model(ids).data, rtol=1e-5)
    model.loss(ids).backward()
    assert all(np.any(layer.gate.grad.data) for layer in layers)


@pytest.mark.parametrize("size", [None, 16])
@pytest.mark.parametrize(("scale", "std"), [(True, 0.125), (0.5, 0.125), (False, 1.0), (1.0, 1.0)])
def test_initial_embeddings_have_the_size_that_their_factor_needs(
    scale: Any, std: float, size: int | None
) -> None:
    """Vaswani et al. (2017), section 3.4: sqrt(d_model) times the weights has size 1."""
    embeddings = nn.EmbeddingConfig(scale=scale, size=size)
    config = nn.DecoderOnlyConfig(500, 64, 2, 1, 8, tie=False, embeddings=embeddings)
    weight = nn.LanguageModel(config, np.random.default_rng(0)).embedding.tokens.weight.data
    assert np.std(weight[1:]) == pytest.approx(std, rel=0.05)


@pytest.mark.parametrize("tie", ["none", "target", "all", "embeddings"])
def test_initial_weights_of_tied_tables_are_those_of_embeddings(tie: Any) -> None:
    """Xavier's rule holds for the output projection that is not one of the tables."""
    config = nn.EncoderDecoderConfig(500, 500, 64, 2, 1, 1, 8, tie=tie)
    model = nn.Transformer(config, np.random.default_rng(0))
    for table in (model.source_embedding, model.target_embedding):
        assert np.std(table.tokens.weight.data[1:]) == pytest.approx(0.125, rel=0.05)
    std = 0.125 if tie in ("target", "all") else math.sqrt(2 / 564)
    assert np.std(model.output.weight.data) == pytest.approx(std, rel=0.05)
    for width, std in ((64, 0.02), (256, 2 / 256)):  # so that first logits are small
        config = nn.DecoderOnlyConfig(500, width, 2, 1, 8)
        tied = nn.LanguageModel(config, np.random.default_rng(0))
        assert np.std(tied.output.weight.data) == pytest.approx(std, rel=0.05)


BOOK = {"d_model": 8, "num_heads": 2, "d_ff": 8, "max_len": 7}
PAIR = {
    "source_vocab_size": 9,
    "target_vocab_size": 9,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
}
ALONE = {"vocab_size": 9, "num_layers": 1}


@pytest.mark.parametrize(
    ("positions", "dtype"), [("sinusoidal", "float16"), ("learned", "float64")]
)
@pytest.mark.parametrize(
    ("kind", "make", "sizes"),
    [(nn.Transformer, nn.TransformerConfig, PAIR), (nn.Transformer, nn.EncoderDecoderConfig, PAIR),
     (nn.LanguageModel, nn.LanguageModelConfig, ALONE), (nn.LanguageModel, nn.DecoderOnlyConfig, ALONE)],
)  # fmt: skip
def test_tables_of_a_model_have_the_settings_of_its_configuration(
    kind: Any, make: Any, sizes: Any, positions: str, dtype: str
) -> None:
    """A padding token that also ends sequences is trained."""
    for ends in (2, (3, 0)):
        config = make(**BOOK, **sizes, pad_id=0, eos_id=ends, positions=positions, dtype=dtype)
        model = kind(config, np.random.default_rng(0))
        assert {a.dtype for a in model.state_dict().values()} == {np.dtype(dtype)}
        parts = [m for m in model.modules() if isinstance(m, InputEmbedding)]
        assert len(parts) == (2 if kind is nn.Transformer else 1)
        for part in parts:
            assert part.tokens.padding_idx == (0 if ends == 2 else None)
            assert part.positions.weight.shape == (7, 8) and part.positions.weight.dtype == dtype
            assert part.positions.max_len == 7


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("std", [None, 0.0, 0.1])
def test_embedding_of_the_book_has_any_scale_and_spread(scale: float, std: float | None) -> None:
    config = nn.LanguageModelConfig(900, 8, 2, 1, 8, max_len=5)
    embed = InputEmbedding(config, 900, np.random.default_rng(0), scale=scale, std=std).eval()
    expected = 1 / scale if std is None else std
    assert embed.tokens.weight.data.std() == pytest.approx(expected, rel=0.05)
    x = embed.tokens([[4, 5]]).data * scale + embed.positions.weight.data[:2]
    np.testing.assert_allclose(embed([[4, 5]]).data, x, rtol=1e-6)


def test_embedding_without_positions_begins_at_position_0() -> None:
    config = nn.DecoderOnlyConfig(9, 8, 2, 1, 8, positions="learned", max_len=5)
    embed = nn.LanguageModel(config, np.random.default_rng(0)).eval().embedding
    x = embed.tokens([[4, 5]]).data * embed.scale + embed.positions.weight.data[:2]
    np.testing.assert_allclose(embed([[4, 5]]).data, x, rtol=1e-6)


@pytest.mark.parametrize("num_types", [1, 3])
def test_embedding_adds_types_and_drops_before_its_projection(num_types: int) -> None:
    embeddings = nn.EmbeddingConfig(scale=False, size=64)
    options: dict[str, Any] = {"num_types": num_types, "positions": "none", "dropout": 0.5}
    config = nn.EncoderConfig(9, 8, 2, 1, 8, **options, embeddings=embeddings)
    embed: Any = nn.EncoderModel(config, np.random.default_rng(0)).eval().embedding
    assert embed.types.weight.data.all()  # none is padding
    ids = np.array([[3, 4, 5]])
    for types in (None, np.zeros_like(ids), np.full_like(ids, num_types - 1)):
        x = embed.tokens(ids) + embed.types.weight.data[0 if types is None else types]
        np.testing.assert_allclose(embed(ids, 0, types).data, embed.projection(x).data, rtol=1e-5)
    inputs: list[Any] = []
    embed.projection.register_forward_pre_hook(lambda module, args: inputs.append(args[0].data))
    assert embed.train()(ids).data.all() and 0.2 < (inputs[0] == 0).mean() < 0.8


class Doubled(nn.Linear):
    def forward(self, x: Any) -> Any:
        return super().forward(x) * 2


@pytest.mark.parametrize("change", ["hook", "class"])
def test_loss_is_that_of_the_logits_of_any_output_projection(change: str) -> None:
    model = nn.LanguageModel(nn.LanguageModelConfig(9, 8, 2, 1, 8), np.random.default_rng(0)).eval()
    ids = np.array([[3, 4, 5, 6]])
    plain = model.loss(ids).item()
    if change == "class":
        model.output.__class__ = Doubled
    else:
        model.output.register_forward_hook(lambda module, args, y: y * 2)
    expected = mg.cross_entropy(model(ids)[:, :-1], ids[:, 1:]).item()
    assert model.loss(ids).item() == pytest.approx(expected, rel=1e-6) != plain


def test_padding_of_any_row_of_a_target_must_be_at_the_right() -> None:
    model = nn.Transformer(nn.TransformerConfig(9, 9, 8, 2, 1, 1, 8))
    source, target = np.array([[3, 4], [5, 6]]), np.array([[1, 3, 2], [1, 4, 2]])
    for mask in ([[1, 1, 1], [0, 1, 1]], [[1, 0, 1], [1, 1, 0]], [[0, 0, 1], [0, 0, 1]]):
        with pytest.raises(ValueError, match="target_mask must have its padding at the right"):
            model.loss(source, target, target_mask=np.array(mask, bool))
    assert model.num_targets(source, target, target_mask=np.tri(2, 3, 1, dtype=bool)) == 3


@pytest.mark.parametrize("norm", ["rms", "rms_zero_centred"])
def test_attentions_of_a_model_have_the_options_of_its_configuration(norm: str) -> None:
    attention = nn.AttentionConfig(
        num_kv_heads=1, head_dim=6, scale=0.3, bias="qo", qk_norm=True, softcap=0.7, window=2, dropout=0.25
    )  # fmt: skip
    options: dict[str, Any] = {"norm": norm, "norm_eps": 1e-4, "attention": attention}
    encoder = nn.EncoderModel(encoder_config(**options))
    for model in (transformer(**options), language_model(**options), encoder):
        for name, part in nn.attentions_of(model).items():
            assert (part.num_kv_heads, part.d_k, part.scale, part.softcap) == (1, 6, 0.3, 0.7)
            assert part.window == (None if "cross" in name else 2) and part.dropout == 0.25
            has_bias = [getattr(part, f"{x}_proj").bias is not None for x in ("q", "k", "v", "out")]
            assert has_bias == [True, False, False, True]
            for of_heads in (part.q_norm, part.k_norm):
                assert (of_heads.eps, of_heads.normalized_shape) == (1e-4, (6,))
                assert of_heads.zero_centred == (norm == "rms_zero_centred")


@pytest.mark.parametrize("windows", [None, (), (1,), (0, 2)])
def test_layers_without_rotation_have_none_with_or_without_a_window(windows: Any) -> None:
    positions = nn.PositionConfig(kind="rotary", rotary_window_base=50.0, no_rotary_layers=(1,))
    attention = nn.AttentionConfig(window=2, window_layers=windows)
    config = nn.DecoderOnlyConfig(9, 8, 2, 3, 8, positions=positions, attention=attention)
    layers = [layer.self_attention for layer in nn.LanguageModel(config).layers.layers]
    bases = [None if layer.rotary is None else layer.rotary.base for layer in layers]
    limited = range(3) if windows is None else windows
    assert bases == [None if i == 1 else 50.0 if i in limited else 10000.0 for i in range(3)]
    assert [layer.window for layer in layers] == [2 if i in limited else None for i in range(3)]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_shared_layer_is_made_once_and_called_at_every_depth(depth: int) -> None:
    config = nn.EncoderConfig(9, 8, 2, depth, 8, shared_layers=True)
    model = nn.EncoderModel(config)
    with nn.record_hidden(model) as states:
        model(np.array([[3, 4]]))
    assert len(model.encoder.layers) == min(depth, 1)
    assert [len(calls) for name, calls in states.items() if name != "embedding"] == [depth][:depth]


def test_relative_positions_of_a_decoder_look_back_only() -> None:
    config = nn.EncoderDecoderConfig(9, 9, 8, 2, 1, 1, 8, positions="relative")
    model = nn.Transformer(config)
    for stack, both in ((model.encoder, True), (model.decoder, False)):
        layer: Any = stack.layers[0]
        assert layer.self_attention.position_bias.bidirectional == both
    causal: Any = nn.LanguageModel(nn.DecoderOnlyConfig(9, 8, 2, 1, 8, positions="relative")).layers
    assert not causal.layers[0].self_attention.position_bias.bidirectional


def test_steps_of_several_tokens_after_padded_prompts_equal_the_full_pass() -> None:
    config = nn.LanguageModelConfig(9, 8, 2, 2, 8, dtype="float64")
    model = nn.LanguageModel(config, np.random.default_rng(0)).eval()
    prompts, following = np.array([[0, 0, 5, 6], [3, 4, 5, 6]]), np.array([[7, 8, 2], [4, 3, 5]])
    ids, real = np.concatenate([prompts, following], 1), np.arange(7) >= np.array([[2], [0]])
    state = model.start(real[:, :4])
    model.step(prompts, state)
    expected = model(ids, real).data[:, 4:]
    np.testing.assert_allclose(model.step(following, state, every=True), expected, rtol=1e-9)
