"""`gradcheck` accepts right gradients and rejects each kind of wrong gradient; custom ops."""

from __future__ import annotations

import itertools
from functools import partial, update_wrapper
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad import GradcheckError, GradientError, Tensor, custom_op

rng = np.random.default_rng(0)
A, B = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
INDEX = np.array([0, 1, 1, 2])


def overwritten(g: Any, x: Any) -> Any:
    """Write, and not add, the gradient of repeated indices."""
    y = np.zeros_like(x)
    y[INDEX] = g
    return y


def almost_cos(g: Any, x: Any) -> Any:
    """Return the derivative of the sine, wrong by 0.1 % in the last element."""
    y = g * np.cos(x)
    y[-1, -1] *= 1.001
    return y


def softmax(x: Any) -> Any:
    e = np.exp(x)
    return e / e.sum(-1, keepdims=True)


WRONG: dict[str, tuple[Any, list[np.ndarray]]] = {
    "factor 1.0001": (custom_op(x=lambda g, x: 1.0001 * g * np.cos(x))(lambda x: np.sin(x)), [A]),
    "one row of a broadcast": (
        custom_op(a=lambda g: g, b=lambda g: g[:1])(lambda a, b: a + b),
        [A, A[:1]],
    ),
    "repeated index overwritten": (custom_op(x=overwritten)(lambda x: x[INDEX]), [A]),
    "one element of a thousandth": (custom_op(x=almost_cos)(lambda x: np.sin(x)), [A]),
    "right only for a cotangent of ones": (custom_op(x=lambda g, y: g * y - y)(softmax), [A]),
    "operands exchanged": (
        custom_op(a=lambda g, a: g * a, b=lambda g, b: g * b)(lambda a, b: a * b),
        [A, A * 2],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_gradcheck_of_wrong_gradient_rejects_it(name: str) -> None:
    f, inputs = WRONG[name]
    with pytest.raises(GradcheckError):
        mg.gradcheck(f, inputs)
    if "thousandth" not in name:  # too little along a random direction
        assert mg.gradcheck(f, inputs, elementwise=False, raise_exception=False) is False


@given(st.lists(st.integers(1, 3), max_size=3).map(tuple), st.data())
def test_gradcheck_rejects_any_gradient_with_one_wrong_element(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    """Accept the gradient if no element is wrong."""
    x = np.random.default_rng(data.draw(st.integers(0, 99))).uniform(0.5, 2, shape)
    error = data.draw(st.sampled_from([0.0, 0.01, -0.01, 1.0, -1.0, -2.0]))
    factors = np.ones(shape)
    factors.flat[data.draw(st.integers(0, x.size - 1))] += error
    f = custom_op(x=lambda g, x: g * factors / x)(lambda x: np.log(x))
    assert mg.gradcheck(f, [x], raise_exception=False) is (error == 0)


@pytest.mark.parametrize(
    "f, inputs",
    [
        (lambda a, b: (np.tanh(a @ b), a.sum()), [A, B]),
        (lambda a, i: a[i], [A, np.array([0, 0, 2])]),
        (lambda x: (x.sum(), np.floor(x), 3.0, np.argmax(x)), A),
    ],
    ids=["two inputs and results", "index", "constants"],
)
def test_gradcheck_and_gradgradcheck_accept_right_gradients(f: Any, inputs: Any) -> None:
    assert mg.gradcheck(f, inputs) and mg.gradgradcheck(f, inputs)


@pytest.mark.parametrize("elementwise", [True, False])
def test_gradcheck_compares_large_and_small_gradients_relatively(elementwise: bool) -> None:
    cube = custom_op(x=lambda g, x: g * (3 + 1e-9) * x**2)(lambda x: x**3)
    assert mg.gradcheck(lambda x: 1e7 * cube(x), A, elementwise=elementwise)
    for options in ({"rtol": 0.0}, {"rtol": 1e-12}):
        assert not mg.gradcheck(
            lambda x: 1e7 * cube(x), A, elementwise=elementwise, raise_exception=False, **options
        )


@pytest.mark.parametrize("elementwise", [True, False])
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize(("atol", "rtol"), [(1e-5, 0.0), (0.0, 1e-3), (1e-5, 1e-3)])
def test_gradcheck_accepts_errors_up_to_its_tolerances(
    elementwise: bool, size: float, atol: float, rtol: float
) -> None:
    options: Any = {"elementwise": elementwise, "directions": int(not elementwise)}
    weight = abs(np.random.default_rng(0).standard_normal())  # of the result
    for part in (0.9, 1.1):
        slope = np.full((), size + part * (atol / weight + rtol * size))
        line = custom_op(x=lambda g, b: g * b, b=None)(lambda x, b: x * size)
        x = Tensor(0.5, requires_grad=True)
        found = mg.gradcheck(
            line, [x, slope], atol=atol, rtol=rtol, raise_exception=False, **options
        )
        assert found == (part < 1)


@pytest.mark.parametrize("elementwise", [True, False])
def test_gradcheck_of_a_result_that_is_nan_shows_the_gradient(elementwise: bool) -> None:
    with pytest.raises(GradcheckError, match="derivative .* must be nan, got nan"):
        mg.gradcheck(lambda x: x * np.nan, A, directions=1 - elementwise, elementwise=elementwise)


@pytest.mark.parametrize("check", [mg.gradcheck, mg.gradgradcheck])
def test_gradcheck_takes_its_directions_from_its_seed(check: Any) -> None:
    def points(**options: Any) -> list[Any]:
        seen: list[Any] = []

        def square(x: Any) -> Any:
            seen.append(mg.as_tensor(x).data.tolist())
            return x * x

        assert check(square, np.ones(2), elementwise=False, **options)
        return seen

    assert points() == points(seed=0) != points(seed=1) == points(seed=1)


def test_gradcheck_of_a_function_without_gradients_accepts_it() -> None:
    assert mg.gradcheck(np.floor, A + 0.5) and mg.gradgradcheck(lambda x: mg.argmax(x), A)
    assert mg.gradcheck(lambda a, n, ids: n * a[ids], [A, 2, [1, 0]])
    assert mg.gradcheck(np.sin, np.ones((2, 0))) and mg.gradgradcheck(np.sin, np.ones((2, 0)))


def test_gradcheck_with_complex_step_has_no_truncation_error() -> None:
    assert mg.gradcheck(lambda a, b: np.sin(a @ b), [A, B], complex_step=True, rtol=1e-13)


def test_gradcheck_rejects_a_kink_that_no_single_element_shows() -> None:
    """At 0, the slopes of the cube root of x² y are 0 along both axes, but not in other directions."""
    f = custom_op(x=lambda g, x: 0 * x)(lambda x: np.cbrt(x[0] ** 2 * x[1]))
    for elementwise in (True, False):
        assert not mg.gradcheck(f, [np.zeros(2)], elementwise=elementwise, raise_exception=False)


@pytest.mark.parametrize("tracked", [*itertools.product([None, False, True], repeat=2)])
def test_gradcheck_checks_the_tensors_that_require_gradients_or_else_all(tracked: Any) -> None:
    """Use an op whose rule of `a` is wrong. Where `tracked` is None, the input is an array."""
    f = custom_op(a=lambda g, b: 2 * g * b, b=lambda g, a: g * a)(lambda a, b: a * b)
    inputs = [x if kind is None else Tensor(x, kind) for x, kind in zip((A, A + 1), tracked)]
    only_b = True in tracked and tracked[0] is not True
    assert mg.gradcheck(f, inputs, raise_exception=False) is only_b


def changes_its_input(x: Any) -> Any:
    """Overwrite the argument after its use."""
    y = (x * 2).sum()
    np.copyto(x.data, 5.0)
    return y


LOST: dict[str, Any] = {
    "one of two results": lambda x: (x * 2, Tensor(x.data.sum() ** 2)),
    "number": lambda x: (x * x.data.sum()).sum(),
    "imaginary part": custom_op(x=lambda g, x: g * np.sign(x) * 0.6)(
        lambda x: np.abs((0.6 + 0.8j) * x)
    ),
    "input changed": changes_its_input,
    "random": lambda x: mg.dropout(x, 0.5).sum(),
}


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("elementwise", [True, False])
def test_gradcheck_of_lost_gradient_or_side_effect_rejects_it(name: str, elementwise: bool) -> None:
    with pytest.raises(GradcheckError):
        mg.gradcheck(LOST[name], A.copy(), elementwise=elementwise)


def test_gradcheck_raises_the_error_of_a_rule() -> None:
    with pytest.raises(ZeroDivisionError):
        mg.gradcheck(custom_op(x=lambda g: 1 / 0)(lambda x: x * 2), [np.ones((2, 0))])


def test_gradcheck_error_shows_op_input_and_both_gradients() -> None:
    @custom_op(x=lambda g, x: g * x)
    def squared(x, /):  # type: ignore[no-untyped-def]
        return x * x

    message = (
        r"(?s)wrong gradient of squared, for inputs of shapes \(2,\):.*by element \(0,\) of "
        r"input 0 must be 0.377.*\(2 of 2 elements .*numerical gradient.*input 0 =\n\[1.5 2. \]"
    )
    with pytest.raises(GradcheckError, match=message):
        mg.gradcheck(squared, np.array([1.5, 2.0]))


def test_gradcheck_refuses_float32_and_integers() -> None:
    with pytest.raises(TypeError, match="inputs must be float64, .* got float32 for input 0"):
        mg.gradcheck(np.sin, np.ones(2, np.float32))
    with pytest.raises(TypeError, match="the function must return float64, .* got float32"):
        mg.gradcheck(lambda x: x.astype(np.float32), A)
    with pytest.raises(ValueError, match="at least one input must have a floating dtype"):
        mg.gradcheck(np.sin, np.ones(2, int))


@pytest.mark.parametrize("results", [{"y": A}, None, [A, "name"]], ids=["dict", "None", "str"])
def test_gradcheck_refuses_results_that_it_cannot_check(results: Any) -> None:
    with pytest.raises(TypeError, match="must return a tensor, or .* got a (dict|NoneType|str)"):
        mg.gradcheck(lambda x: results, A)


def test_gradcheck_that_would_compare_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="directions must be at least 1 .*, got 0"):
        mg.gradcheck(np.sin, A, directions=0, elementwise=False)
    assert mg.gradcheck(np.sin, np.ones(100), directions=0)
    with pytest.raises(ValueError, match="pass elementwise=True"):
        mg.gradcheck(np.sin, np.ones(101), directions=0)


def test_gradgradcheck_refuses_complex_step() -> None:
    with pytest.raises(ValueError, match="gradgradcheck: complex_step must be False"):
        mg.gradgradcheck(np.sin, A, complex_step=True)
    assert mg.gradgradcheck(np.sin, A, complex_step=False)


@pytest.mark.parametrize(
    "f, inputs",
    [
        (custom_op(x=lambda g, x: g * np.cos(mg.as_tensor(x).data))(lambda x: np.sin(x)), [A]),
        (
            custom_op(
                a=lambda g, a, b: g * b * a ** np.where(b == 0, 1, b - 1),
                b=lambda g, y, a: g * y * np.log(a),
            )(lambda a, b: a**b),
            [np.array([2.0]), np.array([0.0])],
        ),
    ],
    ids=["detached", "exponent compared"],
)
def test_gradgradcheck_of_rule_that_hides_a_dependence_rejects_it(f: Any, inputs: Any) -> None:
    assert mg.gradcheck(f, inputs)
    with pytest.raises(GradcheckError, match="gradient of the gradient of"):
        mg.gradgradcheck(f, inputs)
    assert mg.gradgradcheck(f, inputs, raise_exception=False) is False


def test_gradgradcheck_with_raise_exception_false_returns_false() -> None:
    rule = lambda g, x: g * (2 * x if isinstance(x, np.ndarray) else 3 * x)
    square = custom_op(x=rule)(lambda x: x**2)
    assert mg.gradcheck(square, [A]) and not mg.gradgradcheck(square, [A], raise_exception=False)
    rule = lambda g, x: g * (2 * x if isinstance(x, np.ndarray) else (2 + 1e-7) * x)
    for function in (square, custom_op(x=rule)(lambda x: x**2)):
        with pytest.raises(GradcheckError, match="gradient of input 0 with create_graph must be"):
            mg.gradgradcheck(function, [A])


# -- custom ops --------------------------------------------------------------------------------------------


def test_custom_op_rule_reads_result_shape_and_option() -> None:
    @custom_op(x=lambda g, y, x_shape, scale: (g * y * scale).reshape(x_shape))
    def scaled_exp(x, /, scale=2.0):  # type: ignore[no-untyped-def]
        """exp(scale x)."""
        return np.exp(x * scale)

    assert scaled_exp.__doc__ == "exp(scale x)."
    for f in (scaled_exp, lambda x: scaled_exp(x, scale=0.5)):
        assert mg.gradcheck(f, A) and mg.gradgradcheck(f, A)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, *, scale=2.0: x**2 * scale,
        lambda x, /, *, scale=2.0: x**2 * scale,
        lambda x, /, scale=2.0: x**2 * scale,
    ],
)
def test_custom_op_has_options_by_keyword_with_and_without_a_slash(function: Any) -> None:
    f = custom_op(x=lambda g, x, scale: g * 2 * x * scale)(function)
    assert mg.gradcheck(f, A) and mg.gradcheck(lambda x: f(x, scale=-3.0), A)
    assert f(1.5).item() == 4.5 and f(1.5, scale=1).item() == 2.25


