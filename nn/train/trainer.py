"""Training: steps, validation, and resuming where a run was cut off, exactly.

A run that is killed or interrupted at any moment and resumed ends with the same weights, bit for
bit, as one that never was. What it writes, and where, is said in `nn.train.checkpoint`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.core.modes import no_grad
from minigrad.core.random import get_rng_state, set_rng_state
from minigrad.optim import Optimizer, ReduceLROnPlateau, Schedule
from minigrad.runtime import keep_freed_memory

from ..layers.module import Module
from .agreement import digest, facts, plain
from .batches import as_batches
from .checkpoint import RunDirectory, checked_values
from .interrupts import Stopped
from .objectives import as_objective
from .progress import ProgressLine
from .settings import as_schedule, check_settings
from .shared import SharedLosses
from .state import restore, state_of

__all__ = ["Trainer"]

_END: Any = object()  # of an epoch; None is a batch of which a rank has no rows


class Trainer:
    """Trains a model on batches, for `max_epochs` epochs or `max_steps` steps, whichever ends
    first.

        Trainer(model, AdamW(model.parameters()), batches, max_epochs=10).fit()

    - `batches`, `valid`: a list of batches (in a new order each epoch, unless `shuffle=False`), a function
      epoch -> iterable, any other iterable, or an object with `epoch(number, start)` (see `Batches`).
    - `objective`: None for `model.loss(*batch)`, a function (model, batch) -> mean loss, or an `Objective`.
      A step follows the mean over the targets of `accumulate` batches.
    - `schedule`: a function step -> factor of the learning rate, for steps 1, 2, ..., a `Schedule`, or a
      `ReduceLROnPlateau`, which goes by what each validation gives.
    - `parallel`: the processes among which each batch is split, or who shares steps (see `start_parallel`).
    - After each epoch, or every `validate_every` steps, the loss on `valid` is taken in evaluation mode, and
      `score(model)` if there is one (larger is better; else smaller losses are). The best weights are kept;
      after `patience` validations without better ones, training stops. `on_validation(trainer, entry)` may
      return a dict of more values to log: strings, booleans, None, numbers (NumPy's too; NaN and
      infinity are logged as null), and lists and dicts of them.
    - `average`: an object whose `update(model)` is called after each step, and in whose `applied(model)`
      validation takes place (see `nn.train.averaging`).
    - `run_dir`: where the last state (every `save_every` steps and after each validation), the best weights,
      those of the last `keep_last` validations, and the metrics (every `log_every` steps) are written.
    - `skip_nonfinite`: how many steps with a loss or gradient that is NaN or infinite are left out before
      one is a FloatingPointError. Parameters and optimizer are as before such a step.
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer,
        batches: Any,
        *,
        objective: Any = None,
        valid: Any = None,
        schedule: Schedule | ReduceLROnPlateau | Callable[[int], float] | None = None,
        parallel: Any = None,
        max_epochs: int | None = None,
        max_steps: int | None = None,
        accumulate: int = 1,
        shuffle: bool = True,
        validate_every: int | None = None,
        patience: int | None = None,
        score: Callable[[Any], float] | None = None,
        average: Any = None,
        keep_last: int = 0,
        save_every: int | None = None,
        log_every: int = 10,
        skip_nonfinite: int = 0,
        run_dir: str | Path | RunDirectory | None = None,
        progress: bool = True,
        on_validation: Callable[[Trainer, dict[str, Any]], Any] | None = None,
    ) -> None:
        self.max_epochs, self.max_steps, self.accumulate = max_epochs, max_steps, accumulate
        self.validate_every, self.patience, self.keep_last = validate_every, patience, keep_last
        self.save_every, self.log_every, self.skip_nonfinite = save_every, log_every, skip_nonfinite
        self.model, self.optimizer, self.score, self.average = model, optimizer, score, average
        self.progress, self.on_validation = progress, on_validation
        check_settings(self)
        self.train = as_batches(batches, shuffle)
        self.valid = None if valid is None else as_batches(valid, shuffle=False)
        self.objective = as_objective(objective, model)
        self._buffered: list[Module] = []  # modules with buffers
        self.initial_lr = [float(group["lr"]) for group in optimizer.param_groups]
        self.schedule = as_schedule(schedule, self)
        self._shared = SharedLosses(model, self.objective, optimizer, parallel)
        self.parallel, self._interrupts = self._shared.parallel, self._shared.interrupts
        self._writes = self.parallel.rank == 0
        self.run = (
            run_dir
            if run_dir is None or isinstance(run_dir, RunDirectory)
            else RunDirectory(run_dir)
        )
        if self.run is not None:
            self.run.writes = self._writes
        self.step = self.epoch = self.batch = 0  # how many are done, of the batches in this epoch
        self.best: float | None = None  # the best score, or the smallest validation loss
        self.best_step = self.worse = 0  # its step, and validations since
        self.skipped = 0  # steps that were left out
        self.validated = -1  # the step of the last validation
        self.seconds = 0.0
        self.loss_sum = self.loss_count = 0.0  # since the last entry of the metrics
        self.history: list[dict[str, Any]] = []
        self._line = ProgressLine(shown=False)
        self._began = self._logged = 0.0  # moments

    # -- the loop ------------------------------------------------------------------------------

    def fit(self, resume: bool = False) -> list[dict[str, Any]]:
        """Train to the end, from the last state in `run_dir` if `resume` and there is one; the
        metrics.

        Ctrl-C ends the step that is under way, writes the state, and raises KeyboardInterrupt;
        pressed again it raises at once, and the run can be resumed from the state that was written
        last. SIGTERM and SIGHUP do the same, and raise SystemExit with the code 143 or 129.
        """
        keep_freed_memory()
        with self.run or nullcontext():
            if not (resume and self.resume()):
                self._begin(again=resume)
            self.model.train()
            self._began = time.perf_counter() - self.seconds
            self._logged = time.perf_counter()
            shown = self.progress and self._writes
            line = ProgressLine(self._last_step(), shown, initial=self.step)
            try:
                with self._shared, self._interrupts, line as self._line:
                    if self.parallel.size > 1:
                        self.parallel.agree(facts(self))
                    self._run()
            except Stopped:
                self.save()
                self.parallel.barrier()
                where = "" if self.run is None else f"; the state is in {self.run.path}"
                raise self._interrupts.ended(f"stopped at step {self.step}{where}") from None
        self.model.eval()
        return self.history

    def _run(self) -> None:
        while not self._is_done():
            self._run_epoch()
        if self.validated != self.step:  # max_steps came first
            self._log_loss()
            self._validate()
            self.save()

    def _is_done(self) -> bool:
        limits = (
            (self.epoch, self.max_epochs),
            (self.step, self.max_steps),
            (self.worse, self.patience),
        )
        return any(limit is not None and reached >= limit for reached, limit in limits)

    def _run_epoch(self) -> None:
        """The steps of an epoch from `self.batch` on, or as many as there are to be."""
        self._buffered = [module for module in self.model.modules() if module._buffers]
        self._validate_if_due()  # a validation that was cut off is taken now
        batches = self._rest_of_epoch()
        while not self._is_done():
            several = list(itertools.islice(batches, self.accumulate))
            if not several:
                self._end_epoch()
                return
            loss, count, norm, stop = self._step(several)
            self.batch += len(several)
            self.step += 1
            self.loss_sum, self.loss_count = self.loss_sum + loss * count, self.loss_count + count
            self.seconds = time.perf_counter() - self._began
            if self.step % self.log_every == 0:
                self._log_loss(norm)
            self._line.update(self.step, loss=f"{loss:.3f}", **self._figures())
            if not self._validate_if_due() and self.save_every and self.step % self.save_every == 0:
                self.save()
            if stop or (self._interrupts.noted and self.parallel.size == 1):
                raise Stopped

    def _rest_of_epoch(self) -> Iterator[Any]:
        """The batches that are left of this epoch."""
        if self.batch == 0:
            return self._shared.batches(self.train, self.epoch)
        state = get_rng_state()
        batches = self._shared.batches(
            self.train, self.epoch, self.batch - 1
        )  # one that was done: is it there?
        if next(batches, _END) is _END:
            raise ValueError(
                f"the run was cut off after {self.batch} batches of epoch {self.epoch}, which has "
                "fewer now: "
                "go on with the batches that it began with"
            )
        set_rng_state(state)  # if batches draw random numbers, these were drawn already
        return batches

    def _end_epoch(self) -> None:
        if self.batch == 0:
            raise ValueError(f"epoch {self.epoch} has no batches")
        self.epoch, self.batch = self.epoch + 1, 0
        self._log_loss()
        self._validate_if_due()

    def _step(self, batches: list[Any]) -> tuple[float, float, float | None, bool]:
        """One change of the parameters: the mean loss, what it was divided by, the gradients' norm,
        whether to stop.
        """
        norm, buffers = None, self._copied_buffers()
        with np.errstate(all="ignore"):  # what is not finite is one error
            loss, count, stop = self._shared.backward(self.step + 1, self.train, batches)
        try:
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"the loss is {loss}; the parameters are as they were before it"
                )
            with np.errstate(all="ignore"):
                norm = self.parallel.step()
            if norm is not None and not math.isfinite(
                norm
            ):  # the optimizer leaves such steps out by itself
                self.skipped, norm, loss, count = self.skipped + 1, None, 0.0, 0.0
                self._restore_buffers(buffers)
        except FloatingPointError as error:
            self._restore_buffers(buffers)
            if self.skipped >= self.skip_nonfinite:
                raise FloatingPointError(f"step {self.step + 1}: {error}") from None
            self.skipped += 1
            loss = count = 0.0
        except OverflowError as error:
            raise OverflowError(f"step {self.step + 1}: {error}") from None
        if isinstance(self.schedule, Schedule):
            self.schedule.step()
        if self.average is not None:
            self.average.update(self.model)
        return loss, count, norm, stop

    def _copied_buffers(self) -> list[tuple[Module, str, np.ndarray | None]]:
        """Copy what the forward pass of a step may change, such as running statistics."""
        return [
            (module, name, None if (array := getattr(module, name)) is None else array.copy())
            for module in self._buffered
            for name, persistent in module._buffers.items()
            if persistent
        ]

    @staticmethod
    def _restore_buffers(buffers: list[tuple[Module, str, np.ndarray | None]]) -> None:
        for module, name, array in buffers:
            setattr(module, name, array)

    # -- validation ------------------------------------------------------------------------------

    def evaluate(self, batches: Any) -> float:
        """The mean loss over all batches, in evaluation mode."""
        return self._shared.mean(as_batches(batches, shuffle=False))

    def _validate_if_due(self) -> bool:
        """Validate and save, at the end of an epoch or after `validate_every` steps; whether it was
        done.
        """
        every = self.validate_every
        due = self.step % every == 0 if every else self.batch == 0
        if not due or self.step == 0 or self.validated == self.step:
            return False
        self._validate()
        self.save()
        return True

    def _validate(self) -> None:
        """Judge the weights, and keep the best. Nothing of this trainer changes before the
        judgement is there.
        """
        if self.parallel.size > 1:
            self.parallel.agree({"step": self.step, "the weights": digest(self.model.state_dict())})
        state = get_rng_state()
        entry: dict[str, Any] = {"step": self.step, "epoch": self.epoch}
        try:
            with nullcontext() if self.average is None else self.average.applied(self.model):
                value = self._judge(entry)
                better = (
                    value is None
                    or self.best is None
                    or (value > self.best if self.score else value < self.best)
                )
                if self.run is not None and self._writes:
                    if better:
                        self.run.save_best(self.model, **entry)
                    if self.keep_last:
                        self.run.save_checkpoint(self.model, self.step, self.keep_last)
        except Stopped:
            set_rng_state(state)
            raise
        self.validated = self.step
        self.worse = 0 if better else self.worse + 1
        self.best, self.best_step = (value, self.step) if better else (self.best, self.best_step)
        if value is None:
            return
        if isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step(value)
        self.seconds = time.perf_counter() - self._began
        self._log({**entry, "seconds": round(self.seconds, 2)})
        self._line.milestone(
            self.step, **{k: f"{v:.4g}" for k, v in entry.items() if isinstance(v, float)}
        )
        self._logged = time.perf_counter()

    def _judge(self, entry: dict[str, Any]) -> float | None:
        """The score of these weights, else their loss, else None; what is known of them is put into
        `entry`.
        """
        if self.valid is None and self.score is None:
            return None
        if self.valid is not None:
            with np.errstate(all="ignore"):  # as in a step
                entry["valid_loss"] = self.evaluate(self.valid)
            if not math.isfinite(entry["valid_loss"]):
                raise FloatingPointError(
                    f"step {self.step}: the validation loss is {entry['valid_loss']}"
                )
        if self.score is not None:
            self.model.eval()
            with no_grad(), np.errstate(all="ignore"):
                score = float(self.score(self.model))
                entry["score"] = self.parallel.sum([score if self._writes else 0.0])[
                    0
                ]  # the first rank's
            self.model.train()
            if not math.isfinite(entry["score"]):
                raise FloatingPointError(f"step {self.step}: the score is {entry['score']}")
        if self.on_validation is not None:
            entry |= checked_values(self.on_validation(self, entry), {*entry, "seconds"})
        return float(entry["score" if self.score else "valid_loss"])

    # -- the state ------------------------------------------------------------------------------

    def _begin(self, again: bool) -> None:
        """Begin a run; `again` if an earlier one may have ended before it wrote a state."""
        if self.run is None or self.step:
            return
        if self.run.last.exists():
            raise FileExistsError(
                f"{self.run.path}: holds a run already; fit(resume=True) goes on with it, or take "
                "another run_dir"
            )
        if not again and self._writes and (files := self.run.earlier_files()):
            raise FileExistsError(
                f"{self.run.path}: contains {files[0].name} of an earlier run, which a new run "
                "would replace; choose another run_dir, move the file, or call fit(resume=True)"
            )
        if self._writes:
            self.run.write_metrics(self.history)

    def save(self) -> None:
        """Write the whole state into `last.safetensors`, if there is a run directory."""
        if self.run is not None and self._writes:
            self.run.save_state(*state_of(self))

    def resume(self) -> bool:
        """Go back to the state in `last.safetensors`; False if there is none yet."""
        if self.run is None:
            raise ValueError("Trainer: resuming needs a run_dir")
        if not self.run.last.exists():
            return False
        entries = restore(self, self.run)
        cut = self.run.cut_metrics if self._writes else self.run.read_metrics
        self.history = cut(entries)
        last = self.history[-1] if self.history else {}
        self.seconds = float(
            last.get("seconds", 0.0)
        )  # not in the state: runs of one seed write the same bytes
        if self._writes:
            self.run.forget_after(self.step)
        return True

    # -- the metrics ---------------------------------------------------------------------------

    @cached_property
    def data(self) -> dict[str, str]:
        """Digests of the batches and their settings, by their use."""
        batches = {"training": self.train, "validation": self.valid}
        return {use: digest(plain(source)) for use, source in batches.items()}

    @property
    def lr(self) -> float:
        """The learning rate of the first group."""
        return float(self.optimizer.param_groups[0]["lr"])

    def _log_loss(self, norm: float | None = None) -> None:
        """An entry for the steps since the last one."""
        if self.loss_count == 0:
            return
        now = time.perf_counter()
        entry = {
            "step": self.step,
            "epoch": self.epoch,
            "loss": self.loss_sum / self.loss_count,
            "lr": self.lr,
        }
        entry |= {} if norm is None else {"grad_norm": norm}
        entry |= {"skipped": self.skipped} if self.skipped else {}
        rate = self.loss_count / max(now - self._logged, 1e-9)
        self._log({**entry, "targets_per_second": round(rate), "seconds": round(self.seconds, 2)})
        self.loss_sum = self.loss_count = 0.0
        self._logged = now

    def _log(self, entry: dict[str, Any]) -> None:
        self.history.append(entry)
        if self.run is not None and self._writes:
            self.run.log(entry)

    def _figures(self) -> dict[str, str]:
        best = {} if self.best is None else {"best": f"{self.best:.4g}"}
        rate = self.loss_count / max(time.perf_counter() - self._logged, 1e-9)
        return {
            **best,
            "lr": f"{self.lr:.1e}",
            **({"targets/s": f"{rate:,.0f}"} if self.loss_count else {}),
        }

    def _last_step(self) -> int | None:
        """The step at which the run will end, where that can be known."""
        ends = [] if self.max_steps is None else [self.max_steps]
        if self.max_epochs is not None and hasattr(self.train, "__len__"):
            ends.append(self.max_epochs * -(-len(self.train) // self.accumulate))
        return min(ends, default=None)
