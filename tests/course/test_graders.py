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
    "cross_attention": [
        r"np\.sqrt\((v|W_V)\.shape",  # one size for all matrices
        r"e = np\.exp\(scores( [-+] \w+\.(max|min)\(-1, keepdims=True\))?\)",  # shifts of a softmax
    ],
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
        ("masked_attention", of_arrays, "its gradient with respect to q is missing .* not with their .data"),
        ("multi_head", into_zeros, r"with tensors, .* raises TypeError: .* write minigrad.tensor\("),
        ("multi_head", concatenated, "^$"),
        ("norm", of_float64, "returns float64; expected float32: np.sqrt.2. is float64, which makes"),
        ("layer_norm", with_a_loop_over_rows, "^$"),
        ("softmax_rows", lambda scores: mg.softmax(scores), "returns Tensor; .* so return its .data$"),
        ("pieces", lambda ids, starts, n: [ids[s : s + n + 1] for s in starts], "^$"),
        ("pieces", lambda ids, starts, n: [ids[s : s + n + s] for s in starts], r"returns list; [\s\S]*np\.stack"),
        ("pieces", lambda ids, starts, n: np.stack([ids[s : s + n + 1] for s in starts]), "^$"),
    ],
)  # fmt: skip
def test_grader_judges_natural_answers_with_a_reason(name: str, answer: Any, reason: str) -> None:
    exercise = next(exercise for key, exercise in EXERCISES.items() if key[1] == name)
    assert re.search(reason, exercise.judge(answer))


def exercise(name: str) -> Any:
    return next(exercise for key, exercise in EXERCISES.items() if key[1] == name)


def early(tree: Any, width: int) -> Any:
    """Stop as soon as the best beginning is finished: no other can become better."""
    beam = [((), 1.0)]
    while beam[0][0] in tree:
        longer = [((*s, w), p * q) for s, p in beam for w, q in tree.get(s, {"": 1.0}).items()]
        longer = [(s[:-1] if s[-1] == "" else s, p) for s, p in longer]
        beam = sorted(longer, key=lambda pair: pair[1], reverse=True)[:width]
    return beam[0]


def with_counters(pairs: Any) -> int:
    from collections import Counter, defaultdict

    bags: Any = defaultdict(Counter)
    for source, target in pairs:
        bags[frozenset(Counter(source).items())][" ".join(target)] += 1
    return sum(bag.most_common(1)[0][1] for bag in bags.values())


def stable_adam(value: Any, gradient: Any, m: Any, v: Any, step: int, lr: float) -> Any:
    m, v = 0.9 * m + 0.1 * gradient, 0.98 * v + 0.02 * np.square(gradient)
    return [value - lr * m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.98**step)) + 1e-9), m, v]


