"""Losses, functions and layers with inputs that PyTorch's databases of samples lack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
rng = np.random.default_rng(0)
PROBABILITIES = rng.uniform(0.02, 0.98, (4, 5))
ROWS = PROBABILITIES / PROBABILITIES.sum(-1, keepdims=True)
LOGITS = rng.standard_normal((4, 5)) * 2
LABELS = np.array([0, 4, -100, 2])
WEIGHT = rng.uniform(0.5, 2, 5)


@pytest.mark.parametrize("dtype", [bool, int, np.float32])
def test_binary_cross_entropy_takes_targets_of_any_dtype(dtype: Any) -> None:
    is_one = PROBABILITIES > 0.5
    loss = mg.binary_cross_entropy_with_logits(LOGITS, is_one.astype(dtype))
    tensors = torch.tensor(LOGITS), torch.tensor(is_one, dtype=torch.float64)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(*tensors)
    assert loss.dtype == np.float64 and loss.item() == pytest.approx(expected.item())


def test_nll_loss_with_infinite_ignored_row_has_finite_gradients() -> None:
    x = Tensor(np.where(LABELS[:, None] == -100, -np.inf, np.log(ROWS)), requires_grad=True)
    (g,) = mg.gradients(mg.nll_loss(x, LABELS, WEIGHT), x)
    assert np.isfinite(g.data).all() and not g.data[LABELS == -100].any() and g.data.any()
    assert np.isfinite(mg.nll_loss(x, LABELS, reduction="none").data).all()


def test_kl_div_batchmean_of_scalars_equals_pytorch() -> None:
    x, t = torch.tensor(-0.3), torch.tensor(0.6)
    expected = torch.nn.functional.kl_div(x, t, reduction="batchmean").item()
    assert mg.kl_div(x.numpy(), t.numpy(), reduction="batchmean").item() == pytest.approx(expected)


def test_loss_weight_is_a_buffer_as_in_pytorch() -> None:
    ours, theirs = nn.CrossEntropyLoss(WEIGHT), torch.nn.CrossEntropyLoss(torch.tensor(WEIGHT))
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["weight"]
    assert ours.float().weight.dtype == np.float32 and not nn.CrossEntropyLoss().state_dict()


def test_functional_attention_in_float16_does_not_overflow() -> None:
    half = np.full((1, 2, 4), 200, np.float16)  # a product is 40,000 times 4
    y = nn.functional.scaled_dot_product_attention(half, half, half)
    assert y.dtype == np.float16 and (y.data == 200).all()


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (mg.cross_entropy, {"input": LOGITS, "target": LABELS, "label_smoothing": 1.5},
         "label_smoothing must be from 0 to 1, got 1.5"),
        (mg.cross_entropy, {"input": LOGITS, "target": ROWS, "label_smoothing": -0.1},
         "label_smoothing must be from 0 to 1, got -0.1"),
        (nn.functional.layer_norm, {"input": np.ones((2, 3, 4)), "normalized_shape": (7, 4)},
         r"the last axes of x must have lengths \(7, 4\), got shape \(2, 3, 4\)"),
        (nn.functional.scaled_dot_product_attention,
         {**dict.fromkeys(("query", "key", "value"), np.ones((2, 3, 4))),
          "attn_mask": np.ones((3, 3), bool), "is_causal": True},
         "attn_mask must be None with is_causal"),
    ],
)  # fmt: skip
def test_function_with_wrong_option_raises(
    function: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        function(**arguments)


def test_new_linear_layer_has_the_spread_of_pytorch() -> None:
    for p in nn.Linear(100, 200, generator=np.random.default_rng(0)).parameters():
        assert 0.095 < p.data.max() <= 0.1 and -0.1 <= p.data.min() < -0.095
    assert not nn.Linear(0, 3).bias.data.any()


def test_names_of_losses_functions_and_schedules_are_those_of_pytorch() -> None:
    assert {*nn.layers.losses.__all__} <= {*dir(torch.nn)}
    assert {*nn.functional.__all__} <= {*dir(torch.nn.functional)}
    ending = ("LR", "Restarts", "Plateau")
    schedules = {name for name in mg.optim.schedules.__all__ if name.endswith(ending)}
    assert schedules <= {*dir(torch.optim.lr_scheduler)} and len(schedules) >= 12
