"""Derivatives of functions of `scipy.special` against differences of their definitions, without SciPy."""

from __future__ import annotations

import itertools
import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.edges import beside
from support.environment import max_examples
from support.special_functions import DEFINITIONS, INVERSES

import minigrad as mg
from minigrad import Tensor
from minigrad.numpy import scipy_special
from minigrad.numpy.scipy_special import RULES
from minigrad.registry import OPS

OWN = {name for name in RULES if name in OPS}
"""Functions whose rules are those of operations, which have tests of their own."""
FRACTION = st.floats(0.15, 0.85)
POSITIVE = st.floats(0.3, 2.4)
ANY = st.floats(-2.4, 2.4)
SIGNED = st.floats(-2.4, -0.1) | st.floats(0.1, 2.4)
SMALL = st.integers(0, 4).map(float)
LARGE = st.integers(5, 6)
RANGES: dict[str, tuple[st.SearchStrategy[Any], ...]] = {
    **dict.fromkeys(("logit", "ellipk", "ellipe", "ellipkm1"), (FRACTION,)),
    **dict.fromkeys(("erfc", "erfcx", "erfi", "ndtr", "log_ndtr", "erfinv", "erfcinv", "ndtri", "log_expit", "exp10", "sindg", "cosdg", "tandg", "cosm1"), (ANY,)),
    **dict.fromkeys(("j0", "j1", "i0", "i1", "i0e", "i1e"), (SIGNED,)),
    "binom": (st.floats(1.5, 3), st.floats(0.3, 1.4)),
    "dawsn": (ANY,),
    "huber": (POSITIVE, ANY),
    "pseudo_huber": (POSITIVE, ANY),
    "_zeta": (st.floats(1.5, 3), POSITIVE),
    "expn": (SMALL, POSITIVE),
    "spence": (st.floats(0.3, 2.4) | st.floats(0.98, 1.02) | st.just(1.0),),
    **dict.fromkeys(("iv", "ive", "jv"), (SMALL, SIGNED)),
    **dict.fromkeys(("betainc", "betaincc", "betaincinv", "betainccinv"), (POSITIVE, POSITIVE, FRACTION)),
    "hyp2f1": (POSITIVE, POSITIVE, POSITIVE, st.floats(-0.8, 0.8)),
    "hyp0f1": (POSITIVE, ANY),
    "hyp1f1": (POSITIVE, POSITIVE, ANY),
    "lpmv": (st.just(1), POSITIVE, FRACTION),
    "yn": (SMALL, POSITIVE),
    "stdtr": (POSITIVE, ANY),
    "stdtrit": (POSITIVE, ANY),
    **{name: (st.floats(0, 4), POSITIVE) for name in ("pdtr", "pdtrc", "pdtri")},
    **dict.fromkeys(("bdtr", "bdtrc", "bdtri"), (SMALL, LARGE, FRACTION)),
    **{name: (st.integers(0, 4), st.integers(1, 5), FRACTION) for name in ("nbdtr", "nbdtrc", "nbdtri")},
}  # fmt: skip
"""Values of the operands of functions whose operands are not all positive; of inverses, those of the function."""


def test_each_function_with_a_definition_has_rules() -> None:
    own = {"cbrt", "erf", "exp2", "expm1", "log1p"}
    assert RULES.keys() == DEFINITIONS.keys() | INVERSES.keys() | own
    assert scipy_special.COMPOSED.keys() == {"polygamma", "multigammaln", "zeta", "sinc"}


def difference(f: Any, x: float) -> float:
    """Return the derivative of f at x, with an error of the order of h⁴."""
    h = 1e-3
    return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h)


def derivatives(name: str, operands: tuple[Any, ...], y: float) -> list[Any]:
    """Return what the rules of a function return for the cotangent 1.5; None without a rule."""
    rules = RULES[name]
    last = next(rule for rule in reversed(rules) if rule is not None)
    read = lambda rule: rule.__code__.co_varnames[: rule.__code__.co_argcount]
    names = ["x"] if len(rules) == 1 else [n for n in read(last) if n not in ("g", "y")]
    values = dict(zip(names, map(np.float64, operands))) | {"g": 1.5, "y": np.float64(y)}
    return [None if rule is None else rule(*[values[n] for n in read(rule)]) for rule in rules]


@pytest.mark.parametrize("name", [name for name in RULES if name not in OWN])
@max_examples(10)
@given(data=st.data())
def test_rule_of_special_function_equals_differences(name: str, data: st.DataObject) -> None:
    strategies = RANGES.get(name, (POSITIVE,) * len(RULES[name]))
    operands = data.draw(st.tuples(*strategies), label="operands")
    f = INVERSES.get(name) or DEFINITIONS[name]
    if name == "huber":
        assume(abs(abs(operands[1]) - operands[0]) > 1e-2)
    y = f(*operands)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scipy_special, "sp", SimpleNamespace(**DEFINITIONS))
        if name in INVERSES:
            found = derivatives(name, (*operands[:-1], y), operands[-1])
        else:
            found = derivatives(name, operands, y)
    for i, value in enumerate(found):
        if value is not None:
            along = lambda t, i=i: f(*operands[:i], t, *operands[i + 1 :])
            slope = difference(along, operands[i])
            expected = 1.5 / slope if name in INVERSES else 1.5 * slope
            assert value == pytest.approx(expected, rel=1e-6, abs=1e-8)


