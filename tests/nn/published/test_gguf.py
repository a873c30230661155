"""GGUF files: arrays of every type, names, tokenizers, and damaged files."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.damage import limits
from support.edges import beside
from support.environment import max_examples, needs
from support.gguf_files import KEYS, write_gguf
from support.gguf_library import gguf
from support.pre_tokenizers import GROUPS, PIECES
from support.recorded_models import arrays_named, recorded, unpacked
from support.tokenizer_library import tokenizers

import nn
from minigrad.io import load_arrays
from minigrad.io.safetensors import write_safetensors
from nn.inference import int8
from nn.inference.int8 import Int8Matrix
from nn.published.gguf import ARCHITECTURES, GGUFFile
from nn.text.gguf_tables import PRE_TOKENIZERS, PreTokenizer
from nn.text.gguf_tokenizer import end_ids

IDS = np.arange(3, 13)[None]


def is_decoded(kind: Any) -> bool:
    """Return whether the package decodes a type."""
    try:
        gguf.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


KINDS = [kind.name for kind in gguf.GGML_QUANT_SIZES if is_decoded(kind)]
STRING, ARRAY, INT32, UINT32, FLOAT32, BOOL = (
    gguf.GGUFValueType[name] for name in ("STRING", "ARRAY", "INT32", "UINT32", "FLOAT32", "BOOL")
)


def make(
    name: str, directory: Path, width: int = 16, **options: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Save a tiny Llama or GPT-2, and return its config.json and arrays.

    The types of arrays have blocks of up to 256 values.
    """
    rms = name == "llama"
    config = nn.DecoderOnlyConfig(
        40, width, 4, 2, width, max_len=64, norm_first=True, norm="rms" if rms else "layer", gated=rms, bias=not rms,
        activation="silu" if rms else "gelu_tanh", positions="rotary" if rms else "learned", tie=not rms,
        attention=nn.AttentionConfig(num_kv_heads=2 if rms else None), bos_id=1, eos_id=2, **options,
    )  # fmt: skip
    model = nn.LanguageModel(config, np.random.default_rng(0))
    for p in model.parameters():
        p.data += 0.05 * np.random.default_rng(p.size).standard_normal(p.shape).astype(np.float32)
    nn.save(directory, model)
    return json.loads((directory / "config.json").read_text()), load_arrays(
        directory / "model.safetensors"
    )[0]


