"""Modules: parts of a model, with their parameters, buffers and submodules.

On a first reading: `Parameter`, and in `Module` the methods `__call__`, `named_modules`,
`named_parameters` and `state_dict`. A module finds its parameters among its attributes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

import numpy as np

from minigrad.arrays import Array, ArrayLike, DType, Function, as_array
from minigrad.changes import mark_changed
from minigrad.errors import GradientError, listed
from minigrad.tensor import Tensor, unwrap, zero_grads

from .methods import Methods

__all__ = ["Module", "ModuleList", "Parameter", "Sequential", "evaluating"]

L = TypeVar("L", bound="ModuleList")

if TYPE_CHECKING:
    P = ParamSpec("P")
    R = TypeVar("R", covariant=True)

    class HasForward(Protocol[P, R]):
        """Objects with a method `forward`."""

        def forward(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


_EVALUATING: ContextVar[bool] = ContextVar("nn.evaluating", default=False)

CALL: ContextVar[Function | None] = ContextVar("nn.call", default=None)
"""Function of this thread or task that is called in place of the forward pass of each module.

`call(module, args, kwargs)` returns the result, for example of `module.forward(*args, **kwargs)`.
"""


@contextmanager
def evaluating() -> Iterator[None]:
    """Put every module in evaluation mode within this block, in this thread or task.

    The modules' own `training` flags do not change.
    """
    token = _EVALUATING.set(True)
    try:
        yield
    finally:
        _EVALUATING.reset(token)


class Parameter(Tensor):
    """Trained tensor of a module.

    Parameters
    ----------
    data : array_like
        Initial values.
    requires_grad : bool, default True
        Record operations on the parameter.
    dtype : dtype, optional
        Of `data` by default.
    """

    __slots__ = ()

    def __init__(self, data: ArrayLike, requires_grad: bool = True, dtype: DType = None) -> None:
        super().__init__(data, requires_grad, dtype)

    def __repr__(self) -> str:
        return "parameter" + super().__repr__().removeprefix("tensor")


class Module(Methods):
    """Base of all layers and models.

    Subclasses define `forward`, and assign parameters and submodules as attributes. Attributes that
    are a `Parameter` or a `Module` are found by name, in the order of assignment. Lists of modules
    go into a `ModuleList`. Buffers are arrays that are saved but not trained, such
    as running statistics: see `register_buffer`.
    """

    _training: bool = True
    _buffers: dict[str, bool] = {}  # noqa: RUF012  (name -> is it saved? replaced, never changed)
    _call: Function | None = None  # as `CALL`, for this module alone

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result of the module. Subclasses define it.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the subclass.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define forward(): define it, or call the modules in it"
        )

    if TYPE_CHECKING:  # a call takes and returns what `forward` of the class does

        def __call__(self: HasForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
            """Return the result of `forward`."""
            ...

    else:

        def __call__(self, *args, **kwargs):
            """Return the result of `forward`, which a tool may change."""
            call = CALL.get() or self._call
            return self.forward(*args, **kwargs) if call is None else call(self, args, kwargs)

    @property
    def training(self) -> bool:
        """True if dropout is active and statistics are updated.

        `train` and `eval` set it. It is False in a block of `evaluating()`.
        """
        return self._training and not _EVALUATING.get()

    @training.setter
    def training(self, mode: bool) -> None:
        self._training = mode

    # -- parameters, buffers and submodules ------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute; refuse parameters of float64 beside others of float32."""
        object.__setattr__(self, name, value)
        if not isinstance(value, (Parameter, Module)):
            return
        wide = [n for n, p in vars(self).items() if isinstance(p, Parameter) and p.dtype == float]
        if wide and any(p.dtype == np.float32 for p in self.parameters()):
            raise TypeError(
                f"{type(self).__name__}.{wide[0]} must be float32, the dtype of other parameters, "
                f"got float64; write nn.Parameter(data, dtype='float32')"
            )

    def register_buffer(self, name: str, array: ArrayLike, persistent: bool = True) -> None:
        """Add an array that is not trained.

        Parameters
        ----------
        name : str
            Name of the attribute.
        array : array_like or None
            None if there is no array yet.
        persistent : bool, default True
            Include it in `state_dict`.
        """
        if name not in self._buffers and ("." in name or hasattr(self, name)):
            raise KeyError(
                f"register_buffer: name must have no dot and be no attribute, got {name!r}"
            )
        self._buffers = {**self._buffers, name: persistent}
        setattr(self, name, None if array is None else np.asarray(array))

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield the names and modules directly inside this one."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """Yield this module and all modules inside it, each once, with dotted names."""
        seen: set[int] = set()
        waiting: list[tuple[str, Module]] = [("", self)]  # the next one is the last
        while waiting:
            path, module = waiting.pop()
            if id(module) not in seen:
                seen.add(id(module))
                yield path, module
                start = f"{path}." if path else ""
                for name, value in reversed(vars(module).items()):
                    if isinstance(value, Module):
                        waiting.append((start + name, value))

    def modules(self) -> Iterator[Module]:
        """Yield this module and all modules inside it."""
        return (module for _, module in self.named_modules())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield all parameters with dotted names. A shared one has its first name only."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Parameter) and id(value) not in seen:
                    seen.add(id(value))
                    yield f"{prefix}.{name}" if prefix else name, value

    def parameters(self) -> Iterator[Parameter]:
        """Yield all parameters, each once."""
        return (parameter for _, parameter in self.named_parameters())

    def num_parameters(self, trainable_only: bool = False) -> int:
        """Return the number of values in all parameters, or in those that require gradients.

        Parameters
        ----------
        trainable_only : bool, default False
            Count only parameters that require gradients.
        """
        return sum(p.size for p in self.parameters() if p.requires_grad or not trainable_only)

    # -- state ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return parameters and persistent buffers by name, as arrays that share memory."""
        state = {name: parameter.data for name, parameter in self.named_parameters()}
        for prefix, module in self.named_modules():
            for name, persistent in module._buffers.items():
                if persistent and getattr(module, name) is not None:
                    path = f"{prefix}.{name}" if prefix else name
                    state[path] = unwrap(getattr(module, name))
        return state

    def load_state_dict(self, state: Mapping[str, ArrayLike], strict: bool = True) -> None:
        """Copy arrays into the parameters and buffers of the same names, in their dtypes.

        Nothing changes if it raises an error for names, shapes, dtypes or values that do not fit.

        Parameters
        ----------
        state : mapping of str to array_like
            An array for each name: see `state_dict`.
        strict : bool, default True
            Refuse missing and unexpected names.
        """
        current = self.state_dict()  # arrays that share memory with the parameters
        arrays = {
            # the data of a tensor, also of PyTorch
            name: as_array(x if isinstance(x, np.ndarray) else getattr(x, "data", x))
            for name, x in state.items()
        }
        common = [name for name in current if name in arrays]
        problems = {
            "misshaped": [
                f"{name} must have shape {current[name].shape}, got {arrays[name].shape}"
                for name in common
                if current[name].shape != arrays[name].shape
            ],
            "missing": current.keys() - arrays.keys() if strict else (),
            "unexpected": arrays.keys() - current.keys() if strict else (),
        }
        if texts := [f"{kind}: {listed(names, 5)}" for kind, names in problems.items() if names]:
            raise KeyError(f"the state does not fit {type(self).__name__}: {'; '.join(texts)}")
        converted = {name: _converted(name, arrays[name], current[name].dtype) for name in common}
        for name in common:
            current[name][...] = converted[name]
            mark_changed(current[name])

    def train(self, mode: bool = True) -> Module:
        """Return this module, put in training mode or evaluation mode with all inside it.

        Parameters
        ----------
        mode : bool, default True
            False for evaluation mode.
        """
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Return this module, put in evaluation mode with all inside it."""
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, or set them to zero if `set_to_none` is False.

        Parameters
        ----------
        set_to_none : bool, default True
            False keeps arrays of zeros.
        """
        zero_grads(self.parameters(), set_to_none)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Return this module, whose parameters all become trained, or frozen.

        Parameters
        ----------
        requires_grad : bool, default True
            False freezes them.
        """
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Module:
        """Copy the innermost modules first, so that nesting is not limited by recursion."""
        for module in reversed(list(self.modules())):
            if id(module) in memo:
                continue
            for name, value in vars(module).items():
                if isinstance(value, Tensor) and not value.is_leaf:
                    raise GradientError(
                        f"deepcopy: {type(module).__name__}.{name} is a result with its graph; "
                        "keep its detach()"
                    )
            copied: Any = type(module).__new__(type(module))
            memo[id(module)] = copied
            state = copy.deepcopy(module.__reduce_ex__(4)[2], memo)
            if hasattr(copied, "__setstate__"):
                copied.__setstate__(state)
            else:
                vars(copied).update(state or {})
        return memo[id(self)]

    # -- representation --------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """Return what `repr` shows between the parentheses; nothing by default."""
        return ""

    def __repr__(self) -> str:
        lines = [
            f"({name}): {child!r}".replace("\n", "\n  ") for name, child in self.named_children()
        ]
        inside = "".join(f"\n  {line}" for line in lines) + "\n" if lines else ""
        return f"{type(self).__name__}({self.extra_repr()}{inside})"


def checked_module(owner: Module, module: object) -> Module:
    """Return a module, or raise an error for anything else, which a container would ignore."""
    if not isinstance(module, Module):
        name = type(owner).__name__
        raise TypeError(
            f"{name}: each module must be a Module, got {module!r:.60}; unpack a list of modules, "
            "and call a function in the forward() of a Module"
        )
    return module


def _converted(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return an array of this dtype, or raise an error that names the array."""
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "biuf" and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(f"load_state_dict: {name} must be numbers for {dtype}, got {array.dtype}")
    with np.errstate(over="ignore"):
        converted = array.astype(dtype)
    if dtype.kind == "f" and (overflows := np.isinf(converted) & np.isfinite(array)).any():
        raise ValueError(
            f"load_state_dict: {name} must be in the range of {dtype}, got {array[overflows][0]}"
        )
    return converted


