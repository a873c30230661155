"""The module system and the simple layers."""

from __future__ import annotations

import copy
import pickle
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
    sizes = {name: p.size for name, p in m.named_parameters()}
    assert list(sizes) == [
        "scale", "first.weight", "first.bias", "blocks.0.weight", "blocks.0.bias", "blocks.1.0.weight",
        "blocks.1.0.bias", "last.weight",
    ]  # fmt: skip
    assert m.num_parameters() == sum(sizes.values()) == 68
    assert [name for name, _ in m.named_buffers()] == ["count", "table"]
    assert [name for name, _ in m.named_children()] == ["first", "blocks", "named", "last"]
    assert list(m.state_dict()) == [*sizes, "count"]
    assert len(m.named) == 1 and "a" in m.named and list(m.named.keys()) == ["a"]


def test_train_and_eval_reach_all_modules() -> None:
    m = Small()
    for change, mode in ((m.eval, False), (m.train, True)):
        assert change() is m
        assert {module.training for module in m.modules()} == {mode}


def test_load_state_dict_of_state_dict_restores_module() -> None:
    a, b = Small().eval(), Small().eval()
    a.count[0] = 7
    b.load_state_dict({name: array.copy() for name, array in a.state_dict().items()})
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(a(x).data, b(x).data)
    assert b.count[0] == 7


def test_load_state_dict_that_does_not_fit_changes_nothing() -> None:
    m = Small()
    before = {name: array.copy() for name, array in m.state_dict().items()}
    state = {name: array + 1 for name, array in before.items() if name != "scale"}
    state |= {"first.weight": np.zeros((4, 5)), "other": np.zeros(1)}
    with pytest.raises(KeyError) as error:
        m.load_state_dict(state)
    text = error.value.args[0]
    assert text.startswith("the state does not fit Small: ")
    assert "misshaped: first.weight must have shape (4, 3), got (4, 5)" in text
    assert "missing: scale" in text and "unexpected: other" in text
    for name, array in m.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    m.load_state_dict({"first.bias": np.arange(4), "other": 0}, strict=False)
    np.testing.assert_array_equal(m.first.bias.data, np.arange(4))


def test_load_state_dict_before_backward_raises() -> None:
    m = nn.Linear(2, 2)
    y = m(Tensor(np.ones((1, 2), np.float32), requires_grad=True)).sum()
    m.load_state_dict(m.state_dict())
    with pytest.raises(mg.GradientError, match="changed in place"):
        y.backward()


def test_num_parameters_counts_tied_parameters_once() -> None:
    m = Small()
    m.blocks[0].weight = m.blocks[1][0].weight
    assert m.num_parameters() == 68 - 16
    assert "blocks.0.weight" in m.state_dict() and "blocks.1.0.weight" not in m.state_dict()


def test_summary_shows_modules_to_a_depth() -> None:
    m = Small()
    assert repr(m.blocks) == (
        "ModuleList(\n  (0): Linear(4, 4)\n  (1): Sequential(\n    (0): Linear(4, 4)\n    (1): ReLU()\n  )\n)"
    )
    assert "blocks.1.0" in m.summary() and m.summary().endswith("68 parameters, 68 trained")
    assert "blocks.1.0" not in m.summary(depth=1)
    m.blocks[0].weight = m.blocks[1][0].weight
    assert "(shared)" in m.summary()


def test_astype_converts_parameters_and_buffers() -> None:
    m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).astype("float64")
    assert {(p.dtype.name, p.requires_grad) for p in m.parameters()} == {("float64", True)}
    assert m[1].running_mean.dtype == m(np.ones((4, 2))).dtype == np.float64


def test_requires_grad_and_zero_grad_reach_all_parameters() -> None:
    m, x = nn.Linear(2, 2).requires_grad_(False), np.ones((1, 2), np.float32)
    assert m.num_parameters(trainable_only=True) == 0 and not m(x).requires_grad
    m.requires_grad_()
    m(x).sum().backward()
    assert m.weight.grad is not None
    m.zero_grad()
    assert m.weight.grad is None


