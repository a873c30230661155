"""Compare each name of `minigrad.torch` with an independent table of what it means."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

import minigrad as mg
import minigrad.torch as torch
import minigrad.torch.nn.functional as F
from minigrad import Tensor
from minigrad.torch import names

P = np.array([[0.3, 0.9, -0.4], [-0.7, 0.2, 0.6]])
Q, LARGE, SQUARE = np.array([[2.5, -1.5, 0.7], [0.4, 3.1, -2.2]]), abs(P) + 1.2, np.diag([2.0, 4.0])
CUBE, PICKED = np.arange(24.0).reshape(2, 3, 4), np.array([[2, 0], [1, 1]])

NUMPY: dict[str, tuple[str, Any]] = {
    "": (
        "abs absolute acos arccos arcsin arcsinh arctan arctanh asin asinh atan atanh ceil cos cosh deg2rad exp exp2 expm1 floor isfinite "
        "isinf isnan logical_not negative rad2deg reciprocal sign sin sinh square tan tanh trunc empty_like ones_like zeros_like "
        "nan_to_num tril triu", (P,),
    ),
    "at least 1": ("acosh arccosh log log10 log1p log2 sqrt", (LARGE,)),
    "two": (
        "add allclose arctan2 atan2 copysign divide fmod hypot isclose kron logaddexp logical_and logical_or logical_xor maximum minimum "
        "multiply outer remainder subtract inner", (P, Q),
    ),
    "axis": ("all amax amin any argmax argmin argsort cumprod cumsum flip mean prod sum", (Q, 1)),
    "constants": ("e inf nan pi", None),
    **{name: (name, args) for name, args in {
        "broadcast_to": (P[0], (2, 3)), "clip": (Q, -1.0, 1.0), "concatenate": ([P, Q], 1), "diag": (P[0],), "diagonal": (P, 1), "dot": (P[0], Q[0]),
        "full_like": (P, 7.0), "matmul": (P, Q.T), "pow": (LARGE, 3.0), "reshape": (P, (3, 2)), "roll": (P, 1, 1), "squeeze": (P[None],),
        "stack": ([P, Q], 1), "swapaxes": (CUBE, 0, 2), "tile": (P, (2, 2)), "where": (P > 0, P, Q), "einsum": ("ij,ij", P, Q),
        "linspace": (0, 1, 3), "arange": (3,), "eye": (2,), "ones": (2,), "zeros": (2,), "full": ((2,), 3),
    }.items()},
}  # fmt: skip
"""Names that mean what they mean in NumPy or its array API, by kind, with their arguments."""

OTHERS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "bmm": ((P, Q.T), P @ Q.T), "mm": ((P, Q.T), P @ Q.T), "cat": (([P, Q],), np.concatenate([P, Q])), "concat": (([P, Q],), np.concatenate([P, Q])),
    "clamp": ((P, 0.0, 0.5), P.clip(0, 0.5)), "clone": ((P,), P), "det": ((SQUARE,), 8), "div": ((P, Q), P / Q), "mul": ((P, Q), P * Q),
    "sub": ((P, Q), P - Q), "neg": ((P,), -P), "erf": ((P,), np.vectorize(math.erf)(P)), "eq": ((P, Q), P == Q), "ge": ((P, Q), P >= Q),
    "gt": ((P, Q), P > Q), "le": ((P, Q), P <= Q), "lt": ((P, Q), P < Q), "ne": ((P, Q), P != Q), "flatten": ((CUBE, 1), CUBE.reshape(2, 12)),
    "norm": ((P,), np.linalg.norm(P)), "gather": ((Q, 1, PICKED), np.take_along_axis(Q, PICKED, 1)), "index_select": ((Q, 1, PICKED[0]), Q[:, [2, 0]]),
    "inverse": ((SQUARE,), np.diag([0.5, 0.25])), "log_softmax": ((P, 1), P - np.log(np.exp(P).sum(1, keepdims=True))),
    "softmax": ((P, 0), np.exp(P) / np.exp(P).sum(0)), "logsumexp": ((P, 1), np.log(np.exp(P).sum(1))), "relu": ((P,), P * (P > 0)),
    "masked_fill": ((P, P < 0, 5.0), np.where(P < 0, 5, P)), "masked_select": ((P, P < 0), P[P < 0]), "rsqrt": ((LARGE,), LARGE**-0.5),
    "movedim": ((CUBE, 0, 2), CUBE.transpose(1, 2, 0)), "permute": ((CUBE, 2, 0, 1), CUBE.transpose(2, 0, 1)), "sigmoid": ((P,), 1 / (1 + np.exp(-P))),
    "transpose": ((CUBE, 0, 2), CUBE.swapaxes(0, 2)), "unsqueeze": ((P, 1), P[:, None]), "numel": ((P,), 6), "is_tensor": ((P,), True),
    "equal": ((P, P), True), "is_grad_enabled": ((), True), "chunk": ((P, 2), (P[:1], P[1:])), "split": ((P, 1), (P[:1], P[1:])),
    "unbind": ((P,), (*P,)), "t": ((P,), P.T), "var": ((P,), P.var(ddof=1)), "std": ((P,), P.std(ddof=1)), "median": ((P,), 0.2),
    "max": ((P,), 0.9), "min": ((P,), -0.7), "sort": ((P,), (np.sort(P), P.argsort())), "nonzero": ((P > 0.5,), np.argwhere(P > 0.5)),
    "topk": ((P, 1), (P.max(1, keepdims=True), P.argmax(1)[:, None])), "repeat_interleave": ((P, 2), P.repeat(2)), "from_numpy": ((P,), P),
    "scatter_add": ((Q, 1, PICKED, P), Q + [[0.9, 0, 0.3], [0, -0.5, 0]]), "tensor": ((P,), P), "as_tensor": ((P,), P),
    "meshgrid": ((P[0], Q[0]), (np.tile(P[0][:, None], (1, 3)), np.tile(Q[0], (3, 1)))), "device": (("cpu",), "cpu"),
}  # fmt: skip
"""Other names, with arguments and the result."""

RANDOM = {"Generator", "bernoulli", "empty", "manual_seed", "multinomial", "normal", "rand", "rand_like", "randint", "randn", "randn_like", "randperm"}  # fmt: skip
SAME: dict[str, Any] = {"Tensor": mg.Tensor, "no_grad": mg.no_grad, "enable_grad": mg.enable_grad, "set_grad_enabled": mg.set_grad_enabled, "inference_mode": mg.no_grad, "finfo": np.finfo, "iinfo": np.iinfo}  # fmt: skip
DTYPES = {
    "bool": "?", "double": "f8", "float": "f4", "half": "f2", "int": "i4", "long": "i8", "uint8": "u1",
    **{f"float{n}": f"f{n // 8}" for n in (16, 32, 64)}, **{f"int{n}": f"i{n // 8}" for n in (8, 16, 32, 64)},
}  # fmt: skip
PLACES: dict[str, str] = {
    "": "amp nn optim utils",
    "nn": "BCELoss BCEWithLogitsLoss CrossEntropyLoss Dropout ELU Embedding Flatten GELU HuberLoss Identity KLDivLoss L1Loss LayerNorm LeakyReLU Linear "
    "LogSigmoid LogSoftmax MSELoss Module ModuleDict ModuleList MultiheadAttention NLLLoss Parameter RMSNorm ReLU Sequential SiLU Sigmoid SmoothL1Loss "
    "Softmax Softplus Tanh Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer functional init utils",
    "nn.functional": "binary_cross_entropy binary_cross_entropy_with_logits cosine_similarity cross_entropy dropout elu embedding gelu huber_loss kl_div "
    "l1_loss layer_norm leaky_relu linear log_softmax logsigmoid mse_loss nll_loss normalize one_hot relu rms_norm scaled_dot_product_attention sigmoid "
    "silu smooth_l1_loss softmax softplus tanh",
    "nn.init": "constant_ kaiming_normal_ kaiming_uniform_ normal_ ones_ orthogonal_ trunc_normal_ uniform_ xavier_normal_ xavier_uniform_ zeros_",
    "nn.utils": "clip_grad_norm_ clip_grad_value_ parameters_to_vector rnn vector_to_parameters", "nn.utils.rnn": "pad_sequence",
    "optim": "Adam AdamW Optimizer SGD lr_scheduler", "utils": "data", "utils.data": "DataLoader Dataset Subset TensorDataset random_split",
    "optim.lr_scheduler": "CosineAnnealingLR ExponentialLR LambdaLR LinearLR MultiStepLR OneCycleLR ReduceLROnPlateau SequentialLR StepLR",
}  # fmt: skip
"""Public names of the modules; those of the package without its functions and dtypes."""


def as_arguments(args: Any) -> Any:
    """Return arguments with tensors in place of floating-point arrays."""
    if isinstance(args, (list, tuple)):
        return type(args)([as_arguments(x) for x in args])
    return Tensor(args) if isinstance(args, np.ndarray) and args.dtype == float else args


def is_equal(result: Any, expected: Any) -> bool:
    """Compare results of float64, or float32 as PyTorch's functions create them, with arrays."""
    if isinstance(expected, tuple):
        return len(result) == len(expected) and all(map(is_equal, result, expected))
    if isinstance(expected, str):
        return bool(result == expected)
    array, expected = (
        np.asarray(result.data if isinstance(result, Tensor) else result),
        np.asarray(expected),
    )
    is_close = np.allclose(array, expected, rtol=1e-6, atol=1e-12, equal_nan=True)
    return array.shape == expected.shape and is_close