@cache
def llama() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the config.json and the arrays of a tiny Llama whose directory no test reads."""
    with TemporaryDirectory() as directory:
        return make("llama", Path(directory))


@pytest.mark.parametrize(
    "kind",
    [kind if kind in ("F16", "Q8_0") else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS],
)  # fmt: skip
def test_load_decodes_every_type(tmp_path: Path, kind: str) -> None:
    """Logits are those of the decoded arrays in a directory."""
    path = tmp_path / "model.gguf"
    for name in ("llama", "gpt2") if kind == "Q8_0" else ("llama",):
        decoded = write_gguf(path, name, *make(name, tmp_path, 256), kind)
        model = nn.load(path)
        write_safetensors(tmp_path / "model.safetensors", decoded)
        expected = nn.load(tmp_path)(IDS).data
        np.testing.assert_array_equal(model(IDS).data, expected)
        quick = nn.load(path, weights="int8")
        if kind == "Q8_0":
            np.testing.assert_allclose(quick(IDS).data, expected, atol=1e-4)
            assert quick.output.weight.scales.shape == (40, 8)
        else:
            rounded = nn.for_inference(model, "int8")
            np.testing.assert_allclose(quick(IDS).data, rounded(IDS).data, atol=1e-4)
        assert isinstance(quick.embedding.tokens.weight, Int8Matrix)


def stored_array(shape: tuple[int, ...], kind: str = "F32", **heads: Any) -> Any:
    """Return a file of Llama with one array, whose values are not read."""
    array = SimpleNamespace(kind=SimpleNamespace(name=kind), shape=shape)
    return SimpleNamespace(
        architecture=ARCHITECTURES["llama"], settings=heads, where="m.gguf", file="m.gguf",
        tensors={f"blk.0.attn_{part}.weight": array for part in "qkv"}, names={"x": "blk.0.attn_v.weight"},
    )  # fmt: skip


@given(heads=st.integers(1, 3), kv_heads=st.none() | st.integers(1, 3), size=st.integers(1, 5))
def test_rows_of_pairs_become_rows_of_halves(heads: int, kv_heads: int | None, size: int) -> None:
    settings = {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    for part, count in (("q", heads), ("k", kv_heads or heads)):
        file = stored_array((count * size, 4), **settings)
        if size % 2:
            with pytest.raises(
                ValueError, match=rf"attn_{part}.weight must have rows of whole pai"
            ):
                GGUFFile._order(file, f"blk.0.attn_{part}.weight")
            continue
        order: Any = GGUFFile._order(file, f"blk.0.attn_{part}.weight")
        half = size // 2
        expected = [
            h * size + 2 * (i % half) + i // half for h in range(count) for i in range(size)
        ]
        assert order.tolist() == expected
    assert GGUFFile._order(stored_array((3, 4), **settings), "blk.0.attn_v.weight") is None


@pytest.mark.parametrize("scale", [1.0, -0.5, np.nan, np.inf])
def test_scales_of_eight_bits_must_be_finite(scale: float) -> None:
    raw = np.zeros((2, 34), np.uint8)
    raw[:, :2] = np.float16([[1.0], [scale]]).view(np.uint8)
    raw[:, 2:] = np.arange(64).reshape(2, 32)
    file = stored_array((2, 32), "Q8_0")
    file._raw, file._order = lambda name: raw, lambda name: None
    if np.isfinite(scale):
        found = GGUFFile.matrix(file, "x")
        np.testing.assert_array_equal(found.values, np.arange(64).reshape(2, 32))
        assert found.scales.ravel().tolist() == [1.0, scale]
    else:
        with pytest.raises(ValueError, match="m.gguf: x must have finite scales"):
            GGUFFile.matrix(file, "x")


@pytest.mark.parametrize("read", [GGUFFile.matrix, partial(GGUFFile.checked, dtype=np.dtype("f4"))])
def test_array_that_is_not_finite_is_refused(read: Any) -> None:
    file = stored_array((2, 32), "F32")
    file.array = lambda name, dtype: np.float32([[1.0, np.nan]])
    file._order, file._decoded = lambda name: None, lambda name, rows: np.full((2, 32), np.nan)
    with pytest.raises(ValueError, match="m.gguf: x"):
        read(file, "x")


@pytest.mark.parametrize(("kind", "code"), [("F16", "<f2"), ("F32", "<f4"), ("F64", "<f8")])
def test_plain_arrays_are_decoded_as_copies(kind: str, code: str) -> None:
    values = np.arange(12, dtype=code).reshape(3, 4) / 8
    stored = SimpleNamespace(kind=SimpleNamespace(name=kind))
    file: Any = SimpleNamespace(tensors={"x": stored}, _raw=lambda name: values.view(np.uint8))
    found = GGUFFile._decoded(file, "x", slice(1, 3))
    np.testing.assert_array_equal(found, values[1:].astype(np.float32), strict=True)
    found[:] = -1
    assert values.min() == 0


def test_load_reads_blocks_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "m.gguf", "llama", *make("llama", tmp_path, 256), "Q4_0")
    whole = nn.load(tmp_path / "m.gguf", weights="int8")(IDS).data
    monkeypatch.setattr(int8, "QUANTIZED_BLOCK", 3 * 256)
    np.testing.assert_array_equal(nn.load(tmp_path / "m.gguf", weights="int8")(IDS).data, whole)


def test_save_of_a_gguf_file_writes_a_directory(tmp_path: Path) -> None:
    settings, arrays = make("llama", tmp_path)
    ids = {f"tokenizer.ggml.{name}_token_id": (i, UINT32) for name, i in (("bos", 1), ("eos", 2))}
    write_gguf(tmp_path / "m.gguf", "llama", settings, arrays, metadata=ids)
    model = nn.load(tmp_path / "m.gguf")
    nn.save(tmp_path / "saved", model)
    np.testing.assert_array_equal(nn.load(tmp_path / "saved")(IDS).data, model(IDS).data)
    for key in ("rope_theta", "rms_norm_eps", "num_key_value_heads", "eos_token_id"):
        assert model.origin.settings[key] == settings[key]


Q = "llama."
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({Q + "expert_count": (8, UINT32)}, "llama.expert_count must be 0"),
    ({Q + "rope.dimension_count": (3, UINT32)}, "llama.rope.dimension_count must be 4"),
    ({Q + "rope.scaling.type": ("longrope", STRING)}, "llama.rope.scaling.type must be none"),
    ({Q + "attention.causal": (False, BOOL)}, "llama.attention.causal must be True"),
    (
        {Q + "logit_scale": (2.0, FLOAT32)},
        "keys must be known to the architecture, got llama.logit",
    ),
    (
        {Q + "rope.scaling.factor": (2.0, FLOAT32), Q + "rope.scaling.type": ("longrope", STRING)},
        "llama.rope.scaling.type must be none",
    ),
    ({Q + "vocab_size": (41, UINT32)}, "llama.vocab_size must be 40"),
]


@pytest.mark.parametrize(("metadata", "message"), REFUSED)
def test_load_refuses_settings_that_change_results(
    tmp_path: Path, metadata: dict[str, Any], message: str
) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, "llama", *make("llama", tmp_path), metadata=metadata)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: metadata: {message}"):
        nn.load(path)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_load_of_a_damaged_name_of_a_key_raises_or_returns_the_same(
    tmp_path: Path, name: str
) -> None:
    """A key that is not found must not become a default."""
    path = tmp_path / "m.gguf"
    write_gguf(path, name, *make(name, tmp_path))
    whole, data, prefix = nn.load(path)(IDS).data, path.read_bytes(), f"{name}.".encode()
    places = [match.start() for match in re.finditer(re.escape(prefix), data)]
    assert len(places) > 5
    for place in places:
        path.write_bytes(data[:place] + b"x" + data[place + 1 :])
        try:
            np.testing.assert_array_equal(nn.load(path)(IDS).data, whole)
        except ValueError as error:
            assert str(error).startswith(f"{path}: ")


def test_load_refuses_other_architectures_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, "mamba", *make("llama", tmp_path))
    message = "general.architecture must be one of gemma, gemma2, .*, qwen2, qwen3, got .mamba"
    with pytest.raises(ValueError, match=message):
        nn.load(path)


def test_load_refuses_types_that_the_package_does_not_decode(tmp_path: Path) -> None:
    path, data = tmp_path / "model.gguf", b""
    write_gguf(path, "llama", *make("llama", tmp_path, 256), "Q8_0")
    data = path.read_bytes()
    name = b"token_embd.weight" + (2).to_bytes(4, "little")
    at = data.index(name) + len(name) + 16
    assert data[at] == gguf.GGMLQuantizationType.Q8_0
    for kind, message in (
        (99, "token_embd.weight: unknown type 99"),
        (41, "its offset must be|unknown type 41"),
    ):
        path.write_bytes(data[:at] + bytes([kind]) + data[at + 1 :])
        with pytest.raises(ValueError, match=message):
            nn.load(path)
    path.write_bytes(data.replace(b"token_embd.weight", b"token_embd.w8ight"))
    with pytest.raises(ValueError, match="token_embd.weight is missing from its arrays"):
        nn.load(path)


VALUES: list[tuple[Any, ...]] = [
    ([1, 2], ARRAY, INT32), (["a"], ARRAY, STRING), ("a", STRING),
    (-1, INT32), (0, UINT32), (math.nan, FLOAT32), (math.inf, FLOAT32), (0.5, FLOAT32), (True, BOOL),
]  # fmt: skip
"""Values of metadata that hardly any key allows."""
READ_KEYS = [
    "context_length", "embedding_length", "block_count", "feed_forward_length",
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.layer_norm_rms_epsilon", "rope.freq_base", "attention.value_length", "vocab_size",
    "attention.causal", "expert_count", "rope.dimension_count", "attention.sliding_window",
    "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length",
]  # fmt: skip


@pytest.mark.parametrize(
    "key",
    [*(Q + key for key in READ_KEYS), "general.architecture", "general.alignment"]
    + [f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "padding")],
)
def test_load_of_metadata_of_another_type_names_the_file(tmp_path: Path, key: str) -> None:
    settings, arrays = llama()
    path = tmp_path / "model.gguf"
    for value in VALUES:
        write_gguf(path, "llama", settings, arrays, metadata={key: value})
        try:
            nn.load(path)
        except ValueError as error:
            assert str(error).startswith(f"{path}: "), (value, error)


@pytest.mark.parametrize("read", [nn.sentence_encoder, nn.load, nn.text.load])
def test_gguf_in_a_directory_names_the_call(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    (tmp_path / "tiny.gguf").touch()
    pattern = "must be a directory with config.json; a GGUF .*nn.load.*tiny.gguf|no such file"
    with pytest.raises((ValueError, OSError), match=pattern):
        read(tmp_path)
    if read is nn.sentence_encoder:
        with pytest.raises(
            ValueError, match="tiny.gguf must be a directory with config.json; a GG"
        ):
            read(tmp_path / "tiny.gguf")


@pytest.mark.parametrize("factor", [8.0, 32.0, 5.0, 8.1])
def test_load_reads_the_factors_of_llama3(tmp_path: Path, factor: float) -> None:
    settings, arrays = make("llama", tmp_path, 256)
    scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(settings | {"rope_scaling": scaling}))
    wavelengths = 2 * np.pi * 10000.0 ** (np.arange(32) / 32)
    factors = []
    for wavelength in wavelengths:
        smooth = (8192 / wavelength - 1) / 3
        is_low, is_high = wavelength > 8192, wavelength < 2048
        blend = 1 / ((1 - smooth) / factor + smooth)
        factors.append(factor if is_low else 1.0 if is_high else blend)
    path = tmp_path / "model.gguf"
    write_gguf(path, "llama", settings, arrays | {"rope_freqs.weight": np.array(factors)})
    if factor not in (8, 32):
        with pytest.raises(ValueError, match="rope_freqs.weight must be the factors of Llama 3.1"):
            nn.load(path)
    else:
        ids = np.arange(60)[None] % 40
        np.testing.assert_allclose(nn.load(path)(ids).data, nn.load(tmp_path)(ids).data, atol=1e-4)


# -- architectures -----------------------------------------------------------------------------------

SLIDING, FULL = "sliding_attention", "full_attention"
LINEAR = {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}
ARCHITECTURE_FILES: dict[str, list[tuple[str, str, dict[str, Any], dict[str, Any]]]] = {
    "llama": [("llama", "llama", {}, {}), ("llama", "llama, biases", {"mlp_bias": False}, {}), ("llama", "mistral", {}, {})],
    "mistral": [("mistral", "mistral", {}, {}), ("mistral", "mistral", {"sliding_window": None}, {})],
    "qwen": [("qwen2", "qwen2", {}, {}), ("qwen3", "qwen3", {}, {})],
    "gpt2": [("gpt2", "gpt2", {"n_inner": 64}, {})],
    "gemma": [("gemma", "gemma", {}, {})],
    "gemma2": [
        ("gemma2", "gemma2", {"query_pre_attn_scalar": 6}, {}),
        ("gemma2", "gemma2", {"query_pre_attn_scalar": 6, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
         {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
        ("gemma2", "gemma2", {"query_pre_attn_scalar": 6, "layer_types": [SLIDING, SLIDING, FULL]},
         {"attention.sliding_window_pattern": 3}),
        ("gemma2", "gemma2", {"query_pre_attn_scalar": 6, "sliding_window": 4096}, {"attention.sliding_window": None}),
    ],
    "gemma3": [
        ("gemma3", "gemma3_text", {"query_pre_attn_scalar": 6}, {}),
        ("gemma3", "gemma3_text", {"query_pre_attn_scalar": 6, "final_logit_softcapping": None}, {}),
        ("gemma3", "gemma3_text",
         {"query_pre_attn_scalar": 6, "layer_types": [SLIDING, FULL, SLIDING],
          "rope_parameters": {FULL: LINEAR, SLIDING: {"rope_type": "default", "rope_theta": 70.0}}},
         {"attention.sliding_window_pattern": 2, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}),
        ("gemma3", "gemma3_text", {"query_pre_attn_scalar": 6}, {"rope.freq_base_swa": None}),
    ],
    "gemma-embedding": [
        ("gemma-embedding", "gemma3_text, encoder",
         {"query_pre_attn_scalar": 6, "layer_types": [SLIDING, SLIDING, FULL],
          "rope_parameters": {name: {"rope_type": "default", "rope_theta": x} for name, x in ((FULL, 1e6), (SLIDING, 1e4))}},
         {"attention.sliding_window_pattern": 3, "attention.causal": False, "pooling_type": 1, "dense_2_feat_in": 5}),
    ],
    "modern-bert": [
        ("modern-bert", "modernbert", {}, {"attention.causal": False, "pooling_type": 1}),
        ("modern-bert", "modernbert", {"hidden_activation": "silu", "classifier_activation": "silu", "layer_types": [FULL, SLIDING] * 2},
         {"hidden_act": "silu", "attention.sliding_window_pattern": 2}),
    ],
}  # fmt: skip
"""Architectures, recorded models, changes of config.json, and other metadata; None removes a key."""


def older_bases(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the bases of the rotation by the names of older files."""
    positions = settings.get("rope_parameters") or {}
    if FULL not in positions:
        return {"rope_theta": positions.get("rope_theta")}
    bases = [positions[kind]["rope_theta"] for kind in (FULL, SLIDING)]
    modern = ("global_rope_theta", "local_rope_theta")
    is_modern = settings["model_type"] == "modernbert"
    return dict(zip(modern if is_modern else ("rope_theta", "rope_local_base_freq"), bases))


