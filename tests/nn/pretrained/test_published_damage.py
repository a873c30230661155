"""Damaged folders of published models: one clear line each, or no harm."""

from __future__ import annotations

import json
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import (
    INTENSE,
    Damage,
    Judge,
    array_damage,
    digit_damage,
    file_damage,
    json_damage,
    value_damage,
)

import nn
from minigrad.io import load_arrays, save_arrays
from minigrad.io.safetensors import SafetensorsFile, write_safetensors
from nn.models.config import check_sizes
from nn.pretrained.load import new_origin

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")
pytest.importorskip("sentencepiece", reason="the tokenizers of Marian's folders need it")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "##s", "mat", "on", "</s>", "a"]
SIZES = (len(WORDS), 8, 2, 1, 16)  # words, width, heads, layers, inner width
MOST = 100_000 if INTENSE else 38  # cases of a family
EACH = 1000 if INTENSE else 40  # cases of one kind for one file
ENCODER: dict[str, Any] = {
    "positions": "learned", "embeddings": nn.EmbeddingConfig(scale=False, norm=True), "activation": "gelu",
    "norm_eps": 1e-12,
    "max_len": 20,
}  # fmt: skip


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data))


def word_pieces(path: Path) -> None:
    """tokenizer.json as BERT's models have it."""
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(WORDS[:4])
    tokenizer.save(str(path / "tokenizer.json"))


def language_model(path: Path, **options: Any) -> None:
    """A GPT-2 or a Llama, with a tokenizer, marks, a chat template and settings for generation."""
    config = nn.LanguageModelConfig(*SIZES, max_len=20, bos_id=2, eos_id=3, pad_id=0, **options)
    nn.save(path, nn.LanguageModel(config, np.random.default_rng(0)))
    word_pieces(path)
    write(
        path / "generation_config.json",
        {"eos_token_id": [3, 10], "suppress_tokens": [1], "bad_words_ids": [[5]]},
    )
    write(path / "tokenizer_config.json", {
        "bos_token": "[CLS]", "eos_token": {"content": "[SEP]"}, "model_max_length": 20,
        "chat_template": "{% for m in messages %}{{ bos_token }} {{ m.content }}{% endfor %}",
    })  # fmt: skip
    write(
        path / "special_tokens_map.json", {"pad_token": "[PAD]", "unk_token": {"content": "[UNK]"}}
    )


def gpt2(path: Path) -> None:
    language_model(path)


def llama(path: Path) -> None:
    """In two files with an index."""
    language_model(path, norm="rms", norm_eps=1e-6, gated=True, activation="silu", bias=False, positions="rotary",
                   attention=nn.AttentionConfig(num_kv_heads=1), tie=False)  # fmt: skip
    file = SafetensorsFile(path / "model.safetensors")
    places = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(file)}
    for shard in set(places.values()):
        write_safetensors(
            path / shard, {n: file.read(n) for n in file if places[n] == shard}, {"format": "pt"}
        )
    (path / "model.safetensors").unlink()
    write(
        path / "model.safetensors.index.json", {"metadata": {"total_size": 1}, "weight_map": places}
    )


