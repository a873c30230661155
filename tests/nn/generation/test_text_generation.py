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


def until_stop_by_definition(text: str, stop: list[str]) -> str:
    """Return the text before the string that is complete first; of several, the longest."""
    for n in range(len(text) + 1):
        if ends := [s for s in stop if text[:n].endswith(s)]:
            return text[: n - max(map(len, ends))]
    return text


def test_until_stop_in_random_pieces_ends_at_first_string() -> None:
    rng = np.random.default_rng(0)

    def draw(low: int, high: int) -> str:
        return "".join(rng.choice([*"ab\n"], rng.integers(low, high)))

    for _ in range(2000):
        pieces = [draw(1, 5) for _ in range(rng.integers(0, 4))]
        stop = [draw(1, 4) for _ in range(rng.integers(1, 4))]
        found = list(until_stop(pieces, stop))
        assert "".join(found) == until_stop_by_definition("".join(pieces), stop), (pieces, stop)
        assert "" not in found


def test_until_stop_yields_text_as_soon_as_no_string_can_begin_in_it() -> None:
    pieces = iter(["one", " two E", "N", "DING three"])
    stream = until_stop(pieces, ["END!"])
    assert [next(stream), next(stream), next(stream)] == ["one", " two ", "ENDING three"]


def test_stream_text_with_stop_takes_no_more_tokens_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    language_model_folder(tmp_path)
    model, text = nn.load(tmp_path), nn.text.load(tmp_path)

    def written(**options: Any) -> str:
        drawn = {"do_sample": True, "temperature": 2.0, "generator": np.random.default_rng(0)}
        pieces = nn.stream_text(model, text, "the cat", max_len=12, eos=None, **drawn, **options)
        return "".join(pieces)

    whole = written()
    word = whole.split()[2]
    steps, step = [], type(model).step
    monkeypatch.setattr(type(model), "step", lambda *a, **k: steps.append(0) or step(*a, **k))
    assert written(stop=[word]) == whole[: whole.index(word)] and len(steps) < 12
    with pytest.raises(ValueError, match="stop must hold strings that are not empty, got ''"):
        written(stop=["x", ""])
    with pytest.raises(TypeError, match="stop must be a list of strings, got 'x'"):
        written(stop="x")
