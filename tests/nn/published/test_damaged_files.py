"""Damaged directories: every reader raises one line that names the file, or returns the same."""

from __future__ import annotations

import base64
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.damage import Hang, damages_of, limits
from support.environment import THOROUGH
from support.runs import timeless, trainer, weights
from support.tiny_folders import (
    language_model_folder,
    modules,
    sentence_encoder_folder,
    text_files,
    translator_folder,
)

import minigrad as mg
import nn
from minigrad.io.safetensors import SafetensorsFile, write_safetensors
from nn.text.tokenize import SpaceTokenizer
from nn.text.vocabulary import SPECIALS, Vocabulary

TEXTS = ["the cat sat", "a", "why is it the cat on the mat"]
IMAGES = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3), np.uint8)

# -- directories -------------------------------------------------------------------------------------


def write_json(path: Path, data: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data))


def make_run(path: Path) -> None:
    """Write the directory of a translator: configuration, vocabulary and weights."""
    mg.manual_seed(0)
    vocab = Vocabulary([*SPECIALS, *"abcde"])
    config = nn.TransformerConfig(9, 9, 12, 2, 1, 1, 20, max_len=24, norm_first=True)
    translator = nn.Translator(
        nn.Transformer(config), vocab, vocab, SpaceTokenizer(), SpaceTokenizer()
    )
    translator.save(path, settings={"lr": 1.0, 5: (1, 2)})  # in JSON, a list and the string "5"
    nn.save_weights(path / "best.safetensors", translator.model, step=3, valid_loss=1.5)


def read_run(path: Path) -> Any:
    """Translate with the model of a run."""
    return [t.text for t in nn.Translator.load(path).translate(["a b c", "d", "b a d c b"])]


def make_state(path: Path) -> None:
    """Train one epoch, and leave the state of the training."""
    trainer(path, max_epochs=1, save_every=2).fit()


def read_state(path: Path) -> Any:
    """Resume a training run, and return its weights and history."""
    resumed = trainer(path, max_epochs=2, save_every=2)
    resumed.fit(resume=True)
    arrays = {name: array.tolist() for name, array in weights(resumed).items()}
    return arrays, timeless(resumed.history)


def read_translator(path: Path) -> Any:
    """Generate with a model and its tokenizer."""
    return nn.generate_text(nn.load(path), nn.text.load(path), TEXTS, max_len=5)


def make_llama(path: Path) -> None:
    """Save a Llama in several files, with the tokenizer and chat template of a GPT-2."""
    language_model_folder(path)
    config = nn.DecoderOnlyConfig(
        19, 16, 4, 2, 32, max_len=40, norm="rms", gated=True, activation="silu", bias=False, positions="rotary",
        attention=nn.AttentionConfig(num_kv_heads=2), tie=False, eos_id=2,
    )  # fmt: skip
    nn.save(path, nn.LanguageModel(config, np.random.default_rng(0)), max_shard_size="8KB")
    write_json(path / "generation_config.json", {"eos_token_id": [2, 3], "bad_words_ids": [[5]]})


def read_language_model(path: Path) -> Any:
    """Return logits, a chat's tokens and generated texts of a directory."""
    text, model = nn.text.load(path), nn.load(path)
    logits = model(text.batch(TEXTS)[0]).data.tolist()
    return logits, text.chat([{"role": "user", "content": "the cat"}]), read_translator(path)


def read_sentence_encoder(path: Path) -> Any:
    return nn.sentence_encoder(path).encode(TEXTS).tolist()


def base_model() -> nn.LanguageModel:
    config = nn.LanguageModelConfig(12, 8, 2, 1, 16, max_len=20)
    return nn.LanguageModel(config, np.random.default_rng(0))


def make_adapter(path: Path) -> None:
    """Write a LoRA adapter with random weights."""
    model = nn.lora(base_model(), 2, 4, ("q_proj", "v_proj", "linear1"))
    for p in model.parameters():
        p.data[...] += np.random.default_rng(1).standard_normal(p.shape) * p.requires_grad
    nn.save_adapter(path, model)


