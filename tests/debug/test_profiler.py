"""What the profiler times and what the memory report counts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor


@mg.custom_op(x=lambda g: _slept(0.02, g))
def sleepy(x, /):
    time.sleep(0.03)
    return x.copy()


def _slept(seconds: float, g: Any) -> Any:
    time.sleep(seconds)
    return g


def test_a_profile_counts_and_times_each_op(tmp_path: Path) -> None:
    x = Tensor(np.ones((4, 8)), requires_grad=True)
    with mg.profile() as p:
        y = sleepy(x)
        loss = (y * x).sum() + y.sum()
        time.sleep(0.02)
        loss.backward()
    rows = {name: (row.calls, row.saved) for name, row in p.rows.items()}
    # `multiply` keeps both operands; of those x is a leaf, which is there anyway
    assert rows == {"sleepy": (1, 0), "multiply": (1, 4 * 8 * 8), "sum": (2, 0), "add": (1, 0)}
    slept = p.rows["sleepy"]
    assert 0.03 <= slept.forward < 0.06 and 0.02 <= slept.backward < 0.05
    assert 0.07 <= p.seconds < 0.2
    table = str(p).splitlines()
    assert table[0].split() == [
        "op",
        "calls",
        "forward",
        "ms",
        "backward",
        "ms",
        "saved",
        "MB",
        "share",
    ]
    assert table[1].startswith("sleepy") and table[-1].startswith("all, ")
    shares = [float(line.split()[-1].rstrip("%")) for line in table[1:-1]]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert "outside of ops" in table[-2] and shares[-1] > 10
    p.save_trace(tmp_path / "trace.json")
    # five calls forward; backward, one for each operand
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(events) == 5 + 7 and all(
        e["ph"] == "X" and e["dur"] >= 0 and e["ts"] >= 0 for e in events
    )
    (forward,) = (e for e in events if e["name"] == "sleepy" and e["cat"] == "forward")
    assert forward["dur"] >= 30_000


@mg.custom_op(x=lambda g: sleepy(g) if isinstance(g, Tensor) else g)
def outer(x, /):
    return x.copy()


def test_time_of_ops_inside_ops_counts_once() -> None:
    """Under create_graph a derivative is made of ops, whose time is not that of the op it belongs to."""
    x = Tensor(np.full(3, 0.5), requires_grad=True)
    with mg.profile() as p:
        mg.gradients(outer(x).sum(), [x], create_graph=True)
    assert p.rows["sleepy"].forward >= 0.03
    assert p.rows["outer"].backward < 0.02


def test_watching_changes_no_result() -> None:
    x = Tensor(np.linspace(-1, 1, 5), requires_grad=True)
    plain = mg.grad(lambda t: (mg.softmax(t) * t).sum())(x)
    with mg.profile():
        watched = mg.grad(lambda t: (mg.softmax(t) * t).sum())(x)
    np.testing.assert_array_equal(plain.data, watched.data)


def test_memory_report_counts_each_buffer_once() -> None:
    x = Tensor(np.ones((10, 10)), requires_grad=True)
    y = mg.exp(x)  # keeps its result
    z = y * y[:, :5].sum()  # keeps y again, and a number
    report = mg.memory_report(z.sum())
    assert report.by_op["exp"] == (1, 800)
    assert report.by_op["multiply"] == (1, 8)
    assert report.total == sum(size for _, size in report.by_op.values())
    assert str(report).splitlines()[-1].split()[0] == "all"
    assert mg.memory_report((x + 1).sum()).total == 0  # needs nothing
    with pytest.raises(
        mg.GradientError, match="memory_report: this tensor does not require gradients"
    ):
        mg.memory_report(Tensor(1.0))
