"""A lesson: what is asked, what a text says of it, what was computed, and whether they agree.

Each numbered script of this folder is a lesson. Its calls (`say`, `formula`, `code`, `fact`, `picture` ...) print it in a
terminal, and keep what they printed as blocks; `--record DIR` writes these, and docs/build.py makes a page of them. So
the page and the terminal show one run. A lesson ends with the count of statements that were checked; one that does
not hold makes it fail.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))  # for what the other examples use too

import stoppable  # noqa: F401 (first: Ctrl-C is one line from here on)

# isort: split
import argparse
import inspect
import re
import shutil
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any

import languages
import numpy as np
import terminal
from corpora import chinese_english

from minigrad import MissingExtraError
from minigrad.console import begun
from minigrad.io.atomic import write_bytes
from minigrad.io.json import write_json
from nn.inspection.style import style

__all__ = ["Lesson", "chinese_english", "fastest"]


def _arguments(name: str, about: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=terminal.plain(about), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs") / name, metavar="DIR", help="where pictures go"
    )
    parser.add_argument("--no-pictures", action="store_true", help="draw nothing")
    parser.add_argument(
        "--section",
        default="",
        metavar="WORDS",
        help="show only sections with these words in the title",
    )
    parser.add_argument("--list", action="store_true", help="list the sections and stop")
    parser.add_argument("--answers", action="store_true", help="show the answers of the exercises")
    parser.add_argument(
        "--width", type=int, metavar="N", help="columns (default: those of the terminal)"
    )
    parser.add_argument(
        "--colour",
        choices=["auto", "always", "never"],
        default="auto",
        help="colours in the terminal",
    )
    parser.add_argument(
        "--lang",
        choices=languages.LANGUAGES,
        default=languages.preferred(),
        help="language (default: by LANG, or en)",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="DIR",
        help="write the blocks of the lesson for docs/build.py",
    )
    return parser.parse_args(argv)


def _sections(path: str) -> list[str]:
    """The titles in the source of a lesson, in their order."""
    source = Path(path).read_text(encoding="utf-8")
    return [
        found[1]
        for found in re.finditer(r"""\.section\(\s*[rf]?("|')(.*?)\1\s*\)""", source)
        for found in [found.groups()]
    ]


