"""Optimizers: what a step computes, who owns the memory of parameters, which settings are refused."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor, optim


def leaf(*values: float, dtype: Any = np.float64, gradient: Any = None) -> Tensor:
    """Return a parameter; two ones by default."""
    p = Tensor(np.array(values or [1.0, 1.0], dtype), requires_grad=True)
    if gradient is not None:
        p.grad = np.array(gradient, dtype)
    return p


def give_gradients(*leaves: Tensor) -> None:
    for p in leaves:
        p.grad = np.ones(p.shape)


# -- steps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam_step_equals_the_formulas_of_the_papers(amsgrad: bool) -> None:
    p, x, m, v, largest = leaf(0), 0.0, 0.0, 0.0, 0.0
    adam = optim.Adam([p], lr=0.1, betas=(0.8, 0.9), eps=1e-6, amsgrad=amsgrad)
    for t in range(1, 20):
        g = np.cos(t)
        p.grad = np.array([g])
        adam.step()
        m, v = 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g * g
        largest = max(largest, v) if amsgrad else v
        x -= 0.1 * (m / (1 - 0.8**t)) / (np.sqrt(largest / (1 - 0.9**t)) + 1e-6)
        assert p.tolist() == pytest.approx([x], rel=1e-9)


@pytest.mark.parametrize("dampening, nesterov", [(0.0, False), (0.5, False), (0.0, True)])
def test_sgd_step_with_momentum_equals_its_formula(dampening: float, nesterov: bool) -> None:
    p = leaf(0.0)
    sgd = optim.SGD([p], 1.0, 0.9, dampening, 0.1, nesterov)
    x = m = 0.0
    for step in range(3):
        give_gradients(p)
        sgd.step()
        d = 1.0 + 0.1 * x
        m = 0.9 * m + (1 - dampening) * d if step else d
        x -= d + 0.9 * m if nesterov else m
        assert p.tolist() == pytest.approx([x])


def test_adamw_state_of_float32_parameter_is_float32_and_of_clipped_gradients() -> None:
    p = leaf(dtype=np.float32, gradient=[3, 4])
    adam = optim.AdamW([p], clip_norm=1.0)
    adam.step()
    arrays = adam.state_dict()["arrays"]
    np.testing.assert_allclose(arrays["0.exp_avg"], [0.06, 0.08], rtol=1e-5)
    assert {array.dtype for array in (p.data, *arrays.values())} == {np.dtype(np.float32)}


def test_groups_of_two_dtypes_and_a_frozen_parameter_have_their_own_rates() -> None:
    a, b, frozen = leaf(dtype=np.float32), leaf(), Tensor(np.ones(2))
    sgd = optim.SGD([{"params": [a, frozen]}, {"params": [b], "lr": 1.0}], lr=0.5)
    (a.sum() + b.sum()).backward()
    sgd.step()
    assert a.tolist() == [0.5, 0.5] and b.tolist() == [0, 0] and frozen.tolist() == [1, 1]


@pytest.mark.parametrize("clip_norm, length", [(1.0, 1.0), (100.0, 5.0)])
def test_clip_norm_limits_the_step_but_not_the_gradient(clip_norm: float, length: float) -> None:
    p = leaf(0, 0, gradient=[3, 4])
    assert optim.SGD([p], lr=1.0, clip_norm=clip_norm).step() == pytest.approx(5.0)
    assert np.linalg.norm(p.data) == pytest.approx(length, rel=1e-5)
    assert p.grad.tolist() == [3, 4]


def test_adam_counts_the_steps_of_each_parameter() -> None:
    """A first gradient at step 11 gives a first step, also after a state is loaded."""
    early, late = leaf(0), leaf(0, 0)
    adam = optim.Adam([early, late], lr=0.1)
    for _ in range(10):
        give_gradients(early)
        adam.step()
    resumed = optim.Adam([early, late], lr=0.1)
    resumed.load_state_dict(adam.state_dict())
    give_gradients(early)
    late.grad = np.array([2.0, -3.0])
    resumed.step()
    np.testing.assert_allclose(late.data, [-0.1, 0.1], rtol=1e-6)
    assert resumed.state_dict()["groups"][0]["steps"] == [11, 1]


def test_zero_grad_fills_with_zeros_or_forgets() -> None:
    p, q = leaf(gradient=[1, 1]), leaf()
    sgd = optim.SGD([p, q])
    sgd.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0, 0] and q.grad is None
    sgd.zero_grad()
    assert p.grad is None


def test_step_with_a_closure_records_its_loss_and_returns_it() -> None:
    p = leaf()

    def closure() -> Tensor:
        loss = (p * 3.0).sum()
        loss.backward()
        return loss

    with mg.no_grad():
        assert optim.SGD([p], lr=0.1).step(closure).item() == 6.0
    assert p.tolist() == pytest.approx([0.7, 0.7])


# -- parameter groups ------------------------------------------------------------------------------------


def test_group_added_later_is_trained_as_one_from_the_start() -> None:
    early, late = leaf(0), leaf(0)
    sgd = optim.SGD([early], lr=1.0, momentum=0.9)
    sgd.add_param_group({"params": late, "lr": 0.5})
    for _ in range(2):
        give_gradients(early, late)
        sgd.step()
    assert [early.item(), late.item()] == pytest.approx([-2.9, -1.45])


def test_param_groups_replaced_by_copies_are_read() -> None:
    p = leaf(gradient=[1, 1])
    sgd = optim.SGD([p], lr=1.0)
    sgd.param_groups = [{**sgd.param_groups[0], "lr": 0.5, "maximize": True}]
    sgd.step()
    assert p.tolist() == [1.5, 1.5] and sgd.state_dict()["groups"][0]["lr"] == 0.5


MOVED = r"the parameters in param_groups have changed; .*add_p"


@pytest.mark.parametrize(
    "make, change, message",
    [
        (optim.SGD, lambda gs: gs.append({**gs[0], "params": [leaf()]}), MOVED),
        (optim.SGD, lambda gs: gs[0]["params"].reverse(), MOVED),
        (optim.SGD, lambda gs: gs[0]["params"].append(leaf()), MOVED),
        (
            optim.SGD,
            lambda gs: setattr(gs[0]["params"][-1], "requires_grad", True),
            r"shape \(2,\) was frozen when the optimizer was made",
        ),
        (optim.SGD, lambda gs: gs[0].update(momentum=0.9), "set when the optimizer is made"),
        (optim.Adam, lambda gs: gs[0].update(learning_rate=1.0), r"for \['learning_rate'\]"),
        (optim.Adam, lambda gs: gs[0].pop("eps"), r"must have the settings .* for \['eps'\]"),
    ],
)
def test_step_after_change_of_param_groups_is_refused(make: Any, change: Any, message: str) -> None:
    optimizer = make([leaf(), Tensor(np.ones(2))])
    change(optimizer.param_groups)
    with pytest.raises((RuntimeError, ValueError), match=message):
        optimizer.step()


# -- arguments and states that are refused -----------------------------------------------------------------

P = leaf()


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: optim.Adam([Tensor([1.0])]), ValueError, "Adam: no parameter requires gradients"),
        (lambda: optim.Adam(nn.Linear(2, 3)), TypeError, "got Linear; pass model.parameters()"),
        (lambda: optim.SGD([P * 2]), TypeError, "SGD: params must be leaf tensors, got"),
        (lambda: optim.Adam([P, P]), ValueError, r"a parameter of shape \(2,\) is given twice"),
        (lambda: optim.Adam([P]).add_param_group([P]), TypeError, "group must be a dict"),
        (
            lambda: optim.Adam([{"params": [P], "learning_rate": 1}]),
            ValueError,
            r"Adam: unknown settings \['learning_rate'\]",
        ),
        (
            lambda: optim.SGD([{"lr": 0.1}], 0.1),
            ValueError,
            r"SGD: a parameter group must have the key \"params\", got \['lr'\]",
        ),
        (lambda: optim.SGD([P], dampening=0.5), ValueError, "greater than 0 if there is a damp"),
        (lambda: optim.Adam([P], clip_norm=0.0), ValueError, "clip_norm must be finite, greater"),
        (lambda: optim.AdamW([P], betas=(0.9,)), ValueError, "betas must be two numbers, got"),
        (lambda: optim.Adam([leaf(dtype=np.float16)]), TypeError, "is float16.*train in float32"),
    ],
)
def test_optimizer_refuses_argument(make: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


SETTINGS: dict[str, Any] = {
    "lr": optim.Adam,
    "eps": optim.Adam,
    "weight_decay": optim.Adam,
    "betas": optim.Adam,
    "momentum": optim.SGD,
}


@pytest.mark.parametrize("value", [np.nan, -1, "0.1", True])
@pytest.mark.parametrize("name", SETTINGS)
def test_optimizer_setting_that_is_no_valid_number_is_refused_everywhere(
    name: str, value: Any
) -> None:
    """As an argument, in a group, in a state, and set later."""
    make, p = SETTINGS[name], leaf(gradient=[1, 1])
    value = (0.9, value) if name == "betas" else value
    refused = pytest.raises((TypeError, ValueError), match=rf"(SGD|Adam): {name}(\[1\])? must be ")
    with refused:
        make([p], **{name: value})
    with refused:
        make([{"params": [p], name: value}])
    optimizer = make([p])
    state = optimizer.state_dict()
    state["groups"][0][name] = value
    with refused:
        optimizer.load_state_dict(state)
    optimizer.param_groups[0][name] = value
    with refused:
        optimizer.step()
    assert p.tolist() == [1, 1]


@pytest.mark.parametrize("number", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("make", [optim.SGD, optim.Adam, optim.AdamW])
def test_optimizer_settings_of_numpy_act_as_python_numbers(make: Any, number: Any) -> None:
    """In steps, which are computed in the dtype of the parameters, and in files."""
    states = []
    for convert in (number, lambda value: float(number(value))):
        p = leaf(*np.linspace(-1, 1, 99), dtype=np.float32, gradient=np.linspace(1, 3, 99))
        optimizer = make([p], lr=convert(1), weight_decay=convert(0.1), maximize=np.bool_(True))
        optimizer.step()
        optimizer.param_groups[0]["lr"] = convert(0.3)
        optimizer.step()
        states.append([p.tolist(), json.dumps(optimizer.state_dict()["groups"])])
    assert states[0] == states[1]


def test_add_param_group_that_is_refused_changes_nothing() -> None:
    p, frozen = leaf(gradient=[1, 1]), Tensor(np.ones(2))
    sgd = optim.SGD([p])
    with pytest.raises(ValueError, match="is given twice"):
        sgd.add_param_group({"params": [frozen, p]})
    frozen.requires_grad = True
    sgd.step()


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda s: s["arrays"].update({"0.exp_avg": np.array([1, np.nan])}), "must be finite, got"),
        (lambda s: s["arrays"].update({"0.exp_avg": np.array([1, 1e300])}), "must be finite, got"),
        (lambda s: s["arrays"].pop("0.exp_avg"), "state must have the arrays"),
        (lambda s: s.pop("groups"), "state must have the keys"),
        (lambda s: s["groups"][0].pop("eps"), "state must have the settings"),
        (lambda s: s["groups"][0].update(steps=[1, 2, 3]), "must be one number or 1, got 3"),
    ],
)
def test_load_state_dict_refuses_state_and_keeps_its_own(change: Any, message: str) -> None:
    adam = optim.Adam([leaf(dtype=np.float32, gradient=[1, 1])])
    adam.step()
    before = copy.deepcopy(adam.state_dict())
    state = copy.deepcopy(before)
    change(state)
    with pytest.raises((ValueError, TypeError), match=message):
        adam.load_state_dict(state)
    np.testing.assert_equal(adam.state_dict(), before)


# -- values at the ends of their range -----------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_step_with_gradient_that_is_not_finite_changes_nothing(value: float) -> None:
    p = leaf(gradient=[1, value])
    adam = optim.Adam([p], clip_norm=1.0)
    with pytest.raises(FloatingPointError, match="norm of the gradients is (nan|inf); detect_anom"):
        adam.step()
    adam.skip_nonfinite = True
    assert not np.isfinite(adam.step()) and adam.skipped == 1
    assert p.tolist() == [1, 1] and adam.state_dict()["groups"][0]["steps"] == 0


@pytest.mark.parametrize("size", [1e-6, 2e-4, 1.0, 4e4])
def test_clip_grad_norm_of_float16_gradients_is_computed_in_single_precision(size: float) -> None:
    p = leaf(*np.zeros(500), dtype=np.float16, gradient=np.full(500, size, np.float16))
    norm = np.sqrt(500) * float(np.float16(size))
    assert optim.clip_grad_norm_(p, 1e9) == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize("dtype, size", [(np.float32, 1e-23), (float, 1e200)])
def test_norm_of_gradients_whose_squares_overflow_is_right(dtype: Any, size: float) -> None:
    leaves = [leaf(0, 0, dtype=dtype, gradient=[3 * size * f, 4 * size * f]) for f in (1, 0, 2)]
    norm = pytest.approx(np.sqrt(125.0) * size, rel=1e-6, abs=0)
    assert optim.SGD(leaves, lr=0.0).step() == norm
    assert optim.clip_grad_norm_(leaves, 1e300) == norm


def test_clip_grad_norm_takes_a_single_tensor() -> None:
    p = leaf(gradient=[3, 4])
    assert optim.clip_grad_norm_(p, 1.0) == 5.0
    np.testing.assert_allclose(p.grad.data, [0.6, 0.8], rtol=1e-5)
    assert optim.clip_grad_norm_([leaf()], 1.0) == 0.0


@pytest.mark.parametrize(
    "kind, options, value, gradient",
    [
        (optim.Adam, {}, 1.0, 1e30),
        (optim.Adam, {"eps": 1e-300}, 1.0, 0.0),
        (optim.Adam, {"lr": 1e38}, -3e38, 1.0),
        (optim.Adam, {"weight_decay": 1.0}, 1e30, 1.0),
        (optim.SGD, {"lr": 1.0, "weight_decay": 1e37}, 1e30, 1.0),
    ],
)
def test_step_that_overflows_changes_nothing(
    kind: Any, options: Any, value: float, gradient: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optim.optimizer, "BLOCK", 2)  # several blocks, of which the last overflows
    p = leaf(1e-3, 2e-3, 1.0, value, dtype=np.float32, gradient=[1e-3, 2e-3, 1.0, gradient])
    optimizer, values = kind([p], **options), p.data.copy()
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(OverflowError, match=r"float32 cannot hold the step \(.*\) with lr="):
        optimizer.step()
    np.testing.assert_array_equal(p.data, values)
    np.testing.assert_equal(optimizer.state_dict(), before)


# -- memory ------------------------------------------------------------------------------------------------


def test_optimizer_keeps_values_in_one_array_and_trains_loaded_ones() -> None:
    model = nn.Linear(3, 4, dtype="float64")
    before = model.weight.data.copy()
    sgd = optim.SGD(model.parameters(), lr=1.0)
    np.testing.assert_array_equal(model.weight.data, before)
    assert model.weight.data.base is model.bias.data.base is not None
    model.load_state_dict({"weight": before + 1, "bias": np.zeros(4)})
    give_gradients(*model.parameters())
    sgd.step()
    np.testing.assert_allclose(model.weight.data, before)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_model_and_optimizer_copied_together_train_alike(copied: Any) -> None:
    def train(model: nn.Linear, optimizer: optim.Adam) -> None:
        optimizer.zero_grad()
        mg.square(model(np.ones((1, 3)))).sum().backward()
        optimizer.step()

    model = nn.Linear(3, 4, dtype="float64")
    pair = model, optim.Adam(model.parameters(), lr=0.1)
    train(*pair)
    twin = copied(pair)
    for _ in range(2):
        train(*pair)
        train(*twin)
    np.testing.assert_array_equal(twin[0].weight.data, model.weight.data)


@pytest.mark.parametrize(
    "take_memory",
    [
        lambda model: model.astype("float64"),
        lambda model: optim.SGD(model.parameters()),
        lambda model: setattr(model.weight, "data", model.weight.data[::-1]),
        lambda model: setattr(model.bias, "data", model.weight.data[:, 0]),
    ],
    ids=["astype", "another optimizer", "reversed", "part of another parameter"],
)
def test_step_after_parameters_moved_is_refused(take_memory: Any) -> None:
    model = nn.Linear(3, 4)
    optimizer = optim.Adam(model.parameters())
    take_memory(model)
    with pytest.raises(RuntimeError, match="has other memory than when its optimizer was made"):
        optimizer.step()
