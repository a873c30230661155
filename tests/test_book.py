"""A function is in the book if a program in `examples/book` needs it, and runs it in the library, too."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from support.calls import BOOK, ROOT

PROGRAMS = {
    "translator.py": ("2", "330"),
    "characters.py": ("4",),
    "derivatives.py": (),
    "tensors.py": (),
    "mistakes.py": (),
    "operations.py": (),
    "tools.py": (),
}
"""The programs of the book, with arguments for a short run."""

REPLACED = {"_check_constant", "_unchanged", "_update", "_write", "take"}
"""Functions that the whole library replaces."""

Key = tuple[str, int, int]


@cache
def called(mode: str) -> set[Key]:
    """Return the functions of the book that the programs call, as `support.calls` prints them."""
    if sys.version_info < (3, 11):
        pytest.skip("needs columns of code, which Python 3.11 has")
    script, book = ROOT / "tests/support/calls.py", ROOT / "examples/book"
    lines = [shlex.join([str(book / name), *arguments]) for name, arguments in PROGRAMS.items()]
    command = [sys.executable, "-W", "error", str(script), mode, *lines]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return {tuple(key) for key in json.loads(run.stdout)}


def is_abstract(function: ast.AST) -> bool:
    """Return whether a method only raises NotImplementedError, or is a declaration for types."""
    if ast.unparse(function).endswith("..."):
        return True
    if isinstance(function, ast.Lambda):
        return False
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    return "overload" in decorators or "raise NotImplementedError" in ast.unparse(function.body[-1])


def functions(path: Path) -> dict[Key, str]:
    """Return the functions and lambdas of a file by the key that `support.calls` gives them."""
    found: dict[Key, str] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Lambda):
            found[str(path), node.body.lineno, node.body.col_offset] = f"lambda:{node.lineno}"
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not is_abstract(node):
            first = min([node.lineno, *[d.lineno for d in node.decorator_list]])
            found[str(path), first, 0] = node.name
    return found


ALL = {path: functions(path) for path in BOOK}


@pytest.mark.slow
@pytest.mark.parametrize("path", BOOK, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_programs_of_the_book_run_each_function(path: Path) -> None:
    unused = [name for key, name in ALL[path].items() if key not in called("alone")]
    assert not unused


def test_programs_of_the_book_are_short_and_all_run() -> None:
    lengths = {
        path.name: len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "examples/book").glob("*.py")
    }
    assert lengths.keys() == {"alone.py", *PROGRAMS} and max(lengths.values()) <= 90


@pytest.mark.slow
def test_programs_run_the_same_functions_in_the_whole_library() -> None:
    """Definitions run there inside `use_definitions()`."""
    names = {key: name for path in BOOK for key, name in ALL[path].items()}
    missing = (called("alone") & set(names)) - called("library") - called("definitions")
    assert {names[key] for key in missing} <= REPLACED


if __name__ == "__main__":  # prints the functions that no program runs, by file
    for path in BOOK:
        if unused := [name for key, name in ALL[path].items() if key not in called("alone")]:
            print(
                f"{len(unused):3} of {len(ALL[path]):3}  {path.relative_to(ROOT)}: {' '.join(unused)}"
            )
