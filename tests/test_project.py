"""Examples of pages run, the table of operations is up to date, and imports are light."""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import json
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
def test_examples_of_pages(name: str, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert table in (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    public = {
        name
        for name, value in vars(mg).items()
        if (callable(value) and hasattr(value, "op")) or FUNCTIONS.get(name) is value
    }
    second = {
        "abs",
        "bmm",
        "clamp",
        "inverse",
        "mm",
        "movedim",
        "permute",
        "pow",
        "topk",
        "unsqueeze",
    }
    assert public - listed <= second  # other names of functions that are listed


def test_import_needs_numpy_alone() -> None:
    code = """
import sys, json
sys.modules.update(dict.fromkeys(["torch", "matplotlib", "tqdm", "safetensors", "sacrebleu", "tokenizers", "scipy"]))
import numpy, numpy.random
before = set(sys.modules)
import minigrad, nn
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps(sorted(new - set(sys.stdlib_module_names) - {"minigrad", "nn", "numpy"})))
"""
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(out) == []


def test_import_works_with_the_oldest_numpy() -> None:
    """Functions that NumPy added after 2.0 are optional."""
    code = """
import numpy as np
for name in ("cumulative_sum", "cumulative_prod", "unstack", "matvec", "vecmat"):
    if hasattr(np, name):
        delattr(np, name)
import minigrad, nn
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_import_loads_little() -> None:
    """Import minigrad without the slow modules of the standard library."""
    code = "import sys, numpy; before = set(sys.modules); import minigrad; print(*set(sys.modules) - before)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    slow = {
        "asyncio",
        "doctest",
        "email",
        "http",
        "multiprocessing",
        "sqlite3",
        "ssl",
        "unittest",
        "xml",
    }
    assert not slow & {name.partition(".")[0] for name in out.split()}


def test_packages_that_type_checking_lacks_are_imported_by_require() -> None:
    """mypy runs after `pip install -e ".[test,dev]"`, so a static import names one of those packages."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    installed = set(sys.stdlib_module_names) | {"numpy", "minigrad", "nn"}
    pending = [*extras["test"], *extras["dev"]]
    for requirement in pending:
        name, _, nested = requirement.removesuffix("]").partition("[")
        installed.add(re.split("[>=]", name)[0].replace("-", "_"))
        pending += [package for extra in nested.split(",") if extra for package in extras[extra]]
    for path in [*ROOT.glob("minigrad/**/*.py"), *ROOT.glob("nn/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            missing = {name.partition(".")[0] for name in names} - installed
            assert not missing, f"{path.relative_to(ROOT)}: import {missing} by extras.require"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"])
def test_top_level_files(name: str) -> None:
    assert (ROOT / name).stat().st_size > 100


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
        with (
            contextlib.chdir(tmp_path) if hasattr(contextlib, "chdir") else contextlib.nullcontext()
        ):
            try:
                module.parse(arguments)
            except SystemExit as stop:
                raise AssertionError(f"{page}: {command}") from stop


def train_options() -> str:
    return (ROOT / "nn" / "commands" / "train.py").read_text(encoding="utf-8")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_extra_of_readme_covers_its_commands() -> None:
    import tomllib

    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]

    def packages(name: str) -> set[str]:
        names = set()
        for requirement in extras[name]:
            nested = re.fullmatch(r"minigrad-nn\[(.*)\]", requirement)
            parts = [packages(part) for part in nested[1].split(",")] if nested else []
            names |= set().union(*parts) if nested else {re.match(r"[\w-]+", requirement)[0]}
        return names

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.index('pip install -e ".[examples]"') < text.index("minigrad translate")
    needed = {"tokenizers", "sentencepiece", "jinja2", "matplotlib", "sacrebleu"}
    assert packages("examples") >= needed and packages("models") == {*needed} - {"matplotlib", "sacrebleu"}  # fmt: skip
