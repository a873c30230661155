"""What an op is: a NumPy function, the rules of its derivative, and the names it goes by.

An op is declared once:

    @op(numpy=np.tanh, methods="tanh", x=lambda g, y: g * (1 - y * y))
    def tanh(x, /):
        "The hyperbolic tangent."
        return np.tanh(x)

The parameters before the `/` are its operands, those after it are options. Each operand that can
have a gradient has a rule in plain NumPy. Its first parameter is `g`, the gradient of the result;
*its other parameters say what is saved for it*: an operand by its name, `y` for the result, an
option by its name, `x_shape` for the shape of operand `x` (which saves no array), `needs` for a
tuple that tells which operands want a gradient. What no rule names is not saved.

A rule runs on ndarrays in an ordinary backward pass, and on Tensors under `create_graph`, where the
same line records itself. It returns a new array, `g`, or a view of `g`, and writes to nothing that
it was given. Broadcast operands and other dtypes are put right by the engine, for all rules alike.

`vjp=` gives one rule for all operands, which returns their gradients as a tuple. A kernel, which
works in place and may save arrays of its own, has such a rule and a `definition`: the same function
as a composition of ops, which `create_graph` differentiates in its stead. `saved` is what the
forward function returned beside its result. An operand whose values no gradient depends on need not
be read: the definition then gets zeros in its place. The rule of a kernel may take `grad_buffers`
as its last parameter: for each operand None, or the array where an optimizer wants the gradient to
be, in which it can be computed and returned.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from .changes import tick
from .graph import Backward, Edge, Node
from .modes import DEFINITIONS, MODE, enable_grad
from .nested import untracked_options
from .tensor import Tensor, unwrap, wrap

ndarray = np.ndarray
Rule = Callable[..., Any]


class Op:
    """An entry of the registry; the top of this file says what it holds."""

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any],
        operands: tuple[str, ...],
        rules: dict[str, Rule],
        options: dict[str, Any] | None = None,
        vjp: Rule | None = None,
        variadic: bool = False,
        definition: Callable[..., Any] | None = None,
        doc: str | None = None,
        optional: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.forward = forward
        self.operands = operands  # of a variadic op: one name, for all of them
        self.options = options or {}  # name -> default
        self.positional_options = _positional(forward)[len(operands) :]
        self.optional = optional  # operands that may be left out, and are None then
        self.rules = rules
        self.vjp = vjp
        self.joint = vjp is not None
        self.variadic = variadic
        self.definition = definition
        self.doc = doc
        self.numpy: tuple[Any, ...] = ()
        self.methods: tuple[str, ...] = ()
        self.view = False  # whether the result can share the memory of an operand

        shapes = tuple(f"{operand}_shape" for operand in operands)
        self.frame = ("y", *operands, "needs", "saved", *self.options, *shapes)
        all_rules = [vjp] if vjp is not None else [*rules.values()]
        self.reads = {rule: _parameters(rule)[1:] for rule in all_rules}
        self.fills_buffers = (
            definition is not None and vjp is not None and self.reads[vjp][-1:] == ("grad_buffers",)
        )
        if self.fills_buffers:
            self.reads[vjp] = self.reads[vjp][:-1]  # type: ignore[index]
        for reads in self.reads.values():
            if unknown := [read for read in reads if read not in self.frame]:
                raise TypeError(
                    f"{name}: a rule reads {unknown}; it can read {', '.join(self.frame)}"
                )
        if unknown := [operand for operand in rules if operand not in operands]:
            raise TypeError(
                f"{name}: rules for {unknown}, which are no operands; the operands are {operands}"
            )
        self.picks = {
            rule: _picker([self.frame.index(read) for read in reads])
            for rule, reads in self.reads.items()
        }
        self.saves = any("saved" in reads for reads in self.reads.values())
        self.function: Callable[..., Tensor] = functools.wraps(forward)(_caller(self))
        self.function.__name__ = self.function.__qualname__ = name
        self.function.__doc__ = doc
        self.function.op = self  # type: ignore[attr-defined]
        if isinstance(forward, np.ufunc):  # whose signature has much that is refused
            kind = inspect.Parameter.POSITIONAL_ONLY
            parameters = [inspect.Parameter(x, kind) for x in operands]
            self.function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
            self.function.__module__ = "minigrad"  # pickle looks it up there, not in NumPy

    def __repr__(self) -> str:
        return f"<op {self.name}({', '.join(self.operands)})>"

    def sorted_out(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return all operands, and all options, whether given by position or by name."""
        arity = len(self.operands)
        by_position = dict(zip(self.positional_options, args[arity:]))
        if len(args) > arity + len(by_position):
            raise TypeError(
                f"{self.name}: takes at most {arity + len(self.positional_options)} arguments by "
                f"position ({', '.join([*self.operands, *self.positional_options])}), got "
                f"{len(args)}"
            )
        if repeated := by_position.keys() & options.keys():
            raise TypeError(f"{self.name}: {', '.join(sorted(repeated))} was given twice")
        options = by_position | options
        operands = args[:arity]
        for name in self.operands[len(args) :]:
            if name not in options and name not in self.optional:
                raise TypeError(
                    f"{self.name}: expected {', '.join(self.operands)}, got {len(args)} operands"
                )
            operands += (options.pop(name, None),)
        return operands, options

    def origins(self, rule: Rule, node: Node) -> list[Any]:
        """For each value that `rule` reads: the node that it came from, a tuple of them, or None."""
        places: dict[str, Any] = {"y": node}
        places.update(
            {self.operands[0]: node.inputs} if self.variadic else zip(self.operands, node.inputs)
        )
        return [places.get(read) for read in self.reads[rule]]

    def through_tensors(self, rule: Rule, node: Node) -> Rule:
        """The rule to use on Tensors: itself, or where it serves all operands, the derivative of
        the definition.
        """
        if self.definition is None or not self.joint:
            return rule
        definition, reads = self.definition, self.reads[rule]

        def derivative(g: Tensor, *args: Any) -> list[Any]:
            values = dict(zip(reads, args))
            options = {name: values[name] for name in self.options}
            operands = [
                values[n] if n in values else _stand_in(i)
                for n, i in zip(self.operands, node.inputs)
            ]
            return vjp_of(definition, operands, options, g)

        return derivative

    def explained(self, error: Exception, operands: Any, options: dict[str, Any]) -> Exception:
        """An error of `forward`, with the op and what it was given."""
        names = self.operands * len(operands) if self.variadic else self.operands
        got = [f"{name} {_described(unwrap(value))}" for name, value in zip(names, operands)]
        got += [f"{name}={value!r}" for name, value in options.items()]
        kinds = (np.linalg.LinAlgError, np.exceptions.AxisError, IndexError, ValueError)
        kind = next((k for k in kinds if isinstance(error, k)), TypeError)
        reason = str(error).removeprefix(f"{self.name}: ")
        if "gufunc signature" in reason:  # NumPy counts "core dimensions" there
            reason = "the shapes do not match"
        return kind(f"{self.name}: {reason}; got {', '.join(got)}")


