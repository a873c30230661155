"""Faults of a run: files, disks, values, other runs. Each raises one clear error or is repaired."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import write_state
from numpy.testing import assert_equal
from runs import assert_same_run, at_step, trainer, weights
from scripts import started

import minigrad as mg
import nn
from minigrad import Tensor, optim
from minigrad.console import run_script
from minigrad.io import load_arrays, save_arrays


class Scaled(nn.Module):
    """A model with a parameter without axes."""

    def __init__(self) -> None:
        self.scale = nn.Parameter(np.array(0.5))
        self.linear = nn.Linear(2, 1, dtype=float)

    def loss(self, x: Any, y: Any) -> Tensor:
        return ((self.linear(x) * self.scale - y) ** 2).mean()


def sgd(model: nn.Module, **options: Any) -> optim.SGD:
    return optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def scaled_trainer(
    run_dir: Any = None,
    batches: Any = None,
    model: Callable[[], nn.Module] = Scaled,
    optimizer: Callable[[Any], optim.Optimizer] = sgd,
    **options: Any,
) -> nn.Trainer:
    """Return a trainer of 3 epochs of 4 batches; `model` and `optimizer` make its parts."""
    mg.manual_seed(0)
    rng, made = np.random.default_rng(0), model()
    data = [(rng.standard_normal((3, 2)), rng.standard_normal((3, 1))) for _ in range(4)]
    settings = {"max_epochs": 3, "progress": False, **options}
    data = data if batches is None else batches
    return nn.Trainer(made, optimizer(made), data, run_dir=run_dir, **settings)


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
    write_state(run_dir, arrays, {**metadata["trainer"], **changes})


def test_resume_from_state_between_epochs_begins_next_epoch(tmp_path: Path) -> None:
    """The state was saved after the last step of an epoch, before its end."""
    whole = scaled_trainer()
    whole.fit()
    scaled_trainer(tmp_path, max_steps=4).fit()
    edit_state(tmp_path, batch=4, epoch=0, validated=-1)
    again = scaled_trainer(tmp_path)
    again.fit(resume=True)
    assert again.step == 12
    assert_equal(weights(again), weights(whole))


ROWS = np.arange(24.0).reshape(12, 2) / 10
ONE_ROW = (ROWS[:1], ROWS[:1, :1])


@pytest.mark.parametrize(
    "batches",
    [
        lambda n: [ONE_ROW] * n,
        lambda n: lambda epoch: iter([ONE_ROW] * n),
        lambda n: nn.Batches(ROWS[:n], ROWS[:n, :1], batch_size=1, shuffle=False),
    ],
    ids=["list", "function", "Batches"],
)
@pytest.mark.filterwarnings("ignore:.*training data differ")
def test_resume_past_end_of_epoch_raises(tmp_path: Path, batches: Callable[[int], Any]) -> None:
    scaled_trainer(tmp_path, batches(6), max_steps=5).fit()
    shorter = scaled_trainer(tmp_path, batches(3), max_steps=20)
    with pytest.raises(ValueError, match="epoch 0 must have at least 5 batches, as when"):
        shorter.fit(resume=True)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"step": "12"}, 'step must be an integer, got "12"'),
        ({"best": float("nan")}, "best must be a number or null, got NaN"),
        ({"optimizer": [1]}, "optimizer does not fit this run"),
        ({"generators": None}, "generators does not fit this run"),
        ({"random": 5}, "random does not fit this run"),
        ({"settings": {"accumulate": 3}}, "accumulate must be 3, as the run began with, got 1"),
        ({"settings": {"schedule": [3]}}, "schedule must be .3., as the run began with, got None"),
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


# -- two runs ----------------------------------------------------------------------------------------


def test_fit_in_directory_of_another_run_raises(tmp_path: Path) -> None:
    first = scaled_trainer(tmp_path, max_epochs=1)
    first.fit()
    first.max_epochs = 2
    first.fit()  # the same run goes on
    assert first.step == 8
    message = r"holds a run already; fit\(resume=True\) goes on with it"
    with pytest.raises(FileExistsError, match=message):
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
    made("abc").fit(resume=True)
    for _ in range(2):  # it is not locked afterwards
        with pytest.raises(ValueError, match=f"^{tmp_path}/last.safetensors: letters must be"):
            made("abd").fit(resume=True)


IN_USE = "another run is at work in this directory"


def test_fit_while_another_process_runs_raises_until_it_dies(tmp_path: Path) -> None:
    with nn.RunDirectory(tmp_path), pytest.raises(BlockingIOError, match=IN_USE):
        scaled_trainer(tmp_path).fit()
    code = f"import nn, time\nwith nn.RunDirectory({str(tmp_path)!r}):\n    print('locked', flush=True)\n    time.sleep(60)"
    with started([sys.executable, "-c", code]) as process:
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        with pytest.raises(BlockingIOError, match=IN_USE) as error:
            scaled_trainer(tmp_path).fit(resume=True)
        assert error.value.filename == str(tmp_path)
        process.kill()
        process.wait()
        scaled_trainer(tmp_path).fit(resume=True)


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
    os.symlink(tmp_path / "victim", tmp_path / ".lock")
    with pytest.raises(OSError, match=".lock"):
        scaled_trainer(tmp_path).fit()


def test_fit_removes_unfinished_files_of_killed_run(tmp_path: Path) -> None:
    (tmp_path / ".last.safetensors.0123456789ab.part").write_text("half")
    scaled_trainer(tmp_path, max_epochs=1).fit()
    names = {".lock", "best.safetensors", "last.safetensors", "metrics.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == names


# -- disks ---------------------------------------------------------------------------------------------


def test_fit_on_full_disk_keeps_last_state(tmp_path: Path) -> None:
    t = scaled_trainer(tmp_path, save_every=2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    at_step(t, 5, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard)))
    try:
        with pytest.raises(OSError, match="last.safetensors|metrics.jsonl"):
            t.fit()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert load_arrays(tmp_path / "last.safetensors")[1]["trainer"]["step"] == 4


@contextmanager
def no_superuser() -> Iterator[None]:
    """Run the block as another user than the superuser."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """Yield a directory that other users can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def test_fit_with_lock_of_another_user_raises(
    open_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lock that cannot be opened is an error; one that can be opened is respected."""
    lock = open_path / ".lock"
    with nn.RunDirectory(open_path):
        lock.chmod(0)
        with no_superuser():
            assert run_script(scaled_trainer(open_path).fit) == 1
        assert capsys.readouterr().err == f"error: {lock}: Permission denied\n"
        lock.chmod(0o666)
        with no_superuser(), pytest.raises(BlockingIOError, match=IN_USE):
            scaled_trainer(open_path).fit()
    with no_superuser():
        scaled_trainer(open_path).fit()


def test_fit_in_removed_directory_raises(tmp_path: Path) -> None:
    t = scaled_trainer(tmp_path / "run", save_every=2)
    at_step(t, 5, lambda: shutil.rmtree(tmp_path / "run"))
    with pytest.raises(FileNotFoundError, match="removed or replaced in mid-run: '.*run'"):
        t.fit()
    assert not (tmp_path / "run").exists()


# -- values that are not finite ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weight, message",
    [
        ([[1.0, np.nan]], "1 of its 2 values are NaN or infinite"),
        ([[1, 2]], "linear.weight must be float64, got int64"),
        ([1.0, 2.0], r"misshaped: linear.weight must have shape \(1, 2\), got \(2,\)"),
    ],
)
def test_resume_with_invalid_weight_raises(tmp_path: Path, weight: Any, message: str) -> None:
    scaled_trainer(tmp_path, max_epochs=1).fit()
    path = tmp_path / "last.safetensors"
    arrays, metadata = load_arrays(path)
    save_arrays(path, {**arrays, "model.linear.weight": np.array(weight)}, metadata)
    t = scaled_trainer(tmp_path)
    before = weights(t)
    with pytest.raises(ValueError, match=f"^{path}: .*{message}"):
        t.fit(resume=True)
    assert_equal(weights(t), before)


class Normed(Scaled):
    """A model with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2, dtype=float)

    def loss(self, x: Any, y: Any) -> Tensor:
        return super().loss(self.norm(x), y)


