"""Generation by the settings of a directory, as `model.generate()` of transformers without arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.environment import needs
from support.published import make, read_settings, torch, transformers, until_end, write_settings
from support.published_settings import MODELS, VOCAB

import nn
from nn.decoding.text_generation import options_of_directory
from nn.published import generation_config
from nn.text.huggingface import ModelText

tokenizers = needs("tokenizers")

GENERATIVE = ("LMHeadModel", "ForCausalLM", "MTModel", "ForConditionalGeneration")
FAMILIES = [n for n, (kind, *_) in MODELS.items() if kind.endswith(GENERATIVE) and "," not in n]
OF_MODEL = {"pad_token_id", "bos_token_id", "decoder_start_token_id"}


class Numbers(ModelText):
    """A tokenizer whose texts are token ids: "5 6 7"."""

    def __init__(self, pad_id: int) -> None:
        self.pad_id, self.bos_id, self.eos_id = pad_id, None, None

    def encode(self, text: Any, *args: Any, **options: Any) -> list[int]:
        return [int(word) for word in text.split()]

    def batch(self, texts: Any, *args: Any, **options: Any) -> Any:
        rows = [self.encode(text) for text in texts]
        return nn.text.padded(rows, self.pad_id), None, None

    def decode(self, ids: Any, special: bool = False) -> str:
        return " ".join(map(str, ids))


def draw_settings(rng: np.random.Generator, eos: int, width: int) -> dict[str, Any]:
    """Return random entries of generation_config.json; `width` is the prompt's length."""
    words = rng.choice(np.arange(3, VOCAB - 2), 12, replace=False).tolist()
    bad = [[words[2]], [words[3], words[4]], words[5:8], [eos]]
    pairs = [[i, j] for i in range(3, 20) for j in range(3, 36)]  # frequent, so the ban matters
    choices: dict[str, Any] = {
        "eos_token_id": [eos, *range(12, 24)],
        "max_length": width + int(rng.integers(2, 9)),
        "max_new_tokens": int(rng.integers(2, 9)),
        "min_length": width + int(rng.integers(4)),
        "min_new_tokens": int(rng.integers(4)),
        "num_beams": int(rng.integers(2, 5)),
        "early_stopping": [False, True, "never"][rng.integers(3)],
        "length_penalty": float(rng.choice([-1.0, 0.0, 0.6, 2.0])),
        "repetition_penalty": float(rng.choice([0.7, 1.3])),
        "no_repeat_ngram_size": int(rng.integers(4)),
        "bad_words_ids": [pairs, bad][rng.integers(2)],
        "forced_bos_token_id": words[8],
        "forced_eos_token_id": [eos, words[0]],
        "suppress_tokens": words[9:11],
        "begin_suppress_tokens": list(range(20, 40)),
        "temperature": 0.7,
        "top_p": 0.9,
    }
    settings = {name: value for name, value in choices.items() if rng.random() < 0.4}
    if "num_beams" in settings and "forced_eos_token_id" in settings:
        settings["forced_eos_token_id"] = eos  # several would be equally likely
    return {"eos_token_id": eos} | settings


def write_generation_config(theirs: Any, directory: Path, settings: dict[str, Any]) -> None:
    """Write settings to generation_config.json, beside other ones in config.json."""
    config = read_settings(directory)
    kept = {name: config[name] for name in OF_MODEL if config.get(name) is not None}
    (directory / "generation_config.json").write_text(json.dumps(settings | kept))
    write_settings(directory, config | {"num_beams": 3, "max_length": 4, "suppress_tokens": [7]})
    theirs.generation_config = transformers.GenerationConfig.from_pretrained(directory)


def write_older_config(theirs: Any, directory: Path, settings: dict[str, Any]) -> None:
    """Write settings to config.json, without generation_config.json."""
    (directory / "generation_config.json").unlink()
    write_settings(directory, read_settings(directory) | settings)
    theirs.generation_config = transformers.GenerationConfig.from_pretrained(
        directory, config_file_name="config.json", _from_model_config=True
    )


