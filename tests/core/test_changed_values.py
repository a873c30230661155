"""Arrays that change between the forward and the backward pass: noticed, or without effect."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from cases import each
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from opinfo import TABLE, Draw, OpInfo, Sample

import minigrad as mg
import nn
from minigrad import AnomalyError, GradientError, Tensor
from minigrad.optim import SGD, Adam, AdamW


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    """The arrays in operands and options, which the caller can change."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from arrays_in(part)
    elif isinstance(value, dict):
        yield from arrays_in(list(value.values()))


def change(array: np.ndarray) -> None:
    """Write another value of the same kind into the first element, in the caller's array."""
    if array.dtype == bool:
        array.flat[0] ^= True
    elif array.dtype.kind in "iu":
        array.flat[0] = 1 if array.flat[0] == 0 else 0
    else:
        array.flat[0] = 0.5 * array.flat[0] + 0.1


def results(info: OpInfo, sample: Sample, changed: int | None, anomaly: bool) -> list[Any]:
    """The gradients of an op after the array number `changed` of its operands was changed."""
    sample = copy.deepcopy(sample)
    operands = [
        Tensor(x, requires_grad=x.dtype.kind == "f") if isinstance(x, np.ndarray) else x
        for x in sample.operands
    ]
    leaves = [x for x in operands if isinstance(x, Tensor) and x.requires_grad]
    with mg.detect_anomaly() if anomaly else nullcontext():
        result = info.call(*operands, **sample.options)
        ys = result if isinstance(result, (list, tuple)) else [result]
        live = [y for y in ys if isinstance(y, Tensor) and y.requires_grad]
        if not live:
            return []
        if changed is not None and anomaly:
            change(list(arrays_in([sample.operands, sample.options]))[changed])
        elif changed is not None:
            with mg.no_grad():
                values = operands[changed].data.copy()
                change(values)
                operands[changed][...] = values
        gs = [np.random.default_rng(i).standard_normal(y.shape) for i, y in enumerate(live)]
        return list(mg.gradients(live, leaves, gs, allow_unused=True))


def is_noticed_or_harmless(
    info: OpInfo, sample: Sample, anomaly: bool, expected: list[Any], number: int
) -> None:
    try:
        found = results(info, sample, number, anomaly)
    except AnomalyError:  # of a sample with NaN
        return
    except GradientError as error:
        assert "changed" in str(error)
        return
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a.data, b.data, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("anomaly", [False, True], ids=["written-by-tensor", "detect-anomaly"])
@given(data=st.data())
@settings(max_examples=4, phases=[Phase.generate])
def test_every_op_notices_changed_operands(anomaly: bool, data: Any) -> None:
    """Writes by `t[...] = x` always, and those into the caller's arrays inside detect_anomaly."""
    cases = []
    for info in TABLE.values():
        sample = info.samples(Draw(data.draw))
        with np.errstate(all="ignore"):
            expected = results(info, sample, None, False)
        given = (
            sample.operands if not anomaly else list(arrays_in([sample.operands, sample.options]))
        )
        for number, array in enumerate(given):
            if isinstance(array, np.ndarray) and array.size:
                cases.append((info, sample, anomaly, expected, number))
    each(cases, lambda case: is_noticed_or_harmless(*case))


# -- the library's own changes -------------------------------------------------------------------------


def swap_in_average(model: nn.Module) -> None:
    average = nn.train.MovingAverage(model, 0.5)
    for p in model.parameters():
        p.data = p.data + 1
    average.update(model)


CHANGES: dict[str, Callable[[nn.Linear], Any]] = {
    "load_state_dict": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
    **{
        name: lambda m, name=name: getattr(nn.init, name)(m.weight, *ARGUMENTS.get(name, ()))
        for name in nn.init.__all__
        if name.endswith("_")
    },
    "t += u": lambda m: m.weight.__iadd__(1.0),
    "t[...] = u": lambda m: m.weight.__setitem__(..., 1.0),
    "t[0] = u": lambda m: m.weight.__setitem__(0, 1.0),
    "view": lambda m: m.weight.T.__imul__(2.0),
    "data": lambda m: setattr(m.weight, "data", m.weight.data.__iadd__(1.0)),
    "fill": lambda m: m.weight.fill(7.0),
    "sort": lambda m: m.weight.sort(0),
    "copyto": lambda m: np.copyto(m.weight, 7.0),
}
ARGUMENTS: dict[str, tuple[Any, ...]] = {"constant_": (3.0,)}


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_a_parameter_after_the_forward_pass_is_noticed(name: str) -> None:
    model = nn.Linear(3, 3, generator=np.random.default_rng(0))
    y = model(model(Tensor(np.ones((2, 3), np.float32)))).sum()
    before = model.weight.data.copy()
    with mg.no_grad():
        CHANGES[name](model)
    assert not np.array_equal(before, model.weight.data)
    with pytest.raises(GradientError, match="linear: an array .* was changed in place"):
        y.backward()


