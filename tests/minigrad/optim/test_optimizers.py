"""Optimizers: what a step computes, who owns the memory of parameters, which settings are refused."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples

import minigrad as mg
import nn
from minigrad import Tensor, optim
from minigrad.fast import stepper
from minigrad.optimizer import Stepper, norm_of


def leaf(*values: float, dtype: Any = np.float64, gradient: Any = None) -> Tensor:
    """Return a parameter; two ones by default."""
    p = Tensor(np.array(values or [1.0, 1.0], dtype), requires_grad=True)
    if gradient is not None:
        p.grad = np.array(gradient, dtype)
    return p


def give_gradients(*leaves: Tensor) -> None:
    for p in leaves:
        p.grad = np.ones(p.shape, p.dtype)


# -- steps -----------------------------------------------------------------------------------------------


def test_groups_of_two_dtypes_and_a_frozen_parameter_have_their_own_rates() -> None:
    a, b, frozen = leaf(dtype=np.float32), leaf(), Tensor(np.ones(2))
    sgd = optim.SGD([{"params": [a, frozen]}, {"params": [b], "lr": 1.0}], lr=0.5)
    (a.sum() + b.sum()).backward()
    sgd.step()
    assert a.tolist() == [0.5, 0.5] and b.tolist() == [0, 0] and frozen.tolist() == [1, 1]


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


def test_param_groups_replaced_by_copies_are_read() -> None:
    p = leaf(gradient=[1, 1])
    sgd = optim.SGD([p], lr=1.0)
    sgd.param_groups = [{**sgd.param_groups[0], "lr": 0.5, "maximize": True}]
    sgd.step()
    assert p.tolist() == [1.5, 1.5] and sgd.state_dict()["groups"][0]["lr"] == 0.5


@pytest.mark.parametrize("missing", range(3))
def test_state_of_parameters_that_took_other_numbers_of_steps_continues(missing: int) -> None:
    leaves = [leaf(), leaf(), leaf()]
    adam = optim.Adam(leaves)
    give_gradients(*[p for i, p in enumerate(leaves) if i != missing])
    adam.step()
    steps = [int(i != missing) for i in range(3)]
    assert adam.state_dict()["groups"][0]["steps"] == steps
    again = optim.Adam(leaves)
    again.load_state_dict(adam.state_dict())
    assert [again.state[p]["step"] for p in leaves] == steps


def test_state_without_options_that_are_off_continues_and_with_others_that_are_off() -> None:
    state = optim.SGD([leaf()], lr=0.5).state_dict()
    for change in (lambda s: s.pop("nesterov"), lambda s: s.update(other=False)):
        sgd, changed = optim.SGD([leaf()]), copy.deepcopy(state)
        change(changed["groups"][0])
        sgd.load_state_dict(changed)
        assert sgd.state_dict() == state


@pytest.mark.parametrize(
    "write",
    [
        lambda p: optim.clip_grad_norm_(p, 0.5),
        lambda p: optim.SGD([p]).zero_grad(set_to_none=False),
        lambda p: (p * 2).sum().backward(),
    ],
)
def test_graph_that_needs_a_gradient_is_refused_after_a_write_to_it(write: Any) -> None:
    p, x = leaf(gradient=[1, 1]), leaf()
    y = (x * p.grad).sum()
    write(p)
    with pytest.raises(mg.GradientError, match="multiply: an array .* was changed in place"):
        y.backward()


def test_group_may_be_one_tensor() -> None:
    p, q = leaf(gradient=[1, 2]), leaf(gradient=[3, 4])
    sgd = optim.SGD([{"params": p}], lr=1.0)
    sgd.add_param_group({"params": q, "lr": 0.5})
    sgd.step()
    assert p.tolist() == [0, -1] and q.tolist() == [-0.5, -1]


@pytest.mark.parametrize("frozen", [False, True])
def test_parameter_of_half_precision_that_would_be_changed_is_refused(frozen: bool) -> None:
    p = leaf(dtype=np.float16, gradient=[1, 1])
    p.requires_grad = not frozen
    with pytest.raises(TypeError, match="is float16, whose steps would be rounded away"):
        optim.SGD([leaf(), p])
    p.grad, p.requires_grad = None, False
    assert len(optim.SGD([leaf(), p]).state) == 1


def test_groups_of_a_caller_do_not_change_and_make_several_optimizers() -> None:
    groups = [{"params": [leaf()]}, {"params": (leaf(),), "momentum": 0.5}]
    before = [dict(group) for group in groups]
    for lr in (0.1, 0.2):
        sgd = optim.SGD(groups, lr=lr)
        sgd.param_groups[0]["lr"] = 0.5
        assert groups == before and sgd.param_groups[1]["lr"] == lr


@pytest.mark.parametrize(("options", "result"), [({}, 2.0), ({"maximize": False}, 0.0)])
def test_option_is_that_of_the_caller_before_the_default_of_a_subclass(
    options: Any, result: float
) -> None:
    class Ascent(optim.SGD):
        def __init__(self, params: Any, **options: Any) -> None:
            defaults = {"lr": 1.0, "momentum": 0.0, "weight_decay": 0.0, "maximize": True}
            optim.Optimizer.__init__(self, params, defaults, **options)

    p = leaf(1.0, gradient=[1])
    Ascent([p], **options).step()
    assert p.item() == result


NEW = r"shape \(2,\) was frozen when the optimizer was made, or not added by add_p"


@pytest.mark.parametrize(
    "make, change, message",
    [
        (optim.SGD, lambda gs: gs.append({**gs[0], "params": [leaf()]}), NEW),
        (optim.SGD, lambda gs: gs[0]["params"].append(leaf()), NEW),
        (optim.SGD, lambda gs: setattr(gs[0]["params"][-1], "requires_grad", True), NEW),
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


def test_frozen_parameter_with_a_gradient_is_changed_until_the_gradient_is_removed() -> None:
    p = leaf(gradient=[1, 2])
    p.requires_grad = False
    sgd = optim.SGD([p], lr=1.0)
    for _ in range(2):
        sgd.step()
        assert p.tolist() == [0, -1]
        sgd.zero_grad()


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_step_after_a_frozen_parameter_requires_gradients_is_refused(steps: int) -> None:
    p, frozen = leaf(), Tensor(np.ones(2))
    optimizer = optim.Adam([p, frozen])
    for _ in range(steps):
        p.grad = np.ones(2)
        optimizer.step()
    frozen.requires_grad = True
    with pytest.raises(RuntimeError, match=NEW):
        optimizer.step()


def test_momentum_of_a_group_may_be_turned_on_if_the_default_has_one() -> None:
    p, q = leaf(gradient=[1, 2]), leaf(gradient=[1, 2])
    first, other = optim.SGD([{"params": [p], "momentum": 0}], momentum=0.9), optim.SGD([q])
    first.step(), other.step()
    first.param_groups[0]["momentum"] = 0.5
    for _ in range(2):
        first.step()
    rates = 0.001 * (1 + 1.5)  # of the first gradient, and of its half and itself
    np.testing.assert_allclose(p.data, q.data - rates * np.array([1, 2]), rtol=1e-12)


@pytest.mark.parametrize(
    "make, setting, value, off",
    [(optim.SGD, "momentum", 0.9, 0.0), (optim.Adam, "amsgrad", True, False)],
)
def test_step_after_state_is_no_longer_needed_does_not_use_it(
    make: Any, setting: str, value: Any, off: Any
) -> None:
    p, q = leaf(gradient=[1, 2]), leaf(gradient=[1, 2])
    first, other = make([{"params": [p], setting: value}]), make([q])
    for optimizer in (first, other):
        optimizer.step()
    first.param_groups[0][setting] = off
    p.grad, q.grad = Tensor([2.0, 1.0]), Tensor([2.0, 1.0])
    for optimizer in (first, other):
        optimizer.step()
    np.testing.assert_allclose(p.data, q.data, rtol=1e-12)


def test_clip_grad_norm_of_a_gradient_that_is_not_finite_raises() -> None:
    for value in (np.inf, np.nan):
        p = leaf()
        p.grad = Tensor(np.full(p.shape, value))
        with pytest.raises(FloatingPointError, match="the norm of the gradients is (inf|nan)"):
            optim.clip_grad_norm_([p], 1.0)


# -- arguments and states that are refused -----------------------------------------------------------------

P = leaf()


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: optim.Adam([Tensor([1.0])]), ValueError, "Adam: no parameter requires gradients"),
        (lambda: optim.Adam(nn.Linear(2, 3)), TypeError, "got Linear; pass model.parameters()"),
        (lambda: optim.SGD([P * 2]), TypeError, "SGD: params must be leaf tensors, got"),
        *(
            (
                lambda p=p: optim.SGD(p),
                TypeError,
                "params must be a list of tensors or of groups, got",
            )
            for p in (P, {"params": [P]}, {P})
        ),
        (lambda: optim.SGD(["P"]), TypeError, "SGD: params must be leaf tensors, got 'P'"),
        (
            lambda: optim.SGD([{"params": {P}}]),
            TypeError,
            "params must be a list, whose order is fixed",
        ),
        (lambda: optim.SGD([P], warp=1), TypeError, r"SGD: unknown arguments \['warp'\]"),
        (
            lambda: optim.Adam([P], amsgrad="no"),
            TypeError,
            "amsgrad must be True or False, got 'no'",
        ),
        (lambda: optim.Adam([P], skip_nonfinite=1), TypeError, "must be True or False, got 1"),
        (lambda: optim.Adam([P, P]), ValueError, "Adam: a parameter is given twice"),
        (lambda: optim.Adam([P]).add_param_group([P]), TypeError, "group must be a dict"),
        (
            lambda: optim.Adam([{"params": [P], "learning_rate": 1}]),
            ValueError,
            r"Adam: unknown settings \['learning_rate'\]",
        ),
        (
            lambda: optim.SGD([{"lr": 0.1}], 0.1),
            TypeError,
            r"SGD: a parameter group must be a dict with the key \"params\", got {'lr': 0.1}",
        ),
        (lambda: optim.SGD([{"params": [P], "lr": 1}], lr=-1), ValueError, "lr must be .* got -1"),
        (lambda: optim.SGD([P], dampening=0.5), ValueError, "greater than 0 if there is a damp"),
        (lambda: optim.Adam([P], clip_norm=0.0), ValueError, "clip_norm must be finite, greater"),
        (lambda: optim.AdamW([P], betas=(0.9,)), ValueError, "betas must be two numbers, got"),
        (lambda: optim.Adam([leaf(dtype=np.float16)]), TypeError, "is float16.*train in float32"),
        (
            lambda: optim.Adam([P], betas=(1.0, 0.9)),
            ValueError,
            r"betas\[0\] must be .* less than 1",
        ),
        (
            lambda: optim.Adam([P], betas=(0.9, 1.0)),
            ValueError,
            r"betas\[1\] must be .* less than 1",
        ),
        (lambda: optim.Adam([P], eps=0.0), ValueError, "eps must be finite, greater than 0, got 0"),
        (lambda: optim.SGD([P], momentum=0.9, dampening=-0.5), ValueError, "dampening must be"),
        (lambda: optim.SGD([P], nesterov=True), ValueError, "momentum must be greater than 0 and"),
        (
            lambda: optim.SGD([P], momentum=0.9, dampening=0.1, nesterov=True),
            ValueError,
            "momentum must be greater than 0 and dampening 0 if nesterov is True",
        ),
    ],
)
def test_optimizer_refuses_argument(make: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


ADAM = {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8, "amsgrad": False}
SGD = {"lr": 0.001, "momentum": 0.0, "dampening": 0.0, "nesterov": False}
COMMON = {"maximize": False, "clip_norm": None, "skip_nonfinite": False}


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (optim.SGD, {**SGD, **COMMON, "weight_decay": 0.0}),
        (optim.Adam, {**ADAM, **COMMON, "weight_decay": 0.0}),
        (optim.AdamW, {**ADAM, **COMMON, "weight_decay": 0.01}),
    ],
)
@given(
    gradients=st.lists(st.lists(st.floats(-100, 100), min_size=2, max_size=2), min_size=2, max_size=4)
)  # fmt: skip
def test_optimizer_without_settings_takes_the_steps_of_the_default_values(
    make: Any, settings: dict[str, Any], gradients: list[list[float]]
) -> None:
    results = []
    for options in ({}, settings):
        p = leaf(1.0, -2.0, gradient=[0.0, 0.0])
        optimizer = make([p], **options)
        for g in gradients:
            p.grad = Tensor(g)
            optimizer.step()
        results.append(p.tolist())
    assert results[0] == results[1]
    with pytest.raises(FloatingPointError, match="norm of the gradients is inf"):
        p.grad = Tensor([np.inf, 0.0])
        make([p]).step()


def test_optimizer_takes_the_least_settings() -> None:
    p = leaf(1.0, 2.0, gradient=[1, 1])
    optim.SGD([p], lr=0, momentum=0, dampening=0, weight_decay=0).step()
    optim.Adam([p], lr=0, weight_decay=0, betas=(0, 0)).step()
    assert p.tolist() == [1, 2]


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
        (lambda s: s["groups"].append(s["groups"][0]), "of 1 groups, got .* of 2"),
        (lambda s: s["groups"].clear(), "of 1 groups, got .* of 0"),
        (lambda s: s.pop("groups"), "state must have the keys"),
        (lambda s: s["groups"][0].pop("eps"), "state must have the settings"),
        (lambda s: s["groups"][0].update(momentum=0.9), "state must have the settings"),
        (lambda s: s["groups"][0].update(steps=[1, 2, 3]), "must be one number or 1, got 3"),
        (lambda s: s["groups"][0].update(steps=[]), "must be one number or 1, got 0"),
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
    adam.stepper.skip_nonfinite = True
    for count in (1, 2):
        assert not np.isfinite(adam.step()) and adam.stepper.skipped == count
    assert p.tolist() == [1, 1] and adam.state_dict()["groups"][0]["steps"] == 0


@pytest.mark.parametrize("size", [1e-6, 2e-4, 1.0, 4e4])
def test_clip_grad_norm_of_float16_gradients_is_computed_in_single_precision(size: float) -> None:
    p = leaf(*np.zeros(500), dtype=np.float16, gradient=np.full(500, size, np.float16))
    norm = np.sqrt(500) * float(np.float16(size))
    assert optim.clip_grad_norm_(p, 1e9) == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize("dtype, size", [(np.float32, 1e-23), (float, 1e200)])
def test_norm_of_gradients_whose_squares_overflow_is_right(dtype: Any, size: float) -> None:
    leaves = [leaf(0, 0, dtype=dtype, gradient=[3 * size * f, 4 * size * f]) for f in (1, 0, 2)]
    norm = pytest.approx(np.sqrt(125.0) * size, rel=1e-6, abs=0)
    assert optim.SGD(leaves, lr=0.0).step() == norm
    assert optim.clip_grad_norm_(leaves, 1e300) == norm


@pytest.mark.parametrize("size", [1e-23, 1.0, 1e25])
def test_norm_of_single_precision_far_from_1_has_all_digits(size: float) -> None:
    x = (np.random.default_rng(0).normal(size=9) * size).astype(np.float32)
    expected = np.linalg.norm(x.astype(float))
    assert norm_of([x[:4], x[4:]]) == pytest.approx(
        expected, rel=1e-6 if size == 1 else 1e-14, abs=0
    )


def test_clip_grad_norm_takes_a_single_tensor() -> None:
    p = leaf(gradient=[3, 4])
    assert optim.clip_grad_norm_(p, 1.0) == 5.0
    np.testing.assert_allclose(p.grad.data, np.array([3, 4]) / (5 + 1e-6), rtol=1e-14)
    assert optim.clip_grad_norm_([leaf()], 1.0) == 0.0
    p, q = leaf(0, 0, gradient=[3, 4]), leaf(gradient=[0, 0])
    optim.SGD([p, q], lr=1.0, clip_norm=2.0).step()
    np.testing.assert_allclose(p.data, np.array([-6, -8]) / (5 + 1e-6), rtol=1e-14)
    assert optim.clip_grad_norm_(q, 0.0) == 0.0 and q.grad.tolist() == [0, 0]


@pytest.mark.parametrize(
    "kind, options, value, gradient",
    [
        (optim.Adam, {}, 1.0, 1e30),
        (optim.Adam, {"eps": 1e-300}, 1.0, 0.0),
        (optim.Adam, {"eps": 1e-300}, 1.0, 1e-30),  # whose square is 0
        (optim.Adam, {"lr": 1e38}, -3e38, 1.0),
        (optim.Adam, {"weight_decay": 1.0}, 1e30, 1.0),
        (optim.Adam, {"weight_decay": 999.0}, 1e17, 1.0),  # whose square is far from the largest
        (optim.SGD, {"lr": 1.0, "weight_decay": 1e37}, 1e30, 1.0),
    ],
)
@pytest.mark.parametrize("has_flags", [True, False], ids=["flags", "no flags"])
def test_step_that_overflows_changes_nothing(
    kind: Any,
    options: Any,
    value: float,
    gradient: float,
    has_flags: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stepper, "BLOCK", 2)  # several blocks, of which the last overflows
    if not has_flags:  # as in WebAssembly
        errstate = np.errstate
        monkeypatch.setattr(np, "errstate", lambda **_: errstate(all="ignore"))
        monkeypatch.setattr(stepper, "HAS_FLAGS", stepper._has_flags())
    p = leaf(1e-3, 2e-3, 1.0, value, dtype=np.float32, gradient=[1e-3, 2e-3, 1.0, gradient])
    optimizer, values = kind([p], **options), p.data.copy()
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(OverflowError, match=r"float32 cannot hold the step \(.*\) with lr="):
        optimizer.step()
    np.testing.assert_array_equal(p.data, values)
    np.testing.assert_equal(optimizer.state_dict(), before)


def test_step_whose_momentum_overflows_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepper, "BLOCK", 2)  # the first block does not overflow
    p = leaf(0.0, 0.0, 0.0, dtype=np.float32, gradient=[1, 1, 1e12])
    sgd = optim.SGD([p], lr=1e-3, momentum=1e30)
    sgd.step()
    values, before = p.data.copy(), copy.deepcopy(sgd.state_dict())
    with pytest.raises(OverflowError, match="float32 cannot hold the step"):
        sgd.step()
    np.testing.assert_array_equal(p.data, values)
    np.testing.assert_equal(sgd.state_dict(), before)


# -- memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam])
@pytest.mark.parametrize(("size", "block"), [(3, 7), (10, 7), (3, 100)])
def test_step_writes_into_the_memory_that_others_share(
    make: Any, size: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parameter's array, its `detach()`, and parameters tied by it, in few or several blocks."""
    monkeypatch.setattr(stepper, "BLOCK", block)
    given = np.linspace(-1, 1, 2 * size).reshape(2, size)
    p, q = Tensor(given, requires_grad=True), leaf(3.0)
    tied = Tensor(np.zeros_like(given), requires_grad=True)
    tied.data = p.data
    part = Tensor(given[:1], requires_grad=True)
    aliases, before = (p.detach(), p.data[:, ::-1]), given.copy()
    optimizer = make([p, q, tied, part], lr=0.5)
    for leaves in ([p, q, tied], [p], [part, tied]):
        optimizer.zero_grad()
        give_gradients(*leaves)
        optimizer.step()
    assert not np.any(given == before)
    for array in (p.data, tied.data, aliases[0].data, aliases[1][:, ::-1]):
        np.testing.assert_array_equal(array, given)
    np.testing.assert_array_equal(part.data, given[:1])
    if make is optim.SGD:
        np.testing.assert_allclose(given, before - [[2.5], [2.0]])


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda x: x[:, ::-1].copy()[:, ::-1]])
def test_step_changes_parameters_of_any_layout(
    layout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepper, "BLOCK", 4)
    values, gradient = np.random.default_rng(0).normal(size=(2, 3, 5))
    p = Tensor(layout(values.copy()), requires_grad=True)
    sgd = optim.SGD([p, leaf()], lr=1.0)
    p.grad = Tensor(layout(gradient.copy()))
    sgd.step()
    np.testing.assert_allclose(p.data, values - gradient)


