"""Copies for inference: the results of their models, and errors if they are changed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import normal, seeds
from support.thresholds import product_limits, replaced_products

import minigrad as mg
import nn
from minigrad.fast import runtime
from nn.inference import copies, fast, products
from nn.options.parts import ExtendedEncoder

SOURCES = np.array([[4, 5, 6, 8], [7, 8, 0, 0], [5, 7, 4, 0]])
ALONE = np.array([[4, 5, 6, 7]])  # one short source: the projections are absorbed


def made(**changes: Any) -> nn.Transformer:
    """Return a model whose biases are not 0."""
    sizes = {"d_model": 32, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2}
    options = {**sizes, "d_ff": 16, "max_len": 12, "dtype": "float64", **changes}
    model = nn.Transformer(nn.EncoderDecoderConfig(9, 9, **options), np.random.default_rng(3))
    for p in model.parameters():
        p.data += 0.1 * np.random.default_rng(p.size).standard_normal(p.shape)
    return model.eval()


def decoded(model: Any, source: np.ndarray) -> list[tuple[list[int], Any]]:
    """Return tokens and log-probabilities of a greedy and a beam search."""
    found = nn.greedy_search(model, source, max_len=6, eos=None)
    for hypotheses in nn.beam_search(model, source, n_best=3, max_len=6):
        found += hypotheses
    return [(h.tokens, pytest.approx(h.log_prob, rel=1e-9)) for h in found]


def test_for_inference_transformer_decodes_as_its_model() -> None:
    model = made(tie="all", num_heads=4)
    quick = nn.for_inference(model)
    for source in (SOURCES, ALONE, SOURCES[1:2]):
        assert decoded(quick, source) == decoded(model, source)


@pytest.mark.parametrize("large", [fast.LARGE_BATCH, 1])
def test_for_inference_language_model_generates_as_its_model(
    large: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare split batches, too: those with caches are not split."""
    monkeypatch.setattr(fast, "LARGE_BATCH", large)
    monkeypatch.setattr(fast, "get_num_threads", lambda: 2)
    config = nn.DecoderOnlyConfig(13, 16, 4, 2, 24, positions="rotary", dtype="float64")
    model = nn.LanguageModel(config, np.random.default_rng(0)).eval()
    quick, prompts = nn.for_inference(model), [[1, 2, 3, 4], [5], [6, 7]]
    assert nn.generate(quick, prompts, max_len=9) == nn.generate(model, prompts, max_len=9)


def test_for_inference_has_read_only_memory_of_its_own() -> None:
    model = made(tie="all").train()
    quick = nn.for_inference(model)
    assert model.training and list(quick.state_dict()) == list(model.state_dict())
    assert not any(module.training for module in quick.modules())
    for p, q in zip(model.parameters(), quick.parameters()):
        assert p.requires_grad and not q.requires_grad
        assert p.data.flags.writeable and not q.data.flags.writeable
        assert not np.shares_memory(p.data, q.data)
        np.testing.assert_array_equal(p.data, q.data)


def test_for_inference_holds_fused_weights_once() -> None:
    layer = nn.for_inference(made(gated=True)).decoder.layers[0]
    for fused in (layer.self_attention.fused, layer.feed_forward.fused):
        for part in fused.layers:
            assert np.shares_memory(part.weight.data, fused.weight)
            assert np.shares_memory(part.bias.data, fused.bias)


@pytest.mark.parametrize("weights", ["float", "int8"])
def test_for_inference_shares_parts_and_has_arrays_of_its_own(weights: str) -> None:
    bias = nn.RelativePositionBias(2)
    layers = [nn.ExtendedEncoderLayer(4, 2, 6, attention={"position_bias": bias}) for _ in "ab"]
    model = nn.Sequential(*layers, nn.BatchNorm1d(4), layers[0], nn.LearnedPositions(5, 4)).eval()
    quick = nn.for_inference(model, weights)
    assert isinstance(nn.for_inference(model[0], weights)(np.ones((1, 1, 4))), mg.Tensor)
    assert quick[0] is quick[3] and quick[0] is not model[0]
    assert quick[0].self_attention.position_bias is quick[1].self_attention.position_bias
    x = normal(0, 2, 3, 4).astype(np.float32)
    expected = quick(x).data
    for array in model.state_dict().values():
        array[...] = 7
    np.testing.assert_array_equal(quick(x).data, expected)
    for module in quick.modules():
        for value in vars(module).values():
            array = getattr(value, "data", value) if isinstance(value, mg.Tensor) else value
            assert not isinstance(array, np.ndarray) or not array.flags.writeable