def read_adapter(path: Path) -> Any:
    """Return logits with the adapter; an adapter that is refused leaves the model unchanged."""
    model = base_model().eval()
    try:
        nn.load_adapter(path, model)
    except Exception:
        assert all(p.requires_grad for p in model.parameters())
        assert not any(isinstance(m, nn.LoRALinear) for m in model.modules())
        raise
    with np.errstate(over="ignore", invalid="ignore"):  # of a scale of 1e30
        return model(np.arange(12).reshape(2, 6)).data.tolist()


def make_image_settings(path: Path) -> None:
    """Write the settings of an image preprocessor."""
    write_json(path / "preprocessor_config.json", {
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.6, 0.7],
    })  # fmt: skip


def read_images(path: Path) -> Any:
    return nn.pixels(path, IMAGES).tolist()


def make_older_tokenizers(path: Path) -> None:
    """Write the files of a GPT-2 before tokenizer.json."""
    write_json(path / "vocab.json", {"t": 0, "h": 1, "th": 2})
    (path / "merges.txt").write_text("t h\n")
    write_json(path / "config.json", {"model_type": "gpt2"})


DIRECTORIES: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "run": (make_run, read_run),
    "training state": (make_state, read_state),
    "translator": (translator_folder, read_translator),
    "language model": (make_llama, read_language_model),
    "sentence encoder": (sentence_encoder_folder, read_sentence_encoder),
    "adapter": (make_adapter, read_adapter),
    "image settings": (make_image_settings, read_images),
}
"""Functions that make and read each kind of directory."""

# -- known faults ------------------------------------------------------------------------------------


