"""Adapters of low rank."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiny_folders import encoder_folder

import minigrad as mg
import nn
from minigrad import optim
from minigrad.io import load_arrays
from minigrad.io.safetensors import SafetensorsFile, write_safetensors

IDS = np.array([[3, 4, 5, 9], [7, 8, 6, 11]])


def model() -> nn.LanguageModel:
    config = nn.LanguageModelConfig(30, 16, 4, 2, 32, max_len=20, dropout=0.0)
    return nn.LanguageModel(config, np.random.default_rng(0))


def classifier() -> nn.EncoderClassifier:
    """Return a small BERT that classifies in three classes."""
    config = nn.EncoderConfig(
        30, 16, 4, 1, 32, num_types=2, num_classes=3, pool="first", head_activation="tanh", positions="learned",
        embeddings=nn.EmbeddingConfig(scale=False, norm=True), activation="gelu",
    )  # fmt: skip
    return nn.EncoderClassifier(config)


def trained(lm: nn.LanguageModel) -> nn.LanguageModel:
    """Train a model, and check that its loss falls."""
    optimizer = optim.AdamW([p for p in lm.parameters() if p.requires_grad], lr=0.05)
    first = lm.loss(IDS).item()
    for _ in range(5):
        optimizer.zero_grad()
        lm.loss(IDS).backward()
        optimizer.step()
    assert lm.loss(IDS).item() < first - 0.03
    return lm


def test_lora_changes_nothing_at_first_and_trains_only_adapters() -> None:
    lm = nn.lora(model(), 2, 4, "linear2")
    np.testing.assert_array_equal(lm(IDS).data, model()(IDS).data)
    with_dropout = nn.lora(model(), 2, 4, "linear2", dropout=0.5)  # of adapters alone
    np.testing.assert_array_equal(with_dropout(IDS).data, lm(IDS).data)
    names = {name for name, p in lm.named_parameters() if p.requires_grad}
    path = "layers.layers.{}.feed_forward.linear2.lora_{}"
    assert names == {path.format(i, part) for i in (0, 1) for part in "ab"}
    config = replace(classifier().config, head_norm=True)
    head = nn.lora(nn.EncoderClassifier(config), 2, 4, "k_proj")
    names = {name for name, p in head.named_parameters() if p.requires_grad}
    ends = {f"{part}.{end}" for part in ("dense", "norm", "output") for end in ("weight", "bias")}
    assert names - ends == {f"encoder.layers.0.self_attention.k_proj.lora_{x}" for x in "ab"}
    assert names > ends


def test_lora_adapts_queries_and_values_by_default() -> None:
    lm = nn.lora(model())
    layers = {name.split(".")[-2] for name, p in lm.named_parameters() if p.requires_grad}
    assert layers == {"q_proj", "v_proj"}
    layer = lm.layers.layers[0].self_attention.v_proj
    assert (layer.rank, layer.scale) == (8, 2.0)
    for targets in ([], "proj", "inear1", ["v_proj", "layers.linear1"], "attention_q_proj"):
        with pytest.raises(ValueError, match="targets must be ends of names of linear layers"):
            nn.lora(model(), targets=targets)


@pytest.mark.parametrize(("name", "values"), [
    ("rank", (0, -1, 1.5, True, "2", None)), ("alpha", (-1, np.nan, np.inf, "2", None)), ("dropout", (1, 1.5, -0.1, np.nan, "0")),
])  # fmt: skip
def test_lora_refuses_other_numbers(name: str, values: tuple[Any, ...]) -> None:
    lm = model()
    for value in values:
        with pytest.raises((TypeError, ValueError), match=f"lora: {name} must be"):
            nn.lora(lm, **{name: value})
    assert nn.lora(lm, 1, 0.0).layers.layers[0].self_attention.q_proj.scale == 0.0


@pytest.mark.parametrize("number", [int, float, np.float64, np.int64, np.float32])
def test_lora_with_numbers_of_numpy_keeps_the_dtype(number: Any) -> None:
    lm = nn.lora(model(), 2, number(4), "linear2").eval()
    for layer in lm.layers.layers:
        layer.feed_forward.linear2.lora_b.data[...] = 0.1
    expected = lm(IDS).data
    merged = nn.merge_lora(lm)
    assert {p.dtype for p in merged.parameters()} == {np.dtype("float32")} == {expected.dtype}
    np.testing.assert_allclose(merged(IDS).data, expected, rtol=1e-4, atol=1e-5)


def test_lora_draws_a_as_a_linear_layer_and_b_is_zero() -> None:
    """Values of A are uniform up to 1 / sqrt(in_features); targets may be any iterable."""
    generator = np.random.default_rng(0)
    lm = nn.lora(model(), 40, 4, iter(["linear1", "linear2"]), generator=generator)
    for part in ("linear1", "linear2"):
        layer = getattr(lm.layers.layers[1].feed_forward, part)
        bound = layer.in_features**-0.5
        assert 0.97 * bound < np.abs(layer.lora_a.data).max() <= bound
        assert layer.scale == 0.1 and layer.rank == 40 and not layer.lora_b.data.any()


def test_drawn_parameters_are_those_of_the_generator(tmp_path: Path) -> None:
    """Compare A of adapters, the head of a loaded encoder, and masks of dropout."""
    encoder_folder(tmp_path)

    def drawn(seed: int) -> list[np.ndarray]:
        generator = np.random.default_rng(seed)
        linear = nn.LoRALinear(nn.Linear(3, 2), 2, 1.0, generator=generator)
        lm = nn.lora(model(), 2, 4, "linear2", generator=generator)
        layers = [linear, *(layer.feed_forward.linear2 for layer in lm.layers.layers)]
        head = nn.load(tmp_path, "classes", num_classes=5, generator=generator)
        base = nn.Linear(3, 2, bias=False)
        base.weight.data[...] = 0
        dropped = nn.LoRALinear(base, 2, 1.0, dropout=0.5, generator=generator)
        dropped.lora_b.data[...] = 1
        output = dropped(np.ones((9, 3), np.float32)).data
        return [*(layer.lora_a.data for layer in layers), head.output.weight.data, output]

    first, again, other = map(drawn, (1, 1, 2))
    assert all(map(np.array_equal, first, again))
    assert not any(map(np.array_equal, first, other))


def test_loss_with_lora_or_hook_of_the_output_projection_uses_it() -> None:
    """Avoid the fused loss, which reads the weight without adapters and hooks."""
    lm = trained(nn.lora(model(), 2, 4, ("output",)))
    expected = mg.cross_entropy(lm(IDS[:, :-1]), IDS[:, 1:])
    assert lm.loss(IDS).item() == pytest.approx(expected.item(), rel=1e-5)
    with_hook = model()
    with_hook.output.register_forward_hook(lambda module, arguments, logits: logits * 0)
    assert with_hook.loss(IDS).item() == pytest.approx(np.log(30), rel=1e-6)


def test_merge_lora_keeps_the_outputs() -> None:
    lm = trained(nn.lora(model(), 2, 4, ("q_proj", "k_proj", "v_proj", "out_proj", "linear1")))
    expected = lm.eval()(IDS).data
    for merged in (nn.for_inference(lm), nn.merge_lora(lm)):
        np.testing.assert_allclose(merged(IDS).data, expected, rtol=1e-4, atol=1e-5)
    assert all(p.requires_grad for p in lm.parameters())
    assert lm.state_dict().keys() == model().state_dict().keys()


def test_adapter_of_a_bounded_output_projection_is_bounded_and_merged() -> None:
    """Apply the bound of Gemma 2 to the sum with the adapter, in float64 as in the layer."""
    config = nn.DecoderOnlyConfig(30, 16, 4, 1, 32, logit_softcap=0.5, dtype="float64", tie=False)
    lm = nn.lora(nn.LanguageModel(config), 2, 4, "output").eval()
    assert lm.output.lora_a.dtype == lm.output.lora_b.dtype == np.float64
    lm.output.lora_b.data[...] = np.random.default_rng(0).standard_normal((30, 2))
    weight = lm.output.weight.data + 4 / 2 * lm.output.lora_b.data @ lm.output.lora_a.data
    expected = 0.5 * np.tanh(lm.hidden(IDS).data @ weight.T / 0.5)
    assert np.abs(expected).max() > 0.4
    np.testing.assert_allclose(lm(IDS).data, expected, rtol=1e-9)
    merged = nn.merge_lora(lm)
    np.testing.assert_allclose(merged(IDS).data, expected, rtol=1e-9)
    assert type(merged.output) is not nn.Linear and merged.output.weight.dtype == np.float64


def test_merge_lora_keeps_the_bias_of_marian_frozen(tmp_path: Path) -> None:
    config = nn.EncoderDecoderConfig(
        20, 20, 16, 4, 1, 1, 32, tie="all", output_bias=True, max_len=20, positions="sinusoidal_halves"
    )  # fmt: skip
    translator = nn.Transformer(config)
    translator.output.bias.data[...] = 1
    nn.save(tmp_path, translator)
    loaded = nn.load(tmp_path)
    merged = nn.merge_lora(nn.lora(loaded, 2, 4))
    assert [name for name, p in merged.named_parameters() if not p.requires_grad] == ["output.bias"]


def check_loaded(directory: Path, adapted: nn.LanguageModel) -> nn.LanguageModel:
    """Assert that the adapter of a directory gives the outputs of a model, and return its model."""
    loaded = nn.load_adapter(directory, model())
    np.testing.assert_allclose(loaded(IDS).data, adapted(IDS).data, rtol=1e-5, atol=1e-6)
    return loaded


def test_save_adapter_of_a_joined_layer_writes_one_array(tmp_path: Path) -> None:
    lm = trained(nn.lora(model(), 2, 4, ("q_proj", "k_proj", "v_proj")))
    lm.layers.layers[0].self_attention.k_proj.scale = 5.0  # one scale is written for all
    nn.save_adapter(tmp_path / "1", lm)
    nn.save_adapter(tmp_path / "2", check_loaded(tmp_path / "1", lm))
    check_loaded(tmp_path / "2", lm)
    file = SafetensorsFile(tmp_path / "2/adapter_model.safetensors")
    assert {entry.shape[0 if "lora_A" in key else 1] for key, entry in file.items()} == {6}


def test_save_adapter_writes_a_joined_array_of_which_a_part_is_trained(tmp_path: Path) -> None:
    """Beside it, an adapter of the same layer becomes part of its weight."""
    lm = nn.lora(model(), 2, 4, ("v_proj", "linear1"))
    lm.layers.layers[1].self_attention.q_proj.requires_grad_(True)
    trained(lm)
    nn.save_adapter(tmp_path, lm)
    loaded = check_loaded(tmp_path, lm)
    assert loaded.layers.layers[1].self_attention.k_proj.weight.requires_grad
    names = {
        name for name in SafetensorsFile(tmp_path / "adapter_model.safetensors") if "c_attn" in name
    }
    assert len(names) == 4 and sum("h.1." in name and "lora" not in name for name in names) == 2


@pytest.mark.parametrize("scales", [(0, 0), (0, 3), (3, 0)])
def test_save_adapter_with_scale_zero_keeps_the_outputs(
    tmp_path: Path, scales: tuple[float, float]
) -> None:
    lm = trained(nn.lora(model(), 2, 4, ("q_proj", "v_proj", "output")))
    for layer in lm.layers.layers:
        layer.self_attention.q_proj.scale, layer.self_attention.v_proj.scale = scales
    nn.save_adapter(tmp_path, lm)
    check_loaded(tmp_path, lm)


def test_save_adapter_of_a_loaded_bare_model_has_the_names_of_modules(tmp_path: Path) -> None:
    nn.save(tmp_path / "whole", model())
    arrays, _ = load_arrays(tmp_path / "whole" / "model.safetensors")
    bare = {name.removeprefix("transformer."): array for name, array in arrays.items()}
    shutil.copytree(tmp_path / "whole", tmp_path / "bare")
    write_safetensors(tmp_path / "bare" / "model.safetensors", bare)
    names = []
    for directory in (tmp_path / "whole", tmp_path / "bare"):
        nn.save_adapter(directory / "adapter", trained(nn.lora(nn.load(directory), 2, 4)))
        names.append(set(SafetensorsFile(directory / "adapter/adapter_model.safetensors")))
    assert names[0] == names[1]
    assert all(name.startswith("base_model.model.transformer.h.") for name in names[0])
    adapter = tmp_path / "whole" / "adapter"
    whole, other = (nn.load_adapter(adapter, nn.load(tmp_path / d)) for d in ("whole", "bare"))
    np.testing.assert_array_equal(whole(IDS).data, other(IDS).data)


def test_save_adapter_keeps_the_names_of_the_classes(tmp_path: Path) -> None:
    encoder_folder(tmp_path / "encoder")
    labels = {"0": "good", "1": "bad", "2": "so-so"}
    tuned = nn.lora(nn.load(tmp_path / "encoder", head="classes", num_classes=3))
    tuned.origin.settings["id2label"] = labels
    nn.save_adapter(tmp_path / "adapter", tuned)
    classify = nn.classifier(tmp_path / "encoder", adapter=tmp_path / "adapter")
    assert classify.labels == tuple(labels.values())
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    written = load_arrays(file)[0]
    write_safetensors(file, {"base_model.model.classifier.weight": np.zeros((), "f4")})
    with pytest.raises(ValueError, match="the adapter must contain the head of a classifier"):
        nn.classifier(tmp_path / "encoder", adapter=tmp_path / "adapter")
    write_safetensors(file, written)
    path, config = tmp_path / "adapter" / "labels.json", tmp_path / "encoder" / "config.json"
    path.unlink()
    numbered = tuple(f"LABEL_{i}" for i in range(3))
    more = {str(i): "abcd"[i] for i in range(4)}  # of another number of classes
    for names, expected in (
        (labels, tuple(labels.values())), ({"0": "a", "1": "b"}, numbered), (more, numbered),
    ):  # fmt: skip
        config.write_text(json.dumps(json.loads(config.read_text()) | {"id2label": names}))
        classify = nn.classifier(tmp_path / "encoder", adapter=tmp_path / "adapter")
        assert classify.labels == expected
    plain = nn.lora(model(), 2, 4)
    nn.save_adapter(tmp_path / "adapter", plain)  # of no classes
    assert not (tmp_path / "adapter" / "labels.json").exists()


def test_classifier_with_nan_in_its_logits_raises(tmp_path: Path) -> None:
    encoder_folder(tmp_path)
    model = nn.load(tmp_path, head="classes", num_classes=2)
    model.output.weight.data[0] = np.nan
    classify = nn.Classifier(model, nn.text.load(tmp_path), ["a", "b"])
    with pytest.raises(ValueError, match="logits must have a finite maximum, got nan"):
        classify(["the cat"])


def test_load_adapter_with_alpha_pattern_keeps_each_scale(tmp_path: Path) -> None:
    lm = trained(nn.lora(model(), 2, 4, ("v_proj", "linear1")))
    nn.save_adapter(tmp_path, lm, "base")
    path = tmp_path / "adapter_config.json"
    settings = json.loads(path.read_text())
    assert settings["base_model_name_or_path"] == "base"
    patterns = {"alpha_pattern": {"c_fc": 40, "h.1.attn.c_attn": 0.5}}
    path.write_text(json.dumps(settings | patterns))
    several = nn.load_adapter(tmp_path, model())
    assert not np.allclose(several(IDS).data, lm(IDS).data, atol=1e-3)
    nn.save_adapter(tmp_path / "again", several)
    check_loaded(tmp_path / "again", several)


def test_lora_layers_have_the_mode_of_the_model() -> None:
    for lm in (model(), model().eval()):
        assert {m.training for m in nn.lora(lm).modules()} == {lm.training}


def trains_embedding() -> nn.LanguageModel:
    """Return a model with adapters whose embedding is trained as well."""
    lm = nn.lora(model(), 2, 4)
    lm.embedding.tokens.requires_grad_(True)
    return lm


def test_save_of_loaded_model_with_adapter_on_its_tied_output_raises(tmp_path: Path) -> None:
    """The files of the model have one array for the embedding and the output."""
    nn.save(tmp_path / "tied", model())
    lm = nn.merge_lora(nn.lora(nn.load(tmp_path / "tied"), 2, 4, ("output",)))
    with pytest.raises(ValueError, match=r"parameters of its family, got also output\.weight; nn"):
        nn.save(tmp_path / "again", lm)
    assert not (tmp_path / "again").exists()


def test_save_of_a_model_with_another_layer_raises(tmp_path: Path) -> None:
    """Neither the files of a family nor those of its adapters have a place for it."""
    nn.save(tmp_path / "base", model())
    other = r"parameters of {}, got also extra\.bias, extra\.weight; nn\.save_weights keeps"
    of_loaded = other.format("its family"), r"only on layers of its family, got one on extra$"
    for lm, (message, of_adapter) in (
        (model(), [other.format("GPT2")] * 2), (nn.load(tmp_path / "base"), of_loaded)
    ):  # fmt: skip
        lm.extra = nn.Linear(16, 16)
        with pytest.raises(ValueError, match=message):
            nn.save(tmp_path / "again", lm)
        with pytest.raises(ValueError, match=of_adapter):
            nn.save_adapter(tmp_path / "again", nn.lora(lm, targets=("extra", "q_proj")))
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: nn.lora(model(), targets=("q_proj", "query")), "targets must be ends of .* such as k_proj, linear1, .*, got query"),
        (lambda: nn.lora(model(), 2, float("nan")), "lora: alpha must be finite, at least 0, got nan"),
        (lambda: nn.lora(model(), 2, dropout=1), "lora: dropout must be finite, at least 0, less than 1, got 1"),
        (lambda: nn.lora(nn.lora(model())), "model must have no adapters; merge_lora"),
        (lambda: nn.save_adapter("x", trains_embedding()), "must train only adapters, linear layers and a head, but it trains .*; nn.save"),
        (lambda: nn.save_adapter("x", nn.lora(classifier(), targets="dense")), "model must have adapters outside of its head"),
        (lambda: nn.save("x", nn.lora(model())), "merge_lora"),
    ],
)  # fmt: skip
def test_lora_with_bad_arguments_raises(
    call: Callable[[], object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        call()
    assert not list(tmp_path.iterdir())


def test_load_adapter_of_another_head_names_its_layers(tmp_path: Path) -> None:
    encoder_folder(tmp_path / "encoder")
    model = nn.lora(nn.load(tmp_path / "encoder", head="classes", num_classes=3))
    nn.save_adapter(tmp_path / "adapter", model)
    message = r"got adapters for .*bert.encoder.layer.0.* load the model with the head that"
    with pytest.raises(ValueError, match=message):
        nn.load_adapter(tmp_path / "adapter", nn.load(tmp_path / "encoder"))