@pytest.mark.parametrize("name", ARCHITECTURE_FILES)
def test_load_of_each_architecture_equals_its_directory(tmp_path: Path, name: str) -> None:
    kinds = {str: STRING, bool: BOOL, int: UINT32, float: FLOAT32}
    for number, (architecture, model, changes, metadata) in enumerate(ARCHITECTURE_FILES[name]):
        entry, path = recorded()["models"][model], tmp_path / str(number)
        path.mkdir()
        settings = entry["settings"] | changes
        shapes = unpacked(entry["arrays"])
        if "mlp_bias" in changes:  # which llama.cpp lacks
            shapes = {key: x for key, x in shapes.items() if not re.search("mlp.*bias", key)}
        arrays = arrays_named(shapes)
        write_safetensors(path / "model.safetensors", arrays, {"format": "pt"})
        (path / "config.json").write_text(json.dumps(settings))
        keys = {f"{architecture}.{key}": x for key, x in metadata.items()}
        removed = {key for key, x in keys.items() if x is None}
        stored = {
            key if key.startswith(("model.", "lm_head", "transformer.")) else f"model.{key}": x
            for key, x in arrays.items()
        }
        more = {key: (x, kinds[type(x)]) for key, x in keys.items() if x is not None}
        written = {
            key: None if f"{architecture}.{KEYS.get(key)}" in removed else x
            for key, x in (settings | older_bases(settings)).items()
        }
        write_gguf(path / "m.gguf", architecture, written, stored, metadata=more)
        found, expected = nn.load(path / "m.gguf"), nn.load(path)
        np.testing.assert_allclose(found(IDS).data, expected(IDS).data, 1e-5, 1e-5)
        assert type(found) is type(expected)


SIZES = {"max_position_embeddings": 64, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 8,
         "num_attention_heads": 4, "rms_norm_eps": 1e-6}  # fmt: skip


def hf_settings(path: Path, name: str, keys: dict[str, Any], *arrays: str) -> dict[str, Any]:
    """Return the content of config.json for metadata, with KEYS of an architecture changed."""
    kinds = {str: STRING, bool: BOOL, int: UINT32, float: FLOAT32}
    metadata = {
        key if key.startswith("tokenizer") else f"{name}.{key}":
        (x, ARRAY, INT32) if isinstance(x, list) else (x, kinds[type(x)]) for key, x in keys.items()
    }  # fmt: skip
    stored = {"model.embed_tokens.weight": np.zeros((9, 16))}
    stored |= {array: np.ones(2, np.float32) for array in arrays}
    sizes = dict(SIZES)
    if name == "modern-bert":
        sizes["norm_eps"] = sizes.pop("rms_norm_eps")
    write_gguf(path, name, sizes, stored, metadata=metadata)
    return GGUFFile(path).settings


