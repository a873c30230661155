"""Tokenizers of published models, from files made here."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from support.commands import hide_packages
from support.environment import needs
from support.tiny_folders import language_model_folder, text_files, translator_folder
from support.tokenizer_library import tokenizers

import nn
from minigrad.check.extras import MissingExtraError
from minigrad.io.json import Settings
from minigrad.io.reading import FileCopies
from nn.published.load import FAMILIES
from nn.text import loading
from nn.text.legacy_tokenizers import CLASS_OF_MODEL, CLASSES

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "the", "cat", "##s", "eng_Latn", "fra_Latn"]


def bert(path: Path, around: str = "[CLS]") -> Path:
    """Write a tokenizer like MiniLM's, whose file truncates and pads to 4 tokens."""
    ids = {word: i for i, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.add_special_tokens([*WORDS[:3], *WORDS[-2:], "__en__", "__ast__"])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{around} $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in {around, "[CLS]", "[SEP]"}],
    )
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4)
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {"pad_token": {"content": "[PAD]"}, "model_max_length": 1e30}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    (path / "special_tokens_map.json").write_text('{"eos_token": "[SEP]", "pad_token": "[UNK]"}')
    return path


def test_model_text_encodes_and_decodes(tmp_path: Path) -> None:
    text = nn.text.load(bert(tmp_path))
    assert (text.pad_id, text.bos_id, text.eos_id, text.max_len) == (0, None, 2, None)
    long = "The cats, the cat"  # the file cuts at 4 tokens
    assert len(text.tokenizer.encode(long).ids) == 8
    assert text.encode(long) == [1, 4, 5, 6, 3, 4, 5, 2]
    assert text.encode(["the", long], max_len=5) == [[1, 4, 2], [1, 4, 5, 6, 2]]
    assert text.encode(long, special=False) == [4, 5, 6, 3, 4, 5]
    assert text.encode("the", "cat") == [1, 4, 2, 5, 2]
    assert text.decode([[1, 4, 5, 6, 2, 0], [5]]) == ["the cats", "cat"]
    assert text.decode([1, 4], special=True) == "[CLS] the"
    assert text.tokens([4, 6]) == ["the", "##s"]


def test_model_text_disables_the_padding_of_its_tokenizer(tmp_path: Path) -> None:
    tokenizer = nn.text.load(bert(tmp_path)).tokenizer
    tokenizer.enable_padding(length=9)
    text = nn.text.ModelText(tokenizer, Settings({}, "here"), FileCopies("."))
    assert text.encode(["the", "cat"]) == [[1, 4, 2], [1, 5, 2]]
    assert text.encode("the cat", max_len=3) == [1, 4, 2]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["the"], {"max_len": 2}, r"max_len must be greater than .* special tokens \(2\), got 2"),
        ([["the", "cat"], "ab"], {}, "pair must be a list, as text, got 'ab'"),
        ([["the", "cat"], ["sat"]], {}, r"pair must have as many texts as text \(2\), got 1"),
        ([["the"], [5]], {}, "a text must be a string, got 5"),
        ([["the"], ["\udcff"]], {}, "a text must be valid UTF-8"),
        (["the", "\udcff"], {}, "a text must be valid UTF-8"),
        (["the"], {"language": "deu_Latn"}, "language must be a token of the vocabulary, got 'deu"),
        (["the"], {"language": "cat"}, "language must be a token that .* around a text, got 'cat'"),
    ],
)
def test_encode_with_bad_arguments_raises(
    tmp_path: Path, arguments: list[Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        nn.text.load(bert(tmp_path)).encode(*arguments, **options)


@pytest.mark.parametrize(("own", "other"), [("eng_Latn", "fra_Latn"), ("__en__", "__ast__")])
def test_encode_with_language_uses_its_token(tmp_path: Path, own: str, other: str) -> None:
    """Codes of NLLB and M2M-100 have two or three letters."""
    text = nn.text.load(bert(tmp_path, own))
    first, second = text.id(own), text.id(other)
    begins = [text.encode("the cat", language=code)[0] for code in (None, own, other)]
    assert begins == [first, first, second]
    assert text.encode(f"the {own}", language=other) == [second, 4, first, 2]  # a token of the text


def test_model_text_batch_returns_padded_ids_and_mask(tmp_path: Path) -> None:
    text = nn.text.load(bert(tmp_path))
    ids, real, types = text.batch(["the", "the cat"], ["cat", "cat"])
    assert ids.tolist() == [[1, 4, 2, 5, 2, 0], [1, 4, 5, 2, 5, 2]]
    assert real.tolist() == [[True] * 5 + [False], [True] * 6]
    assert types.tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]
    left, real, _ = text.batch(["the", "the cat"], pad_left=True)
    assert left.tolist() == [[0, 1, 4, 2], [1, 4, 5, 2]] and not real[0, 0]


@pytest.mark.parametrize(
    ("settings", "config", "pad_id"),
    [
        ({}, {"pad_token_id": 5}, 5),  # as BART is published
        ({"pad_token": None}, {"pad_token_id": 5}, 5),
        ({"pad_token": "[UNK]"}, {"pad_token_id": 5}, 3),
        ({}, {"pad_token_id": None}, None),
        ({}, {"pad_token_id": -1}, None),
        ({}, {"pad_token_id": 99}, None),
        ({}, {}, None),
    ],
)
def test_pad_id_without_pad_token_is_that_of_config_json(
    tmp_path: Path, settings: dict[str, Any], config: dict[str, Any], pad_id: int | None
) -> None:
    bert(tmp_path)
    (tmp_path / "special_tokens_map.json").unlink()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps(config))
    text = nn.text.load(tmp_path)
    assert text.pad_id == pad_id
    assert text.batch(["the", "the cat"])[0][0, -1] == (pad_id or 0)


