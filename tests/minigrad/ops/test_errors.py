"""Errors of ops: the argument, the condition, the value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from minigrad.arguments import checked_count, checked_number
from minigrad.errors import listed, printable

ONE, TWO, THREE = np.ones(1), np.ones(2), np.ones(3)
MATRIX, CUBE = np.ones((2, 3)), np.ones((2, 2, 2))
HEADS = np.ones((1, 1, 2, 4))  # (N, h, L, d)


def attend(*shapes: tuple[int, ...], **options: Any) -> Any:
    """Call attention with a query, key and value of these shapes."""
    arrays = map(np.ones, shapes) if shapes else [HEADS] * 3
    return mg.scaled_dot_product_attention(*arrays, **options)


CASES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    # errors of NumPy, with the name and the arguments of the op
    (lambda: mg.reshape(MATRIX, 4), ValueError, r"reshape: .*\(2, 3\) float64, shape=\(4,\)"),
    (lambda: Tensor(MATRIX)[2], IndexError, r"getitem: index 2 is out of bounds.*\(2, 3\)"),
    (lambda: Tensor(MATRIX) @ 2.0, ValueError, "^matmul: the shapes do not match; got .*, b 2.0$"),
    (
        lambda: mg.split_heads(None, 1),
        TypeError,
        "^split_heads: .* no attribute 'shape'; got x None",
    ),
    (
        lambda: mg.softmax(TWO, 3),
        ValueError,
        r"^softmax: axis 3 is out of .*got x \(2,\) float64, axis=3$",
    ),
    # arrays
    (
        lambda: mg.reshape(MATRIX, 6, order="A"),
        ValueError,
        "reshape: order must be 'C' or 'F', got 'A'",
    ),
    (
        lambda: mg.linear_cross_entropy(MATRIX, MATRIX, [0, 1], reduction="none"),
        ValueError,
        "linear_cross_entropy: reduction must be 'mean' or 'sum', got 'none'",
    ),
    *[
        (
            lambda f=f: f(MATRIX, [0, 1], reduction="max"),
            ValueError,
            "reduction must be 'mean', 'sum' or 'none', got 'max'",
        )
        for f in (mg.cross_entropy, mg.nll_loss)
    ],
    (lambda: mg.gelu(TWO, approximate="exp"), ValueError, "gelu: approximate must be 'none' or"),
    (lambda: mg.masked_fill(TWO, TWO, 0), TypeError, "masked_fill: mask must be booleans"),
    (lambda: mg.stack([TWO, THREE]), ValueError, r"arrays must have one shape, got \[\(2,\), \(3"),
    (lambda: mg.diff(1.0), ValueError, "diff: x must have at least one axis, got a scalar"),
    (lambda: mg.interp(0.5, [], []), ValueError, "xp and fp must be vectors of one length, not 0"),
    (lambda: mg.interp(0.5, TWO, THREE), ValueError, "xp and fp must be vectors of one length"),
    (lambda: mg.interp(0.5, MATRIX, MATRIX), ValueError, "xp and fp must be vectors of one length"),
    (lambda: mg.take(1.0, 0, 1), ValueError, "take: axis 1 is out of bounds"),
    (lambda: mg.unfold(THREE, 0, 4), ValueError, "unfold: size must be from 1 to 3, got 4"),
    (lambda: mg.unfold(THREE, 0, 2, -1), ValueError, "unfold: step must be at least 1, got -1"),
    (lambda: mg.layer_norm(1.0), ValueError, "x must have rows, a last axis, got a scalar"),
    (lambda: mg.cross_entropy(1.0, 1), ValueError, "input must have classes on a last axis, got s"),
    (
        lambda: mg.split_heads(THREE, 1),
        ValueError,
        r"x must have shape \(N, L, h \* d\), got \(3,\)",
    ),
    (lambda: mg.split_heads(THREE[None, None], 0), ValueError, "num_heads must divide the last"),
    (lambda: mg.merge_heads(THREE), ValueError, r"x must have shape \(N, h, L, d\), got \(3,\)"),
    (
        lambda: mg.embedding(THREE[:, None], [0], 3),
        IndexError,
        "padding_idx must be from -3 to 2, ",
    ),
    (lambda: mg.expand(THREE, -1, 3), ValueError, r"shape must extend \(3,\) .* got \(-1, 3\)"),
    (lambda: mg.split(TWO, 0), ValueError, "sections must be at least 1, got 0"),
    (lambda: mg.split(THREE, -2), ValueError, "sections must be at least 1, got -2"),
    (lambda: mg.average(TWO, None, [1.0, -1.0]), ZeroDivisionError, "weights must not sum to zero"),
    (
        lambda: mg.average(MATRIX, 0, TWO[:, None]),
        ValueError,
        r"weights must have the shape \(2, 3\) of x, or be a vector .*, got shape \(2, 1\)",
    ),
    (
        lambda: mg.convolve([], TWO),
        ValueError,
        r"vectors that are not empty, got shapes \(0,\) and",
    ),
    (
        lambda: mg.convolve(TWO, []),
        ValueError,
        r"vectors that are not empty, got shapes \(2,\) and",
    ),
    *[
        (
            lambda mode=mode: mg.pad(THREE, 1, mode, reflect_type="odd"),
            ValueError,
            "pad: reflect_type must be 'even', got 'odd'; write np.concatenate",
        )
        for mode in ("reflect", "symmetric", "constant")
    ],
    *[
        (
            lambda mode=mode: mg.pad(THREE, 1, mode, constant_values=0),
            ValueError,
            f"unsupported keyword arguments for mode '{mode}'",
        )
        for mode in ("edge", "reflect", "symmetric", "wrap")
    ],
    (lambda: mg.block((TWO, TWO)), TypeError, "arrays is a tuple"),
    (
        lambda: mg.gradient(THREE, Tensor([0.0, 1.0, 3.0], requires_grad=True)),
        TypeError,
        "gradient: positions must not require gradients; divide differences of f",
    ),
    (lambda: mg.gradient(CUBE, 1.0, 1.0), TypeError, "for each of 3 axes, got 2"),
    (lambda: mg.gradient(MATRIX, 1.0, 1.0, 1.0), TypeError, "for each of 2 axes, got 3"),
    (lambda: mg.matrix_power(CUBE, 2.0), TypeError, "matrix_power: n must be an integer, got 2.0"),
    *[
        (
            lambda x=x: mg.matrix_power(x, 1),
            np.linalg.LinAlgError,
            "matrix_power: x must be square matrices, got shape",
        )
        for x in (TWO, MATRIX)
    ],
    *[
        (lambda x=x, mode=mode: mg.qr(x, mode), ValueError, "qr: mode must be 'reduced' or 'r'")
        for x, mode in ((MATRIX, "raw"), (MATRIX.T, "complete"))
    ],
    (lambda: mg.eigh(CUBE, None), ValueError, "eigh: UPLO must be 'L' or 'U'"),
    *[
        (lambda x=x: mg.expm(x), np.linalg.LinAlgError, "expm: x must be square matrices")
        for x in (MATRIX, TWO)
    ],
    (
        lambda: mg.solve_triangular(CUBE, TWO, 2),
        ValueError,
        "trans must be '0', '1', 'N' or 'T', got '2'",
    ),
    (
        lambda: mg.solve_triangular(np.diag([1, 0]), TWO),
        np.linalg.LinAlgError,
        "solve_triangular: the diagonal of a must not contain 0",
    ),
    (
        lambda: mg.cho_solve((np.diag([1, 0]), True), TWO),
        np.linalg.LinAlgError,
        "cho_solve: the diagonal of c must not contain 0",
    ),
    (
        lambda: mg.solve_banded((1, 1), THREE, THREE),
        ValueError,
        r"ab must have shape \(l \+ u \+ 1, n\) for l, u = 1, 1, got \(3,\)",
    ),
    (lambda: mg.quantile(TWO, True), ValueError, "quantile: q must be from 0 to 1, got True"),
    (
        lambda: np.where(TWO > 0, None, Tensor(TWO, requires_grad=True)),
        ValueError,
        "x and y must be given together",
    ),
    (
        lambda: mg.solve_banded((1, 1), MATRIX, TWO),
        ValueError,
        r"ab must have shape \(l \+ u \+ 1, n\) for l, u = 1, 1, got \(2, 3\)",
    ),
    (lambda: mg.moveaxis(MATRIX, 1.5, 0), TypeError, "source: axis must be an integer or integers"),
    *(
        (lambda a=a, b=b: mg.moveaxis(MATRIX, a, b), ValueError, "must have one length")
        for a, b in (([0, 1], [0]), (0, [0, 1]))
    ),
    # indices
    (lambda: mg.scatter(TWO, index=[0, 3], shape=(3,)), IndexError, "scatter: index 3 is out of"),
    (lambda: mg.index_select(MATRIX, 0, [[0]]), ValueError, "index must be a vector"),
    (lambda: mg.gather(MATRIX, 0, [0]), ValueError, "gather: indices must have 2 axes as x, got"),
    (lambda: mg.take_along_axis(MATRIX, [0], 0), ValueError, r"indices must have 2 axes .* \(1,\)"),
    (lambda: mg.take_along_axis(MATRIX, [[0]], None), ValueError, "must have 1 axis with axis=N"),
    (lambda: mg.select([], []), ValueError, "same length, at least 1, got 0 and 0"),
    (lambda: mg.select([TWO > 0] * 2, [TWO]), ValueError, "same length, at least 1, got 2 and 1"),
    (lambda: mg.select([TWO], [TWO]), TypeError, "select: condlist must contain booleans"),
    (lambda: mg.select([TWO > 0, TWO], [TWO] * 2), TypeError, "condlist must contain booleans"),
    (
        lambda: np.cov(Tensor(MATRIX, True), ddof=0.5),
        ValueError,
        "ddof must be an integer, got 0.5",
    ),
    *(
        (
            lambda a=a, v=v: mg.convolve(a, v),
            ValueError,
            "must be vectors that are not empty",
        )
        for a, v in ((MATRIX, TWO), (TWO, MATRIX), ([], TWO), (TWO, []))
    ),
    *(
        (
            lambda weights=weights, axis=axis: np.average(Tensor(MATRIX, True), axis, weights),
            ValueError,
            "average: weights must have the shape",
        )
        for weights, axis in (([1.0, 2.0], None), ([1.0, 2.0], (0, 1)), ([1.0, 2.0], 1))
    ),
    (
        lambda: np.linalg.pinv(Tensor(MATRIX, True), 1e-3, rtol=1e-3),
        ValueError,
        "only one of rcond and rtol must be given, got both",
    ),
    (
        lambda: np.clip(Tensor(TWO, True), 0, 1, min=0),
        ValueError,
        "np.clip: only one pair of a_min, a_max and min, max must be given",
    ),
    (
        lambda: np.split(Tensor(THREE, True), 2),
        ValueError,
        r"split: sections must divide the length 3, got 2; .* split\(x, \[2\]\) splits before",
    ),
    (
        lambda: mg.vmap(lambda x: np.linalg._umath_linalg.det(x))(CUBE),
        TypeError,
        "det has no batching rule",
    ),
    (
        lambda: mg.vmap(lambda x: np.argmax(x, keepdims=True))(MATRIX),
        TypeError,
        "np.argmax of all axes must not have keepdims=True",
    ),
    (lambda: mg.cross(TWO, THREE), ValueError, r"cross: a and b must have 3 elements.*\(2,\)"),
    (lambda: mg.top_k(THREE, 4), ValueError, "top_k: k must be from 1 to 3, got 4"),
    (lambda: mg.top_k(THREE, 2.0), ValueError, "top_k: k must be from 1 to 3, got 2.0"),
    (lambda: mg.one_hot([0, 3], 3), IndexError, "one_hot: indices must be from 0 to 2, got 0 to 3"),
    *(
        (
            lambda index=index: mg.einsum(np.ones((2, 2)), [0, index]),
            TypeError,
            "einsum: subscripts must be a string, or lists of integers from 0 to 51",
        )
        for index in (52, -1, "i", [0])
    ),
    (lambda: mg.one_hot([0], -2), IndexError, "one_hot: indices must be from 0 to -3, got 0 to 0"),
    # reductions
    (
        lambda: mg.quantile(np.ones((0, 2)), 0.5, 0),
        ValueError,
        "quantile: x must have elements over axis 0",
    ),
    *[
        (lambda args=args: mg.cov(*args), ValueError, "cov: m must have 1 or 2 axes, got shape")
        for args in ([CUBE], [TWO, CUBE])
    ],
    (lambda: mg.cross(TWO, TWO), ValueError, r"cross: a and b must have 3 elements.*\(2,\)"),
    (lambda: mg.cross(THREE, TWO), ValueError, r"cross: a and b must have 3 elements.*\(2,\)"),
    # losses
    (lambda: mg.smooth_l1_loss(1.0, 2.0, beta=-1), ValueError, "beta must be .*at least 0, got -1"),
    (
        lambda: mg.binary_cross_entropy(np.array([2.0, -1]), TWO),
        ValueError,
        "input must be probabilities from 0 to 1, got -1.0 to 2.0; for logits write",
    ),
    (lambda: mg.mse_loss(np.ones((2, 1)), TWO), ValueError, r"one shape, got \(2, 1\) and \(2,\)"),
    (
        lambda: mg.nll_loss(np.ones((2, 3, 4)), np.zeros((2, 4), int)),
        ValueError,
        r"on the last axis, not on axis 1 as in PyTorch, got .*; write moveaxis\(logits, 1, -1\)",
    ),
    (lambda: mg.cross_entropy(MATRIX, [0, 3]), IndexError, "from 0 to 2 or -100, got 0 to 3"),
    (
        lambda: mg.cross_entropy(MATRIX, [0]),
        ValueError,
        r"target must have shape \(2,\), got \(1,\)",
    ),
    (lambda: mg.cross_entropy(MATRIX, [0.0, 1]), TypeError, "target must be integers, got dtype f"),
    (
        lambda: mg.cross_entropy(MATRIX, [False, True]),
        TypeError,
        "must be integers, got dtype bool",
    ),
    (
        lambda: mg.cross_entropy(MATRIX, [0, 1], reduction="max"),
        ValueError,
        "reduction must be 'mean', 'sum' or 'none'",
    ),
    (
        lambda: mg.arctan2(1.0, None),
        TypeError,
        "arctan2: .* has no attribute .*; got a 1.0, b None",
    ),
    # kernels
    (
        lambda: mg.linear(MATRIX, 1.5),
        ValueError,
        r"linear: .*; got x \(2, 3\) float64, weight \(\) float64",
    ),
    (
        lambda: mg.vmap(lambda x: mg.layer_norm(x, weight=TWO))(MATRIX),
        ValueError,
        r"layer_norm: weight must have shape \(3,\), got \(2,\)",
    ),
    (lambda: mg.linear(1.5, THREE), ValueError, r"x and weight must have shapes .*weight \(3,\)"),
    (lambda: mg.linear(MATRIX, CUBE[0]), ValueError, r"x and weight must have shapes .*x \(2, 3\)"),
    (lambda: mg.dropout(TWO, 1.0), ValueError, "p must be .* at least 0, less than 1, got 1.0"),
    (lambda: mg.embedding(MATRIX, [0, 3]), IndexError, "indices must be from 0 to 1, got 0 to 3"),
    (lambda: mg.embedding(MATRIX, [0.0]), TypeError, "indices must be integers, got dtype float"),
    (lambda: mg.split_heads(CUBE, 3), ValueError, "num_heads must divide the last axis of x, got"),
    (lambda: attend((1, 3, 2, 4), (1, 2, 2, 4), (1, 2, 2, 4)), ValueError, "h_kv dividing h, got"),
    (
        lambda: attend((1, 1, 2, 4, 1), (1, 1, 2, 4, 1), (1, 1, 2, 4)),
        ValueError,
        "must have shapes",
    ),
    (lambda: attend(mask=np.ones((2, 2))), TypeError, "mask must be booleans, True = may attend"),
    (
        lambda: attend(mask=np.ones((2, 2, 2), bool)),
        ValueError,
        r"mask must have two axes .* got shape \(2, 2, 2\)\. Write mask\[:, None\] for",
    ),
    (lambda: attend((1, 2, 3, 4), *[(1, 0, 3, 4)] * 2), ValueError, r"h_kv dividing h, got \(1, 2"),
    (lambda: attend(mask=np.ones(2, bool)), ValueError, r"mask must have two .* got shape \(2,\)"),
    (lambda: attend(bias=CUBE), ValueError, r"bias must broadcast to .*, got \(2, 2, 2\)"),
]


@pytest.mark.parametrize("call, error, message", CASES, ids=[message for *_, message in CASES])
def test_op_called_wrongly_names_the_argument(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("padding_idx", range(-3, 3))
def test_padding_index_counts_from_either_end(padding_idx: int) -> None:
    expected = np.ones((3, 2))
    expected[padding_idx] = 0
    for block in (contextlib.nullcontext, mg.use_definitions):
        weight = Tensor(np.arange(1.0, 7.0).reshape(3, 2), requires_grad=True)
        with block():
            y = mg.embedding(weight, [2, 0, 1], padding_idx=padding_idx)
        y.sum().backward()
        np.testing.assert_array_equal(y.data, weight.data[[2, 0, 1]])
        np.testing.assert_array_equal(weight.grad.data, expected)


@pytest.mark.parametrize(("text", "shown"), [
    ("a" * 59, "a" * 59), ("a" * 60, "a" * 60), ("a" * 61, "a" * 60 + "..."), ("a\tb\x1b\u202e", r"a\tb\x1b\u202e"),
    ("é" * 60 + "\n", "é" * 60 + "..."), (3, "3"),
])  # fmt: skip
def test_text_in_a_message_is_one_line_of_at_most_60_characters(text: Any, shown: str) -> None:
    assert printable(text) == shown
    assert listed([text]) == printable(text, 100)


@pytest.mark.parametrize(("count", "more"), [(0, ""), (1, ""), (8, ""), (9, " and 1 more")])
def test_names_in_a_message_are_the_first_8_in_order(count: int, more: str) -> None:
    assert listed(reversed(range(count))) == ", ".join(map(str, range(min(count, 8)))) + more


@pytest.mark.parametrize("name", ["sum", "mean", "var", "max", "min"])
@pytest.mark.parametrize("axis", [[0, 1], "0", 1.0], ids=repr)
def test_axis_that_is_no_integer_is_a_type_error(name: str, axis: Any) -> None:
    """Call with and without the options that only NumPy's forms have."""
    for options in ({}, {"keepdims": True}, {"where": True}):
        if "where" not in options or name in ("sum", "mean", "var"):
            with pytest.raises(TypeError, match="integer"):
                getattr(mg, name)(np.ones((2, 3)), axis=axis, **options)