YARN_KEYS = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
SETTINGS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("llama", {}, {"rope_theta": 10000.0, "rms_norm_eps": 1e-6, "vocab_size": 9, "tie_word_embeddings": True, "eos_token_id": None,
                   "bos_token_id": None, "pad_token_id": None, "num_key_value_heads": "no", "head_dim": "no", "rope_scaling": "no",
                   "sliding_window": "no", "attention_bias": False, "mlp_bias": False, "suppress_tokens": "no"}),
    ("llama", {"rope.freq_base": 5e5, "attention.head_count_kv": 2}, {"rope_theta": 5e5, "num_key_value_heads": 2}),
    ("llama", {"attention.key_length": 8, "attention.value_length": 8, "rope.dimension_count": 8}, {"head_dim": 8}),
    ("llama", {"attention.sliding_window": 5}, {"model_type": "mistral", "sliding_window": 5}),
    ("llama", {"attention.sliding_window": 0}, {"model_type": "llama", "sliding_window": "no"}),
    ("mistral", {"attention.sliding_window": 5}, {"model_type": "mistral", "sliding_window": 5}),
    ("mistral", {}, {"model_type": "mistral", "sliding_window": None}),
    ("qwen2", {"attention.sliding_window": 0}, {"attention_bias": "no", "sliding_window": "no"}),
    ("llama", YARN_KEYS | {"rope.scaling.original_context_length": 16},
     {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}}),
    ("llama", YARN_KEYS, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": None}}),
    ("llama", {"rope.scaling.factor": 4.0, "rope.scale_linear": 2.0}, {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    ("llama", {"rope.scaling.finetuned": True, "vocab_size": 9, "expert_count": 0, "attention.causal": True}, {"rope_scaling": "no"}),
    *(("llama", {f"tokenizer.ggml.{key}": x}, {hf_key: x}) for key, hf_key, x in (
        ("bos_token_id", "bos_token_id", 3), ("eos_token_id", "eos_token_id", 4), ("padding_token_id", "pad_token_id", 5),
        ("suppress_tokens", "suppress_tokens", [6, 7]))),
    *(("gemma2", {"block_count": count, "attention.key_length": 8}, {"query_pre_attn_scalar": scalar, "head_dim": 8})
      for count, scalar in ((45, 8), (46, 4), (47, 8), (62, 8))),
    *(("gemma3", {"block_count": count, "attention.key_length": 8}, {"query_pre_attn_scalar": scalar})
      for count, scalar in ((46, 8), (61, 8), (62, 4), (63, 8))),
    ("gemma-embedding", {"block_count": 62, "attention.key_length": 8, "attention.sliding_window": 5, "final_logit_softcapping": 3.0},
     {"query_pre_attn_scalar": 8, "use_bidirectional_attention": True, "final_logit_softcapping": "no", "sliding_window": 5}),
    ("gemma2", {}, {"head_dim": 4, "query_pre_attn_scalar": 4, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                    "sliding_window": 4096, "use_bidirectional_attention": False}),
    ("gemma2", {"rope.freq_base_swa": 10000.0, "final_logit_softcapping": 7.0}, {"rope_local_base_freq": "no", "final_logit_softcapping": 7.0}),
    ("gemma3", {}, {"rope_local_base_freq": 10000.0, "sliding_window": "no", "final_logit_softcapping": "no", "layer_types": [FULL]}),
    ("gemma3", {"attention.sliding_window": 5, "block_count": 10**9}, {"layer_types": [SLIDING]}),
    ("gemma3", {"rope.freq_base_swa": 70.0, "final_logit_softcapping": 7.0, "attention.sliding_window": 5},
     {"rope_local_base_freq": 70.0, "final_logit_softcapping": 7.0, "sliding_window": 5}),
    *(("modern-bert", {"attention.causal": False, **act}, {"hidden_activation": x, "classifier_activation": x})
      for act, x in (({}, "gelu"), ({"hidden_act": "silu"}, "silu"))),
]  # fmt: skip
"""Architectures, metadata, and entries of config.json, of which "no" are missing."""


def test_settings_of_gguf_files_are_those_of_their_metadata(tmp_path: Path) -> None:
    for name, keys, expected in SETTINGS:
        found = hf_settings(tmp_path / "m.gguf", name, keys)
        assert {key: found.get(key, "no") for key in expected} == expected, (name, keys)


def test_settings_of_gguf_files_depend_on_their_arrays(tmp_path: Path) -> None:
    path, block = tmp_path / "m.gguf", "model.layers.0.self_attn.o_proj.bias"
    assert hf_settings(path, "llama", {}, block)["attention_bias"]
    assert not hf_settings(path, "llama", {}, "lm_head.weight")["tie_word_embeddings"]
    unread = ("dense_2.weight", "dense_3.weight", "rope_freqs.weight")
    hf_settings(path, "llama", {}, *unread[:2])
    assert GGUFFile(path).keys() == {"model.embed_tokens.weight"}
    with pytest.raises(ValueError, match="rope.scaling.factor must be missing beside rope_freqs"):
        hf_settings(path, "llama", {"rope.scaling.factor": 2.0}, "rope_freqs.weight")


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("qwen2", {"attention.sliding_window": 5}, r"sliding_window must be 0 \(windows are not"),
        ("gemma2", {"rope.freq_base_swa": 70.0}, "rope.freq_base_swa must be 10000.0, as rope.freq_base"),
        ("gemma2", {"rope.freq_base_swa": 10000.0, "rope.freq_base": 70.0}, "rope.freq_base_swa must be 70.0, as rope.freq_base"),
        ("llama", {"attention.value_length": 8}, "attention.value_length must be 4"),
        ("llama", {"attention.key_length": 8, "rope.dimension_count": 4}, "rope.dimension_count must be 8"),
        ("llama", {"attention.head_count_kv": [2, 2]}, "head_count_kv must be a number"),
        ("llama", {"attention.head_count_kv": True}, "head_count_kv must be a number"),
        ("gemma-embedding", {}, "attention.sliding_window is missing"),
        ("gemma-embedding", {"attention.causal": True, "attention.sliding_window": 4}, "attention.causal must be False"),
        ("modern-bert", {"hidden_act": "relu"}, "hidden_act must be one of gelu, silu"),
        ("gemma3", {"attention.sliding_window_pattern": 0}, "sliding_window_pattern must be 1 to"),
    ],
)  # fmt: skip
def test_settings_of_gguf_files_that_are_not_supported_raise(
    tmp_path: Path, name: str, keys: dict[str, Any], message: str
) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(ValueError, match=f"^{path}: metadata: .*{message}"):
        hf_settings(path, name, keys)


# -- tokenizers --------------------------------------------------------------------------------------

TEXTS = [
    "the cat sat on the mat",
    " a dog,  it's 1234!\n\n",
    "für Katzen 猫 🐈",
    "",
    "the\tmat <|last|> x",
]
MERGES = [
    ("t", "h"), ("th", "e"), ("\u0120", "the"), ("a", "t"), ("c", "at"), ("\u0120", "cat"), ("s", "at"),
    ("m", "at"), ("1", "2"), ("12", "34"), ("\u0120", "a"), ("\u00c3", "\u00bc"), ("o", "n"), ("3", "4"),
]  # fmt: skip
"""Pairs of tokens that become one."""


def byte_level(pre: str) -> tuple[Any, dict[str, Any]]:
    """Return a byte-level tokenizer, and its metadata."""
    byte = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    tokens = ["<|last|>", *sorted(letters), *("".join(pair) for pair in MERGES)]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=MERGES))
    digits = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"\d"), "isolated")]
    steps = [*(digits if pre == "smollm" else []), byte]
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|last|>"])
    name = "tokenizer.ggml."
    return tokenizer, {
        name + "model": ("gpt2", STRING),
        name + "pre": (pre, STRING),
        name + "tokens": (tokens, ARRAY, STRING),
        name + "token_type": ([3] + [1] * (len(tokens) - 1), ARRAY, INT32),
        name + "merges": ([" ".join(pair) for pair in MERGES], ARRAY, STRING),
        name + "eos_token_id": (0, UINT32),
        "tokenizer.chat_template": ("{{ messages[0].content }}", STRING),
    }


