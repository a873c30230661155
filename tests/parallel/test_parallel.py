"""Steps in several processes against the same steps in one."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from scripts import started

import minigrad as mg
import nn
from minigrad import DataParallel, Tensor, optim, parallel, runtime

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def model_and_optimizer(
    seed: int = 0, dropout: float = 0.0, **options: Any
) -> tuple[nn.Transformer, optim.Adam]:
    mg.manual_seed(seed)
    model = nn.Transformer(
        nn.TransformerConfig(9, 9, 16, 2, 1, 1, 32, dropout=dropout, max_len=8, dtype="float64")
    )
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
def test_steps_equal_those_of_one_process(
    monkeypatch: pytest.MonkeyPatch, processes: int, small: bool
) -> None:
    """Clipping, several batches to a step and an odd number of rows among them."""
    monkeypatch.setattr(parallel.forked, "_SMALL", 1 << 20 if small else 0)
    monkeypatch.setattr(optim.optimizer, "BLOCK", 100)
    (model, adam), (other, plain) = (
        model_and_optimizer(clip_norm=0.5),
        model_and_optimizer(clip_norm=0.5),
    )
    with DataParallel(
        adam, lambda s: model.loss(*s, reduction="sum") / 30, processes, model=model
    ) as together:
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
                np.testing.assert_allclose(
                    p.grad.data, q.grad.data, rtol=1e-9, atol=1e-10, err_msg=name
                )
    assert model(*[side[:, :5] for side in batch(0)]).shape == (
        6,
        5,
        9,
    )  # the parameters outlive the processes


def test_runs_repeat_and_shards_draw_differently() -> None:
    def run() -> tuple[list[float], np.ndarray]:
        model, adam = model_and_optimizer(dropout=0.5)
        with DataParallel(adam, lambda s: model.loss(*s), model=model) as together:
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
    with DataParallel(sgd, lambda s: (a if s == 0 else a + b).sum() * 2, model=None) as together:
        assert together.backward([0, 1]) == [0, 0]
        together.step()
        assert a.tolist() == [-4, -4] and b.tolist() == [-2, -2] and unused.grad is None
        sgd.param_groups[0]["lr"] = 0.5
        together.backward([0])  # the other process has nothing to do
        together.step()
        assert a.tolist() == [-5, -5] and b.tolist() == [-2, -2]


@pytest.mark.parametrize("small", [True, False], ids=["alone", "together"])
def test_processes_count_the_steps_of_each_parameter(
    monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    """Parameters that get gradients at different steps, and from different shards."""
    monkeypatch.setattr(parallel.forked, "_SMALL", 1 << 20 if small else 0)
    monkeypatch.setattr(optim.optimizer, "BLOCK", 2)
    leaves, others = ([Tensor(np.ones(3), True) for _ in range(3)] for _ in range(2))
    adam, plain = (optim.Adam(ps, lr=0.1, amsgrad=True) for ps in (leaves, others))

    def loss(ps: list[Tensor], which: list[int]) -> Tensor:
        return mg.stack([(ps[i] ** 2).sum() * (i + 1.0) for i in which]).sum()

    with DataParallel(adam, lambda which: loss(leaves, which), model=None) as together:
        for shards in ([[0], [0]], [[0], [2]], [[1, 2], [0]], [[2], [1]], [[0, 1, 2], [0]]):
            together.backward(shards)
            plain.zero_grad()
            for which in shards:
                loss(others, which).backward()
            assert together.step() == pytest.approx(plain.step(), rel=1e-12)
            for p, q in zip(leaves, others):
                np.testing.assert_allclose(p.data, q.data, rtol=1e-12)
    assert adam._groups[0].steps == plain._groups[0].steps == [4, 3, 4]


@pytest.mark.parametrize("small", [True, False], ids=["alone", "together"])
def test_a_step_of_processes_that_overflows_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    monkeypatch.setattr(parallel.forked, "_SMALL", 1 << 20 if small else 0)
    monkeypatch.setattr(optim.optimizer, "BLOCK", 1)
    p = Tensor(np.ones(4, np.float32), True)
    adam = optim.Adam([p])
    factors = np.array([1e-3, 1.0, 1.0, 1e30], np.float32)
    with DataParallel(adam, lambda s: (p * factors).sum(), model=None) as together:
        together.backward([0, 0])
        with pytest.raises(OverflowError, match="Adam: float32 cannot hold the step"):
            together.step()
    assert p.tolist() == [1, 1, 1, 1] and not adam.state_dict()["arrays"]["0.exp_avg"].any()
    assert adam._groups[0].steps == [0]


def test_failures_are_told_and_leave_nothing_running() -> None:
    a = Tensor(np.ones(2), True)

    def loss(shard: int) -> Tensor:
        if shard == 1:
            raise ValueError("a bad shard")
        if shard == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return a.sum() * (np.nan if shard == 3 else 1)

    together = DataParallel(optim.SGD([a], lr=1.0, clip_norm=1.0), loss, model=None)
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
    with pytest.raises(ValueError, match="expected processes >= 1, got 0"):
        DataParallel(optim.SGD([a], lr=1.0), loss, 0, model=None)


def test_other_processes_end_with_the_first() -> None:
    a = Tensor(np.ones(2), True)
    read, write = os.pipe()
    first = os.fork()
    if first == 0:  # a process that is killed while it has others
        together = DataParallel(optim.SGD([a], lr=1.0), lambda s: a.sum(), processes=3, model=None)
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
    with DataParallel(optim.SGD([a], lr=1.0), lambda s: (a * s).sum(), model=None) as together:
        together.backward([10, 20], add=True)
        together.step()
    assert a.tolist() == [-33, -33]


# -- what cannot be ------------------------------------------------------------------------------------


def parameter_and_optimizer() -> tuple[Tensor, optim.SGD]:
    p = Tensor(np.zeros(2), True)
    return p, optim.SGD([p], lr=1.0)


@pytest.mark.parametrize(
    "processes, message",
    [(1.5, "whole number for processes, got 1.5"), ("2", "got '2'"), (True, "got True")],
)
def test_processes_are_a_whole_number(processes: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        DataParallel(parameter_and_optimizer()[1], lambda s: s, processes, model=None)


def test_more_processes_than_cores_are_right() -> None:
    p, sgd = parameter_and_optimizer()
    with DataParallel(sgd, lambda s: (p * s).sum(), 12, model=None) as together:
        assert together.backward(list(range(12))) == [0] * 12
        together.step()
    assert p.tolist() == [-66, -66]


def test_a_second_one_on_the_same_optimizer_is_refused() -> None:
    p, sgd = parameter_and_optimizer()
    with DataParallel(sgd, lambda s: p.sum(), model=None) as first:
        first.backward([0, 0])
        second = DataParallel(sgd, lambda s: p.sum(), model=None)
        with pytest.raises(
            RuntimeError, match=r"another one has processes for this optimizer; close\(\) it first"
        ):
            second.backward([0, 0])
        assert first.step() == pytest.approx(8**0.5)
    second.backward([0, 0])
    second.step()
    second.close()
    assert p.tolist() == [-4, -4]


def test_the_optimizers_own_step_is_refused_while_others_hold_gradients() -> None:
    p, sgd = parameter_and_optimizer()
    with DataParallel(sgd, lambda s: p.sum(), model=None) as together:
        together.backward([0, 0])
        with pytest.raises(
            RuntimeError, match="call step\\(\\) of the DataParallel, not the optimizer's"
        ):
            sgd.step()
        together.step()
    sgd.zero_grad()
    p.sum().backward()
    sgd.step()  # its own again
    assert p.tolist() == [-3, -3]


def test_a_parameter_that_is_frozen_later_is_frozen_everywhere() -> None:
    p, q = Tensor(np.zeros(2), True), Tensor(np.zeros(2), True)
    sgd = optim.SGD([p, q], lr=1.0)
    with DataParallel(sgd, lambda s: (p + q).sum(), model=None) as together:
        together.backward([0, 0])
        together.step()
        q.requires_grad = False
        together.backward([0, 0])
        together.step()
        assert p.tolist() == [-4, -4] and q.tolist() == [-2, -2]
        q.requires_grad = True
        together.backward([0, 0])
        together.step()
    assert p.tolist() == [-6, -6] and q.tolist() == [-4, -4]


# -- whose memory and whose processes ------------------------------------------------------------------


def in_a_fork(function: Any) -> str:
    """What a forked child writes: the error that `function` raises, or what it returns."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = str(function())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        answer = file.read()
    os.waitpid(child, 0)
    return answer


