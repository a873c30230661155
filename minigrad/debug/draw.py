"""Pictures of a graph, in Graphviz's language."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import overload

from ..core.graph import topological
from ..core.tensor import Tensor
from ..extras import require
from ..io.atomic import write_bytes

__all__ = ["to_dot", "draw_graph"]


def to_dot(result: Tensor, *, names: Mapping[str, Tensor] | None = None) -> str:
    """The graph that computed `result` as Graphviz text; `names`, as
    dict(model.named_parameters()), are of leaves.
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


class Drawing:
    """A picture in SVG that a notebook shows."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg


@overload
def draw_graph(
    result: Tensor, *, path: None = None, names: Mapping[str, Tensor] | None = None
) -> Drawing: ...


@overload
def draw_graph(
    result: Tensor, *, path: str | Path, names: Mapping[str, Tensor] | None = None
) -> Path: ...


def draw_graph(
    result: Tensor,
    *,
    path: str | Path | None = None,
    names: Mapping[str, Tensor] | None = None,
) -> Path | Drawing:
    """Draw the graph of `result` into a picture file (.svg, .png, .pdf), or without a path for a
    notebook.

    Needs the package graphviz and the Graphviz programs. See `to_dot` for `names`.
    """
    graphviz = require("graphviz", "draw_graph")
    path = None if path is None else Path(path)
    kind = "svg" if path is None else path.suffix[1:].lower()
    if kind not in graphviz.FORMATS:
        raise ValueError(f"draw_graph: {path}: expected a name that ends in .svg, .png, .pdf ...")
    try:
        picture = graphviz.Source(to_dot(result, names=names)).pipe(
            kind
        )  # render() would write a .gv file beside it
    except graphviz.ExecutableNotFound as error:
        raise RuntimeError(
            "draw_graph: the Graphviz programs are not installed; to_dot() gives the text"
        ) from error
    if path is None:
        return Drawing(picture.decode("utf-8"))
    write_bytes(path, picture)
    return path
