"""Every public name is documented in numpydoc's form, checked by numpydoc's own validation."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from support.environment import needs

validate = needs("numpydoc.validate")

MODULES = [
    "minigrad", "minigrad.optim", "minigrad.io", "minigrad.check", "minigrad.fast.parallel", "minigrad.nested",
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


REFERENCE = r"^ *(?:Other parameters|Parameters)( and (?:the )?result)?: as `([\w.]+)`(?: and `([\w.]+)`)?\.$"


def described_by(path: str, name: str) -> set[str]:
    """Return the parameters of the function `name`, and "Returns" if it describes its result.

    If it is a function of NumPy, operands of the function at `path` may have other names.
    """
    if name.startswith("numpy."):
        parameters = inspect.signature(pydoc.locate(path)).parameters.values()
        operands = {str(p).partition(":")[0] for p in parameters if p.default is p.empty}
        other = validate.Validator(validate.get_doc_object(pydoc.locate(name)))
        return {*other.doc_all_parameters, *operands, "Returns"}
    parts = path.split(".")[:-1]
    for scope in [*(".".join(parts[:n]) for n in range(len(parts), 0, -1)), "minigrad"]:
        if (value := pydoc.locate(f"{scope}.{name}")) is not None:
            other = validate.Validator(validate.get_doc_object(value))
            names = {*other.doc_all_parameters, *referred(f"{scope}.{name}", other)}
            return names | ({"Returns"} if other.doc["Returns"] else set())
    raise AssertionError(f"{path}: `{name}` must exist")


def referred(path: str, doc: Any) -> set[str]:
    """Return the parameters of `X` and `Y`, if a docstring says "Parameters: as `X` and `Y`.".

    The set contains "Returns" if it says "Parameters and result: as ...", and they describe it.
    """
    reference = re.search(REFERENCE, doc.raw_doc, re.MULTILINE)
    if reference is None:
        return set()
    names = {n for other in reference.groups()[1:] if other for n in described_by(path, other)}
    return names if reference[1] else names - {"Returns"}


def overrides(path: str) -> bool:
    """Return whether a method has the sections of the method that it overrides."""
    owner, _, name = path.rpartition(".")
    bases = getattr(pydoc.locate(owner), "__mro__", ())[1:]
    docs = [vars(base)[name].__doc__ or "" for base in bases if name in vars(base)]
    return any("Returns\n" in doc or re.search("Parameters[\n:]", doc) for doc in docs)


def is_left_out(path: str, doc: Any, code: str, text: str) -> bool:
    """Return whether sections are left out as "Refer, do not repeat" says.

    Parameters and the result can be those of another docstring. A summary that begins with "Return"
    or "Compute" describes the result. A method that overrides another one needs a summary only.
    """
    if code == "RT01":
        is_described = doc.summary.startswith(("Return", "Yield", "Compute"))
        return is_described or "Returns" in referred(path, doc) or overrides(path)
    names = set(re.findall(r"'([^']+)'", text))
    return code == "PR01" and (names <= referred(path, doc) or overrides(path))


def faults(path: str, value: Any) -> list[str]:
    """Return what numpydoc finds wrong in the docstring of `value`, which `path` names."""
    if isinstance(value, property) or getattr(value, "__name__", "") == "<lambda>":
        return [] if value.__doc__ else [f"{path}: no docstring"]
    found = [error for error in validate.validate(path)["errors"] if error[0] in ERRORS]
    doc = validate.Validator(validate.get_doc_object(value)) if found else None
    return [
        f"{path}: {code} {text}"
        for code, text in found
        if not (code == "PR07" and is_described(doc, text.split('"')[1]))
        and not is_left_out(path, doc, code, text)
    ]


def test_public_names_are_documented() -> None:
    names = list(public_names())
    assert len(names) > 500
    assert [fault for path, value in names for fault in faults(path, value)] == []
