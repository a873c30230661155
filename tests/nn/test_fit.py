"""Compare the training loop with the same loop, written out on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples
from support.properties import normal, seeds

import minigrad as mg
import nn
from minigrad.optim import SGD
from nn.fit import TrainingLoop


class Line(nn.Module):
    """A line through points, which records the modes of its calls."""

    def __init__(self) -> None:
        self.slope, self.height = (nn.Parameter(np.ones(1)) for _ in range(2))
        self.modes: set[bool] = set()

    def loss(self, x: Any, y: Any, factor: float = 1.0) -> mg.Tensor:
        self.modes.add(self.training)
        return mg.mean((self.slope * x + self.height - y) ** 2) * factor


@max_examples(15)
@given(
    epochs=st.integers(0, 3), sizes=st.lists(st.integers(0, 3), min_size=3, max_size=3),
    rate=st.sampled_from([None, lambda step: 1 / step, lambda step: step]), end=st.none() | st.integers(1, 4), seed=seeds,
)  # fmt: skip
def test_loop_takes_the_steps_of_its_definition(
    epochs: int, sizes: list[int], rate: Any, end: int | None, seed: int
) -> None:
    """`end` is the step after which a subclass ends the training within an epoch."""

    class Loop(TrainingLoop):
        def is_done(self) -> bool:
            return super().is_done() or self.step == end

    def batches(epoch: int) -> Any:
        return [normal([seed, epoch, i], 2, 5) for i in range(sizes[epoch])]

    model, rates = Line(), {"slope": 0.01, "height": 0.03}
    groups = [{"params": [getattr(model, name)], "lr": lr} for name, lr in rates.items()]
    for p in model.parameters():
        p.grad = np.ones(1)  # left from before
    loop = Loop(model.eval(), SGD(groups), batches, rate=rate, max_epochs=epochs, factor=0.5)
    values, expected, step, whole = dict.fromkeys(rates, 1.0), [], 0, 0
    for epoch in range(epochs):
        for x, y in batches(epoch):
            if step == end:
                break
            step += 1
            d = values["slope"] * x + values["height"] - y
            expected.append(0.5 * (d * d).mean())
            for name, slope in (("slope", (d * x).mean()), ("height", d.mean())):
                values[name] -= rates[name] * (rate(step) if rate else 1) * slope
        if step == end:
            break
        whole += 1
    found = loop.fit()
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert (loop.step, loop.epoch) == (step, whole) and not model.training
    assert model.modes <= {True}
    for name, value in values.items():
        np.testing.assert_allclose(getattr(model, name).data, value, rtol=1e-10)
    if step != end:
        assert len(loop.fit()) == len(expected)  # it is done


def test_loop_refuses_a_negative_number_of_epochs() -> None:
    optimizer = SGD(Line().parameters(), lr=0.1)
    with pytest.raises(ValueError, match="TrainingLoop: max_epochs must be at least 0, got -1"):
        TrainingLoop(Line(), optimizer, lambda epoch: [], max_epochs=-1)
