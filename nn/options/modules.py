"""Further methods of modules: hooks, conversions, traversal, a table. Dictionaries of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from minigrad.check.report import Report
from minigrad.numpy.creation import as_dtype
from minigrad.registry import add_methods
from minigrad.tensor import HookHandle, unwrap

from ..module import Module, Parameter, checked_module

__all__ = ["ModuleDict"]

M = TypeVar("M")


@dataclass
class Hooks:
    """Hooks of one module, which are called before and after its forward pass."""

    before: dict[int, Callable[..., Any]] = field(default_factory=dict)
    after: dict[int, Callable[..., Any]] = field(default_factory=dict)

    def __call__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of `forward` as hooks change it."""
        for hook in tuple(self.before.values()):
            changed = hook(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        result = module.forward(*args, **kwargs)
        for hook in tuple(self.after.values()):
            changed = hook(module, args, result)
            result = result if changed is None else changed
        return result


def hooks_of(module: Any) -> Hooks:
    """Return the hooks of a module, made on first use."""
    if module._call is None:
        module._call = Hooks()
    hooks: Hooks = module._call
    return hooks


def replace_array(parameter: Parameter, data: np.ndarray) -> None:
    """Replace the array of a parameter by one of any shape and dtype, and drop the gradient.

    An optimizer that was created before refuses its next step.
    """
    requires_grad = parameter.requires_grad
    parameter._array, parameter._node, parameter._frozen = data, None, None
    parameter.requires_grad = requires_grad


class FurtherMethods:
    """Methods of Module that no program of the book needs."""

    def register_forward_hook(self, hook: Callable[[Any, tuple[Any, ...], Any], Any]) -> HookHandle:
        """Return a handle; until its `remove()`, a function is called after each forward pass.

        Parameters
        ----------
        hook : callable
            `hook(module, args, result)` returns a new result, or None to keep it.
        """
        return HookHandle(hooks_of(self).after, hook)

    def register_forward_pre_hook(self, hook: Callable[[Any, tuple[Any, ...]], Any]) -> HookHandle:
        """Return a handle; until its `remove()`, a function is called before each forward pass.

        Parameters
        ----------
        hook : callable
            `hook(module, args)` returns new arguments, or None to keep them.
        """
        return HookHandle(hooks_of(self).before, hook)

    @property
    def has_hooks(self: Any) -> bool:
        """True if hooks are attached to the forward pass."""
        return self._call is not None and bool(self._call.before or self._call.after)

    def children(self: Any) -> Iterator[Module]:
        """Yield the modules directly inside this one."""
        return (child for _, child in self.named_children())

    def named_buffers(self: Any) -> Iterator[tuple[str, np.ndarray]]:
        """Yield all buffers with dotted names."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name in module._buffers:
                value = unwrap(getattr(module, name))
                if value is not None and id(value) not in seen:
                    seen.add(id(value))
                    yield f"{prefix}.{name}" if prefix else name, value

    def astype(self: M, dtype: Any) -> M:
        """Return the module, with its parameters and floating buffers converted in place.

        Parameters
        ----------
        dtype : dtype
            Floating dtype to convert to.
        """
        if np.dtype(dtype).kind != "f":
            raise TypeError(f"Module.astype: dtype must be floating, got {np.dtype(dtype)}")
        whole: Any = self
        for module in whole.modules():
            for name, value in list(vars(module).items()):
                if isinstance(value, Parameter):
                    replace_array(value, value.data.astype(dtype))
                elif name in module._buffers and value is not None and value.dtype.kind == "f":
                    setattr(module, name, value.astype(dtype))
        return self

    def float(self: Any) -> Any:
        """Return `astype(float32)`."""
        return self.astype(np.float32)

    def double(self: Any) -> Any:
        """Return `astype(float64)`."""
        return self.astype(np.float64)

    def to(self: Any, to: Any) -> Any:
        """Return the module, converted to a dtype. The device "cpu" changes nothing.

        Parameters
        ----------
        to : dtype, Tensor, array or "cpu"
            A dtype, or an array that has it.
        """
        dtype = as_dtype("Module.to", to)
        return self if dtype is None else self.astype(dtype)

    def apply(self: M, function: Callable[[Any], Any]) -> M:
        """Return the module, after a function was called with each module inside it, then with it.

        Parameters
        ----------
        function : callable
            Its result is ignored.
        """
        whole: Any = self
        for child in whole.children():
            child.apply(function)
        function(self)
        return self

    def summary(self: Any, depth: int | None = None) -> Report:
        """Return a table of the modules, with the shapes and sizes of their parameters.

        Parameters
        ----------
        depth : int, optional
            Number of levels of modules. A module of the last level counts all inside it.
        """
        rows = [("module", "type", "parameters", f"{'count':>12}")]
        counted: set[int] = set()
        for name, module in self.named_modules():
            level = name.count(".") + bool(name)
            if depth is not None and level > depth:
                continue
            parameters = {n: p for n, p in vars(module).items() if isinstance(p, Parameter)}
            shapes = [
                f"{n} {p.shape}" + " (shared)" * (id(p) in counted) for n, p in parameters.items()
            ]
            inside = module.parameters() if level == depth else parameters.values()
            sizes = {id(p): p.size for p in inside}
            count = sum(size for key, size in sizes.items() if key not in counted)
            counted |= sizes.keys()
            shown = f"{count:12,}" if sizes else ""
            rows.append((name or "(model)", type(module).__name__, ", ".join(shapes), shown))
        widths = [max(map(len, column)) for column in zip(*rows)]
        table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        rule = "-" * max(map(len, table))
        trained = self.num_parameters(trainable_only=True)
        total = f"{self.num_parameters():,} parameters, {trained:,} trained"
        return Report("\n".join([table[0], rule, *table[1:], rule, total]))


add_methods(
    Module, {name: m for name, m in vars(FurtherMethods).items() if not name.startswith("__")}
)


class ModuleDict(Module):
    """Dictionary of modules, for models that call them in their own `forward`.

    Parameters
    ----------
    modules : mapping of str to Module, optional
        Modules by name.
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        for name, module in (modules or {}).items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        if not isinstance(name, str):
            raise TypeError(f"ModuleDict: a name must be a string, got {name!r}")
        if "." in name or hasattr(ModuleDict, name):
            raise KeyError(
                "ModuleDict: a name must have no dot and be no attribute of ModuleDict, got "
                f"{name!r}"
            )
        setattr(self, name, checked_module(self, module))

    def __getitem__(self, name: str) -> Module:
        return dict(self.named_children())[name]

    def __contains__(self, name: object) -> bool:
        return name in dict(self.named_children())

    def __len__(self) -> int:
        return len(dict(self.named_children()))

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def keys(self) -> Iterator[str]:
        """Yield the names."""
        return (name for name, _ in self.named_children())

    def values(self) -> Iterator[Module]:
        """Yield the modules."""
        return self.children()

    def items(self) -> Iterator[tuple[str, Module]]:
        """Yield names and modules."""
        return self.named_children()
