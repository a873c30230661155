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
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import write_state
from runs import assert_same_run, trainer, weights

import minigrad as mg
import nn
from minigrad import Tensor, optim
from minigrad.console import run_script
from minigrad.io import load_arrays, save_arrays
from nn.text import PairBatches


class Scaled(nn.Module):
    """A model with a parameter without axes."""

    def __init__(self) -> None:
        self.scale = nn.Parameter(np.array(0.5))
        self.linear = nn.Linear(2, 1, dtype=float)

    def loss(self, x: Any, y: Any) -> Tensor:
        return ((self.linear(x) * self.scale - y) ** 2).mean()


def scaled_trainer(run_dir: Any = None, batches: Any = None, **options: Any) -> nn.Trainer:
    mg.manual_seed(0)
    rng, model = np.random.default_rng(0), Scaled()
    data = [(rng.standard_normal((3, 2)), rng.standard_normal((3, 1))) for _ in range(4)]
    settings = {"max_epochs": 3, "progress": False, **options}
    optimizer = settings.pop("optimizer", None) or optim.SGD(model.parameters(), lr=0.1)
    return nn.Trainer(
        model, optimizer, data if batches is None else batches, run_dir=run_dir, **settings
    )


# -- states ------------------------------------------------------------------------------------------


def test_resume_with_a_parameter_without_axes_is_exact(tmp_path: Path) -> None:
    whole = scaled_trainer(tmp_path / "whole")
    whole.fit()
    scaled_trainer(tmp_path / "cut", max_epochs=2).fit()
    again = scaled_trainer(tmp_path / "cut")
    again.fit(resume=True)
    assert load_arrays(tmp_path / "cut" / "last.safetensors")[0]["model.scale"].shape == ()
    assert_same_run(whole, again)


def edit_state(run_dir: Path, **changes: Any) -> None:
    arrays, metadata = load_arrays(run_dir / "last.safetensors")
    write_state(run_dir, arrays, {**metadata["trainer"], **changes})


def test_resume_at_the_end_of_an_epoch_begins_the_next(tmp_path: Path) -> None:
    """The state was saved after the last step of an epoch, before its end."""
    whole = scaled_trainer(tmp_path / "whole", save_every=4)
    whole.fit()
    cut = scaled_trainer(tmp_path / "cut", save_every=4, max_steps=4)
    cut.fit()
    edit_state(tmp_path / "cut", batch=4, epoch=0, validated=-1)
    again = scaled_trainer(tmp_path / "cut", save_every=4)
    again.fit(resume=True)
    assert again.step == 12
    for name, array in weights(whole).items():
        np.testing.assert_array_equal(array, weights(again)[name])


@pytest.mark.parametrize("kind", ["list", "function", "pairs"])
def test_resume_past_the_end_of_an_epoch_raises(tmp_path: Path, kind: str) -> None:
    pairs = [([4, 5], [1, 4, 5, 2])] * 12

    def made(n: int) -> nn.Trainer:
        if kind == "pairs":
            return trainer_on(PairBatches(pairs[: 2 * n], 8, shuffle=False), tmp_path)
        data = [(np.ones((1, 2)), np.ones((1, 1)))] * n
        return scaled_trainer(
            tmp_path, data if kind == "list" else lambda epoch: iter(data), max_steps=5
        )

    def trainer_on(batches: PairBatches, run_dir: Path) -> nn.Trainer:
        t = trainer(run_dir, max_epochs=None, max_steps=5)
        t.train = batches
        return t

    made(6).fit()
    t = made(3)
    t.max_steps = 20
    others = (
        nullcontext()
        if kind == "function"
        else pytest.warns(UserWarning, match="training data differ")
    )
    with (
        others,
        pytest.raises(ValueError, match="cut off after 5 batches of epoch 0, which has fewer now"),
    ):
        t.fit(resume=True)


