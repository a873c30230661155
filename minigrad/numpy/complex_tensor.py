"""Complex values with gradients: pairs of real tensors.

Tensors with gradients are real. If a function makes complex values of them, as `np.fft.fft(x)` and
`1j * x` do, the result is a `ComplexTensor`, whose real and imaginary parts are tensors. Every
function of a ComplexTensor is a composition of functions of its parts. So it needs no rule of its
own, and has derivatives of every order. A ComplexTensor is never written into, so parts can be
shared. A function without an entry in `FUNCTIONS` raises an error.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..arguments import all_axes
from ..arrays import all_values
from ..ops.reduce import keepdims_shape
from ..registry import Op
from ..tensor import Tensor, extension, unwrap, wrap
from .batched import all_true
from .elementwise import ratio
from .nested import numpy_name
from .special import real_if_close

_INSTEAD = (
    "has no derivative for complex tensors; compute with x.real and x.imag, or use .detach() if "
    "no gradient is needed"
)


def _refused(name: str) -> Any:
    """Return a method that raises an error with its name."""

    def refuse(self: Any, *args: Any, **options: Any) -> Any:
        raise TypeError(f"{name} {_INSTEAD}")

    return refuse


class ComplexTensor(NDArrayOperatorsMixin, Tensor):
    """Complex array whose real and imaginary parts are tensors that can have gradients.

    Functions of NumPy return it. Take real values, such as `np.abs(z)` or `z.real`, before
    `backward()`. It cannot be changed in place.
    """

    __slots__ = ("real", "imag")
    __hash__ = Tensor.__hash__
    _repr_html_ = None  # type: ignore[assignment]

    real: Any
    imag: Any

    def __init__(self, real: Any, imag: Any) -> None:
        self.real = real if isinstance(real, Tensor) else wrap(np.asarray(real), None)
        self.imag = imag if isinstance(imag, Tensor) else wrap(np.asarray(imag), None)

    _array = _node = _last_node = property(_refused("this function"))

    @property  # type: ignore[misc]
    def data(self) -> np.ndarray:
        """Values as a new ndarray."""
        values = self.real.data.astype(self.dtype)
        all_values(values).imag = all_values(self.imag.data)
        return values

    @property
    def dtype(self) -> np.dtype[Any]:
        """Complex dtype of the elements."""
        return np.result_type(self.real.dtype, np.complex64)

    @property  # type: ignore[misc]
    def requires_grad(self) -> bool:
        """True if a part requires gradients."""
        return bool(self.real.requires_grad or self.imag.requires_grad)

    def detach(self) -> Tensor:
        """Return a tensor of the values without gradients."""
        return wrap(self.data, None)

    def item(self, *index: int) -> complex:
        """Return one element as a Python number."""
        return complex(self.real.item(*index), self.imag.item(*index))

    def tolist(self) -> Any:
        """Return the values as nested Python lists."""
        return self.data.tolist()

    def __complex__(self) -> complex:
        return complex(float(self.real), float(self.imag))

    def __repr__(self) -> str:
        return f"complex_{self.detach()!r}"

    def __len__(self) -> int:
        return len(self.real)

    def __getitem__(self, index: Any) -> ComplexTensor:
        return ComplexTensor(self.real[index], self.imag[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "a complex tensor cannot be changed in place; write z = np.where(mask, value, z), or "
            "z = np.concatenate([...])"
        )

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        if out is not None and out[0] is self:
            raise TypeError(
                f"{numpy_name(ufunc)}: a complex tensor cannot be changed in place; write "
                "z = z * w instead of z *= w"
            )
        function = FUNCTIONS.get(ufunc) if method == "__call__" else None
        if function is None or options or out is not None:
            raise TypeError(f"{numpy_name(ufunc)} {_INSTEAD}")
        return function(*inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        answer = FUNCTIONS.get(function)
        if answer is None:
            raise TypeError(f"{numpy_name(function)} {_INSTEAD}")
        return answer(*args, **kwargs)


for _name in ("shape", "size", "ndim", "device"):
    setattr(ComplexTensor, _name, property(operator.attrgetter(f"real.{_name}")))
for _name in (
    "__bool__", "__contains__", "__deepcopy__", "__float__", "__index__", "__int__", "__reduce__",
    "backward",
):  # fmt: skip
    setattr(ComplexTensor, _name, _refused(_name.strip("_")))


def is_complex(x: Any) -> bool:
    """Return whether x is complex: a ComplexTensor, another array, a number, or a list of them."""
    if isinstance(x, (list, tuple)):
        return any(map(is_complex, x))
    return isinstance(x, ComplexTensor) or np.result_type(getattr(x, "dtype", x)).kind == "c"


def parts(x: Any) -> tuple[Any, Any]:
    """Return the real and the imaginary part of an array, of tensors in a list, or of a number."""
    if isinstance(x, (ComplexTensor, *_NUMBERS)):
        return x.real, x.imag
    if isinstance(x, (list, tuple)):
        return tuple(list(part) for part in zip(*map(parts, x)))  # type: ignore[return-value]
    if isinstance(x, Tensor) and x.dtype.kind != "c":
        return x, np.zeros(x.shape, x.dtype)
    array = x.data if isinstance(x, Tensor) else np.asarray(x)
    return array.real, array.imag


# -- functions of complex tensors

FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""What answers functions of NumPy for complex tensors."""

