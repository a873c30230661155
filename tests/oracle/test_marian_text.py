"""Marian's tokenizer as transformers has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nn

library = pytest.importorskip("sentencepiece", reason="Marian's folders need it")
pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")

TEXTS = [
    "The cat sat on the mat.", "How are you today, my friend?", "He doesn't know what she wants.", "It's 10 o'clock!",
    "  two  spaces ", "Ｆｕｌｌ width ½ ﬁ", "naïve café", "x", "日本語 text", "tab\tand\nnewline", "don’t…", "a" * 50,
    "tie\u0302\u0301ng Vie\u0323\u0302t", "\u03b9\u0308\u0301 \xbd\u0301x \xa0\u0941", "\u200bzero", "é̀", " ", "🙂🙂 ok",
]  # fmt: skip


def train(path: Path, texts: list[str], **options: Any) -> Any:
    """A model of 36 pieces in a file, as the library sees it."""
    made = path.with_suffix("")
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 20),
        model_prefix=str(made),
        model_type="unigram",
        minloglevel=2,
        **{"vocab_size": 36, **options},
    )
    made.with_suffix(".model").rename(path)
    return library.SentencePieceProcessor(model_file=str(path))


@pytest.mark.filterwarnings("ignore")
def test_marian_folders(tmp_path: Path) -> None:
    """Texts with pieces of the target alone, pieces that vocab.json lacks, languages in their place and elsewhere."""
    transformers = pytest.importorskip(
        "transformers", reason="Hugging Face's tokenizers are the oracle"
    )
    target = [
        "Le chat est là.",
        "Comment vas-tu, mon ami ?",
        "漢字は難しい",
        "Il ne sait pas ce qu'elle veut.",
    ]
    models = [
        train(tmp_path / f"{side}.spm", texts)
        for side, texts in (("source", TEXTS[:4]), ("target", target))
    ]
    words = [m.id_to_piece(i) for m in models for i in range(36) if i % 7]
    words = list(dict.fromkeys(["</s>", "<unk>", *words, ">>fra<<", "漢字", "<pad>"]))
    (tmp_path / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    ours, theirs = nn.text.load(tmp_path), transformers.MarianTokenizer.from_pretrained(tmp_path)
    parts = [
        *"thecasond .,'?▁漢字難éq<>",
        ">>fra<<",
        ">>deu<<",
        ">>",
        "</s>",
        "<s>",
        "<unk>",
        "<pad>",
        "\n",
        "the ",
        "chat",
    ]
    rng = np.random.default_rng(0)
    mixed = [
        "".join(parts[i] for i in rng.integers(len(parts), size=size))
        for size in rng.integers(20, size=300)
    ]
    for text in [
        *TEXTS,
        *mixed,
        *(f">>{code}<<{text}" for code in ("fra", "deu") for text in mixed[:50]),
    ]:
        ids = ours.encode(text)
        assert ids == theirs(text).input_ids and ours.encode(text, special=False) == ids[:-1], text
        assert (
            ours.encode(text, max_len=5) == theirs(text, truncation=True, max_length=5).input_ids
        ), text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
        assert ours.encode(text, "the cat") == theirs(text, "the cat").input_ids, text
