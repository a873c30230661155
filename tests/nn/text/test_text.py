"""Tokenizers, vocabularies, pairs from files, batches."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.commands import hide_packages
from support.environment import needs

from minigrad import MissingExtraError
from nn.text.batches import PairBatches
from nn.text.pairs import read_lines, read_pairs, split_pairs
from nn.text.scores import bleu_tokenizer, has_no_spaces, is_wide, translation_scores
from nn.text.tokenize import (
    BPETokenizer,
    CharTokenizer,
    SpaceTokenizer,
    Tokenizer,
    WordTokenizer,
    library_errors,
    tokenizer_named,
)
from nn.text.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

# -- tokenizers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokenizer", "text", "tokens"),
    [
        (WordTokenizer(), "Don't stop (really): it's 3.5 km!", "Don't stop ( really ) : it's 3 . ￭ 5 km !"),
        (WordTokenizer(), "a@b.org , ▁", "a ￭ @ ￭ b . ￭ org ▁ , ▁▁"),
        (WordTokenizer(lowercase=True), "Ab C Straße", "ab c straße"),
        (WordTokenizer(), '"a" b "c" d "e"', '" a " b " c " d " e "'),
        (WordTokenizer(), '"a, b c" d', '" a , b c " d'),
        (WordTokenizer(), "नमस्ते दुनिया।", "नमस्ते दुनिया ।"),
        (WordTokenizer(), "𑀩𑁆𑀭𑀸!", "𑀩𑁆𑀭𑀸 !"),
        (CharTokenizer(), "我有3只cats，OK？", "我 有 3 只 cats ， OK ？"),
        (CharTokenizer(), "हिन्दी 日本", "हिन्दी ▁ 日 本"),
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
        (WordTokenizer(), 'He\'s said "no" (¿qué?) to well-known men, twice.'),
        (CharTokenizer(), "我有3只cats，OK？"),
        (CharTokenizer(), "I am Tom。"),
        (CharTokenizer(), "我喜欢café au lait。"),
        (WordTokenizer(), "مرحبا، كيف حالك؟ نعم."),
        (
            WordTokenizer(),
            "It is 3.14 at 10:30; see www.example.com, U.S. or e.g. $5.00 (a@b.org).",
        ),
    ],
)
def test_tokenizer_joins_what_it_splits(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.join(tokenizer(text)) == text


@pytest.mark.parametrize(
    ("characters", "text"),
    [
        (".,;:!?)]}%”’»…。，！？；：、،؛؟।॥", "a{} b"),
        ("([{“‘«¿¡$£€#", "a {}b"),
        ("-/", "a{}b"),
        ("@&*+=~^<>|\\", "a {} b"),
    ],
)
def test_marks_with_their_usual_spaces_are_tokens_alone(characters: str, text: str) -> None:
    """Mark tokens that have other spaces."""
    for c in characters:
        assert WordTokenizer()(text.format(c)) == ["a", c, "b"]
        for other in {"a{}b", "a {} b"} - {text}:
            assert set(WordTokenizer()(other.format(c))) - {"a", c, "b"}


@pytest.mark.parametrize("tokenizer", [WordTokenizer(), CharTokenizer(), SpaceTokenizer()])
def test_join_of_empty_tokens_joins_the_others(tokenizer: Tokenizer) -> None:
    assert tokenizer.join(["", "a", "", "b", ""]).split() == ["a", "b"]


TEXTS = ["low lower lowest", "new newer newest", "wide wider widest", "aaaa abab"] * 20


@pytest.fixture(scope="module")
def bpe() -> BPETokenizer:
    return BPETokenizer.train(TEXTS, vocab_size=300)


def test_bpe_training_on_one_string_raises() -> None:
    with pytest.raises(TypeError, match="texts must be an iterable of strings, got a string; put"):
        BPETokenizer.train("low lower")


def test_bpe_tokenizer_splits_and_joins_any_text(bpe: BPETokenizer) -> None:
    assert len(bpe("lower newest")) < len("lower newest")
    text = "something 未见过 else, naïve!"
    assert bpe.join(bpe(text)) == text
    assert tokenizer_named(**bpe.to_dict())("wider low") == bpe("wider low")
    with pytest.raises(ValueError, match="a text must be valid UTF-8, got .*udcff"):
        bpe("\udcff")
    assert BPETokenizer.train(["AB AB"] * 9, 260, lowercase=True)("AB Ab") == ["Ġab"] * 2


def test_bpe_tokenizer_with_whole_words_merges_between_spaces() -> None:
    text = "it is n&apos;t well-known ."
    whole = BPETokenizer.train([text] * 20, vocab_size=400, whole_words=True)
    assert whole(text) == ["Ġit", "Ġis", "Ġn&apos;t", "Ġwell-known", "Ġ."]
    assert whole.join(whole("未见过 n&apos;t 🙂")) == "未见过 n&apos;t 🙂"
    vocab = Vocabulary([*SPECIALS, *whole.pieces])  # a joint vocabulary of bytes knows every text
    assert UNK not in vocab.encode(whole("".join(map(chr, range(33, 3000)))))


@pytest.mark.parametrize(
    ("package", "call", "message"),
    [
        ("sacrebleu", lambda: translation_scores(["a"], ["a"]), "BLEU needs sacrebleu"),
        ("tokenizers", lambda: BPETokenizer.train(["a"]), "BPETokenizer needs tokenizers: pip"),
    ],
)
def test_text_without_a_package_names_it(
    monkeypatch: pytest.MonkeyPatch, package: str, call: Callable[[], object], message: str
) -> None:
    hide_packages(monkeypatch, package)
    with pytest.raises(MissingExtraError, match=message):
        call()


class PanicException(BaseException):
    """Error of code in Rust that panics, which is no Exception."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("a"), ValueError("m: a")),
        (PanicException("a"), ValueError("m: a")),
        (ValueError("/dir/file: a"), ValueError("/dir/file: a")),
        (ValueError("at /dir/file"), ValueError("m: at /dir/file")),
        (KeyboardInterrupt("a"), KeyboardInterrupt("a")),
        (MissingExtraError("a"), MissingExtraError("a")),
    ],
)
def test_errors_of_a_library_name_the_file(error: BaseException, expected: BaseException) -> None:
    with pytest.raises(BaseException) as caught, library_errors("m", Path("/dir")):
        raise error
    assert type(caught.value) is type(expected) and str(caught.value) == str(expected)


