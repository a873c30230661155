"""Arrays of other classes, whose meaning an ndarray does not have: each is refused by name, with the fix."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import minigrad as mg


class Sparse:
    """Matrix that is no array, as those of `scipy.sparse`."""

    shape = (3,)

    def toarray(self) -> np.ndarray:
        return np.ones(3)


FOREIGN: dict[str, tuple[Callable[[], Any], str]] = {
    "masked": (
        lambda: np.ma.array([1.0, -999, 3], mask=[0, 1, 0]),
        r"a MaskedArray; write x.filled\(value\)",
    ),
    "matrix": (lambda: np.asmatrix(np.ones((3, 3))), r"a matrix; write np.asarray\(x\), and @ for"),
    "object": (
        lambda: np.array([1, 2.5, 3], object),
        r"a ndarray; write np.array\(x, dtype=float\)",
    ),
    "fraction": (lambda: Fraction(1, 3), r"a Fraction; write np.array\(x, dtype=float\)"),
    "sparse": (Sparse, r"a Sparse; write x.toarray\(\), or minigrad.matmul"),
}


NUMBERS = {("fraction", "gradient"), ("fraction", "cotangent")}
MISSHAPED = {("fraction", "weight"), ("matrix", "weight")}


def leaf(t: Any) -> Any:
    return mg.Tensor(t.data, requires_grad=True)


def rule_returning(x: Any) -> Any:
    """Return an operation whose rule returns an array."""
    return mg.custom_op(a=lambda g: x)(lambda a: a * 1.0)


USES: dict[str, Callable[[Any, Any], Any]] = {
    "operand": lambda t, x: t * x,
    "subtrahend": lambda t, x: t - x,
    "power": lambda t, x: t**x,
    "ufunc": lambda t, x: np.add(t, x),
    "function": lambda t, x: mg.maximum(t, x),
    "product": lambda t, x: mg.multiply(x, t),
    "division": lambda t, x: np.divide(x, t),
    "data": lambda t, x: mg.Tensor(x),
    "copied data": lambda t, x: mg.tensor(x),
    "kept data": lambda t, x: mg.as_tensor(x),
    "argument": lambda t, x: mg.grad(lambda x: (x**2).sum())(x),
    "target": lambda t, x: mg.cross_entropy(t, x),
    "mask": lambda t, x: mg.softmax(t, where=x),
    "sum": lambda t, x: mg.sum(t, where=x),
    "gradient": lambda t, x: (leaf(t) * 1.0).backward(x),
    "kept gradient": lambda t, x: setattr(leaf(t), "grad", x),
    "gradient of a rule": lambda t, x: rule_returning(x)(leaf(t)).sum().backward(),
    "tangent": lambda t, x: mg.jvp(np.sin, (t,), (x,)),
    "cotangent": lambda t, x: mg.vjp(np.sin, t)[1](x),
    "written value": lambda t, x: operator.setitem(t * 1.0, ..., x),
    "in place": lambda t, x: operator.iadd(t * 1.0, x),
    "copied": lambda t, x: np.copyto(t * 1.0, x),
    "put": lambda t, x: np.put(t * 1.0, [0, 1, 2], x),
    "added": lambda t, x: np.add.at(t * 1.0, [0, 1, 2], x),
    "fill value": lambda t, x: mg.full((3, 3), x),
    "weight": lambda t, x: mg.cross_entropy(mg.ones((2, 3)), np.array([0, 1]), weight=x),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize(
    ("name", "use"),
    [(n, u) for n in FOREIGN for u in USES if (n, u) not in NUMBERS and (n, u) not in MISSHAPED],
)
def test_array_of_another_class_is_refused_by_name(
    name: str, use: str, requires_grad: bool
) -> None:
    make, message = FOREIGN[name]
    t = mg.Tensor(np.ones((3, 3) if name == "matrix" else 3), requires_grad=requires_grad)
    message = f"must contain numbers and be an ndarray .* got {message}"
    with pytest.raises(TypeError, match=message):
        USES[use](t, make())


def test_masked_array_times_tensor_names_the_fix() -> None:
    masked = np.ma.array([1.0, -999, 3], mask=[0, 1, 0])
    with pytest.raises(TypeError, match=r"write x.filled\(value\) instead of the masked array x"):
        masked * mg.Tensor(np.ones(3), requires_grad=True)


def test_masked_array_as_a_place_for_the_result_is_refused() -> None:
    places = np.ma.array(np.ones(3)), np.ma.array(np.ones(3))
    with pytest.raises(TypeError, match="got a MaskedArray"):
        np.divmod(mg.Tensor(np.ones(3)), 2.0, out=places)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_scalars_memory_maps_and_lists_are_operands(requires_grad: bool, tmp_path: Any) -> None:
    t = mg.Tensor(np.ones(2), requires_grad=requires_grad)
    mapped = np.memmap(tmp_path / "x", float, "w+", shape=(2,))
    mapped[:] = 3
    for x in (
        3,
        3.0,
        np.float32(3),
        np.int64(3),
        [3.0, 3],
        (3, 3),
        np.array([3, 3]),
        mapped,
        True * 3,
    ):
        y = t * x
        assert type(y.data) is np.ndarray and y.requires_grad is requires_grad
        np.testing.assert_array_equal(y.data, [3, 3])
