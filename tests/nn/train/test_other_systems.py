"""Training without parts of Linux: in one process, with one line of warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from runs import trainer, weights

import nn
from minigrad.io import load_arrays
from minigrad.parallel import Alone
from nn.train import checkpoint

pytestmark = pytest.mark.slow
SUPPORT = Path(__file__).parents[2] / "support"
ROOT = SUPPORT.parents[1]

TAKEN_AWAY = {
    "fork": "del os.fork, os.register_at_fork",
    "macOS": "sys.platform = 'darwin'",
    "signals": "del signal.SIGHUP, signal.pthread_sigmask",
    "locks": "sys.modules['fcntl'] = None",
    "resource": "sys.modules['resource'] = None",
    "malloc": "sys.modules['ctypes'] = None",
    "names": "del os.uname, os.sched_getaffinity, os.O_NOFOLLOW, os.O_CLOEXEC",
    "encodings": "",
}
ONE_PROCESS = "warning: parallel=2: {} training runs in one process"
LINES = {
    "fork": [ONE_PROCESS.format("this system cannot fork;")],
    "macOS": [ONE_PROCESS.format("forking is unsafe on macOS;")],
    "signals": [ONE_PROCESS.format("this system cannot fork;")],
    "locks": ["warning: {}: this system has no file locks; start only one run in this directory"],
}
SCRIPT = """
import os, signal, sys
import numpy, multiprocessing
{taken_away}
sys.path.insert(0, {support!r})
from pathlib import Path
from minigrad.console import run_script
from runs import trainer

def main():
    for epochs in (1, 2):
        trainer(Path({run!r}), max_epochs=epochs, parallel=2).fit(resume=True)
    print("完 ≤")

sys.exit(run_script(main))
"""


def main_job(run: Path, taken_away: str, **variables: str) -> tuple[bytes, list[str]]:
    """Run a small training in another process; return its output and lines of errors."""
    script = SCRIPT.format(taken_away=taken_away, support=str(SUPPORT), run=str(run))
    env = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    path = run.with_suffix(".py")
    path.write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, path], env=env, capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout, done.stderr.decode("utf-8").splitlines()


@pytest.fixture(scope="module")
def on_linux(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, np.ndarray]]:
    """Return the weights of the same training here, with one process and with two."""
    found = {}
    for parallel in (1, 2):
        path = tmp_path_factory.mktemp(str(parallel))
        for epochs in (1, 2):
            t = trainer(path, max_epochs=epochs, parallel=parallel)
            t.fit(resume=True)
        found[parallel] = weights(t)
    return found


@pytest.mark.parametrize("name", [*TAKEN_AWAY, "all"])
def test_trainer_on_a_system_without_parts_of_linux_ends_with_the_same_weights(
    tmp_path: Path, name: str, on_linux: dict[int, dict[str, np.ndarray]]
) -> None:
    lines = [line for n in LINES for line in LINES[n] if name in (n, "all")]
    if name == "all":
        lines = [*LINES["fork"], *LINES["locks"]]
    taken = "\n".join(TAKEN_AWAY.values()) if name == "all" else TAKEN_AWAY[name]
    if name == "all":
        taken = taken.replace(TAKEN_AWAY["macOS"], "")
    odd = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONIOENCODING": ""}
    odd["PYTHONWARNDEFAULTENCODING"] = "1"
    odd["PYTHONWARNINGS"] = "error::EncodingWarning"
    out, err = main_job(tmp_path / "run", taken, **(odd if name in ("encodings", "all") else {}))
    assert out.decode("utf-8").split() == ["完", "≤"]
    assert sorted(set(err)) == sorted(line.format(tmp_path / "run") for line in lines)
    processes = 1 if any("one process" in line for line in lines) else 2
    arrays, _ = load_arrays(tmp_path / "run" / "last.safetensors")
    for parameter, array in on_linux[processes].items():
        np.testing.assert_array_equal(arrays[f"model.{parameter}"], array, err_msg=parameter)


def test_run_directory_locked_as_on_windows_takes_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: set[int] = set()

    class Msvcrt:
        """Imitate the locks of Windows, which raise EACCES."""

        LK_NBLCK = 2

        @staticmethod
        def locking(descriptor: int, mode: int, size: int) -> None:
            inode = os.fstat(descriptor).st_ino
            if inode in locked:
                raise PermissionError(13, "Permission denied")
            locked.add(inode)

    monkeypatch.setattr(checkpoint, "fcntl", None)
    monkeypatch.setattr(checkpoint, "msvcrt", Msvcrt)
    with nn.RunDirectory(tmp_path):
        with pytest.raises(BlockingIOError, match="another run is at work"):
            trainer(tmp_path).fit()
        locked.clear()
    trainer(tmp_path, max_epochs=1).fit()


def test_data_parallel_by_itself_refuses_a_system_that_cannot_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    t = trainer(parallel=2)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RuntimeError, match="forking is unsafe on macOS; use processes=1"):
        t.fit()
    with pytest.warns(RuntimeWarning, match="parallel=3: forking is unsafe on macOS; training"):
        assert type(trainer(parallel=3).parallel) is Alone