@pytest.mark.parametrize("how", ["DataParallel", "Trainer"])
def test_memory_is_private_after_closing(how: str) -> None:
    model = nn.Linear(2, 2, dtype="float64")
    adam = optim.Adam(model.parameters())
    x = np.ones((4, 2))
    if how == "Trainer":
        loss = lambda model, batch: mg.mean(model(batch) ** 2)
        nn.Trainer(model, adam, [x], objective=loss, max_steps=2, parallel=2, progress=False).fit()
    else:
        with DataParallel(adam, lambda s: (model(s) ** 2).sum(), model=model) as together:
            together.backward([x, x])
            together.step()
            together.backward([x, x])
    arrays = [
        *(p.data for p in model.parameters()),
        *(p.grad.data for p in model.parameters()),
        *adam.state_dict()["arrays"].values(),
        adam._groups[0].grad,
    ]
    before = [array.copy() for array in arrays]

    def overwrite() -> None:
        for array in arrays:
            array[...] = -7.0

    assert in_a_fork(overwrite) == "None"
    for array, value in zip(arrays, before):
        np.testing.assert_array_equal(array, value)


def test_a_forked_child_cannot_use_what_its_parent_has_open() -> None:
    p, sgd = parameter_and_optimizer()
    with DataParallel(sgd, lambda s: (p * s).sum(), model=None) as together:
        together.backward([1, 2])
        for use in (together.step, lambda: together.backward([1, 2])):
            assert "RuntimeError: DataParallel: it was started by another process" in in_a_fork(use)
        assert "call step() of the DataParallel" in in_a_fork(sgd.step)
        assert in_a_fork(together.close) == "None"  # and the parent's processes live
        together.step()
        together.backward([1, 2])
        together.step()
    assert p.tolist() == [-6, -6]