def as_input(layer: Module, x: Array, dtype: np.dtype) -> Tensor:
    """Return x as a tensor of `dtype`, the dtype of the layer's parameters.

    Arrays, and tensors that do not require gradients, are converted. A tensor that requires
    gradients raises a TypeError, since a conversion would change the dtype of its gradient.
    """
    if not isinstance(x, Tensor):
        x = Tensor(in_dtype(layer, np.asarray(x), dtype))
    elif x.dtype != dtype:
        if x._node is not None:
            raise TypeError(
                f"{type(layer).__name__}({layer.extra_repr()}): x must be {dtype}, the dtype of "
                f"its parameters, got {x.dtype}; convert x by x.astype('{dtype}') or the layer by "
                f".astype('{x.dtype}')"
            )
        x = Tensor(in_dtype(layer, x._array, dtype))
    return x


def in_dtype(layer: Module, x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return an array of numbers as `dtype`, the dtype of the layer's parameters."""
    if x.dtype == dtype:
        return x
    if not np.can_cast(x.dtype, dtype, "same_kind"):
        raise TypeError(
            f"{type(layer).__name__}({layer.extra_repr()}): x must be real numbers, to be "
            f"converted to {dtype}, the dtype of its parameters, got {x.dtype}"
        )
    return x.astype(dtype)


class ModuleList(Module):
    """List of modules, for models that call them in their own `forward`.

    Parameters
    ----------
    modules : iterable of Module, optional
        Modules, in the order of their indices.
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        for module in modules:
            self.append(module)

    def __len__(self) -> int:
        return len([*self.named_children()])

    def __iter__(self) -> Iterator[Module]:
        return iter([module for _, module in self.named_children()])

    @overload
    def __getitem__(self, i: int) -> Module: ...
    @overload
    def __getitem__(self: L, i: slice) -> L: ...
    def __getitem__(self, i: int | slice) -> Module:
        """Return the module at an index, or a container of the modules of a slice."""
        chosen = [*self][i]
        if isinstance(chosen, Module):
            return chosen
        part = type(self)()
        for module in chosen:
            part.append(module)
        return part

    def append(self, module: Module) -> None:
        """Add a module at the end.

        Parameters
        ----------
        module : Module
        """
        setattr(self, str(len(self)), checked_module(self, module))


class Sequential(ModuleList):
    """Modules that are called one after another.

    Parameters
    ----------
    *modules : Module
        Modules in the order of calls.
    """

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def forward(self, x: Array) -> Tensor:
        """Return the result of the last module."""
        for module in self:
            x = module(x)
        return x