def test_load_reads_the_vocabulary_of_the_model_from_config_json(tmp_path: Path) -> None:
    bert(tmp_path)
    for size in (5, 6, None):
        (tmp_path / "config.json").write_text(json.dumps({"vocab_size": size}))
        text = nn.text.load(tmp_path)
        assert text.vocab_size == size
        if size == 5:
            with pytest.raises(
                ValueError, match="ids must be less than 5, the vocab_size of confi"
            ):
                text.encode("cat")
        else:
            assert text.encode("cat") == [1, 5, 2]
    (tmp_path / "config.json").write_text('{"pad_token_id": "x"}')
    with pytest.raises(ValueError, match="config.json: pad_token_id must be an integer"):
        nn.text.load(tmp_path)


@pytest.mark.parametrize("part", ["single", "pair"])
@pytest.mark.parametrize(("count", "special_id"), [(100, 1), (101, 1), (1, 4)])
def test_special_tokens_around_texts_have_their_ids(
    tmp_path: Path, part: str, count: int, special_id: int
) -> None:
    """There are at most a hundred."""
    text_files(tmp_path)
    path = tmp_path / "tokenizer.json"
    data = json.loads(path.read_text())
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    step = {"type": "TemplateProcessing", "single": [a], "pair": [a, b], "special_tokens": {}}
    step[part] = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}] * count + [*step[part]]
    step["special_tokens"] = {"[CLS]": {"id": "[CLS]", "ids": [special_id], "tokens": ["[CLS]"]}}
    path.write_text(json.dumps(data | {"post_processor": step}))
    if (count, special_id) == (100, 1):
        assert (
            nn.text.load(tmp_path).encode("the", *(["cat"] if part == "pair" else []))[:100]
            == [1] * 100
        )
    else:
        message = (
            "at most 100 special tokens" if count > 100 else "special_tokens must be the tokens"
        )
        with pytest.raises(ValueError, match=f"post_processor: .*{message}"):
            nn.text.load(tmp_path)


def test_batch_of_texts_of_spaces_is_padding_alone(tmp_path: Path) -> None:
    text_files(tmp_path, False)
    ids, mask, types = nn.text.load(tmp_path).batch(["", " ", "the"])
    assert ids.tolist() == [[0], [0], [4]] and mask.tolist() == [[False], [False], [True]]
    assert types.shape == (3, 1)


def test_load_of_two_tokens_with_one_id_raises(tmp_path: Path) -> None:
    text_files(tmp_path)
    path = tmp_path / "tokenizer.json"
    data = json.loads(path.read_text())
    data["model"]["vocab"]["odd"] = 4
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="vocab: 4 is both 'the' and 'odd'"):
        nn.text.load(tmp_path)


def test_added_tokens_beside_tokenizer_json_change_nothing(tmp_path: Path) -> None:
    """Read them with their flags."""
    bert(tmp_path)
    (tmp_path / "added_tokens.json").write_text('{"[CLS]": 1, "odd": 99}')
    text = nn.text.load(tmp_path)
    assert text.decode(text.encode("the cat")) == "the cat" and text.id("odd") is None


