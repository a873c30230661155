"""Tokens to draw from, beside the logits processors of transformers."""

from __future__ import annotations

import numpy as np
from support.environment import needs

from nn.decoding.search import Sampling

torch = needs("torch")
warpers = needs("transformers.generation.logits_process")


def test_sampling_restrict_keeps_the_tokens_of_transformers() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        logits = rng.normal(size=(3, 40)) * rng.choice([0.5, 2.0, 6.0])
        top_k, top_p, min_p = int(rng.integers(1, 45)), rng.uniform(0.05, 1), rng.uniform()
        uses = rng.random(3) < 0.5
        options = np.array([top_k, top_p, min_p], object)
        chain = [
            warpers.TopKLogitsWarper(top_k),
            warpers.TopPLogitsWarper(top_p),
            warpers.MinPLogitsWarper(min_p),
        ]
        expected = torch.tensor(logits).log_softmax(-1)
        found = Sampling(1.0, *np.where(uses, options, None)).restrict(expected.numpy())
        for warper in np.array(chain)[uses]:
            expected = warper(None, expected)
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected.numpy()))
