"""Is a gradient right? Backward passes held against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..core.errors import GradcheckError
from ..core.modes import no_grad, traced
from ..core.tensor import Tensor, unwrap
from ..derivatives import gradients, vjp

__all__ = ["gradcheck", "gradgradcheck"]

Function = Callable[..., Any]


def gradcheck(
    f: Function,
    inputs: Any,
    *,
    eps: float = 1e-4,
    atol: float = 1e-7,
    rtol: float = 1e-6,
    directions: int = 2,
    elementwise: bool | None = None,
    complex_step: bool = False,
    seed: int = 0,
    raise_exception: bool = True,
) -> bool:
    """Compare the gradients of `f(*inputs)` with numerical derivatives; True, or a GradcheckError.

    Inputs of floating dtype (float64) are checked, as arrays or as tensors; if any tensor among
    them requires gradients, then only such ones. `f` returns a tensor or several. A random
    cotangent weights the results. The derivative along random directions is compared, and, for up
    to 100 input elements or with `elementwise`, that along each element too. Finite differences use
    four points at `eps` and 2 `eps` (error about eps⁴), so `f` needs to be smooth over that
    distance; with `complex_step` they use one point at an imaginary distance instead, exact to
    rounding, which needs an `f` that is analytic and accepts complex tensors.

    A floating result that requires no gradient must not depend on the inputs: gradients that got
    lost on the way are found. `f` must not change its inputs, and must return the same for the same
    inputs.
    """
    checker = _Checker(f, inputs, seed, eps, complex_step)
    problems = checker.directional(directions, atol, rtol)
    if elementwise or (elementwise is None and checker.size <= 100):
        problems = checker.by_element(atol, rtol) or problems
    if problems and raise_exception:
        raise GradcheckError(checker.report(problems))
    return not problems


def gradgradcheck(f: Function, inputs: Any, *, seed: int = 0, **options: Any) -> bool:
    """`gradcheck` of the gradients of `f`, in inputs and cotangent; and `create_graph` changes no
    first derivative.
    """
    checker = _Checker(f, inputs, seed, 1e-4, False)
    if not checker.tracked:
        return True
    plain = checker.analytic
    with_graph = checker.pull(create_graph=True)
    for i, a, b in zip(checker.checked, plain, with_graph):
        if not np.allclose(a, b.data, rtol=1e-10, atol=1e-12):
            raise GradcheckError(
                f"{checker.name}: input {i}: create_graph gives the gradient\n{b.data}\nnot\n{a}"
            )

    def gradient(*args: Any) -> Any:
        def of_checked(*values: Any) -> Any:
            ys = checker.results(values)
            return [ys[i] for i in checker.tracked]

        return vjp(of_checked, *args[: len(plain)])[1](*args[len(plain) :])

    leaves = [Tensor(checker.xs[i].data, requires_grad=True) for i in checker.checked]
    cotangents = [Tensor(checker.weights[i], requires_grad=True) for i in checker.tracked]
    gradient.__name__ = f"the gradient of {checker.name}"
    return gradcheck(gradient, [*leaves, *cotangents], seed=seed + 1, **options)


def _results(result: Any) -> list[Any]:
    """The floating results: tensors, and arrays and numbers, which lost their gradient if they had
    one.
    """
    results = result if isinstance(result, (tuple, list)) else [result]
    return [
        y
        for y in results
        if isinstance(y, float) or getattr(getattr(y, "dtype", None), "kind", "") in ("f", "c")
    ]


class _Checker:
    """The function, its inputs, and a random weighting of its results, as one scalar function."""

    def __init__(self, f: Function, inputs: Any, seed: int, eps: float, complex_step: bool) -> None:
        self.f, self.eps, self.complex_step = f, eps, complex_step
        self.name = getattr(f, "__name__", type(f).__name__)
        self.rng = np.random.default_rng(seed)
        given = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
        chosen = [i for i, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad]
        floating = [
            i for i, x in enumerate(given) if getattr(x, "dtype", np.dtype(int)).kind == "f"
        ]
        self.checked: list[int] = chosen or floating
        if not self.checked:
            raise ValueError("gradcheck: expected at least one input of floating dtype")
        for i in self.checked:
            if given[i].dtype != np.float64:
                raise TypeError(
                    f"gradcheck: input {i} is {given[i].dtype}; numerical derivatives need float64"
                )
        self.xs = [
            Tensor(x.data if isinstance(x, Tensor) else x, requires_grad=True)
            if i in self.checked
            else x
            for i, x in enumerate(given)
        ]
        self.size = sum(self.xs[i].size for i in self.checked)
        before = [self.xs[i].data.copy() for i in self.checked]
        with traced():
            ys = _results(f(*self.xs))
        self.weights = [self.rng.standard_normal(np.shape(y)) for y in ys]
        self.tracked = [i for i, y in enumerate(ys) if isinstance(y, Tensor) and y.requires_grad]
        self.analytic: list[Any] = [g.data for g in self.pull()]
        self.refuse_side_effects(before)

    def refuse_side_effects(self, before: list[np.ndarray]) -> None:
        """An error if `f` changed its inputs, or gives other values for the same ones."""
        values = [self.value([x.copy() for x in before]) for _ in range(2)]
        if not np.array_equal(values[0], values[1], equal_nan=True):
            raise GradcheckError(
                f"{self.name}: gave {values[0]} and then {values[1]} for the same inputs"
            )
        for i, x in zip(self.checked, before):
            if not np.array_equal(self.xs[i].data, x, equal_nan=True):
                raise GradcheckError(
                    f"{self.name}: changed its input {i} in place:\n{self.xs[i].data}\nwas\n{x}"
                )

    def results(self, values: Iterable[Any]) -> list[Any]:
        """The floating results, with the checked inputs replaced by `values`."""
        args = list(self.xs)
        for i, value in zip(self.checked, values):
            args[i] = value
        return _results(self.f(*args))

    def pull(self, create_graph: bool = False) -> list[Tensor]:
        """The gradients that the backward pass gives; zeros where nothing depends on an input."""
        leaves = [self.xs[i] for i in self.checked]
        with traced():
            ys = self.results(leaves)
        live, weights = [ys[i] for i in self.tracked], [self.weights[i] for i in self.tracked]
        found = gradients(live, leaves, weights, create_graph=create_graph, allow_unused=True)
        return [Tensor(np.zeros(x.shape)) if g is None else g for x, g in zip(leaves, found)]

    def value(self, arrays: list[np.ndarray]) -> Any:
        """The weighted sum of the results, with the checked inputs at `arrays`."""
        with no_grad():
            ys = self.results(map(Tensor, arrays))
        return sum(((np.asarray(unwrap(y)) * w).sum() for y, w in zip(ys, self.weights)), start=0.0)

    def slope(self, direction: list[np.ndarray]) -> float:
        """The numerical derivative along `direction`."""

        def at(step: Any) -> Any:
            return self.value([self.xs[i].data + step * v for i, v in zip(self.checked, direction)])

        if self.complex_step:
            return float(at(1e-30j).imag / 1e-30)
        h = self.eps
        return float((8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h))

    def directional(self, count: int, atol: float, rtol: float) -> list[str]:
        problems = []
        for _ in range(count):
            direction = [self.rng.standard_normal(self.xs[i].shape) for i in self.checked]
            scale = np.sqrt(sum((v * v).sum() for v in direction)) or 1.0
            direction = [v / scale for v in direction]
            expected = self.slope(direction)
            terms = [(g * v).sum() for g, v in zip(self.analytic, direction)]
            got = float(sum(terms))
            size = max([abs(expected), *[abs(t) for t in terms]])
            if not abs(expected - got) <= atol + rtol * size:
                problems.append(
                    f"along a random direction: expected {expected:.12g}, got {got:.12g}"
                )
        return problems

    def by_element(self, atol: float, rtol: float) -> list[str]:
        problems = []
        zero = [np.zeros(self.xs[i].shape) for i in self.checked]
        for k, i in enumerate(self.checked):
            expected = np.zeros(self.xs[i].shape)
            for place in np.ndindex(expected.shape):
                direction = [z.copy() for z in zero]
                direction[k][place] = 1.0
                expected[place] = self.slope(direction)
            got = self.analytic[k]
            wrong = ~(
                np.abs(expected - got) <= atol + rtol * np.maximum(np.abs(expected), np.abs(got))
            )
            if wrong.any():
                place = tuple(int(j) for j in np.argwhere(wrong)[0])
                problems.append(
                    f"input {i}, element {place} ({int(wrong.sum())} of {wrong.size} are wrong): "
                    f"expected {expected[place]:.12g}, got {got[place]:.12g}\n"
                    f"  expected gradient\n{expected}\n  got\n{got}"
                )
        return problems

    def report(self, problems: Sequence[str]) -> str:
        shapes = ", ".join(f"{x.shape}" if hasattr(x, "shape") else repr(x) for x in self.xs)
        values = "\n".join(
            f"  input {i} =\n{self.xs[i].data}" for i in self.checked if self.xs[i].size <= 100
        )
        listed = "\n".join(f"  {problem}" for problem in problems)
        return (
            f"gradient of {self.name}, for inputs of shapes {shapes}:\n{listed}\n{values}".rstrip()
        )
