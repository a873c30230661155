"""Tokenizers without tokenizer.json: vocab.txt, or vocab.json with merges.txt or source.spm.

These files do not contain all steps and special tokens. The rest follows transformers' classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from minigrad.check.extras import require
from minigrad.io.json import Settings, read_json
from minigrad.io.reading import printable, read_bytes, require_file

from .gguf_tables import PRE_TOKENIZERS
from .tokenize import library_errors

EXPECTED_FILES = (
    "expected it, or the tokenizer_class of vocab.txt, merges.txt or source.spm in "
    "tokenizer_config.json; transformers' AutoTokenizer and its save_pretrained make it of others"
)

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
_HERBERT = {name: _ROBERTA[name] for name in _BERT}


def _word_pieces(library: Any, directory: Path, settings: Settings) -> Any:
    """Return the tokenizer of vocab.txt."""
    vocab = library.models.WordPiece.read_file(str(directory / "vocab.txt"))
    unknown = settings.text("unk_token", "[UNK]")
    tokenizer = library.Tokenizer(library.models.WordPiece(vocab, unk_token=unknown))
    tokenizer.normalizer = library.normalizers.BertNormalizer(
        lowercase=settings.flag("do_lower_case", True),
        handle_chinese_chars=settings.flag("tokenize_chinese_chars", True),
        strip_accents=settings.flag("strip_accents", None),
    )
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = library.decoders.WordPiece()
    return tokenizer


def _bpe(library: Any, directory: Path, **options: Any) -> Any:
    """Return the BPE tokenizer of vocab.json and merges.txt, without other steps."""
    files = (str(directory / "vocab.json"), str(directory / "merges.txt"))
    vocab, merges = library.models.BPE.read_file(*files)
    return library.Tokenizer(library.models.BPE(vocab, merges, **options))


def _byte_level(
    library: Any, directory: Path, settings: Settings, nfc: bool = False, pre: str = ""
) -> Any:
    """Return a byte-level tokenizer with the rules of GPT-2, or of a row of `PRE_TOKENIZERS`."""
    tokenizer, steps = _bpe(library, directory), library.pre_tokenizers
    if nfc:
        tokenizer.normalizer = library.normalizers.NFC()
    prefix = settings.flag("add_prefix_space", False)
    patterns = PRE_TOKENIZERS[pre].patterns if pre else ()
    splits = [steps.Split(library.Regex(pattern), "isolated") for pattern in patterns]
    byte_level = steps.ByteLevel(add_prefix_space=prefix, use_regex=not splits)
    tokenizer.pre_tokenizer = steps.Sequence([*splits, byte_level])
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer


def _end_of_word(library: Any, directory: Path, settings: Settings) -> Any:
    """Return a BPE tokenizer whose tokens mark the end of a word by </w>, as that of HerBERT."""
    unknown = settings.text("unk_token", "<unk>")
    tokenizer = _bpe(library, directory, unk_token=unknown, end_of_word_suffix="</w>")
    tokenizer.normalizer = library.normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = library.decoders.BPEDecoder(suffix="</w>")
    return tokenizer


class Legacy(NamedTuple):
    """A class of transformers whose files this module reads."""

    make: Callable[[Any, Path, Settings], Any]  # from the library, the directory and the settings
    files: tuple[str, ...]
    special: Mapping[str, str]  # tokens that the settings may lack
    around: str = ""  # special tokens: "bert", "roberta", "eos", or "" for those of the settings
    mask_lstrip: bool = False  # the mask includes the spaces before it


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


def whole_tokens(library: Any, path: Path) -> Any:
    """Return a tokenizer of whole tokens with the ids of a JSON file, as Marian models have."""
    vocabulary = read_json(path)
    special = ["</s>", "<unk>", "<pad>"]
    ids = {token: vocabulary.integer(token, low=0) for token in vocabulary}
    if sorted(ids.values()) != list(range(len(ids))) or not ids.keys() >= set(special):
        raise ValueError(
            f"{vocabulary.where}: ids must be 0 to {len(ids) - 1}, and tokens include "
            f"{', '.join(special)}"
        )
    tokenizer = library.Tokenizer(library.models.WordLevel(ids, "<unk>"))
    tokenizer.post_processor = library.processors.TemplateProcessing(
        "$A </s>", "$A $B </s>", [("</s>", ids["</s>"])]
    )
    tokenizer.add_special_tokens(special)
    steps = library.decoders
    tokenizer.decoder = steps.Sequence([
        steps.Fuse(), steps.Replace("▁", " "), steps.Replace(library.Regex("^ +| +$"), ""),
    ])  # fmt: skip
    return tokenizer


def _marian(library: Any, directory: Path, _: Settings) -> Any:
    """Return the tokenizer of Marian models: pieces by source.spm, ids by vocab.json, then EOS.

    A text can begin with a token of the target language, such as ">>fra<<". Needs the package
    `sentencepiece`.

    References
    ----------
    Kudo, Richardson (2018), arXiv:1808.06226.
    """
    tokenizer = whole_tokens(library, directory / "vocab.json")
    model = _model_in(directory / "source.spm")

    def cut(_: int, text: Any) -> list[Any]:
        language, rest = re.findall("(?s)^(>>.*?<<)?(.*)", str(text))[0]
        pieces = model.encode(rest, out_type=str)
        return [library.NormalizedString(piece) for piece in (language, *pieces) if piece]

    step = SimpleNamespace(pre_tokenize=lambda text: text.split(cut))
    tokenizer.pre_tokenizer = library.pre_tokenizers.PreTokenizer.custom(step)
    return tokenizer


_VOCAB, _MERGES = ("vocab.txt",), ("vocab.json", "merges.txt")
CLASSES: dict[str, Legacy] = {
    **dict.fromkeys(
        ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer",
         "ConvBertTokenizer", "LayoutLMTokenizer", "LxmertTokenizer", "RetriBertTokenizer",
         "SqueezeBertTokenizer"),
        Legacy(_word_pieces, _VOCAB, _BERT, "bert"),
    ),
    "MPNetTokenizer": Legacy(
        _word_pieces, _VOCAB, _ROBERTA | {"unk_token": "[UNK]"}, "roberta", mask_lstrip=True
    ),
    "GPT2Tokenizer": Legacy(_byte_level, _MERGES, _GPT2),
    "GPTNeoXTokenizer": Legacy(
        partial(_byte_level, nfc=True), _MERGES, _GPT2 | {"pad_token": "<|padding|>"}
    ),
    **dict.fromkeys(
        ("RobertaTokenizer", "BartTokenizer", "LEDTokenizer", "LongformerTokenizer"),
        Legacy(_byte_level, _MERGES, _ROBERTA, "roberta"),
    ),
    "Qwen2Tokenizer": Legacy(
        partial(_byte_level, nfc=True, pre="qwen2"), _MERGES,
        dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<|endoftext|>"),
    ),
    "HerbertTokenizer": Legacy(_end_of_word, _MERGES, _HERBERT, "bert"),
    "MarianTokenizer": Legacy(
        _marian, ("vocab.json", "source.spm"), {"eos_token": "</s>", "pad_token": "<pad>"}, "eos"
    ),
}  # fmt: skip
"""Readers of files without tokenizer.json, by `tokenizer_class`."""
CLASS_OF_MODEL = {
    "bart": "BartTokenizer",
    "bert": "BertTokenizer",
    "distilbert": "DistilBertTokenizer",
    "electra": "ElectraTokenizer",
    "gpt2": "GPT2Tokenizer",
    "gpt_neox": "GPTNeoXTokenizer",
    "marian": "MarianTokenizer",
    "mpnet": "MPNetTokenizer",
    "opt": "GPT2Tokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer",
}
"""`tokenizer_class` of directories that do not have it, by `model_type` of config.json."""


def legacy_class(directory: Path, settings: Settings) -> Legacy:
    """Return the class that tokenizer_config.json or config.json names, or raise a ValueError."""
    named = settings.text("tokenizer_class", CLASS_OF_MODEL.get(settings.get("model_type") or ""))
    if named is None:
        require_file(directory / "tokenizer.json", EXPECTED_FILES)
    name = str(named).removesuffix("Fast")
    if name not in CLASSES:
        raise ValueError(
            f"{settings.where}: tokenizer_class must be one of {', '.join(CLASSES)} without "
            f"tokenizer.json, got {printable(named)}; transformers' AutoTokenizer and its "
            "save_pretrained write tokenizer.json"
        )
    return CLASSES[name]
