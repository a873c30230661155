"""The modules of minigrad.torch against PyTorch: values, dtypes, gradients and names of parameters."""

from __future__ import annotations

import importlib
import operator
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples, needs

import minigrad.torch as mt
from minigrad import Tensor
from minigrad.torch.utils import data as mt_data

torch = needs("torch")

X = np.array([[0.5, -1.5, 2.0], [2.0, 0.25, -0.75]], np.float32)
Y = np.array([[1.5, 0.5, -2.5], [0.75, 3.0, 1.25]], np.float32)
SQUARE = np.array([[3.0, 0.5, 0.0], [0.5, 2.0, -0.25], [0.0, -0.25, 1.0]], np.float32)
IDS = np.array([[0, 2, 1], [1, 1, 0]])
MASK = X > 0
NAN = np.array([[1.0, np.nan, -2.0], [0.0, 3.0, 3.0]], np.float32)

UNARY = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "neg",
    "negative",
    "rad2deg",
    "reciprocal",
    "relu",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "t",
    "numel",
    "clone",
    "all",
    "any",
    "sum",
    "mean",
    "prod",
    "max",
    "min",
    "median",
    "var",
    "std",
    "norm",
    "argmax",
    "argmin",
    "nonzero",
    "flatten",
    "nan_to_num",
    "is_tensor",
    "cumsum",
    "cumprod",
    "ones_like",
    "zeros_like",
]
BINARY = [
    "add",
    "sub",
    "subtract",
    "mul",
    "multiply",
    "div",
    "divide",
    "maximum",
    "minimum",
    "atan2",
    "arctan2",
    "copysign",
    "fmod",
    "hypot",
    "logaddexp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "remainder",
    "pow",
    "equal",
    "isclose",
    "allclose",
    "kron",
    "eq",
    "ge",
    "gt",
    "le",
    "lt",
    "ne",
]

CALLS: dict[str, list[Any]] = {
    **{name: [lambda f, a: f(a(X))] for name in UNARY},
    **{name: [lambda f, a: f(a(X), a(Y))] for name in BINARY},
}
for name in ("acos", "arccos", "asin", "arcsin", "atanh", "arctanh"):
    CALLS[name] = [lambda f, a: f(a(X / 3))]
for name in ("acosh", "arccosh", "log", "log10", "log2", "log1p", "sqrt", "rsqrt"):
    CALLS[name] = [lambda f, a: f(a(abs(X) + 1))]
CALLS["pow"] = [lambda f, a: f(a(X), 2), lambda f, a: f(a(abs(X)), a(Y))]
for name in ("cumsum", "cumprod"):
    CALLS[name] = [lambda f, a: f(a(X), 1), lambda f, a: f(a(X), dim=0)]
for name in ("all", "any"):
    CALLS[name] = [lambda f, a: f(a(MASK)), lambda f, a: f(a(MASK), dim=1, keepdim=True)]
for name in ("sum", "mean", "prod", "amax", "amin", "argmax", "argmin"):
    CALLS[name] = [lambda f, a: f(a(X), dim=1), lambda f, a: f(a(X), 0, True)]
    if name not in ("amax", "amin"):
        CALLS[name].append(lambda f, a: f(a(X)))
for name in ("max", "min"):
    CALLS[name] += [
        lambda f, a: f(a(X), 1),
        lambda f, a: f(a(X), dim=0, keepdim=True),
        lambda f, a: f(a(X), a(Y)),
        lambda f, a: f(a(NAN), 1),
    ]
CALLS["median"] += [
    lambda f, a: f(a(X), 1),
    lambda f, a: f(a(X), dim=0, keepdim=True),
    lambda f, a: f(a(NAN), 1).values,
]
for name in ("var", "std"):
    CALLS[name] += [
        lambda f, a: f(a(X), 1),
        lambda f, a: f(a(X), dim=0, unbiased=False),
        lambda f, a: f(a(X), dim=(0, 1), correction=0, keepdim=True),
        lambda f, a: f(a(X), False),
    ]
