"""Set the profile of hypothesis, `HYPOTHESIS_PROFILE` or `dev`, and what all tests need."""

import gc
import os
import signal
from collections.abc import Generator, Iterator

if "PYTEST_XDIST_WORKER" in os.environ:  # a worker has one core
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
    """Collect tests without garbage collection, which would visit a million objects of PyTorch."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def signals_of_a_terminal() -> None:
    """Let processes that tests start receive signals.

    Below `nohup` or `&` some are ignored, which other processes inherit, unlike a handler.
    """
    handlers = dict.fromkeys(ENDING, lambda number, frame: None)
    for number, handler in {**handlers, signal.SIGINT: signal.default_int_handler}.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def quick_disk() -> Iterator[None]:
    """Skip fsync in this process, since tests need not survive a loss of power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
