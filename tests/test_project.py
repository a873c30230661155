"""The examples of README and pages run, the table of operations is that of the registry, and importing is light."""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad.core.registry import FUNCTIONS
from tools.operations_table import op_table

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "name", ["README.md", "docs/index.md", "docs/zh/index.md", "docs/start.md"]
)
def test_examples_of_pages(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What begins with >>> prints what stands below it; other code runs, and prints what its last comment says."""
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


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 140
    links = re.findall(r"\]\((?!https?:)([^)#]+)", "\n".join(lines))
    assert links and all((ROOT / link).is_file() for link in links)


@pytest.mark.skipif(
    not hasattr(np, "cumulative_sum"), reason="before NumPy 2.1, names are missing in it"
)
def test_the_table_of_operations() -> None:
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


def test_the_oldest_numpy_is_enough() -> None:
    """Names that NumPy got after 2.0 are used only where they are."""
    code = """
import numpy as np
for name in ("cumulative_sum", "cumulative_prod", "unstack", "matvec", "vecmat"):
    if hasattr(np, name):
        delattr(np, name)
import minigrad, nn
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_import_loads_little() -> None:
    """What makes an import slow is other packages: none of the slow ones of the standard library comes along."""
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


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"])
def test_top_level_files(name: str) -> None:
    assert (ROOT / name).stat().st_size > 100
