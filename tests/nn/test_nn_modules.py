"""The module system and the simple layers."""

from __future__ import annotations

import copy
import pickle
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

import nn
from minigrad import GradientError, Tensor, optim
from nn import init, initial
from nn.layers import activation_named


class Small(nn.Module):
    """A module with every kind of part: layers, containers, a parameter, buffers."""

    def __init__(self) -> None:
        self.first = nn.Linear(3, 4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())])
        self.named = nn.ModuleDict({"a": nn.Dropout(0.5)})
        self.scale = nn.Parameter(np.ones(4, np.float32))
        self.register_buffer("count", np.zeros(1))
        self.register_buffer("table", np.ones(2), persistent=False)


NAMES = [
    "scale", "first.weight", "first.bias", "blocks.0.weight", "blocks.0.bias", "blocks.1.0.weight", "blocks.1.0.bias",
]  # fmt: skip


def test_module_names_parts_in_order() -> None:
    m = Small()
    assert [name for name, _ in m.named_parameters()] == NAMES
    assert [name for name, _ in m.named_buffers()] == ["count", "table"]
    assert [name for name, _ in m.named_children()] == ["first", "blocks", "named"]
    assert list(m.state_dict()) == [*NAMES, "count"]
    assert list(m.named.keys()) == ["a"] and m.named["a"].p == 0.5


def test_module_dict_iterates_over_its_names() -> None:
    modules = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
    assert list(modules) == list(dict(modules)) == ["a", "b"]


def test_buffer_assigned_as_tensor_is_an_array_in_the_state() -> None:
    m = Small()
    m.count = Tensor(np.ones(1)) * 2
    assert type(m.state_dict()["count"]) is np.ndarray and m.state_dict()["count"] == 2
    assert all(type(array) is np.ndarray for _, array in m.named_buffers())
    m.load_state_dict({"count": [7]}, strict=False)
    assert m.count.item() == 7


def test_train_and_eval_reach_all_modules() -> None:
    m = Small()
    assert not any(module.training for module in m.eval().modules())
    assert all(module.training for module in m.train().modules())


def test_load_state_dict_that_does_not_fit_changes_nothing() -> None:
    m = Small()
    before = {name: array.copy() for name, array in m.state_dict().items()}
    state = {name: array + 1 for name, array in before.items() if name != "scale"}
    message = (
        r"does not fit Small: .*misshaped: first.weight must have shape \(4, 3\), got \(4, 5\)"
    )
    with pytest.raises(KeyError, match=message) as error:
        m.load_state_dict(state | {"first.weight": np.zeros((4, 5)), "other": np.zeros(1)})
    assert "missing: scale" in str(error.value) and "unexpected: other" in str(error.value)
    for name in before:
        with pytest.raises(KeyError, match=f"missing: {name}'$"):
            m.load_state_dict({other: x for other, x in before.items() if other != name})
    with pytest.raises(KeyError, match="missing: "):
        m.load_state_dict({})
    np.testing.assert_equal(m.state_dict(), before)
    m.load_state_dict({"first.bias": np.arange(4), "count": [7], "other": 0}, strict=False)
    assert m.first.bias.tolist() == [0, 1, 2, 3] and m.count == 7


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (np.full((2, 2), "1.5"), TypeError, "1.weight must be numbers for float16, got <U3"),
        (np.full((2, 2), 1j), TypeError, "1.weight must be numbers for float16, got complex128"),
        (np.full((2, 2), 1e5), ValueError, "1.weight must be in the range of float16, got 100000.0"),
        (np.full((2, 2), 10**9), ValueError, "must be in the range of float16, got 1000000000"),
    ],
)  # fmt: skip
def test_load_state_dict_of_other_values_changes_nothing(
    value: Any, error: Any, message: str
) -> None:
    m = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)).astype(np.float16)
    before = {name: array.copy() for name, array in m.state_dict().items()}
    state = {name: array + 1 for name, array in before.items()}
    with pytest.raises(error, match=message):
        m.load_state_dict(state | {"1.weight": value})
    np.testing.assert_equal(m.state_dict(), before)


