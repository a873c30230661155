"""Odd and extreme values of settings: refused by their names, or finite results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from runs import trainer, weights
from scripts import load

import nn
from minigrad import optim
from nn.text import PairBatches

RDrop = load("rdrop").RDrop
ODD = [float("nan"), float("inf"), -1, 2.5, "x", [], {}, 10.0, -(10**12), (1, 2, 3)]
IDS = np.arange(50)


def fit(**options: Any) -> None:
    model = nn.Linear(2, 1)
    batches = [(np.ones((2, 2), np.float32),)]
    objective = lambda model, batch: model(batch[0]).sum()
    settings = {"max_steps": 1, "progress": False, **options}
    nn.Trainer(model, optim.Adam(model.parameters()), batches, objective=objective, **settings)


def adam(**options: Any) -> None:
    optim.Adam(nn.Linear(2, 1).parameters(), **options)


def language_model() -> nn.LanguageModel:
    config = nn.LanguageModelConfig(9, 8, 2, 1, 16, max_len=20)
    return nn.LanguageModel(config, np.random.default_rng(0))


def generate(**options: Any) -> list[int]:
    return nn.generate(language_model(), [1, 2], **{"max_len": 3, **options})


def sample(**options: Any) -> None:
    nn.sample(language_model(), prompt=[1, 2], **{"max_len": 3, **options})


def names(call: Callable[..., Any], options: str, valid: tuple[Any, ...] = ()) -> list[Any]:
    return [
        pytest.param(call, name, valid, id=f"{call.__name__} {name}") for name in options.split()
    ]


@pytest.mark.parametrize(
    "call, name, valid",
    [
        *names(fit, "max_epochs max_steps accumulate validate_every patience keep_last save_every"),
        *names(fit, "log_every skip_nonfinite schedule parallel"),
        *names(lambda **o: nn.Batches(IDS, **{"batch_size": 2, **o}), "batch_size seed"),
        *names(lambda **o: nn.WindowBatches(IDS, **{"length": 4, "batch_size": 2, **o}), "length batch_size"),
        *names(lambda **o: PairBatches([([1], [1])], **o), "max_tokens"),
        *names(nn.ModelLoss, "label_smoothing"),
        *names(RDrop, "alpha", (2.5, 10.0)),
        *names(lambda **o: nn.MovingAverage(nn.Linear(2, 1), **o), "decay"),
        *names(adam, "lr eps weight_decay clip_norm", (2.5, 10.0)),
        *names(adam, "betas"),
        *names(nn.TransformerConfig, "d_model num_heads num_encoder_layers d_ff max_len dropout norm_eps activation norm"),
        *names(generate, "max_len min_len no_repeat_ngram_size num_beams"),
        *names(generate, "repetition_penalty", (2.5, 10.0)),
        *names(generate, "suppress first", ([], {}, (1, 2, 3))),
        *names(generate, "eos", ([], {}, (1, 2, 3), -1)),
        *names(lambda **o: generate(num_beams=2, **o), "length_penalty", (2.5, 10.0, -1)),
        *names(sample, "temperature", (2.5, 10.0)),
        *names(sample, "top_k top_p"),
    ],
)  # fmt: skip
def test_setting_with_an_odd_value_raises_its_name(
    call: Callable[..., Any], name: str, valid: tuple[Any, ...]
) -> None:
    words = {"parallel": "process", "num_beams": "beam"}
    for value in ODD:
        try:
            call(**{name: value})
        except (ValueError, TypeError) as error:
            message = str(error)
            assert words.get(name, name) in message and message.isprintable(), (
                f"{name}={value!r}: {message}"
            )
        else:
            assert value in valid, f"{name}={value!r} is accepted"


EXTREMES = [1e-320, 1e-45, 1e-30, 1e20, 1e38, 1e300, 1e308]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make, name",
    [
        *((optim.Adam, name) for name in ("lr", "eps", "weight_decay", "clip_norm")),
        *((optim.AdamW, name) for name in ("lr", "weight_decay")),
        *((optim.SGD, name) for name in ("lr", "momentum", "weight_decay")),
        (RDrop, "alpha"),
    ],
)
def test_fit_with_an_extreme_setting_is_finite_or_raises(make: Any, name: str) -> None:
    """No warning of NumPy comes before the error."""
    for value in EXTREMES:
        t = trainer(max_steps=3)
        sgd = {"lr": 0.1, "momentum": 0.9} if make is optim.SGD else {}
        objective = RDrop(value) if make is RDrop else t.objective
        try:
            optimizer = t.optimizer
            if make is not RDrop:
                optimizer = make(t.model.parameters(), **{**sgd, name: value})
            t = nn.Trainer(t.model, optimizer, t.train, valid=t.valid, max_steps=3, progress=False, objective=objective)  # fmt: skip
            t.fit()
        except (ValueError, FloatingPointError, OverflowError) as error:
            assert str(error).isprintable(), f"{make.__name__}({name}={value})"
        else:
            assert all(np.isfinite(a).all() for a in weights(t).values()), f"{name}={value}"


def test_generate_with_extreme_settings_returns_tokens() -> None:
    model, greedy = language_model(), generate(max_len=6)
    for value in EXTREMES:
        drawn = nn.sample(model, prompt=[1, 2], max_len=6, temperature=value)[0].tokens
        assert drawn == greedy if value < 1 else all(0 <= token < 9 for token in drawn)
        for options in ({}, {"num_beams": 3}):
            assert len(generate(max_len=6, repetition_penalty=value, **options)) == 6
    assert generate(max_len=10**15, eos=greedy[2])[-1] == greedy[2]  # takes no memory ahead
    for options in ({}, {"num_beams": 2}):
        with pytest.raises(ValueError, match="the rules .* leave no token that may come next"):
            generate(suppress=range(9), **options)
