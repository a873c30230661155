"""Generated text up to one of the strings that end it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tiny_folders import language_model_folder

import nn
from nn.generation.text_generation import until_stop

pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")


def cut(text: str, size: np.random.Generator) -> Iterator[str]:
    """Yield a text in pieces of one to four characters."""
    while text:
        length = int(size.integers(1, 5))
        yield text[:length]
        text = text[length:]


def test_until_stop_in_random_pieces_ends_at_first_string() -> None:
    rng = np.random.default_rng(0)
    for _ in range(2000):
        text = "".join(rng.choice([*"ab\n"], rng.integers(0, 12)))
        stop = [
            "".join(rng.choice([*"ab\n"], rng.integers(1, 4))) for _ in range(rng.integers(1, 4))
        ]
        prefixes = (text[:n] for n in range(len(text) + 1))
        whole = next((p for p in prefixes if p.endswith(tuple(stop))), None)
        expected = (
            text
            if whole is None
            else whole[: min(len(whole) - len(s) for s in stop if whole.endswith(s))]
        )
        pieces = list(until_stop(cut(text, rng), stop))
        assert "".join(pieces) == expected
        assert "" not in pieces


def test_until_stop_yields_text_as_soon_as_no_string_can_begin_in_it() -> None:
    pieces = iter(["one", " two E", "N", "DING three"])
    stream = until_stop(pieces, ["END!"])
    assert [next(stream), next(stream), next(stream)] == ["one", " two ", "ENDING three"]


def test_stream_text_with_stop_takes_no_more_tokens_of_the_model(tmp_path: Path) -> None:
    language_model_folder(tmp_path)
    model, text = nn.load(tmp_path), nn.text.load(tmp_path)
    sampled = {"do_sample": True, "temperature": 2.0, "eos": None}
    generator = np.random.default_rng
    whole = "".join(
        nn.stream_text(model, text, "the cat", max_len=12, generator=generator(0), **sampled)
    )
    word = whole.split()[2]
    steps = []
    step = type(model).step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "step", lambda *a, **k: steps.append(0) or step(*a, **k))
        stopped = "".join(
            nn.stream_text(
                model, text, "the cat", max_len=12, stop=[word], generator=generator(0), **sampled
            )
        )
    assert stopped == whole[: whole.index(word)] and len(steps) < 12
    with pytest.raises(ValueError, match="stop must hold strings that are not empty, got ''"):
        nn.stream_text(model, text, "the cat", stop=["x", ""])
    with pytest.raises(TypeError, match="stop must be a list of strings, got 'x'"):
        nn.stream_text(model, text, "the cat", stop="x")
