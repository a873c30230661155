"""A name of PyTorch exists here, or its AttributeError contains advice, and the advice computes the same."""

from __future__ import annotations

import itertools
import operator
import re
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.environment import needs

import minigrad as mg
import nn
from minigrad import Tensor
from minigrad.torch.advice import advice, tables

torch = needs("torch")
scipy = needs("scipy")

HOMES = SimpleNamespace(minigrad=mg, np=np, nn=nn, scipy=scipy)
NAMES_OF = {table: content.get("names", {}) for table, content in tables().items()}


def test_every_method_of_pytorch_exists_or_has_advice() -> None:
    missing = [name for name in dir(torch.Tensor) if name[0] != "_" and not hasattr(Tensor, name)]
    for name in missing:
        with pytest.raises(AttributeError, match=f"^no `{name}`: (?!.*lists the methods)"):
            getattr(Tensor([1.0]), name)
    assert len(missing) > 200


MODULES = [
    (torch, mg, "minigrad"), (torch.nn, nn, "nn"), (torch.nn.functional, nn.functional, "nn.functional"),
    (torch.optim, mg.optim, "minigrad.optim"),
    (torch.optim.lr_scheduler, mg.optim.lr_scheduler, "minigrad.optim.lr_scheduler"),
    (torch.utils.data, mg, "minigrad"), (torch.utils.data, nn, "nn"),
]  # fmt: skip


INSIDE = re.compile(
    r"(USE_|PRIVATE_|EPOCH_|Sym|sym_|batch_norm_|native_|has_|Broadcasting|profiler_|runtime_).*"
    r"|.*(_copy|_mm|_notes|_warn_always\w*|_torch_function|DataPipe|_datapipe|Type)|DataChunk|bit|contrib|jagged|nativert"
    r"|argument_validation|assert_int_or_pair|boolean_dispatch|choose_qparams_optimized|classproperty"
    r"|compiled_with_cxx11_abi|prepare_multiprocessing_environment"
)
"""Names that PyTorch uses inside, and programs do not."""


def names_of(module: ModuleType) -> set[str]:
    """Return the public names of a module of PyTorch, without modules and parts of the compiler."""
    compiler = {*dir(torch._C)} - {*dir(torch._C._VariableFunctions), "device", "dtype", "Size"}
    values = {
        name: getattr(module, name)
        for name in {*dir(module)} - compiler - {"TYPE_CHECKING", "Tensor", "inf"}
    }
    return {
        name for name, value in values.items()
        if name[0] != "_" and not isinstance(value, ModuleType)
        and (getattr(value, "__module__", None) or "torch").startswith(("torch", "_VariableFunctions"))
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("theirs", "ours", "name"), MODULES, ids=lambda m: getattr(m, "__name__", m)
)
def test_every_name_of_pytorch_module_exists_or_has_advice(
    theirs: Any, ours: Any, name: str
) -> None:
    missing = [n for n in names_of(theirs) if n not in vars(ours)]
    with_advice = [n for n in missing if advice(name, n)]
    assert not [n for n in missing if not INSIDE.fullmatch(n) and n not in with_advice]
    gone = min(with_advice)
    with pytest.raises(AttributeError, match=rf"^module '{name}' has no attribute '{gone}': \w"):
        getattr(ours, gone)


X = np.array([[0.9, 0.2, 0.4], [0.3, 0.8, 0.6], [0.5, 0.7, 0.95]])
STACK = np.stack([X, 2 * X])
VARIABLES: dict[str, Any] = {
    "x": Tensor(X), "y": Tensor(X.T), "a": X, "b": X.T, "value": 1, "weight": 0.25, "threshold": 0.3, "k": 2, "p": 1,
    "axis": 1, "n": 3, "shape": (2, 1), "sizes": [1, 2], "indices": X.argsort(1), "start": 1, "length": 2,
}  # fmt: skip
"""Values of the arguments that an advice names."""
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "addbmm": (STACK, STACK), "addcdiv": (X, X.T), "addcmul": (X, X.T), "addmm": (X, X.T), "addr": (X[0], X[1]),
    "kthvalue": (2,), "lerp": (X.T, 0.25), "logcumsumexp": (1,), "mvlgamma": (1,), "narrow": (0, 1, 2),
    "split_with_sizes": ([1, 2],), "take_along_dim": (X.argsort(1), 1), "tensor_split": (3,), "vsplit": (3,),
    "hsplit": (3,), "new_full": ((2, 1), 1), "new_zeros": ((2, 1),), "new_ones": ((2, 1),),
}  # fmt: skip
"""Arguments of methods of PyTorch that take others than one tensor or none."""
OTHER_VARIABLES: dict[str, dict[str, Any]] = {
    "addbmm": {"a": STACK, "b": STACK}, "addr": {"a": X[0], "b": X[1]},
}  # fmt: skip

UNLIKE_X = {
    "cholesky_inverse", "cholesky_solve", "triangular_solve",  # of a factor
    "bernoulli", "cross", "is_inference", "mode",
}  # fmt: skip
"""Methods of PyTorch with another result for X."""