class Lesson:
    """Tells a lesson as it goes, and counts what it checks.

    `section`, `say`, `formula`, `code`, `quote`, `show`, `table`, `listing` and `picture` tell; `numbers` and `fact`
    check a statement; `erratum` one where the text and the computation differ; `measured` shows a time, which is
    never checked; `predict` and `exercise` ask; `end` closes.
    """

    def __init__(self, name: str, about: str, argv: Sequence[str] | None = None) -> None:
        begun()
        args = _arguments(name, about, argv)
        script = sys._getframe(1).f_code.co_filename
        self.words = languages.catalogue(Path(script).stem, args.lang)
        if args.list:
            print("\n".join(terminal.plain(self.words.text(title)) for title in _sections(script)))
            raise SystemExit(0)
        self.name = name
        self.out: Path = args.record or args.out
        self.draws = not args.no_pictures
        self.record: Path | None = args.record
        self.only, self.answers = args.section.lower(), args.answers
        self.blocks: list[dict[str, Any]] = []
        self.checked = self.corrected = 0
        self.failed: list[str] = []
        colour = args.colour == "always" or (args.colour == "auto" and terminal.has_colour())
        width = args.width or min(shutil.get_terminal_size((100, 24)).columns, 110)
        self.terminal = terminal.Terminal(max(30, width), colour, args.answers, self.words)
        self._in_section = not self.only
        title, _, rest = textwrap.dedent(about).strip().partition("\n")
        self._add("title", text=title)
        for paragraph in filter(None, re.split(r"\n\s*\n", rest.strip())):
            self._add(
                "usage" if paragraph.startswith("    ") else "say",
                text=_one_line(paragraph) if paragraph[:4] != "    " else paragraph.strip(),
            )

    def _add(self, kind: str, **content: Any) -> None:
        """Keep a block, and print it in the language that is wanted."""
        self.blocks.append({"kind": kind, **content})
        shown = self.words.block(self.blocks[-1])
        if kind == "section" and self.only:
            titles = (terminal.plain(title).lower() for title in (content["text"], shown["text"]))
            self._in_section = any(self.only in title for title in titles)
        if self._in_section or kind == "title":
            print(self.terminal.show(shown))

    # -- telling ---------------------------------------------------------------------------------------

    def source(self, title: str, author: str, file: str, url: str = "", note: str = "") -> None:
        """The text that the lesson follows: its title, who wrote it, its file here, the original where one is known."""
        self._add("source", title=title, author=author, file=file, url=url, note=_one_line(note))

    def section(self, title: str) -> None:
        self._add("section", text=title)

    def say(self, text: str) -> None:
        """A paragraph of our own; `code`, *emphasis* and $formulas$ may stand in it."""
        self._add("say", text=_one_line(text))

    def quote(self, text: str, english: str = "") -> None:
        """What the text says, in its words, and in English."""
        self._add("quote", text=_one_line(text), english=_one_line(english))

    def formula(self, tex: str, note: str = "") -> None:
        """A formula by itself, and what its letters mean."""
        self._add("formula", tex=tex, note=_one_line(note))

    def code(self, *what: Any, note: str = "") -> None:
        """The source of functions or classes that this lesson runs."""
        sources = [
            textwrap.dedent(item if isinstance(item, str) else inspect.getsource(item)).strip()
            for item in what
        ]
        self._add("code", text="\n\n".join(sources), note=_one_line(note))

    def show(self, name: str, value: Any, digits: int = 4) -> None:
        """A value that was computed, with its shape."""
        array = np.asarray(getattr(value, "data", value))
        with np.printoptions(precision=digits, suppress=True, linewidth=96, threshold=60):
            self._add("value", name=name, shape=list(array.shape), text=str(array))

    def table(
        self, header: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = ""
    ) -> None:
        """Rows of cells below a header."""
        self._add(
            "table",
            header=[str(cell) for cell in header],
            rows=[[str(cell) for cell in row] for row in rows],
            caption=caption,
        )

    def listing(self, text: str, note: str = "") -> None:
        """Lines as they are."""
        self._add("listing", text=textwrap.dedent(text).strip("\n"), note=_one_line(note))

    def measured(self, statement: str) -> None:
        """A time or a speed of this run. It depends on the machine, so nothing is asserted of it."""
        self._add("measured", text=_one_line(statement))

    def predict(self, question: str, answer: str) -> None:
        """A question to answer before looking on, and the answer."""
        self._add("predict", question=_one_line(question), answer=_one_line(answer))

    def exercise(self, question: str, answer: str) -> None:
        """Something to try; the answer is hidden (`--answers` shows it)."""
        self._add("exercise", question=_one_line(question), answer=_one_line(answer))

    def picture(
        self, name: str, draw: Callable[[Path], Any], caption: str = "", alt: str = ""
    ) -> None:
        """`draw(path)` saves a picture; without matplotlib, or with --no-pictures, that is said."""
        if not self.draws:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        path = (self.out / name).with_suffix(".svg" if self.record else ".png")
        try:
            with style(for_page=self.record is not None):
                draw(path)
            self._add(
                "picture",
                file=path.name,
                path=str(path),
                caption=_one_line(caption),
                alt=_one_line(alt),
            )
        except MissingExtraError as error:
            self._add("say", text=f"No picture: {error}")
        except OSError as error:  # a full disk names no file
            raise OSError(error.errno, error.strerror, str(path)) from None

    def diagram(self, name: str, caption: str) -> None:
        """One of the drawings of docs/builder/diagrams.py; a terminal has its caption."""
        self._add("diagram", name=name, caption=_one_line(caption))

    def explorer(self, page: str, caption: str) -> None:
        """A page to explore the weights of attention in, as `nn.explore` makes it."""
        if not self.draws:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / "explorer.html"
        write_bytes(path, page.encode())
        self._add("explorer", file=path.name, path=str(path), caption=_one_line(caption))

    # -- checking --------------------------------------------------------------------------------------

    def numbers(self, statement: str, computed: Any, printed: Any, digits: int = 4) -> None:
        """The text prints these numbers, rounded to so many digits after the point."""
        found, expected = (np.asarray(getattr(v, "data", v), float) for v in (computed, printed))
        gap = float(np.abs(found - expected).max()) if found.shape == expected.shape else np.inf
        same = gap <= 0.5 * 10.0**-digits * (1 + 1e-6) + 1e-12
        value = _few(found, digits)
        value = (
            ""
            if not value or all(word in statement for word in re.findall(r"[\d.]+", value))
            else f"{value}, "
        )
        detail = (
            f"{value}to {digits} digits"
            if same
            else f"largest gap {gap:.3g}: here {found}, there {expected}"
        )
        self._check("fact", statement, same, detail=detail)

    def fact(self, statement: str, true: Any, found: str = "") -> None:
        """The text claims this; `found` is what was seen."""
        self._check("fact", statement, true, detail=_one_line(found))

    def erratum(self, statement: str, printed: str, exact: str, true: Any, why: str) -> None:
        """The text prints one thing and the exact value is another; `true` if `why` explains it."""
        self.corrected += 1
        self._check("erratum", statement, true, printed=printed, exact=exact, detail=_one_line(why))

    def _check(self, kind: str, statement: str, true: Any, **content: str) -> None:
        self.checked += 1
        if not bool(true):
            self.failed.append(statement)
        self._add(kind, text=_one_line(statement), holds=bool(true), **content)

    def end(self) -> int:
        """The last line, and the exit status: 0 if all agree."""
        for statement in self.failed:
            print(f"does not agree: {statement}", file=sys.stderr)
        corrected = f" ({self.corrected} with a correction that is noted)" if self.corrected else ""
        verdict = "all agree" if not self.failed else f"{len(self.failed)} DO NOT AGREE"
        self._in_section = True
        self._add("end", text=f"{self.checked} statements checked{corrected}: {verdict}.")
        for text in self.words.missing:
            print(f"no {self.words.language} for: {text}", file=sys.stderr)
        if self.record:
            content = {
                "name": self.name,
                "checked": self.checked,
                "corrected": self.corrected,
                "failed": self.failed,
            }
            write_json(self.record / "lesson.json", {**content, "blocks": self.blocks})
        return 1 if self.failed else 0


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _few(array: np.ndarray, digits: int) -> str:
    """The numbers of a small array on one line; nothing of a large one."""
    if array.size > 12:
        return ""
    if not array.ndim:
        return f"{float(array):.8g}"
    with np.printoptions(precision=digits, suppress=True, linewidth=1000):
        return _one_line(str(array)).replace("[ ", "[").replace(" ]", "]")


def fastest(*runs: Callable[[], Any], rounds: int = 15) -> list[float]:
    """The shortest time of each, in seconds; they take turns, so that whatever else runs disturbs all alike."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, taken in zip(runs, times):
            began = time.perf_counter()
            run()
            taken.append(time.perf_counter() - began)
    return [min(taken) for taken in times]
