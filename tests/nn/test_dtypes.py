"""Layers compute in the dtype of their parameters, and refuse other tensors with gradients."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor
from nn.options.activations import FunctionModule

PATCHES = nn.PatchEmbedding(
    nn.EncoderConfig(d_model=4, num_heads=2, image_size=4, patch_size=2, num_channels=3)
)
INPUTS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "AdditiveAttention": (nn.AdditiveAttention(4, 4, 5), (2, 3, 4)),
    "BatchNorm1d": (nn.BatchNorm1d(4), (3, 4)),
    "ExtendedAttention": (nn.ExtendedAttention(4, 2), (2, 3, 4)),
    "ExtendedDecoderLayer": (nn.ExtendedDecoderLayer(4, 2, 8), (2, 3, 4)),
    "ExtendedEncoderLayer": (nn.ExtendedEncoderLayer(4, 2, 8), (2, 3, 4)),
    "ExtendedFeedForward": (nn.ExtendedFeedForward(4, 6), (2, 3, 4)),
    "FeedForward": (nn.FeedForward(4, 6), (2, 3, 4)),
    "LayerNorm": (nn.LayerNorm(4), (3, 4)),
    "LearnedPositions": (nn.LearnedPositions(5, 4), (2, 3, 4)),
    "Linear": (nn.Linear(4, 2), (3, 4)),
    "LoRALinear": (nn.LoRALinear(nn.Linear(4, 2), rank=2, scale=1.0), (3, 4)),
    "MultiHeadAttention": (nn.MultiHeadAttention(4, 2), (2, 3, 4)),
    "PatchEmbedding": (PATCHES, (2, 3, 4, 4)),
    "RMSNorm": (nn.RMSNorm(4), (3, 4)),
    "SinusoidalPositions": (nn.SinusoidalPositions(5, 4), (2, 3, 4)),
    "TransformerDecoderLayer": (nn.TransformerDecoderLayer(4, 2, 8), (2, 3, 4)),
    "TransformerEncoderLayer": (nn.TransformerEncoderLayer(4, 2, 8), (2, 3, 4)),
}
NO_FLOATING_INPUT = {"Embedding", "InputEmbedding", "RelativePositionBias"}
CONTAINERS = {"Module", "ModuleDict", "ModuleList", "Sequential"}
NO_PARAMETERS = {"DotProductAttention", "Dropout", "Flatten", "Identity"}
STACKS = {"Decoder", "Encoder"}  # of the layers above


COUNTS = {"AdditiveAttention": 3, "MultiHeadAttention": 2, "TransformerDecoderLayer": 2}


def call(layer: nn.Module, x: Any) -> Any:
    """Call a layer, or its copy for inference, with as many arguments as it needs."""
    names = [kind.__name__ for kind in type(layer).__mro__]
    return layer(*[x] * next((COUNTS[name] for name in names if name in COUNTS), 1))


def test_inputs_contain_every_layer() -> None:
    layers = {
        name
        for name, value in vars(nn).items()
        if inspect.isclass(value)
        and issubclass(value, nn.Module)
        and not issubclass(value, (FunctionModule, nn.Model, nn.Objective))
    }
    others = NO_FLOATING_INPUT | CONTAINERS | NO_PARAMETERS | STACKS
    assert layers - others == set(INPUTS), "add layers to INPUTS or NO_FLOATING_INPUT"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for name in INPUTS
        for dtype in ("float64", "float16", "int64")
        if (name, dtype) != ("PatchEmbedding", "int64")  # which has an error of its own
    ],
)
def test_layer_of_another_dtype_converts_what_requires_no_gradient(name: str, dtype: str) -> None:
    layer, shape = INPUTS[name]
    layer.eval()
    x = (np.random.default_rng(0).standard_normal(shape) * 3).astype(dtype)
    y = call(layer, Tensor(x.astype(np.float32)))
    for given in (x, x.tolist(), Tensor(x), Tensor(x, requires_grad=dtype != "int64").detach()):
        z = call(layer, given)
        assert z.dtype == np.float32 and z.requires_grad == y.requires_grad
        np.testing.assert_array_equal(z.data, y.data)


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_layer_of_another_dtype_refuses_gradients_and_its_fix_is_right(
    name: str, dtype: str
) -> None:
    layer, shape = INPUTS[name]
    x = Tensor(np.random.default_rng(0).standard_normal(shape).astype(dtype), requires_grad=True)
    with mg.no_grad():  # attention keeps its last weights, and a graph cannot be copied
        call(layer.eval(), x.data)
    copied = copy.deepcopy(layer)
    fix = rf"convert x by x.astype\('float32'\) or the layer by .astype\('{dtype}'\)"
    for given in (x, x * 2):
        with pytest.raises(TypeError, match=rf"^\w+\(.*\): x must be float32, .*{dtype}; {fix}$"):
            call(layer, given)
    y = call(layer, x.astype("float32"))
    assert y.dtype == np.float32
    y.sum().backward()
    assert x.grad is not None and x.grad.dtype == dtype
    assert call(copied.astype(dtype), x).dtype == dtype


@pytest.mark.parametrize("create", [mg.ones, mg.zeros, mg.randn, mg.rand])
def test_first_line_of_a_pytorch_user_works(create: Any) -> None:
    assert nn.Linear(3, 4)(create((2, 3))).dtype == np.float32
    assert nn.Linear(3, 4)(mg.tensor([[1.0, 2, 3]])).shape == (1, 4)


def test_layer_in_float64_keeps_large_integers() -> None:
    layer = nn.Linear(1, 1, bias=False, dtype=float)
    layer.weight.data[...] = 1
    for x in (np.array([[2**24 + 1]]), Tensor([[2**53 - 1]]), np.array([[1 + 2**-40]])):
        assert layer(x).item() == x.item()


def test_layer_in_vmap_converts_the_examples() -> None:
    layer, x = nn.Linear(3, 2), np.random.default_rng(0).standard_normal((4, 3))
    np.testing.assert_allclose(mg.vmap(layer)(mg.tensor(x)).data, layer(x).data, 1e-5, 1e-6)


INFERENCE = ["FeedForward", "LayerNorm", "Linear", "MultiHeadAttention", "RMSNorm"]


@pytest.mark.parametrize("name", [*INFERENCE, "ExtendedAttention", "TransformerEncoderLayer"])
@pytest.mark.parametrize("wrap", [np.asarray, mg.tensor])
def test_inference_copy_converts_as_the_layer_does(name: str, wrap: Any) -> None:
    layer, shape = INPUTS[name]
    layer.eval()
    x = wrap(np.random.default_rng(0).standard_normal(shape))
    quick = nn.for_inference(nn.Sequential(layer))[0]
    with pytest.raises(TypeError, match="x must be real numbers, .* got complex128"):
        call(quick, x * 1j)
    y = call(quick, x)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y.data, call(layer, x).data, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(INPUTS.keys() - {"PatchEmbedding"}))  # its own error
@pytest.mark.parametrize("dtype", [complex, object, str])
def test_layer_refuses_what_is_no_real_number(name: str, dtype: Any) -> None:
    layer, shape = INPUTS[name]
    x = np.ones(shape).astype(dtype)
    message = rf"^\w+\(.*\): x must be real numbers, .* got {x.dtype}$"
    for given in (x, Tensor(x)) if dtype is complex else (x,):
        with pytest.raises(TypeError, match=message):
            call(layer, given)


DTYPES = ["float16", "float32", "float64"]


@pytest.mark.parametrize("kind", ["none", "sinusoidal", "learned", "rotary", "relative", "alibi"])
@pytest.mark.parametrize("before", DTYPES)
def test_converted_model_computes_in_its_new_dtype(kind: str, before: str) -> None:
    """Biases and tables that are no parameters follow, also in a model that was called before."""
    model = nn.LanguageModel(nn.DecoderOnlyConfig(9, 8, 2, 1, 8, positions=kind, dtype=before))
    ids = np.array([[1, 2, 3]])
    assert {model(ids).dtype, *(p.dtype for p in model.parameters())} == {np.dtype(before)}
    for after in DTYPES:
        model.astype(after)
        assert model(ids).dtype == model.loss(ids).dtype == nn.for_inference(model)(ids).dtype
        assert model(ids).dtype == after
