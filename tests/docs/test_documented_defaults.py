"""Defaults that docstrings of public functions and classes give are those of their signatures."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
from collections.abc import Iterator
from operator import attrgetter
from types import FunctionType
from typing import Any

import pytest

import minigrad as mg
import nn
from nn.decoding.translator import Translator
from nn.published.classifier import Classifier, Reranker
from nn.published.sentence_encoder import SentenceEncoder
from nn.text import BPETokenizer

MODULES = [
    "minigrad", "minigrad.optim", "minigrad.optim.lr_scheduler", "minigrad.io", "minigrad.check",
    "minigrad.fast.parallel", "minigrad.torch", "minigrad.torch.nn", "nn", "nn.functional", "nn.text", "nn.init",
    "nn.plots", "nn.utils",
]  # fmt: skip
VALUE = r"(-?[\w.+-]*\w|'[^']*'|\"[^\"]*\")"


def public() -> Iterator[tuple[str, Any]]:
    """Yield the public functions, classes and methods by name."""
    for path in MODULES:
        module = pydoc.locate(path)
        for name in getattr(module, "__all__", dir(module)):
            value = getattr(module, name)
            if callable(value) and str(value.__module__).startswith(("minigrad", "nn")):
                yield f"{path}.{name}", value
                for member, raw in vars(value).items() if inspect.isclass(value) else ():
                    if isinstance(raw, FunctionType):
                        yield f"{path}.{name}.{member}", raw


def documented(doc: str) -> Iterator[tuple[str, Any]]:
    """Yield parameters with numbers, strings and booleans that a docstring gives as defaults."""
    names: list[str] = []
    for line in inspect.cleandoc(doc).splitlines():
        if entry := re.match(r"(\w+(?:, \w+)*) : (.*)", line):
            names = entry[1].split(", ")
            found = re.findall(rf"\bdefault {VALUE}[.,;]?$", entry[2])
        else:
            names = names if line.startswith(" ") else []
            found = re.findall(rf"(?:^ *|[;,] ){VALUE}(?: and {VALUE})? by default", line)
            found = [part for pair in found for part in pair if part]
        values = found if len(found) == len(names) else found[:1] * len(names)
        for name, text in zip(names, values):
            try:
                yield name, ast.literal_eval(text)
            except (SyntaxError, ValueError):  # words
                continue


def test_documented_defaults_are_those_of_the_signature() -> None:
    compared, wrong = set(), []
    for path, value in public():
        try:
            parameters = inspect.signature(value).parameters
        except (TypeError, ValueError):  # a class of the standard library, or a function in C
            continue
        for name, default in documented(value.__doc__ or ""):
            actual = parameters[name].default if name in parameters else None
            if type(actual) in (bool, int, float) and type(default) in (bool, int, float):
                compared.add((path, name))
                if actual != default:
                    wrong.append(f"{path}: {name} must be {default} by default, got {actual}")
    assert wrong == [] and len(compared) > 150


REFERENCE = r"^ *(?:Other parameters|Parameters)[\w ]*: as `(?!numpy)([\w.]+)`(?: and (?:the )?`(?!numpy)([\w.]+)`)?\.$"
OF_THEIR_OWN = {
    ("minigrad.torch.Tensor.argsort", "stable"),
    ("nn.ExtendedAttention.project", "positions"),
}
"""Parameters whose default differs from the same parameter of the function that describes it."""


def described(path: str, doc: str) -> Iterator[Any]:
    """Yield what a docstring refers to for parameters, and what that refers to."""
    scopes = path.split(".")[:-1]
    reference = re.search(REFERENCE, doc, re.MULTILINE)
    for name in filter(None, reference.groups() if reference else ()):
        for n in range(len(scopes), 0, -1):
            scope = ".".join(scopes[:n])
            try:
                value = attrgetter(name)(pydoc.locate(scope))
            except AttributeError:
                continue
            yield value
            yield from described(f"{scope}.{name}", value.__doc__ or "")
            break


def test_defaults_that_another_docstring_describes_are_those_of_its_signature() -> None:
    """Except dtypes, which `zeros_like` has of its argument, and those of configurations."""
    compared, wrong = set(), []
    for path, value in public():
        doc = value.__doc__ or ""
        others = [inspect.signature(x).parameters for x in described(path, doc) if callable(x)]
        for name, p in inspect.signature(value).parameters.items() if others else ():
            is_free = name == "dtype" or path.endswith("Config") or (path, name) in OF_THEIR_OWN
            if (
                p.default is p.empty
                or is_free
                or re.search(rf"^[ \w,*]*\b{name}\b[ \w,*]* : ", doc, re.MULTILINE)
            ):
                continue
            defaults = [q[name].default for q in others if name in q]
            defaults = [repr(default) for default in defaults if default is not p.empty]
            compared.add((path, name))
            if defaults and repr(p.default) not in defaults:
                wrong.append(f"{path}: {name} must be {defaults[0]} by default, got {p.default!r}")
    assert wrong == [] and len(compared) > 150


@pytest.mark.parametrize(
    "function, defaults",
    [
        (mg.gradcheck, {"eps": 1e-4, "atol": 1e-7, "rtol": 1e-6, "directions": 2}),
        (nn.InputEmbedding, {"scale": 1.0}),
        (nn.utils.rnn.pad_sequence, {"batch_first": False, "padding_value": 0.0}),
        (Translator.translate, {"batch_size": 64}),
        (Classifier.__call__, {"batch_size": 32}),
        (Reranker.__call__, {"batch_size": 32}),
        (SentenceEncoder.encode, {"batch_size": 32}),
        (BPETokenizer.train, {"vocab_size": 8000, "whole_words": False}),
    ],
)
def test_defaults_that_no_docstring_repeats(function: Any, defaults: dict[str, Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert {name: parameters[name].default for name in defaults} == defaults
