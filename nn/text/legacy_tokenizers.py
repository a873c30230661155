"""Tokenizers of directories without tokenizer.json: vocab.txt, or vocab.json and merges.txt.

The steps and special tokens that these files do not contain are those of transformers' classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minigrad.extras import require
from minigrad.io.json import Settings, read_if_any

__all__ = ["byte_level_tokenizer", "wordpiece_tokenizer"]

_BERT = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
_GPT2 = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
_ROBERTA = {
    "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>", "pad_token": "<pad>",
    "cls_token": "<s>", "mask_token": "<mask>",
}  # fmt: skip


def wordpiece_tokenizer(directory: Path, settings: Settings) -> Any:
    """Return BERT's tokenizer from vocab.txt; add its special tokens to the settings."""
    library = require("tokenizers", "the tokenizer of a published model")
    tokenizer = library.BertWordPieceTokenizer(
        str(directory / "vocab.txt"),
        lowercase=settings.flag("do_lower_case", True),
        handle_chinese_chars=settings.flag("tokenize_chinese_chars", True),
        strip_accents=settings.flag("strip_accents", None),
    )._tokenizer
    _add_tokens(tokenizer, directory, settings, _BERT)
    return tokenizer


def byte_level_tokenizer(directory: Path, settings: Settings) -> Any:
    """Return the tokenizer of GPT-2, RoBERTa or BART from vocab.json and merges.txt.

    Its special tokens are added to the settings.
    """
    library = require("tokenizers", "the tokenizer of a published model")
    tokenizer = library.ByteLevelBPETokenizer(
        str(directory / "vocab.json"),
        str(directory / "merges.txt"),
        add_prefix_space=settings.flag("add_prefix_space", False),
    )._tokenizer
    model = read_if_any(directory / "config.json").text("model_type", "")
    kind = settings.text("tokenizer_class", model).lower()
    marks = kind.startswith(("roberta", "bart", "longformer", "led"))
    ids = _add_tokens(tokenizer, directory, settings, _ROBERTA if marks else _GPT2)
    if marks:
        sep, cls = (
            (settings.text(name), ids[settings.text(name)]) for name in ("sep_token", "cls_token")
        )
        tokenizer.post_processor = library.processors.RobertaProcessing(
            sep, cls, add_prefix_space=False
        )
    elif settings.flag("add_bos_token", False):
        bos = settings.text("bos_token")
        tokenizer.post_processor = library.processors.TemplateProcessing(
            f"{bos} $A", f"{bos} $A {bos} $B", [(bos, ids[bos])]
        )
    return tokenizer


def _add_tokens(
    tokenizer: Any, directory: Path, settings: Settings, usual: dict[str, str]
) -> dict[str, int]:
    """Add the tokens of added_tokens.json, mark the special ones, and return their ids."""
    added = read_if_any(directory / "added_tokens.json")
    for token in sorted(added, key=lambda token: added.integer(token)):
        tokenizer.add_tokens([token])
        if tokenizer.token_to_id(token) != added[token]:
            added.fail(token, f"{tokenizer.token_to_id(token)}, its place behind the vocabulary")
    for name, token in usual.items():
        if settings.get(name) is None and tokenizer.token_to_id(token) is not None:
            settings[name] = token
    special = dict.fromkeys(settings.text(name) for name in _ROBERTA if settings.get(name))
    ids = {token: tokenizer.token_to_id(token) for token in special}
    ids = {token: i for token, i in ids.items() if i is not None}
    tokenizer.add_special_tokens(list(ids))
    return ids
