"""Tokenizers without tokenizer.json: steps and special tokens by class and by settings, from tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import nn
from nn.text import legacy_tokenizers

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>"]
PIECES = [
    *MARKS,
    "the",
    "The",
    "cafe",
    "café",
    "Cafe",
    "中",
    "中国",
    "##国",
    "##s",
    ",",
]
END = "<|endoftext|>"
G = "\u0120"  # a space in byte-level tokenizers
MERGES = [
    "t h",
    "th e",
    f"{G} the",
    "1 2",
    "e \u00cc",
    "e\u00cc \u0123",
    "\u00c3 \u00a9",
    "' S",
]  # the last ones: e and an accent


def write(path: Path, kind: str, settings: dict[str, Any], **files: Any) -> Any:
    """Write the files of a tokenizer of word pieces or pairs of tokens, and load it."""
    path.mkdir(exist_ok=True)
    for old in path.iterdir():
        old.unlink()
    if kind == "pieces":
        (path / "vocab.txt").write_text("\n".join(PIECES), encoding="utf-8")
    else:
        letters = [G, *"thecas12M\u00cc\u0123\u00c3\u00a9\u010a'S"]
        joined = [merge.replace(" ", "") for merge in MERGES]
        words = [END, "<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|padding|>", *letters, *joined]
        (path / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
        (path / "merges.txt").write_text("\n".join(MERGES))
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    for name, data in files.items():
        (path / f"{name}.json").write_text(json.dumps(data))
    return nn.text.load(path)


def tokens(text: Any, string: str, **options: Any) -> str:
    return " ".join(text.tokens(text.encode(string, **options)))


@pytest.mark.parametrize(
    ("settings", "string", "expected"),
    [
        ({}, "The Café 中国, cafes", "the cafe 中 [UNK] , cafe ##s"),
        ({"do_lower_case": True}, "The Café", "the cafe"),
        ({"do_lower_case": False}, "The Café café", "The [UNK] café"),
        ({"do_lower_case": None}, "The", "the"),
        ({"strip_accents": False}, "Café", "café"),
        ({"strip_accents": True, "do_lower_case": False}, "Café The", "Cafe The"),
        ({"tokenize_chinese_chars": False}, "中国 中", "中国 中"),
        ({"unk_token": "the"}, "zzz", "the"),
    ],
)
def test_word_pieces_are_normalized_as_the_settings_say(
    tmp_path: Path, settings: dict[str, Any], string: str, expected: str
) -> None:
    text = write(tmp_path, "pieces", {"tokenizer_class": "BertTokenizer", **settings})
    assert tokens(text, string, special=False) == expected


BERT, ROBERTA = (
    "[CLS] {} [SEP]#[CLS] {} [SEP] {} [SEP]#0 0 0 1 1",
    "<s> {} </s>#<s> {} </s> </s> {} </s>#0 0 0 0 0 0",
)
CLASSES: list[tuple[str, str, dict[str, Any], str]] = [
    *(("pieces", f"{name}Tokenizer", {}, BERT) for name in (
        "Bert", "DistilBert", "Electra", "MobileBert", "ConvBert", "LayoutLM", "Lxmert", "RetriBert", "SqueezeBert")),
    ("pieces", "BertTokenizerFast", {"cls_token": "<s>", "sep_token": "</s>"}, "<s> {} </s>#<s> {} </s> {} </s>#0 0 0 1 1"),
    ("pieces", "MPNetTokenizer", {}, ROBERTA),
    *(("pairs", f"{name}Tokenizer", {}, ROBERTA) for name in ("Roberta", "Bart", "LED", "Longformer")),
    ("pairs", "HerbertTokenizer", {}, "<s> {} </s>#<s> {} </s> {} </s>#0 0 0 1 1"),
    ("pairs", "GPT2Tokenizer", {}, "{}#{} {}#0 1"),
    ("pairs", "GPT2Tokenizer", {"add_bos_token": True}, f"{END} {{}}#{END} {{}} {END} {{}}#0 0 1 1"),
    ("pairs", "GPT2Tokenizer", {"add_eos_token": True, "add_bos_token": False}, f"{{}} {END}#{{}} {END} {{}} {END}#0 0 1 1"),
    ("pairs", "GPT2Tokenizer", {"add_bos_token": True, "add_eos_token": True, "eos_token": "</s>"},
     f"{END} {{}} </s>#{END} {{}} </s> {END} {{}} </s>#0 0 0 1 1 1"),
    ("pairs", "GPTNeoXTokenizer", {}, "{}#{} {}#0 1"),
    ("pairs", "Qwen2Tokenizer", {"add_bos_token": True}, "{}#{} {}#0 1"),
]  # fmt: skip
"""Files, classes, settings, what is around a text and a pair of texts, and the types of a pair."""


@pytest.mark.parametrize(("kind", "name", "settings", "expected"), CLASSES)
def test_special_tokens_around_texts_are_those_of_the_class(
    tmp_path: Path, kind: str, name: str, settings: dict[str, Any], expected: str
) -> None:
    """A token that the class adds, but that nothing names, is left out."""
    text = write(tmp_path, kind, {"tokenizer_class": name, **settings})
    string, word = ("a", "<unk>") if name.startswith("Herbert") else ("the", "the")
    single, pair, types = expected.split("#")
    assert tokens(text, string) == single.format(word)
    ids, _, found = text.batch([string], [string])
    assert " ".join(text.tokens(ids[0])) == pair.format(word, word)
    assert " ".join(map(str, found[0].tolist())) == types


@pytest.mark.parametrize(
    ("settings", "unknown"), [({}, "<unk>"), ({"unk_token": "<pad>"}, "<pad>")]
)
def test_unknown_words_of_herbert_are_the_token_of_the_settings(
    tmp_path: Path, settings: dict[str, Any], unknown: str
) -> None:
    text = write(tmp_path, "pairs", {"tokenizer_class": "HerbertTokenizer", **settings})
    assert tokens(text, "zz", special=False).split() == [unknown] * 2


@pytest.mark.parametrize(
    ("name", "settings", "string", "expected"),
    [
        ("GPT2Tokenizer", {}, "the the12", f"the {G}the 12"),
        ("GPT2Tokenizer", {"add_prefix_space": True}, "the the", f"{G}the {G}the"),
        ("RobertaTokenizer", {"add_prefix_space": True}, "the", f"{G}the"),
        ("GPT2Tokenizer", {}, "the\u0301", "the \u00cc \u0123"),
        ("GPTNeoXTokenizer", {}, "e\u0301", "\u00c3\u00a9"),  # in the composed form
        ("Qwen2Tokenizer", {}, "e\u0301", "\u00c3\u00a9"),
        ("GPTNeoXTokenizer", {}, "12", "12"),
        ("Qwen2Tokenizer", {}, "12", "1 2"),  # each digit alone
        ("GPT2Tokenizer", {}, "t'S", "t ' S"),
        ("Qwen2Tokenizer", {}, "t'S", "t 'S"),
    ],
)
def test_byte_level_tokenizers_split_by_the_rules_of_the_class(
    tmp_path: Path, name: str, settings: dict[str, Any], string: str, expected: str
) -> None:
    text = write(tmp_path, "pairs", {"tokenizer_class": name, **settings})
    ids = text.encode(string, special=False)
    assert " ".join(text.tokens(ids)) == expected
    assert (
        text.decode(ids).strip() == expected.replace(" ", "").replace(G, " ").strip()
        or "\u0301" in string
    )


@pytest.mark.parametrize(
    ("kind", "name", "settings", "ids"),
    [
        ("pieces", "BertTokenizer", {}, (None, None, 0)),
        ("pieces", "MPNetTokenizer", {}, (5, 6, 7)),
        ("pieces", "BertTokenizer", {"pad_token": "[MASK]", "eos_token": "[SEP]"}, (None, 3, 4)),
        ("pairs", "GPT2Tokenizer", {}, (0, 0, None)),
        ("pairs", "GPT2Tokenizer", {"eos_token": "</s>", "bos_token": None}, (0, 3, None)),
        ("pairs", "GPTNeoXTokenizer", {}, (0, 0, 6)),
        ("pairs", "Qwen2Tokenizer", {}, (None, 0, 0)),
        ("pairs", "RobertaTokenizer", {}, (1, 3, 2)),
        ("pairs", "HerbertTokenizer", {}, (None, None, 2)),
    ],
)
def test_special_tokens_without_settings_are_those_of_the_class(
    tmp_path: Path, kind: str, name: str, settings: dict[str, Any], ids: tuple[Any, ...]
) -> None:
    text = write(tmp_path, kind, {"tokenizer_class": name, **settings})
    assert (text.bos_id, text.eos_id, text.pad_id) == ids


@pytest.mark.parametrize(
    ("settings", "config", "is_cased"),
    [
        ({"tokenizer_class": "BertTokenizer"}, {"model_type": "gpt2"}, False),
        ({"tokenizer_class": "BertTokenizerFast"}, {"tokenizer_class": "GPT2Tokenizer"}, False),
        ({}, {"model_type": "gpt2", "tokenizer_class": "ElectraTokenizer"}, False),
        ({}, {"model_type": "distilbert"}, False),
        ({"do_lower_case": False}, {"model_type": "mpnet"}, True),
    ],
)
def test_class_of_a_tokenizer_is_that_of_its_settings_or_of_the_model(
    tmp_path: Path, settings: dict[str, Any], config: dict[str, Any], is_cased: bool
) -> None:
    text = write(tmp_path, "pieces", settings, config=config)
    assert tokens(text, "The", special=False) == ("The" if is_cased else "the")


@pytest.mark.parametrize("is_special", [False, True, None])
@pytest.mark.parametrize("left", [False, True, None])
@pytest.mark.parametrize("right", [False, True, None])
def test_added_tokens_take_the_spaces_that_their_flags_say(
    tmp_path: Path, is_special: bool | None, left: bool | None, right: bool | None
) -> None:
    token = {"content": "[A]", "special": is_special, "lstrip": left, "rstrip": right}
    count = 7 + 17 + len(MERGES)
    settings = {"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {str(count): token}}
    text = write(tmp_path, "pairs", settings)
    before, after = ("" if left else f"{G} "), ("" if right else f"{G}")
    found = tokens(text, "t [A] the")
    assert found == f"t {before}[A] {after}the"
    assert text.decode(text.encode("t[A]t")) == ("tt" if is_special else "t[A]t")


def test_added_tokens_are_ordered_by_number(tmp_path: Path) -> None:
    words = [END, *"abcdefgh"]
    tokens = {str(i): {"content": f"[{i}]", "special": False} for i in (10, 9, 11)}
    (tmp_path / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (tmp_path / "merges.txt").write_text("")
    settings = {
        "tokenizer_class": "GPT2Tokenizer",
        "eos_token": "[9]",
        "added_tokens_decoder": tokens,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    text = nn.text.load(tmp_path)
    assert text.encode("a[10][9]b[11]") == [1, 10, 9, 2, 11]
    assert text.decode([1, 10, 9, 2]) == "a[10]b"  # a named token is special


def test_added_tokens_keep_their_spaces(tmp_path: Path) -> None:
    """Tokens of several spaces are common in vocabularies for code."""
    entries = {str(len(PIECES) + i): {"content": x} for i, x in enumerate((" t ", "  "))}
    settings = {"tokenizer_class": "BertTokenizer", "added_tokens_decoder": entries}
    text = write(tmp_path, "pieces", settings)
    assert text.tokens(text.encode("the t the  the", special=False)) == [
        "the",
        " t ",
        "the",
        "  ",
        "the",
    ]


@pytest.mark.parametrize("alone", [None, False, True])
def test_added_token_of_a_single_word_is_not_found_inside_words(
    tmp_path: Path, alone: bool | None
) -> None:
    token = {"content": "cafe", "normalized": False} | (
        {} if alone is None else {"single_word": alone}
    )
    settings = {
        "tokenizer_class": "BertTokenizer",
        "added_tokens_decoder": {str(len(PIECES)): token | {"content": "xyz"}},
    }
    text = write(tmp_path, "pieces", settings)
    assert text.id("xyz") in text.encode("the xyz")
    assert (text.id("xyz") in text.encode("axyzb")) == (not alone)


@pytest.mark.parametrize("i", [0, 3, len(PIECES) - 1, len(PIECES) + 1])
def test_added_token_with_another_id_raises(tmp_path: Path, i: int) -> None:
    settings = {
        "tokenizer_class": "BertTokenizer",
        "added_tokens_decoder": {str(i): {"content": "[X]"}},
    }
    with pytest.raises(ValueError, match=rf"\[X\] must be {len(PIECES)}, its id after .*, got {i}"):
        write(tmp_path, "pieces", settings)


@pytest.mark.parametrize("bos", [None, False, True])
@pytest.mark.parametrize("eos", [None, False, True])
def test_special_tokens_around_texts_are_those_that_the_settings_add(
    tmp_path: Path, bos: bool | None, eos: bool | None
) -> None:
    flags = {"add_bos_token": bos, "add_eos_token": eos}
    settings = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "eos_token": "</s>"}
    settings |= {name: flag for name, flag in flags.items() if flag is not None}
    text = write(tmp_path, "pairs", settings)
    expected = ["<s>"] * bool(bos) + ["the"] + ["</s>"] * bool(eos)
    assert text.tokens(text.encode("the")) == expected
    assert text.tokens(text.encode("the", "the")) == 2 * expected


@pytest.mark.parametrize("name", ["pad_token", "eos_token", "bos_token"])
def test_special_token_that_the_vocabulary_lacks_raises(tmp_path: Path, name: str) -> None:
    """Adding it would be a token that the model does not have."""
    for value in ("<odd>", {"content": "<odd>", "lstrip": True}):
        settings = {"tokenizer_class": "GPT2Tokenizer", name: value}
        with pytest.raises(ValueError, match=f"{name} must be a token of the vocabulary, got"):
            write(tmp_path, "pairs", settings)


FILES = {
    "special_tokens_map", "added_tokens", "chat_template.jinja", "vocab.txt", "merges.txt", "source.spm", "target.spm",
    "target_vocab", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model",
}  # fmt: skip


def test_files_of_a_tokenizer_are_saved_again(tmp_path: Path) -> None:
    files = {
        "additional_chat_templates/a.jinja",
        *(name if "." in name else f"{name}.json" for name in FILES),
    }
    write(tmp_path / "a", "pairs", {"tokenizer_class": "GPT2Tokenizer"})
    (tmp_path / "a/additional_chat_templates").mkdir()
    for name in files - {"merges.txt"}:
        (tmp_path / "a" / name).write_text("{}")
    nn.text.load(tmp_path / "a").save(tmp_path / "b")
    copies = {p.relative_to(tmp_path / "b").as_posix() for p in (tmp_path / "b").rglob("*.*")}
    assert copies == files | {"vocab.json", "tokenizer_config.json"}


def test_special_tokens_are_found_before_the_text_is_normalized(tmp_path: Path) -> None:
    token = {"content": "[X]", "special": True}
    settings = {
        "tokenizer_class": "BertTokenizer",
        "added_tokens_decoder": {str(len(PIECES)): token},
    }
    text = write(tmp_path, "pieces", settings)
    assert text.encode("The [X]", special=False) == [text.id("the"), len(PIECES)]
    assert len(PIECES) not in text.encode("[x]")
    token |= {"content": "[x]", "special": False}
    text = write(tmp_path, "pieces", settings)
    assert text.encode("The [X]", special=False) == [text.id("the"), len(PIECES)]


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("MPNetTokenizer", {}, True),
        ("MPNetTokenizer", {"mask_token": {"content": "<mask>", "lstrip": False}}, False),
        ("MPNetTokenizer", {"mask_token": {"content": "<mask>", "lstrip": True}}, True),
        ("BertTokenizer", {"mask_token": "<mask>"}, False),
        ("BertTokenizer", {"mask_token": {"content": "<mask>", "lstrip": True}}, True),
    ],
)
def test_mask_includes_the_space_before_it(
    tmp_path: Path, name: str, settings: dict[str, Any], expected: bool
) -> None:
    text = write(tmp_path, "pieces", {"tokenizer_class": name, **settings})
    encoding = text.tokenizer.encode("the <mask>", add_special_tokens=False)
    start, _ = encoding.offsets[encoding.ids.index(text.id("<mask>"))]
    assert start == (3 if expected else 4)


@pytest.mark.parametrize(
    ("first", "second", "pad_id"),
    [
        ({"pad_token": "[PAD]"}, {"pad_token": "[MASK]"}, 0),
        ({"pad_token": None}, {"pad_token": "[MASK]"}, 0),
        ({}, {"pad_token": "[MASK]"}, 4),
        ({}, {"pad_token": {"content": "[MASK]"}}, 4),
        ({}, {}, 0),
    ],
)
def test_settings_of_a_tokenizer_count_before_its_map_of_special_tokens(
    tmp_path: Path, first: Any, second: Any, pad_id: int
) -> None:
    settings = {"tokenizer_class": "BertTokenizer", **first}
    text = write(tmp_path, "pieces", settings, special_tokens_map=second)
    assert text.pad_id == pad_id


@pytest.mark.parametrize("key", ["additional_special_tokens", "extra_special_tokens"])
@pytest.mark.parametrize(
    "entry", [["the"], [{"content": "the"}], {"name": "the"}, {"name": {"content": "the"}}]
)
def test_more_special_tokens_are_lists_or_objects(tmp_path: Path, key: str, entry: Any) -> None:
    """Leave them out of decoded text, and add them if the vocabulary lacks them."""
    text = write(tmp_path, "pieces", {"tokenizer_class": "BertTokenizer", key: entry})
    assert text.decode(text.encode("the cafe")) == "cafe"
    lacking = json.loads(json.dumps(entry).replace('"the"', '"[Z]"'))
    text = write(tmp_path, "pieces", {"tokenizer_class": "BertTokenizer", key: lacking})
    assert text.id("[Z]") == len(PIECES) and text.decode([len(PIECES)]) == ""
    for wrong in ([5], {"name": 5}, [{}]):
        with pytest.raises(ValueError, match=f"{key} must be a list of tokens"):
            write(tmp_path, "pieces", {"tokenizer_class": "BertTokenizer", key: wrong})


def marian(path: Path, monkeypatch: pytest.MonkeyPatch, **files: Any) -> Any:
    """Load a Marian whose SentencePiece model marks spaces and splits letters."""
    split = lambda text, out_type: (
        [*("\u2581" + text.strip().replace(" ", "\u2581"))] if text else []
    )
    monkeypatch.setattr(legacy_tokenizers, "_model_in", lambda path: SimpleNamespace(encode=split))
    words = ["</s>", "<unk>", "\u2581", "c", "a", "t", ">>fra<<", "\u2581chat", "<pad>"]
    files = {"vocab": words, "config": {"model_type": "marian"}} | files
    for name, data in files.items():
        data = {word: i for i, word in enumerate(data)} if isinstance(data, list) else data
        (path / f"{name}.json").write_text(json.dumps(data))
    (path / "source.spm").write_bytes(b"")
    return nn.text.load(path)


def test_marian_has_the_ids_of_its_vocabulary_around_its_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = marian(tmp_path, monkeypatch)
    assert (text.bos_id, text.eos_id, text.pad_id) == (None, 0, 8)
    assert text.encode("ca t") == [2, 3, 4, 2, 5, 0] and text.encode("") == [0]
    assert text.encode(">>fra<< cab", max_len=5) == [6, 2, 3, 4, 0]
    assert text.encode("cab\n>>fra<<")[:4] == [2, 3, 4, 1]  # a code at the beginning alone
    assert text.encode(">>fra<< c<<") == [6, 2, 3, 1, 1, 0]  # which ends at the first mark
    assert text.encode("c", "a") == [2, 3, 2, 4, 0]
    assert text.decode([7, 2, 3, 0, 8]) == "chat c" and text.decode([2, 7, 2]) == "chat"
    settings = {"add_bos_token": True, "add_eos_token": False}  # which others have
    assert marian(tmp_path, monkeypatch, tokenizer_config=settings).encode("ca t")[-1] == 0


def test_marian_with_two_vocabularies_decodes_with_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = ["</s>", "<unk>", "<pad>", "\u2581le"]
    for separate in (False, None, True):
        settings = {"separate_vocabs": separate}
        text = marian(tmp_path, monkeypatch, tokenizer_config=settings, target_vocab=target)
        assert text.decode([3]) == ("le" if separate else "c")
        assert text.encode("c") == [2, 3, 0]


@pytest.mark.parametrize(
    "vocab",
    [["</s>", "<unk>", "a"], {"</s>": 0, "<unk>": 1, "<pad>": 3}, {"</s>": 0, "<unk>": 1, "<pad>": 1},
     {"</s>": 0, "<unk>": 2, "<pad>": 2}],
    ids=["no padding", "a gap", "an id twice", "a gap and an id twice"],
)  # fmt: skip
def test_marian_with_other_ids_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vocab: Any
) -> None:
    with pytest.raises(ValueError, match="vocab.json: ids must be 0 to 2, and tokens include"):
        marian(tmp_path, monkeypatch, vocab=vocab)


@pytest.mark.parametrize(
    ("bytes_from", "message"),
    [(4, ""), (3, "pieces for bytes are not supported"), (None, "not a SentencePiece model")],
)
def test_sentencepiece_models_with_pieces_for_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_from: int | None, message: str
) -> None:
    def read(model_proto: bytes) -> Any:
        assert model_proto == b"model"
        if bytes_from is None:
            raise RuntimeError("no model")
        return SimpleNamespace(
            encode=lambda text: [text], get_piece_size=lambda: 4, is_byte=lambda i: i >= bytes_from
        )

    monkeypatch.setitem(sys.modules, "sentencepiece", SimpleNamespace(SentencePieceProcessor=read))
    path = tmp_path / "source.spm"
    path.write_bytes(b"model")
    if message:
        with pytest.raises(ValueError, match=f"^{path}: {message}"):
            legacy_tokenizers._model_in(path)
    else:
        assert legacy_tokenizers._model_in(path).encode("a") == ["a"]
