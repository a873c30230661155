"""Times of the profiler and sizes of the memory report."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from minigrad.check import profiler
from minigrad.numpy.watch import Watch

SECONDS = [0.0]


def passed(seconds: float, value: Any) -> Any:
    """Advance the profiler's clock, and return `value`."""
    SECONDS[0] += seconds
    return value


@mg.custom_op(x=lambda g: passed(2.0, g))
def slow(x, /):
    """Take 3 seconds forward and 2 backward, by the clock of the test."""
    return passed(3.0, x.copy())


@mg.custom_op(x=lambda g: slow(g) if isinstance(g, Tensor) else g)
def outer(x, /):
    """Call `slow` in the backward pass."""
    return x.copy()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the clock of the profiler by that of the test."""
    monkeypatch.setattr(profiler, "time", SimpleNamespace(perf_counter=lambda: SECONDS[0]))


def test_profile_counts_and_times_each_op(tmp_path: Path) -> None:
    x = Tensor(np.ones((4, 8)), requires_grad=True)
    with mg.profile() as p:
        y = slow(x)
        loss = (y * x).sum() + (x * y).sum()
        passed(5.0, None)
        loss.backward()
    rows = {name: (row.calls, row.saved) for name, row in p.rows.items()}
    # `multiply` saves both operands, of which x is a leaf that is kept anyway
    assert rows == {"slow": (1, 0), "multiply": (2, 2 * 4 * 8 * 8), "sum": (2, 0), "add": (1, 0)}
    assert (p.rows["slow"].forward, p.rows["slow"].backward, p.seconds) == (3.0, 2.0, 10.0)
    _, first, *_, outside, last = [line.split() for line in str(p).splitlines()]
    assert (first[0], first[-1]) == ("slow", "50.0%")
    assert last == ["all,", "10000.00", "ms", "6", "3000.00", "2000.00", "0.00"]
    assert (outside[0], outside[-1]) == ("outside", "50.0%")
    p.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(events) == 6 + 9  # six calls, and a rule for each operand
    assert events[0].items() >= {"name": "slow", "cat": "forward", "ph": "X", "dur": 3e6}.items()


def test_profile_of_ops_inside_a_rule_counts_their_time_once() -> None:
    x = Tensor(np.full(3, 0.5), requires_grad=True)
    with mg.profile() as p:
        mg.gradients(outer(x).sum(), [x], create_graph=True)
    assert p.rows["slow"].forward == 3.0 and p.rows["outer"].backward == 0.0


def test_profile_of_ops_in_two_blocks_and_at_three_levels_adds_up(tmp_path: Path) -> None:
    @mg.custom_op(x=lambda g: g)
    def middle(x, /):
        slow(x)
        return passed(1.0, x.copy())

    @mg.custom_op(x=lambda g: g)
    def top(x, /):
        middle(x)
        return passed(7.0, x.copy())

    p = mg.profile()
    for call in (slow, top):
        passed(5.0, None)
        with p:
            call(Tensor(np.ones(2)))
    seconds = {name: row.forward for name, row in p.rows.items()}
    assert seconds == {"slow": 6.0, "middle": 1.0, "top": 7.0} and p.seconds == 14.0
    p.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    starts = {e["name"]: e["ts"] - events[0]["ts"] for e in events[1:]}
    assert starts == {"slow": 8e6, "middle": 8e6, "top": 8e6}
    assert {e["name"]: e["dur"] for e in events} == {"slow": 3e6, "middle": 4e6, "top": 11e6}


def test_memory_report_counts_each_buffer_once() -> None:
    x = Tensor(np.ones((10, 10)), requires_grad=True)
    y = mg.exp(x)  # saves its result
    z = y * y[:, :5].sum()  # saves y again, and a number
    report = mg.memory_report(z.sum())
    assert report.by_op["exp"] == (1, 800) and report.by_op["multiply"] == (1, 8)
    assert report.total == 808 and str(report).splitlines()[-1].startswith("all")
    assert mg.memory_report((y[:5] * y[5:]).sum()).total == 800  # of views
    report = mg.memory_report((x + 1).sum())
    assert report.total == 0 and report.by_op == {"add": (1, 0), "sum": (1, 0)}


@pytest.mark.parametrize(
    "option",
    [
        np.ones(5),
        (np.ones(2), [np.ones(3)]),
        {"a": np.ones(5)},
        SimpleNamespace(a=np.ones(1), b={"c": (np.ones(4),)}),
        Tensor(np.ones(5)),
    ],
    ids=lambda option: type(option).__name__,
)
def test_memory_report_counts_arrays_in_options(option: Any) -> None:
    with_option = mg.custom_op(x=lambda g, option: g)(lambda x, /, option: x * 2)
    y = with_option(Tensor(np.ones(2), requires_grad=True), option)
    assert mg.memory_report(y).total == 40


def test_memory_report_of_a_constant_is_refused() -> None:
    with pytest.raises(mg.GradientError, match="memory_report: this tensor does not require grad"):
        mg.memory_report(Tensor(1.0))


def test_profile_shown_inside_its_block_has_shares_of_the_time_of_its_ops() -> None:
    with mg.profile() as p:
        slow(Tensor(np.ones(2)))
        _, first, *_ = str(p).splitlines()
    assert first.split()[0] == "slow" and first.endswith("100.0%")


class Recorder(Watch):
    """Notes what it sees."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def forward(self, op: Any, *args: Any) -> Any:
        self.seen.append(("forward", op.name))
        return super().forward(op, *args)

    def backward(self, node: Any, *args: Any) -> Any:
        self.seen.append(("backward", self._name(node)))
        return super().backward(node, *args)

    def recorded(self, node: Any) -> None:
        self.seen.append(("recorded", node.op and node.op.name))
        super().recorded(node)

    def drawn(self) -> None:
        self.seen.append(("drawn", ""))
        super().drawn()


def test_outer_watch_sees_what_the_inner_one_sees() -> None:
    with Recorder() as first, Watch(), Recorder() as inner:
        for generator in (None, np.random.default_rng(0)):
            x = Tensor(np.ones(3), requires_grad=True)
            mg.dropout(x, 0.5, generator=generator).sum().backward()
    assert first.seen == inner.seen and first.seen.count(("drawn", "")) == 2
    assert {kind for kind, _ in first.seen} == {"forward", "backward", "recorded", "drawn"}
