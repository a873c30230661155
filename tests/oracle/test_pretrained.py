"""Published models against transformers: tiny random ones of every family and head, from the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import MODELS, batch, inputs, make, name_in_file, results

import nn
from minigrad import optim
from minigrad.io.safetensors import SafetensorsFile
from nn.pretrained.families import FAMILIES

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
transformers = pytest.importorskip(
    "transformers", reason="Hugging Face's models are the oracle; it is not installed"
)

GENERATES = [
    name
    for name in MODELS
    if FAMILIES[name.partition(",")[0]].models.keys() == {""} and name != "gpt2, bare"
]
IN_FLOAT32 = {
    "gemma",
    "gpt_neox",
    "llama",
    "mistral",
    "phi3",
    "qwen2",
    "qwen3",
    "smollm3",
    "t5",
    "marian",
    "m2m_100",
}
"""Families whose norms, rotations or sines transformers computes in float32 whatever the model's dtype is."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, tuple[Any, Path]] = {}

    def get(name: str) -> tuple[Any, Path]:
        if name not in made:
            model, path = make(transformers, torch, name), tmp_path_factory.mktemp("models") / "x"
            model.save_pretrained(path)
            made[name] = model, path
        return made[name]

    return get


@pytest.mark.parametrize("name", MODELS)
def test_logits(folders: Any, name: str) -> None:
    theirs, path = folders(name)
    expected, found, real = results(torch, theirs, nn.load(path))
    np.testing.assert_allclose(
        found.data[real], expected.detach().numpy()[real], rtol=1e-5, atol=1e-5
    )
    if name.partition(",")[0] not in IN_FLOAT32:
        try:
            expected, found, real = results(torch, theirs.double(), nn.load(path, dtype="float64"))
        finally:
            theirs.float()
        np.testing.assert_allclose(
            found.data[real], expected.detach().numpy()[real], rtol=1e-10, atol=1e-10
        )


@pytest.mark.parametrize("name", MODELS)
def test_gradients(folders: Any, name: str) -> None:
    theirs, path = folders(name)
    theirs.zero_grad()
    ours = nn.load(path, dtype="float64")
    try:
        expected, found, real = results(torch, theirs.double(), ours)
        cotangent = np.random.default_rng(2).standard_normal(found.shape)
        cotangent[~real] = 0
        (expected * torch.tensor(cotangent)).sum().backward()
        (found * cotangent).sum().backward()
        grads = {
            name_in_file(theirs, name): p.grad.numpy()
            for name, p in theirs.named_parameters(remove_duplicate=False) if p.grad is not None
        }  # fmt: skip
    finally:
        theirs.float()
    own = dict(ours.named_parameters())
    most = max(np.abs(grad).max() for grad in grads.values())
    for their_name, stored in ours.origin.arrays.items():
        if their_name == "final_logits_bias":  # a buffer of theirs
            assert own[stored.parameters[0]].grad is None
            continue
        parts = [
            np.zeros(own[o].shape) if own[o].grad is None else own[o].grad
            for o in stored.parameters
        ]
        grad = grads.get(their_name, np.zeros(()))
        largest = max(
            np.abs(grad).max(), 1e-3 * most
        )  # the gradient of a key's bias is zero but for rounding
        np.testing.assert_allclose(
            stored.join(parts) / largest, grad / largest, atol=1e-5, err_msg=their_name
        )


def test_that_the_gradients_of_all_are_compared(folders: Any) -> None:
    for name in ("bert, classes", "vit, classes", "gpt2", "qwen3", "bart"):
        theirs, path = folders(name)
        assert {name_in_file(theirs, n) for n, _ in theirs.named_parameters()} <= set(
            nn.load(path).origin.arrays
        )


@pytest.mark.parametrize("name", MODELS)
def test_saved_again(folders: Any, tmp_path: Path, name: str) -> None:
    theirs, path = folders(name)
    nn.save(tmp_path / "x", nn.load(path))
    assert (tmp_path / "x" / "model.safetensors").read_bytes() == (
        path / "model.safetensors"
    ).read_bytes()
    again, report = type(theirs).from_pretrained(
        tmp_path / "x", output_loading_info=True, dtype=torch.float32
    )
    assert not any(report.values()), report
    assert again.config.to_diff_dict() == theirs.config.to_diff_dict() | {
        "dtype": "float32",
        "architectures": [type(theirs).__name__],
    } | {
        k: v
        for k, v in again.config.to_diff_dict().items()
        if k in ("_name_or_path", "torch_dtype")
    }


def train_theirs(
    model: Any, ours: Any, ids: np.ndarray, mask: np.ndarray, target: np.ndarray, labels: np.ndarray
) -> Any:
    """Their loss of what ours trains on."""
    tensor, *_ = inputs(model, torch)
    cross = torch.nn.functional.cross_entropy
    if isinstance(ours, nn.Transformer):
        logits = model(**tensor, decoder_input_ids=torch.tensor(target[:, :-1])).logits
        return cross(
            logits.flatten(0, 1),
            torch.tensor(target[:, 1:]).flatten(),
            ignore_index=ours.config.pad_id,
        )
    logits = model(**tensor).logits
    if isinstance(ours, nn.LanguageModel):
        goals = np.where(mask[:, 1:] & mask[:, :-1], ids[:, 1:], -100)
        return cross(logits[:, :-1].flatten(0, 1), torch.tensor(goals).flatten())
    return cross(logits.flatten(0, -2), torch.tensor(labels).flatten())


