"""Runs with drawn options, stopped at drawn steps and resumed, equal runs that were not stopped."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples
from support.runs import assert_same_run, at_step, copying

import minigrad as mg
import nn
from minigrad import Tensor, optim
from nn.text.batches import PairBatches


class Killed(BaseException):
    """The end of a process at any point, after which nothing is saved."""


class Rows(nn.Module):
    """A model with running statistics, and dropout from a random generator of its own."""

    def __init__(self) -> None:
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.3, generator=np.random.default_rng(5))
        self.last = nn.Linear(4, 1)

    def loss(self, x: Any, y: Any) -> Tensor:
        hidden = self.dropout(mg.relu(self.norm(self.first(x))))
        return mg.square(self.last(hidden) - y).mean()


SIZES: dict[str, Any] = {"dropout": 0.2, "max_len": 8}
OPTIMIZERS = {
    "SGD": lambda ps: optim.SGD(ps, 0.05, momentum=0.9, dampening=0.1),
    "Adam": lambda ps: optim.Adam(ps, 0.01, amsgrad=True, clip_norm=0.5),
    "AdamW": lambda ps: optim.AdamW(ps, 0.01),
}
SCHEDULES = {
    "constant": lambda optimizer: None,
    "factor": lambda optimizer: optim.linear_schedule(40, 5),
    "cosine": lambda optimizer: optim.CosineAnnealingLR(optimizer, 7),
    "plateau": lambda optimizer: optim.ReduceLROnPlateau(optimizer, patience=0, threshold=0.05),
}


def batches_of(kind: str, seed: int, shuffle: bool) -> tuple[Any, Any]:
    """Return batches for training and for validation."""
    rng = np.random.default_rng(seed)
    if kind == "pairs":
        options = {"max_tokens": 14, "shuffle": shuffle, "seed": seed}
        return PairBatches(copying(14), **options), PairBatches(copying(4, 1), 40, shuffle=False)
    if kind == "windows":
        ids = rng.integers(0, 9, 40)
        return nn.WindowBatches(ids, 5, 3, shuffle=shuffle, seed=seed), nn.WindowBatches(ids, 5, 9)
    x = rng.standard_normal((14, 3)).astype(np.float32)
    y = x.sum(1, keepdims=True)
    if kind == "list":
        return [(x[i : i + 4], y[i : i + 4]) for i in range(0, 14, 4)], [(x[:6], y[:6])]
    if kind == "function":  # which draws from the default generator
        noise = lambda epoch: ((x + mg.randn(14, 3).data, y + epoch) for _ in range(3))
        return noise, [(x[:6], y[:6])]
    made = nn.Batches(x, y, batch_size=4, shuffle=shuffle, seed=seed)
    return made, nn.Batches(x, y, batch_size=9, shuffle=False)


@dataclass(frozen=True)
class Run:
    """All that decides what a run computes."""

    kind: str
    optimizer: str
    schedule: str
    is_validated: bool
    shuffle: bool
    seed: int
    options: dict[str, Any] = field(default_factory=dict)

    def trainer(self, run_dir: Path, save_every: int | None = None) -> nn.Trainer:
        mg.manual_seed(self.seed)
        if self.kind == "pairs":
            model: Any = nn.Transformer(nn.EncoderDecoderConfig(9, 9, 4, 1, 1, 1, 4, **SIZES))
        elif self.kind == "windows":
            model = nn.LanguageModel(nn.DecoderOnlyConfig(9, 4, 1, 1, 4, **SIZES))
        else:
            model = Rows()
        optimizer = OPTIMIZERS[self.optimizer](model.parameters())
        batches, valid = batches_of(self.kind, self.seed, self.shuffle)
        return nn.Trainer(
            model,
            optimizer,
            batches,
            valid=valid if self.is_validated else None,
            schedule=SCHEDULES[self.schedule](optimizer),
            shuffle=self.shuffle,
            run_dir=run_dir,
            save_every=save_every,
            progress=False,
            **self.options,
        )


@st.composite
def runs(draw: Any) -> Run:
    is_validated = draw(st.booleans())
    options: dict[str, Any] = {
        "max_epochs": draw(st.integers(2, 3)),
        "accumulate": draw(st.integers(1, 3)),
        "log_every": draw(st.integers(1, 4)),
    }
    schedules = [*SCHEDULES]
    if is_validated:
        options["validate_every"] = draw(st.sampled_from([None, 1, 3]))
        options["patience"] = draw(st.sampled_from([None, 1, 2]))
        options["keep_last"] = draw(st.integers(0, 2))
    else:
        schedules.remove("plateau")
    return Run(
        draw(st.sampled_from(["pairs", "rows", "windows", "list", "function"])),
        draw(st.sampled_from([*OPTIMIZERS])),
        draw(st.sampled_from(schedules)),
        is_validated,
        draw(st.booleans()),
        draw(st.integers(0, 99)),
        options,
    )


def assert_same_files(whole: Path, again: Path) -> None:
    """Compare the files of weights; the others contain times."""
    files = [sorted(p for p in path.iterdir() if "last" not in p.name) for path in (whole, again)]
    assert [p.name for p in files[0]] == [p.name for p in files[1]]
    for one, other in zip(*files):
        if one.suffix == ".safetensors":
            assert one.read_bytes() == other.read_bytes()


@max_examples(10)
@given(
    run=runs(),
    stops=st.lists(st.integers(0, 12), min_size=1, max_size=3),
    killed=st.lists(st.booleans(), min_size=3, max_size=3),
    in_training=st.booleans(),
    save_every=st.sampled_from([None, 1, 2, 3]),
)
def test_run_stopped_at_any_step_and_resumed_equals_a_whole_run(
    run: Run, stops: list[int], killed: list[bool], in_training: bool, save_every: int | None
) -> None:
    """A run is killed within a step or a validation, or ended by Ctrl-C after a step."""
    with TemporaryDirectory() as directory:
        paths = Path(directory) / "whole", Path(directory) / "cut"
        whole = run.trainer(paths[0], save_every)
        whole.fit()

        def end(is_killed: bool) -> None:
            if is_killed:
                raise Killed
            signal.raise_signal(signal.SIGINT)

        for stop, is_killed in zip(sorted(stops), killed):
            cut = run.trainer(paths[1], save_every)
            at_step(cut, stop, lambda is_killed=is_killed: end(is_killed), in_training)
            with suppress(Killed, KeyboardInterrupt):
                cut.fit(resume=True)
        again = run.trainer(paths[1], save_every)
        again.fit(resume=True)
        if whole.run is not None and not whole.run.best.exists():
            whole.run = again.run = None  # without validations
        assert_same_run(whole, again)
        assert_same_files(*paths)
