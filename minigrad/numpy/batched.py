"""Arrays with a hidden leading axis, on which NumPy's functions work as on one example.

`vmap` passes them to a function, and `jacobian` sends them through the graph as gradients. Rules
and ops are NumPy code, so they need no change: NumPy calls the batching rules in this file. A
function without a batching rule raises a TypeError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..arrays import OtherArray, all_values
from ..errors import GradientError
from ..nested import numpy_name
from ..tensor import Tensor, unwrap

EXAMPLES = "examples"
"""Name of the hidden axis: `x.sum(axis=EXAMPLES)` sums over the examples."""


VMAPPED: ContextVar[bool] = ContextVar("minigrad.vmapped", default=False)
"""True while a function runs inside `minigrad.vmap`."""

KEEPS: ContextVar[bool] = ContextVar("minigrad.keeps", default=False)
"""True while gradients of operands that all examples share stay batched."""


def all_true(condition: Any) -> bool:
    """Return whether all elements of a condition are True, of all examples."""
    return bool(np.logical_and.reduce(all_values(condition), axis=None))


class BatchedShape(tuple[int, ...]):
    """Shape of one example; its type marks the nodes of a graph whose values are batched."""

    __slots__ = ()


class BatchedArray(NDArrayOperatorsMixin, OtherArray):
    """Array of examples, whose first axis is hidden; `shape`, `ndim` and `size` are of one."""

    __slots__ = ("values",)

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    @property
    def shape(self) -> BatchedShape:
        return BatchedShape(self.values.shape[1:])

    @property
    def ndim(self) -> int:
        return self.values.ndim - 1

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def base(self) -> Any:
        return self.values

    @property
    def real(self) -> BatchedArray:
        return BatchedArray(self.values.real)

    @property
    def imag(self) -> BatchedArray:
        return BatchedArray(self.values.imag)

    @property
    def mT(self) -> BatchedArray:
        return self.swapaxes(-1, -2)

    @property
    def T(self) -> BatchedArray:
        return self.transpose()

    def __repr__(self) -> str:
        return f"{len(self.values)} examples: {self.values!r}"

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a 0-d array")
        return self.shape[0]

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise TypeError(
            "a batched array contains all examples and cannot become a number or an ndarray; "
            "choose with np.where, or call the function in a loop: np.stack([f(x) for x in xs])"
        )

    item = tolist = __bool__ = __float__ = __int__ = __complex__ = __index__ = __array__

    def __getitem__(self, index: Any) -> BatchedArray:
        index, ndim, first = self._behind_batch(index)
        values = self.values[index]
        if values.strides[0] < max(values.strides) and not np.may_share_memory(values, self.values):
            order = [0, *(np.argsort([-s for s in values.strides[1:]], kind="stable") + 1)]
            values = values.transpose(order).copy().transpose(np.argsort(order))  # as one example
        if first:
            values = np.moveaxis(values, range(1, 1 + ndim), range(1 + first, 1 + first + ndim))
        if values.ndim == 1 and not any(part is ... for part in index):
            return as_numbers(BatchedArray(values.copy()))
        return BatchedArray(values)

    def __setitem__(self, index: Any, value: Any) -> None:
        index, value = self._assigned(index, value)
        self.values[index] = value

    def _behind_batch(self, index: Any) -> tuple[tuple[Any, ...], int, int]:
        """Return (index, ndim, first), the index of the values for an index of each example.

        The selected values have `ndim` axes of index arrays behind the hidden axis. These axes
        belong behind the first `first` axes of an example.
        """
        parts = list(index) if isinstance(index, tuple) else [index]
        if not any(isinstance(part, (list, np.ndarray, BatchedArray)) for part in parts):
            return (slice(None), *parts), 0, 0
        for i, part in reversed(list(enumerate(parts))):
            if isinstance(part, BatchedArray) and part.dtype == bool:
                raise TypeError(
                    "an index must be the same for all examples if it is a mask; choose with "
                    "np.where"
                )
            if isinstance(part, (list, np.ndarray)):
                part = np.asarray(part)
                parts[i : i + 1] = part.nonzero() if part.dtype == bool and part.ndim else [part]
        if any(part is Ellipsis for part in parts):
            i = [part is Ellipsis for part in parts].index(True)
            rest = self.ndim - sum(part is not None for part in parts) + 1
            parts[i : i + 1] = [slice(None)] * rest
        picks = [i for i, p in enumerate(parts) if p is not None and not isinstance(p, slice)]
        is_together = picks[-1] - picks[0] < len(picks)  # otherwise NumPy moves them to the front
        first, ndim = picks[0] if is_together else 0, max([_ndim(parts[i]) for i in picks])
        if is_together and not any(isinstance(part, BatchedArray) for part in parts):
            return (slice(None), *parts), 0, 0
        examples = np.arange(len(self.values)).reshape(-1, *[1] * ndim)
        return (examples, *[_with_ndim(part, ndim) for part in parts]), ndim, first

    def _assigned(self, index: Any, value: Any) -> tuple[Any, Any]:
        """Return the index of the values, and the values to write there."""
        index, ndim, first = self._behind_batch(index)
        value = value if isinstance(value, BatchedArray) else BatchedArray(np.asarray(value)[None])
        target_ndim = self.values[index].ndim - 1
        while value.ndim > target_ndim and value.shape[0] == 1:  # which NumPy drops
            value = value[0]
        values = _with_ndim(value, target_ndim)
        if first:
            values = np.moveaxis(values, range(1 + first, 1 + first + ndim), range(1, 1 + ndim))
        return index, values

    def sum(self, axis: Any = None, **options: Any) -> Any:
        return np.add.reduce(self, axis=axis, **options)

    def mean(self, axis: Any = None, **options: Any) -> BatchedArray:
        return np.mean(self, axis=axis, **options)

    def max(self, axis: Any = None, **options: Any) -> BatchedArray:
        return np.max(self, axis=axis, **options)

    def min(self, axis: Any = None, **options: Any) -> BatchedArray:
        return np.min(self, axis=axis, **options)

    def reshape(self, *shape: Any, **options: Any) -> BatchedArray:
        lengths = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        return BatchedArray(self.values.reshape((len(self.values), *lengths), **options))

    def transpose(self, *axes: Any) -> BatchedArray:
        if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], Sequence)):
            axes = () if axes[0] is None else tuple(axes[0])
        order = [axis % self.ndim for axis in axes] or range(self.ndim)[::-1]
        return BatchedArray(self.values.transpose(0, *[axis + 1 for axis in order]))

    def swapaxes(self, a: int, b: int) -> BatchedArray:
        return BatchedArray(np.swapaxes(self.values, _axes(a, self.ndim), _axes(b, self.ndim)))

    def astype(self, dtype: Any, **options: Any) -> BatchedArray:
        return BatchedArray(self.values.astype(dtype, **options))

    def copy(self) -> BatchedArray:
        return BatchedArray(self.values.copy())

    def all(self) -> bool:
        return bool(self.values.all())

    def gradient_for(self, shape: tuple[int, ...], gradient: Any, collected: bool) -> Any:
        """Return the sum over the examples for an operand that all examples share."""
        if VMAPPED.get() and collected:
            raise GradientError(
                "backward: it must not be called inside vmap, whose examples have gradients of "
                "their own; return them by grad"
            )
        if VMAPPED.get() or KEEPS.get() or isinstance(shape, BatchedShape):
            return gradient
        return gradient.sum(axis=EXAMPLES)

    def in_this_type(self, x: Any) -> BatchedArray:
        if isinstance(x, BatchedArray):
            return x
        return BatchedArray(np.broadcast_to(x, (len(self.values), *np.shape(x))))

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        if not all(isinstance(x, _ARRAYS) for x in inputs):
            return NotImplemented  # a Tensor answers
        if method == "at":
            array, index, value = inputs
            index, value = array._assigned(index, value)
            return ufunc.at(array.values, index, value)
        if method == "reduce" and out is None:
            return as_numbers(_reduced(ufunc, *inputs, **options))
        if method == "accumulate" and out is None:
            return _along_one(ufunc.accumulate, 0)(*inputs, **options)
        if method != "__call__" or any(isinstance(o, BatchedArray) for o in options.values()):
            raise TypeError(f"{numpy_name(ufunc)}.{method} has no batching rule")
        if ufunc is np.matmul:
            y = _matmul(*inputs)
        elif ufunc.signature:
            raise TypeError(f"{numpy_name(ufunc)} has no batching rule")
        else:
            y = ufunc(*_aligned(inputs), **options)
        if out is None:
            return as_numbers(BatchedArray(y) if ufunc.nout == 1 else tuple(map(BatchedArray, y)))
        if not isinstance(out[0], BatchedArray):
            raise TypeError(
                f"{numpy_name(ufunc)} cannot write different results for the examples into "
                "one array"
            )
        if out[0].ndim or out[0].values.flags.writeable:
            out[0].values[...] = y
        else:  # a number, which a kernel replaces
            out[0].values = y
        return out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not all(issubclass(kind, (BatchedArray, np.ndarray)) for kind in types):
            return NotImplemented  # a Tensor answers
        rule = RULES.get(function)
        if rule is None:
            raise TypeError(f"{numpy_name(function)} has no batching rule; write the batch axis")
        y = rule(*args, **kwargs)
        return y if function in RETURNS_ARRAYS else as_numbers(y)


def as_numbers(y: Any) -> Any:
    """Return results; those without axes become read-only, as `as_result` makes NumPy's numbers."""
    for part in y if isinstance(y, tuple) else (y,):
        if type(part) in (Tensor, BatchedArray) and not part.ndim:
            all_values(unwrap(part)).setflags(write=False)
    return y


