"""Tokenizers of published models, from files made here."""

from __future__ import annotations

import json
import struct
import sys
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
    path.mkdir(exist_ok=True)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=alphabet,
        special_tokens=["<s>", "</s>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat sat on the mat. a naïve café, 漢字 🙂"] * 3, trainer)
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": "</s>", **settings})
    )
    return path


def test_model_text_encode_returns_ids_of_the_library(tmp_path: Path) -> None:
    text = nn.text.load(bert(tmp_path))
    assert (text.pad_id, text.bos_id, text.eos_id, text.max_len, len(text)) == (
        0,
        None,
        2,
        None,
        len(WORDS),
    )
    assert text.encode("The cats sat.") == [1, 4, 5, 7, 6, 10, 2]  # neither padded nor cut
    assert text.encode("the cat", special=False) == [4, 5]
    assert text.encode(["the", "the cat sat on the mat on the mat ."], max_len=5) == [
        [1, 4, 2],
        [1, 4, 5, 6, 2],
    ]
    assert text.encode("the", "cat") == [1, 4, 2, 5, 2]
    assert text.decode([1, 4, 5, 7, 2, 0]) == "the cats" and text.decode([[4], [5]]) == [
        "the",
        "cat",
    ]
    assert text.decode([1, 4], special=True) == "[CLS] the" and text.tokens([4, 7]) == [
        "the",
        "##s",
    ]
    with pytest.raises(
        ValueError, match="max_len must be greater than the number of special tokens \\(2\\), got 2"
    ):
        text.encode("the", max_len=2)
    with pytest.raises(TypeError, match="encode: pair must be a list, as text, got 'ab'"):
        text.encode(["the", "cat"], "ab")
    with pytest.raises(
        ValueError, match="encode: pair must have as many texts as text \\(2\\), got 1"
    ):
        text.encode(["the", "cat"], ["sat"])
    for one, several in (
        (text.batch("the cat"), text.batch(["the cat"])),
        (text.batch("the", "cat"), text.batch(["the"], ["cat"])),
    ):
        assert [a.tolist() for a in one] == [a.tolist() for a in several]
    with pytest.raises(ValueError, match="chat: messages must be dicts such as .*, got 'the cat'"):
        text.chat("the cat")  # type: ignore[arg-type]


def test_model_text_batch_returns_padded_ids_and_mask(tmp_path: Path) -> None:
    text = nn.text.load(bert(tmp_path))
    ids, real, types = text.batch(["the", "the cat"], ["mat", "mat"])
    assert ids.tolist() == [[1, 4, 2, 8, 2, 0], [1, 4, 5, 2, 8, 2]] and real.tolist()[0] == [
        True
    ] * 5 + [False]
    assert types.tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]
    left, real, _ = text.batch(["the", "the cat"], pad_left=True)
    assert left.tolist() == [[0, 1, 4, 2], [1, 4, 5, 2]] and not real[0, 0]


def test_model_text_save_copies_the_files(tmp_path: Path) -> None:
    bert(tmp_path / "a")
    nn.text.load(tmp_path / "a").save(tmp_path / "b")
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == [
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    for file in (tmp_path / "a").iterdir():
        assert (tmp_path / "b" / file.name).read_bytes() == file.read_bytes()


def test_load_older_files_equals_tokenizer_json(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "##s"])
    )
    assert nn.text.load(tmp_path).encode("The cats") == [2, 4, 5, 6, 3]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert nn.text.load(tmp_path).encode("The cats") == [2, 1, 5, 6, 3]
    older = tmp_path / "gpt2"
    tokenizers.Tokenizer.from_file(str(bpe(older) / "tokenizer.json")).model.save(str(older))
    expected = nn.text.load(older).encode("the cat, naïve 🙂")
    (older / "tokenizer.json").unlink()
    assert nn.text.load(older).encode("the cat, naïve 🙂") == expected
    size = len(nn.text.load(older))
    (older / "added_tokens.json").write_text(json.dumps({"[B]": size + 1, "[A]": size}))
    assert nn.text.load(older).encode("the[B][A]")[-2:] == [size + 1, size]
    (older / "added_tokens.json").write_text(json.dumps({"[A]": size + 1}))
    with pytest.raises(
        ValueError,
        match=f"added_tokens.json: .A. must be {size}, its id after the vocabulary",
    ):
        nn.text.load(older)
    (older / "added_tokens.json").unlink()
    for path in (tmp_path / "vocab.txt", older / "merges.txt"):
        path.write_bytes(path.read_bytes()[:-1] + b"\0")
        with pytest.raises(ValueError, match=f"^{path}: a zero byte; this is no text"):
            nn.text.load(path.parent)


