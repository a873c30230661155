"""The blocks of a lesson as lines of a terminal: any width, with colours or without."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import unicodedata
from typing import Any

from formulas import text as formula_text
from languages import Catalogue

__all__ = ["Terminal", "differing", "has_colour", "plain", "sentence", "wrapped"]

_CODES = {
    "bold": "1",
    "soft": "2",
    "good": "32",
    "bad": "31",
    "differs": "33",
    "head": "1;36",
    "code": "35",
    "ask": "1;34",
}
_KEPT = "\u00a0"  # a space at which no line is broken
_OPENS, _CLOSES = "“‘（《「【〈", "”’，。、；：？！）》」】〉…—"
_INLINE = re.compile(
    r"\$([^$]+)\$|`([^`]+)`|(?<![A-Za-z0-9_*])\*([^*\s][^*]*)\*(?![A-Za-z0-9_*])|\[([^\]]+)\]\(([^)]+)\)"
)


def has_colour() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def columns(text: str) -> int:
    """How many columns a text takes."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def plain(text: str, space: str = " ") -> str:
    """Prose without its marks: formulas as text, links by their words; `space` stands within a short formula."""

    def bare(found: re.Match[str]) -> str:
        tex, code, emphasis, words, _ = found.groups()
        if not tex:
            return code or emphasis or words
        shown = formula_text(tex)
        return shown.replace(" ", space) if len(shown) < 20 else shown

    return _INLINE.sub(bare, text)


def sentence(text: str) -> str:
    """A text that begins with an English word begins with a capital; names of code and formulas stay as they are."""
    begins = re.match(r"([a-z]{2,}|a)([ ,:;]|$)", text) and not re.search(
        "[\u3400-\u9fff]", text[:12]
    )
    return text[0].upper() + text[1:] if begins else text


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> str:
    """Lines of at most `width` columns; Chinese may break anywhere, but no line begins with what closes, nor ends with what opens."""
    words = re.findall(
        rf"[ \t\n]+|[{_OPENS}]*[\u3400-\u9fff][{_CLOSES}]*|[^ \t\n\u3400-\u9fff]+?(?=[{_OPENS}]*[\u3400-\u9fff]|[ \t\n]|$)",
        text,
    )
    lines, line = [], first
    for word in words:
        if columns(line) + columns(word) > width and line.strip() and line not in (first, rest):
            lines.append(line.rstrip())
            line = rest
        if not (word.isspace() and line in (first, rest)):
            line += word
    return "\n".join([*lines, line.rstrip()]).replace(_KEPT, " ")


def differing(printed: str, exact: str) -> list[tuple[str, bool]]:
    """The exact value in pieces, each with whether it differs from what was printed: numbers from their first wrong digit."""
    number = re.compile(r"-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")
    ours, theirs = number.findall(exact), number.findall(printed)
    if not ours or len(ours) != len(theirs):
        return [(exact, True)]
    pieces, at = [], 0
    for found, other in zip(number.finditer(exact), theirs):
        same = 0
        while same < min(len(found[0]), len(other)) and found[0][same] == other[same]:
            same += 1
        if float(found[0].replace(",", "")) == float(other.replace(",", "")):
            same = len(found[0])
        pieces += [(exact[at : found.start() + same], False), (found[0][same:], True)]
        at = found.end()
    return [(text, differs) for text, differs in [*pieces, (exact[at:], False)] if text]


