"""Graders for the exercises of the course: a reader's function against a reference on hidden cases.

An exercise is its reference solution, cases to try, and the mistakes that readers make, each with a sentence that says
what is wrong. `grade(function)` returns the reader's function if it is right and the reference otherwise, so that the
cells below always run.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from labels import label

import minigrad as mg

__all__ = ["Exercise", "Exercises", "check"]

Function = Callable[..., Any]


@dataclass
class Exercise:
    """Reference solution, with hidden cases and typical mistakes to judge another one."""

    reference: Function
    cases: Callable[[np.random.Generator], Iterator[tuple[Any, ...]]]
    mistakes: dict[str, Function] = field(default_factory=dict)
    differentiable: bool = False
    tolerance: float = 1e-6

    def judge(self, answer: Function) -> str:
        """Return what is wrong with an answer; "" if nothing is, "…" if there is no answer yet."""
        for number, arguments in enumerate(self.cases(np.random.default_rng(0)), 1):
            expected = self.reference(*copy.deepcopy(arguments))
            inputs = copy.deepcopy(arguments)
            shapes = self._described(arguments)
            phrase = "case {number} ({shapes}): " if shapes else "case {number}: "
            case = label(phrase, number=number, shapes=shapes)
            try:
                result = answer(*inputs)
            except Exception as error:
                return case + label("it raises {error}", error=f"{type(error).__name__}: {error}")
            if result is None:
                return "…"
            wrong = self._difference(result, expected)
            if wrong:
                return self._known_mistake(answer) or case + wrong
            if self._difference(list(inputs), list(arguments)):
                return case + label("it changes its arguments")
        return self._wrong_gradient(answer) if self.differentiable else ""

    def source(self) -> str:
        """Return the code of the reference solution."""
        return re.sub(r"\A(@.*?\n)(?=def )", "", inspect.getsource(self.reference), flags=re.S)

    def _described(self, arguments: tuple[Any, ...]) -> str:
        """Return the shapes of the arrays and the values of the numbers among arguments."""
        names = inspect.signature(self.reference).parameters
        shown = [
            f"{name} {np.shape(value)}" if hasattr(value, "shape") else f"{name} = {value}"
            for name, value in zip(names, arguments)
            if hasattr(value, "shape") or isinstance(value, (int, float))
        ]
        return ", ".join(shown)

    def _difference(self, found: Any, expected: Any) -> str:
        if isinstance(expected, (list, tuple)):
            is_sequence = isinstance(found, (list, tuple)) or (
                isinstance(found, np.ndarray) and found.ndim > 0
            )
            if not is_sequence or len(found) != len(expected):
                kind = f"{len(expected)} × {type(expected[0]).__name__}" if expected else "()"
                return label(
                    "it returns {type}; expected {expected}",
                    type=type(found).__name__,
                    expected=f"{type(expected).__name__}, {kind}",
                )
            return next(filter(None, map(self._difference, found, expected)), "")
        if isinstance(expected, dict):
            if not isinstance(found, dict) or found.keys() != expected.keys():
                return label(
                    "it returns {type}; expected {expected}",
                    type=type(found).__name__,
                    expected=f"dict, {', '.join(map(str, expected))}",
                )
            return self._difference([found[key] for key in expected], list(expected.values()))
        if expected is None or isinstance(expected, str) or callable(expected):
            same = isinstance(found, type(expected)) and found == expected
            return (
                ""
                if same
                else label(
                    "it returns {value}; expected {expected}", value=found, expected=expected
                )
            )
        if isinstance(found, (list, tuple)) and np.ndim(expected):
            return label(
                "it returns {type}; expected {expected}",
                type=type(found).__name__,
                expected=type(expected).__name__,
            )
        if isinstance(found, mg.Tensor) and not isinstance(expected, mg.Tensor):
            return label(
                "it returns {type}; expected {expected}: the cells below compute with arrays, so return its .data",
                type="Tensor",
                expected=type(expected).__name__,
            )
        try:
            a, b = (np.asarray(getattr(value, "data", value), float) for value in (found, expected))
        except (TypeError, ValueError):
            return label(
                "it returns {type}; expected {expected}",
                type=type(found).__name__,
                expected=type(expected).__name__,
            )
        if a.shape != b.shape:
            return label(
                "it returns shape {shape}; expected {expected}", shape=a.shape, expected=b.shape
            )
        if np.allclose(a, b, self.tolerance, self.tolerance, equal_nan=True):
            if isinstance(expected, mg.Tensor) and found.dtype != expected.dtype:
                return label(
                    "it returns {type}; expected {expected}: np.sqrt(2) is float64, which makes a tensor float64, "
                    "and 2**0.5 does not",
                    type=found.dtype.name,
                    expected=expected.dtype.name,
                )
            return ""
        if b.size == 1:
            value, wanted = _distinct(a.item(), b.item(), 6)
            return label("it returns {value}; expected {expected}", value=value, expected=wanted)
        gaps = np.where(np.isnan(a), np.inf, np.abs(a - b))
        at = np.unravel_index(gaps.argmax(), gaps.shape)
        value, wanted = _distinct(a[at], b[at], 4)
        return label(
            "the value at {index} is {value}; expected {expected}",
            index=[int(i) for i in at],
            value=value,
            expected=wanted,
        )

    def _known_mistake(self, answer: Function) -> str:
        """Return the sentence about the mistake that gives the same results as the answer, if any."""
        cases = list(self.cases(np.random.default_rng(0)))
        for sentence, mistake in self.mistakes.items():
            pairs = ((_outcome(answer, case), _outcome(mistake, case)) for case in cases)
            if not any(self._difference(found, wrong) for found, wrong in pairs):
                return label(sentence)
        return ""

    def _wrong_gradient(self, answer: Function) -> str:
        """Return what is wrong with the derivatives of an answer by all tensors and arrays."""
        try:
            found = self._gradients(answer)
        except Exception as error:
            return label(
                "it is right for arrays; with tensors, whose derivatives the lesson needs, it raises {error}",
                error=f"{type(error).__name__}: {error}",
            )
        if self._difference(found, self._gradients(self.reference)):
            return label(
                "its gradient is missing or wrong: compute with tensors, not with their .data"
            )
        return ""

    def _gradients(self, function: Function) -> list[np.ndarray]:
        arguments = copy.deepcopy(next(iter(self.cases(np.random.default_rng(0)))))
        leaves: list[mg.Tensor] = []
        result = function(*(_as_leaves(argument, leaves) for argument in arguments))
        if not isinstance(result, mg.Tensor) or not result.requires_grad:
            return []
        cotangent = np.random.default_rng(1).standard_normal(result.shape)
        gradients = mg.gradients((result * cotangent).sum(), leaves, allow_unused=True)
        return [np.zeros(t.shape) if g is None else g.data for g, t in zip(gradients, leaves)]


def _distinct(a: float, b: float, digits: int) -> tuple[str, str]:
    """Return two different numbers with so many digits that they look different."""
    while f"{a:.{digits}g}" == f"{b:.{digits}g}" and digits < 17:
        digits += 1
    return f"{a:.{digits}g}", f"{b:.{digits}g}"


def _outcome(function: Function, case: tuple[Any, ...]) -> Any:
    """Return the result of a function, or the name of its error."""
    try:
        return function(*copy.deepcopy(case))
    except Exception as error:
        return type(error).__name__


def _as_leaves(argument: Any, leaves: list[mg.Tensor]) -> Any:
    """Replace the arrays of real numbers in an argument by tensors, and append these to `leaves`."""
    if isinstance(argument, dict):
        return {key: _as_leaves(value, leaves) for key, value in argument.items()}
    real = isinstance(argument, np.ndarray) and argument.dtype.kind == "f"
    if real or isinstance(argument, mg.Tensor):
        leaves.append(
            mg.Tensor(
                getattr(argument, "data", argument) if not real else argument, requires_grad=True
            )
        )
        return leaves[-1]
    return argument


class Exercises(dict[str, Exercise]):
    """Exercises of a lesson by the name of their function."""

    def add(self, **settings: Any) -> Callable[[Function], Function]:
        """Return a decorator that makes a reference solution an exercise; see `Exercise`."""

        def add(reference: Function) -> Function:
            self[reference.__name__] = Exercise(reference, **settings)
            return reference

        return add

    def grade(self, answer: Function) -> Function:
        """Print whether a function is right, and return the one to go on with."""
        exercise = self[answer.__name__]
        wrong = exercise.judge(answer)
        if wrong == "…":
            print(
                "…",
                f"{answer.__name__}:",
                label("not yet: replace the dots by your code, and return the result."),
            )
        elif wrong:
            print("✗", f"{answer.__name__}:", label("not right."), wrong)
            print(" ", label("Until it is right, the notebook goes on with our solution."))
        else:
            print("✓", f"{answer.__name__}:", label("right"))
        return exercise.reference if wrong else answer

    def solution(self, function: Function) -> None:
        """Print the reference solution of a function."""
        print(self[function.__name__].source())


def check(holds: Any, text: str, *values: Any) -> None:
    """Print values that the lesson states, in the braces of a text, and stop if the statement is false."""
    if not holds:
        raise AssertionError(text.format(*values))
    print("✓", label(text, *values))