def test_load_state_dict_converts_each_array_to_its_own_dtype() -> None:
    m = nn.Linear(2, 1).astype(np.float16)
    m.register_buffer("wide", np.zeros(1))
    m.register_buffer("count", np.zeros(1, np.int64))
    m.load_state_dict({"count": np.array([3.0])}, strict=False)
    assert m.state_dict()["count"].tolist() == [3]
    state = {"weight": [[1, 2]], "bias": [0.5], "wide": [1e300], "count": [2**40 + 1]}
    m.load_state_dict(state)
    assert {name: x.tolist() for name, x in m.state_dict().items()} == state
    assert [x.dtype.name for x in m.state_dict().values()] == [*["float16"] * 2, "float64", "int64"]


def test_load_state_dict_keeps_infinite_values() -> None:
    m = nn.Linear(2, 1).astype(np.float16)
    m.load_state_dict({"weight": [[np.inf, np.nan]], "bias": [True]})
    np.testing.assert_array_equal(m.weight.data, [[np.inf, np.nan]])
    assert m.bias.item() == 1


def test_slice_of_modules_is_a_container_of_its_kind() -> None:
    modules = [nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)]
    x = np.ones((4, 2), np.float32)
    for i in range(-3, 3):
        assert nn.ModuleList(modules)[i] is modules[i]
    for i in (-4, 3):
        with pytest.raises(IndexError):
            nn.ModuleList(modules)[i]
    first = nn.Sequential(*modules)[:2]
    assert type(first) is nn.Sequential and [*first] == modules[:2]
    np.testing.assert_array_equal(first(x).data, modules[1](modules[0](x)).data)
    last = nn.ModuleList(modules)[-2:]
    assert type(last) is nn.ModuleList and [*last] == modules[-2:]
    assert last.state_dict().keys() == {"1.weight", "1.bias"}


def test_load_state_dict_before_backward_raises() -> None:
    m = nn.Linear(2, 2)
    y = m(Tensor(np.ones((1, 2), np.float32), requires_grad=True)).sum()
    m.load_state_dict(m.state_dict())
    with pytest.raises(GradientError, match="changed in place"):
        y.backward()


def test_summary_shows_modules_to_a_depth_and_counts_tied_parameters_once() -> None:
    m = Small()
    assert repr(m.blocks) == (
        "ModuleList(\n  (0): Linear(4, 4)\n  (1): Sequential(\n    (0): Linear(4, 4)\n    (1): ReLU()\n  )\n)"
    )
    assert m.summary().endswith("60 parameters, 60 trained")
    assert "blocks.1.0" in m.summary() and "blocks.1.0" not in m.summary(depth=1)
    assert "blocks" not in m.summary(depth=0)
    m.blocks[0].weight = m.blocks[1][0].weight
    assert m.num_parameters() == 60 - 16
    assert m.summary().count("(shared)") == m.summary(3).count("(shared)") == 1
    for depth in (None, 0, 1, 2):
        rows = m.summary(depth).splitlines()[2:-2]
        counts = [int(row.split()[-1]) for row in rows if row[-1].isdigit()]
        assert sum(counts) == 60 - 16 and 0 not in counts
    assert "blocks.1.0.weight" not in m.state_dict()


@pytest.mark.parametrize("first", [np.float32, np.float64])
def test_astype_converts_parameters_and_buffers(first: Any) -> None:
    for convert, dtype in [
        (lambda m: m.astype("float64"), np.float64),
        (lambda m: m.float(), np.float32),
        (lambda m: m.double(), np.float64),
        (lambda m: m.to(np.float32), np.float32),
        (lambda m: m.to(np.ones(2)), np.float64),
        (lambda m: m.to(Tensor(np.ones(2, np.float32))), np.float32),
        (lambda m: m.to("cpu"), first),
    ]:
        m = nn.Sequential(nn.Linear(2, 3, dtype=first), nn.BatchNorm1d(3, dtype=first))
        m[0].requires_grad_(False)
        m.register_buffer("count", np.array([3]))
        assert convert(m) is m
        assert {p.dtype for p in m.parameters()} == {np.dtype(dtype)}
        assert [p.requires_grad for p in m.parameters()] == [False, False, True, True]
        assert m[1].running_mean.dtype == m(np.ones((4, 2))).dtype == dtype
        assert m.count.dtype.kind == "i"


