"""Trainers for every task: learning, resuming, schedules and scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import assert_same_run, trainer, weights

import minigrad as mg
import nn
from minigrad import Tensor, optim
from nn.train import Batches, WindowBatches
from nn.train.agreement import rates

RNG = np.random.default_rng(0)
TEXT = RNG.integers(0, 11, 400)
ROWS, LABELS = RNG.integers(1, 11, (60, 7)), RNG.integers(0, 3, 60)


class Own(nn.Module):
    """A module whose loss is a separate function."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(7, 8), nn.Dropout(0.2), nn.Linear(8, 3))

    def forward(self, x: Any) -> Tensor:
        return self.layers(x)


def language_model() -> tuple[nn.Module, Any, Any, Any]:
    config = nn.LanguageModelConfig(11, 16, 2, 1, 24, dropout=0.1, max_len=12)
    return (
        nn.LanguageModel(config),
        WindowBatches(TEXT, 9, 6),
        WindowBatches(TEXT[:80], 9, 6, shuffle=False),
        None,
    )


def classifier() -> tuple[nn.Module, Any, Any, Any]:
    model = nn.EncoderClassifier(
        nn.EncoderConfig(11, 16, 2, 1, 24, dropout=0.1, max_len=12, num_classes=3)
    )
    return (
        model,
        Batches(ROWS, LABELS, batch_size=8),
        Batches(ROWS, LABELS, batch_size=20),
        None,
    )


def own() -> tuple[nn.Module, Any, Any, Any]:
    batches = [(ROWS[i : i + 8] / 10.0, LABELS[i : i + 8]) for i in range(0, 60, 8)]
    return (
        Own(),
        batches,
        batches[:2],
        lambda model, batch: mg.cross_entropy(model(batch[0]), batch[1]),
    )


TASKS = {"language model": language_model, "classifier": classifier, "a user's own": own}


def run(
    task: Callable[..., Any], run_dir: Path | None, schedule: Any = None, **options: Any
) -> nn.Trainer:
    mg.manual_seed(0)
    model, batches, valid, objective = task()
    adam = optim.AdamW(model.parameters(), lr=5e-3, clip_norm=1.0)
    settings: dict[str, Any] = {
        "max_epochs": 3,
        "progress": False,
        "log_every": 3,
        "save_every": 1,
        **options,
    }
    return nn.Trainer(
        model,
        adam,
        batches,
        valid=valid,
        objective=objective,
        run_dir=run_dir,
        schedule=schedule(adam) if schedule else None,
        **settings,
    )


@pytest.mark.parametrize(
    "task,parallel", [*[(t, 1) for t in TASKS.values()], (language_model, 2)], ids=[*TASKS, "two"]
)
def test_trainer_of_each_task_learns_and_is_resumed_exactly(
    tmp_path: Path, task: Callable[..., Any], parallel: int
) -> None:
    whole = run(task, tmp_path / "whole", parallel=parallel)
    before = whole.evaluate(whole.valid)
    whole.fit()
    assert whole.best is not None and whole.best < before
    for stop in (
        (1, 8) if parallel == 1 else (8,)
    ):  # before the first validation, and within an epoch
        cut = run(task, tmp_path / f"cut {stop}", parallel=parallel, max_steps=stop)
        cut._validate = lambda: None  # type: ignore[method-assign]  # cut off: it does not look at what it has
        cut.fit()
        again = run(task, tmp_path / f"cut {stop}", parallel=parallel)
        mg.manual_seed(7)  # whatever came between
        again.fit(resume=True)
        for (name, a), b in zip(weights(whole).items(), weights(again).values()):
            np.testing.assert_array_equal(a, b, err_msg=name)


def test_load_run_rebuilds_the_model(tmp_path: Path) -> None:
    for name in ("language model", "classifier"):
        trainer = run(TASKS[name], tmp_path / name, max_steps=2, max_epochs=None)
        trainer.fit()
        before = mg.get_rng_state()
        for path in (tmp_path / name, tmp_path / name / "last.safetensors"):
            model = nn.load_run(path)
            assert (
                type(model) is type(trainer.model)
                and model.config == trainer.model.config
                and not model.training
            )
            for key, array in weights(trainer).items():
                np.testing.assert_array_equal(model.state_dict()[key], array)
        assert mg.get_rng_state() == before  # nothing was drawn
    run(own, tmp_path / "own", max_steps=1, max_epochs=None).fit()
    with pytest.raises(
        ValueError,
        match=r"best.safetensors: no settings of a model of nn stand beside these weights",
    ):
        nn.load_run(tmp_path / "own")
    with pytest.raises(FileNotFoundError, match=r"nowhere"):
        nn.load_run(tmp_path / "nowhere")


