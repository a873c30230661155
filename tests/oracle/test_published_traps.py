"""Forms of published files that run and give wrong results if they are misread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.published import (
    assert_same_outputs,
    load_theirs,
    make,
    read_settings,
    torch,
    transformers,
    write_settings,
)
from support.published_settings import VOCAB

import nn
from minigrad.io.safetensors import SafetensorsFile, write_safetensors

IDS = np.random.default_rng(5).integers(3, 48, (2, 12))
HEAD = np.random.default_rng(0).standard_normal((VOCAB, 16)).astype(np.float32)


def add_arrays(directory: Path, arrays: dict[str, np.ndarray]) -> None:
    """Add arrays to model.safetensors."""
    path = directory / "model.safetensors"
    file = SafetensorsFile(path)
    write_safetensors(path, {name: file.read(name) for name in file} | arrays, {"format": "pt"})


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gpt2", {"activation_function": "gelu"}), ("gemma", {"hidden_act": "silu"}),
    ],
)  # fmt: skip
def test_load_of_variant_gives_logits_of_transformers(
    tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    assert_same_outputs(make(name, tmp_path, **changes), nn.load(tmp_path))


def test_load_of_mpnet_reads_every_bucket_of_distances(tmp_path: Path) -> None:
    theirs = make("mpnet", tmp_path, max_position_embeddings=302)
    ids = np.tile(IDS[:1], 25)
    expected = theirs(torch.tensor(ids))[0].numpy(force=True)
    np.testing.assert_allclose(nn.load(tmp_path)(ids).data, expected, 1e-5, 2e-5)


@pytest.mark.parametrize("beside", [False, True], ids=["inside", "beside"])
@pytest.mark.parametrize(
    "scaling",
    [
        {"type": "linear", "factor": 2.0},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.3},
    ],
)  # fmt: skip
def test_load_with_older_rope_scaling_equals_today(
    tmp_path: Path, scaling: dict[str, Any], beside: bool
) -> None:
    """`rope_theta` and `rope_scaling` instead of `rope_parameters`; `nn.save` writes them back."""
    kind = scaling.get("rope_type", "linear")
    length = {} if kind == "linear" else {"original_max_position_embeddings": 16}
    today = {"rope_theta": 5e4, **scaling, "rope_type": kind, **length}
    theirs = make("llama", tmp_path, rope_parameters=today)
    settings = read_settings(tmp_path)
    del settings["rope_parameters"]
    settings |= {"rope_theta": 5e4, "torch_dtype": settings.pop("dtype")}
    settings |= (
        {"rope_scaling": scaling, **length} if beside else {"rope_scaling": scaling | length}
    )
    write_settings(tmp_path, settings)
    ours = nn.load(tmp_path)
    assert_same_outputs(theirs, ours)
    nn.save(tmp_path / "again", ours)
    assert read_settings(tmp_path / "again") == settings


@pytest.mark.parametrize(
    ("name", "older"),
    [
        ("gemma2", {"rope_theta": 500.0, "sliding_window_size": 4}),
        ("gemma3_text", {"rope_theta": 5e4, "rope_local_base_freq": 50.0, "sliding_window_pattern": 2}),
        ("gemma3_text", {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "sliding_window_pattern": 2}),
        ("gemma3_text, encoder", {"rope_theta": 5e4, "rope_local_base_freq": 50.0, "sliding_window": 5}),
        ("modernbert", {"global_rope_theta": 5e4, "local_rope_theta": 50.0, "global_attn_every_n_layers": 2}),
        ("modernbert", {"local_attention": 5}),
    ],
)  # fmt: skip
def test_load_with_older_keys_of_two_kinds_of_layers_equals_transformers(
    tmp_path: Path, name: str, older: dict[str, Any]
) -> None:
    theirs = make(name, tmp_path)
    settings = read_settings(tmp_path)
    for key in ("rope_parameters", "layer_types"):
        del settings[key]
    write_settings(tmp_path, settings | older)
    assert_same_outputs(load_theirs(type(theirs), tmp_path), nn.load(tmp_path))


def test_roberta_with_padding_inside_a_row_gives_logits_of_transformers(tmp_path: Path) -> None:
    theirs, ids = make("roberta, masked", tmp_path), IDS.copy()
    ids[0, 4] = 1
    expected = theirs(torch.tensor(ids), attention_mask=torch.tensor(ids != 1).long()).logits
    found = nn.load(tmp_path)(ids, ids != 1).data
    np.testing.assert_allclose(found[ids != 1], expected.numpy(force=True)[ids != 1], 1e-5, 2e-5)


def test_t5_with_head_of_its_own_does_not_scale_the_decoder(tmp_path: Path) -> None:
    """Files of v1.1 and FLAN: `lm_head` in the file, and `tie_word_embeddings` false."""
    theirs = make("t5, gated", tmp_path)
    add_arrays(tmp_path, {"lm_head.weight": HEAD})
    settings = read_settings(tmp_path) | {"tie_word_embeddings": False}
    settings.pop("scale_decoder_outputs", None)
    write_settings(tmp_path, settings)
    ours, target = nn.load(tmp_path), IDS[:, :5]
    memory = theirs.encoder(torch.tensor(IDS))[0]
    hidden = theirs.decoder(torch.tensor(target), encoder_hidden_states=memory)[0]
    expected = hidden.numpy(force=True) @ HEAD.T
    np.testing.assert_allclose(ours(IDS, target).data, expected, 1e-5, 2e-5)


def test_load_of_older_gpt_neox_reads_its_rotary_settings_and_buffers(tmp_path: Path) -> None:
    theirs = make("gpt_neox", tmp_path)
    settings = read_settings(tmp_path) | {"rotary_pct": 0.5, "rotary_emb_base": 500}
    del settings["rope_parameters"]
    write_settings(tmp_path, settings)
    layer = "gpt_neox.layers.1.attention"
    add_arrays(tmp_path, {
        f"{layer}.bias": np.tri(40, dtype=bool)[None, None],
        f"{layer}.masked_bias": np.float32(-1e9)[None],
        f"{layer}.rotary_emb.inv_freq": np.ones(2, np.float32),
    })  # fmt: skip
    again = type(theirs).from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert_same_outputs(again, nn.load(tmp_path))


def test_save_and_load_in_shards_equal_transformers(tmp_path: Path) -> None:
    theirs, again = make("gpt2"), tmp_path / "again"
    theirs.save_pretrained(tmp_path, max_shard_size="4KB")
    ours = nn.load(tmp_path)
    assert_same_outputs(theirs, ours)
    nn.save(again, ours, max_shard_size="4KB")
    for directory in (tmp_path, again):
        assert len(list(directory.glob("model-*-of-*.safetensors"))) > 2
    assert_same_outputs(load_theirs(type(theirs), again), ours)


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_saved_classifier_of_bare_encoder_is_read_by_transformers(
    tmp_path: Path, name: str
) -> None:
    make(name, tmp_path / "bare")
    ours = nn.load(tmp_path / "bare", head="classes", num_classes=4)
    nn.save(tmp_path / "classes", ours)
    theirs = load_theirs(transformers.AutoModelForSequenceClassification, tmp_path / "classes")
    assert theirs.config.num_labels == 4
    assert_same_outputs(theirs, ours)


LLAMA: dict[str, Any] = {
    "norm": "rms", "norm_eps": 1e-6, "gated": True, "activation": "silu", "bias": False,
    "positions": "rotary",
}  # fmt: skip
MARIAN: dict[str, Any] = {"positions": "sinusoidal_halves"}
BERT: dict[str, Any] = {
    "positions": "learned", "embeddings": nn.EmbeddingConfig(scale=False, norm=True),
    "activation": "gelu", "norm_eps": 1e-12, "num_types": 2,
}  # fmt: skip
SIZES = (VOCAB, 16, 4, 2, 32)
PAIR_SIZES = (VOCAB, VOCAB, 16, 4, 2, 3, 32)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("GPT2LMHeadModel", nn.LanguageModel(nn.LanguageModelConfig(*SIZES))),
        ("LlamaForCausalLM", nn.LanguageModel(nn.DecoderOnlyConfig(
            *SIZES, attention=nn.AttentionConfig(num_kv_heads=2, bias="vkqo"), tie=False, **LLAMA))),
        ("MarianMTModel", nn.Transformer(nn.EncoderDecoderConfig(*PAIR_SIZES, **MARIAN))),
        ("MarianMTModel", nn.Transformer(nn.EncoderDecoderConfig(*PAIR_SIZES, tie="target", **MARIAN))),
        ("MarianMTModel", nn.Transformer(nn.EncoderDecoderConfig(*PAIR_SIZES, tie="all", **MARIAN))),
        ("BertForTokenClassification", nn.TokenClassifier(nn.EncoderConfig(*SIZES, num_classes=3, **BERT))),
    ],
)  # fmt: skip
def test_saved_model_trained_here_is_read_by_transformers(
    tmp_path: Path, name: str, ours: nn.Module
) -> None:
    for parameter in ours.parameters():
        parameter.data[...] += 0.1 * np.random.default_rng(1).standard_normal(parameter.shape)
    nn.save(tmp_path, ours.eval())
    assert read_settings(tmp_path)["architectures"] == [name]
    assert_same_outputs(load_theirs(getattr(transformers, name), tmp_path), ours)
