"""How commands end: signals, closed pipes, full disks: one line and one exit code each."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace

import pytest
from support.scripts import started

from minigrad import MissingExtraError
from minigrad.io import load_arrays
from minigrad.io.signals import Terminated
from nn.commands import console
from nn.commands.console import run_script

OPTIONS = (
    "--sentences 300 --valid-size 20 --test-size 20 --d-model 8 --num-heads 2 --d-ff 8 --layers 1"
    " --warmup 3"
)
LONG = "--epochs 10000 --processes 2"


def train(run: Path, options: str) -> list[str]:
    """Return a command that trains in the directory `run`."""
    line = f"-m nn train {OPTIONS} {options} --out {run}"
    return [sys.executable, *line.split()]


def wait_for_step(process: subprocess.Popen[str]) -> None:
    """Wait until training has printed its first step."""
    assert process.stderr is not None
    while not (line := process.stderr.readline()).startswith("step "):
        assert line


def last_lines(process: subprocess.Popen[str]) -> list[str]:
    """Wait for the end, and return the lines of standard error without the progress."""
    _, err = process.communicate(timeout=60)
    return [line for line in err.splitlines() if not line.startswith("step ")]


def raising(error: BaseException) -> int:
    """Return the exit status of a script that raises `error`."""

    def main() -> None:
        raise error

    return run_script(main)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("two\nlines"), 1, "error: two lines"),
        (FileNotFoundError(2, "No such file", "a/b"), 1, "error: a/b: No such file"),
        (OSError(28, "No space left on device"), 1, "error: No space left on device"),
        (OSError("odd"), 1, "error: odd"),
        (MissingExtraError("x needs y"), 1, "error: x needs y"),
        (RuntimeError(), 1, "error: RuntimeError"),
        (OverflowError("too large"), 1, "error: too large"),
        (MemoryError(), 1, "error: MemoryError"),
        (Terminated(15, "ended by SIGTERM"), 143, "ended by SIGTERM"),
        (FloatingPointError("step 3: the loss is nan"), 1, "error: step 3: the loss is nan"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (KeyboardInterrupt("stopped at step 3"), 130, "stopped at step 3"),
    ],
)
def test_run_script_error_is_one_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str
) -> None:
    assert raising(error) == code
    assert capsys.readouterr().err == line + "\n"


def test_run_script_without_a_reader_ends_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(BrokenPipeError(32, "Broken pipe")) == 1
    assert capsys.readouterr() == ("", "")


def test_run_script_prints_warnings_in_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    before = warnings.formatwarning

    def main() -> None:
        print(warnings.formatwarning("two\nlines", UserWarning, "a.py", 3), end="")

    assert run_script(main) == 0 and warnings.formatwarning is before
    assert capsys.readouterr().out == "warning: two lines\n"


def test_run_script_with_closed_streams(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read nothing and print no message. A closed output is an error."""
    for name in ("stdin", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert run_script(lambda: len([*console.piped()])) == 0
    assert raising(ValueError("wrong")) == 1
    sys.stdin.close()
    sys.stderr.close()
    monkeypatch.undo()
    monkeypatch.setattr(sys, "stdout", None)
    assert run_script(lambda: 0) == 1
    assert capsys.readouterr().err == "error: standard output is closed\n"


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8", "utf-16"])
def test_run_script_writes_utf8_into_pipes_of_other_encodings(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    pipes = [io.BytesIO(), io.BytesIO()]
    for name, pipe in zip(("stdout", "stderr"), pipes):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(pipe, encoding=encoding, newline="\n"))

    def main() -> None:
        print("完")
        raise ValueError("≤")

    assert run_script(main) == 1
    sys.stderr.flush()
    expected = encoding if encoding.startswith("utf") else "utf-8"
    assert [pipe.getvalue().decode(expected) for pipe in pipes] == ["完\n", "error: ≤\n"]


LIMIT = 10  # of the lines below


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\n\n b \r\n\xc3\xa9", ["a", "", "b", "\xe9"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"a\n" + b"x" * (LIMIT - 1) + b"\n", ["a", "x" * (LIMIT - 1)]),
        (b"a\n" + b"x" * LIMIT, ["a", "x" * LIMIT]),
        (b"a\n" + b"x" * LIMIT + b"\n", "standard input, line 2 must have at most 10 characters; divide it"),
        (b"a\n\xff\n", "standard input: not UTF-8 (invalid start byte)"),
    ],
)  # fmt: skip
def test_lines_of_standard_input_are_utf8_of_limited_length(
    monkeypatch: pytest.MonkeyPatch, data: bytes, lines: list[str] | str
) -> None:
    monkeypatch.setattr(console, "MAX_LINE", LIMIT)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="latin-1"))
    if isinstance(lines, list):
        assert [*console.piped()] == lines
        return
    with pytest.raises(ValueError) as caught:
        list(console.piped())
    assert str(caught.value) == lines


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("wrong"), 1, "error: wrong"),
        (SystemExit(2), 2, ""),
        (SystemExit("text"), 1, ""),
        (SystemExit(None), 0, ""),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("odd"), 1, "ZeroDivisionError: odd"),
    ],
)
def test_rank_that_fails_ends_the_job_and_the_first_one_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    rank: int, error: BaseException, code: int, line: str,
) -> None:  # fmt: skip
    """Expect what other functions print as a part of the end."""
    ends: list[tuple[int, str]] = []
    monkeypatch.setattr(console, "launched", lambda: SimpleNamespace(rank=rank, size=2))
    monkeypatch.setattr(console.job, "abort", lambda code, text: ends.append((code, text)))

    def main() -> None:
        print("result")
        raise error

    assert run_script(main) == code
    out, err = capsys.readouterr()
    text = "".join(text for _, text in ends)
    assert [end for end, _ in ends] == [code] * (code not in (0, 130))
    assert out == ("" if rank else "result\n") and not (err if rank else text)
    if ends or rank == 0:
        assert (err + text).endswith(f"{line}\n" if line else "")


