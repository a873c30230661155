"""The translator of a run directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nn import Transformer, TransformerConfig, Translator
from nn.text import EOS, SPECIALS, SpaceTokenizer, Vocabulary


def translator(source_eos: bool, max_len: int = 8) -> Translator:
    vocab = Vocabulary([*SPECIALS, "a", "b", "c"])
    config = TransformerConfig(len(vocab), len(vocab), 8, 2, 1, 1, 16, max_len=max_len)
    return Translator(
        Transformer(config, np.random.default_rng(0)), vocab, vocab, SpaceTokenizer(), SpaceTokenizer(), source_eos
    )


@pytest.mark.parametrize("source_eos", [False, True])
def test_source_eos_closes_each_source_and_is_kept(tmp_path: Path, source_eos: bool) -> None:
    before = translator(source_eos)
    ids, tokens = before.encode(["a b c", "b"])
    end = [EOS] * source_eos
    assert [row[row > 0].tolist() for row in ids] == [[4, 5, 6, *end], [5, *end]] and tokens == [["a", "b", "c"], ["b"]]
    before.save(tmp_path)
    again = Translator.load(tmp_path, weights=None)
    assert again.source_eos is source_eos
    np.testing.assert_array_equal(again.encode(["a b c", "b"])[0], ids)
    (shown,) = before.translate(["a b"], max_len=3)
    maps, source, target = before.attention(shown)
    assert source == ["a", "b", *["<eos>"] * source_eos]
    assert maps["cross"][0].shape == (2, len(target), len(source))


def test_source_eos_takes_a_place() -> None:
    text = " ".join("abcabcab")
    assert translator(False).translate([text], max_len=2)
    with pytest.raises(ValueError, match="a sentence of 8 tokens is longer than the 7 that the model takes"):
        translator(True).translate([text])
    assert translator(True).translate([text[2:], "a"], max_len=2)  # the end mark of the longest is not cut off
