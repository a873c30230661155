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

from ..ops.arithmetic import safe_divide
from ..registry import OPS, Op
from ..tensor import to_array
from . import activations as activations  # registers erf, whose rule is used here
from . import special as special
from .forms import refusing_gradients
from .nested import as_tensors

ROOT_PI = math.sqrt(math.pi)
DEGREE = math.pi / 180


class _SciPy:
    """The ufuncs of `scipy.special`, imported when a rule first needs one."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(importlib.import_module("scipy.special._ufuncs"), name)
        setattr(self, name, function)  # found at once the next time
        return function


sp = _SciPy()


def _normal(x: Any) -> Any:
    """Return the density of the normal distribution."""
    with np.errstate(over="ignore"):  # the square may be inf
        return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _slope_of_log_ndtr(y: Any, x: Any) -> Any:
    """Return the density of the normal distribution, divided by ndtr(x) = exp(y)."""
    low = x < -4  # where y has lost digits; ndtr underflows below -38
    tail = math.sqrt(2 / math.pi) / sp.erfcx(-math.sqrt(0.5) * np.where(low, x, 0))
    return np.where(low, tail, _normal(x) / np.exp(np.where(low, 0, y)))


def _one_less(product: Any, x: Any, sign: int) -> Any:
    """Return 1 - product, which is 2 x dawsn(x) (sign 1) or √π x erfcx(x) (sign -1).

    Far from 0, where the difference cancels, return the asymptotic series.
    """
    far = np.abs(x) > np.finfo(x.dtype).eps ** (-1 / 7)
    u = 0.5 * sign / np.where(far, x, 1) ** 2
    series = -u * (1 + 3 * u * (1 + 5 * u * (1 + 7 * u * (1 + 9 * u))))
    return np.where(far & ((sign > 0) | (x > 0)), series, 1 - product)


def _gamma_density(a: Any, x: Any) -> Any:
    """Return the density of the gamma distribution."""
    return np.exp(sp.xlogy(a - 1, x) - x - sp.gammaln(a))


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    """Return the density of the beta distribution."""
    return np.exp(sp.xlogy(a - 1, x) + sp.xlog1py(b - 1, -x) - sp.betaln(a, b))


def _t_density(df: Any, t: Any) -> Any:
    """Return the density of Student's t distribution."""
    return np.exp(-(df + 1) / 2 * np.log1p(t * t / df) - sp.betaln(df / 2, 0.5)) / np.sqrt(df)


def _f_density(a: Any, b: Any, x: Any) -> Any:
    """Return the density of the F distribution with a and b degrees of freedom."""
    scale = b + a * x
    return _beta_density(a / 2, b / 2, a * x / scale) * a * b / scale**2


def _binomial_density(k: Any, n: Any, p: Any) -> Any:
    """Return the negative derivative by p of the binomial distribution function at k."""
    k = np.floor(k)
    return _beta_density(k + 1, n - k, p)


def _slope_of_expn(n: Any, x: Any) -> Any:
    """Return expn(n - 1, x), also for n = 0; as SciPy, for the whole part of n."""
    n = np.trunc(n)
    first = np.exp(-x) * (1 + 1 / x) / x
    return np.where(n == 0, first, sp.expn(np.maximum(n - 1, 0), x))


def _slope_of_spence(x: Any) -> Any:
    """Return log(x) / (1 - x), by its series near 1."""
    u = x - 1
    near = np.abs(u) < 0.01
    series = np.polyval(np.array([(-1) ** (k + 1) / (k + 1) for k in range(9)][::-1]), u)
    far = np.where(near, 2, x)
    return np.where(near, series, np.log(far) / (1 - far))


