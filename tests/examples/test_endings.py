"""How scripts end: Ctrl-C, a reader that has gone away, files that cannot be: a line and a code each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scripts import EXAMPLES, load, started

import nn
from minigrad.console import one_line, run_script
from minigrad.io import load_arrays

TRAIN = [str(EXAMPLES / "train_toy_translation.py"), "--sentences", "300", "--valid-size", "20", "--test-size", "20", "--d-model", "8", "--num-heads", "2", "--d-ff", "8", "--layers", "1", "--warmup", "3"]  # fmt: skip


def raising(error: BaseException) -> int:
    def main() -> None:
        raise error

    return run_script(main)


@pytest.mark.parametrize(
    "error, code, line",
    [
        (ValueError("two\nlines"), 1, "error: two lines"),
        (
            FileNotFoundError(2, "No such file or directory", "a/b"),
            1,
            "error: a/b: No such file or directory",
        ),
        (
            OSError(28, "No space left on device", "runs/x"),
            1,
            "error: runs/x: No space left on device",
        ),
        (MemoryError(), 1, "error: MemoryError"),
        (FloatingPointError("step 3: the loss is nan"), 1, "error: step 3: the loss is nan"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (KeyboardInterrupt("stopped at step 3"), 130, "stopped at step 3"),
    ],
)
def test_an_error_is_a_line_and_a_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str
) -> None:
    assert raising(error) == code
    assert capsys.readouterr().err == line + "\n"


def test_other_errors_are_faults_of_ours_and_show_where() -> None:
    with pytest.raises(KeyError):
        raising(KeyError("x"))
    assert run_script(lambda: 3) == 3 and run_script(lambda: None) == run_script(dict) == 0
    assert one_line(ValueError()) == "ValueError"


def test_ctrl_c_in_training_is_one_line_and_130(tmp_path: Path) -> None:
    command = [
        sys.executable,
        *TRAIN,
        "--epochs",
        "10000",
        "--processes",
        "2",
        "--out",
        str(tmp_path / "run"),
    ]
    with started(command) as process:
        assert process.stderr is not None and process.stderr.readline().startswith(
            "step "
        )  # it trains
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=60)
    lines = [line for line in err.splitlines() if not line.startswith("step ")]
    assert process.returncode == 130 and len(lines) == 1, err
    assert lines[0].startswith("stopped at step ") and lines[0].endswith(
        f"go on with --out {tmp_path / 'run'} --resume"
    )


@pytest.mark.parametrize("all_of_it", [True, False], ids=["group", "process"])
def test_a_run_that_is_told_to_end_saves_first(tmp_path: Path, all_of_it: bool) -> None:
    """By a batch system, `kill`, or a terminal that is closed; also where its forked processes are told the same."""
    run, draw = tmp_path / "run", np.random.default_rng(all_of_it)
    command = [
        sys.executable,
        *TRAIN,
        "--epochs",
        "10000",
        "--processes",
        "2",
        "--save-every",
        "3",
        "--out",
        str(run),
    ]
    for number, again in ((signal.SIGTERM, []), (signal.SIGHUP, ["--resume"])):
        with started([*command, *again]) as process:
            assert process.stderr is not None and process.stderr.readline().startswith(
                "step "
            )  # it trains
            time.sleep(draw.uniform(0, 0.2))
            (os.killpg if all_of_it else os.kill)(process.pid, number)
            _, err = process.communicate(timeout=60)
            with pytest.raises(ProcessLookupError):  # nobody of its session is left
                os.killpg(process.pid, 0)
        lines = [line for line in err.splitlines() if not line.startswith("step ")]
        assert process.returncode == 128 + number and len(lines) == 1, err
        found = re.fullmatch(rf"stopped at step (\d+); the state is in {run}", lines[0])
        assert found is not None and load_arrays(run / "last.safetensors")[1]["trainer"][
            "step"
        ] == int(found[1])
        assert not list(run.glob(".*.part"))


def test_a_run_below_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    """What was ignored when it began, as by `nohup` and `&`, stays ignored; SIGTERM ends it as ever."""
    command = [
        sys.executable,
        *TRAIN,
        "--epochs",
        "10000",
        "--processes",
        "2",
        "--out",
        str(tmp_path / "run"),
    ]
    with started(["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", *command]) as process:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            assert process.stderr is not None and process.stderr.readline().startswith(
                "step "
            )  # it trains
            os.killpg(process.pid, number)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_a_script_that_is_told_to_end_clears_up(tmp_path: Path, number: signal.Signals) -> None:
    code = f"""
import sys, time
from pathlib import Path
from minigrad.console import run_script
from minigrad.io.atomic import write_atomically
def write(part):
    print("writing", flush=True)
    time.sleep(60)
