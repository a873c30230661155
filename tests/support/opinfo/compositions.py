"""Functions of NumPy that are compositions of ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg

from .base import TABLE, Draw, Sample, Shape, add
from .linalg import any_matrices, batched_matrices, regular, symmetrized
from .reduction import factors


def arrays(name: str, samples: Callable[[Draw], list[np.ndarray]], *, joined: bool = False) -> None:
    """Add a function of several arrays, or of a list of arrays if `joined`."""
    add(name, lambda d: Sample(samples(d)) if joined else Sample(*samples(d)))


def of_numpy(name: str, call: Callable[..., Any], samples: Callable[[Draw], Sample]) -> None:
    """Add a function that tensors reach through NumPy only."""

    def as_tensors(*operands: Any, **options: Any) -> Any:
        result = call(*operands, **options)
        many = isinstance(result, (list, tuple))
        return [*map(mg.as_tensor, result)] if many else mg.as_tensor(result)

    add(f"np.{name}", samples, call, as_tensors)


# -- shapes ------------------------------------------------------------------------------------------


def _squeeze(d: Draw) -> Sample:
    x = d.array(tuple(d.one_of(1, n) for n in d.shape(1)))
    ones = [axis for axis, n in enumerate(x.shape) if n == 1]
    return Sample(x, axis=d.one_of(None, *ones, tuple(ones)))


def _moveaxis(d: Draw) -> Sample:
    x = d.array(d.shape(2))
    source, target = d.permutation(x.ndim), d.permutation(x.ndim)
    count = d.integer(1, x.ndim)
    return d.one_of(
        Sample(x, source[0], target[0] - x.ndim), Sample(x, source[:count], target[:count])
    )


def _several(d: Draw, shape: Shape) -> list[np.ndarray]:
    return [d.array(shape) for _ in range(d.integer(1, 3))]


def _broadcasting(d: Draw) -> list[np.ndarray]:
    return [d.array(shape := d.shape(max_ndim=2)), d.array(d.partner(shape))]


def _split(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 0, 6))
    axis = d.axis(x.ndim, none=False, several=False)
    return Sample(x, d.one_of(1, [1], [2, 3], []), axis=axis)


def _parts(d: Draw) -> Sample:
    sample = _split(d)
    sample.operands[1] = d.one_of(1, 2, 3, [1], [-2, 5])
    return sample


def _block(d: Draw) -> Sample:
    n, m = d.integer(0, 2), d.integer(1, 2)
    rows = [[d.array((k, m)), d.array((k, 2))] for k in (n, 1)]
    return Sample(d.one_of(rows, rows[0], [[d.array(()), d.array(())]]))


def _indices(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    axis = d.axis(x.ndim, several=False)
    n = x.size if axis is None else x.shape[axis]
    return Sample(x, d.integers(-n, n, d.shape(max_ndim=2)), axis=axis)


def _along_axis(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    axis = d.axis(x.ndim, none=False, several=False)
    shape = tuple(5 if k == axis % x.ndim else n for k, n in enumerate(x.shape))
    return Sample(x, d.integers(-x.shape[axis], x.shape[axis], shape), axis=axis)


def _deleted(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    axis = d.axis(x.ndim, several=False)
    n = x.size if axis is None else x.shape[axis]
    return Sample(x, d.one_of(0, -1, [0, n - 1], slice(None, None, 2), []), axis=axis)


def _inserted(d: Draw) -> Sample:
    sample = _deleted(d)
    x = sample.operands[0]
    sample.operands[1] = d.one_of(0, -1, 1, [0], [-1])
    sample.operands.append(d.array(()) if d.bool() or x.ndim > 1 else d.array((1,)))
    return sample


def _roll(d: Draw) -> Sample:
    x = d.array(d.shape())
    axis = d.axis(x.ndim)
    shift = d.integer(-5, 5)
    return Sample(
        x, tuple(range(1, len(axis) + 1)) if isinstance(axis, tuple) else shift, axis=axis
    )


def _repeat(d: Draw) -> Sample:
    x = d.array(d.shape(1))
    axis = d.axis(x.ndim, several=False)
    n = x.size if axis is None else x.shape[axis]
    each = d.integers(0, 3, (n,)).tolist()
    return Sample(x, d.one_of(1, 2, 0, each), axis=axis)


add("ravel", lambda d: Sample(d.array(d.shape()), order=d.one_of("C", "F")))
add("expand_dims", lambda d: Sample(d.array(d.shape()), axis=d.one_of(0, -1, (0, -1))))
add("squeeze", _squeeze)
for _name in ("atleast_1d", "atleast_2d", "atleast_3d"):
    arrays(_name, lambda d: [d.array(d.shape()) for _ in range(d.integer(1, 2))])
add("swapaxes", lambda d: Sample(d.array(d.shape(2)), d.one_of(0, 1, -1), d.one_of(1, -2)))
add("moveaxis", _moveaxis)
arrays("broadcast_arrays", _broadcasting)
add(
    "stack",
    lambda d: Sample(
        parts := _several(d, d.shape(max_ndim=2)), axis=d.one_of(0, -1, parts[0].ndim)
    ),
)
for _name in ("vstack", "hstack", "dstack"):
    arrays(_name, lambda d: _several(d, d.shape()), joined=True)
arrays(
    "column_stack",
    lambda d: [d.array((n := d.integer(0, 3),)), d.array((n, 2)), d.array((n,))],
    joined=True,
)
add(
    "append",
    lambda d: Sample(x := d.array(d.shape(1)), d.array(x.shape), axis=d.one_of(None, 0, -1)),
)
add("block", _block)
add(
    "meshgrid",
    lambda d: Sample(
        *[d.array((d.integer(1, 3),)) for _ in range(d.integer(1, 3))],
        indexing=d.one_of("xy", "ij"),
        sparse=d.bool(),
    ),
)
add("split", _split)
add("array_split", _parts)
add(
    "unstack",
    lambda d: Sample(x := d.array(d.shape(1)), axis=d.axis(x.ndim, none=False, several=False)),
    lambda x, axis: tuple(np.moveaxis(x, axis, 0)),
)
add("take", _indices, lambda x, i, axis=None: np.take(x, np.asarray(i, np.intp), axis))
add("take_along_axis", _along_axis)
add("flip", lambda d: Sample(x := d.array(d.shape()), axis=d.axis(x.ndim)))
for _name in ("fliplr", "flipud"):
    add(_name, lambda d: Sample(d.array(d.shape(2))))
add(
    "rot90",
    lambda d: Sample(d.array(d.shape(2)), d.integer(-2, 4), d.one_of((0, 1), (1, 0), (-1, 0))),
)
add("delete", _deleted)
add("insert", _inserted)
add("roll", _roll)
add("repeat", _repeat)
add("tile", lambda d: Sample(d.array(d.shape()), d.one_of(1, 2, 0, (2, 1), (2, 1, 2))))
add(
    "sliding_window_view",
    lambda d: Sample(
        x := d.array(d.shape(1, 3, 2)),
        d.one_of(1, 2),
        axis=d.axis(x.ndim, none=False, several=False),
    ),
    np.lib.stride_tricks.sliding_window_view,
)
of_numpy("matrix_transpose", np.matrix_transpose, lambda d: Sample(d.array(d.shape(2))))
of_numpy("copy", np.copy, lambda d: Sample(d.array(d.shape())))
for _call in (np.vsplit, np.hsplit, np.dsplit):
    of_numpy(_call.__name__, _call, lambda d: Sample(d.array(d.shape(3, 3, 2)), d.one_of(1, [1])))
of_numpy(
    "linspace",
    np.linspace,
    lambda d: Sample(*_broadcasting(d), num=d.one_of(2, 0, 1, 5), axis=d.one_of(0, -1)),
)

# -- reductions and statistics -----------------------------------------------------------------------


def reduction(
    name: str,
    values: Callable[[Draw, Shape], np.ndarray] = Draw.array,
    min_side: int = 1,
    **options: Callable[[Draw], Any],
) -> None:
    """Add a function with the options `axis` and `keepdims`; further options are drawn."""
    add(
        name,
        lambda d: Sample(
            x := values(d, d.shape(min_side=min_side)),
            axis=d.axis(x.ndim),
            keepdims=d.bool(),
            **{option: draw(d) for option, draw in options.items()},
        ),
    )


def _with_nan(values: Callable[[Draw, Shape], np.ndarray]) -> Any:
    """Draw values with NaN at some positions, but not at all positions of a slice."""

    def draw(d: Draw, shape: Shape) -> np.ndarray:
        x = values(d, shape)
        is_nan = np.zeros(shape, bool)
        for position in d.positions(x.size):
            is_nan.flat[position] = True
        is_first = (np.indices(shape) == 0).any(axis=0) if shape else True
        return np.where(is_nan & np.logical_not(is_first), np.nan, x)

    return draw


def _spread(d: Draw) -> Sample:
    """Draw values of at least two elements in each slice, which are not equal."""
    x = d.distinct(d.shape(1, 3, 3))
    return Sample(x, axis=d.axis(x.ndim), keepdims=d.bool(), ddof=d.one_of(0, 1))


def _var(d: Draw) -> Sample:
    sample = _spread(d)
    if d.bool():
        mask = sample.options["where"] = np.ones(sample.operands[0].shape, bool)
        mask.flat[d.integer(0, mask.size - 1)] = False
    return sample


def _nan_spread(d: Draw) -> Sample:
    sample = _spread(d)
    x = sample.operands[0]
    if d.bool():
        x.flat[d.integer(0, x.size - 1)] = np.nan
    return sample


def _average(d: Draw) -> Sample:
    x = d.array(d.shape(1, 3, 1))
    axis = d.axis(x.ndim, several=False)
    shape = x.shape if axis is None or d.bool() else (x.shape[axis],)
    weights = d.array(shape, 0.2, 2) if d.bool() else None
    return Sample(x, axis=axis, weights=weights, keepdims=d.bool())


def _sorted(d: Draw) -> Sample:
    x = d.distinct(d.shape(1))
    return Sample(x, axis=d.axis(x.ndim, several=False), stable=d.one_of(None, True))


def _quantile(d: Draw, top: float) -> Sample:
    x = d.distinct(d.shape(0, 3, 1))
    q = d.one_of(0.5 * top, 0.0, top, 0.3 * top, [0.2 * top, 0.7 * top], [[0.1 * top]])
    method = d.one_of("linear", "lower", "higher", "midpoint")
    axis = d.axis(x.ndim)
    if method == "linear" and d.bool():  # differentiable, between two ranks
        last = x.size // x.max(axis).size - 1
        q = np.array(top * (d.integer(0, max(last - 1, 0)) + 0.3) / max(last, 1))
    return Sample(x, q, axis=axis, method=method, keepdims=d.bool())


def _observations(d: Draw) -> Sample:
    x = d.distinct((d.integer(1, 3), d.integer(3, 4)))
    rows = d.bool()
    y = d.distinct(x.shape) if d.bool() else None
    return Sample(x if rows else x.T, None if y is None else y if rows else y.T, rowvar=rows)


def _cov(d: Draw) -> Sample:
    sample = _observations(d)
    sample.options.update(bias=d.bool(), ddof=d.one_of(None, 0, 1))
    return sample


add("var", _var)
add("std", _var)
add("nanvar", _nan_spread)
add("nanstd", _nan_spread)
add("average", _average)
reduction("ptp", Draw.distinct)
reduction("nansum", _with_nan(Draw.array), 1)
reduction("nanprod", _with_nan(factors), 1)
reduction("nanmean", _with_nan(Draw.array))
reduction("nanmax", _with_nan(Draw.distinct))
reduction("nanmin", _with_nan(Draw.distinct))
reduction("median", Draw.distinct)
add("sort", _sorted)
add("quantile", lambda d: _quantile(d, 1.0))
add("percentile", lambda d: _quantile(d, 100.0))
add("cov", _cov)
add("corrcoef", _observations)


def _not_finite(d: Draw) -> Sample:
    x = d.array(d.shape())
    for position in d.positions(x.size):
        x.flat[position] = d.one_of(np.nan, np.inf, -np.inf)
    return Sample(x, nan=d.one_of(0.0, 2.0), posinf=9.0, neginf=d.one_of(-9.0, 0.5))


add("nan_to_num", _not_finite)

# -- products and norms -------------------------------------------------------------------------------


def _products(*shapes: tuple[Shape, Shape]) -> Callable[[Draw], list[np.ndarray]]:
    return lambda d: [*map(d.array, d.one_of(*shapes))]


def _tensordot(d: Draw) -> Sample:
    left, right, axes = d.one_of(
        ((2, 3), (3, 4), 1),
        ((2, 3), (2, 3), 2),
        ((2,), (3,), 0),
        ((2, 3, 4), (4, 2), ((0, 2), (1, 0))),
        ((2, 3), (3, 2), ([-1], [0])),
        ((0, 3), (3, 2), 1),
    )
    return Sample(d.array(left), d.array(right), axes=axes)


def _diagonal(d: Draw) -> Sample:
    x = d.array(d.shape(2))
    axis1, axis2, *_ = d.permutation(x.ndim)
    return Sample(x, offset=d.integer(-1, 2), axis1=axis1, axis2=axis2 - x.ndim)


def _vector_norm(d: Draw) -> Sample:
    shape = d.shape(1, 3, 1)
    size = d.distinct(shape) + 0.05 * math.prod(shape) + 0.3  # distinct absolute values
    x = np.where(d.mask(shape), size, -size)
    ord = d.one_of(2, 1, 3, np.inf, -np.inf, 0.5, -1, 4)
    return Sample(x, axis=d.axis(len(shape)), keepdims=d.bool(), ord=ord)


def _norm(d: Draw) -> Sample:
    """Draw orders of vectors with one axis, and the default with none, one or two."""
    sample = _vector_norm(d)
    axis = sample.options["axis"]
    if isinstance(axis, tuple):
        sample.options["axis"] = axis[:2] if len(axis) > 1 else axis
    if sample.operands[0].ndim > 1 and (axis is None or np.size(axis) > 1):
        sample.options["ord"] = None
    return sample


def _matrix_norm(d: Draw) -> Sample:
    ord = d.one_of("fro", 2, -2, "nuc", 1, -1, np.inf, -np.inf)
    if ord in ("fro", 2, -2, "nuc"):
        return Sample(batched_matrices(d, (2, 2), (3, 2), (2, 3)), keepdims=d.bool(), ord=ord)
    x = d.array((d.integer(1, 3), d.integer(1, 3)), 0.5, 0.9)
    x = x + np.add.outer(4 * np.arange(len(x)), 1.5 * np.arange(x.shape[1]))  # distinct sums
    return Sample(np.where(d.mask(x.shape), x, -x), keepdims=d.bool(), ord=ord)


def _cond(d: Draw) -> Sample:
    n = d.integer(1, 3)
    x = np.diag(3.0 ** np.arange(n)) + d.array((*d.shape(0, 1, 1, 2), n, n), 0.02, 0.1)
    return Sample(x, d.one_of(None, 2, -2, "fro", 1, -1, np.inf, -np.inf))


def _lstsq(d: Draw) -> Sample:
    a = any_matrices(d, (3, 2), (2, 2), (2, 3))
    return Sample(a, d.array((len(a), *d.one_of((), (1,), (2,)))), rcond=None)


def _parts_of_lstsq(lstsq: Any) -> Any:
    """Return a function that returns the solution and the singular values."""
    return lambda a, b, rcond: lstsq(a, b, rcond)[::3]


arrays(
    "dot",
    _products(((3,), (3,)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((), (2,)), ((2, 3), (2, 3, 1))),
)
arrays("vdot", _products(((3,), (3,)), ((2, 3), (2, 3)), ((), ()), ((0,), (0,))))
arrays("inner", _products(((3,), (3,)), ((2, 3), (3,)), ((2, 3), (4, 3)), ((), (2,))))
arrays("outer", lambda d: [d.array(d.shape(max_ndim=2)), d.array(d.shape(max_ndim=2))])
arrays("kron", lambda d: [d.array(d.shape(max_ndim=2)), d.array(d.shape(max_ndim=2))])
add("tensordot", _tensordot)
add(
    "vecdot",
    lambda d: Sample(x := d.array(d.shape(1)), d.array((2, *x.shape) if d.bool() else x.shape)),
)
add(
    "cross",
    lambda d: Sample(d.array((*(s := d.shape(max_ndim=2)), 3)), d.array((*d.partner(s), 3))),
)
add("diagonal", _diagonal)
add("trace", _diagonal)
for _name in ("diagflat", "diag"):
    add(_name, lambda d: Sample(d.array(d.shape(1, 2)), k=d.integer(-1, 2)))
for _name in ("tril", "triu"):
    add(_name, lambda d: Sample(d.array(d.shape(2)), k=d.integer(-1, 2)))
add("slogdet", lambda d: Sample(regular(d)))
add(
    "eigvalsh",
    lambda d: Sample(symmetrized(any_matrices(d, (3, 3), (2, 2)))),
    call=lambda x: mg.eigvalsh(symmetrized(x)),
)
add("svdvals", lambda d: Sample(batched_matrices(d, (2, 2), (3, 2), (2, 3))))
add("lstsq", _lstsq, _parts_of_lstsq(np.linalg.lstsq), _parts_of_lstsq(mg.lstsq))
add("matrix_power", lambda d: Sample(regular(d) / 3, d.integer(-3, 5)))
add("norm", _norm)
add("vector_norm", _vector_norm)
add("matrix_norm", _matrix_norm)
add("cond", _cond)

# -- calculus and functions of elements ----------------------------------------------------------------


def _unwrap(d: Draw) -> Sample:
    """Draw angles whose differences are not near half a period."""
    x = d.integers(-8, 9, d.shape(1)) * 0.7
    return Sample(
        x,
        discont=d.one_of(None, 4.0),
        axis=d.axis(x.ndim, none=False, several=False),
        period=d.one_of(2 * np.pi, 3.1),
    )


def _select(d: Draw) -> Sample:
    shape = d.shape(max_ndim=2)
    conditions = [d.mask(shape) for _ in range(d.integer(1, 3))]
    return Sample(conditions, [d.array(shape) for _ in conditions], default=d.one_of(0, 1.5))


def _diff(d: Draw) -> Sample:
    x = d.array(d.shape(1))
    axis = d.axis(x.ndim, none=False, several=False)
    ends = {name: d.array(x.shape) for name in ("prepend", "append") if d.often(0.3) and x.size}
    return Sample(x, n=d.one_of(1, 0, 2), axis=axis, **ends)


def _trapezoid(d: Draw) -> Sample:
    y = d.array(d.shape(1))
    axis = d.axis(y.ndim, none=False, several=False)
    x = d.one_of(None, d.array((y.shape[axis],)), d.array(y.shape))
    return Sample(y, x, dx=d.one_of(1.0, 0.3), axis=axis)


def _gradient(d: Draw) -> Sample:
    x = d.array(d.shape(1, 2, 3))
    axis = d.axis(x.ndim, none=False, several=False)
    places = np.cumsum(d.array((x.shape[axis],), 0.5, 2)).tolist()
    return Sample(x, d.one_of(1.0, 0.5, places), axis=axis, edge_order=d.one_of(1, 2))


def _interp(d: Draw) -> Sample:
    n = d.integer(1, 4)
    knots = np.arange(n) * 1.5 + d.array((n,), 0, 0.4)
    x = 1.5 * d.integers(-1, n + 1, d.shape(max_ndim=2))
    return Sample(x + d.array(x.shape, 0.5, 1.4), knots, d.array((n,)))


def _convolution(d: Draw) -> Sample:
    lengths = d.integer(1, 5), d.integer(1, 5)
    return Sample(*[d.array((n,)) for n in lengths], mode=d.one_of("full", "same", "valid"))


def _divmod(d: Draw) -> Sample:
    return TABLE["remainder"].samples(d)


def _heaviside(d: Draw) -> Sample:
    shape = d.shape(max_ndim=2)
    return Sample(d.integers(-1, 2, shape), d.array(d.partner(shape)))


add("unwrap", _unwrap)
add("heaviside", _heaviside)
add("divmod", _divmod)
add("select", _select)
add("polyval", lambda d: Sample(d.array((d.integer(1, 4),)), d.array(d.shape(max_ndim=2))))
add("diff", _diff)
add("trapezoid", _trapezoid)
add("gradient", _gradient)
add("interp", _interp)
add("convolve", _convolution)
add("correlate", _convolution)

# -- methods of ufuncs ---------------------------------------------------------------------------------

for _ufunc, _values in (
    (np.add, Draw.array),
    (np.multiply, factors),
    (np.maximum, Draw.distinct),
    (np.minimum, Draw.distinct),
    (np.logaddexp, Draw.array),
):
    of_numpy(
        f"{_ufunc.__name__}.reduce",
        _ufunc.reduce,
        lambda d, values=_values: Sample(
            x := values(d, d.shape(1, min_side=1)), axis=d.axis(x.ndim), keepdims=d.bool()
        ),
    )
for _ufunc in (np.add, np.multiply):
    of_numpy(
        f"{_ufunc.__name__}.accumulate",
        _ufunc.accumulate,
        lambda d: Sample(x := d.array(d.shape(1)), axis=d.axis(x.ndim, none=False, several=False)),
    )
of_numpy(
    "subtract.outer",
    np.subtract.outer,
    lambda d: Sample(d.array(d.shape(max_ndim=2)), d.array(d.shape(max_ndim=2))),
)
