"""Graders of the course refuse wrong variants of each solution, and judge natural answers with a reason."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.mutants import mutants
from support.scripts import EXAMPLES

import minigrad as mg

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
COURSE = EXAMPLES / "course"


def modules() -> list[Any]:
    """Return the modules of exercises, by the names of their files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(COURSE))
        files = sorted((COURSE / "exercises").glob("[a-z]*.py"))
        return [importlib.import_module(f"exercises.{Path(file).stem}") for file in files]


EXERCISES = {
    (module.__name__.split(".")[1], name): exercise
    for module in modules()
    for name, exercise in module.exercises.items()
}
each_exercise = pytest.mark.parametrize("key", EXERCISES, ids=lambda key: ".".join(key))

ALWAYS_EQUAL = [
    r"np\.sqrt\((q|k|Q|K|W_?[QK])\.shape\[(-1|1|2)\]\)",  # the size of queries and keys
    r"reshape\(.*-2",  # any negative number
]
EQUAL: dict[str, list[str]] = {
    "salience": [r"\(x\.mean\(1, keepdims=True\) - x\) \*\* 2"],
    "masked_weights": [r"-1\.1\d*e\+30"],
    "autodiff.backward": [r"len\(slopes\)"],
    "build_a_transformer.attention": [
        r"source\.shape\[-1\]", r"/ d_k \*\* 0\.5", r"mask, scores, -1000000000\.0", r"float32\(-1100000000\.0\)",
    ],
    "build_a_transformer.norm": [r"keepdims=True\) \+ 1e-05\)$"],
    "embed": [
        r"table\.shape\[-1\]|ids\.shape\[-1\]", r"(10001|9999) \*\*", r"reshape\(len\(angles\), d\)", r"\* d \*\* 0\.5",
    ],
    "decode": [r"np\.tri\((target\.shape\[-1\]|x\.shape\[1\])"],
    "lens": [r"np\.shape\(words\)"],
    "copying": [r"np\.shape\(ids\)"],
    "removal_order": [r"importance\.shape\[-1\]"],
    "winners": [r"np\.shape\(np\.unique"],
    "window": [r"row - row\[|column - column\[", r"down, across = \("],  # sizes
    "iou": [r"called, is_one = \("],
    "receptive_field": [r"np\.shape\(mask\)", r"mask @ field"],
    "what_is_left": [r"<= 0\.1\b", r">= 0\.9\b"],  # no rate is a limit
    "weights_of_past": [r"np\.shape\(scores\)"],
    "cross_attention": [r"np\.sqrt\((v|W_V)\.shape"],  # one size for all matrices
    "multi_head": [r"np\.sqrt\(v\.shape"],
    "normalise": [r"centred\.var"],
    "sample": [r"ends < u"],  # no number is an end
}  # fmt: skip
"""Changed lines of solutions that compute the same, by exercise."""


def is_equal(key: tuple[str, str], line: str) -> bool:
    patterns = [*ALWAYS_EQUAL, *EQUAL.get(key[1], []), *EQUAL.get(".".join(key), [])]
    return any(re.search(pattern, line) for pattern in patterns)


@each_exercise
def test_grader_refuses_every_wrong_variant_of_the_solution(key: tuple[str, str]) -> None:
    exercise = EXERCISES[key]
    with np.errstate(all="ignore"):
        judged = [(line, exercise.judge(variant)) for line, variant in mutants(exercise.reference)]
    accepted = [line for line, wrong in judged if not wrong and not is_equal(key, line)]
    assert not accepted, "\n".join(accepted)
    assert judged


ODD: list[Any] = [
    3, 2.5, True, "no", b"no", [], {}, (), [1, "a"], [[1], [2, 3]], 1j, np.array("x"), np.array([1j]), np.array(None),
    object(), mg.Tensor(1.0), mg.Tensor([[1.0, 2.0]]), np.zeros((0, 3)), lambda: 0, iter([1]), range(2), {1: 2},
]  # fmt: skip


