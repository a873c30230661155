"""NumPy's argument forms: one layer between NumPy's signatures and minigrad's.

`np.flip(m=t, axis=-1)` uses NumPy's argument names. An `ArgumentAdapter` passes the operands to our
function by position and the options by NumPy's names. It leaves out options that have NumPy's
default, and refuses options that our function does not have. If no argument needs a gradient, NumPy
itself computes the result, so all of its forms work.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..changes import mark_changed
from ..modes import MODE
from ..nested import needs_gradient, refusal, without_tensors
from ..tensor import DISPATCH, Tensor, extension, unwrap
from .batched import RETURNS_ARRAYS, as_numbers
from .nested import as_tensors, numpy_name, on_arrays, signature, write_out

_SPECIAL = {"dtype", "out"}
_HINTS = {"subok", "overwrite_input"}  # permissions for NumPy, which can be ignored
_CONVERTERS = {np.atleast_1d, np.atleast_2d, np.atleast_3d}  # SciPy passes their results to C


class ArgumentAdapter:
    """Callable for tensors in place of the NumPy function `numpy`; it calls `function`."""

    def __init__(self, numpy: Any, function: Callable[..., Any]) -> None:
        self.numpy = numpy
        self.function = function

    @functools.cached_property
    def _defaults(self) -> dict[str, Any]:
        """NumPy's parameters and their defaults, in order."""
        parameters = signature(self.numpy).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}

    @functools.cached_property
    def _accepted(self) -> tuple[int | None, Any, frozenset[str]]:
        """Count the operands of `function`, None for any number, and list its options.

        So many arguments by position as in the range mean the same to NumPy's function.
        """
        parameters = inspect.signature(self.function).parameters.values()
        names = [p.name for p in parameters]
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            return None, range(sys.maxsize), frozenset(names)
        ours = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        count = most = sum(p.default is p.empty for p in ours)
        for p, name in zip(ours[count:], list(self._defaults)[count:]):
            if p.name != name:
                break
            most += 1
        return count, range(count, most + 1), frozenset(names)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `function` if a gradient is needed or operations are watched, otherwise `numpy`."""
        count, lengths, names = self._accepted
        is_tracked = needs_gradient(args)
        if is_tracked and len(args) in lengths and _SPECIAL.isdisjoint(kwargs):
            return self._result(*args, **(kwargs and self._options(kwargs, names)))
        if isinstance(out := kwargs.get("out"), Tensor):
            y = self(*args, **{name: x for name, x in kwargs.items() if name != "out"})
            return write_out(numpy_name(self.numpy), out, y)
        if not is_tracked and MODE.get().watch is None and not needs_gradient(kwargs):
            result = on_arrays(self.numpy, args, kwargs)
            if self._overwrites:
                self._note_overwrite(args, kwargs)
            arguments = (*args, *kwargs.values())
            return result if self.numpy in _CONVERTERS else as_tensors(result, arguments)
        if count is None:
            return self._result(*args, **self._options(kwargs, names))
        parameters = list(self._defaults)
        options = {**dict(zip(parameters[count:], args[count:])), **kwargs}
        dtype = options.get("dtype")
        if dtype is not None and np.dtype(dtype).kind in "iub":  # integers have no gradient
            return as_tensors(on_arrays(self.numpy, args, kwargs))
        if len(args) < count:  # operands by name
            args += tuple([options.pop(x) for x in parameters[len(args) : count] if x in options])
        return self._result(*args[:count], **self._options(options, names))

    def _result(self, *args: Any, **options: Any) -> Any:
        """Call `function`; return a result without axes as a number, if NumPy returns one."""
        y = self.function(*args, **options)
        return y if self.numpy in RETURNS_ARRAYS else as_numbers(y)

    @functools.cached_property
    def _overwrites(self) -> bool:
        """True if NumPy's function can write into its first argument."""
        return "overwrite_input" in self._defaults or self.numpy is np.nan_to_num

    def _note_overwrite(self, args: Any, kwargs: dict[str, Any]) -> None:
        """Mark the first argument as changed if NumPy wrote into it."""
        values = dict(zip(self._defaults, args)) | kwargs
        in_place = self.numpy is np.nan_to_num and not values.get("copy", True)
        if values.get("overwrite_input") or in_place:
            array = unwrap(values[next(iter(self._defaults))])
            if isinstance(array, np.ndarray):
                mark_changed(array)

    def _options(self, values: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
        """Return options that differ from NumPy's defaults; refuse one that is not in `names`."""
        options = {}
        for name, value in values.items():
            is_default = name in self._defaults and _same(value, self._defaults[name])
            if name in _HINTS or is_default:
                continue
            if name not in names:
                raise TypeError(refusal(numpy_name(self.numpy), name, value))
            is_plain = isinstance(value, (int, float, str))
            options[name] = value if is_plain or needs_gradient(value) else without_tensors(value)
        return options


def _same(value: Any, default: Any) -> bool:
    return value is default or (
        type(value) is type(default) and isinstance(value, (str, int, float)) and value == default
    )


def check_ufunc_options(ufunc: np.ufunc, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that its function takes; raise a TypeError for others that matter."""
    for option, value in options.items():
        name = numpy_name(ufunc)
        if option == "where" and value is not True:
            raise TypeError(
                f"{name}: where= leaves elements unset, which have no gradient; write "
                f"np.where(mask, {name}(np.where(mask, x, 1)), other)"
            )
        if option == "dtype" and value is not None:
            raise TypeError(
                f"{name}: dtype= has no rule for tensors that require gradients; write x.astype "
                "for the operands"
            )
        if option not in ("where", "dtype", "order", "casting", "subok", *_kept(ufunc)):
            raise TypeError(refusal(name, option, value))
    return {option: options[option] for option in _kept(ufunc) if option in options}


def _kept(ufunc: np.ufunc) -> tuple[str, ...]:
    """Return the names of the options that the function for a ufunc takes."""
    return ("axis",) if ufunc is np.vecdot else ()


def refusing_gradients(entry: Any, names: set[str], reason: str) -> Callable[..., Any]:
    """Return the function of an op, for which the operands `names` must not require gradients."""
    if not names:
        return entry.function

    @functools.wraps(entry.function)
    def call(*operands: Any, **options: Any) -> Any:
        given = dict(zip(entry.operands, operands)) | options
        for name in entry.operands:
            if name in names and needs_gradient(given.get(name)):
                raise TypeError(
                    f"{entry.name}: {name} must not require gradients, because {reason}"
                )
        return entry.function(*operands, **options)

    return call


def numpy_form(*numpy: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function with NumPy's parameter names as the answer to the functions `numpy`."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        ADAPTED.update({f: ArgumentAdapter(f, function) for f in numpy})
        return function

    return declare


class _Adapted(dict[Any, Callable[..., Any]]):
    """Answers to NumPy functions in NumPy's argument forms, made on first use."""

    def __missing__(self, numpy: Any) -> Callable[..., Any] | None:
        call = DISPATCH.get(numpy)
        return None if call is None else self.setdefault(numpy, ArgumentAdapter(numpy, call))


ADAPTED = _Adapted()
extension.answer = ADAPTED.__getitem__
