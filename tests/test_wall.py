"""The wall around the book: what lies directly in minigrad/, minigrad/ops/ and nn/ imports only itself."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn

ROOT = Path(__file__).parents[1]
GATHERING = {"__init__.py", "__main__.py"}
"""Files that gather book and rings."""

BOOK = sorted(
    path
    for directory in ("minigrad", "minigrad/ops", "nn")
    for path in (ROOT / directory).glob("*.py")
    if path.name not in GATHERING
)
BOOK_MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in BOOK}
ALLOWED = sys.stdlib_module_names | {"numpy"}


def imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, also inside functions and by name."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                inner = ROOT / source.replace(".", "/") / alias.name
                is_module = inner.with_suffix(".py").exists() or inner.is_dir()
                yield f"{source}.{alias.name}" if is_module else source
        elif isinstance(node, ast.Call) and "import" in ast.unparse(node.func):
            yield from (a.value for a in node.args if isinstance(a, ast.Constant))


def is_of_the_book(module: str) -> bool:
    path = ROOT / f"{module.replace('.', '/')}.py"
    return module.partition(".")[0] in ALLOWED or path in BOOK


def test_book_imports_numpy_the_standard_library_and_itself() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), module)
        for path in BOOK
        for module in imports(path)
        if not is_of_the_book(module)
    }
    assert found == set()


def test_page_for_readers_lists_each_file_of_the_book_once() -> None:
    text = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
    text = text.split("## All files")[1].split("## Programs")[0]
    files = re.findall(r"\[`([\w/]+\.py)`\]\(\.\./\1\)", text)
    assert sorted(files) == sorted(path.relative_to(ROOT).as_posix() for path in BOOK)


def test_names_of_rings_are_not_in_the_book_of_minigrad() -> None:
    """Its files can be read without the packages around them, except for examples of extension points."""
    rings = ("minigrad.torch", "minigrad.check", "minigrad.io", "minigrad.optim", "nn.")
    for path in BOOK:
        if path.parent != ROOT / "nn":
            text = path.read_text(encoding="utf-8")
            assert not [ring for ring in rings if ring in text], path


def test_names_of_rings_are_not_in_the_code_of_the_book_of_nn() -> None:
    """Docstrings may say what a package around the book adds; the code has none of its classes."""
    rings = [path.name for path in ROOT.glob("nn/*/") if any(path.glob("*.py"))]
    rings.remove("init")  # the public name of nn/initial.py
    files = [path for ring in rings for path in (ROOT / "nn" / ring).glob("*.py")]
    classes = {name for path in files for name in public_classes(path)}
    for path in BOOK:
        if path.parent == ROOT / "nn":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            texts = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found = re.search(rf"\bnn[./]({'|'.join(rings)})\b", node.value)
                    assert id(node) in texts or found is None, (path, node.value)
                elif isinstance(node, (ast.Name, ast.Attribute)):
                    assert getattr(node, "attr", getattr(node, "id", "")) not in classes, path


ALONE = """
import json, sys

sys.path.insert(0, f"{sys.argv[1]}/examples/book")
import alone
import minigrad as mg
import nn
import numpy as np
"""
"""Start of a program in which only the book can be imported."""

COMPUTED = """
def derivatives():
    cubic = lambda t: (np.tanh(t * t) * t).sum() / np.exp(t).sum()
    x = np.array([0.3, -0.7])
    first = lambda t: (mg.grad(cubic)(t) * np.array([1.0, 2.0])).sum()
    second = lambda t: (mg.grad(first)(t) * np.array([-1.0, 0.5])).sum()
    return [mg.grad(f)(x).data.tolist() for f in (cubic, first, second)]

