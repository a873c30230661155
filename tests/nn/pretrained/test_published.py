"""Directories of published models, without other libraries: loading, saving and errors."""

from __future__ import annotations

import json
import runpy
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nn
from minigrad.io.json import Settings
from minigrad.io.safetensors import SafetensorsFile, write_safetensors
from nn.models.config import check_sizes
from nn.pretrained import llama
from nn.pretrained.load import FAMILIES, new_origin, read_config

GPT2 = nn.LanguageModelConfig(30, 16, 4, 2, 32, max_len=20, bos_id=1, eos_id=2)
LLAMA = nn.LanguageModelConfig(
    30,
    16,
    4,
    2,
    32,
    max_len=20,
    norm="rms",
    norm_eps=1e-6,
    gated=True,
    activation="silu",
    bias=False,
    positions="rotary",
    attention=nn.AttentionConfig(num_kv_heads=2),
    tie=False,
)
ENCODER: dict[str, Any] = {
    "positions": "learned", "embeddings": nn.EmbeddingConfig(scale=False, norm=True), "activation": "gelu",
    "norm_eps": 1e-12,
    "max_len": 20,
}  # fmt: skip
BERT = nn.EncoderConfig(30, 16, 4, 2, 32, num_types=2, **ENCODER)
VIT = nn.EncoderConfig(
    d_model=16,
    num_heads=4,
    num_layers=2,
    d_ff=32,
    num_classes=3,
    pool="first",
    image_size=8,
    patch_size=4,
    norm_first=True,
    positions="learned",
    embeddings=nn.EmbeddingConfig(scale=False),
    activation="gelu",
    norm_eps=1e-12,
)
MARIAN = nn.TransformerConfig(
    30, 30, 16, 4, 2, 2, 32, tie="all", max_len=20, positions="sinusoidal_halves"
)
MADE: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: nn.LanguageModel(GPT2),
    "llama": lambda: nn.LanguageModel(LLAMA),
    "marian": lambda: nn.Transformer(MARIAN),
    "bert": lambda: nn.EncoderModel(BERT),
    "bert, masked": lambda: nn.MaskedLanguageModel(BERT),
    "bert, classes": lambda: nn.EncoderClassifier(
        nn.EncoderConfig(
            30,
            16,
            4,
            2,
            32,
            num_types=2,
            num_classes=3,
            pool="first",
            head_activation="tanh",
            **ENCODER,
        )
    ),
    "bert, tokens": lambda: nn.TokenClassifier(
        nn.EncoderConfig(30, 16, 4, 2, 32, num_types=2, num_classes=3, **ENCODER)
    ),
}


def vit() -> Any:
    """Return a model with the origin of a loaded one: models trained here are not saved as ViT."""
    model = nn.EncoderClassifier(VIT)
    settings = {
        "model_type": "vit", "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2,
        "intermediate_size": 32, "image_size": 8, "patch_size": 4, "num_channels": 3,
    }  # fmt: skip
    model.origin = new_origin("vit", model, "classes", settings)
    return model


def result(model: Any) -> np.ndarray:
    if getattr(model.config, "patch_size", 0):
        return model(np.random.default_rng(0).standard_normal((2, 3, 8, 8))).data
    ids = np.array([[3, 4, 5, 9], [7, 8, 6, 11]])
    return model(ids, ids).data if isinstance(model, nn.Transformer) else model(ids).data


def folder(path: Path, name: str = "gpt2", **changes: Any) -> Path:
    """Save a model, with changes to its config.json; None removes a key."""
    nn.save(path, (vit if name == "vit" else MADE[name])().eval())
    settings = json.loads((path / "config.json").read_text())
    settings |= changes
    (path / "config.json").write_text(
        json.dumps({k: v for k, v in settings.items() if v is not None})
    )
    return path


@pytest.mark.parametrize("name", MADE)
def test_save_then_load_computes_the_same(tmp_path: Path, name: str) -> None:
    model = MADE[name]().eval()
    nn.save(tmp_path / "1", model)
    again = nn.load(tmp_path / "1")
    assert type(again) is type(model) and not again.training
    np.testing.assert_allclose(result(again), result(model), rtol=1e-5, atol=1e-6)
    nn.save(tmp_path / "2", again)
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "1" / file).read_bytes() == (tmp_path / "2" / file).read_bytes()


def test_saved_translator_without_scaled_embeddings_is_loaded_without(tmp_path: Path) -> None:
    options = {**MARIAN.to_dict(), "embeddings": {"scale": False}}
    model = nn.Transformer(nn.TransformerConfig.from_dict(options)).eval()
    nn.save(tmp_path, model)
    again = nn.load(tmp_path)
    assert again.config.embeddings == nn.EmbeddingConfig(scale=False)
    np.testing.assert_allclose(result(again), result(model), rtol=1e-5, atol=1e-6)