class Terminal:
    """Shows blocks; `colour` says whether escape codes are wanted, `catalogue` has the words between them."""

    def __init__(
        self, width: int, colour: bool, answers: bool, catalogue: Catalogue | None = None
    ) -> None:
        self.width, self.colour, self.answers = width, colour, answers
        self.words = (catalogue or Catalogue()).words
        self._blank = False  # whether the last block ended with an empty line

    def show(self, block: dict[str, Any]) -> str:
        """A block as lines; where two meet, one blank line is enough."""
        shown = getattr(self, f"_{block['kind']}")(
            **{k: v for k, v in block.items() if k != "kind"}
        )
        self._blank, before = shown.endswith("\n"), self._blank
        return shown[1:] if before and shown.startswith("\n") else shown

    def paint(self, text: str, name: str) -> str:
        if not self.colour or not text:
            return text
        return "\n".join(f"\x1b[{_CODES[name]}m{line}\x1b[0m" for line in text.split("\n"))

    def wrap(self, text: str, first: str = "", rest: str | None = None) -> str:
        return wrapped(plain(text, _KEPT), self.width, first, first if rest is None else rest)

    def _title(self, text: str) -> str:
        return self.paint(self.wrap(text), "bold")

    def _source(self, title: str, author: str, file: str, url: str, note: str) -> str:
        where = "The text: {title}, {author} ({file}). {note}"
        if url:
            where = "The text: {title}, {author} ({file}). {note} The original: {url}"
        text = self.words(where, title=title, author=author, file=file, url=url, note=note)
        return self.paint(self.wrap(text.strip()), "soft")

    def _section(self, text: str) -> str:
        line = f"── {plain(text)} "
        if columns(line) > self.width:
            return "\n" + self.paint(self.wrap(text, "── ", "   "), "head")
        return "\n" + self.paint(line + "─" * (self.width - columns(line)), "head")

    def _say(self, text: str) -> str:
        return "\n" + self.wrap(text)

    def _usage(self, text: str) -> str:
        command, _, note = text.partition("  ")
        if columns(text) + 4 > self.width and note:
            return (
                "\n"
                + self.paint(f"    {command}", "code")
                + "\n"
                + self.wrap(note.strip(), "        ")
            )
        return "\n" + self.paint(textwrap.indent(text, "    "), "code")

    def _quote(self, text: str, english: str) -> str:
        quoted = self.wrap(f"“{text}”", "  │ ")
        return "\n" + self.paint(
            quoted + ("\n" + self.wrap(english, "  │ ") if english else ""), "soft"
        )

    def _formula(self, tex: str, note: str) -> str:
        shown = formula_text(tex)
        if any(columns(line) + 6 > self.width for line in shown.split("\n")):
            shown = shown.replace("    ", "\n")  # what stood side by side stands below each other
        lines = textwrap.indent(shown, "      ")
        return (
            "\n"
            + self.paint(lines, "bold")
            + ("\n" + self.wrap(note, "      ") if note else "")
            + "\n"
        )

    def _code(self, text: str, note: str) -> str:
        head = self.wrap(note, "  ") + "\n" if note else ""
        return "\n" + head + self.paint(textwrap.indent(text, "    "), "code") + "\n"

    def _value(self, name: str, shape: list[int], text: str) -> str:
        name = plain(name)
        if "\n" not in text and columns(name) + columns(text) + 5 <= self.width:
            return f"  {name} = {text}"
        return (
            f"{self.wrap(f'{name}  {tuple(shape)}', '  ', '    ')}\n{textwrap.indent(text, '    ')}"
        )

    def _table(self, header: list[str], rows: list[list[str]], caption: str) -> str:
        cells = [[plain(cell) for cell in row] for row in rows]
        titles = [[plain(cell)] for cell in header]
        numeric = [
            all(re.match(r"^[-+±]?[\d.,]+", row[i]) or not row[i] for row in cells)
            for i in range(len(header))
        ]
        widths = [
            max(columns(row[i]) for row in [*cells, titles[i] * len(header)])
            for i in range(len(header))
        ]
        if sum(widths) + 2 * len(widths) > self.width:  # titles take several lines
            for i in range(len(header)):
                below = max((columns(row[i]) for row in cells), default=0)
                titles[i] = wrapped(titles[i][0], max(below, 8)).split("\n")
                widths[i] = max(below, *map(columns, titles[i]))
        above = max(map(len, titles))
        lines = [
            [([""] * (above - len(title)) + title)[at] for title in titles] for at in range(above)
        ]

        def cell(text: str, i: int) -> str:
            space = " " * (widths[i] - columns(text))
            return space + text if numeric[i] else text + space

        shown = [
            "  " + "  ".join(cell(text, i) for i, text in enumerate(row)).rstrip()
            for row in [*lines, *cells]
        ]
        shown.insert(above, "  " + "  ".join("─" * w for w in widths))
        return "\n" + "\n".join([*([self.wrap(caption, "  ")] if caption else []), *shown]) + "\n"

    def _listing(self, text: str, note: str) -> str:
        lines = (wrapped(line, self.width, "    ", "      ") for line in text.split("\n"))
        return (self.wrap(note, "  ") + "\n" if note else "") + "\n".join(lines)

    def _measured(self, text: str) -> str:
        return self.wrap(text, "  ⏱ ", "    ")

    def _predict(self, question: str, answer: str) -> str:
        return (
            "\n"
            + self.paint(
                self.wrap(self.words("Predict: {question}", question=question), "  ? ", "    "),
                "ask",
            )
            + "\n"
            + self.wrap(self.words("Look: {answer}", answer=answer), "    ")
        )

    def _exercise(self, question: str, answer: str) -> str:
        asked = self.paint(
            self.wrap(self.words("Exercise: {question}", question=question), "  ? ", "    "), "ask"
        )
        shown = (
            self.wrap(self.words("Answer: {answer}", answer=answer), "    ")
            if self.answers
            else self.paint(f"    {self.words('(--answers shows the answer)')}", "soft")
        )
        return f"\n{asked}\n{shown}"

    def _picture(self, file: str, path: str, caption: str, alt: str) -> str:
        return self.wrap(
            self.words("picture: {path}", path=path) + (f" — {caption}" if caption else ""),
            "  ",
            "    ",
        )

    def _explorer(self, file: str, path: str, caption: str) -> str:
        return self.wrap(self.words("page: {path}", path=path) + f" — {caption}", "  ", "    ")

    def _diagram(self, name: str, caption: str) -> str:
        return self.paint(
            self.wrap(
                self.words("(A drawing on the page of this lesson: {caption})", caption=caption),
                "  ",
            ),
            "soft",
        )

    def _fact(self, text: str, holds: bool, detail: str) -> str:
        mark = self.paint("✓", "good") if holds else self.paint("✗", "bad")
        lines = self.wrap(f"{text}{f' — {detail}' if detail else ''}", "  ✓ ", "    ")
        return lines.replace("✓", mark, 1)

    def _erratum(self, text: str, holds: bool, printed: str, exact: str, detail: str) -> str:
        line = self.words(
            "{text} — the text: {printed}; computed: {exact}. {detail}",
            text=text, printed=printed, exact=exact, detail=sentence(detail),
        )  # fmt: skip
        lines = self.wrap(line, "  ≠ ", "    ")
        for piece, differs in differing(plain(printed), plain(exact)) if self.colour else []:
            if differs:
                lines = lines.replace(piece, self.paint(piece, "differs"), 1)
        return lines if holds else lines.replace("≠", self.paint("✗", "bad"), 1)

    def _end(self, text: str) -> str:
        return "\n" + self.wrap(text)
