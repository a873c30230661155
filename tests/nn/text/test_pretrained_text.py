"""Tokenizers of published models, from files made here."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nn
from minigrad.core.errors import MissingExtraError

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")
WORDS = [
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[UNK]",
    "the",
    "cat",
    "sat",
    "##s",
    "mat",
    "on",
    ".",
    "eng_Latn",
    "fra_Latn",
]


def bert(path: Path) -> Path:
    """Write a tokenizer like MiniLM's, whose file truncates and pads to 8 tokens."""
    path.mkdir(exist_ok=True)
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    tokenizer.add_special_tokens(WORDS[:3])
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(
        json.dumps({"pad_token": {"content": "[PAD]"}, "model_max_length": 1e30})
    )
    (path / "special_tokens_map.json").write_text(
        json.dumps({"eos_token": "[SEP]", "pad_token": "[UNK]"})
    )
    return path


def bpe(path: Path, **settings: Any) -> Path:
    """Write a tokenizer of bytes like GPT-2's."""
    path.mkdir(exist_ok=True)
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    corpus = ["the cat sat on the mat. a naïve café, 漢字 🙂"] * 3
    special = ["<s>", "</s>"]
    tokenizer.train_from_iterator(corpus, 300, show_progress=False, special_tokens=special)
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", **settings}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def test_model_text_encodes_and_decodes(tmp_path: Path) -> None:
    text = nn.text.load(bert(tmp_path))
    assert (text.pad_id, text.bos_id, text.eos_id, text.max_len) == (0, None, 2, None)
    assert len(text) == len(WORDS)
    long = "The cats sat on the mat on the mat."  # the file cuts at 8 tokens
    assert text.encode(long) == [1, 4, 5, 7, 6, 9, 4, 8, 9, 4, 8, 10, 2]
    assert text.encode(["the", long], max_len=5) == [[1, 4, 2], [1, 4, 5, 7, 2]]
    assert len(text.encode(long)) == 13
    assert text.encode("the cat", special=False) == [4, 5]
    assert text.encode("the", "cat") == [1, 4, 2, 5, 2]
    assert text.decode([1, 4, 5, 7, 2, 0]) == "the cats"
    assert text.decode([[4], [5]]) == ["the", "cat"]
    assert text.decode([1, 4], special=True) == "[CLS] the"
    assert text.tokens([4, 7]) == ["the", "##s"]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["the"], {"max_len": 2}, r"max_len must be greater than the number of special tokens \(2\), got 2"),
        ([["the", "cat"], "ab"], {}, "encode: pair must be a list, as text, got 'ab'"),
        ([["the", "cat"], ["sat"]], {}, r"encode: pair must have as many texts as text \(2\), got 1"),
        (["the"], {"language": "deu_Latn"}, "language must be a token of the vocabulary, got 'deu_Latn'"),
        (["the"], {"language": "cat"}, "language must be a token that the model puts around a text, got 'cat'.*; write one such as '>>fra<<'"),
    ],
)  # fmt: skip
def test_encode_with_bad_arguments_raises(
    tmp_path: Path, arguments: list[Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        nn.text.load(bert(tmp_path)).encode(*arguments, **options)


def test_model_text_batch_returns_padded_ids_and_mask(tmp_path: Path) -> None:
    text = nn.text.load(bert(tmp_path))
    ids, real, types = text.batch(["the", "the cat"], ["mat", "mat"])
    assert ids.tolist() == [[1, 4, 2, 8, 2, 0], [1, 4, 5, 2, 8, 2]]
    assert real.tolist() == [[True] * 5 + [False], [True] * 6]
    assert types.tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]
    assert text.batch("the cat", "mat")[0].tolist() == [[1, 4, 5, 2, 8, 2]]
    left, real, _ = text.batch(["the", "the cat"], pad_left=True)
    assert left.tolist() == [[0, 1, 4, 2], [1, 4, 5, 2]] and not real[0, 0]


def test_model_text_save_copies_the_files(tmp_path: Path) -> None:
    files = bert(tmp_path / "a")
    nn.text.load(files).save(tmp_path / "b")
    contents = [{f.name: f.read_bytes() for f in d.iterdir()} for d in (files, tmp_path / "b")]
    assert contents[0] == contents[1]


def test_load_of_vocab_txt_lowercases_by_its_settings(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\ncat\n##s")
    assert nn.text.load(tmp_path).encode("The cats") == [2, 4, 5, 6, 3]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert nn.text.load(tmp_path).encode("The cats") == [2, 1, 5, 6, 3]


def test_load_of_merges_txt_adds_tokens_in_the_order_of_their_ids(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
    (tmp_path / "merges.txt").write_text("a b\n")
    (tmp_path / "added_tokens.json").write_text('{"[B]": 4, "[A]": 3}')
    assert nn.text.load(tmp_path).encode("ab[B]a[A]") == [2, 4, 0, 3]


def test_stream_yields_complete_characters(tmp_path: Path) -> None:
    text = nn.text.load(bpe(tmp_path))
    said = "the cat. 漢字 🙂 naïve 中文, and on it goes: the mat sat on the cat 🙂🙂."
    pieces = list(text.stream(text.encode(said)))
    assert "".join(pieces) == said and len(pieces) > 20
    assert not any("\ufffd" in piece for piece in pieces)


TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('no such role') }}{% endif %}"
    "{{ bos_token }}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


CHAT = [{"role": "user", "content": "Hi"}]
NAMED = [{"name": "tool_use", "template": "{{ 1 / messages|length }} {{ tools[0].name }}"}]


@pytest.mark.parametrize("place", ["a setting", "a list", "a file"])
def test_chat_with_template_returns_its_text(tmp_path: Path, place: str) -> None:
    pytest.importorskip("jinja2", reason="chat templates need it")
    several = [*NAMED, {"name": "default", "template": TEMPLATE}]
    settings = {"a setting": {"chat_template": TEMPLATE}, "a list": {"chat_template": several}}
    bpe(tmp_path, **settings.get(place, {}))
    if place == "a file":
        (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    text = nn.text.load(tmp_path)
    assert text.chat(CHAT) == "<s>user: Hi</s>\nassistant:"
    assert text.chat(CHAT, reply=False) == "<s>user: Hi</s>\n"
    without = text.chat(CHAT, tokenize=False, add_generation_prompt=False)  # as in transformers
    assert without == "<s>user: Hi</s>\n"


def test_chat_with_several_templates_uses_the_named_one(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="chat templates need it")
    path = bpe(tmp_path, chat_template=[*NAMED, {"name": "default", "template": "plain"}])
    text, tools = nn.text.load(path), [{"name": "f"}]
    assert [text.chat(CHAT), text.chat(CHAT, tools=tools)] == ["plain", "1.0 f"]
    (path / "additional_chat_templates").mkdir()
    (path / "additional_chat_templates/tool_use.jinja").write_text("{{ 1 / tools|length }} anew")
    nn.text.load(path).save(tmp_path / "b")
    again = nn.text.load(tmp_path / "b")
    assert [again.chat(CHAT), again.chat(CHAT, tools=tools)] == ["plain", "1.0 anew"]
    file = "b/additional_chat_templates/tool_use.jinja"
    with pytest.raises(ValueError, match=f"{file}: chat_template: division by zero"):
        again.chat(CHAT, tools=[])


@pytest.mark.parametrize(
    ("template", "messages", "options", "message"),
    [
        (TEMPLATE, [{"role": "bad", "content": ""}], {}, "the chat template refuses: no such role"),
        (TEMPLATE, "the cat", {}, "chat: messages must be dicts such as .*, got 'the cat'"),
        ("{{ 1 / 0 }}", CHAT, {}, "tokenizer_config.json: chat_template: division by zero"),
        (None, CHAT, {}, "tokenizer_config.json: no chat_template: not a model for chats"),
        (NAMED, CHAT, {}, "tokenizer_config.json: no chat_template: no default among tool_use"),
        *[(TEMPLATE, CHAT, {name: "x"}, f"chat: {name} must not be given, since chat returns a text, for encode")
          for name in ("continue_final_message", "tokenize", "return_tensors")],
    ],
)  # fmt: skip
def test_chat_with_bad_arguments_raises(
    tmp_path: Path, template: Any, messages: Any, options: dict[str, Any], message: str
) -> None:
    pytest.importorskip("jinja2", reason="chat templates need it")
    text = nn.text.load(bpe(tmp_path, chat_template=template))
    with pytest.raises((TypeError, ValueError), match=message):
        text.chat(messages, **options)


@pytest.mark.parametrize(
    ("own", "other"), [("eng_Latn", "fra_Latn"), ("en_XX", "fr_XX"), ("__en__", "__ast__")]
)
def test_encode_with_language_uses_its_token(tmp_path: Path, own: str, other: str) -> None:
    """Codes of NLLB, mBART and M2M-100 have two or three letters."""
    tokenizer = tokenizers.Tokenizer.from_file(str(bert(tmp_path) / "tokenizer.json"))
    tokenizer.add_special_tokens([own, other])
    first, second = tokenizer.token_to_id(own), tokenizer.token_to_id(other)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{own} $A [SEP]", special_tokens=[(own, first), ("[SEP]", 2)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = nn.text.load(tmp_path)
    begins = [text.encode("the cat", language=code)[0] for code in (None, own, other)]
    assert begins == [first, first, second]
    written = text.encode(f"the {own} cat", language=other)  # a token of the text stays
    assert written == [second, 4, first, 5, 2]


def test_generate_text_takes_and_returns_strings(tmp_path: Path) -> None:
    text = nn.text.load(bpe(tmp_path, chat_template=TEMPLATE))
    config = nn.LanguageModelConfig(len(text), 16, 4, 2, 32, max_len=40, eos_id=1, dtype="float64")
    model = nn.LanguageModel(config, np.random.default_rng(0)).eval()
    prompts = ["the cat", "on the mat the cat sat"]
    expected = text.decode(nn.generate(model, [text.encode(p) for p in prompts], max_len=6))
    assert nn.generate_text(model, text, prompts, max_len=6) == expected
    assert nn.generate_text(model, text, prompts[0], max_len=6) == expected[0]
    assert "".join(nn.stream_text(model, text, prompts[1], max_len=6)) == expected[1]
    prompt = text.encode(text.chat(CHAT), special=False)
    answer = text.decode(nn.generate(model, prompt, max_len=6))
    assert nn.generate_text(model, text, CHAT, max_len=6) == answer


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ("the", {"text": None}, "text must be a tokenizer from nn.text.load, got NoneType"),
        ("the", {"to": "fra_Latn"}, "to must be a token of the vocabulary, got 'fra_Latn'"),
        ("the", {"language": "eng_Latn"}, "model must translate if language is given, got LanguageModel"),
        ([{"role": "user", "content": ""}], {}, "prompt must have at least one token, got .{'role': 'user', 'content': ''}."),
    ],
)  # fmt: skip
def test_generate_text_with_bad_arguments_raises(
    tmp_path: Path, prompt: Any, options: dict[str, Any], message: str
) -> None:
    text = nn.text.load(bpe(tmp_path, chat_template="{{ messages[0].content }}"))
    model = nn.LanguageModel(nn.LanguageModelConfig(len(text), 16, 4, 1, 32))
    with pytest.raises((TypeError, ValueError), match=message):
        nn.generate_text(model, **{"text": text, "prompt": prompt, **options})


