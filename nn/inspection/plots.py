"""Pictures of attention and of losses. They need matplotlib.

Each function returns a matplotlib figure, writes it to `path` if one is given, and opens no window.
"""

from __future__ import annotations

import contextlib
import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.check.extras import require
from minigrad.io.atomic import write_atomically
from minigrad.tensor import unwrap

from .style import SHADES, style

__all__ = [
    "attention_grid",
    "loss_curve",
]

_CJK_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "SimHei",
    "AR PL UMing CN",
)


def _figure(width: float, height: float, *texts: str) -> Any:
    """Return a figure for these texts; its parts take their font when they are made."""
    _has_font("".join(map(str, texts)))
    figure = require("matplotlib.figure", "plotting").Figure
    return figure(figsize=(width, height), layout="constrained")


@contextlib.contextmanager
def _style_of_pictures() -> Iterator[None]:
    """Set the style of all pictures, in which text is never a formula."""
    with style():
        require("matplotlib", "plotting").rcParams["text.parse_math"] = False
        yield


def _save(figure: Any, path: str | Path | None) -> Any:
    if path is not None:
        kind = Path(path).suffix[1:] or "png"
        if kind not in (kinds := figure.canvas.get_supported_filetypes()):
            raise ValueError(
                f"{path}: the name of a picture must end in one of {', '.join(sorted(kinds))}"
            )
        options = {"dpi": 150, "bbox_inches": "tight", "format": kind}
        write_atomically(path, lambda part: figure.savefig(part, **options))
    return figure


@functools.cache
def _rescanned() -> None:
    """Add the fonts that were installed after matplotlib made its list of them."""
    manager = require("matplotlib.font_manager", "plotting")
    listed = {font.fname for font in manager.fontManager.ttflist}
    for path in {*manager.findSystemFonts()} - listed:
        with contextlib.suppress(OSError, RuntimeError):  # no font, or a broken one
            manager.fontManager.addfont(path)


@functools.cache
def _characters(path: str) -> frozenset[int]:
    """Return the code points of the characters in a font's file."""
    manager = require("matplotlib.font_manager", "plotting")
    return frozenset(manager.get_font(path).get_charmap())


def _add_cjk_font() -> None:
    """Add an installed font with Chinese characters to the style, if there is one."""
    manager = require("matplotlib.font_manager", "plotting").fontManager
    for scan in (lambda: None, _rescanned):
        scan()
        installed = {font.name for font in manager.ttflist}
        if fonts := [name for name in _CJK_FONTS if name in installed]:
            families = ["DejaVu Sans", fonts[0]]  # the second one draws what the first one lacks
            require("matplotlib", "plotting").rcParams["font.family"] = families
            return


def _has_font(text: str) -> bool:
    """Return whether the style's fonts have all characters; Chinese text adds a font to it."""
    if any(unicodedata.east_asian_width(c) in "WF" for c in text):
        _add_cjk_font()
    manager = require("matplotlib.font_manager", "plotting")
    families = require("matplotlib", "plotting").rcParams["font.family"]
    paths = [manager.findfont(manager.FontProperties(family=[name])) for name in families]
    fonts = [_characters(path) for path in paths]
    return all(c == "\n" or any(ord(c) in font for font in fonts) for c in text)


def _drawable(text: str) -> str:
    """Replace halves of characters, which stand for bytes that are not UTF-8."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _title(title: str) -> str:
    """Return a title with an ellipsis for characters that no font can draw."""
    title = _drawable(title)
    if _has_font(title):
        return title
    shown = "".join(c if _has_font(c) else "…" for c in title)
    return re.sub(r"\s*…[\s…]*", " … ", shown).strip()


def _labels(tokens: Sequence[str]) -> list[str]:
    """Return tokens as labels; numbers for those that no font can draw."""
    labels = [_drawable(str(token)) for token in tokens]
    return [label if _has_font(label) else f"#{i}" for i, label in enumerate(labels, 1)]


def _keys_label(*tokens: Sequence[str]) -> str:
    """Return the label of the keys' axis, with a note if tokens are numbered."""
    if all(_has_font(_drawable(str(token))) for side in tokens for token in side):
        return "attends to (keys)"
    return "attends to (keys)\nthe fonts lack these characters: tokens are numbered"


def _draw_heatmap(
    axes: Any, weights: np.ndarray, queries: Sequence[str], keys: Sequence[str]
) -> Any:
    """Draw a map with its labels, and return the image."""
    if weights.shape != (len(queries), len(keys)):
        raise ValueError(
            f"weights must have a row for each of {len(queries)} queries and a column for each of "
            f"{len(keys)} keys, got shape {weights.shape}"
        )
    image = axes.imshow(weights, cmap=SHADES, vmin=0, vmax=1, aspect="auto")
    slanted = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(keys)), _labels(keys), **slanted)
    axes.set_yticks(range(len(queries)), _labels(queries))
    axes.tick_params(length=0, labelsize=9)
    axes.spines[:].set_visible(False)
    return image


