"""Graders for the exercises of the course: a reader's function against a reference on hidden cases.

An exercise is its reference solution, cases to try, and the mistakes that readers make, each with a sentence that says
what is wrong. `grade(function, name)` returns the reader's function if it is right and the reference otherwise, so that
the cells below always run. A result must have the right values, and the types that the cells below need.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from labels import label

import minigrad as mg

__all__ = ["Exercise", "Exercises", "check"]

Function = Callable[..., Any]
Path = tuple[int, ...]
"""Indices of an element of a result: (1,) is result[1]."""

RELATIONS: dict[str, Callable[[Any], Any]] = {
    "Every sign is wrong.": lambda b: -b,
    "Negative values lost their sign.": abs,
    "Every value is the square of the right one.": lambda b: b**2,
    "Every value is the root of the right one.": np.sqrt,
    "Every value is 1 minus the right one.": lambda b: 1 - b,
    "Every value is 1 divided by the right one.": lambda b: 1 / b,
    "Every value is the exponential of the right one.": np.exp,
    "Every value is the logarithm of the right one.": np.log,
    "Every value is 2 to the power of the right one.": np.exp2,
}
"""Sentences about values that are a function of the right ones."""
SHAPES = "The shapes do not fit: `keepdims=True` keeps the axis of a sum, a mean or a maximum."
MOVED: dict[str, Callable[[Any], Any]] = {
    "Rows and columns are exchanged: transpose the result.": lambda b: b.swapaxes(-1, -2),
    "The order is reversed.": lambda b: b[::-1],
    "The values are right, but some are in wrong places.": lambda b: np.sort(b, None),
}
"""Sentences about the right values in other places."""


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
        for number, arguments in enumerate(self._cases(), 1):
            expected = self.reference(*copy.deepcopy(arguments))
            inputs = copy.deepcopy(arguments)
            shapes = self._described(arguments)
            phrase = "case {number} ({shapes}): " if shapes else "case {number}: "
            case = label(phrase, number=number, shapes=shapes)
            try:
                result = answer(*inputs)
            except Exception as error:
                raised = label("it raises {error}", error=f"{type(error).__name__}: {error}")
                if "could not be broadcast" in str(error):
                    raised += "\n  " + label(SHAPES)
                known = self._known_mistake(answer, number - 1)
                return known or case + raised
            if result is None and number == 1:
                return "…"
            path, wrong = self._difference(result, expected, _has_tensor(arguments))
            if wrong:
                at = "".join(f"[{i}]" for i in path)
                where = f"result{at}: " if path else ""
                known = self._known_mistake(answer, number - 1)
                return known or case + where + wrong + self._hint(answer, path, arguments)
            for name, before, after in zip(self._names(), arguments, inputs):
                if self._difference(after, before)[1]:
                    return case + label(
                        "it changes its argument {name}: `x -= y` writes into the array x, and `x = x - y` does not",
                        name=name,
                    )
        return self._wrong_gradient(answer) if self.differentiable else ""

    def is_list(self, answer: Function) -> bool:
        """Return whether an answer is a list or a tuple, and the reference solution an array."""
        results = [_outcome(function, self._cases()[0]) for function in (answer, self.reference)]
        return isinstance(results[0], (list, tuple)) and isinstance(results[1], np.ndarray)

    def source(self) -> str:
        """Return the code of the reference solution."""
        return re.sub(r"\A(@.*?\n)(?=def )", "", inspect.getsource(self.reference), flags=re.S)

    def _cases(self) -> list[tuple[Any, ...]]:
        return list(self.cases(np.random.default_rng(0)))

    def _names(self) -> list[str]:
        return list(inspect.signature(self.reference).parameters)

    def _described(self, arguments: tuple[Any, ...]) -> str:
        """Return the shapes of the arrays and the values of the numbers among arguments."""
        shown = [
            f"{name} {np.shape(value)}" if hasattr(value, "shape") else f"{name} = {value}"
            for name, value in zip(self._names(), arguments)
            if hasattr(value, "shape") or isinstance(value, (int, float))
        ]
        return ", ".join(shown)

    def _difference(
        self, found: Any, expected: Any, tensors: bool = False, path: Path = ()
    ) -> tuple[Path, str]:
        """Return where a result differs, and how: ((), "") if it does not.

        A pair inside a result must be a tuple, which can be an index or a key. The result itself may be a tuple or a
        list. With `tensors`, a tensor must be a tensor.
        """
        if isinstance(expected, dict):
            same = isinstance(found, dict) and found.keys() == expected.keys()
            pairs = [self._difference(found[k], v)[1] for k, v in expected.items()] if same else []
            return path, next(filter(None, pairs), "") if same else _other_type(found, expected)
        if isinstance(expected, (list, tuple)):
            allowed: Any = (list, tuple, np.ndarray) if not path else type(expected)
            if not isinstance(found, allowed) or not np.iterable(found):
                return path, _other_type(found, expected)
            if len(found) != len(expected):
                text = "it has {number} elements; expected {expected}"
                return path, label(text, number=len(found), expected=len(expected))
            parts = [
                self._difference(a, b, tensors, (*path, i))
                for i, (a, b) in enumerate(zip(found, expected))
            ]
            wrong = [i for i, (_, message) in enumerate(parts) if message]
            if len(wrong) == 2:
                swapped = [found[i] for i in reversed(wrong)]
                if not any(self._difference(a, expected[i])[1] for a, i in zip(swapped, wrong)):
                    text = "elements {first} and {second} are exchanged"
                    return path, label(text, first=wrong[0], second=wrong[1])
            return next((part for part in parts if part[1]), (path, ""))
        if expected is None or isinstance(expected, str) or callable(expected):
            if isinstance(found, type(expected)) and found == expected:
                return path, ""
            text = "it returns {value}; expected {expected}"
            text = label(text, value=repr(found), expected=repr(expected))
            if isinstance(found, (bool, np.bool_)):
                text += "\n  " + label("Return one of the words, not True or False.")
            return path, text
        return path, self._array_difference(found, expected, tensors)

    def _array_difference(self, found: Any, expected: Any, tensors: bool) -> str:
        """Return how an array, a tensor or a number differs from the expected one."""
        is_tensor = isinstance(found, mg.Tensor)
        if isinstance(expected, mg.Tensor) and tensors and not is_tensor:
            return _other_type(found, expected) + label(
                ": its derivatives are needed, so return the tensor, without .data or .item()"
            )
        if is_tensor and not isinstance(expected, mg.Tensor):
            return _other_type(found, expected) + label(
                ": the cells below compute with arrays, so return its .data"
            )
        b = np.asarray(expected.data if isinstance(expected, mg.Tensor) else expected)
        numbers = (int, float, np.ndarray, np.generic, mg.Tensor)
        if b.ndim and not isinstance(expected, mg.Tensor):
            found = _as_array(found)  # as `grade` does
        if not isinstance(found, numbers) or (a := _array(found)).dtype.kind not in "biuf":
            return _other_type(found, expected)
        if a.shape != b.shape:
            text = "it returns shape {shape}; expected {expected}"
            same = a.size == b.size > 1 and self._close(a.reshape(b.shape), b)
            right = label(" (the values are right)") if same else ""
            return label(text, shape=a.shape, expected=b.shape) + right
        if self._close(a, b):
            dtype = a.dtype != b.dtype
            if isinstance(expected, mg.Tensor) and dtype and tensors:
                return label(
                    "it returns {type}; expected {expected}: np.sqrt(2) is float64, which makes a tensor float64, "
                    "and 2**0.5 does not",
                    type=a.dtype.name,
                    expected=b.dtype.name,
                )
            kinds = {"b": "b", "i": "iu"}.get(b.dtype.kind, "biuf") if b.ndim else "biuf"
            if a.dtype.kind not in kinds or (b.ndim == 0 and a.dtype == bool != b.dtype):
                text = "it returns values of type {type}; expected {expected}: the cells below need this type"
                return label(text, type=a.dtype.name, expected=b.dtype.name)
            return ""
        if b.size == 1:
            text = "it returns {value}; expected {expected}"
            value, wanted = _distinct(a.item(), b.item(), 6)
            return label(text, value=value, expected=wanted)
        a, b = a.astype(float), b.astype(float)
        gaps = np.where(np.isnan(a), np.inf, np.abs(a - b))
        at = np.unravel_index(gaps.argmax(), gaps.shape)
        value, wanted = _distinct(a[at], b[at], 4)
        return label(
            "the value at {index} is {value}; expected {expected}",
            index=[int(i) for i in at],
            value=value,
            expected=wanted,
        )

    def _close(self, a: Any, b: Any) -> bool:
        a, b = np.asarray(a, float), np.asarray(b, float)
        return np.allclose(a, b, self.tolerance, self.tolerance, equal_nan=True)

    def _hint(self, answer: Function, path: Path, arguments: tuple[Any, ...]) -> str:
        """Return a sentence that may explain a wrong result, on a line of its own; "" without one."""
        pairs = [
            (_leaf(_outcome(answer, case), path), _leaf(_outcome(self.reference, case), path))
            for case in self._cases()
        ]
        hint = self._relation(pairs) or self._about_arguments(answer)
        for case, (a, b) in zip(self._cases(), pairs) if not hint else ():
            if a.shape != b.shape and a.dtype.kind in "biuf":
                hint = _about_shapes(
                    a.shape, b.shape, [np.shape(x) for x in case if hasattr(x, "shape")]
                )
                break
        return hint and "\n  " + hint

    def _about_arguments(self, answer: Function) -> str:
        """Return a sentence about an argument that is not used, or used in place of another one."""
        names, cases = self._names(), self._cases()

        def agree(change: Callable[[list[Any]], list[Any]], other: Function) -> bool:
            """Return whether an answer gives what a function gives for changed arguments, unlike the reference."""
            different = False
            for case in cases:
                changed = tuple(change(list(copy.deepcopy(case))))
                found, result = _outcome(answer, case), _outcome(other, changed)
                right = _outcome(self.reference, case if other is self.reference else changed)
                if isinstance(found, str) or self._difference(found, result)[1]:
                    return False
                different = different or bool(self._difference(right, result)[1])
            return different

        arrays = [i for i, value in enumerate(cases[0]) if _is_number_or_array(value)]
        for i, j in itertools.permutations(arrays, 2):
            if any(np.shape(case[i]) != np.shape(case[j]) for case in cases):
                continue
            if i < j and agree(functools.partial(_exchanged, i=i, j=j), self.reference):
                return label("{first} and {second} are exchanged.", first=names[i], second=names[j])
            if agree(functools.partial(_replaced, i=i, j=j), self.reference):
                text = "It uses {first} in place of {second}."
                return label(text, first=names[i], second=names[j])
        for i in arrays:
            if agree(functools.partial(_changed, i=i), answer):
                return label("The result is the same for any {name}.", name=names[i])
        return ""

    def _relation(self, pairs: list[tuple[Any, Any]]) -> str:
        """Return a sentence about how values are related to the right ones, in all cases."""
        numbers = all(x.dtype.kind in "biuf" for pair in pairs for x in pair)
        if not numbers or all(a.shape == b.shape and self._close(a, b) for a, b in pairs):
            return ""  # another type
        for text, move in MOVED.items():
            if all(self._is_moved(move, *pair) for pair in pairs):
                return label(text)
        if any(a.shape != b.shape for a, b in pairs):
            return ""
        a, b = (np.concatenate([pair[i].ravel() for pair in pairs]) for i in (0, 1))
        if len(a) < 2:
            return ""
        a, b = a.astype(float), b.astype(float)
        sentence = ""
        with np.errstate(all="ignore"):
            if np.isnan(a).any() and not np.isnan(b).any():
                sentence = (
                    "NaN is 0 / 0, or comes from an exponential that is too large for a float."
                )
            elif not np.isfinite(a).all():
                return ""
            for text, function in RELATIONS.items():
                sentence = sentence or (text if self._close(a, function(b)) else "")
            if sentence:
                return label(sentence)
            factor, shift = np.dot(a, b) / np.dot(b, b), (a - b).mean()
            if factor and self._close(a, factor * b):
                return label("Every value is {number} times the right one.", number=f"{factor:.5g}")
            if self._close(a, b + shift):
                return label("To every value {number} is added.", number=f"{shift:.5g}")
            factors = [np.vdot(a, b) / np.vdot(b, b) for a, b in pairs]
            same = [self._close(a, factor * b) for factor, (a, b) in zip(factors, pairs)]
            if all(same) and all(factors) and min(b.size for _, b in pairs) > 1:
                text = "Every value is a multiple of the right one: {numbers} times in the cases. A size is left out, or another one is used."
                return label(text, numbers=", ".join(f"{factor:.4g}" for factor in factors))
        return ""

    def _is_moved(self, move: Function, a: Any, b: Any) -> bool:
        """Return whether an array becomes another one if its values are moved."""
        try:
            moved = move(b)
        except (ValueError, IndexError):  # too few axes
            return False
        a = a if moved.ndim == a.ndim else np.sort(a, None)
        return a.size > 1 and a.shape == moved.shape and self._close(a, moved)

    def _known_mistake(self, answer: Function, first: int) -> str:
        """Return the sentence about the mistake that agrees with an answer in its first wrong case.

        Of several such mistakes, it is the one that agrees in most cases.
        """
        cases = self._cases()
        found = [_outcome(answer, case) for case in cases]
        right = _outcome(self.reference, cases[first])
        agreed = {}
        for sentence, mistake in self.mistakes.items():
            results = [_outcome(mistake, case) for case in cases]
            same = [not self._difference(a, b)[1] for a, b in zip(found, results)]
            if same[first] and self._difference(results[first], right)[1]:
                agreed[sentence] = sum(same)
        return label(max(agreed, key=agreed.__getitem__)) if agreed else ""

    def _wrong_gradient(self, answer: Function) -> str:
        """Return what is wrong with the derivatives of an answer with respect to all tensors and arrays."""
        for case in self._cases():
            right = self._gradients(self.reference, case)
            try:
                found = self._gradients(answer, case)
            except Exception as error:
                return label(
                    "it is right for arrays; with tensors, whose derivatives the lesson needs, it raises {error}",
                    error=f"{type(error).__name__}: {error}",
                )
            for name, gradient in right.items():
                if name not in found or self._array_difference(found[name], gradient, False):
                    return label(
                        "its gradient with respect to {name} is missing or wrong: compute with tensors, not with their .data",
                        name=name,
                    )
        return ""

    def _gradients(self, function: Function, case: tuple[Any, ...]) -> dict[str, np.ndarray]:
        """Return the gradients of a result by the arrays of real numbers among the arguments."""
        leaves: dict[str, mg.Tensor] = {}
        named = zip(self._names(), copy.deepcopy(case))
        result = function(*(_as_leaves(argument, name, leaves) for name, argument in named))
        if not isinstance(result, mg.Tensor) or not result.requires_grad:
            return {}
        cotangent = np.random.default_rng(1).standard_normal(result.shape)
        gradients = mg.gradients(
            (result * cotangent).sum(), list(leaves.values()), allow_unused=True
        )
        return {
            name: np.zeros(t.shape) if g is None else g.data
            for (name, t), g in zip(leaves.items(), gradients)
        }


def _other_type(found: Any, expected: Any) -> str:
    """Return what is wrong with a result of another type, and often how to make the right one."""
    wanted = type(expected).__name__
    several = isinstance(expected, (list, tuple)) and len(expected)
    if several:
        wanted += f" ({len(expected)} × {type(expected[0]).__name__})"
    text = label(
        "it returns {type}; expected {expected}", type=type(found).__name__, expected=wanted
    )
    name, way = type(expected).__name__, ""
    if isinstance(found, Iterator):
        way = label("A generator can be read once: write {name}(...) around it.", name="list")
    elif isinstance(expected, tuple) and isinstance(found, (list, np.ndarray)):
        way = label("{name}(...) makes one of it.", name=name)
    elif several and (np.isscalar(found) or isinstance(found, dict)):
        way = label("{number} values are asked for: return a, b.", number=len(expected))
    elif isinstance(expected, np.ndarray) and isinstance(found, (list, tuple)):
        way = label("np.stack(...) makes an array of parts of the same shape.")
    return text + (way and "\n  " + way)


def _about_shapes(found: tuple[int, ...], right: tuple[int, ...], sources: list[Any]) -> str:
    """Return a sentence about a wrong shape; `sources` are the shapes of the arguments."""
    without = lambda shape: [shape[:i] + shape[i + 1 :] for i in range(len(shape))]
    if len(found) == len(right):
        gaps = [(i, m - n) for i, (m, n) in enumerate(zip(found, right)) if m != n]
        if sorted(found) == sorted(right):
            return label("The axes are in another order: transpose or swap them.")
        if any(found in without(shape) and right in without(shape) for shape in sources):
            return label("A sum or a mean is along the wrong axis.")
        if len(gaps) == 1 and abs(gaps[0][1]) == 1:
            text = (
                "Axis {axis} has one too many."
                if gaps[0][1] > 0
                else "Axis {axis} has one too few."
            )
            return label(text, axis=gaps[0][0])
        text = "Axis {axis} has the wrong size: is a product missing, or is another matrix used?"
        return label(text, axis=gaps[0][0])
    if len(found) < len(right):
        return label(
            "It has too few axes: a sum, a mean or a maximum is over too many of them, or an index takes one away."
        )
    return label("It has too many axes: a sum or a mean over one is missing, or a reshape.")


def _exchanged(arguments: list[Any], i: int, j: int) -> list[Any]:
    arguments[i], arguments[j] = arguments[j], arguments[i]
    return arguments


def _replaced(arguments: list[Any], i: int, j: int) -> list[Any]:
    arguments[j] = arguments[i]
    return arguments


def _changed(arguments: list[Any], i: int) -> list[Any]:
    """Change the values of an argument, but not its shape or type."""
    value = arguments[i]
    if np.asarray(getattr(value, "data", value)).dtype.kind == "b":
        arguments[i] = np.logical_not(value)
    elif isinstance(value, (int, np.integer)):
        arguments[i] = value + 1
    elif isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        arguments[i] = value[::-1].copy()
    else:
        arguments[i] = value * 1.1 + 0.1
    return arguments


def _is_number_or_array(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.generic, np.ndarray, mg.Tensor))


def _as_array(value: Any) -> Any:
    """Return a list or a tuple of numbers, arrays or such lists as an array; other values as they are."""
    if isinstance(value, (list, tuple)) and not _has_tensor(value):
        with contextlib.suppress(ValueError):  # parts of different shapes
            return np.asarray(value)
    return value


def _has_tensor(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_tensor, value.values()))
    return isinstance(value, mg.Tensor) or (
        isinstance(value, (list, tuple)) and any(map(_has_tensor, value))
    )


def _array(value: Any) -> Any:
    return np.asarray(value.data if isinstance(value, mg.Tensor) else value)


def _of_arrays(answer: Function) -> Function:
    """Return a function whose result is an array, for cells that compute with it."""
    return functools.wraps(answer)(lambda *arguments: np.asarray(answer(*arguments)))


def _leaf(value: Any, path: Path) -> Any:
    """Return an element of a result as an array; an array of objects if there is none."""
    try:
        for i in path:
            value = value[i]
        return _array(value)
    except Exception:
        return np.array(None)


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


def _as_leaves(argument: Any, name: str, leaves: dict[str, mg.Tensor]) -> Any:
    """Replace the arrays of real numbers in an argument by tensors, and put these into `leaves`."""
    if isinstance(argument, dict):
        return {key: _as_leaves(v, f'{name}["{key}"]', leaves) for key, v in argument.items()}
    array = argument.data if isinstance(argument, mg.Tensor) else argument
    if isinstance(array, np.ndarray) and array.dtype.kind == "f":
        leaves[name] = mg.Tensor(array, requires_grad=True)
        return leaves[name]
    return argument


class Exercises(dict[str, Exercise]):
    """Exercises of a lesson by the name of their function."""

    def add(self, **settings: Any) -> Callable[[Function], Function]:
        """Return a decorator that makes a reference solution an exercise; see `Exercise`."""

        def add(reference: Function) -> Function:
            self[reference.__name__] = Exercise(reference, **settings)
            return reference

        return add

    def grade(self, answer: Function, name: str = "") -> Function:
        """Print whether a function is right, and return the one to go on with.

        Parameters
        ----------
        answer : callable
        name : str, optional
            Name of the exercise. By default the name of the function; a lambda has none, and is matched by its
            parameters.
        """
        name = self._named(answer, name)
        exercise = self[name]
        wrong = exercise.judge(answer) if callable(answer) else _other_type(answer, self.grade)
        if not wrong and exercise.is_list(answer):
            answer = _of_arrays(answer)
        if wrong == "…":
            text = "not yet: replace the dots by your code, and return the result."
            print("…", f"{name}:", label(text))
        elif wrong:
            print("✗", f"{name}:", label("not right."), wrong)
            print(" ", label("Until it is right, the notebook goes on with our solution."))
        else:
            print("✓", f"{name}:", label("right"))
        return exercise.reference if wrong else answer

    def solution(self, name: str) -> None:
        """Print the reference solution of an exercise; a script prints it if it runs with --solutions."""
        if (
            "ipykernel" in sys.modules
            or "pyodide_kernel" in sys.modules
            or "--solutions" in sys.argv
        ):
            print(self[name].source())

    def _named(self, answer: Function, name: str) -> str:
        """Return the name of the exercise that a function answers."""
        name = name or getattr(answer, "__name__", "")
        if name not in self and callable(answer):
            parameters = list(inspect.signature(answer).parameters)
            name = next((n for n, e in self.items() if e._names() == parameters), name)
        if name not in self:
            names = ", ".join(self)
            raise ValueError(f'name must be one of {names}, got "{name}": grade(answer, name)')
        return name


def check(holds: Any, text: str, *values: Any) -> None:
    """Print values that the lesson states, in the braces of a text, and stop if the statement is false."""
    if not holds:
        raise AssertionError(text.format(*values))
    print("✓", label(text, *values))