# -- scores ------------------------------------------------------------------------------------------


class Metric:
    """A metric of sacrebleu that keeps its arguments; its score is the number of references."""

    def __init__(self, name: str, **options: Any) -> None:
        self.name, self.options = name, options

    def corpus_score(self, *texts: Any) -> Any:
        self.texts = texts
        return SimpleNamespace(score=len(texts[1]) + len(self.name) / 10)

    def get_signature(self) -> Any:
        return (self.name, self.options, self.texts)


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put metrics in the place of those of sacrebleu."""
    named = {name: partial(Metric, name) for name in ("BLEU", "CHRF")}
    monkeypatch.setattr("nn.text.scores.require", lambda *_: SimpleNamespace(**named))


@pytest.mark.parametrize("lowercase", [False, True])
def test_translation_scores_pass_their_arguments_to_each_metric(
    metrics: Any, lowercase: bool
) -> None:
    """Translations may have several references each, of which there are at least one."""
    options = {"tokenize": "zh", "lowercase": True} if lowercase else {}
    scores = translation_scores(("x", "y"), ["a b", ("b", "c")], **options)
    texts = (["x", "y"], [["a b", "b"], [None, "c"]])
    of_bleu = {"tokenize": "zh" if lowercase else "13a", "lowercase": lowercase, "force": True}
    assert (scores.bleu, scores.chrf) == (2.4, 2.4)
    assert scores.bleu_signature == str(("BLEU", of_bleu, texts))
    assert scores.chrf_signature == str(("CHRF", {"lowercase": lowercase}, texts))


def test_translation_scores_equal_their_definitions() -> None:
    needs("sacrebleu")
    scores = translation_scores(["a b c d x"], ["a b c d e"], tokenize="none")
    shares = [4 / 5, 3 / 4, 2 / 3, 1 / 2]  # of the n-grams
    assert scores.bleu == pytest.approx(100 * np.prod(shares) ** 0.25)
    assert "tok:none" in scores.bleu_signature
    references = [["a b c d e", "A B C D X"], "a b c d x"]
    several = translation_scores(["a b c d x"] * 2, references, lowercase=True)
    assert (several.bleu, several.chrf) == pytest.approx((100, 100))
    assert "case:lc" in several.chrf_signature


def test_bleu_tokenizer_is_that_of_the_script() -> None:
    found = [
        bleu_tokenizer([text])
        for text in ("一只猫。", "猫はいる", "a cat 猫.", "고양이 한 마리", "")
    ]
    assert found == ["zh", "zh", "13a", "13a", "13a"]


def test_has_no_spaces_is_true_of_thai_lao_burmese_and_khmer() -> None:
    texts = ("แมวนั่งบนเสื่อ", "ແມວນັ່ງ", "ကြောင်ထိုင်သည်", "ឆ្មាអង្គុយ", "a cat", "一只猫", "")
    assert [has_no_spaces([text]) for text in texts] == [True] * 4 + [False] * 3


@pytest.mark.parametrize(("f", "letter"), [(is_wide, "猫"), (is_wide, "Ａ"), (has_no_spaces, "แ")])
def test_script_is_that_of_more_than_a_fifth_of_the_characters(f: Any, letter: str) -> None:
    for count in range(1, 30):
        for others in range(4 * count - 1, 4 * count + 2):
            assert f([letter * count, "a" * others]) == (4 * count > others)
    assert f(["a"] * 999 + [letter * 500]) and not f(["a"] * 1000 + [letter * 500])


@pytest.mark.parametrize(
    ("translations", "references", "message"),
    [
        ([], [], "translations must not be empty"),
        (["a"], ["a", "b"], r"references must be as many as translations \(1\), got 2"),
        (["a", "b"], ["a", []], "got none for translation 1"),
    ],
)
def test_translation_scores_bad_arguments_raise(
    metrics: Any, translations: list[str], references: list[Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        translation_scores(translations, references)


# -- vocabulary --------------------------------------------------------------------------------------


def test_vocabulary_builds_encodes_and_decodes() -> None:
    v = Vocabulary.build([["b", "a", "b"], ["c", "b", "a"]])
    assert v.tokens == [*SPECIALS, "b", "a", "c"] and "a" in v and "x" not in v
    assert v.encode(["a", "x", "b"], bos=True, eos=True) == [BOS, 5, UNK, 4, EOS]
    assert v.decode([BOS, 5, 4, PAD, EOS, 6]) == ["a", "b"]
    for wrong in (7, -1):
        with pytest.raises(IndexError, match=f"ids must be from 0 to 6, got {wrong}"):
            v.decode([wrong])
    assert v != Vocabulary([*SPECIALS, "c", "a", "b"]) and v != v.tokens


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["a", "b"], "tokens must begin with <pad>, <bos>, <eos>, <unk>, got"),
        ([*SPECIALS[::-1], "a"], "tokens must begin with <pad>, <bos>, <eos>, <unk>, got"),
        ([*SPECIALS, "a", "a"], r"tokens must be distinct, got twice: \['a'\]"),
    ],
)
def test_vocabulary_of_bad_tokens_raises(tokens: list[str], message: str) -> None:
    for argument in (tokens, iter(tokens)):
        with pytest.raises(ValueError, match=message):
            Vocabulary(argument)


# -- pairs -------------------------------------------------------------------------------------------

TABLE = "\ufeffEnglish\tChinese\nHi.\t你好。\tCC-BY\n\n\t空\nHi.\t你好。\nRun!\t 跑！ \n".encode()


@pytest.mark.parametrize(
    ("name", "data"),
    [("a.tsv", TABLE), ("a.tsv.gz", gzip.compress(TABLE)), ("A.TSV.GZ", gzip.compress(TABLE))],
    ids=["plain", "gzip", "GZIP"],
)
def test_read_pairs_counts_what_it_leaves_out(tmp_path: Path, name: str, data: bytes) -> None:
    path, left_out = tmp_path / name, Counter[str]()
    path.write_bytes(data)
    assert read_pairs(path, left_out=left_out) == [("Hi.", "你好。"), ("Run!", "跑！")]
    assert +left_out == {"a row of headings": 1, "with an empty side": 1, "repeated": 1}


def test_read_lines_keeps_all_but_the_ends_of_lines(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf a \r\n\n\xef\xbb\xbfb\tc\n\nd")
    assert [*read_lines(tmp_path / "a")] == [" a ", "", "\ufeffb\tc", "", "d"]
    (tmp_path / "a").write_bytes(b"a\n\xff\n")
    with pytest.raises(ValueError, match=f"^{tmp_path}/a, line 2 must be UTF-8"):
        list(read_lines(tmp_path / "a"))


def test_read_pairs_with_one_side_like_a_heading_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\tein Text\n")
    assert read_pairs(tmp_path / "a.tsv") == [("text", "ein Text")]


def test_read_pairs_of_parallel_files(tmp_path: Path) -> None:
    a, b, short = (tmp_path / name for name in ("a", "b", "c"))
    a.write_bytes(b"one \r\n\r\n\ttwo\r\none\r\n")
    b.write_text(" eins\nx\nzwei\t\neins\n")
    assert read_pairs(a, b) == [("one", "eins"), ("two", "zwei")]
    repeated = [("eins", "one"), ("zwei", "two"), ("eins", "one")]
    assert read_pairs(a, b, reverse=True, keep_repeated=True) == repeated
    short.write_text("eins\n")
    for files, counts in (((a, short), r"\(4\), got 1"), ((short, a), r"\(1\), got 4")):
        with pytest.raises(ValueError, match=f"must have as many lines as .*{counts}"):
            read_pairs(*files)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "x.tsv",
            b"a\tb\nc d\n",
            "x.tsv, line 2 must have 2 columns separated by tabs, got 1",
        ),
        (
            "x.tsv",
            b"a\tb\nc\td\ne\t\xff\n",
            "x.tsv, line 3 must be UTF-8, got .* at byte 2; save the file as UTF-8",
        ),
        (
            "x.tsv",
            "a\tb\n".encode("utf-16"),
            "x.tsv, line 1 must be UTF-8, got a zero byte, as in UTF-16, at byte 3; save the file",
        ),
        (
            "x.tsv",
            "a\tb\n".encode("utf-16-be"),
            "x.tsv, line 1 must be UTF-8, got a zero byte, as in UTF-16, at byte 0; save the file",
        ),
        ("x.tsv", b"", "x.tsv: the file is empty"),
        ("x.tsv", b"\n\n", "x.tsv must have at least one pair of sentences, got none"),
        ("x.tsv.gz", gzip.compress(b"a\tb\n" * 1000)[:-20], "x.tsv.gz: not a whole .gz file"),
        (
            "x.tsv.gz",
            gzip.compress(b"a\tb\n" + bytes(10**8)),
            "line 2 must have at most 10,000,000 b",
        ),
    ],
    ids=[
        "one column",
        "not UTF-8",
        "UTF-16",
        "UTF-16, big-endian",
        "empty",
        "no pairs",
        "cut",
        "long",
    ],
)
def test_read_pairs_of_damaged_file_names_the_line(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read_pairs(tmp_path / name)


def test_read_pairs_names_all_bad_lines_or_skips_them(tmp_path: Path) -> None:
    lines = [b"one\teins", b"two", b"", b"three\t\xff", b"four\tvier", b"five"]
    path, left_out = tmp_path / "a.tsv", Counter[str]()
    path.write_bytes(b"\n".join(lines))
    message = (
        f"^{path}, lines 2, 6 must have 2 columns separated by tabs, got 1; {path}, line 4 must be "
        "UTF-8, got .* at byte 6; save the file as UTF-8; correct the lines, or leave them out with "
        "skip_bad=True"
    )
    with pytest.raises(ValueError, match=message):
        read_pairs(path)
    pairs = [("one", "eins"), ("four", "vier")]
    assert read_pairs(path, left_out=left_out, skip_bad=True) == pairs
    assert +left_out == {"that are bad": 3}
    read_pairs(path, left_out=left_out, skip_bad=True)  # of several files
    assert +left_out == {"that are bad": 6}
    path.write_bytes(b"two\nfive\n")
    with pytest.raises(ValueError, match=f"^{path}, lines 1, 2 must have 2 columns"):
        read_pairs(path, skip_bad=True)  # all of them


def test_read_pairs_of_parallel_files_skips_bad_lines_of_both(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"one\ntw\xff\nthree\nfour")
    b.write_bytes(b"eins\nzwei\n\xff\nvier")
    with pytest.raises(ValueError, match=f"{a}, line 2 must be UTF-8, .*; {b}, line 3 must be UTF"):
        read_pairs(a, b)
    assert read_pairs(a, b, skip_bad=True) == [("one", "eins"), ("four", "vier")]


def test_split_pairs_of_too_few_pairs_raises() -> None:
    pairs = [(f"s{i // 3}", f"t{i}") for i in range(300)]
    with pytest.raises(ValueError, match="pairs must be more than the 500 to hold out, got 300"):
        split_pairs(pairs, 500)


# -- batches -----------------------------------------------------------------------------------------


def test_pair_batches_with_encode_draw_anew_in_each_epoch() -> None:
    pairs = [(range(i, i + 5), [i]) for i in range(2000)]
    encode = lambda pair, generator: (generator.permutation(pair[0]), pair[1])
    batches = PairBatches(pairs, 50, shuffle=False, seed=3, encode=encode)

    def rows(epoch: int, start: int = 0) -> list[Any]:
        return [a.tolist() for a, _ in batches.epoch(epoch, start)]

    second, third = rows(2), rows(3)
    assert rows(2, start=130) == second[130:]
    assert sum(a == b for a, b in zip(second, third, strict=True)) == 0
    with pytest.raises(ValueError, match="max_tokens must be at least 5, .* got 4"):
        list(PairBatches(pairs, 4, encode=encode).epoch())


def test_pair_batches_with_encode_of_no_ids_raises() -> None:
    with pytest.raises(ValueError, match="PairBatches: both sides of pair 1 must have at least"):
        PairBatches("abc", encode=lambda text, generator: ([], []) if text == "b" else ([4], [4]))
    encode = lambda pair, generator: pair
    for shuffle in (False, True):
        batches = PairBatches([([1], [2])] * 1001 + [([1], [])], shuffle=shuffle, encode=encode)
        with pytest.raises(ValueError, match="PairBatches: both sides of pair 1001 must have at"):
            list(batches.epoch())


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
    for encode in (None, lambda pair, generator: pair):  # as long as a batch
        assert len([*PairBatches([([1] * 8, [1])], 8, encode=encode).epoch()]) == 1