@pytest.mark.filterwarnings("ignore")  # transformers warns of settings without effect
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", FAMILIES)
def test_generate_text_with_settings_of_directory_equals_transformers(
    tmp_path: Path, name: str, seed: int
) -> None:
    rng, theirs = np.random.default_rng(seed), make(name, tmp_path)
    config = theirs.config
    rows = torch.tensor(rng.integers(3, VOCAB - 2, (3, int(rng.integers(1, 5)))))
    start = 1 if config.is_encoder_decoder else rows.shape[1]
    settings = draw_settings(rng, config.eos_token_id or 0, start)
    pad = config.pad_token_id if config.is_encoder_decoder else 0
    if name == "m2m_100":  # positions in its decoder skip generated padding
        settings["suppress_tokens"] = [pad, *settings.get("suppress_tokens", [])]
    (write_older_config if seed % 4 == 0 else write_generation_config)(theirs, tmp_path, settings)
    generated = theirs.generate(rows, attention_mask=torch.ones_like(rows)).tolist()
    ends = theirs.generation_config.eos_token_id
    prompts = [" ".join(map(str, row)) for row in rows.tolist()]
    texts = nn.generate_text(nn.load(tmp_path), Numbers(pad), prompts)
    expected = [until_end(row[start:], ends) for row in generated]
    assert [[int(i) for i in text.split()] for text in texts] == expected, settings


word = "a{}a".format  # no word contains another one


def write_numbers(directory: Path, settings: dict[str, Any]) -> None:
    """Write a tokenizer whose texts are words for token ids: "a5a a6a"."""
    ids = {word(i): i for i in range(VOCAB)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=word(3)))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


TRANSLATORS = [n for n in MODELS if MODELS[n][0].endswith(("MTModel", "ForConditionalGeneration"))]


@pytest.mark.filterwarnings("ignore")  # transformers warns of settings without effect
@pytest.mark.parametrize("names_pad", [True, False], ids=["named", "unnamed"])
@pytest.mark.parametrize("name", TRANSLATORS)
def test_generate_text_of_texts_of_different_lengths_equals_transformers(
    tmp_path: Path, name: str, names_pad: bool
) -> None:
    """Texts may contain the padding token, which is then text."""
    theirs = make(name, tmp_path)
    pad = theirs.config.pad_token_id
    write_numbers(tmp_path, {"pad_token": word(pad)} if names_pad else {})
    rng = np.random.default_rng(0)
    rows = [rng.integers(3, VOCAB - 2, n).tolist() for n in (1, 9, 4, 6)]
    mixed = [[*rows[0], pad, *rows[2]]] if name != "m2m_100" else []  # whose positions skip padding
    text, model = nn.text.load(tmp_path), nn.load(tmp_path)
    options = {"max_len": 8, "num_beams": 2}
    texts = nn.generate_text(
        model, text, [" ".join(map(word, row)) for row in rows + mixed], **options
    )
    for row, found in zip(rows + mixed, texts, strict=True):
        ids = torch.tensor([row])
        mask = torch.ones_like(ids)
        tokens = theirs.generate(ids, attention_mask=mask, max_new_tokens=8, num_beams=2)[0, 1:]
        assert found == text.decode(tokens), row


@pytest.mark.parametrize("name", [n for n in FAMILIES if n not in ("gpt2", "opt", *TRANSLATORS)])
def test_generate_past_max_len_with_rotary_positions_equals_transformers(
    tmp_path: Path, name: str
) -> None:
    theirs = make(name, tmp_path, max_position_embeddings=8)
    rows = torch.tensor(np.random.default_rng(0).integers(3, VOCAB - 2, (2, 5)))
    expected = theirs.generate(
        rows, attention_mask=torch.ones_like(rows), max_new_tokens=20, eos_token_id=None
    )[:, 5:]
    options = {"max_len": 20, "eos": None}
    assert nn.generate(nn.load(tmp_path), rows.numpy(), **options) == expected.tolist()