def test_parameter_that_is_read_only_gets_a_copy() -> None:
    given = np.ones(2)
    given.flags.writeable = False
    p = Tensor(given, requires_grad=True)
    sgd = optim.SGD([p], lr=1.0)
    give_gradients(p)
    sgd.step()
    assert p.tolist() == [0, 0] and given.tolist() == [1, 1]


def test_state_dict_is_not_changed_by_later_steps() -> None:
    p = leaf(gradient=[1, 1])
    adam = optim.Adam([p])
    adam.step()
    kept = adam.state_dict()
    before = copy.deepcopy(kept)
    adam.step()
    np.testing.assert_equal(kept, before)


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


@pytest.mark.parametrize("has_stepped", [True, False])
def test_step_after_astype_is_refused(has_stepped: bool) -> None:
    model = nn.Linear(3, 4)
    optimizer = optim.Adam(model.parameters())
    if has_stepped:
        optimizer.step()
    model.astype("float64")
    with pytest.raises(RuntimeError, match="had another shape or dtype when its optimizer"):
        optimizer.step()


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam])
def test_step_after_pruning_is_refused(make: Any) -> None:
    attention = nn.MultiHeadAttention(4, 2)
    optimizer = make(attention.parameters())
    optimizer.step()
    nn.prune_heads(attention, [0])
    with pytest.raises(RuntimeError, match="had another shape or dtype when its optimizer"):
        optimizer.step()