@pytest.mark.parametrize("pre", ["gpt-2", "smollm"])
def test_byte_level_tokenizer_equals_the_original(tmp_path: Path, pre: str) -> None:
    original, metadata = byte_level(pre)
    path = tmp_path / "m.gguf"
    write_gguf(path, "llama", *llama(), metadata=metadata)
    text = nn.text.load(path)
    for string in TEXTS:
        ids = text.encode(string)
        assert ids == original.encode(string).ids
        assert text.decode(ids) == original.decode(ids)
    assert text.eos_id == 0 and text.bos_id is None
    needs("jinja2")
    assert text.chat([{"role": "user", "content": "the cat"}]) == "the cat"


def with_scores() -> tuple[list[str], list[float], dict[str, Any]]:
    """Return tokens, scores and metadata of a tokenizer like that of Llama 2."""
    words = [
        *"▁thecasomndg",
        "th",
        "he",
        "▁t",
        "▁the",
        "at",
        "cat",
        "▁c",
        "▁cat",
        "sat",
        "▁s",
        "on",
        "the",
    ]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *words]
    types = [2, 3, 3] + [6] * 256 + [1] * len(words)
    scores = [0.0] * 259 + [-float(i) for i in np.random.default_rng(3).permutation(len(words))]
    name = "tokenizer.ggml."
    return (
        tokens,
        scores,
        {
            name + "model": ("llama", STRING),
            name + "tokens": (tokens, ARRAY, STRING),
            name + "scores": (scores, ARRAY, FLOAT32),
            name + "token_type": (types, ARRAY, INT32),
            name + "bos_token_id": (1, UINT32),
            name + "eos_token_id": (2, UINT32),
            name + "unknown_token_id": (0, UINT32),
        },
    )


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a tokenizer with scores that is read from a file."""
    path = tmp_path_factory.mktemp("scored")
    write_gguf(path / "m.gguf", "llama", *make("llama", path), metadata=with_scores()[2])
    return nn.text.load(path / "m.gguf")


@given(string=st.text(st.sampled_from("thecasomndg é猫"), max_size=20))
def test_tokenizer_with_scores_equals_its_definition(scored: Any, string: str) -> None:
    """Join the pair of neighbours with the best joint token, the first of equal ones, until none is left."""
    tokens, scores, _ = with_scores()
    vocab = {token: i for i, token in enumerate(tokens)}
    parts = list(("▁" + string).replace(" ", "▁")) if string else []
    while True:
        pairs = [
            (-scores[vocab[a + b]], i)
            for i, (a, b) in enumerate(itertools.pairwise(parts))
            if a + b in vocab
        ]
        if not pairs:
            break
        i = min(pairs)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    ids = [1]
    for part in parts:
        ids += [vocab[part]] if part in vocab else [3 + byte for byte in part.encode()]
    assert scored.encode(string) == ids
    assert scored.decode(ids) == string


GG = "tokenizer.ggml."


def text_of(path: Path, metadata: dict[str, Any], **changes: Any) -> Any:
    """Return the tokenizer of a file; None removes a key of the metadata."""
    metadata = metadata | {f"{GG}{key}": x for key, x in changes.items()}
    metadata = {key: x for key, x in metadata.items() if x is not None}
    write_gguf(path / "m.gguf", "llama", *llama(), metadata=metadata)
    return nn.text.load(path / "m.gguf")


def scored_vocabulary(*words: str, scores: Any = None, types: Any = None) -> dict[str, Any]:
    """Return metadata of a tokenizer with scores, without keys of special tokens."""
    tokens = ["<unk>", "<s>", "</s>", "\u2581", *words]
    types = [2, 3, 3, 1, *(types or [1] * len(words))]
    scores = [0.0] * 4 + [*(scores or [0.0] * len(words))]
    values = {"model": ("llama", STRING), "tokens": (tokens, ARRAY, STRING), "scores": (scores, ARRAY, FLOAT32), "token_type": (types, ARRAY, INT32)}  # fmt: skip
    return {f"{GG}{key}": x for key, x in values.items()}


def test_tokenizer_with_scores_has_default_special_tokens(tmp_path: Path) -> None:
    """Ids of a file without keys: 1 before a text, 2 for its end, 0 for unknown characters."""
    text = text_of(tmp_path, scored_vocabulary("a", "b"))
    assert (text.bos_id, text.eos_id, text.pad_id, text.vocab_size) == (1, 2, None, 6)
    assert text.settings["unk_token"] == "<unk>"  # a variable of chat templates
    text = text_of(tmp_path, scored_vocabulary("a", "b"), unknown_token_id=(5, UINT32))
    assert text.settings["unk_token"] == "b"
    assert text.encode("ab") == [1, 3, 4, 5] and text.encode("axxb") == [1, 3, 4, 0, 5]
    assert text.encode("a", "b") == [1, 3, 4, 1, 3, 5]
    keys = dict.fromkeys(("add_bos_token", "add_eos_token"), (True, BOOL))
    text = text_of(tmp_path, scored_vocabulary("a"), **keys, padding_token_id=(4, UINT32))
    assert text.encode("a") == [1, 3, 4, 2] and text.pad_id == 4
    ids, _, types = text.batch(["a"], ["a"])
    assert ids[0].tolist() == [1, 3, 4, 2] * 2 and types[0].tolist() == [0] * 4 + [1] * 4
    text = text_of(tmp_path, scored_vocabulary("a"), add_bos_token=(False, BOOL), bos_token_id=(4, UINT32))  # fmt: skip
    assert text.encode("a") == [3, 4] and text.bos_id == 4
    small = scored_vocabulary() | {
        f"{GG}tokens": (["a", "b"], ARRAY, STRING), f"{GG}scores": ([0.0, 0.0], ARRAY, FLOAT32),
        f"{GG}token_type": None, f"{GG}add_bos_token": (False, BOOL),
    }  # fmt: skip
    text = text_of(tmp_path, small)  # too small for an id of 2
    assert (text.bos_id, text.eos_id) == (1, None)
    metadata = {key: value for key, (value, *_) in scored_vocabulary("a").items()}
    assert end_ids(metadata, "") == [2]
    assert end_ids(metadata | {f"{GG}eos_token_id": 4}, "") == [4, 2]
    plain = {f"{GG}tokens": ["a", "b", "c"]}  # 2 is the default of the kind, whatever its name
    assert end_ids(plain | {f"{GG}model": "llama"}, "") == [2]
    assert end_ids(plain | {f"{GG}model": "gpt2"}, "") == []
    assert end_ids({f"{GG}tokens": ["a", "b"], f"{GG}model": "llama"}, "") == []
    assert end_ids({}, "") == [] and end_ids({f"{GG}eos_token_id": 7}, "") == [7]
    assert end_ids({f"{GG}eos_token_id": 0}, "") == [0]
    with pytest.raises(ValueError, match=r"^x: .*eos_token_id must be 0 to .*, got -1"):
        end_ids({f"{GG}eos_token_id": -1}, "x")
    for tokens in ([], ["a", "a"]):
        with pytest.raises(ValueError, match="tokens must be 1 to 1,000,000 different tokens"):
            end_ids({f"{GG}tokens": tokens}, "")


@pytest.mark.parametrize(("kind", "is_shown"), [(1, True), (2, False), (3, False), (4, True)])
def test_byte_level_tokens_are_added_by_their_types(
    tmp_path: Path, kind: int, is_shown: bool
) -> None:
    metadata = byte_level("gpt-2")[1]
    tokens, types = metadata[f"{GG}tokens"][0], metadata[f"{GG}token_type"][0]
    text = text_of(tmp_path, metadata, tokens=([*tokens, "<a>"], ARRAY, STRING),
                   token_type=([*types, kind], ARRAY, INT32))  # fmt: skip
    ids = text.encode("the<a>cat")
    assert (len(tokens) in ids) == (kind != 1)
    assert text.decode(ids) == ("the<a>cat" if is_shown else "thecat")


def test_number_of_tokens_is_at_most_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = scored_vocabulary("a")
    for most in (4, 5, 6):
        monkeypatch.setattr("nn.text.gguf_tokenizer.MAX_TOKENS", most)
        if most < 5:
            with pytest.raises(ValueError, match="tokens must be 1 to 4 different tokens"):
                text_of(tmp_path, metadata)
        else:
            assert len(text_of(tmp_path, metadata)) == 5


def test_tokens_of_bytes_are_not_joined_from_characters(tmp_path: Path) -> None:
    for kind, expected in ((1, [1, 3, 6]), (6, [1, 3, 4, 5])):
        metadata = scored_vocabulary("a", "b", "ab", types=[1, 1, kind])
        assert text_of(tmp_path, metadata).encode("ab") == expected


def test_chat_templates_of_a_file_have_the_names_of_their_keys(tmp_path: Path) -> None:
    more = {"tokenizer.chat_template.rag": ("b", STRING), "tokenizer.chat_templates": (["rag"], ARRAY, STRING)}  # fmt: skip
    text = text_of(tmp_path, byte_level("gpt-2")[1] | more)
    found = {name: source for name, (_, source) in text.settings["chat_templates"].items()}
    assert found == {"default": "{{ messages[0].content }}", "rag": "b"}


@pytest.mark.parametrize("has_prefix", [None, True, False])
def test_tokenizer_with_scores_marks_the_first_word_if_the_file_says_so(
    tmp_path: Path, has_prefix: bool | None
) -> None:
    key = None if has_prefix is None else (has_prefix, BOOL)
    text = text_of(tmp_path, scored_vocabulary("a"), add_space_prefix=key)
    is_marked = has_prefix is not False
    for string, ids in (("a", [4]), ("a a", [4, 3, 4]), (" a", [3, 4])):
        assert text.encode(string) == [1, *([3] if is_marked else []), *ids]
        assert text.decode(text.encode(string)) == string


def test_tokenizer_with_scores_has_bytes_only_if_they_are_tokens(tmp_path: Path) -> None:
    text = text_of(tmp_path, scored_vocabulary("<0xC3>", "<0xA9>", "a", types=[6, 6, 1]))
    assert text.encode("\u00e9a")[2:] == [4, 5, 6] and text.decode([4, 5, 6]) == "\u00e9a"
    text = text_of(tmp_path, scored_vocabulary("<0xC3>", "<0xA9>", "a"))
    assert text.encode("\u00e9a")[2:] == [0, 6]
    joined = scored_vocabulary("<", "0", "x", "C", "3", ">", "<0", "x3", "<0xC3>", types=[1] * 8 + [6])  # fmt: skip
    assert text_of(tmp_path, joined).encode("<0xC3>")[2:] == [10, 6, 7, 8, 9]
    halves = scored_vocabulary(*"<0xC3>", "<0", "<0x", "<0xC", "3>", "<0xC3>", types=[1] * 10 + [6])
    assert text_of(tmp_path, halves).encode("<0xC3>")[2:] == [12, 13]


@pytest.mark.parametrize("scores", [(-1.0, -2.0), (-2.0, -1.0), (0.0, 0.0)])
def test_pair_with_the_best_score_is_joined_first(tmp_path: Path, scores: Any) -> None:
    """Prefer the token with the lower id among equal scores."""
    for words in (("ab", "bc"), ("bc", "ab")):
        text = text_of(
            tmp_path, scored_vocabulary("a", "b", "c", *words, scores=(0.0,) * 3 + scores)
        )
        best = words[scores.index(max(scores))]
        assert text.tokens(text.encode("abc"))[2:] == (["ab", "c"] if best == "ab" else ["a", "bc"])


@given(length=beside(64))
def test_tokens_of_at_most_64_characters_are_joined(
    length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Encode beside special tokens, which are never made of pieces."""
    words = ["a" * n for n in range(1, length + 1)]
    scores = [float(n) for n in range(length)]
    text = text_of(tmp_path_factory.getbasetemp(), scored_vocabulary(*words, scores=scores))
    found = text.tokens(text.encode("a" * length))[2:]
    assert (len(found) == 1) == (length <= 64) and "".join(found) == "a" * length
    special = scored_vocabulary("a", "b", "ab", types=[1, 1, 3])
    text = text_of(tmp_path_factory.getbasetemp(), special)
    assert text.encode("ab")[-1] == 6 and text.decode([6]) == ""


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("name", [None, "Phi-3 mini", "x phi3", "Phi-2"])
def test_added_tokens_are_those_of_their_types(tmp_path: Path, kind: int, name: str | None) -> None:
    """User-defined tokens are shown, others are not. Those of Phi-3 take the spaces after them."""
    metadata = scored_vocabulary("a", "[A]", "[", "A", "]", types=[1, kind, 1, 1, 1])
    metadata["general.name"] = None if name is None else (name, STRING)
    text = text_of(tmp_path, metadata)
    is_whole = kind in (2, 3, 4)
    strips = is_whole and name is not None and "2" not in name
    parts = ["[A]"] if is_whole else ["[", "A", "]"]
    end = ["\u2581", "\u2581", "a"] if is_whole and not strips else ["\u2581", "a"]
    assert text.tokens(text.encode("a[A] a")) == ["<s>", "\u2581", "a", *parts, *end]
    shown = text.decode(text.encode("a[A]"))
    assert shown == ("a" if kind in (2, 3) else "a[A]")
    before = text.tokens(text.encode("<s> a"))  # keeps its space in Phi-3, too
    assert before == ["<s>", "<s>", "\u2581", "\u2581", "a"]


