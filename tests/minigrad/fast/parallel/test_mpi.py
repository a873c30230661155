"""Runs of several ranks under mpiexec: equal to runs of one process, and ended by the first fault."""

from __future__ import annotations

import importlib.util
import io
import json
import multiprocessing
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from support import ranks
from support.children import exit_code, fork
from support.commands import hide_packages
from support.environment import needs
from support.runs import copying, timeless
from support.tiny_folders import encoder_folder

import nn
from minigrad import MissingExtraError, MPIParallel, Tensor, optim
from minigrad.fast.launcher import launched
from minigrad.fast.parallel import SingleProcess, job, mpi
from minigrad.fast.runtime import available_cores
from minigrad.io import load_arrays

ROOT = Path(__file__).parents[4]


MPIEXEC = shutil.which(  # beside this Python, or on the path
    "mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
)


def under_mpiexec(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that starts a job."""
    is_missing = MPIEXEC is None or importlib.util.find_spec("mpi4py") is None
    reason = "needs mpiexec and mpi4py: pip install mpi4py mpich"
    return pytest.mark.slow(pytest.mark.skipif(is_missing, reason=reason)(test))


def run(size: int, *arguments: Any, code: int = 0) -> tuple[str, str]:
    """Return what a job of `size` ranks with one thread each writes to standard output and error."""
    environment = {
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "error",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        ),
    }
    command = [MPIEXEC, "-n", size, sys.executable, "-m", "support.ranks", *arguments]
    done = subprocess.run(
        list(map(str, command)),
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        timeout=100,
    )
    assert done.returncode == code, f"code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


# -- equal to one process --------------------------------------------------------------------------------


class PipedRank:
    """Communicator of one of two ranks, which are processes with a pipe between them."""

    size = 2

    def __init__(self, rank: int, pipe: Any) -> None:
        self.rank, self.pipe = rank, pipe

    def allgather(self, value: Any) -> list[Any]:
        if self.rank == 0:
            self.pipe.send(value)
            return [value, self.pipe.recv()]
        return [self.pipe.recv(), self.pipe.send(value) or value]

    def Allreduce(self, _: Any, array: np.ndarray) -> None:
        array[...] = sum(self.allgather(array))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_two_forked_ranks_take_the_steps_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = multiprocessing.Pipe()
    monkeypatch.setattr(mpi, "require", lambda *names: SimpleNamespace(IN_PLACE=None))
    size = sum(p.size for p in ranks.model_and_optimizer()[0].parameters())
    monkeypatch.setattr(mpi, "_MESSAGE_SIZE", size - 1)

    def take_steps(rank: int) -> None:
        ends[1 - rank].close()
        comm = PipedRank(rank, ends[rank])
        monkeypatch.setattr(job, "begin", lambda: comm)
        monkeypatch.setattr(job, "wait", lambda: comm.allgather(None))
        try:
            ranks.steps()
        finally:
            ends[rank].close()  # ends the other rank

    process = fork(lambda: take_steps(1), 30)
    try:
        take_steps(0)
    finally:
        code = exit_code(process)
    assert code == 0


class SameRanks:
    """Communicator of one of `size` ranks, which all have the same gradients."""

    rank = 0

    def __init__(self, size: int, others: Callable[[str], list[str]] = lambda text: []) -> None:
        self.size, self.others = size, others

    def allgather(self, text: str) -> list[str]:
        return [text, *self.others(text)]

    def Allreduce(self, _: Any, array: np.ndarray) -> None:
        array *= array.dtype.type(self.size)


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Begin a job with a communicator of `SameRanks`."""
    monkeypatch.setattr(mpi, "require", lambda *names: SimpleNamespace(IN_PLACE=None))
    monkeypatch.setattr(job, "wait", lambda: None)
    monkeypatch.setattr(job, "_is_working", False)

    def begin(*arguments: Any) -> None:
        monkeypatch.setattr(job, "begin", lambda: SameRanks(*arguments))

    return begin


@pytest.mark.parametrize("size", [1, 2, 256])
def test_ranks_sum_gradients_in_messages_and_count_them(
    size: int, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(size)
    monkeypatch.setattr(mpi, "_MESSAGE_SIZE", 2)
    p, late = (Tensor(np.zeros(n), requires_grad=True) for n in (5, 2))
    sgd = optim.SGD([p], lr=1.0)
    with MPIParallel(sgd, lambda shard: (p.sum() + late.sum()) * shard, model=None) as steps:
        for step in (1, 2):
            assert steps.backward([3.0]) == [0.0] or step == 2
            assert steps.step() == pytest.approx(3 * size * 5**0.5)
            assert p.tolist() == [-3 * size * step] * 5
            count = step if size > 1 else 0
            assert (steps.messages, steps.bytes) == (3 * count, 40 * count)
        late.grad = None
        sgd.add_param_group({"params": [late]})
        steps.backward([1.0])
        steps.step()
    assert p.tolist() == [-7 * size] * 5 and late.tolist() == [-size] * 2
    assert p.grad.tolist() == [size] * 5
    p.grad = None
    (p * 2.0).sum().backward()
    sgd.step()
    assert p.tolist() == [-7 * size - 2] * 5


def test_one_rank_with_two_processes_sends_no_messages(begin: Any) -> None:
    begin(1)
    p = Tensor(np.zeros(2), requires_grad=True)
    with MPIParallel(optim.SGD([p], lr=1.0), lambda s: (p * s).sum(), 2, model=None) as steps:
        steps.backward([1.0, 2.0])
        steps.step()
    assert p.tolist() == [-3, -3] and steps.messages == 0


def test_batch_norm_in_training_is_refused_by_two_ranks(begin: Any) -> None:
    model = nn.BatchNorm1d(2)
    for size in (1, 2):
        begin(size)
        with (
            pytest.raises(ValueError, match="MPIParallel: model must not")
            if size > 1
            else nullcontext()
        ):
            MPIParallel(optim.SGD([*model.parameters()]), abs, model=model)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("before, cores", [(1, 8), (8, 2)])
def test_block_of_ranks_limits_threads_and_waits_for_the_others_unless_it_fails(
    fails: bool, before: int, cores: int, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(2)
    events: list[Any] = []
    monkeypatch.setattr(mpi, "get_num_threads", lambda: before)
    monkeypatch.setattr(mpi, "available_cores", lambda: cores)

    @contextmanager
    def threads(n: int) -> Iterator[None]:
        events.append(n)
        yield
        events.append("all threads")

    monkeypatch.setattr(mpi, "threads", threads)
    monkeypatch.setattr(job, "wait", lambda: events.append("wait"))
    steps = MPIParallel(optim.SGD([Tensor(np.zeros(1), True)]), abs, model=None)
    monkeypatch.setattr(steps, "close", lambda: events.append("close"))
    with pytest.raises(KeyError) if fails else nullcontext(), steps:
        assert job._is_working
        if fails:
            raise KeyError
    assert events == [min(before, cores), "all threads", "close", *["wait"] * (not fails)]
    assert job._is_working is fails


@pytest.mark.parametrize(
    "others, message",
    [
        ([{}], ""),
        ([{"a": [1, 3]}], r"a must be .* got \[1, 3\] on rank 1 \(\S+\) and \[1, 2\] on rank 0"),
        ([{}, {"b": "x"}], r"b must be .* got 'x' on rank 2 \(\S+\) and '3' on rank 0"),
        ([{"c": 1}], r"c must be .* got 1 on rank 1 .* and None on rank 0"),
        ([{"a": None}], r"a must be .* got None on rank 1 .* and \[1, 2\] on rank 0"),
        ([{"": "node"}], ""),
    ],
)
def test_facts_of_all_ranks_must_be_the_same(others: Any, message: str, begin: Any) -> None:
    begin(2, lambda text: [json.dumps({**json.loads(text), **other}) for other in others])
    steps = MPIParallel(optim.SGD([Tensor(np.zeros(1), True)]), abs, model=None)
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        steps.agree({"a": (1, 2), "b": np.int64(3)})


@under_mpiexec
@pytest.mark.parametrize("size", [2, 3])
def test_run_of_ranks_equals_run_of_one_process(tmp_path: Path, size: int) -> None:
    assert run(size, "steps") == ("", "")
    ranks.INDEXED.IndexedPairs.write(tmp_path / "corpus", copying(60), 9)
    kinds = ["pairs", "file", "list"]
    assert run(size, "whole_runs", tmp_path / "ranks", *kinds) == ("", "")
    for kind in kinds:
        trainer = ranks.trainer(tmp_path / "alone" / kind, kind)
        trainer.fit()
        out = tmp_path / "ranks" / kind
        arrays, _ = load_arrays(out / "last.safetensors")
        for name, array in trainer.model.state_dict().items():
            assert_allclose(arrays[f"model.{name}"], array, rtol=1e-8, atol=1e-9, err_msg=name)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        for line, entry in zip(timeless(lines), timeless(trainer.history), strict=True):
            assert line == pytest.approx(entry, rel=1e-8)


@under_mpiexec
def test_commands_of_two_ranks_print_on_first_rank_only(tmp_path: Path) -> None:
    needs("tokenizers")
    needs("sacrebleu")
    encoder_folder(tmp_path / "encoder")
    (tmp_path / "labels.tsv").write_text("cat cat\tsame\ndog sat\tother\n" * 12)
    out, _ = run(2, "examples", tmp_path)
    for text in ("held-out sentences", "held-out texts; saved"):
        assert out.count(text) == 1, out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"train", "tuned"}


@under_mpiexec
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_that_save_into_one_directory_leave_the_files_of_one(
    tmp_path: Path, size: int
) -> None:
    assert run(size, "saves", tmp_path, 12) == ("", "")
    assert len(list(tmp_path.glob("*/*/*config.json"))) == 6


# -- faults ------------------------------------------------------------------------------------------------


@under_mpiexec
def test_resume_after_killed_rank_is_exact(tmp_path: Path) -> None:
    """Rank and step are drawn anew each time. Random numbers of dropout are part of the state."""
    rank, step = np.random.default_rng().integers([2, 6]).tolist()
    run(2, "whole_runs", tmp_path, "dropout")
    out, err = run(2, "killed_run", tmp_path / "run", rank, step, code=signal.SIGKILL)
    assert "signal 9" in out + err, (rank, step)
    run(2, "resumed_run", tmp_path / "run")
    for name in ("last.safetensors", "best.safetensors"):
        whole, resumed = ((tmp_path / d / name).read_bytes() for d in ("dropout", "run"))
        assert resumed == whole, f"{name}, rank {rank} killed in step {step}"


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
def test_fit_with_ranks_that_differ_raises(tmp_path: Path) -> None:
    *errors, last = run(2, "mismatches", tmp_path)[0].splitlines()
    for error, (name, _) in zip(errors, ranks.CHANGES.values(), strict=True):
        pattern = rf"{name} must be .*, got .* on rank 1 \(\S+\) and .* on rank 0 \(\S+\)"
        assert re.fullmatch(pattern, error)
    assert last == "step 1: the batch of rank 0 differs from the batches of other ranks"


@under_mpiexec
def test_interrupt_of_one_rank_stops_all_after_same_step(tmp_path: Path) -> None:
    _, err = run(2, "interrupted_run", tmp_path, code=130)
    step = load_arrays(tmp_path / "last.safetensors")[1]["trainer"]["step"]
    assert f"stopped at step {step}; the state is in {tmp_path}\n" in err


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
        ({"PMIX_RANK": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}, (5, 8, 1, 1)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),  # a batch script, or srun without MPI
        ({"PMI_RANK": "x", "PMI_SIZE": "4"}, None),
        ({"PMI_RANK": "4", "PMI_SIZE": "4"}, None),
    ],
)
def test_launched_reads_environment_of_each_launcher(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], place: Any
) -> None:
    in_job(monkeypatch, variables)
    assert launched() == place


