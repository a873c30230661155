"""The tests that every op passes, generated from `opinfo.TABLE`."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import each
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from opinfo import NO_GRADIENT, TABLE, Draw, OpInfo, Sample

import minigrad as mg
from minigrad import Tensor
from minigrad.core.graph import Node
from minigrad.core.registry import FUNCTIONS, OPS

every = pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))
paired = pytest.mark.parametrize(
    "name", [n for n, o in OPS.items() if len(o.operands) == 2 and not o.variadic]
)


def test_table_names_every_op() -> None:
    differentiable = set(OPS) | {name for name in FUNCTIONS if name not in NO_GRADIENT}
    assert differentiable == set(TABLE)


def floats(sample: Sample) -> list[int]:
    """The operands that can have gradients."""
    return [
        i
        for i, x in enumerate(sample.operands)
        if isinstance(x, np.ndarray) and x.dtype.kind == "f"
    ]


def run(
    info: OpInfo, sample: Sample, dtype: Any = np.float64, requires_grad: bool = True
) -> tuple[list[Tensor], list[Tensor]]:
    """The leaves of one call, and its results."""
    operands = list(sample.operands)
    for i in floats(sample):
        operands[i] = Tensor(operands[i].astype(dtype), requires_grad=requires_grad)
    return [operands[i] for i in floats(sample)], tensors(info.call(*operands, **sample.options))


def tensors(result: Any) -> list[Tensor]:
    return [
        y
        for y in (result if isinstance(result, (list, tuple)) else [result])
        if isinstance(y, Tensor)
    ]


def cotangents(data: Any, ys: list[Tensor]) -> list[np.ndarray]:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    return [rng.standard_normal(y.shape).astype(y.dtype) for y in ys]


def closed(info: OpInfo, sample: Sample) -> Any:
    """The op as a function of its differentiable operands."""

    def f(*xs: Any) -> Any:
        operands = list(sample.operands)
        for i, x in zip(floats(sample), xs):
            operands[i] = x
        return info.call(*operands, **sample.options)

    f.__name__ = info.name
    return f


def arrays(sample: Sample) -> list[np.ndarray]:
    return [sample.operands[i] for i in floats(sample)]


@every
@given(data=st.data(), layout=st.sampled_from(["transposed", "strided", "reversed", "read-only"]))
def test_every_op(info: OpInfo, data: Any, layout: str) -> None:
    """All of one sample: to draw it takes as long as to look at it."""
    sample = info.samples(Draw(data.draw))
    value_and_dtype(info, sample, data)
    memory(info, sample, data, layout)
    derivatives(info, sample)


def value_and_dtype(info: OpInfo, sample: Sample, data: Any) -> None:
    """The value is that of the reference; results and gradients have the dtype of the operands; no need, no graph."""
    expected = info.reference(*sample.operands, **sample.options)
    _, ys = run(info, sample)
    for y, e in zip(ys, expected if isinstance(expected, list) else [expected]):
        assert isinstance(y.data, np.ndarray)
        assert y.shape == np.shape(e)
        np.testing.assert_allclose(y.data, e, rtol=1e-10, atol=1e-12)
    for dtype in info.dtypes if info.name != "astype" else ():
        keeps_dtype(info, sample, dtype, data)
    with mg.no_grad():
        assert not any(y.requires_grad for y in run(info, sample)[1])
    assert not any(y.requires_grad for y in run(info, sample, requires_grad=False)[1])


def keeps_dtype(info: OpInfo, sample: Sample, dtype: Any, data: Any) -> None:
    leaves, ys = run(info, sample, dtype)
    live = [y for y in ys if y.requires_grad]
    assert all(y.dtype == dtype for y in live)
    if live:
        found = mg.gradients(live, leaves, cotangents(data, live), allow_unused=True)
        assert all(
            g is None or (g.dtype == dtype and g.shape == x.shape) for g, x in zip(found, leaves)
        )


def derivatives(info: OpInfo, sample: Sample) -> None:
    """In random directions, by element, by a complex step where the op is analytic; and those of the derivatives."""
    f, xs = closed(info, sample), arrays(sample)
    exact = {"complex_step": True, "rtol": 1e-11, "atol": 1e-13} if info.analytic else {}
    assert mg.gradcheck(f, xs, elementwise=sum(x.size for x in xs) <= 12, **exact)
    assert mg.gradgradcheck(f, xs, elementwise=False, directions=1, rtol=1e-5)


@every
@given(data=st.data())
def test_every_op_at_its_branch_points(info: OpInfo, data: Any) -> None:
    """Value and derivative there lie between those on both sides."""
    draw = Draw(data.draw, at_kinks=True)
    sample = info.samples(draw)
    if draw.has_kinks and arrays(sample):
        between_both_sides(info, sample)


def between_both_sides(info: OpInfo, sample: Sample) -> None:
    """A derivative is between those beside it, and a second derivative no larger than both."""
    f, xs = closed(info, sample), arrays(sample)
    rng = np.random.default_rng(0)
    us = tuple(rng.choice([-1, 1], x.shape) * rng.uniform(0.5, 1.5, x.shape) for x in xs)

    def slope(*points: Any) -> list[Any]:
        nothing = 0 * sum(p.sum() for p in points)  # so that a constant depends on them, too
        return [y + nothing for y in tensors(mg.jvp(f, points, us)[1])]

    def orders(shift: float) -> list[list[np.ndarray]]:
        points = tuple(np.asarray(x + shift * u) for x, u in zip(xs, us))
        values, slopes = mg.jvp(f, points, us)
        curvatures = mg.jvp(slope, points, us)[1]
        return [[y.data for y in tensors(ys)] for ys in (values, slopes, curvatures)]

    step = 1e-4
    with np.errstate(all="ignore"):
        sides_of_orders = zip(orders(-step), orders(0), orders(step))
    for order, sides in enumerate(sides_of_orders):
        for left, at, right in zip(*sides, strict=True):
            if not np.isfinite(at).all():  # as the cube root at 0
                return
            slack = 20 * step * (1 + np.abs(left) + np.abs(right))
            low, high = np.minimum(left, right) - slack, np.maximum(left, right) + slack
            if order == 2:  # several kinks may be crossed from either side
                high = np.abs(left) + np.abs(right) + slack
                low = -high
            fits = (low <= at) & (at <= high)
            assert fits.all(), (
                f"{info.name}: derivative {order} at {xs} along {us} is {at}, "
                f"beside it {left} and {right}"
            )


def _sinc_gradient(g: Any, x: Any) -> Any:
    zero = x == 0
    return g * np.where(
        zero, 0, np.cos(x) / np.where(zero, 1, x) - np.sin(x) / np.where(zero, 1, x) ** 2
    )


def test_an_op_whose_second_derivative_is_wrong_at_zero_is_caught() -> None:
    """The constant branch of a `where` has the right derivative at 0, and not its derivative."""
    sinc = mg.custom_op(x=_sinc_gradient)(lambda x, /: np.sinc(x / np.pi))
    info = OpInfo(
        "sinc", sinc, lambda x: np.sinc(x / np.pi), lambda d: Sample([d.array(d.shape())])
    )

    @given(data=st.data())
    @settings(database=None, phases=[Phase.generate], max_examples=200)
    def check(data: Any) -> None:
        derivatives(info, info.samples(Draw(data.draw)))

    with pytest.raises(mg.GradcheckError):
        check()


def test_an_op_whose_second_derivative_is_wrong_at_its_kink_is_caught() -> None:
    """|x| x has the second derivative 2 sign(x)."""
    rule = lambda g, x: g * np.where(x == 0, 9 * x, 2 * np.abs(x))
    f = mg.custom_op(x=rule)(lambda x, /: np.abs(x) * x)
    info = OpInfo("f", f, lambda x: np.abs(x) * x, lambda d: Sample([d.array((3,), kinks=(0,))]))

    @given(data=st.data())
    @settings(database=None, phases=[Phase.generate])
    def check(data: Any) -> None:
        between_both_sides(info, info.samples(Draw(data.draw, at_kinks=True)))

    with pytest.raises(AssertionError, match="derivative 2"):
        check()


def awkward(x: np.ndarray, layout: str) -> np.ndarray:
    """The same values in a memory layout that is not the usual one, and read-only."""
    if layout == "transposed":
        y = np.array(x.T).T
    elif layout == "strided":
        y = np.zeros([2 * n for n in x.shape])[(..., *[slice(None, None, 2)] * x.ndim)]
        y[...] = x
    elif layout == "reversed":
        flipped = (..., *[slice(None, None, -1)] * x.ndim)
        y = np.array(x[flipped])[flipped]
    else:
        y = x.copy()
    y.flags.writeable = False
    return y


def memory(info: OpInfo, sample: Sample, data: Any, layout: str) -> None:
    """Wherever operands and cotangents lie, results are the same; no one's memory is written to or given away."""
    leaves, ys = run(info, sample)
    live = [y for y in ys if y.requires_grad]
    gs = cotangents(data, live)
    found = (
        mg.gradients(live, leaves, gs, allow_unused=True, retain_graph=True)
        if live
        else [None] * len(leaves)
    )
    in_another_layout(info, sample, layout, ys, gs, found)
    arrays_as_operands(info, sample, gs, found)
    if live:
        broadcast_cotangent(leaves, live)
    for y in live:
        rules_return_memory_of_their_own(y)