_NUMBERS = (int, float, complex)
_VALUES = ("append", "constant_values", "prepend")  # options that become elements of the result


def linear(function: Callable[..., Any], count: int = 1) -> Callable[..., ComplexTensor]:
    """Return a function that applies `function` to the two parts of its first arguments."""

    def call(*args: Any, **options: Any) -> ComplexTensor:
        real, imag = zip(*map(parts, args[:count]))
        values = {name: parts(options[name]) for name in _VALUES if name in options}
        by_part = [options | {name: pair[i] for name, pair in values.items()} for i in range(2)]
        rest = args[count:]
        return ComplexTensor(
            function(*real, *rest, **by_part[0]), function(*imag, *rest, **by_part[1])
        )

    return call


def bilinear(product: Callable[..., Any]) -> Callable[..., ComplexTensor]:
    """Return the product of complex arrays, from a product of real ones."""

    def call(a: Any, b: Any, *args: Any, **options: Any) -> ComplexTensor:
        f = lambda x, y: product(x, y, *args, **options)
        (a_real, a_imag), (b_real, b_imag) = parts(a), parts(b)
        if not is_complex(b):
            return ComplexTensor(f(a_real, b_real), f(a_imag, b_real))
        if not is_complex(a):
            return ComplexTensor(f(a_real, b_real), f(a_real, b_imag))
        real = f(a_real, b_real) - f(a_imag, b_imag)
        return ComplexTensor(real, f(a_real, b_imag) + f(a_imag, b_real))

    return call


def _conjugate(z: Any) -> ComplexTensor:
    real, imag = parts(z)
    return ComplexTensor(+real, -imag)  # not the memory of z


def _absolute(z: ComplexTensor) -> Tensor:
    return np.hypot(z.real, z.imag)


def _angle(z: ComplexTensor, deg: bool = False) -> Tensor:
    angle = np.arctan2(z.imag, z.real)
    return angle * (180 / np.pi) if deg else angle


def _in_dtype_of(other: Any, x: Any) -> Any:
    return np.asarray(x, np.result_type(other.dtype, x)) if isinstance(x, _NUMBERS) else x


def _divide(a: Any, b: Any) -> ComplexTensor:
    """Divide without squares that overflow or underflow: Smith (1962)."""
    a, b = _in_dtype_of(b, a), _in_dtype_of(a, b)
    if not is_complex(b):
        return linear(lambda part: np.divide(part, b))(a)
    (real, imag), (x, y) = parts(a), parts(b)
    turned = np.abs(unwrap(x)) < np.abs(unwrap(y))  # divide both by i, so that |x| >= |y|
    x, y = np.where(turned, y, x), np.where(turned, -x, y)
    real, imag = np.where(turned, imag, real), np.where(turned, -real, imag)
    quotient = ratio(y, x)
    length = x + y * quotient
    return ComplexTensor((real + imag * quotient) / length, (imag - real * quotient) / length)