@pytest.mark.parametrize(
    "value",
    [2, np.int8(2), np.uint64(2), 2.0, 2.5, np.float32(2), True, np.True_, "2", None, 0, -1],
)
def test_checked_numbers_are_whole_or_real_and_no_booleans(value: Any) -> None:
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and value is not True
    is_whole = is_number and isinstance(value, (int, np.integer))
    for check, is_right, kind in (
        (checked_count, is_whole, int),
        (checked_number, is_number, float),
    ):
        if is_right and value >= 1:
            result = check("f", "n", value, 1)
            assert type(result) is kind and result == value
            continue
        error = ValueError if is_right else TypeError
        with pytest.raises(error, match="^f: n must be "):
            check("f", "n", value, 1)


FREE = {(0, 1), (0, 2), (2, 3)}
"""Heads and length of a query, and width of a value, by operand and axis; 4 heads are a multiple."""


@pytest.mark.parametrize(("operand", "axis"), [(i, j) for i in range(3) for j in range(4)])
@pytest.mark.parametrize("length", [1, 4])
def test_attention_needs_shapes_that_fit_in_each_axis(operand: int, axis: int, length: int) -> None:
    shapes = [[2, 4, 3, 6], [2, 2, 5, 6], [2, 2, 5, 7]]
    shapes[operand][axis] = length
    if (operand, axis) in FREE and (axis, length) != (1, 1):
        q, v = shapes[0], shapes[2]
        assert attend(*map(tuple, shapes)).shape == (2, q[1], q[2], v[3])
        return
    with pytest.raises(ValueError, match="query, key and value must have shapes"):
        attend(*map(tuple, shapes))
    for missing in (shapes[operand][1:], [1, *shapes[operand]]):
        with pytest.raises(ValueError, match="query, key and value must have shapes"):
            attend(*[tuple(missing if i == operand else s) for i, s in enumerate(shapes)])
