"""Derivatives of functions: grad, vjp, jvp, hvp, jacobian and hessian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import GradientError, Tensor

rng = np.random.default_rng(0)
A, V = rng.standard_normal((2, 3)), rng.standard_normal(3)


def test_grad_with_aux_returns_the_other_object() -> None:
    with_aux = lambda a, scale=1.0: ((a * scale).sum(), "extra")
    (value, aux), g = mg.value_and_grad(with_aux, has_aux=True)(A, scale=2.0)
    assert aux == "extra" and g.data.tolist() == [[2.0] * 3] * 2
    assert value.item() == pytest.approx(2 * A.sum())
    assert not value.requires_grad and not g.requires_grad
    g, aux = mg.grad(with_aux, has_aux=True)(A, scale=3.0)
    assert aux == "extra" and g.data.tolist() == [[3.0] * 3] * 2


def test_grad_of_outer_tensors_is_recorded() -> None:
    w = Tensor(V, requires_grad=True)
    mg.grad(lambda x: (w * w * x).sum())(np.ones(3)).sum().backward()
    np.testing.assert_allclose(w.grad.data, 2 * V)
    x = Tensor(V, requires_grad=True)
    (mg.grad(lambda x: (x**3).sum())(x) ** 2).sum().backward()
    np.testing.assert_allclose(x.grad.data, 36 * V**3, rtol=1e-12)
    with mg.no_grad():
        assert not mg.grad(lambda x: (w * x).sum())(x).requires_grad


def test_value_and_aux_are_recorded_only_if_they_depend_on_an_outer_leaf() -> None:
    w = Tensor(V, requires_grad=True)
    mg.value_and_grad(lambda x: (x + w * w).sum())(np.ones(3))[0].backward()  # the gradient is 1
    np.testing.assert_allclose(w.grad.data, 2 * V)
    value = lambda x: mg.value_and_grad(lambda y: 2 * y.sum())(x)[0]
    assert mg.grad(value)(V).tolist() == [2, 2, 2]
    aux = mg.grad(lambda x: (x.sum(), [x * x, x * w]), has_aux=True)(w)[1]
    assert all(part.requires_grad for part in aux)
    aux = mg.grad(lambda x: (x.sum(), [x * x, x, "name"]), has_aux=True)(V)[1]
    np.testing.assert_allclose(aux[:2], [V * V, V])
    y = mg.vjp(lambda x: {"square": x * x}, V)[0]["square"]
    np.testing.assert_allclose(y, V * V)  # an ndarray, which a recorded tensor cannot become
    assert mg.vjp(lambda x: x * w, V)[0].requires_grad


def test_nested_grads_do_not_mix() -> None:
    """d/dx (x · d/dy (x + y)) = 1, not 2."""
    assert mg.grad(lambda x: x * mg.grad(lambda y: x + y)(1.0))(1.0).item() == 1.0


def test_grad_of_an_unused_argument_is_zero() -> None:
    g = mg.grad(lambda x, y: y.sum())(np.ones(2), Tensor([1.0], True))
    assert g.tolist() == [0, 0]


def test_vjp_and_jvp_multiply_by_the_jacobian() -> None:
    f, u = lambda x: np.tanh(A @ x), np.array([2.0, -1.0])
    jacobian = (1 - np.tanh(A @ V) ** 2)[:, None] * A
    np.testing.assert_allclose(mg.jacobian(f)(V).data, jacobian, rtol=1e-12)
    pullback = mg.vjp(f, V)[1]
    for _ in range(2):  # the graph is kept
        np.testing.assert_allclose(pullback(u)[0].data, u @ jacobian, rtol=1e-12)
    y, tangent = mg.jvp(f, V, V)
    np.testing.assert_allclose(y.data, np.tanh(A @ V))
    np.testing.assert_allclose(tangent.data, jacobian @ V, rtol=1e-12)
    assert not tangent.requires_grad and not y.requires_grad
    _, tangent = mg.jvp(lambda a, x: a @ x, (A, V), (A, 2 * V))
    np.testing.assert_allclose(tangent.data, 3 * A @ V)
    tangents = mg.jvp(lambda x: (x.argmax(), x * x, x[0] > 0), V, V)[1]  # integers are constant
    np.testing.assert_allclose(tangents[1].data, 2 * V * V)
    assert (tangents[0].item(), tangents[2].item()) == (0, False)
    constant = mg.jvp(lambda x: (x, Tensor(A.astype(np.float32))), V, V)[1][1]
    assert constant.dtype == np.float32 and not constant.data.any()


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.longdouble])
def test_direction_of_any_real_dtype_is_that_of_floats(dtype: Any) -> None:
    v = np.array([1, 0, 1], dtype)
    np.testing.assert_allclose(mg.jvp(np.sin, V, v)[1].data, np.cos(V) * [1, 0, 1])
    np.testing.assert_allclose(mg.hvp(lambda x: (x**3).sum(), V, v).data, 6 * V * [1, 0, 1])


@pytest.mark.parametrize("kind", [list, tuple])
def test_vjp_takes_gradients_of_several_results_one_by_one_or_together(kind: Any) -> None:
    pullback = mg.vjp(lambda x: kind([x * x, x[:2]]), V)[1]
    for gs in ([V, A[:, 0]], [kind([V, A[:, 0]])]):
        np.testing.assert_allclose(pullback(*gs)[0].data, 2 * V * V + [*A[:, 0], 0])


def test_hessian_and_hvp_equal_formulas() -> None:
    f, e = lambda x: np.exp(x).sum() ** 2, np.exp(V)
    hessian, v = 2 * np.outer(e, e) + 2 * e.sum() * np.diag(e), rng.standard_normal(3)
    np.testing.assert_allclose(mg.hessian(f)(V).data, hessian, rtol=1e-12)
    for product in (mg.hvp(f, V, v), mg.hvp(f)(V, v)):
        np.testing.assert_allclose(product.data, hessian @ v, rtol=1e-12)
    g, h = mg.hvp(lambda a, b: (a * b).sum() + (a**2).sum(), (V, v), (v, V))
    np.testing.assert_allclose(g.data, 2 * v + V)
    np.testing.assert_allclose(h.data, v)


def test_jvp_and_hvp_of_numbers_and_lists_equal_formulas() -> None:
    product = lambda a, b: a**3 * b
    assert mg.jvp(np.sin, 0.5, 2.0)[1].item() == 2 * np.cos(0.5)
    assert mg.jvp(product, (2.0, 3.0), [1.0, -1.0])[1].item() == 36 - 8
    assert [h.item() for h in mg.hvp(product, (2.0, 3.0), (1.0, 2.0))] == [60, 12]
    assert mg.jvp(np.square, [1.0, 2.0], [3.0, 4.0])[1].tolist() == [6, 16]
    assert mg.hvp(lambda x: (x**3).sum())([1.0, 2.0], [1.0, 0.5]).tolist() == [6, 6]


def test_product_is_differentiated_by_its_direction() -> None:
    slope = mg.grad(lambda v: mg.jvp(np.sin, A[0], v)[1].sum())(V)
    np.testing.assert_allclose(slope.data, np.cos(A[0]))
    slope = mg.grad(lambda v: mg.hvp(lambda x: (x**3).sum(), A[0], v).sum())(V)
    np.testing.assert_allclose(slope.data, 6 * A[0])
    slope = mg.grad(lambda g: mg.vjp(np.sin, A[0])[1](g)[0].sum())(V)
    np.testing.assert_allclose(slope.data, np.cos(A[0]))
    for product in (mg.jvp, mg.hvp):
        with pytest.raises(TypeError, match="the direction must be real, got dtype object"):
            product(np.sin, 1.0, None)
        with pytest.raises(TypeError, match="the direction must be real, got dtype complex128"):
            product(np.sum, V, V * 1j)


def test_hessian_is_by_the_arguments_that_are_named() -> None:
    f = lambda x, y, scale=1.0: (x * y * y).sum() * scale
    np.testing.assert_allclose(mg.hessian(f, 1)(V, A[0], scale=3.0).data, np.diag(6 * V))
    np.testing.assert_allclose(mg.hessian(f)(V, A[0]).data, np.zeros((3, 3)))
    ((xx, xy), (yx, yy)) = mg.hessian(f, (0, 1))(V, A[0])
    np.testing.assert_allclose([xx, yy], [np.zeros((3, 3)), np.diag(2 * V)])
    np.testing.assert_allclose([xy, yx], [np.diag(2 * A[0])] * 2)
    empty = mg.jacobian(lambda x: x[:0])(V.astype(np.float32))
    assert empty.shape == (0, 3) and empty.dtype == np.float32


def test_direction_in_a_dict_is_read_by_its_keys() -> None:
    x, v = {"a": V, "b": A}, {"b": 2 * A, "a": V}
    f = lambda x: (x["a"] ** 2).sum() + (x["b"] ** 3).sum()
    expected = 2 * V @ V + (6 * A**3).sum()
    assert mg.jvp(f, x, v)[1].item() == pytest.approx(expected)
    product = mg.hvp(f, x, v)
    np.testing.assert_allclose(product["b"].data, 12 * A * A)
    np.testing.assert_allclose(product["a"].data, 2 * V)
    pullback = mg.vjp(lambda x: {"y": x * x, "z": x}, V)[1]
    np.testing.assert_allclose(pullback({"z": V, "y": A[0]})[0].data, 2 * V * A[0] + V)


def test_direction_gets_the_dtype_of_its_input_and_may_be_in_a_list() -> None:
    x = V.astype(np.float32)
    for direction in (V, [V], (V,), V.tolist()):
        for product in (
            mg.jvp(np.sin, x, direction)[1],
            mg.hvp(lambda x: np.sin(x).sum(), x, direction),
        ):
            assert product.dtype == np.float32 and product.shape == (3,)
        np.testing.assert_allclose(mg.jvp(np.sin, x, direction)[1].data, V * np.cos(x), rtol=1e-6)


def test_jacobian_has_the_axes_of_result_and_argument() -> None:
    assert mg.jacobian(lambda a: a.T @ a)(A).shape == (3, 3, 2, 3)
    assert [b.shape for b in mg.jacobian(lambda a, x: a @ x, (0, 1))(A, V)] == [(2, 2, 3), (2, 3)]


def test_gradients_of_computed_tensors_equal_formulas() -> None:
    x = Tensor(V, requires_grad=True)
    h = x * 2
    gh, *gx = mg.gradients((h * h).sum(), [h, x, x])
    np.testing.assert_allclose(gh.data, 4 * V)
    for g in gx:
        np.testing.assert_allclose(g.data, 8 * V)
    assert x.grad is None
    assert mg.gradients(x.sum(), Tensor(1.0, True), allow_unused=True) == (None,)


def test_backward_with_create_graph_records_the_gradient() -> None:
    x = Tensor(np.array([0.5, 1.5]), requires_grad=True)
    (x**3).sum().backward(create_graph=True)
    first = x.grad
    assert first.requires_grad
    x.grad = None
    first.sum().backward()
    np.testing.assert_allclose(x.grad.data, 6 * x.data)


@pytest.mark.parametrize("dtype", "bBhHiIlLqQ")
def test_derivative_by_an_array_of_integers_is_that_by_floats(dtype: str) -> None:
    g = mg.grad(lambda x: (x * x).sum())(np.array([1, 2, 3], dtype))
    assert g.dtype == float and g.tolist() == [2, 4, 6]
    with pytest.raises(TypeError, match="grad: arguments must be floating-point, got dtype u?int"):
        mg.grad(np.square)(np.array(2, dtype))


LEAF = Tensor(V, requires_grad=True)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: mg.grad(lambda x: 1.0)(1.0), TypeError, "must return a Tensor, got a float"),
        (lambda: mg.grad(np.sum, has_aux=True)(V), TypeError, "return a pair, .* got a Tensor"),
        (
            lambda: mg.grad(lambda x: (x.sum(), 1, 2), has_aux=True)(V),
            TypeError,
            "return a pair, .* got 3 parts",
        ),
        (lambda: mg.jvp(lambda x: 1.0, V, V), TypeError, "must return a Tensor, got a float"),
        *[
            (
                lambda gs=gs: mg.vjp(np.sin, V)[1](*gs),
                ValueError,
                f"pullback must be called with one gradient, got {len(gs)}",
            )
            for gs in ([], [V, V])
        ],
        (lambda: mg.jvp(np.add, (V, V), [V]), ValueError, "must have 2 parts, .* got 1"),
        (lambda: mg.jvp(np.add, (V, V), [V, V, V]), ValueError, "must have 2 parts, .* got 3"),
        (
            lambda: mg.grad(np.sin, 1)(1.0),
            ValueError,
            "argnums must be from -1 to 0 for 1 arguments, got 1",
        ),
        (lambda: mg.grad(np.multiply, -3)(V, V), ValueError, "argnums must be from -2 to 1 for 2"),
        (lambda: mg.gradients([LEAF, LEAF], LEAF, [V]), ValueError, "must have 2 items, got 1"),
        (lambda: mg.gradients(LEAF, LEAF, (V, V)), ValueError, "must have 1 items, got 2"),
        (lambda: mg.grad(np.sin, [])(1.0), ValueError, r"at least one position, got \[\]"),
        (lambda: mg.grad(np.sin, (0, None))(1.0), TypeError, "argnums must be an integer or int"),
        (
            lambda: mg.gradients(LEAF.sum(), [LEAF, Tensor(1.0, True)]),
            GradientError,
            r"do not depend on inputs \[1\]; pass allow_unused=True",
        ),
    ],
)
def test_derivative_called_wrongly_names_the_argument(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("derivative", [mg.value_and_grad, mg.grad, mg.jacobian])
def test_derivative_by_an_argument_named_twice_is_refused(derivative: Any) -> None:
    with pytest.raises(ValueError, match="argnums must contain each argument once, got .* 2 argum"):
        derivative(lambda x, y: (x * y).sum(), (0, -2))(V, V)


@pytest.mark.parametrize("derivative", [mg.value_and_grad, mg.grad, mg.jacobian])
def test_number_of_one_argument_gives_one_gradient_and_a_sequence_a_tuple(derivative: Any) -> None:
    x, y = np.array([2.0, 3.0]), np.array([5.0, 7.0])
    for argnums in (0, -2, np.int64(0), 1, -1, np.int8(-1), (0,), [1], (-1, 0), np.array([1, 0])):
        result = derivative(lambda a, b: (a * b).sum(), argnums)(x, y)
        result = result[1] if derivative is mg.value_and_grad else result
        several = np.ndim(argnums) > 0
        assert isinstance(result, tuple) == several
        parts = result if several else (result,)
        for part, i in zip(parts, np.atleast_1d(argnums), strict=True):
            np.testing.assert_array_equal(part.data, (y, x)[i])


@pytest.mark.parametrize(
    "x", [[[1.0, 2], [3, 4]], [(1.0, 2), (3, 4)], ([1.0, 2], (3, 4))], ids=repr
)
def test_nested_sequence_of_numbers_is_one_array(x: Any) -> None:
    g = mg.grad(lambda a: (a * a).sum())(x)
    np.testing.assert_array_equal(g.data, 2 * np.array(x))


def _written_by_item(x: Any) -> Any:
    x[0] = 1.0
    return x


def _written_in_a_view(x: Any) -> Any:
    x[:1].T[0] = 1.0
    return x


def _added_to(x: Any) -> Any:
    x += 1.0
    return x


@pytest.mark.parametrize("write", [_written_by_item, _written_in_a_view, _added_to])
@pytest.mark.parametrize(
    "derivative",
    [
        lambda f, x: mg.grad(f)(x),
        lambda f, x: mg.jacobian(f)(x),
        lambda f, x: mg.vjp(f, x)[1](1.0)[0],
        lambda f, x: mg.jvp(f, x, x)[1],
        lambda f, x: mg.hvp(f, x, x),
    ],
)
@pytest.mark.parametrize("is_nested", [True, False])
def test_function_must_not_write_into_the_input_of_its_derivative(
    derivative: Any, write: Any, is_nested: bool
) -> None:
    call = lambda x: derivative(lambda z: np.square(write(z)).sum(), x * 2).sum()
    with pytest.raises(GradientError, match="cannot be changed in place .* x = x.copy.. before"):
        (mg.grad(call) if is_nested else call)(np.array([3.0, 4.0]))
    copies = lambda x: derivative(lambda z: np.square(write(z.copy())).sum(), x * 2).sum()
    (mg.grad(copies) if is_nested else copies)(np.array([3.0, 4.0]))


@pytest.mark.parametrize("dtype", [np.float32, float, np.float16])
def test_gradient_by_an_argument_without_influence_is_zero_in_its_dtype(dtype: Any) -> None:
    x, y = np.ones((2, 3), dtype), np.array(2.0)
    for derivative in (mg.grad, mg.value_and_grad, mg.jacobian):
        result = derivative(lambda a, b: b * b, (0, 1))(x, y)
        g, _ = result[1] if derivative is mg.value_and_grad else result
        np.testing.assert_array_equal(g.data, np.zeros((2, 3), dtype), strict=True)
