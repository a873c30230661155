"""Hypothesis profiles: `dev` is the default; `HYPOTHESIS_PROFILE=ci` or `intense` looks harder.

What a test tells by the fixture `tell` stands in the summary at the end, from whichever worker.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

if "PYTEST_XDIST_WORKER" in os.environ:  # a worker has a core to itself: BLAS with more threads would only wait for it
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # begun in the background: what the tests start would ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import HealthCheck, settings

_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("dev", max_examples=12, **_common)
settings.register_profile("ci", max_examples=12, derandomize=True, **_common)
settings.register_profile("intense", max_examples=1000, **_common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Have a line printed at the end of all tests."""
    return lambda text: record_property("told", text)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for found in terminalreporter.stats.values() for report in found]
    for report in reports:
        if getattr(report, "when", "") == "call":
            for name, text in report.user_properties:
                if name == "told":
                    terminalreporter.write_line(text)
