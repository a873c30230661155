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
    return custom_op(x=lambda g: (square @ g).T)(lambda x: x @ square.T), [rng.standard_normal((3, 3))]


def _transposed_product() -> Any:
    s = rng.standard_normal((3, 3))
    return custom_op(a=lambda g, b: g @ b, b=lambda g, a: a.T @ g)(lambda a, b: a @ b), [s, s.T @ s + A[:, :3]]


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
    with pytest.raises(TypeError, match="gradcheck: input 0 is float32; numerical derivatives need float64"):
        mg.gradcheck(np.sin, np.ones(2, np.float32))
    with pytest.raises(ValueError, match="gradcheck: expected at least one input of floating dtype"):
        mg.gradcheck(np.sin, np.ones(2, int))


# -- custom ops --------------------------------------------------------------------------------------


def test_custom_op_with_options_shapes_and_result() -> None:
    @custom_op(x=lambda g, y, x_shape, scale: (g * y * scale).reshape(x_shape))
    def scaled_exp(x, /, scale=2.0):  # type: ignore[no-untyped-def]
        """exp(scale x)."""
        return np.exp(x * scale)

    assert scaled_exp.__doc__ == "exp(scale x)."
    assert mg.gradcheck(scaled_exp, A) and mg.gradgradcheck(scaled_exp, A)
    assert mg.gradcheck(lambda x: scaled_exp(x, scale=0.5), A) and mg.gradcheck(lambda x: scaled_exp(x, 0.5), A)
    assert repr(scaled_exp(Tensor([0.0], True))).endswith("op=scaled_exp)")


def test_custom_op_with_one_rule_for_all() -> None:
    @custom_op(vjp=lambda g, a, b, needs: (g * b if needs[0] else None, g * a if needs[1] else None))
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

    with pytest.raises(TypeError, match=r"f: rules for \['w'\], which are no operands; the operands are \('x',\)"):

        @custom_op(w=lambda g: g)
        def f(x, /):  # type: ignore[no-untyped-def]
            return x
