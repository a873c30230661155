"""grad, vjp, jvp, hvp, jacobian, hessian; and derivatives of third and fourth order."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import GradientError, Tensor

rng = np.random.default_rng(0)


def nth(f, n: int, x: float) -> float:  # type: ignore[no-untyped-def]
    for _ in range(n):
        f = mg.grad(f)
    return f(x).item()


def _hermite(n: int, x: float) -> float:
    """The n-th derivative of exp(-x²/2) is (-1)^n He_n(x) exp(-x²/2)."""
    a, b = 1.0, x
    for k in range(1, n):
        a, b = b, x * b - k * a
    return (-1) ** n * (b if n else 1.0) * math.exp(-x * x / 2)


X = 0.7
EX = math.exp(X)
S, C, T = math.sin(X), math.cos(X), math.tanh(X)
SIG = 1 / (1 + math.exp(-X))


@pytest.mark.parametrize(
    "f, third, fourth",
    [
        (lambda x: np.sin(x) * np.exp(x), 2 * EX * (C - S), -4 * EX * S),
        (lambda x: np.exp(-x * x / 2), _hermite(3, X), _hermite(4, X)),
        (lambda x: x**5 + 2 * x**3, 60 * X**2 + 12, 120 * X),
        (lambda x: np.log(x), 2 / X**3, -6 / X**4),
        (lambda x: 1 / x, -6 / X**4, 24 / X**5),
        (lambda x: np.tanh(x), (1 - T * T) * (6 * T * T - 2), (1 - T * T) * (16 * T - 24 * T**3)),
        (lambda x: np.sqrt(x), 3 / 8 * X**-2.5, -15 / 16 * X**-3.5),
        (
            lambda x: mg.sigmoid(x),
            SIG * (1 - SIG) * (1 - 6 * SIG + 6 * SIG**2),
            SIG * (1 - SIG) * (1 - 2 * SIG) * (1 - 12 * SIG + 12 * SIG**2),
        ),
        (
            lambda x: mg.erf(x),
            (4 * X * X - 2) * 2 / math.sqrt(math.pi) * math.exp(-X * X),
            (12 * X - 8 * X**3) * 2 / math.sqrt(math.pi) * math.exp(-X * X),
        ),
        (lambda x: (x * np.ones(3)).prod() + mg.stack([x, x]).sum(), 6.0, 0.0),
        (lambda x: np.exp(mg.logsumexp(mg.stack([x, 2 * x]))), EX + 8 * EX**2, EX + 16 * EX**2),
        (lambda x: np.linalg.det(x * np.eye(4) + 0.0), 24 * X, 24.0),
        (lambda x: np.linalg.inv(mg.reshape(x, 1, 1)).sum(), -6 / X**4, 24 / X**5),
    ],
)
def test_third_and_fourth_derivatives(f, third: float, fourth: float) -> None:  # type: ignore[no-untyped-def]
    assert nth(f, 3, X) == pytest.approx(third, rel=1e-10, abs=1e-10)
    assert nth(f, 4, X) == pytest.approx(fourth, rel=1e-10, abs=1e-10)


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


def test_grad_leaves_no_trace() -> None:
    x, w = (
        Tensor(rng.standard_normal(3), requires_grad=True),
        Tensor(rng.standard_normal(3), requires_grad=True),
    )
    mg.grad(lambda x: (x * w).sum())(x)
    assert x.grad is None and w.grad is None


def test_what_grad_returns_is_recorded_where_it_depends_on_outer_tensors() -> None:
    w = Tensor(rng.standard_normal(3), requires_grad=True)
    g = mg.grad(lambda x: (w * w * x).sum())(np.ones(3))
    g.sum().backward()
    np.testing.assert_allclose(w.grad.data, 2 * w.data)
    x = Tensor(rng.standard_normal(3), requires_grad=True)
    (mg.grad(lambda x: (x**3).sum())(x) ** 2).sum().backward()
    np.testing.assert_allclose(x.grad.data, 36 * x.data**3, rtol=1e-12)
    with mg.no_grad():
        assert not mg.grad(lambda x: (w * x).sum())(x).requires_grad


def test_perturbations_of_nested_grads_do_not_mix() -> None:
    """d/dx (x · d/dy (x + y)) = 1, not 2."""
    assert mg.grad(lambda x: x * mg.grad(lambda y: x + y)(1.0))(1.0).item() == 1.0


def test_grad_of_what_does_not_depend_is_zero() -> None:
    np.testing.assert_array_equal(
        mg.grad(lambda x, y: y.sum(), 0)(np.ones(2), Tensor([1.0], True)).data, [0, 0]
    )


def test_vjp_jvp() -> None:
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


def test_jacobian_hessian_hvp() -> None:
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


def test_gradients_of_any_tensor_of_a_graph() -> None:
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
    with pytest.raises(ValueError, match="gradients: expected 1 output gradients, got 2"):
        mg.gradients((x * 2).sum(), x, [1.0, 2.0])


def test_create_graph_through_backward() -> None:
    x = Tensor(np.array([0.5, 1.5]), requires_grad=True)
    (x**3).sum().backward(create_graph=True)
    first = x.grad
    assert first.requires_grad
    x.grad = None
    first.sum().backward()
    np.testing.assert_allclose(x.grad.data, 6 * x.data)


def test_errors() -> None:
    with pytest.raises(
        TypeError, match="only floating-point arguments can be differentiated, got dtype int64"
    ):
        mg.grad(lambda x: x)(1)
    with pytest.raises(
        GradientError,
        match="gradients: a gradient can be left out only for a tensor of one element",
    ):
        mg.grad(lambda x: x * 2)(np.ones(2))
    with pytest.raises(TypeError, match="expected the function to return a Tensor, got a float"):
        mg.grad(lambda x: 1.0)(1.0)
    with pytest.raises(
        ValueError, match="grad: argnums has 1, but the function was given 1 arguments"
    ):
        mg.grad(lambda x: x, 1)(1.0)


# -- where a rule tests a value that is itself differentiated ---------------------------------------------


@pytest.mark.parametrize("a", [0.5, 2.0, 3.0])
@pytest.mark.parametrize("b", [-1.0, 0.0, 1.0, 2.0, 3.0])
def test_third_derivatives_of_power_at_integer_exponents(a: float, b: float) -> None:
    """The derivatives of exp(b log a), which knows no integers."""
    third = lambda f: mg.jacobian(mg.jacobian(mg.jacobian(f)))(np.array([a, b])).data
    expected = third(lambda x: np.exp(x[1] * np.log(x[0])))
    np.testing.assert_allclose(third(lambda x: x[0] ** x[1]), expected, rtol=1e-11, atol=1e-11)


def test_power_of_nought() -> None:
    powers = lambda x: np.power(x, np.array([0.0, 1.0, 2.0, 3.0])).sum()
    for n, expected in enumerate([1.0, 2.0, 6.0, 0.0], 1):
        assert nth(powers, n, 0.0) == expected
    np.testing.assert_array_equal(mg.grad(lambda a, b: a**b, (0, 1))(0.0, 0.0)[1].data, 0)


def test_a_branch_not_taken_sends_nothing_to_third_order() -> None:
    """An infinite slope where no gradient comes from is no NaN, to any order."""
    x = np.array([0.0, 1.0, 0.5])
    for f in (
        np.sqrt,
        lambda x: np.arcsin(1 - x),
        lambda x: np.arccos(1 - x),
        lambda x: np.arccosh(1 + x),
    ):
        g = lambda x, f=f: (f(x)[1:] ** 2).sum()
        smooth = lambda x, f=f: (f(x) ** 2).sum()
        with np.errstate(divide="ignore"):  # the slope itself
            got = mg.jacobian(mg.hessian(g))(x).data
        np.testing.assert_array_equal(got[0], 0)
        np.testing.assert_allclose(
            got[1:, 1:, 1:], mg.jacobian(mg.hessian(smooth))(x[1:]).data, rtol=1e-12
        )
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(
            mg.grad(lambda x: np.where(x > 0, np.log(x), 0).sum())(x).data, [0, 1, 2]
        )


def test_derivatives_at_points_that_have_none_are_zero() -> None:
    for f in (lambda x: np.hypot(x[0], x[1]), np.linalg.norm, lambda x: np.arctan2(x[0], x[1])):
        np.testing.assert_array_equal(mg.grad(f)(np.zeros(2)).data, 0)
        np.testing.assert_array_equal(mg.hessian(f)(np.zeros(2)).data, 0)


def test_rules_without_overflow() -> None:
    assert mg.grad(lambda a: np.arctan2(a, 1e-200))(1e-200).item() == pytest.approx(5e199)
    np.testing.assert_allclose(
        mg.grad(lambda x: np.prod(x))(np.array([1e-200, 2e-200])).data, [2e-200, 1e-200]
    )


@pytest.mark.parametrize("smallest", [0.0, 1e-12, 1e-9, 1e-6, 1e-3])
def test_third_derivatives_of_nearly_singular_determinants(smallest: float) -> None:
    """The determinant is a polynomial: expanded by minors, it has no division."""
    q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    x = q @ np.diag([1.0, 2.0, smallest]) @ q.T

    def expanded(x):  # type: ignore[no-untyped-def]
        minor = lambda i, j: x[1, i] * x[2, j] - x[1, j] * x[2, i]
        return x[0, 0] * minor(1, 2) - x[0, 1] * minor(0, 2) + x[0, 2] * minor(0, 1)

    third = lambda f: mg.jacobian(mg.hessian(f))(x).data
    np.testing.assert_allclose(third(np.linalg.det), third(expanded), atol=1e-6)


def test_fourth_derivative_of_an_even_norm() -> None:
    assert nth(
        lambda x: np.linalg.norm(mg.stack([x, 1.0 + 0 * x]), 4) ** 4, 4, 0.0
    ) == pytest.approx(24)


@pytest.mark.parametrize("loss", [mg.huber_loss, mg.smooth_l1_loss])
def test_second_derivatives_of_losses_where_nothing_is_lost(loss) -> None:  # type: ignore[no-untyped-def]
    """A square of a size would hide that the loss is a square there."""
    np.testing.assert_array_equal(
        mg.hessian(lambda x: loss(x, np.ones(2), reduction="sum"))(np.ones(2)).data, np.eye(2)
    )


@pytest.mark.parametrize("argnums", [(0, 0), (0, -2), [1, -1], np.array([1, 1])])
@pytest.mark.parametrize(
    "derivative", [mg.grad, mg.value_and_grad, mg.elementwise_grad, mg.jacobian, mg.hessian]
)
def test_derivatives_with_an_argument_named_twice_are_refused(derivative, argnums) -> None:  # type: ignore[no-untyped-def]
    f = derivative(lambda x, y: (x * y).sum(), argnums)
    with pytest.raises(ValueError, match="argnums must name each argument once, got .* 2 argum"):
        f(np.ones(2), np.ones(2))


@pytest.mark.parametrize("argnums", [True, 1.0, "x", (0, None)])
def test_derivatives_with_positions_that_are_no_integers_are_refused(argnums) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TypeError, match="grad: argnums must be an integer or integers, got "):
        mg.grad(lambda x, y: (x * y).sum(), argnums)(np.ones(2), np.ones(2))


def test_gradients_of_an_input_given_twice_are_both_whole() -> None:
    x = Tensor(rng.standard_normal(3), requires_grad=True)
    for g in mg.gradients((x**2).sum(), [x, x]):
        np.testing.assert_allclose(g.data, 2 * x.data)
