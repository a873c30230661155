"""Test which settings and data the digests of runs tell apart, and locks and parts of batches."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nn
from minigrad.optim import SGD, ReduceLROnPlateau
from nn.runs import trainer
from nn.runs.agreement import describe, digest, function_settings


def test_digests_of_different_values_differ() -> None:
    x = np.arange(6, dtype="f4")
    values: list[Any] = [
        x, x.astype("f8"), x.reshape(2, 3), x.reshape(3, 2), x[::-1], x.astype(">f4"), x[:5], 1, 1.5, "1", [1], [[1]], [1, 2], [2, 1],
        {"a": 1}, {"a": 2}, {"b": 1}, None, True, describe([0]), [x, x], [x],
        np.zeros(2, 'i4'), np.zeros(2, 'f4'), np.zeros(1, 'i8'), np.zeros(0, 'f4'), np.zeros(0, 'f8'),
    ]  # fmt: skip
    assert len({digest(value) for value in values}) == len(values)
    assert digest(np.asfortranarray(x.reshape(2, 3))) == digest(x.reshape(2, 3))
    assert digest(np.repeat(x, 2)[::2]) == digest(x) == digest(nn.Parameter(x))


class Data:
    """Public data, and what no digest depends on."""

    def __init__(self, rows: Any) -> None:
        self.rows, self._hidden, self.function = rows, object(), len


def test_description_has_the_length_and_rows_of_large_data() -> None:
    many = [0] * 200_000
    for rows, longer in ((many, [*many, 0]), (np.zeros(9_000_000), np.zeros(9_000_001))):
        found = {digest(describe(Data(rows))), digest(describe(Data(longer)))}
        assert len(found) == 2
        assert digest(describe(Data(rows))) in found
    assert describe(Data([1, 2])) == {"class": "Data", "rows": [2, [1, 2]]}
    rows, other = np.zeros(99_999, "u1"), np.zeros(99_999, "u1")  # of which all are read
    rows[1] = 1
    for kind in (Data, lambda x: Data(x.tolist()), lambda x: nn.Batches(x, batch_size=9)):
        assert digest(describe(kind(rows))) != digest(describe(kind(other)))
    rows = np.zeros((2, 5, 2))
    rows[1, 4, 1] = 1
    assert len({digest(describe(Data(x))) for x in rows}) == 2


def test_function_settings_have_what_a_function_is_bound_to() -> None:
    def make(x: Any, y: Any = 2) -> Any:
        def inner(step: int, scale: float = 0.5) -> Any:
            return x, y, step * scale

        return inner

    def defaulted(scale: float) -> Any:
        def inner(step: int, scale: float = scale) -> float:
            return step * scale

        return inner

    def recursive(rate: float) -> Any:
        def inner(step: int) -> float:
            return rate if step < 3 else inner(step - 1) / 2

        return inner

    functions = [
        recursive(0.5), recursive(0.25), make(1), make(3), make("1"), make(1, 5), make(make(1)), defaulted(0.5), defaulted(0.25), partial(max, 1), partial(max, 2),
        partial(max, key=make(1)), partial(max, key=make(2)), [make(1), make(2)], [make(2), make(1)],
        nn.Objective().count, nn.Objective().split, Data([1]), Data([2]),
    ]  # fmt: skip
    found = [json.dumps(function_settings(f), default=str) for f in functions]
    assert len({*found}) == len(found)
    assert found == [json.dumps(function_settings(f), default=str) for f in functions]


def test_run_directory_that_is_entered_twice_stays_locked_until_the_last_exit(
    tmp_path: Path,
) -> None:
    run, other = nn.RunDirectory(tmp_path), nn.RunDirectory(tmp_path)
    with run:
        with run:
            pass
        with pytest.raises(BlockingIOError, match="another run is at work"), other:
            pass
    with other:
        pass


def test_run_directory_that_cannot_be_read_is_not_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = nn.RunDirectory(tmp_path), nn.RunDirectory(tmp_path)
    monkeypatch.setattr(Path, "iterdir", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError), run:
        pass
    monkeypatch.undo()
    with other:
        pass


def test_files_of_an_earlier_run_are_those_that_are_not_empty(tmp_path: Path) -> None:
    run = nn.RunDirectory(tmp_path)
    run.metrics.write_text("")
    run.best.write_text("")
    (tmp_path / "weights-12345.safetensors").write_text("x")
    assert run.earlier_files() == []
    names = ["weights-0000007.safetensors", "weights-0000012.safetensors", "weights-12345678.safetensors"]  # fmt: skip
    for name in ["metrics.jsonl", "best.safetensors", *names]:
        (tmp_path / name).write_text("x")
    assert [p.name for p in run.earlier_files()] == ["metrics.jsonl", "best.safetensors", *names]
    run.forget_after(12)
    assert [p.name for p in run.checkpoints()] == names[:2]


def test_metrics_of_long_runs_are_read(tmp_path: Path) -> None:
    run = nn.RunDirectory(tmp_path)
    entries = [{"step": step, "seconds": step / 2} for step in (1, 10**6, 10**12)]
    run.write_metrics(entries)
    assert run.read_metrics() == entries
    assert [run.read_metrics(count) for count in range(5)] == [
        entries[:count] for count in range(5)
    ]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_parts_of_a_batch_have_each_row_once(rows: int, parts: int) -> None:
    batch = (np.arange(rows), [*range(rows)], 5)
    found = nn.Objective().split(batch, parts)
    assert len(found) == min(rows, parts)
    assert all(len(part[0]) and part[0].tolist() == part[1] and part[2] == 5 for part in found)
    assert sorted(np.concatenate([part[0] for part in found]).tolist()) == [*range(rows)]


class Recording(nn.Module):
    """A model whose loss records its options."""

    def __init__(self) -> None:
        super().__init__()
        self.options: list[Any] = []

    def num_targets(self, x: np.ndarray) -> int:
        return 10 * len(x)

    def loss(self, x: np.ndarray, **options: Any) -> Any:
        self.options.append(options)
        return nn.Parameter(x.sum())


def test_options_of_the_loss_count_in_training_alone() -> None:
    model = Recording()
    for smoothing in (0, 0.0, 0.5, 1, 1.0):
        objective, x = nn.ModelLoss(label_smoothing=smoothing), np.ones(3)
        for is_training in (True, False):
            model.train() if is_training else model.eval()
            assert float(objective.total(model, x).data) == 3
            extra = {"label_smoothing": smoothing} if is_training else {}
            assert model.options[-1] == {"reduction": "sum", **extra}
        for batch in (x, (x,), [x]):
            assert objective.count(model, batch) == 30
            assert float(objective.total(model, batch).data) == 3
    for wrong in (True, "0.5", 1.001, -0.001, np.nan):
        with pytest.raises(ValueError, match="label_smoothing must be a number from 0 to 1, got"):
            nn.ModelLoss(label_smoothing=wrong)


@pytest.mark.parametrize("missing", ["count", "total", "split"])
def test_objective_without_a_method_is_no_objective(missing: str) -> None:
    methods = {name: (lambda *_: 0) for name in ("count", "total", "split") if name != missing}
    model = nn.Linear(1, 1)
    make = lambda objective: nn.Trainer(model, SGD(model.parameters(), 0.1), [], objective=objective, max_steps=1)  # fmt: skip
    with pytest.raises(TypeError, match="objective must be a function .* or an Objective, got"):
        make(SimpleNamespace(**methods))
    with pytest.raises(TypeError, match="objective must be given, since Linear has no loss"):
        make(None)
    whole = SimpleNamespace(**methods, **{missing: lambda *_: 0})
    assert make(whole).objective is whole


@pytest.mark.parametrize(
    ("limits", "last"),
    [
        ({"max_steps": 9}, 9),
        ({"max_epochs": 3}, 6),
        ({"max_epochs": 3, "max_steps": 4}, 4),
        ({"max_epochs": 3, "max_steps": 7}, 6),
        ({"max_epochs": 2, "accumulate": 1}, 10),
        ({"max_epochs": 2, "accumulate": 5}, 2),
    ],
)
def test_progress_of_a_resumed_run_begins_at_its_step(
    limits: dict[str, Any], last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five batches an epoch, three of them a step; a run counts its earlier seconds."""
    lines: list[tuple[Any, ...]] = []
    line = trainer.ProgressLine

    def record(total: Any = None, is_shown: Any = True, *, shown: Any = None, initial: int = 0) -> Any:  # fmt: skip
        if shown is None:
            lines.append((total, is_shown, initial))
        return line(shown=False)

    monkeypatch.setattr(trainer, "ProgressLine", record)

    def make(**options: Any) -> nn.Trainer:
        model = nn.Linear(1, 1)
        batches = nn.Batches(np.ones((5, 1)), batch_size=1, seed=0)
        settings = {"accumulate": 3, "run_dir": tmp_path, "log_every": 1, **options}
        objective = lambda model, batch: model(batch[0]).sum()
        return nn.Trainer(model, SGD(model.parameters(), 0.1), batches, objective=objective, **settings)  # fmt: skip

    first = make(**{**limits, "max_steps": 1})
    first.seconds = 100.0
    assert all(entry["seconds"] >= 100 for entry in first.fit())
    second = make(**limits, progress=False)
    second.fit(resume=True)
    assert second.step == last and second.seconds >= 100 and second.history[-1]["seconds"] >= 100
    assert lines == [(1, True, 0), (last, False, 1)]