CALLS |= {
    "argsort": [lambda f, a: f(a(X)), lambda f, a: f(a(X), dim=0, descending=True)],
    "as_tensor": [lambda f, a: f([1.5, 2]), lambda f, a: f([1, 2]), lambda f, a: f([True])],
    "arange": [lambda f, a: f(3), lambda f, a: f(1.0, 4), lambda f, a: f(4, 0, -2)],
    "bmm": [lambda f, a: f(a(X[None]), a(Y.T[None]))],
    "broadcast_to": [lambda f, a: f(a(X), (4, 2, 3))],
    "cat": [lambda f, a: f((a(X), a(Y)), dim=1)],
    "chunk": [lambda f, a: f(a(X), 2, dim=1)],
    "clamp": [lambda f, a: f(a(X), -1, 1), lambda f, a: f(a(X), min=0)],
    "clip": [lambda f, a: f(a(X), -1, 1)],
    "concat": [lambda f, a: f((a(X), a(Y)))],
    "concatenate": [lambda f, a: f((a(X), a(Y)), dim=1)],
    "det": [lambda f, a: f(a(SQUARE))],
    "diag": [lambda f, a: f(a(SQUARE), diagonal=1), lambda f, a: f(a(X[0]))],
    "diagonal": [lambda f, a: f(a(SQUARE)), lambda f, a: f(a(SQUARE[None]), -1, dim1=1, dim2=2)],
    "dot": [lambda f, a: f(a(X[0]), a(Y[0]))],
    "einsum": [
        lambda f, a: f("ij,kj->ik", a(X), a(Y)),
        lambda f, a: f("ij,kj->ik", [a(X), a(Y)]),
    ],
    "empty": [lambda f, a: f(2, 3).shape, lambda f, a: f((2, 0))],
    "empty_like": [lambda f, a: f(a(X)).shape],
    "eye": [lambda f, a: f(3), lambda f, a: f(2, 3)],
    "flatten": [lambda f, a: f(a(X[None]), 1), lambda f, a: f(a(X[None]), start_dim=0, end_dim=1)],
    "flip": [lambda f, a: f(a(X), (0,)), lambda f, a: f(a(X), [0, 1])],
    "full": [
        lambda f, a: f((2,), 1.5),
        lambda f, a: f((2,), 3),
        lambda f, a: f((2,), True),
        lambda f, a: f((2, 2), -np.inf),
    ],
    "full_like": [lambda f, a: f(a(X), 2.0)],
    "from_numpy": [lambda f, a: f(X)],
    "gather": [lambda f, a: f(a(X), 1, a(IDS))],
    "index_select": [lambda f, a: f(a(X), 1, a(IDS[0]))],
    "inner": [lambda f, a: f(a(X), a(Y))],
    "inverse": [lambda f, a: f(a(SQUARE))],
    "linspace": [lambda f, a: f(0, 1, 5), lambda f, a: f(-1.0, 1.0, steps=3)],
    "log_softmax": [lambda f, a: f(a(X), 1), lambda f, a: f(a(X), dim=0)],
    "logsumexp": [lambda f, a: f(a(X), 1), lambda f, a: f(a(X), dim=0, keepdim=True)],
    "masked_fill": [lambda f, a: f(a(X), a(MASK), -np.inf)],
    "masked_select": [lambda f, a: f(a(X), a(MASK))],
    "matmul": [lambda f, a: f(a(X), a(Y.T))],
    "meshgrid": [
        lambda f, a: f(a(X[0]), a(X[:, 0]), indexing="ij"),
        lambda f, a: f([a(X[0]), a(X[:, 0])], indexing="xy"),
    ],
    "mm": [lambda f, a: f(a(X), a(Y.T))],
    "movedim": [lambda f, a: f(a(X[None]), 0, 2)],
    "nonzero": [
        lambda f, a: f(a(MASK)),
        lambda f, a: f(a(MASK), as_tuple=True),
        lambda f, a: f(a(np.array(1.0))),
    ],
    "norm": [
        lambda f, a: f(a(X)),
        lambda f, a: f(a(X), 1),
        lambda f, a: f(a(X), dim=1, keepdim=True),
        lambda f, a: f(a(X), p=np.inf, dim=0),
    ],
    "ones": [lambda f, a: f(2, 3), lambda f, a: f((2,), dtype=a.dtype("float64"))],
    "outer": [lambda f, a: f(a(X[0]), a(Y[0]))],
    "permute": [lambda f, a: f(a(X[None]), (2, 0, 1))],
    "repeat_interleave": [
        lambda f, a: f(a(X), 2),
        lambda f, a: f(a(X), a(np.array([1, 0, 2])), dim=1),
    ],
    "reshape": [lambda f, a: f(a(X), (3, 2)), lambda f, a: f(a(X), (-1,))],
    "roll": [lambda f, a: f(a(X), 1), lambda f, a: f(a(X), shifts=(1, -1), dims=(0, 1))],
    "scatter_add": [
        lambda f, a: f(a(X), 1, a(IDS), a(Y)),
        lambda f, a: f(a(X), 0, a(IDS[:1] % 2), a(Y)),
    ],
    "softmax": [lambda f, a: f(a(X), 1), lambda f, a: f(a(X), dim=0)],
    "sort": [
        lambda f, a: f(a(X)),
        lambda f, a: f(a(X), 0, True),
        lambda f, a: f(a(NAN), descending=True, stable=True),
        lambda f, a: f(a(NAN), 0),
    ],
    "split": [
        lambda f, a: f(a(X), 2, dim=1),
        lambda f, a: f(a(X), [1, 2], 1),
        lambda f, a: f(a(X), 1),
        lambda f, a: f(a(X), 9),
    ],
    "squeeze": [lambda f, a: f(a(X[None, :, None])), lambda f, a: f(a(X[None]), 0)],
    "stack": [lambda f, a: f((a(X), a(Y)), dim=1)],
    "swapaxes": [lambda f, a: f(a(X), 0, 1)],
    "tensor": [
        lambda f, a: f([1.5, 2]),
        lambda f, a: f(2),
        lambda f, a: f(X.astype(float)),
        lambda f, a: f([[True, False]]),
        lambda f, a: f(1.0, dtype=a.dtype("float64")),
    ],
    "tile": [lambda f, a: f(a(X), (2, 1))],
    "topk": [lambda f, a: f(a(X), 2), lambda f, a: f(a(X), 1, dim=0, largest=False)],
    "transpose": [lambda f, a: f(a(X), 0, 1), lambda f, a: f(a(X[None]), 1, 2)],
    "tril": [lambda f, a: f(a(SQUARE), diagonal=-1)],
    "triu": [lambda f, a: f(a(SQUARE), 1)],
    "unbind": [lambda f, a: f(a(X), 1)],
    "unsqueeze": [lambda f, a: f(a(X), -1), lambda f, a: f(a(X), dim=0)],
    "where": [lambda f, a: f(a(MASK), a(X), a(Y))],
    "zeros": [lambda f, a: f(2, 3), lambda f, a: f((2,), dtype=a.dtype("int64"))],
}
"""Calls of each function; `a` makes an operand."""

