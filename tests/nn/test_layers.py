"""Linear layers, norms, feed-forward networks, embeddings and losses equal their definitions."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.environment import max_examples
from support.opinfo import TABLE, cotangents, samples
from support.properties import assert_gradients, normal, perturb, seeds
from support.thresholds import lowered, replaced

import minigrad as mg
import nn
from minigrad import Tensor
from nn.options.activations import FunctionModule
from nn.options.norms import norm_named

batch_shapes = st.lists(st.integers(1, 3), max_size=2).map(tuple)
eps = st.sampled_from((1e-5, 0.1))


def activated(name: str, x: np.ndarray) -> np.ndarray:
    """Return the reference of an activation, with its defaults."""
    function: Any = nn.ACTIVATIONS[name]
    options = getattr(function, "keywords", {})
    function = getattr(function, "func", function)
    parameters = inspect.signature(function).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    return TABLE[function.__name__].reference(x, **defaults | options)


def affine(layer: nn.Linear, x: np.ndarray) -> np.ndarray:
    y = np.einsum("...i,oi->...o", x, layer.weight.data)
    return y if layer.bias is None else y + layer.bias.data


def check(layer: nn.Module, x: np.ndarray, expected: np.ndarray, seed: int) -> None:
    """Compare the result of a layer, and the gradients of x and of all parameters."""
    leaf = Tensor(x, requires_grad=True)
    np.testing.assert_allclose(layer(leaf).data, expected, rtol=1e-9, atol=1e-11)
    assert_gradients(lambda: layer(leaf), [leaf, *layer.parameters()], seed)


@given(batch=batch_shapes, sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)), bias=st.booleans(), seed=seeds)  # fmt: skip
def test_linear_and_its_gradients_equal_the_definition(
    batch: Any, sizes: tuple[int, int], bias: bool, seed: int
) -> None:
    layer, x = nn.Linear(*sizes, bias, dtype=float), normal(seed, *batch, sizes[0])
    check(layer, x, affine(layer, x), seed)


@given(batch=batch_shapes, sizes=st.tuples(*[st.integers(1, 4)] * 3), scale=st.floats(-2, 2), bias=st.booleans(), seed=seeds)  # fmt: skip
def test_linear_with_adapter_and_its_gradients_equal_the_definition(
    batch: Any, sizes: tuple[int, int, int], scale: float, bias: bool, seed: int
) -> None:
    width, height, rank = sizes
    layer = nn.LoRALinear(nn.Linear(width, height, bias, dtype=float), rank, scale)
    perturb(layer, seed)
    x = normal(seed, *batch, width)
    change = np.einsum("...i,ri,or->...o", x, layer.lora_a.data, layer.lora_b.data)
    check(layer, x, affine(layer, x) + scale * change, seed)
    np.testing.assert_allclose(layer.merged()(x).data, layer(x).data, rtol=1e-9, atol=1e-11)


FUNCTION_MODULES = [
    kind
    for kind in vars(nn).values()
    if isinstance(kind, type) and issubclass(kind, FunctionModule) and hasattr(kind, "function")
]


@pytest.mark.parametrize("kind", FUNCTION_MODULES)
@max_examples(10)
@given(data=st.data())
def test_module_of_a_function_has_its_values_and_gradients(kind: Any, data: st.DataObject) -> None:
    sample = data.draw(samples(TABLE[kind.function.__name__]))
    names = {name: "dim" if name == "axis" else name for name in sample.options}
    known = inspect.signature(kind).parameters
    x, *others = sample.operands
    assume(np.isfinite(x).all())
    if kind is nn.BCELoss:
        x = 1 / (1 + np.exp(-x))
    others += [sample.options.pop("target")] if "target" in sample.options else []
    leaves = [Tensor(x, requires_grad=True)]
    operands = [*leaves, *others]
    options = {name: v for name, v in sample.options.items() if names[name] in known}
    layer = kind(**{names[name]: value for name, value in options.items()})
    y, expected = layer(*operands), kind.function(*operands, **options)
    np.testing.assert_array_equal(y.data, expected.data, strict=True)
    (g,) = data.draw(cotangents([y]))
    found, other = (mg.gradients(result, leaves, g)[0].data for result in (y, expected))
    np.testing.assert_array_equal(found, other)


@pytest.mark.parametrize("kind", [nn.Sigmoid, nn.Tanh, nn.LogSigmoid])
@pytest.mark.parametrize("option", ["inplace", "x", "dim"])
def test_activation_without_options_refuses_any(kind: Any, option: str) -> None:
    with pytest.raises(TypeError, match=f"{kind.__name__}: option must be .*, got {option}$"):
        kind(**{option: True})


def test_flatten_merges_the_axes_from_the_first_to_the_last() -> None:
    x = normal(0, 2, 3, 4, 5)
    for options, shape in (
        ({}, (2, 60)), ({"start_dim": 0}, (120,)), ({"end_dim": 2}, (2, 12, 5)), ({"start_dim": 2}, (2, 3, 20)),
        ({"start_dim": 0, "end_dim": 1}, (6, 4, 5)), ({"start_dim": -3, "end_dim": -2}, (2, 12, 5)), ({"end_dim": 1}, x.shape),
    ):  # fmt: skip
        np.testing.assert_array_equal(nn.Flatten(**options)(x).data, x.reshape(shape), strict=True)


@given(data=st.data(), seed=seeds)
def test_patch_embedding_and_its_gradients_equal_the_definition(data: Any, seed: int) -> None:
    n, channels, side, count = (data.draw(st.integers(low, 3)) for low in (0, 1, 1, 1))
    config = nn.EncoderConfig(
        0, 4, 1, 1, 4, num_channels=channels, patch_size=side, image_size=side * count, positions="none", dtype="float64"
    )  # fmt: skip
    layer = perturb(nn.PatchEmbedding(config), seed).eval()
    images = normal(seed, n, channels, side * count, side * count)
    expected = np.zeros((n, 1 + count**2, 4))
    expected[:, 0] = layer.first.data[0]
    for i, j in np.ndindex(count, count):
        patch = images[:, :, i * side : (i + 1) * side, j * side : (j + 1) * side]
        expected[:, 1 + i * count + j] = (
            np.einsum("nchw,dchw->nd", patch, layer.weight.data) + layer.bias.data
        )
    check(layer, images, expected, seed)


@given(
    activation=st.sampled_from(list(nn.ACTIVATIONS)),
    gated=st.booleans(),
    bias=st.booleans(),
    batch=batch_shapes,
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 5)),
    seed=seeds,
)
def test_feed_forward_and_its_gradients_equal_the_definition(
    activation: str, gated: bool, bias: bool, batch: Any, sizes: tuple[int, int], seed: int
) -> None:
    options: Any = {"activation": activation, "gated": gated, "bias": bias}
    layer, x = (
        nn.ExtendedFeedForward(*sizes, **options, dtype=float),
        normal(seed, *batch, sizes[0]),
    )
    h = activated(activation, affine(layer.linear1, x))
    h = h * affine(layer.gate, x) if gated else h
    check(layer, x, affine(layer.linear2, h), seed)


@pytest.mark.parametrize("centred", [True, False], ids=["layer", "rms"])
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=2).map(tuple),
    batch=batch_shapes,
    eps=eps | st.none(),
    weights=st.sampled_from(("none", "weight", "both", "zero_centred")),
    seed=seeds,
)
def test_norm_and_its_gradients_equal_the_definition(
    shape: Any, batch: Any, eps: float | None, weights: str, centred: bool, seed: int
) -> None:
    """A layer norm, or an RMS norm, of one or two trailing axes."""
    layer: Any
    if centred:
        eps = eps or 1e-5
        layer = nn.LayerNorm(shape, eps, weights != "none", weights == "both", dtype=float)
    else:
        layer = nn.RMSNorm(shape, eps, weights != "none", dtype=float, zero_centred=weights == "zero_centred")  # fmt: skip
        eps = np.finfo(float).eps if eps is None else eps
    perturb(layer, seed)
    x = normal([seed, 1], *batch, *shape) + normal([seed, 2])
    expected = np.empty_like(x)
    for i in np.ndindex(*batch):
        row = x[i] - x[i].mean() if centred else x[i]
        expected[i] = row / math.sqrt((row**2).mean() + eps)
        if layer.weight is not None:
            expected[i] *= layer.weight.data + (not centred and weights == "zero_centred")
        if centred and layer.bias is not None:
            expected[i] += layer.bias.data
    check(layer, x, expected, seed)


@given(
    batch=st.tuples(st.integers(2, 4)) | st.tuples(st.integers(1, 3), st.integers(2, 3)),
    width=st.integers(1, 3),
    affine=st.booleans(),
    momentum=st.sampled_from((0.1, 1.0)),
    eps=eps,
    seed=seeds,
)
def test_batch_norm_and_its_gradients_equal_the_definition(
    batch: Any, width: int, affine: bool, momentum: float, eps: float, seed: int
) -> None:
    """In training, then in evaluation with the running values of two batches."""
    layer = nn.BatchNorm1d(width, eps, momentum, affine, dtype=float)
    perturb(layer, seed)
    weight, bias = (layer.weight.data, layer.bias.data) if affine else (1, 0)
    running_mean, running_var = np.zeros(width), np.ones(width)
    for i in range(2):
        x = 2 * normal([seed, i], *batch, width) + 1
        rows = x.reshape(-1, width)
        mean, n = rows.sum(0) / len(rows), len(rows)
        var = ((rows - mean) ** 2).sum(0) / n
        y = layer(x).data
        np.testing.assert_allclose(y, (x - mean) / np.sqrt(var + eps) * weight + bias, rtol=1e-9)
        running_mean = (1 - momentum) * running_mean + momentum * mean
        running_var = (1 - momentum) * running_var + momentum * var * n / (n - 1)
    np.testing.assert_allclose(layer.running_mean, running_mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(layer.running_var, running_var, rtol=1e-9)
    leaves = [leaf := Tensor(x, requires_grad=True), *layer.parameters()]
    assert_gradients(lambda: layer(leaf), leaves, seed)
    layer.eval()
    running_mean, running_var = layer.running_mean.copy(), layer.running_var.copy()
    check(layer, x, (x - running_mean) / np.sqrt(running_var + eps) * weight + bias, seed)
    np.testing.assert_array_equal(layer.running_mean, running_mean)


@given(data=st.data(), thresholds=lowered(), rows=st.integers(1, 5), seed=seeds)
def test_embedding_and_its_gradient_equal_the_definition(
    data: Any, thresholds: Any, rows: int, seed: int
) -> None:
    """Also if the gradients of large tables and of frequent indices are added in their ways."""
    shape = data.draw(st.sampled_from(((), (3,), (12,), (2, 3))))
    ids = data.draw(arrays(int, shape, elements=st.integers(0, rows - 1)), label="ids")
    padding = data.draw(st.none() | st.integers(0, rows - 1), label="padding_idx")
    layer = nn.Embedding(rows, 3, padding, dtype=float)
    assert padding is None or not layer.weight.data[padding].any()
    np.testing.assert_array_equal(layer(ids).data, layer.weight.data[ids])
    g, expected = normal(seed, *ids.shape, 3), np.zeros((rows, 3))
    for i, row in np.ndenumerate(ids):
        if row != padding:
            expected[row] += g[i]
    with replaced(thresholds):
        layer(ids).backward(g)
    np.testing.assert_allclose(layer.weight.grad.data, expected, rtol=1e-12, atol=1e-14)


@given(data=st.data(), seed=seeds)
def test_cross_entropy_loss_and_its_gradients_equal_the_definition(data: Any, seed: int) -> None:
    """Test targets of classes, some of them ignored, or of probabilities; with weights and smoothed labels."""
    shape, classes = data.draw(batch_shapes), data.draw(st.integers(1, 4), label="classes")
    ignore = data.draw(st.sampled_from((-100, None, 0)), label="ignore_index")
    smoothing = data.draw(st.sampled_from((0.0, 0.1, 1.0)), label="label_smoothing")
    reduction = data.draw(st.sampled_from(("mean", "sum", "none")), label="reduction")
    weighted, soft = data.draw(st.tuples(st.booleans(), st.booleans()), label="weight, soft")
    weight = np.abs(normal([seed, 1], classes)) + 0.1 if weighted else None
    choices = st.integers(0, classes - 1) | (st.just(ignore) if ignore else st.nothing())
    target = data.draw(arrays(int, shape, elements=choices), label="target")
    if soft:
        probabilities = np.random.default_rng([seed, 2]).dirichlet(np.ones(classes), shape)
    logits = Tensor(3 * normal(seed, *shape, classes), requires_grad=True)

    losses, divisor = np.zeros(shape), 0.0
    for i in np.ndindex(*shape):
        if not soft and target[i] == ignore:
            continue
        x = logits.data[i]
        log_p = x - math.log(sum(math.exp(v) for v in x))
        q = probabilities[i] if soft else np.eye(classes)[target[i]]
        q = q * (1 - smoothing) + smoothing / classes
        losses[i] = -(q * log_p * (1 if weight is None else weight)).sum()
        divisor += 1 if soft or weight is None else weight[target[i]]
    expected: Any = losses
    if reduction != "none":
        expected = losses.sum() / ((divisor or 1) if reduction == "mean" else 1)
    loss = nn.CrossEntropyLoss(
        weight, ignore_index=ignore, reduction=reduction, label_smoothing=smoothing
    )
    goal = probabilities if soft else target
    np.testing.assert_allclose(loss(logits, goal).data, expected, rtol=1e-9, atol=1e-12)
    assert_gradients(lambda: loss(logits, goal), [logits], seed)


@given(p=st.floats(0.01, 0.99), relu=st.booleans(), shape=batch_shapes, seed=seeds)
def test_dropout_zeroes_or_scales_each_element_and_its_gradient(
    p: float, relu: bool, shape: Any, seed: int
) -> None:
    """All kept elements have one factor, 1 / (1 - k/256) with k/256 nearest to p."""
    function = mg.relu_dropout if relu else mg.dropout
    x = Tensor(normal(seed, *shape, 8) + 0.01, requires_grad=True)
    y = function(x, p=p, generator=np.random.default_rng(seed))
    factor = 256 / (256 - min(max(round(256 * p), 1), 255))
    kept = y.data != 0
    source = np.maximum(x.data, 0) if relu else x.data
    np.testing.assert_allclose(y.data, np.where(kept, source * factor, 0), rtol=1e-12)
    g = normal([seed, 1], *x.shape)
    y.backward(g)
    np.testing.assert_allclose(x.grad.data, np.where(kept, g * factor, 0), rtol=1e-12)
    assert function(x, p=p, training=False).data.tolist() == source.tolist()


@pytest.mark.parametrize("kind", ["layer", "layer_no_bias", "rms", "rms_zero_centred"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_new_norm_of_a_configuration_only_normalizes(kind: str, dtype: Any) -> None:
    """Its weight starts at 1, or at 0 if 1 is added, and its bias, if any, at 0."""
    norm, x = norm_named(kind, 4, 0.25, dtype), normal(0, 3, 4).astype(dtype)
    names = {"layer": ["weight", "bias"]}.get(kind, ["weight"])
    assert {name: a.dtype for name, a in norm.state_dict().items()} == dict.fromkeys(names, dtype)
    centred = x - x.mean(-1, keepdims=True) if kind.startswith("layer") else x
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 0.25)
    np.testing.assert_allclose(norm(x).data, expected, rtol=1e-5, atol=1e-6)
    assert norm_named(kind, 4, 1e-12, dtype).eps == 1e-12
    for name in ("layer_bias", "Layer", ""):
        with pytest.raises(ValueError, match="norm must be one of|norm must be 'layer'"):
            norm_named(name, 4, 0.25, dtype)


def test_norms_without_weights_and_with_several_axes() -> None:
    with pytest.raises(ValueError, match="zero_centred must be False without elementwise_affine"):
        nn.RMSNorm(4, elementwise_affine=False, zero_centred=True)
    for kind in (nn.LayerNorm, nn.RMSNorm):
        x = normal(0, 2, 3, 4)
        norms = (
            kind(12, dtype=float),
            kind((3, 4), dtype=float),
            kind([3, 4], elementwise_affine=False),
        )
        y, *others = (norm(x.reshape(2, *norm.normalized_shape)).data for norm in norms)
        for other in others:
            np.testing.assert_allclose(other.reshape(2, 12), y, rtol=1e-12)
        with pytest.raises(ValueError, match="the last axes of x must have lengths"):
            kind((3, 4))(x.swapaxes(1, 2))
        with pytest.raises(ValueError, match="the last axes of x must have lengths"):
            kind(())(x)
        with pytest.raises(TypeError):
            kind(4.0)
    assert (
        nn.LayerNorm(4, bias=False).bias is None and nn.LayerNorm(4, bias=False).weight is not None
    )
    assert nn.LayerNorm(4, elementwise_affine=False).state_dict() == {}
    with pytest.raises(ValueError, match=r"layer_norm: bias must have shape \(3, 4\), got \(12,\)"):
        nn.functional.layer_norm(normal(0, 2, 3, 4), (3, 4), bias=np.zeros(12))


def test_probabilities_of_dropout_and_widths_of_sinusoids_have_limits() -> None:
    for p in (0.0, float(np.nextafter(1, 0))):
        assert nn.Dropout(p).p == p
    for p in (-1e-9, 1.0, 1.5):
        with pytest.raises(ValueError, match="Dropout: p must be"):
            nn.Dropout(p)
    for width in (1, 3):
        with pytest.raises(ValueError, match=f"d_model must be even, got {width}"):
            nn.sinusoidal_table(4, width)


def test_padding_vector_is_zero_and_not_trained() -> None:
    for index in (0, 2):
        table = nn.Embedding(3, 2, index)
        assert not table.weight.data[index].any() and table.weight.data.any(1).sum() == 2
        table([0, 1, 2]).sum().backward()
        assert table.weight.grad.data.sum(1).tolist() == [
            0.0 if i == index else 2.0 for i in range(3)
        ]
    for index in (-1, 3):
        with pytest.raises(ValueError, match="padding_idx must be from 0 to 2, got"):
            nn.Embedding(3, 2, index)


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("kind", [nn.SinusoidalPositions, nn.LearnedPositions])
def test_positions_end_with_their_table(kind: Any, offset: int) -> None:
    layer, x = kind(5, 4, offset=offset, dtype=float), np.zeros((2, 2, 4))
    rows = layer.weight.data if kind is nn.LearnedPositions else layer.weight
    assert len(rows) == 5 + offset
    for positions in (0, 3, np.int8(3), [0, 4], np.array([[4, 0], [1, 1]], np.uint8)):
        at = np.array(positions) + ([0, 1] if np.ndim(positions) == 0 else 0)
        expected = np.broadcast_to(rows[offset + at], x.shape)
        np.testing.assert_array_equal(layer(x, positions).data, expected)
    for positions, message in (
        (4, "must have at most 5 positions, got 6"), ([0, 5], "must have at most 5 positions, got 6"),
        (-1, "positions must be at least 0, got -1"), ([1, -1], "positions must be at least 0, got -1"),
        ([0.0, 1.0], "positions must be integers of shape"), ([1], "positions must be integers of shape"),
        ([True, False], "positions must be integers of shape"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            layer(x, positions)
    with pytest.raises(TypeError):
        layer(x, 1.0)


def test_images_of_other_sizes_and_dtypes_are_refused() -> None:
    config = nn.EncoderConfig(
        d_model=4, num_heads=2, image_size=4, patch_size=2, num_channels=3, positions="none"
    )
    layer = nn.PatchEmbedding(config)
    assert layer(np.zeros((0, 3, 4, 4))).shape == (0, 5, 4)
    assert layer(np.zeros((2, 3, 4, 4), np.float16)).dtype == np.float32
    for shape in (
        (2, 3, 4, 6),
        (2, 3, 6, 4),
        (2, 3, 6, 6),
        (2, 1, 4, 4),
        (3, 4, 4),
        (1, 2, 3, 4, 4),
    ):
        with pytest.raises(ValueError, match=r"images must be floats \(N, 3, 4, 4\), got float64"):
            layer(np.zeros(shape))
    with pytest.raises(ValueError, match="images must be floats .*, got uint8"):
        layer(np.zeros((2, 3, 4, 4), np.uint8))


OPTIONS: dict[str, Any] = {
    "reduction": "sum", "beta": 2.0, "delta": 0.5, "weight": np.array([0.5, 2.0, 1.0]), "pos_weight": np.array([3.0, 2.0, 1.0]),
    "ignore_index": 1, "label_smoothing": 0.5, "log_target": True,
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in dir(nn) if name.endswith("Loss") and name != "ModelLoss"])  # fmt: skip
def test_option_of_a_loss_is_that_of_its_function(name: str) -> None:
    kind, x = getattr(nn, name), np.array([[0.25, 0.5, 0.75], [0.5, 0.125, 0.25]])
    of_classes = name in ("CrossEntropyLoss", "NLLLoss")
    target = np.array([2, 1]) if of_classes else np.array([[0.5, 1.0, 3.5], [0.0, 0.5, 1.0]])
    target = np.minimum(target, 1.0) if name.startswith("BCE") else target
    for option in inspect.signature(kind).parameters:
        layer, plain = kind(**{option: OPTIONS[option]}), kind()
        found, expected = layer(x, target), kind.function(x, target, **{option: OPTIONS[option]})
        np.testing.assert_array_equal(found.data, expected.data)
        assert not np.array_equal(found.data, plain(x, target).data), option
        assert list(layer.state_dict()) == [option] * option.endswith("weight")
        assert option not in layer.extra_repr() or not option.endswith("weight")
    for reduction in ("Mean", "", "batchmean")[: 2 if name == "KLDivLoss" else 3]:
        with pytest.raises(ValueError, match=f"{name}: reduction must be "):
            kind(reduction=reduction)
