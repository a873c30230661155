"""Lesson 9 on the directory of a model."""

from __future__ import annotations

import contextlib
import importlib
import io
import runpy
from pathlib import Path

import numpy as np
import pytest
from support.environment import needs
from support.scripts import EXAMPLES

import nn

COURSE = EXAMPLES / "course"
PROMPT = "apple river stone cloud tiger window"


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(COURSE))


def save_model(folder: Path, model: nn.Model) -> Path:
    """Save a model with random weights, and a tokenizer of the words of the lesson."""
    tokenizers = needs("tokenizers")
    words = {word: i for i, word in enumerate(PROMPT.split())}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="apple"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    nn.save(folder, model)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}", "utf-8")
    return folder


def test_lesson_runs_on_a_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = nn.LanguageModelConfig(6, 12, 3, 4, 16, max_len=20, pad_id=None)
    model = nn.LanguageModel(config, np.random.default_rng(0)).eval()
    monkeypatch.setenv("LANGUAGE_MODEL", str(save_model(tmp_path / "model", model)))
    monkeypatch.chdir(tmp_path)
    lesson = COURSE / "09_language_model.py"
    monkeypatch.setattr("sys.argv", [str(lesson)])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(lesson))
    text = printed.getvalue()
    assert f"4 layers of 3 heads, {model.num_parameters():,} parameters" in text
    assert "✓ after the last layer, the lens differs from the model by" in text


def test_open_model_of_another_model_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (nn, nn.text):
        monkeypatch.setattr(module, "load", lambda directory: nn.Linear(2, 2))
    with pytest.raises(ValueError, match="x must contain a language model such as GPT-2"):
        importlib.import_module("language_model").open_model("x")