def test_for_inference_pickles_fused_weights_once() -> None:
    model = nn.LanguageModel(nn.LanguageModelConfig(50, 128, 4, 1, 512, max_len=8))
    quick = nn.for_inference(model)
    assert len(pickle.dumps(quick)) < 1.05 * len(pickle.dumps(model))


@pytest.mark.parametrize(
    "method", ["train", "load_state_dict", "astype", "requires_grad_", "prune_heads"]
)
def test_for_inference_refuses_changes(method: str) -> None:
    quick = nn.for_inference(made())
    with pytest.raises(RuntimeError, match="read-only: change the model it was made of"):
        getattr(quick, method)()
    assert quick.eval() is quick and not quick.training


def test_for_inference_records_no_gradients() -> None:
    quick = nn.for_inference(made())
    assert not quick.loss(SOURCES, SOURCES[:, :3]).requires_grad
    with pytest.raises(RuntimeError, match="a copy for inference has no gradients"):
        quick.encoder(mg.Tensor(np.ones((1, 3, 32)), requires_grad=True))


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, nn.for_inference, lambda quick: pickle.loads(pickle.dumps(quick))],
    ids=["copy", "deepcopy", "for_inference", "pickle"],
)
def test_for_inference_copied_is_for_inference(copied: Callable[[Any], Any]) -> None:
    quick = nn.for_inference(made(tie="all"))
    again = copied(quick)
    assert isinstance(again, nn.Transformer) and decoded(again, ALONE) == decoded(quick, ALONE)
    assert isinstance(again.decoder.layers[0].self_attention, fast.FastAttention)
    assert again.output.weight is again.source_embedding.tokens.weight
    with pytest.raises(RuntimeError, match="read-only"):
        again.train()


CROSS = "decoder.layers.1.cross_attention"


@pytest.mark.parametrize(
    ("source", "expected"), [(ALONE, True), (SOURCES, False), (np.tile(ALONE, 3), False)]
)
def test_for_inference_absorbs_projections_of_one_short_source(
    source: np.ndarray, expected: bool
) -> None:
    quick = nn.for_inference(made())
    state = quick.start(source)
    quick.step([[1]] * len(source), state)
    assert [memory.absorbed is not None for memory in state.memory] == [expected] * 2


def test_for_inference_records_the_attention_of_its_model() -> None:
    """Begin while projections are absorbed."""
    model, maps = made(), []
    for m in (model, nn.for_inference(model)):
        state = m.start(ALONE)
        m.step([[1]], state)
        with nn.record_attention(m) as recorded:
            m.step([[4]], state)
        maps.append(recorded[CROSS])
    assert maps[1][0].shape == (1, 2, 1, 4)
    np.testing.assert_allclose(*maps, rtol=1e-9)


def test_for_inference_with_gated_heads_equals_its_model() -> None:
    model = made()
    quick = nn.for_inference(model)
    with nn.gate_heads(model, {CROSS: [0.0, 1.0]}), nn.gate_heads(quick, {CROSS: [0.0, 1.0]}):
        gated = decoded(quick, ALONE)
        assert gated == decoded(model, ALONE)
    assert decoded(quick, ALONE) != gated


@pytest.mark.parametrize("name", ["self_attention.k_proj", "feed_forward.linear1"])
def test_for_inference_with_hooks_equals_its_model(name: str) -> None:
    model = made()
    quick, plain = nn.for_inference(model), decoded(model, SOURCES)

    def negate(m: nn.Module) -> None:
        layer = dict(m.named_modules())[f"decoder.layers.0.{name}"]
        layer.register_forward_hook(lambda module, args, y: y * -1)

    negate(model)
    negate(quick)
    expected = decoded(model, SOURCES)
    assert decoded(quick, SOURCES) == expected != plain
    again = nn.for_inference(model)
    assert decoded(again, SOURCES) == expected
    negate(again)  # a copy has hooks of its own
    assert decoded(again, SOURCES) == plain and decoded(model, SOURCES) == expected