@each_exercise
def test_grader_refuses_odd_results_without_an_error_of_its_own(key: tuple[str, str]) -> None:
    exercise = EXERCISES[key]
    for value in ODD:
        assert exercise.judge(lambda *_, value=value: value) not in ("", "…"), repr(value)
    assert "it raises" in exercise.judge(lambda: 0)
    assert exercise.judge(lambda *_: None) == "…"


def overwritten(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = q @ k.T / np.sqrt(k.shape[1])
    scores[~mask] = -np.inf
    return mg.softmax(scores) @ v


def in_numpy_alone(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = np.where(mask, q @ k.T / np.sqrt(k.shape[1]), -np.inf)
    e = np.exp(scores - np.max(scores, axis=1, keepdims=True))
    return e / e.sum(1, keepdims=True) @ v


def of_arrays(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return in_numpy_alone(
        *(getattr(x, "data", x) if isinstance(x, mg.Tensor) else x for x in (q, k, v)), mask
    )


def into_zeros(x: Any, W_Q: Any, W_K: Any, W_V: Any, W_O: Any, heads: int) -> Any:
    size = x.shape[1] // heads
    z = np.zeros(x.shape)
    for h in range(heads):
        part = slice(h * size, (h + 1) * size)
        q, k, v = (x @ W[:, part] for W in (W_Q, W_K, W_V))
        z[:, part] = mg.softmax(q @ k.T / np.sqrt(size)) @ v
    return z @ W_O


def concatenated(x: Any, W_Q: Any, W_K: Any, W_V: Any, W_O: Any, heads: int) -> Any:
    size, parts = x.shape[1] // heads, []
    for h in range(heads):
        part = slice(h * size, (h + 1) * size)
        q, k, v = (x @ W[:, part] for W in (W_Q, W_K, W_V))
        parts.append(mg.softmax(q @ k.T / np.sqrt(size)) @ v)
    return np.concatenate(parts, axis=1) @ W_O


def of_float64(p: Any, name: str, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    root = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float64(1e-5))
    return centred / root * p[f"{name}.weight"] + p[f"{name}.bias"]


def with_a_loop_over_rows(x: Any) -> Any:
    y = np.zeros(x.shape)
    for i, row in enumerate(x):
        y[i] = (row - row.mean()) / np.sqrt(row.var() + 1e-6)
    return y


@pytest.mark.parametrize(
    ("name", "answer", "reason"),
    [
        ("masked_attention", overwritten, "^$"),
        ("masked_attention", in_numpy_alone, "^$"),
        ("masked_attention", of_arrays, "its gradient by q is missing .* not with their .data"),
        ("multi_head", into_zeros, r"with tensors, .* raises TypeError: .* write np.stack\("),
        ("multi_head", concatenated, "^$"),
        ("norm", of_float64, "returns float64; expected float32: np.sqrt.2. is float64, which makes"),
        ("layer_norm", with_a_loop_over_rows, "^$"),
        ("softmax_rows", lambda scores: mg.softmax(scores), "returns Tensor; .* so return its .data$"),
        ("pieces", lambda ids, starts, n: [ids[s : s + n + 1] for s in starts], "returns list; expected ndarray$"),
        ("pieces", lambda ids, starts, n: np.stack([ids[s : s + n + 1] for s in starts]), "^$"),
    ],
)  # fmt: skip
def test_grader_judges_natural_answers_with_a_reason(name: str, answer: Any, reason: str) -> None:
    exercise = next(exercise for key, exercise in EXERCISES.items() if key[1] == name)
    assert re.search(reason, exercise.judge(answer))


@pytest.mark.parametrize("shape", [(), (2,)])
def test_grader_prints_numbers_that_differ(shape: Any) -> None:
    module = importlib.import_module("grading")
    exercise = module.Exercise(lambda x: x, lambda rng: iter([(np.full(shape, -1.70512345),)]))
    message = exercise.judge(lambda x: x - 1e-4 * (np.arange(x.size).reshape(shape) == 0))
    value, expected = re.search(r"(-1\.\d+); expected (-1\.\d+)", message).groups()
    assert value != expected
