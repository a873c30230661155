"""Examples of pages run, the table of operations is up to date, and imports are light."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from support.environment import OPTIONAL, is_allowed_skip, needs

from tools.operations_table import tables

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/start.md", "docs/reading.md"])
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


def test_examples_of_the_page_on_numpy_run(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/numpy.md").read_text(encoding="utf-8")
    without = "SCIPY_ARRAY_API" if find_spec("scipy") else "scipy"
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        if without not in block:  # SCIPY_ARRAY_API is read by SciPy when it is imported
            exec(compile(block, "docs/numpy.md", "exec"), names)
            said = capsys.readouterr().out.strip()
            assert not said or said == block.strip().splitlines()[-1].partition("  # ")[2]


def test_links_of_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links and all((ROOT / link).is_file() for link in links)


@pytest.mark.skipif(not hasattr(np, "cumulative_sum"), reason="needs the names of NumPy 2.1")
def test_table_of_operations_is_up_to_date() -> None:
    is_up_to_date = tables() in (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert is_up_to_date, "run python -m tools.operations_table docs/operations.md"


def modules_after(*imports: str) -> list[set[str]]:
    """Return the packages that a new process has imported after each of these statements."""
    show = "print(*{name.partition('.')[0] for name in sys.modules})"
    code = "\n".join(["import sys", *(f"{line}\n{show}" for line in imports)])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [set(line.split()) for line in run.stdout.splitlines()]


def test_import_needs_numpy_and_no_slow_module_of_the_standard_library() -> None:
    numpy, core, whole = modules_after("import numpy, numpy.random", "import minigrad", "import nn")
    assert whole - numpy - set(sys.stdlib_module_names) == {"minigrad", "nn"}
    slow = {"asyncio", "email", "http", "multiprocessing", "sqlite3", "ssl", "unittest", "xml"}
    assert not slow & (core - numpy)


@pytest.mark.slow
def test_import_works_with_the_oldest_numpy() -> None:
    """Functions that NumPy added after 2.0 are optional."""
    modules_after("""
import numpy as np
for name in ("cumulative_sum", "cumulative_prod", "unstack", "matvec", "vecmat"):
    if hasattr(np, name):
        delattr(np, name)
import minigrad, nn
""")


def test_ci_runs_commands_of_readme_and_all_tests() -> None:
    readme, ci = ((ROOT / file).read_text(encoding="utf-8") for file in ("README.md", ".ci/run"))
    commands = re.findall(r"^pip install -e .* && .*", readme, re.MULTILINE)
    assert len(commands) == 2 and all(f"run '{command}'\n" in ci for command in commands)
    assert re.search(
        r'^HYPOTHESIS_PROFILE=full pytest --full .*-m "slow or not slow"$', ci, re.MULTILINE
    )
    assert "\nexport HYPOTHESIS_PROFILE=ci\n" in ci


@pytest.mark.parametrize(
    ("test", "reason", "without_extras", "with_all"),
    [
        ("tests/minigrad/ops/test_ops.py", "needs scipy", False, False),
        ("tests/nn/text/test_text.py::test_x", "needs tokenizers", True, False),
        ("tests/nn/text/test_text.py::test_x", "fails today", False, False),
        ("tests/docs/test_live.py::test_x", "needs chromium and chromedriver", True, True),
    ],
)
def test_skips_that_are_not_listed_fail(
    test: str, reason: str, without_extras: bool, with_all: bool
) -> None:
    assert all((ROOT / path).exists() for path in OPTIONAL)
    assert is_allowed_skip(test, reason, slow=False, full=False) == without_extras
    assert is_allowed_skip(test, reason, slow=False, full=True) == with_all
    if "needs" in reason:  # a slow test compares with other libraries
        assert is_allowed_skip(test, reason, slow=True, full=False)


def test_number_of_examples_is_set_by_profiles() -> None:
    """`environment.examples` draws at least 1,000 examples if the profile is thorough."""
    files = [
        path
        for path in (ROOT / "tests").rglob("*.py")
        if "max_examples=" in path.read_text("utf-8")
    ]
    assert {path.name for path in files} - {"test_project.py"} == {"conftest.py", "environment.py"}


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


def test_extras_contain_the_packages_of_their_purpose() -> None:
    tomllib = needs("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = {
        extra: {re.match(r"[\w-]+", need)[0] for need in needs} for extra, needs in extras.items()
    }
    assert names["test"] == {"pytest", "hypothesis"}
    assert names["all"] >= {"sacrebleu", "tqdm"}
    assert "minigrad-nn[models,gguf,plots]" in extras["all"]
