"""SentencePiece models as its own library cuts text up with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nn
from nn.text.sentencepiece import pieces_of, sentencepiece_segmenter

library = pytest.importorskip("sentencepiece", reason="SentencePiece is the oracle; it is not installed")
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
        sentence_iterator=iter(texts * 20), model_prefix=str(made), model_type="unigram", minloglevel=2,
        **{"vocab_size": 36, **options},
    )  # fmt: skip
    made.with_suffix(".model").rename(path)
    return library.SentencePieceProcessor(model_file=str(path))


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nmt_nfkc_cf", "identity"])
def test_pieces(tmp_path: Path, rule: str) -> None:
    theirs = train(tmp_path / "m.model", TEXTS[:4], normalization_rule_name=rule)
    pieces, settings = pieces_of(tmp_path / "m.model")
    assert [p for p, *_ in pieces] == [theirs.id_to_piece(i) for i in range(theirs.get_piece_size())]
    assert [kind for *_, kind in pieces].index(2) == theirs.unk_id() and settings["model_type"] == 1
    ours = sentencepiece_segmenter(tmp_path / "m.model")
    for text in TEXTS:
        assert ours(text) == theirs.encode(text, out_type=str), text


SCRIPTS = [
    "The house is small, hahaha!!! so... aaa", "Дом маленький, но уютный", "这个房子很小,但是很漂亮。", "البيت صغير وجميل",
    "घर छोटा और सुंदर है", "บ้านหลังเล็ก", "το σπίτι είναι μικρό", "집은 작고 아름답다", "Nhà nhỏ và đẹp lắm", "Ⅷ ½ ﬁ № ①",
]  # fmt: skip


def test_random_texts_of_many_scripts(tmp_path: Path) -> None:
    """With marks that combine, and with letters again and again, of which equally likely pieces can be made."""
    theirs = train(tmp_path / "m.model", SCRIPTS, vocab_size=200, hard_vocab_limit=False)
    ours, rng = sentencepiece_segmenter(tmp_path / "m.model"), np.random.default_rng(0)
    marks = "\u0301\u0302\u0308\u0304\u0323\u0345\u0342\u200d\xa0\u3000\u2028\ufeff▁🙂"
    parts = [*"".join(SCRIPTS), *marks, *marks, "ha", "aa", "..", "!!!", "  ", "Ⅷ", *" ".join(SCRIPTS).split()]
    for size in rng.integers(1, 25, 2000):
        text = "".join(parts[i] for i in rng.integers(len(parts), size=size))
        assert ours(text) == theirs.encode(text, out_type=str), ascii(text)


@pytest.mark.filterwarnings("ignore")
def test_marian_folders(tmp_path: Path) -> None:
    """Texts with pieces of the target alone, pieces that vocab.json lacks, languages in their place and elsewhere."""
    transformers = pytest.importorskip("transformers", reason="Hugging Face's tokenizers are the oracle")
    target = ["Le chat est là.", "Comment vas-tu, mon ami ?", "漢字は難しい", "Il ne sait pas ce qu'elle veut."]
    models = [train(tmp_path / f"{side}.spm", texts) for side, texts in (("source", TEXTS[:4]), ("target", target))]
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
    mixed = ["".join(parts[i] for i in rng.integers(len(parts), size=size)) for size in rng.integers(20, size=300)]
    for text in [*TEXTS, *mixed, *(f">>{code}<<{text}" for code in ("fra", "deu") for text in mixed[:50])]:
        ids = ours.encode(text)
        assert ids == theirs(text).input_ids and ours.encode(text, special=False) == ids[:-1], text
        assert ours.encode(text, max_len=5) == theirs(text, truncation=True, max_length=5).input_ids, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
        assert ours.encode(text, "the cat") == theirs(text, "the cat").input_ids, text
