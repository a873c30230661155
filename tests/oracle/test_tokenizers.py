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
}  # fmt: skip
PARTS = [
    *"the cat sat ,.!éÜ漢字🙂\n", "the", " cat", "  ", END, "<s>", "</s>", "<pad>", "<mask>", "[MASK]", "[SEP]",
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
    special = [END] if model_type == "gpt2" else ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained = tokenizers.ByteLevelBPETokenizer(add_prefix_space=False)
    trained.train_from_iterator(
        ["the cat sat on the mat"] * 5, vocab_size=280, special_tokens=special, show_progress=False
    )
    trained.save_model(str(tmp_path))
    assert_same_as_auto_tokenizer(tmp_path, model_type, settings)


@pytest.mark.parametrize(
    "settings", [{}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}]
)  # fmt: skip
def test_word_piece_tokenizer_equals_transformers(tmp_path: Path, settings: dict[str, Any]) -> None:
    pieces = [f"##{c}" for c in "thecaséü字"]
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"theca.,!éÜü漢字",
        *pieces,
        "the",
        "cat",
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    assert_same_as_auto_tokenizer(
        tmp_path, "bert", {"tokenizer_class": "BertTokenizer", **settings}
    )


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
