"""Sizes that select a path of a kernel, such as a block, and their replacement by small ones."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import strategies as st

import minigrad.fast
from minigrad.fast import runtime
from minigrad.fast.blocks import row_blocks
from nn.inference import fast, int8, products

KERNELS = {
    m.name: importlib.import_module(f"minigrad.fast.{m.name}")
    for m in pkgutil.iter_modules(minigrad.fast.__path__)
    if not m.ispkg and m.name not in ("launcher", "runtime")
}
"""Modules of the kernels by name."""

THRESHOLDS: dict[str, tuple[Any, ...]] = {
    "BLOCK": (1, 2, 3, 5, 8, 20),
    "_ONE_BLOCK": (1, 7, 30),
    "_ONE_HOT_ROWS": (0, 2),
    "_FREQUENT": (0, 1, 2),
    "_FAR": (0.0,),
    "needs_shift": (lambda *range_and_dtype: True,),
}
"""Small values of each threshold of the kernels, by the name of a constant or function."""

NO_THRESHOLDS = {"_FLAT", "SLOPE", "CUBIC"}
"""Numbers in the kernels that select no path."""


def lowered() -> st.SearchStrategy[dict[str, Any]]:
    """Draw new values of some thresholds of the kernels, often the smallest values of all."""
    values = {name: st.sampled_from(small) for name, small in THRESHOLDS.items()}
    smallest = {name: small[0] for name, small in THRESHOLDS.items()}
    return (
        st.fixed_dictionaries({}, optional=values)
        | st.fixed_dictionaries(values)
        | st.just(smallest)
        | st.just({"BLOCK": 1})
    )


@contextmanager
def replaced(thresholds: Mapping[str, Any]) -> Iterator[None]:
    """Set the thresholds of all kernels within a `with` block."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in thresholds.items():
            modules = [module for module in KERNELS.values() if hasattr(module, name)]
            assert modules, name
            for module in modules:
                patch.setattr(module, name, value)
        if "BLOCK" in thresholds:
            patch.setattr(row_blocks, "__defaults__", (thresholds["BLOCK"],))
        yield


PRODUCTS: dict[Any, dict[str, tuple[Any, ...]]] = {
    fast: {"LARGE_BATCH": (1, 60)},
    products: {
        "LARGE_WEIGHT": (1, 20),
        "MAX_ROWS": (3, 64),
        "MAX_SINGLE_ROWS": (2, 8),
        "SAMPLE": (1, 40),
        "ROUNDS": (1, 2),
        "SHARED": (1, 60, 10**6),
        "MIN_ROWS": (1, 4),
        "MAX_SMALL_PRODUCT": (1, 100, 4000),
        "MAX_PANEL": (1, 10, 1000),
        "CACHED": (1, 6, 1000),
    },
    int8: {
        "BLOCK": (1, 7, 50),
        "BUFFER": (1, 100, 4000),
        "QUANTIZED_BLOCK": (1, 30),
    },
}
"""Small values of each threshold of the products for inference, by module and name."""

PROCESSORS: dict[str, tuple[Any, ...]] = {
    "has_blas": (True, True, False),
    "has_small_kernels": (True, False),
    "get_num_threads": (1, 2, 3),
    "PINNED": (None, *products.WAYS),
}
"""What a processor has, and the way to multiply that is selected, by names in the modules."""


def product_limits() -> st.SearchStrategy[dict[str, Any]]:
    """Draw thresholds of the products for inference, and a processor."""
    names = {name: values for small in PRODUCTS.values() for name, values in small.items()}
    choices = {name: st.sampled_from(values) for name, values in (names | PROCESSORS).items()}
    return st.fixed_dictionaries(choices)


@contextmanager
def replaced_products(limits: Mapping[str, Any]) -> Iterator[None]:
    """Set the thresholds of the products for inference within a `with` block."""
    with runtime.threads(1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_FASTEST", {})
        for name, value in limits.items():
            is_function = name in PROCESSORS and name != "PINNED"
            for module in (*PRODUCTS, runtime):
                if hasattr(module, name):
                    new = (lambda value=value: value) if is_function else value
                    patch.setattr(module, name, new)
        yield


def numbers(module: Any) -> set[str]:
    """Return the names of the numeric constants of a module."""
    return {
        name
        for name, value in vars(module).items()
        if name.isupper() and type(value) in (int, float)
    }