RANDOM = {
    "bernoulli", "multinomial", "normal", "rand", "rand_like", "randint", "randn", "randn_like",
    "randperm",
}  # fmt: skip
NO_FUNCTIONS = {
    "Generator", "Tensor", "autocast", "cuda", "device", "enable_grad", "inference_mode",
    "is_grad_enabled", "load", "manual_seed", "no_grad", "save", "set_grad_enabled",
}  # fmt: skip


def ours(array: np.ndarray) -> Tensor:
    return Tensor(array.copy())


def theirs(array: np.ndarray) -> Any:
    return torch.tensor(array)


ours.dtype = lambda name: getattr(mt, name)  # type: ignore[attr-defined]
theirs.dtype = lambda name: getattr(torch, name)  # type: ignore[attr-defined]


def assert_same(result: Any, expected: Any) -> None:
    if isinstance(expected, (tuple, list)) and not isinstance(expected, torch.Size):
        assert len(result) == len(expected)
        for a, b in zip(result, expected):
            assert_same(a, b)
    elif isinstance(expected, torch.Tensor):
        values = np.asarray(expected.detach())
        array = result.data if isinstance(result, Tensor) else np.asarray(result)
        assert (array.shape, array.dtype) == (values.shape, values.dtype)
        np.testing.assert_allclose(array, values, rtol=2e-6, atol=1e-6)
    else:
        assert result == expected


def test_table_has_every_function() -> None:
    names = {name for name in dir(mt) if isinstance(getattr(mt, name), types.FunctionType)}
    names |= {name for name in dir(mt) if hasattr(getattr(mt, name), "op")}
    assert names - NO_FUNCTIONS - RANDOM == CALLS.keys()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_function_equals_torch(name: str) -> None:
    for call in CALLS[name]:
        assert_same(call(getattr(mt, name), ours), call(getattr(torch, name), theirs))