def test_run_script_other_error_is_raised() -> None:
    with pytest.raises(KeyError):
        raising(KeyError("x"))


@pytest.mark.parametrize(
    ("result", "code"), [(3, 3), (0, 0), (None, 0), ({}, 0), ({"a": 1}, 0), (["a"], 0), (0.5, 0), ("a", 0)]
)  # fmt: skip
def test_run_script_result_is_an_exit_code(result: object, code: int) -> None:
    found = run_script(lambda: result)
    assert found == code and type(found) is int


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "send", "message"),
    [
        (signal.SIGTERM, os.kill, "stopped at step (.*); the state is in {}"),  # the process alone
        (signal.SIGHUP, os.killpg, "stopped at step (.*); the state is in {}"),
        (signal.SIGINT, os.killpg, "stopped at step (.*); continue with --out {} --resume"),
    ],
)
def test_train_signal_saves_before_it_ends(
    tmp_path: Path, number: signal.Signals, send: Callable[[int, int], None], message: str
) -> None:
    for more in ("", "--resume"):
        with started(train(tmp_path, f"{LONG} {more}")) as process:
            wait_for_step(process)
            send(process.pid, number)
            [line] = last_lines(process)
            with pytest.raises(ProcessLookupError):  # no process of its session is left
                os.killpg(process.pid, 0)
        assert process.returncode == 128 + number
        step = re.fullmatch(message.format(tmp_path), line)[1]
        assert load_arrays(tmp_path / "last.safetensors")[1]["trainer"]["step"] == int(step)
        assert not list(tmp_path.glob(".*.part"))


@pytest.mark.slow
def test_train_below_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    """Signals that were ignored at the start stay ignored, except SIGTERM."""
    shell = ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh"]
    with started([*shell, *train(tmp_path / "run", LONG)]) as process:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            wait_for_step(process)
            os.killpg(process.pid, number)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.slow
def test_run_script_signal_removes_unfinished_files(tmp_path: Path) -> None:
    code = f"""
import time
from pathlib import Path
from nn.commands.console import run_script
from minigrad.io.atomic import write_atomically
def write(part):
    print("writing", flush=True)
    time.sleep(60)
raise SystemExit(run_script(lambda: write_atomically(Path({str(tmp_path)!r}) / "file", write)))
"""
    with started([sys.executable, "-c", code]) as process:
        assert process.stdout is not None and process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGHUP)
        assert process.communicate(timeout=60) == ("", "ended by SIGHUP\n")
    assert process.returncode == 128 + signal.SIGHUP and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_train_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(train(tmp_path, "--epochs 1"), stdout=write, stderr=PIPE, text=True)
    os.close(write)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "Broken" not in done.stderr


@pytest.mark.slow
def test_train_closed_standard_output_fails_before_it_trains(tmp_path: Path) -> None:
    command = train(tmp_path / "run", "--epochs 1 --quiet")
    done = subprocess.run(command, stderr=PIPE, text=True, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (1, "error: standard output is closed\n")
    assert not (tmp_path / "run").exists()


def python(code: str, *flags: str) -> list[str]:
    """Return a command that runs an expression as the main function of a script."""
    script = f"import sys; from nn.commands.console import piped, run_script; sys.exit(run_script(lambda: {code}))"
    return [sys.executable, *flags, "-c", script]


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["-u"]])
def test_run_script_full_disk_is_one_line(flags: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(python("print('x' * 9)", *flags), stdout=full, stderr=PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


@pytest.mark.slow
def test_run_script_closed_standard_input_is_empty() -> None:
    command = python("print([*piped()])")
    done = subprocess.run(command, stdout=PIPE, preexec_fn=lambda: os.close(0))
    assert (done.returncode, done.stdout) == (0, b"[]\n")
