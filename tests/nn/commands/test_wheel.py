"""Run the commands of the installed wheel, in a new environment without the checkout."""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import venv
from email import message_from_string
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
TINY = "--sentences 240 --valid-size 10 --test-size 10 --epochs 12 --lr 1e-2 --warmup 10 --d-model 32 --processes 1"


def run(*command: str | Path, cwd: Path) -> str:
    """Return the standard output of a command, which must succeed."""
    hidden = ("PYTHONPATH", "PYTHONHOME")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def minigrad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the command of a new environment, in which the wheel is the only copy of the package."""
    pytest.importorskip("pip")
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("minigrad", "nn"):
        shutil.copytree(ROOT / name, folder / "source" / name)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder / "source")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    run(*pip, "wheel", folder / "source", *options, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    bin_dir = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python = bin_dir / Path(sys.executable).name
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    packages = {Path(find_spec(name).origin).parents[1] for name in ("numpy", "pytest")}
    purelib = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
    )
    others = [*site.getsitepackages(), *map(str, packages)]
    (Path(purelib.strip()) / "others.pth").write_text("\n".join(dict.fromkeys(others)))
    where = run(python, "-c", "import nn; print(nn.__file__)", cwd=folder)
    assert Path(where).is_relative_to(folder / "venv")
    return bin_dir / "minigrad"


def test_description_of_wheel_has_no_relative_link(minigrad: Path) -> None:
    path = next((minigrad.parents[1] / "lib").glob("python*/site-packages/minigrad_nn-*/METADATA"))
    metadata = message_from_string(path.read_text(encoding="utf-8"))
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = metadata.get_payload()
    targets = re.findall(r"\]\((.*?)\)", description)
    assert all(target.startswith("https://") for target in targets), targets
    assert "- Start (`docs/start.md`): installation" in description
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall("```.*?```", readme, re.DOTALL)
    assert len(blocks) > 3 and all(block in description for block in blocks)


def test_wheel_trains_translates_and_explores(minigrad: Path, tmp_path: Path) -> None:
    assert "fine-tune" in run(minigrad, "--help", cwd=tmp_path)
    last = run(minigrad, "train", *TINY.split(), cwd=tmp_path).splitlines()[-1]
    assert last.startswith("10 held-out sentences: ") and last.endswith("run directory runs/zh-en")
    assert run(minigrad, "translate", "runs/zh-en", "我 有 一只 猫", cwd=tmp_path).strip()
    assert run(minigrad, "explore", "runs/zh-en", "我 有", cwd=tmp_path) == "runs/zh-en.html\n"
    assert r"\u6211" in (tmp_path / "runs/zh-en.html").read_text(encoding="utf-8")  # 我 in JSON
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]
