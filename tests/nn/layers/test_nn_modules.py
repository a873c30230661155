"""The module system and the simple layers."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import GradientError, Tensor, optim
from nn import init


class Small(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(3, 4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())])
        self.named = nn.ModuleDict({"a": nn.Dropout(0.5)})
        self.scale = nn.Parameter(np.ones(4, np.float32))
        self.last = nn.Linear(4, 2, bias=False)
        self.register_buffer("count", np.zeros(1))
        self.register_buffer("table", np.ones(2), persistent=False)

    def forward(self, x: Any) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(self.named["a"](x) * self.scale)


def test_module_names_parts_in_order() -> None:
    m = Small()
    assert [name for name, _ in m.named_parameters()] == [
        "scale", "first.weight", "first.bias", "blocks.0.weight", "blocks.0.bias", "blocks.1.0.weight",
        "blocks.1.0.bias", "last.weight",
    ]  # fmt: skip
    assert [name for name, _ in m.named_buffers()] == ["count", "table"]
    assert [name for name, _ in m.named_children()] == ["first", "blocks", "named", "last"]
    assert m.num_parameters() == 4 + 16 + 20 + 20 + 8 == sum(p.size for p in m.parameters())
    assert "count" in m.state_dict() and "table" not in m.state_dict()
    assert len(m.named) == 1 and "a" in m.named and list(m.named.keys()) == ["a"]


def test_train_and_eval_reach_all_modules() -> None:
    m = Small()
    assert m.training and m.named["a"].training
    assert m.eval() is m and not m.named["a"].training and not m.blocks[1][0].training
    assert m.train().named["a"].training
    x = np.ones((2, 3), np.float32)
    m.eval()
    np.testing.assert_array_equal(m(x).data, m(x).data)


def test_load_state_dict_of_state_dict_restores_module() -> None:
    a, b = Small(), Small()
    a.count[0] = 7
    x = np.ones((2, 3), np.float32)
    assert not np.array_equal(a.eval()(x).data, b.eval()(x).data)
    b.load_state_dict({name: array.copy() for name, array in a.state_dict().items()})
    np.testing.assert_array_equal(a(x).data, b(x).data)
    assert b.count[0] == 7


def test_load_state_dict_that_does_not_fit_changes_nothing() -> None:
    m = Small()
    before = {name: array.copy() for name, array in m.state_dict().items()}
    state = {name: array + 1 for name, array in before.items()}
    del state["scale"]
    state["first.weight"] = np.zeros((4, 5), np.float32)
    state["other"] = np.zeros(1)
    with pytest.raises(KeyError) as error:
        m.load_state_dict(state)
    text = error.value.args[0]
    assert "the state does not fit Small" in text
    assert "misshaped: first.weight must have shape (4, 3), got (4, 5)" in text
    assert "missing: scale" in text and "unexpected: other" in text
    for name, array in m.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    state["first.weight"] = before["first.weight"] * 2
    m.load_state_dict(state, strict=False)
    np.testing.assert_array_equal(m.first.weight.data, before["first.weight"] * 2)
    np.testing.assert_array_equal(m.scale.data, before["scale"])


def test_load_state_dict_before_backward_raises() -> None:
    m = nn.Linear(2, 2)
    y = m(np.ones((1, 2), np.float32) * Tensor(np.ones(2, np.float32), True)).sum()
    m.load_state_dict(m.state_dict())
    with pytest.raises(mg.GradientError, match="changed in place"):
        y.backward()


def test_num_parameters_counts_tied_parameters_once() -> None:
    m = Small()
    m.blocks[0].weight = m.blocks[1][0].weight
    assert m.num_parameters() == 68 - 16
    assert "blocks.0.weight" in m.state_dict() and "blocks.1.0.weight" not in m.state_dict()
    assert "(shared)" in m.summary()


def test_astype_converts_parameters_and_buffers() -> None:
    m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).astype("float64")
    assert {p.dtype for p in m.parameters()} == {np.dtype(float)} and all(
        p.requires_grad for p in m.parameters()
    )
    assert m[1].running_mean.dtype == np.float64
    assert m(np.ones((4, 2))).dtype == np.float64
    assert nn.Linear(2, 3).weight.dtype == np.float32


def test_requires_grad_and_zero_grad_reach_all_parameters() -> None:
    m = nn.Linear(2, 2).requires_grad_(False)
    assert m.num_parameters(trainable_only=True) == 0
    assert not m(np.ones((1, 2), np.float32)).requires_grad
    m.requires_grad_()
    m(np.ones((1, 2), np.float32)).sum().backward()
    assert m.weight.grad is not None
    m.zero_grad()
    assert m.weight.grad is None


def test_forward_hooks_change_arguments_and_result() -> None:
    m, seen = nn.ReLU(), []
    before = m.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    after = m.register_forward_hook(
        lambda module, args, y: seen.append((args[0].item(), y.item())) or y * 2
    )
    assert m(Tensor(1.0)).item() == 4.0 and seen == [(2.0, 2.0)]
    before.remove()
    after.remove()
    assert m(Tensor(1.0)).item() == 1.0 and nn.ReLU()(Tensor(1.0)).item() == 1.0


def test_repr_and_summary_show_all_modules() -> None:
    assert repr(Small()) == (
        "Small(\n  (first): Linear(3, 4)\n  (blocks): ModuleList(\n    (0): Linear(4, 4)\n    (1): Sequential(\n"
        "      (0): Linear(4, 4)\n      (1): ReLU()\n    )\n  )\n  (named): ModuleDict(\n    (a): Dropout(p=0.5)\n  )\n"
        "  (last): Linear(4, 2, bias=False)\n)"
    )
    text = Small().summary()
    assert (
        "blocks.1.0" in text
        and "weight (4, 3), bias (4,)" in text
        and text.endswith("68 parameters, 68 trained")
    )
    assert "blocks.1.0" not in Small().summary(depth=1)
    assert repr(nn.Parameter([1.0])) == "parameter([1.], dtype=float64, requires_grad=True)"


def test_deepcopy_of_module_has_its_own_memory() -> None:
    a = Small()
    b = copy.deepcopy(a)
    b.scale.data[...] = 5
    assert a.scale.data[0] == 1 and b.scale.requires_grad


def test_apply_calls_every_module_and_missing_forward_raises() -> None:
    kinds: list[str] = []
    Small().apply(lambda m: kinds.append(type(m).__name__))
    assert kinds[-1] == "Small" and kinds.count("Linear") == 4
    with pytest.raises(NotImplementedError, match="ModuleList has no forward"):
        nn.ModuleList()(1)
    with pytest.raises(KeyError, match="no attribute of Module, got 'forward'"):
        nn.ModuleDict({"forward": nn.ReLU()})


# -- initialisation ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fill, std, bound",
    [
        (init.xavier_uniform_, (2 / 500) ** 0.5, (6 / 500) ** 0.5),
        (init.xavier_normal_, (2 / 500) ** 0.5, None),
        (init.kaiming_uniform_, (2 / 200) ** 0.5, (6 / 200) ** 0.5),
        (init.kaiming_normal_, (2 / 200) ** 0.5, None),
    ],
)
def test_init_has_the_stated_spread(fill: Any, std: float, bound: float | None) -> None:
    p = fill(nn.Parameter(np.empty((300, 200))), generator=np.random.default_rng(0))
    assert abs(p.data.std() / std - 1) < 0.02 and abs(p.data.mean()) < 0.1 * std
    assert bound is None or 0.99 * bound < np.abs(p.data).max() <= bound


def test_init_is_seeded_and_checks_shapes() -> None:
    mg.manual_seed(1)
    a = nn.Linear(5, 6)
    mg.manual_seed(1)
    np.testing.assert_array_equal(a.weight.data, nn.Linear(5, 6).weight.data)
    assert np.abs(a.weight.data).max() <= 5**-0.5
    with pytest.raises(
        ValueError, match=r"at least two axes for fan_in and fan_out, got shape \(3,\)"
    ):
        init.xavier_uniform_(nn.Parameter(np.ones(3)))


# -- layers ------------------------------------------------------------------------------------------


def test_dropout_keeps_the_mean_and_stops_in_evaluation() -> None:
    d = nn.Dropout(0.25, generator=np.random.default_rng(0))
    x = Tensor(np.ones((200, 200)), requires_grad=True)
    a, b = d(x), d(x)
    assert not np.array_equal(a.data, b.data)
    assert abs((a.data == 0).mean() - 0.25) < 0.01 and abs(a.data.mean() - 1) < 0.01
    (a.sum() + 2 * b.sum()).backward()  # each branch has its own mask
    np.testing.assert_allclose(x.grad.data, a.data + 2 * b.data)
    assert d.eval()(x) is x
    with pytest.raises(
        ValueError, match="Dropout: p must be finite, at least 0, less than 1, got 1"
    ):
        nn.Dropout(1)


def test_dropout_scales_by_one_minus_p() -> None:
    y = mg.dropout(np.ones(1_000_000), 0.1, generator=np.random.default_rng(0)).data
    assert abs((y == 0).mean() - 26 / 256) < 1e-3 and np.unique(y)[1] == pytest.approx(256 / 230)


def test_embedding_padding_stays_zero() -> None:
    e = nn.Embedding(5, 3, padding_idx=0)
    assert not e.weight.data[0].any()
    e(np.array([[0, 1, 1]])).sum().backward()
    np.testing.assert_array_equal(e.weight.grad.data[:, 0], [0, 2, 0, 0, 0])
    with pytest.raises(IndexError, match="embedding: indices must be from 0 to 4, got 0 to 5"):
        e([0, 5])
    with pytest.raises(ValueError, match="padding_idx must be from 0 to 4, got 5"):
        nn.Embedding(5, 3, padding_idx=5)


@pytest.mark.parametrize("norm", [mg.layer_norm, mg.rms_norm])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_norm_of_empty_input_is_empty(norm: Any, shape: tuple[int, int]) -> None:
    x, weight = (
        Tensor(np.ones(shape), requires_grad=True),
        Tensor(np.ones(shape[1]), requires_grad=True),
    )
    norm(x, weight=weight).sum().backward()
    assert x.grad is not None and x.grad.shape == shape
    np.testing.assert_array_equal(weight.grad.data, np.zeros(shape[1]))


def test_norms_make_mean_0_and_variance_1() -> None:
    x = np.random.default_rng(0).standard_normal((6, 4)) * 3 + 1
    b, n = nn.BatchNorm1d(4, dtype=float), nn.LayerNorm(4, dtype=float)
    y = b(x).data
    np.testing.assert_allclose(y.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(y.var(0), 1, rtol=1e-4)
    np.testing.assert_allclose(b.running_mean, 0.1 * x.mean(0))
    np.testing.assert_allclose(b.running_var, 0.9 + 0.1 * x.var(0, ddof=1))
    z = n(x).data
    np.testing.assert_allclose(z.mean(1), 0, atol=1e-12)
    np.testing.assert_allclose(z.var(1), 1, rtol=1e-4)
    b.eval()
    np.testing.assert_allclose(b(x).data, (x - b.running_mean) / np.sqrt(b.running_var + 1e-5))
    one = x[:1]
    np.testing.assert_allclose(
        b(one).data, b(x).data[:1]
    )  # in evaluation a row does not see the others
    np.testing.assert_allclose(n(one).data, z[:1])  # in layer norm it never does
    with pytest.raises(ValueError, match="x must have more than one row in training"):
        b.train()(one)
    for shape, fix in (((2, 3), "$"), ((2, 4, 3), r"; write x.swapaxes\(1, 2\)$")):
        message = (
            rf"BatchNorm1d: x must be \(n, 4\) or \(n, L, 4\), got {re.escape(str(shape))}{fix}"
        )
        with pytest.raises(ValueError, match=message):
            b(np.ones(shape))


def test_position_layers_add_rows_of_the_table() -> None:
    table = nn.sinusoidal_table(50, 6)
    for pos, i in [(0, 0), (7, 1), (49, 2)]:
        angle = pos / 10000 ** (2 * i / 6)
        assert table[pos, 2 * i] == pytest.approx(np.sin(angle)) and table[
            pos, 2 * i + 1
        ] == pytest.approx(np.cos(angle))
    halves = nn.sinusoidal_table(50, 6, halves=True)
    np.testing.assert_allclose(halves[:, :3], table[:, 0::2])
    np.testing.assert_allclose(halves[:, 3:], table[:, 1::2])
    p = nn.SinusoidalPositions(8, 6)
    x = np.zeros((2, 3, 6), np.float32)
    np.testing.assert_allclose(p(x, 4).data[1], table[4:7], rtol=1e-6)
    assert not list(p.parameters()) and not p.state_dict()
    with pytest.raises(ValueError, match="x must have at most 8 positions, got 9"):
        p(np.zeros((1, 9, 6), np.float32))
    with pytest.raises(ValueError, match="at most 8 positions"):
        p(x, 6)
    with pytest.raises(ValueError, match="d_model must be even, got 5"):
        nn.sinusoidal_table(4, 5)
    learned = nn.LearnedPositions(8, 6)
    learned(x, 2).sum().backward()
    np.testing.assert_array_equal(learned.weight.grad.data[:, 0], [0, 0, 2, 2, 2, 0, 0, 0])


def test_activations_have_modules_and_names() -> None:
    x = np.linspace(-2, 2, 7)
    np.testing.assert_array_equal(
        nn.GELU(approximate="tanh")(x).data, mg.gelu(x, approximate="tanh").data
    )
    np.testing.assert_array_equal(
        nn.LeakyReLU(negative_slope=0.2)(x).data, mg.leaky_relu(x, 0.2).data
    )
    assert repr(nn.LeakyReLU(negative_slope=0.2)) == "LeakyReLU(negative_slope=0.2)"
    for name in nn.ACTIVATIONS:
        assert nn.activation_named(name)(x).shape == (7,)
    with pytest.raises(ValueError, match="activation must be 'relu', 'gelu', .*, got 'swoosh'"):
        nn.activation_named("swoosh")


def test_feed_forward_equals_its_formula() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    for gated in (False, True):
        for activation in ("relu", "silu"):
            f = nn.FeedForward(4, 8, activation=activation, gated=gated, dtype=float)
            h = nn.activation_named(activation)(
                x @ f.linear1.weight.data.T + f.linear1.bias.data
            ).data
            if gated:
                h = h * (x @ f.gate.weight.data.T + f.gate.bias.data)
            np.testing.assert_allclose(
                f(x).data, h @ f.linear2.weight.data.T + f.linear2.bias.data, rtol=1e-12
            )


class Wrapped(nn.Module):
    """A module that contains another one and may keep its last result."""

    def __init__(self, inner: nn.Module) -> None:
        self.inner, self.again = inner, inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"]
)
def test_deepcopy_and_pickle_of_nested_modules_are_equal(copied: Callable[[Any], Any]) -> None:
    model: nn.Module = nn.Linear(3, 2)
    for _ in range(300):
        model = Wrapped(model)
    adam = optim.Adam(model.parameters())
    x = np.ones((2, 3), np.float32)
    other, other_adam = copied((model, adam))
    np.testing.assert_array_equal(other(x).data, model(x).data)
    before = [p.data.copy() for p in model.parameters()]
    (other(x) ** 2).sum().backward()
    other_adam.step()
    assert all(np.array_equal(p.data, old) for p, old in zip(model.parameters(), before))
    assert not any(np.array_equal(p.data, old) for p, old in zip(other.parameters(), before))
    assert other.inner is other.again and len(list(other.modules())) == 301
    model.last = model(x)
    with pytest.raises(
        GradientError,
        match="deepcopy: Wrapped.last is a result with its graph; keep its|pickle: only a leaf",
    ):
        copied(model)
    model.last = model.last.detach()
    np.testing.assert_array_equal(copied(model).last.data, model.last.data)


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
@pytest.mark.parametrize("shape", [1, 4, (8, 1), (2, 8)])
def test_norm_of_other_trailing_axes_raises(norm: Any, shape: Any) -> None:
    layer = norm(shape)
    for forward in (layer, nn.for_inference(nn.Sequential(layer))):
        with pytest.raises(ValueError, match=r"Norm: the last axes of x must have lengths \("):
            forward(np.ones((1, 8) if shape == 1 else (4, 2), np.float32))
