"""Steps in several forked processes: equal to those of one process, and clear errors for what cannot be."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scripts import started

import minigrad as mg
import nn
from minigrad import DataParallel, Tensor, optim, parallel, runtime

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

small_or_large = pytest.mark.parametrize(
    "small", [True, False], ids=["first process steps", "all processes step"]
)


def parameter(*values: float) -> Tensor:
    return Tensor(np.array(values or [0.0, 0.0], float), requires_grad=True)


def parameter_and_optimizer() -> tuple[Tensor, optim.SGD]:
    p = parameter()
    return p, optim.SGD([p], lr=1.0)


def run_step(parallel: DataParallel, *shards: Any) -> None:
    parallel.backward(list(shards))
    parallel.step()


def use_small(monkeypatch: pytest.MonkeyPatch, small: bool, block: int) -> None:
    """Let the first process step alone, or all processes, each on blocks of the flat array."""
    monkeypatch.setattr(parallel.forked, "_SMALL", 1 << 20 if small else 0)
    monkeypatch.setattr(optim.optimizer, "BLOCK", block)


# -- steps equal those of one process ------------------------------------------------------------------


def model_and_optimizer() -> tuple[nn.Transformer, optim.Adam]:
    config = nn.TransformerConfig(9, 9, 16, 2, 1, 1, 32, dropout=0.0, max_len=8, dtype="float64")
    model = nn.Transformer(config, np.random.default_rng(0))
    return model, optim.Adam(model.parameters(), lr=1e-2, clip_norm=0.5)


def batch(seed: int, rows: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(3, 9, (rows, 5)), rng.integers(3, 9, (rows, 6))
    source[0, 3:] = 0
    return source, target


@pytest.mark.parametrize("processes", [2, 3])
@small_or_large
def test_steps_of_a_model_equal_those_of_one_process(
    monkeypatch: pytest.MonkeyPatch, processes: int, small: bool
) -> None:
    """With clipping, and two batches a step, of which one has an odd number of rows."""
    use_small(monkeypatch, small, 100)
    (model, adam), (other, plain) = model_and_optimizer(), model_and_optimizer()
    loss = lambda model, shard: model.loss(*shard, reduction="sum") / 30
    with DataParallel(adam, lambda s: loss(model, s), processes, model=model) as together:
        for step in range(3):
            plain.zero_grad()
            for i, whole in enumerate([batch(step), batch(step + 10, 7)]):
                shards = [tuple(side[r::processes] for side in whole) for r in range(processes)]
                losses = together.backward(shards, add=i > 0)
                expected = loss(other, whole)
                expected.backward()
                assert sum(losses) == pytest.approx(expected.item(), rel=1e-12)
            assert together.step() == pytest.approx(plain.step(), rel=1e-12)
            for p, q in zip(model.parameters(), other.parameters()):
                np.testing.assert_allclose(p.data, q.data, rtol=1e-9, atol=1e-10)
                np.testing.assert_allclose(p.grad.data, q.grad.data, rtol=1e-9, atol=1e-10)
    assert model(*[side[:, :5] for side in batch(0)]).shape == (6, 5, 9)  # parameters are kept


def test_gradients_of_some_shards_are_summed_with_the_rates_of_the_step() -> None:
    a, b, unused = parameter(), parameter(), parameter(1, 1)
    sgd = optim.SGD([a, b, unused], lr=1.0)
    loss = lambda shard: (a if shard == 0 else a + b).sum() * 2
    with DataParallel(sgd, loss, model=None) as together:
        assert together.backward([0, 1]) == [0, 0]
        together.step()
        assert a.tolist() == [-4, -4] and b.tolist() == [-2, -2] and unused.grad is None
        sgd.param_groups[0]["lr"] = 0.5
        run_step(together, 0)  # the other process has nothing to do
        assert a.tolist() == [-5, -5] and b.tolist() == [-2, -2]


@small_or_large
def test_steps_of_each_parameter_are_counted(monkeypatch: pytest.MonkeyPatch, small: bool) -> None:
    """Parameters get gradients at different steps and from different shards."""
    use_small(monkeypatch, small, 2)
    leaves, others = ([parameter(1, 1, 1) for _ in range(3)] for _ in range(2))
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


@small_or_large
def test_step_that_overflows_changes_nothing(monkeypatch: pytest.MonkeyPatch, small: bool) -> None:
    use_small(monkeypatch, small, 1)
    p = Tensor(np.ones(4, np.float32), True)
    adam = optim.Adam([p])
    factors = np.array([1e-3, 1.0, 1.0, 1e30], np.float32)
    with DataParallel(adam, lambda s: (p * factors).sum(), model=None) as together:
        together.backward([0, 0])
        with pytest.raises(OverflowError, match="Adam: float32 cannot hold the step"):
            together.step()
    assert p.tolist() == [1, 1, 1, 1] and not adam.state_dict()["arrays"]["0.exp_avg"].any()
    assert adam._groups[0].steps == [0]


def test_step_that_is_not_finite_is_skipped() -> None:
    p = parameter(1, 1)
    sgd = optim.SGD([p], lr=0.5, skip_nonfinite=True)
    with DataParallel(sgd, lambda factor: (p * factor).sum(), model=None) as together:
        together.backward([np.nan, 1.0])
        assert np.isnan(together.step()) and sgd.skipped == 1 and p.tolist() == [1, 1]
        together.backward([1.0, 1.0])
        assert together.step() == pytest.approx(8**0.5)
    assert p.tolist() == [0, 0] and sgd.skipped == 1


def test_more_processes_than_cores_give_the_same_sum() -> None:
    p, sgd = parameter_and_optimizer()
    with DataParallel(sgd, lambda s: (p * s).sum(), 12, model=None) as together:
        assert together.backward(list(range(12))) == [0] * 12
        together.step()
    assert p.tolist() == [-66, -66]


def test_earlier_gradients_are_added_once() -> None:
    p, sgd = parameter_and_optimizer()
    (p * 3).sum().backward()
    with DataParallel(sgd, lambda s: (p * s).sum(), model=None) as together:
        together.backward([10, 20], add=True)
        together.step()
    assert p.tolist() == [-33, -33]


def test_processes_draw_different_numbers_that_repeat_from_a_seed() -> None:
    """From the default generator, and from the generator of a module."""
    draws = parameter(0, 0, 0, 0)  # a gradient is the only way out of another process
    module = nn.Dropout(0.5, generator=np.random.Generator(np.random.PCG64(3)))

    def loss(shard: int) -> Tensor:
        numbers = np.zeros(4)
        generators = mg.default_generator(), module.generator
        numbers[2 * shard : 2 * shard + 2] = [g.random() for g in generators]
        return (draws * numbers).sum()

    steps = []
    for _ in range(2):
        mg.manual_seed(0)
        module.generator.bit_generator.state = np.random.PCG64(3).state
        with DataParallel(optim.SGD([draws], lr=1.0), loss, model=module) as together:
            for _ in range(3):
                run_step(together, 0, 1)
                steps.append(draws.grad.data.tolist())
    assert steps[:3] == steps[3:] and len({number for step in steps for number in step}) == 12


# -- arguments, optimizers and threads that are refused --------------------------------------------------


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"processes": 0}, ValueError, "processes must be at least 1, got 0"),
        ({"processes": 1.5}, TypeError, "processes must be a whole number, got 1.5"),
        ({"processes": "2"}, TypeError, "processes must be a whole number, got '2'"),
        ({"processes": True}, TypeError, "processes must be a whole number, got True"),
        ({"model": 3}, TypeError, "DataParallel: model must be a module or None, got 3"),
    ],
)
def test_data_parallel_refuses_argument(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        DataParallel(parameter_and_optimizer()[1], lambda s: s, **{"model": None} | options)


def test_data_parallel_without_a_model_is_refused() -> None:
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'model'"):
        DataParallel(parameter_and_optimizer()[1], lambda s: s)  # type: ignore[call-arg]


def test_second_data_parallel_of_an_optimizer_is_refused_until_the_first_is_closed() -> None:
    p, sgd = parameter_and_optimizer()
    with DataParallel(sgd, lambda s: p.sum(), model=None) as first:
        first.backward([0, 0])
        second = DataParallel(sgd, lambda s: p.sum(), model=None)
        with pytest.raises(RuntimeError, match=r"has processes for this optimizer; close\(\) it"):
            second.backward([0, 0])
        assert first.step() == pytest.approx(8**0.5)
    run_step(second, 0, 0)
    second.close()
    assert p.tolist() == [-4, -4]


def test_step_of_the_optimizer_is_refused_while_processes_have_gradients() -> None:
    p, sgd = parameter_and_optimizer()
    with DataParallel(sgd, lambda s: p.sum(), model=None) as together:
        together.backward([0, 0])
        with pytest.raises(RuntimeError, match=r"call step\(\) of the DataParallel, not the opt"):
            sgd.step()
        together.step()
        with pytest.raises(ValueError, match="shards must be 1 to 2 batches, got 3"):
            together.backward([0, 0, 0])
    sgd.zero_grad()
    p.sum().backward()
    sgd.step()
    assert p.tolist() == [-3, -3]


def in_a_thread(function: Callable[[], Any]) -> str:
    """Return the message of the RuntimeError that `function` raises in another thread."""
    messages: list[str] = []

    def call() -> None:
        try:
            function()
        except RuntimeError as error:
            messages.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    return "".join(messages)


def test_use_in_two_threads_is_refused() -> None:
    (p, sgd), (q, other) = parameter_and_optimizer(), parameter_and_optimizer()
    with (
        DataParallel(sgd, lambda s: p.sum(), model=None) as first,
        DataParallel(other, lambda s: q.sum(), model=None) as second,
    ):
        first.backward([0, 0])
        message = "started by another thread; use it in one thread only"
        assert message in in_a_thread(lambda: first.backward([0, 0]))
        assert message in in_a_thread(first.step)
        message = "another thread has one with processes; fork from one"
        assert message in in_a_thread(lambda: second.backward([0, 0]))
        first.step()
        run_step(second, 0, 0)  # two in one thread
        assert p.tolist() == q.tolist() == [-2, -2]


# -- changes of parameters and of the model --------------------------------------------------------------


def test_parameter_frozen_later_is_frozen_in_all_processes() -> None:
    p, q = parameter(), parameter()
    with DataParallel(optim.SGD([p, q], lr=1.0), lambda s: (p + q).sum(), model=None) as together:
        for requires_grad in (True, False, True):
            q.requires_grad = requires_grad
            run_step(together, 0, 0)
    assert p.tolist() == [-6, -6] and q.tolist() == [-4, -4]


def test_group_added_to_the_optimizer_is_trained_by_all_processes() -> None:
    p, sgd = parameter_and_optimizer()
    q = parameter()
    with DataParallel(sgd, lambda s: ((p + q) * s).sum(), model=None) as together:
        together.backward([1, 2])
        sgd.add_param_group({"params": [q], "lr": 2.0})
        with pytest.raises(RuntimeError, match="parameter groups were added since backward"):
            together.step()
        run_step(together, 1, 2)
    assert p.tolist() == [-3, -3] and q.tolist() == [-6, -6]


class Scaled(nn.Module):
    """A parameter times a setting, a buffer and a part; it keeps its last result."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(np.ones(2), dtype=float)
        self.factor = 1.0
        self.register_buffer("mask", np.ones(2))
        self.inner = nn.Identity()

    def forward(self, x: Any) -> Tensor:
        self.last = self.inner(self.weight * self.factor) * self.mask
        return self.last * (3.0 if self.training else 1.0)