@pytest.mark.parametrize("kind", [0, 1, 2, 7])
def test_types_of_tokens_beyond_those_of_pairs_raise(tmp_path: Path, kind: int) -> None:
    bert(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace('"type_id": 1', f'"type_id": {kind}').replace('"type_id":1', f'"type_id":{kind}'))  # fmt: skip
    text = nn.text.load(tmp_path)
    assert not text.batch(["the"])[2].any()
    if kind < 2:
        assert text.batch(["the"], ["cat"])[2].tolist() == [[0, 0, 0, kind, kind]]
    else:
        with pytest.raises(ValueError, match=f"post_processor: type_id must be 0 or 1, got {kind}"):
            text.batch(["the"], ["cat"])
        path.write_text(re.sub('"type_id": ?0', f'"type_id": {kind}', path.read_text()))
        text = nn.text.load(tmp_path)
        with pytest.raises(ValueError, match=f"post_processor: type_id must be 0 or 1, got {kind}"):
            text.encode("the")


def test_special_tokens_that_the_vocabulary_lacks_are_not_added(tmp_path: Path) -> None:
    """Refuse a missing token only if a text needs its id."""
    text_files(tmp_path, mask_token="<none>", unk_token="[UNK]")
    text = nn.text.load(tmp_path)
    assert text.id("<none>") is None and len(text) == 19
    text_files(tmp_path, eos_token="<none>")
    with pytest.raises(ValueError, match="eos_token must be a token of the vocabulary"):
        nn.text.load(tmp_path)


def test_load_ignores_padding_in_the_file(tmp_path: Path) -> None:
    bert(tmp_path)
    path = tmp_path / "tokenizer.json"
    data = json.loads(path.read_text())
    data["padding"]["strategy"] = {"Fixed": 3_000_000}
    path.write_text(json.dumps(data))
    tracemalloc.start()
    text = nn.text.load(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert text.encode("the") == [1, 4, 2] and peak < 10_000_000


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer.json": {"model": {"vocab": dict.fromkeys("abcd", 0)}}}, "model.vocab must be at most 3, got 4"),
        ({"tokenizer.json": {"model": {"vocab": [["a", 0]] * 4}}}, "model.vocab must be at most 3, got 4"),
        ({"tokenizer.json": {"model": {"vocab": {}, "merges": [*"abcd"]}}}, "model.merges must be at most 3, got 4"),
        ({"tokenizer.json": {"model": {"vocab": {}}, "added_tokens": [{}] * 4}}, "added_tokens must be at most 3, got 4"),
        ({"vocab.txt": "a\nb\nc\nd\n"}, "vocab.txt: lines must be at most 3, got 4"),
        ({"vocab.json": {}, "merges.txt": "a\nb\nc\nd\n"}, "merges.txt: lines must be at most 3, got 4"),
        ({"config.json": {"model_type": "marian"}, "vocab.json": {"a": 0}, "source.spm": "", "target_vocab.json": dict.fromkeys("abcd", 0)}, "target_vocab.json: tokens must be at most 3, got 4"),
        ({"config.json": {"model_type": "gpt2"}, "vocab.json": dict.fromkeys("abcd", 0), "merges.txt": ""}, "vocab.json: tokens must be at most 3, got 4"),
    ],
)  # fmt: skip
def test_load_of_too_many_tokens_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(loading, "MAX_TOKENS", 3)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=f"^{tmp_path}.*{message}$"):
        nn.text.load(tmp_path)


def test_model_text_save_copies_the_files(tmp_path: Path) -> None:
    nn.text.load(bert(tmp_path)).save(tmp_path / "copy")
    for copy in (names := list((tmp_path / "copy").iterdir())):
        assert copy.read_bytes() == (tmp_path / copy.name).read_bytes()
    assert len(names) == 3


def test_load_of_merges_txt_adds_tokens_in_the_order_of_their_ids(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
    (tmp_path / "merges.txt").write_text("a b\n")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "added_tokens.json").write_text('{"[B]": 4, "[A]": 3}')
    assert nn.text.load(tmp_path).encode("ab[B]a[A]") == [2, 4, 0, 3]