def test_state_with_zeros_stays_when_a_group_is_added() -> None:
    p, q = leaf(gradient=[1, 0]), leaf(gradient=[1, 1])
    sgd = optim.SGD([p], lr=1.0, momentum=0.5)
    sgd.step()
    sgd.add_param_group({"params": [q]})
    sgd.step()
    assert p.tolist() == [-1.5, 1.0] and q.tolist() == [0, 0]


def test_step_changes_parameters_that_overlap_one_after_another() -> None:
    base = np.zeros((3, 3))
    views = (base, base.T, base[:, ::2], base[::-1], base[:, :0])
    leaves = [Tensor(x, requires_grad=True) for x in views]
    optimizer = optim.SGD(leaves, lr=1.0)
    for i, p in enumerate(leaves):
        p.grad = np.random.default_rng(i).standard_normal(p.shape)
    optimizer.step()
    expected = np.zeros((3, 3))
    for x, p in zip((expected, expected.T, expected[:, ::2], expected[::-1]), leaves):
        x -= p.grad.data
    np.testing.assert_allclose(base, expected, rtol=1e-12)
    assert optimizer.state_dict()["groups"][0]["steps"] == 1


@max_examples(100)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=3))
def test_arrays_overlap_if_they_have_an_element_in_common(ranges: list[tuple[int, int]]) -> None:
    base = np.zeros(4)
    elements = [i for start, stop in ranges for i in range(start, stop)]
    assert stepper.overlap(base[slice(*ends)] for ends in ranges) == (
        len(set(elements)) < len(elements)
    )