def test_save_of_other_modules_or_dtypes_raises(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match="save: model must be a model of nn, got Linear; nn.save_weights"
    ):
        nn.save(tmp_path, nn.Linear(2, 2))
    for dtype in ("int8", "bf16"):  # the first would make zeros of most weights
        with pytest.raises(
            ValueError, match=f"save: dtype must be 'float16', 'bfloat16'.*, got '{dtype}'"
        ):
            nn.save(tmp_path, MADE["gpt2"](), dtype=dtype)
    assert not list(tmp_path.iterdir())


LM = (30, 16, 4, 2, 32)
UNLIKE: list[tuple[nn.Module, str]] = [
    (nn.Transformer(nn.TransformerConfig(30, 30, 16, 4, 2, 2, 32)), r"Marian can describe: positions.kind='sinusoidal' \(expected 'sinusoidal_halves'\);"),
    (nn.Transformer(nn.TransformerConfig(30, 30, 16, 4, 2, 2, 32, norm_first=True, positions="sinusoidal_halves")), r"Marian can describe: norm_first=True \(expected False\), final_norm=True"),
    (nn.LanguageModel(nn.LanguageModelConfig(*LM, positions="alibi")), r"GPT2 can describe: positions.kind='alibi'"),
    (nn.LanguageModel(nn.LanguageModelConfig(*LM, positions="relative", parallel=True)), r"GPT2 can describe: positions.kind='relative' \(expected 'learned'\), parallel=True \(expected False\)"),
    (nn.LanguageModel(nn.LanguageModelConfig(*LM, positions="rotary", gated=True)), r"GPT2 can describe: gated=True \(expected False\), .*positions.kind='rotary'"),
    (nn.LanguageModel(nn.LanguageModelConfig(*LM, attention=nn.AttentionConfig(window=3))), r"GPT2 can describe: attention.window=3 \(expected None\)"),
    (nn.EncoderModel(nn.EncoderConfig(*LM, num_types=2, positions="relative")), r"Bert can describe: .*positions.kind='relative' \(expected 'learned'\)"),
    (nn.EncoderClassifier(nn.EncoderConfig(*LM, num_types=2, num_classes=3, **ENCODER)), r"Bert can describe: pool='mean' \(expected 'first'\)"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "message"), UNLIKE)
def test_save_refuses_a_model_that_no_family_describes(
    tmp_path: Path, model: nn.Module, message: str
) -> None:
    with pytest.raises(ValueError, match=f"save: not a model that {message}.*nn.save_weights"):
        nn.save(tmp_path / "x", model)
    assert not (tmp_path / "x").exists()


def test_save_refuses_options_that_config_json_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match="save: Bert: type_vocab_size must be at least 1, got 0|save: Bert: type_vocab_size must be 1 to",
    ):
        nn.save(tmp_path / "x", nn.EncoderModel(nn.EncoderConfig(*LM, **ENCODER)))
    letters = nn.LanguageModelConfig(
        30,
        16,
        4,
        2,
        32,
        norm="rms",
        positions="rotary",
        bias=False,
        attention=nn.AttentionConfig(bias="qk"),
    )
    with pytest.raises(
        ValueError, match='save: Llama: attention_bias must be true or false, got "qk"'
    ):
        nn.save(tmp_path / "x", nn.LanguageModel(letters))
    assert not (tmp_path / "x").exists()
    pruned = nn.LanguageModel(GPT2)
    pruned.prune_heads({"layers.layers.0.self_attention": [1]})
    with pytest.raises(ValueError, match="model must have all heads"):
        nn.save(tmp_path / "x", pruned)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no model_type": ({"model_type": None}, "config.json: model_type is missing"),
    "unknown model_type": ({"model_type": "mamba"}, 'config.json: model_type must be one of albert, bart, bert, .*xlm-roberta, got "mamba"'),
    "quantised": ({"quantization_config": {"bits": 4}}, "config.json: quantization_config must .*quantised weights"),
    "no size": ({"n_embd": None}, "config.json: n_embd is missing"),
    "a text for a size": ({"n_embd": "16"}, "config.json: n_embd must be an integer, got '16'"),
    "heads that do not divide": ({"n_head": 3}, "config.json: n_embd must be divisible by n_head, got n_embd=16 and n_head=3"),
    "unknown activation": ({"activation_function": "mish"}, 'activation_function must be one of gelu, .* got "mish"'),
    "a setting that is not supported": ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx must be false"),
    "10^12 words": ({"vocab_size": 10**12}, "config.json: vocab_size must be at most 48 \\(the largest size of an array in model.safetensors\\), got 1000000000000"),
    "10^12 wide": ({"n_embd": 10**12}, "config.json: n_embd must be at most 48 .*, got 1"),
    "10^12 positions": ({"n_positions": 10**12}, "config.json: n_positions must be at most 48"),
    "10^12 in a layer": ({"n_inner": 10**12}, "config.json: n_inner must be at most 48"),
    "10^12 layers": ({"n_layer": 10**12}, "config.json: n_layer must be at most 28 \\(the number of arrays in model.safetensors\\)"),
    "10^12 heads": ({"n_head": 10**12, "n_embd": 10**12}, "config.json: n_embd must be at most 48"),
    "a token beyond the vocabulary": ({"eos_token_id": 30}, "config.json: eos_token_id must be less than the 30 tokens, got 30"),
    "one that is forced": ({"forced_bos_token_id": 30}, "config.json: forced_bos_token_id must hold token ids from 0 to 29, got 30"),
    "a layer too many": ({"n_layer": 3}, "model.safetensors: the weights do not fit config.json: missing: transformer.h.2.attn.c_attn.bias, .* and 4 more"),
    "a layer too few": ({"n_layer": 1}, "model.safetensors: the weights do not fit config.json: unknown: transformer.h.1.attn.c_attn.bias"),
    "another width": ({"n_inner": 16}, r"misshaped: transformer.h.0.mlp.c_fc.bias \(expected \(16,\), got \(32,\)\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_load_of_settings_that_do_not_fit_raises(tmp_path: Path, name: str) -> None:
    changes, message = BAD[name]
    with pytest.raises(ValueError, match=message) as caught:
        nn.load(folder(tmp_path, **changes))
    assert str(caught.value).startswith(str(tmp_path)) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["vocab_size", "n_layer"])
