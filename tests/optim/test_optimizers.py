"""Optimizers: what a step does, whose memory parameters have, which settings are refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import each

import minigrad as mg
import nn
from minigrad import Tensor, optim


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
        lambda w, b: mg.linear_cross_entropy(X, w, IDS, linear_bias=b),
        lambda w, b: mg.linear(mg.relu(mg.linear(X, w, b)), w, b).sum(),  # by two ops
        lambda w, b: mg.linear_cross_entropy(w, w, IDS, linear_bias=b),  # as both operands of one
        lambda w, b: mg.linear_cross_entropy(mg.embedding(w, IDS), w, IDS, linear_bias=b),
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
def test_looked_up_rows_get_their_gradients_in_the_optimizers_array(
    rows: int, padding: int | None
) -> None:
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
    assert p.dtype == np.float32 and all(
        a.dtype == np.float32 for a in adam.state_dict()["arrays"].values()
    )


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
    with pytest.raises(ValueError, match="Adam: expected a finite lr >= 0, got -1"):
        optim.Adam([p], lr=-1)
    with pytest.raises(
        ValueError, match=r"Adam: expected a finite betas\[0\] >= 0 and < 1, got 1.0"
    ):
        optim.Adam([p], betas=(1.0, 0.9))
    with pytest.raises(
        ValueError, match=r"Adam: unknown settings \['learning_rate'\] in a parameter group"
    ):
        optim.Adam([{"params": [p], "learning_rate": 1}])
    with pytest.raises(ValueError, match="SGD: nesterov needs a momentum"):
        optim.SGD([p], lr=1, nesterov=True)
    with pytest.raises(ValueError, match="SGD: nesterov needs a momentum, and a dampening of 0"):
        optim.SGD([p], 1.0, 0.9, 0.5, 0.0, True)
    with pytest.raises(ValueError, match="SGD: dampening needs a momentum"):
        optim.SGD([p], lr=1, dampening=0.5)
    with pytest.raises(TypeError, match="SGD: maximize must be True or False, got 1"):
        optim.SGD([p], lr=1, maximize=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Adam: amsgrad must be True or False, got 1.0"):
        optim.Adam([p], 1e-3, (0.9, 0.99), 1e-8, 0.0, 1.0)  # type: ignore[arg-type]
    for params in (p, {"params": [p]}, {p}):
        with pytest.raises(TypeError, match="Adam: params must be a list of tensors or of groups"):
            optim.Adam(params)
    before = p.data.copy()
    sgd = optim.SGD([p], lr=1.0, clip_norm=1.0)
    p.grad = np.array([np.nan, 1.0])
    with pytest.raises(
        FloatingPointError, match="the norm of the gradients is nan; detect_anomaly"
    ):
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


KINDS: list[Callable[..., optim.Optimizer]] = [
    lambda ps, **options: optim.SGD(ps, **{"lr": 0.1} | options),
    lambda ps, **options: optim.SGD(ps, **{"lr": 0.1, "momentum": 0.9} | options),
    optim.Adam,
    optim.AdamW,
]
kinds = pytest.mark.parametrize("kind", KINDS, ids=["sgd", "momentum", "adam", "adamw"])


@kinds
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("options", [{}, {"clip_norm": 1.0}, {"weight_decay": 0.1}])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gradient_that_is_not_finite_changes_nothing(
    kind: Any, value: float, options: Any, dtype: Any
) -> None:
    ps = [Tensor(np.ones(3, dtype), requires_grad=True) for _ in range(2)]
    for skip in (False, True):
        optimizer = kind(ps, skip_nonfinite=skip, **options)
        ps[0].grad, ps[1].grad = np.ones(3, dtype), np.array([1, value, 1], dtype)
        before = copy.deepcopy(optimizer.state_dict())
        if skip:
            assert not np.isfinite(optimizer.step()) and optimizer.skipped == 1
        else:
            with pytest.raises(
                FloatingPointError, match="the norm of the gradients is (nan|inf); detect_anomaly"
            ):
                optimizer.step()
        assert all(p.tolist() == [1, 1, 1] for p in ps)
        np.testing.assert_equal(optimizer.state_dict(), before)


def test_a_norm_whose_square_no_float32_holds() -> None:
    p = Tensor(np.zeros(2, np.float32), requires_grad=True)
    p.grad = np.array([3e30, 4e30], np.float32)
    assert optim.SGD([p], lr=1.0, clip_norm=1.0).step() == pytest.approx(5e30, rel=1e-6)
    np.testing.assert_allclose(p.data, [-0.6, -0.8], rtol=1e-6)


BAD_NUMBERS = [float("nan"), float("inf"), -float("inf"), -1, "0.1", None, [0.1], True, 1j]


@pytest.mark.parametrize("name", ["lr", "eps", "weight_decay", "clip_norm", "momentum", "betas"])
@pytest.mark.parametrize("where", ["argument", "group", "later", "state"])
def test_settings_that_cannot_be(name: str, where: str) -> None:
    """Given to the optimizer, to a group, put there by hand, or read from a state: a clear error, and no change."""
    each(BAD_NUMBERS, lambda value: refused(name, value, where))


def refused(name: str, value: Any, where: str) -> None:
    p = Tensor(np.ones(2), requires_grad=True)
    make: Any = (
        (lambda ps, **o: optim.SGD(ps, **{"lr": 0.1, "momentum": 0.5} | o))
        if name == "momentum"
        else optim.Adam
    )
    value = (0.9, value) if name == "betas" else value
    if name == "clip_norm" and (value is None or where != "argument"):
        return
    wanted = pytest.raises((TypeError, ValueError), match=f"(SGD|Adam): expected .*{name}")
    if where == "argument":
        with wanted:
            make([p], **{name: value})
    elif where == "group":
        with wanted:
            make([{"params": [p], name: value}])
    else:
        optimizer = make([p])
        p.grad = np.ones(2)
        if where == "later":
            optimizer.param_groups[0][name] = value
            with wanted:
                optimizer.step()
        else:
            state = optimizer.state_dict()
            state["groups"][0][name] = value
            with wanted:
                optimizer.load_state_dict(state)
            optimizer.step()
            return
        assert p.tolist() == [1, 1]


@pytest.mark.parametrize(
    "betas", [(0.9,), (0.9, 0.99, 0.999), 0.9, "ab", (), (1.0, 0.9), (-0.1, 0.9), ("a", "b")]
)
def test_betas_are_two_numbers(betas: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"AdamW: expected .*betas"):
        optim.AdamW([Tensor(np.ones(1), requires_grad=True)], betas=betas)


def test_states_that_do_not_fit() -> None:
    p = Tensor(np.ones(2), requires_grad=True)
    adam = optim.Adam([p])
    p.grad = np.ones(2)
    adam.step()
    good = copy.deepcopy(adam.state_dict())
    for change, message in [
        (
            lambda s: s["arrays"].__setitem__("0.exp_avg", np.array([1, np.nan])),
            "0.exp_avg holds numbers that are not",
        ),
        (lambda s: s["arrays"].__setitem__("0.exp_avg", np.zeros(3)), "expected arrays"),
        (lambda s: s["arrays"].pop("0.exp_avg"), "expected arrays"),
        (lambda s: s["groups"][0].pop("eps"), "expected settings"),
        (lambda s: s["groups"][0].__setitem__("steps", -1), "expected steps >= 0, got -1"),
        (
            lambda s: s["groups"][0].__setitem__("steps", 1.5),
            "expected a whole number for steps, got 1.5",
        ),
    ]:
        bad = copy.deepcopy(good)
        change(bad)
        with pytest.raises((ValueError, TypeError), match=message):
            adam.load_state_dict(bad)
        np.testing.assert_equal(adam.state_dict(), good)


def test_float16_parameters_are_refused_with_a_reason() -> None:
    p = Tensor(np.ones(2, np.float16), requires_grad=True)
    with pytest.raises(
        TypeError, match=r"Adam: a parameter of shape \(2,\) is float16.*train in float32"
    ):
        optim.Adam([p])
    optim.Adam(
        [Tensor(np.ones(2, np.float16)), Tensor(np.ones(2), requires_grad=True)]
    )  # frozen ones may be


def test_gradients_are_forgotten_or_filled_with_zeros() -> None:
    p, q = (Tensor(np.ones(2), requires_grad=True) for _ in range(2))
    sgd = optim.SGD([p, q], lr=1.0, momentum=0.5)
    p.grad = np.ones(2)
    sgd.step()
    sgd.zero_grad(set_to_none=False)
    assert p.grad is not None and p.grad.tolist() == [0, 0] and q.grad is None
    sgd.step()  # a gradient of zeros still follows the momentum
    assert p.tolist() == [-0.5, -0.5]
    sgd.zero_grad()
    assert p.grad is None
    sgd.step()
    assert p.tolist() == [-0.5, -0.5]


def test_building_an_optimizer_changes_nothing_for_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import minigrad.runtime

    def called() -> bool:
        raise AssertionError("malloc was told to keep memory")

    monkeypatch.setattr(minigrad.runtime, "keep_freed_memory", called)
    optim.Adam([Tensor(np.ones(2), requires_grad=True)])
    assert not hasattr(optim.optimizer, "keep_freed_memory")


# -- each parameter counts its own steps


@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW])
def test_a_first_gradient_at_step_eleven_is_a_first_step(kind: Any) -> None:
    early, late = (Tensor(np.zeros(3), requires_grad=True) for _ in range(2))
    adam = kind([early, late], lr=0.1)
    for _ in range(10):
        early.grad = np.ones(3)
        adam.step()
    early.grad, late.grad = np.ones(3), np.array([2.0, -3.0, 0.5])
    adam.step()
    np.testing.assert_allclose(late.data, [-0.1, 0.1, -0.1], rtol=1e-6)
    state = copy.deepcopy(adam.state_dict())
    assert state["groups"][0]["steps"] == [11, 1]
    again = kind([Tensor(p.data.copy(), requires_grad=True) for p in (early, late)], lr=0.1)
    again.load_state_dict(state)
    for optimizer in (adam, again):
        for p in optimizer.param_groups[0]["params"]:
            p.grad = np.array([1.0, 2.0, 3.0])
        optimizer.step()
    np.testing.assert_array_equal(again.param_groups[0]["params"][1].data, late.data)
    with pytest.raises(ValueError, match="steps must be a number or 2 numbers, got 3"):
        state["groups"][0]["steps"] = [1, 2, 3]
        adam.load_state_dict(state)


# -- parameter groups after construction


def two_leaves() -> list[Tensor]:
    return [Tensor(np.ones(2), requires_grad=True) for _ in range(2)]


def give_gradients(leaves: list[Tensor]) -> None:
    for p in leaves:
        p.grad = np.ones(p.shape)


@kinds
def test_a_group_added_later_is_trained_as_one_from_the_start(kind: Any) -> None:
    late, there = two_leaves(), two_leaves()
    optimizer = kind([late[0]])
    optimizer.add_param_group({"params": late[1], "lr": 0.5})
    other = kind([{"params": [there[0]]}, {"params": [there[1]], "lr": 0.5}])
    for _ in range(3):
        for mine, leaves in ((optimizer, late), (other, there)):
            give_gradients(leaves)
            mine.step()
    for p, q in zip(late, there):
        np.testing.assert_array_equal(p.data, q.data)
    with pytest.raises(ValueError, match="given twice"):
        optimizer.add_param_group({"params": [late[1]]})
    with pytest.raises(TypeError, match="a parameter group must be a dict"):
        optimizer.add_param_group(two_leaves())
    assert len(optimizer.param_groups) == 2


def test_settings_of_param_groups_are_heeded_whoever_holds_them() -> None:
    leaves = two_leaves()
    sgd = optim.SGD(leaves, lr=1.0)
    sgd.param_groups = [dict(group) for group in sgd.param_groups]  # a list of copies
    sgd.param_groups[0]["lr"] = 0.5
    give_gradients(leaves)
    sgd.step()
    assert leaves[0].tolist() == [0.5, 0.5]
    sgd.param_groups[0]["maximize"] = True
    sgd.step()
    assert leaves[0].tolist() == [1.0, 1.0]
    assert sgd.state_dict()["groups"][0]["lr"] == 0.5


@pytest.mark.parametrize(
    "change",
    [
        lambda groups: groups.append({**groups[0], "params": two_leaves()}),
        lambda groups: groups[0].update(params=[]),
        lambda groups: groups[0]["params"].clear(),
        lambda groups: groups[0]["params"].reverse(),
        lambda groups: groups[0]["params"].append(two_leaves()[0]),
        lambda groups: groups.clear(),
    ],
)
def test_parameters_of_param_groups_that_change_are_refused(change: Any) -> None:
    leaves = two_leaves()
    sgd = optim.SGD(leaves, lr=1.0)
    change(sgd.param_groups)
    give_gradients(leaves)
    with pytest.raises(RuntimeError, match=r"the parameters in param_groups have changed; .*add_p"):
        sgd.step()
    assert leaves[0].tolist() == [1, 1]


def test_settings_that_a_group_lacks_or_has_too_many_are_refused() -> None:
    leaves = two_leaves()
    adam = optim.Adam(leaves)
    give_gradients(leaves)
    adam.param_groups[0]["learning_rate"] = 1.0
    with pytest.raises(ValueError, match=r"must have the settings .* for \['learning_rate'\]"):
        adam.step()
    del adam.param_groups[0]["learning_rate"], adam.param_groups[0]["eps"]
    with pytest.raises(ValueError, match=r"must have the settings .* for \['eps'\]"):
        adam.step()


def test_settings_that_need_state_must_be_set_at_the_start() -> None:
    leaves = two_leaves()
    give_gradients(leaves)
    for optimizer, name in ((optim.SGD(leaves, 0.1), "momentum"), (optim.Adam(leaves), "amsgrad")):
        optimizer.param_groups[0][name] = name == "amsgrad" or 0.9
        with pytest.raises(ValueError, match="must be set when the optimizer is made"):
            optimizer.step()
    assert leaves[0].tolist() == [1, 1]


def test_a_parameter_that_was_frozen_is_not_left_out_silently() -> None:
    p, frozen = Tensor(np.ones(2), requires_grad=True), Tensor(np.ones(2))
    sgd = optim.SGD([p, frozen], lr=1.0)
    frozen.requires_grad = True
    give_gradients([p, frozen])
    with pytest.raises(RuntimeError, match=r"shape \(2,\) was frozen when the optimizer was made"):
        sgd.step()


@kinds
def test_a_closure_is_called_and_its_loss_returned(kind: Any) -> None:
    with_closure, plain = two_leaves(), two_leaves()
    optimizer, other = kind(with_closure), kind(plain)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (with_closure[0] * with_closure[1] * 3.0).sum()
        loss.backward()
        return loss

    with mg.no_grad():
        loss = optimizer.step(closure)
    assert loss.item() == 6.0
    (plain[0] * plain[1] * 3.0).sum().backward()
    other.step()
    for p, q in zip(with_closure, plain):
        np.testing.assert_array_equal(p.data, q.data)


# -- numbers at the ends of their range


def gradients_of(dtype: Any, *values: float) -> list[Tensor]:
    leaves = []
    for value in values:
        p = Tensor(np.zeros(2, dtype), requires_grad=True)
        p.grad = np.array([3 * value, 4 * value], dtype)
        leaves.append(p)
    return leaves


@pytest.mark.parametrize(
    "dtype, size",
    [(np.float32, 1e-23), (np.float32, 1e30), (np.float64, 1e-200), (np.float64, 1e200)],
)
def test_the_norm_of_gradients_whose_squares_leave_the_range(dtype: Any, size: float) -> None:
    leaves = gradients_of(dtype, size, 0.0, 2 * size)
    norm = np.sqrt(125.0) * size
    for find in (
        lambda: optim.clip_grad_norm_(leaves, 1e300),
        optim.SGD(leaves, lr=0.0).step,
        lambda: optim.clip_grad_norm_(leaves, 1e-3 * size),
    ):
        np.testing.assert_allclose(find(), norm, rtol=1e-6)
    if size > 1:
        np.testing.assert_allclose(optim.clip_grad_norm_(leaves, 1e300), 1e-3 * size, rtol=1e-5)


def test_clip_grad_norm_takes_a_single_tensor() -> None:
    (p,) = gradients_of(np.float64, 1.0)
    assert optim.clip_grad_norm_(p, 1.0) == 5.0
    np.testing.assert_allclose(p.grad.data, [0.6, 0.8], rtol=1e-5)
    assert optim.clip_grad_norm_([Tensor(np.ones(2), True)], 1.0) == 0.0


@pytest.mark.parametrize(
    "make, value, gradient",
    [
        (lambda ps: optim.Adam(ps), 1.0, 1e30),
        (lambda ps: optim.AdamW(ps, amsgrad=True), 1.0, 1e30),
        (lambda ps: optim.Adam(ps, eps=1e-300), 1.0, 0.0),
        (lambda ps: optim.Adam(ps, lr=1e38), -3e38, 1.0),
        (lambda ps: optim.Adam(ps, weight_decay=1.0), 1e30, 1.0),
        (lambda ps: optim.SGD(ps, lr=1e20), 1.0, 1e30),
        (lambda ps: optim.SGD(ps, lr=1.0, weight_decay=1e37), 1e30, 1.0),
    ],
)
def test_a_step_that_overflows_changes_nothing(
    make: Any, value: float, gradient: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optim.optimizer, "BLOCK", 2)  # several blocks, of which the last overflows
    values = np.array([1e-3, 2e-3, 1.0, value], np.float32)
    p = Tensor(values.copy(), requires_grad=True)
    optimizer = make([p])
    before = copy.deepcopy(optimizer.state_dict())
    p.grad = np.array([1e-3, 2e-3, 1.0, gradient], np.float32)
    with pytest.raises(OverflowError, match=r"float32 cannot hold the step \(.*\) with lr="):
        optimizer.step()
    np.testing.assert_array_equal(p.data, values)
    np.testing.assert_equal(optimizer.state_dict(), before)


# -- who owns a parameter's memory ---------------------------------------------------------------------


def trained(model: nn.Module, optimizer: optim.Optimizer, steps: int) -> list[np.ndarray]:
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    for _ in range(steps):
        optimizer.zero_grad()
        mg.mean(mg.square(model(x))).backward()
        optimizer.step()
    return [p.data.copy() for p in model.parameters()]


def small_model() -> nn.Module:
    return nn.Linear(3, 4, generator=np.random.default_rng(1))


@kinds
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_model_and_optimizer_are_copied_together(kind: Any, copied: Any) -> None:
    model = small_model()
    optimizer = kind(list(model.parameters()))
    trained(model, optimizer, 3)
    twin, its = copied((model, optimizer))
    expected = trained(model, optimizer, 3)
    for p, q in zip(twin.parameters(), model.parameters()):
        assert not np.shares_memory(p.data, q.data)
    for found, right in zip(trained(twin, its, 3), expected):
        np.testing.assert_array_equal(found, right)
    its.param_groups[0]["lr"] = 0.0
    np.testing.assert_array_equal(trained(twin, its, 1)[0], expected[0])


@pytest.mark.parametrize(
    "takes",
    [lambda model: model.astype("float64"), lambda model: optim.SGD(model.parameters(), lr=0.1)],
    ids=["astype", "another optimizer"],
)
def test_an_optimizer_refuses_a_step_when_another_has_taken_the_memory(takes: Any) -> None:
    model = small_model()
    optimizer = optim.Adam(model.parameters())
    before = trained(model, optimizer, 1)
    takes(model)
    model(np.ones((1, 3), model.weight.dtype)).sum().backward()
    with pytest.raises(RuntimeError, match="has other memory than when its optimizer was made"):
        optimizer.step()
    np.testing.assert_array_equal(model.weight.data, before[0])


def test_pruning_takes_the_memory_of_what_is_pruned() -> None:
    attention = nn.MultiHeadSelfAttention(8, 2, dtype="float64", generator=np.random.default_rng(0))
    optimizer = optim.Adam(attention.parameters())
    x = np.random.default_rng(1).standard_normal((2, 3, 8))
    nn.prune_heads(attention, [0])
    assert not np.shares_memory(attention.q_proj.weight.data, optimizer._groups[0].data)
    attention(x).sum().backward()
    before = attention.q_proj.weight.data.copy()
    with pytest.raises(RuntimeError, match="has other memory than when its optimizer was made"):
        optimizer.step()
    np.testing.assert_array_equal(attention.q_proj.weight.data, before)
    after = optim.Adam(attention.parameters())
    after.step()
    assert (attention.q_proj.weight.data != before).any()


def test_values_loaded_into_a_model_are_those_the_optimizer_goes_on_from() -> None:
    model, other = small_model(), nn.Linear(3, 4, generator=np.random.default_rng(2))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    trained(model, optimizer, 2)
    model.load_state_dict(other.state_dict())
    expected = trained(other, optim.SGD(other.parameters(), lr=0.1), 1)
    np.testing.assert_array_equal(trained(model, optimizer, 1)[0], expected[0])


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD"])
def test_state_is_exchanged_with_pytorch(kind: str) -> None:
    torch = pytest.importorskip("torch")
    options = {"lr": 0.1, "weight_decay": 0.05} | (
        {"momentum": 0.9} if kind == "SGD" else {"betas": (0.8, 0.9)}
    )
    rng = np.random.default_rng(0)
    starts = [rng.standard_normal(shape) for shape in ((2, 3), (4,))]
    frozen = Tensor(np.ones(2))
    ours = [Tensor(x.copy(), requires_grad=True) for x in starts]
    theirs = [torch.tensor(x, requires_grad=True) for x in starts]
    mine = getattr(optim, kind)([frozen, *ours], **options)
    its = getattr(torch.optim, kind)([torch.ones(2), *theirs], **options)

    def steps(n: int, change: bool = True) -> None:
        for _ in range(n):
            for p, q in zip(ours, theirs):
                g = rng.standard_normal(p.shape)
                p.grad, q.grad = g.copy(), torch.tensor(g)
            mine.step()
            its.step()
        for p, q in zip(ours, theirs):
            np.testing.assert_allclose(p.data, q.detach().numpy(), rtol=1e-12)

    steps(3)
    fresh = getattr(optim, kind)([frozen, *ours], **options)  # ours goes on from theirs
    fresh.load_parameter_states(its.state_dict()["state"])
    mine = fresh
    steps(3)
    state = its.state_dict()  # theirs goes on from ours
    for i, found in mine.parameter_states().items():
        state["state"][i] = {k: torch.tensor(v if k == "step" else v.copy(), dtype=torch.float64 if k != "step" else torch.float32)
                             for k, v in found.items() if k in state["state"][i]}  # fmt: skip
    its = getattr(torch.optim, kind)([torch.ones(2), *theirs], **options)
    its.load_state_dict(state)
    steps(3)


@pytest.mark.parametrize(
    "kind, options",
    [
        ("Adam", {"lr": 0.1, "amsgrad": True}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
        ("SGD", {"lr": 0.1}),
    ],
)
def test_a_pytorch_state_that_lacks_parameters_is_loaded(kind: str, options: Any) -> None:
    torch = pytest.importorskip("torch")
    starts = [np.ones(3), np.arange(2.0)]
    ours = [Tensor(x.copy(), requires_grad=True) for x in starts]
    theirs = [torch.tensor(x, requires_grad=True) for x in starts]
    mine = getattr(optim, kind)(ours, **options)
    its = getattr(torch.optim, kind)(theirs, **options)
    theirs[0].grad = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    its.step()
    with mg.no_grad():
        ours[0].data[...] = theirs[0].detach().numpy()
    mine.load_parameter_states(its.state_dict()["state"])
    for step in range(3):
        for p, q in zip(ours, theirs):
            g = np.random.default_rng(step).standard_normal(p.shape)
            p.grad, q.grad = g.copy(), torch.tensor(g)
        mine.step()
        its.step()
    for p, q in zip(ours, theirs):
        np.testing.assert_allclose(p.data, q.detach().numpy(), rtol=1e-12)
