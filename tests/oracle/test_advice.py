"""For every name of PyTorch's tensors: it is here, or the AttributeError says what to write, and that is true."""

from __future__ import annotations

import importlib
import pkgutil
import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from cases import each

import minigrad as mg
import nn
from minigrad import Tensor
from minigrad.advice import advice, tables

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
scipy = pytest.importorskip("scipy", reason="scipy is not installed")
special = pytest.importorskip("scipy.special")

NAMES_OF = {table: content.get("names", {}) for table, content in tables().items()}
WHAT = {name: text.removeprefix("write ") for name, text in NAMES_OF["Tensor"].items()}
"""What to write for a name of PyTorch's tensors."""
OLDER = {
    "names",
    "rename",
    "align_to",
    "align_as",
    "refine_names",
    "has_names",
}  # named axes, which PyTorch dropped
NAMES = sorted({name for name in dir(torch.Tensor) if not name.startswith("_")} | OLDER)


def test_every_name_is_here_or_has_advice() -> None:
    x = Tensor([1.0])
    for name in NAMES:
        if not hasattr(Tensor, name):
            with pytest.raises(AttributeError, match=f"^no `{name}`: ") as caught:
                getattr(x, name)
            assert "lists the methods" not in str(caught.value), name
    assert len(NAMES) > 500


def test_what_is_here_needs_no_advice() -> None:
    kinds = tables()["Tensor"]["patterns"]
    assert not [name for name in WHAT if hasattr(Tensor, name)]
    assert not [name for name in dir(Tensor) if any(re.fullmatch(kind, name) for kind in kinds)]
    assert not [name for name in WHAT if any(re.fullmatch(kind, name) for kind in kinds)]


@pytest.mark.filterwarnings("ignore:torch.qr is deprecated:UserWarning")
def test_functions_of_the_same_name_mean_the_same() -> None:
    """Those for which `minigrad.NAME(x, ...)` is advised give what the method of PyTorch gives."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.5, 2, (3, 3)), rng.uniform(0.5, 2, (3, 3))
    compared = 0
    for name in NAMES:
        if hasattr(Tensor, name) or advice("Tensor", name) != f"write minigrad.{name}(x, ...)":
            continue
        ours, theirs = getattr(mg, name), getattr(torch.Tensor, name)
        integers = name.startswith("bitwise")
        a, b = ((v * 8).astype(int) if integers else v for v in (x, y))
        for args in ((a,), (a, b)):
            try:
                expected = theirs(*map(torch.tensor, args))
            except (TypeError, RuntimeError):
                continue
            found = ours(*[Tensor(v) for v in args])
            for f, e in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, expected))):
                np.testing.assert_allclose(np.asarray(f), np.asarray(e), err_msg=name)
            compared += 1
            break
    assert compared >= 40


MODULES = [
    (torch, mg, "minigrad"), (torch.nn, nn, "nn"), (torch.nn.functional, nn.functional, "nn.functional"),
    (torch.optim, mg.optim, "minigrad.optim"),
    (torch.optim.lr_scheduler, mg.optim.lr_scheduler, "minigrad.optim.lr_scheduler"),
    (torch.utils.data, mg, "minigrad"), (torch.utils.data, nn, "nn"),
]  # fmt: skip


INSIDE = re.compile(
    r"""AVG|AliasDb|Argument|ArgumentSpec|BenchmarkConfig|BenchmarkExecutionStats|Block|BufferDict|CallStack|Capsule|Code|