RIGHT: list[tuple[str, Any]] = [
    ("measured", lambda f, x, h: f(x + h) / (2 * h) - f(x - h) / (2 * h)),
    ("by_hand", lambda x, w: np.array([w, x]) * 2 * np.tanh(x * w) * (1 - np.tanh(x * w) ** 2)),
    ("matmul_gradients", lambda G, X, W: [G @ W.T, (G.T @ X).T]),
    ("step", lambda parameters, gradients, rate: tuple(p - rate * g for p, g in zip(parameters, gradients))),
    ("salience", lambda x: np.square(x - x.mean(1)[:, None]).sum(2)),
    ("masked_weights", lambda scores, mask: mg.softmax(np.where(mask, scores, -1e12)).data * mask),
    ("beam_search", early),
    ("beam_search", lambda tree, width: list(early(tree, width))),
    ("most_right", with_counters),
    ("what_is_left", lambda runs: np.array(
        ["always one kind" if min(a, b) < 0.1 and max(a, b) > 0.9 else "knows more" for a, b in runs])),
    ("window", lambda side, reach: np.array([[
        abs(i // side - j // side) <= reach and abs(i % side - j % side) <= reach
        for j in range(side**2)] for i in range(side**2)])),
    ("receptive_field", lambda mask, layers: np.linalg.matrix_power(mask.astype(int), layers) > 0),
    ("removal_order", lambda importance: sorted(
        [(i, h) for i, row in enumerate(importance) for h in range(len(row)) if h != np.argmax(row)],
        key=lambda at: importance[at])),
    ("one_silent", lambda layers, heads: ~np.eye(layers * heads, dtype=bool).reshape(-1, layers, heads)),
    ("parameters_of", lambda count, d_model, size: float(count * size * (4 * d_model + 3))),
    ("layer_norm", lambda x: ((x.T - x.mean(1)) / np.sqrt(x.var(1) + 1e-6)).T),
    ("winners", lambda Q, K: len({int(np.argmax(K @ q)) for q in Q})),
    ("bits", lambda log_p, pieces: float(np.mean([
        -log_p[n, t, pieces[n, t + 1]] / np.log(2) for n, t in np.ndindex(log_p.shape[:2])]))),
    ("sample", lambda logits, temperature, u: np.array([
        min(np.searchsorted(mg.softmax(row / temperature).data.cumsum(), x, "right"), len(row) - 1)
        for row, x in zip(logits, u)])),
    ("adam", stable_adam),
    ("split_into_heads", lambda x, heads: np.split(x, heads, axis=1)),
    ("positions", lambda length, d: [
        [(np.cos if j % 2 else np.sin)(t / 10_000 ** (j // 2 * 2 / d)) for j in range(d)] for t in range(length)]),
    ("copying", lambda weights, ids: [float(w) for w in exercise("copying").reference(weights, ids)]),
    ("matmul_gradients", lambda G, X, W: (np.einsum("nm,km->nk", G, W), np.tensordot(X, G, (0, 0)))),
    ("shifted", lambda target: np.stack([target[:, :-1], target[:, 1:]])),
    ("pieces", lambda ids, starts, n: np.lib.stride_tricks.sliding_window_view(ids, n + 1)[starts]),
    ("iou", lambda p, t, c: np.float32(((p == c) & (t == c)).sum() / ((p == c) | (t == c)).sum())),
    ("parameters_of", lambda count, d_model, size: np.int64(count * size * (4 * d_model + 3))),
]  # fmt: skip
"""Right answers that are written in another way, or have another type that the next cell takes."""


@pytest.mark.parametrize(("name", "answer"), RIGHT, ids=lambda value: str(value)[:20])
def test_grader_accepts_right_answers_of_other_forms(name: str, answer: Any) -> None:
    assert exercise(name).judge(answer) == ""


def softmax_of(scores: Any, mask: Any, largest: Any) -> Any:
    with np.errstate(all="ignore"):
        e = np.exp(np.where(mask, scores, -np.inf) - largest)
        return np.nan_to_num(e / e.sum(-1, keepdims=True))


def of_reference(name: str, change: Any) -> Any:
    return lambda *arguments: change(exercise(name).reference(*arguments))


WRONG: list[tuple[str, Any, str]] = [
    ("step", lambda p, g, rate: np.array([a - rate * b for a, b in zip(p, g)]), "raises ValueError"),
    ("step", lambda p, g, rate: np.array([p[0] - rate * g[0]]), r"it has 1 elements; expected 3"),
    ("step", lambda p, g, rate: (a - rate * b for a, b in zip(p, g)), "returns generator; expected list"),
    ("step", lambda p, g, rate: [p[0] - rate * g[0], p[1], p[2] - rate * g[2]], r"result\[1\]: the value at"),
    ("beam_search", lambda tree, width: (list((r := early(tree, width))[0]), r[1]), r"result\[0\]: .* tuple"),
    ("removal_order", of_reference("removal_order", lambda pairs: [[*pair] for pair in pairs]), r"result\[0\]: .*list.* tuple"),
    ("removal_order", of_reference("removal_order", np.array), r"result\[0\]: .* tuple"),
    ("window", of_reference("window", lambda mask: mask.astype(int)), "True and False, not 1 and 0"),
    ("window", of_reference("window", lambda mask: mask.astype(float)), "float64; expected bool"),
    ("masked_weights", lambda s, mask: softmax_of(s, mask, s.max(-1, keepdims=True)), "over hidden keys, too"),
    ("masked_weights", lambda s, mask: softmax_of(s, mask, 0), "is 0; expected 1"),
    ("loss", of_reference("loss", lambda loss: loss.item()), "returns float; expected Tensor: its derivatives"),
    ("loss", of_reference("loss", lambda loss: loss.data), "expected Tensor: its derivatives"),
    ("adam", of_reference("adam", lambda t: (t[0], t[2], t[1])), "m and v are exchanged"),
    ("by_hand", lambda x, w: (w, x), "derivatives of square and tanh are missing"),
    ("measured", lambda f, x, h: (f(x + h) - f(x - h)) / h, "From x - h to x \\+ h is 2h"),
    ("matmul_gradients", lambda G, X, W: (G @ W.T, 2 * X.T @ G), r"result\[1\]: .*\n  Every value is 2 times"),
    ("shifted", lambda target: (target[:, :-1], target[:, :-1]), "wanted tokens are one further"),
    ("layer_norm", of_reference("layer_norm", lambda y: y + 1), "To every value 1 is added"),
    ("softmax_rows", of_reference("softmax_rows", lambda S: -S), "Every sign is wrong"),
    ("split_into_heads", of_reference("split_into_heads", lambda x: x[::-1]), "The order is reversed"),
    ("feed_forward", lambda x, W1, b1, W2, b2: np.clip(x @ W1 + b1, 0, 6) @ W2 + b2, "cut off at 6"),
    ("what_is_left", lambda runs: ["knows more" if min(r) > 0.1 else "always one kind" for r in runs], "above 0.9"),
    ("iou", lambda p, t, c: 2 * ((p == c) & (t == c)).sum() / ((p == c).sum() + (t == c).sum()), "Dice"),
    ("sample", of_reference("sample", lambda letters: letters.astype(float)), "type float64; expected int"),
    ("norm", lambda p, name, x: 3, "returns int; expected Tensor"),
    ("softmax_rows", lambda scores: mg.softmax(-scores).data, r"the value at \[\d, \d\]"),
    ("scaled_scores", lambda q, k: k @ q.T / np.sqrt(k.shape[1]), "here it is the other way round"),
    ("scaled_scores", lambda q, k: q @ k.T / len(k), "multiple of the right one: 0.6667, 2, 0.5, 0.3464 times"),
    ("matmul_gradients", lambda G, X, W: (G @ W.T, G.T @ X), r"result\[1\]: .*Rows and columns are exchanged"),
    ("cross_attention", lambda x, memory, Q, K, V: exercise("cross_attention").reference(x, memory, K, Q, V),
     "W_Q and W_K are exchanged"),
    ("feed_forward", lambda x, W1, b1, W2, b2: exercise("feed_forward").reference(x, W1, b1, W2, 0), "b2, is missing"),
    ("masked_attention", lambda q, k, v, mask: exercise("masked_attention").reference(q, k, v, mask ^ ~mask),
     "The mask is not used"),
    ("weights_of_past", lambda scores: np.tri(len(scores)) / np.arange(1, len(scores) + 1)[:, None],
     "The result is the same for any scores"),
    ("importance", lambda d: abs(d).mean(1), "along the wrong axis"),
    ("salience", lambda x: ((x - x.mean(1, keepdims=True)) ** 2).sum(), "too few axes"),
    ("pieces", lambda ids, starts, n: ids[starts[:, None] + np.arange(n + 2)], "Axis 1 has one too many"),
    ("patches", of_reference("patches", lambda x: x.swapaxes(1, 2)), "Rows and columns are exchanged"),
    ("by_hand", lambda x, w: x, "2 values are asked for: return a, b"),
    ("what_is_left", lambda runs: [min(r) < 0.1 and max(r) > 0.9 for r in runs], "not True or False"),
    ("adam", of_reference("adam", lambda t: [t[0], t[1] / 2, t[2]]), r"result\[1\]: .* 0.5 times"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answer", "reason"), WRONG, ids=lambda value: str(value)[:20])
def test_grader_refuses_wrong_answers_with_a_hint(name: str, answer: Any, reason: str) -> None:
    assert re.search(reason, exercise(name).judge(answer), re.S)


def without_finished(tree: Any, width: int) -> Any:
    """Let finished sentences leave the beam, so that they are never pushed out."""
    beam, finished = [((), 1.0)], []
    while beam:
        longer = [((*s, word), p * q) for s, p in beam for word, q in tree[s].items()]
        longer = sorted(longer, key=lambda pair: -pair[1])[:width]
        finished += [pair for pair in longer if pair[0] not in tree]
        beam = [pair for pair in longer if pair[0] in tree]
    return max(finished, key=lambda pair: pair[1])


def changed(name: str, **changes: Any) -> Any:
    """Return the reference of an exercise with functions of some arguments in their place."""

    def answer(*arguments: Any) -> Any:
        named = dict(zip(exercise(name)._names(), arguments))
        values = {key: change(**named) for key, change in changes.items()}
        return exercise(name).reference(*{**named, **values}.values())

    return answer


AT_EDGES: list[tuple[str, Any]] = [
    ("measured", changed("measured", x=lambda f, x, h: abs(x))),
    ("by_hand", changed("by_hand", w=lambda x, w: abs(w))),
    ("matmul_gradients", changed("matmul_gradients", G=lambda G, X, W: G.clip(-3, 3))),
    ("scaled_scores", changed("scaled_scores", q=lambda q, k: q[: len(k)], k=lambda q, k: k[: len(q)])),
    ("masked_attention", lambda q, k, v, mask: (
        mg.softmax(np.where(mask, q @ k.T / np.sqrt(k.shape[1]), -1e3)) @ v)),
    ("masked_weights", changed("masked_weights", mask=lambda scores, mask: mask ^ mask.all())),
    ("split_into_heads", changed("split_into_heads", heads=lambda x, heads: 2 * (heads // 2))),
    ("multi_head", changed("multi_head", heads=lambda heads, **_: max(heads, 2))),
    ("shifted", changed("shifted", target=lambda target: target[:, :7] if len(target) < 5 else target[:3])),
    ("beam_search", without_finished),
    ("beam_search", changed("beam_search", width=lambda tree, width: min(width, 2))),
    ("slope_of_stack", changed("slope_of_stack", slopes=lambda slopes, add: slopes[: 24 if add else 3])),
    ("winners", lambda Q, K: len({*(Q @ K.T).argmax(1)}) if len(Q) > len(K) else len(Q)),
    *((name, changed(name, h=lambda h, **_: 4)) for name in ("encode", "decode", "loss")),
    *((name, changed(name, layers=lambda layers, **_: 3)) for name in ("encode", "decode", "loss")),
    ("pieces", lambda ids, starts, n: ids[(starts[:, None] + np.arange(n + 1)) % (len(ids) - 1)]),
    ("pieces", changed("pieces", starts=lambda ids, starts, length: np.unique(starts))),
    ("lens", lambda states, norm, output, words: exercise("lens").reference(
        states, norm, output, words)[:, np.unique(words, return_index=True)[1]]),
    ("copying", changed("copying", ids=lambda weights, ids: np.where(ids, ids, -np.arange(len(ids))))),
    ("patches", changed("patches", size=lambda images, size: max(size, 2))),
    ("iou", lambda p, t, c: exercise("iou").reference(p, t, c) if c else 1.0),
    ("window", changed("window", reach=lambda side, reach: reach * (reach < side))),
    ("removal_order", changed("removal_order", importance=lambda importance: importance[:3])),
    ("parameters_of", lambda count, d_model, size: count * (d_model // 2 * 8 * size + 3 * size)),
]  # fmt: skip
"""Answers that are wrong for some arguments only."""


@pytest.mark.parametrize(("name", "answer"), AT_EDGES, ids=lambda value: str(value)[:20])
def test_grader_refuses_answers_that_are_wrong_at_an_edge(name: str, answer: Any) -> None:
    assert exercise(name).judge(answer) not in ("", "…")


def test_grade_makes_an_array_of_a_list() -> None:
    exercises = next(module for module in modules() if "multi_head" in module.__name__).exercises
    answer = lambda x, heads: np.split(x, heads, axis=1)
    split = exercises.grade(answer, "split_into_heads")
    assert split is not answer and split(np.ones((2, 4)), 2).shape == (2, 2, 2)


def test_grade_names_the_exercise_of_a_lambda(capsys: pytest.CaptureFixture[str]) -> None:
    exercises = next(module for module in modules() if "autodiff" in module.__name__).exercises
    right = lambda f, x, h: (f(x + h) - f(x - h)) / (2 * h)
    other_names = lambda g, at, step: (g(at + step) - g(at - step)) / (2 * step)
    assert exercises.grade(right) is right
    assert exercises.grade(other_names, "measured") is other_names
    assert exercises.grade(3, "measured") is exercises["measured"].reference
    printed = capsys.readouterr().out
    assert printed.count("✓ measured: right") == 2 and "returns int" in printed
    with pytest.raises(ValueError, match="name must be one of measured, by_hand"):
        exercises.grade(other_names)


@pytest.mark.parametrize("shape", [(), (2,)])
def test_grader_prints_numbers_that_differ(shape: Any) -> None:
    module = importlib.import_module("grading")
    exercise = module.Exercise(lambda x: x, lambda rng: iter([(np.full(shape, -1.70512345),)]))
    message = exercise.judge(lambda x: x - 1e-4 * (np.arange(x.size).reshape(shape) == 0))
    value, expected = re.search(r"(-1\.\d+); expected (-1\.\d+)", message).groups()
    assert value != expected