@pytest.mark.parametrize(
    "changes",
    [{"epoch": 13}, {"optimizer": []}, {"random": 5}],
)
def test_resume_from_a_changed_state_is_refused_by_its_checksum(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    scaled_trainer(tmp_path).fit()
    arrays, metadata = load_arrays(tmp_path / "last.safetensors")
    write_state(tmp_path, arrays, {**metadata["trainer"], **changes}, checksum=True)
    with pytest.raises(ValueError, match=f"^{tmp_path}/last.safetensors was changed since it was"):
        scaled_trainer(tmp_path, max_epochs=5).fit(resume=True)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"step": "12"}, 'step must be an integer, got "12"'),
        ({"step": True}, "step must be an integer"),
        ({"epoch": 1.5}, "epoch must be an integer"),
        ({"best": float("nan")}, "best must be a number or null, got NaN"),
        ({"loss_sum": None}, "loss_sum must be a number"),
        ({"optimizer": []}, "optimizer does not fit this run"),
        ({"optimizer": [1]}, "optimizer does not fit this run"),
        ({"optimizer": 1}, "optimizer does not fit this run"),
        ({"generators": None}, "generators does not fit this run"),
        ({"random": {"state": 1}}, "random does not fit this run"),
        ({"random": 5}, "random does not fit this run"),
        ({"settings": {"accumulate": 3}}, "accumulate must be 3, as the run began with, got 1"),
        ({"settings": {"schedule": [3]}}, "schedule must be .3., as the run began with, got None"),
        ({"format": 0}, "format must be 1, got 0; the state was written by another version"),
    ],
)
def test_resume_from_a_state_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    scaled_trainer(tmp_path).fit()
    edit_state(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"^{tmp_path}/last.safetensors: {message}"):
        scaled_trainer(tmp_path, max_epochs=5).fit(resume=True)


# -- two runs ------------------------------------------------------------------------------------------


def test_fit_in_the_directory_of_another_run_is_refused(tmp_path: Path) -> None:
    first = scaled_trainer(tmp_path, max_epochs=1)
    first.fit()
    first.max_epochs = 2
    first.fit()  # the same run goes on
    assert first.step == 8
    with pytest.raises(
        FileExistsError, match="holds a run already; fit\\(resume=True\\) goes on with it"
    ):
        scaled_trainer(tmp_path).fit()


def test_resume_with_other_facts_is_refused(tmp_path: Path) -> None:
    made = lambda letters: scaled_trainer(nn.RunDirectory(tmp_path, letters=letters), max_epochs=1)
    made("abc").fit()
    made("abc").fit(resume=True)
    for _ in range(2):  # it is not locked afterwards
        with pytest.raises(ValueError, match=f"^{tmp_path}/last.safetensors: letters must be"):
            made("abd").fit(resume=True)


def test_fit_while_another_process_runs_is_refused_until_it_dies(tmp_path: Path) -> None:
    with (
        nn.RunDirectory(tmp_path),
        pytest.raises(BlockingIOError, match="another run is at work in this directory"),
    ):
        scaled_trainer(tmp_path).fit()
    code = f"import nn, time\nwith nn.RunDirectory({str(tmp_path)!r}):\n    print('locked', flush=True)\n    time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    with pytest.raises(BlockingIOError, match="another run is at work") as found:
        scaled_trainer(tmp_path).fit(resume=True)
    assert found.value.filename == str(tmp_path)
    process.kill()
    process.wait()
    process.stdout.close()
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


def test_run_directory_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    os.symlink(tmp_path / "victim", tmp_path / ".lock")
    with pytest.raises(OSError, match=".lock"):
        scaled_trainer(tmp_path).fit()


def test_fit_removes_unfinished_files_of_a_killed_run(tmp_path: Path) -> None:
    (tmp_path / ".last.safetensors.0123456789ab.part").write_text("half")
    scaled_trainer(tmp_path, max_epochs=1).fit()
    assert {path.name for path in tmp_path.iterdir()} == {
        ".lock",
        "best.safetensors",
        "last.safetensors",
        "metrics.jsonl",
    }


# -- disks ---------------------------------------------------------------------------------------------