BY_KEYWORD: dict[str, Any] = {
    "add": lambda f, a: f(input=a(X), other=a(Y)),
    "amax": lambda f, a: f(input=a(X), dim=[0, 1], keepdim=True),
    "arange": lambda f, a: f(end=3),
    "atan2": lambda f, a: f(a(X), other=a(Y)),
    "bmm": lambda f, a: f(a(X[None]), mat2=a(Y.T[None])),
    "cat": lambda f, a: f(tensors=(a(X), a(Y)), dim=1),
    "clamp": lambda f, a: f(input=a(X), max=0.5),
    "diag": lambda f, a: f(input=a(X[0]), diagonal=1),
    "diagonal": lambda f, a: f(input=a(SQUARE), dim1=1, dim2=0, offset=1),
    "dot": lambda f, a: f(input=a(X[0]), tensor=a(Y[0])),
    "flip": lambda f, a: f(a(X), dims=[0]),
    "full": lambda f, a: f(size=(2, 3), fill_value=1.5),
    "gather": lambda f, a: f(input=a(X), dim=1, index=a(IDS)),
    "max": lambda f, a: f(a(X), other=a(Y)),
    "median": lambda f, a: f(input=a(X), dim=1),
    "nn.functional.gelu": lambda f, a: f(input=a(X), approximate="tanh"),
    "nn.functional.linear": lambda f, a: f(input=a(X), weight=a(Y)),
    "nn.functional.softmax": lambda f, a: f(input=a(X), dim=0),
    "outer": lambda f, a: f(input=a(X[0]), vec2=a(Y[0])),
    "permute": lambda f, a: f(a(X), dims=(1, 0)),
    "pow": lambda f, a: f(a(X), exponent=2),
    "randint": lambda f, a: f(low=2, high=3, size=(2, 3)),
    "relu": lambda f, a: f(input=a(X)),
    "reshape": lambda f, a: f(input=a(X), shape=(3, 2)),
    "roll": lambda f, a: f(a(X), dims=1, shifts=2),
    "split": lambda f, a: f(tensor=a(X), split_size_or_sections=[1, 2], dim=1),
    "std": lambda f, a: f(input=a(X), dim=1),
    "swapaxes": lambda f, a: f(a(X[None]), axis0=2, axis1=0),
    "sum": lambda f, a: f(input=a(X), dim=1, keepdim=True),
    "tile": lambda f, a: f(a(X), dims=(2, 1)),
    "transpose": lambda f, a: f(a(X[None]), dim0=2, dim1=0),
    "tril": lambda f, a: f(a(SQUARE), diagonal=-1),
    "where": lambda f, a: f(a(MASK), other=a(Y), input=a(X)),
    "zeros": lambda f, a: f(size=(2, 3)),
}


@pytest.mark.parametrize("name", BY_KEYWORD)
def test_function_takes_arguments_by_name_as_torch(name: str) -> None:
    call, of = BY_KEYWORD[name], operator.attrgetter(name)
    assert_same(call(of(mt), ours), call(of(torch), theirs))