def results_of_numpy() -> dict[str, tuple[Any, Any]]:
    known = {}
    for listed, args in NUMPY.values():
        for name in listed.split():
            value = getattr(np, name)
            known[name] = args, (value if args is None else value(*args))
    return known


def test_package_has_the_names_of_the_tables() -> None:
    """Files are written by `save` and `load`, and `autocast` and `cuda` do nothing."""
    rest = {"autocast", "cuda", "load", "save"}
    tables: list[Any] = [results_of_numpy(), OTHERS, RANDOM, SAME, DTYPES, PLACES[""].split(), rest]
    assert {*dir(torch)} == set().union(*tables)
    assert {name: getattr(torch, name) for name in SAME} == SAME
    assert {name: np.dtype(getattr(torch, name)) for name in DTYPES} == DTYPES


def test_functions_have_the_results_of_the_tables() -> None:
    for name, (args, expected) in {**results_of_numpy(), **OTHERS}.items():
        function = getattr(torch, name)
        given = args if name == "from_numpy" else as_arguments(args)
        result = function if args is None else function(*given)
        assert name == "empty_like" or is_equal(result, expected), name


def test_modules_have_the_names_of_the_tables() -> None:
    for place, listed in PLACES.items():
        module: Any = importlib.import_module(f"minigrad.torch.{place}".rstrip("."))
        public = module.__dir__() if "__dir__" in vars(module) else module.__all__
        assert {*public} == {*listed.split()} or not place, place
        for name in listed.split():
            own = getattr(module, name).__name__.rpartition(".")[2]
            assert own in (name, {"logsigmoid": "log_sigmoid"}.get(name)), f"{place}.{name}"