def test_gradients_are_whole_after_closing() -> None:
    p, sgd = parameter_and_optimizer()
    with DataParallel(sgd, lambda s: (p * s).sum(), 3, model=None) as together:
        together.backward([1, 2, 3])
    assert p.grad is not None and p.grad.tolist() == [6, 6]
    sgd.step()
    assert p.tolist() == [-6, -6]


def test_closing_leaves_parameters_alone_that_were_moved_meanwhile() -> None:
    model = nn.Linear(2, 2)
    with DataParallel(
        optim.SGD(model.parameters(), lr=0.1), lambda s: model(s).sum(), model=model
    ) as together:
        together.backward([np.ones((1, 2), np.float32)] * 2)
        model.astype("float64")
        weight = model.weight.data
    assert model.weight.data is weight and model.weight.dtype == np.float64


def test_a_group_added_to_the_optimizer_is_trained_by_all_processes() -> None:
    p, sgd = parameter_and_optimizer()
    q = Tensor(np.zeros(2), True)
    with DataParallel(sgd, lambda s: ((p + q) * s).sum(), model=None) as together:
        together.backward([1, 2])
        sgd.add_param_group({"params": [q], "lr": 2.0})
        with pytest.raises(RuntimeError, match="parameter groups were added since backward"):
            together.step()
        together.backward([1, 2])
        together.step()
    assert p.tolist() == [-3, -3] and q.tolist() == [-6, -6]