@_style_of_pictures()
def attention_grid(
    layers: Sequence[Any],
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "",
    path: str | Path | None = None,
) -> Any:
    """Return a figure of the weights of all heads: a row for each layer, a column for each head.

    Of more than six heads, four are drawn in a row.

    Parameters
    ----------
    layers : sequence of arrays, shape (h, L_q, L_kv)
        Weights of each layer.
    queries : sequence of str
        Tokens of the rows.
    keys : sequence of str
        Tokens of the columns.
    title : str
        Title of the picture.
    path : str or Path, optional
        File of the picture.
    """
    layers = [np.asarray(unwrap(heads)) for heads in layers]
    count = len(layers[0])
    columns = count if count <= 6 else 4
    lines = -(-count // columns)  # rows of axes a layer
    rows = lines * len(layers)
    width = max(1.6, 0.27 * len(keys) + 0.5)
    height = max(1.4, 0.25 * len(queries) + 0.4)
    figure = _figure(width * columns + 2.4, height * rows + 1.4, title, *queries, *keys)
    for i, heads in enumerate(layers):
        for j, weights in enumerate(heads):
            row, column = i * lines + j // columns, j % columns
            axes = figure.add_subplot(rows, columns, row * columns + column + 1)
            image = _draw_heatmap(axes, weights, queries, keys)
            axes.tick_params(labelsize=7)
            if column:
                axes.set_yticklabels([])
            else:
                axes.set_ylabel(f"layer {i + 1}", fontsize=9)
            if i < len(layers) - 1 or j + columns < count:  # another map is below
                axes.set_xticklabels([])
            if i == 0 or lines > 1:
                axes.set_title(f"head {j + 1}", fontsize=9)
    figure.supxlabel(_keys_label(queries, keys), fontsize=9)
    figure.supylabel("queries", fontsize=9)
    figure.colorbar(image, ax=figure.axes, label="weight", aspect=30, pad=0.01)
    figure.suptitle(_title(title), fontsize=12)
    return _save(figure, path)


@_style_of_pictures()
def loss_curve(
    history: Iterable[Mapping[str, Any]],
    title: str = "",
    path: str | Path | None = None,
    *,
    vocabulary: int | None = None,
    label_smoothing: float = 0.0,
) -> Any:
    """Return a figure of the losses by step, and of the learning rate below.

    Parameters
    ----------
    history : iterable of dict
        Metrics of a `Trainer`.
    title : str
        Title of the picture.
    path : str or Path, optional
        File of the picture.
    vocabulary : int, optional
        Number of tokens V; a line shows the loss of guessing, log V.
    label_smoothing : float
        With `vocabulary`, a line shows the least possible training loss.
    """
    entries = list(history)
    figure = _figure(7, 5, title)
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    curves: Any = (
        (loss, "loss", {"label": "training", "alpha": 0.8}),
        (loss, "valid_loss", {"label": "validation", "marker": "o", "ms": 3}),
        (rate, "lr", {"color": "gray"}),
    )
    for axes, key, look in curves:
        if points := [(e["step"], e[key]) for e in entries if key in e]:
            axes.plot(*zip(*points), lw=1.3, **look)
    if vocabulary:
        _level(loss, float(np.log(vocabulary)), "guessing", "bottom")
        if label_smoothing:  # losses lie between
            floor = _smoothing_floor(label_smoothing, vocabulary)
            _level(loss, floor, "least possible in training (label smoothing)", "top")
    loss.set(ylabel="loss per token (nats)", yscale="log")
    low, high = loss.get_ylim()
    loss.yaxis.set_major_formatter("{x:g}")
    # within a decade there is little else
    loss.yaxis.set_minor_formatter("{x:g}" if high < 10 * low else "")
    loss.grid(alpha=0.25, which="both")
    loss.legend(frameon=False)
    rate.set(xlabel="step", ylabel="learning rate")
    rate.grid(alpha=0.25)
    loss.set_title(_title(title), fontsize=12)
    return _save(figure, path)


def _level(axes: Any, value: float, name: str, side: str) -> None:
    """Draw a dashed line at a value, and its name above ("bottom") or below it ("top")."""
    axes.axhline(value, ls="--", lw=1, color="gray")
    transform = axes.get_yaxis_transform()
    axes.text(1, value, f"{name} ", transform=transform, ha="right", va=side, fontsize=8)


def _smoothing_floor(label_smoothing: float, vocabulary: int) -> float:
    """Return the least cross-entropy against smoothed targets, in nats: their entropy."""
    other = label_smoothing / vocabulary
    right = 1 - label_smoothing + other
    return float(-right * np.log(right) - (vocabulary - 1) * other * np.log(other))