def test_parameters_have_two_optimizers_and_other_arrays() -> None:
    p = leaf(1.0, 2.0, gradient=[1, 1])
    first, second = optim.SGD([p], lr=1.0, momentum=0.5), optim.SGD([p], lr=0.5)
    first.step()
    second.step()
    assert p.tolist() == [-0.5, 0.5]
    p.data = p.data[::-1]
    first.step()
    assert p.tolist() == [-1.0, -2.0]


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam])
def test_parameter_of_an_optimizer_is_read_by_recorded_writes_and_written_by_none(
    make: Any,
) -> None:
    p = Tensor(np.array([1.0, 2.0, 3.0]), requires_grad=True)
    optimizer, buffer, source = make([p], lr=0.5), mg.zeros(3), p * 1.0
    view = p[1:]
    for write in (
        lambda: p.__setitem__(0, source[1]),
        lambda: view.__imul__(2.0),
        lambda: np.add(p, 1.0, out=p),
        lambda: np.copyto(p, source),
        lambda: np.add.at(view, [0], source[0]),
    ):
        with pytest.raises(
            mg.GradientError, match="a leaf that requires gradients cannot be changed"
        ):
            write()
    with mg.no_grad():
        p[0] = 5.0
    buffer[:2] = p[1:]
    buffer *= p
    buffer.sum().backward()
    np.testing.assert_array_equal(p.grad.data, [2.0, 8.0, 2.0])
    before = p.data.copy()
    optimizer.step()
    assert p.data[0] < before[0] == 5.0 and view.tolist() == p.tolist()[1:]


