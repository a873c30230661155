"""The checker is checked: it accepts right gradients and rejects each kind of wrong one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import GradcheckError, Tensor, custom_op

rng = np.random.default_rng(0)
A, B = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))


def _missing_factor() -> Any:
    return custom_op(x=lambda g, x: g * x)(lambda x: x * x), [A]


def _missing_sum() -> Any:
    return custom_op(x=lambda g, x: g * np.ones_like(x))(lambda x: np.mean(x)), [A]


def _missing_broadcast_reduction() -> Any:
    def take_first(g: Any, b: Any) -> Any:
        return g[:1]  # one row of the gradient in place of the sum of all

    return custom_op(a=lambda g: g, b=take_first)(lambda a, b: a + b), [A, A[:1]]


def _overwritten_repeated_index() -> Any:
    index = np.array([0, 1, 1, 2])

    def put(g: Any, x: Any) -> Any:
        y = np.zeros_like(x)
        y[index] = g
        return y

    return custom_op(x=put)(lambda x: x[index]), [A]


def _off_by_one_element() -> Any:
    def shifted(g: Any, x: Any) -> Any:
        return np.roll(g * np.cos(x), 1)

    return custom_op(x=shifted)(lambda x: np.sin(x)), [A]


def _one_wrong_element() -> Any:
    def almost(g: Any, x: Any) -> Any:
        y = g * np.cos(x)
        y[-1, -1] *= 1.001
        return y

    return custom_op(x=almost)(lambda x: np.sin(x)), [A]


def _transposed() -> Any:
    square = rng.standard_normal((3, 3))
    return custom_op(x=lambda g: (square @ g).T)(lambda x: x @ square.T), [
        rng.standard_normal((3, 3))
    ]


def _transposed_product() -> Any:
    s = rng.standard_normal((3, 3))
    return custom_op(a=lambda g, b: g @ b, b=lambda g, a: a.T @ g)(lambda a, b: a @ b), [
        s,
        s.T @ s + A[:, :3],
    ]


def _softmax_by_ones() -> Any:
    """A rule that is right only for a cotangent of ones, for which every softmax rule gives 0."""

    def soft(x: Any) -> Any:
        e = np.exp(x)
        return e / e.sum(-1, keepdims=True)

    return custom_op(x=lambda g, y: g * y - y)(soft), [A]


def _wrong_sign_of_one_operand() -> Any:
    return custom_op(a=lambda g: g, b=lambda g: g)(lambda a, b: a - b), [A, A]


def _swapped_operands() -> Any:
    return custom_op(a=lambda g, a: g * a, b=lambda g, b: g * b)(lambda a, b: a * b), [A, A * 2]


def _zero() -> Any:
    return custom_op(x=lambda g: g * 0)(lambda x: x * 3), [A]


WRONG = [
    _missing_factor, _missing_sum, _missing_broadcast_reduction, _overwritten_repeated_index, _off_by_one_element,
    _one_wrong_element, _transposed, _transposed_product, _softmax_by_ones, _wrong_sign_of_one_operand,
    _swapped_operands, _zero,
]  # fmt: skip


@pytest.mark.parametrize("make", WRONG, ids=lambda f: f.__name__.strip("_"))
def test_wrong_gradients_are_rejected(make: Any) -> None:
    f, inputs = make()
    with pytest.raises(GradcheckError):
        mg.gradcheck(f, inputs)
    assert mg.gradcheck(f, inputs, raise_exception=False) is False
    if make is not _one_wrong_element:  # one part in 1,000 of one element, along a random direction
        with pytest.raises(GradcheckError):
            mg.gradcheck(f, inputs, elementwise=False)


def test_right_gradients_are_accepted() -> None:
    assert mg.gradcheck(lambda a, b: np.tanh(a @ b), [A, B])
    assert mg.gradgradcheck(lambda a, b: np.tanh(a @ b), [A, B])
    assert mg.gradcheck(lambda a, b: np.sin(a @ b), [A, B], complex_step=True, rtol=1e-13)
    assert mg.gradcheck(lambda a: (a * 2, a.sum()), A)
    assert mg.gradcheck(lambda a, i: a[i], [A, np.array([0, 0, 2])])


def test_wrong_second_derivatives_are_rejected() -> None:
    """A rule that steps out of the graph is right once, and has no second derivative."""

    def detached(g: Any, x: Any) -> Any:
        return g * np.cos(x.data if isinstance(x, Tensor) else x)

    f = custom_op(x=detached)(lambda x: np.sin(x))
    assert mg.gradcheck(f, A)
    with pytest.raises(GradcheckError, match="gradient of the gradient of"):
        mg.gradgradcheck(f, A)


def test_the_report_shows_op_inputs_expected_and_got() -> None:
    @custom_op(x=lambda g, x: g * x)
    def squared(x, /):  # type: ignore[no-untyped-def]
        return x * x

    with pytest.raises(GradcheckError) as error:
        mg.gradcheck(squared, np.array([1.5, 2.0]))
    text = str(error.value)
    assert "gradient of squared, for inputs of shapes (2,):" in text
    assert "input 0, element (0,) (2 of 2 are wrong): expected" in text
    assert "expected gradient" in text and "input 0 =\n[1.5 2. ]" in text


def test_errors() -> None:
    with pytest.raises(
        TypeError, match="gradcheck: input 0 is float32; numerical derivatives need float64"
    ):
        mg.gradcheck(np.sin, np.ones(2, np.float32))
    with pytest.raises(
        ValueError, match="gradcheck: expected at least one input of floating dtype"
    ):
        mg.gradcheck(np.sin, np.ones(2, int))


# -- custom ops --------------------------------------------------------------------------------------


def test_custom_op_with_options_shapes_and_result() -> None:
    @custom_op(x=lambda g, y, x_shape, scale: (g * y * scale).reshape(x_shape))
    def scaled_exp(x, /, scale=2.0):  # type: ignore[no-untyped-def]
        """exp(scale x)."""
        return np.exp(x * scale)

    assert scaled_exp.__doc__ == "exp(scale x)."
    assert mg.gradcheck(scaled_exp, A) and mg.gradgradcheck(scaled_exp, A)
    assert mg.gradcheck(lambda x: scaled_exp(x, scale=0.5), A) and mg.gradcheck(
        lambda x: scaled_exp(x, 0.5), A
    )
    assert repr(scaled_exp(Tensor([0.0], True))).endswith("op=scaled_exp)")


def test_custom_op_with_one_rule_for_all() -> None:
    @custom_op(
        vjp=lambda g, a, b, needs: (g * b if needs[0] else None, g * a if needs[1] else None)
    )
    def product(a, b, /):  # type: ignore[no-untyped-def]
        return a * b

    assert mg.gradcheck(product, [A, A + 1]) and mg.gradgradcheck(product, [A, A + 1])
    assert mg.gradcheck(lambda a: product(a, A), [A])


def test_custom_op_keeps_only_what_its_rules_name() -> None:
    @custom_op(a=lambda g, b: g * b, b=lambda g, a: g * a)
    def product(a, b, /):  # type: ignore[no-untyped-def]
        return a * b

    x, c = Tensor(A, True), Tensor(A + 1)
    (edge,) = product(x, c)._node.edges
    assert len(edge[2]) == 1 and edge[2][0] is c.data


def test_custom_op_that_hands_out_what_it_reads_does_not_share_it() -> None:
    c = np.ones(3)
    f = custom_op(a=lambda g, b: b)(lambda a, b: (a * b).sum())
    x = Tensor(np.ones(3), True)
    f(x, c).backward()
    assert not np.shares_memory(x.grad.data, c)


def test_custom_op_refuses_unknown_names() -> None:
    with pytest.raises(TypeError, match=r"f: a rule reads \['z'\]; it can read y, x"):

        @custom_op(x=lambda g, z: g)
        def f(x, /):  # type: ignore[no-untyped-def]
            return x

    with pytest.raises(
        TypeError, match=r"f: rules for \['w'\], which are no operands; the operands are \('x',\)"
    ):

        @custom_op(w=lambda g: g)
        def f(x, /):  # type: ignore[no-untyped-def]
            return x


# -- gradients that get lost, and functions that are none ------------------------------------------------


def _lost_as_array() -> Any:
    return lambda x: np.bincount([0, 0, 1], weights=x.detach()), [np.arange(1.0, 4.0)]


def _lost_in_one_of_two() -> Any:
    return lambda x: (x * 2, Tensor(x.data.sum() ** 2)), [A]


def _lost_as_a_number() -> Any:
    return lambda x: (x * x.sum().item()).sum(), [A]


def _imaginary_part_dropped() -> Any:
    """|z x| of a complex z, with the rule of a real one."""
    z = 0.6 + 0.8j
    return custom_op(x=lambda g, x: g * np.sign(x) * z.real)(lambda x: np.abs(z * x)), [A]


def _gradient_of_masked_entries() -> Any:
    where = A > 0

    def log(x: Any) -> Any:
        return np.log(x, where=where, out=np.zeros_like(x))

    return custom_op(x=lambda g, x: g / x)(log), [np.abs(A) + 1]


def _changes_its_input() -> Any:
    def f(x: Any) -> Any:
        y = (x**3).sum()
        np.copyto(x.data, 5.0)
        return y

    return f, [A.copy()]


def _random() -> Any:
    return lambda x: mg.dropout(x, 0.5).sum(), [A]


def _length_one_taken_for_the_whole() -> Any:
    """A broadcast label of length 1: the gradient goes to the first element alone."""

    def first(g: Any, b: Any) -> Any:
        return (g[:, None] * A[:3, :1])[:1].sum(1)

    return custom_op(b=first)(lambda b: (A[:3, :1] * b).sum(1)), [np.ones(1)]


@pytest.mark.parametrize(
    "make",
    [
        _lost_as_array,
        _lost_in_one_of_two,
        _lost_as_a_number,
        _imaginary_part_dropped,
        _gradient_of_masked_entries,
        _changes_its_input,
        _random,
        _length_one_taken_for_the_whole,
    ],
    ids=lambda f: f.__name__.strip("_"),
)
@pytest.mark.parametrize("elementwise", [True, False])
def test_lost_gradients_and_side_effects_are_rejected(make: Any, elementwise: bool) -> None:
    f, inputs = make()
    with pytest.raises(GradcheckError):
        mg.gradcheck(f, inputs, elementwise=elementwise)


def test_the_backward_that_fails_is_an_error() -> None:
    def fails(g: Any, x: Any) -> Any:
        raise ValueError("no gradient of an empty row")

    with pytest.raises(ValueError, match="no gradient of an empty row"):
        mg.gradcheck(custom_op(x=fails)(lambda x: x * 2), [np.ones((2, 0))])


def test_a_constant_that_hides_a_dependence_is_found_by_the_second_derivative() -> None:
    """The rule of power with a test on the exponent: right at first order, also at integers."""

    def by_base(g: Any, a: Any, b: Any) -> Any:
        return g * (b * a ** np.where(b == 0, 1, b - 1))

    power = custom_op(a=by_base, b=lambda g, y, a: g * y * np.log(a))(lambda a, b: a**b)
    inputs = [np.array([2.0, 3.0]), np.array([0.0, 1.0])]
    assert mg.gradcheck(power, inputs)
    with pytest.raises(GradcheckError, match="gradient of the gradient of"):
        mg.gradgradcheck(power, inputs)
    assert mg.gradgradcheck(np.power, inputs)
    other = custom_op(
        a=lambda g, a, b: g * b * a ** (b - 1),
        b=lambda g, y, a: g * y * np.log(np.where(a == 1, 1, a)),
    )
    power = other(lambda a, b: a**b)
    inputs[0] = np.array([1.0, 3.0])
    assert mg.gradcheck(power, inputs)
    with pytest.raises(GradcheckError, match="gradient of the gradient of"):
        mg.gradgradcheck(power, inputs)


def test_constant_results_need_no_gradient() -> None:
    assert mg.gradcheck(lambda x: (x.sum(), np.floor(x), 3.0, np.argmax(x)), A)
    assert mg.gradcheck(np.floor, A) and mg.gradgradcheck(np.floor, A)
