"""LoRA adapters beside PEFT: files read in both directions, the same logits before and after merging."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.environment import needs
from support.published import assert_same_outputs, make, torch, transformers
from support.published_settings import MODELS

import nn
from minigrad.io import load_arrays
from minigrad.io.safetensors import write_safetensors
from nn.published.load import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore")  # PEFT and transformers warn of one another

IDS = np.random.default_rng(0).integers(3, 48, (3, 9))
TARGETS: dict[str, tuple[list[str], tuple[str, ...], str]] = {
    "llama": (["q_proj", "v_proj"], ("q_proj", "v_proj"), "CAUSAL_LM"),
    "gpt2": (["c_attn", "c_fc"], ("q_proj", "k_proj", "v_proj", "linear1"), "CAUSAL_LM"),
    "gpt_neox": (["query_key_value", "dense"], ("q_proj", "k_proj", "v_proj", "out_proj"), "CAUSAL_LM"),
    "bert, classes": (
        ["query", "value", "output.dense"], ("q_proj", "out_proj", "linear2", "dense"), "SEQ_CLS",
    ),
    "mpnet, classes": (["q", "o"], ("q_proj", "out_proj"), "SEQ_CLS"),
    "marian": (["q_proj", "fc1"], ("q_proj", "linear1"), "SEQ_2_SEQ_LM"),
}  # fmt: skip
"""Linear layers with adapters, as PEFT and we name them, and PEFT's type of task."""


@pytest.fixture(scope="module")
def peft() -> Any:
    """Import PEFT for these tests alone, which takes seconds."""
    return needs("peft")


def assert_same_logits(ours: nn.Module, theirs: Any) -> None:
    """Compare the logits of our model and of one of transformers or PEFT."""
    is_pair = isinstance(ours, nn.Transformer)
    inputs = {"input_ids": torch.tensor(IDS)}
    if is_pair:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    expected = theirs(**inputs).logits.numpy(force=True)
    np.testing.assert_allclose(ours(*[IDS] * (1 + is_pair)).data, expected, 1e-4, 1e-4)


def saved_by_peft(peft: Any, path: Path, name: str, **settings: Any) -> Any:
    """Return a model with random adapters, which is saved with its base in `path`."""
    base = make(name, path / "base")
    config = peft.LoraConfig(task_type=TARGETS.get(name, TARGETS["llama"])[2], **settings)
    theirs = peft.get_peft_model(base, config).eval()
    for key, p in theirs.named_parameters():
        if "lora_" in key or "modules_to_save" in key:
            torch.nn.init.normal_(p, std=0.3)
    theirs.save_pretrained(path / "adapter")
    return theirs


@pytest.mark.parametrize(
    ("name", "use_rslora"), [*((name, False) for name in TARGETS), ("gpt2", True)]
)
def test_load_adapter_of_peft_gives_its_logits_before_and_after_merging(
    peft: Any, tmp_path: Path, name: str, use_rslora: bool
) -> None:
    settings = {"r": 3, "lora_alpha": 5, "target_modules": TARGETS[name][0]}
    settings |= {"use_rslora": use_rslora, "fan_in_fan_out": name == "gpt2"}
    theirs = saved_by_peft(peft, tmp_path, name, **settings)
    ours = nn.load_adapter(tmp_path / "adapter", nn.load(tmp_path / "base"))
    assert_same_logits(ours, theirs)
    nn.merge_lora(ours)
    assert_same_logits(ours, theirs)


@pytest.mark.parametrize(
    ("name", "settings", "target"),
    [
        ("mpnet, classes", {}, "classifier.dense"),  # which is saved whole
        ("phi3", {"exclude_modules": ["qkv_proj"]}, "model.layers.0.self_attn.qkv_proj"),
    ],
)  # fmt: skip
def test_load_adapter_with_targets_that_have_no_adapter_gives_logits_of_peft(
    peft: Any, tmp_path: Path, name: str, settings: dict[str, Any], target: str
) -> None:
    settings = {"r": 3, "target_modules": "all-linear", **settings}
    theirs = saved_by_peft(peft, tmp_path, name, **settings)
    assert target in theirs.peft_config["default"].target_modules
    ours = nn.load_adapter(tmp_path / "adapter", nn.load(tmp_path / "base"))
    assert_same_logits(ours, theirs)


@pytest.mark.parametrize("name", TARGETS)
def test_save_adapter_is_read_by_peft(peft: Any, tmp_path: Path, name: str) -> None:
    base, rng = make(name, tmp_path / "base"), np.random.default_rng(1)
    ours = nn.lora(nn.load(tmp_path / "base"), 3, 5, TARGETS[name][1])
    for p in ours.parameters():
        if p.requires_grad:
            p.data[...] = 0.3 * rng.standard_normal(p.shape)
    nn.save_adapter(tmp_path / "adapter", ours, str(tmp_path / "base"))
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    assert theirs.peft_config["default"].task_type == TARGETS[name][2]
    assert_same_logits(ours, theirs)


@pytest.mark.parametrize(
    ("name", "target", "whole"),
    [
        ("llama", "q_proj", "lm_head"), ("llama", "q_proj", "mlp"), ("gpt2", "c_fc", "c_attn"),
    ],
)  # fmt: skip
def test_load_adapter_trains_layers_that_are_saved_whole(
    peft: Any, tmp_path: Path, name: str, target: str, whole: str
) -> None:
    settings = {"r": 2, "target_modules": [target], "modules_to_save": [whole]}
    theirs = saved_by_peft(peft, tmp_path, name, **settings)
    ours = nn.load_adapter(tmp_path / "adapter", nn.load(tmp_path / "base"))
    assert_same_logits(ours, theirs)
    assert any(p.requires_grad and ".lora_" not in key for key, p in ours.named_parameters())
    nn.save_adapter(tmp_path / "again", ours)
    again = peft.PeftModel.from_pretrained(make(name), tmp_path / "again").eval()
    assert_same_logits(ours, again)


