"""Profiles of hypothesis, and fixtures of all tests.

The environment variable `HYPOTHESIS_PROFILE` selects a profile:

- dev (default): 25 new examples of each property, after the failures stored in `.hypothesis`
- ci: 25 examples that are the same in each run, those of the seed 0
- full: as ci, with at least 100 examples
- thorough: as dev, with at least 1,000 examples; the seed is printed at the end
"""

import gc
import os
import secrets
import signal
import sys
from collections.abc import Generator, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # arrays of tests are small, and threads mostly wait
os.environ.setdefault("MINIGRAD_PRODUCT", "whole")  # ways of multiplying differ in the last bits

import pytest
from hypothesis import HealthCheck, control, settings
from hypothesis.internal import entropy
from support.environment import is_allowed_skip

from minigrad.io.signals import ENDING

Report = TypeVar("Report", pytest.CollectReport, pytest.TestReport)

settings.register_profile(
    "dev",
    max_examples=25,
    derandomize=False,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("ci", settings.get_profile("dev"), database=None)
settings.register_profile("full", settings.get_profile("ci"), max_examples=100)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=1000)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
settings.load_profile(PROFILE)

# no test reads the global generators, which hypothesis saves, seeds, compares and restores for 0.2 ms
# an example
entropy.NP_RANDOM = object()
entropy.RANDOMS_TO_MANAGE.clear()
control.random = SimpleNamespace(getstate=lambda: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "all extras are installed: a test that is skipped for a missing package fails"
    parser.addoption("--full", action="store_true", help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Set the seed 0, or draw one for the profile thorough, which processes of xdist inherit.

    With a seed, hypothesis does not hash the source of a property for each of its parameters.
    """
    if config.option.hypothesis_seed is not None or PROFILE == "dev":
        return
    seed = "0"
    if PROFILE == "thorough":
        seed = os.environ.setdefault("HYPOTHESIS_SEED", str(secrets.randbelow(2**32)))
    config.option.hypothesis_seed = seed


def pytest_terminal_summary(terminalreporter: Any) -> None:
    seed = terminalreporter.config.option.hypothesis_seed
    if PROFILE == "thorough" or seed not in (None, "0"):
        terminalreporter.write_line(f"repeat this run with --hypothesis-seed={seed}")


def refuse_skip(report: Report, node: pytest.Item | pytest.Collector) -> Report:
    """Fail a skipped test or file if `environment` does not allow the skip."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        slow = node.get_closest_marker("slow") is not None
        if not is_allowed_skip(report.nodeid, reason, slow=slow, full=node.config.option.full):
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid} must not be skipped, got the reason: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    return refuse_skip((yield), collector)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    return refuse_skip((yield), item)


LACKING = {
    "can't start new thread": "needs a thread",
    "emscripten does not support processes": "needs processes",
    "stack switching not supported": "needs stack switching",
}
"""Ends of errors in a browser, and the reasons for which their tests are skipped there."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None, Any, Any]:
    """Skip a test that starts a thread or a process in a browser.

    Without a seed, failures are stored by the name of a property: hypothesis would hash its source.
    """
    if item.config.option.hypothesis_seed is None and hasattr(item.obj, "hypothesis"):
        item.obj._hypothesis_internal_database_key = item.nodeid.encode()
    try:
        return (yield)
    except (RuntimeError, OSError) as error:
        for text, reason in LACKING.items():
            if sys.platform == "emscripten" and text in str(error):
                pytest.skip(reason)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collection, which would visit a million objects of PyTorch.

    Then collect garbage after 20,000 new objects, not 700, which examples of hypothesis exceed.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def signals_of_a_terminal() -> None:
    """Unblock signals for processes that tests start.

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
