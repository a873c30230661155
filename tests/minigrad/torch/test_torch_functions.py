"""Functions of `minigrad.torch` with the defaults of PyTorch, by NumPy's expressions."""

from __future__ import annotations

import ast
import importlib
import inspect
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import minigrad.torch as torch
from minigrad import Tensor

A = np.array([[3.0, 0.0, -1.0], [1.0, 4.0, 1.0]])
T = Tensor(A)
FIRST, LAST = np.array([0, 0, 1, 1, 1]), np.array([0, 2, 0, 1, 2])
EQUAL, CUBE = np.tile([2.0, 1.0, 3.0], 40), np.arange(24.0).reshape(2, 3, 4)
CASES: list[tuple[str, Any, Any]] = [
    ("max", lambda: torch.max(T, 1).values, A.max(1)),
    ("max with its axis", lambda: torch.max(T, 1, True).indices, [[0], [1]]),
    ("min", lambda: torch.min(T, 0).indices, [1, 0, 0]),
    ("max of two", lambda: torch.max(T, Tensor(A[::-1])), np.maximum(A, A[::-1])),
    ("median", lambda: torch.median(T), 1.0),
    ("median along an axis", lambda: torch.median(T, 1).indices, [1, 2]),
    ("median with NaN", lambda: torch.median(Tensor([1.0, np.nan, 0.0])), np.nan),
    ("sort", lambda: torch.sort(T, descending=True).values, -np.sort(-A)),
    ("argsort of equal ones", lambda: torch.argsort(T, descending=True), [[0, 1, 2], [1, 0, 2]]),
    ("topk", lambda: torch.topk(T, 2).values, [[3, 0], [4, 1]]),
    ("topk of none", lambda: torch.topk(T, 0).values, np.zeros((2, 0))),
    ("topk of all", lambda: torch.topk(T, 3, largest=False).values, np.sort(A)),
    ("topk of rows", lambda: torch.topk(T, 2, 0).values, -np.sort(-A, 0)),
    ("var", lambda: torch.var(T), A.var(ddof=1)),
    ("var without correction", lambda: torch.var(T, 0, correction=0), A.var(0)),
    ("var of a population", lambda: torch.var(T, False), A.var()),
    ("std", lambda: torch.std(T, 1), A.std(1, ddof=1)),
    ("nonzero", lambda: torch.nonzero(T), np.stack([FIRST, LAST], 1)),
    ("nonzero of a number", lambda: torch.nonzero(Tensor(2.0)), np.zeros((1, 0), int)),
    ("nonzero of zero", lambda: torch.nonzero(Tensor(0.0)), np.zeros((0, 0), int)),
    ("nonzero as a tuple", lambda: torch.nonzero(T, as_tuple=True)[1], LAST),
    ("norm", lambda: torch.norm(T, dim=1), np.sqrt((A * A).sum(1))),
    ("norm of rows", lambda: torch.norm(T, 1, 1, True), np.abs(A).sum(1, keepdims=True)),
    ("meshgrid", lambda: torch.meshgrid(T[0], T[1, :2])[1], np.tile(A[1, :2], (3, 1))),
    ("meshgrid of a tuple", lambda: torch.meshgrid((T[0], T[1, :2]))[1], np.tile(A[1, :2], (3, 1))),
    ("einsum of a list", lambda: torch.einsum("ij,ij->i", [T, T]), (A * A).sum(1)),
    ("tril", lambda: torch.tril(T, diagonal=-1), np.tril(A, -1)),
    ("roll", lambda: torch.roll(T, shifts=1, dims=1), np.roll(A, 1, 1)),
    ("tile", lambda: torch.tile(T, (2, 1)), np.tile(A, (2, 1))),
    ("repeat_interleave", lambda: torch.repeat_interleave(T, 2, 1), A.repeat(2, 1)),
    ("t", lambda: torch.t(T), A.T),
    ("t of a square", lambda: torch.t(T[:, :2]), A[:, :2].T),
    ("t of a vector", lambda: torch.t(T[0]), A[0]),
    ("method t", lambda: T.t(), A.T),
    ("flatten of a number", lambda: mg.flatten(Tensor(2.0)), [2.0]),
    ("split by lengths", lambda: T.split([1, 2], 1)[1], A[:, 1:]),
    (
        "scatter_add of a corner",
        lambda: torch.scatter_add(T, 1, np.array([[2, 2]]), Tensor(A + 1)),
        A + [[0, 0, 5], [0, 0, 0]],
    ),
    ("max of an array", lambda: torch.max(T, A[::-1].copy()), np.maximum(A, A[::-1])),
    ("min of two", lambda: torch.min(T, Tensor(A[::-1])), np.minimum(A, A[::-1])),
    ("max of all", lambda: torch.max(T), 4.0),
    ("median of an even number", lambda: torch.median(Tensor([4.0, 1.0, 3.0, 2.0])), 2.0),
    ("sort of many equal", lambda: torch.sort(EQUAL).indices, np.argsort(EQUAL, kind="stable")),
    (
        "sort down of many equal",
        lambda: torch.sort(EQUAL, descending=True).indices,
        np.argsort(-EQUAL, kind="stable"),
    ),
    ("var with its axis", lambda: torch.var(T, 1, keepdim=True), A.var(1, ddof=1, keepdims=True)),
    ("std with its axis", lambda: torch.std(T, 1, False, True), A.std(1, keepdims=True)),
    ("flip of a tuple", lambda: torch.flip(T, (0, 1)), A[::-1, ::-1]),
    ("flip of a list", lambda: torch.flip(T, [1]), A[:, ::-1]),
    ("tile of a tuple", lambda: torch.tile(T, (2, 1)), np.tile(A, (2, 1))),
    ("norm of Frobenius", lambda: torch.norm(T, "fro"), np.sqrt((A * A).sum())),
    (
        "meshgrid of x and y",
        lambda: torch.meshgrid(T[0], T[1, :2], indexing="xy")[0],
        np.tile(A[0], (2, 1)),
    ),
    (
        "repeat_interleave of counts",
        lambda: torch.repeat_interleave(T, Tensor([1, 0, 2]), 1),
        A[:, [0, 2, 2]],
    ),
    (
        "repeat_interleave of a list",
        lambda: torch.repeat_interleave([1.0, 2.0], 2),
        np.array([1.0, 1, 2, 2]),
    ),
    ("t of a list", lambda: torch.t([[1.0, 2.0]]), np.array([[1.0], [2.0]])),
    (
        "diagonal of two axes",
        lambda: torch.diagonal(Tensor(CUBE), offset=1, dim1=2, dim2=0),
        np.diagonal(CUBE, 1, 2, 0),
    ),
    ("diag", lambda: torch.diag(T[0], diagonal=1), np.diag(A[0], 1)),
    ("triu", lambda: torch.triu(T, diagonal=1), np.triu(A, 1)),
    ("tensor of a number", lambda: torch.tensor(np.float64(2.5)), np.array(2.5)),
    ("tensor of arrays", lambda: torch.tensor([A[0], A[1]]), A),
    ("tensor of flags", lambda: torch.tensor([True, False]), np.array([True, False])),
    ("full of an integer", lambda: torch.full((2,), 3), np.array([3, 3])),
    ("full of a float64", lambda: torch.full((2,), np.float64(3)), np.array([3.0, 3.0])),
    ("arange down to 0", lambda: torch.arange(3, 0, -1), np.array([3, 2, 1])),
    ("max beside an axis of 1", lambda: torch.max(T[:, None], 0).values, A[:, None].max(0)),
    ("positions beside an axis of 1", lambda: torch.min(T[:, None], 0).indices, [[1, 0, 0]]),
    ("arange from a start", lambda: torch.arange(2, 8, 3), np.array([2, 5])),
    ("bernoulli", lambda: torch.bernoulli(Tensor([0.0, 1.0, 0.0, 1.0])), [0.0, 1.0, 0.0, 1.0]),
    ("tensor", lambda: torch.tensor([1, 2.5]), np.array([1, 2.5], np.float32)),
    ("tensor of integers", lambda: torch.tensor([1, 2]), np.array([1, 2])),
    ("tensor of tensors", lambda: torch.tensor([T[0], T[1]]), A),
    ("as_tensor of an array", lambda: torch.as_tensor(A), A),
    ("ones", lambda: torch.ones(2, 3), np.ones((2, 3), np.float32)),
    ("zeros of a dtype", lambda: torch.zeros(2, dtype=np.int64), np.zeros(2, int)),
    ("ones without a dtype", lambda: torch.ones(2, dtype=None), np.ones(2, np.float32)),
    ("full", lambda: torch.full((2,), 3.5), np.full(2, 3.5, np.float32)),
    ("arange", lambda: torch.arange(3), np.arange(3)),
    ("arange of floats", lambda: torch.arange(1, 2, 0.5), np.array([1, 1.5], np.float32)),
    ("linspace", lambda: torch.linspace(0, 1, 3), np.array([0, 0.5, 1], np.float32)),
    ("eye", lambda: torch.eye(2), np.eye(2, dtype=np.float32)),
    ("random integers", lambda: torch.randint(4, 5, (3,)), np.full(3, 4)),
    ("huber_loss", lambda: mg.huber_loss(T, A - [0.5, 1, 3]), (0.125 + 0.5 + 2.5) / 3),
    ("smooth_l1_loss", lambda: mg.smooth_l1_loss(T, A - [0.5, 1, 3]), (0.125 + 0.5 + 2.5) / 3),
    ("l1 by beta", lambda: mg.smooth_l1_loss(T, A - [0.5, 1, 3], beta=0.0), 1.5),
    ("mean of kl_div", lambda: mg.kl_div(T, A * 0 + 1), -A.mean()),
    ("kl_div", lambda: mg.kl_div(T, A * 0 + 1, reduction="batchmean"), -A.sum() / 2),
]


