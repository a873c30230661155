"""Runs of several ranks under mpiexec against the same runs of one process, and what becomes of them when one fails."""

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
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
from numpy.testing import assert_allclose
from runs import timeless

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
    """The launcher beside this Python, or on the path; None if it or mpi4py is missing."""
    if importlib.util.find_spec("mpi4py") is None or not hasattr(os, "fork"):
        return None
    return shutil.which(
        "mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    )


under_mpiexec = pytest.mark.skipif(
    mpiexec() is None, reason="needs mpiexec and mpi4py: pip install mpi4py mpich"
)


def start(size: int, *words: Any) -> subprocess.Popen[str]:
    """A job of so many ranks, each with one thread, since cores are fewer than ranks."""
    env = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "error",
    }
    env |= {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    command = [
        str(mpiexec()),
        "-n",
        str(size),
        sys.executable,
        str(ROOT / "tests/support/ranks.py"),
        *map(str, words),
    ]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(size: int, *words: Any, code: int = 0) -> tuple[str, str]:
    """What such a job writes to standard output and standard error."""
    process = start(size, *words)
    try:
        out, err = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == code, f"code {process.returncode}\n{out}\n{err}"
    return out, err


# -- equal to one process ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two ranks on batches of all kinds; and steps, with forked processes too. These are held against one
    process in tests/support/ranks.py."""
    out = tmp_path_factory.mktemp("ranks")
    assert run(2, "whole_runs", out, "steps", *ranks.KINDS, "dropout") == ("", "")
    return out


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, nn.Trainer]:
    out = tmp_path_factory.mktemp("alone")
    found = {kind: ranks.trainer(out / kind, kind) for kind in ranks.KINDS}
    for trainer in found.values():
        trainer.fit()
    return found


def assert_equal_to_rounding(trainer: nn.Trainer, out: Path) -> None:
    arrays, _ = load_arrays(out / "last.safetensors")
    for name, array in trainer.model.state_dict().items():
        assert_allclose(arrays[f"model.{name}"], array, rtol=1e-8, atol=1e-9, err_msg=name)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == len(trainer.history) > 4
    for line, entry in zip(timeless(lines), timeless(trainer.history)):
        assert line == pytest.approx(entry, rel=1e-8)


@under_mpiexec
def test_runs_of_two_ranks_equal_those_of_one_process(
    two_ranks: Path, one_process: dict[str, nn.Trainer]
) -> None:
    """Steps in all forms; sentences of which each rank reads its own, from memory and from a file; lists; an objective's
    own split."""
    for kind, trainer in one_process.items():
        assert_equal_to_rounding(trainer, two_ranks / kind)


@under_mpiexec
def test_runs_of_three_ranks_equal_those_of_one_process(
    one_process: dict[str, nn.Trainer], tmp_path: Path
) -> None:
    run(3, "whole_runs", tmp_path, "file", "list", "steps")
    for kind in ("file", "list"):
        assert_equal_to_rounding(one_process[kind], tmp_path / kind)


@pytest.mark.parametrize("kind", ["pairs", "file"])
def test_the_rows_of_all_ranks_are_those_of_the_batch(kind: str, tmp_path: Path) -> None:
    source = ranks.trainer(tmp_path / "run", kind).train
    for size in (2, 3, 7):
        shares = [list(source.epoch(1, 2, rank, size)) for rank in range(size)]
        for number, (sources, targets) in enumerate(source.epoch(1, 2)):
            for rank, share in enumerate(shares):
                rows = sources[rank::size], targets[rank::size]
                if not len(rows[0]):
                    assert share[number] is None
                    continue
                for own, whole in zip(share[number], rows):
                    np.testing.assert_array_equal(own, whole[:, : own.shape[1]])
                    assert not whole[:, own.shape[1] :].any()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the examples learn from."""
    tokenizers = pytest.importorskip("tokenizers")
    words = ["cat", "dog", "sat", "ran", "on", "mat"]
    pieces = {word: i for i, word in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", *words])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(pieces, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    config = nn.EncoderConfig(len(pieces), 16, 4, 1, 32, num_types=2, positions="learned", embeddings=nn.EmbeddingConfig(scale=False, norm=True),
                              activation="gelu", norm_eps=1e-12, max_len=20, dropout=0.0)  # fmt: skip
    nn.save(tmp_path / "encoder", nn.EncoderModel(config, np.random.default_rng(0)))
    tokenizer.save(str(tmp_path / "encoder/tokenizer.json"))
    (tmp_path / "encoder/tokenizer_config.json").write_text(
        '{"pad_token": "[PAD]", "eos_token": "[SEP]"}'
    )
    (tmp_path / "labels.tsv").write_text(
        "".join(f"{a} {b}\t{'same' if a == b else 'other'}\n" for a in words for b in words)
    )
    for part, some in (("train", words), ("val", words[:2])):
        for language in ("en", "de"):
            lines = [f"{a} {b} {language} .\n" for a in some for b in words]
            (tmp_path / f"{part}.lc.norm.tok.{language}").write_text("".join(lines))
    return tmp_path


@under_mpiexec
def test_all_examples_that_train_run_under_mpiexec(folder: Path) -> None:
    """The first rank alone speaks and writes."""
    pytest.importorskip("sacrebleu")
    out, err = run(2, "examples", folder)
    for words in (
        "accuracy on",
        "validation loss",
        "held-out sentences",
        "averaged, beam: BLEU",
        "texts held out; saved",
    ):
        assert out.count(words) == 1, out
    assert all(
        (folder / "out" / name).is_dir()
        for name in ("classify", "char_gpt", "toy", "multi30k", "fine_tune")
    )


# -- faults ------------------------------------------------------------------------------------------


@under_mpiexec
def test_a_killed_rank_ends_the_job_and_the_run_goes_on_bit_for_bit(
    two_ranks: Path, tmp_path: Path
) -> None:
    """Rank and step are drawn anew each time; with dropout, whose random numbers are part of the state."""
    rank, step = np.random.default_rng().integers([2, 6]).tolist()
    began = time.monotonic()
    out, err = run(2, "killed_run", tmp_path / "run", rank, step, code=signal.SIGKILL)
    assert "signal 9" in out + err and time.monotonic() - began < 60, (rank, step)
    run(2, "resumed_run", tmp_path / "run")
    for name in ("last.safetensors", "best.safetensors"):
        same = (tmp_path / "run" / name).read_bytes() == (two_ranks / "dropout" / name).read_bytes()
        assert same, f"{name}, rank {rank} killed in step {step}"


@under_mpiexec
def test_one_rank_that_fails_ends_the_job_with_its_message(tmp_path: Path) -> None:
    _, err = run(2, "one_fails", tmp_path / "run", code=1)
    assert re.fullmatch(r"rank 1 on \S+: error: /data: No space left on device\n", err)


@under_mpiexec
def test_a_first_rank_that_fails_last_ends_the_job(tmp_path: Path) -> None:
    _, err = run(2, "last_save_fails", tmp_path / "run", code=1)
    assert err == "error: /data: No space left on device\n"


@under_mpiexec
def test_what_fails_on_all_ranks_is_told_once(tmp_path: Path) -> None:
    _, err = run(2, "killed_run", tmp_path / "run", "no number", 0, code=1)
    assert err == "error: invalid literal for int() with base 10: 'no number'\n"


@under_mpiexec
def test_one_rank_that_leaves_ends_the_job(tmp_path: Path) -> None:
    """A script of one's own, without `run_script`."""
    run(2, "one_leaves", tmp_path / "run", code=3)


@under_mpiexec
def test_what_differs_between_ranks_is_found(tmp_path: Path) -> None:
    """Settings, code, weights, random numbers and data, before the first step; all ranks say so."""
    out, _ = run(2, "mismatches", tmp_path)
    found = dict(line.split(": ", 1) for line in out.splitlines())
    names = {"lr": "optimizer", "weights": "the arrays", "dropout": "the model", "smoothing": "the objective",
             "schedule": "the schedule", "random": "random", "code": "the code of minigrad",
             "pairs": "training data", "batch": "training data"}  # fmt: skip
    assert found.keys() == ranks.CHANGES.keys()
    assert found.pop("function") == "step 1: the batch of rank 0 is not that of the other ranks"
    for change, text in found.items():
        assert re.fullmatch(
            rf"{names.get(change, change)}: .* on rank 1 \(\S+\), but .* on rank 0 \(\S+\); .*",
            text,
        )


@under_mpiexec
def test_two_jobs_in_one_folder_are_refused(tmp_path: Path) -> None:
    with nn.train.RunDirectory(tmp_path):
        _, err = run(2, "resumed_run", tmp_path, code=1)
    assert (
        err
        == f"error: {tmp_path}: another run is at work in this directory; wait for it, or take another\n"
    )


@under_mpiexec
def test_ctrl_c_stops_all_ranks_between_two_steps(tmp_path: Path) -> None:
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
    step = re.search(
        rf"^stopped at step (\d+); the state is in {tmp_path / 'run'}$", err, re.MULTILINE
    )
    assert process.returncode == 130 and step
    assert load_arrays(tmp_path / "run/last.safetensors")[1]["trainer"]["step"] == int(step[1])


def test_going_on_with_another_number_of_ranks_says_what_changes(tmp_path: Path) -> None:
    ranks.trainer(tmp_path, "pairs", max_steps=2, accumulate=1).fit()
    again = ranks.trainer(tmp_path, "pairs", max_steps=3, accumulate=1, parallel=2)
    with pytest.warns(
        UserWarning,
        match=r"ranks differ from those the run began with \(\[1, 1\], now \[1, 2\]\)",
    ):
        again.fit(resume=True)
    ranks.trainer(tmp_path, "pairs", max_steps=4, accumulate=1, parallel=2).fit(
        resume=True
    )  # without a word


# -- launchers ---------------------------------------------------------------------------------------

LAUNCHERS = [
    ({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}, (1, 4, 0, 2)),
    ({"PMI_RANK": "1", "PMI_SIZE": "4"}, (1, 4, 1, 1)),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
      "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, (0, 2, 0, 2)),
    ({"PMIX_RANK": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}, (5, 8, 1, 1)),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),  # a batch script, or srun without MPI
    ({"PMI_RANK": "x", "PMI_SIZE": "4"}, None),
    ({}, None),
]  # fmt: skip