def mistral(path: Path) -> None:
    llama(path)
    settings = json.loads((path / "config.json").read_text())
    write(path / "config.json", settings | {
        "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 3,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    })  # fmt: skip


def marian(path: Path) -> None:
    config = nn.TransformerConfig(
        12,
        12,
        8,
        2,
        1,
        1,
        16,
        tie="all",
        max_len=20,
        pad_id=7,
        bos_id=7,
        eos_id=0,
        positions="sinusoidal_halves",
    )
    nn.save(path, nn.Transformer(config, np.random.default_rng(0)))

    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    pieces = [
        ("<unk>", 0.0, 2),
        ("</s>", 0.0, 3),
        ("▁the", -1.0, 1),
        ("▁", -3.0, 1),
        ("▁cat", -2.5, 1),
        ("s", -2.0, 1),
    ]
    parts = [
        field(1, p.encode()) + b"\x15" + struct.pack("<f", s) + bytes([0x18, k])
        for p, s, k in pieces
    ]
    (path / "source.spm").write_bytes(
        b"".join(field(1, part) for part in parts) + field(2, b"\x18\x01")
    )
    words = [
        "</s>",
        "<unk>",
        "▁the",
        "▁cat",
        ">>fra<<",
        "▁chat",
        "at",
        "<pad>",
        "s",
        "▁sat",
        "▁on",
        "▁a",
    ]
    write(path / "vocab.json", {w: i for i, w in enumerate(words)})
    write(
        path / "tokenizer_config.json",
        {"eos_token": "</s>", "pad_token": "<pad>", "model_max_length": 20},
    )


def sentences(path: Path) -> None:
    """A BERT with the modules of sentence-transformers, and an older tokenizer."""
    config = nn.EncoderConfig(*SIZES, num_types=2, **ENCODER)
    nn.save(path, nn.EncoderModel(config, np.random.default_rng(0)))
    (path / "vocab.txt").write_text("\n".join(WORDS))
    write(path / "tokenizer_config.json", {"do_lower_case": True, "pad_token": "[PAD]"})
    write(path / "sentence_bert_config.json", {"max_seq_length": 16, "do_lower_case": False})
    kinds = {
        "": "Transformer",
        "1_Pooling": "Pooling",
        "2_Dense": "Dense",
        "3_Normalize": "Normalize",
    }
    write(path / "modules.json", [
        {"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{kind}"}
        for i, (p, kind) in enumerate(kinds.items())
    ])  # fmt: skip
    pool = {
        "word_embedding_dimension": 8,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_cls_token": False,
    }
    write(path / "1_Pooling" / "config.json", pool)
    write(path / "2_Dense" / "config.json", {
        "in_features": 8, "out_features": 4, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh",
    })  # fmt: skip
    draw = np.random.default_rng(1)
    arrays = {"linear.weight": draw.standard_normal((4, 8)), "linear.bias": draw.standard_normal(4)}
    write_safetensors(path / "2_Dense" / "model.safetensors", arrays, dtype="float32")


def mpnet(path: Path) -> None:
    """The modules of sentence-transformers again, as newer ones are written, with an MPNet and a prompt."""
    sentences(path)
    write(
        path / "1_Pooling" / "config.json",
        {"embedding_dimension": 8, "pooling_mode": "cls", "include_prompt": True},
    )
    write(path / "config_sentence_transformers.json", {
        "model_type": "SentenceTransformer", "prompts": {"query": "the ", "document": ""},
        "default_prompt_name": "query", "similarity_fn_name": "cosine",
    })  # fmt: skip
    config = nn.EncoderConfig(
        *SIZES,
        **{
            **ENCODER,
            "positions": nn.PositionConfig(kind="learned_relative", offset=2),
            "pad_id": 1,
            "max_len": 18,
        },
    )
    model, settings = (
        nn.EncoderModel(config, np.random.default_rng(0)),
        json.loads((path / "config.json").read_text()),
    )
    settings |= {"model_type": "mpnet", "pad_token_id": 1, "relative_attention_num_buckets": 32}
    model.origin = new_origin("mpnet", model, "none", settings)
    nn.save(path, model)


def classifier(path: Path) -> None:
    options = {
        **ENCODER,
        "num_classes": 3,
        "pool": "first",
        "head_activation": "tanh",
        "num_types": 2,
    }
    nn.save(
        path, nn.EncoderClassifier(nn.EncoderConfig(*SIZES, **options), np.random.default_rng(0))
    )
    word_pieces(path)
    write(path / "tokenizer_config.json", {"pad_token": "[PAD]"})


def base_of(make: Callable[[Path], None]) -> Any:
    """The model that an adapter is for."""
    rng = np.random.default_rng(0)
    if make is adapter:
        return nn.LanguageModel(nn.LanguageModelConfig(*SIZES, max_len=20), rng)
    options = {
        **ENCODER,
        "num_classes": 3,
        "pool": "first",
        "head_activation": "tanh",
        "num_types": 2,
    }
    return nn.EncoderClassifier(nn.EncoderConfig(*SIZES, **options), rng)


def write_adapter(path: Path, model: Any) -> None:
    draw = np.random.default_rng(1)
    for p in model.parameters():
        if p.requires_grad:
            p.data[...] = draw.standard_normal(p.shape)
    nn.save_adapter(path, model)


def adapter(path: Path) -> None:
    """Of other ranks for what lies in one array of theirs."""
    write_adapter(path, nn.lora(base_of(adapter), 2, 4, ("q_proj", "v_proj", "linear1")))


def adapter_and_head(path: Path) -> None:
    write_adapter(path, nn.lora(base_of(adapter_and_head), 2, 4))


TEXTS = ["the cat sat", "a mat", "the cats"]


def used(path: Path, make: Callable[[Path], None]) -> list[Any]:
    """What a user of the folder sees."""
    if make in (adapter, adapter_and_head):
        ids = np.arange(12).reshape(2, 6)
        return nn.load_adapter(path, base_of(make).eval())(ids).data.tolist()
    if make in (sentences, mpnet):
        return nn.sentence_encoder(path).encode(TEXTS).tolist()
    model, text = nn.load(path), nn.text.load(path)
    ids, real, types = text.batch(TEXTS)
    if isinstance(model, nn.EncoderModel):
        return [ids.tolist(), model(ids, real, types).data.tolist()]
    seen = [ids.tolist(), nn.generate_text(model, text, TEXTS, max_len=5)]
    if isinstance(model, nn.LanguageModel):
        seen += [
            model(ids, real).data.tolist(),
            text.chat([{"role": "user", "content": "the cat"}]),
        ]
    return seen


# What no other file tells: numbers that any model could have, words, and what is not there.
FREE = (
    "'num_attention_heads'",
    "'decoder_start_token_id'",
    "'pad_token_id'",
    "'type_id') = 1",
    "'normalized'",
    "vocab.json without",
    "modules.json without",
    "config_sentence_transformers.json",
    "'n_head'",
    "'sliding_window'",
    "'rope_scaling',) = None",
    "'rope_scaling',) = {}",
    "'eos_token',) = None",
    "('post_processor',) = None",
    "_eps",
    "epsilon",
    "rope_theta",
    "'factor'",
    "generation_config.json",
    "chat_template",
    "source.spm character",
    "vocab.txt character",
    "vocab.txt cut at 0.9",
    "continuing_subword_prefix",
    "config.json without",
    "tokenizer.json without",
    "('model', 'vocab', ",
    "tokenizer_config.json ('bos_token',) = None",
    "('pre_tokenizer',) = None",
    "('added_tokens',) = []",
    "'lora_alpha'",
    "'alpha_pattern'",
    "use_rslora",
    "safetensors a zero",
)
FAMILIES = [gpt2, llama, mistral, marian, sentences, mpnet, classifier, adapter, adapter_and_head]


def cases_of(path: Path, rng: np.random.Generator) -> list[Damage]:
    found: list[Damage] = []
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        name = str(file.relative_to(path))
        of_file = file_damage(name, rng)
        if file.suffix == ".safetensors":
            of_file += digit_damage(
                name, rng, EACH // 2, (0, 8 + int.from_bytes(file.read_bytes()[:8], "little"))
            )
            of_file += array_damage(name, rng)[: EACH // 2]
        elif file.suffix == ".json":
            of_file += json_damage(name, rng, 3, EACH)(path) + value_damage(name, rng, EACH // 2)(
                path
            )
        else:
            of_file += digit_damage(name, rng, EACH // 4)
        found += of_file
    return found


def test_damaged_folders_of_published_models(tmp_path: Path, tell: Callable[[str], None]) -> None:
    judge = Judge()
    for make in FAMILIES:
        rng, whole = np.random.default_rng(0), tmp_path / make.__name__
        whole.mkdir()
        make(whole)
        expected, cases = used(whole, make), cases_of(whole, rng)
        for number in sorted(rng.permutation(len(cases))[:MOST].tolist()):
            what, damage = cases[number]
            directory = shutil.copytree(whole, tmp_path / "damaged")
            damage(directory)
            judge.case(
                f"{make.__name__}: {what}",
                lambda d=directory, make=make: used(d, make),
                lambda found, expected=expected: found == expected,
                str(directory),
                any(word in what for word in FREE),
            )
            shutil.rmtree(directory)
    judge.report("damaged folders of published models", 150, tell)


def test_an_adapter_without_a_part_of_its_head(tmp_path: Path) -> None:
    adapter_and_head(tmp_path)
    arrays, metadata = load_arrays(tmp_path / "adapter_model.safetensors")
    head = {name for name in arrays if ".lora_" not in name}
    assert len(head) == 4  # weight and bias of pooler and classifier
    for gone in [{name} for name in head] + [{name for name in head if "classifier" in name}]:
        left = {name: array for name, array in arrays.items() if name not in gone}
        save_arrays(tmp_path / "adapter_model.safetensors", left, metadata)
        with pytest.raises(
            ValueError, match=f"^{tmp_path}/adapter_model.safetensors: .* missing: base_model"
        ):
            nn.load_adapter(tmp_path, base_of(adapter_and_head))


def test_a_length_without_end_takes_no_memory_where_no_table_has_it(tmp_path: Path) -> None:
    """Rotary positions and caches grow with what is read, so 10¹² is as good as 20; a table of sines would be made."""
    lengths = {}
    for length in (20, 10**12):
        (tmp_path / str(length)).mkdir()
        llama(tmp_path / str(length))
        settings = json.loads((tmp_path / str(length) / "config.json").read_text())
        write(
            tmp_path / str(length) / "config.json", settings | {"max_position_embeddings": length}
        )
        tracemalloc.start()
        lengths[length] = used(tmp_path / str(length), llama)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
        tracemalloc.stop()
    assert lengths[20] == lengths[10**12]
    with pytest.raises(
        ValueError, match="d_model must be a size of an array in a file, got 1000000000000"
    ):
        check_sizes({"max_len": 20, "d_model": 10**12}, {}, "a file")
    for setting, positions in (("max_len", "learned"), ("positions.relative_buckets", "relative")):
        for kind in (positions, "learned_relative"):
            with pytest.raises(
                ValueError, match=f"{setting} must be a size of an array in a file, got 20"
            ):
                check_sizes({setting: 20, "positions.kind": kind}, {}, "a file")
    (tmp_path / "marian").mkdir()
    marian(tmp_path / "marian")
    settings = json.loads((tmp_path / "marian" / "config.json").read_text())
    write(tmp_path / "marian" / "config.json", settings | {"max_position_embeddings": 10**12})
    with pytest.raises(
        ValueError,
        match="config.json: max_position_embeddings must be small enough .*, got 1000000000000",
    ):
        nn.load(tmp_path / "marian")


def test_damaged_settings_of_images(tmp_path: Path, tell: Callable[[str], None]) -> None:
    """Free are other numbers that pixels may have for a mean and a deviation; not those that none can have."""
    judge, rng, whole, name = (
        Judge(),
        np.random.default_rng(0),
        tmp_path / "whole",
        "preprocessor_config.json",
    )
    images = rng.integers(0, 256, (2, 4, 4, 3), np.uint8)
    write(whole / name, {"do_rescale": True, "rescale_factor": 1 / 255, "size": {"height": 4, "width": 4},
                         "do_normalize": True, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.6, 0.7]})  # fmt: skip
    read = lambda directory: nn.pixels(directory, images).tolist()
    expected, other = (
        read(whole),
        ("'image_mean', ", "'image_std', ", "'rescale_factor'", "character"),
    )
    for what, damage in (
        file_damage(name, rng) + json_damage(name, rng)(whole) + digit_damage(name, rng, 60)
    ):
        directory = shutil.copytree(whole, tmp_path / "damaged")
        damage(directory)
        odd = any(text in what for text in ("000", "e+", "308", "-1", "nan", "inf", "10**"))
        judge.case(
            what,
            lambda d=directory: read(d),
            lambda found: found == expected,
            str(directory),
            not odd and any(text in what for text in other),
        )
        shutil.rmtree(directory)
    judge.report("damaged settings of images", 150, tell)