class NonfiniteLoss:
    """A loss that is NaN for one batch, or finite with a gradient of NaN."""

    def __init__(self, number: int, gradient_only: bool) -> None:
        self.number, self.gradient_only, self.batches = number, gradient_only, 0

    def __call__(self, model: Any, batch: Any) -> Tensor:
        loss, zero = model.loss(*batch), (model.scale * 0.0).sum()
        self.batches += 1
        if self.batches == self.number:
            loss = loss + (mg.sqrt(zero) if self.gradient_only else zero + np.nan)
        return loss


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("clip_norm", [None, 1.0])
@pytest.mark.parametrize("gradient_only", [True, False], ids=["gradient", "loss"])
def test_fit_with_nonfinite_step_raises_or_skips_it(
    tmp_path: Path, accumulate: int, parallel: int, clip_norm: float | None, gradient_only: bool
) -> None:
    """The second of three steps changes neither parameters nor buffers."""

    def made(number: int, batches: list[Any], **options: Any) -> nn.Trainer:
        return scaled_trainer(
            batches=batches,
            model=Normed,
            optimizer=lambda model: sgd(model, clip_norm=clip_norm),
            objective=NonfiniteLoss(number, gradient_only),
            accumulate=accumulate,
            parallel=parallel,
            shuffle=False,
            max_epochs=1,
            **options,
        )

    batches = [(ROWS[i : i + 4], ROWS[i : i + 4, :1]) for i in range(3 * accumulate)]
    plain = made(0, batches[:accumulate] + batches[2 * accumulate :])
    plain.fit()
    skipping = made(2 * accumulate, batches, skip_nonfinite=1)
    skipping.fit()
    assert (skipping.skipped, skipping.step, skipping.history[-1]["skipped"]) == (1, 3, 1)
    assert_equal(weights(skipping), weights(plain))
    failing = made(2 * accumulate, batches, run_dir=tmp_path, save_every=1)
    kind = "gradient" if gradient_only else "the loss is nan"
    with pytest.raises(FloatingPointError, match=f"step 2: .*{kind}"):
        failing.fit()
    saved, _ = load_arrays(tmp_path / "last.safetensors")
    assert failing.step == 1
    assert_equal({name: saved[f"model.{name}"] for name in weights(plain)}, weights(failing))


