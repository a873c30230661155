"""Runs of several ranks under mpiexec: equal to runs of one process, and ended by the first fault."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
from numpy.testing import assert_allclose
from runs import timeless
from tiny_folders import encoder_folder

import minigrad as mg
import nn
from minigrad import MissingExtraError
from minigrad.io import load_arrays
from minigrad.launcher import launched
from minigrad.parallel import job
from minigrad.runtime import available_cores

ROOT = Path(__file__).parents[2]


@cache
def mpiexec() -> str | None:
    """Return the launcher beside this Python or on the path; None if it or mpi4py is missing."""
    if importlib.util.find_spec("mpi4py") is None or not hasattr(os, "fork"):
        return None
    directories = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return shutil.which("mpiexec", path=directories)


def under_mpiexec(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that starts a job."""
    reason = "needs mpiexec and mpi4py: pip install mpi4py mpich"
    return pytest.mark.slow(pytest.mark.skipif(mpiexec() is None, reason=reason)(test))


def start(size: int, *arguments: Any) -> subprocess.Popen[str]:
    """Start a job of `size` ranks with one thread each."""
    environment = {
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "error",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    script = [sys.executable, ROOT / "tests/support/ranks.py", *arguments]
    command = [str(part) for part in (mpiexec(), "-n", size, *script)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env={**os.environ, **environment}, text=True, **pipes)


def run(size: int, *arguments: Any, code: int = 0) -> tuple[str, str]:
    """Return what a job writes to standard output and standard error."""
    process = start(size, *arguments)
    try:
        out, err = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == code, f"code {process.returncode}\n{out}\n{err}"
    return out, err


# -- equal to one process --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two ranks on batches of all kinds, and steps, which ranks.py compares with one process."""
    out = tmp_path_factory.mktemp("ranks")
    assert run(2, "whole_runs", out, "steps", *ranks.KINDS, "dropout") == ("", "")
    return out


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, nn.Trainer]:
    out = tmp_path_factory.mktemp("alone")
    trainers = {kind: ranks.trainer(out / kind, kind) for kind in ranks.KINDS}
    for trainer in trainers.values():
        trainer.fit()
    return trainers


def assert_equal_up_to_rounding(trainer: nn.Trainer, out: Path) -> None:
    arrays, _ = load_arrays(out / "last.safetensors")
    for name, array in trainer.model.state_dict().items():
        assert_allclose(arrays[f"model.{name}"], array, rtol=1e-8, atol=1e-9, err_msg=name)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == len(trainer.history) > 4
    for line, entry in zip(timeless(lines), timeless(trainer.history)):
        assert line == pytest.approx(entry, rel=1e-8)


@under_mpiexec
def test_run_of_two_ranks_equals_run_of_one_process(
    two_ranks: Path, one_process: dict[str, nn.Trainer]
) -> None:
    for kind, trainer in one_process.items():
        assert_equal_up_to_rounding(trainer, two_ranks / kind)


