"""Integers, booleans and lists as operands of ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from minigrad.arguments import integers

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, bool, np.float32])
def test_sort_descending_keeps_equal_elements_in_order(dtype: Any) -> None:
    """NaN comes last, as in NumPy from 2.5 on."""
    x = np.array([3, 0, 127, -128, 127, 0]).astype(dtype)  # -128 has no negative in 8 bits
    order = sorted(range(6), key=x.tolist().__getitem__, reverse=True)
    assert mg.argsort(x, stable=True, descending=True).tolist() == order
    for y in (mg.sort(x, descending=True), mg.top_k(x, 6).values, mg.top_k(x, np.int64(6)).values):
        np.testing.assert_array_equal(y.data, x[order])
    np.testing.assert_array_equal(mg.sort([1.0, np.nan, 2.0], descending=True), [2, 1, np.nan])


@pytest.mark.parametrize(
    "f", [mg.power, mg.xlogy, mg.hypot, mg.arctan2, mg.divide, mg.logaddexp, mg.logaddexp2]
)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_binary_op_of_tensor_and_small_integers_computes_in_floats(f: Any, dtype: Any) -> None:
    """NumPy's logarithm of 8 bits has 11 bits, and 0 - 1 is 255 in 8 bits."""
    integers = np.array([100, 7, 3, 0, 1], dtype)
    for turn in (1, -1):
        results = []
        for other in (integers, integers.astype(float)):
            x = Tensor([0.7, 20.0, 0.9, 1.5, 2.6], requires_grad=True)
            with np.errstate(divide="ignore"):
                y = f(*(x, other)[::turn])
                results.append((y.data, mg.gradients(y.sum(), x)[0].data))
        for value, expected in zip(*results):
            np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_mean_and_var_of_small_integers_do_not_wrap_around() -> None:
    where = np.ones(300, bool)
    assert mg.mean(where, where=where).item() == 1
    assert mg.var(np.arange(300, dtype=np.uint8) % 2, where=where).item() == 0.25


def test_interp_of_falling_small_integers_does_not_wrap_around() -> None:
    heights = np.array([9, 4, 6], np.uint8)
    y = np.interp([0.5, 1.5], Tensor([0.0, 1.0, 2.0], requires_grad=True), heights)
    np.testing.assert_allclose(y.data, [6.5, 5.0])


SMALL = np.array([100, 7, 3, 0, 1], np.uint8)
SIGNED = np.array([[-128, 100], [127, 2]], np.int8)


@pytest.mark.parametrize(
    ("f", "arrays"),
    [
        *[(f, [SIGNED[0]]) for f in (mg.norm, mg.vector_norm, mg.sigmoid, mg.silu, mg.log_sigmoid)],
        *[(f, [SIGNED]) for f in (mg.norm, mg.matrix_norm, mg.layer_norm, mg.rms_norm)],
        *[(lambda x, p=p: mg.norm(x, p), [SIGNED[0]]) for p in (np.inf, 4, 3, 1, 0, -1)],
        *[(lambda x, p=p: mg.norm(x, p), [SIGNED]) for p in (np.inf, 1, 2, "nuc")],
        *[(f, [SMALL]) for f in (mg.sigmoid, mg.softplus, mg.elu, mg.log_sigmoid)],
        *[(f, [np.array([2**62] * 3)]) for f in (mg.mean, mg.nanmean, mg.var, mg.std)],
        (mg.mean, [np.array([2**63] * 2, np.uint64)]),
        *[(f, [SIGNED > 0]) for f in (mg.logsumexp, mg.softmax, mg.log_softmax)],
        (lambda x: mg.quantile(x, 0.3), [SIGNED[0]]),
        (mg.median, [np.array([], int)]),
        (mg.expm, [np.array([[1, 2], [0, 3]], np.int8)]),
        *[(f, [SMALL, SMALL[::-1]]) for f in (mg.l1_loss, mg.mse_loss, mg.huber_loss, mg.kl_div)],
        (mg.binary_cross_entropy_with_logits, [SMALL, SMALL % 2]),
        (mg.smooth_l1_loss, [SMALL, SMALL[::-1]]),
        (lambda x: mg.cross_entropy(x, [0, 1]), [SIGNED]),
        (lambda x, w: mg.linear_cross_entropy(x, w, [0, 1]), [SIGNED, SIGNED]),
        (lambda x: mg.scaled_dot_product_attention(x, x, x), [SIGNED[None, None]]),
        (lambda x, w: mg.linear(x, w, np.ones(2)), [SIGNED, SIGNED]),
        (lambda x: mg.relu_dropout(x, generator=np.random.default_rng(0)), [SIGNED]),
    ],
)
def test_function_of_integers_equals_that_of_floats(f: Any, arrays: list[np.ndarray]) -> None:
    y, expected = f(*arrays), f(*[x.astype(float) for x in arrays])
    assert y.dtype == float
    np.testing.assert_allclose(y.data, expected.data, rtol=1e-12)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, *ws: mg.layer_norm(x, weight=ws[0], bias=ws[1]),
        lambda x, *ws: mg.linear(x, np.stack(ws), ws[0][:2]),
        lambda x, *ws: mg.linear_cross_entropy(x, np.stack(ws), [0, 1]),
        lambda x, *ws: mg.scaled_dot_product_attention(
            x[None, None], ws[0][None, None, None], ws[1][None, None, None]
        ),
    ],
)
@pytest.mark.parametrize("dtypes", ["efe", "eff", "eef", "edf", "fee", "ied"])
def test_function_of_float16_beside_a_wider_dtype_is_computed_in_it(f: Any, dtypes: str) -> None:
    arrays = [row.astype(d) for row, d in zip(np.split(40 * RNG.random((4, 3)), [2, 3]), dtypes)]
    arrays[1:] = [row[0] for row in arrays[1:]]
    wider = "d" if "d" in dtypes or "i" in dtypes else "f"
    y, expected = f(*arrays), f(*[a.astype(wider) for a in arrays])
    np.testing.assert_allclose(y.data, expected.data, 1e-6, strict=True)


