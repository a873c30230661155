"""Optimizers, schedules, checkpoints, and a run that is killed and taken up again."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import MissingExtraError, Tensor, optim
from minigrad.serialization import load_arrays, save_arrays, write_atomically
from nn.text import PairBatches

# -- optimizers --------------------------------------------------------------------------------------


def test_adam_is_the_papers() -> None:
    rng = np.random.default_rng(0)
    p = Tensor(rng.standard_normal(4), requires_grad=True)
    x, m, v = p.data.copy(), np.zeros(4), np.zeros(4)
    adam = optim.Adam([p], lr=0.1, betas=(0.9, 0.99), eps=1e-6)
    for t in range(1, 20):
        g = rng.standard_normal(4)
        p.grad = g.copy()
        adam.step()
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        x -= 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6)
        np.testing.assert_allclose(p.data, x, rtol=1e-10)


def test_parameters_become_views_of_one_array_and_gradients_too() -> None:
    model = nn.Linear(3, 4)
    before = model.weight.data.copy()
    adam = optim.Adam(model.parameters())
    np.testing.assert_array_equal(model.weight.data, before)
    assert model.weight.data.base is model.bias.data.base is not None
    model(np.ones((2, 3), np.float32)).sum().backward()
    assert model.weight.grad.data.base is model.bias.grad.data.base is not None
    model(np.ones((2, 3), np.float32)).sum().backward()  # adds up in place
    np.testing.assert_allclose(model.bias.grad.data, 4.0)
    adam.zero_grad()
    assert model.weight.grad is None
    model(np.ones((2, 3), np.float32)).sum().backward()
    np.testing.assert_allclose(model.bias.grad.data, 2.0)


IDS = np.array([0, 3, 2, 1])
X = np.random.default_rng(4).standard_normal((4, 4))


@pytest.mark.parametrize(
    "loss",
    [
        lambda w, b: mg.linear_cross_entropy(X, w, b, IDS),
        lambda w, b: mg.linear(mg.linear(X, w, b, "relu"), w, b).sum(),  # by two ops
        lambda w, b: mg.linear_cross_entropy(w, w, b, IDS),  # as both operands of one
        lambda w, b: mg.linear_cross_entropy(mg.embedding(w, IDS), w, b, IDS),
    ],
)
def test_gradients_computed_in_the_optimizers_array_are_those_computed_elsewhere(loss: Any) -> None:
    def leaves() -> list[Tensor]:
        draw = np.random.default_rng(5)
        return [Tensor(draw.standard_normal(shape), requires_grad=True) for shape in ((4, 4), (4,))]

    plain, housed = leaves(), leaves()
    optimizer = optim.SGD(housed, lr=0.0)
    for factor, fresh in ((0.7, True), (0.3, False), (1.1, True)):  # the second adds to the first
        if fresh:
            plain[0].grad = plain[1].grad = None
            optimizer.zero_grad()
        apart = mg.gradients(loss(*housed) * factor, housed)
        for some in (plain, housed):
            (loss(*some) * factor).backward()
        for p, q, g in zip(plain, housed, apart):
            assert p.grad is not None and q.grad is not None
            np.testing.assert_allclose(q.grad.data, p.grad.data, rtol=1e-12)
            assert q.grad.data.base is optimizer._groups[0].grad
            assert not np.shares_memory(g.data, q.grad.data)


@pytest.mark.parametrize("rows", [5, 300])
@pytest.mark.parametrize("padding", [None, 4])
def test_looked_up_rows_get_their_gradients_in_the_optimizers_array(rows: int, padding: int | None) -> None:
    rng = np.random.default_rng(6)
    table = Tensor(rng.standard_normal((rows, 3)), requires_grad=True)
    optimizer = optim.SGD([table], lr=0.0)
    for high in (rows, 5, rows):  # few rows, where there were many
        optimizer.zero_grad()
        ids, g = rng.integers(0, high, (4, 10)), rng.standard_normal((4, 10, 3))
        ids[0] = 4
        expected = np.zeros((rows, 3))
        np.add.at(expected, ids, g * (ids != padding)[..., None])
        mg.embedding(table, ids, padding).backward(g)
        np.testing.assert_allclose(table.grad.data, expected, rtol=1e-12, atol=1e-12)
        assert table.grad.data.base is optimizer._groups[0].grad


def test_what_a_hook_sees_does_not_change_with_the_next_gradient() -> None:
    w = Tensor(X, requires_grad=True)
    optimizer, seen = optim.SGD([w], lr=0.0), []
    w.register_hook(seen.append)
    for factor in (1.0, 2.0):
        optimizer.zero_grad()
        (mg.linear(X, w).sum() * factor).backward()
    np.testing.assert_allclose(seen[1].data, 2 * seen[0].data, rtol=1e-12)


def test_float32_stays_float32_in_the_optimizer() -> None:
    p = Tensor(np.ones(3, np.float32), requires_grad=True)
    adam = optim.AdamW([p], lr=0.1, clip_norm=1.0)
    p.grad = np.ones(3, np.float32)
    adam.step()
    assert p.dtype == np.float32 and all(a.dtype == np.float32 for a in adam.state_dict()["arrays"].values())


def test_mixed_dtypes_and_groups() -> None:
    a, b = Tensor(np.ones(2, np.float32), True), Tensor(np.ones(2), True)
    frozen = Tensor(np.ones(2))
    sgd = optim.SGD([{"params": [a, frozen]}, {"params": [b], "lr": 1.0}], lr=0.5)
    (a.sum() + b.sum()).backward()
    sgd.step()
    assert a.tolist() == [0.5, 0.5] and b.tolist() == [0, 0] and frozen.tolist() == [1, 1]
    sgd.param_groups[0]["lr"] = 0.25
    sgd.step()
    assert a.tolist() == [0.25, 0.25]


def test_clipping_is_folded_in() -> None:
    for norm, expected in [(1.0, 1.0), (100.0, 5.0)]:
        p = Tensor(np.zeros(2), requires_grad=True)
        p.grad = np.array([3.0, 4.0])
        assert optim.SGD([p], lr=1.0, clip_norm=norm).step() == pytest.approx(5.0)
        assert np.linalg.norm(p.data) == pytest.approx(expected, rel=1e-5)
        np.testing.assert_array_equal(p.grad.data, [3, 4])


def test_optimizer_errors() -> None:
    p = Tensor(np.ones(2), requires_grad=True)
    with pytest.raises(ValueError, match="Adam: no parameter requires gradients"):
        optim.Adam([Tensor(np.ones(2))])
    with pytest.raises(TypeError, match="SGD: expected leaf tensors"):
        optim.SGD([p * 2], lr=1)
    with pytest.raises(ValueError, match=r"Adam: a parameter of shape \(2,\) is given twice"):
        optim.Adam([p, p])
    with pytest.raises(ValueError, match="Adam: expected lr >= 0, got -1"):
        optim.Adam([p], lr=-1)
    with pytest.raises(ValueError, match=r"Adam: expected 0 <= beta < 1, got betas=\(1.0, 0.9\)"):
        optim.Adam([p], betas=(1.0, 0.9))
    with pytest.raises(ValueError, match=r"Adam: unknown settings \['learning_rate'\] in a parameter group"):
        optim.Adam([{"params": [p], "learning_rate": 1}])
    with pytest.raises(ValueError, match="SGD: nesterov needs a momentum"):
        optim.SGD([p], lr=1, nesterov=True)
    before = p.data.copy()
    sgd = optim.SGD([p], lr=1.0, clip_norm=1.0)
    p.grad = np.array([np.nan, 1.0])
    with pytest.raises(FloatingPointError, match="the norm of the gradients is nan; detect_anomaly"):
        sgd.step()
    np.testing.assert_array_equal(p.data, before)
    model = nn.Linear(2, 2)
    adam = optim.Adam(model.parameters())
    model.astype("float64")
    with pytest.raises(RuntimeError, match="has other memory than when its optimizer was made"):
        adam.step()
    with pytest.raises(ValueError, match="the optimizer's state does not fit"):
        sgd.load_state_dict(adam.state_dict())


def test_a_step_between_forward_and_backward_is_noticed() -> None:
    model = nn.Linear(2, 2)
    adam = optim.Adam(model.parameters())
    x = Tensor(np.ones((1, 2), np.float32), requires_grad=True)
    model(x).sum().backward()
    late = model(x).sum()
    adam.step()
    with pytest.raises(mg.GradientError, match="linear: .* was changed in place"):
        late.backward()


def test_schedules() -> None:
    noam = optim.noam_schedule(512, 4000)
    assert noam(1) == pytest.approx(512**-0.5 * 4000**-1.5) and noam(4000) == pytest.approx((512 * 4000) ** -0.5)
    assert noam(16000) == pytest.approx(noam(4000) / 2)
    root = optim.inverse_sqrt_schedule(100)
    assert (root(50), root(100), root(400)) == (0.5, 1.0, 0.5)
    cosine = optim.cosine_schedule(110, 10, final=0.1)
    assert (cosine(5), cosine(10), cosine(60)) == pytest.approx((0.5, 1.0, 0.55)) and cosine(110) == cosine(
        200
    ) == pytest.approx(0.1)
    line = optim.linear_schedule(100)
    assert (line(0), line(50), line(100)) == (1.0, 0.5, 0.0)
    p = Tensor(np.ones(1), requires_grad=True)
    sgd = optim.SGD([{"params": [p]}], lr=2.0)
    schedule = optim.Schedule(sgd, optim.inverse_sqrt_schedule(4))
    rates = []
    for _ in range(4):
        rates.append(schedule.lr)
        schedule.step()
    assert rates == [0.5, 1.0, 1.5, 2.0]


# -- files -------------------------------------------------------------------------------------------


def test_arrays_go_round(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3).T, "b": np.ones(2, np.float32)}
    save_arrays(tmp_path / "x.safetensors", arrays, {"notes": {"π": [1, None]}})
    found, data = load_arrays(tmp_path / "x.safetensors")
    assert data == {"notes": {"π": [1, None]}}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_a_broken_file_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_arrays(path, {"a": np.ones(100)})
    whole = path.read_bytes()
    for data in (whole[:-8], whole[:20], b"", b"garbage" * 30):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="x.safetensors: not a whole safetensors file"):
            load_arrays(path)
    with pytest.raises(FileNotFoundError, match="y.safetensors: no such file"):
        load_arrays(tmp_path / "y.safetensors")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old")

    def fails(part: Path) -> None:
        part.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fails)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["x.txt"]


def test_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(MissingExtraError, match=r'the progress bar .* needs tqdm: pip install "minigrad\[train\]"'):
        trainer(progress=True).fit()


# -- the trainer ---------------------------------------------------------------------------------------


def copying(n: int = 120, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    """Sequences to be copied."""
    rng = np.random.default_rng(seed)
    words = [rng.integers(4, 9, rng.integers(1, 6)).tolist() for _ in range(n)]
    return [(w, [1, *w, 2]) for w in words]


def trainer(run_dir: Path | None = None, seed: int = 0, **options: Any) -> nn.Trainer:
    mg.manual_seed(seed)
    c = nn.TransformerConfig(9, 9, 16, 2, 1, 1, 32, dropout=0.1, max_len=16)
    model = nn.Transformer(c)
    adam = optim.Adam(model.parameters(), lr=5e-3, clip_norm=1.0)
    schedule = optim.Schedule(adam, optim.inverse_sqrt_schedule(10))
    settings = {"max_epochs": 3, "progress": False, "log_every": 5, **options}
    return nn.Trainer(
        model, adam, PairBatches(copying(), 80, seed=seed), valid=PairBatches(copying(30, 1), 80, shuffle=False),
        schedule=schedule, loss=nn.TranslationLoss(0.05), run_dir=run_dir, **settings,
    )  # fmt: skip


def weights(t: nn.Trainer) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in t.model.state_dict().items()}


def test_training_learns_and_keeps_its_records(tmp_path: Path) -> None:
    t = trainer(tmp_path, max_epochs=15)
    history = t.fit()
    valid = [e["valid_loss"] for e in history if "valid_loss" in e]
    assert len(valid) == 15 and valid[-1] < 0.7 * valid[0] and t.best == min(valid)
    entries = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert entries == history
    logged = next(e for e in entries if "loss" in e)
    assert {"step", "epoch", "loss", "lr", "grad_norm", "tokens_per_second", "seconds"} == set(logged)
    best = trainer()
    metadata = nn.load_weights(tmp_path / "best.safetensors", best.model)
    assert metadata["step"] == t.best_step
    assert best.evaluate(best.valid) == pytest.approx(t.best, rel=1e-5)
    assert not t.model.training


def test_early_stopping() -> None:
    t = trainer(patience=2, max_epochs=50)
    losses = iter([3.0, 2.0, 2.5, 2.1, 1.0])
    t.evaluate = lambda batches: next(losses)  # type: ignore[method-assign]
    t.fit()
    assert t.epoch == 4 and t.best == 2.0


def test_accumulation_equals_larger_batches() -> None:
    """Two batches of different sizes in one step give the gradient of both together."""
    pairs = copying(20)
    small, large = [([p[0] for p in part], [p[1] for p in part]) for part in (pairs[:5], pairs[5:])]
    t = trainer(accumulate=2)
    t.model.eval()
    batches = [tuple(nn.text.padded(side) for side in part) for part in (small, large)]
    t.optimizer.step = lambda: None  # type: ignore[method-assign, assignment]
    t.schedule = None
    loss, n, _ = t._step(batches)
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


def test_runs_are_repeatable() -> None:
    def trained(seed: int = 0) -> nn.Trainer:
        t = trainer(seed=seed)
        t.fit()
        return t

    a, b, c = trained(), trained(), trained(seed=1)
    assert all(np.array_equal(x, y) for x, y in zip(weights(a).values(), weights(b).values()))
    assert not all(np.array_equal(x, y) for x, y in zip(weights(a).values(), weights(c).values()))


@pytest.mark.parametrize("stop", [1, 4, 7, 12])
def test_resuming_at_any_step_ends_with_the_same_weights(tmp_path: Path, stop: int) -> None:
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
    validations = lambda t: {e["step"]: (e["epoch"], e["valid_loss"]) for e in t.history if "valid_loss" in e}
    assert stop in validations(again)  # the cut run looked at what it had at its end
    assert validations(whole).items() <= validations(again).items()


def test_resuming_with_several_processes(tmp_path: Path) -> None:
    one, whole, cut = (trainer(tmp_path / name, processes=n) for name, n in [("one", 1), ("whole", 2), ("cut", 2)])
    cut.max_steps = 7
    for t in (one, whole, cut):
        mg.manual_seed(3)
        t.fit()
    again = trainer(tmp_path / "cut", processes=2)
    again.fit(resume=True)
    assert one.best == pytest.approx(whole.best, rel=0.05) and one.best != whole.best  # other random numbers
    for (name, a), b in zip(weights(whole).items(), weights(again).values()):
        np.testing.assert_array_equal(a, b, err_msg=name)


SCRIPT = """
import sys; sys.path.insert(0, {tests!r})
from pathlib import Path
from test_training import trainer
t = trainer(Path({run!r}), save_every=2, max_epochs=6)
print("ready", flush=True)
t.fit(resume=True)
print("done", flush=True)
"""


def test_a_run_killed_again_and_again_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", save_every=2, max_epochs=6)
    whole.fit()
    script = SCRIPT.format(tests=str(Path(__file__).parent), run=str(tmp_path / "cut"))
    rng = np.random.default_rng(0)
    for kill in (True, True, True, False):
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        if kill:
            time.sleep(rng.uniform(0.01, 0.25))
            process.send_signal(signal.SIGKILL)
        process.stdout.read()
        process.stdout.close()
        code = process.wait()
        assert kill or code == 0
    arrays, _ = load_arrays(tmp_path / "cut" / "last.safetensors")
    for name, array in weights(whole).items():
        np.testing.assert_array_equal(arrays[f"model.{name}"], array, err_msg=name)
    assert (tmp_path / "cut" / "metrics.jsonl").read_text().count("valid_loss") == 6


@pytest.mark.parametrize("where", ["forward", "update"])
def test_a_run_that_was_interrupted_ends_with_the_same_weights(tmp_path: Path, where: str) -> None:
    """Ctrl-C in the midst of a step: the state before it is kept, or while parameters change, the last that was."""
    whole = trainer(tmp_path / "whole", save_every=2)
    whole.fit()
    cut = trainer(tmp_path / "cut", save_every=2)
    total, update = cut.loss.total, cut.optimizer.update

    def interrupted(*args: Any) -> Any:
        if cut.step == 3:
            (total if where == "forward" else update)(*args)
            raise KeyboardInterrupt
        return (total if where == "forward" else update)(*args)

    if where == "forward":
        cut.loss.total = interrupted
    else:
        cut.optimizer.update = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        cut.fit()
    saved = load_arrays(tmp_path / "cut" / "last.safetensors")[1]["trainer"]["step"]
    assert saved == (3 if where == "forward" else 2)
    again = trainer(tmp_path / "cut", save_every=2)
    again.fit(resume=True)
    for (name, a), b in zip(weights(whole).items(), weights(again).values()):
        np.testing.assert_array_equal(a, b, err_msg=name)


def test_trainer_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Trainer: expected max_epochs or max_steps"):
        trainer(max_epochs=None)
    with pytest.raises(ValueError, match="Trainer: resuming needs a run_dir"):
        trainer().fit(resume=True)
    t = trainer(tmp_path)
    t.model.output.weight.data[...] = np.nan
    with pytest.raises(FloatingPointError, match="step 1: the loss is nan; the parameters are as they were"):
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
        ValueError, match="last.safetensors: the state does not fit Transformer: misshaped: .*expected .* got"
    ):
        nn.Trainer(wide, adam, other.train, max_steps=3, run_dir=tmp_path / "b", progress=False).fit(resume=True)
    with pytest.raises(ValueError, match="best.safetensors: the state does not fit Transformer"):
        save_arrays(tmp_path / "best.safetensors", {"x": np.ones(1)})
        nn.load_weights(tmp_path / "best.safetensors", wide)
