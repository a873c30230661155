"""Functions that call ops, each written from one template, as `dataclasses` writes `__init__`.

All calls do the same: take arrays out of tensors, compute, and put a tensor around the result. If
operations are recorded, the tensor gets a node in the graph, with an edge for each operand that
needs a gradient. The edge contains the values that the rule of the operand reads. Written out for
one op, this takes half the time of loops over its operands and options.

The rules of `multiply` read `b` and `a`. Its function is

    def call(a, b, /):
        _mode = _get_mode()
        if isinstance(a, _Tensor):
            a, _node_a = a._array, a._last_node
        ...                                                 # the same for b
        y = _forward(a, b)
        _tensor = _new(_Tensor)
        _tensor._array = y
        if not _mode.record or (_node_a is None and _node_b is None):
            _tensor._last_node = None
            return _tensor
        _edges = []
        if _node_a is not None:
            _edges.append((_node_a, _rule_a, (b,)))
        ...                                                 # for b, and a node with these edges
        return _tensor

`print(minigrad.multiply.op.source)` shows all of it, and a debugger steps through it. Look at the
template `_CALL`. A first reader can skip what serves writes into memory (`_logs`, `_log`, `_first`,
`_seen`) and tools (`_mode.watch`).
"""

from __future__ import annotations

import functools
import inspect
import linecache
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import Array, Function, Options, as_array, as_forward_operand, as_result, is_number
from .changes import LOG, NEVER, logs, shares_memory, tick
from .graph import Node
from .modes import MODE
from .nested import untracked
from .tensor import Tensor, extension, seen_of, wrap

if TYPE_CHECKING:
    from .registry import Op

# Names that begin with _ belong to the template. The others are parameters of the op, its result
# `y`, and `saved`, the second value that the forward function of a kernel returns.

_CALL = """\
def call({parameters}):
    _mode = _get_mode()
{read}{whole}{unwrap}
    try:
        if _mode.watch is None:
            {result} = _forward({arguments})
        else:
            {result} = _mode.watch.forward(_op, _forward, {operands}, {options})
    except _FAILURES as _error:
        raise _op.explain(_error, {operands}, {options}) from None
    if type(y) is not _ndarray:
        y = _as_result(y)
    _tensor = _new(_Tensor)
    _tensor._array = y
    _tensor._first = None
{view}    if not _mode.record or {is_constant}:
        _tensor._last_node = None
        return _tensor
    if y.dtype.kind != "f":
        return _not_floating(_op, {tensors}, {options}, y)
{edges}
    _tensor._last_node = _node = _new(_Node)
    _node.seq = _tick()
    _node.op = _op
    _node.edges = _edges
    _node.inputs = {nodes}
    _node.shape = y.shape
    _node.dtype = y.dtype
    _node.notes = _node.grad = None
{saved}    if _mode.watch is not None:
        _mode.watch.recorded(_node)
    return _tensor
"""

_READ = """\
    _is_logged = _logs and _mode.record and _log["read"]({0})
"""

_SAVED = """\
    if _is_logged:
        _log["saved"](_node)
"""

_UNWRAP = """\
    if isinstance({0}, _Tensor):
        {0}, _node_{0} = {0}._array, {0}._last_node
    else:
        _node_{0} = None
        if type({0}) not in _plain or type({0}) is _ndarray and {0}.dtype is _object:
            {0} = _as_forward_operand({0})
"""

_UNWRAP_ALL = """\
    _nodes = tuple([_x._last_node if isinstance(_x, _Tensor) else None for _x in {0}])
    {0} = tuple([_x._array if isinstance(_x, _Tensor) else _asarray(_x) for _x in {0}])
"""

_UNWRAP_OPTION = """\
    if isinstance({0}, _Tensor):
        {0} = _untracked(_op.name, "{0}", {0})
"""

# NumPy's `base` of a view x[0] is x, or x.base if x is itself a view.

_VIEW = """\
    if isinstance(_whole, _Tensor):
        _base = y.base
        if y is {0} or _base is not None and (
            _base is {0} or _base is {0}.base or _shares_memory(y, {0})
        ):
            if not {0}.ndim and _is_number({0}):
                y = _tensor._array = y.copy()
            elif not _mode.record:
                _tensor._seen = _NEVER
            else:
                _tensor._first = _whole
                if _logs:
                    _tensor._seen = _seen_of(_whole)
{1}"""

_READ_IF_COPY = """\
        elif _logs and _mode.record:
            _log["read"]((_whole,))
            _node_{0} = _whole._last_node
"""

_EDGE = """\
    if _node_{0} is not None:
        _edges.append((_node_{0}, _rule_{0}, {1}))
"""

_ONLY_EDGE = """\
    _edges = ((_node_{0}, _rule_{0}, {1}),)
"""

_EDGES_OF_ALL = """\
    _edges = [(_node, _rule_{0}, _values) for _node in _nodes if _node is not None]
"""


