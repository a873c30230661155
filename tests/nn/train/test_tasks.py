"""Trainers for every task: learning, resuming, schedules and scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_equal
from runs import assert_same_run, at_step, trainer, weights

import minigrad as mg
import nn
from minigrad import optim
from nn.train import Batches, WindowBatches
from nn.train.agreement import rates

RNG = np.random.default_rng(0)
TEXT = RNG.integers(0, 11, 400)
ROWS, LABELS = RNG.integers(1, 11, (60, 7)), RNG.integers(0, 3, 60)


def language_model() -> tuple[nn.Module, Any, Any, Any]:
    config = nn.LanguageModelConfig(11, 16, 2, 1, 24, dropout=0.1, max_len=12)
    valid = WindowBatches(TEXT[:80], 9, 6, shuffle=False)
    return nn.LanguageModel(config), WindowBatches(TEXT, 9, 6), valid, None


def classifier() -> tuple[nn.Module, Any, Any, Any]:
    sizes = {"dropout": 0.1, "max_len": 12, "num_classes": 3}
    model = nn.EncoderClassifier(nn.EncoderConfig(11, 16, 2, 1, 24, **sizes))
    valid = Batches(ROWS, LABELS, batch_size=20)
    return model, Batches(ROWS, LABELS, batch_size=8), valid, None


def own() -> tuple[nn.Module, Any, Any, Any]:
    """Return a module with a generator of its own, whose loss is a separate function."""
    dropout = nn.Dropout(0.2, generator=np.random.default_rng(7))
    model = nn.Sequential(nn.Linear(7, 8), dropout, nn.Linear(8, 3))
    batches = [(ROWS[i : i + 8] / 10.0, LABELS[i : i + 8]) for i in range(0, 60, 8)]
    loss = lambda model, batch: mg.cross_entropy(model(batch[0]), batch[1])
    return model, batches, batches[:2], loss


def run(
    task: Callable[..., Any], run_dir: Path | None, schedule: Any = None, **options: Any
) -> nn.Trainer:
    mg.manual_seed(0)
    model, batches, valid, objective = task()
    adam = optim.AdamW(model.parameters(), lr=5e-3, clip_norm=1.0)
    settings = {"max_epochs": 3, "progress": False, "log_every": 3, "save_every": 1, **options}
    if schedule is not None:
        settings["schedule"] = schedule(adam)
    return nn.Trainer(
        model, adam, batches, valid=valid, objective=objective, run_dir=run_dir, **settings
    )


@pytest.mark.parametrize(
    "task, parallel, stop",
    [
        (language_model, 1, 1),  # before the first validation
        (language_model, 2, 8),
        (classifier, 1, 8),
        (own, 1, 8),
        (own, 2, 8),
    ],
)
def test_resume_of_task_is_exact(
    tmp_path: Path, task: Callable[..., Any], parallel: int, stop: int
) -> None:
    whole = run(task, tmp_path / "whole", parallel=parallel)
    before = whole.evaluate(whole.valid)
    whole.fit()
    assert whole.best is not None and whole.best < before
    cut = run(task, tmp_path / "cut", parallel=parallel, max_steps=stop)
    cut._validate = lambda: None  # type: ignore[method-assign]  # as if it had been killed
    cut.fit()
    again = run(task, tmp_path / "cut", parallel=parallel)
    mg.manual_seed(7)  # whatever came between
    again.fit(resume=True)
    assert_equal(weights(again), weights(whole))


def test_resume_with_batches_that_draw_numbers_is_exact(tmp_path: Path) -> None:
    """The first batch after resuming is drawn again, with the numbers that were drawn before."""

    def drawing() -> tuple[nn.Module, Any, Any, Any]:
        model, batches, _, loss = own()
        noise = lambda x: x + mg.default_generator().standard_normal(x.shape)
        return model, lambda epoch: ((noise(x), y) for x, y in batches), None, loss

    whole = run(drawing, tmp_path / "whole")
    whole.fit()
    run(drawing, tmp_path / "cut", max_steps=5).fit()
    again = run(drawing, tmp_path / "cut")
    again.fit(resume=True)
    assert_equal(weights(again), weights(whole))


@pytest.mark.parametrize("task", [language_model, classifier])
def test_load_run_rebuilds_model(tmp_path: Path, task: Callable[..., Any]) -> None:
    t = run(task, tmp_path, max_steps=2)
    t.fit()
    before = mg.get_rng_state()
    for path in (tmp_path, tmp_path / "last.safetensors"):
        model = nn.load_run(path)
        assert type(model) is type(t.model) and model.config == t.model.config
        assert not model.training
        assert_equal(model.state_dict(), weights(t))
    assert mg.get_rng_state() == before  # nothing was drawn


def test_load_run_without_settings_or_files_raises(tmp_path: Path) -> None:
    run(own, tmp_path, max_steps=1).fit()
    message = "best.safetensors must contain the settings of a model of nn, got weights alone"
    with pytest.raises(ValueError, match=message):
        nn.load_run(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        nn.load_run(tmp_path / "nowhere")


def test_resume_with_plateau_schedule_is_exact(tmp_path: Path) -> None:
    """Validations never improve, so the learning rate falls after every second one."""
    plateau = lambda adam: optim.ReduceLROnPlateau(adam, mode="max", factor=0.5, patience=1)

    def made(name: str) -> nn.Trainer:
        score = lambda model: -t.step
        t = run(classifier, tmp_path / name, plateau, score=score, validate_every=4)
        return t

    def stop() -> None:
        raise InterruptedError

    whole = made("whole")
    whole.fit()
    rates = [e["lr"] for e in whole.history if "lr" in e]
    assert whole.lr == pytest.approx(5e-3 * 0.5**2) and sorted(rates, reverse=True) == rates
    cut = made("cut")
    at_step(cut, 9, stop)
    with pytest.raises(InterruptedError):
        cut.fit()
    again = made("cut")
    again.fit(resume=True)
    assert_same_run(whole, again)
    assert again.schedule.state_dict() == whole.schedule.state_dict()


def test_fit_with_score_keeps_best_and_stops(tmp_path: Path) -> None:
    """A larger score is better, and the validation loss does not matter."""
    scores = iter([10.0, 20.0, 15.0, 19.9, 20.0, 99.0])
    seen: list[dict[str, np.ndarray]] = []

    def bleu(model: nn.Module) -> float:
        assert not model.training
        seen.append(weights(t))
        return next(scores)

    t = trainer(tmp_path, score=bleu, patience=3, max_epochs=50)
    history = t.fit()
    assert t.epoch == 5 and (t.best, t.state.counters.worse) == (20.0, 3)
    assert [e["score"] for e in history if "score" in e] == [10.0, 20.0, 15.0, 19.9, 20.0]
    assert all("valid_loss" in e for e in history if "score" in e)
    best = trainer()
    assert nn.load_weights(tmp_path / "best.safetensors", best.model)["score"] == 20.0
    assert_equal(weights(best), seen[1])


MODEL, OTHER = nn.Linear(3, 2), nn.Linear(4, 2)
ADAM = optim.Adam(MODEL.parameters())
STRANGERS = optim.Adam([*MODEL.parameters(), *OTHER.parameters()])
PLATEAU = optim.ReduceLROnPlateau(ADAM)
BATCHES = [(np.ones((2, 3), np.float32),)]


@pytest.mark.parametrize(
    "optimizer, options, message",
    [
        (STRANGERS, {}, r"optimizer must have parameters of the model only, .* shape \(2, 4\)"),
        (
            ADAM,
            {"schedule": optim.StepLR(optim.SGD(OTHER.parameters(), lr=0.1), 3)},
            "schedule must be made for the optimizer of the trainer",
        ),
        (ADAM, {"schedule": PLATEAU}, "ReduceLROnPlateau without validations; pass valid= or s"),
        (
            ADAM,
            {"schedule": PLATEAU, "score": lambda model: 0.0},
            "must be 'max', since larger scores are better, got 'min'",
        ),
        (
            ADAM,
            {"schedule": optim.ReduceLROnPlateau(ADAM, mode="max"), "valid": BATCHES},
            "must be 'min', since smaller losses are better, got 'max'",
        ),
    ],
    ids=["parameters", "optimizer", "no validations", "larger is better", "smaller is better"],
)
def test_trainer_with_parts_that_do_not_fit_raises(
    optimizer: Any, options: dict[str, Any], message: str
) -> None:
    loss = lambda model, batch: model(batch[0]).sum()
    with pytest.raises(ValueError, match=message):
        nn.Trainer(MODEL, optimizer, BATCHES, objective=loss, max_steps=1, **options)


@pytest.mark.parametrize(
    "kind, options, others",
    [
        (optim.Schedule, {"factor": lambda step: 1 / step}, {"factor": lambda step: 0.5}),
        (optim.CosineAnnealingLR, {"T_max": 70}, {"T_max": 80}),
        (
            partial(optim.OneCycleLR, max_lr=2.0, cycle_momentum=False),
            {"total_steps": 20},
            {"total_steps": 21},
        ),
        (optim.ReduceLROnPlateau, {"patience": 1}, {"patience": 2}),
    ],
)
def test_rates_differ_for_other_options(kind: Any, options: Any, others: Any) -> None:
    compared = lambda options: rates(kind(optim.SGD(MODEL.parameters(), lr=0.1), **options))
    assert compared(options) == compared(options) != compared(others)