@pytest.mark.parametrize(("call", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
@pytest.mark.parametrize("tracked", [False, True])
def test_function_has_the_result_of_pytorch(
    call: Any, expected: Any, tracked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(T, "requires_grad", tracked)
    found = call()
    expected = np.asarray(expected, found.dtype if isinstance(expected, (float, list)) else None)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found.data, expected, rtol=1e-12)


def test_bernoulli_draws_ones_with_their_probability() -> None:
    found = torch.bernoulli(Tensor(np.full(4000, 0.25)), generator=torch.Generator().manual_seed(0))
    assert type(found) is Tensor
    assert set(found.tolist()) == {0.0, 1.0} and 0.2 < found.mean().item() < 0.3


def test_equal_compares_shapes_and_elements() -> None:
    for other, expected in (
        (A.copy(), True),
        (A + (A == 4), False),
        (A[:1], False),
        (A[None], False),
    ):
        assert torch.equal(T, Tensor(other)) is expected
    assert torch.equal(Tensor([np.nan]), Tensor([np.nan])) is False
    assert torch.equal(Tensor(np.zeros((0, 2))), Tensor(np.zeros((0, 3)))) is False


def test_sharing_and_copying_are_those_of_pytorch() -> None:
    x = np.zeros(3)
    shared, copied = torch.as_tensor(x), torch.tensor(x)
    x[0] = 1
    assert shared.tolist() == [1, 0, 0] and copied.tolist() == [0, 0, 0]
    assert torch.as_tensor(x, dtype=np.float32).dtype == np.float32


def test_draws_without_replacement_differ() -> None:
    p = np.ones(6) / 6
    assert sorted(torch.multinomial(p, 6).tolist()) == list(range(6))
    assert all(len({*torch.multinomial(p, 40, True).tolist()}) < 40 for _ in range(3))
    with pytest.raises(ValueError, match="multinomial"):
        torch.multinomial(p, 7)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.Generator("cuda"),
        lambda: torch.device("cuda:0"),
        lambda: torch.as_tensor(A, device="cuda"),
        lambda: torch.randint(3, (2,), device="cuda"),
        lambda: torch.load("missing", map_location="cuda"),
        lambda: T.to("cuda"),
    ],
)
def test_other_devices_are_refused(call: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="cuda"):
        call()
    assert torch.device("cpu") == torch.device() == "cpu" and torch.device().type == "cpu"


