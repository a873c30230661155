"""Public names of packages; another package that is called minigrad or nn is noticed."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib.util
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from minigrad.check.extras import check_nn_package

ROOT = Path(__file__).parent.parent


def run(code: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code with `paths` first in sys.path."""
    start = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}; {code}"
    return subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, timeout=60)


def test_nn_with_another_minigrad_raises(tmp_path: Path) -> None:
    (tmp_path / "minigrad.py").write_text("class Tensor: pass")
    answer = run("import nn", tmp_path, ROOT)
    assert answer.returncode == 1
    assert f"got another package at {tmp_path / 'minigrad.py'}; run: pip uninstall" in answer.stderr


@pytest.mark.slow
def test_minigrad_with_another_nn_warns(tmp_path: Path) -> None:
    (tmp_path / "nn.py").write_text("")
    answer = run("import minigrad", tmp_path, ROOT)
    assert f"`import nn` imports another package, {tmp_path / 'nn.py'}" in answer.stderr
    answer = run("import minigrad, nn; nn.Linear", ROOT)
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.slow
def test_minigrad_with_replaced_nn_warns(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "minigrad", tmp_path / "minigrad")
    (tmp_path / "nn").mkdir()
    (tmp_path / "nn/__init__.py").write_text("")
    answer = run("import minigrad", tmp_path)
    assert "replaced or removed minigrad's package nn; run: pip uninstall nn, then" in answer.stderr


@pytest.mark.parametrize(
    ("place", "source", "message"),
    [
        ("nn", None, "has replaced or removed minigrad's package nn; run: pip uninstall nn, then"),
        ("nn", "import torch", "has replaced or removed minigrad's package nn"),
        ("nn", "from minigrad import Tensor", None),
        ("other/nn", "from minigrad import Tensor", "`import nn` imports another package, .*other"),
    ],
)
def test_nn_that_is_not_the_package_beside_minigrad_is_noticed(
    place: str, source: str | None, message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader: Any = None if source is None else SimpleNamespace(get_source=lambda name: source)
    spec = ModuleSpec("nn", loader, origin=source and "__init__.py", is_package=True)
    spec.submodule_search_locations = [str(ROOT / place)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.warns(UserWarning, match=message) if message else contextlib.nullcontext():
        check_nn_package()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_nn_package()


PUBLIC_MODULES = {
    "minigrad": {"linalg", "optim", "torch"},
    "minigrad.optim": {"lr_scheduler"},
    "minigrad.torch": {"amp", "nn", "optim", "utils"},
    "minigrad.torch.nn": {"functional", "init", "utils"},
    "minigrad.torch.nn.utils": {"rnn"},
    "minigrad.torch.optim": {"lr_scheduler"},
    "minigrad.torch.utils": {"data"},
    "nn": {"functional", "init", "plots", "text", "utils"},
    "nn.utils": {"rnn"},
}
"""Public modules of packages; other packages have none."""

PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for package in ("minigrad", "nn")
    for path in (ROOT / package).rglob("__init__.py")
)


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_of_package_has_public_names_and_no_internal_modules(name: str) -> None:
    package, modules = importlib.import_module(name), PUBLIC_MODULES.get(name, set())
    names = set(dir(package))
    assert {n for n in names if isinstance(getattr(package, n), ModuleType)} == modules
    assert not {n for n in names if n.startswith("_")}
    if hasattr(package, "__all__"):
        assert set(package.__all__) - modules == names - modules - vars(builtins).keys()
    for node in ast.parse(Path(package.__file__).read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:  # of its own modules
            imported = {alias.asname or alias.name for alias in node.names if node.module}
            assert not [
                n
                for n in imported - names
                if n[0] != "_" and n != "*" and not isinstance(getattr(package, n), ModuleType)
            ]


@pytest.mark.parametrize("name", [name for name in PACKAGES if name != "minigrad.torch"])
def test_star_import_keeps_builtins_and_modules(name: str) -> None:
    import numpy

    scope = {"numpy": numpy, "torch": "torch"}
    exec(f"from {name} import *", scope)
    assert scope["numpy"] is numpy and scope["torch"] == "torch"
    assert not scope.keys() & vars(builtins).keys()