_ARRAYS = (BatchedArray, np.ndarray, np.generic, int, float, complex, list, tuple)


def _ndim(x: Any) -> int:
    return x.ndim if isinstance(x, BatchedArray) else np.ndim(x)


def _with_ndim(x: Any, ndim: int) -> Any:
    """Return the values with new axes of length 1 behind the hidden axis, as broadcasting adds."""
    if _ndim(x) > ndim:
        raise ValueError(f"an array of {_ndim(x)} axes does not broadcast to {ndim} axes")
    if not isinstance(x, BatchedArray):
        return x
    values = x.values
    return values.reshape(values.shape[:1] + (1,) * (ndim - x.ndim) + values.shape[1:])


def _aligned(inputs: Sequence[Any]) -> list[Any]:
    ndim = max(map(_ndim, inputs))
    return [_with_ndim(x, ndim) for x in inputs]


def _reduced(ufunc: np.ufunc, x: BatchedArray, axis: Any = 0, **options: Any) -> Any:
    """Return a ufunc's `reduce` of each example, or over all examples for the axis EXAMPLES."""
    if axis is EXAMPLES:
        return ufunc.reduce(x.values, axis=0)
    if "where" in options:
        options["where"] = _with_ndim(options["where"], x.ndim)
    return BatchedArray(ufunc.reduce(x.values, axis=_axes(axis, x.ndim), **options))