def test_the_model_that_a_loss_uses_must_be_named() -> None:
    _, sgd = parameter_and_optimizer()
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'model'"):
        DataParallel(sgd, lambda s: s)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="DataParallel: model must be a module or None, got 3"):
        DataParallel(sgd, lambda s: s, model=3)


def test_several_models_are_named_together() -> None:
    first, second = Scaled(), Scaled()
    sgd = optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    both = nn.ModuleList([first, second])
    with DataParallel(sgd, lambda s: (first(s) * second(s)).sum(), model=both) as together:
        together.backward([0, 0])
        second.factor = 5.0
        losses = together.backward([0, 0])
    assert losses[0] == losses[1] == 2 * 5 * 9


class Scaled(nn.Module):
    """A parameter times a setting, a buffer and a part; one that keeps its last result."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(np.ones(2), dtype=float)
        self.factor = 1.0
        self.register_buffer("mask", np.ones(2))
        self.inner = nn.Identity() if hasattr(nn, "Identity") else nn.Sequential()

    def forward(self, x: Any) -> Tensor:
        self.last = self.inner(self.weight * self.factor) * self.mask
        return self.last * (3.0 if self.training else 1.0)


class Doubled(nn.Module):
    def forward(self, x: Any) -> Tensor:
        return x * 2.0


CHANGES: dict[str, Any] = {
    "a setting": lambda m: setattr(m, "factor", 5.0),
    "eval": lambda m: m.eval(),
    "a buffer": lambda m: setattr(m, "mask", np.array([0.0, 1.0])),
    "a buffer, loaded": lambda m: m.load_state_dict(
        {**m.state_dict(), "mask": np.array([0.0, 1.0])}
    ),
    "weights, loaded": lambda m: m.load_state_dict(
        {**m.state_dict(), "weight": np.array([4.0, 1.0])}
    ),
    "a setting of a part": lambda m: setattr(m.inner, "factor", 2.0),
    "a part": lambda m: setattr(m, "inner", Doubled()),
    "a hook": lambda m: m.register_forward_hook(lambda module, args, result: result * 7.0),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("held", ["closure", "method", "partial"])
def test_changes_of_a_model_reach_all_processes(change: str, held: str) -> None:
    model = Scaled()

    def loss(s: Any) -> Tensor:
        return (model(s) ** 2).sum()

    class Held:
        def __init__(self) -> None:
            self.model = model

        def loss(self, s: Any) -> Tensor:
            return (self.model(s) ** 2).sum()

    function = {
        "closure": loss,
        "method": Held().loss,
        "partial": functools.partial(lambda m, s: (m(s) ** 2).sum(), model),
    }[held]
    sgd = optim.SGD(model.parameters(), lr=1e-3)
    with DataParallel(sgd, function, model=model) as together:
        assert len(set(together.backward([0, 0]))) == 1
        process = together._workers[0][0].pid
        together.backward([0, 0], add=True)
        together.step()
        together.backward([0, 0])
        assert together._workers[0][0].pid == process  # what is as it was needs no new copies
        CHANGES[change](model)
        if change != "weights, loaded":
            with pytest.raises(
                RuntimeError, match="the model changed between the batches of one step"
            ):
                together.backward([0, 0], add=True)
        losses = together.backward([0, 0])
        assert losses[0] == losses[1] == loss(0).item()
        with nn.evaluating():
            losses = together.backward([0, 0])
            assert losses[0] == losses[1] == loss(0).item()
        assert len(set(together.backward([0, 0]))) == 1


def in_a_thread(function: Any) -> BaseException | None:
    """What calling it in another thread raised."""
    found: list[BaseException] = []

    def call() -> None:
        try:
            function()
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    return found[0] if found else None


def test_each_part_of_a_batch_draws_other_numbers() -> None:
    """From the default generator, and from one that a module was made with."""
    draws = mg.Tensor(
        np.zeros(4), requires_grad=True
    )  # a gradient is the only way out of another process
    module = nn.Dropout(0.5, generator=np.random.Generator(np.random.PCG64(3)))

    def loss(shard: int) -> mg.Tensor:
        found = np.zeros(4)
        found[2 * shard : 2 * shard + 2] = [
            g.random() for g in (mg.default_generator(), module.generator)
        ]
        return (draws * found).sum()

    seen = []
    for _ in range(2):
        mg.manual_seed(0)
        module.generator.bit_generator.state = np.random.PCG64(3).state
        with DataParallel(optim.SGD([draws], lr=1.0), loss, model=module) as parallel:
            for _ in range(3):
                parallel.backward([0, 1])
                parallel.step()
                seen.append(draws.grad.data.tolist())
    assert seen[:3] == seen[3:] and len({number for step in seen for number in step}) == 12


def test_two_threads_are_refused() -> None:
    (p, sgd), (q, other) = parameter_and_optimizer(), parameter_and_optimizer()
    with (
        DataParallel(sgd, lambda s: p.sum(), model=None) as first,
        DataParallel(other, lambda s: q.sum(), model=None) as second,
    ):
        first.backward([0, 0])
        for error, message in [
            (
                in_a_thread(lambda: first.backward([0, 0])),
                "started by another thread; use it in one thread only",
            ),
            (in_a_thread(first.step), "started by another thread"),
            (
                in_a_thread(lambda: second.backward([0, 0])),
                "another thread has one with processes; fork from one",
            ),
        ]:
            assert isinstance(error, RuntimeError) and message in str(error)
        first.step()
        second.backward([0, 0])  # two in one thread
        second.step()
        assert p.tolist() == q.tolist() == [-2, -2]


@pytest.mark.parametrize("when", ["backward", "step", "between"])
def test_a_killed_process_is_one_line(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr(parallel.forked, "_SMALL", 0)
    p, sgd = parameter_and_optimizer()
    first = os.getpid()

    def loss(shard: str) -> Tensor:
        if os.getpid() != first and shard == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return p.sum()

    together = DataParallel(sgd, loss, model=None)
    together.backward(["lives", "lives"])
    if when == "step":
        os.kill(together._workers[0][0].pid, signal.SIGKILL)
        together._workers[0][0].join()
        with pytest.raises(RuntimeError) as found:
            together.step()
    else:
        together.step()
        if when == "between":
            os.kill(together._workers[0][0].pid, signal.SIGKILL)
            together._workers[0][0].join()
        with pytest.raises(RuntimeError) as found:
            together.backward(["lives", "dies"])
    assert re.fullmatch(
        r"DataParallel: process \d+, .* was killed by SIGKILL, as the system does when memory runs out",
        str(found.value),
    )
    assert (
        found.value.__context__ is None
    )  # Python 3.13 would tell of the buffer that its frames hold
    assert together._workers == []
    before = p.tolist()
    together.backward(["lives", "lives"])  # with new processes
    together.step()
    together.close()
    assert p.tolist() == [x - 2 for x in before]


def test_an_exception_in_a_handler_does_not_hang() -> None:
    """A TimeoutError is an OSError too, as those of a broken pipe are."""
    p, sgd = parameter_and_optimizer()
    first = os.getpid()

    def loss(shard: str) -> Tensor:
        if os.getpid() != first and shard == "slow":
            time.sleep(60)
        return p.sum()

    def handler(number: int, frame: Any) -> None:
        raise TimeoutError("too late")

    together = DataParallel(sgd, loss, model=None)
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(TimeoutError, match="too late"):
            together.backward(["", "slow"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert together._workers == []


def test_orphans_say_nothing() -> None:
    """Killed while its processes work: they end in silence when they find that nobody listens."""
    code = """