def test_generate_text_with_language_translates(tmp_path: Path) -> None:
    text = nn.text.load(bert(tmp_path))
    sizes = (len(text), len(text), 16, 4, 2, 2, 32)
    config = nn.TransformerConfig(*sizes, tie="all", pad_id=0, bos_id=0, eos_id=2)
    model = nn.Transformer(config, np.random.default_rng(0)).eval()
    found = nn.generate_text(model, text, ["the cat", "the"], max_len=5, to="fra_Latn")
    ids, *_ = text.batch(["the cat", "the"])
    tokens = nn.generate(model, source=ids, max_len=5, first=(12,), suppress=(0,))
    assert [row[0] for row in tokens] == [12, 12] and found == text.decode(tokens)
    with pytest.raises(ValueError, match="'>>fra<<'; write it before the text"):
        nn.generate_text(model, nn.text.load(marian(tmp_path / "marian")), "the cat", to=">>fra<<")


def message(*fields: tuple[int, bytes | float | int]) -> bytes:
    """Return a protocol buffer with fields of fewer than 128 bytes, by the definition of the format."""
    data = b""
    for number, value in fields:
        if isinstance(value, bytes):
            data += bytes([number << 3 | 2, len(value)]) + value
        elif isinstance(value, float):
            data += bytes([number << 3 | 5]) + struct.pack("<f", value)
        else:
            data += bytes([number << 3, value])
    return data


