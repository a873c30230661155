"""Layers compute in the dtype of their parameters: arrays are converted, other tensors refused."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import nn
from minigrad import Tensor
from nn.layers.linear import FunctionModule

PATCHES = nn.PatchEmbedding(
    nn.EncoderConfig(d_model=4, num_heads=2, image_size=4, patch_size=2, num_channels=3)
)
INPUTS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "AdditiveAttention": (nn.AdditiveAttention(4, 4, 5), (2, 3, 4)),
    "BatchNorm1d": (nn.BatchNorm1d(4), (3, 4)),
    "FeedForward": (nn.FeedForward(4, 6), (2, 3, 4)),
    "LayerNorm": (nn.LayerNorm(4), (3, 4)),
    "LearnedPositions": (nn.LearnedPositions(5, 4), (2, 3, 4)),
    "Linear": (nn.Linear(4, 2), (3, 4)),
    "LoRALinear": (nn.LoRALinear(nn.Linear(4, 2), rank=2, scale=1.0), (3, 4)),
    "MultiHeadAttention": (nn.MultiHeadAttention(4, 2), (2, 3, 4)),
    "MultiHeadCrossAttention": (nn.MultiHeadCrossAttention(4, 2), (2, 3, 4)),
    "MultiHeadSelfAttention": (nn.MultiHeadSelfAttention(4, 2), (2, 3, 4)),
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


def call(layer: nn.Module, x: Any) -> Any:
    """Call a layer with as many arguments as it needs."""
    counts = {"AdditiveAttention": 3, "MultiHeadCrossAttention": 2, "TransformerDecoderLayer": 2}
    return layer(*[x] * counts.get(type(layer).__name__, 1))


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


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_layer_of_another_dtype_converts_arrays_and_refuses_tensors(name: str, dtype: str) -> None:
    layer, shape = INPUTS[name]
    layer.eval()
    x = (np.random.default_rng(0).standard_normal(shape) * 3).astype(dtype)
    if name == "PatchEmbedding" and dtype == "int64":
        pytest.skip("refuses integer images by its own error")
    y = call(layer, x)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y.data, call(layer, Tensor(x.astype(np.float32))).data)
    fix = r"convert x by x.astype\('float32'\)" + "( or the layer by .*)?" * (dtype == "float64")
    with pytest.raises(TypeError, match=rf"^\w+\(.*\): x must be float32, .*, got {dtype}; {fix}$"):
        call(layer, Tensor(x))


def test_layer_refuses_arrays_that_would_lose_their_imaginary_part() -> None:
    with pytest.raises(TypeError, match="complex128.*float32"):
        nn.Linear(3, 2)(np.ones((4, 3), complex))