@given(st.floats(200, 1e6), st.sampled_from([1, -1]))
def test_slopes_far_from_zero_equal_their_expansions(x: float, sign: int) -> None:
    """For `dawsn` for both signs of x, and for `erfcx` with positive x, the products are almost 1."""
    terms = lambda s: sum(
        math.prod(range(1, 2 * k, 2)) / (s * 2 * x * x) ** k * (-s if s > 0 else -1)
        for k in range(1, 6)
    )
    (dawsn,) = derivatives("dawsn", (sign * x,), sign / (2 * x))
    assert dawsn == pytest.approx(1.5 * terms(1), rel=1e-12)
    (erfcx,) = derivatives("erfcx", (x,), 1 / (x * math.sqrt(math.pi)))
    assert erfcx == pytest.approx(-3 / math.sqrt(math.pi) * terms(-1), rel=1e-12)


def test_slope_of_log_ndtr_where_ndtr_is_zero() -> None:
    """The ratio of density and distribution function of -x is x + 1 / x - 2 / x³ ..."""
    erfcx = lambda x: 1 / (x * math.sqrt(math.pi)) * (1 - 0.5 / x**2 + 0.75 / x**4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scipy_special, "sp", SimpleNamespace(erfcx=erfcx, ndtr=DEFINITIONS["ndtr"]))
        (slope,) = derivatives("log_ndtr", (-1000.0,), -math.inf)
    assert slope == pytest.approx(1.5 * (1000 + 1e-3 - 2e-9), rel=1e-12)


@pytest.mark.parametrize("x", [-12.0, -8.0, -4.1])
def test_slope_of_log_ndtr_has_the_digits_of_single_precision_far_below_0(x: float) -> None:
    """Compare where the logarithm, which the rule gets, has few digits after the point."""
    ndtr = math.erfc(-x / math.sqrt(2)) / 2
    with pytest.MonkeyPatch.context() as patch:
        erfcx = np.vectorize(lambda x: DEFINITIONS["erfcx"](float(x)))
        patch.setattr(scipy_special, "sp", SimpleNamespace(erfcx=erfcx))
        rule = RULES["log_ndtr"][0]
        assert rule is not None
        slope = rule(1.0, np.float32(math.log(ndtr)), np.float32(x))
    x = float(np.float32(x))
    assert slope == pytest.approx(math.exp(-x * x / 2) / math.sqrt(2 * math.pi) / ndtr, rel=5e-7)


@given(st.floats(2.1, 5.0), st.integers(1, 3))
def test_composed_functions_equal_their_definitions(x: float, n: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scipy_special, "sp", SimpleNamespace(**DEFINITIONS))
        polygamma = scipy_special.polygamma(n, x)
        multigammaln = scipy_special.multigammaln(x, n)
    terms = sum((x + k) ** -(n + 1) for k in range(2000))
    rest = (x + 1999.5) ** -n / n  # of the sum, by the midpoint rule
    assert polygamma == pytest.approx((-1) ** (n + 1) * math.factorial(n) * (terms + rest))
    product = math.prod(math.gamma(x - j / 2) for j in range(n))
    assert multigammaln == pytest.approx(math.log(math.pi ** (n * (n - 1) / 4) * product))


def test_slope_of_zero_times_logarithm_by_the_zero_is_the_logarithm_or_zero() -> None:
    rule = RULES["xlog1py"][0]
    assert rule is not None
    a, b = np.array([0.0, 0.0, 0.0, 2.0]), np.array([-1.0, -1.5, -0.5, 2.0])
    np.testing.assert_allclose(rule(2.0, a, b), [0, 0, 2 * math.log(0.5), 2 * math.log(3)])


@given(sign=st.sampled_from([-1, 1]), size=beside(10**4, 10**5, 10**6))
def test_slope_of_spence_beside_the_limit_of_its_series_is_exact(sign: int, size: int) -> None:
    rule, u = RULES["spence"][0], sign * size / 1e6
    assert rule is not None
    u = (1 + u) - 1  # as rounded
    if u > -1:
        assert rule(1.0, 1 + u) == pytest.approx(-math.log1p(u) / u, rel=3e-14)