sys.exit(run_script(lambda: write_atomically(Path({str(tmp_path)!r}) / "file", write)))
"""
    with started([sys.executable, "-c", code]) as process:
        assert process.stdout is not None and process.stdout.readline() == "writing\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + number, "", f"ended by {number.name}\n")
    assert not list(tmp_path.iterdir())


def test_a_reader_that_has_gone_away_ends_a_script_quietly(tmp_path: Path) -> None:
    command = [sys.executable, *TRAIN, "--steps", "2", "--out", str(tmp_path / "run")]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=100)
    os.close(write)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "Broken" not in done.stderr


@pytest.mark.parametrize("options", [["--quiet"], []])
def test_standard_output_that_is_closed(tmp_path: Path, options: list[str]) -> None:
    command = [sys.executable, *TRAIN, "--steps", "2", "--out", str(tmp_path / "run"), *options]
    closed = lambda: os.close(1)
    done = subprocess.run(
        command, stderr=subprocess.PIPE, text=True, timeout=100, preexec_fn=closed
    )
    assert done.returncode == 1 and done.stderr == "error: standard output is closed\n"
    assert not (tmp_path / "run").exists()  # told before the work is done, not after it
    both = lambda: (os.close(1), os.close(2))
    assert subprocess.run(command, timeout=100, preexec_fn=both).returncode == 1


def test_a_full_disk_below_standard_output_is_one_line() -> None:
    code = "import sys; from minigrad.console import run_script; sys.exit(run_script(lambda: print('x' * 9)))"
    for command in ([sys.executable, "-c", code], [sys.executable, "-u", "-c", code]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100
            )
        assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


def test_standard_input_and_error_may_be_closed() -> None:
    code = "import sys; from minigrad.console import piped, run_script; sys.exit(run_script(lambda: (print([*piped()]), print('told', file=sys.stderr)) and 0))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, preexec_fn=lambda: (os.close(0), os.close(2)), timeout=100
    )
    assert (done.returncode, done.stdout) == (0, b"[]\n")
    done = subprocess.run(command, input=b"a\n\xff\n", capture_output=True, timeout=100)
    assert done.returncode == 1 and done.stderr.startswith(b"error: standard input: not UTF-8")


@pytest.mark.parametrize(
    "script", sorted(p.name for p in EXAMPLES.rglob("*.py") if "__main__" in p.read_text("utf-8"))
)
def test_ctrl_c_while_a_script_imports(tmp_path: Path, script: str) -> None:
    """NumPy takes the longest; an extension makes an ImportError of an exception, and a callback forgets it."""
    path = next(EXAMPLES.rglob(script))
    press = "import os, signal, weakref\npress = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
    caught = "try:\n    press()\n    x = 1\nexcept KeyboardInterrupt:\n    pass\nraise ImportError"
    forgotten = "a = set\nclass A: pass\na = A()\nr = weakref.ref(a, press)\ndel a\nx = 1"
    for answer in ("press()", *[caught, forgotten] * (script == "char_gpt.py")):
        (tmp_path / "numpy.py").write_text(press + answer)
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{EXAMPLES.parent}"}
        done = subprocess.run(
            [sys.executable, str(path)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=100,
        )
        assert (done.returncode, done.stderr, done.stdout) == (130, "interrupted\n", "")


@pytest.mark.parametrize(
    "options",
    [
        ["--length-penalty", "1e308"],
        ["--length-penalty", "nan"],
        ["--beam", "100000"],
        ["--seed", "-1"],
        ["--dropout", "1"],
        ["--dropout", "nan"],
        ["--label-smoothing", "2"],
        ["--clip", "nan"],
        ["--lr", "inf"],
    ],
    ids=" ".join,
)
def test_settings_that_cannot_be_are_told_before_training(
    tmp_path: Path, options: list[str]
) -> None:
    main = load("train_toy_translation").main
    with pytest.raises((ValueError, SystemExit)):
        main([*TRAIN[1:], "--steps", "2", "--out", str(tmp_path / "run"), *options])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "options, message",
    [
        (["--data", "a" * 300], "File name too long"),
        (["--data", "bad.tsv.gz"], "bad.tsv.gz: not a whole .gz file"),
        (["--data", "bad.tsv"], "bad.tsv, line 1: not UTF-8"),
        (["--out", "file/run", "--steps", "1"], "file"),
    ],
)
def test_files_that_cannot_be_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    (tmp_path / "bad.tsv.gz").write_bytes(
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + b"broken" * 9
    )
    (tmp_path / "bad.tsv").write_bytes(b"\xff\xfe\t\xff")
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    main = load("train_toy_translation").main
    assert run_script(lambda: main([*TRAIN[1:], "--processes", "1", *options])) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ") and message in err and len(err.splitlines()) == 1


def test_a_second_run_in_a_directory_is_refused(tmp_path: Path) -> None:
    command = [
        sys.executable,
        *TRAIN,
        "--epochs",
        "10000",
        "--processes",
        "1",
        "--out",
        str(tmp_path / "run"),
    ]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert first.stderr is not None and first.stderr.readline().startswith("step ")
    second = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=100)
    first.kill()
    first.communicate()
    assert second.returncode == 1 and second.stderr == f"error: {tmp_path / 'run'}: another run is at work in this directory; wait for it, or take another\n"  # fmt: skip


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda best: best.unlink(), "no such file"),
        (lambda best: best.write_bytes(best.read_bytes()[:1000]), "not a whole safetensors file"),
        (
            lambda best: best.write_bytes(best.read_bytes()[:-1] + b"x"),
            "changed since it was written",
        ),
    ],
    ids=["missing", "cut", "changed"],
)
def test_best_weights_that_are_gone_at_the_end_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    message: str,
) -> None:
    script, fit = load("train_toy_translation"), nn.Trainer.fit

    def fit_and_damage(trainer: nn.Trainer) -> None:
        fit(trainer)
        damage(trainer.run.best)

    monkeypatch.setattr(nn.Trainer, "fit", fit_and_damage)
    argv = [
        *TRAIN[1:],
        "--steps",
        "2",
        "--processes",
        "1",
        "--quiet",
        "--out",
        str(tmp_path / "run"),
    ]
    assert run_script(lambda: script.main(argv)) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/run/best.safetensors: {message}")
    assert (tmp_path / "run" / "last.safetensors").exists()
