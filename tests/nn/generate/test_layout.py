"""Weights laid out for decoding: the same model, whatever happens to it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import optim

SOURCE = np.array([[4, 5, 6, 8], [7, 8, 0, 0]])
TARGET = np.array([[1, 4, 5, 2], [1, 6, 2, 0]])
VARIANTS: list[dict[str, Any]] = [{}, {"bias": False, "norm_first": True}, {"tie": "all", "num_heads": 4}]


def pair(changes: dict[str, Any]) -> tuple[nn.Transformer, nn.Transformer]:
    """A model as it is made, and the same laid out."""
    config = nn.TransformerConfig(
        9, 9, 8, **{"num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2, "d_ff": 16, "dropout": 0.0,
        "max_len": 12, "dtype": "float64", **changes}
    )  # fmt: skip
    models = []
    for _ in range(2):
        mg.manual_seed(3)
        models.append(nn.Transformer(config))
    return models[0], nn.lay_out_for_decoding(models[1])


def decoded(model: nn.Transformer) -> list[tuple[list[int], float]]:
    found = [nn.greedy_search(model, SOURCE, max_len=6, eos=None), *nn.beam_search(model, SOURCE, n_best=3, max_len=6)]
    return [(h.tokens, pytest.approx(h.log_prob, rel=1e-10)) for hypotheses in found for h in hypotheses]


@pytest.mark.parametrize("changes", VARIANTS)
def test_the_model_stays_the_same(changes: dict[str, Any]) -> None:
    plain, laid = pair(changes)
    expected, got = plain.state_dict(), laid.state_dict()
    assert list(expected) == list(got)
    for name, array in expected.items():
        assert np.array_equal(array, got[name]), name
    assert decoded(laid) == decoded(plain)
    for model in (plain, laid):
        model.loss(SOURCE, TARGET).backward()
    for (name, p), q in zip(plain.named_parameters(), laid.parameters()):
        assert p.grad is not None and q.grad is not None
        np.testing.assert_allclose(q.grad.data, p.grad.data, rtol=1e-10, atol=1e-14, err_msg=name)


def test_one_product_serves_query_key_and_value_while_nothing_is_recorded() -> None:
    _, laid = pair({})
    attention = laid.decoder.layers[0].self_attention
    x = np.random.default_rng(0).standard_normal((1, 3, 8))
    with mg.no_grad(), mg.profile() as profile:
        attention(x)
    assert profile.rows["linear"].calls == 2
    with mg.profile() as profile:
        attention(x)
    assert profile.rows["linear"].calls == 4


def hooked(model: nn.Transformer) -> None:
    for layer in model.decoder.layers:
        layer.self_attention.k_proj.register_forward_hook(lambda module, args, y: y * -1)


def loaded(model: nn.Transformer) -> None:
    rng = np.random.default_rng(5)
    model.load_state_dict({name: rng.standard_normal(a.shape) for name, a in model.state_dict().items()})


def trained(model: nn.Transformer) -> None:
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model.loss(SOURCE, TARGET).backward()
        optimizer.step()


def exchanged(model: nn.Transformer) -> None:
    other = nn.Linear(8, 8, dtype=float, generator=np.random.default_rng(7))
    model.decoder.layers[1].self_attention.v_proj = other


def swapped(model: nn.Transformer) -> None:
    for layer in model.decoder.layers:
        attention = layer.self_attention
        attention.q_proj, attention.v_proj = attention.v_proj, attention.q_proj


CHANGES: list[Callable[[nn.Transformer], Any]] = [
    hooked, loaded, trained, exchanged, swapped,
    lambda model: model.astype(np.float32).astype(np.float64),
    lambda model: model.prune_heads({"decoder.layers.0.self_attention": [1], "encoder.layers.0.self_attention": [0]}),
    nn.lay_out_for_decoding,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("changes", VARIANTS)
def test_what_happens_to_a_model_happens_to_it_laid_out(
    change: Callable[[nn.Transformer], Any], changes: dict[str, Any]
) -> None:
    plain, laid = pair(changes)
    before = decoded(plain)
    for model in (plain, laid):
        change(model)
    expected = decoded(plain)
    assert decoded(laid) == expected
    if change not in (nn.lay_out_for_decoding, CHANGES[5]):
        assert expected != before


def test_a_language_model_decodes_the_same() -> None:
    mg.manual_seed(1)
    config = nn.TransformerConfig(0, 9, 8, 2, 0, 2, 16, tie="target", max_len=12, dtype="float64")
    model = nn.LanguageModel(config)
    expected = nn.greedy_search(model, prompt=[[1, 4]], max_len=5, eos=None)[0]
    got = nn.greedy_search(nn.lay_out_for_decoding(model), prompt=[[1, 4]], max_len=5, eos=None)[0]
    assert got.tokens == expected.tokens
    assert got.log_prob == pytest.approx(expected.log_prob, rel=1e-10)


def test_an_optimizer_from_before_refuses() -> None:
    plain, _ = pair({})
    optimizer = optim.SGD(plain.parameters(), lr=0.1)
    nn.lay_out_for_decoding(plain)
    plain.loss(SOURCE, TARGET).backward()
    with pytest.raises(RuntimeError, match="other memory than when its optimizer was made"):
        optimizer.step()
