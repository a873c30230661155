r"""Formulas, written once in a small part of TeX, shown in two ways: as text for a terminal, as MathML for a page.

    text(r"\frac{QK^\top}{\sqrt{d_k}}")     ->  QKᵀ / √dₖ
    mathml(r"\frac{QK^\top}{\sqrt{d_k}}")   ->  <math>…</math>

Known are letters, numbers, operators, `^` and `_`, `{…}`, \frac, \sqrt, \text, \mathrm, \operatorname, \hat, \bar,
\left and \right, the environments pmatrix, cases and aligned, and the names in SYMBOLS. What is not known is an error.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

__all__ = ["FormulaError", "mathml", "text"]


class FormulaError(ValueError):
    """A formula that this small part of TeX does not know."""


LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eta": "η", "theta": "θ", "lambda": "λ",
    "mu": "μ", "pi": "π", "sigma": "σ", "phi": "φ", "omega": "ω", "Delta": "Δ", "Sigma": "Σ", "Phi": "Φ",
    "partial": "∂", "infty": "∞", "ell": "ℓ", "nabla": "∇", "R": "ℝ",
}  # fmt: skip
OPERATORS = {
    "cdot": "·", "times": "×", "le": "≤", "ge": "≥", "ne": "≠", "approx": "≈", "to": "→", "leftarrow": "←", "in": "∈", "sum": "∑",
    "prod": "∏", "dots": "…", "cdots": "⋯", "mid": "|", "Vert": "‖", "pm": "±", "mapsto": "↦", "odot": "⊙", "top": "ᵀ",
    "prime": "′", "lfloor": "⌊", "rfloor": "⌋", "int": "∫", "sim": "∼", "equiv": "≡", "ll": "≪", "gg": "≫", "bar": "|",
}  # fmt: skip
SPACES = {"quad": "1em", "qquad": "2em", ",": "0.17em", ";": "0.28em", " ": "0.25em"}
NAMES = {"softmax", "sin", "cos", "tan", "tanh", "exp", "log", "ln", "max", "min", "arg"}
SYMBOLS = {*LETTERS, *OPERATORS, *SPACES, *NAMES}
LARGE = {"∑", "∏"}

_RAISED = dict(
    zip(
        "0123456789+-=()abcdefghijklmnoprstuvwxyzTβ′*ᵀ",
        "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᵀᵝ′*ᵀ",
    )
)
_LOWERED = dict(zip("0123456789+-=()aehijklmnoprstuvxβγ", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓᵦᵧ"))


@dataclass
class Node:
    """A part of a formula: its kind, its own text, its parts."""

    kind: str  # row, letter, number, operator, name, text, space, frac, sqrt, script, accent, fence, table
    value: str = ""
    parts: list[Node | None] = field(default_factory=list)
    rows: list[list[Node]] = field(default_factory=list)


# -- reading -------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s+|\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|.", re.DOTALL)


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = [t for t in _TOKEN.findall(source) if not t.isspace()]
        self.at = 0

    def wrong(self, why: str) -> FormulaError:
        return FormulaError(f"{self.source!r}: {why}")

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise self.wrong(f"expected {expected or 'more'}, got {token or 'the end'}")
        self.at += 1
        return token

    def row(self, *ends: str) -> Node:
        parts: list[Node | None] = []
        while self.peek() and self.peek() not in ends:
            parts.append(self.scripted())
        if ends and self.peek() not in ends:
            raise self.wrong(f"expected {' or '.join(ends)}")
        return Node("row", parts=parts)

    def group(self) -> Node:
        if self.peek() != "{":
            return self.atom()
        self.take("{")
        row = self.row("}")
        self.take("}")
        return row

    def words(self) -> str:
        """The characters of a group as they stand, with their spaces."""
        start = self.source.index("{", self._place())
        end = self.source.index("}", start)
        self.take("{")
        while self.peek() != "}":
            self.take()
        self.take("}")
        return self.source[start + 1 : end]

    def _place(self) -> int:
        """Where in the source the token to come begins."""
        place = 0
        for token in self.tokens[: self.at]:
            place = self.source.index(token, place) + len(token)
        return place

    def scripted(self) -> Node:
        base, sub, sup = self.atom(), None, None
        while self.peek() in ("_", "^", "'"):
            mark = self.take()
            if mark == "_":
                sub = self.group()
            elif mark == "'":
                sup = Node("operator", (sup.value if sup else "") + "′")
            else:
                sup = self.group()
        return base if sub is None and sup is None else Node("script", parts=[base, sub, sup])

    def atom(self) -> Node:
        token = self.peek()
        if token == "{":
            return self.group()
        self.take()
        if token in ("}", "&"):
            raise self.wrong(f"unexpected {token}")
        if token[0] == "\\":
            return self.command(token[1:])
        if token[0].isdigit():
            return Node("number", token)
        if token.isalpha():
            return Node("letter", token)
        return Node("operator", {"-": "−", "*": "∗"}.get(token, token))

    def command(self, name: str) -> Node:
        if name in ("frac",):
            return Node("frac", parts=[self.group(), self.group()])
        if name == "sqrt":
            return Node("sqrt", parts=[self.group()])
        if name in ("text", "mathrm", "operatorname"):
            return Node("text" if name == "text" else "name", self.words())
        if name in ("hat", "bar") and self.peek() == "{":
            return Node("accent", {"hat": "^", "bar": "¯"}[name], [self.group()])
        if name == "left":
            left = self.take()
            body = self.row("\\right")
            self.take("\\right")
            return Node("fence", left.lstrip("\\") + self.take().lstrip("\\"), [body])
        if name == "begin":
            return self.table(self.words())
        for kind, names in (("letter", LETTERS), ("operator", OPERATORS)):
            if name in names:
                return Node(kind, names[name])
        if name in SPACES:
            return Node("space", SPACES[name])
        if name in NAMES:
            return Node("name", name)
        if name in "{}|%&":
            return Node("operator", {"|": "‖"}.get(name, name))
        raise self.wrong(f"\\{name} is not known")

    def table(self, kind: str) -> Node:
        if kind not in ("pmatrix", "cases", "aligned"):
            raise self.wrong(f"the environment {kind} is not known")
        rows: list[list[Node]] = [[]]
        while True:
            rows[-1].append(self.row("&", "\\\\", "\\end"))
            end = self.take()
            if end == "\\end":
                if self.words() != kind:
                    raise self.wrong(f"{kind} does not end")
                return Node("table", kind, rows=rows)
            if end == "\\\\":
                rows.append([])


def _read(source: str) -> Node:
    reader = _Reader(source)
    row = reader.row()
    if reader.peek():
        raise reader.wrong(f"unexpected {reader.peek()}")
    return row


# -- as text -------------------------------------------------------------------------------------------

_SPACED = set("=≈≠≤≥→←∈↦∼≡≪≫×·⊙±+−")


def text(source: str) -> str:
    """The formula in one line of Unicode (a table takes a line for each row)."""
    return re.sub(
        r" {2,}", lambda found: found[0] if len(found[0]) > 3 else "  ", _text(_read(source))
    ).strip()


def _is_simple(shown: str) -> bool:
    return re.fullmatch(r"[^\s+−=/·×]+|[√∂]\((?:[^()]|\([^()]*\))*\)", shown) is not None


def _text(node: Node | None) -> str:
    if node is None:
        return ""
    if node.kind == "row":
        return _row_text(node)
    parts = [_text(part) for part in node.parts]
    if node.kind == "frac":
        above, below = (part if _is_simple(part) else f"({part})" for part in parts)
        return f"{above} / {below}" if len(above + below) > 5 else f"{above}/{below}"
    if node.kind == "sqrt":
        return f"√{parts[0]}" if _is_simple(parts[0]) else f"√({parts[0]})"
    if node.kind == "script":
        return parts[0] + _shifted(parts[1], _LOWERED, "_") + _shifted(parts[2], _RAISED, "^")
    if node.kind == "accent":
        return parts[0] + {"^": "\u0302", "¯": "\u0304"}[node.value]
    if node.kind == "fence":
        left, right = (mark.replace(".", "") for mark in node.value)
        return f"{left}{parts[0]}{right}"
    if node.kind == "table":
        rows = [" ".join(_text(cell) for cell in row) for row in node.rows]
        return {"pmatrix": f"[{'; '.join(rows)}]", "cases": f"{{ {';  '.join(rows)}"}.get(
            node.value, "\n".join(rows)
        )
    if node.kind == "space":
        return "    " if node.value in ("1em", "2em") else " "
    return node.value


def _shifted(shown: str, marks: dict[str, str], sign: str) -> str:
    """A script as raised or lowered characters where all of it has such, else after `^` or `_`."""
    plain = shown.replace("−", "-").replace(" ", "")
    if all(c in marks for c in plain):
        return "".join(marks[c] for c in plain)
    return sign + (shown if re.fullmatch(r"\w+|[∞ᵀ]", shown) else f"({shown})")


def _row_text(row: Node) -> str:
    out = ""
    for i, part in enumerate(row.parts):
        shown = _text(part)
        assert part is not None
        if part.kind == "operator" and part.value in _SPACED and i and not out.endswith(("(", " ")):
            shown = f" {shown} "
        elif part.kind == "operator" and part.value == ",":
            shown = ", "
        elif out and _needs_space(row.parts[i - 1], part, out):
            shown = f" {shown}"
        out += shown
    return out


def _needs_space(before: Node | None, part: Node, out: str) -> bool:
    """Whether words or a fraction would run into what stands before them."""
    base = before.parts[0] if before and before.kind == "script" else before
    first = part.parts[0] if part.kind == "script" else part
    if base is not None and base.kind == "frac" and first is not None and first.value in LARGE:
        return True
    if base is None or base.value in LARGE:
        return base is not None
    if base.kind == "name":
        return part.kind not in ("operator", "fence")
    return part.kind in ("name", "frac") and out[-1].isalnum()


# -- as MathML -----------------------------------------------------------------------------------------


def mathml(source: str, block: bool = False) -> str:
    """The formula as a MathML element, with its text as the alternative that a screen reader can say."""
    display = ' display="block"' if block else ""
    label = html.escape(text(source).replace("\n", "; "), quote=True)
    return f'<math{display} aria-label="{label}">{_mathml(_read(source), block)}</math>'


def _tag(name: str, content: str, attributes: str = "") -> str:
    return f"<{name}{attributes}>{content}</{name}>"


def _mathml(node: Node | None, block: bool) -> str:
    if node is None:
        return "<mrow></mrow>"
    inside = [_mathml(part, block) for part in node.parts]
    value = html.escape(node.value)
    if node.kind == "row":
        return inside[0] if len(inside) == 1 else _tag("mrow", _spaced(node, inside))
    if node.kind == "letter":
        return _tag("mi", value, ' mathvariant="normal"' if node.value in "∂∞ℝ∇" else "")
    if node.kind == "number":
        return _tag("mn", value)
    if node.kind == "operator":
        return _tag(
            "mo", value.replace("ᵀ", "⊤"), ' stretchy="false"' if node.value in "()[]|‖{}⌊⌋" else ""
        )
    if node.kind in ("name", "text"):
        return _tag("mi" if node.kind == "name" else "mtext", value.replace(" ", "\u00a0"))
    if node.kind == "space":
        return f'<mspace width="{node.value}"/>'
    if node.kind in ("frac", "sqrt"):
        return _tag({"frac": "mfrac", "sqrt": "msqrt"}[node.kind], "".join(inside))
    if node.kind == "script":
        return _script(node, inside, block)
    if node.kind == "accent":
        return _tag("mover", inside[0] + _tag("mo", value), ' accent="true"')
    if node.kind == "fence":
        left, right = (
            _tag("mo", html.escape(mark.replace(".", "")), f' form="{form}" stretchy="true"')
            for mark, form in zip(node.value, ("prefix", "postfix"))
        )
        return _tag("mrow", left + inside[0] + right)
    return _table(node, block)


def _spaced(row: Node, inside: list[str]) -> str:
    """The parts of a row, with a thin space between a name, as sin, and a letter beside it."""
    shown = inside[:1]
    for before, part, element in zip(row.parts, row.parts[1:], inside[1:]):
        assert before is not None and part is not None
        first, second = (
            side.parts[0] if side.kind == "script" else side for side in (before, part)
        )
        assert first is not None and second is not None
        named = (first.kind == "name" and part.kind not in ("operator", "fence", "space")) or (
            second.kind == "name" and before.kind not in ("operator", "fence", "space")
        )
        shown += [_tag("mspace", "", ' width="0.17em"')] * named + [element]
    return "".join(shown)


def _script(node: Node, inside: list[str], block: bool) -> str:
    base, sub, sup = node.parts
    assert base is not None
    if (
        sub is None and sup is not None and set(_text(sup)) == {"′"}
    ):  # primes are raised by themselves
        return _tag("mrow", inside[0] + _tag("mo", _text(sup), ' lspace="0" rspace="0"'))
    under = block and base.kind == "operator" and base.value in LARGE
    names = {(True, True): "munderover" if under else "msubsup", (True, False): "munder" if under else "msub",
             (False, True): "mover" if under else "msup"}  # fmt: skip
    kept = [inside[0], *(inside[i] for i, part in ((1, sub), (2, sup)) if part is not None)]
    return _tag(names[sub is not None, sup is not None], "".join(kept))


def _table(node: Node, block: bool) -> str:
    rows = "".join(
        _tag("mtr", "".join(_tag("mtd", _mathml(cell, block)) for cell in row)) for row in node.rows
    )
    table = _tag(
        "mtable",
        rows,
        {"aligned": ' class="aligned"', "cases": ' class="cases"'}.get(node.value, ""),
    )
    left, right = {"pmatrix": "()", "cases": "{ "}.get(node.value, "  ")
    return _tag(
        "mrow",
        "".join([_tag("mo", left) * (left != " "), table, _tag("mo", right) * (right != " ")]),
    )
