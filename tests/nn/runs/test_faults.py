"""Faults of a run: files, disks, values, other runs. Each raises one clear error or is repaired."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_equal
from support.damage import write_state
from support.environment import needs
from support.runs import SumOfRows, assert_same_run, at_step, trainer, weights

import minigrad as mg
import nn
from minigrad import Tensor, optim
from minigrad.io import load_arrays, save_arrays


class Scaled(nn.Module):
    """A model with a parameter without axes, and running statistics."""

    def __init__(self, batch_norm: bool = True) -> None:
        self.scale = nn.Parameter(np.array(0.5))
        self.norm = nn.BatchNorm1d(2, dtype=float) if batch_norm else nn.LayerNorm(2, dtype=float)
        self.linear = nn.Linear(2, 1, dtype=float)

    def loss(self, x: Any, y: Any) -> Tensor:
        return ((self.linear(self.norm(x)) * self.scale - y) ** 2).mean()


def sgd(model: nn.Module, **options: Any) -> optim.SGD:
    return optim.SGD(model.parameters(), **{"lr": 0.1, "clip_norm": 1.0, **options})


ROWS = np.random.default_rng(0).standard_normal((16, 2))
BATCHES = [(ROWS[i : i + 4], ROWS[i : i + 4, :1]) for i in range(0, 16, 4)]


def scaled_trainer(
    run_dir: Any = None,
    batches: Any = BATCHES,
    optimizer: Callable[[Any], optim.Optimizer] = sgd,
    **options: Any,
) -> nn.Trainer:
    """Return a trainer of 3 epochs of 4 batches."""
    mg.manual_seed(0)
    model = Scaled(batch_norm=options.get("parallel", 1) == 1)
    settings = {"max_epochs": 3, "progress": False, **options}
    return nn.Trainer(model, optimizer(model), batches, run_dir=run_dir, **settings)


# -- states ------------------------------------------------------------------------------------------


def test_resume_with_parameter_without_axes_is_exact(tmp_path: Path) -> None:
    whole = scaled_trainer(tmp_path / "whole")
    whole.fit()
    scaled_trainer(tmp_path / "cut", max_epochs=2).fit()
    again = scaled_trainer(tmp_path / "cut")
    again.fit(resume=True)
    assert_same_run(whole, again)


def edit_state(run_dir: Path, **changes: Any) -> None:
    """Change entries of the last state, and leave out its checksum."""
    arrays, metadata = load_arrays(run_dir / "last.safetensors")
    state = metadata["trainer"]
    settings = {**state["settings"], **changes.pop("settings", {})}
    write_state(run_dir, arrays, {**state, **changes, "settings": settings})


def test_resume_from_state_between_epochs_begins_next_epoch(tmp_path: Path) -> None:
    """The state was saved after the last step of an epoch, before its end."""
    whole = scaled_trainer()
    whole.fit()
    scaled_trainer(tmp_path, max_steps=4).fit()
    edit_state(tmp_path, batch=4, epoch=0, validated=-1)
    again = scaled_trainer(tmp_path)
    again.fit(resume=True)
    assert_equal(weights(again), weights(whole))


@pytest.mark.filterwarnings("ignore:.*training data differ")
def test_resume_past_end_of_epoch_raises(tmp_path: Path) -> None:
    scaled_trainer(tmp_path, max_steps=3).fit()
    with pytest.raises(ValueError, match="epoch 0 must have at least 3 batches, as when"):
        scaled_trainer(tmp_path, BATCHES[:2]).fit(resume=True)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"step": "12"}, 'step must be an integer, got "12"'),
        ({"optimizer": [1]}, "optimizer does not fit this run"),
        ({"random": 5}, "random does not fit this run"),
        ({"settings": {"accumulate": 3}}, "accumulate must be 3, as the run began with, got 1"),
        ({"format": 0}, "format must be 1, got 0; the state was written by another version"),
    ],
)
def test_resume_from_other_state_raises(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    scaled_trainer(tmp_path).fit()
    edit_state(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"^{tmp_path}/last.safetensors: {message}"):
        scaled_trainer(tmp_path, max_epochs=5).fit(resume=True)


@pytest.mark.parametrize(
    "counts", [(1, 0), (0, 1), (2, 1), ([0, 0], [0, 1]), ([0, 1], [0, 0]), ([0, 1, 0], [0, 1, 1])]
)
def test_resume_with_other_random_generators_raises(tmp_path: Path, counts: Any) -> None:
    """Draw a number for two modules from a generator that they share, or from one of each."""

    def made(seeds: Any) -> nn.Trainer:
        own = [np.random.default_rng(0) for _ in range(2)]
        seeds = [0] * seeds if isinstance(seeds, int) else seeds
        parts = [nn.Dropout(0.5, generator=own[i]) for i in seeds]
        model = nn.Sequential(nn.Linear(2, 1, dtype=float), *parts)
        objective = lambda model, batch: model(batch[0]).mean()
        return nn.Trainer(model, sgd(model), BATCHES, objective=objective, max_steps=1, run_dir=tmp_path, progress=False)  # fmt: skip

    first = made(counts[0])
    first.fit()
    with pytest.raises(ValueError, match="last.safetensors: generators does not fit this run"):
        made(counts[1]).resume()
    again = made(counts[0])
    again.resume()
    assert first.state.plain_data()["generators"] == again.state.plain_data()["generators"]


@pytest.mark.parametrize(
    "weight, message",
    [
        ([[1.0, np.nan]], "1 of its 2 values are NaN or infinite"),
        ([[1, 2]], "linear.weight must be float64, got int64"),
        ([1.0, 2.0], "misshaped: linear.weight"),
    ],
)
def test_resume_with_invalid_weight_raises(tmp_path: Path, weight: Any, message: str) -> None:
    scaled_trainer(tmp_path, max_epochs=1).fit()
    path, t = tmp_path / "last.safetensors", scaled_trainer(tmp_path)
    arrays, metadata = load_arrays(path)
    save_arrays(path, {**arrays, "model.linear.weight": np.array(weight)}, metadata)
    before = weights(t)
    with pytest.raises(ValueError, match=f"^{path}: .*{message}"):
        t.fit(resume=True)
    assert_equal(weights(t), before)


def mean_error(model: Any, batch: Any, weight: float = 1.0) -> Tensor:
    return model.loss(*batch) * weight


def half_error(model: Any, batch: Any, weight: float = 1.0) -> Tensor:
    return model.loss(*batch) / 2 * weight


class Doubled(nn.ModelLoss):
    def total(self, model: Any, batch: Any) -> Tensor:
        return super().total(model, batch) * 2


def weighted(weight: float) -> Any:
    return lambda model, batch: mean_error(model, batch) * weight


OBJECTIVES: list[Callable[[], Any]] = [
    lambda: None,
    lambda: mean_error,
    lambda: half_error,
    lambda: functools.partial(mean_error, weight=2.0),
    lambda: functools.partial(mean_error, weight=3.0),
    lambda: weighted(2.0),
    lambda: weighted(3.0),
    lambda: Doubled(),
]


def test_resume_with_another_objective_warns(tmp_path: Path) -> None:
    for i, made in enumerate(OBJECTIVES):
        run_dir = tmp_path / str(i)
        scaled_trainer(run_dir, objective=made(), max_epochs=1).fit()
        scaled_trainer(run_dir, objective=made(), max_epochs=1).fit(resume=True)
        other = OBJECTIVES[i - 1]()
        with pytest.warns(UserWarning, match="last.safetensors: losses differ from those the run"):
            scaled_trainer(run_dir, objective=other, max_epochs=2).fit(resume=True)
        scaled_trainer(run_dir, objective=other, max_epochs=2).fit(resume=True)


def test_resume_with_another_schedule_takes_its_rates(tmp_path: Path) -> None:
    longer, shorter = optim.cosine_schedule(16, 2), optim.cosine_schedule(8, 2)
    scaled_trainer(tmp_path / "a", schedule=shorter, max_epochs=2).fit()
    made = lambda path: scaled_trainer(tmp_path / path, schedule=longer, max_epochs=4, save_every=1)
    t = made("a")
    message = "learning rates differ from those the run began with"
    with pytest.warns(UserWarning, match=message):
        t.resume()
    assert t.lr == pytest.approx(0.1 * longer(9)) and t.step == 8
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    t.fit()
    cut = made("b")
    at_step(cut, 11, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.warns(UserWarning, match=message), pytest.raises(KeyboardInterrupt):
        cut.fit(resume=True)
    again = made("b")
    again.fit(resume=True)
    assert_same_run(t, again)


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Ignore warnings that come before an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "none": lambda optimizer: None,
    "function": lambda optimizer: optim.cosine_schedule(20, 2),
    "milestones": lambda optimizer: optim.MultiStepLR(optimizer, [2, 4]),
    "cosine": lambda optimizer: optim.CosineAnnealingLR(optimizer, 7),
    "plateau": lambda optimizer: optim.ReduceLROnPlateau(optimizer, patience=0),
}


@pytest.mark.parametrize("began", SCHEDULES)
def test_resume_with_every_other_kind_of_schedule_warns_or_raises(
    tmp_path: Path, began: str
) -> None:
    def made(kind: str) -> nn.Trainer:
        model = Scaled()
        optimizer = sgd(model)
        schedule = SCHEDULES[kind](optimizer)
        return nn.Trainer(model, optimizer, BATCHES, valid=BATCHES, schedule=schedule, max_steps=2, run_dir=tmp_path, progress=False)  # fmt: skip

    of_steps = {"function", "milestones", "cosine"}
    made(began).fit()
    for kind in SCHEDULES:
        if kind == began:
            assert made(kind).resume()
        elif {kind, began} <= of_steps or (began, kind) == ("plateau", "none"):
            with pytest.warns(UserWarning, match="learning rates differ from those the run began"):
                assert made(kind).resume()
        else:
            with (
                pytest.raises(ValueError, match="last.safetensors: schedule "),
                suppress_warnings(),
            ):
                made(kind).resume()


def test_resume_with_another_kind_of_score_raises(tmp_path: Path) -> None:
    scaled_trainer(tmp_path, valid=BATCHES, max_epochs=1).fit()
    with pytest.raises(ValueError, match="score must be False, as the run began with, got True"):
        scaled_trainer(tmp_path, valid=BATCHES, score=lambda m: 1.0).fit(resume=True)


# -- two runs ----------------------------------------------------------------------------------------


def test_fit_in_directory_of_another_run_raises(tmp_path: Path) -> None:
    first = scaled_trainer(tmp_path, max_epochs=1)
    first.fit()
    (tmp_path / "copy").hardlink_to(tmp_path / "metrics.jsonl")
    before = (tmp_path / "copy").read_bytes()
    first.max_epochs = 2
    first.fit()  # the same run goes on
    assert first.step == 8 and (tmp_path / "copy").read_bytes() == before
    with pytest.raises(FileExistsError, match=r"holds a run already; fit\(resume=True\) goes on"):
        scaled_trainer(tmp_path).fit()


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "best.safetensors", "weights-0000004.safetensors"]
)
def test_fit_in_directory_with_file_of_earlier_run_raises(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(FileExistsError, match=f"{name} of an earlier run"):
        scaled_trainer(tmp_path).fit()
    assert (tmp_path / name).read_text() == "precious"


def test_resume_with_other_facts_raises(tmp_path: Path) -> None:
    made = lambda letters: scaled_trainer(nn.RunDirectory(tmp_path, letters=letters), max_epochs=1)
    made("abc").fit()
    with pytest.raises(ValueError, match=f"^{tmp_path}/last.safetensors: letters must be"):
        made("abd").fit(resume=True)
    made("abc").fit(resume=True)  # it is not locked


def test_fit_while_another_run_is_at_work_raises(tmp_path: Path) -> None:
    message = f"another run is at work in this directory; .*{tmp_path}"
    with nn.RunDirectory(tmp_path), pytest.raises(BlockingIOError, match=message):
        scaled_trainer(tmp_path).fit(resume=True)


@pytest.mark.skipif(not hasattr(os, "link"), reason="needs hard links")
def test_copy_of_a_run_by_links_shares_nothing(tmp_path: Path) -> None:
    """Copy as `cp -al` does, before, while and after the first run is at work."""
    first = tmp_path / "first"
    scaled_trainer(first, max_epochs=1).fit()
    with nn.RunDirectory(first):
        shutil.copytree(first, tmp_path / "while", copy_function=os.link)
        for _ in range(2):
            with pytest.raises(BlockingIOError, match="another run is at work in this directory"):
                scaled_trainer(first).fit(resume=True)
        before = (first / "metrics.jsonl").read_bytes()
        scaled_trainer(tmp_path / "while", max_epochs=2).fit(resume=True)
        with nn.RunDirectory(tmp_path / "while"):
            with pytest.raises(BlockingIOError, match="another run is at work in this directory"):
                scaled_trainer(first).fit(resume=True)
    shutil.copytree(first, tmp_path / "after", copy_function=os.link)
    with nn.RunDirectory(first), nn.RunDirectory(tmp_path / "after"):
        pass
    assert (first / "metrics.jsonl").read_bytes() == before
    with nn.RunDirectory(tmp_path / "after"):
        scaled_trainer(first, max_epochs=2).fit(resume=True)


def test_run_directory_lock_is_not_held_by_forked_processes(tmp_path: Path) -> None:
    with nn.RunDirectory(tmp_path):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)  # until the test is over
            os._exit(0)
        os.close(read)
    with nn.RunDirectory(tmp_path):  # although a fork of the first run is still there
        os.close(write)
        os.waitpid(child, 0)


def test_run_directory_with_link_as_lock_raises(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    os.symlink(tmp_path / "victim", tmp_path / f".run-{tmp_path.stat().st_ino}.lock")
    with pytest.raises(OSError, match=".lock"):
        scaled_trainer(tmp_path).fit()


def test_fit_removes_unfinished_files_of_killed_run(tmp_path: Path) -> None:
    (tmp_path / ".last.safetensors.0123456789ab.part").write_text("half")
    scaled_trainer(tmp_path, max_epochs=1).fit()
    names = {"best.safetensors", "last.safetensors", "metrics.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == names


# -- disks ---------------------------------------------------------------------------------------------


def test_fit_on_full_disk_keeps_last_state(tmp_path: Path) -> None:
    resource = needs("resource")
    t = scaled_trainer(tmp_path, save_every=2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    at_step(t, 5, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard)))
    try:
        with pytest.raises(OSError, match="last.safetensors|metrics.jsonl"):
            t.fit()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert load_arrays(tmp_path / "last.safetensors")[1]["trainer"]["step"] == 4


def test_fit_in_removed_directory_raises(tmp_path: Path) -> None:
    t = scaled_trainer(tmp_path / "run", save_every=2)
    at_step(t, 5, lambda: shutil.rmtree(tmp_path / "run"))
    with pytest.raises(FileNotFoundError, match="removed or replaced in mid-run: '.*run'"):
        t.fit()
    assert not (tmp_path / "run").exists()


def test_fit_of_one_seed_writes_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        trainer(tmp_path / name, max_epochs=1, keep_last=1).fit()
    files = [path for path in (tmp_path / "a").iterdir() if path.suffix == ".safetensors"]
    assert len(files) == 3
    for path in files:
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_resume_deletes_only_checkpoints_of_runs(tmp_path: Path) -> None:
    names = [
        "weights-mine.safetensors",
        "weights-0000002.safetensors.bak",
        "weights-2.safetensors",
        ".notes.txt.0123456789ab.part",
        ".last.safetensors.copy.part",
    ]
    scaled_trainer(tmp_path, max_steps=2, keep_last=3).fit()
    for name in (*names, "weights-0000003.safetensors"):  # the last one is of a later step
        (tmp_path / name).write_text("mine")
    assert scaled_trainer(tmp_path, max_steps=2).resume()
    assert [path.name for path in nn.RunDirectory(tmp_path).checkpoints()] == [
        "weights-0000002.safetensors"
    ]
    assert all((tmp_path / name).read_text() == "mine" for name in names)


def test_run_that_cannot_add_a_line_names_its_metrics(tmp_path: Path) -> None:
    run = nn.RunDirectory(tmp_path)
    run.metrics.mkdir()
    with pytest.raises(OSError, match=f"'{run.metrics}'$"):
        run.log({"step": 1})


def test_fit_with_a_score_that_is_not_finite_raises(tmp_path: Path) -> None:
    t = scaled_trainer(tmp_path, score=lambda model: float("nan"), validate_every=1)
    with pytest.raises(FloatingPointError, match="step 1: the score is nan"):
        t.fit()


def test_save_checkpoint_keeps_last_ones_up_to_its_step(tmp_path: Path) -> None:
    run = nn.RunDirectory(tmp_path)
    for step in (9_999_999, 10_000_000, 10_000_001, 3, 4, 5):
        run.save_checkpoint(Scaled(), step, 2)
    kept = [f"weights-{step}.safetensors" for step in ("0000004", "0000005", 10**7, 10**7 + 1)]
    assert [path.name for path in run.checkpoints()] == kept


@pytest.mark.parametrize("line", [b"\xff\xfe{\n", b'{"step": "x"}\n'])
def test_resume_with_broken_line_of_metrics_keeps_copy(tmp_path: Path, line: bytes) -> None:
    t, again = (scaled_trainer(tmp_path, log_every=1) for _ in range(2))
    t.fit()
    metrics = tmp_path / "metrics.jsonl"
    first, _, *rest = metrics.read_bytes().splitlines(keepends=True)
    damaged = b"".join([first, line, *rest])
    metrics.write_bytes(damaged)
    with pytest.warns(UserWarning, match="metrics.jsonl: 1 line cannot be read"):
        again.fit(resume=True)
    assert again.history == t.history[:1] + t.history[2:]
    assert metrics.read_bytes() == b"".join([first, *rest])
    metrics.write_bytes(first + line)
    (tmp_path / "metrics-damaged-2.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="metrics.jsonl: 1 line cannot be read"):
        scaled_trainer(tmp_path, log_every=1).resume()
    copies = [(tmp_path / f"metrics-damaged-{i}.jsonl").read_bytes() for i in (1, 3)]
    assert copies == [damaged, first + line] and not (tmp_path / "elsewhere").exists()


def test_resume_leaves_out_entries_behind_the_last_state(tmp_path: Path) -> None:
    """Take the steps of these entries again."""
    t = scaled_trainer(tmp_path, max_steps=4, log_every=1)
    t.fit()
    metrics = tmp_path / "metrics.jsonl"
    before = metrics.read_bytes()
    metrics.write_bytes(before + before.splitlines(keepends=True)[0])
    again = scaled_trainer(tmp_path, max_steps=4, log_every=1)
    assert again.resume() and again.history == t.history and metrics.read_bytes() == before


# -- values that are not finite ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gradient_only, accumulate, parallel, clip_norm",
    [(True, 1, 1, None), (True, 2, 2, 1.0), (False, 1, 2, None), (False, 2, 1, 1.0)],
)
def test_fit_with_nonfinite_step_raises_or_skips_it(
    tmp_path: Path, gradient_only: bool, accumulate: int, parallel: int, clip_norm: float | None
) -> None:
    """Check that the second of two steps changes neither parameters nor buffers."""

    def loss(model: Any, batch: Any) -> Tensor:
        x, y = batch
        zero = (model.scale * 0.0).sum()
        wrong = mg.sqrt(zero) if gradient_only else zero + np.nan  # sqrt has no gradient at 0
        return model.loss(x, y) + (wrong if y.min() > 50 else zero)

    def made(run_dir: Path | None = None, **options: Any) -> nn.Trainer:
        good = BATCHES[:1] * (2 * accumulate - 1)
        settings = {
            "accumulate": accumulate,
            "parallel": parallel,
            "shuffle": False,
            "save_every": 1,
        }
        return scaled_trainer(
            run_dir,
            [*good, (ROWS[:4], ROWS[:4, :1] + 100)],
            lambda model: sgd(model, clip_norm=clip_norm),
            objective=SumOfRows(loss),
            **settings,
            **options,
        )

    plain = made(max_steps=1)
    plain.fit()
    skipping = made(max_epochs=1, skip_nonfinite=1)
    skipping.fit()
    assert (skipping.skipped, skipping.step) == (1, 2)
    assert_equal(weights(skipping), weights(plain))
    failing = made(tmp_path)
    kind = "gradient" if gradient_only else "the loss is nan"
    with pytest.raises(FloatingPointError, match=f"step 2: .*{kind}"):
        failing.fit()
    saved, _ = load_arrays(tmp_path / "last.safetensors")
    for trained in (weights(failing), {name: saved[f"model.{name}"] for name in weights(plain)}):
        assert_equal(trained, weights(plain))


@pytest.mark.parametrize("error", [OverflowError, ZeroDivisionError, FloatingPointError])
def test_fit_skips_no_other_errors_than_values_that_are_not_finite(error: Any) -> None:
    t = scaled_trainer(skip_nonfinite=1, max_steps=2)
    steps = iter([error("odd"), 1.0])

    def step() -> float:
        result: Any = next(steps)
        if isinstance(result, Exception):
            raise result
        return float(result)

    t.parallel.step = step
    if error is FloatingPointError:
        t.fit()
        assert (t.step, t.skipped) == (2, 1)
    else:
        with pytest.raises(error, match="^step 1: odd$"):
            t.fit()


def test_fit_skips_a_step_and_restores_buffers_that_are_not_saved() -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        model.seen += batch[0].sum()
        return model.loss(*batch) + (np.nan if batch[1].min() > 50 else 0.0)

    batches = [BATCHES[0], (ROWS[:4], ROWS[:4, :1] + 100)]
    options: Any = {"skip_nonfinite": 1, "shuffle": False, "max_epochs": 1}
    t = scaled_trainer(None, batches, objective=loss, **options)
    t.model.register_buffer("seen", np.zeros(()), persistent=False)
    t.fit()
    assert t.skipped == 1 and t.model.seen == BATCHES[0][0].sum()


# -- what a resumed run must have in common with the one that was cut off ------------------------


@pytest.mark.parametrize(
    "optimizer, message",
    [
        (lambda m: sgd(m, lr=0.2), r"lr\[0\] must be 0.1, as the run began with, got 0.2"),
        (lambda m: sgd(m, clip_norm=None), "clip_norm must be 1.0, as the run began with, got N"),
        (
            lambda m: optim.SGD([*m.parameters()][::-1], lr=0.1, clip_norm=1.0),
            r"parameters\[0\] must be 'scale \(\)', .* got 'linear.bias",
        ),
        (
            lambda m: optim.SGD([*m.parameters()][:-1], lr=0.1, clip_norm=1.0),
            r"parameters\[4\] must be 'linear.bias \(1,\)', as the run began with, got None",
        ),
    ],
    ids=["rate", "clipping", "order of parameters", "one parameter less"],
)
def test_resume_with_other_optimizer_raises(tmp_path: Path, optimizer: Any, message: str) -> None:
    scaled_trainer(tmp_path, max_epochs=1).fit()
    with pytest.raises(ValueError, match=f"^{tmp_path}/last.safetensors: {message}"):
        scaled_trainer(tmp_path, optimizer=optimizer).fit(resume=True)


def test_resume_with_groups_of_parameters_is_exact(tmp_path: Path) -> None:
    """Give each group a rate and options of its own, which a resumed run may not change."""

    def made(path: str, rates: Any = (0.05, 0.2), **options: Any) -> nn.Trainer:
        def optimizer(model: Any) -> optim.SGD:
            groups = [[model.scale], [*model.norm.parameters(), *model.linear.parameters()]]
            momenta = (0.5, 0.9)
            return optim.SGD([{"params": p, "lr": lr, "momentum": m} for p, lr, m in zip(groups, rates, momenta)])  # fmt: skip

        return scaled_trainer(tmp_path / path, optimizer=optimizer, **options)

    whole = made("whole", valid=BATCHES, max_epochs=2)
    whole.fit()
    made("cut", valid=BATCHES, max_epochs=1).fit()
    again = made("cut", valid=BATCHES, max_epochs=2)
    again.fit(resume=True)
    assert_same_run(whole, again)
    for rates in ((0.05, 0.3), (0.04, 0.2)):
        with pytest.raises(ValueError, match=r"lr\[[01]\] must be 0.\d+, as the run began with"):
            made("cut", rates, valid=BATCHES).resume()


def test_resume_with_clipping_that_the_run_did_not_have_raises(tmp_path: Path) -> None:
    made = lambda limit: scaled_trainer(tmp_path, max_steps=1, optimizer=lambda m: sgd(m, clip_norm=limit))  # fmt: skip
    made(None).fit()
    with pytest.raises(ValueError, match="clip_norm must be None, as the run began with, got 1.0"):
        made(1.0).resume()
    assert made(None).resume()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (optim.SGD, {"momentum": 0.5, "dampening": 0.1, "weight_decay": 0.1, "nesterov": True}),
        (optim.Adam, {"betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1, "amsgrad": True}),
    ],
)
def test_resume_with_another_option_of_the_optimizer_raises(
    tmp_path: Path, kind: Any, options: dict[str, Any]
) -> None:
    made = lambda more: scaled_trainer(
        tmp_path, max_epochs=1, optimizer=lambda m: kind(m.parameters(), lr=0.1, **more)
    )
    common = {"momentum": 0.9} if kind is optim.SGD else {}
    made(common).fit()
    for name, value in options.items():
        with pytest.raises(ValueError, match=rf"^{tmp_path}/last.*: optimizer\[0\] must be {{"):
            made(common | {name: value}).resume()
    assert made(common).resume()


def test_fit_after_resume_and_new_learning_rate_uses_it(tmp_path: Path) -> None:
    scaled_trainer(tmp_path, max_epochs=1).fit()
    t = scaled_trainer(tmp_path, max_epochs=2)
    assert t.resume()
    t.optimizer.param_groups[0]["lr"] = 0.03
    t.fit()
    assert t.lr == 0.03 and t.epoch == 2
    scaled_trainer(tmp_path).fit(resume=True)


@pytest.mark.parametrize("changes", [{"seed": 1}, {"shuffle": False}, {"rows": ROWS + 1e-9}])
def test_resume_with_other_batches_warns(tmp_path: Path, changes: dict[str, Any]) -> None:
    def made(rows: np.ndarray = ROWS, **options: Any) -> nn.Batches:
        return nn.Batches(rows, ROWS[:, :1], batch_size=4, **options)

    scaled_trainer(tmp_path, made(), valid=made(), max_epochs=1).fit()
    scaled_trainer(tmp_path, made(), valid=made()).resume()  # no warning
    with pytest.warns(UserWarning, match="training data differ from those the run"):
        scaled_trainer(tmp_path, made(**changes), valid=made()).resume()
    with pytest.warns(UserWarning, match="validation data differ from those the run"):
        scaled_trainer(tmp_path, made(), valid=made(**changes)).resume()


# -- values of the user's own --------------------------------------------------------------------


def test_on_validation_values_are_logged_as_plain_json(tmp_path: Path) -> None:
    values = {"number": np.float32(0.5), "nested": {"a": (np.int64(1), None, "x", float("nan"))}}
    expected = {"number": 0.5, "nested": {"a": [1, None, "x", None]}}
    seen: list[set[str]] = []

    def report(trainer: nn.Trainer, entry: dict[str, Any]) -> dict[str, Any] | None:
        seen.append({*entry})
        return values if trainer.step > 4 else None

    t = scaled_trainer(tmp_path, valid=BATCHES, on_validation=report, max_epochs=2)
    t.fit()
    assert seen == [{"step", "epoch", "valid_loss"}] * 2
    last = (tmp_path / "metrics.jsonl").read_text().splitlines()[-1]
    assert expected.items() <= json.loads(last).items() and json.loads(last) == t.history[-1]
    assert expected.items() <= nn.load_weights(tmp_path / "best.safetensors", t.model).items()


@pytest.mark.parametrize(
    "values, message",
    [
        ({"deep": [{"a": {1, 2}}]}, "'deep' .* got set"),
        ({3: 1.0}, "names must be strings .* got 3"),
        ({"seconds": 7}, "names must be strings other than .* got 'seconds'"),
        ({"step": 7}, "names must be strings other than .*'valid_loss'.* got 'step'"),
        ([1], "a dict or None, got list"),
        (
            {"deep": functools.reduce(lambda inner, _: [inner], range(100_000), 1)},
            "'deep' must contain numbers",
        ),
    ],
    ids=range(6),
)
def test_on_validation_with_invalid_value_raises(tmp_path: Path, values: Any, message: str) -> None:
    t = scaled_trainer(tmp_path, valid=BATCHES, on_validation=lambda t, entry: values)
    with pytest.raises((TypeError, ValueError), match=f"on_validation.*{message}"):
        t.fit()
    assert not (tmp_path / "best.safetensors").exists()
