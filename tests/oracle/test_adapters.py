"""Adapters against PEFT: the same logits before and after merging, files read in both directions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import batch, make

import nn

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
transformers = pytest.importorskip(
    "transformers", reason="Hugging Face's models are the oracle; it is not installed"
)

pytestmark = pytest.mark.filterwarnings("ignore")  # PEFT and transformers warn of one another

TARGETS: dict[str, tuple[list[str], tuple[str, ...], Any]] = {
    "llama": (["q_proj", "v_proj"], ("q_proj", "v_proj"), "CAUSAL_LM"),
    "gpt2": (["c_attn", "c_fc"], ("q_proj", "k_proj", "v_proj", "linear1"), "CAUSAL_LM"),
    "gpt_neox": (
        ["query_key_value", "dense"],
        ("q_proj", "k_proj", "v_proj", "out_proj"),
        "CAUSAL_LM",
    ),
    "bert, classes": (
        ["query", "value", "output.dense"],
        ("q_proj", "out_proj", "linear2", "dense"),
        "SEQ_CLS",
    ),
    "roberta, classes": (["query"], ("q_proj",), "SEQ_CLS"),
    "mpnet, classes": (["q", "o"], ("q_proj", "out_proj"), "SEQ_CLS"),
    "marian": (["q_proj", "fc1"], ("q_proj", "linear1"), "SEQ_2_SEQ_LM"),
}


@pytest.fixture(scope="module")
def peft() -> Any:
    """Imported for these tests alone: it takes seconds."""
    return pytest.importorskip("peft", reason="PEFT is the oracle; it is not installed")


def logits(model: Any, theirs: bool) -> np.ndarray:
    ids, _ = batch(model) if theirs else (np.random.default_rng(0).integers(3, 48, (3, 9)), None)
    ids = np.random.default_rng(0).integers(3, 48, (3, 9))
    if theirs:
        extra = {"decoder_input_ids": torch.tensor(ids)} if model.config.is_encoder_decoder else {}
        with torch.no_grad():
            return model(
                input_ids=torch.tensor(ids), attention_mask=torch.ones(3, 9).long(), **extra
            ).logits.numpy()
    full = np.ones(ids.shape, bool)
    return (model(ids, ids, full) if isinstance(model, nn.Transformer) else model(ids, full)).data


def randomise(parameters: Any) -> None:
    rng = np.random.default_rng(1)
    for parameter in parameters:
        parameter.data[...] = rng.standard_normal(parameter.shape) * 0.3


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("name", TARGETS)
def test_we_read_what_peft_writes(peft: Any, tmp_path: Path, name: str, rslora: bool) -> None:
    theirs_targets, _, task = TARGETS[name]
    make(transformers, torch, name).save_pretrained(tmp_path / "base")
    settings = peft.LoraConfig(
        r=3,
        lora_alpha=5,
        target_modules=theirs_targets,
        task_type=task,
        use_rslora=rslora,
        fan_in_fan_out=name == "gpt2",
    )
    theirs = peft.get_peft_model(make(transformers, torch, name), settings).eval()
    with torch.no_grad():
        for n, parameter in theirs.named_parameters():
            if "lora_" in n or "modules_to_save" in n:
                parameter.normal_(0, 0.3)
    theirs.save_pretrained(tmp_path / "adapter")
    ours = nn.load_adapter(tmp_path / "adapter", nn.load(tmp_path / "base"))
    expected = logits(theirs, True)
    np.testing.assert_allclose(logits(ours, False), expected, rtol=1e-4, atol=1e-4)
    assert not np.allclose(expected, logits(nn.load(tmp_path / "base"), False), atol=1e-2)
    nn.merge_lora(ours)
    np.testing.assert_allclose(logits(ours, False), expected, rtol=1e-4, atol=1e-4)
    nn.save(tmp_path / "merged", ours)
    merged = (
        type(make(transformers, torch, name))
        .from_pretrained(tmp_path / "merged", dtype=torch.float32)
        .eval()
    )
    np.testing.assert_allclose(logits(merged, True), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", TARGETS)
def test_peft_reads_what_we_write(peft: Any, tmp_path: Path, name: str) -> None:
    _, targets, _ = TARGETS[name]
    base = make(transformers, torch, name)
    base.save_pretrained(tmp_path / "base")
    ours = nn.lora(nn.load(tmp_path / "base"), 3, 5, targets)
    randomise(p for n, p in ours.named_parameters() if p.requires_grad)
    nn.save_adapter(tmp_path / "adapter", ours, str(tmp_path / "base"))
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    expected = logits(ours, False)
    np.testing.assert_allclose(logits(theirs, True), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        logits(theirs.merge_and_unload(), True), expected, rtol=1e-4, atol=1e-4
    )
    again = nn.load_adapter(tmp_path / "adapter", nn.load(tmp_path / "base"))
    np.testing.assert_allclose(logits(again, False), expected, rtol=1e-5, atol=1e-5)
    assert (tmp_path / "adapter/adapter_config.json").is_file()


@pytest.mark.parametrize("whole", ["lm_head", "mlp", "v_proj"])
def test_maps_that_come_whole(peft: Any, tmp_path: Path, whole: str) -> None:
    """They are trained, and written again."""
    base = make(transformers, torch, "llama")
    base.save_pretrained(tmp_path / "base")
    settings = peft.LoraConfig(
        r=2, target_modules=["q_proj"], modules_to_save=[whole], task_type="CAUSAL_LM"
    )
    theirs = peft.get_peft_model(base, settings).eval()
    with torch.no_grad():
        for n, parameter in theirs.named_parameters():
            if "lora_" in n or "modules_to_save" in n:
                parameter.normal_(0, 0.3)
    theirs.save_pretrained(tmp_path / "adapter")
    ours, expected = (
        nn.load_adapter(tmp_path / "adapter", nn.load(tmp_path / "base")),
        logits(theirs, True),
    )
    np.testing.assert_allclose(logits(ours, False), expected, rtol=1e-4, atol=1e-4)
    assert {n for n, p in ours.named_parameters() if p.requires_grad and ".lora_" not in n}
    nn.save_adapter(tmp_path / "again", ours)
    again = peft.PeftModel.from_pretrained(
        make(transformers, torch, "llama"), tmp_path / "again"
    ).eval()
    np.testing.assert_allclose(logits(again, True), expected, rtol=1e-4, atol=1e-4)
