"""Trainer: learning, history, and exact resuming after every kind of end."""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from support.environment import THOROUGH
from support.runs import assert_same_run, at_step, trainer, weights
from support.scripts import started

import minigrad as mg
import nn
from minigrad import optim
from minigrad.io import load_arrays, save_arrays
from nn.runs.objectives import _every, _rows
from nn.runs.progress import ProgressLine


def test_fit_learns_and_writes_its_history(tmp_path: Path) -> None:
    t = trainer(tmp_path, max_epochs=15)
    history = t.fit()
    valid = [e["valid_loss"] for e in history if "valid_loss" in e]
    assert len(valid) == 15 and valid[-1] < 0.75 * valid[0] and t.best == min(valid)
    entries = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert entries == history
    names = {"step", "epoch", "loss", "lr", "grad_norm", "targets_per_second", "seconds"}
    assert history[0].keys() == names
    best = trainer()
    metadata = nn.load_weights(tmp_path / "best.safetensors", best.model)
    assert metadata["step"] == t.best_step
    assert best.evaluate(best.valid) == pytest.approx(t.best, rel=1e-5)
    assert not t.model.training


@pytest.mark.parametrize("log_every", [1, 3, 100])
def test_history_has_the_mean_loss_of_the_targets_since_the_last_entry(
    log_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every `log_every` steps, and at the end of an epoch."""
    steps: list[tuple[float, float]] = []
    step = nn.Trainer._step

    def record(self: nn.Trainer, batches: Any) -> Any:
        result = step(self, batches)
        steps.append(result[:2])
        return result

    monkeypatch.setattr(nn.Trainer, "_step", record)
    t = trainer(max_epochs=2, log_every=log_every)
    entries, begin = [entry for entry in t.fit() if "loss" in entry], 0
    total = len(steps)
    expected = {total // 2, total, *range(log_every, total + 1, log_every)}
    assert [entry["step"] for entry in entries] == sorted(expected)
    for entry in entries:
        losses, counts = np.array(steps[begin : entry["step"]]).T
        assert entry["loss"] == pytest.approx((losses * counts).sum() / counts.sum(), rel=1e-9)
        begin = entry["step"]


def test_history_has_seconds_and_the_targets_of_a_second_of_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step of three rows takes half a second, and a validation, which does not count, ten."""
    now = 100.0

    def objective(model: nn.Module, x: Any) -> Any:
        nonlocal now
        now += 0.5
        return model(x).mean()

    def score(model: nn.Module) -> float:
        nonlocal now
        now += 10
        return 0.0

    monkeypatch.setattr("nn.runs.trainer.time", SimpleNamespace(perf_counter=lambda: now))
    model = nn.Linear(2, 1)
    options: Any = {"objective": objective, "score": score, "log_every": 2, "validate_every": 4}
    sgd, batches = optim.SGD(model.parameters(), 0.1), [np.ones((3, 2), np.float32)] * 5
    t = nn.Trainer(model, sgd, batches, max_epochs=1, progress=False, **options)
    found = [(e["step"], e["seconds"], e.get("targets_per_second")) for e in t.fit()]
    assert found == [(2, 1, 6), (4, 2, 6), (4, 12, None), (5, 12.5, 6), (5, 22.5, None)]
    assert t.seconds == 22.5


def test_progress_of_fit_shows_the_figures_of_its_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line after a validation has four digits of its figures."""
    shown: dict[int, dict[str, str]] = {}
    monkeypatch.setattr(
        ProgressLine, "milestone", lambda line, step, **figures: shown.update({step: figures})
    )
    history = trainer(max_epochs=2).fit()
    validated = [entry for entry in history if "valid_loss" in entry]
    assert len(validated) == 2 and [*shown] == [entry["step"] for entry in validated]
    for entry in validated:
        assert shown[entry["step"]] == {"valid_loss": f"{entry['valid_loss']:.4g}"}
    for score, expected in ((-1e-12, "0"), (0.75 - 1e-9, "0.75"), (12.3456, "12.35")):
        t = trainer(max_steps=1, score=lambda model, score=score: score)
        t.fit()
        assert shown[1]["score"] == expected


def test_progress_of_fit_shows_the_loss_and_the_rate_of_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(
        ProgressLine, "update", lambda line, *step, **figures: shown.append((*step, figures))
    )
    model = nn.Linear(2, 1)
    t = nn.Trainer(
        model, optim.SGD(model.parameters(), 0.1), [np.ones((3, 2), np.float32)] * 3, max_epochs=1, progress=False,
        objective=lambda model, x: 0 * model(x).sum() + 0.25, log_every=1, schedule=lambda step: 1 / step,
    )  # fmt: skip
    t.fit()
    rates = ["5.0e-02", "3.3e-02", "2.5e-02"]  # of the next step
    assert shown == [(i + 1, {"loss": "0.250", "lr": rate}) for i, rate in enumerate(rates)]


@pytest.mark.parametrize("kind", [tuple, list, lambda parts: dict(zip("xy", parts))])
def test_every_second_row_of_a_batch_of_any_form_has_that_form(kind: Any) -> None:
    """A list in a batch is a column, and a batch that is a list has columns."""
    x, y = np.arange(8).reshape(4, 2), [3, 1, 4, 1]
    assert _rows(kind([x, y])) == 4
    half = _every(kind([x, y]), 1, 2)
    assert type(half) is type(kind([x, y]))
    first, second = half.values() if isinstance(half, dict) else half
    assert first.tolist() == [[2, 3], [6, 7]] and second == [1, 1]
    for parts in ([y, y], [mg.tensor(x), y], [mg.tensor(x), mg.tensor(x)], [y, 5]):
        assert _rows(kind(parts)) == 4
        first, *_ = (
            _every(kind(parts), 1, 2).values()
            if kind not in (tuple, list)
            else _every(kind(parts), 1, 2)
        )
        assert len(first) == 2
    for parts in ([x, y[1:]], [y, y[1:]], [mg.tensor(x), y[1:]], [5, 6]):
        with pytest.raises(ValueError, match="must contain arrays with the same number of rows"):
            _rows(kind(parts))


@pytest.mark.parametrize("full", [0, 1])
def test_fit_in_an_epoch_without_batches_raises(full: int) -> None:
    model, rows = nn.Linear(2, 1), [np.ones((3, 2), np.float32)]
    t = nn.Trainer(
        model,
        optim.SGD(model.parameters(), 0.1),
        lambda epoch: rows if epoch < full else [],
        objective=lambda model, x: model(x).mean(),
        max_epochs=3,
        progress=False,
    )
    with pytest.raises(ValueError, match=f"at least one batch in epoch {full}, got none"):
        t.fit()


@pytest.mark.parametrize("accumulate", [1, 2, 3, 5])
@pytest.mark.parametrize("max_steps", [None, 1, 99])
def test_progress_of_fit_ends_at_the_last_step(accumulate: int, max_steps: int | None) -> None:
    """Four batches an epoch, of which `accumulate` make a step."""
    model = nn.Linear(2, 1)
    t = nn.Trainer(
        model,
        optim.SGD(model.parameters(), 0.1),
        [np.ones((3, 2), np.float32)] * 4,
        objective=lambda model, x: model(x).mean(),
        accumulate=accumulate,
        max_epochs=2,
        max_steps=max_steps,
        progress=False,
    )
    t.fit()
    assert t._line.total == t.step


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_of_a_list_are_shuffled_in_training_alone(shuffle: bool) -> None:
    model, seen = nn.Linear(1, 1), {True: [], False: []}  # type: ignore[var-annotated]

    def objective(model: nn.Module, batch: np.ndarray) -> Any:
        seen[model.training].append(batch.item())
        return model(batch).sum()

    data = [float(i) for i in range(20)]
    batches = [np.full((1, 1), x, np.float32) for x in data]
    adam = optim.Adam(model.parameters())
    nn.Trainer(
        model,
        adam,
        batches,
        objective=objective,
        valid=batches,
        max_epochs=2,
        shuffle=shuffle,
        progress=False,
    ).fit()
    assert seen[False] == data * 2
    epochs = seen[True][:20], seen[True][20:]
    assert all(sorted(epoch) == data and (epoch != data) == shuffle for epoch in epochs)
    assert (epochs[0] != epochs[1]) == shuffle


def test_evaluate_without_targets_raises() -> None:
    with pytest.raises(ValueError, match="batches must have at least one target, got none"):
        trainer().evaluate([])


@pytest.mark.parametrize("is_valid", [False, True])
def test_fit_of_a_batch_without_rows_raises(is_valid: bool) -> None:
    model, rows = nn.Linear(2, 1), [np.ones((3, 2), np.float32)]
    batches = {"train": rows, "valid": [np.ones((0, 2), np.float32)]}
    if not is_valid:
        batches = {"train": batches["valid"], "valid": rows}
    t = nn.Trainer(
        model,
        optim.SGD(model.parameters(), 0.1),
        batches["train"],
        valid=batches["valid"],
        objective=lambda model, x: model(x).mean(),
        max_epochs=1,
        progress=False,
    )
    with pytest.raises(ValueError, match="a batch must have at least one row, got none; leave it"):
        t.fit()


def test_fit_with_patience_stops_early() -> None:
    t = trainer(patience=2, max_epochs=50)
    losses = iter([3.0, 2.0, 2.5, 2.1, 1.0])
    t.evaluate = lambda batches: next(losses)  # type: ignore[method-assign]
    t.fit()
    assert t.epoch == 4 and t.best == 2.0
    steps = t.step // t.epoch
    t = trainer(patience=2, patience_from=4 * steps, max_epochs=50)
    losses = iter([3.0, 2.0, 2.5, 2.1, 2.2, 1.0])  # the fourth is the first that counts
    t.evaluate = lambda batches: next(losses)  # type: ignore[method-assign]
    t.fit()
    assert t.epoch == 5 and t.best == 2.0


def test_accumulate_equals_joined_batch() -> None:
    """Two batches of different numbers of targets in one step give the update of one batch."""
    ids = np.random.default_rng(0).integers(1, 9, (7, 6))
    ids[:4, 2:] = 0  # padding
    config = nn.LanguageModelConfig(9, 8, 2, 1, 16, dropout=0.0, max_len=8, dtype="float64")
    trained = []
    for batches in ([(ids,)], [(ids[:3],), (ids[3:],)]):
        model = nn.LanguageModel(config, np.random.default_rng(0))
        sgd = optim.SGD(model.parameters(), lr=0.1)
        options = {"accumulate": len(batches), "max_steps": 1, "progress": False}
        trained.append(nn.Trainer(model, sgd, batches, **options))
        trained[-1].fit()
    joined, separate = trained
    for name, array in weights(joined).items():
        assert_allclose(weights(separate)[name], array, atol=1e-12, err_msg=name)
    assert separate.history[0]["loss"] == pytest.approx(joined.history[0]["loss"], rel=1e-12)


def test_fit_with_accumulate_ends_epoch_with_smaller_step() -> None:
    t = trainer(accumulate=3, max_epochs=1)
    t.fit()
    assert t.step == math.ceil(len(t.train.plan(0)) / 3)


SCRIPT = """
import sys; sys.path[:0] = {paths!r}
from pathlib import Path
from support.runs import trainer
t = trainer(Path({run!r}), save_every=2, max_epochs=6)
print("ready", flush=True)
t.fit(resume=True)
"""


@pytest.mark.slow
def test_resume_after_kills_at_random_times_is_exact(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", save_every=2, max_epochs=6)
    whole.fit()
    tests = Path(__file__).parents[2]
    script = SCRIPT.format(paths=[str(tests.parent), str(tests)], run=str(tmp_path / "cut"))
    draw = np.random.default_rng(0)
    for number in [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP] * (15 if THOROUGH else 1):
        with started([sys.executable, "-c", script]) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            time.sleep(draw.uniform(0.01, 0.25))
            process.send_signal(number)
            # the last code comes from within `fit`, when the run is saved
            assert process.wait() in (0, -number, 128 + number)
    again = trainer(tmp_path / "cut", save_every=2, max_epochs=6)
    again.fit(resume=True)
    assert_same_run(whole, again)


@pytest.mark.parametrize("training", [True, False], ids=["step", "validation"])
def test_ctrl_c_stops_after_step_and_saves(tmp_path: Path, training: bool) -> None:
    def noisy(run_dir: Path) -> nn.Trainer:
        """Return a trainer whose validation draws numbers, as dropout in training does."""
        t = trainer(run_dir)
        total = t.objective.total

        def draws(*args: Any) -> Any:
            if not t.model.training:
                mg.rand(3)
            return total(*args)

        t.objective.total = draws
        return t

    whole = noisy(tmp_path / "whole")
    whole.fit()
    cut = noisy(tmp_path / "cut")
    step = 3 if training else len(cut.train.plan(0))
    at_step(cut, step, lambda: signal.raise_signal(signal.SIGINT), training)
    with pytest.raises(KeyboardInterrupt, match=r"stopped at step \d+; the state is in .*cut"):
        cut.fit()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    state = load_arrays(tmp_path / "cut" / "last.safetensors")[1]["trainer"]
    assert (state["step"], state["validated"]) == (4 if training else step, -1)
    again = noisy(tmp_path / "cut")
    again.fit(resume=True)
    assert_same_run(whole, again)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("count", [1, 2])
def test_signal_that_ends_a_process_stops_after_the_step_or_at_once(
    tmp_path: Path, number: signal.Signals, code: int, count: int
) -> None:
    """Answer a second signal at once."""
    t = trainer(tmp_path, save_every=1)
    at_step(t, 3, lambda: [signal.raise_signal(number) for _ in range(count)])
    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores SIGHUP
    try:
        with pytest.raises(SystemExit) as ended:
            t.fit()
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    step = 4 if count == 1 else 3
    assert ended.value.code == code
    assert load_arrays(tmp_path / "last.safetensors")[1]["trainer"]["step"] == t.step == step
    if count == 1:
        assert ended.value.text == f"stopped at step 4; the state is in {tmp_path}"


@pytest.mark.parametrize("accumulate", [1, 2])
def test_state_is_saved_after_each_number_of_steps_and_each_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulate: int
) -> None:
    """An epoch has four batches."""
    saved: list[int] = []
    monkeypatch.setattr(nn.Trainer, "save", lambda t: saved.append(t.step))
    model = nn.Linear(2, 1)
    options: Any = {"accumulate": accumulate, "save_every": 3, "validate_every": 5}
    nn.Trainer(
        model, optim.SGD(model.parameters(), 0.1), [np.ones((3, 2), np.float32)] * 4,
        objective=lambda model, x: model(x).mean(), run_dir=tmp_path, max_steps=11, progress=False, **options,
    ).fit()  # fmt: skip
    assert saved == [3, 5, 6, 9, 10, 11]


def test_second_ctrl_c_stops_within_step(tmp_path: Path) -> None:
    t = trainer(tmp_path, save_every=2)
    at_step(t, 3, lambda: [signal.raise_signal(signal.SIGINT) for _ in range(2)])
    with pytest.raises(KeyboardInterrupt):
        t.fit()
    state = load_arrays(tmp_path / "last.safetensors")[1]["trainer"]
    assert t.step == 3 and state["step"] == 2


def test_trainer_with_missing_argument_raises() -> None:
    with pytest.raises(ValueError, match="Trainer: max_epochs or max_steps must be given"):
        trainer(max_epochs=None)
    with pytest.raises(ValueError, match="Trainer: run_dir must be given to resume"):
        trainer().fit(resume=True)


def test_resume_from_weights_alone_raises(tmp_path: Path) -> None:
    save_arrays(tmp_path / "last.safetensors", {"a": np.ones(1)})
    with pytest.raises(ValueError, match="last.safetensors: not the state of a run"):
        trainer(tmp_path).fit(resume=True)


def test_resume_and_load_weights_of_other_model_raise(tmp_path: Path) -> None:
    trainer(tmp_path, max_steps=1).fit()
    wide = nn.Transformer(nn.TransformerConfig(9, 9, 32, 2, 1, 1, 32, max_len=16))
    t = nn.Trainer(wide, optim.Adam(wide.parameters()), [], max_steps=3, run_dir=tmp_path)
    message = "last.safetensors: the state of another model: .* d_model=32 .expected 16"
    with pytest.raises(ValueError, match=message):
        t.resume()
    dropped = nn.Transformer(nn.TransformerConfig(9, 9, 16, 2, 1, 1, 32, dropout=0.2, max_len=16))
    t = nn.Trainer(dropped, optim.Adam(dropped.parameters()), [], max_steps=3, run_dir=tmp_path)
    with pytest.raises(ValueError, match="the state of another model: this one has dropout=0.2"):
        t.resume()
    save_arrays(tmp_path / "best.safetensors", {"x": np.ones(1)})
    with pytest.raises(ValueError, match="best.safetensors: the state does not fit Transformer"):
        nn.load_weights(tmp_path / "best.safetensors", wide)
