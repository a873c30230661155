"""Objects and iterators do not change if the arrays, lists and dicts change that they were made from."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.edges import overwrite

import minigrad as mg
import nn
from minigrad import Tensor, optim
from minigrad.optim import lr_scheduler
from nn.text.vocabulary import SPECIALS, Vocabulary

SCALING = {"rope_type": "linear", "factor": 2.0}


def config(**options: Any) -> nn.DecoderOnlyConfig:
    return nn.DecoderOnlyConfig(11, 8, 2, 2, 8, **options)


def positions(**options: Any) -> nn.DecoderOnlyConfig:
    return config(positions=nn.PositionConfig(kind="rotary", **options))


def sgd(groups: int) -> optim.SGD:
    parameters = [Tensor(np.ones(1), requires_grad=True) for _ in range(groups)]
    return optim.SGD([{"params": [p]} for p in parameters], lr=0.5)


def rates(schedule: Any) -> list[Any]:
    found = []
    for _ in range(6):
        found.append(schedule.get_last_lr())
        schedule.step()
    return found


def loaded(state: dict[str, np.ndarray]) -> nn.Linear:
    layer = nn.Linear(2, 2)
    layer.load_state_dict(state)
    return layer


def continued(prompt: Any, **options: Any) -> tuple[int, Any]:
    """Return the first token that follows a prompt, and an iterator over the others."""
    model = nn.LanguageModel(config(max_len=8), np.random.default_rng(3)).eval()
    tokens = nn.stream(model, prompt, max_len=9, **options)
    return next(tokens), tokens


LEAVES = [Tensor(np.ones(2), requires_grad=True) for _ in range(2)]
LAYERS = [nn.Linear(2, 2), nn.Linear(2, 2)]
CASES: dict[str, tuple[Callable[[Any], Any], Any, Callable[[Any], Any]]] = {
    "tensor": (mg.tensor, np.ones(3), Tensor.tolist),
    "tensor of a list": (Tensor, [1.0, 2.0], Tensor.tolist),
    "state of a module": (loaded, nn.Linear(2, 2).state_dict(), lambda m: m(np.ones(2)).tolist()),
    "modules": (nn.ModuleList, LAYERS, len),
    "layers": (lambda a: nn.Sequential(*a), LAYERS, len),
    "parameters": (optim.SGD, LEAVES, lambda o: len(o.param_groups[0]["params"])),
    "parameters of a group": (lambda a: optim.SGD([{"params": a}]), LEAVES, lambda o: len(o.param_groups[0]["params"])),
    "betas": (lambda a: optim.Adam(LEAVES, betas=a), [0.9, 0.99], lambda o: [*o.param_groups[0]["betas"]]),
    "MultiStepLR": (lambda a: lr_scheduler.MultiStepLR(sgd(1), a), [2, 4], rates),
    "LambdaLR": (lambda a: optim.LambdaLR(sgd(2), a), [lambda epoch: epoch, lambda epoch: 2], rates),
    "OneCycleLR": (lambda a: lr_scheduler.OneCycleLR(sgd(2), a, total_steps=9, cycle_momentum=False), [0.1, 0.3], rates),
    "vocabulary": (Vocabulary, [*SPECIALS, "a", "b"], lambda v: (v.encode(["a", "b", "c"]), [*v], len(v))),
    "suppress": (lambda a: nn.Rules(suppress=a), [1, 2], repr),
    "bad_words": (lambda a: nn.Rules(bad_words=a), [[1, 2], [3]], repr),
    "eos_id": (lambda a: config(eos_id=a), [1, 2], repr),
    "eos_id of the book": (lambda a: nn.LanguageModelConfig(11, eos_id=a), [1, 2], repr),
    "window_layers": (lambda a: config(attention=nn.AttentionConfig(window=2, window_layers=a)), [0, 1], repr),
    "no_rotary_layers": (lambda a: positions(no_rotary_layers=a), [0, 1], repr),
    "rotary_scaling": (lambda a: positions(rotary_scaling=a), SCALING, repr),
    "pruned_heads": (lambda a: config(pruned_heads=a), {"layers.layers.0.self_attention": [0]}, repr),
    "RotaryPositions": (lambda a: nn.RotaryPositions(4, scaling=a), SCALING, lambda r: r.scaling),
    "prompt": (continued, np.array([3, 1, 4]), lambda c: [c[0], *c[1]]),
    "rule of a stream": (lambda a: continued([3, 1], suppress=a), np.array([5, 9]), lambda c: [c[0], *c[1]]),
}  # fmt: skip
"""For each name, how an object is made from an argument, the argument, and what the object gives."""


@pytest.mark.parametrize("name", CASES)
def test_object_does_not_change_with_its_argument(name: str) -> None:
    make, argument, result = CASES[name]
    kept, changed = ([*argument] if isinstance(argument, list) else copy.deepcopy(argument) for _ in range(2))  # fmt: skip
    expected, other = result(make(kept)), make(changed)
    overwrite(changed)
    if not isinstance(changed, np.ndarray):
        changed.clear()
    assert result(other) == expected
