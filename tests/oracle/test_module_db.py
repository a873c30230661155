"""Layers and losses on the inputs of PyTorch's module database, with the same arguments.

Every sample gives PyTorch's values and gradients, or raises an error listed in `REFUSED`.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from support.torch_databases import as_ours, assert_same_with_gradients, import_database, torch

import minigrad as mg
import nn

LAYERS = {info.module_cls.__name__: info for info in import_database("common_modules", "module_db")}
LAYERS = {name: info for name, info in LAYERS.items() if hasattr(nn, name)}
COMPARED_ELSEWHERE = {"TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer"}
"""Layers whose arguments have other names: tests/oracle/test_layers.py compares them."""
REFUSED = [
    ("BatchNorm1d", r"must be \(n, 5\) or \(n, L, 5\).*write x.swapaxes"),  # features are on the last axis
    ("BatchNorm1d", "momentum must be a number"),  # there is no cumulative average
    ("BatchNorm1d", "takes from 2 to 5 positional"),  # running statistics are always kept
    ("BatchNorm1d", "unexpected keyword argument 'bias'"),  # weight and bias come together
    ("Linear", "unexpected keyword argument 'input'"),  # the argument of forward is x
    ("NLLLoss|CrossEntropyLoss", "classes must be on the last axis"),  # as all features here
    ("CrossEntropyLoss", "must sum to 1 over the last axis"),  # classes are on the last axis
    ("CrossEntropyLoss", r"weight must have shape \([24],\), got \(3,\)"),  # classes are on the last axis
    ("Softplus", "takes from 1 to 2 positional"),  # there is no threshold
    ("Embedding", "padding_idx"),  # negative indices are not accepted
]  # fmt: skip
"""Layers, and the error message of a refusal."""
UNLIKE = ("2d_ignore_index_mean", "2d_ignore_index_label_smoothing_mean")
"""Samples of CrossEntropyLoss that ignore all rows: 0 here, NaN in PyTorch, as documented."""


def samples_of(name: str) -> Iterator[tuple[bool, Any]]:
    """Yield the inputs of a layer, each with the mode of training."""
    for training in (True, False):
        torch.manual_seed(0)
        options = {"device": "cpu", "dtype": torch.double, "requires_grad": True}
        for sample in LAYERS[name].module_inputs_func(LAYERS[name], training=training, **options):
            yield training, sample


def compare(name: str, training: bool, sample: Any) -> None:
    """Compare values and gradients of one sample, with the same parameters."""
    made, inputs = sample.constructor_input, sample.forward_input
    leaves: dict[Any, mg.Tensor] = {}
    theirs = getattr(torch.nn, name)(*made.args, **made.kwargs).double().train(training)
    ours = getattr(nn, name)(*as_ours(made.args, leaves), **as_ours(made.kwargs, leaves))
    ours.train(training).astype("float64")
    parameters = dict(theirs.named_parameters())
    for key, p in ours.named_parameters():
        p.data[...] = parameters[key].detach().numpy()
        leaves[parameters[key]] = p
    y = ours(*as_ours(inputs.args, leaves), **as_ours(inputs.kwargs, leaves))
    expected = theirs(*inputs.args, **inputs.kwargs)
    assert_same_with_gradients(y, expected, leaves, rtol=1e-7)


def is_refused(name: str, error: Exception) -> bool:
    """Return whether an error has one of the listed reasons."""
    if isinstance(error, AssertionError):
        return False
    rows = [message for layers, message in REFUSED if re.fullmatch(layers, name)]
    return any(re.search(message, str(error)) for message in rows)


@pytest.mark.parametrize("name", sorted(LAYERS.keys() - COMPARED_ELSEWHERE))
def test_layer_agrees_with_pytorch_on_its_samples_or_raises(name: str) -> None:
    agreed = 0
    for training, sample in samples_of(name):
        if name == "CrossEntropyLoss" and sample.desc in UNLIKE:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compare(name, training, sample)
            agreed += 1
        except Exception as error:
            arguments = sample.constructor_input, sample.forward_input
            assert is_refused(name, error), f"{name} {sample.desc} {arguments}: {error!r}"
    assert agreed


def test_database_has_all_layers_of_both_libraries_but_three() -> None:
    classes = {n for n, c in vars(nn).items() if inspect.isclass(c) and issubclass(c, nn.Module)}
    containers = {"Module", "ModuleDict", "ModuleList", "Sequential"}
    both = {name for name in classes - containers if hasattr(torch.nn, name)}
    assert both - {*LAYERS} == {"Dropout", "Flatten", "Identity"}