def test_forward_hooks_change_arguments_and_result() -> None:
    m, calls = nn.ReLU(), []
    before = m.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    after = m.register_forward_hook(
        lambda module, args, y: calls.append((args[0].item(), y.item())) or y * 2
    )
    assert m(Tensor(1.0)).item() == 4.0 and calls == [(2.0, 2.0)]
    before.remove()
    after.remove()
    assert m(Tensor(1.0)).item() == 1.0 and nn.ReLU()(Tensor(1.0)).item() == 1.0


def test_apply_calls_inner_modules_first() -> None:
    names: list[str] = []
    Small().apply(lambda m: names.append(type(m).__name__))
    assert names[-1] == "Small" and names.count("Linear") == 4


class Wrapped(nn.Module):
    """A module that contains another one twice and may keep its last result."""

    def __init__(self, inner: nn.Module) -> None:
        self.inner, self.again = inner, inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"]
)
def test_copy_of_nested_modules_and_optimizer_has_its_own_memory(copied: Any) -> None:
    model: nn.Module = nn.Linear(3, 2)
    for _ in range(300):
        model = Wrapped(model)
    adam = optim.Adam(model.parameters())
    x = np.ones((2, 3), np.float32)
    before = model(x).data
    other, other_adam = copied((model, adam))
    np.testing.assert_array_equal(other(x).data, before)
    (other(x) ** 2).sum().backward()
    other_adam.step()
    np.testing.assert_array_equal(model(x).data, before)
    assert not np.array_equal(other(x).data, before)
    assert other.inner is other.again and len(list(other.modules())) == 301
    model.last = model(x)
    message = "deepcopy: Wrapped.last is a result with its graph; keep its|pickle: only a leaf"
    with pytest.raises(GradientError, match=message):
        copied(model)
    model.last = model.last.detach()
    np.testing.assert_array_equal(copied(model).last.data, before)


# -- initialisation ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fill", "std", "bound"),
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


def test_linear_is_seeded_within_its_bound() -> None:
    mg.manual_seed(1)
    a = nn.Linear(5, 6)
    mg.manual_seed(1)
    np.testing.assert_array_equal(a.weight.data, nn.Linear(5, 6).weight.data)
    assert np.abs(a.weight.data).max() <= 5**-0.5


# -- layers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.1, 0.25])
def test_dropout_keeps_the_mean_and_stops_in_evaluation(p: float) -> None:
    """Round the probability to 1/256, and scale by the rounded one."""
    dropout = nn.Dropout(p, generator=np.random.default_rng(0))
    x = Tensor(np.ones(1_000_000), requires_grad=True)
    a, b = dropout(x), dropout(x)
    assert abs((a.data == 0).mean() - round(p * 256) / 256) < 1e-3
    assert abs(a.data.mean() - 1) < 1e-3
    (a.sum() + 2 * b.sum()).backward()
    np.testing.assert_allclose(x.grad.data, a.data + 2 * b.data)  # each call has its own mask
    assert not np.array_equal(a.data, b.data)
    assert dropout.eval()(x) is x


def test_embedding_padding_stays_zero() -> None:
    e = nn.Embedding(5, 3, padding_idx=0)
    assert not e.weight.data[0].any()
    e(np.array([[0, 1, 1]])).sum().backward()
    np.testing.assert_array_equal(e.weight.grad.data[:, 0], [0, 2, 0, 0, 0])


@pytest.mark.parametrize("norm", [mg.layer_norm, mg.rms_norm])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_norm_of_empty_input_is_empty(norm: Any, shape: tuple[int, int]) -> None:
    x, weight = (Tensor(np.ones(s), requires_grad=True) for s in (shape, shape[1]))
    norm(x, weight=weight).sum().backward()
    assert x.grad.shape == shape
    np.testing.assert_array_equal(weight.grad.data, np.zeros(shape[1]))


