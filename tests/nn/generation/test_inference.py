"""Copies for inference: the results of their models, and errors if they are changed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad.kernels import gelu_in_place
from nn.generation import fast

SOURCES = np.array([[4, 5, 6, 8], [7, 8, 0, 0], [5, 7, 4, 0]])
ALONE = np.array([[4, 5, 6, 7]])  # one short source: the projections are absorbed
VARIANTS: list[dict[str, Any]] = [
    {}, {"bias": False, "norm_first": True}, {"tie": "all", "num_heads": 4, "activation": "silu"},
    {"norm": "rms", "gated": True, "activation": "gelu", "attention": nn.AttentionConfig(bias="qv", scale=0.3)},
    {"positions": "rotary", "attention": nn.AttentionConfig(num_kv_heads=1, qk_norm=True, window=3)},
    {"positions": "relative"}, {
        "positions": "learned", "attention": nn.AttentionConfig(head_dim=6),
        "embeddings": nn.EmbeddingConfig(scale=True, norm=True),
    },
]  # fmt: skip


def made(**changes: Any) -> nn.Transformer:
    """Return a model whose biases are not 0."""
    sizes = {"d_model": 32, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2}
    options = {**sizes, "d_ff": 16, "max_len": 12, "dtype": "float64", **changes}
    model = nn.Transformer(nn.TransformerConfig(9, 9, **options), np.random.default_rng(3))
    for p in model.parameters():
        p.data += 0.1 * np.random.default_rng(p.size).standard_normal(p.shape)
    return model.eval()


def decoded(model: Any, source: np.ndarray) -> list[tuple[list[int], Any]]:
    """Return tokens and log-probabilities of a greedy and a beam search."""
    found = nn.greedy_search(model, source, max_len=6, eos=None)
    for hypotheses in nn.beam_search(model, source, n_best=3, max_len=6):
        found += hypotheses
    return [(h.tokens, pytest.approx(h.log_prob, rel=1e-9)) for h in found]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_for_inference_transformer_equals_its_model(changes: dict[str, Any]) -> None:
    model = made(**changes)
    quick = nn.for_inference(model)
    target = np.array([[1, 4, 5], [1, 6, 2], [1, 3, 3]])
    expected = model(SOURCES, target).data
    np.testing.assert_allclose(quick(SOURCES, target).data, expected, rtol=1e-9, atol=1e-12)
    for source in (SOURCES, ALONE, SOURCES[1:2]):
        assert decoded(quick, source) == decoded(model, source)


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_for_inference_language_model_equals_its_model(positions: Any) -> None:
    config = nn.LanguageModelConfig(13, 16, 4, 2, 24, positions=positions, dtype="float64")
    model = nn.LanguageModel(config, np.random.default_rng(0)).eval()
    quick, prompts = nn.for_inference(model), [[1, 2, 3, 4], [5], [6, 7]]
    np.testing.assert_allclose(quick(SOURCES).data, model(SOURCES).data, rtol=1e-9, atol=1e-12)
    assert nn.generate(quick, prompts, max_len=9) == nn.generate(model, prompts, max_len=9)


def test_for_inference_has_read_only_memory_of_its_own() -> None:
    model = made(tie="all").train()
    quick = nn.for_inference(model)
    assert model.training and list(quick.state_dict()) == list(model.state_dict())
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
    assert isinstance(again.decoder.layers[0].self_attention, fast.FastSelfAttention)
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


def test_for_inference_of_a_large_batch_computes_it_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = nn.EncoderConfig(50, 16, 2, 2, 32, dtype="float64")
    quick = nn.for_inference(nn.EncoderModel(config, np.random.default_rng(0)))
    ids = np.random.default_rng(1).integers(1, 50, (7, 6))
    ids[2, 3:] = ids[5, :2] = 0  # padding on both sides: positions differ by row
    expected = quick(ids).data
    parts: list[int] = []
    inner = nn.Encoder.forward
    monkeypatch.setattr(
        nn.Encoder, "forward", lambda self, x, *rest: parts.append(len(x)) or inner(self, x, *rest)
    )
    monkeypatch.setattr(fast, "LARGE_BATCH", 1)
    monkeypatch.setattr(fast, "get_num_threads", lambda: 3)
    np.testing.assert_allclose(quick(ids).data, expected, rtol=1e-9)
    assert sorted(parts) == [2, 2, 3]
    with nn.record_attention(quick) as recorded:
        quick(ids)
    assert [w.shape[0] for w in recorded["encoder.layers.0.self_attention"]] == [7]


@pytest.mark.parametrize("form", ["none", "tanh"])
def test_gelu_in_place_equals_gelu(form: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 7, 5000)) * 4  # of several blocks
    x[0, 0, :4] = 0, 1e300, -1e300, 200
    y = gelu_in_place(x.copy(), form)
    np.testing.assert_array_equal(y, mg.gelu(x, approximate=form).data)


@pytest.mark.parametrize(
    ("blas", "kernels", "threads"),
    [(False, "", 1), (True, "", 2), (True, "small", 1), (True, "AVX2", 1), (True, "AVX2", 2)],
)
@pytest.mark.parametrize(("dtype", "order"), [("float32", "C"), ("float32", "F"), ("float64", "C")])
def test_product_equals_matrix_product(
    blas: bool, kernels: str, threads: int, dtype: str, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "has_blas", lambda: blas)
    monkeypatch.setattr(fast, "has_small_kernels", lambda: kernels == "small")
    monkeypatch.setattr(fast, "has_avx2_kernels", lambda: kernels == "AVX2")
    monkeypatch.setattr(fast, "get_num_threads", lambda: threads)
    rng = np.random.default_rng(0)
    shapes = [(1031, 300), (8209, 256), (130, 1031), (300, 1031), (16, 8192), (300, 40), (40, 300)]
    for shape in [*shapes, (0, 256), (256, 0)]:
        weight = fast.in_fast_layout(np.asarray(rng.standard_normal(shape), dtype, order))
        for n in (0, 1, 2, 3, 4, 5, 6, 7, 15, 16, 22, 31, 33, 64, 65, 95, 96, 97):
            rows = rng.standard_normal((n, shape[1])).astype(dtype)
            y = fast.product(rows, weight)
            assert y.dtype == dtype and y.flags.c_contiguous and y.flags.writeable
            np.testing.assert_allclose(y, rows @ weight.astype(float).T, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("shape", "kernels", "threads", "by_columns"),
    [
        ((512, 512), True, 1, False),  # read in panels
        ((512, 512), True, 2, True),
        ((64, 64), True, 1, True),
        ((64, 300), True, 1, False),
    ],
)
def test_in_fast_layout_orders_memory_as_it_is_read(
    shape: tuple[int, int], kernels: bool, threads: int, by_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(fast, "has_small_kernels", lambda: kernels)
    monkeypatch.setattr(fast, "get_num_threads", lambda: threads)
    for order in ("C", "F"):
        made = fast.in_fast_layout(np.ones(shape, np.float32, order))
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
