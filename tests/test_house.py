"""Architecture: imports have no circle, and optional packages are imported in one way."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ("minigrad", "nn")
    for path in ROOT.glob(f"{package}/**/*.py")
}


class Imports(ast.NodeVisitor):
    """Return the modules that a module imports, also inside functions."""

    def __init__(self, module: str, path: Path) -> None:
        self.package = module.split(".")[: None if path.name == "__init__.py" else -1]
        self.targets: set[str] = set()
        self.visit(ast.parse(path.read_text(encoding="utf-8")))
        self.targets -= {module}

    def visit_If(self, node: ast.If) -> None:
        if getattr(node.test, "id", "") != "TYPE_CHECKING":
            self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = self.package[: len(self.package) - node.level + 1] if node.level else []
        source = ".".join([*base, *filter(None, [node.module])])
        names = {f"{source}.{alias.name}" for alias in node.names}
        self.targets |= (names & MODULES.keys()) or {source}

    def visit_Import(self, node: ast.Import) -> None:
        self.targets |= {alias.name for alias in node.names}


IMPORTS = {module: Imports(module, path).targets for module, path in MODULES.items()}


def test_imports_have_no_circle() -> None:
    """No module imports itself indirectly; a package stands for the imports of its __init__."""
    TopologicalSorter(IMPORTS).prepare()


def package_of(module: str) -> str | None:
    """Return the package of a module; None for the `__init__` and the commands that gather all."""
    while module not in MODULES:
        module = module.rpartition(".")[0]
    parent = MODULES[module].relative_to(ROOT).parent
    if len(parent.parts) == 1 and MODULES[module].stem.startswith("__"):
        return None
    return ".".join(parent.parts[:2]).replace("minigrad.ops", "minigrad")


def test_packages_import_one_way() -> None:
    """No package imports itself indirectly, neither at its start nor inside functions."""
    packages: dict[str, set[str]] = {}
    for module, targets in IMPORTS.items():
        inner = {target for target in targets if target.partition(".")[0] in ("minigrad", "nn")}
        source, found = package_of(module), {package_of(target) for target in inner}
        if source is not None:
            packages.setdefault(source, set()).update(p for p in found if p not in (None, source))
    TopologicalSorter(packages).prepare()


def test_optional_packages_are_imported_by_require() -> None:
    """`import` is for NumPy and the standard library, and for jinja2, whose classes are base classes."""
    allowed = sys.stdlib_module_names | {"numpy", "minigrad", "nn", "jinja2"}
    for module, targets in IMPORTS.items():
        others = {target.partition(".")[0] for target in targets} - allowed
        assert not others, f"{module}: import {others} by extras.require"


BOOK = [
    path
    for directory in ("minigrad", "minigrad/ops")
    for path in sorted((ROOT / directory).glob("*.py"))
    if path != ROOT / "minigrad/__init__.py"
]


def test_each_file_of_the_book_begins_with_what_to_look_at() -> None:
    """After the summary, a docstring describes the purpose of the file, or what to read first."""
    for path in BOOK:
        summary, _, rest = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition(
            "\n\n"
        )
        assert summary.endswith(".") and "\n" not in summary, path
        assert re.search(r"[Ll]ook at|[Rr]ead|[Oo]n a first reading|skip", rest), path


def test_extension_points_that_the_registry_lists_exist() -> None:
    document = importlib.import_module("minigrad.registry").__doc__ or ""
    points = re.findall(r"^- (.*(?:\n  .*)*)", document.split("these points")[1], re.MULTILINE)
    assert len(points) == 10
    for name in re.findall(r"`([a-z]+\.[\w.]+)`", "\n".join(points)):
        module, _, names = name.partition(".")
        value = importlib.import_module(f"minigrad.{module}")
        for part in names.split("."):
            value = getattr(value, part)
    for file in ("fuse", "arrays", "modes", "optimizer", "protocols"):
        assert "extension points" in (importlib.import_module(f"minigrad.{file}").__doc__ or ""), (
            file
        )
