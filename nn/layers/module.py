"""Module: a part of a model, with its parameters, its buffers and its smaller parts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from minigrad.core.changes import mark_changed
from minigrad.core.errors import GradientError
from minigrad.core.tensor import HookHandle, Tensor
from minigrad.report import Report
from minigrad.torch_names import as_dtype

__all__ = ["Module", "ModuleDict", "ModuleList", "Parameter", "Sequential", "evaluating"]

_EVALUATING: ContextVar[bool] = ContextVar("nn.evaluating", default=False)


@contextmanager
def evaluating() -> Iterator[None]:
    """Every module is in evaluation mode within this block, in this thread or task; its own flag
    stays.
    """
    token = _EVALUATING.set(True)
    try:
        yield
    finally:
        _EVALUATING.reset(token)


class Parameter(Tensor):
    """A tensor that belongs to a module and is trained. It requires gradients unless told
    otherwise.
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True, dtype: Any = None) -> None:
        super().__init__(data, requires_grad, dtype)

    def convert(self, dtype: Any) -> None:
        """Change the dtype; the gradient is dropped."""
        self.replace(self._array.astype(dtype))

    def replace(self, data: np.ndarray) -> None:
        """Other numbers, of any shape and dtype, in memory of their own; the gradient is dropped.

        An optimizer that was made before refuses its next step.
        """
        requires_grad = self.requires_grad
        self._array, self._node = data, None
        self.requires_grad = requires_grad

    def __repr__(self) -> str:
        return "parameter" + super().__repr__().removeprefix("tensor")