def at_step(t: nn.Trainer, step: int, action: Callable[[], Any]) -> None:
    """Call `action` before a step."""
    total = t.objective.total

    def acts(*args: Any) -> Any:
        if t.step == step:
            action()
        return total(*args)

    t.objective.total = acts


def test_fit_on_a_full_disk_keeps_the_last_state(tmp_path: Path) -> None:
    whole = scaled_trainer(tmp_path / "whole", save_every=2)
    whole.fit()
    cut = scaled_trainer(tmp_path / "cut", save_every=2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    at_step(cut, 5, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard)))
    try:
        with pytest.raises(OSError, match="last.safetensors|metrics.jsonl"):
            cut.fit()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert load_arrays(tmp_path / "cut" / "last.safetensors")[1]["trainer"]["step"] == 4
    again = scaled_trainer(tmp_path / "cut", save_every=2)
    again.fit(resume=True)
    assert_same_run(whole, again)


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


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Make the directory read-only in the block, also for the superuser."""
    mode = directory.stat().st_mode
    directory.chmod(0o555)
    try:
        with no_superuser():
            yield
    finally:
        directory.chmod(mode)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """Yield a directory that other users can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def test_fit_in_a_read_only_directory_raises(open_path: Path) -> None:
    with read_only(open_path), pytest.raises(PermissionError) as found:
        scaled_trainer(open_path).fit()
    assert found.value.filename == str(open_path / ".lock") and not list(open_path.iterdir())
    t = scaled_trainer(open_path, save_every=2)
    closed = ExitStack()
    at_step(t, 5, lambda: closed.enter_context(read_only(open_path)))
    with closed, pytest.raises(PermissionError, match="last.safetensors|metrics.jsonl"):
        t.fit()
    assert load_arrays(open_path / "last.safetensors")[1]["trainer"]["step"] == 4
    assert not list(open_path.glob(".*.part"))
    scaled_trainer(open_path, save_every=2).fit(resume=True)