def in_another_layout(
    info: OpInfo, sample: Sample, layout: str, ys: list[Tensor], gs: list[np.ndarray], expected: Any
) -> None:
    """Read-only operands and cotangents in odd memory, which are as they were in the end."""
    operands, odd = (
        list(sample.operands),
        {i: awkward(sample.operands[i], layout) for i in floats(sample)},
    )
    for i, x in odd.items():
        operands[i] = Tensor(x, requires_grad=True)  # shares the memory
    again = tensors(info.call(*operands, **sample.options))
    for y, e in zip(again, ys):
        np.testing.assert_allclose(y.data, e.data, rtol=1e-12, atol=1e-14)
    live = [y for y in again if y.requires_grad]
    if live:
        leaves = [operands[i] for i in odd]
        found = mg.gradients(live, leaves, [awkward(g, layout) for g in gs], allow_unused=True)
        for g, e in zip(found, expected):
            assert (g is None) == (e is None)
            if g is not None:
                np.testing.assert_allclose(g.data, e.data, rtol=1e-10, atol=1e-12)
    for i, x in odd.items():
        np.testing.assert_array_equal(x, sample.operands[i])


def arrays_as_operands(info: OpInfo, sample: Sample, gs: list[np.ndarray], expected: Any) -> None:
    """With only one operand a tensor, and the others arrays, its gradient is the same."""
    for i, e in zip(floats(sample), expected):
        if e is None:
            continue
        operands = list(sample.operands)
        operands[i] = Tensor(operands[i], requires_grad=True)
        floating = [
            y for y in tensors(info.call(*operands, **sample.options)) if y.dtype.kind == "f"
        ]
        pairs = [(y, g) for y, g in zip(floating[-len(gs) :], gs) if y.requires_grad]
        (found,) = mg.gradients([y for y, _ in pairs], operands[i], [g for _, g in pairs])
        np.testing.assert_allclose(found.data, e.data, rtol=1e-10, atol=1e-12)


