"""Adapters of every family: the weights plus scaled products, written by hand as PEFT does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edges import beside
from support.environment import max_examples
from support.published_settings import MODELS, draw_target, inputs_of
from support.recorded_models import arrays_named, recorded, unpacked

import nn
from minigrad.io import load_arrays
from minigrad.io.safetensors import write_safetensors

RECORDED = recorded()["models"]
STEM = "base_model.model."
NAMES = [
    *{name.partition(",")[0]: name for name in reversed(MODELS)}.values(), "bert", "bert, masked", "bert, tokens",
    "gpt2", "roberta, classes",
]  # fmt: skip
"""A model of each family, and other heads."""
Arrays = dict[str, np.ndarray]
TASKS = {
    "classes": "SEQ_CLS", "tokens": "TOKEN_CLS", "masked": None, "pretraining": None,
    "ConditionalGeneration": "SEQ_2_SEQ_LM", "MTModel": "SEQ_2_SEQ_LM", "CausalLM": "CAUSAL_LM",
    "LMHeadModel": "CAUSAL_LM", "Model": "FEATURE_EXTRACTION",
}  # fmt: skip
"""PEFT's type of task by the end of the name of a model, or of its class."""
VIT = {
    "encoder.layer.": "layers.", "attention.attention.query": "attention.q_proj", "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj", "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2",
}  # fmt: skip
"""Modules of transformers by names in the files of ViT, where they differ."""


def linear_arrays(name: str, arrays: Arrays) -> dict[str, str]:
    """Return the arrays of linear layers inside the layers of a model by the paths of modules."""
    paths = {}
    for array, x in arrays.items():
        is_inside = re.search(r"\.\d+\.", f".{array}") and not re.search(
            "relative_attention_bias", array
        )
        if array.endswith(".weight") and x.ndim == 2 and is_inside:
            path = array.removesuffix(".weight")
            if name == "gpt2, bare":  # which is loaded with its head
                path = f"transformer.{path}"
            for stored, module in VIT.items() if name.startswith("vit") else ():
                path = path.replace(stored, module)
            paths[path] = array
    return paths


def patterns_of(path: str) -> Iterator[tuple[str, Callable[[str], bool]]]:
    """Yield patterns that match a path, each with what it matches."""
    last = path.rpartition(".")[2]
    yield path, lambda other: other == path or other.endswith(f".{path}")
    yield last, lambda other: other.split(".")[-1] == last
    yield f".*{last}", lambda other: other.endswith(last)
    number = re.findall(r"(?<=\.)\d+(?=\.)", f".{path}")[0]
    start, _, end = f".{path}".partition(f".{number}.")
    if end != last:
        yield rf"{number}\.{end}", lambda other: f".{other}".endswith(f".{number}.{end}")
    ends_in = lambda other, count: any(f".{other}".endswith(f".{i}.{end}") for i in range(count))
    yield rf"[0-{number}]\.{end}", lambda other: ends_in(other, int(number) + 1)
    stem = end.removesuffix(last)
    yield rf"\d\.{stem}({last}|odd)", lambda other: ends_in(other, 10)


def resolved(patterns: dict[str, Any], is_matched: dict[str, Any], path: str, default: Any) -> Any:
    """Return the value of the first pattern that matches a path."""
    return next((x for key, x in patterns.items() if is_matched[key](path)), default)


def outputs_of(model: Any, entry: dict[str, Any]) -> np.ndarray:
    x, mask = inputs_of(entry["settings"]["model_type"])
    if isinstance(model, nn.Transformer):
        return model(x, draw_target(), mask).data
    return model(x, None if mask.all() else mask).data


def write_model(path: Path, entry: dict[str, Any], arrays: Arrays) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(entry["settings"]))
    write_safetensors(path / "model.safetensors", arrays, {"format": "pt"})
    return path


