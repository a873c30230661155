"""Run the commands of the installed wheel, outside of the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from email import message_from_string
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
TINY = "--sentences 240 --valid-size 10 --test-size 10 --epochs 12 --lr 1e-2 --warmup 10 --d-model 32 --processes 1"


def run(*command: str | Path, cwd: Path, packages: Path) -> str:
    """Return the standard output of a command that imports from a directory of packages first."""
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which the wheel is installed."""
    try:  # their versions, because setuptools cannot be imported after some versions of pip
        version("pip")
        setuptools = int(version("setuptools").split(".")[0])
    except PackageNotFoundError as error:
        pytest.skip(f"needs {error.name}")
    if setuptools < 77:
        pytest.skip(f"needs setuptools 77, got {setuptools}")
    source, packages = (tmp_path_factory.mktemp(name) for name in ("source", "packages"))
    for name in ("minigrad", "nn"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    line = "-m pip --quiet install --no-deps --no-build-isolation --target"
    run(sys.executable, *line.split(), packages, source, cwd=source, packages=packages)
    return packages


def test_description_of_wheel_has_no_relative_link(packages: Path) -> None:
    path = next(packages.glob("minigrad_nn-*/METADATA"))
    metadata = message_from_string(path.read_text(encoding="utf-8"))
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = metadata.get_payload()
    targets = re.findall(r"\]\((.*?)\)", description)
    assert all(target.startswith("https://") for target in targets), targets
    assert "Start (`docs/start.md`), published models (`docs/published.md`)" in description
    blocks = re.findall("```.*?```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert len(blocks) > 3 and all(block in description for block in blocks)


def test_wheel_trains_translates_and_explores(packages: Path, tmp_path: Path) -> None:
    def minigrad(*arguments: str) -> str:
        return run(packages / "bin/minigrad", *arguments, cwd=tmp_path, packages=packages)

    where = "import nn, minigrad; print(nn.__file__, minigrad.__file__)"
    found = run(sys.executable, "-c", where, cwd=tmp_path, packages=packages)
    assert found.count(str(packages)) == 2
    assert "fine-tune" in minigrad("--help")
    last = minigrad("train", *TINY.split()).splitlines()[-1]
    assert last.startswith("10 held-out sentences: ") and last.endswith("run directory runs/zh-en")
    assert minigrad("translate", "runs/zh-en", "我 有 一只 猫").strip()
    assert minigrad("explore", "runs/zh-en", "我 有") == "runs/zh-en.html\n"
    assert r"\u6211" in (tmp_path / "runs/zh-en.html").read_text(encoding="utf-8")  # 我 in JSON
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]