def patch(data: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Change entries of JSON data in place, also in dicts inside."""
    for key, value in changes.items():
        is_inside = isinstance(value, dict) and isinstance(data.get(key), dict)
        data[key] = patch(data[key], value) if is_inside else value
    return data


def apply_damage(path: Path, damage: Any) -> None:
    """Patch a JSON file by a dict, replace its data by a list, or call a function of the path."""
    if callable(damage):
        damage(path)
    elif isinstance(damage, list):
        write_json(path, damage)
    else:
        write_json(path, patch(json.loads(path.read_text()) if path.exists() else {}, damage))


def in_arrays(change: Callable[[str, np.ndarray], Any]) -> Callable[[Path], None]:
    """Return the damage that changes each array of a safetensors file; None removes an array."""

    def damage(path: Path) -> None:
        file = SafetensorsFile(path)
        arrays = {name: change(name, file.read(name)) for name in file}
        write_safetensors(path, {name: a for name, a in arrays.items() if a is not None})

    return damage


def make_huge(path: Path) -> None:
    """Make a sparse file of 20 GB."""
    with path.open("ab") as file:
        file.truncate(20 << 30)


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
CAT = {"SpecialToken": {"id": "cat", "type_id": 0}}
SEQUENCE = {"Sequence": {"id": "A", "type_id": 0}}


def replace(content: str, pattern: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a step of a tokenizer."""
    return {"type": "Replace", "pattern": pattern or {"String": "a"}, "content": content}


UNKNOWN = {"a_string": "x", "an_object": {"a": 1}, "a_flag": True, "a_zero": 0}
"""Keys that no family knows, whose values may mean something."""
CHARSMAP = base64.b64encode(struct.pack("<I", 4) + bytes(4) + b"b" * 1000 + b"\0").decode()
C_ATTN = "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"
OF_ST, OF_BERT = "config_sentence_transformers.json", "sentence_bert_config.json"

Faults = dict[str, list[tuple[Any, str]]]
"""Damage (see `apply_damage`) of each file, with a pattern of the message."""
FAULTS: dict[str, Faults] = {
    "gpt2": {
        "config.json": [
            (Path.unlink, "no such file; expected a directory with .*hf download"),
            ({"model_type": "mamba"}, 'model_type must be one of albert, .*, got "mamba"'),
            ({"quantization_config": {}}, "quantization_config must be null"),
            ({"quantization_config": {"bits": 4}}, "quantization_config must .*quantised weights"),
            ({"n_head": 3}, "n_embd must be divisible by n_head, got n_embd=16 and n_head=3"),
            ({"n_embd": "d_ff"}, "n_embd must be an integer, got 'd_ff'"),
            ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx must be false"),
            ({"is_causal": False}, "is_causal must be true or null"),
            *[({key: value}, f"keys must be known .*'{key}': ") for key, value in UNKNOWN.items()],
            (dict.fromkeys(map(str, range(1000)), 1), "keys must be known .* got '0': 1, '1': 1, .* and 992 more; they"),
            ({"vocab_size": 0}, "vocab_size must be at least 1, got 0"),
            ({"vocab_size": 10**12}, "vocab_size must be at most 48 .*, got 1000000000000"),
            ({"n_layer": 29}, "n_layer must be at most 28 .the number of arrays .*, got 29"),
            ({"n_layer": 3}, "model.safetensors: .* missing: transformer.h.2.attn.c_attn.bias, .* and 4 more"),
            ({"n_layer": 1}, "unknown: transformer.h.1.attn.c_attn.bias"),
            ({"n_inner": 16}, r"misshaped: transformer.h.0.mlp.c_fc.bias \(expected \(16,\), got \(32,\)\)"),
            ({"forced_bos_token_id": 19}, "forced_bos_token_id must hold token ids from 0 to 18, got 19"),
        ],
        "model.safetensors": [(Path.unlink, "no such file; expected a directory with .*hf download")],
        "pytorch_model.bin": [
            (lambda path: path.with_name("model.safetensors").rename(path), "pytorch_model.bin is not read, .* convert it"),
        ],
    },
    "language model": {
        "config.json": [
            ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, 'rope_type must be one of default, .*, got "longrope"'),
            ({"partial_rotary_factor": 0.25}, "partial_rotary_factor must be 1.0"),
            (make_huge, "bytes, got 21,474"),
        ],
    },
    "translator": {
        "generation_config.json": [
            ({"decoder_start_token_id": 19}, "decoder_start_token_id must be at least 0 and less than the 19"),
        ],
    },
    "image settings": {
        "preprocessor_config.json": [
            ({"image_std": [0.5, 0.25, 0]}, "image_std must be a number for each"),
        ],
    },
    "sentence encoder": {
        "modules.json": [
            (modules("Transformer", "Pooling", "Normalize", "Dense"), "must contain Transformer, .*, got Transformer, Pooling, N"),
            ([{"path": "0_BERT", "type": "Transformer"}, *modules("", "Pooling")[1:]], 'path must be an empty one: .*, got "0_BERT"'),
        ],
        "1_Pooling/config.json": [
            ({"pooling_mode": "weightedmean"}, "must be one of cls, mean"),
        ],
        "2_Dense/config.json": [
            ({"module_input_name": "token_embeddings"}, "module_input_name must be sentence_embedding"),
        ],
        "3_Normalize/config.json": [
            ({"module_input_name": "token_embeddings"}, "module_input_name must be sentence_embedding"),
        ],
        OF_ST: [
            ({"default_prompt_name": "b"}, 'default_prompt_name must be one of query, document, got "b"'),
            ({"model_type": "SparseEncoder"}, "model_type must be SentenceTransformer"),
        ],
        OF_BERT: [
            ({"modality_config": {"message": {}}}, "modality_config must be null or"),
            ({"do_lower_case": True}, "do_lower_case must be false, since the tokenizer"),
        ],
    },
    "adapter": {
        "adapter_config.json": [
            ({"use_dora": True}, "use_dora must be false"),
            ({"init_lora_weights": "pissa"}, "init_lora_weights must be true or"),
            ({"lora_dropout": 1}, "lora_dropout must be less than 1"),
            ({"target_modules": ["c_fc"]}, "target_modules must list .* but not so transformer.h.0.attn.c_attn"),
            ({"alpha_pattern": {"[z-a]": 2}}, "alpha_pattern: .*must be a regular expression"),
            ({"alpha_pattern": {"c_fc": 1e300}}, "alpha_pattern: c_fc must be 0 to 1e.30, got 1e.300"),
            *[({"rank_pattern": {pattern: 2}}, "rank_pattern: .*must be a name or a simpler")
              for pattern in ("[", "(a+)+$", "(?:a+)", "a*a*a*", "(a)" * 3, ".?" * 25 + "[Xx]",
                              "(.|.)" * 30 + "[Xx]", ".{1,9}", "a" * 2000)],
            ({"rank_pattern": {f"a{i}.*[a-z]": 2 for i in range(10_000)}}, "rank_pattern must have at most"),
        ],
        "adapter_model.safetensors": [
            (in_arrays(lambda name, a: a[:1] if "lora_A" in name else a[:, :1]), r"misshaped: .*lora_A.weight \(expected \(4, 8\), got \(1,"),
            (in_arrays(lambda name, a: a * np.nan), f"{C_ATTN}(:| must be) "),
            (in_arrays(lambda name, a: None if name == C_ATTN else a), "missing: .*lora_A.weight"),
            (in_arrays(lambda name, a: None), "must have adapters for .*, got adapters for no layer; load"),
        ],
    },
    "run": {
        "config.json": [
            ({"model": {"num_heads": 4}}, r"model: changed since .*best.safetensors was written: num_heads=4 \(exp"),
            ({"model": {"d_modle": 3}}, "unknown settings: d_modle"),
            ({"tokenizers": {"source": {"name": "foo"}}}, "got 'foo'"),
        ],
        "vocab.json": [
            ({"source": [*SPECIALS, *"abcd"]}, r"must have as many tokens as the model \(9\), got 8"),
            ({"source": [*"abcde", *SPECIALS]}, "tokens must begin with <pad>, <bos>, <eos>, <unk>"),
        ],
    },
    "tokenizer": {
        "tokenizer.json": [
            (Path.unlink, "no such file; expected it, or .* AutoTokenizer"),
            ([], "must be an object, got"),
            ({"model": {"vocab": 3}}, "not the file of a tokenizer"),
            *[({"normalizer": {"type": "Sequence", "normalizers": steps}}, "normalizer: ") for steps in (
                [replace("a" * 40)] * 6, [{"type": "Sequence", "normalizers": [replace("a" * 40)] * 6}],
                [replace("b" * 1000, {"Regex": "a*?"})], [{"type": "Prepend", "prepend": "b" * 1000}],
                [{"type": "Precompiled", "precompiled_charsmap": CHARSMAP}], [replace("a")] * 1000)],
            (make_huge, "bytes, got 21,474"),
            ({"decoder": {"type": "Sequence", "decoders": [replace("a" * 40)] * 6}}, "decoder: "),
            *[({"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}, "pre_tokenizer: ") for steps in (
                [BYTES] * 5, [{"type": "Sequence", "pretokenizers": [BYTES] * 60}])],
            ({"post_processor": {"type": "TemplateProcessing", "single": [SEQUENCE] * 17, "pair": [],
                                 "special_tokens": {}}}, "post_processor: "),
            *[({"post_processor": {"type": "TemplateProcessing", "single": [CAT] * 101 + [SEQUENCE], "pair": [SEQUENCE],
                                   "special_tokens": {"cat": {"id": "cat", "ids": [i], "tokens": ["cat"]}}}},
               "post_processor: there must be at most 100 special tokens around a text, got 101") for i in (0, 9)],
            (lambda path: path.write_text("[" * 1_000_000), "not JSON .maximum recursion depth"),
        ],
        "tokenizer.model": [(make_huge, "bytes, got 21,474")],
    },
    "older tokenizer": {
        "added_tokens.json": [({"[A]": 4}, ".A. must be 3, its id after the vocabulary")],
        "merges.txt": [(lambda path: path.write_bytes(b"t h\n\0"), "a zero byte; this is no text")],
    },
}  # fmt: skip
READERS = DIRECTORIES | {
    "gpt2": (language_model_folder, nn.load),
    "tokenizer": (text_files, nn.text.load),
    "older tokenizer": (make_older_tokenizers, nn.text.load),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes each kind of directory once."""
    directories: dict[str, Path] = {}

    def directory(kind: str) -> Path:
        if kind not in directories:
            directories[kind] = tmp_path_factory.mktemp("whole")
            READERS[kind][0](directories[kind])
        return directories[kind]

    return directory


@pytest.mark.parametrize(
    ("kind", "file", "damage", "message"),
    [
        pytest.param(kind, file, damage, message, id=f"{kind}-{file}-{message:.50}")
        for kind, faults in FAULTS.items()
        for file, cases in faults.items()
        for damage, message in cases
    ],
)
def test_read_of_faulty_file_names_the_file_and_the_fault(
    kind: str,
    file: str,
    damage: Any,
    message: str,
    whole: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    directory = Path(shutil.copytree(whole(kind), tmp_path / "faulty"))
    apply_damage(directory / file, damage)
    with limits(), pytest.raises((ValueError, OSError), match=message) as caught:
        READERS[kind][1](directory)
    error = str(caught.value)
    assert error.startswith(str(directory)) and error.isprintable() and len(error) < 2000
    assert file in error or "config.json" in error


# -- random damage -----------------------------------------------------------------------------------


def may_change(name: str, file: str, what: str) -> bool:
    """Return True if a change of the file can give another valid directory.

    Checksums protect the files of a run, except for a flag, of which both values are valid; nothing
    protects the settings and tokenizers of others.
    The history of a run is not needed to resume it, and a run without a state begins.
    """
    is_state = (name, file) == ("training state", "last.safetensors")
    return "source_eos" in what or (
        name != "run" and (is_state or not file.endswith(".safetensors"))
    )


def fault(read: Callable[[Path], Any], directory: Path, expected: Any) -> str:
    """Return "refused", "equal", "changed", or what is wrong with the error."""
    try:
        with limits():
            return "equal" if read(directory) == expected else "changed"
    except (ValueError, OSError, UserWarning) as error:
        message = str(error)
        is_line = message.isprintable() and len(message) < 2000 and str(directory) in message
        return "refused" if is_line else f"not one line with the directory: {message!r:.300}"
    except (Exception, Hang) as error:
        return f"{type(error).__name__}: {error}"[:300]


@pytest.mark.slow
@pytest.mark.parametrize("name", DIRECTORIES)
def test_read_of_damaged_directory_raises_one_line_or_returns_the_same(
    name: str, tmp_path: Path
) -> None:
    make, read = DIRECTORIES[name]
    whole, directory = tmp_path / "whole", tmp_path / "damaged"
    whole.mkdir()
    make(whole)
    expected = read(shutil.copytree(whole, tmp_path / "expected"))
    rng = np.random.default_rng(0)
    cases = damages_of(whole, rng)
    count = len(cases) if THOROUGH else 80
    refused, wrong = 0, []
    for i in sorted(rng.permutation(len(cases))[:count].tolist()):
        file, what, damage = cases[i]
        damage(shutil.copytree(whole, directory) / file)
        found = fault(read, directory, expected)
        shutil.rmtree(directory)
        refused += found == "refused"
        allowed = {"refused", "equal"} | ({"changed"} if may_change(name, file, what) else set())
        if found not in allowed:
            wrong.append(f"{file}: {what}: {found}")
    assert not wrong, "\n".join(wrong)
    assert refused > count / 3
