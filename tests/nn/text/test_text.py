"""Tokenizers, vocabularies, pairs from files, batches."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import MissingExtraError
from nn.text import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    BPEDropout,
    BPETokenizer,
    CharTokenizer,
    PairBatches,
    SpaceTokenizer,
    Vocabulary,
    WordTokenizer,
    filter_pairs,
    iter_pairs,
    padded,
    read_pairs,
    split_pairs,
    tokenizer_named,
    translation_scores,
)

# -- tokenizers --------------------------------------------------------------------------------------


def test_word_tokenizer_splits_and_joins_sentences() -> None:
    split = WordTokenizer()
    text = "Don't stop (really): it's 3.5 km, isn't it?"
    assert split(text) == [
        "Don't",
        "stop",
        "(",
        "really",
        ")",
        ":",
        "it's",
        "3",
        ".",
        "5",
        "km",
        ",",
        "isn't",
        "it",
        "?",
    ]
    assert WordTokenizer(lowercase=True)("Ab C") == ["ab", "c"]
    for text in [
        "Hello, world!",
        'She said "no" to him.',
        "¿Qué tal?",
        "a (b) c",
        "well-known",
        "He's here.",
    ]:
        assert split.join(split(text)) == text


def test_char_tokenizer_splits_chinese_by_characters() -> None:
    split = CharTokenizer()
    assert split("我有3只cats，OK？") == ["我", "有", "3", "只", "cats", "，", "OK", "？"]
    assert split.join(split("我有3只cats，OK？")) == "我有3只cats，OK？"
    assert split.join(["I", "am", "Tom", "。"]) == "I am Tom。"


def test_tokenizer_named_restores_each_tokenizer() -> None:
    assert SpaceTokenizer()("我 有 一只 猫") == ["我", "有", "一只", "猫"]
    for tokenizer in (SpaceTokenizer(), WordTokenizer(lowercase=True), CharTokenizer()):
        again = tokenizer_named(**tokenizer.to_dict())
        assert type(again) is type(tokenizer) and again.lowercase == tokenizer.lowercase
    with pytest.raises(
        ValueError, match="tokenizer must be 'word', 'char', 'space' or 'bpe', got 'x'"
    ):
        tokenizer_named("x")


def test_bpe_tokenizer_splits_and_joins_any_text() -> None:
    pytest.importorskip("tokenizers")
    texts = ["low lower lowest", "new newer newest", "wide wider widest"] * 20
    split = BPETokenizer.train(texts, vocab_size=300)
    with pytest.raises(ValueError, match="a text must be valid UTF-8, got .*udcff"):
        split("\udcff")
    assert split("lower newest").__len__() < len("lower newest")
    for text in ["lower newest", "something 未见过 else!", "naïve"]:
        assert split.join(split(text)) == text
    again = tokenizer_named(**split.to_dict())
    assert again("wider low") == split("wider low")


def test_bpe_tokenizer_with_whole_words_merges_between_spaces() -> None:
    pytest.importorskip("tokenizers")
    texts = ["it is n&apos;t well-known ."] * 20
    whole = BPETokenizer.train(texts, vocab_size=400, whole_words=True)
    apart = BPETokenizer.train(texts, vocab_size=400)
    assert whole(texts[0]) == ["Ġit", "Ġis", "Ġn&apos;t", "Ġwell-known", "Ġ."]
    assert len(apart(texts[0])) > 5
    for text in [texts[0], "a b-c &amp; n&apos;t", "未见过 naïve 🙂"]:
        assert whole.join(whole(text)) == text
    assert tokenizer_named(**whole.to_dict())(texts[0]) == whole(texts[0])
    assert len(set(whole.pieces)) == len(whole.pieces) and set("Ġabc") < set(whole.pieces)
    vocab = Vocabulary([*SPECIALS, *whole.pieces])  # a joint vocabulary of bytes knows every text
    assert UNK not in vocab.encode(whole("".join(map(chr, range(33, 3000)))))


TEXTS = ["low lower lowest", "new newer newest", "wide wider widest", "aaaa abab"] * 20


def dropout_by_definition(
    word: str, merges: list[list[str]], p: float, rng: np.random.Generator
) -> tuple[str, ...]:
    """Split by algorithm 1 of the paper: drop each merge with probability p, then apply the best one."""
    pieces = list(word)
    while True:
        left = [
            (merges.index([pieces[i], pieces[i + 1]]), i)
            for i in range(len(pieces) - 1)
            if [pieces[i], pieces[i + 1]] in merges and rng.random() >= p
        ]
        if not left:
            return tuple(pieces)
        i = min(left)[1]
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


def test_bpe_dropout_with_p_0_equals_the_tokenizer() -> None:
    pytest.importorskip("tokenizers")
    split = BPETokenizer.train(TEXTS, vocab_size=300)
    whole = BPEDropout(split, 0.0)
    for text in [*TEXTS[:4], "Something 未见过 else, newer!", "abababa aaa"]:
        assert whole(text, np.random.default_rng(0)) == split(text)


@pytest.mark.parametrize("word", ["Ġlowest", "Ġaaaa", "Ġnew"])
def test_bpe_dropout_frequencies_equal_the_definition(word: str) -> None:
    pytest.importorskip("tokenizers")
    split = BPETokenizer.train(TEXTS, vocab_size=300)
    merges = [list(m) for m in json.loads(split.model)["model"]["merges"]]
    dropout, rng, n = BPEDropout(split, 0.3), np.random.default_rng(0), 6000
    got = Counter(tuple(dropout(word[1:], rng)) for _ in range(n))
    expected = Counter(dropout_by_definition(word, merges, 0.3, rng) for _ in range(n))
    assert len(expected) > 3 and all("".join(pieces) == word for pieces in got)
    for pieces in {*got, *expected}:
        a, b = got[pieces], expected[pieces]
        assert abs(a - b) < 5 * np.sqrt(a + b + 1), pieces  # five standard deviations


def test_bpe_dropout_in_batches_differs_by_epoch_and_resumes_exactly() -> None:
    pytest.importorskip("tokenizers")
    split = BPETokenizer.train(TEXTS, vocab_size=300)
    vocab, dropout = Vocabulary([*SPECIALS, *split.pieces]), BPEDropout(split, 0.3)
    encode = lambda pair, generator: tuple(vocab.encode(dropout(text, generator)) for text in pair)
    pairs = [
        (f"{a} new", b)
        for a in ("low", "lower", "wide") * 150
        for b in ("newest", "aaaa abab wider")
    ]
    batches, again = (PairBatches(pairs, 30, seed=3, encode=encode) for _ in range(2))
    whole = [[side.tolist() for side in batch] for batch in batches.epoch(2)]
    assert [[side.tolist() for side in batch] for batch in again.epoch(2, start=130)] == whole[130:]
    texts = lambda epoch: sorted(
        split.join(vocab.decode(row)) for a, b in batches.epoch(epoch) for row in (*a, *b)
    )
    assert texts(2) == texts(3) == sorted(text for pair in pairs for text in pair)
    assert [[side.tolist() for side in batch] for batch in batches.epoch(3)] != whole
    assert len(batches.plan(2)) == len(whole) and sorted(np.concatenate(batches.plan(2))) == [
        *range(len(pairs))
    ]
    with pytest.raises(ValueError, match=r"max_tokens must be at least \d+, .* got 4"):
        list(PairBatches(pairs, 4, encode=encode).epoch())


def test_bpe_dropout_with_other_models_raises() -> None:
    lib = pytest.importorskip("tokenizers")
    with pytest.raises(ValueError, match="p must be finite, at least 0, less than 1, got 1"):
        BPEDropout(BPETokenizer.train(TEXTS, 260), 1)
    other = lib.Tokenizer(lib.models.BPE({"a": 0}, [], byte_fallback=True))
    with pytest.raises(
        ValueError, match=r"must be made by BPETokenizer.train, got \['byte_fallback'\]"
    ):
        BPEDropout(BPETokenizer(other.to_str()))


# -- scores ------------------------------------------------------------------------------------------


def test_translation_scores_have_signatures() -> None:
    pytest.importorskip("sacrebleu")
    same = translation_scores(["a b c d e"], ["a b c d e"])
    assert same.bleu == pytest.approx(100) and same.chrf == pytest.approx(100)
    assert "tok:13a" in same.bleu_signature and "case:mixed" in same.bleu_signature
    found = translation_scores(
        ["A b &apos;s c d"], ["a b &apos;s c d"], tokenize="none", lowercase=True
    )
    assert found.bleu == pytest.approx(100)
    assert all(part in found.bleu_signature for part in ("tok:none", "case:lc", "nrefs:1"))
    assert "case:lc" in found.chrf_signature
    by_hand = (
        100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    )  # of the n-grams of "a b c d x" for "a b c d e"
    assert translation_scores(["a b c d x"], ["a b c d e"], tokenize="none").bleu == pytest.approx(
        by_hand
    )
    several = translation_scores(
        ["a b c d x"] * 2, [["a b c d e", "a b c d x"], "a b c d x"], tokenize="none"
    )
    assert several.bleu == pytest.approx(100)


def test_translation_scores_bad_arguments_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="translations must not be empty"):
        translation_scores([], [])
    with pytest.raises(
        ValueError, match="references must be as many as translations \\(1\\), got 2"
    ):
        translation_scores(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="got none for translation 1"):
        translation_scores(["a", "b"], ["a", []])
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(MissingExtraError, match="BLEU needs sacrebleu"):
        translation_scores(["a"], ["a"])


def test_bpe_tokenizer_without_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        MissingExtraError, match=r"BPETokenizer needs tokenizers: pip install tokenizers"
    ):
        BPETokenizer.train(["a"])


# -- vocabulary --------------------------------------------------------------------------------------


def test_vocabulary_builds_encodes_and_decodes() -> None:
    v = Vocabulary.build([["b", "a", "b"], ["c", "b", "a"]])
    assert v.tokens == [*SPECIALS, "b", "a", "c"] and len(v) == 7
    assert v.encode(["a", "x", "b"], bos=True, eos=True) == [BOS, 5, UNK, 4, EOS]
    assert v.decode([BOS, 5, 4, PAD, EOS, 6]) == ["a", "b"]
    assert Vocabulary.build([["b", "a", "b"]], min_count=2).tokens == [*SPECIALS, "b"]
    assert Vocabulary.build([["b", "a", "b"]], max_size=5).tokens == [*SPECIALS, "b"]
    assert "a" in v and "x" not in v and v == Vocabulary(v.tokens)
    assert Vocabulary.build([["<eos>", "a"]]).tokens == [*SPECIALS, "a"]
    with pytest.raises(ValueError, match="tokens must begin with <pad>, <bos>, <eos>, <unk>, got"):
        Vocabulary(["a", "b"])
    with pytest.raises(ValueError, match=r"tokens must be distinct, got twice: \['a'\]"):
        Vocabulary([*SPECIALS, "a", "a"])
    with pytest.raises(IndexError, match="ids must be from 0 to 6, got 7"):
        v.decode([7])


# -- pairs -------------------------------------------------------------------------------------------


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.tsv.gz"])
def test_read_pairs_of_columns_returns_both_sides(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, "\ufeffHi.\t你好。\tCC-BY\n\nRun!\t 跑！ \nempty\t\t\n".encode())
    assert read_pairs(path) == [("Hi.", "你好。"), ("Run!", "跑！")]
    assert read_pairs(path, reverse=True)[0] == ("你好。", "Hi.")


def test_read_pairs_of_parallel_files_returns_both_sides(tmp_path: Path) -> None:
    a = write(tmp_path / "a.de", b"eins\r\nzwei\n\ndrei\n")
    b = write(tmp_path / "b.en.gz", b"one\ntwo\nnothing\nthree\n")
    assert read_pairs(a, b) == [("eins", "one"), ("zwei", "two"), ("drei", "three")]
    with pytest.raises(ValueError, match="c.en must have as many lines as .*a.de .4., got 1"):
        read_pairs(a, write(tmp_path / "c.en", b"one\n"))


@pytest.mark.parametrize("reverse", [False, True])
def test_iter_pairs_equals_read_pairs(tmp_path: Path, reverse: bool) -> None:
    table = write(
        tmp_path / "a.tsv.gz",
        "English\tChinese\nHi.\t你好。\n\n\t空\nHi.\t你好。\nRun!\t跑！\n".encode(),
    )
    sides = [
        write(tmp_path / name, data)
        for name, data in (("a", b"one\n\ntwo\none\n"), ("b", b"eins\nx\nzwei\neins\n"))
    ]
    for files in ([table], sides):
        found = list(iter_pairs(*files, reverse=reverse))
        assert found == read_pairs(*files, reverse=reverse, keep_repeated=True) and len(found) == 3
        assert list(dict.fromkeys(found)) == read_pairs(*files, reverse=reverse)
    short = write(tmp_path / "c", b"eins\n")
    for files in ((sides[0], short), (short, sides[0])):
        with pytest.raises(ValueError, match="must have as many lines as .*, got ."):
            list(iter_pairs(*files))


def test_read_pairs_of_damaged_file_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="x.tsv, line 2 must have two columns separated by a tab, got one"
    ):
        read_pairs(write(tmp_path / "x.tsv", b"a\tb\nc d\n"))
    with pytest.raises(
        ValueError, match=r"y.tsv, line 3: not UTF-8 \(invalid start byte at byte 2\)"
    ):
        read_pairs(write(tmp_path / "y.tsv", b"a\tb\nc\td\ne\t\xff\n"))
    with pytest.raises(ValueError, match="z.tsv: the file is empty"):
        read_pairs(write(tmp_path / "z.tsv", b""))
    with pytest.raises(
        ValueError, match="w.tsv must have at least one pair of sentences, got none"
    ):
        read_pairs(write(tmp_path / "w.tsv", b"\n\n"))
    with pytest.raises(FileNotFoundError, match="nothing.tsv: no such file"):
        read_pairs(tmp_path / "nothing.tsv")
    broken = tmp_path / "v.tsv.gz"
    broken.write_bytes(gzip.compress(b"a\tb\n" * 1000)[:-20])
    with pytest.raises(ValueError, match="v.tsv.gz: not a whole .gz file"):
        read_pairs(broken)


def test_filter_pairs_and_split_pairs_return_parts() -> None:
    pairs = [(["a"] * n, ["b"] * m) for n, m in [(1, 1), (3, 1), (5, 5), (0, 2), (2, 9)]]
    assert [(len(a), len(b)) for a, b in filter_pairs(pairs, 5)] == [(1, 1), (3, 1), (5, 5)]
    assert [(len(a), len(b)) for a, b in filter_pairs(pairs, 5, max_ratio=2)] == [(1, 1), (5, 5)]
    many = [(f"s{i // 3}", f"t{i}") for i in range(300)]
    test, valid, train = split_pairs(many, 30, 20, seed=1)
    assert (
        30 <= len(test) < 33
        and 20 <= len(valid) < 23
        and len(test) + len(valid) + len(train) == 300
    )
    sources = [{a for a, _ in part} for part in (test, valid, train)]
    assert (
        not sources[0] & sources[1] and not sources[1] & sources[2] and not sources[0] & sources[2]
    )
    assert (
        split_pairs(many, 30, 20, seed=1)[0] == test
        and split_pairs(many, 30, 20, seed=2)[0] != test
    )
    with pytest.raises(ValueError, match="pairs must be more than the 500 to hold out, got 300"):
        split_pairs(many, 500)


# -- batches -----------------------------------------------------------------------------------------

id_pairs = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=60)


def made(lengths: list[tuple[int, int]]) -> list[tuple[list[int], list[int]]]:
    return [([i + 4] * a, [i + 4] * b) for i, (a, b) in enumerate(lengths)]


@given(
    lengths=id_pairs, max_tokens=st.integers(9, 40), seed=st.integers(0, 5), shuffle=st.booleans()
)
def test_pair_batches_have_every_pair_once_within_max_tokens(
    lengths: list[tuple[int, int]], max_tokens: int, seed: int, shuffle: bool
) -> None:
    batches = PairBatches(made(lengths), max_tokens, shuffle=shuffle, seed=seed)
    seen: list[int] = []
    for source, target in batches.epoch(3):
        assert (
            source.size <= max_tokens and target.size <= max_tokens and len(source) == len(target)
        )
        for a, b in zip(source, target):
            i = int(a[0]) - 4
            assert (a[: lengths[i][0]] == i + 4).all() and not a[lengths[i][0] :].any()
            assert (b[: lengths[i][1]] == i + 4).all() and not b[lengths[i][1] :].any()
            seen.append(i)
    assert sorted(seen) == list(range(len(lengths)))


def test_pair_batches_order_depends_on_seed_and_epoch() -> None:
    pairs = made([(i % 7 + 1, i % 5 + 1) for i in range(200)])
    a, b = PairBatches(pairs, 30, seed=1), PairBatches(pairs, 30, seed=1)
    whole = [s.tolist() for s, _ in a.epoch(2)]
    assert [s.tolist() for s, _ in b.epoch(2, start=5)] == whole[5:]
    assert [s.tolist() for s, _ in a.epoch(3)] != whole
    assert [s.tolist() for s, _ in PairBatches(pairs, 30, seed=2).epoch(2)] != whole
    assert len(a.plan(2)) == len(whole)


def test_pair_batches_sort_by_length_with_little_padding() -> None:
    rng = np.random.default_rng(0)
    lengths = [(int(n), int(n)) for n in rng.integers(1, 30, 2000)]
    batches = PairBatches(made(lengths), 600)
    padding = sum((s == 0).sum() for s, _ in batches.epoch(0)) / sum(
        s.size for s, _ in batches.epoch(0)
    )
    assert padding < 0.05


def test_pair_batches_bad_pairs_raise() -> None:
    with pytest.raises(ValueError, match="PairBatches: pairs must contain at least one pair"):
        PairBatches([])
    with pytest.raises(
        ValueError, match="PairBatches: both sides of pair 1 must have at least one id"
    ):
        PairBatches([([1], [1]), ([1], [])])
    with pytest.raises(ValueError, match="max_tokens must be at least 9, .* got 8"):
        PairBatches([([1] * 9, [1])], 8)
    np.testing.assert_array_equal(padded([[1, 2], [3]], length=3), [[1, 2, 0], [3, 0, 0]])


def test_read_pairs_counts_what_it_leaves_out(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.tsv",
        "English\tChinese\nHi.\t你好。\n\t空\nHi.\t你好。\nRun!\t跑！\n".encode(),
    )
    left_out: Counter[str] = Counter()
    assert read_pairs(path, left_out=left_out) == [("Hi.", "你好。"), ("Run!", "跑！")]
    assert left_out == {"a row of headings": 1, "with an empty side": 1, "there before": 1}
    assert read_pairs(write(tmp_path / "b.tsv", b"text\tein Text\n")) == [
        ("text", "ein Text")
    ]  # no heading


# -- Chinese characters --------------------------------------------------------------------------------


def test_tokenizer_simplified_converts_traditional_characters() -> None:
    pytest.importorskip("opencc")
    for split in (CharTokenizer(simplified=True), SpaceTokenizer(simplified=True)):
        assert "".join(split("湯姆學習漢語")) == "汤姆学习汉语"
        assert tokenizer_named(**split.to_dict())("漢語") == split("汉语") == split("漢語")
    assert "".join(CharTokenizer()("漢語")) == "漢語"
    pytest.importorskip("tokenizers")
    bpe = BPETokenizer.train(["漢語 and 語言"] * 20, 280, simplified=True)
    assert bpe("漢語") == bpe("汉语") == BPEDropout(bpe, 0.0)("漢語", np.random.default_rng(0))
    assert bpe.join(bpe("語言")) == "语言"


def test_tokenizer_simplified_without_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from nn.text.tokenize import _simplifier

    _simplifier.cache_clear()
    monkeypatch.setitem(sys.modules, "opencc", None)
    with pytest.raises(MissingExtraError, match="folding Chinese characters needs opencc"):
        CharTokenizer(simplified=True)("漢")