@pytest.mark.parametrize("name", ["eq", "ge", "gt", "le", "lt", "ne"])
def test_comparison_equals_torch(name: str) -> None:
    for other in (ours(Y), 0.5):
        result = getattr(ours(X), name)(other)
        np.testing.assert_array_equal(
            result.data, getattr(theirs(X), name)(theirs(np.asarray(other)))
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda t, a, x: t.max(x, 1).values,
        lambda t, a, x: t.min(x, dim=0, keepdim=True)[0],
        lambda t, a, x: t.median(x, 1)[0],
        lambda t, a, x: t.sort(x, 0, descending=True)[0],
        lambda t, a, x: t.topk(x, 2)[0],
        lambda t, a, x: t.cat(t.split(x, 2, dim=1)[::-1], dim=1),
        lambda t, a, x: t.scatter_add(x, 1, a(IDS), x * x),
        lambda t, a, x: t.repeat_interleave(x, 3, dim=0),
        lambda t, a, x: x[None].transpose(1, 2),
        lambda t, a, x: t.cat(x.split([1, 2], dim=1)[::-1], dim=1),
        lambda t, a, x: t.std(x, 1),
        lambda t, a, x: t.norm(x, dim=1),
        lambda t, a, x: x.flip((0, 1)),
    ],
)
def test_gradient_equals_torch(call: Any) -> None:
    x, y = ours(X).requires_grad_(), theirs(X).requires_grad_()
    a, b = call(mt, ours, x), call(torch, theirs, y)
    weights = np.random.default_rng(0).standard_normal(a.shape).astype(np.float32)
    (a * weights).sum().backward()
    (b * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(x.grad.data, y.grad, rtol=1e-5, atol=1e-6)


# -- modules


@st.composite
def transformers(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "d_model": 8,
        "nhead": draw(st.sampled_from([1, 2, 4])),
        "num_encoder_layers": draw(st.integers(1, 2)),
        "num_decoder_layers": draw(st.integers(1, 2)),
        "dim_feedforward": 16,
        "activation": draw(st.sampled_from(["relu", "gelu"])),
        "batch_first": draw(st.booleans()),
        "norm_first": draw(st.booleans()),
        "bias": draw(st.booleans()),
        "dropout": 0.0,
    }


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@max_examples(10)
@given(transformers(), st.integers(0, 1000), st.booleans(), st.booleans())
def test_transformer_equals_torch(
    options: dict[str, Any], seed: int, causal: bool, padded: bool
) -> None:
    rng = np.random.default_rng(seed)
    reference = torch.nn.Transformer(**options)
    model = mt.nn.Transformer(**options)
    state = {name: value.numpy() for name, value in reference.state_dict().items()}
    assert model.state_dict().keys() == state.keys()
    model.load_state_dict(state)
    n, s, t = 3, 5, 4
    shapes = ((n, s, 8), (n, t, 8)) if options["batch_first"] else ((s, n, 8), (t, n, 8))
    src, tgt = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    masks: dict[str, Any] = {}
    if causal:
        masks["tgt_mask"] = np.triu(np.ones((t, t), bool), 1)
    if padded:
        padding = np.zeros((n, s), bool)
        padding[0, 3:] = True
        masks |= {"src_key_padding_mask": padding, "memory_key_padding_mask": padding}
    y = model(src, tgt, **masks)
    tensors = {name: torch.tensor(mask) for name, mask in masks.items()}
    expected = reference(torch.tensor(src), torch.tensor(tgt), **tensors)
    np.testing.assert_allclose(y.data, expected.detach(), atol=2e-5)
    weights = rng.standard_normal(y.shape).astype(np.float32)
    (y * weights).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    gradients = {name: p.grad.numpy() for name, p in reference.named_parameters()}
    for name, p in model.named_parameters():
        np.testing.assert_allclose(p.grad.data, gradients[name], atol=2e-4, err_msg=name)


@max_examples(10)
@given(st.sampled_from(["none", "2d", "3d", "float"]), st.booleans(), st.booleans(), st.booleans())
def test_multihead_attention_equals_torch(
    mask: str, padded: bool, averaged: bool, batch_first: bool
) -> None:
    rng = np.random.default_rng(0)
    reference = torch.nn.MultiheadAttention(8, 2, batch_first=batch_first)
    layer = mt.nn.MultiheadAttention(8, 2, batch_first=batch_first)
    layer.load_state_dict({name: v.numpy() for name, v in reference.state_dict().items()})
    query, key = rng.standard_normal((3, 4, 8)), rng.standard_normal((3, 5, 8))
    masks: dict[str, Any] = {}
    if mask != "none":
        drawn = rng.random((4, 5) if mask != "3d" else (6, 4, 5))
        masks["attn_mask"] = drawn.astype(np.float32) if mask == "float" else drawn < 0.3
        if mask != "float":
            masks["attn_mask"][..., 0] = False
    if padded:
        masks["key_padding_mask"] = np.arange(5) >= np.array([5, 3, 4])[:, None]
        if mask == "float":
            masks["key_padding_mask"] = np.where(masks["key_padding_mask"], -np.inf, 0)
    order = (lambda x: x) if batch_first else (lambda x: x.swapaxes(0, 1))
    q, k = (order(x).astype(np.float32) for x in (query, key))
    masks = {name: m.astype(np.float32) if m.dtype == float else m for name, m in masks.items()}
    y, weights = layer(q, k, k, average_attn_weights=averaged, **masks)
    theirs_masks = {name: torch.tensor(m) for name, m in masks.items()}
    expected = reference(
        torch.tensor(q), torch.tensor(k), torch.tensor(k), average_attn_weights=averaged,
        **theirs_masks,
    )  # fmt: skip
    np.testing.assert_allclose(y.data, expected[0].detach(), atol=1e-5)
    np.testing.assert_allclose(weights.data, expected[1].detach(), atol=1e-5)
    alone, nothing = layer(q, k, k, need_weights=False, **masks)
    np.testing.assert_allclose(alone.data, y.data, atol=1e-5)
    assert nothing is None


SCHEDULES = {
    "MultiStepLR": [{"milestones": [3, 5, 5]}, {"milestones": [9, 2], "gamma": 0.5}],
    "ExponentialLR": [{"gamma": 0.8}],
    "OneCycleLR": [
        {"max_lr": 0.5, "total_steps": 14},
        {"max_lr": 0.5, "total_steps": 16, "three_phase": True},
        {"max_lr": 0.5, "epochs": 3, "steps_per_epoch": 5, "anneal_strategy": "linear"},
        {"max_lr": 0.5, "total_steps": 14, "cycle_momentum": False, "pct_start": 0.4},
    ],
}


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_equals_torch(name: str, optimizer: str) -> None:
    for options in SCHEDULES[name]:
        groups = []
        for module, parameter in (
            (torch, torch.nn.Parameter(torch.ones(3))),
            (mt, mt.ones(3, requires_grad=True)),
        ):
            extra = {"momentum": 0.9} if optimizer == "SGD" else {}
            o = getattr(module.optim, optimizer)([parameter], lr=0.1, **extra)
            schedule = getattr(module.optim.lr_scheduler, name)(o, **options)
            seen = []
            for i in range(12):
                group = o.param_groups[0]
                seen.append([group["lr"], *np.ravel(group.get("betas", group.get("momentum")))])
                gradient = torch.ones(3) if module is torch else np.ones(3, np.float32)
                parameter.grad = gradient * (i + 1)
                o.step()
                schedule.step()
            groups.append((seen, np.asarray(parameter.detach())))
        np.testing.assert_allclose(groups[1][0], groups[0][0], rtol=1e-9)
        np.testing.assert_allclose(groups[1][1], groups[0][1], rtol=1e-5)


def test_sequential_schedule_equals_torch() -> None:
    rates = []
    for module, parameter in (
        (torch, torch.nn.Parameter(torch.ones(3))),
        (mt, mt.ones(3, requires_grad=True)),
    ):
        optimizer = module.optim.SGD([parameter], lr=0.1)
        s = module.optim.lr_scheduler
        warmup = s.LinearLR(optimizer, start_factor=0.1, total_iters=3)
        rest = s.ExponentialLR(optimizer, gamma=0.9)
        schedule = s.SequentialLR(optimizer, [warmup, rest], milestones=[3])
        seen = []
        for _ in range(8):
            seen.append(schedule.get_last_lr()[0])
            optimizer.step()
            schedule.step()
        rates.append(seen)
    np.testing.assert_allclose(rates[1], rates[0])


def test_utils_equal_torch() -> None:
    parts = [np.arange(n, dtype=np.float32).reshape(-1, 1) + 1 for n in (3, 1, 2)]
    for options in ({}, {"batch_first": True, "padding_value": -1.0}, {"padding_side": "left"}):
        result = mt.nn.utils.rnn.pad_sequence(list(map(ours, parts)), **options)
        expected = torch.nn.utils.rnn.pad_sequence(list(map(theirs, parts)), **options)
        assert_same(result, expected)
    a, b = ours(X).requires_grad_(), theirs(X).requires_grad_()
    a.grad, b.grad = ours(Y), theirs(Y)
    mt.nn.utils.clip_grad_value_([a], 1.25)
    torch.nn.utils.clip_grad_value_([b], 1.25)
    assert_same(a.grad, b.grad)
    vector = mt.nn.utils.parameters_to_vector([a, a])
    assert_same(vector, torch.nn.utils.parameters_to_vector([b, b]))
    mt.nn.utils.vector_to_parameters(np.arange(6, dtype=np.float32), [a])
    torch.nn.utils.vector_to_parameters(torch.arange(6.0), [b])
    assert_same(a, b)


@pytest.mark.parametrize("lengths", [[3, 7], [0.5, 0.25, 0.25], [0.33, 0.67]])
def test_random_split_has_sizes_of_torch(lengths: list[Any]) -> None:
    parts = mt_data.random_split(range(10), lengths, generator=mt.Generator().manual_seed(0))
    expected = torch.utils.data.random_split(range(10), lengths)
    assert [len(part) for part in parts] == [len(part) for part in expected]
    assert sorted(item for part in parts for item in part) == list(range(10))


def test_public_names_exist_in_torch() -> None:
    for name in (
        "", ".nn", ".nn.functional", ".nn.init", ".nn.utils", ".nn.utils.rnn", ".optim",
        ".optim.lr_scheduler", ".utils.data", ".amp",
    ):  # fmt: skip
        module = importlib.import_module(f"minigrad.torch{name}")
        reference = importlib.import_module(f"torch{name}")
        names = getattr(module, "__all__", None) or dir(module)
        missing = [n for n in names if not hasattr(reference, n)]
        assert missing == [], name
