"""A run that is interrupted at any line and resumed equals an uninterrupted one."""

from __future__ import annotations

import contextvars
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from runs import assert_same_run

import minigrad as mg
import nn
from minigrad import optim
from minigrad.signals import ENDING, Terminated, terminate
from nn.train import checkpoint
from nn.train.interrupts import Interrupts

ROOT = Path(nn.__file__).parents[1]
INSIDE = tuple(str(ROOT / part) for part in ("nn/train/", "minigrad/io/", "minigrad/signals.py"))
PARALLEL = (str(ROOT / "minigrad/parallel/"),)
INTENSE = os.environ.get("HYPOTHESIS_PROFILE") == "intense"
Line = tuple[str, int]


def small_trainer(run_dir: Path, parallel: int | None = None) -> nn.Trainer:
    """Return a trainer that uses all options and takes a few milliseconds."""
    mg.manual_seed(0)
    rng = np.random.default_rng(0)
    model = nn.Sequential(
        nn.Linear(3, 4, dtype=float), nn.Dropout(0.2), nn.Linear(4, 1, dtype=float)
    )
    batches = [(rng.standard_normal((4, 3)), rng.standard_normal((4, 1))) for _ in range(4)]
    return nn.Trainer(
        model,
        optim.Adam(model.parameters(), lr=0.05),
        batches,
        valid=batches[:2],
        objective=lambda model, batch: ((model(batch[0]) - batch[1]) ** 2).mean(),
        schedule=lambda step: 1 / step,
        accumulate=2,
        max_epochs=2,
        save_every=3,
        log_every=2,
        patience=9,
        average=nn.MovingAverage(model, 0.5),
        keep_last=2,
        run_dir=run_dir,
        progress=parallel is None,
        parallel=parallel,
    )


class Tracer:
    """A trace function that interrupts at the n-th visit of a line."""

    def __init__(
        self, inside: tuple[str, ...] = INSIDE, at: Line | None = None, visit: int = 1
    ) -> None:
        self.inside, self.at, self.visit = inside, at, visit
        self.signalled = False  # whether it sends a signal, or raises KeyboardInterrupt
        self.process = os.getpid()  # what it forks goes on
        self.seen: dict[Line, int] = {}
        self.done = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        is_inside = frame.f_code.co_filename.startswith(self.inside)
        if self.done or not is_inside or os.getpid() != self.process:
            return None
        if event == "line":
            line = (frame.f_code.co_filename, frame.f_lineno)
            self.seen[line] = self.seen.get(line, 0) + 1
            if line == self.at and self.seen[line] == self.visit:
                self.done = True
                if not self.signalled:
                    raise KeyboardInterrupt
                signal.raise_signal((signal.SIGINT, *ENDING)[self.visit % 3])
        return self


def run(trainer: nn.Trainer, tracer: Tracer | None = None) -> bool:
    """Train from the last state; return True if an interrupt ended it."""
    before = {number: signal.getsignal(number) for number in ENDING}

    def fitted() -> Iterator[Any]:
        # no_grad() may be left open; and an exception that a tracer raises in a handler is left as
        # the current one, of which a generator has its own
        yield contextvars.copy_context().run(trainer.fit, resume=True)

    try:
        for number in ENDING:  # as `run_script` does
            signal.signal(number, terminate)
        sys.settrace(tracer)
        next(fitted())
    except (KeyboardInterrupt, Terminated):
        return True
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, handler in before.items():
            signal.signal(number, handler)
        end_of_process()
    return False


def end_of_process() -> None:
    """Close locks that are held, and unblock signals, as the end of a process does."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, *ENDING))
    checkpoint._locked.clear()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/.lock"):
                os.close(int(descriptor))


# An interrupted run leaves files open.
leaves_files_open = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def assert_resumes_exactly(whole: nn.Trainer, tracer: Tracer, run_dir: Path) -> bool:
    """Interrupt a run, resume it, and compare it with `whole`; return whether it was interrupted."""
    parallel = whole.parallel.parts if whole.parallel.parts > 1 else None
    interrupted = run(small_trainer(run_dir, parallel), tracer)
    again = small_trainer(run_dir, parallel)
    assert not run(again)
    assert_same_run(whole, again)
    checkpoints = [[path.name for path in t.run.checkpoints()] for t in (whole, again)]
    assert checkpoints[0] == checkpoints[1] and not list(run_dir.glob(".*.part"))
    return interrupted


@pytest.mark.slow
@leaves_files_open
@pytest.mark.parametrize("signalled", [False, True], ids=["raised", "signal"])
def test_trainer_interrupted_at_every_line_resumes_exactly(tmp_path: Path, signalled: bool) -> None:
    """A raised KeyboardInterrupt stops at once, as a second Ctrl-C does; a signal after the step."""
    whole, counter, draw = small_trainer(tmp_path / "whole"), Tracer(), np.random.default_rng(1)
    run(whole, counter)
    assert len(counter.seen) > 250  # lines of nn/train and of what writes files
    visits_of = lambda most: range(1, most + 1) if INTENSE else [int(draw.integers(1, most + 1))]
    cases = [
        (line, visit)
        for line, most in sorted(counter.seen.items())
        for visit in visits_of(min(most, 30))
    ]
    for number in range(0, len(cases), 4 if signalled and not INTENSE else 1):
        tracer = Tracer(INSIDE, *cases[number])
        tracer.signalled = signalled
        assert assert_resumes_exactly(whole, tracer, tmp_path / str(number)), cases[number]


@pytest.mark.slow
@leaves_files_open
def test_trainer_interrupted_at_lines_of_parallel_resumes_exactly(tmp_path: Path) -> None:
    """Interrupt the first of two processes at some lines, or at all with the profile `intense`."""
    whole, counter = small_trainer(tmp_path / "whole", 2), Tracer(PARALLEL)
    run(whole, counter)
    draw, lines = np.random.default_rng(2), sorted(counter.seen)
    assert len(lines) > 100
    ended = 0  # some lines are about others that are still there, and come less often
    numbers = range(len(lines)) if INTENSE else draw.permutation(len(lines))[:8].tolist()
    for number in numbers:
        visit = int(draw.integers(1, counter.seen[lines[number]] + 1))
        tracer = Tracer(PARALLEL, lines[number], visit)
        tracer.signalled = number % 2 == 0
        ended += assert_resumes_exactly(whole, tracer, tmp_path / str(number))
    assert ended > 0.6 * len(numbers)


def test_interrupts_at_exit_keep_a_late_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    real = signal.signal

    def pressed(number: int, handler: Any) -> Any:
        if handler is signal.default_int_handler:
            signal.raise_signal(signal.SIGINT)
        return real(number, handler)

    with pytest.raises(KeyboardInterrupt), Interrupts():
        monkeypatch.setattr(signal, "signal", pressed)