@pytest.mark.parametrize("is_special", [False, True, None])
def test_load_reads_whether_added_tokens_are_special(
    tmp_path: Path, is_special: bool | None
) -> None:
    """Special ones are left out of decoded text."""
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1}')
    (tmp_path / "merges.txt").write_text("")
    token = {"content": "[A]", "special": is_special}
    settings = {"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {"2": token}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    text = nn.text.load(tmp_path)
    assert text.encode("a[A]b") == [0, 2, 1]
    assert text.decode([0, 2, 1]) == ("ab" if is_special else "a[A]b")


def test_classes_of_families_have_readers() -> None:
    """A family has the class of its name, but for two, and some classes are equal."""
    assert CLASS_OF_MODEL.keys() <= FAMILIES.keys() and {*CLASS_OF_MODEL.values()} <= CLASSES.keys()
    names = {name: f"{FAMILIES[name].base}Tokenizer" for name in CLASS_OF_MODEL}
    assert names | {"opt": "GPT2Tokenizer", "qwen3": "Qwen2Tokenizer"} == CLASS_OF_MODEL
    for first, others in {
        "Bert": "ConvBert DistilBert Electra LayoutLM Lxmert MobileBert RetriBert SqueezeBert",
        "Roberta": "Bart LED Longformer", "GPT2": "", "GPTNeoX": "", "MPNet": "", "Qwen2": "", "Herbert": "", "Marian": "",
    }.items():  # fmt: skip
        equal = {name for name, row in CLASSES.items() if row is CLASSES[f"{first}Tokenizer"]}
        assert equal == {f"{name}Tokenizer" for name in (first, *others.split())}


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - CLASS_OF_MODEL.keys()))
def test_load_without_tokenizer_json_of_other_families_names_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name}))
    (tmp_path / "vocab.txt").write_text("a")
    with pytest.raises(FileNotFoundError, match="tokenizer.json: no such file; expected it, or"):
        nn.text.load(tmp_path)


@pytest.mark.parametrize(
    ("config", "settings", "named"),
    [
        ({"model_type": "llama"}, {"tokenizer_class": "LlamaTokenizer"}, "LlamaTokenizer"),
        ({"model_type": "t5"}, {"tokenizer_class": "T5TokenizerFast"}, "T5TokenizerFast"),
        ({"model_type": "bert"}, {"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
        ({"model_type": "roberta", "tokenizer_class": "PhobertTokenizer"}, {}, "PhobertTokenizer"),
        ({"model_type": "gpt2"}, {"tokenizer_class": "PreTrainedTokenizerFast"}, "PreTrainedTokenizerFast"),
        ({"model_type": "bert"}, {"tokenizer_class": "CLIPTokenizerFast"}, "CLIPTokenizerFast"),
    ],
)  # fmt: skip
def test_load_without_tokenizer_json_refuses_an_unknown_class_by_name(
    tmp_path: Path, config: dict[str, Any], settings: dict[str, Any], named: str
) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    (tmp_path / "merges.txt").write_text("")
    (tmp_path / "vocab.txt").write_text("a")
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    message = (
        f"tokenizer_class must be one of BertTokenizer, .* without tokenizer.json, got {named};"
    )
    with pytest.raises(ValueError, match=f"^{tmp_path}.*{message}"):
        nn.text.load(tmp_path)
    text_files(tmp_path, **settings)  # which decides
    assert len(nn.text.load(tmp_path)) == 19


def test_load_of_fewer_tokens_than_the_model_has_keeps_them(tmp_path: Path) -> None:
    bert(tmp_path)
    (tmp_path / "config.json").write_text('{"vocab_size": 64}')
    text = nn.text.load(tmp_path)
    assert len(text) == 11 and text.decode([4, 63, 5]) == "the cat"


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ({"x": {"content": "a"}}, "added_tokens_decoder must have ids as keys, got x"),
        ({"1": {"content": "a"}}, "added_tokens_decoder: a must be 0, .*, got 1"),
        ({"1": {"content": "[A]", "lstrip": 3}}, "added_tokens_decoder: 1: lstrip must be"),
        ({"1": {}}, "added_tokens_decoder: 1: content is missing"),
    ],
)
def test_load_of_wrong_added_tokens_raises(
    tmp_path: Path, tokens: dict[str, Any], message: str
) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    (tmp_path / "merges.txt").write_text("")
    settings = {"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": tokens}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=f"^{tmp_path}/tokenizer_config.json: {message}"):
        nn.text.load(tmp_path)