def test_fit_of_one_seed_writes_same_bytes(tmp_path: Path) -> None:
    """In another process, too."""
    trainer(tmp_path / "a", max_epochs=2, keep_last=1).fit()
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2] / 'support')!r})\n"
        "from pathlib import Path\nfrom runs import trainer\n"
        f"trainer(Path({str(tmp_path / 'b')!r}), max_epochs=2, keep_last=1).fit()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.safetensors")}
        for name in ("a", "b")
    ]
    assert len(files[0]) == 3 and files[0] == files[1]


def test_resume_deletes_only_checkpoints_of_runs(tmp_path: Path) -> None:
    names = [
        "weights-mine.safetensors",
        "weights-0000002.safetensors.bak",
        "weights-2.safetensors",
        "weights-00000099.safetensors",
        ".thesis.part",
        ".notes.txt.0123456789ab.part",
        ".last.safetensors.copy.part",
    ]
    scaled_trainer(tmp_path, max_steps=2, keep_last=3).fit()
    for name in (*names, "weights-0000003.safetensors"):  # the last one is of a later step
        (tmp_path / name).write_text("mine")
    assert scaled_trainer(tmp_path, max_steps=2, keep_last=1).resume()
    steps = [path.name for path in nn.RunDirectory(tmp_path).checkpoints()]
    assert steps == ["weights-0000002.safetensors"]
    assert all((tmp_path / name).read_text() == "mine" for name in names)


def saved_steps(run: nn.RunDirectory) -> list[int]:
    return [int(path.stem.removeprefix("weights-")) for path in run.checkpoints()]


@pytest.mark.parametrize(
    "steps, most, kept",
    [
        (
            [9_999_999, 10_000_000, 10_000_001, 100_000_000],
            3,
            [10_000_000, 10_000_001, 100_000_000],
        ),
        ([50, 60, 3, 4], 2, [3, 4, 50, 60]),
    ],
    ids=["many digits", "earlier steps"],
)
def test_save_checkpoint_keeps_last_ones_up_to_its_step(
    tmp_path: Path, steps: list[int], most: int, kept: list[int]
) -> None:
    run = nn.RunDirectory(tmp_path)
    for step in steps:
        run.save_checkpoint(Scaled(), step, most)
    assert saved_steps(run) == kept
    run.forget_after(kept[1])
    assert saved_steps(run) == kept[:2]


@pytest.mark.parametrize(
    "line", [b"\xff\xfe{\n", b"[1]\n", b'{"step": "x"}\n', b'{"step": 1, "se\n']
)
def test_resume_with_broken_line_of_metrics_keeps_copy(tmp_path: Path, line: bytes) -> None:
    t = scaled_trainer(tmp_path, log_every=1)
    t.fit()
    metrics = tmp_path / "metrics.jsonl"
    first, _, *rest = metrics.read_bytes().splitlines(keepends=True)
    damaged = b"".join([first, line, *rest])
    metrics.write_bytes(damaged)
    again = scaled_trainer(tmp_path, log_every=1)
    with pytest.warns(UserWarning, match="metrics.jsonl: 1 line cannot be read"):
        again.fit(resume=True)
    assert again.history == t.history[:1] + t.history[2:]
    assert metrics.read_bytes() == b"".join([first, *rest])
    [copy] = tmp_path.glob("metrics-damaged-*.jsonl")
    assert copy.read_bytes() == damaged


