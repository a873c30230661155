"""Complex values between real inputs and results: values of NumPy, and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples

import minigrad as mg
from minigrad.numpy.complex_tensor import ComplexTensor

X = np.random.default_rng(0).uniform(0.3, 2.0, 6)
W = np.random.default_rng(1).standard_normal(6)
TO_REAL = [np.abs, np.real, np.imag, np.angle]


def assert_right(f: Any, x: np.ndarray = X) -> None:
    """Compare a real function with NumPy, and its first and second derivatives with differences."""
    np.testing.assert_allclose(f(mg.Tensor(x, True)).data, f(x), rtol=1e-10, atol=1e-12)
    assert mg.gradcheck(f, (x,)) and mg.gradgradcheck(f, (x,))


@st.composite
def transforms(draw: st.DrawFn) -> tuple[Any, int, dict[str, Any]]:
    """Draw a transform of np.fft along one axis, the axis, and its options."""
    names = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
    axis = draw(st.integers(-2, 1))
    n = draw(st.sampled_from([None, 2, 3, 4, 5]))
    norm = draw(st.sampled_from([None, "backward", "ortho", "forward"]))
    return getattr(np.fft, draw(st.sampled_from(names))), axis, {"n": n, "axis": axis, "norm": norm}


@max_examples(60)
@given(transform=transforms(), to_real=st.sampled_from(TO_REAL[:3]), seed=st.integers(0, 99))
def test_transform_has_the_values_of_numpy_and_derivatives(
    transform: Any, to_real: Any, seed: int
) -> None:
    function, axis, options = transform
    x = np.random.default_rng(seed).uniform(0.3, 2.0, (3, 4))
    is_real = function in (np.fft.rfft, np.fft.ihfft)
    f = lambda x: to_real(function(x if is_real else x + 1j * x**2, **options) + 3 + 2j)
    assert_right(f, x)


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
    ],
)
def test_expression_with_complex_values_has_the_values_of_numpy_and_derivatives(code: str) -> None:
    assert_right(eval(f"lambda x: {code}", {"np": np, "W": W}))


def test_complex_tensor_can_be_changed_in_place() -> None:
    def f(x: Any) -> Any:
        z = 1j * x
        z *= x + 1j
        z[1:] = z[:-1] * 2
        z[0] = 3.0
        return np.real(z) * np.imag(z)

    assert_right(f)


def test_vmap_and_jacobian_of_a_transform_equal_a_loop() -> None:
    xs = np.random.default_rng(0).standard_normal((3, 5))
    f = lambda x: np.abs(np.fft.rfft(x))
    np.testing.assert_allclose(mg.vmap(f)(xs).data, f(xs), rtol=1e-12)
    rows = [mg.grad(lambda x, i=i: f(x)[i])(xs[0]).data for i in range(3)]
    np.testing.assert_allclose(mg.jacobian(f)(xs[0]).data, rows, rtol=1e-10, atol=1e-12)


def test_complex_tensor_keeps_the_precision_of_its_parts() -> None:
    z = np.fft.rfft(mg.Tensor(X.astype(np.float32), requires_grad=True)) * 2 + 1j
    assert isinstance(z, ComplexTensor) and z.requires_grad and "complex_tensor" in repr(z)
    assert z.dtype == np.complex64 and np.abs(z).dtype == np.float32
    assert (z.shape, z.size, z.ndim, len(z)) == ((4,), 4, 1, 4)
    assert not z.detach().requires_grad and z.detach().dtype == np.complex64


@pytest.mark.parametrize(
    "use",
    [
        np.sort,
        np.linalg.svd,
        np.asarray,
        bool,
        float,
        lambda z: np.maximum(z, 1),
        lambda z: mg.multiply(z, z),
        lambda z: np.add(z, 1, out=np.ones(6, complex)),
        lambda z: z.backward(),
        lambda z: mg.grad(lambda x: 1j * x)(1.0),
    ],
)
def test_complex_tensor_refuses_other_functions(use: Any) -> None:
    with pytest.raises(TypeError, match=r"no derivative for complex tensors; compute with x.real"):
        use(1j * mg.Tensor(X, requires_grad=True))


def test_complex_values_without_gradients_are_those_of_numpy() -> None:
    x = mg.Tensor(X, requires_grad=True)
    with mg.no_grad():
        assert type(1j * x) is type(np.fft.fft(x)) is mg.Tensor