def test_stream_yields_complete_characters(tmp_path: Path) -> None:
    trained = nn.text.BPETokenizer.train(["the cat sat on the mat"], 300)
    (tmp_path / "tokenizer.json").write_text(trained.model)
    text = nn.text.load(tmp_path)
    said = "the cat. 漢字 🙂 naïve 中文, and on it goes: the mat sat on the cat 🙂🙂."
    pieces = list(text.stream(text.encode(said)))
    assert "".join(pieces) == f" {said}" and len(pieces) > 20
    assert not any("\ufffd" in piece for piece in pieces)


# -- chats -------------------------------------------------------------------------------------------

TEMPLATE = "{{ bos_token }}{{ messages[0].content }}{% if add_generation_prompt %} so:{% endif %}"
CHAT = [{"role": "user", "content": "the cat"}]
NAMED = [{"name": "tool_use", "template": "{{ 1 / tools|length }}"}]


@pytest.mark.parametrize(
    "given",
    [None, "a", [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]],
)
@pytest.mark.parametrize("files", [[], ["chat_template.jinja"], ["additional_chat_templates/tool_use.jinja"],
                                   ["chat_template.jinja", "additional_chat_templates/rag.jinja"]])  # fmt: skip
def test_chat_templates_are_those_of_the_settings_and_of_files(
    tmp_path: Path, given: Any, files: list[str]
) -> None:
    """Files count first, and are saved again."""
    text_files(tmp_path, chat_template=given)
    settings = str(tmp_path / "tokenizer_config.json")
    expected = {} if given is None else {"default": (settings, "a")}
    if isinstance(given, list):
        expected["tool_use"] = (settings, "b")
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(f"of {file}")
        name = "default" if file == "chat_template.jinja" else Path(file).stem
        expected[name] = (str(tmp_path / file), f"of {file}")
    text = nn.text.load(tmp_path)
    assert text.settings["chat_templates"] == expected
    text.save(tmp_path / "b")
    assert all((tmp_path / "b" / file).read_text() == f"of {file}" for file in files)


@pytest.mark.parametrize(
    "template", [5, {"name": "a"}, [{"name": "a"}], [{"template": "a"}], ["a"]]
)
def test_chat_templates_of_another_type_raise(tmp_path: Path, template: Any) -> None:
    text_files(tmp_path, chat_template=template)
    with pytest.raises(ValueError, match="tokenizer_config.json: chat_template"):
        nn.text.load(tmp_path)


def chat_text(path: Path, template: Any) -> Any:
    """Load a tokenizer with a chat template."""
    needs("jinja2")
    text_files(path, chat_template=template, bos_token="[CLS]")
    return nn.text.load(path)


