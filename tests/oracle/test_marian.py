"""Marian models against Hugging Face's, from the same files."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nn

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
transformers = pytest.importorskip("transformers", reason="Hugging Face's models are the oracle; it is not installed")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=40, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, activation_function="swish",
        max_position_embeddings=32, pad_token_id=39, decoder_start_token_id=39, eos_token_id=0, forced_eos_token_id=None,
        scale_embedding=True, init_std=0.5,
    )  # fmt: skip
    model = transformers.MarianMTModel(config).eval()
    model.final_logits_bias.normal_()
    path = tmp_path_factory.mktemp("marian")
    model.save_pretrained(path)
    return model, path


def test_scores_and_decoding(theirs: tuple[Any, Path]) -> None:
    model, path = theirs
    ours = nn.load_marian(path)
    rng = np.random.default_rng(0)
    source, target = rng.integers(1, 39, (3, 7)), rng.integers(1, 39, (3, 5))
    source[1, 4:] = 39
    mask = torch.tensor(source != 39)
    with torch.no_grad():
        expected = model(torch.tensor(source), attention_mask=mask, decoder_input_ids=torch.tensor(target)).logits
    np.testing.assert_allclose(ours(source, target).data, expected.numpy(), rtol=1e-4, atol=1e-4)
    for beams in (1, 3):
        options = {"max_new_tokens": 12, "num_beams": beams, "do_sample": False, "early_stopping": False}
        made = model.generate(torch.tensor(source), attention_mask=mask, **options, bad_words_ids=None)
        if beams == 1:
            found = nn.greedy_search(ours, source, max_len=12)
        else:
            found = [hypotheses[0] for hypotheses in nn.beam_search(ours, source, beam_size=beams, max_len=12)]
        for row, h in zip(made.tolist(), found):
            row = row[1:]
            end = row.index(0) + 1 if 0 in row else len(row)
            assert h.tokens == row[:end], beams


def test_a_bias_of_zeros_is_left_out(theirs: tuple[Any, Path], tmp_path: Path) -> None:
    model = copy.deepcopy(theirs[0])
    model.final_logits_bias.zero_()
    model.save_pretrained(tmp_path)
    ours, source, target = nn.load_marian(tmp_path), np.array([[3, 5, 8]]), np.array([[1, 4, 9]])
    assert ours.output.bias is None and not ours.config.output_bias
    with torch.no_grad():
        expected = model(torch.tensor(source), decoder_input_ids=torch.tensor(target)).logits
    np.testing.assert_allclose(ours(source, target).data, expected.numpy(), rtol=1e-4, atol=1e-4)


def test_errors(theirs: tuple[Any, Path], tmp_path: Path) -> None:
    settings = json.loads((theirs[1] / "config.json").read_text())
    with pytest.raises(ValueError, match="a Marian model with other ffn_dim in its decoder"):
        nn.marian_config({**settings, "decoder_ffn_dim": 8})
    with pytest.raises(ValueError, match="a Marian model with activation 'mish' is not supported"):
        nn.marian_config({**settings, "activation_function": "mish"})
    (tmp_path / "config.json").write_text(json.dumps({**settings, "encoder_layers": 3}))
    (tmp_path / "model.safetensors").write_bytes((theirs[1] / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match="not the weights of such a Marian model: model.encoder.layers.2"):
        nn.load_marian(tmp_path)