@pytest.mark.parametrize("dtype", [int, bool, complex, object])
def test_astype_of_no_floats_raises_and_changes_nothing(dtype: Any) -> None:
    m = nn.Linear(2, 3)
    with pytest.raises(TypeError, match="Module.astype: dtype must be floating, got "):
        m.astype(dtype)
    assert {(p.dtype.name, p.requires_grad) for p in m.parameters()} == {("float32", True)}


def test_requires_grad_and_zero_grad_reach_all_parameters() -> None:
    m, x = nn.Linear(2, 2).requires_grad_(False), np.ones((1, 2), np.float32)
    assert m.num_parameters(trainable_only=True) == 0 and not m(x).requires_grad
    m.requires_grad_()(x).sum().backward()
    assert m.weight.grad is not None
    m.zero_grad()
    assert m.weight.grad is None


def test_forward_hooks_change_arguments_and_result() -> None:
    m = nn.ReLU()
    before = m.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    after = m.register_forward_hook(lambda module, args, y: y * 2 + args[0])
    assert m(Tensor(1.0)).item() == 6.0
    before.remove()
    assert m(Tensor(1.0)).item() == 3.0
    after.remove()
    assert m(Tensor(1.0)).item() == 1.0


def test_apply_calls_inner_modules_first() -> None:
    names: list[str] = []
    nn.Sequential(nn.Linear(1, 1), nn.ReLU()).apply(lambda m: names.append(type(m).__name__))
    assert names == ["Linear", "ReLU", "Sequential"]


class Wrapped(nn.Module):
    """A module that contains another one twice and may keep its last result."""

    def __init__(self, inner: nn.Module) -> None:
        self.inner, self.again = inner, inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)


@pytest.mark.skipif(sys.platform == "emscripten", reason="needs a deep stack")
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"]
)
def test_copy_of_nested_modules_and_optimizer_has_its_own_memory(copied: Any) -> None:
    model: nn.Module = nn.Linear(3, 2)
    for _ in range(300):
        model = Wrapped(model)
    x, adam = np.ones((2, 3), np.float32), optim.Adam(model.parameters())
    before = model(x).data
    other, other_adam = copied((model, adam))
    np.testing.assert_array_equal(other(x).data, before)
    (other(x) ** 2).sum().backward()
    other_adam.step()
    np.testing.assert_array_equal(model(x).data, before)
    assert not np.array_equal(other(x).data, before)
    assert other.inner is other.again
    model.last = model(x)
    message = "deepcopy: Wrapped.last is a result with its graph; keep its|pickle: only a leaf"
    with pytest.raises(GradientError, match=message):
        copied(model)


# -- initialisation ----------------------------------------------------------------------------------


def of_a_field(fill: Any) -> Any:
    """Fill a weight of 300 outputs and 50 inputs with a field of 2 values each."""
    return lambda p, generator: fill(nn.Parameter(np.empty((300, 50, 2))), generator=generator)


