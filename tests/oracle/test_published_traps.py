"""Forms of published files that run and give wrong results if they are misread."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import VOCAB, draw_batch, make

import nn
from minigrad.io.safetensors import SafetensorsFile, write_safetensors

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")

IDS = np.random.default_rng(5).integers(3, 48, (2, 12))
HEAD = np.random.default_rng(0).standard_normal((VOCAB, 16)).astype(np.float32)


def logits(model: Any, ids: np.ndarray, **inputs: np.ndarray) -> np.ndarray:
    """Return the logits or hidden states of a model of transformers."""
    with torch.no_grad():
        output = model(torch.tensor(ids), **{k: torch.tensor(v) for k, v in inputs.items()})
    return output[0].numpy()


def assert_close(found: Any, expected: Any) -> None:
    """Compare logits of float32."""
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)


def edit_arrays(directory: Path, **arrays: np.ndarray) -> None:
    """Add arrays to model.safetensors; `__` in a name stands for a dot."""
    path = directory / "model.safetensors"
    file = SafetensorsFile(path)
    added = {name.replace("__", "."): array for name, array in arrays.items()}
    write_safetensors(path, {name: file.read(name) for name in file} | added, {"format": "pt"})


def edit_config(directory: Path, change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Change the settings in config.json, and return them."""
    path = directory / "config.json"
    settings = json.loads(path.read_text())
    change(settings)
    path.write_text(json.dumps(settings))
    return settings


def load_theirs(directory: Path, model_class: Any) -> Any:
    """Load a directory with transformers, and check that no weight is missing or unexpected."""
    options = {"output_loading_info": True, "dtype": torch.float32}
    model, report = model_class.from_pretrained(directory, **options)
    assert not any(report.values()), report
    return model.eval()


# Names are values of `MODELS`; the last column is the length of the input.
VARIANTS: list[tuple[str, dict[str, Any], int]] = [
    ("gpt2", {"activation_function": "gelu"}, 12),
    ("gpt2", {"activation_function": "relu"}, 12),
    ("mpnet", {"max_position_embeddings": 302}, 300),  # every bucket of distances
    ("qwen2", {"vocab_size": 64}, 12),  # wider than the tokenizer
]


@pytest.mark.parametrize(("name", "changes", "length"), VARIANTS)
def test_load_of_variant_gives_logits_of_transformers(
    tmp_path: Path, name: str, changes: dict[str, Any], length: int
) -> None:
    theirs = make(transformers, torch, name, **changes)
    theirs.save_pretrained(tmp_path)
    ids = np.random.default_rng(5).integers(3, 48, (1, length))
    assert_close(nn.load(tmp_path)(ids).data, logits(theirs, ids))


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 2.0},
        {"type": "linear", "factor": 2.0},
        {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
        {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
            "attention_factor": 1.3,
        },
    ],
)  # fmt: skip
def test_load_with_older_rope_scaling_equals_today(tmp_path: Path, scaling: dict[str, Any]) -> None:
    """`rope_theta` and `rope_scaling` instead of `rope_parameters`; `nn.save` writes them back."""
    kind = scaling.get("rope_type", scaling.get("type"))
    today = {"rope_theta": 5e4, **scaling, "rope_type": kind}
    theirs = make(transformers, torch, "llama", rope_parameters=today)
    theirs.save_pretrained(tmp_path)

    def as_before(settings: dict[str, Any]) -> None:
        del settings["rope_parameters"]
        settings |= {"rope_theta": 5e4, "rope_scaling": scaling}
        settings["torch_dtype"] = settings.pop("dtype")

    settings = edit_config(tmp_path, as_before)
    ours = nn.load(tmp_path)
    assert_close(ours(IDS).data, logits(theirs, IDS))
    nn.save(tmp_path / "again", ours)
    assert json.loads((tmp_path / "again/config.json").read_text()) == settings


def test_load_of_tied_model_with_another_head_uses_that_head(tmp_path: Path) -> None:
    theirs = make(transformers, torch, "llama, scaled")
    theirs.save_pretrained(tmp_path)
    assert "lm_head.weight" not in SafetensorsFile(tmp_path / "model.safetensors")
    edit_arrays(tmp_path, lm_head__weight=HEAD)
    assert_close(nn.load(tmp_path)(IDS).data, logits(load_theirs(tmp_path, type(theirs)), IDS))


def test_loss_with_eos_as_padding_counts_eos_that_the_mask_keeps(tmp_path: Path) -> None:
    theirs = make(transformers, torch, "gpt2", pad_token_id=2)
    theirs.save_pretrained(tmp_path)
    ids, is_real = np.array([[3, 2, 5, 2, 2]]), np.array([[True, True, True, True, False]])
    ours = nn.load(tmp_path)
    assert_close(ours(ids).data, logits(theirs, ids))
    labels = torch.tensor(np.where(is_real, ids, -100))
    mask = torch.tensor(is_real).long()
    expected = theirs(torch.tensor(ids), attention_mask=mask, labels=labels).loss.item()
    assert ours.loss(ids, is_real).item() == pytest.approx(expected, rel=1e-5)


def test_roberta_with_padding_inside_a_row_gives_logits_of_transformers(tmp_path: Path) -> None:
    theirs = make(transformers, torch, "roberta, masked")
    theirs.save_pretrained(tmp_path)
    ids, is_real = draw_batch(theirs)
    ids[0, 4], is_real[0, 4] = 1, False
    expected = logits(theirs, ids, attention_mask=is_real.astype(int))
    assert_close(nn.load(tmp_path)(ids, is_real).data[is_real], expected[is_real])


