"""Linear algebra of several matrices at once: the values and gradients of each matrix alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.properties import normal

import minigrad as mg
from minigrad import Tensor

ORDERS = (None, "fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf)
B = normal(9, 3, 2)
SQUARE: dict[str, Any] = {
    "inv": np.linalg.inv,
    "det": np.linalg.det,
    "slogdet": np.linalg.slogdet,
    "solve": lambda x: np.linalg.solve(x, B),
    "matrix_power": lambda x: np.linalg.matrix_power(x, 3),
    "matrix_power -2": lambda x: np.linalg.matrix_power(x, -2),
    "cholesky": lambda x: np.linalg.cholesky(x @ x.mT + np.eye(3)),
    "cholesky upper": lambda x: np.linalg.cholesky(x @ x.mT + np.eye(3), upper=True),
    "eigh": lambda x: np.linalg.eigh(x + x.mT),
    "eigvalsh U": lambda x: np.linalg.eigvalsh(x, UPLO="U"),
    "expm": lambda x: mg.expm(x * 3),
    "solve_triangular": lambda x: mg.solve_triangular(x, B),
    "solve_triangular T": lambda x: mg.solve_triangular(x, B, "T", lower=True, unit_diagonal=True),
    "cho_solve": lambda x: mg.cho_solve(mg.cho_factor(x @ x.mT + np.eye(3)), B),
    **{f"cond {p}": lambda x, p=p: np.linalg.cond(x, p) for p in ORDERS},
}
ANY: dict[str, Any] = {
    "svd": np.linalg.svd,
    "svd reduced": lambda x: np.linalg.svd(x, full_matrices=False),
    "svdvals": lambda x: np.linalg.svd(x, compute_uv=False),
    "qr": np.linalg.qr,
    "qr r": lambda x: np.linalg.qr(x, mode="r"),
    "pinv": np.linalg.pinv,
    "matrix_transpose": np.matrix_transpose,
    "trace": lambda x: np.linalg.trace(x, offset=-1),
    "diagonal": lambda x: np.linalg.diagonal(x, offset=1),
    "tril": lambda x: np.tril(x, 1),
    "triu": lambda x: np.triu(x, 1),
    "norm": lambda x: np.linalg.norm(x, axis=(-1, -2)),
    **{f"norm {p}": lambda x, p=p: np.linalg.norm(x, p, (-2, -1)) for p in ORDERS},
    **{
        f"matrix_norm {p}": lambda x, p=p: np.linalg.matrix_norm(x, ord=p, keepdims=True)
        for p in ORDERS[1:]
    },
    "vector_norm": lambda x: np.linalg.vector_norm(x, axis=(-1, -2), ord=3, keepdims=True),
    "matmul": lambda x: np.linalg.matmul(x, x.mT),
    "vecdot": lambda x: np.linalg.vecdot(x, np.cos(x)),
}


def values_and_gradients(f: Any, x: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the results of f(x), and the gradient of each."""
    leaf = Tensor(x, requires_grad=True)
    y = f(leaf)
    results = list(y) if isinstance(y, tuple) else [y]
    tracked = [part for part in results if part.requires_grad]
    pulled = [mg.gradients(np.sin(p).sum(), leaf, retain_graph=True)[0].data for p in tracked]
    return [part.data for part in results], pulled


