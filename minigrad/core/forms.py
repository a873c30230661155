"""One layer between the ways to call a function: NumPy's signatures outside, ours inside.

`np.flip(m=t, axis=-1)` arrives with the words of NumPy. A `Form` gives the operands to our function
by position and the options by NumPy's names, leaves out what stands at NumPy's default, and refuses
by name what our function does not know. Where no argument needs a gradient, NumPy itself computes,
so that each form it takes is taken, and each that it refuses is refused in its words.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from .changes import mark_changed
from .modes import MODE
from .nested import as_tensors, needs_gradient, numpy_name, on_arrays, refusal, without_tensors
from .tensor import DISPATCH, Tensor, unwrap

# -- NumPy
# -------------------------------------------------------------------------------------------

IN_C: dict[Any, Callable[..., Any]] = {  # functions whose signature NumPy before 2.4 does not tell
    np.where: lambda condition, x=None, y=None, /: ...,
    np.concatenate: lambda arrays, /, axis=0, out=None, *, dtype=None, casting="same_kind": ...,
    np.dot: lambda a, b, out=None: ...,
    np.vdot: lambda a, b, /: ...,
    np.inner: lambda a, b, /: ...,
    np.bincount: lambda x, /, weights=None, minlength=0: ...,
}
_ABSENT = object()
_HINTS = {"subok", "overwrite_input"}  # allow NumPy what a tensor never does
_ARRAYS = {
    np.atleast_1d,
    np.atleast_2d,
    np.atleast_3d,
}  # asked for an array, as SciPy does before it hands one to C


def signature(numpy: Any) -> inspect.Signature:
    """The parameters of a NumPy function."""
    return inspect.signature(IN_C.get(numpy, numpy))


class Form:
    """Answers a NumPy function for tensors, by way of our function `ours`."""

    def __init__(self, numpy: Any, ours: Callable[..., Any]) -> None:
        self.numpy = numpy
        self.ours = ours

    @functools.cached_property
    def _theirs(self) -> dict[str, Any]:
        """NumPy's parameters and their defaults, in order."""
        parameters = signature(self.numpy).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}

    @functools.cached_property
    def _own(self) -> tuple[int, frozenset[str], bool]:
        """How many operands ours takes by position, which options, and whether it takes any number
        of operands.
        """
        parameters = inspect.signature(self.ours).parameters.values()
        variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        operands = [
            p
            for p in parameters
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        names = {p.name for p in parameters}
        if any(p.kind is p.VAR_KEYWORD for p in parameters):  # what it hands on to another function
            names |= self._theirs.keys() - {"out"}
        return len(operands), frozenset(names), variadic

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (
            MODE.get().watch is None
            and not needs_gradient(args)
            and not (kwargs and needs_gradient(kwargs))
        ):
            result = on_arrays(self.numpy, args, kwargs)
            if self._writes and (kwargs or len(args) > 1):
                self._note_writes(args, kwargs)
            return result if self.numpy in _ARRAYS else as_tensors(result)
        arity, takes, variadic = self._own
        if variadic:
            return self.ours(*args, **self._known(kwargs, takes))
        given = dict(zip(self._theirs, args))
        given.update(kwargs)
        if (
            given.get("dtype") is not None and np.dtype(given["dtype"]).kind in "iub"
        ):  # integers have no gradient
            return as_tensors(on_arrays(self.numpy, args, kwargs))
        operands = [given.pop(name) for name in list(self._theirs)[:arity] if name in given]
        return self.ours(*operands, **self._known(given, takes))

    @functools.cached_property
    def _writes(self) -> bool:
        """Whether NumPy's function may write into one of its arguments."""
        return bool(self._theirs.keys() & {"out", "overwrite_input"}) or self.numpy is np.nan_to_num

    def _note_writes(self, args: Any, kwargs: dict[str, Any]) -> None:
        """Let graphs notice what NumPy wrote into."""
        given = dict(zip(self._theirs, args)) | kwargs
        written = [given.get("out")]
        if given.get("overwrite_input") or (
            self.numpy is np.nan_to_num and not given.get("copy", True)
        ):
            written.append(unwrap(given[next(iter(self._theirs))]))
        for array in written:
            if isinstance(array, np.ndarray):
                mark_changed(array)

    def _known(self, given: dict[str, Any], takes: frozenset[str]) -> dict[str, Any]:
        """The options that say something; a TypeError for one that ours does not know."""
        options = {}
        for name, value in given.items():
            if (
                name in _HINTS
                or _is(value, self._theirs.get(name, _ABSENT))
                or (name == "out" and value is None)
            ):
                continue
            if name not in takes:
                raise TypeError(refusal(numpy_name(self.numpy), name, value))
            options[name] = value if needs_gradient(value) else without_tensors(value)
        return options


def _is(value: Any, default: Any) -> bool:
    return value is default or (
        type(value) is type(default) and isinstance(value, (str, int, float)) and value == default
    )


def ufunc_form(
    function: Callable[..., Tensor], ufunc: np.ufunc, inputs: Any, options: dict[str, Any]
) -> Any:
    """A ufunc that was given options, such as `where=` and `dtype=`, with at least one tensor that
    needs a gradient.
    """
    name = f"np.{ufunc.__name__}"
    dtype = options.pop("dtype", None)
    for option, value in options.items():
        if option == "where" and value is not True:
            raise TypeError(
                f"{name}: where= leaves elements unset, which have no gradient; write "
                f"np.where(mask, np.{ufunc.__name__}(np.where(mask, x, 1)), other)"
            )
        if option not in ("where", "order", "casting", "subok"):
            raise TypeError(refusal(name, option, value))
    if dtype is None:
        return function(*inputs)
    plain: list[Any] = [
        x if type(x) in (int, float, complex) else np.asarray(unwrap(x)) for x in inputs
    ]
    like = [np.empty((1,) * x.ndim, x.dtype) if np.ndim(x) else x for x in plain]
    ufunc(*like, **options, dtype=dtype)  # may it?
    kinds = (*[getattr(x, "dtype", type(x)) for x in plain], *[None] * ufunc.nout)
    signature = (None,) * ufunc.nin + (np.dtype(dtype),) * ufunc.nout
    loop = ufunc.resolve_dtypes(
        kinds, signature=signature, casting="unsafe"
    )  # an exponent stays an integer
    return function(
        *[x.astype(d) if isinstance(x, Tensor) else np.asarray(x, d) for x, d in zip(inputs, loop)]
    )


def numpy_form(*numpy: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function with NumPy's parameter names answer these NumPy functions."""

    def declare(ours: Callable[..., Any]) -> Callable[..., Any]:
        for f in numpy:
            DISPATCH[f] = Form(f, ours)
        return ours

    return declare
