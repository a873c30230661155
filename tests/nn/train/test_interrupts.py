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

pytestmark = pytest.mark.slow
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
        self,
        at: Line | None = None,
        visit: int = 1,
        signalled: bool = False,
        inside: tuple[str, ...] = INSIDE,
    ) -> None:
        self.at, self.visit, self.signalled, self.inside = at, visit, signalled, inside
        self.process = os.getpid()  # what it forks goes on
        self.seen: dict[Line, int] = {}
        self.done = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if (
            self.done
            or not frame.f_code.co_filename.startswith(self.inside)
            or os.getpid() != self.process
        ):
            return None
        if event == "line":
            line = (frame.f_code.co_filename, frame.f_lineno)
            self.seen[line] = self.seen.get(line, 0) + 1
            if line == self.at and self.seen[line] == self.visit and not self.done:
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


@pytest.fixture
def traced(tmp_path: Path) -> tuple[nn.Trainer, dict[Line, int]]:
    """Return an uninterrupted run, and the number of visits of each line."""
    whole, tracer = small_trainer(tmp_path / "whole"), Tracer()
    run(whole, tracer)
    return whole, tracer.seen


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # files that are left open
@pytest.mark.parametrize("signalled", [False, True], ids=["raised", "signal"])
def test_trainer_interrupted_at_every_line_resumes_exactly(
    tmp_path: Path,
    traced: tuple[nn.Trainer, dict[Line, int]],
    signalled: bool,
) -> None:
    """A raised KeyboardInterrupt stops at once, as a second Ctrl-C does; a signal after the step."""
    whole, seen = traced
    draw = np.random.default_rng(1)
    assert len(seen) > 250  # lines of nn/train and of what writes files
    visits_of = lambda most: range(1, most + 1) if INTENSE else [int(draw.integers(1, most + 1))]
    cases = [
        (line, visit) for line, most in sorted(seen.items()) for visit in visits_of(min(most, 30))
    ]
    for number, (line, visit) in enumerate(cases):
        directory = tmp_path / str(number)
        if signalled and not INTENSE and number % 4:
            continue
        assert run(small_trainer(directory), Tracer(line, visit, signalled)), (line, visit)
        again = small_trainer(directory)
        assert not run(again)
        try:
            assert_same_run(whole, again)
            assert [path.name for path in again.run.checkpoints()] == [
                path.name for path in whole.run.checkpoints()
            ]
            assert not list(directory.glob(".*.part"))
        except AssertionError as error:
            raise AssertionError(
                f"interrupted at visit {visit} of {Path(line[0]).name}:{line[1]}: {error}"
            ) from error


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # files that are left open
def test_trainer_interrupted_at_lines_of_parallel_resumes_exactly(tmp_path: Path) -> None:
    """Interrupt the first of two processes at some lines, or at all with the profile `intense`."""
    whole, tracer = small_trainer(tmp_path / "whole", 2), Tracer(inside=PARALLEL)
    run(whole, tracer)
    draw, lines = np.random.default_rng(2), sorted(tracer.seen)
    assert len(lines) > 100
    ended = 0  # some lines are about others that are still there, and come less often
    tried = range(len(lines)) if INTENSE else draw.permutation(len(lines))[:8].tolist()
    for number in tried:
        line, directory = lines[number], tmp_path / str(number)
        visit = int(draw.integers(1, tracer.seen[line] + 1))
        ended += run(small_trainer(directory, 2), Tracer(line, visit, number % 2 == 0, PARALLEL))
        again = small_trainer(directory, 2)
        assert not run(again), (line, visit)
        assert_same_run(whole, again)
    assert ended > 0.6 * len(tried)


def test_interrupts_at_exit_keep_a_late_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    real = signal.signal

    def pressed(number: int, handler: Any) -> Any:
        if handler is signal.default_int_handler:
            signal.raise_signal(signal.SIGINT)
        return real(number, handler)

    with pytest.raises(KeyboardInterrupt), Interrupts():
        monkeypatch.setattr(signal, "signal", pressed)
