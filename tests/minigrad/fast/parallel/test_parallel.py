"""Steps in several forked processes: equal to those of one process, and clear errors for what cannot be."""

from __future__ import annotations

import contextvars
import itertools
import os
import platform
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from support.environment import max_examples
from support.ranks import check_steps
from support.scripts import started

import minigrad as mg
import nn
from minigrad import DataParallel, Tensor, optim
from minigrad.fast import parallel, runtime, stepper
from minigrad.fast.parallel.captured_state import captured_state, generators, is_same, reseed
from minigrad.fast.parallel.memory import FlatGradients
from minigrad.optimizer import Stepper

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def parameter(*values: float) -> Tensor:
    return Tensor(np.array(values or [0.0, 0.0], float), requires_grad=True)


def sum_in_parallel() -> tuple[Tensor, optim.SGD, DataParallel]:
    """Return a parameter, SGD with a rate of 1, and processes for the loss (parameter * shard).sum()."""
    p = parameter()
    sgd = optim.SGD([p], lr=1.0)
    return p, sgd, DataParallel(sgd, lambda shard: (p * shard).sum(), model=None)


def run_step(together: DataParallel, *shards: Any) -> None:
    together.backward(list(shards))
    together.step()


PLAIN = [0, 1, 2, True, False, 1.0, 2.0, "1", "", (1,), (2,), None, np.ones(1), [], len]


def test_states_are_the_same_if_plain_values_are_equal_and_others_identical() -> None:
    for a, b in itertools.product(PLAIN, repeat=2):
        assert is_same([None, a], [None, b]) is (a is b)
    for a, b in (((1, 2), (1, 2)), (10**20, 10**20), (1e300, 1e300), ("a b", "a b")):
        copy = eval(repr(a))
        assert a == b and is_same([copy, len], [b, len]) and not is_same([copy], [b, b])
    assert not is_same([[]], [[]])


def test_captured_state_has_a_shared_module_and_its_generator_once() -> None:
    shared = nn.Dropout(0.5, generator=np.random.default_rng(3))
    default = nn.Dropout(0.5, generator=mg.default_generator())
    state = captured_state(nn.ModuleList([shared, nn.ModuleList([shared, default])]))
    assert sum(value is shared for value in state) == 1
    both = generators(state)
    assert [*map(id, both)] == [id(mg.default_generator()), id(shared.generator)]
    with pytest.raises(ValueError):
        reseed(both, [1])


