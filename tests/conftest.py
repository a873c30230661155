"""Hypothesis profiles: `dev` is the default; `HYPOTHESIS_PROFILE=ci` or `intense` looks harder.

What a test tells by the fixture `tell` stands in the summary at the end, from whichever worker.
"""

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from typing import Any

if (
    "PYTEST_XDIST_WORKER" in os.environ
):  # a worker has a core to itself: BLAS with more threads would only wait for it
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

import pytest
from hypothesis import HealthCheck, settings

from minigrad.signals import ENDING

_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("dev", max_examples=12, **_common)
settings.register_profile("ci", max_examples=12, derandomize=True, **_common)
settings.register_profile("intense", max_examples=1000, **_common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collection, which would visit a million objects of PyTorch again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def signals_of_a_terminal() -> None:
    """Let processes that tests start receive signals: below `nohup` or `&` some are ignored, which is inherited.

    A handler is not handed on; and the tests themselves go on ignoring what they were told to.
    """
    for number in (signal.SIGINT, *ENDING):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(
                number,
                signal.default_int_handler if number == signal.SIGINT else lambda *told: None,
            )


@pytest.fixture(scope="session", autouse=True)
def quick_disk() -> Iterator[None]:
    """Skip fsync in this process, since tests need not survive a loss of power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Return a function that prints a line at the end of all tests."""
    return lambda text: record_property("told", text)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for found in terminalreporter.stats.values() for report in found]
    for report in reports:
        if getattr(report, "when", "") == "call":
            for name, text in report.user_properties:
                if name == "told":
                    terminalreporter.write_line(text)
