"""Pictures: attention, positions, masks, schedules, loss curves. They need matplotlib.

Every function returns a matplotlib figure, and writes it where a `path` is given. Nothing here
opens a window.
"""

from __future__ import annotations

import contextlib
import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.core.tensor import unwrap
from minigrad.extras import require
from minigrad.io.atomic import write_atomically

from ..layers.position import sinusoidal_table
from .style import SHADES, style

__all__ = [
    "attention_grid",
    "attention_heatmap",
    "loss_curve",
    "mask_picture",
    "position_picture",
    "schedule_curve",
    "smoothing_floor",
    "text_heatmap",
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


def _figure(width: float, height: float) -> Any:
    """A figure without a display."""
    return require("matplotlib.figure", "plotting").Figure(
        figsize=(width, height), layout="constrained"
    )


def _styled(draw: Callable[..., Any]) -> Callable[..., Any]:
    """`draw` within the style of all pictures."""

    @functools.wraps(draw)
    def styled(*args: Any, **options: Any) -> Any:
        with style():
            return draw(*args, **options)

    return styled


def _save(figure: Any, path: str | Path | None) -> Any:
    if path is not None:
        kind = Path(path).suffix[1:] or "png"
        if kind not in (kinds := figure.canvas.get_supported_filetypes()):
            raise ValueError(
                f"{path}: expected a picture that ends in one of {', '.join(sorted(kinds))}"
            )
        write_atomically(
            path, lambda part: figure.savefig(part, dpi=150, bbox_inches="tight", format=kind)
        )
    return figure


def _is_wide(text: str) -> bool:
    return any(unicodedata.east_asian_width(c) in "WF" for c in text)


def _font_for(*texts: str) -> dict[str, Any] | None:
    """How to draw texts as they are, as options of matplotlib's; None where no font here has their
    characters.

    `$` is a dollar: what comes from data is text, never a formula.
    """
    as_text: dict[str, Any] = {"parse_math": False}
    if not any(map(_is_wide, texts)):
        return as_text
    found = _wide_font() or _wide_font(rescan=True)
    return None if found is None else {**as_text, "fontfamily": [found, "DejaVu Sans"]}


@functools.lru_cache(maxsize=1)
def _rescanned() -> None:
    """Add the fonts that were installed after matplotlib made its list of them."""
    manager = require("matplotlib.font_manager", "plotting")
    known = {font.fname for font in manager.fontManager.ttflist}
    for path in manager.findSystemFonts():
        if path not in known:
            with contextlib.suppress(
                OSError, RuntimeError
            ):  # a file that is no font, or a broken one
                manager.fontManager.addfont(path)


def _wide_font(rescan: bool = False) -> str | None:
    """A font for Chinese, Japanese and Korean, by its name."""
    if rescan:
        _rescanned()
    manager = require("matplotlib.font_manager", "plotting")
    installed = {font.name for font in manager.fontManager.ttflist}
    return next((name for name in _CJK_FONTS if name in installed), None)


def _drawable(text: str) -> str:
    """A text without halves of characters, which stand for bytes that are no UTF-8, and which no
    font has.
    """
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _labels(tokens: Sequence[str]) -> tuple[list[str], dict[str, Any], str]:
    """Tokens as tick labels, the font for them, and a note.

    Where they have Chinese characters and no font here has those, the tokens are numbered instead.
    """
    tokens = [_drawable(str(t)) for t in tokens]
    font = _font_for(*tokens)
    if font is not None:
        return tokens, font, ""
    numbered = [f"#{i}" if _is_wide(t) else t for i, t in enumerate(tokens, 1)]
    return (
        numbered,
        {"parse_math": False},
        "no font for these characters is installed: tokens are numbered",
    )


def _entitle(set_title: Callable[..., Any], title: str, size: int) -> None:
    """Set a title; what no font here can draw of it becomes an ellipsis."""
    title = _drawable(title)
    font = _font_for(title)
    if font is None:
        shown = "".join("…" if _is_wide(c) else c for c in title)
        title, font = re.sub(r"\s*…[\s…]*", " … ", shown).strip(), {"parse_math": False}
    set_title(title, fontsize=size, **font)


def _check(weights: np.ndarray, queries: Sequence[str], keys: Sequence[str]) -> None:
    if weights.shape != (len(queries), len(keys)):
        raise ValueError(
            f"weights of shape {weights.shape} do not fit {len(queries)} queries and {len(keys)} "
            "keys"
        )


def _draw_heatmap(
    axes: Any, weights: np.ndarray, rows: Sequence[str], columns: Sequence[str]
) -> tuple[Any, str]:
    """Draw a map with its labels: the image, and a note on the labels."""
    _check(weights, rows, columns)
    image = axes.imshow(weights, cmap=SHADES, vmin=0, vmax=1, aspect="auto")
    (columns, font, note), (rows, row_font, row_note) = _labels(columns), _labels(rows)
    axes.set_xticks(
        range(len(columns)), columns, rotation=60, ha="right", rotation_mode="anchor", **font
    )
    axes.set_yticks(range(len(rows)), rows, **row_font)
    axes.tick_params(length=0, labelsize=9)
    for side in axes.spines.values():
        side.set_visible(False)
    return image, note or row_note


@_styled
def attention_heatmap(
    weights: Any,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "",
    path: str | Path | None = None,
) -> Any:
    """One map of weights (L_q, L_kv), a row for each query, with tokens as labels."""
    weights = np.asarray(unwrap(weights))
    width, height = 2.0 + 0.4 * len(keys), 1.2 + 0.34 * len(queries)
    figure = _figure(width, height)
    axes = figure.add_subplot()
    image, note = _draw_heatmap(axes, weights, queries, keys)
    axes.set_xlabel("attends to (keys)" + (f"\n{note}" if note else ""), fontsize=9)
    axes.set_ylabel("queries", fontsize=9)
    _entitle(axes.set_title, title, 11)
    figure.colorbar(image, ax=axes, label="weight", shrink=0.9)
    return _save(figure, path)


@_styled
def attention_grid(
    layers: Sequence[Any],
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "",
    path: str | Path | None = None,
) -> Any:
    """All heads of all layers: a row of maps for each layer, a column for each head; four to a row,
    if they are many.

    `layers` has an array (heads, L_q, L_kv) for each layer.
    """
    layers = [np.asarray(unwrap(heads)) for heads in layers]
    count = len(layers[0])
    columns = count if count <= 6 else 4
    lines = -(-count // columns)  # of each layer
    rows = lines * len(layers)
    cell = (max(1.6, 0.27 * len(keys) + 0.5), max(1.4, 0.25 * len(queries) + 0.4))
    size = (cell[0] * columns + 2.4, cell[1] * rows + 1.4)
    figure = _figure(*size)
    image, note = None, ""
    for i, heads in enumerate(layers):
        for j, weights in enumerate(heads):
            row, column = i * lines + j // columns, j % columns
            axes = figure.add_subplot(rows, columns, row * columns + column + 1)
            image, note = _draw_heatmap(axes, weights, queries, keys)
            axes.tick_params(labelsize=7)
            if column:
                axes.set_yticklabels([])
            else:
                axes.set_ylabel(f"layer {i + 1}", fontsize=9)
            if row < rows - 1 and not (
                i == len(layers) - 1 and j + columns >= count
            ):  # nothing is below the last ones
                axes.set_xticklabels([])
            if i == 0 or lines > 1:
                axes.set_title(f"head {j + 1}", fontsize=9)
    figure.supxlabel("attends to (keys)" + (f"\n{note}" if note else ""), fontsize=9)
    figure.supylabel("queries", fontsize=9)
    figure.colorbar(image, ax=figure.axes, label="weight", aspect=30, pad=0.01)
    _entitle(figure.suptitle, title, 12)
    return _save(figure, path)


@_styled
def loss_curve(
    history: Iterable[Mapping[str, Any]],
    title: str = "",
    path: str | Path | None = None,
    *,
    vocabulary: int | None = None,
    label_smoothing: float = 0.0,
) -> Any:
    """Training and validation loss by step, from the metrics of a `Trainer`; the learning rate
    below.

    Lines show the loss of guessing among `vocabulary` tokens, log V, and what label smoothing
    leaves of the training loss at best: the entropy of the smoothed target.
    """
    entries = list(history)
    figure = _figure(7, 5)
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    curves: Any = (
        (loss, "loss", {"label": "training", "alpha": 0.8}),
        (loss, "valid_loss", {"label": "validation", "marker": "o", "ms": 3}),
        (rate, "lr", {"color": "gray"}),
    )
    for axes, key, look in curves:
        if found := [(e["step"], e[key]) for e in entries if key in e]:
            axes.plot(*zip(*found), lw=1.3, **look)
    if vocabulary:
        _level(loss, float(np.log(vocabulary)), "guessing", "bottom")
        if label_smoothing:
            floor = smoothing_floor(
                label_smoothing, vocabulary
            )  # the training loss comes down to it from above
            _level(loss, floor, "least possible in training (label smoothing)", "top")
    loss.set_ylabel("loss per token (nats)")
    loss.set_yscale("log")
    low, high = loss.get_ylim()
    loss.yaxis.set_major_formatter("{x:g}")
    loss.yaxis.set_minor_formatter(
        "{x:g}" if high < 10 * low else ""
    )  # within a decade there is little else
    loss.grid(alpha=0.25, which="both")
    loss.legend(frameon=False)
    rate.set_ylabel("learning rate")
    rate.set_xlabel("step")
    rate.grid(alpha=0.25)
    _entitle(loss.set_title, title, 12)
    return _save(figure, path)


def _level(axes: Any, value: float, name: str, side: str) -> None:
    """A dashed line at a value, and its name above ("bottom") or below it ("top")."""
    axes.axhline(value, ls="--", lw=1, color="gray")
    axes.text(
        1, value, f"{name} ", transform=axes.get_yaxis_transform(), ha="right", va=side, fontsize=8
    )


def smoothing_floor(label_smoothing: float, vocabulary: int) -> float:
    """The least cross-entropy against a target that is 1 - s + s / V on the right token and s / V
    on all others.
    """
    other = label_smoothing / vocabulary
    right = 1 - label_smoothing + other
    return (
        float(-right * np.log(right) - (vocabulary - 1) * other * np.log(other)) if other else 0.0
    )


@_styled
def position_picture(
    max_len: int = 100, d_model: int = 64, halves: bool = False, path: str | Path | None = None
) -> Any:
    """The table of sinusoidal positions: a row for each position, a column for each dimension."""
    figure = _figure(8, 5)
    axes = figure.add_subplot()
    image = axes.imshow(
        sinusoidal_table(max_len, d_model, halves), cmap="RdBu", vmin=-1, vmax=1, aspect="auto"
    )
    axes.set_xlabel("dimension")
    axes.set_ylabel("position")
    axes.set_title(
        "sines first, then cosines" if halves else "sines in even, cosines in odd dimensions",
        fontsize=11,
    )
    figure.colorbar(image, ax=axes, label="value")
    return _save(figure, path)


@_styled
def mask_picture(masks: Mapping[str, np.ndarray], path: str | Path | None = None) -> Any:
    """Boolean masks (L_q, L_kv) side by side: filled = may attend."""
    figure = _figure(3.2 * len(masks), 3.8)
    for i, (name, mask) in enumerate(masks.items(), 1):
        axes = figure.add_subplot(1, len(masks), i)
        axes.pcolormesh(
            np.asarray(unwrap(mask), float),
            cmap=SHADES,
            vmin=0,
            vmax=1.4,
            edgecolors="white",
            linewidth=1,
        )
        axes.invert_yaxis()
        axes.set_aspect("equal")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel("keys")
        axes.set_ylabel("queries")
        _entitle(axes.set_title, name, 10)
    figure.supxlabel("filled: may attend", fontsize=9)
    return _save(figure, path)


@_styled
def schedule_curve(
    schedules: Mapping[str, Callable[[int], float]], steps: int, path: str | Path | None = None
) -> Any:
    """Learning rates by step."""
    figure = _figure(7, 3.5)
    axes = figure.add_subplot()
    at = np.arange(1, steps + 1)
    for name, schedule in schedules.items():
        axes.plot(at, [schedule(int(s)) for s in at], label=_drawable(name), lw=1.4)
    axes.set_xlabel("step")
    axes.set_ylabel("learning rate")
    axes.grid(alpha=0.25)
    for text in axes.legend().get_texts():
        text.set_parse_math(False)
    return _save(figure, path)


def text_heatmap(weights: Any, queries: Sequence[str], keys: Sequence[str]) -> str:
    """A map of weights (L_q, L_kv) for a terminal: darker blocks are larger weights."""
    weights = np.asarray(unwrap(weights))
    _check(weights, queries, keys)
    shades, columns = " ░▒▓█", [str(k) for k in keys]
    width = max((_columns(str(q)) for q in queries), default=0)
    lines = [" " * width + "  " + " ".join(key + " " * (2 - _columns(key)) for key in columns)]
    for query, row in zip(map(str, queries), weights):
        cells = [
            shades[min(4, int(5 * weight))] * max(2, _columns(key))
            for key, weight in zip(columns, row)
        ]
        lines.append(" " * (width - _columns(query)) + query + " │" + " ".join(cells))
    return "\n".join(lines)


def _columns(text: str) -> int:
    """How many columns a text takes in a terminal."""
    return sum(1 + _is_wide(c) for c in text)
