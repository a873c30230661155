"""Training: steps, validation, and exact resuming.

A run that is killed or interrupted at any moment and resumed ends with the same weights, bit for
bit, as one that was not. `nn.runs.checkpoint` describes the files of a run.
"""

from __future__ import annotations

import itertools
import math
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.arguments import checked_count
from minigrad.fast.runtime import keep_freed_memory
from minigrad.io.random_state import get_rng_state, set_rng_state
from minigrad.modes import no_grad
from minigrad.optim import Optimizer, ReduceLROnPlateau, Schedule

from ..fit import TrainingLoop
from ..module import Module, evaluating
from ..text.batches import as_batches
from .agreement import describe, digest, environment, function_settings, schedule_settings
from .checkpoint import RunDirectory, checked_values
from .interrupts import Stopped
from .objectives import as_objective
from .progress import ProgressLine
from .shared import SharedLosses
from .state import RunState

__all__ = ["Trainer"]

_END: Any = object()  # of an epoch; None is a batch of which a rank has no rows


class Trainer(TrainingLoop):
    """Training of a model on batches, with validation, checkpoints and exact resuming.

        Trainer(model, AdamW(model.parameters()), batches, max_epochs=10).fit()

    Training ends after `max_epochs`, `max_steps` or `patience`, whichever comes first.

    Parameters
    ----------
    model : Module
        Trained in place; in evaluation mode after `fit`.
    optimizer : Optimizer
        Made from parameters of `model`.
    batches : Batches, list, function or iterable
        A list is shuffled in each epoch (see `shuffle`). A function takes the number of the epoch
        and returns an iterable. Any object with `epoch(number, start)` works as `Batches` do.
    objective : function or Objective, optional
        Takes the model and a batch and returns the mean loss; `model.loss(*batch)` by default.
        Several processes or ranks need an Objective, or a model with `num_targets`.
    valid : as batches, optional
        Validation batches, whose mean loss is computed in evaluation mode.
    schedule : Schedule, ReduceLROnPlateau or function, optional
        A schedule of `optimizer`, or a function of the step 1, 2, ... that returns a factor of the
        learning rate. A constant rate by default.
    parallel : int or class, optional
        Number of processes that share each batch; 1 by default. Under mpiexec each rank has that
        number. A class is called as `start_parallel` describes.
    max_epochs : int, optional
        Number of epochs; this or `max_steps` is needed.
    max_steps : int, optional
        Number of steps.
    accumulate : int
        Number of batches of a step, whose gradient is that of the mean loss over their targets.
    shuffle : bool
        Whether a list of batches is shuffled.
    validate_every : int, optional
        Steps between validations; by default they come after each epoch.
    patience : int, optional
        Number of validations without a better result after which training stops.
    patience_from : int
        Step before which validations do not count for `patience`, such as the end of a warmup.
    score : function, optional
        Takes the model and returns a number for each validation, larger is better. By default the
        validation loss is compared, smaller is better.
    keep_last : int
        Number of the last validations whose weights are kept in `run_dir`.
    save_every : int, optional
        Steps between saved states. A state is saved after each validation, too.
    log_every : int
        Steps between entries of the metrics.
    skip_nonfinite : int
        Number of steps with a loss or gradient of NaN or infinity that are left out, with all as it
        was before them. The next one is a FloatingPointError.
    run_dir : path or RunDirectory, optional
        Directory of the last state, the best weights and the metrics; nothing is saved by default.
    progress : bool
        Whether progress is shown on standard error.
    on_validation : function, optional
        Called as `on_validation(trainer, entry)` after each validation. It may return a dict of
        more values for the metrics: strings, booleans, None, numbers (NaN and infinity are logged
        as null), lists and dicts.

    Attributes
    ----------
    history : list of dict
        Entries of the metrics.
    seconds : float
        Time that training has taken.

    Examples
    --------
    >>> import numpy as np, nn
    >>> from minigrad.optim import SGD
    >>> model = nn.Linear(2, 1)
    >>> batches = nn.Batches(np.ones((8, 2)), np.ones((8, 1)), batch_size=4)
    >>> def objective(model, batch):
    ...     x, y = batch
    ...     return ((model(x) - y) ** 2).mean()
    >>> trainer = nn.Trainer(model, SGD(model.parameters(), 0.1), batches, objective=objective,
    ...                      max_epochs=3, progress=False)
    >>> history = trainer.fit()
    >>> trainer.step
    6
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
        patience_from: int = 0,
        score: Callable[[Any], float] | None = None,
        keep_last: int = 0,
        save_every: int | None = None,
        log_every: int = 10,
        skip_nonfinite: int = 0,
        run_dir: str | Path | RunDirectory | None = None,
        progress: bool = True,
        on_validation: Callable[[Trainer, dict[str, Any]], Any] | None = None,
    ) -> None:
        super().__init__(
            model,
            optimizer,
            as_batches(batches, shuffle).epoch,
            max_epochs=_checked_limit("max_epochs", max_epochs),
        )
        self.max_steps = _checked_limit("max_steps", max_steps)
        self.validate_every = _checked_limit("validate_every", validate_every)
        self.patience = _checked_limit("patience", patience)
        self.patience_from = checked_count("Trainer", "patience_from", patience_from, 0)
        self.save_every = _checked_limit("save_every", save_every)
        self.accumulate = checked_count("Trainer", "accumulate", accumulate)
        self.log_every = checked_count("Trainer", "log_every", log_every)
        self.keep_last = checked_count("Trainer", "keep_last", keep_last, 0)
        self.skip_nonfinite = checked_count("Trainer", "skip_nonfinite", skip_nonfinite, 0)
        if max_epochs is None and max_steps is None:
            raise ValueError("Trainer: max_epochs or max_steps must be given, got neither")
        _check_parameters(model, optimizer)
        self.train = as_batches(batches, shuffle)
        self.valid = None if valid is None else as_batches(valid, shuffle=False)
        self.objective = as_objective(objective, model)
        self.score, self.on_validation = score, on_validation
        lr = [float(group["lr"]) for group in optimizer.param_groups]
        goal = "max" if score is not None else None if valid is None else "min"
        self.schedule = _as_schedule(schedule, optimizer, goal)
        self._shared = SharedLosses(model, self.objective, optimizer, parallel)
        self.parallel = self._shared.parallel
        self._interrupts = self._shared.interrupts
        self._writes = self.parallel.rank == 0
        if run_dir is not None and not isinstance(run_dir, RunDirectory):
            run_dir = RunDirectory(run_dir)
        self.run = run_dir
        if run_dir is not None:
            run_dir.writes = self._writes
        self._writer = run_dir if self._writes else None
        self.state = RunState(model, optimizer, self.schedule, lr)
        self.history: list[dict[str, Any]] = []
        self.seconds = 0.0
        self.progress = progress
        self._line = ProgressLine(shown=False)
        self._began = self._logged = 0.0  # moments
        self._has_buffers = False

    @property
    def step(self) -> int:  # type: ignore[override]
        """Number of steps done."""
        return self.state.counters.step

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """Number of whole epochs done."""
        return self.state.counters.epoch

    @property
    def best(self) -> float | None:
        """Best score, or smallest validation loss."""
        return self.state.counters.best

    @property
    def skipped(self) -> int:
        """Number of steps left out because a loss or gradient was not finite."""
        return self.state.counters.skipped

    @property
    def best_step(self) -> int:
        """Step of the best validation."""
        return self.state.counters.best_step

    @property
    def lr(self) -> float:
        """Learning rate of the first group."""
        return float(self.optimizer.param_groups[0]["lr"])

    # -- the loop ------------------------------------------------------------------------------

    def fit(self, resume: bool = False) -> list[dict[str, Any]]:
        """Train to the end, and return the metrics.

        Parameters
        ----------
        resume : bool
            True = continue from the last state in `run_dir` if there is one. Other data, processes,
            losses or learning rates than the run began with are used from there on, with a
            warning. Other settings raise a ValueError.

        Returns
        -------
        list of dict
            `history`.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C, when the current step is done and the state saved. A second Ctrl-C is
            raised at once; the run can be resumed from the state that was saved last.
        SystemExit
            After SIGTERM (code 143) or SIGHUP (129), in the same way.
        """
        keep_freed_memory()
        with self.run or nullcontext():
            if not (resume and self.resume()):
                self._begin(again=resume)
            self._began = time.perf_counter() - self.seconds
            self._logged = time.perf_counter()
            shown = self.progress and self._writes
            line = ProgressLine(self._last_step(), shown, initial=self.step)
            try:
                with self._shared, self._interrupts, line as self._line:
                    if self.parallel.size > 1:
                        self.parallel.agree(self._facts())
                    self._has_buffers = any(True for _ in self.model.named_buffers())
                    self._validate_if_due()  # a validation that was cut off is taken now
                    super().fit()
                    if self.state.counters.validated != self.step:  # max_steps came first
                        self._log_loss()
                        self._validate()
                        self.save()
            except Stopped:
                self.save()
                self.parallel.barrier()
                where = "" if self.run is None else f"; the state is in {self.run.path}"
                raise self._interrupts.ended(f"stopped at step {self.step}{where}") from None
        return self.history

    def is_done(self) -> bool:
        """Return whether a limit is reached: of epochs, of steps, or of patience."""
        reached = (self.epoch, self.step, self.state.counters.worse)
        limits = (self.max_epochs, self.max_steps, self.patience)
        return any(limit is not None and n >= limit for n, limit in zip(reached, limits))

    def batches_of_epoch(self) -> Iterator[list[Any]]:
        """Return the batches of each step that is left of this epoch."""
        batches = self._rest_of_epoch()
        return iter(lambda: list(itertools.islice(batches, self.accumulate)), [])

    def take_step(self, batch: Sequence[Any]) -> None:
        """Take a step on some batches, count and log it, and validate and save if due."""
        counters = self.state.counters
        loss, count, norm, stop = self._step(batch)
        counters.batch += len(batch)
        counters.step += 1
        counters.loss_sum += loss * count
        counters.loss_count += count
        self.seconds = time.perf_counter() - self._began
        if counters.step % self.log_every == 0:
            self._log_loss(norm)
        self._line.update(counters.step, loss=f"{loss:.3f}", lr=f"{self.lr:.1e}")
        save_due = self.save_every is not None and counters.step % self.save_every == 0
        if not self._validate_if_due() and save_due:
            self.save()
        if stop or (self._interrupts.noted and self.parallel.size == 1):
            raise Stopped

    def _rest_of_epoch(self) -> Iterator[Any]:
        """Return the batches that are left of this epoch."""
        epoch = self.state.counters.epoch
        done = self.state.counters.batch
        if done == 0:
            return self._shared.batches(self.train, epoch)
        random = get_rng_state()
        batches = self._shared.batches(self.train, epoch, done - 1)
        if next(batches, _END) is _END:
            raise ValueError(
                f"epoch {epoch} must have at least {done} batches, as when the run was "
                "interrupted; resume with the batches that it began with"
            )
        set_rng_state(random)  # if batches draw random numbers, these were drawn already
        return batches

    def end_epoch(self) -> None:
        """Count an epoch, log its loss, and validate if due."""
        counters = self.state.counters
        if counters.batch == 0:
            raise ValueError(
                f"batches must have at least one batch in epoch {counters.epoch}, got none"
            )
        counters.epoch = counters.epoch + 1
        counters.batch = 0
        self._log_loss()
        self._validate_if_due()

    def _step(self, batches: Sequence[Any]) -> tuple[float, float, float | None, bool]:
        """Take one step: the gradients of the mean loss over these batches, then the update.

        Returns the loss, the number of its targets, the norm of the gradients (None for a step that
        was left out), and whether to stop.
        """
        counters = self.state.counters
        number = self.step + 1
        buffers = {}  # as the forward pass may change them, such as running statistics
        if self._has_buffers:
            buffers = {name: array.copy() for name, array in self.model.named_buffers()}
        with np.errstate(all="ignore"):  # what is not finite is one error, below
            loss, count, stop = self._backward(batches)
            try:
                if not math.isfinite(loss):
                    raise FloatingPointError(
                        f"the loss is {loss}; the parameters are as they were before it"
                    )
                norm = self.parallel.step()
            except ArithmeticError as error:
                norm = math.nan
                is_allowed = counters.skipped < self.skip_nonfinite
                if not is_allowed or not isinstance(error, FloatingPointError):
                    self._restore_buffers(buffers)
                    raise type(error)(f"step {number}: {error}") from None
        if norm is not None and not math.isfinite(norm):  # by the optimizer itself, too
            self._restore_buffers(buffers)
            counters.skipped += 1
            loss, count, norm = 0.0, 0.0, None
        if isinstance(self.schedule, Schedule):
            self.schedule.step()
        return loss, count, norm, stop

    def _restore_buffers(self, buffers: dict[str, np.ndarray]) -> None:
        """Undo what the forward pass wrote to buffers, saved ones and others."""
        for name, array in self.model.named_buffers():
            if name in buffers:
                array[...] = buffers[name]

    def _backward(self, batches: Sequence[Any]) -> tuple[float, float, bool]:
        """Compute the mean loss over the targets of these batches, and its gradients.

        Each rank works on some parts of a batch, one in each of its processes; the results are
        the same on all ranks. Returns the loss, the number of targets, and whether to stop.
        """
        parts = [self._shared.parts(self.train, batch) for batch in batches]
        count, stop = self._shared.count(self.step + 1, self.train, batches, parts)
        loss = 0.0
        for i, batch_parts in enumerate(parts):
            shards = [(part, count or 1) for part in batch_parts]
            loss += sum(self.parallel.backward(shards, add=i > 0))
        return self.parallel.sum([loss])[0], count, stop

    # -- validation ------------------------------------------------------------------------------

    def evaluate(self, batches: Any) -> float:
        """Return the mean loss over all batches, in evaluation mode.

        Parameters
        ----------
        batches : as for `Trainer`
            A list is not shuffled.
        """
        return self._shared.mean(as_batches(batches, shuffle=False))

    def _validate_if_due(self) -> bool:
        """Validate and save if a validation is due, and return whether it was."""
        counters = self.state.counters
        every = self.validate_every
        due = counters.step % every == 0 if every else counters.batch == 0
        if not due or counters.step in (0, counters.validated):
            return False
        self._validate()
        self.save()
        return True

    def _validate(self) -> None:
        """Compute the score or loss of the weights, and save the best weights.

        The counters change only afterwards, since the computation may be interrupted.
        """
        counters = self.state.counters
        if self.parallel.size > 1:
            self.parallel.agree({"step": self.step, "the weights": digest(self.model.state_dict())})
        random = get_rng_state()
        entry: dict[str, Any] = {"step": counters.step, "epoch": counters.epoch}
        try:
            value = self._judge(entry)
            best = counters.best
            is_better = (
                value is None
                or best is None
                or (value > best if self.score is not None else value < best)
            )
            if self._writer is not None:
                if is_better:
                    self._writer.save_best(self.model, **entry)
                if self.keep_last:
                    self._writer.save_checkpoint(self.model, counters.step, self.keep_last)
        except Stopped:
            set_rng_state(random)
            raise
        counters.validated = counters.step
        counts = not is_better and counters.step >= self.patience_from
        counters.worse = counters.worse + 1 if counts else 0
        if is_better:
            counters.best = value
            counters.best_step = counters.step
        if value is None:
            return
        if isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step(value)
        self.seconds = time.perf_counter() - self._began
        self._log({**entry, "seconds": round(self.seconds, 2)})
        figures = {
            name: f"{round(v, 8) + 0.0:.4g}" for name, v in entry.items() if isinstance(v, float)
        }
        self._line.milestone(counters.step, **figures)
        self._logged = time.perf_counter()

    def _judge(self, entry: dict[str, Any]) -> float | None:
        """Return the score of the weights, else their loss, else None; add both to `entry`."""
        if self.valid is None and self.score is None:
            return None
        if self.valid is not None:
            with np.errstate(all="ignore"):  # as in a step
                entry["valid_loss"] = self._checked("validation loss", self.evaluate(self.valid))
        if self.score is not None:
            with no_grad(), evaluating(), np.errstate(all="ignore"):
                score = float(self.score(self.model))
                (score,) = self.parallel.sum([score if self._writes else 0.0])
                entry["score"] = self._checked("score", score)
        if self.on_validation is not None:
            entry |= checked_values(self.on_validation(self, entry), {*entry, "seconds"})
        return float(entry["score" if self.score else "valid_loss"])

    def _checked(self, name: str, value: float) -> float:
        if not math.isfinite(value):
            raise FloatingPointError(f"step {self.step}: the {name} is {value}")
        return value

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
        if self._writer is not None:
            settings = {**self.state.settings(), **self._settings()}
            data = {**self.state.plain_data(), "settings": settings, "entries": len(self.history)}
            self._writer.save_state(self.state.arrays(), data)

    def resume(self) -> bool:
        """Restore the state in `last.safetensors`.

        Returns
        -------
        bool
            False if there is no such file yet.
        """
        if self.run is None:
            raise ValueError("Trainer: run_dir must be given to resume, got None")
        if not self.run.last.exists():
            return False
        parts, data = self.run.load_state()
        settings = self._settings() if self._writes else {}
        rates_before = data.get("settings", {}).get("learning rates")
        self.state.restore(parts, data, self.run.last, settings)
        if isinstance(self.schedule, Schedule) and rates_before != self._data["learning rates"]:
            self.schedule.set(self.schedule.count)
        if self._writes:
            self.run.forget_after(self.step)
        self.history = self.run.read_metrics(data["entries"], repair=self._writes)
        # not in the state, since runs of one seed write the same bytes
        self.seconds = float(self.history[-1].get("seconds", 0.0)) if self.history else 0.0
        return True

    def _settings(self) -> dict[str, Any]:
        """Return the settings that a resumed run should have in common with its beginning."""
        return {
            "accumulate": self.accumulate,
            "ranks": [self.parallel.size, self.parallel.parts],
            "score": self.score is not None,
            **self._data,
        }

    @cached_property
    def _data(self) -> dict[str, str]:
        function = getattr(self.objective, "function", None)
        facts: dict[str, Any] = {
            "training data": describe(self.train),
            "validation data": describe(self.valid),
            "losses": [describe(self.objective), function_settings(function)],
            "learning rates": schedule_settings(self.schedule),
        }
        if self.run is not None:
            facts |= self.run.facts
        return {name: digest(fact) for name, fact in facts.items()}

    def _facts(self) -> dict[str, Any]:
        """Return what all ranks must have in common, by name."""
        names = ("max_epochs", "max_steps", "validate_every", "patience", "patience_from",
                 "save_every", "log_every")  # fmt: skip
        return {
            **environment(),
            **self._settings(),
            **self.state.settings(),
            **self.state.plain_data(),
            **{name: getattr(self, name) for name in (*names, "keep_last", "skip_nonfinite")},
            "the model": digest(repr(self.model)),
            "the arrays": digest(self.state.arrays()),
            "the optimizer": type(self.optimizer).__name__,
        }

    # -- the metrics ---------------------------------------------------------------------------

    def _log_loss(self, norm: float | None = None) -> None:
        """Log an entry for the steps since the last one."""
        counters = self.state.counters
        if counters.loss_count == 0:
            return
        now = time.perf_counter()
        entry = {
            "step": counters.step,
            "epoch": counters.epoch,
            "loss": counters.loss_sum / counters.loss_count,
            "lr": self.lr,
        }
        if norm is not None:
            entry["grad_norm"] = norm
        if counters.skipped:
            entry["skipped"] = counters.skipped
        rate = counters.loss_count / max(now - self._logged, 1e-9)
        self._log({**entry, "targets_per_second": round(rate), "seconds": round(self.seconds, 2)})
        counters.loss_sum = counters.loss_count = 0.0
        self._logged = now

    def _log(self, entry: dict[str, Any]) -> None:
        self.history.append(entry)
        if self._writer is not None:
            self._writer.log(entry)

    def _last_step(self) -> int | None:
        """Return the step at which the run will end, if that is known."""
        ends = [] if self.max_steps is None else [self.max_steps]
        batches = operator.length_hint(self.train)  # 0 if it is not known
        if self.max_epochs is not None and batches:
            ends.append(self.max_epochs * -(-batches // self.accumulate))
        return min(ends, default=None)


def _checked_limit(name: str, value: Any) -> int | None:
    """Return a whole number of at least 1, or None for no limit."""
    return None if value is None else checked_count("Trainer", name, value)


def _check_parameters(model: Module, optimizer: Optimizer) -> None:
    """Refuse an optimizer of parameters that are not the model's."""
    ids = {id(p) for p in model.parameters()}
    for p in [p for group in optimizer.param_groups for p in group["params"]]:
        if id(p) not in ids:
            raise ValueError(
                "Trainer: optimizer must have parameters of the model only, got another one of "
                f"shape {p.shape}; make it from model.parameters(), after the model has its final "
                "form"
            )