def evaluate(text: str, **variables: Any) -> Any:
    """Return the value of the expression in an advice."""
    code = re.split(r"; |, (?:which|or|along|without) |(?<=\)): ", text.removeprefix("write "))[0]
    return eval(code, {**VARIABLES, **vars(HOMES), **variables})


def as_list(value: Any) -> list[Any]:
    """Return results as a list of arrays."""
    values = value if isinstance(value, (tuple, list)) else [value]
    return [np.asarray(v.data if isinstance(v, Tensor) else v) for v in values]


def result_in_pytorch(name: str) -> Any:
    """Return what a method of PyTorch gives for X, with its arguments, none, or another matrix."""
    method = getattr(torch.tensor(X), name)
    if not callable(method):
        return method
    for arguments in [ARGUMENTS[name]] if name in ARGUMENTS else [(), (X.T,)]:
        try:
            tensors = [torch.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
            return method(*tensors)
        except (TypeError, RuntimeError, ValueError, IndexError):
            continue
    return None


@pytest.mark.filterwarnings("ignore")
def test_advice_for_methods_computes_what_pytorch_does() -> None:
    compared = set()
    for name, text in NAMES_OF["Tensor"].items():
        expected = result_in_pytorch(name) if hasattr(torch.Tensor, name) else None
        if expected is None or name.endswith("_") or name in UNLIKE_X:
            continue
        try:
            expected = as_list(expected[0] if name == "kthvalue" else expected)
            found = as_list(evaluate(text, **OTHER_VARIABLES.get(name, {})))
        except Exception:  # the advice is no expression, or has other arguments
            continue
        compared.add(name)
        for f, e in zip(found, expected):
            if f.dtype != object:
                np.testing.assert_allclose(f, e, 1e-7, 1e-12, err_msg=f"{name}: {text}")
    assert {*ARGUMENTS} <= compared and len(compared) > 70, compared


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_advice_for_layers_computes_what_pytorch_does() -> None:
    x, compared = np.linspace(-4, 8, 30).reshape(3, 10), []
    for name, text in NAMES_OF["nn"].items():
        arguments = {"Softmin": (-1,), "Threshold": (0.3, 1.0)}.get(name, ())
        try:
            expected = getattr(torch.nn, name)(*arguments).double().eval()(torch.tensor(x))
            found = evaluate(text, x=Tensor(x))
            found = found(Tensor(x)) if callable(found) else found
        except Exception:  # the layer is no activation, or the advice no expression
            continue
        np.testing.assert_allclose(found.data, expected.detach().numpy(), atol=1e-7, err_msg=name)
        compared.append(name)
    assert len(compared) >= 14, compared


EXTREMES = np.array(
    [0.0, 1e-300, 1e-12, 0.3, 0.5, 1 - 1e-12, 1.0, 5, 20, 40, 800, 1e10, np.inf, np.nan]
)
NOT_AT_EXTREMES = {
    "bfloat16",  # float32
    "lgamma", "sgn",  # PyTorch: NaN for -inf, 0 for NaN
    "renorm", "mvlgamma",  # a scale of the whole, and a sum
}  # fmt: skip
"""Names whose replacement differs at special points."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("table", ["Tensor", "nn", "nn.functional"])
def test_advice_is_exact_at_extreme_values(table: str) -> None:
    compared, wrong = [], []
    for sign, (name, text) in itertools.product((1, -1), NAMES_OF[table].items()):
        x = sign * EXTREMES
        if name in NOT_AT_EXTREMES or name.endswith("_"):
            continue
        arguments = ARGUMENTS.get(name, {"Softmin": (-1,), "Threshold": (0.3, 1.0)}.get(name, ()))
        if name == "logcumsumexp":
            arguments, x = (0,), x[:-2]
        try:
            if table == "Tensor":
                expected = getattr(torch.tensor(x), name)(*arguments)
            elif table == "nn":
                expected = getattr(torch.nn, name)(*arguments).double().eval()(torch.tensor(x))
            else:
                expected = getattr(torch.nn.functional, name)(torch.tensor(x))
            found = evaluate(text, x=Tensor(x, requires_grad=True), axis=0)
            found = found(Tensor(x)) if callable(found) else found
        except Exception:  # other arguments, or no expression
            continue
        if not isinstance(found, Tensor) or found.shape != x.shape:
            continue
        expected = np.asarray(expected.detach().double())
        if not np.allclose(found.data, expected, 1e-9, 1e-300, equal_nan=True):
            wrong.append(f"{name}: {text} gives {found.data}, not {expected}")
        compared.append(name)
    assert not wrong, "\n".join(wrong)
    assert len(compared) > {"Tensor": 30, "nn": 15, "nn.functional": 10}[table], compared


@pytest.mark.parametrize("table", NAMES_OF)
def test_advice_contains_only_names_that_exist(table: str) -> None:
    for name, text in NAMES_OF[table].items():
        for method in re.findall(r"\bx\.(\w+)", text):
            assert hasattr(Tensor, method) and (method, table) != (name, "Tensor"), name
        for path in re.findall(r"\b((?:minigrad|np|nn|scipy)(?:\.\w+)+)", text):
            operator.attrgetter(path)(HOMES)  # raises AttributeError