def test_byte_level_tokenizer_adds_special_tokens_of_the_file(tmp_path: Path) -> None:
    metadata = byte_level("gpt-2")[1]
    text = text_of(tmp_path, metadata, add_eos_token=(True, BOOL), unknown_token_id=(0, UINT32))
    assert text.tokens(text.encode("the")) == ["the", "<|last|>"]
    both = dict.fromkeys(("add_bos_token", "add_eos_token"), (True, BOOL))
    text = text_of(tmp_path, metadata, **both, bos_token_id=(5, UINT32))
    assert text.encode("the")[0] == 5 and text.encode("the")[-1] == 0
    for lost in ({"eos_token_id": None}, {}):
        with pytest.raises(ValueError, match="ggml.[be]os_token_id is missing, but texts need"):
            text_of(tmp_path, metadata, **{**both, **lost})


def test_text_load_refuses_other_tokenizers_by_name(tmp_path: Path) -> None:
    for changes, message in (
        (
            {"tokenizer.ggml.pre": ("kimi-k2", STRING)},
            'tokenizer.ggml.pre must be one of .*"kimi-k2"',
        ),
        *(
            (
                {
                    "tokenizer.ggml.model": ("llama", STRING),
                    "tokenizer.ggml.scores": ([0.0] * n, ARRAY, FLOAT32),
                },
                "tokenizer.ggml.scores must be 271 scores",
            )
            for n in (270, 272)
        ),
        ({"tokenizer.ggml.model": ("t5", STRING)}, 'tokenizer.ggml.model must be .*"t5"'),
        ({"tokenizer.ggml.add_bos_token": (True, BOOL)}, "tokenizer.ggml.bos_token_id is missing"),
        (
            {"tokenizer.ggml.eot_token_id": (999, UINT32)},
            "tokenizer.ggml.eot_token_id must be less than 271",
        ),
        ({"tokenizer.ggml.bos_token_id": (271, UINT32)}, "bos_token_id must be less than 271"),
        (
            {"tokenizer.ggml.tokens": (["a", "a"], ARRAY, STRING)},
            "tokens must be .* different tokens",
        ),
        *(
            ({"tokenizer.ggml.token_type": ([1] * n, ARRAY, INT32)}, "token_type must be 271 types")
            for n in (2, 272)
        ),
        ({"tokenizer.ggml.merges": (["ab"], ARRAY, STRING)}, "merges must be pairs of tokens"),
        (
            {"tokenizer.ggml.odd": (True, BOOL)},
            "keys must be known to the tokenizer, got tokenizer.ggml.odd",
        ),
    ):
        metadata = byte_level("gpt-2")[1] | changes
        write_gguf(tmp_path / "m.gguf", "llama", *llama(), metadata=metadata)
        with pytest.raises(ValueError, match=f"m.gguf: metadata: .*{message}"):
            nn.text.load(tmp_path / "m.gguf")