def broadcast_cotangent(leaves: list[Tensor], live: list[Tensor]) -> None:
    """A cotangent that is one number repeated, in memory of stride 0."""
    flat = [np.broadcast_to(np.float64(1.5), y.shape) for y in live]
    for y, g in zip(live, flat):
        y.backward(g, retain_graph=True)
    expected = mg.gradients(
        live, leaves, [g.copy() for g in flat], allow_unused=True, retain_graph=True
    )
    for x, e in zip(leaves, expected):
        assert (x.grad is None) == (e is None)
        if e is not None:
            assert x.grad.data.flags.writeable and x.grad.shape == x.shape
            np.testing.assert_allclose(x.grad.data, e.data, rtol=1e-10, atol=1e-12)


def rules_return_memory_of_their_own(y: Tensor) -> None:
    """A rule returns a new array or a view of g, and never something it was given to read."""
    stack: list[Node] = [y._node]
    while stack:
        node = stack.pop()
        for parent, rule, args in node.edges:
            stack.append(parent)
            g = np.random.default_rng(0).standard_normal(node.shape)
            before = g.copy()
            g.flags.writeable = False
            grad_buffers = [[None] * len(node.inputs)] if node.op.fills_buffers else []
            answer = rule(g, *args, *grad_buffers)
            np.testing.assert_array_equal(g, before)
            answers = [c for c in (answer if node.op.joint else [answer]) if c is not None]
            for c in answers:
                for value in args:
                    for array in value if isinstance(value, tuple) else (value,):
                        if isinstance(array, np.ndarray) and array.dtype.kind == "f":
                            assert not np.shares_memory(c, array)
            for k, c in enumerate(answers):
                for other in answers[:k]:
                    assert np.shares_memory(c, g) or not np.shares_memory(c, other)


