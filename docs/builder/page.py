"""The frame that every page has: a bar, the menu, the content, a footer."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Page", "menu", "write"]

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
    files: dict[str, bytes] = field(default_factory=dict)  # what stands beside it, by path from the root

    @property
    def up(self) -> str:
        """The way from this page to the root."""
        return "../" * self.path.count("/")


def menu(pages: list[Page], here: Page) -> str:
    groups: dict[str, list[Page]] = {}
    for page in pages:
        if page.group:
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
    return f'<nav class="turn" aria-label="previous and next">{"".join(links)}</nav>' if len(group) > 1 else ""


def document(pages: list[Page], here: Page) -> str:
    """The whole HTML of a page."""
    up = here.up
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
<a class="skip" href="#content">Skip to the content</a>
<div class="frame">
<header class="bar"><a class="name" href="{up}index.html">minigrad</a><button id="theme" type="button">light / dark</button></header>
<nav class="site" aria-label="pages"><details><summary>All pages</summary>{menu(pages, here)}</details></nav>
<main id="content">
{here.content}
{_turn(pages, here) if here.group else ""}
<footer>minigrad: automatic differentiation and Transformers in plain NumPy. Every number on these pages was computed
when they were built.</footer>
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
        (out / "assets" / asset.name).write_bytes(asset.read_bytes())
