"""Backward passes: accumulation, freeing, hooks, modes and errors."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import GradientError, Tensor, optim


def leaf(*shape: int, seed: int = 0) -> Tensor:
    """Return a random leaf of a graph."""
    return Tensor(np.random.default_rng(seed).standard_normal(shape), requires_grad=True)


# -- accumulation ------------------------------------------------------------------------------------


def test_gradient_of_two_parents_is_not_added_into() -> None:
    a, b, c, d = (leaf(3, seed=i) for i in range(4))
    ((a * c).sum() + ((a + b) * d).sum()).backward()
    np.testing.assert_array_equal(b.grad.data, d.data)
    np.testing.assert_array_equal(a.grad.data, d.data + c.data)


@pytest.mark.parametrize("uses", [1, 2, 3, 4])
def test_gradient_of_a_number_that_is_broadcast_several_times_adds_up(uses: int) -> None:
    a, xs = leaf(), [leaf(3, seed=i).data for i in range(uses)]
    mg.stack([a * x for x in xs]).sum().backward()
    assert type(a.grad.data) is np.ndarray and a.grad.shape == ()
    assert a.grad.item() == pytest.approx(sum(x.sum() for x in xs))


def test_leaf_gradients_own_their_memory() -> None:
    x, y, w, g = leaf(3), leaf(3), leaf(3), np.ones(3)
    (x + y).backward(g)
    w.backward(g)  # a leaf is its own root
    z = leaf(3)
    z.sum().backward()  # a broadcast view
    for i, t in enumerate((x, y, w, z)):
        t.grad.data[0] += i + 1
    assert [t.grad.tolist() for t in (x, y, w, z)] == [[i, 1, 1] for i in (2, 3, 4, 5)]
    assert g.tolist() == [1, 1, 1]


def test_gradient_has_the_byte_order_of_its_leaf() -> None:
    x = Tensor(np.ones(3, ">f8"), requires_grad=True)
    np.outer(x, x).sum().backward()
    assert x.grad.dtype == ">f8" and x.grad.tolist() == [6, 6, 6]


def test_backward_visits_each_node_once() -> None:
    x = y = Tensor(np.float64(1.0), requires_grad=True)
    for _ in range(60):  # 2^60 paths
        y = y * 0.5 + y * 0.5
    y.backward()
    assert x.grad.item() == 1.0


def test_float32_with_numbers_and_reductions_stays_float32() -> None:
    x = Tensor(np.ones((2, 3), np.float32), requires_grad=True)
    y = mg.where(x > 0, x * 2 + 1.5, 0.0) / 3 - 1 + x.mean() + x.std(0) ** 2 + 1 / x + 2**x
    assert y.dtype == np.float32


# -- graph lifetime ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_graph_of_many_ops_needs_no_recursion(count: int) -> None:
    x = y = Tensor(np.ones(2), requires_grad=True)
    for _ in range(count):
        y = y + 1.0
    y.backward(np.ones(2), retain_graph=True)
    np.testing.assert_array_equal(x.grad.data, np.ones(2))
    del y


def test_node_is_freed_before_the_rules_of_its_parents_run() -> None:
    arrays: list[weakref.ref[np.ndarray]] = []
    alive: list[int] = []

    @mg.custom_op(x=lambda g, x: alive.append(sum(a() is not None for a in arrays)) or g)
    def probe(x, /):
        arrays.append(weakref.ref(x))
        return x * 1.0

    h = leaf(10) * 1.0
    for _ in range(3):
        h = probe(h)
    h = h.sum()
    h.backward()
    assert alive == [3, 2, 1]


@pytest.mark.parametrize("is_kept", [False, True])
def test_second_backward_without_retain_graph_is_refused(is_kept: bool) -> None:
    x = leaf(3)
    h = x * x
    if is_kept:
        h.retain_grad()
    a, b = h.sum(), h.mean()
    a.backward(retain_graph=True)
    a.backward()
    np.testing.assert_allclose(x.grad.data, 4 * x.data)
    for y, op in ((a, "sum"), (b, "multiply")):
        with pytest.raises(GradientError, match=f"{op}: the graph is freed; pass retain_graph"):
            y.backward()


def test_gradients_of_outputs_given_twice_and_of_an_input_itself_add_up() -> None:
    x, g = leaf(3), np.arange(3.0)
    y = x * 2
    (found,) = mg.gradients([y, x, y], x, [g, g, 10 * g])
    assert found.tolist() == [0, 23, 46]


def test_backward_takes_a_list_in_the_dtype_of_the_result() -> None:
    x = Tensor(np.ones(2, np.float32), requires_grad=True)
    (x * 2).backward([1.0, 3.0])
    assert x.grad.dtype == np.float32 and x.grad.tolist() == [2, 6]


def test_gradients_by_arguments_have_their_order_and_refuse_booleans() -> None:
    f = lambda x, y: (x * y * y).sum()
    by_y, by_x = mg.grad(f, argnums=(1, 0))(np.array([2.0]), np.array([3.0]))
    assert by_y.tolist() == [12] and by_x.tolist() == [9]
    with pytest.raises(TypeError, match="arguments must be floating-point, got dtype bool"):
        mg.grad(f)(np.array([True]), np.array([3.0]))


@pytest.mark.parametrize("dtype", [float, np.float32])
def test_zero_grad_replaces_a_recorded_gradient_by_zeros(dtype: Any) -> None:
    x = Tensor(np.ones(2, dtype), requires_grad=True)
    (x * x).sum().backward(create_graph=True)
    assert x.grad.requires_grad
    optim.SGD([x]).zero_grad(set_to_none=False)
    assert x.grad.tolist() == [0, 0] and not x.grad.requires_grad and x.grad.dtype == dtype


def test_write_beside_the_memory_that_a_graph_needs_is_allowed() -> None:
    memory = np.ones(9)
    x = Tensor(memory[3:6], requires_grad=True)
    y = (x * x).sum()
    for part in (memory[:3], memory[6:]):
        p = Tensor(part, requires_grad=True)
        p.grad = np.ones(3)
        optim.SGD([p], lr=1.0).step()
    y.backward()
    assert x.grad.tolist() == [2, 2, 2] and memory.tolist() == [0] * 3 + [1] * 3 + [0] * 3


def test_write_into_memory_that_a_graph_needs_is_noticed_beside_other_writes() -> None:
    x, constant = leaf(2), Tensor(np.ones(6))
    for places in ((0, 5, 3), (3, 0, 5), (0, 5, 2)):
        y = (x * constant[2:4]).sum()
        for place in places:
            constant[place] = 2.0
        with pytest.raises(GradientError, match="was changed in place after it was used"):
            y.backward()


def test_backward_adds_to_a_read_only_gradient() -> None:
    x = leaf(3)
    x.grad = np.broadcast_to(2.0, 3)
    x.sum().backward()
    assert x.grad.tolist() == [3, 3, 3]


def test_recorded_gradients_own_their_memory() -> None:
    x, y = leaf(3), leaf(3)
    ((x + y) * 2).sum().backward(create_graph=True)
    x.grad.data[0] = 7
    assert x.grad.tolist() == [7, 2, 2] and y.grad.tolist() == [2, 2, 2]


# -- hooks -------------------------------------------------------------------------------------------


def test_hook_sees_and_replaces_the_gradient() -> None:
    x = leaf(3)
    h = x * 2
    seen: list[Any] = []
    handle = h.register_hook(seen.append)
    h.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    (h * h).sum().backward(retain_graph=True)
    assert h.grad is None
    np.testing.assert_allclose(seen[0].data, 4 * x.data)
    np.testing.assert_allclose(x.grad.data, 80 * x.data + 1)
    handle.remove()
    handle.remove()  # does nothing
    h.register_hook(lambda g: np.zeros(2))
    with pytest.raises(GradientError, match=r"hook must return .* \(3,\) .* got shape \(2,\)"):
        h.sum().backward()
    assert len(seen) == 1
    y = x * 3
    y.register_hook(lambda g: g.astype("float32"))
    with pytest.raises(GradientError, match=r"dtype float64, got .* dtype float32"):
        y.sum().backward()


def test_gradients_of_a_retained_tensor_leave_its_grad_unchanged() -> None:
    x = leaf(3)
    h = x * 2
    h.retain_grad()
    (found,) = mg.gradients((h * h).sum(), h, retain_graph=True)
    assert h.grad is None and x.grad is None
    (h * h).sum().backward(retain_graph=True)
    mg.gradients((h * 3).sum(), x)
    np.testing.assert_array_equal(h.grad.data, found.data)


def test_gradient_that_is_set_keeps_its_graph_or_shares_the_memory_of_a_constant() -> None:
    x, g = leaf(3), leaf(3, seed=1)
    x.grad = g * 2
    x.grad.sum().backward()
    assert g.grad.tolist() == [2, 2, 2]
    for constant in (g.detach(), g.data):
        x.grad = constant
        assert not x.grad.requires_grad and x.grad.data is g.data


def test_hook_may_remove_itself_and_runs_once() -> None:
    x, calls = leaf(3), []

    def hook(g: Tensor) -> None:
        calls.append(g.tolist())
        handle.remove()

    handle = x.register_hook(hook)
    for _ in range(2):
        x.sum().backward()
    assert calls == [[1, 1, 1]]


def test_gradient_that_a_hook_keeps_does_not_change_later() -> None:
    x = leaf(3)
    kept: list[Any] = []
    x.register_hook(kept.append)
    for factor in (2, 3):
        (x * factor + x).sum().backward()
    assert kept[0].tolist() == [3, 3, 3] and x.grad.tolist() == [7, 7, 7]


def test_hook_may_return_an_array_or_a_leaf_in_every_kind_of_pass() -> None:
    x = leaf(3)
    for answer in (np.arange(3.0), x):
        h = x * 2
        h.register_hook(lambda g, answer=answer: answer)
        for create_graph in (True, False):
            g = mg.gradients(h.sum(), x, create_graph=create_graph)[0]
            np.testing.assert_allclose(g.data, 2 * mg.as_tensor(answer).data)

    h, w = x * 2, leaf(3)
    h.register_hook(lambda g: g * w)
    (g,) = mg.gradients(h.sum(), x, create_graph=True)
    assert mg.gradients(g.sum(), w)[0].tolist() == [2, 2, 2]

    def doubled(x: Any) -> Any:
        y = x * x
        y.register_hook(lambda g: g * 2)
        return (y * y).sum()

    np.testing.assert_allclose(mg.vmap(mg.grad(doubled))(np.ones((2, 3))).data, np.full((2, 3), 8))


# -- modes -------------------------------------------------------------------------------------------


def test_modes_nest_decorate_and_end_with_errors() -> None:
    x = leaf(2)
    with pytest.raises(ValueError), mg.no_grad():
        with mg.enable_grad():
            assert (x * 2).requires_grad
        assert not mg.is_grad_enabled() and not (x * 2).requires_grad
        raise ValueError
    assert mg.is_grad_enabled()
    assert not mg.no_grad()(lambda t: t * 2)(x).requires_grad
    assert not mg.no_grad(lambda t: t * 2)(x).requires_grad
    assert mg.no_grad(mg.enable_grad(lambda t: t * 2))(x).requires_grad
    with pytest.raises(TypeError, match="no_grad: function must be callable, got False"):
        mg.no_grad(False)

    async def coroutine() -> None: ...

    async def asynchronous() -> Any:
        yield

    for function in (coroutine, asynchronous):
        with pytest.raises(TypeError, match=f"no_grad: cannot decorate {function.__name__}, a cor"):
            mg.no_grad()(function)


@pytest.mark.parametrize("mode", [mg.no_grad, mg.enable_grad])
def test_decorated_generator_computes_in_its_mode_and_its_caller_in_its_own(mode: Any) -> None:
    inside, closed = [], []

    @mode()
    def generate(n: int) -> Any:
        try:
            for i in range(n):
                inside.append(mg.is_grad_enabled())
                try:
                    received = yield i
                except KeyError:
                    received = "thrown"
                inside.append(received)
            return "end"
        finally:
            closed.append(mg.is_grad_enabled())

    def outer() -> Any:
        result = yield from generate(4)
        inside.append(result)

    for outside in (True, False):
        inside.clear()
        closed.clear()
        with mg.set_grad_enabled(outside):
            generator = outer()
            assert next(generator) == 0 and mg.is_grad_enabled() is outside
            assert generator.send("sent") == 1 and mg.is_grad_enabled() is outside
            assert generator.throw(KeyError()) == 2 and mg.is_grad_enabled() is outside
            assert list(generator) == [3] and mg.is_grad_enabled() is outside
            is_on = mode is mg.enable_grad
            assert inside == [is_on, "sent", is_on, "thrown", is_on, None, is_on, None, "end"]
            unfinished = generate(2)
            next(unfinished)
            unfinished.close()
            assert closed == [is_on, is_on] and mg.is_grad_enabled() is outside


def test_block_around_a_yield_raises_except_in_a_context_manager() -> None:
    def leaking() -> Any:
        with mg.no_grad():
            yield mg.is_grad_enabled()

    def delegating() -> Any:
        with mg.no_grad():
            yield from [mg.is_grad_enabled()]

    def spread() -> Any:
        with (
            contextlib.nullcontext(),
            mg.no_grad(),
        ):
            if mg.is_grad_enabled() is False:
                yield 1

    def computing() -> Any:
        with mg.no_grad():
            functions = [lambda: (yield)]

            def function() -> Any:
                yield 1

            async def coroutine() -> Any:
                yield 1

            inside = mg.is_grad_enabled() or not all([function, coroutine, *functions])
        yield inside, mg.is_grad_enabled()

    @contextlib.contextmanager
    def unrecorded() -> Any:
        with mg.no_grad():
            yield

    async def asynchronous() -> Any:
        with mg.no_grad():
            yield 1

    with pytest.raises(mg.GradientError, match="caller of asynchronous would run in its mode"):
        asynchronous().__anext__().send(None)
    for f in (leaking, delegating, spread):
        with pytest.raises(
            mg.GradientError, match=f"caller of {f.__name__} would run in its mode; d"
        ):
            next(f())
    assert mg.is_grad_enabled() and list(computing()) == [(False, True)]
    with unrecorded():
        assert not mg.is_grad_enabled()
    assert mg.is_grad_enabled()


@pytest.mark.parametrize("kind", [mg.enable_grad, mg.no_grad])
def test_block_that_ends_in_another_thread_or_out_of_order_raises(kind: Any) -> None:
    first, second = mg.no_grad(), kind()
    first.__enter__()
    second.__enter__()
    with pytest.raises(RuntimeError, match="no_grad: a block must end in the thread or task where"):
        first.__exit__()
    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="_grad: a block"):
        pool.submit(second.__exit__).result()
    second.__exit__()
    first.__exit__()
    assert mg.is_grad_enabled()


def test_no_grad_object_shared_by_tasks_gives_each_its_mode() -> None:
    shared = mg.no_grad()

    async def task(pause: float) -> None:
        for _ in range(3):
            with shared:
                await asyncio.sleep(pause)
                assert not mg.is_grad_enabled()
            assert mg.is_grad_enabled()

    async def together() -> None:
        await asyncio.gather(task(0.001), task(0.0017))

    with contextlib.closing(together()) as tasks:  # also where no event loop can run
        asyncio.run(tasks)


def test_mode_belongs_to_its_thread() -> None:
    with mg.no_grad(), ThreadPoolExecutor() as threads:
        assert threads.submit(mg.is_grad_enabled).result()
        assert not mg.is_grad_enabled()


# -- changes in place --------------------------------------------------------------------------------


def test_change_before_use_and_new_array_are_allowed() -> None:
    w = leaf(3)
    w.data -= 0.1
    y = (w * w).sum()
    old = w.data.copy()
    w.data = np.zeros(3)  # another array: the graph still has the old one
    y.backward()
    np.testing.assert_allclose(w.grad.data, 2 * old)


# -- errors ------------------------------------------------------------------------------------------

X = leaf(2, 3)
CONSTANT = Tensor(np.ones(2))
WRONG = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda: (X * 2).backward(),
            GradientError,
            r"unless the tensor has one element, got shape \(2, 3\)",
        ),
        (lambda: (X * 2).backward(np.ones(3)), GradientError, r"\(2, 3\) .* got shape \(3,\)"),
        (lambda: (X * 2).backward(WRONG), GradientError, "float64, got shape .* dtype float32"),
        (lambda: CONSTANT.backward(), GradientError, "this tensor does not require gradients"),
        (lambda: setattr(X, "data", np.ones(3)), ValueError, r"data must have shape \(2, 3\)"),
        (lambda: setattr(X, "data", WRONG), ValueError, "dtype float64, got .* dtype float32"),
        (lambda: setattr(X, "grad", np.ones(2)), GradientError, r"grad: .*, got shape \(2,\)"),
        (lambda: setattr(CONSTANT, "grad", 1.0), GradientError, "grad: this tensor does not requ"),
        (lambda: setattr(X * 2, "requires_grad", False), GradientError, "only a leaf can be"),
        (lambda: Tensor([1, 2], True), TypeError, r"must be floating-point, got int\d+"),
        (lambda: copy.deepcopy(X * 2), GradientError, "deepcopy: only a leaf"),
        (lambda: pickle.dumps(X * 2), GradientError, "pickle: only a leaf"),
    ],
)
def test_tensor_refuses_what_has_no_gradient_or_another_shape(
    call: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_keep_gradients_and_shared_tensors_shared(copied: Any) -> None:
    x = Tensor(np.arange(3.0), requires_grad=True)
    (x * x).sum().backward()
    one, two = copied((x, x))
    assert one is two and one.requires_grad
    for a, b in ((one.data, x.data), (one.grad.data, x.grad.data)):
        np.testing.assert_array_equal(a, b)
        assert not np.shares_memory(a, b)


@pytest.mark.parametrize("error", [ValueError, SystemError, TypeError, RuntimeError])
def test_lost_gradient_is_raised_although_a_function_in_c_replaces_the_error(error: Any) -> None:
    def function(x: Any) -> Any:
        try:
            return x * float(x)
        except GradientError as lost:
            raise error("replaced") from lost

    is_undone = error in (ValueError, SystemError)
    with pytest.raises(GradientError if is_undone else error, match="float" if is_undone else "r"):
        mg.grad(function)(2.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.roots(p=x),
        lambda x: np.bincount([0, 1], weights=x),
    ],
)
def test_function_without_a_rule_refuses_tensors_at_any_place(call: Any) -> None:
    x = Tensor(np.ones(2), requires_grad=True)
    with pytest.raises(TypeError, match=r"np\.\w+ has no rule for Tensors"):
        call(x)
    with mg.no_grad():
        call(x)


@pytest.mark.parametrize("convert", [float, int])
def test_warning_of_a_number_without_a_gradient_shows_the_line_that_asked(convert: Any) -> None:
    with pytest.warns(UserWarning, match=f"{convert.__name__}.. of a tensor") as caught:
        convert(Tensor(2.0, requires_grad=True))
    assert caught[0].filename == __file__
