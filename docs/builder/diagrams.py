"""Diagrams, drawn here as SVG in the colours of the page: the model, a block, a head, masks, the cache, a beam, a graph."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

from languages import Catalogue

import minigrad as mg

from .markdown import inline

__all__ = ["DIAGRAMS", "figure"]


class Drawing:
    """Boxes, arrows and words at places of a canvas."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.parts: list[str] = []
        self.labels: dict[
            int, tuple[str, dict[str, Any]]
        ] = {}  # the words of a part, and what is put into them

    def text(
        self, x: float, y: float, words: str, kind: str = "", anchor: str = "middle", **values: Any
    ) -> None:
        """Words, which may have places for values and letters with an index, as W_Q."""
        self.labels[len(self.parts)] = words, values
        self.parts.append(f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">')

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        words: str = "",
        kind: str = "",
        small: str = "",
    ) -> None:
        """A box with a line of words, and a small one below; x and y are its upper left corner."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" class="box {kind}"/>'
        )
        if words:
            self.text(x + w / 2, y + h / 2 + (-3 if small else 5), words)
        if small:
            self.text(x + w / 2, y + h / 2 + 14, small, "small")

    def cell(self, x: float, y: float, size: float, kind: str) -> None:
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{size - 2}" height="{size - 2}" rx="2" class="{kind}"/>'
        )

    def line(self, *points: tuple[float, float], kind: str = "", head: bool = True) -> None:
        """A line through points, with an arrow's head at its end."""
        way = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(f'<polyline points="{way}" class="line {kind}"/>')
        if head:
            (x0, y0), (x, y) = points[-2:]
            dx, dy = (
                ((x > x0) - (x < x0), (y > y0) - (y < y0))
                if 0 in (x - x0, y - y0)
                else _direction(x - x0, y - y0)
            )
            left, right = (
                (x - 8 * dx - 4 * dy, y - 8 * dy + 4 * dx),
                (x - 8 * dx + 4 * dy, y - 8 * dy - 4 * dx),
            )
            corners = f"{x},{y} {left[0]:.1f},{left[1]:.1f} {right[0]:.1f},{right[1]:.1f}"
            self.parts.append(f'<polygon points="{corners}" class="head {kind}"/>')

    def svg(self, alt: str, translated: Callable[..., str] | None = None) -> str:
        """The picture; what its words are in another language is asked of `translated`, but for formulas and data."""
        translated = translated or Catalogue().words
        parts = list(self.parts)
        for at, (words, values) in self.labels.items():
            shown = translated(words, **values) if PROSE.search(words) else words
            parts[at] += f"{_indexed(shown)}</text>"
        label = html.escape(alt, quote=True)
        return (
            f'<svg class="diagram" role="img" aria-label="{label}" viewBox="0 0 {self.width} {self.height}" '
            f'style="max-width:{self.width}px;--own:{self.width}px">{"".join(parts)}</svg>'
        )


PROSE = re.compile(r"^(?!(how|hola|tanh|softmax|<bos>)( |$))(?=.*[a-z]{3})|^no ")


def _indexed(words: str) -> str:
    """Text of SVG, with the index of a letter set lower."""
    down, up = (
        '<tspan dy="0.25em" font-size="0.75em">',
        '<tspan dy="-0.19em">',
    )  # each in units of its own size
    pieces = re.split(r"(?<!\w)([A-Za-z])_(\w+)", html.escape(words))
    shown, rest = pieces[0], pieces[1:]
    for letter, index, after in zip(rest[::3], rest[1::3], rest[2::3]):
        shown += f"{letter}{down}{index}</tspan>" + (f"{up}{after}</tspan>" if after else "")
    return shown


def _direction(dx: float, dy: float) -> tuple[float, float]:
    length = (dx * dx + dy * dy) ** 0.5
    return dx / length, dy / length


