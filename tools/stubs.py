"""Write `minigrad/methods.pyi`: the methods that the registry sets on Tensor.

Type checkers do not run the registry. `python -m tools.stubs` renews the file.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import minigrad as minigrad  # all that registers methods
from minigrad.tensor import Tensor

PATH = Path(__file__).parents[1] / "minigrad" / "methods.pyi"
_HEAD = '''"""Made by `python -m tools.stubs`: the methods that the registry sets on Tensor."""

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from .numpy.sorting import TopK
from .optim.state import StateMethods
from .tensor import Tensor

class OptimizerMethods(StateMethods): ...

class Size(builtins.int):
    shape: builtins.tuple[builtins.int, ...]
    def __call__(self, dim: builtins.int | None = ...) -> Any: ...

class Methods:
    __slots__ = ()
'''
_PROPERTIES = {
    "shape": "builtins.tuple[builtins.int, ...]", "ndim": "builtins.int", "dtype": "np.dtype[Any]",
    "itemsize": "builtins.int", "nbytes": "builtins.int", "strides": "builtins.tuple[builtins.int, "
                                                                     "...]",
    "flags": "Any", "device": "Any", "size": "Size",
}  # fmt: skip
"""Types of the properties that are not tensors."""
_KNOWN = {
    "int",
    "float",
    "bool",
    "str",
    "None",
    "Any",
    "Tensor",
    "Sequence",
    "tuple",
    "list",
    "TopK",
}
_RESULTS = {"nonzero": "builtins.tuple[np.ndarray, ...]"}
"""Types of results whose functions have no annotations, if they are not tensors."""
_TYPES = {"Axis": "int | tuple[int, ...] | None"}


def methods() -> dict[str, Any]:
    """Return the methods of Tensor that no class body defines, by name."""
    own = Tensor.__module__
    defined = {
        name: f for name, f in vars(Tensor).items() if inspect.isfunction(f) and f.__module__ != own
    }
    for protocol in (
        "__getattr__",
        "__array_ufunc__",
        "__array_function__",
    ):  # the first raises for missing names
        defined.pop(protocol, None)
    return defined


def properties() -> dict[str, property]:
    """Return the properties of Tensor that no class body defines, by name."""
    own = Tensor.__module__
    return {
        n: p
        for n, p in vars(Tensor).items()
        if isinstance(p, property) and p.fget.__module__ != own
    }


def _property(name: str, prop: property) -> str:
    kind = _PROPERTIES.get(name, "Tensor")
    return f'    @property\n    def {name}(self) -> {kind}:\n        """{prop.__doc__}"""\n'


def _type(annotation: Any, otherwise: str) -> str:
    text = _TYPES.get(annotation, annotation) if isinstance(annotation, str) else otherwise
    if not set(re.findall(r"[A-Za-z_]+", text)) <= _KNOWN:
        return "Any"
    return re.sub(
        r"\b(int|float|bool|str|tuple|list)\b", r"builtins.\1", text
    )  # Tensor has methods of these names


def _declared(name: str, method: Any) -> str:
    """Return a method as a stub: its parameters after the tensor, with `...` for defaults."""
    result = "Tensor"
    if name == "__getitem__":
        shown = ["index: Any"]
    elif name == "__setitem__":
        shown, result = ["index: Any", "value: Any"], "None"
    elif name.startswith("__"):
        shown = [] if name.strip("_") in ("neg", "pos", "abs", "invert") else ["other: Any"]
    else:
        signature = inspect.signature(method)
        parameters = list(signature.parameters.values())
        if (
            parameters[0].kind is inspect.Parameter.VAR_POSITIONAL
        ):  # NumPy's function, on the arrays inside
            of_numpy = inspect.signature(method.numpy[0]).parameters.values()
            parameters = [p for p in of_numpy if p.name not in ("out", "signature")]
        shown = _shown(parameters[1:])
        result = _RESULTS.get(name) or _type(signature.return_annotation, "Tensor")
    doc = (method.__doc__ or "").strip().partition("\n")[0]
    ignore = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
    line = f"    def {name}({', '.join(['self', *shown])}) -> {result}:{ignore}"
    return f'{line}\n        """{doc}"""' if doc else f"{line} ..."


def _shown(parameters: list[inspect.Parameter]) -> list[str]:
    """Return parameters as source, plus `dim` and `keepdim` for `axis` and `keepdims`."""
    shown = [
        f"{p.name}: {_type(p.annotation, 'Any')}" + (" = ..." if p.default is not p.empty else "")
        for p in parameters
    ]
    kinds = [p.kind for p in parameters]
    shown = [{2: "*", 4: "**"}.get(int(kind), "") + text for kind, text in zip(kinds, shown)]
    names = {p.name for p in parameters}
    words = [
        f"{word}: Any = ..."
        for word, ours in {"dim": "axis", "keepdim": "keepdims"}.items()
        if ours in names
    ]
    last = len(shown) - (inspect.Parameter.VAR_KEYWORD in kinds)
    starred = inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.KEYWORD_ONLY in kinds
    shown[last:last] = words if starred or not words else ["*", *words]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        shown.insert(kinds.count(inspect.Parameter.POSITIONAL_ONLY), "/")
    return shown


def stubs() -> str:
    """Return the contents of `methods.pyi`."""
    declared = [_declared(name, method) for name, method in sorted(methods().items())]
    return (
        _HEAD
        + "\n".join(declared)
        + "\n"
        + "".join(_property(*item) for item in properties().items())
    )


if __name__ == "__main__":
    PATH.write_text(stubs(), encoding="utf-8")
