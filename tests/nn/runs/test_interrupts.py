"""A run that is interrupted at any line and resumed equals an uninterrupted one."""

from __future__ import annotations

import contextvars
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from support.environment import THOROUGH
from support.runs import SumOfRows, assert_same_run

import minigrad as mg
import nn
from minigrad import optim
from minigrad.io.signals import ENDING, SignalHandlers, Terminated, terminate
from nn.runs.interrupts import Interrupts, Stopped

ROOT = Path(nn.__file__).parents[1]
INSIDE = tuple(str(ROOT / part) for part in ("nn/runs/", "minigrad/io/", "minigrad/io/signals.py"))
PARALLEL = (str(ROOT / "minigrad/fast/parallel/"),)
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
        objective=SumOfRows(lambda model, batch: ((model(batch[0]) - batch[1]) ** 2).mean()),
        schedule=lambda step: 1 / step,
        accumulate=2,
        max_epochs=2,
        save_every=3,
        log_every=2,
        patience=9,
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
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".lock"):
                os.close(int(descriptor))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # open files
@pytest.mark.parametrize("signalled", [False, True], ids=["raised", "signal"])
@pytest.mark.parametrize(
    "inside, parallel, stride", [(INSIDE, None, 1), (PARALLEL, 2, 20)], ids=["alone", "parallel"]
)
def test_trainer_interrupted_at_any_line_resumes_exactly(
    tmp_path: Path, inside: tuple[str, ...], parallel: int | None, stride: int, signalled: bool
) -> None:
    """A raised KeyboardInterrupt stops at once, as a second Ctrl-C does; a signal after the step.

    Every `stride`-th line is interrupted once, or every line with the profile `thorough`.
    """
    whole, counter = small_trainer(tmp_path / "whole", parallel), Tracer(inside)
    run(whole, counter)
    assert len(counter.seen) > 100
    draw, ended = np.random.default_rng(1), 0
    lines = sorted(counter.seen)[:: 1 if THOROUGH else stride]
    for number, line in enumerate(lines):
        visit = int(draw.integers(1, counter.seen[line] + 1))
        run_dir, tracer = tmp_path / str(number), Tracer(inside, line, visit)
        tracer.signalled = signalled
        ended += run(small_trainer(run_dir, parallel), tracer)
        again = small_trainer(run_dir, parallel)
        assert not run(again), (line, visit)
        assert_same_run(whole, again)
        checkpoints = [[path.name for path in t.run.checkpoints()] for t in (whole, again)]
        assert checkpoints[0] == checkpoints[1], (line, visit)
        assert not list(run_dir.glob(".*.part")), (line, visit)
    # Of the lines about other processes, some come less often.
    assert ended > 0.6 * len(lines) if parallel else ended == len(lines)


@pytest.mark.parametrize(
    ("first", "second", "ending"),
    [
        (signal.SIGINT, signal.SIGTERM, Terminated),
        (signal.SIGTERM, signal.SIGINT, KeyboardInterrupt),
    ],
)
def test_second_signal_decides_how_a_run_ends(first: Any, second: Any, ending: Any) -> None:
    with pytest.raises(ending) as ended, Interrupts():
        signal.raise_signal(first)
        signal.raise_signal(second)
    assert type(ended.value) is ending


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("handler", ["default", "command", "own"])
def test_signals_of_default_handlers_and_of_commands_are_noted(number: Any, handler: str) -> None:
    """A signal with a handler of the user's keeps it."""
    received: list[int] = []
    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    ours = {"default": defaults[number], "own": lambda number, frame: received.append(number)}
    before = signal.signal(number, ours.get(handler, signal.SIG_DFL))
    try:
        with ExitStack() as stack:
            if handler == "command":
                signal.signal(number, defaults[number])
                stack.enter_context(SignalHandlers(ENDING, terminate, (signal.SIG_DFL,)))
            if handler != "own":
                stack.enter_context(pytest.raises(Stopped))
            interrupts = stack.enter_context(Interrupts())
            signal.raise_signal(number)
            assert interrupts.noted == (handler != "own")
            assert received == ([number] if handler == "own" else [])
            assert not interrupts.noted or interrupts.number == number
        assert not interrupts.noted  # so that a run that goes on is not stopped again
    finally:
        signal.signal(number, before)


def test_interrupts_with_ctrl_c_at_exit_raise_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = signal.signal

    def pressed(number: int, handler: Any) -> Any:
        if handler is signal.default_int_handler:
            signal.raise_signal(signal.SIGINT)
        return real(number, handler)

    with pytest.raises(KeyboardInterrupt), Interrupts():
        monkeypatch.setattr(signal, "signal", pressed)