def draw_adapter(
    data: st.DataObject, name: str, arrays: Arrays
) -> tuple[dict[str, Any], Arrays, Arrays]:
    """Return adapter_config.json, the arrays of the adapter, and those of the merged model."""
    paths = linear_arrays(name, arrays)
    draw, rng = data.draw, np.random.default_rng(data.draw(st.integers(0, 99)))
    some = draw(st.lists(st.sampled_from(sorted(paths)), min_size=1, unique=True), "layers")
    rank, is_root = draw(st.integers(1, 3), "r"), draw(st.booleans(), "use_rslora")
    settings: dict[str, Any] = {
        "peft_type": "LORA", "r": rank, "target_modules": some, "use_rslora": is_root,
        "fan_in_fan_out": name.startswith("gpt2"),
    }  # fmt: skip
    alpha = draw(st.sampled_from([None, 0, 0.5, 16]), "lora_alpha")
    if alpha is not None:
        settings["lora_alpha"] = alpha
    matched: dict[str, Callable[[str], bool]] = {}
    values = {"rank_pattern": st.integers(1, 5), "alpha_pattern": st.sampled_from([0, 1, 3.5])}
    for key, value in values.items():
        patterns: dict[str, Any] = {}
        for path in draw(st.lists(st.sampled_from(sorted(paths)), max_size=2), key):
            pattern, is_matched = draw(st.sampled_from([*patterns_of(path)]))
            patterns[pattern], matched[pattern] = draw(value), is_matched
        settings[key] = patterns
    adapter, merged = {}, dict(arrays)
    stem = draw(st.sampled_from([STEM, ""]), "stem")
    for path in some:
        weight = arrays[paths[path]]
        weight = weight.T if name.startswith("gpt2") else weight
        r = resolved(settings["rank_pattern"], matched, path, rank)
        scale = resolved(settings["alpha_pattern"], matched, path, 8 if alpha is None else alpha)
        scale /= np.sqrt(r) if is_root else r
        a = 0.3 * rng.standard_normal((r, weight.shape[1])).astype(np.float32)
        b = 0.3 * rng.standard_normal((weight.shape[0], r)).astype(np.float32)
        adapter |= {f"{stem}{path}.lora_A.weight": a, f"{stem}{path}.lora_B.weight": b}
        product = weight + scale * b.astype(np.float64) @ a
        merged[paths[path]] = np.ascontiguousarray(
            product.T if name.startswith("gpt2") else product
        )
    return settings, adapter, merged


def write_adapter(path: Path, settings: dict[str, Any], arrays: Arrays) -> Path:
    path.mkdir(exist_ok=True)
    (path / "adapter_config.json").write_text(json.dumps(settings))
    write_safetensors(path / "adapter_model.safetensors", arrays, {"format": "pt"})
    return path


