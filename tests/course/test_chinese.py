"""Chinese translations: the terms of the table are used everywhere."""

from __future__ import annotations

import re

import numpy as np
from support.environment import needs
from support.scripts import EXAMPLES

read_po = needs("babel.messages.pofile").read_po
LOCALE = EXAMPLES.parent / "docs" / "locale" / "zh_CN" / "LC_MESSAGES"


def terms() -> dict[str, str]:
    """Return the Chinese of each English term in the table of terms."""
    page = (EXAMPLES.parent / "docs" / "terms.md").read_text(encoding="utf-8")
    found = {}
    for chinese, english in re.findall(
        r"^\| ([^|]*[\u4e00-\u9fff]) \| ([a-z][^|]*) \|", page, re.M
    ):
        names = english.split(", ")
        found |= dict(
            zip(names, chinese.split("、") if "、" in chinese else [chinese] * len(names))
        )
    return found


def test_translations_use_the_terms_of_the_table() -> None:
    """Three of five translations of a term are those of the table; others may read better."""
    plain = lambda text: re.sub(r"`[^`]*`|\$[^$]*\$|\{\w+!?\}", "", text)
    texts = []
    for path in LOCALE.glob("statements_*.po"):
        with path.open("rb") as file:
            texts += [(str(m.id), str(m.string)) for m in read_po(file) if m.id]
    counted = 0
    for english, chinese in terms().items():
        word = re.compile(rf"(?<![-\w]){english}s?(?![-\w])", re.I)
        found = [chinese in translated for text, translated in texts if word.search(plain(text))]
        counted += len(found) > 4
        assert len(found) < 5 or np.mean(found) >= 0.6, (
            f"{english} is {chinese} in {sum(found)} of {len(found)} places"
        )
    assert len(terms()) > 40 and counted > 15