@pytest.mark.parametrize(
    ("fill", "variance", "is_uniform"),
    [
        (init.xavier_uniform_, 2 / 500, True),
        (init.xavier_normal_, 2 / 500, False),
        (init.kaiming_uniform_, 2 / 200, True),
        (init.kaiming_normal_, 2 / 200, False),
        (partial(init.kaiming_normal_, mode="fan_out", nonlinearity="relu"), 2 / 300, False),
        (partial(init.kaiming_uniform_, a=2.0, nonlinearity="linear"), 1 / 200, True),
        (partial(init.kaiming_uniform_, a=2.0), 2 / 1000, True),
        (lambda p, generator: nn.Linear(200, 300, generator=generator).weight, 1 / 600, True),
        (lambda p, generator: nn.Linear(200, 9000, generator=generator).bias, 1 / 600, True),
        (lambda p, generator: nn.Linear(1, 9000, generator=generator).weight, 1 / 3, True),
        (partial(init.kaiming_normal_, a=2.0, nonlinearity="relu"), 2 / 200, False),
        (partial(init.xavier_uniform_, gain=3.0), 9 * 2 / 500, True),
        (partial(init.xavier_normal_, gain=3.0), 9 * 2 / 500, False),
        (partial(init.kaiming_uniform_, a=2.0), 2 / 5 / 200, True),
        (partial(init.kaiming_normal_, a=2.0), 2 / 5 / 200, False),
        (of_a_field(init.xavier_normal_), 2 / (100 + 600), False),  # 2 values of each
        (of_a_field(init.kaiming_uniform_), 2 / 100, True),
    ],
)
def test_init_has_the_stated_spread(fill: Any, variance: float, is_uniform: bool) -> None:
    p = fill(nn.Parameter(np.empty((300, 200))), generator=np.random.default_rng(0)).data
    assert p.var() == pytest.approx(variance, rel=0.03) and abs(p.mean()) < 0.1 * p.std()
    assert (np.abs(p).max() < 1.8 * p.std()) == is_uniform


@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 3), (2, 9), (0, 3), (3, 0)])
@pytest.mark.parametrize("fill", [init.uniform_, init.normal_])
def test_values_drawn_in_blocks_are_those_of_one_draw(
    shape: tuple[int, ...], fill: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initial, "_AT_ONCE", 4)
    p = nn.Parameter(np.zeros(shape))
    assert fill(p, 0.5, 2.0, np.random.default_rng(0)) is p
    name = fill.__name__.rstrip("_")
    expected = getattr(np.random.default_rng(0), name)(0.5, 2.0, shape)
    np.testing.assert_array_equal(p.data, expected)


def test_rules_of_initial_values_end_with_their_blocks() -> None:
    """An inner block ends with the rule of the outer one, also after an error."""

    def drawn() -> str:
        layer = nn.Linear(100, 100)
        largest = np.abs(layer.weight.data).max()
        if largest == 0:
            return "skipped"
        has_bias = bool(layer.bias.data.any())
        return {(True, True): "layer", (False, False): "xavier"}[bool(largest <= 0.1), has_bias]

    config = nn.LanguageModelConfig(9, 8, 2, 1, 8)
    for rule, inside, outer, inner in [
        ("xavier", "xavier", initial.by_xavier, initial.by_xavier),
        ("skipped", "skipped", init.skipped, init.skipped),
        ("skipped", "skipped", init.skipped, lambda: init.skipped(skip=False)),
        ("layer", "xavier", lambda: init.skipped(skip=False), initial.by_xavier),
    ]:
        with outer():
            with inner():
                assert drawn() == inside
            nn.LanguageModel(config)
            assert drawn() == rule
            with pytest.raises(ZeroDivisionError), inner():
                _ = 1 / 0
            assert drawn() == rule
        assert drawn() == "layer"


# -- layers ------------------------------------------------------------------------------------------