def _stand_in(node: Node | None) -> Tensor | None:
    """Zeros in place of an operand whose values were not saved, since no gradient depends on them."""
    return (
        None if node is None else wrap(np.broadcast_to(np.zeros((), node.dtype), node.shape), node)
    )


def _described(value: Any) -> str:
    return (
        f"{value.shape} {value.dtype}" if isinstance(value, (ndarray, np.generic)) else repr(value)
    )


def _positional(forward: Callable[..., Any]) -> tuple[str, ...]:
    """The parameters that can be given by position; none of a ufunc, which has its operands alone."""
    return () if isinstance(forward, np.ufunc) else _parameters(forward)


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    code = inspect.unwrap(function).__code__
    return code.co_varnames[: code.co_argcount]


def _picker(places: list[int]) -> Callable[[Any], tuple[Any, ...]]:
    """A function from a frame of values to the tuple of those at `places`."""
    if not places:
        return lambda frame: ()
    if len(places) == 1:
        place = places[0]
        return lambda frame: (frame[place],)
    return itemgetter(*places)


# -- calls
# --------------------------------------------------------------------------------------------- On a
# first reading, `call` is enough: arrays out of tensors, compute, a tensor around the result.
# `record`, which leaves a node in the graph, is about what each rule of the op wants to be saved
# for it.

_FAILURES = (ValueError, TypeError, IndexError)  # LinAlgError is a ValueError


def _caller(op: Op) -> Callable[..., Tensor]:
    """The function that an op is for its users."""
    forward, arity, saves, get_mode = op.forward, len(op.operands), op.saves, MODE.get
    definition, get_replaced = op.definition, DEFINITIONS.get
    record = _recorder(op)

    def call(*args: Any, **options: Any) -> Tensor:
        if definition is not None and op.name in get_replaced():
            return definition(*args, **options)
        if len(args) != arity and not op.variadic:
            args, options = op.sorted_out(args, options)
        mode = get_mode()
        arrays: list[Any] = []
        inputs: list[Node | None] = []
        for x in args:
            if isinstance(x, Tensor):
                arrays.append(x._array)
                inputs.append(x._node)
            else:
                # a list becomes an array, which rules can read; a number stays as it is, so that it
                # is weak
                arrays.append(np.asarray(x) if type(x) is list or type(x) is tuple else x)
                inputs.append(None)
        for value in options.values():
            if isinstance(value, Tensor):
                options = untracked_options(op.name, options)
        try:
            y = (
                forward(*arrays, **options)
                if mode.watch is None
                else mode.watch.forward(op, forward, tuple(arrays), options)
            )
        except _FAILURES as error:
            raise op.explained(error, arrays, options) from None
        saved = None
        if saves:
            y, saved = y
        t = Tensor.__new__(Tensor)
        t._array = y = y if type(y) is ndarray else np.asarray(y)
        t._node = (
            record(inputs, arrays, options, y, saved, mode) if mode.record and any(inputs) else None
        )
        return t

    return call


