"""Architecture: imports point down without circles, and functions are short."""

from __future__ import annotations

import ast
import re
import sys
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

from minigrad.core.registry import OPS

ROOT = Path(__file__).parent.parent
FLOORS = [
    ["minigrad.core.batched"], ["minigrad.core.errors", "minigrad.methods", "minigrad.extras", "minigrad.io", "minigrad.launcher",
     "minigrad.runtime"],
    ["minigrad.core.modes", "minigrad.core.changes", "minigrad.core.watch"], ["minigrad.core.graph"],
    ["minigrad.core.data_model"], ["minigrad.core.tensor", "minigrad.core.random"], ["minigrad.core.nested"],
    ["minigrad.core.forms", "minigrad.core.caller"],
    ["minigrad.core.protocols", "minigrad.core.op", "minigrad.core.creation"], ["minigrad.core.registry"],
    ["minigrad.ops"], ["minigrad.kernels"], ["minigrad.numpy_ops"],
    ["minigrad"], ["nn.layers"], ["nn.text"], ["nn.models"], ["nn.pretrained"], ["nn.generation"], ["nn.train"], ["nn.inspection"], ["nn"],
]  # fmt: skip
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ("minigrad", "nn")
    for path in ROOT.glob(f"{package}/**/*.py")
}


def floor(module: str) -> int:
    """Return the index of the layer of a module: the longest name that matches."""
    floors = {name: i for i, names in enumerate(FLOORS) for name in names}
    return floors[max((m for m in floors if f"{module}.".startswith(f"{m}.")), key=len)]


class Imports(ast.NodeVisitor):
    """Return the modules that a module imports, also inside functions."""

    def __init__(self, module: str, path: Path) -> None:
        self.package = module.split(".")[: None if path.name == "__init__.py" else -1]
        self.targets: set[str] = set()
        self.visit(ast.parse(path.read_text(encoding="utf-8")))
        self.targets -= {module}

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = self.package[: len(self.package) - node.level + 1] if node.level else []
        source = ".".join([*base, *filter(None, [node.module])])
        names = {f"{source}.{alias.name}" for alias in node.names}
        self.targets |= (names & MODULES.keys()) or {source}

    def visit_Import(self, node: ast.Import) -> None:
        self.targets |= {alias.name for alias in node.names}


IMPORTS = {module: Imports(module, path).targets for module, path in MODULES.items()}


def test_imports_point_down() -> None:
    """Each layer imports only from itself and from those below, also inside functions."""
    assert not [
        f"{module} imports {target}"
        for module, targets in IMPORTS.items()
        for target in targets & MODULES.keys()
        if floor(target) > floor(module)
    ]


def test_imports_have_no_circle() -> None:
    """No module imports itself indirectly; a package stands for the imports of its __init__."""
    TopologicalSorter(IMPORTS).prepare()


def test_kernels_are_imported_from_their_package() -> None:
    """Only minigrad/__init__.py imports modules inside minigrad.kernels."""
    for module, targets in IMPORTS.items():
        if module != "minigrad" and not module.startswith("minigrad.kernels"):
            assert not any(target.startswith("minigrad.kernels.") for target in targets), module


def test_optional_packages_are_imported_by_require() -> None:
    """`import` is for NumPy and the standard library, and for jinja2, whose classes are base classes."""
    allowed = sys.stdlib_module_names | {"numpy", "minigrad", "nn", "jinja2"}
    for module, targets in IMPORTS.items():
        others = {target.partition(".")[0] for target in targets} - allowed
        assert not others, f"{module}: import {others} by extras.require"


def test_functions_are_short() -> None:
    """A function has at most 85 lines, without its signature and docstring."""
    for directory in ("minigrad", "nn", "tools", "benchmarks", "docs", "examples", "tests"):
        for path in ROOT.glob(f"{directory}/**/*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    first = node.body[min(len(node.body) - 1, bool(ast.get_docstring(node)))]
                    lines = node.body[-1].end_lineno - first.lineno + 1
                    assert lines <= 85, f"{path}: {node.name} has {lines} lines"


def test_core_contains_no_word_of_pytorch() -> None:
    """Its names are in `minigrad/torch_names.py` and `minigrad/advice.json`."""
    words = re.compile(
        r"(?i).*(?:torch|\b(?:keepdim|dims?|cuda|unsqueeze|permute|view_as|item_)\b)"
    )
    for path in (ROOT / "minigrad" / "core").glob("*.py*"):
        assert not words.findall(path.read_text(encoding="utf-8")), path


def test_core_set_has_about_60_rules() -> None:
    modules = [import_module(name) for name in MODULES if name.startswith("minigrad.ops.")]
    names = {name for module in modules for name in vars(module).get("__all__", ())}
    assert 50 <= len(names & OPS.keys()) <= 64
