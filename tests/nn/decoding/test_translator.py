"""The translator of a run directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nn import (
    LanguageModel,
    LanguageModelConfig,
    Transformer,
    TransformerConfig,
    Translator,
    load_weights,
    save_weights,
)
from nn.decoding import beam_search, greedy_search
from nn.decoding.sequences import Hypothesis
from nn.options.probes import record_attention
from nn.text.tokenize import SpaceTokenizer
from nn.text.vocabulary import BOS, EOS, SPECIALS, Vocabulary


def translator(source_eos: bool = False, max_len: int = 8) -> Translator:
    """Return a random translator of words a, b and c."""
    vocab, split = Vocabulary([*SPECIALS, "a", "b", "c"]), SpaceTokenizer()
    config = TransformerConfig(len(vocab), len(vocab), 8, 2, 1, 1, 16, max_len=max_len)
    model = Transformer(config, np.random.default_rng(0))
    return Translator(model, vocab, vocab, split, split, source_eos)


@pytest.mark.parametrize("source_eos", [False, True])
def test_source_eos_closes_each_source_and_is_kept(tmp_path: Path, source_eos: bool) -> None:
    before, end = translator(source_eos), [EOS] * source_eos
    ids, tokens = before.encode(["a b c", "b"])
    assert [row[row > 0].tolist() for row in ids] == [[4, 5, 6, *end], [5, *end]]
    assert tokens == [["a", "b", "c"], ["b"]]
    before.save(tmp_path)
    untrained = Translator.load(tmp_path, weights=None)
    assert untrained.source_eos is source_eos
    assert all(p.data.any() for p in untrained.model.parameters() if p.ndim > 1)
    maps, source, target = before.attention(before.translate(["a b"], max_len=3)[0])
    assert source == ["a", "b", *["<eos>"] * source_eos]
    assert maps["cross"][0].shape == (2, len(target), len(source))
    assert maps["encoder"][0].shape == (2, len(source), len(source))
    assert maps["decoder"][0].shape == (2, len(target), len(target))
    t = before.translate(["b a"], max_len=3)[0]
    assert before.attention(t)[1] == before.attention(t)[1] and t.source_tokens == ["b", "a"]
    assert np.triu(maps["encoder"][0], 1).any() and not np.triu(maps["decoder"][0], 1).any()


def test_attention_of_a_translation_is_that_of_each_step_that_chose_a_token() -> None:
    made = translator()
    t = made.translate(["a b c"], max_len=5)[0]
    inputs = np.array([[BOS, *t.ids[:-1]]])
    with record_attention(made.model.eval()) as recorded:
        made.model.hidden(np.array([[4, 5, 6]]), inputs)
    maps, _, _ = made.attention(t)
    names = {
        "encoder": "encoder.layers.0.self_attention",
        "decoder": "decoder.layers.0.self_attention",
    }
    for kind, name in (names | {"cross": "decoder.layers.0.cross_attention"}).items():
        np.testing.assert_allclose(maps[kind], [recorded[name][0][0]], rtol=1e-6)


def test_source_eos_counts_as_a_token_of_the_source() -> None:
    text = " ".join("abcabcab")
    assert translator().translate([text], max_len=2)
    with pytest.raises(ValueError, match="texts must have at most 7 tokens each, got 8 in '"):
        translator(True).translate([text])
    assert translator(True).translate([text[2:], "a"], max_len=2)  # EOS is not cut off


def test_translator_may_have_more_tokens_that_end_a_text() -> None:
    vocab, split = Vocabulary([*SPECIALS, "a", "b", "c"]), SpaceTokenizer()
    for ends, is_refused in (([EOS, 5], False), ([5, EOS], False), ([5], True)):
        config = TransformerConfig(7, 7, 8, 2, 1, 1, 16, eos_id=ends)
        model = Transformer(config, np.random.default_rng(0))
        if is_refused:
            with pytest.raises(ValueError, match="pad_id, bos_id and eos_id of the model must be"):
                Translator(model, vocab, vocab, split, split)
        else:
            assert Translator(model, vocab, vocab, split, split).model is model


@pytest.fixture
def saved(tmp_path: Path) -> Translator:
    """Return a translator that is saved with its weights."""
    made = translator()
    made.save(tmp_path, settings={"lr": 1.0})
    save_weights(tmp_path / "best.safetensors", made.model)
    return made


def test_load_returns_a_translator_for_inference(saved: Translator, tmp_path: Path) -> None:
    expected, again = saved.translate(["a b c", "b"], max_len=5), Translator.load(tmp_path)
    assert again.translate(["a b c", "b"], max_len=5)[1].tokens == expected[1].tokens
    assert not any(p.requires_grad for p in again.model.parameters())
    model = Translator.load(tmp_path, inference=False).model
    assert not model.training and model.train().training


def test_load_with_another_dropout_and_length_accepts_them(
    saved: Translator, tmp_path: Path
) -> None:
    config = json.loads((tmp_path / "config.json").read_text())
    config["model"] |= {"dropout": 0.5, "max_len": 20}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert Translator.load(tmp_path).model.config.max_len == 20
    (tmp_path / "config.json").write_text(json.dumps(config | {"model": 3}))
    with pytest.raises(ValueError, match="config.json: model must be an object of settings, got 3"):
        Translator.load(tmp_path)
    model: Any = LanguageModel(LanguageModelConfig(7, 8, 2, 1, 16))
    with pytest.raises(ValueError, match="model must be a Transformer, got a LanguageModel"):
        Translator(model, *[saved.source_vocab] * 2, *[SpaceTokenizer()] * 2)
    other = Transformer(TransformerConfig(7, 7, 8, 4, 1, 1, 16, max_len=8))
    message = "best.safetensors: the weights of another model: this one has num_heads=4"
    with pytest.raises(ValueError, match=message):
        load_weights(tmp_path / "best.safetensors", other)


@pytest.mark.parametrize("source_eos", [False, True])
@pytest.mark.parametrize("n_best", [None, 1, 3])
def test_translate_has_the_tokens_and_scores_of_a_beam_search(
    source_eos: bool, n_best: int | None
) -> None:
    made, texts = translator(source_eos), ["a b c", "c", "b a"]
    options = {"beam_size": 3, "length_penalty": 0.5, "n_best": n_best, "max_len": 5}
    for text, found in zip(texts, made.translate(texts, **options), strict=True):
        ids = made.source_vocab.encode(text.split(), eos=source_eos)
        (best,) = beam_search(made.model, [ids], **options | {"n_best": n_best or 1})
        for t, h in zip([found] if n_best is None else found, best, strict=True):
            assert (t.source, t.source_tokens, t.ids) == (text, text.split(), h.tokens)
            assert t.score == pytest.approx(h.score) != pytest.approx(h.log_prob)
            assert t.tokens == made.target_vocab.decode(h.tokens) and t.text == " ".join(t.tokens)
    (greedy,), (h,) = made.translate(["a"], max_len=4), greedy_search(made.model, made.encode(["a"])[0], max_len=4)  # fmt: skip
    assert (greedy.ids, greedy.score) == (h.tokens, pytest.approx(h.score))


@pytest.mark.parametrize("source_eos", [False, True])
@pytest.mark.parametrize("max_len", [None, 3, 50])
def test_translations_are_at_most_twice_as_long_as_the_longest_source_plus_ten(
    monkeypatch: pytest.MonkeyPatch, source_eos: bool, max_len: int | None
) -> None:
    """Apply `max_len` and the limit of the model, too. A batch has sources of similar lengths."""
    found: list[tuple[list[int], int]] = []

    def search(model: Any, source: np.ndarray, *, max_len: int, **options: Any) -> Any:
        found.append(((source > 0).sum(1).tolist(), max_len))
        return [Hypothesis() for _ in source]

    monkeypatch.setattr("nn.decoding.translator.greedy_search", search)
    made, lengths = translator(source_eos, max_len=30), [3, 1, 20, 2]
    made.translate([" ".join("a" * n) for n in lengths], max_len=max_len, batch_size=2)
    more = int(source_eos)
    limits = [2 * (2 + more) + 10, 30] if max_len is None else [min(max_len, 30)] * 2
    assert found == [([1 + more, 2 + more], limits[0]), ([3 + more, 20 + more], limits[1])]


@pytest.mark.parametrize(("beam_size", "n_best"), [(1, 2), (1, 0), (3, 4), (3, 0)])
def test_translate_with_more_translations_than_hypotheses_raises(
    beam_size: int, n_best: int
) -> None:
    with pytest.raises(ValueError, match=f"n_best must be .*, got {n_best}"):
        translator().translate(["a"], beam_size=beam_size, n_best=n_best)


def test_translate_with_done_reports_the_number_of_sentences() -> None:
    counts: list[int] = []
    model = translator()
    texts = [" ".join(["a"] * (1 + i % 5)) for i in range(7)]
    found = model.translate(texts, batch_size=3, done=counts.append)
    assert counts == [3, 6, 7] and [t.source for t in found] == texts


@pytest.mark.parametrize("texts", ["a b", b"a b", None, 5, {"a b": 1}, [None], [b"a"], ["a", 3]])
def test_translate_of_other_than_strings_raises(texts: Any) -> None:
    for call in (translator().translate, translator().encode):
        with pytest.raises(TypeError, match=r"texts? must be a (list of )?strings?, got"):
            call(texts)
    (left, right), (again, _) = (
        translator().translate(t, max_len=2) for t in (["a", "b"], iter("ab"))
    )
    assert (left.ids, left.source) == (again.ids, "a") and right.source == "b"