@pytest.mark.parametrize(
    "f",
    [
        lambda x: mg.linear(x, x * 2, x[0]),
        lambda x: mg.layer_norm(x, weight=x[0], bias=x[1] * x[2]),
        lambda x: mg.scaled_dot_product_attention(*[y[None, None] for y in (x, x * 2, x @ x)]),
        lambda x: mg.linear_cross_entropy(x, x.T, [0, 2, 1]),
    ],
)
def test_second_derivatives_of_kernels_whose_operands_depend_on_each_other_are_right(
    f: Any,
) -> None:
    assert mg.gradgradcheck(f, A[:, :3])


def test_custom_op_with_one_rule_for_all_operands_has_their_gradients() -> None:
    @custom_op(vjp=lambda g, a, b, needs: (g * b if needs[0] else None, g * a))
    def product(a, b, /):  # type: ignore[no-untyped-def]
        return a * b

    assert mg.gradcheck(product, [A, A + 1]) and mg.gradgradcheck(product, [A, A + 1])
    assert mg.gradcheck(lambda b: product(A, b), [A])


def test_custom_op_copies_an_operand_that_its_rule_returns() -> None:
    c, x = np.ones(3), Tensor(np.ones(3), True)
    rules = [lambda g, b: b, lambda g, y, b: b, lambda g, b: b[:], lambda g, b: b[::-1].T]
    for rule, other in itertools.product(rules, (c, Tensor(c, True))):
        x.grad = None
        product = custom_op(a=rule, b=lambda g, a: g * a)(lambda a, b: (a * b).sum())
        y = product(x, other)
        assert not np.shares_memory(mg.gradients(y, x, retain_graph=True)[0].data, c)
        y.backward()
        assert not np.shares_memory(x.grad.data, c)


