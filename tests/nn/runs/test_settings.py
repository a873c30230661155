"""Odd and extreme values of settings: refused by their names, or finite results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.scripts import load

import nn
from minigrad import optim
from nn.text.batches import PairBatches

ODD = [float("nan"), float("inf"), -1, 2.5, "x", [], {}, 10.0, -(10**12), (1, 2, 3)]
REALS, SEQUENCES = [2.5, 10.0], [[], {}, (1, 2, 3)]
IDS = np.arange(50)


def fit(**options: Any) -> None:
    """Create a trainer with these options."""
    model = nn.Linear(2, 1)
    settings = {"max_steps": 1, "progress": False, **options}
    nn.Trainer(model, optim.Adam(model.parameters()), [], objective=lambda *x: 0.0, **settings)


def generate(**options: Any) -> list[int]:
    """Generate with a small model and these options."""
    config = nn.LanguageModelConfig(9, 8, 2, 1, 16, max_len=20)
    model = nn.LanguageModel(config, np.random.default_rng(0))
    return nn.generate(model, [1, 2], **{"max_len": 6, **options})


@pytest.mark.parametrize(
    "call, names, valid",
    [
        (fit, "max_epochs max_steps accumulate validate_every patience keep_last save_every", []),
        (fit, "log_every skip_nonfinite schedule parallel", []),
        (lambda **o: nn.Batches(IDS, **{"batch_size": 2, **o}), "batch_size seed", []),
        (lambda **o: nn.WindowBatches(IDS, **{"length": 4, "batch_size": 2, **o}), "length", []),
        (lambda **o: PairBatches([([1], [1])], **o), "max_tokens", []),
        (nn.ModelLoss, "label_smoothing", []),
        (load("rdrop").RDrop, "alpha", REALS),
        (lambda **o: optim.Adam([nn.Parameter(IDS / 1.0)], **o), "lr eps weight_decay clip_norm", REALS),
        (lambda **o: optim.Adam([nn.Parameter(IDS / 1.0)], **o), "betas", []),
        (nn.TransformerConfig, "d_model num_heads d_ff max_len dropout positions tie", []),
        (lambda **o: nn.Transformer(nn.TransformerConfig(9, 9, 8, 2, **o)), "activation", []),
        (nn.EncoderDecoderConfig, "d_model num_heads d_ff max_len dropout norm_eps activation norm", []),
        (generate, "max_len min_len no_repeat_ngram_size num_beams", []),
        (generate, "repetition_penalty", REALS),
        (generate, "suppress first", SEQUENCES),
        (generate, "eos", [*SEQUENCES, -1]),
        (lambda **o: generate(num_beams=2, **o), "length_penalty", [*REALS, -1]),
        (lambda **o: generate(do_sample=True, **o), "temperature", REALS),
        (lambda **o: generate(do_sample=True, **o), "top_k top_p", []),
    ],
)  # fmt: skip
def test_setting_with_odd_value_raises_its_name(
    call: Callable[..., Any], names: str, valid: list[Any]
) -> None:
    words = {"parallel": "process", "num_beams": "beam"}
    for name in names.split():
        for value in [value for value in ODD if value not in valid]:
            with pytest.raises((ValueError, TypeError), match=words.get(name, name)):
                call(**{name: value})
                pytest.fail(f"{name}={value!r} is accepted")


@pytest.mark.parametrize("value", [1e-320, 1e-45, 1e38, 1e308])
def test_generate_with_extreme_setting_returns_tokens(value: float) -> None:
    drawn = generate(do_sample=True, temperature=value)
    assert drawn == generate() if value < 1 else all(0 <= token < 9 for token in drawn)
    for options in ({}, {"num_beams": 3}):
        assert len(generate(repetition_penalty=value, **options)) == 6


def test_generate_with_huge_length_takes_no_memory_ahead() -> None:
    eos = generate()[2]
    assert generate(max_len=10**15, eos=eos)[-1] == eos


@pytest.mark.parametrize("num_beams", [1, 2])
def test_generate_with_all_tokens_suppressed_raises(num_beams: int) -> None:
    with pytest.raises(ValueError, match="the rules .* leave no token that may come next"):
        generate(suppress=range(9), num_beams=num_beams)