@pytest.mark.parametrize("stop", [9])
def test_trainer_with_a_plateau_schedule_is_resumed_exactly(tmp_path: Path, stop: int) -> None:
    """Validations never improve, so the learning rate falls after every second one."""

    def plateau(adam: optim.Adam) -> Any:
        return optim.ReduceLROnPlateau(adam, mode="max", factor=0.5, patience=1)

    def bleu(model: nn.Module) -> float:
        return 12.0 - len(found)

    def made(name: str, **options: Any) -> nn.Trainer:
        return run(
            classifier,
            tmp_path / name,
            plateau,
            score=lambda model: found.append(0) or bleu(model),
            **options,
        )  # type: ignore[func-returns-value]

    found: list[int] = []
    whole = made("whole", validate_every=4)
    whole.fit()
    rates = [e["lr"] for e in whole.history if "lr" in e]
    assert whole.step == 24 and len(found) == 6
    assert whole.lr == pytest.approx(5e-3 * 0.5**2) and sorted(rates, reverse=True) == rates
    found = []
    cut = made("cut", validate_every=4)
    stopped = cut.objective.total

    def total(*args: Any) -> Any:
        if cut.step == stop and cut.model.training:
            raise InterruptedError
        return stopped(*args)

    cut.objective.total = total
    with pytest.raises(InterruptedError):
        cut.fit()
    again = made("cut", validate_every=4)
    again.fit(resume=True)
    assert_same_run(whole, again)
    assert again.schedule.state_dict() == whole.schedule.state_dict()


def test_trainer_with_a_score_keeps_the_best_and_stops(tmp_path: Path) -> None:
    """A larger score is better, and the validation loss does not matter."""
    scores = iter([10.0, 20.0, 15.0, 19.9, 20.0, 99.0])
    seen: list[dict[str, np.ndarray]] = []

    def bleu(model: nn.Module) -> float:
        assert not model.training
        seen.append({name: array.copy() for name, array in model.state_dict().items()})
        return next(scores)

    t = trainer(tmp_path, score=bleu, patience=3, max_epochs=50)
    history = t.fit()
    assert t.epoch == 5 and (t.best, t.state.counters.worse) == (20.0, 3)
    assert [e["score"] for e in history if "score" in e] == [10.0, 20.0, 15.0, 19.9, 20.0]
    assert all("valid_loss" in e for e in history if "score" in e)
    best = trainer()
    assert nn.load_weights(tmp_path / "best.safetensors", best.model)["score"] == 20.0
    for name, array in best.model.state_dict().items():
        np.testing.assert_array_equal(array, seen[1][name], err_msg=name)


def test_trainer_of_parts_that_do_not_fit_raises() -> None:
    model, other = nn.Linear(3, 2), nn.Linear(4, 2)
    batches = [(np.ones((2, 3), np.float32), np.zeros((2, 2), np.float32))]

    def made(optimizer: optim.Optimizer, **options: Any) -> nn.Trainer:
        loss = lambda m, batch: mg.mean(mg.square(m(batch[0]) - batch[1]))
        return nn.Trainer(
            model, optimizer, batches, objective=loss, max_steps=1, progress=False, **options
        )

    strangers = optim.Adam([*model.parameters(), *other.parameters()])
    with pytest.raises(
        ValueError,
        match=r"optimizer must have parameters of the model only, got another one of shape \(2, 4\)",
    ):
        made(strangers)
    adam, sgd = optim.Adam(model.parameters()), optim.SGD(other.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="schedule must be made for the optimizer of the trainer"):
        made(adam, schedule=optim.StepLR(sgd, 3))
    with pytest.raises(ValueError, match="warmup"):
        made(adam, schedule=optim.cosine_schedule(10, warmup=10))
    plateau = optim.ReduceLROnPlateau(adam)
    with pytest.raises(
        ValueError, match="ReduceLROnPlateau without validations; pass valid= or score="
    ):
        made(adam, schedule=plateau)
    with pytest.raises(
        ValueError,
        match="mode of the ReduceLROnPlateau must be 'max', since larger scores are better, got 'min'",
    ):
        made(adam, schedule=plateau, score=lambda model: 0.0)
    with pytest.raises(
        ValueError,
        match="mode of the ReduceLROnPlateau must be 'min', since smaller losses are better, got 'max'",
    ):
        made(adam, schedule=optim.ReduceLROnPlateau(adam, mode="max"), valid=batches)
    made(adam, schedule=plateau, valid=batches).fit()


SCHEDULES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Schedule", {"factor": lambda step: 1 / step}, {"factor": lambda step: 0.5}),
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.9**epoch}, {"lr_lambda": lambda epoch: 0.8**epoch}),
    ("StepLR", {"step_size": 3}, {"step_size": 4}),
    ("MultiStepLR", {"milestones": [7, 20]}, {"milestones": [7, 200]}),
    ("CosineAnnealingLR", {"T_max": 70}, {"T_max": 80}),
    (
        "OneCycleLR",
        {"max_lr": 2.0, "total_steps": 20, "cycle_momentum": False},
        {"max_lr": 2.0, "total_steps": 21, "cycle_momentum": False},
    ),
    ("ReduceLROnPlateau", {"patience": 1}, {"patience": 2}),
]


@pytest.mark.parametrize("kind,options,others", SCHEDULES, ids=[kind for kind, *_ in SCHEDULES])
def test_rates_differ_for_schedules_with_other_options(
    kind: str, options: Any, others: Any
) -> None:
    def compared(options: Any) -> Any:
        model = nn.Linear(2, 2)
        adam = optim.Adam(model.parameters())
        loss = lambda m, batch: mg.mean(m(batch))
        schedule = getattr(optim, kind)(adam, **options)
        trainer = nn.Trainer(
            model, adam, [], objective=loss, schedule=schedule, valid=[], max_steps=1
        )
        return json.loads(json.dumps(rates(trainer.schedule)))

    assert compared(options) == compared(options) != compared(others)