PRODUCTS = [
    np.dot, np.vdot, np.inner, np.outer, np.kron, np.vecdot, np.matmul, np.cross, np.convolve, np.correlate,
    np.multiply, np.add, np.subtract, np.tensordot, np.append, np.polyval, np.maximum, np.hypot, np.power,
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, bool, np.float16, np.float32])
@pytest.mark.parametrize("f", PRODUCTS, ids=lambda f: f.__name__)
def test_product_of_small_numbers_has_the_values_and_dtype_of_numpy(f: Any, dtype: Any) -> None:
    """Call with arrays, too, and with a tensor that requires gradients beside an array."""
    a, b = np.array([1, 0, 3], dtype), np.array([2, 1, 0], dtype)
    axes = [1] if f is np.tensordot else []
    try:
        expected = f(a, b, *axes)
    except TypeError:  # of booleans
        return
    tracked = [Tensor(a, requires_grad=True)] if dtype in (np.float16, np.float32) else []
    for x in (a, Tensor(a), *tracked):
        y = getattr(mg, f.__name__)(x, b, *axes)
        assert y.dtype == expected.dtype
        np.testing.assert_allclose(y.data, expected, rtol=1e-3)


ONE_ARRAY = ["exp", "sigmoid", "silu", "log_sigmoid", "softplus", "elu", "gelu", "tanh", "softmax", "log_softmax", "logsumexp", "layer_norm", "rms_norm", "norm", "mean", "var", "std", "sqrt", "erf", "leaky_relu", "relu", "square", "sin", "log1p", "cumsum", "median"]  # fmt: skip


