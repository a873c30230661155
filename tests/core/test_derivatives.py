"""grad, vjp, jvp, hvp, jacobian, hessian; and derivatives of third and fourth order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import GradientError, Tensor

rng = np.random.default_rng(0)


X = 0.7
EX, S, C, T = math.exp(X), math.sin(X), math.cos(X), math.tanh(X)


@pytest.mark.parametrize(
    "f, third, fourth",
    [
        (lambda x: np.sin(x) * np.exp(x), 2 * EX * (C - S), -4 * EX * S),
        (lambda x: x**5 + 2 * x**3, 60 * X**2 + 12, 120 * X),
        (lambda x: 1 / x, -6 / X**4, 24 / X**5),
        (lambda x: np.tanh(x), (1 - T * T) * (6 * T * T - 2), (1 - T * T) * (16 * T - 24 * T**3)),
        (lambda x: np.exp(mg.logsumexp(mg.stack([x, 2 * x]))), EX + 8 * EX**2, EX + 16 * EX**2),
        (lambda x: np.linalg.norm(mg.stack([x, 1 + 0 * x]), 4) ** 4, 24 * X, 24.0),
        (lambda x: np.linalg.det(x * np.eye(4) + 0.0), 24 * X, 24.0),
        (lambda x: np.linalg.inv(mg.reshape(x, 1, 1)).sum(), -6 / X**4, 24 / X**5),
    ],
)
def test_third_and_fourth_derivatives_equal_formulas(f: Any, third: float, fourth: float) -> None:
    for order, expected in ((3, third), (4, fourth)):
        g = f
        for _ in range(order):
            g = mg.grad(g)
        assert g(X).item() == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_grad_of_several_arguments_and_aux() -> None:
    a, b = rng.standard_normal((2, 3)), rng.standard_normal((3,))
    ga, gb = mg.grad(lambda a, b: (a @ b).sum(), (0, 1))(a, b)
    np.testing.assert_allclose(ga.data, np.broadcast_to(b, (2, 3)))
    np.testing.assert_allclose(gb.data, a.sum(0))
    value, g = mg.value_and_grad(lambda a, scale: (a * scale).sum())(a, scale=2.0)
    assert (
        value.item() == pytest.approx(2 * a.sum())
        and not value.requires_grad
        and not g.requires_grad
    )
    g, aux = mg.grad(lambda a: (a.sum(), "extra"), has_aux=True)(a)
    assert aux == "extra" and g.shape == (2, 3)
    (value, aux), g = mg.value_and_grad(lambda a: (a.sum(), 7), has_aux=True)(a)
    assert aux == 7 and value.item() == pytest.approx(a.sum())


def test_grad_sets_no_grad_of_tensors() -> None:
    x, w = (
        Tensor(rng.standard_normal(3), requires_grad=True),
        Tensor(rng.standard_normal(3), requires_grad=True),
    )
    mg.grad(lambda x: (x * w).sum())(x)
    assert x.grad is None and w.grad is None


def test_grad_of_outer_tensors_is_recorded() -> None:
    w = Tensor(rng.standard_normal(3), requires_grad=True)
    g = mg.grad(lambda x: (w * w * x).sum())(np.ones(3))
    g.sum().backward()
    np.testing.assert_allclose(w.grad.data, 2 * w.data)
    x = Tensor(rng.standard_normal(3), requires_grad=True)
    (mg.grad(lambda x: (x**3).sum())(x) ** 2).sum().backward()
    np.testing.assert_allclose(x.grad.data, 36 * x.data**3, rtol=1e-12)
    with mg.no_grad():
        assert not mg.grad(lambda x: (w * x).sum())(x).requires_grad


def test_nested_grads_do_not_mix() -> None:
    """d/dx (x · d/dy (x + y)) = 1, not 2."""
    assert mg.grad(lambda x: x * mg.grad(lambda y: x + y)(1.0))(1.0).item() == 1.0


def test_grad_of_an_unused_argument_is_zero() -> None:
    np.testing.assert_array_equal(
        mg.grad(lambda x, y: y.sum(), 0)(np.ones(2), Tensor([1.0], True)).data, [0, 0]
    )


def test_vjp_and_jvp_multiply_by_the_jacobian() -> None:
    a, x = rng.standard_normal((4, 3)), rng.standard_normal(3)
    y, pull = mg.vjp(lambda x: np.tanh(a @ x), x)
    u, v = rng.standard_normal(4), rng.standard_normal(3)
    jac = (1 - np.tanh(a @ x) ** 2)[:, None] * a
    np.testing.assert_allclose(pull(u)[0].data, u @ jac, rtol=1e-12)
    np.testing.assert_allclose(pull(u)[0].data, u @ jac, rtol=1e-12)
    y, tangent = mg.jvp(lambda x: np.tanh(a @ x), x, v)
    np.testing.assert_allclose(y.data, np.tanh(a @ x))
    np.testing.assert_allclose(tangent.data, jac @ v, rtol=1e-12)
    assert not tangent.requires_grad and not y.requires_grad
    (one, two), pull = mg.vjp(lambda x: (x * 2, x.sum()), x)
    np.testing.assert_allclose(pull(v, np.float64(3))[0].data, 2 * v + 3)
    y, tangent = mg.jvp(lambda a, x: a @ x, (a, x), (a, v))
    np.testing.assert_allclose(tangent.data, a @ x + a @ v)


def test_jacobian_hessian_and_hvp_equal_formulas() -> None:
    a, x = rng.standard_normal((4, 3)), rng.standard_normal(3)
    jac = mg.jacobian(lambda x: np.tanh(a @ x))(x)
    np.testing.assert_allclose(jac.data, (1 - np.tanh(a @ x) ** 2)[:, None] * a, rtol=1e-12)
    f = lambda x: (np.exp(x).sum()) ** 2
    e = np.exp(x)
    exact = 2 * np.outer(e, e) + 2 * e.sum() * np.diag(e)
    np.testing.assert_allclose(mg.hessian(f)(x).data, exact, rtol=1e-12)
    v = rng.standard_normal(3)
    np.testing.assert_allclose(mg.hvp(f, x, v).data, exact @ v, rtol=1e-12)
    np.testing.assert_allclose(mg.hvp(f)(x, v).data, exact @ v, rtol=1e-12)
    w = rng.standard_normal((2, 2))
    assert mg.jacobian(lambda w: w @ w)(w).shape == (2, 2, 2, 2)
    blocks = mg.jacobian(lambda a, x: a @ x, (0, 1))(a, x)
    assert [b.shape for b in blocks] == [(4, 4, 3), (4, 3)]
    one, two = mg.jacobian(lambda x: (x * 2, x.sum()))(x)
    np.testing.assert_allclose(one.data, 2 * np.eye(3))
    np.testing.assert_allclose(two.data, np.ones(3))
    g, h = mg.hvp(lambda a, b: (a * b).sum() + (a**2).sum(), (x, v), (v, x))
    np.testing.assert_allclose(g.data, 2 * v + x)
    np.testing.assert_allclose(h.data, v)


def test_gradients_of_computed_tensors_equal_formulas() -> None:
    x = Tensor(rng.standard_normal(3), requires_grad=True)
    h = x * 2
    y = (h * h).sum()
    gh, gx = mg.gradients(y, [h, x])
    np.testing.assert_allclose(gh.data, 4 * x.data)
    np.testing.assert_allclose(gx.data, 8 * x.data)
    assert x.grad is None
    other = Tensor(1.0, requires_grad=True)
    with pytest.raises(
        GradientError, match=r"do not depend on inputs \[1\]; pass allow_unused=True"
    ):
        mg.gradients((x * 2).sum(), [x, other])
    assert mg.gradients((x * 2).sum(), [x, other], allow_unused=True)[1] is None
    with pytest.raises(ValueError, match="gradients: gradient must have 1 items, got 2"):
        mg.gradients((x * 2).sum(), x, [1.0, 2.0])


def test_backward_with_create_graph_records_the_gradient() -> None:
    x = Tensor(np.array([0.5, 1.5]), requires_grad=True)
    (x**3).sum().backward(create_graph=True)
    first = x.grad
    assert first.requires_grad
    x.grad = None
    first.sum().backward()
    np.testing.assert_allclose(x.grad.data, 6 * x.data)


def test_grad_refuses_integers_vectors_and_missing_arguments() -> None:
    with pytest.raises(TypeError, match="grad: arguments must be floating-point, got dtype int64"):
        mg.grad(lambda x: x)(1)
    with pytest.raises(
        GradientError,
        match="gradients: gradient must be given unless the tensor has one element",
    ):
        mg.grad(lambda x: x * 2)(np.ones(2))
    with pytest.raises(TypeError, match="the function must return a Tensor, got a float"):
        mg.grad(lambda x: 1.0)(1.0)
    with pytest.raises(
        ValueError, match="grad: argnums must be from -1 to 0 for 1 arguments, got 1"
    ):
        mg.grad(lambda x: x, 1)(1.0)


@pytest.mark.parametrize("argnums", [(0, 0), (0, -2), [1, -1], np.array([1, 1])])
@pytest.mark.parametrize(
    "derivative", [mg.grad, mg.value_and_grad, mg.elementwise_grad, mg.jacobian, mg.hessian]
)
def test_derivatives_with_an_argument_named_twice_are_refused(
    derivative: Any, argnums: Any
) -> None:
    f = derivative(lambda x, y: (x * y).sum(), argnums)
    with pytest.raises(ValueError, match="argnums must contain each argument once, got .* 2 argum"):
        f(np.ones(2), np.ones(2))


@pytest.mark.parametrize("argnums", [True, 1.0, "x", (0, None)])
def test_derivatives_with_positions_that_are_no_integers_are_refused(argnums: Any) -> None:
    with pytest.raises(TypeError, match="grad: argnums must be an integer or integers, got "):
        mg.grad(lambda x, y: (x * y).sum(), argnums)(np.ones(2), np.ones(2))


def test_gradients_of_an_input_given_twice_are_equal() -> None:
    x = Tensor(rng.standard_normal(3), requires_grad=True)
    for g in mg.gradients((x**2).sum(), [x, x]):
        np.testing.assert_allclose(g.data, 2 * x.data)
