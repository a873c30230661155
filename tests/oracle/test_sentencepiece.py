"""SentencePiece models as its own library cuts text up with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nn.text.sentencepiece import pieces_of, sentencepiece_tokenizer

library = pytest.importorskip("sentencepiece", reason="SentencePiece is the oracle; it is not installed")
pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")

TEXTS = [
    "The cat sat on the mat.", "How are you today, my friend?", "He doesn't know what she wants.", "It's 10 o'clock!",
    "  two  spaces ", "Ｆｕｌｌ width ½ ﬁ", "naïve café", "x", "日本語 text", "tab\tand\nnewline", "don’t…", "a" * 50,
    "\u200bzero", "é̀", " ", "🙂🙂 ok",
]  # fmt: skip


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nmt_nfkc_cf", "identity"])
def test_pieces(tmp_path: Path, rule: str) -> None:
    (tmp_path / "text").write_text("\n".join(TEXTS[:4] * 20), encoding="utf-8")
    library.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), vocab_size=36, model_type="unigram",
        normalization_rule_name=rule, minloglevel=2,
    )  # fmt: skip
    theirs = library.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    pieces, settings = pieces_of(tmp_path / "m.model")
    assert [p for p, _ in pieces] == [theirs.id_to_piece(i) for i in range(theirs.get_piece_size())]
    assert settings["unk_id"] == theirs.unk_id()
    ours = sentencepiece_tokenizer(tmp_path / "m.model")
    for text in TEXTS:
        assert ours.encode(text, add_special_tokens=False).tokens == theirs.encode(text, out_type=str), text