def source_of(op: Op) -> str:
    """Return the source of the function that calls an op."""
    names = op.operands
    if op.variadic:
        operands, nodes = names[0], "_nodes"
        tensors = f"tuple(map(_rewrap, {names[0]}, _nodes))"
        unwrap = _UNWRAP_ALL.format(names[0])
        shapes = {f"{names[0]}_shape": f"tuple([_x.shape for _x in {names[0]}])"}
    else:
        operands = f"({', '.join(names)},)"
        tensors = f"({', '.join([f'_rewrap({name}, _node_{name})' for name in names])},)"
        nodes = f"({', '.join([f'_node_{name}' for name in names])},)"
        unwrap = "".join([_UNWRAP.format(name) for name in names])
        shapes = {f"{name}_shape": f"_shape({name})" for name in names}
    expressions = {"needs": f"tuple([_node is not None for _node in {nodes}])", **shapes}

    def values(name: str) -> str:
        reads = op.reads[op.rules[name]]
        shape = {f"{name}_shape": f"{name}.shape"} if not op.joint else {}
        return "".join([f"{(expressions | shape).get(read, read)}, " for read in reads])

    saved = {name: f"({values(name)})" for name in op.rules}
    edges = "".join([f"    {name} = _kept({name})\n" for name in names if name not in op.rules])
    if op.joint:
        edges += f"    _values = {saved[names[0]]}\n"
        saved = dict.fromkeys(names, "_values")
    if op.variadic:
        edges += _EDGES_OF_ALL.format(names[0])
    elif len(names) == 1:
        edges += _ONLY_EDGE.format(names[0], saved[names[0]])
    else:
        edges += "    _edges = []\n"
        edges += "".join([_EDGE.format(name, values) for name, values in saved.items()])
    without_node = " and ".join([f"_node_{name} is None" for name in op.rules])
    arguments = ", ".join(
        [f"*{names[0]}" if op.variadic else ", ".join(names), *[f"{o}={o}" for o in op.options]]
    )
    options = f"{{{', '.join([f'{o!r}: {o}' for o in op.options])}}}"
    whole = f"{names[0]}{'[0]' if op.variadic else ''}"
    is_view = op.view and not op.variadic  # of the old node of its operand
    return _CALL.format(
        parameters=op.parameters,
        is_constant="not any(_nodes)" if op.variadic else f"({without_node})",
        read="" if is_view else _READ.format(names[0] if op.variadic else operands),
        saved="" if is_view else _SAVED,
        whole=f"    _whole = {whole}\n" if op.view else "",
        view=_VIEW.format(whole, _READ_IF_COPY.format(whole) * is_view) if op.view else "",
        unwrap=unwrap + "".join([_UNWRAP_OPTION.format(option) for option in op.options]),
        result="y, saved" if op.saves else "y",
        arguments=arguments,
        operands=operands,
        tensors=tensors,
        options=options,
        edges=edges,
        nodes=nodes,
    )


_PLAIN = frozenset({np.ndarray, float, int, bool, complex, type(None), np.float64, np.float32})
"""Types of operands that need no conversion."""


@functools.cache
def _compile(source: str) -> CodeType:
    """Compile a source, which many ops share."""
    return compile(source, "<op>", "exec")


def _name(call: Function, op: Op) -> None:
    """Set the name and source that warnings, debuggers and tracebacks show for an op."""
    file, source = f"<op {op.name}>", op.source
    entry = len(source), None, source.splitlines(True)
    if linecache.cache.get(file, entry)[:3] != entry:  # another op with this name
        file = f"<op {op.name} {len(linecache.cache)}>"
    linecache.cache[file] = *entry, file
    call.__code__ = call.__code__.replace(co_filename=file, co_name=op.name)


def caller(op: Op) -> Callable[..., Tensor]:
    """Return the function of Tensors that calls an op."""
    op.source = source_of(op)
    namespace: Options = {
        "__name__": __name__,
        # LinAlgError is a ValueError; operands that are no arrays lack attributes
        "_FAILURES": (ValueError, TypeError, IndexError, AttributeError),
        "_Node": Node,
        "_Tensor": Tensor,
        "_as_forward_operand": as_forward_operand,
        "_NEVER": NEVER,
        "_asarray": as_array,
        "_as_result": as_result,
        "_is_number": is_number,
        "_forward": op.forward,
        "_get_mode": MODE.get,
        "_kept": lambda x: x.copy() if hasattr(x, "copy") else x,  # a mask, which callers reuse
        "_ndarray": np.ndarray,
        "_new": object.__new__,
        "_not_floating": _not_floating,
        "_object": np.dtype(object),
        "_op": op,
        "_plain": _PLAIN,
        "_log": LOG,
        "_logs": logs,
        "_rewrap": _rewrap,
        "_seen_of": seen_of,
        "_shape": np.shape,
        "_shares_memory": shares_memory,
        "_tick": tick,
        "_untracked": untracked,
    }
    namespace |= {f"_rule_{name}": rule for name, rule in op.rules.items()}
    exec(_compile(op.source), namespace)
    call: Callable[..., Tensor] = namespace["call"]
    _name(call, op)
    plain = inspect.unwrap(op.forward)
    if isinstance(plain, np.ufunc):
        call.__module__ = "minigrad"  # pickle looks it up there
    else:
        call.__defaults__, call.__kwdefaults__ = plain.__defaults__, plain.__kwdefaults__
        call = functools.update_wrapper(call, op.forward)
    call.__name__ = call.__qualname__ = op.name
    call.op = op  # type: ignore[attr-defined]
    return call


def _rewrap(operand: Array, node: Node | None) -> Any:
    """Return an operand as it was before its array was taken out."""
    return operand if node is None else wrap(operand, node, NEVER)


def _not_floating(op: Op, operands: tuple[Array, ...], options: Options, y: np.ndarray) -> Tensor:
    """Return a result of integers, which has no gradient, or a complex one."""
    if y.dtype.kind == "c" and extension.complex is not None:
        result: Tensor = extension.complex(op, operands, options)
        return result
    if y.dtype.kind not in "iub":
        raise TypeError(
            f"{op.name}: the result must have a floating dtype to have a gradient, got dtype "
            f"{y.dtype}"
        )
    return wrap(y, None)
