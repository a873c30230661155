"""Arguments by position mean what they mean in PyTorch, or for NumPy's functions in NumPy.

A parameter can be given by position only where the other library has it at the same position. All
others are keyword-only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor
from minigrad.core.registry import FUNCTIONS, OPS

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
WORDS = {"dim": "axis", "keepdim": "keepdims", "dimension": "axis"}
"""PyTorch's words, which are translated."""
SYNONYMS = {
    ("b", "x2"), ("b", "other"), ("a", "self"), ("i", "x2"), ("x", "arr"), ("x", "a"), ("b", "v"), ("shape", "size"),
    ("num_heads", "nhead"), ("d_ff", "dim_feedforward"), ("argnum", "argnums"), ("target", "tgt"), ("mask", "attn_mask"),
}  # fmt: skip
"""Required arguments of two names: ours and the other library's."""
SAME_AS = {
    "grad": torch.func.grad,
    "elementwise_grad": torch.func.grad,
    "value_and_grad": torch.func.grad_and_value,
    "jacobian": torch.func.jacrev,
    "hessian": torch.func.hessian,
}
DIFFERENT = {
    "device": "names the only device",
    "enable_grad": "a context manager",
    "set_grad_enabled": "a context manager",
    "default_generator": "its one argument is all that it is about",
    "hvp": "torch.autograd.functional.hvp has the same positions with other names",
    "gradients": "torch.autograd.grad has another name for the third argument, with the same meaning",
    "Transformer": "takes a configuration; torch.nn.Transformer takes fifteen settings",
    "Transformer.forward": "takes token ids; torch.nn.Transformer takes vectors",
    "Embedding.forward": "of the weight's rows",
}
"""What only shares a name, with the reason."""


def positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = inspect.signature(function).parameters.values()
    return [p for p in parameters if p.kind in POSITIONAL]


def schemas(name: str) -> list[list[str]]:
    """The positional parameters of each overload of a compiled function of PyTorch."""
    packet = getattr(torch.ops.aten, name, None)
    names = packet.overloads() if hasattr(packet, "overloads") else []
    overloads = [getattr(packet, name) for name in names]
    return [
        [a.name for a in overload._schema.arguments if not a.kwarg_only]
        for overload in overloads
        if "out" not in overload._overloadname
    ]


def references(name: str, modules: tuple[Any, ...]) -> list[list[str]]:
    """The names that the other library has at each position; several, where it is overloaded."""
    found = []
    for module in modules:
        if theirs := getattr(module, name, None):
            try:
                found.append([p.name for p in positional(theirs)])
            except (TypeError, ValueError):
                found += schemas(name)
    return found


