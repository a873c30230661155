"""Tokenizers of directories without tokenizer.json, as the classes of transformers read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.environment import needs

import nn
from nn.text.legacy_tokenizers import CLASSES

tokenizers = needs("tokenizers")
transformers = needs("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

END = "<|endoftext|>"
OPT = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
ROBERTA = {
    "bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "unk_token": "<unk>",
    "pad_token": "<pad>", "mask_token": "<mask>",
}  # fmt: skip
BYTE_LEVEL: dict[str, tuple[str, dict[str, Any]]] = {  # model_type and tokenizer_config.json
    "gpt2": ("gpt2", {"tokenizer_class": "GPT2Tokenizer", "bos_token": END, "eos_token": END, "unk_token": END}),
    "opt": ("opt", {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, **OPT}),
    "roberta": ("roberta", {"tokenizer_class": "RobertaTokenizer", **ROBERTA}),
    "bart": ("bart", {"tokenizer_class": "BartTokenizer", **ROBERTA}),
    "roberta without tokenizer_config.json": ("roberta", {}),
    "longformer": ("longformer", {"tokenizer_class": "LongformerTokenizer", **ROBERTA}),
    "led": ("led", {"tokenizer_class": "LEDTokenizerFast", **ROBERTA}),
    "gpt_neox": ("gpt_neox", {"tokenizer_class": "GPTNeoXTokenizer"}),
    "qwen2": ("qwen2", {"tokenizer_class": "Qwen2Tokenizer", "pad_token": END}),
    "qwen3 without tokenizer_config.json": ("qwen3", {}),
    "qwen2 with added tokens": (
        "qwen2",
        {
            "tokenizer_class": "Qwen2Tokenizer",
            "eos_token": "<|im_end|>",
            "added_tokens_decoder": {
                "270": {"content": "<|im_start|>", "special": True, "rstrip": True},
                "271": {"content": "<|im_end|>", "special": True},
                "272": {"content": "<tool>", "special": False, "lstrip": True, "normalized": False},
                "273": {"content": "the the", "special": False, "single_word": True, "normalized": True},
            },
        },
    ),
}  # fmt: skip
PARTS = [
    *"the cat sat ,.!éÜ漢字🙂\n", "the", " cat", "  ", END, "<s>", "</s>", "<pad>", "<mask>", "[MASK]", "[SEP]",
    "1", "23", "e\u0301", "<|im_start|>", " <|im_end|> ", " <tool>", "the the", "'S",
]  # fmt: skip


def random_texts(parts: list[str], count: int) -> list[str]:
    """Return random sequences of parts, the empty one among them."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 15, count)
    return ["".join(parts[i] for i in rng.integers(len(parts), size=n)) for n in lengths]


def assert_same_tokens(
    directory: Path, theirs: Any, texts: list[str], clean: Callable[[str], Any] = str.split
) -> None:
    """Compare the ids of texts and of pairs of texts, the texts of ids, and the special tokens.

    Texts of ids may have other spaces by default: transformers cleans them up.
    """
    ours = nn.text.load(directory)
    for text in texts:
        ids = theirs(text).input_ids
        assert ours.encode(text) == ids, text
        assert ours.encode(text, max_len=5) == theirs(text, truncation=True, max_length=5).input_ids
        assert ours.encode(text, "the cat") == theirs(text, "the cat").input_ids, text
        assert clean(ours.decode(ids)) == clean(theirs.decode(ids, skip_special_tokens=True)), text
    for name in ("bos", "eos", "pad"):
        assert getattr(ours, f"{name}_id") == getattr(theirs, f"{name}_token_id"), name