@pytest.mark.parametrize("c", [2, 2.0, True, np.float32(2), np.int8(2), np.array(2)], ids=repr)
def test_custom_op_rule_of_a_number_may_return_any_number(c: Any) -> None:
    x = Tensor(1.5, requires_grad=True)
    for create_graph in (False, True):
        (g,) = mg.gradients(
            custom_op(x=lambda g: c)(lambda x: x * 2)(x), x, create_graph=create_graph
        )
        assert g.dtype == float and g.item() == float(c)
    assert custom_op(x=lambda g: c)(lambda x: x * 2)(x).backward() is None and x.grad.item() == c


def test_custom_op_of_a_ufunc_has_the_derivative_of_its_rule() -> None:
    exp2 = custom_op(x=lambda g, y: g * y * np.log(2.0))(np.exp2)
    assert mg.gradcheck(exp2, A) and mg.gradgradcheck(exp2, A)


def test_custom_op_with_a_rule_that_a_class_decorates_has_it() -> None:
    class Doubled:
        def __call__(self, g: Any) -> Any:
            return g * 2.0

    rule = update_wrapper(Doubled(), lambda g: g)
    assert mg.gradcheck(custom_op(x=rule)(lambda x: 2.0 * x), A)


def test_gradcheck_with_a_result_in_single_precision_without_gradient_compares_the_others() -> None:
    assert mg.gradcheck(lambda x: (x * 2, Tensor(np.ones(2, np.float32))), A)