def test_stream_yields_complete_characters(tmp_path: Path) -> None:
    text = nn.text.load(bpe(tmp_path))
    said = "the cat. 漢字 🙂 naïve 中文, and on it goes: the mat sat on the cat 🙂🙂."
    pieces = list(text.stream(text.encode(said)))
    assert (
        "".join(pieces) == said
        and len(pieces) > 20
        and not any("\ufffd" in piece for piece in pieces)
    )


TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('no such role') }}{% endif %}"
    "{{ bos_token }}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def test_chat_with_template_returns_its_text(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    for settings in (
        {"chat_template": TEMPLATE},
        {
            "chat_template": [
                {"name": "tools", "template": "x"},
                {"name": "default", "template": TEMPLATE},
            ]
        },
        {},
    ):
        path = bpe(tmp_path / str(len(settings)), **settings)
        if not settings:
            (path / "chat_template.jinja").write_text(TEMPLATE)
        text = nn.text.load(path)
        pytest.importorskip("jinja2", reason="chat templates need it")
        assert text.chat(messages) == "<s>user: Hi</s>\nassistant:"
        assert text.chat(messages, reply=False) == "<s>user: Hi</s>\n"
        with pytest.raises(ValueError, match="the chat template refuses: no such role"):
            text.chat([{"role": "bad", "content": ""}])
    with pytest.raises(
        ValueError, match="tokenizer_config.json: no chat_template: not a model for chats"
    ):
        nn.text.load(bpe(tmp_path / "plain")).chat(messages)


def test_chat_with_several_templates_uses_the_named_one(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="chat templates need it")
    messages, tools = [{"role": "user", "content": "Hi"}], [{"name": "f"}]
    named = [{"name": "tool_use", "template": "{{ 1 / messages|length }} {{ tools[0].name }}"}]
    path = bpe(tmp_path / "a", chat_template=[*named, {"name": "default", "template": "plain"}])
    text = nn.text.load(path)
    assert [text.chat(messages), text.chat(messages, tools=tools)] == ["plain", "1.0 f"]
    (path / "additional_chat_templates").mkdir()
    (path / "additional_chat_templates/tool_use.jinja").write_text("{{ 1 / tools|length }} anew")
    nn.text.load(path).save(tmp_path / "b")
    (tmp_path / "b/config.json").write_text("{}")
    again = nn.text.load(tmp_path / "b")
    assert [again.chat(messages), again.chat(messages, tools=tools)] == ["plain", "1.0 anew"]
    with pytest.raises(
        ValueError,
        match="b/additional_chat_templates/tool_use.jinja: chat_template: division by zero",
    ):
        again.chat(messages, tools=[])
    with pytest.raises(
        ValueError, match="tokenizer_config.json: no chat_template: no default among tool_use"
    ):
        nn.text.load(bpe(tmp_path / "c", chat_template=named)).chat(messages)


def test_chat_with_options_of_transformers_raises(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="chat templates need it")
    text, messages = (
        nn.text.load(bpe(tmp_path, chat_template=TEMPLATE)),
        [{"role": "user", "content": "Hi"}],
    )
    assert text.chat(messages, tokenize=False, add_generation_prompt=False) == text.chat(
        messages, reply=False
    )
    for name in ("continue_final_message", "tokenize", "return_tensors"):
        with pytest.raises(
            TypeError,
            match=f"chat: {name} must not be given, since chat returns a text, for encode",
        ):
            text.chat(messages, **{name: "x"})


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages.__class__ }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% for x in %}",
        "{{ namespace(__call__=1) }}",
        "{{ namespace({'_x': 1}) }}",
        "{% set ns = namespace() %}{% set ns.__call__ = 1 %}{{ ns }}",
    ],
)
def test_chat_template_cannot_leave_the_sandbox(tmp_path: Path, attack: str) -> None:
    pytest.importorskip("jinja2", reason="chat templates need it")
    text = nn.text.load(bpe(tmp_path, chat_template=attack))
    try:
        said = text.chat([{"role": "user", "content": "Hi"}])
    except ValueError as error:
        assert "tokenizer_config.json: chat_template:" in str(error)
    else:
        assert said == ""  # an attribute that is not to be seen is undefined