@pytest.mark.parametrize("in_file", [False, True])
def test_chat_with_template_returns_its_text(tmp_path: Path, in_file: bool) -> None:
    if in_file:
        (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    text = chat_text(tmp_path, None if in_file else TEMPLATE)
    assert text.chat(CHAT) == "[CLS]the cat so:"
    assert text.chat(CHAT, reply=False) == "[CLS]the cat"
    without = text.chat(CHAT, tokenize=False, add_generation_prompt=False)  # as in transformers
    assert without == "[CLS]the cat"


def test_chat_with_several_templates_uses_the_named_one(tmp_path: Path) -> None:
    text = chat_text(tmp_path, [*NAMED, {"name": "default", "template": "plain"}])
    assert [text.chat(CHAT), text.chat(CHAT, tools=[{}])] == ["plain", "1.0"]
    name = "additional_chat_templates/tool_use.jinja"
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text("{{ 1 / tools|length }} anew")
    nn.text.load(tmp_path).save(tmp_path / "b")
    again = nn.text.load(tmp_path / "b")
    assert [again.chat(CHAT), again.chat(CHAT, tools=[{}])] == ["plain", "1.0 anew"]
    with pytest.raises(ValueError, match=f"b/{name}: chat_template: division by zero"):
        again.chat(CHAT, tools=[])


@pytest.mark.parametrize(
    ("template", "messages", "options", "message"),
    [
        (TEMPLATE, "the cat", {}, "chat: messages must be dicts such as .*, got 'the cat'"),
        (None, CHAT, {}, "tokenizer_config.json: no chat_template: not a model for chats"),
        (NAMED, CHAT, {}, "tokenizer_config.json: no chat_template: no default among tool_use"),
        (TEMPLATE, CHAT, {"tokenize": True}, "chat: tokenize must not be given"),
    ],
)
def test_chat_with_bad_arguments_raises(
    tmp_path: Path, template: Any, messages: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        chat_text(tmp_path, template).chat(messages, **options)


# -- generated text ----------------------------------------------------------------------------------


def test_generate_text_takes_and_returns_strings(tmp_path: Path) -> None:
    """EOS behind a prompt, and special tokens around a chat, are left out."""
    model = nn.load(language_model_folder(tmp_path))
    text = chat_text(tmp_path, "{{ messages[0].content }}")
    prompts, options = ["the cat", "why is it"], {"max_len": 6, "repetition_penalty": 5.0}
    ids = [text.encode(prompt) for prompt in prompts]
    expected = text.decode(nn.generate(model, [row[:-1] for row in ids], **options))
    assert nn.generate_text(model, text, prompts, **options) == expected
    assert nn.generate_text(model, text, prompts[0], **options) == expected[0]
    assert "".join(nn.stream_text(model, text, prompts[1], **options)) == expected[1]
    answer = text.decode(nn.generate(model, ids[0][1:-1], **options))
    assert nn.generate_text(model, text, CHAT, **options) == answer
    assert nn.generate_text(model, text, []) == []
    with pytest.raises(TypeError, match="prompt must be a string or a list of messages, got"):
        nn.stream_text(model, text, ["the cat"])


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ("the", {"text": None}, "text must be a tokenizer from nn.text.load, got NoneType"),
        ("the", {"to": "fra_Latn"}, "to must be a token of the vocabulary, got 'fra_Latn'"),
        ("the", {"language": "eng"}, "model must translate if language is given"),
        ("the", {"temperature": None}, "temperature must be a number, got None"),
        ("the", {"temperature": -1.0}, "temperature must be above 0, got -1"),
        ([{"content": ""}], {}, "prompt must have at least one token, got .{'content': ''}."),
        (5, {}, "prompt must be a string or a list of messages, got 5"),
        ([["the"]], {}, r"prompt must be a string or a list of messages, got \['the'\]"),
    ],
)
def test_generate_text_with_bad_arguments_raises(
    tmp_path: Path, prompt: Any, options: dict[str, Any], message: str
) -> None:
    if "content" in message:
        needs("jinja2")  # a chat
    model = nn.load(language_model_folder(tmp_path))
    text = nn.text.load(tmp_path)
    with pytest.raises((TypeError, ValueError), match=message):
        nn.generate_text(model, **{"text": text, "prompt": prompt, **options})


@pytest.mark.parametrize("has_bos", [False, True])
def test_generate_text_begins_with_bos_without_other_tokens_alone(
    tmp_path: Path, has_bos: bool
) -> None:
    model = nn.load(language_model_folder(tmp_path))
    text_files(tmp_path, False, bos_token="[CLS]" if has_bos else None)
    text = nn.text.load(tmp_path)
    expected = text.decode(nn.generate(model, [4, 5], max_len=5))
    assert nn.generate_text(model, text, "the cat", max_len=5) == expected
    if has_bos:
        expected = text.decode(nn.generate(model, [1], max_len=5))
        assert nn.generate_text(model, text, "", max_len=5) == expected
    else:
        with pytest.raises(ValueError, match="prompt must have at least one token, got ''"):
            nn.generate_text(model, text, "", max_len=5)


@pytest.mark.parametrize(
    ("stop", "message"),
    [("ab", "put a string in a list"), (5, "got 5"), ([5], r"got \[5\]"), (["a", ""], "not empty, got ''")],
)  # fmt: skip
def test_stream_text_with_other_than_a_list_of_strings_to_stop_at_raises(
    tmp_path: Path, stop: Any, message: str
) -> None:
    model = nn.load(language_model_folder(tmp_path))
    with pytest.raises((TypeError, ValueError), match=f"stop must .*{message}"):
        nn.stream_text(model, nn.text.load(tmp_path), "the", stop=stop)