def test_memory_is_freed() -> None:
    each(TABLE.values(), memory_is_freed)


def memory_is_freed(info: OpInfo) -> None:
    """No reference cycles: with the collector off, the graph goes when its last result goes."""

    class Fixed:
        """Stands in for hypothesis: the first choice is always taken, but shapes have sides of 2."""

        def draw(self, strategy: Any) -> Any:
            return next(self.values(strategy))

        def values(self, strategy: Any) -> Any:
            text = repr(strategy)
            if text.startswith("lists"):
                yield [2] * max(
                    1,
                    int(text.split("min_size=")[1].split(",")[0].rstrip(")"))
                    if "min_size=" in text
                    else 2,
                )
            elif text.startswith("integers"):
                yield 7
            else:
                yield strategy.elements[0] if hasattr(strategy, "elements") else False

    sample = info.samples(Draw(Fixed().draw))
    gc.disable()
    try:
        leaves, ys = run(info, sample)
        live = [y for y in ys if y.requires_grad]
        nodes = [weakref.ref(y._node) for y in live]
        y = None
        for y in live:
            y.backward(np.ones(y.shape), retain_graph=True)
        del ys, live, y
        assert all(node() is None for node in nodes)
    finally:
        gc.enable()


@paired
def test_same_operand_twice(name: str) -> None:
    f = OPS[name].function
    x = np.random.default_rng(0).uniform(0.5, 1.5, (3, 3)) + np.eye(3) * 3
    if name == "where" or OPS[name].options:
        return
    leaf = Tensor(x, requires_grad=True)
    f(leaf, leaf).backward(g := np.random.default_rng(1).standard_normal((3, 3)))
    a, b = Tensor(x, requires_grad=True), Tensor(x.copy(), requires_grad=True)
    f(a, b).backward(g)
    np.testing.assert_allclose(leaf.grad.data, a.grad.data + b.grad.data, rtol=1e-12)


def test_errors() -> None:
    def refuses(case: tuple[str, Callable[[], Any], type[Exception], str]) -> None:
        with pytest.raises(case[2], match=case[3]):
            case[1]()

    each([(info.name, *error) for info in TABLE.values() for error in info.errors], refuses)


# -- places where formulas fail ------------------------------------------------------------------------


@pytest.mark.parametrize("ord", [0.5, 1, 1.5, 2, 3, -0.5, -1, -2, np.inf, -np.inf])
@pytest.mark.parametrize("zeros", [1, 3])
def test_norm_of_zeros(ord: float, zeros: int) -> None:
    x = Tensor(np.array([0.0, 0.0, 0.0] if zeros == 3 else [2.0, 0.0, -3.0]), requires_grad=True)
    y = mg.norm(x, ord)
    np.testing.assert_allclose(y.data, np.linalg.norm(x.data, ord) if ord > 0 else 0, rtol=1e-14)
    y.backward()
    assert np.isfinite(x.grad.data).all() and x.grad.data[1] == 0