@pytest.mark.parametrize(
    "codes",
    [
        ("eng_Latn", "fra_Latn", "deu_Latn"),
        ("en_XX", "fr_XX", "de_DE"),
        ("__en__", "__ast__", "__de__"),
    ],
)
def test_encode_with_language_uses_its_token(tmp_path: Path, codes: tuple[str, str, str]) -> None:
    """Codes of NLLB, mBART and M2M-100 have two or three letters."""
    own, other, unknown = codes
    bert(tmp_path)
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.add_special_tokens([own, other])
    first, second = tokenizer.token_to_id(own), tokenizer.token_to_id(other)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{own} $A [SEP]", special_tokens=[(own, first), ("[SEP]", 2)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = nn.text.load(tmp_path)
    assert [text.encode("the cat", language=code)[0] for code in (None, own, other)] == [
        first,
        first,
        second,
    ]
    assert text.encode(f"the {own} cat", language=other) == [
        second,
        4,
        first,
        5,
        2,
    ]  # that one is of the text
    with pytest.raises(
        ValueError, match=f"language must be a token of the vocabulary, got '{unknown}'"
    ):
        text.encode("the", language=unknown)
    with pytest.raises(
        ValueError, match="language must be a token that the model puts around a text, got 'cat'"
    ):
        text.encode("the", language="cat")


def small(path: Path, vocab: int) -> Any:
    config = nn.LanguageModelConfig(
        vocab, 16, 4, 2, 32, max_len=40, eos_id=1, tie=False, dtype="float64"
    )
    nn.save(path, nn.LanguageModel(config, np.random.default_rng(0)))
    return nn.load(path)