METHODS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "add": ((Q,), P + Q), "sub": ((Q,), P - Q), "mul": ((Q,), P * Q), "div": ((Q,), P / Q), "pow": ((2,), P * P), "eq": ((Q,), P == Q), "ge": ((Q,), P >= Q),
    "gt": ((Q,), P > Q), "le": ((Q,), P <= Q), "lt": ((Q,), P < Q), "ne": ((Q,), P != Q), "clamp": ((0.0, 0.5), P.clip(0, 0.5)), "contiguous": ((), P),
    "cpu": ((), P), "dim": ((), 2), "numel": ((), 6), "bool": ((), P.astype("?")), "double": ((), P), "float": ((), P.astype("f4")),
    "half": ((), P.astype("f2")), "int": ((), P.astype("i4")), "long": ((), P.astype("i8")), "movedim": ((0, 1), P.T), "permute": ((1, 0), P.T),
    "split": ((1,), (P[:1], P[1:])), "swapdims": ((0, 1), P.T), "t": ((), P.T), "to": (("float32",), P.astype("f4")), "unbind": ((), (*P,)),
    "topk": ((1,), OTHERS["topk"][1]), "unsqueeze": ((1,), P[:, None]), "view": ((3, 2), P.reshape(3, 2)), "amax": ((1,), P.max(1)), "amin": ((1,), P.min(1)),
    "chunk": ((2,), (P[:1], P[1:])), "expand": ((2, 2, 3), np.stack([P, P])), "flatten": ((), P.ravel()),
}  # fmt: skip
"""Methods that ndarrays lack or that mean something else, with arguments and the result."""


def test_methods_have_the_results_of_the_table() -> None:
    added = {name for name in names.METHODS if name[0] != "_"} - {"device"}
    assert {*METHODS} == added | {"amax", "amin", "chunk", "expand", "flatten"}
    x = Tensor(P)
    assert x.device == "cpu" and x.cpu() is x.contiguous() is x
    for name, (args, expected) in METHODS.items():
        result = getattr(x, name)(*as_arguments(args))
        assert is_equal(result, expected), name
        assert not isinstance(expected, np.ndarray) or result.dtype == expected.dtype, name


def test_arguments_have_the_names_of_pytorch() -> None:
    p, q = Tensor(P), Tensor(Q)
    calls: list[tuple[Any, Any]] = [
        (torch.where(condition=P > 0, input=p, other=q), np.where(P > 0, P, Q)), (torch.cat(tensors=[p, q], dim=1), np.hstack([P, Q])),
        (torch.tile(input=p, dims=(2, 1)), np.tile(P, (2, 1))), (torch.sub(input=p, other=q), P - Q), (torch.mm(input=p, mat2=q.T), P @ Q.T),
        (torch.outer(input=p[0], vec2=q[0]), np.outer(P[0], Q[0])), (torch.pow(input=p, exponent=2), P * P),
        (torch.roll(input=p, shifts=1, dims=0), P[::-1]), (torch.reshape(input=p, shape=(3, 2)), P.reshape(3, 2)), (torch.flip(p, dims=(0,)), P[::-1]),
        (torch.split(tensor=p, split_size_or_sections=1), (P[:1], P[1:])), (torch.tril(input=p, diagonal=-1), np.tril(P, -1)),
        (torch.randint(low=4, high=5, size=(2,)), [4, 4]), (torch.normal(mean=2.0, std=0.0, size=(2,)), [2, 2]), (torch.argmax(input=p, dim=1), P.argmax(1)),
        (torch.permute(input=p, dims=(1, 0)), P.T), (torch.broadcast_to(input=p[0], size=(2, 3)), [P[0], P[0]]), (F.relu(input=p), P * (P > 0)),
    ]  # fmt: skip
    assert all(is_equal(*call) for call in calls)