def test_load_of_huge_sizes_takes_no_memory(tmp_path: Path, name: str) -> None:
    """The memory would suffice for these sizes; the file is smaller."""
    path = folder(tmp_path, **{name: 3 * 10**7})
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="config.json: "):
            nn.load(path)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_load_of_unsupported_rotary_positions_raises(tmp_path: Path) -> None:
    for scaling, message in (
        (
            {"rope_type": "longrope", "factor": 2.0},
            'rope_scaling: rope_type must be one of default, linear, llama3, yarn, got "longrope"',
        ),
        ({"type": "linear", "factor": "2"}, "rope_scaling: factor must be a number"),
        ({"rope_type": "llama3", "factor": 2.0}, "config.json: .*'llama3' needs 'low_freq_factor'"),
    ):
        with pytest.raises(ValueError, match=message):
            nn.load(folder(tmp_path, "llama", rope_scaling=scaling))
    with pytest.raises(ValueError, match="config.json: partial_rotary_factor must be 1.0"):
        nn.load(folder(tmp_path, "llama", partial_rotary_factor=0.25))


def test_load_without_some_files_raises(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError,
        match="config.json: no such file; expected a directory with .*hf download",
    ):
        nn.load(tmp_path / "nothing")
    path = folder(tmp_path / "x")
    with pytest.raises(
        ValueError, match="dtype must be float32, float64 or float16, got 'bfloat16'"
    ):
        nn.load(path, dtype="bfloat16")
    (path / "model.safetensors").rename(path / "kept")
    with pytest.raises(
        FileNotFoundError, match="model.safetensors: no such file; expected a directory with"
    ):
        nn.load(path)
    (path / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    with pytest.raises(
        ValueError,
        match=r"pytorch_model.bin is not read, since it is not safetensors \(a pickle can run any code\); convert it",
    ):
        nn.load(path)


@pytest.mark.parametrize("place", ["", "tiny.gguf"])
def test_load_of_gguf_names_the_conversion(tmp_path: Path, place: str) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    for read in (nn.load, nn.sentence_encoder):
        with pytest.raises(
            ValueError, match=r"tiny.gguf: GGUF files are not read; convert .*gguf_file='tiny.gguf'"
        ):
            read(tmp_path / place)


def test_save_in_several_files_then_load_computes_the_same(tmp_path: Path) -> None:
    model = nn.load(folder(tmp_path))
    nn.save(tmp_path, model, max_shard_size="8KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(set(index.values())) > 2 and not (tmp_path / "model.safetensors").exists()
    np.testing.assert_array_equal(result(nn.load(tmp_path)), result(model))
    last = index["transformer.ln_f.weight"]
    (tmp_path / last).unlink()
    with pytest.raises(
        FileNotFoundError, match=f"{last}: no such file; model.safetensors.index.json says"
    ):
        nn.load(tmp_path)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_load_of_narrow_weights_widens_them(tmp_path: Path, dtype: str) -> None:
    nn.save(tmp_path / "1", MADE["llama"]().eval(), dtype=dtype)
    model = nn.load(tmp_path / "1")
    assert {p.dtype for p in model.parameters()} == {np.dtype("float32")}
    nn.save(tmp_path / "2", model, dtype=dtype)
    assert (tmp_path / "1/model.safetensors").read_bytes() == (
        tmp_path / "2/model.safetensors"
    ).read_bytes()
    assert json.loads((tmp_path / "2/config.json").read_text())["torch_dtype"] == dtype
    nn.save(tmp_path / "3", model)
    np.testing.assert_array_equal(result(nn.load(tmp_path / "3")), result(model))
    assert nn.load(tmp_path / "1", dtype="float64").config.dtype == "float64"


@pytest.mark.parametrize("dtype", ["F8_E4M3"])
def test_load_of_a_dtype_that_numpy_lacks_raises(tmp_path: Path, dtype: str) -> None:
    """Weights in eight bits raise an error with the name of the dtype."""
    path = folder(tmp_path) / "model.safetensors"
    file = SafetensorsFile(path)
    eight = {name: np.zeros(entry.shape, np.uint8) for name, entry in file.items()}
    write_safetensors(path, eight, {"format": "pt"})
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = data[8:end].replace(b'"U8"', f'"{dtype}"'.encode())
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[end:])
    assert {entry.dtype for entry in SafetensorsFile(path).values()} == {dtype}
    with pytest.raises(
        ValueError, match=f"model.safetensors: .* {dtype}, a dtype that NumPy does not have"
    ):
        nn.load(tmp_path)


def test_load_with_another_head_keeps_or_replaces_it(tmp_path: Path) -> None:
    path = folder(tmp_path / "masked", "bert, masked")
    model = nn.load(path, head="classes", num_classes=4, generator=np.random.default_rng(0))
    assert isinstance(model, nn.EncoderClassifier) and model.output.out_features == 4
    np.testing.assert_array_equal(
        model.hidden(np.array([[3, 4]])).data, nn.load(path).hidden(np.array([[3, 4]])).data
    )
    nn.save(tmp_path / "classes", model)
    settings = json.loads((tmp_path / "classes/config.json").read_text())
    assert (
        settings["architectures"] == ["BertForSequenceClassification"]
        and len(settings["id2label"]) == 4
    )
    again = nn.load(tmp_path / "classes")
    np.testing.assert_array_equal(result(again), result(model))
    wider = nn.load(
        tmp_path / "classes", head="classes", num_classes=7
    )  # another number of classes: a new head
    assert wider.output.out_features == 7
    np.testing.assert_array_equal(
        wider.dense.weight.data, model.dense.weight.data
    )  # on the pooler that there is
    tokens = nn.load(tmp_path / "classes", head="tokens", num_classes=4)
    assert not np.array_equal(
        tokens.output.weight.data, model.output.weight.data
    )  # of other classes
    assert type(nn.load(path, head="none")) is nn.EncoderModel
    masked = nn.load(tmp_path / "classes", head="mlm")  # whose norm passes on what it normalises
    assert (
        (masked.norm.weight.data == 1).all()
        and not masked.dense.bias.data.any()
        and masked.dense.weight.data.any()
    )
    for head, options, message in (
        (
            "words",
            {},
            "config.json: head must be none or mlm or classes or tokens for Bert, got 'words'",
        ),
        ("classes", {}, "num_classes must be given for head='classes'"),
        (
            "mlm",
            {"num_classes": 2},
            "num_classes must be None without head='classes' or 'tokens', got head='mlm'",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            nn.load(path, head=head, **options)
    with pytest.raises(
        ValueError, match="config.json: head must be nothing for GPT2, got 'classes'"
    ):
        nn.load(folder(tmp_path / "gpt2"), head="classes", num_classes=2)


def test_load_with_a_pooler_of_zeros_draws_it(tmp_path: Path) -> None:
    """The file of a bare BERT has a pooler of zeros, whose output would not depend on the text."""
    nn.save(tmp_path, nn.EncoderModel(BERT))
    labels = nn.load(tmp_path, head="classes", num_classes=3, generator=np.random.default_rng(0))
    assert (
        labels.dense.weight.data.std() == pytest.approx(0.02, rel=0.2)
        and not labels.dense.bias.data.any()
    )
    logits = labels(np.array([[3, 4, 5], [6, 7, 8]])).data
    assert np.abs(logits[0] - logits[1]).max() > 1e-4


def test_load_of_norms_called_gamma_and_beta_is_equal(tmp_path: Path) -> None:
    path = folder(tmp_path / "x", "bert, masked")
    file = SafetensorsFile(path / "model.safetensors")
    older = {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): file.read(n)
        for n in file
    }
    expected = result(nn.load(path))
    write_safetensors(path / "model.safetensors", older, {"format": "pt"})
    model = nn.load(path)
    np.testing.assert_array_equal(result(model), expected)
    nn.save(tmp_path / "again", model)  # in the names that it was loaded by
    assert (tmp_path / "again/model.safetensors").read_bytes() == (
        path / "model.safetensors"
    ).read_bytes()


def test_load_ties_an_equal_output_projection(tmp_path: Path) -> None:
    """A stored projection that differs is used, whatever config.json contains."""
    path = folder(tmp_path / "x")
    file = SafetensorsFile(path / "model.safetensors")
    arrays = {name: file.read(name) for name in file}
    write_safetensors(
        path / "model.safetensors",
        {**arrays, "lm_head.weight": arrays["transformer.wte.weight"]},
        {"format": "pt"},
    )
    same = nn.load(path)
    assert same.output.weight is same.embedding.tokens.weight
    nn.save(tmp_path / "again", same)
    assert (tmp_path / "again/model.safetensors").read_bytes() == (
        path / "model.safetensors"
    ).read_bytes()
    write_safetensors(
        path / "model.safetensors",
        {**arrays, "lm_head.weight": 2 * arrays["transformer.wte.weight"]},
        {"format": "pt"},
    )
    other = nn.load(path)
    assert other.output.weight is not other.embedding.tokens.weight
    np.testing.assert_allclose(result(other), 2 * result(same), rtol=1e-5)
    nn.save(tmp_path / "again", other)
    assert (tmp_path / "again/model.safetensors").read_bytes() == (
        path / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_load_without_embedding_uses_a_tied_output_projection(tmp_path: Path, name: str) -> None:
    """It is the embedding only if config.json ties the two."""
    for tied in (True, False):
        file = SafetensorsFile(
            folder(tmp_path, name, tie_word_embeddings=tied) / "model.safetensors"
        )
        tokens = next(n for n in file if n.endswith(("wte.weight", "embed_tokens.weight")))
        arrays = {n: file.read(n) for n in file if n != tokens} | {
            "lm_head.weight": file.read(tokens)
        }
        write_safetensors(file.path, arrays, {"format": "pt"})
        if tied:
            np.testing.assert_array_equal(
                nn.load(tmp_path).embedding.tokens.weight.data, arrays["lm_head.weight"]
            )
            continue
        with pytest.raises(
            ValueError, match=f"the weights do not fit config.json: missing: {tokens}$"
        ):
            nn.load(tmp_path)


OLDER_BUFFERS: dict[str, tuple[str, dict[str, np.ndarray]]] = {
    "masks": ("gpt2", {"transformer.h.0.attn.bias": np.ones((1, 1, 20, 20), bool), "transformer.h.0.attn.masked_bias": np.float32([-1e4])}),
    "frequencies": ("llama", {"model.layers.1.self_attn.rotary_emb.inv_freq": np.ones(2, np.float32)}),
    "positions": ("bert, masked", {"bert.embeddings.position_ids": np.arange(20)[None]}),
    "sines": ("marian", {"model.encoder.embed_positions.weight": np.ones((20, 16), np.float32)}),
    "a second name": ("marian", {"model.encoder.embed_tokens.weight": np.empty(0)}),
}  # fmt: skip


@pytest.mark.parametrize("name", OLDER_BUFFERS)
def test_load_ignores_buffers_of_older_files(tmp_path: Path, name: str) -> None:
    """The buffers change nothing, and are saved again."""
    kind, others = OLDER_BUFFERS[name]
    path = folder(tmp_path / "x", kind)
    expected = result(nn.load(path))
    file = SafetensorsFile(path / "model.safetensors")
    arrays = {name: file.read(name) for name in file}
    others = {n: a if a.size else arrays["model.shared.weight"] for n, a in others.items()}
    write_safetensors(path / "model.safetensors", arrays | others, {"format": "pt"})
    model = nn.load(path)
    np.testing.assert_array_equal(result(model), expected)
    nn.save(tmp_path / "again", model)
    assert (tmp_path / "again/model.safetensors").read_bytes() == (
        path / "model.safetensors"
    ).read_bytes()


def test_load_of_a_second_name_that_differs_raises(tmp_path: Path) -> None:
    path = folder(tmp_path / "x", "marian")
    file = SafetensorsFile(path / "model.safetensors")
    arrays = {name: file.read(name) for name in file}
    arrays["model.decoder.embed_tokens.weight"] = 2 * arrays["model.shared.weight"]
    write_safetensors(path / "model.safetensors", arrays, {"format": "pt"})
    with pytest.raises(
        ValueError,
        match="model.safetensors: model.shared.weight differs from the array that",
    ):
        nn.load(path)


def test_load_reads_generation_config(tmp_path: Path) -> None:
    path = folder(tmp_path / "x", bad_words_ids=[[7], [3, 4]], forced_bos_token_id=5)
    data = json.dumps({"eos_token_id": [2, 9], "suppress_tokens": [8]}).encode()
    (path / "generation_config.json").write_bytes(data)
    model = nn.load(path)
    assert model.config.end_ids == (2, 9)
    assert model.origin.generation == {"eos_token_id": (2, 9), "suppress_tokens": (8,)}
    nn.save(tmp_path / "again", model)
    assert (tmp_path / "again/generation_config.json").read_bytes() == data
    (folder(tmp_path / "y", "marian") / "generation_config.json").write_text(
        '{"decoder_start_token_id": 4}'
    )
    assert nn.load(tmp_path / "y").config.bos_id == 4
    (tmp_path / "y/generation_config.json").write_text('{"decoder_start_token_id": 30}')
    with pytest.raises(
        ValueError,
        match="generation_config.json: decoder_start_token_id must be less than the 30",
    ):
        nn.load(tmp_path / "y")


def test_load_with_padding_equal_to_eos_learns_eos(tmp_path: Path) -> None:
    """If PAD and EOS have one id (GPT-2, SmolLM2), EOS is learned, unless a mask hides it."""
    model = nn.load(folder(tmp_path, pad_token_id=2))
    ids = np.array([[3, 4, 2, 2]])
    assert (
        model.num_targets(ids) == 3
        and model.num_targets(ids, np.array([[True, True, True, False]])) == 2
    )


def test_pixels_equal_their_definition(tmp_path: Path) -> None:
    """A pixel is scaled, then its channel is normalized."""
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), np.uint8)
    settings: dict[str, Any] = {
        "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.5, 0.25, 0.2],
        "rescale_factor": 1 / 255,
    }
    file = folder(tmp_path, "vit") / "preprocessor_config.json"
    file.write_text(json.dumps(settings))
    found = nn.pixels(tmp_path, images)
    assert found.shape == (2, 3, 8, 8) and found.dtype == np.float32
    for channel, mean, std in zip(range(3), settings["image_mean"], settings["image_std"]):
        np.testing.assert_allclose(
            found[:, channel], (images[..., channel] / 255 - mean) / std, rtol=1e-5, atol=1e-6
        )
    file.write_text(json.dumps({"do_rescale": False, "do_normalize": False}))
    np.testing.assert_array_equal(nn.pixels(tmp_path, images).transpose(0, 2, 3, 1), images)
    model = nn.load(tmp_path)
    assert model(found).shape == (2, 3) and model.config.max_len == 5
    for run, message in (
        (
            lambda: nn.pixels(tmp_path, found),
            r"images must be uint8 \(N, H, W, C\), from 0 to 255, got float32 \(2, 3, 8",
        ),
        (
            lambda: model(found[:, :, :4]),
            r"images must be floats \(N, 3, 8, 8\), got float32 \(2, 3, 4, 8\)",
        ),
        (lambda: model(images.transpose(0, 3, 1, 2)), "images must be floats .*got uint8"),
        (lambda: model(found, np.ones((2, 5), bool)), "padding_mask must be None for images"),
        (lambda: nn.attribute(model, found[:1]), "attribute: ids must be one sequence"),
        (
            lambda: nn.load(folder(tmp_path / "x", "vit", image_size=9)),
            "config.json: image_size must be a multiple",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            run()
    for wrong in ({"image_mean": [0.5]}, {"image_std": [0.5, 0.25, 0]}):
        file.write_text(json.dumps({**settings, **wrong}))
        with pytest.raises(
            ValueError,
            match=f"preprocessor_config.json: {next(iter(wrong))} must be a number for each",
        ):
            nn.pixels(tmp_path, images)


@pytest.mark.parametrize("name", ["image_size", "num_channels"])
def test_load_of_huge_images_raises(tmp_path: Path, name: str) -> None:
    sizes = {"image_size": 4 * 10**6, "patch_size": 2, "num_channels": 10**12}
    with pytest.raises(
        ValueError,
        match=r"config.json: (image_size|num_channels) must be at most .*, got|misshaped: .*\(16, 3, 2, 2\)",
    ):
        nn.load(folder(tmp_path, "vit", **{name: sizes[name]}))


def test_families_of_contributing_equal_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The classes on the page are those of the library, and load the same models."""
    page = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = (
        page.partition("## How to add a family")[2].partition("```python\n")[2].partition("```")[0]
    )
    classes = code.split("\n\n\n")
    assert all(part.strip() in Path(llama.__file__).read_text("utf-8") for part in classes)
    assert len(classes) == 2 and len(code.splitlines()) < 75
    namespace = dict(vars(llama))
    exec(code, namespace)
    path = folder(tmp_path, "llama")
    settings = json.loads((path / "config.json").read_text())
    for name, base in (("phi3", "Phi3"), ("gemma", "Gemma")):
        assert namespace[base] is not getattr(llama, base)
        changes = {"model_type": name, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        (path / "config.json").write_text(json.dumps(settings | changes))
        expected = nn.load(path)
        with monkeypatch.context() as patch:
            patch.setitem(FAMILIES, name, namespace[base]())
            added = nn.load(path)
        assert added.config == expected.config
        np.testing.assert_array_equal(result(added), result(expected))


def test_command_prints_the_effective_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder(tmp_path, "llama", use_cache=True)
    runpy.run_module("nn.pretrained", run_name="main")["main"]([str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0]
        == f"LanguageModel (LlamaForCausalLM), {nn.load(path).num_parameters():,} parameters"
    )
    options = dict(line.split(" = ") for line in lines if " = " in line)
    options = {name.strip(): value for name, value in options.items()}
    assert options["attention.num_kv_heads"] == "2" and options["attention.head_dim"] == "4"
    assert options["attention.scale"] == "0.5" and options["attention.bias"] == "False"
    assert options["positions.rotary_base"] == "10000.0" and options["d_ff"] == "32"
    assert "num_key_value_heads" in next(
        line for line in lines if line.startswith("keys that were")
    )
    assert "use_cache" in next(line for line in lines if line.startswith("keys without effect"))
    assert lines[-1] == "arrays that are not used: none"
    with pytest.raises(SystemExit, match="error: .*config.json: no such file"):
        runpy.run_module("nn.pretrained", run_name="main")["main"]([str(path / "none")])


REFUSED: dict[str, Any] = {
    "embedding_multiplier": 12.0, "logits_scaling": 8.0, "attn_logit_softcapping": 50.0, "mscale": 1,
    "some_list": [1], "some_text": "x", "some_object": {"a": 1}, "some_flag": True, "zero": 0,
}  # fmt: skip


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_load_refuses_keys_that_the_family_does_not_know(tmp_path: Path, name: str) -> None:
    empty = {"some_null": None, "some_flag": False, "some_list": [], "some_object": {}}
    path = folder(tmp_path, name, **empty)
    nn.load(path)
    settings = json.loads((path / "config.json").read_text())
    for key, value in REFUSED.items():
        (path / "config.json").write_text(json.dumps(settings | {key: value}))
        with pytest.raises(ValueError, match=rf"config.json: keys must be known .*'{key}': "):
            nn.load(path)


SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "vocab_size": 60000,
}
SEQ2SEQ = {
    "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "vocab_size": 60000, "decoder_vocab_size": 60000,
    "is_encoder_decoder": True, "num_hidden_layers": 6, "classifier_dropout": 0.0, "init_std": 0.02,
}  # fmt: skip
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {  # keys of well-known files
    "gpt2": ("gpt2", {
        "n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 50257, "n_ctx": 1024, "embd_pdrop": 0.1, "initializer_range": 0.02,
        "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
        "summary_use_proj": True, "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}}),
    "bert-base-multilingual": ("bert", {
        **SIZES, "directionality": "bidi", "gradient_checkpointing": False, "pooler_fc_size": 768, "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform", "use_cache": True,
        "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0"}),
    "roberta-base": ("roberta", {**SIZES, "max_position_embeddings": 514, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}),
    "all-mpnet-base-v2": ("mpnet", {**SIZES, "max_position_embeddings": 514, "_name_or_path": "x", "relative_attention_num_buckets": 32}),
    "distilbert": ("distilbert", {
        "dim": 8, "n_heads": 2, "n_layers": 1, "hidden_dim": 8, "vocab_size": 30522, "qa_dropout": 0.1, "sinusoidal_pos_embds": False,
        "tie_weights_": True, "output_past": True}),
    "albert-base-v2": ("albert", {
        **SIZES, "down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0, "num_hidden_groups": 1,
        "inner_group_num": 1, "layers_to_keep": [], "bos_token_id": 2, "eos_token_id": 3}),
    "electra-small": ("electra", {
        **SIZES, "embedding_size": 128, "summary_activation": "gelu", "summary_last_dropout": 0.1, "summary_type": "first",
        "summary_use_proj": True}),
    "SmolLM2-135M-Instruct": ("llama", {
        **SIZES, "is_llama_config": True, "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000, "pretraining_tp": 1,
        "initializer_range": 0.04, "transformers.js_config": {"dtype": "q4"}, "bos_token_id": 0, "eos_token_id": 0}),
    "Llama-3.2-1B": ("llama", {
        **SIZES, "head_dim": 64, "max_position_embeddings": 131072, "eos_token_id": [1, 8, 9], "bos_token_id": 5, "rope_scaling": {
            "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3"}}),
    "Qwen2.5-1.5B": ("qwen2", {
        **SIZES, "max_window_layers": 28, "sliding_window": 131072, "use_mrope": False, "use_sliding_window": False,
        "num_key_value_heads": 2, "rope_theta": 1000000.0}),
    "Phi-3-mini-4k": ("phi3", {
        **SIZES, "attention_bias": False, "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "embd_pdrop": 0.0,
        "original_max_position_embeddings": 4096, "resid_pdrop": 0.0, "rope_scaling": None, "sliding_window": 2047}),
    "a GGUF file, converted by transformers": ("llama", {**SIZES, "_model_name_or_path": "tiny"}),
    "gemma-2b": ("gemma", {**SIZES, "hidden_act": "gelu", "hidden_activation": None, "num_key_value_heads": 1}),
    "pythia-70m": ("gpt_neox", {**SIZES, "hidden_size": 16, "rotary_emb_base": 10000, "rotary_pct": 0.25, "use_parallel_residual": True}),
    "opt-125m": ("opt", {
        "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50272,
        "ffn_dim": 8, "max_position_embeddings": 2048, "word_embed_proj_dim": 8, "_remove_final_layer_norm": False,
        "activation_dropout": 0.0, "do_layer_norm_before": True, "layerdrop": 0.0, "prefix": "</s>", "init_std": 0.02}),
    "opus-mt-en-de": ("marian", {
        **SEQ2SEQ, "add_bias_logits": False, "add_final_layer_norm": False, "bad_words_ids": [[58100]], "classif_dropout": 0.0,
        "decoder_start_token_id": 58100, "forced_eos_token_id": 0, "max_length": 512, "normalize_before": False,
        "normalize_embedding": False, "num_beams": 4, "static_position_embeddings": True, "scale_embedding": True}),
    "bart-large-cnn": ("bart", {
        **SEQ2SEQ, "_num_labels": 3, "add_bias_logits": False, "add_final_layer_norm": False, "early_stopping": True,
        "force_bos_token_to_be_generated": True, "length_penalty": 2.0, "min_length": 56, "no_repeat_ngram_size": 3,
        "normalize_before": False, "normalize_embedding": True, "prefix": " ", "task_specific_params": {"summarization": {}}}),
    "mbart-large-50": ("mbart", {
        **SEQ2SEQ, "add_final_layer_norm": True, "normalize_before": True, "normalize_embedding": True, "output_past": True,
        "scale_embedding": True, "static_position_embeddings": False}),
    "nllb-200": ("m2m_100", {**SEQ2SEQ, "decoder_layerdrop": 0, "encoder_layerdrop": 0, "max_length": 200, "tokenizer_class": "NllbTokenizer"}),
    "t5-small": ("t5", {
        "d_model": 8, "d_kv": 4, "d_ff": 8, "num_heads": 2, "num_layers": 1, "vocab_size": 32128, "initializer_factor": 1.0,
        "is_encoder_decoder": True, "n_positions": 512, "output_past": True, "decoder_start_token_id": 0,
        "task_specific_params": {"summarization": {"prefix": "summarize: "}}}),
    "vit-base": ("vit", {**SIZES, "encoder_stride": 16, "qkv_bias": True, "id2label": {"0": "cat"}, "label2id": {"cat": 0}}),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_read_config_knows_keys_of_published_files(name: str) -> None:
    family, settings = PUBLISHED[name]
    settings = {k: v for k, v in settings.items() if family != "vit" or k != "vocab_size"}
    read_config(Settings(settings | {"torch_dtype": "float32"}, "config.json"), FAMILIES[family])


def test_load_of_a_length_without_table_takes_no_memory(tmp_path: Path) -> None:
    """Rotary positions and caches grow with the text, so a length of 10¹² is as good as 20."""
    path = folder(tmp_path / "llama", "llama")
    settings = json.loads((path / "config.json").read_text())
    short = nn.generate(nn.load(path), [3, 4, 5], max_len=5)
    (path / "config.json").write_text(json.dumps(settings | {"max_position_embeddings": 10**12}))
    tracemalloc.start()
    long = nn.generate(nn.load(path), [3, 4, 5], max_len=5)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    assert short == long
    message = r"config.json: max_position_embeddings must be at most 8388608 \(the limit of a table of positions\), got 1000000000000"
    with pytest.raises(ValueError, match=message):
        nn.load(folder(tmp_path / "marian", "marian", max_position_embeddings=10**12))


@pytest.mark.parametrize(
    "option, changes",
    [
        ("d_model", {"d_model": 20}),
        ("max_len", {"max_len": 20}),
        ("positions.relative_buckets", {"positions": "learned_relative"}),  # 32 by default
    ],
)
def test_check_sizes_beyond_the_largest_array_raises(option: str, changes: dict[str, Any]) -> None:
    sizes = {"d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 8, "max_len": 8}
    config = nn.LanguageModelConfig(**{**sizes, **changes})
    with pytest.raises(ValueError, match=rf"^{option} must be at most 19 \(the largest size"):
        check_sizes(config, {"x": (19, 2)}, "a file")
