"""Arguments by position mean what they mean in PyTorch, or for NumPy's functions in NumPy.

A parameter can be given by position only if the other library has it at the same position. All others
are keyword-only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.environment import needs
from support.torch_defaults import DEFAULTS, defaults

import minigrad as mg
import nn
from minigrad import Tensor, optim
from minigrad.numpy.nested import signature
from minigrad.registry import FUNCTIONS

torch, linalg = needs("torch"), needs("scipy.linalg")
BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
WORDS = {"dim": "axis", "keepdim": "keepdims", "dimension": "axis"}
"""Options of PyTorch that minigrad accepts by these names, too."""
SYNONYMS = {
    ("b", "x2"), ("b", "a2"), ("b", "other"), ("a", "self"), ("num_heads", "nhead"), ("d_ff", "dim_feedforward"),
    ("mask", "attn_mask"), ("a", "x"), ("b", "y"), ("values", "x2"),
}  # fmt: skip
"""Names of one required argument here and in the other library."""
SAME_AS = {
    "grad": torch.func.grad,
    "value_and_grad": torch.func.grad_and_value,
    "jacobian": torch.func.jacrev,
    "hessian": torch.func.hessian,
}
UNLIKE = {
    "default_generator",  # takes one argument
    "hvp",  # torch.autograd.functional.hvp has the same positions with other names
    "gradients",  # torch.autograd.grad has another name for the third argument
    "vmap",  # torch.func.vmap has in_dims and out_dims at the same positions; the names are JAX's
}
"""Names that PyTorch uses for something else."""
Names = list[str]


def positions(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that can be given by position."""
    return [p for p in inspect.signature(function).parameters.values() if p.kind in BY_POSITION]


def names_in_pytorch(name: str, modules: tuple[Any, ...]) -> list[Names]:
    """Return the names at each position in modules of PyTorch, for each overload."""
    found = []
    for module in modules:
        function = getattr(module, name, None)
        if function is None:
            continue
        try:
            found.append([p.name for p in positions(function)])
        except (TypeError, ValueError):  # a compiled function
            packet = getattr(torch.ops.aten, name, None)
            for overload in packet.overloads() if hasattr(packet, "overloads") else []:
                if "out" not in overload:
                    arguments = getattr(packet, overload)._schema.arguments
                    found.append([a.name for a in arguments if not a.kwarg_only])
    return found


def names_in_numpy(function: Any) -> Names:
    """Return the names at each position of a function of NumPy."""
    return [p.name for p in signature(function).parameters.values() if p.kind in BY_POSITION]


