"""Adapters of low rank."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import optim
from minigrad.io.safetensors import SafetensorsFile, write_safetensors

IDS = np.array([[3, 4, 5, 9], [7, 8, 6, 11]])


def model() -> nn.LanguageModel:
    return nn.LanguageModel(
        nn.LanguageModelConfig(30, 16, 4, 2, 32, max_len=20, dropout=0.0), np.random.default_rng(0)
    )


def classifier() -> nn.EncoderClassifier:
    config = nn.EncoderConfig(
        30,
        16,
        4,
        2,
        32,
        num_types=2,
        num_classes=3,
        pool="first",
        head_activation="tanh",
        positions="learned",
        embeddings=nn.EmbeddingConfig(scale=False, norm=True),
        activation="gelu",
        norm_eps=1e-12,
        dropout=0.0,
    )
    return nn.EncoderClassifier(config, np.random.default_rng(0))


def trained(lm: nn.LanguageModel, steps: int = 5) -> list[float]:
    optimizer = optim.AdamW([p for p in lm.parameters() if p.requires_grad], lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = lm.loss(IDS)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_nothing_changes_at_first_and_only_adapters_are_trained() -> None:
    lm, plain = model(), model()
    nn.lora(lm, 2, 4, ("q_proj", "linear2"))
    np.testing.assert_array_equal(lm(IDS).data, plain(IDS).data)
    names = {n for n, p in lm.named_parameters() if p.requires_grad}
    assert names == {
        f"layers.layers.{i}.{m}.lora_{x}"
        for i in (0, 1)
        for m in ("self_attention.q_proj", "feed_forward.linear2")
        for x in "ab"
    }
    losses = trained(lm)
    assert losses[-1] < losses[0] - 0.03
    for name, parameter in plain.named_parameters():
        np.testing.assert_array_equal(dict(lm.named_parameters())[name].data, parameter.data)


def test_the_loss_sees_what_is_added_to_the_output_projection() -> None:
    """The product of hidden states and weight that a loss takes by itself knows of no adapter, and of no hook."""
    lm = nn.lora(model(), 2, 4, ("output",))
    losses = trained(lm)
    assert losses[-1] < losses[0] - 0.03
    expected = mg.cross_entropy(lm(IDS[:, :-1]), IDS[:, 1:])
    assert lm.loss(IDS).item() == pytest.approx(expected.item(), rel=1e-5)
    with_hook = model()
    with_hook.output.register_forward_hook(lambda module, arguments, logits: logits * 0)
    assert with_hook.loss(IDS).item() == pytest.approx(np.log(30), rel=1e-6)


def test_merged_it_computes_the_same() -> None:
    lm = nn.lora(model(), 2, 4, ("q_proj", "k_proj", "v_proj", "out_proj", "linear1", "linear2"))
    trained(lm)
    expected = lm(IDS).data
    with_adapters = nn.generate(lm, [3, 4], max_len=5)
    nn.merge_lora(lm)
    assert not any(isinstance(m, nn.LoRALinear) for m in lm.modules()) and all(
        p.requires_grad for p in lm.parameters()
    )
    np.testing.assert_allclose(lm(IDS).data, expected, rtol=1e-4, atol=1e-5)
    assert nn.generate(lm, [3, 4], max_len=5) == with_adapters
    assert {n for n, _ in lm.named_parameters()} == {n for n, _ in model().named_parameters()}


def test_a_copy_for_inference_has_them_too() -> None:
    lm = nn.lora(model(), 2, 4, ("q_proj", "v_proj", "linear1"))
    trained(lm)
    lm.eval()
    fast = nn.for_inference(lm)
    np.testing.assert_allclose(fast(IDS).data, lm(IDS).data, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        fast.step(IDS[:, :1], fast.start()), lm(IDS[:, :1]).data[:, -1], rtol=1e-4, atol=1e-5
    )
    assert not np.allclose(fast(IDS).data, model().eval()(IDS).data, atol=1e-3)


def test_by_definition() -> None:
    linear = nn.LoRALinear(nn.Linear(5, 4), 2, 0.5)
    linear.lora_b.data[...] = np.random.default_rng(0).standard_normal((4, 2))
    x = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    whole = linear.weight.data + 0.5 * linear.lora_b.data @ linear.lora_a.data
    np.testing.assert_allclose(linear(x).data, x @ whole.T + linear.bias.data, rtol=1e-5, atol=1e-6)


def test_adapters_go_round(tmp_path: Path) -> None:
    lm = nn.lora(model(), 2, 4, ("v_proj", "linear1"))
    trained(lm)
    nn.save_adapter(tmp_path, lm, "base")
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (
        settings["r"] == 2
        and settings["rank_pattern"] == {}
        and settings["base_model_name_or_path"] == "base"
    )
    again = nn.load_adapter(tmp_path, model())
    np.testing.assert_allclose(again(IDS).data, lm(IDS).data, rtol=1e-5, atol=1e-6)
    losses = trained(again)
    assert losses[-1] < losses[0]
    labels = nn.lora(classifier(), 2, 4)
    assert (
        labels.output.weight.requires_grad
        and labels.dense is not None
        and labels.dense.weight.requires_grad
    )
    labels.output.weight.data[...] += 1
    nn.save_adapter(tmp_path / "c", labels)
    np.testing.assert_array_equal(
        nn.load_adapter(tmp_path / "c", classifier())(IDS).data, labels(IDS).data
    )


def test_an_adapter_of_a_joined_map_is_written_as_it_was(tmp_path: Path) -> None:
    lm = nn.lora(model(), 2, 4, ("q_proj", "k_proj", "v_proj"))
    trained(lm)
    nn.save_adapter(tmp_path / "1", lm)
    nn.save_adapter(tmp_path / "2", nn.load_adapter(tmp_path / "1", model()))
    for name in ("1", "2"):
        file = SafetensorsFile(tmp_path / name / "adapter_model.safetensors")
        assert {entry.shape[0 if "lora_A" in key else 1] for key, entry in file.items()} == {6}
    np.testing.assert_allclose(
        nn.load_adapter(tmp_path / "2", model())(IDS).data, lm(IDS).data, rtol=1e-5, atol=1e-6
    )


def test_each_adapter_keeps_its_scale(tmp_path: Path) -> None:
    lm = nn.lora(model(), 2, 4, ("v_proj", "linear1"))
    trained(lm)
    nn.save_adapter(tmp_path, lm)
    path = tmp_path / "adapter_config.json"
    path.write_text(
        json.dumps(
            {**json.loads(path.read_text()), "alpha_pattern": {"c_fc": 40, "h.1.attn.c_attn": 0.5}}
        )
    )
    several = nn.load_adapter(tmp_path, model())
    assert not np.allclose(several(IDS).data, lm(IDS).data, atol=1e-3)
    nn.save_adapter(tmp_path / "again", several)
    np.testing.assert_allclose(
        nn.load_adapter(tmp_path / "again", model())(IDS).data,
        several(IDS).data,
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize(
    "part", ["norm", "embedding.tokens", "layers.layers.0.feed_forward.linear2"]
)
def test_what_an_adapter_does_not_hold_is_told(tmp_path: Path, part: str) -> None:
    """A norm, an embedding; a map that GPT-2 stores the other way round."""
    lm = nn.lora(model(), 2, 4)
    dict(lm.layers.named_modules(), **dict(lm.named_modules()))[part].requires_grad_(True)
    with pytest.raises(
        ValueError,
        match="save_adapter: .* is trained too, which an adapter does not hold; see nn.save",
    ):
        nn.save_adapter(tmp_path, lm)
    assert not list(tmp_path.iterdir())


def test_adapters_are_in_the_mode_of_the_model(tmp_path: Path) -> None:
    trained_model = nn.lora(model(), 2, 4, dropout=0.5)
    trained(trained_model)
    nn.save_adapter(tmp_path, trained_model)
    expected = trained_model.eval()(IDS).data
    for made in (
        nn.load_adapter(tmp_path, model().eval()),
        nn.load_adapter(tmp_path, model()).eval(),
    ):
        np.testing.assert_array_equal(made(IDS).data, expected)
    assert not any(m.training for m in nn.lora(model().eval()).modules())


def test_an_adapter_that_contradicts_itself_changes_nothing(tmp_path: Path) -> None:
    """The rank of its settings, a number of its arrays, a pattern that never ends."""
    nn.save_adapter(tmp_path, nn.lora(model(), 2, 4))
    settings, plain = json.loads((tmp_path / "adapter_config.json").read_text()), model()
    for setting, message in (
        ({"r": 3}, "r: 3 for transformer.h.0.attn.c_attn, but its adapter"),
        (
            {"rank_pattern": {"(a+)+$": 2}},
            "rank_pattern: .*expected a name, or a simpler regular expression",
        ),
        (
            {"init_lora_weights": "pissa"},
            "init_lora_weights: expected true or false or null or gaussian",
        ),
        ({"kasa_config": {}}, "kasa_config: expected null .others are not supported"),
        ({"alpha_pattern": {"[": 2}}, "alpha_pattern: .*not a regular expression"),
        ({"alpha_pattern": {"c_attn": "x"}}, "alpha_pattern: c_attn: expected a number"),
        (
            {"alpha_pattern": {"c_attn": 1e300}},
            "alpha_pattern: c_attn: expected 0 to 1e.30, got 1e.300",
        ),
        ({"lora_dropout": 1}, "lora_dropout: expected less than 1"),
        ({"target_modules": ["c_fc"]}, "target_modules: c_fc has no adapter"),
    ):
        (tmp_path / "adapter_config.json").write_text(
            json.dumps({**settings, "rank_pattern": {}, **setting})
        )
        with pytest.raises(ValueError, match=f"adapter_config.json: {message}"):
            nn.load_adapter(tmp_path, plain)
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    file = SafetensorsFile(tmp_path / "adapter_model.safetensors")
    arrays = {name: file.read(name) for name in file}
    for first in arrays:
        for odd in (arrays[first] * np.nan, arrays[first].astype(int)):
            write_safetensors(file.path, {**arrays, first: odd})
            with pytest.raises(ValueError, match=f"adapter_model.safetensors: {first}: "):
                nn.load_adapter(tmp_path, plain)
    assert all(p.requires_grad for p in plain.parameters()) and not any(
        isinstance(m, nn.LoRALinear) for m in plain.modules()
    )


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match="lora: no linear map is named query; there are k_proj, linear1, linear2, out",
    ):
        nn.lora(model(), targets=("q_proj", "query"))
    with pytest.raises(ValueError, match=r"lora: no linear map is named \[\]; there are"):
        nn.lora(model(), targets=())
    one, several = nn.lora(model(), targets="q_proj"), nn.lora(model(), targets=["q_proj"])
    assert [name for name, _ in one.named_parameters()] == [
        name for name, _ in several.named_parameters()
    ]
    with pytest.raises(ValueError, match="lora: expected rank >= 1, got 0"):
        nn.lora(model(), 0)
    with pytest.raises(ValueError, match="lora: expected a finite alpha >= 0, got nan"):
        nn.lora(model(), 2, float("nan"))
    with pytest.raises(ValueError, match="lora: expected a finite dropout >= 0 and < 1, got 1"):
        nn.lora(model(), 2, dropout=1)
    with pytest.raises(ValueError, match="there are adapters already"):
        nn.lora(nn.lora(model()))
    with pytest.raises(ValueError, match="the model has no adapters"):
        nn.save_adapter(tmp_path, model())
    with pytest.raises(ValueError, match="the model has no adapters, but for a head's"):
        nn.save_adapter(tmp_path, nn.lora(classifier(), targets="dense"))
    with pytest.raises(ValueError, match="merge_lora"):
        nn.save(tmp_path, nn.lora(model()))
    with pytest.raises(FileNotFoundError, match="adapter_config.json: no such file"):
        nn.load_adapter(tmp_path / "x", model())
    nn.save_adapter(tmp_path, nn.lora(model(), 2, 4))
    file = SafetensorsFile(tmp_path / "adapter_model.safetensors")
    arrays = {name: file.read(name) for name in file}
    first = next(iter(arrays))
    plain = model()
    for changed, message in (
        ({**arrays, first: arrays[first][:, :3]}, "adapter_model.safetensors: .*: expected .* got"),
        (
            {n: a for n, a in arrays.items() if n != first.replace("lora_A", "lora_B")},
            "missing: .*lora_B.weight",
        ),
        (
            {n.replace("c_attn", "query"): a for n, a in arrays.items()},
            "the model has no map transformer.h.0.attn.query",
        ),
    ):
        write_safetensors(file.path, changed)
        with pytest.raises(ValueError, match=message):
            nn.load_adapter(tmp_path, plain)
    assert not any(isinstance(m, nn.LoRALinear) for m in plain.modules())


def test_what_other_adapters_do_is_refused(tmp_path: Path) -> None:
    nn.save_adapter(tmp_path, nn.lora(model(), 2, 4))
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    for setting, message in (
        ({"peft_type": "IA3"}, 'peft_type: expected one of LORA, got "IA3"'),
        ({"use_dora": True}, "use_dora: expected false"),
        ({"alora_invocation_tokens": [3]}, "alora_invocation_tokens: expected null"),
        ({"bias": "all"}, "bias: expected none"),
    ):
        (tmp_path / "adapter_config.json").write_text(json.dumps({**settings, **setting}))
        with pytest.raises(ValueError, match=f"adapter_config.json: {message}"):
            nn.load_adapter(tmp_path, model())
