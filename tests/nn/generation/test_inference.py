"""Copies for inference: the same results, whatever happens inside, and refusals to be changed."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import runtime
from minigrad.kernels import gelu_in_place
from nn.generation import fast

SOURCES = np.array([[4, 5, 6, 8], [7, 8, 0, 0], [5, 7, 4, 0]])
ALONE = np.array(
    [[4, 5, 6, 7]]
)  # one short source: the projections are absorbed in its keys and values
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
    """A model whose biases are not 0."""
    sizes = {
        "d_model": 32,
        "num_heads": 2,
        "num_encoder_layers": 1,
        "num_decoder_layers": 2,
        "d_ff": 16,
    }
    model = nn.Transformer(
        nn.TransformerConfig(9, 9, **{**sizes, "max_len": 12, "dtype": "float64", **changes}),
        np.random.default_rng(3),
    )
    for p in model.parameters():
        p.data += 0.1 * np.random.default_rng(p.size).standard_normal(p.shape)
    return model


def decoded(model: Any, source: np.ndarray) -> list[tuple[list[int], Any]]:
    found = [nn.greedy_search(model, source, max_len=6, eos=None)]
    found += nn.beam_search(model, source, n_best=3, max_len=6)
    return [
        (h.tokens, pytest.approx(h.log_prob, rel=1e-9)) for hypotheses in found for h in hypotheses
    ]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_it_computes_what_the_model_does(changes: dict[str, Any]) -> None:
    model = made(**changes).eval()
    quick = nn.for_inference(model)
    target = np.array([[1, 4, 5], [1, 6, 2], [1, 3, 3]])
    np.testing.assert_allclose(
        quick(SOURCES, target).data, model(SOURCES, target).data, rtol=1e-9, atol=1e-12
    )
    for source in (SOURCES, ALONE, SOURCES[1:2]):
        assert decoded(quick, source) == decoded(model, source)
    assert list(quick.state_dict()) == list(model.state_dict())
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(quick.state_dict()[name], array, err_msg=name)


@pytest.mark.parametrize("kind", ["gpt", "llama", "t5"])
def test_language_models(kind: str) -> None:
    options: dict[str, Any] = {
        "gpt": {},
        "llama": {"positions": "rotary", "attention": nn.AttentionConfig(num_kv_heads=2), "norm": "rms", "gated": True, "activation": "silu",
                  "bias": False, "tie": False},
        "t5": {"positions": "alibi", "norm_first": False},
    }[kind]  # fmt: skip
    config = nn.LanguageModelConfig(
        13, 16, 4, 2, 24, dropout=0.1, max_len=32, dtype="float64", **options
    )
    model = nn.LanguageModel(config, np.random.default_rng(0)).eval()
    quick = nn.for_inference(model)
    ids = np.random.default_rng(1).integers(0, 13, (2, 9))
    np.testing.assert_allclose(quick(ids).data, model(ids).data, rtol=1e-9, atol=1e-12)
    prompts = [[1, 2, 3, 4], [5], [6, 7]]
    assert nn.generate(quick, prompts, max_len=9) == nn.generate(model, prompts, max_len=9)
    state = quick.start()
    assert isinstance(quick.step(ids, state), np.ndarray) and state.length == 9


def test_nothing_of_the_model_moves() -> None:
    model = made(tie="all")
    before = {name: (id(p.data), p.data.copy()) for name, p in model.named_parameters()}
    quick = nn.for_inference(model)
    decoded(quick, SOURCES)
    assert model.training and all(p.requires_grad for p in model.parameters())
    for name, p in model.named_parameters():
        assert id(p.data) == before[name][0] and p.data.flags.writeable
        assert not np.shares_memory(p.data, quick.state_dict()[name])
    expected = decoded(quick, SOURCES)
    for p in model.parameters():
        p.data += 1
    assert decoded(quick, SOURCES) == expected  # it knows nothing of changes that come later


def test_what_would_change_it_is_refused() -> None:
    quick = nn.for_inference(made())
    assert quick.eval() is quick and not quick.training
    for change in (
        quick.train,
        lambda: quick.load_state_dict(quick.state_dict()),
        lambda: quick.astype(np.float32),
        quick.requires_grad_,
        lambda: quick.prune_heads({"encoder.layers.0.self_attention": [0]}),
    ):
        with pytest.raises(
            RuntimeError,
            match="read-only: change the model it was made of, and call nn.for_inference",
        ):
            change()
    for p in quick.parameters():
        with pytest.raises(ValueError, match="read-only"):
            p.data[...] = 0
    x = mg.Tensor(np.ones((1, 3, 32)), requires_grad=True)
    with pytest.raises(RuntimeError, match="a copy for inference has no gradients"):
        quick.encoder(x)
    assert not any(p.requires_grad for p in quick.parameters())
    assert not quick.loss(SOURCES, SOURCES[:, :3]).requires_grad


def test_a_deep_copy_is_for_inference_too() -> None:
    quick = nn.for_inference(made(tie="all"))
    pickled = pickle.loads(pickle.dumps(quick))
    for again in (copy.deepcopy(quick), nn.for_inference(quick), copy.copy(quick), pickled):
        assert isinstance(again, nn.Transformer) and decoded(again, ALONE) == decoded(quick, ALONE)
        attention = again.decoder.layers[0].self_attention
        assert isinstance(attention, fast.FastSelfAttention)
        assert np.shares_memory(attention.k_proj.weight.data, attention.fused)
        assert again.output.weight is again.source_embedding.tokens.weight
        with pytest.raises(RuntimeError, match="read-only"):
            again.train()


def absorbed(quick: nn.Transformer, source: np.ndarray) -> list[bool]:
    """Which layers absorbed their projections in two steps of decoding."""
    state = quick.start(source)
    for _ in range(2):
        quick.step(np.full((len(source), 1), 1), state)
    return [memory.absorbed is not None for memory in state.memory]


def test_what_happens_inside_is_seen_and_acted_on() -> None:
    model = made().eval()
    quick = nn.for_inference(model)
    assert absorbed(quick, ALONE) == [True, True]
    assert (
        absorbed(quick, SOURCES) == absorbed(quick, np.array([[4, 5, 6, 7] * 3])) == [False, False]
    )
    name = "decoder.layers.1.cross_attention"
    with nn.record_attention(quick) as got, nn.record_attention(model) as expected:
        assert absorbed(quick, ALONE) == [False, False]
        nn.greedy_search(model, ALONE, max_len=2, eos=None)
    assert [w.shape for w in got[name]] == [(1, 2, 1, 4)] * 2 and len(expected[name]) == 2
    np.testing.assert_allclose(got[name][0], expected[name][0], rtol=1e-9)
    gated = []
    for m in (quick, model):
        with nn.gate_heads(m, {name: [0.0, 1.0]}):
            gated.append(decoded(m, ALONE))
    assert gated[0] == gated[1] != decoded(quick, ALONE)
    for m in (quick, model):
        for path in (
            "decoder.layers.0.self_attention.k_proj",
            "decoder.layers.0.feed_forward.linear1",
        ):
            dict(m.named_modules())[path].register_forward_hook(lambda module, args, y: y * -1)
    changed = decoded(quick, SOURCES)
    assert changed == decoded(model, SOURCES) != decoded(nn.for_inference(made()), SOURCES)
    assert decoded(nn.for_inference(model), SOURCES) == changed  # hooks come along


def test_large_batches_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part sees the context of the call, and results come in order."""
    model = nn.EncoderModel(
        nn.EncoderConfig(50, 16, 2, 2, 32, dtype="float64"), np.random.default_rng(0)
    ).eval()
    quick = nn.for_inference(model)
    ids = np.random.default_rng(1).integers(1, 50, (7, 6))
    ids[2, 3:] = ids[5, :2] = 0  # padding on both sides: positions differ by row
    expected = model(ids).data
    parts: list[int] = []
    monkeypatch.setattr(fast, "LARGE_BATCH", 1)
    monkeypatch.setattr(
        runtime, "_blas", lambda: (lambda n: None, lambda: 3)
    )  # a BLAS with three threads
    inner, all_at_once = nn.Encoder.forward, threading.Barrier(3)

    def forward(self: Any, x: Any, *rest: Any) -> Any:
        parts.append(len(x))
        if len(x) < 7:
            all_at_once.wait(timeout=10)
        return inner(self, x, *rest)

    monkeypatch.setattr(nn.Encoder, "forward", forward)
    np.testing.assert_allclose(quick(ids).data, expected, rtol=1e-9)
    assert sorted(parts) == [2, 2, 3]
    with nn.record_attention(quick) as recorded:
        quick(ids)
    assert [w.shape[0] for w in recorded["encoder.layers.0.self_attention"]] == [7]
    parts.clear()
    monkeypatch.setattr(fast, "LARGE_BATCH", np.inf)
    np.testing.assert_allclose(quick(ids).data, expected, rtol=1e-9)
    assert parts == [7]


