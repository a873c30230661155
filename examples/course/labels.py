"""Words of pictures and graders in the language of the reader.

The environment variable `COURSE_LANGUAGE` sets the language; a Chinese notebook sets it in its first cell.
The build of the site makes `labels.mo` from the catalog in `docs/locale`.
"""

from __future__ import annotations

import functools
import gettext
import os
from pathlib import Path

__all__ = ["label", "language"]


def language() -> str:
    """Return the language of the reader, "en" or "zh"."""
    return os.environ.get("COURSE_LANGUAGE", "en")[:2]


@functools.cache
def _chinese() -> gettext.GNUTranslations:
    with Path(__file__).with_name("labels.mo").open("rb") as file:
        return gettext.GNUTranslations(file)


def label(english: str, *values: object, **named: object) -> str:
    """Return a phrase in the language of the reader, with values put into its braces."""
    phrase = _chinese().gettext(english) if language() == "zh" else english
    return phrase.format(*values, **named)