def test_dropout_keeps_the_mean_and_stops_in_evaluation() -> None:
    """Round the probability to 1/256, and scale by the rounded one."""
    dropout = nn.Dropout(0.1, generator=np.random.default_rng(0))
    x = Tensor(np.ones(1_000_000), requires_grad=True)
    a, b = dropout(x), dropout(x)
    assert abs((a.data == 0).mean() - 26 / 256) < 1e-3 and abs(a.data.mean() - 1) < 1e-3
    (a.sum() + 2 * b.sum()).backward()
    np.testing.assert_allclose(x.grad.data, a.data + 2 * b.data)  # each call has its own mask
    assert not np.array_equal(a.data, b.data)
    assert dropout.eval()(x) is x


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_in_float16_of_large_values_equals_float32(training: bool) -> None:
    values = (np.random.default_rng(0).standard_normal((6, 4)) * 600).astype(np.float16)
    results = []
    for dtype in (np.float16, np.float32):
        norm = nn.BatchNorm1d(4, dtype=dtype).train(training)
        norm.running_mean[...] = 300
        x = Tensor(values.astype(dtype), requires_grad=True)
        y = norm(x)
        assert y.dtype == dtype
        (y * (values[::-1] / 600).astype(dtype)).sum().backward()
        results.append((y.data, x.grad.data, norm.running_mean))
    for half, single in zip(*results):
        np.testing.assert_allclose(half, single, 2e-3, 2e-3)


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
@pytest.mark.parametrize("shape", [4, (8, 1)])
def test_norm_of_other_trailing_axes_raises(norm: Any, shape: Any) -> None:
    layer = norm(shape)
    for forward in (layer, nn.for_inference(nn.Sequential(layer))):
        with pytest.raises(ValueError, match=r"Norm: the last axes of x must have lengths \("):
            forward(np.ones((4, 8), np.float32))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.ModuleDict({"forward": nn.ReLU()}), KeyError, "no attribute of ModuleDict, got 'forward'"),
        (lambda: nn.ModuleDict({"keys": nn.ReLU()}), KeyError, "no attribute of ModuleDict, got 'keys'"),
        (lambda: nn.ModuleDict({1: nn.ReLU()}), TypeError, "a name must be a string, got 1"),
        (lambda: nn.ModuleDict({"a": np.tanh}), TypeError, "ModuleDict: each module must be a Module, got <ufunc"),
        (lambda: nn.Sequential(nn.ReLU(), np.tanh), TypeError, "Sequential: each module must be a Module, got <uf"),
        (lambda: nn.Sequential([nn.ReLU()]), TypeError, r"must be a Module, got \[ReLU\(\)\]; unpack a list"),
        (lambda: nn.ModuleList([None]), TypeError, "ModuleList: each module must be a Module, got None"),
        (lambda: nn.Linear(2, 2).register_buffer("bias", [1.0]), KeyError, "be no attribute, got 'bias'"),
        (lambda: nn.ReLU().register_buffer("a.b", [1.0]), KeyError, "name must have no dot and .* got 'a.b'"),
        (lambda: nn.Embedding(5, 3, padding_idx=5), ValueError, "padding_idx must be from 0 to 4, got 5"),
        (lambda: nn.BatchNorm1d(4, momentum=None), TypeError, "momentum must be a number, got None"),
        (lambda: nn.BatchNorm1d(4)(np.ones((1, 4))), ValueError, "x must have more than one row in training"),
        *((lambda n=n: nn.BatchNorm1d(4)(np.ones(n)), ValueError, r"x must be \(n, 4\) or \(n, L, 4\), got") for n in (4, (2, 3, 2, 4))),
        (lambda: nn.BatchNorm1d(4)(np.ones((2, 4, 3))), ValueError, r"got \(2, 4, 3\); write x.swapaxes\(1, 2\)$"),
        (lambda: nn.ExtendedEncoderLayer(8, 2, 12, cross_attention={"bias": True}), TypeError, "cross_attention must be None, got"),
        (lambda: nn.ExtendedEncoderLayer(8, 2, 12, norm="batch"), ValueError, "norm must be 'layer', .*, got 'batch'"),
        (lambda: activation_named("swoosh"), ValueError, "activation must be 'relu', 'gelu', .*, got 'swoosh'"),
    ],
)  # fmt: skip
def test_layer_bad_argument_is_named(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_repr_of_layers_names_their_settings() -> None:
    layers = {
        "Embedding(5, 3)": nn.Embedding(5, 3),
        "Embedding(5, 3, padding_idx=0)": nn.Embedding(5, 3, padding_idx=0),
        "Dropout(p=0.25)": nn.Dropout(0.25),
        "Flatten(start_dim=1, end_dim=2)": nn.Flatten(1, 2),
    }
    assert {text: repr(layer) for text, layer in layers.items()} == {text: text for text in layers}
    assert "activation='gelu', dropout=0.5" in repr(
        nn.FeedForward(4, 8, activation="gelu", dropout=0.5)
    )
    assert repr(nn.Parameter([1.0])).startswith("parameter([1.]")


@pytest.mark.parametrize("kind", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
def test_transformer_layer_without_d_ff_has_the_width_of_pytorch(kind: Any) -> None:
    assert kind(8, 2).feed_forward.linear1.out_features == 2048
    with pytest.raises(TypeError, match=r"^TransformerLayer.__init__\(\) missing .* 'num_heads'$"):
        kind(8)


@pytest.mark.parametrize("is_first", [True, False])
def test_float64_parameter_beside_float32_is_refused_where_it_is_assigned(is_first: bool) -> None:
    model = nn.Module()
    values = [("scale", nn.Parameter(np.ones(2))), ("linear", nn.Linear(2, 3))]
    (name, value), (last, refused) = values if is_first else values[::-1]
    setattr(model, name, value)
    message = r"Module.scale must be float32, .*write nn.Parameter\(data, dtype='float32'\)"
    with pytest.raises(TypeError, match=message):
        setattr(model, last, refused)
    model = nn.Module()
    model.linear, model.scale = nn.Linear(2, 3, dtype=float), nn.Parameter(np.ones(2))
    assert model.astype("float32").scale.dtype == np.float32


@pytest.mark.parametrize("names", [(), ("weight",), ("pos_weight",), ("weight", "pos_weight")])
def test_weights_of_a_loss_are_saved_and_converted_with_it(names: tuple[str, ...]) -> None:
    values = {name: np.array([1.0, 2.0]) + i for i, name in enumerate(names)}
    loss = nn.BCEWithLogitsLoss(**values)
    assert loss.state_dict().keys() == {*names}
    other = nn.BCEWithLogitsLoss(**{name: np.ones(2) for name in names})
    other.load_state_dict(loss.state_dict())
    x, target = np.array([[0.5, -1.0]]), np.array([[1.0, 0.0]])
    assert other(x, target).item() == loss(x, target).item()


# -- attributes, modes and calls -----------------------------------------------------------------------


def test_modules_evaluate_until_the_outermost_block_ends() -> None:
    m = nn.Dropout(0.5)
    with nn.evaluating():
        with nn.evaluating():
            assert not m.training
        assert not m.training
        with pytest.raises(ZeroDivisionError), nn.evaluating():
            _ = 1 / 0
        assert not m.training
    assert m.training
    with pytest.raises(ZeroDivisionError), nn.evaluating():
        _ = 1 / 0
    assert m.training


def test_registered_buffer_can_be_replaced_but_no_other_attribute() -> None:
    m, other = Small(), Small()
    m.register_buffer("shared", array := np.ones(2), persistent=False)
    assert m.shared is array
    m.register_buffer("count", [1, 2], persistent=False)
    m.register_buffer("table", None)
    assert m.count.tolist() == [1, 2] and list(m.state_dict()) == NAMES
    m.table = np.zeros(3)
    assert list(m.state_dict()) == [*NAMES, "table"] and list(other.state_dict()) == [
        *NAMES,
        "count",
    ]
    for name in ("first", "scale", "forward", "a.b"):
        with pytest.raises(KeyError, match="name must have no dot and be no attribute"):
            m.register_buffer(name, np.zeros(1))


def test_shared_parts_are_named_once() -> None:
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
    m[1].weight = m[0].weight
    shared = nn.ModuleList([m, m[0], nn.Sequential(m)])
    names = ["0.0.weight", "0.0.bias"]
    assert list(shared.state_dict()) == [name for name, _ in shared.named_parameters()] == names
    assert [name for name, _ in shared.named_modules()] == ["", "0", "0.0", "0.1", "2"]
    m[0].weight.requires_grad = False
    assert (shared.num_parameters(), shared.num_parameters(trainable_only=True)) == (6, 2)


def test_loaded_arrays_are_copies_of_any_kind_of_array() -> None:
    class Foreign:
        """A tensor of another library, whose array is `data`."""

        def __init__(self, data: Any) -> None:
            self.data = data

    m, source = nn.Linear(2, 2), np.arange(4.0).reshape(2, 2)
    for value in (source, Foreign(source), Tensor(source), source.tolist(), source[::-1][::-1]):
        m.weight.data[...] = 7
        m.load_state_dict({"weight": value, "bias": [0, 1]})
        assert m.weight.tolist() == [[0, 1], [2, 3]] and m.weight.dtype == np.float32
        m.weight.data[...] += 1
        assert source.tolist() == [[0, 1], [2, 3]]


def test_hooks_pass_on_keyword_arguments_and_may_be_removed_in_a_call() -> None:
    m, x, mask = nn.MultiHeadAttention(4, 2), np.ones((1, 2, 4), np.float32), np.tri(2, dtype=bool)
    x[0, 1] = -2
    expected, calls = m(x, mask=mask).data, []
    handles = [
        m.register_forward_pre_hook(lambda module, args: (calls.append("pre"), handles[0].remove())[1]),
        m.register_forward_hook(lambda module, args, y: (calls.append("post"), handles[1].remove())[1]),
        m.register_forward_hook(lambda module, args, y: calls.append("last")),
    ]  # fmt: skip
    assert not np.array_equal(expected, m(x).data) and calls == ["pre", "post", "last"]
    np.testing.assert_array_equal(m(x, mask=mask).data, expected)
    assert calls == ["pre", "post", "last", "last"] and m.has_hooks
    handles[2].remove()
    assert not m.has_hooks
    first = m.register_forward_pre_hook(lambda module, args: None)
    assert m.has_hooks
    first.remove()
    assert not m.has_hooks
    m.register_forward_pre_hook(lambda module, args: x[:, :1])
    m.register_forward_hook(lambda module, args, y: y * 0)
    y = m(x)
    assert y.shape == (1, 1, 4) and not y.data.any()


def test_hook_replaces_all_arguments_by_a_tuple() -> None:
    class Difference(nn.Module):
        def forward(self, x: float, y: float) -> float:
            return x - y

    m = Difference()
    handle = m.register_forward_pre_hook(lambda module, args: args[::-1])
    assert m(1, 3) == 2
    handle.remove()
    layer, rows = nn.Linear(2, 2), [[1.0, 2.0], [3.0, 4.0]]
    expected = layer(rows).data
    layer.register_forward_pre_hook(lambda module, args: rows)  # a list is one argument
    np.testing.assert_array_equal(layer([0.0, 0.0]).data, expected)
    m.register_forward_hook(lambda module, args, result: 0)  # not None: it replaces the result
    assert m(1, 3) == 0


def test_layers_refuse_unknown_options() -> None:
    for make in (lambda: nn.Tanh(x=1), lambda: nn.Tanh(alpha=1.0)):
        with pytest.raises(TypeError, match="Tanh: option must be one of"):
            make()
    with pytest.raises(ValueError, match="GELU: approximate must be 'none' or 'tanh', got 'erf'"):
        nn.GELU("erf")
    for options in ({"window": 0}, {"window": -1}):
        with pytest.raises(ValueError, match="window must be at least 1"):
            nn.ExtendedAttention(8, 2, **options)
    with pytest.raises(ValueError, match="d_model must be divisible by num_heads"):
        nn.ExtendedAttention(8, 0, head_dim=4)
    with pytest.raises(ValueError, match="bias must be True, False, or a mapping with the keys"):
        nn.ExtendedAttention(8, 2, bias={"q": True})


def test_conversions_and_traversals_take_each_part_once() -> None:
    m = nn.Sequential(Small(), Small())
    m[0].register_buffer("steps", np.arange(3))
    m[0].register_buffer("missing", None)
    m[1].table = m[0].table
    names = ["0.count", "0.table", "0.steps", "1.count"]
    assert [name for name, _ in m.named_buffers()] == names
    m[0].scale.grad = np.ones(4, np.float32)
    m[0].scale.requires_grad = False
    assert m.astype(np.float16) is m and m[0].scale.grad is None
    assert not m[0].scale.requires_grad and m[1].scale.requires_grad
    dtypes = {name: a.dtype for name, a in [*m.named_buffers(), *m.named_parameters()]}
    assert {name for name, dtype in dtypes.items() if dtype != np.float16} == {"0.steps"}
    with pytest.raises(TypeError, match="Module.astype: dtype must be floating, got int64"):
        m.astype(np.int64)
    order: list[Any] = []
    assert m.apply(order.append) is m and order[-1] is m and len(order) == len([*m.modules()])
    for module in m.modules():
        inside = [part for _, part in module.named_modules()][1:]
        assert all(order.index(part) < order.index(module) for part in inside)


def test_module_dict_refuses_names_that_are_its_methods() -> None:
    for name in ("keys", "forward", "a.b"):
        with pytest.raises(KeyError, match="a name must have no dot and be no attribute"):
            nn.ModuleDict({name: nn.ReLU()})
    with pytest.raises(TypeError, match="a name must be a string, got 1"):
        nn.ModuleDict({1: nn.ReLU()})
    modules = nn.ModuleDict({"a": nn.ReLU()})
    modules["a"] = nn.Tanh()
    assert len(modules) == 1 and "a" in modules and "b" not in modules
    assert [*modules.items()] == [("a", modules["a"])] and [*modules.values()] == [modules["a"]]


def test_layers_without_inputs_or_outputs_return_their_biases() -> None:
    layer = nn.Linear(0, 3)
    assert layer(np.ones((2, 0))).tolist() == [[0.0] * 3] * 2 == [layer.bias.tolist()] * 2
    assert nn.Linear(3, 0)(np.ones((2, 3))).shape == (2, 0)
    for fill in (
        init.xavier_uniform_,
        init.xavier_normal_,
        init.kaiming_normal_,
        init.kaiming_uniform_,
    ):
        for shape in ((0, 3), (3, 0), (0, 0), (2, 3, 0)):
            assert fill(nn.Parameter(np.ones(shape))).shape == shape
        with pytest.raises(ValueError, match="tensor must have at least two axes for fan_in"):
            fill(nn.Parameter(np.ones(3)))


def test_gradients_are_dropped_or_zero() -> None:
    m = nn.Linear(2, 1)
    for set_to_none in (False, True):
        m(np.ones((1, 2))).sum().backward()
        assert m.weight.grad.data.all()
        m.zero_grad(set_to_none)
        grads = [p.grad for p in m.parameters()]
        assert grads == [None, None] if set_to_none else not any(g.data.any() for g in grads)


def test_parts_that_are_copied_together_stay_one() -> None:
    m = Small()
    first, copied, again = copy.deepcopy([m.first, m, m.blocks])
    assert copied.first is first and copied.blocks is again and first is not m.first
    assert copied.blocks[1][0].weight is again[1][0].weight


def test_copies_restore_the_state_that_a_module_defines() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            self.cache = [1]

        def __setstate__(self, state: dict[str, Any]) -> None:
            vars(self).update({**state, "cache": []})

    assert copy.deepcopy(nn.Sequential(Cached()))[0].cache == []
    empty = copy.deepcopy(nn.Sequential(nn.Identity()))[0]
    assert type(empty) is nn.Identity and vars(empty) == {}
