"""Steps in several processes against the same steps in one."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import DataParallel, Tensor, optim, parallel

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def model_and_optimizer(seed: int = 0, dropout: float = 0.0, **options: Any) -> tuple[nn.Transformer, optim.Adam]:
    mg.manual_seed(seed)
    model = nn.Transformer(nn.TransformerConfig(9, 9, 16, 2, 1, 1, 32, dropout=dropout, max_len=8, dtype="float64"))
    return model, optim.Adam(model.parameters(), lr=1e-2, **options)


def batch(seed: int, rows: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(3, 9, (rows, 5)), rng.integers(3, 9, (rows, 6))
    source[0, 3:] = 0
    return source, target


def split(whole: tuple[np.ndarray, ...], parts: int) -> list[tuple[np.ndarray, ...]]:
    return [tuple(side[i::parts] for side in whole) for i in range(parts)]


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("small", [True, False], ids=["alone", "together"])
def test_steps_equal_those_of_one_process(monkeypatch: pytest.MonkeyPatch, processes: int, small: bool) -> None:
    """Clipping, several batches to a step and an odd number of rows among them."""
    monkeypatch.setattr(parallel.forked, "_SMALL", 1 << 20 if small else 0)
    monkeypatch.setattr(optim.optimizer, "BLOCK", 100)
    (model, adam), (other, plain) = model_and_optimizer(clip_norm=0.5), model_and_optimizer(clip_norm=0.5)
    with DataParallel(adam, lambda s: model.loss(*s, reduction="sum") / 30, processes) as together:
        for step in range(3):
            plain.zero_grad()
            for i, whole in enumerate([batch(step), batch(step + 10, 7)]):
                losses = together.backward(split(whole, processes), add=i > 0)
                loss = other.loss(*whole, reduction="sum") / 30
                loss.backward()
                assert sum(losses) == pytest.approx(loss.item(), rel=1e-12)
            assert together.step() == pytest.approx(plain.step(), rel=1e-12)
            for (name, p), q in zip(model.named_parameters(), other.parameters()):
                np.testing.assert_allclose(p.data, q.data, rtol=1e-9, atol=1e-10, err_msg=name)
                np.testing.assert_allclose(p.grad.data, q.grad.data, rtol=1e-9, atol=1e-10, err_msg=name)
    assert model(*[side[:, :5] for side in batch(0)]).shape == (6, 5, 9)  # the parameters outlive the processes


def test_runs_repeat_and_shards_draw_differently() -> None:
    def run() -> tuple[list[float], np.ndarray]:
        model, adam = model_and_optimizer(dropout=0.5)
        with DataParallel(adam, lambda s: model.loss(*s)) as together:
            losses = []
            for _ in range(2):
                losses += together.backward([batch(0)] * 2)
                together.step()
        return losses, adam._groups[0].data.copy()

    (losses, weights), (again, same) = run(), run()
    assert losses == again and np.array_equal(weights, same)
    assert losses[0] != losses[1]


def test_learning_rates_and_gradients_that_only_some_shards_have() -> None:
    a, b = Tensor(np.zeros(2), True), Tensor(np.zeros(2), True)
    unused = Tensor(np.ones(2), True)
    sgd = optim.SGD([a, b, unused], lr=1.0)
    with DataParallel(sgd, lambda s: (a if s == 0 else a + b).sum() * 2) as together:
        assert together.backward([0, 1]) == [0, 0]
        together.step()
        assert a.tolist() == [-4, -4] and b.tolist() == [-2, -2] and unused.grad is None
        sgd.param_groups[0]["lr"] = 0.5
        together.backward([0])  # the other process has nothing to do
        together.step()
        assert a.tolist() == [-5, -5] and b.tolist() == [-2, -2]


def test_failures_are_told_and_leave_nothing_running() -> None:
    a = Tensor(np.ones(2), True)

    def loss(shard: int) -> Tensor:
        if shard == 1:
            raise ValueError("a bad shard")
        if shard == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return a.sum() * (np.nan if shard == 3 else 1)

    together = DataParallel(optim.SGD([a], lr=1.0, clip_norm=1.0), loss)
    for shard, message in [
        (1, "a shard failed in another process(.|\n)*a bad shard"),
        (2, "process .* was killed by SIGKILL, as the system does when memory runs out$"),
    ]:
        with pytest.raises(RuntimeError, match=f"DataParallel: {message}"):
            together.backward([0, shard])
        assert together._workers == []
    together.backward([0, 3])
    with pytest.raises(FloatingPointError, match="the norm of the gradients is nan"):
        together.step()
    assert a.tolist() == [1, 1]
    together.backward([0, 4])  # new processes go on
    assert together.step() == pytest.approx(2 * 2**0.5)
    pid = together._workers[0][0].pid
    together.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ValueError, match="expected 1 to 2 shards, got 3"):
        together.backward([0, 0, 0])
    with pytest.raises(ValueError, match="expected at least 1 process, got 0"):
        DataParallel(optim.SGD([a], lr=1.0), loss, 0)


def test_other_processes_end_with_the_first() -> None:
    a = Tensor(np.ones(2), True)
    read, write = os.pipe()
    first = os.fork()
    if first == 0:  # a process that is killed while it has others
        together = DataParallel(optim.SGD([a], lr=1.0), lambda s: a.sum(), processes=3)
        together.backward([0, 0, 0])
        os.write(write, " ".join(str(p.pid) for p, _ in together._workers).encode() + b"\n")
        time.sleep(60)
        os._exit(0)
    pids = [int(word) for word in os.read(read, 100).split()]
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    for _ in range(100):
        if not any(os.path.exists(f"/proc/{pid}") and "Z" not in _state(pid) for pid in pids):
            return
        time.sleep(0.05)
    raise AssertionError("still running")


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def test_threads() -> None:
    before = mg.get_num_threads()
    try:
        mg.set_num_threads(1)
        assert mg.get_num_threads() == 1
    finally:
        mg.set_num_threads(before)
    with pytest.raises(ValueError, match="set_num_threads: expected at least 1, got 0"):
        mg.set_num_threads(0)


def test_earlier_gradients_are_added_to_once() -> None:
    a = Tensor(np.zeros(2), True)
    (a * 3).sum().backward()
    with DataParallel(optim.SGD([a], lr=1.0), lambda s: (a * s).sum()) as together:
        together.backward([10, 20], add=True)
        together.step()
    assert a.tolist() == [-33, -33]