def assert_same_as_auto_tokenizer(directory: Path, model_type: str, settings: Any) -> None:
    """Write the settings, and compare the tokens of random texts."""
    (directory / "config.json").write_text(json.dumps({"model_type": model_type}))
    if settings:
        (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    assert_same_tokens(directory, theirs, random_texts(PARTS, 100))


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_byte_level_tokenizer_equals_transformers(tmp_path: Path, name: str) -> None:
    model_type, settings = BYTE_LEVEL[name]
    special = (
        [END, "<|padding|>"]
        if model_type in ("gpt2", "gpt_neox", "qwen2", "qwen3")
        else ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    )
    trained = tokenizers.ByteLevelBPETokenizer(add_prefix_space=False)
    trained.train_from_iterator(
        ["the cat sat on the mat"] * 5, vocab_size=280, special_tokens=special, show_progress=False
    )
    trained.save_model(str(tmp_path))
    assert_same_as_auto_tokenizer(tmp_path, model_type, settings)


def test_every_class_with_merges_is_compared() -> None:
    named = {x[1].get("tokenizer_class", "").removesuffix("Fast") for x in BYTE_LEVEL.values()}
    expected = {name for name, row in CLASSES.items() if row.files == ("vocab.json", "merges.txt")}
    assert named - {""} == expected - {"HerbertTokenizer"}


@pytest.mark.parametrize(
    "settings", [{}, {"tokenizer_class": "HerbertTokenizerFast"}, {"mask_token": "[MASK]"}]
)
def test_tokenizer_with_ends_of_words_equals_transformers(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    words = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        "<mask>",
        *"thecas,",
        *(f"{c}</w>" for c in "thecas,."),
    ]
    merges = [("t", "h"), ("th", "e</w>"), ("c", "a"), ("ca", "t</w>"), ("s", "a"), ("a", "t</w>")]
    vocab = dict.fromkeys([*words, *("".join(pair) for pair in merges), "[MASK]"])
    (tmp_path / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(vocab)}))
    (tmp_path / "merges.txt").write_text(
        "\n".join(["#version: 0.2", *map(" ".join, merges)]) + "\n"
    )
    settings = {"tokenizer_class": "HerbertTokenizer", **settings}
    assert_same_as_auto_tokenizer(tmp_path, "bert", settings)


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [
        ("bert", {}),
        ("bert", {"tokenizer_class": "BertTokenizer", "do_lower_case": False}),
        ("bert", {"tokenizer_class": "BertTokenizer", "strip_accents": False}),
        ("bert", {"tokenizer_class": "BertTokenizerFast", "tokenize_chinese_chars": False}),
        ("bert", {"tokenizer_class": "BertTokenizer", "cls_token": "<s>", "sep_token": "</s>"}),
        ("bert", {"tokenizer_class": "BertTokenizer", "unk_token": "the", "mask_token": {"__type": "AddedToken", "content": "[MASK]", "lstrip": True}}),
        ("distilbert", {"tokenizer_class": "DistilBertTokenizer"}),
        ("electra", {"tokenizer_class": "ElectraTokenizer"}),
        ("mobilebert", {"tokenizer_class": "MobileBertTokenizer"}),
        ("layoutlm", {"tokenizer_class": "LayoutLMTokenizer"}),
        ("convbert", {"tokenizer_class": "ConvBertTokenizer"}),
        ("lxmert", {"tokenizer_class": "LxmertTokenizer"}),
        ("squeezebert", {"tokenizer_class": "SqueezeBertTokenizer"}),
        ("mpnet", {"tokenizer_class": "MPNetTokenizer"}),
        ("mpnet", {}),
    ],
)  # fmt: skip
def test_word_piece_tokenizer_equals_transformers(
    tmp_path: Path, model_type: str, settings: dict[str, Any]
) -> None:
    pieces = [f"##{c}" for c in "thecaséü字"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<mask>"]
    words = [*special, *"theca.,!éÜü漢字", *pieces, "the", "cat"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    assert_same_as_auto_tokenizer(tmp_path, model_type, settings)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"add_bos_token": True, "bos_token": END},
        {"add_bos_token": False, "add_eos_token": True, "bos_token": END, "eos_token": END},
        {"add_bos_token": True},
        {"eos_token": "the"},
        {
            "pad_token": "[PAD]",
            "added_tokens_decoder": {"269": {"content": "[PAD]", "special": True}},
        },
        {"added_tokens_decoder": {"0": {"content": END, "special": False, "lstrip": True}}},
        {"extra_special_tokens": ["cat"]},
    ],
)
def test_tokenizer_json_with_settings_equals_transformers(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    trained = tokenizers.ByteLevelBPETokenizer(add_prefix_space=False)
    trained.train_from_iterator(
        ["the cat sat on the mat"] * 5, vocab_size=280, special_tokens=[END], show_progress=False
    )
    trained.save(str(tmp_path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **settings}
    assert_same_as_auto_tokenizer(tmp_path, "gpt2", settings)


SENTENCES = [
    "The cat sat on the mat.", "He doesn't know what she wants.", "  two  spaces ", "Ｆｕｌｌ width ½ ﬁ", "naïve café",
    "tab\tand\nnewline", "don’t…", "tie\u0302\u0301ng Vie\u0323\u0302t", "\u200bzero", "é̀", " ", "🙂🙂 ok",
]  # fmt: skip
FRENCH = [
    "Le chat est là.",
    "Comment vas-tu, mon ami ?",
    "漢字は難しい",
    "Il ne sait pas ce qu'elle veut.",
]


def test_marian_tokenizer_equals_transformers(tmp_path: Path) -> None:
    """vocab.json lacks some pieces, and has some of the target alone; language codes stand anywhere."""
    library = needs("sentencepiece")
    pieces = []
    for side, texts in (("source", SENTENCES[:4]), ("target", FRENCH)):
        path = tmp_path / side
        library.SentencePieceTrainer.train(
            sentence_iterator=iter(texts * 20), model_prefix=str(path), vocab_size=36,
            model_type="unigram", minloglevel=2,
        )  # fmt: skip
        path.with_suffix(".model").rename(path.with_suffix(".spm"))
        model = library.SentencePieceProcessor(model_file=f"{path}.spm")
        pieces += [model.id_to_piece(i) for i in range(36) if i % 7]
    words = dict.fromkeys(["</s>", "<unk>", *pieces, ">>fra<<", "漢字", "<pad>"])
    (tmp_path / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (tmp_path / "config.json").write_text('{"model_type": "marian"}')
    parts = [
        *"thecasond .,'?▁漢字難éq<>",
        ">>",
        "</s>",
        "<s>",
        "<unk>",
        "<pad>",
        "\n",
        "the ",
        "chat",
    ]
    mixed = random_texts([*parts, ">>fra<<", ">>deu<<"], 300)
    coded = [f">>{code}<<{text}" for code in ("fra", "deu") for text in mixed[:50]]
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    assert_same_tokens(tmp_path, theirs, SENTENCES + mixed + coded, str)
