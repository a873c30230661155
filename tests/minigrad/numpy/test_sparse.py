"""Products with sparse matrices, by a stand-in for those of SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.numpy.sparse import SparseMatrix


class Matrix:
    """Matrix with the attributes of scipy.sparse that products need; only CSR and CSC multiply."""

    __array_ufunc__ = None

    def __init__(self, dense: np.ndarray, format: str) -> None:
        self.dense, self.format = dense, format
        self.data, self.shape, self.dtype = dense[dense != 0], dense.shape, dense.dtype

    @property
    def T(self) -> Matrix:
        return Matrix(self.dense.T, {"csr": "csc", "csc": "csr"}[self.format])

    def toarray(self) -> np.ndarray:
        return self.dense

    def tocsr(self) -> Matrix:
        return Matrix(self.dense, "csr")

    def __matmul__(self, x: Any) -> np.ndarray:
        assert self.format in ("csr", "csc") and type(x) is np.ndarray and x.ndim in (1, 2)
        return self.dense @ x

    def __rmatmul__(self, x: Any) -> np.ndarray:
        assert self.format in ("csr", "csc") and type(x) is np.ndarray and x.ndim == 2
        return x @ self.dense


@pytest.mark.parametrize("format", ["csr", "csc", "dia"])
@given(
    shape=st.lists(st.integers(0, 3), max_size=2).map(tuple),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    dtypes=st.tuples(*[st.sampled_from(["float64", "float32"])] * 2),
    seed=st.integers(0, 99),
)
def test_product_with_sparse_matrix_equals_product_with_dense_matrix(
    format: str, shape: tuple[int, ...], sizes: tuple[int, int], dtypes: tuple[str, str], seed: int
) -> None:
    """Rows of any number of axes are multiplied from the left, and columns of one or two by it."""
    rng, (of_matrix, dtype) = np.random.default_rng(seed), dtypes
    dense = (rng.standard_normal(sizes) * rng.integers(0, 2, sizes)).astype(of_matrix)
    matrix = Matrix(dense, format)
    calls = [((*shape, sizes[0]), lambda x: x @ matrix, lambda x: x @ dense)]
    if len(shape) < 2:
        columns = (sizes[1], *shape)
        calls.append((columns, lambda x: mg.matmul(matrix, x), lambda x: mg.matmul(dense, x)))
    for operand, *products in calls:
        x = mg.Tensor(rng.standard_normal(operand).astype(dtype), requires_grad=True)
        found, expected = (product(x) for product in products)
        assert found.dtype == np.result_type(*dtypes)
        g = rng.standard_normal(expected.shape).astype(found.dtype)
        pairs = zip((found, *mg.gradients(found, x, g)), (expected, *mg.gradients(expected, x, g)))
        for a, b in pairs:
            assert a.dtype == b.dtype
            error = 1e-6 if "float32" in (dtype, a.dtype) else 1e-12
            np.testing.assert_allclose(a.data, b.data, rtol=10 * error, atol=error)


def test_product_of_no_columns_with_sparse_matrix_is_0() -> None:
    y = mg.Tensor(np.ones((2, 0)), requires_grad=True) @ Matrix(np.ones((0, 3)), "csr")
    np.testing.assert_array_equal(y.data, np.zeros((2, 3)))


def test_matrix_times_tensor_of_three_axes_is_refused() -> None:
    matrix, x = Matrix(np.eye(2), "csr"), mg.Tensor(np.ones((2, 2, 2)), requires_grad=True)
    with pytest.raises(ValueError, match="matmul: b must have 1 or 2 axes if a is sparse"):
        mg.matmul(matrix, x)


def test_matrix_in_another_operation_or_with_options_is_refused() -> None:
    matrix = SparseMatrix(Matrix(np.eye(2), "csr"))
    for call in (lambda: matrix + matrix, lambda: np.matmul(np.eye(2), matrix, out=np.eye(2))):
        with pytest.raises(TypeError, match=r"write x.toarray\(\), or minigrad.matmul\(x, t\)"):
            call()
    for other in (matrix, 2.0):
        with pytest.raises(TypeError):
            matrix @ other
