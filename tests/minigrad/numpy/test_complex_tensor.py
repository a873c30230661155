"""Complex values between real inputs and results: values of NumPy, and derivatives."""

from __future__ import annotations

import copy
import itertools
import operator
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.edges import beside

import minigrad as mg
from minigrad.numpy.complex_tensor import ComplexTensor

X = np.random.default_rng(0).uniform(0.3, 2.0, 6)
W = np.random.default_rng(1).standard_normal(6)
TO_REAL = [np.abs, np.real, np.imag, np.angle]


def assert_right(f: Any, x: np.ndarray = X) -> None:
    """Compare a real function with NumPy, and its first and second derivatives with differences.

    Derivatives are compared along two random directions, in which each element counts.
    """
    y = f(mg.Tensor(x, True))
    assert y.shape == f(x).shape
    np.testing.assert_allclose(y.data, f(x), rtol=1e-10, atol=1e-12)
    mg.gradcheck(f, (x,), elementwise=False)
    mg.gradgradcheck(f, (x,), elementwise=False)


@st.composite
def transforms(draw: st.DrawFn) -> tuple[Any, int, dict[str, Any]]:
    """Draw a transform of np.fft along one axis, the axis, and its options."""
    names = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
    axis = draw(st.integers(-2, 1))
    n = draw(st.none() | beside(1, 4, low=1))
    norm = draw(st.sampled_from([None, "backward", "ortho", "forward"]))
    return getattr(np.fft, draw(st.sampled_from(names))), axis, {"n": n, "axis": axis, "norm": norm}