@pytest.mark.parametrize(
    ("scores", "patience", "start", "ends"),
    [
        ([1, 0, 2, 0, 0, 0], 2, 0, 5),
        ([1, 0, 0, 2], 2, 0, 3),
        ([1, 1, 2], 1, 0, 2),
        ([3, 0, 0, 0, 0], 2, 3, 4),
        ([3, 0, 0, 4, 0, 0], 3, 2, 7),
    ],
)
def test_patience_counts_validations_since_the_best_one(
    scores: list[int], patience: int, start: int, ends: int
) -> None:
    """From a step on, that one included."""
    model, values = nn.Linear(1, 1), iter([*scores, 0, 0])
    run = nn.Trainer(
        model, SGD(model.parameters(), 0.1), [np.ones((1, 1))], objective=lambda model, x: model(x).sum(),
        score=lambda model: next(values), validate_every=1, patience=patience, patience_from=start, max_steps=8, progress=False,
    )  # fmt: skip
    run.fit()
    assert run.step == ends and run.best == max(scores[:ends])


def test_plateau_counts_validations_since_the_best_one() -> None:
    model, values = nn.Linear(1, 1), iter([1, 0, 2, 1, 3, 2, 2, 2])
    sgd = SGD(model.parameters(), 1.0)
    run = nn.Trainer(
        model, sgd, [np.ones((1, 1))], objective=lambda model, x: model(x).sum(), score=lambda model: next(values),
        schedule=ReduceLROnPlateau(sgd, mode="max", factor=0.5, patience=1), validate_every=1, max_steps=8, log_every=1,
        progress=False,
    )  # fmt: skip
    rates = [entry["lr"] for entry in run.fit() if "lr" in entry]
    assert rates == [1.0] * 7 + [0.5] and run.lr == 0.5


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
def test_weights_of_the_last_validations_are_kept_also_of_worse_ones(
    count: int, tmp_path: Path
) -> None:
    model = nn.Linear(1, 1)
    run = nn.Trainer(
        model, SGD(model.parameters(), 0.1), [np.ones((1, 1))], objective=lambda model, x: model(x).sum(), run_dir=tmp_path,
        score=lambda model: -run.step, validate_every=2, keep_last=count, max_steps=6, progress=False,
    )  # fmt: skip
    run.fit()
    kept = [2, 4, 6][-count:] if count else []
    assert [p.name for p in run.run.checkpoints()] == [f"weights-{n:07}.safetensors" for n in kept]


