"""Copies for inference of every published family compute and generate what the loaded model does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nn

torch = pytest.importorskip("torch", reason="the models are made by transformers")
transformers = pytest.importorskip("transformers", reason="the models are made by transformers")

from published import MODELS, batch, make  # noqa: E402


@pytest.mark.parametrize("name", MODELS)
def test_for_inference(tmp_path: Path, name: str) -> None:
    theirs = make(transformers, torch, name)
    theirs.save_pretrained(tmp_path)
    model = nn.load(tmp_path)
    quick = nn.for_inference(model)
    ids, mask = batch(theirs)
    arguments: tuple[Any, ...] = (ids, ids[:, :4]) if isinstance(model, nn.Transformer) else (ids,)
    padding = {} if name.startswith("vit") else {"padding_mask": mask}
    expected = model(*arguments, **padding).data
    np.testing.assert_allclose(quick(*arguments, **padding).data, expected, rtol=1e-4, atol=1e-5)
    if isinstance(model, nn.LanguageModel):
        prompts = [[5, 6, 7], [8]]
        assert nn.generate(quick, prompts, max_len=6) == nn.generate(model, prompts, max_len=6)
    elif isinstance(model, nn.Transformer):
        for source in (ids, ids[:1]):
            found = [nn.generate(m, source=source, num_beams=3, max_len=6) for m in (quick, model)]
            assert found[0] == found[1]
