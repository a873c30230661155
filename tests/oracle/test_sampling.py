"""Tokens to draw from, beside the logits processors of transformers."""

from __future__ import annotations

import numpy as np
import pytest

from nn.generation.search import Sampling

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
warpers = pytest.importorskip(
    "transformers.generation.logits_process",
    reason="transformers is the oracle",
)


@pytest.mark.parametrize("seed", range(4))
def test_sampling_restrict_keeps_the_tokens_of_transformers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(50):
        logits = rng.normal(size=(3, 40)) * rng.choice([0.5, 2.0, 6.0])
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        top_k = int(rng.integers(1, 45)) if rng.random() < 0.5 else None
        top_p = float(rng.uniform(0.05, 1)) if rng.random() < 0.5 else None
        min_p = float(rng.uniform(0, 1)) if rng.random() < 0.5 else None
        chain = [warpers.TopKLogitsWarper(top_k)] if top_k else []
        chain += [warpers.TopPLogitsWarper(top_p)] if top_p else []
        chain += [warpers.MinPLogitsWarper(min_p)] if min_p is not None else []
        expected = torch.tensor(log_probs)
        for warper in chain:
            expected = warper(None, expected)
        found = Sampling(1.0, top_k, top_p, min_p).restrict(log_probs)
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected.numpy()))
