"""Translation scores: BLEU and chrF, by sacrebleu."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from minigrad.check.extras import require

__all__ = ["Scores", "translation_scores"]


@dataclass(frozen=True)
class Scores:
    """Scores from 0 to 100, each with sacrebleu's signature.

    Parameters
    ----------
    bleu : float
        Papineni et al. (2002).
    bleu_signature : str
        Version and settings of sacrebleu's BLEU.
    chrf : float
        Popović (2015).
    chrf_signature : str
        Version and settings of sacrebleu's chrF.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


def is_wide(texts: Sequence[str]) -> bool:
    """Return whether the first 1,000 texts are Chinese or Japanese, which have no spaces."""
    sample = "".join(texts[:1000])
    wide = [c for c in sample if unicodedata.east_asian_width(c) in "WF"]
    return sum(not unicodedata.name(c, "").startswith("HANGUL") for c in wide) > 0.2 * len(sample)


def has_no_spaces(texts: Sequence[str]) -> bool:
    """Return whether the first 1,000 texts are Thai, Lao, Burmese or Khmer, without spaces."""
    sample = "".join(texts[:1000])
    return len(re.findall("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]", sample)) > 0.2 * len(sample)


def bleu_tokenizer(references: Sequence[str]) -> str:
    """Return the tokenizer of BLEU for the script of references: "zh", or else "13a"."""
    return "zh" if is_wide(references) else "13a"


def translation_scores(
    translations: Sequence[str],
    references: Sequence[str | Sequence[str]],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> Scores:
    """Compute the BLEU and chrF of translations, with their signatures.

    Parameters
    ----------
    translations : sequence of str
        Sentences to score.
    references : sequence of str, or of sequences of str
        One reference for each translation, or several.
    tokenize : str, default "13a"
        Tokenizer of sacrebleu: "13a" for European languages, "zh" for Chinese, "none" if both sides
        are tokenized already. Published figures on tokenized text compare with the latter only.
    lowercase : bool, default False
        Ignore case.
    """
    metrics = require("sacrebleu.metrics", "BLEU")
    if not translations:
        raise ValueError("translation_scores: translations must not be empty")
    if len(translations) != len(references):
        raise ValueError(
            f"translation_scores: references must be as many as translations "
            f"({len(translations)}), got {len(references)}"
        )
    rows = [[r] if isinstance(r, str) else list(r) for r in references]
    if [] in rows:
        raise ValueError(
            "translation_scores: references must have at least one for each translation, got none "
            f"for translation {rows.index([])}"
        )
    columns = [list(column) for column in zip_longest(*rows)]
    # force: no warning about tokenized text
    bleu = metrics.BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    chrf = metrics.CHRF(lowercase=lowercase)
    scores = [metric.corpus_score(list(translations), columns).score for metric in (bleu, chrf)]
    return Scores(scores[0], str(bleu.get_signature()), scores[1], str(chrf.get_signature()))
