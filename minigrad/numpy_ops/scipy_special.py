"""Derivatives of the ufuncs of `scipy.special`; SciPy is imported by the caller.

`scipy.special.gammaln(t)` of a tensor returns a tensor with derivatives of every order. The rules
are mostly from Abramowitz, Stegun (1964), chapters 5 to 9 and 26. Functions of SciPy that are not
ufuncs (logsumexp, softmax, log_softmax) are minigrad's functions of these names.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..core.nested import needs_gradient
from ..core.op import Op
from ..core.registry import OPS
from ..core.tensor import DISPATCH
from ..ops import activations as activations  # registers erf, whose rule is used here
from ..ops.elementwise import safe_divide
from . import special as special

ROOT_PI = math.sqrt(math.pi)


class _SciPy:
    """Module `scipy.special`, imported when a rule first needs it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("scipy.special"), name)


sp = _SciPy()


def _normal(x: Any) -> Any:
    """Return the density of the normal distribution."""
    with np.errstate(over="ignore"):  # the square may be inf
        return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _slope_of_log_ndtr(x: Any) -> Any:
    """Return the density of the normal distribution, divided by ndtr(x)."""
    low, high = np.where(x < 0, x, 0), np.where(x < 0, 0, x)
    tail = math.sqrt(2 / math.pi) / sp.erfcx(-math.sqrt(0.5) * low)  # ndtr underflows below -38
    return np.where(x < 0, tail, _normal(high) / sp.ndtr(high))


def _slope_of_erfcx(y: Any, x: Any) -> Any:
    """Return 2 x erfcx(x) - 2 / √π, by its asymptotic series where the terms cancel."""
    far = x > 100
    u = 0.5 / np.where(far, x, 1) ** 2
    series = -2 * u * (1 - 3 * u * (1 - 5 * u * (1 - 7 * u * (1 - 9 * u))))
    return np.where(far, series / ROOT_PI, 2 * x * y - 2 / ROOT_PI)


def _gamma_density(a: Any, x: Any) -> Any:
    """Return the density of the gamma distribution."""
    return np.exp(sp.xlogy(a - 1, x) - x - sp.gammaln(a))


# For each function by name, the rules of its operands in order; None for an operand without a rule.
RULES: dict[str, tuple[Callable[..., Any] | None, ...]] = {
    # the error function, and the normal distribution
    "erfc": (lambda g, x: -g * np.exp(-x * x) * (2 / ROOT_PI),),
    "erfcx": (lambda g, y, x: g * _slope_of_erfcx(y, x),),
    "erfinv": (lambda g, y: g * np.exp(y * y) * (ROOT_PI / 2),),
    "ndtr": (lambda g, x: g * _normal(x),),
    "log_ndtr": (lambda g, x: g * _slope_of_log_ndtr(x),),
    "ndtri": (lambda g, y: g / _normal(y),),
    # logistic functions, exponentials and logarithms
    "expit": (lambda g, y: g * y * (1 - y),),
    "logit": (lambda g, x: g / (x * (1 - x)),),
    # entropies
    "xlog1py": (
        lambda g, a, b: g * np.log1p(np.where((a == 0) & (b <= -1), 0, b)),  # 0 · log 0 is 0
        lambda g, a, b: safe_divide(g * a, 1 + b),
    ),
    "entr": (lambda g, x: -g * (np.log(x) + 1),),
    # the gamma function
    "gamma": (lambda g, y, x: g * y * sp.psi(x),),
    "gammaln": (lambda g, x: g * sp.psi(x),),
    "psi": (lambda g, x: g * sp.zeta(2.0, x),),
    "_zeta": (None, lambda g, s, q: -g * s * sp.zeta(s + 1, q)),
    "beta": (
        lambda g, y, a, b: g * y * (sp.psi(a) - sp.psi(a + b)),
        lambda g, y, a, b: g * y * (sp.psi(b) - sp.psi(a + b)),
    ),
    "betaln": (
        lambda g, a, b: g * (sp.psi(a) - sp.psi(a + b)),
        lambda g, a, b: g * (sp.psi(b) - sp.psi(a + b)),
    ),
    "gammainc": (None, lambda g, a, x: g * _gamma_density(a, x)),
    "gammaincc": (None, lambda g, a, x: -g * _gamma_density(a, x)),
    # Bessel functions
    "jv": (None, lambda g, v, x: g * (sp.jv(v - 1, x) - sp.jv(v + 1, x)) / 2),
    "iv": (None, lambda g, v, x: g * (sp.iv(v - 1, x) + sp.iv(v + 1, x)) / 2),
    "ive": (
        None,
        lambda g, y, v, x: g * ((sp.ive(v - 1, x) + sp.ive(v + 1, x)) / 2 - np.sign(x) * y),
    ),
    "j0": (lambda g, x: -g * sp.j1(x),),
    "j1": (lambda g, x: g * (sp.j0(x) - sp.jv(2.0, x)) / 2,),
    "i0": (lambda g, x: g * sp.i1(x),),
    "i1": (lambda g, x: g * (sp.i0(x) + sp.iv(2.0, x)) / 2,),
    "i0e": (lambda g, y, x: g * (sp.i1e(x) - np.sign(x) * y),),
    "i1e": (lambda g, y, x: g * ((sp.i0e(x) + sp.ive(2.0, x)) / 2 - np.sign(x) * y),),
}

RULES |= {
    name: tuple(OPS[name].rules.values())
    for name in ("erf", "exp2", "expm1", "log1p", "cbrt", "xlogy")
}


@cache
def op_of(ufunc: np.ufunc) -> Op | None:
    """Return the op of a ufunc of SciPy, or None if its derivative is not implemented."""
    rules = RULES.get(ufunc.__name__)
    original = getattr(sys.modules.get("scipy.special._ufuncs"), ufunc.__name__, None)
    if rules is None or ufunc is not original:  # other libraries may use these names
        return None
    if len(rules) == 1:
        return Op(ufunc, {"x": rules[0]})  # type: ignore[dict-item]
    last = next(rule for rule in reversed(rules) if rule is not None)
    code = last.__code__
    operands = tuple(
        name for name in code.co_varnames[: code.co_argcount] if name not in ("g", "y")
    )
    known = {x: rule for x, rule in zip(operands, rules) if rule is not None}
    return Op(ufunc, known, operands=operands)


def by_name(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """Return the function that handles a ufunc of SciPy for tracked tensors, or None."""
    entry = op_of(ufunc)
    if entry is None:
        return None

    def call(*inputs: Any) -> Any:
        for name, x in zip(entry.operands, inputs):
            if name not in entry.rules and needs_gradient(x):
                raise TypeError(
                    f"{entry.name}: {name} must not require gradients, because the derivative is "
                    "not implemented; use .detach()"
                )
        return entry.function(*inputs)

    return call


DISPATCH["a ufunc by its name"] = by_name
