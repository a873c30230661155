"""Examples of pages run, the table of operations is up to date, and imports are light."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad.core.registry import FUNCTIONS
from tools.operations_table import op_table

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/start.md"])
def test_page_examples_print_what_they_show(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines with >>> print the lines below; other code prints its last comment."""
    blocks = re.findall(
        r"^```python\n(.*?)^```",
        (ROOT / name).read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    examples = "\n".join(block for block in blocks if block.startswith(">>>"))
    if examples:
        test = doctest.DocTestParser().get_doctest(examples, {}, name, name, 0)
        assert (
            doctest.DocTestRunner().run(test) == (len(test.examples), 0)
            or capsys.readouterr().out == ""
        )
    for block in blocks:
        if not block.startswith(">>>"):
            exec(compile(block, name, "exec"), {})
            said = capsys.readouterr().out.strip()
            assert said == block.strip().splitlines()[-1].partition("  # ")[2], said
    assert blocks


def test_readme_is_short_and_its_links_exist() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 125
    links = re.findall(r"\]\((?!https?:)([^)#]+)", "\n".join(lines))
    assert links and all((ROOT / link).is_file() for link in links)


@pytest.mark.skipif(
    not hasattr(np, "cumulative_sum"), reason="before NumPy 2.1, names are missing in it"
)
def test_table_of_operations_is_up_to_date() -> None:
    table = op_table()
    is_up_to_date = table in (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert is_up_to_date, "run python -m tools.operations_table docs/operations.md"
    listed = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    public = {
        name
        for name, value in vars(mg).items()
        if (callable(value) and hasattr(value, "op")) or FUNCTIONS.get(name) is value
    }
    second = {"abs", "bmm", "clamp", "inverse", "mm", "movedim", "permute", "pow", "topk", "unsqueeze"}  # fmt: skip
    assert public - listed <= second  # other names of functions that are listed


def modules_imported_by(code: str) -> set[str]:
    """Return the packages that a new process has imported after it ran `code`."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_import_needs_numpy_alone() -> None:
    needed = modules_imported_by("import numpy, numpy.random")
    packages = modules_imported_by("import minigrad, nn") - needed
    assert packages - set(sys.stdlib_module_names) == {"minigrad", "nn"}


def test_import_of_minigrad_loads_no_slow_module_of_the_standard_library() -> None:
    slow = {"asyncio", "email", "http", "multiprocessing", "sqlite3", "ssl", "unittest", "xml"}
    added = modules_imported_by("import minigrad") - modules_imported_by("import numpy")
    assert not slow & added


def test_import_works_with_the_oldest_numpy() -> None:
    """Functions that NumPy added after 2.0 are optional."""
    modules_imported_by("""
import numpy as np
for name in ("cumulative_sum", "cumulative_prod", "unstack", "matvec", "vecmat"):
    if hasattr(np, name):
        delattr(np, name)
import minigrad, nn
""")


@pytest.mark.parametrize("package", ["minigrad", "nn"])
def test_optional_packages_are_imported_by_require(package: str) -> None:
    """`import` is for NumPy and the standard library, and for jinja2, whose classes are base classes."""
    allowed = set(sys.stdlib_module_names) | {"numpy", "minigrad", "nn", "jinja2"}
    for path in ROOT.glob(f"{package}/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            missing = {name.partition(".")[0] for name in names} - allowed
            assert not missing, f"{path.relative_to(ROOT)}: import {missing} by extras.require"


def test_ci_runs_fast_and_slow_tests() -> None:
    commands = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r'^pip install -e "\.\[test\]" && pytest$', commands, re.MULTILINE)
    assert re.search(r"^pytest -m slow\b", commands, re.MULTILINE)


def commands_of_pages() -> list[tuple[str, str]]:
    """Return the page and the text of each command that starts a program of this project."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/cluster/*")]
    pages += [*ROOT.glob("examples/*.py"), *ROOT.glob("nn/commands/*.py")]
    start = r"(?:mpiexec .*?)?(?:minigrad (?=[a-z])(?!COMMAND)|python examples/)"
    shell = re.compile(rf"^(?: {{4}}|pip .* && )?({start}.*?)(?: {{3,}}.*| +#.*)?$", re.MULTILINE)
    commands = []
    for page in pages:
        if page.name != "CHANGELOG.md":
            text = re.sub(r" *\\\n *", " ", page.read_text(encoding="utf-8"))
            commands += [(str(page.relative_to(ROOT)), command) for command in shell.findall(text)]
    return commands


def test_commands_of_pages_have_options_that_exist(tmp_path: Path) -> None:
    """Programs and options in README, pages and docstrings are those of the programs."""
    commands = commands_of_pages()
    assert {page for page, _ in commands} >= {"README.md", "docs/start.md", "docs/published.md"}
    for page, command in commands:
        command = re.sub(r"^mpiexec .*?(?=minigrad|python)|[<>|&].*", "", command)
        words = shlex.split(re.sub(r"\$\w+", "1", command))
        if words[0] == "python":
            path = ROOT / words[1]
            assert path.is_file(), f"{page}: {command}"
            text = path.read_text(encoding="utf-8")
            if words[1].count("/") == 1:  # the options of lessons are those of lesson.py
                known = set(re.findall(r'"(--[\w-]+)"', text + train_options()))
                assert {word for word in words if word.startswith("--")} <= known, command
            continue
        module = importlib.import_module(f"nn.commands.{words[1].replace('-', '_')}")
        arguments = [word for word in words[2:] if word not in ("...", "--resume")]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            try:
                module.parse(arguments)
            except SystemExit as stop:
                raise AssertionError(f"{page}: {command}") from stop


def train_options() -> str:
    return (ROOT / "nn" / "commands" / "train.py").read_text(encoding="utf-8")


def test_extra_of_readme_covers_its_commands() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    examples = " ".join(extras["examples"])
    assert "minigrad-nn[models,plots,train]" in examples and "sacrebleu" in examples
    assert re.findall(r"[a-z]\w+", " ".join(extras["models"])) == [
        "tokenizers",
        "sentencepiece",
        "jinja2",
    ]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.index('pip install -e ".[examples]"') < text.index("minigrad translate")