import os, signal, time
import numpy as np
from minigrad import DataParallel, Tensor, optim
p, first = Tensor(np.zeros(2), True), os.getpid()
def loss(shard):
    if os.getpid() != first:
        time.sleep(0.5)
    elif shard:
        os.kill(first, signal.SIGKILL)
    return p.sum()
DataParallel(optim.SGD([p], lr=1.0), loss, 3, model=None).backward([1, 0, 0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL and done.stderr == "" and done.stdout == ""


def test_a_script_that_does_not_close_ends() -> None:
    """Its processes take no SIGTERM, which is the first one's to answer: they are ended before anybody waits for them."""
    code = """
import numpy as np
from minigrad import DataParallel, Tensor, optim
p = Tensor(np.zeros(2), True)
together = DataParallel(optim.SGD([p], lr=1.0), lambda shard: p.sum(), 3, model=None)
together.backward([1, 0, 0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


def test_ctrl_c_in_all_processes_is_answered_by_the_first() -> None:
    code = """
import os, signal, time
import numpy as np
from minigrad import DataParallel, Tensor, optim
p = Tensor(np.zeros(2), True)
def loss(shard):
    time.sleep(0.3)
    return p.sum()
together = DataParallel(optim.SGD([p], lr=1.0), loss, 3, model=None)
together.backward([0, 0, 0])
try:
    print("ready", flush=True)
    for _ in range(100):
        together.backward([0, 0, 0])
except KeyboardInterrupt:
    print("interrupted")
"""
    with started([sys.executable, "-c", code]) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)


def test_memory_goes_to_the_processes_and_stays_with_the_optimizer() -> None:
    """Steps by two processes, then by the optimizer alone: as if it had been alone all the time."""
    found = []
    for processes in (1, 2):
        a = Tensor(np.arange(1.0, 5.0), requires_grad=True)
        adam = optim.Adam([a], lr=0.1)
        with DataParallel(
            adam, lambda factor, a=a: (a * a * factor).sum(), processes, model=None
        ) as parallel:
            for _ in range(3):
                parallel.backward([1.0, 2.0][:processes] if processes == 2 else [3.0])
                parallel.step()
        for _ in range(3):
            adam.zero_grad()
            (a * a * 3.0).sum().backward()
            adam.step()
        assert a.data.base is adam._groups[0].data
        found.append(a.data.copy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_processes_leave_out_a_step_that_is_not_finite() -> None:
    a = Tensor(np.ones(2), requires_grad=True)
    sgd = optim.SGD([a], lr=0.5, skip_nonfinite=True)
    with DataParallel(sgd, lambda factor: (a * factor).sum(), 2, model=None) as parallel:
        parallel.backward([np.nan, 1.0])
        assert np.isnan(parallel.step()) and sgd.skipped == 1 and a.tolist() == [1, 1]
        parallel.backward([1.0, 1.0])
        assert parallel.step() == pytest.approx(8**0.5)
    assert a.tolist() == [0, 0] and sgd.skipped == 1


def test_work_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, in order, in the context of the call; one after another where a part does so too; errors come through."""
    calls: list[int] = []
    monkeypatch.setattr(runtime, "_blas", lambda: (calls.append, lambda: 2))
    both = threading.Barrier(2)

    def run(part: int) -> Any:
        if part < 2:
            both.wait(timeout=10)  # only two at once go on
        inner = runtime.in_parallel(lambda x: (x, threading.get_ident()), [part, -part])
        return (
            inner == [(x, threading.get_ident()) for x in (part, -part)],
            part,
            mg.is_grad_enabled(),
        )

    with mg.no_grad():
        assert runtime.in_parallel(run, range(5)) == [(True, part, False) for part in range(5)]
    assert calls == [1, 2]
    with pytest.raises(ZeroDivisionError):
        runtime.in_parallel(lambda x: 1 / x, [1, 0, 2])
