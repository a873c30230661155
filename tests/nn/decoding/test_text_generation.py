"""Generated text up to one of the strings that end it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.tiny_folders import language_model_folder, translator_folder

import minigrad as mg
import nn
from minigrad.io.json import Settings
from nn.decoding.text_generation import _ids, options_of_directory, until_stop


@pytest.mark.parametrize(
    ("pieces", "stop", "expected"),
    [
        (["one", " two E", "N", "DING three"], ["END!"], ["one", " two ", "ENDING three"]),
        (["a EN", "D b"], ["END"], ["a "]),
        (["aa", "ab c"], ["aab"], ["a"]),  # it begins inside of another beginning
        (["xaby"], ["aby", "b"], ["xa"]),  # the one that is complete first
        (["xab"], ["b", "ab"], ["x"]),  # of several, the longest
        (["x", "aab"], ["ab", "aabc"], ["x", "a"]),
        (["END"], ["END"], []),
        (["a E"], ["END"], ["a ", "E"]),
    ],
)
def test_until_stop_yields_text_as_soon_as_no_string_can_begin_in_it(
    pieces: list[str], stop: list[str], expected: list[str]
) -> None:
    assert [*until_stop(pieces, stop)] == expected


def test_stream_text_with_stop_takes_no_more_tokens_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    language_model_folder(tmp_path)
    model, text, steps = nn.load(tmp_path), nn.text.load(tmp_path), []

    def written(**options: Any) -> str:
        drawn = {"do_sample": True, "temperature": 2.0, "generator": np.random.default_rng(0)}
        return "".join(nn.stream_text(model, text, "the cat", max_len=12, **drawn, **options))

    whole, step = written(), type(model).step
    word = whole.split()[2]
    monkeypatch.setattr(type(model), "step", lambda *a, **k: steps.append(0) or step(*a, **k))
    assert written(stop=[word]) == whole[: whole.index(word)] and len(steps) < 12
    for wrong in (["x", ""], "x", None, [3]):
        with pytest.raises((TypeError, ValueError), match="stop must "):
            written(stop=wrong)


@pytest.mark.parametrize("length", [39, 40, 41, 60])
def test_prompt_beyond_the_context_warns(length: int, tmp_path: Path) -> None:
    """A model with 40 positions reads the last 40 tokens of the prompt."""
    language_model_folder(tmp_path)
    model, text = nn.load(tmp_path), nn.text.load(tmp_path)
    prompt = " ".join(["cat", "the", "dog", "sat"][i % 4] for i in range(length))
    last = " ".join(prompt.split()[-40:])
    expected = nn.generate_text(model, text, last, max_len=1)
    for call in (nn.generate_text, lambda *a, **k: "".join(nn.stream_text(*a, **k))):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert call(model, text, prompt, max_len=1) == expected
        assert len(caught) == (length > 40)
        for warning in caught:
            assert f"at most 40 tokens, got {length};" in str(warning.message)
            assert warning.filename == __file__


def test_temperature_chooses_the_search(tmp_path: Path) -> None:
    language_model_folder(tmp_path)
    model, text = nn.load(tmp_path), nn.text.load(tmp_path)

    def written(**options: Any) -> tuple[str, str]:
        mg.manual_seed(0)
        found = nn.generate_text(model, text, "the cat", max_len=12, **options)
        mg.manual_seed(0)
        pieces = nn.stream_text(model, text, "the cat", max_len=12, **options)
        return found, "".join(pieces)

    greedy, drawn = written(do_sample=False), written(do_sample=True, temperature=3.0)
    assert greedy != drawn and greedy[0] == greedy[1]
    assert written(temperature=0) == written(temperature=0.0) == written() == greedy
    assert written(temperature=3.0) == drawn
    assert written(top_k=5) == written(do_sample=True, top_k=5)
    with pytest.raises(ValueError, match="do_sample must be True for temperature=3.0"):
        written(do_sample=False, temperature=3.0)
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        written(do_sample=True, temperature=0)


@pytest.mark.parametrize(
    ("option", "fix"),
    [
        ("max_length", "write max_len, the number of new tokens"),
        ("seed", r"write generator=np.random.default_rng\(seed\)"),
        ("stop", r"write stream_text\(..., stop="),
        ("stop_strings", r"write stream_text\(..., stop="),
        ("input_ids", "write prompt, or source for a Transformer"),
        ("num_return_sequences", r"write beam_search\(..., n_best=N\), or the prompt N times"),
        ("attention_mask", "write padding_mask"),
    ],
)
def test_generate_text_with_option_of_another_library_names_ours(
    tmp_path: Path, option: str, fix: str
) -> None:
    language_model_folder(tmp_path)
    model, text = nn.load(tmp_path), nn.text.load(tmp_path)
    with pytest.raises(TypeError, match=f"got {option}; {fix}"):
        nn.generate_text(model, text, "the cat", **{option: 3})
    with pytest.raises(ValueError, match="got Linear, which does neither"):
        nn.generate_text(nn.Linear(2, 2), text, "the cat")


def test_stream_of_a_model_that_translates_is_refused(tmp_path: Path) -> None:
    translator_folder(tmp_path)
    with pytest.raises(ValueError, match="must continue a text, got a model that translates"):
        next(nn.stream_text(nn.load(tmp_path), nn.text.load(tmp_path), "the cat"))


def test_model_of_ids_of_different_lengths_names_batch(tmp_path: Path) -> None:
    language_model_folder(tmp_path)
    model, text = nn.load(tmp_path), nn.text.load(tmp_path)
    message = (
        r"ids must be integer token ids \(N, L\), got rows of 1 to 2 ids; text.batch\(texts\) of"
    )
    with pytest.raises(ValueError, match=message):
        model(text.encode(["the", "the cat"]))
    with pytest.raises(ValueError, match=r"got int\d+ \(2,\); put a single sequence in a list"):
        model(text.encode("the cat"))
    assert model([text.encode("the cat")]).shape == model(*text.batch(["the cat"])[:2]).shape


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_max_length_of_the_directory_counts_the_prompt(length: int, tmp_path: Path) -> None:
    language_model_folder(tmp_path)
    settings = {"max_length": length, "eos_token_id": None}
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    model = nn.load(tmp_path)
    if length > 3:
        assert options_of_directory(model, {}, 3)["max_len"] == length - 3
    else:
        with pytest.raises(ValueError, match=f"above the 3 tokens of the prompt, got {length}"):
            nn.generate_text(model, nn.text.load(tmp_path), "the cat sat")


@pytest.mark.parametrize("width", [1, 2, 19, 20, 21, 38, 39, 40])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_without_a_length_20_tokens_are_generated_or_as_many_as_fit(
    width: int, positions: str
) -> None:
    """Generate at least what `min_length` has beyond the prompt. A full context begins anew."""
    config = nn.DecoderOnlyConfig(
        9, 8, 2, 1, 8, max_len=40, positions=nn.PositionConfig(kind=positions)
    )
    model: Any = nn.LanguageModel(config)
    model.origin = SimpleNamespace(generation=Settings({"min_length": 20}, "x"))
    options = options_of_directory(model, {}, width)
    is_limited = positions == "learned" and width < 40
    assert options["max_len"] == (min(20, 40 - width) if is_limited else 20)
    assert options["min_len"] == max(0, 20 - width)
    assert options_of_directory(model, {"max_len": 5, "min_len": 2}, width)["max_len"] == 5


def test_bad_words_of_the_directory_are_kept_but_for_eos_alone(tmp_path: Path) -> None:
    language_model_folder(tmp_path)
    settings = {"bad_words_ids": [[2], [2, 5], [5], [5, 2]], "eos_token_id": 2}
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    options = options_of_directory(nn.load(tmp_path), {}, 3)
    assert options["bad_words"] == [(2, 5), (5,), (5, 2)]


UNSUPPORTED: dict[str, dict[str, tuple[Any, Any]]] = {
    "": {
        "constraints": (None, [1]), "dola_layers": (None, "high"), "encoder_no_repeat_ngram_size": (0, 2),
        "encoder_repetition_penalty": (1.0, 1.2), "exponential_decay_length_penalty": (None, [2, 1.1]),
        "force_words_ids": (None, [[2]]), "guidance_scale": (1.0, 0), "max_time": (None, 3.0), "num_return_sequences": (1, 2),
        "sequence_bias": (None, [[[2], 1.0]]), "stop_strings": (None, "a"), "token_healing": (False, True),
        "watermarking_config": (None, {"bias": 2.0})},
    "greedy": {"penalty_alpha": (0, 0.6)},
    "do_sample": {"epsilon_cutoff": (0, 0.1), "eta_cutoff": (0.0, 0.1), "top_h": (None, 0.5), "typical_p": (1.0, 0)},
    "num_beams": {"diversity_penalty": (0.0, 0.1), "num_beam_groups": (1, 2), "renormalize_logits": (False, True)},
}  # fmt: skip
"""Settings that generation does not support: their values without effect, and others."""


@pytest.mark.parametrize("search", ["greedy", "do_sample", "num_beams"])
def test_settings_of_a_search_that_change_its_tokens_warn(tmp_path: Path, search: str) -> None:
    """Ignore settings of other searches, null, and values without effect."""
    model: Any = nn.load(language_model_folder(tmp_path))
    chosen = {search: 2 if search == "num_beams" else True} if search != "greedy" else {}
    changing: set[str] = set()
    for kind, keys in UNSUPPORTED.items():
        for key, (neutral, other) in keys.items():
            for value in (None, neutral, other):
                model.origin.generation = Settings(chosen | {key: value}, "here")
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    options_of_directory(model, {}, 3)
                found = [str(w.message).partition(";")[0] for w in caught]
                is_refused = value is other and kind in ("", search)
                expected = f"here: {key} not supported by generate_text"
                assert found == [expected] * is_refused, (key, value)
        changing |= keys.keys() if kind in ("", search) else set()
    every = {key: other for keys in UNSUPPORTED.values() for key, (_, other) in keys.items()}
    model.origin.generation = Settings(chosen | every, "here")
    with pytest.warns(UserWarning, match="not supported") as warned:
        options_of_directory(model, {}, 3)
    message = str(warned[0].message).removeprefix("here: ").partition(" not")[0]
    assert {*message.split(", ")} == changing


def test_chat_has_no_special_tokens_but_those_of_its_template() -> None:
    def encode(string: str, special: bool = True) -> list[int]:
        return [*[1] * special, *map(ord, string)]

    text: Any = SimpleNamespace(
        encode=encode, chat=lambda messages: messages[0]["content"], eos_id=98, bos_id=1
    )
    assert _ids(text, [{"role": "user", "content": "a"}]) == [97]
    assert [_ids(text, string) for string in ("a", "ab", "")] == [[1, 97], [1, 97], [1]]