def _recorder(op: Op) -> Callable[..., Node | None]:
    """The function that makes the node of a call: an edge for each operand that wants a gradient
    and has a rule.
    """
    joint, defaults, variadic = op.vjp, op.options, op.variadic
    ruled = [
        (i, op.rules[name], op.picks[op.rules[name]])
        for i, name in enumerate(op.operands)
        if name in op.rules
    ]
    read = {name for reads in op.reads.values() for name in reads}
    more = bool(read - {"y", *op.operands})  # than the result and the operands
    shaped = not read.isdisjoint(f"{name}_shape" for name in op.operands)

    def record(
        inputs: list[Node | None],
        arrays: list[Any],
        options: Any,
        y: ndarray,
        saved: Any,
        mode: Any,
    ) -> Node | None:
        frame = (
            [y, tuple(arrays)] if variadic else [y, *arrays]
        )  # in the order of op.frame, as far as it is read
        if more:
            frame += [tuple([node is not None for node in inputs]), saved]
            frame += [options.get(name, default) for name, default in defaults.items()]
        if shaped:
            shapes = [np.shape(x) for x in arrays]
            frame += [tuple(shapes)] if variadic else shapes
        edges: list[Edge] = []
        if joint is None:
            for i, rule, pick in ruled:
                node = inputs[i]
                if node is not None:
                    edges.append((node, rule, pick(frame)))
        else:
            values = op.picks[joint](frame)
            edges = [(node, joint, values) for node in inputs if node is not None]
        if not edges or y.dtype.kind != "f":
            if edges and y.dtype.kind == "c":
                raise TypeError(
                    f"{op.name}: the result is complex, and complex numbers have no gradients "
                    "here; "
                    "compute with real and imaginary parts, or use .detach() where no gradient is "
                    "needed"
                )
            if edges and y.dtype.kind not in "iub":
                raise TypeError(
                    f"{op.name}: a result of dtype {y.dtype} has no gradient; compute with plain "
                    "numbers"
                )
            return None
        node = Node.__new__(Node)  # and Node.__init__, without the time that a call takes
        node.seq = tick()
        node.op = op
        node.edges = tuple(edges)
        node.inputs = tuple(inputs)
        node.shape = y.shape
        node.dtype = y.dtype
        node.notes = node.grad = None
        if mode.watch is not None:
            mode.watch.recorded(node)
        return node

    return record


# -- half precision
# --------------------------------------------------------------------------------------------


def _widened(x: Any) -> Any:
    return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float16 else x


def in_single(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward function that is given float32 in place of float16, and whose result is rounded to
    float16.
    """

    @functools.wraps(forward)
    def wrapper(*args: Any, **options: Any) -> Any:
        if (
            type(args[0]) is np.ndarray and args[0].dtype.char in "fd"
        ):  # as nearly always: nothing to look up
            return forward(*args, **options)
        kinds = [x.dtype.char for x in args if type(x) is np.ndarray]
        if "e" not in kinds or "f" in kinds or "d" in kinds:  # float16 alone
            return forward(*args, **options)
        with np.errstate(over="ignore"):  # what float16 does not hold is infinite
            answer = forward(*map(_widened, args), **options)
            y, *saved = answer if isinstance(answer, tuple) else (answer,)
            return (y.astype(np.float16), *saved) if saved else y.astype(np.float16)

    return wrapper


def rule_in_single(vjp: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that is given float32 in place of float16; the engine rounds what it returns."""

    @functools.wraps(vjp)
    def wrapper(g: Any, *args: Any) -> Any:
        return vjp(_widened(g), *map(_widened, args)) if g.dtype.char == "e" else vjp(g, *args)

    return wrapper


# -- helpers for rules and definitions
# -----------------------------------------------------------------

alias = Op(
    "alias",
    lambda x: x,
    ("x",),
    {"x": lambda g: g},
    doc="The same tensor, at a new place in the graph.",
).function


def either(call: Callable[..., Tensor]) -> Callable[..., Any]:
    """An op as NumPy's functions are: it records where it is given a Tensor, and else returns an
    ndarray.

    For rules that need a function that NumPy lacks.
    """
    forward = call.op.forward  # type: ignore[attr-defined]

    @functools.wraps(call)
    def function(*args: Any, **options: Any) -> Any:
        return (
            call(*args, **options)
            if any(isinstance(x, Tensor) for x in args)
            else forward(*args, **options)
        )

    return function


def vjp_of(
    function: Callable[..., Tensor], operands: list[Any], options: dict[str, Any], g: Tensor
) -> list[Any]:
    """The gradients of `function(*operands, **options)`, recorded; None for operands that need
    none.
    """
    with enable_grad():
        stops = [alias(x) if isinstance(x, Tensor) and x._node is not None else x for x in operands]
        y = function(*stops, **options)
        nodes = [x._node if isinstance(x, Tensor) else None for x in stops]
        if y._node is None:
            return [None] * len(operands)
        found = Backward(wrap, True, True).run(
            [y._node], [g], [node for node in nodes if node is not None]
        )
    return [None if node is None else found.get(node) for node in nodes]