def test_t_of_three_axes_is_refused() -> None:
    for call in (torch.t, Tensor.t):
        with pytest.raises(
            ValueError, match=r"t: x must have at most two axes, got shape \(2, 3, 4\)"
        ):
            call(Tensor(CUBE))


def test_topk_takes_from_none_to_all() -> None:
    assert [len(torch.topk(T[0], k).values) for k in range(4)] == [0, 1, 2, 3]
    for k in (-1, 4):
        with pytest.raises(ValueError, match=f"topk: k must be from 0 to 3, got {k}"):
            torch.topk(T, k)


CREATED: dict[str, Any] = {
    "zeros": (2,), "ones": (2,), "empty": (2,), "eye": (2,), "rand": (2,), "randn": (2,), "full": ((2,), 1.5),
    "arange": (2.0,), "linspace": (0, 4, 3), "tensor": ([1.0, 2.0],),
}  # fmt: skip


@pytest.mark.parametrize("name", CREATED)
def test_created_tensor_has_the_options_of_its_call(name: str) -> None:
    create, args = getattr(torch, name), CREATED[name]
    for flag in (True, False):
        x = create(*args, requires_grad=flag, device="cpu")
        assert x.requires_grad == flag and x.is_leaf and x.dtype == np.float32
    with pytest.raises(ValueError, match="device must be 'cpu'"):
        create(*args, device="cuda")
    if isinstance(args[0], int) and len(args) == 1:
        assert create(*args, layout=None, pin_memory=True).shape == create(*args).shape


