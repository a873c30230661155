"""Attention and hidden states of published models, as transformers computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.published import draw_batch, make, torch

import nn


def model_pair(path: Path, name: str) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Return a model of transformers that returns attention, the same model here, ids and mask."""
    theirs = make(name, path)
    theirs.set_attn_implementation("eager")
    return theirs, nn.load(path), *draw_batch(theirs)


@pytest.mark.parametrize("name", ["bert", "albert, masked", "gpt2", "mistral"])
def test_recorded_attention_and_hidden_states_equal_transformers(tmp_path: Path, name: str) -> None:
    theirs, ours, ids, mask = model_pair(tmp_path, name)
    recorded = {"output_attentions": True, "output_hidden_states": True}
    expected = theirs(torch.tensor(ids), attention_mask=torch.tensor(mask).long(), **recorded)
    with nn.record_attention(ours) as attention, nn.record_hidden(ours) as hidden:
        ours.hidden(ids, mask)
    maps = [weights for calls in attention.values() for weights in calls]
    for weights, layer in zip(maps, expected.attentions, strict=True):
        weights, layer = (np.moveaxis(x, 1, 2)[mask] for x in (weights, layer.numpy(force=True)))
        np.testing.assert_allclose(weights, layer, atol=1e-5)
    states = [h for key, calls in hidden.items() for h in calls if not key.endswith("norm")]
    if isinstance(ours, nn.LanguageModel):
        states = states[:-1]  # the last state of transformers is normed
    first = 1 if name.startswith("albert") else 0  # transformers starts after the projection
    for state, layer in zip(states[first:], expected.hidden_states[first:]):
        np.testing.assert_allclose(state[mask], layer.numpy(force=True)[mask], 1e-5, 1e-5)


@pytest.mark.parametrize("name", ["marian", "t5"])
def test_attention_maps_of_translator_equal_transformers(tmp_path: Path, name: str) -> None:
    theirs, ours, ids, _ = model_pair(tmp_path, name)
    source, target = ids[0], ids[2, :5]
    start = torch.tensor([[ours.config.bos_id, *target[:-1]]])
    expected = theirs(torch.tensor(source[None]), decoder_input_ids=start, output_attentions=True)
    maps = nn.attention_maps(ours, source, target)
    for kind in ("encoder", "decoder", "cross"):
        layers = getattr(expected, f"{kind}_attentions")
        for weights, layer in zip(maps[kind], layers, strict=True):
            np.testing.assert_allclose(weights, layer.numpy(force=True)[0], atol=1e-5)