def test_generate_text_with_language_translates(tmp_path: Path) -> None:
    model = nn.load(translator_folder(tmp_path))
    text = nn.text.load(tmp_path)
    found = nn.generate_text(model, text, ["the cat", "the"], max_len=5, to="dog")
    ids, *_ = text.batch(["the cat", "the"])
    tokens = nn.generate(model, source=ids, max_len=5, first=(text.id("dog"),), suppress=(0,))
    assert [row[0] for row in tokens] == [text.id("dog")] * 2 and found == text.decode(tokens)
    first = nn.generate_text(model, text, "the cat", max_len=5, to="dog", first=[text.id("mat")])
    assert first.startswith("mat")
    asked: list[Any] = []
    batch = text.batch
    text.batch = lambda texts, language: asked.append(language) or batch(texts)
    for language in (None, "fr"):
        nn.generate_text(model, text, "the cat", max_len=5, language=language)
    assert asked == [None, "fr"]
    assert nn.generate_text(model, text, []) == []


# -- Marian ------------------------------------------------------------------------------------------


def marian(path: Path, vocabulary: tuple[str, ...] = ("<pad>",)) -> Path:
    """Write a tokenizer with the pieces of a SentencePiece model, and more words."""
    library = needs("sentencepiece")
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat"] * 20), model_prefix=str(path / "source"), vocab_size=10,
        normalization_rule_name="identity", minloglevel=2,
    )  # fmt: skip
    (path / "source.model").rename(path / "source.spm")
    words = ["</s>", "<unk>", "▁", "c", "a", "t", ">>fra<<", "▁chat", *vocabulary]
    (path / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (path / "config.json").write_text('{"model_type": "marian"}')
    return path


def test_load_marian_directory_uses_its_pieces_and_ids(tmp_path: Path) -> None:
    text = nn.text.load(marian(tmp_path))
    assert (text.eos_id, text.pad_id) == (0, 8)
    assert text.encode("ca  t") == [2, 3, 4, 2, 5, 0]
    assert text.encode(">>fra<< ca", max_len=3) == [6, 2, 0]
    assert text.decode([7, 2, 3, 0, 8]) == "chat c"
    with pytest.raises(ValueError, match="'>>fra<<'; write it before the text"):
        model = nn.Transformer(nn.TransformerConfig(9, 9, 8, 2, 1, 1, 16))
        nn.generate_text(model, text, "ca", to=">>fra<<")


def test_load_marian_directory_with_two_vocabularies_decodes_with_the_second(
    tmp_path: Path,
) -> None:
    marian(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"separate_vocabs": true}')
    with pytest.raises(ValueError, match=f"^{tmp_path}/target_vocab.json: no such file"):
        nn.text.load(tmp_path)
    words = ["\u2581le", "</s>", "<unk>", "<pad>", "\u2581chat", "s"]
    (tmp_path / "target_vocab.json").write_text(json.dumps({w: i for i, w in enumerate(words)}))
    text = nn.text.load(tmp_path)
    text.save(tmp_path / "copy")
    assert text.encode("ca  t") == [2, 3, 4, 2, 5, 0]
    assert text.decode([3, 0, 4, 5, 1]) == "le chats"
    assert (tmp_path / "copy" / "target_vocab.json").exists()


@pytest.mark.parametrize(
    ("kept", "added"),
    [
        (0, b""),
        (11, b""),
        (None, b"\x1a\x0d\x12\x0bno charsmap"),
        (None, b"\n\x08\n\x01x\x15\0\0\xc0\x7f"),  # a piece whose score is NaN
    ],
    ids=["empty", "cut", "charsmap", "NaN"],
)
def test_load_of_damaged_sentencepiece_model_raises(
    tmp_path: Path, kept: int | None, added: bytes
) -> None:
    file = marian(tmp_path) / "source.spm"
    file.write_bytes(file.read_bytes()[:kept] + added)
    with pytest.raises(ValueError, match=f"^{file}: not a SentencePiece model"):
        nn.text.load(tmp_path)


@pytest.mark.parametrize(("words", "last"), [((), "7"), (("<pad>", "</s>"), "8")])
def test_load_of_damaged_marian_vocabulary_raises(
    tmp_path: Path, words: tuple[str, ...], last: str
) -> None:
    """It lacks <pad>, or an id."""
    marian(tmp_path, words)
    message = f"vocab.json: ids must be 0 to {last}, and tokens include </s>, <unk>, <pad>"
    with pytest.raises(ValueError, match=message):
        nn.text.load(tmp_path)


@pytest.mark.parametrize(("write", "package"), [(bert, "tokenizers"), (marian, "sentencepiece")])
def test_load_without_a_package_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any, package: str
) -> None:
    write(tmp_path)
    hide_packages(monkeypatch, package)
    with pytest.raises(MissingExtraError, match=f"needs {package}: pip install {package}"):
        nn.text.load(tmp_path)
