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
from nn.train import checkpoint

SUPPORT = Path(__file__).parents[2] / "support"

NO_FORK = "warning: parallel=2: this system cannot fork; training runs in one process"
ON_MACOS = "warning: parallel=2: forking is unsafe on macOS; training runs in one process"
NO_LOCKS = "warning: {run}: this system has no file locks; start only one run in this directory"
SYSTEMS = {
    "no fork": ("del os.fork, os.register_at_fork", [NO_FORK]),
    "macOS": ("sys.platform = 'darwin'", [ON_MACOS]),
    "no signals": ("del signal.SIGHUP, signal.pthread_sigmask", [NO_FORK]),
    "no locks": ("sys.modules['fcntl'] = None", [NO_LOCKS]),
    "no resource": ("sys.modules['resource'] = None", []),
    "no malloc": ("sys.modules['ctypes'] = None", []),
    "no names": ("del os.uname, os.sched_getaffinity, os.O_NOFOLLOW, os.O_CLOEXEC", []),
    "other encoding": ("", []),
}
"""Code that takes parts of Linux away, and the warnings of a training then."""
SYSTEMS["all but macOS"] = (
    "\n".join(code for code, lines in SYSTEMS.values() if lines != [ON_MACOS]),
    [NO_FORK, NO_LOCKS],
)
OTHER_ENCODING = {
    "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONIOENCODING": "",
    "PYTHONWARNDEFAULTENCODING": "1", "PYTHONWARNINGS": "error::EncodingWarning",
}  # fmt: skip
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


@pytest.fixture(scope="module")
def on_linux(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, np.ndarray]]:
    """Return the weights of the same training here, with one process and with two."""
    trained = {}
    for parallel in (1, 2):
        path = tmp_path_factory.mktemp(str(parallel))
        for epochs in (1, 2):
            t = trainer(path, max_epochs=epochs, parallel=parallel)
            t.fit(resume=True)
        trained[parallel] = weights(t)
    return trained


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_trainer_without_parts_of_linux_ends_with_same_weights(
    tmp_path: Path, system: str, on_linux: dict[int, dict[str, np.ndarray]]
) -> None:
    code, lines = SYSTEMS[system]
    run, path = tmp_path / "run", tmp_path / "run.py"
    script = SCRIPT.format(taken_away=code, support=str(SUPPORT), run=str(run))
    path.write_text(script, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(SUPPORT.parents[1])}
    if system in ("other encoding", "all but macOS"):
        env |= OTHER_ENCODING
    done = subprocess.run([sys.executable, path], env=env, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode("utf-8").split() == ["完", "≤"]
    warned = set(done.stderr.decode("utf-8").splitlines())
    assert warned == {line.format(run=run) for line in lines}
    processes = 1 if {NO_FORK, ON_MACOS} & set(lines) else 2
    arrays, _ = load_arrays(run / "last.safetensors")
    for name, array in on_linux[processes].items():
        np.testing.assert_array_equal(arrays[f"model.{name}"], array, err_msg=name)


def test_run_directory_with_locks_of_windows_takes_one_run(
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


def test_fit_of_two_processes_on_macos_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that is made there uses one process."""
    t = trainer(parallel=2)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RuntimeError, match="forking is unsafe on macOS; use processes=1"):
        t.fit()
