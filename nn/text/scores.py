"""How near translations come to their references: BLEU and chrF, by sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minigrad.extras import require

__all__ = ["Scores", "translation_scores"]


@dataclass(frozen=True)
class Scores:
    """BLEU (Papineni et al. 2002) and chrF (Popović 2015), 0 to 100, each with sacrebleu's
    signature.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


def translation_scores(
    translations: Sequence[str],
    references: Sequence[str | Sequence[str]],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> Scores:
    """The scores of translations, each with one reference or several.

    `tokenize` is sacrebleu's: "13a" for the text of European languages, "zh" for Chinese, "none"
    where both sides are tokenized already (published figures on tokenized text are to be compared
    with these alone). `lowercase` ignores case.
    """
    metrics = require("sacrebleu.metrics", "BLEU")
    if not translations:
        raise ValueError("translation_scores: no translations")
    if len(translations) != len(references):
        raise ValueError(
            f"translation_scores: {len(translations)} translations, but {len(references)} "
            "references"
        )
    lists = [[r] if isinstance(r, str) else list(r) for r in references]
    if empty := [i for i, some in enumerate(lists) if not some]:
        raise ValueError(f"translation_scores: translation {empty[0]} has no reference")
    columns = [[r[i] if i < len(r) else None for r in lists] for i in range(max(map(len, lists)))]
    bleu = metrics.BLEU(
        tokenize=tokenize, lowercase=lowercase, force=True
    )  # force: no warning about tokenized text
    chrf = metrics.CHRF(lowercase=lowercase)
    scores = [metric.corpus_score(list(translations), columns).score for metric in (bleu, chrf)]
    return Scores(scores[0], str(bleu.get_signature()), scores[1], str(chrf.get_signature()))
