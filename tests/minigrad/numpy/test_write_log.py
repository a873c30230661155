"""Writes into shared memory: the values of NumPy and exact gradients, or an error."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices
from numpy.lib.array_utils import byte_bounds
from support.environment import max_examples
from support.forms import BEFORE_2_1
from support.write_machine import FreezingMachine, WriteMachine

import minigrad as mg
from minigrad import GradientError, Tensor
from minigrad.changes import logs, owner_of
from minigrad.numpy.write_log import address_of, common, place_of

TestWrites = WriteMachine.TestCase
TestWrites.settings = max_examples(20)
TestWritesThatFreeze = FreezingMachine.TestCase
TestWritesThatFreeze.settings = max_examples(12)


@st.composite
def views(draw: st.DrawFn, array: np.ndarray) -> np.ndarray:
    """Draw a view of an array: flat or not, some of it, transposed, or its diagonal."""
    if draw(st.booleans()):
        array = array.reshape(-1)
        n = draw(st.sampled_from([n for n in (1, 2, 3) if array.size % n == 0]))
        array = array.reshape(n, -1)
    for _ in range(draw(st.integers(1, 2))):
        index = draw(basic_indices(array.shape, allow_ellipsis=False))
        array = array[(*index, ...) if isinstance(index, tuple) else (index, ...)]
    if draw(st.booleans()):
        array = array.T
    if array.ndim and array.shape[0] > 1 and draw(st.booleans()):
        array = np.lib.stride_tricks.sliding_window_view(array, 2, 0)
    return np.einsum("ii->i", array) if array.ndim == 2 and len(set(array.shape)) == 1 else array


def addresses(array: np.ndarray) -> np.ndarray:
    """Return the address of each element."""
    steps = [i * s for i, s in zip(np.indices(array.shape), array.strides)]
    return address_of(array) + sum(steps, np.zeros(array.shape, int))


@given(data=st.data(), shape=array_shapes(max_dims=3, max_side=4))
def test_common_elements_of_two_views_have_the_same_addresses(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    owner = np.zeros(shape)
    pair = [data.draw(views(owner)) for _ in range(2)]
    here, there = [place_of(view, address_of(owner)) for view in pair]
    if not (here.low < there.high and there.low < here.high):
        return
    part = common(here, there)
    if part is not None:
        mine, at = [a.ravel() if part.is_flat else a for a in map(addresses, pair)]
        assert np.unique(mine).size == mine.size and np.unique(at).size == at.size
        expected = np.intersect1d(mine, at)
        assert part.size == len(expected)
        if part.size:
            np.testing.assert_array_equal(mine[part.mine], at[part.at])
            np.testing.assert_array_equal(np.sort(mine[part.mine], axis=None), expected)


@given(
    data=st.data(),
    shape=array_shapes(max_dims=3, max_side=4),
    dtype=st.sampled_from([bool, np.int16, float]),
)
def test_place_lies_between_the_bounds_of_its_bytes(
    data: st.DataObject, shape: tuple[int, ...], dtype: type
) -> None:
    owner = np.zeros(shape, dtype)
    view = data.draw(views(owner))
    place = place_of(view, address_of(owner))
    if view.size and view.base is not None:
        bounds = [address - address_of(owner) for address in byte_bounds(view)]
        assert [place.low, place.high] == bounds


def test_place_of_bytes_ends_behind_the_last_one() -> None:
    """Also if two elements lie side by side, in either order."""
    owner = np.zeros((3, 3), bool)
    slices = [slice(*ends, step) for *ends, step in itertools.product((None, 0, 1, 2), (None, 2), (-2, -1, 1, 2))]  # fmt: skip
    for index in itertools.product(slices, repeat=2):
        view = owner[index]
        if view.size:
            place = place_of(view, address_of(owner))
            bounds = [address - address_of(owner) for address in byte_bounds(view)]
            assert [place.low, place.high] == bounds


def test_blocks_of_a_matrix_have_the_elements_of_both_in_common() -> None:
    """Also if their bounds overlap, but not their rows or their columns."""
    owner = np.arange(10).reshape(2, 5)
    rows, columns = ([slice(*ends) for ends in itertools.combinations(range(n + 1), 2)] for n in (2, 5))  # fmt: skip
    blocks = [owner[index] for index in itertools.product(rows, columns)]
    blocks += [np.lib.stride_tricks.sliding_window_view(owner[0], n)[:2] for n in (2, 3)]
    places = [place_of(block, address_of(owner)) for block in blocks]
    for i, j in itertools.product(range(len(blocks)), repeat=2):
        if not (places[i].low < places[j].high and places[j].low < places[i].high):
            continue
        part = common(places[i], places[j])
        assert part is None or part.size == len({*blocks[i].flat} & {*blocks[j].flat})


def test_place_repeats_elements_if_two_have_one_address() -> None:
    owner = np.zeros(24)
    for offset, rows, columns, *steps in itertools.product(
        (0, 2), (1, 2), (1, 2, 3), *[range(5)] * 2
    ):
        strides = [8 * step for step in steps]
        view = np.lib.stride_tricks.as_strided(owner[offset:], (rows, columns), strides)
        flat = addresses(view).ravel()
        assert place_of(view, address_of(owner)).repeats() == (len({*flat}) < len(flat))


KINDS = ["tracked", "constant", "product", "view"]
PLACES = [
    (slice(None), slice(2)), (1, slice(None)), (slice(None), slice(0, 4, 2)), (slice(1, 3), slice(1, 3)), (slice(None), 3),
]  # fmt: skip


def assert_slopes(writes: list[tuple[Any, str]]) -> None:
    """Compare values and slopes of a function that writes into a matrix with those of NumPy."""
    x, direction = (np.random.default_rng(i).integers(-9, 9, (3, 4)) * 1.0 for i in range(2))
    weights = np.random.default_rng(2).integers(1, 99, (3, 4))

    def f(x: Any) -> Any:
        y = x * 1.0
        for i, (index, kind) in enumerate(writes):
            if kind == "product":
                y[index] *= 2.0
            elif kind == "view" and np.ndim(part := y[index]):
                part += x[index]
            else:
                y[index] = 7.0 if kind == "constant" else x[index] * (i + 2.0)
        return (y * weights).sum()

    t = Tensor(x, requires_grad=True)
    y = f(t)
    (g,) = mg.gradients(y, [t], allow_unused=True)  # None if constants replaced all elements
    assert y.item() == f(x), writes
    slope = 0.0 if g is None else (g.data * direction).sum()
    assert slope == f(x + direction) - f(x), writes


@given(st.lists(st.tuples(basic_indices((3, 4), allow_ellipsis=False), st.sampled_from(KINDS)), max_size=5))  # fmt: skip
def test_writes_to_drawn_places_have_the_slopes_of_numpy(writes: list[tuple[Any, str]]) -> None:
    assert_slopes(writes)


@pytest.mark.parametrize("place", PLACES, ids=repr)
def test_writes_to_a_place_before_and_behind_another_have_the_slopes_of_numpy(place: Any) -> None:
    for other, first, last in itertools.product(PLACES, KINDS[:3], KINDS[:2]):
        assert_slopes([(place, first), (other, "constant"), (place, last)])


def test_log_of_a_loop_of_several_writes_does_not_grow() -> None:
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    speed, place = x * 1.0, mg.zeros(2)
    lengths = []
    for _ in range(3):
        speed *= 0.5
        speed[0] = 3.0
        place += speed
        place[1:] = 0.0
        entries = [logs[id(owner_of(t.data))].entries for t in (speed, place)]
        lengths.append([*map(len, (*entries, speed._written, place._written))])
    assert lengths[1] == lengths[2]
    (place + speed).sum().backward()
    np.testing.assert_array_equal(x.grad.data, [0.0, 0.125])


def test_log_does_not_grow_after_the_graph_of_a_loss_is_freed() -> None:
    w, y = mg.tensor(2.0, requires_grad=True), mg.zeros(2)
    products = []
    for _ in range(3):
        y *= 2.0
        products.append(y * w)
        products[-1].sum().backward()
    assert len(logs[id(y.data)].entries) == 1


def test_failed_write_leaves_gradients_of_earlier_writes() -> None:
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1.0
    y *= 2.0
    y[0] = x[1] * 5.0
    with pytest.raises(ValueError, match="broadcast"):
        y[...] = np.ones(3)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.data, [0.0, 7.0])


@pytest.mark.parametrize("part", [..., slice(1, None)])
def test_constants_written_through_a_detached_tensor_do_not_hide_what_was_written_before(
    part: Any,
) -> None:
    x, y = mg.tensor([1.0, 2.0, 3.0], requires_grad=True), mg.zeros(3)
    y[part] = x[part] * 2.0
    np.put(y.detach(), [0], 5.0)
    with pytest.raises(GradientError, match=r"written through detach\(\)"):
        y * 1.0


def test_factors_between_writes_keep_the_values_of_their_time() -> None:
    w, x = (mg.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    y, products = x * 1.0, []
    for factor in (2.0, 3.0, 5.0):
        y *= factor
        products.append(y * w)
    for product, factor in zip(products, (2, 6, 30)):
        assert mg.gradients(product.sum(), w)[0].tolist() == [factor, 2 * factor]


@pytest.mark.parametrize("retains", [False, True])
def test_view_read_before_a_write_has_its_gradient_beside_a_retained_one(retains: bool) -> None:
    x = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 1.0
    y[0] = x[1] * 5.0
    before = y[:2] * 1.0
    y *= 3.0
    if retains:
        y.retain_grad()
    (before.sum() + y.sum() * 2.0).backward()
    assert x.grad.tolist() == [0, 42, 6]
    assert not retains or y.grad.tolist() == [2, 2, 2]


@pytest.mark.skipif(BEFORE_2_1, reason="needs the forms of NumPy 2.1")  # 2.0 writes [1, 1, 1]
@pytest.mark.parametrize("whole", [lambda y: y, lambda y: y[...], lambda y: y[:]])
def test_tensor_written_into_its_own_permuted_elements_has_the_values_of_numpy(whole: Any) -> None:
    x = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 1.0
    y[[1, 2, 0]] = whole(y)
    assert y.tolist() == [3, 1, 2]
    assert mg.gradients(y, x, np.array([1.0, 10.0, 100.0]))[0].tolist() == [10, 100, 1]


def test_more_writes_than_a_byte_counts_have_their_gradients() -> None:
    """Repeat indices, of which NumPy writes the last value."""
    x = mg.tensor(np.arange(300.0), requires_grad=True)
    y = x * 1.0
    for i in range(300):
        y[[i, i]] = x[i] * float(i)
    assert mg.gradients(y.sum(), x)[0].tolist() == [*range(300)]


@pytest.mark.parametrize("shape", [(12,), (6, 6)])
def test_stencil_of_large_views_has_gradients_of_finite_differences(shape: tuple[int, ...]) -> None:
    inner = (slice(1, -1),) * len(shape)

    def f(x: Any) -> Any:
        u = x * 1.0
        for _ in range(3):
            u[inner] += 0.25 * (u[:-2] * u[1:-1] - u[2:])[(..., *inner[1:])]
            u[0] = u[-1]
        return u

    assert mg.gradcheck(f, (np.random.default_rng(0).standard_normal(shape),))


def test_write_between_the_elements_of_a_tensor_is_noticed() -> None:
    memory, x = np.zeros(32, np.uint8), mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    one, other = (Tensor(np.ndarray(3, float, memory, start)) for start in (0, 4))
    one[...] = x * 2.0
    other[...] = x * 3.0
    one[0] = 5.0
    with pytest.raises(GradientError, match="must not share memory that was written as"):
        other * 1.0


@pytest.mark.parametrize("read_first", [False, True])
def test_gradient_that_a_write_cut_raises_at_each_read(read_first: bool) -> None:
    y = mg.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True) * 1.0
    y[1:] *= 2.0
    with mg.no_grad():
        y[0] = 0.0
    if read_first:  # a large view, for which the whole tensor may be looked at
        y[1:3].sum().backward()
    for _ in range(2):
        for part in (slice(None), slice(3), slice(1)):
            with pytest.raises(GradientError, match="written under no_grad"):
                y[part] * 2.0