@pytest.mark.parametrize("name", ONE_ARRAY)
def test_function_of_booleans_equals_that_of_integers(name: str) -> None:
    f, x = getattr(mg, name), SIGNED > 50
    y, expected = f(x), f(x.astype(np.int8))
    np.testing.assert_allclose(np.asarray(y, float), np.asarray(expected, float), rtol=2e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_default_eps_of_rms_norm_is_that_of_its_dtype(dtype: Any) -> None:
    eps = np.finfo(dtype).eps
    for scale in (0.1, 1.0, 10.0):
        x = np.array([3, -1, 2]) * scale * np.sqrt(float(eps))
        expected = x / np.sqrt((x * x).mean() + float(eps))
        np.testing.assert_allclose(mg.rms_norm(x.astype(dtype)).data, expected, rtol=20 * eps)


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("dtype", ["i1", "u8", "i8", "f4", "f8", "?", "c16"])
def test_indices_are_integers_or_empty(dtype: str, size: int) -> None:
    """An empty list is an array of floats, and an empty comparison one of booleans."""
    indices = np.zeros(size, dtype)
    if indices.dtype.kind in "iu" or (size == 0 and indices.dtype.kind in "fb"):
        assert integers("f", indices).dtype.kind in "iu"
        assert mg.one_hot(indices, 3).shape == (size, 3)
        assert mg.one_hot(indices).shape == (size, size)
        assert mg.one_hot(indices).dtype == np.float32
        assert (
            mg.one_hot(indices, 3, dtype=int).dtype == mg.one_hot(indices, dtype=int).dtype == int
        )
    else:
        with pytest.raises(TypeError, match="f: indices must be integers, got dtype"):
            integers("f", indices)


@pytest.mark.parametrize(
    "a, b, dtype",
    [
        (np.int8(127), 2.0, "f8"),
        (np.int64(2**63 - 1), np.float32(2), "f8"),
        (np.float32(3), 2.0, "f4"),
        (3.0, np.float32(2), "f4"),
        (np.int8([0, 127]), np.float32([0, 2]), "f4"),
    ],
)
def test_xlogy_of_integers_and_numbers_has_the_dtype_of_its_formula(
    a: Any, b: Any, dtype: str
) -> None:
    y = mg.xlogy(a, b)
    assert y.dtype == dtype
    np.testing.assert_allclose(y.data, np.where(b == 0, 0, a * np.log(np.maximum(b, 1))), 1e-6)


@pytest.mark.parametrize("dtype", ["f2", "f4", "g", ">f8"])
def test_activation_keeps_the_dtype(dtype: str) -> None:
    """Check tensors and the examples of vmap, and gradients."""
    x = np.array([[-3.0, -0.5], [0.0, 2.0]], dtype)
    for f in (mg.relu, mg.sigmoid, mg.softplus, mg.silu, mg.elu, mg.leaky_relu, mg.log_sigmoid,
              mg.erf, mg.gelu, lambda x: mg.gelu(x, approximate="tanh"), mg.rsqrt, mg.softmax,
              mg.log_softmax, mg.logsumexp, lambda x: mg.xlogy(x, 2.0), lambda x: mg.softplus(x, 2.0)):  # fmt: skip
        leaf = Tensor((abs(x) + (f is mg.rsqrt)).astype(dtype), requires_grad=True)
        for y in (f(leaf), mg.vmap(f)(leaf)):
            (g,) = mg.gradients(y.sum(), leaf)
            assert y.dtype in (dtype, np.dtype(dtype).newbyteorder()) and g.dtype == dtype


def test_gradients_beside_integers_are_floats() -> None:
    x = np.arange(4.0).reshape(1, 1, 2, 2)
    gradients = []
    for fixed in (x, x.astype(int)):
        v = Tensor(x + 1, requires_grad=True)
        y = mg.scaled_dot_product_attention(fixed, fixed, v) + mg.layer_norm(
            fixed, weight=v[0, 0, 0]
        )
        gradients.append(mg.gradients((y * x).sum(), v)[0].data)
    np.testing.assert_allclose(*gradients, rtol=1e-12)


def test_astype_without_copy_returns_a_tensor_of_this_dtype_itself() -> None:
    x = Tensor(np.ones(2, np.float32), requires_grad=True)
    assert x.astype(np.float32, copy=False) is x
    assert x.astype("float32") is not x
    assert x.astype(float, copy=False).dtype == float
    with pytest.raises(TypeError, match="astype: casting must allow float32 to int64, got 'safe'"):
        x.astype(int, casting="safe")


def test_products_and_norms_of_complex_numbers_equal_numpy() -> None:
    a, b = np.array([1 + 2j, 3 - 1j]), np.array([0.5j, 2 + 1j])
    for f in (np.vdot, np.correlate):
        np.testing.assert_allclose(f(Tensor(a), Tensor(b)).data, f(a, b))
    np.testing.assert_allclose(np.linalg.norm(Tensor(a)).data, np.linalg.norm(a))
    np.testing.assert_allclose(mg.var(a, where=[True, True]).data, np.var(a))


COMPLEX = np.array([[1 + 2j, 3 - 1j], [0.5j, 2 + 1j]]), np.array([[2 - 1j, 1j], [-1 + 1j, 4 + 0j]])


UNARY = [
    "absolute", "negative", "exp", "log", "sqrt", "square", "reciprocal", "sin", "cos", "tan", "sinh", "cosh", "tanh",
    "cumsum", "cumprod", "trace", "diagonal", "transpose", "flip", "inv", "det", "svdvals", "conjugate", "sign",
    "tril", "triu", "pinv",
]  # fmt: skip
BINARY = [
    "add", "subtract", "multiply", "divide", "matmul", "dot", "inner", "outer", "kron", "vecdot", "vdot", "power",
    "solve",
]  # fmt: skip
A, B = COMPLEX
FORMS: list[tuple[str, tuple[Any, ...]]] = [
    *[(name, (A, B)) for name in BINARY],
    *[(name, (A,)) for name in UNARY],
    *[(name, args) for name in ("sum", "mean", "var", "std", "prod") for args in ((A,), (A, 0), (A, -1))],
    *[("norm", args) for args in ((A,), (A, 1), (A, np.inf), (A, 2), (A[0], 3), (A[0], 0), (A, None, 0))],
    *[(name, args) for name in ("convolve", "correlate") for args in ((A[0], B.ravel()), (A.ravel(), B[1], "same"))],
    ("einsum", ("ij,kj->ik", A, B)), ("where", (A.real > 0.7, A, B)), ("diff", (A, 1, 0)), ("roll", (A, 1, 0)),
    ("concatenate", ([A, B], -1)), ("stack", ([A, B], 1)), ("polyval", (A[0], B)), ("tensordot", (A, B, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), FORMS, ids=lambda value: str(value)[:20])
def test_function_of_complex_constants_equals_numpy(name: str, args: tuple[Any, ...]) -> None:
    numpy = getattr(np, name, None) or getattr(np.linalg, name)
    tensors = [Tensor(x) if isinstance(x, np.ndarray) else x for x in args]
    y, expected = getattr(mg, name, numpy)(*tensors), numpy(*args)
    np.testing.assert_allclose(y.data, expected, rtol=1e-12, atol=1e-14)
    assert y.dtype == expected.dtype


def test_float16_has_no_limit_of_positions_and_counts() -> None:
    x = np.repeat([0, 1], 2499).astype(np.float16)
    assert mg.median(x).item() == 0.5
    t = Tensor(np.zeros(65536, np.float16), requires_grad=True)
    t.max().backward()
    assert np.sum(t.grad.data, dtype=float) == 1


@pytest.mark.parametrize("f", [mg.std, lambda x: mg.norm(x, 3), lambda x: mg.norm(x, 4)])
@pytest.mark.parametrize("scale", [1e-3, 300.0])
def test_float16_of_large_and_small_powers_has_gradients(f: Any, scale: float) -> None:
    x = np.array([1.0, -2.0, 0.5]) * scale
    g = mg.grad(lambda x: f(x).sum())(x.astype(np.float16))
    assert g.dtype == np.float16
    np.testing.assert_allclose(g.data, mg.grad(lambda x: f(x).sum())(x).data, rtol=0.01)


@pytest.mark.parametrize("char", "e?bBhHiIlLqQfd")
def test_kernel_computes_half_precision_and_integers_in_a_wider_dtype(char: str) -> None:
    x = np.array([[0, 1, 1], [1, 0, 1]], char)
    w = x[:1]
    calls: list[Any] = [
        lambda x, w: mg.gelu(x), lambda x, w: mg.layer_norm(x), lambda x, w: mg.linear(x, w), lambda x, w: mg.linear(x, w, w[0, :1]),
        lambda x, w: mg.cross_entropy(x, [0, 2]), lambda x, w: mg.linear_cross_entropy(x, x, [1, 0]),
        lambda x, w: mg.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    ]  # fmt: skip
    wide, result = {"e": ("f", "e"), "f": ("f", "f")}.get(char, ("d", "d"))
    for call in calls:
        y, expected = call(x, w), call(x.astype(wide), w.astype(wide))
        assert y.dtype == result
        np.testing.assert_array_equal(y.data, expected.data.astype(result))


def test_result_of_half_precision_that_overflows_is_infinite_without_a_warning() -> None:
    x = np.full((1, 2), 6e4, np.float16)
    with np.errstate(all="raise", under="ignore"):
        for y in (mg.linear(x, np.ones((3, 2), np.float16)), mg.linear(-x, np.ones((3, 2), "e"))):
            assert y.dtype == np.float16 and np.isinf(y.data).all()
