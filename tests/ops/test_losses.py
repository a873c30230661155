"""Values of losses of one input and one target; PyTorch's samples have the other options."""

from __future__ import annotations

import math
from typing import Any

import pytest

import minigrad as mg

ENTROPIES = math.log1p(math.e), 3 * math.log1p(math.exp(3))  # the positive target counts 3 times


@pytest.mark.parametrize(
    "loss, options, expected",
    [
        (mg.mse_loss, {}, (1 + 16) / 2),
        (mg.l1_loss, {"reduction": "sum"}, 1 + 4),
        (mg.smooth_l1_loss, {"beta": 2.0}, (1 / 4 + 4 - 1) / 2),
        (mg.huber_loss, {"delta": 2.0}, (1 / 2 + 2 * 4 - 2) / 2),
        (mg.kl_div, {}, (0 + 3) / 2),
        (mg.binary_cross_entropy_with_logits, {"pos_weight": 3.0}, sum(ENTROPIES) / 2),
    ],
)
def test_loss_of_two_elements_equals_its_formula(loss: Any, options: Any, expected: float) -> None:
    assert loss([1.0, -3.0], [0.0, 1.0], **options).item() == pytest.approx(expected)
