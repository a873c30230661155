"""Pictures of graphs."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad import GradientError, MissingExtraError, Tensor


def test_to_dot_has_nodes_of_ops_and_leaves() -> None:
    w, x = Tensor(np.ones((2, 3)), requires_grad=True), Tensor(np.ones(3), requires_grad=True)
    text = mg.to_dot(np.tanh(w @ x).sum(), names={"weight": w})
    assert text.startswith("digraph {") and text.endswith("}\n") and text.count("->") == 4
    for label in ('"weight\\n2 × 3", fillcolor="#bbdefb"', '"leaf\\n3"', '"tanh\\n2"', '"sum\\nsc'):
        assert f"label={label}" in text
    with pytest.raises(GradientError, match="to_dot: this tensor does not require gradients"):
        mg.to_dot(Tensor(1.0))


def test_draw_graph_writes_only_its_file(tmp_path: Path) -> None:
    pytest.importorskip("graphviz")
    if shutil.which("dot") is None:
        pytest.skip("Graphviz is not installed")
    y = Tensor(1.0, requires_grad=True) * 2
    assert "multiply" in mg.draw_graph(y, path=tmp_path / "g.svg").read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["g.svg"]
    assert "multiply" in mg.draw_graph(y)._repr_mimebundle_()["image/svg+xml"]


def test_draw_graph_without_graphviz_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = Tensor(1.0, requires_grad=True) * 2
    with pytest.raises(ValueError, match="draw_graph: path must end in .svg"):
        mg.draw_graph(y, path=tmp_path / "g.text")
    monkeypatch.setenv("PATH", "")
    if find_spec("graphviz"):
        with pytest.raises(
            RuntimeError, match="Graphviz programs, which are not installed; to_dot"
        ):
            mg.draw_graph(y, path=tmp_path / "g.svg")
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(MissingExtraError, match="draw_graph needs graphviz: pip install graph"):
        mg.draw_graph(y)