def losses():
    rng = np.random.default_rng(0)
    x, target = rng.standard_normal((8, 5)), rng.integers(0, 3, 8)
    sizes = [(6, 5), (6,), (6,), (6,), (3, 6)]
    weights = [mg.Tensor(rng.standard_normal(size) / 2, requires_grad=True) for size in sizes]
    optimizer, values = mg.optim.Adam(weights, lr=0.01, clip_norm=1.0), []
    for _ in range(20):
        w, b, scale, shift, out = weights
        hidden = mg.layer_norm(mg.relu(mg.linear(x, w, b)), weight=scale, bias=shift)
        loss = mg.cross_entropy(mg.linear(hidden, out), target, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values
"""


def test_engine_alone_computes_as_the_library() -> None:
    """Compare derivatives to the third order, and Adam on a small network."""
    program = f"{ALONE}{COMPUTED}print(json.dumps([derivatives(), losses()]))"
    command = [sys.executable, "-W", "error", "-c", program, str(ROOT)]
    derivatives, losses = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    library: dict[str, Any] = {"mg": mg, "np": np}
    exec(COMPUTED, library)
    for values, expected in zip(derivatives, library["derivatives"](), strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-10)
    np.testing.assert_allclose(losses, library["losses"](), atol=1e-5)
    assert losses[-1] < losses[0]


TRAINED = """
def trained(model, batch, prompt, source=None):
    optimizer = mg.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    loop = nn.TrainingLoop(model, optimizer, lambda epoch: [batch], max_epochs=20, label_smoothing=0.1)
    return loop.fit(), nn.decode(model, prompt, source, max_len=7)

def both():
    rng = np.random.default_rng(0)
    sizes = dict(d_model=16, num_heads=2, d_ff=32, dropout=0.0)
    source, target = rng.integers(3, 20, (8, 5)), rng.integers(3, 20, (8, 6))
    source[0, 3:] = 0
    config = nn.TransformerConfig(20, 20, num_encoder_layers=2, num_decoder_layers=2, **sizes)
    results = [trained(nn.Transformer(config, rng), (source, target), [[1]], source[:1])]
    config = nn.LanguageModelConfig(20, num_layers=2, activation="relu", pad_id=0, **sizes)
    return [*results, trained(nn.LanguageModel(config, rng), (source,), [[4, 5]])]
"""


def test_models_alone_learn_and_decode_as_in_the_library() -> None:
    """Train the paper's Transformer and a language model for 20 steps, and decode greedily."""
    program = f"{ALONE}{TRAINED}print(json.dumps(both()))"
    command = [sys.executable, "-W", "error", "-c", program, str(ROOT)]
    alone = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    library: dict[str, Any] = {"mg": mg, "nn": nn, "np": np}
    exec(TRAINED, library)
    for (losses, tokens), (expected, their_tokens) in zip(alone, library["both"](), strict=True):
        np.testing.assert_allclose(losses, expected, atol=1e-5)
        assert losses[-1] < losses[0] and tokens == their_tokens


EXAMPLE = """
import json, pathlib, runpy, sys
program = sys.argv.pop()
sys.path.insert(0, str(pathlib.Path(program).parents[2] / "examples/book"))
import alone
runpy.run_path(program)
print(json.dumps([name for name in sys.modules if name.startswith(("minigrad.", "nn."))]))
"""


@pytest.mark.slow
def test_example_of_the_book_learns_the_toy_corpus_without_the_rings() -> None:
    example = ROOT / "examples/book/translator.py"
    command = [sys.executable, "-W", "error", "-c", EXAMPLE, str(example)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert float(re.search(r"exact match ([\d.]+)%", out)[1]) >= 95
    imported = json.loads(out.splitlines()[-1])
    others = {name for name in imported if not is_of_the_book(name)}
    assert others == {"minigrad.ops", "minigrad.optim", "nn.init"}  # which `alone` makes


def public_classes(path: Path) -> set[str]:
    """Return the names of the classes that a file defines, without those that begin with `_`."""
    return {*re.findall(r"^class ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE)}


def test_no_public_class_of_a_ring_has_the_name_of_a_class_of_the_book() -> None:
    """Except for PyTorch's classes, which have a namespace of their own."""
    book = {name for path in BOOK for name in public_classes(path)}
    for package in ("minigrad", "nn"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path not in BOOK and "minigrad/torch/nn" not in path.as_posix():
                assert not public_classes(path) & book, path


def test_public_names_of_the_book_are_those_that_nn_exports() -> None:
    for path in BOOK:
        if path.parent == ROOT / "nn":
            module = importlib.import_module(f"nn.{path.stem}")
            for name in module.__all__:
                assert getattr(nn, name) is getattr(module, name), name


IMPORTED = """
import importlib
for name in ("minigrad.fast", "minigrad.numpy.vmap", "nn.options.rotary"):
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(error)
"""


def test_rings_cannot_be_imported_behind_the_wall() -> None:
    command = [sys.executable, "-c", f"{ALONE}{IMPORTED}", str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.stdout.count("is not in the book") == 3, run.stderr


DESCRIBED = """
import functools, importlib, types
from pathlib import Path

UNSEEN = ("__doc__", "__annotations__")  # Python 3.11 makes empty annotations when they are read

def label(key):
    return " ".join([getattr(key, "__module__", ""), getattr(key, "__qualname__", str(key))]).strip()

def described(value, of_class=None):
    if isinstance(value, types.FunctionType):
        code, inner = value.__code__, getattr(value, "__wrapped__", None)
        place = [code.co_filename, code.co_firstlineno, value.__qualname__]
        return [place, inner is not None and described(inner)]
    if isinstance(value, property):
        return [described(f) for f in (value.fget, value.fset) if f]
    if isinstance(value, (classmethod, staticmethod, functools.partial)):
        return described(getattr(value, "__func__", None) or value.func)
    if isinstance(value, dict):
        return {label(key): described(item) for key, item in value.items()}
    if hasattr(value, "definition") and not isinstance(value, type):
        return described(value.definition)
    if of_class and isinstance(value, type) and value.__module__ == of_class:
        return {name: described(item) for name, item in vars(value).items() if name not in UNSEEN}
    return getattr(value, "__qualname__", type(value).__qualname__)

def book(files):
    names = {file: file.removesuffix(".py").replace("/", ".") for file in files}
    return {
        file: {
            key: described(value, name)
            for key, value in vars(importlib.import_module(name)).items()
            if not (key.startswith("__") or isinstance(value, types.ModuleType))
        }
        for file, name in names.items()
    }
"""
"""Program that describes the names of files: functions and methods by the lines that define them."""

ADDED = {
    "Tensor", "Optimizer", "Module", "Model",  # methods
    "ANSWERS", "DISPATCH", "ENTERING", "LOG", "FORMS", "FUNCTIONS", "FUSIBLE", "OPS", "ACTIVATIONS",  # entries
}  # fmt: skip
"""Classes and tables of the book to which other packages add."""

HOOKS = {("Optimizer", "stepper_type"), ("LOG", "restored")}
"""Attributes and entries with a default, which other packages set."""


def test_rings_replace_no_function_class_or_method_of_the_book() -> None:
    """Compare the names of each file, and the attributes of each class, with those of the book alone."""
    files = [path.relative_to(ROOT).as_posix() for path in BOOK]
    program = f"{ALONE}{DESCRIBED}print(json.dumps(book({files})))"
    command = [sys.executable, "-W", "error", "-c", program, str(ROOT)]
    alone = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    library: dict[str, Any] = {}
    exec(DESCRIBED, library)
    whole = json.loads(json.dumps(library["book"](files)))
    for file, names in alone.items():
        assert whole[file].keys() == names.keys(), file
        for name, value in names.items():
            found = whole[file][name]
            if isinstance(value, dict) and name.islower():  # what has run so far
                continue
            if not isinstance(value, dict):
                assert found == value, (file, name)
                continue
            for key in ("__slotnames__", "__annotations__"):  # that copyreg and inspect add
                found.pop(key, None), value.pop(key, None)
            assert name in ADDED or found.keys() == value.keys(), (file, name)
            for key in value.keys() - {key for n, key in HOOKS if n == name}:
                assert found[key] == value[key], (file, name, key)


def test_public_names_of_the_book_are_one_object() -> None:
    for path in BOOK:
        if path.parent != ROOT / "nn":
            parts = path.relative_to(ROOT).with_suffix("").parts
            module = importlib.import_module(".".join(parts))
            for name in getattr(module, "__all__", ()):
                value = getattr(module, name)
                assert getattr(mg, name, value) is value, name  # `mg.optim` has the optimizers
                for method in getattr(getattr(value, "op", value), "methods", ()):
                    if not method.startswith("__r"):
                        assert getattr(mg.Tensor, method) is value, method


DOORS = {
    "loss._linear_cross_entropy.kernel =", "logs[key] =", "logs.pop",
    "ACTIVATIONS |=", "ADAPTERS.append", "ANSWERS.append", "ENTERING.append", "FORMS.append",
    "LOG.update",
    "Optimizer.stepper_type =",
    *(f"extension.{name} =" for name in ("answer", "complex", "conversion", "size", "update", "write")),
}  # fmt: skip
"""Assignments to tables and hooks of the book; `add_methods`, `answer` and `fuse` are functions."""

CHANGING = {"append", "clear", "extend", "insert", "pop", "remove", "setdefault", "update"}


def assignments(path: Path) -> Iterator[str]:
    """Yield the assignments of a file to what it imports from the book."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    package = path.relative_to(ROOT).parent.parts
    names = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                if {source, f"{source}.{alias.name}"} & BOOK_MODULES:
                    names.add(alias.asname or alias.name)
        elif isinstance(node, ast.Import):
            names |= {a.asname or a.name for a in node.names if a.name in ("minigrad", "nn")}

    def is_of_book(node: ast.expr) -> bool:
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        return isinstance(node, ast.Name) and node.id in names

    for node in nodes:
        if isinstance(node, (ast.Assign, ast.Delete)):
            whole = [t for target in node.targets for t in getattr(target, "elts", [target])]
            yield from (
                f"{ast.unparse(t)} ="
                for t in whole
                if not isinstance(t, ast.Name) and is_of_book(t)
            )
        elif isinstance(node, ast.AugAssign) and is_of_book(node.target):
            yield f"{ast.unparse(node.target)} |="
        elif isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in CHANGING:
                yield from [ast.unparse(function)] * is_of_book(function.value)
            elif getattr(function, "id", "") in ("setattr", "delattr") and is_of_book(node.args[0]):
                yield ast.unparse(node)


def test_rings_assign_to_the_book_at_extension_points_alone() -> None:
    found = {
        (assignment if assignment in DOORS else f"{path.relative_to(ROOT)}: {assignment}")
        for package in ("minigrad", "nn")
        for path in (ROOT / package).rglob("*.py")
        if path not in BOOK
        for assignment in assignments(path)
    }
    assert found == DOORS