def _exp(z: ComplexTensor) -> ComplexTensor:
    size = np.exp(z.real)
    return ComplexTensor(size * np.cos(z.imag), size * np.sin(z.imag))


def _log(z: ComplexTensor) -> ComplexTensor:
    return ComplexTensor(np.log(_absolute(z)), _angle(z))


def _sqrt(z: ComplexTensor) -> ComplexTensor:
    is_left, is_below = unwrap(z.real) < 0, np.signbit(unwrap(z.imag))
    x, y = np.where(is_left, -z.real, z.real), np.where(is_below, -z.imag, z.imag)
    large = np.sqrt((_absolute(z) + x) * 0.5)
    small = ratio(y, large * 2.0)
    real, imag = np.where(is_left, small, large), np.where(is_left, large, small)
    return ComplexTensor(real, np.where(is_below, -imag, imag))


def _power(z: Any, exponent: Any) -> Any:
    if isinstance(exponent, (int, np.integer)) and 0 < exponent < 9:
        return functools.reduce(operator.mul, [z] * (int(exponent) - 1), +z)
    z = ComplexTensor(*parts(_in_dtype_of(exponent, z)))
    e_real, e_imag = map(unwrap, parts(exponent))
    zero = (unwrap(z.real) == 0) & (unwrap(z.imag) == 0)
    if all_true(~zero):
        return np.exp(np.multiply(exponent, _log(z)))
    y = np.exp(np.multiply(exponent, _log(_where(zero, 1.0, z))))
    one = (e_real == 0) & (e_imag == 0)
    return _where(zero, np.where(one, 1.0, np.where(e_real > 0, 0.0, complex("nan+nanj"))), y)


def _prod(z: Any, axis: Any = None, keepdims: bool = False) -> Any:
    axes = all_axes("prod", axis, z.ndim)
    last = np.moveaxis(z, axes, range(len(axes)))
    rows = np.reshape(last, (-1, *last.shape[len(axes) :]))
    ones = astype(np.ones(rows.shape[1:]), z.dtype)
    y = functools.reduce(operator.mul, rows[1:], +rows[0]) if len(rows) else ones
    return np.reshape(y, keepdims_shape(z.shape, axis)) if keepdims else y


def _polyval(p: Any, x: Any) -> Any:
    y = x * 0
    for i in range(len(p)):
        y = y * x + (np.asarray(p[i]) if isinstance(p[i], _NUMBERS) else p[i])
    return y


def _where(condition: Any, a: Any, b: Any) -> ComplexTensor:
    return linear(lambda x, y: np.where(condition, x, y), 2)(a, b)


def _cosh(z: ComplexTensor) -> ComplexTensor:
    even, odd = np.cosh(z.real), np.sinh(z.real)
    return ComplexTensor(even * np.cos(z.imag), odd * np.sin(z.imag))


def _sinh(z: ComplexTensor) -> ComplexTensor:
    even, odd = np.cosh(z.real), np.sinh(z.real)
    return ComplexTensor(odd * np.cos(z.imag), even * np.sin(z.imag))


def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    ends = {"prepend": prepend, "append": append}
    return linear(np.diff)(a, n, axis, **{k: v for k, v in ends.items() if v is not None})