@pytest.mark.parametrize("f", [*SQUARE.values(), *ANY.values()], ids=[*SQUARE, *ANY])
def test_function_of_several_matrices_equals_that_of_each(f: Any) -> None:
    shapes = [(3, 3)] if f in SQUARE.values() else [(2, 3), (3, 2), (3, 3)]
    for shape in shapes:
        x = normal(1, 2, *shape) + np.eye(*shape)
        for parts, of_each in zip(
            values_and_gradients(f, x), zip(*[values_and_gradients(f, matrix) for matrix in x])
        ):
            assert len(parts) == len(of_each[0]) > 0
            for i, part in enumerate(parts):
                expected = np.stack([each[i] for each in of_each])
                assert part.shape == expected.shape
                np.testing.assert_allclose(part, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("option", ["L", "U", "l", "u", False, True])
def test_other_half_of_a_symmetric_matrix_is_not_read(option: Any, dtype: Any) -> None:
    x, other = (np.array(a, dtype) for a in ([[2, 1], [1, 3]], [[2, np.nan], [np.nan, 3]]))
    is_upper = option in ("U", "u", True)
    half = np.where(np.tri(2, dtype=bool).T if is_upper else np.tri(2, dtype=bool), x, other)
    functions: list[Any] = [lambda x: np.linalg.cholesky(x, upper=option)]
    if type(option) is str:
        functions = [
            lambda x: np.linalg.eigh(x, option).eigenvalues,
            lambda x: np.linalg.eigvalsh(x, option),
        ]
    for f in functions:
        y, expected = (mg.value_and_grad(lambda x, f=f: np.sin(f(x)).sum())(a) for a in (half, x))
        for found, e in zip(y, expected):
            assert found.dtype == dtype
            np.testing.assert_allclose(found.data, e.data, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_eigenvalues_move_apart_only_if_a_gradient_is_needed(dtype: Any) -> None:
    x = np.diag([-2, 5, 5, 5, 7]).astype(dtype)
    for exact in (np.linalg.eigh(Tensor(x)), mg.eigh(Tensor(x)), mg.eigh(x)):
        assert exact.eigenvalues.tolist() == [-2, 5, 5, 5, 7]
    values = np.linalg.eigvalsh(Tensor(x, requires_grad=True))
    distance = 7e-5 if dtype == np.float32 else 4e-10
    np.testing.assert_allclose(np.diff(values.data) / 5, [1.4, distance, distance, 0.4], rtol=0.1)
    assert values.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("gap", [0, 3])
def test_derivative_that_does_not_exist_is_nan_only_for_its_matrix(gap: int, dtype: Any) -> None:
    """A function of a vector has no derivative at equal values, a function of their space has one."""
    x = np.stack([np.diag([1, 1 + gap * np.finfo(dtype).eps, 4])] * 2).astype(dtype)

    def total(x: Any) -> Any:
        vectors = np.linalg.eigh(x).eigenvectors
        space = vectors[0, :, :2] @ vectors[0, :, :2].T
        return space[0, 2] * 1e6 + vectors[1, 0, 1] * 1e-6

    g = mg.grad(total)(x)
    assert g.dtype == dtype and np.isnan(g[1].data).any()
    np.testing.assert_allclose(g[0, 0, 2].item(), -1e6 / 6, rtol=1e-3)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert not np.isfinite(mg.grad(lambda x: np.linalg.svd(x).U[0, 1])(np.eye(2)).data).all()


@pytest.mark.parametrize("shape", [(5, 2), (2, 5), (2, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_values_beside_the_default_limit_are_those_of_numpy(
    shape: tuple[int, int], dtype: Any
) -> None:
    rounding = float(np.finfo(dtype).eps)
    for limit in (1e-15, rounding, 2 * rounding, 5 * rounding):
        for factor in (0.8, 1.2):
            x = np.eye(*shape, dtype=dtype) * np.array(
                [1, limit * factor] + [0] * (shape[1] - 2), dtype
            )
            b = np.ones(shape[0], dtype)
            t = Tensor(x, requires_grad=True)
            for f in (
                np.linalg.pinv,
                np.linalg.matrix_rank,
                lambda x, b=b: np.linalg.lstsq(x, b)[0],
            ):
                np.testing.assert_allclose(np.asarray(mg.as_tensor(f(t)).data), f(x), rtol=1e-4)


def test_determinant_of_no_rows_is_1_with_an_empty_gradient() -> None:
    for shape in ((0, 0), (2, 0, 0), (0, 3, 3)):
        value, g = mg.value_and_grad(lambda x: np.linalg.det(x).sum())(np.ones(shape))
        assert value.item() == (shape[0] if shape[0] == 2 else shape == (0, 0)) and g.shape == shape


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", [(2, 4), (4, 2), (3, 3), (5, 2, 4)])
def test_singular_vectors_make_up_the_matrix_and_are_orthonormal(
    shape: tuple[int, ...], full: bool
) -> None:
    x = normal(7, *shape)
    u, s, vh = (part.data for part in np.linalg.svd(Tensor(x, requires_grad=True), full))
    k = s.shape[-1]
    np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x, atol=1e-12)
    for q in (u.mT @ u, vh @ vh.mT):
        np.testing.assert_allclose(q, np.broadcast_to(np.eye(q.shape[-1]), q.shape), atol=1e-12)
    expected = np.linalg.svd(x, full)
    assert [u.shape, s.shape, vh.shape] == [part.shape for part in expected]


LIMITS = [None, 1e-12, 0.2, 0.9]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (2, 3), (3, 2)])
def test_pseudo_inverse_has_its_derivative_if_a_limit_leaves_out_singular_values(
    limit: Any, shape: tuple[int, int]
) -> None:
    x, b = normal(2, 2, *shape), normal(3, shape[0], 2)
    for f in (
        lambda x: np.linalg.pinv(x, rtol=limit),
        lambda x: np.linalg.pinv(x, limit),
        lambda x: np.linalg.lstsq(x[0], b, limit)[0],
    ):
        np.testing.assert_allclose(f(Tensor(x, requires_grad=True)).data, f(x), rtol=1e-10)
        mg.gradcheck(f, (x,), elementwise=False)
    mixed = np.array([1e-12, 0.5])
    mg.gradcheck(lambda x: np.linalg.pinv(x, mixed), (x,), elementwise=False)


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_pseudo_inverse_of_singular_matrices_has_the_gradient_of_constant_rank(limit: Any) -> None:
    x = np.array([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, 0.0]]])
    y, pullback = mg.vjp(lambda x: np.linalg.pinv(x, limit), x)
    np.testing.assert_allclose(y.data, np.linalg.pinv(x), atol=1e-15)
    for matrix, part in zip(x, pullback(np.ones_like(x))[0].data):
        # along changes that keep the rank: multiples of the matrix, whose inverse is divided
        inverse = np.linalg.pinv(matrix)
        assert (part * matrix).sum() == pytest.approx(-inverse.sum())
    assert mg.grad(lambda x: np.linalg.pinv(x, limit).sum())(np.ones((0, 2))).shape == (0, 2)


@pytest.mark.parametrize("lower", [False, True])
def test_triangle_that_is_not_read_gets_no_gradient(lower: bool) -> None:
    c, b = normal(4, 3, 3) + 3 * np.eye(3), normal(5, 3, 2)
    for f in (
        lambda c: mg.cho_solve((c, lower), b),
        lambda c: mg.solve_triangular(c, b, lower=lower),
    ):
        g = mg.grad(lambda c, f=f: np.sin(f(c)).sum())(c).data
        unread = np.triu(g, 1) if lower else np.tril(g, -1)
        assert not unread.any() and np.count_nonzero(g) == 6