class Module:
    """Base of every layer and model: write `forward`, and assign parameters and modules as
    attributes.

    Attributes that are `Parameter` or `Module` are found by name, in the order of their assignment;
    lists of modules go into `ModuleList` or `ModuleDict`. Buffers are arrays that are saved but not
    trained, such as running statistics: see `register_buffer`.
    """

    _training: bool = True
    _buffers: dict[str, bool] = {}  # noqa: RUF012  (name -> whether it is saved; replaced, never changed)
    _forward_hooks: dict[int, Callable[..., Any]] = {}  # noqa: RUF012
    _forward_pre_hooks: dict[int, Callable[..., Any]] = {}  # noqa: RUF012

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._forward_pre_hooks and not self._forward_hooks:
            return self.forward(*args, **kwargs)
        for pre_hook in tuple(self._forward_pre_hooks.values()):
            changed = pre_hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        result = self.forward(*args, **kwargs)
        for hook in tuple(self._forward_hooks.values()):
            changed = hook(self, args, result)
            result = result if changed is None else changed
        return result

    def register_forward_hook(
        self, hook: Callable[[Module, tuple[Any, ...], Any], Any]
    ) -> HookHandle:
        """Call `hook(module, args, result)` after each forward; what it returns, unless None, is
        the result.
        """
        if not self._forward_hooks:
            self._forward_hooks = {}
        return HookHandle(self._forward_hooks, hook)

    def register_forward_pre_hook(
        self, hook: Callable[[Module, tuple[Any, ...]], Any]
    ) -> HookHandle:
        """Call `hook(module, args)` before each forward; what it returns, unless None, replaces the
        arguments.
        """
        if not self._forward_pre_hooks:
            self._forward_pre_hooks = {}
        return HookHandle(self._forward_pre_hooks, hook)

    @property
    def has_hooks(self) -> bool:
        """Whether hooks are attached to this module's forward."""
        return has_hooks(self)

    @property
    def training(self) -> bool:
        """Whether dropout works and statistics are gathered: as `train` and `eval` set it, never in
        `evaluating()`.
        """
        return self._training and not _EVALUATING.get()

    @training.setter
    def training(self, mode: bool) -> None:
        self._training = mode

    # -- parts ---------------------------------------------------------------------------------

    def register_buffer(self, name: str, array: Any, persistent: bool = True) -> None:
        """Keep an ndarray (or None, until there is one) as attribute `name`; a persistent one is
        part of the state.
        """
        self._buffers = {**self._buffers, name: persistent}
        setattr(self, name, None if array is None else np.asarray(array))

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly inside this one."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    def children(self) -> Iterator[Module]:
        """The modules directly inside this one, without their names."""
        return (child for _, child in self.named_children())

    def named_modules(
        self, prefix: str = "", seen: set[int] | None = None
    ) -> Iterator[tuple[str, Module]]:
        """This module (named "") and all modules inside it, each once (ids in `seen` were given),
        by dotted names.
        """
        seen = set() if seen is None else seen
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name, child in self.named_children():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name, seen)

    def modules(self) -> Iterator[Module]:
        """This module and all modules inside it."""
        return (module for _, module in self.named_modules())

    def _named(
        self, kind: Callable[[Module], Iterable[tuple[str, Any]]]
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, value in kind(module):
                if id(value) not in seen:
                    seen.add(id(value))
                    yield f"{prefix}.{name}" if prefix else name, value

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """All parameters by dotted names. One that is shared (tied) is given once, under its first
        name.
        """
        return self._named(
            lambda m: ((n, v) for n, v in vars(m).items() if isinstance(v, Parameter))
        )

    def parameters(self) -> Iterator[Parameter]:
        """All parameters, each once."""
        return (parameter for _, parameter in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, np.ndarray]]:
        """All buffers by dotted names."""
        return self._named(
            lambda m: ((n, v) for n in m._buffers if (v := getattr(m, n)) is not None)
        )

    def num_parameters(self, trainable_only: bool = False) -> int:
        """How many numbers the parameters hold, shared ones counted once."""
        return sum(p.size for p in self.parameters() if p.requires_grad or not trainable_only)

    # -- state ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray]:
        """Parameters and persistent buffers by name, as arrays that share the module's memory."""
        state = {name: parameter.data for name, parameter in self.named_parameters()}
        for prefix, module in self.named_modules():
            for name, persistent in module._buffers.items():
                if persistent and getattr(module, name) is not None:
                    state[f"{prefix}.{name}" if prefix else name] = getattr(module, name)
        return state

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Copy arrays into the parameters and buffers of the same names, in their dtypes.

        Unless all fit, nothing is changed, and one KeyError lists every missing, unexpected and
        misshaped name (the first five of each). With `strict=False`, missing and unexpected names
        are passed over.
        """
        own = self.state_dict()
        arrays = {name: np.asarray(getattr(value, "data", value)) for name, value in state.items()}
        both = [name for name in own if name in arrays]
        shapes = {name: (own[name].shape, arrays[name].shape) for name in both}
        lists = {
            "misshaped": [
                f"{name}: expected {a}, got {b}" for name, (a, b) in shapes.items() if a != b
            ],
            "missing": [name for name in own if name not in arrays] if strict else [],
            "unexpected": [name for name in arrays if name not in own] if strict else [],
        }
        if any(lists.values()):
            more = lambda names: f" and {len(names) - 5} more" if len(names) > 5 else ""
            problems = "; ".join(
                f"{kind}: {', '.join(names[:5])}{more(names)}"
                for kind, names in lists.items()
                if names
            )
            raise KeyError(f"the state does not fit {type(self).__name__}: {problems}")
        for name in both:
            own[name][...] = arrays[name]
            mark_changed(own[name])

    def astype(self, dtype: Any) -> Module:
        """Convert all parameters and floating buffers to `dtype`, in place; gradients are dropped."""
        for module in self.modules():
            for name, value in list(vars(module).items()):
                if isinstance(value, Parameter):
                    value.convert(dtype)
                elif name in module._buffers and value is not None and value.dtype.kind == "f":
                    setattr(module, name, value.astype(dtype))
        return self

    def float(self) -> Module:
        """`astype(float32)`."""
        return self.astype(np.float32)

    def double(self) -> Module:
        """`astype(float64)`."""
        return self.astype(np.float64)

    def to(self, to: Any) -> Module:
        """`astype(to)`; the device "cpu", where everything is, changes nothing."""
        dtype = as_dtype("Module.to", to)
        return self if dtype is None else self.astype(dtype)

    def train(self, mode: bool = True) -> Module:
        """Set this module and all inside it to training (dropout works, statistics are gathered),
        or not.
        """
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """`train(False)`."""
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or with `set_to_none=False` set those that there are to zero."""
        for parameter in self.parameters():
            parameter.grad = (
                None if set_to_none or parameter.grad is None else np.zeros_like(parameter.data)
            )

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Train all parameters, or freeze them."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def apply(self, function: Callable[[Module], Any]) -> Module:
        """Call `function` on every module inside this one, and on it last."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Module:
        """A copy of all inside, the innermost first: however deep it is, one level is copied at a
        time.
        """
        for module in reversed(list(self.modules())):
            if id(module) in memo:
                continue
            for name, value in vars(module).items():
                if isinstance(value, Tensor) and not value.is_leaf:
                    raise GradientError(
                        f"deepcopy: {type(module).__name__}.{name} is a result with its graph; "
                        "keep its detach()"
                    )
            found: Any = type(module).__new__(type(module))
            memo[id(module)] = found
            state = copy.deepcopy(module.__reduce_ex__(4)[2], memo)
            found.__setstate__(state) if hasattr(found, "__setstate__") else vars(found).update(
                state or {}
            )
        return memo[id(self)]

    # -- pictures in text ------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What `repr` shows between the parentheses of this module."""
        return ""

    def __repr__(self) -> str:
        lines = [
            f"({name}): {child!r}".replace("\n", "\n  ") for name, child in self.named_children()
        ]
        inside = "".join(f"\n  {line}" for line in lines) + "\n" if lines else ""
        return f"{type(self).__name__}({self.extra_repr()}{inside})"

    def summary(self, depth: int | None = None) -> Report:
        """A table of the modules (down to `depth`), the shapes of their parameters, and how many
        numbers they hold.
        """
        rows = [("module", "type", "parameters", "count")]
        counted: set[int] = set()
        for name, module in self.named_modules():
            level = name.count(".") + 1 if name else 0
            if depth is not None and level > depth:
                continue
            own = [(n, p) for n, p in vars(module).items() if isinstance(p, Parameter)]
            shapes = ", ".join(
                f"{n} {p.shape}" + (" (shared)" if id(p) in counted else "") for n, p in own
            )
            listed = (
                list(module.named_parameters()) if level == depth else own
            )  # the last stands for all below
            count = sum(p.size for _, p in listed if id(p) not in counted)
            counted.update(id(p) for _, p in listed)
            rows.append(
                (name or "(model)", type(module).__name__, shapes, f"{count:,}" if listed else "")
            )
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        table = [
            f"{a:{widths[0]}}  {b:{widths[1]}}  {c:{widths[2]}}  {d:>{widths[3]}}".rstrip()
            for a, b, c, d in rows
        ]
        rule = "-" * max(map(len, table))
        trained = self.num_parameters(trainable_only=True)
        total = f"{self.num_parameters():,} parameters, {trained:,} trained"
        return Report("\n".join([table[0], rule, *table[1:], rule, total]))


