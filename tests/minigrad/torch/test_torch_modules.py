"""Modules with PyTorch's names: a script in PyTorch's words, missing names, and NumPy's references.

`tests/oracle/test_torch_modules.py` compares each function with PyTorch.
"""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import minigrad as mg
import minigrad.torch as torch
import minigrad.torch.nn as nn
import minigrad.torch.nn.functional as F
from minigrad.torch.optim import SGD, AdamW
from minigrad.torch.optim.lr_scheduler import LambdaLR, OneCycleLR, SequentialLR, StepLR
from minigrad.torch.utils.data import DataLoader, Dataset, TensorDataset, random_split


class Sorted(Dataset):
    """Digits, and the same digits in order."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randint(0, 5, (64, 4), generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        both = torch.cat((self.x[i], torch.sort(self.x[i])[0]), dim=0)
        inputs, targets = both[:-1].clone(), both[1:].clone()
        targets[:3] = -100
        return inputs, targets


class Attention(nn.Module):
    def __init__(self, d: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out, self.drop = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Dropout(0.1)
        mask = torch.tril(torch.ones(length, length)).view(1, 1, length, length)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Any) -> Any:
        n, length, d = x.size()
        parts = self.qkv(x).split(d, dim=2)
        q, k, v = (p.view(n, length, self.heads, -1).transpose(1, 2) for p in parts)
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(k.size(-1))
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        y = self.drop(F.softmax(scores, dim=-1)) @ v
        return self.out(y.transpose(1, 2).contiguous().view(n, length, d))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.attention = nn.Embedding(5, 16), Attention(16, 2, 7)
        self.positions = nn.Parameter(torch.zeros(1, 7, 16))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5, bias=False)
        self.apply(self.start)

    def start(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.2)

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids) + self.positions[:, : ids.shape[1]]
        return self.head(self.norm(x + self.attention(x)))


def test_script_of_pytorch_runs(tmp_path: Path) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    train_set, valid_set = random_split(Sorted(), [48, 16], generator=generator)
    train = DataLoader(train_set, batch_size=16, shuffle=True, num_workers=0, pin_memory=False)
    model = Model().to(device)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    schedule = LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / 60)))
    scaler = torch.amp.GradScaler(enabled=False)
    losses = []
    for _ in range(20):
        for x, y in train:
            x, y = x.to(device, non_blocking=True), y.to(device)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device_type=device.type, enabled=False):
                logits = model(x)
                loss = F.cross_entropy(logits.view(-1, 5), y.view(-1), ignore_index=-100)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    torch.save({"model": model.state_dict(), "epoch": 3}, tmp_path / "model.pt")
    state = torch.load(tmp_path / "model.pt", map_location="cpu", weights_only=True)
    other = Model()
    other.load_state_dict(state["model"])
    with torch.no_grad():
        x, _ = next(iter(DataLoader(valid_set, batch_size=16)))
        expected = model.eval()(x).argmax(dim=-1)
        assert torch.equal(other.eval()(x).argmax(dim=-1), expected) and state["epoch"] == 3


@pytest.mark.parametrize(
    "statement, message",
    [
        ("from minigrad.torch.optim import Adagrad", "docs/torch.md lists PyTorch's names"),
        ("from minigrad.torch.nn import Conv2d", "docs/torch.md lists PyTorch's names"),
        ("from minigrad.torch import compile", "docs/torch.md lists PyTorch's names"),
        ("from minigrad.torch.utils.data import Sampler", "docs/torch.md lists PyTorch's names"),
        ("from minigrad.optim import DataLoader",
         "write from minigrad.torch.utils.data import DataLoader"),
        ("from nn import MultiheadAttention", "write from minigrad.torch.nn import Multihead"),
        ("import minigrad; minigrad.percentiles", "docs/numpy.md NumPy's"),
        ("import minigrad; minigrad.packbits", r"write np.packbits\(...\)"),
        ("import minigrad.torch as torch; torch.vstack", r"write np.vstack\(...\)"),
        ("import minigrad.torch as torch; torch.nanmedian", "docs/torch.md lists PyTorch's names"),
    ],
)  # fmt: skip
def test_missing_name_is_one_sentence(statement: str, message: str) -> None:
    error = ImportError if statement.startswith("from") else AttributeError
    with pytest.raises(error, match=message):
        exec(statement, {})


@pytest.mark.parametrize("module", ["minigrad", "minigrad.torch", "minigrad.torch.nn", "nn"])
def test_advice_for_a_missing_name_names_what_exists(module: str) -> None:
    here, advised = importlib.import_module(module), 0
    names = {*dir(np), *dir(torch), *dir(nn), *dir(F)} - {*dir(here), *vars(here)}
    for name in sorted(name for name in names if name[0] != "_"):
        with pytest.raises(AttributeError) as error:
            getattr(here, name)
        found = re.search(r"write from (\S+) import|write np[.](\w+)\(", str(error.value))
        if found and found[1]:
            assert hasattr(importlib.import_module(found[1]), name)
        elif found:
            assert found[2] == name and callable(getattr(np, name))
        else:
            assert module != "minigrad" or not callable(getattr(np, name, None))
        advised += found is not None
    assert advised > 5


MODULES = {
    "": {"nn", "optim", "amp", "utils"},
    ".nn": {"functional", "init", "utils"},
    ".optim": {"lr_scheduler"},
}


@pytest.mark.parametrize("lengths", [(), (2, 3), (0, 1)])
def test_tensors_of_a_data_set_must_have_one_length(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="TensorDataset: tensors must have one length, got"):
        TensorDataset(*(torch.zeros(n) for n in lengths))


def test_missing_names_have_no_attribute() -> None:
    for name in ("", ".nn", ".nn.functional", ".optim"):
        module = importlib.import_module(f"minigrad.torch{name}")
        assert not hasattr(module, "compile") and not hasattr(module, "__wrapped__")
        assert len(dir(module)) == len({*dir(module)})
        assert {*dir(module)} >= MODULES.get(name, set())


@given(arrays(float, (3, 4), elements=st.integers(-3, 3)), st.sampled_from([0, 1, -1]))
def test_pairs_have_values_at_their_indices(x: np.ndarray, axis: int) -> None:
    expected = {
        torch.max: x.max(axis),
        torch.min: x.min(axis),
        torch.median: np.sort(x, axis).take((x.shape[axis] - 1) // 2, axis),
    }
    for f, values in expected.items():
        pair = f(mg.tensor(x), axis)
        assert f(mg.tensor(x), axis, True).values.shape[axis] == 1
        np.testing.assert_array_equal(pair.values.data, values)
        at = np.expand_dims(pair.indices.data, axis)
        np.testing.assert_array_equal(np.take_along_axis(x, at, axis).squeeze(axis), values)
    for descending in (False, True):
        pair = torch.sort(mg.tensor(x), axis, descending)
        order = np.sort(-x if descending else x, axis)
        np.testing.assert_array_equal(pair.values.data, -order if descending else order)
        np.testing.assert_array_equal(
            np.take_along_axis(x, pair.indices.data, axis), pair.values.data
        )
        top = torch.topk(mg.tensor(x), 2, axis, largest=descending)
        np.testing.assert_array_equal(top.values.data, pair.values.data.take([0, 1], axis))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "batchmean"])
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy", "binary_cross_entropy_with_logits"])  # fmt: skip
def test_loss_of_a_number_is_that_of_a_vector_of_one(name: str, reduction: str) -> None:
    loss, x, target = getattr(F, name), np.array([0.25]), np.array([0.75])
    if reduction == "batchmean" and name != "kl_div":
        with pytest.raises(ValueError, match=f"{name}: reduction must be .*, got 'batchmean'"):
            loss(x, target, reduction=reduction)
        return
    expected = loss(x, target, reduction=reduction).data
    y = loss(x[0], target[0], reduction=reduction)
    assert y.shape == () and y.item() == expected
    with pytest.raises(ValueError, match=f"{name}: input and target must have one shape"):
        loss(np.array([0.25, 0.5]), target, reduction=reduction)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(1, 5))
def test_split_takes_lengths(sizes: list[int], size: int) -> None:
    x = mg.tensor(np.arange(2.0 * sum(sizes)).reshape(2, -1), requires_grad=True)
    parts = x.split(sizes, dim=1)
    assert [part.shape[1] for part in parts] == sizes
    np.testing.assert_array_equal(np.concatenate([p.data for p in parts], 1), x.data)
    if sum(sizes):
        equal = torch.split(x, size, dim=1)
        lengths = [part.shape[1] for part in equal]
        assert sum(lengths) == sum(sizes) and {*lengths[:-1]} <= {size}
    with pytest.raises(ValueError, match="split_size must add up to"):
        x.split([*sizes, 1], dim=1)


@given(arrays(float, (2, 3, 4)), st.permutations([0, 1, 2]))
def test_transpose_of_two_axes_exchanges_them(x: np.ndarray, axes: list[int]) -> None:
    y = mg.tensor(x).transpose(axes[0], axes[1])
    np.testing.assert_array_equal(y.data, np.swapaxes(x, axes[0], axes[1]))
    np.testing.assert_array_equal(mg.tensor(x).transpose(*axes).data, x.transpose(axes))


def test_one_cycle_has_its_ends_and_its_top() -> None:
    optimizer = SGD([mg.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
    schedule = OneCycleLR(optimizer, 0.5, total_steps=21, pct_start=0.5)
    rates, momenta = [schedule.lr], [optimizer.param_groups[0]["momentum"]]
    for _ in range(20):
        schedule.step()
        rates.append(schedule.lr)
        momenta.append(optimizer.param_groups[0]["momentum"])
    np.testing.assert_allclose([rates[0], max(rates), rates[-1]], [0.02, 0.5, 2e-6], rtol=0.01)
    np.testing.assert_allclose(
        [momenta[0], min(momenta), momenta[-1]], [0.95, 0.85, 0.95], rtol=1e-3
    )
    with pytest.raises(ValueError, match="total_steps must be at least the number of steps"):
        schedule.step()
    plain = SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    with pytest.raises(ValueError, match="optimizer must have momentum"):
        OneCycleLR(plain, 0.5, total_steps=20)


def test_sequential_schedule_resumes() -> None:
    def make() -> Any:
        optimizer = SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
        parts = [StepLR(optimizer, 2), LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))]
        return SequentialLR(optimizer, parts, milestones=[4])

    whole, rates = make(), []
    for _ in range(8):
        rates.append(whole.get_last_lr()[0])
        whole.step()
    np.testing.assert_allclose(rates, [1, 1, 0.1, 0.1, 1, 1 / 2, 1 / 3, 1 / 4])
    first, second = make(), make()
    for _ in range(5):
        first.step()
    second.load_state_dict(first.state_dict())
    assert second.get_last_lr() == first.get_last_lr() == [1 / 2]


def test_weights_are_truncated_and_orthogonal() -> None:
    w = nn.init.trunc_normal_(mg.zeros(1000), std=1.0, a=-0.5, b=1.0)
    assert -0.5 <= w.data.min() < -0.4 and 0.9 < w.data.max() <= 1.0
    for shape in ((3, 5), (5, 3), (4, 2, 2)):
        q = nn.init.orthogonal_(mg.zeros(*shape), gain=2.0).data.reshape(shape[0], -1)
        product = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
        np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)


def test_loader_draws_new_orders_from_its_generator() -> None:
    data = TensorDataset(torch.arange(10), torch.arange(10) * 2)
    loaders = [
        DataLoader(data, 4, shuffle=True, generator=torch.Generator().manual_seed(3))
        for _ in range(2)
    ]
    epochs = [[torch.cat([x for x, _ in loader]).tolist() for _ in range(2)] for loader in loaders]
    assert epochs[0] == epochs[1] and epochs[0][0] != epochs[0][1]
    assert sorted(epochs[0][0]) == list(range(10)) and len(loaders[0]) == 3
    assert all((2 * x.data == y.data).all() for x, y in loaders[0])
    with pytest.raises(ValueError, match="num_workers must be 0, got 2"):
        DataLoader(data, num_workers=2)


@pytest.mark.parametrize("make", [torch.autocast, torch.amp.GradScaler])
def test_mixed_precision_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="enabled must be False"):
        make("cpu")


@pytest.mark.parametrize("f, ddof", [(torch.var, 1), (torch.std, 1)])
def test_variance_divides_by_n_less_the_correction(f: Any, ddof: int) -> None:
    """`unbiased` wins over `correction`."""
    x = np.random.default_rng(0).standard_normal((3, 4))
    reference = getattr(np, f.__name__)
    for options, ddof in [
        ({}, 1), ({"unbiased": True}, 1), ({"unbiased": False}, 0), ({"correction": 0}, 0), ({"correction": 2}, 2),
    ]:  # fmt: skip
        np.testing.assert_allclose(f(x, 1, **options).data, reference(x, axis=1, ddof=ddof))
    np.testing.assert_allclose(f(x, False).data, reference(x))


@given(
    st.tuples(*[st.integers(1, 3)] * 2),
    st.tuples(*[st.integers(0, 2)] * 2),
    st.sampled_from([0, 1]),
)
def test_scatter_add_reads_the_corner_of_its_source(
    shape: tuple[int, int], more: tuple[int, int], dim: int
) -> None:
    """The source may have more elements than the index, and the tensor more along other axes."""
    rng = np.random.default_rng(0)
    index = rng.integers(0, 4, shape)
    source = rng.standard_normal([a + b for a, b in zip(shape, more)])
    expected = np.zeros((4, 4))
    for at in np.ndindex(shape):
        where = (index[at], at[1]) if dim == 0 else (at[0], index[at])
        expected[where] += source[at]
    found = torch.scatter_add(torch.zeros(4, 4, dtype=float), dim, index, torch.as_tensor(source))
    np.testing.assert_allclose(found.data, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("name, args", [("zeros", (2,)), ("ones", (2,)), ("empty", (2,)), ("full", ((2,), 3)), ("arange", (3,)), ("linspace", (0, 4, 3)), ("eye", (2,)), ("rand", (2,)), ("randn", (2,)), ("tensor", ([1, 2],)), ("zeros_like", (mg.ones(2),))])  # fmt: skip
def test_function_creates_a_tensor_of_the_dtype_that_is_named(
    name: str, args: Any, dtype: Any
) -> None:
    if name not in ("rand", "randn") or dtype != torch.int64:
        y = getattr(torch, name)(*args, dtype=dtype)
        assert y.dtype == dtype
    if name not in ("arange", "tensor", "full", "zeros_like"):
        assert getattr(torch, name)(*args).dtype == torch.float32


@given(st.permutations([0, 3, 2]), st.integers(0, 3))
def test_arange_is_of_floats_if_an_argument_is_one(bounds: list[int], which: int) -> None:
    low, high, step = sorted(bounds)[0], sorted(bounds)[2], sorted(bounds)[1]
    arguments = [float(x) if i == which else x for i, x in enumerate((low, high, step))]
    found = torch.arange(*arguments)
    expected = np.arange(low, high, step, np.int64 if which == 3 else np.float32)
    np.testing.assert_array_equal(found.data, expected, strict=True)


@given(st.integers(0, 12), st.integers(1, 5))
def test_random_split_gives_the_rest_to_the_first_parts_in_turn(n: int, parts: int) -> None:
    data = TensorDataset(np.arange(n))
    shares = [1 / 2**i for i in range(1, parts)] + [1 / 2 ** (parts - 1)]
    pieces = random_split(data, shares)
    sizes = [int(n * share) for share in shares]
    rest = n - sum(sizes)
    assert [*map(len, pieces)] == [size + (i < rest) for i, size in enumerate(sizes)]
    assert sorted(i for piece in pieces for i in piece.indices) == list(range(n))


@given(st.sampled_from([0.0, 1e-300, 1e-13, 1e-12, 1e-11, 1e-5, 0.5]), st.sampled_from([0.0, 1.0]))
def test_binary_cross_entropy_has_bounded_values_and_slopes(distance: float, target: float) -> None:
    """Logarithms are at least -100, and slopes at most 1e12, also for probabilities 0 and 1."""
    p = mg.tensor(distance if target else 1 - distance, requires_grad=True)
    loss = F.binary_cross_entropy(p, np.array(target))
    loss.backward()
    kept = p.item() if target else 1 - p.item()
    assert loss.item() == pytest.approx(min(100.0, -math.log(kept) if kept else math.inf))
    assert abs(p.grad.item()) == pytest.approx(1 / max(kept, 1e-12))


@given(st.sampled_from([math.nan, -math.inf, math.inf]), st.sampled_from(["mean", "sum", "none"]))
def test_nll_loss_does_not_read_ignored_rows(value: float, reduction: str) -> None:
    x = mg.log_softmax(np.random.default_rng(0).standard_normal((3, 4)))
    full = mg.tensor(np.concatenate([x.data, np.full((1, 4), value)]), requires_grad=True)
    found = F.nll_loss(full, np.array([0, 3, 1, -100]), reduction=reduction)
    expected = F.nll_loss(x, np.array([0, 3, 1]), reduction=reduction).data
    np.testing.assert_allclose(found.data, np.append(expected, 0) if expected.ndim else expected)
    found.backward(np.ones(found.shape))
    assert np.isfinite(full.grad.data).all() and not full.grad.data[3].any()


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_options_of_the_way_to_compute_change_nothing(kind: Any) -> None:
    p, q = (torch.ones(3).requires_grad_() for _ in range(2))
    for x, optimizer in ((p, kind([p], 0.1)), (q, kind([q], 0.1, fused=True, foreach=False))):
        (x * x).sum().backward()
        optimizer.step()
    assert p.tolist() == q.tolist() != [1.0, 1.0, 1.0]


def test_loader_collates_drops_and_draws_as_its_options_say() -> None:
    data = TensorDataset(np.arange(7), np.arange(7) * 2, np.arange(7) * 3)
    assert [len(data), data[2], data[-1]] == [7, (2, 4, 6), (6, 12, 18)]
    before = mg.get_rng_state()
    for drop in (False, True):
        loader = DataLoader(data, 3, drop_last=drop, collate_fn=lambda rows: [sum(r) for r in rows])
        expected = [[0, 6, 12], [18, 24, 30], [36]]
        assert [*loader] == expected[: 3 - drop] and len(loader) == 3 - drop
        assert loader.dataset is data
    assert mg.get_rng_state() == before
    assert [len(x) for x, *_ in DataLoader(data)] == [1] * 7
    for items in (torch.arange(5), np.arange(5), [*range(5)]):  # batches are no tuples
        assert [x.tolist() for x in DataLoader(items, 3)] == [[0, 1, 2], [3, 4]]
        assert [*DataLoader(items, 3, collate_fn=lambda rows: [*map(int, rows)])] == [
            [0, 1, 2],
            [3, 4],
        ]


def test_dataset_without_items_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="Items must define __getitem__"):
        type("Items", (Dataset,), {})()[0]


def test_split_is_drawn_from_its_generator_and_its_items_keep_their_order() -> None:
    data = TensorDataset(np.arange(30))
    splits = [
        [part.indices for part in random_split(data, [10, 20], torch.Generator().manual_seed(seed))]
        for seed in (0, 0, 1)
    ]
    assert splits[0] == splits[1] != splits[2]
    assert splits[0][0] != sorted(splits[0][0]) and len(splits[0][1]) == 20
    part = random_split(data, [10, 20])[0]
    assert [part[i][0] for i in range(len(part))] == part.indices
    for lengths in ([10, 19], [10, 21], [0.5, 0.4], [0.5, 0.6]):
        with pytest.raises(ValueError, match="random_split: lengths must add up to 30"):
            random_split(data, lengths)
    for parts in ([0.1] * 10, [0.1, 0.1, 0.1, 0.7], [0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.2]):
        assert sum(map(len, random_split(data, parts))) == 30  # also if they add up to 1 + 2e-16


def test_disabled_scaler_takes_the_step() -> None:
    p = torch.ones(2, requires_grad=True)
    scaler, optimizer = torch.amp.GradScaler(enabled=False), SGD([p], 0.5)
    scaler.scale(p.sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.5, 0.5] and p.grad.tolist() == [1, 1]


def test_loader_draws_its_order_from_a_generator_only_to_shuffle() -> None:
    data = TensorDataset(torch.arange(30))

    def order(seed: int, shuffle: bool, generator: Any) -> tuple[list[int], float]:
        source = torch.manual_seed(seed)
        source = generator.manual_seed(seed).numpy if generator else source
        batches = DataLoader(data, 8, shuffle, generator=generator)
        rows = [x for (batch,) in batches for x in batch.tolist()]
        return rows, source.random()

    for generator in (None, torch.Generator()):
        first, again, other = (order(seed, True, generator)[0] for seed in (0, 0, 1))
        assert first == again != other and sorted(first) == sorted(other) == list(range(30))
        rows, number = order(0, False, generator)
        assert rows == list(range(30))
        source = generator.manual_seed(0).numpy if generator else torch.manual_seed(0)
        assert source.random() == number


@pytest.mark.parametrize("lengths", [[2.5, 1.5], [1, 2], [5], [], [0.5, 0.4]])
def test_lengths_of_parts_that_do_not_add_up_are_refused(lengths: Any) -> None:
    with pytest.raises(ValueError, match="random_split: lengths must add up to 4, got"):
        random_split(TensorDataset(torch.zeros(4)), lengths)
