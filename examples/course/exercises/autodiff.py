"""Exercises of lesson 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from grading import Exercises

exercises = Exercises()
grade, solution = exercises.grade, exercises.solution


def _functions(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield math.exp, 0.5, 0.1
    yield lambda x: x**3, 2.0, 0.25
    yield lambda x: 1 - x**4, 1.5, 0.5  # falls
    yield math.exp, -1.0, 0.5


@exercises.add(
    cases=_functions,
    mistakes={
        "It measures one side only; f(x - h) is missing.": lambda f, x, h: (f(x + h) - f(x)) / h,
        "It measures one side only; f(x + h) is missing.": lambda f, x, h: (f(x) - f(x - h)) / h,
        "`/ 2 * h` divides by 2 and multiplies by h: write `/ (2 * h)`.": lambda f, x, h: (
            (f(x + h) - f(x - h)) / 2 * h
        ),
        "A slope may be negative: leave out abs.": lambda f, x, h: (
            abs(f(x + h) - f(x - h)) / (2 * h)
        ),
        "From x - h to x + h is 2h, not h.": lambda f, x, h: (f(x + h) - f(x - h)) / h,
        "It is the difference; divide it by 2h.": lambda f, x, h: f(x + h) - f(x - h),
        "The sign is wrong: f(x + h) comes first.": lambda f, x, h: (f(x - h) - f(x + h)) / (2 * h),
        "The h is missing below the line: divide by 2h.": lambda f, x, h: (f(x + h) - f(x - h)) / 2,
        "It measures from x - h / 2 to x + h / 2; go a whole h to each side.": lambda f, x, h: (
            (f(x + h / 2) - f(x - h / 2)) / h
        ),
        "x lies at one end; it should lie in the middle, between x - h and x + h.": lambda f, x, h: (
            (f(x + 2 * h) - f(x)) / (2 * h)
        ),
    },
)
def measured(f: Callable[[float], float], x: float, h: float) -> float:
    """Return the slope of f between x - h and x + h."""
    return (f(x + h) - f(x - h)) / (2 * h)


def _numbers(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield 2.0, 0.5
    yield -0.3, 1.7
    yield 1.2, -0.6


def _by_hand(
    square: Any = lambda y: 2 * y,
    tanh: Any = lambda u, y: 1 - y**2,
    last: Any = lambda x, w: (w, x),
) -> Any:
    def by_hand(x: float, w: float) -> tuple[float, float]:
        y = math.tanh(x * w)
        slope = square(y) * tanh(x * w, y)
        by_x, by_w = last(x, w)
        return slope * by_x, slope * by_w

    return by_hand


@exercises.add(
    cases=_numbers,
    mistakes={
        "By x comes w, the other factor of the product.": _by_hand(last=lambda x, w: (x, w)),
        "The derivative of the square, 2y, is missing.": _by_hand(lambda y: 1),
        "The derivative of tanh, 1 - y², is missing.": _by_hand(tanh=lambda u, y: 1),
        "The derivatives of square and tanh are missing.": _by_hand(lambda y: 1, lambda u, y: 1),
        "The derivative of the square is 2y, not y.": _by_hand(lambda y: y),
        "The derivative of tanh is 1 - y², not 1 - y.": _by_hand(tanh=lambda u, y: 1 - y),
        "The derivative of tanh is 1 - y² of its result y, not 1 - u².": _by_hand(
            tanh=lambda u, y: 1 - u**2
        ),
        "The last step is missing: the derivative of x w with respect to x is w, and with respect to w it is x.": _by_hand(
            last=lambda x, w: (1, 1)
        ),
        "The derivative of tanh is 1 - y², not 1 + y².": _by_hand(tanh=lambda u, y: 1 + y**2),
        "The derivative of the square is 2y of its argument y = tanh(x w), not 2 x w.": _by_hand(
            lambda y: 2 * math.atanh(y)
        ),
    },
)
def by_hand(x: float, w: float) -> tuple[float, float]:
    """Return the derivatives of tanh(x w)² with respect to x and w."""
    y = math.tanh(x * w)
    slope = 2 * y * (1 - y**2)  # of L with respect to u = x w
    return slope * w, slope * x


def _graphs(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield ([[], [], [(0, 0.5), (1, 2.0)], [(2, 0.42)], [(3, 0.76), (3, 0.76)]],)
    yield ([[], [(0, 2.0)], [(0, 3.0), (1, 5.0)], [(1, 7.0), (2, 11.0)]],)
    yield ([[], [], [(1, -2.0), (1, 0.5)], [(2, -3.0), (1, 4.0)], [(3, 0.5), (2, 6.0)]],)
    yield ([[]],)


def _backward(
    added: bool = True, first: float = 1.0, multiplied: bool = True, back: bool = True
) -> Any:
    def backward(graph: Any) -> list[float]:
        slopes = [0.0] * (len(graph) - 1) + [first]
        for child in reversed(range(len(graph))) if back else range(len(graph)):
            for parent, slope in graph[child]:
                arrived = slopes[child] * slope if multiplied else slope
                slopes[parent] = slopes[parent] + arrived if added else arrived
        return slopes

    return backward


def _forward(graph: Any) -> list[float]:
    slopes = [1.0] + [0.0] * (len(graph) - 1)
    for child, parents in enumerate(graph):
        slopes[child] += sum(slopes[parent] * slope for parent, slope in parents)
    return slopes


def _added_slopes(graph: Any) -> list[float]:
    slopes = [0.0] * (len(graph) - 1) + [1.0]
    for child in reversed(range(len(graph))):
        for parent, slope in graph[child]:
            slopes[parent] += slopes[child] + slope
    return slopes


@exercises.add(
    cases=_graphs,
    mistakes={
        "What comes back on several ways adds up: use +=.": _backward(added=False),
        "The derivative of the last value with respect to itself is 1.": _backward(first=0.0),
        "Multiply the slope by what has arrived at the child.": _backward(multiplied=False),
        "Go from the last value to the first.": _backward(back=False),
        "This is the derivative of each value with respect to the first; go from the last value to the first.": _forward,
        "The slope is added to what has arrived at the child; multiply the two.": _added_slopes,
    },
)
def backward(graph: list[list[tuple[int, float]]]) -> list[float]:
    """Return the derivative of the last value with respect to each value."""
    slopes = [0.0] * len(graph)
    slopes[-1] = 1.0
    for child in reversed(range(len(graph))):
        for parent, slope in graph[child]:
            slopes[parent] += slopes[child] * slope
    return slopes


def _matrices(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield tuple(rng.standard_normal((3, 3, 3)))
    yield tuple(rng.standard_normal(shape) for shape in ((3, 2), (3, 4), (4, 2)))
    yield tuple(3 * rng.standard_normal(shape) for shape in ((2, 4), (2, 3), (3, 4)))


@exercises.add(
    cases=_matrices,
    mistakes={
        "The two are the other way round: first by X, then by W.": lambda G, X, W: (
            X.T @ G,
            G @ W.T,
        ),
        "The derivative with respect to a matrix has the shape of this matrix; both are transposed here.": lambda G, X, W: (
            W @ G.T,
            G.T @ X,
        ),
        "W and X are not transposed.": lambda G, X, W: (G @ W, X @ G),
        "G is not used.": lambda G, X, W: (np.ones_like(G) @ W.T, X.T @ np.ones_like(G)),
        "The factors are in the wrong order.": lambda G, X, W: (W.T @ G, G @ X.T),
        "W is transposed, X is not: the second product is X.T @ G.": lambda G, X, W: (
            G @ W.T,
            X @ G,
        ),
        "X is transposed, W is not: the first product is G @ W.T.": lambda G, X, W: (
            G @ W,
            X.T @ G,
        ),
        "The product of matrices is @; here * multiplies element by element.": lambda G, X, W: (
            G * W,
            X * G,
        ),
        "The product of matrices is @; * multiplies element by element.": lambda G, X, W: (
            G * X,
            G * W,
        ),
    },
)
def matmul_gradients(G: Any, X: Any, W: Any) -> tuple[Any, Any]:
    """Return the derivatives with respect to X (n, k) and W (k, m), for G (n, m)."""
    return G @ W.T, X.T @ G


def _updates(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for rate, shapes in ((0.1, ((2, 3), (3,), ())), (0.5, ((3,), (3,)))):
        yield *([rng.standard_normal(shape) for shape in shapes] for _ in "pg"), rate


@exercises.add(
    cases=_updates,
    mistakes={
        "The step goes up the slope; subtract it.": lambda parameters, gradients, rate: [
            p + rate * g for p, g in zip(parameters, gradients)
        ],
        "The rate is not used.": lambda parameters, gradients, rate: [
            p - g for p, g in zip(parameters, gradients)
        ],
        "Only the sign of the gradient is used.": lambda parameters, gradients, rate: [
            p - rate * np.sign(g) for p, g in zip(parameters, gradients)
        ],
        "The gradient is divided by the rate; multiply it.": lambda parameters, gradients, rate: [
            p - g / rate for p, g in zip(parameters, gradients)
        ],
        "It returns the steps; subtract them from the parameters.": lambda parameters, gradients, rate: [
            rate * g for g in gradients
        ],
        "The rate multiplies the gradient, not the parameter.": lambda parameters, gradients, rate: [
            rate * p - g for p, g in zip(parameters, gradients)
        ],
    },
)
def step(parameters: list[Any], gradients: list[Any], rate: float) -> list[Any]:
    """Return new arrays: each parameter moved by `rate` times its gradient, so that the error falls."""
    return [p - rate * g for p, g in zip(parameters, gradients)]