def test_correlations_of_one_have_their_curvature() -> None:
    """Also where rounding puts them a little above 1, to where they are brought back."""
    x, y = np.array([0.1, 0.7, 0.4]), Tensor(np.array([0.2, 1.4, 0.8]))
    for a in (x, x * 3, x + 0.1, x * 7 + 0.3):
        r = lambda v, y=y: np.corrcoef(v, y)[0, 1]
        exact = lambda v, y=y: (
            np.sum((v - v.mean()) * (y - y.mean())) / mg.norm(v - v.mean()) / mg.norm(y - y.mean())
        )
        assert r(a).item() <= 1
        np.testing.assert_allclose(
            mg.hessian(r)(a).data, mg.hessian(exact)(a).data, rtol=1e-6, atol=1e-8
        )


@pytest.mark.parametrize("f", [np.std, np.nanstd, mg.norm], ids=lambda f: f.__name__)
def test_what_has_a_tip_there_has_derivatives_of_0(f: Any) -> None:
    x = np.zeros(3) if f is mg.norm else np.full(3, 2.0)
    assert not mg.grad(f)(x).data.any() and not mg.hessian(f)(x).data.any()


def test_nan_and_infinity_keep_their_share() -> None:
    nan, inf = np.nan, np.inf
    for f, x, y, slopes in (
        (np.max, [1, nan, nan, 3], nan, [0, 0.5, 0.5, 0]),
        (np.min, [nan, 3], nan, [1, 0]),
        (np.median, [-inf, -1], -inf, [0.5, 0.5]),
        (np.median, [inf, 1, 2], 2, [0, 0, 1]),
        (np.median, [1e308, 1.5e308, 1.2e308], 1.2e308, [0, 0, 1]),
    ):
        t = Tensor(np.array(x, float), requires_grad=True)
        value = f(t)
        value.backward()
        assert value.item() == y or np.isnan(y)
        np.testing.assert_array_equal(t.grad.data, slopes)
    with np.errstate(invalid="ignore"):
        assert np.isnan(mg.grad(np.linalg.det)(np.array([[nan, 1.0], [1.0, 2.0]])).data[1, 1])


def test_quantiles_by_their_rank_at_an_element() -> None:
    """The slope of the line to the right, and at the last element of that to the left."""
    x = np.array([5.0, 1.0, 2.0])
    slopes = mg.elementwise_grad(lambda q: mg.quantile(x, q))(np.array([0.0, 0.25, 0.5, 0.75, 1.0]))
    np.testing.assert_allclose(slopes.data, [2, 2, 6, 6, 6])
    np.testing.assert_array_equal(
        mg.quantile([1.0, 2.0, np.inf], Tensor([0.5, 0.5], True)).data, [2, 2]
    )


def test_arctan2_at_the_origin() -> None:
    a, b = (Tensor(np.zeros(2), requires_grad=True) for _ in range(2))
    mg.arctan2(a, b).backward(np.ones(2))
    assert not a.grad.data.any() and not b.grad.data.any()


def test_remainder_of_large_numbers() -> None:
    a, b = np.array([1e17, -1e17, 1e30]), np.array([7.0, 1e-3, 113.0])
    np.testing.assert_array_equal(mg.remainder(a, b).data, np.remainder(a, b))


@pytest.mark.parametrize("f", [mg.softmax, mg.log_softmax, lambda x: mg.logsumexp(x, -1)])
def test_exponentials_of_integers_and_of_nothing(f: Any) -> None:
    x = np.array([[1, 2], [3, 5]])
    np.testing.assert_array_equal(f(x).data, f(x.astype(float)).data)
    empty = Tensor(np.zeros((3, 0)), requires_grad=True)
    f(empty).sum().backward()
    assert empty.grad.shape == (3, 0)


def test_matmul_over_an_axis_of_length_0() -> None:
    a, b = (Tensor(np.zeros(shape), requires_grad=True) for shape in ((2, 3, 0), (0, 4)))
    (a @ b).backward(np.ones((2, 3, 4)))
    assert a.grad.shape == (2, 3, 0) and b.grad.shape == (0, 4)