def takes_any_number(function: Any) -> bool:
    kinds = [p.kind for p in inspect.signature(function).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds


def numpy_references(numpy: Any) -> list[list[str]]:
    from minigrad.core.forms import signature

    return [
        [p.name for p in signature(f).parameters.values() if p.kind in POSITIONAL] for f in numpy
    ]


def disagreements(parameters: list[inspect.Parameter], other: list[str]) -> list[str]:
    """Our positional parameters that mean something else there, or are not there."""
    wrong = []
    for i, p in enumerate(parameters):
        theirs = WORDS.get(other[i], other[i]) if i < len(other) else None
        ours = WORDS.get(p.name, p.name)
        same = ours == theirs or (i == 0 and theirs is not None and p.default is p.empty)
        same = same or (theirs is not None and ours.lower() == theirs.lower())  # np.eye(N, M)
        if not same and (p.name, theirs) not in SYNONYMS:
            wrong.append(f"{p.name} at {i}, where there is {theirs}")
    return wrong


def entry_of(function: Any) -> Any:
    return getattr(function, "op", None) or (FUNCTIONS.get(getattr(function, "__name__", "")))


def functions() -> Iterator[tuple[str, list[inspect.Parameter], list[list[str]]]]:
    """Each public function, its positional parameters, and those of the libraries it follows."""
    names: dict[int, list[str]] = {}
    for name, function in vars(mg).items():
        names.setdefault(id(function), []).append(name)
    for name, function in vars(mg).items():
        if name.startswith("_") or not inspect.isfunction(function) or name in DIFFERENT:
            continue
        own = positional(function)
        entry = entry_of(function)
        numpy = [f for f in (entry.numpy if entry is not None else ()) if not takes_any_number(f)]
        if name in SAME_AS:
            others = [[p.name for p in positional(SAME_AS[name])]]
        elif numpy:
            others = numpy_references(numpy)
        elif entry is not None and entry.numpy:  # any number of operands
            others = [[p.name for p in own if p.default is p.empty]]
        else:
            modules = (torch, torch.Tensor, torch.nn.functional)
            others = [r for alias in names[id(function)] for r in references(alias, modules)]
            if hasattr(np, name):
                others += numpy_references([getattr(np, name)])
        for method, value in vars(Tensor).items():
            if value is function and method != name and method[0] != "_":  # such as x.unbind(0)
                others += references(method, (torch.Tensor,))
        yield f"minigrad.{name}", own, others
    for module, theirs in ((nn.functional, torch.nn.functional), (nn.init, torch.nn.init)):
        for name in module.__all__:
            function = getattr(module, name)
            yield f"{module.__name__}.{name}", positional(function), references(name, (theirs,))


def layers() -> Iterator[tuple[str, list[inspect.Parameter], list[list[str]]]]:
    for name, layer in shared_and_own():
        theirs = getattr(torch.nn, name, None)
        for path, method in ((name, "__init__"), (f"{name}.forward", "forward")):
            if path in DIFFERENT:
                continue
            own = positional(getattr(layer, method))[1:]
            if theirs is None:
                if method == "__init__":
                    yield f"nn.{path}", own, []
                continue
            others = [p.name for p in positional(getattr(theirs, method))]
            yield f"nn.{path}", own, [others[1:]]


def shared_and_own() -> Iterator[tuple[str, Any]]:
    """The layers: every class of `nn.layers`."""
    for name in nn.layers.__all__ if hasattr(nn.layers, "__all__") else dir(nn.layers):
        layer = getattr(nn.layers, name)
        if inspect.isclass(layer) and issubclass(layer, nn.Module) and not name.startswith("_"):
            yield name, layer


@pytest.mark.parametrize("kind", [functions, layers], ids=["functions", "layers"])
def test_argument_by_position_means_the_same_in_the_other_library(kind: Any) -> None:
    wrong, compared = [], 0
    for name, parameters, others in kind():
        if not others:  # of our own: options are keyword-only
            options = [p.name for p in parameters if p.default is not p.empty]
            wrong += [f"{name}: option {option} can be given by position" for option in options]
            continue
        compared += 1
        found = [disagreements(parameters, other) for other in others]
        if all(found):
            wrong.append(f"{name}: {'; '.join(min(found, key=len))}")
    assert not wrong, "\n".join(wrong)
    assert compared > (200 if kind is functions else 20)


REQUIRED = {
    "Linear": (3, 4), "Embedding": (5, 3), "BatchNorm1d": (4,), "LayerNorm": (4,), "RMSNorm": (4,),
    "TransformerEncoderLayer": (4, 2, 8), "TransformerDecoderLayer": (4, 2, 8),
}  # fmt: skip


def test_setting_that_only_pytorch_has_is_refused_when_the_layer_is_made() -> None:
    refused = 0
    for name, layer in shared_and_own():
        if not hasattr(torch.nn, name) or name in ("Identity", "Module", "Sequential"):
            continue
        ours = inspect.signature(layer.__init__).parameters
        for p in inspect.signature(getattr(torch.nn, name).__init__).parameters.values():
            if p.name not in ours and p.kind in (*POSITIONAL, p.KEYWORD_ONLY):
                if p.default is p.empty:
                    continue
                with pytest.raises(TypeError, match=p.name):
                    layer(*REQUIRED.get(name, ()), **{p.name: p.default})
                refused += 1
    assert refused > 30


@pytest.mark.parametrize(
    "name",
    [
        n
        for n, c in vars(nn).items()
        if inspect.isclass(c) and issubclass(c, nn.Activation) and c is not nn.Activation
    ],
)
def test_activation_with_an_unknown_option_is_refused_when_it_is_made(name: str) -> None:
    layer = getattr(nn, name)
    with pytest.raises(TypeError, match="slope"):
        layer(slope=0.1)


def test_op_with_too_many_arguments_by_position_is_refused() -> None:
    x = Tensor(np.ones((2, 3)), requires_grad=True)
    wrong = []
    for name, entry in OPS.items():
        if entry.variadic:
            continue
        count = len(entry.operands) + len(entry.positional_options) + 1
        try:
            entry.function(*[x] * count)
        except TypeError as error:
            if "by position" in str(error):
                continue
        wrong.append(name)
    assert not wrong
    with pytest.raises(
        TypeError, match=r"^exp: takes at most 1 arguments by position \(x\), got 2"
    ):
        mg.exp(x, 3)


def test_layers_given_settings_by_position_read_them_as_pytorch_does() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4))
    assert nn.LayerNorm(4, 1e-5, False).weight is None
    assert nn.LayerNorm(4, 1e-5, True, False).bias is None
    assert nn.RMSNorm(4, 1e-5, False).weight is None
    assert nn.BatchNorm1d(5, 1e-5, 0.1, False).weight is None
    for layer in (
        "LeakyReLU(0.2)",
        "Softmax(0)",
        "GELU('tanh')",
        "ELU(2.0)",
        "ReLU(True)",
        "Dropout(0.0, True)",
    ):
        ours, theirs = eval(f"nn.{layer}"), eval(f"torch.nn.{layer}")
        np.testing.assert_allclose(ours(x).data, theirs(torch.tensor(x)).numpy(), rtol=1e-12)
    with pytest.raises(TypeError, match="positional"):
        nn.functional.cross_entropy(x, np.zeros(3, int), None, None, 1)
    with pytest.raises(TypeError, match="positional"):
        nn.Linear(3, 4, True, np.float64)
    with pytest.raises(TypeError, match="positional"):
        Tensor(x).sum(0, True)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_norms_of_several_axes_equal_pytorchs(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 2, 3, 4))
    for kind in ("LayerNorm", "RMSNorm"):
        ours, theirs = (
            getattr(nn, kind)(shape, dtype=float),
            getattr(torch.nn, kind)(shape).double(),
        )
        for p, q in zip(ours.parameters(), theirs.parameters()):
            p.data[...] = rng.standard_normal(p.shape)
            q.data = torch.tensor(p.data)
        a, b = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        g = rng.standard_normal(x.shape)
        ours(a).backward(g)
        theirs(b).backward(torch.tensor(g))
        np.testing.assert_allclose(ours(a).data, theirs(b).detach().numpy(), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(a.grad.data, b.grad.numpy(), rtol=1e-8, atol=1e-10)
        with pytest.raises(ValueError, match=r"must"):
            ours(x[..., :2])


def test_norm_of_length_1_does_not_take_longer_rows() -> None:
    for layer in (nn.LayerNorm(1), nn.RMSNorm(1), nn.LayerNorm(1, elementwise_affine=False)):
        with pytest.raises(ValueError, match="must"):
            layer(np.ones((2, 8), np.float32))