def _matmul(a: Any, b: Any) -> np.ndarray:
    """Return matmul of batched or plain operands; a vector temporarily gets a second axis."""
    a_is_vector, b_is_vector = _ndim(a) == 1, _ndim(b) == 1
    if a_is_vector:
        a = np.expand_dims(a, -2)
    if b_is_vector:
        b = np.expand_dims(b, -1)
    y = np.matmul(*_aligned((a, b)))
    if a_is_vector:
        y = y[..., 0, :]
    return y[..., 0] if b_is_vector else y


def _axes(axis: Any, ndim: int) -> Any:
    """Return the axes of the values for the axes of an example; None means all of them."""
    if axis is None:
        return tuple(range(1, ndim + 1))
    if isinstance(axis, (tuple, list, range)):
        return tuple([_axes(a, ndim) for a in axis])
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return axis % ndim + 1


def _along(function: Callable[..., Any]) -> Callable[..., BatchedArray]:
    """Return the batching rule of a function of an array and an axis, which may be None."""

    def rule(a: BatchedArray, axis: Any = None, **options: Any) -> BatchedArray:
        return BatchedArray(function(a.values, axis=_axes(axis, a.ndim), **options))

    return rule


def _leading(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the batching rule of a function that accepts leading axes, as np.linalg's do."""

    def rule(*arrays: Any, **options: Any) -> Any:
        y = function(*_aligned(arrays), **options)
        return type(y)(*map(BatchedArray, y)) if hasattr(y, "_fields") else BatchedArray(y)

    return rule


def _along_one(function: Callable[..., Any], default: int | None) -> Callable[..., BatchedArray]:
    """Return the batching rule of a function along one axis, or of the flattened array if None."""

    def rule(a: BatchedArray, axis: Any = default, *args: Any, **options: Any) -> BatchedArray:
        if axis is None:
            if options.get("keepdims"):
                raise TypeError(f"{numpy_name(function)} of all axes must not have keepdims=True")
            a, axis = a.reshape(-1), 0
        return BatchedArray(function(a.values, _axes(axis, a.ndim), *args, **options))

    return rule


def _elementwise(function: Callable[..., Any]) -> Callable[..., BatchedArray]:
    """Return the batching rule of a function whose operands broadcast."""
    return lambda *operands, **options: BatchedArray(function(*_aligned(operands), **options))


def _solve(a: Any, b: Any) -> BatchedArray:
    if _ndim(b) > 1:
        return BatchedArray(np.linalg.solve(*_aligned((a, b))))
    columns = np.expand_dims(b, -1)
    return BatchedArray(np.linalg.solve(*_aligned((a, columns)))[..., 0])


def _stacked(function: Callable[..., Any]) -> Callable[..., BatchedArray]:
    """Return the batching rule of concatenate or stack."""

    def rule(arrays: Sequence[Any], axis: int | None = 0, **options: Any) -> BatchedArray:
        if axis is None:
            return rule([np.reshape(x, -1) for x in arrays], **options)
        length = next(len(x.values) for x in arrays if isinstance(x, BatchedArray))
        full = [
            x.values if isinstance(x, BatchedArray) else np.broadcast_to(x, (length, *np.shape(x)))
            for x in arrays
        ]
        ndim = _ndim(arrays[0]) + (function is np.stack)
        return BatchedArray(function(full, axis=_axes(axis, ndim), **options))

    return rule


def _broadcast_to(a: BatchedArray, shape: Any, **options: Any) -> BatchedArray:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    values = _with_ndim(a, len(shape))
    return BatchedArray(np.broadcast_to(values, values.shape[:1] + shape, **options))


def _filled_like(function: Callable[..., Any]) -> Callable[..., BatchedArray]:
    def rule(a: BatchedArray, *args: Any, shape: Any = None, **options: Any) -> BatchedArray:
        full = None if shape is None else (len(a.values), *shape)
        return BatchedArray(function(a.values, *args, shape=full, **options))

    return rule


def _split(a: BatchedArray, indices: Any, axis: int = 0) -> list[BatchedArray]:
    return [BatchedArray(part) for part in np.split(a.values, indices, _axes(axis, a.ndim))]


def _expand_dims(a: BatchedArray, axis: Any) -> BatchedArray:
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    return BatchedArray(np.expand_dims(a.values, _axes(tuple(axes), a.ndim + len(axes))))


def _pad(a: BatchedArray, widths: Any, mode: Any = "constant", **options: Any) -> BatchedArray:
    if "constant_values" in options:  # a pair for each axis
        pairs = np.broadcast_to(options["constant_values"], (a.ndim, 2))
        options["constant_values"] = [(0, 0), *pairs.tolist()]
    return BatchedArray(np.pad(a.values, [(0, 0), *widths], mode, **options))


def _moveaxis(a: BatchedArray, source: Any, destination: Any) -> BatchedArray:
    return BatchedArray(np.moveaxis(a.values, _axes(source, a.ndim), _axes(destination, a.ndim)))


def _einsum(subscripts: str, *operands: Any, **options: Any) -> BatchedArray:
    letter = next(c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in subscripts)
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    if not arrow:  # each index that occurs once, in alphabetical order
        once = sorted(c for c in inputs if c.isalpha() and inputs.count(c) == 1)
        output = "".join(["..."] * ("..." in inputs) + once)
    named = [
        letter + names if isinstance(x, BatchedArray) else names
        for names, x in zip(inputs.split(","), operands)
    ]
    values = [x.values if isinstance(x, BatchedArray) else x for x in operands]
    return BatchedArray(np.einsum(f"{','.join(named)}->{letter}{output}", *values, **options))


RULES: dict[Any, Callable[..., Any]] = {
    **{
        f: _along(f)
        for f in (
            np.sum,
            np.mean,
            np.max,
            np.min,
            np.prod,
            np.var,
            np.std,
            np.any,
            np.all,
            np.count_nonzero,
        )
    },
    **{
        f: _leading(f)
        for f in (
            np.linalg.inv,
            np.linalg.cond,
            np.linalg.pinv,
            np.linalg.det,
            np.linalg.slogdet,
            np.linalg.cholesky,
            np.linalg.eigh,
            np.linalg.svd,
            np.linalg.qr,
        )
    },
    np.concatenate: _stacked(np.concatenate),
    np.stack: _stacked(np.stack),
    np.broadcast_to: _broadcast_to,
    np.expand_dims: _expand_dims,
    np.moveaxis: _moveaxis,
    np.einsum: _einsum,
    **{f: _along_one(f, None) for f in (np.cumsum, np.cumprod, np.argmax, np.argmin)},
    **{f: _along_one(f, -1) for f in (np.sort, np.argsort)},
    **{
        f: _elementwise(f)
        for f in (np.where, np.clip, np.isclose, np.isneginf, np.isposinf, np.sinc, np.round)
    },
    np.real: _elementwise(np.real),
    np.imag: _elementwise(np.imag),
    np.fft.fft: lambda a, axis=-1, norm=None: BatchedArray(
        np.fft.fft(a.values, axis=_axes(axis, a.ndim), norm=norm)
    ),
    np.linalg.solve: _solve,
    np.searchsorted: lambda a, v, *options, **named: BatchedArray(
        np.searchsorted(np.asarray(a), v.values, *options, **named)
    ),
    np.squeeze: lambda a, axis: BatchedArray(np.squeeze(a.values, _axes(axis, a.ndim))),
    np.reshape: lambda a, shape, **options: a.reshape(shape, **options),
    np.transpose: lambda a, axes=None: a.transpose(axes),
    np.swapaxes: lambda a, i, j: a.swapaxes(i, j),
    **{f: lambda a, f=f: f(a.values) for f in (np.iscomplexobj, np.isrealobj)},
    np.ndim: lambda a: a.ndim,
    np.size: lambda a: a.size,
    np.result_type: lambda *operands: np.result_type(
        *[x.dtype if isinstance(x, BatchedArray) else x for x in operands]
    ),
    np.array2string: lambda a, **options: np.array2string(a.values, **options),
    np.shape: lambda a: a.shape,
    **{f: _filled_like(f) for f in (np.zeros_like, np.ones_like, np.empty_like, np.full_like)},
    np.split: _split,
    np.pad: _pad,
    np.flip: _along(np.flip),
    np.diagonal: lambda a, offset=0, axis1=0, axis2=1: BatchedArray(
        np.diagonal(a.values, offset, _axes(axis1, a.ndim), _axes(axis2, a.ndim))
    ),
    np.tril: _leading(np.tril),
    np.triu: _leading(np.triu),
    np.copy: lambda a, **options: BatchedArray(np.copy(a.values, **options)),
}
RETURNS_ARRAYS = {
    np.block, np.broadcast_to, np.copy, np.cov, np.diff, np.empty_like, np.fft.fftn, np.fft.ifftn,
    np.full_like, np.imag, np.moveaxis, np.ones_like, np.pad, np.real, np.real_if_close,
    np.reshape, np.roll, np.select, np.squeeze, np.swapaxes, np.transpose, np.where, np.zeros_like,
}  # fmt: skip
"""Functions whose results without axes are arrays in NumPy, not numbers."""