@pytest.mark.parametrize("name", NAMES)
@max_examples(3)
@given(data=st.data())
def test_load_adapter_adds_scaled_products_and_save_adapter_writes_them_again(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, entry = tmp_path_factory.getbasetemp(), RECORDED[name]
    arrays = arrays_named(unpacked(entry["arrays"]))
    settings, adapter, merged = draw_adapter(data, name, arrays)
    base = write_model(path / "base", entry, arrays)
    whole = write_model(path / "merged", entry, merged)
    expected = outputs_of(nn.load(whole, dtype="float64"), entry)
    written = write_adapter(path / "adapter", settings, adapter)
    model = nn.load_adapter(written, nn.load(base, dtype="float64"))
    np.testing.assert_allclose(outputs_of(model, entry), expected, 1e-9, 1e-9)
    nn.save_adapter(path / "again", model, "a/base")
    again, _ = load_arrays(path / "again/adapter_model.safetensors")
    adapter = {STEM + key.removeprefix(STEM): x for key, x in adapter.items()}
    found = {key: x for key, x in again.items() if ".lora_" in key}
    np.testing.assert_equal(found, adapter)
    saved = json.loads((path / "again/adapter_config.json").read_text())
    ends = (name.rpartition(", ")[2], MODELS[name][0])
    task = next(task for end, task in TASKS.items() if any(x.endswith(end) for x in ends))
    task = "CAUSAL_LM" if name == "gpt2, bare" else task
    assert (saved["task_type"], saved["base_model_name_or_path"]) == (task, "a/base")
    assert saved["fan_in_fan_out"] == name.startswith("gpt2")
    loaded = nn.load_adapter(path / "again", nn.load(base, dtype="float64"))
    np.testing.assert_allclose(outputs_of(loaded, entry), expected, 1e-9, 1e-9)


# -- layers that are saved whole, and settings -------------------------------------------------------

CLASSES = "bert, classes"
HEAD = "classifier"
TARGETS = {"query": "attention.self.query", "value": "attention.self.value"}


def written_by(path: Path, name: str = CLASSES, *targets: str, **settings: Any) -> Path:
    """Write an adapter of rank 2 for layers whose names end in the targets."""
    arrays = arrays_named(unpacked(RECORDED[name]["arrays"]))
    write_model(path / "base", RECORDED[name], arrays)
    paths = linear_arrays(name, arrays)
    adapter: Arrays = {}
    for layer in paths:
        if layer.endswith(targets or ("query",)):
            rows, columns = arrays[paths[layer]].shape
            adapter[f"{STEM}{layer}.lora_A.weight"] = np.full((2, columns), 0.1, np.float32)
            adapter[f"{STEM}{layer}.lora_B.weight"] = np.full((rows, 2), 0.1, np.float32)
    defaults = {"peft_type": "LORA", "r": 2, "target_modules": [*(targets or ("query",))]}
    return write_adapter(path / "adapter", defaults | settings, adapter)


def load(path: Path) -> Any:
    return nn.load_adapter(path / "adapter", nn.load(path / "base"))


@pytest.mark.parametrize("listed", [None, [HEAD], [HEAD, "odd"]])
def test_head_in_an_adapter_is_loaded_trained_and_saved(
    tmp_path: Path, listed: list[str] | None
) -> None:
    """It is listed in `modules_to_save`, or just stored."""
    adapter = written_by(tmp_path, modules_to_save=listed)
    arrays, _ = load_arrays(adapter / "adapter_model.safetensors")
    head = {f"{STEM}{HEAD}.weight": np.full((3, 16), 0.5, "f4"), f"{STEM}{HEAD}.bias": np.ones(3, "f4")}  # fmt: skip
    write_safetensors(adapter / "adapter_model.safetensors", arrays | head)
    model = load(tmp_path)
    assert (model.output.weight.data == 0.5).all() and (model.output.bias.data == 1).all()
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {"output.weight", "output.bias"} <= trained
    assert all(".lora_" in name or name.startswith(("output.", "dense.")) for name in trained)
    nn.save_adapter(tmp_path / "again", model)
    again, _ = load_arrays(tmp_path / "again/adapter_model.safetensors")
    assert all(np.array_equal(again[key], x) for key, x in (arrays | head).items())
    saved = json.loads((tmp_path / "again/adapter_config.json").read_text())
    assert HEAD in saved["modules_to_save"] and set(saved["target_modules"]) == {
        key[len(STEM) : -len(".lora_A.weight")] for key in arrays if "lora_A" in key
    }


def test_head_that_modules_to_save_lists_must_be_stored(tmp_path: Path) -> None:
    written_by(tmp_path, modules_to_save=[HEAD])
    with pytest.raises(ValueError, match=r"missing: .*classifier\.(bias|weight)"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("targets", "settings", "message"),
    [
        (["query", "key"], {}, "but not so key$"),
        (["query", "key"], {"exclude_modules": ["key"]}, ""),
        (["query", "key"], {"exclude_modules": []}, "but not so key$"),
        (["query", "classifier"], {"modules_to_save": None}, "but not so classifier$"),
        (["value"], {"exclude_modules": ["key"]}, "not so value|not so bert.*query"),
        (["query", "pooler.dense"], {}, "but not so pooler.dense$"),
        ("all-linear", {}, ""),
        (None, {}, ""),
        (5, {}, "target_modules must"),
        (["query", 5], {}, "target_modules must"),
    ],
)
def test_target_modules_must_be_the_layers_with_adapters(
    tmp_path: Path, targets: Any, settings: dict[str, Any], message: str
) -> None:
    written_by(tmp_path, target_modules=targets, **settings)
    if message:
        with pytest.raises(ValueError, match=f"adapter_config.json: .*{message}"):
            load(tmp_path)
    else:
        load(tmp_path)


SETTINGS: dict[str, tuple[list[Any], list[Any]]] = {
    "peft_type": (["LORA"], ["ADALORA", 1]),
    "bias": (["none"], ["all", "lora_only"]),
    "use_dora": ([False], [True]),
    "use_qalora": ([False], [True]),
    "use_bdlora": ([None, False], [True, {"a": 1}]),
    "lora_bias": ([False], [True]),
    "alora_invocation_tokens": ([None], [[1, 2]]),
    "arrow_config": ([None], [{"top_k": 3}]),
    "kasa_config": ([None], [{"a": 1}]),
    "monteclora_config": ([None], [{"a": 1}]),
    "velora_config": ([None], [{"a": 1}]),
    "layer_replication": ([None], [[[0, 1]]]),
    "init_lora_weights": (
        [True, False, None, "gaussian", "orthogonal", "eva"], ["pissa", "pissa_niter_4", "olora", "corda", "loftq"],
    ),
    "lora_dropout": ([0, 0.5, 0.999], [1, 1.5, -0.1, "a"]),
    "r": ([2], [0, -1, 2.5, "2"]),
    "lora_alpha": ([0, 1, 0.5, 1e30], [-1, 1.1e30, "a"]),
    "use_rslora": ([False, True, None], ["a", 1.5]),
    "rank_pattern": ([{}, None, {"odd": 1}], [{"odd": 0}, {"odd": 1.5}, {"odd": "a"}, []]),
    "alpha_pattern": ([{}, None, {"odd": 0}, {"odd": 1e30}], [{"odd": -1}, {"odd": 1.1e30}, []]),
    "modules_to_save": ([None, [], ["odd"]], ["classifier", [1]]),
}  # fmt: skip
"""Settings of adapters that are read, and those that are refused."""


@pytest.mark.parametrize("key", SETTINGS)
def test_load_adapter_refuses_settings_that_change_results(tmp_path: Path, key: str) -> None:
    read, refused = SETTINGS[key]
    for value in read:
        written_by(tmp_path, **{key: value})
        load(tmp_path)
    for value in refused:
        written_by(tmp_path, **{key: value})
        with pytest.raises(ValueError, match=rf"adapter_config.json.*\b({key}|odd)\b.* must be"):
            load(tmp_path)


@pytest.mark.parametrize(("name", "key", "value", "task"), [
    ("t5", "decoder_start_token_id", None, "SEQ_2_SEQ_LM"), ("t5", "is_encoder_decoder", None, "SEQ_2_SEQ_LM"),
    ("llama", "decoder_start_token_id", 1, "CAUSAL_LM"), ("llama", "is_encoder_decoder", False, "CAUSAL_LM"),
])  # fmt: skip
def test_task_of_adapters_is_that_of_the_family(
    tmp_path: Path, name: str, key: str, value: Any, task: str
) -> None:
    written_by(tmp_path, name, "q" if name == "t5" else "q_proj")
    settings = {k: x for k, x in RECORDED[name]["settings"].items() if k != key}
    settings |= {"id2label": {"0": "a", "1": "b"}} | ({} if value is None else {key: value})
    (tmp_path / "base/config.json").write_text(json.dumps(settings))
    nn.save_adapter(tmp_path / "again", load(tmp_path))
    saved = json.loads((tmp_path / "again/adapter_config.json").read_text())
    assert saved["task_type"] == task
    assert not (tmp_path / "again/labels.json").exists()  # those of a head


def test_weight_of_an_output_projection_below_its_adapter_is_loaded_and_not_trained(
    tmp_path: Path,
) -> None:
    written_by(tmp_path, "llama", target_modules=["lm_head"])
    a, b = np.full((2, 16), 0.1, "f4"), np.full((50, 2), 0.2, "f4")
    weight = np.full((50, 16), 0.5, "f4")
    arrays = {"base_layer": weight, "lora_A": a, "lora_B": b}
    write_adapter(tmp_path / "adapter", {"peft_type": "LORA", "r": 2, "target_modules": ["lm_head"]},
                  {f"{STEM}lm_head.{key}.weight": x for key, x in arrays.items()})  # fmt: skip
    model = load(tmp_path)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {"output.lora_a", "output.lora_b"}
    np.testing.assert_array_equal(model.output.weight.data, weight)
    merged = nn.merge_lora(model).output.weight.data
    np.testing.assert_allclose(merged, weight + 8 / 2 * b @ a, rtol=1e-6)


@pytest.mark.parametrize("dropout", [None, 0, 0.25])
def test_dropout_of_adapters_is_loaded_and_saved(tmp_path: Path, dropout: float | None) -> None:
    written_by(tmp_path, lora_dropout=dropout)
    model = load(tmp_path)
    found = {m.dropout for m in model.modules() if isinstance(m, nn.LoRALinear)}
    assert found == {dropout or 0.0}
    nn.save_adapter(tmp_path / "again", model)
    saved = json.loads((tmp_path / "again/adapter_config.json").read_text())
    assert saved["lora_dropout"] == (dropout or 0.0)


@pytest.mark.parametrize("key", ["rank_pattern", "alpha_pattern"])
@given(data=st.data())
def test_patterns_of_adapters_are_simple_and_few(
    key: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """At most 1,000 characters, two repetitions, two groups, and a pattern for each layer."""
    path = tmp_path_factory.getbasetemp() / key
    path.mkdir(exist_ok=True)
    limits: dict[str, tuple[int, Callable[[int], dict[str, int]]]] = {
        "length": (1000, lambda n: {"x" * n: 2}),
        "repetitions": (2, lambda n: {"a*" * n: 2}),
        "repeated": (2, lambda n: {"a+" * (n - 1) + "b*": 2}),
        "groups": (2, lambda n: {"(a|b)" * n: 2}),
        "count": (14, lambda n: {f"x{i}": 2 for i in range(n)}),
    }
    most, make = limits[data.draw(st.sampled_from(sorted(limits)))]
    count = data.draw(beside(most))
    written_by(path, **{key: make(count)})
    if count <= most:
        load(path)
    else:
        with pytest.raises(
            ValueError, match=f"{key}.* must (have at most 14|be a name or a simpler)"
        ):
            load(path)


def test_names_in_adapters_may_lack_the_prefix_of_the_model(tmp_path: Path) -> None:
    """Adapters of a model without head have names without `bert.`, or without anything before."""
    written_by(tmp_path)
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    arrays, _ = load_arrays(file)
    expected = outputs_of(load(tmp_path), RECORDED[CLASSES])
    for prefix in (f"{STEM}bert.", STEM, ""):
        named = {key.replace(f"{STEM}bert.", prefix): x for key, x in arrays.items()}
        write_safetensors(file, named)
        np.testing.assert_array_equal(outputs_of(load(tmp_path), RECORDED[CLASSES]), expected)
