"""Copies of models for inference: read-only, and faster."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NoReturn, TypeVar

import numpy as np

from minigrad.arguments import check_choice
from minigrad.fast.runtime import OwnThreads, has_small_kernels
from minigrad.io.mapped import copy_and_release
from minigrad.tensor import Tensor

from ..module import Module, Parameter
from ..options.modules import Hooks
from .fast import FAST, FastCappedLinear, FastEmbedding, FastLinear
from .int8 import Int8Matrix
from .products import MAX_ROWS, in_fast_layout

__all__ = ["for_inference"]

M = TypeVar("M", bound=Module)
_ROUNDABLE = (FastLinear, FastCappedLinear, FastEmbedding)


def for_inference(model: M, weights: str = "float") -> M:
    """Return a read-only copy of `model`, in evaluation mode, that computes the same in less time.

    Its layers are the subclasses in `nn.inference.fast`. Names, `state_dict`, hooks and
    `record_attention` are those of the model, and so are the results, to rounding. It records no
    gradients.

    Parameters
    ----------
    model : Module
        The copy has memory of its own, and later changes of the model do not change it. Pages of
        a mapped file, as in a model that was loaded, leave memory after they are copied (on
        Linux), and are read again if the model is used. So a loaded model and its copy take about
        as much memory as one of them.
    weights : {"float", "int8"}
        "int8" rounds the weights of linear layers and embeddings to 8 bits, with a scale for each
        row: a quarter of the memory of float32. The results differ from those of the model by this
        rounding. The weights are `Int8Matrix` instead of parameters, and the copy has no
        `state_dict`. To load a model in this form, see `nn.load`.

    Returns
    -------
    Module
        Also made by `copy.deepcopy` and `pickle` of a copy.
    """
    check_choice("for_inference", "weights", weights, "float", "int8")
    copies: dict[int, Any] = {}
    if weights == "int8":
        copies = {id(p): Int8Matrix.rounded(p.data) for p in roundable(model)}
    return frozen_copy(model, copies)


def roundable(model: Module) -> list[Parameter]:
    """Return the weights that only linear layers and embeddings read."""
    names: dict[int, Parameter] = {}
    others: set[int] = set()
    for module in model.modules():
        is_known = FAST.get(type(module), type(module)) in _ROUNDABLE
        for name, value in vars(module).items():
            if isinstance(value, Parameter):
                if is_known and name == "weight":
                    names[id(value)] = value
                else:
                    others.add(id(value))
    return [p for key, p in names.items() if key not in others]


def frozen_copy(model: Any, copies: dict[int, Any]) -> Any:
    """Return the copy of a model; `copies` holds the copies of its parameters that exist."""
    shared: list[tuple[Parameter, np.ndarray]] = []
    made = _copied(model, copies, shared)
    linear = {id(module.weight) for module in made.modules() if isinstance(module, FastLinear)}
    has_int8 = any(isinstance(getattr(m, "weight", None), Int8Matrix) for m in made.modules())
    while shared:
        p, array = shared.pop()
        if p._array is array and id(p) in linear:  # no layer has fused it with others
            p._array = in_fast_layout(array)
        if p._array is array:
            p._array = copy_and_release(array)
        p._array.flags.writeable = False
    kinds: list[type] = [_Int8 if has_int8 else _ReadOnly, type(made)]
    if hasattr(model, "step"):
        kinds.insert(0, _Step)
    made.__class__ = type(type(model).__name__, tuple(kinds), {"__module__": type(made).__module__})
    return made


class _ReadOnly(Module):
    """Refuses what would change a model that is for inference."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "this is a copy for inference, which is read-only: change the model it was made of, "
            "and call nn.for_inference again"
        )

    load_state_dict = astype = prune_heads = requires_grad_ = _refuse

    def __call__(self, *args: Any, **options: Any) -> Any:
        result = super().__call__(*args, **options)
        return Tensor(result) if isinstance(result, np.ndarray) else result  # of a fast layer

    def train(self, mode: bool = True) -> Module:
        return self._refuse() if mode else self

    def __copy__(self) -> Any:
        return for_inference(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return for_inference(self)

    def __reduce__(self) -> Any:
        return _unpickled, (type(self).__bases__[-1], vars(self))


class _Int8(_ReadOnly):
    """Also refuses what needs parameters instead of matrices in 8 bits."""

    def _refuse_matrices(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "a copy with weights in 8 bits has not all parameters of its model: use the model it "
            "was made of"
        )

    state_dict = num_parameters = parameters = named_parameters = _refuse_matrices


class _Step(_ReadOnly):
    """Shares the products of a step by the threads of `in_parallel`, where that is faster."""

    def step(self, tokens: Any, state: Any, **options: Any) -> np.ndarray:
        rows = np.size(tokens)
        # BLAS's threads multiply one row of floats, or weights that they must pack, in less time
        is_faster = isinstance(self, _Int8) or (rows > 1 and has_small_kernels())
        with OwnThreads() if is_faster and rows <= MAX_ROWS else nullcontext():
            return super().step(tokens, state, **options)  # type: ignore[misc]


def _unpickled(kind: type[Module], state: dict[str, Any]) -> Module:
    """Make a copy for inference again: pickle drops its views and read-only marks."""
    model = object.__new__(kind)
    vars(model).update(state)
    return for_inference(model)


def _copied(value: Any, memo: dict[int, Any], shared: list[tuple[Parameter, np.ndarray]]) -> Any:
    """Return a frozen copy of a module or array, or any other value itself; each part once.

    Matrices are copied later, directly into the layout that their layer reads: until then the
    parameters in `shared` have the arrays of the model.
    """
    if id(value) in memo:
        return memo[id(value)]
    made: Any = value
    if isinstance(value, Parameter):
        is_matrix = value.ndim == 2
        array = value.data if is_matrix else _frozen(value.data)
        made = memo[id(value)] = Parameter(array, requires_grad=False)
        if is_matrix:
            shared.append((made, made._array))
    elif isinstance(value, np.ndarray):
        made = memo[id(value)] = _frozen(value)
    elif isinstance(value, Hooks):
        made = Hooks(dict(value.before), dict(value.after))
    elif hasattr(value, "merged"):  # a map with adapters: one without them that does the same
        made = memo[id(value)] = _copied(value.merged(), {}, shared)
    elif isinstance(value, Module):
        kind: Any = next(k for k in type(value).__mro__ if not issubclass(k, _ReadOnly))
        made = memo[id(value)] = object.__new__(FAST.get(kind, kind))
        for name, part in vars(value).items():
            made.__dict__[name] = _copied(part, memo, shared)
        made.__dict__["_training"] = False
        if hasattr(made, "prepare"):
            made.prepare()
    return made


def _frozen(array: np.ndarray) -> np.ndarray:
    array = np.array(array, order="C")
    array.flags.writeable = False
    return array