def test_for_inference_calls_hooks_of_any_module_as_its_model() -> None:
    """Pass all tokens at once and in steps, of several rows and of one."""
    model = made(gated=True, num_decoder_layers=1)
    quick, ids = nn.for_inference(model), np.array([[1, 4], [3, 2], [5, 6]])

    def results(m: nn.Module, name: str) -> list[Any]:
        module = dict(m.named_modules())[name]
        handles = [
            module.register_forward_pre_hook(lambda m, args: (args[0] * args[0], *args[1:])),
            module.register_forward_hook(lambda m, args, y: y * -1),
        ]
        found, state = [m(SOURCES, ids).data], m.start(ALONE)
        found += [m.step(ids[:1, :1], state), m.step(ids[:1, 1:], state)]
        for handle in handles:
            handle.remove()
        return found

    plain = results(model, "decoder.layers")  # never called
    names = [n for n, m in model.named_modules() if n and not isinstance(m, nn.ModuleList)]
    for name in names:
        if not name.endswith(("embedding", "tokens")):  # whose arguments are integers
            expected = results(model, name)
            for x, y in zip(results(quick, name), expected):
                np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-10, err_msg=name)
            assert not all(map(np.array_equal, plain, expected)), name


def test_for_inference_of_a_large_batch_computes_it_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = nn.EncoderConfig(50, 16, 2, 2, 32, dtype="float64")
    quick = nn.for_inference(nn.EncoderModel(config, np.random.default_rng(0)))
    ids = np.random.default_rng(1).integers(1, 50, (7, 6))
    ids[2, 3:] = ids[5, :2] = 0  # padding on both sides: positions differ by row
    expected = quick(ids).data
    parts: list[int] = []
    inner = ExtendedEncoder.forward
    counted = lambda self, x, *rest: parts.append(len(x)) or inner(self, x, *rest)
    monkeypatch.setattr(ExtendedEncoder, "forward", counted)
    monkeypatch.setattr(fast, "LARGE_BATCH", 1)
    monkeypatch.setattr(fast, "get_num_threads", lambda: 3)
    np.testing.assert_allclose(quick(ids).data, expected, rtol=1e-9)
    assert sorted(parts) == [2, 2, 3]
    with nn.record_attention(quick) as recorded:
        quick(ids)
    assert [w.shape[0] for w in recorded["encoder.layers.0.self_attention"]] == [7]