@pytest.mark.parametrize(
    "local_size, bound, cores", [("3", 8, 2), ("9", 8, 1), ("4", 2, 2), ("3", 2, 2)]
)
def test_available_cores_are_shared_by_ranks_unless_bound(
    monkeypatch: pytest.MonkeyPatch, local_size: str, bound: int, cores: int
) -> None:
    """The machine has 8 cores, and the launcher binds each rank to `bound` of them."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(bound), raising=False)
    in_job(monkeypatch, {**MPICH, "MPI_LOCALNRANKS": local_size})
    assert available_cores() == cores


@pytest.mark.parametrize("variables", [{}, {**MPICH, "MPI_LOCALNRANKS": "3"}])
def test_available_cores_of_unknown_machine_are_one(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    in_job(monkeypatch, variables)
    assert available_cores() == 1


def test_trainer_without_mpi4py_raises_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_job(monkeypatch, {"PMI_RANK": "0", "PMI_SIZE": "2"})
    hide_packages(monkeypatch, "mpi4py")
    job.begin.cache_clear()
    job.world.cache_clear()
    message = r"^a run of several ranks \(mpiexec, srun\) needs mpi4py: pip install mpi4py mpich$"
    with pytest.raises(MissingExtraError, match=message):
        ranks.trainer(tmp_path, "pairs")
    ranks.trainer(tmp_path, "pairs", parallel=SingleProcess, max_steps=1).fit()


def test_mpi4py_without_an_mpi_library_is_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*names: str) -> None:
        raise RuntimeError("cannot load MPI library")

    monkeypatch.setattr(job, "require", fail)
    job.world.cache_clear()
    message = r"mpi4py found no MPI library \(cannot load MPI library\): pip install mpich"
    with pytest.raises(MissingExtraError, match=message):
        job.world()


def test_world_with_launcher_of_other_mpi_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its ranks would see itself alone, and all would train the same."""
    in_job(monkeypatch, OPEN_MPI)
    comm = SimpleNamespace(size=1)
    mpi = SimpleNamespace(COMM_WORLD=comm, Get_library_version=lambda: "MPICH")
    monkeypatch.setattr(job, "require", lambda *names: mpi)
    job.world.cache_clear()
    message = "must use the same MPI library, got 4 processes from the launcher and 1 in MPICH"
    with pytest.raises(RuntimeError, match=message):
        job.world()
    comm.size, comm.Dup = 4, lambda: "copy"
    assert job.world() == "copy"
    in_job(monkeypatch, {})
    job.world.cache_clear()
    assert job.world() == "copy"
    job.world.cache_clear()