def model() -> Drawing:
    d = Drawing(720, 470)
    for x, title, words in (
        (90, "encoder", "source: 我 有 一只 猫"),
        (430, "decoder", "target so far: <bos> I have"),
    ):
        d.text(x + 100, 455, words, "small")
        d.line((x + 100, 438), (x + 100, 420))
        d.box(x, 384, 200, 36, "embedding", small="")
        d.line((x + 100, 384), (x + 100, 362))
        d.box(x, 326, 200, 36, "+ positions")
        d.line((x + 100, 326), (x + 100, 304))
        d.text(x + 100, 62 if title == "encoder" else 40, "", "bold")
    d.box(70, 168, 240, 136, kind="plain")
    d.text(60, 240, "N ×", "bold", "end")
    d.box(90, 254, 200, 38, "self-attention", "blue")
    d.line((190, 254), (190, 226))
    d.box(90, 188, 200, 38, "feed-forward")
    d.box(410, 110, 240, 194, kind="plain")
    d.text(662, 212, "× N", "bold", "start")
    d.box(430, 254, 200, 38, "masked self-attention", "blue")
    d.line((530, 254), (530, 232))
    d.box(430, 194, 200, 38, "cross-attention", "orange")
    d.line((530, 194), (530, 168))
    d.box(430, 130, 200, 38, "feed-forward")
    d.line((190, 188), (190, 140), (350, 140), (350, 213), (430, 213))
    d.text(268, 132, "memory: keys and values", "small")
    d.line((530, 130), (530, 92))
    d.box(430, 56, 200, 36, "linear → softmax")
    d.line((530, 56), (530, 34))
    d.text(530, 24, "probabilities of the next word", "small")
    return d


def block() -> Drawing:
    d = Drawing(690, 150)
    d.text(18, 89, "x", "bold")
    d.line((30, 84), (62, 84))
    d.box(62, 62, 130, 44, "self-attention", "blue")
    d.line((192, 84), (216, 84))
    d.box(216, 66, 36, 36, "+")
    d.line((252, 84), (276, 84))
    d.box(276, 66, 60, 36, "norm")
    d.line((336, 84), (376, 84))
    d.box(376, 62, 120, 44, "feed-forward")
    d.line((496, 84), (520, 84))
    d.box(520, 66, 36, 36, "+")
    d.line((556, 84), (580, 84))
    d.box(580, 66, 60, 36, "norm")
    d.line((640, 84), (664, 84))
    d.text(676, 89, "y", "bold")
    d.line((46, 84), (46, 28), (234, 28), (234, 66))
    d.line((356, 84), (356, 28), (538, 28), (538, 66))
    d.text(140, 20, "residual: x itself", "small")
    d.text(447, 20, "residual", "small")
    formula = (
        "norm(x + dropout(layer(x))), twice; with norm_first it is x + dropout(layer(norm(x)))"
    )
    d.text(18, 138, formula, "small", "start")
    return d


def head() -> Drawing:
    d = Drawing(760, 330)
    d.box(10, 140, 90, 50, "X", small="L × d")
    for y, name, kind in ((40, "Q", "blue"), (140, "K", "blue"), (240, "V", "orange")):
        d.line((100, 165), (128, 165), (128, y + 25), (160, y + 25), head=False)
        d.text(146, y + 16, f"W_{name}", "small", "start")
        d.box(196, y, 92, 50, name, kind, "L × d_k")
        d.line((160, y + 25), (196, y + 25))
    d.line((288, 65), (330, 65), (330, 90), (370, 90))
    d.line((288, 165), (330, 165), (330, 110), (370, 110))
    d.box(370, 74, 100, 52, "Q Kᵀ / √d_k", small="L × L")
    d.line((470, 100), (506, 100))
    d.box(506, 74, 90, 52, "mask", small="no → −∞")
    d.line((596, 100), (630, 100))
    d.box(630, 74, 110, 52, "softmax", "blue", "rows sum to 1")
    d.line((685, 126), (685, 240))
    d.line((288, 265), (630, 265))
    d.box(630, 240, 110, 50, "weights · V", "orange", "L × d_k")
    d.line((685, 290), (685, 318))
    d.text(672, 316, "this head's part of the result", "small", "end")
    return d


