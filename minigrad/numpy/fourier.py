"""Fourier transforms, of real tensors and of complex ones.

The matrix of a discrete Fourier transform is symmetric. So are its real and imaginary parts, and
the derivative of a multiplication by one of them is the same multiplication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arguments import check_choice
from ..registry import Op, either
from ..tensor import Tensor
from .complex_tensor import FUNCTIONS, ComplexTensor, is_complex, parts
from .forms import ADAPTED, numpy_form


def _cosines(x: Any, /, axis: Any, norm: Any) -> Any:
    """Return the real part of the transform of a real array."""
    return np.real(np.fft.fft(x, axis=axis, norm=norm)).astype(x.dtype)


def _sines(x: Any, /, axis: Any, norm: Any) -> Any:
    """Return the imaginary part of the transform of a real array."""
    return np.imag(np.fft.fft(x, axis=axis, norm=norm)).astype(x.dtype)


cosines: Any = either(
    Op(_cosines, {"x": lambda g, axis, norm: cosines(g, axis=axis, norm=norm)}).function
)
sines: Any = either(
    Op(_sines, {"x": lambda g, axis, norm: sines(g, axis=axis, norm=norm)}).function
)


def _inverse(norm: str | None) -> str:
    """Return the `norm` of a transform with the factor of its inverse."""
    norm = "backward" if norm is None else norm
    check_choice("fft", "norm", norm, "backward", "ortho", "forward")
    return {"backward": "forward", "ortho": "ortho", "forward": "backward"}[norm]


def _resized(x: Any, n: int | None, axis: int) -> Any:
    """Return x with n elements along an axis: the first ones, or with zeros behind them."""
    length = x.shape[axis]
    if n is None or n == length:
        return x
    if n < 1:
        raise ValueError(f"fft: n must be at least 1, got {n}")
    if n < length:
        return np.take(x, np.arange(n), axis)
    widths = np.zeros((x.ndim, 2), int)
    widths[axis, 1] = n - length
    return np.pad(x, widths)


def _floats(a: Any) -> Any:
    return a.astype(float) if a.dtype.kind in "iub" else a


@numpy_form(np.fft.fft)
def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> ComplexTensor:
    """Compute the discrete Fourier transform, as np.fft.fft."""
    a = a.astype(np.float32) if a.dtype == np.float16 else _floats(a)  # no complex of 16 bits
    real, imag = parts(_resized(a, n, axis))
    y = ComplexTensor(cosines(real, axis, norm), sines(real, axis, norm))
    if is_complex(a):
        y = y + ComplexTensor(-sines(imag, axis, norm), cosines(imag, axis, norm))
    return y


@numpy_form(np.fft.ifft)
def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> ComplexTensor:
    """Compute the inverse of `fft`, as np.fft.ifft."""
    return np.conj(fft(np.conj(a), n, axis, _inverse(norm)))


@numpy_form(np.fft.rfft)
def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> ComplexTensor:
    """Compute the first half of `fft`, as np.fft.rfft."""
    y = fft(a, n, axis, norm)
    half: ComplexTensor = y.take(np.arange(y.shape[axis] // 2 + 1), axis)
    return half


@numpy_form(np.fft.irfft)
def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Compute the inverse of `rfft`, as np.fft.irfft."""
    n = 2 * (a.shape[axis] - 1) if n is None else n
    z = np.moveaxis(_resized(_floats(a), n // 2 + 1, axis), axis, -1)
    weights = np.full(n // 2 + 1, 2.0, np.real(z).dtype)  # of a pair of conjugate elements
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    real, imag = parts(_resized(z * weights, n, -1))
    y = cosines(real, -1, _inverse(norm)) + sines(imag, -1, _inverse(norm))
    return np.moveaxis(y, -1, axis)


@numpy_form(np.fft.hfft)
def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Compute the real transform of half of its input, as np.fft.hfft."""
    return irfft(np.conj(a), n, axis, _inverse(norm))


@numpy_form(np.fft.ihfft)
def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> ComplexTensor:
    """Compute the inverse of `hfft`, as np.fft.ihfft."""
    return np.conj(rfft(a, n, axis, _inverse(norm)))


def _lengths(
    a: Any,
    s: Sequence[int | None] | None,
    axes: Sequence[int] | None,
    inverse_of_real: bool = False,
) -> tuple[list[int | None], list[int]]:
    """Return the lengths of the axes to transform, and these axes."""
    if axes is None:
        axes = range(-a.ndim if s is None else -len(s), 0)
    lengths: list[int | None] = [a.shape[axis] for axis in axes]
    if s is None:
        if inverse_of_real:
            lengths[-1] = 2 * (a.shape[axes[-1]] - 1)
        return lengths, list(axes)
    if len(s) != len(axes):
        raise ValueError(f"s must have a length for each of the axes {tuple(axes)}, got {s}")
    return [length if n == -1 else n for n, length in zip(s, lengths)], list(axes)


def _along_axes(transform: Callable[..., Any]) -> Callable[..., Any]:
    """Return a transform along several axes, from one along an axis."""

    def call(
        a: Any,
        s: Sequence[int | None] | None = None,
        axes: Sequence[int] | None = None,
        norm: str | None = None,
    ) -> Any:
        for n, axis in reversed(list(zip(*_lengths(a, s, axes)))):  # the last one first, as NumPy
            a = transform(a, n, axis, norm)
        return a

    return call


fftn, ifftn = numpy_form(np.fft.fftn)(_along_axes(fft)), numpy_form(np.fft.ifftn)(_along_axes(ifft))


@numpy_form(np.fft.rfftn)
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> ComplexTensor:
    """Compute `rfft` along the last axis and `fft` along the others, as np.fft.rfftn."""
    lengths, axes = _lengths(a, s, axes)
    y = rfft(a, lengths[-1], axes[-1], norm)
    return fftn(y, lengths[:-1], axes[:-1], norm)


@numpy_form(np.fft.irfftn)
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Tensor:
    """Compute the inverse of `rfftn`, as np.fft.irfftn."""
    lengths, axes = _lengths(a, s, axes, inverse_of_real=True)
    for n, axis in zip(lengths[:-1], axes[:-1]):
        a = ifft(a, n, axis, norm)
    return irfft(a, lengths[-1], axes[-1], norm)


def _in_two_axes(transform: Callable[..., Any]) -> Callable[..., Any]:
    def call(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
        return transform(a, s, axes, norm)

    return call


numpy_form(np.fft.fft2)(_in_two_axes(fftn))
numpy_form(np.fft.ifft2)(_in_two_axes(ifftn))
numpy_form(np.fft.rfft2)(_in_two_axes(rfftn))
numpy_form(np.fft.irfft2)(_in_two_axes(irfftn))


def _shifted(sign: int) -> Callable[..., Tensor]:
    """Return the function that rolls each axis by half of its length."""

    def call(x: Any, axes: Any = None) -> Tensor:
        axes = range(x.ndim) if axes is None else np.atleast_1d(axes).tolist()
        return np.roll(x, [sign * (x.shape[axis] // 2) for axis in axes], axes)

    return call


numpy_form(np.fft.fftshift)(_shifted(1))
numpy_form(np.fft.ifftshift)(_shifted(-1))

for _name in (
    "fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn", "fft2",
    "ifft2", "rfft2", "irfft2",
):  # fmt: skip
    FUNCTIONS[getattr(np.fft, _name)] = ADAPTED[getattr(np.fft, _name)].function  # type: ignore[attr-defined]