def test_fit_with_the_lock_of_another_user_is_refused_or_respects_it(
    open_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lock that cannot be opened is an error; one that can be opened is respected."""
    lock = open_path / ".lock"
    with nn.RunDirectory(open_path):
        lock.chmod(0)
        with no_superuser():
            assert run_script(scaled_trainer(open_path).fit) == 1
        lock.chmod(0o666)
        with (
            no_superuser(),
            pytest.raises(BlockingIOError, match="another run is at work in this directory"),
        ):
            scaled_trainer(open_path).fit()
    assert capsys.readouterr().err == f"error: {lock}: Permission denied\n"
    with no_superuser():
        scaled_trainer(open_path).fit()


def test_fit_in_a_removed_directory_raises(tmp_path: Path) -> None:
    t = scaled_trainer(tmp_path / "run", save_every=2)
    at_step(t, 5, lambda: shutil.rmtree(tmp_path / "run"))
    with pytest.raises(FileNotFoundError, match="removed or replaced in mid-run: '.*run'"):
        t.fit()
    assert not (tmp_path / "run").exists()


# -- numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda a: np.where(np.arange(a.size).reshape(a.shape) == 1, np.nan, a),
            "1 of its 2 values are NaN or infinite",
        ),
        (lambda a: a * np.inf, "2 of its 2 values are NaN or infinite"),
        (lambda a: a.astype(int), "linear.weight must be float64, got int64"),
        (lambda a: a > 0, "linear.weight must be float64, got bool"),
        (lambda a: a[0], "misshaped: linear.weight must have shape \\(1, 2\\), got \\(2,\\)"),
    ],
)
def test_load_of_invalid_weights_is_refused(
    tmp_path: Path, change: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    model = Scaled()
    state = {**model.state_dict(), "linear.weight": change(model.linear.weight.data + 1)}
    before = weights_of(model)
    save_arrays(tmp_path / "w.safetensors", state)
    with pytest.raises(ValueError, match=f"^{tmp_path}/w.safetensors: .*{message}"):
        nn.load_weights(tmp_path / "w.safetensors", model)
    assert all(np.array_equal(a, before[name]) for name, a in model.state_dict().items())
    scaled_trainer(tmp_path, max_epochs=1).fit()
    arrays, metadata = load_arrays(tmp_path / "last.safetensors")
    arrays["model.linear.weight"] = change(arrays["model.linear.weight"] + 1)
    save_arrays(tmp_path / "last.safetensors", arrays, metadata)
    with pytest.raises(ValueError, match=f"^{tmp_path}/last.safetensors: .*{message}"):
        scaled_trainer(tmp_path).fit(resume=True)


def weights_of(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in model.state_dict().items()}


class Explodes:
    """A loss that is nan at some steps, or finite with a gradient that is not."""

    def __init__(self, at: set[int], gradient_only: bool) -> None:
        self.at, self.gradient_only, self.step = at, gradient_only, 0

    def __call__(self, model: Any, batch: Any) -> Tensor:
        loss = model.loss(*batch)
        if model.training:
            self.step += 1
            if self.step in self.at:
                with np.errstate(all="ignore"):
                    zero = (model.scale * 0.0).sum()
                    return loss + (mg.sqrt(zero) if self.gradient_only else zero + np.nan)
        return loss


def test_fit_with_an_infinite_score_raises() -> None:
    """Large values inside a score give no warning."""
    large = mg.Tensor(np.full(2, 1e300))
    scaled_trainer(max_epochs=1, score=lambda model: (large * large > 0).data.mean()).fit()
    with pytest.raises(FloatingPointError, match="step 4: the score is inf"):
        scaled_trainer(max_epochs=1, score=lambda model: (large * large).data.mean()).fit()


def test_fit_with_a_score_and_an_infinite_validation_loss_raises() -> None:
    """The score itself is finite."""
    t = scaled_trainer(valid=[(np.full((1, 2), np.nan), np.ones((1, 1)))], score=lambda model: 1.0)
    with pytest.raises(FloatingPointError, match="step 4: the validation loss is nan"):
        t.fit()


@pytest.mark.parametrize("clip_norm", [None, 1.0])
@pytest.mark.parametrize("gradient_only", [True, False], ids=["gradient", "loss"])
@pytest.mark.parametrize("parallel", [1, 2])
def test_fit_with_nonfinite_values_stops_before_the_step(
    tmp_path: Path, clip_norm: float | None, gradient_only: bool, parallel: int
) -> None:
    def made(**options: Any) -> nn.Trainer:
        t = scaled_trainer(objective=Explodes({3}, gradient_only), parallel=parallel, **options)
        t.optimizer.clip_norm = clip_norm
        return t

    with np.errstate(all="ignore"):
        t = made(run_dir=tmp_path, save_every=1)
        kind = "gradient" if gradient_only else "the loss is nan"
        with pytest.raises(FloatingPointError, match=f"step 3: .*{kind}"):
            t.fit()
        assert t.step == 2
        saved, _ = load_arrays(tmp_path / "last.safetensors")
        for name, array in weights(t).items():
            assert np.isfinite(array).all()
            np.testing.assert_array_equal(saved[f"model.{name}"], array)
        with pytest.raises(FloatingPointError, match="step 3"):
            made().fit()
        skipping = made(skip_nonfinite=2)
        skipping.fit()
        assert (
            skipping.skipped == 1 and skipping.step == 12 and skipping.history[-1]["skipped"] == 1
        )
        assert all(np.isfinite(array).all() for array in weights(skipping).values())


def test_fit_of_one_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        trainer(tmp_path / name, max_epochs=2, keep_last=1).fit()
    names = sorted(path.name for path in (tmp_path / "a").glob("*.safetensors"))
    assert len(names) == 3
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2] / 'support')!r})\nfrom pathlib import Path\n"
        f"from runs import trainer\ntrainer(Path({str(tmp_path / 'c')!r}), max_epochs=2).fit()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # and in a process of its own
    assert (tmp_path / "a" / "best.safetensors").read_bytes() == (
        tmp_path / "c" / "best.safetensors"
    ).read_bytes()


def test_resume_deletes_only_the_checkpoints_it_wrote(tmp_path: Path) -> None:
    theirs = [
        "weights-mine.safetensors",
        "weights-0000002.safetensors.bak",
        "weights-2.safetensors",
        "weights-00000099.safetensors",
        ".thesis.part",
        ".notes.txt.0123456789ab.part",
        ".last.safetensors.copy.part",
    ]
    scaled_trainer(tmp_path, max_steps=2, keep_last=3).fit()
    for name in theirs:
        (tmp_path / name).write_text("mine")
    scaled_trainer(tmp_path, keep_last=1).fit(resume=True)
    assert [path.name for path in nn.RunDirectory(tmp_path).checkpoints()] == [
        "weights-0000012.safetensors"
    ]
    assert all((tmp_path / name).read_text() == "mine" for name in theirs)


def test_checkpoints_of_many_digits_are_in_the_order_of_steps(tmp_path: Path) -> None:
    run, model = nn.RunDirectory(tmp_path), Scaled()
    steps = [9_999_998, 9_999_999, 10_000_000, 10_000_001, 100_000_000]
    for step in steps:
        run.save_checkpoint(model, step, 3)
    assert [path.name for path in run.checkpoints()] == [
        f"weights-{step}.safetensors" for step in steps[-3:]
    ]
    run.forget_after(10_000_000)
    assert [path.name for path in run.checkpoints()] == ["weights-10000000.safetensors"]


def test_save_checkpoint_keeps_a_new_one_of_an_earlier_step(tmp_path: Path) -> None:
    run = nn.RunDirectory(tmp_path)
    for step in (50, 60, 3, 4):
        run.save_checkpoint(Scaled(), step, 2)
    assert [int(path.stem[8:]) for path in run.checkpoints()] == [3, 4, 50, 60]


@pytest.mark.parametrize(
    "kept", ["metrics.jsonl", "best.safetensors", "weights-0000004.safetensors"]
)
def test_fit_in_a_directory_with_files_of_an_earlier_run_is_refused(
    tmp_path: Path, kept: str
) -> None:
    scaled_trainer(tmp_path, max_epochs=1, log_every=1, keep_last=1).fit()
    for path in tmp_path.iterdir():
        if path.name != kept:
            path.unlink()
    before = (tmp_path / kept).read_bytes()
    with pytest.raises(FileExistsError, match=f"{kept} of an earlier run"):
        scaled_trainer(tmp_path).fit()
    assert (tmp_path / kept).read_bytes() == before


def test_resume_with_broken_metrics_keeps_a_copy(tmp_path: Path) -> None:
    t = scaled_trainer(tmp_path, log_every=1)
    t.fit()
    metrics = tmp_path / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    for i, broken in enumerate(
        (b"\xff\xfe{\n", b"[1]\n", b'{"step": "x"}\n', b'{"step": 1, "se\n')
    ):
        damaged = b"".join([lines[0], broken, *lines[2:]])
        metrics.write_bytes(damaged)
        again = scaled_trainer(tmp_path, log_every=1)
        with pytest.warns(UserWarning, match="metrics.jsonl: 1 line cannot be read"):
            again.fit(resume=True)
        assert again.history == t.history[:1] + t.history[2:]
        assert metrics.read_bytes() == b"".join(lines[:1] + lines[2:])
        copies = sorted(tmp_path.glob("metrics-damaged-*.jsonl"))
        assert len(copies) == i + 1 and copies[-1].read_bytes() == damaged
        metrics.write_bytes(b"".join(lines))


def test_resume_after_a_cut_line_of_metrics_writes_it_again(
    tmp_path: Path,
) -> None:
    whole = scaled_trainer(tmp_path / "whole", log_every=1)
    whole.fit()
    scaled_trainer(tmp_path / "cut", log_every=1, max_epochs=1).fit()
    with (tmp_path / "cut" / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 5, "ep')
    again = scaled_trainer(tmp_path / "cut", log_every=1)
    again.fit(resume=True)
    assert_same_run(whole, again)
    assert not list((tmp_path / "cut").glob("metrics-*"))


# -- what a resumed run must have in common with the one that was cut off ------------------------


def resumed(tmp_path: Path, change: Callable[[Scaled], optim.Optimizer], **options: Any) -> Any:
    make = lambda model: optim.SGD(model.parameters(), lr=0.1, momentum=0.9, clip_norm=1.0)
    for step, optimizer in enumerate((make, change)):
        t = scaled_trainer(tmp_path, max_epochs=1 + step, **(options if step else {}))
        t = nn.Trainer(
            t.model,
            optimizer(t.model),
            t.train,
            run_dir=tmp_path,
            max_epochs=1 + step,
            progress=False,
        )
        t.fit(resume=True)
    return t


def test_resume_with_the_parameters_in_another_order_is_refused(tmp_path: Path) -> None:
    swapped = lambda model: optim.SGD(
        [model.linear.weight, model.linear.bias, model.scale], lr=0.1, momentum=0.9, clip_norm=1.0
    )
    with pytest.raises(
        ValueError, match=r"parameters\[0\] must be 'scale \(\)', .* got 'linear.weight \(1, 2\)'"
    ):
        resumed(tmp_path, swapped)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"lr": 0.2}, r"lr\[0\] must be 0.1, as the run began with, got 0.2"),
        ({"clip_norm": 2.0}, "clip_norm must be 1.0, as the run began with, got 2.0"),
        ({"clip_norm": None}, "clip_norm must be 1.0, as the run began with, got None"),
    ],
)
def test_resume_with_another_setting_of_the_optimizer_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    settings = {"lr": 0.1, "momentum": 0.9, "clip_norm": 1.0, **settings}
    with pytest.raises(ValueError, match=f"^{tmp_path}/last.safetensors: {message}"):
        resumed(tmp_path, lambda model: optim.SGD(model.parameters(), **settings))


def test_resume_then_a_new_learning_rate_then_fit_uses_it(tmp_path: Path) -> None:
    scaled_trainer(tmp_path, max_epochs=1).fit()
    t = scaled_trainer(tmp_path, max_epochs=2)
    assert t.resume()
    t.optimizer.param_groups[0]["lr"] = 0.03
    t.fit()
    assert t.lr == 0.03 and t.epoch == 2
    scaled_trainer(tmp_path).fit(resume=True)


ROWS = np.arange(24.0).reshape(12, 2) / 10


@pytest.mark.parametrize(
    "other",
    [
        nn.Batches(ROWS, ROWS[:, :1], batch_size=4),
        nn.Batches(ROWS + 1e-9, ROWS[:, :1], batch_size=3),
        nn.Batches(ROWS, ROWS[:, :1], batch_size=3, seed=1),
        nn.Batches(ROWS, ROWS[:, :1], batch_size=3, shuffle=False),
        [(ROWS[i : i + 3], ROWS[i : i + 3, :1]) for i in range(0, 12, 3)],
    ],
    ids=["batch size", "data", "seed", "order", "list"],
)
def test_resume_with_other_batches_warns(tmp_path: Path, other: Any) -> None:
    batches = nn.Batches(ROWS, ROWS[:, :1], batch_size=3)
    scaled_trainer(tmp_path, batches, valid=batches, max_epochs=1).fit()
    again = scaled_trainer(tmp_path, batches, valid=batches, max_epochs=2)
    again.fit(resume=True)  # the same: no warning
    for names in (("training", other, batches), ("validation", batches, other)):
        kind, train, valid = names
        again = scaled_trainer(tmp_path, train, valid=valid, max_epochs=2)
        with pytest.warns(UserWarning, match=f"{kind} data differ from those the run"):
            assert again.resume()


# -- values of the user's own --------------------------------------------------------------------


def test_on_validation_values_become_plain_json(tmp_path: Path) -> None:
    values = {
        "f32": np.float32(0.5),
        "int": np.int64(3),
        "flag": np.bool_(True),
        "nan": float("nan"),
        "inf": np.float64(-np.inf),
        "nested": {"a": [np.float32(1.5), None, "x", float("nan")], "b": (1, 2)},
    }
    expected = {
        "f32": 0.5,
        "int": 3,
        "flag": True,
        "nan": None,
        "inf": None,
        "nested": {"a": [1.5, None, "x", None], "b": [1, 2]},
    }
    data = [(ROWS[:3], ROWS[:3, :1])]
    t = scaled_trainer(tmp_path, valid=data, on_validation=lambda t, entry: values, max_epochs=2)
    t.fit()

    def refuse_constant(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    entries = [json.loads(line, parse_constant=refuse_constant) for line in lines]
    assert entries == t.history
    assert expected.items() <= t.history[-1].items()
    metadata = nn.load_weights(tmp_path / "best.safetensors", t.model)
    assert expected.items() <= metadata.items()


@pytest.mark.parametrize(
    "values, message",
    [
        ({"path": Path("x")}, "'path' .* got PosixPath"),
        ({"array": np.ones(2)}, "'array' .* got ndarray"),
        ({"loss": mg.Tensor(1.0)}, "'loss' .* got Tensor"),
        ({"deep": [{"a": {1, 2}}]}, "'deep' .* got set"),
        ({"complex": np.complex64(1j)}, "'complex' .* got complex"),
        ({"long": np.longdouble(1)}, "'long' .* got longdouble"),
        ({3: 1.0}, "names must be strings .* got 3"),
        ({"step": 7}, "names must be strings other than .*'valid_loss'.* got 'step'"),
        ({"seconds": 7}, "names must be .* got 'seconds'"),
        ([1], "a dict or None, got list"),
    ],
)
def test_on_validation_with_a_value_that_is_no_json_raises(
    tmp_path: Path, values: Any, message: str
) -> None:
    data = [(ROWS[:3], ROWS[:3, :1])]
    t = scaled_trainer(tmp_path, valid=data, on_validation=lambda t, entry: values)
    with pytest.raises((TypeError, ValueError), match=f"on_validation.*{message}"):
        t.fit()
    assert not (tmp_path / "best.safetensors").exists()
    assert not any("valid_loss" in entry for entry in t.history)


class Normed(Scaled):
    """A model with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2, dtype=float)

    def loss(self, x: Any, y: Any) -> Tensor:
        return super().loss(self.norm(x), y)


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_skipped_step_keeps_buffers(tmp_path: Path, parallel: int, accumulate: int) -> None:
    good = [(ROWS[i : i + 4], ROWS[i : i + 4, :1]) for i in range(0, 12, 2)]
    bad = (np.full((4, 2), np.nan), np.ones((4, 1)))

    def made(batches: Any, run_dir: Path | None = None, **options: Any) -> nn.Trainer:
        mg.manual_seed(0)
        model = Normed()
        return nn.Trainer(
            model,
            optim.SGD(model.parameters(), lr=0.1),
            batches,
            shuffle=False,
            max_epochs=1,
            progress=False,
            parallel=parallel,
            accumulate=accumulate,
            run_dir=run_dir,
            **options,
        )

    with_bad = good[:2] + [good[0], bad][-accumulate:] + good[2:4]
    plain = made(good[:4])
    plain.fit()
    t = made(with_bad, tmp_path, skip_nonfinite=1, save_every=1)
    with np.errstate(all="ignore"):
        t.fit()
    assert t.skipped == 1
    for name, array in weights(plain).items():
        np.testing.assert_array_equal(array, weights(t)[name], err_msg=name)
    assert made(with_bad, tmp_path, skip_nonfinite=1).resume()
    failing = made([bad] * accumulate)
    before = weights(failing)
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError):
        failing.fit()
    for name, array in before.items():
        np.testing.assert_array_equal(array, weights(failing)[name], err_msg=name)