def masks() -> Drawing:
    d = Drawing(720, 250)
    words = ["we", "see", "it", "pad", "pad"]
    kinds: list[tuple[str, str, Callable[[int, int], bool]]] = [
        ("padding mask (N, L_kv)", "no key that is padding", lambda q, k: k < 3),
        ("causal mask (L_q, L_kv)", "no key that comes later", lambda q, k: k <= q),
        ("both, as a decoder has them", "what neither forbids", lambda q, k: k <= q and k < 3),
    ]
    for i, (name, meaning, allowed) in enumerate(kinds):
        x, y, size = 60 + 235 * i, 54, 28
        d.text(x + 70, 20, name, "bold")
        for k, word in enumerate(words):
            d.text(x + size * k + 13, y - 8, word, "small")
            d.text(x - 8, y + size * k + 18, word, "small", "end")
        for q in range(5):
            for k in range(5):
                d.cell(x + size * k, y + size * q, size, "on" if allowed(q, k) else "off")
        d.text(x + 70, 222, meaning, "small")
    d.text(60, 244, "filled: may attend. Rows are queries, columns are keys.", "small", "start")
    return d


def cache() -> Drawing:
    d = Drawing(720, 250)
    size = 34
    for step in range(1, 5):
        y = 20 + 48 * (step - 1)
        d.text(14, y + 22, "step {n}", "bold", "start", n=step)
        d.box(84, y, size, size, "q", "orange")
        d.line((84 + size, y + 17), (150, y + 17))
        for i in range(step):
            d.box(
                158 + (size + 6) * i,
                y,
                size,
                size,
                f"k_{i + 1}",
                "orange" if i == step - 1 else "blue",
            )
            d.box(
                388 + (size + 6) * i,
                y,
                size,
                size,
                f"v_{i + 1}",
                "orange" if i == step - 1 else "blue",
            )
        d.text(580, y + 22, "{n} scores" if step > 1 else "{n} score", "small", "start", n=step)
    d.text(158, 232, "keys: one new, the others kept", "small", "start")
    d.text(388, 232, "values: likewise", "small", "start")
    return d


def beam() -> Drawing:
    d = Drawing(720, 256)
    tree = {
        "<bos>": (50, 120, ""), "how": (210, 76, "0.60"), "hola": (210, 190, "0.40"),
        "how a": (390, 44, "0.20"), "how c": (390, 112, "0.20"), "hola mundo": (390, 190, "0.40"),
        "how a ?": (596, 44, "0.20"), "hola mundo <eos>": (596, 190, "0.40"),
    }  # fmt: skip
    for a, b in (("<bos>", "how"), ("<bos>", "hola"), ("how", "how a"), ("how", "how c"), ("hola", "hola mundo"),
                 ("how a", "how a ?"), ("hola mundo", "hola mundo <eos>")):  # fmt: skip
        (x0, y0, _), (x1, y1, _) = tree[a], tree[b]
        d.line((x0 + 52, y0), (x1 - 66, y1))
    for name, (x, y, p) in tree.items():
        kind = (
            "orange"
            if "mundo" in name or name == "hola"
            else "blue"
            if name in ("how", "how a", "how a ?")
            else ""
        )
        half = {"<bos>": 44, "hola mundo <eos>": 72}.get(name, 66)
        d.box(x - half, y - 19, 2 * half, 38, name, kind)
        if p:
            d.text(x + 64, y - 24, p, "small", "end")
    d.text(
        20,
        248,
        "Greedy search keeps one beginning and ends at 0.20; two beginnings are enough to find 0.40.",
        "small",
        "start",
    )
    return d


