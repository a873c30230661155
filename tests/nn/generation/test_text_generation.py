"""Generated text up to one of the strings that end it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_folders import language_model_folder

import nn
from nn.generation.text_generation import until_stop

pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")


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