WITH_LOGITS = [
    name for name, (kind, _) in MODELS.items()
    if kind.endswith(("MaskedLM", "CausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel"))
]  # fmt: skip


@pytest.mark.parametrize("name", WITH_LOGITS)
def test_adapter_of_the_output_projection_is_read_in_both_directions(
    peft: Any, tmp_path: Path, name: str
) -> None:
    """PEFT adds the weight below it, which replaces that of the model."""
    base = make(name, tmp_path / "base")
    output = base.get_output_embeddings()
    target = next(key for key, module in base.named_modules() if module is output)
    config = {"target_modules": [target], "r": 2, "task_type": task_of(name)}
    theirs = peft.get_peft_model(base, peft.LoraConfig(**config)).eval()
    for key, p in theirs.named_parameters():
        if "lora_" in key:
            torch.nn.init.normal_(p, std=0.3)
    theirs.save_pretrained(tmp_path / "adapter")
    ours = nn.load_adapter(tmp_path / "adapter", nn.load(tmp_path / "base"))
    assert_same_outputs(theirs.base_model.model, ours)
    nn.save_adapter(tmp_path / "again", ours)
    again = peft.PeftModel.from_pretrained(make(name), tmp_path / "again").eval()
    assert_same_outputs(again.base_model.model, ours)
    with torch.no_grad():
        theirs.base_model.model.get_submodule(target).base_layer.weight.mul_(2)
    theirs.save_pretrained(tmp_path / "other")
    ours = nn.load_adapter(tmp_path / "other", nn.load(tmp_path / "base"))
    expected = peft.PeftModel.from_pretrained(make(name), tmp_path / "other").eval()
    assert_same_outputs(expected.base_model.model, ours)


TASKS = {
    "classes": "SEQ_CLS", "tokens": "TOKEN_CLS", "masked": None, "pretraining": None,
    "ConditionalGeneration": "SEQ_2_SEQ_LM", "MTModel": "SEQ_2_SEQ_LM", "CausalLM": "CAUSAL_LM",
    "LMHeadModel": "CAUSAL_LM", "Model": "FEATURE_EXTRACTION",
}  # fmt: skip
"""PEFT's type of task by the end of the name of a model, or of its class."""


def task_of(name: str) -> str | None:
    ends = (name.rpartition(", ")[2], MODELS[name][0])
    return next(task for end, task in TASKS.items() if any(x.endswith(end) for x in ends))


@pytest.mark.parametrize("other_prefix", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_load_adapter_of_all_layers_of_every_family_gives_logits_of_peft(
    peft: Any, tmp_path: Path, name: str, other_prefix: bool
) -> None:
    """Files of a model may have the prefix of its family or lack it."""
    base, kinds = (
        make(name, tmp_path / "base"),
        (torch.nn.Linear, transformers.pytorch_utils.Conv1D),
    )
    if other_prefix:
        path, prefix = (
            tmp_path / "base" / "model.safetensors",
            FAMILIES[base.config.model_type].prefix,
        )
        arrays = load_arrays(path)[0]
        adds = not any(key.startswith(prefix) for key in arrays)
        write_safetensors(
            path, {prefix + k if adds else k.removeprefix(prefix): x for k, x in arrays.items()}
        )
    body = base.base_model  # PEFT trains the heads of classifiers whole
    targets: Any = [key for key, module in body.named_modules() if isinstance(module, kinds)]
    settings = {"r": 2, "lora_alpha": 3, "target_modules": targets, "task_type": task_of(name)}
    theirs = peft.get_peft_model(base, peft.LoraConfig(**settings)).eval()
    for key, p in theirs.named_parameters():
        if "lora_" in key or "modules_to_save" in key:
            torch.nn.init.normal_(p, std=0.2)
    theirs.save_pretrained(tmp_path / "adapter")
    ours = nn.load_adapter(tmp_path / "adapter", nn.load(tmp_path / "base"))
    assert_same_outputs(theirs.base_model.model, ours)
    if name != "gpt2, bare":  # which is loaded with its head
        nn.save_adapter(tmp_path / "again", ours)
        again = peft.PeftModel.from_pretrained(make(name), tmp_path / "again").eval()
        assert_same_outputs(again.base_model.model, ours)


@pytest.mark.parametrize("name", MODELS)
def test_save_adapter_of_every_family_is_read_by_peft(peft: Any, tmp_path: Path, name: str) -> None:
    base, rng = make(name, tmp_path / "base"), np.random.default_rng(1)
    if name == "gpt2, bare":  # which is loaded with its head
        base = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "base").eval()
    ours = nn.lora(nn.load(tmp_path / "base"), 2, 3, ("q_proj", "k_proj", "out_proj", "linear1"))
    for p in ours.parameters():
        if p.requires_grad:
            p.data[...] = 0.2 * rng.standard_normal(p.shape)
    nn.save_adapter(tmp_path / "adapter", ours, str(tmp_path / "base"))
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    assert_same_outputs(theirs.base_model.model, ours)
    again = nn.load_adapter(tmp_path / "adapter", nn.load(tmp_path / "base"))
    assert_same_outputs(theirs.base_model.model, again)