CompilationUnit|CompleteArgumentSpec|DataChunk|DeepCopyMemoTable|DispatchKey|DispatchKeySet|EPOCH_DEPRECATION_WARNING|
ErrorReport|ExcludeDispatchKeyGuard|ExecutionPlan|FatalError|FileCheck|FunctionSchema|Future|Gradient|Graph|
GraphExecutorState|IODescriptor|JITException|LockingLogger|LoggerBase|ModuleDict|Node|NoopLogger|OperatorInfo|
PRIVATE_OPS|ParameterDict|SUM|StaticModule|Tag|ThroughputBenchmark|TracingState|USE_GLOBAL_DEPS|
USE_RTLD_GLOBAL_WITH_LIBTORCH|Use|Value|ao|argument_validation|assert_int_or_pair|bit|boolean_dispatch|
choose_qparams_optimized|classes|classproperty|common_types|compiled_with_cxx11_abi|compiler|contrib|cpp|dataloader|
dataset|export|functional|futures|fx|grad|graph|graph_settings|grouped_mm|intrinsic|is_inference_mode_enabled|
is_warn_always_enabled|jagged|library|masked|merge_type_from_type_comment|monitor|nativert|nested|non_deterministic|
overrides|package|prepare_multiprocessing_environment|profiler_allow_cudagraph_cupti_lazy_reinit_cuda12|qat|quasirandom|
reproducibility_notes|return_types|runtime_validation|runtime_validation_disabled|sampler|scaled_grouped_mm|scaled_mm|
set_flush_denormal|set_warn_always|sspaddmm|tf32_notes|torch|torch_version|types|unify_type_list|version|windows|
(Script|LiteScript|ConcreteModule|PyTorchFile|Disable|Serialization|Deserialization|Sym|sym_|BroadcastingList|
has_|parse_|import_ir_|batch_norm_).*|native_\w*norm|\w*(Type|[dD]ata[pP]ipe\w*|torch_function\w*)|\w+_copy""".replace(
        "\n", ""
    )
)
"""Names inside PyTorch, which no program writes."""


def public(module: ModuleType) -> list[str]:
    """The names of a module of PyTorch that are its own."""
    found = {name: getattr(module, name, None) for name in dir(module) if not name.startswith("_")}
    home = {
        name: v.__name__ if isinstance(v, ModuleType) else getattr(v, "__module__", None)
        for name, v in found.items()
    }
    own = [
        name
        for name in found
        if (home[name] or "torch").startswith(("torch", "_VariableFunctions"))
    ]
    path = torch.__path__ if module is torch else ()
    parts = [
        part.name for part in pkgutil.iter_modules(path)
    ]  # some are only there once they are imported
    names = {*own, *(name for name in parts if not name.startswith("_"))}
    return sorted(names - {"TYPE_CHECKING", "Tensor", "inf", "torch"})


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("theirs", "ours", "name"), MODULES, ids=lambda m: getattr(m, "__name__", m)
)
def test_every_name_of_pytorchs_modules_is_here_or_says_what_to_write(
    theirs: Any, ours: Any, name: str
) -> None:
    names = public(theirs)
    silent = [
        n for n in names if n not in vars(ours) and not INSIDE.fullmatch(n) and not advice(name, n)
    ]
    assert not silent and len(names) > 15
    gone = next(n for n in names if n not in vars(ours) and advice(name, n))
    with pytest.raises(AttributeError, match=rf"^module '{name}' has no attribute '{gone}': \w"):
        getattr(ours, gone)
    with pytest.raises(AttributeError, match=rf"^module '{name}' has no attribute 'no_such_name'$"):
        _ = ours.no_such_name


def test_what_is_here_is_in_no_table() -> None:
    homes = {
        "minigrad": mg,
        "nn": nn,
        "data": nn,
        "nn.functional": nn.functional,
        "optim": mg.optim,
    }
    for table, home in homes.items():
        assert not NAMES_OF[table].keys() & vars(home).keys()


@pytest.mark.parametrize("name", [n for n in dir(torch.nn) if n in NAMES_OF["nn"] and n in
    ("CELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Mish", "ReLU6", "SELU", "Softmin", "Softshrink", "Softsign",
     "Tanhshrink", "PReLU", "Threshold")])  # fmt: skip
def test_advice_for_layers_computes_what_pytorchs_do(name: str) -> None:
    x = np.linspace(-4, 8, 30).reshape(3, 10)
    given = {"Softmin": (-1,), "Threshold": (0.3, 2.0)}.get(name, ())
    expected = getattr(torch.nn, name)(*given).double()(torch.tensor(x)).detach().numpy()
    names = {
        "x": Tensor(x),
        "minigrad": mg,
        "np": np,
        "nn": nn,
        "weight": 0.25,
        "threshold": 0.3,
        "value": 2.0,
    }
    found = eval(NAMES_OF["nn"][name].removeprefix("write ").partition(", which")[0], names)
    np.testing.assert_allclose(
        (found(Tensor(x)) if callable(found) else found).data, expected, atol=1e-7
    )


X = np.array([[0.9, 0.2, 0.4], [0.3, 0.8, 0.6], [0.5, 0.7, 0.95]])
GIVEN: dict[str, tuple[Any, dict[str, Any]]] = {  # the method's arguments, and what the advice calls them
    "addbmm": ((lambda t: (t(np.stack([X, X])), t(np.stack([X, 2 * X])))), {"a": np.stack([X, X]), "b": np.stack([X, 2 * X])}),
    **dict.fromkeys(["addcdiv", "addcmul"], (lambda t: (t(X), t(X.T)), {"value": 1, "a": X, "b": X.T})),
    "addmm": (lambda t: (t(X), t(X.T)), {"a": X, "b": X.T}),
    "addr": (lambda t: (t(X[0]), t(X[1])), {"a": X[0], "b": X[1]}),
    **dict.fromkeys(["atan2", "dist", "eq", "equal", "fmod", "ge", "gt", "igamma", "igammac", "le", "lt", "mm", "ne",
                     "true_divide", "expand_as", "view_as", "reshape_as", "is_same_size", "nextafter"],
                    (lambda t: (t(X.T),), {"y": Tensor(X.T)})),
    "ldexp": (lambda t: (t(X.T),), {"y": X.T}),
    "hardshrink": (lambda t: (), {}),
    "kthvalue": (lambda t: (2,), {"k": 2}),
    "lerp": (lambda t: (t(X.T), 0.3), {"y": X.T, "weight": 0.3}),
    "logcumsumexp": (lambda t: (1,), {"axis": 1}),
    "mvlgamma": (lambda t: (1,), {"p": 1}),
    "narrow": (lambda t: (0, 1, 2), {"start": 1, "length": 2}),
    "split_with_sizes": (lambda t: ([1, 2],), {"sizes": [1, 2]}),
    "take_along_dim": (lambda t: (t(X.argsort(1)), 1), {"indices": X.argsort(1), "axis": 1}),
    "tensor_split": (lambda t: (2,), {"n": 2}),
    "vsplit": (lambda t: (3,), {"n": 3}),
    "hsplit": (lambda t: (3,), {"n": 3}),
    "new_full": (lambda t: ((2, 1), 3.0), {"shape": (2, 1), "value": 3.0}),
    "new_zeros": (lambda t: ((2, 1),), {"shape": (2, 1)}),
    "new_ones": (lambda t: ((2, 1),), {"shape": (2, 1)}),
}  # fmt: skip
UNARY = [
    "H",
    "mH",
    "absolute",
    "acos",
    "adjoint",
    "aminmax",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "digamma",
    "element_size",
    "erfc",
    "erfinv",
    "fix",
    "frac",
    "i0",
    "inverse",
    "is_contiguous",
    "is_floating_point",
    "is_signed",
    "isneginf",
    "isposinf",
    "lgamma",
    "logdet",
    "logit",
    "msort",
    "ndimension",
    "neg",
    "negative",
    "nelement",
    "pinverse",
    "sgn",
    "diag_embed",
    "symeig",
]


@pytest.mark.parametrize("name", [*UNARY, *(name for name, given in GIVEN.items() if given)])
def test_advice_computes_what_pytorch_does(name: str) -> None:
    if not hasattr(torch.Tensor, name) or name == "symeig":
        pytest.skip("this version of PyTorch has it no more")
    args, variables = GIVEN.get(name) or (lambda t: (), {})
    expected = getattr(torch.tensor(X), name)
    expected = expected(*args(torch.tensor)) if callable(expected) else expected
    text = re.split(r"; |, (?:which|or) ", WHAT[name])[0]
    found = eval(text, {"x": Tensor(X), "minigrad": mg, "np": np, "scipy": scipy, **variables})
    if name == "kthvalue":
        expected = expected[0]
    expected = expected if isinstance(expected, (tuple, list)) else [expected]
    found = found if isinstance(found, (tuple, list)) else [found]
    for f, e in zip(found, expected):
        np.testing.assert_allclose(np.asarray(f), np.asarray(e), rtol=1e-7, atol=1e-12)


def test_advice_names_what_there_is() -> None:
    each([(t, n) for t, names in NAMES_OF.items() for n in names], names_what_there_is)


def names_what_there_is(case: tuple[str, str]) -> None:
    table, name = case
    text = NAMES_OF[table][name]
    for method in re.findall(r"\bx\.(\w+)", text):
        assert hasattr(Tensor, method) and method != (name if table == "Tensor" else "")
    for path in re.findall(r"\b((?:minigrad|np|nn|scipy)(?:\.\w+)+)", text):
        start, *rest = path.split(".")
        found: Any = {"minigrad": mg, "np": np, "nn": nn, "scipy": scipy}[start]
        if start == "scipy":  # whose modules are imported by who uses them
            importlib.import_module(f"scipy.{rest[0]}")
        for part in rest:
            found = getattr(found, part)