class Sequential(Module):
    """Modules that run one after another."""

    def __init__(self, *modules: Module) -> None:
        for i, module in enumerate(modules):
            setattr(self, str(i), module)

    def __len__(self) -> int:
        return len(list(self.children()))

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    def __getitem__(self, i: int) -> Module:
        return list(self.children())[i]

    def append(self, module: Module) -> None:
        """Add a module at the end."""
        setattr(self, str(len(self)), module)

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x


def has_hooks(*modules: Module) -> bool:
    """Return whether hooks are attached to the forward of one of these modules."""
    return any(module._forward_pre_hooks or module._forward_hooks for module in modules)


class ModuleList(Sequential):
    """A list of modules; the model that holds it says how they are used."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__(*modules)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a ModuleList has no forward(); call the modules in it")


class ModuleDict(Module):
    """A dictionary of modules; the model that holds it says how they are used."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        for name, module in (modules or {}).items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        if "." in name or hasattr(Module, name):
            raise KeyError(f"ModuleDict: {name!r} cannot be the name of a module")
        setattr(self, name, module)

    def __getitem__(self, name: str) -> Module:
        return dict(self.named_children())[name]

    def __contains__(self, name: object) -> bool:
        return name in dict(self.named_children())

    def __len__(self) -> int:
        return len(dict(self.named_children()))

    def keys(self) -> Iterator[str]:
        """The names."""
        return iter(dict(self.named_children()))

    def values(self) -> Iterator[Module]:
        """The modules."""
        return self.children()

    def items(self) -> Iterator[tuple[str, Module]]:
        """Names and modules."""
        return self.named_children()