WHOLE_WORDS = {"llama3", "minicpm5", "youtu", "tekken", "granite-embed-multi-97m"}
ADD_BOS = {"llama3", "tekken", "chameleon"}


def pieces(text: Any, string: str) -> list[str]:
    """Return the pieces of a string that are tokenized alone."""
    return [piece for piece, _ in text.tokenizer.pre_tokenizer.pre_tokenize_str(string)]


def test_names_of_pre_have_the_rules_of_their_group() -> None:
    groups: dict[PreTokenizer, list[str]] = {}
    for name, rules in PRE_TOKENIZERS.items():
        groups.setdefault(rules, []).append(name)
    assert sorted(map(sorted, groups.values())) == sorted(sorted(g.split()) for g in GROUPS)


@pytest.mark.parametrize("string", PIECES)
def test_rules_of_pre_split_strings(string: str) -> None:
    steps = tokenizers.pre_tokenizers
    for expected, names in PIECES[string].items():
        for name in names.split():
            patterns = PRE_TOKENIZERS[name].patterns
            parts = [steps.Split(tokenizers.Regex(pattern), "isolated") for pattern in patterns]
            found = steps.Sequence(parts).pre_tokenize_str(string)
            mark = "@" if "~" in string else "~"
            assert mark.join(piece for piece, _ in found) == expected, name


@pytest.mark.parametrize("pre", [group.split()[0] for group in GROUPS])
def test_text_load_reads_the_rules_of_each_pre(tmp_path: Path, pre: str) -> None:
    """Split strings, find tokens that no merge makes, and add BOS, which a key can override."""
    metadata = byte_level("gpt-2")[1]
    tokens = [*metadata["tokenizer.ggml.tokens"][0], "xyzzy"]
    metadata |= {
        "tokenizer.ggml.pre": (pre, STRING),
        "tokenizer.ggml.tokens": (tokens, ARRAY, STRING),
        "tokenizer.ggml.token_type": ([3] + [1] * (len(tokens) - 1), ARRAY, INT32),
        "tokenizer.ggml.bos_token_id": (0, UINT32),
    }
    path = tmp_path / "m.gguf"
    write_gguf(path, "llama", *llama(), metadata=metadata)
    text = nn.text.load(path)
    names = "llama3" if pre == "dbrx" else "gpt-4o" if pre.startswith("granite") else pre
    assert "~".join(pieces(text, "1234567")) in [
        expected for expected, equal in PIECES["1234567"].items() if names in equal.split()
    ]
    assert (text.encode("xyzzy")[-1] == len(tokens) - 1) == (pre in WHOLE_WORDS)
    assert (text.encode("x")[0] == 0) == (pre in ADD_BOS)
    metadata["tokenizer.ggml.add_bos_token"] = (pre not in ADD_BOS, BOOL)
    write_gguf(path, "llama", *llama(), metadata=metadata)
    assert (nn.text.load(path).encode("x")[0] == 0) == (pre not in ADD_BOS)


ENDS = [
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "[e~[", "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>",
    "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>",
]  # fmt: skip
FIMS = [
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim\u2581begin\uff5c>", "<PRE>", "\u2581<PRE>",
    "<|code_prefix|>", "<|prefix|>", "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",
    "<\uff5cfim\u2581hole\uff5c>", "<SUF>", "\u2581<SUF>", "<|code_suffix|>", "<|suffix|>", "<|fim_middle|>",
    "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "<MID>", "\u2581<MID>", "<|code_middle|>",
    "<|middle|>",
]  # fmt: skip


def with_tokens(path: Path, *extra: str, **keys: str | int | list[int]) -> tuple[Any, Any]:
    """Return the model and the tokenizer of a file with more tokens, which are of type 1.

    The values of `keys` are numbers, or one of the tokens.
    """
    metadata = byte_level("gpt-2")[1]
    tokens = [*metadata["tokenizer.ggml.tokens"][0], *extra]
    metadata["tokenizer.ggml.tokens"] = (tokens, ARRAY, STRING)
    metadata["tokenizer.ggml.token_type"] = ([3] + [1] * (len(tokens) - 1), ARRAY, INT32)
    for key, x in keys.items():
        value = (x, ARRAY, INT32) if isinstance(x, list) else (x, UINT32)
        metadata[f"tokenizer.ggml.{key}"] = (
            (tokens.index(x), UINT32) if isinstance(x, str) else value
        )
    settings, arrays = llama()
    rows = np.random.default_rng(0).standard_normal((len(tokens), 16))
    arrays = {name: rows if len(array) == 40 else array for name, array in arrays.items()}
    write_gguf(path / "m.gguf", "llama", settings, arrays, metadata=metadata)
    return nn.load(path / "m.gguf"), nn.text.load(path / "m.gguf")


def ends_of(model: Any, extra: int) -> tuple[int, ...]:
    """Return which of the last tokens end a text, beside EOS."""
    assert model.config.end_ids[0] == 0
    return tuple(i - model.config.vocab_size + extra for i in model.config.end_ids[1:])


@pytest.mark.parametrize("token", [*ENDS, *FIMS])
def test_load_makes_known_names_control_tokens_that_end_a_text(tmp_path: Path, token: str) -> None:
    model, text = with_tokens(tmp_path, token)
    ids = text.encode(f"the{token}cat")
    assert text.tokens(ids).count(token) == 1 and text.decode(ids) == "thecat"
    assert ends_of(model, 1) == ((0,) if token in ENDS else ())


