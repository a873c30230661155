"""Einstein summation, whose gradient is an einsum again."""

from __future__ import annotations

import math
from functools import lru_cache
from string import ascii_letters, ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np

from ..registry import either, function, op
from ..tensor import Tensor

__all__ = ["einsum"]


@lru_cache(256)
def _expand_ellipsis(subscripts: str, ndims: tuple[int, ...]) -> tuple[list[str], str]:
    """Return the indices of each operand and of the result, with letters for `...`."""
    text = subscripts.replace(" ", "")
    left, arrow, result = text.partition("->")
    terms = left.split(",")
    counts = [ndim - len(term.replace("...", "")) for term, ndim in zip(terms, ndims)]
    dots = "".join([letter for letter in ascii_letters if letter not in text][: max(counts)])
    if not arrow:  # every index that appears once, in alphabetical order
        once = sorted(letter for letter in {*left} & {*ascii_letters} if left.count(letter) == 1)
        result = "..." + "".join(once)
    spelled = [term.replace("...", dots[len(dots) - n :]) for term, n in zip(terms, counts)]
    return spelled, result.replace("...", dots)


def _gradients(
    g: Any, arrays: tuple[Any, ...], arrays_shape: Any, subscripts: str, needs: tuple[bool, ...]
) -> list[Any]:
    terms, result = _expand_ellipsis(subscripts, tuple(map(len, arrays_shape)))
    lengths: dict[str, int] = {}
    for term, shape in zip(terms, arrays_shape):
        for letter, n in zip(term, shape):
            lengths[letter] = n if n != 1 else lengths.get(letter, 1)
    return [
        _gradient(g, i, arrays, terms, result, lengths) if needed else None
        for i, needed in enumerate(needs)
    ]


def _gradient(
    g: Any, i: int, arrays: Any, terms: list[str], result: str, lengths: dict[str, int]
) -> Any:
    """Return the gradient of operand i: an einsum of g and the other operands.

    An index that only operand i has is summed with ones. A repeated index selects a diagonal, and
    an identity matrix restricts the gradient to it.
    """
    factors = {j: (terms[j], x) for j, x in enumerate(arrays) if j != i} | {i: (result, g)}
    present = "".join([term for term, _ in factors.values()])
    unused = iter([letter for letter in ascii_letters if letter not in lengths])
    term, added, shape = "", [], []
    for letter in terms[i]:
        n = lengths[letter]
        shape.append(n)
        if letter in term:
            twin = next(unused)
            added.append((letter + twin, np.eye(n, dtype=g.dtype)))
            letter = twin
        elif letter not in present:
            added.append((letter, np.ones(n, g.dtype)))
        term += letter
    names, values = zip(*factors.values(), *added)
    y = _product(*values, subscripts=f"{','.join(names)}->{term}")
    return y if y.shape == tuple(shape) else np.broadcast_to(y, shape)


@op(view=True, vjp=_gradients)
def _einsum(*arrays, subscripts):
    lengths: dict[str, int] = {}
    for term, x in zip(subscripts.split(","), arrays):
        lengths.update(zip(term, x.shape))
    # optimize=True uses BLAS, which is faster for many products only
    is_large = len(arrays) > 1 and math.prod(lengths.values()) > 1 << 15
    return np.einsum(subscripts, *arrays, optimize=is_large)


_product: Any = either(_einsum)


def _from_lists(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return subscripts and operands of the form operand, indices, ..., [indices of the result]."""
    names: dict[Any, str] = dict(enumerate(ascii_uppercase + ascii_lowercase))  # NumPy's order
    names[Ellipsis] = "..."
    lists = [*args[1::2], *(args[-1:] if len(args) % 2 else ())]
    try:
        terms = ["".join([names[index] for index in indices]) for indices in lists]
    except (TypeError, KeyError):
        raise TypeError(
            "einsum: subscripts must be a string, or lists of integers from 0 to 51 after each "
            f"operand, got {', '.join(type(arg).__name__ for arg in args)}"
        ) from None
    count = len(args) // 2
    return "->".join([",".join(terms[:count]), *terms[count:]]), args[: 2 * count : 2]


@function(numpy=np.einsum)
def einsum(subscripts: Any, *operands: Any, optimize: Any = None) -> Tensor:
    """Sum products of elements, as `subscripts` describes.

    Large products are always optimized, whatever `optimize` is.
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists((subscripts, *operands))
    return _einsum(*operands, subscripts=subscripts)
