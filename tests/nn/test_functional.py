"""Functions of `nn.functional`, `nn.utils` and `nn.init` beside their definitions and defaults."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import normal, seeds

import minigrad as mg
import nn
from minigrad import Tensor
from nn import functional as F
from nn import init, utils

sizes = st.integers(1, 3)


@given(n=sizes, d=sizes, seed=seeds, eps=st.none() | st.just(0.3))
def test_norms_equal_their_definitions(n: int, d: int, seed: int, eps: float | None) -> None:
    """Values near eps show its default."""
    x, weight, bias = (
        1e-3 * normal([seed, 0], 2, n, d),
        normal([seed, 1], n, d),
        normal([seed, 2], n, d),
    )
    options = {} if eps is None else {"eps": eps}
    centred = x - x.mean((1, 2), keepdims=True)
    variance = (centred**2).mean((1, 2), keepdims=True)
    expected = centred / np.sqrt(variance + (1e-5 if eps is None else eps))
    np.testing.assert_allclose(F.layer_norm(x, (n, d), **options).data, expected, 1e-7, 1e-12)
    y = F.layer_norm(x, (n, d), weight, bias, **options).data
    np.testing.assert_allclose(y, expected * weight + bias, 1e-7, 1e-12)
    square = (x**2).mean((1, 2), keepdims=True)
    root = np.sqrt(square + (np.finfo(float).eps if eps is None else eps))
    np.testing.assert_allclose(
        F.rms_norm(x, (n, d), weight, **options).data, x / root * weight, 1e-7
    )


@given(
    seed=seeds,
    dim=st.integers(-3, 2),
    p=st.sampled_from([1.0, 2.0, 3.0, math.inf]),
    small=st.booleans(),
)
def test_lengths_and_cosines_equal_their_definitions(
    seed: int, dim: int, p: float, small: bool
) -> None:
    factor = 1e-9 if small else 1.0
    x, y = factor * normal([seed, 0], 2, 3, 2), normal([seed, 1], 2, 1, 2)

    def length(x: np.ndarray, eps: float, p: float = 2.0) -> Any:
        return np.maximum(np.linalg.norm(x, p, dim, keepdims=True), eps)

    for eps in (1e-12, 1e-3):
        options: Any = {} if eps == 1e-12 else {"eps": eps}
        found = F.normalize(x, p, dim, **options).data
        np.testing.assert_allclose(found, x / length(x, eps, p), 1e-7)
    np.testing.assert_array_equal(F.normalize(x).data, F.normalize(x, 2.0, 1, 1e-12).data)
    for eps in (1e-8, 1e-3):
        options = {} if eps == 1e-8 else {"eps": eps}
        z = np.broadcast_to(
            y, x.shape
        )  # an axis of length 1 is repeated before lengths are computed
        expected = (x / length(x, eps) * z / length(z, eps)).sum(dim)
        np.testing.assert_allclose(
            F.cosine_similarity(x, y, dim, **options).data, expected, 1e-7, 1e-12
        )
    np.testing.assert_array_equal(
        F.cosine_similarity(x, y).data, F.cosine_similarity(x, y, 1, 1e-8).data
    )


@given(
    ids=st.lists(st.integers(0, 3), min_size=1), padding=st.none() | st.integers(0, 3), seed=seeds
)
def test_embedding_gives_no_gradient_to_its_padding(
    ids: list[int], padding: int | None, seed: int
) -> None:
    weight = Tensor(normal(seed, 4, 2), requires_grad=True)
    y = F.embedding(ids, weight, padding)
    np.testing.assert_array_equal(y.data, weight.data[ids])
    y.sum().backward()
    counts = [0 if i == padding else ids.count(i) for i in range(4)]
    np.testing.assert_array_equal(weight.grad.data, np.repeat(counts, 2).reshape(4, 2))


@given(shapes=st.lists(st.lists(sizes, max_size=2).map(tuple), min_size=1, max_size=4), seed=seeds)
def test_vector_of_parameters_has_all_elements_and_is_written_back(
    shapes: list[tuple[int, ...]], seed: int
) -> None:
    parameters = [nn.Parameter(normal([seed, i], *shape)) for i, shape in enumerate(shapes)]
    vector = utils.parameters_to_vector(parameters)
    expected = np.concatenate([p.data.ravel() for p in parameters])
    np.testing.assert_array_equal(vector.data, expected)
    (vector * np.arange(len(expected))).sum().backward()
    grads = np.concatenate([p.grad.data.ravel() for p in parameters])
    np.testing.assert_array_equal(grads, np.arange(len(expected)))
    utils.vector_to_parameters(-expected, parameters)
    assert [p.shape for p in parameters] == shapes
    np.testing.assert_array_equal(utils.parameters_to_vector(parameters).data, -expected)
    for wrong in (expected[:-1], [*expected, 0.0]):
        with pytest.raises(ValueError, match="vec must have shape"):
            utils.vector_to_parameters(wrong, parameters)
    utils.clip_grad_value_(parameters, 1.5)
    clipped = np.concatenate([p.grad.data.ravel() for p in parameters])
    np.testing.assert_array_equal(clipped, np.minimum(np.arange(len(expected)), 1.5))


@given(
    lengths=st.lists(st.integers(0, 3), min_size=1, max_size=3), first=st.booleans(),
    value=st.sampled_from([None, 7.0]), side=st.sampled_from([None, "left"]),
    dtype=st.sampled_from(["float32", "float64", "int32"]), seed=seeds,
)  # fmt: skip
def test_padded_sequences_have_padding_at_their_side(
    lengths: list[int], first: bool, value: float | None, side: str | None, dtype: str, seed: int
) -> None:
    rows = [(9 * normal([seed, i], n, 2)).astype(dtype) for i, n in enumerate(lengths)]
    options = {"padding_value": value, "padding_side": side}
    with pytest.raises(ValueError, match="padding_side must be 'right' or 'left', got 'top'"):
        utils.rnn.pad_sequence(rows, first, padding_side="top")
    y = utils.rnn.pad_sequence(rows, first, **{k: x for k, x in options.items() if x is not None})
    assert y.dtype == dtype
    for i, row in enumerate(rows):
        padding = np.full((max(lengths) - len(row), 2), value or 0.0)
        expected = np.concatenate([padding, row] if side else [row, padding])
        np.testing.assert_array_equal(y.data[i] if first else y.data[:, i], expected)


@given(shape=st.tuples(sizes, sizes, sizes), gain=st.sampled_from([None, 3.0]), seed=seeds)
def test_orthogonal_rows_or_columns_have_the_length_of_the_gain(
    shape: tuple[int, int, int], gain: float | None, seed: int
) -> None:
    options: Any = {} if gain is None else {"gain": gain}
    x = Tensor(np.zeros(shape))
    x = init.orthogonal_(x, **options, generator=np.random.default_rng(seed)).data.reshape(
        shape[0], -1
    )
    product = x @ x.T if len(x) <= x.shape[1] else x.T @ x
    np.testing.assert_allclose(product, (gain or 1) ** 2 * np.eye(len(product)), atol=1e-12)


@given(
    a=st.none() | st.just(0.5),
    b=st.none() | st.just(0.9),
    mean=st.sampled_from([None, 0.7]),
    seed=seeds,
)
def test_truncated_values_lie_between_their_limits(a: Any, b: Any, mean: Any, seed: int) -> None:
    options = {name: x for name, x in (("a", a), ("b", b), ("mean", mean)) if x is not None}
    x = init.trunc_normal_(mg.zeros(4000), **options, generator=np.random.default_rng(seed)).data
    low, high = -2 if a is None else a, 2 if b is None else b
    assert low <= x.min() and x.max() <= high
    assert x.max() - x.min() > 0.97 * (high - low) - 0.3 and (a is not None or x.min() < low + 0.6)


@given(mean=st.sampled_from([-2.0, 0.0, 5.0]), std=st.sampled_from([0.01, 1.0, 3.0]), distance=st.sampled_from([-9.0, -4.1, -3.0, 3.0, 4.1]))  # fmt: skip
def test_truncated_values_need_an_interval_within_four_deviations(
    mean: float, std: float, distance: float
) -> None:
    low, high = sorted([mean + distance * std, mean + (distance + np.sign(distance)) * std])
    if abs(distance) > 4:
        with pytest.raises(ValueError, match=r"\[a, b\] must be within 4 std of the mean"):
            init.trunc_normal_(mg.zeros(2), mean, std, low, high)
    else:
        x = init.trunc_normal_(mg.zeros(2), mean, std, low, high).data
        assert low <= x.min() <= x.max() <= high


def test_truncated_values_have_the_moments_of_their_arguments() -> None:
    x = init.trunc_normal_(mg.zeros(4000), 0.5, 0.1, generator=np.random.default_rng(0)).data
    assert abs(x.mean() - 0.5) < 0.01 and abs(x.std() - 0.1) < 0.01
    narrow = init.trunc_normal_(mg.zeros(4000), a=-0.5, b=0.1).data
    assert len(np.unique(narrow)) == 4000
    for std in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="trunc_normal_"):
            init.trunc_normal_(mg.zeros(2), 0.0, std)
    for a, b in ((1.0, 1.0), (2.0, 1.0), (math.nan, 1.0)):
        with pytest.raises(ValueError, match="trunc_normal_: a must be less than b"):
            init.trunc_normal_(mg.zeros(2), a=a, b=b)


@pytest.mark.parametrize("shape", [(2, 3), (4, 3, 3), (1, 2, 2, 3, 3)])
def test_masks_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    q = normal(0, 2, 3, 4)
    for mask in (np.ones(shape, bool), np.zeros(shape)):
        with pytest.raises(ValueError, match="attn_mask must broadcast to the scores"):
            F.scaled_dot_product_attention(q, q, q, mask)


@given(n=st.integers(1, 4), s=st.integers(1, 4), axes=st.integers(0, 3), seed=seeds, scale=st.none() | st.just(0.3))  # fmt: skip
def test_causal_attention_begins_at_the_first_key(
    n: int, s: int, axes: int, seed: int, scale: float | None
) -> None:
    """As in PyTorch, query i sees the keys up to i, also if the lengths differ."""
    leading = (2, 1, 2)[:axes]
    q, k, v = (normal([seed, i], *leading, m, 4) for i, m in enumerate((n, s, s)))
    scores = q @ k.swapaxes(-1, -2) * (0.5 if scale is None else scale)
    weights = np.exp(np.where(np.tri(n, s), scores, -np.inf))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    np.testing.assert_allclose(y.data, weights / weights.sum(-1, keepdims=True) @ v, 1e-9, 1e-12)
    masked = F.scaled_dot_product_attention(q, k, v, Tensor(np.tri(n, s, dtype=bool)), scale=scale)
    np.testing.assert_array_equal(masked.data, y.data)
    with pytest.raises(ValueError, match="attn_mask must be None with is_causal"):
        F.scaled_dot_product_attention(q, k, v, np.tri(n, s, dtype=bool), is_causal=True)


def test_additive_mask_of_minus_infinity_hides_all_keys_of_a_query() -> None:
    q, mask = normal(0, 2, 3, 4), np.zeros((3, 3))
    mask[0], mask[1], mask[2, 0] = -1e5, -np.inf, -np.inf
    leaf = Tensor(mask, requires_grad=True)
    for hidden in (mask, leaf):
        y = F.scaled_dot_product_attention(q, q, q, hidden)
        assert not y.data[:, 1].any() and y.data[:, [0, 2]].all()
        expected = F.scaled_dot_product_attention(q, q, q, np.isfinite(mask))
        np.testing.assert_allclose(y.data, expected.data, rtol=1e-9)
    y.sum().backward()
    assert np.isfinite(leaf.grad.data).all() and not leaf.grad.data[1].any()


def test_clipped_gradients_are_within_the_value() -> None:
    p, unused = nn.Parameter(np.zeros(3)), nn.Parameter(np.zeros(2))
    number = nn.Parameter(np.array(0.0))
    for value, expected in ((2.0, [-2.0, 0.5, 2.0]), (0.0, [0.0, 0.0, 0.0])):
        p.grad, number.grad = np.array([-3.0, 0.5, 4.0]), np.array(9.0)
        utils.clip_grad_value_(p, value)
        assert p.grad.tolist() == expected
        utils.clip_grad_value_(iter([unused, number]), value)
        assert unused.grad is None and number.grad.shape == () and number.grad.item() == value
    for wrong in (-1.0, math.nan):
        with pytest.raises(ValueError, match="clip_value must be at least 0"):
            utils.clip_grad_value_([p], wrong)


def test_vector_is_written_to_parameters_of_an_iterator() -> None:
    layer = nn.Linear(2, 1)
    utils.vector_to_parameters(Tensor([1.0, 2.0, 3.0]), layer.parameters())
    assert layer.weight.tolist() == [[1.0, 2.0]] and layer.bias.tolist() == [3.0]
    with pytest.raises(ValueError, match=r"orthogonal_: tensor must have at least two axes"):
        init.orthogonal_(layer.bias)


@pytest.mark.parametrize("fill", [init.kaiming_uniform_, init.kaiming_normal_])
def test_kaiming_rules_refuse_unknown_names(fill: Any) -> None:
    with pytest.raises(ValueError, match="mode must be .*got 'fan_avg'"):
        fill(mg.zeros(2, 2), mode="fan_avg")
    with pytest.raises(ValueError, match="nonlinearity must be .*got 'tanh'"):
        fill(mg.zeros(2, 2), nonlinearity="tanh")


def test_orthogonal_values_have_both_signs_on_the_diagonal() -> None:
    """Without the signs of the diagonal of R, all first elements would be negative."""
    rng = np.random.default_rng(0)
    first = [init.orthogonal_(mg.zeros(2, 2), generator=rng).data[0, 0] for _ in range(60)]
    assert 15 < np.sum(np.array(first) > 0) < 45


def test_parameters_written_from_a_vector_are_marked_as_changed() -> None:
    p = nn.Parameter(np.full(2, 3.0))
    y = (p * p).sum()
    utils.vector_to_parameters(np.ones(2), [p])
    with pytest.raises(mg.GradientError, match="changed"):
        y.backward()


@pytest.mark.parametrize("name", init.__all__)
def test_rules_of_initial_values_fill_in_place_unless_skipped(name: str) -> None:
    """A rule keeps array and dtype, uses the generator it is given, and refuses integers."""
    fill, options, is_drawn = getattr(init, name), {}, name not in ("constant_", "ones_", "zeros_")
    if name == "constant_":
        options["val"] = 2.5
    for dtype in (np.float32, np.float64):
        p, rng = nn.Parameter(np.full((4, 3), 7.0, dtype)), np.random.default_rng(0)
        array, y = p.data, (p * p).sum()
        if is_drawn:
            options["generator"] = rng
            with init.skipped():
                assert fill(p, **options) is p
            assert (p.data == 7).all() and rng.random() == np.random.default_rng(0).random()
            y.backward()  # nothing has changed
            y = (p * p).sum()
            mg.manual_seed(1)
        assert fill(p, **options) is p and p.data is array and not (array == 7).any()
        with pytest.raises(mg.GradientError, match="changed"):
            y.backward()
        values = array.copy()
        if is_drawn:
            mg.manual_seed(2)
            options["generator"] = np.random.default_rng(0)
            options["generator"].random()
            assert (fill(p, **options).data == values).all()
            fill(p, **{**options, "generator": None})
            mg.manual_seed(2)
            assert (fill(nn.Parameter(values)).data == p.data).all()
            with pytest.raises(TypeError, match="tensor must have a floating dtype to be drawn"):
                fill(Tensor(np.ones((2, 2), bool if dtype == np.float32 else int)))
