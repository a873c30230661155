"""Trainers for every task: learning, resuming, schedules and scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_equal
from support.runs import SumOfRows, assert_same_run, at_step, trainer, weights

import minigrad as mg
import nn
from minigrad import optim
from nn.runs.agreement import schedule_settings

RNG = np.random.default_rng(0)
TEXT = RNG.integers(0, 11, 400)
ROWS, LABELS = RNG.integers(1, 11, (60, 7)), RNG.integers(0, 3, 60)
Task = tuple[nn.Module, Any, Any, Any]


def language_model() -> Task:
    """Return a language model, its batches and those for validation."""
    config = nn.LanguageModelConfig(11, 16, 2, 1, 24, dropout=0.1, max_len=12)
    batches = nn.WindowBatches(TEXT, 9, 6)
    return nn.LanguageModel(config), batches, nn.WindowBatches(TEXT[:80], 9, 6), None


def classifier() -> Task:
    """Return a classifier, its batches and those for validation."""
    config = nn.EncoderConfig(11, 16, 2, 1, 24, dropout=0.1, max_len=12, num_classes=3)
    batches, valid = (nn.Batches(ROWS, LABELS, batch_size=size) for size in (8, 20))
    return nn.EncoderClassifier(config), batches, valid, None


def own() -> Task:
    """Return a module with a generator of its own, whose loss is a separate function."""
    dropout = nn.Dropout(0.2, generator=np.random.default_rng(7))
    model = nn.Sequential(nn.Linear(7, 8), dropout, nn.Linear(8, 3))
    batches = [(ROWS[i : i + 8] / 10.0, LABELS[i : i + 8]) for i in range(0, 60, 8)]
    loss = lambda model, batch: mg.cross_entropy(model(batch[0]), batch[1])
    return model, batches, batches[:2], SumOfRows(loss)


def drawing() -> Task:
    """Return batches that draw random numbers."""
    model, batches, _, loss = own()
    noise = lambda x: x + mg.default_generator().standard_normal(x.shape)
    return model, lambda epoch: ((noise(x), y) for x, y in batches), batches[:2], loss


def run(
    task: Callable[[], Task], run_dir: Path, schedule: Any = None, **options: Any
) -> nn.Trainer:
    """Return a trainer of the task with fixed seeds and AdamW."""
    mg.manual_seed(0)
    model, batches, valid, objective = task()
    adam = optim.AdamW(model.parameters(), lr=5e-3, clip_norm=1.0)
    if schedule is not None:
        options["schedule"] = schedule(adam)
    settings = {"max_epochs": 3, "progress": False, "log_every": 3, "save_every": 1, **options}
    return nn.Trainer(
        model, adam, batches, valid=valid, objective=objective, run_dir=run_dir, **settings
    )


@pytest.mark.parametrize(
    "task, parallel, stop",
    [
        (language_model, 1, 1),  # before the first validation
        (language_model, 2, 8),
        (classifier, 1, 8),
        (own, 2, 8),
        (drawing, 1, 5),
    ],
)
def test_resume_of_task_is_exact(
    tmp_path: Path, task: Callable[[], Task], parallel: int, stop: int
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


def test_load_run_rebuilds_model(tmp_path: Path) -> None:
    t = run(classifier, tmp_path, max_steps=2)
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

    def made(name: str, **options: Any) -> nn.Trainer:
        score = lambda model: -t.step
        t = run(classifier, tmp_path / name, plateau, score=score, validate_every=4, **options)
        return t

    whole = made("whole")
    whole.fit()
    assert whole.lr == pytest.approx(5e-3 * 0.5**2)
    cut = made("cut")
    at_step(cut, 9, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cut.fit()
    again = made("cut")
    again.fit(resume=True)
    assert_same_run(whole, again)
    assert again.schedule.state_dict() == whole.schedule.state_dict()


def test_fit_with_score_keeps_best_and_stops(tmp_path: Path) -> None:
    """A larger score is better, and the validation loss does not matter."""
    scores = [10.0, 20.0, 15.0, 19.9, 20.0, 99.0]
    seen: list[dict[str, np.ndarray]] = []

    def bleu(model: nn.Module) -> float:
        assert not model.training
        seen.append(weights(t))
        return scores[len(seen) - 1]

    t = trainer(tmp_path, score=bleu, patience=3, max_epochs=50)
    history = t.fit()
    assert t.epoch == 5 and (t.best, t.state.counters.worse) == (20.0, 3)
    assert [e["score"] for e in history if "valid_loss" in e] == scores[:5]
    best = trainer()
    assert nn.load_weights(tmp_path / "best.safetensors", best.model)["score"] == 20.0
    assert_equal(weights(best), seen[1])


@pytest.mark.parametrize("kind", [int, np.float32, np.array, mg.tensor])
def test_score_may_be_any_number_and_compute_what_is_not_finite(tmp_path: Path, kind: Any) -> None:
    """Record no gradients, and show no warnings."""

    def score(model: nn.Module) -> Any:
        assert not mg.is_grad_enabled() and not np.isfinite(np.log(np.zeros(1)))
        return kind(t.step)

    t = run(own, tmp_path, score=score, max_epochs=1, validate_every=2)
    scores = [entry["score"] for entry in t.fit() if "score" in entry]
    assert scores == [2.0, 4.0, 6.0, 8.0] and {*map(type, scores)} == {float}
    lines = [*map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())]
    assert [line["score"] for line in lines if "score" in line] == scores


MODEL, OTHER = nn.Linear(3, 2), nn.Linear(4, 2)
ADAM = optim.Adam(MODEL.parameters())
STRANGERS = optim.Adam([*MODEL.parameters(), *OTHER.parameters()])
SECOND = optim.Adam([{"params": module.parameters()} for module in (MODEL, OTHER)])
PLATEAU = optim.ReduceLROnPlateau(ADAM)
RISING = optim.ReduceLROnPlateau(ADAM, mode="max")
SCORE = lambda model: 0.0


@pytest.mark.parametrize(
    "optimizer, options, message",
    [
        (STRANGERS, {}, r"optimizer must have parameters of the model only, .* shape \(2, 4\)"),
        (SECOND, {}, r"optimizer must have parameters of the model only, .* shape \(2, 4\)"),
        (optim.SGD(MODEL.parameters()), {"schedule": PLATEAU}, "must be made for the optimizer of"),
        (ADAM, {"schedule": PLATEAU}, "ReduceLROnPlateau without validations; pass valid= or s"),
        (ADAM, {"schedule": PLATEAU, "score": SCORE}, "must be 'max', since larger scores"),
        (ADAM, {"schedule": RISING, "valid": [LABELS]}, "must be 'min', since smaller losses"),
    ],
)
def test_trainer_with_parts_that_do_not_fit_raises(
    optimizer: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        nn.Trainer(MODEL, optimizer, [], objective=SCORE, max_steps=1, **options)


def own_rate(step: int) -> float:
    return 1.0 if step < 3 else own_rate(step - 1) / 2


def test_settings_of_different_schedules_differ() -> None:
    made = [
        *(optim.Schedule(ADAM, optim.cosine_schedule(n)) for n in (20, 21)),
        optim.Schedule(ADAM, optim.linear_schedule(20)),
        *(optim.MultiStepLR(ADAM, milestones) for milestones in ([2, 4], [2, 5])),
        *(optim.LambdaLR(ADAM, f) for f in (optim.cosine_schedule(20, 1), own_rate)),
    ]
    settings = [json.dumps(schedule_settings(schedule)) for schedule in made]
    assert len(set(settings)) == len(made)


@pytest.mark.parametrize(
    "wrap", [lambda loss: loss.item(), lambda loss: (loss, 1), lambda loss: None]
)
@pytest.mark.parametrize("by_model", [True, False], ids=["model.loss", "objective"])
def test_loss_that_is_no_tensor_raises(wrap: Any, by_model: bool) -> None:
    model, batches, _, rows = own()
    loss = rows.function
    model.loss = lambda x, y: wrap(loss(model, (x, y)))
    objective = None if by_model else lambda model, batch: wrap(loss(model, batch))
    adam = optim.Adam(model.parameters())
    t = nn.Trainer(model, adam, batches, objective=objective, max_steps=1, progress=False)
    for call in (t.fit, lambda: t.evaluate(batches)):
        with pytest.raises(TypeError, match="the loss must be a Tensor, got .*; return it without"):
            call()


def test_several_processes_refuse_the_mean_loss_of_a_whole_batch() -> None:
    model, batches, _, objective = own()
    model.loss = lambda x, y: mg.cross_entropy(model(x), y)
    for mean, name in ((objective.function, "a function"), (None, "the loss of Sequential")):
        t = nn.Trainer(
            model, optim.SGD(model.parameters()), batches, objective=mean, max_steps=1, parallel=2
        )
        with pytest.raises(ValueError, match=f"objective: {name}.*pass an nn.Objective"):
            t.fit()
