"""Functions of `scipy.linalg` by the same names, which need NumPy only.

SciPy converts the arguments of its own functions to ndarrays, so they cannot have gradients.

References
----------
N. Higham (2005), "The scaling and squaring method for the matrix exponential revisited", for expm.
A. Al-Mohy, N. Higham (2009), "Computing the Fréchet derivative of the matrix exponential", for its
derivative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import check_choice
from ..ops.shape import getitem, swapaxes
from ..registry import Op, either, function, op
from ..tensor import Tensor, as_operand, unwrap
from .batched import all_true
from .indexing import scatter
from .linalg import cholesky, invert_lower, keep_inverse, solve, triangle_weights, tril, triu

__all__ = ["solve_triangular", "cho_factor", "cho_solve", "solve_banded", "expm"]

# -- linear equations


@function()
def solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Tensor:
    """Compute the solutions x of a @ x = b for triangular matrices a.

    Parameters
    ----------
    a : array_like, shape (..., n, n)
        Only one triangle is read.
    b : array_like, shape (n,) or (..., n, k)
    trans : {0, 1, "N", "T"}
        Solve a.mT @ x = b for 1 and "T"; 0 by default.
    lower : bool
        Read the lower triangle; False by default, for the upper triangle.
    unit_diagonal : bool
        Replace the diagonal of a by ones; False by default.
    """
    check_choice("solve_triangular", "trans", str(trans), "0", "1", "N", "T")
    a = as_operand(a)
    t = tril(a, -unit_diagonal) if lower else triu(a, int(unit_diagonal))
    if unit_diagonal:
        t = t + np.eye(a.shape[-1], dtype=a.dtype)
    else:
        _check_diagonal("solve_triangular", "a", a)
    return solve(swapaxes(t, -1, -2) if trans in (1, "1", "T") else t, b)


def _check_diagonal(function: str, name: str, a: Any) -> None:
    if not all_true(np.diagonal(unwrap(a), 0, -2, -1)):
        raise np.linalg.LinAlgError(f"{function}: the diagonal of {name} must not contain 0")


@function()
def cho_factor(a: Any, lower: bool = False) -> tuple[Tensor, bool]:
    """Compute the Cholesky factors of matrices, for `cho_solve`.

    Parameters
    ----------
    a : array_like, shape (..., n, n)
        Symmetric, positive definite matrices. Only one triangle is read.
    lower : bool
        Read and return lower triangles; False by default, for upper triangles.

    Returns
    -------
    tuple
        Triangles, shape (..., n, n), and `lower`. In contrast to SciPy, the other triangle is 0.
    """
    return cholesky(a, upper=not lower), bool(lower)


def _solve_twice(c: Any, b: Any) -> Tensor:
    t = tril(c)
    return solve(swapaxes(t, -1, -2), solve(t, b))


def _cho_gradients(g: Any, y: Any, c: Any, b: Any, saved: Any) -> tuple[Any, Any]:
    keep_inverse(c, saved)  # c and saved are as they were when x was computed
    middle, g_middle = saved @ b, saved @ g
    g_b = saved.mT @ g_middle
    left, right = np.concatenate([g_b, y], -1), np.concatenate([middle, g_middle], -1)
    return np.where(triangle_weights(c.shape[-1], bool), -left @ right.mT, 0), g_b


def _cho_solve(c: Any, b: Any, /) -> Any:
    inverse = invert_lower(c)
    return inverse.mT @ (inverse @ b), inverse


_solved_twice = Op(_cho_solve, {}, vjp=_cho_gradients, definition=_solve_twice).function


@function()
def cho_solve(c_and_lower: tuple[Any, bool], b: Any) -> Tensor:
    """Compute the solutions x of a @ x = b from the Cholesky factors of a.

    Parameters
    ----------
    c_and_lower : tuple
        Result of `cho_factor`.
    b : array_like, shape (n,) or (..., n, k)
    """
    c, lower = c_and_lower
    c, b = as_operand(c), as_operand(b)
    _check_diagonal("cho_solve", "c", c)
    x = _solved_twice(c if lower else swapaxes(c, -1, -2), b[:, None] if b.ndim == 1 else b)
    return x[..., 0] if b.ndim == 1 else x


@function()
def solve_banded(l_and_u: tuple[int, int], ab: Any, b: Any) -> Tensor:
    """Compute the solution x of a @ x = b for a matrix that is 0 outside a band.

    The matrix is solved as a dense matrix: SciPy is faster if no gradient is needed.

    Parameters
    ----------
    l_and_u : tuple of int
        Numbers of diagonals below and above the main diagonal.
    ab : array_like, shape (l + u + 1, n)
        Diagonals of a in rows: ab[u + i - j, j] is a[i, j].
    b : array_like, shape (n,) or (n, k)
    """
    below, above = l_and_u
    shape = np.shape(ab)
    if len(shape) != 2 or shape[0] != below + above + 1:
        raise ValueError(
            f"solve_banded: ab must have shape (l + u + 1, n) for l, u = {below}, {above}, got "
            f"{shape}"
        )
    n = shape[1]
    row, j = np.ogrid[: shape[0], :n]
    i = row + j - above
    rows, columns = np.nonzero((i >= 0) & (i < n))
    a = scatter(getitem(ab, (rows, columns)), index=(i[rows, columns], columns), shape=(n, n))
    return solve(a, b)


# -- the exponential

_DEGREE = 13
_MAX_NORM = 5.37  # of a matrix whose exponential the Padé approximant has to double precision


def _pade_coefficients() -> list[float]:
    """Return the coefficients of the numerator of the Padé approximant of exp."""
    coefficients = [1.0]
    for k in range(1, _DEGREE + 1):
        coefficients.append(coefficients[-1] * (_DEGREE - k + 1) / (k * (2 * _DEGREE - k + 1)))
    return coefficients


def _expm_gradient(g: Any, x: Any) -> Any:
    """Return the derivative of exp at x.mT in the direction g, a block of a larger exponential."""
    n = x.shape[-1]
    top = np.concatenate([x.mT, g], -1)
    bottom = np.concatenate([np.zeros_like(g), x.mT], -1)
    return either(expm)(np.concatenate([top, bottom], -2))[..., :n, n:]


@op(x=_expm_gradient)
def expm(x, /):
    """Compute the exponentials of square matrices.

    Parameters
    ----------
    x : array_like, shape (..., n, n)
    """
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise np.linalg.LinAlgError("x must be square matrices")
    if not x.size:
        return x.copy()
    x = x if x.dtype.kind in "fc" else x.astype(float)
    norm = np.abs(x).sum(-2).max(-1)
    is_large = (norm > _MAX_NORM) & np.isfinite(norm)
    squarings = np.where(is_large, np.ceil(np.log2(np.where(is_large, norm, 1) / _MAX_NORM)), 0)
    x = x / np.exp2(squarings)[..., None, None]
    even = odd = np.zeros_like(x)
    power, square = np.eye(x.shape[-1], dtype=x.dtype), x @ x
    coefficients = _pade_coefficients()
    for c_even, c_odd in zip(coefficients[::2], coefficients[1::2]):
        even, odd = even + c_even * power, odd + c_odd * power
        power = power @ square
    odd = x @ odd
    y = np.linalg.solve(even - odd, even + odd)
    done = 0
    while not all_true(squarings <= done):
        y = np.where((squarings > done)[..., None, None], y @ y, y)
        done += 1
    return y
