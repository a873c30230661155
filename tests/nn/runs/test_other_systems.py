"""Training without parts of Linux: in one process, with one line of warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.runs import trainer, weights

import nn
from minigrad.io import load_arrays, locks

TESTS = Path(__file__).parents[2]

NO_FORK = "warning: parallel=2: this system cannot fork; training runs in one process"
ON_MACOS = "warning: parallel=2: forking is unsafe on macOS; training runs in one process"
NO_LOCKS = (
    "warning: {run}: this system has no file locks; let only one process write to this directory"
)
NO_SIGNALS = "del signal.SIGHUP, signal.pthread_sigmask"
NO_MODULES = "sys.modules |= dict.fromkeys(['resource', 'ctypes'])"
NO_NAMES = "del os.uname, os.sched_getaffinity, os.O_NOFOLLOW, os.O_CLOEXEC"
NO_FCNTL = "sys.modules['fcntl'] = None"
SYSTEMS = {
    "macOS": (["sys.platform = 'darwin'"], [ON_MACOS]),
    "no signals": ([NO_SIGNALS], [NO_FORK]),
    "no locks": ([NO_MODULES, NO_NAMES, NO_FCNTL], [NO_LOCKS]),
    "none of these": (
        ["del os.fork, os.register_at_fork", NO_SIGNALS, NO_MODULES, NO_NAMES, NO_FCNTL],
        [NO_FORK, NO_LOCKS],
    ),
}
"""Code that takes parts of Linux away, and the warnings of a training then."""
OTHER_ENCODING = {
    "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONIOENCODING": "",
    "PYTHONWARNDEFAULTENCODING": "1", "PYTHONWARNINGS": "error::EncodingWarning",
}  # fmt: skip
SCRIPT = """
import os, signal, sys
import numpy, multiprocessing
{taken_away}
sys.path.append({tests!r})
from pathlib import Path
from nn.commands.console import run_script
from support.runs import trainer

def main():
    for epochs in (1, 2):
        trainer(Path({run!r}), max_epochs=epochs, parallel=2).fit(resume=True)
    print("完 ≤")

sys.exit(run_script(main))
"""


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_trainer_without_parts_of_linux_ends_with_same_weights(tmp_path: Path, system: str) -> None:
    code, lines = SYSTEMS[system]
    run, script = tmp_path / "run", tmp_path / "run.py"
    taken_away = "\n".join(code)
    script.write_text(SCRIPT.format(taken_away=taken_away, tests=str(TESTS), run=str(run)))
    env = {**os.environ, "PYTHONPATH": str(TESTS.parent), **OTHER_ENCODING}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode("utf-8").split() == ["完", "≤"]
    warned = set(done.stderr.decode("utf-8").splitlines())
    assert warned == {line.format(run=run) for line in lines}
    here = trainer(max_epochs=2, parallel=2 if system == "no locks" else 1)
    here.fit()
    arrays, _ = load_arrays(run / "last.safetensors")
    for name, array in weights(here).items():
        np.testing.assert_array_equal(arrays[f"model.{name}"], array, err_msg=name)


def test_run_directory_with_locks_of_windows_takes_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks of Windows raise EACCES."""
    locked: set[int] = set()

    def locking(descriptor: int, mode: int, size: int) -> None:
        if locked & {os.fstat(descriptor).st_ino}:
            raise PermissionError(13, "Permission denied")
        locked.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))
    with nn.RunDirectory(tmp_path), pytest.raises(BlockingIOError, match="another run is at work"):
        trainer(tmp_path).fit()
    locked.clear()
    trainer(tmp_path, max_epochs=1).fit()


def test_fit_of_two_processes_on_macos_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that is made there uses one process."""
    t = trainer(parallel=2)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RuntimeError, match="forking is unsafe on macOS; use processes=1"):
        t.fit()