@given(n=st.integers(0, 4), part=st.floats(0, 0.9), x=FRACTION)
def test_slope_for_an_order_with_decimals_is_that_of_its_whole_part(
    n: int, part: float, x: float
) -> None:
    """SciPy truncates these orders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scipy_special, "sp", SimpleNamespace(**DEFINITIONS))
        for name in ("expn", "yn", "pdtr", "pdtrc", "pdtri", "bdtr", "bdtrc", "bdtri"):
            others = (6, x)[name[0] != "b" :]
            slopes = [
                [g for g in derivatives(name, (order, *others), 0.4) if g is not None]
                for order in (n + part, float(n))
            ]
            assert slopes[0] == slopes[1]


def test_ufunc_of_scipy_is_known_by_its_name_and_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """`np.float_power` stands for a ufunc of SciPy, and has a rule by its second operand only."""
    a, b = np.array([2.0, 3.0]), Tensor([1.0, -1.0], requires_grad=True)
    rules = (None, lambda g, y, a, b: g * y * np.log(a))
    monkeypatch.setitem(RULES, "float_power", rules)
    module = SimpleNamespace(float_power=np.exp)  # another function of this name
    monkeypatch.setitem(sys.modules, "scipy.special._ufuncs", module)
    scipy_special.op_of.cache_clear()
    with pytest.raises(TypeError, match=r"float_power has no rule for Tensors"):
        np.float_power(a, b)
    module.float_power = np.float_power
    scipy_special.op_of.cache_clear()
    y = np.float_power(a, b)
    np.testing.assert_allclose(mg.gradients(y, b, a)[0].data, a * a**b.data * np.log(a))
    with pytest.raises(TypeError, match="float_power: a must not require gradients, because the"):
        np.float_power(b, b)
    monkeypatch.setitem(RULES, "float_power", (lambda g: 2 * g, rules[1]))
    scipy_special.op_of.cache_clear()
    grads = mg.gradients(np.float_power(t := Tensor([2.0], True), b[:1]).sum(), [t, b])
    assert [g.data[0] for g in grads] == pytest.approx([2, 2 * math.log(2)])
    with pytest.raises(TypeError, match=r"float_power.outer has no rule for Tensors"):
        np.float_power.outer(a, b)
    scipy_special.op_of.cache_clear()


def test_namespace_of_scipy_has_functions_with_derivatives_and_others_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {f.__name__: f for f in (np.float_power, np.spacing)}
    stand_in = SimpleNamespace(**{**DEFINITIONS, **names})
    monkeypatch.setattr(scipy_special, "sp", stand_in)
    monkeypatch.setitem(sys.modules, "scipy.special._ufuncs", stand_in)
    monkeypatch.setitem(RULES, "float_power", (None, lambda g, y, a, b: g * y * np.log(a)))
    scipy_special.op_of.cache_clear()
    special = scipy_special.Namespace()
    t = Tensor([2.5], requires_grad=True)
    assert mg.gradients(special.float_power(2.0, t).sum(), t)[0].tolist() == pytest.approx(
        [2**2.5 * math.log(2)]
    )
    assert float(special.polygamma(1, 2.5)) == DEFINITIONS["_zeta"](2.0, 2.5)
    assert float(special.multigammaln(2.5, 1)) == DEFINITIONS["gammaln"](2.5)
    assert float(special.zeta(2.5)) == DEFINITIONS["_zeta"](2.5, 1.0)
    assert float(special.sinc(0.5)) == np.sinc(0.5)
    for name in ("spacing", "airy", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"no `{name}`: its derivative is not implemented"):
            getattr(special, name)
    scipy_special.op_of.cache_clear()


def test_polygamma_of_zero_is_psi_and_of_zeros_among_others_is_refused() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scipy_special, "sp", SimpleNamespace(**DEFINITIONS))
        assert scipy_special.polygamma([0, 0], 1.5) == DEFINITIONS["psi"](1.5)
        assert scipy_special.zeta(2.5) == DEFINITIONS["_zeta"](2.5, 1.0)
        with pytest.raises(ValueError, match="polygamma: n must be positive in all elements or 0 "):
            scipy_special.polygamma([0, 1], 1.5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_slope_of_dawsn_has_the_digits_of_its_dtype_at_every_size(dtype: Any) -> None:
    """1 - 2 x dawsn(x) cancels for large x, from a size on that depends on the dtype."""
    rule = RULES["dawsn"][0]
    for size in 10.0 ** np.arange(0.8, 4, 0.05):
        x = dtype(size)
        u = 1 / (2.0 * float(x) ** 2)
        terms = [math.prod(range(1, 2 * k, 2)) * u**k for k in range(1, 20)]
        expected = -sum(itertools.takewhile(lambda t: t > 1e-18, terms))
        y = dtype((1 - expected) / (2 * float(x)))
        assert rule is not None
        eps = float(np.finfo(dtype).eps)
        error = 3 * eps if x > 1.01 * eps ** (-1 / 7) else 100 * eps ** (5 / 7)
        assert rule(1.0, y, x) == pytest.approx(expected, rel=error)