@pytest.mark.parametrize("optimizer", [SGD, Adam, AdamW])
def test_step_after_the_forward_pass_is_noticed_and_losses_can_be_kept(optimizer: Any) -> None:
    model = nn.Linear(3, 1, generator=np.random.default_rng(0))
    steps, losses = optimizer(model.parameters(), lr=0.1), []
    for _ in range(3):
        loss = (model(np.ones((2, 3), np.float32)) ** 2).mean()
        kept = (model(Tensor(np.ones((2, 3), np.float32), True)) ** 2).mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss)
        with pytest.raises(GradientError, match="linear: an array .* was changed in place"):
            kept.backward()
    assert losses[2].item() < losses[0].item()


def test_update_under_create_graph_keeps_the_graph_of_the_old_parameter() -> None:
    """An inner step of meta-learning on w³: w' = w - 3 r w², and d(w'²)/dw = 2 w' (1 - 6 r w)."""
    w, rate = Tensor(2.0, requires_grad=True), 0.1
    (g,) = mg.gradients(w**3, w, create_graph=True)
    updated = w - rate * g
    (outer,) = mg.gradients(updated**2, w, retain_graph=True)
    new = 2.0 - 3 * rate * 2.0**2
    np.testing.assert_allclose([updated.item(), outer.item()], [new, 2 * new * (1 - 1.2)])
    with mg.no_grad():
        w -= rate * g
    assert w.item() == updated.item()
    with pytest.raises(GradientError, match="changed in place"):
        updated.backward()


def test_item_assignment_writes_where_no_gradient_flows() -> None:
    p, c = Tensor(np.zeros(3), requires_grad=True), Tensor(np.zeros((2, 3)))
    with mg.no_grad():
        p[Tensor([0, 2])] = Tensor([1.0, 2.0])
        p[p.data > 1.5] += 1
    c[:, 1] += 5
    assert p.tolist() == [1, 0, 3] and c.tolist() == [[0, 5, 0], [0, 5, 0]]
    for target, value in ((p, 1.0), (p * 2, 1.0), (c, p[0])):
        with pytest.raises(GradientError, match="item assignment: .*(no_grad|where\\(\\))"):
            target[0] = value
    assert c.tolist() == [[0, 5, 0], [0, 5, 0]]


@pytest.mark.parametrize(
    "read, indices",
    [
        (lambda w, i: w[i], [1, 2]),
        (lambda w, i: w[i, [0, 1]], [1, 2]),
        (mg.embedding, np.array([1, 2])),
        (lambda w, i: mg.cross_entropy(w[:2], i), np.array([1, 2])),
        (lambda w, i: mg.cross_entropy(w[:2], [2, 1], weight=i), np.array([1.0, 2.0, 3.0])),
    ],
)
def test_indices_that_change_after_the_forward_pass_keep_their_effect(
    read: Any, indices: Any
) -> None:
    """A list, indices of an embedding, and targets, as in a batch that is filled again."""
    found = []
    for changes in (False, True):
        w, i = Tensor(np.arange(9.0).reshape(3, 3), requires_grad=True), copy.copy(indices)
        y = read(w, i)
        if changes:
            i[:] = [0] * len(i)
        y.backward(np.random.default_rng(0).standard_normal(y.shape))
        found.append(w.grad.data)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("write", [lambda a: a.__setitem__(0, 7.0), lambda a: a.fill(7.0)])
def test_detect_anomaly_names_the_line_that_used_a_changed_work_array(write: Any) -> None:
    w, work, loss = Tensor(np.ones(3), requires_grad=True), np.ones(3), Tensor(0.0)
    with mg.detect_anomaly():
        for _ in range(2):
            write(work)
            loss = loss + mg.einsum("i,i->", w, work)  # reads the work array
            work += 1
        with pytest.raises(
            GradientError,
            match=r"einsum: values .* changed since .*test_changed_values.* # reads the work array",
        ):
            loss.backward()
