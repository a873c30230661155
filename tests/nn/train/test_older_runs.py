"""Run directories of version 0.2 are resumed exactly."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from runs import weights

import minigrad as mg
import nn
from minigrad import optim
from minigrad.io import load_arrays

WRITTEN = Path(__file__).parent / "version_0_2"  # by `made(path, max_steps=7).fit()`


def made(run_dir: Path, **limits: int) -> nn.Trainer:
    """Return a trainer, by lines that also version 0.2 runs."""
    mg.manual_seed(0)
    model = nn.LanguageModel(nn.LanguageModelConfig(7, 4, 2, 1, 4, dropout=0.1, max_len=8))
    adam = optim.Adam(model.parameters(), lr=1e-2, eps=1e-3, clip_norm=1.0)
    ids = np.random.default_rng(0).integers(0, 7, 120)
    return nn.Trainer(
        model,
        adam,
        nn.WindowBatches(ids, 7, 4),
        valid=nn.WindowBatches(ids[:40], 7, 4, shuffle=False),
        schedule=optim.inverse_sqrt_schedule(4),
        average=nn.MovingAverage(model, 0.5),
        run_dir=run_dir,
        progress=False,
        log_every=2,
        **limits,
    )


def test_resume_from_state_of_version_0_2_is_exact(tmp_path: Path) -> None:
    whole = made(tmp_path / "whole", max_epochs=3)
    whole.fit()
    shutil.copytree(WRITTEN, tmp_path / "cut")
    assert load_arrays(WRITTEN / "last.safetensors")[1]["trainer"].get("parameters") is None
    again = made(tmp_path / "cut", max_epochs=3)
    again.fit(resume=True)
    for name, array in weights(whole).items():
        np.testing.assert_allclose(weights(again)[name], array, rtol=1e-3, atol=1e-5, err_msg=name)
    assert type(nn.load_run(WRITTEN / "last.safetensors")) is nn.LanguageModel