LOSSES = [name for name in MODELS if name.partition(",")[0] in FAMILIES and name not in (
    "bert", "bert, pretraining", "bert, classes", "bert, tokens", "roberta", "roberta, masked", "xlm-roberta, masked",
    "xlm-roberta, classes", "distilbert", "distilbert, masked", "electra, masked", "albert, classes", "gpt2, bare",
    "mpnet", "vit", "llama", "llama, yarn", "llama, biases", "qwen2", "gpt_neox, in turn", "marian, two vocabularies",
)]  # fmt: skip
"""Of every family one, and of every head."""


def test_that_every_family_and_head_is_trained() -> None:
    assert {name.partition(",")[0] for name in LOSSES} == set(FAMILIES)
    assert {"masked", "classes", "tokens"} <= {name.partition(", ")[2] for name in LOSSES}


@pytest.mark.parametrize("name", LOSSES)
def test_twenty_steps_of_adamw(tmp_path: Path, name: str) -> None:
    shallow = (
        {}
        if name.startswith(("albert", "qwen2"))
        else {key: 1 for key in MODELS[name][2] if key.endswith(("layers", "n_layer"))}
    )
    theirs = make(transformers, torch, name, **shallow)
    theirs.save_pretrained(tmp_path)
    theirs, ours = theirs.double().train(), nn.load(tmp_path, dtype="float64").train()
    _, (ids, *given), mask = inputs(theirs, torch)
    rng = np.random.default_rng(3)
    target = rng.integers(3, 48, (3, 6))
    target[2, 4:] = getattr(theirs.config, "pad_token_id", None) or 0
    wide = {"masked": 48, "tokens": 3}.get(name.partition(", ")[2], 0)
    labels = (
        np.where(mask, rng.integers(0, wide, ids.shape), -100) if wide else rng.integers(0, 3, 3)
    )
    optimizer = torch.optim.AdamW(
        [p for p in theirs.parameters() if p.requires_grad], lr=0.01, weight_decay=0.01, fused=True
    )
    own = optim.AdamW([p for p in ours.parameters() if p.requires_grad], lr=0.01, weight_decay=0.01)
    for step in range(20):
        optimizer.zero_grad()
        own.zero_grad()
        expected = train_theirs(theirs, ours, ids, mask, target, labels)
        if isinstance(ours, nn.Transformer):
            found = ours.loss(ids, target, padding_mask=mask)
        elif isinstance(ours, nn.LanguageModel):
            found = ours.loss(ids, mask)
        else:
            found = ours.loss(ids, labels, *given)
        assert found.item() == pytest.approx(expected.item(), rel=1e-5), step
        expected.backward()
        found.backward()
        optimizer.step()
        own.step()


def their_tokens(row: list[int], ends: tuple[int, ...], skip: int) -> list[int]:
    row = row[skip:]
    ends_at = [i for i, token in enumerate(row) if token in ends]
    return row[: ends_at[0] + 1] if ends_at else row


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", GENERATES)
def test_greedy_and_beam_tokens(folders: Any, name: str, beams: int) -> None:
    theirs, path = folders(name)
    ours = nn.load(path)
    ids, mask = batch(theirs)
    options = {
        "max_new_tokens": 8,
        "num_beams": beams,
        "do_sample": False,
        "early_stopping": False,
        "length_penalty": 1.0,
    }
    if isinstance(ours, nn.Transformer):
        made = theirs.generate(
            torch.tensor(ids), attention_mask=torch.tensor(mask).long(), **options
        )
        found = nn.generate(ours, source=ids, num_beams=beams, max_len=8)
        skip = 1
    else:
        rows = [row[real].tolist() for row, real in zip(ids, mask)]
        width = ids.shape[1]
        left = np.array([[0] * (width - len(r)) + r for r in rows])
        real = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows])
        made = theirs.generate(torch.tensor(left), attention_mask=real, pad_token_id=0, **options)
        found = nn.generate(ours, rows, num_beams=beams, max_len=8)
        skip = width
    for row, tokens in zip(made.tolist(), found):
        assert tokens == their_tokens(row, ours.config.end_ids, skip)


@pytest.mark.parametrize("name", GENERATES)
def test_a_batch_is_its_rows_and_the_cache_changes_nothing(folders: Any, name: str) -> None:
    theirs, path = folders(name)
    ours = nn.load(path)
    ids, mask = batch(theirs)
    if isinstance(ours, nn.Transformer):
        together = nn.generate(ours, source=ids, max_len=6, eos=None)
        assert together == [
            nn.generate(ours, source=row[real][None], max_len=6, eos=None)[0]
            for row, real in zip(ids, mask)
        ]
        target = np.array([[ours.config.bos_id, *tokens] for tokens in together])
        logits = ours(ids, target, mask).data
    else:
        rows = [row[real].tolist() for row, real in zip(ids, mask)]
        together = nn.generate(ours, rows, max_len=6, eos=None)
        assert together == [nn.generate(ours, row, max_len=6, eos=None) for row in rows]
        logits = np.stack(
            [
                ours(np.array([row + tokens])).data[0, len(row) - 1 :]
                for row, tokens in zip(rows, together)
            ]
        )
    assert together == logits[:, :6].argmax(-1).tolist()  # without a cache: all at once


@pytest.mark.parametrize(
    "name", [n for n in GENERATES if not n.startswith(("marian", "bart", "mbart", "m2m", "t5"))]
)
def test_left_padding(folders: Any, name: str) -> None:
    theirs, path = folders(name)
    ours = nn.load(path)
    ids, mask = batch(theirs)
    left, real = np.roll(ids[1], 3)[None], np.roll(mask[1], 3)[None]
    expected = ours(ids[1:2, :6]).data
    np.testing.assert_allclose(ours(left, real).data[:, 3:], expected, rtol=1e-4, atol=1e-5)


def test_files_of_the_reference_are_as_ours(folders: Any, tmp_path: Path) -> None:
    _, path = folders("bert")
    assert SafetensorsFile(path / "model.safetensors").metadata == {"format": "pt"}