def test_frozen_parameter_of_float16_is_allowed() -> None:
    frozen = Tensor(np.ones(2, np.float16))
    optimizer = optim.Adam([leaf(), frozen])
    optimizer.step()
    assert frozen.tolist() == [1, 1]


@pytest.mark.parametrize("clip_norm", [None, 0.5, 50.0])
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (optim.SGD, {}),
        (optim.SGD, {"momentum": 0.5, "weight_decay": 0.1}),
        (optim.Adam, {"weight_decay": 0.1}),
        (optim.AdamW, {"betas": (0.5, 0.7)}),
    ],
)
def test_steps_of_the_book_equal_those_of_the_library(
    make: Any, options: Any, clip_norm: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for kind in (optim.Optimizer.stepper_type, Stepper):
        monkeypatch.setattr(optim.Optimizer, "stepper_type", kind)
        leaves = [leaf(1, 2), leaf(0.5), leaf(3, 4)]  # without a gradient
        optimizer = make(leaves, lr=0.1, clip_norm=clip_norm, **options)
        norms = []
        for gradient in ([1.0, -2.0], [3.0, 0.5]):
            give_gradients(leaves[0], leaves[1])
            leaves[0].grad, before = Tensor(gradient), leaves[1].grad.tolist()
            y = (leaves[0] * Tensor([1.0, 2.0], requires_grad=True)).sum()
            norms.append(optimizer.step())
            assert leaves[0].grad.tolist() == gradient and leaves[1].grad.tolist() == before
            with pytest.raises(
                mg.GradientError, match="multiply: an array .* was changed in place"
            ):
                y.backward()
        results.append([*norms, *[p.tolist() for p in leaves]])
    assert results[0][-1] == [3, 4]
    for ours, book in zip(*results):
        np.testing.assert_allclose(book, ours, rtol=1e-13)


def test_state_of_groups_of_two_dtypes_continues_in_an_optimizer_that_took_steps() -> None:
    def make(lr: float) -> tuple[list[Tensor], Any]:
        leaves = [leaf(1, 2), leaf(3, dtype=np.float32), leaf(4, 5)]
        groups = [{"params": leaves[:2], "lr": lr}, {"params": leaves[2:], "lr": 2 * lr}]
        return leaves, optim.Adam(groups)

    (first, whole), (second, resumed) = make(0.1), make(0.3)
    for leaves, optimizer, steps in ((first, whole, 2), (second, resumed, 1)):
        for _ in range(steps):
            give_gradients(*leaves)
            optimizer.step()
    resumed.load_state_dict(whole.state_dict())
    assert [group["lr"] for group in resumed.param_groups] == [0.1, 0.2]
    before = [p.data.copy() for p in (*first, *second)]
    for leaves, optimizer in ((first, whole), (second, resumed)):
        give_gradients(*leaves)
        leaves[0].grad = Tensor([3.0, -2.0])
        optimizer.step()
    moves = [p.data - old for p, old in zip((*first, *second), before)]
    for a, b in zip(moves[:3], moves[3:]):
        np.testing.assert_allclose(a, b, rtol=1e-5)