DRAWN: dict[str, Any] = {
    "rand": (9,), "randn": (9,), "randint": (9, (9,)), "randperm": (9,), "normal": (T, 2.0), "bernoulli": (T * 0 + 0.5,),
    "multinomial": (np.ones((9, 9)) / 9, 9, True),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_random_numbers_are_those_of_their_generator(name: str) -> None:
    def draw(seed: int, kind: Any = torch.Generator) -> Any:
        generator = kind().manual_seed(seed) if kind else np.random.default_rng(seed)
        return getattr(torch, name)(*DRAWN[name], generator=generator)

    assert draw(0).tolist() == draw(0).tolist() == draw(0, None).tolist()
    assert any(draw(0).tolist() != draw(seed).tolist() for seed in range(1, 4))
    assert draw(0).dtype == {"rand": np.float32, "randn": np.float32, "normal": T.dtype, "bernoulli": T.dtype}.get(name, np.int64)  # fmt: skip


@pytest.mark.parametrize("dim", range(-3, 3))
def test_elements_are_added_at_the_indices_of_each_axis(dim: int) -> None:
    shape = [2, 2, 2]
    shape[dim] = 4
    index = np.random.default_rng(0).integers(0, CUBE.shape[dim], shape)
    source = np.arange(40.0).reshape(4, 2, 5).repeat(2, 1)[:, :4].swapaxes(0, dim)  # is larger
    expected = CUBE.copy()
    for place in np.ndindex(*shape):
        target = list(place)
        target[dim] = index[place]
        expected[tuple(target)] += source[place]
    y = torch.scatter_add(Tensor(CUBE), dim, index, Tensor(source))
    np.testing.assert_array_equal(y.data, expected)


def test_random_numbers_have_the_range_and_moments_of_their_arguments() -> None:
    assert {*torch.randint(2, (99,)).tolist()} == {0, 1}
    assert {*torch.randint(5, 7, size=(99,), dtype=np.int32).tolist()} == {5, 6}
    assert torch.randint(5, 7, (1,), dtype=np.int32).dtype == np.int32
    mean, std = Tensor(np.full(4000, 3.0)), Tensor(np.full(4000, 0.5, np.float32))
    for x in (torch.normal(mean, 0.5), torch.normal(3.0, std), torch.normal(3.0, 0.5, (4000,))):
        assert abs(x.mean().item() - 3) < 0.1 and 0.45 < np.std(x.data) < 0.55
    assert torch.normal(mean, std).dtype == float and torch.normal(0, std).dtype == np.float32
    assert torch.normal(0.0, 1.0, (2,)).dtype == np.float32
    assert torch.normal(0.0, Tensor([1.0])).dtype == torch.normal(Tensor([0.0]), std).dtype == float


@pytest.mark.parametrize(
    "part", ["functions", "dtypes", "amp", "utils.data", "nn.transformer", "losses", "names"]
)
def test_all_names_that_a_module_defines_are_public(part: str) -> None:
    module = importlib.import_module(f"minigrad.torch.{part}")
    defined = set()
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.ImportFrom) and node.module in ("numpy", "operator"):
            defined |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            targets = [x for t in node.targets for x in getattr(t, "elts", [t])]
            defined |= {x.id for x in targets if isinstance(x, ast.Name)}
    public = {name for name in defined if name[0] != "_" and not name.isupper()}
    assert public - {
        "T",
        "reduced_elements",
        "translate_options",
        "split_by_size",
        "by_keyword",
        "transpose_matrix",
        "Size",
        "Selected",
    } <= {*module.__all__}


@pytest.mark.parametrize("part", ["optim", "optim.lr_scheduler"])
def test_all_names_that_a_module_imports_are_public(part: str) -> None:
    module = importlib.import_module(f"minigrad.torch.{part}")
    names = {name for name in vars(module) if name[0] != "_"}
    assert names - {"TYPE_CHECKING", "namespace"} == {*module.__all__}
