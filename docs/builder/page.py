"""The frame that every page has: a bar, the menu, the content, a footer."""

from __future__ import annotations

import functools
import html
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from languages import catalogue

from minigrad.io.reading import found_file

__all__ = ["Page", "menu", "words", "write"]

FOOTER = "minigrad: automatic differentiation and Transformers in plain NumPy."
ASSETS = Path(__file__).parent.parent / "assets"


@dataclass
class Page:
    """A page of the site: where it is, where it stands in the menu, and what is on it."""

    path: str  # from the root of the site, e.g. "course/00.html"
    title: str
    group: str
    content: str
    short: str = ""  # what the menu calls it
    language: str = "en"
    files: dict[str, bytes] = field(
        default_factory=dict
    )  # what stands beside it, by path from the root
    note: str = ""  # what its foot says besides

    @property
    def up(self) -> str:
        """The way from this page to the root."""
        return "../" * self.path.count("/")


def menu(pages: list[Page], here: Page) -> str:
    """Links to all pages in the language of this one."""
    groups: dict[str, list[Page]] = {}
    for page in pages:
        if page.group and page.language == here.language:
            groups.setdefault(page.group, []).append(page)
    parts = []
    for group, members in groups.items():
        current = {True: ' aria-current="page"', False: ""}
        items = "".join(
            f'<li><a href="{here.up}{page.path}"{current[page is here]}>{html.escape(page.short or page.title)}</a></li>'
            for page in members
        )
        parts.append(f"<h2>{html.escape(group)}</h2><ul>{items}</ul>")
    return "".join(parts)


def _turn(pages: list[Page], here: Page) -> str:
    """Links to the page before and after, within a group."""
    group = [page for page in pages if page.group == here.group]
    at = group.index(here)
    links = [
        f'<a href="{here.up}{group[i].path}">{arrow.format(html.escape(group[i].short or group[i].title))}</a>'
        if 0 <= i < len(group) else "<span></span>"
        for i, arrow in ((at - 1, "← {}"), (at + 1, "{} →"))
    ]  # fmt: skip
    label = words(here.language)("previous and next")
    return (
        f'<nav class="turn" aria-label="{label}">{"".join(links)}</nav>' if len(group) > 1 else ""
    )


def _switch(pages: list[Page], here: Page) -> str:
    """A link to this page in the other language, or to the first page in it."""
    language, name = ("zh", "中文") if here.language == "en" else ("en", "English")
    others = [page for page in pages if page.language == language]
    same = Path(here.path).name
    there = next(
        (page for page in others if Path(page.path).name == same), others[0] if others else None
    )
    return (
        f'<a lang="{language}" hreflang="{language}" href="{here.up}{there.path}">{name}</a>'
        if there
        else ""
    )


@functools.cache
def words(language: str) -> Callable[..., str]:
    """What gives the phrases of the frame in a language."""
    return catalogue("common", language).words


def document(pages: list[Page], here: Page) -> str:
    """The whole HTML of a page."""
    up, say = here.up, words(here.language)
    home = next((page.path for page in pages if page.language == here.language), "index.html")
    name = "minigrad" if here.title == "minigrad" else f"{here.title} · minigrad"
    return f"""<!DOCTYPE html>
<html lang="{here.language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(name)}</title>
<link rel="stylesheet" href="{up}assets/style.css">
<link rel="icon" href="{up}assets/icon.svg">
</head>
<body>
<a class="skip" href="#content">{say("Skip to the content")}</a>
<div class="frame">
<header class="bar"><a class="name" href="{up}{home}">minigrad</a>{_switch(pages, here)}<button id="theme" type="button">{say("light / dark")}</button></header>
<nav class="site" aria-label="{say("pages")}"><details><summary>{say("All pages")}</summary>{menu(pages, here)}</details></nav>
<main id="content">
{here.content}
{_turn(pages, here) if here.group else ""}
<footer>{say(FOOTER)} {here.note}</footer>
</main>
</div>
<script src="{up}assets/site.js"></script>
</body>
</html>
"""


def write(pages: list[Page], out: Path) -> None:
    """All pages, and what they need, below `out`."""
    for page in pages:
        for path, content in {page.path: document(pages, page).encode(), **page.files}.items():
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_bytes(content)
    (out / "assets").mkdir(exist_ok=True)
    for asset in ASSETS.iterdir():
        (out / "assets" / asset.name).write_bytes(found_file(asset).read_bytes())
