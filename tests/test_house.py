"""Architecture: imports point down without circles, and functions are short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

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
    return max(
        (len(m), i)
        for i, names in enumerate(FLOORS)
        for m in names
        if (module + ".").startswith(m + ".")
    )[1]


def for_types_only(tree: ast.AST) -> set[ast.AST]:
    """Return the nodes inside `if TYPE_CHECKING:`."""
    tests = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)
    ]
    return {inside for test in tests for statement in test.body for inside in ast.walk(statement)}


def imported(module: str, path: Path) -> Iterator[str]:
    """Yield the modules of this project that a module imports, also inside functions."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = for_types_only(tree)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names = {f"{source}.{alias.name}" for alias in node.names}
            yield from (names & MODULES.keys()) or ({source} & MODULES.keys())
        elif isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & MODULES.keys()


@cache
def imports() -> dict[str, set[str]]:
    """Return the modules of this project that each module imports."""
    return {module: set(imported(module, path)) - {module} for module, path in MODULES.items()}


def test_imports_point_down() -> None:
    """Each layer imports only from itself and from those below, also inside functions."""
    wrong = [
        f"{module} imports {target}"
        for module, targets in imports().items()
        for target in targets
        if floor(target) > floor(module)
    ]
    assert not wrong


def test_imports_have_no_circle() -> None:
    """No module imports itself indirectly; a package stands for the imports of its __init__."""
    finished: set[str] = set()

    def visit(module: str, above: list[str]) -> None:
        assert module not in above, " -> ".join([*above[above.index(module) :], module])
        if module not in finished:
            for target in sorted(imports()[module]):
                visit(target, [*above, module])
            finished.add(module)

    for module in sorted(imports()):
        visit(module, [])


def test_kernels_are_imported_from_their_package() -> None:
    """Only minigrad/__init__.py imports modules inside minigrad.kernels."""
    for module, targets in imports().items():
        if module not in ("minigrad",) and not module.startswith("minigrad.kernels"):
            assert not [target for target in targets if target.startswith("minigrad.kernels.")], (
                module
            )


@pytest.mark.parametrize(
    "files",
    [
        "minigrad/**/*.py",
        "nn/**/*.py",
        "tools/*.py",
        "benchmarks/*.py",
        "docs/**/*.py",
        "examples/**/*.py",
        "tests/**/*.py",
    ],
)
def test_functions_are_short(files: str) -> None:
    """A function has at most 85 lines, without its signature and docstring."""
    long = []
    for path in ROOT.glob(files):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                if lines > 85:
                    long.append(f"{path.relative_to(ROOT)}: {node.name} has {lines} lines")
    assert not long


def test_core_contains_no_word_of_pytorch() -> None:
    """Its names are in `minigrad/torch_names.py` and `minigrad/advice.json`."""
    words = re.compile(r"(?i)torch|\b(keepdim|dims?|cuda|unsqueeze|permute|view_as|item_)\b")
    lines = [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted((ROOT / "minigrad" / "core").glob("*.py*"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if words.search(line)
    ]
    assert not lines, "\n".join(lines)


def test_core_set_has_about_60_rules() -> None:
    rules = 0
    for path in ROOT.glob("minigrad/ops/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                makers = [d.func for d in node.decorator_list if isinstance(d, ast.Call)]
                rules += any(isinstance(f, ast.Name) and f.id == "op" for f in makers)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                rules += node.func.id == "ufunc"
    assert 50 <= rules <= 64