# For each function by name, the rules of its operands in order; None for an operand without a rule.
RULES: dict[str, tuple[Callable[..., Any] | None, ...]] = {
    # the error function, and the normal distribution
    "erfc": (lambda g, x: -g * np.exp(-x * x) * (2 / ROOT_PI),),
    "erfcx": (lambda g, y, x: g * _one_less(y * x * ROOT_PI, x, -1) * (-2 / ROOT_PI),),
    "erfi": (lambda g, x: g * np.exp(x * x) * (2 / ROOT_PI),),
    "dawsn": (lambda g, y, x: g * _one_less(2 * x * y, x, 1),),
    "erfinv": (lambda g, y: g * np.exp(y * y) * (ROOT_PI / 2),),
    "erfcinv": (lambda g, y: -g * np.exp(y * y) * (ROOT_PI / 2),),
    "ndtr": (lambda g, x: g * _normal(x),),
    "log_ndtr": (lambda g, y, x: g * _slope_of_log_ndtr(y, x),),
    "ndtri": (lambda g, y: g / _normal(y),),
    # logistic functions, exponentials and logarithms
    "expit": (OPS["sigmoid"].rules["x"],),
    "logit": (lambda g, x: g / x + g / (1 - x),),
    "log_expit": (lambda g, x: g * sp.expit(-x),),
    "exp10": (lambda g, y: g * y * math.log(10),),
    "boxcox": (lambda g, x, p: g * x ** (p - 1), None),
    "boxcox1p": (lambda g, x, p: g * (1 + x) ** (p - 1), None),
    "inv_boxcox": (lambda g, y, x, p: g * y ** (1 - p), None),
    "inv_boxcox1p": (lambda g, y, x, p: g * (1 + y) ** (1 - p), None),
    # angles in degrees, and functions without cancellation
    "sindg": (lambda g, x: g * sp.cosdg(x) * DEGREE,),
    "cosdg": (lambda g, x: -g * sp.sindg(x) * DEGREE,),
    "radian": (
        lambda g: g * DEGREE,
        lambda g: g * (DEGREE / 60),
        lambda g, d, m, s: g * (DEGREE / 3600),
    ),
    "tandg": (lambda g, y: g * (1 + y * y) * DEGREE,),
    "cotdg": (lambda g, y: -g * (1 + y * y) * DEGREE,),
    "cosm1": (lambda g, x: -g * np.sin(x),),
    "exprel": (lambda g, x: g * sp.hyp1f1(2.0, 3.0, x) / 2,),
    # losses and entropies
    "huber": (
        lambda g, delta, x: g * np.maximum(np.abs(x) - delta, 0),
        lambda g, delta, x: g * np.clip(x, -delta, delta),
    ),
    "pseudo_huber": (
        lambda g, delta, x: g * (t := x * (x / (delta + (s := np.hypot(delta, x))))) * (t / s),
        lambda g, delta, x: g * x * delta / np.hypot(delta, x),
    ),
    "rel_entr": (lambda g, a, b: g * (np.log(a / b) + 1), lambda g, a, b: -g * a / b),
    "kl_div": (lambda g, a, b: g * np.log(a / b), lambda g, a, b: g * (1 - a / b)),
    "xlog1py": (
        lambda g, a, b: g * np.log1p(np.where((a == 0) & (b <= -1), 0, b)),  # 0 · log 0 is 0
        lambda g, a, b: safe_divide(g * a, 1 + b),
    ),
    "entr": (lambda g, x: -g * (np.log(x) + 1),),
    # the gamma function
    "gamma": (lambda g, y, x: g * y * sp.psi(x),),
    "gammaln": (lambda g, x: g * sp.psi(x),),
    "loggamma": (lambda g, x: g * sp.psi(x),),
    "psi": (lambda g, x: g * sp._zeta(2.0, x),),
    "_zeta": (None, lambda g, s, q: -g * s * sp._zeta(s + 1, q)),
    "beta": (
        lambda g, y, a, b: g * y * (sp.psi(a) - sp.psi(a + b)),
        lambda g, y, a, b: g * y * (sp.psi(b) - sp.psi(a + b)),
    ),
    "betaln": (
        lambda g, a, b: g * (sp.psi(a) - sp.psi(a + b)),
        lambda g, a, b: g * (sp.psi(b) - sp.psi(a + b)),
    ),
    "gammasgn": (lambda g: 0 * g,),
    "rgamma": (lambda g, y, x: -g * y * sp.psi(x),),
    "poch": (
        lambda g, y, x, m: g * y * (sp.psi(x + m) - sp.psi(x)),
        lambda g, y, x, m: g * y * sp.psi(x + m),
    ),
    "binom": (
        lambda g, y, n, k: g * y * (sp.psi(n + 1) - sp.psi(n - k + 1)),
        lambda g, y, n, k: g * y * (sp.psi(n - k + 1) - sp.psi(k + 1)),
    ),
    # distributions and their inverses, which also are integrals of the functions gamma and beta
    "gammainc": (None, lambda g, a, x: g * _gamma_density(a, x)),
    "gammaincc": (None, lambda g, a, x: -g * _gamma_density(a, x)),
    "betainc": (None, None, lambda g, a, b, x: g * _beta_density(a, b, x)),
    "betaincc": (None, None, lambda g, a, b, x: -g * _beta_density(a, b, x)),
    "gammaincinv": (None, lambda g, y, a, p: g / _gamma_density(a, y)),
    "gammainccinv": (None, lambda g, y, a, p: -g / _gamma_density(a, y)),
    "betaincinv": (None, None, lambda g, y, a, b, p: g / _beta_density(a, b, y)),
    "betainccinv": (None, None, lambda g, y, a, b, p: -g / _beta_density(a, b, y)),
    "gdtr": (None, None, lambda g, a, b, x: g * a * _gamma_density(b, a * x)),
    "gdtrc": (None, None, lambda g, a, b, x: -g * a * _gamma_density(b, a * x)),
    "chdtr": (None, lambda g, v, x: g * _gamma_density(v / 2, x / 2) / 2),
    "chdtrc": (None, lambda g, v, x: -g * _gamma_density(v / 2, x / 2) / 2),
    "chdtri": (None, lambda g, y, v, p: -g * 2 / _gamma_density(v / 2, y / 2)),
    "stdtr": (None, lambda g, df, t: g * _t_density(df, t)),
    "stdtrit": (None, lambda g, y, df, p: g / _t_density(df, y)),
    "fdtr": (None, None, lambda g, a, b, x: g * _f_density(a, b, x)),
    "fdtrc": (None, None, lambda g, a, b, x: -g * _f_density(a, b, x)),
    "fdtri": (None, None, lambda g, y, a, b, p: g / _f_density(a, b, y)),
    "pdtr": (None, lambda g, k, m: -g * _gamma_density(np.floor(k) + 1, m)),
    "pdtrc": (None, lambda g, k, m: g * _gamma_density(np.floor(k) + 1, m)),
    "pdtri": (None, lambda g, y, k, p: -g / _gamma_density(np.floor(k) + 1, y)),
    "bdtr": (None, None, lambda g, k, n, p: -g * _binomial_density(k, n, p)),
    "bdtrc": (None, None, lambda g, k, n, p: g * _binomial_density(k, n, p)),
    "bdtri": (None, None, lambda g, y, k, n, p: -g / _binomial_density(k, n, y)),
    "nbdtr": (None, None, lambda g, k, n, p: g * _beta_density(n, k + 1, p)),
    "nbdtrc": (None, None, lambda g, k, n, p: -g * _beta_density(n, k + 1, p)),
    "nbdtri": (None, None, lambda g, y, k, n, p: g / _beta_density(n, k + 1, y)),
    # exponential integrals, the dilogarithm, the omega function
    "exp1": (lambda g, x: -g * np.exp(-x) / x,),
    "expi": (lambda g, x: g * np.exp(x) / x,),
    "expn": (None, lambda g, n, x: -g * _slope_of_expn(n, x)),
    "spence": (lambda g, x: g * _slope_of_spence(x),),
    "wrightomega": (lambda g, y: g * y / (1 + y),),
    # hypergeometric functions and elliptic integrals, by the parameter m
    "hyp0f1": (None, lambda g, v, x: g * sp.hyp0f1(v + 1, x) / v),
    "hyp1f1": (None, None, lambda g, a, b, x: g * a / b * sp.hyp1f1(a + 1, b + 1, x)),
    "hyp2f1": (
        None,
        None,
        None,
        lambda g, a, b, c, x: g * a * b / c * sp.hyp2f1(a + 1, b + 1, c + 1, x),
    ),
    "hyperu": (None, None, lambda g, a, b, x: -g * a * sp.hyperu(a + 1, b + 1, x)),
    "ellipk": (lambda g, x: g * sp.hyp2f1(1.5, 1.5, 2.0, x) * (math.pi / 8),),
    "ellipkm1": (lambda g, x: -g * sp.hyp2f1(1.5, 1.5, 2.0, 1 - x) * (math.pi / 8),),
    "ellipe": (lambda g, x: -g * sp.hyp2f1(0.5, 1.5, 2.0, x) * (math.pi / 8),),
    # Legendre and Bessel functions
    "lpmv": (
        None,
        None,
        lambda g, y, m, v, x: g * (v * x * y - (v + m) * sp.lpmv(m, v - 1, x)) / (x * x - 1),
    ),
    "jv": (None, lambda g, v, x: g * (sp.jv(v - 1, x) - sp.jv(v + 1, x)) / 2),
    "iv": (None, lambda g, v, x: g * (sp.iv(v - 1, x) + sp.iv(v + 1, x)) / 2),
    "ive": (
        None,
        lambda g, y, v, x: g * ((sp.ive(v - 1, x) + sp.ive(v + 1, x)) / 2 - np.sign(x) * y),
    ),
    "kv": (None, lambda g, v, x: -g * (sp.kv(v - 1, x) + sp.kv(v + 1, x)) / 2),
    "yv": (None, lambda g, v, x: g * (sp.yv(v - 1, x) - sp.yv(v + 1, x)) / 2),
    "yn": (None, lambda g, n, x: g * (sp.yv(np.trunc(n) - 1, x) - sp.yv(np.trunc(n) + 1, x)) / 2),
    "kve": (None, lambda g, y, v, x: g * (y - (sp.kve(v - 1, x) + sp.kve(v + 1, x)) / 2)),
    "y0": (lambda g, x: -g * sp.y1(x),),
    "y1": (lambda g, x: g * (sp.y0(x) - sp.yv(2.0, x)) / 2,),
    "k0e": (lambda g, y, x: g * (y - sp.k1e(x)),),
    "k1e": (lambda g, y, x: g * (y - (sp.k0e(x) + sp.kve(2.0, x)) / 2),),
    "j0": (lambda g, x: -g * sp.j1(x),),
    "j1": (lambda g, x: g * (sp.j0(x) - sp.jv(2.0, x)) / 2,),
    "i0": (lambda g, x: g * sp.i1(x),),
    "i1": (lambda g, x: g * (sp.i0(x) + sp.iv(2.0, x)) / 2,),
    "k0": (lambda g, x: -g * sp.k1(x),),
    "k1": (lambda g, x: -g * (sp.k0(x) + sp.kv(2.0, x)) / 2,),
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

    without_rule = {*entry.operands} - {*entry.rules}
    reason = "the derivative is not implemented; use .detach()"
    return refusing_gradients(entry, without_rule, reason)


def polygamma(n: Any, x: Any) -> Any:
    """Return derivative n of the digamma function, as `scipy.special.polygamma`."""
    n = to_array(n)
    if not n.any():
        return sp.psi(x)
    if not n.all():
        raise ValueError(f"polygamma: n must be positive in all elements or 0 in all, got {n}")
    return (-1.0) ** (n + 1) * sp.gamma(n + 1.0) * sp._zeta(n + 1.0, x)


def multigammaln(a: Any, d: int) -> Any:
    """Return the logarithm of the multivariate gamma function, as `scipy.special.multigammaln`."""
    constant = d * (d - 1) / 4 * math.log(math.pi)
    return sum((sp.gammaln(a - j / 2) for j in range(1, d)), sp.gammaln(a)) + constant


def zeta(x: Any, q: Any = 1.0) -> Any:
    """Return the Hurwitz zeta function, as `scipy.special.zeta`."""
    return sp._zeta(x, q)


COMPOSED: dict[str, Callable[..., Any]] = {
    "polygamma": polygamma,
    "multigammaln": multigammaln,
    "zeta": zeta,
    "sinc": np.sinc,
}
"""Functions of `scipy.special` that are no ufuncs, by name."""


class Namespace:
    """Functions of `scipy.special` with derivatives, where SciPy looks for those of a library.

    SciPy reads this from the namespace of the array API standard, if the environment variable
    SCIPY_ARRAY_API is 1.
    """

    def __getattr__(self, name: str) -> Any:
        function = None if name.startswith("__") else getattr(sp, name, None)
        if function is None or op_of(function) is None:
            function = COMPOSED.get(name)
        if function is None:
            raise AttributeError(f"no `{name}`: its derivative is not implemented")
        return lambda *args: as_tensors(function(*args))