def marian(path: Path) -> Path:
    pytest.importorskip("sentencepiece", reason="Marian's folders need it")
    path.mkdir(exist_ok=True)
    pieces = [
        ("<unk>", 0.0, 2), ("</s>", 0.0, 3), ("▁the", -1.0, 1), ("▁", -3.0, 1), ("at", -2.0, 1), ("▁cat", -2.5, 1),
    ]  # fmt: skip
    data = b"".join(message((1, message((1, p.encode()), (2, s), (3, k)))) for p, s, k in pieces)
    (path / "source.spm").write_bytes(
        data + message((2, message((3, 1))), (3, message((1, b"identity"))))
    )
    words = ["</s>", "<unk>", "▁the", "▁cat", ">>fra<<", "▁chat", "at", "<pad>"]
    (path / "vocab.json").write_text(json.dumps({w: i for i, w in enumerate(words)}))
    (path / "target.spm").write_bytes(b"x")
    return path


def test_load_marian_directory_equals_sentencepiece(tmp_path: Path) -> None:
    text = nn.text.load(marian(tmp_path))
    assert (len(text), text.eos_id, text.pad_id) == (8, 0, 7)
    assert text.encode("the  cat") == [2, 3, 0] and text.encode("the cat", special=False) == [2, 3]
    assert text.encode(">>fra<< the at") == [4, 2, 1, 6, 0]  # "▁" alone is in no vocabulary
    assert text.encode(["the the the"], max_len=3) == [[2, 2, 0]]
    assert text.decode([2, 5, 0, 7]) == "the chat"
    ids, real, _ = text.batch(["the", "the cat"])
    assert ids.tolist() == [[2, 0, 7], [2, 3, 0]] and real.sum(1).tolist() == [2, 3]
    text.save(tmp_path / "again")
    assert (tmp_path / "again/source.spm").read_bytes() == (tmp_path / "source.spm").read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:11],
        lambda data: b"{}",
        lambda data: data + message((3, message((2, b"no charsmap")))),
        lambda data: data + message((1, message((1, b"x"), (2, float("nan"))))),
    ],
    ids=["empty", "cut", "JSON", "charsmap", "NaN"],
)
def test_load_of_damaged_sentencepiece_model_raises(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    file = marian(tmp_path) / "source.spm"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=f"^{file}: not a SentencePiece model"):
        nn.text.load(tmp_path)


@pytest.mark.parametrize("last", ["the", "<pad>"], ids=["no <pad>", "a missing id"])
def test_load_of_damaged_marian_vocabulary_raises(tmp_path: Path, last: str) -> None:
    ids = {"</s>": 0, "<unk>": 1, last: 2 + (last == "<pad>")}
    (marian(tmp_path) / "vocab.json").write_text(json.dumps(ids))
    message = "vocab.json: ids must be 0 to 2, and tokens include </s>, <unk>, <pad>"
    with pytest.raises(ValueError, match=message):
        nn.text.load(tmp_path)


@pytest.mark.parametrize(
    ("write", "package", "message"),
    [
        (bpe, "tokenizers", "the tokenizer of a published model needs tokenizers"),
        (marian, "sentencepiece", "source.spm needs sentencepiece: pip install sentencepiece"),
    ],
)
def test_load_without_a_package_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any, package: str, message: str
) -> None:
    write(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=message):
        nn.text.load(tmp_path)
