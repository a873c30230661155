"""Attention and its masks: properties, and the texts of errors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.environment import max_examples
from support.properties import assert_gradients, normal, perturb, seeds

import minigrad as mg
import nn
from minigrad import Tensor
from minigrad.ops.attention import attention_weights
from nn.attention import hide_later
from nn.options.extended_layers import within_window

windows = st.none() | st.integers(1, 6)


def may_see(i: int, j: int, l_q: int, l_kv: int, window: int | None) -> bool:
    """Return whether causal query i, of the last l_q positions, attends to key j."""
    position = l_kv - l_q + i
    return position - (window or l_kv) < j <= position


@st.composite
def masks(draw: Any, n: int, h: int, l_q: int, l_kv: int) -> np.ndarray | None:
    """Draw a mask of scores (n, h, l_q, l_kv): of any shape that broadcasts, or of padding."""
    kind = draw(st.sampled_from(["none", "lengths", "rows", "scores", "any"]))
    if kind == "none":
        return None
    if kind == "lengths":
        lengths = draw(st.lists(st.integers(0, l_kv), min_size=n, max_size=n))
        return (np.arange(l_kv) < np.array(lengths)[:, None])[:, None, None]
    if kind == "rows":  # rows that attend to all keys, and rows that attend to none
        rows = draw(arrays(bool, (n, h, l_q, 1)))
        return rows.repeat(l_kv, axis=-1)
    if kind == "scores":
        return draw(arrays(bool, (l_q, l_kv)))
    shape = [draw(st.sampled_from((1, length))) for length in (n, h, l_q, l_kv)]
    return draw(arrays(bool, tuple(shape)))


def attend(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    allowed: np.ndarray,
    bias: Any,
    scale: float,
    cap: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute attention by its definition, one query after the other: results and weights."""
    group = q.shape[1] // k.shape[1]
    y = np.zeros((*q.shape[:3], v.shape[-1]))
    weights = np.zeros((*q.shape[:3], k.shape[2]))
    bias = np.broadcast_to(bias, weights.shape)
    for b, head, i in np.ndindex(q.shape[:3]):
        keys = np.flatnonzero(allowed[b, head, i])
        products = [q[b, head, i] @ k[b, head // group, j] * scale for j in keys]
        capped = products if cap is None else [cap * np.tanh(x / cap) for x in products]
        scores = [x + bias[b, head, i, j] for x, j in zip(capped, keys)]
        exponentials = np.exp(np.array(scores) - max(scores, default=0))
        for j, e in zip(keys, exponentials):
            weights[b, head, i, j] = e / exponentials.sum()
            y[b, head, i] += weights[b, head, i, j] * v[b, head // group, j]
    return y, weights


# -- masks -----------------------------------------------------------------------------------------


@given(l_q=st.integers(0, 6), start=st.integers(0, 6))
def test_causal_mask_is_true_where_a_query_may_see_a_key(l_q: int, start: int) -> None:
    mask = nn.causal_mask(l_q, start)
    assert mask.dtype == bool and mask.shape == (l_q, start + l_q)
    for (i, j), seen in np.ndenumerate(mask):
        assert seen == may_see(i, j, l_q, start + l_q, None), (i, j)
    np.testing.assert_array_equal(nn.causal_mask(l_q), nn.causal_mask(l_q, 0))


@given(st.data())
def test_mask_of_a_stack_is_padding_and_causality_and_the_window(data: Any) -> None:
    n, l_q, past = (data.draw(st.integers(*pair)) for pair in ((1, 2), (1, 4), (0, 4)))
    l_kv, window = past + l_q, data.draw(windows)
    real = data.draw(st.none() | arrays(bool, (n, 1, 1, l_kv)))
    cache = nn.AttentionCache()
    if past:
        cache.append(*np.zeros((2, n, 1, past, 1)))
    made = within_window(hide_later(real, l_q, cache), l_q, l_kv, window)
    if l_q == 1 and real is None:
        assert (made is None) == (window is None or window >= l_kv)
    seen = np.broadcast_to(True if made is None else made, (n, 1, l_q, l_kv))
    for (b, _, i, j), found in np.ndenumerate(seen):
        expected = may_see(i, j, l_q, l_kv, window) and (real is None or real[b, 0, 0, j])
        assert found == expected, (b, i, j)


def test_window_hides_keys_before_and_after_a_query() -> None:
    for l_q, past, window in itertools.product(range(1, 5), range(3), range(1, 7)):
        mask = within_window(None, l_q, past + l_q, window)
        for i, j in np.ndindex(l_q, past + l_q):
            assert (mask is None or mask[i, j]) == (abs(past + i - j) < window), (l_q, past, window)


@given(st.data())
def test_valid_lens_mask_is_true_for_the_first_keys(data: Any) -> None:
    n, l_q, l_kv = (data.draw(st.integers(low, 4)) for low in (0, 0, 1))
    lens = data.draw(
        arrays(int, st.sampled_from([(n,), (n, l_q)]), elements=st.integers(0, l_kv), fill=st.nothing())
    )  # fmt: skip
    mask = np.broadcast_to(nn.valid_lens_mask(lens, (n, l_q, l_kv)), (n, l_q, l_kv))
    for (b, i, j), seen in np.ndenumerate(mask):
        assert seen == (j < (lens[b] if lens.ndim == 1 else lens[b, i]))


def test_valid_lens_mask_refuses_lengths_that_are_no_numbers_of_keys() -> None:
    for pair in itertools.product(range(-2, 6), repeat=2):
        if min(pair) >= 0 and max(pair) <= 3:
            assert nn.valid_lens_mask(pair, (2, 2, 3)).sum() == sum(pair)
            continue
        message = f"valid_lens must be from 0 to 3, got {min(pair)} to {max(pair)}$"
        with pytest.raises(ValueError, match=message):
            nn.valid_lens_mask(pair, (2, 2, 3))


@pytest.mark.parametrize(
    "lens", [np.ones(2), np.ones(2, bool), np.ones(3, int), np.ones((2, 4), int)]
)
def test_valid_lens_mask_refuses_floats_and_other_shapes(lens: np.ndarray) -> None:
    got = re.escape(f"{lens.dtype} {lens.shape}")
    with pytest.raises(ValueError, match=rf"integers of shape \(2,\) or \(2, 3\), got {got}$"):
        nn.valid_lens_mask(lens, (2, 3, 4))


@given(arrays(int, st.tuples(st.integers(0, 3), st.integers(0, 4)), elements=st.integers(0, 3)))
def test_padding_mask_is_true_for_other_ids(ids: np.ndarray) -> None:
    for pad_id in (0, 3):
        expected = [[token != pad_id for token in row] for row in ids.tolist()]
        np.testing.assert_array_equal(
            nn.padding_mask_of(ids, pad_id), np.reshape(expected, ids.shape)
        )
    np.testing.assert_array_equal(nn.padding_mask_of(ids), ids != 0)


@given(data=st.data(), seed=seeds)
def test_attention_weights_without_options_divide_by_the_root_of_the_width(
    data: Any, seed: int
) -> None:
    n, h, l_q, l_kv, d = (data.draw(st.integers(1, 3)) for _ in range(5))
    q, k = normal(seed, n, h, l_q, d), normal(seed + 1, n, h, l_kv, d)
    _, expected = attend(q, k, k, np.ones((n, h, l_q, l_kv), bool), 0.0, d**-0.5)
    np.testing.assert_allclose(attention_weights(q, k).data, expected, rtol=1e-9, atol=1e-12)


@given(st.lists(st.integers(1, 2), min_size=1, max_size=5))
def test_heads_are_split_and_merged_of_arrays_with_three_and_four_axes(shape: list[int]) -> None:
    x = np.ones(shape)
    for function, axes in ((mg.split_heads, 3), (mg.merge_heads, 4)):
        options = (1,) if axes == 3 else ()
        if len(shape) == axes:
            assert function(x, *options).size == x.size
            continue
        with pytest.raises(ValueError, match=r"x must have shape \(N, "):
            function(x, *options)


# -- layers of attention -------------------------------------------------------------------------------


class DistanceBias:
    """A trained bias for each head and distance from query to key."""

    def __init__(self, num_heads: int, seed: int) -> None:
        self.table = Tensor(normal([seed, 2], num_heads, 41), requires_grad=True)

    def __call__(self, l_q: int, l_kv: int) -> Tensor:
        positions = np.arange(l_kv)
        return self.table[:, 20 + positions - positions[l_kv - l_q :, None]]


@st.composite
def layers(draw: Any, **fixed: Any) -> dict[str, Any]:
    """Draw the options of an attention of at most 4 heads."""
    kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    options: dict[str, Any] = {
        "d_model": 4,
        "num_heads": kv_heads * group,
        "num_kv_heads": draw(st.sampled_from((kv_heads, None) if group == 1 else (kv_heads,))),
        "head_dim": draw(st.sampled_from((None, 2, 4))),
        "bias": draw(
            st.booleans()
            | st.fixed_dictionaries(dict.fromkeys(("q", "k", "v", "out"), st.booleans()))
        ),
        "scale": draw(st.sampled_from((None, 0.3, 2.0))),
        "qk_norm": draw(st.sampled_from((None, 1e-6, 0.1))),
        "zero_centred": draw(st.booleans()),
        "softcap": draw(st.sampled_from((None, 0.7))),
        "window": draw(windows),
    }
    if draw(st.booleans(), label="bias by default"):
        del options["bias"]
    return options | fixed


def heads_by_definition(
    attention: nn.MultiHeadAttention, name: str, x: np.ndarray, positions: Any
) -> np.ndarray:
    """Return the projected, normalized and rotated heads (N, h, L, d_k) of x."""
    linear, d = getattr(attention, f"{name}_proj"), attention.d_k
    y = x @ linear.weight.data.T + (0 if linear.bias is None else linear.bias.data)
    y = np.moveaxis(y.reshape(*x.shape[:2], -1, d), 2, 1)
    norm = getattr(attention, f"{name}_norm", None)
    if norm is not None:
        y = y / np.sqrt((y**2).mean(-1, keepdims=True) + norm.eps)
        y = y * (norm.weight.data + norm.zero_centred)
    if positions is None:
        return y
    rotated = y.copy()
    for i in range(d // 2):
        pair = (y[..., i] + 1j * y[..., i + d // 2]) * np.exp(
            1j * positions * 100.0 ** (-2 * i / d)
        )
        rotated[..., i], rotated[..., i + d // 2] = pair.real, pair.imag
    return rotated


@given(data=st.data(), seed=seeds)
def test_attention_and_its_gradients_equal_the_definition(data: Any, seed: int) -> None:
    options = data.draw(layers(), label="options")
    n, l_q, past = (data.draw(st.integers(*pair)) for pair in ((1, 2), (1, 4), (0, 4)))
    l_kv = l_q + past
    sizes = {name: data.draw(st.sampled_from((None, 3))) for name in ("query_size", "key_size", "value_size")}  # fmt: skip
    shape = n, options["num_heads"], l_q, l_kv
    mask = data.draw(masks(*shape), label="mask")
    bias = DistanceBias(shape[1], seed) if data.draw(st.booleans(), label="bias") else None
    attention = nn.ExtendedAttention(**options, **sizes, position_bias=bias, dtype=float)
    wanted = options.get("bias", True)
    for name in ("q", "k", "v", "out"):
        has_bias = getattr(attention, f"{name}_proj").bias is not None
        assert has_bias == (wanted if isinstance(wanted, bool) else wanted[name])
    perturb(attention, seed)
    lengths = zip((l_q, l_kv, l_kv), sizes.values())
    inputs = [normal([seed, i], n, length, size or 4) for i, (length, size) in enumerate(lengths)]

    q, k, v = (heads_by_definition(attention, name, x, None) for name, x in zip("qkv", inputs))
    allowed = np.array(np.broadcast_to(True if mask is None else mask, shape))
    for b, head, i, j in np.ndindex(shape):
        allowed[b, head, i, j] &= abs(past + i - j) < (options["window"] or l_kv)
    added = 0.0 if bias is None else bias(l_q, l_kv).data
    scale = attention.d_k**-0.5 if options["scale"] is None else options["scale"]
    y, weights = attend(q, k, v, allowed, added, scale, options["softcap"])
    out = attention.out_proj
    expected = np.moveaxis(y, 1, 2).reshape(n, l_q, -1) @ out.weight.data.T
    expected += 0 if out.bias is None else out.bias.data

    leaves = [Tensor(x, requires_grad=True) for x in inputs]
    with nn.record_attention(attention) as recorded:
        found = attention(*leaves[:2], mask, value=leaves[2]).data
    np.testing.assert_allclose(recorded[""][0], weights, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    leaves += [*attention.parameters(), *([] if bias is None else [bias.table])]
    assert_gradients(lambda: attention(*leaves[:2], mask, value=leaves[2]), leaves, seed)


def scale_by_position(heads: Any, positions: int) -> Any:
    """Multiply heads by 1 + position, so that scores depend on more than distances."""
    return heads * (positions + np.arange(1.0, 1 + heads.shape[2]))[:, None]


@given(data=st.data(), seed=seeds)
def test_attention_with_rotary_positions_and_cache_equals_the_definition(
    data: Any, seed: int
) -> None:
    """Without a cache, in one call, in chunks, and token by token; padding is masked on the left."""
    options = data.draw(layers(head_dim=4), label="options")
    rotations = scale_by_position, nn.RotaryPositions(4, base=100.0), None
    rotary = data.draw(st.sampled_from(rotations), label="rotary")
    biased = data.draw(st.booleans(), label="bias")
    attention = nn.ExtendedAttention(
        **options,
        rotary=rotary,
        position_bias=DistanceBias(options["num_heads"], seed) if biased else None,
        dtype=float,
    )
    perturb(attention, seed)
    n, length = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 20)), label="n, length")
    padding = data.draw(st.lists(st.integers(0, length), min_size=n, max_size=n), label="padding")
    mask = (np.arange(length) >= np.array(padding)[:, None])[:, None, None]
    mask = data.draw(st.sampled_from((None, mask)))
    x = normal(seed, n, length, 4)

    rotated = np.arange(length) if isinstance(rotary, nn.RotaryPositions) else None
    q, k, v = (
        heads_by_definition(attention, name, x, None if name == "v" else rotated) for name in "qkv"
    )
    if rotary is scale_by_position:
        q, k = scale_by_position(q, 0), scale_by_position(k, 0)
    shape = n, options["num_heads"], length, length
    allowed = np.array(np.broadcast_to(True if mask is None else mask, shape))
    for b, head, i, j in np.ndindex(shape):
        allowed[b, head, i, j] &= may_see(i, j, length, length, options["window"])
    bias = attention.position_bias(length, length).data if biased else 0.0
    scale = attention.d_k**-0.5 if attention.scale is None else attention.scale
    y = attend(q, k, v, allowed, bias, scale, options["softcap"])[0]
    expected = attention.out_proj(np.moveaxis(y, 1, 2).reshape(n, length, -1)).data

    found = attention(x, mask=hide_later(mask, length)).data
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    for cuts in (st.just([]), st.just([*range(1, length)]), st.sets(st.integers(1, length))):
        parts, cache = (
            np.split(x, sorted(data.draw(cuts, label="cuts")), axis=1),
            nn.AttentionCache(),
        )
        found = []
        with mg.no_grad():
            for part in parts:
                end = cache.length + part.shape[1]
                seen = None if mask is None else mask[..., :end]
                seen = hide_later(seen, part.shape[1], cache)
                found.append(attention(part, mask=seen, cache=cache).data)
        np.testing.assert_allclose(np.concatenate(found, 1), expected, rtol=1e-9, atol=1e-11)


@given(data=st.data(), seed=seeds)
def test_keys_and_values_projected_beforehand_give_the_same_attention(data: Any, seed: int) -> None:
    options = data.draw(layers(head_dim=4), label="options")
    rotary = data.draw(st.sampled_from((nn.RotaryPositions(4), scale_by_position, None)))
    attention = nn.ExtendedAttention(**options, rotary=rotary, dtype=float)
    perturb(attention, seed)
    query, key, value = (normal([seed, i], 2, length, 4) for i, length in enumerate((3, 5, 5)))
    rows = data.draw(st.lists(st.integers(0, 1), min_size=2, max_size=2), label="rows")
    memory = attention.keys_and_values(key, value)
    memory.select(np.array(rows))
    expected = attention(query, key[rows], value=value[rows]).data
    np.testing.assert_allclose(attention(query, memory).data, expected, rtol=1e-9, atol=1e-11)


@given(data=st.data(), seed=seeds)
def test_scored_attention_and_its_gradients_equal_the_definition(data: Any, seed: int) -> None:
    n, l_q, l_kv = (data.draw(st.integers(1, high)) for high in (2, 3, 4))
    lens = data.draw(
        st.none() | arrays(int, st.sampled_from([(n,), (n, l_q)]), elements=st.integers(0, l_kv)),
        label="valid_lens",
    )
    additive = data.draw(st.booleans(), label="additive")
    q, k, v = (
        Tensor(normal([seed, i], n, length, size), requires_grad=True)
        for i, (length, size) in enumerate(((l_q, 3), (l_kv, 2 if additive else 3), (l_kv, 4)))
    )
    attention: Any = nn.DotProductAttention()
    if additive:
        attention = nn.AdditiveAttention(3, 2, 5, dtype=float)
        of_query, of_key, w = (p.data.T for p in attention.parameters())
    expected = np.zeros((n, l_q, 4))
    for b, i in np.ndindex(n, l_q):
        length = l_kv if lens is None else lens[b] if lens.ndim == 1 else lens[b, i]
        a, keys = q.data[b, i], k.data[b, :length]
        if additive:
            scores = (np.tanh(a @ of_query + keys @ of_key) @ w)[:, 0]
        else:
            scores = keys @ a / np.sqrt(3)
        e = np.exp(scores)
        expected[b, i] = (e / e.sum() if length else e) @ v.data[b, :length]
    np.testing.assert_allclose(attention(q, k, v, lens).data, expected, rtol=1e-9, atol=1e-11)
    leaves = [q, k, v, *attention.parameters()]
    assert_gradients(lambda: attention(q, k, v, lens), leaves, seed)


def test_attention_dropout_is_drawn_in_training_only() -> None:
    attention, x = nn.MultiHeadAttention(8, 2, dropout=0.5), normal(0, 2, 6, 8)
    assert not np.array_equal(attention(x).data, attention(x).data)
    evaluated = attention.eval()(x).data
    attention.dropout = 0.0
    np.testing.assert_array_equal(attention.train()(x).data, evaluated)


@given(kv_heads=st.sampled_from((1, 2, 300)), group=st.integers(1, 2))
def test_attention_repr_has_the_heads_of_keys_if_they_are_fewer(kv_heads: int, group: int) -> None:
    heads = kv_heads * group
    shared = f", num_kv_heads={kv_heads}" if group > 1 else ""
    attention = nn.ExtendedAttention(4, heads, num_kv_heads=kv_heads, head_dim=1)
    assert f"(d_model=4, num_heads={heads}, d_k=1{shared}\n" in repr(attention)


def test_attention_repr_has_the_pruned_heads() -> None:
    attention = nn.ExtendedAttention(4, 4)
    nn.prune_heads(attention, [0, 2])
    assert "(d_model=4, num_heads=2, d_k=1, pruned_heads=(0, 2)\n" in repr(attention)


def attention_to(keys: int, mask: Any = None, **options: Any) -> Any:
    """Run attention of two heads from three queries to `keys` positions."""
    query, key = np.ones((2, 3, 8), np.float32), np.ones((2, keys, 8), np.float32)
    return nn.MultiHeadAttention(8, 2)(query, key, mask=mask, **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.MultiHeadAttention(8, 3), ValueError, "divisible by num_heads, got d_model=8 and num_heads=3"),
        (lambda: nn.MultiHeadAttention(8, 0), ValueError, "divisible by num_heads, got d_model=8 and num_heads=0"),
        (lambda: attention_to(3, np.ones((3, 3), int)), TypeError, "mask must be booleans, True = may attend, got"),
        (lambda: attention_to(3, np.ones((2, 3, 3), bool)), ValueError, r"mask must have two axes .*Write mask\[:, None\]"),
        *[(lambda n=n: nn.ExtendedAttention(8, 4, num_kv_heads=n), ValueError, f"num_heads must be divisible by num_kv_heads, got num_heads=4 and num_kv_heads={n}") for n in (3, 8)],
        (lambda: nn.ExtendedAttention(8, 2, bias={"q": True}), ValueError, "a mapping with the keys q, k, v and out, got {'q': True}"),
        (lambda: nn.ExtendedAttention(8, 2, bias=dict.fromkeys("qkvo", True) | {"out": True}), ValueError, "a mapping with the keys q, k, v and out"),
        (lambda: mg.scaled_dot_product_attention(*np.ones((3, 1, 2, 3, 4)), bias=np.ones((3, 3), bool)), TypeError, "bias must be floating, got bool"),
        (lambda: mg.scaled_dot_product_attention(*np.ones((3, 1, 2, 3, 4)), bias=np.ones((3, 3), int)), TypeError, r"bias must be floating, got int\d+"),
        (lambda: nn.ExtendedAttention(8, 2, bias=None), ValueError, "bias must be True, False, or a mapping .* got None"),
        (
            lambda: nn.functional.scaled_dot_product_attention(*(np.ones((1, h, 3, 4)) for h in (4, 2, 2))), ValueError,
            r"query, key and value .* broadcast, got \(1, 4, 3, 4\), \(1, 2, 3, 4\), \(1, 2, 3, 4\); minigrad\.",
        ),
        (lambda: nn.functional.scaled_dot_product_attention(*np.ones((3, 1, 2, 3, 4)), None, 1.0), ValueError, "p must be .* less than 1, got 1.0"),
        (lambda: nn.valid_lens_mask([1, 4], (2, 2, 3)), ValueError, "valid_lens must be from 0 to 3, got 1 to 4"),
    ],
)  # fmt: skip
def test_attention_bad_argument_is_named(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


sizes = st.integers(1, 3)


Shape = tuple[int, ...]


def resized(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def misfits(*shapes: Shape) -> Iterator[list[Shape]]:
    """Yield shapes of query, key and value with another size, number of axes, or number of heads."""
    query, key, value = shapes
    free = (0, 1), (0, 2), (2, 3)  # heads and number of queries, width of values
    for i, axis in set(itertools.product(range(3), range(4))) - set(free):
        for size in (shapes[i][axis] - 1, shapes[i][axis] + 4):
            yield [resized(s, axis, size) if j == i else s for j, s in enumerate(shapes)]
    for changed in itertools.product((False, True), repeat=3):
        if any(changed):
            yield [s[:-1] if c else s for s, c in zip(shapes, changed)]
            yield [(*s, 1) if c else s for s, c in zip(shapes, changed)]
    for heads in (0, query[1] + 1):
        yield [query, resized(key, 1, heads), resized(value, 1, heads)]


@given(n=sizes, h_kv=sizes, group=sizes, l_q=sizes, l_kv=sizes, d_k=sizes, d_v=sizes)
def test_attention_of_shapes_that_do_not_fit_is_an_error_with_the_shapes(
    n: int, h_kv: int, group: int, l_q: int, l_kv: int, d_k: int, d_v: int
) -> None:
    for q, k, v in misfits((n, h_kv * group, l_q, d_k), (n, h_kv, l_kv, d_k), (n, h_kv, l_kv, d_v)):
        got = re.escape(f"got {q}, {k} and {v}")
        with pytest.raises(ValueError, match="query, key and value must have shapes .* " + got):
            mg.scaled_dot_product_attention(*map(np.ones, (q, k, v)))


@max_examples(120)
@given(data=st.data())
def test_attention_of_a_mask_that_does_not_broadcast_is_an_error_with_the_shape(data: Any) -> None:
    """A mask that broadcasts, all True, changes nothing."""
    shape = n, h, l_q, l_kv = tuple(data.draw(sizes) for _ in range(4))
    last = shape[data.draw(st.sampled_from((0, 2)), label="first axis") :]
    axes = [st.sampled_from((m, m, 1, 0, 2, 4)) for m in last]
    mask = data.draw(st.permutations(last).map(tuple) | st.tuples(*axes), label="mask")
    x = np.ones((n, h, l_q, 1)), np.ones((n, h, l_kv, 1)), normal(0, n, h, l_kv, 1)
    if all(m in (1, length) for m, length in zip(mask, last)):
        y = mg.scaled_dot_product_attention(*x, mask=np.ones(mask, bool)).data
        np.testing.assert_array_equal(y, mg.scaled_dot_product_attention(*x).data)
        return
    with pytest.raises(ValueError, match="mask must .*" + re.escape(f"got {mask}")):
        mg.scaled_dot_product_attention(*x, mask=np.ones(mask, bool))


@given(data=st.data(), leading=st.lists(st.integers(1, 3), max_size=3).map(tuple), seed=seeds)
def test_functional_attention_of_any_mask_equals_the_definition(
    data: Any, leading: tuple[int, ...], seed: int
) -> None:
    """A float mask is added to the scores; a row of minus infinity gives zeros, as one of False."""
    l_q, l_kv = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    axes = [[data.draw(st.sampled_from((1, n))) for n in leading] for _ in range(3)]
    q, k, v = (
        normal([seed, i], *axes[i][data.draw(st.integers(0, len(leading))) :], n, 3)
        for i, n in enumerate((l_q, l_kv, l_kv))
    )  # shapes broadcast
    leading = np.broadcast_shapes(*[x.shape[:-2] for x in (q, k, v)])
    shape = [data.draw(st.sampled_from((1, n))) for n in (*leading[1:], l_q, l_kv)]
    kind = data.draw(st.sampled_from(["bool", "float", "causal", "none"]))
    scale = data.draw(st.sampled_from((None, 0.0)) | st.floats(0, 2))
    options: dict[str, Any] = {"scale": scale}
    allowed, bias = np.ones((l_q, l_kv), bool), np.zeros(())
    if kind == "causal":
        options["is_causal"], allowed = True, np.tri(l_q, l_kv, dtype=bool)
    elif kind != "none":
        allowed = options["attn_mask"] = data.draw(arrays(bool, shape))
        if kind == "float":
            bias = normal([seed, 3], *shape)
            options["attn_mask"] = np.where(allowed, bias, -np.inf)
    y = nn.functional.scaled_dot_product_attention(q, k, v, **options)
    scores = q @ k.swapaxes(-1, -2) * (3**-0.5 if scale is None else scale)
    weights = np.exp(scores + bias) * allowed
    sums = weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(y.data, weights / np.where(sums, sums, 1) @ v, 1e-7, 1e-9)


@pytest.mark.parametrize("which", [(True, False), (False, True)])
def test_cache_refuses_keys_or_values_with_gradients(which: tuple[bool, bool]) -> None:
    parts = [Tensor(np.ones((1, 1, 1, 2)), requires_grad=flag) for flag in which]
    with pytest.raises(RuntimeError, match="a cache keeps no graph for gradients"):
        nn.AttentionCache().append(*parts)


@given(st.lists(st.sampled_from([1, 2, 15, 16, 17, 40]), min_size=1, max_size=4), seeds)
def test_cache_returns_all_that_was_appended(lengths: list[int], seed: int) -> None:
    """Beside its first size of 16 positions, and twice the size when it is full."""
    cache, parts = nn.AttentionCache(), [normal([seed, i], 2, 2, 1, n, 3) for i, n in enumerate(lengths)]  # fmt: skip
    cache.select(np.array([1]))  # of nothing
    for i, (keys, values) in enumerate(parts):
        found = cache.append(Tensor(keys), values)
        expected = np.concatenate(parts[: i + 1], axis=3)
        np.testing.assert_array_equal(found, expected)
        assert cache.length == expected.shape[3]
    cache.select(np.array([1, 1, 0]))
    keys, _ = cache.append(*np.zeros((2, 3, 1, 1, 3)))
    np.testing.assert_array_equal(keys[:, :, :-1], expected[0][[1, 1, 0]])


def test_valid_lens_may_be_unsigned_and_reach_both_ends() -> None:
    for kind in (np.uint8, np.int16, list):
        lens = [0, 3] if kind is list else np.array([0, 3], kind)
        np.testing.assert_array_equal(
            nn.valid_lens_mask(lens, (2, 1, 3)), [[[False] * 3], [[True] * 3]]
        )
    assert nn.valid_lens_mask(np.zeros(0, int), (0, 1, 3)).shape == (0, 1, 3)


@pytest.mark.parametrize("name", ["query_size", "key_size", "value_size"])
def test_sizes_of_inputs_are_the_width_of_the_model_by_default(name: str) -> None:
    attention = nn.ExtendedAttention(8, 2, **{name: 5})
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    names = ("query_size", "key_size", "value_size")
    assert [p.in_features for p in projections] == [5 if n == name else 8 for n in names]
