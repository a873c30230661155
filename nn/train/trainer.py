"""Training: steps, validation, checkpoints, and resuming where a run was cut off, exactly.

A run directory holds `last.safetensors` (weights, optimizer, and where the run stands, in one file
that is replaced in one step), `best.safetensors` (the weights of the best validation) and
`metrics.jsonl`. A run that is killed at any moment and resumed ends with the same weights, bit for
bit, as one that never was.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from minigrad.core.modes import no_grad
from minigrad.core.random import get_rng_state, set_rng_state
from minigrad.core.tensor import Tensor
from minigrad.extras import require
from minigrad.optim import Optimizer, Schedule
from minigrad.parallel import DataParallel
from minigrad.serialization import load_arrays, save_arrays, write_atomically

from ..layers.module import Module
from ..text.vocabulary import PAD

__all__ = ["Batches", "Trainer", "TranslationLoss", "load_weights", "save_weights"]


class Batches(Protocol):
    """Batches in an order that the number of the epoch decides, such as `nn.text.PairBatches`."""

    def plan(self, epoch: int) -> list[Any]: ...

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Any]: ...


class TranslationLoss:
    """The loss of a `Transformer` on a batch (source ids, target ids), and what it is to be divided by."""

    def __init__(self, label_smoothing: float = 0.0) -> None:
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"TranslationLoss: expected 0 <= label_smoothing <= 1, got {label_smoothing}")
        self.label_smoothing = label_smoothing

    def count(self, batch: Any) -> int:
        """The target tokens that are predicted."""
        return int((batch[1][:, 1:] != PAD).sum())

    def split(self, batch: Any, parts: int) -> list[Any]:
        """At most `parts` batches that make up this one, of like sizes."""
        return [tuple(side[i::parts] for side in batch) for i in range(min(parts, len(batch[0])))]

    def total(self, model: Any, batch: Any) -> Tensor:
        """The sum of their losses."""
        smoothing = self.label_smoothing if model.training else 0.0
        return model.loss(*batch, label_smoothing=smoothing, reduction="sum")


def save_weights(path: str | Path, model: Module, **metadata: Any) -> None:
    """Write the state of a model, and plain data beside it, atomically."""
    save_arrays(path, model.state_dict(), metadata)


def load_weights(path: str | Path, model: Module) -> dict[str, Any]:
    """Read the state of a model; the plain data beside it."""
    arrays, metadata = load_arrays(path)
    try:
        model.load_state_dict(arrays)
    except KeyError as error:
        raise ValueError(f"{path}: {error.args[0]}") from None
    return metadata


class Trainer:
    """Trains a model on batches, for `max_epochs` epochs or `max_steps` steps, whichever ends first.

    A step averages the loss over the tokens of `accumulate` batches. After each epoch, or every
    `validate_every` steps, the loss on `valid` is taken (without smoothing); after `patience` of
    these without a better one, training stops. With a `run_dir`, the best weights, the last state
    (every `save_every` steps and after each validation) and the metrics are kept there. `loss` says
    how a batch is judged and split: see `TranslationLoss`. With several `processes`, each has a part
    of every batch (see `minigrad.DataParallel`).
    """

    def __init__(
        self, model: Module, optimizer: Optimizer, train: Batches, *, valid: Batches | None = None,
        schedule: Schedule | None = None, loss: Any = None, max_epochs: int | None = None, max_steps: int | None = None,
        accumulate: int = 1, patience: int | None = None, validate_every: int | None = None,
        save_every: int | None = None, log_every: int = 10, run_dir: str | Path | None = None, progress: bool = True,
        processes: int = 1, on_validation: Callable[[Trainer, dict[str, Any]], Any] | None = None,
    ) -> None:  # fmt: skip
        if max_epochs is None and max_steps is None:
            raise ValueError("Trainer: expected max_epochs or max_steps")
        if accumulate < 1:
            raise ValueError(f"Trainer: expected accumulate of at least 1, got {accumulate}")
        self.model, self.optimizer, self.train, self.valid, self.schedule = model, optimizer, train, valid, schedule
        self.loss = loss or TranslationLoss()
        self.parallel = DataParallel(optimizer, self._part_of_loss, processes)
        self.max_epochs, self.max_steps, self.accumulate = max_epochs, max_steps, accumulate
        self.patience, self.validate_every, self.save_every = patience, validate_every, save_every
        self.log_every, self.progress, self.on_validation = log_every, progress, on_validation
        self.run_dir = None if run_dir is None else Path(run_dir)
        self.step = 0
        self.epoch = 0
        self.batch = 0  # batches of this epoch that are done
        self.best = math.inf
        self.best_step = 0
        self.worse = 0  # validations since the best
        self.seconds = 0.0
        self._begun: dict[str, Any] | None = None  # the random state before the step that runs
        self._changing = False  # whether the parameters are between two steps
        self.history: list[dict[str, Any]] = []

    # -- the loop ------------------------------------------------------------------------------

    def fit(self, resume: bool = False) -> list[dict[str, Any]]:
        """Train to the end, from the last state in `run_dir` if `resume` and there is one; the metrics.

        Ctrl-C keeps the state before it stops the run.
        """
        if resume:
            self.resume()
        elif self.run_dir is not None:
            self._write_metrics()
        self.model.train()
        began = time.perf_counter() - self.seconds
        with self.parallel, self._bar() as bar:
            try:
                while not self._is_done():
                    self._run_epoch(bar, began)
                if not any("valid_loss" in e and e["step"] == self.step for e in self.history):  # max_steps came first
                    self._validate()
                    self.save()
            except KeyboardInterrupt:
                self.seconds = time.perf_counter() - began
                if not self._changing:  # else the last state that was kept is the last whole one
                    if self._begun is not None:
                        set_rng_state(self._begun)  # the step that was cut off will be taken again
                    self.save()
                raise
        self.model.eval()
        return self.history

    def _is_done(self) -> bool:
        return (
            (self.max_epochs is not None and self.epoch >= self.max_epochs)
            or (self.max_steps is not None and self.step >= self.max_steps)
            or (self.patience is not None and self.worse >= self.patience)
        )

    def _run_epoch(self, bar: Any, began: float) -> None:
        batches = self.train.epoch(self.epoch, self.batch)
        count = len(self.train.plan(self.epoch))
        logged = time.perf_counter()
        tokens, total = 0, 0.0
        while self.batch < count and not self._is_done():
            several = list(itertools.islice(batches, self.accumulate))
            loss, n, norm = self._step(several)
            self.batch += len(several)
            self.step += 1
            self._begun, self._changing = None, False
            tokens, total = tokens + n, total + loss * n
            ended = self.batch >= count
            now = time.perf_counter()
            self.seconds = now - began
            if self.step % self.log_every == 0 or ended:
                rate = tokens / max(now - logged, 1e-9)
                entry = {"step": self.step, "epoch": self.epoch, "loss": total / max(tokens, 1), "lr": self._lr}
                entry |= {"grad_norm": norm} if norm is not None else {}
                self._log({**entry, "tokens_per_second": round(rate), "seconds": round(self.seconds, 2)})
                self._show(bar, entry["loss"], rate)
                tokens, total, logged = 0, 0.0, now
            if bar is not None:
                bar.update(1)
            if ended:
                self.epoch, self.batch = self.epoch + 1, 0
            every = self.validate_every
            if (self.step % every == 0) if every else ended:
                self._validate()
                self.save()
                logged = time.perf_counter()
            elif self.save_every and self.step % self.save_every == 0:
                self.save()
            if ended:
                break

    def _step(self, batches: list[Any]) -> tuple[float, int, float | None]:
        """One change of the parameters: the mean loss, what it was divided by, the norm of the gradients."""
        self._begun = get_rng_state()
        n = sum(map(self.loss.count, batches))
        loss = 0.0
        for i, batch in enumerate(batches):
            shards = [(part, max(n, 1)) for part in self.loss.split(batch, self.parallel.processes)]
            loss += sum(self.parallel.backward(shards, add=i > 0))
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"step {self.step + 1}: the loss is {loss}; the parameters are as they were before it"
            )
        self._changing = True
        norm = self.parallel.step()
        if self.schedule is not None:
            self.schedule.step()
        return loss, n, norm

    def _part_of_loss(self, shard: tuple[Any, int]) -> Tensor:
        part, n = shard
        return self.loss.total(self.model, part) / n

    @property
    def _lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def evaluate(self, batches: Batches) -> float:
        """The mean loss over all batches, in evaluation mode."""
        training = self.model.training
        self.model.eval()
        total, n = 0.0, 0
        with no_grad():
            for batch in batches.epoch(0):
                total += self.loss.total(self.model, batch).item()
                n += self.loss.count(batch)
        self.model.train(training)
        return total / max(n, 1)

    def _validate(self) -> None:
        if self.valid is None:
            return
        loss = self.evaluate(self.valid)
        entry = {"step": self.step, "epoch": self.epoch, "valid_loss": loss, "seconds": round(self.seconds, 2)}
        if loss < self.best:
            self.best, self.best_step, self.worse = loss, self.step, 0
            if self.run_dir is not None:
                save_weights(self.run_dir / "best.safetensors", self.model, step=self.step, valid_loss=loss)
        else:
            self.worse += 1
        if self.on_validation is not None:
            entry |= self.on_validation(self, entry) or {}
        self._log(entry)

    # -- what is kept --------------------------------------------------------------------------

    def save(self) -> None:
        """Write the whole state into `last.safetensors`, if there is a run directory."""
        if self.run_dir is None:
            return
        optimizer = self.optimizer.state_dict()
        arrays = {f"model.{name}": array for name, array in self.model.state_dict().items()}
        arrays |= {f"optimizer.{name}": array for name, array in optimizer["arrays"].items()}
        names = ("step", "epoch", "batch", "best", "best_step", "worse", "seconds")
        state = {
            **{name: getattr(self, name) for name in names},
            "optimizer": optimizer["groups"],
            "schedule": None if self.schedule is None else self.schedule.count,
            "random": get_rng_state(),
        }
        save_arrays(self.run_dir / "last.safetensors", arrays, {"trainer": state})

    def resume(self) -> bool:
        """Go back to the state in `last.safetensors`; False if there is none yet."""
        if self.run_dir is None:
            raise ValueError("Trainer: resuming needs a run_dir")
        path = self.run_dir / "last.safetensors"
        if not path.exists():
            self._write_metrics()
            return False
        arrays, metadata = load_arrays(path)
        if "trainer" not in metadata:
            raise ValueError(f"{path}: not the state of a run, which holds an optimizer too")
        state = metadata["trainer"]
        parts: dict[str, dict[str, np.ndarray]] = {"model": {}, "optimizer": {}}
        for name, array in arrays.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = array
        try:
            self.model.load_state_dict(parts["model"])
        except KeyError as error:
            raise ValueError(f"{path}: {error.args[0]}") from None
        self.optimizer.load_state_dict({"groups": state["optimizer"], "arrays": parts["optimizer"]})
        for name in ("step", "epoch", "batch", "best", "best_step", "worse", "seconds"):
            setattr(self, name, state[name])
        if self.schedule is not None:
            self.schedule.set(state["schedule"])
        set_rng_state(state["random"])
        metrics = self.run_dir / "metrics.jsonl"
        lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []
        self.history = [entry for entry in map(_entry, lines) if entry and entry["step"] <= self.step]
        self._write_metrics()
        return True

    def _log(self, entry: dict[str, Any]) -> None:
        self.history.append(entry)
        if self.run_dir is not None:
            with (self.run_dir / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def _write_metrics(self) -> None:
        assert self.run_dir is not None
        text = "".join(json.dumps(entry) + "\n" for entry in self.history)
        write_atomically(self.run_dir / "metrics.jsonl", lambda part: part.write_text(text, encoding="utf-8"))

    # -- what is shown -------------------------------------------------------------------------

    def _bar(self) -> Any:
        if not self.progress:
            return nullcontext()
        tqdm = require("tqdm", "train", "the progress bar (progress=False does without)").tqdm
        per_epoch = -(-len(self.train.plan(0)) // self.accumulate)
        ends = [self.max_steps or math.inf, (self.max_epochs or math.inf) * per_epoch]
        return tqdm(total=int(min(ends)), initial=self.step, unit="step", dynamic_ncols=True)

    def _show(self, bar: Any, loss: float, rate: float) -> None:
        if bar is not None:
            best = {} if self.best == math.inf else {"valid": f"{self.best:.3f}"}
            bar.set_postfix({"loss": f"{loss:.3f}", **best, "lr": f"{self._lr:.1e}", "tokens/s": f"{rate:,.0f}"})


def _entry(line: str) -> dict[str, Any] | None:
    """A line of metrics; None for one that was cut off when the process was killed."""
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None
