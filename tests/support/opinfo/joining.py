"""Functions that join arrays, part them, turn and repeat them: NumPy's own are the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg

from .base import Draw, Sample, add


def like_numpy(name: str, samples: Callable[[Draw], Sample], **kwargs: Any) -> None:
    """An entry whose reference is NumPy's function of that name, which is computed another way."""
    add(name, getattr(np, name), samples, **kwargs)


def _as_list(name: str, samples: Callable[[Draw], list[np.ndarray]]) -> None:
    add(
        name,
        lambda *xs: getattr(np, name)(xs),
        lambda d: Sample(samples(d)),
        call=lambda *xs: getattr(mg, name)(list(xs)),
    )


def _several(d: Draw, min_ndim: int = 0, max_ndim: int = 3) -> list[np.ndarray]:
    shape = d.shape(min_ndim, max_ndim)
    return [d.array(shape) for _ in range(d.one_of(1, 2, 3))]


for _name in ("vstack", "hstack", "dstack", "column_stack"):
    _as_list(_name, lambda d: _several(d, 1, 2) if d.bool() else _several(d, 2, 3))
for _name in ("atleast_1d", "atleast_2d", "atleast_3d"):
    add(
        _name,
        lambda *xs, name=_name: [*y] if isinstance(y := getattr(np, name)(*xs), tuple) else y,
        lambda d: Sample([d.array(d.shape()) for _ in range(d.one_of(1, 2))]),
    )
add(
    "broadcast_arrays",
    lambda *xs: [*np.broadcast_arrays(*xs)],
    lambda d: Sample([d.array(s := d.shape(max_ndim=2)), d.array(d.partner(s))]),
)
like_numpy(
    "append",
    lambda d: Sample(
        [d.array(s := d.shape(1)), d.array(s)], {"axis": d.axis(len(s), several=False)}
    ),
    errors=[
        (
            lambda: mg.append(np.ones((2, 3)), np.ones((2, 4)), 0),
            ValueError,
            r"concatenate: .*\(2, 3\).*\(2, 4\)",
        )
    ],
)
add(
    "block",
    lambda a, b, c: np.block([[a, b], [c]]),
    lambda d: Sample([d.array((2, 3)), d.array((2, 1)), d.array((1, 4))]),
    call=lambda a, b, c: mg.block([[a, b], [c]]),
    errors=[
        (
            lambda: mg.block([[np.ones(2)], np.ones(2)]),
            ValueError,
            "block: expected lists nested to one depth",
        ),
        (
            lambda: mg.block((np.ones(2),)),
            TypeError,
            "block: expected lists, of lists or arrays; got a tuple",
        ),
    ],
)
add(
    "meshgrid",
    lambda *xs, **options: [*np.meshgrid(*xs, **options)],
    lambda d: Sample(
        [d.array(d.shape(1, 1)) for _ in range(d.one_of(1, 2, 3))],
        {"indexing": d.one_of("xy", "ij"), "sparse": d.bool()},
    ),
    errors=[
        (
            lambda: mg.meshgrid(np.ones(2), indexing="yx"),
            ValueError,
            "meshgrid: expected indexing 'xy' or 'ij'",
        )
    ],
)


def _parting(d: Draw) -> Sample:
    x = d.array(d.shape(1))
    places = d.one_of(1, 2, 3, [1], [1, 2], [3, 1], [-1], np.array([0, 2]), [5])
    return Sample([x], {"indices_or_sections": places, "axis": d.axis(x.ndim, False, False)})


like_numpy(
    "array_split",
    _parting,
    errors=[
        (
            lambda: mg.array_split(np.ones(3), 0),
            ValueError,
            "array_split: expected at least one section, got 0",
        )
    ],
)


def _equal_parts(d: Draw) -> Sample:
    sample = _parting(d)
    x, places = sample.operands[0], sample.options["indices_or_sections"]
    if isinstance(places, int) and x.shape[sample.options["axis"]] % places:
        sample.options["indices_or_sections"] = [places]
    return sample


like_numpy(
    "split",
    _equal_parts,
    errors=[
        (
            lambda: mg.split(np.ones(5), 2),
            ValueError,
            "split: 5 elements cannot be cut into 2 equal parts; array_split",
        ),
        (lambda: mg.split(np.ones(5), 5, 1), ValueError, "split: axis 1 is out of bounds"),
    ],
)
add(
    "unstack",
    lambda x, axis: [*np.moveaxis(x, axis, 0)],
    lambda d: Sample(
        [x := d.array(d.shape(1, min_side=1))], {"axis": d.axis(x.ndim, False, False)}
    ),
)

# -- turning and repeating ---------------------------------------------------------------------------

like_numpy("fliplr", lambda d: Sample([d.array(d.shape(2))]))
like_numpy("flipud", lambda d: Sample([d.array(d.shape(1))]))
like_numpy(
    "rot90",
    lambda d: Sample(
        [d.array(d.shape(2))], {"k": d.one_of(-1, 0, 1, 2, 3), "axes": d.one_of((0, 1), (1, 0))}
    ),
)
add(
    "unfold",
    lambda x, axis, size, step: np.lib.stride_tricks.sliding_window_view(x, size, axis)[
        (slice(None),) * (axis % x.ndim) + (slice(None, None, step),)
    ],
    lambda d: Sample(
        [x := d.array(d.shape(1, 3, 3, 6))],
        {"axis": d.axis(x.ndim, False, False), "size": d.one_of(1, 2, 3), "step": d.one_of(1, 2)},
    ),
    errors=[
        (
            lambda: mg.unfold(np.ones(3), 0, 4),
            ValueError,
            "unfold: a window of 4 does not fit into 3 elements",
        )
    ],
)

# -- PyTorch's names ---------------------------------------------------------------------------------

add(
    "cat",
    lambda *xs, axis: np.concatenate(xs, axis),
    lambda d: Sample(
        [d.array(s := d.shape(1)), d.array(s)], {"axis": d.axis(len(s), False, False)}
    ),
    call=lambda *xs, axis: mg.cat(xs, dim=axis),
)
add(
    "chunk",
    lambda x, chunks, axis: np.split(
        x, range(n := -(-x.shape[axis] // chunks), x.shape[axis], n), axis
    ),
    lambda d: Sample(
        [x := d.array(d.shape(1, min_side=1))],
        {"chunks": d.one_of(1, 2, 3), "axis": d.axis(x.ndim, False, False)},
    ),
    errors=[
        (lambda: mg.chunk(np.ones(3), 0), ValueError, "chunk: expected at least one part, got 0")
    ],
)
add(
    "expand",
    lambda x, shape: np.broadcast_to(x, shape),
    lambda d: Sample([d.array((3, 1))], {"shape": d.one_of((3, 4), (2, 3, 1), (3, 1))}),
    call=lambda x, shape: mg.expand(x, *[-1 if n == 3 else n for n in shape]),
    errors=[
        (
            lambda: mg.expand(np.ones(3), -1, 3),
            ValueError,
            r"expand: cannot expand shape \(3,\) to \(-1, 3\)",
        )
    ],
)
