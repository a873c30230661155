"""GGUF files that transformers and nn.load read: the same logits and tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from support.gguf_files import write_gguf
from support.published import make

import nn

SIZES = {
    "hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 64,
}  # fmt: skip
GEMMA = SIZES | {"query_pre_attn_scalar": 64}
SCALED = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
MODERN = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("llama", "llama", SIZES),
    "mistral": ("mistral", "llama", SIZES | {"sliding_window": None}),
    "qwen2": ("qwen2", "qwen2", {**SIZES, "num_key_value_heads": 4}),
    "qwen3": ("qwen3", "qwen3", SIZES),
    "gemma": ("gemma", "gemma", SIZES),
    "gemma2": ("gemma2", "gemma2", GEMMA | {"attn_logit_softcapping": 2.0}),
    "gemma3": ("gemma3_text", "gemma3", GEMMA | {"num_hidden_layers": 7}),
    "gemma3, scaled": (
        "gemma3_text",
        "gemma3",
        GEMMA
        | {
            "final_logit_softcapping": None,
            "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
            "rope_parameters": SCALED,
        },
    ),
    "gemma-embedding": (
        "gemma3_text, encoder",
        "gemma-embedding",
        GEMMA | {"num_hidden_layers": 7, "rope_parameters": None, "final_logit_softcapping": None},
    ),
    "modern-bert": ("modernbert", "modern-bert", MODERN),
    "gpt2": ("gpt2", "gpt2", {"n_embd": 256, "n_inner": 1024, "n_head": 4, "n_positions": 1024}),
}
"""Name of the tiny model, its architecture, and changes of its settings."""


def rotary_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the bases of the rotation by the names of older files."""
    positions = settings.get("rope_parameters") or {}
    if "full_attention" not in positions:
        return {"rope_theta": positions.get("rope_theta")}
    bases = [positions[f"{kind}_attention"]["rope_theta"] for kind in ("full", "sliding")]
    is_modern = settings["model_type"] == "modernbert"
    keys = (
        ("global_rope_theta", "local_rope_theta")
        if is_modern
        else ("rope_theta", "rope_local_base_freq")
    )
    return dict(zip(keys, bases))


def metadata_of(name: str, architecture: str) -> dict[str, Any]:
    """Return further keys that llama.cpp's converter writes."""
    kinds, start = gguf.GGUFValueType, f"{architecture}."
    if name == "gemma3, scaled":
        return {
            start + "rope.scaling.type": ("linear", kinds.STRING),
            start + "rope.scaling.factor": (8.0, kinds.FLOAT32),
            start + "attention.sliding_window_pattern": (3, kinds.UINT32),
        }
    if architecture in ("modern-bert", "gemma-embedding"):
        return {
            start + "attention.causal": (False, kinds.BOOL),
            start + "pooling_type": (1, kinds.UINT32),
        }
    return {}


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_K", "Q6_K"])
@pytest.mark.parametrize("name", FAMILIES)
def test_logits_equal_those_of_transformers(tmp_path: Path, name: str, kind: str) -> None:
    tiny, architecture, changes = FAMILIES[name]
    model = make(tiny, tmp_path, **changes)
    settings = model.config.to_dict()
    settings |= rotary_settings(settings)
    is_bare = architecture in ("gemma-embedding", "modern-bert")
    arrays = {
        f"model.{key}" if is_bare else key: x.numpy() for key, x in model.state_dict().items()
    }
    if model.config.tie_word_embeddings:
        arrays.pop("lm_head.weight", None)
    path = tmp_path / "model.gguf"
    metadata = metadata_of(name, architecture)
    decoded = write_gguf(path, architecture, settings, arrays, kind, metadata)
    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, (2, 9))
    found = nn.load(path, dtype="float64")(ids).data
    # the decoded arrays in their model
    with torch.no_grad():
        start = "model." if is_bare else ""
        state = {key.removeprefix(start): torch.from_numpy(x.copy()) for key, x in decoded.items()}
        missing = model.load_state_dict(state, strict=False)
        assert not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"}
        output = model.double()(torch.from_numpy(ids))
        expected = (output.last_hidden_state if is_bare else output.logits).numpy()
    np.testing.assert_allclose(found, expected, atol=5e-5 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_logits_equal_those_of_transformers_from_the_same_file(tmp_path: Path, name: str) -> None:
    tiny, architecture, changes = FAMILIES[name]
    model = make(tiny, tmp_path, **changes)
    settings = model.config.to_dict()
    settings |= {"rope_theta": (settings.get("rope_parameters") or {}).get("rope_theta")}
    arrays = {key: x.numpy() for key, x in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        arrays.pop("lm_head.weight")
    tokens = [f"t{i}" for i in range(model.config.vocab_size)]  # their number is read
    kinds = (gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING)
    metadata = {"tokenizer.ggml.tokens": (tokens, *kinds)}
    write_gguf(tmp_path / "model.gguf", architecture, settings, arrays, "Q8_0", metadata)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", dtype=torch.float32
    ).eval()
    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, (2, 9))
    with torch.no_grad():
        expected = theirs(torch.from_numpy(ids)).logits.numpy()
    found = nn.load(tmp_path / "model.gguf")(ids).data
    np.testing.assert_allclose(found, expected, atol=1e-4 * max(1, np.abs(expected).max()))
