"""Ops: NumPy functions, the rules of their derivatives, and their names; the extension points.

An op is declared once:

    @op(numpy=np.exp, methods="exp", x=lambda g, y: g * y)
    def exp(x, /):
        "Compute eˣ."
        return np.exp(x)

The parameters before the `/` are operands, the others are options. Each differentiable operand has
a rule in plain NumPy. The first parameter of a rule is `g`, the gradient of the result.
*Its other parameters declare what is saved*:

- the name of an operand or of an option: its value
- `y`: the result
- `x_shape`: the shape of operand `x`, without its array
- `needs`: a tuple of bool, True for operands that need a gradient
- `saved`: what the forward function of a kernel returned beside its result, for a `vjp`

A value that no rule names is not saved.

An ordinary backward pass calls rules with ndarrays. With `create_graph` it calls them with Tensors,
and the same line records itself. A rule returns a new array, `g`, or a view of `g`, and writes to
none of its arguments. The engine undoes broadcasting and converts dtypes for all rules.

`vjp=` is one rule for all operands, which returns their gradients as a tuple. A kernel works in
place and may save additional arrays. It has such a rule and a `definition`: the same function as a
composition of ops, which `create_graph` differentiates instead. A definition gets zeros for an
operand that the rule does not name. So the rule of a kernel names every option, and every operand
if it reads `y` or `saved`. `fuse.py` has an example.

`ufunc` declares the op of a NumPy ufunc, and `function` a composition of ops. Look at
`Op.__init__`, then at `op`. Calls of ops are written by `caller.py`.

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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from . import protocols as protocols  # sets NumPy's protocols on Tensor
from .arrays import Array, ArrayLike, Function, Options
from .caller import caller
from .graph import Backward, Node
from .tensor import DISPATCH, Tensor, wrap

__all__: list[str] = []

Rule = Function


class Op:
    """Entry of the registry: a function of arrays with its derivative.

    Parameters
    ----------
    forward : callable or numpy.ufunc
        Its signature declares operands and options. Its name, without underscores, is the name of
        the op.
    rules : dict of str to callable
        The rule of each differentiable operand.
    vjp : callable, optional
        One rule for all operands.
    definition : callable, optional
        The same function as a composition of ops.
    view : bool
        Whether the result can share the memory of an operand, the first one.
    operands : tuple of str
        Names of the operands of a ufunc; by default those that have rules.
    doc : str, optional
        Docstring of `function`; the docstring of `forward` by default.

    Attributes
    ----------
    function : callable
        The function of Tensors.
    parameters, source : str
        The parameters of `function`, and its source.
    joint : bool
        Whether there is one rule for all operands.
    reads : dict of callable to list of str
        The names that each rule reads.
    """

    def __init__(
        self,
        forward: Function,
        rules: dict[str, Rule],
        *,
        vjp: Rule | None = None,
        definition: Function | None = None,
        view: bool = False,
        operands: tuple[str, ...] = (),
        doc: str | None = None,
    ) -> None:
        self.name = forward.__name__.strip("_")
        self.forward = forward
        self.joint = vjp is not None
        self.definition = definition
        self.numpy: tuple[Function, ...] = ()
        self.methods: tuple[str, ...] = ()
        self.view = view
        self.operands: tuple[str, ...]
        self.options: tuple[str, ...]
        plain = inspect.unwrap(forward)
        if isinstance(plain, np.ufunc):  # the options in its signature are not supported
            self.variadic = False
            self.operands, self.options = operands or tuple(rules), ()
            self.parameters = f"{', '.join(self.operands)}, /"
        else:
            code = plain.__code__
            count = code.co_argcount + code.co_kwonlyargcount
            names, positional = code.co_varnames[:count], code.co_varnames[: code.co_argcount]
            self.variadic = bool(code.co_flags & inspect.CO_VARARGS)
            if self.variadic:  # one name, for all operands
                self.operands, self.options = (code.co_varnames[count],), names
            else:
                first = code.co_posonlyargcount or code.co_argcount  # without a /, all are operands
                self.operands, self.options = names[:first], names[first:]
            star = [f"*{self.operands[0]}"] if self.variadic else ["*"] * (len(positional) < count)
            self.parameters = ", ".join([*positional, *star, *names[len(positional) :]])
        self.rules = rules if vjp is None else dict.fromkeys(self.operands, vjp)
        self.reads = {rule: names_of(rule)[1:] for rule in self.rules.values()}
        self.saves = any("saved" in reads for reads in self.reads.values())
        self._check()
        self.source = ""
        self.function = caller(self)
        self.function.__doc__ = doc or forward.__doc__

    def _check(self) -> None:
        """Raise a TypeError for names that an operand, an option or a rule must not have."""
        shapes = [f"{operand}_shape" for operand in self.operands]
        saved = ["saved"] * (self.definition is not None and self.joint)  # else not differentiated
        readable = ("y", *self.operands, *self.options, "needs", *saved, *shapes)
        for reads in self.reads.values():
            if unknown := [read for read in reads if read not in readable]:
                raise TypeError(
                    f"{self.name}: a rule must read some of {', '.join(readable)}, got {unknown}"
                )
        if unknown := [operand for operand in self.rules if operand not in self.operands]:
            raise TypeError(
                f"{self.name}: rules must be named as operands, {self.operands}, got {unknown}"
            )
        for name in (*self.operands, *self.options):
            if name in ("y", "needs", "saved") or name.startswith("_"):
                raise TypeError(
                    f"{self.name}: parameters must not be named y, needs, saved or _..., got "
                    f"{name!r}. Rename it: a rule reads the result as y"
                )
        if self.definition is not None and self.joint:
            (reads,) = self.reads.values()
            needed = self.options + self.operands * ("y" in reads or "saved" in reads)
            if missing := [name for name in needed if name not in reads]:
                raise TypeError(
                    f"{self.name}: vjp must read {', '.join(missing)}, which higher derivatives "
                    "pass to the definition; add the parameter to vjp"
                )
        if self.variadic and not self.joint:
            raise TypeError(f"{self.name}: an op of *{self.operands[0]} must have a vjp")

    def __repr__(self) -> str:
        return f"<op {self.name}({', '.join(self.operands)})>"

    def origins(self, rule: Rule, node: Node) -> list[Any]:
        """Return the node, the tuple of nodes, or None that each value read by `rule` came from."""
        inputs = (
            {self.operands[0]: node.inputs} if self.variadic else zip(self.operands, node.inputs)
        )
        nodes: Options = {"y": node, **dict(inputs)}
        return [nodes.get(read) for read in self.reads[rule]]

    def through_tensors(self, rule: Rule, node: Node) -> Rule:
        """Return the rule for Tensors: `rule`, or for a kernel the derivative of its definition."""
        if self.definition is None or not self.joint:
            return rule
        definition, reads = self.definition, self.reads[rule]

        def derivative(g: Tensor, *args: Array) -> list[Array]:
            values = dict(zip(reads, args))
            options = {name: values[name] for name in self.options}
            operands = [
                values[n] if n in values else _stand_in(i)
                for n, i in zip(self.operands, node.inputs)
            ]
            return vjp_of(definition, operands, options, g)

        return derivative

    def explain(self, error: Exception, operands: Sequence[Array], options: Options) -> Exception:
        """Return an error of `forward` with the name of the op and its arguments."""
        names = self.operands * len(operands) if self.variadic else self.operands
        got = [f"{name} {_describe(value)}" for name, value in zip(names, operands)]
        got += [f"{name}={value!r}" for name, value in options.items() if value is not None]
        kinds = (np.linalg.LinAlgError, np.exceptions.AxisError, IndexError, ValueError)
        kind = next((k for k in kinds if isinstance(error, k)), TypeError)
        reason = str(error).removeprefix(f"{self.name}: ")
        if "gufunc" in reason:  # NumPy counts "core dimensions" there
            reason = "the shapes do not match"
        return kind(f"{self.name}: {reason}; got {', '.join(got)}")


def _stand_in(node: Node | None) -> Tensor | None:
    """Return zeros for an operand that was not saved."""
    return (
        None if node is None else wrap(np.broadcast_to(np.zeros((), node.dtype), node.shape), node)
    )


def _describe(value: Array) -> str:
    is_array = hasattr(value, "dtype")
    return f"{value.shape} {value.dtype}" if is_array else repr(value)


def names_of(call: Function) -> tuple[str, ...]:
    """Return the names of the parameters of a function."""
    code = getattr(inspect.unwrap(call), "__code__", call.__code__)  # a function in C has none
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


# -- helpers for rules and definitions


def _alias(x: Array, /) -> Array:
    """Return the same values as a new node, at which a derivative by them ends."""
    return x


alias = Op(_alias, {"x": lambda g: g}).function
protocols.LEAVES.add(alias.op)  # type: ignore[attr-defined]


def either(call: Callable[..., Tensor]) -> Function:
    """Return a function for rules that calls an op as NumPy's functions are called.

    It returns a Tensor if an operand is a Tensor, and an ndarray otherwise.
    """
    forward = call.op.forward  # type: ignore[attr-defined]

    @functools.wraps(call)
    def function(*args: ArrayLike, **options: Any) -> Array:
        for x in args:
            if isinstance(x, Tensor):
                return call(*args, **options)
        return forward(*args, **options)

    return function


def vjp_of(
    function: Callable[..., Tensor], operands: list[Array], options: Options, g: Tensor
) -> list[Array]:
    """Return the recorded gradients of `function(*operands, **options)`; None if none is needed."""
    stops = [alias(x) if isinstance(x, Tensor) and x._node is not None else x for x in operands]
    y = function(*stops, **options)
    nodes = [x._node if isinstance(x, Tensor) else None for x in stops]
    if y._node is None:
        return [None] * len(operands)
    grads = Backward(wrap, True, True).run(
        [(y._node, g)], [node for node in nodes if node is not None]
    )
    return [None if node is None else grads.get(node) for node in nodes]


# -- the registry

Functions: TypeAlias = Function | tuple[Function, ...]

OPS: dict[str, Op] = {}
"""Every registered op by name: the source of the table in the docs and of the generated tests."""

FORMS: list[Callable[..., Callable[[], Any] | None]] = []
"""Other forms of calls: `form(function, args, options)` returns the call to make, or None.

A form is tried if a function with an option in `_OPTIONS` does not accept its arguments. For
`x.sum(dim=1)`, a form for names of PyTorch returns a call with `axis=1`.
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
        module = getattr(entry.numpy[0], "__module__", "numpy")  # which ufuncs of NumPy 2.0 lack
        first = f"{module}.{entry.numpy[0].__name__}"
        call.__doc__ = f"{inspect.cleandoc(call.__doc__)}\n\nParameters and result: as `{first}`."
    if not _OPTIONS.isdisjoint(names_of(call)):
        call = _with_forms(call)
    for f in entry.numpy:
        answer(f, call)
    for method in entry.methods:
        is_reflected = method.startswith("__r") and method != "__rshift__"
        swapped = lambda self, other: call(other, self)
        add_methods(Tensor, {method: swapped if is_reflected else call})
    return call
