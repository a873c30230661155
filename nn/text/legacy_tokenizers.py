"""Tokenizers without tokenizer.json: vocab.txt, or vocab.json with merges.txt or source.spm.

These files do not contain all steps and special tokens. The rest follows transformers' classes.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from minigrad.check.extras import require
from minigrad.io.json import Settings, read_if_any, read_json
from minigrad.io.reading import read_bytes

from .tokenize import library_errors

_BERT = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
_GPT2 = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
_ROBERTA = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}


def wordpiece_tokenizer(library: Any, directory: Path, settings: Settings) -> Any:
    """Return BERT's tokenizer from vocab.txt; add its special tokens to the settings."""
    tokenizer = library.BertWordPieceTokenizer(
        str(directory / "vocab.txt"),
        lowercase=settings.flag("do_lower_case", True),
        handle_chinese_chars=settings.flag("tokenize_chinese_chars", True),
        strip_accents=settings.flag("strip_accents", None),
    )._tokenizer
    _add_tokens(tokenizer, directory, settings, _BERT)
    return tokenizer


def byte_level_tokenizer(library: Any, directory: Path, settings: Settings) -> Any:
    """Return the tokenizer of GPT-2, RoBERTa or BART from vocab.json and merges.txt.

    Its special tokens are added to the settings.
    """
    tokenizer = library.ByteLevelBPETokenizer(
        str(directory / "vocab.json"),
        str(directory / "merges.txt"),
        add_prefix_space=settings.flag("add_prefix_space", False),
    )._tokenizer
    model_type = read_if_any(directory / "config.json").text("model_type", "")
    kind = settings.text("tokenizer_class", model_type).lower()
    is_roberta = kind.startswith(("roberta", "bart", "longformer", "led"))
    ids = _add_tokens(tokenizer, directory, settings, _ROBERTA if is_roberta else _GPT2)
    if is_roberta:
        sep = settings.text("sep_token")
        cls = settings.text("cls_token")
        tokenizer.post_processor = library.processors.RobertaProcessing(
            (sep, ids[sep]), (cls, ids[cls]), add_prefix_space=False
        )
    elif settings.flag("add_bos_token", False):
        bos = settings.text("bos_token")
        tokenizer.post_processor = library.processors.TemplateProcessing(
            f"{bos} $A", f"{bos} $A {bos} $B", [(bos, ids[bos])]
        )
    return tokenizer


def _add_tokens(
    tokenizer: Any, directory: Path, settings: Settings, defaults: dict[str, str]
) -> dict[str, int]:
    """Add the tokens of added_tokens.json, mark the special ones, and return their ids."""
    added = read_if_any(directory / "added_tokens.json")
    for token in sorted(added, key=lambda token: added.integer(token)):
        tokenizer.add_tokens([token])
        if (token_id := tokenizer.token_to_id(token)) != added[token]:
            added.fail(token, f"{token_id}, its id after the vocabulary")
    for name, token in defaults.items():
        if settings.get(name) is None and tokenizer.token_to_id(token) is not None:
            settings[name] = token
    vocab = tokenizer.get_vocab()
    special = [settings.text(name) for name in _ROBERTA if settings.get(name)]
    ids = {token: vocab[token] for token in special if token in vocab}
    tokenizer.add_special_tokens(list(ids))
    return ids


def _model_in(path: Path) -> Any:
    """Return the SentencePiece model of a file."""
    library = require("sentencepiece", "a tokenizer with source.spm")
    data = read_bytes(path)
    with library_errors(f"{path}: not a SentencePiece model"):
        model = library.SentencePieceProcessor(model_proto=data)
        model.encode("one")
    if any(map(model.is_byte, range(model.get_piece_size()))):
        raise ValueError(
            f"{path}: pieces for bytes are not supported; use a model without byte_fallback"
        )
    return model


def marian_tokenizer(library: Any, directory: Path, settings: Settings) -> Any:
    """Return the tokenizer of Marian models: pieces by source.spm, ids by vocab.json, then EOS.

    A text can begin with a token of the target language, such as ">>fra<<". Needs the package
    `sentencepiece`. Special tokens are added to `settings`.

    References
    ----------
    Kudo, Richardson (2018), arXiv:1808.06226.
    """
    for name, token in {"eos_token": "</s>", "pad_token": "<pad>"}.items():
        settings[name] = settings.text(name, token)
    vocabulary = read_json(directory / "vocab.json")
    special = ["</s>", "<unk>", "<pad>"]
    ids = {token: vocabulary.integer(token, low=0) for token in vocabulary}
    if sorted(ids.values()) != list(range(len(ids))) or not ids.keys() >= set(special):
        raise ValueError(
            f"{vocabulary.where}: ids must be 0 to {len(ids) - 1}, and tokens include "
            f"{', '.join(special)}"
        )
    model = _model_in(directory / "source.spm")

    def cut(_: int, text: Any) -> list[Any]:
        language, rest = re.findall("(?s)^(>>.*?<<)?(.*)", str(text))[0]
        pieces = model.encode(rest, out_type=str)
        return [library.NormalizedString(piece) for piece in (language, *pieces) if piece]

    step = SimpleNamespace(pre_tokenize=lambda text: text.split(cut))
    tokenizer = library.Tokenizer(library.models.WordLevel(ids, "<unk>"))
    tokenizer.pre_tokenizer = library.pre_tokenizers.PreTokenizer.custom(step)
    tokenizer.post_processor = library.processors.TemplateProcessing(
        "$A </s>", "$A $B </s>", [("</s>", ids["</s>"])]
    )
    tokenizer.add_special_tokens(special)
    steps = library.decoders
    tokenizer.decoder = steps.Sequence([
        steps.Fuse(), steps.Replace("▁", " "), steps.Replace(library.Regex("^ +| +$"), ""),
    ])  # fmt: skip
    return tokenizer
