"""Einstein summation. The gradient of an einsum is an einsum."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from ..core.registry import function, op
from ..core.tensor import Tensor

__all__ = ["einsum"]


def parse(subscripts: str, ndims: Sequence[int]) -> tuple[list[str], str]:
    """The indices of each operand and of the result, with every `...` spelled out in letters."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ValueError(f"{subscripts!r} names {len(terms)} operands, but there are {len(ndims)}")
    unused = [letter for letter in ascii_letters if letter not in text]
    rank = max(
        [n - len(t.replace("...", "")) for t, n in zip(terms, ndims) if "..." in t], default=0
    )
    dots = "".join(unused[:rank])
    spelled = []
    for term, ndim in zip(terms, ndims):
        letters = term.replace("...", "")
        own = ndim - len(letters)
        if own < 0 or (own and "..." not in term) or not (letters.isalpha() or not letters):
            raise ValueError(
                f"{subscripts!r}: term {term!r} does not fit an operand with {ndim} axes"
            )
        spelled.append(term.replace("...", dots[rank - own :]))
    if arrow:
        result = right.replace("...", dots)
    else:  # every index that appears once, in alphabetical order
        letters = left.replace("...", "").replace(",", "")
        result = dots + "".join(
            sorted(letter for letter in set(letters) if letters.count(letter) == 1)
        )
    return spelled, result


def _gradients(
    g: Any, arrays: tuple[Any, ...], arrays_shape: Any, subscripts: str, needs: tuple[bool, ...]
) -> list[Any]:
    terms, result = parse(subscripts, [len(shape) for shape in arrays_shape])
    lengths: dict[str, int] = {}
    for term, shape in zip(terms, arrays_shape):
        for letter, n in zip(term, shape):
            lengths[letter] = n if n != 1 else lengths.get(letter, 1)
    return [
        _gradient(g, i, arrays, terms, result, arrays_shape[i], lengths) if needed else None
        for i, needed in enumerate(needs)
    ]


def _gradient(
    g: Any, i: int, arrays: Any, terms: list[str], result: str, shape: Any, lengths: dict[str, int]
) -> Any:
    """The gradient of operand i: the product of g and the other operands, over this operand's
    indices.
    """
    own = "".join(dict.fromkeys(terms[i]))  # each index once
    others = [(term, array) for j, (term, array) in enumerate(zip(terms, arrays)) if j != i]
    present = set(result).union(*[term for term, _ in others])
    found = "".join(letter for letter in own if letter in present)
    inputs = ",".join([result, *[term for term, _ in others]])
    c = np.einsum(f"{inputs}->{found}", g, *[array for _, array in others])
    if found != own:  # an index that only this operand has: its gradient is the same all along
        sizes = iter(c.shape)
        c = c.reshape([next(sizes) if letter in found else 1 for letter in own])
    c = np.broadcast_to(c, [lengths[letter] for letter in own])
    if own == terms[i]:
        return c
    # a repeated index picks a diagonal: its gradient is zero elsewhere
    unused = iter([letter for letter in ascii_letters if letter not in own])
    term, factors, eyes = "", [own], []
    for letter in terms[i]:
        if letter in term:
            twin = next(unused)
            factors.append(letter + twin)
            eyes.append(np.eye(lengths[letter], dtype=c.dtype))
            letter = twin
        term += letter
    return np.einsum(f"{','.join(factors)}->{term}", c, *eyes)


def _as_text(*arguments: Any) -> tuple[str, tuple[Any, ...]]:
    """NumPy's other form, einsum(a, [0, 1], b, [1, 2], [0, 2]), in letters."""
    pairs = len(arguments) // 2 * 2
    operands, lists = [*arguments[:pairs:2]], [*arguments[1:pairs:2], *arguments[pairs:]]
    if not pairs or not all(isinstance(labels, (list, tuple)) for labels in lists):
        raise TypeError(
            f"einsum: expected subscripts as a string, got a {type(arguments[0]).__name__}"
        )
    spelled = [
        "".join("..." if i is Ellipsis else ascii_letters[i] for i in labels) for labels in lists
    ]
    terms = ",".join(spelled[: len(operands)])
    return (f"{terms}->{spelled[-1]}" if len(lists) > len(operands) else terms), tuple(operands)


@op(view=True, vjp=_gradients)
def _einsum(*arrays, subscripts):
    large = (
        len(arrays) > 1 and max(np.size(x) for x in arrays) > 1000
    )  # where BLAS repays its preparation
    return np.einsum(subscripts, *arrays, optimize=large)


@function(numpy=np.einsum)
def einsum(subscripts: Any, *operands: Any, optimize: Any = None) -> Tensor:
    """The sum of products that `subscripts` describes: "ij,jk->ik" is the matrix product.

    Repeated and summed indices, diagonals ("ii->i"), `...` and the implicit form are all supported.
    `optimize` is accepted for NumPy's sake; large products are always optimized.
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _as_text(subscripts, *operands)
    return _einsum(*operands, subscripts=subscripts)
