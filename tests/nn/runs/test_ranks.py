"""Runs whose ranks are threads of this process: they equal runs of one process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from support.runs import SumOfRows, timeless, weights

import nn
from minigrad import optim
from minigrad.fast.parallel import SingleProcess

X = np.random.default_rng(0).standard_normal((13, 3))
Y = X.sum(1, keepdims=True) ** 2


class Job:
    """Place at which the ranks exchange values."""

    def __init__(self, size: int) -> None:
        self.values: list[Any] = [None] * size
        self.waiting = threading.Barrier(size, timeout=20)

    def exchange(self, rank: int, value: Any) -> list[Any]:
        """Return the values of all ranks."""
        self.values[rank] = value
        self.waiting.wait()
        values = [*self.values]
        self.waiting.wait()
        return values

    def run(self, call: Callable[[int], Any]) -> list[Any]:
        """Return the result of each rank, or the error with which it ended."""
        results: list[Any] = [None] * len(self.values)

        def work(rank: int) -> None:
            try:
                results[rank] = call(rank)
            except BaseException as error:
                results[rank] = error
                if not isinstance(error, (KeyboardInterrupt, ValueError)):
                    self.waiting.abort()

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(results))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


class Rank(SingleProcess):
    """Steps of a rank, whose gradients and numbers are summed over all ranks."""

    def __init__(self, job: Job, rank: int, *args: Any, model: Any) -> None:
        super().__init__(*args, model=model)
        self.job, self.rank, self.size = job, rank, len(job.values)

    def backward(self, shards: Sequence[Any], add: bool = False) -> list[float]:
        return super().backward(shards or [None], add)

    def step(self) -> float | None:
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        mine = [0 if p.grad is None else p.grad.copy() for p in parameters]
        for p, grads in zip(parameters, zip(*self.job.exchange(self.rank, mine))):
            p.grad = sum(grads)
        return super().step()

    def sum(self, numbers: Sequence[float]) -> list[float]:
        return [sum(column) for column in zip(*self.job.exchange(self.rank, [*numbers]))]

    def agree(self, facts: Any) -> None:
        first, *others = self.job.exchange(self.rank, json.loads(json.dumps(facts, default=str)))
        different = {name for other in others for name in first if first[name] != other[name]}
        if different:
            raise ValueError(f"{sorted(different)} must be the same on all ranks")

    def barrier(self) -> None:
        self.job.exchange(self.rank, None)


class Neighbours(SumOfRows):
    """An objective of pairs of rows, which splits a batch in a way of its own: between pairs."""

    def total(self, model: Any, batch: Any) -> Any:
        errors, end = model(batch[0]) - batch[1], len(batch[0]) // 2 * 2
        return (errors**2).sum() + (errors[0:end:2] * errors[1:end:2]).sum()

    def split(self, batch: Any, parts: int) -> list[Any]:
        pairs = -(-len(batch[0]) // 2)
        edges = [2 * (pairs * i // parts) for i in range(parts + 1)]
        return [(batch[0][a:b], batch[1][a:b]) for a, b in pairwise(edges) if a < b]


def batches_of(kind: str, shuffle: bool = True) -> Any:
    """Return 13 rows in batches of 4, the last of which has fewer rows than there are ranks."""
    rows = nn.Batches(X, Y, batch_size=4, seed=3, shuffle=shuffle)
    if kind == "list":
        return [*rows.epoch()]
    return rows.epoch if kind == "function" else rows


def made(path: Path, kind: str = "rows", parallel: Any = None, **options: Any) -> nn.Trainer:
    model = nn.Linear(3, 1, dtype=float, generator=np.random.default_rng(1))
    loss = lambda model, batch: ((model(batch[0]) - batch[1]) ** 2).mean()
    settings = {"max_epochs": 2, "log_every": 1, "keep_last": 2, "save_every": 1, **options}
    return nn.Trainer(
        model,
        optim.Adam(model.parameters(), 0.1, clip_norm=3.0),
        batches_of(kind),
        valid=batches_of(kind, False),
        objective=(Neighbours if kind == "split" else SumOfRows)(loss),
        run_dir=path,
        parallel=parallel,
        progress=False,
        **settings,
    )


def assert_equal_runs(trainers: list[nn.Trainer], whole: nn.Trainer) -> None:
    """Compare what each rank has with a run of one process, to rounding."""
    for t in trainers:
        assert isinstance(t, nn.Trainer), t
        for name, array in weights(whole).items():
            assert_allclose(weights(t)[name], array, rtol=1e-10)
        for entry, expected in zip(timeless(t.history), timeless(whole.history), strict=True):
            assert entry == pytest.approx(expected, rel=1e-9)
        assert (t.step, t.epoch, t.best) == (whole.step, whole.epoch, pytest.approx(whole.best))
        assert t.evaluate(batches_of("rows", False)) == pytest.approx(whole.best)  # each by itself


@pytest.mark.parametrize("kind", ["rows", "list", "function", "split"])
@pytest.mark.parametrize(("size", "accumulate"), [(2, 1), (3, 2)])
def test_run_of_ranks_that_is_stopped_and_resumed_equals_one_process(
    tmp_path: Path, kind: str, size: int, accumulate: int
) -> None:
    """Ctrl-C that reaches one rank stops all of them after the step. The first rank alone writes."""
    options: dict[str, Any] = {"kind": kind, "accumulate": accumulate}
    whole = made(tmp_path / "whole", **options)
    whole.fit()

    def fit(rank: int, is_stopped: bool) -> nn.Trainer:
        t = made(tmp_path / "ranks", parallel=partial(Rank, job, rank), **options)
        assert (t._writes, t.run.writes) == (rank == 0, rank == 0)
        step = t.parallel.step

        def stopping() -> float | None:
            t._interrupts.noted = is_stopped and rank == size - 1
            return step()

        t.parallel.step = stopping  # type: ignore[method-assign]
        t.fit(resume=not is_stopped)
        return t

    job = Job(size)
    stopped = job.run(partial(fit, is_stopped=True))
    assert [str(error) for error in stopped] == [
        f"stopped at step 2; the state is in {tmp_path}/ranks"
    ] * size
    assert_equal_runs(job.run(partial(fit, is_stopped=False)), whole)
    names = [{path.name for path in (tmp_path / name).iterdir()} for name in ("whole", "ranks")]
    assert names[0] == names[1]


def test_ranks_and_processes_are_settings_of_their_own(tmp_path: Path) -> None:
    kinds = (None, 2, partial(Rank, Job(2), 0))
    found = [made(tmp_path, parallel=kind)._settings()["ranks"] for kind in kinds]
    assert found == [[1, 1], [1, 2], [2, 1]]


def test_score_of_a_run_of_ranks_is_that_of_the_first(tmp_path: Path) -> None:
    def fit(rank: int) -> nn.Trainer:
        score = lambda model: -t.step if rank == 0 else 99.0
        t = made(tmp_path, parallel=partial(Rank, job, rank), score=score, patience=1)
        t.fit()
        return t

    job = Job(2)
    for t in job.run(fit):
        assert (t.best, t.step, t.epoch) == (-4.0, 8, 2)
        assert [entry["score"] for entry in t.history if "score" in entry] == [-4.0, -8.0]


@pytest.mark.parametrize("place", [None, 0, 1])
def test_ranks_that_read_other_batches_of_a_step_end_with_an_error(
    tmp_path: Path, place: int | None
) -> None:
    def fit(rank: int) -> nn.Trainer:
        t = made(
            tmp_path, "function", parallel=partial(Rank, job, rank), accumulate=2, max_epochs=1
        )
        shifts = [rank * (i == place) for i in range(2)]
        t.train.batches = lambda epoch: iter([(X[:4] + shift, Y[:4]) for shift in shifts])
        t.fit()
        return t

    job = Job(2)
    results = job.run(fit)
    if place is None:
        assert all(isinstance(t, nn.Trainer) for t in results)
    else:
        assert all("step 1: the batch of rank" in str(error) for error in results)


def diverge(t: nn.Trainer) -> None:
    """Change the weights of a rank after each step."""
    step = t.parallel.step

    def stepping() -> float | None:
        norm = step()
        t.model.weight.data += 1e-9
        return norm

    t.parallel.step = stepping  # type: ignore[method-assign]


SETTINGS = [
    "max_epochs", "max_steps", "validate_every", "patience", "patience_from", "save_every", "log_every", "keep_last",
    "skip_nonfinite", "accumulate",
]  # fmt: skip
CHANGES: dict[str, Callable[[nn.Trainer], Any]] = {
    **{name: lambda t, name=name: setattr(t, name, 7) for name in SETTINGS},
    "the weights": diverge,
    "the arrays": lambda t: t.model.weight.data.fill(1.0),
    "the model": lambda t: setattr(t, "model", nn.Sequential(t.model)),
    "optimizer": lambda t: t.optimizer.param_groups[0].update(weight_decay=0.5),
    "training data": lambda t: setattr(t, "train", nn.Batches(X, Y, batch_size=5)),
    "batch": lambda t: setattr(t.train, "batches", lambda epoch: iter([(X[:4] + epoch, Y[:4])])),
}


@pytest.mark.parametrize("name", CHANGES)
def test_ranks_that_do_not_agree_end_with_an_error(tmp_path: Path, name: str) -> None:
    def fit(rank: int) -> nn.Trainer:
        t = made(tmp_path, "function", parallel=partial(Rank, job, rank))
        if rank:
            CHANGES[name](t)
        t.fit()
        return t

    job = Job(2)
    for error in job.run(fit):
        with pytest.raises(
            ValueError, match=f"'{name}'.* must be the same|{name} of rank [01] dif"
        ):
            raise error