def in_job(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name in list(os.environ):
        if name.startswith(("PMI", "MPI_", "OMPI_", "SLURM_")):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("variables, place", LAUNCHERS)
def test_launchers(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], place: Any) -> None:
    in_job(monkeypatch, variables)
    assert launched() == place


def test_ranks_share_the_cores_of_their_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    for local, cores in (("1", 8), ("2", 4), ("3", 2), ("9", 1)):
        in_job(monkeypatch, {"PMI_RANK": "0", "PMI_SIZE": "9", "MPI_LOCALNRANKS": local})
        assert available_cores() == cores
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda pid: {0, 1}
    )  # the launcher has bound this rank
    in_job(monkeypatch, {"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"})
    assert available_cores() == 2


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    in_job(monkeypatch, {"PMI_RANK": "0", "PMI_SIZE": "2"})
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    job.begin.cache_clear()
    job.world.cache_clear()
    with pytest.raises(
        MissingExtraError,
        match=r"^a run of several ranks \(mpiexec, srun\) needs mpi4py: pip install mpi4py mpich$",
    ):
        ranks.trainer(tmp_path, "pairs")
    ranks.trainer(
        tmp_path, "pairs", parallel=mg.parallel.Alone, max_steps=1
    ).fit()  # ranks that are kept apart


@under_mpiexec
def test_a_launcher_of_another_mpi_is_told(tmp_path: Path) -> None:
    """Its ranks would each see themselves alone, and train the same thing side by side."""
    variables = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}
    if (
        "open"
        in subprocess.run(
            [str(mpiexec()), "--version"], capture_output=True, text=True
        ).stdout.lower()
    ):
        variables = {"PMI_RANK": "0", "PMI_SIZE": "4"}
    code = "from minigrad.parallel import job; job.world()"
    env = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )
    assert (
        "the launcher started 4 processes, but MPI sees 1: the launcher belongs to another MPI"
        in done.stderr
    )
