"""Trees: nested dicts, lists, tuples and named tuples, with arrays or anything else as leaves.

`grad` differentiates with respect to trees of parameters. Look at `leaves`, which flattens a tree,
and `rebuilt`, which is its inverse.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["leaves", "rebuilt"]


def leaves(tree: Any, is_leaf: Callable[[Any], bool] = lambda value: False) -> list[Any]:
    """Return the leaves of a tree in order: dicts by insertion, others by position.

    Parameters
    ----------
    tree : object
        Nested dicts, lists, tuples and named tuples.
    is_leaf : callable, optional
        Returns True for a dict, list or tuple that is a leaf.
    """
    if is_leaf(tree) or not isinstance(tree, (dict, list, tuple)):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in leaves(part, is_leaf)]


def rebuilt(
    tree: Any, values: Iterable[Any], is_leaf: Callable[[Any], bool] = lambda value: False
) -> Any:
    """Return a tree with the structure of `tree` and the leaves `values`.

    Other parameters: as `leaves`.

    Parameters
    ----------
    values : iterable
        Leaves in order.
    """
    values = iter(values)  # shared by all parts
    if is_leaf(tree) or not isinstance(tree, (dict, list, tuple)):
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