def _as_schedule(
    schedule: Any, optimizer: Optimizer, goal: str | None
) -> Schedule | ReduceLROnPlateau | None:
    """Return a schedule of `optimizer`, from one or from a function step -> factor.

    `goal` is "max" or "min", as validations are compared; None if there are none.
    """
    if schedule is None:
        return None
    if not isinstance(schedule, (Schedule, ReduceLROnPlateau)):
        if not callable(schedule):
            raise TypeError(
                "Trainer: schedule must be a function step -> factor or a Schedule, got "
                f"{schedule!r}"
            )
        return Schedule(optimizer, schedule)
    if schedule.optimizer is not optimizer:
        raise ValueError(
            "Trainer: schedule must be made for the optimizer of the trainer, got one for another "
            "optimizer"
        )
    if isinstance(schedule, ReduceLROnPlateau):
        if goal is None:
            raise ValueError(
                "Trainer: schedule must not be a ReduceLROnPlateau without validations; pass "
                "valid= or score="
            )
        if schedule.mode != goal:
            raise ValueError(
                f"Trainer: mode of the ReduceLROnPlateau must be {goal!r}, since "
                f"{'larger scores' if goal == 'max' else 'smaller losses'} are better, got "
                f"{schedule.mode!r}"
            )
    return schedule