def graph() -> Drawing:
    d = Drawing(720, 300)
    spots = {
        "x": (40, 60),
        "w": (40, 180),
        "x·w": (230, 120),
        "tanh": (400, 120),
        "square": (570, 120),
    }
    x, w = (mg.Tensor(value, requires_grad=True) for value in (2.0, 0.5))
    nodes = {
        "x": x,
        "w": w,
        "x·w": (u := x * w),
        "tanh": (y := u.tanh()),
        "square": (loss := y.square()),
    }
    letters = dict(zip(spots, "xwuyL"))
    slopes = mg.gradients(loss, list(nodes.values()))
    values = {name: f"{letters[name]} = {node.item():.4g}" for name, node in nodes.items()}
    back = {name: f"∂L/∂{letters[name]} = {slope.item():.4g}" for name, slope in zip(nodes, slopes)}
    for name, (left, middle) in spots.items():
        kind = "blue" if name in "xw" else ""
        d.box(left, middle - 24, 104, 48, name, kind, values[name])
        d.text(left + 52, middle + 44, back[name], "small back")
    d.line((144, 54), (204, 54), (204, 104), (230, 104))
    d.line((144, 186), (204, 186), (204, 136), (230, 136))
    d.line((230, 114), (178, 114), (178, 66), (144, 66), kind="back")
    d.line((230, 126), (178, 126), (178, 174), (144, 174), kind="back")
    d.line((334, 114), (400, 114))
    d.line((504, 114), (570, 114))
    d.line((570, 130), (504, 130), kind="back")
    d.line((400, 130), (334, 130), kind="back")
    d.text(
        360,
        30,
        "forward: each box computes its value, and remembers what its derivative will read",
        "small",
    )
    d.line((620, 240), (100, 240), kind="back")
    d.text(
        360,
        262,
        "backward: from L to the inputs, each box multiplies what comes in by its own derivative",
        "small back",
    )
    for x, rule in (
        (152, "product: g · w to x, g · x to w"),
        (398, "tanh: g · (1 − y²)"),
        (584, "square: g · 2y"),
    ):
        d.text(x, 286, rule, "mono small")
    return d


DIAGRAMS: dict[str, tuple[Callable[[], Drawing], str]] = {
    "model": (model, "The whole Transformer. The source goes through an embedding, positions and N blocks of self-attention "
              "and feed-forward; the target so far through the same and, in each block, cross-attention to the encoder's "
              "result; a linear map and a softmax give the next word."),
    "block": (block, "One encoder block: x goes through self-attention and is added to the result, which is normed; that goes "
              "through the feed-forward net and is added to its result, which is normed."),
    "head": (head, "One attention head: X (L by d) times three matrices gives Q, K and V (L by d_k); Q times K transposed, "
             "divided by the root of d_k, masked, through a softmax by rows, gives weights (L by L), which multiply V."),
    "masks": (masks, "Three masks of five queries and five keys: padding hides the last two keys from all queries, causal hides "
              "later keys, and a decoder uses both."),
    "cache": (cache, "Four steps of decoding: in each there is one new query, one new key and one new value; the keys and "
              "values of earlier steps are kept."),
    "beam": (beam, "A tree of beginnings: how has 0.60 and leads to sentences of 0.20 each; hola has 0.40 and leads to hola "
             "mundo with 0.40, which a beam of two finds."),
    "graph": (graph, "The graph of L = tanh(x w) squared at x = 2, w = 0.5, with the value of each node forward, and the "
              "gradient of L at each node backward."),
}  # fmt: skip


def figure(name: str, caption: str, translated: Callable[..., str] | None = None) -> str:
    """A diagram with its caption, by its name; its words, and those for who cannot see it, are `translated`."""
    if name not in DIAGRAMS:
        raise ValueError(f"no diagram {name!r:.60}; expected one of {', '.join(DIAGRAMS)}")
    draw, alt = DIAGRAMS[name]
    translated = translated or Catalogue().words
    return f'<figure><div class="scroll" tabindex="0">{draw().svg(translated(alt), translated)}</div><figcaption>{inline(caption)}</figcaption></figure>'