@pytest.mark.parametrize(
    ("extra", "keys", "ends"),
    [
        ("<a>", {"eot_token_id": "<a>"}, (0,)),
        ("<a>", {"eom_token_id": "<a>"}, (0,)),
        ("<a>", {"fim_pad_token_id": "<a>"}, (0,)),
        ("<a>", {"fim_rep_token_id": "<a>"}, (0,)),
        ("<a>", {"fim_sep_token_id": "<a>"}, (0,)),
        ("<a>", {"fim_mid_token_id": "<a>"}, ()),
        ("<a> <PAD>", {"fim_pad_token_id": "<a>"}, (0,)),  # instead of the name
        ("<a> <|im_end|>", {"eot_token_id": "<a>"}, (0, 1)),
        ("<|end|> <|return|> <|call|>", {}, (1, 2)),  # of gpt-oss, where <|end|> ends a message
        ("<|end|> <|calls|> <|flush|>", {}, (1, 2)),
        ("<|end|> <|return|>", {}, (0, 1)),
        ("</s> <|tool_response>", {}, (1,)),
        ("<|channel|> <|start|>", {}, ()),
    ],
)
def test_load_reads_the_tokens_that_end_a_text(
    tmp_path: Path, extra: str, keys: dict[str, str], ends: tuple[int, ...]
) -> None:
    """Tokens that end a text are control tokens, which strings without special ones do not show."""
    model, text = with_tokens(tmp_path, *extra.split(), **keys)
    assert ends_of(model, len(extra.split())) == ends
    if "</s>" in extra:
        assert text.decode(text.encode("the</s>")) == "the</s>"


def test_load_shows_the_channels_of_gpt_oss(tmp_path: Path) -> None:
    _, text = with_tokens(tmp_path, "<|channel|>", "<|message|>", "")
    assert (
        text.decode(text.encode("the<|channel|>cat<|message|>")) == "the<|channel|>cat<|message|>"
    )
    assert text.tokens([len(text) - 1]) == [f"[EMPTY_{len(text) - 1}]"]


def test_chat_with_tools_uses_their_template(tmp_path: Path) -> None:
    needs("jinja2")
    template = ("{{ tools | length }} tools", STRING)
    metadata = byte_level("gpt-2")[1] | {
        "tokenizer.chat_template.tool_use": template,
        "tokenizer.chat_templates": (["tool_use"], ARRAY, STRING),
    }
    write_gguf(tmp_path / "m.gguf", "llama", *make("llama", tmp_path), metadata=metadata)
    text, messages = nn.text.load(tmp_path / "m.gguf"), [{"role": "user", "content": "the cat"}]
    assert text.chat(messages) == "the cat" and text.chat(messages, tools=[{}]) == "1 tools"


def test_generate_text_suppresses_the_tokens_of_the_file(tmp_path: Path) -> None:
    model, text = with_tokens(tmp_path)
    first = nn.generate(model, text.encode("the"), max_len=1)
    model, text = with_tokens(tmp_path, suppress_tokens=first)
    tokens = nn.generate(model, text.encode("the"), suppress=first, max_len=5)
    assert nn.generate_text(model, text, "the", max_len=5) == text.decode(tokens)
    assert first[0] not in tokens


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"rope.scaling.factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"rope.scale_linear": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"rope.scaling.factor": 4.0, "rope.scaling.type": "none"}, None),
        ({"rope.scaling.type": "linear"}, None),
        ({"rope.scaling.type": "yarn"}, None),
        ({"rope.scaling.factor": 0.0}, None),
    ],
)
def test_load_reads_the_scaling_of_positions(
    tmp_path: Path, keys: dict[str, float | str], expected: dict[str, Any] | None
) -> None:
    settings, arrays = make("llama", tmp_path)
    write_gguf(tmp_path / "m.gguf", "llama", settings, arrays, metadata={
        Q + key: (x, STRING if isinstance(x, str) else FLOAT32) for key, x in keys.items()
    })  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(settings | {"rope_scaling": expected}))
    ids = np.arange(20)[None]
    found = nn.load(tmp_path / "m.gguf")(ids).data
    np.testing.assert_allclose(found, nn.load(tmp_path)(ids).data, atol=1e-5)


# -- damaged files -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write files of two architectures and three types, with a tokenizer."""
    paths = {}
    for name, kind in (("llama", "F32"), ("llama", "Q4_K"), ("gpt2", "Q8_0")):
        path = tmp_path_factory.mktemp("whole")
        arguments = (name, *make(name, path, 256), kind, byte_level("gpt-2")[1])
        write_gguf(path / "model.gguf", *arguments)
        paths[f"{name} {kind}"] = path / "model.gguf"
    return paths


BYTES = st.one_of(
    st.sampled_from([b"\0", b"\xff", b"\x7f", b"\x80"]), st.binary(min_size=1, max_size=1)
)
DAMAGE = st.one_of(
    st.tuples(st.just("cut"), st.integers(0, 30) | st.floats(0, 0.999)),
    st.tuples(st.just("set"), st.floats(0, 1), BYTES, st.sampled_from([1, 2, 4, 8])),
    st.tuples(st.just("set data"), st.floats(0, 1), BYTES, st.sampled_from([1, 2, 4, 8, 4096])),
    st.tuples(st.just("insert"), st.floats(0, 1), BYTES, st.sampled_from([1, 2, 4, 8])),
    st.tuples(st.just("delete"), st.floats(0, 1), st.sampled_from([1, 2, 4, 8])),
)  # fmt: skip


def damaged(data: bytes, change: tuple[Any, ...]) -> bytes:
    """Return the content of a file after a change at a fraction of its header or of all bytes."""
    what, at, *rest = change
    if what == "cut":
        return data[: at if isinstance(at, int) else int(at * len(data))]
    end = data.index(b"blk.1.ffn_down.weight") + 60  # of the header, about
    start = int(at * (len(data) if what == "set data" else end))
    new = b"" if what == "delete" else rest[0] * rest[1]
    removed = {"insert": 0, "delete": rest[0]}.get(what, len(new))
    return data[:start] + new + data[start + removed :]


@pytest.mark.slow
@max_examples(200, deadline=None)
@given(
    name=st.sampled_from(["llama F32", "llama Q4_K", "gpt2 Q8_0"]),
    change=DAMAGE,
    weights=st.sampled_from(["float", "int8"]),
)
def test_damaged_files_raise_one_line_with_the_file(
    whole_files: dict[str, Path], name: str, change: tuple[Any, ...], weights: str
) -> None:
    """A file that is cut is refused; so is one with other bytes, unless it is still valid."""
    data = whole_files[name].read_bytes()
    path = whole_files[name].parent / "damaged.gguf"
    path.unlink(missing_ok=True)  # a mapped file must not become shorter
    path.write_bytes(damaged(data, change))
    try:
        with limits(memory=1 << 30):
            model, _ = nn.load(path, weights=weights), nn.text.load(path)
            with np.errstate(all="ignore"):  # damaged values may be large
                assert model(np.array([[1, 2]])).shape[:2] == (1, 2)
            assert change[0] != "cut" or path.read_bytes() == data
    except (ValueError, OSError) as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)
        assert len(str(error)) < 1500
