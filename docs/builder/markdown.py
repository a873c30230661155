"""Markdown and prose as HTML: formulas between dollar signs, code highlighted, tables with numbers to the right."""

from __future__ import annotations

import html
import re
from typing import Any

from formulas import mathml
from markdown_it import MarkdownIt
from pygments import highlight as _highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

__all__ = ["anchor", "code", "inline", "number", "render"]

_PRIME = "\ue002"  # of private use, as are the marks of formulas
_NUMBER = re.compile(r"^[-+−±~≈]?[\d.,]+(e[-+]?\d+)?\s*(%|×|ms|s|µs|MB|GB|KB)?$")


def code(text: str, language: str = "python") -> str:
    """A block of code, its words in colours."""
    shown = _highlight(text, get_lexer_by_name(language), HtmlFormatter(nowrap=True)).rstrip()
    shown = re.sub(
        r'<span class="(?:p|n|o|w|nb|bp|nn|vm|fm|na|nt|nv|gt|gr|gh|esc|err|l|x)">(.*?)</span>',
        r"\1",
        shown,
    )
    return f'<pre tabindex="0"><code>{shown}</code></pre>'


def anchor(title: str) -> str:
    """The id of a heading."""
    return re.sub(r"[^\w\u4e00-\u9fff]+", "-", re.sub(r"[$`*]", "", title).lower()).strip("-")


def number(text: str) -> bool:
    return bool(_NUMBER.match(re.sub(r"[*`]", "", text).strip()))


def _highlighted(text: str, language: str, _: Any) -> str:
    known = {"python": "python", "sh": "bash", "json": "json", "pycon": "pycon", "toml": "toml"}
    if language == "python" and text.startswith(">>>"):
        language = "pycon"
    return (
        code(text, known[language])
        if language in known
        else f'<pre tabindex="0"><code>{html.escape(text.rstrip())}</code></pre>'
    )


_READER = MarkdownIt(
    "commonmark", {"html": True, "highlight": _highlighted, "typographer": True}
).enable(["table", "smartquotes"])
_PROSE = MarkdownIt("commonmark", {"html": False, "typographer": True}).enable("smartquotes")


def _with_formulas(text: str) -> tuple[str, list[str]]:
    """The text with a mark in place of each formula, and the formulas; code is left alone."""
    found: list[str] = []

    def put(match: re.Match[str]) -> str:
        if match["code"]:
            return match["code"]
        block = match["block"] is not None
        found.append(mathml(match["block"] or match["tex"], block))
        if block:
            found[-1] = f'<div class="formula">{found[-1]}</div>'
        return f"\ue000{len(found) - 1}\ue001"

    pattern = r"(?P<code>```.*?```|`[^`\n]*`)|\$\$(?P<block>.+?)\$\$|(?<![A-Za-z0-9_\\$])\$(?P<tex>[^$\n]+?)\$(?![A-Za-z0-9_])"
    return re.sub(pattern, put, text, flags=re.DOTALL), found


def _put_back(page: str, formulas: list[str]) -> str:
    def formula(match: re.Match[str]) -> str:
        shown, after = formulas[int(match[1])], match[2]  # no line begins with what closes
        return f'<span class="whole">{shown}{after}</span>' if after else shown

    page = re.sub(r"<p>\ue000(\d+)\ue001</p>", lambda m: formulas[int(m[1])], page)
    return re.sub(r"\ue000(\d+)\ue001([，。、；：）》？！”’,.;:)?!]*)", formula, page)


def inline(text: str) -> str:
    """One paragraph of prose, without its <p>."""
    marked, formulas = _with_formulas(text)
    shown = _PROSE.renderInline(marked.replace("'", _PRIME))  # a ' may be a prime, as in d'
    return _links(_put_back(shown, formulas)).replace(_PRIME, "'")


def _links(page: str) -> str:
    """Links to Markdown files lead to their pages."""
    return re.sub(
        r'href="([\w/.-]+)\.md(#[^"]*)?"', lambda m: f'href="{m[1]}.html{m[2] or ""}"', page
    )


def _headings(page: str) -> str:
    def heading(match: re.Match[str]) -> str:
        level, title = match[1], match[2]
        name = anchor(html.unescape(re.sub(r"<[^>]+>", "", title)))
        return f'<h{level} id="{name}"><a class="self" href="#{name}">{title}</a></h{level}>'

    return re.sub(r"<h([23])>(.*?)</h\1>", heading, page)


def _tables(page: str) -> str:
    page = page.replace('<td style="text-align:right">', '<td class="number">')
    # where a long name may go on in a new line
    within = lambda found: re.sub(r"(?<=\w)([_.(,])(?=\w)", r"\1<wbr>", found[0])
    page = re.sub(r"<td>.*?</td>", lambda cell: re.sub(r"<code>.*?</code>", within, cell[0]), page)
    return page.replace("<table>", '<div class="table" tabindex="0"><table>').replace(
        "</table>", "</table></div>"
    )


def render(text: str) -> str:
    """A Markdown document as HTML."""
    marked, formulas = _with_formulas(text)
    page = _READER.render(marked)
    page = page.replace("<pre><code", '<pre tabindex="0"><code') if "<pre><code" in page else page
    page = re.sub(
        r'<pre><code[^>]*>(<pre tabindex="0">.*?</pre>)\s*</code></pre>',
        r"\1",
        page,
        flags=re.DOTALL,
    )
    return _links(_headings(_tables(_put_back(page, formulas))))
