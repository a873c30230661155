"""Trainer: learning, history, and exact resuming after every kind of end."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import INTENSE
from runs import assert_same_run, copying, trainer, weights

import minigrad as mg
import nn
from minigrad import optim
from minigrad.io import load_arrays, save_arrays


def test_fit_learns_and_writes_its_history(tmp_path: Path) -> None:
    t = trainer(tmp_path, max_epochs=15)
    history = t.fit()
    valid = [e["valid_loss"] for e in history if "valid_loss" in e]
    assert len(valid) == 15 and valid[-1] < 0.7 * valid[0] and t.best == min(valid)
    entries = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert entries == history
    logged = next(e for e in entries if "loss" in e)
    assert {"step", "epoch", "loss", "lr", "grad_norm", "targets_per_second", "seconds"} == set(
        logged
    )
    best = trainer()
    metadata = nn.load_weights(tmp_path / "best.safetensors", best.model)
    assert metadata["step"] == t.best_step
    assert best.evaluate(best.valid) == pytest.approx(t.best, rel=1e-5)
    assert not t.model.training


def test_fit_with_patience_stops_early() -> None:
    t = trainer(patience=2, max_epochs=50)
    losses = iter([3.0, 2.0, 2.5, 2.1, 1.0])
    t.evaluate = lambda batches: next(losses)  # type: ignore[method-assign]
    t.fit()
    assert t.epoch == 4 and t.best == 2.0


def test_on_validation_values_are_logged(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def found(trainer: nn.Trainer, entry: dict[str, Any]) -> dict[str, Any] | None:
        seen.append(dict(entry))
        return {"twice": 2 * trainer.step} if len(seen) > 1 else None

    history = trainer(tmp_path, max_epochs=3, on_validation=found).fit()
    valid = [e for e in history if "valid_loss" in e]
    assert [e["valid_loss"] for e in seen] == [e["valid_loss"] for e in valid]
    assert [e.get("twice") for e in valid] == [None, *(2 * e["step"] for e in valid[1:])]


def test_accumulate_equals_a_larger_batch() -> None:
    """Two batches of different sizes in one step give the gradient of one joined batch."""
    pairs = copying(20)
    small, large = [([p[0] for p in part], [p[1] for p in part]) for part in (pairs[:5], pairs[5:])]
    t = trainer(accumulate=2)
    t.model.eval()
    batches = [tuple(nn.text.padded(side) for side in part) for part in (small, large)]
    t.optimizer.step = lambda: None  # type: ignore[method-assign, assignment]
    t.schedule = None
    loss, n, *_ = t._step(batches)
    got = [p.grad.data.copy() for p in t.model.parameters()]
    joined = tuple(nn.text.padded([p[i] for p in pairs]) for i in range(2))
    t.optimizer.zero_grad()
    whole = t.model.loss(*joined)
    whole.backward()
    assert loss == pytest.approx(whole.item(), rel=1e-5) and n == sum(len(p[1]) - 1 for p in pairs)
    for a, p in zip(got, t.model.parameters()):
        np.testing.assert_allclose(a, p.grad.data, rtol=1e-3, atol=1e-6)
    steps = trainer(accumulate=3, max_epochs=1)
    steps.fit()
    assert steps.step == math.ceil(len(steps.train.plan(0)) / 3)


@pytest.mark.parametrize("stop", [1, 4, 7, 12])
def test_resume_at_any_step_ends_with_the_same_weights(tmp_path: Path, stop: int) -> None:
    whole = trainer(tmp_path / "whole", save_every=3)
    whole.fit()
    cut = trainer(tmp_path / "cut", save_every=3, max_steps=stop)
    cut.fit()
    cut._log({"step": 10_000, "epoch": 99, "loss": 0.0})  # written after the last saved state
    mg.manual_seed(123)  # whatever came between
    again = trainer(tmp_path / "cut", save_every=3)
    again.fit(resume=True)
    for (name, a), b in zip(weights(whole).items(), weights(again).values()):
        np.testing.assert_array_equal(a, b, err_msg=name)
    validations = lambda t: {
        e["step"]: (e["epoch"], e["valid_loss"]) for e in t.history if "valid_loss" in e
    }
    assert stop in validations(again)  # the cut run looked at what it had at its end
    assert validations(whole).items() <= validations(again).items()


@pytest.mark.parametrize("parallel", [1, 2])
def test_resume_of_a_model_with_its_own_generator_is_exact(tmp_path: Path, parallel: int) -> None:
    """Its dropout does not draw from the default generator."""

    def made(name: str, **options: Any) -> nn.Trainer:
        t, own = (
            trainer(tmp_path / name, save_every=1, parallel=parallel, **options),
            np.random.default_rng(7),
        )
        for module in t.model.modules():
            if hasattr(module, "generator"):
                module.generator = own
        return t

    whole, cut, again = made("whole"), made("cut", max_steps=4), made("cut")
    whole.fit()
    cut.fit()
    again.fit(resume=True)
    for (name, a), b in zip(weights(whole).items(), weights(again).values()):
        np.testing.assert_array_equal(a, b, err_msg=name)
    arrays, metadata = load_arrays(tmp_path / "cut" / "last.safetensors")
    metadata["trainer"]["generators"] = [{"state": 3}]
    save_arrays(tmp_path / "cut" / "last.safetensors", arrays, metadata)
    with pytest.raises(ValueError, match="last.safetensors: generators does not fit this run"):
        made("cut").resume()


def test_resume_with_several_processes_is_exact(tmp_path: Path) -> None:
    one, whole, cut = (
        trainer(tmp_path / name, parallel=n) for name, n in [("one", 1), ("whole", 2), ("cut", 2)]
    )
    cut.max_steps = 7
    for t in (one, whole, cut):
        mg.manual_seed(3)
        t.fit()
    again = trainer(tmp_path / "cut", parallel=2)
    again.fit(resume=True)
    assert (
        one.best == pytest.approx(whole.best, rel=0.05) and one.best != whole.best
    )  # other random numbers
    for (name, a), b in zip(weights(whole).items(), weights(again).values()):
        np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.slow
def test_resume_after_killed_workers_is_exact(tmp_path: Path) -> None:
    """Workers are killed at random times in steps, validations and saves."""
    settings: dict[str, Any] = {"parallel": 2, "save_every": 2, "max_epochs": 4}
    whole = trainer(tmp_path / "whole", **settings)
    whole.fit()
    draw, killed = np.random.default_rng(0), 0
    for number in range(60 if INTENSE else 4):
        t = trainer(tmp_path / str(number), **settings)
        timer = threading.Timer(
            draw.uniform(0, whole.seconds),
            lambda t=t: [process.kill() for process, _ in t.parallel._workers],
        )
        timer.start()
        try:
            t.fit()
        except RuntimeError as error:
            killed += 1
            assert re.fullmatch(
                r"DataParallel: process \d+, .* was killed by SIGKILL, as .* runs out", str(error)
            )
        timer.join()
        again = trainer(tmp_path / str(number), **settings)
        again.fit(resume=True)
        assert_same_run(whole, again)
    assert killed or not INTENSE


SCRIPT = """
import sys; sys.path.insert(0, {tests!r})
from pathlib import Path
from runs import trainer
t = trainer(Path({run!r}), save_every=2, max_epochs=6)
print("ready", flush=True)
t.fit(resume=True)
print("done", flush=True)
"""


@pytest.mark.slow
def test_resume_after_kills_at_random_times_is_exact(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", save_every=2, max_epochs=6)
    whole.fit()
    script = SCRIPT.format(
        tests=str(Path(__file__).parents[2] / "support"), run=str(tmp_path / "cut")
    )
    rng = np.random.default_rng(0)
    for kill in [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP] * (15 if INTENSE else 1) + [None]:
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        if kill:
            time.sleep(rng.uniform(0.01, 0.25))
            process.send_signal(kill)
        process.stdout.read()
        process.stdout.close()
        code = process.wait()
        assert code in (
            (0, -kill, 128 + kill) if kill else (0,)
        )  # the last within `fit`, the run saved
        killed = kill is not None and code == -kill  # before `fit` answers signals, too
        assert killed or not list((tmp_path / "cut").glob(".*.part"))
    arrays, _ = load_arrays(tmp_path / "cut" / "last.safetensors")
    for name, array in weights(whole).items():
        np.testing.assert_array_equal(arrays[f"model.{name}"], array, err_msg=name)
    assert (tmp_path / "cut" / "metrics.jsonl").read_text().count("valid_loss") == 6


@pytest.mark.parametrize("where", ["forward", "update", "validation"])
def test_ctrl_c_stops_between_two_steps_and_saves(tmp_path: Path, where: str) -> None:
    whole = trainer(tmp_path / "whole")
    whole.fit()
    cut = trainer(tmp_path / "cut")
    total, update = cut.objective.total, cut.optimizer.update

    def pressed(*args: Any) -> Any:
        validates = not cut.model.training
        if (validates if where == "validation" else cut.step == 3) and cut.epoch < 2:
            signal.raise_signal(signal.SIGINT)
        return (update if where == "update" else total)(*args)

    setattr(
        *((cut.optimizer, "update") if where == "update" else (cut.objective, "total")), pressed
    )
    with pytest.raises(KeyboardInterrupt, match=r"stopped at step \d+; the state is in .*cut"):
        cut.fit()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    state = load_arrays(tmp_path / "cut" / "last.safetensors")[1]["trainer"]
    assert state["step"] == cut.step and (
        state["validated"] == -1 if where == "validation" else cut.step == 4
    )
    again = trainer(tmp_path / "cut")
    again.fit(resume=True)
    assert_same_run(whole, again)


def test_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", save_every=2)
    whole.fit()
    cut = trainer(tmp_path / "cut", save_every=2)
    total = cut.objective.total

    def pressed_twice(*args: Any) -> Any:
        if cut.step == 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return total(*args)

    cut.objective.total = pressed_twice
    with pytest.raises(KeyboardInterrupt):
        cut.fit()
    assert (
        cut.step == 3
        and load_arrays(tmp_path / "cut" / "last.safetensors")[1]["trainer"]["step"] == 2
    )
    again = trainer(tmp_path / "cut", save_every=2)
    again.fit(resume=True)
    assert_same_run(whole, again)


def test_trainer_with_bad_arguments_or_files_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Trainer: max_epochs or max_steps must be given"):
        trainer(max_epochs=None)
    with pytest.raises(ValueError, match="Trainer: run_dir must be given to resume"):
        trainer().fit(resume=True)
    t = trainer(tmp_path)
    t.model.output.weight.data[...] = np.nan
    with pytest.raises(
        FloatingPointError, match="step 1: the loss is nan; the parameters are as they were"
    ):
        t.fit()
    save_arrays(tmp_path / "last.safetensors", {"a": np.ones(1)})
    with pytest.raises(ValueError, match="last.safetensors: not the state of a run"):
        trainer(tmp_path).fit(resume=True)
    other = trainer(tmp_path / "b", max_steps=2)
    other.fit()
    mg.manual_seed(0)
    wide = nn.Transformer(nn.TransformerConfig(9, 9, 32, 2, 1, 1, 32, max_len=16))
    adam = optim.Adam(wide.parameters())
    with pytest.raises(
        ValueError,
        match=r"last.safetensors: the state of another model: this one has d_model=32 \(expected 16\)",
    ):
        schedule = optim.inverse_sqrt_schedule(10)
        nn.Trainer(
            wide,
            adam,
            other.train,
            schedule=schedule,
            max_steps=3,
            run_dir=tmp_path / "b",
            progress=False,
        ).fit(resume=True)
    with pytest.raises(ValueError, match="best.safetensors: the state does not fit Transformer"):
        save_arrays(tmp_path / "best.safetensors", {"x": np.ones(1)})
        nn.load_weights(tmp_path / "best.safetensors", wide)