# -- what a resumed run must have in common with the one that was cut off ------------------------


@pytest.mark.parametrize(
    "optimizer, message",
    [
        (lambda m: sgd(m, lr=0.2), r"lr\[0\] must be 0.1, as the run began with, got 0.2"),
        (lambda m: sgd(m, clip_norm=2.0), "clip_norm must be 1.0, as the run began with, got 2.0"),
        (lambda m: sgd(m, clip_norm=None), "clip_norm must be 1.0, as the run began with, got N"),
        (
            lambda m: optim.SGD([m.linear.weight, m.linear.bias, m.scale], lr=0.1, clip_norm=1.0),
            r"parameters\[0\] must be 'scale \(\)', .* got 'linear.weight \(1, 2\)'",
        ),
    ],
    ids=["rate", "clipping", "no clipping", "order of parameters"],
)
def test_resume_with_other_optimizer_raises(tmp_path: Path, optimizer: Any, message: str) -> None:
    began = lambda model: sgd(model, clip_norm=1.0)
    scaled_trainer(tmp_path, optimizer=began, max_epochs=1).fit()
    with pytest.raises(ValueError, match=f"^{tmp_path}/last.safetensors: {message}"):
        scaled_trainer(tmp_path, optimizer=optimizer).fit(resume=True)


def test_fit_after_resume_and_new_learning_rate_uses_it(tmp_path: Path) -> None:
    scaled_trainer(tmp_path, max_epochs=1).fit()
    t = scaled_trainer(tmp_path, max_epochs=2)
    assert t.resume()
    t.optimizer.param_groups[0]["lr"] = 0.03
    t.fit()
    assert t.lr == 0.03 and t.epoch == 2
    scaled_trainer(tmp_path).fit(resume=True)


@pytest.mark.parametrize(
    "changes",
    [{"batch_size": 4}, {"seed": 1}, {"shuffle": False}, {"rows": ROWS + 1e-9}],
    ids=str,
)
def test_resume_with_other_batches_warns(tmp_path: Path, changes: dict[str, Any]) -> None:
    def made(rows: np.ndarray = ROWS, **options: Any) -> nn.Batches:
        return nn.Batches(rows, ROWS[:, :1], **{"batch_size": 3, **options})

    def resume(train: Any, valid: Any) -> None:
        assert scaled_trainer(tmp_path, train, valid=valid, max_epochs=2).resume()

    scaled_trainer(tmp_path, made(), valid=made(), max_epochs=1).fit()
    resume(made(), made())  # no warning
    with pytest.warns(UserWarning, match="training data differ from those the run"):
        resume(made(**changes), made())
    with pytest.warns(UserWarning, match="validation data differ from those the run"):
        resume(made(), made(**changes))


# -- values of the user's own --------------------------------------------------------------------


def test_on_validation_values_are_logged_as_plain_json(tmp_path: Path) -> None:
    values = {
        "number": np.float32(0.5),
        "flag": np.bool_(True),
        "inf": np.float64(-np.inf),
        "nested": {"a": (np.int64(1), None, "x", float("nan"))},
    }
    expected = {"number": 0.5, "flag": True, "inf": None, "nested": {"a": [1, None, "x", None]}}
    seen: list[set[str]] = []

    def report(trainer: nn.Trainer, entry: dict[str, Any]) -> dict[str, Any] | None:
        seen.append({*entry})
        return values if trainer.step > 4 else None

    t = scaled_trainer(tmp_path, valid=[ONE_ROW], on_validation=report, max_epochs=2)
    t.fit()
    assert seen == [{"step", "epoch", "valid_loss"}] * 2
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == t.history
    assert expected.items() <= t.history[-1].items()
    assert expected.items() <= nn.load_weights(tmp_path / "best.safetensors", t.model).items()


@pytest.mark.parametrize(
    "values, message",
    [
        ({"path": Path("x")}, "'path' .* got PosixPath"),
        ({"deep": [{"a": {1, 2}}]}, "'deep' .* got set"),
        ({3: 1.0}, "names must be strings .* got 3"),
        ({"step": 7}, "names must be strings other than .*'valid_loss'.* got 'step'"),
        ([1], "a dict or None, got list"),
    ],
)
def test_on_validation_with_invalid_value_raises(tmp_path: Path, values: Any, message: str) -> None:
    t = scaled_trainer(tmp_path, valid=[ONE_ROW], on_validation=lambda t, entry: values)
    with pytest.raises((TypeError, ValueError), match=f"on_validation.*{message}"):
        t.fit()
    assert not (tmp_path / "best.safetensors").exists()
    assert not any("valid_loss" in entry for entry in t.history)
