"""Optimizers, schedules, checkpoints, and a run that is killed and taken up again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor, optim
from minigrad.serialization import load_arrays, save_arrays, write_atomically

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
        lambda w, b: mg.linear(mg.relu(mg.linear(X, w, b)), w, b).sum(),  # by two ops
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
