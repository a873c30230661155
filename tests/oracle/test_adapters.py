"""LoRA adapters beside PEFT: files read in both directions, the same logits before and after merging."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import make

import nn

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")
pytestmark = pytest.mark.filterwarnings("ignore")  # PEFT and transformers warn of one another

IDS = np.random.default_rng(0).integers(3, 48, (3, 9))
TARGETS: dict[str, tuple[list[str], tuple[str, ...], str]] = {
    "llama": (["q_proj", "v_proj"], ("q_proj", "v_proj"), "CAUSAL_LM"),
    "gpt2": (["c_attn", "c_fc"], ("q_proj", "k_proj", "v_proj", "linear1"), "CAUSAL_LM"),
    "gpt_neox": (["query_key_value", "dense"], ("q_proj", "k_proj", "v_proj", "out_proj"), "CAUSAL_LM"),
    "bert, classes": (
        ["query", "value", "output.dense"], ("q_proj", "out_proj", "linear2", "dense"), "SEQ_CLS",
    ),
    "roberta, classes": (["query"], ("q_proj",), "SEQ_CLS"),
    "mpnet, classes": (["q", "o"], ("q_proj", "out_proj"), "SEQ_CLS"),
    "marian": (["q_proj", "fc1"], ("q_proj", "linear1"), "SEQ_2_SEQ_LM"),
}  # fmt: skip
"""Linear layers with adapters, as PEFT and we name them, and PEFT's type of task."""


@pytest.fixture(scope="module")
def peft() -> Any:
    """Import PEFT for these tests alone, which takes seconds."""
    return pytest.importorskip("peft", reason="PEFT is the oracle; it is not installed")


def their_logits(model: Any) -> np.ndarray:
    """Return the logits of a model of transformers or PEFT."""
    extra = {"decoder_input_ids": torch.tensor(IDS)} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        mask = torch.ones(IDS.shape, dtype=torch.long)
        return model(input_ids=torch.tensor(IDS), attention_mask=mask, **extra).logits.numpy()


def our_logits(model: nn.Module) -> np.ndarray:
    """Return the logits of our model for the same ids."""
    mask = np.ones(IDS.shape, bool)
    return (model(IDS, IDS, mask) if isinstance(model, nn.Transformer) else model(IDS, mask)).data


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    """Compare logits of float32."""
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def randomize(parameters: Iterable[Any]) -> None:
    """Fill parameters with random numbers."""
    rng = np.random.default_rng(1)
    for parameter in parameters:
        values = (0.3 * rng.standard_normal(tuple(parameter.shape))).astype(np.float32)
        parameter.data[...] = torch.tensor(values) if torch.is_tensor(parameter) else values


def saved_by_peft(peft: Any, path: Path, name: str, **settings: Any) -> Any:
    """Return a model with random adapters, which is saved with its base in `path`."""
    base = make(transformers, torch, name)
    base.save_pretrained(path / "base")
    config = peft.LoraConfig(task_type=TARGETS[name][2], **settings)
    theirs = peft.get_peft_model(base, config).eval()
    trained = ("lora_", "modules_to_save")
    randomize(p for key, p in theirs.named_parameters() if any(part in key for part in trained))
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
    expected, base = their_logits(theirs), nn.load(tmp_path / "base")
    assert not np.allclose(expected, our_logits(base), atol=1e-2)
    ours = nn.load_adapter(tmp_path / "adapter", base)
    assert_close(our_logits(ours), expected)
    nn.merge_lora(ours)
    assert_close(our_logits(ours), expected)
    nn.save(tmp_path / "merged", ours)
    merged = type(make(transformers, torch, name)).from_pretrained(tmp_path / "merged").eval()
    assert_close(their_logits(merged), expected)


@pytest.mark.parametrize("name", TARGETS)
def test_save_adapter_is_read_by_peft(peft: Any, tmp_path: Path, name: str) -> None:
    base = make(transformers, torch, name)
    base.save_pretrained(tmp_path / "base")
    ours = nn.lora(nn.load(tmp_path / "base"), 3, 5, TARGETS[name][1])
    randomize(p for p in ours.parameters() if p.requires_grad)
    nn.save_adapter(tmp_path / "adapter", ours, str(tmp_path / "base"))
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    assert theirs.peft_config["default"].task_type == TARGETS[name][2]
    expected = our_logits(ours)
    assert_close(their_logits(theirs), expected)
    assert_close(their_logits(theirs.merge_and_unload()), expected)
    again = nn.load_adapter(tmp_path / "adapter", nn.load(tmp_path / "base"))
    assert_close(our_logits(again), expected)


@pytest.mark.parametrize(
    ("name", "target", "whole"),
    [
        ("llama", "q_proj", "lm_head"), ("llama", "q_proj", "mlp"), ("gpt2", "c_fc", "c_proj"),
        ("gpt2", "c_fc", "c_attn"),
    ],
)  # fmt: skip
def test_load_adapter_trains_layers_that_are_saved_whole(
    peft: Any, tmp_path: Path, name: str, target: str, whole: str
) -> None:
    theirs = saved_by_peft(
        peft, tmp_path, name, r=2, target_modules=[target], modules_to_save=[whole]
    )
    ours, expected = (
        nn.load_adapter(tmp_path / "adapter", nn.load(tmp_path / "base")),
        their_logits(theirs),
    )
    assert_close(our_logits(ours), expected)
    assert any(p.requires_grad and ".lora_" not in key for key, p in ours.named_parameters())
    nn.save_adapter(tmp_path / "again", ours)
    base = make(transformers, torch, name)
    assert_close(
        their_logits(peft.PeftModel.from_pretrained(base, tmp_path / "again").eval()), expected
    )
