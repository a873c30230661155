"""Generation by the settings of a directory, as `model.generate()` of transformers without arguments."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import MODELS, VOCAB, make

import nn
from nn.generation import text_generation
from nn.generation.text_generation import options_of_directory
from nn.pretrained import generation_config
from nn.text.huggingface import ModelText

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")

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
    settings: dict[str, Any] = {}
    words = rng.choice(np.arange(3, VOCAB - 2), 12, replace=False).tolist()

    def maybe(name: str, value: Any, chance: float = 0.3) -> None:
        if rng.random() < chance:
            settings[name] = value

    maybe("eos_token_id", [eos, words[0], words[1]] if rng.random() < 0.7 else eos, 0.9)
    maybe("max_length", width + int(rng.integers(2, 9)), 0.5)
    maybe("max_new_tokens", int(rng.integers(2, 9)), 0.4)
    maybe("min_length", width + int(rng.integers(0, 4)), 0.2)
    maybe("min_new_tokens", int(rng.integers(0, 4)), 0.2)
    maybe("num_beams", int(rng.integers(1, 5)), 0.6)
    maybe("early_stopping", [False, True, "never"][rng.integers(3)], 0.5)
    maybe("length_penalty", float(rng.choice([-1.0, 0.0, 0.6, 2.0])), 0.5)
    maybe("repetition_penalty", float(rng.choice([0.7, 1.3])))
    maybe("no_repeat_ngram_size", int(rng.integers(0, 4)))
    bad = [[words[2]], [words[3], words[4]], words[5:8], [eos]]
    maybe("bad_words_ids", [bad[i] for i in rng.permutation(4)[: rng.integers(1, 5)]])
    if rng.random() < 0.3:  # frequent tokens, so that the ban matters
        settings["bad_words_ids"] = [[i, j] for i in range(3, 20) for j in range(3, 36)]
    maybe("forced_bos_token_id", words[8])
    maybe("forced_eos_token_id", eos if rng.random() < 0.5 else [eos, words[0]])
    maybe("suppress_tokens", words[9:11])
    maybe("begin_suppress_tokens", list(range(20, 40)))
    maybe("temperature", 0.7, 0.2)
    maybe("top_p", 0.9, 0.2)
    maybe("min_p", 0.05, 0.2)
    if settings.get("num_beams", 1) == 1 and rng.random() < 0.2:
        settings |= {"do_sample": True, "top_k": 1}
    greedy = settings.get("num_beams", 1) == 1 and "do_sample" not in settings
    if "forced_eos_token_id" in settings and not greedy:  # several would be equally likely
        settings["forced_eos_token_id"] = eos
    return settings


def configure(theirs: Any, directory: Path, settings: dict[str, Any], in_config: bool) -> None:
    """Write settings to a directory, and give the model of transformers those it reads there."""
    path = directory / "generation_config.json"
    path.unlink(missing_ok=True)
    config = theirs.config.to_dict()
    if in_config:
        config |= settings
    else:  # config.json has other copies
        config |= {"num_beams": 3, "max_length": 4, "suppress_tokens": [7], "bad_words_ids": [[8]]}
        config |= {"forced_eos_token_id": 5, "forced_bos_token_id": 6, "no_repeat_ngram_size": 1}
        kept = {k: config[k] for k in OF_MODEL if config.get(k) is not None}
        path.write_text(json.dumps(settings | kept))
    (directory / "config.json").write_text(json.dumps(config))
    options = {"config_file_name": "config.json", "_from_model_config": True} if in_config else {}
    theirs.generation_config = transformers.GenerationConfig.from_pretrained(directory, **options)


def until_end(row: list[int], ends: Any) -> list[int]:
    """Return the tokens up to the first of `ends`, which is included."""
    ends = [ends] if isinstance(ends, int) else ends or []
    last = next((i for i, token in enumerate(row) if token in ends), len(row))
    return row[: last + 1]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", FAMILIES)
def test_generate_text_with_settings_of_directory_equals_transformers(
    tmp_path: Path, name: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    theirs = make(transformers, torch, name)
    theirs.save_pretrained(tmp_path)
    config = theirs.config
    rows = torch.tensor(rng.integers(3, VOCAB - 2, (3, int(rng.integers(1, 5)))))
    start = 1 if config.is_encoder_decoder else rows.shape[1]
    settings = draw_settings(rng, config.eos_token_id or 0, start)
    pad = config.pad_token_id if config.is_encoder_decoder else 0
    if name == "m2m_100":  # positions in its decoder skip generated padding
        settings["suppress_tokens"] = [pad, *settings.get("suppress_tokens", [])]
    configure(theirs, tmp_path, settings, in_config=seed % 4 == 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about settings without effect
        generated = theirs.generate(rows, attention_mask=torch.ones_like(rows)).tolist()
    ends = theirs.generation_config.eos_token_id
    prompts = [" ".join(map(str, row)) for row in rows.tolist()]
    texts = nn.generate_text(nn.load(tmp_path), Numbers(pad), prompts)
    expected = [until_end(row[start:], ends) for row in generated]
    assert [[int(i) for i in text.split()] for text in texts] == expected, settings


@pytest.mark.parametrize("name", ["gpt2", "bart", "marian", "mbart"])
def test_generate_text_of_saved_model_equals_transformers(tmp_path: Path, name: str) -> None:
    """The settings are those that `save_pretrained` writes, such as `forced_eos_token_id`."""
    model_class, config_class, settings = MODELS[name]
    settings = {k: v for k, v in settings.items() if k != "forced_eos_token_id"}
    torch.manual_seed(1)
    config = getattr(transformers, config_class)(**settings)
    theirs = getattr(transformers, model_class)(config).eval()
    theirs.save_pretrained(tmp_path)
    ids = torch.tensor([[5, 6, 7]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        generated = theirs.generate(ids, attention_mask=torch.ones_like(ids))[0].tolist()
    start = 1 if theirs.config.is_encoder_decoder else 3
    expected = until_end(generated[start:], theirs.generation_config.eos_token_id)
    text = nn.generate_text(nn.load(tmp_path), Numbers(1), "5 6 7")
    assert [int(i) for i in text.split()] == expected


def language_model(directory: Path, **settings: Any) -> Any:
    """Return a small GPT-2 from a directory with this generation_config.json."""
    make(transformers, torch, "gpt2", n_layer=1).save_pretrained(directory)
    (directory / "generation_config.json").write_text(json.dumps(settings))
    return nn.load(directory)


def test_arguments_of_generate_text_override_the_directory(tmp_path: Path) -> None:
    settings = {"eos_token_id": 2, "num_beams": 3, "length_penalty": 0.5, "max_length": 9}
    settings |= {"suppress_tokens": [5], "repetition_penalty": 1.5, "min_new_tokens": 2}
    model, text, prompt = language_model(tmp_path, **settings), Numbers(0), "5 6 7"
    ids = [5, 6, 7]
    rules = {"suppress": [5], "repetition_penalty": 1.5, "min_len": 2, "eos": 2}
    for arguments, beam in (
        ({}, {"num_beams": 3, "length_penalty": 0.5, "max_len": 6}),
        ({"max_len": 3}, {"num_beams": 3, "length_penalty": 0.5, "max_len": 3}),
        ({"num_beams": 1}, {"max_len": 6}),
        ({"num_beams": 1, "suppress": []}, {"max_len": 6, "suppress": []}),
        (
            {"length_penalty": 2.0, "eos": None},
            {"num_beams": 3, "length_penalty": 2.0, "max_len": 6, "eos": None},
        ),
    ):
        expected = nn.generate(model, ids, **{**rules, **beam})
        assert nn.generate_text(model, text, prompt, **arguments) == text.decode(expected)
    greedy = nn.generate(model, ids, max_len=6, **rules)
    with pytest.warns(UserWarning, match="generation_config.json: num_beams not supported"):
        assert list(nn.stream_text(model, text, prompt))[-1].split()[-1] == str(greedy[-1])


def test_generate_text_draws_by_the_settings_of_the_directory(tmp_path: Path) -> None:
    model = language_model(tmp_path, do_sample=True, temperature=0.5, top_p=0.8, min_p=0.01)
    chosen = options_of_directory(model, {}, 3)
    chosen = [chosen[name] for name in ("top_k", "top_p", "min_p", "temperature")]
    assert chosen == [50, 0.8, 0.01, 0.5]
    drawn = {nn.generate_text(model, Numbers(0), "5 6 7") for _ in range(5)}
    assert len(drawn) > 1
    likeliest = nn.generate_text(model, Numbers(0), "5 6 7", do_sample=False)
    assert likeliest == Numbers(0).decode(nn.generate(model, [5, 6, 7], max_len=20, eos=None))
    with pytest.warns(UserWarning, match="do_sample not supported"):
        nn.generate_text(model, Numbers(0), "5 6 7", num_beams=2)


def test_unsupported_settings_are_named_in_one_warning(tmp_path: Path) -> None:
    settings = {"eta_cutoff": 0.1, "num_beam_groups": 1, "guidance_scale": 1.5, "typical_p": 0.9}
    model = language_model(tmp_path, max_new_tokens=2, stop_strings=["a"], **settings)
    for arguments, names in (
        ({}, "guidance_scale, stop_strings"),
        ({"do_sample": True}, "guidance_scale, stop_strings, eta_cutoff, typical_p"),
        ({"num_beams": 2}, "guidance_scale, stop_strings"),
    ):
        with pytest.warns(UserWarning) as caught:
            nn.generate_text(model, Numbers(0), "5 6 7", **arguments)
        assert len(caught) == 1 and f": {names} not supported" in str(caught[0].message)
        assert str(tmp_path / "generation_config.json") in str(caught[0].message)


def test_every_setting_of_transformers_is_read_named_or_without_effect() -> None:
    tables = [v for name, v in vars(generation_config).items() if name.startswith("UNSUPPORTED")]
    unsupported = {name for table in tables for name in table}
    without_effect = generation_config.WITHOUT_EFFECT
    read = generation_config.GENERATION_KEYS - unsupported - without_effect
    assert not unsupported & without_effect
    every = set(transformers.GenerationConfig().to_dict())
    assert every - generation_config.GENERATION_KEYS == {
        *OF_MODEL,
        "transformers_version",
        "_from_model_config",
    }
    assert read == {
        *text_generation._SAME_NAMES,
        *text_generation._OTHER_NAMES,
        "eos_token_id",
        "forced_bos_token_id",
        "force_bos_token_to_be_generated",
        "max_length",
        "max_new_tokens",
        "min_length",
        "min_new_tokens",
        "top_k",
    }


def test_max_length_that_the_prompt_fills_raises(tmp_path: Path) -> None:
    model = language_model(tmp_path, max_length=3)
    with pytest.raises(ValueError, match="max_length must be above the 3 tokens of the prompt"):
        nn.generate_text(model, Numbers(0), "5 6 7")
    assert len(nn.generate_text(model, Numbers(0), "5 6 7", max_len=2).split()) == 2


@pytest.mark.parametrize(
    "entry",
    [
        {"num_beams": 0}, {"max_new_tokens": "5"}, {"do_sample": 1}, {"early_stopping": "always"},
        {"suppress_tokens": [VOCAB]}, {"bad_words_ids": [[1], 2]}, {"bad_words_ids": [["a"]]}, {"bad_words_ids": [[]]},
        {"forced_eos_token_id": [2, -1]}, {"eos_token_id": True}, {"top_p": 1.5}, {"min_p": 1.5},
        {"length_penalty": 100}, {"temperature": -1.0},
    ],
)  # fmt: skip
def test_load_with_wrong_generation_settings_raises(tmp_path: Path, entry: dict[str, Any]) -> None:
    (name,) = entry
    with pytest.raises(ValueError, match=f"generation_config.json: .*{name}"):
        language_model(tmp_path, **entry)
