"""Forks beside threads: nothing that another thread holds at this moment stops the new process."""

from __future__ import annotations

import linecache
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.children import exit_code, fork

import minigrad as mg
from minigrad import graph
from minigrad.fast import runtime
from minigrad.random import default_generator

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")


@pytest.fixture(autouse=True)
def blas(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the threads of BLAS, beginning with three."""
    number = [3]
    functions = (lambda n: number.__setitem__(0, n), lambda: number[0])
    monkeypatch.setattr(runtime, "_blas", lambda: functions)
    return number


@contextmanager
def other_thread(work: Callable[[], Any]) -> Iterator[None]:
    """Run `work` in a thread, and raise its error afterwards."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(10)
    assert not thread.is_alive() and not errors, errors


def in_process_of_its_own(test: Callable[[], Any]) -> None:
    """Run a test in a forked process, which is ended if the test hangs."""
    assert exit_code(fork(test, 20)) == 0


def test_in_parallel_during_fork_goes_on_in_both_processes(blas: list[int]) -> None:
    began, forked = threading.Event(), threading.Event()
    results: list[Any] = []

    def run(part: int) -> int:
        began.set()
        assert forked.wait(10)
        return part

    def child() -> None:
        assert runtime.in_parallel(abs, range(5)) == [*range(5)]
        assert blas == [3] and mg.get_num_threads() == 3

    def test() -> None:
        with other_thread(lambda: results.append(runtime.in_parallel(run, range(5)))):
            assert began.wait(10)
            process = fork(child)
            forked.set()
            assert exit_code(process) == 0
        assert results == [[*range(5)]] and blas == [3]
        assert runtime.in_parallel(abs, range(5)) == [*range(5)]

    in_process_of_its_own(test)


def forked() -> int:
    """Return the exit code of a forked process."""
    return exit_code(fork(double, 5))


def with_preexec_fn() -> int:
    """Return the exit code of another program, before which a function of this one runs."""

    def hook() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)  # ends it if it hangs
        double()

    return subprocess.run([sys.executable, "-S", "-c", ""], preexec_fn=hook).returncode


def by_multiprocessing() -> int | None:
    """Return the exit code of a process of multiprocessing's context "fork"."""
    process = multiprocessing.get_context("fork").Process(target=double)
    process.start()
    process.join(5)
    code = process.exitcode
    process.kill()
    return code


def double() -> None:
    assert runtime.in_parallel(lambda x: 2 * x, range(3)) == [0, 2, 4]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork beside threads
@pytest.mark.parametrize("start", [forked, with_preexec_fn, by_multiprocessing])
def test_processes_started_beside_in_parallel_end(blas: list[int], start: Any) -> None:
    """A thread shares one call after another, and the processes do so, too."""

    def test() -> None:
        ended, results = threading.Event(), []

        def share() -> None:
            while not ended.is_set():
                results.append(runtime.in_parallel(abs, range(6)))

        with other_thread(share):
            try:
                for _ in range(4):
                    assert start() == 0
            finally:
                ended.set()
        assert results and all(result == [*range(6)] for result in results)

    in_process_of_its_own(test)


def test_fork_inside_a_block_keeps_it(blas: list[int]) -> None:
    def child() -> None:
        assert blas == [1] and mg.get_num_threads() == 3

    with runtime.OwnThreads():
        assert exit_code(fork(child)) == 0
    assert blas == [3]


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_blocks_entered_and_left_in_any_order_restore_the_threads_of_blas(
    blas: list[int], data: st.DataObject
) -> None:
    """While a block shares its threads, `get_num_threads` returns 1, otherwise all threads."""
    inside: list[Any] = []
    while data.draw(st.booleans(), "enter or leave") or inside:
        if len(inside) < 4 and (not inside or data.draw(st.booleans(), "enter")):
            inside.append(runtime.OwnThreads().__enter__())
            is_free = all(block is not runtime.OwnThreads.sharing() for block in inside)
            if data.draw(st.booleans(), "share"):
                assert inside[-1].share() == is_free
        else:
            inside.pop(data.draw(st.integers(0, len(inside) - 1), "leave")).__exit__()
        assert blas == [1 if inside else 3]
        shared = runtime.OwnThreads.sharing() is not None
        assert mg.get_num_threads() == (1 if shared else 3)


@pytest.mark.parametrize("event", ["call", "line", "return"])
def test_interrupted_block_restores_the_threads_of_blas(blas: list[int], event: str) -> None:
    """Raise KeyboardInterrupt at each event of `in_parallel`, as Ctrl-C does.

    Python answers no signal between the end of a `with` block and the release of its lock.
    """

    def interrupted(number: int) -> bool:
        seen = 0

        def tracer(frame: Any, kind: str, _: Any) -> Any:
            nonlocal seen
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            is_here = frame.f_code.co_filename == runtime.__file__ and not line.startswith("with ")
            seen += is_here and kind == event
            if is_here and kind == event and seen == number:
                sys.settrace(None)
                raise KeyboardInterrupt
            return tracer

        try:
            sys.settrace(tracer)
            runtime.in_parallel(abs, range(3))
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False

    number = 1
    while interrupted(number):
        assert blas == [3] and mg.get_num_threads() == 3, number
        assert runtime.in_parallel(abs, range(3)) == [0, 1, 2]
        number += 1
    assert number > 4 and not runtime.OwnThreads.entered and runtime.OwnThreads.sharing() is None


def draw() -> None:
    default_generator().random(3)


def go_backward() -> None:
    x = mg.tensor([1.0], requires_grad=True)
    for _ in range(2):
        (2 * x).sum().backward()
    assert x.grad[0] == 4


def multiply() -> None:
    with runtime.OwnThreads():
        np.ones((2, 2)) @ np.ones((2, 2))


LOCKS = [
    (lambda: default_generator().bit_generator.lock, draw),
    (lambda: graph.collecting, go_backward),
    (lambda: runtime.OwnThreads.lock, multiply),
]


@pytest.mark.parametrize(("lock", "work"), LOCKS, ids=["random", "gradients", "threads"])
def test_lock_that_another_thread_holds_is_free_after_a_fork(
    lock: Callable[[], Any], work: Callable[[], None]
) -> None:
    held = threading.Event()

    def hold() -> None:
        with lock():
            held.set()
            threading.Event().wait(0.2)

    def test() -> None:
        with other_thread(hold):
            assert held.wait(10)
            assert exit_code(fork(work, 5)) == 0
        work()

    in_process_of_its_own(test)


def test_default_generator_draws_the_same_values_after_a_fork() -> None:
    mg.manual_seed(7)
    expected = default_generator().bit_generator.random_raw(3)
    mg.manual_seed(7)

    def child() -> None:
        np.testing.assert_array_equal(default_generator().bit_generator.random_raw(3), expected)

    assert exit_code(fork(child)) == 0
    child()
