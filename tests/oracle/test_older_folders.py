"""Tokenizers of folders without tokenizer.json, as transformers' classes complete them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nn

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")
transformers = pytest.importorskip(
    "transformers", reason="Hugging Face's tokenizers are the oracle"
)

END = "<|endoftext|>"
ROBERTA = {"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "unk_token": "<unk>",
           "pad_token": "<pad>", "mask_token": "<mask>"}  # fmt: skip
OPT = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
BYTES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": (
        "gpt2",
        {"tokenizer_class": "GPT2Tokenizer", "bos_token": END, "eos_token": END, "unk_token": END},
    ),
    "opt": ("opt", {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, **OPT}),
    "roberta": ("roberta", {"tokenizer_class": "RobertaTokenizer", **ROBERTA}),
    "bart": ("bart", {"tokenizer_class": "BartTokenizer", **ROBERTA}),
    "roberta, told by its model": ("roberta", {}),
    "gpt2, told by its model": ("gpt2", {}),
}
WORDS = {"bert": {}, "cased": {"do_lower_case": False}, "accents": {"strip_accents": False},
         "whole Chinese": {"tokenize_chinese_chars": False}}  # fmt: skip
PARTS = [
    *"the cat sat ,.!éÜ漢字🙂\n",
    "the",
    " cat",
    "  ",
    END,
    "<s>",
    "</s>",
    "<pad>",
    "<mask>",
    "[MASK]",
    "[SEP]",
]


def check(path: Path) -> None:
    """The same ids of random texts, one or two in a row, and the same texts of these ids."""
    ours, theirs = nn.text.load(path), transformers.AutoTokenizer.from_pretrained(path)
    rng = np.random.default_rng(0)
    texts = [
        "".join(PARTS[i] for i in rng.integers(len(PARTS), size=n))
        for n in rng.integers(0, 12, 100)
    ]
    for text in texts:
        ids = theirs(text).input_ids
        assert ours.encode(text) == ids, text
        assert ours.encode(text, "the cat") == theirs(text, "the cat").input_ids, text
        decoded = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=True)
        assert ours.decode(ids).split() == decoded.split(), text
    for name in ("bos", "eos", "pad"):
        token = getattr(theirs, f"{name}_token_id")
        assert getattr(ours, f"{name}_id") == token, name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BYTES)
def test_byte_level(tmp_path: Path, name: str) -> None:
    model, settings = BYTES[name]
    made = tokenizers.ByteLevelBPETokenizer(add_prefix_space=False)
    special = [END] if model == "gpt2" else ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made.train_from_iterator(
        ["the cat sat on the mat"] * 5, vocab_size=280, special_tokens=special, show_progress=False
    )
    made.save_model(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model}))
    if settings:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    check(tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WORDS)
def test_words(tmp_path: Path, name: str) -> None:
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"theca.,!éÜü漢字",
        *(f"##{c}" for c in "thecaséü字"),
        "the",
        "cat",
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", **WORDS[name]})
    )
    check(tmp_path)