@pytest.mark.parametrize("patience", [0, 3])
def test_wait_for_a_rank_that_does_not_come_ends_the_job_with_an_error(
    patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, clock, pauses = list[int](), iter(np.arange(0, 9, 0.5)), list[float]()

    def stop(code: int) -> None:
        codes.append(code)
        raise SystemExit

    request = SimpleNamespace(Test=lambda: False)
    monkeypatch.setattr(job, "_waiting", lambda: SimpleNamespace(Ibarrier=lambda: request))
    monkeypatch.setattr(job, "_stop", stop)
    monkeypatch.setattr(job.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(job.time, "sleep", pauses.append)
    with pytest.raises(SystemExit):
        job.wait(patience)
    assert codes == [1] and len(pauses) == 2 * patience


def raise_error(kind: type[BaseException]) -> None:
    try:
        raise kind("fault")
    except BaseException:
        sys.excepthook(*sys.exc_info())


@pytest.mark.parametrize(
    "events, code",
    [
        ([], None),
        ([lambda: raise_error(ValueError)], 1),
        ([lambda: raise_error(KeyboardInterrupt)], None),
        ([lambda: sys.exit()], None),
        ([lambda: sys.exit(0)], None),
        ([lambda: sys.exit(130)], None),
        ([lambda: sys.exit(3)], 3),
        ([lambda: sys.exit("text")], 1),
        ([lambda: sys.exit(3), lambda: sys.exit(0)], None),
        ([lambda: sys.exit(0), lambda: sys.exit(4)], 4),
    ],
)
@pytest.mark.parametrize("is_working", [False, True])
def test_rank_ends_the_job_if_its_last_end_is_a_failure(
    events: list[Any], code: int | None, is_working: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    shown: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, *rest: shown.append(kind))
    monkeypatch.setattr(sys, "exit", shown.append)
    monkeypatch.setattr(job.atexit, "register", calls.append)
    monkeypatch.setattr(job, "_waiting", lambda: None)
    monkeypatch.setattr(job, "abort", lambda code: calls.append(("abort", code)))
    monkeypatch.setattr(job, "wait", lambda patience: calls.append(patience))
    monkeypatch.setattr(job, "_is_working", is_working)
    job._end_together()
    for event in events:
        event()
    assert len(shown) == len(events)
    at_exit = calls.pop()
    at_exit()
    ends = [] if code is None else [("abort", code)]
    assert calls == [*ends, 10.0 if is_working else float("inf")]


@pytest.mark.parametrize("text", ["error: full\n", ""])
@pytest.mark.parametrize("rank", [0, 1, 5])
def test_abort_prints_the_error_of_the_first_rank_at_once_and_those_of_others_later(
    rank: int, text: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(job, "world", lambda: SimpleNamespace(rank=rank, Abort=calls.append))
    monkeypatch.setattr(job.time, "sleep", lambda seconds: calls.append(("sleep", seconds)))
    monkeypatch.setattr(job.os, "dup2", lambda *files: calls.append("silence"))
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    job.abort(3, text)
    assert calls == [*[("sleep", 1.0)] * (rank > 0), "silence", 3]
    start = f"rank {rank} on {platform.node()}: " if rank else ""
    assert capfd.readouterr().err == (f"{start}error: full\n" if text else "")


@pytest.mark.parametrize(
    "variables, is_printed",
    [
        ({}, True),
        ({**MPICH, "MPI_LOCALRANKID": "0"}, True),
        ({**MPICH, "MPI_LOCALRANKID": "1"}, False),
    ],
)
def test_abort_without_mpi4py_prints_once_for_each_machine(
    variables: dict[str, str], is_printed: bool, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    def missing() -> None:
        raise MissingExtraError("mpi4py")

    in_job(monkeypatch, variables)
    monkeypatch.setattr(job, "world", missing)
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    job.abort(3, "error: full")
    assert capfd.readouterr().err == "error: full\n" * is_printed


def test_abort_with_a_closed_standard_error_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, closed = list[int](), io.StringIO()
    closed.close()
    monkeypatch.setattr(job, "_stop", calls.append)
    monkeypatch.setattr(job, "world", lambda: SimpleNamespace(rank=0))
    monkeypatch.setattr(sys, "__stderr__", closed)
    job.abort(3, "error: full")
    assert calls == [3]


def test_wait_looks_after_twice_the_time_up_to_a_twentieth_of_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, pauses = iter([False] * 8 + [True]), list[float]()
    request = SimpleNamespace(Test=lambda: next(answers))
    monkeypatch.setattr(job, "_waiting", lambda: SimpleNamespace(Ibarrier=lambda: request))
    monkeypatch.setattr(job.time, "sleep", pauses.append)
    job.wait()
    assert pauses == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05]


@pytest.mark.parametrize("size", [1, 2])
def test_job_of_one_rank_does_not_change_the_end_of_the_process(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    comm, ends = SimpleNamespace(size=size), list[None]()
    monkeypatch.setattr(job, "world", lambda: comm)
    monkeypatch.setattr(job, "_end_together", lambda: ends.append(None))
    job.begin.cache_clear()
    assert job.begin() is job.begin() is comm and len(ends) == size - 1
    job.begin.cache_clear()
