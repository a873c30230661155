"""Layers and losses on the inputs of PyTorch's module database, with the same arguments.

Every sample gives PyTorch's values and gradients, or raises an error, and then its reason is here.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
database = pytest.importorskip("torch.testing._internal.common_modules")

REFUSED = [
    ("BatchNorm1d", r"must be \(n, 5\) or \(n, L, 5\).*write x.swapaxes", "columns stand on the last axis"),
    ("BatchNorm1d", "momentum must be a number", "there is no cumulative average"),
    ("BatchNorm1d", "takes from 2 to 5 positional", "running statistics are always kept"),
    ("BatchNorm1d", "unexpected keyword argument 'bias'", "weight and bias come together"),
    ("Linear", "unexpected keyword argument 'input'", "the argument of forward is x"),
    ("NLLLoss|CrossEntropyLoss", "the classes stand on the last axis", "as all features here"),
    ("CrossEntropyLoss", "must sum to 1 over the last axis", "the classes stand on the last axis"),
    ("CrossEntropyLoss", r"expected [24] class weights, got shape \(3,\)", "the classes stand on the last axis"),
    ("TransformerEncoderLayer|TransformerDecoderLayer|Transformer", "positional argument|unexpected keyword argument",
     "other names, batches first: tests/oracle/test_layers.py compares them"),
    ("Softplus", "takes from 1 to 2 positional", "there is no threshold: log(1 + eˣ) never overflows"),
    ("Embedding", "padding_idx", "counts from 0"),
]  # fmt: skip
"""Layer, error message, and the reason why samples are refused."""
DIFFERENT = {
    ("CrossEntropyLoss", "2d_ignore_index_mean"): "no row counts: 0 here, NaN there",
    (
        "CrossEntropyLoss",
        "2d_ignore_index_label_smoothing_mean",
    ): "no row counts: 0 here, NaN there",
}
"""Samples with a result of another meaning, which is documented."""
LAYERS = {
    info.module_cls.__name__: info
    for info in database.module_db
    if hasattr(nn, info.module_cls.__name__)
}


def call_of(given: Any, memo: dict[int, Any] | None) -> tuple[list[Any], dict[str, Any]]:
    """Arguments and options; with `memo`, tensors as ours, or as arrays if they have no gradient."""

    def convert(value: Any) -> Any:
        if memo is None or not isinstance(value, torch.Tensor):
            return value
        if id(value) not in memo:
            array = value.detach().numpy().copy()
            memo[id(value)] = Tensor(array, requires_grad=True) if value.requires_grad else array
        return memo[id(value)]

    return [*map(convert, given.args)], {k: convert(v) for k, v in given.kwargs.items()}


def samples(name: str) -> list[Any]:
    info = LAYERS[name]
    made = []
    for training in (True, False):
        torch.manual_seed(0)
        inputs = info.module_inputs_func(
            info, device="cpu", dtype=torch.double, requires_grad=True, training=training
        )
        made += [(training, sample) for sample in inputs]
    return made


def compare(name: str, training: bool, sample: Any) -> None:
    """An AssertionError for another value or gradient than PyTorch's."""
    args, options = call_of(sample.constructor_input, None)
    theirs = getattr(torch.nn, name)(*args, **options).double().train(training)
    args, options = call_of(sample.constructor_input, {})
    ours = getattr(nn, name)(*args, **options).train(training)
    ours.astype("float64")
    parameters = dict(theirs.named_parameters())
    for key, p in ours.named_parameters():
        p.data[...] = parameters[key].detach().numpy()
    their_args, their_options = call_of(sample.forward_input, None)
    our_args, our_options = call_of(sample.forward_input, {})
    y = ours(*our_args, **our_options)
    expected = theirs(*their_args, **their_options)
    assert y.shape == tuple(expected.shape), f"{y.shape} for {tuple(expected.shape)}"
    np.testing.assert_allclose(y.data, expected.detach().numpy(), rtol=1e-7, atol=1e-8)
    pairs = [(p, parameters[key]) for key, p in ours.named_parameters()]
    given = zip([*our_args, *our_options.values()], [*their_args, *their_options.values()])
    pairs += [(a, b) for a, b in given if isinstance(a, Tensor) and a.requires_grad]
    if not pairs or not expected.requires_grad:
        return
    g = np.random.default_rng(0).standard_normal(y.shape)
    found = mg.gradients(y, [a for a, _ in pairs], g, allow_unused=True)
    wanted = torch.autograd.grad(
        expected, [b for _, b in pairs], torch.tensor(g), allow_unused=True
    )
    for a, b in zip(found, wanted):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a.data, b.numpy(), rtol=1e-6, atol=1e-8)


def reason_of(name: str, desc: str, error: Exception) -> str | None:
    """The listed reason for an error, or None."""
    if isinstance(error, AssertionError):
        return DIFFERENT.get((name, desc))
    found = [
        r
        for layers, text, r in REFUSED
        if re.fullmatch(layers, name) and re.search(text, str(error))
    ]
    return found[0] if found else None


def test_layers_on_pytorchs_module_database_agree_or_refuse(tell: Callable[[str], None]) -> None:
    wrong: list[str] = []
    agreed, reasons = 0, Counter[str]()
    for name in LAYERS:
        for training, sample in samples(name):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    compare(name, training, sample)
                agreed += 1
            except Exception as error:
                reason = reason_of(name, sample.desc, error)
                if reason is None:
                    wrong.append(
                        f"{name} {sample.desc} {sample.constructor_input.kwargs}: {error!r}"
                    )
                else:
                    reasons[f"{name}: {reason}"] += 1
    tell(f"module database: {agreed} samples agree; {dict(reasons)}")
    assert not wrong, "\n".join(wrong)
    assert agreed > 250


def test_layers_that_the_database_lacks_are_compared_elsewhere() -> None:
    ours = {n for n, c in vars(nn).items() if inspect.isclass(c) and issubclass(c, nn.Module)}
    shared = {n for n in ours if hasattr(torch.nn, n)}
    containers = {"Module", "ModuleDict", "ModuleList", "Sequential"}
    assert shared - {*LAYERS} - containers == {"Dropout", "Flatten", "Identity"}