class Doubled(nn.Module):
    def forward(self, x: Any) -> Tensor:
        return x * 2.0


MASK, WEIGHT = np.array([0.0, 1.0]), np.array([4.0, 1.0])
CHANGES: dict[str, Callable[[Any], Any]] = {
    "setting": lambda m: setattr(m, "factor", 5.0),
    "eval": lambda m: m.eval(),
    "buffer": lambda m: setattr(m, "mask", MASK),
    "buffer loaded": lambda m: m.load_state_dict({**m.state_dict(), "mask": MASK}),
    "weights loaded": lambda m: m.load_state_dict({**m.state_dict(), "weight": WEIGHT}),
    "setting of a part": lambda m: setattr(m.inner, "factor", 2.0),
    "part": lambda m: setattr(m, "inner", Doubled()),
    "hook": lambda m: m.register_forward_hook(lambda module, args, result: result * 7.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_of_a_model_reaches_all_processes(change: str) -> None:
    model = Scaled()
    loss = lambda shard: (model(shard) ** 2).sum()
    sgd = optim.SGD(model.parameters(), lr=1e-3)
    with DataParallel(sgd, loss, model=model) as together:
        together.backward([0, 0])
        process = together._workers[0][0].pid
        together.backward([0, 0], add=True)
        together.step()
        together.backward([0, 0])
        assert together._workers[0][0].pid == process  # unchanged, so not forked again
        CHANGES[change](model)
        if change != "weights loaded":
            with pytest.raises(RuntimeError, match="the model changed between the batches of one"):
                together.backward([0, 0], add=True)
        assert together.backward([0, 0]) == [loss(0).item()] * 2
        with nn.evaluating():
            assert together.backward([0, 0]) == [loss(0).item()] * 2
        assert together.backward([0, 0]) == [loss(0).item()] * 2


def test_change_of_one_of_several_models_reaches_all_processes() -> None:
    first, second = Scaled(), Scaled()
    sgd = optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    both = nn.ModuleList([first, second])
    with DataParallel(sgd, lambda s: (first(s) * second(s)).sum(), model=both) as together:
        together.backward([0, 0])
        second.factor = 5.0
        assert together.backward([0, 0]) == [2 * 5 * 9] * 2


# -- memory ----------------------------------------------------------------------------------------------


def in_a_fork(function: Callable[[], Any]) -> str:
    """Return the error that `function` raises in a forked child, or its result."""
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


def test_closed_processes_leave_whole_gradients_in_private_memory() -> None:
    model = nn.Linear(2, 2, dtype="float64")
    adam, x = optim.Adam(model.parameters()), np.ones((4, 2))
    with DataParallel(adam, lambda s: (model(s) ** 2).sum(), model=model) as together:
        run_step(together, x, x)
        together.backward([x, x])
    expected = mg.gradients((model(x) ** 2).sum() * 2, [*model.parameters()])
    arrays = [
        *(p.data for p in model.parameters()),
        *(p.grad.data for p in model.parameters()),
        *adam.state_dict()["arrays"].values(),
        adam._groups[0].grad,
    ]
    before = [array.copy() for array in arrays]
    assert in_a_fork(lambda: [array.fill(-7.0) for array in arrays]) == str([None] * len(arrays))
    for array, value in zip(arrays, before):
        np.testing.assert_array_equal(array, value)
    for p, g in zip(model.parameters(), expected):
        np.testing.assert_allclose(p.grad.data, g.data, rtol=1e-12)


def test_forked_child_cannot_use_the_processes_of_its_parent() -> None:
    p, sgd = parameter_and_optimizer()
    with DataParallel(sgd, lambda s: (p * s).sum(), model=None) as together:
        together.backward([1, 2])
        for use in (together.step, lambda: together.backward([1, 2])):
            assert "RuntimeError: DataParallel: it was started by another process" in in_a_fork(use)
        assert "call step() of the DataParallel" in in_a_fork(sgd.step)
        assert in_a_fork(together.close) == "None"  # and the parent's processes live
        together.step()
        run_step(together, 1, 2)
    assert p.tolist() == [-6, -6]


def test_close_leaves_parameters_that_moved_in_their_memory() -> None:
    model = nn.Linear(2, 2)
    sgd = optim.SGD(model.parameters(), lr=0.1)
    with DataParallel(sgd, lambda s: model(s).sum(), model=model) as together:
        together.backward([np.ones((1, 2), np.float32)] * 2)
        model.astype("float64")
        weight = model.weight.data
    assert model.weight.data is weight and model.weight.dtype == np.float64


def test_optimizer_goes_on_alone_after_the_processes_are_closed() -> None:
    weights = []
    for processes, shards in ((1, [3.0]), (2, [1.0, 2.0])):
        p = parameter(1, 2, 3, 4)
        adam = optim.Adam([p], lr=0.1)
        loss = lambda factor, p=p: (p * p * factor).sum()
        with DataParallel(adam, loss, processes, model=None) as together:
            for _ in range(3):
                run_step(together, *shards)
        for _ in range(3):
            adam.zero_grad()
            loss(3.0).backward()
            adam.step()
        assert p.data.base is adam._groups[0].data
        weights.append(p.data)
    np.testing.assert_allclose(*weights, rtol=1e-12)


# -- faults ----------------------------------------------------------------------------------------------


def test_shard_that_fails_ends_the_processes_with_its_message() -> None:
    p = parameter(1, 1)

    def loss(shard: int) -> Tensor:
        if shard == 1:
            raise ValueError("a bad shard")
        return p.sum() * (np.nan if shard == 3 else 1)

    together = DataParallel(optim.SGD([p], lr=1.0, clip_norm=1.0), loss, model=None)
    message = "DataParallel: a shard failed in another process(.|\n)*a bad shard"
    with pytest.raises(RuntimeError, match=message):
        together.backward([0, 1])
    assert together._workers == []
    together.backward([0, 3])
    with pytest.raises(FloatingPointError, match="the norm of the gradients is nan"):
        together.step()
    assert p.tolist() == [1, 1]
    together.backward([0, 4])  # by new processes
    assert together.step() == pytest.approx(2 * 2**0.5)
    pid = together._workers[0][0].pid
    together.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("when", ["backward", "step", "between"])
def test_killed_process_is_one_line_and_replaced(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    use_small(monkeypatch, False, optim.optimizer.BLOCK)
    p, sgd = parameter_and_optimizer()
    first = os.getpid()

    def loss(shard: str) -> Tensor:
        if os.getpid() != first and shard == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return p.sum()

    together = DataParallel(sgd, loss, model=None)
    together.backward(["lives", "lives"])
    if when != "step":
        together.step()
    if when != "backward":
        os.kill(together._workers[0][0].pid, signal.SIGKILL)
        together._workers[0][0].join()
    with pytest.raises(RuntimeError) as caught:
        together.step() if when == "step" else together.backward(["lives", "dies"])
    assert re.fullmatch(
        r"DataParallel: process \d+, .* was killed by SIGKILL, as the system does when memory runs out",
        str(caught.value),
    )
    assert caught.value.__context__ is None  # Python 3.13 would show the buffers of its frames
    assert together._workers == []
    before = p.data.copy()
    run_step(together, "lives", "lives")
    together.close()
    np.testing.assert_array_equal(p.data, before - 2)


def test_exception_in_a_signal_handler_ends_the_processes() -> None:
    """A TimeoutError is an OSError, like the error of a broken pipe."""
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


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_processes_end_when_the_first_is_killed() -> None:
    p, sgd = parameter_and_optimizer()
    read, write = os.pipe()
    first = os.fork()
    if first == 0:
        together = DataParallel(sgd, lambda s: p.sum(), processes=3, model=None)
        together.backward([0, 0, 0])
        os.write(write, " ".join(str(p.pid) for p, _ in together._workers).encode() + b"\n")
        time.sleep(60)
        os._exit(0)
    pids = [int(word) for word in os.read(read, 100).split()]
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    for _ in range(600):
        if not any(map(is_running, pids)):
            return
        time.sleep(0.05)
    raise AssertionError("still running")


SCRIPT = """
import os, signal, time
import numpy as np
from minigrad import DataParallel, Tensor, optim
p, first = Tensor(np.zeros(2), True), os.getpid()
def loss(shard):
    time.sleep(0.3 if os.getpid() != first else 0)
    if shard and os.getpid() == first:
        os.kill(first, signal.SIGKILL)
    return p.sum()
together = DataParallel(optim.SGD([p], lr=1.0), loss, 3, model=None)
"""
CTRL_C = """
together.backward([0, 0, 0])
try:
    print("ready", flush=True)
    for _ in range(100):
        together.backward([0, 0, 0])
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(
    "shard, code", [(1, -signal.SIGKILL), (0, 0)], ids=["killed", "not closed"]
)
def test_script_that_ends_early_prints_nothing(shard: int, code: int) -> None:
    """Killed while its processes work, or ended without closing them."""
    script = f"{SCRIPT}together.backward([{shard}, 0, 0])\n"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr, done.stdout) == (code, "", "")


def test_ctrl_c_in_all_processes_is_handled_by_the_first() -> None:
    with started([sys.executable, "-c", SCRIPT + CTRL_C]) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)


# -- threads ---------------------------------------------------------------------------------------------


def test_set_num_threads_sets_the_threads_of_blas() -> None:
    before = mg.get_num_threads()
    try:
        mg.set_num_threads(1)
        assert mg.get_num_threads() == 1
    finally:
        mg.set_num_threads(before)
    with pytest.raises(ValueError, match="set_num_threads: n must be at least 1, got 0"):
        mg.set_num_threads(0)


def test_in_parallel_keeps_order_and_context_and_raises_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A part that calls it again runs its own parts one after another."""
    calls: list[int] = []
    monkeypatch.setattr(runtime, "_blas", lambda: (calls.append, lambda: 2))
    both = threading.Barrier(2)

    def run(part: int) -> Any:
        if part < 2:
            both.wait(timeout=10)  # only two at once go on
        inner = runtime.in_parallel(lambda x: (x, threading.get_ident()), [part, -part])
        expected = [(x, threading.get_ident()) for x in (part, -part)]
        return inner == expected, part, mg.is_grad_enabled()

    with mg.no_grad():
        assert runtime.in_parallel(run, range(5)) == [(True, part, False) for part in range(5)]
    assert calls == [1, 2]
    with pytest.raises(ZeroDivisionError):
        runtime.in_parallel(lambda x: 1 / x, [1, 0, 2])
