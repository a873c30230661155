"""Trees: nested dicts, lists, tuples and named tuples, with arrays or anything else as leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["aligned", "leaves", "rebuilt"]


def leaves(tree: Any, is_leaf: Callable[[Any], bool] = lambda value: False) -> list[Any]:
    """What a tree holds, in order: dicts by insertion, the others by position."""
    if is_leaf(tree) or not isinstance(tree, (dict, list, tuple)):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in leaves(part, is_leaf)]


def aligned(
    like: Any, tree: Any, is_leaf: Callable[[Any], bool] = lambda value: False
) -> list[Any]:
    """What `tree` holds where `like` has its leaves; a ValueError where it is built otherwise."""
    if is_leaf(like) or not isinstance(like, (dict, list, tuple)):
        return [tree]
    if isinstance(like, dict):
        if not isinstance(tree, dict) or tree.keys() != like.keys():
            raise ValueError(
                f"expected a dict with the keys {sorted(map(str, like))}, got {_described(tree)}"
            )
        return [leaf for key in like for leaf in aligned(like[key], tree[key], is_leaf)]
    if not isinstance(tree, (list, tuple)) or len(tree) != len(like):
        raise ValueError(f"expected {len(like)} parts, got {_described(tree)}")
    return [leaf for part, other in zip(like, tree) for leaf in aligned(part, other, is_leaf)]


def _described(tree: Any) -> str:
    if isinstance(tree, dict):
        return f"the keys {sorted(map(str, tree))}"
    return f"{len(tree)}" if isinstance(tree, (list, tuple)) else f"a {type(tree).__name__}"


def rebuilt(
    tree: Any, values: Iterable[Any], is_leaf: Callable[[Any], bool] = lambda value: False
) -> Any:
    """A tree of the structure of `tree`, with `values` as its leaves."""
    values = iter(values)  # which all parts take from
    if is_leaf(tree) or not isinstance(tree, (dict, list, tuple)):
        return next(values)
    if isinstance(tree, dict):
        parts = {key: rebuilt(part, values, is_leaf) for key, part in tree.items()}
        return parts if type(tree) is dict else type(tree)(parts)
    items = [rebuilt(part, values, is_leaf) for part in tree]
    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