def test_t5_with_head_of_its_own_does_not_scale_the_decoder(tmp_path: Path) -> None:
    """Files of v1.1 and FLAN: `lm_head` in the file, and `tie_word_embeddings` false."""
    theirs = make(transformers, torch, "t5, gated")
    theirs.save_pretrained(tmp_path)
    edit_arrays(tmp_path, lm_head__weight=HEAD)
    edit_config(
        tmp_path, lambda s: (s.pop("scale_decoder_outputs", 0), s.update(tie_word_embeddings=False))
    )
    ours, target = nn.load(tmp_path), IDS[:, :5]
    memory = torch.tensor(logits(theirs.encoder, IDS))
    with torch.no_grad():
        hidden = theirs.decoder(torch.tensor(target), encoder_hidden_states=memory)[0].numpy()
    assert_close(ours(IDS, target).data, hidden @ HEAD.T)
    nn.save(tmp_path / "again", ours)
    files = [directory / "model.safetensors" for directory in (tmp_path / "again", tmp_path)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_load_of_older_gpt_neox_reads_its_rotary_settings_and_buffers(tmp_path: Path) -> None:
    theirs = make(transformers, torch, "gpt_neox")
    theirs.save_pretrained(tmp_path)
    edit_config(
        tmp_path,
        lambda s: (s.pop("rope_parameters"), s.update(rotary_pct=0.5, rotary_emb_base=500)),
    )
    edit_arrays(
        tmp_path,
        gpt_neox__layers__1__attention__bias=np.tri(40, dtype=bool)[None, None],
        gpt_neox__layers__1__attention__masked_bias=np.float32(-1e9)[None],
        gpt_neox__layers__1__attention__rotary_emb__inv_freq=np.ones(2, np.float32),
    )
    ours = nn.load(tmp_path)
    again = type(theirs).from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert_close(ours(IDS).data, logits(again, IDS))
    nn.save(tmp_path / "again", ours)
    files = [directory / "model.safetensors" for directory in (tmp_path / "again", tmp_path)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_save_and_load_in_shards_equal_transformers(tmp_path: Path) -> None:
    theirs = make(transformers, torch, "gpt2")
    theirs.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    ours, again = nn.load(tmp_path), tmp_path / "again"
    assert_close(ours(IDS).data, logits(theirs, IDS))
    nn.save(again, ours, max_shard_size="4KB")
    assert len(list(again.glob("model-*-of-*.safetensors"))) > 2
    loaded = load_theirs(again, type(theirs))
    for a, b in zip(loaded.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)
    nn.save(again, nn.load(again))  # in one file; the shards are removed
    assert {p.name for p in again.glob("model*")} == {"model.safetensors"}
    with pytest.raises(ValueError, match=r"max_shard_size must be .*\"5GB\", got '5 gigs'"):
        nn.save(again, ours, max_shard_size="5 gigs")


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_saved_classifier_of_bare_encoder_is_read_by_transformers(
    tmp_path: Path, name: str
) -> None:
    make(transformers, torch, name).save_pretrained(tmp_path / "bare")
    ours = nn.load(tmp_path / "bare", head="classes", num_classes=4)
    nn.save(tmp_path / "classes", ours)
    model_class = transformers.AutoModelForSequenceClassification
    theirs = load_theirs(tmp_path / "classes", model_class)
    assert theirs.config.num_labels == 4
    assert_close(ours(IDS).data, logits(theirs, IDS))


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
TRAINED_HERE: list[tuple[str, nn.Module]] = [
    ("GPT2LMHeadModel", nn.LanguageModel(nn.LanguageModelConfig(*SIZES))),
    ("LlamaForCausalLM", nn.LanguageModel(nn.LanguageModelConfig(
        *SIZES, attention=nn.AttentionConfig(num_kv_heads=2), tie=False, **LLAMA))),
    ("LlamaForCausalLM", nn.LanguageModel(nn.LanguageModelConfig(
        *SIZES, attention=nn.AttentionConfig(bias="vkqo"), **LLAMA))),
    ("MarianMTModel", nn.Transformer(nn.TransformerConfig(*PAIR_SIZES, **MARIAN))),
    ("MarianMTModel", nn.Transformer(nn.TransformerConfig(*PAIR_SIZES, tie="target", **MARIAN))),
    ("MarianMTModel", nn.Transformer(nn.TransformerConfig(*PAIR_SIZES, tie="all", **MARIAN))),
    ("BertForMaskedLM", nn.MaskedLanguageModel(nn.EncoderConfig(*SIZES, **BERT))),
    ("BertForTokenClassification", nn.TokenClassifier(nn.EncoderConfig(*SIZES, num_classes=3, **BERT))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ours"), TRAINED_HERE)
def test_saved_model_trained_here_is_read_by_transformers(
    tmp_path: Path, name: str, ours: nn.Module
) -> None:
    for parameter in ours.parameters():
        parameter.data[...] += 0.1 * np.random.default_rng(1).standard_normal(parameter.shape)
    nn.save(tmp_path, ours.eval())
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [name]
    theirs = load_theirs(tmp_path, getattr(transformers, name))
    inputs = {"decoder_input_ids": IDS} if name == "MarianMTModel" else {}
    found = ours(IDS, IDS) if inputs else ours(IDS)
    assert_close(found.data, logits(theirs, IDS, **inputs))
