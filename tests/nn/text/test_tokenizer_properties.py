"""Tokenizers, vocabularies and files of pairs with drawn text, against naive definitions."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from support.edges import encodable
from support.environment import max_examples

from nn.text.pairs import read_pairs, split_pairs
from nn.text.tokenize import (
    BPETokenizer,
    CharTokenizer,
    SpaceTokenizer,
    WordTokenizer,
    tokenizer_named,
)
from nn.text.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

texts = st.text(
    st.one_of(st.sampled_from("abA \t_'’\"-/.,()“”$3é\u0301猫は▁￭@:،न\u094d"), encodable),
    max_size=30,
)


@max_examples(50)
@given(texts, st.sampled_from([WordTokenizer, CharTokenizer, SpaceTokenizer]), st.booleans())
@example("a￭b ▁ ￭ c▁￭", WordTokenizer, False)  # the marks of tokenizers
def test_join_of_tokens_of_any_text_is_the_text(text: str, kind: Any, lowercase: bool) -> None:
    tokenizer = kind(lowercase=lowercase)
    normal = text.lower() if lowercase else text
    tokens = tokenizer(text)
    assert tokenizer.join(tokens) == " ".join(normal.split())
    assert all(token and token.split() == [token] for token in tokens)
    assert tokenizer_named(**json.loads(json.dumps(tokenizer.to_dict())))(text) == tokens


@given(texts, st.booleans())
@example("a<bos><bos> x<unk>y <unk><unk>b", True)  # pieces with the names of special tokens
def test_bpe_joins_any_text_from_its_tokens(text: str, whole_words: bool) -> None:
    bpe = bpe_of_names(whole_words)
    assert bpe.join(bpe(text)).split() == text.split()
    vocabulary = Vocabulary([*SPECIALS, *bpe.pieces])
    ids = vocabulary.encode(bpe(text))
    assert UNK not in ids and bpe.join(vocabulary.decode(ids)).split() == text.split()


@cache
def bpe_of_names(whole_words: bool) -> BPETokenizer:
    """Return a tokenizer that learned the names of special tokens as pieces."""
    lines = ["x<unk>y<unk> <pad>it<eos>", "a<bos><bos>"] * 30
    return BPETokenizer.train(lines, vocab_size=330, whole_words=whole_words)


words = st.sampled_from(["a", "b", "c", "dog", "é", "猫", "<unk>", "<eos>"])
sentences = st.lists(st.lists(words, max_size=6), max_size=6)


@given(sentences)
def test_vocabulary_holds_the_most_frequent_tokens(sentences: list[list[str]]) -> None:
    """`max_size` counts the special tokens, `min_count` all occurrences."""
    counts = Counter(t for sentence in sentences for t in sentence if t not in SPECIALS)
    ranked = sorted(sorted(counts), key=counts.__getitem__, reverse=True)
    for min_count, max_size in itertools.product(range(4), [None, *range(12)]):
        vocabulary = Vocabulary.build(iter(sentences), min_count, max_size)
        expected = [*SPECIALS, *(t for t in ranked if counts[t] >= min_count)]
        assert vocabulary.tokens == expected[: None if max_size is None else max(4, max_size)]
    assert Vocabulary(vocabulary.tokens) == vocabulary
    assert hash(Vocabulary(vocabulary.tokens)) == hash(vocabulary)


@given(sentences, st.lists(words, max_size=6), st.booleans(), st.booleans(), st.integers(0, 3))
def test_vocabulary_decodes_what_it_encodes(
    sentences: list[list[str]], tokens: list[str], bos: bool, eos: bool, padding: int
) -> None:
    vocabulary = Vocabulary.build(sentences)
    ids = vocabulary.encode(iter(tokens), bos=bos, eos=eos)
    assert (len(vocabulary) == len([*vocabulary]) and ids[:1] == [BOS]) or not bos
    assert ids[-1:] == [EOS] or not eos
    is_word = [token in vocabulary and token not in SPECIALS for token in tokens]
    for token, i, known in zip(tokens, ids[bos:], is_word):
        assert i == (vocabulary.tokens.index(token) if known else UNK)
    expected = [token if known else "<unk>" for token, known in zip(tokens, is_word)]
    assert vocabulary.decode([*ids, *[PAD] * padding]) == expected


sides = st.text(st.sampled_from('ab é猫.,"'), min_size=1, max_size=8).map(str.strip).filter(bool)
pairs = st.lists(st.tuples(sides, sides), min_size=1, max_size=8)


@given(
    pairs=pairs,
    in_one_file=st.booleans(),
    compressed=st.booleans(),
    reverse=st.booleans(),
    keep_repeated=st.booleans(),
    newline=st.sampled_from(["\n", "\r\n"]),
    at_end=st.booleans(),
    empty=st.sets(st.integers(0, 8), max_size=2),
)
def test_pairs_that_were_written_are_read(
    pairs: list[tuple[str, str]],
    in_one_file: bool,
    compressed: bool,
    reverse: bool,
    keep_repeated: bool,
    newline: str,
    at_end: bool,
    empty: set[int],
) -> None:
    rows = [*pairs]
    for i in sorted(empty):
        rows.insert(i, ("", "left out"))
    columns = (
        [["\t".join(row) for row in rows]]
        if in_one_file
        else [[a for a, _ in rows], [b for _, b in rows]]
    )
    with TemporaryDirectory() as directory:
        files = []
        for number, lines in enumerate(columns):
            data = (newline.join(lines) + newline * (at_end or "" in rows[-1])).encode()
            assume(data)
            files.append(Path(directory) / (f"{number}.gz" if compressed else str(number)))
            files[-1].write_bytes(gzip.compress(data) if compressed else data)
        left_out: Counter[str] = Counter()
        found = read_pairs(*files, reverse=reverse, keep_repeated=keep_repeated, left_out=left_out)
    expected = [(b, a) if reverse else (a, b) for a, b in pairs]
    distinct = [pair for i, pair in enumerate(expected) if pair not in expected[:i]]
    assert found == (expected if keep_repeated else distinct)
    assert left_out["with an empty side"] == len(empty)
    assert left_out["repeated"] == (0 if keep_repeated else len(expected) - len(distinct))


@max_examples(100)
@given(
    pairs=st.lists(st.tuples(st.sampled_from("abcdefgh"), sides), min_size=1, max_size=20),
    sizes=st.lists(st.integers(0, 6), max_size=3),
    seed=st.integers(0, 99),
)
def test_split_pairs_have_no_source_in_common(
    pairs: list[tuple[str, str]], sizes: list[int], seed: int
) -> None:
    most = max(Counter(source for source, _ in pairs).values())
    if len(pairs) < sum(sizes) + most * len(sizes) + 1:
        return  # there may be nothing left for the last part
    parts = split_pairs(pairs, *sizes, seed=seed)
    assert sorted(pair for part in parts for pair in part) == sorted(pairs)
    sources = [{source for source, _ in part} for part in parts]
    assert sum(map(len, sources)) == len(set.union(*sources))
    for part, size in zip(parts, sizes):
        assert size <= len(part) < size + most
    assert parts == split_pairs(pairs, *sizes, seed=seed)


# -- byte-pair encoding ----------------------------------------------------------------------------


def pieces_by_definition(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """Sennrich, Haddow, Birch (2016): apply the merges one after another, everywhere in a word."""
    pieces = [*word]
    for a, b in merges:
        i = 0
        while i < len(pieces) - 1:
            if (pieces[i], pieces[i + 1]) == (a, b):
                pieces[i : i + 2] = [a + b]
            i += 1
    return pieces


corpora = st.lists(
    st.text(st.sampled_from("aab c1.é猫 "), min_size=1, max_size=12), min_size=1, max_size=6
)


@given(corpora, st.integers(256, 280), texts, st.booleans(), st.booleans())
def test_bpe_tokenizer_equals_its_merges_in_each_word(
    corpus: list[str], vocab_size: int, text: str, whole_words: bool, lowercase: bool
) -> None:
    bpe = BPETokenizer.train(corpus * 3, vocab_size, lowercase=lowercase, whole_words=whole_words)
    merges = [(a, b) for a, b in json.loads(bpe.model)["model"]["merges"]]
    assert len(bpe.pieces) <= max(vocab_size, 256)
    for string in (*corpus, text):
        pieces = [p for word in bpe.words(string) for p in pieces_by_definition(word, merges)]
        assert bpe(string) == pieces
        assert not {*pieces} - {*bpe.pieces}
        normal = string.lower() if lowercase else string
        if whole_words:  # parts of white space are not kept
            assert "".join(bpe.join(pieces).split()) == "".join(normal.split())
        else:
            assert bpe.join(pieces) == normal.strip()
    again = tokenizer_named(**json.loads(json.dumps(bpe.to_dict())))
    assert again(text) == bpe(text)


@pytest.mark.parametrize("lowercase", [False, True])
@given(data=st.data())
def test_wordpiece_tokenizer_takes_the_longest_pieces(lowercase: bool, data: st.DataObject) -> None:
    """Wu et al. (2016), and BERT's tokenizer: a word without such pieces is unknown."""
    from nn.text import load

    stems = st.text("ab", min_size=1, max_size=3)
    pieces = data.draw(st.sets(stems | stems.map("##".__add__), max_size=12), "pieces")
    text = data.draw(
        st.lists(st.text("abA", min_size=1, max_size=7), max_size=5).map(" ".join), "text"
    )
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(pieces)]
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
        (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
        (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}))
        tokenizer = load(folder)
        found = tokenizer.tokens(tokenizer.encode(text, special=False))
    expected: list[str] = []
    for word in (text.lower() if lowercase else text).split():
        rest, of_word = word, []
        while rest:
            prefix = "##" if of_word else ""
            fitting = [n for n in range(len(rest), 0, -1) if prefix + rest[:n] in pieces]
            if not fitting:
                of_word = ["[UNK]"]
                break
            of_word.append(prefix + rest[: fitting[0]])
            rest = rest[fitting[0] :]
        expected += of_word
    assert found == expected