@pytest.mark.parametrize(("weight", "factor"), [(1, 1.0), (0.125, 1.0), (3, 1.0), (1, 0.0)])
def test_loss_of_a_step_is_divided_by_the_count_of_its_objective(
    weight: float, factor: float
) -> None:
    """Divide also by a count less than 1, and log a loss of zero."""

    class Weighted(nn.Objective):
        def count(self, model: Any, batch: Any) -> float:
            return weight * len(batch)

        def total(self, model: Any, batch: Any) -> Any:
            return model(batch).sum() * factor

    model, x = nn.Linear(1, 1, dtype=float), np.ones((2, 1))
    run = nn.Trainer(
        model, SGD(model.parameters(), 1.0), [x], objective=Weighted(), max_steps=1, log_every=1, progress=False,
    )  # fmt: skip
    expected, before = run.evaluate([x]), model.bias.data.copy()
    assert expected == pytest.approx(factor * model(x).data.mean() / weight)
    [entry] = run.fit()
    assert entry["loss"] == pytest.approx(expected)
    np.testing.assert_allclose(before - model.bias.data, factor / weight)


@pytest.mark.parametrize("skipped", [0, 1, 2])
def test_steps_that_are_left_out_are_counted_in_the_metrics(skipped: int) -> None:
    model, factors = nn.Linear(1, 1), iter([np.nan] * skipped + [1.0] * 4)
    run = nn.Trainer(
        model, SGD(model.parameters(), 0.1), [np.ones((1, 1))], objective=lambda model, x: model(x).sum() * next(factors),
        skip_nonfinite=2, max_steps=4, log_every=4, schedule=lambda step: 1 / step, progress=False,
    )  # fmt: skip
    entry = run.fit()[0]
    assert run.step == 4 and run.lr == pytest.approx(0.1 / 5)
    assert entry.get("skipped", 0) == skipped == run.skipped
    assert np.isfinite(entry["loss"]) and ("skipped" in entry) == (skipped > 0)