@given(transform=transforms(), to_real=st.sampled_from(TO_REAL[:3]), seed=st.integers(0, 99))
def test_transform_has_the_values_of_numpy_and_derivatives(
    transform: Any, to_real: Any, seed: int
) -> None:
    function, axis, options = transform
    x = np.random.default_rng(seed).uniform(0.3, 2.0, (3, 4))
    is_real = function in (np.fft.rfft, np.fft.ihfft)
    f = lambda x: to_real(function(x if is_real else x + 1j * x**2, **options) + 3 + 2j)
    assert_right(f, x)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_transform_to_no_values_is_refused(name: str) -> None:
    for x in (X, mg.Tensor(X, requires_grad=True)):
        with pytest.raises(ValueError):
            getattr(np.fft, name)(x, 0)


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
def test_transform_along_several_axes_with_its_options_equals_numpy(kind: str) -> None:
    """A linear function is the sum of its gradients times x."""
    x, rng = np.random.default_rng(0).standard_normal((3, 4, 5)), np.random.default_rng(1)
    lengths = [{}, {"s": (4, -1)}, {"s": (2, 6)}]
    for name, options, axes in itertools.product("2n", lengths, [(-2, -1), (2, 0), (0, 1)]):
        norm = rng.choice([None, "ortho", "forward", "backward"])
        f = getattr(np.fft, kind + name)
        t = mg.Tensor(x, requires_grad=True)
        y, expected = (f(a, axes=axes, norm=norm, **options) for a in (t, x))
        np.testing.assert_allclose(y.data, expected, rtol=1e-10, atol=1e-12)
        g = rng.standard_normal(y.shape)
        (slope,) = mg.gradients((np.real(y) * g).sum(), [t])
        np.testing.assert_allclose((slope.data * x).sum(), (expected.real * g).sum(), rtol=1e-9)
    y = getattr(np.fft, f"{kind}n")(t, norm="ortho")
    expected = getattr(np.fft, f"{kind}n")(x, norm="ortho")
    np.testing.assert_allclose(y.data, expected, atol=1e-12)


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2), [1], np.int64(1), np.array([0, 1])])
def test_shifted_frequencies_along_axes_equal_numpy(axes: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    for f in (np.fft.fftshift, np.fft.ifftshift):
        y = f(mg.Tensor(x, requires_grad=True), axes)
        np.testing.assert_array_equal(y.data, f(x, axes))


@pytest.mark.parametrize(
    "f", [np.fft.irfft, np.fft.hfft, np.fft.irfft2, np.fft.irfftn, np.fft.ifft2]
)
def test_transform_of_no_values_is_0(f: Any) -> None:
    """For some functions, NumPy returns memory that it has not written."""
    x = mg.Tensor(np.zeros((2, 0)), requires_grad=True)
    y = f(x, 3) if f in (np.fft.irfft, np.fft.hfft) else f(x, (2, 3))
    assert y.shape == (2, 3) and not y.data.any()
    assert mg.gradients(np.real(y).sum(), x)[0].shape == (2, 0)


@pytest.mark.parametrize(
    "code",
    [
        "np.fft.irfftn(np.fft.rfftn(x.reshape(2, 3), (4, 5), (0, 1)) * 1j, (4, 5), (0, 1))",
        "np.abs(np.fft.ifft2(np.fft.fft2(x.reshape(3, 2)) * W[:2]))",
        "np.fft.irfft2(np.fft.rfft2(x.reshape(3, 2)) * 2, (3, 2))",
        "np.fft.fftshift(x[:5]) * W[:5]",
        "np.abs(np.fft.ifftshift(np.fft.fft(x), 0))",
        "np.abs(np.exp(1j * x) * x + 2)",
        "np.abs((1 + 1j * x) / (x + 2 - 1j * x**2))",
        "np.angle(np.reciprocal(x + 1j))",
        "np.imag((x + 1j) ** 3 + (x + 1j) ** 0.5)",
        "np.imag(np.log(x + 1j) - np.sqrt(1j * x))",
        "np.abs(np.square(x + 1j) @ (W * 1j + 1))",
        "np.abs(np.outer(x * 1j, W) @ (x + 1j))",
        "np.imag(np.where(W > 0, 1j * x, x))",
        "np.abs(np.concatenate([x * 1j, x]).reshape(3, 4).sum(axis=0).conj().T)",
        "np.abs(np.stack([x * 1j + 1, W * 1j])[1:, ::-1])",
        "np.real(np.prod(x + 1j) + np.polyval(x, np.exp(1j * W)))",
        "np.imag(-(x * 1j).mean() * np.cumsum(1j * x + W))",
        "np.abs(x.astype(complex) + x.astype(np.complex128))",
        "np.real(np.convolve(x * 1j, W * 1j))",
        "np.abs(np.tan(x * 1j + 0.3) + np.sin(x + 1j) + np.cos(1j * x) * np.tanh(x - 0.5j))",
        "np.imag(np.log10(x + 1j) + np.log2(x - 1j)) + np.real(np.sqrt(W - 2 + 1j * x))",
        "np.real(np.diff(1j * x + x**2, prepend=(1j * x)[:1], append=2 + 3j))",
        "np.imag(np.pad(1j * x, 2, constant_values=(1 + 2j, 3)))",
        "np.abs(np.pad(1j * x, 2, constant_values=5))",
        "np.abs(np.prod((x + 1j * x**2).reshape(2, 3), axis=1, keepdims=True))",
        "np.abs(np.prod((x + 1j * x**2).reshape(2, 3), axis=(0, 1)) * np.prod(1j * x[:0]))",
        "np.linalg.norm(x + 1j * W) + np.linalg.norm((x + 1j).reshape(2, 3), axis=1).sum()",
        "np.linalg.norm(x + 1j, 2) * np.linalg.norm((x + 1j * W).reshape(2, 3), 1, keepdims=True)",
        "np.linalg.norm((x + 1j).reshape(2, 3), 'fro') + np.angle(x + 1j * W, deg=1)",
        "np.linalg.norm((x + 1j * W).reshape(2, 3), 2, axis=1) + np.angle(x[:2] + 1j, deg=0)",
        "np.abs(np.prod((x + 1j).reshape(2, 3)[:, :0], axis=1) * np.prod(x + 1j))",
        "np.abs(np.prod((x + 1j).reshape(2, 3)[:0], axis=0)).sum() * np.abs(np.prod(x + 1j))",
        "np.imag(np.polyval([1.0, 2, 3], x * 1j + W) + np.polyval(x * 1j, x[:, None] - 1j * W))",
        "np.abs(np.vdot(x + 1j, W * 1j + x))",
        "np.imag(x ** (1 + 2j) + 2 ** (x * 1j) + (x - 1 + 1j) ** -2)",
        "np.real((x + 1j) ** np.array([0, 1, 2, 0.5, -1, 3j]))",
        "np.abs((x + 1j) / (1 - 2j) + 1 / (x * 1j) + (x * 1j) / np.array([1j, 2, 3, 1, 1, 1j]))",
        "np.real_if_close(x + 1e-3j * x, tol=0.01) + np.imag(np.real_if_close(x + 1e-3j * x, 1e-5))",
        "np.real_if_close(x + 1e-20j * x) + np.imag(np.real_if_close(x + 1j * x))",
    ],
)
def test_expression_with_complex_values_has_the_values_of_numpy_and_derivatives(code: str) -> None:
    assert_right(eval(f"lambda x: {code}", {"np": np, "W": W}))


LINEAR = """
    z + 1j | 2 - z | -z | +z | z * 2j | z @ V | np.dot(V, z) | np.inner(z, V) | np.outer(V, z)
    np.tensordot(z, V, 1) | np.convolve(z, W) | z.reshape(2, 3) | np.reshape(z, (3, 2)) | z.ravel()
    np.ravel(z) | z.flatten() | m.T | m.mT | m.transpose() | np.transpose(m, (1, 0)) | np.swapaxes(m, 0, 1)
    m.swapaxes(0, -1) | np.matrix_transpose(m) | np.moveaxis(m, 0, -1) | np.expand_dims(z, 0) | z[None].squeeze()
    np.squeeze(z[None], 0) | np.flip(m, 1) | np.roll(z, 2) | np.roll(m, 1, axis=1) | np.take(z, [0, -1]) | z.take([1])
    np.tile(z, 2) | np.repeat(z, 2) | z.repeat(3) | np.broadcast_to(z, (2, 6)) | np.diagonal(m) | m.diagonal()
    np.trace(m) | m.trace() | np.pad(z, 1) | np.copy(z) | z.copy() | np.atleast_1d(z) | np.atleast_2d(z)
    np.sum(m, axis=0) | m.sum(axis=-1) | np.mean(m, axis=1) | m.mean() | np.cumsum(m, axis=1) | z.cumsum()
    np.concatenate([z, W]) | np.stack([z, z]) | np.hstack([z, z]) | np.vstack([z, W]) | np.fft.fftshift(z)
    np.fft.ifftshift(z) | np.conj(z) | z.conj() | z[::2] | z[[0, 0]] | m[0] | z / 2j | np.subtract(1, z)
    np.add(z, z) | np.diff(z) | z.astype(complex) | z / W | z / 2 | m @ R | R @ m | m @ (R * 1j) | (R * 1j) @ m
    np.outer(W, z) | np.tensordot(m, R, 1) | np.tensordot(R, m, ((1,), (0,))) | np.tile(m, (2, 1))
    np.concatenate([m, R.T], axis=1) | np.stack([m, R.T * 1j], axis=-1) | np.repeat(m, 2, axis=1)
    getattr(z, "clone", z.copy)() | m.take([1], axis=1) | m.repeat(2, axis=0) | np.mean(m, axis=0, keepdims=True) | np.diagonal(m, 1) | m.trace(1)
    np.where(W > 0, z, V) | np.where(W > 0, W, z) | z.real + V | V - z.real | z.real * V | z.real / V | z.real @ V
    R @ m.real @ (R * 1j) | np.concatenate([z.real, V]) | np.concatenate([m.real, R.T * 1j], axis=1)
    np.where(W > 0, z.real, V) | np.where(W > 0, V, z.real) | np.diff(m, 2) | np.diff(m, axis=0)
    np.polyval([], z) | z * [1j, 2, 0.5, 1, 1j, 3] | [1, 1j] @ m | np.polyval(V[:3] * 0, z) | np.vdot(R, m) | np.pad(z, 1, constant_values=1j)
    z + z.real | z.real - z | np.prod(m[:0], axis=0) | np.stack([z.real, z]) | np.fft.fft(z.real) + z
"""
VALUES = """
    np.isfinite(z) | np.isnan(z) | np.isinf(z) | np.equal(z, z) | np.not_equal(z, 0) | np.result_type(z) | np.shape(m)
    np.ndim(m) | np.size(m) | np.iscomplexobj(z) | np.isrealobj(z) | np.allclose(z, z) | np.array_equal(z, z)
    np.zeros_like(z) | np.ones_like(z) | np.full_like(z, 2j) | np.empty_like(z).shape | z == z | z != 1
"""


def calls(text: str) -> list[str]:
    return [call.strip() for line in text.splitlines() for call in line.split("|") if call.strip()]


def evaluated(code: str, z: Any) -> Any:
    w = W.astype(z.real.dtype)
    return eval(
        code,
        {"np": np, "W": w, "V": w * (1 - 2j), "R": w.reshape(3, 2)}
        | {"z": z, "m": z.reshape(2, 3)},
    )


@pytest.mark.parametrize("code", calls(LINEAR))
def test_linear_function_of_complex_values_has_the_values_and_slopes_of_numpy(code: str) -> None:
    x, direction = X * (1 + 2j), W - X
    t = mg.Tensor(0.0, requires_grad=True)
    y = evaluated(code, x + t * direction)
    assert y.shape == evaluated(code, x).shape
    np.testing.assert_allclose(y.data, evaluated(code, x), rtol=1e-12)
    g = np.random.default_rng(0).standard_normal(y.shape)
    for part in ("real", "imag"):
        total = (getattr(y, part) * g).sum()
        (slope,) = mg.gradients(total, [t], retain_graph=True, allow_unused=True)
        change = getattr(evaluated(code, x + direction) - evaluated(code, x), part)
        found = 0 if slope is None else slope.data
        np.testing.assert_allclose(found, (change * g).sum(), atol=1e-9)


def test_function_of_complex_values_has_the_dtype_of_numpy() -> None:
    x = X.astype(np.float32)
    for code in [*calls(LINEAR), *ANALYTIC]:
        y, expected = (evaluated(code, v * (1 + 2j)) for v in (mg.Tensor(x, True), x))
        assert y.dtype == expected.dtype, code
        np.testing.assert_allclose(y.data, expected, rtol=1e-3)


ANALYTIC = {
    "np.exp(z)": "np.exp(z)",
    "np.log(z)": "1 / z",
    "np.log2(z)": "1 / z / np.log(2)",
    "np.log10(z)": "1 / z / np.log(10)",
    "np.sqrt(z)": "0.5 / np.sqrt(z)",
    "np.sin(z)": "np.cos(z)",
    "np.cos(z)": "-np.sin(z)",
    "np.tan(z)": "1 / np.cos(z) ** 2",
    "np.sinh(z)": "np.cosh(z)",
    "np.cosh(z)": "np.sinh(z)",
    "np.tanh(z)": "1 / np.cosh(z) ** 2",
    "np.reciprocal(z)": "-1 / z**2",
    "(2 - 1j) / z": "(1j - 2) / z**2",
    "z / (z + 5j)": "5j / (z + 5j) ** 2",
    "np.square(z)": "2 * z",
    "z**3": "3 * z**2",
    "z**9": "9 * z**8",
    "z**-2": "-2 / z**3",
    "z**1.5": "1.5 * np.sqrt(z)",
    "z ** (1 + 2j)": "(1 + 2j) * z**2j",
    "2**z": "2**z * np.log(2)",
    "np.polyval([1.0, 2j, 3.0], z)": "2 * z + 2j",
}
"""Analytic functions and their derivatives."""

ON_AXES = np.array(
    [1, -1, 1j, -1j, 2, -0.5, 0.5j, -3j, 0.3 + 0.4j, -0.3 - 0.4j, 0.1 - 1j, -1 + 0.1j]
)


@pytest.mark.parametrize("code", ANALYTIC)
def test_analytic_function_has_its_derivative_on_both_axes_and_between_them(code: str) -> None:
    x, y = (mg.Tensor(part.copy(), requires_grad=True) for part in (ON_AXES.real, ON_AXES.imag))
    z = x + 1j * y
    scope = {"np": np, "z": z.data}
    w, expected, slope = (
        eval(text, names)
        for text, names in ((code, scope | {"z": z}), (code, scope), (ANALYTIC[code], scope))
    )
    np.testing.assert_allclose(w.data, expected, rtol=1e-12)
    for part, by_x, by_y in ((w.real, slope.real, -slope.imag), (w.imag, slope.imag, slope.real)):
        for g, e in zip(mg.gradients(part.sum(), [x, y], retain_graph=True), (by_x, by_y)):
            assert (np.abs(g.data - e) <= 1e-13 * np.abs(slope)).all()


@pytest.mark.parametrize("code", calls(VALUES))
def test_function_of_complex_values_without_a_gradient_is_that_of_numpy(code: str) -> None:
    x = X * (1 + 2j)
    y, expected = evaluated(code, mg.Tensor(X, True) * (1 + 2j)), evaluated(code, x)
    np.testing.assert_array_equal(np.asarray(y), np.asarray(expected), strict=True)


CHANGES = [
    "z *= 2", "z += x", "z -= 1j", "z /= 2", "z **= 2", "z @= np.eye(6)", "z[1:] = 0", "z[z.real > 1] = x[0]",
    "z[2:] *= 0", "np.conj(z)[0] = 0", "np.multiply(z, 2, out=z)", "np.add.at(z, 0, 1)", "np.copyto(z, 1)",
    "np.put(z, 0, 1)",
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_complex_tensor_cannot_be_changed(change: str) -> None:
    x = mg.Tensor(X, requires_grad=True)
    z = 1j * x
    before = z.data
    with pytest.raises(
        TypeError, match=r"cannot be changed in place; write z = |has no derivative"
    ):
        exec(change, {"np": np, "x": x, "z": z})
    np.testing.assert_array_equal(z.data, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(exponent=st.floats(-0.95, 0.95), angle=st.floats(-4, 4), seed=st.integers(0, 99))
def test_quotient_of_numbers_of_any_size_is_in_range(
    dtype: Any, exponent: float, angle: float, seed: int
) -> None:
    """The divisor is not squared, so the quotient of numbers near the ends of the range is finite."""
    size = dtype(float(np.finfo(dtype).max) ** exponent)
    z = size * np.exp(1j * angle).astype(np.result_type(dtype, 1j))
    w = z * (1 + np.random.default_rng(seed).uniform(0, 1))
    scale = mg.Tensor(dtype(1), requires_grad=True)
    y = (w * scale) / (z * scale)
    np.testing.assert_allclose(y.data, w / z, rtol=2e-6 if dtype == np.float32 else 1e-14)
    (slope,) = mg.gradients(y.real, [scale])
    np.testing.assert_allclose(slope.data, 0, atol=1e-5)


@pytest.mark.parametrize("exponent", [0, 0.0, 1, 2, 9, 0.5, 1 + 1j, 0j, 2j, 3 - 2j])
def test_power_of_complex_zero_is_that_of_numpy(exponent: complex) -> None:
    zero = np.zeros(2)
    with np.errstate(invalid="ignore"):
        y = (mg.Tensor(zero, requires_grad=True) + 0j) ** exponent
        np.testing.assert_array_equal(y.data, (zero + 0j) ** exponent)


def test_square_root_of_negative_and_zero_values_is_that_of_numpy() -> None:
    x = np.array([-4.0, 0.0, 9.0, 1e300, -1e-300])
    above = mg.Tensor(x, requires_grad=True) + 0j
    for z in (above, np.conj(above)):  # 0 and -0 as imaginary parts
        np.testing.assert_array_equal(np.sqrt(z).data, np.sqrt(z.data))
    slope = mg.grad(lambda x: np.sqrt(x + 0j).imag.sum())(x[[0, 2]])
    np.testing.assert_allclose(slope.data, [-0.25, 0])


def test_complex_tensor_gives_python_numbers() -> None:
    z = mg.Tensor(X[:2], requires_grad=True) * (1 + 2j)
    assert z[0].item() == z.item(0) == z.tolist()[0] == X[0] * (1 + 2j)
    assert type(z.tolist()) is list
    with pytest.warns(UserWarning, match="without a gradient"):
        assert complex(z[0]) == X[0] * (1 + 2j)
    with pytest.raises(mg.GradientError, match="would lose its gradient"):
        mg.grad(lambda x: abs(complex(1j * x)) * x)(2.0)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.real(x + 2j * x),
        lambda x: (x + 2j * x).real,
        lambda x: np.real(np.sqrt(x - 1 + 0j)),
        lambda x: np.real_if_close(x + 0j),
        lambda x: np.imag(np.real_if_close(x + 1j * x)),
    ],
)
def test_vmap_of_real_part_equals_a_loop(f: Any, requires_grad: bool) -> None:
    x = mg.Tensor(X.reshape(2, 3), requires_grad=requires_grad)
    expected = np.stack([f(row).data for row in x])
    y = mg.vmap(f)(x)
    assert y.dtype == expected.dtype == float
    np.testing.assert_allclose(y.data, expected)


def test_vmap_and_jacobian_of_a_transform_equal_a_loop() -> None:
    xs = np.random.default_rng(0).standard_normal((3, 5))
    f = lambda x: np.abs(np.fft.rfft(x))
    np.testing.assert_allclose(mg.vmap(f)(xs).data, f(xs), rtol=1e-12)
    rows = [mg.grad(lambda x, i=i: f(x)[i])(xs[0]).data for i in range(3)]
    np.testing.assert_allclose(mg.jacobian(f)(xs[0]).data, rows, rtol=1e-10, atol=1e-12)


def test_complex_tensor_keeps_the_precision_of_its_parts() -> None:
    z = np.fft.rfft(mg.Tensor(X.astype(np.float32), requires_grad=True)) * 2 + 1j
    assert isinstance(z, ComplexTensor) and z.requires_grad and "complex_tensor" in repr(z)
    assert "j" in repr(z) and "complex64" in repr(z)
    assert z.dtype == np.complex64 and np.abs(z).dtype == np.float32
    assert (z.shape, z.size, z.ndim, len(z)) == ((4,), 4, 1, 4)
    assert not z.detach().requires_grad and z.detach().dtype == np.complex64
    assert ComplexTensor(1.0, z.imag).requires_grad and ComplexTensor(z.imag, 1.0).requires_grad


@pytest.mark.parametrize(
    "use",
    [
        np.sort,
        np.linalg.svd,
        np.asarray,
        *(bool, float, int, operator.index, copy.deepcopy, pickle.dumps, lambda z: 1 in z),
        lambda z: np.maximum(z, 1),
        *[lambda z, ord=ord: np.linalg.norm(z.reshape(2, 3), ord) for ord in (2, -2, "nuc")],
        lambda z: mg.multiply(z, z),
        lambda z: np.linalg.norm(z.reshape(1, 2, 3), 2, axis=(1, 2)),
        lambda z: mg.custom_op(p=lambda g: g)(lambda p, /: p * 1j)(z.real),
        lambda z: np.add(z, 1, out=np.ones(6, complex)),
        lambda z: z.backward(),
        lambda z: mg.grad(lambda x: 1j * x)(1.0),
    ],
)
def test_complex_tensor_refuses_other_functions(use: Any) -> None:
    with pytest.raises(
        TypeError, match=r"^\S.* has no derivative for complex tensors; compute with x.real"
    ):
        use(1j * mg.Tensor(X, requires_grad=True))


def test_complex_values_without_gradients_are_those_of_numpy() -> None:
    x = mg.Tensor(X, requires_grad=True)
    with mg.no_grad():
        assert type(1j * x) is type(np.fft.fft(x)) is mg.Tensor


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tol", [0.25, 1, 1.5, 2, 100])
def test_imaginary_part_at_the_tolerance_is_kept_as_in_numpy(tol: float, dtype: Any) -> None:
    limit = dtype(tol * np.finfo(dtype).eps if tol > 1 else tol)
    x = mg.Tensor(np.ones(2, dtype), requires_grad=True)
    for imag in (limit, np.nextafter(limit, dtype(0)), np.nextafter(limit, dtype(9))):
        z = x + x * imag * 1j
        expected = np.real_if_close(z.data, tol)
        assert np.iscomplexobj(np.real_if_close(z, tol)) == np.iscomplexobj(expected)


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]
NUMBERS = [2, 0.5, 1 + 2j, np.float32(2), np.complex64(1j), np.float64(0.5), np.complex128(2j)]