def language_model(directory: Path, **settings: Any) -> Any:
    """Return a small GPT-2 from a directory with this generation_config.json."""
    make("gpt2", directory, n_layer=1)
    (directory / "generation_config.json").write_text(json.dumps(settings))
    return nn.load(directory)


def test_generate_text_with_arguments_overrides_the_directory(tmp_path: Path) -> None:
    settings = {"eos_token_id": 2, "num_beams": 3, "length_penalty": 0.5, "max_length": 9}
    settings |= {"suppress_tokens": [5], "repetition_penalty": 1.5, "min_new_tokens": 2}
    model, text = language_model(tmp_path, **settings), Numbers(0)
    rules = {"repetition_penalty": 1.5, "min_len": 2, "max_len": 6}
    beam = {**rules, "suppress": [5], "eos": 2, "num_beams": 3, "length_penalty": 0.5}
    for arguments, options in (
        ({}, beam),
        ({"num_beams": 1, "suppress": []}, {**rules, "eos": 2}),
        ({"length_penalty": 2.0, "eos": None}, {**beam, "length_penalty": 2.0, "eos": None}),
    ):
        expected = nn.generate(model, [5, 6, 7], **options)
        assert nn.generate_text(model, text, "5 6 7", **arguments) == text.decode(expected)
    with pytest.warns(UserWarning, match="generation_config.json: num_beams not supported"):
        list(nn.stream_text(model, text, "5 6 7"))


def test_generate_text_draws_by_the_settings_of_the_directory(tmp_path: Path) -> None:
    model = language_model(tmp_path, do_sample=True, temperature=0.5, top_p=0.8, min_p=0.01)
    chosen = options_of_directory(model, {}, 3)
    chosen = [chosen[name] for name in ("top_k", "top_p", "min_p", "temperature")]
    assert chosen == [50, 0.8, 0.01, 0.5]
    assert len({nn.generate_text(model, Numbers(0), "5 6 7") for _ in range(5)}) > 1
    likeliest = nn.generate_text(model, Numbers(0), "5 6 7", do_sample=False)
    assert likeliest == Numbers(0).decode(nn.generate(model, [5, 6, 7], max_len=20, eos=None))


def test_generate_text_with_unsupported_settings_warns_once(tmp_path: Path) -> None:
    settings = {"num_beam_groups": 1, "guidance_scale": 1.5, "typical_p": 0.9}
    model = language_model(tmp_path, max_new_tokens=2, **settings)
    for do_sample, names in ((False, "guidance_scale"), (True, "guidance_scale, typical_p")):
        with pytest.warns(UserWarning) as caught:
            nn.generate_text(model, Numbers(0), "5 6 7", do_sample=do_sample)
        (warning,) = caught
        assert f"{tmp_path}/generation_config.json: {names} not supported" in str(warning.message)


def test_every_setting_of_transformers_is_read_named_or_without_effect() -> None:
    unknown = transformers.GenerationConfig().to_dict().keys() - generation_config.GENERATION_KEYS
    assert unknown == {*OF_MODEL, "transformers_version", "_from_model_config"}


def test_generate_text_with_prompt_of_max_length_raises(tmp_path: Path) -> None:
    model = language_model(tmp_path, max_length=3)
    with pytest.raises(ValueError, match="max_length must be above the 3 tokens of the prompt"):
        nn.generate_text(model, Numbers(0), "5 6 7")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_beams", 0), ("max_new_tokens", "5"), ("do_sample", 1), ("early_stopping", "always"),
        ("suppress_tokens", [VOCAB]), ("bad_words_ids", [[1], 2]), ("bad_words_ids", [[]]), ("top_p", 1.5),
    ],
)  # fmt: skip
def test_load_with_wrong_generation_settings_raises(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"generation_config.json: .*{name}"):
        language_model(tmp_path, **{name: value})
