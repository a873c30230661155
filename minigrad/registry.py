"""Declaration of ops, their tables by name and by NumPy function, and the extension points.

`op` declares a primitive operation (see the top of `op.py`), `ufunc` the op of a NumPy ufunc, and
`function` a composition of ops. Look at `op` first.

The files of the book are those directly in `minigrad/`, `minigrad/ops/` and `nn/`. Packages around
the book extend it at these points, and replace none of its functions, classes and methods:

- `fuse.fuse`, or the attribute `kernel` of a `fuse.Fusible`: a kernel that runs instead of the
  definition of a function.
- `registry.function` and `registry.op` with `numpy=`, `registry.answer`, `protocols.ANSWERS`:
  answers to NumPy's functions for tensors.
- `registry.add_methods`: methods of `Tensor`, of optimizers, of modules and of models.
- `registry.FORMS`: calls with further options, which `help` describes, or with other names.
- `tensor.extension`, `changes.LOG` and `changes.logs`: conversions, complex results, writes.
- `optimizer.Optimizer.stepper_type`: the parts of parameters to which the formula of an optimizer
  is applied, and further options.
- `arrays.OtherArray` and `arrays.ADAPTERS`: another type of array, in place of ndarrays.
- `modes.Mode.watch`: a tool that sees every operation; `modes.ENTERING`: checks of blocks.
- `ACTIVATIONS` of `nn`: further activations by name.
- Subclasses of `Optimizer`, and of the modules and models of `nn`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from . import protocols as protocols  # sets NumPy's protocols on Tensor
from .arrays import Function
from .op import Op, Rule
from .tensor import DISPATCH, Tensor

__all__: list[str] = []

Functions: TypeAlias = Function | tuple[Function, ...]

OPS: dict[str, Op] = {}
"""Every registered op by name: the source of the table in the docs and of the generated tests."""

FORMS: list[Callable[..., Callable[[], Any] | None]] = []
"""Other forms of calls: `form(function, args, options)` returns the call to make, or None.

A form is tried if a function with an option in `_OPTIONS` does not accept its arguments.
"""

_OPTIONS = {"axis", "keepdims", "dtype", "reduction"}

FUNCTIONS: dict[str, Function] = {}
"""Every public function that is a composition of ops, by name."""


def op(
    *,
    numpy: Functions = (),
    methods: str = "",
    vjp: Rule | None = None,
    definition: Function | None = None,
    view: bool = False,
    **rules: Rule,
) -> Callable[[Function], Callable[..., Tensor]]:
    """Declare and register an op.

    Parameters
    ----------
    numpy : callable or tuple of callable
        NumPy functions that the op answers for tensors.
    methods : str
        Names of methods of Tensor, separated by spaces.
    vjp, definition, view, **rules
        As in `Op`.
    """

    def declare(forward: Function) -> Callable[..., Tensor]:
        entry = Op(forward, rules, vjp=vjp, definition=definition, view=view)
        return _register(entry, numpy, methods)

    return declare


def ufunc(
    function: np.ufunc, summary: str, methods: str = "", **rules: Rule
) -> Callable[..., Tensor]:
    """Declare and register the op of a NumPy ufunc.

    Parameters
    ----------
    function : numpy.ufunc
        Computes the result.
    summary : str
        First line of the docstring.
    methods : str
        Names of methods of Tensor, separated by spaces.
    **rules : callable
        The rule of each operand, as in `Op`.

    Returns
    -------
    callable
        The function of Tensors.
    """
    return _register(Op(function, rules, doc=summary), function, methods)


def function(*, numpy: Functions = (), methods: str = "") -> Callable[[Function], Function]:
    """Register a public function that is a composition of ops, or that has no gradient.

    Parameters
    ----------
    numpy, methods
        As in `op`.
    """

    def declare(composed: Function) -> Function:
        FUNCTIONS[composed.__name__] = call = _publish(composed, composed, numpy, methods)
        return call

    return declare


def answer(function: Function | tuple[Function, str], call: Function) -> None:
    """Register the answer to a NumPy function, or to `(ufunc, "reduce")` and the like."""
    if function in DISPATCH:
        raise TypeError(f"answer: function must have no answer, got {function}")
    DISPATCH[function] = call


def add_methods(cls: type, methods: Mapping[str, Function | property]) -> None:
    """Set methods and properties of a class; names that the class has raise a TypeError."""
    for name, method in methods.items():
        if any(name in vars(base) for base in cls.__mro__):
            raise TypeError(f"add_methods: names must be new, got {name} of {cls.__name__}")
        setattr(cls, name, method)


def names_of(call: Function) -> tuple[str, ...]:
    """Return the names of the parameters of a function."""
    code = getattr(inspect.unwrap(call), "__code__", call.__code__)  # a function in C has none
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _with_forms(call: Function) -> Function:
    """Return a function that tries `FORMS` if its arguments raise a TypeError."""

    @functools.wraps(call)
    def function(*args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except TypeError:
            calls = (form(function, args, options) for form in FORMS)
            other = next((c for c in calls if c is not None), None)
            if other is None:
                raise
        return other()

    return function


def _register(entry: Op, numpy: Functions, methods: str) -> Callable[..., Tensor]:
    if entry.name in OPS:
        raise TypeError(f"the name of an op must be new, got {entry.name!r}")
    OPS[entry.name] = entry
    return _publish(entry, entry.function, numpy, methods)


def _publish(entry: Any, call: Function, numpy: Functions, methods: str) -> Function:
    """Let `call` answer NumPy functions, and set it as methods of Tensor.

    A docstring without parameters refers to the first of these functions.
    """
    entry.numpy = numpy if isinstance(numpy, tuple) else (numpy,)
    entry.methods = tuple(methods.split())
    if entry.numpy and call.__doc__ and "Parameters" not in call.__doc__:
        first = f"{entry.numpy[0].__module__}.{entry.numpy[0].__name__}"
        call.__doc__ = f"{inspect.cleandoc(call.__doc__)}\n\nParameters and result: as `{first}`."
    if not _OPTIONS.isdisjoint(names_of(call)):
        call = _with_forms(call)
    for f in entry.numpy:
        answer(f, call)
    for method in entry.methods:
        is_reflected = method.startswith("__r") and method not in ("__round__", "__rshift__")
        swapped = lambda self, other: call(other, self)
        add_methods(Tensor, {method: swapped if is_reflected else call})
    return call
