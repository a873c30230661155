"""Losses, functions and layers with inputs that PyTorch's databases of samples lack."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor

rng = np.random.default_rng(0)
LOGITS = rng.standard_normal((4, 5))
LABELS = np.array([0, 4, -100, 2])


def test_binary_cross_entropy_takes_targets_of_booleans() -> None:
    is_one = LOGITS > 0.5
    loss = mg.binary_cross_entropy_with_logits(LOGITS, is_one)
    expected = -mg.log_sigmoid(np.where(is_one, LOGITS, -LOGITS)).mean().item()
    assert loss.dtype == np.float64 and loss.item() == pytest.approx(expected)


def test_nll_loss_with_infinite_ignored_row_has_finite_gradients() -> None:
    x = Tensor(np.where(LABELS[:, None] == -100, -np.inf, LOGITS), requires_grad=True)
    loss = mg.nll_loss(x, LABELS)
    (g,) = mg.gradients(loss, x)
    assert np.isfinite(loss.data) and np.isfinite(g.data).all() and g.data.any()


def test_loss_weight_is_a_buffer() -> None:
    loss = nn.CrossEntropyLoss(np.ones(5))
    assert list(loss.state_dict()) == ["weight"] and not nn.CrossEntropyLoss().state_dict()
    assert loss.float().weight.dtype == np.float32


def test_functional_attention_in_float16_does_not_overflow() -> None:
    half = np.full((1, 2, 4), 200, np.float16)  # a product is 40,000 times 4
    y = nn.functional.scaled_dot_product_attention(half, half, half)
    assert y.dtype == np.float16 and (y.data == 200).all()


def test_cross_entropy_with_smoothing_above_1_raises() -> None:
    with pytest.raises(ValueError, match="label_smoothing must be from 0 to 1, got 1.5"):
        mg.cross_entropy(LOGITS, LABELS, label_smoothing=1.5)


def test_functional_attention_with_two_masks_raises() -> None:
    x = np.ones((2, 3, 4))
    with pytest.raises(ValueError, match="attn_mask must be None with is_causal"):
        nn.functional.scaled_dot_product_attention(x, x, x, np.ones((3, 3), bool), is_causal=True)


def test_new_linear_layer_has_the_spread_of_pytorch() -> None:
    for p in nn.Linear(100, 200, generator=np.random.default_rng(0)).parameters():
        assert 0.095 < p.data.max() <= 0.1 and -0.1 <= p.data.min() < -0.095
    assert not nn.Linear(0, 3).bias.data.any()