@pytest.fixture(params=[True, False], ids=["first process steps", "all processes step"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take steps in the first process alone, or in all processes, each on blocks of two values."""
    monkeypatch.setattr(parallel.forked, "_SMALL", 1 << 20 if request.param else 0)
    monkeypatch.setattr(stepper, "BLOCK", 2)


# -- steps equal those of one process ------------------------------------------------------------------


@pytest.mark.parametrize("processes", [2, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("blocks")
def test_steps_of_model_equal_those_of_one_process(processes: int) -> None:
    check_steps(DataParallel, processes)


@given(
    st.sampled_from([optim.SGD, optim.Adam]),
    st.integers(1, 3),
    st.lists(st.lists(st.lists(st.sampled_from([0, 1, 2]), max_size=3), min_size=1, max_size=3)),
)
@max_examples(6)
def test_steps_of_any_shards_equal_those_of_one_process(
    make: Any, processes: int, steps: list[list[list[int]]]
) -> None:
    """A shard names the parameters that its loss reads, and may name none."""
    leaves, others = ([parameter(1, 2, 3) for _ in range(3)] for _ in range(2))
    optimizer, plain = make(leaves, lr=0.125), make(others, lr=0.125)
    loss = lambda ps, which: sum(((ps[i] * (i + 1)) ** 2).sum() for i in which) + (ps[0] * 0).sum()
    steps = [shards[:processes] for shards in steps]
    with DataParallel(optimizer, lambda w: loss(leaves, w), processes, model=None) as together:
        for shards in steps:
            run_step(together, *shards)
            plain.zero_grad()
            sum(loss(others, which) for which in shards).backward()
            plain.step()
            assert_allclose([p.data for p in leaves], [p.data for p in others], rtol=1e-12)


def test_three_processes_return_a_loss_for_each_shard_and_keep_gradients_at_close() -> None:
    p, empty = parameter(), Tensor(np.ones((0, 2), np.float32), requires_grad=True)
    sgd = optim.SGD([p, empty], lr=1.0)
    together = DataParallel(
        sgd, lambda shard: (p * shard).sum() + empty.sum(), processes=3, model=None
    )
    assert len(together.backward([np.ones(2)])) == 1
    together.step()
    assert p.tolist() == [-1, -1]
    p.data = np.array([1.0, 2.0])
    assert together.backward([np.ones(2), 2 * np.ones(2), np.arange(2.0)]) == [3, 6, 2]
    together.close()
    assert p.grad.tolist() == [3, 4] and p.tolist() == [1, 2]


@pytest.mark.parametrize(("count", "each"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_two_processes_share_the_threads_of_matrix_products(
    count: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    monkeypatch.setattr(parallel.forked, "get_num_threads", lambda: count)
    monkeypatch.setattr(parallel.forked, "threads", lambda n: nullcontext(used.append(n)))
    _, _, together = sum_in_parallel()
    with together:
        run_step(together, 1, 2)
    assert used == [each]


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam])
@pytest.mark.usefixtures("blocks")
def test_gradient_that_the_program_keeps_is_not_overwritten(make: Any) -> None:
    p = parameter()
    with DataParallel(make([p], lr=1.0), lambda s: (p * s).sum(), model=None) as together:
        kept: list[Any] = []
        for shards in ([1, 10], [2, 20]):
            together.backward(shards)
            kept.append(p.grad)  # the part of this process
            together.step()
            kept.append(p.grad)  # the sum
        together.backward([3, 30])
    assert [g.tolist()[0] for g in kept] == [1, 11, 2, 22]


@pytest.mark.parametrize("read", [True, False])
def test_step_after_close_uses_the_gradients_of_all_processes(read: bool) -> None:
    p, q = parameter(), parameter()
    sgd = optim.SGD([p, q], lr=1.0)
    with DataParallel(sgd, lambda s: (s * [p, q][s - 1]).sum(), model=None) as together:
        together.backward([1, 2])  # q has a gradient in the other process only
        if read:
            assert p.grad is not None and q.grad is not None
    sgd.step()
    assert p.tolist() == [-1, -1] and q.tolist() == [-2, -2]


@pytest.mark.usefixtures("blocks")
def test_step_counts_steps_of_each_parameter() -> None:
    """Parameters get gradients at different steps and from different shards; one gets none."""
    leaves, others = ([parameter(1, 1, 1) for _ in range(4)] for _ in range(2))
    adam, plain = optim.Adam(leaves, lr=0.1), optim.Adam(others, lr=0.1)
    loss = lambda ps, which: sum((ps[i] ** 2).sum() for i in which)
    with DataParallel(adam, lambda which: loss(leaves, which), model=None) as together:
        for shards in ([[0], [0]], [[0], [2]], [[1, 2], [0]], [[2], [1]], [[0, 1, 2]]):
            plain.param_groups[0]["lr"] = adam.param_groups[0]["lr"] = 0.1 * len(shards)
            run_step(together, *shards)
            plain.zero_grad()
            loss(others, [i for which in shards for i in which]).backward()
            plain.step()
            assert_allclose([p.data for p in leaves], [p.data for p in others], rtol=1e-12)
    assert adam.state_dict()["groups"] == plain.state_dict()["groups"]


@pytest.mark.usefixtures("blocks")
def test_step_with_overflow_changes_nothing() -> None:
    p = Tensor(np.ones(4, np.float32), True)
    adam = optim.Adam([p])
    factors = np.array([1e-3, 1.0, 1.0, 1e30], np.float32)
    with DataParallel(adam, lambda s: (p * factors).sum(), model=None) as together:
        together.backward([0, 0])
        with pytest.raises(OverflowError, match="Adam: float32 cannot hold the step"):
            together.step()
    assert p.tolist() == [1, 1, 1, 1] and adam.state_dict()["groups"][0]["steps"] == 0


def test_step_with_nonfinite_gradient_is_skipped() -> None:
    p, sgd, together = sum_in_parallel()
    sgd.stepper.skip_nonfinite = True
    with together:
        run_step(together, np.nan, 1.0)
        assert sgd.stepper.skipped == 1 and p.tolist() == [0, 0]
        run_step(together, 1.0, 1.0)
    assert p.tolist() == [-2, -2] and sgd.stepper.skipped == 1


def test_backward_with_add_keeps_earlier_gradients() -> None:
    p, _, together = sum_in_parallel()
    (p * 3).sum().backward()
    with together:
        together.backward([10, 20], add=True)
        together.step()
    assert p.tolist() == [-33, -33]


def test_processes_draw_different_numbers_that_repeat_from_seed() -> None:
    """From the default generator, and from the generator of a module."""
    draws = Tensor(np.zeros((2, 2)), True)  # a gradient is the only way out of another process
    generators = lambda: (mg.default_generator(), module.generator)
    loss = lambda shard: (draws[shard] * [g.random() for g in generators()]).sum()
    steps = []
    for _ in range(2):
        mg.manual_seed(0)
        module = nn.Dropout(0.5, generator=np.random.default_rng(3))
        with DataParallel(optim.SGD([draws]), loss, model=module) as together:
            for _ in range(2):
                run_step(together, 0, 1)
                steps.append(draws.grad.data.copy())
    assert_array_equal(steps[:2], steps[2:])
    assert len(np.unique(steps)) == 8


# -- arguments, optimizers and threads that are refused --------------------------------------------------


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"processes": 0}, ValueError, "processes must be at least 1, got 0"),
        ({"model": 3}, TypeError, "DataParallel: model must be a module or None, got 3"),
    ],
)
def test_data_parallel_with_invalid_argument_raises(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        DataParallel(optim.SGD([parameter()]), lambda s: s, **{"model": None} | options)


@pytest.mark.parametrize(
    "kind, obstacle, ranks, name, processes",
    [
        (None, "no", None, "SingleProcess", 1),
        (1, "no", None, "SingleProcess", 1),
        (1, "", 1, "SingleProcess", 1),
        (2, "", None, "DataParallel", 2),
        (3, "", 1, "DataParallel", 3),
        (2, "no", None, "SingleProcess", 1),
        (None, "no", 2, "MPIParallel", 1),
        (2, "", 2, "MPIParallel", 2),
        (2, "no", 3, "MPIParallel", 1),
        (parallel.SingleProcess, "", 2, "SingleProcess", 1),
    ],
)
def test_steps_are_taken_by_the_processes_and_ranks_there_are(
    kind: Any, obstacle: str, ranks: Any, name: str, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class MPIParallel(parallel.SingleProcess):
        def __init__(self, optimizer: Any, loss: Any, parts: int, *, model: Any) -> None:
            super().__init__(optimizer, loss, model=model)
            self.parts = parts

    monkeypatch.setattr(parallel, "MPIParallel", MPIParallel)
    monkeypatch.setattr(parallel, "fork_obstacle", lambda: obstacle)
    monkeypatch.setattr(parallel, "launched", lambda: ranks and SimpleNamespace(size=ranks))
    sgd, model = optim.SGD([parameter()]), nn.ModuleList([])
    warns = pytest.warns(RuntimeWarning, match="parallel=2: no; training runs in one process")
    with warns if kind == 2 and obstacle else nullcontext():
        steps = parallel.start_parallel(kind, sgd, abs, model=model)
    assert (type(steps).__name__, steps.parts) == (name, processes)
    assert steps.optimizer is sgd and steps.loss is abs and steps.model is model


def test_optimizer_whose_steps_are_not_in_blocks_is_refused() -> None:
    sgd = optim.SGD([parameter()])
    sgd.stepper = Stepper(sgd)
    with pytest.raises(TypeError, match="SingleProcess: optimizer must take .*, got a Stepper"):
        parallel.SingleProcess(sgd, abs)


@pytest.mark.parametrize("kind", [True, "2", 2.0, np.int64(2)])
def test_steps_by_something_else_are_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="parallel must be None, a number of processes or a class"):
        parallel.start_parallel(kind, optim.SGD([parameter()]), abs, model=None)


def test_sums_over_one_process_are_its_numbers_in_a_new_list() -> None:
    numbers = [1.0, 2.0]
    sums = parallel.SingleProcess(optim.SGD([parameter()]), abs).sum(numbers)
    assert sums == numbers and sums is not numbers


def test_release_of_earlier_flat_gradients_leaves_those_that_are_used() -> None:
    p = parameter()
    sgd = optim.SGD([p])
    sgd.stepper.follow()
    vectors = [np.zeros(2), np.zeros(2)]
    first, second = (FlatGradients(sgd.stepper.groups, [vector]) for vector in vectors)
    first.release()
    (p * 3.0).sum().backward()
    assert [v.tolist() for v in vectors] == [[0, 0], [3, 3]]
    second.release()
    vectors[1].fill(0)
    assert p.grad.tolist() == [3, 3]


def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a call in another thread, or raise its error."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result(60)


def in_fork(function: Callable[..., Any], *args: Any) -> None:
    """Call a function in a forked child, and raise its error here."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            function(*args)
        except BaseException as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        error = file.read()
    os.waitpid(child, 0)
    if error:
        raise RuntimeError(error)


def test_uses_that_would_lose_gradients_are_refused() -> None:
    (p, sgd, first), (q, _, other) = sum_in_parallel(), sum_in_parallel()
    second = DataParallel(sgd, first.loss, model=None)
    with first, other:
        first.backward([1, 1])
        for call, use, args, message in (
            (in_thread, first.step, (), "must be used in the thread that started it"),
            (in_thread, first.backward, [[1]], "must be used in the thread that started it"),
            (in_thread, other.backward, [[1]], r"only one thread must start .* close\(\) its"),
            (in_fork, first.step, (), "must be used in the process that started it"),
            (in_fork, first.backward, [[1]], "must be used in the process that started it"),
            (in_fork, sgd.step, (), r"step must not be called .* call step\(\) of the DataPar"),
            (lambda f: f(), sgd.step, (), r"step must not be called on the optimizer"),
            (second.backward, [1], (), r"must not be shared with another .* close\(\) the other"),
        ):
            with pytest.raises(RuntimeError, match=message):
                call(use, *args)
        in_fork(first.close)  # the processes live
        first.step()
        run_step(other, 1, 1)  # two in one thread
    with second:
        run_step(second, 1, 1)
    sgd.step()
    assert p.tolist() == [-6, -6] and q.tolist() == [-2, -2]


@pytest.mark.parametrize("count", [0, 3])
def test_backward_of_no_or_too_many_shards_raises(count: int) -> None:
    with pytest.raises(ValueError, match=f"shards must be 1 to 2 batches, got {count}"):
        sum_in_parallel()[2].backward([1] * count)


def test_backward_of_loss_that_is_no_tensor_raises() -> None:
    p = parameter()
    together = DataParallel(optim.SGD([p], lr=1.0), lambda shard: 1.0, processes=1, model=None)
    with pytest.raises(TypeError, match="DataParallel: loss must return a Tensor, got a float"):
        together.backward([1])


# -- changes of parameters and of the model --------------------------------------------------------------


def test_backward_after_freezing_parameter_leaves_it_in_all_processes() -> None:
    p, q = parameter(), parameter()
    with DataParallel(optim.SGD([p, q], lr=1.0), lambda s: (p + q).sum(), model=None) as together:
        for requires_grad in (True, False, True):
            q.requires_grad = requires_grad
            run_step(together, 0, 0)
    assert p.tolist() == [-6, -6] and q.tolist() == [-4, -4]


def test_step_after_adding_group_trains_it_in_all_processes() -> None:
    p, q = parameter(), parameter()
    sgd = optim.SGD([p], lr=1.0)
    with DataParallel(sgd, lambda s: ((p + q) * s).sum(), model=None) as together:
        together.backward([1, 2])
        sgd.add_param_group({"params": [q], "lr": 2.0})
        with pytest.raises(RuntimeError, match="parameters were added or replaced since backward"):
            together.step()
        run_step(together, 1, 2)
    assert p.tolist() == [-3, -3] and q.tolist() == [-6, -6]


def test_step_that_is_interrupted_ends_the_other_processes() -> None:
    p = parameter()
    together = DataParallel(optim.SGD([p], lr=1.0), lambda s: (p * s).sum(), model=None)
    together.backward([1, 2])

    def interrupt() -> None:
        raise KeyboardInterrupt

    together.reduce = interrupt
    with pytest.raises(KeyboardInterrupt):
        together.step()
    assert not together._workers


class Scaled(nn.Module):
    """A parameter times a setting, a buffer, a part and a function; it keeps its last results."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(np.ones(2), dtype=float)
        self.factor = 1.0
        self.register_buffer("mask", np.ones(2))
        self.inner = nn.Identity()
        self.functions: dict[str, Any] = {"scale": lambda x: x}

    def forward(self, x: Any) -> Tensor:
        scaled = self.functions["scale"](self.weight * self.factor + x)
        self.last = self.inner(scaled) * self.mask
        self.results = [self.last]
        return self.last * (3.0 if self.training else 1.0)


MASK, WEIGHT = np.array([0.0, 1.0]), np.array([4.0, 1.0])
CHANGES: dict[str, Callable[[Any], Any]] = {
    "setting": lambda m: setattr(m, "factor", 5.0),
    "buffer": lambda m: setattr(m, "mask", MASK),
    "buffer loaded": lambda m: m.load_state_dict({**m.state_dict(), "mask": MASK}),
    "weights loaded": lambda m: m.load_state_dict({**m.state_dict(), "weight": WEIGHT}),
    "part": lambda m: setattr(m, "inner", nn.LayerNorm(2, dtype=float)),
    "hook": lambda m: m.register_forward_hook(lambda module, args, result: result * 7.0),
    "hook before": lambda m: m.register_forward_pre_hook(lambda module, args: 7.0),
    "function": lambda m: m.functions.update(scale=lambda x: x * 7.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_backward_after_change_of_model_uses_it_in_all_processes(change: str) -> None:
    model = Scaled()
    model.register_forward_hook(lambda module, args, result: result * 2.0)
    loss = lambda shard: (model(shard) ** 2).sum()
    sgd = optim.SGD(model.parameters(), lr=1e-3)
    with DataParallel(sgd, loss, model=model) as together:
        together.backward([0, 0])
        process, part = together._workers[0][0].pid, model.weight.grad.data.copy()
        contextvars.ContextVar("another.package").set(change)
        together.backward([0, 0], add=True)
        assert together._workers[0][0].pid == process  # unchanged, so not forked again
        CHANGES[change](model)
        if change != "weights loaded":
            message = "the model must not change between the batches of"
            with pytest.raises(RuntimeError, match=message):
                together.backward([0, 0], add=True)
            assert_allclose(model.weight.grad, 4 * part)  # of both processes and both batches
        assert together.backward([0, 0]) == [loss(0).item()] * 2
        with nn.evaluating():
            assert together.backward([0, 0]) == [loss(0).item()] * 2


# -- memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", [False, True])
def test_parameters_that_share_memory_are_changed_by_one_process(
    shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change a block once, since two processes would write into it at the same time."""
    monkeypatch.setattr(parallel.forked, "_SMALL", 4)
    first = parameter()
    second = Tensor(first.data if shares else np.zeros(2), requires_grad=True)
    sgd, kinds = optim.SGD([first, second], lr=1.0), list[str]()
    with DataParallel(sgd, lambda shard: ((first + second) * shard).sum(), model=None) as together:
        send = together._send
        monkeypatch.setattr(
            together,
            "_send",
            lambda workers, *message: (
                [kinds.append(message[0]) for _ in workers] and send(workers, *message)
            ),
        )
        run_step(together, 1.0, 2.0)
    assert kinds == ["run", *["sum", "update"] * (not shares)]
    assert first.tolist() == ([-6, -6] if shares else [-3, -3])


def test_optimizer_takes_steps_by_gradients_of_its_own_process_after_close() -> None:
    p = parameter()
    adam = optim.Adam([p], lr=1.0)
    with DataParallel(adam, lambda shard: (p * shard).sum(), model=None) as together:
        run_step(together, 1.0, 2.0)
        shared = adam.state[p]["exp_avg"]
    adam.zero_grad()
    (p * -5.0).sum().backward()
    before = shared.copy()
    adam.step()
    assert_allclose(adam.state[p]["exp_avg"], 0.9 * before - 0.1 * 5)
    assert_array_equal(shared, before)


def test_parameters_that_share_memory_share_it_after_close() -> None:
    """Arrays and tensors with the memory of a parameter follow it again; tied ones stay tied."""
    given, other = np.zeros(2), np.zeros((2, 2))
    p, q, alone = Tensor(given, requires_grad=True), parameter(), parameter()
    part = Tensor(other[:, 0], requires_grad=True)
    q.data = p.data
    detached, freed = p.detach(), weakref.ref(alone.data)
    sgd = optim.SGD([p, q, part, alone], lr=1.0)
    loss = lambda factor: ((p + 2 * q + 3 * part + alone) * factor).sum()
    with DataParallel(sgd, loss, model=None) as together:
        for _ in range(2):
            together.backward([1.0, 2.0])
            together.step()
            assert p.tolist() == q.tolist()
        assert freed() is None
    assert given.tolist() == p.tolist() == q.tolist() == detached.tolist() == [-18, -18]
    assert other.tolist() == [[-18, 0], [-18, 0]] and alone.tolist() == [-6, -6]
    q.data[...] = 1
    assert p.tolist() == [1, 1]


@pytest.mark.parametrize(
    "view", [np.s_[1:], np.s_[:1], np.s_[:, :1], np.s_[:2], np.transpose, np.ravel], ids=range(6)
)
def test_parameters_that_share_a_part_of_their_memory_are_refused(view: Any) -> None:
    p = Tensor(np.arange(9.0).reshape(3, 3), requires_grad=True)
    q = Tensor(view(p.data) if callable(view) else p.data[view], requires_grad=True)
    together = DataParallel(optim.SGD([p, q]), lambda s: p.sum() + q.sum(), model=None)
    with pytest.raises(ValueError, match="share all of their memory or none"):
        together.backward([1, 2])
    assert np.shares_memory(p.data, q.data)


def test_step_after_parameter_got_another_array_is_refused() -> None:
    p, _, together = sum_in_parallel()
    with together:
        together.backward([1.0, 2.0])
        p.data = np.ones(2)
        with pytest.raises(RuntimeError, match="were added or replaced since backward"):
            together.step()
        together.backward([1.0, 2.0])
        together.step()
    assert p.tolist() == [-2, -2]


def test_close_leaves_whole_gradients_in_private_memory() -> None:
    p, _, together = sum_in_parallel()
    adam = together.optimizer = optim.Adam([p])
    with together:
        run_step(together, 1, 1)
        together.backward([1, 2])
    assert p.grad.tolist() == [3, 3]
    for array in (p.data, p.grad.data, adam.state_dict()["arrays"]["0.exp_avg"]):
        before = array.copy()
        in_fork(array.fill, -7.0)
        assert_array_equal(array, before)


def test_close_leaves_moved_parameters_in_their_memory() -> None:
    model = nn.Linear(2, 2)
    loss = lambda shard: model(np.ones((1, 2), np.float32)).sum()
    with DataParallel(optim.SGD(model.parameters()), loss, model=model) as together:
        together.backward([0, 0])
        model.astype("float64")
        weight = model.weight.data
    assert model.weight.data is weight


# -- faults ----------------------------------------------------------------------------------------------


def test_backward_of_shard_that_fails_ends_processes_with_its_message() -> None:
    p = parameter()
    together = DataParallel(optim.SGD([p], lr=1.0), lambda s: (p * (1 / s)).sum(), model=None)
    message = "DataParallel: a shard failed in another process(.|\n)*division by zero"
    with pytest.raises(RuntimeError, match=message):
        together.backward([1, 0])
    assert together._workers == []
    run_step(together, 1, 1)  # by new processes
    assert p.tolist() == [-2, -2]
    pid = together._workers[0][0].pid
    together.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("when", ["backward", "step"])
def test_killed_process_raises_one_line_and_is_replaced(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(parallel.forked, "_SMALL", 0)
    p = parameter()
    loss = lambda shard: (p * (shard or os.kill(os.getpid(), signal.SIGKILL))).sum()
    together = DataParallel(optim.SGD([p], lr=1.0), loss, model=None)
    together.backward([1, 1])
    if when == "step":
        together._workers[0][0].kill()
        together._workers[0][0].join()
    message = r"DataParallel: process \d+, .* was killed by SIGKILL, as the system does when memory"
    with pytest.raises(RuntimeError, match=message) as error:
        together.step() if when == "step" else together.backward([1, 0])
    assert error.value.__context__ is None  # Python 3.13 would show the buffers of its frames
    run_step(together, 1, 1)
    together.close()
    assert p.tolist() == [-2, -2]


def test_timeout_while_waiting_ends_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TimeoutError is an OSError, like the error of a broken pipe."""
    _, _, together = sum_in_parallel()
    together.backward([1, 1])

    def interrupted(pipe: Any) -> None:
        raise TimeoutError("too late")

    monkeypatch.setattr(type(together._workers[0][1]), "recv", interrupted)
    with pytest.raises(TimeoutError, match="too late"):
        together.backward([1, 1])
    assert together._workers == []


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "shard, code", [(1, -signal.SIGKILL), (0, 0)], ids=["killed", "not closed"]
)
def test_script_with_early_end_prints_nothing(shard: int, code: int) -> None:
    """Killed while its processes work, or ended without closing them.

    `subprocess.run` waits for all processes, since they share the pipes.
    """
    script = f"{SCRIPT}together.backward([{shard}, 0, 0])\n"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr, done.stdout) == (code, "", "")


def test_ctrl_c_in_all_processes_is_handled_by_first() -> None:
    with started([sys.executable, "-c", SCRIPT + CTRL_C]) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)


MEMORY = """
import re
import numpy as np
from minigrad import DataParallel, Tensor, optim
from minigrad.fast.runtime import keep_freed_memory

def private_memory(process="self"):
    lines = open(f"/proc/{process}/smaps_rollup").read()
    return 1024 * int(re.search(r"Anonymous: +(\\d+) kB", lines)[1])

x = Tensor(np.full((1, 1024), 1e-3, "float32"))
(x @ Tensor(np.ones((1024, 4), "float32"), requires_grad=True)).sum().backward()
before = private_memory()
weights = [Tensor(np.full((1024, 1024), 1e-3, "float32"), requires_grad=True) for _ in range(8)]
adam = optim.Adam(weights, 1e-6)
keep_freed_memory()

def loss(shard):
    h = x
    for w in weights:
        h = h @ w
    return h.sum()

together = DataParallel(adam, loss, model=None)
for _ in range(2):
    together.backward([0, 0])
    together.step()
for process in ("self", together._workers[0][0].pid):
    print((private_memory(process) - before) / sum(w.nbytes for w in weights))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux")
def test_processes_share_memory_of_parameters_and_state() -> None:
    """No process has arrays of its own that are as large as all parameters."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    assert max(map(float, done.stdout.split())) < 0.6


# -- threads ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scipy_openblas_f64_", "scipy_openblas_f", "openblas_f64_", "openblas_f", "f"])  # fmt: skip
def test_function_of_openblas_is_found_in_each_spelling(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda file: SimpleNamespace(**{name: len}))
    assert runtime._openblas.__wrapped__("f") is (None if name == "f" else len)


@pytest.mark.parametrize("name", [None, "Haswell", "SkylakeX", "Cooperlake", "SapphireRapids"])
def test_processors_with_avx_512_compute_small_products_without_packing(
    name: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CoreName:
        restype: Any = None

        def __call__(self) -> bytes:
            return name.encode()

    monkeypatch.setattr(runtime, "_openblas", lambda _: name and CoreName())
    assert runtime.has_small_kernels.__wrapped__() is (name not in (None, "Haswell"))


@pytest.mark.parametrize(
    "dependencies, expected",
    [({}, True), ({"blas": {}}, False), ({"blas": {"found": True}}, True), (None, True)],
)
def test_numpy_has_a_blas_unless_it_was_built_without(
    dependencies: Any, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"Build Dependencies": dependencies}
    monkeypatch.setattr(np, "show_config", lambda mode: config)
    assert runtime.has_blas.__wrapped__() is expected


def test_set_num_threads_sets_threads_of_blas() -> None:
    before = mg.get_num_threads()
    try:
        mg.set_num_threads(1)
        assert mg.get_num_threads() == 1
    finally:
        mg.set_num_threads(before)
    with pytest.raises(ValueError, match="set_num_threads: n must be at least 1, got 0"):
        mg.set_num_threads(0)


def test_threads_sets_threads_of_blas_within_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    number = [3]
    blas = (lambda n: number.__setitem__(0, n), lambda: number[0])
    monkeypatch.setattr(runtime, "_blas", lambda: blas)
    with runtime.threads(2):
        assert number[0] == mg.get_num_threads() == 2
    assert number[0] == mg.get_num_threads() == 3
    monkeypatch.setattr(runtime, "_blas", lambda: None)  # as with another library
    with runtime.threads(2), runtime.OwnThreads():
        assert runtime.in_parallel(abs, range(9)) == [*range(9)]
    assert number[0] == 3 and mg.get_num_threads() == runtime.available_cores()
    with pytest.raises(RuntimeError, match="NumPy is not built with OpenBLAS here; set the env"):
        mg.set_num_threads(2)


def test_memory_of_malloc_default_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIGRAD_MALLOC", "default")
    assert not runtime.keep_freed_memory.__wrapped__()


FAULTS = """
import resource
import numpy as np
import minigrad

count = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
pages = []
for _ in range(5):
    before = count()
    arrays = [np.ones(1 << 15) for _ in range(12)]
    del arrays
    pages.append(count() - before)
print(pages[-1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs Linux with glibc")
@pytest.mark.parametrize("malloc", ["", "default"])
def test_import_keeps_freed_arrays_unless_malloc_is_default(malloc: str) -> None:
    """Arrays of 256 KiB are made again from the pages of the former ones."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env=os.environ | {"MINIGRAD_MALLOC": malloc},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert (int(done.stdout) > 100) == (malloc == "default")


def test_own_threads_leave_one_thread_to_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks end in another order than they began, and a number that is set in one stays."""
    number = [3]
    blas = (lambda n: number.__setitem__(0, n), lambda: number[0])
    monkeypatch.setattr(runtime, "_blas", lambda: blas)
    with ExitStack() as first:
        first.enter_context(runtime.OwnThreads())
        with ExitStack() as second:
            second.enter_context(runtime.OwnThreads())
            first.close()
            assert (number[0], mg.get_num_threads()) == (1, 3)
            inside = runtime.in_parallel(lambda _: (number[0], mg.get_num_threads()), range(2))
            assert inside == [(1, 1), (1, 1)]
            mg.set_num_threads(2)
            assert (number[0], mg.get_num_threads()) == (1, 2)
    assert number[0] == mg.get_num_threads() == 2


def test_in_parallel_keeps_order_and_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that calls it again runs its own parts one after another."""
    calls: list[int] = []
    monkeypatch.setattr(runtime, "_blas", lambda: (calls.append, lambda: 2))
    both = threading.Barrier(2)

    def run(part: int) -> Any:
        if part < 2:
            both.wait(timeout=10)  # only two at once go on
        threads = runtime.in_parallel(lambda _: threading.get_ident(), range(2))
        return {threading.get_ident()} == set(threads), part, mg.is_grad_enabled()

    with mg.no_grad():
        assert runtime.in_parallel(run, range(5)) == [(True, part, False) for part in range(5)]
    assert calls == [1, 2]


@pytest.mark.parametrize("threads, parts", [(1, 5), (4, 1), (4, 0)])
def test_parts_for_one_thread_leave_the_threads_of_blas(
    threads: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(runtime, "_blas", lambda: (calls.append, lambda: threads))
    assert runtime.in_parallel(abs, range(parts)) == [*range(parts)] and not calls


def test_in_parallel_in_process_that_is_forked_later_starts_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime, "_blas", lambda: (lambda n: None, lambda: 2))
    assert runtime.in_parallel(abs, range(3)) == [0, 1, 2]
    pid = os.fork()
    if not pid:
        status = 1
        try:
            signal.alarm(20)  # ends a process that waits for threads of its parent
            status = int(runtime.in_parallel(abs, range(3)) != [0, 1, 2])
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def test_in_parallel_raises_error_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_blas", lambda: (lambda n: None, lambda: 2))
    caller, both = threading.get_ident(), threading.Barrier(2)

    def fail(part: int) -> None:
        both.wait(timeout=10)
        if threading.get_ident() != caller:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        runtime.in_parallel(fail, range(2))


def test_batch_norm_in_training_is_refused_and_in_evaluation_equals_one_process() -> None:
    x = np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
    sgd = optim.SGD(model.parameters(), lr=0.1)
    with DataParallel(sgd, lambda rows: model(rows).sum(), model=model) as together:
        message = r"model must not contain BatchNorm1d in training mode, got BatchNorm1d\(2, .*one"
        with pytest.raises(ValueError, match=message):
            together.backward([x[:2], x[2:]])
        model.eval()
        together.backward([x[:2], x[2:]])
        model.train()
        with pytest.raises(ValueError, match=message):
            together.backward([x[:2], x[2:]])
    one = DataParallel(sgd, lambda rows: model(rows).sum(), processes=1, model=model)
    assert len(one.backward([x])) == 1
