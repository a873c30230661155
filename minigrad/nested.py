"""Tensors and arrays inside lists, tuples and dicts.

Look at `needs_gradient`, which decides whether an argument would lose a gradient, and at
`untracked`, which refuses such an argument for an option. `grad` differentiates with respect to
trees: nested dicts, lists, tuples and named tuples, with arrays or anything else as leaves.
`leaves` flattens a tree, and `rebuilt` is its inverse.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable

import numpy as np

from .arrays import Array, Function, Tree
from .modes import MODE
from .tensor import Tensor

__all__ = ["leaves", "rebuilt"]


def needs_gradient(value: Tree) -> bool:
    """Return whether `value` is, or contains, a tensor whose operations are being recorded."""
    return MODE.get().record and _is_tracked(value)


def _is_tracked(value: Tree) -> bool:
    if isinstance(value, Tensor):
        return value._node is not None
    if not isinstance(value, (list, tuple, dict)):
        return False
    for part in value.values() if isinstance(value, dict) else value:
        if part._node is not None if type(part) is Tensor else _is_tracked(part):
            return True
    return False


def without_tensors(value: Tree) -> Tree:
    """Replace tensors at any depth by their arrays."""
    if isinstance(value, Tensor):
        return value._array
    if isinstance(value, dict):
        return {key: without_tensors(part) for key, part in value.items()}
    return map_parts(value, without_tensors)


def numpy_name(function: Function) -> str:
    """Return the name of a function as users write it, such as np.linalg.norm."""
    name = function.__name__.lstrip("_")
    if isinstance(function, np.ufunc):  # which has no module before NumPy 2.3
        modules = ("numpy", "scipy.special")
        module = next((m for m in modules if hasattr(sys.modules.get(m), name)), "")
    else:
        module = getattr(function, "__module__", None) or "numpy"
    return f"{module.replace('numpy', 'np', 1)}.{name}".lstrip(".")


def untracked(name: str, option: str, value: Tree) -> Tree:
    """Return an option of the op `name` with arrays in place of tensors that need no gradient."""
    if needs_gradient(value):
        raise TypeError(refusal(name, option, value))
    return without_tensors(value)


def refusal(name: str, option: str, value: object) -> str:
    """Return the error for an option that has no derivative."""
    if option == "out":
        return (
            f"{name}: out= cannot hold the result of a tensor that requires gradients; use the "
            "returned tensor"
        )
    shown = f"={value!r}" if isinstance(value, (str, int, float)) else "="
    return (
        f"{name}: {option}{shown} has no rule for tensors that require gradients; use .detach() "
        "if no gradient is needed"
    )


def map_parts(value: Tree, function: Function) -> Tree:
    """Apply `function` to the parts of a list, tuple or named tuple."""
    if not isinstance(value, (list, tuple)):
        return value
    parts = [function(part) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def leaves(tree: Tree, is_leaf: Callable[[Tree], bool] = lambda value: False) -> list[Array]:
    """Return the leaves of a tree in order: dicts by insertion, others by position.

    Parameters
    ----------
    tree : object
        Nested dicts, lists, tuples and named tuples.
    is_leaf : callable, optional
        Returns True for a dict, list or tuple that is a leaf.
    """
    if not isinstance(tree, (dict, list, tuple)) or is_leaf(tree):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in leaves(part, is_leaf)]


def rebuilt(
    tree: Tree, values: Iterable[Array], is_leaf: Callable[[Tree], bool] = lambda value: False
) -> Tree:
    """Return a tree with the structure of `tree` and the leaves `values`.

    Other parameters: as `leaves`.

    Parameters
    ----------
    values : iterable
        Leaves in order.
    """
    values = iter(values)  # shared by all parts
    if not isinstance(tree, (dict, list, tuple)) or is_leaf(tree):
        return next(values)
    if isinstance(tree, dict):
        parts = {key: rebuilt(part, values, is_leaf) for key, part in tree.items()}
        if type(tree) is dict:
            return parts
        other = copy.copy(tree)  # its constructor may take other arguments, as that of defaultdict
        other.update(parts)
        return other
    items = [rebuilt(part, values, is_leaf) for part in tree]
    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