@given(
    function=st.sampled_from(OPERATORS),
    number=st.sampled_from(NUMBERS),
    swaps=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
@example(operator.truediv, 1 + 2j, False, np.float32)
@example(operator.truediv, 1 + 2j, True, np.float32)
@example(operator.pow, 2, True, np.float32)
def test_operator_of_complex_values_and_a_number_has_the_dtype_of_numpy(
    function: Any, number: Any, swaps: bool, dtype: Any
) -> None:
    x = np.fft.fft(X.astype(dtype))
    z = np.fft.fft(mg.Tensor(X.astype(dtype), requires_grad=True))
    expected = function(number, x) if swaps else function(x, number)
    found = function(number, z) if swaps else function(z, number)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.data, expected, rtol=2e-4)


UFUNCS = [f for _, f in sorted(vars(np).items()) if isinstance(f, np.ufunc) and f.nout == 1]
OTHERS: list[Any] = [
    *(lambda z, f=f: f(z[None], 0) for f in (np.sum, np.mean, np.prod, np.cumsum)),
    *(lambda z, f=f: f([z]) for f in (np.concatenate, np.stack, np.hstack)),
    *(lambda z, f=f: f(z, 0) for f in (np.roll, np.pad, np.swapaxes)),
    lambda z: np.matmul(z, np.eye(3)), lambda z: np.convolve(z, [1]), lambda z: np.tile(z, 1),
    lambda z: z[[0, 1]], lambda z: z[1:], lambda z: z.flatten(), lambda z: z.copy(), np.real,
    np.imag, np.ravel, np.flip, np.copy, np.atleast_2d, lambda z: np.reshape(z, (3, 1)),
]  # fmt: skip


def parts(y: Any) -> list[Any]:
    return [y] if isinstance(y, np.ndarray) else [y.real.data, y.imag.data]


@np.errstate(all="ignore")
def test_result_shares_the_memory_of_complex_values_where_that_of_numpy_does() -> None:
    """A part that is written changes no result that NumPy would keep."""
    x = np.linspace(0.2, 0.9, 3)
    values, wrong = x + 1j * x, []
    z = mg.Tensor(x, requires_grad=True) * (1 + 1j)
    others = [0, 1, 2, 0j, 1j]
    tried: list[Any] = [(f, (None,)) for f in [*UFUNCS, *OTHERS]]
    tried += [(f, (None, y)) for f in UFUNCS if f.nin == 2 for y in others]
    tried += [(f, (y, None)) for f in UFUNCS if f.nin == 2 for y in others]
    count = 0

    for f, args in tried:
        try:
            y = f(*(z if a is None else a for a in args))
        except (TypeError, ValueError):
            continue
        count += 1
        expected = f(*(values if a is None else a for a in args))
        shares = any(np.shares_memory(a, b) for a in parts(y) for b in parts(z))
        if shares != np.shares_memory(expected, values):
            wrong.append((f, args))

    assert count > 80
    assert not wrong
