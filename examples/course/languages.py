"""Lessons in another language: the run is the same, its prose is looked up.

A lesson speaks English. What it says in Chinese stands in `zh/`, a file for each lesson, and `zh/common.txt` for the
words that all share. There each English text is quoted, and its translation follows:

    > {right} of {all} are right
    {all} 句中有 {right} 句正确

`{right}` stands for whatever the run put there; words in it are looked up too, but for those in `{right!}`, which are
data. `=` says that the text stays as it is. Formulas, code, numerals and placeholders must be the same on both sides.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from minigrad.io.reading import read_text

__all__ = ["LANGUAGES", "Catalogue", "catalogue", "preferred"]

LANGUAGES = ("en", "zh")
HERE = Path(__file__).parent

# What is prose in each kind of block; all else is the same in every language.
PROSE: dict[str, tuple[str, ...]] = {
    "title": ("text",),
    "usage": ("text",),
    "source": ("title", "author", "note"),
    "section": ("text",),
    "say": ("text",),
    "quote": (),
    "formula": ("tex", "note"),
    "code": ("note",),
    "value": ("name",),
    "table": ("header", "rows", "caption"),
    "listing": ("note",),
    "measured": ("text",),
    "predict": ("question", "answer"),
    "exercise": ("question", "answer"),
    "picture": ("caption", "alt"),
    "diagram": ("caption",),
    "explorer": ("caption",),
    "fact": ("text", "detail"),
    "erratum": ("text", "printed", "exact", "detail"),
    "end": ("text",),
}

_PLACEHOLDER = re.compile(
    r"(?<![A-Za-z0-9\\}^_])\{(\w+!?)\}"
)  # in a formula, braces follow a command, _, ^ or }
_FIXED = re.compile(
    r"`[^`]+`|\$[^$]+\$|(?<![A-Za-z0-9\\}^_])\{\w+!?\}|\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
)
_MARKED = re.compile(r"`[^`]+`|\$(?:(?!\\text)[^$])+\$")
_WORD = re.compile(r"[A-Za-z]{3,}|\b(?:an|as|at|be|by|in|is|it|no|of|on|or|to)\b")
_CHINESE = "\u2014\u2018-\u201d\u2026\u3000-\u303f\u3400-\u9fff\uff00-\uffef"


def preferred() -> str:
    """The language that the environment asks for, as gettext reads it."""
    asked = next(
        (os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), ""
    )
    return asked[:2] if asked[:2] in LANGUAGES else "en"


class Catalogue:
    """Texts and what they are in another language; without files, every text stays as it is."""

    def __init__(self, language: str = "en", files: Sequence[Path] = ()) -> None:
        self.language = language
        self.entries: dict[str, str] = {}
        self.of_file: dict[Path, list[str]] = {}
        for file in files:
            pairs = list(_pairs(file))
            if not pairs:
                raise ValueError(f"{file}: no translations in it")
            self.of_file[file] = [english for english, _ in pairs]
            self.entries.update(pairs)
        self.used: set[str] = set()
        self.missing: list[str] = []
        with_places = [text for text in self.entries if _PLACEHOLDER.search(text)]
        self._patterns = [
            (text, _pattern(text)) for text in sorted(with_places, key=_fixed_length, reverse=True)
        ]

    def text(self, english: str) -> str:
        """The text in this language; one with words in it that is not here is kept, and noted in `missing`."""
        if not self.entries or not english:
            return english
        found = self._find(" ".join(english.split()))
        if found is None:
            if _WORD.search(_MARKED.sub("", english)):
                self.missing.append(english)
            return english
        return found

    def _find(self, english: str) -> str | None:
        if english in self.entries:
            self.used.add(english)
            return self._filled(english, {})
        for template, pattern in self._patterns:
            if match := pattern.fullmatch(english):
                self.used.add(template)
                places = zip(_PLACEHOLDER.findall(template), match.groups())
                return self._filled(
                    template,
                    {p: value if p[-1] == "!" else self.text(value) for p, value in places},
                )
        return None

    def _filled(self, english: str, values: Mapping[str, str]) -> str:
        other = self.entries.get(english, "=") if self.entries else "="
        return _PLACEHOLDER.sub(
            lambda m: values.get(m[1], m[0]), english if other == "=" else other
        )

    def words(self, english: str, **values: Any) -> str:
        """A phrase of the frame around lessons, filled in; one that is not here is a ValueError."""
        if self.entries and english not in self.entries:
            raise ValueError(
                f"{', '.join(map(str, self.of_file))}: no {self.language} for {english!r}"
            )
        return self._filled(english, {name: str(value) for name, value in values.items()})

    def block(self, block: Mapping[str, Any]) -> dict[str, Any]:
        """A block of a lesson in this language."""
        if not self.entries:
            return dict(block)
        prose = set(PROSE[block["kind"]])
        if r"\text{" not in block.get("tex", ""):
            prose.discard("tex")
        other = {key: self._each(value) if key in prose else value for key, value in block.items()}
        if block["kind"] == "quote" and re.search("[\u3400-\u9fff]", block["text"]):
            other["english"] = ""  # the text itself can be read
        return other

    def _each(self, value: Any) -> Any:
        return [self._each(item) for item in value] if isinstance(value, list) else self.text(value)

    def problems(self) -> list[str]:
        """What is wrong with the files themselves: formulas, code, numbers or placeholders that differ; texts twice."""
        wrong = []
        for file, texts in self.of_file.items():
            wrong += [
                f"{file.name}: twice: {text}" for text, times in Counter(texts).items() if times > 1
            ]
            for english in texts:
                differ = set(_FIXED.findall(self.entries[english])) ^ set(_FIXED.findall(english))
                if self.entries[english] != "=" and differ:
                    wrong.append(
                        f"{file.name}: {', '.join(sorted(differ))} on one side only: {english}"
                    )
        return wrong

    def gaps(self, blocks: Sequence[Mapping[str, Any]], complete: bool = True) -> list[str]:
        """What the blocks of a lesson say that has no translation and, if they are `complete`, translations of what they do not say."""
        self.missing, self.used = [], set()
        for block in blocks:
            self.block(block)
        own = [
            text for file, texts in self.of_file.items() if file.stem != "common" for text in texts
        ]
        stale = [text for text in own if text not in self.used]
        wrong = []
        for text in dict.fromkeys(self.missing):
            near = get_close_matches(text, stale, 1, 0.6)
            wrong.append(
                f"no {self.language} for: {text}"
                + (f"; there is one for: {near[0]}" if near else "")
            )
        return wrong + ([f"no longer said: {text}" for text in stale] if complete else [])


def catalogue(lesson: str, language: str) -> Catalogue:
    """The texts of a lesson, by the name of its script, e.g. "00_autodiff"."""
    if language not in LANGUAGES:
        raise ValueError(f"language {language!r}: expected one of {', '.join(LANGUAGES)}")
    if language == "en":  # as lessons speak
        return Catalogue()
    common, own = (HERE / language / f"{name}.txt" for name in ("common", lesson))
    return Catalogue(
        language, [common, own] if own != common and os.path.lexists(own) else [common]
    )


def _pairs(file: Path) -> Iterator[tuple[str, str]]:
    """Each quoted text of a file, and the lines below it."""
    quoted: list[str] = []
    other: list[str] = []
    for line in [*read_text(file).splitlines(), ">"]:
        if line.startswith(">") and other:
            yield " ".join(" ".join(quoted).split()), _joined(other)
            quoted, other = [], []
        if line.startswith(">"):
            quoted.append(line[1:])
        elif line.strip() and not line.startswith("# "):
            if not quoted:
                raise ValueError(
                    f"{file}: expected a line with > and the English text before: {line:.80}"
                )
            other.append(line.strip())
    if any(map(str.strip, quoted)):
        raise ValueError(f"{file}: no translation below: {' '.join(quoted):.80}")


def _joined(lines: Sequence[str]) -> str:
    """Lines as one; Chinese needs no space between them."""
    return re.sub(f"(?<=[{_CHINESE}])\n(?=[{_CHINESE}])", "", "\n".join(lines)).replace("\n", " ")


def _fixed_length(template: str) -> int:
    return len(_PLACEHOLDER.sub("", template))


def _pattern(template: str) -> re.Pattern[str]:
    """What a template matches: its words, and anything for a placeholder."""
    return re.compile("(.+?)".join(map(re.escape, _PLACEHOLDER.split(template)[::2])), re.DOTALL)
