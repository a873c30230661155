"""Every public name is documented in numpydoc's form, checked by numpydoc's own validation."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest

validate = pytest.importorskip("numpydoc.validate")

MODULES = [
    "minigrad", "minigrad.optim", "minigrad.io", "minigrad.debug", "minigrad.parallel", "minigrad.trees",
    "nn", "nn.functional", "nn.text", "nn.init", "nn.plots", "nn.utils",
]  # fmt: skip
ERRORS = {"GL08", "SS01", "PR01", "PR02", "PR04", "PR07", "RT01", "RT03"}
"""No docstring, no summary; a parameter that is missing, unknown, without a type or not described;
the same of Returns."""


def public_names() -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each public function, class, method and property, once."""
    seen = set()
    for module_name in MODULES:
        module = pydoc.locate(module_name)
        for name in getattr(module, "__all__", dir(module)):
            value = getattr(module, name)
            is_ours = str(getattr(value, "__module__", "")).startswith(("minigrad", "nn"))
            if name[0] != "_" and callable(value) and is_ours and id(value) not in seen:
                seen.add(id(value))
                yield f"{module_name}.{name}", value
                for member, raw in vars(value).items() if inspect.isclass(value) else ():
                    kinds = (FunctionType, classmethod, staticmethod, property)
                    if member[0] != "_" and isinstance(raw, kinds):
                        yield f"{module_name}.{name}.{member}", raw


def is_described(doc: Any, parameter: str) -> bool:
    """A type can be description enough: an array with its shape, or `optimizer : Optimizer`."""
    kind = doc.doc_all_parameters.get(parameter, [""])[0]
    types = rf"array|Tensor|shape|\b{parameter.strip('*').rstrip('s')}\b"
    is_named = re.search(rf"\b{re.escape(parameter)}\b", doc.summary)
    return bool(re.search(types, kind, re.IGNORECASE) or is_named)


def faults(path: str, value: Any) -> list[str]:
    """Return what numpydoc finds wrong in the docstring of `value`, which `path` names."""
    if isinstance(value, property) or getattr(value, "__name__", "") == "<lambda>":
        return [] if value.__doc__ else [f"{path}: no docstring"]
    doc = validate.Validator(validate.get_doc_object(pydoc.locate(path)))
    return [
        f"{path}: {code} {text}"
        for code, text in validate.validate(path)["errors"]
        if code in ERRORS and not (code == "PR07" and is_described(doc, text.split('"')[1]))
    ]


def test_public_names_are_documented() -> None:
    names = list(public_names())
    assert len(names) > 500
    assert [fault for path, value in names for fault in faults(path, value)] == []
