"""Words of pictures and graders in the language of the reader.

The environment variable `COURSE_LANGUAGE` sets the language; a Chinese notebook sets it in its first cell.
The build of the site makes `labels.mo` from the catalog in `docs/locale`. It runs each lesson once, with the language
"both": then texts are in both languages between marks, and `in_language` chooses.
"""

from __future__ import annotations

import functools
import gettext
import os
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

__all__ = ["in_each", "in_language", "label", "wrapped"]

START, BETWEEN, END = "\ue000\ue001\ue002"
PART = f"([^{START}{BETWEEN}{END}]*)"
INNERMOST = re.compile(START + PART + BETWEEN + PART + END)


def languages() -> list[str]:
    """Return the language of the reader, "en" or "zh"; both while the site is built."""
    chosen = os.environ.get("COURSE_LANGUAGE", "en")
    return ["en", "zh"] if chosen == "both" else [chosen[:2]]


def in_each(text_in: Callable[[str], str]) -> str:
    """Return the text that a function returns for the language of the reader, or both between marks."""
    texts = [text_in(language) for language in languages()]
    return START + BETWEEN.join(texts) + END if len(texts) > 1 else texts[0]


def in_language(text: str, language: str) -> str:
    """Return a text with one language in place of both."""
    while START in text:
        text = INNERMOST.sub(r"\2" if language == "zh" else r"\1", text)
    return text


@functools.cache
def _chinese() -> gettext.GNUTranslations:
    with Path(__file__).with_name("labels.mo").open("rb") as file:
        return gettext.GNUTranslations(file)


def _phrase(english: str, language: str) -> str:
    return _chinese().gettext(english) if language == "zh" else english


def label(english: str, *values: object, **named: object) -> str:
    """Return a phrase in the language of the reader, with values put into its braces."""
    return in_each(lambda language: _phrase(english, language).format(*values, **named))


def wrapped(english: str, width: int) -> str:
    """Return a phrase in the language of the reader, in lines of at most `width` characters."""
    return in_each(lambda language: textwrap.fill(_phrase(english, language), width))