def _norm(z: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    if ord in (2, -2, "nuc") and len(all_axes("norm", axis, z.ndim)) == 2:
        raise TypeError(f"np.linalg.norm: ord={ord!r} of matrices {_INSTEAD}")
    return np.linalg.norm(_absolute(z), ord, axis, keepdims)


def _of_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gets the values of complex tensors, and has no gradient."""
    return lambda *args, **options: function(*map(_values, args), **options)


def _values(x: Any) -> Any:
    return x.data if isinstance(x, ComplexTensor) else x


_f: Any
for _f in (np.add, np.subtract):
    FUNCTIONS[_f] = linear(_f, 2)
for _f in (np.multiply, np.matmul, np.dot, np.inner, np.outer, np.tensordot, np.convolve):
    FUNCTIONS[_f] = bilinear(_f)
for _f in (
    np.negative, np.positive, np.reshape, np.ravel, np.transpose, np.matrix_transpose, np.swapaxes,
    np.moveaxis, np.expand_dims, np.squeeze, np.flip, np.roll, np.take, np.tile, np.repeat,
    np.broadcast_to, np.diagonal, np.trace, np.pad, np.copy, np.atleast_1d, np.atleast_2d,
    np.sum, np.mean, np.cumsum, np.concatenate, np.stack, np.hstack, np.vstack,
    np.fft.fftshift, np.fft.ifftshift,
):  # fmt: skip
    FUNCTIONS[_f] = linear(_f)
for _f in (
    np.isfinite, np.isnan, np.isinf, np.equal, np.not_equal, np.result_type, np.shape, np.ndim,
    np.size, np.iscomplexobj, np.isrealobj, np.allclose, np.array_equal, np.zeros_like,
    np.ones_like, np.empty_like, np.full_like,
):  # fmt: skip
    FUNCTIONS[_f] = _of_values(_f)
FUNCTIONS |= {
    np.real: operator.attrgetter("real"),
    np.real_if_close: real_if_close,
    np.imag: operator.attrgetter("imag"),
    np.absolute: _absolute,
    np.angle: _angle,
    np.conjugate: _conjugate,
    np.divide: _divide,
    np.reciprocal: lambda z: _divide(1.0, z),
    np.square: lambda z: z * z,
    np.power: _power,
    np.exp: _exp,
    np.log: _log,
    np.log2: lambda z: _log(z) * (1 / math.log(2)),
    np.log10: lambda z: _log(z) * (1 / math.log(10)),
    np.sqrt: _sqrt,
    np.cosh: _cosh,
    np.sinh: _sinh,
    np.tanh: lambda z: _divide(_sinh(z), _cosh(z)),
    np.cos: lambda z: _cosh(z * 1j),
    np.sin: lambda z: _sinh(z * 1j) * -1j,
    np.tan: lambda z: np.tanh(z * 1j) * -1j,
    np.prod: _prod,
    np.diff: _diff,
    np.linalg.norm: _norm,
    np.vdot: lambda a, b: np.sum(np.conj(np.ravel(a)) * np.ravel(b)),
    np.polyval: _polyval,
    np.where: _where,
}

for _name in (
    "reshape", "ravel", "flatten", "transpose", "swapaxes", "squeeze", "sum", "mean", "cumsum",
    "copy", "clone", "repeat", "take", "trace", "diagonal",
):  # fmt: skip
    _method = linear(
        lambda part, *args, _name=_name, **options: getattr(part, _name)(*args, **options)
    )
    setattr(ComplexTensor, _name, _method)
for _name in ("T", "mT"):
    setattr(ComplexTensor, _name, property(linear(operator.attrgetter(_name))))
setattr(ComplexTensor, "conj", _conjugate)  # noqa: B010


def astype(z: Any, dtype: Any, *, copy: bool = True) -> ComplexTensor:
    """Convert real tensors, or complex ones, to a complex dtype."""
    if np.dtype(dtype).kind != "c":
        raise TypeError(f"astype: dtype must be complex, got {dtype}; write x.real, or np.abs(x)")
    if not copy and isinstance(z, ComplexTensor) and z.dtype == dtype:
        return z
    real = np.zeros((), dtype).real.dtype
    return linear(operator.methodcaller("astype", real))(z)


setattr(ComplexTensor, "astype", astype)  # noqa: B010


# -- complex results of operations on real tensors


def _of_operation(op: Op, operands: tuple[Any, ...], options: dict[str, Any]) -> ComplexTensor:
    """Return the result of an operation on real tensors and complex constants."""
    function = BY_NAME.get(op.name)
    if function is None:
        raise TypeError(f"{op.name}: the result is complex, and {op.name} {_INSTEAD}")
    return function(*operands, **options)


BY_NAME: dict[str, Callable[..., ComplexTensor]] = {
    "astype": astype,
    "concatenate": lambda *arrays, axis=0: linear(np.concatenate)(arrays, axis),
    **{f.__name__: FUNCTIONS[f] for f in (np.add, np.subtract, np.multiply, np.divide, np.matmul)},
    "power": _power,
    "where": _where,
}
"""Functions that answer an op with a complex result, by the name of the op."""

extension.complex = _of_operation