@under_mpiexec
def test_run_of_three_ranks_equals_run_of_one_process(
    one_process: dict[str, nn.Trainer], tmp_path: Path
) -> None:
    run(3, "whole_runs", tmp_path, "file", "list", "steps")
    for kind in ("file", "list"):
        assert_equal_up_to_rounding(one_process[kind], tmp_path / kind)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write an encoder with its tokenizer, and labelled texts."""
    pytest.importorskip("tokenizers")
    encoder_folder(tmp_path / "encoder")
    words = ["cat", "dog", "sat", "ran", "on", "mat"]
    labels = [f"{a} {b}\t{'same' if a == b else 'other'}\n" for a in words for b in words]
    (tmp_path / "labels.tsv").write_text("".join(labels))
    return tmp_path


@under_mpiexec
def test_examples_of_two_ranks_print_on_first_rank_only(data: Path) -> None:
    pytest.importorskip("sacrebleu")
    out, _ = run(2, "examples", data)
    for text in ("accuracy on", "held-out sentences", "held-out texts; saved"):
        assert out.count(text) == 1, out
    assert {path.name for path in (data / "out").iterdir()} == {"classify", "train", "fine_tune"}


# -- faults ------------------------------------------------------------------------------------------------


@under_mpiexec
def test_resume_after_killed_rank_is_exact(two_ranks: Path, tmp_path: Path) -> None:
    """Rank and step are drawn anew each time. Random numbers of dropout are part of the state."""
    rank, step = np.random.default_rng().integers([2, 6]).tolist()
    out, err = run(2, "killed_run", tmp_path / "run", rank, step, code=signal.SIGKILL)
    assert "signal 9" in out + err, (rank, step)
    run(2, "resumed_run", tmp_path / "run")
    for name in ("last.safetensors", "best.safetensors"):
        same = (tmp_path / "run" / name).read_bytes() == (two_ranks / "dropout" / name).read_bytes()
        assert same, f"{name}, rank {rank} killed in step {step}"


@under_mpiexec
@pytest.mark.parametrize(
    "case, code, message",
    [
        (["one_fails"], 1, r"rank 1 on \S+: error: /data: No space left on device\n"),
        (["last_save_fails"], 1, r"error: /data: No space left on device\n"),
        (["killed_run", "no number", 0], 1, r"error: invalid literal .* base 10: 'no number'\n"),
        (["one_leaves"], 3, "(.|\n)*"),  # a script without `run_script`
    ],
)
def test_failing_rank_ends_job_with_one_message(
    tmp_path: Path, case: list[Any], code: int, message: str
) -> None:
    _, err = run(2, case[0], tmp_path / "run", *case[1:], code=code)
    assert re.fullmatch(message, err)


@under_mpiexec
def test_second_job_in_directory_raises(tmp_path: Path) -> None:
    with nn.train.RunDirectory(tmp_path):
        _, err = run(2, "resumed_run", tmp_path, code=1)
    message = "another run is at work in this directory; wait for it, or take another"
    assert err == f"error: {tmp_path}: {message}\n"


@under_mpiexec
def test_fit_with_ranks_that_differ_raises(tmp_path: Path) -> None:
    out, _ = run(2, "mismatches", tmp_path)
    errors = dict(line.split(": ", 1) for line in out.splitlines())
    names = {"lr": "optimizer", "weights": "the arrays", "dropout": "the model", "smoothing": "the objective",
             "schedule": "the schedule", "random": "random", "code": "the code of minigrad",
             "pairs": "training data", "batch": "training data"}  # fmt: skip
    assert errors.keys() == ranks.CHANGES.keys()
    message = "step 1: the batch of rank 0 differs from the batches of other ranks"
    assert errors.pop("function") == message
    for change, text in errors.items():
        name = names.get(change, change)
        pattern = rf"{name} must be .*, got .* on rank 1 \(\S+\) and .* on rank 0 \(\S+\)"
        assert re.fullmatch(pattern, text)


@under_mpiexec
def test_ctrl_c_stops_all_ranks_after_same_step(tmp_path: Path) -> None:
    process = start(2, "slow_run", tmp_path / "run")
    try:
        assert process.stdout is not None and process.stdout.readline() == "begins\n"
        for _ in range(500):
            if (tmp_path / "run/last.safetensors").exists():
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    stopped = re.search(rf"^stopped at step (\d+); the state is in {tmp_path / 'run'}$", err, re.M)
    assert process.returncode == 130 and stopped
    state = load_arrays(tmp_path / "run/last.safetensors")[1]
    assert state["trainer"]["step"] == int(stopped[1])


def test_resume_by_other_number_of_ranks_warns_once(tmp_path: Path) -> None:
    ranks.trainer(tmp_path, "pairs", max_steps=2, accumulate=1).fit()
    resumed = ranks.trainer(tmp_path, "pairs", max_steps=3, accumulate=1, parallel=2)
    message = r"ranks differ from those the run began with \(\[1, 1\], now \[1, 2\]\)"
    with pytest.warns(UserWarning, match=message):
        resumed.fit(resume=True)
    ranks.trainer(tmp_path, "pairs", max_steps=4, accumulate=1, parallel=2).fit(resume=True)


# -- launchers ---------------------------------------------------------------------------------------------


def in_job(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Set the environment of a launcher."""
    for name in list(os.environ):
        if name.startswith(("PMI", "MPI_", "OMPI_", "SLURM_")):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "4"}


@pytest.mark.parametrize(
    "variables, place",
    [
        ({**MPICH, "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}, (1, 4, 0, 2)),
        (MPICH, (1, 4, 1, 1)),
        (OPEN_MPI, (0, 4, 0, 2)),
        (
            {"PMIX_RANK": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"},
            (5, 8, 1, 1),
        ),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),  # a batch script, or srun without MPI
        ({"PMI_RANK": "x", "PMI_SIZE": "4"}, None),
        ({}, None),
    ],
)
def test_launched_reads_environment_of_each_launcher(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], place: Any
) -> None:
    in_job(monkeypatch, variables)
    assert launched() == place


@pytest.mark.parametrize(
    "local_size, bound, cores",
    [("1", 8, 8), ("2", 8, 4), ("3", 8, 2), ("9", 8, 1), ("4", 2, 2)],
)
def test_available_cores_are_shared_by_ranks_unless_bound(
    monkeypatch: pytest.MonkeyPatch, local_size: str, bound: int, cores: int
) -> None:
    """The machine has 8 cores, and the launcher binds each rank to `bound` of them."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(bound), raising=False)
    in_job(monkeypatch, {**MPICH, "MPI_LOCALNRANKS": local_size})
    assert available_cores() == cores


def test_trainer_without_mpi4py_raises_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_job(monkeypatch, {"PMI_RANK": "0", "PMI_SIZE": "2"})
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    job.begin.cache_clear()
    job.world.cache_clear()
    message = r"^a run of several ranks \(mpiexec, srun\) needs mpi4py: pip install mpi4py mpich$"
    with pytest.raises(MissingExtraError, match=message):
        ranks.trainer(tmp_path, "pairs")
    ranks.trainer(tmp_path, "pairs", parallel=mg.parallel.Alone, max_steps=1).fit()


@under_mpiexec
def test_world_with_launcher_of_other_mpi_raises() -> None:
    """Each of its ranks would see itself alone, and all would train the same."""
    version = subprocess.run([str(mpiexec()), "--version"], capture_output=True, text=True).stdout
    variables = {"PMI_RANK": "0", "PMI_SIZE": "4"} if "open" in version.lower() else OPEN_MPI
    command = [sys.executable, "-c", "from minigrad.parallel import job; job.world()"]
    env = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    message = "must use the same MPI library, got 4 processes from the launcher and 1 in"
    assert message in done.stderr