@pytest.mark.parametrize("form", ["none", "tanh"])
def test_gelu_in_place(form: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 7, 5000)) * 4  # of several blocks
    x[0, 0, :4] = 0, 1e300, -1e300, 200
    y = gelu_in_place(x.copy(), form)
    np.testing.assert_array_equal(y, mg.gelu(x, approximate=form).data)


@pytest.mark.parametrize("blas", [True, False])
def test_layouts(blas: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights lie column by column where a BLAS reads them; without one they stay as they are."""
    from nn.generation import fast

    monkeypatch.setattr(fast, "has_blas", lambda: blas)
    rng = np.random.default_rng(0)
    for shape in ((6, 4), (4, 6), (4, 4)):
        weight = fast.in_fast_layout(rng.standard_normal(shape))
        assert weight.flags.f_contiguous == (blas and shape[0] >= shape[1])
        for n in (0, 1, 5, 200):
            rows = rng.standard_normal((n, shape[1]))
            np.testing.assert_allclose(fast.product(rows, weight), rows @ weight.T, rtol=1e-12)
            assert fast.product(rows, weight).flags.c_contiguous


class Adapted(nn.Linear):
    """A linear map with something added, as an adapter does."""

    def forward(self, x: Any) -> mg.Tensor:
        return super().forward(x) * 1.5


@pytest.mark.parametrize("name", ["self_attention.k_proj", "cross_attention.q_proj", "cross_attention.out_proj", "feed_forward.linear1"])  # fmt: skip
def test_what_is_more_than_a_linear_map_is_not_fused(name: str) -> None:
    model = made().eval()
    plain = decoded(model, ALONE)
    for layer in model.decoder.layers:
        parts = dict(layer.named_modules())
        parts[name].__class__ = Adapted
    assert decoded(nn.for_inference(model), ALONE) == decoded(model, ALONE) != plain
