"""Pictures of a graph of numbers: values forward, and derivatives backward."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from labels import label

from nn.inspection.style import COLOURS

__all__ = ["graph_picture"]

WIDTH, HEIGHT = 144, 50  # of a box
STEP = (156, 98)  # from one box to the next one, beside it and below it


def graph_picture(
    names: Sequence[str],
    values: Sequence[float],
    graph: Sequence[Sequence[tuple[int, float]]],
    gradients: Sequence[float],
) -> str:
    """Return a graph of numbers as SVG, from parents above to children below.

    Parameters
    ----------
    names : sequence of str
        Names of the numbers, parents first.
    values : sequence of float
        The numbers.
    graph : sequence of list of (int, float)
        Parents of each number, and the slopes by them, which stand beside the arrows.
    gradients : sequence of float
        Derivatives of one number by those before it and by itself. Later numbers are faint.
    """
    levels: list[int] = []
    for parents in graph:
        levels.append(1 + max((levels[i] for i, _ in parents), default=-1))
    widest = max(levels.count(level) for level in levels)
    middle = (widest * STEP[0] + 24) / 2
    tops = []  # the middle of the upper side of each box
    for i, level in enumerate(levels):
        offset = levels[:i].count(level) - (levels.count(level) - 1) / 2
        tops.append((middle + offset * STEP[0], 2 + STEP[1] * level))
    parts, output = [], len(gradients) - 1
    for child, parents in enumerate(graph):
        parts.append(_faint(child > output))
        for k, (parent, slope) in enumerate(parents):
            aside = 22 * (2 * k - len(parents) + 1)  # two arrows from one parent run side by side
            (x, y), (to_x, to_y) = tops[parent], tops[child]
            x += aside if x == to_x else 0
            parts.append(_arrow(x, y + HEIGHT, to_x + aside, to_y, slope, aside < 0))
        parts.append("</g>")
    for i, (name, value) in enumerate(zip(names, values)):
        x, y = tops[i]
        parts.append(
            f'{_faint(i > output)}<rect x="{x - WIDTH / 2}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" '
            f'fill="none" stroke="currentColor" stroke-width="{2.5 if i == output else 1}"/>'
            f'<text x="{x}" y="{y + 20}">{name} = {_digits(value)}</text>'
        )
        if i <= output:
            text = f"∂{names[output]}/∂{name} = {_digits(gradients[i])}"
            colour = f"color-mix(in srgb, {COLOURS[1]} 60%, currentColor)"
            parts.append(f'<text x="{x}" y="{y + 40}" style="fill: {colour}">{text}</text>')
        parts.append("</g>")
    alt = label(
        "The graph, with each value and the derivative of {name} with respect to it.",
        name=names[output],
    )
    width, height = 2 * middle, STEP[1] * max(levels) + HEIGHT + 4
    return (
        f'<svg role="img" aria-label="{html.escape(alt, quote=True)}" viewBox="0 0 {width} {height}" '
        f'style="width: 100%; max-width: {width}px" fill="currentColor" font-size="14" '
        f'font-family="sans-serif" text-anchor="middle">{"".join(parts)}</svg>'
    )


def _arrow(x: float, y: float, to_x: float, to_y: float, slope: float, is_left: bool) -> str:
    """Return an arrow with a slope at its left or right side."""
    angle = math.degrees(math.atan2(to_y - y, to_x - x))
    return (
        f'<path d="M{x},{y} {to_x},{to_y}" stroke="currentColor"/>'
        f'<path d="M{to_x},{to_y} l-8,-4 v8 z" transform="rotate({angle:.1f} {to_x} {to_y})"/>'
        f'<text x="{(x + to_x) / 2 + (-8 if is_left else 8)}" y="{(y + to_y) / 2 + 4}" '
        f'font-size="12" text-anchor="{"end" if is_left else "start"}">{_digits(slope)}</text>'
    )


def _faint(is_faint: bool) -> str:
    return '<g opacity="0.35">' if is_faint else "<g>"


def _digits(number: float) -> str:
    return f"{number:.4g}".replace("-", "−")