def is_variadic(function: Any) -> bool:
    """Return whether a function takes any number of arguments."""
    kinds = [p.kind for p in inspect.signature(function).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds


def names_elsewhere(name: str, function: Any) -> list[Names]:
    """Return the names at each position in the libraries that a function of minigrad follows."""
    if name in SAME_AS:
        return [[p.name for p in positions(SAME_AS[name])]]
    entry = getattr(function, "op", None) or FUNCTIONS.get(function.__name__)
    followed = entry.numpy if entry is not None else ()
    numpy = [f for f in followed if not is_variadic(f)]
    if numpy:
        return [names_in_numpy(f) for f in numpy]
    if followed:
        return [[p.name for p in positions(function) if p.default is p.empty]]
    modules = (torch, torch.Tensor, torch.nn.functional)
    aliases = [alias for alias, f in vars(mg).items() if f is function]
    found = [names for alias in aliases for names in names_in_pytorch(alias, modules)]
    return found + [names_in_numpy(getattr(m, name)) for m in (np, linalg) if hasattr(m, name)]


Row = tuple[str, list[inspect.Parameter], list[Names]]


def functions() -> Iterator[Row]:
    """Yield each public function, its positions, and the names at the positions elsewhere."""
    for name, function in vars(mg).items():
        if name.startswith("_") or not inspect.isfunction(function) or name in UNLIKE:
            continue
        elsewhere = names_elsewhere(name, function)
        for method, value in vars(Tensor).items():
            if value is function and method not in (name, "") and method[0] != "_":
                elsewhere += names_in_pytorch(method, (torch.Tensor,))
        yield f"minigrad.{name}", positions(function), elsewhere
    for module, theirs in ((nn.functional, torch.nn.functional), (nn.init, torch.nn.init)):
        for name in module.__all__:
            function = getattr(module, name)
            yield name, positions(function), names_in_pytorch(name, (theirs,))


def layers() -> Iterator[Row]:
    """Yield constructor and forward of each layer, as `functions` does.

    PyTorch has no classes that are made from a configuration.
    """
    for name, layer in vars(nn).items():
        if inspect.isclass(layer) and issubclass(layer, nn.Module) and name[0] != "_":
            if "config" in inspect.signature(layer).parameters:
                continue
            theirs = getattr(torch.nn, name, None)
            for method in ("__init__", "forward") if theirs else ("__init__",):
                names = [p.name for p in positions(getattr(theirs, method))][1:] if theirs else []
                yield (
                    f"{name}.{method}",
                    positions(getattr(layer, method))[1:],
                    [names] * bool(theirs),
                )


def disagreements(parameters: list[inspect.Parameter], names: Names) -> list[str]:
    """Return a line for each parameter that has another meaning at its position elsewhere."""
    wrong = []
    for i, p in enumerate(parameters):
        theirs = names[i] if i < len(names) else None
        first = i == 0 and theirs is not None and p.default is p.empty
        word, their_word = (WORDS.get(n, n).lower() for n in (p.name, theirs or ""))
        if word != their_word and not first and (p.name, WORDS.get(theirs, theirs)) not in SYNONYMS:
            wrong.append(f"{p.name} at {i}, where there is {theirs}")
    return wrong


@pytest.mark.parametrize("rows", [functions, layers], ids=lambda f: f.__name__)
def test_argument_by_position_means_the_same_elsewhere(rows: Callable[[], Iterator[Row]]) -> None:
    wrong, compared = [], 0
    for name, parameters, elsewhere in rows():
        options = [p.name for p in parameters if p.default is not p.empty]
        if not elsewhere and options:
            wrong.append(f"{name}: options must be keyword-only: {', '.join(options)}")
        compared += bool(elsewhere)
        found = [disagreements(parameters, names) for names in elsewhere]
        if found and all(found):
            wrong.append(f"{name}: {'; '.join(min(found, key=len))}")
    assert not wrong, "\n".join(wrong)
    assert compared > (200 if rows is functions else 20)


OPTIMIZERS = [
    (function, getattr(theirs, name))
    for theirs in (torch.optim, torch.optim.lr_scheduler, torch.nn.utils)
    for name in optim.__all__ for function in [getattr(optim, name)] if hasattr(theirs, name)
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs"), OPTIMIZERS, ids=lambda f: f.__name__)
def test_optimizer_or_schedule_has_positions_and_defaults_of_pytorch(
    ours: Any, theirs: Any
) -> None:
    parameters, their_parameters = (inspect.signature(f).parameters for f in (ours, theirs))
    for position, p in enumerate(parameters.values()):
        if p.kind in BY_POSITION:
            assert list(their_parameters)[position] == p.name
        if p.name in their_parameters and p.default is not p.empty:
            assert p.default == their_parameters[p.name].default, p.name


def test_table_of_defaults_is_that_of_pytorch() -> None:
    ours, theirs = defaults("minigrad.torch"), defaults("torch")
    both = {name: {p: v for p, v in row.items() if p in ours.get(name, {})} for name, row in theirs.items()}  # fmt: skip
    assert {name: row for name, row in both.items() if row} == DEFAULTS


def test_activation_refuses_unknown_options() -> None:
    classes = [c for c in vars(nn).values() if inspect.isclass(c) and issubclass(c, nn.Activation)]
    for activation in classes:
        if activation is not nn.Activation:
            with pytest.raises(TypeError, match="slope"):
                activation(slope=0.1)