@pytest.mark.parametrize("n", [3, 4, 5])
@pytest.mark.parametrize("mask", [None, (4, 4), (1, 1, 4, 4), (0, 1, 1, 4), (0, 2, 4, 4)])
@pytest.mark.parametrize("positions", [0, 2, (4,), (1, 4), (0, 4)])
def test_parts_of_a_batch_have_their_rows_of_masks_and_positions(
    n: int, mask: Any, positions: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A length of 0 is the number of sequences, which may be that of positions, too."""
    config = nn.EncoderConfig(9, 8, 2, 1, 8, positions="rotary", dtype="float64", dropout=0.0)
    encoder = nn.EncoderModel(config, np.random.default_rng(0)).eval().encoder
    rng = np.random.default_rng(1)
    if mask is not None:
        mask = rng.random([size or n for size in mask]) < 0.5
    if positions not in (0, 2):
        positions = rng.integers(0, 9, [size or n for size in positions])
    x = rng.standard_normal((n, 4, 8))
    monkeypatch.setattr(fast, "LARGE_BATCH", 1)
    monkeypatch.setattr(fast, "get_num_threads", lambda: 2)
    found = nn.for_inference(encoder)(x, mask, positions=positions).data
    expected = encoder(x, mask, positions=positions).data
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@given(
    limits=product_limits(),
    shape=st.tuples(st.integers(0, 20), st.integers(0, 12)),
    n=st.integers(0, 24),
    dtype=st.sampled_from(("float32", "float32", "float64")),
    order=st.sampled_from("CF"),
    is_own=st.booleans(),
    seed=seeds,
)
def test_product_equals_matrix_product(
    limits: Any, shape: tuple[int, int], n: int, dtype: str, order: Any, is_own: bool, seed: int
) -> None:
    """With small thresholds, in every way, in the one that is fastest, and by 1 to 3 threads."""
    weight = np.asarray(normal(seed, *shape), dtype, order)
    rows = normal([seed, 1], n, shape[1]).astype(dtype)
    with replaced_products(limits), runtime.OwnThreads() if is_own else nullcontext():
        fast_weight = products.in_fast_layout(weight)
        y = products.product(rows, fast_weight)
    np.testing.assert_array_equal(fast_weight, weight)
    assert y.dtype == dtype and y.flags.c_contiguous and y.flags.writeable
    np.testing.assert_allclose(y, rows @ weight.astype(float).T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [2, 7, 15, 64])
@pytest.mark.parametrize("way", products.WAYS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_product_of_a_large_weight_equals_matrix_product(
    n: int, way: str, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the thresholds as they are."""
    monkeypatch.setattr(products, "PINNED", way)
    weight, rows = (normal(0, length, 300).astype(np.float32) for length in (1031, n))
    y = products.product(rows, np.asarray(weight, order=order))
    np.testing.assert_allclose(y, rows @ weight.astype(float).T, rtol=1e-5, atol=1e-3)


@pytest.fixture
def timed_ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the ways to multiply by two that take 4 and 2 ms; return the list of their calls."""
    calls: list[str] = []

    def way(name: str, seconds: float) -> Any:
        def multiply(rows: np.ndarray, weight: np.ndarray, y: np.ndarray) -> None:
            calls.append(name)
            clock[0] += seconds
            np.matmul(rows, weight.T, out=y)

        return multiply

    clock = [0.0]
    monkeypatch.setattr(products.time, "perf_counter", lambda: clock[0])
    for name, value in (("has_blas", True), ("has_small_kernels", False), ("get_num_threads", 2)):
        monkeypatch.setattr(products, name, lambda value=value: value)
    seconds = {"whole": 0.004, "flipped": 0.002, "single": 1.0}
    monkeypatch.setattr(products, "WAYS", {name: way(name, s) for name, s in seconds.items()})
    monkeypatch.setattr(products, "PINNED", None)
    monkeypatch.setattr(products, "_FASTEST", {})
    return calls


def test_product_times_each_shape_once(timed_ways: list[str]) -> None:
    """Rows of 3 and 4 count as the same, and slow ways are tried once."""
    weight = np.ones((400, 400), np.float32)
    for n in (3, 4, 4):
        products.product(weight[:n], weight)
    assert timed_ways == ["whole", "flipped", "single", *["flipped"] * 5]
    products.product(weight[:5], weight)
    assert timed_ways[8:] == ["whole", "flipped", "single", *["flipped"] * 3]
    products.product(weight[:9], weight)
    assert timed_ways[14:] == ["whole", *["flipped"] * 4]  # many single rows are not tried
    products.product(weight[:9], np.asfortranarray(weight))
    assert len(timed_ways) == 24  # another order of memory


@pytest.mark.parametrize(
    ("n", "size", "is_own", "parts"),
    [(1, 100, True, 2), (4, 100, True, 2), (4, 99, True, 0), (5, 80, True, 2), (5, 79, True, 0),
     (4, 100, False, 0)],
)  # fmt: skip
def test_own_threads_share_a_large_product(
    n: int, size: int, is_own: bool, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 400 multiplications on, where fewer than 4 rows count as 4."""
    seen: list[int] = []

    def in_parallel(run: Any, parts: Any) -> Any:
        seen.append(len(parts))
        return runtime.in_parallel(run, parts)

    monkeypatch.setattr(products, "SHARED", 400)
    monkeypatch.setattr(products, "in_parallel", in_parallel)
    monkeypatch.setattr(products, "get_num_threads", lambda: 2)
    weight, rows = normal(0, size, 1), normal(1, n, 1)
    with runtime.OwnThreads() if is_own else nullcontext():
        np.testing.assert_allclose(products.product(rows, weight), rows @ weight.T)
    assert sum(seen) == parts


@pytest.mark.parametrize(
    ("kind", "has_small_kernels", "shape", "is_own"),
    [("float", True, (2, 1), True), ("float", False, (2, 1), False), ("float", True, (1, 1), False),
     ("float", True, (2, 2), True), ("float", True, (products.MAX_ROWS + 1, 1), False),
     ("int8", False, (1, 1), True), ("int8", False, (1, products.MAX_ROWS + 1), False)],
)  # fmt: skip
def test_step_of_few_rows_uses_own_threads(
    kind: str, has_small_kernels: bool, shape: tuple[int, int], is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    seen = []

    class Model(nn.LanguageModel):
        def step(self, tokens: Any, state: Any) -> np.ndarray:
            seen.append(bool(runtime.OwnThreads.entered))
            return super().step(tokens, state)

    monkeypatch.setattr(copies, "has_small_kernels", lambda: has_small_kernels)
    config = nn.LanguageModelConfig(10, 8, 2, 1, 16, max_len=200)
    model = nn.for_inference(Model(config).eval(), weights=kind)
    model.step(np.zeros(shape, int), model.start())
    assert seen == [is_own]
    linear = nn.for_inference(nn.Linear(2, 2))
    assert not hasattr(linear, "step")
    np.testing.assert_array_equal(linear([[1, 2]]).data, linear(np.float32([[1, 2]])).data)


@pytest.mark.parametrize(
    ("shape", "has_small_kernels", "by_columns"),
    [((512, 512), True, False), ((512, 512), False, True), ((64, 64), True, True), ((64, 300), False, False)],
)  # fmt: skip
def test_in_fast_layout_orders_memory_as_it_is_read(
    shape: tuple[int, int], has_small_kernels: bool, by_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(products, "has_blas", lambda: True)
    monkeypatch.setattr(products, "has_small_kernels", lambda: has_small_kernels)
    for order in ("C", "F"):
        made = products.in_fast_layout(np.ones(shape, np.float32, order))
        assert made.flags.f_contiguous == by_columns


class Adapted(nn.Linear):
    """A linear layer with another result, as an adapter has."""

    def forward(self, x: Any) -> mg.Tensor:
        return super().forward(x) * 1.5


@pytest.mark.parametrize(
    "name",
    ["self_attention.k_proj", "cross_attention.q_proj", "cross_attention.out_proj", "feed_forward.linear1"],
)  # fmt: skip
def test_for_inference_of_a_subclass_of_linear_does_not_fuse_it(name: str) -> None:
    model = made()
    plain = decoded(model, ALONE)
    dict(model.decoder.layers[0].named_modules())[name].__class__ = Adapted
    assert decoded(nn.for_inference(model), ALONE) == decoded(model, ALONE) != plain


OPTIONS: list[dict[str, Any]] = [
    {}, {"scale": 0.7}, {"num_kv_heads": 1}, {"qk_norm": True}, {"softcap": 0.5}, {"bias": ""}, {"bias": "q"}, {"bias": "o"},
    {"head_dim": 8, "scale": 2.0},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("length", [7, 8, 9])
def test_for_inference_of_one_source_has_the_options_of_its_attention(
    options: dict[str, Any], length: int
) -> None:
    """Beside the length up to which projections are absorbed, 8; also for several hypotheses."""
    model = made(attention=nn.AttentionConfig(**options))
    source, rows = np.arange(1, length + 1)[None] % 8 + 1, np.array([0, 0, 0])
    quick, logits = nn.for_inference(model), []
    for m in (model, quick):
        state = m.start(source)
        first = m.step([[1]], state)
        state.select(rows)
        logits.append([first, m.step([[4], [5], [6]], state), m.step([[4], [5], [6]], state)])
    for found, expected in zip(*logits):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
    can_be = options.keys().isdisjoint({"num_kv_heads", "qk_norm", "softcap"})
    assert (state.memory[0].absorbed is not None) == (can_be and length <= 8)


@pytest.mark.parametrize("name", fast._IN_PLACE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_activation_in_place_equals_the_activation(name: str, dtype: str) -> None:
    """Draw values up to those whose exponential overflows or vanishes."""
    x = np.r_[np.linspace(-800, 800, 1601), np.linspace(-110, 110, 2201), 0.0].astype(dtype)
    y = x.copy()
    assert fast._IN_PLACE[name](y) is y
    expected = nn.ACTIVATIONS[name](x).data
    info = np.finfo(dtype)
    np.testing.assert_allclose(y, expected, rtol=20 * info.eps, atol=100 * info.tiny)


@pytest.mark.parametrize("eps", [0.0, 1e-30, 1e-5])
@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_for_inference_norm_of_one_row_equals_the_norm_of_any_size(kind: Any, eps: float) -> None:
    for shape in ((6,), (2, 3)):
        layer = kind(shape, eps, dtype=float)
        layer.weight.data += normal(0, *shape)
        quick = nn.for_inference(nn.Sequential(layer))
        for exponent in (-160, -20, -9, 0, 9, 20):
            for rows in (1, 2):
                x = normal(1, rows, *shape) * 10.0**exponent
                np.testing.assert_allclose(quick(x).data, layer(x).data, rtol=1e-9)
        for zeros in (np.zeros((1, *shape)), np.zeros((2, *shape))):
            with np.errstate(all="ignore"):  # they are NaN without eps
                np.testing.assert_array_equal(quick(zeros).data, layer(zeros).data)


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("option", [None, "rotary", "window", "position_bias", "softcap", "scale", "query_size"])  # fmt: skip
@pytest.mark.parametrize("mask", [None, (1, 1, 1), (3, 1, 1), (1, 2, 2), (3, 2, 2), (2,)])
def test_for_inference_attends_to_one_source_as_to_equal_ones(
    length: int, option: str | None, mask: Any
) -> None:
    """Projections of a short source are multiplied beforehand, without a mask."""
    values = {"rotary": nn.RotaryPositions(4), "window": 1, "position_bias": nn.ALiBi(2, float), "softcap": 0.5, "scale": 2.0, "query_size": 6}  # fmt: skip
    options = {} if option is None else {option: values[option]}
    layer = nn.ExtendedAttention(8, 2, **options, dtype=float, generator=np.random.default_rng(0))
    quick = nn.for_inference(nn.Sequential(layer.eval()))[0]
    query, memory = normal(0, 3, 2, options.get("query_size", 8)), normal(1, 1, length, 8)
    if mask is not None:
        mask = np.random.default_rng(2).random((*mask, length)) < 0.5
    sources = layer.keys_and_values(np.repeat(memory, 3, 0))
    expected = layer(query, sources, mask, positions=1).data
    source = quick.keys_and_values(memory)
    for _ in range(2):
        found = quick(query, source, mask, positions=1)
        np.testing.assert_allclose(found.data, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mask", [None, np.tri(2, 3, 1, dtype=bool)])
def test_for_inference_of_a_layer_attends_to_other_sequences(mask: Any) -> None:
    """Not by the fused projections of one sequence."""
    layer = nn.ExtendedEncoderLayer(8, 2, 8, dtype=float, generator=np.random.default_rng(0)).eval()
    quick = nn.for_inference(nn.Sequential(layer))[0].self_attention
    query, memory, value = (normal(i, 2, 2 + (i > 0), 8) for i in range(3))
    for options in ({}, {"memory": memory}, {"memory": memory, "value": value}):
        mask = mask[:, :2] if mask is not None and not options else mask
        found, expected = (a(query, mask=mask, **options) for a in (quick, layer.self_attention))
        np.testing.assert_allclose(found.data, expected.data, rtol=1e-9, atol=1e-12)
        mask = None if mask is None else np.tri(2, 3, 1, dtype=bool)
    found, expected = (a(query, value=value[:, :2]) for a in (quick, layer.self_attention))
    np.testing.assert_allclose(found.data, expected.data, rtol=1e-9, atol=1e-12)
