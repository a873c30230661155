"""Every public name is documented in numpydoc's form, checked by numpydoc's own validation."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

validate = pytest.importorskip("numpydoc.validate")

MODULES = [
    "minigrad",
    "minigrad.optim",
    "minigrad.io",
    "minigrad.debug",
    "minigrad.parallel",
    "minigrad.trees",
    "nn",
    "nn.functional",
    "nn.text",
    "nn.init",
    "nn.plots",
    "nn.utils",
]
ERRORS = {"GL08", "SS01", "PR01", "PR02", "PR04", "PR07", "RT01", "RT03"}
"""No docstring, no summary; a parameter that is missing, unknown, without a type or not described;
the same of Returns."""


def module_named(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:  # an attribute of nn
        return getattr(importlib.import_module(name.partition(".")[0]), name.partition(".")[2])


def public_names() -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each public function, class, method and property, once."""
    seen = set()
    for module_name in MODULES:
        module = module_named(module_name)
        for name in getattr(module, "__all__", None) or dir(module):
            value = getattr(module, name)
            origin = getattr(value, "__module__", None) or ""
            is_ours = origin.partition(".")[0] in ("minigrad", "nn")
            if name[0] == "_" or not callable(value) or not is_ours or id(value) in seen:
                continue
            seen.add(id(value))
            yield f"{module_name}.{name}", value
            for member, raw in vars(value).items() if inspect.isclass(value) else ():
                if member[0] != "_" and (
                    inspect.isfunction(raw)
                    or isinstance(raw, (classmethod, staticmethod, property))
                ):
                    is_property = isinstance(raw, property)
                    yield (
                        f"{module_name}.{name}.{member}",
                        raw if is_property else getattr(value, member),
                    )


def is_described(doc: Any, parameter: str) -> bool:
    """A type can be description enough: an array with its shape, or `optimizer : Optimizer`."""
    if parameter in doc.doc_all_parameters:
        kind = doc.doc_all_parameters[parameter][0]
        own_name = parameter.strip("*").rstrip("s")
        if re.search(rf"array|Tensor|shape|\b{own_name}\b", kind, re.IGNORECASE):
            return True
    return bool(re.search(rf"\b{re.escape(parameter)}\b", doc.summary))


def faults(path: str, value: Any) -> list[str]:
    if isinstance(value, property) or value.__name__ == "<lambda>":
        return [] if value.__doc__ else [f"{path}: no docstring"]
    doc = validate.Validator(validate.get_doc_object(value))
    if not doc.raw_doc:
        return [f"{path}: no docstring"]
    result = []
    for code, text in validate.validate(path)["errors"]:
        is_described_by_type = code == "PR07" and is_described(doc, text.split('"')[1])
        if code in ERRORS and not is_described_by_type:
            result.append(f"{path}: {code} {text}")
    return result


def test_public_names_are_documented() -> None:
    names = list(public_names())
    assert len(names) > 500
    assert [fault for path, value in names for fault in faults(path, value)] == []
