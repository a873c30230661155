"""Drawings of a graph by Graphviz."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.graph import topological
from ..core.tensor import Tensor
from ..extras import require
from ..io.atomic import write_bytes

__all__ = ["to_dot", "draw_graph"]


def to_dot(result: Tensor, *, names: Mapping[str, Tensor] | None = None) -> str:
    """Return the graph that computed `result` as Graphviz source.

    Parameters
    ----------
    result : Tensor
    names : dict of str to Tensor, optional
        Names of leaves, such as `dict(model.named_parameters())`.

    Returns
    -------
    str
        Text that starts with "digraph".
    """
    labels = {
        tensor._node: name for name, tensor in (names or {}).items() if tensor._node is not None
    }
    nodes = topological([result._needed_node("to_dot")])
    ids = {node: f"n{i}" for i, node in enumerate(nodes)}
    lines = [
        "digraph {",
        "  rankdir=TB;",
        '  node [shape=box, style="rounded,filled", fillcolor="#f5f5f5", color="#888888"];',
        '  node [fontname="sans-serif", fontsize=10];',
        '  edge [color="#888888", arrowsize=0.6];',
    ]
    for node in nodes:
        title = labels.get(node) or ("leaf" if node.op is None else node.op.name)
        title = title.replace("\\", "\\\\").replace('"', '\\"')
        shape = " × ".join(map(str, node.shape)) or "scalar"
        style = ', fillcolor="#bbdefb", color="#1565c0"' if node.op is None else ""
        if node is result._node:
            style = ', fillcolor="#c8e6c9", color="#2e7d32"'
        lines.append(f'  {ids[node]} [label="{title}\\n{shape}"{style}];')
    for node in nodes:
        for parent, _, _ in node.edges or ():
            lines.append(f"  {ids[parent]} -> {ids[node]};")
    return "\n".join([*lines, "}"]) + "\n"


def draw_graph(
    result: Tensor,
    *,
    path: str | Path | None = None,
    names: Mapping[str, Tensor] | None = None,
) -> Path | Any:
    """Draw the graph that computed `result`.

    Needs the package graphviz and the Graphviz programs.

    Parameters
    ----------
    result : Tensor
    path : str or Path, optional
        File that ends in .svg, .png or .pdf.
    names : dict of str to Tensor, optional
        Names of leaves, such as `dict(model.named_parameters())`.

    Returns
    -------
    Path or graphviz.Source
        `path`, or without a path a drawing that a notebook shows.
    """
    graphviz = require("graphviz", "draw_graph")
    drawing = graphviz.Source(to_dot(result, names=names))
    if path is None:
        return drawing
    path = Path(path)
    kind = path.suffix[1:].lower()
    if kind not in graphviz.FORMATS:
        raise ValueError(f"draw_graph: path must end in .svg, .png, .pdf ..., got {path}")
    try:
        write_bytes(path, drawing.pipe(kind))  # render() would write a .gv file beside it
    except graphviz.ExecutableNotFound as error:
        raise RuntimeError(
            "draw_graph needs the Graphviz programs, which are not installed; to_dot() returns the "
            "graph as text"
        ) from error
    return path
