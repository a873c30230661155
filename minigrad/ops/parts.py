"""The parts of numbers: whole and rest, mantissa and exponent, real and imaginary."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.forms import numpy_form
from ..core.registry import op, ufunc
from ..core.tensor import DISPATCH, Tensor, unwrap, wrap
from . import reduction
from .elementwise import exp
from .shape import astype, clone, expand_dims

__all__ = ["ldexp", "conjugate"]


@op(x=lambda g: g)
def _fraction(x, /):
    return np.modf(x)[0]


def modf(x: Any) -> tuple[Tensor, Tensor]:
    """x without its whole part, and the whole part, which has no gradient; both have the sign of x."""
    return _fraction(x), Tensor(np.modf(unwrap(x))[1])


@op(numpy=np.ldexp, x=lambda g, i: np.ldexp(g, i))
def ldexp(x, /, i):
    """x · 2ⁱ, for integers i."""
    return np.ldexp(x, i)


def frexp(x: Any) -> tuple[Tensor, Tensor]:
    """The mantissas of x, between 0.5 and 1 in size, and the powers of two, which have no gradient."""
    exponents = np.frexp(unwrap(x))[1]
    return ldexp(x, -exponents), Tensor(exponents)


DISPATCH[np.modf], DISPATCH[np.frexp] = modf, frexp


@numpy_form(np.i0)
def i0(x: Any) -> Tensor:
    """The modified Bessel function of order 0, as the mean of e^(x cos t) over half a turn.

    A mean over equal steps of a periodic function converges faster than any power of the step; this
    one is exact for every x at which the result is finite.
    """
    x = x if x.dtype.kind == "f" else astype(x, float)
    turns = np.cos(np.arange(0.5, 160) * (np.pi / 160)).astype(x.dtype)
    return reduction.mean(exp(expand_dims(x, -1) * turns), -1)


# -- real numbers as complex ones
# ----------------------------------------------------------------------

conjugate = ufunc(
    np.conjugate, "x, since it is real; of complex numbers the conjugates.", "conj", x=lambda g: g
)
numpy_form(np.real, np.real_if_close)(lambda x: clone(x))


Tensor.real = property(  # type: ignore[assignment]
    lambda x: x if x.dtype.kind != "c" else wrap(x.data.real, None),
    doc="The real part; of real numbers the tensor itself.",
)
Tensor.imag = property(  # type: ignore[assignment]
    lambda x: wrap(np.asarray(x.data.imag), None), doc="The imaginary part; of real numbers zeros."
)