def test_batch_norm_equals_its_definition() -> None:
    x = np.random.default_rng(0).standard_normal((6, 4)) * 3 + 1
    norm = nn.BatchNorm1d(4, dtype=float)
    np.testing.assert_allclose(norm(x).data, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5))
    np.testing.assert_allclose(norm.running_mean, 0.1 * x.mean(0))
    np.testing.assert_allclose(norm.running_var, 0.9 + 0.1 * x.var(0, ddof=1))
    expected = (x - norm.running_mean) / np.sqrt(norm.running_var + 1e-5)
    norm.eval()
    np.testing.assert_allclose(norm(x).data, expected)
    np.testing.assert_allclose(norm(x[:1]).data, expected[:1])  # a row does not see the others


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
@pytest.mark.parametrize("shape", [1, 4, (8, 1), (2, 8)])
def test_norm_of_other_trailing_axes_raises(norm: Any, shape: Any) -> None:
    layer = norm(shape)
    for forward in (layer, nn.for_inference(nn.Sequential(layer))):
        with pytest.raises(ValueError, match=r"Norm: the last axes of x must have lengths \("):
            forward(np.ones((1, 8) if shape == 1 else (4, 2), np.float32))


def test_sinusoidal_table_equals_its_formula() -> None:
    position, pair = np.indices((50, 3))
    angles = position / 10000 ** (2 * pair / 6)
    expected = np.stack([np.sin(angles), np.cos(angles)], -1)  # (50, 3, 2)
    np.testing.assert_allclose(nn.sinusoidal_table(50, 6), expected.reshape(50, 6))
    halves = nn.sinusoidal_table(50, 6, halves=True)
    np.testing.assert_allclose(halves, expected.swapaxes(1, 2).reshape(50, 6))


def test_position_layers_add_rows_of_their_table() -> None:
    x = np.zeros((2, 3, 6), np.float32)
    p, learned = nn.SinusoidalPositions(8, 6), nn.LearnedPositions(8, 6)
    np.testing.assert_allclose(p(x, 4).data[1], nn.sinusoidal_table(8, 6)[4:7], rtol=1e-6)
    assert not list(p.parameters()) and not p.state_dict()
    learned(x, 2).sum().backward()
    np.testing.assert_array_equal(learned.weight.grad.data[:, 0], [0, 0, 2, 2, 2, 0, 0, 0])


def test_activations_have_modules_and_names() -> None:
    x = np.linspace(-2, 2, 7)
    leaky = nn.LeakyReLU(negative_slope=0.2)
    np.testing.assert_array_equal(leaky(x).data, mg.leaky_relu(x, 0.2).data)
    assert repr(leaky) == "LeakyReLU(negative_slope=0.2)"


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_feed_forward_equals_its_formula(gated: bool, activation: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    f = nn.FeedForward(4, 8, activation=activation, gated=gated, dtype=float)
    h = nn.activation_named(activation)(f.linear1(x)).data
    h = h * f.gate(x).data if gated else h
    np.testing.assert_allclose(f(x).data, f.linear2(h).data, rtol=1e-12)
    assert mg.gradcheck(f, [x], elementwise=False)


POSITIONS = nn.SinusoidalPositions(8, 6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.ModuleList()(1), NotImplementedError, "ModuleList has no forward"),
        (lambda: nn.ModuleDict({"forward": nn.ReLU()}), KeyError, "no attribute of Module, got 'forward'"),
        (lambda: init.xavier_uniform_(nn.Parameter(np.ones(3))), ValueError, r"at least two axes for fan_in and fan_out, got shape \(3,\)"),
        (lambda: nn.Dropout(1), ValueError, "Dropout: p must be finite, at least 0, less than 1, got 1"),
        (lambda: nn.Embedding(5, 3, padding_idx=5), ValueError, "padding_idx must be from 0 to 4, got 5"),
        (lambda: nn.BatchNorm1d(4)(np.ones((1, 4))), ValueError, "x must have more than one row in training"),
        (lambda: nn.BatchNorm1d(4)(np.ones((2, 3))), ValueError, r"x must be \(n, 4\) or \(n, L, 4\), got \(2, 3\)$"),
        (lambda: nn.BatchNorm1d(4)(np.ones((2, 4, 3))), ValueError, r"got \(2, 4, 3\); write x.swapaxes\(1, 2\)$"),
        (lambda: POSITIONS(np.zeros((1, 9, 6), np.float32)), ValueError, "x must have at most 8 positions, got 9"),
        (lambda: nn.sinusoidal_table(4, 5), ValueError, "d_model must be even, got 5"),
        (lambda: nn.activation_named("swoosh"), ValueError, "activation must be 'relu', 'gelu', .*, got 'swoosh'"),
    ],
)  # fmt: skip
def test_layer_bad_argument_is_named(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
