"""Layers and models against PyTorch's: the same weights, the same outputs, every gradient, the same training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from beside_torch import agree

import minigrad as mg
import nn
from minigrad import Tensor, optim

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
F = torch.nn.functional
rng = np.random.default_rng(0)


def t(array: Any, grad: bool = False) -> Any:
    x = torch.tensor(np.asarray(array))
    return x.requires_grad_() if grad else x


def load(theirs: Any, **arrays: Any) -> Any:
    """Give a torch module these arrays as its parameters."""
    own = dict(theirs.named_parameters())
    with torch.no_grad():
        for name, array in arrays.items():
            own[name].copy_(torch.tensor(array))
    return theirs


def leaf(*shape: int) -> tuple[Tensor, Any]:
    x = rng.standard_normal(shape)
    return Tensor(x, requires_grad=True), t(x, True)


def paired(ours: nn.Module, theirs: Any) -> list[tuple[Tensor, Any]]:
    """Parameters of two modules that have the same names."""
    own = dict(theirs.named_parameters())
    assert set(own) == {name for name, _ in ours.named_parameters()}
    load(theirs, **{name: p.data for name, p in ours.named_parameters()})
    return [(p, own[name]) for name, p in ours.named_parameters()]


@pytest.mark.parametrize(
    "ours, theirs, shape",
    [
        (nn.Linear(4, 6, dtype=float), torch.nn.Linear(4, 6), (2, 3, 4)),
        (nn.Linear(4, 6, bias=False, dtype=float), torch.nn.Linear(4, 6, bias=False), (4,)),
        (nn.LayerNorm(5, dtype=float), torch.nn.LayerNorm(5), (2, 3, 5)),
        (
            nn.LayerNorm(5, eps=0.1, bias=False, dtype=float),
            torch.nn.LayerNorm(5, eps=0.1, bias=False),
            (3, 5),
        ),
        (nn.RMSNorm(5, eps=1e-3, dtype=float), torch.nn.RMSNorm(5, eps=1e-3), (2, 3, 5)),
        (nn.LayerNorm((3, 5), dtype=float), torch.nn.LayerNorm((3, 5)), (2, 3, 5)),
        (nn.RMSNorm([3, 5], eps=1e-6, dtype=float), torch.nn.RMSNorm([3, 5], eps=1e-6), (2, 3, 5)),
        (nn.BatchNorm1d(5, dtype=float), torch.nn.BatchNorm1d(5), (7, 5)),
    ],
    ids=lambda v: repr(v) if isinstance(v, nn.Module) else None,
)
def test_simple_layers(ours: nn.Module, theirs: Any, shape: tuple[int, ...]) -> None:
    theirs = theirs.double()
    for p in ours.parameters():
        p.data += 0.3 * rng.standard_normal(p.shape)
    pairs = paired(ours, theirs)
    x = leaf(*shape)
    agree([x, *pairs], ours(x[0]), theirs(x[1]))
    if isinstance(ours, nn.BatchNorm1d):
        ours(x[0] * 2)
        theirs(x[1] * 2)
        np.testing.assert_allclose(ours.running_mean, theirs.running_mean.numpy())
        np.testing.assert_allclose(ours.running_var, theirs.running_var.numpy())
        agree([x, *pairs], ours.eval()(x[0]), theirs.eval()(x[1]))


def test_embedding() -> None:
    ours, ids = nn.Embedding(6, 3, padding_idx=0, dtype=float), np.array([[1, 5, 0], [1, 1, 2]])
    theirs = torch.nn.Embedding(6, 3, padding_idx=0).double()
    agree(paired(ours, theirs), ours(ids), theirs(t(ids)))


@pytest.mark.parametrize(
    "name", ["relu", "gelu", "gelu_tanh", "silu", "elu", "leaky_relu", "tanh", "sigmoid"]
)
def test_activations(name: str) -> None:
    x = leaf(4, 5)
    theirs = {
        "gelu_tanh": lambda v: F.gelu(v, approximate="tanh"),
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
    }
    agree([x], nn.activation_named(name)(x[0]), theirs.get(name, getattr(F, name, None))(x[1]))


@pytest.mark.parametrize(
    "options",
    [{}, {"label_smoothing": 0.1}, {"weight": True}, {"weight": True, "label_smoothing": 0.2}],
)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(options: dict[str, Any], reduction: str) -> None:
    x, targets = leaf(6, 5), np.array([0, 4, 2, -100, 1, 1])
    weight = rng.uniform(0.5, 2, 5) if options.get("weight") else None
    ours = mg.cross_entropy(x[0], targets, **{**options, "weight": weight}, reduction=reduction)
    theirs = F.cross_entropy(
        x[1],
        t(targets),
        **{**options, "weight": None if weight is None else t(weight)},
        reduction=reduction,
    )
    agree([x], ours, theirs)


def their_attention(ours: nn.MultiHeadAttention, **options: Any) -> Any:
    theirs = torch.nn.MultiheadAttention(
        ours.d_model, ours.num_heads, batch_first=True, **options
    ).double()
    layers = (ours.q_proj, ours.k_proj, ours.v_proj)
    with torch.no_grad():
        if theirs.in_proj_weight is not None:
            theirs.in_proj_weight.copy_(t(np.concatenate([layer.weight.data for layer in layers])))
        else:
            for name, layer in zip("qkv", layers):
                getattr(theirs, f"{name}_proj_weight").copy_(t(layer.weight.data))
        theirs.in_proj_bias.copy_(t(np.concatenate([layer.bias.data for layer in layers])))
        theirs.out_proj.weight.copy_(t(ours.out_proj.weight.data))
        theirs.out_proj.bias.copy_(t(ours.out_proj.bias.data))
    return theirs


@pytest.mark.parametrize("sizes", [{}, {"key_size": 5, "value_size": 7}])
@pytest.mark.parametrize("which", ["none", "padding", "causal", "both", "any"])
def test_multi_head_attention(which: str, sizes: dict[str, int]) -> None:
    """PyTorch's masks have the opposite polarity."""
    ours = nn.MultiHeadAttention(8, 4, **sizes, dtype=float)
    theirs = their_attention(ours, kdim=sizes.get("key_size"), vdim=sizes.get("value_size"))
    q, k, v = (
        leaf(2, 5, 8),
        leaf(2, 5, sizes.get("key_size", 8)),
        leaf(2, 5, sizes.get("value_size", 8)),
    )
    padding = (
        np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool) if which in ("padding", "both") else None
    )
    mask = {
        "causal": nn.causal_mask(5),
        "both": nn.causal_mask(5),
        "any": rng.random((5, 5)) < 0.7,
    }.get(which)
    if mask is not None:
        mask[:, 0] = True  # a row of nothing is NaN there
    run = lambda: theirs(
        q[1],
        k[1],
        v[1],
        key_padding_mask=None if padding is None else t(~padding),
        attn_mask=None if mask is None else t(~mask),
        average_attn_weights=False,
    )
    outer = [
        (ours.out_proj.weight, theirs.out_proj.weight),
        (ours.out_proj.bias, theirs.out_proj.bias),
    ]
    allowed = mask if padding is None else padding[:, None, None] & (True if mask is None else mask)
    agree([q, k, v, *outer], ours(q[0], k[0], v[0], allowed), run()[0])
    with nn.record_attention(ours) as recorded:
        got = ours(q[0], k[0], v[0], allowed)
    y, weights = run()
    np.testing.assert_allclose(recorded[""][0], weights.detach().numpy(), rtol=1e-10, atol=1e-12)
    g = rng.standard_normal(y.shape)
    layers = (ours.q_proj, ours.k_proj, ours.v_proj)
    found = mg.gradients(got, [p for layer in layers for p in (layer.weight, layer.bias)], g)
    names = ["in_proj_weight"] if not sizes else ["q_proj_weight", "k_proj_weight", "v_proj_weight"]
    *by_weight, by_bias = torch.autograd.grad(
        y, [*(getattr(theirs, n) for n in names), theirs.in_proj_bias], t(g)
    )
    by_weight = by_weight[0].chunk(3) if not sizes else by_weight
    for i, (w, b) in enumerate(zip(by_weight, by_bias.chunk(3))):
        np.testing.assert_allclose(found[2 * i].data, w.numpy(), rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(found[2 * i + 1].data, b.numpy(), rtol=1e-9, atol=1e-10)


# -- the whole model -------------------------------------------------------------------------------------


def their_name(name: str) -> str:
    """The name in torch.nn.Transformer of a parameter of our Encoder or Decoder."""
    for ours, theirs in (
        ("self_attention.out_proj", "self_attn.out_proj"),
        ("cross_attention.out_proj", "multihead_attn.out_proj"),
        ("feed_forward.linear", "linear"),
    ):
        name = name.replace(ours, theirs)
    return name


class Theirs(torch.nn.Module):
    """The same model, in PyTorch's own Transformer layers."""

    def __init__(self, ours: nn.Transformer, dtype: Any) -> None:
        super().__init__()
        c = ours.config
        self.c = c
        self.source, self.target = (
            torch.nn.Embedding(n, c.d_model, padding_idx=0)
            for n in (c.source_vocab_size, c.target_vocab_size)
        )
        options = {
            "dim_feedforward": c.d_ff,
            "dropout": c.dropout,
            "activation": c.activation,
            "norm_first": c.norm_first,
            "batch_first": True,
        }
        final = lambda: torch.nn.LayerNorm(c.d_model) if c.has_final_norm else None
        encoder_layer = torch.nn.TransformerEncoderLayer(c.d_model, c.num_heads, **options)
        decoder_layer = torch.nn.TransformerDecoderLayer(c.d_model, c.num_heads, **options)
        self.encoder = torch.nn.TransformerEncoder(
            encoder_layer, c.num_encoder_layers, final(), enable_nested_tensor=False
        )
        self.decoder = torch.nn.TransformerDecoder(decoder_layer, c.num_decoder_layers, final())
        self.output = torch.nn.Linear(c.d_model, c.target_vocab_size)
        self.to(dtype)
        self.register_buffer("table", t(nn.sinusoidal_table(c.max_len, c.d_model)).to(dtype))
        self.load(ours)

    def load(self, ours: nn.Transformer) -> None:
        arrays = {"source.weight": ours.source_embedding.tokens.weight.data, "target.weight": ours.target_embedding.tokens.weight.data,
                  "output.weight": ours.output.weight.data, "output.bias": ours.output.bias.data}  # fmt: skip
        joined: dict[str, list[np.ndarray]] = {}
        for side in ("encoder", "decoder"):
            for name, p in getattr(ours, side).named_parameters():
                if any(f"{x}_proj." in name for x in "qkv"):
                    block = name.replace("self_attention", "self_attn").replace(
                        "cross_attention", "multihead_attn"
                    )
                    stem, _, kind = block.rpartition(".")
                    joined.setdefault(
                        f"{side}.{stem.rpartition('.')[0]}.in_proj_{kind}", []
                    ).append(p.data)
                else:
                    arrays[f"{side}.{their_name(name)}"] = p.data
        arrays |= {name: np.concatenate(parts) for name, parts in joined.items()}
        assert set(arrays) == {name for name, _ in self.named_parameters()}
        load(self, **arrays)

    def forward(self, source: Any, target: Any) -> Any:
        embed = lambda table, ids: table(ids) * self.c.d_model**0.5 + self.table[: ids.shape[1]]
        padding = source == 0
        memory = self.encoder(embed(self.source, source), src_key_padding_mask=padding)
        causal = torch.triu(torch.ones(target.shape[1], target.shape[1], dtype=torch.bool), 1)
        x = self.decoder(
            embed(self.target, target), memory, tgt_mask=causal, memory_key_padding_mask=padding
        )
        return self.output(x)

    def gradients(self, ours: nn.Transformer) -> dict[str, np.ndarray]:
        """Their gradients under our names."""
        own = {name: p.grad.numpy() for name, p in self.named_parameters()}
        found = {"source_embedding.tokens.weight": own["source.weight"], "target_embedding.tokens.weight": own["target.weight"],
                 "output.weight": own["output.weight"], "output.bias": own["output.bias"]}  # fmt: skip
        for side in ("encoder", "decoder"):
            for name, _ in getattr(ours, side).named_parameters():
                if any(f"{x}_proj." in name for x in "qkv"):
                    block = name.replace("self_attention", "self_attn").replace(
                        "cross_attention", "multihead_attn"
                    )
                    stem, _, kind = block.rpartition(".")
                    stem, _, which = stem.rpartition(".")
                    found[f"{side}.{name}"] = np.split(own[f"{side}.{stem}.in_proj_{kind}"], 3)[
                        "qkv".index(which[0])
                    ]
                else:
                    found[f"{side}.{name}"] = own[f"{side}.{their_name(name)}"]
        return found


def batch(seed: int = 0, n: int = 6) -> tuple[np.ndarray, np.ndarray]:
    r = np.random.default_rng(seed)
    source, target = r.integers(4, 20, (n, 7)), r.integers(4, 23, (n, 8))
    source[::2, -3:] = 0
    target[:, 0] = 1
    target[1::2, -2:] = 0
    return source, target


def model_pair(norm_first: bool, activation: str, dtype: str) -> tuple[nn.Transformer, Theirs]:
    mg.manual_seed(3)
    c = nn.TransformerConfig(20, 23, 16, 4, 2, 2, 32, dropout=0.0, activation=activation, norm_first=norm_first, dtype=dtype, max_len=16)  # fmt: skip
    ours = nn.Transformer(c)
    return ours, Theirs(ours, getattr(torch, dtype))


@pytest.mark.filterwarnings("ignore:.*nested.*:UserWarning")
@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_whole_model_and_all_gradients(norm_first: bool, activation: str) -> None:
    ours, theirs = model_pair(norm_first, activation, "float64")
    source, target = batch()
    y, their_y = ours(source, target[:, :-1]), theirs(t(source), t(target[:, :-1]))
    np.testing.assert_allclose(y.data, their_y.detach().numpy(), rtol=1e-9, atol=1e-11)
    loss = F.cross_entropy(
        their_y.reshape(-1, 23), t(target[:, 1:]).reshape(-1), ignore_index=0, label_smoothing=0.1
    )
    loss.backward()
    mine = ours.loss(source, target, 0.1)
    assert mine.item() == pytest.approx(loss.item(), rel=1e-12)
    mine.backward()
    expected = theirs.gradients(ours)
    assert set(expected) == {name for name, _ in ours.named_parameters()}
    for name, p in ours.named_parameters():
        np.testing.assert_allclose(p.grad.data, expected[name], rtol=1e-8, atol=1e-11, err_msg=name)


@pytest.mark.filterwarnings("ignore:.*nested.*:UserWarning")
@pytest.mark.parametrize(
    "dtype, tolerance, norm_first",
    [("float64", 1e-9, False), ("float64", 1e-9, True), ("float32", 1e-3, True)],
    ids=["post", "pre", "pre in float32"],
)
def test_a_hundred_training_steps_follow_the_same_curve(
    dtype: str, tolerance: float, norm_first: bool
) -> None:
    ours, theirs = model_pair(norm_first, "relu", dtype)
    settings = {"lr": 1e-3, "betas": (0.9, 0.98), "eps": 1e-9}
    adam, their_adam = (
        optim.Adam(ours.parameters(), **settings, clip_norm=1.0),
        torch.optim.Adam(theirs.parameters(), **settings),
    )
    losses = []
    for step in range(100):
        source, target = batch(step % 7)
        adam.zero_grad()
        mine = ours.loss(source, target, 0.1)
        mine.backward()
        norm = adam.step()
        their_adam.zero_grad()
        y = theirs(t(source), t(target[:, :-1]))
        loss = F.cross_entropy(
            y.reshape(-1, 23), t(target[:, 1:]).reshape(-1), ignore_index=0, label_smoothing=0.1
        )
        loss.backward()
        their_norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        their_adam.step()
        losses.append((mine.item(), loss.item()))
        assert norm == pytest.approx(their_norm.item(), rel=10 * tolerance)
    losses = np.array(losses)
    assert losses[-7:, 0].mean() < 0.8 * losses[:7, 0].mean()
    np.testing.assert_allclose(losses[:, 0], losses[:, 1], rtol=tolerance, atol=0)


# -- optimizers ------------------------------------------------------------------------------------------

OPTIMIZERS = [
    (optim.SGD, torch.optim.SGD, {"lr": 0.1}),
    (optim.SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (
        optim.SGD,
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    (optim.Adam, torch.optim.Adam, {"lr": 0.01}),
    (
        optim.Adam,
        torch.optim.Adam,
        {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1},
    ),
    (optim.AdamW, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(
    "ours, theirs, settings", OPTIMIZERS, ids=lambda v: v.__name__ if isinstance(v, type) else None
)
def test_optimizers(ours: Any, theirs: Any, settings: dict[str, Any]) -> None:
    starts = [rng.standard_normal(s) for s in ((3, 4), (5,), (2, 2), ())]
    leaves = [Tensor(x.copy(), requires_grad=True) for x in starts]
    their_leaves = [t(x, True) for x in starts]
    mine = ours([{"params": leaves[:2]}, {"params": leaves[2:], "lr": 0.003}], **settings)
    other = theirs(
        [{"params": their_leaves[:2]}, {"params": their_leaves[2:], "lr": 0.003}], **settings
    )
    for step in range(12):
        mine.zero_grad()
        other.zero_grad()
        for i, (p, q) in enumerate(zip(leaves, their_leaves)):
            if (step + i) % 4 == 3:
                continue  # a parameter without a gradient is left alone
            g = rng.standard_normal(p.shape)
            p.grad, q.grad = g.copy(), t(g)
        mine.step()
        other.step()
        for p, q in zip(leaves, their_leaves):
            np.testing.assert_allclose(p.data, q.detach().numpy(), rtol=1e-10, atol=1e-13)


def test_clip_grad_norm() -> None:
    ours, theirs = leaf(3, 4), leaf(5)
    for scale in (0.01, 10.0, 1e-170):
        gs = [scale * rng.standard_normal(p[0].shape) for p in (ours, theirs)]
        for (p, q), g in zip((ours, theirs), gs):
            p.grad, q.grad = g.copy(), t(g)
        norm = optim.clip_grad_norm_([ours[0], theirs[0]], 1.0)
        assert norm == pytest.approx(
            torch.nn.utils.clip_grad_norm_([ours[1], theirs[1]], 1.0).item()
        )
        for p, q in (ours, theirs):
            np.testing.assert_allclose(p.grad.data, q.grad.numpy(), rtol=1e-12)
