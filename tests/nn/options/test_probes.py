"""Recorded attention weights in the graph: gradients, gates, dropout and frozen models."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import assert_gradients, normal, perturb, seeds

import minigrad as mg
import nn
from minigrad.tensor import unwrap
from nn.options.probes import attending

SIZES: dict[str, Any] = {"d_model": 8, "num_heads": 4, "d_ff": 12, "dropout": 0.0}
IDS = np.array([[4, 5, 6, 4], [7, 8, 3, 0]])


def new_model(kind: str, seed: int) -> Any:
    """Return a model with float64 parameters."""
    if kind == "transformer":
        config = nn.EncoderDecoderConfig(9, 9, num_encoder_layers=1, num_decoder_layers=2, **SIZES)
        model: Any = nn.Transformer(config)
    elif kind == "language model":
        grouped = nn.AttentionConfig(num_kv_heads=2)
        options = {"attention": grouped, "positions": "rotary", "activation": "gelu"}
        model = nn.LanguageModel(nn.DecoderOnlyConfig(9, num_layers=2, **SIZES, **options))
    else:
        config = nn.EncoderConfig(9, num_layers=2, positions="relative", **SIZES)
        model = nn.MaskedLanguageModel(config)
    return perturb(model.astype(float), seed).eval()


def inputs_of(kind: str) -> tuple[np.ndarray, ...]:
    return (IDS, IDS[:, :3]) if kind == "transformer" else (IDS,)


def moved(model: nn.Module, call: str, change: np.ndarray) -> Any:
    """Return a context in which `change` (N, h, L_q, L_kv) is added to the weights of a call."""

    def probe(name: str, attention: Any, function: Any) -> Any:
        def attend(q: Any, k: Any, v: Any, mask: Any) -> Any:
            values = np.repeat(v.data, q.shape[1] // v.shape[1], axis=1)
            return function(q, k, v, mask) + change @ values

        return attend if name == call else function

    return attending(model, probe)


@given(
    kind=st.sampled_from(["transformer", "language model", "encoder"]), data=st.data(), seed=seeds
)
def test_gradient_by_recorded_weight_equals_difference_of_model_with_moved_weight(
    kind: str, data: Any, seed: int
) -> None:
    """Compare the derivatives of the log-probability of a token by any cell of any attention, masked cells included."""
    model, inputs = new_model(kind, seed), inputs_of(kind)
    draw = lambda shape: tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    with nn.record_attention(model, retain_grad=True) as recorded:
        log_p = mg.log_softmax(model(*inputs))
    name = data.draw(st.sampled_from(sorted(recorded)))
    (weights,) = recorded[name]
    output, cell = draw(log_p.shape), draw(weights.shape)
    (gradient,) = mg.gradients(log_p[output], [weights])
    differences = []
    for step in (1e-4, 1e-5, 1e-6):  # a step can cross the kink of a ReLU
        change = np.zeros(weights.shape)
        change[cell] = step
        values = []
        for sign in (1, -1):
            with mg.no_grad(), moved(model, name, sign * change):
                values.append(mg.log_softmax(model(*inputs)).data[output])
        differences.append((values[0] - values[1]) / (2 * step))
    found = gradient.data[cell]
    assert min(abs(found - d) for d in differences) < 1e-6 * (1 + abs(found)), differences
    assert all((x.grad is None) for calls in recorded.values() for x in calls)


@pytest.mark.parametrize("kind", ["transformer", "language model", "encoder"])
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_weights_recorded_in_the_graph_are_those_of_the_kernel(kind: str, p: float) -> None:
    """The results and all gradients are equal too, with the same random numbers for dropout."""
    model, inputs = new_model(kind, 3).train(), inputs_of(kind)
    attentions = [m for m in model.modules() if isinstance(m, nn.MultiHeadAttention)]
    results = []
    for retain_grad in (False, True):
        for i, attention in enumerate(attentions):
            attention.dropout, attention.generator = p, np.random.default_rng(i)
        model.zero_grad()
        with nn.record_attention(model, retain_grad=retain_grad) as recorded:
            y = model(*inputs)
        (y * np.cos(np.arange(y.size)).reshape(y.shape)).sum().backward()
        results.append([y, *(x for calls in recorded.values() for x in calls)])
        results.append([x.grad for x in model.parameters()])
        if retain_grad:
            assert all(x.grad.shape == x.shape for calls in recorded.values() for x in calls)
    for expected, found in zip(results[0] + results[1], results[2] + results[3], strict=True):
        assert (found is None) == (expected is None)
        if found is not None:
            np.testing.assert_allclose(unwrap(found), unwrap(expected), rtol=1e-9, atol=1e-12)


def test_gradients_by_weights_of_gated_heads_have_the_gate_as_factor() -> None:
    model = new_model("language model", 5)
    name = "layers.layers.1.self_attention"
    gates = {name: np.array([1.0, 0, 1, 0])}
    with nn.gate_heads(model, gates), nn.record_attention(model, retain_grad=True) as recorded:
        (g,) = mg.gradients(model(IDS)[0, 3, 4], recorded[name])
    assert (g.data[0, [1, 3]] == 0).all() and (g.data[0, [0, 2]] != 0).any()
    with nn.record_attention(model, retain_grad=True), nn.gate_heads(model, gates):
        with pytest.raises(ValueError, match="retain_grad must be False .* Enter gate_heads first"):
            model(IDS)


@pytest.mark.parametrize("kind", ["transformer", "language model", "encoder"])
@pytest.mark.parametrize("shape", [(4,), (2, 4)])
def test_gates_of_heads_have_gradients(kind: str, shape: tuple[int, ...]) -> None:
    """A gate multiplies the output of its head, in each row of a batch or in all."""
    model, inputs = new_model(kind, 3), inputs_of(kind)
    names = list(nn.attentions_of(model))
    gates = {n: mg.tensor(normal(i, *shape), requires_grad=True) for i, n in enumerate(names)}

    def gated() -> Any:
        with nn.gate_heads(model, gates):
            return model(*inputs)

    assert_gradients(gated, list(gates.values()), 0)
    for gate in gates.values():
        gate.data[...] = 1
    np.testing.assert_allclose(gated().data, model(*inputs).data, rtol=1e-9)


def test_weights_are_recorded_in_the_graph_of_frozen_model_and_without_graph_in_no_grad() -> None:
    model = new_model("encoder", 7)
    for p in model.parameters():
        p.requires_grad_(False)
    with nn.record_attention(model, retain_grad=True) as recorded:
        y = model(IDS)[0, 0, 0]
        with mg.no_grad():
            model(IDS)
    y.backward()
    for first, second in recorded.values():
        assert np.abs(first.grad.data).max() > 0 and not second.requires_grad


@pytest.mark.parametrize("kind", [nn.MultiHeadAttention, nn.ExtendedAttention])
@pytest.mark.parametrize("retain", [True, False])
def test_recorded_weights_equal_the_formula_for_lengths_other_than_the_width(
    kind: Any, retain: bool
) -> None:
    attention = kind(8, 2, dtype=float, generator=np.random.default_rng(0))
    query, memory = normal(0, 1, 3, 8), normal(1, 1, 5, 8)
    mask = np.tri(3, 5, 2, dtype=bool)
    q, k = (
        (x @ p.weight.data.T + p.bias.data).reshape(-1, 2, 4).swapaxes(0, 1)
        for x, p in ((query, attention.q_proj), (memory, attention.k_proj))
    )
    weights = np.exp(np.where(mask, q @ k.swapaxes(1, 2) / 2, -np.inf))
    with nn.record_attention(attention, retain_grad=retain) as recorded:
        attention(query, memory, mask)
    (found,) = recorded[""]
    found = found.data if retain else found
    np.testing.assert_allclose(found[0], weights / weights.sum(-1, keepdims=True), rtol=1e-9)


def test_attention_with_hooks_is_recorded_and_its_hooks_are_called() -> None:
    attention, x, calls = nn.MultiHeadAttention(8, 2), normal(0, 1, 3, 8), []
    attention.register_forward_hook(lambda module, args, y: calls.append(len(args)) or y * 0)
    attention.register_forward_pre_hook(lambda module, args: (args[0][:, :2],))
    record = nn.record_attention
    with record(attention) as outer, record(attention) as middle, record(attention) as inner:
        y = attention(x)
    assert y.shape == (1, 2, 8) and not y.data.any() and calls == [1]
    recorded = [call for records in (outer, middle, inner) for call in records[""]]
    assert [w.shape for w in recorded] == [(1, 2, 2, 2)] * 3


def test_probes_end_with_an_error() -> None:
    model = new_model("language model", 0)
    expected = model(IDS).data
    gates = {name: np.zeros(4) for name in nn.attentions_of(model)}
    for probe in (
        nn.record_attention(model),
        nn.record_attention(model, retain_grad=True),
        nn.gate_heads(model, gates),
        nn.record_hidden(model),
    ):
        with pytest.raises(ZeroDivisionError), probe as recorded:
            _ = 1 / 0
        np.testing.assert_array_equal(model(IDS).data, expected)
        assert recorded is None or not any(recorded.values())
        assert not any(module.has_hooks for module in model.modules())


def test_recorded_attention_refuses_masks_and_gates_as_the_attention_does() -> None:
    attention, x = nn.MultiHeadAttention(8, 2), np.ones((1, 3, 8), np.float32)
    for block in (
        nullcontext(),
        *(nn.record_attention(attention, retain_grad=r) for r in (False, True)),
    ):
        with block, pytest.raises(TypeError, match="mask must be booleans, True = may attend"):
            attention(x, mask=np.tri(3))
    for gate in (0.5, np.ones(1), np.ones(3), np.ones((1, 1)), np.ones((2, 2))):
        with (
            nn.gate_heads(attention, {"": gate}),
            pytest.raises(ValueError, match="gate must have"),
        ):
            attention(x)
