"""Published models beside transformers: tiny random models of every family and head.

`MODELS` in tests/support/published_settings.py is the table of configurations. Each is made and saved by
transformers, loaded here, and compared by its logits, the gradients of its loss, the files that
`nn.save` writes, and the tokens that it generates.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.published import draw_batch, load_theirs, make, name_in_file, outputs, torch, until_end
from support.published_settings import MODELS

import nn
from nn.published.load import FAMILIES

Saved = Callable[[str], tuple[Any, Path]]
GENERATIVE = [
    name for name in MODELS
    if FAMILIES[name.partition(",")[0]].models.keys() == {""} and not MODELS[name][0].endswith("Model")
]  # fmt: skip
IN_FLOAT32 = {
    "gemma", "gemma2", "gemma3_text", "gpt_neox", "llama", "mistral", "modernbert", "phi3", "qwen2",
    "qwen3", "smollm3", "t5", "marian", "m2m_100",
}  # fmt: skip
"""Families whose norms, rotations or sines transformers always computes in float32."""


def test_models_contain_every_family() -> None:
    assert {name.partition(",")[0] for name in MODELS} == set(FAMILIES)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Return a function that makes the model of a name once, and saves it by transformers."""
    made: dict[str, tuple[Any, Path]] = {}

    def get(name: str) -> tuple[Any, Path]:
        if name not in made:
            path = tmp_path_factory.mktemp("models") / "x"
            made[name] = make(name, path), path
        return made[name]

    return get


@pytest.mark.parametrize("name", MODELS)
def test_load_published_model_gives_logits_of_transformers(saved: Saved, name: str) -> None:
    theirs, path = saved(name)
    theirs, ours = copy.deepcopy(theirs).double(), nn.load(path)
    expected, logits, is_real = outputs(theirs, nn.load(path, dtype="float64"))
    expected = expected.detach().numpy()[is_real]
    np.testing.assert_allclose(logits.data[is_real], expected, 1e-5, 1e-5)
    for model in (ours, nn.for_inference(ours)):  # rounding of float32 depends on the processor
        _, logits, _ = outputs(theirs, model)
        np.testing.assert_allclose(logits.data[is_real], expected, 1e-4, 1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_loaded_model_has_gradients_of_transformers(saved: Saved, name: str) -> None:
    theirs, path = saved(name)
    theirs, ours = copy.deepcopy(theirs).double(), nn.load(path, dtype="float64")
    expected, logits, is_real = outputs(theirs, ours)
    cotangent = np.random.default_rng(2).standard_normal(logits.shape)
    cotangent[~is_real] = 0
    expected.backward(torch.tensor(cotangent))
    logits.backward(cotangent)
    exact = name.partition(",")[0] not in IN_FLOAT32
    parameters = dict(ours.named_parameters())
    gradients = {
        name_in_file(theirs, key): p.grad.numpy()
        for key, p in theirs.named_parameters(remove_duplicate=False) if p.grad is not None
    }  # fmt: skip
    largest = max(np.abs(g).max() for g in gradients.values())
    zeros_or_gradients = {
        name: np.zeros(p.shape) if p.grad is None else p.grad for name, p in parameters.items()
    }
    for key, stored in ours.origin.arrays.items():
        found = stored.join(zeros_or_gradients)
        expected = gradients.get(key, np.zeros(found.shape))
        scale = max(np.abs(expected).max(), 1e-3 * largest)  # a key's bias has almost none
        atol = scale * (1e-8 if exact else 1e-4)
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=key)


@pytest.mark.parametrize("name", ["gpt2", "marian"])
def test_loss_of_padded_batch_equals_transformers(saved: Saved, name: str) -> None:
    theirs, path = saved(name)
    ids, mask = draw_batch(theirs)
    inputs = {
        "input_ids": ids,
        "attention_mask": mask.astype(int),
        "labels": np.where(mask, ids, -100),
    }
    if name == "marian":
        target = np.pad(ids, ((0, 0), (1, 0)), constant_values=1)
        inputs["decoder_input_ids"] = target[:, :-1]
        loss = nn.load(path).loss(ids, target, padding_mask=mask)
    else:
        loss = nn.load(path).loss(ids, mask)
    expected = theirs(**{key: torch.tensor(value) for key, value in inputs.items()}).loss
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_save_of_loaded_model_writes_files_of_transformers(
    saved: Saved, tmp_path: Path, name: str
) -> None:
    theirs, path = saved(name)
    nn.save(tmp_path / "x", nn.load(path))
    files = [directory / "model.safetensors" for directory in (tmp_path / "x", path)]
    assert files[0].read_bytes() == files[1].read_bytes()
    again = load_theirs(type(theirs), tmp_path / "x")
    beside = dict.fromkeys(("_name_or_path", "dtype", "architectures"))
    assert again.config.to_diff_dict() | beside == theirs.config.to_diff_dict() | beside
    assert again.config.architectures == [type(theirs).__name__]


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", GENERATIVE)
def test_generate_of_padded_batch_gives_tokens_of_transformers(
    saved: Saved, name: str, beams: int
) -> None:
    theirs, path = saved(name)
    ours = nn.load(path)
    ids, mask = draw_batch(theirs)
    options = {"max_new_tokens": 8, "num_beams": beams, "do_sample": False}
    options |= {"early_stopping": False, "length_penalty": 1.0, "num_return_sequences": beams}
    if isinstance(ours, nn.Transformer):
        start, inputs = 1, {"source": ids}
    else:  # prompts are padded on the left
        start, inputs = 9, {"prompt": [row[m].tolist() for row, m in zip(ids, mask)]}
        ids[1], mask[1] = np.roll(ids[1], 3), np.roll(mask[1], 3)
        options["pad_token_id"] = 0
    tensors = torch.tensor(ids), torch.tensor(mask).long()
    generated = theirs.generate(tensors[0], attention_mask=tensors[1], **options).tolist()
    expected = [until_end(row[start:], ours.config.end_ids) for row in generated]
    for model in (ours, nn.for_inference(ours)):
        search = nn.beam_search(model, **inputs, beam_size=beams, n_best=beams, max_len=8)
        assert [h.tokens for best in search for h in best] == expected
        if beams == 1:
            greedy = nn.greedy_search(model, **inputs, max_len=8)
            assert [h.tokens for h in greedy] == expected