def test_custom_op_rule_that_returns_an_array_twice_gives_gradients_of_their_own() -> None:
    constant = np.ones(3)
    for rule in (
        lambda g: (g + g,) * 2,
        lambda g: (constant,) * 2,
        lambda g: [constant] * 2,
    ):
        a, b = Tensor(np.ones(3), True), Tensor(np.ones(3), True)
        custom_op(vjp=rule)(lambda a, b: a + b)(a, b).sum().backward()
        expected = b.grad.tolist()
        (a * 5).sum().backward()  # adds into a.grad
        assert b.grad.tolist() == expected and constant.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "declare, message",
    [
        (lambda: custom_op(x=lambda g: g)(partial(np.add, 1)), "the operation must be a function"),
        (lambda: custom_op(x=partial(np.multiply, 2))(lambda x: 2 * x), "x= must be a function"),
        (lambda: custom_op(vjp=partial(tuple))(lambda x: 2 * x), "vjp= must be a function"),
    ],
)
def test_custom_op_of_a_partial_names_it(declare: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"custom_op: {message}, got a partial; write a def"):
        declare()


@pytest.mark.parametrize(
    "rules, message",
    [
        ({"a": lambda g: np.ones(5)}, r"operand of shape \(3,\) .* returned shape \(5,\)"),
        ({"a": lambda g: np.ones(1)}, r"returned shape \(1,\)"),
        ({"a": lambda g: 1.0}, r"returned shape \(\)"),
        ({"a": lambda g: g * 1j}, "dtype float64 must be real, .* dtype complex128"),
        ({"vjp": lambda g, a, b: (g,)}, "must return 2 gradients, .* got 1"),
        ({"vjp": lambda g, a, b: g}, "must return 2 gradients, .* got a ndarray"),
    ],
)
def test_custom_op_refuses_gradients_that_do_not_fit(rules: Any, message: str) -> None:
    x = Tensor(np.ones(3), requires_grad=True)
    with pytest.raises(GradientError, match=message):
        custom_op(**rules)(lambda a, b: a * b)(x, np.ones(3)).sum().backward()


@pytest.mark.parametrize(
    "rules, message",
    [
        ({"x": lambda g, z: g}, r"a rule must read some of y, x.*, got \['z'\]"),
        ({"w": lambda g: g}, r"rules must be named as operands, \('x',\), got \['w'\]"),
    ],
)
def test_custom_op_refuses_unknown_names(rules: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        custom_op(**rules)(lambda x: x)


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("create_graph", [False, True])
def test_custom_op_needs_one_gradient_for_each_operand(count: int, create_graph: bool) -> None:
    product = custom_op(vjp=lambda g, a, b: (g * b,) * count)(lambda a, b: a * b)
    x = Tensor(np.ones(2), requires_grad=True)
    for operands in ((x, x), (x, np.ones(2)), (np.ones(2), x)):
        with pytest.raises(GradientError, match=f"vjp must return 2 gradients, .* got {count}"):
            product(*operands).sum().backward(create_graph=create_graph)
