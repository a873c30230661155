"""Formulas as MathML, docstrings as reStructuredText, and the search in Chinese."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.search.zh import SearchChinese


def write_math(block: bool) -> Any:
    """Return what writes a formula of its own line, or inside one, as MathML."""

    def write(translator: Any, node: nodes.Element) -> None:
        found = mathml(node.astext(), block)
        translator.body.append(f'<div class="formula">{found}</div>' if block else found)
        raise nodes.SkipNode

    return write


def mathml(tex: str, block: bool = False) -> str:
    """Return a formula as MathML, with a space after names of functions such as log."""
    found = convert(plain_tex(tex), display="block" if block else "inline")
    name = r"<mi>[a-z]{3,}</mi>"
    function = rf"(?<!<msub>){name}|<msub>{name}<mn>\d+</mn></msub>"
    return re.sub(rf"({function})(?=<m(?:i|n|sub|sup))", r'\1<mspace width="0.17em"/>', found)


def plain_tex(tex: str) -> str:
    r"""Replace the shorthands \softmax and \R."""
    return re.sub(r"\\softmax\b", r"\\operatorname{softmax}", re.sub(r"\\R\b", r"\\mathbb{R}", tex))


def mark_code(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Mark indented blocks before the first section of a docstring as code."""
    end = next((i for i, line in enumerate(lines) if re.fullmatch("-{3,}", line)), len(lines))
    for i in reversed(range(2, end)):
        if lines[i].startswith("    ") and not lines[i - 1]:
            before = next((line for line in reversed(lines[:i]) if line), "")
            if not before.startswith((" ", "- ", ">>>")) and not before.endswith("::"):
                lines[i:i] = ["::", ""]


def _escape_type(match: re.Match[str]) -> str:
    return re.sub(r"(?<!\\)[*|]", r"\\\g<0>", match[0])


def escape(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape the asterisks and bars of formulas in docstrings, which reStructuredText reads as marks."""
    code = None  # the indent above a block of code
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if code is not None and line and indent <= code:
            code = None
        if code is None and not line.lstrip().startswith((">>>", "...")):
            names = re.fullmatch(r"( *\*\*)(.+?)(\*\*(?: : .*)?)", line)  # numpydoc's bold names
            before, text, after = names.groups() if names else ("", line, "")
            pieces = re.split(r"(`[^`]*`|\*\*\w[^*]*\*\*)", text)
            pieces[::2] = [re.sub(r"(?<!\\)[*|]", r"\\\g<0>", piece) for piece in pieces[::2]]
            lines[i] = before + "".join(pieces) + re.sub(r"(?<= : )(.*)", _escape_type, after)
        if line.rstrip().endswith("::"):
            code = indent


def name_parts(app: Any, page: str, _: str, context: dict[str, Any], tree: Any) -> None:
    """Complete the HTML of a page.

    The menu's headings have a level, the toggles of code a name, pictures a link to their file, to enlarge it, and
    formulas keep the punctuation that follows them.
    """
    menu = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = menu.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )
    if "body" in context:
        hidden = ' aria-label="Toggle hidden content"'
        body = context["body"].replace(f"<summary{hidden}>", "<summary>")
        picture = r'(?<!">)(<img (?![^>]*sd-card)[^>]*src="([^"]+\.svg)"[^>]*>)'
        body = re.sub(picture, r'<a href="\2">\1</a>', body)
        # a line may not begin with the comma after a formula
        formula = (
            r'(<math [^>]*display="inline">(?:(?!</math>).)*</math>)([，。；：、？！”）,.;:?!)]+)'
        )
        context["body"] = re.sub(formula, r'<span class="unbroken">\1\2</span>', body)


class ChineseSearch(SearchChinese):
    """Search in Chinese with the English stemmer, the one whose script `SearchChinese` has."""

    language_name = "English"
