"""Gradient checks against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..grad import gradients
from ..modes import no_grad, traced
from ..numpy.derivatives import vjp
from ..tensor import Tensor, to_array, unwrap

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(AssertionError):
    """Error for a gradient that differs from its numerical derivative."""


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
    """Compare the gradients of `f(*inputs)` with numerical derivatives.

    The results of `f` are weighted by a random cotangent. `f` must not change its inputs and must
    return the same values for the same inputs. A floating-point result that requires no gradient
    must not depend on the inputs, so lost gradients are detected.

    Parameters
    ----------
    f : callable
        Returns a tensor, or a list or tuple of tensors.
    inputs : array, Tensor, or list or tuple of them
        Inputs of dtype float64 are checked. If a tensor among them requires gradients, only such
        tensors are checked.
    eps : float
        Step of the finite differences, which use four points at `eps` and 2 `eps` (error about
        eps⁴). `f` must be smooth over that distance.
    atol, rtol : float
        Absolute and relative tolerance.
    directions : int
        Number of random directions along which derivatives are compared.
    elementwise : bool, optional
        Also compare the derivative along each element; by default for at most 100 elements.
    complex_step : bool
        Use one point at an imaginary distance, which is exact to rounding. `f` must be analytic and
        accept complex tensors. False by default.
    seed : int
        Seed of the random numbers.
    raise_exception : bool
        Raise an error for a wrong gradient, as by default, or return False.

    Returns
    -------
    bool
        True if all gradients are correct.

    Raises
    ------
    GradcheckError
        If a gradient is wrong. The message contains the values.
    """
    checker = _Checker(f, inputs, seed, eps, complex_step)
    if elementwise is None:
        elementwise = checker.size <= 100
    if directions < 1 and not elementwise:
        raise ValueError(
            f"gradcheck: directions must be at least 1 unless elements are compared, got "
            f"{directions}; pass elementwise=True"
        )
    problems = checker.along_directions(directions, atol, rtol)
    if elementwise:
        problems = checker.along_elements(atol, rtol) or problems
    if problems and raise_exception:
        raise GradcheckError(checker.report(problems))
    return not problems


def gradgradcheck(
    f: Function, inputs: Any, *, seed: int = 0, raise_exception: bool = True, **options: Any
) -> bool:
    """Compare the second derivatives of `f(*inputs)` with numerical derivatives of its gradients.

    The gradients are functions of the inputs and of the cotangent. The first derivatives must be
    the same with `create_graph` and without.

    Other parameters: as `gradcheck`.

    Parameters
    ----------
    **options
        Other options of `gradcheck`, without `complex_step`.

    Returns
    -------
    bool
        True if all second derivatives are correct.
    """
    if options.get("complex_step"):
        raise ValueError(
            "gradgradcheck: complex_step must be False, because gradients have no complex values"
        )
    checker = _Checker(f, inputs, seed, 1e-4, False)
    if not checker.tracked:
        return True
    count, again = len(checker.checked), checker.gradients(checker.ys, create_graph=True)
    for i, a, b in zip(checker.checked, checker.analytic, again):
        if not np.allclose(a, b.data, rtol=1e-10, atol=1e-12):
            if not raise_exception:
                return False
            raise GradcheckError(
                f"{checker.name}: the gradient of input {i} with create_graph must be\n{a}\ngot\n"
                f"{b.data}"
            )

    def gradient(*args: Any) -> Any:
        def of_checked(*values: Any) -> Any:
            ys = checker.results(values)
            return [ys[i] for i in checker.tracked]

        return vjp(of_checked, *args[:count])[1](*args[count:])

    gradient.__name__ = f"the gradient of {checker.name}"
    cotangents = [Tensor(checker.weights[i], requires_grad=True) for i in checker.tracked]
    inputs = [*checker.leaves, *cotangents]
    return gradcheck(gradient, inputs, seed=seed + 1, raise_exception=raise_exception, **options)


def _floating(results: Any) -> list[Any]:
    """Return the floating tensors, arrays and numbers among the results of a function."""
    results = results if isinstance(results, (tuple, list)) else [results]
    kinds = [to_array(y).dtype.kind for y in results]
    if others := [y for y, kind in zip(results, kinds) if kind not in "fciub"]:
        raise TypeError(
            "gradcheck: the function must return a tensor, or a list or tuple of tensors, got a "
            f"{type(others[0]).__name__}"
        )
    return [y for y, kind in zip(results, kinds) if kind in "fc"]


class _Checker:
    """Scalar function: the results of a function of its inputs, with random weights."""

    def __init__(self, f: Function, inputs: Any, seed: int, eps: float, complex_step: bool) -> None:
        self.f, self.eps, self.complex_step = f, eps, complex_step
        self.name = getattr(f, "__name__", type(f).__name__)
        self.rng = np.random.default_rng(seed)
        self.args = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
        tracked = [i for i, x in enumerate(self.args) if isinstance(x, Tensor) and x.requires_grad]
        self.checked = tracked or [
            i
            for i, x in enumerate(self.args)
            if isinstance(x, (np.ndarray, np.generic, Tensor)) and x.dtype.kind == "f"
        ]
        if not self.checked:
            raise ValueError("gradcheck: at least one input must have a floating dtype")
        for i in self.checked:
            if self.args[i].dtype != np.float64:
                raise TypeError(
                    f"gradcheck: inputs must be float64, for numerical derivatives, got "
                    f"{self.args[i].dtype} for input {i}"
                )
        self.leaves = [Tensor(unwrap(self.args[i]), requires_grad=True) for i in self.checked]
        self.xs = [leaf.data for leaf in self.leaves]
        self.size = sum(x.size for x in self.xs)
        self.ys = ys = self.recorded()
        self.weights = [self.rng.standard_normal(np.shape(y)) for y in ys]
        self.tracked = [i for i, y in enumerate(ys) if isinstance(y, Tensor) and y.requires_grad]
        if others := [ys[i].dtype for i in self.tracked if ys[i].dtype != np.float64]:
            raise TypeError(
                "gradcheck: the function must return float64, for numerical derivatives, got "
                f"{others[0]}"
            )
        again = self.recorded()
        self.refuse_side_effects(ys, again)
        self.analytic: list[Any] = [g.data for g in self.gradients(again)]

    def refuse_side_effects(self, ys: list[Any], again: list[Any]) -> None:
        """Raise an error if `f` does not return the same results again."""
        first, second = self.weighted(ys), self.weighted(again)
        if not np.array_equal(first, second, equal_nan=True):
            raise GradcheckError(
                f"{self.name} must not change its inputs and must return the same values, got "
                f"{first} and then {second}"
            )

    def recorded(self) -> list[Any]:
        """Return the floating results of the leaves, with their graph."""
        with traced():
            return self.results(self.leaves)

    def results(self, values: Iterable[Any]) -> list[Any]:
        """Return the floating results, with the checked inputs replaced by `values`."""
        replaced = dict(zip(self.checked, values))
        return _floating(self.f(*[replaced.get(i, x) for i, x in enumerate(self.args)]))

    def gradients(self, ys: list[Any], create_graph: bool = False) -> list[Tensor]:
        """Return the gradients of results; zeros for an input without influence."""
        live, weights = [ys[i] for i in self.tracked], [self.weights[i] for i in self.tracked]
        grads = gradients(live, self.leaves, weights, create_graph=create_graph, allow_unused=True)
        return [Tensor(np.zeros(x.shape)) if g is None else g for x, g in zip(self.leaves, grads)]

    def value(self, arrays: list[np.ndarray]) -> Any:
        """Return the weighted sum of the results, with the checked inputs at `arrays`."""
        with no_grad():
            return self.weighted(self.results(map(Tensor, arrays)))

    def weighted(self, ys: list[Any]) -> Any:
        """Return the weighted sum of results."""
        return sum(((to_array(y) * w).sum() for y, w in zip(ys, self.weights)), start=0.0)

    def slope(self, direction: list[np.ndarray]) -> float:
        """Return the numerical derivative along `direction`."""

        def at(step: Any) -> Any:
            return self.value([x + step * v for x, v in zip(self.xs, direction)])

        if self.complex_step:
            return float(at(1e-30j).imag / 1e-30)
        h = self.eps
        return float((8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h))

    def along_directions(self, count: int, atol: float, rtol: float) -> list[str]:
        """Compare derivatives along random directions; return the differences as lines."""
        problems = []
        for _ in range(count):
            direction = [self.rng.standard_normal(x.shape) for x in self.xs]
            length = np.sqrt(sum((v * v).sum() for v in direction))
            direction = [v / length for v in direction]
            expected = self.slope(direction)
            terms = [(g * v).sum() for g, v in zip(self.analytic, direction)]
            size = max(map(abs, [expected, *terms]))
            if not abs(expected - sum(terms)) <= atol + rtol * size:
                problems.append(
                    f"the derivative along a random direction must be {expected:.12g}, got "
                    f"{sum(terms):.12g}"
                )
        return problems

    def along_elements(self, atol: float, rtol: float) -> list[str]:
        """Compare derivatives along each element; return the differences as lines."""
        problems = []
        for i, x, got in zip(self.checked, self.xs, self.analytic):
            expected = np.zeros(x.shape)
            for index in np.ndindex(x.shape):
                direction = [np.zeros(other.shape) for other in self.xs]
                direction[self.checked.index(i)][index] = 1.0
                expected[index] = self.slope(direction)
            size = np.maximum(np.abs(expected), np.abs(got))
            wrong = np.argwhere(~(np.abs(expected - got) <= atol + rtol * size))
            if len(wrong):
                index = tuple(wrong[0].tolist())
                problems.append(
                    f"the derivative by element {index} of input {i} must be "
                    f"{expected[index]:.12g}, got {got[index]:.12g} ({len(wrong)} of {x.size} "
                    f"elements are wrong)\n  numerical gradient\n{expected}\n  gradient\n{got}"
                )
        return problems

    def report(self, problems: list[str]) -> str:
        """Return the message of the error for some differences."""
        shapes = ", ".join(f"{x.shape}" if hasattr(x, "shape") else repr(x) for x in self.args)
        lines = [f"wrong gradient of {self.name}, for inputs of shapes {shapes}:"]
        lines += [f"  {problem}" for problem in problems]
        lines += [f"  input {i} =\n{x}" for i, x in zip(self.checked, self.xs) if x.size <= 100]
        return "\n".join(lines)
