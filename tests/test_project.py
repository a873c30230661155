"""Examples of pages run, the table of operations is up to date, and imports are light."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

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
    assert blocks
    for block in blocks:
        if block.startswith(">>>"):
            continue
        exec(compile(block, name, "exec"), {})
        said = capsys.readouterr().out.strip()
        assert said == block.strip().splitlines()[-1].partition("  # ")[2], said
    examples = "\n".join(block for block in blocks if block.startswith(">>>"))
    test = doctest.DocTestParser().get_doctest(examples, {}, name, name, 0)
    assert doctest.DocTestRunner().run(test).failed == 0, capsys.readouterr().out


def test_readme_is_short_and_its_links_exist() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 125
    links = re.findall(r"\]\((?!https?:)([^)#]+)", "\n".join(lines))
    assert links and all((ROOT / link).is_file() for link in links)


@pytest.mark.skipif(
    not hasattr(np, "cumulative_sum"), reason="before NumPy 2.1, names are missing in it"
)
def test_table_of_operations_is_up_to_date() -> None:
    is_up_to_date = op_table() in (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert is_up_to_date, "run python -m tools.operations_table docs/operations.md"


def modules_imported_by(code: str) -> set[str]:
    """Return the packages that a new process has imported after it ran `code`."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_import_needs_numpy_and_no_slow_module_of_the_standard_library() -> None:
    numpy = modules_imported_by("import numpy, numpy.random")
    packages = modules_imported_by("import minigrad, nn") - numpy
    assert packages - set(sys.stdlib_module_names) == {"minigrad", "nn"}
    slow = {"asyncio", "email", "http", "multiprocessing", "sqlite3", "ssl", "unittest", "xml"}
    assert not slow & (modules_imported_by("import minigrad") - numpy)


def test_import_works_with_the_oldest_numpy() -> None:
    """Functions that NumPy added after 2.0 are optional."""
    modules_imported_by("""
import numpy as np
for name in ("cumulative_sum", "cumulative_prod", "unstack", "matvec", "vecmat"):
    if hasattr(np, name):
        delattr(np, name)
import minigrad, nn
""")


def test_ci_runs_fast_and_slow_tests() -> None:
    commands = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r'^pip install -e "\.\[test\]" && pytest$', commands, re.MULTILINE)
    assert re.search(r"^pytest -m slow\b", commands, re.MULTILINE)


def commands_of_pages() -> Iterator[tuple[str, str]]:
    """Yield the page and the text of each command that starts a program of this project."""
    start = r"(?:mpiexec .*?)?((?:minigrad (?=[a-z])(?!COMMAND)|python examples/)"
    shell = re.compile(rf"^(?: {{4}}|pip .* && )?{start}.*?)(?: {{3,}}.*| +#.*| *[<>|&].*)?$", re.M)
    for pattern in ("*.md", "docs/**/*.md", "examples/cluster/*", "examples/*.py", "nn/commands/*.py"):  # fmt: skip
        for page in set(ROOT.glob(pattern)) - {ROOT / "CHANGELOG.md"}:
            text = re.sub(r" *\\\n *", " ", page.read_text(encoding="utf-8"))
            for command in shell.findall(text):
                yield str(page.relative_to(ROOT)), re.sub(r"\$\w+", "1", command)


def test_commands_of_pages_have_options_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs and options in README, pages and docstrings are those of the programs."""
    monkeypatch.chdir(tmp_path)
    pages = set()
    for page, command in commands_of_pages():
        pages.add(page)
        program, name, *words = shlex.split(command)
        if program == "minigrad":
            module = importlib.import_module(f"nn.commands.{name.replace('-', '_')}")
            try:
                module.parse([word for word in words if word not in ("...", "--resume")])
            except SystemExit as stop:
                raise AssertionError(f"{page}: {command}") from stop
        elif name.count("/") == 1:  # the options of lessons are those of lesson.py
            texts = [(ROOT / file).read_text("utf-8") for file in (name, "nn/commands/train.py")]
            known = set(re.findall(r'"(--[\w-]+)"', "".join(texts)))
            assert {word for word in words if word.startswith("--")} <= known, command
    assert pages >= {"README.md", "docs/start.md", "docs/published.md"}


def test_extra_of_readme_covers_its_commands() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert "minigrad-nn[models,plots,train]" in extras["examples"]
    names = {re.match(r"[\w-]+", need)[0] for need in [*extras["examples"], *extras["models"]]}
    assert names >= {"sacrebleu", "tokenizers", "sentencepiece", "jinja2"}
