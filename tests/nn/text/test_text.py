"""Tokenizers, vocabularies, pairs from files, batches."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
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
    Tokenizer,
    Vocabulary,
    WordTokenizer,
    filter_pairs,
    iter_pairs,
    read_pairs,
    split_pairs,
    tokenizer_named,
    translation_scores,
)
from nn.text.tokenize import _simplifier

# -- tokenizers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokenizer", "text", "tokens"),
    [
        (WordTokenizer(), "Don't stop (really): it's 3.5 km, isn't it?", "Don't stop ( really ) : it's 3 . 5 km , isn't it ?"),
        (WordTokenizer(lowercase=True), "Ab C", "ab c"),
        (CharTokenizer(), "我有3只cats，OK？", "我 有 3 只 cats ， OK ？"),
        (SpaceTokenizer(), "我 有 一只 猫", "我 有 一只 猫"),
    ],
)  # fmt: skip
def test_tokenizer_splits_a_sentence(tokenizer: Tokenizer, text: str, tokens: str) -> None:
    assert tokenizer(text) == tokens.split()
    again = tokenizer_named(**tokenizer.to_dict())
    assert type(again) is type(tokenizer) and again(text) == tokens.split()


@pytest.mark.parametrize(
    ("tokenizer", "text"),
    [
        (WordTokenizer(), "Hello, world!"),
        (WordTokenizer(), 'She said "no" to him.'),
        (WordTokenizer(), "¿Qué tal?"),
        (WordTokenizer(), "a (b) c"),
        (WordTokenizer(), "well-known"),
        (WordTokenizer(), "He's here."),
        (CharTokenizer(), "我有3只cats，OK？"),
        (CharTokenizer(), "I am Tom。"),
    ],
)
def test_tokenizer_joins_what_it_splits(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.join(tokenizer(text)) == text


def test_tokenizer_named_of_another_name_raises() -> None:
    with pytest.raises(ValueError, match="must be 'word', 'char', 'space' or 'bpe', got 'x'"):
        tokenizer_named("x")


TEXTS = ["low lower lowest", "new newer newest", "wide wider widest", "aaaa abab"] * 20


@pytest.fixture(scope="module")
def bpe() -> BPETokenizer:
    pytest.importorskip("tokenizers")
    return BPETokenizer.train(TEXTS, vocab_size=300)


def test_bpe_tokenizer_splits_and_joins_any_text(bpe: BPETokenizer) -> None:
    assert len(bpe("lower newest")) < len("lower newest")
    for text in ["lower newest", "something 未见过 else!", "naïve"]:
        assert bpe.join(bpe(text)) == text
    assert tokenizer_named(**bpe.to_dict())("wider low") == bpe("wider low")
    with pytest.raises(ValueError, match="a text must be valid UTF-8, got .*udcff"):
        bpe("\udcff")


def test_bpe_tokenizer_with_whole_words_merges_between_spaces() -> None:
    pytest.importorskip("tokenizers")
    text = "it is n&apos;t well-known ."
    whole = BPETokenizer.train([text] * 20, vocab_size=400, whole_words=True)
    assert whole(text) == ["Ġit", "Ġis", "Ġn&apos;t", "Ġwell-known", "Ġ."]
    assert whole.join(whole("未见过 b-c &amp; n&apos;t 🙂")) == "未见过 b-c &amp; n&apos;t 🙂"
    assert tokenizer_named(**whole.to_dict())(text) == whole(text)
    vocab = Vocabulary([*SPECIALS, *whole.pieces])  # a joint vocabulary of bytes knows every text
    assert UNK not in vocab.encode(whole("".join(map(chr, range(33, 3000)))))


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


def test_bpe_dropout_with_p_0_equals_the_tokenizer(bpe: BPETokenizer) -> None:
    whole = BPEDropout(bpe, 0.0)
    for text in [*TEXTS[:4], "Something 未见过 else, newer!", "abababa aaa"]:
        assert whole(text, np.random.default_rng(0)) == bpe(text)


@pytest.mark.parametrize("word", ["Ġlowest", "Ġaaaa", "Ġnew"])
def test_bpe_dropout_frequencies_equal_the_definition(bpe: BPETokenizer, word: str) -> None:
    merges = [list(m) for m in json.loads(bpe.model)["model"]["merges"]]
    dropout, rng, n = BPEDropout(bpe, 0.3), np.random.default_rng(0), 6000
    got = Counter(tuple(dropout(word[1:], rng)) for _ in range(n))
    expected = Counter(dropout_by_definition(word, merges, 0.3, rng) for _ in range(n))
    assert len(expected) > 3 and all("".join(pieces) == word for pieces in got)
    for pieces in {*got, *expected}:
        a, b = got[pieces], expected[pieces]
        assert abs(a - b) < 5 * np.sqrt(a + b + 1), pieces  # five standard deviations


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


def test_translation_scores_equal_their_definitions() -> None:
    pytest.importorskip("sacrebleu")
    scores = translation_scores(["a b c d x"], ["a b c d e"], tokenize="none")
    shares = [4 / 5, 3 / 4, 2 / 3, 1 / 2]  # of the n-grams
    assert scores.bleu == pytest.approx(100 * np.prod(shares) ** 0.25)
    references = [["a b c d e", "A B C D X"], "a b c d x"]
    several = translation_scores(["a b c d x"] * 2, references, lowercase=True)
    assert (several.bleu, several.chrf) == pytest.approx((100, 100))
    for part in ("tok:13a", "case:lc", "nrefs:"):
        assert part in several.bleu_signature
    assert "tok:none" in scores.bleu_signature and "case:lc" in several.chrf_signature


@pytest.mark.parametrize(
    ("translations", "references", "message"),
    [
        ([], [], "translations must not be empty"),
        (["a"], ["a", "b"], r"references must be as many as translations \(1\), got 2"),
        (["a", "b"], ["a", []], "got none for translation 1"),
    ],
)
def test_translation_scores_bad_arguments_raise(
    translations: list[str], references: list[Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        translation_scores(translations, references)


@pytest.mark.parametrize(
    ("package", "call", "message"),
    [
        ("sacrebleu.metrics", lambda: translation_scores(["a"], ["a"]), "BLEU needs sacrebleu"),
        ("tokenizers", lambda: BPETokenizer.train(["a"]), "BPETokenizer needs tokenizers: pip"),
        ("opencc", lambda: CharTokenizer(simplified=True)("漢"), "characters needs opencc"),
    ],
)
def test_text_without_a_package_names_it(
    monkeypatch: pytest.MonkeyPatch, package: str, call: Callable[[], object], message: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    _simplifier.cache_clear()
    with pytest.raises(MissingExtraError, match=message):
        call()


# -- vocabulary --------------------------------------------------------------------------------------


def test_vocabulary_builds_encodes_and_decodes() -> None:
    v = Vocabulary.build([["b", "a", "b"], ["c", "b", "a"]])
    assert v.tokens == [*SPECIALS, "b", "a", "c"] and "a" in v and "x" not in v
    assert v.encode(["a", "x", "b"], bos=True, eos=True) == [BOS, 5, UNK, 4, EOS]
    assert v.decode([BOS, 5, 4, PAD, EOS, 6]) == ["a", "b"]
    with pytest.raises(IndexError, match="ids must be from 0 to 6, got 7"):
        v.decode([7])


@pytest.mark.parametrize("options", [{"min_count": 2}, {"max_size": 5}])
def test_vocabulary_of_frequent_tokens_leaves_out_others(options: dict[str, int]) -> None:
    assert Vocabulary.build([["b", "a", "b", "<eos>"]], **options).tokens == [*SPECIALS, "b"]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["a", "b"], "tokens must begin with <pad>, <bos>, <eos>, <unk>, got"),
        ([*SPECIALS, "a", "a"], r"tokens must be distinct, got twice: \['a'\]"),
    ],
)
def test_vocabulary_of_bad_tokens_raises(tokens: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Vocabulary(tokens)


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


TABLE = "English\tChinese\nHi.\t你好。\n\n\t空\nHi.\t你好。\nRun!\t跑！\n"


def test_read_pairs_counts_what_it_leaves_out(tmp_path: Path) -> None:
    path, left_out = write(tmp_path / "a.tsv", TABLE.encode()), Counter[str]()
    assert read_pairs(path, left_out=left_out) == [("Hi.", "你好。"), ("Run!", "跑！")]
    assert left_out == {"a row of headings": 1, "with an empty side": 1, "there before": 1}
    path = write(tmp_path / "b.tsv", b"text\tein Text\n")
    assert read_pairs(path) == [("text", "ein Text")]  # no heading


@pytest.mark.parametrize("reverse", [False, True])
def test_iter_pairs_equals_read_pairs(tmp_path: Path, reverse: bool) -> None:
    table = write(tmp_path / "a.tsv.gz", TABLE.encode())
    a = write(tmp_path / "a", b"one\n\ntwo\none\n")
    b = write(tmp_path / "b", b"eins\nx\nzwei\neins\n")
    for files in ([table], [a, b]):
        found = list(iter_pairs(*files, reverse=reverse))
        assert found == read_pairs(*files, reverse=reverse, keep_repeated=True) and len(found) == 3
    short = write(tmp_path / "c", b"eins\n")
    for files in ([a, short], [short, a]):
        with pytest.raises(ValueError, match="must have as many lines as .*, got ."):
            list(iter_pairs(*files))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.tsv", b"a\tb\nc d\n", "x.tsv, line 2 must have two columns separated by a tab, got one"),
        ("x.tsv", b"a\tb\nc\td\ne\t\xff\n", r"x.tsv, line 3: not UTF-8 \(invalid start byte at byte 2\)"),
        ("x.tsv", b"", "x.tsv: the file is empty"),
        ("x.tsv", b"\n\n", "x.tsv must have at least one pair of sentences, got none"),
        ("x.tsv.gz", gzip.compress(b"a\tb\n" * 1000)[:-20], "x.tsv.gz: not a whole .gz file"),
    ],
    ids=["one column", "not UTF-8", "empty", "no pairs", "cut"],
)  # fmt: skip
def test_read_pairs_of_damaged_file_names_the_line(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read_pairs(tmp_path / name)


def test_read_pairs_of_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing.tsv: no such file"):
        read_pairs(tmp_path / "nothing.tsv")


def test_filter_pairs_keeps_suitable_lengths() -> None:
    pairs = [(["a"] * n, ["b"] * m) for n, m in [(1, 1), (3, 1), (5, 5), (0, 2), (2, 9)]]
    assert [(len(a), len(b)) for a, b in filter_pairs(pairs, 5)] == [(1, 1), (3, 1), (5, 5)]
    assert [(len(a), len(b)) for a, b in filter_pairs(pairs, 5, max_ratio=2)] == [(1, 1), (5, 5)]


def test_split_pairs_have_no_source_in_common() -> None:
    pairs = [(f"s{i // 3}", f"t{i}") for i in range(300)]
    test, valid, train = split_pairs(pairs, 30, 20, seed=1)
    assert (len(test), len(valid)) == (30, 21)  # three pairs have one source
    assert sorted(test + valid + train) == sorted(pairs)
    assert sum(len({a for a, _ in part}) for part in (test, valid, train)) == 100
    again, other = (split_pairs(pairs, 30, 20, seed=seed)[0] for seed in (1, 2))
    assert again == test != other
    with pytest.raises(ValueError, match="pairs must be more than the 500 to hold out, got 300"):
        split_pairs(pairs, 500)


# -- batches -----------------------------------------------------------------------------------------

id_pairs = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=60)


def made(lengths: list[tuple[int, int]]) -> list[tuple[list[int], list[int]]]:
    return [([i + 4] * a, [i + 4] * b) for i, (a, b) in enumerate(lengths)]


@given(
    lengths=id_pairs, max_tokens=st.integers(9, 40), seed=st.integers(0, 5), shuffle=st.booleans()
)
@example(lengths=[(1, 1), (5, 5)], max_tokens=9, seed=0, shuffle=False)  # 10 tokens together
def test_pair_batches_have_every_pair_once_within_max_tokens(
    lengths: list[tuple[int, int]], max_tokens: int, seed: int, shuffle: bool
) -> None:
    seen = []
    for batch in PairBatches(made(lengths), max_tokens, shuffle=shuffle, seed=seed).epoch(3):
        assert all(side.size <= max_tokens for side in batch)
        for row in zip(*batch, strict=True):
            ids = [side[: np.count_nonzero(side)].tolist() for side in row]  # the rest is padding
            seen.append((ids[0], ids[1]))
    assert sorted(seen) == sorted(made(lengths))


def test_pair_batches_order_depends_on_seed_and_epoch() -> None:
    pairs = made([(i % 7 + 1, i % 5 + 1) for i in range(200)])

    def sources(seed: int, epoch: int, start: int = 0) -> list[Any]:
        return [a.tolist() for a, _ in PairBatches(pairs, 30, seed=seed).epoch(epoch, start)]

    whole = sources(1, 2)
    assert sources(1, 2, start=5) == whole[5:]
    assert sources(1, 3) != whole and sources(2, 2) != whole


def test_pair_batches_with_encode_draw_anew_in_each_epoch() -> None:
    pairs = [(range(i, i + 5), [i]) for i in range(2000)]
    encode = lambda pair, generator: (generator.permutation(pair[0]), pair[1])

    def rows(epoch: int, start: int = 0) -> list[Any]:
        batches = PairBatches(pairs, 50, shuffle=False, seed=3, encode=encode)
        return [a.tolist() for a, _ in batches.epoch(epoch, start)]

    second, third = rows(2), rows(3)
    assert rows(2, start=130) == second[130:]
    drawn = [{tuple(row) for batch in epoch for row in batch} for epoch in (second, third)]
    assert len(drawn[0]) == len(drawn[1]) == 2000 and len(drawn[0] & drawn[1]) < 100
    with pytest.raises(ValueError, match="max_tokens must be at least 5, .* got 4"):
        list(PairBatches(pairs, 4, encode=encode).epoch())


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "pairs must contain at least one pair"),
        ([([1], [1]), ([1], [])], "both sides of pair 1 must have at least one id"),
        ([([1] * 9, [1])], "max_tokens must be at least 9, .* got 8"),
    ],
)
def test_pair_batches_bad_pairs_raise(pairs: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"PairBatches: {message}"):
        PairBatches(pairs, 8)


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