def test_generate_text_takes_and_returns_strings(tmp_path: Path) -> None:
    text = nn.text.load(bpe(tmp_path, chat_template=TEMPLATE))
    model = small(tmp_path, len(text))
    prompts = ["the cat", "on the mat the cat sat"]
    ids = nn.generate(model, [text.encode(p) for p in prompts], max_len=6)
    assert nn.generate_text(model, text, prompts, max_len=6) == text.decode(ids)
    with pytest.raises(TypeError, match="text must be a tokenizer from nn.text.load, got NoneType"):
        nn.generate_text(model, None, prompts)  # type: ignore[arg-type]
    assert nn.generate_text(model, text, prompts[0], max_len=6) == text.decode(ids[0])
    assert "".join(nn.stream_text(model, text, prompts[1], max_len=6)) == text.decode(ids[1])
    chat = [{"role": "user", "content": "the cat"}]
    prompt = text.encode(text.chat(chat), special=False)
    assert nn.generate_text(model, text, chat, max_len=6) == text.decode(
        nn.generate(model, prompt, max_len=6)
    )
    silent = nn.text.load(bpe(tmp_path, chat_template="{{ messages[0].content }}"))
    for prompt, options, message in (
        ("the", {"to": "fra_Latn"}, "to must be a token of the vocabulary, got 'fra_Latn'"),
        (
            "the",
            {"language": "eng_Latn"},
            "model must translate if language is given, got LanguageModel",
        ),
        (
            [{"role": "user", "content": ""}],
            {},
            "prompt must have at least one token, got .{'role': 'user', 'content': ''}.",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            nn.generate_text(model, silent, prompt, **options)


def test_generate_text_with_language_translates(tmp_path: Path) -> None:
    text = nn.text.load(bert(tmp_path))
    config = nn.TransformerConfig(
        len(text), len(text), 16, 4, 2, 2, 32, tie="all", pad_id=0, bos_id=0, eos_id=2
    )
    model = nn.Transformer(config, np.random.default_rng(0)).eval()
    found = nn.generate_text(model, text, ["the cat", "the"], max_len=5, to="fra_Latn")
    ids, *_ = text.batch(["the cat", "the"])
    tokens = nn.generate(model, source=ids, max_len=5, first=(12,), suppress=(0,))
    assert [row[0] for row in tokens] == [12, 12] and found == text.decode(tokens)
    (tmp_path / "marian").mkdir()
    text = nn.text.load(marian(tmp_path / "marian"))
    with pytest.raises(
        ValueError,
        match="to must be a token that begins a translation, got '>>fra<<'; write it before the text",
    ):
        nn.generate_text(model, text, "the cat", to=">>fra<<")


def message(*fields: tuple[int, bytes | float | int]) -> bytes:
    """Return a protocol buffer, by the definition of the format."""
    data = b""
    for number, value in fields:
        if isinstance(value, bytes):
            data += bytes([number << 3 | 2]) + varint(len(value)) + value
        elif isinstance(value, float):
            data += bytes([number << 3 | 5]) + struct.pack("<f", value)
        else:
            data += bytes([number << 3]) + varint(value)
    return data


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def marian(path: Path) -> Path:
    pytest.importorskip("sentencepiece", reason="Marian's folders need it")
    pieces = [
        ("<unk>", 0.0, 2),
        ("</s>", 0.0, 3),
        ("▁the", -1.0, 1),
        ("▁", -3.0, 1),
        ("c", -4.0, 1),
        ("at", -2.0, 1),
        ("▁cat", -2.5, 1),
        ("t", -5.0, 1),
    ]
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
    assert text.decode([2, 5, 0, 7]) == "the chat" and text.decode([[2], [5]]) == ["the", "chat"]
    ids, real, _ = text.batch(["the", "the cat"])
    assert ids.tolist() == [[2, 0, 7], [2, 3, 0]] and real.tolist() == [
        [True, True, False],
        [True] * 3,
    ]
    with pytest.raises(
        ValueError,
        match="; write one such as '>>fra<<' before the text",
    ):
        text.encode("the cat", language=">>fra<<")
    text.save(tmp_path / "again")
    assert (tmp_path / "again/source.spm").read_bytes() == (tmp_path / "source.spm").read_bytes()
    whole = (tmp_path / "source.spm").read_bytes()
    for data in (b"", b"\x0f", whole[:11], b"\xff" * 20, b"{}"):
        (tmp_path / "source.spm").write_bytes(data)
        with pytest.raises(ValueError, match="source.spm: not a SentencePiece model"):
            nn.text.load(tmp_path)
    for more in ((3, message((2, b"no charsmap"))), (1, message((1, b"x"), (2, float("nan"))))):
        (tmp_path / "source.spm").write_bytes(whole + message(more))
        with pytest.raises(
            ValueError, match="^" + str(tmp_path) + "/source.spm: not a SentencePiece model"
        ):
            nn.text.load(tmp_path)
    (tmp_path / "source.spm").write_bytes(whole)
    for words in ({"</s>": 0, "<unk>": 1, "<pad>": 3}, {"</s>": 0, "<unk>": 1, "the": 2}):
        (tmp_path / "vocab.json").write_text(json.dumps(words))
        with pytest.raises(
            ValueError,
            match="vocab.json: ids must be 0 to 2, and tokens include </s>, <unk>, <pad>",
        ):
            nn.text.load(tmp_path)


def test_load_without_files_or_package_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        FileNotFoundError,
        match="tokenizer.json: no such file; expected it, or .* AutoTokenizer and",
    ):
        nn.text.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="tokenizer.json: not the file of a tokenizer"):
        nn.text.load(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        MissingExtraError, match="the tokenizer of a published model needs tokenizers"
    ):
        nn.text.load(tmp_path)


def test_load_marian_without_sentencepiece_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marian(tmp_path)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(
        MissingExtraError, match="source.spm needs sentencepiece: pip install sentencepiece"
    ):
        nn.text.load(tmp_path)
